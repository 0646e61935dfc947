"""What every integer noise law can do.

A law knows its probabilities (stable far into the tails), sums them exactly where a tail or a
quantile is asked for, splits into shares that add up to it, samples quickly for simulation, and
draws exactly for a device. The two ways of drawing never mix: `sample` takes the caller's NumPy
generator and may round in the last bit of a float; `draw` uses integer arithmetic and the operating
system's cryptographic source only.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields
from fractions import Fraction
from numbers import Integral, Rational
from typing import TYPE_CHECKING, Any, cast, overload

import numpy as np
import numpy.typing as npt

from tacit.checks import Number, TacitError, integer, positive, probability

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
LOG_TINY = -745.0  # below this e^x is zero in double precision


class NoiseLaw(ABC):
    """A probability law on the integers; subclasses are frozen values."""

    log_concave: bool = True

    @property
    @abstractmethod
    def mean(self) -> float:
        """The expected value."""

    if (
        TYPE_CHECKING
    ):  # a property of most laws, a field of Skellam, where it may be an exact fraction

        @property
        def variance(self) -> float:
            """The variance."""

    @property
    def std(self) -> float:
        """The standard deviation."""
        return math.sqrt(float(self.variance))

    @property
    def symmetric(self) -> bool:
        """Whether X and -X have the same law, up to a shift by the mean."""
        return True

    @property
    def support(self) -> tuple[float, float]:
        """The least and the largest value with positive probability; infinite where there is
        none.
        """
        return -math.inf, math.inf

    @abstractmethod
    def log_pmf(self, k: npt.ArrayLike) -> Floats:
        """ln P[X = k], elementwise; -inf outside the support."""

    @abstractmethod
    def log_mgf(self, s: npt.ArrayLike) -> Floats:
        """ln E[e^{sX}], elementwise; inf where it does not exist."""

    @abstractmethod
    def power(self, times: Number) -> NoiseLaw:
        """The law of the sum of `times` independent copies; for a fraction, of a part of one."""

    @abstractmethod
    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...] | None = None) -> Any:
        """Pseudorandom values for simulation, from the caller's generator."""

    @abstractmethod
    def _draw_one(self) -> int:
        """One exact draw."""

    def __getstate__(self) -> dict[str, Any]:
        """The parameters alone: what a law has worked out for itself it works out again where it is
        unpickled.
        """
        return {field.name: getattr(self, field.name) for field in fields(cast(Any, self))}

    def pmf(self, k: npt.ArrayLike) -> Floats:
        """P[X = k], elementwise."""
        return np.exp(self.log_pmf(k))

    def share(self, n: int) -> NoiseLaw:
        """The law of one of `n` independent shares that add up to this law."""
        count = integer("shares", n, at_least=1, remedy="a law is split among one or more people")
        return self.power(Fraction(1, count))

    @overload
    def draw(self) -> int: ...

    @overload
    def draw(self, size: int) -> Integers: ...

    def draw(self, size: int | None = None) -> int | Integers:
        """One exact value, or `size` of them, from the operating system's cryptographic source; no
        floats.
        """
        if size is None:
            return self._draw_one()
        return self._draw_many(integer("size", size, at_least=0))

    def _draw_many(self, size: int) -> Integers:
        return np.fromiter((self._draw_one() for _ in range(size)), dtype=np.int64, count=size)

    def tail(self, t: int) -> float:
        """P[X > t], by summation; accurate relative to itself however far out `t` lies.

        Cost grows with the standard deviation.
        """
        return self._beyond(t, 1) if t >= self.mean else max(0.0, 1.0 - self._beyond(-t - 1, -1))

    def cdf(self, t: int) -> float:
        """P[X <= t], by summation."""
        return self._beyond(-t - 1, -1) if t < self.mean else max(0.0, 1.0 - self._beyond(t, 1))

    def quantile(self, p: float) -> int:
        """The least k with P[X <= k] >= p. For p beyond 1 - 1e-16 use `tail_quantile`."""
        level = _level("quantile level", p)
        if level >= 0.5:
            return self.tail_quantile(1.0 - level)
        below = math.nextafter(level, 0.0)
        return -self._least(lambda t: self._at_most(t, -1, below), -round(self.mean))

    def tail_quantile(self, p: float) -> int:
        """The least k with P[X > k] <= p."""
        level = _level("tail level", p)
        return self._least(lambda t: self._at_most(t, 1, level), round(self.mean))

    def bound(self, p: float) -> int:
        """The least t with P[|X - mean| > t] <= p, the mean rounded to the nearest integer."""
        level = _level("failure probability", p)
        centre = round(self.mean)
        if self.symmetric and self.mean == centre:
            return self._least(lambda t: t >= 0 and self._at_most(centre + t, 1, level / 2), 0)
        return self._least(
            lambda t: t >= 0 and self.tail(centre + t) + self.cdf(centre - t - 1) <= level, 0
        )

    def window(self, log_floor: float = LOG_TINY) -> tuple[int, int]:
        """The least interval about the mean outside which every ln P[X = k] is below
        `log_floor`.
        """
        low, high = self.support
        centre = int(min(max(round(self.mean), low), high))
        right = self._edge(centre, 1, high, log_floor)
        left = (
            2 * centre - right
            if self.symmetric and self.mean == centre
            else self._edge(centre, -1, low, log_floor)
        )
        return left, right

    def _edge(self, centre: int, sign: int, end: float, log_floor: float) -> int:
        """The outermost point in one direction that reaches `log_floor`: a search by 32 points at a
        time.
        """
        furthest = sign * (end - centre)
        low, high = 0, max(1, math.ceil(self.std)) << 5
        while high < furthest and self.log_pmf(centre + sign * high) >= log_floor:
            low, high = high, high << 5
        high = int(min(high, furthest + 1))  # `low` reaches the floor, `high` does not
        while high - low > 1:
            probes = np.unique(np.linspace(low, high, 34).astype(np.int64))[1:-1]
            reached = int(np.count_nonzero(self.log_pmf(centre + sign * probes) >= log_floor))
            low, high = (
                (int(probes[reached - 1]) if reached else low),
                (int(probes[reached]) if reached < len(probes) else high),
            )
        return centre + sign * low

    def _beyond(self, t: int, sign: int) -> float:
        """Sum of P[X = sign · j] over j > t, until what remains is below a part in 10^17."""
        end = sign * self.support[(sign + 1) // 2]
        total, start, size = 0.0, t + 1, max(256, math.ceil(self.std))
        while start <= end:
            stop = int(min(start + size, end + 1))
            terms = self.pmf(sign * np.arange(start, stop))
            total += float(terms.sum())
            last = float(terms[-1])
            if sign * self.mean <= stop and last * self._remaining(terms) <= 1e-17 * total:
                break
            start, size = stop, size * 2
        return min(total, 1.0)

    def _remaining(self, terms: Floats) -> float:
        """A bound on (all after the last term) / (the last term): ratios fall outward, as the law
        is log-concave.
        """
        if len(terms) < 2 or terms[-2] == 0:
            return 0.0
        ratio = float(terms[-1] / terms[-2])
        return ratio / (1 - ratio) if ratio < 1 else math.inf

    def _least(self, small_enough: Callable[[int], bool], start: int) -> int:
        """The least t at which a condition that stays true once it is true holds."""
        step = max(1, math.ceil(self.std))
        low = high = start
        while not small_enough(high):
            low, high, step = high, high + step, 2 * step
        while low == high or small_enough(low):
            low, high, step = low - step, low, 2 * step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if small_enough(middle) else (middle, high)
        return high

    def _at_most(self, t: int, sign: int, level: float) -> bool:
        """Whether the sum of P[X = sign · j] over j > t is at most `level`: by quick bounds where
        they tell.
        """
        if self.log_concave and self.std > COARSE and t > sign * self.mean:
            low, high = tail_bounds(self, t, sign)
            if high <= level or low > level:
                return high <= level
        return (self.tail(t) if sign > 0 else self.cdf(-t - 1)) <= level


def plain(value: Number) -> Number:
    """A checked parameter as a Python number: NumPy's integers would wrap around in exact
    arithmetic.
    """
    if type(value) in (int, float, Fraction):
        return value
    if isinstance(value, Integral):
        return int(value)
    return (
        Fraction(int(value.numerator), int(value.denominator))
        if isinstance(value, Rational)
        else float(value)
    )


def _level(name: str, p: float) -> float:
    """A probability that is still one as a double."""
    level = float(probability(name, p))
    if level in (0.0, 1.0):
        raise TacitError(
            f"{name} is {level:g} in double precision; it must stay between 5e-324 and 1 - 1e-16"
        )
    return level


COARSE = 4096.0  # standard deviation from which tails are bounded on a grid before they are summed


def tail_bounds(law: NoiseLaw, t: int, sign: int) -> tuple[float, float]:
    """Lower and upper bounds on the sum of P[X = sign · j] over j > t, for a log-concave law and t
    beyond its mean.

    On a grid of 2,000 points per standard deviation, see `chord_sums`; relative distance about
    10^-7. Cost does not grow.
    """
    step = max(1, int(law.std // 2000))
    end = sign * law.support[(sign + 1) // 2]
    if t >= end:
        return 0.0, 0.0
    points = grid(t, int(min(t + 12 * law.std, end)), step)
    log_p = law.log_pmf(sign * points)
    low, high = chord_sums(points, log_p)
    slope = float(log_p[-2] - log_p[-3]) / float(points[-2] - points[-3])
    rest = math.exp(float(log_p[-2]) + slope) / -math.expm1(slope) if points[-2] < end else 0.0
    return float(low.sum()), float(high.sum()) + rest


def grid(first: int, last: int, step: int) -> Integers:
    """Points from `first` to `last`, `step` apart (the last block may be shorter), and one outside
    each end.
    """
    inner = np.arange(first, last + step, step, dtype=np.int64).clip(max=max(last, first + 1))
    return np.concatenate([[first - step], inner, [inner[-1] + step]])


def chord_sums(points: Integers, log_p: Floats) -> tuple[Floats, Floats]:
    """Bounds on the sum of e^{f(k)} over each (points[i], points[i+1]], for a concave f known at
    the points.

    The first and the last block only serve their neighbours and are not summed. Between two points
    a concave f lies above its chord and below the chords of the neighbouring blocks, extended. The
    first gives the lower bound, a geometric series. The second exceeds it at most by the factor
    e^gap, where with chord slopes a >= b >= c of three neighbouring blocks and h the length of the
    middle one, gap = h (a-b)(b-c) / (a-c): the height at which the outer chords meet.
    """
    lengths = np.diff(points)
    with np.errstate(invalid="ignore"):
        slopes = np.diff(log_p) / lengths
    before, after = (
        (slopes[:-2] - slopes[1:-1]).clip(min=0.0),
        (slopes[1:-1] - slopes[2:]).clip(min=0.0),
    )
    slope, length = slopes[1:-1], lengths[1:-1]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        series = np.where(
            np.abs(slope) * length < 1e-9,
            length * np.exp(slope * (length + 1) / 2),
            np.exp(slope) * np.expm1(slope * length) / np.expm1(slope),
        )
        gap = length / (1 / before + 1 / after)
    single = length == 1
    low = np.where(single, np.exp(log_p[2:-1]), np.exp(log_p[1:-2]) * series)
    return low, np.where(single, low, low * np.exp(gap))


def refuse_power(law: NoiseLaw, times: Number, remedy: str) -> TacitError:
    """The error for a law that does not divide that way."""
    positive("share fraction", times)
    return TacitError(f"{law!r} has no convolution power {Fraction(times)}: {remedy}")
