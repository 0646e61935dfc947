"""200 releases of all-zero answers at the minimum batch, per trust model, against the terms.

Rounds go through the real parties and the real device code. With two servers one of them adds no
noise, so that every sum has the noise of the other alone. Noise comes from the operating system: no
seed repeats it. False positive rate: `RATE` per test. The probability to find halved noise is
computed from the exact distributions of the statistics, not estimated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.service.deployed import KEYS, Deployed, definition_of, deployed

from tacit.aggregation.aggregator_context import Draw
from tacit.client.trust_models import local, masking, shuffler
from tacit.noise import Binomial, DiscreteLaplace, NoiseDistribution
from tacit.noise.release_test import Fault, NoiseTest
from tacit.protocols.pure_shuffle import released_shares
from tacit.sampling import draws
from tacit.sampling.certificates import lookup
from tacit.service import party
from tacit.service.audit.counterpart import no_noise
from tacit.service.audit.deployment import SMALL_ROUNDS, Release, judge
from tacit.service.schema import Stage
from tacit.service.trust_models import coordinator_engine
from tacit.service.trust_models.contract import decoded
from tacit.trust import TrustModel

CERTIFIED = lookup(16, 1).certificate.parameters
RATE = 1e-6
RELEASES = 200
FEW = 40  # releases that show missing and reused noise
POWER = 0.999
OPTIONS = tuple(f"option {number}" for number in range(20))
MODELS: dict[str, dict[str, Any]] = {
    "local": {"trust": "local"},
    "shuffler": {"trust": "shuffler"},
    "shuffler-certified": {
        "trust": "shuffler",
        "algorithm": "shuffle-dp-se",
        "admission": "invitation",
        "issuer": KEYS[2],
        "delta": 0,
    },
    "secure-aggregation": {"trust": "secure-aggregation"},
    "coordinator": {"trust": "two-servers"},
    "helper": {"trust": "two-servers"},
    "coordinator-proofs": {"trust": "two-servers", "proofs": True},
    "helper-proofs": {"trust": "two-servers", "proofs": True},
}


def released(directory: Path, model: str, count: int) -> list[Release]:
    """So many released sums of zeros, from the smallest rounds that the experiment plans."""
    about = MODELS[model]
    found: list[Release] = []
    while len(found) < count:
        (where := directory / str(len(found))).mkdir()
        small: dict[str, Any] = {"participants": None, "min_batch_size": 2, "dropout": 0}
        small |= dict(SMALL_ROUNDS[TrustModel(about["trust"])])
        defined = definition_of(options=OPTIONS, **small | about)
        with deployed(defined, where) as one:
            silence(one, model)
            for _ in range(1 if "algorithm" in about else 3):  # later rounds are larger
                one.hold(lambda _option: (0,))
            found += releases_of(one)
    return found[:count]


def silence(one: Deployed, model: str) -> None:
    """The other one of two servers adds no noise."""
    if model.startswith("helper"):
        one.coordinator._noise = no_noise
    elif model.startswith("coordinator"):
        assert one.helper is not None
        one.helper._noise = no_noise


def releases_of(one: Deployed) -> list[Release]:
    terms = one.pinned.terms
    engine = coordinator_engine(terms)
    found = []
    rows = {row.identity.hex(): row for row in one.coordinator.rounds(Stage.RELEASED)}
    for said in one.coordinator.status(one.digest)["rounds"]:
        if said["round"] not in rows:
            continue
        announced = decoded(engine, terms, rows[said["round"]].announcement)
        stated, halved = (
            engine.released_noise(terms, announced, said["reports"], factor)
            for factor in (Fraction(1), Fraction(1, 2))
        )
        found.append(Release(stated.value(said["sums"][0]), stated, halved))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_released_noise_matches_the_stated_one(tmp_path: Path, model: str) -> None:
    found = released(tmp_path, model, RELEASES)
    test, p_values, power = judge(found, RATE)
    assert not test.rejected([one.value for one in found]), p_values
    assert power >= POWER, "halved noise would be missed too often"
    assert test.rejected([silent(one) for one in found]), "missing noise"
    again = [one.value for one in found for _ in range(2)][: len(found)]
    assert test.detects_repetition
    assert Fault.REPETITION in test.rejected(again), "every number twice"
    assert test.rejected([found[0].value] * len(found)), "one number in every release"


def silent(one: Release) -> int:
    """The released number without any noise."""
    return one.stated.value(-one.stated.offset / one.stated.factor)


# Faults in the real code


def missing(*_parameters: Any) -> int:
    return 0


class NoBits:
    """Noise bits that are all zero."""

    def __init__(self, *_parameters: Any) -> None: ...

    def draw(self) -> int:
        return 0


def once(draw: Callable[..., int]) -> Callable[..., int]:
    """The first draw again and again."""
    drawn: list[int] = []

    def again(*parameters: Any) -> int:
        drawn.append(drawn[0] if drawn else draw(*parameters))
        return drawn[0]

    return again


PLACES: dict[str, tuple[Any, str]] = {
    "local": (local, "flip_response"),
    "secure-aggregation": (masking, "draw_laplace_share"),
    "shuffler-certified": (draws, "draw_laplace_share"),
    "coordinator": (party, "_draw"),
    "helper": (party, "_draw"),
}


@pytest.mark.extended
@pytest.mark.parametrize("fault", ["missing", "reused"])
@pytest.mark.parametrize("model", PLACES)
def test_missing_and_reused_noise_in_the_deployed_code_is_detected(
    tmp_path: Path, model: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, name = PLACES[model]
    wrong = missing if fault == "missing" else once(getattr(where, name))
    monkeypatch.setattr(where, name, wrong)
    found = released(tmp_path, model, FEW)
    test, p_values, _ = judge(found, RATE)
    assert test.rejected([one.value for one in found]), p_values


@pytest.mark.extended
def test_missing_noise_bits_are_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffler, "ones", NoBits)
    found = released(tmp_path, "shuffler", FEW)
    test, p_values, _ = judge(found, RATE)
    assert Fault.MEAN in test.rejected([one.value for one in found]), p_values


# The test itself: exact rates


@pytest.mark.parametrize(
    ("stated", "halved"),
    [
        (DiscreteLaplace(1), DiscreteLaplace(Fraction(1, 2))),
        (DiscreteLaplace(2), DiscreteLaplace(1)),
        (DiscreteLaplace(40), DiscreteLaplace(20)),
        (Binomial(400, Fraction(1, 4)), Binomial(400, Fraction(1, 8))),
        tuple(
            released_shares(replace(CERTIFIED, noise_epsilon=factor * CERTIFIED.noise_epsilon), 25)
            for factor in (1, 2)
        ),
    ],
)
def test_halved_noise_is_detected_in_999_of_1000_audits(
    stated: NoiseDistribution, halved: NoiseDistribution
) -> None:
    test = NoiseTest((stated,) * RELEASES, RATE)
    assert test.power((stated,) * RELEASES) <= RATE / 2, "the stated noise itself"
    assert test.power((halved,) * RELEASES) >= POWER
    assert test.detects_repetition
    drawn = stated.sample(np.random.default_rng(3), RELEASES // 2)
    assert Fault.REPETITION in test.rejected(np.repeat(drawn, 2).tolist())


def test_numbers_of_different_distributions_are_tested_together() -> None:
    """Rounds of different sizes: draws pass, and pass no more if their order is changed."""
    several = tuple(Binomial(50 * size, Fraction(1, 3)) for size in (1, 2, 9, 30)) * 20
    test = NoiseTest(several, RATE)
    drawn = [one.draw() for one in several]
    assert not test.rejected(drawn)
    assert Fault.SPREAD in test.rejected(drawn[1:] + drawn[:1])


@pytest.mark.extended
def test_error_rates_hold_at_a_level_visible_in_simulation() -> None:
    """600 tests at 10% reject at most 92 times (probability of more below 10^-4)."""
    rng, stated = np.random.default_rng(7), DiscreteLaplace(3)
    test = NoiseTest((stated,) * 60, 0.1)
    drawn = stated.sample(rng, (600, 60))
    assert sum(bool(test.rejected(row.tolist())) for row in drawn) <= 92


def test_draws_of_one_server_match_those_of_the_party() -> None:
    draw: Draw = party.exact_noise(bytes(16))
    stated = DiscreteLaplace(Fraction(3))
    test = NoiseTest((stated,) * 400, RATE)
    assert not test.rejected([draw(Fraction(3)) for _ in range(400)])
    assert test.rejected([draw(Fraction(3, 2)) for _ in range(400)])
