"""Many runs of one task: on all cores, with a progress bar, and with nothing lost when interrupted.

A task is a callable from a seed to a flat record (a dict of plain numbers and lists). Records are
kept in the order of the seeds; an interrupt ends the runs and keeps what is done. With a path,
every record is written to it as soon as it is there, and a later call can go on from it. Grids of
algorithms and problems are swept in `tacit.simulation.sweeping`; workers are those of `engines`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import TacitError
from tacit.simulation import log
from tacit.simulation.engines import Failure, Unloadable, local
from tacit.simulation.log import Record
from tacit.simulation.progress import bar

Task = Callable[[int], Record]
Outcomes = Generator[tuple[int, Record], None, None]
WORTH_A_POOL = 4.0  # seconds of work left; two workers start in 1.4 s, so 2.8 s are break-even


@dataclass(frozen=True)
class Runs:
    """The records that are done, how long they took, whether they were interrupted, and how many
    runs were asked for.
    """

    records: list[Record]
    seconds: float
    interrupted: bool
    asked: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "asked", max(self.asked, len(self.records)))


def over_seeds(
    task: Task,
    seeds: Iterable[int],
    *,
    label: str = "",
    progress: bool = False,
    workers: int | None = None,
    path: Path | None = None,
    resume: bool = False,
    identity: Mapping[str, Any] | None = None,
) -> Runs:
    """Runs `task(seed)` for every seed. `workers` defaults to the number of cores; what takes a
    moment, and tasks that another process could not load (closures, what a script defines itself),
    stay in this process.

    With `resume`, seeds that are in the log at `path` are not run again; `identity` says what the
    log is of, and going on with a log of something else is refused. Without, an old log is replaced
    as soon as there is a first new record.

    >>> over_seeds(lambda seed: {"regret": 2.0 * seed}, range(3)).records[2]["regret"]
    4.0
    """
    todo, start, interrupted = list(seeds), time.perf_counter(), False
    known: Record = json.loads(json.dumps(dict(identity or {}), default=str))
    kept, length = log.start(path, resume, known) if path else ({}, 0)
    done = {seed: kept[seed] for seed in todo if seed in kept}
    left = [seed for seed in todo if seed not in done]
    results = _results(task, left, workers or os.cpu_count() or 1)
    try:
        with bar(label, len(todo), len(done), progress) as advance, closing(results):
            for seed, record in results:
                done[seed] = {"seed": seed, **record}
                if path is not None:
                    length = log.append(path, length, known, done[seed])
                advance()
    except KeyboardInterrupt:
        interrupted = True
    records = [done[seed] for seed in todo if seed in done]
    return Runs(records, time.perf_counter() - start, interrupted, len(todo))


def _results(task: Task, seeds: list[int], workers: int) -> Outcomes:
    """Runs in this process until what is left is worth a pool; what no worker could take is run
    here.
    """
    todo, start = dict.fromkeys(seeds), time.perf_counter()
    alone = workers == 1 or multiprocessing.parent_process() is not None
    while todo:
        mean = (time.perf_counter() - start) / max(1, len(seeds) - len(todo))
        if not alone and 1 < len(todo) < len(seeds) and mean * len(todo) > WORTH_A_POOL:
            alone = True
            try:
                yield from _pooled(task, todo, min(workers, len(todo)))
            except Unloadable:
                continue
        else:
            seed = next(iter(todo))
            yield seed, _run(task, seed)
            del todo[seed]


def _run(task: Task, seed: int) -> Record:
    """One run; an error tells its seed."""
    try:
        return task(seed)
    except TacitError as error:
        raise TacitError(f"{error} (in the run of seed {seed})") from error
    except Exception as error:
        error.add_note(f"in the run of seed {seed}")
        raise


def _pooled(task: Task, todo: dict[int, None], size: int) -> Outcomes:
    """Runs of the seeds in `todo` on workers, as they end; the first that fails ends all."""
    with closing(local(task, list(todo), size)) as answers:
        for seed, answer in answers:
            if isinstance(answer, Failure):
                raise _told(answer, seed)
            del todo[seed]
            yield seed, answer


def _told(failure: Failure, seed: int) -> BaseException:
    """The error of a run in a worker, with its seed."""
    error = failure.error
    if error is None and failure.trace:
        error = RuntimeError(failure.reason)
    if error is None or isinstance(error, TacitError):
        return TacitError(f"{error or failure.reason} (in the run of seed {seed})")
    if isinstance(error, Exception):
        error.add_note(f"in the run of seed {seed}")
    return error
