"""Guarantees as values: text, order, composition and conversion, none beyond the exact loss."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tacit.assumptions import (
    TRUST_OF_VIEW,
    Accounting,
    CompleteGroups,
    DishonestAtMost,
    DistinctRounds,
    Method,
    ReleasedOnlyAbove,
    Scope,
)
from tacit.cli.guarantee_kinds import guarantee_numbers
from tacit.errors import TacitError
from tacit.noise import DiscreteGaussian, DiscreteLaplace, Skellam
from tacit.privacy import (
    ApproximateDP,
    Arithmetic,
    ConcentratedDP,
    Gaussian,
    GaussianLoss,
    Guarantee,
    Neighbours,
    PureDP,
    RenyiDP,
    View,
    compose,
    dominating_loss,
    privacy_loss,
    state_drawn_arithmetic,
)

EPSILONS = st.floats(1e-4, 30)
DELTAS = st.floats(-30, -0.01).map(math.exp)
GUARANTEES = st.one_of(
    st.builds(PureDP, EPSILONS),
    st.builds(ApproximateDP, EPSILONS, st.floats(1e-12, 0.5)),
    st.builds(ConcentratedDP, st.floats(1e-6, 20)),
    st.floats(1e-6, 20).map(lambda rho: RenyiDP.of(lambda order: rho * order)),
)


HONEST = DishonestAtMost(Scope.ROUND, 1)


# printing


def test_a_guarantee_prints_as_one_plain_sentence() -> None:
    said = (
        "(1, 1e-05)-DP: to an adversary who sees the released sums, replacing one participant's "
        "data changes the probability of anything by a factor of at most 2.72, but for an "
        "exception of probability 1e-05; each participant takes part at most once, and whether "
        "they do does not depend on the answer; the aggregator follows the protocol and releases "
        "nothing but the sum; {}."
    )
    stated = ApproximateDP(1.0, 1e-5)
    assert str(stated) == said.format("how the noise is drawn is not stated")
    exact = state_drawn_arithmetic(stated, DiscreteLaplace(1))
    assert str(exact) == said.format("noise is drawn exactly, in integers")
    ideal = state_drawn_arithmetic(stated, Gaussian(4.0))
    assert str(ideal) == said.format(
        "in ideal real arithmetic: floating-point noise is for simulation only"
    )
    assert str(PureDP(0.5, view=View.MESSAGE)).startswith(
        "(0.5, 0)-DP: to an adversary who sees the participant's own message, replacing one "
        "participant's"
    )
    assert "adding or removing one participant's data" in str(
        ConcentratedDP(0.5, neighbours=Neighbours.ADD_OR_REMOVE_ONE)
    )
    assert "(4.73, 1e-05)-DP" in str(ConcentratedDP(0.5))
    assert "bounded at 159 orders" in str(RenyiDP.of(lambda order: order / 2))


@pytest.mark.parametrize("epsilon", [1e-12, 1.0, 700.0, 5000.0])
def test_every_epsilon_is_printable(epsilon: float) -> None:
    for guarantee in (PureDP(epsilon), ApproximateDP(epsilon, 1e-5)):
        assert str(guarantee).endswith(".")
        assert "\n" not in str(guarantee)


# comparing


@pytest.mark.parametrize("value", [1.0004, 0.33333, 2.00001, 1.00001e-5, 699.994, 1 + 1e-11])
def test_printed_numbers_are_never_below_the_guarantee(value: float) -> None:
    guarantee = ApproximateDP(value, 1.00001e-5)
    epsilon, delta = (float(number) for number in guarantee.short[1:-4].split(", "))
    assert value <= epsilon < 1.001 * value
    assert delta > guarantee.delta
    factor = float(str(guarantee).partition("a factor of at most ")[2].partition(",")[0])
    assert math.exp(value) <= factor < 1.01 * math.exp(value)
    exception = float(str(guarantee).partition("exception of probability ")[2].partition(";")[0])
    assert exception > guarantee.delta
    assert f"10^{math.ceil(800 / math.log(10))}" in str(PureDP(800.0))


def test_an_epsilon_without_a_float_is_printed_rounded_up() -> None:
    asked = PureDP(Fraction(1, 3), participations=3)  # type: ignore[arg-type]
    third = state_drawn_arithmetic(asked.assuming(HONEST), DiscreteLaplace(3))
    told = third.to_dict()
    assert Fraction(told["epsilon"]) > Fraction(1, 3) > Fraction(1 / 3)
    assert told["participations"] == 3
    for needed in (TRUST_OF_VIEW[third.view], HONEST):
        assert needed.to_dict() in told["assumptions"]
        assert needed.text() in third.clauses()
        assert needed.text() in str(third)
    assert told["arithmetic"] == Arithmetic.EXACT.value
    assert Arithmetic.EXACT.text() in str(third)
    assert told["text"] == str(third)


def test_a_delta_below_floats_is_not_printed_as_zero() -> None:
    tiny = ApproximateDP(1.0, Fraction(1, 10**400))  # type: ignore[arg-type]
    assert tiny.to_dict()["delta"] > 0
    assert "(1, 0)-DP" not in str(tiny)
    third = ApproximateDP(1.0, Fraction(1, 3)).to_dict()["delta"]  # type: ignore[arg-type]
    assert isinstance(third, float)
    assert Fraction(third) >= Fraction(1, 3)
    assert "by a factor of at most 1.01" in str(PureDP(1e-13))
    assert "by a factor of at most 1," in str(ApproximateDP(0.0, 0.1))


def test_conversions_keep_assumptions() -> None:
    one = PureDP(0.5, participations=2).assuming(HONEST)
    other = PureDP(0.25, participations=3).assuming(CompleteGroups(), HONEST)
    both = compose([one, other])
    assert both.participations == 5
    assert both.assumptions == {HONEST, CompleteGroups(), DistinctRounds()}
    found = one.to_approximate(1e-5)
    assert found.participations == 2
    assert found.assumptions == {HONEST}
    assert RenyiDP.of(one.renyi).repeat(4).participations == 4
    assert RenyiDP.of(one.renyi).repeat(4).repeat(2).participations == 8
    curve = RenyiDP.of(one.renyi).assuming(HONEST)
    concentrated = ConcentratedDP(0.5).assuming(HONEST)
    for kept in (
        curve.repeat(1),
        one.group(2),
        concentrated.group(2),
        concentrated.to_approximate(1e-5),
        one.with_view(view=View.SHUFFLED),
        one.approximated,
        curve.approximated,
    ):
        assert kept.assumptions == {HONEST}
    assert curve.repeat(4).assumptions == {HONEST, DistinctRounds()}
    assert not one.implies(PureDP(0.5, participations=3).assuming(HONEST))
    assert other.implies(PureDP(0.5, participations=3).assuming(HONEST, CompleteGroups()))
    assert not other.implies(PureDP(0.5, participations=3).assuming(HONEST))


def test_composition_keeps_the_strictest_assumption_of_each_kind() -> None:
    """The world of both guarantees has as few dishonest participants as the stricter one needs."""
    strict, loose = DishonestAtMost(Scope.ROUND, 1), DishonestAtMost(Scope.ROUND, 4)
    kept, most = ReleasedOnlyAbove(Fraction(4, 5)), ReleasedOnlyAbove(Fraction(9, 10))
    both = compose([PureDP(0.5).assuming(loose, most), PureDP(0.5).assuming(strict, kept)])
    assert both.assumptions == {strict, most}
    groups = DishonestAtMost(Scope.GROUP, 1)
    assert compose([PureDP(0.5).assuming(groups), PureDP(0.5).assuming(strict)]).assumptions == {
        groups,
        strict,
    }


def test_stronger_guarantees_imply_weaker_ones() -> None:
    assert PureDP(1.0).implies(PureDP(2.0))
    assert not PureDP(2.0).implies(PureDP(1.0))
    assert PureDP(1.0).implies(ApproximateDP(1.0, 1e-9))
    assert PureDP(1.0).implies(ApproximateDP(0.9, 0.07))
    assert PureDP(1.0).implies(ConcentratedDP(0.5))
    assert not PureDP(1.0).implies(ConcentratedDP(0.49))
    assert PureDP(1.0).implies(RenyiDP.of(lambda order: order / 2))
    assert ConcentratedDP(0.5).implies(ApproximateDP(4.74, 1e-5))
    assert not ConcentratedDP(0.5).implies(ApproximateDP(4.3, 1e-5))  # the exact Gaussian has 4.38
    assert not PureDP(1.0).implies(RenyiDP(((2.0, 1.0), (64.0, 0.5))))
    assert not ApproximateDP(0.1, 1e-9).implies(PureDP(10.0))
    assert not ApproximateDP(0.1, 1e-300).implies(PureDP(10.0))
    assert not ConcentratedDP(0.5).implies(PureDP(100.0))
    assert not ApproximateDP(0.1, 1e-9).implies(ConcentratedDP(10.0))
    assert not ApproximateDP(1.0, 1e-5).implies(ApproximateDP(5.0, 1e-6))


@given(GUARANTEES)
def test_a_guarantee_implies_itself_but_no_other_view(guarantee: Guarantee) -> None:
    assert guarantee.implies(guarantee)
    assert not guarantee.implies(guarantee.with_view(view=View.SHUFFLED))
    assert not guarantee.implies(guarantee.with_view(neighbours=Neighbours.ADD_OR_REMOVE_ONE))


# delta at epsilon and back


@settings(deadline=None)
@given(GUARANTEES, st.floats(0, 20), st.floats(0, 5))
def test_delta_falls_with_epsilon(guarantee: Guarantee, epsilon: float, more: float) -> None:
    assert (
        0
        <= guarantee.delta_at(epsilon + more)
        <= guarantee.delta_at(epsilon) * (1 + 1e-6)
        <= 1 + 1e-6
    )


@settings(deadline=None)
@given(GUARANTEES, DELTAS)
def test_epsilon_and_delta_are_inverse(guarantee: Guarantee, delta: float) -> None:
    epsilon = guarantee.epsilon_at(delta)
    assume(math.isfinite(epsilon))
    assert guarantee.delta_at(epsilon) <= delta * (1 + 1e-6) + 1e-15
    assert guarantee.to_approximate(delta) == ApproximateDP(epsilon, delta)


def test_epsilon_at_a_tiny_delta_is_never_rounded_down() -> None:
    """Found by search: the nearest double below 17 gave a δ of 1.002 times what was asked."""
    delta = math.exp(-28.0)
    assert PureDP(17.0).delta_at(PureDP(17.0).epsilon_at(delta)) <= delta


@given(EPSILONS, st.floats(0, 30))
def test_pure_delta_is_that_of_randomized_response(epsilon: float, at: float) -> None:
    with mpmath.workdps(30):
        q = mpmath.exp(epsilon) / (1 + mpmath.exp(epsilon))
        true = max(mpmath.mpf(0), q - mpmath.exp(at) * (1 - q))
    assert PureDP(epsilon).delta_at(at) == pytest.approx(float(true), rel=1e-9, abs=1e-16)
    assert dominating_loss(PureDP(epsilon)).delta(at) == pytest.approx(
        float(true), rel=1e-9, abs=1e-15
    )


# conversions never claim more than the exact loss


@settings(deadline=None)
@given(st.floats(0.02, 8), DELTAS)
def test_concentrated_to_approximate_is_never_below_the_exact_gaussian(
    mu: float, delta: float
) -> None:
    exact = GaussianLoss(1 / mu, 1)
    for guarantee in (ConcentratedDP(mu * mu / 2), RenyiDP.of(exact.renyi)):
        assert guarantee.epsilon_at(delta) >= exact.epsilon(delta) * (1 - 1e-9)
        assert guarantee.delta_at(1.0) >= exact.delta(1.0) * (1 - 1e-9)


@settings(deadline=None, max_examples=25)
@given(st.floats(0.5, 20), st.integers(1, 10), DELTAS)
def test_renyi_to_approximate_is_never_below_the_exact_loss_of_integer_noise(
    width: float, sensitivity: int, delta: float
) -> None:
    for distribution in (DiscreteLaplace(width), DiscreteGaussian(width), Skellam(width**2)):
        loss = privacy_loss(distribution, sensitivity)
        curve = RenyiDP.of(loss.renyi, (1.5, 2, 3, 5, 9, 17))
        assert curve.epsilon_at(delta) >= loss.epsilon(delta) * (1 - 1e-9)


@given(st.floats(1e-9, 50), st.floats(0, 5).map(lambda t: 1 + math.exp(t)))
def test_pure_implies_the_divergences_of_randomized_response_and_of_lemma_10(
    epsilon: float, order: float
) -> None:
    found = PureDP(epsilon).renyi(order)
    with mpmath.workdps(60):
        q = mpmath.exp(epsilon) / (1 + mpmath.exp(epsilon))
        a = mpmath.mpf(order)
        true = mpmath.log(q**a * (1 - q) ** (1 - a) + (1 - q) ** a * q ** (1 - a)) / (a - 1)
    assert found == pytest.approx(float(true), rel=1e-6)
    assert 0 < found <= min(epsilon, epsilon**2 * order / 2) * (1 + 1e-12)


def test_the_divergence_of_a_tiny_pure_guarantee_is_not_lost_to_cancellation() -> None:
    """Found: it was 0 below epsilon = 1e-8, so an odometer spent nothing."""
    for epsilon in (1e-8, 1e-10, 1e-14):
        assert PureDP(epsilon).renyi(2) == pytest.approx(epsilon**2, rel=1e-6)


def test_lemma_10_is_the_formula_at_one_order() -> None:
    curve = RenyiDP(((8.0, 0.7),))
    assert curve.epsilon_at(1e-6) == pytest.approx(
        0.7 + math.log(1 / (8 * 1e-6)) / 7 + math.log(1 - 1 / 8)
    )
    assert curve.delta_at(curve.epsilon_at(1e-6)) == pytest.approx(1e-6)
    assert math.isinf(curve.epsilon_at(0))


def test_correction_10_half_zcdp_is_about_4_4_at_1e_minus_5() -> None:
    assert round(GaussianLoss(1.0, 1.0).epsilon(1e-5), 1) == 4.4
    assert round(privacy_loss(DiscreteGaussian(10), 10).epsilon(1e-5), 1) == 4.4
    assert round(privacy_loss(Skellam(10_000), 100).epsilon(1e-5), 1) == 4.4
    assert round(ConcentratedDP(0.5).epsilon_at(1e-5), 2) == 4.73  # what Lemma 10 makes of it


# composition of guarantees


def test_composition_adds_each_kind() -> None:
    sums: list[tuple[list[Guarantee], Guarantee]] = [
        ([PureDP(0.5), PureDP(0.25)], PureDP(0.75, participations=2)),
        (
            [PureDP(1.0), ConcentratedDP(0.25)],
            ConcentratedDP(0.75, participations=2),
        ),
        (
            [PureDP(0.5), ApproximateDP(0.25, 1e-6), ApproximateDP(0.25, 2e-6)],
            ApproximateDP(1.0, 3e-6, participations=3),
        ),
    ]
    for parts, total in sums:
        assert compose(parts) == total.assuming(DistinctRounds())
    curve = RenyiDP.of(lambda order: 0.1 * order, (2.0, 3.0))
    mixed = compose([curve, ConcentratedDP(0.4), curve])
    assert isinstance(mixed, RenyiDP)
    assert [order for order, _ in mixed.curve] == [2.0, 3.0]
    assert [value for _, value in mixed.curve] == pytest.approx([1.2, 1.8])
    assert curve.repeat(3).renyi(2.5) == pytest.approx(0.9)


def test_composition_rejects_incompatible_guarantees() -> None:
    with pytest.raises(TacitError, match="nothing to compose"):
        compose([])
    with pytest.raises(TacitError, match="different neighbours or views"):
        compose([PureDP(1.0), PureDP(1.0, view=View.MESSAGE)])
    with pytest.raises(TacitError, match="to_approximate"):
        compose([ConcentratedDP(1.0), ApproximateDP(1.0, 1e-6)])
    with pytest.raises(TacitError, match="must be below 1"):
        compose([ApproximateDP(1.0, 0.6), ApproximateDP(1.0, 0.6)])
    with pytest.raises(TacitError, match="share no order"):
        compose([RenyiDP(((2.0, 1.0),)), RenyiDP(((3.0, 1.0),))])


@pytest.mark.parametrize("delta", [1e-9, 0.01, 0.4])
@pytest.mark.parametrize("at", [0.0, 0.3, 0.999, 1.0, 2.0])
def test_delta_includes_the_failure_probability(delta: float, at: float) -> None:
    """δ at any ε is that of randomized response that fails openly, which has the guarantee."""
    likelier = 1 / (1 + math.exp(-1.0))
    kept = max(0.0, likelier - math.exp(at) * (1 - likelier))
    found = ApproximateDP(1.0, delta).delta_at(at)
    assert found == pytest.approx(delta + (1 - delta) * kept, rel=1e-9)


def test_group_privacy_matches_its_formulas() -> None:
    assert PureDP(0.5).group(3) == PureDP(1.5)
    assert ConcentratedDP(0.5).group(3) == ConcentratedDP(4.5)
    with pytest.raises(TacitError, match="PureDP or ConcentratedDP"):
        ApproximateDP(1.0, 1e-5).group(2)


def test_extreme_guarantees_convert_without_overflow() -> None:
    assert ConcentratedDP(1e12).delta_at(1.0) == 1.0
    assert ConcentratedDP(1e-12).epsilon_at(1e-5) < 1e-4
    assert PureDP(1e-15).epsilon_at(0.5) == 0.0
    assert PureDP(900.0).renyi(50) == pytest.approx(900.0, rel=1e-2)
    assert math.isinf(ConcentratedDP(1.0).epsilon_at(0))
    assert math.isinf(ApproximateDP(1.0, 1e-5).epsilon_at(1e-6))
    with pytest.raises(TacitError, match="larger delta"):
        ApproximateDP(1.0, 1e-5).to_approximate(1e-6)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 5.0])
def test_pure_to_concentrated_conversion_is_tight_for_the_worst_mechanism(epsilon: float) -> None:
    """Half of its square: no order of randomized response is above, and order 1 reaches it."""
    pure = PureDP(epsilon)
    rho = pure.rho_bound()
    ratios = [pure.renyi(order) / order for order in (1.0001, 1.5, 2, 8, 64, 1024)]
    assert max(ratios) <= rho * (1 + 1e-9)
    if epsilon <= 0.1:
        assert max(ratios) > 0.99 * rho


@pytest.mark.parametrize("delta", [0.21, 0.5, 0.9])
def test_guarantees_with_a_delta_convert_as_the_worst_mechanism_does(
    delta: float,
) -> None:
    guarantee = ApproximateDP(2.0, 0.2)
    worst = dominating_loss(guarantee).epsilon(delta)
    assert guarantee.epsilon_at(delta) == pytest.approx(worst, rel=1e-9, abs=1e-12)


def test_a_composed_loss_has_no_divergence_of_its_own() -> None:
    with pytest.raises(TacitError, match="add the Rényi divergences of its parts"):
        dominating_loss(PureDP(1.0)).renyi(2.0)


def test_composition_states_where_participations_need_distinct_releases() -> None:
    """Twice in the release of ε = 0.5 costs 1, which 0.5 + 0.25 does not cover."""
    for items in (
        [PureDP(0.5), PureDP(0.25)],
        [ApproximateDP(0.5, 1e-6)] * 2,
        [ConcentratedDP(0.5)] * 2,
        [PureDP(0.5), PureDP(0.5, participations=2)],
    ):
        assert DistinctRounds() in compose(items).assumptions
    for items in ([PureDP(0.5)] * 3, [PureDP(0.5), PureDP(1.0, participations=2)]):
        assert DistinctRounds() not in compose(items).assumptions
    assert compose([ApproximateDP(0.5, 1e-6)]).assumptions == frozenset()


@given(
    st.lists(st.floats(1e-12, 5), min_size=2, max_size=5),
    st.integers(1, 50),
)
def test_sums_of_guarantees_are_never_below_the_exact_ones(
    epsilons: list[float], count: int
) -> None:
    """Found: sums of floats were rounded to the nearest, half of them down."""
    exact = sum(map(Fraction, epsilons))
    pure = compose([PureDP(one) for one in epsilons])
    concentrated = compose([ConcentratedDP(one) for one in epsilons])
    assert isinstance(pure, PureDP)
    assert isinstance(concentrated, ConcentratedDP)
    assert min(Fraction(pure.epsilon), Fraction(concentrated.rho)) >= exact
    delta = min(0.9 / len(epsilons), epsilons[0])
    both = compose([ApproximateDP(one, delta) for one in epsilons])
    assert isinstance(both, ApproximateDP)
    assert Fraction(both.epsilon) >= exact
    assert Fraction(both.delta) >= len(epsilons) * Fraction(delta)
    first = Fraction(epsilons[0])
    assert Fraction(PureDP(epsilons[0]).group(count).epsilon) >= count * first
    assert Fraction(ConcentratedDP(epsilons[0]).group(count).rho) >= count**2 * first
    assert Fraction(PureDP(epsilons[0]).rho_bound()) >= first**2 / 2
    curve = RenyiDP(((2.0, epsilons[0]), (3.0, math.inf))).repeat(count).curve
    assert Fraction(curve[0][1]) >= count * first
    assert curve[1][1] == math.inf


def test_a_renyi_order_is_printed_without_rounding() -> None:
    """Found: the divergence at order 1.9999999 was printed as that at 2, which is larger."""
    found = RenyiDP(((2 - 1e-7, 0.5),))
    assert found.short == "(1.9999999, 0.5)-RDP"
    assert guarantee_numbers(found, False)["renyi_curve"] == "1.9999999: 0.5"
    stated = Accounting(Method.RENYI, 3, Fraction("1.9999999"))
    assert "3 Rényi divergences of order 1.9999999 added up" in stated.text()
