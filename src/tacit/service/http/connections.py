"""A connection, before there is a request: how long and how large the head of one may be.

What comes after the head is bounded by the application (`front`); before that there is none to ask.
"""

from __future__ import annotations

import asyncio
import json

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

LARGEST = 1 << 15  # bytes of a request's line and headers
SLOWEST = 20.0  # seconds that they may take, from the connection or from their first byte


class Connection(HttpToolsProtocol):
    """A connection whose requests have bounded heads; beyond that it is closed, with a word."""

    _head = 0
    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody came, and is to say what for."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Somebody went."""
        self._arrived()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Something came."""
        super().data_received(data)
        if self._waiting is not None and not self.transport.is_closing():
            self._head += len(data)  # all of it, so far
            if self._head > LARGEST:
                self.send_400_response("")

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self._head = 0
        self._wait()

    def on_headers_complete(self) -> None:
        """The head is there; the rest is the application's."""
        self._arrived()
        self._head = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if self._head > LARGEST:
            raise ValueError("the headers are too large")  # so the parser stops
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Says that this is no request, or too large for one, and closes."""
        if self._head <= LARGEST:
            super().send_400_response(msg)
            return
        said = {"error": f"the headers are too large: at most {LARGEST} bytes are taken here"}
        body = json.dumps(said).encode()
        lines = [
            STATUS_LINE[431],
            b"content-type: application/json\r\n",
            b"content-length: %d\r\n" % len(body),
            b"connection: close\r\n\r\n",
            body,
        ]
        self.transport.write(b"".join(lines))
        self.transport.close()

    def _wait(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(SLOWEST, self.timeout_keep_alive_handler)

    def _arrived(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
