"""Batched private KL-UCB: its schedule, its few batches, and its regret against Dist-DP-SE at the
same guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from tests.bandits.harness import Distribution, Environment, estimate, exact, laplace, play

from tacit.bandits import ForgettingElimination, Learner, NoiseTail, PrivateKLUCB
from tacit.bandits.arms.bounds import MeanBound, leader

RANGES = {"easy": (0.25, 0.75, 10**6), "hard": (0.45, 0.55, 10**7)}


def regret(
    make: Callable[[int], Learner], distribution: Distribution, kind: str, rewards: str, runs: int
) -> float:
    """The mean over instances with ten arms."""
    low, high, horizon = RANGES[kind]
    instances = np.random.default_rng(29).uniform(low, high, (runs, 10))
    return sum(
        play(
            make(horizon),
            Environment(means, rewards),
            distribution,
            np.random.default_rng([31, seed]),
        )
        for seed, means in enumerate(instances)
    ) / len(instances)


def dist_dp_se(epsilon: float) -> Callable[[int], Learner]:
    return lambda horizon: ForgettingElimination(
        10, horizon, 4, 0.1, "paper", NoiseTail(math.sqrt(2) / epsilon, 1 / epsilon)
    )


def klucb(epsilon: float, index: str = "chernoff") -> Callable[[int], Learner]:
    return lambda horizon: PrivateKLUCB(10, horizon, 2 / epsilon**2, index)


@pytest.mark.extended
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_a_fifth_of_the_regret_of_dist_dp_se_on_easy_instances(epsilon: float) -> None:
    distribution = laplace(epsilon)
    baseline = regret(dist_dp_se(epsilon), distribution, "easy", "bernoulli", 20)
    assert regret(klucb(epsilon), distribution, "easy", "bernoulli", 20) <= baseline / 5
    assert (
        regret(klucb(epsilon, "variance"), distribution, "easy", "bernoulli", 20) <= baseline / 6.5
    )


@pytest.mark.slow
@pytest.mark.parametrize("rewards", ["bernoulli", "gaussian"])
@pytest.mark.parametrize(("kind", "chernoff", "variance"), [("easy", 5.0, 6.5), ("hard", 4.0, 4.0)])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_regret_against_dist_dp_se(
    epsilon: float, kind: str, chernoff: float, variance: float, rewards: str
) -> None:
    distribution = laplace(epsilon)
    baseline = regret(dist_dp_se(epsilon), distribution, kind, rewards, 100)
    assert regret(klucb(epsilon), distribution, kind, rewards, 100) <= baseline / chernoff
    assert (
        regret(klucb(epsilon, "variance"), distribution, kind, rewards, 100) <= baseline / variance
    )


def test_privacy_at_epsilon_1_costs_at_most_half_as_much_again() -> None:
    private = regret(klucb(1.0), laplace(1.0), "easy", "bernoulli", 20)
    assert private <= 1.5 * regret(
        lambda horizon: PrivateKLUCB(10, horizon), exact, "easy", "bernoulli", 20
    )


def test_a_billion_users_take_few_batches() -> None:
    learner = PrivateKLUCB(10, 10**9, 2.0)
    play(learner, Environment(np.linspace(0.3, 0.7, 10)), laplace(1.0), np.random.default_rng(37))
    assert learner._number < 200


def test_batches_double_first_and_then_grow_slower() -> None:
    learner = PrivateKLUCB(2, 10**6, noise_variance=100.0, first_batch=300, growth=1.5)
    assert [learner._size(users) for users in (0, 300, 499, 500, 1800)] == [300, 300, 499, 250, 900]


def test_the_last_participants_get_the_best_arm() -> None:
    """The batch that the horizon cuts is never released, so it is no use to explore with it."""
    learner, environment = PrivateKLUCB(3, 10_000, 2.0), Environment(np.array([0.2, 0.8, 0.5]))
    closed = []
    while rounds := learner.propose():
        for round_ in rounds:
            if round_.released:
                rng = np.random.default_rng(round_.number)
                learner.observe(round_, estimate(round_, environment, laplace(1.0), rng))
            else:
                closed.append(round_.arm)
                learner.skip(round_)
    assert closed == [1]


def test_first_batches_leave_most_of_the_horizon() -> None:
    learner = PrivateKLUCB(2, 100, noise_variance=200.0)
    assert [round_.participants for round_ in learner.propose()] == [25, 25]


def test_the_leader_has_the_largest_bound_though_few_are_updated() -> None:
    rng, computed = np.random.default_rng(41), 0
    weights = rng.uniform(0.5, 2, 30)
    bounds = [MeanBound(w * 1.0, w / 2, 0.0, 1.0) for w in weights]

    def renew(arm: int) -> MeanBound:
        nonlocal computed
        computed += 1
        return MeanBound(weights[arm] * math.sqrt(2.0), weights[arm] / math.sqrt(8.0), 0.0, 2.0)

    assert leader(bounds, 2.0, renew) == int(np.argmax(weights))
    assert computed < 10
