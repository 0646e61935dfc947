"""Mechanisms: written down, sent through JSON and read back, they hide the same way and promise the
same.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from tacit.algorithms import problems
from tacit.algorithms.registry import algorithms, lookup
from tacit.checks import TacitError
from tacit.estimates import Arm, Design, Round
from tacit.experiment import Experiment
from tacit.privacy import (
    ALL_BUT_ONE,
    ApproximateDP,
    ConcentratedDP,
    Crowd,
    Neighbours,
    PureDP,
    RenyiDP,
    View,
)
from tacit.privacy.silos import SilosDP
from tacit.protocols import recipes
from tacit.protocols.contract import Protocol
from tacit.protocols.factorization import factorize
from tacit.protocols.mechanism import Mechanism, PerRound, Releases, plain, rich
from tacit.protocols.prefix_noise import calibrated
from tacit.protocols.prefix_sums import Presence

TARGET = ApproximateDP(1.0, 1e-5)
VECTOR = {
    "trust": "secure-aggregation",
    "bound": 1.0,
    "target": TARGET,
    "setting": "tight",
    "noise": "skellam",
    "client_std": 0.1,
}
ARM = Round(3, 50, Arm(1))
WATCHED = Round(0, 50, Design((4, 2, 9), (10, 20, 30), 60.0))
EACH = Round(0, 60, Design((4, 2, 9), (10, 20, 30), 60.0, each=True))
MECHANISMS: dict[str, tuple[PerRound, Round]] = {
    "arms": (
        PerRound(
            recipes.polya_tight,
            {"target": PureDP(1.0), "binary": True, "dropout": 0.2},
            PureDP(1.0, conditions=(*Crowd(dropout=0.2).conditions(1), "and more")),
            "Read this with it.",
        ),
        ARM,
    ),
    "arms-guarantee": (
        PerRound(
            recipes.shuffled_tight,
            {"target": TARGET, "binary": True, "dropout": 0.0},
            TARGET.at(view=View.SHUFFLED).given(*Crowd().conditions(1)),
        ),
        ARM,
    ),
    "no-promise": (PerRound(recipes.exact, {"binary": True}), ARM),
    "design": (PerRound(recipes.vector_of, VECTOR, TARGET.given(ALL_BUT_ONE)), WATCHED),
    "design-each": (PerRound(recipes.sums_of, VECTOR, TARGET.given(ALL_BUT_ONE)), EACH),
}


def through_json(mechanism: Mechanism) -> Mechanism:
    return Mechanism.from_dict(json.loads(json.dumps(mechanism.to_dict(), allow_nan=False)))


def described(protocol: Protocol) -> dict[str, Any]:
    """Everything that a round's people and servers are told of it."""
    numbers = ("participants", "coordinates", "minimum", "bits_per_participant", "guarantee")
    more = ("precision", "modulus", "share", "law", "noise_bits", "bias")
    return {
        "kind": type(protocol),
        "promise": protocol.promise,
        **{name: getattr(protocol, name) for name in numbers},
        **{name: getattr(protocol, name, None) for name in more},
    }


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_stored_mechanism_opens_the_same_protocol_under_the_same_promise(name: str) -> None:
    mechanism, round_ = MECHANISMS[name]
    copy = through_json(mechanism)
    assert copy == mechanism
    assert (copy.promise, copy.guarantee) == (mechanism.promise, mechanism.guarantee)
    assert copy.to_dict() == mechanism.to_dict()
    ours, theirs = mechanism.open(round_), copy.open(round_)
    assert described(ours) == described(theirs)
    assert ours.participants == round_.participants
    assert ours.coordinates == round_.assignment.coordinates


@pytest.mark.parametrize(
    "guarantee",
    [
        PureDP(0.5),
        ApproximateDP(
            1.0, 1e-7, view=View.SHUFFLED, participations=3, conditions=("nobody colludes",)
        ),
        ConcentratedDP(0.125),
        RenyiDP.of(lambda order: order / 8, (2, 4, 8)),
    ],
    ids=["pure", "approximate", "concentrated", "renyi"],
)
def test_guarantees_are_written_down_whole(guarantee: Any) -> None:
    restored = rich(json.loads(json.dumps(plain(guarantee))))
    assert restored == guarantee
    assert restored.conditions == guarantee.conditions


