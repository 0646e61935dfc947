"""Binomial noise, as the shuffle protocols add it bit by bit.

Users send noise bits next to their data bits, and the shuffler reveals only the number of ones.
Fair bits are drawn as one population count of operating-system randomness. Biased bits are counted
by inversion of the exact distribution function.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tacit.errors import Number, TacitError, integer, positive, probability
from tacit.noise.cumulants import OUTSIDE, Cumulants
from tacit.noise.distribution import (
    WIDEST_SUMMED,
    Floats,
    Integers,
    NoiseDistribution,
    no_power,
    plain,
)
from tacit.noise.log_functions import deviance, stirling_error
from tacit.sampling.coins import random_bits
from tacit.sampling.draws import ones
from tacit.sampling.inversion import Inversion

_CHUNK = 1 << 20
_MOST_BITS = 1 << 20
MOST_SIMULATED = (1 << 63) - 1  # what NumPy counts
STEIN = (
    7.6  # times the inverse of the standard deviation: distance of a sum of bits from a Gaussian
)


@dataclass(frozen=True)
class Binomial(NoiseDistribution):
    """P[X = k] = C(n, k) p^k (1-p)^{n-k}: the number of ones among n bits of bias p.

    Parameters
    ----------
    n : int
        Number of bits, at least 1.
    p : number, default 1/2
        Probability of a one.

    Notes
    -----
    The mean is np, not 0; the analyzer subtracts it. Shares exist for any number that divides n.

    Examples
    --------
    >>> Binomial(62, 0.5).share(2)
    Binomial(n=31, p=0.5)
    """

    n: int
    p: Number = Fraction(1, 2)
    log_concave = True

    def __post_init__(self) -> None:
        object.__setattr__(
            self,
            "n",
            integer(
                "n", self.n, at_least=1, remedy="a binomial distribution needs at least one bit"
            ),
        )
        probability("p", self.p, "fair bits have p = 1/2")
        object.__setattr__(self, "p", plain(self.p))

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
        """True for fair bits only."""
        return Fraction(self.p) == Fraction(1, 2)

    @property
    def support(self) -> tuple[float, float]:
        """0..n."""
        return 0.0, float(self.n)

    def log_pmf(self, k: npt.ArrayLike) -> Floats:
        """ln P[X = k] in Loader's saddle-point form, which avoids cancellation for large n."""
        n, p = float(self.n), float(self.p)
        x = np.asarray(k, dtype=float)
        inside = (x >= 0) & (x <= n)
        interior = (x > 0) & (x < n)
        y = np.where(interior, x, n / 2)
        mean = self.n * Fraction(self.p)
        excess = (y - self.mean) - float(mean - Fraction(self.mean))
        value = (
            stirling_error(np.asarray(n))
            - stirling_error(y)
            - stirling_error(n - y)
            - deviance(y, n * p, excess)
            - deviance(n - y, n * (1 - p), -excess)
            + 0.5 * np.log(n / (2 * math.pi * y * (n - y)))
        )
        ends = np.where(x == 0, n * math.log1p(-p), n * math.log(p))
        return np.where(interior, value, np.where(inside, ends, -np.inf))

    def log_mgf(self, s: npt.ArrayLike) -> Floats:
        """n ln(1 - p + p e^s), in the form that neither overflows nor cancels."""
        s = np.asarray(s, dtype=float)
        p = float(self.p)
        falling = np.expm1(-np.abs(s))
        result: Floats = self.n * np.where(
            s <= 0, np.log1p(p * falling), s + np.log1p((1 - p) * falling)
        )
        return result

    def power(self, times: Number) -> Binomial:
        """More or fewer bits of the same bias; the number of bits must stay an integer.

        Raises
        ------
        TacitError
            If the number of bits would be no integer.
        """
        bits = self.n * positive("share fraction", times)
        if bits.denominator != 1:
            raise no_power(
                self,
                times,
                f"{self.n} bits do not divide that way; give everyone {math.ceil(bits)} or change "
                "the number of bits",
            )
        return Binomial(int(bits), self.p)

    @classmethod
    def of_std(cls, std: float) -> Self:
        """About 4 std² fair bits."""
        return cls(max(1, round(4 * std**2)))

    def scaled(self, factor: float) -> Binomial:
        """More or fewer bits of the same bias."""
        return Binomial(max(1, round(self.n * factor**2)), self.p)

    def cumulants(self) -> Cumulants:
        """n (ln(1 - p + p e^s) - ps), and the tilted mean and variance."""
        n, p = float(self.n), float(self.p)

        def function(s: float) -> tuple[float, float, float]:
            if not -700 < s < 700:
                return OUTSIDE
            tilted = p * math.exp(s)
            mean = tilted / (1 - p + tilted)
            value = n * (math.log1p(p * math.expm1(s)) - p * s)
            return value, n * (mean - p), n * mean * (1 - mean)

        return function

    def distance_from_gaussian(self) -> float:
        """The sum of all terms where the bits are fair and few enough, else 7.6 / σ.

        The latter holds for all sums of independent bits (Chen, Goldstein & Shao 2011, Theorem
        7.1).
        """
        if self.symmetric and self.std <= WIDEST_SUMMED:
            return super().distance_from_gaussian()
        return min(1.0, STEIN / self.std)

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...] | None = None) -> Any:
        """NumPy's binomial; more bits than a 64-bit integer counts are rejected."""
        if self.n > MOST_SIMULATED:
            raise TacitError(
                f"n is {float(self.n):.3g}: simulations draw at most {MOST_SIMULATED} bits at "
                "once; use a larger epsilon or delta, or a coarser scale"
            )
        return rng.binomial(self.n, float(self.p), size)

    def _draw_one(self) -> int:
        if self._popcount:
            return random_bits(self.n).bit_count()
        return sum(part.draw() for part in self._parts)

    @cached_property
    def _popcount(self) -> bool:
        """Whether the bits are fair and few enough for one population count."""
        return self.symmetric and self.n <= _MOST_BITS

    @cached_property
    def _parts(self) -> list[Inversion]:
        """The bits in groups whose sums have a standard deviation of at most 4,096, to keep tables
        small.
        """
        p = Fraction(self.p)
        groups = -(-(self.n * p * (1 - p)) // (1 << 24))
        size, larger = divmod(self.n, groups)
        return [ones(size + (i < larger), p) for i in range(groups)]

    def _draw_many(self, size: int) -> Integers:
        """Population counts of operating-system bytes for fair bits; other biases draw one value at
        a time.
        """
        if not self._popcount:
            return super()._draw_many(size)
        words, spare = divmod(self.n, 64)
        result = np.zeros(size, dtype=np.int64)
        step = max(1, _CHUNK // (words + 1))
        for start in range(0, size, step):
            part = result[start : start + step]
            if words:
                bits = np.frombuffer(os.urandom(8 * words * len(part)), dtype=np.uint64).reshape(
                    len(part), words
                )
                part += np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
            if spare:
                bits = np.frombuffer(os.urandom(8 * len(part)), dtype=np.uint64)
                part += np.bitwise_count(bits >> np.uint64(64 - spare))
        return result
