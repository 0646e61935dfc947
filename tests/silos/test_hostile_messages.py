"""Replayed, forged, reordered and foreign messages, at the agent and at the coordinator."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.silos.harness import LocalFederation
from tests.silos.test_crashes import REQUEST, TABLE

from tacit.aggregation.wire import pack_parts, unpack_parts
from tacit.bandits.contextual.linucb import LinUCBPolicy
from tacit.errors import Rejected, TacitError
from tacit.records import MemoryRecords
from tacit.signatures import Signed, sign
from tacit.silos.agent import RecordedEvaluations
from tacit.silos.coordinator import FederationCoordinator, SiloAbsent
from tacit.silos.evaluation import FIRST
from tacit.silos.federation import SyncSchedule, pin_federation, sign_federation, write_federation
from tacit.silos.messages import COORDINATOR, SiloMessage, SyncStage, pack_survivors
from tacit.silos.policies import encode_policy
from tacit.terms import BY_POLICY

STAGES = ["POLICY", "JOIN", "SHARE", "CHECK", "MASK", "SURVIVORS", "REVEAL"]


class Wire:
    """An exchange that keeps all messages, and alters some on their way."""

    def __init__(self, federation: LocalFederation) -> None:
        self.inner = federation.exchange()
        self.asked: dict[str, list[dict[str, bytes]]] = {}
        self.answered: dict[str, list[dict[str, bytes]]] = {}
        self.forth: Any = lambda _stage, messages: messages
        self.back: Any = lambda _stage, answers: answers

    def exchange(
        self, stage: str, messages: Mapping[str, bytes], deadline: float
    ) -> Mapping[str, bytes]:
        sent = self.forth(stage, dict(messages))
        self.asked.setdefault(stage, []).append(sent)
        answers = dict(self.inner.exchange(stage, sent, deadline))
        self.answered.setdefault(stage, []).append(answers)
        back: Mapping[str, bytes] = self.back(stage, answers)
        return back


class Setting:
    """A federation of three silos, whose first row is released."""

    def __init__(self) -> None:
        schedule = SyncSchedule(horizon=40)
        self.federation = LocalFederation.of(3, schedule=schedule)
        self.wire = Wire(self.federation)
        self.coordinator: FederationCoordinator = self.federation.coordinator(self.wire)
        self.agent = self.federation.agents["silo0"]
        self.coordinator.deliver()
        self.federation.play(3, np.random.default_rng(8))
        self.coordinator.synchronise()

    def next(self) -> None:
        """Play the next row."""
        self.coordinator.deliver()
        self.federation.play(3, np.random.default_rng(9))
        self.coordinator.synchronise()

    def rejected(self, message: bytes, match: str) -> None:
        """The agent rejects a message and changes nothing."""
        before = self.agent.status()
        with pytest.raises(Rejected, match=match):
            self.agent.respond("any", message)
        assert self.agent.status() == before


@pytest.fixture
def setting() -> Setting:
    return Setting()


def test_earlier_messages_are_rejected_and_repeated_ones_answered_identically(
    setting: Setting,
) -> None:
    reveal = setting.wire.asked["REVEAL"][0]["silo0"]
    first = setting.wire.answered["REVEAL"][0]["silo0"]
    assert setting.agent.respond("REVEAL", reveal) == first
    setting.next()
    for stage in STAGES:
        setting.rejected(setting.wire.asked[stage][0]["silo0"], "policy|attempt|final")


def test_reordered_messages_are_rejected() -> None:
    federation = LocalFederation.of(3)
    wire = Wire(federation)
    coordinator = federation.coordinator(wire)
    agent = federation.agents["silo0"]
    coordinator.deliver()

    def ahead(stage: str, messages: dict[str, bytes]) -> dict[str, bytes]:
        """Silo 0 is asked to mask before it has checked shares."""
        if stage == "SHARE":
            asked = SiloMessage.decode(messages["silo0"], federation.terms)
            early = replace(asked, stage=SyncStage.MASK).encode(federation.key)
            with pytest.raises(Rejected):
                agent.respond("MASK", early)
            early = replace(asked, stage=SyncStage.REVEAL).encode(federation.key)
            with pytest.raises(Rejected, match="signatures"):
                agent.respond("REVEAL", early)
        return messages

    wire.forth = ahead
    coordinator.synchronise()
    assert coordinator.step == 1


def test_foreign_and_altered_messages_are_rejected(setting: Setting) -> None:
    setting.coordinator.deliver()
    terms = setting.federation.terms
    policy = encode_policy(setting.coordinator.policy())
    asked = SiloMessage(terms.digest, SyncStage.POLICY, 1, COORDINATOR, 1, payload=policy)
    setting.rejected(asked.encode(Ed25519PrivateKey.generate()), "did not sign")
    good = asked.encode(setting.federation.key)
    for place in (5, 40, 60, len(good) - 1):
        altered = good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :]
        setting.rejected(altered, "did not sign|must be")
    setting.rejected(good[:50], "size")
    other = replace(asked, sender=2).encode(setting.federation.keys[1])
    setting.rejected(other, "direction")
    setting.rejected(replace(asked, recipient=2).encode(setting.federation.key), "direction")
    elsewhere = LocalFederation.of(3)
    setting.rejected(replace(asked, terms=elsewhere.terms.digest).encode(setting.federation.key), "terms of the message")  # fmt: skip # noqa: E501
    setting.rejected(replace(asked, step=9).encode(setting.federation.key), "at most|never asked")


@pytest.mark.parametrize(
    "change",
    [
        {"weight": 100.0},
        {"scaled": False},
        {"lazy": False},
        {"constant": None},
        {"bias": (float("1e400"),) * 6},
        {"radii": ()},
        {"radii": (1.0,) * 1_000},  # more than any row of the terms has records
        {"gram": ((0.0,) * 6,) * 6},
    ],
)
def test_policies_that_weaken_the_terms_are_rejected(
    setting: Setting, change: dict[str, Any]
) -> None:
    """The weight decides the sensitivity of a silo's sums: a larger one voids the guarantee."""
    policy: LinUCBPolicy = replace(setting.coordinator.policy(), **change)
    payload = b'{"bias": 1}' if "bias" in change else encode_policy(policy)
    terms = setting.federation.terms
    asked = SiloMessage(terms.digest, SyncStage.POLICY, 1, COORDINATOR, 1, payload=payload)
    setting.rejected(asked.encode(setting.federation.key), "policy|Gram")


