"""HTTP connection with limits on the time and the size of a request's head.

The head is the request line and the headers. The application (`middleware`) limits the body; it
does not exist before the head is complete.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from tacit.service.http.problems import problem

LARGEST = 1 << 15  # maximum bytes of a request line and its headers
SLOWEST = 20.0  # maximum seconds, from the connection or from the first byte


class Connection(HttpToolsProtocol):
    """uvicorn connection that limits the heads of requests and closes beyond the limits."""

    _head = 0
    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout of the first head."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timeout."""
        self._arrived()
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
