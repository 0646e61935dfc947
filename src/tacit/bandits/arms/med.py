"""Private minimum empirical divergence (MED): rounds that serve several arms concurrently.

A round of (growth - 1)·t participants, t those so far, is divided among arms in proportion to
e^{-I - s min(I, 1.5)}, I the exponent at which an arm's estimates reject the mean of the leader, s
the part of sampling in their error: 1 without noise.

Heuristic: the shares. Those of MED (Honda & Takemura 2010) are e^{-I}; it was analysed for exact
rewards, one participant at a time. Counting the first units of evidence twice saves participants on
arms that are soon rejected; arms that are far behind keep the share of MED up to the factor
e^{-1.5}, so that a wrong start is still corrected. Evidence that noise may have made counts once:
its tails are longer than the exponent says. Here sizes depend on an arm's own noisy
estimates, so even the `chernoff` exponent bounds no probability, and no regret bound is claimed.
Proven: privacy, which the protocol guarantees for any learner, and that no released batch is
smaller than `first` and `least` require. Measured: `docs/explanation/bandits.md`, by
`benchmarks/learners.py`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tacit.bandits.arms.chernoff import ArmEvidence
from tacit.bandits.arms.divergence import kl
from tacit.bandits.arms.klucb import FORGET, check_batches
from tacit.bandits.contract import KeptLearner, Plan
from tacit.errors import Number, integer
from tacit.types import Arm, Estimate, Round

EARLY = 1.5  # units of evidence that count twice, as far as sampling made them
HIGHEST = 1 - 1e-9  # means are clipped here: at 1 the relative entropy is infinite


class PrivateMED(KeptLearner):
    """Divides rounds among arms by how weak the evidence against each arm is.

    Parameters
    ----------
    arms, horizon
        As in `Learner`.
    first
        Participants of an arm's first batch: enough that noise alone rarely makes the best arm look
        hopeless.
    least
        The minimum size of later batches. A smaller share becomes such a batch with the matching
        probability, or none.
    index
        The exponent: `variance` (quick) or `chernoff` (exact for the estimate; explores more where
        noise dominates).
    growth
        Factor by which all participants grow with each round.
    rounds
        The maximum number of rounds; they grow faster where the horizon requires it. Without it
        only the last round, which the leader gets, depends on the horizon.
    seed
        Seed of the samples that decide about shares below the minimum batch size.

    >>> learner = PrivateMED(2, 10_000, first=100, least=64)
    >>> [round_.participants for round_ in learner.propose()]
    [100, 100]

    References: Honda & Takemura 2010 for the shares.
    """

    kept = ("_round", "_evidence")

    def __init__(
        self,
        arms: int,
        horizon: int,
        first: int = 1,
        least: int = 1,
        index: str = "variance",
        growth: Number = 1.4,
        rounds: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(arms, horizon)
        check_batches(self, index, growth)
        self.first = integer("first", first, at_least=1)
        self.least = integer("least", least, at_least=1)
        self.index, self.growth = index, growth
        self.rounds = None if rounds is None else integer("rounds", rounds, at_least=1)
        self.seed = integer("seed", seed, at_least=0)
        self._round = 0
        self._evidence = [ArmEvidence(forget=FORGET) for _ in range(self.arms)]

    @property
    def needs_horizon(self) -> bool:
        """Whether the number of rounds is limited."""
        return self.rounds is not None

    def best(self) -> int:
        """The arm with the largest estimate."""
        return max(self.active, key=self._mean)

    def _mean(self, arm: int) -> float:
        evidence = self._evidence[arm]
        return evidence.mean if evidence.users else -math.inf

    def _plan(self) -> Plan:
        self._round += 1
        new = [arm for arm in self.active if not self._evidence[arm].users]
        if new:
            return [(Arm(arm), self.first) for arm in new]
        left = self.horizon - self.played
        size = max(self.least, math.ceil((self._factor() - 1) * self.played))
        if size >= left:
            return [(Arm(self.best()), left + 1)]  # the last round, which is not released
        return self._shared(size)

    def _factor(self) -> float:
        """The growth of participants in this round."""
        if self.rounds is None:
            return float(self.growth)
        more = max(1, self.rounds - self._round + 1)
        return max(float(self.growth), math.exp(math.log(self.horizon / self.played) / more))

    def _shared(self, size: int) -> Plan:
        """A round of about `size` participants.

        Shares below `least` are drawn jointly (systematic sampling), so that their number varies
        little.
        """
        weights = {arm: self._weight(arm, i) for arm, i in self._exponents().items()}
        scale = size / sum(weights.values())
        place = float(np.random.default_rng([self.seed, self._number]).random())
        plan = []
        for arm, weight in weights.items():
            share = weight * scale
            if share < self.least:
                before, place = place, place + share / self.least
                share = self.least * (math.floor(place) - math.floor(before))
            if share:
                plan.append((Arm(arm), max(self.least, coarse(share))))
        return plan

    def _weight(self, arm: int, exponent: float) -> float:
        """The share of an arm, up to a constant."""
        sampling, noise = self._evidence[arm].spread
        return math.exp(-exponent - min(exponent, EARLY) * sampling / (sampling + noise))

    def _exponents(self) -> dict[int, float]:
        """The evidence against each arm; 0 for the leader."""
        means = {arm: min(max(self._mean(arm), 0.0), HIGHEST) for arm in self.active}
        top = max(means.values())
        against = chernoff if self.index == "chernoff" else normal_approximation
        return {
            arm: against(self._evidence[arm], mean, top) if mean < top else 0.0
            for arm, mean in means.items()
        }

    def _learn(self, round_: Round, estimate: Estimate) -> None:
        self._evidence[round_.arm].add(estimate)

    def skip(self, round_: Round, served: int | None = None) -> None:
        """Mark a round as skipped; a decision of which nothing was released is no round."""
        lost = len(self._pending) == 1 and not self._came
        super().skip(round_, served)
        if lost and not self._unreleased(round_, served):
            self._round -= 1

    def memory(self, arm: int) -> Any:
        """All batches that were not forgotten."""
        return self._evidence[arm].to_dict() if self._evidence[arm].users else None

    def recall(self, arm: int, memory: Any) -> None:
        """Continue from another learner's batches as from own ones."""
        self._evidence[arm].restore(memory)

    def adopt(self, arm: int, estimate: Estimate) -> None:
        """Use it like any other batch."""
        self._evidence[arm].add(estimate)


def coarse(size: float) -> int:
    """The nearest of eight sizes per doubling: equal rounds share the preparation of their noise.

    A sixteenth more or fewer participants does not matter.

    >>> coarse(7.4), coarse(1000), coarse(1025), coarse(123_456_789)
    (7, 1024, 1024, 125829120)
    """
    step = 1 << max(0, int(size).bit_length() - 4)
    return round(size / step) * step


def chernoff(evidence: ArmEvidence, mean: float, top: float) -> float:  # noqa: ARG001
    """The exact exponent of the estimate, for sampling and noise together."""
    return evidence.exponent(top)


def normal_approximation(evidence: ArmEvidence, mean: float, top: float) -> float:
    """The smaller of two approximations with normal noise.

    The first treats the estimate as that of fewer exact rewards. The second combines relative
    entropy for sampling with a normal exponent for noise. The first is cautious where rates are
    low, the second where they are high.
    """
    divergence = kl(mean, top)
    if not divergence:  # means that are equal up to rounding
        return 0.0
    sampling, noise = evidence.spread
    apart = 1 / (sampling / divergence + 2 * noise / (top - mean) ** 2)
    return min(evidence.effective * divergence, apart)