@pytest.mark.parametrize("stage", STAGES[1:])
def test_forged_and_replayed_answers_count_as_missing(stage: str) -> None:
    federation = LocalFederation.of(3)
    wire = Wire(federation)
    coordinator = federation.coordinator(wire)
    coordinator.deliver()
    coordinator.synchronise()
    old = wire.answered[stage][0]["silo1"]
    coordinator.deliver()
    forged = SiloMessage.decode(old, federation.terms)
    for false in (
        old,  # of another row
        forged.encode(Ed25519PrivateKey.generate()),
        replace(forged, sender=1).encode(federation.keys[1]),  # as another silo
        b"nothing",
    ):
        wire.back = lambda now, answers, false=false: (
            answers | {"silo1": false} if now == stage else answers
        )
        with pytest.raises(SiloAbsent):
            coordinator.synchronise()
    assert coordinator.step == 1
    wire.back = lambda _stage, answers: answers
    coordinator.synchronise()
    assert coordinator.step == 2


@pytest.mark.parametrize("stage", STAGES[2:])
def test_the_coordinator_rejects_answers_of_another_stage(stage: str) -> None:
    """Reordered: a valid, signed answer of the stage before, of the same attempt."""
    federation = LocalFederation.of(3)
    wire = Wire(federation)
    coordinator = federation.coordinator(wire)
    coordinator.deliver()
    before = STAGES[STAGES.index(stage) - 1]

    def reorder(now: str, answers: dict[str, bytes]) -> dict[str, bytes]:
        if now != stage:
            return answers
        return answers | {"silo1": wire.answered[before][-1]["silo1"]}

    wire.back = reorder
    with pytest.raises(SiloAbsent):
        coordinator.synchronise()
    assert coordinator.step == 0
    wire.back = lambda _stage, answers: answers
    coordinator.synchronise()
    assert coordinator.step == 1


