"""Synchronous device: `DeviceCore` over httpx.

Requests go directly to an httpx transport unless proxies are configured. This avoids the
per-request cost of `httpx.Client`, whose cookies, redirects and authentication a device does not
use.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from functools import lru_cache
from http.cookiejar import DefaultCookiePolicy
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

import httpx

from tacit.client.choices import Context
from tacit.client.deadlines import limit_exchanges
from tacit.client.device import DeviceCore, Experiment
from tacit.client.entries import Slot, TermsForConsent
from tacit.client.exchange import LONGEST_REPLY, SLOWEST_REPLY, Conversation, Reply, Request
from tacit.client.ledger import Ledger
from tacit.client.loopback import NEARBY
from tacit.client.pins import Pins
from tacit.client.unreachable import why_unreachable
from tacit.errors import Rejected, TacitError, require

T = TypeVar("T")
TransportT = TypeVar("TransportT", httpx.BaseTransport, httpx.AsyncBaseTransport)
ClientT = TypeVar("ClientT", httpx.Client, httpx.AsyncClient)
TIMEOUT = 10.0  # seconds for each operation on a connection
FAILED = (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, UnicodeError)  # of a host's name
# A server may close an idle connection while it is being reused: retry once on a new connection.
# All requests are idempotent.
HUNG_UP = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)
HEADERS = {"User-Agent": "tacit", "Accept-Encoding": "identity"}

_TIMEOUTS = {"timeout": httpx.Timeout(TIMEOUT).as_dict()}
_url = lru_cache(maxsize=64)(httpx.URL)  # the URLs of terms and slots recur


class Device(DeviceCore):
    """Synchronous device of one participant; methods may be called from any thread.

    Call `join` to get an option, `record` to store the outcome, and `run_due` or `wait_and_report`
    to send the report when it is due. Every method may be called again after a restart.

    Parameters
    ----------
    ledger : Ledger
        Privacy budget and pending reports of the participant. The device does not close it.
    pins : Pins
        Address of the coordinator and the long-term keys of both servers.
    http : httpx.BaseTransport or httpx.Client, optional
        Transport or client to use, for example for shared connections, other timeouts or proxies.
        By default the device opens its own connections and uses the proxies of the environment.
    proxy : str, optional
        URL of an HTTP proxy of a third party, such as "http://proxy.example:3128". All requests,
        also to this machine, go through tunnels that it opens (CONNECT). The parties then see the
        proxy's address, and the proxy sees no content. The parties' addresses must be https.
    sleep : callable, optional
        Replaces `time.sleep` in tests.
    **injected
        `limit`, `accept`, `clock` and `source`, see `DeviceCore`.

    Notes
    -----
    The device keeps no cookies and follows no redirects. It retries a request once if the server
    closed an idle connection.

    Examples
    --------
    >>> from tacit.client import Ledger, Pins
    >>> pins = Pins("https://coordinator.example", coordinator="ab" * 32, helper="cd" * 32)
    >>> with Device(Ledger(":memory:"), pins) as device:
    ...     device.record("ef" * 32, 1)  # this device has not joined the experiment
    ...     device.status()
    False
    []
    """

    def __init__(
        self,
        ledger: Ledger,
        pins: Pins,
        *,
        http: httpx.BaseTransport | httpx.Client | None = None,
        proxy: str | None = None,
        sleep: Callable[[float], None] = time.sleep,
        **injected: Any,
    ) -> None:
        super().__init__(ledger, pins, **injected)
        self._owned, self._tunnelled = http is None, proxy is not None
        self._http: httpx.BaseTransport | httpx.Client = connection(
            http, proxy, pins.address, httpx.HTTPTransport, httpx.Client
        )
        if self._owned:
            limit_exchanges(self._http, SLOWEST_REPLY)
        self._sleep = sleep

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the device's own connections; the ledger and a given `http` stay open."""
        if self._owned:
            self._http.close()

    def terms(self, experiment: Experiment) -> TermsForConsent:
        """Fetch the terms of an experiment from both servers and check them.

        Parameters
        ----------
        experiment : bytes or str
            SHA-256 digest of the terms, as bytes or hexadecimal.

        Returns
        -------
        TermsForConsent
            The latest terms in the line of successors, with sentences to show to the participant.

        Raises
        ------
        Offline
            A server cannot be reached at the moment.
        Rejected
            A server does not know the terms, or a digest, key, signature or successor is invalid.
        """
        return self._drive(self.fetch_terms(experiment))

    def join(self, experiment: Experiment, invitation: str | None = None) -> Slot:
        """Join a round and return the assigned option.

        While an assignment is valid, further calls return the same option and send nothing. The
        first call counts as agreement to the terms.

        Parameters
        ----------
        experiment : bytes or str
            SHA-256 digest of the terms, as bytes or hexadecimal.
        invitation : str, optional
            Required if the terms admit participants by invitation.

        Returns
        -------
        Slot
            The option, and whether and when an answer is reported.

        Raises
        ------
        Unagreed
            The terms changed since the participant agreed to them, or the participant withdrew.
        Offline
            A server cannot be reached at the moment; the next call gets the same slot.
        Rejected
            The coordinator rejects the request, the round violates the terms, or a limit of the
            privacy budget is reached and no option is assigned.
        """
        return self._drive(self.join_round(experiment, invitation))

    def choose(
        self, experiment: Experiment, context: Context, invitation: str | None = None
    ) -> Slot:
        """Join a round of a contextual experiment; the device chooses the option by the context.

        The context stays on the device, and so does the choice: the report is one number of a
        table, in shares or with noise. `record` the reward afterwards.

        Parameters
        ----------
        experiment : bytes or str
            SHA-256 digest of the terms, as bytes or hexadecimal.
        context : mapping
            The value of each field of the context, such as ``{"device": "phone"}``.
        invitation : str, optional
            Required if the terms admit participants by invitation.

        Returns
        -------
        Slot
            The option, and whether and when a reward is reported. While it is valid, further calls
            return the same, whatever the context.

        Raises
        ------
        TacitError
            The context lacks a field, or has an unknown field or value; nothing was sent.
        Unagreed, Offline, Rejected
            As for `join`; `Rejected` also if the policy of the round is invalid.
        """
        return self._drive(self.join_round(experiment, invitation, context))

    def run_due(self) -> float | None:
        """Send the reports and outcome queries that are due.

        Returns
        -------
        float or None
            Seconds until the next action is due; None if nothing is pending.
        """
        return self.seconds_until(self._drive(self.send_due()).next())

    def wait_and_report(self, *, outcomes: bool = False) -> None:
        """Block until every report is sent or its round is over.

        Parameters
        ----------
        outcomes : bool
            Also wait until the outcomes of the rounds are known.
        """
        while True:
            due = self._drive(self.send_due())
            pause = self.seconds_until(due.next(outcomes=outcomes))
            if pause is None:
                return
            self._sleep(pause)

    def _drive(self, conversation: Conversation[T]) -> T:
        try:
            request = next(conversation)
            while True:
                request = conversation.send(self._exchange(request))
        except StopIteration as done:
            result: T = done.value
            return result

    def _exchange(self, request: Request) -> Reply:
        try:
            try:
                return self._reply_to(request)
            except HUNG_UP:
                return self._reply_to(request)
        except FAILED as problem:
            return Reply(0, failure=why_unreachable(problem))

    def _reply_to(self, request: Request) -> Reply:
        end = time.monotonic() + SLOWEST_REPLY
        response = self._sent(request)
        try:
            content = b""
            if "content-encoding" in response.headers:  # not requested: maybe a decompression bomb
                return Reply(0)
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > LONGEST_REPLY or time.monotonic() > end:
                    return Reply(0)
            return Reply(response.status_code, content)
        finally:
            response.close()

    def _sent(self, request: Request) -> httpx.Response:
        if self._tunnelled:
            check_tunnel(request.url)
        if isinstance(self._http, httpx.BaseTransport):
            return self._http.handle_request(to_httpx(request))
        asked = self._http.build_request(**arguments(request))
        return self._http.send(asked, stream=True, follow_redirects=False)


