"""Goodness-of-fit tests that every sampler must pass: chi-square with pooled tails, adjacent
log-ratios, signs.

Each test returns a p-value; `suspicions` runs all of them so that a right sampler is suspected with
probability at most `ALARM` per call. `draw` cannot be seeded, so the alarm rate is tiny: the suite
makes fewer than 100 unseeded calls, and a false alarm comes once in a million runs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import stats

from tacit.noise import NoiseDistribution

ALARM = 1e-8
_LEAST_EXPECTED = 50.0
_MOST_CELLS = 200

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


def suspicions(
    values: npt.ArrayLike, distribution: NoiseDistribution, alarm: float = ALARM
) -> dict[str, float]:
    """The tests that these values fail, with their p-values; empty for a right sampler but for a
    chance of `alarm`.
    """
    sample = np.asarray(values, dtype=np.int64)
    p_values = {
        "chi-square": chi_square(sample, distribution),
        "adjacent log-ratios": adjacent_ratios(sample, distribution),
    }
    if distribution.symmetric and distribution.mean == 0:
        p_values["signs"] = signs(sample)
    return {name: p for name, p in p_values.items() if p < alarm / len(p_values)}


def chi_square(sample: Integers, distribution: NoiseDistribution) -> float:
    """Pearson's test; neighbours are pooled until at least 50 are expected in every cell, tails
    included.
    """
    first, last = int(sample.min()), int(sample.max())
    inner = len(sample) * distribution.pmf(np.arange(first, last + 1))
    expected = np.concatenate(
        [
            [len(sample) * distribution.cdf(first - 1)],
            inner,
            [len(sample) * distribution.tail(last)],
        ]
    )
    observed = np.concatenate([[0], np.bincount(sample - first, minlength=len(inner)), [0]])
    if np.any(observed[expected == 0]):
        return 0.0
    cell = _cells(expected, max(_LEAST_EXPECTED, len(sample) / _MOST_CELLS))
    pooled_expected = np.bincount(cell, weights=expected)
    pooled_observed = np.bincount(cell, weights=observed)
    statistic = float(((pooled_observed - pooled_expected) ** 2 / pooled_expected).sum())
    return float(stats.chi2.sf(statistic, max(1, len(pooled_expected) - 1)))


def _cells(expected: Floats, least: float) -> Integers:
    """The cell of every value: a cell is closed once enough is expected in it; what is left over
    joins the last one.
    """
    cell, cells, filled = 0, np.zeros(len(expected), dtype=np.int64), 0.0
    for i, mass in enumerate(expected):
        if filled >= least:
            cell, filled = cell + 1, 0.0
        cells[i] = cell
        filled += mass
    if filled < least and cell:
        cells[cells == cell] = cell - 1
    return cells


def adjacent_ratios(sample: Integers, distribution: NoiseDistribution) -> float:
    """Given k or k+1, it is k+1 with odds pmf(k+1)/pmf(k): an exact binomial test at every k,
    combined.
    """
    first, last = int(sample.min()), int(sample.max())
    points = np.arange(first - 1, last + 2)
    counts = np.concatenate([[0], np.bincount(sample - first, minlength=last - first + 1), [0]])
    mass = distribution.pmf(points)
    pairs = np.flatnonzero(len(sample) * (mass[1:] + mass[:-1]) >= _LEAST_EXPECTED)
    if not len(pairs):
        return 1.0
    total, upper = counts[pairs] + counts[pairs + 1], counts[pairs + 1]
    chance = mass[pairs + 1] / (mass[pairs] + mass[pairs + 1])
    below, above = stats.binom.cdf(upper, total, chance), stats.binom.sf(upper - 1, total, chance)
    return min(1.0, 2 * len(pairs) * float(np.minimum(below, above).min()))


def signs(sample: Integers) -> float:
    """As many above zero as below: an exact binomial test."""
    above, below = int((sample > 0).sum()), int((sample < 0).sum())
    return min(1.0, 2 * float(stats.binom.cdf(min(above, below), above + below, 0.5)))
