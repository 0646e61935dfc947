"""The contract of an environment: where rewards in [0, 1] come from.

An environment can hand out the rewards of single users, or at once how many of a batch's users hold each level of the codec. Both have the
same law; the second costs as much as there are levels, however many users there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tacit.checks import TacitError
from tacit.protocols.contract import Levels

Floats = npt.NDArray[np.float64]
LEAST_PROBABILITY = 1e-18


class Environment(ABC):
    """K arms with rewards in [0, 1]."""

    binary: bool = False

    @property
    @abstractmethod
    def means(self) -> Floats:
        """The true mean reward of each arm."""

    @property
    def arms(self) -> int:
        """How many arms there are."""
        return len(self.means)

    @property
    def gaps(self) -> Floats:
        """How much worse than the best each arm is."""
        best: float = self.means.max()
        return best - self.means

    @abstractmethod
    def rewards(self, arm: int, users: int, rng: np.random.Generator) -> Floats:
        """The rewards of `users` fresh users who try `arm`."""

    @abstractmethod
    def levels(self, arm: int, users: int, precision: int, rng: np.random.Generator) -> Levels:
        """How many of `users` fresh users hold each level 0..precision, after rounding at random."""


class ContinuousEnvironment(Environment):
    """Rewards with a distribution function; level probabilities are second differences of its integral.

    Rounding at random sends a reward x to level j with probability max(0, 1 - |gx - j|). With H(c) = E[(c - X)⁺], the integral of the
    distribution function, that makes P[level j] = g (H((j+1)/g) - 2 H(j/g) + H((j-1)/g)).
    """

    @abstractmethod
    def shortfall(self, arm: int, c: Floats) -> Floats:
        """H(c) = E[(c - X)⁺] for c in [0, 1]."""

    def levels(self, arm: int, users: int, precision: int, rng: np.random.Generator) -> Levels:
        """One multinomial draw over the levels that matter."""
        values, probabilities = self._table(arm, precision)
        return Levels(values, rng.multinomial(users, probabilities))

    def _table(self, arm: int, precision: int) -> tuple[npt.NDArray[np.int64], Floats]:
        return _level_table(self, arm, precision)


@lru_cache(maxsize=4096)
def _level_table(environment: ContinuousEnvironment, arm: int, precision: int) -> tuple[npt.NDArray[np.int64], Floats]:
    grid = np.arange(-1, precision + 2) / precision
    inside = environment.shortfall(arm, np.clip(grid, 0.0, 1.0))
    integral = inside + np.maximum(0.0, grid - 1.0)
    integral[0] = 0.0
    probabilities = (precision * (integral[2:] - 2 * integral[1:-1] + integral[:-2])).clip(min=0.0)
    keep = probabilities > LEAST_PROBABILITY
    kept = probabilities[keep]
    return np.flatnonzero(keep), kept / kept.sum()


def check_means(means: npt.ArrayLike) -> Floats:
    """Means as an array, refused outside [0, 1]."""
    array = np.asarray(means, dtype=float)
    if array.ndim != 1 or len(array) < 2:
        raise TacitError(f"got {array.size} mean(s); a bandit needs a list of two or more, such as 0.31,0.47")
    if not (np.all(array >= 0) and np.all(array <= 1)):
        raise TacitError(f"means are {array.tolist()}; rewards lie in [0, 1], so means must too: rescale them")
    return array


INSTANCES = {"easy": (0.25, 0.75), "hard": (0.45, 0.55)}


def instance_means(name: str, arms: int, seed: int) -> Floats:
    """Means of a named random instance: uniform in [0.25, 0.75] (easy) or [0.45, 0.55] (hard), CZ23 Section 7.

    The legacy generator is used because the authors used it: seed r gives the r-th of their instances.

    >>> instance_means("easy", 3, seed=0).round(3)
    array([0.524, 0.608, 0.551])
    """
    if name not in INSTANCES:
        raise TacitError(f"instance is {name!r}; it must be easy or hard, or give the means themselves")
    low, high = INSTANCES[name]
    return low + (high - low) * np.random.RandomState(seed).random_sample(arms)
