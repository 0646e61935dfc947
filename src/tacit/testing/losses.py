"""Comparison of what a noise distribution states about its privacy loss with its probabilities.

Accounting trusts these statements: the largest loss, log-concavity, Rényi and zCDP bounds, and the
distance from a Gaussian. A bound that is not tight is sound; one that is too small is not.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import ndtr

from tacit.noise import NoiseDistribution

Floats = np.ndarray[Any, np.dtype[np.float64]]
FLOOR = -45.0  # log-probabilities below are left out, which makes no loss larger
SHIFTS = (1, 2, 5)
LOSSES = (0.0, 0.05, 0.3, 1.0, 3.0)  # ε at which shifts are compared
ORDERS = (2, 3, 8)
ROUNDING = 1e-9  # of log-probabilities, absolute and relative
WIDEST = 2000.0  # standard deviation up to which probabilities are compared with a Gaussian


def check_losses(distribution: NoiseDistribution) -> None:
    """Check that no statement about the privacy loss is stronger than the probabilities allow."""
    low, high = distribution.window(FLOOR)
    log_p = np.asarray(distribution.log_pmf(np.arange(low, high + 1)), dtype=float)
    slack = ROUNDING * (1 + float(np.abs(log_p[np.isfinite(log_p)]).max()))
    if distribution.log_concave:
        slopes = np.diff(log_p)
        assert float((slopes - np.minimum.accumulate(slopes)).max(initial=0.0)) <= 2 * slack, (
            "log_concave is stated, but ln P is not concave"
        )
    shifts = [shift for shift in SHIFTS if shift < len(log_p)]
    if distribution.largest_shift_is_worst:
        _check_shifts(log_p, shifts)
    for shift in shifts:
        loss = log_p[:-shift] - log_p[shift:]
        largest = float(np.abs(loss).max())
        _check_largest(distribution, shift, largest, slack)
        _check_divergences(distribution, shift, log_p, slack)
        if distribution.sum_tells_all:
            assert float(np.abs(np.diff(loss, 2)).max(initial=0.0)) <= 4 * slack, (
                "sum_tells_all is stated, but the loss is not linear"
            )
    _check_distance(distribution, np.exp(log_p), low)


def _check_shifts(log_p: Floats, shifts: list[int]) -> None:
    """δ never falls where the shift grows, in either direction."""
    for sign, epsilon in ((sign, epsilon) for sign in (1, -1) for epsilon in LOSSES):
        found = [_delta(log_p[::sign], shift, epsilon) for shift in shifts]
        assert all(b >= a * (1 - ROUNDING) - 1e-14 for a, b in pairwise(found)), (
            "largest_shift_is_worst is stated, but a smaller shift loses more"
        )


def _delta(log_p: Floats, shift: int, epsilon: float) -> float:
    """δ at ε between the distribution and itself, shifted beyond its last points."""
    p, q = np.exp(log_p), np.zeros(len(log_p))
    q[:-shift] = p[shift:]
    return float(np.maximum(0.0, p - math.exp(epsilon) * q).sum())


def _check_largest(
    distribution: NoiseDistribution, shift: int, largest: float, slack: float
) -> None:
    stated = distribution.pure_loss(shift)
    assert stated >= largest - slack, (
        f"pure_loss({shift}) is {stated:.6g}: below the loss of {largest:.6g} at some point"
    )
    less = (largest - slack) * (1 - 1e-6)
    for times in (1, 3):
        assert less <= 0 or not distribution.loses_at_most(times * less, shift, times), (
            f"loses_at_most({times * less:.6g}, {shift}, {times}) is true: must be false, as the "
            f"loss reaches {times * largest:.6g}"
        )


def _check_divergences(
    distribution: NoiseDistribution, shift: int, log_p: Floats, slack: float
) -> None:
    """The stated zCDP and Rényi bounds are at least the sums over points that are not tiny."""
    rho = distribution.concentration(float(shift))
    one, other = log_p[shift:], log_p[:-shift]
    for order in ORDERS:
        logs = [order * a + (1 - order) * b for a, b in ((one, other), (other, one))]
        least = max(float(np.logaddexp.reduce(part)) / (order - 1) for part in logs)
        least -= slack * (2 * order - 1) / (order - 1)
        bound = distribution.renyi_bound(order, float(shift), 1)
        for name, stated in (
            ("concentration", None if rho is None else rho * order),
            ("renyi_bound", bound),
        ):
            assert stated is None or stated >= least, (
                f"{name} states a divergence of {stated:.6g} at order {order} and shift {shift}: "
                f"it is at least {least:.6g}"
            )


def _check_distance(distribution: NoiseDistribution, pmf: Floats, low: int) -> None:
    """The stated distance from a rounded Gaussian is at least the total variation distance."""
    centre, std = round(distribution.mean), distribution.std
    if distribution.mean != centre or not 0 < std <= WIDEST:
        return
    edges = (np.arange(low, low + len(pmf) + 1) - centre - 0.5) / std
    apart = np.abs(pmf - np.diff(ndtr(edges))).sum() / 2
    stated = distribution.distance_from_gaussian()
    assert stated >= float(apart) - ROUNDING, (
        f"distance_from_gaussian() is {stated:.3g}: the distance is {float(apart):.3g}"
    )
