"""Skellam noise: the difference of two Poisson variables, closed under sums and divisible without end.

Its variance can be any positive number and a share of n is a Skellam law of variance / n, which makes it the natural noise for
secure aggregation under Rényi privacy. See CZ23 Definition 5 and Theorem 2; Agarwal, Kairouz & Liu 2021.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.checks import Number, positive
from tacit.noise.coins import WORD, exp_bounds, word
from tacit.noise.law import Floats, NoiseLaw
from tacit.noise.special import log_scaled_bessel


@dataclass(frozen=True)
class Skellam(NoiseLaw):
    """P[X = k] = e^{-v} I_k(v) for variance v, on the integers.

    >>> Skellam(1388).share(4)
    Skellam(variance=Fraction(347, 1))
    >>> round(float(Skellam(2).pmf(0)), 6)
    0.308508
    """

    variance: Number  # type: ignore[assignment]

    def __post_init__(self) -> None:
        positive("variance", self.variance, "a share of one of n people has variance / n")

    @property
    def mean(self) -> float:
        """Zero."""
        return 0.0

    def log_pmf(self, k: npt.ArrayLike) -> Floats:
        """ln P[X = k], elementwise."""
        return log_scaled_bessel(k, float(self.variance))

    def log_mgf(self, s: npt.ArrayLike) -> Floats:
        """v (cosh s - 1)."""
        return float(self.variance) * 2 * np.sinh(np.asarray(s, dtype=float) / 2) ** 2

    def power(self, times: Number) -> Skellam:
        """Variances add up."""
        return Skellam(Fraction(self.variance) * positive("share fraction", times))

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...] | None = None) -> Any:
        """The difference of two Poisson samples."""
        half = float(self.variance) / 2
        return rng.poisson(half, size) - rng.poisson(half, size)

    def _draw_one(self) -> int:
        parts, table = self._poisson
        return sum(table.draw() - table.draw() for _ in range(parts))

    @cached_property
    def _poisson(self) -> tuple[int, PoissonTable]:
        """A Poisson variable of half the variance in equal parts of mean at most 1,024: draws cost variance / 2,048."""
        half = Fraction(self.variance) / 2
        parts = -(-half // LARGEST_TABLE_MEAN)
        return parts, poisson_table(half / parts)


LARGEST_TABLE_MEAN = 1024


class PoissonTable:
    """Exact Poisson draws by inverting the distribution function, digit by digit.

    F(k) = e^{-mean} Σ_{j<=k} mean^j / j! is enclosed between integers over 2^bits; a uniform number's first 64 digits
    pick k, unless they touch the enclosure's ends, in which case more digits are drawn and the enclosure is refined.
    """

    def __init__(self, mean: Fraction) -> None:
        self._mean = mean
        self._lows, self._highs = self._enclose(WORD)

    def _enclose(self, bits: int) -> tuple[list[int], list[int]]:
        """Bounds on F(k) · 2^bits for k = 0, 1, ... until 1 - F(k) is below 2^-bits; the last upper bound is 2^bits."""
        numerator, denominator = self._mean.as_integer_ratio()
        guard = bits + 64 + 2 * int(self._mean + 1)
        term_low, term_high = exp_bounds(self._mean, guard)
        low, high, k = term_low, term_high, 0
        lows, highs = [], []
        while True:
            lows.append(low >> (guard - bits))
            highs.append(min(-(-high >> (guard - bits)), 1 << bits))
            k += 1
            term_low = term_low * numerator // (denominator * k)
            term_high = -(-term_high * numerator // (denominator * k))
            # past twice the mean the remaining terms sum to at most twice the next one
            if k > 2 * self._mean and 2 * term_high < 1 << (guard - bits - 1):
                highs[-1] = 1 << bits
                return lows, highs
            low, high = low + term_low, high + term_high

    def draw(self) -> int:
        """One value."""
        digits = word()
        k = bisect.bisect_right(self._highs, digits)
        if k < len(self._lows) and digits < self._lows[k]:
            return k
        return self._settle(digits)

    def _settle(self, digits: int) -> int:
        bits = WORD
        while True:
            digits, bits = (digits << WORD) | word(), bits + WORD
            lows, highs = self._enclose(bits)
            k = bisect.bisect_right(highs, digits)
            if k < len(lows) and digits < lows[k]:
                return k


@lru_cache(maxsize=64)
def poisson_table(mean: Fraction) -> PoissonTable:
    """The table for this mean."""
    return PoissonTable(mean)
