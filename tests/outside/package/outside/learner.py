"""Explore, then commit: equal rounds for all options, then the best one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.bandits.contract import Learner, Plan
from tacit.errors import integer
from tacit.types import Arm, Estimate, Round


class Commit(Learner):
    def __init__(self, arms: int, horizon: int, tries: int = 100) -> None:
        super().__init__(arms, horizon)
        self.tries = integer("tries", tries, at_least=1)
        self._sums: list[float | None] = [None] * self.arms

    def best(self) -> int:
        known = [-1.0 if total is None else total for total in self._sums]
        return known.index(max(known))

    def _plan(self) -> Plan:
        new = [(Arm(arm), self.tries) for arm in range(self.arms) if self._sums[arm] is None]
        return new or [(Arm(self.best()), self.horizon + 1)]

    def _learn(self, round_: Round, estimate: Estimate) -> None:
        self._sums[round_.arm] = float(estimate.mean)

    def _state(self) -> dict[str, Any]:
        return {"sums": self._sums}

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._sums = list(state["sums"])
