"""Parties describe no round whose noise, levels or size differ from the terms."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.service.deployed import ADDRESSES, KEYS, definition_of, deployed
from tests.service.test_linear_live import linear_definition, offers

from tacit.aggregation.encryption import HpkeSuite
from tacit.assumptions import TRUST_OF_VIEW, BoundedAdversary
from tacit.errors import Rejected, TacitError
from tacit.service.definition import Definition
from tacit.service.schema import Stage
from tacit.service.stated import stated_guarantee
from tacit.service.trust_models import coordinator_engine, masking, shuffler
from tacit.service.trust_models.contract import decoded
from tacit.service.trust_models.masking import MaskingCoordinator
from tacit.service.trust_models.two_servers import TwoServerCoordinator
from tacit.terms import Terms
from tacit.terms.parts import SKELLAM
from tacit.trust import TrustModel

TABLE: dict[str, Any] = {
    "algorithm": "private-contextual",
    "context_fields": ("device: phone, desktop",),
}
NUMBERS: dict[str, Any] = {"context_fields": ("device: phone, desktop", "age: 18 to 90")}
INVITED: dict[str, Any] = {"admission": "invitation", "issuer": KEYS[2]}
CASES: dict[str, dict[str, Any]] = {
    "two servers": {"trust": "two-servers"},
    "two servers, levels": {"trust": "two-servers", "levels": 3},
    "proofs": {"trust": "two-servers", "proofs": True},
    "two servers, table": {"trust": "two-servers", **TABLE},
    "two servers, corners": {"trust": "two-servers", **TABLE, **NUMBERS, "statistic": "corners"},
    "two servers, moments": {"trust": "two-servers", **TABLE, **NUMBERS, "statistic": "moments"},
    "local bits": {"trust": "local"},
    "local, levels": {"trust": "local", "levels": 3},
    "local table": {"trust": "local", **TABLE},
    "noise bits": {"trust": "shuffler", "participants": 4000},
    "split": {"trust": "shuffler", "algorithm": "split-dp-se", **INVITED},
    "pure shuffle": {"trust": "shuffler", "algorithm": "shuffle-dp-se", "epsilon": 1} | INVITED,
    "shuffled table": {"trust": "shuffler", **TABLE},
    "masks": {"trust": "secure-aggregation"},
    "masks, skellam": {"trust": "secure-aggregation", "algorithm": "dist-rdp-se"},
    "masks, table": {"trust": "secure-aggregation", **TABLE},
    "two servers, fits": {"trust": "two-servers", "plays": 8},
    "masks, fits": {"trust": "secure-aggregation", "plays": 8},
}


def defined(case: str, **changed: Any) -> Definition:
    given = CASES[case] | changed
    if "plays" in given:
        trust = given.pop("trust")
        return linear_definition(trust, offers(20)[0], **{"participants": 4000} | given)
    return definition_of(given.pop("trust"), **given)


def terms_of(definition: Definition) -> Terms:
    return definition.terms(ADDRESSES[0], KEYS[0])


def protocol_of(definition: Definition) -> Any:
    """The protocol of the first round that is released; where devices choose, of their round."""
    experiment = definition.experiment()
    rounds = [one for one in experiment.propose() if one.released]
    return experiment.open(rounds[-1])


BITS = ("noise bits", "shuffled table")  # their δ is verified in every round: tests/terms


@pytest.mark.parametrize("case", [case for case in CASES if case not in BITS])
def test_a_protocol_with_less_noise_than_the_terms_is_rejected(case: str) -> None:
    definition = defined(case)
    terms = terms_of(definition)
    engine = coordinator_engine(terms)
    engine.codec(protocol_of(definition), terms)
    weaker = protocol_of(defined(case, epsilon=2 * definition.epsilon))
    with pytest.raises(TacitError, match="differs from that of the terms"):
        engine.codec(weaker, terms)


@pytest.mark.parametrize("case", CASES)
def test_a_live_experiment_states_the_guarantee_of_its_terms(case: str) -> None:
    """Its sums have the noise of the mechanism; masks and split shares cost δ besides, and
    withstand bounded adversaries only.
    """
    definition = defined(case)
    terms, rounds = terms_of(definition), definition.experiment().guarantee
    assert rounds is not None
    stated = stated_guarantee(terms, rounds)
    assert stated is not None
    spent = rounds.approximated
    found = stated.approximated
    assert found.epsilon >= terms.guarantee.epsilon >= spent.epsilon * (1 - 1e-12)
    beyond = Fraction(getattr(found, "delta", 0)) - Fraction(getattr(spent, "delta", 0))
    masked = terms.trust is TrustModel.SECURE_AGGREGATION
    assert beyond >= terms.aggregation_delta * masked * (1 - Fraction(1, 10**9))
    assert stated.participations == terms.guarantee.participations
    assert stated.arithmetic is rounds.arithmetic
    assert terms.assumptions <= {*stated.assumptions, TRUST_OF_VIEW[stated.view]}
    bounded = BoundedAdversary() in stated.assumptions
    assert bounded == (terms.trust is not TrustModel.LOCAL)
    assert {one for one in rounds.assumptions if not one.needed} <= stated.assumptions


def test_a_coordinator_states_the_guarantee_of_the_terms(tmp_path: Path) -> None:
    with deployed(defined("masks"), tmp_path) as one:
        shown = one.coordinator.status(one.digest)["guarantee"]
    assert (shown["epsilon"], shown["delta"]) == (2.0, 1e-6)
    assert {"id": "bounded-adversary"} in shown["assumptions"]


@pytest.mark.parametrize("changed", [{"levels": 4}, {"guardrail": "errors"}], ids=str)
@pytest.mark.parametrize("case", ["two servers, levels", "local, levels", "masks"])
def test_a_protocol_with_other_levels_or_metrics_is_rejected(
    case: str, changed: dict[str, Any]
) -> None:
    """Also where its noise is that of the terms."""
    terms, other = terms_of(defined(case)), defined(case, **changed)
    alike = replace(terms, noise=terms_of(other).noise)
    with pytest.raises(TacitError, match="differs from that of the terms"):
        coordinator_engine(terms).codec(protocol_of(other), alike)


def test_noise_of_another_distribution_is_rejected() -> None:
    """Skellam noise of a variance is not Laplace noise of that scale, and no table is a metric."""
    terms, skellam = terms_of(defined("masks")), terms_of(defined("masks, skellam"))
    protocol = protocol_of(defined("masks, skellam"))
    low = replace(terms, noise=replace(terms.noise, scale=Fraction(2), minimum=Fraction(2)))
    assert skellam.noise.distribution == SKELLAM
    assert skellam.noise.least > low.noise.least
    with pytest.raises(TacitError, match="differs from that of the terms"):
        MaskingCoordinator.codec(protocol, low)
    for case, other in (("masks, table", "masks"), ("two servers, table", "two servers")):
        table, scalar = protocol_of(defined(case)), terms_of(defined(other))
        with pytest.raises(TacitError, match="differs from that of the terms"):
            coordinator_engine(scalar).codec(table, scalar)


@pytest.mark.parametrize("announced", [masking._announced_noise, shuffler._announced_noise])
def test_only_noise_shared_by_devices_is_announced(announced: Any) -> None:
    with pytest.raises(TacitError, match="Local has no announced noise"):
        announced(protocol_of(defined("local, levels")))


def test_two_servers_reject_terms_with_noise_from_devices() -> None:
    terms = terms_of(defined("two servers"))
    devices = replace(terms, noise=replace(terms.noise, by="devices"))
    with pytest.raises(TacitError, match="need noise by servers"):
        TwoServerCoordinator.check_terms(devices)


@pytest.mark.parametrize("batch", [10, 300])
@pytest.mark.parametrize(
    "case",
    [
        *("two servers", "proofs", "local bits", "noise bits", "split", "pure shuffle"),
        *("masks", "masks, table"),
    ],
)
def test_announced_rounds_have_the_batch_and_divisor_of_the_terms(
    tmp_path: Path, case: str, batch: int
) -> None:
    """Rounds are as large as terms and protocol ask, and shares are for honest reports only."""
    definition = defined(case, min_batch_size=batch, participants=8000)
    with deployed(definition, tmp_path) as one:
        one.step(2)
        terms, row = one.pinned.terms, one.coordinator.rounds(Stage.OPEN)[0]
        announced: Any = decoded(coordinator_engine(terms), terms, row.announcement)
    about, slots = terms.aggregation, announced.slots
    assert about.minimum_batch_size == batch
    least = max(batch, slots - about.missing(slots)) if terms.trust.shares_noise else batch
    assert announced.minimum == least
    if terms.trust.shares_noise:
        honest = announced.minimum - about.dishonest(slots)
        assert announced.noise.divisor <= honest
        if case != "pure shuffle":  # its certificates are of few sizes
            assert announced.noise.divisor >= honest * Fraction(9, 10)


@pytest.mark.parametrize("case", ["two servers", "noise bits"])
def test_a_helper_makes_keys_for_the_suite_of_the_terms_only(tmp_path: Path, case: str) -> None:
    with deployed(defined(case), tmp_path) as one:
        assert one.helper is not None
        assert one.pinned.terms.suite == "hpke-x25519-aes128gcm"
        for other in (HpkeSuite.X25519, HpkeSuite.HYBRID):
            with pytest.raises(Rejected, match="must be hpke-x25519-aes128gcm, the suite"):
                one.helper.keys(one.digest, bytes(16), other)
        assert one.helper.keys(one.digest, bytes(16), HpkeSuite.X25519_AES)
