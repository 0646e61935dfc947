"""Sums of vectors in a ball: sensitivity, guarantee and rejections."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.protocols.examples import Given

from tacit.assumptions import DishonestAtMost, Scope
from tacit.errors import TacitError
from tacit.privacy import ApproximateDP, Arithmetic, GaussianLoss, PureDP, ThreatModel, View
from tacit.privacy.gaussian_distance import NearlyGaussianLoss
from tacit.protocols.l2_sums import (
    BallSum,
    CentralBall,
    LocalBall,
    SecureBall,
    ShuffledBall,
    ball_noise,
    movement,
)
from tacit.testing.statistics import UNSEEDED
from tacit.trust import split_shares
from tacit.types import Fit

TARGETS = [ApproximateDP(1.0, 1e-5), ApproximateDP(0.2, 1e-5), ApproximateDP(10.0, 0.25)]
KINDS: list[type[BallSum]] = [CentralBall, LocalBall, SecureBall, ShuffledBall]


def guarantee_of(protocol: BallSum) -> ApproximateDP:
    assert isinstance(protocol.guarantee, ApproximateDP)
    return protocol.guarantee


def hidden(protocol: BallSum) -> Any:
    """The noise against the adversary: all of it, one message's, or that of all but one who
    subtracts their own share.
    """
    if isinstance(protocol, SecureBall):
        return protocol.distribution.sum_of_shares(protocol.participants - 1)
    return protocol.distribution


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.short)
def test_the_observed_noise_meets_the_target_and_half_does_not(
    kind: type[BallSum], target: ApproximateDP
) -> None:
    protocol = kind(40, 20, 1.7, target)
    distribution, moved = hidden(protocol), movement(protocol.steps, 20)
    shares = protocol.honest if isinstance(protocol, SecureBall) else 1
    spent = NearlyGaussianLoss(distribution, moved, 20, shares).delta(target.epsilon)
    assert spent <= target.delta
    assert GaussianLoss(distribution.std / 2, moved).delta(target.epsilon) > 1.4 * target.delta
    assert GaussianLoss(0.98 * distribution.std, moved).delta(target.epsilon) > target.delta


@pytest.mark.parametrize("kind", KINDS)
def test_no_participant_moves_levels_beyond_the_sensitivity(kind: type[BallSum]) -> None:
    """Pairs of vectors of full length, opposite and random, through the devices' own rounding."""
    protocol, rng = kind(20, 7, 0.9, TARGETS[0]), np.random.default_rng(1)
    most, farthest = movement(protocol.steps, 7), 0.0
    for _ in range(300):
        one = rng.standard_normal(7)
        one *= 0.9 / np.linalg.norm(one)
        other = -one if rng.random() < 0.5 else one[::-1]
        moved = np.array(protocol.encode(one)) - np.array(protocol.encode(other))
        farthest = max(farthest, float(np.linalg.norm(moved)))
    assert 0.99 * protocol.steps < farthest <= most
    assert most < 1.0101 * protocol.steps


