"""Many runs of one task: on all cores, with a progress bar, and with nothing lost when interrupted.

A task is a callable from a seed to a flat record (a dict of plain numbers and lists). Records are
kept in the order of the seeds; an interrupt ends the sweep and keeps what is done. With a path,
every record is written to it as soon as it is there, and a later sweep can go on from it. Workers
are fresh interpreters (`spawn`) that end with this process, however it ends.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tacit.checks import TacitError
from tacit.simulation import log
from tacit.simulation.log import Record

Task = Callable[[int], Record]
Outcomes = Generator[tuple[int, Record], None, None]
WORTH_A_POOL = 4.0  # seconds of work left; two workers start in 1.4 s, so 2.8 s are break-even
WORTH_A_BAR = 2.0  # seconds after which somebody who waits wants to know how long
MOST_WORKERS = 61  # Windows waits for no more


@dataclass(frozen=True)
class Sweep:
    """The records that are done, how long they took, whether the sweep was interrupted, and how
    many runs were asked for.
    """

    records: list[Record]
    seconds: float
    interrupted: bool
    asked: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "asked", max(self.asked, len(self.records)))


def sweep(
    task: Task,
    seeds: Iterable[int],
    *,
    label: str = "",
    progress: bool = False,
    workers: int | None = None,
    path: Path | None = None,
    resume: bool = False,
    identity: Mapping[str, Any] | None = None,
) -> Sweep:
    """Runs `task(seed)` for every seed. `workers` defaults to the number of cores; short sweeps,
    and tasks that another process could not load (closures, what a script defines itself), stay in
    this process.

    With `resume`, seeds that are in the log at `path` are not run again; `identity` says what the
    log is of, and going on with a log of something else is refused. Without, an old log is replaced
    as soon as there is a first new record.

    >>> sweep(lambda seed: {"regret": 2.0 * seed}, range(3)).records[2]["regret"]
    4.0
    """
    todo, start, interrupted = list(seeds), time.perf_counter(), False
    known: Record = json.loads(json.dumps(dict(identity or {}), default=str))
    kept, length = log.start(path, resume, known) if path else ({}, 0)
    done = {seed: kept[seed] for seed in todo if seed in kept}
    left = [seed for seed in todo if seed not in done]
    results = _results(task, left, workers or os.cpu_count() or 1)
    try:
        with _bar(label, len(todo), len(done), progress) as advance, closing(results):
            for seed, record in results:
                done[seed] = {"seed": seed, **record}
                if path is not None:
                    length = log.append(path, length, known, done[seed])
                advance()
    except KeyboardInterrupt:
        interrupted = True
    records = [done[seed] for seed in todo if seed in done]
    return Sweep(records, time.perf_counter() - start, interrupted, len(todo))


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
            yield from _pooled(task, todo, min(workers, len(todo), MOST_WORKERS))
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
    """Runs of the seeds in `todo` on workers, as they end; a task that no other process could load
    leaves them there.
    """
    packed = _packed(task)
    if packed is None:
        return
    # the pool's locks start multiprocessing's tracker, which lifts masks: not inside `_apart`
    pool = ProcessPoolExecutor(size, multiprocessing.get_context("spawn"), _begin, (packed,))
    team: list[Any] = []
    try:
        with _apart():  # all at once: no worker is started later
            others = multiprocessing.active_children()
            seeds = {pool.submit(_work, seed): seed for seed in todo}
            team += [child for child in multiprocessing.active_children() if child not in others]
        for future in as_completed(seeds):
            record = future.result()
            if record is None:
                return
            del todo[seeds[future]]
            yield seeds[future], record
    except BrokenProcessPool:
        pool.shutdown()
        raise _death([child.exitcode for child in team], list(todo)[:size]) from None
    finally:
        for child in team:
            child.kill()
        pool.shutdown(cancel_futures=True)


def _packed(task: Task) -> bytes | None:
    """The task in bytes, or nothing where another process could not load it: what a script or a
    notebook defines itself is known to that one process.
    """
    try:
        packed = pickle.dumps(task)
    except Exception:  # whatever a callable of somebody else's raises, it cannot be sent
        return None
    return None if b"__main__" in packed else packed


def _death(codes: list[int], running: list[int]) -> TacitError:
    """How a worker ended, by the exit codes of all, of whom the others were told to end."""
    own = [code for code in codes if code != -signal.SIGTERM] or codes
    seeds = " or ".join(f"seed {seed}" for seed in running)
    return TacitError(
        f"a worker ended unexpectedly (exit code {own[0]}): if memory is short, use fewer workers "
        f"(in the run of {seeds})"
    )


@contextmanager
def _apart() -> Iterator[None]:
    """Processes started here do not run the caller's script again, which may have no guard against
    that, and never see an interrupt, which is for this process to handle.
    """
    main, masks = sys.modules["__main__"], hasattr(signal, "pthread_sigmask")
    if masks:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        if masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


_loaded: list[Task] = []  # in a worker, its task


def _begin(packed: bytes) -> None:
    """The start of a worker, which ends with its parent and leaves interrupts to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    with suppress(Exception):  # then every run says that there is no task
        _loaded.append(pickle.loads(packed))


def _leave_with_parent() -> None:
    """Ends this process when its parent has ended, even by SIGKILL and in the midst of a run."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _work(seed: int) -> Record | None:
    """A run in a worker; nothing where the task could not be loaded."""
    return _run(_sendable, seed) if _loaded else None


def _sendable(seed: int) -> Record:
    """The task, with errors that can be sent."""
    try:
        return _loaded[0](seed)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error
        raise


@contextmanager
def _bar(label: str, total: int, done: int, shown: bool) -> Iterator[Callable[[], None]]:
    """What to call after each run: it moves a progress bar on standard error, which is shown once
    the sweep has taken a while, or does nothing.
    """
    if not shown or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress

    bar = Progress(
        *Progress.get_default_columns(),
        MofNCompleteColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task(label, total=total, completed=done)
    timer = threading.Timer(WORTH_A_BAR, bar.start)
    timer.start()
    try:
        yield lambda: bar.advance(task)
    finally:
        timer.cancel()
        timer.join()
        if bar.live.is_started:
            bar.stop()
