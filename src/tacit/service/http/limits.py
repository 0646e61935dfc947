"""Rate limits per client address.

Addresses are kept in memory only, at most `MOST_ADDRESSES` and only while their limit is not
restored. They are neither stored nor logged.
"""

from __future__ import annotations

import base64
import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable

MOST_ADDRESSES = 50_000


class TokenBuckets:
    """A token bucket per address: `burst` requests at once, refilled at `rate` per second.

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
