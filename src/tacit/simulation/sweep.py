"""Many runs of one task: on all cores, with a progress bar, and with nothing lost when interrupted.

A task is a callable from a seed to a flat record (a dict of plain numbers and lists). Records are
kept in the order of the seeds; an interrupt ends the sweep and keeps what is done. With a path,
every record is written to it as soon as it is there, and a later sweep can go on from it. Workers
are fresh interpreters (`spawn`) that end with this process, however it ends.
"""

from __future__ import annotations

import errno
import hashlib
import json
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from pathlib import Path
from types import ModuleType
from typing import Any

from tacit import __version__
from tacit.checks import TacitError

Record = dict[str, Any]
Task = Callable[[int], Record]
Outcomes = Generator[tuple[int, Record], None, None]
WORTH_A_POOL = 4.0  # seconds of work left; two workers start in 1.4 s, so 2.8 s are break-even
WORTH_A_BAR = 2.0  # seconds after which somebody who waits wants to know how long
REMEDIES = {
    errno.EEXIST: "a file is in the way: move it or choose another directory",
    errno.ENOTDIR: "a file is in the way: move it or choose another directory",
    errno.EISDIR: "it is a directory: choose another name",
    errno.EACCES: "no permission: choose a directory that you may write to",
    errno.EPERM: "no permission: choose a directory that you may write to",
    errno.EROFS: "no permission: choose a directory that you may write to",
    errno.ENAMETOOLONG: "the name is too long: choose a shorter one",
}


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
    with _Log(path, resume, identity) as log:
        done = {seed: log.kept[seed] for seed in todo if seed in log.kept}
        left = [seed for seed in todo if seed not in done]
        results = _results(task, left, workers or os.cpu_count() or 1)
        try:
            with _Bar(label, len(todo), len(done), progress) as bar, closing(results):
                for seed, record in results:
                    done[seed] = {"seed": seed, **record}
                    log.write(done[seed])
                    bar.advance()
        except KeyboardInterrupt:
            interrupted = True
    records = [done[seed] for seed in todo if seed in done]
    return Sweep(records, time.perf_counter() - start, interrupted, len(todo))


def unwritable(path: Path, error: OSError) -> TacitError:
    """Why nothing can be written to a path, and what to do about it."""
    reason = REMEDIES.get(error.errno or 0, error.strerror or str(error))
    return TacitError(f"cannot write to {path}: {reason}")


def _results(task: Task, seeds: list[int], workers: int) -> Outcomes:
    """Runs in this process until what is left is worth a pool; what no worker could take is run
    here.
    """
    todo, start = deque(seeds), time.perf_counter()
    alone = workers == 1 or multiprocessing.current_process().daemon
    while todo:
        finished = len(seeds) - len(todo)
        mean = (time.perf_counter() - start) / finished if finished else 0.0
        if not alone and len(todo) > 1 and mean * len(todo) > WORTH_A_POOL:
            alone = True
            if packed := _packed(task):
                yield from _pooled(packed, todo, min(workers, len(todo)))
            continue
        seed = todo.popleft()
        try:
            record = task(seed)
        except Exception as error:
            raise _named(error, seed) from error.__cause__
        yield seed, record


def _packed(task: Task) -> bytes | None:
    """The task in bytes, or nothing where another process could not load it: what a script or a
    notebook defines itself is known to that one process.
    """
    try:
        packed = pickle.dumps(task)
    except Exception:  # whatever a callable of somebody else's raises, it cannot be sent
        return None
    return None if b"__main__" in packed else packed


def _named(error: BaseException, seed: int) -> BaseException:
    """The error of a run, with its seed."""
    if isinstance(error, TacitError):
        return TacitError(f"{error} (in the run of seed {seed})").with_traceback(
            error.__traceback__
        )
    error.add_note(f"in the run of seed {seed}")
    return error


def _pooled(packed: bytes, todo: deque[int], size: int) -> Outcomes:
    """Seeds from `todo` to workers, one at a time each; what comes back, as it comes."""
    with _team(packed, size) as team:
        running: dict[Any, int | None] = dict.fromkeys(team)  # None: still starting
        while running:
            failed: BaseException | None = None
            arrived: list[Any] = wait(list(running))
            for connection in arrived:
                seed = running.pop(connection)
                outcome = _received(connection, team[connection])
                if seed is None:
                    if outcome is not None:
                        continue  # this worker cannot load the task
                elif isinstance(outcome, BaseException):
                    failed = _named(outcome, seed)
                    continue
                if todo and failed is None:
                    running[connection] = todo.popleft()
                    with suppress(OSError):  # the end of a worker shows when it is listened to
                        connection.send(running[connection])
                if seed is not None:
                    yield seed, outcome
            if failed is not None:
                raise failed


def _received(connection: Any, process: Any) -> Any:
    """What a worker sent: a record, the error of a run, or that of its own end."""
    try:
        return connection.recv()
    except (EOFError, OSError):
        process.join()
        return TacitError(
            f"a worker ended unexpectedly (exit code {process.exitcode}): if memory is short, use "
            "fewer workers"
        )


