"""Simulated poisoning: corrupted participants report against the best option.

They know the true means. They report the smallest value that their protocol accepts for the best
option, and the largest for any other. Where a report may contribute any number
(`SumProtocol.reach`), one corrupted participant is enough. They then add no more than it takes to
make an option look perfect or worthless. Their reports carry noise like any other report.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tacit.environments.contract import World
from tacit.errors import TacitError
from tacit.protocols.contract import Protocol, SumProtocol
from tacit.types import Estimate, Levels


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
        self, protocol: Protocol, arm: int, load: Levels, corrupted: int, rng: np.random.Generator
    ) -> Estimate:
        """The estimate of a round with honest participants of this load and corrupted ones."""
        if not isinstance(protocol, SumProtocol):
            raise TacitError(
                f"poisoned participants report one number, but {type(protocol).__name__} takes "
                "others: leave poisoned out"
            )
        best = self.means[arm] == max(self.means)
        values = np.append(load.values, 0 if best else protocol.precision)
        estimate = protocol.simulate(Levels(values, np.append(load.counts, corrupted)), rng)
        low, high = protocol.reach
        missing = ((0.0 if best else 1.0) - self.means[arm]) * load.participants
        beyond = min(max(missing, corrupted * low), corrupted * (high - 1))
        return replace(estimate, total=estimate.total + beyond)
