"""Exact composition of batches and participations, and the odometer."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from tacit.assumptions import (
    Accounting,
    CompleteGroups,
    DishonestAtMost,
    DistinctRounds,
    Method,
    MetricsPerParticipation,
    Scope,
)
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
    BudgetExceeded,
    ComposedLoss,
    ConcentratedDP,
    GaussianLoss,
    Odometer,
    PureDP,
    View,
    advanced_composition,
    compose_losses,
    compose_participations,
    dominating_loss,
    privacy_loss,
)
from tacit.privacy.composition import _on_grid
from tacit.privacy.loss import Direction

SINGLES = [
    DiscreteLaplace(2),
    Skellam(12),
    DiscreteGaussian(3),
    Binomial(62),
    Binomial(400, 0.05),
    PolyaDifference(0.5, 0.6),
]


@pytest.mark.parametrize("distribution", SINGLES, ids=repr)
def test_one_fold_composition_equals_the_loss(distribution: NoiseDistribution) -> None:
    single = privacy_loss(distribution, 2)
    once = compose_losses([single])
    assert once.pure == single.pure
    for epsilon in (0.0, 0.2, 1.0, 2.0):
        assert (
            single.delta(epsilon)
            <= once.delta(epsilon)
            <= single.delta(epsilon) * 1.002 + 1e-4 * single.delta(0.0) + 2e-12
        )
    for delta in (0.1, 1e-3, 1e-6):
        if math.isfinite(single.epsilon(delta)):
            assert single.epsilon(delta) <= once.epsilon(delta) <= single.epsilon(delta) + 0.02


@pytest.mark.parametrize(("batches", "mu"), [(10, 0.3), (100, 0.1), (1000, 0.03), (1000, 0.2)])
def test_n_fold_gaussian_is_one_gaussian_of_root_n_times_the_shift(batches: int, mu: float) -> None:
    sensitivity = 30
    sigma = sensitivity / mu  # wide: indistinguishable from the continuous distribution
    composed = ComposedLoss(((privacy_loss(DiscreteGaussian(sigma), sensitivity), batches),))
    closed = GaussianLoss(1.0, mu * math.sqrt(batches))
    for delta in (1e-2, 1e-5, 1e-8):
        true = closed.epsilon(delta)
        assert true * (1 - 1e-9) <= composed.epsilon(delta) <= true * (1 + 1e-3)


def product_delta(
    distributions: list[NoiseDistribution], shifts: list[int], epsilon: float
) -> float:
    """The hockey-stick divergence of the joint distribution, outcome by outcome."""
    sides = []
    for distribution, shift in zip(distributions, shifts, strict=True):
        k = np.arange(int(distribution.support[0]), int(distribution.support[1]) + 1)
        sides.append((distribution.pmf(k), distribution.pmf(k + shift)))
    p, q = sides[0]
    for one, other in sides[1:]:
        p, q = np.multiply.outer(p, one).ravel(), np.multiply.outer(q, other).ravel()
    return float(np.maximum(0.0, p - math.exp(epsilon) * q).sum())


@pytest.mark.parametrize(
    "distribution",
    [Binomial(9, 0.2), Binomial(14, 0.35), Table.of(0, np.array([0.1, 0.2, 0.4, 0.3]))],
    ids=repr,
)
def test_a_participant_may_raise_one_batch_and_lower_another(
    distribution: NoiseDistribution,
) -> None:
    """Two-fold composition of an asymmetric distribution dominates every combination of signs, by
    enumeration.
    """
    composed = ComposedLoss(((privacy_loss(distribution, 1), 2),))
    for epsilon in (0.0, 0.4, 1.0, 2.0):
        truth = [
            product_delta([distribution, distribution], list(signs), epsilon)
            for signs in itertools.product((1, -1), repeat=2)
        ]
        assert composed.delta(epsilon) >= max(truth)
        assert (
            composed.delta(epsilon) <= max(truth) * 1.6
        )  # one pair for both directions costs something, not everything


def test_a_symmetric_distribution_composes_to_the_enumerated_value() -> None:
    distributions: list[NoiseDistribution] = [Binomial(12), Binomial(20), Binomial(12)]
    composed = compose_losses([(privacy_loss(Binomial(12), 1), 2), privacy_loss(Binomial(20), 1)])
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        true = product_delta(distributions, [1, 1, 1], epsilon)
        assert true <= composed.delta(epsilon) <= true * 1.001


def test_the_order_of_composition_does_not_matter() -> None:
    losses = [
        privacy_loss(DiscreteLaplace(3), 1),
        privacy_loss(Skellam(20), 2),
        privacy_loss(Binomial(300, 0.1), 1),
    ]
    found = [compose_losses(list(order)).epsilon(1e-6) for order in itertools.permutations(losses)]
    assert max(found) - min(found) < 1e-9
    pairs = compose_losses([losses[0], losses[0], losses[1]]).epsilon(1e-6)
    assert pairs == pytest.approx(
        compose_losses([(losses[0], 2), losses[1]]).epsilon(1e-6), rel=1e-6
    )


def kov_delta(epsilon: float, times: int, at: float) -> float:
    """Kairouz, Oh & Viswanath 2015, Theorem 3.3: optimal composition of pure guarantees."""
    total = 0.0
    for j in range(times + 1):
        p = math.exp(epsilon * (times - j)) / (1 + math.exp(epsilon)) ** times
        q = math.exp(epsilon * j) / (1 + math.exp(epsilon)) ** times
        total += math.comb(times, j) * max(0.0, p - math.exp(at) * q)
    return total


@pytest.mark.parametrize("times", [1, 2, 3, 7, 20])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.3])
def test_pure_guarantees_compose_optimally(times: int, epsilon: float) -> None:
    composed = ComposedLoss(((dominating_loss(PureDP(epsilon)), times),))
    for fraction in (0.0, 0.3, 0.7, 0.95):
        at = fraction * times * epsilon
        true = kov_delta(epsilon, times, at)
        assert true <= composed.delta(at) <= true * (1 + 1e-9) + 2e-12
    assert composed.delta(times * epsilon) == 0.0


def test_an_approximate_guarantee_fails_at_most_with_probability_delta() -> None:
    composed = ComposedLoss(((dominating_loss(ApproximateDP(0.1, 1e-4)), 10),))
    failure = 1 - (1 - 1e-4) ** 10
    assert composed.delta(1.0) == pytest.approx(failure, rel=1e-7)
    assert composed.delta(1.0) >= failure
    assert math.isinf(composed.epsilon(5e-4))


def test_a_thousand_fold_composition_runs_in_bounded_memory() -> None:
    composed = ComposedLoss(((privacy_loss(Skellam(1e6), 10), 1000),))
    assert len(composed._distribution._pmf_remove._probs) < 1 << 22
    assert composed.epsilon(1e-5) == pytest.approx(
        GaussianLoss(1000.0, 10 * math.sqrt(1000)).epsilon(1e-5), rel=1e-3
    )


def test_an_infinite_loss_dominates_the_composition() -> None:
    """Found: no finite loss had any mass, and the grid search crashed."""
    hopeless = privacy_loss(Binomial(3), 10)
    assert ComposedLoss(((hopeless, 2),)).delta(5.0) == 1.0
    assert math.isinf(compose_losses([privacy_loss(DiscreteLaplace(1), 1), hopeless]).epsilon(1e-3))


def test_truncated_mass_counts_as_infinite_loss() -> None:
    """Atoms of mass 5·10⁻¹⁶ at both ends: none stretches the grid, none is forgotten."""
    rare = 5e-16
    losses, masses = np.array([50.0, 1.0, -1.0, -50.0]), np.array([rare, 0.7, 0.3, rare])
    lowest, kept, infinite = _on_grid(Direction.of(losses, masses, 1e-9), 0.25)
    assert infinite == pytest.approx(1e-9 + rare, rel=1e-12, abs=0)
    assert kept.sum() == pytest.approx(1.0 + rare, rel=1e-15)
    assert lowest == -4


def test_very_different_and_very_small_losses_compose() -> None:
    small = privacy_loss(Binomial(10**8, 0.02), 1)
    mixed = compose_losses([(small, 100), privacy_loss(DiscreteGaussian(2), 1)])
    assert mixed.epsilon(1e-6) >= privacy_loss(DiscreteGaussian(2), 1).epsilon(1e-6)
    assert ComposedLoss(((small, 100),)).delta(0.01) == pytest.approx(
        GaussianLoss(1400.0, 10.0).delta(0.01), rel=5e-3
    )


def test_composition_states_its_smallest_resolvable_delta() -> None:
    composed = ComposedLoss(((privacy_loss(DiscreteLaplace(5), 1), 3),))
    with pytest.raises(TacitError, match=r"resolves delta down to"):
        composed.epsilon(1e-13)
    wide = privacy_loss(DiscreteGaussian(5), 1)
    for times, resolved in ((3, 1e-12), (5000, 5e-12)):
        often = ComposedLoss(((wide, times),))
        assert often.delta(400.0 + times) >= resolved
        assert often.delta(often.epsilon(1e-10)) <= 1e-10 * (1 + 1e-6)
    assert composed.epsilon(0) == composed.pure == pytest.approx(0.6)
    with pytest.raises(TacitError, match="at least one loss"):
        ComposedLoss(())
    with pytest.raises(TacitError, match="at least once"):
        ComposedLoss(((privacy_loss(DiscreteLaplace(5), 1), 0),))


# returning users


def test_advanced_composition_is_the_formula_of_dwork_rothblum_vadhan() -> None:
    found = advanced_composition(ApproximateDP(0.1, 1e-8), 100, 1e-6)
    assert found.epsilon == pytest.approx(
        0.1 * math.sqrt(200 * math.log(1e6)) + 100 * 0.1 * (math.e**0.1 - 1)
    )
    assert found.delta == pytest.approx(1e-6 + 1e-6)
    assert (
        advanced_composition(PureDP(3.0), 2, 1e-6).epsilon == 6.0
    )  # never above basic composition
    assert advanced_composition(PureDP(900.0), 2, 1e-6).epsilon == 1800.0
    with pytest.raises(TacitError, match="must be below 1"):
        advanced_composition(ApproximateDP(0.1, 0.01), 100, 1e-6)


@pytest.mark.parametrize("batches", [1, 10, 100])
def test_exact_accounting_is_at_most_the_other_two(batches: int) -> None:
    for release in (
        PureDP(0.1),
        privacy_loss(DiscreteLaplace(20), 2),
        privacy_loss(Skellam(400), 2),
    ):
        found = compose_participations(release, batches, 1e-5)
        assert found.renyi is not None
        assert found.advanced is not None
        assert found.exact <= found.renyi * (1 + 1e-3)
        assert found.exact <= found.advanced * (1 + 1e-3)
        assert found.best == min(found.exact, found.renyi, found.advanced)


@pytest.mark.parametrize("batches", [2, 5, 100])
def test_several_participations_are_accounted_in_every_batch(batches: int) -> None:
    """Both from an exact loss and from a guarantee; advanced composition by hand."""
    loss, delta = privacy_loss(DiscreteLaplace(10), 1), 1e-6
    found = compose_participations(loss, batches, delta)
    assert found.exact == ComposedLoss(((loss, batches),)).epsilon(delta)
    single = loss.epsilon(delta / (2 * batches))
    root = math.sqrt(2 * batches * math.log(2 / delta))
    by_hand = single * root + batches * single * math.expm1(single)
    assert found.advanced == pytest.approx(min(by_hand, batches * single), rel=1e-12)
    guarantee = ApproximateDP(0.1, 1e-9)
    told = compose_participations(guarantee, batches, delta)
    worst = ComposedLoss(((dominating_loss(guarantee), batches),))
    assert told.exact == worst.epsilon(delta)


def test_deltas_of_the_batches_count_against_the_total() -> None:
    """Found: 100 batches of (0.1, 1e-6) were said to be (5.99, 1e-5), but their
    exceptions alone add up to 1e-4.
    """
    found = compose_participations(ApproximateDP(0.1, 1e-6), 100, 1e-5)
    assert found.advanced is None
    assert math.isinf(found.best)
    enough = compose_participations(ApproximateDP(0.1, 1e-8), 100, 1e-5)
    assert (
        enough.advanced == advanced_composition(ApproximateDP(0.1, 1e-8), 100, 1e-5 - 1e-6).epsilon
    )
    assert enough.exact <= enough.advanced


def test_binomial_noise_has_no_renyi_accounting_but_exact_accounting() -> None:
    found = compose_participations(privacy_loss(Binomial(2000), 1), 10, 1e-5)
    assert found.renyi is None
    assert found.best == found.exact < found.advanced  # type: ignore[operator]


# the odometer


@pytest.mark.parametrize("adaptive", [True, False])
def test_the_odometer_accumulates_and_a_rejection_changes_nothing(
    adaptive: bool,
) -> None:
    meter = Odometer(ApproximateDP(1.0, 1e-5), adaptive=adaptive)
    assert meter.spent().epsilon == 0.0
    readings = []
    for _ in range(4):
        meter.spend(PureDP(0.1))
        readings.append(meter.spent().epsilon)
    assert readings == sorted(readings)
    assert readings[0] < readings[-1] <= 1.0
    for _ in range(3):
        with pytest.raises(BudgetExceeded, match="nothing was spent"):
            meter.spend(PureDP(0.9))
        assert meter.spent().epsilon == readings[-1]
    with pytest.raises(BudgetExceeded):
        meter.spend(PureDP(0.1), times=10**4)
    assert meter.spent().epsilon == readings[-1]
    meter.spend(PureDP(0.01))
    assert meter.spent().epsilon >= readings[-1]


@pytest.mark.parametrize("adaptive", [True, False])
def test_the_odometer_never_exceeds_its_budget(adaptive: bool) -> None:
    meter = Odometer(ApproximateDP(2.0, 1e-6), adaptive=adaptive)
    release = privacy_loss(DiscreteGaussian(20), 2)
    spent = 0
    for times in (64, 32, 16, 8, 4, 2, 1):
        try:
            meter.spend(release, times)
            spent += times
        except BudgetExceeded:
            continue
    truth = GaussianLoss(20.0, 2 * math.sqrt(spent)).epsilon(1e-6)
    one_more = GaussianLoss(20.0, 2 * math.sqrt(spent + 1)).epsilon(1e-6)
    assert truth <= meter.spent().epsilon * (1 + 1e-9) <= 2.0
    assert one_more > (
        1.6 if adaptive else 1.99
    )  # the filter pays for freedom, the fixed list does not


def test_the_adaptive_odometer_is_a_filter_at_one_order_fixed_beforehand() -> None:
    meter = Odometer(ApproximateDP(3.0, 1e-5))
    order = meter.order
    meter.spend(ConcentratedDP(0.1))
    meter.spend(privacy_loss(DiscreteLaplace(5), 1), times=2)
    assert meter.order == order
    total = 0.1 * order + 2 * privacy_loss(DiscreteLaplace(5), 1).renyi(order)
    converted = total + math.log(1 / (order * 1e-5)) / (order - 1) + math.log(1 - 1 / order)
    assert meter.spent().epsilon == pytest.approx(converted)


@pytest.mark.parametrize("adaptive", [True, False])
def test_the_odometer_states_no_more_metrics_than_every_release_covers(adaptive: bool) -> None:
    two = PureDP(0.1).assuming(MetricsPerParticipation(2))
    meter = Odometer(ApproximateDP(1.0, 1e-5), adaptive=adaptive)
    meter.spend(two)
    assert meter.spent().metrics == 2
    meter.spend(PureDP(0.1))
    assert meter.spent().metrics == 1
    meter.spend(two)
    assert meter.spent().metrics == 1
    meter = Odometer(ApproximateDP(1.0, 1e-5).assuming(MetricsPerParticipation(2)))
    meter.spend(privacy_loss(DiscreteLaplace(10), 1))
    assert meter.spent().metrics == 1


def test_the_odometer_rejects_mechanisms_without_accounting() -> None:
    adaptive, fixed = (
        Odometer(ApproximateDP(1.0, 1e-5)),
        Odometer(ApproximateDP(1.0, 1e-5), adaptive=False),
    )
    with pytest.raises(TacitError, match="adaptive=False"):
        adaptive.spend(ApproximateDP(0.1, 1e-8))
    with pytest.raises(TacitError, match="adaptive=False"):
        adaptive.spend(privacy_loss(Binomial(10_000), 1))
    with pytest.raises(TacitError, match="adaptive=True"):
        fixed.spend(ConcentratedDP(0.01))
    for meter in (adaptive, fixed):
        with pytest.raises(TacitError, match="another view"):
            meter.spend(PureDP(0.1, view=View.MESSAGE))
        with pytest.raises(TacitError, match="cannot be spent"):
            meter.spend(GaussianLoss(10.0, 1.0))  # type: ignore[arg-type]
        with pytest.raises(TacitError, match="times is 0"):
            meter.spend(PureDP(0.1), times=0)
        assert meter.spent().epsilon == 0.0
    with pytest.raises(TacitError, match="epsilon is 0"):
        Odometer(ApproximateDP(0.0, 1e-5))


def test_composition_counts_participations_and_keeps_assumptions() -> None:
    """A participant of all releases took part as often, under every one's assumptions."""
    half, asked = DishonestAtMost(Scope.ROUND, 0, Fraction(1, 2)), CompleteGroups()
    one = PureDP(0.01, participations=2).assuming(half)
    found = advanced_composition(one, 3, 1e-6)
    assert found.participations == 6
    assert found.assumptions == {half, DistinctRounds()}
    for adaptive in (True, False):
        meter = Odometer(ApproximateDP(1.0, 1e-5).assuming(asked), adaptive=adaptive)
        assert meter.spent().participations == 1
        assert meter.spent().assumptions == {asked}
        meter.spend(one, times=3)
        meter.spend(privacy_loss(DiscreteLaplace(100), 1))
        spent = meter.spent()
        assert spent.participations == 7
        order = Fraction(str(meter.order)) if adaptive else Fraction(0)
        how = Accounting(Method.RENYI if adaptive else Method.LOSS, 7, order)
        assert spent.assumptions == {asked, half, DistinctRounds(), how}


def test_a_composition_that_exceeds_memory_is_rejected_early() -> None:
    composed = compose_losses([(privacy_loss(Skellam(56), 2), 10**9)])
    with pytest.raises(TacitError, match="cells: must be at most 16,777,216"):
        composed.epsilon(1e-5)
