"""Routes of rounds with stages: a device asks for its next message and sends its answer.

The question is held until there is a message, a few seconds at most (long polling). An answer names
its slot and token in a header, so that nothing larger than a few kilobytes is read from strangers.
"""

from __future__ import annotations

import asyncio
import hmac
import re
from typing import Annotated, Any

from fastapi import FastAPI, Header, Path, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Scope

from tacit.aggregation.two_servers import ReportSlot
from tacit.errors import Refusal
from tacit.service.coordinator import Coordinator
from tacit.service.errors import Forbidden
from tacit.service.http.bodies import ExpectedBody, Headers
from tacit.service.http.driver import Driver
from tacit.service.http.problems import responses
from tacit.service.http.writer import GroupWriter

HELD = 8.0  # seconds that a question waits for its message
LOOKS = 0.1  # seconds between looks whether the coordinator did a step
PATIENCE = 10  # looks after which the message is looked up without a step, done by another process
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
        "responses": {**responses(404, 410), 200: found, 204: none},
    }

    @app.get("/rounds/{identity}/messages/{address}/{after}", response_class=Response, **how)
    async def message(identity: Identity, address: Address, after: After) -> Response:
        """The next message of a round with stages for one device."""
        name, whom = bytes.fromhex(identity), bytes.fromhex(address)
        seen = -1
        for look in range(int(HELD / LOOKS)):
            if driver.steps != seen or look % PATIENCE == 0:
                seen = driver.steps
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


class AnswerSizes:
    """The size of an answer at most; known only for a valid slot of a round with stages."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    async def __call__(self, scope: Scope, headers: Headers) -> ExpectedBody | None:
        """The body to read; None for other paths."""
        where = _PATH.fullmatch(scope["path"])
        if scope["method"] != "PUT" or where is None:
            return None
        slot = slot_of(headers)
        served = await run_in_threadpool(self._coordinator.staged, bytes.fromhex(where["identity"]))
        (own,) = served.slots([slot.number])
        if not hmac.compare_digest(own.token, slot.token):
            raise Forbidden(f"slot {slot.number} has another token")
        return ExpectedBody(served.largest_answer)
