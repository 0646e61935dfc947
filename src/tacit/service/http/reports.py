"""ASGI route for reports: a device sends an encrypted report share for its slot in a round.

It uses plain ASGI without pydantic models, because every participant sends this request. The share
is checked without the database, written by group commit, and acknowledged after the commit.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

from tacit.errors import TacitError
from tacit.service.http.problems import rejected
from tacit.service.http.writer import GroupWriter
from tacit.service.party import ServerParty

PATH = "/rounds/{identity}/reports/{place}"
_PATH = re.compile("/rounds/(?P<identity>[^/]+)/reports/(?P<place>[^/]+)")
_IDENTITY = re.compile("[0-9a-f]{32}")
_PLACE = re.compile("0|[1-9][0-9]{0,9}")
_INVITATION = b"tacit-invitation"
_KEPT = {"type": "http.response.start", "status": 204, "headers": []}
_EMPTY = {"type": "http.response.body", "body": b""}


class ReportRoute:
    """PUT of a report share; requests to other paths go to `others`."""

    path = PATH

    def __init__(
        self, party: ServerParty, writer: GroupWriter, kept: Callable[[], None], others: ASGIApp
    ) -> None:
        self._others = others
        self._party, self._writer, self._kept = party, writer, kept
        self._commit = party.keep
        self._asked: dict[bytes, asyncio.Future[Any]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one report share."""
        where = _PATH.fullmatch(scope["path"])
        if where is None:
            await self._others(scope, receive, send)
            return
        scope["route"] = self
        message = await receive()  # complete: the middleware has read it
        try:
            await self._keep(where["identity"], where["place"], scope["headers"], message["body"])
        except TacitError as reason:
            await rejected(reason)(scope, receive, send)
            return
        await send(_KEPT)
        await send(_EMPTY)

    async def _keep(
        self, identity: str, place: str, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> None:
        if not _IDENTITY.fullmatch(identity) or not _PLACE.fullmatch(place):
            raise TacitError(
                "the path must name a round (32 hexadecimal digits) and a slot (a number)"
            )
        invitation = dict(headers).get(_INVITATION, b"")
        name, said = bytes.fromhex(identity), invitation.decode("latin-1") or None
        if not self._party.at_hand(name):
            await self._fetched(name)
        waiting = self._party.report(name, int(place), body, said)
        refusal = await self._writer(self._commit, waiting)
        if refusal is not None:
            raise refusal
        self._kept()

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
