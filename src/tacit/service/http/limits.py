"""Rate limits per client address, and size and time limits for request bodies.

Addresses are kept in memory only, at most `MOST_ADDRESSES`, and are neither stored nor logged.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.types import Receive

MOST_ADDRESSES = 50_000
SLOWEST = 20.0  # maximum seconds to receive a body


class Buckets:
    """A token bucket per address: `burst` requests at once, refilled at `rate` per second.

    >>> buckets = Buckets(rate=2, burst=1, clock=iter([0.0, 0.25, 0.5]).__next__)
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
        if len(self._buckets) > MOST_ADDRESSES:
            self._buckets.popitem(last=False)
        return 0.0 if welcome else (1 - level) / self._rate


def neighbourhood(address: str) -> str:
    """The key of a bucket: an IPv4 address, or the /64 network of an IPv6 address.

    >>> neighbourhood("2001:db8:1:2:3:4:5:6"), neighbourhood("192.0.2.1"), neighbourhood("?")
    ('2001:db8:1:2::/64', '192.0.2.1', '?')
    """
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network(f"{address.partition('%')[0]}/64", strict=False))
    except ValueError:
        return address


class BodyError(Exception):
    """A request body that was not read completely, with the HTTP status to return."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


async def read_body(receive: Receive, declared: bytes | None, most: int) -> bytes:
    """Read the whole body; raise `BodyError` if it exceeds `most` bytes or the time limit."""
    if declared is not None and int(declared) > most:
        raise too_large(most)
    parts, size = [], 0
    try:
        async with asyncio.timeout(SLOWEST):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise BodyError(400, "The connection closed before the end of the body.")
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > most:
                    raise too_large(most)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise BodyError(408, f"The body must arrive within {SLOWEST:.0f} seconds.") from None


def too_large(most: int) -> BodyError:
    """The error for a body beyond its size limit."""
    return BodyError(413, f"The body must have at most {most} bytes.")
