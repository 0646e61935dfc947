"""The contract of an environment: it simulates the rewards of the rounds that a learner proposes.

`play` returns the participants' data for the protocol, and the regret. An environment of arms
implements `rewards` of single participants. If the reward distribution is known, it also implements
`levels`: the number of participants per level of the codec, at a cost independent of the round's
size.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.assumptions import Remark
from tacit.errors import TacitError
from tacit.protocols.contract import rounded
from tacit.protocols.statistic_sums import StatisticTotals
from tacit.types import Floats, Integers, Levels, Played, PlayedFit, Round

LEAST_PROBABILITY = 1e-18
LARGEST_REMEMBERED = 1 << 15  # most levels of a cached table: 256 tables take at most 128 MB
CHUNK = 1 << 20  # rewards sampled individually per chunk
FINE = 1024  # levels to which unreported rewards are rounded


class World(ABC):
    """A simulation that can play rounds.

    Attributes
    ----------
    names
        The options' names; empty if none are given.
    metrics
        How many numbers each participant reports.

    Examples
    --------
    >>> from tacit.environments import Bernoulli
    >>> world = Bernoulli((0.2, 0.5))
    >>> world.means.tolist(), world.gaps.tolist()
    ([0.2, 0.5], [0.3, 0.0])
    """

    names: tuple[str, ...] = ()
    metrics: int = 1

    @property
    def means(self) -> Floats | None:
        """The true mean reward of each option; None if unknown."""
        return None

    @property
    def gaps(self) -> Floats | None:
        """The suboptimality gap of each option; None if unknown."""
        return None

    @property
    def single_option_regret(self) -> tuple[float, float] | None:
        """Regret per participant of the best single option, and of uniform choice.

        None where contexts do not matter, or means are unknown.
        """
        return None

    @property
    def horizon(self) -> int | None:
        """The number of recorded participants that suffices for any learner; None if unlimited."""
        return None

    @property
    def participations(self) -> int | None:
        """Maximum number of rows of one recorded participant; None if unlimited."""
        return 1

    @property
    def remark(self) -> Remark | None:
        """Remark on a guarantee about recorded participants; None for simulated ones."""
        return None

    @property
    def used(self) -> int | None:
        """The number of recorded rows used so far; None without any."""
        return None

    @abstractmethod
    def play(self, round_: Round, protocol: Any, rng: np.random.Generator) -> Played:
        """Play a round for `protocol.simulate`.

        Parameters
        ----------
        round_ : Round
            The round, with its assignment and number of participants.
        protocol : Protocol or None
            The round's protocol; None if the round is not released.
        rng : numpy.random.Generator
            The source of randomness.

        Returns
        -------
        Played
            Input of `protocol.simulate`, the time and the regret of the round.
        """

    def fresh(self, rng: np.random.Generator) -> World:  # noqa: ARG002
        """The same world at the start of a run."""
        return self


class Environment(World):
    """Simulated rewards in [0, 1] of K arms; subclasses implement `means` and `rewards`.

    Attributes
    ----------
    binary
        Whether all rewards are 0 or 1.
    features
        The options' features, one row each, in which means are linear; None without any.

    Examples
    --------
    >>> from tacit.environments import Bernoulli
    >>> world = Bernoulli((0.2, 0.7))
    >>> world.arms, world.gaps
    (2, array([0.5, 0. ]))
    >>> from tacit.types import Arm
    >>> played = world.play(Round(0, 1000, Arm(0)), None, np.random.default_rng(0))
    >>> played.load.participants, played.regret
    (1000, array([500.]))
    """

    binary: bool = False
    features: Floats | None = None

    @property
    @abstractmethod
    def means(self) -> Floats | None:
        """The true mean reward of each arm; None if unknown."""

    @property
    def arms(self) -> int:
        """The number of arms."""
        means = self.means
        return len(self.names) if means is None else len(means)

    @cached_property
    def gaps(self) -> Floats:
        """The suboptimality gap of each arm: the best mean minus its own."""
        means = self.means
        if means is None:
            raise TacitError("the true means are unknown, so gaps and regret are too. Give means.")
        best: float = means.max()
        return best - means

    @abstractmethod
    def rewards(self, arm: int, users: int, rng: np.random.Generator) -> Floats:
        """The rewards of `users` fresh participants who try `arm`.

        Parameters
        ----------
        arm
            The arm's number, from 0.
        users
            How many participants try it.
        rng
            The source of randomness.

        Returns
        -------
        array
            One reward in [0, 1] per participant.
        """

    def reports(self, arm: int, users: int, rng: np.random.Generator) -> Floats:
        """Sample the participants' reports.

        Parameters
        ----------
        arm : int
            The arm that all of them try.
        users : int
            The number of participants.
        rng : numpy.random.Generator
            The generator.

        Returns
        -------
        ndarray
            The rewards, or one row per participant for several metrics.
        """
        return self.rewards(arm, users, rng)

    def levels(self, arm: int, users: int, precision: int, rng: np.random.Generator) -> Levels:
        """Sample the number of participants per level, after randomised rounding.

        Samples each participant's reward; subclasses with a known distribution sample the counts
        directly.

        Parameters
        ----------
        arm : int
            The arm that all of them try.
        users : int
            The number of participants.
        precision : int
            The largest level.
        rng : numpy.random.Generator
            The generator.

        Returns
        -------
        Levels
            Levels from 0 to `precision`, with counts.
        """
        sizes = [min(CHUNK, users - start) for start in range(0, max(users, 1), CHUNK)]
        parts = [self._counted(arm, size, precision, rng) for size in sizes]
        values, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Levels(values, counts)

    def _counted(
        self, arm: int, users: int, precision: int, rng: np.random.Generator
    ) -> tuple[Integers, Integers]:
        levels = rounded(self.rewards(arm, users, rng) * precision, rng)
        values, counts = np.unique(levels, return_counts=True)
        return values, counts

    def play(self, round_: Round, protocol: Any, rng: np.random.Generator) -> Played:
        """Play a round in which every participant tries its arm.

        Parameters
        ----------
        round_ : Round
            The round.
        protocol : Protocol or None
            Its `simulate` gets the result; None if the round is not released.
        rng : numpy.random.Generator
            The generator.
        """
        if isinstance(round_.assignment, PlayedFit):
            return self._play_fit(round_.assignment, round_.participants, protocol, rng)
        arm, count = round_.arm, round_.participants
        precision = FINE if protocol is None else protocol.precision
        load = self.levels(arm, count, precision, rng)
        return self.played(arm, count, load, load.total / precision)

    def _play_fit(
        self, fit: PlayedFit, count: int, protocol: Any, rng: np.random.Generator
    ) -> Played:
        """Every participant tries all options of a fit; the regret is the mean over their plays."""
        precision = FINE if protocol is None else protocol.statistic.precision
        many, totals, earned = sum(fit.plays), 0, 0.0
        for start in range(0, count, CHUNK // many):
            size = min(CHUNK // many, count - start)
            sums = np.zeros((size, len(fit.support)))
            for place, (arm, plays) in enumerate(zip(fit.support, fit.plays, strict=True)):
                scaled = self.rewards(arm, size * plays, rng) * precision
                levels = rounded(scaled, rng) / precision
                earned += float(levels.sum()) / many
                sums[:, place] = (levels - 0.5).reshape(size, plays).sum(axis=1)
            if protocol is not None:
                totals = totals + protocol.statistic.fitted_total(fit.policy, sums, rng)
        load = None if protocol is None else StatisticTotals(np.asarray(totals), count)
        time = np.array([float(count)])
        if self._best is None:
            return Played(load, time, None)
        lost = float(self.gaps[np.array(fit.support)] @ np.array(fit.plays)) / many
        return Played(load, time, np.array([lost * count]), self._best * count - earned)

    def played(self, arm: int, count: int, load: Any, earned: float) -> Played:
        """The result of a round, with its regret.

        Parameters
        ----------
        arm : int
            The arm that was tried.
        count : int
            The number of participants.
        load : Levels or ndarray
            Their reports, for `protocol.simulate`.
        earned : float
            The sum of their rewards.
        """
        time = np.array([float(count)])
        if self._best is None:
            return Played(load, time, None)
        lost = self._best * count - earned
        return Played(load, time, np.array([float(self.gaps[arm]) * count]), lost)

    @cached_property
    def _best(self) -> float | None:
        means = self.means
        return None if means is None else float(means.max())


class ContinuousEnvironment(Environment):
    """Rewards with a known distribution function, from which level probabilities are computed.

    Notes
    -----
    Randomised rounding sends a reward x to level j with probability max(0, 1 - |gx - j|). With
    H(c) = E[(c - X)⁺], the integral of the distribution function,

        P[level j] = g (H((j+1)/g) - 2 H(j/g) + H((j-1)/g)).

    The same holds for E[(X - c)⁺], which differs by a linear function. Below the mean H is the
    smaller of the two and loses fewer digits; above the mean the other one.

    Examples
    --------
    >>> from tacit.environments import Beta
    >>> Beta((0.25, 0.5)).shortfall(1, np.array([1.0])).tolist()
    [0.5]
    """

    @abstractmethod
    def shortfall(self, arm: int, c: Floats) -> Floats:
        """E[(c - X)⁺] for c in [0, 1].

        Parameters
        ----------
        arm : int
            The arm's number, from 0.
        c : array of float
            The points c.
        """

    @abstractmethod
    def excess(self, arm: int, c: Floats) -> Floats:
        """E[(X - c)⁺] for c in [0, 1].

        Parameters
        ----------
        arm : int
            The arm's number, from 0.
        c : array of float
            The points c.
        """

    def levels(self, arm: int, users: int, precision: int, rng: np.random.Generator) -> Levels:
        """One multinomial sample over the levels of non-negligible probability."""
        table = remembered_table if precision <= LARGEST_REMEMBERED else level_table
        values, probabilities = table(self, arm, precision)
        return Levels(values, rng.multinomial(users, probabilities))


def level_table(
    environment: ContinuousEnvironment, arm: int, precision: int
) -> tuple[npt.NDArray[np.int64], Floats]:
    """Levels and their probabilities, the most likely last.

    A multinomial sampler divides by the remaining probability, which must not be rounding error.

    Parameters
    ----------
    environment : ContinuousEnvironment
        The distribution of rewards.
    arm : int
        The arm's number, from 0.
    precision : int
        The number of levels above 0.

    Returns
    -------
    levels, probabilities : arrays
        The levels of non-negligible probability, and their probabilities.

    Examples
    --------
    >>> from tacit.environments import Beta
    >>> levels, probabilities = level_table(Beta((0.25, 0.5)), 1, 2)
    >>> levels.tolist(), probabilities.round(4).tolist()
    ([0, 2, 1], [0.1875, 0.1875, 0.625])
    """
    grid = np.arange(precision + 1) / precision
    below, above = environment.shortfall(arm, grid), environment.excess(arm, grid)
    # one level outside [0, 1], shortfall and excess are 0
    start, end = np.concatenate([[0.0], below]), np.concatenate([above, [0.0]])
    left, right = np.diff(start, n=2), np.diff(end, n=2)  # of levels 0..g-1, and of levels 1..g
    inner = np.where(grid[1:-1] < 1 - below[-1], left[1:], right[:-1])
    probabilities = precision * np.concatenate([left[:1], inner, right[-1:]]).clip(min=0.0)
    order = np.argsort(probabilities, kind="stable")
    kept = order[probabilities[order] > LEAST_PROBABILITY]
    return kept, probabilities[kept] / probabilities[kept].sum()


remembered_table = lru_cache(maxsize=256)(level_table)


def check_means(means: npt.ArrayLike) -> Floats:
    """Means as an array; rejected unless in [0, 1].

    Parameters
    ----------
    means : array_like
        The mean reward of each of two or more arms.

    Returns
    -------
    array
        The means in double precision.

    Raises
    ------
    TacitError
        If there are fewer than two, or one is outside of [0, 1].

    Examples
    --------
    >>> check_means((0.31, 0.47)).tolist()
    [0.31, 0.47]
    """
    array = np.asarray(means, dtype=float)
    if array.ndim != 1 or len(array) < 2:
        raise TacitError(
            f"means has {array.size} value(s): must be a list of two or more, such as 0.31,0.47."
        )
    if not (np.all(array >= 0) and np.all(array <= 1)):
        raise TacitError(
            f"means are {array.tolist()}: must lie in [0, 1], as rewards do. Rescale them."
        )
    return array


INSTANCES = {"easy": (0.25, 0.75), "hard": (0.45, 0.55), "rare": (0.01, 0.05)}


def instance_means(name: str, arms: int, seed: int) -> Floats:
    """Means of a named random instance.

    Uniform in [0.25, 0.75] (`easy`) or [0.45, 0.55] (`hard`), CZ23 Section 7; or in [0.01, 0.05]
    (`rare`), as click rates are. NumPy's legacy generator reproduces the authors' instances: seed r
    gives the r-th of them.

    Parameters
    ----------
    name : str
        `easy`, `hard` or `rare`.
    arms : int
        The number of arms.
    seed : int
        The seed of the instance.

    Returns
    -------
    array
        One mean reward per arm.

    Raises
    ------
    TacitError
        If there is no instance of this name.

    Examples
    --------
    >>> instance_means("easy", 3, seed=0).round(3)
    array([0.524, 0.608, 0.551])
    """
    if name not in INSTANCES:
        raise TacitError(
            f"instance is {name!r}: must be one of {', '.join(INSTANCES)}. Or give the means."
        )
    low, high = INSTANCES[name]
    return low + (high - low) * np.random.RandomState(seed).random_sample(arms)
