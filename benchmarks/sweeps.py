"""Time of a sweep of 2,000 cells with one worker, with two, and on a local Ray cluster.

The result files are compared byte by byte. The CPU time of the main process is printed too: on a
busy machine it is more reliable than the clock.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from machine import Row, emit
from tacit.simulation.grid import Study, read_study
from tacit.simulation.sweeping import ExecutionConfig, run_study

STUDY = Path(__file__).with_suffix(".toml")


def swept(study: Study, way: ExecutionConfig, out: Path) -> tuple[float, str]:
    """Seconds, and the digest of the last file."""
    start = time.perf_counter()
    done = run_study(study, way, out)
    seconds = time.perf_counter() - start
    if done.failures or done.file is None:
        raise SystemExit(f"{len(done.failures)} cells failed: {done.failures[:1]}")
    return seconds, hashlib.sha256(done.file.read_bytes()).hexdigest()


def cpu() -> tuple[float, float]:
    """Seconds that this process has computed, and its workers that are gone."""
    spent = os.times()
    return spent.user + spent.system, spent.children_user + spent.children_system


def main() -> None:
    """Prints one JSON object."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--without-ray", action="store_true", help="processes of this machine only")
    said = words.parse_args()
    study = read_study(STUDY)
    ways = {"1 worker": ExecutionConfig(workers=1), "2 workers": ExecutionConfig(workers=2)}
    if find_spec("ray") and not said.without_ray:
        ways["ray"] = ExecutionConfig(engine="ray", address="local")
    rows: list[Row] = []
    seconds: dict[str, float] = {}
    computed: dict[str, list[float]] = {}
    digests: set[str] = set()
    with tempfile.TemporaryDirectory() as name:
        for label, way in ways.items():
            before = cpu()
            seconds[label], digest = swept(study, way, Path(name) / label)
            computed[label] = [after - was for after, was in zip(cpu(), before, strict=True)]
            digests.add(digest)
            rows.append({"name": label, "value": round(seconds[label], 1), "unit": "seconds"})
    times = seconds["1 worker"] / seconds["2 workers"]
    own, work = computed["2 workers"]
    rows += [
        {"name": "cells", "value": study.cells, "unit": "cells"},
        {"name": "2 workers over 1", "value": round(times, 2), "unit": "times"},
        {"name": "2 workers: computed by workers", "value": round(work, 1), "unit": "CPU s"},
        {"name": "2 workers: by the sweep itself", "value": round(own, 1), "unit": "CPU s"},
        {"name": "different last files", "value": len(digests), "unit": "of 1"},
    ]
    emit(rows)


if __name__ == "__main__":
    main()
