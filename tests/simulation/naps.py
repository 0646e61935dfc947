"""Importable tasks for the tests of sweeps; as a script, a sweep to be killed or interrupted:
`naps.py log seconds`.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Nap:
    """Sleeps for a while and records where; writes its process's number on request."""

    seconds: float
    pids: Path | None = None

    def __call__(self, seed: int) -> dict[str, Any]:
        if self.pids is not None:
            (self.pids / str(os.getpid())).touch()
        time.sleep(self.seconds if seed else 0.01)
        return {"seed": seed, "process": os.getpid(), "value": seed / 3}


@dataclass(frozen=True)
class Dies:
    """Ends its process, or fails, at one seed."""

    at: int
    error: BaseException | None = None

    def __call__(self, seed: int) -> dict[str, Any]:
        if seed == self.at and self.error is None:
            os._exit(7)
        if seed == self.at and self.error is not None:
            raise self.error
        return {"seed": seed}


class Elsewhere:
    """Can be loaded where it was made, and in no other process."""

    def __init__(self) -> None:
        self.home = os.getpid()

    def __setstate__(self, state: dict[str, Any]) -> None:
        if os.getpid() != state["home"]:
            raise ImportError("not here")

    def __call__(self, seed: int) -> dict[str, Any]:
        return {"seed": seed, "process": os.getpid()}


class StrangeError(Exception):
    """An error that cannot be sent to another process."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(one + other)


def strange(seed: int) -> dict[str, Any]:
    """Fails with it at its last seed."""
    if seed == 2:
        raise StrangeError(1, 2)
    return {"seed": seed}


def main() -> None:
    # without a guard below on purpose: workers must not run a script again
    import importlib

    from tests.simulation import naps

    seeding: Any = importlib.import_module("tacit.simulation.seeds")
    seeding.WORTH_A_POOL = 0.0
    folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
    print("started", flush=True)
    done = seeding.over_seeds(
        naps.Nap(seconds, folder), range(40), workers=2, path=folder / "log.jsonl"
    )
    print(done.interrupted, len(done.records), done.asked, flush=True)


if __name__ != "tests.simulation.naps":
    main()
