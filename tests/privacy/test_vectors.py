"""Joint guarantees of vectors, against enumeration of every integer movement and every outcome in
two and three dimensions.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.special import logsumexp

from tacit.errors import TacitError
from tacit.noise import (
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    NoiseDistribution,
    PolyaDifference,
    Skellam,
    Table,
)
from tacit.privacy import (
    ApproximateDP,
    Gaussian,
    GaussianLoss,
    calibrate,
    l2_guarantee,
    linf_loss,
    privacy_loss,
    skellam_renyi,
)
from tacit.privacy.composition import ComposedLoss
from tacit.privacy.loss import renyi_divergence
from tacit.privacy.renyi import renyi_epsilon
from tacit.privacy.vectors import ORDERS, _likely_outcomes


def joint_delta(
    distribution: NoiseDistribution, movement: tuple[int, ...], epsilon: float
) -> float:
    """Σ max(0, P - e^ε Q) over the product of the coordinates' outcomes."""
    low, high = distribution.window(-60.0)
    k = np.arange(low, high + 1)
    p = np.ones(1)
    q = np.ones(1)
    for shift in movement:
        p = np.multiply.outer(p, distribution.pmf(k)).ravel()
        q = np.multiply.outer(q, distribution.pmf(k + shift)).ravel()
    return float(np.maximum(0.0, p - math.exp(epsilon) * q).sum())


def movements(dimension: int, linf: int) -> list[tuple[int, ...]]:
    return [m for m in itertools.product(range(-linf, linf + 1), repeat=dimension) if any(m)]


LINF: list[tuple[NoiseDistribution, int, int]] = [
    (DiscreteLaplace(1.5), 2, 2),
    (Skellam(4), 2, 2),
    (DiscreteGaussian(1.5), 1, 3),
    (Binomial(20), 2, 2),
    (Binomial(24, 0.3), 1, 3),
    (Binomial(40, 0.1), 2, 2),
    (PolyaDifference(0.5, 0.5), 2, 2),
]


@pytest.mark.parametrize(
    ("distribution", "bound", "dimension"), LINF, ids=[repr(case[0]) for case in LINF]
)
def test_the_linf_bound_covers_every_movement_and_is_attained(
    distribution: NoiseDistribution, bound: int, dimension: int
) -> None:
    loss = linf_loss(distribution, bound, dimension)
    for epsilon in (0.0, 0.5, 1.5, 3.0):
        truth = max(
            joint_delta(distribution, movement, epsilon) for movement in movements(dimension, bound)
        )
        assert loss.delta(epsilon) >= truth * (1 - 1e-12)
        corner = joint_delta(distribution, (bound,) * dimension, epsilon)
        if distribution.symmetric:
            assert truth == pytest.approx(corner, rel=1e-9)
            assert loss.delta(epsilon) <= truth * 1.02 + 1e-9


def test_the_linf_bound_rejects_a_distribution_with_unknown_worst_shift() -> None:
    with pytest.raises(TacitError, match="not log-concave"):
        linf_loss(Table.of(0, np.array([0.5, 0.0, 0.5])), 1, 2)


L2: list[tuple[NoiseDistribution, float, int]] = [
    (DiscreteGaussian(3.0), 2.0, 2),
    (DiscreteGaussian(2.0), math.sqrt(3), 3),
    (Skellam(9.0), 2.0, 2),
    (Skellam(4.0), math.sqrt(3), 3),
    (DiscreteLaplace(3.0), 2.0, 2),
    (DiscreteLaplace(2.0).share(3), math.sqrt(5), 2),
    (Skellam(1.0), 2.0, 2),
    (Skellam(4.0), 3.0, 2),
    (DiscreteGaussian(1.5), math.sqrt(5), 2),
    (Binomial(120), 2.0, 2),
    (Binomial(121), math.sqrt(5), 2),
    (Binomial(90, 0.3), math.sqrt(2), 2),
    (Binomial(301, 0.15), math.sqrt(5), 2),
]


