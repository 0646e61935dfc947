"""Recorded decisions of several silos, replayed by rejection (Li, Chu, Langford & Wang 2011).

At every step each silo looks at its next rows until one is accepted: the policy picks the logged
action, and a coin of probability `floor` / propensity agrees. Every row is then accepted with
probability `floor`, whichever action the policy picks, so that accepted rows are distributed as if
the policy had acted. True means are unknown: there is a mean reward, and no regret. Propensities
must be true; the module cannot check that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.assumptions import ParticipantsFrom, Source
from tacit.environments.recorded import OutOfData
from tacit.environments.silos import Silos
from tacit.errors import TacitError, probability
from tacit.types import Floats, Integers, Played, Round

ROUNDING = 1e-9  # relative, of a propensity such as 1 - 0.8
SPARE = 0.95  # of the expected accepted rows, for the default horizon


@dataclass(frozen=True, eq=False)
class SiloLog:
    """The logged decisions of one silo.

    Parameters
    ----------
    tables : array
        Features of all actions: rows × actions × dimension.
    actions : array of int
        The logged actions.
    rewards : array
        Their rewards in [0, 1].
    propensities : array
        The probabilities with which they were chosen.
    """

    tables: Floats
    actions: Integers
    rewards: Floats
    propensities: Floats

    def __len__(self) -> int:
        return len(self.actions)


@dataclass(frozen=True, eq=False)
class RecordedSilos(Silos):
    """Silos whose participants are recorded; each row is used at most once per run.

    Parameters
    ----------
    logs : tuple of SiloLog
        One log per silo, with equal numbers of actions and features.
    floor : float
        A declared lower bound on all propensities.
    constant : float, optional
        The value of the last feature, if it is the same for all actions and participants.
    clipped : int
        Outcomes that were clipped to rewards in [0, 1].

    Raises
    ------
    TacitError
        If a propensity is below the floor, or logs differ in their numbers of actions or features.

    Examples
    --------
    >>> log = SiloLog(np.zeros((100, 2, 3)), np.arange(100) % 2, np.ones(100), np.full(100, 0.5))
    >>> world = RecordedSilos((log, log), floor=0.5)
    >>> world.silos, world.dimension, world.rows, world.horizon
    (2, 3, 200, 47)
    """

    logs: tuple[SiloLog, ...]
    floor: float
    constant: float | None = None
    clipped: int = 0

    def __post_init__(self) -> None:
        least = float(probability("floor", self.floor, one=True))
        sizes = sorted({log.tables.shape[1:] for log in self.logs})
        if len(sizes) != 1:
            raise TacitError(f"logs have actions × features {sizes}: must be alike in all silos")
        for number, log in enumerate(self.logs):
            below = np.flatnonzero(log.propensities < least * (1 - ROUNDING))
            if len(below):
                raise TacitError(
                    f"propensity of silo {number}, row {below[0] + 1} is "
                    f"{log.propensities[below[0]]:g}: must be at least the declared floor "
                    f"{least:g}. Declare a lower one"
                )

    @property
    def silos(self) -> int:  # type: ignore[override]
        """The number of silos."""
        return len(self.logs)

    @property
    def dimension(self) -> int:
        """The number of features per action."""
        return int(self.logs[0].tables.shape[2])

    @property
    def intercept(self) -> float | None:
        """The declared constant."""
        return self.constant

    @property
    def rows(self) -> int:
        """The number of recorded decisions of all silos."""
        return sum(map(len, self.logs))

    @property
    def horizon(self) -> int:
        """Rounds that the shortest log is likely to suffice for."""
        return max(1, int(SPARE * self.floor * min(map(len, self.logs))))

    @property
    def remark(self) -> ParticipantsFrom:
        """The source of the participants, as an assumption of the guarantee."""
        return ParticipantsFrom(Source.ROW)

    def contexts(self, rng: np.random.Generator) -> Floats:
        """The features of random rows, one per silo."""
        return np.stack([log.tables[rng.integers(len(log))] for log in self.logs])

    def mean_rewards(self, features: Floats) -> None:
        """None: true means are unknown."""

    def fresh(self, rng: np.random.Generator) -> RecordedSilosRun:
        """The logs at the start of a run, each in a random order."""
        return RecordedSilosRun(self, rng)

    def serve(self, *_: object) -> None:
        """Always raises: only a run tracks which rows are used."""
        raise TacitError(
            "each row of a log is used at most once in a run: begin a run with fresh(rng)"
        )


class RecordedSilosRun(Silos):
    """The unused rows of one run."""

    def __init__(self, recorded: RecordedSilos, rng: np.random.Generator) -> None:
        self.recorded, self.silos = recorded, recorded.silos
        self._orders = [rng.permutation(len(log)) for log in recorded.logs]
        chances = [recorded.floor / log.propensities for log in recorded.logs]
        self._agreed = [rng.random(len(one)) < one for one in chances]
        self._next = np.zeros(self.silos, dtype=np.int64)
        self._earned, self._accepted = 0.0, 0

    @property
    def dimension(self) -> int:
        """The number of features per action."""
        return self.recorded.dimension

    @property
    def intercept(self) -> float | None:
        """The declared constant."""
        return self.recorded.intercept

    @property
    def used(self) -> int:
        """The number of rows that were looked at."""
        return int(self._next.sum())

    def play(self, round_: Round, protocol: Any, rng: np.random.Generator) -> Played:
        """The next accepted rows of every silo, with the sum of rewards beside the sums."""
        before, accepted = self._earned, self._accepted
        played = super().play(round_, protocol, rng)
        found = {"earned": self._earned - before, "accepted": float(self._accepted - accepted)}
        return replace(played, notes={**played.notes, **found})

    def contexts(self, rng: np.random.Generator) -> Floats:  # noqa: ARG002
        """The features of every silo's next row."""
        return self._features(self._rows(self._next))

    def serve(self, actor: Any, rng: np.random.Generator) -> None:  # noqa: ARG002
        """Give the next accepted row of every silo's log to the actor.

        Raises
        ------
        OutOfData
            If a log ends before.
        """
        at = self._next.copy()
        while True:
            rows = self._rows(at)
            features = actor.as_features(self._features(rows))
            picked = actor.preferred(features)
            pairs = list(zip(self.recorded.logs, rows, strict=True))
            logged = np.array([log.actions[row] for log, row in pairs])
            agreed = [one[row] for one, row in zip(self._agreed, rows, strict=True)]
            accepted = (picked == logged) & np.array(agreed)
            if accepted.all():
                break
            at[~accepted] += 1
        actor.choose(features)
        rewards = np.array([log.rewards[row] for log, row in pairs])
        actor.learn(rewards)
        self._next, self._earned = at + 1, self._earned + float(rewards.sum())
        self._accepted += len(rewards)

    def _rows(self, at: Integers) -> list[int]:
        """The rows at these places of the silos' orders."""
        for number, (place, order) in enumerate(zip(at, self._orders, strict=True)):
            if place >= len(order):
                raise OutOfData(
                    f"the log of silo {number}, {len(order):,} rows, has no further match: use a "
                    "shorter horizon, or record more"
                )
        return [int(order[place]) for place, order in zip(at, self._orders, strict=True)]

    def _features(self, rows: list[int]) -> Floats:
        logs = self.recorded.logs
        return np.stack([log.tables[row] for log, row in zip(logs, rows, strict=True)])
