"""A 32-byte secret in shares, any `threshold` of which give it back and fewer say nothing (Shamir
1979).

The field is the integers modulo 2^256 + 297, the first prime above 2^256, so that every 32-byte
secret is a field element and no secret has to be drawn with bias to fit. Share number x is the
polynomial's value at x, for x = 1, 2,
...
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from operator import mul

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
    return [share for (share,) in split_all([secret], threshold, count, source)]


def split_all(
    secrets: Sequence[bytes], threshold: int, count: int, source: Source = SYSTEM
) -> list[tuple[bytes, ...]]:
    """Shares number 1..count of several secrets, each as by itself; their polynomials stand side by
    side in one integer, so far apart that no value reaches the next.
    """
    apart = PRIME.bit_length() + threshold.bit_length() + threshold * count.bit_length()
    drawn = [uniform(PRIME, threshold - 1, source) for _ in secrets]
    coefficients = [_side_by_side(numbers, apart) for numbers in zip(*drawn, strict=True)]
    constants = _side_by_side([int.from_bytes(secret, "big") for secret in secrets], apart)
    lanes, whole = [apart * lane for lane in range(len(secrets))], (1 << apart) - 1
    shares = []
    for position in range(1, count + 1):
        value = 0
        for coefficient in coefficients:
            value = (value + coefficient) * position
        value += constants
        shares.append(
            tuple([((value >> lane & whole) % PRIME).to_bytes(SHARE_SIZE, "big") for lane in lanes])
        )
    return shares


def _side_by_side(numbers: Sequence[int], apart: int) -> int:
    return sum(number << apart * lane for lane, number in enumerate(numbers))


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
    return len(share) == SHARE_SIZE and (not share[0] or int.from_bytes(share, "big") < PRIME)


@lru_cache(maxsize=1024)
def lagrange(positions: tuple[int, ...]) -> tuple[int, ...]:
    """Weights that turn values at `positions` into the value at 0; kept, because sets of
    positions recur.

    Up to the last position z, the product of all differences to x but those of the missing m is
    ±(x-1)! (z-x)!, so the weight of x is the product of all positions and of all m - x, divided by
    ±x (x-1)! (z-x)!; the divisions share one inversion (Montgomery 1987).

    >>> lagrange((1, 2)) == (2, PRIME - 1)
    True
    """
    last = max(positions)
    missing = sorted(set(range(1, last + 1)).difference(positions))
    factorials = [1, *accumulate(range(1, last + 1), mul)]
    everyone = math.prod(positions)
    above = [everyone * math.prod([gap - own for gap in missing]) for own in positions]
    below = [
        (-1) ** (own - 1) * factorials[own] * factorials[last - own] % PRIME for own in positions
    ]
    before = [1, *accumulate(below, lambda product, number: product * number % PRIME)]
    inverse = pow(before[-1], -1, PRIME)
    weights = []
    for place in range(len(positions) - 1, -1, -1):
        weights.append(above[place] * before[place] * inverse % PRIME)
        inverse = inverse * below[place] % PRIME
    return tuple(reversed(weights))
