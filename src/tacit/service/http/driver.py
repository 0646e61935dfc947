"""What drives a party: one thread that takes its next step when it is time, or when something came.

A step that fails is taken again, later and later up to a bound, and forever: nothing is lost by a
database or a helper that is away for a while.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable

from tacit.errors import TacitError
from tacit.service.http.logs import traced

LOG = logging.getLogger("tacit.service")
SHORTEST = 0.2  # seconds between steps, however much comes
LONGEST = 30.0  # seconds until it is looked again, whatever a step says
SHARE = 4  # a step of a second is followed by so many seconds of rest, unless it is time


class Driver:
    """A thread that calls `step`, which says in how many seconds it is worth calling again."""

    def __init__(
        self, step: Callable[[], float], failed: Callable[[], None] = lambda: None
    ) -> None:
        self._step = step
        self._failed = failed
        self._come = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tacit-driver", daemon=True)

    def start(self) -> None:
        """Begins to drive."""
        self._thread.start()

    def stop(self) -> None:
        """Ends after the present step."""
        self._stop.set()
        self._come.set()
        self._thread.join()

    def poke(self) -> None:
        """Something came: the next step is due."""
        self._come.set()

    @property
    def alive(self) -> bool:
        """Whether there is somebody who drives."""
        return self._thread.is_alive()

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            self._come.clear()
            started = time.monotonic()
            try:
                wait, failures = self._step(), 0
            except Exception as problem:
                failures += 1
                wait = backoff(failures)
                self._failed()
                _log(problem, wait)
            taken = time.monotonic() - started
            rest = min(max(SHORTEST, SHARE * taken), LONGEST) if not failures else wait
            if not self._stop.wait(min(rest, wait)) and wait > rest:
                self._come.wait(min(wait - rest, LONGEST))


def backoff(failures: int, randomly: Callable[[], float] = random.random) -> float:
    """Seconds to wait after so many failures in a row: doubling, with a random part.

    >>> [backoff(failures, lambda: 1.0) for failures in (1, 2, 3, 40)]
    [0.4, 0.8, 1.6, 30.0]
    """
    return min(LONGEST, SHORTEST * 2.0 ** min(failures, 20)) * (0.5 + 0.5 * randomly())


def _log(problem: Exception, wait: float) -> None:
    said = str(problem) if isinstance(problem, TacitError) else type(problem).__name__
    LOG.warning("a step failed: %s; again in %.1f s", said, wait, extra=traced(problem))
