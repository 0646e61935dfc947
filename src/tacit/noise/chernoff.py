"""Chernoff tail bounds for distributions that are too wide to sum.

P[|X - mean| > t] is at most 2 e^{K(s) - st} for every s > 0, where K is the larger of the two
centred log moment generating functions. A search finds a good s; the bound holds for any s. Use the
exact `tail` and `bound` of a distribution where they are affordable.
"""

from __future__ import annotations

import math
from typing import Any


def tail_bound(law: Any, t: float) -> float:
    """An upper bound on P[|X - mean| > t], from the mean, the variance and `log_mgf`.

    >>> from tacit.noise import Skellam
    >>> law = Skellam(100)
    >>> 2 * law.tail(50) < tail_bound(law, 50) < 50 * law.tail(50)
    True
    """
    if t <= 0:
        return 1.0
    from scipy.optimize import minimize_scalar  # slow to import

    guess = t / float(law.variance)

    def exponent(log_s: float) -> float:
        s = math.exp(log_s)
        worse: float = max(
            float(law.log_mgf(s)) - s * law.mean, float(law.log_mgf(-s)) + s * law.mean
        )
        return min(worse - s * t, 1e9)

    found = minimize_scalar(
        exponent,
        bounds=(math.log(guess) - 12, math.log(guess) + 0.5),
        method="bounded",
        options={"xatol": 1e-6},
    )
    return min(1.0, 2 * math.exp(min(0.0, float(found.fun))))


def widest(law: Any, p: float) -> float:
    """A t with P[|X - mean| > t] <= p by `tail_bound`, within a factor of 1.001."""
    low, high = 0.0, max(1.0, math.sqrt(law.variance))
    while tail_bound(law, high) > p:
        low, high = high, 2 * high
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if tail_bound(law, middle) <= p else (middle, high)
    return high
