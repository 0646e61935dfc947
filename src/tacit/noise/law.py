"""What every integer noise law can do.

A law knows its probabilities (stable far into the tails), sums them exactly where a tail or a
quantile is asked for, splits into shares that add up to it, samples quickly for simulation, and
draws exactly for a device. The two ways of drawing never mix: `sample` takes the caller's NumPy
generator and may round in the last bit of a float; `draw` uses integer arithmetic and the operating
system's cryptographic source only.

Whatever another package needs of a law is a method of it, with a default that is safe for any law.
Eight members make one (`mean`, `variance`, `log_pmf`, `log_mgf`, `power`, `sample`, `_draw_one`,
and `of_std` to be calibrated); it is known by its class alone, and needs no registration.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import fields
from fractions import Fraction
from numbers import Integral, Rational
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast, overload

import numpy as np
import numpy.typing as npt

from tacit.errors import Number, TacitError, integer, positive, probability
from tacit.noise.cumulants import Cumulants, numeric_cumulants
from tacit.noise.wrapping import wrap_probability

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
LOG_TINY = -745.0  # below this e^x is zero in double precision
ROUNDING = 1e-12  # relative rounding error allowed for in double precision sums
STORABLE: dict[str, type] = {}  # every law, and what else was registered, by module:qualname


def stored_name(law: type) -> str:
    """What a class is called in stored data: module:qualname."""
    return f"{law.__module__}:{law.__qualname__}"


class NoiseLaw(ABC):
    """A probability law on the integers; subclasses are frozen dataclasses.

    `kind` is the name of the family; unless a class says otherwise, its own name in small letters.
    `log_concave`: whether ln P is concave, which much rests on; a law that does not say so is
    taken not to be. `divisible`: whether the sum of n `nearby_share(n)` has this law exactly.
    `sum_tells_all`: whether, for independent copies all shifted alike, the ratio of likelihoods
    depends on their sum only. `mgf_radius`: the |s| up to which E[e^{sX}] exists; finite for laws
    with exponential tails.
    """

    kinds: ClassVar[dict[str, type[NoiseLaw]]] = {}
    kind: ClassVar[str]
    continuous: ClassVar[Literal[False]] = False
    divisible: ClassVar[bool] = True
    sum_tells_all: ClassVar[bool] = False
    log_concave: bool = False
    mgf_radius: float = math.inf

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kind" not in vars(cls):
            cls.kind = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()
        NoiseLaw.kinds.setdefault(cls.kind, cls)  # the first of a name keeps it
        STORABLE[stored_name(cls)] = cls

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

    @classmethod
    def of_std(cls, std: float) -> Self:  # noqa: ARG003
        """The law of this kind with this standard deviation, or as near to it as the kind has one;
        more noise never reveals more.
        """
        raise TacitError(
            f"{cls.kind} laws are not told apart by their standard deviation alone: give the "
            "parameters, or use a kind with one parameter (discrete-laplace, skellam)"
        )

    @classmethod
    def family(cls, std: float) -> tuple[Callable[[float], Self], float]:
        """What calibration searches: the laws of this kind by their own parameter, which more
        noise raises, and its value near this standard deviation.
        """
        return cls.of_std, std

    @classmethod
    def of_pure_loss(cls, epsilon: Number, l1: int) -> Self | None:  # noqa: ARG003
        """The least noise whose independent copies, added to integers that move by `l1` in all,
        lose at most ε; None where no closed form is known.
        """
        return None

    def scaled(self, factor: float) -> NoiseLaw:
        """The same kind of noise with its standard deviation multiplied."""
        return self.of_std(self.std * factor)

    def sum_of_shares(self, n: int) -> NoiseLaw:
        """The law of the sum of `n` independent copies, or a law within `closeness(n)` of it."""
        return self.power(n)

    def closeness(self, n: int) -> float:  # noqa: ARG002
        """ψ: a bound on |ln ratio| at every point between the sum of `n` independent copies and
        `sum_of_shares(n)`.
        """
        return 0.0

    def nearby_share(self, n: int) -> NoiseLaw:
        """The law of one of `n` shares whose `sum_of_shares(n)` is this law."""
        return self.share(n)

    def cumulants(self) -> Cumulants:
        """s -> (K, K', K''), K(s) = ln E[e^{s(X - mean)}] or a bound above it; see
        `tacit.noise.cumulants`.
        """
        return numeric_cumulants(self)

    @property
    def largest_shift_is_worst(self) -> bool:
        """Whether a larger shift of this law is always the more revealing one; `tacit.privacy.loss`
        proves when.
        """
        return self.log_concave

    def pure_loss(self, shift: Number) -> float:  # noqa: ARG002
        """The supremum over k of |ln P(k)/P(k + shift)|; inf where it is unbounded or not known."""
        return math.inf

    def loses_at_most(self, epsilon: Number, shift: Number, times: int = 1) -> bool:
        """Whether so many sums that move by `shift` lose at most ε together, without exception."""
        return times * self.pure_loss(shift) <= epsilon

    def concentration(self, l2: float) -> float | None:  # noqa: ARG002
        """A proven ρ of zero-concentrated privacy, where independent copies are added to integers
        that move by `l2` in all; None where none is known.
        """
        return None

    def renyi_bound(self, order: int, l2: float, dimension: int) -> float | None:  # noqa: ARG002
        """A proven Rényi divergence at a whole order, where independent copies are added to
        `dimension` integers that move by `l2` in all; None where none is known.
        """
        return None

    def distance_from_gaussian(self) -> float:
        """A bound on the total variation distance between this law, less its mean, and
        N(0, variance) rounded to integers; 1 says nothing.

        Summed term by term against φ(k) (1 + (z² - 1) / 24σ²), which differs from the rounded
        Gaussian by less than 0.01 / σ⁴ in all.
        """
        std, centre = self.std, round(self.mean)
        if std > WIDEST_SUMMED:
            raise TacitError(
                f"{self!r} is too wide to be compared with a Gaussian: use discrete Gaussian "
                "noise, or a coarser precision"
            )
        reach = math.ceil(REACH * std)
        if std < NARROWEST or not self.symmetric or self.mean != centre:
            return 1.0
        if self.tail(centre + reach) > 1e-16:
            return 1.0
        k = np.arange(0, reach + 1)
        z = k / std
        rounded = (
            np.exp(-z * z / 2) / (math.sqrt(2 * math.pi) * std) * (1 + (z * z - 1) / (24 * std**2))
        )
        terms = np.abs(self.pmf(k + centre) - rounded)
        return min(1.0, float(terms.sum() - terms[0] / 2) + 0.01 / std**4 + 1e-15)

    def room(self, misread: float) -> int:
        """A τ with P[|X - mean| > τ] <= misread: the least one, where the law can be summed."""
        return self.bound(misread)

    def wrap_chance(self, top: int, modulus: int) -> float:
        """The probability, or a bound close above it, that a sum in 0..top with this noise is
        misread after opening it modulo m.
        """
        if not (self.log_concave and self.symmetric) or modulus <= top:
            return wrap_probability(self, top, modulus)
        spare = (modulus - top - 1) // 2
        # a sum at one end is misread past the spare room, or past everything
        far = spare + min(top, math.ceil(40 * self.std))
        if self.std <= COARSE:
            return self.tail(spare) + self.tail(far)
        return min(1.0, tail_bounds(self, spare, 1)[1] + tail_bounds(self, far, 1)[1])

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

    def cover(self, log_floor: float = LOG_TINY) -> tuple[int, int, float]:
        """The window, and an upper bound on the mass outside it: geometric series where the law is
        log-concave.
        """
        first, last = self.window(log_floor)
        total = 0.0
        for edge, sign, end in ((last, 1, self.support[1]), (first, -1, self.support[0])):
            if edge == end:
                continue
            here, there = (float(self.log_pmf(edge + sign * j)) for j in (1, 2))
            if here < LOG_TINY:
                continue
            if self.log_concave:
                ratio = math.exp(there - here)
                total += math.exp(here) / (1 - ratio) if ratio < 1 else math.inf
            else:
                total += self.tail(edge) if sign > 0 else self.cdf(edge - 1)
        return first, last, total

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
        """A bound on (all after the last term) / (the last term): ratios fall outward, as in every
        log-concave law; a law whose ratios rise has its own.
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


WIDEST_SUMMED = 1e6  # standard deviation up to which a distance is summed term by term
NARROWEST = 50.0
REACH = 9.0  # standard deviations; beyond, a Gaussian has less than 10^-18
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
