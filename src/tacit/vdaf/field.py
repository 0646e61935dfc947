"""The fields of the VDAF draft, Field64 and Field128, and interpolation in them.

Elements are plain integers below the modulus, little-endian (VDAF draft, section 6.1). Polynomials
are given by their values at roots of unity. Python integers are not constant-time.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import prod

from tacit.errors import Rejected, require


@dataclass(frozen=True)
class Field:
    """A prime field with roots of unity of order 2^order_bits; 7 generates its units.

    Parameters
    ----------
    modulus : int
        The prime.
    size : int
        Bytes of an element.
    order_bits : int
        Exponent of the largest power of two that divides the modulus less one.
    """

    modulus: int
    size: int
    order_bits: int

    def pack(self, numbers: Sequence[int]) -> bytes:
        """Serialize a vector of field elements.

        >>> FIELD64.pack([1, 2**32]).hex()
        '01000000000000000000000001000000'
        """
        if self.size == 8:
            return struct.pack(f"<{len(numbers)}Q", *numbers)
        return b"".join([number.to_bytes(self.size, "little") for number in numbers])

    def parse(self, data: bytes) -> list[int]:
        """The integers in these bytes, which need not be below the modulus."""
        if self.size == 8:
            return list(struct.unpack(f"<{len(data) // 8}Q", data))
        starts = range(0, len(data), self.size)
        return [int.from_bytes(data[at : at + self.size], "little") for at in starts]

    def unpack(self, data: bytes, count: int, name: str) -> list[int]:
        """Parse a vector of `count` field elements in canonical encoding."""
        size = len(data)
        require(
            size == count * self.size, name, f"{size} bytes long", f"{count * self.size}", Rejected
        )
        numbers = self.parse(data)
        if max(numbers, default=0) >= self.modulus:
            raise Rejected(f"{name} contains a number that is not below the modulus of the field")
        return numbers

    def roots(self, count: int) -> list[int]:
        """The `count`-th roots of unity in the order of their exponents; `count` is a power of two.

        >>> FIELD64.roots(2) == [1, MODULUS - 1]
        True
        """
        order = 1 << self.order_bits
        generator = pow(7, (self.modulus - 1) // order, self.modulus)
        root = pow(generator, order // count, self.modulus)
        return list(accumulate([root] * (count - 1), self.times, initial=1))

    def dot(self, row: Sequence[int], values: Sequence[int]) -> int:
        """Inner product, reduced once; the longer vector is truncated."""
        return sum([a * b for a, b in zip(row, values, strict=False)]) % self.modulus

    def times(self, a: int, b: int) -> int:
        """The product of two elements."""
        return a * b % self.modulus


@dataclass(frozen=True)
class Nodes:
    """Interpolation nodes; each weight inverts the product of the differences from the others."""

    field: Field
    points: tuple[int, ...]
    weights: tuple[int, ...]

    def lagrange(self, at: int) -> list[int]:
        """Lagrange coefficients at this point: w_j times the product of all other differences.

        Prefix and suffix products avoid any division, so that the point may be a node.
        """
        modulus, times = self.field.modulus, self.field.times
        gaps = [at - point for point in self.points]
        before = accumulate(gaps[:-1], times, initial=1)
        after = [*accumulate(gaps[:0:-1], times, initial=1)][::-1]
        return [
            weight * first % modulus * second % modulus
            for weight, first, second in zip(self.weights, before, after, strict=True)
        ]


FIELD64 = Field(2**64 - 2**32 + 1, 8, 32)
FIELD128 = Field(2**66 * 4611686018427387897 + 1, 16, 66)
MODULUS, SIZE = FIELD64.modulus, FIELD64.size
pack, unpack, roots, dot = FIELD64.pack, FIELD64.unpack, FIELD64.roots, FIELD64.dot


@lru_cache(maxsize=64)
def nodes(order: int, count: int, field: Field = FIELD64) -> Nodes:
    """The first `count` roots of unity of this order, as interpolation nodes."""
    points = tuple(field.roots(order)[:count])
    distances = [
        prod([own - other for other in points if other != own]) % field.modulus for own in points
    ]
    weights = tuple(pow(distance, -1, field.modulus) for distance in distances)
    return Nodes(field, points, weights)
