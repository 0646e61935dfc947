"""Background thread that advances a party: it runs the next step when due or when notified.

A failed step is retried forever with exponential backoff. A temporary outage of the database or the
helper therefore loses nothing. Rounds whose devices wait are stepped every second all the same: one
experiment that fails does not keep them waiting.
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
SHORTEST = 0.2  # minimum seconds between steps
FAILED = 1.0  # minimum seconds until the next step after a failed one, if somebody waits for it
LONGEST = 30.0  # maximum seconds between steps
SHARE = 16  # after a step, ignore notifications for this many times its CPU time


class Driver:
    """Thread that calls `step`, which returns the seconds until its next call."""

    def __init__(
        self, step: Callable[[], float], failed: Callable[[], None] = lambda: None
    ) -> None:
        self._step = step
        self._failed = failed
        self._come = threading.Event()
        self._hurry = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tacit-driver", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current step."""
        self._stop.set()
        self._hurry.set()
        self._come.set()
        self._thread.join()

    def notify(self, *, hurry: bool = False) -> None:
        """Notify the thread of new work: the next step is due.

        With `hurry` somebody waits for it: the thread rests only as long as its last step took.
        """
        if hurry:
            self._hurry.set()
        self._come.set()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def _run(self) -> None:
        failures = 0
        while not self._stop.is_set():
            self._come.clear()
            self._hurry.clear()
            started, computed = time.monotonic(), time.thread_time()
            try:
                wait, failures = self._step(), 0
            except Exception as problem:
                failures += 1
                wait = backoff(failures)
                self._failed()
                _log(problem, wait)
            taken = time.monotonic() - started
            share = SHARE * (time.thread_time() - computed)
            rest = min(max(SHORTEST, share), LONGEST) if not failures else wait
            pause = min(rest, wait)
            short = min(pause, max(FAILED if failures else SHORTEST, taken))
            if self._stop.wait(short) or self._hurry.wait(pause - short):
                continue
            if wait > rest:
                self._come.wait(min(wait - rest, LONGEST))


def backoff(failures: int, randomly: Callable[[], float] = random.random) -> float:
    """Seconds to wait after this many consecutive failures: exponential, with jitter.

    >>> [backoff(failures, lambda: 1.0) for failures in (1, 2, 3, 40)]
    [0.4, 0.8, 1.6, 30.0]
    """
    return min(LONGEST, SHORTEST * 2.0 ** min(failures, 20)) * (0.5 + 0.5 * randomly())


def _log(problem: Exception, wait: float) -> None:
    said = str(problem) if isinstance(problem, TacitError) else type(problem).__name__
    LOG.warning("step failed: %s; retry in %.1f s", said, wait, extra=traced(problem))
