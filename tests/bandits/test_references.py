"""Non-private baselines, and restarts over squared periods."""

from __future__ import annotations

import numpy as np
import pytest
from tests.bandits.harness import Environment, exact, laplace, play

from tacit.bandits import (
    KLUCB,
    UCB1,
    ForgettingElimination,
    Learner,
    Restarts,
    SuccessiveElimination,
    Thompson,
)
from tacit.names import name_of
from tacit.types import ErrorDistribution, Estimate, Round

FORGETTING = name_of(ForgettingElimination)
EASY = Environment(np.array([0.3, 0.5, 0.7]))


@pytest.mark.parametrize("learner", [UCB1, KLUCB, Thompson])
def test_laziness_zero_decides_after_every_participant(learner: type[Learner]) -> None:
    textbook = learner(3, 400, lazy=0)  # type: ignore[call-arg]
    play(textbook, EASY, exact, np.random.default_rng(0))
    assert textbook._number == 400


@pytest.mark.extended
@pytest.mark.parametrize("learner", [UCB1, KLUCB, Thompson, SuccessiveElimination])
def test_laziness_costs_little_regret(learner: type[Learner]) -> None:
    def mean_regret(lazy: float) -> float:
        runs = [play(make(lazy), EASY, exact, np.random.default_rng(seed)) for seed in range(6)]
        return sum(runs) / len(runs)

    def make(lazy: float) -> Learner:
        return learner(3, 1_500, lazy=lazy)  # type: ignore[call-arg]

    regrets = [mean_regret(lazy) for lazy in (0, 0.02)]
    assert regrets[1] < 1.3 * regrets[0] + 5


def test_ucb1_plays_the_largest_mean_plus_width() -> None:
    learner = UCB1(2, 1_000, lazy=0)
    for round_, total in zip(learner.propose(), (0.0, 1.0), strict=True):
        learner.observe(round_, Estimate(total, ErrorDistribution(1, 1, None)))
    assert [round_.arm for round_ in learner.propose()] == [1]


def test_thompson_depends_on_its_seed_alone() -> None:
    regrets = [
        play(Thompson(3, 2_000, seed=seed), EASY, exact, np.random.default_rng(0))
        for seed in (1, 1, 2)
    ]
    assert regrets[0] == regrets[1] != regrets[2]


@pytest.mark.extended
def test_baselines_beat_chance_in_the_known_order() -> None:
    environment = Environment(np.array([0.05, 0.1, 0.05, 0.05]))
    regret = {
        learner.__name__: np.mean(
            [
                play(learner(4, 20_000), environment, exact, np.random.default_rng(s))
                for s in range(5)
            ]
        )
        for learner in (UCB1, KLUCB, Thompson)
    }
    assert regret["Thompson"] < regret["KLUCB"] < regret["UCB1"] < 20_000 * 0.0375


def test_restarts_are_fresh_and_release_no_truncated_period() -> None:
    learner = Restarts(3, 20_000, FORGETTING, {"growth": 4}, start=10)
    seen: list[tuple[int, Round]] = []
    while rounds := learner.propose():
        for round_ in rounds:
            seen.append((learner.period, round_))
            if round_.released:
                error = laplace(1.0)(round_.participants)
                learner.observe(round_, Estimate(round_.participants / 2, error))
            else:
                learner.skip(round_)
    played = [
        sum(round_.participants for period, round_ in seen if period == p)
        for p in range(learner.period + 1)
    ]
    assert played == [10, 100, 10_000, 9_890]
    assert [p for p, round_ in seen if not round_.released] == list(range(4))


def test_restarts_recommend_the_last_periods_option_until_they_know_more() -> None:
    learner = Restarts(3, 10**9, FORGETTING, start=2_000)
    while learner.period < 1:
        for round_ in learner.propose():
            if round_.released:
                total = round_.participants * [0.1, 0.2, 0.9][round_.arm]
                learner.observe(
                    round_, Estimate(total, ErrorDistribution(round_.participants, 1, None))
                )
            else:
                learner.skip(round_)
    assert learner.best() == 2
