"""Time of exact accounting: calibration, composition, privacy loss of wide noise, and import.

Each task runs in a process of its own, for its own peak memory and without warm caches.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from machine import Row, emit, own_bytecode  # a script beside this one

EPSILON, DELTA = 1.0, 1e-5


def calibrate_skellam() -> object:
    from tacit.privacy import ApproximateDP, calibrate

    return calibrate("skellam", 1000, ApproximateDP(EPSILON, DELTA))


def calibrate_skellam_directly() -> object:
    """The same search with a sum over every integer in the distribution's window, at each step."""
    import numpy as np

    from tacit.noise import Skellam
    from tacit.privacy.search import least

    def holds(variance: float) -> bool:
        distribution = Skellam(variance)
        first, last = distribution.window()
        k = np.arange(first, last + 1)
        return (
            float(
                np.maximum(
                    0.0, distribution.pmf(k) - np.exp(EPSILON) * distribution.pmf(k + 1000)
                ).sum()
            )
            <= DELTA
        )

    return least(holds, 1000.0**2)


def calibrate_binomial() -> object:
    from tacit.privacy import ApproximateDP, calibrate

    return calibrate("binomial", 1000, ApproximateDP(EPSILON, DELTA), users=1_000_000)


def compose_a_thousand() -> object:
    from tacit.noise import Skellam
    from tacit.privacy import ComposedLoss, privacy_loss

    return ComposedLoss(((privacy_loss(Skellam(1e6), 100), 1000),)).epsilon(DELTA)


def compose_a_thousand_biased() -> object:
    from tacit.noise import Binomial
    from tacit.privacy import ComposedLoss, privacy_loss

    return ComposedLoss(((privacy_loss(Binomial(10_000_000, 0.1), 100), 1000),)).epsilon(DELTA)


def wide_loss() -> object:
    from tacit.noise import Skellam
    from tacit.privacy import privacy_loss

    return privacy_loss(Skellam(1e12), 1_000_000).epsilon(DELTA)


def _measured(task: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the task and the process's peak memory in MB, imports not timed."""
    import dp_accounting.pld.privacy_loss_distribution  # noqa: F401

    import tacit.privacy  # noqa: F401

    start = time.perf_counter()
    task()
    return time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(task: Callable[[], object]) -> tuple[float, float]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_measured, task).result()


def import_seconds(statement: str) -> float:
    """The best of five, less what starting Python takes."""

    def best(code: str, environment: dict[str, str]) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True, env=environment)
            times.append(time.perf_counter() - start)
        return min(times)

    with own_bytecode() as environment:
        return max(0.0, best(statement, environment) - best("pass", environment))


def main() -> None:
    skellam, _ = measured(calibrate_skellam)
    directly, _ = measured(calibrate_skellam_directly)
    binomial, _ = measured(calibrate_binomial)
    composed, composed_memory = measured(compose_a_thousand)
    biased, biased_memory = measured(compose_a_thousand_biased)
    wide, wide_memory = measured(wide_loss)
    rows: list[Row] = [
        {"name": "calibrate Skellam, sensitivity 1000", "value": round(skellam, 3), "unit": "s"},
        {"name": "the same by direct search", "value": round(directly, 3), "unit": "s"},
        {
            "name": "direct search over calibrate",
            "value": round(directly / skellam, 1),
            "unit": "times",
        },
        {
            "name": "calibrate binomial, 1e6 users, sensitivity 1000",
            "value": round(binomial, 3),
            "unit": "s",
        },
        {
            "name": "epsilon of a 1000-fold composition, Skellam",
            "value": round(composed, 3),
            "unit": "s",
        },
        {"name": "peak memory of that", "value": round(composed_memory), "unit": "MB"},
        {
            "name": "epsilon of a 1000-fold composition, biased binomial",
            "value": round(biased, 3),
            "unit": "s",
        },
        {"name": "peak memory of that, biased", "value": round(biased_memory), "unit": "MB"},
        {"name": "privacy loss at sensitivity and std 1e6", "value": round(wide, 3), "unit": "s"},
        {"name": "peak memory of that, wide", "value": round(wide_memory), "unit": "MB"},
        {"name": "import tacit", "value": round(import_seconds("import tacit"), 3), "unit": "s"},
        {
            "name": "import tacit.privacy",
            "value": round(import_seconds("import tacit.privacy"), 3),
            "unit": "s",
        },
    ]
    emit(rows)


if __name__ == "__main__":
    main()
