"""Distributions given by a table of probabilities, and sums of independent variables, also modulo
m.

Tables are cut where a probability falls below the smallest positive double, so no representable
mass is lost. Short sums are convolved directly, which preserves the relative precision of every
entry. Longer ones use the fast Fourier transform, with an absolute error of about 10^-16 per entry.
Tables of rounded probabilities have no exact sampler.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.errors import Number, TacitError, integer, positive
from tacit.noise.binomial import Binomial
from tacit.noise.distribution import LOG_TINY, ROUNDING, Floats, NoiseDistribution, no_power

DIRECT_LIMIT = 200_000_000  # multiplications; about 0.2 s
LARGEST_WINDOW = 50_000_000
SLOPE = 1e-9  # rounding error of a difference of logarithms
PRECISE_FROM = 1e-290  # below, doubles and their products lose digits


@dataclass(frozen=True, eq=False)
class Table(NoiseDistribution):
    """P[X = start + i] = probabilities[i].

    Parameters
    ----------
    start : int
        The smallest value of the noise.
    probabilities : array
        The probabilities of start, start + 1, ….
    concave : bool
        False to treat the distribution as not log-concave. Otherwise that is computed.

    Raises
    ------
    TacitError
        If the probabilities are negative or do not sum to one, up to rounding.

    Examples
    --------
    >>> two_dice = convolve(Table.of(1, np.full(6, 1 / 6)), Table.of(1, np.full(6, 1 / 6)))
    >>> two_dice.start, round(float(two_dice.pmf(7)), 6)
    (2, 0.166667)
    """

    start: int
    probabilities: Floats
    concave: bool = True
    divisible = False
    drawable = False

    def __post_init__(self) -> None:
        try:
            values = np.array(self.probabilities, dtype=float)
            first = operator.index(self.start)
        except (TypeError, ValueError):
            raise TacitError(
                "a table needs a whole number to start at and a list of numbers that sum to 1"
            ) from None
        if (
            values.ndim != 1
            or not len(values)
            or np.any(values < 0)
            or not abs(values.sum() - 1) < 1e-9
        ):
            raise TacitError(
                f"the probabilities sum to {float(values.sum())!r}; a distribution needs a "
                "non-empty list of non-negative numbers that sum to 1"
            )
        values.flags.writeable = False
        object.__setattr__(self, "start", first)
        object.__setattr__(self, "probabilities", values)
        object.__setattr__(self, "concave", self.concave and _log_concave(values))

    @classmethod
    def of(cls, start: int, probabilities: Floats) -> Table:
        """A table from probabilities that sum to one, up to rounding."""
        return cls(start, probabilities)

    def __repr__(self) -> str:
        first, last = (int(end) for end in self.support)
        return f"Table({first}..{last})"

    @property
    def log_concave(self) -> bool:  # type: ignore[override]
        """Whether the logarithms of the entries are concave, up to rounding."""
        return self.concave

    @property
    def symmetric(self) -> bool:
        """Whether the reversed table is the same, up to rounding."""
        return bool(
            np.allclose(self.probabilities, self.probabilities[::-1], rtol=1e-9, atol=PRECISE_FROM)
        )

    @property
    def support(self) -> tuple[float, float]:
        """The ends of the table."""
        return float(self.start), float(self.start + len(self.probabilities) - 1)

    @property
    def mean(self) -> float:
        """Σ k P[X = k]."""
        return self.start + float(np.arange(len(self.probabilities)) @ self.probabilities)

    @property
    def variance(self) -> float:
        """Σ (k - mean)² P[X = k]."""
        offsets = self.start + np.arange(len(self.probabilities)) - self.mean
        return float(offsets**2 @ self.probabilities)

    def log_pmf(self, k: npt.ArrayLike) -> Floats:
        """ln of the entry; -inf outside the table."""
        index = np.asarray(k).astype(np.int64) - self.start
        inside = (index >= 0) & (index < len(self.probabilities))
        with np.errstate(divide="ignore"):
            return np.where(inside, np.log(self.probabilities[np.where(inside, index, 0)]), -np.inf)

    def log_mgf(self, s: npt.ArrayLike) -> Floats:
        """ln Σ e^{sk} P[X = k]."""
        s = np.asarray(s, dtype=float)
        k = self.start + np.arange(len(self.probabilities))
        with np.errstate(divide="ignore"):
            exponents = s[..., None] * k + np.log(self.probabilities)
        peak = exponents.max(axis=-1, keepdims=True)
        result: Floats = np.log(np.exp(exponents - peak).sum(axis=-1)) + peak[..., 0]
        return result

    def _beyond(self, t: int, sign: int) -> float:
        """Sums the whole tail: a table may have gaps."""
        above, below = max(0, t + 1 - self.start), max(0, -t - self.start)
        return float((self.probabilities[above:] if sign > 0 else self.probabilities[:below]).sum())

    def window(self, log_floor: float = LOG_TINY) -> tuple[int, int]:
        """From the first to the last entry of at least e^`log_floor`."""
        with np.errstate(divide="ignore"):
            kept = np.flatnonzero(np.log(self.probabilities) >= log_floor)
        if len(kept):
            return (self.start + int(kept[0]), self.start + int(kept[-1]))
        return (round(self.mean), round(self.mean))

    def cover(self, log_floor: float = LOG_TINY) -> tuple[int, int, float]:  # noqa: ARG002
        """The whole table: an edge search would stop at a gap."""
        first, last = (int(end) for end in self.support)
        missing = 1 - math.fsum(self.probabilities)
        return first, last, missing if missing > ROUNDING else 0.0

    def power(self, times: Number) -> NoiseDistribution:
        """The sum of whole copies; fractions raise TacitError."""
        if positive("share fraction", times).denominator != 1:
            raise no_power(
                self,
                times,
                "a table has no shares; use a divisible distribution, such as Skellam",
            )
        return Table.of(*convolution_power(self, integer("copies", times, at_least=1)))

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...] | None = None) -> Any:
        """Inverts the cumulative sum."""
        cumulative = np.cumsum(self.probabilities)
        return self.start + np.searchsorted(
            cumulative, rng.random(size) * cumulative[-1], side="right"
        )

    def _draw_one(self) -> int:
        raise TacitError(
            "a table of rounded probabilities has no exact sampler: draw from the distributions "
            "that it sums, and add"
        )


def _log_concave(values: Floats) -> bool:
    """Whether the logarithms of entries are concave, up to rounding, without a gap or a hole.

    No slope may exceed any before it: over many points even tiny second differences bend a table.
    """
    held, precise = (np.flatnonzero(values > least) for least in (0.0, PRECISE_FROM))
    gapless = all(bool(np.all(np.diff(places) == 1)) for places in (held, precise))
    slopes = np.diff(np.log(values[precise]))
    return gapless and bool(np.all(slopes <= np.minimum.accumulate(slopes) + SLOPE))


def entries(distribution: NoiseDistribution) -> tuple[int, Floats]:
    """The first point and the probabilities of a distribution, down to the smallest positive
    double.
    """
    if isinstance(distribution, Table):
        return distribution.start, distribution.probabilities
    first, last = distribution.window()
    if last - first > LARGEST_WINDOW:
        raise TacitError(
            f"{distribution!r} spreads over {last - first:,} integers, more than a table of "
            f"{LARGEST_WINDOW:,}: use a "
            "smaller precision, or a family that is closed under sums (Skellam, binomial)"
        )
    return first, distribution.pmf(np.arange(first, last + 1))


def convolve(first: NoiseDistribution, second: NoiseDistribution) -> Table:
    """The distribution of the sum of two independent variables."""
    (start, p), (offset, q) = entries(first), entries(second)
    return Table.of(start + offset, product(p, q))


def convolution_power(distribution: NoiseDistribution, copies: int) -> tuple[int, Floats]:
    """The distribution of the sum of `copies` independent variables, by repeated squaring: first
    point and probabilities.
    """
    start, base = entries(distribution)
    result_start, result = 0, np.ones(1)
    while True:
        if copies & 1:
            result_start, result = result_start + start, product(result, base)
        copies >>= 1
        if not copies:
            return result_start, result
        start, base = 2 * start, product(base, base)


def modular_pmf(distribution: NoiseDistribution, modulus: int) -> Floats:
    """P[X mod m = j] for j = 0..m-1: the noise in a sum that is released modulo m.

    >>> np.round(modular_pmf(Table.of(-1, np.array([0.25, 0.5, 0.25])), 2), 3)
    array([0.5, 0.5])
    """
    m = integer("modulus", modulus, at_least=2, remedy="the modulus of a sum is at least 2")
    start, p = entries(distribution)
    result: Floats = np.bincount((start + np.arange(len(p))) % m, weights=p, minlength=m)  # type: ignore[assignment]
    return result


def sum_of_bits(*parts: tuple[int, float]) -> Table:
    """The number of ones among independent bits, `count` with probability `bias` for each part.

    >>> sum_of_bits((1, 0.5), (2, 0.5)).probabilities.round(3).tolist()
    [0.125, 0.375, 0.375, 0.125]
    """
    found = np.ones(1)
    for count, bias in parts:
        if count:
            found = product(found, Binomial(count, bias).pmf(np.arange(count + 1)))
    return Table.of(0, found / found.sum())


def product(p: Floats, q: Floats) -> Floats:
    """The probabilities of a sum of two independent variables, from theirs."""
    if len(p) * len(q) <= DIRECT_LIMIT:
        return np.convolve(p, q)
    if len(p) + len(q) > LARGEST_WINDOW:
        raise TacitError(
            f"a sum over {len(p) + len(q):,} integers exceeds the largest table of "
            f"{LARGEST_WINDOW:,}: use a smaller "
            "precision, or a family that is closed under sums (Skellam, binomial)"
        )
    length = len(p) + len(q) - 1
    from scipy.fft import irfft, next_fast_len, rfft  # slow to import

    size = next_fast_len(length, real=True)
    result: Floats = irfft(rfft(p, size) * rfft(q, size), size)[:length].clip(min=0.0)
    return result
