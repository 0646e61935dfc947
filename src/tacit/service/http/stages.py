"""Routes of rounds with stages: a device asks for its next message and sends its answer.

The question is held until there is a message, a few seconds at most (long polling). Questions and
answers name slot and token in a header: strangers hold no connection, and nothing larger than a few
kilobytes is read from them. A slot holds few questions, so its owner cannot keep others out.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Header, Path, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Scope

from tacit.aggregation.two_servers import ReportSlot
from tacit.errors import Refusal, Unavailable
from tacit.service.coordinator import Coordinator
from tacit.service.errors import Forbidden
from tacit.service.http.bodies import ExpectedBody, Headers
from tacit.service.http.driver import Driver
from tacit.service.http.problems import responses
from tacit.service.http.writer import GroupWriter
from tacit.service.trust_models.contract import StagedRound

HELD = 8.0  # seconds that a question waits for its message
LOOKS = 0.1  # seconds between looks whether this process has ended a stage
PATIENCE = 10  # looks after which the message is looked up anyway: another process may have
MOST_HELD = 2  # questions of one slot: the device may have lost the connection of the first
SLOT_HEADER = "tacit-slot"
_PATH = re.compile("/rounds/(?P<identity>[0-9a-f]{32})/messages")
_OCTETS = "application/octet-stream"

Identity = Annotated[str, Path(pattern="^[0-9a-f]{32}$", description="name of a round")]
Address = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="public key of the device")]
After = Annotated[int, Path(ge=0, le=16, description="messages that the device has answered")]

SlotName = Annotated[
    str,
    Header(alias="Tacit-Slot", pattern="^[0-9a-f]{40}$", description="slot number and its token"),
]


def add_stages(app: FastAPI, coordinator: Coordinator, writer: GroupWriter, driver: Driver) -> None:
    """Add the two routes."""
    content = {_OCTETS: {"schema": {"type": "string"}}}
    found = {"description": "the next message for this device", "content": content}
    none = {"description": "no message yet: ask again"}
    how: dict[str, Any] = {
        "tags": ["devices"],
        "responses": {**responses(403, 404, 410), 200: found, 204: none},
    }

    held = Counter[tuple[bytes, int]]()

    @contextmanager
    def holding(name: bytes, slot: ReportSlot) -> Iterator[None]:
        whose = (name, slot.number)
        if held[whose] >= MOST_HELD:
            raise Unavailable(f"slot {slot.number} holds {MOST_HELD} questions: retry later")
        held[whose] += 1
        try:
            yield
        finally:
            held[whose] -= 1
            if not held[whose]:
                del held[whose]

    @app.get("/rounds/{identity}/messages/{address}/{after}", response_class=Response, **how)
    async def message(
        identity: Identity, address: Address, after: After, named: SlotName
    ) -> Response:
        """The next message of a round with stages for one device."""
        name, whom = bytes.fromhex(identity), bytes.fromhex(address)
        slot, seen = slot_of({SLOT_HEADER.encode(): named.encode()}), -1
        served = await run_in_threadpool(staged, coordinator, name, slot)
        with holding(name, slot):
            for look in range(int(HELD / LOOKS)):
                if served.messages_sent != seen or look % PATIENCE == 0:
                    seen = served.messages_sent
                    asked = await run_in_threadpool(coordinator.next_message, name, whom, after)
                    if asked:
                        return Response(asked, media_type=_OCTETS)
                await asyncio.sleep(LOOKS)
        return Response(status_code=204)

    sent: dict[str, Any] = {
        "tags": ["devices"],
        "responses": responses(403, 404, 409, 410, 413),
        "openapi_extra": {"requestBody": {"required": True, "content": content}},
    }

    @app.put("/rounds/{identity}/messages", status_code=204, response_class=Response, **sent)
    async def answer(identity: Identity, named: SlotName, request: Request) -> Response:
        """A device's answer to the last message that it was sent."""
        slot = slot_of({SLOT_HEADER.encode(): named.encode()})
        waiting = coordinator.answer(bytes.fromhex(identity), slot, await request.body())
        refusal = await writer(coordinator.keep, waiting)
        if refusal is not None:
            raise refusal
        driver.poke(hurry=True)
        return Response(status_code=204)


def slot_of(headers: Headers) -> ReportSlot:
    """The slot and token in the header of an answer."""
    try:
        return ReportSlot.decode(bytes.fromhex(headers.get(SLOT_HEADER.encode(), b"").decode()))
    except (ValueError, UnicodeDecodeError):
        raise Refusal(f"header {SLOT_HEADER} must have a slot and its token in hex") from None


def staged(coordinator: Coordinator, identity: bytes, slot: ReportSlot) -> StagedRound:
    """A round with stages; raises `Forbidden` unless the token is that of the slot."""
    served = coordinator.staged(identity)
    (own,) = served.slots([slot.number])
    if not hmac.compare_digest(own.token, slot.token):
        raise Forbidden(f"slot {slot.number} has another token")
    return served


class AnswerSizes:
    """The size of an answer at most; known only for a valid slot of a round with stages."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    async def __call__(self, scope: Scope, headers: Headers) -> ExpectedBody | None:
        """The body of a PUT to read; None for other paths."""
        where = _PATH.fullmatch(scope["path"])
        if where is None:
            return None
        about = (self._coordinator, bytes.fromhex(where["identity"]), slot_of(headers))
        served = await run_in_threadpool(staged, *about)
        return ExpectedBody(served.largest_answer)
