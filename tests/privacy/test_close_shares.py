"""Approximate shares: the guarantee is charged their distance from one draw."""

from __future__ import annotations

import math

import pytest

from tacit.errors import TacitError
from tacit.noise import DiscreteGaussian, DiscreteLaplace, Skellam
from tacit.privacy import ApproximateDP, PureDP, View, calibrate, checked_target, privacy_loss
from tacit.privacy.accounting import common_order, epsilon_of, trimmed_renyi
from tacit.privacy.gaussian_distance import GroupedGaussianLoss, NearlyGaussianLoss
from tacit.privacy.renyi import renyi_epsilon
from tacit.privacy.threat_model import ThreatModel
from tacit.protocols.sums import SecureSum

APART = 0.05


def test_approximate_shares_add_twice_their_distance_to_a_pure_loss() -> None:
    found = epsilon_of(DiscreteLaplace(4), 2, PureDP(9.0, participations=3), APART)
    assert found == pytest.approx(3 * (0.5 + 2 * APART))


def test_one_participation_pays_the_distance_in_epsilon_and_delta() -> None:
    distribution, target = Skellam(200), ApproximateDP(1.0, 1e-4)
    exact = privacy_loss(distribution, 5).epsilon(1e-4 * math.exp(-APART)) + 2 * APART
    assert epsilon_of(distribution, 5, target, APART) == pytest.approx(exact, rel=1e-6)


def test_several_participations_pay_the_distance_in_the_divergence() -> None:
    """P' <= e^a P and Q' >= e^-a Q give (2α - 1)/(α - 1) a more of order α; the mass that is
    dropped is e^a larger.
    """
    distribution, target = Skellam(200), ApproximateDP(2.0, 1e-4, participations=4)
    order, dropped, rest = common_order(target)
    for apart in (APART, 1.0):
        one = trimmed_renyi(privacy_loss(distribution, 9), order, dropped * math.exp(-apart))
        total = 4 * (one + apart * (2 * order - 1) / (order - 1))
        found = epsilon_of(distribution, 9, target, apart, order)
        assert found == pytest.approx(renyi_epsilon(order, total, rest), rel=1e-9)


@pytest.mark.parametrize("delta", [1e-2, 1e-9])  # by the distance from a Gaussian; concentrated
def test_nearly_gaussian_shares_pay_the_distance_in_every_coordinate(
    monkeypatch: pytest.MonkeyPatch, delta: float
) -> None:
    monkeypatch.setattr(DiscreteGaussian, "closeness", lambda *_: APART)
    distribution, psi = DiscreteGaussian(400), 3 * APART
    one, shared = (
        NearlyGaussianLoss(distribution, 150, 3),
        NearlyGaussianLoss(distribution, 150, 3, shares=8),
    )
    paid = one.epsilon(delta * math.exp(-psi)) + 2 * psi
    assert shared.epsilon(delta) == pytest.approx(paid, rel=1e-6)
    assert shared.delta(1.9 * psi) == 1.0


def test_groups_of_nearly_gaussian_shares_pay_in_every_coordinate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three coordinates of one width and two of another: (ε - 2ψ, e^-ψ δ) of one draw each."""
    groups = ((DiscreteGaussian(800.0), 0.5, 3), (DiscreteGaussian(500.0), 1.0, 2))
    near = GroupedGaussianLoss(groups, 300.0, shares=7)
    alone = GroupedGaussianLoss(groups, 300.0)
    monkeypatch.setattr(DiscreteGaussian, "closeness", lambda *_: APART)
    psi = 5 * APART
    for epsilon in (1.0, 2.5):
        paid = math.exp(psi) * alone.delta(epsilon - 2 * psi)
        assert near.delta(epsilon) == pytest.approx(paid, rel=1e-9)
        assert alone.delta(epsilon - 2 * psi) > 1.05 * alone.delta(epsilon - psi)
    assert near.delta(1.9 * psi) == 1.0


@pytest.mark.parametrize("target", [PureDP(0.5), ApproximateDP(0.5, 1e-6)], ids=["pure", "delta"])
def test_noise_that_just_suffices_fails_if_it_is_approximate(
    target: PureDP | ApproximateDP,
) -> None:
    distribution = DiscreteLaplace(2)
    assert checked_target(distribution, 1, target, View.RELEASED_SUM).epsilon == 0.5
    with pytest.raises(TacitError, match="not"):
        checked_target(distribution, 1, target, View.RELEASED_SUM, log_ratio=APART)


def test_a_sum_of_shares_is_charged_its_distance_from_one_draw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = ApproximateDP(1.0, 1e-5)
    distribution = calibrate("discrete-gaussian", 8, target).integer_distribution
    assert SecureSum(64, 8, distribution, target).guarantee.epsilon == 1.0
    monkeypatch.setattr(DiscreteGaussian, "closeness", lambda *_: APART)
    with pytest.raises(TacitError, match="gives"):
        SecureSum(64, 8, distribution, target)


def test_one_participant_is_protected_by_its_own_share() -> None:
    assert ThreatModel().honest(1) == 1
    assert ThreatModel().honest(2) == 1


@pytest.mark.parametrize("users", [2, 3])
@pytest.mark.parametrize(("epsilon", "delta"), [(4.0, 1e-3), (8.0, 1e-2)])
def test_narrow_gaussian_shares_meet_their_target(users: int, epsilon: float, delta: float) -> None:
    """Where shares are narrow, ψ is no rounding error: ε of one draw is 2ψ less than the sum's."""
    found = calibrate("discrete-gaussian", 1, ApproximateDP(epsilon, delta), users=users)
    assert found.share is not None
    assert found.share.closeness(users) > 1e-4
    assert found.epsilon <= epsilon
    assert found.meets_target
