"""ASGI route for joining: a device asks for a slot in a round.

It uses plain ASGI, because every participant sends this request. A well-formed request is answered
here; any other goes to the application, which states what is wrong.
"""

from __future__ import annotations

import re
from typing import Any

from pydantic import ValidationError
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tacit.errors import Refusal
from tacit.service.assignment import Ticket
from tacit.service.coordinator import Coordinator
from tacit.service.http.bodies import replayed
from tacit.service.http.models import TicketRequest
from tacit.service.http.writer import GroupWriter

_PATH = re.compile("/experiments/([0-9a-f]{64})/places")
_JSON = (b"content-type", b"application/json")


class PlaceRoute:
    """POST of a ticket; other requests go to `others`."""

    path = "/experiments/{digest}/places"

    def __init__(self, coordinator: Coordinator, writer: GroupWriter, others: ASGIApp) -> None:
        self._commit, self._writer, self._others = coordinator.join, writer, others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request; errors are answered by the middleware."""
        answer: ASGIApp = self._others
        where = _PATH.fullmatch(scope["path"])
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
        if isinstance(answer, Refusal):
            raise answer
        said: dict[str, Any] = {"asked": answer.slot is not None, "option": answer.option or None}
        if answer.announcement:
            said["announcement"] = answer.announcement.hex()
        if answer.slot is not None:
            said |= {"place": answer.slot.number, "token": answer.slot.token.hex()}
        return JSONResponse(said)
