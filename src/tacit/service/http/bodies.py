"""Request bodies: their size is checked against a limit before they are read.

Reports have the size of their round's shares; of larger ones than other requests, the first bytes
must contain the token of the slot. Calls between the parties have the length and digest in their
signed header. Requests with the admin token may be larger than others, which have a few kilobytes.
A body beyond its limit is rejected before it is read.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.types import Message, Receive, Scope

from tacit.errors import Unavailable
from tacit.service.config import Limits
from tacit.service.errors import Forbidden
from tacit.service.http.calls import CALL, SIGNATURE, CallCheck

UNAUTHORIZED = 401
SLOWEST = 20.0  # maximum seconds to receive a body
FRONT = 64  # first bytes of a report, which contain its slot and token
AT_ONCE = 2  # stage messages of a slot: the device may have lost the connection of the first
MOST_VALUES = 256  # of a JSON document between parties, at most
CALL_SCOPE = "tacit.call"  # key of the checked header in the ASGI scope of a call
_CALLS = re.compile("/rounds/[^/]+/(keys|description|exchange)")
_ADMIN = re.compile("/experiments(/[^/]+/successor)?")

Headers = dict[bytes, bytes]


class BodyError(Exception):
    """A request body that was not read completely, with the HTTP status to return."""

    def __init__(self, status: int, reason: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.headers = {"connection": "close"}
        if status == UNAUTHORIZED:
            self.headers["www-authenticate"] = "Bearer"


class Sender(NamedTuple):
    """Who sends a report or a stage message: a slot in a round of an experiment."""

    experiment: bytes
    round: bytes
    slot: int


@dataclass(frozen=True)
class ExpectedBody:
    """The size of a body, at most or `exact`, and its SHA-256 digest if that is signed.

    `sender` names the sender of a report by its first `FRONT` bytes, and rejects strangers.
    `known` is the sender where headers name it, `caller` the experiment of a call.
    """

    size: int
    exact: bool = False
    digest: bytes | None = None
    sender: Callable[[bytes], Sender] | None = None
    known: Sender | None = None
    caller: bytes = b""

    def check_size(self, size: int, *, whole: bool) -> None:
        """Raise `BodyError` for a size, declared (`whole`) or received so far."""
        if size <= self.size and not (whole and self.exact and size < self.size):
            return
        rule = f"exactly {self.size}" if self.exact else f"at most {self.size}"
        if size > self.size:
            raise BodyError(413, f"The body must have {rule} bytes.")
        raise BodyError(422, f"Request validation failed: the body must have {rule} bytes.")


def is_large(headers: Headers, size: int) -> bool:
    """Whether the body is declared larger than this, or its size is not declared."""
    return b"transfer-encoding" in headers or int(headers.get(b"content-length", b"0")) > size


async def read_body(
    receive: Receive,
    headers: Headers,
    expected: ExpectedBody,
    begin: Callable[[bytes], object] = lambda _: None,
) -> bytes:
    """Read the whole body; raise `BodyError` if it is another than expected or takes too long.

    `begin` is called once: with the first bytes where they name the sender, else before any.
    """
    chunked, size = b"transfer-encoding" in headers, int(headers.get(b"content-length", b"0"))
    if not chunked:
        expected.check_size(size, whole=True)
    if expected.sender is None:
        begin(b"")
    body = await _received(receive, expected, begin) if chunked or size else b""
    if expected.digest is None:
        return body
    if hashlib.sha256(body).digest() != expected.digest:
        raise Forbidden("the digest of the body differs from the one in the signed header")
    if not has_few_values(body):
        raise BodyError(422, f"Request validation failed: the body has over {MOST_VALUES} values.")
    return body


async def _received(
    receive: Receive, expected: ExpectedBody, begin: Callable[[bytes], object]
) -> bytes:
    """The whole body, limited in size and time."""
    parts, size, more, waits = [], 0, True, expected.sender is not None
    try:
        async with asyncio.timeout(SLOWEST):
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    raise BodyError(400, "The connection closed before the end of the body.")
                parts.append(message.get("body", b""))
                size, more = size + len(parts[-1]), message.get("more_body", False)
                expected.check_size(size, whole=not more)
                if waits and size >= FRONT:
                    waits = False
                    begin(b"".join(parts))
    except TimeoutError:
        raise BodyError(408, f"The body must arrive within {SLOWEST:.0f} seconds.") from None
    return b"".join(parts)


def has_few_values(document: bytes) -> bool:
    """Whether a JSON document of the parties has few values, as all of theirs have.

    Many small values take twenty times the memory of their text, before anything is validated.
    """
    return sum(document.count(mark) for mark in (b",", b"[", b"{")) <= MOST_VALUES


def replayed(body: bytes, receive: Receive) -> Receive:
    """Replay the body to the application."""
    first: Message | None = {"type": "http.request", "body": body, "more_body": False}

    async def received() -> Message:
        nonlocal first
        if first is None:
            return await receive()
        message, first = first, None
        return message

    return received


class BodyRules:
    """The expected body of every request.

    `report` is the expected size of a report, or None for other paths. `is_admin` checks an
    `Authorization` header. `check` is the helper's check of calls. `answer` is the expected body
    of a stage message, or None for other paths. `sender` names the sender of a report.
    """

    def __init__(
        self,
        limits: Limits,
        report: Callable[[Scope], Awaitable[int | None]],
        is_admin: Callable[[str], bool],
        check: CallCheck | None = None,
        answer: Callable[[Scope, Headers], Awaitable[ExpectedBody | None]] | None = None,
        sender: Callable[[Scope, bytes], Sender] | None = None,
    ) -> None:
        self._limits, self._report, self._is_admin, self._check = limits, report, is_admin, check
        self._answer, self._sender = answer, sender
        self._held = Counter[bytes]()  # bytes by experiment; those of calls under an empty name
        self._senders = Counter[Sender]()
        self._rejected: dict[bytes, float] = {}  # experiments whose call was rejected, and when

    def is_admin(self, headers: Headers) -> bool:
        """Whether a request has the admin token of this party."""
        return self._is_admin(headers.get(b"authorization", b"").decode("latin-1"))

    async def expected(self, scope: Scope, headers: Headers) -> ExpectedBody:
        """The body to read; raise `TacitError` for a request that is rejected without it."""
        method, path = scope["method"], scope["path"]
        if method == "PUT":
            if (size := await self._report(scope)) is not None:
                large = size > self._limits.request_bytes
                named = partial(self._sender, scope) if self._sender and large else None
                return ExpectedBody(size, exact=True, sender=named)
            if self._answer is not None and (stage := await self._answer(scope, headers)):
                large = stage.size > self._limits.request_bytes
                return stage if large else replace(stage, known=None)
        if method == "POST" and self._check is not None and _CALLS.fullmatch(path):
            return await self._call(scope, self._check, headers)
        if method == "POST" and _ADMIN.fullmatch(path):
            return self._admin(headers)
        return ExpectedBody(self._limits.request_bytes)

    def _admin(self, headers: Headers) -> ExpectedBody:
        declared, limits = int(headers.get(b"content-length", b"0")), self._limits
        if self.is_admin(headers):
            return ExpectedBody(limits.admin_bytes)
        if limits.request_bytes < declared <= limits.admin_bytes:
            raise BodyError(UNAUTHORIZED)
        return ExpectedBody(limits.request_bytes)

    async def _call(self, scope: Scope, check: CallCheck, headers: Headers) -> ExpectedBody:
        call, signature = (
            headers.get(name.lower().encode(), b"").decode("latin-1") for name in (CALL, SIGNATURE)
        )
        found = await run_in_threadpool(partial(check, scope["path"], call, signature))
        if found is None:  # the application names the malformed header
            return ExpectedBody(self._limits.request_bytes)
        if found.length > self._limits.call_bytes:
            raise BodyError(413, f"The body must have at most {self._limits.call_bytes} bytes.")
        scope[CALL_SCOPE] = found
        return ExpectedBody(found.length, exact=True, digest=found.digest, caller=found.experiment)

    def holding(self, expected: ExpectedBody, begun: bytes = b"") -> AbstractContextManager[None]:
        """Bound the large bodies in memory: together at most the largest call, and as many calls.

        A slot sends one report or `AT_ONCE` stage messages at a time, and an experiment leaves a
        quarter to others: so strangers, single slots and the slots of one experiment keep nobody
        else out. Experiments take turns with calls, so one coordinator keeps out no other.
        """
        size = expected.size if expected.size > self._limits.admin_bytes else 0
        sender = expected.known if expected.sender is None else expected.sender(begun)
        most = AT_ONCE if expected.sender is None else 1
        if not size and not sender:
            return nullcontext()
        return self._holding(size, sender, most, expected.caller)

    @contextmanager
    def _holding(
        self, size: int, sender: Sender | None, limit: int, caller: bytes
    ) -> Iterator[None]:
        name = b"" if sender is None else sender.experiment
        busy = sender is not None and self._senders[sender] >= limit
        if busy or not self._fits(name, size) or not self._is_first(caller):
            if caller:
                self._rejected[caller] = time.monotonic()
            raise Unavailable("another large call is in progress: retry later")
        self._rejected.pop(caller, None)
        self._held[name] += size
        if sender is not None:
            self._senders[sender] += 1
        try:
            yield
        finally:
            self._held -= Counter({name: size})  # keeps what is above 0
            if sender is not None:
                self._senders -= Counter({sender: 1})

    def _is_first(self, caller: bytes) -> bool:
        """Whether no other experiment waits longer: its call was rejected, and is repeated soon."""
        since = time.monotonic() - SLOWEST
        self._rejected = {one: when for one, when in self._rejected.items() if when > since}
        return not caller or next(iter(self._rejected), caller) == caller

    def _fits(self, name: bytes, size: int) -> bool:
        """Whether a large body fits into memory beside the other bodies in progress."""
        own, most = self._held[name], self._limits.call_bytes
        if not name:
            return own + size <= most
        together = self._held.total() - self._held[b""]
        return together + size <= most and (not own or 4 * (own + size) <= 3 * most)
