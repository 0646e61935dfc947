"""δ of integer noise in plain Python, so that a device verifies the terms that it is shown.

A sum that moves by at most s levels is (ε, δ)-DP with noise X if, for both signs,
δ >= Σ_x max(0, P[X = x] - e^ε P[X = x ∓ s]). The distributions here are log-concave, so smaller
movements need less. Sums over 15 standard deviations and 100 more; what is left out is below
10^-40. Floating point: probabilities follow from ratios of neighbours and are normalized, so that
results are accurate to about a relative 10^-9, and `SLACK` covers that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

SLACK = 1e-9
"""Relative excess of a computed δ that is accepted."""

ROUNDING = 1e-15
"""Relative error of a normal distribution's tail in doubles, for every unit of its slope."""

MOST_TERMS = 1 << 22
"""Most terms of a sum; a device rejects wider noise."""

_CACHED = 256
_LARGE = 1e250
_NEGLIGIBLE = 1e-290
_LARGEST_EPSILON = 64
_BENDS = (
    4 * math.exp(-0.5) / math.sqrt(2 * math.pi),  # E|z² - 1|
    2 * (1 + 4 * math.exp(-1.5)) / math.sqrt(2 * math.pi),  # E|z³ - 3z|
)


def _summation_range(deviation: float) -> int:
    return math.ceil(15 * deviation) + 100


def _excess(pmf: Sequence[float], shift: int, epsilon: Fraction) -> float:
    """The larger hockey-stick divergence of the two signs of a shift."""
    factor = math.exp(min(float(epsilon), 700.0))
    moved = [0.0] * shift
    one = math.fsum(
        max(0.0, p - factor * q) for p, q in zip([*pmf, *moved], [*moved, *pmf], strict=True)
    )
    other = math.fsum(
        max(0.0, p - factor * q) for p, q in zip([*moved, *pmf], [*pmf, *moved], strict=True)
    )
    return max(one, other)


@lru_cache(maxsize=_CACHED)
def skellam_delta(variance: Fraction, shift: int, epsilon: Fraction) -> float:
    """δ of Skellam noise of this variance; 1 if the sum is too wide to compute.

    >>> skellam_delta(Fraction(1424, 100), 1, Fraction(1)) < 1.01e-6
    True
    """
    reach = _summation_range(math.sqrt(variance))
    if reach + shift > MOST_TERMS:
        return 1.0
    return _excess(_mirrored(_bessel(float(variance), reach)), shift, epsilon)


def _bessel(variance: float, reach: int) -> list[float]:
    """e^-v I_k(v) for k = 0..reach, by Miller's backward recurrence; all terms are positive."""
    values = [0.0] * (reach + 1)
    above, here = 0.0, 1e-300
    for k in range(reach + 50, 0, -1):
        above, here = here, above + 2 * k / variance * here
        if k - 1 <= reach:
            values[k - 1] = here
        if here > _LARGE:
            above, here = above / _LARGE, here / _LARGE
            values[k - 1 :] = [value / _LARGE for value in values[k - 1 :]]
    total = values[0] + 2 * math.fsum(values[1:])
    return [value / total for value in values]


@lru_cache(maxsize=_CACHED)
def gaussian_delta(sigma: Fraction, shift: int, epsilon: Fraction, shares: int = 1) -> float:
    """δ of discrete Gaussian noise; of the sum of `shares` discrete Gaussians of σ²/shares each.

    The sum's probabilities differ from one draw's by a factor of at most e^τ, τ = 10 Σ_k
    e^{-2π²σ²k/(k+1)/shares} (Kairouz, Liu & Steinke 2021, Corollary 12), so δ is at most e^τ times
    that of one draw at ε - 2τ.
    """
    deviation = float(sigma)
    reach = _summation_range(deviation)
    if reach + shift > MOST_TERMS:
        return 1.0
    apart = _divergence(deviation / math.sqrt(shares), shares)
    if 2 * apart >= epsilon:
        return 1.0
    weights = [math.exp(-(x * x) / (2 * deviation**2)) for x in range(reach + 1)]
    total = weights[0] + 2 * math.fsum(weights[1:])
    pmf = _mirrored([weight / total for weight in weights])
    return math.exp(apart) * _excess(pmf, shift, epsilon - 2 * Fraction(apart))