@pytest.mark.parametrize(
    ("algorithm", "stage", "told"),
    [
        ("secagg-fedlinucb", SyncStage.REPORT, "under these terms messages are masked"),
        ("ldp-fedlinucb", SyncStage.JOIN, "under these terms messages are not masked"),
    ],
)
def test_messages_are_sent_as_the_terms_state(algorithm: str, stage: SyncStage, told: str) -> None:
    """A masked message holds a share of the noise only: in the clear it would hide nobody."""
    federation = LocalFederation.of(3, algorithm=algorithm)
    wire = Wire(federation)
    federation.coordinator(wire).deliver()
    asked = SiloMessage.decode(wire.asked["POLICY"][0]["silo0"], federation.terms)
    other = replace(asked, stage=stage, payload=b"").encode(federation.key)
    with pytest.raises(Rejected, match=told):
        federation.agents["silo0"].respond(stage.name, other)
    assert not federation.agents["silo0"].status()["rows"]


def test_a_round_of_another_row_is_rejected(setting: Setting) -> None:
    setting.coordinator.deliver()
    old = SiloMessage.decode(setting.wire.asked["JOIN"][0]["silo0"], setting.federation.terms)
    with pytest.raises(Rejected, match="step of the round is 0: must be 1"):
        setting.agent.respond("JOIN", replace(old, step=1).encode(setting.federation.key))


def test_a_policy_that_skips_a_row_is_rejected(setting: Setting) -> None:
    """Its row would be released without this silo's noise, which the terms need."""
    asked = SiloMessage.decode(setting.wire.asked["POLICY"][0]["silo0"], setting.federation.terms)
    for step in (2, 3):
        ahead = replace(asked, step=step).encode(setting.federation.key)
        setting.rejected(ahead, "row 1 of this silo was never asked for")


def test_missed_rows_are_final_for_a_silo() -> None:
    federation = LocalFederation.of(4, missing=1, schedule=SyncSchedule(horizon=40))
    wire = Wire(federation)
    federation.coordinator(wire).deliver()
    agent, terms = federation.agents["silo0"], federation.terms
    asked = SiloMessage.decode(wire.asked["POLICY"][0]["silo0"], terms)
    beyond = replace(asked, step=len(terms.batches) + 1).encode(federation.key)
    with pytest.raises(Rejected, match=f"step of the policy is {len(terms.batches) + 1}: must be"):
        agent.respond("POLICY", beyond)
    agent.respond("POLICY", replace(asked, step=2).encode(federation.key))
    assert agent.status()["rows"] == 2
    for row in (0, 1):
        with pytest.raises(Rejected, match="earlier rows are final"):
            agent._row(row)


def evaluating() -> tuple[LocalFederation, Wire, FederationCoordinator]:
    """A federation with recorded data, whose first evaluation is done."""
    federation = LocalFederation.of(3)
    federation.recorded = RecordedEvaluations(TABLE, Fraction(9), Fraction(1, 10**4))
    for number in range(3):
        federation.restart(number)
    wire = Wire(federation)
    coordinator = federation.coordinator(wire)
    coordinator.evaluate(REQUEST)
    return federation, wire, coordinator


def test_evaluations_with_another_order_request_or_key_are_rejected() -> None:
    federation, wire, _ = evaluating()
    agent = federation.agents["silo0"]
    first = SiloMessage.decode(wire.asked["EVALUATE"][0]["silo0"], federation.terms)
    cheap = replace(REQUEST, epsilon=Fraction(1, 2)).encode()
    assert agent.respond("EVALUATE", first.encode(federation.key))  # the same again: no new charge
    for message, told in (
        (replace(first, payload=cheap), "has another request already"),
        (replace(first, step=BY_POLICY, payload=cheap), "from 0 to 32766"),
        (replace(first, step=first.step + 2, payload=cheap), "must be 1, the next one"),
        (replace(first, step=3), "number of the evaluation"),
        (replace(first, step=first.step + 1, payload=b"{}"), "invalid"),
        (replace(first, step=first.step + 1), "at most 9, the budget"),
    ):
        with pytest.raises(Rejected, match=told):
            agent.respond("EVALUATE", message.encode(federation.key))
    forged = replace(first, step=first.step + 1, payload=cheap)
    with pytest.raises(Rejected, match="did not sign"):
        agent.respond("EVALUATE", forged.encode(federation.keys[1]))
    assert agent.status()["evaluations"] == 1


