"""Published baselines under pure DP with a trusted server, as printed.

AdaP-KLUCB (Azize & Basu 2022) and Lazy-DP-TS (Hu & Hegde 2022). Both use an arm's last batch only,
whose size doubles, and add a bonus to its mean for the Laplace noise of scale 1/ε. The protocol
adds the noise; these learners use only ε.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar

import numpy as np

from tacit.bandits.arms.divergence import kl_upper
from tacit.bandits.arms.nonprivate_baselines import DRAWS, check_lazy, divided
from tacit.bandits.contract import KeptLearner, Plan, check_horizon
from tacit.errors import Number, integer, positive
from tacit.types import Arm, Estimate, Round


class LastBatch(KeptLearner):
    """Base of learners that use an arm's last batch only, with a bonus for the noise.

    Parameters
    ----------
    arms, horizon
        As in `Learner`.
    epsilon : Number
        The ε of the protocol's guarantee.
    """

    kept: ClassVar[tuple[str, ...]] = ("_means", "_sizes")
    needs_horizon = False  # indices contain ln t

    def __init__(self, arms: int, horizon: int, epsilon: Number) -> None:
        super().__init__(arms, horizon)
        check_horizon(self.arms, self.horizon)
        positive("epsilon", epsilon, "for no privacy use KLUCB or Thompson")
        self.epsilon = epsilon
        self._means = [0.0] * self.arms
        self._sizes = [0] * self.arms

    @abstractmethod
    def _choose(self) -> Plan:
        """The next rounds, once every arm was tried."""

    def best(self) -> int:
        """The arm with the largest last batch; ties go to the largest estimate."""
        return max(range(self.arms), key=lambda arm: (self._sizes[arm], self._means[arm]))

    def _plan(self) -> Plan:
        new = [arm for arm in range(self.arms) if not self._sizes[arm]]
        return [(Arm(arm), 1) for arm in new] if new else self._choose()

    def _raised(self, arm: int, level: float) -> float:
        """The mean of the last batch plus level/(ε n), clipped to [0, 1]."""
        offset = level / (float(self.epsilon) * self._sizes[arm])
        return min(max(self._means[arm] + offset, 0.0), 1.0)

    def _learn(self, round_: Round, estimate: Estimate) -> None:
        self._means[round_.arm] = float(estimate.mean)
        self._sizes[round_.arm] = int(estimate.error.participants)


class AdaPKLUCB(LastBatch):
    """KL-UCB on an arm's last episode; each episode doubles the chosen arm's number of plays.

    The index is the largest q with n·kl(m, q) <= α ln t, n the participants of the last episode and
    m its private mean plus α ln t/(ε n), clipped to [0, 1]. `alpha` is 3.1 in the paper's
    experiments.

    Parameters
    ----------
    alpha : Number
        The exploration parameter α; the analysis is for α > 3.

    Examples
    --------
    >>> [round_.participants for round_ in AdaPKLUCB(3, 100, epsilon=1.0).propose()]
    [1, 1, 1]

    References: Azize & Basu 2022, Algorithm 1.
    """

    def __init__(self, arms: int, horizon: int, epsilon: Number, alpha: Number = 3.1) -> None:
        super().__init__(arms, horizon, epsilon)
        positive("alpha", alpha, "the analysis is for alpha > 3, such as 3.1")
        self.alpha = alpha

    def _choose(self) -> Plan:
        level = float(self.alpha) * math.log(self.played + 1)
        arm = max(range(self.arms), key=lambda arm: self._index(arm, level))
        return [(Arm(arm), self._tallies[arm].participants)]

    def _index(self, arm: int, level: float) -> float:
        return kl_upper(self._raised(arm, level), level, self._sizes[arm])[0]


class LazyDPTS(LastBatch):
    """Thompson sampling with the posterior of an arm's last batch, shifted by 3 ln t/(ε n).

    An arm's plays are collected until they are twice its last batch, then released together. A
    round is therefore proposed when it is complete; incomplete batches at the horizon are played
    but never released. As in `Thompson`, lazy · t participants are divided at once, by up to 100
    samples.

    Parameters
    ----------
    lazy : Number
        The fraction of all participants so far that is divided at once; 0 for one by one.
    seed : int
        The seed of the posterior samples.

    Examples
    --------
    >>> [round_.participants for round_ in LazyDPTS(3, 100, epsilon=1.0).propose()]
    [1, 1, 1]

    References: Hu & Hegde 2022, Algorithm 2.
    """

    kept = (*LastBatch.kept, "_waiting", "_generator")

    def __init__(
        self, arms: int, horizon: int, epsilon: Number, lazy: Number = 0.01, seed: int = 0
    ) -> None:
        super().__init__(arms, horizon, epsilon)
        check_lazy(lazy)
        self.lazy = lazy
        self.seed = integer("seed", seed, at_least=0)
        self._generator = np.random.Generator(np.random.PCG64(self.seed))
        self._waiting = [0] * self.arms

    def _choose(self) -> Plan:
        while True:
            full = [arm for arm in range(self.arms) if self._waiting[arm] >= 2 * self._sizes[arm]]
            if full:
                for arm in full:
                    self._waiting[arm] -= 2 * self._sizes[arm]
                return [(Arm(arm), 2 * self._sizes[arm]) for arm in full]
            left = self.horizon - self.played - sum(self._waiting)
            if left <= 0:
                return [(Arm(arm), n, False) for arm, n in enumerate(self._waiting) if n]
            self._draw(left)

    def _draw(self, remaining: int) -> None:
        """Assign the next participants to arms by posterior samples."""
        now = self.played + sum(self._waiting)
        block = min(max(1, math.floor(self.lazy * now)), remaining)
        draws = min(block, DRAWS)
        sizes = np.array(self._sizes)
        ones = sizes * [self._raised(arm, 3 * math.log(now + 1)) for arm in range(self.arms)]
        samples = self._generator.beta(1 + ones, 1 + sizes - ones, (draws, self.arms))
        for arm, more in enumerate(divided(block, samples.argmax(axis=1), self.arms)):
            self._waiting[arm] += more
