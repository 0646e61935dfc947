"""Signed HTTP calls of the coordinator to its helpers (`calls`).

Transport failures raise `Unavailable`, and the driver retries them. Rejections by the helper raise
a `Rejected` of the same type. The size and time of answers are bounded, because the helper is not
trusted.
"""

from __future__ import annotations

import json
import time
from typing import Any

import httpx

from tacit.aggregation.announcements import binding_of
from tacit.client.deadlines import limit_exchanges
from tacit.client.loopback import NEARBY
from tacit.client.unreachable import why_unreachable
from tacit.errors import Rejected, Unavailable
from tacit.service.errors import STATUS
from tacit.service.http.bodies import has_few_values
from tacit.service.http.calls import new_call
from tacit.service.party import ServerParty

PATIENCE = httpx.Timeout(10.0, connect=5.0)
LARGEST = 1 << 26  # maximum bytes of an answer
SLOWEST = 60.0  # maximum seconds of a call: other rounds wait meanwhile
LONGEST = 300  # maximum characters of a quoted reason
SLOW = 4.0  # seconds of a call after which its helper is left alone for a while
REST = 4  # times as long as the call: other helpers' rounds get most of the time
AGAIN = (408, 425, 429)  # statuses to retry


class HttpHelperClient:
    """Calls of a coordinator to the helpers of its experiments, at the addresses in their terms."""

    def __init__(self, coordinator: ServerParty) -> None:
        self._coordinator = coordinator
        self._rests: dict[str, float] = {}  # until when slow helpers are not called
        self._client = httpx.Client(
            timeout=PATIENCE,
            follow_redirects=False,
            mounts=NEARBY,
            headers={"accept-encoding": "identity"},
        )
        limit_exchanges(self._client, SLOWEST)

    def __repr__(self) -> str:
        return "HttpHelperClient()"

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def keys(self, digest: bytes, identity: bytes, sealing: int) -> bytes:
        """The helper's public keys for a new round."""
        asked = {"experiment": digest.hex(), "sealing": int(sealing)}
        return _bytes(self._call(digest, identity, "keys", asked), "keys")

    def describe(self, description: bytes, signature: bytes) -> bytes:
        """The announcement of a round, with the helper's signature."""
        identity, about = binding_of(description)
        digest = about.terms
        asked = {
            "experiment": digest.hex(),
            "description": description.hex(),
            "signature": signature.hex(),
        }
        said = self._call(digest, identity, "description", asked)
        return _bytes(said, "announcement")

    def exchange(self, identity: bytes, listing: bytes) -> tuple[bytes, bytes]:
        """The helper's list of reports and its answer; each is empty until available."""
        digest = self._coordinator.server(identity).round.binding.terms
        said = self._call(digest, identity, "exchange", {"listing": listing.hex()})
        return _bytes(said, "listing"), _bytes(said, "answer")

    def _call(self, digest: bytes, identity: bytes, what: str, asked: dict[str, Any]) -> Any:
        path, body = f"/rounds/{identity.hex()}/{what}", json.dumps(asked).encode()
        terms = self._coordinator.pinned(digest).terms
        headers = new_call(path, digest, body, self._coordinator.key_for(terms))
        headers["content-type"] = "application/json"
        assert terms.helper is not None
        address = terms.parties[terms.helper].address.rstrip("/")
        began = time.monotonic()
        if began < self._rests.get(address, 0.0):
            raise Unavailable("the helper was slow or unreachable: it is called again later")
        try:
            with self._client.stream("POST", address + path, content=body, headers=headers) as said:
                content = _read(said)
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as problem:
            raise Unavailable(f"the helper is unreachable ({why_unreachable(problem)})") from None
        finally:
            ended = time.monotonic()
            if ended - began > SLOW:
                self._rests[address] = ended + REST * (ended - began)
        return _parse_answer(said.status_code, content)


def _read(answer: httpx.Response) -> bytes:
    """The body of an answer, within its limit of size."""
    if "content-encoding" in answer.headers:
        raise Unavailable("the helper's answer is compressed: must not be")
    parts, size = [], 0
    for part in answer.iter_bytes():
        size += len(part)
        if size > LARGEST:
            raise Unavailable(f"the helper's answer is too large: at most {LARGEST} bytes")
        parts.append(part)
    return b"".join(parts)


def _parse_answer(status: int, content: bytes) -> Any:
    """The helper's JSON answer; raise its rejections as the matching exceptions."""
    try:
        said = json.loads(content) if has_few_values(content) else None
    except (ValueError, RecursionError):
        said = None
    if status == httpx.codes.OK and isinstance(said, dict):
        return said
    reason = said.get("error") if isinstance(said, dict) else None
    if not isinstance(reason, str) or not 400 <= status < 500 or status in AGAIN:
        raise Unavailable(f"the helper answered with status {status}")
    kinds = {number: kind for kind, number in STATUS.items()}
    raise kinds.get(status, Rejected)(f"the helper rejected the call: {reason[:LONGEST]}")


def _bytes(reply: Any, name: str) -> bytes:
    try:
        return bytes.fromhex(reply[name])
    except (KeyError, TypeError, ValueError):
        raise Rejected(
            f"the helper's answer lacks {name}: check that both run the same version"
        ) from None
