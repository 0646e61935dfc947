"""HTTP client for the operator of a party, with one-line errors.

It covers only what the commands need. The admin token is sent as a bearer token and appears in no
error message and no repr.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.client.loopback import NEARBY
from tacit.client.unreachable import UNTRUSTED
from tacit.errors import Rejected, TacitError, Unavailable
from tacit.signatures import fingerprint
from tacit.terms import Pinned, Terms, cosign, in_order

TIMEOUT = httpx.Timeout(60.0, connect=10.0)
ADMIN_TOKEN_REQUIRED = "/problems/admin-token-required"  # type of a problem document


class NotAdmitted(Rejected):
    """The admin token is missing or wrong."""


@dataclass(frozen=True)
class PartyClient:
    """A party at an address, with the admin token where given."""

    url: str
    token: str = field(default="", repr=False)

    def get(self, path: str) -> Any:
        """GET a path; the decoded JSON."""
        return self._send("GET", path)

    def text(self, path: str) -> str:
        """GET a path; the body as text."""
        answer = self._answer("GET", path)
        if not answer.is_success:
            self._read(answer)
        return answer.text

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """POST to a path; the decoded JSON, or None for an empty answer."""
        return self._send("POST", path, body)

    def experiments(self) -> list[dict[str, str]]:
        """Digest, question and state of every experiment."""
        found = self.get("/experiments")
        if not isinstance(found, list) or not all(_is_listing_entry(one) for one in found):
            raise _not_a_party(self.url)
        return found

    def experiment(self, name: str | None) -> str:
        """The digest of an experiment by its first digits; they may be omitted if there is only
        one.
        """
        known = {one["digest"]: one for one in self.experiments()}
        found = [digest for digest in known if digest.startswith((name or "").lower())]
        if len(found) == 1:
            return found[0]
        if not known:
            raise TacitError(
                f"{self.url} has no experiments: publish one with tacit experiment create"
            )
        listed = "; ".join(
            f"{one['digest'][:12]} ({one['state']}: {one['question']})" for one in known.values()
        )
        remedy = (
            "give the first digits of one digest at the end of the command (in a URL after "
            f"/experiments/): {listed}"
        )
        if name is None:
            raise TacitError(f"{self.url} has {len(known)} experiments: {remedy}")
        raise TacitError(
            f"experiment is {name!r}: must match one digest at {self.url}, not {len(found)}. "
            f"{remedy[0].upper()}{remedy[1:]}"
        )

    def terms(self, digest: str) -> Published:
        """The terms of an experiment as this party publishes them."""
        said = self.get(f"/experiments/{digest}/terms")
        try:
            terms = Terms.decode(said["terms"].encode())
            signatures = tuple(bytes.fromhex(one) for one in said["signatures"])
            state = str(said["state"])
        except (LookupError, TypeError, ValueError, AttributeError) as problem:
            if isinstance(problem, TacitError):
                raise
            raise _not_a_party(self.url) from None
        if not re.fullmatch("[a-z]{1,16}", state):
            raise _not_a_party(self.url)
        if terms.digest.hex() != digest:
            raise Rejected(
                f"{self.url} sent terms with another digest than {digest}: do not use this server"
            )
        return Published(terms, signatures, state)

    def approvals(self, digest: str) -> list[str]:
        """The signatures of both parties under the successor of these terms."""
        successor = self.get(f"/experiments/{digest}/terms")["successor"]
        if successor is None:
            raise Rejected(f"{self.url} has no successor of terms {digest}: publish one first")
        return list(successor["approvals"])

    def first(self, terms: Terms) -> bytes:
        """The digest of the first terms in the lineage of these terms."""
        while terms.predecessor:
            terms = self.terms(terms.predecessor.hex()).terms
        return terms.digest

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        return self._read(self._answer(method, path, body))

    def _answer(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> httpx.Response:
        """The answer to one request; a `TacitError` if there is none."""
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            with httpx.Client(timeout=TIMEOUT, verify=_authorities(), mounts=NEARBY) as client:
                return client.request(method, self.url + path, json=body, headers=headers)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            raise TacitError(
                f"address is {self.url!r}: must be a URL such as https://coordinator.example"
            ) from None
        except httpx.HTTPError as problem:
            reason = str(problem) or type(problem).__name__
            if UNTRUSTED in reason:
                raise Unavailable(
                    f"{self.url} has a certificate that is not trusted ({reason}): renew it, or "
                    "name the file of an authority of your own in SSL_CERT_FILE"
                ) from None
            raise Unavailable(
                f"{self.url} does not answer ({reason}): start it with tacit serve, or correct "
                "the address"
            ) from None

    def _read(self, answer: httpx.Response) -> Any:
        if answer.status_code == 204:
            return None
        try:
            said = answer.json()
        except ValueError:
            raise _not_a_party(self.url) from None
        if answer.is_success:
            return said
        if not isinstance(said, dict) or not {"type", "error"} <= said.keys():
            raise _not_a_party(self.url)
        if said["type"] == ADMIN_TOKEN_REQUIRED:
            raise NotAdmitted(
                f"{self.url} rejects the admin token: give that party's file with --config, or put "
                "its token into TACIT_ADMIN_TOKEN"
            )
        raise Rejected(f"{self.url} says: {said['error']}")


@dataclass(frozen=True)
class Published:
    """Terms as a party publishes them, with the signatures so far."""

    terms: Terms
    signatures: tuple[bytes, ...]
    state: str = ""

    @property
    def signed(self) -> bool:
        """Whether both parties have signed."""
        return len(self.signatures) == len(self.terms.parties)

    def check(self) -> None:
        """Reject invalid signatures."""
        if self.signed:
            Pinned(self.terms, self.signatures, self.terms.keys)

    @property
    def fingerprints(self) -> dict[str, str]:
        """The fingerprint of each party's key, by role."""
        return {party.role: fingerprint(party.key) for party in self.terms.parties}


