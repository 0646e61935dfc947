"""Private minimum empirical divergence: rounds that serve several arms side by side.

A round of (growth - 1)·t participants, t those so far, is shared out in proportion to e^{-I}, I the
exponent at which an arm's estimates refute the mean of the leader.

What is heuristic: the shares. They are those of MED (Honda & Takemura 2010), whose analysis is of
exact rewards, one participant at a time. Here sizes depend on an arm's own noisy estimates, so that
not even the `chernoff` exponent bounds a probability: it decides, it promises nothing, and no bound
on the regret is claimed. What is proved: privacy, which is the protocol's whatever a learner does,
and that no opened batch is smaller than told. What was measured: `docs/learners.md`, by
`benchmarks/learners.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tacit.bandits.arms.chernoff import ArmEvidence
from tacit.bandits.arms.divergence import kl
from tacit.bandits.arms.klucb import FORGET, check_batches
from tacit.bandits.contract import Learner, Plan
from tacit.errors import Number, integer
from tacit.types import Arm, Estimate, Round

HIGHEST = 1 - 1e-9  # a mean above is not told from 1, where relative entropy is infinite


class PrivateMED(Learner):
    """Shares rounds out among arms by how little speaks against each.

    Parameters
    ----------
    first
        Participants of an arm's first batch: enough that noise alone hardly makes the best arm look
        hopeless.
    least
        Participants of the smallest batch later on; a smaller share becomes such a batch with the
        matching probability, or nothing.
    index
        The exponent: `variance` (quick) or `chernoff` (that of the very estimate; explores more
        where noise dominates).
    growth
        Factor by which all participants grow with each round.
    rounds
        The largest number of rounds; they grow faster where the horizon asks for it. Without it
        nothing depends on the horizon but the last round, which the leader gets.
    seed
        Of the draws that decide about shares below the smallest batch.

    >>> learner = PrivateMED(2, 10_000, first=100, least=64)
    >>> [round_.participants for round_ in learner.propose()]
    [100, 100]

    References: Honda & Takemura 2010 for the shares.
    """

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
        """Only to keep to a number of rounds."""
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
            return [(Arm(self.best()), left + 1)]  # nothing will be learned any more
        return self._shared(size)

    def _factor(self) -> float:
        """By how much participants grow in this round."""
        if self.rounds is None:
            return float(self.growth)
        more = max(1, self.rounds - self._round + 1)
        return max(float(self.growth), math.exp(math.log(self.horizon / self.played) / more))

    def _shared(self, size: int) -> Plan:
        """A round of about so many: shares below `least` are drawn together (systematic sampling),
        so that their number hardly varies.
        """
        weights = {arm: math.exp(-exponent) for arm, exponent in self._exponents().items()}
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

    def _exponents(self) -> dict[int, float]:
        """How much speaks against each arm; nothing against the leader."""
        means = {arm: min(max(self._mean(arm), 0.0), HIGHEST) for arm in self.active}
        top = max(means.values())
        against = chernoff if self.index == "chernoff" else quick
        return {
            arm: against(self._evidence[arm], mean, top) if mean < top else 0.0
            for arm, mean in means.items()
        }

    def _learn(self, round_: Round, estimate: Estimate) -> None:
        self._evidence[round_.arm].add(estimate)

    def memory(self, arm: int) -> Any:
        """All batches that were not forgotten."""
        return self._evidence[arm].to_dict() if self._evidence[arm].users else None

    def recall(self, arm: int, memory: Any) -> None:
        """As if they had been this learner's own."""
        self._evidence[arm] = ArmEvidence.from_dict(memory, forget=FORGET)

    def also(self, arm: int, estimate: Estimate) -> None:
        """Like any other batch."""
        self._evidence[arm].add(estimate)

    def _state(self) -> dict[str, Any]:
        return {"round": self._round, "evidence": [entry.to_dict() for entry in self._evidence]}

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._round = state["round"]
        self._evidence = [
            ArmEvidence.from_dict(entry, forget=FORGET) for entry in state["evidence"]
        ]


def coarse(size: float) -> int:
    """The nearest of eight sizes per doubling: rounds of one size share the preparation of their
    noise, and a sixteenth more or less changes nothing.

    >>> coarse(7.4), coarse(1000), coarse(1025), coarse(123_456_789)
    (7, 1024, 1024, 125829120)
    """
    step = 1 << max(0, int(size).bit_length() - 4)
    return round(size / step) * step


def chernoff(evidence: ArmEvidence, mean: float, top: float) -> float:  # noqa: ARG001
    """The exponent of the very estimate, sampling and noise together."""
    return evidence.exponent(top)


def quick(evidence: ArmEvidence, mean: float, top: float) -> float:
    """The smaller of two approximations with normal noise: as if the estimate came from fewer exact
    rewards, and relative entropy for sampling beside a normal exponent for noise.

    The first is cautious where rates are low, the second where they are high.
    """
    divergence = kl(mean, top)
    if not divergence:  # means that rounding does not tell apart
        return 0.0
    sampling, noise = evidence.spread
    apart = 1 / (sampling / divergence + 2 * noise / (top - mean) ** 2)
    return min(evidence.effective * divergence, apart)
