"""Elimination: every active arm gets a batch, then significantly worse arms are dropped.

The forgetting variant (CZ23 Algorithm 1) compares the last batches only; the cumulative one (TKMS21
Algorithms 1 and 2) compares all batches. `paper` uses the printed radii. `tight` uses Chernoff
bounds of the exact error distribution (`tacit.bandits.arms.chernoff`). Its c-th comparison has
failure probability p/(c(c+1)), divided among the arms, so the best arm is ever dropped
with probability at most p = `failure_probability`.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from tacit.bandits.arms.chernoff import ArmEvidence
from tacit.bandits.contract import KeptLearner, Plan, check_horizon
from tacit.errors import Number, integer, one_of, positive, probability, require
from tacit.types import Arm, Estimate, Round

CONSTANTS = ("tight", "paper")


class Elimination(KeptLearner):
    """Base of elimination learners: each active arm gets a batch of the same size per round."""

    kept: ClassVar[tuple[str, ...]] = ("round", "_checks", "_active", "_seen", "_sums", "_evidence")

    def __init__(
        self, arms: int, horizon: int, failure_probability: Number, constants: str
    ) -> None:
        super().__init__(arms, horizon)
        check_horizon(self.arms, self.horizon)
        probability(
            "failure_probability",
            failure_probability,
            "it is the probability that the best arm may be dropped, such as 0.1",
        )
        one_of("constants", constants, CONSTANTS)
        self.failure_probability = failure_probability
        self.constants = constants
        self.round = 1
        self._checks = 0
        self._active = list(range(self.arms))
        self._seen: set[int] = set()
        self._evidence = [ArmEvidence() for _ in range(self.arms)]
        self._sums = [(0.0, 0)] * self.arms

    @abstractmethod
    def _size(self) -> int:
        """The number of participants per arm in this round."""

    @abstractmethod
    def _width(self, users: int) -> float:
        """The paper's radius for an arm with estimates from this many participants."""

    def _level(self) -> float:
        """The level of the bounds, from an equal share of failure_probability/(c(c+1)) per arm.

        The best arm spends its share on its upper bound, others on their lower bounds.
        """
        return math.log(
            self.arms * self._checks * (self._checks + 1) / float(self.failure_probability)
        )

    def _due(self) -> bool:
        """Whether arms are compared after this round."""
        return True

    def _begin(self, arm: int) -> None:
        """Called before a new estimate of the arm is added."""

    @property
    def active(self) -> list[int]:
        """The arms that were not dropped."""
        return list(self._active)

    @property
    def needs_horizon(self) -> bool:
        """False: radii and batch sizes depend on the number of rounds, not of participants."""
        return False

    def best(self) -> int:
        """The active arm with the largest estimate."""
        return max(self._active, key=self._mean)

    def _mean(self, arm: int) -> float:
        total, users = self._sums[arm]
        return total / users if users else -math.inf

    def _plan(self) -> Plan:
        if self.constants == "tight" and len(self._active) == 1:
            return [
                (Arm(self._active[0]), self.horizon + 1)
            ]  # one arm is left: play it to the horizon without any release
        size = self._size()
        return [(Arm(arm), size) for arm in self._active if arm not in self._seen]

    def _learn(self, round_: Round, estimate: Estimate) -> None:
        arm = round_.arm
        self._begin(arm)
        total, users = self._sums[arm]
        self._sums[arm] = (total + float(estimate.total), users + int(estimate.error.participants))
        if self.constants == "tight":
            self._evidence[arm].add(estimate)
        self._seen.add(arm)
        if len(self._seen) == len(self._active):
            if len(self._active) > 1 and self._due():
                self._checks += 1
                self._eliminate()
            self._seen = set()
            self.round += 1

    def _bounds(self, arm: int) -> tuple[float, float]:
        if self.constants == "tight":
            level = self._level()
            return self._evidence[arm].lower(level).value, self._evidence[arm].upper(level).value
        mean, width = self._mean(arm), self._width(self._sums[arm][1])
        return mean - width, mean + width

    def _eliminate(self) -> None:
        bounds = {arm: self._bounds(arm) for arm in self._active}
        floor = max(lower for lower, _ in bounds.values())
        self._active = [arm for arm in self._active if bounds[arm][1] >= floor]


@dataclass(frozen=True)
class NoiseTail:
    """The tail of a protocol's noise, as the printed radii need it (CZ23 Lemma 2).

    Parameters
    ----------
    sigma, h
        Scales of the sub-Gaussian and the exponential part: (√2/ε, 1/ε) with Pólya shares.
    per_user
        Whether sigma is that of one participant's noise and grows with √participants (the local
        model).
    """

    sigma: float = 0.0
    h: float = 0.0
    per_user: bool = False


