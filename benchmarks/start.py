"""Start-up CPU time of commands, beside that of the imports that they need.

Targets: `tacit algorithms` and `tacit --help` load no NumPy (a test says so); a simulation of
nothing at most 1.5 times the import of NumPy, SciPy's special functions and Typer. Commands take
turns, so that a machine that slows down slows all of them, and the least of each counts.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Mapping

from machine import Row, emit, own_bytecode

REPEATS = 15
NOTHING = "simulate --algorithm dist-dp-se --arms 2 --horizon 10 --runs 1 --json"
LIBRARIES = "import numpy, scipy.special, typer"
COMMANDS = {
    "tacit --help": ["-m", "tacit", "--help"],
    "tacit algorithms": ["-m", "tacit", "algorithms"],
    f"tacit {NOTHING}": ["-m", "tacit", *NOTHING.split()],
    LIBRARIES: ["-c", LIBRARIES],
}


def cpu_seconds(words: list[str], environment: Mapping[str, str]) -> float:
    """What a fresh interpreter uses, from its start to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    call = [sys.executable, *words]
    subprocess.run(call, check=True, stdout=subprocess.DEVNULL, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def rows() -> list[Row]:
    least = dict.fromkeys(COMMANDS, float("inf"))
    with own_bytecode() as environment:
        for _ in range(REPEATS):
            for name, words in COMMANDS.items():
                seconds = cpu_seconds(words, environment)
                least[name] = min(least[name], seconds)
    measured: list[Row] = [
        {"name": name, "value": round(seconds, 3), "unit": "CPU seconds"}
        for name, seconds in least.items()
    ]
    ratio = least[f"tacit {NOTHING}"] / least[LIBRARIES]
    name = "a simulation of nothing over the libraries' import"
    return [*measured, {"name": name, "value": round(ratio, 2), "unit": "times"}]


if __name__ == "__main__":
    emit(rows())
