"""Mechanisms: stored and restored they make the same protocols under the same guarantee, and a
stored guarantee that states more than a round gives is rejected.
"""

from __future__ import annotations

import json
from copy import copy
from dataclasses import asdict, fields, replace
from fractions import Fraction
from functools import partial, wraps
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.protocols.overstated import overstated, with_assumptions
from tests.tables import each_row

from tacit.algorithms import ArmsProblem, SilosProblem
from tacit.algorithms.registry import algorithms, lookup
from tacit.assumptions import (
    AskedFor,
    Assumption,
    CompleteGroups,
    Declared,
    Derivation,
    DerivedBy,
    DishonestAtMost,
    MetricsPerParticipation,
    OwnRecords,
    PrivateMessages,
    Protects,
    RangeProofs,
    ReleasedOnlyAbove,
    Scope,
    Secret,
    TowardsOutsiders,
    VisitsAtMost,
)
from tacit.bandits import ForgettingElimination
from tacit.bandits.contextual.federated import FederatedLinUCB, SiloRules
from tacit.errors import TacitError
from tacit.experiment import Experiment
from tacit.names import name_of
from tacit.noise import DiscreteLaplace
from tacit.privacy import (
    ApproximateDP,
    Arithmetic,
    ConcentratedDP,
    Guarantee,
    Guaranteed,
    KnownPerRound,
    Neighbours,
    NonPrivate,
    PrivacyStatus,
    PureDP,
    RenyiDP,
    ThreatModel,
    View,
    state_drawn_arithmetic,
)
from tacit.privacy.guarantees import state_arithmetic
from tacit.privacy.silos import SilosDP
from tacit.privacy.status import status_to_data
from tacit.protocols import factories
from tacit.protocols.contract import Protocol, SumProtocol
from tacit.protocols.factorization import factorize
from tacit.protocols.integer_vectors import SecureVector
from tacit.protocols.joint import JointSums, for_each
from tacit.protocols.mechanism import (
    Mechanism,
    PerRound,
    Releases,
    _is_unmodified,
    falls_short,
    from_outside,
    plain,
    rich,
)
from tacit.protocols.prefix_delivery import Presence
from tacit.protocols.prefix_noise import SiloStream, calibrated
from tacit.protocols.prefix_sums import PrefixSums
from tacit.protocols.randomized_bits import RandomizedBits
from tacit.protocols.sums import Central, TwoServers
from tacit.simulation.study import guarantee_to
from tacit.trust import TrustModel
from tacit.types import Aggregate, Arm, Design, Round

SILO, SHUFFLER = TrustModel.SILO, TrustModel.SHUFFLER
SECURE = TrustModel.SECURE_AGGREGATION
TARGET = ApproximateDP(1.0, 1e-5)
ROUND = ThreatModel().assumptions()
GROUP = (DishonestAtMost(Scope.GROUP, 1), ReleasedOnlyAbove(Fraction(1)))
VECTOR = {
    "trust": "secure-aggregation",
    "bound": 1.0,
    "target": TARGET,
    "noise": "skellam",
    "client_std": 0.1,
}
ARM = Round(3, 50, Arm(1))
WATCHED = Round(0, 50, Design((4, 2, 9), (10, 20, 30), 60.0))
EACH = Round(0, 60, Design((4, 2, 9), (10, 20, 30), 60.0, each=True))
MECHANISMS: dict[str, tuple[PerRound, Round]] = {
    "arms": (
        PerRound(
            factories.polya_tight,
            {"target": PureDP(1.0), "binary": True, "dropout": 0.2},
            Guaranteed(
                PureDP(1.0).assuming(*ThreatModel(dropout=0.2).assumptions(), CompleteGroups())
            ),
        ),
        ARM,
    ),
    "arms-guarantee": (
        PerRound(
            factories.shuffled_tight,
            {"target": TARGET, "binary": True, "dropout": 0.0},
            Guaranteed(TARGET.with_view(view=View.SHUFFLED).assuming(*ROUND)),
        ),
        ARM,
    ),
    "known-per-round": (
        PerRound(
            factories.polya_paper,
            {"target": PureDP(1.0), "failure_probability": 0.1},
            KnownPerRound(PureDP(1.0)),
        ),
        ARM,
    ),
    "non-private": (PerRound(factories.exact, {"binary": True}), ARM),
    "design": (PerRound(factories.vector_of, VECTOR, Guaranteed(TARGET.assuming(*ROUND))), WATCHED),
    "design-each": (PerRound(factories.sums_of, VECTOR, Guaranteed(TARGET.assuming(*GROUP))), EACH),
}


def through_json(mechanism: Mechanism) -> Mechanism:
    return Mechanism.from_dict(json.loads(json.dumps(mechanism.to_dict(), allow_nan=False)))


def unchecked(mechanism: PerRound, **changes: Any) -> PerRound:
    """A copy with other fields, without the checks of the constructor: only `open` is left."""
    made = copy(mechanism)
    for name, value in changes.items():
        object.__setattr__(made, name, value)
    return made


def described(protocol: Protocol) -> dict[str, Any]:
    """Everything that describes a round to its participants and servers."""
    numbers = ("participants", "coordinates", "minimum", "bits_per_participant", "guarantee")
    more = ("precision", "modulus", "share", "distribution", "noise_bits", "bias")
    return {
        "kind": type(protocol),
        "guarantee_id": protocol.guarantee_id,
        **{name: getattr(protocol, name) for name in numbers},
        **{name: getattr(protocol, name, None) for name in more},
    }


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_stored_mechanism_gives_the_same_protocol_and_guarantee(name: str) -> None:
    mechanism, round_ = MECHANISMS[name]
    copy = through_json(mechanism)
    assert copy == mechanism
    assert (copy.privacy, copy.guarantee) == (mechanism.privacy, mechanism.guarantee)
    assert copy.text() == mechanism.text()
    assert copy.to_dict() == mechanism.to_dict()
    ours, theirs = mechanism.open(round_), copy.open(round_)
    assert described(ours) == described(theirs)
    assert ours.participants == round_.participants
    assert ours.coordinates == round_.assignment.coordinates


@pytest.mark.parametrize(
    "guarantee",
    [
        PureDP(0.5),
        ApproximateDP(1.0, 1e-7, view=View.SHUFFLED, participations=3).assuming(*GROUP),
        state_arithmetic(PureDP(Fraction(1, 3)).assuming(*ROUND), Arithmetic.IDEAL),  # type: ignore[arg-type]
        ConcentratedDP(0.125),
        RenyiDP.of(lambda order: order / 8, (2, 4, 8)),
    ],
    ids=["pure", "approximate", "ideal", "concentrated", "renyi"],
)
def test_guarantees_are_stored_completely(guarantee: Any) -> None:
    restored = rich(json.loads(json.dumps(plain(guarantee))))
    assert restored == guarantee
    assert restored.assumptions == guarantee.assumptions
    assert restored.arithmetic is guarantee.arithmetic
    assert restored.digest == guarantee.digest


