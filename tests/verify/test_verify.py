"""The slow arithmetic agrees with the exact one of the package, and would find a false promise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import mpmath as mp
import pytest
from tests.verify import arithmetic as slow
from tests.verify.__main__ import group_losses, honest_shares, printed, seen, stated_for, used

from tacit.algorithms.registry import begin
from tacit.assumptions import DishonestAtMost, Scope
from tacit.estimates import Arm, Round
from tacit.noise import Binomial, DiscreteGaussian, DiscreteLaplace, NoiseLaw, Skellam
from tacit.privacy import (
    ApproximateDP,
    ComposedLoss,
    Crowd,
    GaussianLoss,
    PureDP,
    calibrate,
    privacy_loss,
)
from tacit.protocols.pure_shuffle import PureShuffle
from tacit.protocols.sums import Central, SecureSum

PAIRS: dict[str, tuple[slow.Law, NoiseLaw]] = {
    "laplace": (slow.laplace(Fraction(7)), DiscreteLaplace(7)),
    "gaussian": (slow.gaussian(9.5), DiscreteGaussian(9.5)),
    "skellam": (slow.skellam(90), Skellam(90)),
    "binomial": (slow.binomial(300, Fraction(1, 3)), Binomial(300, Fraction(1, 3))),
    "polya": (
        slow.polya_difference(Fraction(3, 5), Fraction(1, 7)),
        DiscreteLaplace(7).share(5).power(3),
    ),
}


@pytest.mark.parametrize(("sigma", "shift", "copies"), [(40.0, 7, 1), (60.5, 16, 1), (50.0, 5, 2)])
def test_tails_of_wide_gaussians_are_those_of_their_tables(
    sigma: float, shift: int, copies: int
) -> None:
    """Also of two numbers together: the law of their sum is the power of one's."""
    law = slow.power(slow.gaussian(sigma), copies)
    spread = sigma * math.sqrt(copies)
    for epsilon in (0.05, 0.3, 1.1):
        exact = slow.delta(law, shift * copies, epsilon)
        found = slow.discrete_gaussian_delta(
            mp.mpf(sigma) * mp.sqrt(copies), shift * copies, epsilon
        )
        assert abs(found / exact - 1) < 1e-9
        normal = slow.gaussian_delta(shift * copies / spread, epsilon)
        assert abs(normal / exact - 1) > 1e-7  # which is not the same


@pytest.mark.parametrize("name", PAIRS)
def test_both_ways_give_one_delta(name: str) -> None:
    law, own = PAIRS[name]
    for epsilon in (0.0, 0.1, 0.4):
        exact = privacy_loss(own, 3).delta(epsilon)
        found = float(slow.delta(law, 3, epsilon))
        assert found <= exact * (1 + 1e-12) + 1e-30
        assert found == pytest.approx(exact, rel=1e-6)


def test_several_losses_are_never_overstated_and_nearly_reached() -> None:
    law, own = PAIRS["skellam"]
    for copies, epsilon in ((3, 1.0), (50, 8.0)):
        exact = ComposedLoss(((privacy_loss(own, 3), copies),)).delta(epsilon)
        found = slow.composed_delta(law, 3, copies, epsilon)
        assert 0.95 * exact <= found <= exact * (1 + 1e-6) + 1e-12


def test_sums_of_shares_are_powers() -> None:
    third = slow.power(slow.laplace(Fraction(2)), 3)
    points = range(-20, 21)
    expected = DiscreteLaplace(2).power(3).pmf(list(points))
    found = [third(k) / slow.UNIT for k in points]
    assert found == pytest.approx(expected.tolist(), rel=1e-9)


def test_the_gaussian_is_that_of_the_closed_form() -> None:
    found = float(slow.gaussian_delta(1 / 4.2, 0.7))
    assert found == pytest.approx(GaussianLoss(4.2, 1.0).delta(0.7), rel=1e-9)


@pytest.mark.parametrize(
    ("make", "own"),
    [
        (lambda w: slow.skellam(700**2, w), Skellam(700**2)),
        (lambda w: slow.gaussian(700.0, w), DiscreteGaussian(700)),
        (lambda w: slow.binomial(4 * 700**2, Fraction(1, 2), w), Binomial(4 * 700**2)),
        (lambda w: slow.binomial(12 * 700**2, Fraction(1, 8), w), Binomial(12 * 700**2, 0.125)),
    ],
    ids=["skellam", "gaussian", "fair bits", "rare bits"],
)
def test_wide_laws_are_interpolated_and_may_be_made_coarser(
    make: Callable[[int], slow.Law], own: NoiseLaw
) -> None:
    exact = privacy_loss(own, 300).delta(0.4)
    assert float(slow.delta(make(1), 300, 0.4)) == pytest.approx(exact, rel=1e-9)
    coarse = float(slow.delta(make(3), 100, 0.4))
    assert exact * (1 - 1e-4) < coarse <= exact * (1 + 1e-9)
    assert sum(make(3).masses) / slow.UNIT == pytest.approx(1, abs=1e-15)
    assert slow.width(300, 700.0) == 3
    assert slow.width(7, 1e6) == 7


