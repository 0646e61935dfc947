"""The threat model of every protocol: the view, the exact set of assumptions, the arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import pytest
from tests.protocols.examples import CASES
from tests.protocols.overstated import overstated

from tacit.assumptions import (
    TRUST_OF_VIEW,
    Assumption,
    BoundedAdversary,
    CompleteGroups,
    DishonestAtMost,
    DistinctRounds,
    HonestDevice,
    HonestServers,
    JointPrivacy,
    MetricsPerParticipation,
    NonColludingShuffler,
    PinnedKeys,
    RangeProofs,
    ReleasedOnlyAbove,
    Scope,
    SemiHonestServer,
    Spread,
    TowardsOutsiders,
    TrustedServer,
    TrustedSilo,
    VisitsAtMost,
)
from tacit.noise import DiscreteLaplace
from tacit.privacy import ApproximateDP, Arithmetic, Guarantee, PureDP, ThreatModel, View
from tacit.protocols import factories
from tacit.protocols.contract import Protocol
from tacit.protocols.factorization import factorize
from tacit.protocols.integer_vectors import SecureVector, ShuffledVector
from tacit.protocols.joint import JointSums, for_each
from tacit.protocols.l2_sums import CentralBall, LocalBall, SecureBall, ShuffledBall
from tacit.protocols.prefix_delivery import Noise, Presence
from tacit.protocols.prefix_sums import PrefixSums
from tacit.protocols.pure_shuffle import PureShuffle
from tacit.protocols.shuffled_bits import ShuffledBits, shuffle_noise
from tacit.protocols.split_and_mix import SplitAndMix
from tacit.protocols.sums import SecureSum
from tacit.trust import TrustModel

TARGET = ApproximateDP(1.0, 1e-5)


@dataclass(frozen=True)
class Stated:
    """What a guarantee must state, no more and no less."""

    view: View
    assumptions: frozenset[Assumption] = frozenset()
    arithmetic: Arithmetic = Arithmetic.EXACT


def stated(view: View, *assumptions: Assumption) -> Stated:
    return Stated(view, frozenset(assumptions))


ALL = ReleasedOnlyAbove(Fraction(1))
THREE_QUARTERS = ReleasedOnlyAbove(Fraction(3, 4))
ONE_OF_A_ROUND = DishonestAtMost(Scope.ROUND, 1)
ONE_OF_A_GROUP = DishonestAtMost(Scope.GROUP, 1)
NO_SILO = DishonestAtMost(Scope.SILOS, 0)
SUMMED = stated(View.RELEASED_SUM, ONE_OF_A_ROUND, ALL)
SHUFFLED = stated(View.SHUFFLED, ONE_OF_A_ROUND, ALL)
CENTRAL = stated(View.SERVER_OUTPUT)
LOCAL = stated(View.MESSAGE)
TABLE: dict[str, Stated | None] = {
    "secagg-polya": SUMMED,
    "secagg-polya-dropout": stated(View.RELEASED_SUM, ONE_OF_A_ROUND, THREE_QUARTERS),
    "secagg-skellam": SUMMED,
    "secagg-gaussian": SUMMED,
    "central": CENTRAL,
    "two-servers": stated(View.OTHER_SERVER, PinnedKeys(), BoundedAdversary()),
    "verified": stated(View.OTHER_SERVER, PinnedKeys(), BoundedAdversary(), RangeProofs()),
    "local": LOCAL,
    "shuffle-binary": SHUFFLED,
    "shuffle-levels": SHUFFLED,
    "shuffle-dropout": stated(View.SHUFFLED, ONE_OF_A_ROUND, THREE_QUARTERS),
    "split-and-mix": SHUFFLED,
    "response": LOCAL,
    "pure-shuffle": stated(View.SHUFFLED, ONE_OF_A_GROUP, CompleteGroups()),
    "exact": None,
    "central-laplace": Stated(View.SERVER_OUTPUT, arithmetic=Arithmetic.IDEAL),
    "vector-plain": None,
    "vector-central": CENTRAL,
    "vector-local": LOCAL,
    "vector-shuffle": SHUFFLED,
    "vector-secagg": SUMMED,
    "vector-secagg-pure": SUMMED,
    "ball-central": CENTRAL,
    "ball-local": LOCAL,
    "ball-secagg": SUMMED,
    "ball-secagg-gaussian": SUMMED,
    "ball-shuffle": SHUFFLED,
    "statistic-exact": None,
    "statistic-central-table": CENTRAL,
    "statistic-two-table": stated(View.OTHER_SERVER, PinnedKeys(), BoundedAdversary()),
    "statistic-secagg-table": SUMMED,
    "statistic-shuffle-table": SHUFFLED,
    "statistic-shuffle-bits": SHUFFLED,
    "statistic-local-table": LOCAL,
    "statistic-two-moments": stated(View.OTHER_SERVER, PinnedKeys(), BoundedAdversary()),
    "statistic-secagg-moments": SUMMED,
    "separate-sums": stated(View.RELEASED_SUM, ONE_OF_A_GROUP, ALL),
    "joint-sums": stated(
        View.OTHER_SERVER, PinnedKeys(), BoundedAdversary(), MetricsPerParticipation(2)
    ),
    "prefix-sums": stated(View.RELEASED_SUM, TrustedSilo(), NO_SILO),
    "central-prefix-sums": stated(View.SERVER_OUTPUT, TrustedSilo(), JointPrivacy()),
    "shuffled-prefix-sums": stated(View.SHUFFLED, TrustedSilo(), NO_SILO),
}
TRUSTED: dict[View, Assumption] = {
    View.RELEASED_SUM: SemiHonestServer(),
    View.SERVER_OUTPUT: TrustedServer(),
    View.MESSAGE: HonestDevice(),
    View.SHUFFLED: NonColludingShuffler(),
    View.SILO: TrustedSilo(),
    View.OTHER_SERVER: HonestServers(1, of=2),
}


def test_every_protocol_is_in_the_table() -> None:
    assert set(TABLE) == set(CASES)


def test_every_view_states_its_trust_assumption() -> None:
    assert TRUST_OF_VIEW == TRUSTED
    assert set(TRUSTED) == set(View)


@pytest.mark.parametrize("name", TABLE)
def test_a_protocol_states_exactly_its_threat_model(name: str) -> None:
    expected, found = TABLE[name], CASES[name].build().guarantee
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert found.view is expected.view
    outside = {one for one in found.assumptions if isinstance(one, TowardsOutsiders)}
    assert len(outside) == name.startswith("statistic-two")  # numbers: test_statistic_sums
    assert found.assumptions - outside == expected.assumptions
    assert found.arithmetic is expected.arithmetic
    assert TRUST_OF_VIEW[found.view] == TRUSTED[found.view]
    clauses = found.clauses()
    assert TRUSTED[found.view].text() in clauses
    assert found.arithmetic.text() in clauses
    assert all(one.text() in clauses for one in expected.assumptions)


@pytest.mark.parametrize("paper", [True, False])
def test_shuffled_vectors_state_the_threat_model_in_both_settings(paper: bool) -> None:
    found = ShuffledVector(100, 3, 1.0, ApproximateDP(10.0, 0.25), paper=paper).guarantee
    assert found is not None
    assert Stated(found.view, found.assumptions, found.arithmetic) == SHUFFLED


@pytest.mark.parametrize("name", [name for name, one in TABLE.items() if one is not None])
def test_a_protocol_implies_no_stronger_statement(name: str) -> None:
    found = CASES[name].build().guarantee
    assert found is not None
    assert found.implies(found)
    assert Guarantee.from_data(found.to_data()) == found
    for change, more in overstated(found).items():
        assert not found.implies(more), change
        assert more.digest != found.digest, change


@pytest.mark.parametrize(("dropout", "corrupt"), [(0.25, 0.125), (0.0, 0.1), (Fraction(1, 3), 0)])
def test_shared_noise_states_dropouts_and_corrupted_participants(
    dropout: float, corrupt: float
) -> None:
    part = SecureSum(
        48,
        1,
        DiscreteLaplace(1),
        PureDP(1.0),
        threat=ThreatModel(dropout=dropout, corrupt=corrupt, curious=1),
    )
    bits, bias = shuffle_noise(20, 1, TARGET)
    shuffled = ShuffledBits(
        48, 1, bits, bias, TARGET, threat=ThreatModel(dropout=dropout, corrupt=corrupt)
    )
    lost = Fraction(str(dropout)) if isinstance(dropout, float) else Fraction(dropout)
    expected = {
        DishonestAtMost(Scope.ROUND, 1, Fraction(str(corrupt))),
        ReleasedOnlyAbove(1 - lost),
    }
    for protocol in (part, SplitAndMix(part), shuffled):
        assert protocol.guarantee is not None
        assert protocol.guarantee.assumptions == expected


@pytest.mark.parametrize(
    "make",
    [
        lambda target: ShuffledVector(6, 1, 1.0, target, precision=2),
        lambda target: SecureVector(6, 3, 1.0, target, precision=5),
        lambda target: CentralBall(6, 3, 2.0, target),
        lambda target: LocalBall(6, 3, 2.0, target),
        lambda target: SecureBall(6, 3, 2.0, target),
        lambda target: ShuffledBall(30, 3, 2.0, target),
    ],
)
def test_vectors_compose_over_participations_in_distinct_rounds(
    make: Callable[[ApproximateDP], Protocol],
) -> None:
    """Two reports of a participant in one round would move its sum twice under one draw."""
    alone, twice = (make(ApproximateDP(9.0, 1e-3, participations=n)).guarantee for n in (1, 2))
    assert alone is not None
    assert twice is not None
    assert DistinctRounds() not in alone.assumptions
    assert twice.assumptions == alone.assumptions | {DistinctRounds()}


@pytest.mark.parametrize("curious", [0, 1, 2])
def test_pure_shuffle_counts_curious_participants_of_a_group(curious: int) -> None:
    found = PureShuffle(40, 1.0, curious=curious).guarantee
    assert found is not None
    assert found.assumptions == {DishonestAtMost(Scope.GROUP, curious), CompleteGroups()}


@pytest.mark.parametrize("metrics", [2, 3])
def test_joint_sums_add_their_metrics_to_the_assumptions_of_a_part(metrics: int) -> None:
    part = factories.polya_tight(40, for_each(PureDP(1.0), metrics), True, dropout=0.25)
    found = JointSums(part, metrics).guarantee
    assert found.assumptions == {
        ONE_OF_A_ROUND,
        THREE_QUARTERS,
        MetricsPerParticipation(metrics),
    }
    assert found.arithmetic is Arithmetic.EXACT
    assert found.participations == 1


@pytest.mark.parametrize(
    ("presence", "visits"),
    [
        (Presence(), None),
        (Presence(batches=2, visits=3), VisitsAtMost(2, 3)),
        (Presence(visits=2), VisitsAtMost(1, 2)),
        (Presence(visits=4, anywhere=True), VisitsAtMost(1, 4, Spread.ANYWHERE)),
    ],
)
@pytest.mark.parametrize(
    ("trust", "view", "noise", "corrupt"),
    [
        (TrustModel.SECURE_AGGREGATION, View.RELEASED_SUM, "skellam", 0),
        (TrustModel.SECURE_AGGREGATION, View.RELEASED_SUM, "skellam", 2),
        (TrustModel.SHUFFLER, View.SHUFFLED, "binomial", 1),
        (TrustModel.CENTRAL, View.SERVER_OUTPUT, "skellam", 0),
        (TrustModel.SILO, View.SILO, "discrete-gaussian", 0),
        (TrustModel.SILO, View.SILO, "gaussian", 0),
    ],
)
def test_prefix_sums_state_silos_and_visits(
    trust: TrustModel,
    view: View,
    noise: Noise,
    corrupt: int,
    presence: Presence,
    visits: VisitsAtMost | None,
) -> None:
    sums = PrefixSums(
        factorize("tree", 2),
        5,
        2,
        1.0,
        trust,
        noise,
        40.0,
        1 if noise == "gaussian" else 64,
        people=8,
        corrupt=corrupt,
        presence=presence,
    )
    expected: set[Assumption] = set() if visits is None else {visits}
    if trust.shares_noise:
        expected |= {TrustedSilo(), DishonestAtMost(Scope.SILOS, corrupt)}
    if trust is TrustModel.CENTRAL:
        expected |= {TrustedSilo(), JointPrivacy()}
    found = sums.guarantee(0.05)
    assert found.assumptions == sums.assumptions == expected
    assert found.view is view
    ideal = noise == "gaussian"
    assert found.arithmetic is (Arithmetic.IDEAL if ideal else Arithmetic.EXACT)
    assert found.participations == presence.participations
