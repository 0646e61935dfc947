"""Laws given by a table of probabilities, sums of independent laws, and sums modulo m.

Tables are cut where a probability falls below the smallest positive double, so nothing that can be
represented is lost. Sums are formed term by term while that is affordable: then every entry keeps
its relative precision. Longer ones go through the fast Fourier transform, with an absolute error of
about 10^-16 per entry.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.signal import fftconvolve

from tacit.checks import Number, TacitError, integer, positive, probability
from tacit.noise.law import LOG_TINY, Floats, NoiseLaw, refuse_power

DIRECT_LIMIT = 200_000_000  # multiplications; about 0.2 s
LARGEST_WINDOW = 50_000_000
PRECISE_FROM = 1e-290  # below about this, doubles and products of doubles lose digits


@dataclass(frozen=True, eq=False)
class Table(NoiseLaw):
    """P[X = start + i] = probabilities[i].

    >>> two_dice = convolve(Table.of(1, np.full(6, 1 / 6)), Table.of(1, np.full(6, 1 / 6)))
    >>> two_dice.start, round(float(two_dice.pmf(7)), 6)
    (2, 0.166667)
    """

    start: int
    probabilities: Floats
    concave: bool = True

    @classmethod
    def of(cls, start: int, probabilities: Floats) -> Table:
        """A table from probabilities that already sum to one, up to rounding."""
        try:
            values = np.array(probabilities, dtype=float)
            first = operator.index(start)
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
                f"the probabilities sum to {float(values.sum())!r}; a law needs a non-empty list "
                "of non-negative numbers that sum to 1"
            )
        values.flags.writeable = False
        gapless = bool(np.all(np.diff(np.flatnonzero(values > 0)) == 1))
        curvature = np.diff(np.log(values[values > PRECISE_FROM]), n=2)
        return cls(first, values, gapless and bool(np.all(curvature <= 1e-9)))

    def __repr__(self) -> str:
        first, last = (int(end) for end in self.support)
        return f"Table({first}..{last})"

    @property
    def log_concave(self) -> bool:  # type: ignore[override]
        """Whether the logarithms of the entries are concave, up to rounding."""
        return self.concave

    @property
    def symmetric(self) -> bool:
        """Whether the table reads the same in both directions."""
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
        """ln of the entry, -inf outside."""
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

    def tail(self, t: int) -> float:
        """P[X > t]: a table may have gaps, so all of it is summed."""
        cut = max(0, t + 1 - self.start)
        return (
            float(self.probabilities[cut:].sum())
            if t >= self.mean
            else 1.0 - float(self.probabilities[:cut].sum())
        )

    def cdf(self, t: int) -> float:
        """P[X <= t]."""
        cut = max(0, t + 1 - self.start)
        return (
            float(self.probabilities[:cut].sum())
            if t < self.mean
            else 1.0 - float(self.probabilities[cut:].sum())
        )

    def window(self, log_floor: float = LOG_TINY) -> tuple[int, int]:
        """From the first to the last entry that is not below e^`log_floor`."""
        with np.errstate(divide="ignore"):
            kept = np.flatnonzero(np.log(self.probabilities) >= log_floor)
        return (
            (self.start + int(kept[0]), self.start + int(kept[-1]))
            if len(kept)
            else (round(self.mean), round(self.mean))
        )

    def power(self, times: Number) -> NoiseLaw:
        """The sum of whole copies."""
        if positive("share fraction", times).denominator != 1:
            raise refuse_power(
                self,
                times,
                "a table is summed in whole copies; use a law that divides, such as Skellam",
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
            "a table of rounded probabilities cannot be drawn from exactly: draw the laws that it "
            "was summed from, and add them"
        )


def entries(law: NoiseLaw) -> tuple[int, Floats]:
    """The first point and the probabilities of a law, down to the smallest positive double."""
    if isinstance(law, Table):
        return law.start, law.probabilities
    first, last = law.window()
    if last - first > LARGEST_WINDOW:
        raise TacitError(
            f"{law!r} spreads over {last - first:,} integers, more than a table of "
            f"{LARGEST_WINDOW:,}: use a "
            "smaller precision, or a family that is closed under sums (Skellam, binomial)"
        )
    return first, law.pmf(np.arange(first, last + 1))


def convolve(one: NoiseLaw, other: NoiseLaw) -> Table:
    """The law of the sum of two independent variables."""
    (start, p), (offset, q) = entries(one), entries(other)
    return Table.of(start + offset, product(p, q))


def convolution_power(law: NoiseLaw, copies: int) -> tuple[int, Floats]:
    """The law of the sum of `copies` independent variables, by repeated squaring: first point and
    probabilities.
    """
    start, base = entries(law)
    result_start, result = 0, np.ones(1)
    while True:
        if copies & 1:
            result_start, result = result_start + start, product(result, base)
        copies >>= 1
        if not copies:
            return result_start, result
        start, base = 2 * start, product(base, base)


def modular_pmf(law: NoiseLaw, modulus: int) -> Floats:
    """P[X mod m = j] for j = 0..m-1: what is left of the noise when only a sum modulo m is opened.

    >>> np.round(modular_pmf(Table.of(-1, np.array([0.25, 0.5, 0.25])), 2), 3)
    array([0.5, 0.5])
    """
    m = integer("modulus", modulus, at_least=2, remedy="a sum is opened modulo 2 or more")
    start, p = entries(law)
    result: Floats = np.bincount((start + np.arange(len(p))) % m, weights=p, minlength=m)  # type: ignore[assignment]
    return result


def wrap_probability(law: NoiseLaw, largest_sum: int, modulus: int) -> float:
    """The largest probability, over true sums in 0..largest_sum, that sum + noise is read wrongly
    after opening it modulo m.

    Of the m - largest_sum - 1 spare residues, τ = (m - largest_sum - 1) // 2 on either side are
    read rightly: a sum s is misread if the noise exceeds largest_sum + τ - s or falls below -τ - s.
    For a law with one peak, within τ of 0, that is likeliest at an end; for a peak further out
    P[|noise| > τ] is returned, which is never too small.

    >>> from tacit.noise import DiscreteLaplace
    >>> round(wrap_probability(DiscreteLaplace(1), 10, 31), 6)
    1.2e-05
    """
    top = integer("largest sum", largest_sum, at_least=0)
    m = integer("modulus", modulus, at_least=1)
    if m <= top:
        raise TacitError(
            f"modulus {m} is too small for sums up to {top}: use at least "
            f"{top + 2 * _reach(law, 1e-9) + 1}, "
            "which also holds the noise but for a chance of 1e-9"
        )
    spare = (m - top - 1) // 2
    above, below = law.tail(spare), law.cdf(-spare - 1)
    if abs(law.mean) > spare:
        return min(1.0, above + below)
    return max(above + law.cdf(-spare - top - 1), below + law.tail(spare + top))


def check_modulus(law: NoiseLaw, largest_sum: int, modulus: int, failure: float) -> float:
    """The wrap-around probability, refused if it exceeds `failure`; the error names a modulus that
    will do.
    """
    accepted = float(
        probability(
            "failure", failure, "it is the chance of a misread sum that you accept, such as 1e-9"
        )
    )
    chance = wrap_probability(law, largest_sum, modulus)
    if chance > accepted:
        raise TacitError(
            f"modulus {modulus} is too small for the noise: a sum up to {largest_sum} is misread "
            "with probability "
            f"{chance:.2g}, more than {accepted:g}; use at least "
            f"{largest_sum + 2 * _reach(law, accepted) + 1}"
        )
    return chance


def _reach(law: NoiseLaw, failure: float) -> int:
    """The least τ with P[|X| > τ] <= failure: about 0, where a modular sum is read, not about the
    mean.
    """
    if law.symmetric and law.mean == 0:
        return law.bound(failure)
    return law._least(lambda t: t >= 0 and law.tail(t) + law.cdf(-t - 1) <= failure, 0)


def product(p: Floats, q: Floats) -> Floats:
    """The probabilities of a sum, from those of its two independent parts."""
    if len(p) * len(q) <= DIRECT_LIMIT:
        return np.convolve(p, q)
    if len(p) + len(q) > LARGEST_WINDOW:
        raise TacitError(
            f"a sum over {len(p) + len(q):,} integers exceeds the largest table of "
            f"{LARGEST_WINDOW:,}: use a smaller "
            "precision, or a family that is closed under sums (Skellam, binomial)"
        )
    result: Floats = fftconvolve(p, q).clip(min=0.0)
    return result