def test_silos_with_other_noise_do_not_join_an_evaluation() -> None:
    """One silo pays a small ε: the others' shares would be too small for it."""
    federation = LocalFederation.of(3)
    federation.recorded = RecordedEvaluations(TABLE, Fraction(9), Fraction(1, 10**4))
    for number in range(3):
        federation.restart(number)
    wire = Wire(federation)
    cheap = replace(REQUEST, epsilon=REQUEST.epsilon / 10).encode()

    def altered(stage: str, messages: dict[str, bytes]) -> dict[str, bytes]:
        if stage != "EVALUATE":
            return messages
        asked = SiloMessage.decode(messages["silo0"], federation.terms)
        return messages | {"silo0": replace(asked, payload=cheap).encode(federation.key)}

    wire.forth = altered
    with pytest.raises(SiloAbsent):
        federation.coordinator(wire).evaluate(REQUEST)
    assert set(wire.answered["JOIN"][-1]) == {"silo1", "silo2"}


def test_an_evaluation_is_revealed_for_one_set_of_survivors() -> None:
    """Also after the silos' databases were restored: the records remember."""
    federation = LocalFederation.of(4, missing=1, schedule=SyncSchedule(horizon=40))
    federation.recorded = RecordedEvaluations(TABLE, Fraction(9), Fraction(1, 10**4))
    for number in range(4):
        federation.restart(number)
    wire = Wire(federation)
    coordinator = federation.coordinator(wire)

    def lose(stage: str, messages: dict[str, bytes]) -> dict[str, bytes]:
        return {n: m for n, m in messages.items() if (n, stage) != lost}

    wire.forth, lost = lose, ("silo3", "MASK")
    wire.back = lambda stage, answers: {} if stage == "REVEAL" else answers
    with pytest.raises(SiloAbsent):
        coordinator.evaluate(REQUEST)
    wire.back, lost = (lambda _stage, answers: answers), ("silo2", "MASK")
    with pytest.raises(SiloAbsent, match="did not sign the survivors"):
        coordinator.evaluate(REQUEST)
    lost = ("silo3", "MASK")
    assert coordinator.evaluate(REQUEST).records > 0


def test_a_restored_database_reveals_no_evaluation_twice() -> None:
    federation, wire, coordinator = evaluating()
    agent = federation.agents["silo0"]
    agent._database._connection.execute("UPDATE evaluations SET message = zeroblob(16)")
    with pytest.raises(Rejected, match="has another message on record"):
        agent._row(FIRST)
    agent._database._connection.execute("DELETE FROM evaluations")
    federation.records["coordinator"] = MemoryRecords()  # the coordinator colludes
    with pytest.raises(SiloAbsent):
        federation.coordinator(wire).evaluate(REQUEST)
    with pytest.raises(Rejected, match="evaluation 0 is unknown"):
        agent._row(FIRST)
    dear = replace(REQUEST, epsilon=Fraction(100)).encode()  # would be rejected, and keep a number
    for message in (dear, REQUEST.encode()):
        asked = SiloMessage(federation.terms.digest, SyncStage.EVALUATE, FIRST, COORDINATOR, 1)
        with pytest.raises(Rejected, match="evaluation 0 is on record: the database was restored"):
            agent.respond("", replace(asked, payload=message).encode(federation.key))
    assert agent._database.evaluations() == {}
    assert coordinator.evaluate(REQUEST).records > 0  # from its records


