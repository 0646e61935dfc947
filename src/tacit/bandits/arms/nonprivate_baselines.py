"""Non-private baselines: the textbook learners on exact sums, in the same harness.

UCB1 (Auer, Cesa-Bianchi & Fischer 2002), KL-UCB (Garivier & Cappé 2011), Thompson sampling (Agrawal
& Goyal 2012), successive elimination (Even-Dar, Mannor & Mansour 2006). They treat estimates as
exact: with noisy ones their guarantees are void. With `lazy` > 0 a chosen arm gets max(1, ⌊lazy ·
pulls⌋) participants before the next decision; 0 is the textbook version.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from itertools import accumulate, pairwise
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from tacit.bandits.arms.bounds import NOTHING_KNOWN, MeanBound, leader
from tacit.bandits.arms.divergence import kl_upper
from tacit.bandits.arms.elimination import Elimination
from tacit.bandits.contract import KeptLearner, Plan, check_horizon
from tacit.errors import Number, as_fraction, integer, require
from tacit.types import Arm, Estimate, Round

DRAWS = 100  # posterior samples of Thompson sampling per decision


def check_lazy(lazy: Number) -> None:
    """Reject a negative growth."""
    rule = "0 (decide after every user) or more, such as 0.01"
    require(as_fraction("lazy", lazy) >= 0, "lazy", lazy, rule)


def divided(block: int, winners: npt.NDArray[np.int64], arms: int) -> list[int]:
    """The participants of each arm, if it gets the part of a block that it won samples.

    >>> divided(10, np.array([0, 2, 2]), 3)
    [3, 0, 7]
    """
    wins = np.bincount(winners, minlength=arms).tolist()
    ends = [won * block // len(winners) for won in accumulate(wins)]
    return [end - start for start, end in pairwise([0, *ends])]


class IndexLearner(KeptLearner):
    """Tries every arm once, then always the arm with the largest index.

    Parameters
    ----------
    arms, horizon
        As in `Learner`.
    lazy : Number
        A batch has this fraction of the chosen arm's participants so far; 0 for one by one.
    """

    kept: ClassVar[tuple[str, ...]] = ("_sums", "_pulls")
    needs_horizon = False  # indices depend on past estimates only

    def __init__(self, arms: int, horizon: int, lazy: Number = 0.01) -> None:
        super().__init__(arms, horizon)
        check_horizon(self.arms, self.horizon)
        check_lazy(lazy)
        self.lazy = lazy
        self._sums = [0.0] * self.arms
        self._pulls = [0] * self.arms

    @abstractmethod
    def _choose(self) -> int:
        """The arm with the largest index, once all were tried."""

    def best(self) -> int:
        """The arm with most participants."""
        return max(range(self.arms), key=self._pulls.__getitem__)

    def _plan(self) -> Plan:
        new = [arm for arm in range(self.arms) if not self._pulls[arm]]
        if new:
            return [(Arm(arm), 1) for arm in new]
        arm = self._choose()
        size = max(1, math.floor(self.lazy * self._pulls[arm]))
        return [(Arm(arm), min(size, self.horizon - self.played))]

    def _learn(self, round_: Round, estimate: Estimate) -> None:
        self._sums[round_.arm] += float(estimate.total)
        self._pulls[round_.arm] += int(estimate.error.participants)


class UCB1(IndexLearner):
    """Mean plus √(2 ln t / n).

    >>> [round_.arm for round_ in UCB1(arms=3, horizon=100).propose()]
    [0, 1, 2]
    """

    def _choose(self) -> int:
        width = 2 * math.log(self.played)
        indices = [
            total / n + math.sqrt(width / n)
            for total, n in zip(self._sums, self._pulls, strict=True)
        ]
        return indices.index(max(indices))


class KLUCB(IndexLearner):
    """The largest mean q with n · kl(mean, q) <= ln t.

    >>> [round_.arm for round_ in KLUCB(arms=3, horizon=100).propose()]
    [0, 1, 2]
    """

    kept = (*IndexLearner.kept, "_bounds")

    def __init__(self, arms: int, horizon: int, lazy: Number = 0.01) -> None:
        super().__init__(arms, horizon, lazy)
        self._bounds = [NOTHING_KNOWN] * self.arms

    def _choose(self) -> int:
        level = math.log(self.played)
        return leader(self._bounds, level, lambda arm: self._bound(arm, level))

    def _bound(self, arm: int, level: float) -> MeanBound:
        pulls = self._pulls[arm]
        value, slope = kl_upper(min(max(self._sums[arm] / pulls, 0.0), 1.0), level, pulls)
        return MeanBound(value, slope, 0.0, level)

    def _learn(self, round_: Round, estimate: Estimate) -> None:
        super()._learn(round_, estimate)
        self._bounds[round_.arm] = NOTHING_KNOWN


class Thompson(IndexLearner):
    """Thompson sampling: samples from Beta(1 + S, 1 + n - S), S the sum of rewards.

    Exact for Bernoulli rewards under a uniform prior. With `lazy` > 0 the next lazy · t
    participants are divided at once, by up to 100 samples from the same posteriors: a batch that
    grew with its own arm would starve the others. `seed` makes a run reproducible; the generator's
    state is serialised.

    Parameters
    ----------
    arms, horizon
        As in `Learner`.
    lazy : Number
        The fraction of all participants so far that the next batches divide; 0 for one by one.
    seed : int
        The seed of the posterior samples.

    Examples
    --------
    >>> Thompson(arms=3, horizon=100, seed=7).propose()[0].participants
    1
    """

    kept = (*IndexLearner.kept, "_generator")

    def __init__(self, arms: int, horizon: int, lazy: Number = 0.01, seed: int = 0) -> None:
        super().__init__(arms, horizon, lazy)
        self.seed = integer("seed", seed, at_least=0)
        self._generator = np.random.Generator(np.random.PCG64(self.seed))

    def _choose(self) -> int:
        return int(self._winners(1)[0])

    def _winners(self, draws: int) -> npt.NDArray[np.int64]:
        pulls = np.array(self._pulls, dtype=float)
        ones = np.minimum(np.maximum(self._sums, 0.0), pulls)
        samples = self._generator.beta(1 + ones, 1 + pulls - ones, (draws, self.arms))
        winners: npt.NDArray[np.int64] = np.argmax(samples, axis=1)
        return winners

    def _plan(self) -> Plan:
        block = min(math.floor(self.lazy * self.played), self.horizon - self.played)
        if block <= 1 or not all(self._pulls):
            return super()._plan()
        draws = min(block, DRAWS)
        sizes = divided(block, self._winners(draws), self.arms)
        return [(Arm(arm), size) for arm, size in enumerate(sizes) if size]


class SuccessiveElimination(Elimination):
    """Plays every active arm in turn; drops arms two radii √(ln(4Kn²/p) / 2n) below the best mean.

    Parameters
    ----------
    arms, horizon
        As in `Learner`.
    failure_probability : Number
        The probability p with which the best arm may be dropped.
    lazy : Number
        A batch has this fraction of an active arm's participants so far; 0 for one by one.

    Examples
    --------
    >>> [round_.participants for round_ in SuccessiveElimination(3, 100).propose()]
    [1, 1, 1]
    """

    def __init__(
        self, arms: int, horizon: int, failure_probability: Number = 0.1, lazy: Number = 0.01
    ) -> None:
        super().__init__(arms, horizon, failure_probability, "paper")
        check_lazy(lazy)
        self.lazy = lazy

    def _size(self) -> int:
        return max(1, math.floor(self.lazy * self._sums[self._active[0]][1]))

    def _width(self, users: int) -> float:
        return math.sqrt(
            math.log(4 * self.arms * users**2 / float(self.failure_probability)) / (2 * users)
        )
