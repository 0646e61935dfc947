"""Description of the machine, and output of rows, for all benchmarks."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TypedDict

import numpy as np


class Row(TypedDict):
    """One measured number."""

    name: str
    value: float
    unit: str


@contextmanager
def own_bytecode() -> Iterator[dict[str, str]]:
    """An environment in which bytecode is kept in a directory of its own, as an installed package's
    is, whatever this environment says.
    """
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    with TemporaryDirectory() as place:
        yield kept | {"PYTHONPYCACHEPREFIX": place}


def machine() -> dict[str, str | int]:
    """The interpreter, the platform and the libraries that the numbers depend on."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cpus": os.cpu_count() or 1,
        "numpy": np.__version__,
    }


def emit(rows: list[Row]) -> None:
    """Prints the one JSON object of a benchmark script."""
    print(json.dumps({"rows": rows, "machine": machine()}, indent=2))


def per_second(name: str, work: Callable[[], object], amount: int, repeats: int = 3) -> Row:
    """How much a call gets done in a second: the best of a few repeats, after one call to
    warm up.
    """
    work()
    fastest = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        fastest = min(fastest, time.perf_counter() - start)
    return {"name": name, "value": round(amount / fastest), "unit": "per second"}


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123
            return next(
                line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
            )
    except (OSError, StopIteration):
        return platform.processor()