def test_groups_of_the_pure_shuffle_have_the_loss_that_is_certified() -> None:
    for people, epsilon in ((2, 1.0), (5, 2.0), (9, 1.0)):
        protocol = PureShuffle(people, epsilon)
        certified = [float(group.row.certificate.epsilon) for group in protocol._groups]
        assert float(max(group_losses(protocol, protocol.guarantee))) == pytest.approx(
            max(certified), abs=2e-6
        )


def shares_left(people: int, threat: Crowd) -> int:
    stated = PureDP(1.0).given(*threat.assumptions())
    return honest_shares(SimpleNamespace(participants=people), stated)


def test_missing_and_dishonest_participants_are_taken_off() -> None:
    assert shares_left(64, Crowd()) == 63
    assert shares_left(100, Crowd(dropout=0.2)) == 79
    assert shares_left(100, Crowd(corrupt=0.1)) == 90
    assert shares_left(10, Crowd(dropout=0.3, corrupt=0.1)) == 6
    assert honest_shares(SimpleNamespace(participants=100), PureDP(1.0)) == 1


@pytest.mark.parametrize("participants", [64, 1000, 10_000])
def test_the_run_guarantee_holds_in_rounds_of_every_size(participants: int) -> None:
    """With exactly as many dishonest participants as are stated: and with many more it does not,
    which is what an assumption of the smallest round would have allowed (62 honest others).
    """
    experiment = begin("private-med", ["a", "b"], epsilon=0.9, horizon=10**6, binary=True)
    mechanism = experiment.mechanism
    protocol = mechanism.open(Round(0, participants, Arm(0)))
    stated = stated_for(mechanism, protocol)
    assert used(seen(protocol, stated), *printed(stated)) <= 1 + 1e-9
    if participants > 64:
        weak = replace(
            stated, assumptions=frozenset({DishonestAtMost(Scope.ROUND, participants - 63)})
        )
        assert used(seen(protocol, weak), *printed(stated)) > 3


def test_groups_need_their_limit_per_group() -> None:
    protocol = PureShuffle(300, 2.0)
    stated = protocol.guarantee
    assert {one.scope for one in stated.assumptions if isinstance(one, DishonestAtMost)} == {
        Scope.GROUP
    }
    small = PureShuffle(9, 1.0)
    weak = replace(small.guarantee, assumptions=frozenset({DishonestAtMost(Scope.GROUP, 6)}))
    assert used(seen(small, small.guarantee), 1.0, 0.0) <= 1 + 1e-9
    assert used(seen(small, weak), 1.0, 0.0) > 1.5


def test_a_guarantee_that_is_too_small_is_found() -> None:
    share = DiscreteLaplace(10).share(99)
    sound = SecureSum(100, 10, DiscreteLaplace(10), PureDP(1.0), share=share)
    stated = sound.guarantee
    assert used(seen(sound, stated), *printed(stated)) <= 1 + 1e-12
    assert used(seen(sound, stated), 0.9, 0.0) > 1.1
    weak = replace(stated, assumptions=frozenset({DishonestAtMost(Scope.ROUND, 21)}))
    assert used(seen(sound, weak), 1.0, 0.0) > 1.01
    target = ApproximateDP(1.0, 1e-5)
    law = calibrate("skellam", 1, target).law
    assert isinstance(law, Skellam)
    central = Central(100, 1, law, target, None)
    assert 0.5 < used(seen(central, central.guarantee), 1.0, 1e-5) <= 1
    assert used(seen(central, central.guarantee), 0.9, 1e-5) > 1


@pytest.mark.parametrize(
    ("shift", "scale", "copies", "epsilon"), [(4, 20, 30, 1.0), (16, 40, 12, 1.3), (7, 9, 1, 0.5)]
)
def test_wide_laplace_noise_needs_no_table(
    shift: int, scale: int, copies: int, epsilon: float
) -> None:
    """Both are rounded down to a grid of losses, at places that differ by rounding."""
    by_table = slow.composed_delta(slow.laplace(Fraction(scale)), shift, copies, epsilon)
    directly = slow.laplace_delta(shift, mp.mpf(shift) / scale, copies, epsilon)
    assert directly == pytest.approx(by_table, rel=1e-4)
