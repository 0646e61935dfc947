"""Prints regret of private KL-UCB next to Dist-DP-SE with the paper's constantss, and tight next to
printed arm elimination.

Run as `python -m tests.bandits.regret_table [runs] [seed]`: ten arms, pure privacy through secure
aggregation (total noise DiscreteLaplace(g/ε)), means uniform in [0.25, 0.75] (easy, 10^6 users) or
[0.45, 0.55] (hard, 10^7 users), one run per instance.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable

import numpy as np
from tests.bandits.harness import Distribution, Environment, exact, fair_bits, laplace, play

from tacit.bandits import (
    CumulativeElimination,
    ForgettingElimination,
    Learner,
    NoiseTail,
    PrivateKLUCB,
)

Make = Callable[[int], Learner]
SEED = int(sys.argv[2]) if __name__ == "__main__" and len(sys.argv) > 2 else 1001
RANGES = {"easy": (0.25, 0.75, 10**6), "hard": (0.45, 0.55, 10**7)}


def measure(
    make: Make, distribution: Distribution, kind: str, rewards: str, runs: int
) -> tuple[float, float, float]:
    """Mean regret, its standard error, and milliseconds of processor time per run."""
    low, high, horizon = RANGES[kind]
    instances = np.random.default_rng(SEED).uniform(low, high, (runs, 10))
    start = time.process_time()
    values = [
        play(
            make(horizon),
            Environment(means, rewards),
            distribution,
            np.random.default_rng([SEED, seed]),
        )
        for seed, means in enumerate(instances)
    ]
    elapsed = (time.process_time() - start) * 1e3 / runs
    return float(np.mean(values)), float(np.std(values)) / math.sqrt(runs), elapsed


def dist_dp_se(epsilon: float) -> Make:
    """As in the authors' runs."""
    return lambda horizon: ForgettingElimination(
        10, horizon, 4, 0.1, "paper", NoiseTail(math.sqrt(2) / epsilon, 1 / epsilon)
    )


def klucb(epsilon: float, index: str) -> Make:
    """Ours."""
    return lambda horizon: PrivateKLUCB(10, horizon, 2 / epsilon**2, index)


def arm_elimination(batch: int | None, constants: str) -> Make:
    """SDP-AE with a batch size, VB-SDP-AE without."""
    return lambda horizon: CumulativeElimination(
        10, horizon, batch, constants=constants, sigma=math.sqrt(1172)
    )


def main(runs: int) -> None:
    """Both tables."""
    print(
        "rewards   kind  eps       dist-dp-se      chernoff  ratio    ms      variance  ratio    "
        "ms  no noise"
    )
    for rewards in ("gaussian", "bernoulli"):
        for kind in RANGES:
            free, _, _ = measure(
                lambda horizon: PrivateKLUCB(10, horizon), exact, kind, rewards, runs
            )
            for epsilon in (0.1, 0.5, 1.0):
                distribution = laplace(epsilon)
                base, error, _ = measure(dist_dp_se(epsilon), distribution, kind, rewards, runs)
                row = f"{rewards:10}{kind:6}{epsilon:<5}{base:10.0f} ± {error:<4.0f}"
                for index in ("chernoff", "variance"):
                    mean, error, ms = measure(
                        klucb(epsilon, index), distribution, kind, rewards, runs
                    )
                    row += f"{mean:8.0f} ± {error:<4.0f}{base / mean:6.2f}{ms:6.1f}"
                print(row + f"{free:10.0f}", flush=True)
    for kind in RANGES:
        for name, printed, exactly in (("sdp-ae", 1172, 51), ("vb-sdp-ae", None, None)):
            paper, _, _ = measure(
                arm_elimination(printed, "paper"), fair_bits(4688), kind, "bernoulli", runs
            )
            tight, _, ms = measure(
                arm_elimination(exactly, "tight"), fair_bits(203), kind, "bernoulli", runs
            )
            print(
                f"{name:10}{kind:6}paper {paper:8.0f}  tight {tight:8.0f}  ratio "
                f"{paper / tight:5.2f}  {ms:.1f} ms",
                flush=True,
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