def a_foreign_recipe(participants: int, epsilon: float) -> Protocol:
    return recipes.continuous_laplace(participants, PureDP(epsilon))


def test_a_recipe_of_ones_own_is_stored_by_name_where_it_is_loaded() -> None:
    mechanism = PerRound(a_foreign_recipe, {"epsilon": 1.0})
    assert through_json(mechanism) == mechanism
    stored = {**mechanism.to_dict(), "make": "elsewhere:a_foreign_recipe"}
    with pytest.raises(TacitError, match="import the module that defines it"):
        Mechanism.from_dict(stored)


def test_functions_without_a_name_are_refused_before_anything_is_stored() -> None:
    def inner(participants: int) -> Protocol:
        return recipes.exact(participants, True)

    with pytest.raises(TacitError, match="cannot be stored by name: move it to the top"):
        PerRound(inner).to_dict()
    unnamed = (lambda users: recipes.exact(users, True), partial(recipes.exact, binary=True))
    for make in unnamed:
        with pytest.raises(TacitError, match="does not say that it makes protocols"):
            PerRound(make).to_dict()


@pytest.mark.parametrize(
    "make",
    [
        "os:system",  # loaded, callable, and not a recipe
        "subprocess:run",
        "builtins:eval",
        "tacit.experiment:save",
        "tacit.protocols.mechanism:PerRound",
        "a_package_that_is_not_loaded:make",
        "tacit.protocols.recipes:nothing_of_this_name",
        "tacit.no_such_module:make",
        "tacit.protocols.recipes:CACHE",
    ],
)
def test_a_file_cannot_name_a_function_that_is_no_recipe(make: str) -> None:
    stored = {**MECHANISMS["no-promise"][0].to_dict(), "make": make}
    with pytest.raises(TacitError, match=r"makes protocols|not known here as|there is no"):
        Mechanism.from_dict(stored)


@pytest.mark.parametrize(
    "kind", ["tacit.checks:TacitError", "os:system", "tacit.protocols.mechanism:Nothing", "x:y"]
)
def test_a_file_cannot_name_a_mechanism_that_is_none(kind: str) -> None:
    stored = {**MECHANISMS["no-promise"][0].to_dict(), "mechanism": kind}
    with pytest.raises(TacitError, match=r"is not known here as Mechanism|no 'tacit"):
        Mechanism.from_dict(stored)


def releases(kind: str = "tree") -> Releases:
    shape = factorize(kind, 4)
    sums = calibrated(
        shape, 3, 2, 1.5, "secure-aggregation", "skellam", ApproximateDP(2.0, 0.05), people=4
    )
    return Releases(sums, sums.guarantee(0.05), "Every release is in it.")


@pytest.mark.parametrize("kind", ["tree", "square-root", "prefix"])
def test_stored_releases_go_on_where_they_were(kind: str) -> None:
    """Two steps, written down, and the same third step from both: what was opened and what
    simulated silos hold are part of it.
    """
    mechanism, rng = releases(kind), np.random.default_rng(2)
    for number in range(2):
        mechanism.open(Round(number, 3, Arm(0))).simulate(np.array([1.0, number]), rng)
    copy = through_json(mechanism)
    assert isinstance(copy, Releases)
    assert (copy.promise, copy.guarantee) == (mechanism.promise, mechanism.guarantee)
    assert copy.to_dict() == mechanism.to_dict()
    state = rng.bit_generator.state
    third = [mechanism.open(Round(2, 3, Arm(0))), copy.open(Round(2, 3, Arm(0)))]
    assert described(third[0]) == described(third[1])
    made = []
    for protocol in third:
        rng.bit_generator.state = state
        made.append(protocol.simulate(np.array([0.5, 0.25]), rng))
    np.testing.assert_array_equal(made[0].total, made[1].total)
    assert made[0].promise == made[1].promise != ""


