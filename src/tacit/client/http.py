"""A device for ordinary programs: `DeviceCore` with httpx and threads.

Requests go straight to one of httpx's transports, which is most of its speed: a device wants no
cookies, redirects or authentication, which a client looks after with every request.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from functools import lru_cache
from http.cookiejar import DefaultCookiePolicy
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.request import getproxies

import httpx

from tacit.client.device import DeviceCore, Experiment, Pins, Slot, TermsForConsent
from tacit.client.exchange import LONGEST_REPLY, Reply, Request, Talk
from tacit.client.ledger import Ledger
from tacit.service.loopback import NEARBY

T = TypeVar("T")
TIMEOUT = 10.0  # seconds for one request
FAILED = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError)
# a server may close a connection that stood idle just when it is used again: once more then, on a
# new one, which no request minds
HUNG_UP = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)
HEADERS = {"User-Agent": "tacit", "Accept-Encoding": "identity"}

_TIMEOUTS = {"timeout": httpx.Timeout(TIMEOUT).as_dict()}
_url = lru_cache(maxsize=64)(httpx.URL)  # terms and places are asked for again and again


class Device(DeviceCore):
    """One person's device. `http` is a transport or client of your own, for connections that
    several devices share, other time-outs or proxies; those of the environment are used anyway.

    `join` gives the option, `record` keeps what happened, `run_due` or `wait_and_report` sends it
    when it is time; every method may be called from any thread, and again after a restart.
    """

    def __init__(
        self,
        ledger: Ledger,
        pins: Pins,
        *,
        http: httpx.BaseTransport | httpx.Client | None = None,
        sleep: Callable[[float], None] = time.sleep,
        **injected: Any,
    ) -> None:
        super().__init__(ledger, pins, **injected)
        self._owned = http is None
        if http is None and proxied():
            http = httpx.Client(verify=trusted(), timeout=TIMEOUT, mounts=NEARBY)
        self._http = without_cookies(http or httpx.HTTPTransport(trusted()))
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

    def terms(self, experiment: Experiment) -> TermsForConsent:
        """The terms of an experiment, checked, in words for the person."""
        return self._drive(self.showing(experiment))

    def join(self, experiment: Experiment, invitation: str | None = None) -> Slot:
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
        response = self._sent(request)
        try:
            content = b""
            if "content-encoding" in response.headers:  # which nobody asked for: a bomb, may be
                return Reply(0)
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > LONGEST_REPLY:
                    return Reply(0)
            return Reply(response.status_code, content)
        finally:
            response.close()

    def _sent(self, request: Request) -> httpx.Response:
        if isinstance(self._http, httpx.BaseTransport):
            return self._http.handle_request(carried(request))
        asked = self._http.build_request(**arguments(request))
        return self._http.send(asked, stream=True, follow_redirects=False)


def proxied() -> bool:
    """Whether the environment names proxies, which a client of httpx knows how to use."""
    return any(getproxies().get(scheme) for scheme in ("http", "https", "all"))


@lru_cache(maxsize=1)
def trusted() -> ssl.SSLContext:
    """Whose certificates are believed; read once for all devices of a process."""
    return httpx.create_ssl_context()


def carried(request: Request) -> httpx.Request:
    """A request for a transport."""
    return httpx.Request(**arguments(request), extensions=_TIMEOUTS)


def arguments(request: Request) -> dict[str, Any]:
    """A request in httpx's words."""
    return {
        "method": request.method,
        "url": _url(request.url),
        "content": request.content,
        "headers": HEADERS | dict(request.headers),
    }


def without_cookies(http: T) -> T:
    """The client, which from now on keeps no cookies: they would tell one person's requests apart;
    a transport never does.
    """
    if isinstance(http, (httpx.Client, httpx.AsyncClient)):
        http.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return http