def a_foreign_recipe(participants: int, epsilon: float) -> Protocol:
    return factories.continuous_laplace(participants, PureDP(epsilon))


def test_a_loaded_external_factory_is_stored_by_name() -> None:
    earned = a_foreign_recipe(1, 1.0).guarantee
    assert earned is not None
    mechanism = PerRound(a_foreign_recipe, {"epsilon": 1.0}, Guaranteed(earned))
    assert through_json(mechanism) == mechanism
    stored = {**mechanism.to_dict(), "make": "elsewhere:a_foreign_recipe"}
    with pytest.raises(TacitError, match="import the module that defines it"):
        Mechanism.from_dict(stored)


def test_functions_without_an_importable_name_are_rejected_before_storing() -> None:
    def inner(participants: int) -> Protocol:
        return factories.exact(participants, True)

    with pytest.raises(TacitError, match="cannot be stored by name: move it to the top"):
        PerRound(inner).to_dict()
    unnamed = (lambda users: factories.exact(users, True), partial(factories.exact, binary=True))
    for make in unnamed:
        with pytest.raises(TacitError, match="no return annotation of a Protocol"):
            PerRound(make).to_dict()


@each_row(
    "make",
    [
        "os:system",  # loaded, callable, and not a recipe
        "subprocess:run",
        "builtins:eval",
        "tacit.experiment:save",
        "tacit.protocols.mechanism:PerRound",
        "a_package_that_is_not_loaded:make",
        "tacit.protocols.factories:nothing_of_this_name",
        "tacit.no_such_module:make",
        "tacit.protocols.factories:CACHE",
    ],
)
def test_a_file_cannot_name_a_function_that_is_no_factory(make: str) -> None:
    stored = {**MECHANISMS["non-private"][0].to_dict(), "make": make}
    with pytest.raises(
        TacitError, match=r"annotation of a Protocol|not known here as|this version of tacit has no"
    ):
        Mechanism.from_dict(stored)


@pytest.mark.parametrize(
    "kind", ["tacit.errors:TacitError", "os:system", "tacit.protocols.mechanism:Nothing", "x:y"]
)
def test_a_file_cannot_name_a_class_that_is_no_mechanism(kind: str) -> None:
    stored = {**MECHANISMS["non-private"][0].to_dict(), "mechanism": kind}
    with pytest.raises(TacitError, match=r"is not known here as Mechanism|no 'tacit"):
        Mechanism.from_dict(stored)


def releases(kind: str = "tree") -> Releases:
    shape = factorize(kind, 4)
    sums = calibrated(
        SiloStream(shape, 3, 2, 1.5, people=4), SECURE, "skellam", ApproximateDP(2.0, 0.05)
    )
    return Releases(sums, Guaranteed(sums.guarantee(0.05)))


@pytest.mark.parametrize("kind", ["tree", "square-root", "prefix"])
def test_stored_releases_continue(kind: str) -> None:
    """Two steps, written down, and the same third step from both: what was released and what
    simulated silos hold are part of it.
    """
    mechanism, rng = releases(kind), np.random.default_rng(2)
    for number in range(2):
        mechanism.open(Round(number, 3, Arm(0))).simulate(np.array([1.0, number]), rng)
    copy = through_json(mechanism)
    assert isinstance(copy, Releases)
    assert (copy.privacy, copy.guarantee) == (mechanism.privacy, mechanism.guarantee)
    assert copy.text() == mechanism.text()
    assert copy.to_dict() == mechanism.to_dict()
    state = rng.bit_generator.state
    third = [mechanism.open(Round(2, 3, Arm(0))), copy.open(Round(2, 3, Arm(0)))]
    assert described(third[0]) == described(third[1])
    made = []
    for protocol in third:
        rng.bit_generator.state = state
        made.append(protocol.simulate(np.array([0.5, 0.25]), rng))
    np.testing.assert_array_equal(made[0].total, made[1].total)
    assert mechanism.guarantee is not None
    assert made[0].guarantee_id == made[1].guarantee_id == mechanism.guarantee.digest


def test_stored_releases_below_their_guarantee_are_rejected() -> None:
    about, often = (factorize("tree", 4), 3, 2, 1.5), Presence(batches=2, visits=2)
    target = ApproximateDP(2.0, 0.05)
    sums = calibrated(SiloStream(*about, people=4), SECURE, "skellam", target, presence=often)
    made = Releases(sums, Guaranteed(sums.guarantee(0.05)))
    restored = through_json(made)
    assert isinstance(restored, Releases)
    assert restored.sums.presence == often
    data = json.loads(json.dumps(made.to_dict()))
    for change in (
        {"sigma": sums.sigma / 2},
        {"presence": asdict(Presence(batches=2, visits=3))},
        {"trust": "none", "noise": "none", "sigma": 0.0},
    ):
        with pytest.raises(TacitError, match="do not give"):
            Mechanism.from_dict({**data, "sums": {**data["sums"], **change}})
    assert made.guarantee is not None
    assert VisitsAtMost(2, 2) in made.guarantee.assumptions
    statements = overstated(made.guarantee)
    assert {"visits-at-most: visits-raised", "dishonest-at-most: count-raised"} <= set(statements)
    for name, more in statements.items():
        with pytest.raises(TacitError, match="do not give"):
            Mechanism.from_dict({**data, "privacy": status_to_data(Guaranteed(more))})
        with pytest.raises(TacitError, match="do not give"):
            Releases(sums, Guaranteed(more))
        assert not made.guarantee.implies(more), name


@pytest.mark.parametrize(
    ("trust", "noise"), [(SILO, "gaussian"), (SILO, "discrete-gaussian"), (SHUFFLER, "gaussian")]
)
def test_stored_releases_that_overstate_a_silos_guarantee_are_rejected(
    trust: TrustModel, noise: Any
) -> None:
    """Continuous noise that is called exact among them."""
    about, target = (factorize("tree", 4), 3, 2, 1.5), ApproximateDP(2.0, 0.05)
    sums = replace(calibrated(SiloStream(*about, people=4), SILO, noise, target), trust=trust)
    made = Releases(sums, Guaranteed(sums.guarantee(0.05)))
    assert made.guarantee is not None
    data = made.to_dict()
    changed = overstated(made.guarantee)
    assert ("arithmetic raised" in changed) == (noise == "gaussian")
    if trust is SHUFFLER:  # amplification is not recomputed, only refuted
        changed = {name: more for name, more in changed.items() if name not in ("epsilon", "delta")}
    for more in changed.values():
        with pytest.raises(TacitError, match="do not give"):
            Mechanism.from_dict({**data, "privacy": status_to_data(Guaranteed(more))})


