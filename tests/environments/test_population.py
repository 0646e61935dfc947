"""Populations: sums of clients drawn at once have exactly the distribution of simulating each
client."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import ks_2samp

from tacit.environments.population import (
    Population,
    SharedParameter,
    check_actions,
    check_schedule,
    covering,
    random_population,
    random_shared,
)
from tacit.errors import TacitError
from tacit.types import Arm, Design, Round

ACTIONS = np.array([[0.8, 0.0], [0.4, 0.6], [-0.3, 0.5]])
THETA = np.array([0.4, 0.3])


def distribution_by_client(clients: int, plays: tuple[int, ...]) -> Counter[tuple[int, ...]]:
    """(sums of signs of ξ, sums of signs of η) over every outcome of every client: probabilities as
    counts of equally likely outcomes.
    """
    signs = (-1, 1)
    single: Counter[tuple[int, ...]] = Counter()
    for deviation in itertools.product(signs, repeat=2):
        for noise in itertools.product(
            *(itertools.product(signs, repeat=count) for count in plays)
        ):
            single[(*deviation, *(sum(part) for part in noise))] += 1
    total = Counter({(0,) * (2 + len(plays)): 1})
    for _ in range(clients):
        following: Counter[tuple[int, ...]] = Counter()
        for one, ways in total.items():
            for other, more in single.items():
                following[tuple(a + b for a, b in zip(one, other, strict=True))] += ways * more
        total = following
    return total


@pytest.mark.parametrize(("clients", "plays"), [(1, (1, 2)), (2, (1, 2)), (3, (2, 1)), (4, (1, 1))])
def test_aggregate_sampling_has_the_distribution_of_single_clients(
    clients: int, plays: tuple[int, ...]
) -> None:
    """Exact: all sums of signs over clients, against products of binomial probabilities, as
    fractions.
    """
    by_client = distribution_by_client(clients, plays)
    outcomes = sum(by_client.values())
    trials = (clients, clients, *(clients * count for count in plays))
    for sums in itertools.product(*(range(-n, n + 1, 2) for n in trials)):
        at_once = math.prod(
            Fraction(math.comb(n, (n + total) // 2), 2**n)
            for n, total in zip(trials, sums, strict=True)
        )
        assert Fraction(by_client[sums], outcomes) == at_once


def test_both_code_paths_agree() -> None:
    """Two-sample Kolmogorov-Smirnov on each coordinate and on their difference; false alarms below
    1e-6 each.
    """
    population = Population(ACTIONS, THETA, 0.15, 0.2, 1.0)
    rng = np.random.default_rng(0)
    support, plays = np.array([0, 1, 2]), np.array([1, 3, 2])
    at_once = np.array([population.total(support, plays, 30, rng) for _ in range(4000)])
    each = np.array(
        [
            sum(part.sum(axis=0) for part in population.reports(support, plays, 30, rng))
            for _ in range(4000)
        ]
    )
    for direction in ([1, 0, 0], [0, 1, 0], [0, 0, 1], [1, -1, 0], [1, 1, 1]):
        assert ks_2samp(at_once @ direction, each @ direction).pvalue > 1e-6
    assert at_once.mean(axis=0) / 30 == pytest.approx(ACTIONS @ THETA, abs=0.01)
    expected = 30 * (0.15**2 * ACTIONS @ ACTIONS.T + 0.2**2 * np.diag(1 / plays))
    assert np.cov(at_once.T) == pytest.approx(expected, abs=0.1 * float(expected.max()))


def test_no_client_exceeds_the_bound() -> None:
    rng = np.random.default_rng(1)
    population = random_population(20, 1000, client_std=0.1, bound=1.0, rng=rng)
    assert population.reach <= 1.0
    rewards = np.vstack(
        list(population.reports(np.arange(50), np.ones(50, dtype=np.int64), 2000, rng))
    )
    assert np.abs(rewards).max() <= 1.0
    assert rewards.std() > 0.2


def test_the_instance_is_as_large_as_the_bound_permits() -> None:
    population = random_population(
        20, 1000, client_std=0.1, bound=1.0, rng=np.random.default_rng(2)
    )
    assert population.reach == pytest.approx(1.0)
    assert (
        random_population(20, 100, client_std=0.01, bound=5.0, rng=np.random.default_rng(2)).theta
        @ np.eye(20)[0]
        <= 1
    )


def test_shared_rewards_are_binomial() -> None:
    world = random_shared(5, 40, bound=2.0, rng=np.random.default_rng(0))
    support, plays = np.arange(3), np.array([10, 1000, 100_000])
    rng = np.random.default_rng(1)
    draws = np.array([world.successes(support, plays, rng) for _ in range(3000)])
    chances = (1 + world.means[support] / 2) / 2
    assert draws.mean(axis=0) / plays == pytest.approx(chances, abs=0.02)
    assert draws.var(axis=0) == pytest.approx(plays * chances * (1 - chances), rel=0.15)


def test_a_covering_has_an_action_near_every_point_of_the_ball() -> None:
    rng = np.random.default_rng(0)
    for dimension, distance in ((1, 0.1), (2, 0.2), (3, 0.4)):
        points = covering(dimension, distance)
        check_actions(points)
        directions = rng.standard_normal((4000, dimension))
        ball = (
            directions
            / np.linalg.norm(directions, axis=1)[:, None]
            * rng.random((4000, 1)) ** (1 / dimension)
        )
        nearest = np.linalg.norm(ball[:, None, :] - points[None], axis=2).min(axis=1)
        assert nearest.max() <= distance + 1e-9
        assert len(points) <= (3 / distance) ** dimension


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([[1.2, 0.0], [0.0, 1.0]], "unit ball"),
        ([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], "actions 0 and 2 are the same"),
        ([[1.0, 0.0]], "two or more"),
        ([[math.inf, 0.0], [0.0, 1.0]], "finite"),
    ],
)
def test_invalid_action_sets_are_rejected(actions: list[list[float]], message: str) -> None:
    with pytest.raises(TacitError, match=message):
        check_actions(actions)


def test_rewards_out_of_bounds_are_rejected() -> None:
    with pytest.raises(TacitError, match="beyond the bound"):
        Population(ACTIONS, THETA, 0.4, 0.4, 1.0)
    with pytest.raises(TacitError, match="beyond the bound"):
        SharedParameter(ACTIONS, 0.9 * np.array([1.0, 0.0]), 0.5)
    with pytest.raises(TacitError, match="client_std"):
        random_population(20, 100, client_std=0.5, bound=1.0, rng=np.random.default_rng(0))
    with pytest.raises(TacitError, match="unit ball"):
        Population(ACTIONS, 2 * THETA * 3, 0.0, 0.0, 10.0)


def test_a_population_below_the_sample_size_is_rejected() -> None:
    check_schedule(1000, None)
    check_schedule(1000, 1000)
    with pytest.raises(TacitError, match="1,001 different clients"):
        check_schedule(1001, 1000)


def test_coverings_that_exceed_memory_are_rejected() -> None:
    with pytest.raises(TacitError, match="larger"):
        covering(10, 0.01)


@pytest.mark.parametrize(
    "world",
    [Population(ACTIONS, THETA, 0.15, 0.2, 1.0), SharedParameter(ACTIONS, THETA, 1.0)],
    ids=["population", "shared"],
)
def test_a_design_costs_the_regret_of_its_plays(
    world: Population | SharedParameter,
) -> None:
    each = isinstance(world, SharedParameter)
    design = Design((2, 0), (3, 5), 8.0, each)
    rng = np.random.default_rng(0)
    played = world.play(Round(0, 8 if each else 30, design), object(), rng)
    gaps = (ACTIONS @ THETA).max() - ACTIONS @ THETA
    assert played.time.tolist() == [3, 8]
    assert played.regret is not None
    np.testing.assert_allclose(played.regret, [3 * gaps[2], 3 * gaps[2] + 5 * gaps[0]])
    np.testing.assert_allclose(world.gaps, gaps)
    if each:
        assert [(signs.plays, signs.bound) for signs in played.load] == [(3, 1.0), (5, 1.0)]
    else:
        assert played.load.clients == 30
        assert played.load.support.tolist() == [2, 0]
        assert played.load.total(rng).shape == (2,)
    assert world.play(Round(0, 0, design, released=False), None, rng).load is None
    with pytest.raises(TacitError, match="must be a Design"):
        world.play(Round(0, 5, Arm(0)), None, rng)
