"""Learners that need a horizon, made to do without: the doubling trick.

A fresh learner is run for `start` users, then another for twice as many, and so on (TKMS21 footnote
10; Besson & Kaufmann 2018). What one learned is not handed on to the next, so regret grows by a
constant factor. PrivateKLUCB does not need it: its index never looks at the horizon.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tacit.bandits.contract import Batch, EstimateLike, Learner
from tacit.checks import TacitError, integer


class Doubling(Learner):
    """Runs fresh copies of a learner over periods that double, for as long as users come.

    Parameters
    ----------
    horizon
        Where the driver will stop at the latest; the inner learners are not told.
    learner
        The name of the learner's class, such as "ForgettingElimination".
    options
        Its further arguments, without arms and horizon.
    start
        Users of the first period.

    >>> options = {"growth": 4}
    >>> anytime = Doubling(2, 10**9, learner="ForgettingElimination", options=options, start=64)
    >>> [batch.users for batch in anytime.propose()]
    [4, 4]
    """

    def __init__(
        self,
        arms: int,
        horizon: int,
        learner: str,
        options: Mapping[str, Any] | None = None,
        start: int = 1024,
    ) -> None:
        super().__init__(arms, horizon)
        if learner not in Learner.learners or learner == type(self).__name__:
            raise TacitError(
                f"the learner {learner!r} is unknown; known are "
                f"{', '.join(sorted(Learner.learners))}"
            )
        self.learner = learner
        self.options = dict(options or {})
        self.start = integer(
            "start", start, at_least=self.arms, remedy="the first period must reach every arm"
        )
        self.period = 0
        self._inner = self._fresh()
        self._offset = 0  # number of the period's first batch
        self._best = 0

    def _fresh(self) -> Learner:
        return Learner.learners[self.learner](self.arms, self.start << self.period, **self.options)

    @property
    def active(self) -> list[int]:
        """The arms that the current period may still try."""
        return self._inner.active

    def best(self) -> int:
        """What the last period recommended, or the current one once it outgrew it."""
        return self._inner.best() if 2 * self._inner.played >= self._inner.horizon else self._best

    def _plan(self) -> Iterable[tuple[int, int]]:
        return [(batch.arm, batch.users) for batch in self._inner.propose()]

    def propose(self) -> list[Batch]:
        """The current period's batches; one that a period cuts short is not opened either, and a
        new period follows.
        """
        if not self._pending and not self._inner.propose():
            self._best = self._inner.best()
            self.period += 1
            self._inner = self._fresh()
            self._offset = self._number
        if not self._pending:
            planned = self._inner.propose()
            for batch in super().propose():
                opened = (
                    batch.opened and planned[batch.number - self._offset - planned[0].number].opened
                )
                self._pending[batch.number] = replace(batch, opened=opened)
        return list(self._pending.values())

    def _inside(self, batch: Batch) -> Batch:
        return replace(batch, number=batch.number - self._offset)

    def _learn(self, batch: Batch, estimate: EstimateLike) -> None:
        self._inner.observe(self._inside(batch), estimate)

    def skip(self, batch: Batch) -> None:
        """Count a batch as played but never opened, here and in the current period (unless the
        horizon ends it).
        """
        super().skip(batch)
        if self.played < self.horizon:
            self._inner.skip(self._inside(batch))

    def _state(self) -> dict[str, Any]:
        return {
            "period": self.period,
            "offset": self._offset,
            "best": self._best,
            "inner": self._inner.to_dict(),
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        self.period, self._offset, self._best = state["period"], state["offset"], state["best"]
        self._inner = Learner.from_dict(state["inner"])
