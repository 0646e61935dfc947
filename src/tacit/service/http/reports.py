"""ASGI routes of frequent requests: join a round, send an encrypted report share, call the helper.

They answer without the layers of the application; the middleware has read the body and answers
errors. A well-formed request to join, or call, is answered here; the application states what is
wrong with any other. The body of a report must have exactly the size of the round's shares. The
share is checked without the database, written by group commit, and acknowledged after the commit.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from tacit.errors import Rejected, TacitError
from tacit.service.assignment import Ticket
from tacit.service.coordinator import Coordinator
from tacit.service.http.bodies import CALL_SCOPE, Sender
from tacit.service.http.calls import CallHeader
from tacit.service.http.models import TicketRequest
from tacit.service.http.stages import Template
from tacit.service.http.writer import GroupWriter
from tacit.service.party import ServerParty

PATH = "/rounds/{identity}/reports/{place}"
_PATH = re.compile("/rounds/([^/]+)/reports/([^/]+)")
_REPORT = re.compile("/rounds/([0-9a-f]{32})/reports/(0|[1-9][0-9]{0,9})")
_PLACES = re.compile("/experiments/([0-9a-f]{64})/places")
_CALLS = re.compile("/rounds/([0-9a-f]{32})/([a-z]+)")
_JSON = (b"content-type", b"application/json")
_INVITATION = b"tacit-invitation"
REPORT_SCOPE = "tacit.report"  # key of the round and slot in the ASGI scope of a report
STORED = Response(status_code=204)


class ReportRoute:
    """PUT of a report share."""

    path = PATH

    def __init__(
        self,
        party: ServerParty,
        writer: GroupWriter,
        kept: Callable[[bytes], None],
    ) -> None:
        self._party, self._writer, self._kept = party, writer, kept
        self._commit = party.keep
        self._asked: dict[bytes, asyncio.Future[Any]] = {}

    async def __call__(self, scope: Scope, body: bytes) -> Response | None:
        """Keep one report share; None for another path."""
        if REPORT_SCOPE not in scope:
            return None
        identity, slot = scope[REPORT_SCOPE]
        invitation = dict(scope["headers"]).get(_INVITATION, b"").decode("latin-1")
        waiting = self._party.report(identity, slot, body, invitation or None)
        rejection = await self._writer(self._commit, waiting)
        if rejection is not None:
            raise rejection
        self._kept(identity)
        return STORED

    async def size(self, scope: Scope) -> int | None:
        """The bytes of a report for the round in the path; None for another path."""
        where = _REPORT.fullmatch(scope["path"])
        if where is None:
            if not _PATH.fullmatch(scope["path"]):
                return None
            scope["route"] = self
            raise TacitError("the path must name a round (32 hex digits) and a slot (a number)")
        scope["route"] = self
        identity = bytes.fromhex(where[1])
        if not self._party.is_loaded(identity):
            await self._load_round(identity)
        scope[REPORT_SCOPE] = identity, int(where[2])
        return self._party.server(identity).report_size

    def sender(self, scope: Scope, begun: bytes) -> Sender:
        """Round and slot of a report, if its first bytes contain the slot's token."""
        identity, slot = scope[REPORT_SCOPE]
        server = self._party.check_sender(identity, slot, begun)
        return Sender(server.round.binding.terms, identity, slot)

    async def _load_round(self, identity: bytes) -> None:
        """Wait until a round is loaded.

        All reports of the round share one load; reports of other rounds continue meanwhile.
        """
        if identity not in self._asked:
            asking = asyncio.ensure_future(run_in_threadpool(self._party.server, identity))
            asking.add_done_callback(lambda _: self._asked.pop(identity))
            self._asked[identity] = asking
        found = self._asked[identity]
        await asyncio.wait([found])
        found.result()


class SlotRoute:
    """POST of a ticket."""

    path = "/experiments/{digest}/places"

    def __init__(self, coordinator: Coordinator, writer: GroupWriter) -> None:
        self._commit, self._writer = coordinator.join, writer

    async def __call__(self, scope: Scope, body: bytes) -> Response | None:
        """Assign a slot; None for another path, and for a body that is no ticket."""
        where = _PLACES.fullmatch(scope["path"])
        if where is None or _JSON not in scope["headers"]:
            return None
        try:
            asked = TicketRequest.model_validate_json(body)
        except ValidationError:
            return None
        scope["route"] = self
        return await self.join(where[1], asked)

    async def join(self, digest: str, body: TicketRequest) -> JSONResponse:
        """A slot, or the best option so far, after the group commit that contains it."""
        ticket = Ticket(bytes.fromhex(digest), bytes.fromhex(body.nonce), body.invitation)
        answer = await self._writer(self._commit, ticket)
        if isinstance(answer, Rejected):
            raise answer
        said: dict[str, Any] = {"asked": answer.slot is not None, "option": answer.option or None}
        if answer.announcement:
            said["announcement"] = answer.announcement.hex()
        if answer.slot is not None:
            said |= {"place": answer.slot.number, "token": answer.slot.token.hex()}
        return JSONResponse(said)


Operation = tuple[type[BaseModel], Callable[[str, Any, CallHeader], BaseModel]]
"""The body of a call, and what answers it: with the round's name, the body and the header."""


class CallRoute:
    """POST of the coordinator's calls to the helper."""

    def __init__(self, operations: Mapping[str, Operation]) -> None:
        self._operations = operations

    async def __call__(self, scope: Scope, body: bytes) -> Response | None:
        """Answer a call; None for another path, and for a body that is malformed."""
        where = _CALLS.fullmatch(scope["path"])
        if where is None or CALL_SCOPE not in scope or _JSON not in scope["headers"]:
            return None
        model, work = self._operations[where[2]]
        try:
            asked = model.model_validate_json(body)
        except ValidationError:
            return None
        scope["route"] = Template(f"/rounds/{{identity}}/{where[2]}")
        said = await run_in_threadpool(work, where[1], asked, scope[CALL_SCOPE])
        return Response(said.model_dump_json(), media_type="application/json")


def operation(errors: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI description of the operation."""
    identity = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
    place = {"type": "integer", "minimum": 0, "maximum": (1 << 32) - 1}
    return {
        "summary": "Send a report share",
        "description": "The same bytes again get the same answer; other bytes are rejected.",
        "operationId": "report",
        "tags": ["devices"],
        "parameters": [
            {"name": "identity", "in": "path", "required": True, "schema": identity},
            {"name": "place", "in": "path", "required": True, "schema": place},
            {
                "name": "Tacit-Invitation",
                "in": "header",
                "required": False,
                "description": "required if admission is by invitation",
                "schema": {"type": "string", "maxLength": 2048},
            },
        ],
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string"}}},
        },
        "responses": {"204": {"description": "Stored durably"}, **errors},
    }
