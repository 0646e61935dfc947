"""Group commit: pending writes are committed in one transaction and acknowledged afterwards.

Requests put work into a queue. One thread takes all pending work, commits it, and only then
resolves the futures of the requests. The next group gathers during a commit, and afterwards for a
multiple of the CPU time of that commit: while groups are small, the thread computes for a ninth of
the time at most, however many processes share the load. The queue is bounded; requests beyond the
bound fail with `Unavailable`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from tacit.errors import Unavailable
from tacit.service.http.logs import traced

LOG = logging.getLogger("tacit.service")
GATHERING = 0.004  # seconds that the first work of a group waits for more
SHARE = 8  # after a group, wait this many times the CPU time that it took
LONGEST = 0.03  # maximum seconds to wait for more
LARGEST = 512  # maximum group size
ENOUGH = 128  # pending works that do not wait for more

Work = TypeVar("Work")
Answer = TypeVar("Answer")
Commit = Callable[[Sequence[Work]], Sequence[Answer]]


class _Queued(NamedTuple):
    """Queued work and the future of its request."""

    commit: Callable[[Sequence[Any]], Sequence[Any]]
    work: Any
    future: asyncio.Future[Any]


class GroupWriter:
    """The single thread of a process that commits the writes of requests.

    `most` bounds the queue. `written` is called with the size and the commit time of every group.
    """

    def __init__(
        self, limit: int, written: Callable[[int, float], None] = lambda _size, _seconds: None
    ) -> None:
        self._most = limit
        self._written = written
        self._queue: deque[_Queued] = deque()
        self._come = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="tacit-writer", daemon=True)

    def __len__(self) -> int:
        return len(self._queue)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Commit the pending work and stop; later requests are rejected."""
        self._stopping = True
        self._come.set()
        self._thread.join()

    async def __call__(self, commit: Commit[Work, Answer], work: Work) -> Answer:
        """Queue work; return the answer of `commit` once the group that contains it is on disk."""
        if self._stopping or len(self._queue) >= self._most:
            raise Unavailable("too many writes are pending; nothing was stored: retry later")
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._queue.append(_Queued(commit, work, future))
        if not self._come.is_set():
            self._come.set()
        return await future

    def _run(self) -> None:
        """Commit queued work in groups until the writer stops."""
        gathering = GATHERING
        while not (self._stopping and not self._queue):
            self._come.wait()
            if not self._stopping and len(self._queue) < ENOUGH:
                time.sleep(gathering)
            self._come.clear()
            taken = [self._queue.popleft() for _ in range(min(LARGEST, len(self._queue)))]
            if self._queue:
                self._come.set()
            before = time.thread_time()
            groups: dict[Any, list[_Queued]] = {}
            for one in taken:
                groups.setdefault(one.commit, []).append(one)
            for commit, group in groups.items():
                self._write(commit, group)
            wanted = SHARE * (time.thread_time() - before)
            gathering = min(max(GATHERING, wanted), LONGEST)

    def _write(self, commit: Any, group: list[_Queued]) -> None:
        """Commit one group and answer each of its requests; halve a group that fails."""
        started = time.perf_counter()
        try:
            answers: Sequence[Any] = commit([one.work for one in group])
        except Unavailable as problem:
            answers = [Unavailable(*problem.args) for _ in group]
        except Exception as problem:
            if len(group) > 1:  # of one of them, perhaps: the others are written without it
                middle = len(group) // 2
                self._write(commit, group[:middle])
                self._write(commit, group[middle:])
                return
            LOG.error("group commit failed: %s", type(problem).__name__, extra=traced(problem))
            said = "the write failed; nothing was stored: retry later"
            answers = [Unavailable(said) for _ in group]
        self._written(len(group), time.perf_counter() - started)
        _answer(group, answers)


def _answer(group: list[_Queued], answers: Sequence[Any]) -> None:
    """Resolve the futures of requests in their event loops."""
    loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
    for one, answer in zip(group, answers, strict=True):
        loops.setdefault(one.future.get_loop(), []).append((one.future, answer))
    for loop, pairs in loops.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, pairs)


def _resolve(pairs: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, answer in pairs:
        if future.done():  # the request was cancelled
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
