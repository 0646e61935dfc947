"""Mean rewards of segments and options, fitted to noisy histograms, round by round.

A round releases noisy counts of successes and failures per cell (segment, option). Their difference
is the sum of centred rewards, their sum the number of plays. The number of plays is also expected
from the public policy and the pooled shares of segments; both are combined by their variances. A
round's weight in a cell with v expected plays is v / (R² v + ν), R² = ¼: cells in which noise
exceeds the signal hardly count. The prior of all cells is fitted to them (empirical Bayes).

The spread decides what is explored, and is no confidence interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, roots_hermite

from tacit.bandits.contextual.histograms import Histograms
from tacit.bandits.contextual.moment_fit import VARIANCE
from tacit.types import Floats

WIDEST, NARROWEST = 0.25, 0.05  # standard deviation of the prior
ENOUGH = 10  # cells from which a prior is fitted
PASSES = 4
RAREST = 1e-4  # least share of a segment
POINTS = 32  # of quadrature
REST = 1.3  # the noise of plays, relative to that of centred sums, once rewards are known roughly


@dataclass(frozen=True, eq=False)
class TableHistograms(Histograms):
    """Released histograms of all rounds: rounds × segments × options.

    Parameters
    ----------
    policies
        The probability of every option in every segment.
    """

    policies: Floats


@dataclass(frozen=True, eq=False)
class TableFit:
    """Estimated centred means of all cells with their variances; segments × options.

    `shares` are the estimated shares of segments; `noise` is the variance of the noise in the last
    round's centred sums.
    """

    mean: Floats
    variance: Floats
    shares: Floats
    noise: float

    def after(self, plays: Floats) -> Floats:
        """The variances after this many more plays in one round."""
        known = plays**2 / np.maximum(VARIANCE * plays + REST * self.noise, 1e-9)
        return np.asarray(1 / (1 / self.variance + known))


def table_prior(segments: int, options: int) -> TableFit:
    """The fit before any round."""
    size = (segments, options)
    shares = np.full(segments, 1 / segments)
    return TableFit(np.zeros(size), np.full(size, WIDEST**2), shares, 0.0)


def fitted_table(histograms: TableHistograms) -> TableFit:
    """The weighted fit of all rounds."""
    centred, plays = (histograms.wins - histograms.losses) / 2, histograms.wins + histograms.losses
    first_noise = histograms.noise[:, None, None] / 2
    second_noise = 4 * first_noise
    shares = np.maximum(plays.sum(axis=(0, 2)) / max(float(plays.sum()), 1.0), RAREST)
    shares /= shares.sum()
    weights, plays, spare = _plays(histograms, plays, shares, second_noise)
    centre, width = 0.0, WIDEST
    mean = np.full(plays.shape[1:], centre)
    for step in range(PASSES):
        noise = first_noise + spare * (mean**2 + 0.01)
        gains = weights / np.maximum(VARIANCE * weights + noise, 1e-300)
        held, total = (gains * plays).sum(axis=0), (gains * centred).sum(axis=0)
        spread = (gains**2 * (VARIANCE * plays + noise)).sum(axis=0)
        ridge = width**-2
        mean = (total + centre * ridge) / np.maximum(held + ridge, ridge / 2)
        variance = (np.maximum(spread, 0.0) + ridge) / np.maximum(held + ridge, ridge / 2) ** 2
        if step:
            centre, width = _fitted_prior(held, total, (centre, width))
    last = float(first_noise[-1, 0, 0])
    return TableFit(mean, np.clip(variance, 1e-12, WIDEST**2), shares, last)


def _plays(
    histograms: TableHistograms, plays: Floats, shares: Floats, noise: Floats
) -> tuple[Floats, Floats, Floats]:
    """Expected plays, the combination with the noisy counts, and the variance that is left."""
    participants = histograms.people[:, None, None]
    if not float(noise.max()) > 0:
        return np.maximum(plays, 1e-9), plays, np.zeros_like(plays)
    expected = participants * shares[None, :, None] * histograms.policies
    total = float(histograms.people.sum())
    cells = plays.shape[0] * plays.shape[2] * float(noise.mean())
    uncertain = cells / total**2 + shares / total
    spread = expected + (participants * histograms.policies) ** 2 * uncertain[None, :, None] + 1e-9
    share = spread / (noise + spread)
    combined = share * plays + (1 - share) * expected
    return np.maximum(expected, 1e-9), combined, noise * spread / (noise + spread)


def _fitted_prior(held: Floats, total: Floats, before: tuple[float, float]) -> tuple[float, float]:
    """Prior of the cells' means, fitted by moments; unchanged where too few cells are known."""
    variances = 1 / np.maximum(held, 1e-9)
    known = variances < 0.25
    if int(known.sum()) <= ENOUGH:
        return before
    raw, own = total[known] / held[known], variances[known]
    weights = 1 / (own + before[1] ** 2)
    centre = float(weights @ raw / weights.sum())
    square = float(weights @ ((raw - centre) ** 2 - own) / weights.sum())
    return centre, math.sqrt(min(max(square, NARROWEST**2), WIDEST**2))


def best_probabilities(mean: Floats, variance: Floats) -> Floats:
    """P[option is the best] in every segment for independent normal means, by quadrature.

    >>> found = best_probabilities(np.array([[0.0, 0.0, -9.0]]), np.full((1, 3), 0.01))
    >>> found.round(6).tolist()
    [[0.5, 0.5, 0.0]]
    """
    nodes, weights = roots_hermite(POINTS)
    std = np.sqrt(variance)
    points = mean[:, :, None] + math.sqrt(2) * std[:, :, None] * nodes
    below = ndtr((points[:, :, None, :] - mean[:, None, :, None]) / std[:, None, :, None])
    own = np.eye(mean.shape[1], dtype=bool)[None, :, :, None]
    found = np.where(own, 1.0, below).prod(axis=2) @ weights
    return np.asarray(found / found.sum(axis=1, keepdims=True))