@pytest.mark.parametrize(
    ("distribution", "bound", "dimension"), L2, ids=[repr(case[0]) for case in L2]
)
@pytest.mark.parametrize("delta", [0.05, 1e-3])
def test_the_l2_bound_covers_every_movement_in_the_ball(
    distribution: NoiseDistribution, bound: float, dimension: int, delta: float
) -> None:
    found = l2_guarantee(distribution, bound, dimension, delta)
    if math.isinf(found.epsilon):
        return
    inside = [
        m
        for m in movements(dimension, math.floor(bound))
        if sum(s * s for s in m) <= bound * bound * (1 + 1e-12)
    ]
    assert any(sum(s * s for s in m) > bound * bound * (1 - 1e-9) for m in inside)
    truth = max(joint_delta(distribution, movement, found.epsilon) for movement in inside)
    assert truth <= delta


@pytest.mark.parametrize(
    "distribution", [Skellam(1.0), Skellam(4.0), DiscreteGaussian(1.5)], ids=repr
)
def test_the_l2_bound_is_tight_by_brute_force(distribution: NoiseDistribution) -> None:
    """By the definition, summed over all pairs of integers: a hundredth less would not hold."""
    found = l2_guarantee(distribution, 2.0, 2, 1e-3)
    assert found.derivation.startswith("exact")
    inside = [m for m in movements(2, 2) if sum(s * s for s in m) <= 4]
    truth = max(joint_delta(distribution, movement, 0.99 * found.epsilon) for movement in inside)
    assert truth > 1e-3


def test_narrow_skellam_noise_costs_about_half_its_proven_renyi_bound() -> None:
    """The proven Rényi bound says more than twice as much."""
    for variance, bound, least in ((1.0, 1.0, 2.3), (2.0, 1.0, 1.9), (1.0, 2.0, 2.0)):
        curve = ((order, skellam_renyi(variance, bound, 10, order)) for order in range(2, 513))
        loose = min(renyi_epsilon(order, value, 1e-5) for order, value in curve)
        assert loose > least * l2_guarantee(Skellam(variance), bound, 10, 1e-5).epsilon


@pytest.mark.parametrize("variance", [0.5, 3.0, 400.0])
@pytest.mark.parametrize(("moved", "dimension", "l1"), [(5, 1, 5), (3, 100, 9), (10, 4, 20)])
def test_the_proven_bound_of_skellam_noise_is_the_printed_one(
    variance: float, moved: int, dimension: int, l1: int
) -> None:
    """Agarwal, Kairouz & Liu 2021, Theorem 3.5, in its own terms."""
    for order in (2, 7, 64):
        small = ((2 * order - 1) * moved**2 + 6 * l1) / (4 * variance**2)
        printed = order * moved**2 / (2 * variance) + min(small, 3 * l1 / (2 * variance))
        found = skellam_renyi(variance, moved, dimension, order)
        assert found == pytest.approx(printed, rel=1e-12)


def test_many_movements_are_bounded_by_likely_outcomes() -> None:
    found = l2_guarantee(Skellam(4.0), 12.0, 200, 1e-5)
    assert "likely outcomes" in found.derivation
    ones = ComposedLoss(((privacy_loss(Skellam(4.0), 1), 144),)).epsilon(1e-5)
    twelve = privacy_loss(Skellam(4.0), 12).epsilon(1e-5)
    assert max(ones, twelve) <= found.epsilon


@pytest.mark.parametrize("distribution", [Skellam(4.0), Binomial(2001)], ids=repr)
def test_the_bound_on_likely_outcomes_is_the_proven_one(distribution: NoiseDistribution) -> None:
    """Once more, shift by shift: a tenth of δ for outcomes that are not likely, the rest for the
    others; movements to both sides.
    """
    delta, norm, best = 1e-5, 12.0, math.inf
    reach = distribution.bound(delta / 10 / 144)
    points = np.arange(-reach, reach + 1) + round(distribution.mean)
    for order in ORDERS:
        worst = max(
            float(
                logsumexp(
                    order * distribution.log_pmf(points)
                    + (1 - order) * distribution.log_pmf(points + shift)
                )
            )
            / shift**2
            for size in range(1, 13)
            for shift in (size, -size)
        )
        best = min(best, renyi_epsilon(order, norm**2 * worst / (order - 1), 0.9 * delta))
    assert _likely_outcomes(distribution, norm, 200, delta).epsilon == pytest.approx(best, rel=1e-9)


