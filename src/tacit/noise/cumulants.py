"""Scalar cumulant functions of noise distributions: K(s) = ln E[e^{s(X - mean)}] and two
derivatives.

Learners evaluate Chernoff bounds of an arm's estimate hundreds of times per run; arrays of length
one would cost more than the arithmetic. A distribution uses its closed form if it has one.
Otherwise `log_mgf` is differentiated numerically. The derivatives only steer an optimisation; the
bound itself uses K. Any object with a mean, a variance and `log_mgf` works.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

Cumulants = Callable[[float], tuple[float, float, float]]
OUTSIDE = (math.inf, math.inf, math.inf)


@lru_cache(maxsize=4096)
def cumulants(distribution: Any) -> Cumulants:
    """The cached function s -> (K(s), K'(s), K''(s)) of a distribution; infinite where K does not
    exist.

    >>> from tacit.noise import DiscreteLaplace
    >>> K, slope, curvature = cumulants(DiscreteLaplace(2))(0.0)
    >>> K, slope, round(curvature / DiscreteLaplace(2).variance, 12)
    (0.0, 0.0, 1.0)
    """
    own: Callable[[], Cumulants] | None = getattr(distribution, "cumulants", None)
    return numeric_cumulants(distribution) if own is None else own()


def numeric_cumulants(distribution: Any) -> Cumulants:
    """The cumulant function by numerical differentiation of `log_mgf`."""
    mean, step = float(distribution.mean), 1e-3 / math.sqrt(float(distribution.variance))

    def function(s: float) -> tuple[float, float, float]:
        below, here, above = (
            float(distribution.log_mgf(x)) - x * mean for x in (s - step, s, s + step)
        )
        if not math.isfinite(below + here + above):
            return OUTSIDE
        return here, (above - below) / (2 * step), (above - 2 * here + below) / step**2

    return function
