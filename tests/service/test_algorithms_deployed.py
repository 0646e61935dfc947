"""Every deployable algorithm runs a small live experiment and ends with the right option."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.service.deployed import KEYS, definition_of, deployed

from tacit.algorithms import registry
from tacit.algorithms.arms_problem import ArmsProblem
from tacit.algorithms.builders import assemble
from tacit.bandits import ForgettingElimination
from tacit.client.trust_models import reporter
from tacit.errors import Rejected, TacitError
from tacit.experiment import Experiment
from tacit.protocols import factories
from tacit.sampling.certificates import lookup
from tacit.service.forecast import explained
from tacit.service.trust_models import COORDINATORS, HELPERS, coordinator_engine
from tacit.service.trust_models.contract import decoded
from tacit.terms import KINDS
from tacit.terms.document import check_live
from tacit.trust import DEPLOYABLE, TrustModel

MEANS = {"plain": 0.1, "friendly": 0.9}
INVITED = {"admission": "invitation", "issuer": KEYS[2]}
LIVE: list[tuple[str, str, dict[str, Any]]] = [
    ("two-servers", "private-med", {}),
    ("two-servers", "private-klucb", {}),
    ("shuffler", "sdp-ae", {}),
    ("shuffler", "vb-sdp-ae", {}),
    ("shuffler", "private-med", {}),
    ("shuffler", "private-klucb", {}),
    ("secure-aggregation", "dist-dp-se", {}),
    ("shuffler", "split-dp-se", INVITED),
    ("shuffler", "shuffle-dp-se", INVITED),
    ("secure-aggregation", "dist-rdp-se", {}),
    ("secure-aggregation", "dist-cdp-se", {}),
    ("secure-aggregation", "private-med", {}),
    ("secure-aggregation", "private-klucb", {}),
]


@pytest.mark.parametrize(
    ("trust", "algorithm", "more"), [one for one in LIVE if one[0] in DEPLOYABLE]
)
@pytest.mark.extended
def test_every_algorithm_finds_the_best_option(
    tmp_path: Path, trust: str, algorithm: str, more: dict[str, Any]
) -> None:
    defined = definition_of(trust, algorithm=algorithm, **more)
    with deployed(defined, tmp_path) as one:
        assert one.run(MEANS, seed=1) == "friendly"
        assert one.coordinator.status(one.digest)["state"] == "finished"


def test_the_deployable_trust_models_are_the_served_ones() -> None:
    served = {trust for (trust, _), kind in KINDS.items() if kind in COORDINATORS}
    assert set(DEPLOYABLE) <= served
    assert set(HELPERS) <= set(COORDINATORS)


def test_proofs_need_two_servers() -> None:
    assert definition_of("two-servers", proofs=True).terms("https://a.example", KEYS[0]).proofs == 1
    with pytest.raises(TacitError, match="only two-servers verifies proofs"):
        definition_of("local", proofs=True)
    with pytest.raises(TacitError, match="fits trust local, not two-servers"):
        definition_of("two-servers", algorithm="ldp-se", proofs=True)


@pytest.mark.parametrize(
    ("trust", "changed", "words"),
    [
        ("local", {"algorithm": "sdp-ae"}, "fits trust shuffler, not local"),
        (
            "local",
            {"algorithm": "dpe"},
            "try more options from phase to phase: use private-dpe and plays, with options_file",
        ),
        ("local", {"algorithm": "ldp-es"}, "ldp-se"),
        ("local", {"missing": "20%"}, 'missing is "20%": must be 0 with trust local'),
        ("local", {"delta": "0.001"}, 'delta is "0.001": must be 0 with trust local'),
        ("local", {"helper_address": "https://h.example"}, "trust local has no helper: delete it"),
        ("two-servers", {"helper_key": None}, "helper.key is missing; add it"),
        ("shuffler", {"dishonest": "80%"}, "must be less than 0.8, as people.missing is 0.2"),
        ("shuffler", {"delta": 0}, "must be above 0, such as 0.000001"),
        (
            "secure-aggregation",
            {"algorithm": "dist-rdp-se", "participations": 2, "delta": "1/2000000000000"},
            "must be above 1.8e-12, such as 0.000001",
        ),
        ("shuffler", {"admission": "invitation"}, "people.issuer is missing; trust shuffler"),
        ("shuffler", {"algorithm": "split-dp-se"}, "split-dp-se is by invitation only"),
        ("shuffler", {"algorithm": "sdp-ae", "control_share": "1/5"}, "does not support"),
        ("local", {"issuer": KEYS[2]}, "people.issuer needs people.admission"),
    ],
)
def test_a_definition_without_a_possible_trust_model_is_rejected(
    trust: str, changed: dict[str, Any], words: str
) -> None:
    with pytest.raises(TacitError, match=words):
        definition_of(trust, **changed)


def test_definitions_state_missing_and_dishonest_fractions() -> None:
    made = definition_of("shuffler", algorithm="sdp-ae")
    assert (made.missing, made.dishonest, made.delta) == (
        Fraction(1, 5),
        Fraction(1, 10),
        Fraction(1, 10**6),
    )
    terms = made.terms("https://a.example", KEYS[0])
    about = terms.aggregation
    assert (about.missing_fraction, about.dishonest_count, about.dishonest_fraction) == (
        Fraction(1, 5),
        1,
        Fraction(1, 10),
    )
    assert [party.role for party in terms.parties] == ["analyzer", "shuffler"]
    assert terms.trust is TrustModel.SHUFFLER
    assert made.smallest == 13


def test_a_check_prints_the_cost_of_dropouts_and_the_masking_security() -> None:
    said = {
        trust: " ".join(explained(definition_of(trust, **more))["Trust model"])
        for trust, more in (
            ("secure-aggregation", {}),
            ("shuffler", {"algorithm": "shuffle-dp-se", **INVITED}),
            ("local", {}),
        )
    }
    assert "a full round has 43% more variance" in said["secure-aggregation"]
    assert "40 bits of security" in said["secure-aggregation"]
    assert "at most 0 and 2^-68" in said["secure-aggregation"]
    assert "certified for 8 people in the smallest round, which has 62% more" in said["shuffler"]
    assert "missing" not in said["local"]


def test_invitations_are_signed_by_the_named_issuer() -> None:
    terms = definition_of("shuffler", **INVITED).terms("https://a.example", KEYS[0])
    assert terms.issuer == KEYS[2]
    assert (
        definition_of("local", admission="invitation").terms("https://a", KEYS[0]).issuer == KEYS[0]
    )


def test_certified_rounds_are_purely_private_for_bits_by_invitation() -> None:
    made = definition_of("shuffler", algorithm="shuffle-dp-se", **INVITED)
    terms = made.terms("https://a.example", KEYS[0])
    assert registry.lookup("shuffle-dp-se").deployable == "shuffler"
    assert terms.guarantee.delta == 0
    assert terms.noise.distribution == "certified-polya"
    assert made.experiment().guarantee is not None
    for changed, words in (
        ({"delta": "0.000001"}, "must be 0 with algorithm shuffle-dp-se"),
        ({"high": 5}, "must be 1 with algorithm shuffle-dp-se"),
        ({"admission": "open", "issuer": b""}, "shuffle-dp-se is by invitation only"),
    ):
        with pytest.raises(TacitError, match=words):
            definition_of("shuffler", algorithm="shuffle-dp-se", **INVITED | changed)
    with pytest.raises(Rejected, match="invitation with certified-polya noise"):
        check_live(replace(terms, admission="open", issuer=b""))
    for less, words in (
        ({"noise": replace(terms.noise, scale=Fraction(1, 10), minimum=None)}, r"noise\.minimum"),
        ({"answer": replace(terms.answer, levels=2, labels=())}, "levels is 2: must be 1"),
        ({"guarantee": replace(terms.guarantee, delta=Fraction(1, 10**6))}, "delta is"),
    ):
        with pytest.raises(TacitError, match=words):
            replace(terms, **less)


def test_devices_reject_shares_without_a_certificate(tmp_path: Path) -> None:
    defined = definition_of("shuffler", algorithm="shuffle-dp-se", **INVITED)
    with deployed(defined, tmp_path) as one:
        one.step(2)
        (assigned,) = one.join(1)
        engine, terms = coordinator_engine(one.pinned.terms), one.pinned.terms
        announced: Any = decoded(engine, terms, assigned.announcement)
        sound = announced.offer()
        assert one.pinned.check(sound) == terms.cost
        row = lookup(sound.divisor, terms.per_metric_target[0]).certificate
        assert row.epsilon <= terms.per_metric_target[0]
        assert (row.kind, row.parameters.bits) == ("every-k", sound.parts)
        honest = terms.aggregation
        certain = sound.slots - honest.missing(sound.slots) - honest.dishonest(sound.slots)
        assert sound.divisor <= certain < 2 * sound.divisor, "the largest certificate that fits"
        for changed, words in (
            ({"divisor": 2 * sound.divisor}, "share divisor"),
            ({"divisor": 3}, "has no certificate"),
            ({"divisor": sound.divisor // 2}, "total noise"),
            ({"total": sound.total / 2}, "total noise"),
            ({"total": sound.total * 2}, "total noise"),
            ({"parts": sound.parts + 2}, "number of messages"),
            ({"modulus": 1 << 20}, "modulus"),
        ):
            with pytest.raises(Rejected, match=words):
                one.pinned.check(replace(sound, **changed))


def test_an_algorithm_of_another_package_is_deployed(tmp_path: Path) -> None:
    """It registers itself, uses a protocol of tacit, and needs nothing of the service."""
    name = "outside-halves"
    registry.algorithm(
        name,
        paper="a test",
        trust=(TrustModel.LOCAL, TrustModel.CENTRAL),
        guarantee="(ε, 0)-DP of each message",
        problem=ArmsProblem,
        options=("arms", "horizon", "anytime", "epsilon", "participations"),
    )(shares)
    try:
        assert registry.lookup(name).deployable == "local"
        with deployed(definition_of(algorithm=name), tmp_path) as one:
            assert one.run(MEANS, seed=3) == "friendly"
    finally:
        del registry._KNOWN[name]


def shares(problem: ArmsProblem) -> Experiment:
    """Successive elimination over randomized response."""
    learner = ForgettingElimination(problem.arms, problem.horizon, growth=2.0, start=4)
    target = problem.privacy.pure
    return assemble(problem, learner, factories.response, smallest=10, target=target)


@pytest.mark.parametrize("algorithm", ["dist-rdp-se", "dist-cdp-se"])
@pytest.mark.parametrize("epsilon", ["1/2", "1", "2"])
def test_devices_accept_masked_rounds_whose_noise_has_a_delta(
    tmp_path: Path, algorithm: str, epsilon: str
) -> None:
    """Found: noise was made for all of δ, of which masks need 2^-40: no device would have joined
    with the one, no terms could be made with the other.
    """
    defined = definition_of("secure-aggregation", algorithm=algorithm, epsilon=Fraction(epsilon))
    assert defined.terms("https://a.example", KEYS[0]).guarantee.delta == defined.delta
    with deployed(defined, tmp_path) as one:
        one.step(2)
        (assigned,) = one.join(1)
        cost = one.pinned.terms.cost
        announced = reporter(one.pinned.terms).announced(one.pinned, assigned.announcement)
        assert one.pinned.check(announced.offer()) == cost == defined.epsilon
