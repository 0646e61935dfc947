"""The Bernoulli relative entropy, its inverse, and the lower bound on regret that it implies."""

from __future__ import annotations

import math
from collections.abc import Sequence


def kl(p: float, q: float) -> float:
    """p ln(p/q) + (1-p) ln((1-p)/(1-q)), for 0 <= p <= 1 and 0 < q < 1.

    >>> round(kl(0.5, 0.75), 6)
    0.143841
    """
    value = 0.0
    if p > 0:
        value += p * math.log(p / q)
    if p < 1:
        value += (1 - p) * math.log((1 - p) / (1 - q))
    return max(value, 0.0)


def kl_upper(p: float, level: float, samples: float) -> tuple[float, float]:
    """The largest q with samples · kl(p, q) <= level, and its derivative in the level.

    Newton's method from the right: kl is convex in q, so every step stays at or above the root.

    >>> q, slope = kl_upper(0.5, level=0.143841, samples=1)
    >>> round(q, 5)
    0.75
    """
    target = level / samples
    if p >= 1:
        return 1.0, 0.0
    entropy = -(1 - p) * math.log1p(-p) - (p * math.log(p) if p > 0 else 0.0)
    q = min(p + math.sqrt(target / 2), -math.expm1(-(target + entropy) / (1 - p)))
    if q >= 1:
        return 1.0, 0.0
    for _ in range(50):
        slope = (q - p) / (q * (1 - q))
        if slope <= 0:
            return p, 0.0
        step = (kl(p, q) - target) / slope
        q = max(q - step, p)
        if abs(step) <= 1e-9 * (q - p) + 1e-15:
            break
    slope = (q - p) / (q * (1 - q)) if 0 < q < 1 else 0.0
    return q, (1 / (samples * slope) if slope > 0 else 0.0)


def least_regret(means: Sequence[float], horizon: int, epsilon: float = math.inf) -> float:
    """The asymptotic lower bound Σ_a Δ_a ln T / min(kl(μ_a, μ*), 6εΔ_a) on regret, Δ_a = μ* - μ_a.

    It holds on binary rewards for every learner that does well on all instances and is ε-DP against
    an adversary who sees its decisions. As T grows the ratio of the regret to it is at least 1; at
    a given T a learner may be below.

    >>> round(least_regret([0.5, 0.6], 10**6), 1), round(least_regret([0.5, 0.6], 10**6, 0.01), 1)
    (67.7, 230.3)

    References: Lai & Robbins 1985; Azize & Basu 2022 Theorem 3.
    """
    best, total = max(means), 0.0
    for mean in means:
        gap = best - mean
        if gap > 0:
            divergence = kl(mean, best) if best < 1 else math.inf
            total += gap * math.log(horizon) / min(divergence, 6 * epsilon * gap)
    return total