def _divergence(sigma: float, shares: int) -> float:
    """τ of `shares` discrete Gaussians of this sigma; the last 10,000 terms bound all others."""
    if shares == 1:
        return 0.0
    if sigma < 0.5:
        return math.inf
    rate = -2 * (math.pi * sigma) ** 2
    first = min(shares - 1, 10_000)
    terms = math.fsum(math.exp(rate * k / (k + 1)) for k in range(1, first + 1))
    return 10 * (terms + (shares - 1 - first) * math.exp(rate * first / (first + 1)))


@lru_cache(maxsize=_CACHED)
def vector_delta(
    sigma: Fraction, squared_l2: Fraction, coordinates: int, epsilon: Fraction, shares: int = 1
) -> float:
    """δ of discrete Gaussian noise in every coordinate of a vector of this squared l2
    sensitivity; of the sum of `shares` discrete Gaussians of σ²/shares each, as `gaussian_delta`.

    The noise is within a total variation distance of a rounded Gaussian, which is added to the δ of
    the Gaussian mechanism: Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ) with μ = Δ/σ (Balle & Wang 2018),
    rounded up, as both terms cancel at very small ε. The distance of a coordinate is at most
    (E|z² - 1|/σ² + E|z³ - 3z|/σ³) / 48 + 2.1 e^{-2π²σ²} for σ >= 1, as in
    `tacit.noise.DiscreteGaussian`.

    >>> vector_delta(Fraction(9100), Fraction(9, 2) * 1000**2, 44, Fraction(1)) < 1e-6
    True
    """
    wide = float(sigma)
    psi = coordinates * _divergence(wide / math.sqrt(shares), shares)
    level, mu = float(epsilon) - 2 * psi, math.sqrt(squared_l2) / wide
    if wide < 1 or not 0 <= level <= _LARGEST_EPSILON:
        return 1.0
    one, other = level / mu - mu / 2, level / mu + mu / 2
    tail = _normal_tail(one)
    exact = tail - math.exp(level) * _normal_tail(other)
    exact += ROUNDING * (1 + one * one + level) * tail  # both tails agree in most digits
    curvature, variation = _BENDS
    apart = (curvature / wide**2 + variation / wide**3) / 48
    apart += 2.1 * math.exp(-2 * (math.pi * wide) ** 2)
    return min(1.0, math.exp(psi) * (exact + (1 + math.exp(level)) * coordinates * apart))


@lru_cache(maxsize=_CACHED)
def pair_delta(scale: Fraction, shift: int, epsilon: Fraction) -> float:
    """δ of the sum of two discrete Laplace draws; 1 if it is too wide to compute.

    P[X = k] is proportional to r^|k| (|k| + (1 + r²)/(1 - r²)) with r = e^{-1/scale}.
    """
    rate, reach = math.exp(-1 / float(scale)), math.ceil(100 * float(scale)) + 100
    if reach + shift > MOST_TERMS:
        return 1.0
    peak = (1 + rate**2) / (1 - rate**2)
    weights = [rate**k * (k + peak) for k in range(reach + 1)]
    total = weights[0] + 2 * math.fsum(weights[1:])
    return _excess(_mirrored([weight / total for weight in weights]), shift, epsilon)


