"""Binomial noise: what the shuffle protocols add, one bit at a time.

Users send noise bits next to their data bits; the shuffler leaves only the number of ones. Fair bits come from one population
count of operating-system randomness.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.checks import Number, integer, positive, probability
from tacit.noise.coins import Chance, random_bits
from tacit.noise.law import Floats, Integers, NoiseLaw, refuse_power
from tacit.noise.special import deviance, stirling_error

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Binomial(NoiseLaw):
    """P[X = k] = C(n, k) p^k (1-p)^{n-k}: the number of ones among n bits of bias p.

    >>> Binomial(62, 0.5).share(2)
    Binomial(n=31, p=0.5)
    """

    n: int
    p: Number = Fraction(1, 2)

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", integer("n", self.n, at_least=1, remedy="a binomial law needs at least one bit"))
        probability("p", self.p, "fair bits have p = 1/2")

    @property
    def mean(self) -> float:
        """n p."""
        return float(self.n * Fraction(self.p))

    @property
    def variance(self) -> float:
        """n p (1-p)."""
        return float(self.n * Fraction(self.p) * (1 - Fraction(self.p)))

    @property
    def symmetric(self) -> bool:
        """Only for fair bits."""
        return Fraction(self.p) == Fraction(1, 2)

    @property
    def support(self) -> tuple[float, float]:
        """0..n."""
        return 0.0, float(self.n)

    def log_pmf(self, k: npt.ArrayLike) -> Floats:
        """ln P[X = k] by Loader's saddle-point form, which does not cancel for large n."""
        n, p = float(self.n), float(self.p)
        x = np.asarray(k, dtype=float)
        inside = (x >= 0) & (x <= n)
        interior = (x > 0) & (x < n)
        y = np.where(interior, x, n / 2)
        value = (
            stirling_error(np.asarray(n))
            - stirling_error(y)
            - stirling_error(n - y)
            - deviance(y, n * p)
            - deviance(n - y, n * (1 - p))
            + 0.5 * np.log(n / (2 * math.pi * y * (n - y)))
        )
        ends = np.where(x == 0, n * math.log1p(-p), n * math.log(p))
        return np.where(interior, value, np.where(inside, ends, -np.inf))

    def log_mgf(self, s: npt.ArrayLike) -> Floats:
        """n ln(1 - p + p e^s)."""
        s = np.asarray(s, dtype=float)
        return self.n * np.logaddexp(math.log1p(-float(self.p)), math.log(self.p) + s)

    def power(self, times: Number) -> Binomial:
        """More or fewer bits of the same bias; a part must leave a whole number of bits."""
        bits = self.n * positive("share fraction", times)
        if bits.denominator != 1:
            raise refuse_power(
                self,
                times,
                f"{self.n} bits do not divide that way; give everyone {math.ceil(bits)} or change the number of bits",
            )
        return Binomial(int(bits), self.p)

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...] | None = None) -> Any:
        """NumPy's binomial."""
        return rng.binomial(self.n, float(self.p), size)

    def _draw_one(self) -> int:
        if self.symmetric:
            return random_bits(self.n).bit_count()
        coin = Chance(Fraction(self.p))
        return sum(coin.flip() for _ in range(self.n))

    def _draw_many(self, size: int) -> Integers:
        """Fair bits in bulk: population counts of operating-system bytes. Biased ones one by one."""
        if not self.symmetric:
            return super()._draw_many(size)
        words, spare = divmod(self.n, 64)
        result = np.zeros(size, dtype=np.int64)
        step = max(1, _CHUNK // (words + 1))
        for start in range(0, size, step):
            part = result[start : start + step]
            if words:
                bits = np.frombuffer(os.urandom(8 * words * len(part)), dtype=np.uint64).reshape(len(part), words)
                part += np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
            if spare:
                bits = np.frombuffer(os.urandom(8 * len(part)), dtype=np.uint64)
                part += np.bitwise_count(bits >> np.uint64(64 - spare))
        return result
