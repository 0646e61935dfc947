"""Many runs of one task: on all cores, with a progress bar, and with nothing lost when interrupted.

A task is a picklable callable from a seed to a flat record (a dict of plain numbers and lists).
Records are kept in the order of the seeds; an interrupt ends the sweep early and keeps what is
done. With a path, every record is written to it as soon as it is there.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

Record = dict[str, Any]
Task = Callable[[int], Record]
WORTH_A_POOL = 1.5  # seconds of remaining work from which starting processes pays


@dataclass(frozen=True)
class Sweep:
    """The records that are done, how long they took, and whether the sweep was interrupted."""

    records: list[Record]
    seconds: float
    interrupted: bool


def sweep(
    task: Task,
    seeds: Iterable[int],
    *,
    label: str = "",
    progress: bool = False,
    workers: int | None = None,
    path: Path | None = None,
) -> Sweep:
    """Runs `task(seed)` for every seed. `workers` defaults to the number of cores; short sweeps
    stay in this process.

    >>> sweep(lambda seed: {"regret": 2.0 * seed}, range(3)).records[2]["regret"]
    4.0
    """
    todo = list(seeds)
    done: dict[int, Record] = {}
    interrupted = False
    start = time.perf_counter()
    with _Bar(label, len(todo), progress) as bar, _Log(path) as log:
        try:
            for seed, record in _results(task, todo, workers or os.cpu_count() or 1):
                done[seed] = record
                log.write(record)
                bar.advance()
        except KeyboardInterrupt:
            interrupted = True
    return Sweep(
        [done[seed] for seed in todo if seed in done], time.perf_counter() - start, interrupted
    )


def _results(task: Task, seeds: list[int], workers: int) -> Iterator[tuple[int, Record]]:
    """Runs in this process until what is left is worth a pool."""
    start = time.perf_counter()
    for index, seed in enumerate(seeds):
        left = len(seeds) - index
        mean = (time.perf_counter() - start) / index if index else 0.0
        if workers > 1 and left > 1 and mean * left > WORTH_A_POOL:
            yield from _pooled(task, seeds[index:], workers)
            return
        yield seed, task(seed)


def _pooled(task: Task, seeds: list[int], workers: int) -> Iterator[tuple[int, Record]]:
    with ProcessPoolExecutor(min(workers, len(seeds)), mp_context=get_context("fork")) as pool:
        pending: dict[Future[Record], int] = {pool.submit(task, seed): seed for seed in seeds}
        try:
            while pending:
                finished, _ = wait(pending, return_when=FIRST_COMPLETED)
                for future in finished:
                    record = future.result()
                    yield pending.pop(future), record
        except KeyboardInterrupt:
            pool.shutdown(
                wait=True, cancel_futures=True
            )  # runs that were under way end, by the same interrupt or in their own time
            for future, seed in pending.items():
                if not future.cancelled() and future.exception() is None:
                    yield seed, future.result()
            raise
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class _Bar:
    """A progress bar on standard error, or nothing."""

    def __init__(self, label: str, total: int, shown: bool) -> None:
        self._label, self._total, self._shown = label, total, shown
        self._progress: Any = None

    def __enter__(self) -> _Bar:
        if self._shown:
            from rich.console import Console
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeRemainingColumn,
            )

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
            )
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._progress.start()
            self._task = self._progress.add_task(self._label, total=self._total)
        return self

    def advance(self) -> None:
        if self._progress is not None:
            self._progress.advance(self._task)

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()


class _Log:
    """One JSON record per line, flushed at once, or nothing."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: Any = None

    def __enter__(self) -> _Log:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("w", encoding="utf-8")
        return self

    def write(self, record: Record) -> None:
        if self._file is not None:
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
