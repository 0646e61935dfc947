"""Batched private KL-UCB: the arm with the largest index gets the next batch.

The index is the largest mean that an arm's batches together do not reject at level ln t, t the
participants so far (`tacit.bandits.arms.chernoff`). An arm's batch sizes and weights follow a
schedule that does not depend on rewards. So for every arm, number of its batches and fixed level L,
the `chernoff` index is below the arm's mean with probability at most e^{-L}, for all rewards in
[0, 1]. `variance` replaces that proof by a normal approximation of the noise. Neither has a proven
regret bound.
"""

from __future__ import annotations

import math
from typing import Any

from tacit.bandits.arms.bounds import NOTHING_KNOWN, MeanBound, leader
from tacit.bandits.arms.chernoff import ArmEvidence
from tacit.bandits.arms.divergence import kl_upper
from tacit.bandits.contract import KeptLearner, Learner, Plan, check_horizon
from tacit.errors import Number, as_fraction, integer, one_of, positive, require
from tacit.types import Arm, Estimate, Round

INDICES = ("chernoff", "variance")


def check_batches(learner: Learner, index: str, growth: Number) -> None:
    """Reject arguments from which no schedule of private batches can be made."""
    check_horizon(learner.arms, learner.horizon)
    one_of("index", index, INDICES)
    require(positive("growth", growth) > 1, "growth", growth, "above 1, such as 1.4")


class PrivateKLUCB(KeptLearner):
    """KL-UCB on batches, with an index that accounts for the distribution of the privacy noise.

    Parameters
    ----------
    arms, horizon
        As in `Learner`.
    noise_variance
        The variance v of the noise in a batch's sum, as the protocol states it (2/ε² for pure DP).
        It only sets batch sizes.
    index
        `chernoff` (rigorous) or `variance` (normal tails: often less regret, more where rates are
        low).
    first_batch
        Participants of an arm's first batch; by default 44√v (20√v for `variance`), limited to half
        of the horizon over all arms.
    growth
        Factor by which an arm's participants grow with each batch once they exceed 5v; until then
        they double.
    smallest
        The minimum batch size.

    >>> [round_.participants for round_ in PrivateKLUCB(2, 1000, noise_variance=2.0).propose()]
    [63, 63]

    References: Garivier & Cappé 2011 for the index without noise.
    """

    kept = ("_evidence", "_bounds")
    needs_horizon = False  # the level is ln t

    def __init__(
        self,
        arms: int,
        horizon: int,
        noise_variance: float = 0.0,
        index: str = "chernoff",
        first_batch: int | None = None,
        growth: Number = 1.4,
        smallest: int = 1,
    ) -> None:
        super().__init__(arms, horizon)
        check_batches(self, index, growth)
        known = as_fraction("noise_variance", noise_variance) >= 0
        require(known, "noise_variance", noise_variance, "0 (no privacy noise) or more")
        self.noise_variance = noise_variance
        self.index = index
        self.first_batch = (
            None if first_batch is None else integer("first_batch", first_batch, at_least=1)
        )
        self.growth = growth
        self.smallest = integer("smallest", smallest, at_least=1)
        self._evidence = [ArmEvidence(forget=FORGET) for _ in range(self.arms)]
        self._bounds = [NOTHING_KNOWN] * self.arms

    def best(self) -> int:
        """The arm with most participants; ties go to the largest estimate."""
        return max(
            range(self.arms),
            key=lambda arm: (
                (e.users, e.mean) if (e := self._evidence[arm]).users else (0, -math.inf)
            ),
        )

    def _plan(self) -> Plan:
        new = [arm for arm in range(self.arms) if not self._evidence[arm].users]
        if new:
            return [(Arm(arm), self._size(0)) for arm in new]
        level = math.log(self.played)
        arm = leader(self._bounds, level, lambda arm: self._bound(arm, level))
        size = self._size(self._evidence[arm].users)
        if size > self.horizon - self.played:
            arm = self.best()  # the last round, which is not released
        return [(Arm(arm), size)]

    def _size(self, users: int) -> int:
        if not users:
            usual = math.ceil(FIRST[self.index] * math.sqrt(self.noise_variance))
            first = self.first_batch or min(usual, self.horizon // (2 * self.arms))
            return max(self.smallest, first)
        factor = 2.0 if users < SETTLED * self.noise_variance else float(self.growth)
        return max(self.smallest, math.ceil((factor - 1) * users))

    def _bound(self, arm: int, level: float) -> MeanBound:
        """The upper confidence bound of an arm's mean, by the index."""
        evidence = self._evidence[arm]
        if self.index == "chernoff":
            return evidence.upper(level, self._bounds[arm])
        mean = min(max(evidence.mean, 0.0), 1.0)
        value, slope = kl_upper(mean, level, evidence.effective)
        return MeanBound(value, slope, 0.0, level)

    def _learn(self, round_: Round, estimate: Estimate) -> None:
        self._evidence[round_.arm].add(estimate)
        self._bounds[round_.arm] = NOTHING_KNOWN

    def memory(self, arm: int) -> Any:
        """All batches that were not forgotten."""
        return self._evidence[arm].to_dict() if self._evidence[arm].users else None

    def recall(self, arm: int, memory: Any) -> None:
        """Take over another learner's batches, as if they were its own."""
        self._evidence[arm].restore(memory)

    def adopt(self, arm: int, estimate: Estimate) -> None:
        """Use it like any other batch, once the arm has had its first."""
        if self._evidence[arm].users:
            self._evidence[arm].add(estimate)
            self._bounds[arm] = NOTHING_KNOWN


FIRST = {
    "chernoff": 44.0,
    "variance": 20.0,
}  # participants of a first batch, in standard deviations of its noise
SETTLED = 5.0  # an arm's participants stop doubling at this many noise variances
FORGET = 0.01  # share of an arm's participants whose oldest batches are dropped