def publish_experiment(
    coordinator: PartyClient, text: str, helper: tuple[PartyClient, Ed25519PrivateKey] | None = None
) -> str:
    """Publish a definition as the coordinator's operator, and sign as the helper's; the digest.

    For programs that operate both parties, such as demonstrations and audits.
    """
    digest = str(coordinator.post("/experiments", {"definition": text})["digest"])
    if helper is None:
        return digest
    other, key = helper
    published = coordinator.terms(digest)
    signature = cosign(published.terms, key)
    signed = in_order(published.terms, published.signatures[0], signature)
    document = published.terms.encode().decode()
    other.post("/experiments", {"terms": document, "signatures": [one.hex() for one in signed]})
    coordinator.post(f"/experiments/{digest}/cosignature", {"signature": signature.hex()})
    return digest


def short_experiment(
    helper: tuple[str, bytes] | None, *, joining: int, margin: int, grace: int
) -> dict[str, Any]:
    """Entries of a definition whose rounds take seconds, from yesterday to the day after tomorrow.

    `helper` is the address and the key of the second party. For programs that operate all parties.
    """
    today = datetime.now(UTC).date()
    address, key = helper or (None, None)
    return {
        "first_day": today - timedelta(days=1),
        "last_day": today + timedelta(days=2),
        "window": 0,
        "joining": joining,
        "margin": margin,
        "grace": grace,
        "helper_address": address,
        "helper_key": key,
    }


@cache
def _authorities() -> ssl.SSLContext:
    """The TLS context with trusted certificate authorities; cached because it is slow to create."""
    return httpx.create_ssl_context()


def _is_listing_entry(entry: Any) -> bool:
    """Whether this is a well-formed entry of a party's list of experiments."""
    names = ("digest", "question", "state")
    return isinstance(entry, dict) and all(isinstance(entry.get(name), str) for name in names)


def _not_a_party(url: str) -> TacitError:
    return TacitError(f"{url} is not a tacit server: correct the address or the port")
