"""HTTP connections: limits on their number, and on the time and the size of a request's head.

The head is the request line and the headers. A `GuardedConnection` passes everything on to the
protocol of uvicorn, which parses it. The application (`middleware`) reports when a head is
complete, how large its body is, when a whole request is received, and a response is sent. Bytes
beyond the body (trailers, chunk extensions, pipelined requests) are limited: the parser keeps them
in memory. A client that does not read its responses is disconnected. At the limit of connections
the one that has waited longest for a request is closed, so idle connections keep nobody out.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import struct
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from itertools import chain
from typing import Any

from starlette.responses import JSONResponse
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tacit.service.http.problems import problem

LARGEST = 1 << 15  # maximum bytes of a request line and its headers
SLOWEST = 20.0  # maximum seconds, from the connection or from the first byte
UNREAD = 20.0  # maximum seconds in which a client reads nothing of a response that waits
SLICE = 1 << 12  # bytes that are parsed at once: a request has a few dozen at least
PIPELINED = 16  # maximum requests that wait for the response to an earlier one
EARLY = 1 << 20  # maximum bytes of a request until the size of its body is known
CHUNKED = 8  # bytes on the wire per byte of a body in small chunks, at most
SLACK = 128  # connections beyond the limit whose requests get 503; more are closed
QUIET = 60.0  # seconds between log lines about the limit
LOG = logging.getLogger("tacit.service")


def raise_descriptor_limit() -> None:
    """Raise the soft limit of file descriptors to the hard limit (`LimitNOFILE` of systemd)."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # not allowed everywhere
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def connection_limit(limit: int) -> int:
    """At most `limit` connections, and half of the file descriptors of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit if soft == resource.RLIM_INFINITY else min(limit, soft // 2)


Peer = tuple[str, int]
"""Address and port of a client, which name a connection."""


class ConnectionLimit:
    """The connections of a process, those that wait for a request, and the limit of all.

    `admit` closes the oldest idle connection beyond the limit, and the new one if none is idle. One
    log line per minute states how many.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.most = limit
        self._clock = clock
        self._open: dict[Peer, GuardedConnection] = {}
        self._idle: OrderedDict[Peer, None] = OrderedDict()
        self._closed = 0
        self._quiet_until = 0.0

    @property
    def full(self) -> bool:
        """Whether requests are answered with 503: there are more connections than the limit."""
        return len(self._open) > self.most

    def admit(self, peer: Peer, connection: GuardedConnection) -> None:
        """Make room for a new connection, which waits for its first request."""
        self._open[peer] = connection
        if self.full and self._idle:
            self._close(next(iter(self._idle)))
        elif len(self._open) > self.most + SLACK:
            self._close(peer)
            return
        self._idle[peer] = None

    def leave(self, peer: Peer) -> None:
        """The connection is closed."""
        self._idle.pop(peer, None)
        self._open.pop(peer, None)

    def begin(self, peer: Peer | None) -> None:
        """The head of a request is complete."""
        if peer is not None and peer in self._open:
            self._open[peer].begin()

    def expect(self, peer: Peer | None, size: int) -> None:
        """The body of the request has at most this size."""
        if peer is not None and peer in self._open:
            self._open[peer].expect(size)

    def activate(self, peer: Peer | None) -> None:
        """The whole request is received: the connection waits no longer."""
        if peer is not None:
            self._idle.pop(peer, None)

    def finish(self, peer: Peer | None) -> None:
        """The response is sent: the connection waits for the next request."""
        if peer is not None and peer in self._open:
            self._open[peer].finish()
            self._idle[peer] = None

    def is_closing(self, peer: Peer | None) -> bool:
        """Whether this process has closed the connection: nothing can be sent any more."""
        found = None if peer is None else self._open.get(peer)
        return found is not None and found.transport.is_closing()

    def _close(self, peer: Peer) -> None:
        self._open[peer].reject(overloaded())
        self.leave(peer)
        self._closed += 1
        if self._clock() >= self._quiet_until:
            said = (
                "connection limit of %d reached: closed %d (raise LimitNOFILE, or limit them per "
            )
            LOG.warning(said + "address at the proxy)", self.most, self._closed)
            self._closed, self._quiet_until = 0, self._clock() + QUIET