NO_NOISE = NoiseTail()


class ForgettingElimination(Elimination):
    """Successive elimination in which round b gives every active arm growth^b participants.

    Comparisons use the estimates of that round only.

    Parameters
    ----------
    arms, horizon
        As in `Learner`.
    growth
        The factor between rounds: 2 in the paper's text, 4 in its figures.
    failure_probability
        The probability with which the best arm may be dropped.
    constants
        `tight`, or `paper` for √(ln(4|Φ|b²/p)/2l) + σ√ln(2|Φ|b²/p)/l + h·ln(2|Φ|b²/p)/l.
    tail
        The tail of the protocol's noise, for `paper` only.
    start
        The first round; a later one skips batches that are too small for a protocol.

    >>> learner = ForgettingElimination(arms=2, horizon=10, growth=4)
    >>> [(round_.arm, round_.participants) for round_ in learner.propose()]
    [(0, 4), (1, 4)]

    References: CZ23 Algorithm 1 and Lemma 2.
    """

    def __init__(
        self,
        arms: int,
        horizon: int,
        growth: Number = 2,
        failure_probability: Number = 0.1,
        constants: str = "tight",
        tail: NoiseTail = NO_NOISE,
        start: int = 1,
    ) -> None:
        super().__init__(arms, horizon, failure_probability, constants)
        rule = "above 1, such as 2, so that batches grow"
        require(positive("growth", growth) > 1, "growth", growth, rule)
        self.growth = growth
        self.tail = tail
        self.start = integer("start", start, at_least=1)
        self.round = self.start

    def _size(self) -> int:
        return math.ceil(self.growth**self.round)

    def _begin(self, arm: int) -> None:
        self._evidence[arm] = ArmEvidence()
        self._sums[arm] = (0.0, 0)

    def _level(self) -> float:
        """Failure probability per arm as in `Elimination`, but divided among active arms only.

        Fresh batches do not depend on how the others were dropped.
        """
        return math.log(
            len(self._active) * self._checks * (self._checks + 1) / float(self.failure_probability)
        )

    def _width(self, users: int) -> float:
        log = math.log(2 * len(self._active) * self.round**2 / float(self.failure_probability))
        tail = self.tail
        sigma = tail.sigma * math.sqrt(users) if tail.per_user else tail.sigma
        return (
            math.sqrt((log + math.log(2)) / (2 * users))
            + sigma * math.sqrt(log) / users
            + tail.h * log / users
        )


class CumulativeElimination(Elimination):
    """Arm elimination on cumulative sums: SDP-AE (fixed batches) and VB-SDP-AE (doubling batches).

    Parameters
    ----------
    arms, horizon
        As in `Learner`.
    batch
        Participants per arm and round (⌈σ²⌉ for SDP-AE), or None for doubling batches (VB-SDP-AE).
    failure_probability
        The probability with which the best arm may be dropped, for `tight`; the printed radius
        fixes its own.
    constants
        `tight`, or `paper` for (2√b·σ/N + 1/√N)·√(2 ln T), N participants in b rounds.
    sigma
        The sub-Gaussian standard deviation of a batch's noise, for `paper` only.
    start
        The first doubling batch has 2^start participants.

    >>> [round_.participants for round_ in CumulativeElimination(3, 100, batch=7).propose()]
    [7, 7, 7]

    References: TKMS21 Algorithms 1 and 2; CORRECTIONS 4 for the size of a batch.
    """

    kept = (*Elimination.kept, "_compared")

    def __init__(
        self,
        arms: int,
        horizon: int,
        batch: int | None = None,
        failure_probability: Number = 0.1,
        constants: str = "tight",
        sigma: float = 0.0,
        start: int = 1,
    ) -> None:
        super().__init__(arms, horizon, failure_probability, constants)
        self.batch = None if batch is None else integer("batch", batch, at_least=1)
        self.sigma = sigma
        self.start = integer("start", start, at_least=1)
        self._compared = 0

    @property
    def needs_horizon(self) -> bool:
        """Whether the radius is the printed one, which contains ln T."""
        return self.constants == "paper"

    def _size(self) -> int:
        return 2 ** (self.start + self.round - 1) if self.batch is None else self.batch

    def _due(self) -> bool:
        """Whether arms are compared after this round.

        With fixed batches, `tight` compares only once rounds grew by a tenth since the last time:
        fewer comparisons divide the failure probability less.
        """
        if (
            self.constants == "paper"
            or self.batch is None
            or 10 * self.round >= 11 * self._compared
        ):
            self._compared = self.round
            return True
        return False

    def _width(self, users: int) -> float:
        noise = 2 * math.sqrt(self.round) * self.sigma / users
        return (noise + 1 / math.sqrt(users)) * math.sqrt(2 * math.log(self.horizon))
