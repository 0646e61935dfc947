"""Statistics of the contract suites: chi-square tests, and detection of seeded generators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import chdtrc

from tacit.errors import TacitError
from tacit.noise import NoiseDistribution
from tacit.noise.goodness_of_fit import seeded

SEEDED = 1e-6  # false positive rate of a seeded check, over random seeds
UNSEEDED = 1e-9  # false positive rate of a check of exact draws, which no seed reproduces
EXPECTED = 8.0  # least expected count of a bin


def chi_square_p_value(values: Sequence[int], distribution: NoiseDistribution) -> float:
    """The chi-square p-value of integers against a distribution; sparse bins are merged."""
    observed = np.asarray(values, dtype=np.int64)
    low, high = distribution.window(-40.0)
    if int(observed.min()) < low or int(observed.max()) > high:
        return 0.0
    points = np.arange(max(low, int(observed.min()) - 1), min(high, int(observed.max()) + 1) + 1)
    expected = len(observed) * distribution.pmf(points)
    counts = np.bincount(observed - points[0], minlength=len(points)).astype(float)
    counts = np.append(counts, len(observed) - counts.sum())
    expected = np.append(expected, max(len(observed) - expected.sum(), 0.0))
    joined, total_o, total_e = [], 0.0, 0.0
    for o, e in zip(counts, expected, strict=True):
        total_o, total_e = total_o + o, total_e + e
        if total_e >= EXPECTED:
            joined.append((total_o, total_e))
            total_o = total_e = 0.0
    if joined:
        joined[-1] = (joined[-1][0] + total_o, joined[-1][1] + total_e)
    if len(joined) < 2:
        return 1.0 if total_e > 0 or joined else 0.0
    statistic = sum((o - e) ** 2 / e for o, e in joined)
    return float(chdtrc(len(joined) - 1, statistic))


def check_rejected(call: Callable[[], object], name: str) -> None:
    """Fail unless the call raises a `TacitError` with a message."""
    try:
        call()
    except TacitError as error:
        assert str(error), "an error has a message"
        return
    raise AssertionError(f"{name} must be rejected with a TacitError")


def check_source(draw: Callable[[], Any], name: str) -> None:
    """Fail if resetting the seeds of Python and NumPy reproduces the draws."""
    assert not seeded(draw), f"{name} is drawn from a seeded generator"
