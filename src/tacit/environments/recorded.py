"""Recorded outcomes, each used at most once: a table with one column per option, or a log.

`Recorded` is an immutable value; the `RecordedRun` that `fresh` returns tracks the rows a run has
used. A log is replayed by rejection (Li, Chu, Langford & Wang 2011): a round of n participants on
an option gets the next n accepted rows of that option. Rounds fix their option before they see a
row. Rows of other options therefore stay for later rounds instead of being discarded, as they must
be with contexts.

The module assumes, and cannot check, that rows were logged with the stated propensities, or with
propensities that do not depend on the participant.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tacit.assumptions import ParticipantsFrom, Source
from tacit.environments.contract import Environment
from tacit.environments.replay import Replay
from tacit.errors import TacitError
from tacit.types import Floats, Levels


class OutOfData(TacitError):  # noqa: N818  (the end of a log is no mistake)
    """The recorded outcomes of an option have run out after `served` participants."""

    served: int = 0


@dataclass(frozen=True, eq=False)
class Recorded(Environment):
    """Recorded outcomes per option, each used at most once per run; see `read_table`, `from_frame`.

    With `propensities` of the logged options, a row is accepted with the option's smallest
    propensity divided by its own. This rejection sampling makes the accepted participants of each
    option representative of all.

    Parameters
    ----------
    columns : tuple of arrays
        The recorded rewards of each option.
    names : tuple of str
        The options' names.
    propensities : tuple of arrays, optional
        The probability with which the option of each row was assigned.
    participations : int
        The largest number of rows of one participant.
    log : bool
        Whether a run ends with its rows; a table must be long enough instead.
    shuffle : bool
        Whether each run uses rows in a random order, or as recorded.
    clipped : int
        The number of rewards that were clipped to [0, 1].

    Examples
    --------
    >>> table = Recorded((np.array([0.0, 1.0, 1.0]), np.array([0.5, 0.5])), ("A", "B"))
    >>> table.rows, table.horizon, table.means.round(2).tolist()
    (5, 2, [0.67, 0.5])
    >>> run = table.fresh(np.random.default_rng(0))
    >>> sorted(run.rewards(0, 3, np.random.default_rng(0)).tolist()), run.used
    ([0.0, 1.0, 1.0], 3)
    """

    columns: tuple[Floats, ...]
    names: tuple[str, ...]
    propensities: tuple[Floats, ...] | None = None
    participations: int = 1  # largest number of rows of one participant
    log: bool = False  # a run on a log ends when its rows do; a table must be long enough
    shuffle: bool = True  # rows in a random order per run, or as recorded
    clipped: int = 0

    @cached_property
    def means(self) -> Floats:
        """The recorded means, weighted by 1 / propensity where a log has propensities."""
        if self.propensities is None:
            return np.array([column.mean() for column in self.columns])
        pairs = zip(self.columns, self.propensities, strict=True)
        return np.array([np.average(column, weights=1 / chances) for column, chances in pairs])

    @cached_property
    def binary(self) -> bool:  # type: ignore[override]
        """Whether every recorded reward is 0 or 1."""
        return all(np.all((column == 0) | (column == 1)) for column in self.columns)

    @property
    def rows(self) -> int:
        """The number of recorded outcomes of all options."""
        return sum(len(column) for column in self.columns)

    @property
    def horizon(self) -> int:
        """The horizon that suffices for any learner: the fewest always accepted rows per option."""
        return min(int((self.acceptance(arm) == 1).sum()) for arm in range(self.arms))

    @property
    def remark(self) -> ParticipantsFrom:
        """The source of the participants, as an assumption of the guarantee."""
        return ParticipantsFrom(Source.ROW if self.log else Source.CELL, self.participations)

    def acceptance(self, arm: int) -> Floats:
        """The probability with which each row of an option is accepted."""
        if self.propensities is None:
            return np.ones(len(self.columns[arm]))
        result: Floats = self.propensities[arm].min() / self.propensities[arm]
        return result

    def fresh(self, rng: np.random.Generator) -> RecordedRun:
        """The environment of one run, with no row used yet."""
        return RecordedRun(self, rng)

    def resampled(self) -> Replay:
        """The same outcomes sampled with replacement."""
        replay = Replay.of(self.columns, names=self.names)
        values, weights = replay.values, replay.weights
        if self.propensities is not None:
            inverse = [1 / chances for chances in self.propensities]
            values, weights = self.columns, tuple(w / w.sum() for w in inverse)
        return Replay(values, weights, self.clipped, self.names, self.rows)

    def rewards(self, arm: int, users: int, rng: np.random.Generator) -> Floats:  # noqa: ARG002
        """Always raises: only a run tracks which rows are used."""
        raise TacitError(
            "each row of a table is used at most once in a run: begin a run with "
            "fresh(rng), or sample with replacement (resample)."
        )


class RecordedRun(Environment):
    """The unused recorded outcomes of one run."""

    def __init__(self, world: Recorded, rng: np.random.Generator) -> None:
        self.world, self.names, self.rows = world, world.names, world.rows
        self.binary = world.binary
        self._taken = [0] * world.arms
        self._queues = [self._queue(arm, rng) for arm in range(world.arms)]

    def _queue(
        self, arm: int, rng: np.random.Generator
    ) -> tuple[Floats, npt.NDArray[np.signedinteger]]:
        """Accepted rewards in order of use, and the number of rows used up by each."""
        column, chances = self.world.columns[arm], self.world.acceptance(arm)
        order = rng.permutation(len(column)) if self.world.shuffle else np.arange(len(column))
        accepted = np.flatnonzero(rng.random(len(column)) < chances[order])
        return column[order[accepted]], accepted + 1

    @property
    def means(self) -> Floats:
        """The recorded means."""
        return self.world.means

    @property
    def served(self) -> int:
        """The number of participants so far."""
        return sum(self._taken)

    @property
    def used(self) -> int:
        """The number of used rows, including rejected ones."""
        pairs = zip(self._queues, self._taken, strict=True)
        return sum(int(upto[taken - 1]) for (_, upto), taken in pairs if taken)

    def rewards(self, arm: int, users: int, rng: np.random.Generator) -> Floats:  # noqa: ARG002
        """The option's next participants; raises `OutOfData`, using none, if too few are left."""
        taken, (queue, _) = self._taken[arm], self._queues[arm]
        left = len(queue) - taken
        if users > left:
            error = OutOfData(
                f"{self.names[arm]!r} has {left:,} recorded participants left, and the round needs "
                f"{users:,}, after {self.served:,} took part. Use a shorter horizon, record more, "
                "or sample with replacement (resample)."
            )
            error.served = self.served
            raise error
        self._taken[arm] += users
        return queue[taken : taken + users]

    def levels(self, arm: int, users: int, precision: int, rng: np.random.Generator) -> Levels:
        """Levels of the next rows; uses up no row if too few are left."""
        return Levels(*self._counted(arm, users, precision, rng))


def check_horizon(horizon: int, environment: Environment) -> None:
    """Reject a horizon at which a table's column can run out; a log may end early instead.

    >>> check_horizon(3, Recorded((np.ones(2), np.ones(4)), ("A", "B")))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tacit.errors.TacitError: horizon is 3: must be at most 2, the recorded participants of 'A'. ...
    """
    if isinstance(environment, Recorded) and not environment.log and horizon > environment.horizon:
        least = environment.horizon
        name = environment.names[[len(column) for column in environment.columns].index(least)]
        raise TacitError(
            f"horizon is {horizon:,}: must be at most {least:,}, the recorded participants of "
            f"{name!r}. Use a shorter one, or sample with replacement (resample)."
        )