@pytest.mark.parametrize("algorithm", ["secagg-fedlinucb", "ldp-fedlinucb"])
def test_messages_hide_the_number_of_records(algorithm: str) -> None:
    """The same stages with answers of the same sizes, whatever was recorded; and no answer contains
    a committed message before it is masked."""
    sizes = []
    for patients in (0, 3, 25):  # more than the capacity of the first row
        federation = LocalFederation.of(3, algorithm=algorithm)
        wire = Wire(federation)
        coordinator = federation.coordinator(wire)
        coordinator.deliver()
        federation.play(patients, np.random.default_rng(patients))
        coordinator.synchronise()
        coordinator.deliver()
        sizes.append(
            {
                stage: [{n: len(one) for n, one in answers.items()} for answers in all_answers]
                for stage, all_answers in wire.answered.items()
            }
        )
        answers = b"".join(
            one for listed in wire.answered.values() for some in listed for one in some.values()
        )
        for agent in federation.agents.values():
            message = agent._database.rows()[0].message or b""
            masked = algorithm == "secagg-fedlinucb"
            assert (message not in answers) == masked
            assert b"outcomes" not in answers
        assert "outcomes" not in str(coordinator.status())
    assert sizes[0] == sizes[1] == sizes[2]


def test_a_silo_signs_one_set_of_survivors_per_row() -> None:
    federation = LocalFederation.of(4, missing=1, schedule=SyncSchedule(horizon=40))
    wire = Wire(federation)
    coordinator = federation.coordinator(wire)
    coordinator.deliver()

    def lose(stage: str, messages: dict[str, bytes]) -> dict[str, bytes]:
        return {n: m for n, m in messages.items() if (n, stage) != lost}

    wire.forth = lose
    lost = ("silo3", "MASK")
    wire.back = lambda stage, answers: {} if stage == "REVEAL" else answers
    with pytest.raises(SiloAbsent):
        coordinator.synchronise()
    wire.back = lambda _stage, answers: answers
    lost = ("silo2", "MASK")  # another set for the same row
    with pytest.raises(SiloAbsent, match="did not sign the survivors"):
        coordinator.synchronise()
    lost = ("", "")  # all four, for the same row
    with pytest.raises(SiloAbsent, match="did not sign the survivors"):
        coordinator.synchronise()
    for agent in federation.agents.values():  # restored from copies made before they signed
        agent._database._connection.execute("UPDATE rows SET survivors = NULL")
    lost = ("silo2", "MASK")
    with pytest.raises(SiloAbsent, match="did not sign the survivors"):
        coordinator.synchronise()
    for agent in federation.agents.values():
        agent._database._connection.execute("UPDATE rows SET survivors = NULL")
    lost = ("silo3", "MASK")
    coordinator.synchronise()
    assert coordinator.step == 1


@pytest.mark.parametrize(
    ("stage", "part"),
    [("JOIN", "none"), ("JOIN", "joining"), ("JOIN", "card"), ("JOIN", "other keys")]
    + [(stage, "none") for stage in ("SHARE", "CHECK", "MASK", "REVEAL")],
)
def test_an_invalid_answer_counts_as_a_missing_silo(stage: str, part: str) -> None:
    federation = LocalFederation.of(4, missing=1, schedule=SyncSchedule(horizon=40))
    wire, terms, key = Wire(federation), federation.terms, federation.keys[3]

    def spoil(asked: str, answers: dict[str, bytes]) -> dict[str, bytes]:
        if asked != stage or "silo3" not in answers:
            return answers
        answer = SiloMessage.decode(answers["silo3"], terms)
        payload = b""
        if part != "none":
            joining, card = unpack_parts(answer.payload)
            if part == "joining":
                joining = joining[:-1] + bytes([joining[-1] ^ 1])
            elif part == "card":
                card = bytes(len(card))
            else:
                context = federation.agents["silo3"]._masking._client.round.context  # type: ignore[union-attr]
                card = bytes(96) + sign(Signed.SILO_KEYS, context + bytes(96), key)
            payload = pack_parts([joining, card])
        return answers | {"silo3": replace(answer, payload=payload).encode(key)}

    wire.back = spoil
    coordinator = federation.coordinator(wire)
    coordinator.deliver()
    coordinator.synchronise()
    assert coordinator.step == 1


