"""Discrete Laplace noise, and the Pólya shares that it divides into.

A discrete Laplace variable is the difference of two geometric variables, and a geometric variable
is infinitely divisible into Pólya (negative binomial) shares. Each of n participants adds a
difference of two Pólya(1/n) variables; the total is discrete Laplace noise. See CZ23 Fact 1;
Goryczka & Xiong 2015, Theorem 5.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from tacit.errors import Number, TacitError, positive, probability
from tacit.noise.chernoff import tail_bound
from tacit.noise.cumulants import OUTSIDE, Cumulants
from tacit.noise.distribution import Floats, NoiseDistribution, plain
from tacit.noise.log_functions import deviance, log_gamma_ratio, stirling_error
from tacit.noise.wrapping import wrap_probability
from tacit.rounding import no_less
from tacit.sampling.coins import Chance
from tacit.sampling.draws import draw_laplace
from tacit.sampling.polya import PolyaWalk, polya_walk

LONGEST_TABLE = 20_000_000
SADDLE_FROM = 16.0
WIDEST_RATE = 700.0  # beyond it the noise is 0 except with probability e^-700
WIDEST_TABULATED = 256  # standard deviation
WIDEST_POINTS = 1 << 15  # standard deviation up to which single probabilities are summed


@dataclass(frozen=True)
class DiscreteLaplace(NoiseDistribution):
    """P[X = k] proportional to e^{-|k| / scale}, on the integers.

    Parameters
    ----------
    scale : number
        Sensitivity over ε, > 0; a fraction keeps the guarantee exact.

    Notes
    -----
    Adding it to an integer query of sensitivity s is (s / scale, 0)-differentially private.
    Divisible into Pólya differences (CZ23 Fact 1).

    Examples
    --------
    >>> DiscreteLaplace(scale=2.0).quantile(0.95)
    5
    >>> DiscreteLaplace(10).share(100)
    PolyaDifference(r=Fraction(1, 100), beta=Chance(factor=Fraction(1, 1), rate=Fraction(1, 10)))
    """

    scale: Number
    mean = 0.0
    log_concave = True

    def __post_init__(self) -> None:
        positive(
            "scale", self.scale, "for sensitivity s and privacy epsilon the scale is s / epsilon"
        )
        object.__setattr__(self, "scale", plain(self.scale))

    @property
    def variance(self) -> float:
        """2p / (1-p)^2 with p = e^{-1/scale}."""
        rate = 1 / float(self.scale)
        return 2 * math.exp(-rate) / math.expm1(-rate) ** 2

    def log_pmf(self, k: npt.ArrayLike) -> Floats:
        """ln tanh(1/(2 scale)) - |k| / scale."""
        scale = float(self.scale)
        result: Floats = (
            math.log(math.tanh(0.5 / scale)) - np.abs(np.asarray(k, dtype=float)) / scale
        )
        return result

    def log_mgf(self, s: npt.ArrayLike) -> Floats:
        """ln of (1-p)^2 / ((1 - p e^s)(1 - p e^-s)), for |s| < 1/scale."""
        return PolyaDifference(1, self._beta).log_mgf(s)

    def _beyond(self, t: int, sign: int) -> float:  # noqa: ARG002
        """The geometric series in closed form; t is never negative here."""
        return math.exp(-(t + 1) / float(self.scale)) / (1 + math.exp(-1 / float(self.scale)))

    def power(self, times: Number) -> NoiseDistribution:
        """The Pólya difference of `times` copies, or of a fraction of one."""
        fraction = positive("share fraction", times)
        return self if fraction == 1 else PolyaDifference(fraction, self._beta)

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...] | None = None) -> Any:
        """The difference of two geometric variables, each the floor of an exponential."""
        scale = float(self.scale)
        one = np.floor(scale * rng.standard_exponential(size))
        return (one - np.floor(scale * rng.standard_exponential(size))).astype(np.int64)[()]

    @classmethod
    def of_std(cls, std: float) -> Self:
        """1/scale = 2 arsinh(1 / (√2 std)), from the variance 1 / (2 sinh²(1 / (2 scale)))."""
        return cls(0.5 / math.asinh(math.sqrt(0.5) / positive("std", std)))

    @classmethod
    def family(cls, std: float) -> tuple[type[Self], float]:
        """Parametrised by scale."""
        return cls, std

    @classmethod
    def of_pure_loss(cls, epsilon: Number, l1: int) -> Self:
        """Scale l1 / ε, as an exact fraction."""
        return cls(Fraction(l1) / Fraction(epsilon))

    def pure_loss(self, shift: Number) -> float:
        """shift / scale, rounded up."""
        return no_less(Fraction(shift) / Fraction(self.scale))

    def loses_at_most(self, epsilon: Number, shift: Number, times: int = 1) -> bool:
        """times · shift / scale <= ε, in exact fractions."""
        return times * Fraction(shift) <= Fraction(epsilon) * Fraction(self.scale)

    @property
    def mgf_radius(self) -> float:  # type: ignore[override]
        """1 / scale."""
        return 1 / float(self.scale)

    def cumulants(self) -> Cumulants:
        """Those of a Pólya difference with r = 1."""
        return polya_difference_cumulants(1.0, self.mgf_radius)

    def wrap_chance(self, top: int, modulus: int) -> float:
        """The exact probability of misreading a sum modulo m, in closed form."""
        return wrap_probability(self, top, modulus)

    @property
    def _beta(self) -> Chance:
        return Chance(Fraction(1), 1 / Fraction(self.scale))

    def _draw_one(self) -> int:
        return draw_laplace(*Fraction(self.scale).as_integer_ratio())


@dataclass(frozen=True)
class Polya(NoiseDistribution):
    """P[X = x] = Γ(x+r) / (x! Γ(r)) · β^x (1-β)^r, on the non-negative integers.

    `beta` is a number in (0, 1), or a `Chance` if it is e^{-a/b} and devices draw from it exactly.

    >>> float(Polya(1, 0.5).pmf(3))  # r = 1 is the geometric distribution
    0.0625
    """

    r: Number
    beta: Number | Chance
    largest_shift_is_worst = True  # for r < 1 the pmf decreases from 0 on
    symmetric = False
    support = (0.0, math.inf)

    def __post_init__(self) -> None:
        positive("r", self.r, "one of n shares has r = 1/n")
        object.__setattr__(self, "r", plain(self.r))
        if not isinstance(self.beta, Chance):
            probability("beta", self.beta, "for discrete Laplace noise of scale b it is e^(-1/b)")
            object.__setattr__(self, "beta", plain(self.beta))
        elif self.beta.factor == 0 or (self.beta.factor == 1 and self.beta.rate == 0):
            raise TacitError(
                f"beta is {self.beta.factor}: must lie strictly between 0 and 1. For scale b it "
                "is e^(-1/b)"
            )

    @property
    def log_concave(self) -> bool:  # type: ignore[override]
        """True from r = 1 on; below, the distribution is log-convex."""
        return self.r >= 1

    @cached_property
    def mgf_radius(self) -> float:  # type: ignore[override]
        """-ln β."""
        factor, rate = self._chance.factor, self._chance.rate
        if factor > Fraction(1, 2):
            return float(rate) - math.log1p(float(factor - 1))
        return float(rate) + math.log(factor.denominator) - math.log(factor.numerator)

    @property
    def mean(self) -> float:
        """r β / (1-β)."""
        return float(self.r) * math.exp(-self.mgf_radius) / -math.expm1(-self.mgf_radius)

    @property
    def variance(self) -> float:
        """r β / (1-β)^2."""
        return float(self.r) * math.exp(-self.mgf_radius) / math.expm1(-self.mgf_radius) ** 2

    def log_pmf(self, k: npt.ArrayLike) -> Floats:
        """ln P[X = k], elementwise; for a large r in Loader's saddle-point form, which avoids
        cancellation.
        """
        x = np.asarray(k, dtype=float)
        r = float(self.r)
        beta, rest = math.exp(-self.mgf_radius), -math.expm1(-self.mgf_radius)
        if r < SADDLE_FROM:
            y = np.maximum(x, 0.0)
            inside = log_gamma_ratio(y, r) - gammaln(r) - y * self.mgf_radius + r * math.log(rest)
        else:
            y = np.where(x > 0, x, r)
            excess = y * rest - r * beta
            inside = (
                stirling_error(y + r)
                - stirling_error(y)
                - stirling_error(np.asarray(r))
                - deviance(y, (y + r) * beta, excess)
                - deviance(np.full_like(y, r), (y + r) * rest, -excess)
                - 0.5 * np.log(2 * math.pi * y * (y / r + 1))
            )
            inside = np.where(x == 0, r * math.log(rest), inside)
        return np.where(x >= 0, inside, -np.inf)

    def log_mgf(self, s: npt.ArrayLike) -> Floats:
        """r ln((1-β) / (1 - β e^s)), for s < -ln β."""
        s = np.asarray(s, dtype=float)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            inside = float(self.r) * (
                math.log(-math.expm1(-self.mgf_radius)) - np.log(-np.expm1(s - self.mgf_radius))
            )
        return np.where(s < self.mgf_radius, inside, np.inf)

    def power(self, times: Number) -> Polya:
        """Pólya of `times` times r: independent copies of the same β add up exactly."""
        return Polya(Fraction(self.r) * positive("share fraction", times), self.beta)

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...] | None = None) -> Any:
        """Poisson with a gamma mean."""
        return rng.poisson(
            rng.gamma(
                float(self.r), math.exp(-self.mgf_radius) / -math.expm1(-self.mgf_radius), size
            )
        )

    def _remaining(self, terms: Floats) -> float:
        """For r < 1, where the distribution is log-convex: outward ratios stay below β; inward
        there is no bound.
        """
        if self.log_concave:
            return super()._remaining(terms)
        if len(terms) > 1 and terms[-1] > terms[-2]:
            return math.inf
        return math.exp(-self.mgf_radius) / -math.expm1(-self.mgf_radius)

    def _draw_one(self) -> int:
        return self._walk.draw()

    @cached_property
    def _walk(self) -> PolyaWalk:
        return polya_walk(Fraction(self.r), self._chance)

    @property
    def _chance(self) -> Chance:
        return self.beta if isinstance(self.beta, Chance) else Chance(Fraction(self.beta))


@dataclass(frozen=True)
class PolyaDifference(NoiseDistribution):
    """X = γ⁺ - γ⁻ for two independent Pólya(r, β) variables: the r-th convolution power of discrete
    Laplace noise.

    - r = 1/n: the share of one of n participants.
    - r = 0.8: the noise that remains when a fifth of the shares is missing.
    - r = n: the total of n participants who each add full discrete Laplace noise.

    >>> distribution = DiscreteLaplace(10).share(4).power(4)
    >>> bool(np.isclose(distribution.log_pmf(3), DiscreteLaplace(10).log_pmf(3)))
    True
    """

    r: Number
    beta: Number | Chance
    mean = 0.0
    largest_shift_is_worst = True  # for r < 1 the pmf is symmetric and decreases away from 0

    def __post_init__(self) -> None:
        half = Polya(self.r, self.beta)
        object.__setattr__(self, "r", half.r)
        object.__setattr__(self, "beta", half.beta)

    def __hash__(self) -> int:
        """The cached hash of the parameters: hashing fractions is slow, and every round needs
        one.
        """
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.r, self.beta))

    @cached_property
    def _half(self) -> Polya:
        return Polya(self.r, self.beta)

    @property
    def log_concave(self) -> bool:  # type: ignore[override]
        """True from r = 1 on, as a convolution of log-concave distributions."""
        return self.r >= 1

    @cached_property
    def variance(self) -> float:
        """Twice that of one Pólya variable."""
        return 2 * self._half.variance

    def log_pmf(self, k: npt.ArrayLike) -> Floats:
        """ln P[X = k] from a table of ratios; the cost grows with the largest |k| and with 45 times
        the scale.
        """
        index = np.abs(np.asarray(k)).astype(np.int64)
        r, rate = float(self.r), self.mgf_radius
        # e^-45 is below the rounding error of the total; 12 standard deviations cover the bulk of
        # a sum of many copies
        longest = math.ceil(45 / rate + 12 * self.std)
        while index.size and longest < index.max():
            longest *= 2
        result: Floats = polya_difference_table(r, rate, longest)[index]
        return result

    def log_mgf(self, s: npt.ArrayLike) -> Floats:
        """The sum of the Pólya log moment generating functions at s and -s."""
        s = np.asarray(s, dtype=float)
        result: Floats = self._half.log_mgf(s) + self._half.log_mgf(-s)
        return result

    def power(self, times: Number) -> NoiseDistribution:
        """`times` times r: independent copies add up exactly; r = 1 is discrete Laplace."""
        r = Fraction(self.r) * positive("share fraction", times)
        if r == 1 and isinstance(self.beta, Chance) and self.beta.factor == 1:
            return DiscreteLaplace(1 / self.beta.rate)
        return PolyaDifference(r, self.beta)

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...] | None = None) -> Any:
        """The difference of two Pólya samples."""
        return self._half.sample(rng, size) - self._half.sample(rng, size)

    def pure_loss(self, shift: Number) -> float:
        """The pure loss; an upper bound for wide distributions.

        Ratios of neighbours approach β from above (r < 1, log-convex: worst at 0) or from below
        (worst at infinity).

        The bound for wide distributions uses P(0)/P(g) = e^{g·rate} g! Γ(r)/Γ(g+r) F(1-r, 1-r;
        1)/F(g+1-r, 1-r; g+1) at β² by Euler's transformation. No term of the first F exceeds the
        second's, because (j-r)/j grows with j.
        """
        far, r = float(shift) * self.mgf_radius, float(self.r)
        if r >= 1:
            return far
        if self.std > WIDEST_POINTS:
            steps = gammaln(r) - log_gamma_ratio(np.asarray(float(shift)), r)
            return far + float(steps) + 1e-12 * (1 + far)
        centre, away = self.log_pmf([0, int(shift)])
        return max(float(centre - away), far)

    @property
    def mgf_radius(self) -> float:  # type: ignore[override]
        """-ln β."""
        return self._half.mgf_radius

    def cumulants(self) -> Cumulants:
        """The closed form; see `polya_difference_cumulants`."""
        return polya_difference_cumulants(float(self.r), self.mgf_radius)

    def tail_margin(self, misread: float) -> int:
        """As `NoiseDistribution.tail_margin`; by the moment generating function if the
        distribution is too wide to tabulate.

        For r between 1 and 2, uses the next larger 1 + 2^-k, so that many batch sizes share one
        result. For symmetric unimodal distributions such as these, more of the same noise only
        widens the tails (Anderson 1955).
        """
        excess = Fraction(self.r) - 1
        if 0 < excess < 1:
            power = (excess.denominator // excess.numerator).bit_length() - 1
            return tail_margin_of(PolyaDifference(1 + Fraction(1, 1 << power), self.beta), misread)
        return self.own_tail_margin(misread)

    def own_tail_margin(self, misread: float) -> int:
        """`tail_margin` at this r, without rounding r up."""
        if self.std <= WIDEST_TABULATED:
            return self.bound(misread)
        low, high = 0, math.ceil(self.std)
        while tail_bound(self, high) > misread:
            low, high = high, 2 * high
        while high - low > max(1, high >> 10):
            middle = (low + high) // 2
            low, high = (low, middle) if tail_bound(self, middle) <= misread else (middle, high)
        return high

    def wrap_chance(self, top: int, modulus: int) -> float:
        """The probability of misreading a sum; a Chernoff bound if it is too wide to tabulate."""
        if self.log_concave and modulus > top and self.std > WIDEST_TABULATED:
            return tail_bound(self, (modulus - top - 1) // 2)
        return super().wrap_chance(top, modulus)

    def _remaining(self, terms: Floats) -> float:
        return self._half._remaining(terms)

    def _draw_one(self) -> int:
        walk = self._walk
        return walk.draw() - walk.draw()

    @cached_property
    def _walk(self) -> PolyaWalk:  # not that of `_half`, which floats are checked to make
        chance = self.beta if isinstance(self.beta, Chance) else Chance(Fraction(self.beta))
        return polya_walk(Fraction(self.r), chance)


@lru_cache(maxsize=1024)
def tail_margin_of(distribution: PolyaDifference, misread: float) -> int:
    """The cached `own_tail_margin` of a distribution."""
    return distribution.own_tail_margin(misread)


def polya_difference_cumulants(r: float, rate: float) -> Cumulants:
    """-r ln(1 - h) with h = sinh²(s/2) / sinh²(rate/2), which equals r ln((1-β)² /
    ((1-βe^s)(1-βe^-s))).
    """
    inverse = 1 / math.sinh(rate / 2) ** 2 if rate < WIDEST_RATE else 0.0
    sinh, cosh, log1p = math.sinh, math.cosh, math.log1p

    def function(s: float) -> tuple[float, float, float]:
        if not -rate < s < rate:
            return OUTSIDE
        h = sinh(s / 2) ** 2 * inverse
        if h >= 1:
            return OUTSIDE
        ratio = 0.5 * inverse * sinh(s) / (1 - h)
        return -r * log1p(-h), r * ratio, r * (0.5 * inverse * cosh(s) / (1 - h) + ratio * ratio)

    return function


@lru_cache(maxsize=8)
def polya_difference_table(r: float, rate: float, longest: int) -> Floats:
    """ln P[X = k] for k = 0..longest, X the difference of two Pólya(r, e^{-rate}) variables;
    `longest` covers all mass but e^-45.

    The generating function ((1-β)² / ((1-βz)(1-β/z)))^r obeys a first-order differential equation,
    so neighbouring probabilities obey β(k+1-r) p(k+1) = (1+β²) k p(k) - β(k-1+r) p(k-1). The
    distribution is the solution that vanishes at infinity. Its ratios p(k)/p(k-1) come from the
    backward recursion, in which an error in the start decays by β² per step. The ratios are close
    to β. The recursion therefore runs on the defects e(k) = 1 - p(k)/(β p(k-1)), which preserves
    the digits that a long product needs. The sum of all terms gives p(0).
    """
    start = longest + math.ceil(20 / rate) + 50
    if start > LONGEST_TABLE:
        raise TacitError(
            f"a Pólya difference with r = {r:g} and scale {1 / rate:g} needs a table of {start:,} "
            "terms, over "
            f"{LONGEST_TABLE:,}: use a smaller precision, or Skellam noise, which has closed forms "
            "at any size"
        )
    square = math.exp(-2 * rate)
    constant = (1 - r) * -math.expm1(-2 * rate)
    defects = np.empty(longest + 1)
    defect = (1 - r) / (start + 1)
    for k in range(start, 0, -1):
        excess = constant + square * (k + 1 - r) * defect
        defect = excess / (k - 1 + r + excess)
        if k <= longest:
            defects[k] = defect
    logs = -rate * np.arange(longest + 1)
    logs[1:] += np.cumsum(np.log1p(-defects[1:]))
    peak = logs.max()
    total = 2 * np.exp(logs[1:] - peak).sum() + math.exp(-peak)
    table: Floats = logs - peak - math.log(total)
    table.flags.writeable = False
    return table
