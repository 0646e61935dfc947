"""Routes of rounds with stages: a device asks for its next message and sends its answer.

The question is held until there is a message, a few seconds at most (long polling). Questions and
answers name slot and token in a header: strangers hold no connection, and nothing larger than a few
kilobytes is read from them. A slot holds few questions, so its owner cannot keep others out.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, NamedTuple, TypeVar

from fastapi import FastAPI, Header, Path, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Scope

from tacit.aggregation.interface import ClosedRound
from tacit.aggregation.masking_rounds import MaskingReports
from tacit.aggregation.two_servers import ReportSlot
from tacit.errors import Rejected, Unavailable
from tacit.service.coordinator import Coordinator
from tacit.service.errors import Gone
from tacit.service.http.bodies import ExpectedBody, Headers, Sender
from tacit.service.http.driver import Driver
from tacit.service.http.problems import responses
from tacit.service.http.writer import GroupWriter
from tacit.service.party import check_token

HELD = 8.0  # seconds that a question waits for its message
LOOKS = 0.1  # seconds between looks whether this process has ended a stage
PATIENCE = 10  # looks after which the record is read again: another process may have
MOST_HELD = 2  # questions of one slot: the device may have lost the connection of the first
_HEADER = b"tacit-slot"
_SLOT = re.compile(b"[0-9a-f]{40}")
_PATH = re.compile("/rounds/([0-9a-f]{32})/messages")
_QUESTION = re.compile("/rounds/([0-9a-f]{32})/messages/([0-9a-f]{64})/([0-9]|1[0-6])")
_OCTETS = "application/octet-stream"

Identity = Annotated[str, Path(pattern="^[0-9a-f]{32}$", description="name of a round")]
Address = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="public key of the device")]
After = Annotated[int, Path(ge=0, le=16, description="messages that the device has answered")]

Found = TypeVar("Found")


class Template(NamedTuple):
    """The path of a route, as metrics name it."""

    path: str


MESSAGE = Template("/rounds/{identity}/messages/{address}/{after}")
ANSWER = Template("/rounds/{identity}/messages")
SlotName = Annotated[
    str,
    Header(alias="Tacit-Slot", pattern="^[0-9a-f]{40}$", description="slot number and its token"),
]


class StageRoute:
    """GET of a device's next message and PUT of its answer.

    Well-formed requests are answered here, without the layers of the application.
    """

    def __init__(self, coordinator: Coordinator, writer: GroupWriter, driver: Driver) -> None:
        self._coordinator, self._writer, self._driver = coordinator, writer, driver
        self._held = Counter[tuple[bytes, int]]()
        self._watches: dict[bytes, asyncio.Task[None]] = {}

    async def __call__(self, scope: Scope, body: bytes) -> Response | None:
        """Answer a well-formed request; None for any other."""
        named = dict(scope["headers"]).get(_HEADER, b"")
        if not _SLOT.fullmatch(named):
            return None
        slot = ReportSlot.decode(bytes.fromhex(named.decode()))
        asks = scope["method"] == "GET"
        if asks and (where := _QUESTION.fullmatch(scope["path"])):
            scope["route"] = MESSAGE
            name, address = bytes.fromhex(where[1]), bytes.fromhex(where[2])
            return await self.message(name, address, int(where[3]), slot)
        if not asks and (where := _PATH.fullmatch(scope["path"])):
            scope["route"] = ANSWER
            return await self.answer(bytes.fromhex(where[1]), slot, body)
        return None

    async def message(
        self, identity: bytes, address: bytes, after: int, slot: ReportSlot
    ) -> Response:
        """The next message for a device; 204 if there is none in `HELD` seconds."""
        served = await self._quickly(identity, partial(staged, self._coordinator, identity, slot))
        with self._holding((identity, slot.number)):
            clock = asyncio.get_running_loop().time
            end = clock() + HELD
            while not (asked := next_message(served, address, after)) and clock() < end:
                await self._stage_ended(identity, served, end - clock())
        return Response(asked, media_type=_OCTETS) if asked else Response(status_code=204)

    async def answer(self, identity: bytes, slot: ReportSlot, body: bytes) -> Response:
        """Keep a device's answer to the last message that it was sent."""
        waiting = self._coordinator.answer(identity, slot, body)
        rejection = await self._writer(self._coordinator.keep, waiting)
        if rejection is not None:
            raise rejection
        self._driver.notify(hurry=True)
        return Response(status_code=204)

    async def size(self, scope: Scope, headers: Headers) -> ExpectedBody | None:
        """The body of an answer, known only for a valid slot; None for other paths."""
        where = _PATH.fullmatch(scope["path"])
        if where is None:
            return None
        identity = bytes.fromhex(where[1])
        slot = slot_of(headers)
        served = await self._quickly(identity, partial(staged, self._coordinator, identity, slot))
        sender = Sender(served.round.binding.terms, identity, slot.number)
        return ExpectedBody(served.largest_answer, known=sender)

    async def _quickly(self, identity: bytes, work: Callable[[], Found]) -> Found:
        """The result of work that needs the database only if the round is not loaded."""
        return work() if self._coordinator.is_loaded(identity) else await run_in_threadpool(work)

    @contextmanager
    def _holding(self, whose: tuple[bytes, int]) -> Iterator[None]:
        """Count a question of this slot."""
        if self._held[whose] >= MOST_HELD:
            raise Unavailable(f"slot {whose[1]} holds {MOST_HELD} questions: retry later")
        self._held[whose] += 1
        try:
            yield
        finally:
            self._held[whose] -= 1
            if not self._held[whose]:
                del self._held[whose]

    async def _stage_ended(self, identity: bytes, served: MaskingReports, seconds: float) -> None:
        """Wait until a stage may have ended; all questions of a round share one watch."""
        watch = self._watches.get(identity)
        if watch is None:
            watch = asyncio.ensure_future(self._watch(identity, served))
            self._watches[identity] = watch
            watch.add_done_callback(partial(self._forget_watch, identity))
        done, _ = await asyncio.wait([watch], timeout=seconds)
        if done:
            watch.result()  # raises the reason why the record cannot be read

    def _forget_watch(self, identity: bytes, watch: asyncio.Task[None]) -> None:
        del self._watches[identity]
        if not watch.cancelled():
            watch.exception()  # perhaps no question waits for it any more

    async def _watch(self, identity: bytes, served: MaskingReports) -> None:
        """Read the record of the round once for all waiting requests, then wait for messages."""
        seen = served.messages_sent
        await run_in_threadpool(self._coordinator.synchronize, identity)  # may rebuild the round
        for _ in range(PATIENCE):
            if served.messages_sent != seen:
                return
            await asyncio.sleep(LOOKS)


