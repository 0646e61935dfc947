"""Failed steps of rounds: each is counted, and logged at most once a minute for the same reason."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from tacit.errors import TacitError, Unavailable
from tacit.service.errors import LOG
from tacit.service.schema import RoundRow

AGAIN = 1.0  # seconds until a failed step is retried
SILENT = 60.0  # seconds in which the same failure is not logged again


class FailedSteps:
    """Counter and log of failed steps of one party; every failure calls `count`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.count: Callable[[], None] = lambda: None
        self._clock = clock
        self._logged: dict[tuple[str, str], float] = {}

    def advance(self, action: Callable[[RoundRow], float], row: RoundRow) -> float:
        """Advance a round; return the seconds until its next step.

        An error does not delay other rounds.
        """
        try:
            return action(row)
        except TacitError as problem:
            level = logging.WARNING if isinstance(problem, Unavailable) else logging.ERROR
            self.report(f"round {row.identity.hex()} failed to advance", problem, level)
            return AGAIN

    def report(self, what: str, problem: TacitError, level: int = logging.ERROR) -> None:
        """Count a failure that is retried; log it unless that was done within the last minute."""
        self.count()
        now, known = self._clock(), (what, str(problem))
        self._logged = {one: then for one, then in self._logged.items() if now < then + SILENT}
        if known not in self._logged:
            self._logged[known] = now
            LOG.log(level, "%s: %s (retry in %g s)", what, problem, AGAIN)
