"""Execution engines for runs: processes of this machine, or a Ray cluster.

An engine takes a task and numbers, and yields `(number, answer)` in order of completion. A run that
fails yields a `Failure` and affects no other run, even if its process dies. Local workers are fresh
interpreters (`spawn`) that end with this process, however it ends. This module does not schedule:
on a cluster, Ray decides what runs where.
"""

from __future__ import annotations

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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any

from tacit.errors import TacitError
from tacit.simulation.table import library

Task = Callable[[int], Any]
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
"""Linear algebra on one thread: workers do not compete for cores, and the order of floating-point
sums does not depend on the number of cores."""
MOST_WORKERS = 61  # limit of `wait` on Windows
HANDFUL = 0.1  # seconds of queued work per worker
LARGEST_HANDFUL = 64  # runs


class Unloadable(TacitError):  # noqa: N818 - the task itself is valid
    """Another process cannot load the task: it is a closure, or defined in a script."""


@dataclass(frozen=True)
class Failure:
    """Why a run failed; `error` is the exception itself, if it can be pickled."""

    reason: str
    trace: str = ""
    error: BaseException | None = None


Answer = tuple[int, Any]
Answers = Generator[Answer, None, None]


def attempt(task: Task, number: int) -> tuple[int, float, Any]:
    """Run the task: its number, elapsed seconds, and its result or a `Failure`."""
    start = time.perf_counter()
    try:
        answer = task(number)
    except BaseException as error:
        answer = failure_of(error)
    return number, time.perf_counter() - start, answer


def failure_of(error: BaseException) -> Failure:
    """The failure of a run that raised this exception."""
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    trace = "".join(traceback.format_exception(error))
    return Failure(reason, trace, _sendable(error))


def _sendable(error: BaseException) -> BaseException | None:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return None
    return error


def run_here(task: Task, numbers: Iterable[int]) -> Answers:
    """Run in this process, one after another; an interrupt is re-raised."""
    for number in numbers:
        _, _, answer = attempt(task, number)
        if isinstance(answer, Failure) and isinstance(answer.error, KeyboardInterrupt):
            raise answer.error
        yield number, answer


# Local processes


@dataclass
class _Queue:
    """Numbers that no worker holds, and the batch size that fits the mean duration of a run."""

    numbers: Iterator[int]
    back: deque[int] = field(default_factory=deque)  # returned by workers that died
    mean: float = HANDFUL  # seconds per run, exponentially weighted

    def took(self, seconds: float) -> None:
        self.mean += (seconds - self.mean) / 8

    def handful(self, seconds: float) -> list[int]:
        size = min(LARGEST_HANDFUL, max(1, round(seconds / max(self.mean, 1e-9))))
        found: list[int] = []
        while len(found) < size:
            number = self.back.popleft() if self.back else next(self.numbers, None)
            if number is None:
                break
            found.append(number)
        return found


@dataclass
class _Worker:
    """A process, the connection to it, and the numbers that it holds, in order."""

    process: Any
    line: Connection
    hand: deque[int] = field(default_factory=deque)
    ready: bool = False

    def give(self, queue: _Queue) -> None:
        """Refill the worker's queue if it is nearly empty."""
        if self.ready and len(self.hand) <= LARGEST_HANDFUL and (more := queue.handful(HANDFUL)):
            self.hand += more
            with suppress(OSError):  # it died: the next `recv` raises
                self.line.send(more)


def run_locally(
    task: Task, numbers: Iterable[int], workers: int, environment: Mapping[str, str] | None = None
) -> Answers:
    """Run on worker processes of this machine, with `environment` added to this process's own."""
    packed = _packed(task)
    queue, surroundings = _Queue(iter(numbers)), dict(environment or {})
    if os.name == "posix":  # it resets signal masks, so start it before `_clean_context`
        from multiprocessing import resource_tracker

        resource_tracker.ensure_running()
    team: list[_Worker] = []
    try:
        with _clean_context(surroundings):
            for _ in range(min(workers, MOST_WORKERS)):
                team.append(_started_worker(packed))
        while team:
            lines = {worker.line: worker for worker in team}
            for line in wait(list(lines)):
                worker = lines[line]  # type: ignore[index]
                try:
                    said = worker.line.recv()
                except (EOFError, OSError):
                    team.remove(worker)
                    yield from _handle_death(worker, queue)
                    with _clean_context(surroundings):
                        team.append(_started_worker(packed))
                    continue
                if said is None:
                    raise Unloadable("the task cannot be loaded by another process")
                if not worker.ready:
                    worker.ready = True
                else:
                    number, seconds, answer = said
                    queue.took(seconds)
                    worker.hand.popleft()
                    yield number, answer
                if len(worker.hand) * queue.mean < HANDFUL / 2:
                    worker.give(queue)
                if not worker.hand:
                    worker.line.close()
                    team.remove(worker)
                    worker.process.join()
    finally:
        for worker in team:
            worker.process.kill()
            worker.process.join()


def _packed(task: Task) -> bytes:
    """Pickle the task; raise `Unloadable` if it is defined in a script or notebook (`__main__`)."""
    try:
        packed = pickle.dumps(task)
    except Exception as error:  # foreign callables raise anything in pickling
        raise Unloadable(f"the task cannot be sent to another process ({error})") from error
    if b"__main__" in packed:
        raise Unloadable("the task is defined in a script, which other processes do not run")
    return packed


