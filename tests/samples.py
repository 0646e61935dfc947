"""Two-sample tests with a p-value, for distributions that must be equal."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import stats

from tacit.noise import NoiseDistribution

Floats = npt.NDArray[np.float64]


def same_distribution(one: npt.ArrayLike, other: npt.ArrayLike, cells: int = 24) -> float:
    """The p-value of a chi-square test that two samples have one distribution, on cells of about
    equal pooled mass.

    Values that are equal stay together, so it serves integers as well as reals; at least 20 of the
    pooled sample are in a cell.
    """
    first, second = (np.asarray(sample, dtype=float) for sample in (one, other))
    pooled = np.sort(np.concatenate([first, second]))
    smaller = min(len(first), len(second)) * len(pooled) / (len(first) + len(second))
    count = max(2, min(cells, int(smaller // 20)))
    edges = np.unique(np.quantile(pooled, np.linspace(0, 1, count + 1)[1:-1], method="nearest"))
    table = np.array(
        [
            np.bincount(np.searchsorted(edges, sample, side="left"), minlength=len(edges) + 1)
            for sample in (first, second)
        ]
    )
    table = table[:, table.sum(axis=0) > 0]
    if table.shape[1] < 2:
        return 1.0
    return float(stats.chi2_contingency(table, correction=False).pvalue)


def z_score(sample: npt.ArrayLike, mean: float) -> float:
    """How many standard errors the mean of a sample is from what it should be; 0 where nothing
    varies and it is exact.
    """
    values = np.asarray(sample, dtype=float)
    off, error = float(values.mean()) - mean, float(values.std(ddof=1)) / len(values) ** 0.5
    return off / error if error else (0.0 if abs(off) < 1e-9 else float("inf"))


def follows(sample: npt.ArrayLike, distribution: NoiseDistribution, cells: int = 10) -> float:
    """The p-value of a chi-square test that a small sample has this distribution, on cells of
    equal mass.

    Each value is spread evenly over what the distribution gives it, so that cells need not fall
    between integers.
    """
    values = np.asarray(sample, dtype=np.int64)
    points, where = np.unique(values, return_inverse=True)
    below = np.array([distribution.cdf(int(point) - 1) for point in points])
    spread = np.random.default_rng(0).random(len(values)) * distribution.pmf(points)[where]
    level = np.clip(below[where] + spread, 0.0, 1 - 1e-12)
    counts = np.bincount((level * cells).astype(np.int64), minlength=cells)
    return float(stats.chisquare(counts).pvalue)
