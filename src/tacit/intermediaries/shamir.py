"""A 32-byte secret in shares, any `threshold` of which give it back and fewer say nothing (Shamir
1979).

The field is the integers modulo 2^256 + 297, the first prime above 2^256, so that every 32-byte
secret is a field element and no secret has to be drawn with bias to fit. Share number x is the
polynomial's value at x, for x = 1, 2,
...
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tacit.intermediaries.interface import SYSTEM, Refusal, Source, uniform

PRIME = (1 << 256) + 297
SECRET_SIZE = 32
SHARE_SIZE = 33


def split(secret: bytes, threshold: int, count: int, source: Source = SYSTEM) -> list[bytes]:
    """Shares number 1..count of a 32-byte secret.

    >>> shares = split(b"s" * 32, threshold=3, count=5)
    >>> combine((1, 3, 5), [shares[0], shares[2], shares[4]])
    b'ssssssssssssssssssssssssssssssss'
    """
    constant = int.from_bytes(secret, "big")
    coefficients = uniform(PRIME, threshold - 1, source)
    shares = []
    for position in range(1, count + 1):
        value = 0
        for coefficient in coefficients:
            value = (value + coefficient) * position
        shares.append(((value + constant) % PRIME).to_bytes(SHARE_SIZE, "big"))
    return shares


def combine(positions: tuple[int, ...], shares: Sequence[bytes]) -> bytes:
    """The secret from exactly `threshold` shares and their numbers."""
    total = 0
    for weight, share in zip(lagrange(positions), shares, strict=True):
        total += weight * int.from_bytes(share, "big")
    total %= PRIME
    if total >> 256:
        raise Refusal("the shares do not belong together: no 32-byte secret has them")
    return total.to_bytes(SECRET_SIZE, "big")


def is_share(share: bytes) -> bool:
    """Whether these bytes are one field element in its only spelling."""
    return len(share) == SHARE_SIZE and int.from_bytes(share, "big") < PRIME


@lru_cache(maxsize=4096)
def lagrange(positions: tuple[int, ...]) -> tuple[int, ...]:
    """Weights that turn values at `positions` into the value at 0; kept, because sets of positions
    recur.

    >>> lagrange((1, 2)) == (2, PRIME - 1)
    True
    """
    weights = []
    for own in positions:
        above, below = 1, 1
        for other in positions:
            if other != own:
                above *= other
                below *= other - own
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return tuple(weights)