def test_unsigned_survivors_get_no_share() -> None:
    """A coordinator that tells silos different sets, or invents their signatures."""
    federation = LocalFederation.of(4, missing=1, schedule=SyncSchedule(horizon=40))
    wire = Wire(federation)
    coordinator = federation.coordinator(wire)
    coordinator.deliver()

    def two_sets(stage: str, messages: dict[str, bytes]) -> dict[str, bytes]:
        if stage != "SURVIVORS":
            return messages
        asked = SiloMessage.decode(messages["silo0"], federation.terms)
        fewer = replace(asked, payload=pack_survivors([0, 1, 2])).encode(federation.key)
        return messages | {"silo0": fewer}

    wire.forth = two_sets
    with pytest.raises(SiloAbsent):
        coordinator.synchronise()
    assert not any(wire.answered.get("REVEAL", [{}]))


def test_a_second_set_of_survivors_is_not_signed_for_another_step() -> None:
    """The signed statement is about the row of the attempt, whatever step the message names."""
    federation = LocalFederation.of(4, missing=1, schedule=SyncSchedule(horizon=40))
    wire = Wire(federation)
    coordinator = federation.coordinator(wire)
    coordinator.deliver()

    def other_step(stage: str, messages: dict[str, bytes]) -> dict[str, bytes]:
        kept = {n: m for n, m in messages.items() if (n, stage) != lost}
        if stage != "SURVIVORS" or step is None:
            return kept
        asked = {name: SiloMessage.decode(one, federation.terms) for name, one in kept.items()}
        return {n: replace(one, step=step).encode(federation.key) for n, one in asked.items()}

    wire.forth, lost, step = other_step, ("silo3", "MASK"), None
    wire.back = lambda stage, answers: {} if stage == "REVEAL" else answers
    with pytest.raises(SiloAbsent):
        coordinator.synchronise()
    assert len(wire.answered["REVEAL"][-1]) == 3
    lost, step = ("silo2", "MASK"), FIRST + 5
    with pytest.raises(SiloAbsent):
        coordinator.synchronise()
    assert not wire.answered["SURVIVORS"][-1]


@pytest.mark.parametrize(
    ("listed", "absent", "told"),
    [
        ([1, 2, 3], "", r"list of survivors is .* must be silos that joined, with this one"),
        ([0, 1, 2, 3], "silo3", r"list of survivors is .* must be silos that joined"),
        ([0, 1], "", "number of survivors is 2: must be at least 3"),
        ([0, 0, 1], "", r"list of survivors is \[0, 0, 1\]: must be ascending silos"),
    ],
)
def test_too_few_or_unknown_survivors_are_not_signed(
    listed: list[int], absent: str, told: str
) -> None:
    federation = LocalFederation.of(4, missing=1, schedule=SyncSchedule(horizon=40))
    wire = Wire(federation)
    coordinator = federation.coordinator(wire)
    coordinator.deliver()

    def altered(stage: str, messages: dict[str, bytes]) -> dict[str, bytes]:
        if stage == "JOIN":
            return {name: one for name, one in messages.items() if name != absent}
        if stage == "SURVIVORS":
            asked = SiloMessage.decode(messages["silo0"], federation.terms)
            payload = struct.pack(f">{len(listed)}H", *listed)
            others = replace(asked, payload=payload).encode(federation.key)
            with pytest.raises(Rejected, match=told):
                federation.agents["silo0"].respond(stage, others)
        return messages

    wire.forth = altered
    coordinator.synchronise()
    assert coordinator.step == 1