def test_releases_state_one_guarantee_for_all_steps() -> None:
    sums = releases().sums
    with pytest.raises(TacitError, match="accounted for together"):
        Releases(sums, KnownPerRound(ApproximateDP(2.0, 0.05)))
    assert Releases(sums).privacy == NonPrivate()


@pytest.mark.parametrize(
    "stated",
    [
        {"participations": 500},
        {"view": View.MESSAGE},
        {"neighbours": Neighbours.ADD_OR_REMOVE_ONE},
        {"assumptions": frozenset()},
        {"assumptions": frozenset({DishonestAtMost(Scope.SILOS, 2)})},
        {"assumptions": frozenset({DishonestAtMost(Scope.ROUND, 1)})},
        {"assumptions": frozenset({DishonestAtMost(Scope.SILOS, 1, Fraction(1, 10))})},
    ],
)
def test_releases_state_no_more_than_their_sums_achieve(stated: dict[str, Any]) -> None:
    about, target = (factorize("tree", 4), 3, 2, 1.5), ApproximateDP(2.0, 0.05)
    sums = calibrated(SiloStream(*about, people=4), SECURE, "skellam", target, corrupt=1)
    assert Releases(sums, Guaranteed(sums.guarantee(0.05))).guarantee == sums.guarantee(0.05)
    with pytest.raises(TacitError, match="do not give"):
        Releases(sums, Guaranteed(replace(sums.guarantee(0.05), **stated)))


def test_releases_reject_unachieved_headlines_and_amplification() -> None:
    about, target = (factorize("tree", 4), 3, 2, 1.5), ApproximateDP(2.0, 0.05)
    sums = calibrated(SiloStream(*about, people=4), SILO, "gaussian", target)
    own = sums.guarantee(0.05)
    with pytest.raises(TacitError, match="do not give"):
        Releases(sums, Guaranteed(PureDP(2.0, **own.shared_fields)))
    with pytest.raises(TacitError, match="budget is above"):
        SilosDP(1e-9, 1e-9, budgets=((own.epsilon, own.delta),) * 3, **own.shared_fields)
    mixed = replace(sums, trust=SHUFFLER)
    assert Releases(mixed, Guaranteed(mixed.guarantee(0.05))).guarantee is not None
    with pytest.raises(TacitError, match="do not give"):  # the sum of all messages tells more
        Releases(mixed, Guaranteed(replace(mixed.guarantee(0.05), epsilon=0.1)))


def test_a_copy_of_releases_is_independent() -> None:
    mechanism = releases()
    copy = through_json(mechanism)
    rng = np.random.default_rng(0)
    mechanism.open(Round(0, 3, Arm(0))).simulate(np.zeros(2), rng)
    assert isinstance(copy, Releases)
    assert copy.released == {}
    assert copy.held == {}


@pytest.mark.parametrize("name", algorithms())
def test_the_mechanism_of_every_named_algorithm_round_trips(name: str) -> None:
    entry = lookup(name)
    tiny = {"epsilon": 0.01} if name == "sdp-fedlinucb" else {}  # it is proven for no more
    problem: Any = entry.make_problem(small(entry.problem) | tiny)
    start = problem.start(0, None)
    mechanism = entry.build(problem.for_environment(start.world, 0)).mechanism
    assert isinstance(mechanism, Mechanism)
    assert through_json(mechanism).to_dict() == mechanism.to_dict()


def small(problem: type[Any]) -> dict[str, Any]:
    if problem is SilosProblem:
        return {"silos": 20, "dimension": 2, "actions": 4, "sync": 5, "horizon": 20}
    return {"horizon": 2000}


def test_an_experiment_rejects_a_mechanism_whose_guarantee_was_changed() -> None:
    """Also to a weaker one, which a round would give."""
    problem = ArmsProblem.of(horizon=2000)
    stored = lookup("dist-dp-se").build(problem).to_dict()
    experiment = Experiment.from_dict(stored)
    found = experiment.guarantee
    assert isinstance(found, PureDP)
    assert stored["guarantee_id"] == found.digest
    weaker: list[PrivacyStatus] = [
        KnownPerRound(found),
        Guaranteed(found.assuming(CompleteGroups())),
        Guaranteed(state_arithmetic(found, Arithmetic.UNSTATED)),
        Guaranteed(replace(found, epsilon=found.epsilon * 2)),
    ]
    for status in weaker:
        changed = stored["mechanism"] | {"privacy": status_to_data(status)}
        assert Mechanism.from_dict(changed).privacy == status
        with pytest.raises(TacitError, match="the file was changed"):
            Experiment.from_dict(stored | {"mechanism": changed})


def test_an_experiment_rejects_a_changed_per_round_target() -> None:
    asked: Any = lookup("sdp-pe").make_problem(
        {"horizon": 500, "dimension": 2, "actions": 5, "constants": "paper"}
    )
    problem = asked.for_environment(asked.start(0, None).world, 0)
    stored = lookup("sdp-pe").build(problem).to_dict()
    status = Experiment.from_dict(stored).mechanism.privacy
    assert isinstance(status, KnownPerRound)
    smaller = replace(status.target, epsilon=status.target.epsilon / 10)
    for other in (NonPrivate(), KnownPerRound(smaller), KnownPerRound(smaller.assuming(*ROUND))):
        changed = stored["mechanism"] | {"privacy": status_to_data(other)}
        with pytest.raises(TacitError, match="was changed"):
            Experiment.from_dict(stored | {"mechanism": changed})


SILOS = {"silos": 4, "dimension": 2, "horizon": 100, "sync": 25, "epsilon": 1.0, "delta": 1e-3}
EAGER = SILOS | {"lazy": False}
SMALL = {"sdp-fedlinucb": EAGER | {"epsilon": 0.008}, "ldp-fedlinucb": EAGER}


def experiment_with(stored: dict[str, Any], guarantee: Guarantee) -> dict[str, Any]:
    changed = with_guarantee(stored["mechanism"], guarantee)
    return stored | {"mechanism": changed, "guarantee_id": guarantee.digest}


@pytest.mark.parametrize("name", ["dist-dp-se", "sdp-fedlinucb", "ldp-fedlinucb"])
def test_a_restored_guarantee_states_no_more_than_its_noise(name: str) -> None:
    """Claims and remarks are derived anew, with the digest of the file made to match."""
    asked: Any = lookup(name).make_problem(SMALL.get(name, {}))
    stored = lookup(name).build(asked.for_environment(asked.start(0, None).world, 0)).to_dict()
    found = Experiment.from_dict(stored).guarantee
    assert found is not None
    for claim in (
        PrivateMessages(1e-3),
        AskedFor(1e-3),
        OwnRecords(25, 1e-3, 1e-9),
        DerivedBy(Derivation.AMPLIFIED, 7),
        DerivedBy(Derivation.STRICTEST, 4),
        Declared(10**5, 2),
        RangeProofs(),
    ):
        with pytest.raises(TacitError, match=claim.identifier):
            Experiment.from_dict(experiment_with(stored, found.assuming(claim)))
    for said in [one for one in found.assumptions if isinstance(one, OwnRecords)]:
        fewer = found.assumptions - {said} | {replace(said, records=said.records - 1)}
        with pytest.raises(TacitError, match="own-records"):
            Experiment.from_dict(experiment_with(stored, with_assumptions(found, fewer)))


