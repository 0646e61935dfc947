"""ASGI middleware for every request: rate and size limits, CORS, security headers, metrics.

It is a single plain ASGI application, because reports dominate the load and each layer costs time.
It reads the body, if it is the expected one (`bodies`), before the application sees it. It logs an
unhandled exception with the route template and answers without details.
"""

from __future__ import annotations

import logging
import math
import re
import threading
import time

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tacit.errors import TacitError
from tacit.service.config import Limits
from tacit.service.http.bodies import BodyError, BodyRules, is_large, read_body
from tacit.service.http.limits import Buckets
from tacit.service.http.logs import traced
from tacit.service.http.metrics import Metrics
from tacit.service.http.problems import problem, rejected

LOG = logging.getLogger("tacit.service")
NOWHERE = "(none)"  # the template of an unknown path
SECURITY = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]
CROSS_ORIGIN = (
    (re.compile(r"/experiments(/[^/]*/(terms|words))?"), b"GET"),
    (re.compile(r"/experiments/[^/]*/places"), b"POST"),
    (re.compile(r"/rounds/[^/]*/outcome"), b"GET"),
    (re.compile(r"/rounds/[^/]*/reports/[^/]*"), b"PUT"),
)
"""Paths and methods of devices, allowed for pages of other origins."""


class Front:
    """Middleware that enforces limits around an application.

    `reports` handles PUT requests, because reports are the most frequent requests. `closing` is set
    at shutdown, so that streaming responses end.
    """

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        origins: tuple[str, ...],
        metrics: Metrics,
        bodies: BodyRules,
        reports: ASGIApp | None = None,
    ) -> None:
        self.app = app
        self._reports = reports or app
        self.closing = threading.Event()
        self._limits = limits
        self._origins = origins
        self._metrics = metrics
        self._bodies = bodies
        self._buckets = Buckets(limits.rate, limits.burst) if limits.counted else None
        self._header = limits.address_header.lower().encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one ASGI request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status, took = time.perf_counter(), 0, 0.0
        headers = dict(scope["headers"])
        added = SECURITY + self._cross_origin(scope, headers)

        async def sending(message: Message) -> None:
            nonlocal status, took
            if message["type"] == "http.response.start":
                status, took = message["status"], time.perf_counter() - started
                given = message.get("headers", [])
                names = {name for name, _ in given}
                new = [pair for pair in added if pair[0] not in names]
                message = {**message, "headers": [*given, *new]}
            await send(message)

        try:
            early = self._early(scope, headers)
            if early is None:
                await self._answer(scope, headers, receive, sending)
            else:
                await early(scope, receive, sending)
        except BodyError as error:
            await problem(error.status, str(error), error.headers)(scope, receive, sending)
        except TacitError as reason:
            answer = rejected(reason)
            if is_large(headers, self._limits.request_bytes):  # and its body is unread
                answer.headers["connection"] = "close"
            await answer(scope, receive, sending)
        except Exception as error:
            LOG.error("request failed", extra=traced(error) | {"route": _template(scope)})
            if not status:
                await problem(500)(scope, receive, sending)
        finally:
            self._metrics.request(_template(scope), scope["method"], status, took)

    async def _answer(
        self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        """Read the expected body, then let the application answer."""
        expected = await self._bodies.expected(scope, headers)
        with self._bodies.holding(expected):
            body = await read_body(receive, headers.get(b"content-length"), expected)
            app = self._reports if scope["method"] == "PUT" else self.app
            await app(scope, _again(body, receive), send)

    def _early(self, scope: Scope, headers: dict[bytes, bytes]) -> Response | None:
        """Response before the body is read, if any: rate limit exceeded or CORS preflight."""
        if self._buckets is not None:
            wait = self._buckets.wait(self._address(scope, headers))
            if wait:
                later = math.ceil(wait)
                detail = f"Too many requests from this address: retry in {later} s."
                return problem(429, detail, {"retry-after": str(later)})
        asked = headers.get(b"access-control-request-method")
        if scope["method"] == "OPTIONS" and asked is not None and b"origin" in headers:
            return self._preflight(scope)
        return None

    def _address(self, scope: Scope, headers: dict[bytes, bytes]) -> str:
        if self._header:
            return headers.get(self._header, b"").rpartition(b",")[2].strip().decode("latin-1")
        return scope["client"][0] if scope.get("client") else ""

    def _cross_origin(self, scope: Scope, headers: dict[bytes, bytes]) -> list[tuple[bytes, bytes]]:
        """CORS headers for pages of other origins; never with credentials."""
        origin = headers.get(b"origin")
        if origin is None or _device_method(scope["path"]) is None:
            return []
        if "*" in self._origins:
            return [(b"access-control-allow-origin", b"*"), _EXPOSED]
        varies = (b"vary", b"Origin")
        if origin.decode("latin-1") not in self._origins:
            return [varies]
        return [(b"access-control-allow-origin", origin), _EXPOSED, varies]

    def _preflight(self, scope: Scope) -> Response | None:
        method = _device_method(scope["path"])
        if method is None:
            return None
        allowed = {
            "access-control-allow-methods": method.decode(),
            "access-control-allow-headers": "content-type, tacit-invitation",
            "access-control-max-age": "86400",
        }
        return Response(status_code=204, headers=allowed)


_EXPOSED = (b"access-control-expose-headers", b"Retry-After")


def _device_method(path: str) -> bytes | None:
    for pattern, method in CROSS_ORIGIN:
        if pattern.fullmatch(path):
            return method
    return None


def _template(scope: Scope) -> str:
    """The route template, which contains no identifiers."""
    route = scope.get("route")
    return NOWHERE if route is None else str(route.path)


def _again(body: bytes, receive: Receive) -> Receive:
    """Replay the body to the application."""
    first: Message | None = {"type": "http.request", "body": body, "more_body": False}

    async def received() -> Message:
        nonlocal first
        if first is None:
            return await receive()
        message, first = first, None
        return message

    return received
