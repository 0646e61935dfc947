"""Learners that need a horizon, made to do without: fresh ones over periods that square.

A learner is run for `start` users, then another for start², then for start⁴. What one learned is
not handed on to the next; where regret grows with ln T all periods together cost at most four times
the regret of knowing T, while periods that double would cost ever more (Besson & Kaufmann 2018).
Most learners say that they do not need it: `Learner.needs_horizon`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tacit.bandits.contract import Learner, Options, Plan, check_horizon
from tacit.errors import integer
from tacit.names import named
from tacit.types import Estimate, Round


class Restarts(Learner):
    """Runs fresh copies of a learner over periods that square, for as long as users come.

    Parameters
    ----------
    horizon
        Where the driver will stop at the latest; the inner learners are not told.
    learner
        The learner's class by name, as `tacit.names` writes it.
    options
        Its further arguments, without arms and horizon.
    start
        Users of the first period.

    >>> from tacit.bandits import ForgettingElimination
    >>> from tacit.names import name_of
    >>> inner = name_of(ForgettingElimination)
    >>> anytime = Restarts(2, 10**9, learner=inner, options={"growth": 4}, start=64)
    >>> [round_.participants for round_ in anytime.propose()]
    [4, 4]
    """

    def __init__(
        self, arms: int, horizon: int, learner: str, options: Options = None, start: int = 1024
    ) -> None:
        super().__init__(arms, horizon)
        check_horizon(self.arms, self.horizon)
        self.learner = learner
        self.options = dict(options or {})
        self.start = integer(
            "start",
            start,
            at_least=max(2, self.arms),
            remedy="the first period must reach every arm, and its square be longer",
        )
        self.period = 0
        self._inner = self._fresh()
        self._offset = 0  # number of the period's first round
        self._best: int | None = 0

    @property
    def needs_horizon(self) -> bool:
        """It is what does without."""
        return False

    def _fresh(self) -> Learner:
        kind = named(self.learner, Learner)
        inner: Learner = kind(self.arms, self.start ** (2**self.period), **self.options)
        return inner

    @property
    def active(self) -> list[int]:
        """The arms that the current period may still try."""
        return self._inner.active

    def best(self) -> int | None:
        """What the last period recommended, or the current one once it outgrew it."""
        return self._inner.best() if 2 * self._inner.played >= self._inner.horizon else self._best

    def _plan(self) -> Plan:
        """The current period's rounds; one that a period cuts short is not opened either, and a
        new period follows.
        """
        if not self._inner.propose():
            self._best = self._inner.best()
            self.period += 1
            self._inner = self._fresh()
            self._offset = self._number
        return [(r.assignment, r.participants, r.opened) for r in self._inner.propose()]

    def _inside(self, round_: Round) -> Round:
        return replace(round_, number=round_.number - self._offset)

    def _learn(self, round_: Round, estimate: Estimate) -> None:
        self._inner.observe(self._inside(round_), estimate)

    def skip(self, round_: Round) -> None:
        """Count a round as played but never opened, here and in the current period (unless the
        horizon ends it).
        """
        super().skip(round_)
        if self.played < self.horizon:
            self._inner.skip(self._inside(round_))

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
