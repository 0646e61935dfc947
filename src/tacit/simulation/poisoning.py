"""Participants who lie in a simulation, to have another option than the best one win.

They know which option is the best and how good each is: asked about it they report as little as
their protocol lets through, asked about another as much. Where a report may count any number
(`SumProtocol.reach`), one of them is enough, and they say no more than it takes to have an option
look perfect or worthless. A liar's noise is added as by anybody else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tacit.environments.contract import World
from tacit.errors import TacitError
from tacit.protocols.contract import Protocol, SumProtocol
from tacit.types import Estimate, Levels


@dataclass(frozen=True)
class Liars:
    """A part of all participants, among options of these means."""

    part: float
    means: tuple[float, ...]

    @classmethod
    def among(cls, part: float, world: World) -> Liars:
        """Liars in a world; refused where nobody knows what is best."""
        means = getattr(world, "means", None)
        if means is None or getattr(world, "metrics", 1) != 1:
            raise TacitError(
                "liars know what each option is worth: simulate them with known means and one "
                "metric"
            )
        return cls(part, tuple(float(mean) for mean in means))

    def count(self, participants: int, rng: np.random.Generator) -> int:
        """How many of a round lie; never all of them."""
        return min(int(rng.binomial(participants, self.part)), participants - 1)

    def told(
        self, protocol: Protocol, arm: int, load: Levels, lying: int, rng: np.random.Generator
    ) -> Estimate:
        """The estimate of a round of honest people, who hold this load, and of so many liars."""
        if not isinstance(protocol, SumProtocol):
            raise TacitError(f"liars report one number; {type(protocol).__name__} takes others")
        best = self.means[arm] == max(self.means)
        values = np.append(load.values, 0 if best else protocol.precision)
        estimate = protocol.simulate(Levels(values, np.append(load.counts, lying)), rng)
        low, high = protocol.reach
        missing = ((0.0 if best else 1.0) - self.means[arm]) * load.participants
        beyond = min(max(missing, lying * low), lying * (high - 1))
        return replace(estimate, total=estimate.total + beyond)
