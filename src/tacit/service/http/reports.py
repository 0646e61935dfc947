"""ASGI routes of frequent requests: join a round, send an encrypted report share, call the helper.

They use plain ASGI without the layers of the application. A well-formed request to join, or call,
is answered here; the application states what is wrong with any other. The body of a report must
have exactly the size of the round's shares; the middleware reads no other. The share is checked
without the database, written by group commit, and acknowledged after the commit.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tacit.errors import Rejected, TacitError
from tacit.service.assignment import Ticket
from tacit.service.coordinator import Coordinator
from tacit.service.http.bodies import CALL_SCOPE, replayed
from tacit.service.http.calls import CallHeader
from tacit.service.http.models import TicketRequest
from tacit.service.http.problems import rejected
from tacit.service.http.stages import Template
from tacit.service.http.writer import GroupWriter
from tacit.service.party import ServerParty

PATH = "/rounds/{identity}/reports/{place}"
_PATH = re.compile("/rounds/(?P<identity>[^/]+)/reports/(?P<place>[^/]+)")
_PLACES = re.compile("/experiments/([0-9a-f]{64})/places")
_CALLS = re.compile("/rounds/([0-9a-f]{32})/([a-z]+)")
_JSON = (b"content-type", b"application/json")
_IDENTITY = re.compile("[0-9a-f]{32}")
_SLOT = re.compile("0|[1-9][0-9]{0,9}")
_INVITATION = b"tacit-invitation"
REPORT_SCOPE = "tacit.report"  # key of the round and slot in the ASGI scope of a report


class _Named(NamedTuple):
    """Round and slot in the path of a report."""

    identity: bytes
    slot: int


class ReportRoute:
    """PUT of a report share; requests to other paths go to `others`."""

    path = PATH

    def __init__(
        self,
        party: ServerParty,
        writer: GroupWriter,
        kept: Callable[[bytes], None],
        others: ASGIApp,
    ) -> None:
        self.others = others
        self._party, self._writer, self._kept = party, writer, kept
        self._commit = party.keep
        self._asked: dict[bytes, asyncio.Future[Any]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one report share."""
        where = scope.get(REPORT_SCOPE)
        if where is None:
            await self.others(scope, receive, send)
            return
        message = await receive()  # complete: the middleware has read it
        answer: Response = Response(status_code=204)
        try:
            await self._keep(where, scope["headers"], message["body"])
        except TacitError as reason:
            answer = rejected(reason)
        await answer(scope, receive, send)

    async def size(self, scope: Scope) -> int | None:
        """The bytes of a report for the round in the path; None for another path."""
        where = _PATH.fullmatch(scope["path"])
        if where is None:
            return None
        scope["route"] = self
        if not _IDENTITY.fullmatch(where["identity"]) or not _SLOT.fullmatch(where["place"]):
            raise TacitError("the path must name a round (32 hex digits) and a slot (a number)")
        named = _Named(bytes.fromhex(where["identity"]), int(where["place"]))
        if not self._party.is_loaded(named.identity):
            await self._fetched(named.identity)
        scope[REPORT_SCOPE] = named
        return self._party.share_size(named.identity)

    def sender(self, scope: Scope, begun: bytes) -> object:
        """Round and slot of a report, if its first bytes contain the slot's token."""
        named: _Named = scope[REPORT_SCOPE]
        self._party.check_sender(named.identity, named.slot, begun)
        return named

    async def _keep(self, named: _Named, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        invitation = dict(headers).get(_INVITATION, b"")
        said = invitation.decode("latin-1") or None
        waiting = self._party.report(named.identity, named.slot, body, said)
        rejection = await self._writer(self._commit, waiting)
        if rejection is not None:
            raise rejection
        self._kept(named.identity)

    async def _fetched(self, identity: bytes) -> None:
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
    """POST of a ticket; other requests go to `others`."""

    path = "/experiments/{digest}/places"

    def __init__(self, coordinator: Coordinator, writer: GroupWriter, others: ASGIApp) -> None:
        self._commit, self._writer, self._others = coordinator.join, writer, others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; errors are answered by the middleware."""
        answer: ASGIApp = self._others
        where = _PLACES.fullmatch(scope["path"])
        if where is not None and _JSON in scope["headers"]:
            body = (await receive())["body"]  # complete: the middleware has read it
            receive = replayed(body, receive)
            try:
                asked = TicketRequest.model_validate_json(body)
            except ValidationError:
                pass
            else:
                scope["route"] = self
                answer = await self.join(where[1], asked)
        await answer(scope, receive, send)

    async def join(self, digest: str, asked: TicketRequest) -> JSONResponse:
        """A slot, or the best option so far, after the group commit that contains it."""
        ticket = Ticket(bytes.fromhex(digest), bytes.fromhex(asked.nonce), asked.invitation)
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
    """POST of the coordinator's calls to the helper; other requests go to `others`."""

    def __init__(self, operations: Mapping[str, Operation], others: ASGIApp) -> None:
        self._operations, self._others = operations, others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; errors are answered by the middleware."""
        answer: ASGIApp = self._others
        where = _CALLS.fullmatch(scope["path"])
        if where is not None and CALL_SCOPE in scope and _JSON in scope["headers"]:
            body = (await receive())["body"]  # complete: the middleware has read it
            receive = replayed(body, receive)
            model, work = self._operations[where[2]]
            try:
                asked = model.model_validate_json(body)
            except ValidationError:
                pass
            else:
                scope["route"] = Template(f"/rounds/{{identity}}/{where[2]}")
                said = await run_in_threadpool(work, where[1], asked, scope[CALL_SCOPE])
                answer = Response(said.model_dump_json(), media_type="application/json")
        await answer(scope, receive, send)


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