def test_stored_releases_that_do_not_earn_their_promise_are_refused() -> None:
    about, often = (factorize("tree", 4), 3, 2, 1.5), Presence(batches=2, visits=2)
    target = ApproximateDP(2.0, 0.05)
    sums = calibrated(*about, "secure-aggregation", "skellam", target, people=4, presence=often)
    made = Releases(sums, sums.guarantee(0.05))
    restored = through_json(made)
    assert isinstance(restored, Releases)
    assert restored.sums.presence == often
    data = json.loads(json.dumps(made.to_dict()))
    for change in (
        {"sigma": sums.sigma / 2},
        {"presence": asdict(Presence(batches=2, visits=3))},
        {"trust": "none", "noise": "none", "sigma": 0.0},
    ):
        with pytest.raises(TacitError, match="do not earn"):
            Mechanism.from_dict({**data, "sums": {**data["sums"], **change}})
    with pytest.raises(TacitError, match="do not earn"):
        Mechanism.from_dict({**data, "guarantee": plain(ApproximateDP(1.0, 0.05))})


@pytest.mark.parametrize(
    "stated",
    [
        {"participations": 500},
        {"view": View.MESSAGE},
        {"neighbours": Neighbours.ADD_OR_REMOVE_ONE},
        {"conditions": ()},
    ],
)
def test_releases_promise_what_their_sums_do_about_the_same_people(stated: dict[str, Any]) -> None:
    about, target = (factorize("tree", 4), 3, 2, 1.5), ApproximateDP(2.0, 0.05)
    sums = calibrated(*about, "secure-aggregation", "skellam", target, people=4, corrupt=1)
    assert Releases(sums, sums.guarantee(0.05)).promise
    with pytest.raises(TacitError, match="do not earn"):
        Releases(sums, replace(sums.guarantee(0.05), **stated))


def test_releases_refuse_headlines_and_amplification_that_nothing_earns() -> None:
    about, target = (factorize("tree", 4), 3, 2, 1.5), ApproximateDP(2.0, 0.05)
    sums = calibrated(*about, "silo", "gaussian", target, people=4)
    own = sums.guarantee(0.05)
    for headline in (
        PureDP(2.0, **own.about),
        SilosDP(1e-9, 1e-9, budgets=((own.epsilon, own.delta),) * 3, **own.about),
    ):
        with pytest.raises(TacitError, match="do not earn"):
            Releases(sums, headline)
    mixed = replace(sums, trust="shuffler")
    assert Releases(mixed, mixed.guarantee(0.05)).promise
    with pytest.raises(TacitError, match="do not earn"):  # the sum of all messages tells more
        Releases(mixed, replace(mixed.guarantee(0.05), epsilon=0.1))


def test_a_copy_of_releases_shares_nothing_with_the_original() -> None:
    mechanism = releases()
    copy = through_json(mechanism)
    rng = np.random.default_rng(0)
    mechanism.open(Round(0, 3, Arm(0))).simulate(np.zeros(2), rng)
    assert isinstance(copy, Releases)
    assert copy.released == {}
    assert copy.held == {}


@pytest.mark.parametrize("name", algorithms())
def test_the_mechanism_of_every_named_algorithm_survives_storage(name: str) -> None:
    entry = lookup(name)
    tiny = {"epsilon": 0.01} if name == "sdp-fedlinucb" else {}  # it is proven for no more
    problem: Any = entry.ask(small(entry.problem) | tiny)
    start = problem.start(0, None)
    mechanism = entry.build(problem.fitted(start.world, 0)).mechanism
    assert isinstance(mechanism, Mechanism)
    assert through_json(mechanism).to_dict() == mechanism.to_dict()


def small(problem: type[Any]) -> dict[str, Any]:
    if problem is problems.SilosProblem:
        return {"silos": 20, "dimension": 2, "actions": 4, "sync": 5, "horizon": 20}
    return {"horizon": 2000}


def test_an_experiment_refuses_a_mechanism_whose_promise_was_cut() -> None:
    problem = problems.ArmsProblem(horizon=2000)
    stored = lookup("dist-dp-se").build(problem).to_dict()
    stored["mechanism"]["note"] = "Nothing to see."
    with pytest.raises(TacitError, match="was it cut"):
        Experiment.from_dict(stored)


def test_a_round_below_the_smallest_crowd_is_refused() -> None:
    mechanism, _ = MECHANISMS["arms"]
    crowded = replace(mechanism, smallest=50)
    assert crowded.open(ARM).participants == 50
    with pytest.raises(TacitError, match=r"for 49 participants; .* rests on at least 50"):
        crowded.open(Round(3, 49, Arm(1)))


