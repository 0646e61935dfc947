"""Chernoff tail bounds for distributions that are too wide to sum.

P[|X - mean| > t] is at most 2 e^{K(s) - st} for every s > 0, where K is the larger of the two
centred log moment generating functions. A search finds a good s; the bound holds for any s. Use the
exact `tail` and `bound` of a distribution where they are affordable.
"""

from __future__ import annotations

import math
from typing import Any


def tail_bound(distribution: Any, t: float) -> float:
    """An upper bound on P[|X - mean| > t], from the mean, the variance and `log_mgf`.

    >>> from tacit.noise import Skellam
    >>> distribution = Skellam(100)
    >>> 2 * distribution.tail(50) < tail_bound(distribution, 50) < 50 * distribution.tail(50)
    True
    """
    if t <= 0:
        return 1.0
    from scipy.optimize import minimize_scalar  # slow to import

    guess = t / float(distribution.variance)

    def exponent(log_s: float) -> float:
        s = math.exp(log_s)
        worse: float = max(
            float(distribution.log_mgf(s)) - s * distribution.mean,
            float(distribution.log_mgf(-s)) + s * distribution.mean,
        )
        return min(worse - s * t, 1e9)

    found = minimize_scalar(
        exponent,
        bounds=(math.log(guess) - 12, math.log(guess) + 0.5),
        method="bounded",
        options={"xatol": 1e-6},
    )
    return min(1.0, 2 * math.exp(min(0.0, float(found.fun))))


def tail_radius(distribution: Any, p: float) -> float:
    """A t with P[|X - mean| > t] <= p by `tail_bound`, within a factor of 1.001."""
    low, high = 0.0, max(1.0, math.sqrt(distribution.variance))
    while tail_bound(distribution, high) > p:
        low, high = high, 2 * high
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if tail_bound(distribution, middle) <= p else (middle, high)
    return high
