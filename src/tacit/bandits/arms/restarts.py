"""Makes learners anytime by restarting them over periods of squared length.

A learner runs for `start` participants, then a fresh one for start², then for start⁴. No estimates
are transferred. Where regret grows with ln T, all periods together cost at most four times the
regret of knowing T; doubling periods would cost ever more (Besson & Kaufmann 2018). Most learners
do not need this: see `Learner.needs_horizon`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tacit.bandits.contract import KeptLearner, Learner, Options, Plan, check_horizon, learner_of
from tacit.errors import integer
from tacit.types import Estimate, Round


class Restarts(KeptLearner):
    """Runs fresh copies of a learner over periods of squared length, up to the horizon.

    Parameters
    ----------
    arms : int
        The number of arms.
    horizon
        The latest step at which the driver stops; the inner learners do not use it.
    learner
        The name of the inner learner's class, as in `tacit.names`.
    options
        Its further arguments, without arms and horizon.
    start
        Participants of the first period.

    >>> from tacit.bandits import ForgettingElimination
    >>> from tacit.names import name_of
    >>> inner = name_of(ForgettingElimination)
    >>> anytime = Restarts(2, 10**9, learner=inner, options={"growth": 4}, start=64)
    >>> [round_.participants for round_ in anytime.propose()]
    [4, 4]
    """

    kept = ("period", "_offset", "_best")
    needs_horizon = False  # periods follow one another until the horizon, wherever it is

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

    def _fresh(self) -> Learner:
        size = {"arms": self.arms, "horizon": self.start ** (2**self.period)}
        return learner_of(self.learner, size | self.options)

    @property
    def active(self) -> list[int]:
        """The arms that the current period may still try."""
        return self._inner.active

    def best(self) -> int | None:
        """The last period's recommendation, or the current one's after half of its period."""
        return self._inner.best() if 2 * self._inner.played >= self._inner.horizon else self._best

    def _plan(self) -> Plan:
        """The current period's rounds, or the first rounds of a new period.

        A round that the end of a period truncates is not released either.
        """
        if not self._inner.propose():
            self._best = self._inner.best()
            self.period += 1
            self._inner = self._fresh()
            self._offset = self._number
        return [(r.assignment, r.participants, r.released) for r in self._inner.propose()]

    def _inside(self, round_: Round) -> Round:
        return replace(round_, number=round_.number - self._offset)

    def _learn(self, round_: Round, estimate: Estimate) -> None:
        self._inner.take(self._inside(round_), estimate)

    def skip(self, round_: Round, served: int | None = None) -> None:
        """Mark a round as skipped, here and (before the horizon) in the current period."""
        super().skip(round_, served)
        number = round_.number - self._offset
        if self.played < self.horizon:  # the inner round is whole, even if truncated here
            inner = next(one for one in self._inner.propose() if one.number == number)
            self._inner.skip(inner, self._unreleased(round_, served))

    def served(self, option: int, count: int) -> None:
        """Count participants without a report, here and in the current period."""
        super().served(option, count)
        self._inner.served(option, count)

    def _state(self) -> dict[str, Any]:
        return super()._state() | {"inner": self._inner.to_dict()}

    def _restore(self, state: Mapping[str, Any]) -> None:
        super()._restore(state)
        self._inner = Learner.from_dict(state["inner"])
