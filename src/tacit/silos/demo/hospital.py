"""A simulated hospital: it treats patients as its agent proposes, and learns outcomes late."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tacit.silos.demo.patients import WARD, Course, Patients

Decide = Callable[[dict[str, Any]], tuple[str, str]]
"""A patient's context to the id of the decision and the proposed action."""

Record = Callable[[str, int, str], None]
"""The id of a decision, the outcome and what was done."""


@dataclass
class Hospital:
    """One hospital and its agent; `treat` so many patients, then `discharge` at the end."""

    patients: Patients
    coming: Iterator[Course]
    decide: Decide
    record: Record
    treated: int = 0
    lost: float = 0.0
    _open: list[tuple[int, int, str, int, str]] = field(default_factory=list)

    def treat(self, count: int) -> None:
        """Treat the next patients; outcomes that are due are recorded."""
        for _ in range(count):
            self._treat(next(self.coming))
            while self._open and self._open[0][0] <= self.treated:
                _, _, identity, outcome, done = heapq.heappop(self._open)
                self.record(identity, outcome, done)

    def _treat(self, course: Course) -> None:
        identity, proposed = self.decide(course.context)
        others = [action for action in WARD.actions if action != proposed]
        done = others[0] if course.overridden else proposed
        means = self.patients.means(WARD.scaled(course.context)[None])[0]
        mean = float(means[WARD.action(done)])
        self.treated += 1
        self.lost += float(means.max()) - mean
        if not course.missing:
            outcome = int(course.luck < mean)
            due = self.treated + course.delay
            heapq.heappush(self._open, (due, self.treated, identity, outcome, done))
