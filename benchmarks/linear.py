"""Time of simulations of linear bandits on one core.

Targets: 0.3 s a run at T = 10^6, k = 1,000, d = 20; T
= 10^9 at most twice that; a run of k = 10^5, d = 50 in at most 60 s and 2 GB.
"""

from __future__ import annotations

import resource
import time
from typing import Any

from machine import Row, emit
from tacit.algorithms.registry import lookup
from tacit.simulation import Trial

GUARANTEE = {"epsilon": 10.0, "delta": 0.25}  # LZJ22's own, at which much is learned and computed


def seconds(label: str, name: str, seeds: range, **options: Any) -> Row:
    """The mean time of a run, after one to warm up."""
    entry = lookup(name)
    guarantee = {key: value for key, value in GUARANTEE.items() if key in entry.options}
    problem: Any = entry.make_problem({**guarantee, **options})
    task = Trial(name, problem, checkpoints=(problem.horizon,))
    if len(seeds) > 1:
        task(seeds[0])
    start = time.perf_counter()
    for seed in seeds:
        task(seed)
    return {"name": label, "value": (time.perf_counter() - start) / len(seeds), "unit": "s"}


def rows() -> list[Row]:
    result = [
        seconds(
            f"{name}, T = 10^{exponent}, k = 1000, d = 20", name, range(5), horizon=10**exponent
        )
        for name in ("dpe", "cdp-dpe", "ldp-dpe", "secagg-dpe", "sdp-dpe", "cdp-pe")
        for exponent in ((6, 9) if name in ("dpe", "cdp-dpe", "cdp-pe") else (6,))
    ]
    size = {"dimension": 50, "actions": 100_000, "client_std": 0.05}
    result.append(seconds("cdp-dpe, T = 10^6, k = 10^5, d = 50", "cdp-dpe", range(1), **size))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    return [*result, {"name": "peak memory, k = 10^5, d = 50", "value": peak, "unit": "GB"}]


if __name__ == "__main__":
    emit(rows())