def add_stages(app: FastAPI, route: StageRoute) -> None:
    """Add both routes; malformed requests get an error that names the fault."""
    content = {_OCTETS: {"schema": {"type": "string"}}}
    found = {"description": "the next message for this device", "content": content}
    none = {"description": "no message yet: ask again"}
    how: dict[str, Any] = {
        "tags": ["devices"],
        "responses": {**responses(403, 404, 410), 200: found, 204: none},
    }

    @app.get(MESSAGE.path, response_class=Response, **how)
    async def message(
        identity: Identity, address: Address, after: After, named: SlotName
    ) -> Response:
        """The next message of a round with stages for one device."""
        slot = slot_of({_HEADER: named.encode()})
        return await route.message(bytes.fromhex(identity), bytes.fromhex(address), after, slot)

    sent: dict[str, Any] = {
        "tags": ["devices"],
        "responses": responses(403, 404, 409, 410, 413),
        "openapi_extra": {"requestBody": {"required": True, "content": content}},
    }

    @app.put(ANSWER.path, status_code=204, response_class=Response, **sent)
    async def answer(identity: Identity, named: SlotName, request: Request) -> Response:
        """A device's answer to the last message that it was sent."""
        slot = slot_of({_HEADER: named.encode()})
        return await route.answer(bytes.fromhex(identity), slot, await request.body())


def next_message(served: MaskingReports, address: bytes, after: int) -> bytes:
    """The next message for a device, if it is in memory; otherwise empty."""
    try:
        return served.next_message(address, after)
    except ClosedRound as reason:
        raise Gone(str(reason)) from None


def slot_of(headers: Headers) -> ReportSlot:
    """The slot and token in the header of an answer."""
    try:
        return ReportSlot.decode(bytes.fromhex(headers.get(_HEADER, b"").decode()))
    except (ValueError, UnicodeDecodeError):
        raise Rejected("header tacit-slot must have a slot and its token in hex") from None


def staged(coordinator: Coordinator, identity: bytes, slot: ReportSlot) -> MaskingReports:
    """A round with stages; raises `Forbidden` unless the token is that of the slot."""
    served = coordinator.staged(identity)
    check_token(served, slot)
    return served