def test_rounding_may_move_neighbours_apart_in_every_coordinate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Just above a grid point, each of two opposite vectors may be rounded away from the other."""
    protocol, moved = CentralBall(20, 2, 0.9, TARGETS[0]), []
    for corner, away in ((0.9, lambda x: math.floor(x) + 1), (-0.9, math.floor)):
        monkeypatch.setattr("tacit.protocols.l2_sums.random_level", away)
        moved.append(np.array(protocol.encode(np.full(2, corner / math.sqrt(2)))))
    apart = float(np.linalg.norm(moved[0] - moved[1]))
    assert protocol.steps + 1.9 * math.sqrt(2) < apart <= movement(protocol.steps, 2)


def test_devices_use_stochastic_rounding() -> None:
    """Half of a step is rounded both ways, but for a chance of 2^-59."""
    protocol = SecureBall(4, 2, 1.0, TARGETS[0])
    seen = {tuple(protocol.encode([protocol.unit / 2, -protocol.unit / 2])) for _ in range(60)}
    assert {level for level, _ in seen} == {0, 1}
    assert {level for _, level in seen} == {-1, 0}


def test_indivisible_shares_are_accounted_as_approximate() -> None:
    """So many that one draw of the noise would need shares of a quarter of a step."""
    target, people = TARGETS[2], 4_000_001
    protocol = SecureBall(people, 3, 1.0, target, noise_kind="discrete-gaussian")
    moved = movement(protocol.steps, 3)
    loss = NearlyGaussianLoss(hidden(protocol), moved, 3, people - 1)
    assert loss.delta(target.epsilon) <= target.delta


@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_recovered_within_the_stated_error(kind: type[BallSum]) -> None:
    """20 participants, 300 rounds: means within five, variances within a fifth of what is stated;
    the false-alarm rate is below 1e-5.
    """
    rng = np.random.default_rng(2)
    protocol = kind(20, 3, 2.0, TARGETS[2])
    vectors = rng.uniform(-1, 1, (20, 3))
    made = [protocol.simulate(Given(vectors), rng) for _ in range(300)]
    totals = np.array([estimate.total for estimate in made])
    error = made[0].error
    spread = np.sqrt(error.proxies) * 20
    off = np.abs(totals.mean(axis=0) - vectors.sum(axis=0))
    assert (off < 5 * spread / math.sqrt(300)).all()
    assert np.std(totals, axis=0) == pytest.approx(spread, rel=0.25)


def test_views_and_assumptions_state_the_threat_model() -> None:
    views = [guarantee_of(kind(20, 3, 1.0, TARGETS[0])).view for kind in KINDS]
    assert views == [View.SERVER_OUTPUT, View.MESSAGE, View.RELEASED_SUM, View.SHUFFLED]
    secure = guarantee_of(SecureBall(20, 3, 1.0, TARGETS[0]))
    assert secure.assumptions == set(ThreatModel().assumptions())
    assert DishonestAtMost(Scope.ROUND, 1) in secure.assumptions
    assert SecureBall(20, 3, 1.0, TARGETS[0]).honest == 19
    assert "at most 1 participant of a batch is curious, corrupted or invented" in str(secure)
    for kind in KINDS:
        assert guarantee_of(kind(20, 3, 1.0, TARGETS[0])).arithmetic is Arithmetic.EXACT


def test_more_participations_get_more_noise() -> None:
    once, often = (
        CentralBall(20, 3, 1.0, ApproximateDP(1.0, 1e-5, participations=times)) for times in (1, 4)
    )
    assert often.distribution.std > 1.8 * once.distribution.std
    assert guarantee_of(often).participations == 4


def test_splitting_for_the_shuffler_is_charged_to_delta() -> None:
    target = ApproximateDP(10.0, 3e-14)  # so little that what the shares cost is half of it
    protocol = ShuffledBall(40, 3, 1.0, target, noise_kind="discrete-gaussian")
    slack = 3 * (1 + math.exp(10)) * 2.0**-protocol.security
    spent = NearlyGaussianLoss(hidden(protocol), movement(protocol.steps, 3), 3, 39).delta(10.0)
    assert spent + slack <= target.delta
    assert protocol.shares == split_shares(39, protocol.modulus, protocol.security)
    message = protocol.randomize([0.5, 0.0, 0.0])
    assert [len(row) for row in message] == [protocol.shares] * 3
    with pytest.raises(TacitError, match="splitting for a shuffler alone costs"):
        ShuffledBall(40, 3, 1.0, ApproximateDP(1.0, 1e-18))


def test_each_single_share_of_a_number_is_uniform() -> None:
    """150 messages, by Kolmogorov and Smirnov; false-alarm rate 1e-9 for each share."""
    protocol = ShuffledBall(20, 2, 1.0, TARGETS[2])
    shares = np.array([protocol.randomize([0.7, 0.7]) for _ in range(150)], dtype=float)
    for column in np.moveaxis(shares, 0, -1).reshape(-1, 150) / protocol.modulus:
        assert stats.kstest(column, "uniform").pvalue > UNSEEDED


def test_vectors_outside_the_ball_or_of_other_sizes_are_rejected() -> None:
    protocol = SecureBall(4, 3, 1.0, TARGETS[0])
    with pytest.raises(TacitError, match=r"is 1.1 long, beyond 1: shrink it"):
        protocol.randomize([1.1, 0.0, 0.0])
    with pytest.raises(TacitError, match=r"is 1.13137 long, beyond 1: shrink it"):
        protocol.randomize([0.8, 0.8, 0.0])
    with pytest.raises(TacitError, match="is nan long, beyond 1"):
        protocol.randomize([math.nan, 0.0, 0.0])
    with pytest.raises(TacitError, match="must hold 3 numbers"):
        protocol.randomize([0.1, 0.0])
    with pytest.raises(TacitError, match="below the 4"):
        protocol.combine([protocol.randomize([0.1, 0.0, 0.0])] * 3)
    with pytest.raises(TacitError, match="needs delta > 0"):
        CentralBall(4, 3, 1.0, PureDP(1.0))
    with pytest.raises(TacitError, match="noise is 'laplace'"):
        ball_noise(3, TARGETS[0], "laplace")


def test_a_client_reports_its_least_squares_fit_shrunk_to_the_ball() -> None:
    rng = np.random.default_rng(3)
    actions, parameter = rng.standard_normal((6, 3)), np.array([0.5, -0.2, 0.1])
    solve = np.linalg.pinv(actions)
    rows = tuple(map(tuple, solve.tolist()))
    fit = Fit(tuple(range(6)), (1,) * 6, 6.0, solve=rows, centre=(0.0,) * 3, radius=0.4)
    assert fit.coordinates == 3
    whole = Fit(**{**vars(fit), "radius": 9.0}).reported(actions @ parameter)
    np.testing.assert_allclose(whole, parameter, atol=1e-12)
    shrunk = fit.reported(np.stack([actions @ parameter, 0.1 * actions @ parameter]))
    np.testing.assert_allclose(np.linalg.norm(shrunk[0]), 0.4)
    np.testing.assert_allclose(shrunk[1], 0.1 * parameter, atol=1e-12)
