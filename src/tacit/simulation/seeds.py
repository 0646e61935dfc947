"""Run one task over many seeds: on all cores, with a progress bar, interruptible and resumable.

A task is a callable from a seed to a flat record (a dict of plain numbers and lists). Records are
kept in the order of the seeds; an interrupt keeps the finished ones. With a path, every record is
appended to a log as soon as it is finished, and a later call can resume from it. Workers come from
`engines`. Grids of algorithms and problems are in `tacit.simulation.sweeping`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import TacitError
from tacit.simulation.engines import Failure, Unloadable, run_locally
from tacit.simulation.log import RunLog, header
from tacit.simulation.progress import bar
from tacit.simulation.table import Record

Task = Callable[[int], Record]
Outcomes = Generator[tuple[int, Record], None, None]
WORTH_A_POOL = 4.0  # seconds of work left; two workers start in 1.4 s: 2.8 s is break-even


@dataclass(frozen=True)
class Runs:
    """Finished records, elapsed seconds, whether an interrupt occurred, and the number of runs
    requested.

    Parameters
    ----------
    records : list of dict
        The records of finished runs.
    seconds : float
        The elapsed time.
    interrupted : bool
        Whether an interrupt ended the runs early.
    asked : int
        The number of runs requested.
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
    """Run `task(seed)` for every seed.

    Parameters
    ----------
    task : callable
        From a seed to a flat record.
    seeds : iterable of int
        The seeds.
    label : str
        Label of the progress bar.
    progress : bool
        Show a progress bar.
    workers : int, optional
        Number of processes; the number of cores by default. Short work stays in this process. So do
        tasks that cannot be pickled: closures, and functions defined in a script.
    path : Path, optional
        Log of the records.
    resume : bool
        Skip seeds that are in the log. Without it, the first new record replaces an old log.
    identity : mapping, optional
        Description of the task; resuming a log with another identity is rejected.

    Returns
    -------
    Runs
        Records in the order of the seeds.

    Examples
    --------
    >>> over_seeds(lambda seed: {"regret": 2.0 * seed}, range(3)).records[2]["regret"]
    4.0
    """
    todo, start, interrupted = list(seeds), time.perf_counter(), False
    head = header(label, identity or {})
    keeping = nullcontext() if path is None else RunLog(path, head, "seed", resume=resume)
    with keeping as log:
        kept = {} if log is None else log.rows
        done: dict[int, Record] = {seed: json.loads(kept[seed]) for seed in todo if seed in kept}
        left = [seed for seed in todo if seed not in done]
        results = _results(task, left, workers or os.cpu_count() or 1)
        try:
            with bar(label, len(todo), len(done), progress) as advance, closing(results):
                for seed, record in results:
                    done[seed] = {"seed": seed, **record}
                    if log is not None:
                        log.add(seed, json.dumps(done[seed]))
                    advance(1)
        except KeyboardInterrupt:
            interrupted = True
    records = [done[seed] for seed in todo if seed in done]
    return Runs(records, time.perf_counter() - start, interrupted, len(todo))


def _results(task: Task, seeds: list[int], workers: int) -> Outcomes:
    """Run in this process until the rest is worth a pool; tasks that cannot be pickled stay
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
    """One run; an error names its seed."""
    try:
        return task(seed)
    except TacitError as error:
        raise TacitError(f"{error} (in the run of seed {seed})") from error
    except Exception as error:
        error.add_note(f"in the run of seed {seed}")
        raise


def _pooled(task: Task, todo: dict[int, None], size: int) -> Outcomes:
    """Run the seeds in `todo` on workers, in order of completion; the first failure ends all."""
    with closing(run_locally(task, list(todo), size)) as answers:
        for seed, answer in answers:
            if isinstance(answer, Failure):
                raise _error_with_seed(answer, seed)
            del todo[seed]
            yield seed, answer


def _error_with_seed(failure: Failure, seed: int) -> BaseException:
    """The error of a run in a worker, with its seed."""
    error = failure.error
    if error is None and failure.trace:
        error = RuntimeError(failure.reason)
    if error is None or isinstance(error, TacitError):
        return TacitError(f"{error or failure.reason} (in the run of seed {seed})")
    if isinstance(error, Exception):
        error.add_note(f"in the run of seed {seed}")
    return error
