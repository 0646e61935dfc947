"""ZC24's public code, re-derived: less noise than the theorems, and little learning at the figure's
budgets.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tacit.algorithms import SilosProblem, zc24_noise
from tacit.papers.public_code import PublicSetting, compared, regret_per_round

SMALL = PublicSetting(silos=5, horizon=200, sync=25, dimension=3, actions=10)


def test_the_noise_of_the_public_code_lacks_factors_of_the_theorems() -> None:
    setting = PublicSetting()
    asked = {"epsilon": 1e-3, "delta": 1e-4, "constants": "paper", "lazy": False}
    silo = zc24_noise.ldp_fedlinucb(SilosProblem.of(**asked)).sums.sigma
    shuffled = zc24_noise.sdp_fedlinucb(SilosProblem.of(**asked)).sums.sigma
    assert (silo / setting.sigma("ldp")) ** 2 == pytest.approx(
        8 * math.log(2e4) / math.log(1e4), rel=1e-3
    )
    assert (shuffled / setting.sigma("sdp")) ** 2 == pytest.approx(
        2 * math.log(9) / math.log(10), rel=1e-9
    )


def test_a_run_is_reproducible_and_learns_without_noise() -> None:
    assert compared(SMALL, 1) == compared(SMALL, 1)
    drowned = regret_per_round("ldp", replace(SMALL, epsilon=1e-6), 0)
    free = regret_per_round("ldp", replace(SMALL, epsilon=1e6, horizon=1000), 0)
    assert free < 0.8 * drowned
