"""Where the options stand: means with intervals, and how likely each is to be the best.

Estimates of an option's rounds are added up. Intervals are normal ones for a fixed number of
participants, and the probability to be best is that of independent normal means: both describe what
was seen, and neither allows for having looked before or for having stopped because of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from scipy.special import ndtr

from tacit.estimates import Estimate, Floats, Standing

REACH = 8.0  # standard deviations about a mean within which anything can happen
POINTS = 10_000  # of the integral that gives the probability to be best, all options together
LEAST = 1e-12  # a smaller spread, such as that of an action that is zero, is none


@dataclass
class Tally:
    """All estimates of one option: participants, estimated sum, variance of the noise in it."""

    participants: int = 0
    total: float = 0.0
    noise: float = 0.0

    def add(self, estimate: Estimate) -> None:
        """Take in the estimate of one round."""
        self.participants += int(estimate.error.participants)
        self.total += float(estimate.total)
        self.noise += float(estimate.error.variance)

    @property
    def mean(self) -> float | None:
        """The estimated mean; None before anything was seen."""
        return self.total / self.participants if self.participants else None

    @property
    def spread(self) -> float:
        """The standard deviation of the mean: sampling as of a coin that was shrunk a little
        towards one half, and noise.
        """
        if not self.participants:
            return math.inf
        n = self.participants
        rate = min(max((self.total + 1) / (n + 2), 0.0), 1.0)
        return math.sqrt(max(rate * (1 - rate), 0.25 / n) / n + self.noise / n**2)


Known = tuple[int, float | None, float]  # participants, mean, standard deviation of the mean


def standings(
    known: Sequence[Known], names: Sequence[str], level: float, lowest: float = 0.0
) -> list[Standing]:
    """One row per option; rewards lie between `lowest` and 1 (or its mirror image).

    >>> seen = [(1000, 0.42, 0.02), (1000, 0.61, 0.02)]
    >>> [(row.option, row.mean, round(row.best, 6)) for row in standings(seen, ["a", "b"], 0.95)]
    [('a', 0.42, 0.0), ('b', 0.61, 1.0)]
    """
    highest = 1.0 if lowest == 0 else -lowest
    width = NormalDist().inv_cdf((1 + level) / 2)
    rows = []
    for name, (count, mean, spread), chance in zip(names, known, best_of(known), strict=True):
        centre = (lowest + highest) / 2 if mean is None else mean
        low, high = max(lowest, centre - width * spread), min(highest, centre + width * spread)
        rows.append(Standing(name, count, mean, min(low, highest), max(high, lowest), chance))
    return rows


def best_of(known: Sequence[Known]) -> list[float]:
    """P[option k has the largest mean], for independent normal means; equal shares where nothing
    is known of any.
    """
    if not any(math.isfinite(spread) for _, _, spread in known):
        return [1 / max(1, len(known))] * len(known)
    means = np.array([0.5 if mean is None else mean for _, mean, _ in known])
    spreads = np.array([spread if math.isfinite(spread) else 1.0 for _, _, spread in known])
    spreads = np.maximum(spreads, LEAST)
    rivals = np.flatnonzero(means + REACH * spreads >= (means - REACH * spreads).max())
    nodes = np.linspace(-REACH, REACH, min(401, max(21, POINTS // len(rivals))))
    points = np.unique(means[rivals, None] + spreads[rivals, None] * nodes)

    def below(k: int) -> Floats:
        chance: Floats = ndtr((points - means[k]) / spreads[k])
        return np.maximum(chance, 1e-300)

    every = np.zeros(len(points))
    for k in rivals:
        every += np.log(below(k))
    points, every = points[every > -100], every[every > -100]  # where the best can be at all
    chances = np.zeros(len(known))
    for k in rivals:
        own = below(k)
        others = np.exp(every - np.log(own))
        chances[k] = (others[1:] + others[:-1]) @ np.diff(own) / 2
    return [float(chance) for chance in chances / chances.sum()]