def test_an_external_class_states_no_guarantee_itself() -> None:
    """Found: a class attribute or a property was taken as exact."""
    for stated in (PureDP(1.0), property(lambda _: PureDP(1.0))):
        with pytest.raises(TacitError, match=r"set self\.guarantee in __init__"):
            type("Mine", (TwoServers,), {"guarantee": stated, "__module__": "elsewhere"})


def test_an_external_presence_declaration_is_recognised() -> None:
    class Absent(Presence):
        pass

    sums = replace(releases().sums, presence=Absent())
    assert from_outside(Releases(sums))
    assert not from_outside(Releases(replace(sums, presence=Presence())))


def test_a_restored_guarantee_protects_what_participants_report() -> None:
    asked: Any = lookup("cdp-dpe").make_problem({"horizon": 500, "dimension": 2, "actions": 5})
    stored = lookup("cdp-dpe").build(asked.for_environment(asked.start(0, None).world, 0)).to_dict()
    found = Experiment.from_dict(stored).guarantee
    assert found is not None
    told = {one for one in found.assumptions if isinstance(one, Protects)}
    assert len(told) == 1
    for others in (set(), {Protects(Secret.ONE_REWARD)}):
        changed = replace(found, assumptions=(found.assumptions - told) | others)
        data = experiment_with(stored, state_arithmetic(changed, found.arithmetic))
        with pytest.raises(TacitError, match="the guarantee protects"):
            Experiment.from_dict(data)


def test_the_privacy_of_rounds_is_a_stated_status() -> None:
    """A bare guarantee, or none, would be compared with no round."""
    arguments = {"binary": True}
    assert PerRound(factories.exact, arguments, NonPrivate()).guarantee is None
    wrong: tuple[Any, ...] = (None, PureDP(1), 1.0)
    for status in wrong:
        with pytest.raises(TacitError, match=r"privacy is .*: must be Guaranteed\(guarantee\)"):
            PerRound(factories.exact, arguments, status)


def test_a_round_below_the_minimum_batch_size_is_rejected() -> None:
    mechanism, _ = MECHANISMS["arms"]
    large = replace(mechanism, smallest=50)
    assert large.open(ARM).participants == 50
    with pytest.raises(TacitError, match=r"for 49 participants; .* needs at least 50"):
        large.open(Round(3, 49, Arm(1)))


def with_guarantee(stored: dict[str, Any], guarantee: Guarantee) -> dict[str, Any]:
    return stored | {"privacy": status_to_data(Guaranteed(guarantee))}


def test_a_stored_guarantee_has_the_assumptions_of_its_smallest_round() -> None:
    how = {"target": PureDP(1.0), "binary": True, "dropout": 0.2, "corrupt": 0.2}
    earned = factories.polya_tight(64, PureDP(1.0), True, dropout=0.2, corrupt=0.2).guarantee
    assert earned is not None
    stored = PerRound(factories.polya_tight, how, Guaranteed(earned), smallest=64).to_dict()
    assert Mechanism.from_dict(stored).guarantee == earned
    fewer = stored["arguments"] | {"dropout": 0.1}  # noise for fewer dropouts than are stated
    with pytest.raises(TacitError, match="not stated: released-only-above: its noise"):
        Mechanism.from_dict(stored | {"arguments": fewer})
    more = stored["arguments"] | {"dropout": 0.5}
    assert Mechanism.from_dict(stored | {"arguments": more}).guarantee == earned
    honest = stored["arguments"] | {"corrupt": 0.1}
    with pytest.raises(TacitError, match="not stated: dishonest-at-most: its noise"):
        Mechanism.from_dict(stored | {"arguments": honest})
    removed = replace(earned, assumptions=frozenset())
    both = "not stated: dishonest-at-most, released-only-above: its noise"
    with pytest.raises(TacitError, match=both):
        Mechanism.from_dict(with_guarantee(stored, removed))


def test_printed_noise_for_a_smaller_minimum_round_is_rejected() -> None:
    """It is not made for the size of a round: fewer shares of it give less."""
    how = {"target": PureDP(1.0), "failure_probability": 0.1}
    earned = factories.polya_paper(64, PureDP(1.0), 0.1).guarantee
    assert earned is not None
    mechanism = PerRound(factories.polya_paper, how, Guaranteed(earned), smallest=64)
    stored = mechanism.to_dict()
    assert Mechanism.from_dict(stored) == mechanism
    with pytest.raises(TacitError, match="noise, guarantee or smallest round"):
        Mechanism.from_dict(stored | {"smallest": 4})
    with pytest.raises(TacitError, match="its noise was changed"):
        unchecked(mechanism, smallest=4).open(Round(0, 4, Arm(0)))


OVERSTATED = [
    (name, change)
    for name, (mechanism, _) in MECHANISMS.items()
    if mechanism.guarantee is not None
    for change in overstated(mechanism.guarantee)
    if "complete-groups" not in change and change != "arithmetic raised"
]


@each_row(("name", "change"), OVERSTATED)
def test_a_guarantee_beyond_what_a_round_achieves_is_rejected(name: str, change: str) -> None:
    """When it is restored, and when a round is released."""
    mechanism, round_ = MECHANISMS[name]
    assert mechanism.guarantee is not None
    more = overstated(mechanism.guarantee)[change]
    with pytest.raises(TacitError, match="noise, guarantee or smallest round"):
        Mechanism.from_dict(with_guarantee(mechanism.to_dict(), more))
    with pytest.raises(TacitError, match="its noise was changed"):
        unchecked(mechanism, privacy=Guaranteed(more)).open(round_)


def test_an_assumption_that_no_round_needs_may_be_absent() -> None:
    mechanism, round_ = MECHANISMS["arms"]
    assert mechanism.guarantee is not None
    kept = mechanism.guarantee.assumptions - {CompleteGroups()}
    fewer = replace(mechanism, privacy=Guaranteed(PureDP(1.0).assuming(*kept)))
    assert through_json(fewer) == fewer
    assert fewer.open(round_).guarantee is not None


def test_ideal_arithmetic_is_not_restored_as_exact() -> None:
    ideal = factories.continuous_laplace(1, PureDP(1.0)).guarantee
    assert ideal is not None
    assert ideal.arithmetic is Arithmetic.IDEAL
    how = {"target": PureDP(1.0)}
    mechanism = PerRound(factories.continuous_laplace, how, Guaranteed(ideal))
    stored = mechanism.to_dict()
    assert Mechanism.from_dict(stored) == mechanism
    exact = state_arithmetic(ideal, Arithmetic.EXACT)
    with pytest.raises(TacitError, match="noise, guarantee or smallest round"):
        Mechanism.from_dict(with_guarantee(stored, exact))
    with pytest.raises(TacitError, match="its noise was changed"):
        unchecked(mechanism, privacy=Guaranteed(exact)).open(ARM)