class GuardedConnection(asyncio.Protocol):
    """A connection whose heads are limited in time and size before uvicorn's protocol parses them.

    Bytes are counted until the application has begun, so a body that follows its head at once
    counts only if the head is incomplete.
    """

    transport: asyncio.Transport

    def __init__(self, limit: ConnectionLimit, make: Callable[..., Any], **given: Any) -> None:
        self._inner: HttpToolsProtocol = make(**given)
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._peer: Peer = ("", 0)
        self._in_head, self._size, self._most = True, 0, LARGEST
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout of the first head."""
        self.transport = transport
        found = transport.get_extra_info("peername") or ("", id(self))
        self._peer = (str(found[0]), int(found[1]))
        self._inner.connection_made(transport)
        self._wait()
        self._limit.admit(self._peer, self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timeouts."""
        self._arrived()
        self._read()
        self._limit.leave(self._peer)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass data on; close if a request exceeds its size limit, or too many are pipelined."""
        in_head = self._in_head
        if in_head:
            self._wait()
        self._size += len(data)
        for first in range(0, len(data), SLICE):
            self._inner.data_received(data[first : first + SLICE])
            if len(self._inner.pipeline) > PIPELINED:
                self._abort()
                return
            if self.transport.is_closing():  # such as after a malformed request
                return
        if in_head:  # the application begins before this call, if the head is complete
            self._loop.call_soon(self._check)
        elif self._size > self._most:
            self._abort()

    def eof_received(self) -> None:
        """Pass the end of the data on."""
        self._inner.eof_received()

    def pause_writing(self) -> None:
        """Pass flow control on, and wait for the client only so long."""
        self._read()
        self._unread = self._loop.call_later(UNREAD, self._abort)
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Pass flow control on: the client reads."""
        self._read()
        self._inner.resume_writing()

    def begin(self) -> None:
        """The head is complete."""
        self._in_head, self._size, self._most = False, 0, EARLY
        self._arrived()

    def expect(self, size: int) -> None:
        """A body of this size follows, or a part of it is there already."""
        self._most = LARGEST + CHUNKED * size

    def finish(self) -> None:
        """The next data begins a head."""
        self._in_head, self._size = True, 0

    def _check(self) -> None:
        if self._in_head and self._size > LARGEST and not self.transport.is_closing():
            self.reject(too_large())

    def reject(self, answer: JSONResponse) -> None:
        """Send a response, whether or not a request has been read, and close.

        A client that has not read its previous responses gets none.
        """
        if self.transport.is_closing() or self.transport.get_write_buffer_size():
            self._abort()
            return
        status = answer.status_code
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()]
        lines += [b"%b: %b\r\n" % pair for pair in answer.raw_headers]
        self.transport.write(b"".join([*lines, b"\r\n", bytes(answer.body)]))
        self.transport.close()

    def _abort(self) -> None:
        """Close at once; discard unsent data, also in the operating system."""
        line = self.transport.get_extra_info("socket")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _wait(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(SLOWEST, self._late)

    def _late(self) -> None:
        self._timer = None
        if self._in_head:
            self.transport.close()

    def _arrived(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def is_too_large(scope: Mapping[str, Any]) -> bool:
    """Whether the head of an ASGI request exceeds its size limit."""
    target = len(scope.get("raw_path", b"")) + len(scope.get("query_string", b""))
    size = target + sum(map(len, chain.from_iterable(scope["headers"])))
    return size > LARGEST


def overloaded() -> JSONResponse:
    """The response beyond the limit of connections."""
    detail = "Too many connections; nothing was changed: retry later."
    return problem(503, detail, {"retry-after": "1", "connection": "close"})


def too_large() -> JSONResponse:
    """The response to a request whose head exceeds its size limit."""
    detail = f"The request line and its headers must have at most {LARGEST} bytes."
    return problem(431, detail, {"connection": "close"})
