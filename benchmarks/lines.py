"""HTTP connections of a load generator: raw sockets, so that the generator costs little itself."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any, Protocol

Headers = Sequence[tuple[str, str]]


class Server(Protocol):
    """A party in one or several processes, each on a port of its own."""

    @property
    def port(self) -> int:
        """Its port on the loopback address."""

    @property
    def others(self) -> tuple[Server, ...]:
        """Further processes of the party."""


class Line(asyncio.Protocol):
    """One connection that asks one thing after another."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._received = b""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._transport: Any = None

    @classmethod
    async def to(cls, one: Server) -> Line:
        """A connection to a party."""
        line = cls(secrets.choice([one, *one.others]).port)
        await line._connect()
        return line

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self, "127.0.0.1", self._port)

    def connection_made(self, transport: Any) -> None:
        """It is there."""
        self._transport = transport

    def connection_lost(self, _problem: Exception | None) -> None:
        """It is gone; so is the answer."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the server hung up"))

    async def ask(
        self, method: str, path: str, kind: str, body: bytes, more: Headers = ()
    ) -> tuple[int, bytes]:
        """Status and body of the answer; on a new connection if the server hung up meanwhile."""
        head = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}"]
        head += [f"Content-Type: application/{kind}", *(f"{key}: {value}" for key, value in more)]
        request = "\r\n".join([*head, "\r\n"]).encode() + body
        try:
            if not self._transport.is_closing():
                return await self._asked(request)
        except ConnectionError:
            pass
        await self._connect()
        return await self._asked(request)

    async def _asked(self, request: bytes) -> tuple[int, bytes]:
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        """A part of an answer."""
        self._received += data
        front, found, rest = self._received.partition(b"\r\n\r\n")
        if not found or self._answer is None:
            return
        _, named, size = front.lower().partition(b"content-length:")
        length = int(size.split(b"\r\n")[0]) if named else 0
        if len(rest) >= length:
            self._received = rest[length:]
            self._answer.set_result((int(front.split(b" ", 2)[1]), rest[:length]))

    def close(self) -> None:
        """Hangs up."""
        self._transport.close()
