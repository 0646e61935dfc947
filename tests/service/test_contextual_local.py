"""Contextual experiments in the local model: small tables, randomized on devices."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.service.deployed import ADDRESSES, KEYS, Deployed, definition_of, deployed
from tests.service.test_contextual import MEANS

from tacit.aggregation.local import LocalRound
from tacit.client.choices import choose
from tacit.client.trust_models import local
from tacit.errors import Rejected
from tacit.service.assignment import Assigned
from tacit.service.definition import Definition
from tacit.service.schema import Stage
from tacit.terms import Noise, Terms, in_words
from tacit.terms.parts import DISCRETE_LAPLACE, RANDOMIZED_RESPONSE, UNARY_ENCODING
from tacit.terms.visibility import visibility


def contextual(**changed: Any) -> Definition:
    given: dict[str, Any] = {
        "algorithm": "private-contextual",
        "context_fields": ("device: phone, desktop",),
    }
    return definition_of("local", **given | changed)


def described(one: Deployed, assigned: Assigned) -> LocalRound:
    found = one.described(assigned)
    assert isinstance(found, LocalRound)
    return found


def hold(one: Deployed, rng: random.Random) -> int:
    """All slots are joined, devices choose and report; then the deadline passes."""
    one.step(2)
    wanted = sum(row.slots - row.assigned for row in one.coordinator.rounds(Stage.OPEN))
    asked = one.join(wanted) if wanted else []
    sent = []
    for each in asked:
        context = {"device": rng.choice(["phone", "desktop"])}
        chosen = choose(one.pinned.terms, described(one, each).binding, context)
        liked = rng.random() < MEANS[context["device"]][each.option or chosen.option]
        sent.append((each, one.report(each, *chosen.levels[:-1], int(liked))))
    assert set(one.send(sent)) <= {None}
    one.clock.now += 200
    one.step(3)
    return len(asked)


def test_devices_learn_the_best_option_per_context(tmp_path: Path) -> None:
    strong: dict[str, Any] = {"epsilon": Fraction(6), "participants": 400}
    with deployed(contextual(**strong), tmp_path) as one:
        rng = random.Random(3)
        while hold(one, rng):
            pass
        status = one.coordinator.status(one.digest)
        found = one.coordinator.estimates(one.digest)
    assert status["state"] == "finished"
    best = {one["context"]["device"]: one["option"] for one in found["contexts"]["answers"]}
    assert best == {"phone": "friendly", "desktop": "plain"}


def test_terms_state_the_encoding_and_devices_verify_it(tmp_path: Path) -> None:
    half: dict[str, Any] = {"epsilon": Fraction(1), "evaluation": Fraction(1, 2)}
    with deployed(contextual(participants=3000, **half), tmp_path) as one:
        one.step(2)
        assigned = one.join(400)
        terms, pinned = one.pinned.terms, one.pinned
        chosen = described(one, next(a for a in assigned if not a.option)).offer()
        scalar = described(one, next(a for a in assigned if a.option)).offer()
    assert Terms.decode(terms.encode()) == terms
    assert terms.noise == Noise(Fraction(2), "devices", UNARY_ENCODING)
    assert terms.distribution(chosen=False) == RANDOMIZED_RESPONSE
    assert "each other cell is one with a chance of at least 1 in 1 + e^1" in " ".join(
        in_words(terms)
    )
    assert "randomizes every cell" in visibility(terms).device
    assert (chosen.total, scalar.total) == (Fraction(2), Fraction(1))
    assert (chosen.metrics, scalar.metrics) == (8, 1)
    assert pinned.check(chosen) == pinned.check(scalar) == 1
    for changed, said in (
        ({"total": Fraction(199, 100)}, "total noise of the round is 199/100: must be at least 2"),
        ({"divisor": 2}, "share divisor of the round is 2"),
        ({"policy": chosen.policy[:-4]}, "policy of the round is invalid"),
        ({"metrics": 2}, "number of metrics of the round is 2: must be 8"),
    ):
        with pytest.raises(Rejected, match=said):
            pinned.check(replace(chosen, **changed))
    with pytest.raises(Rejected, match="total noise of the round is 1/2: must be at least 1"):
        pinned.check(replace(scalar, total=Fraction(1, 2)))


@pytest.mark.parametrize(
    ("noise", "said"),
    [
        (Noise(Fraction(1), "devices", UNARY_ENCODING), "must be at least 2 for epsilon 1"),
        (Noise(Fraction(2), "devices", RANDOMIZED_RESPONSE), "must be unary-encoding"),
        (Noise(Fraction(2), "devices", DISCRETE_LAPLACE), "must be unary-encoding"),
    ],
)
def test_terms_with_other_noise_are_rejected(noise: Noise, said: str) -> None:
    terms = contextual(epsilon=Fraction(1)).terms(ADDRESSES[0], KEYS[0])
    with pytest.raises(Exception, match=said):
        replace(terms, noise=noise)


def test_unary_encoding_needs_contexts() -> None:
    terms = definition_of("local", epsilon=Fraction(1)).terms(ADDRESSES[0], KEYS[0])
    with pytest.raises(Exception, match="must be discrete-laplace or randomized-response"):
        replace(terms, noise=Noise(Fraction(2), "devices", UNARY_ENCODING))


@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(3)])
def test_a_device_randomizes_cells_as_guaranteed(epsilon: Fraction) -> None:
    """Frequencies within 5 standard errors; a false alarm below 10^-5."""
    draws, lie = 4000, 1 / (1 + math.exp(epsilon))
    made = [local._unary(2 / epsilon) for _ in range(draws)]
    for cell, chance in ((1, 0.5), (0, lie)):
        found = np.mean([one(cell) for one in made])
        assert abs(found - chance) < 5 * math.sqrt(chance * (1 - chance) / draws)
    ratio = (0.5 / lie) * ((1 - lie) / 0.5)  # both cells that a replacement changes
    assert math.log(ratio) == pytest.approx(float(epsilon))