def _started_worker(packed: bytes) -> _Worker:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_work, args=(packed, theirs), daemon=True
    )
    process.start()
    theirs.close()
    return _Worker(process, ours)


def _handle_death(worker: _Worker, queue: _Queue) -> Iterator[Answer]:
    """Handle a worker's death: its current run has failed, its other numbers return to the
    queue.
    """
    worker.process.join()
    code = worker.process.exitcode
    reason = f"a worker ended with exit code {code}. If memory is short, use fewer workers."
    if not worker.ready:
        raise TacitError(f"{reason} It had not begun a run.")
    if worker.hand:
        failed = worker.hand.popleft()
        queue.back.extend(worker.hand)
        yield failed, Failure(reason)


@contextmanager
def _clean_context(environment: Mapping[str, str]) -> Iterator[None]:
    """Context in which to start processes: they neither run the caller's script nor see SIGINT.

    The script may lack a `__main__` guard; the interrupt is for this process to handle.
    """
    main, masks = sys.modules["__main__"], hasattr(signal, "pthread_sigmask")
    before = {name: os.environ.get(name) for name in environment}
    if masks:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    sys.modules["__main__"] = ModuleType("__main__")
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        sys.modules["__main__"] = main
        if masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _work(packed: bytes, line: Connection) -> None:
    """Main function of a worker: it ends with its parent and ignores SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    try:
        task: Task = pickle.loads(packed)
    except Exception:
        line.send(None)
        return
    line.send(True)
    with suppress(EOFError, OSError):  # the parent closed the connection
        while True:
            for number in line.recv():
                line.send(attempt(task, number))


def _leave_with_parent() -> None:
    """End this process when its parent ends, even by SIGKILL or during a run."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


# Ray cluster


def run_on_ray(
    task: Task, numbers: Iterable[int], address: str | None, workers: int | None = None
) -> Answers:
    """Run on a Ray cluster, at most `workers` runs at once if given.

    `address` is that of a cluster, `auto` for one on this machine, `local` to start one.
    """
    asked = address or "auto"
    if asked not in ("auto", "local"):
        _with_token()
    ray = library("ray", "ray")
    ours = not ray.is_initialized()
    if ours:
        _join(ray, asked)
    try:
        yield from _remotely(ray, task, numbers, workers)
    finally:
        if ours:
            ray.shutdown()


def _with_token() -> None:
    """Enable token authentication for a cluster given by address, if there is a token.

    Ray enables it by itself only for clusters that it discovers, and reads this setting on import.
    """
    kept = Path(os.environ.get("RAY_AUTH_TOKEN_PATH", Path.home() / ".ray" / "auth_token"))
    if "RAY_AUTH_TOKEN" in os.environ or kept.exists():
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def _join(ray: Any, address: str) -> None:
    own = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **own)
    except Exception as error:  # Ray raises many types: unreachable, or not authorized
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise TacitError(
            f"cannot join a Ray cluster at {address!r} ({said[0].rstrip('.')}). Start one with "
            "`ray start --head`, give its --address, and its token in RAY_AUTH_TOKEN or "
            "~/.ray/auth_token."
        ) from error


def _remotely(ray: Any, task: Task, numbers: Iterable[int], workers: int | None) -> Answers:
    """Run tasks on a Ray cluster; repeat the tasks of a lost machine."""
    held, queue = ray.put(task), _Queue(iter(numbers))
    runtime = {"env_vars": ONE_THREAD}
    work = ray.remote(num_cpus=1, max_retries=0, runtime_env=runtime)(_handful)
    again = work.options(max_retries=2)  # one number at a time: retry after the loss of a machine
    _same_versions(ray, work)
    out: dict[Any, list[int]] = {}
    try:
        while True:
            room = workers or int(ray.cluster_resources().get("CPU", 1))
            while len(out) < 2 * room and (more := queue.handful(5 * HANDFUL)):
                out[work.remote(held, more)] = more
            if not out:
                return
            for ended in ray.wait(list(out), num_returns=1)[0]:
                given = out.pop(ended)
                try:
                    answers = ray.get(ended)
                except ray.exceptions.RayError as error:
                    if len(given) == 1:
                        said = str(error).strip().splitlines()[0]
                        yield given[0], Failure(f"the worker was lost: {said}")
                    else:
                        out |= {again.remote(held, [number]): [number] for number in given}
                    continue
                for number, seconds, answer in answers:
                    queue.took(seconds)
                    yield number, answer
    finally:
        for left in out:
            ray.cancel(left, force=True)


def _handful(task: Task, numbers: list[int]) -> list[tuple[int, float, Any]]:
    return [attempt(task, number) for number in numbers]


def _same_versions(ray: Any, work: Any) -> None:
    """Reject a cluster whose versions differ, because results could differ."""
    theirs = ray.get(work.remote(versions, [0]))[0][2]
    if isinstance(theirs, Failure):
        raise TacitError(f"the cluster cannot run tacit ({theirs.reason}). Install it there.")
    if theirs != versions():
        raise TacitError(
            f"the cluster has {_format_versions(theirs)}: must be {_format_versions(versions())}, "
            "or results could "
            "differ. Install the same versions on both."
        )


def versions(_: int = 0) -> dict[str, str]:
    """Versions of software that a run's numbers depend on."""
    import platform

    import numpy as np
    import scipy

    from tacit.version import __version__

    python = ".".join(platform.python_version_tuple()[:2])
    return {
        "tacit": __version__,
        "python": python,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def _format_versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
