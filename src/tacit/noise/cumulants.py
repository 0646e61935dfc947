"""Cumulant functions of noise laws for tight loops: K(s) = ln E[e^{s(X - mean)}] and two
derivatives, one s at a time.

Learners take Chernoff bounds of an arm's estimate hundreds of times in a run; arrays of length one
would cost more than the arithmetic. Closed forms where there are some; for other laws `log_mgf`,
differentiated numerically (the derivatives only steer an optimisation, the bound itself rests on
K). Nothing here samples or sums tails.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tacit.noise.binomial import Binomial
from tacit.noise.gaussian import DiscreteGaussian
from tacit.noise.laplace import DiscreteLaplace, PolyaDifference
from tacit.noise.skellam import Skellam

Cumulants = Callable[[float], tuple[float, float, float]]
OUTSIDE = (math.inf, math.inf, math.inf)
WIDEST_RATE = 700.0  # beyond it the noise is zero but for a chance of e^-700


def no_noise(_: float) -> tuple[float, float, float]:
    """The cumulants of the constant zero."""
    return 0.0, 0.0, 0.0


@lru_cache(maxsize=4096)
def cumulants(law: Any) -> Cumulants:
    """The function s -> (K(s), K'(s), K''(s)) of a law, or of no noise for None; infinite where K
    does not exist.

    >>> K, slope, curvature = cumulants(DiscreteLaplace(2))(0.0)
    >>> K, slope, round(curvature / DiscreteLaplace(2).variance, 12)
    (0.0, 0.0, 1.0)
    """
    if law is None:
        return no_noise
    if isinstance(law, DiscreteLaplace):
        return _polya_difference(1.0, 1 / float(law.scale))
    if isinstance(law, PolyaDifference):
        return _polya_difference(float(law.r), law._half._rate)
    if isinstance(law, Skellam):
        return _skellam(float(law.variance))
    if isinstance(law, Binomial):
        return _binomial(float(law.n), float(law.p))
    if isinstance(law, DiscreteGaussian):
        return _gaussian(float(law.sigma) ** 2)
    return _numeric(law)


def _polya_difference(r: float, rate: float) -> Cumulants:
    """-r ln(1 - h) with h = sinh²(s/2) / sinh²(rate/2): the same as r ln((1-β)² /
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


def _skellam(variance: float) -> Cumulants:
    def function(s: float) -> tuple[float, float, float]:
        if not -700 < s < 700:
            return OUTSIDE
        return (
            2 * variance * math.sinh(s / 2) ** 2,
            variance * math.sinh(s),
            variance * math.cosh(s),
        )

    return function


def _binomial(n: float, p: float) -> Cumulants:
    def function(s: float) -> tuple[float, float, float]:
        if not -700 < s < 700:
            return OUTSIDE
        tilted = p * math.exp(s)
        mean = tilted / (1 - p + tilted)
        return n * (math.log1p(p * math.expm1(s)) - p * s), n * (mean - p), n * mean * (1 - mean)

    return function


def _gaussian(square: float) -> Cumulants:
    """s²σ²/2: an upper bound, because the normaliser of a shifted discrete Gaussian is largest at
    no shift.
    """

    def function(s: float) -> tuple[float, float, float]:
        return s * s * square / 2, s * square, square

    return function


def _numeric(law: Any) -> Cumulants:
    mean, step = float(law.mean), 1e-3 / math.sqrt(float(law.variance))

    def function(s: float) -> tuple[float, float, float]:
        below, here, above = (float(law.log_mgf(x)) - x * mean for x in (s - step, s, s + step))
        if not math.isfinite(below + here + above):
            return OUTSIDE
        return here, (above - below) / (2 * step), (above - 2 * here + below) / step**2

    return function