def connection(
    http: TransportT | ClientT | None,
    proxy: str | None,
    address: str,
    transport: Callable[..., TransportT],
    client: Callable[..., ClientT],
) -> TransportT | ClientT:
    """The given connection or a new one, through the given proxy or those of the environment."""
    if proxy is not None:
        check_proxy(proxy, address, has_client=http is not None)
        return transport(tls_context(), proxy=proxy)
    if http is None and uses_proxies():
        http = client(verify=tls_context(), timeout=TIMEOUT, mounts=NEARBY)
    return without_cookies(http or transport(tls_context()))


def check_proxy(proxy: str, address: str, *, has_client: bool) -> None:
    """Reject a proxy that would not hide the device's address, or could read its requests."""
    if has_client:
        raise TacitError("proxy and http are both given: must be one. Set the proxy of http.")
    parts = urlsplit(proxy)
    known = parts.scheme in ("http", "https") and parts.hostname
    require(known, "proxy", repr(proxy), "a URL such as http://proxy.example:3128")
    check_tunnel(address)


def check_tunnel(url: str) -> None:
    """Reject a URL whose requests a proxy could read."""
    parts = urlsplit(url)
    where = f"{parts.scheme}://{parts.netloc}"
    rule = "https, because the proxy reads http. Ask the operator for TLS, or leave out proxy"
    require(parts.scheme == "https", "address", where, rule, Rejected)


def uses_proxies() -> bool:
    """Whether the environment configures proxies; only `httpx.Client` supports them."""
    return any(getproxies().get(scheme) for scheme in ("http", "https", "all"))


@lru_cache(maxsize=1)
def tls_context() -> ssl.SSLContext:
    """TLS context with the trusted certificate authorities, shared by all devices of a process."""
    return httpx.create_ssl_context()


def to_httpx(request: Request) -> httpx.Request:
    """The request as an `httpx.Request` for a transport."""
    return httpx.Request(**arguments(request), extensions=_TIMEOUTS)


def arguments(request: Request) -> dict[str, Any]:
    """The request as keyword arguments of `httpx.Request`."""
    return {
        "method": request.method,
        "url": _url(request.url),
        "content": request.content,
        "headers": HEADERS | dict(request.headers),
    }


def without_cookies(http: T) -> T:
    """Disable the cookies of a client; they would link one participant's requests.

    Transports have no cookies.
    """
    if isinstance(http, (httpx.Client, httpx.AsyncClient)):
        http.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return http
