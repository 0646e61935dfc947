"""ASGI route for reports: a device sends an encrypted report share for its slot in a round.

It uses plain ASGI without pydantic models, because every participant sends this request. The body
must have exactly the size of the round's shares; the middleware reads no other. The share
is checked without the database, written by group commit, and acknowledged after the commit.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tacit.errors import TacitError
from tacit.service.http.problems import rejected
from tacit.service.http.writer import GroupWriter
from tacit.service.party import ServerParty

PATH = "/rounds/{identity}/reports/{place}"
_PATH = re.compile("/rounds/(?P<identity>[^/]+)/reports/(?P<place>[^/]+)")
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
        self._others = others
        self._party, self._writer, self._kept = party, writer, kept
        self._commit = party.keep
        self._asked: dict[bytes, asyncio.Future[Any]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one report share."""
        where = scope.get(REPORT_SCOPE)
        if where is None:
            await self._others(scope, receive, send)
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
        if not self._party.at_hand(named.identity):
            await self._fetched(named.identity)
        scope[REPORT_SCOPE] = named
        return self._party.share_size(named.identity)

    async def _keep(self, named: _Named, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        invitation = dict(headers).get(_INVITATION, b"")
        said = invitation.decode("latin-1") or None
        waiting = self._party.report(named.identity, named.slot, body, said)
        refusal = await self._writer(self._commit, waiting)
        if refusal is not None:
            raise refusal
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