def test_a_stored_promise_rests_on_all_that_its_smallest_round_does() -> None:
    how = {"target": PureDP(1.0), "binary": True, "dropout": 0.2}
    promised = recipes.polya_tight(64, PureDP(1.0), True, 0.2).guarantee
    assert promised is not None
    stored = PerRound(recipes.polya_tight, how, promised, smallest=64).to_dict()
    assert Mechanism.from_dict(stored).guarantee == promised
    cut = stored["guarantee"] | {"conditions": list(promised.conditions[1:])}
    fewer = stored["arguments"] | {"dropout": 0.5}
    for changed in ({"guarantee": cut}, {"smallest": 2}, {"arguments": fewer}):
        with pytest.raises(TacitError, match="the promise, or the smallest round"):
            Mechanism.from_dict(stored | changed)


@pytest.mark.parametrize("name", ["secagg-dpe", "sdp-pe", "cdp-dpe", "dist-dp-se", "vb-sdp-ae"])
def test_a_stored_promise_is_derived_anew_and_refused_where_it_says_more(name: str) -> None:
    """Also where no round is left to be opened, of which the promise alone is read."""
    small = {"horizon": 500, "dimension": 2, "actions": 5}
    asked = lookup(name).ask({k: v for k, v in small.items() if k in lookup(name).options})
    problem = asked.fitted(asked.start(0, None).world, 0)
    stored = json.loads(json.dumps(lookup(name).build(problem).mechanism.to_dict()))
    promised = Mechanism.from_dict(stored).guarantee
    assert promised is not None
    changes: list[dict[str, Any]] = [
        {"epsilon": 0.5},
        {"view": "MESSAGE"},
        {"participations": 2},
        {"neighbours": "ADD_OR_REMOVE_ONE"},
    ]
    if promised.conditions:
        changes += [{"conditions": []}, {"conditions": ["nobody looks"]}]
    for changed in changes:
        said = stored["guarantee"] | changed
        with pytest.raises(TacitError, match="the promise, or the smallest round"):
            Mechanism.from_dict(stored | {"guarantee": said})


def test_a_round_that_earns_less_than_the_run_promises_is_refused() -> None:
    mechanism, _ = MECHANISMS["arms"]
    for promised in (PureDP(0.9), PureDP(1.0, view=View.MESSAGE), PureDP(1.0, participations=2)):
        with pytest.raises(TacitError, match="its noise was changed"):
            replace(mechanism, guarantee=promised).open(ARM)
    with pytest.raises(TacitError, match="would promise nothing"):
        PerRound(recipes.exact, {"binary": True}, PureDP(1.0)).open(ARM)
    secret = PerRound(recipes.exact, {"binary": True}, note="the secret is one answer")
    with pytest.raises(TacitError, match="would promise nothing, the experiment promises more"):
        secret.open(ARM)


def test_steps_are_opened_one_after_another_and_for_all_silos() -> None:
    mechanism = releases()
    silos = mechanism.sums.silos
    with pytest.raises(TacitError, match=f"for {silos + 1} silos"):
        mechanism.open(Round(0, silos + 1, Arm(0)))
    with pytest.raises(TacitError, match="synchronisation 1 was never opened"):
        mechanism.open(Round(1, silos, Arm(0)))
    assert mechanism.open(Round(0, silos, Arm(0))).step == 0


def test_prefix_sums_promise_no_more_than_they_earn_however_they_are_made() -> None:
    sums = calibrated(factorize("tree", 4), 3, 5, 2.0, "silo", "discrete-gaussian", TARGET)
    assert Releases(sums, sums.guarantee(1e-5)).guarantee is not None
    with pytest.raises(TacitError, match="do not earn"):
        Releases(sums, ApproximateDP(0.5, 1e-5, view=View.SILO))
    loud = replace(sums, sigma=sums.sigma / 40)  # far out, where concentration accounts for more
    found = loud.guarantee(1e-5)
    assert loud.loss().delta(found.epsilon) > 1e-5
    assert Releases(loud, found).guarantee == found
    with pytest.raises(TacitError, match="do not earn"):
        Releases(loud, replace(found, epsilon=0.9 * found.epsilon))
