"""Message encodings of a silo's noisy integers, one per kind of aggregator.

Numbers that are summed or seen individually are sent modulo 2^64 (`Words`). Shuffled messages must
reveal nothing but their sum in any order. Numbers are then split into random additive shares
(`Shares`, Ishai et al. 2006), or written as bits of which only the number of ones counts (`Bits`,
ZC24 Algorithm 5). Encodings provide no privacy by themselves; the noise is in the numbers.
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
MOST_BITS = 1 << 27  # per message: limit of a silo's memory


@dataclass(frozen=True)
class Words:
    """Every number modulo 2^64."""

    bits: int = MODULUS_BITS  # of a number

    def message(self, numbers: Integers, rng: np.random.Generator | None) -> UnsignedWords:  # noqa: ARG002
        """The numbers themselves."""
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
    """Every number as `count` additive shares modulo 2^64, all but the last uniform."""

    count: int = 1

    def message(self, numbers: Integers, rng: np.random.Generator | None) -> UnsignedWords:
        """One row of shares per number."""
        shape = (len(numbers), self.count - 1)
        parts = (
            np.frombuffer(os.urandom(8 * shape[0] * shape[1]), dtype=np.uint64).reshape(shape)
            if rng is None
            else rng.integers(0, 1 << MODULUS_BITS, shape, dtype=np.uint64)
        )
        last = numbers.view(np.uint64) - parts.sum(axis=1, dtype=np.uint64)
        return np.column_stack([parts, last])

    def total(self, messages: Sequence[Any]) -> list[int]:
        """The sums of all shares modulo 2^64."""
        total = np.array(messages, np.uint64).sum(axis=(0, 2), dtype=np.uint64)
        return [int(number) for number in total]


@dataclass(frozen=True)
class Bits:
    """Every number as `bits` bits, of which number + `offset` are ones."""

    bits: int
    offset: int

    def message(
        self,
        numbers: Integers,
        rng: np.random.Generator | None,  # noqa: ARG002
    ) -> npt.NDArray[Any]:
        """One row of bits per number, ones first; the shuffler permutes them."""
        return (np.arange(self.bits) < self.ones(numbers)[:, None]).astype(np.uint8)

    def ones(self, numbers: Integers) -> Integers:
        """The number of ones in each row."""
        ones = numbers + self.offset
        if not 0 <= ones.min() <= ones.max() <= self.bits:
            raise TacitError(
                f"numbers are {ones.min() - self.offset} to {ones.max() - self.offset}: must be "
                f"{-self.offset} to {self.bits - self.offset}, the range of {self.bits} bits. "
                "Check "
                "the number of records per silo"
            )
        return ones

    def total(self, messages: Sequence[Any]) -> list[int]:
        """The number of ones per label."""
        ones = [np.sum(message, axis=1, dtype=np.int64) for message in messages]
        return [int(number) for number in np.sum(ones, axis=0)]

    def read(self, values: Sequence[int], silos: int) -> Floats:
        """The sums that these numbers of ones encode."""
        return np.array(values, dtype=float) - silos * self.offset


@dataclass(frozen=True)
class Counts(Bits):
    """`Bits` with every row replaced by its number of ones, all that a shuffler reveals; for audits
    of messages too long to build.
    """

    def message(
        self,
        numbers: Integers,
        rng: np.random.Generator | None,  # noqa: ARG002
    ) -> npt.NDArray[Any]:
        """The number of ones per number."""
        return self.ones(numbers)

    def total(self, messages: Sequence[Any]) -> list[int]:
        """The number of ones per label."""
        return [int(number) for number in np.array(messages, np.int64).sum(axis=0)]


Form = Words | Shares | Bits