def test_silos_reveal_only_for_signed_survivors() -> None:
    """All four sign that all survived; the coordinator then asks as if the last had dropped out."""
    federation = LocalFederation.of(4, missing=1, schedule=SyncSchedule(horizon=40))
    wire = Wire(federation)
    coordinator = federation.coordinator(wire)
    coordinator.deliver()
    last: list[bytes] = []

    def altered(stage: str, messages: dict[str, bytes]) -> dict[str, bytes]:
        asked = {name: SiloMessage.decode(one, federation.terms) for name, one in messages.items()}
        if stage == "SURVIVORS":
            everybody = pack_survivors([0, 1, 2, 3])
            asked = {name: replace(one, payload=everybody) for name, one in asked.items()}
            own = replace(asked["silo0"], recipient=4).encode(federation.key)
            answer = federation.agents["silo3"].respond(stage, own)
            last.append(SiloMessage.decode(answer, federation.terms).payload)
        if stage == "REVEAL":
            asked = {
                name: replace(one, payload=pack_parts([*unpack_parts(one.payload), last[0]]))
                for name, one in asked.items()
            }
        return {name: one.encode(federation.key) for name, one in asked.items()}

    def without_last(stage: str, answers: dict[str, bytes]) -> dict[str, bytes]:
        return {n: one for n, one in answers.items() if (stage, n) != ("MASK", "silo3")}

    wire.forth, wire.back = altered, without_last
    with pytest.raises(SiloAbsent):
        coordinator.synchronise()
    assert len(wire.answered["SURVIVORS"][-1]) == 3
    assert wire.asked["REVEAL"]
    assert not any(wire.answered["REVEAL"])


@pytest.mark.parametrize("number", [1, 3])
def test_keys_of_a_colluding_silo_must_match_the_round(number: int) -> None:
    """A silo signs keys that are not in the round, or keys although it has not joined."""
    federation = LocalFederation.of(4, missing=1, schedule=SyncSchedule(horizon=40))
    wire = Wire(federation)
    coordinator = federation.coordinator(wire)
    coordinator.deliver()

    def swap(stage: str, messages: dict[str, bytes]) -> dict[str, bytes]:
        if stage == "JOIN":
            return {name: one for name, one in messages.items() if name != "silo3"}
        if stage != "SHARE":
            return messages
        asked = SiloMessage.decode(messages["silo0"], federation.terms)
        masking, keys = federation.agents["silo0"]._masking, bytes(range(96))
        assert masking is not None
        content = masking._client.round.context + keys
        parts = unpack_parts(asked.payload)
        parts[1 + number] = keys + sign(Signed.SILO_KEYS, content, federation.keys[number])
        altered = replace(asked, payload=pack_parts(parts)).encode(federation.key)
        with pytest.raises(Rejected, match="has keys that no silo of the terms signed"):
            federation.agents["silo0"].respond(stage, altered)
        return {name: one for name, one in messages.items() if name != "silo0"}

    wire.forth = swap
    with pytest.raises(SiloAbsent):
        coordinator.synchronise()


def test_a_coordinator_cannot_invent_silos() -> None:
    """Keys of an attempt are signed with the silos' keys of the terms."""
    federation = LocalFederation.of(3)
    wire = Wire(federation)
    coordinator = federation.coordinator(wire)
    coordinator.deliver()

    def swap(stage: str, messages: dict[str, bytes]) -> dict[str, bytes]:
        if stage != "SHARE":
            return messages
        asked = SiloMessage.decode(messages["silo0"], federation.terms)
        parts = unpack_parts(asked.payload)
        parts[2] = parts[2][:-1] + bytes([parts[2][-1] ^ 1])
        altered = replace(asked, payload=pack_parts(parts)).encode(federation.key)
        return messages | {"silo0": altered}

    wire.forth = swap
    with pytest.raises(SiloAbsent):
        coordinator.synchronise()
    assert "silo0" not in wire.answered["SHARE"][0]


def test_terms_need_every_signature() -> None:
    federation = LocalFederation.of(3)
    terms, signed = federation.terms, federation.pinned.signatures
    names = ["coordinator", "silo0", "silo1", "silo2"]
    whole = write_federation(terms, dict(zip(names, signed, strict=True)))
    assert pin_federation(whole) == federation.pinned
    with pytest.raises(Rejected, match="signatures of silo2 are missing"):
        pin_federation(write_federation(terms, dict(zip(names[:3], signed[:3], strict=True))))
    swapped = dict(zip(names, (signed[0], signed[2], signed[1], signed[3]), strict=True))
    with pytest.raises(Rejected, match="did not sign"):
        pin_federation(write_federation(terms, swapped))
    with pytest.raises(TacitError, match="one that the terms name"):
        sign_federation(terms, Ed25519PrivateKey.generate())
