"""Devices of an audit, over HTTP: they join, report zeros and answer the stages of their rounds.

Reports are made by the code of real devices (`tacit.client.trust_models`), with exact noise. They
are sent at once instead of at a random time, and no ledger is charged: nobody takes part.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from typing import Any

import httpx

from tacit.aggregation import ReportSlot
from tacit.aggregation.announcements import LiveRound
from tacit.client.choices import zero_report
from tacit.client.entries import OpenParticipation
from tacit.client.exchange import Reply, Request
from tacit.client.trust_models import reporter
from tacit.errors import Rejected, Unavailable
from tacit.terms import Pinned

ATTEMPTS = 40  # of a request that a party asks to repeat
LONGEST_WAIT = 5.0  # seconds between them
STAGES = 200  # questions for further messages at most
AGAIN = (429, 503)
OVER = (404, 410)  # a party that ended a round no longer knows it


class Participants:
    """Devices that answer zero; `rounds` has every round that they joined."""

    def __init__(
        self, pinned: Pinned, addresses: Mapping[int, str], http: httpx.AsyncClient
    ) -> None:
        self._pinned, self._addresses, self._http = pinned, addresses, http
        self._reporter = reporter(pinned.terms)
        self.rounds: dict[bytes, LiveRound] = {}
        self.reported = 0

    @property
    def _coordinator(self) -> str:
        return self._addresses[self._pinned.terms.leader]

    async def join(self) -> OpenParticipation | None:
        """A slot in a round; None if none is free."""
        digest, asked = self._pinned.terms.digest.hex(), {"nonce": os.urandom(16).hex()}
        url = f"{self._coordinator}/experiments/{digest}/places"
        said = _document(await self.request("POST", url, json=asked))
        if not said["asked"]:
            return None
        announcement = bytes.fromhex(said["announcement"])
        announced = self._reporter.announced(self._pinned, announcement)
        self.rounds[announced.identity] = announced
        slot = ReportSlot(said["place"], bytes.fromhex(said["token"]))
        return zero_report(self._pinned, announcement, announced, slot, time.time())

    async def report(self, participation: OpenParticipation) -> None:
        """Send a report of zeros to every party that gets one."""
        path = f"/rounds/{participation.identity.hex()}/reports/{participation.slot.number}"
        for role, content in self._reporter.encode(participation).items():
            answer = await self.request("PUT", self._addresses[role] + path, content=content)
            if answer.status_code in OVER:
                return  # the round ended before this report
            _document(answer)
        self.reported += 1

    async def answer_stages(self, participation: OpenParticipation) -> None:
        """Answer the further messages of a round until this device is out of it."""
        url = f"{self._coordinator}/rounds/{participation.identity.hex()}"
        for _ in range(STAGES):
            conversation = self._reporter.stages(participation, url, time.time())
            try:
                request = next(conversation)
                while True:
                    request = conversation.send(await self._reply(request))
            except StopIteration as done:
                if not done.value:
                    return
            await asyncio.sleep(0.2)

    async def _reply(self, request: Request) -> Reply:
        how: dict[str, Any] = {"content": request.content, "headers": dict(request.headers)}
        answer = await self.request(request.method, request.url, **how)
        return Reply(answer.status_code, answer.content)

    async def request(self, method: str, url: str, **arguments: Any) -> httpx.Response:
        """The answer to a request, repeated while the party asks for that."""
        reason = ""
        for _ in range(ATTEMPTS):
            wait = 0.5
            try:
                answer = await self._http.request(method, url, **arguments)
                if answer.status_code not in AGAIN:
                    return answer
                reason = f"status {answer.status_code}"
                wait = _seconds(answer.headers.get("retry-after", ""))
            except httpx.HTTPError as problem:
                reason = type(problem).__name__
            await asyncio.sleep(wait)
        raise Unavailable(f"{url.partition('/rounds/')[0]} does not answer ({reason}): try later")


def _seconds(header: str) -> float:
    return min(float(header), LONGEST_WAIT) if header.isdigit() else 0.5


def _document(answer: httpx.Response) -> dict[str, Any]:
    if not answer.is_success:
        said = Reply(answer.status_code, answer.content).error_text
        raise Rejected(f"{answer.request.url.host} rejects a device of the audit: {said}")
    found: dict[str, Any] = answer.json() if answer.content else {}
    return found
