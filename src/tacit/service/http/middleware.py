"""ASGI middleware for every request: rate and size limits, CORS, security headers, metrics.

It is a single plain ASGI application, because reports dominate the load and each layer costs time.
It reads the body, if it is the expected one (`bodies`), before the application sees it. It logs an
unhandled exception with the route template and answers without details.
"""

from __future__ import annotations

import base64
import ipaddress
import logging
import math
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack

from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tacit.errors import TacitError
from tacit.service.config import Limits
from tacit.service.http.bodies import BodyError, BodyRules, is_large, read_body, replayed
from tacit.service.http.connections import (
    ConnectionLimit,
    connection_limit,
    is_too_large,
    overloaded,
    too_large,
)
from tacit.service.http.logs import traced
from tacit.service.http.metrics import Metrics
from tacit.service.http.problems import problem, rejected

LOG = logging.getLogger("tacit.service")
CONNECTIONS = 4096
MOST_ADDRESSES = 50_000
HEALTH = "/healthz"
QUIET = 60.0  # seconds between log lines about requests without an address
LIMITS_SCOPE = "tacit.limits"  # key of headers about the limit in the ASGI scope
NOWHERE = "(none)"  # the template of an unknown path
PREFLIGHT = b"access-control-request-method"  # then the CORS middleware answers by itself
SECURITY = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]
SECURITY_AND_VARY = [(b"vary", b"Origin"), *SECURITY]
"""Headers of every response, without and with the one for devices' paths."""
CROSS_ORIGIN = (
    (re.compile(r"/rounds/[^/]*/reports/[^/]*"), "PUT"),
    (re.compile(r"/experiments/[^/]*/places"), "POST"),
    (re.compile(r"/experiments(/[^/]*/(terms|words))?"), "GET"),
    (re.compile(r"/rounds/[^/]*/outcome"), "GET"),
)
"""Paths and methods of devices, allowed for pages of other origins; the most frequent first."""
Frequent = Callable[[Scope, bytes], Awaitable[Response | None]]
"""Answers a request whose body is read, or leaves it (None) to the application."""


class Shutdown:
    """Whether the server is about to stop; streaming responses end then.

    `begun` is set by the server; until then nothing stops.
    """

    def __init__(self, begun: Callable[[], bool] = lambda: False) -> None:
        self.begun = begun

    def is_set(self) -> bool:
        """Whether the server is about to stop."""
        return self.begun()


class TokenBuckets:
    """A token bucket per address: `burst` requests at once, refilled at `rate` per second.

    Addresses are in memory only, at most `MOST_ADDRESSES` and only while their limit is not
    restored. They are neither stored nor logged.

    >>> buckets = TokenBuckets(rate=2, burst=1, clock=iter([0.0, 0.25, 0.5]).__next__)
    >>> buckets.wait("192.0.2.1"), buckets.wait("192.0.2.1"), buckets.wait("192.0.2.1")
    (0.0, 0.25, 0.0)
    """

    def __init__(
        self, rate: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def wait(self, address: str) -> float:
        """Take a token: 0 if a request is allowed now, otherwise seconds until the next token."""
        now, name = self._clock(), neighbourhood(address)
        level, since = self._buckets.pop(name, (float(self._burst), now))
        level = min(self._burst, level + (now - since) * self._rate)
        welcome = level >= 1
        self._buckets[name] = (level - welcome, now)
        self._drop(now)
        return 0.0 if welcome else (1 - level) / self._rate

    def headers(self, address: str) -> dict[str, str]:
        """Rate limit headers of an address, as of draft-ietf-httpapi-ratelimit-headers.

        The partition key is the caller's own address, so that an operator can check which one is
        counted.
        """
        name = neighbourhood(address)
        level, since = self._buckets.get(name, (self._burst, self._clock()))
        left = int(min(self._burst, level + (self._clock() - since) * self._rate))
        key = base64.b64encode(name.encode("latin-1", "replace")).decode()
        window = math.ceil(self._burst / self._rate)
        return {
            "RateLimit-Policy": f'"address";q={self._burst};w={window}',
            "RateLimit": f'"address";r={left};pk=:{key}:',
        }

    def _drop(self, now: float) -> None:
        """Forget full buckets, which equal new ones, and the oldest beyond `MOST_ADDRESSES`."""
        while self._buckets:
            level, since = next(iter(self._buckets.values()))
            full = level + (now - since) * self._rate >= self._burst
            if not full and len(self._buckets) <= MOST_ADDRESSES:
                return
            self._buckets.popitem(last=False)


def neighbourhood(address: str) -> str:
    """The key of a bucket: an IPv4 address, or the /64 network of an IPv6 address.

    A socket for both families names IPv4 clients by IPv6 addresses of one such network.

    >>> neighbourhood("2001:db8:1:2:3:4:5:6"), neighbourhood("192.0.2.1"), neighbourhood("?")
    ('2001:db8:1:2::/64', '192.0.2.1', '?')
    >>> neighbourhood("::ffff:192.0.2.1")
    '192.0.2.1'
    """
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))


