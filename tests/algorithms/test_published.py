"""Published settings against an independent implementation: Dist-DP-SE, user by user, from the
paper's pseudo-code.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tacit.environments import ClippedGaussian, instance_means
from tacit.simulation import simulate

Floats = npt.NDArray[np.float64]
CONFIDENCE, GROWTH, SIGMA = 0.1, 4, 0.1


def dist_dp_se(means: Floats, horizon: int, epsilon: float, rng: np.random.Generator) -> Floats:
    """CZ23 Algorithm 1 with Theorem 1's randomizer, as in the figures: the pseudo-regret of every
    user's arm.
    """
    arms, gaps = len(means), means.max() - means
    active, b, regret = list(range(arms)), 1, []
    while True:
        n = GROWTH**b
        g = math.ceil(epsilon * math.sqrt(n))
        tau = math.ceil(g / epsilon * math.log(2 / CONFIDENCE))
        m = n * g + 2 * tau + 1
        beta = math.exp(-epsilon / g)
        estimate = {}
        for a in active:
            released = 0
            for _ in range(n):  # each new user
                reward = min(max(rng.normal(means[a], SIGMA), 0.0), 1.0)
                level = math.floor(reward * g)
                level += rng.random() < reward * g - level
                plus, minus = (rng.poisson(rng.gamma(1 / n, beta / (1 - beta))) for _ in range(2))
                released = (released + (level + plus - minus) % m) % m
                regret.append(gaps[a])
                if len(regret) == horizon:
                    return np.cumsum(regret)
            estimate[a] = (released - m if released > n * g + tau else released) / g / n
        log = math.log(2 * len(active) * b**2 / CONFIDENCE)
        radius = math.sqrt((log + math.log(2)) / (2 * n)) + (math.sqrt(2 * log) + log) / epsilon / n
        floor = max(estimate.values()) - radius
        active = [a for a in active if estimate[a] + radius >= floor]
        b += 1


def compare(epsilon: float, horizon: int, runs: int) -> float:
    """The largest distance of mean regrets over the checkpoints, in standard errors, on the same
    10-armed easy instances.
    """
    how: dict[str, Any] = {"epsilon": epsilon, "constants": "paper", "rewards": "gaussian"}
    ours = simulate("dist-dp-se", arms=10, horizon=horizon, runs=runs, workers=1, **how)
    worlds = [ClippedGaussian(tuple(instance_means("easy", 10, r).tolist())) for r in range(runs)]
    marks = ours.checkpoints.astype(int)
    rng = np.random.default_rng(77)
    theirs = np.array(
        [dist_dp_se(world.means, horizon, epsilon, rng)[marks - 1] for world in worlds]
    )
    difference = ours.regret - theirs  # of one instance, so the instances' own spread cancels
    error = difference.std(axis=0, ddof=1) / math.sqrt(runs)
    same = error < 1e-9
    np.testing.assert_allclose(difference.mean(axis=0)[same], 0.0, atol=1e-6)
    return float(np.abs(difference.mean(axis=0)[~same] / error[~same]).max(initial=0.0))


@pytest.mark.extended
def test_published_settings_agree_with_the_pseudo_code() -> None:
    """20 instances at T = 6,000: at most 4 standard errors at every checkpoint; seeded."""
    assert compare(1.0, 6000, 20) < 4


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_published_settings_agree_with_the_pseudo_code_in_further_cases(epsilon: float) -> None:
    assert compare(epsilon, 40_000, 60) < 4
