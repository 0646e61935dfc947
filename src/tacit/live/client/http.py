"""A device for ordinary programs: `DeviceCore` with httpx and threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from http.cookiejar import DefaultCookiePolicy
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from tacit.live.client.device import Assignment, DeviceCore, Experiment, Pins, Shown
from tacit.live.client.exchange import LONGEST_REPLY, Reply, Request, Talk
from tacit.live.client.ledger import Ledger

T = TypeVar("T")
TIMEOUT = 10.0  # seconds for one request
FAILED = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError)
# a server may close a connection that stood idle just when it is used again: once more then, on a
# new one, which no request minds
HUNG_UP = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)
HEADERS = {"User-Agent": "tacit", "Accept-Encoding": "identity"}


class Device(DeviceCore):
    """One person's device. `http` is a client of your own, for other time-outs or proxies.

    `join` gives the option, `record` keeps what happened, `run_due` or `wait_and_report` sends it
    when it is time; every method may be called from any thread, and again after a restart.
    """

    def __init__(
        self,
        ledger: Ledger,
        pins: Pins,
        *,
        http: httpx.Client | None = None,
        sleep: Callable[[float], None] = time.sleep,
        **injected: Any,
    ) -> None:
        super().__init__(ledger, pins, **injected)
        self._owned = http is None
        self._http = without_cookies(http or httpx.Client(timeout=TIMEOUT))
        self._sleep = sleep

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes its connections; the ledger stays open."""
        if self._owned:
            self._http.close()

    def terms(self, experiment: Experiment) -> Shown:
        """The terms of an experiment, checked, in words for the person."""
        return self._drive(self.showing(experiment))

    def join(self, experiment: Experiment, invitation: str | None = None) -> Assignment:
        """The option for this person; asked again while it holds, nothing is sent."""
        return self._drive(self.joining(experiment, invitation))

    def run_due(self) -> float | None:
        """Does all that is due; returns the seconds until something is due next, None if nothing
        waits.
        """
        return self.seconds_until(self._drive(self.reporting()).next())

    def wait_and_report(self, *, outcomes: bool = False) -> None:
        """Sleeps and does what is due, until every report is sent or its round is over; with
        `outcomes`, until it is known what became of the rounds.
        """
        while True:
            due = self._drive(self.reporting())
            pause = self.seconds_until(due.next(outcomes=outcomes))
            if pause is None:
                return
            self._sleep(pause)

    def _drive(self, talk: Talk[T]) -> T:
        try:
            request = next(talk)
            while True:
                request = talk.send(self._exchange(request))
        except StopIteration as done:
            result: T = done.value
            return result

    def _exchange(self, request: Request) -> Reply:
        try:
            try:
                return self._answered(request)
            except HUNG_UP:
                return self._answered(request)
        except FAILED:
            return Reply(0)

    def _answered(self, request: Request) -> Reply:
        with self._http.stream(**arguments(request)) as response:
            content = b""
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > LONGEST_REPLY:
                    return Reply(0)
            return Reply(response.status_code, content)


def arguments(request: Request) -> dict[str, Any]:
    """A request in httpx's words; redirects are not followed."""
    return {
        "method": request.method,
        "url": request.url,
        "content": request.content,
        "headers": HEADERS | dict(request.headers),
        "follow_redirects": False,
    }


def without_cookies(client: Any) -> Any:
    """The client, which from now on keeps no cookies: they would tell one person's requests
    apart.
    """
    client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return client