def test_silo_budgets_that_no_round_achieves_are_rejected() -> None:
    """A round has one guarantee for everybody: no silo of it has a smaller budget."""
    mechanism, round_ = MECHANISMS["design"]
    found = mechanism.guarantee
    assert isinstance(found, ApproximateDP)
    numbers = (found.epsilon, found.delta)
    same = SilosDP(*numbers, budgets=(numbers, numbers), **found.shared_fields)
    less = replace(same, budgets=(numbers, (found.epsilon / 9, found.delta)))
    assert Mechanism.from_dict(with_guarantee(mechanism.to_dict(), same)).guarantee == same
    with pytest.raises(TacitError, match="noise, guarantee or smallest round"):
        Mechanism.from_dict(with_guarantee(mechanism.to_dict(), less))
    with pytest.raises(TacitError, match="its noise was changed"):
        unchecked(mechanism, privacy=Guaranteed(less)).open(round_)


@pytest.mark.parametrize("name", ["secagg-dpe", "sdp-pe", "cdp-dpe", "dist-dp-se", "vb-sdp-ae"])
def test_a_stored_guarantee_is_recomputed_and_rejected_if_overstated(name: str) -> None:
    """Also where no round is left to be released, of which the guarantee alone is read."""
    small = {"horizon": 500, "dimension": 2, "actions": 5}
    asked = lookup(name).make_problem({k: v for k, v in small.items() if k in lookup(name).options})
    problem = asked.for_environment(asked.start(0, None).world, 0)
    stored = json.loads(json.dumps(lookup(name).build(problem).mechanism.to_dict()))
    found = Mechanism.from_dict(stored).guarantee
    assert found is not None
    assert found.arithmetic is Arithmetic.EXACT
    for change, more in overstated(found).items():
        if change.startswith("protects"):  # what data a report holds, no protocol knows
            continue
        with pytest.raises(TacitError, match="noise, guarantee or smallest round"):
            Mechanism.from_dict(with_guarantee(stored, more))


def test_an_experiment_rejects_a_guarantee_that_no_longer_states_the_protected_secret() -> None:
    asked: Any = lookup("sdp-pe").make_problem({"horizon": 500, "dimension": 2, "actions": 5})
    problem = asked.for_environment(asked.start(0, None).world, 0)
    stored = lookup("sdp-pe").build(problem).to_dict()
    found = Experiment.from_dict(stored).guarantee
    assert found is not None
    secret = Protects(Secret.ONE_REWARD)
    assert secret in found.assumptions
    cut = with_assumptions(found, found.assumptions - {secret})
    for more in (cut, cut.assuming(Protects(Secret.FITTED_PARAMETER))):
        changed = with_guarantee(stored["mechanism"], more)
        with pytest.raises(TacitError, match="the file was changed"):
            Experiment.from_dict(stored | {"mechanism": changed})


def test_a_round_below_the_guarantee_of_the_run_is_rejected() -> None:
    mechanism, _ = MECHANISMS["arms"]
    assert mechanism.guarantee is not None
    for more in (
        PureDP(0.9, **mechanism.guarantee.shared_fields),
        PureDP(1.0),
        mechanism.guarantee.with_view(view=View.MESSAGE),
        replace(mechanism.guarantee, participations=2),
    ):
        with pytest.raises(TacitError, match="its noise was changed"):
            unchecked(mechanism, privacy=Guaranteed(more)).open(ARM)
    with pytest.raises(TacitError, match=r"a small round gives no guarantee, not \(1, 0\)-DP"):
        PerRound(factories.exact, {"binary": True}, Guaranteed(PureDP(1.0)))
    bare = unchecked(PerRound(factories.exact, {"binary": True}), privacy=Guaranteed(PureDP(1.0)))
    with pytest.raises(TacitError, match=r"round 3 gives no guarantee, not \(1, 0\)-DP"):
        bare.open(ARM)
    asked = PerRound(factories.exact, {"binary": True}, KnownPerRound(PureDP(1.0)))
    with pytest.raises(TacitError, match=r"gives no guarantee, the experiment asks for \(1, 0\)"):
        asked.open(ARM)
    with pytest.raises(TacitError, match=r"target of the rounds is None; .* asks for, \(1, 0\)"):
        Mechanism.from_dict(asked.to_dict())


@pytest.mark.parametrize("name", ["arms", "arms-guarantee", "design", "design-each"])
def test_a_mechanism_overstating_a_small_round_cannot_be_built(name: str) -> None:
    """Found: a mechanism made by hand printed its guarantee until its first round was opened."""
    mechanism, _ = MECHANISMS[name]
    stated = mechanism.guarantee
    assert isinstance(stated, (PureDP, ApproximateDP))
    for more in (replace(stated, epsilon=0.9), with_assumptions(stated, frozenset())):
        with pytest.raises(TacitError, match=r"a small round (gives|needs) .*: its noise,"):
            replace(mechanism, privacy=Guaranteed(more))
    with pytest.raises(TacitError, match="a small round gives no guarantee"):
        PerRound(factories.exact, {"binary": True}, mechanism.privacy)


def test_an_external_guarantee_class_is_never_sufficient() -> None:
    class Mine(PureDP):
        def __post_init__(self) -> None:
            """Nothing."""

        def implies(self, other: Guarantee) -> bool:  # noqa: ARG002
            return True

    mine = Mine(100.0)
    assert falls_short(PureDP(1.0), PureDP(1.0)) == ""
    assert "from outside tacit" in falls_short(mine, PureDP(0.001))
    assert "from outside tacit" in falls_short(PureDP(1.0), mine)


def test_an_argument_of_an_external_class_is_recognised() -> None:
    class Quiet(DiscreteLaplace):
        pass

    def made(noise: DiscreteLaplace, **more: Any) -> PerRound:
        how = {"precision": 1, "distribution": noise, "target": PureDP(1.0), "modulus": 10**4}
        return PerRound(factories._shared_by_all, how | more)

    assert not from_outside(made(DiscreteLaplace(2), order=None))
    assert not from_outside(made(DiscreteLaplace(2), order=Fraction(1, 2)))
    assert from_outside(made(Quiet(2)))


def test_the_privacy_status_of_a_mechanism_is_rendered() -> None:
    guaranteed, known, nothing = (
        MECHANISMS[name][0] for name in ("arms", "known-per-round", "non-private")
    )
    assert guaranteed.text() == str(guaranteed.guarantee)
    assert (known.guarantee, nothing.guarantee) == (None, None)
    assert known.text() == "known round by round; asked for: (1, 0)-DP"
    assert nothing.text() == "none: no privacy, the server sees every sum as it is"


