"""Arms with a second metric for a guardrail, besides the rewards that the learner uses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.environments.contract import Environment
from tacit.errors import TacitError
from tacit.types import Floats, Levels, Played, Round


@dataclass(frozen=True)
class TwoMetrics(Environment):
    """Rewards from `main` and a second metric from `second`, independent given the option.

    Regret counts `main` only.

    >>> from tacit.environments.synthetic import Bernoulli
    >>> world = TwoMetrics(Bernoulli((0.2, 0.7)), Bernoulli((0.1, 0.1)))
    >>> world.reports(1, 2, np.random.default_rng(0)).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """

    main: Environment
    second: Environment
    metrics = 2

    def __post_init__(self) -> None:
        if self.main.arms != self.second.arms:
            raise TacitError(
                f"the first metric has {self.main.arms} arms, the second {self.second.arms}. Give "
                "both the same number."
            )
        for one in (self.main, self.second):
            if one.remark is not None:
                raise TacitError(
                    f"{type(one).__name__} has one metric of each recorded participant, not two. "
                    "Use random rewards or functions."
                )

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """The names in the first metric."""
        return self.main.names

    @property
    def binary(self) -> bool:  # type: ignore[override]
        """Whether both metrics are binary."""
        return self.main.binary and self.second.binary

    @property
    def means(self) -> Floats | None:
        """The true mean rewards."""
        return self.main.means

    def rewards(self, arm: int, users: int, rng: np.random.Generator) -> Floats:
        """The first metric only."""
        return self.main.rewards(arm, users, rng)

    def reports(self, arm: int, users: int, rng: np.random.Generator) -> Floats:
        """Both metrics of each participant."""
        columns = [one.rewards(arm, users, rng) for one in (self.main, self.second)]
        return np.column_stack(columns)

    def levels(self, arm: int, users: int, precision: int, rng: np.random.Generator) -> Levels:
        """The levels of the first metric."""
        return self.main.levels(arm, users, precision, rng)

    def play(self, round_: Round, protocol: Any, rng: np.random.Generator) -> Played:
        """The rewards of all participants and, if the round is released, their second metric."""
        played = super().play(round_, protocol, rng)
        if protocol is None:
            return played
        size = (round_.arm, round_.participants, protocol.precision)
        return replace(played, load=(played.load, self.second.levels(*size, rng)))
