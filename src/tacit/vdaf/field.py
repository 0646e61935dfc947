"""Field64 of the VDAF draft, the integers modulo 2^64 - 2^32 + 1, and interpolation in it.

Elements are plain integers below the modulus, eight bytes each, little-endian (VDAF draft, section
6.1). Polynomials are given by their values at roots of unity. Python integers are not
constant-time.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import prod

from tacit.errors import Refusal, require

MODULUS = 2**64 - 2**32 + 1
SIZE = 8  # bytes of an element
_ORDER = 1 << 32  # of the group of roots of unity
_GENERATOR = pow(7, (MODULUS - 1) // _ORDER, MODULUS)


def pack(numbers: Sequence[int]) -> bytes:
    """Serialize a vector of field elements.

    >>> pack([1, 2**32]).hex()
    '01000000000000000000000001000000'
    """
    return struct.pack(f"<{len(numbers)}Q", *numbers)


def unpack(data: bytes, count: int, what: str) -> list[int]:
    """Parse a vector of `count` field elements in canonical encoding."""
    size = len(data)
    require(size == count * SIZE, what, f"{size} bytes long", f"{count * SIZE}", Refusal)
    numbers = list(struct.unpack(f"<{count}Q", data))
    if max(numbers, default=0) >= MODULUS:
        raise Refusal(f"{what} contains a number that is not below the modulus of the field")
    return numbers


def roots(count: int) -> list[int]:
    """The `count`-th roots of unity in the order of their exponents; `count` is a power of two.

    >>> roots(2) == [1, MODULUS - 1]
    True
    """
    root = pow(_GENERATOR, _ORDER // count, MODULUS)
    return list(accumulate([root] * (count - 1), _times, initial=1))


def dot(row: Sequence[int], values: Sequence[int]) -> int:
    """Inner product, reduced once; the longer vector is truncated."""
    return sum([a * b for a, b in zip(row, values, strict=False)]) % MODULUS


def _times(a: int, b: int) -> int:
    return a * b % MODULUS


@dataclass(frozen=True)
class Nodes:
    """Interpolation nodes; each weight inverts the product of the differences from the others."""

    points: tuple[int, ...]
    weights: tuple[int, ...]

    def lagrange(self, at: int) -> list[int]:
        """Lagrange coefficients at this point: w_j times the product of all other differences.

        Prefix and suffix products avoid any division, so that the point may be a node.
        """
        gaps = [at - point for point in self.points]
        before = accumulate(gaps[:-1], _times, initial=1)
        after = [*accumulate(gaps[:0:-1], _times, initial=1)][::-1]
        return [
            weight * first % MODULUS * second % MODULUS
            for weight, first, second in zip(self.weights, before, after, strict=True)
        ]


@lru_cache(maxsize=64)
def nodes(order: int, count: int) -> Nodes:
    """The first `count` roots of unity of this order, as interpolation nodes."""
    points = tuple(roots(order)[:count])
    distances = [
        prod([own - other for other in points if other != own]) % MODULUS for own in points
    ]
    return Nodes(points, tuple(pow(distance, -1, MODULUS) for distance in distances))
