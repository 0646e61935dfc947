"""Missing shares: the remaining guarantee, and shares sized for guaranteed reports."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from tacit.assumptions import DishonestAtMost, ReleasedOnlyAbove, Scope
from tacit.errors import TacitError
from tacit.noise import Binomial, DiscreteGaussian, DiscreteLaplace, Skellam
from tacit.privacy import (
    ApproximateDP,
    PureDP,
    ThreatModel,
    calibrate,
    dropout_loss,
    guaranteed_reports,
    privacy_loss,
)


def pure_epsilon(scale: float, arriving: float, sensitivity: int) -> float:
    """sup ln P(k)/P(k+s) of a Pólya difference, its distribution convolved here from two negative
    binomials.
    """
    beta, size = math.exp(-1 / scale), 6000
    log_one = np.array(
        [
            math.lgamma(x + arriving) - math.lgamma(x + 1) - math.lgamma(arriving) - x / scale
            for x in range(size)
        ]
    )
    one = np.exp(log_one) * (1 - beta) ** arriving
    difference = np.convolve(one, one[::-1])[size - 1 :]  # P[X = 0], P[X = 1], ...
    return max(
        math.log(difference[abs(k)] / difference[abs(k + sensitivity)]) for k in range(-50, 200)
    )


@pytest.mark.parametrize(
    ("arriving", "sensitivity", "printed"),
    [
        (0.9, 1, 1.10),
        (0.8, 1, 1.21),
        (0.5, 1, 1.68),
        (0.9, 10, 1.17),
        (0.8, 10, 1.38),
        (0.5, 10, 2.34),
    ],
)
def test_missing_pólya_shares_match_correction_13(
    arriving: float, sensitivity: int, printed: float
) -> None:
    found = dropout_loss(DiscreteLaplace(sensitivity), arriving, sensitivity).pure
    assert round(found, 2) == pytest.approx(printed)
    assert found == pytest.approx(pure_epsilon(sensitivity, arriving, sensitivity), rel=1e-9)


@pytest.mark.parametrize(
    ("scale", "arriving", "sensitivity"), [(2.0, 0.95, 3), (5.0, 0.3, 5), (0.5, 0.7, 1)]
)
def test_other_dropout_fractions_and_scales_match_exact_sums(
    scale: float, arriving: float, sensitivity: int
) -> None:
    assert dropout_loss(DiscreteLaplace(scale), arriving, sensitivity).pure == pytest.approx(
        pure_epsilon(scale, arriving, sensitivity), rel=1e-9
    )


def test_dropout_at_a_thousand_levels_costs_little() -> None:
    assert 1.4 < dropout_loss(DiscreteLaplace(300), 0.8, 300).pure < 1.5


def test_missing_skellam_shares_leave_a_smaller_variance() -> None:
    assert dropout_loss(Skellam(1388), 0.8, 10).epsilon(1e-5) == privacy_loss(
        Skellam(Fraction(1388) * 4 / 5), 10
    ).epsilon(1e-5)


def test_no_dropout_gives_the_full_distribution() -> None:
    assert dropout_loss(DiscreteLaplace(3), 1, 2).pure == privacy_loss(DiscreteLaplace(3), 2).pure


@pytest.mark.parametrize(
    ("users", "dropout", "corrupt", "left"),
    [
        (64, 0.1, 0, 58),
        (10, 0.1, 0, 9),
        (10, 0.1, 0.2, 7),
        (100, 0.29, 0, 71),
        (7, 0, 0, 7),
        (3, 0.9, 0, 1),
        (1000, 1 / 3, 1 / 3, 334),
    ],
)
def test_the_minimum_number_of_reports_is_rounded_up(
    users: int, dropout: float, corrupt: float, left: int
) -> None:
    assert guaranteed_reports(users, dropout, corrupt) == left


@pytest.mark.parametrize("users", [10, 50])
def test_shares_suffice_at_the_minimum_and_fail_one_below(users: int) -> None:
    target, sensitivity = PureDP(1.0), 5
    distribution = calibrate("discrete-laplace", sensitivity, target).distribution
    assert isinstance(distribution, DiscreteLaplace)
    threat = ThreatModel(dropout=0.2)
    honest, share = threat.honest(users), distribution.share(threat.honest(users))
    assert (threat.reports(users), honest) == (round(0.8 * users), round(0.8 * users) - 1)
    assert share.power(honest).pure_loss(sensitivity) <= 1.0
    assert share.power(users).pure_loss(sensitivity) <= 1.0 + 1e-12
    assert share.power(honest - 1).pure_loss(sensitivity) > 1.001
    assert distribution.share(users).power(honest).pure_loss(sensitivity) > 1.2


def test_skellam_shares_suffice_from_the_minimum_on_and_fail_one_below() -> None:
    distribution = calibrate("skellam", 10, ApproximateDP(1.0, 1e-5)).distribution
    assert isinstance(distribution, Skellam)
    threat = ThreatModel(dropout=0.1, corrupt=0.1)
    share = distribution.share(threat.honest(40))
    assert (threat.reports(40), threat.honest(40)) == (36, 32)
    for reports in (32, 33, 36, 40):
        assert privacy_loss(share.power(reports), 10).delta(1.0) <= 1e-5
    assert privacy_loss(share.power(31), 10).delta(1.0) > 1e-5
    assert privacy_loss(distribution.share(40).power(32), 10).delta(1.0) > 5e-5


def test_distributions_that_are_not_divisible_say_so() -> None:
    with pytest.raises(TacitError, match="does not divide"):
        DiscreteGaussian(4).share(10)
    with pytest.raises(TacitError, match="do not divide"):
        Binomial(62).share(4)
    with pytest.raises(TacitError, match="no honest report"):
        guaranteed_reports(10, 0.5, 0.5)
    for bad in (-0.1, 1.0, math.nan, math.inf):
        with pytest.raises(TacitError, match="dropout is"):
            guaranteed_reports(10, bad)
    with pytest.raises(TacitError, match="arriving is 0"):
        dropout_loss(DiscreteLaplace(1), 0, 1)
    with pytest.raises(TacitError, match="users is 0"):
        ThreatModel().honest(0)


def test_dropouts_corrupted_and_curious_participants_are_assumptions() -> None:
    dishonest, released = ThreatModel(dropout=0.1, corrupt=0.05).assumptions()
    assert dishonest == DishonestAtMost(Scope.ROUND, 1, Fraction(1, 20))
    assert released == ReleasedOnlyAbove(Fraction(9, 10))
    assert (dishonest.text(), released.text()) == (
        "at most 5% of the participants of a batch (1 if that is more) are curious, corrupted or "
        "invented",
        "a batch is released only if at least 90% of its reports arrive",
    )
    nobody, everyone = ThreatModel(curious=0).assumptions(Scope.GROUP)
    assert nobody == DishonestAtMost(Scope.GROUP, 0)
    assert nobody.text() == "no participant of a group is curious, corrupted or invented"
    assert everyone == ReleasedOnlyAbove(Fraction(1))
    assert everyone.text() == "a batch is released only if all of its reports arrive"


@pytest.mark.parametrize("participants", [1, 2, 3, 10, 64, 100, 1001])
def test_dishonest_participants_contribute_no_noise(participants: int) -> None:
    """What the sentences counted, honest others, follows from the assumptions for every size."""
    for threat in (
        ThreatModel(),
        ThreatModel(0.1, 0.05),
        ThreatModel(Fraction(1, 3), 0.25, 3),
        ThreatModel(curious=0),
    ):
        dishonest, released = threat.assumptions()
        assert isinstance(dishonest, DishonestAtMost)
        assert isinstance(released, ReleasedOnlyAbove)
        arrived = math.ceil(released.fraction * participants)
        assert arrived == threat.reports(participants)
        assert threat.honest(participants) <= max(1, arrived - dishonest.limit(participants))


def test_printed_fractions_are_rounded_up_and_stored_ones_exact() -> None:
    dishonest, _ = ThreatModel(corrupt=0.12346, curious=0).assumptions()
    assert dishonest == DishonestAtMost(Scope.ROUND, 0, Fraction(12346, 100_000))
    assert dishonest.text() == (
        "at most 12.34% of the participants of a batch are curious, corrupted or invented"
    )
    _, released = ThreatModel(dropout=Fraction(1, 3)).assumptions()
    assert released == ReleasedOnlyAbove(Fraction(2, 3))
    assert released.text() == "a batch is released only if at least 66.67% of its reports arrive"
