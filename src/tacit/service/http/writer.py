"""Group commit: whatever waits for the database is written in one transaction, and answered after.

Requests put work into a queue; one thread takes all that waits, commits it, and only then resolves
what the requests wait for. While one group is being written the next gathers, so that the slower
the disk, the larger the groups. The queue is bounded: beyond it requests are asked to come back.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tacit.errors import Unavailable
from tacit.service.http.logs import traced

LOG = logging.getLogger("tacit.service")
GATHERING = 0.002  # seconds that a group's first one waits for others
LARGEST = 512  # in one transaction

Work = TypeVar("Work")
Answer = TypeVar("Answer")
Commit = Callable[[Sequence[Work]], Sequence[Answer]]


class _Waiting:
    """A piece of work and who waits for it."""

    __slots__ = ("commit", "future", "work")

    def __init__(self, commit: Any, work: Any, future: asyncio.Future[Any]) -> None:
        self.commit, self.work, self.future = commit, work, future


class GroupWriter:
    """The one thread of a process that writes what requests bring.

    `written` is told the size of every group and how long its commit took.
    """

    def __init__(
        self, most: int, written: Callable[[int, float], None] = lambda _size, _seconds: None
    ) -> None:
        self._most = most
        self._written = written
        self._queue: deque[_Waiting] = deque()
        self._come = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="tacit-writer", daemon=True)

    def __len__(self) -> int:
        return len(self._queue)

    def start(self) -> None:
        """Begins to write."""
        self._thread.start()

    def stop(self) -> None:
        """Writes what waits, and ends; whatever comes later is turned away."""
        self._stopping = True
        self._come.set()
        self._thread.join()

    async def __call__(self, commit: Commit[Work, Answer], work: Work) -> Answer:
        """What `commit` says about this work, once the group that it is part of is on disk."""
        if self._stopping or len(self._queue) >= self._most:
            raise Unavailable("too much waits to be written; nothing was kept: try again later")
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(commit, work, future))
        if not self._come.is_set():
            self._come.set()
        return await future

    def _run(self) -> None:
        while not (self._stopping and not self._queue):
            self._come.wait()
            if not self._stopping:
                time.sleep(GATHERING)
            self._come.clear()
            while self._queue:
                taken = [self._queue.popleft() for _ in range(min(LARGEST, len(self._queue)))]
                groups: dict[Any, list[_Waiting]] = {}
                for one in taken:
                    groups.setdefault(one.commit, []).append(one)
                for commit, group in groups.items():
                    self._write(commit, group)

    def _write(self, commit: Any, group: list[_Waiting]) -> None:
        started = time.perf_counter()
        try:
            answers: Sequence[Any] = commit([one.work for one in group])
        except Unavailable as problem:
            answers = [Unavailable(*problem.args) for _ in group]
        except Exception as problem:
            LOG.error("a group was not written: %s", type(problem).__name__, extra=traced(problem))
            said = "this could not be written; nothing was kept: try again later"
            answers = [Unavailable(said) for _ in group]
        self._written(len(group), time.perf_counter() - started)
        _answer(group, answers)


def _answer(group: list[_Waiting], answers: Sequence[Any]) -> None:
    """Resolves what requests wait for, in the event loop that they run in."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for one, answer in zip(group, answers, strict=True):
        loops.setdefault(one.future.get_loop(), []).append((one.future, answer))
    for loop, pairs in loops.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, pairs)


def _resolve(pairs: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, answer in pairs:
        if future.done():  # whoever asked has gone
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
