"""Phased elimination over options with features: coverage, restarts, aborted rounds."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tacit.bandits.contract import Learner
from tacit.bandits.linear.options import OptionElimination, sub_gaussian, with_intercept
from tacit.environments.linear_options import FeaturedOptions, linear_means, linear_options
from tacit.errors import TacitError
from tacit.noise import Binomial, DiscreteLaplace
from tacit.privacy import PureDP
from tacit.protocols.factories import two_servers_laplace
from tacit.types import Arm, ErrorDistribution, Round

NAMES = [str(k) for k in range(40)]


def run(
    world: FeaturedOptions, learner: OptionElimination, rng: np.random.Generator
) -> list[tuple[bool, int | None]]:
    """After every phase: whether all intervals hold the means, and the decided option."""
    seen = []
    while rounds := learner.propose():
        for round_ in rounds:
            if not round_.released:
                learner.skip(round_)
                continue
            protocol = two_servers_laplace(round_.participants, PureDP(1.0), binary=True)
            played = world.play(round_, protocol, rng)
            learner.observe(round_, protocol.simulate(played.load, rng))
        rows = learner.summaries(NAMES)
        held = all(row.low <= mean <= row.high for row, mean in zip(rows, world.means, strict=True))
        seen.append((held, learner.decided()))
    return seen


@pytest.mark.extended
def test_intervals_cover_at_all_phases_and_the_best_option_stays() -> None:
    """All 40 intervals at all phases at once in at least 95% of runs, the best option as often:
    more than 8 misses of 40 runs have probability below 1e-4 each.
    """
    wrong = dropped = 0
    for seed in range(40):
        world, rng = linear_options(40, seed), np.random.default_rng([seed, 1])
        learner = OptionElimination(world.features, 4000, first=30, failure_probability=0.049)
        wrong += not all(held for held, _ in run(world, learner, rng))
        dropped += int(world.means.argmax()) not in learner.active
        assert learner.played == 4000
    assert wrong <= 8
    assert dropped <= 8


def test_the_last_remaining_option_is_the_decision() -> None:
    world = linear_means([[float(k)] for k in range(40)], 0.1, 0.9)
    learner = OptionElimination(world.features, 10**6, first=100, failure_probability=0.049)
    seen = run(world, learner, np.random.default_rng(0))
    best = int(world.means.argmax())
    assert seen[-1] == (True, best)
    decisions = [row.decision for row in learner.summaries(NAMES)]
    assert decisions.count("best") == 1
    assert decisions[best] == "best"
    assert learner.decided(level=0.99) is None  # options were dropped at 95%


def test_a_learner_restored_within_a_phase_continues() -> None:
    world = linear_options(40, 3)
    learner = OptionElimination(world.features, 4000, first=30)
    protocol = two_servers_laplace(30, PureDP(1.0), binary=True)
    rng = np.random.default_rng(0)
    for round_ in learner.propose()[:2]:
        exact = two_servers_laplace(round_.participants, PureDP(1.0), binary=True)
        played = world.play(round_, exact, rng)
        learner.observe(round_, exact.simulate(played.load, rng))
    assert protocol.participants == 30
    text = json.dumps(learner.to_dict(), allow_nan=False)
    again = Learner.from_dict(json.loads(text))
    assert isinstance(again, OptionElimination)
    assert json.dumps(again.to_dict(), allow_nan=False) == text
    one, two = (run(world, each, np.random.default_rng(7)) for each in (learner, again))
    assert one == two
    assert learner.summaries(NAMES) == again.summaries(NAMES)


def test_only_aborted_rounds_are_proposed_again() -> None:
    world = linear_options(40, 3)
    learner = OptionElimination(world.features, 4000, first=30, smallest=20)
    rounds = learner.propose()
    assert min(round_.participants for round_ in rounds) >= 20
    rng = np.random.default_rng(0)
    for round_ in rounds[1:]:
        protocol = two_servers_laplace(round_.participants, PureDP(1.0), binary=True)
        learner.observe(round_, protocol.simulate(world.play(round_, protocol, rng).load, rng))
    learner.skip(rounds[0], 0)
    (again,) = learner.propose()
    assert (again.arm, again.participants) == (rounds[0].arm, rounds[0].participants)
    assert again.number != rounds[0].number
    assert learner.best() in range(40)
    assert all(row.mean is None for row in learner.summaries(NAMES))  # no phase is complete


def test_the_last_phase_uses_all_remaining_participants() -> None:
    learner = OptionElimination([[0.0], [1.0], [3.0]], 1000, first=400, smallest=10)
    rounds = learner.propose()
    assert sum(round_.participants for round_ in rounds) == 1000
    few = OptionElimination([[0.0], [1.0], [3.0]], 15, first=10, smallest=10)
    (rest,) = few.propose()
    assert rest == Round(0, 15, Arm(few.best()), released=False)


@pytest.mark.parametrize("noise", [DiscreteLaplace(3), Binomial(60, 0.2), Binomial(40, 0.5)])
def test_the_proxy_bounds_the_noise_at_finer_points(noise: DiscreteLaplace | Binomial) -> None:
    error = ErrorDistribution(100, 1, noise)
    proxy, reach = sub_gaussian(error)
    assert reach is not None
    points = np.linspace(-reach, reach, 100_001)
    assert np.all(error.log_mgf(points) <= points**2 * proxy / 2 + 1e-12)
    assert proxy <= 4 * error.variance
    assert sub_gaussian(ErrorDistribution(100, 1, None)) == (0.0, None)


def test_features_are_centred_and_constant_ones_left_out() -> None:
    table = with_intercept([[1.0, 4.0], [2.0, 4.0], [5.0, 4.0]])
    assert table.shape == (3, 2)
    for wrong, words in (
        ([[1.0], [1.0]], "all options have the same features"),
        ([[1.0, np.nan], [1.0, 2.0]], "must be a table of finite numbers"),
    ):
        with pytest.raises(TacitError, match=words):
            with_intercept(wrong)


def test_means_are_linear_in_the_features() -> None:
    features = np.random.default_rng(0).uniform(0, 5, (30, 3))
    world = linear_means(features, 0.1, 0.4)
    design = np.column_stack([np.ones(30), features])
    fitted = design @ np.linalg.lstsq(design, world.means, rcond=None)[0]
    assert np.allclose(fitted, world.means)
    assert np.isclose(world.means.min(), 0.1)
    assert np.isclose(world.means.max(), 0.4)
    with pytest.raises(TacitError, match="features have 2 rows: must have 3"):
        FeaturedOptions((0.1, 0.2, 0.3), np.ones((2, 1)))
