"""The forms in which a silo's noisy integers leave it, one for each intermediary.

Where messages are added up or seen one by one, numbers travel modulo 2^64 (`Words`). What a
shuffler mixes must say nothing but its sum, in whatever order: numbers are cut into random parts
that add up to them (`Shares`, Ishai et al. 2006), or written as bits of which only the ones count
(`Bits`, ZC24 Algorithm 5). Forms hide nothing by themselves; the noise is in the numbers.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.errors import TacitError
from tacit.types import Floats, Integers

UnsignedWords = npt.NDArray[np.uint64]
MODULUS_BITS = 64
MOST_BITS = 1 << 27  # of a message: what a silo can hold, let alone send


@dataclass(frozen=True)
class Words:
    """Every number modulo 2^64."""

    bits: int = MODULUS_BITS  # of a number

    def message(self, numbers: Integers, rng: np.random.Generator | None) -> UnsignedWords:  # noqa: ARG002
        """As they are."""
        return numbers.view(np.uint64)

    def total(self, messages: Sequence[Any]) -> list[int]:
        """The sums modulo 2^64."""
        total = np.array(messages, np.uint64).sum(axis=0, dtype=np.uint64)
        return [int(number) for number in total]

    def read(self, values: Sequence[int], silos: int) -> Floats:  # noqa: ARG002
        """The sums as signed numbers."""
        return np.array(values, dtype=np.uint64).view(np.int64).astype(float)


@dataclass(frozen=True)
class Shares(Words):
    """Every number as `count` parts modulo 2^64, all but the last uniform."""

    count: int = 1

    def message(self, numbers: Integers, rng: np.random.Generator | None) -> UnsignedWords:
        """One row of parts for each number."""
        shape = (len(numbers), self.count - 1)
        parts = (
            np.frombuffer(os.urandom(8 * shape[0] * shape[1]), dtype=np.uint64).reshape(shape)
            if rng is None
            else rng.integers(0, 1 << MODULUS_BITS, shape, dtype=np.uint64)
        )
        last = numbers.view(np.uint64) - parts.sum(axis=1, dtype=np.uint64)
        return np.column_stack([parts, last])

    def total(self, messages: Sequence[Any]) -> list[int]:
        """The sums of all parts modulo 2^64."""
        total = np.array(messages, np.uint64).sum(axis=(0, 2), dtype=np.uint64)
        return [int(number) for number in total]


@dataclass(frozen=True)
class Bits:
    """Every number as `bits` bits, of which so many are ones as it is above -`offset`."""

    bits: int
    offset: int

    def message(
        self,
        numbers: Integers,
        rng: np.random.Generator | None,  # noqa: ARG002
    ) -> npt.NDArray[Any]:
        """One row of bits for each number, ones first: the shuffler's order is another."""
        return (np.arange(self.bits) < self.ones(numbers)[:, None]).astype(np.uint8)

    def ones(self, numbers: Integers) -> Integers:
        """How many bits of each row are ones."""
        ones = numbers + self.offset
        if not 0 <= ones.min() <= ones.max() <= self.bits:
            raise TacitError(
                f"a number is {ones.min() - self.offset} to {ones.max() - self.offset} units; "
                f"{self.bits} bits count from {-self.offset}: do all silos have as many people as "
                "was said?"
            )
        return ones

    def total(self, messages: Sequence[Any]) -> list[int]:
        """How many bits with each number's label are ones."""
        ones = [np.sum(message, axis=1, dtype=np.int64) for message in messages]
        return [int(number) for number in np.sum(ones, axis=0)]

    def read(self, values: Sequence[int], silos: int) -> Floats:
        """The sums that so many ones stand for."""
        return np.array(values, dtype=float) - silos * self.offset


@dataclass(frozen=True)
class Counts(Bits):
    """The same with every row of bits as its number of ones, which is all that a shuffler leaves of
    it: for audits of messages that are too long to be made.
    """

    def message(
        self,
        numbers: Integers,
        rng: np.random.Generator | None,  # noqa: ARG002
    ) -> npt.NDArray[Any]:
        """One number of ones for each number."""
        return self.ones(numbers)

    def total(self, messages: Sequence[Any]) -> list[int]:
        """How many bits with each number's label would be ones."""
        return [int(number) for number in np.array(messages, np.int64).sum(axis=0)]


Form = Words | Shares | Bits
