"""Agent-rounds of a federation per CPU second, beside a plain loop over agents. One core.

Targets: at least 20,000 at d = 10 with 100 actions and fresh contexts, at least 4 times the loop; d
= 57 with 908 actions works; one run at M = 100, T = 10^4, B = 25 within 72 CPU seconds (25 runs in
15 minutes on 2 cores) and 1 GB.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from machine import Row, emit
from tacit.algorithms.registry import lookup
from tacit.environments.silos import Synthetic
from tacit.simulation import Trial


def cpu_seconds(work: Callable[[], object], repeats: int = 3) -> float:
    fastest = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        work()
        fastest = min(fastest, time.process_time() - start)
    return fastest


def loop(silos: int, dimension: int, actions: int, rounds: int, sync: int = 25) -> None:
    """FedLinUCB as one would write it down: for every round and every agent, solve for θ and take
    the best upper bound.
    """
    rng = np.random.default_rng(0)
    environment = Synthetic.draw(silos, dimension, actions, rng)
    common, common_bias = np.eye(dimension), np.zeros(dimension)
    gram, bias = np.zeros((silos, dimension, dimension)), np.zeros((silos, dimension))
    one = Synthetic(1, actions, environment.parameter)
    for t in range(1, rounds + 1):
        radius = np.sqrt(2 * np.log(200) + dimension * np.log(1 + silos * t / dimension)) + 1
        for i in range(silos):
            features = one.contexts(rng)[0]
            matrix = common + gram[i]
            theta = np.linalg.solve(matrix, common_bias + bias[i])
            widths = np.sqrt(np.einsum("ad,ad->a", features, np.linalg.solve(matrix, features.T).T))
            x = features[np.argmax(features @ theta + radius * widths)]
            y = np.clip(x @ environment.parameter + 0.25 * rng.standard_normal(), 0, 1)
            gram[i] += np.outer(x, x)
            bias[i] += x * y
        if t % sync == 0:
            common, common_bias = common + gram.sum(axis=0), common_bias + bias.sum(axis=0)
            gram[:], bias[:] = 0, 0


def federation(name: str, **options: Any) -> Trial:
    return Trial(name, lookup(name).make_problem(options))


def rate(label: str, task: Trial, repeats: int = 3) -> tuple[Row, float]:
    seconds = cpu_seconds(lambda: task(0), repeats)
    problem: Any = task.problem
    value = problem.silos * problem.horizon / seconds
    return {"name": label, "value": round(value), "unit": "agent-rounds per CPU second"}, value


def main() -> None:
    size = {"silos": 100, "horizon": 250}
    guarantee = {"epsilon": 1.0, "delta": 1e-5}
    label = "M = 100, d = 10, 100 actions"
    private = federation("secagg-fedlinucb", **size, **guarantee)
    row, fast = rate(f"secagg-fedlinucb, {label}", private)
    rows = [row, rate(f"fedlinucb, {label}", federation("fedlinucb", **size))[0]]
    lazy = federation("secagg-fedlinucb", **size, **guarantee, lazy=True)
    rows.append(rate(f"secagg-fedlinucb, lazy, {label}", lazy)[0])
    slow = 100 * 50 / cpu_seconds(lambda: loop(100, 10, 100, 50))
    rows.append(
        {
            "name": "the same as a loop over agents, without privacy",
            "value": round(slow),
            "unit": "agent-rounds per CPU second",
        }
    )
    rows.append(
        {"name": "batched arrays over the loop", "value": round(fast / slow, 2), "unit": "times"}
    )
    wide = {"silos": 10, "dimension": 57, "actions": 908, "horizon": 50}
    large = federation("secagg-fedlinucb", **wide, **guarantee)
    rows.append(rate("secagg-fedlinucb, M = 10, d = 57, 908 actions", large, repeats=1)[0])
    task = federation("secagg-fedlinucb", silos=100, horizon=10_000, **guarantee)
    seconds = cpu_seconds(lambda: task(0), repeats=1)
    rows.append(
        {
            "name": "one run, M = 100, T = 10^4, B = 25",
            "value": round(seconds, 1),
            "unit": "CPU seconds",
        }
    )
    rows.append(
        {
            "name": "25 such runs on 2 cores",
            "value": round(25 * seconds / 2 / 60, 1),
            "unit": "minutes",
        }
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rows.append({"name": "peak memory", "value": round(peak), "unit": "MB"})
    emit(rows)


if __name__ == "__main__":
    main()
