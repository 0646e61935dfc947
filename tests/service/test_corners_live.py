"""Contextual experiments with corners, live: terms, devices, and the guarantee from the noise."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.browser.test_vectors_node import NODE, node
from tests.service.deployed import ADDRESSES, KEYS, Deployed, definition_of, deployed
from tests.service.pairs import described
from tests.service.test_contextual import (
    Factory,
    Repeated,
    device,
    forged,
    halved,
    missing,
    once_per_round,
    policy_slot,
    problems,
    released_noise,
)
from tests.service.test_contextual_masking import hold as hold_masked
from tests.service.test_moments import FIELDS, run_round

from tacit.bandits.contextual.corner_learner import CornerThompson
from tacit.contextual.corners import layout
from tacit.contextual.policies import LinearPolicy
from tacit.errors import Rejected, TacitError
from tacit.noise import DiscreteLaplace
from tacit.privacy import PureDP
from tacit.protocols.statistics import CornerStatistic
from tacit.service.definition import Definition
from tacit.service.definition_files import parse, write
from tacit.service.definition_text import DefinitionError
from tacit.service.forecast import explained
from tacit.service.pages import participant
from tacit.terms import CornerTerms, NumberField, Terms, in_words
from tacit.terms.visibility import visibility

PHONE = {"device": "phone", "age": 36}


def contextual(trust: str = "two-servers", **changed: Any) -> Definition:
    given = {"algorithm": "private-contextual", "context_fields": FIELDS, "statistic": "corners"}
    return definition_of(trust, **given | changed)


def corners(definition: Definition) -> CornerTerms:
    assert isinstance(definition.context, CornerTerms)
    return definition.context


@pytest.mark.extended
@pytest.mark.parametrize("proofs", [False, True])
def test_each_context_gets_its_best_option(tmp_path: Path, proofs: bool) -> None:
    small: dict[str, Any] = {"participants": 240, "min_batch_size": 5}
    small |= {"evaluation": Fraction(1, 3), "proofs": proofs}
    with deployed(contextual(epsilon=Fraction(8), **small), tmp_path) as one:
        rng = random.Random(3)
        while run_round(one, rng):
            pass
        status = one.coordinator.status(one.digest)
        found = one.coordinator.estimates(one.digest)["contexts"]
    assert status["state"] == "finished"
    best = {one["context"]["device"]: one["option"] for one in found["answers"]}
    assert best == {"phone": "friendly", "desktop": "plain"}
    assert len(found["gains"]) == 2
    assert status["guarantee"]["delta"] == 0


@pytest.mark.extended
def test_each_context_gets_its_best_option_by_secure_aggregation(tmp_path: Path) -> None:
    small: dict[str, Any] = {"participants": 120, "min_batch_size": 5, "evaluation": Fraction(0)}
    with deployed(contextual("secure-aggregation", epsilon=Fraction(8), **small), tmp_path) as one:
        rng = random.Random(3)
        while hold_masked(one, rng):
            pass
        found = one.coordinator.estimates(one.digest)["contexts"]
    best = {one["context"]["device"]: one["option"] for one in found["answers"]}
    assert best == {"phone": "friendly", "desktop": "plain"}


# Definition and terms


@pytest.mark.parametrize("trust", ["two-servers", "secure-aggregation"])
def test_a_definition_with_corners_round_trips_into_terms(trust: str) -> None:
    defined = contextual(trust, interactions=("age: friendly",), epsilon=Fraction(1, 3))
    assert parse(write(defined)) == defined
    assert parse(write(defined, yaml=True)) == defined
    terms = defined.terms(ADDRESSES[0], KEYS[0])
    assert Terms.decode(terms.encode()) == terms
    assert isinstance(terms.context, CornerTerms)
    assert terms.context.report(2).segments == 1 + 3  # plain; friendly with three states of age
    assert (terms.noise.distribution, terms.noise.least) == ("discrete-laplace", Fraction(6))
    assert terms.guarantee.delta == (0 if trust == "two-servers" else Fraction(1, 10**6))
    assert "one of 8 cells of a table, to which the device rounds" in " ".join(in_words(terms))
    assert "rounds its features at random" in visibility(terms).device
    said = " ".join(explained(defined)["What you ask"])
    assert "round their features to one of 4 corners" in said


MANY = tuple(f"n{k}: 0 to 1" for k in range(5))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"levels": 4}, "must be 1 with contextual.fields and corners"),
        ({"delta": Fraction(1, 10**6)}, "must be 0 with trust two-servers"),
        ({"exploration": Fraction(1, 5)}, "with corners, which explore by Thompson draws"),
        ({"context_fields": MANY}, "makes 486 corners: must be at most 256"),
        ({"trust": "local"}, "Use two-servers or secure-aggregation$"),
        ({"trust": "shuffler"}, "Use two-servers or secure-aggregation$"),
    ],
)
def test_invalid_definitions_are_rejected(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        contextual(**changed)


def test_terms_reject_less_noise_other_levels_and_other_trust_models() -> None:
    terms = contextual(epsilon=Fraction(1)).terms(ADDRESSES[0], KEYS[0])
    context, noise = terms.context, terms.noise
    assert isinstance(context, CornerTerms)
    for changed, said in (
        ({"noise": replace(noise, minimum=Fraction(199, 100))}, "minimum is 199/100: must be at"),
        ({"answer": replace(terms.answer, levels=2, labels=())}, "1 where devices report corners"),
        ({"context": replace(context, statistic="moments")}, "context.statistic is 'moments'"),
        ({"context": replace(context, matrices=())}, "context.matrices"),
        ({"noise": replace(noise, distribution="discrete-gaussian")}, "must be discrete-laplace"),
    ):
        with pytest.raises(TacitError, match=said):
            replace(terms, **changed)


def test_terms_reject_more_corners_than_devices_enumerate() -> None:
    """Six numbers of an option have 3^6 corners; before any of them is laid out."""
    fields = tuple(NumberField(f"n{k}", Fraction(0), Fraction(1)) for k in range(6))
    old, new = ((1 << 19,) + (0,) * 6,), ((1 << 17,) * 7,)
    many = CornerTerms(fields, matrices=(old, new))
    with pytest.raises(TacitError, match="number of corners is 730: must be at most 256"):
        many.check(("old", "new"), 1)
    few = CornerTerms(fields[:5], matrices=((old[0][:6],), (new[0][:6],)))
    few.check(("old", "new"), 1)


@pytest.mark.skipif(NODE is None, reason="Node is not installed")
def test_browsers_reject_experiments_with_corners() -> None:
    terms = contextual().terms(ADDRESSES[0], KEYS[0])
    assert not participant.in_browsers(terms)
    said = "this device does not support statistic corners: use a device in Python"
    assert node("refusal", {"text": terms.encode().decode()}) == ["statistic", said]


# The device


def test_devices_round_to_corners_without_bias_as_simulated() -> None:
    defined = contextual()
    context, options = corners(defined), defined.options
    features, made = context.features(options), layout(context.features(options))
    policy = LinearPolicy((0.0,) * context.dimension, ((((1.0,) * context.dimension),) * 6,))
    drawn = Counter(context.choose(policy.encode(), options, PHONE).known for _ in range(4000))
    assert {one for (one,) in drawn} <= set(range(made.size))
    code = features.code(PHONE)
    z = code[-1]
    one = made.options[1]
    count = Counter(one.draw(code) for _ in range(4000))
    groups = {made.corners[corner].group for corner in count}
    assert len(groups) == 1  # phone
    states = [count[corner] for corner in sorted(count)]
    chances = np.array([(1 - z) ** 2, 2 * (1 - z) * (1 + z), (1 + z) ** 2]) / 4
    assert stats.chisquare(states, 4000 * chances).pvalue > 1e-6
    values = np.array([made.corners[corner].code[1] for corner in sorted(count)])
    squares = np.array([made.corners[corner].square[1][1] for corner in sorted(count)])
    assert values @ chances == pytest.approx(z)
    assert squares @ chances == pytest.approx(z * z)


@pytest.fixture
def one(tmp_path: Path) -> Any:
    with deployed(contextual(participants=10**5, epsilon=Fraction(1)), tmp_path) as made:
        made.step(2)
        yield made


def test_a_device_reports_one_corner_only(one: Deployed) -> None:
    given, sent = policy_slot(one), list[Any]()
    own = device(one, given, sent)
    slot = own.choose(one.digest, PHONE)
    assert own.record(one.digest, 1)
    (running,) = own.ledger.running()
    assert running.levels is not None
    corner, level = running.levels
    place = one.definition.options.index(slot.option)
    there = layout(corners(one.definition).features(one.definition.options)).options[place]
    assert there.first <= corner < there.first + there.size
    assert level == 1
    one.clock.now = (slot.reports_at or 0) + 1
    own.run_due()
    everything = b"".join(str(request.url).encode() + request.content for request in sent)
    for word in (b"phone", slot.option.encode()):
        assert word not in everything
    assert own.ledger.spent_delta == 0


def test_a_device_rejects_altered_policies_and_less_noise(one: Deployed) -> None:
    given = policy_slot(one)
    policy = described(given).binding.policy
    for wrong in (policy[:-1], policy + b"0", bytes([0]) + policy[1:]):
        with pytest.raises(Rejected, match="policy of the round is invalid"):
            device(one, forged(given, binding={"policy": wrong})).choose(one.digest, PHONE)
    for changed, said in (
        ({"scale": Fraction(199, 100)}, "noise scale of the round is 199/100: must be at least 2"),
        ({"length": 8}, "number of metrics of the round is 8: must be 24"),
    ):
        with pytest.raises(Rejected, match=said):
            device(one, forged(given, **changed)).choose(one.digest, PHONE)


# The guarantee


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(1), Fraction(3)])
def test_epsilon_matches_enumeration_over_reports_and_outputs(epsilon: Fraction) -> None:
    """Largest log ratio of the noisy sums of neighbours, with the least noise of the terms."""
    defined = contextual(epsilon=epsilon)
    terms, context = defined.terms(ADDRESSES[0], KEYS[0]), corners(defined)
    size = context.report(2).segments
    reports = [context.vector(2, 1, (k,), level) for k, level in product(range(size), (0, 1))]
    low, high = context.bounds()
    assert {number for one in reports for number in one} == {low, high}
    noise = DiscreteLaplace(terms.noise.least)
    outputs = np.arange(-200, 201)
    loss = {
        apart: float((noise.log_pmf(outputs) - noise.log_pmf(outputs - apart)).max())
        for apart in (-1, 0, 1)
    }
    largest = max(
        sum(loss[a - b] for a, b in zip(one, other, strict=True))
        for one in reports
        for other in reports
    )
    assert largest == pytest.approx(float(epsilon), rel=1e-9)
    guarantee = defined.experiment().guarantee
    assert guarantee is not None
    assert isinstance(guarantee, PureDP)
    assert guarantee.epsilon == epsilon


NUMBERS = ("device: phone, desktop", *(f"n{k}: 0 to 1" for k in range(3)))  # 108 corners


def test_released_corners_have_the_noise_of_both_servers(tmp_path: Path) -> None:
    assert problems(released_noise(tmp_path, fields=NUMBERS, statistic="corners")) == set()


@pytest.mark.extended
@pytest.mark.parametrize("fault", [halved, missing, once_per_round, Repeated()])
@pytest.mark.parametrize("role", ["coordinator", "helper"])
def test_wrong_noise_of_one_server_is_detected(tmp_path: Path, fault: Factory, role: str) -> None:
    found = released_noise(tmp_path, fields=NUMBERS, statistic="corners", **{role: fault})
    assert problems(found) != set()


def test_the_learner_and_protocol_use_corners() -> None:
    defined = contextual(epsilon=Fraction(1))
    experiment = defined.experiment()
    assert isinstance(experiment.learner, CornerThompson)
    example: Any = experiment.mechanism.example()
    assert isinstance(example.statistic, CornerStatistic)
    assert example.statistic.size == corners(defined).numbers(2)
    (own,) = set(example.own)
    assert own == example.statistic.noise(PureDP(1.0))[0]
    assert math.isclose(float(own.scale), 2.0)