@contextmanager
def _team(packed: bytes, size: int) -> Iterator[dict[Any, Any]]:
    """Workers by their connections; all gone at the end, whatever they were doing."""
    context = multiprocessing.get_context("spawn")
    team: dict[Any, Any] = {}
    try:
        with _apart():
            for _ in range(size):
                ours, theirs = context.Pipe()
                team[ours] = context.Process(target=_work, args=(theirs,), daemon=True)
                team[ours].start()
                theirs.close()
        for connection in team:  # after all were started: a large task is taken when they are up
            with suppress(OSError):
                connection.send_bytes(packed)
        yield team
    finally:
        started = [process for process in team.values() if process.pid is not None]
        for process in started:
            process.kill()
        for process in started:
            process.join()


@contextmanager
def _apart() -> Iterator[None]:
    """Processes started here do not run the caller's script again, which may have no guard against
    that, and never see an interrupt, which is for this process to handle.
    """
    main, masks = sys.modules["__main__"], hasattr(signal, "pthread_sigmask")
    if masks:
        resource_tracker.ensure_running()  # or it would be started below, and lift the mask
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        if masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _work(connection: Any) -> None:
    """The life of a worker: a task, then seeds in and records out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    with suppress(EOFError, ConnectionError):
        packed = connection.recv_bytes()
        try:
            task = pickle.loads(packed)
        except Exception:
            return  # the parent sees the end of the connection and runs the task itself
        connection.send(None)
        while True:
            seed = connection.recv()
            try:
                connection.send(task(seed))
            except BaseException as error:
                connection.send(_portable(error))


def _leave_with_parent() -> None:
    """Ends this process when its parent has ended, even by SIGKILL and in the midst of a run."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _portable(error: BaseException) -> BaseException:
    """An error that can be sent, with where it happened."""
    text = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(text)
    return error


class _Bar:
    """A progress bar on standard error once the sweep has taken a while, or nothing."""

    def __init__(self, label: str, total: int, done: int, shown: bool) -> None:
        self._progress: Any = None
        if shown and sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            columns = (
                progress.TextColumn("{task.description}"),
                progress.BarColumn(),
                progress.MofNCompleteColumn(),
                progress.TimeRemainingColumn(),
            )
            self._progress = progress.Progress(
                *columns, console=Console(stderr=True), transient=True
            )
            self._task = self._progress.add_task(label, total=total, completed=done)
            self._timer = threading.Timer(WORTH_A_BAR, self._progress.start)
            self._timer.daemon = True

    def __enter__(self) -> _Bar:
        if self._progress is not None:
            self._timer.start()
        return self

    def advance(self) -> None:
        if self._progress is not None:
            self._progress.advance(self._task)

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._timer.cancel()
            self._timer.join()
            if self._progress.live.is_started:
                self._progress.stop()


class _Log:
    """One JSON record per line, flushed at once, or nothing; the first line says what they are of.

    The file is touched before any work, so that a path that cannot be written is refused in time,
    and changed when the first new record is there: what is not kept is cut off then.
    """

    def __init__(self, path: Path | None, resume: bool, identity: Mapping[str, Any] | None) -> None:
        self._path, self._resume = path, resume
        self._identity: Record = json.loads(json.dumps(dict(identity or {}), default=str))
        self._file: Any = None
        self._length: int | None = 0  # of what is kept; None once the rest is cut off
        self.kept: dict[int, Record] = {}

    def __enter__(self) -> _Log:
        if self._path is not None:
            try:
                if self._resume and self._path.exists():
                    self._read(self._path)
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("ab")
            except OSError as error:
                raise unwritable(self._path, error) from error
        return self

    def write(self, record: Record) -> None:
        if self._file is None:
            return
        lines = [record]
        if self._length is not None:
            self._file.truncate(self._length)
            if self._identity and not self._length:
                lines.insert(0, self._header())
            self._length = None
        self._file.write("".join(json.dumps(line) + "\n" for line in lines).encode())
        self._file.flush()

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def _header(self) -> Record:
        canonical = json.dumps(self._identity, sort_keys=True).encode()
        digest = hashlib.sha256(canonical).hexdigest()
        return {"task": digest, "version": __version__, "identity": self._identity}

    def _read(self, path: Path) -> None:
        """Takes what is complete; a last line that was not finished is as good as not there."""
        lines = path.read_bytes().splitlines(keepends=True)
        found: Record = {}
        length = 0
        for number, line in enumerate(lines, start=1):
            record = _parsed(line)
            if record is None and number == len(lines):
                break
            if record is None or ("seed" not in record and (number > 1 or "task" not in record)):
                raise TacitError(
                    f"line {number} of {path} is not a record of a sweep: choose another file, or "
                    "replace this one by not resuming"
                )
            if "seed" in record:
                self.kept[record["seed"]] = record
            else:
                found = record.get("identity", {})
            length += len(line)
        if length:
            self._compare(path, found)
        self._length = length

    def _compare(self, path: Path, found: Record) -> None:
        mine = self._identity
        differing = [
            f"{key} (there {found.get(key)!r}, here {mine.get(key)!r})"
            for key in found | mine
            if found.get(key) != mine.get(key)
        ]
        if differing:
            raise TacitError(
                f"{path} holds runs of something else, by {', '.join(differing)}: choose another "
                "file, or replace this one by not resuming"
            )


def _parsed(line: bytes) -> Record | None:
    """A complete line's record."""
    with suppress(ValueError):
        record = json.loads(line)
        if line.endswith(b"\n") and isinstance(record, dict):
            return record
    return None
