"""Simulated poisoning: corrupted participants report against the best option.

They know the true means. They report the smallest value that their protocol accepts for the best
option, and the largest for any other. Where a report may contribute any number
(`SumProtocol.reach`), one corrupted participant is enough. They then add no more than it takes to
make an option look perfect or worthless. Their reports carry noise like any other report.

In contextual experiments they report against the best option of every context. A report of a table
is one cell, as proofs enforce: the worst option, with the best outcome. A report of moments is only
checked entry by entry: every entry of x (y - ½) has its largest size, with the sign that favours
the worst options, and x xᵀ is 0, as if no features had been seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.environments.contextual import CHUNK, Codes, ContextualWorld
from tacit.environments.contract import World
from tacit.errors import TacitError
from tacit.protocols.contract import Protocol, SumProtocol
from tacit.protocols.statistic_sums import StatisticSum, StatisticTotals
from tacit.protocols.statistics import Answers, MomentStatistic, TableStatistic
from tacit.types import Arm, Estimate, Integers, Levels, Round


@dataclass(frozen=True)
class Poisoning:
    """A fraction of participants that is corrupted, and the true means of the options."""

    fraction: float
    means: tuple[float, ...]

    @classmethod
    def of(cls, fraction: float, world: World) -> Poisoning:
        """Corrupted participants in this world; rejected where the true means are unknown."""
        if world.means is None or world.metrics != 1:
            raise TacitError(
                f"poisoned is {fraction:g}; it needs known means and one metric: leave it out, or "
                "give the environment means"
            )
        return cls(fraction, tuple(float(mean) for mean in world.means))

    def count(self, participants: int, rng: np.random.Generator) -> int:
        """Sample the number of corrupted participants in a round; never all of them."""
        return min(int(rng.binomial(participants, self.fraction)), participants - 1)

    def estimate(
        self, protocol: Protocol, honest: Round, load: Any, corrupted: int, rng: np.random.Generator
    ) -> Estimate:
        """The estimate of a round with honest participants of this load and corrupted ones."""
        if not isinstance(protocol, SumProtocol):
            raise TacitError(
                f"poisoned participants report one number, but {type(protocol).__name__} takes "
                "others: leave poisoned out"
            )
        arm = honest.arm
        best = self.means[arm] == max(self.means)
        values = np.append(load.values, 0 if best else protocol.precision)
        estimate = protocol.simulate(Levels(values, np.append(load.counts, corrupted)), rng)
        low, high = protocol.reach
        missing = ((0.0 if best else 1.0) - self.means[arm]) * load.participants
        beyond = min(max(missing, corrupted * low), corrupted * (high - 1))
        return replace(estimate, total=estimate.total + beyond)


@dataclass(frozen=True, eq=False)
class ContextualPoisoning(Poisoning):
    """Corrupted participants of a contextual world.

    Parameters
    ----------
    world
        The world, whose means they know.
    checked
        Whether reports of moments must be those of some features and reward, as if proofs existed.
    """

    world: ContextualWorld
    checked: bool = False

    def estimate(
        self, protocol: Protocol, honest: Round, load: Any, corrupted: int, rng: np.random.Generator
    ) -> Estimate:
        """The estimate of a round; in the evaluation slice they praise every option."""
        if isinstance(honest.assignment, Arm):
            assert isinstance(protocol, SumProtocol)
            values, counts = np.append(load.values, protocol.precision), [*load.counts, corrupted]
            return protocol.simulate(Levels(values, np.array(counts)), rng)
        assert isinstance(protocol, StatisticSum)
        sums = load.sums + self.reports(protocol, corrupted, rng)
        return protocol.simulate(StatisticTotals(sums, load.reports + corrupted), rng)

    def reports(self, protocol: StatisticSum, corrupted: int, rng: np.random.Generator) -> Integers:
        """The sum of the corrupted participants' reports."""
        features, statistic = self.world.features, protocol.statistic
        assert features is not None
        assert isinstance(statistic, (TableStatistic, MomentStatistic))
        sums = np.zeros(protocol.coordinates, dtype=np.int64)
        for start in range(0, corrupted, CHUNK):
            participants = Codes(self.world.codes(min(CHUNK, corrupted - start), rng), features)
            means = self.world.expected(participants.codes)
            assert means is not None
            worst, rows = means.argmin(axis=1), np.arange(len(means))
            if self.checked or not isinstance(statistic, MomentStatistic):
                best = np.full(len(means), statistic.precision)
                sums += statistic.total(Answers(participants, worst, best), rng)
                continue
            lead = (
                participants.features[rows, worst]
                - participants.features[rows, means.argmax(axis=1)]
            )
            entry = statistic.levels * statistic.resolution
            d = statistic.dimension
            sums[:d] += len(means) * entry * np.sign(lead.sum(axis=0)).astype(np.int64)
        return sums


def poisoning_of(fraction: float, world: World) -> Poisoning:
    """Corrupted participants of a world; rejected where the true means are unknown."""
    if not isinstance(world, ContextualWorld):
        return Poisoning.of(fraction, world)
    if world.single_option_regret is None:
        raise TacitError(
            f"poisoned is {fraction:g}; it needs known means: leave it out, or give the "
            "environment means"
        )
    return ContextualPoisoning(fraction, (), world)
