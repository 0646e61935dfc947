"""Conversions from Rényi divergences to (ε, δ), and the orders that are tried.

Bounds of Canonne, Kamath & Steinke 2020 and CZ23 Lemma 10.
"""

from __future__ import annotations

import math

from tacit.errors import TacitError
from tacit.rounding import delta_up

ORDERS: tuple[float, ...] = (
    *(1 + x / 10 for x in range(1, 100)),
    *range(11, 64),
    80,
    96,
    128,
    192,
    256,
    512,
    1024,
)


def finite_epsilon(epsilon: float) -> float:
    """Check that a δ can be computed at this ε: finite, at least 0."""
    if (
        isinstance(epsilon, bool)
        or not isinstance(epsilon, (int, float))
        or not 0 <= epsilon < math.inf
    ):
        raise TacitError(f"epsilon is {epsilon}: must be finite and at least 0 for a delta")
    return float(epsilon)


def order_minus_one(order: float) -> float:
    """Return α - 1 after checking that the Rényi order is finite and above 1."""
    if not 1 < order < math.inf:
        raise TacitError(f"the Rényi order is {order}: must be greater than 1, and finite")
    return order - 1


def renyi_log_delta(order: float, value: float, epsilon: float) -> float:
    """ln of the δ at ε that a Rényi divergence implies (CKS20 Proposition 12)."""
    return (order - 1) * (value - epsilon) + order * math.log1p(-1 / order) - math.log(order - 1)


def renyi_delta(order: float, value: float, epsilon: float) -> float:
    """The δ at ε that a Rényi divergence implies."""
    exponent = renyi_log_delta(order, value, epsilon)
    return delta_up(math.exp(exponent)) if exponent < 0 else math.inf


def renyi_epsilon(order: float, value: float, delta: float) -> float:
    """The ε at δ that a Rényi divergence implies (CZ23 Lemma 10)."""
    return value - math.log(order * delta) / (order - 1) + math.log1p(-1 / order)