def least_epsilon(delta_at: Callable[[Fraction], float], delta: Fraction) -> float:
    """The least ε with this δ, by bisection, rounded up to three digits; infinite above 64.

    The search doubles ε first: a computed δ may grow again at very large ε. It is 0 if the noise
    has this δ without any ε.

    >>> least_epsilon(lambda epsilon: pair_delta(Fraction(1), 1, epsilon), Fraction(1, 10**6))
    0.914
    """
    if delta_at(Fraction(0)) <= delta:
        return 0.0
    low, high = 0.0, 2.0**-10
    while delta_at(Fraction(high)) > delta:
        low, high = high, 2 * high
        if high > _LARGEST_EPSILON:
            return math.inf
    while high - low > 1e-5 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if delta_at(Fraction(middle)) <= delta else (middle, high)
    digits = 10.0 ** (2 - math.floor(math.log10(high)))
    return math.ceil(high * digits) / digits


def _normal_tail(x: float) -> float:
    """P[z > x] of a standard normal z."""
    return math.erfc(x / math.sqrt(2)) / 2


@lru_cache(maxsize=_CACHED)
def binomial_delta(bits: int, bias: Fraction, shift: int, epsilon: Fraction) -> float:
    """δ of the number of ones among `bits` independent bits of this bias.

    >>> binomial_delta(126, Fraction(286, 1000), 1, Fraction(1)) < 1.1e-6
    True
    """
    pmf = _ones(bits, bias, shift)
    return _excess(pmf, shift, epsilon) if pmf else 1.0


def _ones(bits: int, bias: Fraction, shift: int) -> list[float]:
    """Probabilities of the number of ones within reach of its mean; empty if these are too many."""
    p, mean = float(bias), bits * float(bias)
    reach = _summation_range(math.sqrt(mean * (1 - p)))
    low, high = max(0, math.floor(mean) - reach), min(bits, math.ceil(mean) + reach)
    if high - low + shift > MOST_TERMS:
        return []
    odds, mode = float(bias / (1 - bias)), math.floor(mean)
    right, left = [1.0], [1.0]
    for x in range(mode, high):
        right.append(right[-1] * odds * (bits - x) / (x + 1))
    for x in range(mode, low, -1):
        left.append(left[-1] * x / (odds * (bits - x + 1)))
    weights = left[:0:-1] + right
    total = math.fsum(weights)
    return [weight / total for weight in weights]


@lru_cache(maxsize=_CACHED)
def cells_delta(bits: int, bias: Fraction, epsilon: Fraction) -> float:
    """δ of a table whose cells each have the ones of `bits` independent bits of this bias as noise.

    Replacing a participant takes one from a cell and adds one to another. With independent numbers
    of ones X and Y that compares (X, Y + 1) with (X + 1, Y), whose likelihood ratio is a decreasing
    function of the first number times an increasing one of the second. So for each value of the
    first the ratio is above e^ε from some value of the second on, and δ is a sum of tails: exact,
    without composition bounds. Exchanging the cells gives the other direction.

    >>> cells_delta(160, Fraction(1, 2), Fraction(1)) < 1.1e-6
    True
    """
    pmf = _ones(bits, bias, 1)
    if not pmf:
        return 1.0
    factor = math.exp(min(float(epsilon), 700.0))
    stays, moves = [*pmf, 0.0], [0.0, *pmf]  # probabilities of x for X and for X + 1
    tail_stays = [0.0, *accumulate(reversed(stays))][::-1]
    tail_moves = [0.0, *accumulate(reversed(moves))][::-1]
    found, start, places = [], 0, len(stays)
    for likely, other in zip(stays, moves, strict=True):
        if likely < _NEGLIGIBLE:  # its products are 0 in doubles, whatever the second number is
            continue
        ratio = other / likely
        while start < places and moves[start] <= factor * (ratio * stays[start]):
            start += 1
        found.append(likely * tail_moves[start] - factor * other * tail_stays[start])
    return math.fsum(found)


def _mirrored(half: list[float]) -> list[float]:
    """A symmetric list from its values at 0, 1, 2, …"""
    return half[:0:-1] + half
