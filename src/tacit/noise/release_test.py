"""Test of released noise against its stated distributions, with an exact false positive rate and
power.

Every number may have a distribution of its own, such as the sums of rounds of different sizes. Four
statistics are compared with their exact null distributions: the sum of the distances from the mean
(`SPREAD`, for discrete Laplace noise the likelihood ratio test of the scale), the sum (`MEAN`), the
number of equal neighbours (`REPETITION`) and the Kolmogorov-Smirnov distance of randomized
probability transforms (`SHAPE`). Sums are convolved by the fast Fourier transform, with an absolute
error of about 10^-15.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache

import numpy as np

from tacit.errors import TacitError, probability, require
from tacit.noise.distribution import Floats, Integers, NoiseDistribution

LOG_FLOOR = -45.0  # of the probabilities that are convolved
LARGEST = 1 << 24  # points of a convolution


class Fault(StrEnum):
    """Deviation of released noise that a test rejects."""

    SPREAD = "spread"
    MEAN = "mean"
    SHAPE = "shape"
    REPETITION = "repetition"


@dataclass(frozen=True)
class NoiseTest:
    """A test of independent integers against one stated distribution each.

    `rate` is the false positive rate of all statistics together.

    Examples
    --------
    >>> from tacit.noise import DiscreteLaplace
    >>> test = NoiseTest((DiscreteLaplace(4),) * 200, 1e-6)
    >>> test.rejected([0] * 200) >= {Fault.SPREAD, Fault.REPETITION}
    True
    >>> test.power((DiscreteLaplace(2),) * 200) > 0.999
    True
    """

    distributions: tuple[NoiseDistribution, ...]
    rate: float

    def __post_init__(self) -> None:
        probability("rate", self.rate)
        size = len(self.distributions)
        require(size >= 2, "number of releases", size, "2 or more to be tested")

    def p_values(self, values: Sequence[int]) -> dict[Fault, float]:
        """The p-value of each statistic."""
        observed = np.asarray(values, dtype=np.int64)
        size, wanted = len(observed), len(self.distributions)
        require(size == wanted, "number of values", size, f"{wanted}, one for each distribution")
        off = observed - self._centres
        return {
            Fault.SPREAD: _two_sided(self._spread, int(np.abs(off).sum())),
            Fault.MEAN: _two_sided(self._sum, int(off.sum())),
            Fault.SHAPE: self._uniformity(observed),
            Fault.REPETITION: self._repeated(observed),
        }

    def rejected(self, values: Sequence[int]) -> set[Fault]:
        """The statistics that reject the values; empty with a probability of at least 1 - `rate`
        if the noise is as stated.
        """
        return {fault for fault, p in self.p_values(values).items() if p < self._each}

    def power(self, actual: Sequence[NoiseDistribution]) -> float:
        """A lower bound on the probability to reject numbers of these distributions.

        It is exact for the best one of `SPREAD`, `MEAN` and disjoint pairs of `REPETITION`; the
        others can only add to it.
        """
        found = [_pairs(actual).at_least(self._most_ties)]
        for fault, stated in ((Fault.SPREAD, self._spread), (Fault.MEAN, self._sum)):
            tables = [
                _centred_table(one, centre, fault is Fault.SPREAD)
                for one, centre in zip(actual, self._centres, strict=True)
            ]
            low, high = stated.region(self._each)
            drawn = _Sum.of(tables)
            found.append(drawn.at_most(low) + drawn.at_least(high))
        return min(1.0, max(found))

    @property
    def detects_repetition(self) -> bool:
        """Whether numbers that are each released twice in a row are rejected with certainty."""
        return self._most_ties <= len(self.distributions) // 2

    @cached_property
    def _most_ties(self) -> int:
        """The equal pairs from which on `REPETITION` rejects, among those from the first number."""
        counts = range(len(self.distributions) // 2 + 1)
        few = (count for count in counts if 2 * self._ties[0].at_least(count) < self._each)
        return next(few, len(counts))

    @property
    def _each(self) -> float:
        return self.rate / len(Fault)

    @cached_property
    def _centres(self) -> Integers:
        return np.array([round(one.mean) for one in self.distributions], dtype=np.int64)

    @cached_property
    def _spread(self) -> _Sum:
        return self._stated(True)

    @cached_property
    def _sum(self) -> _Sum:
        return self._stated(False)

    def _stated(self, size: bool) -> _Sum:
        pairs = zip(self.distributions, self._centres, strict=True)
        return _Sum.of([_centred_table(one, centre, size) for one, centre in pairs])

    @cached_property
    def _ties(self) -> tuple[_Sum, _Sum]:
        """The number of equal pairs among disjoint neighbours, from the first or second number."""
        return _pairs(self.distributions), _pairs(self.distributions[1:])

    def _repeated(self, observed: Integers) -> float:
        same = observed[:-1] == observed[1:]
        tails = [ties.at_least(int(same[n::2].sum())) for n, ties in enumerate(self._ties)]
        return min(1.0, len(tails) * min(tails))

    def _uniformity(self, observed: Integers) -> float:
        from scipy.stats import kstest

        uniform = np.random.default_rng().random(len(observed))
        ranks = [
            _rank(one, int(value), float(u))
            for one, value, u in zip(self.distributions, observed, uniform, strict=True)
        ]
        return float(kstest(ranks, "uniform").pvalue)


@dataclass(frozen=True)
class _Sum:
    """The distribution of a sum of independent integers: P[S = start + i] = masses[i]."""

    start: int
    masses: Floats

    @classmethod
    def of(cls, tables: Iterable[tuple[int, Floats]]) -> _Sum:
        from scipy.fft import irfft, next_fast_len, rfft

        start, length, several = 0, 1, dict[bytes, tuple[Floats, int]]()
        for first, masses in tables:
            start, length = start + first, length + len(masses) - 1
            known, count = several.get(masses.tobytes(), (masses, 0))
            several[masses.tobytes()] = (known, count + 1)
        if length > LARGEST:
            raise TacitError(
                f"a sum of the noise has {length:,} possible values: must be at most {LARGEST:,}. "
                "Use fewer levels or releases."
            )
        size = next_fast_len(length, real=True)
        spectrum = np.ones(size // 2 + 1, dtype=complex)
        for masses, count in several.values():
            spectrum *= rfft(masses, size) ** count
        return cls(start, irfft(spectrum, size)[:length].clip(min=0.0))

    @cached_property
    def _below(self) -> Floats:
        return np.cumsum(self.masses)

    @cached_property
    def _above(self) -> Floats:
        return np.cumsum(self.masses[::-1])[::-1]

    def at_most(self, value: int) -> float:
        index = min(value - self.start, len(self.masses) - 1)
        return float(self._below[index]) if index >= 0 else 0.0

    def at_least(self, value: int) -> float:
        index = max(value - self.start, 0)
        return float(self._above[index]) if index < len(self.masses) else 0.0

    def region(self, rate: float) -> tuple[int, int]:
        """The values up to which and from which a two-sided test at this rate rejects."""
        low = int(np.searchsorted(self._below, rate / 2)) - 1
        high = len(self.masses) - int(np.searchsorted(self._above[::-1], rate / 2)) + 1
        return self.start + low, self.start + int(high) - 1


def _pairs(distributions: Sequence[NoiseDistribution]) -> _Sum:
    """The number of equal pairs among the first two numbers, the next two and so on."""
    chances = map(_collision_probability, distributions[::2], distributions[1::2])
    return _Sum.of((0, np.array([1 - chance, chance])) for chance in chances)


def _two_sided(stated: _Sum, value: int) -> float:
    return min(1.0, 2 * min(stated.at_most(value), stated.at_least(value)))


@lru_cache(maxsize=512)
def _table(distribution: NoiseDistribution) -> tuple[int, Floats]:
    """The first point of a distribution and its probabilities."""
    low, high = distribution.window(LOG_FLOOR)
    return low, distribution.pmf(np.arange(low, high + 1))


@lru_cache(maxsize=512)
def _centred_table(distribution: NoiseDistribution, centre: int, size: bool) -> tuple[int, Floats]:
    """The table of X - centre, or of its magnitude."""
    start, masses = _table(distribution)
    if not size:
        return int(start - centre), masses
    points = np.abs(np.arange(len(masses)) + start - centre)
    sizes: Floats = np.bincount(points, weights=masses).astype(float)
    return 0, sizes


@lru_cache(maxsize=512)
def _collision_probability(distribution: NoiseDistribution, other: NoiseDistribution) -> float:
    start, masses = _table(distribution)
    return min(1.0, float(masses @ other.pmf(start + np.arange(len(masses)))))


@lru_cache(maxsize=512)
def _cumulated(distribution: NoiseDistribution) -> Floats:
    return np.cumsum(_table(distribution)[1])


def _rank(distribution: NoiseDistribution, value: int, uniform: float) -> float:
    """F(value - 1) + u · P[X = value], which is uniform if X has this distribution."""
    start, masses = _table(distribution)
    if not 0 <= value - start < len(masses):
        return 0.0 if value < start else 1.0
    below = float(_cumulated(distribution)[value - start])
    return below - (1 - uniform) * float(masses[value - start])
