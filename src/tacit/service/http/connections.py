"""HTTP connections: limits on their number, and on the time and the size of a request's head.

The head is the request line and the headers. The application (`middleware`) limits the body; it
does not exist before the head is complete. At the limit of connections the one that has waited
longest for a request is closed, so idle connections keep nobody out.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from tacit.service.http.problems import problem

LARGEST = 1 << 15  # maximum bytes of a request line and its headers
SLOWEST = 20.0  # maximum seconds, from the connection or from the first byte
SLACK = 64  # connections beyond the limit that get an answer before they are closed
QUIET = 60.0  # seconds between log lines about the limit
LOG = logging.getLogger("tacit.service")


def raise_descriptor_limit() -> None:
    """Raise the soft limit of file descriptors to the hard limit (`LimitNOFILE` of systemd)."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # not allowed everywhere
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connection_limit(most: int) -> int:
    """At most `most` connections, and half of the file descriptors of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else min(most, soft // 2)


class ConnectionLimit:
    """The idle connections of a process, which wait for a request, and the limit of all.

    `admit` closes the oldest idle connection beyond the limit, and the new one if none is idle. One
    log line per minute states how many.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.most = most
        self._clock = clock
        self._idle: OrderedDict[Connection, None] = OrderedDict()
        self._closed = 0
        self._quiet_until = 0.0

    @property
    def busy(self) -> int:
        """The number of connections from which requests are answered with 503."""
        return self.most + SLACK

    def idle(self, connection: Connection) -> None:
        """The connection waits for a request from now on."""
        self._idle[connection] = None

    def active(self, connection: Connection) -> None:
        """The connection has a request, or is closed."""
        self._idle.pop(connection, None)

    def admit(self, connection: Connection, number: int) -> None:
        """Make room for a new connection, the last of this number."""
        if number > self.most and self._idle:
            self._close(next(iter(self._idle)))
        elif number > self.busy + SLACK:
            self._close(connection)
        self.idle(connection)

    def _close(self, connection: Connection) -> None:
        self.active(connection)
        connection.transport.abort()
        self._closed += 1
        if self._clock() >= self._quiet_until:
            said = (
                "connection limit of %d reached: closed %d (raise LimitNOFILE, or limit them per "
            )
            LOG.warning(said + "address at the proxy)", self.most, self._closed)
            self._closed, self._quiet_until = 0, self._clock() + QUIET


class Connection(HttpToolsProtocol):
    """uvicorn connection that limits the heads of requests and closes beyond the limits."""

    _head = 0
    _waiting: asyncio.TimerHandle | None = None

    def __init__(self, limit: ConnectionLimit, **given: Any) -> None:
        super().__init__(**given)
        self._limit = limit

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout of the first head."""
        super().connection_made(transport)
        self._wait()
        self._limit.admit(self, len(self.connections))

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timeout."""
        self._arrived()
        self._limit.active(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data, and close if the head exceeds its size limit."""
        super().data_received(data)
        if self._waiting is not None and not self.transport.is_closing():
            self._head += len(data)  # an upper bound: counts all bytes received
            if self._head > LARGEST:
                self.send_400_response("")

    def on_message_begin(self) -> None:
        """Start the timeout at the first byte of a request."""
        super().on_message_begin()
        self._head = 0
        self._wait()

    def on_headers_complete(self) -> None:
        """Cancel the timeout, check the size, and start the application."""
        self._arrived()
        self._head = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if self._head > LARGEST:
            raise ValueError("headers too large")  # stops the parser
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Count the connection as active while its whole request waits for the response."""
        super().on_message_complete()
        if not self.cycle.response_complete:
            self._limit.active(self)

    def on_response_complete(self) -> None:
        """Count the connection as idle unless another request is queued."""
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._limit.idle(self)

    def send_400_response(self, msg: str) -> None:
        """Respond with 400, or 431 if the head is too large, and close."""
        large = f"The request line and its headers must have at most {LARGEST} bytes."
        answer = problem(431, large) if self._head > LARGEST else problem(400, msg)
        answer.headers["connection"] = "close"
        head = [b"%b: %b\r\n" % pair for pair in answer.raw_headers]
        lines = [STATUS_LINE[answer.status_code], *head, b"\r\n", bytes(answer.body)]
        self.transport.write(b"".join(lines))
        self.transport.close()

    def _wait(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(SLOWEST, self.timeout_keep_alive_handler)

    def _arrived(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
