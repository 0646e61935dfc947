"""Progress of runs: a bar on a terminal, lines otherwise."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WORTH_A_BAR = 2.0  # seconds until the bar is shown
BETWEEN_LINES = 15.0  # seconds between lines


@contextmanager
def bar(
    label: str, total: int, done: int, visible: bool, *, lines: bool = False
) -> Iterator[Callable[[int], None]]:
    """Yield the function to call with the number of finished runs; it advances a progress bar on
    standard error.

    The bar appears after `WORTH_A_BAR` seconds. If standard error is not a terminal, `lines` asks
    for a line every `BETWEEN_LINES` seconds; otherwise nothing is shown.
    """
    if not visible or not sys.stderr.isatty():
        yield _lines(label, total, done) if lines and visible else lambda _: None
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress

    drawn = Progress(
        *Progress.get_default_columns(),
        MofNCompleteColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = drawn.add_task(label, total=total, completed=done)
    timer = threading.Timer(WORTH_A_BAR, drawn.start)
    timer.start()
    try:
        yield lambda runs: drawn.advance(task, runs)
    finally:
        timer.cancel()
        timer.join()
        if drawn.live.is_started:
            drawn.stop()


def _lines(label: str, total: int, before: int) -> Callable[[int], None]:
    start, done, last = time.monotonic(), before, time.monotonic()

    def advance(runs: int) -> None:
        nonlocal done, last
        done += runs
        now = time.monotonic()
        if now - last >= BETWEEN_LINES:
            last = now
            left = (now - start) / (done - before) * (total - done)
            said = f"{label}: {done:,} of {total:,} cells, about {duration(left)} left"
            print(said, file=sys.stderr, flush=True)

    return advance


def duration(seconds: float) -> str:
    """Format a duration.

    >>> [duration(seconds) for seconds in (0.2, 42, 60 * 12, 3600 * 5.3, 86400 * 3.6)]
    ['1 s', '42 s', '12 min', '5.3 h', '3.6 days']
    """
    for size, unit in ((86_400, " days"), (3600, " h")):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.1f}{unit}"
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{max(1, round(seconds))} s"
