"""Time of simulations of private multi-armed bandits, beside a loop over single users.

Targets: one run of 10^9 users, 10 arms, ε = 1, Bernoulli rewards, at most 20 ms after warm-up, of
10^12 at most twice that; 10^9 clipped Gaussian rewards at most 200 ms; 10^6 users, 20 runs, 8
algorithms at most 10 s; the slow path at least 1 million users per second.
"""

from __future__ import annotations

import math
import random
import time
from itertools import count
from typing import Any

import numpy as np

from machine import Row, emit, per_second
from tacit.algorithms.registry import lookup
from tacit.noise import DiscreteLaplace
from tacit.privacy import PureDP
from tacit.protocols.sums import SecureSum
from tacit.simulation import Trial, simulate

EIGHT = (
    "dist-dp-se",
    "dist-rdp-se",
    "dist-cdp-se",
    "cdp-se",
    "ldp-se",
    "dp-se",
    "vb-sdp-ae",
    "private-klucb",
)
PER_USER = 200_000
ARMS = 10


def trial(name: str, **options: Any) -> Trial:
    return Trial(name, lookup(name).make_problem({"arms": ARMS, **options}))


def milliseconds(name: str, task: Trial, repeats: int = 7) -> Row:
    """The median over runs of other seeds, after two to warm up."""
    task(0), task(1)
    times = []
    for seed in range(2, 2 + repeats):
        start = time.perf_counter()
        task(seed)
        times.append(1e3 * (time.perf_counter() - start))
    return {"name": name, "value": round(float(np.median(times)), 3), "unit": "ms"}


def runs() -> list[Row]:
    rows = []
    for name in ("private-klucb", "private-med", "dist-dp-se"):
        for exponent, rewards in ((9, "bernoulli"), (12, "bernoulli"), (9, "gaussian")):
            label = f"one run: {name}, 10^{exponent} users, 10 arms, ε = 1, {rewards} rewards"
            task = trial(name, horizon=10**exponent, rewards=rewards)
            rows.append(milliseconds(label, task))
    label = "one run: dist-dp-se with the paper's constants, 10^9 users, gaussian rewards"
    task = trial("dist-dp-se", horizon=10**9, constants="paper", rewards="gaussian")
    rows.append(milliseconds(label, task))
    return rows


def sweeps() -> list[Row]:
    """Cold: calibration included."""
    start = time.perf_counter()
    for name in EIGHT:
        guarantee: dict[str, Any] = {"delta": 1e-5} if "delta" in lookup(name).options else {}
        simulate(lookup(name), arms=ARMS, horizon=10**6, runs=20, **guarantee)
    return [
        {
            "name": "10^6 users, 20 runs, 8 algorithms, calibration included",
            "value": round(time.perf_counter() - start, 3),
            "unit": "s",
        }
    ]


def slow_path() -> Row:
    protocol = SecureSum(100_000, 317, DiscreteLaplace(317), PureDP(1.0))
    rng = np.random.default_rng(0)
    levels = rng.integers(0, 318, size=100_000)

    def work() -> object:
        return protocol.analyze(protocol.combine_batch(protocol.randomize_batch(levels, rng), rng))

    return per_second(
        "slow path: users through randomize, combine and analyze, Pólya shares", work, 100_000
    )


def python_loop(users: int) -> None:
    """UCB1 in plain Python, one user at a time, no privacy: the least that a loop can do."""
    rewards = random.Random(0)
    means = np.linspace(0.3, 0.7, ARMS).tolist()
    sums, pulls = [0.0] * ARMS, [0] * ARMS
    for t in range(users):
        if t < ARMS:
            arm = t
        else:
            width = 2 * math.log(t)
            arm = max(range(ARMS), key=lambda a: sums[a] / pulls[a] + math.sqrt(width / pulls[a]))
        sums[arm] += rewards.random() < means[arm]
        pulls[arm] += 1


def river_loop(policy: Any, users: int) -> None:
    rewards = random.Random(0)
    means = np.linspace(0.3, 0.7, ARMS).tolist()
    arms = list(range(ARMS))
    for _ in range(users):
        arm = policy.pull(arms)
        policy.update(arm, float(rewards.random() < means[arm]))


def loops() -> list[Row]:
    """Users per second of loops, and how many times faster a run of 10^9 users is."""
    rows = [
        per_second(
            "per-user Python loop of UCB1, no privacy",
            lambda: python_loop(PER_USER),
            PER_USER,
            repeats=1,
        )
    ]
    try:
        from river import bandit
    except ImportError:
        pass
    else:
        work = lambda: river_loop(bandit.UCB(delta=1.0, seed=0), PER_USER // 10)  # noqa: E731
        rows.append(
            per_second(
                "per-user loop of river.bandit.UCB, no privacy", work, PER_USER // 10, repeats=1
            )
        )
    task, seeds = trial("private-klucb", horizon=10**9), count(1)
    task(0)
    ours = per_second("private-klucb, 10^9 users in a run", lambda: task(next(seeds)), 10**9)
    ratios: list[Row] = [
        {
            "name": f"private-klucb against the {row['name']}",
            "value": round(ours["value"] / row["value"]),
            "unit": "times",
        }
        for row in rows
    ]
    return [*rows, ours, *ratios]


if __name__ == "__main__":
    emit([*sweeps(), *runs(), slow_path(), *loops()])