class LimitsMiddleware:
    """Middleware that enforces limits around an application.

    `frequent` answers requests by method, without the layers of the application. `connections` is
    told of each request. `shutdown` ends streaming responses.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        origins: tuple[str, ...],
        metrics: Metrics,
        bodies: BodyRules,
    ) -> None:
        self.app = app
        self.frequent: Mapping[str, Sequence[Frequent]] = {}
        self.shutdown = Shutdown()
        self.connections = ConnectionLimit(connection_limit(CONNECTIONS))
        self._limits = limits
        self._metrics = metrics
        self._bodies = bodies
        self._buckets = TokenBuckets(limits.rate, limits.burst) if limits.counted else None
        self._header = limits.address_header.lower().encode()
        self._quiet_until = 0.0
        self._cross_origin = {
            method: CORSMiddleware(
                self._handle,
                allow_origins=origins,
                allow_methods=(method,),
                allow_headers=("content-type", "tacit-invitation"),
                expose_headers=("Retry-After",),
                max_age=86400,
            )
            for method in ("GET", "POST", "PUT")
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status, took, fixed = time.perf_counter(), 0, 0.0, SECURITY
        peer = scope.get("client")
        self.connections.begin(peer)

        async def sending(message: Message) -> None:
            nonlocal status, took
            if message["type"] == "http.response.start":
                status, took = message["status"], time.perf_counter() - started
                given = message.get("headers", [])
                names = {name for name, _ in given}
                new = [pair for pair in fixed if pair[0] not in names]
                message = {**message, "headers": [*given, *new]}
            await send(message)

        handle: ASGIApp = self._handle
        try:
            if (method := _device_method(scope["path"])) is not None:
                headers = dict(scope["headers"])
                if b"origin" not in headers:  # answered as by the CORS middleware, which costs time
                    fixed = SECURITY_AND_VARY
                else:
                    handle = self._cross_origin[method]
                    if scope["method"] == "OPTIONS" and PREFLIGHT in headers:
                        handle = self._early(scope, headers) or handle
            await handle(scope, receive, sending)
        except Exception as error:
            if not self.connections.is_closing(peer):
                LOG.error("request failed", extra=traced(error) | {"route": _template(scope)})
                if not status:
                    await problem(500)(scope, receive, sending)
        finally:
            self.connections.finish(peer)
            self._metrics.request(_template(scope), scope["method"], status, took)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request: with an error that is known before its body is read, or not."""
        headers, peer = dict(scope["headers"]), scope.get("client")
        answer: ASGIApp | None
        body: bytes | None = None
        try:
            answer = self._early(scope, headers)
            if answer is None:
                expected = await self._bodies.expected(scope, headers)
                self.connections.expect(peer, expected.size)
                with ExitStack() as held:

                    def begin(begun: bytes) -> None:
                        held.enter_context(self._bodies.holding(expected, begun))

                    body = await read_body(receive, headers, expected, begin)
                    self.connections.activate(peer)
                    answer = await self._answer(scope, body)
                    await answer(scope, replayed(body, receive), send)
                return
        except BodyError as error:
            answer = problem(error.status, str(error), error.headers)
        except TacitError as reason:
            answer = rejected(reason)
            if body is None and is_large(headers, self._limits.request_bytes):  # it is unread
                answer.headers["connection"] = "close"
        await answer(scope, receive, send)

    async def _answer(self, scope: Scope, body: bytes) -> ASGIApp:
        """The response to a frequent request; for any other, the application."""
        for route in self.frequent.get(scope["method"], ()):
            if (found := await route(scope, body)) is not None:
                return found
        return self.app

    def _early(self, scope: Scope, headers: dict[bytes, bytes]) -> Response | None:
        """Response before the body is read, if a limit is exceeded.

        Requests with the admin token have no limit per address: an operator's commands, and the
        devices of an operator's audit.
        """
        if is_too_large(scope):
            return too_large()
        if self.connections.full:
            return overloaded()
        address = self._address(scope, headers)
        if self._buckets is None or address is None:
            return None
        wait = self._buckets.wait(address)
        if wait and not self._bodies.is_admin(headers):
            later = math.ceil(wait)
            detail = f"Too many requests from this address: retry in {later} s."
            return problem(429, detail, {"retry-after": str(later)})
        if scope["path"] == HEALTH:
            scope[LIMITS_SCOPE] = self._buckets.headers(address)
        return None

    def _address(self, scope: Scope, headers: dict[bytes, bytes]) -> str | None:
        """The address that a request is counted by; None where the proxy does not name it."""
        if self._header:
            found = headers.get(self._header, b"").rpartition(b",")[2].strip().decode("latin-1")
            if not found:
                self._warn()
            return found or None
        return scope["client"][0] if scope.get("client") else ""

    def _warn(self) -> None:
        """Log, at most once a minute, that requests are not counted."""
        if time.monotonic() >= self._quiet_until:
            self._quiet_until = time.monotonic() + QUIET
            said = "requests lack the header %s: limits per address are off (set it in the proxy)"
            LOG.warning(said, self._limits.address_header)


def _device_method(path: str) -> str | None:
    for pattern, method in CROSS_ORIGIN:
        if pattern.fullmatch(path):
            return method
    return None


def _template(scope: Scope) -> str:
    """The route template, which contains no identifiers."""
    route = scope.get("route")
    return NOWHERE if route is None else str(route.path)
