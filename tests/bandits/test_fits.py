"""Elimination by fitted vectors: the contract of a learner, coverage, and `private-dpe`."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tacit import simulate
from tacit.bandits.contract import Learner
from tacit.bandits.linear.design import exact_design
from tacit.bandits.linear.fitted import FittedElimination
from tacit.environments.linear_options import FeaturedOptions, linear_options
from tacit.errors import TacitError
from tacit.privacy import ApproximateDP
from tacit.protocols.statistic_sums import StatisticSum, StatisticTotals, fit_sum
from tacit.types import Arm, PlayedFit, Round

SIZE = [6, 1 << 16, 1]


def protocol(people: int) -> StatisticSum:
    return fit_sum(people, size=SIZE, trust="two-servers", target=ApproximateDP(4.0, 1e-6))


def fitted_elimination(
    world: FeaturedOptions, horizon: int = 3000, **more: Any
) -> FittedElimination:
    return FittedElimination(world.features, horizon, plays=12, first=200, **more)


def observe(
    learner: Learner, world: FeaturedOptions, rng: np.random.Generator, alike: bool = False
) -> None:
    """Play all pending rounds; `alike`: all answers of a participant follow one random number."""
    for round_ in learner.propose():
        if not round_.released:
            learner.skip(round_)
            continue
        one = protocol(round_.participants)
        load = world.play(round_, one, rng).load
        if alike:
            load = dependent(world, round_, one, rng)
        learner.observe(round_, one.simulate(load, rng))


def dependent(
    world: FeaturedOptions, round_: Round, one: Any, rng: np.random.Generator
) -> StatisticTotals:
    fit = round_.assignment
    assert isinstance(fit, PlayedFit)
    liked = rng.random((round_.participants, 1)) < world.means[list(fit.support)]
    sums = (liked - 0.5) * np.array(fit.plays)
    total = one.statistic.fitted_total(fit.policy, sums, rng)
    return StatisticTotals(total, round_.participants)


def test_a_restored_learner_decides_as_the_original_and_uses_up_its_horizon() -> None:
    world = linear_options(40, seed=3)
    learner: Learner = fitted_elimination(world)
    steps = 0
    while learner.propose():
        again = Learner.from_dict(json.loads(json.dumps(learner.to_dict(), allow_nan=False)))
        assert again.propose() == learner.propose()
        for one in (learner, again):
            observe(one, world, np.random.default_rng(steps))
        assert again.to_dict() == learner.to_dict()
        learner, steps = again, steps + 1
    assert learner.finished
    assert learner.played == learner.horizon
    assert 2 <= steps <= 6
    best = learner.best()
    assert best is not None
    assert world.gaps[best] < 0.1


@pytest.mark.extended
@pytest.mark.parametrize("alike", [False, True])
def test_intervals_cover_all_means_under_dependent_answers(alike: bool) -> None:
    """100 runs; a failure rate of 5% gives 15 or more misses with a probability of 10^-4."""
    misses = 0
    for seed in range(100):
        world, rng = linear_options(20, seed=seed), np.random.default_rng(seed)
        learner = fitted_elimination(world, failure_probability=0.049)
        while learner.propose():
            observe(learner, world, rng, alike)
        rows = learner.summaries([str(n) for n in range(20)])
        covered = [
            row.low <= mean <= row.high
            for row, mean in zip(rows, world.means, strict=True)
            if row.low is not None and row.high is not None
        ]
        dropped_best = int(world.means.argmax()) not in learner.active
        misses += not all(covered) or dropped_best
    assert misses < 15


def test_designs_are_exact_and_repeat_the_most_informative_plays() -> None:
    rng = np.random.default_rng(5)
    actions = np.column_stack([np.ones(200), rng.normal(size=(200, 4))])
    for plays in (5, 8, 40):
        support, counts = exact_design(actions, plays)
        assert counts.sum() == plays
        assert np.linalg.matrix_rank(actions[support]) == 5
    flat = np.column_stack([np.ones(9), np.arange(9), 2 * np.arange(9)])  # two dimensions
    support, counts = exact_design(flat, 6)
    assert support.tolist() == [0, 8]
    assert counts.tolist() == [3, 3]
    with pytest.raises(TacitError, match="one per dimension"):
        exact_design(np.eye(4), 3)
    with pytest.raises(TacitError, match="no participant can fit them"):
        FittedElimination(np.eye(3), 1000, plays=3)


def test_one_option_remains_for_all_remaining_participants() -> None:
    learner = FittedElimination([[0.0], [1.0]], 100, plays=2, first=50, smallest=60)
    (round_,) = learner.propose()
    assert round_.participants == 100  # a second phase would not fit
    learner.skip(round_, 0)
    (again,) = learner.propose()
    assert again.assignment == round_.assignment
    few = FittedElimination([[0.0], [1.0]], 50, plays=2, smallest=60)
    (rest,) = few.propose()
    assert not rest.released
    assert isinstance(rest.assignment, Arm)


@pytest.mark.parametrize("trust", ["secure-aggregation", "central", "two-servers"])
def test_private_dpe_finds_a_good_option(trust: str) -> None:
    found = simulate("private-dpe", arms=60, horizon=8000, epsilon=2.0, trust=trust, runs=2)
    assert isinstance(found.guarantee, ApproximateDP)
    assert (found.guarantee.epsilon, found.guarantee.delta) == (2.0, 1e-6)
    assert all(run["best_mean_gap"] < 0.1 for run in found.runs)
    with pytest.raises(TacitError, match="must be at most"):
        simulate("private-dpe", arms=60, horizon=8000, plays=300)
