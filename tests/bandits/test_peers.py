"""Private baselines of others: batch sizes, indices, and the order of their own experiments."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
from tests.bandits.harness import Environment, estimate, laplace, play

from tacit.bandits import AdaPKLUCB, LazyDPTS, Learner
from tacit.bandits.arms.divergence import kl
from tacit.types import ErrorDistribution, Estimate, Round

PUBLISHED = Environment(np.array([0.75, 0.625, 0.5, 0.375, 0.25]))  # of both papers' experiments


def play_rounds(learner: Learner) -> list[Round]:
    rounds: list[Round] = []
    while proposed := learner.propose():
        for round_ in proposed:
            rounds.append(round_)
            if round_.released:
                rng = np.random.default_rng(round_.number)
                learner.observe(round_, estimate(round_, PUBLISHED, laplace(1.0), rng))
            else:
                learner.skip(round_)
    return rounds


def batches(rounds: list[Round]) -> dict[int, list[int]]:
    found = defaultdict(list)
    for round_ in rounds:
        if round_.released:
            found[round_.arm].append(round_.participants)
    return found


def test_an_episode_plays_an_arm_as_often_as_all_before() -> None:
    for sizes in batches(play_rounds(AdaPKLUCB(5, 20_000, 1.0))).values():
        assert sizes == [1, *(2**i for i in range(len(sizes) - 1))]


def test_the_index_matches_the_paper() -> None:
    learner = AdaPKLUCB(2, 10_000, epsilon=0.5)
    for _ in range(12):
        for round_ in learner.propose():
            n = round_.participants
            learner.observe(
                round_, Estimate(n * (0.3 + 0.1 * round_.arm), ErrorDistribution(n, 1, None))
            )
    level = 3.1 * math.log(learner.played + 1)
    for arm, mean in enumerate((0.3, 0.4)):
        last = learner._tallies[arm].participants // 2
        raised = min(1.0, mean + level / (0.5 * last))
        if raised < 1:
            assert last * kl(raised, learner._index(arm, level)) == pytest.approx(level)


def test_lazy_thompson_sampling_doubles_batches_and_releases_no_remainder() -> None:
    rounds = play_rounds(LazyDPTS(5, 20_000, 1.0))
    for sizes in batches(rounds).values():
        assert sizes == [2**i for i in range(len(sizes))]
    assert sum(round_.participants for round_ in rounds) == 20_000
    closed = [round_ for round_ in rounds if not round_.released]
    assert closed == rounds[len(rounds) - len(closed) :]
    assert len({round_.arm for round_ in closed}) == len(closed)


def test_the_larger_posterior_draw_wins_with_its_probability() -> None:
    """One arm of one reward each, 1 and 0, and no noise to allow for: Beta(2, 1) beats Beta(1, 2)
    in 5 of 6 draws; 5,000 draws, 5 standard errors.
    """
    learner = LazyDPTS(2, 10**9, epsilon=1e12, lazy=0)
    for round_ in learner.propose():
        learner.observe(round_, Estimate(float(round_.arm), ErrorDistribution(1, 1, None)))
    for _ in range(5_000):
        learner._draw(remaining=1)
    wins = learner._waiting[1]
    assert abs(wins - 5_000 * 5 / 6) < 5 * math.sqrt(5_000 * 5 / 36)


def regret(learner: Learner, seed: int) -> float:
    return play(learner, PUBLISHED, laplace(1.0), np.random.default_rng(seed))


@pytest.mark.extended
def test_on_the_published_instance_batching_costs_thompson_sampling_nothing() -> None:
    """Five arms, 10^5 participants, ε = 1, 6 runs; standard errors are 30 to 50."""
    size = (5, 10**5, 1.0)
    shared = np.mean([regret(LazyDPTS(*size, seed=seed), seed) for seed in range(6)])
    one_by_one = np.mean([regret(LazyDPTS(*size, 0.001, seed), seed) for seed in range(6)])
    assert shared == pytest.approx(one_by_one, rel=0.35)
    assert shared < 0.8 * np.mean([regret(AdaPKLUCB(*size), seed) for seed in range(6)])
