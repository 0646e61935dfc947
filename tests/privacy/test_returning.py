"""Several participations: stated guarantees against exact composition."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tacit.assumptions import Accounting, CompleteGroups, DistinctRounds, Method
from tacit.errors import TacitError
from tacit.noise import Binomial, DiscreteGaussian, DiscreteLaplace, NoiseDistribution, Skellam
from tacit.privacy import ApproximateDP, GaussianLoss, PureDP, View, calibrate, checked_target
from tacit.privacy.accounting import (
    _as_gaussian,
    _at_order,
    accounting,
    bell_shaped,
    common_order,
    epsilon_of,
    gaussian_mu,
    split_delta,
)
from tacit.privacy.loss import Direction, PrivacyLoss, privacy_loss

Floats = npt.NDArray[np.float64]
STEP = 2e-4  # losses are rounded down to multiples of it, so that sums are below the truth


def delta_below(distributions: list[tuple[NoiseDistribution, int]], epsilon: float) -> float:
    """A lower bound on the true δ of a participant in a round of each of these noises, moved
    upwards each time: losses rounded down and convolved.
    """
    size, offset = 1 << 18, 0
    spectrum = np.ones(size // 2 + 1, complex)
    for distribution, moved in distributions:
        low, high = distribution.window(-50.0)
        points = np.arange(low, high + 1)
        p, q = distribution.pmf(points), distribution.pmf(points + moved)
        seen = (p > 0) & (q > 0)
        places = np.floor((np.log(p[seen]) - np.log(q[seen])) / STEP).astype(int)
        masses = np.bincount(places - places.min(), weights=p[seen], minlength=size)
        assert len(masses) == size
        spectrum *= np.fft.rfft(masses)
        offset += int(places.min())
    masses = np.fft.irfft(spectrum, size).clip(min=0.0)
    losses = (np.arange(size) + offset) * STEP
    beyond = losses > epsilon
    return float((masses[beyond] * -np.expm1(epsilon - losses[beyond])).sum())


@pytest.mark.parametrize("kind", ["skellam", "discrete-gaussian", "binomial"])
@pytest.mark.parametrize(
    ("epsilon", "delta", "times", "moved"),
    [
        (1.0, 1e-6, 5, 1),
        (0.5, 1e-2, 3, 1),
        (1.0, 1e-5, 2, 7),
        (2.0, 1e-7, 40, 1),
        (6.0, 1e-5, 3, 2),
    ],
)
def test_calibrated_noise_for_several_participations_is_tight(
    kind: str, epsilon: float, delta: float, times: int, moved: int
) -> None:
    target = ApproximateDP(epsilon, delta, participations=times)
    distribution = calibrate(kind, moved, target).integer_distribution
    true = delta_below([(distribution, moved)] * times, epsilon)
    assert true <= delta
    if accounting(distribution, target) == (Accounting(Method.GAUSSIAN, times),):
        assert true > 0.5 * delta


def test_rounds_of_different_noise_and_levels_meet_one_guarantee() -> None:
    target = ApproximateDP(1.0, 1e-5, participations=3)
    rounds = [
        (calibrate(kind, moved, target).integer_distribution, moved)
        for kind, moved in (("skellam", 1), ("binomial", 5), ("discrete-gaussian", 9))
    ]
    assert len({accounting(distribution, target) for distribution, _ in rounds}) == 1
    assert delta_below(rounds, 1.0) <= 1e-5


@pytest.mark.extended
@pytest.mark.parametrize(
    ("kind", "times"),
    [("skellam", 5), ("discrete-gaussian", 5), ("binomial", 2), ("discrete-gaussian", 500)],
)
def test_a_tiny_epsilon_needs_little_more_than_gaussian_noise(kind: str, times: int) -> None:
    target = ApproximateDP(0.001, 1e-9, participations=times)
    found, ideal = calibrate(kind, 1, target), calibrate("gaussian", 1, target)
    assert found.epsilon <= 0.001
    assert ideal.distribution.std < found.distribution.std < 1.01 * ideal.distribution.std


pairs = st.lists(st.tuples(st.floats(1e-6, 1.0), st.floats(1e-6, 1.0)), min_size=2, max_size=8).map(
    lambda found: np.array(found).T / np.array(found).sum(axis=0)[:, None]
)


def both(p: Floats, q: Floats, infinite: float = 0.0) -> PrivacyLoss:
    """The loss of a pair that fails openly so often, in both directions."""
    one, other = (1 - infinite) * p, (1 - infinite) * q
    first = Direction.of(np.log(p / q), one, infinite)
    return PrivacyLoss((first, Direction.of(np.log(q / p), other, infinite)), math.inf)


def mixture(mu: float, dropped: float, epsilon: float) -> float:
    """δ of the Gaussian pair that fails openly with probability `dropped`."""
    return dropped + (1 - dropped) * GaussianLoss(1.0, mu).delta(epsilon)


@settings(max_examples=150, deadline=None)
@given(pairs, st.sampled_from([0.0, 1e-3, 0.05]), st.sampled_from([0.0, 1e-3]))
def test_the_dominating_pair_dominates_the_gaussian_one(
    pair: Floats, dropped: float, infinite: float
) -> None:
    """At every epsilon, in both directions; and for less than that μ at some it is."""
    loss = both(pair[0], pair[1], infinite)
    mus = [gaussian_mu(direction, dropped) for direction in loss.directions]
    if infinite > dropped:
        assert mus == [math.inf, math.inf]
        return
    assume(math.isfinite(max(mus)))  # or nothing is said: equal but for rounding
    at = np.concatenate([[0.0], *(direction.losses for direction in loss.directions)])
    between = [np.linspace(one, two, 20) for one, two in pairwise(np.unique(at[at >= 0]))]
    grid = np.concatenate([[0.0], *between])
    for mu, direction in zip(mus, loss.directions, strict=True):
        for epsilon in grid:
            assert direction.delta(epsilon) <= mixture(mu, dropped, epsilon) * (1 + 1e-9) + 1e-15


def test_the_dominating_gaussian_shift_is_minimal() -> None:
    """The distribution of one draw, so that the smallest is known: its own."""
    for sigma in (5.0, 20.0):
        (direction,) = privacy_loss(DiscreteGaussian(sigma), 1).directions
        mu = gaussian_mu(direction, 1e-8)
        assert 1 / sigma <= mu < (1 + 0.1 / sigma**2) / sigma
        rest = [epsilon for epsilon in np.linspace(0, 6 * mu, 200) if direction.delta(epsilon) > 0]
        assert any(
            direction.delta(epsilon) > mixture(0.995 * mu, 1e-8, epsilon) for epsilon in rest
        )


@pytest.mark.parametrize("apart", [0.01, 0.06])
def test_approximate_noise_is_compared_at_its_worst(
    apart: float,
) -> None:
    """The worst that fits: e^a more on one side of the threshold, e^a less on the other."""
    distribution, points = Skellam(30), np.arange(-80, 81)
    (direction,) = privacy_loss(distribution, 2).directions
    mu = gaussian_mu(direction, 1e-6, apart)
    assert mu > gaussian_mu(direction, 1e-6)
    p, q = distribution.pmf(points), distribution.pmf(points + 2)
    for threshold in range(-3, 20):
        told = points >= threshold
        for sign in (1, -1):
            side = told if sign == 1 else ~told
            one = p * np.exp(apart * np.where(side, 1, -1))
            two = q * np.exp(apart * np.where(side, -1, 1))
            for epsilon in np.linspace(0, 2, 21):
                # not normalised: an upper bound on what any such noise can do with this set
                delta = one[side].sum() - math.exp(epsilon) * two[side].sum()
                assert delta <= mixture(mu, 1e-6, epsilon) * (1 + 1e-9)


@pytest.mark.parametrize("apart", [0.6, 1.0, 800.0, math.inf])
def test_noise_far_from_its_distribution_is_rejected(apart: float) -> None:
    target = ApproximateDP(1.0, 1e-6, participations=3)
    with pytest.raises(TacitError, match="no such guarantee at any epsilon"):
        checked_target(Skellam(400), 1, target, View.RELEASED_SUM, log_ratio=apart)


def test_the_accounting_method_follows_from_target_and_noise() -> None:
    fine, coarse = (ApproximateDP(e, 1e-6, participations=4) for e in (1.0, 8.0))
    for distribution in (Skellam(4), Skellam(4000), Binomial(50), DiscreteGaussian(2)):
        assert bell_shaped(distribution, fine)
        assert not bell_shaped(distribution, coarse)
        assert accounting(distribution, fine) == (Accounting(Method.GAUSSIAN, 4),)
        order = Fraction(str(common_order(coarse)[0]))
        assert accounting(distribution, coarse) == (Accounting(Method.RENYI, 4, order),)
    assert not bell_shaped(DiscreteLaplace(9), fine)
    (stated,) = accounting(Skellam(4), fine, 7.0)
    assert stated == Accounting(Method.RENYI, 4, Fraction(7))
    assert stated.text() == "accounted for by 4 Rényi divergences of order 7 added up"
    assert accounting(Skellam(4), ApproximateDP(1.0, 1e-6)) == ()
    assert accounting(DiscreteLaplace(9), PureDP(1.0, participations=4)) == ()


@pytest.mark.parametrize(("times", "apart"), [(2, 0.0), (4, 0.01), (25, 0.0)])
def test_added_participations_have_equal_parts_of_epsilon_and_delta(
    times: int, apart: float
) -> None:
    """Basic composition, as terms state it: V times ε at δ/V, and the distance in both."""
    target = ApproximateDP(9.0, 1e-5, participations=times)
    added = target.assuming(Accounting(Method.ADDED, times))
    noise, sensitivity = Skellam(3000), 7
    once = privacy_loss(noise, sensitivity).epsilon(1e-5 * math.exp(-apart) / times) + 2 * apart
    assert epsilon_of(noise, sensitivity, added, apart) == pytest.approx(times * once, rel=1e-9)
    assert accounting(noise, added) == (Accounting(Method.ADDED, times),)


def test_other_accounting_methods_imply_nothing() -> None:
    """Divergences of different orders do not add up, and neither do two methods."""
    target = ApproximateDP(8.0, 1e-6, participations=4)
    made = checked_target(Skellam(400), 1, target, View.RELEASED_SUM)
    (used,) = (one for one in made.assumptions if isinstance(one, Accounting))
    for other in (
        replace(used, order=used.order + 1),
        replace(used, method=Method.GAUSSIAN),
        replace(used, participations=3),
    ):
        stated = frozenset({other, DistinctRounds()})
        assert not made.implies(replace(made, assumptions=stated))
    assert made.implies(made)


def test_each_accounting_method_is_used_where_it_is_tighter() -> None:
    for epsilon, delta, times in ((1.0, 1e-6, 2), (0.3, 1e-9, 10), (6.0, 1e-6, 3), (10.0, 1e-6, 5)):
        target = ApproximateDP(epsilon, delta, participations=times)
        distribution = calibrate("skellam", 1, target).integer_distribution
        loss, order = privacy_loss(distribution, 1), common_order(target)[0]
        ways = _as_gaussian(loss, target, 0), _at_order(loss, order, target, 0)
        assert epsilon_of(distribution, 1, target) == pytest.approx(min(ways), rel=1e-9)


def test_the_accounting_method_is_named_in_a_derived_guarantee() -> None:
    target = ApproximateDP(1.0, 1e-6, participations=5)
    distribution = calibrate("skellam", 3, target).integer_distribution
    stated = checked_target(distribution, 3, target, View.RELEASED_SUM, CompleteGroups())
    assert stated.assumptions == {
        CompleteGroups(),
        DistinctRounds(),
        *accounting(distribution, target),
    }
    assert accounting(distribution, target) == (Accounting(Method.GAUSSIAN, 5),)
    assert "accounted for by 5 comparisons with Gaussian noise" in str(stated)
    assert calibrate("skellam", 3, target).guarantee.assumptions == {
        DistinctRounds(),
        *accounting(distribution, target),
    }
    for vector, method in (
        (calibrate("skellam", 3, target, dimension=2), Method.LOSS),
        (calibrate("skellam", 3, target, dimension=2, norm="l2"), Method.RENYI),
        (calibrate("gaussian", 3, target), Method.LOSS),
    ):
        assert Accounting(method, 5) in vector.guarantee.assumptions
    once = checked_target(Skellam(4000), 3, ApproximateDP(1.0, 1e-6), View.RELEASED_SUM)
    assert once.assumptions == frozenset()
    pure = checked_target(DiscreteLaplace(10), 1, PureDP(1.0, participations=10), View.RELEASED_SUM)
    assert pure.assumptions == frozenset()


def test_an_outcome_of_infinite_loss_is_charged_or_rejected() -> None:
    target = ApproximateDP(1.0, 1e-3, participations=4)
    dropped, _ = split_delta(target)
    small = Direction.of(np.array([0.05, -0.05]), np.array([0.5, 0.4999]), 0.9 * dropped)
    large = Direction.of(np.array([0.05, -0.05]), np.array([0.5, 0.4999]), 1.1 * dropped)
    assert _as_gaussian(PrivacyLoss((small,), math.inf), target, 0) < 1
    for directions in ((large,), (small, large), (large, small)):
        assert _as_gaussian(PrivacyLoss(directions, math.inf), target, 0) == math.inf
    assert gaussian_mu(small, dropped) < gaussian_mu(small, dropped, 0.01) < 0.2
    wide = Direction.of(np.array([1.0, -1.0]), np.array([0.5, 0.4999]), 0.9 * dropped)
    assert gaussian_mu(wide, dropped, 0.1) < math.inf
    assert gaussian_mu(wide, dropped, 0.2) == math.inf  # 0.9 e^0.2 > 1
