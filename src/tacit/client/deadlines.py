"""Time limit of whole HTTP exchanges: from the first byte of a request to the end of its response.

The timeouts of `httpx` are those of single operations. A server that sends a byte now and then, or
interim responses without end, would be waited for forever, and everything else with it.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

import httpx

_SLICE = 1 << 16  # bytes that are sent in one operation


class NetworkStream(Protocol):
    """The connection of a transport of `httpx`."""

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Receive at most `max_bytes` bytes."""

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of these bytes."""

    def start_tls(self, *args: Any, **kwargs: Any) -> NetworkStream:
        """The connection under TLS."""


class NetworkBackend(Protocol):
    """What opens the connections of a transport of `httpx`."""

    def connect_tcp(self, *args: Any, **kwargs: Any) -> NetworkStream:
        """A new connection."""


class LimitedStream:
    """A connection on which every exchange takes at most so many seconds."""

    def __init__(self, stream: NetworkStream, seconds: float) -> None:
        self._stream, self._seconds = stream, seconds
        self._end, self._answered = 0.0, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Receive a part of the response."""
        self._answered = True
        return self._stream.read(max_bytes, self._seconds_left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send a part of the request; the first one after a response begins an exchange."""
        if self._answered:
            self._answered, self._end = False, time.monotonic() + self._seconds
        for at in range(0, len(buffer), _SLICE):
            self._stream.write(buffer[at : at + _SLICE], self._seconds_left(timeout))

    def start_tls(self, *args: Any, **kwargs: Any) -> LimitedStream:
        """The connection under TLS."""
        return LimitedStream(self._stream.start_tls(*args, **kwargs), self._seconds)

    def _seconds_left(self, timeout: float | None) -> float:
        left = self._end - time.monotonic()
        if left <= 0:
            raise httpx.ReadTimeout(f"the exchange takes longer than {self._seconds:g} seconds")
        return left if timeout is None else min(timeout, left)


class LimitedBackend:
    """Opens connections with this time limit."""

    def __init__(self, backend: NetworkBackend, seconds: float) -> None:
        self._backend, self._seconds = backend, seconds

    def connect_tcp(self, *args: Any, **kwargs: Any) -> LimitedStream:
        """A new connection."""
        return LimitedStream(self._backend.connect_tcp(*args, **kwargs), self._seconds)


def limit_exchanges(http: object, seconds: float) -> None:
    """Limit every exchange of a client or transport of `httpx`; leave other transports alone."""
    found = [http]
    if isinstance(http, httpx.Client):
        found = [http._transport, *http._mounts.values()]
    for one in found:
        if isinstance(one, httpx.HTTPTransport):
            backend: Any = LimitedBackend(one._pool._network_backend, seconds)
            one._pool._network_backend = backend
