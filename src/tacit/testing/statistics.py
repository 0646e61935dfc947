"""The statistics of the suites: chi-square against a law, and sources that must not be seeded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import chdtrc

from tacit.noise import NoiseLaw
from tacit.noise.goodness_of_fit import seeded

SEEDED = 1e-6  # false-alarm rate of a seeded check, had the seed been chosen at random
UNSEEDED = 1e-9  # of a check of exact draws, which no seed repeats
EXPECTED = 8.0  # least expected count of a class


def follows(values: Sequence[int], law: NoiseLaw) -> float:
    """The chi-square p-value of integer values against a law, classes joined where few are
    expected.
    """
    observed = np.asarray(values, dtype=np.int64)
    low, high = law.window(-40.0)
    if int(observed.min()) < low or int(observed.max()) > high:
        return 0.0
    points = np.arange(max(low, int(observed.min()) - 1), min(high, int(observed.max()) + 1) + 1)
    expected = len(observed) * law.pmf(points)
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


def check_source(draw: Callable[[], Any], what: str) -> None:
    """Fails if resetting the seeds of Python and NumPy repeats what is drawn."""
    assert not seeded(draw), f"{what} is drawn from a seeded generator"
