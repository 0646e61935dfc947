"""Shamir secret sharing (1979) of 32-byte secrets; fewer than `threshold` shares reveal nothing.

The field is the integers modulo 2^256 + 297, the first prime above 2^256. So every 32-byte secret
is a field element and needs no biased reduction. Share number x is the value of the polynomial at
x, for x = 1, 2, ...
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from tacit.aggregation.interface import SYSTEM, Rejected, Source, uniform

PRIME = (1 << 256) + 297
SECRET_SIZE = 32
SHARE_SIZE = 33


def split(secret: bytes, threshold: int, count: int, source: Source = SYSTEM) -> list[bytes]:
    """Share a 32-byte secret; returns shares number 1..count.

    >>> shares = split(b"s" * 32, threshold=3, count=5)
    >>> combine((1, 3, 5), [shares[0], shares[2], shares[4]])
    b'ssssssssssssssssssssssssssssssss'
    """
    return [share for (share,) in split_all([secret], threshold, count, source)]


def split_all(
    secrets: Sequence[bytes], threshold: int, count: int, source: Source = SYSTEM
) -> list[tuple[bytes, ...]]:
    """Share several secrets independently; returns shares number 1..count.

    The polynomials are evaluated side by side in one integer, spaced so that values do not overlap.
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
    """Reconstruct the secret from exactly `threshold` shares and their numbers."""
    weights, divisor = lagrange(positions)
    values = [int.from_bytes(share, "big") for share in shares]
    total = sum([weight * value for weight, value in zip(weights, values, strict=True)])
    total = total * pow(divisor, -1, PRIME) % PRIME
    if total >> 256:
        raise Rejected("shares are inconsistent: no 32-byte secret has them")
    return total.to_bytes(SECRET_SIZE, "big")


def is_share(share: bytes) -> bool:
    """Whether these bytes are the canonical encoding of a field element."""
    return len(share) == SHARE_SIZE and (not share[0] or int.from_bytes(share, "big") < PRIME)


@lru_cache(maxsize=1024)
def lagrange(positions: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Lagrange weights for the value at 0 from values at `positions`, and their common divisor.

    Cached, because sets of positions recur. At 1..z the weight of x is the product of all j / (j -
    x), j ≠ x, which is ±C(z, x). A missing m removes its factor m / (m - x): this multiplies the
    weight by m - x and the divisor by m, so that nothing large is ever inverted.

    >>> lagrange((1, 2)), lagrange((1, 3))
    (((2, -1), 1), ((3, -1), 2))
    """
    last = max(positions)
    full, missing = _full_weights(last), set(range(1, last + 1)).difference(positions)
    weights = [full[own] for own in positions]
    for gap in missing:
        weights = [weight * (gap - own) for weight, own in zip(weights, positions, strict=True)]
    return tuple(weights), math.prod(missing)


@lru_cache(maxsize=1024)
def _full_weights(last: int) -> tuple[int, ...]:
    """The weights of 0 (unused), 1, 2, ..., `last` if no position is missing."""
    return tuple([-((-1) ** own) * math.comb(last, own) for own in range(last + 1)])
