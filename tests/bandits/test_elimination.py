"""Elimination learners: the papers' radii, the stated confidence, and the gain of tight bounds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binom
from tests.bandits.harness import Distribution, Environment, exact, fair_bits, laplace, play

from tacit.bandits import (
    DPSE,
    CumulativeElimination,
    ForgettingElimination,
    Learner,
    NoiseTail,
    SuccessiveElimination,
)
from tacit.types import ErrorDistribution, Estimate

Make = Callable[[], Learner]
TIE = Environment(np.array([0.5, 0.5 - 1e-9, 0.5 - 1e-9]))
CONFIDENT: dict[str, tuple[Make, Distribution]] = {
    "forgetting": (lambda: ForgettingElimination(3, 4_000, growth=2), laplace(0.5)),
    "forgetting-paper": (
        lambda: ForgettingElimination(3, 4_000, 4, 0.1, "paper", NoiseTail(math.sqrt(8), 2.0)),
        laplace(0.5),
    ),
    "cumulative-doubling": (lambda: CumulativeElimination(3, 4_000), fair_bits(203)),
    "cumulative-fixed": (lambda: CumulativeElimination(3, 4_000, batch=51), fair_bits(203)),
    "dp-se": (lambda: DPSE(3, 20_000, epsilon=0.5), laplace(0.5)),
    "successive": (lambda: SuccessiveElimination(3, 2_000, lazy=0.1), exact),
}


def answer(learner: Learner, means: list[float]) -> None:
    """One round of exact estimates."""
    for round_ in learner.propose():
        count = round_.participants
        learner.observe(
            round_, Estimate(count * means[round_.arm], ErrorDistribution(count, 1, None))
        )


def drops(make: Make, distribution: Distribution, runs: int) -> int:
    """In how many runs arm 0, which is best by a hair, is dropped."""
    dropped = 0
    for seed in range(runs):
        learner = make()
        play(learner, TIE, distribution, np.random.default_rng([19, seed]))
        dropped += 0 not in learner.active
    return dropped


@pytest.mark.extended
@pytest.mark.parametrize("name", CONFIDENT)
def test_best_arm_is_dropped_no_more_often_than_stated(name: str) -> None:
    make, distribution = CONFIDENT[name]
    assert drops(make, distribution, 150) <= binom.isf(1e-6, 150, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIDENT)
def test_best_arm_is_dropped_no_more_often_than_stated_in_1000_runs(name: str) -> None:
    make, distribution = CONFIDENT[name]
    assert drops(make, distribution, 1_000) <= 100


def test_forgetting_drops_by_the_printed_radius() -> None:
    """Two arms, round 2 of growth 4 (16 users): dropped exactly beyond 2β(2)."""
    log = math.log(2 * 2 * 2**2 / 0.1)
    radius = math.sqrt((log + math.log(2)) / (2 * 16)) + 0.2 * math.sqrt(log) / 16 + 0.1 * log / 16
    for gap, left in ((2 * radius - 1e-9, [0, 1]), (2 * radius + 1e-9, [0])):
        learner = ForgettingElimination(2, 10_000, 4, 0.1, "paper", NoiseTail(0.2, 0.1))
        answer(learner, [0.5, 0.5])
        answer(learner, [0.5 + gap, 0.5])
        assert learner.active == left


def test_cumulative_drops_by_the_printed_radius() -> None:
    radius = (2 * math.sqrt(2) * 3.0 / 2000 + 1 / math.sqrt(2000)) * math.sqrt(2 * math.log(10_000))
    for gap, left in ((2 * radius - 1e-9, [0, 1]), (2 * radius + 1e-9, [0])):
        learner = CumulativeElimination(2, 10_000, batch=1000, constants="paper", sigma=3.0)
        answer(learner, [0.5, 0.5])
        answer(learner, [0.5 + 2 * gap, 0.5])  # averaged over two rounds
        assert learner.active == left


def test_forgetting_discards_old_batches_and_cumulative_keeps_them() -> None:
    forgetting, cumulative = (
        ForgettingElimination(2, 10**6, growth=30),
        CumulativeElimination(2, 10**6, batch=30),
    )
    for learner in (forgetting, cumulative):
        answer(learner, [0.6, 0.5])
        answer(learner, [0.5, 0.55])
    assert forgetting.best() == 1
    assert cumulative.best() == 0


def test_batch_sizes_follow_the_growth_rule() -> None:
    sizes: dict[str, list[int]] = {}
    for name, learner in {
        "forgetting": ForgettingElimination(2, 10**6, growth=4),
        "fraction": ForgettingElimination(2, 10**6, growth=1.5),
        "doubling": CumulativeElimination(2, 10**6),
        "fixed": CumulativeElimination(2, 10**6, batch=7),
    }.items():
        for _ in range(4):
            sizes.setdefault(name, []).append(learner.propose()[0].participants)
            answer(learner, [0.5, 0.5])
    assert sizes == {
        "forgetting": [4, 16, 64, 256],
        "fraction": [2, 3, 4, 6],
        "doubling": [2, 4, 8, 16],
        "fixed": [7, 7, 7, 7],
    }


def test_an_aborted_round_is_proposed_again_at_the_same_size() -> None:
    learner = ForgettingElimination(3, 10**6)
    one, two, three = learner.propose()
    learner.skip(two)
    for round_ in (one, three):
        learner.observe(round_, Estimate(1.0, ErrorDistribution(2, 1, None)))
    (again,) = learner.propose()
    assert (again.arm, again.participants, again.number) == (1, 2, 3)


def test_tight_releases_nothing_once_one_arm_is_left() -> None:
    learner = CumulativeElimination(2, 10**6, batch=1000)
    while len(learner.active) > 1:
        answer(learner, [0.9, 0.1])
    (last,) = learner.propose()
    assert (last.participants, last.released) == (10**6 - learner.played, False)


@pytest.mark.extended
@pytest.mark.parametrize("fixed", [True, False])
def test_tight_has_at_most_half_the_regret_of_the_paper(fixed: bool) -> None:
    """At (0.5, 10^-5): 4,688 fair bits as printed, 203 by exact calibration."""
    rng, regrets = np.random.default_rng(23), np.zeros(2)
    for seed in range(4):
        environment = Environment(rng.uniform(0.25, 0.75, 10))
        paper = CumulativeElimination(
            10, 10**6, 1172 if fixed else None, constants="paper", sigma=math.sqrt(1172)
        )
        tight = CumulativeElimination(10, 10**6, 51 if fixed else None)
        regrets[0] += play(paper, environment, fair_bits(4688), np.random.default_rng(seed))
        regrets[1] += play(tight, environment, fair_bits(203), np.random.default_rng(seed))
    assert regrets[1] < regrets[0] / 2


def test_a_state_with_the_evidence_of_fewer_arms_is_rejected() -> None:
    stored = ForgettingElimination(3, 1_000).to_dict()
    stored["state"]["evidence"].pop()
    with pytest.raises(ValueError, match="shorter"):
        Learner.from_dict(stored)
