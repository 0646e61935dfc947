"""A device for asyncio: `DeviceCore` with httpx's asynchronous transports."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from tacit.client.device import DeviceCore, Experiment, Pins, Slot, TermsForConsent
from tacit.client.exchange import LONGEST_REPLY, Reply, Request, Talk
from tacit.client.http import (
    FAILED,
    HUNG_UP,
    TIMEOUT,
    arguments,
    carried,
    proxied,
    trusted,
    without_cookies,
)
from tacit.client.ledger import Ledger
from tacit.service.loopback import NEARBY

T = TypeVar("T")


class AsyncDevice(DeviceCore):
    """One person's device; like `Device`, with the methods that need the network to be awaited.
    The ledger's file is written without a thread: a few milliseconds per step.
    """

    def __init__(
        self,
        ledger: Ledger,
        pins: Pins,
        *,
        http: httpx.AsyncBaseTransport | httpx.AsyncClient | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        **injected: Any,
    ) -> None:
        super().__init__(ledger, pins, **injected)
        self._owned = http is None
        if http is None and proxied():
            http = httpx.AsyncClient(verify=trusted(), timeout=TIMEOUT, mounts=NEARBY)
        self._http = without_cookies(http or httpx.AsyncHTTPTransport(trusted()))
        self._sleep = sleep

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes its connections; the ledger stays open."""
        if self._owned:
            await self._http.aclose()

    async def terms(self, experiment: Experiment) -> TermsForConsent:
        """The terms of an experiment, checked, in words for the person."""
        return await self._drive(self.showing(experiment))

    async def join(self, experiment: Experiment, invitation: str | None = None) -> Slot:
        """The option for this person; asked again while it holds, nothing is sent."""
        return await self._drive(self.joining(experiment, invitation))

    async def run_due(self) -> float | None:
        """Does all that is due; returns the seconds until something is due next, None if nothing
        waits.
        """
        return self.seconds_until((await self._drive(self.reporting())).next())

    async def wait_and_report(self, *, outcomes: bool = False) -> None:
        """Sleeps and does what is due, until every report is sent or its round is over; with
        `outcomes`, until it is known what became of the rounds.
        """
        while True:
            due = await self._drive(self.reporting())
            pause = self.seconds_until(due.next(outcomes=outcomes))
            if pause is None:
                return
            await self._sleep(pause)

    async def _drive(self, talk: Talk[T]) -> T:
        try:
            request = next(talk)
            while True:
                request = talk.send(await self._exchange(request))
        except StopIteration as done:
            result: T = done.value
            return result

    async def _exchange(self, request: Request) -> Reply:
        try:
            try:
                return await self._answered(request)
            except HUNG_UP:
                return await self._answered(request)
        except FAILED:
            return Reply(0)

    async def _answered(self, request: Request) -> Reply:
        response = await self._sent(request)
        try:
            content = b""
            if "content-encoding" in response.headers:  # which nobody asked for: a bomb, may be
                return Reply(0)
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > LONGEST_REPLY:
                    return Reply(0)
            return Reply(response.status_code, content)
        finally:
            await response.aclose()

    async def _sent(self, request: Request) -> httpx.Response:
        if isinstance(self._http, httpx.AsyncBaseTransport):
            return await self._http.handle_async_request(carried(request))
        asked = self._http.build_request(**arguments(request))
        return await self._http.send(asked, stream=True, follow_redirects=False)