def test_a_per_round_guarantee_is_printed_with_the_assumptions_of_its_target() -> None:
    target = PureDP(1.0).assuming(Protects(Secret.ONE_REWARD))
    mechanism = PerRound(factories.exact, {"binary": True}, KnownPerRound(target))
    shown = mechanism.printed(PureDP(1.5).assuming(*ROUND))
    assert shown is not None
    assert shown.assumptions == {Protects(Secret.ONE_REWARD), AskedFor(1.0), *ROUND}
    assert mechanism.printed() is None


class Elsewhere(TwoServers):
    """A part from outside tacit."""


Elsewhere.__module__ = "elsewhere.parts"


def joined(participants: int) -> JointSums:
    return JointSums(Elsewhere(participants, 1, for_each(PureDP(1.0), 2)), 2)


def test_an_external_part_makes_a_mechanism_external(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(joined, "__module__", factories.__name__)
    monkeypatch.setattr(factories, "joined", joined, raising=False)
    assert from_outside(PerRound(joined))
    monkeypatch.setattr(Elsewhere, "__module__", factories.__name__)
    assert from_outside(PerRound(joined))  # a copied name is not the class itself
    monkeypatch.setattr(factories, "Elsewhere", Elsewhere, raising=False)
    assert not from_outside(PerRound(joined))


def test_steps_are_released_in_order_and_for_all_silos() -> None:
    mechanism = releases()
    silos = mechanism.sums.silos
    with pytest.raises(TacitError, match=f"for {silos + 1} silos"):
        mechanism.open(Round(0, silos + 1, Arm(0)))
    with pytest.raises(TacitError, match="synchronisation 1 was never released"):
        mechanism.open(Round(1, silos, Arm(0)))
    assert mechanism.open(Round(0, silos, Arm(0))).step == 0


def test_prefix_sums_guarantee_no_more_than_they_achieve() -> None:
    sums = calibrated(
        SiloStream(factorize("tree", 4), 3, 5, 2.0), SILO, "discrete-gaussian", TARGET
    )
    assert Releases(sums, Guaranteed(sums.guarantee(1e-5))).guarantee is not None
    with pytest.raises(TacitError, match="do not give"):
        Releases(sums, Guaranteed(ApproximateDP(0.5, 1e-5, view=View.SILO)))
    loud = replace(sums, sigma=sums.sigma / 40)  # far out, where concentration accounts for more
    found = loud.guarantee(1e-5)
    assert loud.loss().delta(found.epsilon) > 1e-5
    assert Releases(loud, Guaranteed(found)).guarantee == found
    with pytest.raises(TacitError, match="do not give"):
        Releases(loud, Guaranteed(replace(found, epsilon=0.9 * found.epsilon)))


class Bare(TwoServers):
    """Two servers from outside, without noise in large rounds."""

    def combine(self, messages: Any) -> Aggregate:
        if self.participants <= 64:
            return super().combine(messages)
        return Aggregate((int(np.sum(messages)),), len(messages))


Bare.__module__ = "elsewhere"


def bare(users: int, target: PureDP) -> SumProtocol:
    """Tacit's protocol for small rounds, another for large ones."""
    return TwoServers(users, 1, target) if users <= 64 else Bare(users, 1, target)


def patched(users: int, target: PureDP) -> SumProtocol:
    """Tacit's protocol with a method replaced."""
    protocol = TwoServers(users, 1, target)
    protocol.combine = lambda messages: Aggregate((sum(messages),), len(messages))  # type: ignore[method-assign]
    return protocol


class Lenient(PerRound):
    """A mechanism of an external package."""

    @property
    def outside(self) -> bool:
        return False


Lenient.__module__ = "elsewhere"


def test_external_code_is_never_taken_for_builtin() -> None:
    target, name = PureDP(1.0), name_of(bare)
    ours = PerRound(factories.two_servers_laplace, {"target": target, "binary": True})
    assert not from_outside(ours)
    copied = wraps(factories.two_servers_laplace)(partial(bare))
    joint: dict[str, Any] = {"metrics": 2, "each": name, "target": target}
    for mechanism in (
        PerRound(bare, {"target": target}),
        PerRound(copied, {"target": target}),
        PerRound(patched, {"target": target}),
        PerRound(factories.joint, joint),
        Lenient(factories.two_servers_laplace, {"target": target, "binary": True}),
    ):
        assert from_outside(mechanism)
    tampered = TwoServers(64, 1, target)
    tampered.combine = lambda messages: Aggregate((0,), len(messages))  # type: ignore[method-assign]
    assert not _is_unmodified(tampered)
    assert _is_unmodified(TwoServers(64, 1, target))


def test_a_private_round_is_not_restored_as_non_private() -> None:
    mechanism, _ = MECHANISMS["arms"]
    stored = mechanism.to_dict() | {"privacy": status_to_data(NonPrivate())}
    with pytest.raises(TacitError, match=r"gives .* the experiment states non-private"):
        Mechanism.from_dict(stored)


@pytest.mark.parametrize(
    "target",
    [PureDP(1000.0), PureDP(1.0, participations=2), ApproximateDP(1.0, 0.5), None],
)
def test_per_round_mechanisms_must_match_the_stored_target(target: Guarantee | None) -> None:
    mechanism, _ = MECHANISMS["known-per-round"]
    stored = mechanism.to_dict()
    assert Mechanism.from_dict(stored).privacy == mechanism.privacy
    stored["arguments"] |= {"target": plain(target)}
    with pytest.raises(TacitError, match=r"target of the rounds is .* must be those that"):
        Mechanism.from_dict(stored)


@pytest.mark.parametrize("claim", [RangeProofs(), TowardsOutsiders(0.01, 1e-6)])
def test_a_stored_per_round_target_claims_what_its_rounds_derive(claim: Assumption) -> None:
    mechanism, _ = MECHANISMS["known-per-round"]
    assert isinstance(mechanism.privacy, KnownPerRound)
    more = KnownPerRound(mechanism.privacy.target.assuming(claim))
    stored = mechanism.to_dict() | {"privacy": status_to_data(more)}
    with pytest.raises(TacitError, match="cannot be derived from the noise"):
        Mechanism.from_dict(stored)


def test_a_guaranteed_experiment_rejects_another_per_round_target() -> None:
    stored = lookup("private-med").build(ArmsProblem.of(epsilon=0.9, horizon=2000)).to_dict()
    target = PureDP(0.9)
    stored["mechanism"] |= {"privacy": status_to_data(KnownPerRound(target))}
    stored["mechanism"]["arguments"]["target"] = plain(PureDP(1000.0))
    stored["guarantee_id"] = f"known-per-round:{target.digest}"
    with pytest.raises(TacitError, match=r"target of the rounds is \(1000, 0\)-DP"):
        Experiment.from_dict(stored)


def test_a_common_guarantee_is_met_by_the_noise_of_every_silo() -> None:
    sums = calibrated(
        SiloStream(factorize("tree", 4), 3, 5, 2.0), SILO, "discrete-gaussian", TARGET
    )
    own, few = sums.guarantee(1e-5), sums.sigma / 40
    loud = replace(sums, sigma=few, sigmas=(sums.sigma, sums.sigma, few))
    with pytest.raises(TacitError, match="do not give"):
        Releases(loud, Guaranteed(own))
    two = SilosDP(
        own.epsilon, own.delta, budgets=((own.epsilon, own.delta),) * 2, **own.shared_fields
    )
    with pytest.raises(TacitError, match="do not give"):
        Releases(loud, Guaranteed(two))


def test_large_rounds_have_the_same_protocol_as_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A factory that passes for tacit's and gives large rounds a protocol from outside."""
    monkeypatch.setattr(bare, "__module__", factories.__name__)
    monkeypatch.setattr(factories, "bare", bare, raising=False)
    guarantee = bare(1, PureDP(1.0)).guarantee
    assert guarantee is not None
    mechanism = PerRound(bare, {"target": PureDP(1.0)}, Guaranteed(guarantee))
    assert not from_outside(mechanism)
    assert mechanism.open(Round(0, 64, Arm(0))).participants == 64
    with pytest.raises(TacitError, match="from outside tacit, small rounds have not"):
        mechanism.open(Round(0, 65, Arm(0)))


def test_declared_external_guarantees_are_printed_as_declared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guarantee = bare(1, PureDP(1.0)).guarantee
    assert guarantee is not None
    assert guarantee.arithmetic is Arithmetic.EXACT
    mechanism = PerRound(bare, {"target": PureDP(1.0)}, Guaranteed(guarantee))
    for checked, remark in ((True, Declared(100_000, 1)), (False, Declared())):
        monkeypatch.setattr("tacit.protocols.mechanism.check_declared", lambda _, c=checked: c)
        shown = mechanism.printed()
        assert shown is not None
        assert shown.arithmetic is Arithmetic.UNSTATED
        assert remark in shown.assumptions
        assert "declared by its author" in mechanism.text()
        experiment = Experiment.of(ForgettingElimination(2, 1000), mechanism)
        assert experiment.guarantee == shown


def silent(participants: int) -> Protocol:
    """A trusted server whose noise is replaced by nothing."""
    made = Central(participants, 1, DiscreteLaplace(1000), PureDP(0.001), None)
    object.__setattr__(made.distribution, "draw", lambda: 0)
    return made


def test_an_experiment_states_no_guarantee_beyond_its_randomizer() -> None:
    """The guarantee of the mechanism is what is declared; readers are shown what was checked."""
    declared = silent(1).guarantee
    assert declared is not None
    assert declared.arithmetic is Arithmetic.EXACT
    experiment = Experiment.of(
        ForgettingElimination(2, 1000), PerRound(silent, {}, Guaranteed(declared))
    )
    with pytest.raises(TacitError, match="do not have the stated distribution"):
        _ = experiment.guarantee


class Boastful(PerRound):
    """Exact sums under a mechanism that calls them private, exactly."""

    claimed: ClassVar[Guarantee] = state_drawn_arithmetic(PureDP(0.001), DiscreteLaplace(1000))

    def printed(self, found: Guarantee | None = None) -> Guarantee | None:  # noqa: ARG002
        return self.claimed

    @property
    def guarantee(self) -> Guarantee | None:
        return self.claimed


class Boast(PureDP):
    """A guarantee class with unfounded claims."""

    def __post_init__(self) -> None:
        pass

    def __str__(self) -> str:
        return "noise is drawn exactly"


def test_an_external_mechanism_is_printed_by_tacit_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    boastful = Boastful(factories.exact, {"binary": True})
    experiment = Experiment.of(ForgettingElimination(2, 1000), boastful)
    stated = experiment.guarantee
    assert stated is not None
    assert stated.arithmetic is Arithmetic.UNSTATED
    assert Declared() in stated.assumptions
    assert "declared by its author, not checked" in boastful.text()
    simulated = guarantee_to(experiment, None, [])
    assert simulated == stated
    monkeypatch.setattr(Boastful, "claimed", Boast(0.001))
    with pytest.raises(TacitError, match="guarantee is a Boast, of a class from outside"):
        _ = experiment.guarantee


def test_recorded_guarantees_of_exact_sums_state_no_privacy() -> None:
    claimed = state_drawn_arithmetic(PureDP(0.001), DiscreteLaplace(1000)).to_data()
    exact = PerRound(factories.exact, {"binary": True})
    experiment = Experiment.of(ForgettingElimination(2, 1000), exact)
    assert guarantee_to(experiment, None, [{"guarantee": claimed}]) is None


def test_releases_and_vectors_claim_only_metrics_that_they_cover() -> None:
    mechanism = releases()
    assert mechanism.guarantee is not None
    many = mechanism.guarantee.assuming(MetricsPerParticipation(5))
    with pytest.raises(TacitError, match="do not give"):
        Releases(mechanism.sums, Guaranteed(many))
    target = ApproximateDP(1.0, 1e-5).assuming(MetricsPerParticipation(5))
    made = SecureVector(20, 2, 1.0, target).guarantee
    assert made is not None
    assert made.metrics == 1
    known, _ = MECHANISMS["known-per-round"]
    stored = known.to_dict()
    stored["privacy"]["target"]["assumptions"] = [MetricsPerParticipation(5).to_dict()]
    with pytest.raises(TacitError, match="target of the rounds"):
        Mechanism.from_dict(stored)


class Silent(PrefixSums):
    """Prefix sums from outside."""


Silent.__module__ = "elsewhere"


def test_external_prefix_sums_are_recognised() -> None:
    mechanism = releases()
    assert not from_outside(mechanism)
    own = {entry.name: getattr(mechanism.sums, entry.name) for entry in fields(mechanism.sums)}
    assert from_outside(Releases(Silent(**own), mechanism.privacy))


class Overstated(Mechanism):
    """Rounds are (ε, 0)-DP, the mechanism states another guarantee."""

    def __init__(self, stated: Guarantee, epsilon: float, first: int = 0) -> None:
        self.privacy, self.epsilon, self.first = Guaranteed(stated), epsilon, first

    def open(self, round_: Round) -> Protocol:
        weaker = self.epsilon if round_.number < self.first else 10.0
        return RandomizedBits(round_.participants, PureDP(weaker))

    def example(self) -> Protocol:
        return RandomizedBits(20, PureDP(self.epsilon))

    def to_dict(self) -> dict[str, Any]:
        return {}


LOCAL = PureDP(0.1, view=View.MESSAGE)


def test_an_external_mechanism_states_what_its_rounds_have() -> None:
    """Else a tenth would be printed as recomputed and sampled, where rounds lose 10."""
    honest = Overstated(LOCAL, 0.1)
    assert Declared(100_000, 20) in (Mechanism.printed(honest) or LOCAL).assumptions
    with pytest.raises(TacitError, match=r"small round gives \(10, 0\)-DP"):
        Mechanism.printed(Overstated(LOCAL, 10.0))
    for claim in (RangeProofs(), TowardsOutsiders(0.01, 1e-6)):
        with pytest.raises(TacitError, match="cannot be derived from the noise"):
            Mechanism.printed(Overstated(LOCAL.assuming(claim), 0.1))


class Wrapped(Overstated):
    """One part has rounds that can be checked, the whole has none."""

    @property
    def components(self) -> tuple[Mechanism, ...]:
        return (Overstated(LOCAL, self.epsilon),)

    def example(self) -> Protocol | None:  # type: ignore[override]
        return None


def test_a_mechanism_is_checked_only_if_each_part_is() -> None:
    printed = Mechanism.printed(Wrapped(LOCAL, 0.1))
    assert printed is not None
    assert printed.assumptions == {Declared()}


def test_rounds_of_an_external_mechanism_are_compared_with_its_guarantee() -> None:
    experiment = Experiment.of(ForgettingElimination(2, 1000), Overstated(LOCAL, 0.1, first=1))
    first, second = experiment.propose()
    assert experiment.open(first).guarantee is not None
    with pytest.raises(TacitError, match=r"round 1 gives \(10, 0\)-DP"):
        experiment.open(second)


def test_a_mechanism_claims_what_its_rounds_derive_when_it_is_made() -> None:
    make, arguments = factories.two_servers_laplace, {"target": PureDP(1.0), "binary": True}
    guarantee = make(2, **arguments).guarantee
    assert guarantee is not None
    assert PerRound(make, arguments, Guaranteed(guarantee)).guarantee == guarantee
    for claim in (RangeProofs(), TowardsOutsiders(0.01, 1e-6), PrivateMessages(0.1)):
        with pytest.raises(TacitError, match="cannot be derived from the noise"):
            PerRound(make, arguments, Guaranteed(guarantee.assuming(claim)))


class Exposed(Overstated):
    """A small round that can be checked; all others are exact sums."""

    def open(self, round_: Round) -> Protocol:
        return factories.exact(round_.participants, binary=True)


def test_rounds_without_privacy_fall_short_of_any_guarantee() -> None:
    """Exact sums were released under (0.1, 0)-DP that was printed as recomputed and sampled."""
    experiment = Experiment.of(ForgettingElimination(2, 1000), Exposed(LOCAL, 0.1))
    with pytest.raises(TacitError, match="round 0 gives no guarantee"):
        experiment.open(experiment.propose()[0])


class Bits(RandomizedBits):
    """Randomized response from outside."""


def bits(users: int, target: PureDP) -> SumProtocol:
    return Bits(users, target)


def overstated_metrics(users: int, target: PureDP, metrics: int) -> Protocol:
    """Two bits whose sums give the target; the whole states a hundredth of it."""
    made = JointSums(Bits(users, for_each(target, metrics)), metrics)
    made.guarantee = replace(made.guarantee, epsilon=target.epsilon / 100)
    return made


def test_metrics_composed_by_code_from_outside_are_not_checked() -> None:
    """Their guarantee was printed as recomputed and sampled because that of one metric was."""
    how: dict[str, Any] = {"target": PureDP(10.0), "metrics": 2}
    false = PerRound(overstated_metrics, how, Guaranteed(stated_by(overstated_metrics, how)), 20)
    shown = Mechanism.printed(false)
    assert shown is not None
    assert shown.epsilon_at(0) == pytest.approx(0.1)
    assert Declared() in shown.assumptions
    how["each"] = name_of(bits)
    true = Mechanism.printed(
        PerRound(factories.joint, how, Guaranteed(stated_by(factories.joint, how)), 20)
    )
    assert true is not None
    assert Declared(100_000, 20) in true.assumptions


def stated_by(make: Any, how: dict[str, Any]) -> Guarantee:
    found = make(20, **how).guarantee
    assert isinstance(found, Guarantee)
    return found


@pytest.mark.parametrize("extra", [{"users": 1000}, {}])
def test_factories_of_tacit_state_no_guarantee_without_a_small_round(extra: dict[str, Any]) -> None:
    """With an argument too many or too few, no small round was made and any guarantee printed."""
    how = {"target": PureDP(10.0), "binary": True} if extra else {"binary": True}
    with pytest.raises(TacitError, match="so that nothing is checked"):
        PerRound(factories.polya_tight, how | extra, Guaranteed(PureDP(0.01)))
    stored = MECHANISMS["arms"][0].to_dict()
    stored["arguments"] |= {"users": 1000}
    stored["privacy"]["guarantee"]["epsilon"] = 0.01
    with pytest.raises(TacitError, match="so that nothing is checked"):
        Mechanism.from_dict(stored)


class OwnStatistics(FederatedLinUCB):
    """Silos' statistics of a sensitivity that only its author knows."""


def test_the_sensitivity_of_a_learner_from_outside_is_declared() -> None:
    """It was printed like tacit's own, with noise drawn exactly for that sensitivity."""
    for kind, declared in ((FederatedLinUCB, False), (OwnStatistics, True)):
        learner = kind(3, 2, 20, 5, rules=SiloRules(lazy=True))
        needed = learner.statistics
        stream = SiloStream(
            factorize("tree", 4), 3, needed.size, needed.sensitivity, people=needed.records
        )
        sums = calibrated(stream, SECURE, "skellam", ApproximateDP(2.0, 0.05))
        mechanism = Releases(sums, Guaranteed(sums.guarantee(0.05)))
        experiment = Experiment.of(learner, mechanism)
        for shown in (experiment.guarantee, guarantee_to(experiment, None, [])):
            assert shown is not None
            assert (Declared() in shown.assumptions) is declared
            assert (shown.arithmetic is Arithmetic.EXACT) is not declared


class Sized(Bits):
    """Randomized response that states a tenth of its loss in all but small rounds."""

    def __init__(self, users: int, target: PureDP) -> None:
        super().__init__(users, target)
        if users > 20:
            self.guarantee = PureDP(target.epsilon / 10, view=View.MESSAGE)


def sized(users: int, target: PureDP) -> SumProtocol:
    return Sized(users, target)


def test_guarantees_known_per_round_are_checked_only_if_a_small_round_has_them() -> None:
    """The small round of (1, 0)-DP was checked, and (0.1, 0)-DP printed as recomputed."""
    target = PureDP(1.0)
    mechanism = PerRound(sized, {"target": target}, KnownPerRound(target), 20)
    for size, remark in ((20, Declared(100_000, 20)), (21, Declared())):
        found = mechanism.open(Round(0, size, Arm(0))).guarantee
        shown = Mechanism.printed(mechanism, found)
        assert shown is not None
        assert remark in shown.assumptions
