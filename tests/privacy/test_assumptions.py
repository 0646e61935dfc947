"""Assumptions: implication, storage by identifier, independence of their text."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tables import each_row

from tacit.assumptions import (
    TRUST_OF_VIEW,
    Accounting,
    AskedFor,
    Assumption,
    BoundedAdversary,
    CompleteGroups,
    Declared,
    Derivation,
    DerivedBy,
    DishonestAtMost,
    DistinctRounds,
    HonestServers,
    LocallyPrivateMessages,
    Method,
    MetricsPerParticipation,
    OwnRecords,
    ParticipantsFrom,
    PinnedKeys,
    Poisoned,
    PrivateMessages,
    Protects,
    RangeProofs,
    ReleasedOnlyAbove,
    Remark,
    Scope,
    Secret,
    SemiHonestServer,
    Source,
    Spread,
    TowardsOutsiders,
    VisitsAtMost,
    together,
    uncovered,
)
from tacit.errors import TacitError
from tacit.noise import Binomial, DiscreteLaplace, Skellam
from tacit.privacy import (
    ApproximateDP,
    Arithmetic,
    ComposedLoss,
    ConcentratedDP,
    Gaussian,
    Guarantee,
    Guaranteed,
    KnownPerRound,
    NonPrivate,
    Odometer,
    PureDP,
    RenyiDP,
    ThreatModel,
    View,
    advanced_composition,
    calibrate,
    checked_target,
    compose,
    privacy_loss,
    privacy_of,
    state_drawn_arithmetic,
    status_of,
    weakest,
)
from tacit.privacy.accounting import achieved_guarantee
from tacit.privacy.guarantees import for_fewer
from tacit.privacy.silos import SilosDP
from tacit.privacy.silos import weakest as weakest_of_silos
from tacit.privacy.status import status_from_data, status_to_data

TENTH = Fraction(1, 10)
FRACTIONS = st.fractions(0, Fraction(49, 50), max_denominator=50)
SIMPLE = st.sampled_from(
    [
        CompleteGroups(),
        PinnedKeys(),
        BoundedAdversary(),
        RangeProofs(),
        HonestServers(1, of=2),
        HonestServers(2, of=2),
        MetricsPerParticipation(2),
        Protects(Secret.ONE_REWARD),
        Declared(100_000),
        Poisoned(TENTH),
        OwnRecords(25, 1.5, 1e-5),
        Accounting(Method.RENYI, 3, Fraction(11, 10)),
        VisitsAtMost(2, 3),
        VisitsAtMost(1, 3, Spread.ANYWHERE),
        *TRUST_OF_VIEW.values(),
    ]
)
ASSUMPTIONS: st.SearchStrategy[Assumption] = st.one_of(
    SIMPLE,
    st.builds(DishonestAtMost, st.sampled_from(Scope), st.integers(0, 5), FRACTIONS),
    st.builds(ReleasedOnlyAbove, st.fractions(TENTH, 1, max_denominator=50)),
    st.builds(VisitsAtMost, st.integers(1, 4), st.integers(1, 4), st.sampled_from(Spread)),
    st.builds(MetricsPerParticipation, st.integers(1, 3)),
)


@given(ASSUMPTIONS)
def test_assumptions_round_trip_through_json(one: Assumption) -> None:
    stored = json.loads(json.dumps(one.to_dict()))
    assert Assumption.from_dict(stored) == one
    assert stored["id"] == one.identifier
    assert one.text() not in json.dumps(stored)


@given(ASSUMPTIONS, ASSUMPTIONS, ASSUMPTIONS)
def test_implication_is_a_preorder(a: Assumption, b: Assumption, c: Assumption) -> None:
    assert a.implies(a)
    if a.implies(b) and b.implies(c):
        assert a.implies(c)
    if a.implies(b) and b.implies(a):
        assert a == b


@given(st.integers(2, 3000), st.integers(0, 5), FRACTIONS, st.integers(0, 5), FRACTIONS)
def test_fewer_dishonest_participants_are_the_weaker_assumption_in_every_round(
    n: int, count: int, fraction: Fraction, more: int, larger: Fraction
) -> None:
    strong, weak = DishonestAtMost("round", count, fraction), DishonestAtMost("round", more, larger)  # type: ignore[arg-type]
    if strong.implies(weak):
        assert strong.limit(n) <= weak.limit(n)
    assert 0 <= strong.limit(n) < n


@given(
    st.integers(1, 5000),
    st.fractions(0, Fraction(45, 100), max_denominator=40),
    st.fractions(0, Fraction(45, 100), max_denominator=40),
    st.integers(0, 4),
)
def test_noise_shares_assume_no_more_honest_participants_than_stated(
    n: int, dropout: Fraction, corrupt: Fraction, curious: int
) -> None:
    """The noise of `honest(n)` shares is there whatever n, though no assumption names n."""
    threat = ThreatModel(dropout, corrupt, curious)
    dishonest, released = threat.assumptions()
    assert isinstance(dishonest, DishonestAtMost)
    assert isinstance(released, ReleasedOnlyAbove)
    arrived = -int(-released.fraction * n // 1)
    assert arrived == threat.reports(n)
    assert threat.honest(n) <= max(1, arrived - dishonest.limit(n))


@pytest.mark.parametrize(
    ("stated", "needed", "holds"),
    [
        (DishonestAtMost(Scope.ROUND, 1), DishonestAtMost(Scope.ROUND, 2), True),
        (DishonestAtMost(Scope.ROUND, 2), DishonestAtMost(Scope.ROUND, 1), False),
        (DishonestAtMost(Scope.ROUND, 1), DishonestAtMost(Scope.GROUP, 1), False),
        (DishonestAtMost(Scope.GROUP, 1), DishonestAtMost(Scope.ROUND, 1), False),
        (DishonestAtMost(Scope.ROUND, 1, TENTH), DishonestAtMost(Scope.ROUND, 1), False),
        (DishonestAtMost(Scope.ROUND, 1), DishonestAtMost(Scope.ROUND, 1, TENTH), True),
        (ReleasedOnlyAbove(Fraction(1)), ReleasedOnlyAbove(Fraction(9, 10)), True),
        (ReleasedOnlyAbove(Fraction(9, 10)), ReleasedOnlyAbove(Fraction(1)), False),
        (HonestServers(2, of=2), HonestServers(1, of=2), True),
        (HonestServers(1, of=2), HonestServers(2, of=2), False),
        (HonestServers(2, of=3), HonestServers(2, of=2), False),
        (VisitsAtMost(1, 2), VisitsAtMost(2, 2), True),
        (VisitsAtMost(2, 2), VisitsAtMost(1, 4), False),
        (VisitsAtMost(1, 3), VisitsAtMost(1, 2), False),
        (VisitsAtMost(1, 2), VisitsAtMost(1, 3), True),
        (VisitsAtMost(2, 2), VisitsAtMost(1, 4, Spread.ANYWHERE), True),
        (VisitsAtMost(2, 2), VisitsAtMost(1, 3, Spread.ANYWHERE), False),
        (VisitsAtMost(1, 1, Spread.ANYWHERE), VisitsAtMost(1, 1), False),
        (CompleteGroups(), PinnedKeys(), False),
        (
            Accounting(Method.RENYI, 3, Fraction(2)),
            Accounting(Method.RENYI, 3, Fraction(3)),
            False,
        ),
    ],
)
def test_assumptions_are_ordered(stated: Assumption, needed: Assumption, holds: bool) -> None:
    assert stated.implies(needed) is holds
    assert (uncovered([needed], [stated]) == ()) is holds


@pytest.mark.parametrize(
    ("threat", "dishonest", "released"),
    [
        (ThreatModel(), (1, Fraction(0)), Fraction(1)),
        (ThreatModel(0.1, 0.05), (1, Fraction(1, 20)), Fraction(9, 10)),
        (ThreatModel(Fraction(1, 3), 0, 4), (4, Fraction(0)), Fraction(2, 3)),
        (ThreatModel(corrupt=0.25, curious=0), (0, Fraction(1, 4)), Fraction(1)),
    ],
)
def test_a_threat_model_states_every_adversary(
    threat: ThreatModel, dishonest: tuple[int, Fraction], released: Fraction
) -> None:
    for scope in Scope:
        stated = {DishonestAtMost(scope, *dishonest), ReleasedOnlyAbove(released)}
        assert set(threat.assumptions(scope)) == stated


@pytest.mark.parametrize(
    ("one", "members", "limit"),
    [
        (DishonestAtMost(Scope.ROUND, 1), 64, 1),
        (DishonestAtMost(Scope.ROUND, 1, TENTH), 64, 6),
        (DishonestAtMost(Scope.ROUND, 9, TENTH), 64, 9),
        (DishonestAtMost(Scope.ROUND, 0, TENTH), 9, 0),
        (DishonestAtMost(Scope.ROUND, 0, TENTH), 10, 1),
        (DishonestAtMost(Scope.ROUND, 5), 3, 2),
        (DishonestAtMost(Scope.ROUND, 1), 1, 0),
    ],
)
def test_the_number_of_dishonest_participants_follows_from_the_round(
    one: DishonestAtMost, members: int, limit: int
) -> None:
    assert one.limit(members) == limit


def test_remarks_are_not_implied_but_compared() -> None:
    assert uncovered([Declared(), RangeProofs()], []) == ()
    assert PureDP(1.0).assuming(Declared()) != PureDP(1.0)
    assert PureDP(1.0).assuming(Declared()).implies(PureDP(1.0))


@pytest.mark.parametrize("view", View)
def test_only_the_trust_of_its_own_view_is_implicit(view: View) -> None:
    trusts = set(TRUST_OF_VIEW.values())
    stated = PureDP(1.0, view=view).assuming(*trusts)
    assert stated.assumptions == trusts - {TRUST_OF_VIEW[view]}
    assert not stated.implies(PureDP(1.0, view=view))


def test_the_list_of_remarks_is_complete() -> None:
    """Whatever else is assumed needs cover before one guarantee implies another."""
    kinds = [one for one in Assumption._known.values() if one.__module__ == "tacit.assumptions"]
    assert {one.identifier for one in kinds if not one.needed} == {
        "asked-for",
        "declared-by-author",
        "derived-by",
        "metrics-per-participation",  # which `Guarantee.metrics` compares
        "own-records",
        "participants-from",
        "towards-outsiders",
        "poisoned",
        "range-proofs",
    }
    assert len(kinds) > 20


@each_row(
    "data",
    [
        {"id": "unheard-of"},
        {},
        {"id": "complete-groups", "count": 1},
        {"id": "dishonest-at-most", "scope": "round", "count": 1},
        {"id": "dishonest-at-most", "scope": "house", "count": 1, "fraction": "0"},
        {"id": "dishonest-at-most", "scope": "round", "count": -1, "fraction": "0"},
        {"id": "dishonest-at-most", "scope": "round", "count": 1, "fraction": "1"},
        {"id": "dishonest-at-most", "scope": "round", "count": 1, "fraction": "1/0"},
        {"id": "released-only-above", "fraction": "0"},
        {"id": "honest-servers", "count": 3, "of": 2},
    ],
)
def test_other_data_is_rejected(data: dict[str, Any]) -> None:
    with pytest.raises(TacitError):
        Assumption.from_dict(data)


ROUND = DishonestAtMost(Scope.ROUND, 1)
GUARANTEES: list[Guarantee] = [
    PureDP(1.0),
    PureDP(Fraction(1, 3), view=View.MESSAGE, participations=3),  # type: ignore[arg-type]
    ApproximateDP(0.5, 1e-5).assuming(ROUND, ReleasedOnlyAbove(Fraction(9, 10))),
    state_drawn_arithmetic(ApproximateDP(0.5, 1e-5), Skellam(9)),
    state_drawn_arithmetic(ApproximateDP(0.5, 1e-5), Gaussian(2.0)),
    RenyiDP(((2.0, 0.5), (3.0, 0.75))),
    ConcentratedDP(0.125),
    SilosDP(2.0, 1e-5, budgets=((1.0, 1e-5), (2.0, 1e-6))),
]


@pytest.mark.parametrize("guarantee", GUARANTEES, ids=lambda one: one.short)
def test_stored_guarantees_are_equal_and_contain_no_sentence(guarantee: Guarantee) -> None:
    stored = json.loads(json.dumps(guarantee.to_data()))
    assert Guarantee.from_data(stored) == guarantee
    assert Guarantee.from_data(stored).digest == guarantee.digest
    spelled = json.dumps(stored)
    assert not any(clause in spelled for clause in guarantee.clauses())


def test_the_digest_covers_every_part_of_a_guarantee() -> None:
    one = ApproximateDP(0.5, 1e-5)
    others = [
        replace(one, epsilon=0.6),
        replace(one, delta=1e-6),
        replace(one, participations=2),
        one.with_view(view=View.SHUFFLED),
        one.assuming(ROUND),
        one.assuming(DishonestAtMost(Scope.GROUP, 1)),
        state_drawn_arithmetic(one, DiscreteLaplace(1)),
        state_drawn_arithmetic(one, Gaussian(1.0)),
    ]
    assert len({made.digest for made in (one, *others)}) == len(others) + 1
    assert len({one, *others}) == len(others) + 1


def test_a_guarantee_implies_only_if_its_assumptions_are_implied() -> None:
    earned = state_drawn_arithmetic(
        PureDP(1.0).assuming(ROUND, ReleasedOnlyAbove(Fraction(1))), DiscreteLaplace(1)
    )
    assert earned.implies(earned)
    assert not earned.implies(PureDP(1.0))
    assert not earned.implies(PureDP(1.0).assuming(ROUND))
    assert earned.implies(PureDP(1.0).assuming(ROUND, ReleasedOnlyAbove(Fraction(1))))
    assert earned.implies(PureDP(2.0).assuming(*earned.assumptions, CompleteGroups()))
    stronger = PureDP(1.0).assuming(DishonestAtMost(Scope.ROUND, 0), ReleasedOnlyAbove(Fraction(1)))
    assert earned.implies(stronger)
    more = PureDP(1.0).assuming(DishonestAtMost(Scope.ROUND, 2), ReleasedOnlyAbove(Fraction(1)))
    assert not earned.implies(more)
    wrong = PureDP(1.0).assuming(DishonestAtMost(Scope.GROUP, 1), ReleasedOnlyAbove(Fraction(1)))
    assert not earned.implies(wrong)


@pytest.mark.parametrize(
    "said", [Protects(Secret.ONE_REWARD), PrivateMessages(0.5), LocallyPrivateMessages(2.0)]
)
def test_a_guarantee_about_a_secret_or_given_messages_implies_no_other(said: Assumption) -> None:
    others = Protects(Secret.FITTED_PARAMETER), PrivateMessages(0.4), LocallyPrivateMessages(1.9)
    stated = PureDP(0.5).assuming(said)
    assert stated.implies(PureDP(1.0).assuming(said))
    assert PureDP(0.5).implies(PureDP(1.0).assuming(said))
    for weaker in (PureDP(1.0), *(PureDP(1.0).assuming(one) for one in others)):
        assert not stated.implies(weaker)


def test_a_guarantee_covers_no_more_metrics_than_it_states() -> None:
    one, two, five = (
        PureDP(1.0),
        *(PureDP(1.0).assuming(MetricsPerParticipation(n)) for n in (2, 5)),
    )
    assert [each.metrics for each in (one, two, five)] == [1, 2, 5]
    for place, strong in enumerate((one, two, five)):
        for other, weak in enumerate((one, two, five)):
            assert strong.implies(weak) is (place >= other)
    assert weakest([one, two]) == one
    assert weakest([two, five]) == two
    assert compose([two, five]).metrics == 2


def test_participations_with_a_delta_need_distinct_rounds() -> None:
    """Two of them in one round move its sum twice under one draw: δ is far above the stated one."""
    target = ApproximateDP(1.0, 1e-5, participations=2)
    distribution = calibrate("skellam", 1, target).integer_distribution
    found = checked_target(distribution, 1, target, View.RELEASED_SUM)
    assert DistinctRounds() in found.assumptions
    assert privacy_loss(distribution, 2).delta(1.0) > 20 * target.delta
    assert DistinctRounds() in calibrate("skellam", 1, target).guarantee.assumptions
    assert DistinctRounds() in privacy_of(distribution, delta=1e-5, participations=2).assumptions
    once = ApproximateDP(1.0, 1e-5)
    assert checked_target(distribution, 1, once, View.RELEASED_SUM).assumptions == frozenset()
    pure = PureDP(1.0, participations=2)
    assert checked_target(DiscreteLaplace(2), 1, pure, View.RELEASED_SUM).assumptions == frozenset()
    assert privacy_loss(DiscreteLaplace(2), 2).pure <= 1.0 + 1e-12


def test_the_common_guarantee_of_silos_is_the_largest_of_their_budgets() -> None:
    with pytest.raises(TacitError, match="budget is above"):
        SilosDP(0.1, 1e-6, budgets=((5.0, 1e-6),))
    with pytest.raises(TacitError, match="budget is above"):
        SilosDP(5.0, 1e-6, budgets=((5.0, 1e-5),))
    for budget in ((math.nan, 1e-6), (-1.0, 1e-6), (0.0, 0.0), (1.0, math.nan), (1.0, -1e-6)):
        with pytest.raises(TacitError, match=r"is (nan|-1|0|-1e-06)"):
            SilosDP(5.0, 1e-5, budgets=(budget,))
        with pytest.raises(TacitError, match=r"is (nan|-1|0|-1e-06)"):
            SilosDP(*budget)


def test_arithmetic_is_derived_never_assumed() -> None:
    assert PureDP(1.0).arithmetic is Arithmetic.UNSTATED
    exact = state_drawn_arithmetic(PureDP(1.0), DiscreteLaplace(1))
    assert exact.arithmetic is Arithmetic.EXACT
    assert (
        state_drawn_arithmetic(ApproximateDP(1.0, 1e-6), Gaussian(3.0)).arithmetic
        is Arithmetic.IDEAL
    )
    assert replace(exact, epsilon=0.5).arithmetic is Arithmetic.UNSTATED
    assert exact.assuming(ROUND).arithmetic is Arithmetic.EXACT
    assert PureDP(1.0).assuming(ROUND).arithmetic is Arithmetic.UNSTATED
    assert PureDP(1.0).with_view(view=View.MESSAGE).arithmetic is Arithmetic.UNSTATED
    assert exact.with_view(view=View.MESSAGE).arithmetic is Arithmetic.EXACT
    assert exact.to_approximate(1e-6).arithmetic is Arithmetic.EXACT
    assert compose([exact, PureDP(1.0)]).arithmetic is Arithmetic.UNSTATED
    assert compose([exact, exact]).arithmetic is Arithmetic.EXACT
    with pytest.raises(TypeError):
        PureDP(1.0, arithmetic=Arithmetic.EXACT)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="init=False"):
        replace(PureDP(1.0), arithmetic=Arithmetic.EXACT)
    assert "not stated" in str(PureDP(1.0))
    assert "exactly" not in str(PureDP(1.0))


def test_the_weakest_arithmetic_determines_the_guarantee() -> None:
    kinds = [
        PureDP(1.0),
        state_drawn_arithmetic(PureDP(1.0), Gaussian(1.0)),
        state_drawn_arithmetic(PureDP(1.0), Skellam(1)),
    ]
    for one, other in product(kinds, repeat=2):
        least = one if other.arithmetic.covers(one.arithmetic) else other
        found = weakest([one, other])
        assert found is not None
        assert found.arithmetic is least.arithmetic
        assert compose([one, other]).arithmetic is least.arithmetic
    silos = [state_drawn_arithmetic(ApproximateDP(1.0, 1e-5), Skellam(1)), ApproximateDP(1.0, 1e-5)]
    assert weakest_of_silos(silos).arithmetic is Arithmetic.UNSTATED


def test_achieved_guarantees_keep_the_assumptions_of_the_target() -> None:
    target = PureDP(1.0, view=View.MESSAGE).assuming(ROUND)
    found = achieved_guarantee(DiscreteLaplace(4), 1, target)
    assert (found.epsilon, found.view) == (0.25, View.MESSAGE)
    assert found.assumptions == {ROUND}
    assert found.arithmetic is Arithmetic.EXACT


def test_a_guarantee_states_no_more_participations_than_derived() -> None:
    often = state_drawn_arithmetic(
        PureDP(1.0, participations=3).assuming(ROUND), DiscreteLaplace(1)
    )
    assert for_fewer(often, 3) == often
    fewer = for_fewer(often, 1)
    assert fewer.participations == 1
    assert fewer.assumptions == {ROUND}
    assert fewer.arithmetic is Arithmetic.EXACT
    for strange in (0, 4, 6):
        with pytest.raises(TacitError, match="was derived for 3"):
            for_fewer(often, strange)


def test_external_noise_is_not_called_exact() -> None:
    class Mine(DiscreteLaplace):
        """Drawn as its author likes."""

    Mine.__module__ = "elsewhere.noise"
    assert state_drawn_arithmetic(PureDP(1.0), Mine(1)).arithmetic is Arithmetic.UNSTATED


def test_weaker_arithmetic_does_not_imply_exactness() -> None:
    order = [
        PureDP(1.0),
        state_drawn_arithmetic(PureDP(1.0), Gaussian(1.0)),
        state_drawn_arithmetic(PureDP(1.0), DiscreteLaplace(1)),
    ]
    for place, one in enumerate(order):
        for other in order[: place + 1]:
            assert one.implies(other)
        for other in order[place + 1 :]:
            assert not one.implies(other)


def test_the_weakest_of_several_guarantees_is_implied_by_each() -> None:
    one = ApproximateDP(0.5, 1e-5, participations=3).assuming(ROUND)
    other = ApproximateDP(1.0, 1e-7, participations=2).assuming(CompleteGroups())
    found = weakest([one, other])
    assert found is not None
    assert (found.epsilon, getattr(found, "delta", 0)) == (1.0, 1e-5)
    assert found.participations == 2
    assert found.assumptions == {ROUND, CompleteGroups()}
    assert one.implies(found)
    assert other.implies(found)
    assert weakest([one, None]) is None
    assert weakest([None]) is None
    assert weakest([PureDP(1.0), PureDP(2.0)]) == PureDP(2.0)
    for strange in ([], [one, one.with_view(view=View.SHUFFLED)], [ConcentratedDP(1.0)]):
        with pytest.raises(TacitError):
            weakest(strange)


def test_rounds_of_different_accounting_have_no_weakest_guarantee() -> None:
    """Rényi divergences of different orders, or one and a comparison with Gaussian noise, do not
    add up over the rounds of one participant.
    """
    target = ApproximateDP(1.0, 1e-5, participations=3)
    methods = [
        Accounting(Method.GAUSSIAN, 3),
        Accounting(Method.RENYI, 3, Fraction(8)),
        Accounting(Method.RENYI, 3, Fraction(9)),
    ]
    for one in methods:
        for other in methods:
            pair = [target.assuming(one), replace(target, epsilon=0.5).assuming(other)]
            if one == other:
                assert weakest(pair) == target.assuming(one)
                continue
            with pytest.raises(TacitError, match="by different methods, which do not compose"):
                weakest(pair)
    once = replace(target, participations=1)  # metrics of one round
    assert weakest([once.assuming(methods[0]), once.assuming(methods[1])]) is not None


@pytest.mark.parametrize("way", [Accounting(Method.LOSS, 3), Accounting(Method.RENYI, 3)])
def test_weakest_rejects_composed_losses_of_different_releases(way: Accounting) -> None:
    target = ApproximateDP(1.0, 1e-5, participations=3).assuming(way)
    with pytest.raises(TacitError, match="composing equal releases"):
        weakest([target, replace(target, epsilon=0.5)])
    assert weakest([target, target]) == target
    once = replace(target, participations=1)
    assert weakest([once, replace(once, epsilon=0.5)]) == once


def test_mixed_releases_lose_more_than_equal_ones() -> None:
    """Epsilon is 3.57 at a delta of 0.001, where two of either kind have 2.98 at most."""
    noises = DiscreteLaplace(Fraction(17, 25)), Binomial(12, Fraction(1, 2))
    stated = [privacy_of(noise, 1, 1e-3, participations=2) for noise in noises]
    one, other = (privacy_loss(noise, 1) for noise in noises)
    both = ComposedLoss(((one, 1), (other, 1))).epsilon(1e-3)
    assert both > 1.19 * max(guarantee.epsilon for guarantee in stated)
    with pytest.raises(TacitError, match="composing equal releases"):
        weakest(stated)


def test_converted_guarantees_of_several_participations_name_their_accounting() -> None:
    """Two mixed releases have epsilon 8.21 by their divergences, two alike 7.77 at most."""
    pure = RenyiDP.of(lambda order: PureDP(3.0).renyi(order))
    bell = RenyiDP.of(lambda order: 0.5 * order)
    stated = [one.repeat(2).to_approximate(1e-6) for one in (pure, bell)]
    mixed = compose([pure, bell]).to_approximate(1e-6)
    assert mixed.epsilon > 1.05 * max(one.epsilon for one in stated)
    with pytest.raises(TacitError, match="composing equal releases"):
        weakest(stated)
    added = compose([PureDP(1.0)] * 2)
    converted = compose([ConcentratedDP(0.03)] * 2).to_approximate(1e-6)
    both = RenyiDP.of(lambda order: PureDP(1.0).renyi(order) + 0.03 * order).epsilon_at(1e-6)
    assert both > 1.05 * max(added.epsilon_at(1e-6), converted.epsilon)
    with pytest.raises(TacitError, match="by different methods, which do not compose"):
        weakest([added, converted])
    meter = Odometer(ApproximateDP(5.0, 1e-6))
    meter.spend(PureDP(0.5), times=2)
    with pytest.raises(TacitError, match="by different methods, which do not compose"):
        weakest([added, meter.spent()])
    once = [one.to_approximate(1e-6) for one in (pure, bell)]
    assert weakest(once) is not None


def test_joint_assumptions_keep_the_strongest() -> None:
    ones = [DishonestAtMost(Scope.ROUND, count) for count in (3, 1, 2)]
    assert together(ones) == {ROUND}
    both = together([ROUND], [DishonestAtMost(Scope.GROUP, 1)])
    assert len(both) == 2
    assert PureDP(1.0).assuming(*ones).assumptions == {ROUND}


@pytest.mark.parametrize(
    ("weaker", "stronger"),
    [
        (DishonestAtMost(Scope.ROUND, 10), DishonestAtMost(Scope.ROUND, 2)),
        (ReleasedOnlyAbove(TENTH), ReleasedOnlyAbove(Fraction(1, 2))),
        (HonestServers(1, of=2), HonestServers(2, of=2)),
    ],
)
def test_joint_assumptions_drop_a_weaker_one_listed_first(
    weaker: Assumption, stronger: Assumption
) -> None:
    assert weaker.sort_key() < stronger.sort_key()
    assert together([weaker], [stronger]) == {stronger}


def test_joint_assumptions_keep_one_of_two_equivalent_ones() -> None:
    """Visits anywhere have no batches: two spellings of one assumption are one value."""
    one, other = (VisitsAtMost(batches, 3, Spread.ANYWHERE) for batches in (1, 2))
    assert one == other
    assert together([one, other]) == {one}
    assert PureDP(1.0).assuming(one, other).assumptions == {one}
    assert Assumption.from_dict(one.to_dict() | {"batches": 2}) == one


@given(st.lists(ASSUMPTIONS, max_size=6))
def test_joint_assumptions_are_equivalent_to_all(ones: list[Assumption]) -> None:
    kept = together(ones)
    assert kept <= set(ones)
    assert uncovered(ones, kept) == ()
    assert together(kept) == kept
    assert together(reversed(ones)) == kept


def test_negative_numbers_of_curious_participants_are_rejected() -> None:
    assert ThreatModel(curious=0).honest(8) == 8
    with pytest.raises(TacitError, match="curious is -1"):
        ThreatModel(curious=-1)


@pytest.mark.parametrize("numbers", [(0, 1), (1, 0), (-1, 1)])
def test_fewer_than_one_visit_is_rejected(numbers: tuple[int, int]) -> None:
    with pytest.raises(TacitError, match="must be"):
        VisitsAtMost(*numbers)


def test_budgets_of_silos_are_part_of_implication() -> None:
    wide = SilosDP(2.0, 1e-5, budgets=((1.0, 1e-5), (2.0, 1e-6)))
    for stated, holds in (
        (wide, True),
        (ApproximateDP(2.0, 1e-5), True),
        (SilosDP(2.0, 1e-5), True),
        (SilosDP(2.0, 1e-5, budgets=((1.0, 1e-5), (2.0, 1e-5))), True),
        (SilosDP(2.0, 1e-5, budgets=((0.9, 1e-5), (2.0, 1e-6))), False),
        (SilosDP(2.0, 1e-5, budgets=((1.0, 1e-5), (2.0, 1e-7))), False),
        (SilosDP(2.0, 1e-5, budgets=((2.0, 1e-6), (1.0, 1e-5))), False),
        (SilosDP(2.0, 1e-5, budgets=((1.0, 1e-5),)), False),
    ):
        assert wide.implies(stated) is holds
    everybody = ApproximateDP(2.0, 1e-6)
    assert everybody.implies(SilosDP(2.0, 1e-5, budgets=((2.0, 1e-5), (2.0, 1e-6))))
    assert not everybody.implies(wide)
    assert not wide.implies(wide.assuming(ROUND).with_view(view=View.SILO))
    assert not wide.assuming(ROUND).implies(wide)


def test_silos_without_individual_budgets_are_printed() -> None:
    assert str(SilosDP(2.0, 1e-5)) == str(ApproximateDP(2.0, 1e-5))
    assert "from (1, 1e-06)-DP to (2, 1e-05)-DP" in str(GUARANTEES[-1])


def test_only_assumption_values_are_accepted() -> None:
    with pytest.raises(TacitError, match=r"tacit\.assumptions"):
        PureDP(1.0, assumptions=frozenset({"all are honest"}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "status",
    [Guaranteed(GUARANTEES[2]), KnownPerRound(ApproximateDP(1.0, 1e-5)), NonPrivate()],
    ids=lambda one: type(one).__name__,
)
def test_privacy_status_round_trips(status: Any) -> None:
    assert status_from_data(json.loads(json.dumps(status_to_data(status)))) == status


def test_invalid_privacy_status_is_rejected() -> None:
    for data in ({}, {"status": "private"}, {"status": "none: the secret is out"}):
        with pytest.raises(TacitError):
            status_from_data(data)
    assert status_of(None) == NonPrivate()
    assert status_of(PureDP(1.0)) == Guaranteed(PureDP(1.0))


@given(ASSUMPTIONS)
def test_assumptions_are_rendered_as_plain_sentences(one: Assumption) -> None:
    said = one.text()
    assert said == said.strip()
    assert not said.endswith(".")
    assert "whoever" not in said


def test_an_external_assumption_implies_only_its_equal() -> None:
    """Found: a class whose `implies` is always true removed every needed assumption."""

    class Fine(CompleteGroups):
        def implies(self, other: Assumption) -> bool:  # noqa: ARG002
            return True

    needed = DishonestAtMost(Scope.ROUND, 1)
    assert uncovered([needed], [Fine()]) == (needed,)
    assert together([needed], [Fine()]) == {needed, Fine()}
    assert uncovered([SemiHonestServer()], [Fine()]) == (SemiHonestServer(),), "no fields either"


def test_external_equality_cannot_imply_an_assumption() -> None:
    """Found: a class whose `__eq__` is always true covered every needed assumption."""

    class Equal(CompleteGroups):
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 0

    needed = DishonestAtMost(Scope.ROUND, 1)
    assert uncovered([needed], [Equal()]) == (needed,)
    assert len(together([needed], [Equal()])) == 2
    assert not uncovered([Equal()], [Equal()])


def test_an_external_assumption_is_implied_only_by_its_equal() -> None:
    """Found: a subclass that needs more was covered by any value of the class that it extends."""

    @dataclass(frozen=True)
    class Stricter(DishonestAtMost):
        colluding: int = 0

    needed = Stricter(Scope.ROUND, 5, colluding=0)
    assert uncovered([needed], [DishonestAtMost(Scope.ROUND, 1)]) == (needed,)
    assert uncovered([needed], [Stricter(Scope.ROUND, 5, colluding=1)]) == (needed,)
    assert not uncovered([needed], [Stricter(Scope.ROUND, 5, colluding=0)])
    assert len(together([needed], [DishonestAtMost(Scope.ROUND, 1)])) == 2


def test_an_external_guarantee_is_rejected_and_hides_no_builtin_one() -> None:
    """Found: a class whose `implies` is always true was printed as exact, and a class without a
    kind of its own was read instead of tacit's.
    """

    class Mine(PureDP):
        def implies(self, other: Guarantee) -> bool:  # noqa: ARG002
            return True

    with pytest.raises(TacitError, match=r"guarantee is a .*Mine; its class must be one of tacit"):
        Mine(100.0)
    assert type(Guarantee.from_data(PureDP(1.0).to_data())) is PureDP


@pytest.mark.parametrize("fraction", ["2/3", "1/7", "99999/100000", "123456/1000000"])
def test_fractions_of_a_batch_are_rounded_conservatively(fraction: str) -> None:
    """Found: "at least 66.66% arrive" where two thirds have to."""
    needed = Fraction(fraction)
    arrive = re.search(r"at least ([\d.]+)%", ReleasedOnlyAbove(needed).text())
    curious = re.search(r"at most ([\d.]+)%", DishonestAtMost(Scope.ROUND, 0, needed).text())
    assert arrive is not None
    assert curious is not None
    assert needed <= Fraction(arrive.group(1)) / 100 <= needed * Fraction(1002, 1000)
    assert needed * Fraction(998, 1000) <= Fraction(curious.group(1)) / 100 <= needed


CLAIMS = (
    OwnRecords(25, 0.5, 1e-6),
    TowardsOutsiders(0.69, 1e-6),
    DerivedBy(Derivation.EXACT_JOINT, 4),
    AskedFor(1.0),
)
WARNINGS = (Declared(), Poisoned(TENTH), ParticipantsFrom(Source.ROW))


def remarks(guarantee: Guarantee) -> set[Assumption]:
    return {one for one in guarantee.assumptions if isinstance(one, Remark)}


def test_claims_about_one_release_do_not_extend_to_several() -> None:
    """Found: twice (1, 0)-DP said (0.69, 1e-6) towards outsiders, the number of one release."""
    pure = PureDP(1.0).assuming(*CLAIMS, *WARNINGS, RangeProofs())
    zero = ConcentratedDP(0.5).assuming(*CLAIMS, *WARNINGS, RangeProofs())
    curve = RenyiDP(((2.0, 0.5),)).assuming(*CLAIMS, *WARNINGS, RangeProofs())
    meter = Odometer(ApproximateDP(9.0, 1e-5))
    meter.spend(pure)
    for several in (
        compose([pure, pure]),
        compose([pure, PureDP(1.0).assuming(*WARNINGS, RangeProofs())]),
        pure.group(2),
        zero.group(2),
        curve.repeat(2),
        advanced_composition(pure, 2, 1e-6),
        meter.spent(),
    ):
        assert remarks(several) == {*WARNINGS, RangeProofs()}
    both = weakest([pure, pure])
    assert both is not None
    for same in (compose([pure]), pure.group(1), curve.repeat(1), both):
        assert remarks(same) == {*CLAIMS, *WARNINGS, RangeProofs()}


def test_the_weakest_guarantee_claims_what_all_of_them_claim() -> None:
    both = PureDP(1.0).assuming(*CLAIMS, *WARNINGS)
    other = PureDP(0.5).assuming(CLAIMS[3], TowardsOutsiders(0.3, 1e-6), RangeProofs())
    for pair in ([both, other], [other, both]):
        found = weakest(pair)
        assert found is not None
        assert remarks(found) == {CLAIMS[3], *WARNINGS}


@pytest.mark.parametrize(
    ("epsilon", "delta", "text"),
    [
        (1.0, 1e-6, "(1, 1e-06)-DP"),
        (1.0000004, 0.0, "(1.0000004, 0)-DP"),
        (1 / 3, 1.23456789e-6, "(0.3333333333333333, 1.23456789e-06)-DP"),
    ],
)
def test_a_wanted_guarantee_is_printed_without_rounding(
    epsilon: float, delta: float, text: str
) -> None:
    """Found: six digits of it were printed, so that less than what was asked for could be read."""
    assert AskedFor(epsilon, delta).text() == f"asked for: {text}"
