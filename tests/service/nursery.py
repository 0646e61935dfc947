"""Fast start of party processes: one process imports everything and forks each of them.

A process that is to be killed and started again a hundred times should not be imported a hundred
times. A party is still a process of its own, which is killed like any other. `python -m
tests.service.nursery` reads what to start, one line of JSON each, and says its number.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from types import FrameType

from tests.service.party import run
from tests.service.served import NONE, STARTING, Member, Process, Running


class Nursery:
    """The process that forks parties; with it they all end."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.service.nursery"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._lock = Lock()

    def born(self, config: Path, seed: int | None, log: Path) -> int:
        """The number of a new party's process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps([str(config), seed, str(log)]) + "\n")
            return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it and its remaining children."""
        self._process.communicate(timeout=STARTING)

    def process(
        self, told: Member, seed: int | None = None, environment: Mapping[str, str] = NONE
    ) -> Process:
        """A party that is born here."""
        return _Born(self, told, seed, environment)


@contextmanager
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    try:
        yield made
    finally:
        made.close()


class _Born(Process):
    """A party that a nursery starts."""

    def __init__(
        self, where: Nursery, told: Member, seed: int | None, environment: Mapping[str, str]
    ) -> None:
        super().__init__(told, seed, environment)
        self._where, self._seed = where, seed

    def _begun(self) -> Running:
        return _Child(self._where.born(self.member.path, self._seed, self.log))


class _Child:
    """A child of the nursery, which reaps it at once."""

    def __init__(self, number: int) -> None:
        self._number = number

    def poll(self) -> int | None:
        try:
            os.kill(self._number, 0)
        except ProcessLookupError:
            return 0
        return None

    def send_signal(self, sig: int) -> None:
        os.kill(self._number, sig)

    def wait(self, timeout: float | None = None) -> int:
        end = time.monotonic() + (timeout or STARTING)
        while self.poll() is None:
            assert time.monotonic() < end, "it does not end"
            time.sleep(0.001)
        return 0


def main() -> None:
    children: set[int] = set()

    def reap(_signal: int, _frame: FrameType | None) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                children.discard(ended)

    signal.signal(signal.SIGCHLD, reap)
    for line in sys.stdin:
        config, seed, log = json.loads(line)
        if not (child := os.fork()):
            _live(Path(config), seed, Path(log))
        children.add(child)
        print(child, flush=True)
    for child in list(children):
        os.kill(child, signal.SIGKILL)


def _live(config: Path, seed: int | None, log: Path) -> None:
    """The life of a child."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with log.open("ab") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    try:
        run(config, seed)
    finally:
        os._exit(0)


if __name__ == "__main__":
    main()
