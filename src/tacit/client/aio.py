"""Asynchronous device: `DeviceCore` over httpx with asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Self, TypeVar

import httpx

from tacit.client.choices import Context
from tacit.client.device import DeviceCore, Experiment
from tacit.client.entries import Slot, TermsForConsent
from tacit.client.exchange import LONGEST_REPLY, SLOWEST_REPLY, Conversation, Reply, Request
from tacit.client.http import (
    FAILED,
    HUNG_UP,
    arguments,
    check_tunnel,
    connection,
    to_httpx,
)
from tacit.client.ledger import Ledger
from tacit.client.pins import Pins
from tacit.client.unreachable import why_unreachable

T = TypeVar("T")


class AsyncDevice(DeviceCore):
    """Asynchronous device of one participant; like `Device`, with awaitable network methods.

    Parameters
    ----------
    ledger, pins, proxy, **injected
        As for `Device`.
    http : httpx.AsyncBaseTransport or httpx.AsyncClient, optional
        As for `Device`, but asynchronous.
    sleep : callable, optional
        Replaces `asyncio.sleep` in tests.

    Notes
    -----
    The device writes the ledger's file in the event loop, not in a thread. This blocks the loop for
    a few milliseconds per step.

    Examples
    --------
    >>> from tacit.client import Ledger, Pins
    >>> pins = Pins("https://coordinator.example", coordinator="ab" * 32, helper="cd" * 32)
    >>> async def pending() -> float | None:
    ...     async with AsyncDevice(Ledger(":memory:"), pins) as device:
    ...         return await device.run_due()
    >>> asyncio.run(pending()) is None
    True
    """

    def __init__(
        self,
        ledger: Ledger,
        pins: Pins,
        *,
        http: httpx.AsyncBaseTransport | httpx.AsyncClient | None = None,
        proxy: str | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        **injected: Any,
    ) -> None:
        super().__init__(ledger, pins, **injected)
        self._owned, self._tunnelled = http is None, proxy is not None
        self._http: httpx.AsyncBaseTransport | httpx.AsyncClient = connection(
            http, proxy, pins.address, httpx.AsyncHTTPTransport, httpx.AsyncClient
        )
        self._sleep = sleep

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_raised: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the device's own connections; the ledger and a given `http` stay open."""
        if self._owned:
            await self._http.aclose()

    async def terms(self, experiment: Experiment) -> TermsForConsent:
        """Fetch and check the terms of an experiment; see `Device.terms`."""
        return await self._drive(self.fetch_terms(experiment))

    async def join(self, experiment: Experiment, invitation: str | None = None) -> Slot:
        """Join a round and return the assigned option; see `Device.join`.

        Parameters
        ----------
        experiment : str or bytes
            The digest of the experiment's terms.
        invitation : str, optional
            The participant's invitation, where admission is by invitation.
        """
        return await self._drive(self.join_round(experiment, invitation))

    async def choose(
        self, experiment: Experiment, context: Context, invitation: str | None = None
    ) -> Slot:
        """Join a round of a contextual experiment; see `Device.choose`.

        Parameters
        ----------
        experiment, context, invitation
            As for `Device.choose`.
        """
        return await self._drive(self.join_round(experiment, invitation, context))

    async def run_due(self) -> float | None:
        """Send the reports and outcome queries that are due; see `Device.run_due`.

        Returns
        -------
        float or None
            Seconds until the next action is due; None if nothing is pending.
        """
        return self.seconds_until((await self._drive(self.send_due())).next())

    async def wait_and_report(self, *, outcomes: bool = False) -> None:
        """Sleep until every report is sent or its round is over.

        Parameters
        ----------
        outcomes : bool
            Also wait until the outcomes of the rounds are known.
        """
        while True:
            due = await self._drive(self.send_due())
            pause = self.seconds_until(due.next(outcomes=outcomes))
            if pause is None:
                return
            await self._sleep(pause)

    async def _drive(self, conversation: Conversation[T]) -> T:
        try:
            request = next(conversation)
            while True:
                request = conversation.send(await self._exchange(request))
        except StopIteration as done:
            result: T = done.value
            return result

    async def _exchange(self, request: Request) -> Reply:
        try:
            async with asyncio.timeout(SLOWEST_REPLY):
                try:
                    return await self._reply_to(request)
                except HUNG_UP:
                    return await self._reply_to(request)
        except (*FAILED, TimeoutError) as problem:
            return Reply(0, failure=why_unreachable(problem))

    async def _reply_to(self, request: Request) -> Reply:
        response = await self._sent(request)
        try:
            content = b""
            if "content-encoding" in response.headers:  # not requested: maybe a decompression bomb
                return Reply(0)
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > LONGEST_REPLY:
                    return Reply(0)
            return Reply(response.status_code, content)
        finally:
            await response.aclose()

    async def _sent(self, request: Request) -> httpx.Response:
        if self._tunnelled:
            check_tunnel(request.url)
        if isinstance(self._http, httpx.AsyncBaseTransport):
            return await self._http.handle_async_request(to_httpx(request))
        asked = self._http.build_request(**arguments(request))
        return await self._http.send(asked, stream=True, follow_redirects=False)
