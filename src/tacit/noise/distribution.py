"""`NoiseDistribution`: the contract of integer noise distributions.

A distribution provides probabilities that are accurate far into the tails, tails and quantiles by
summation, shares, a simulation sampler and an exact sampler. The samplers never mix. `sample` takes
the caller's NumPy generator and may round in the last bit of a float. `draw` uses integer
arithmetic and the operating system's cryptographic randomness only.

A new distribution defines `mean`, `variance`, `log_pmf`, `log_mgf`, `power`, `sample` and
`_draw_one`, and `of_std` if it is to be calibrated. Every other method has a default that is safe
for any distribution. No registration is needed. This module computes no guarantees; see
`tacit.privacy`.
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
STORABLE: dict[str, type] = {}  # every distribution and registered class, by module:qualname


def stored_name(distribution: type) -> str:
    """The name of a class in stored data: module:qualname.

    Parameters
    ----------
    distribution : type
        The class.

    Returns
    -------
    str
        Its name.

    Examples
    --------
    >>> from tacit.noise import Skellam
    >>> stored_name(Skellam)
    'tacit.noise.skellam:Skellam'
    """
    return f"{distribution.__module__}:{distribution.__qualname__}"


class NoiseDistribution(ABC):
    """A probability distribution on the integers; subclasses are frozen dataclasses.

    Attributes
    ----------
    kind : str
        Name of the family; by default the class name in kebab case.
    divisible : bool
        Whether the sum of n independent draws of `approximate_share(n)` has this distribution
        exactly.
    sum_tells_all : bool
        Whether the sum is a sufficient statistic: for independent copies with the same shift, the
        likelihood ratio depends on their sum only.
    log_concave : bool
        Whether ln P is concave; False unless a subclass states otherwise. Several bounds use it.
    mgf_radius : float
        The |s| up to which E[e^{sX}] exists; finite for exponential tails.
    drawable : bool
        Whether `draw` has an exact sampler.

    Examples
    --------
    >>> from tacit.noise import Skellam
    >>> noise = Skellam(100)
    >>> share = noise.share(4)
    >>> share.power(4) == noise, noise.bound(1e-6)
    (True, 49)
    """

    kinds: ClassVar[dict[str, type[NoiseDistribution]]] = {}
    kind: ClassVar[str]
    continuous: ClassVar[Literal[False]] = False
    divisible: ClassVar[bool] = True
    sum_tells_all: ClassVar[bool] = False
    log_concave: bool = False
    mgf_radius: float = math.inf
    drawable: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "kind" not in vars(cls):
            cls.kind = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()
        NoiseDistribution.kinds.setdefault(cls.kind, cls)  # the first class of a name wins
        STORABLE[stored_name(cls)] = cls

    @property
    @abstractmethod
    def mean(self) -> float:
        """The expected value."""

    if TYPE_CHECKING:  # a property, except in Skellam: a field that may be an exact fraction

        @property
        def variance(self) -> float:
            """The variance."""

    @property
    def std(self) -> float:
        """The standard deviation."""
        return math.sqrt(float(self.variance))

    @property
    def symmetric(self) -> bool:
        """Whether X - mean and mean - X have the same distribution."""
        return True

    @property
    def support(self) -> tuple[float, float]:
        """The smallest and the largest value with positive probability; infinite if unbounded."""
        return -math.inf, math.inf

    @abstractmethod
    def log_pmf(self, k: npt.ArrayLike) -> Floats:
        """ln P[X = k] at integers k, elementwise; -inf outside the support."""

    @abstractmethod
    def log_mgf(self, s: npt.ArrayLike) -> Floats:
        """The log moment generating function ln E[e^{sX}], elementwise; inf where there is none."""

    @abstractmethod
    def power(self, times: Number) -> NoiseDistribution:
        """The convolution power: the distribution of a sum of independent copies.

        A fraction 1/n of a copy is one of n shares. Raises `TacitError` if there is no such power.
        """

    @abstractmethod
    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...] | None = None) -> Any:
        """Pseudorandom values for simulation.

        Parameters
        ----------
        rng : numpy.random.Generator
            The caller's generator.
        size : int or tuple of int, optional
            Shape of the result; one value if omitted.

        Returns
        -------
        int or ndarray
        """

    @abstractmethod
    def _draw_one(self) -> int:
        """One exact draw."""

    def __getstate__(self) -> dict[str, Any]:
        """The parameters alone; cached values are recomputed after unpickling."""
        return {field.name: getattr(self, field.name) for field in fields(cast(Any, self))}

    def pmf(self, k: npt.ArrayLike) -> Floats:
        """P[X = k], elementwise."""
        return np.exp(self.log_pmf(k))

    def share(self, n: int) -> NoiseDistribution:
        """The distribution of one of `n` independent shares whose sum has this distribution.

        Raises `TacitError` if this distribution is not divisible into `n` shares.
        """
        count = integer(
            "shares", n, at_least=1, remedy="noise is shared among at least one participant"
        )
        return self.power(Fraction(1, count))

    @classmethod
    def of_std(cls, std: float) -> Self:  # noqa: ARG003
        """The distribution of this family with this standard deviation, or the nearest one; more
        noise never weakens privacy.

        Raises
        ------
        TacitError
            If the standard deviation does not determine a member of the family.
        """
        raise TacitError(
            f"{cls.kind} distributions have more than one parameter: give the "
            "parameters, or use a kind with one parameter (discrete-laplace, skellam)"
        )

    @classmethod
    def family(cls, std: float) -> tuple[Callable[[float], Self], float]:
        """The one-parameter family that calibration searches.

        The result is a function from the parameter to a distribution, and the parameter near `std`.
        A larger parameter means more noise.
        """
        return cls.of_std, std

    @classmethod
    def of_pure_loss(cls, epsilon: Number, l1: int) -> Self | None:  # noqa: ARG003
        """The least noise for pure ε-DP at l1 sensitivity `l1`, with independent copies in all
        coordinates; None if no closed form is known.
        """
        return None

    def scaled(self, factor: float) -> NoiseDistribution:
        """The same family with the standard deviation multiplied by `factor`."""
        return self.of_std(self.std * factor)

    def sum_of_shares(self, n: int) -> NoiseDistribution:
        """The distribution of the sum of `n` independent copies, or one within `closeness(n)` of
        it.
        """
        return self.power(n)

    def closeness(self, n: int) -> float:  # noqa: ARG002
        """ψ: a bound on |ln ratio|, at every point, between the sum of `n` independent copies and
        `sum_of_shares(n)`.
        """
        return 0.0

    def approximate_share(self, n: int) -> NoiseDistribution:
        """The distribution of one of `n` shares whose `sum_of_shares(n)` is this distribution."""
        return self.share(n)

    def cumulants(self) -> Cumulants:
        """The function s -> (K, K', K''), where K(s) = ln E[e^{s(X - mean)}] or an upper bound; see
        `tacit.noise.cumulants`.
        """
        return numeric_cumulants(self)

    @property
    def largest_shift_is_worst(self) -> bool:
        """Whether the privacy loss never decreases with the shift; `tacit.privacy.loss` proves
        when.
        """
        return self.log_concave

    def pure_loss(self, shift: Number) -> float:  # noqa: ARG002
        """The supremum over k of |ln P(k)/P(k + shift)|; inf if it is unbounded or unknown."""
        return math.inf

    def loses_at_most(self, epsilon: Number, shift: Number, times: int = 1) -> bool:
        """Whether the pure privacy loss of several sums is at most ε in total.

        Parameters
        ----------
        epsilon : float or Fraction
            ε.
        shift : float or Fraction
            The largest change of one sum.
        times : int
            The number of sums.
        """
        return times * self.pure_loss(shift) <= epsilon

    def concentration(self, l2: float) -> float | None:  # noqa: ARG002
        """A proven ρ of zero-concentrated DP for independent copies at l2 sensitivity `l2`; None if
        unknown.
        """
        return None

    def renyi_bound(self, order: int, l2: float, dimension: int) -> float | None:  # noqa: ARG002
        """A proven Rényi divergence of a vector of independent copies; None if unknown.

        Parameters
        ----------
        order : int
            The order, at least 2.
        l2 : float
            The l2 sensitivity.
        dimension : int
            The number of coordinates.
        """
        return None

    def distance_from_gaussian(self) -> float:
        """A bound on the total variation distance between this distribution, centred, and N(0,
        variance) rounded to integers; the trivial bound is 1.

        Raises
        ------
        TacitError
            If the distribution is too wide to be summed.

        Notes
        -----
        Sums term by term against φ(k) (1 + (z² - 1) / 24σ²), which differs from the rounded
        Gaussian by less than 0.01 / σ⁴ in total.
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

    def tail_margin(self, misread: float) -> int:
        """A τ with P[|X - mean| > τ] <= misread; the least one if the distribution can be
        summed.
        """
        return self.bound(misread)

    def wrap_chance(self, top: int, modulus: int) -> float:
        """The probability, or a close upper bound, that a sum in 0..top with this noise is misread
        after reduction modulo m.
        """
        if not (self.log_concave and self.symmetric) or modulus <= top:
            return wrap_probability(self, top, modulus)
        spare = (modulus - top - 1) // 2
        # a sum at one end is misread beyond the spare residues on its side, or beyond all others
        far = spare + min(top, math.ceil(40 * self.std))
        if self.std <= COARSE:
            return self.tail(spare) + self.tail(far)
        return min(1.0, tail_bounds(self, spare, 1)[1] + tail_bounds(self, far, 1)[1])

    @overload
    def draw(self) -> int: ...

    @overload
    def draw(self, size: int) -> Integers: ...

    def draw(self, size: int | None = None) -> int | Integers:
        """Exact draws from the operating system's cryptographic randomness, without floating point.

        Parameters
        ----------
        size : int, optional
            Number of values; a single integer if omitted.

        Returns
        -------
        int or ndarray of int64
        """
        if size is None:
            return self._draw_one()
        return self._draw_many(integer("size", size, at_least=0))

    def _draw_many(self, size: int) -> Integers:
        return np.fromiter((self._draw_one() for _ in range(size)), dtype=np.int64, count=size)

    def tail(self, t: int) -> float:
        """P[X > t], by summation.

        Parameters
        ----------
        t : int
            Threshold.

        Returns
        -------
        float
            Accurate relative to itself, however far out `t` lies; the cost grows with the standard
            deviation.
        """
        return self._beyond(t, 1) if t >= self.mean else max(0.0, 1.0 - self._beyond(-t - 1, -1))

    def cdf(self, t: int) -> float:
        """P[X <= t], by summation; as accurate as `tail`."""
        return self._beyond(-t - 1, -1) if t < self.mean else max(0.0, 1.0 - self._beyond(t, 1))

    def quantile(self, p: float) -> int:
        """The least k with P[X <= k] >= p in (0, 1); beyond 1 - 1e-16 use `tail_quantile`."""
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
        """The least t with P[|X - mean| > t] <= p, the mean rounded to the nearest integer.

        Parameters
        ----------
        p : float
            Failure probability in (0, 1).

        Returns
        -------
        int
        """
        level = _level("failure probability", p)
        centre = round(self.mean)
        if self.symmetric and self.mean == centre:
            return self._least(lambda t: t >= 0 and self._at_most(centre + t, 1, level / 2), 0)
        return self._least(
            lambda t: t >= 0 and self.tail(centre + t) + self.cdf(centre - t - 1) <= level, 0
        )

    def window(self, log_floor: float = LOG_TINY) -> tuple[int, int]:
        """The smallest interval about the mean outside which every ln P[X = k] is below
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
        """The window, and an upper bound on the mass outside it; a geometric series if the
        distribution is log-concave.
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
        """The outermost point in one direction that reaches `log_floor`, searched with 32 points at
        a time.
        """
        furthest = sign * (end - centre)
        low, high = 0, max(1, math.ceil(self.std)) << 5
        while high < furthest and self.log_pmf(centre + sign * high) >= log_floor:
            low, high = high, high << 5
        high = int(min(high, furthest + 1))  # `low` reaches the floor, `high` does not
        while high - low > 1:
            probes = np.unique(np.linspace(low, high, 34).astype(np.int64))[1:-1]
            reached = int(np.count_nonzero(self.log_pmf(centre + sign * probes) >= log_floor))
            low = int(probes[reached - 1]) if reached else low
            high = int(probes[reached]) if reached < len(probes) else high
        return centre + sign * low

    def _beyond(self, t: int, sign: int) -> float:
        """The sum of P[X = sign · j] over j > t, up to a relative error of 10^-17."""
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
        """A bound on (sum of all later terms) / (last term) for ratios that fall outward, as in
        log-concave distributions; others override it.
        """
        if len(terms) < 2 or terms[-2] == 0:
            return 0.0
        ratio = float(terms[-1] / terms[-2])
        return ratio / (1 - ratio) if ratio < 1 else math.inf

    def _least(self, small_enough: Callable[[int], bool], start: int) -> int:
        """The least t at which a monotone condition becomes true."""
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
        """Whether the sum of P[X = sign · j] over j > t is at most `level`; quick bounds first."""
        if self.log_concave and self.std > COARSE and t > sign * self.mean:
            low, high = tail_bounds(self, t, sign)
            if high <= level or low > level:
                return high <= level
        return (self.tail(t) if sign > 0 else self.cdf(-t - 1)) <= level


def plain(value: Number) -> Number:
    """A checked parameter as a Python number; NumPy integers would overflow in exact arithmetic.

    Parameters
    ----------
    value : number
        A number of any type.

    Returns
    -------
    int, Fraction or float
        The same number.

    Examples
    --------
    >>> plain(np.int64(3)), plain(np.float64(0.5))
    (3, 0.5)
    """
    if type(value) in (int, float, Fraction):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    return float(value)


def _level(name: str, p: float) -> float:
    """Return a probability as a float; reject one that rounds to 0 or 1."""
    level = float(probability(name, p))
    if level in (0.0, 1.0):
        raise TacitError(
            f"{name} is {level:g} in double precision: must stay between 5e-324 and 1 - 1e-16"
        )
    return level


WIDEST_SUMMED = 1e6  # standard deviation up to which a distance is summed term by term
NARROWEST = 50.0
REACH = 9.0  # standard deviations; a Gaussian has mass below 10^-18 beyond
COARSE = 4096.0  # standard deviation from which tails are bounded on a grid before they are summed


def tail_bounds(distribution: NoiseDistribution, t: int, sign: int) -> tuple[float, float]:
    """Lower and upper bounds on the sum of P[X = sign · j] over j > t, for a log-concave
    distribution and t beyond its mean.

    Uses a grid of 2,000 points per standard deviation (see `chord_sums`). The relative gap is about
    10^-7; the cost is constant.

    Parameters
    ----------
    distribution : NoiseDistribution
        A log-concave distribution.
    t : int
        The start of the tail, beyond the mean.
    sign : int
        1 for the upper tail, -1 for the lower one.

    Returns
    -------
    low, high : float
        The two bounds.

    Examples
    --------
    >>> from tacit.noise import DiscreteGaussian
    >>> low, high = tail_bounds(DiscreteGaussian(10_000), 20_000, 1)
    >>> 0.0227 < low <= high < 0.0228
    True
    """
    step = max(1, int(distribution.std // 2000))
    end = sign * distribution.support[(sign + 1) // 2]
    if t >= end:
        return 0.0, 0.0
    points = grid(t, int(min(t + 12 * distribution.std, end)), step)
    log_p = distribution.log_pmf(sign * points)
    low, high = chord_sums(points, log_p)
    slope = float(log_p[-2] - log_p[-3]) / float(points[-2] - points[-3])
    rest = math.exp(float(log_p[-2]) + slope) / -math.expm1(slope) if points[-2] < end else 0.0
    return float(low.sum()), float(high.sum()) + rest


def grid(first: int, last: int, step: int) -> Integers:
    """Points from `first` to `last`, `step` apart, and one point outside each end; the last block
    may be shorter.

    Parameters
    ----------
    first : int
        The first inner point.
    last : int
        The last inner point.
    step : int
        The distance of neighbouring points.

    Returns
    -------
    array of int
        The points, in increasing order.

    Examples
    --------
    >>> grid(0, 10, 4).tolist()
    [-4, 0, 4, 8, 10, 14]
    """
    inner = np.arange(first, last + step, step, dtype=np.int64).clip(max=max(last, first + 1))
    return np.concatenate([[first - step], inner, [inner[-1] + step]])


def chord_sums(points: Integers, log_p: Floats) -> tuple[Floats, Floats]:
    """Bounds on the sum of e^{f(k)} over each (points[i], points[i+1]], for a concave f known at
    the points.

    The first and the last block only serve their neighbours and are not summed. Between two points
    a concave f lies above its chord and below the extended chords of the neighbouring blocks. The
    chord gives the lower bound, a geometric series. The upper bound exceeds it by at most the
    factor e^gap. With chord slopes a >= b >= c of three neighbouring blocks and h the length of the
    middle one, gap = h (a-b)(b-c) / (a-c): the height at which the outer chords meet.

    Parameters
    ----------
    points : array of int
        The ends of the blocks, ascending; at least four.
    log_p : array
        f at the points.

    Returns
    -------
    tuple of arrays
        Lower and upper bounds of every inner block.

    Examples
    --------
    >>> low, high = chord_sums(np.array([0, 1, 2, 3]), np.log([0.5, 0.25, 0.125, 0.0625]))
    >>> low.round(6).tolist(), high.round(6).tolist()
    ([0.125], [0.125])
    """
    lengths = np.diff(points)
    with np.errstate(invalid="ignore"):
        slopes = np.diff(log_p) / lengths
    before = (slopes[:-2] - slopes[1:-1]).clip(min=0.0)
    after = (slopes[1:-1] - slopes[2:]).clip(min=0.0)
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


def no_power(distribution: NoiseDistribution, times: Number, remedy: str) -> TacitError:
    """The error for a convolution power that does not exist.

    Parameters
    ----------
    distribution : NoiseDistribution
        The distribution.
    times : Number
        The requested power.
    remedy : str
        What the user can do instead.

    Returns
    -------
    TacitError
        The error, to be raised by the caller.

    Examples
    --------
    >>> from tacit.noise import Binomial
    >>> print(no_power(Binomial(3), Fraction(1, 2), "use 4 bits"))
    Binomial(n=3, p=Fraction(1, 2)) has no convolution power 1/2: use 4 bits
    """
    positive("share fraction", times)
    return TacitError(f"{distribution!r} has no convolution power {Fraction(times)}: {remedy}")