def test_binomial_l2_noise_needs_enough_bits_and_says_so() -> None:
    enough = l2_guarantee(Binomial(20_000), math.sqrt(5), 10, 1e-5)
    assert 0 < enough.epsilon < GaussianLoss(math.sqrt(5000), math.sqrt(5)).epsilon(1e-5) * 1.3
    few = l2_guarantee(Binomial(20), 3.0, 10, 1e-5)
    assert math.isinf(few.epsilon)
    assert "too narrow" in few.derivation


def test_likely_outcomes_are_enumerated_where_their_tail_is_bounded() -> None:
    """Found: with a mean of 60.5 the window was one outcome short on one side of what the
    tail bound covers.
    """
    distribution = Binomial(121)
    reach = distribution.bound(1e-4)
    centre = round(distribution.mean)
    assert distribution.tail(centre + reach) + distribution.cdf(centre - reach - 1) <= 1e-4
    assert (
        distribution.tail(math.floor(distribution.mean + reach))
        + distribution.cdf(math.ceil(distribution.mean - reach) - 1)
        > 1e-4
    )


@pytest.mark.parametrize("order", [2, 3, 8, 40])
@pytest.mark.parametrize(("variance", "shift"), [(1.0, 1), (10.0, 1), (10.0, 5), (500.0, 30)])
def test_the_skellam_bound_is_above_the_exact_divergence(
    order: int, variance: float, shift: int
) -> None:
    assert skellam_renyi(variance, shift, 1, order) >= renyi_divergence(
        Skellam(variance), shift, order
    ) * (1 - 1e-9)


def test_gaussian_vectors_are_exact_and_useless_bounds_are_rejected() -> None:
    assert l2_guarantee(Gaussian(3.0), 2.0, 50, 1e-5).epsilon == GaussianLoss(3.0, 2.0).epsilon(
        1e-5
    )
    with pytest.raises(TacitError, match="coarser precision"):
        l2_guarantee(Binomial(10**9), 1000.0, 50, 1e-5)
    with pytest.raises(TacitError, match="bound is 0"):
        l2_guarantee(Gaussian(3.0), 0.0, 50, 1e-5)


def two_releases(distribution: NoiseDistribution, epsilon: float) -> float:
    """δ of two releases of four integers, in each of which a participant moves one number by 2 or
    all four by 1; which of it they do in the second depends on what was released in the first.
    """
    single, spread = (
        privacy_loss(distribution, 2).directions[0],
        privacy_loss(distribution, 1).directions[0],
    )
    four = (spread.losses, spread.masses)
    for _ in range(3):
        sums = np.add.outer(four[0], spread.losses).round(9).ravel()
        found, places = np.unique(sums, return_inverse=True)
        products = np.multiply.outer(four[1], spread.masses).ravel()
        four = (found, np.bincount(places, weights=products).astype(float))
    ways = [(single.losses, single.masses), four]

    def second(left: float) -> float:
        """δ of the better way in the second release, where so much of ε is left."""
        return max(
            float(mass @ np.maximum(0.0, -np.expm1(np.minimum(0.0, left - loss))))
            for loss, mass in ways
        )

    return max(
        sum(float(p) * second(epsilon - float(one)) for one, p in zip(loss, mass, strict=True))
        for loss, mass in ways
    )


def test_a_second_movement_may_depend_on_the_first_release() -> None:
    distribution, delta = DiscreteGaussian(1.0), 0.01
    fixed = l2_guarantee(distribution, math.sqrt(8), 8, delta)
    assert two_releases(distribution, fixed.epsilon) > 1.04 * delta
    free = l2_guarantee(distribution, math.sqrt(8), 8, delta, at_once=False)
    assert two_releases(distribution, free.epsilon) <= delta
    target = ApproximateDP(8.0, delta, participations=2)
    found = calibrate("discrete-gaussian", 2, target, dimension=4, norm="l2")
    assert two_releases(found.integer_distribution, 8.0) <= delta
