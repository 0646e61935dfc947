"""Contextual experiments with proofs: a report is one cell of a table, or both servers drop it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.service.deployed import ADDRESSES, KEYS, SECRETS, Deployed, deployed
from tests.service.test_contextual import contextual, device, forged, hold, policy_slot

from tacit.aggregation.aggregator_context import Draw
from tacit.aggregation.announcements import accept, announce, endorse
from tacit.aggregation.two_servers import (
    TwoServerRound,
    encrypt_shares,
    report_tag,
    word_digest,
)
from tacit.aggregation.verified import TableProofs
from tacit.aggregation.wire import pack_integer, pack_numbers
from tacit.client.choices import numbers_of
from tacit.errors import Rejected, TacitError
from tacit.service.assignment import Assigned
from tacit.service.schema import Stage
from tacit.signatures import SIGNATURE_SIZE
from tacit.vdaf import MODULUS, MODULUS128, PUBLIC_SIZE
from tacit.vdaf.field import FIELD128
from tacit.vdaf.histogram import NUMBER
from tacit.vdaf.prio3 import ONE_PROOF, USAGE_PROVE, domain_tag
from tacit.vdaf.xof import expand

Parts = tuple[bytes, bytes]


def _no_noise(_identity: bytes) -> Draw:
    return lambda _scale: 0


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Deployed]:
    """Six segments, two options, with proofs and without noise or evaluation slice."""
    defined = contextual(proofs=True, participants=3000, evaluation=Fraction(0))
    with deployed(defined, tmp_path, options={"noise": _no_noise}) as made:
        made.step(2)
        yield made


class TablePoisoner:
    """A malicious device: it encrypts any content as a report should be."""

    def __init__(self, one: Deployed, assigned: Assigned) -> None:
        self.round = accept(TwoServerRound, one.pinned, assigned.announcement)
        assert isinstance(self.round.proofs, TableProofs)
        assert assigned.slot is not None
        self.slot, self.words = assigned.slot, (bytes(16), bytes([1]) * 16)
        digests = word_digest(self.words[0]), word_digest(self.words[1])
        self.tag = report_tag(self.round.context, self.slot.number, digests)
        self.proofs, self.circuit = self.round.proofs, self.round.proofs.prio3.circuit

    def claiming(self, elements: Sequence[int]) -> Parts:
        """Shares of any table, with the prover's own proof under the right joint randomness."""
        prio3, context, rng = self.proofs.prio3, self.round.context, random.Random(4)
        seed, blind, own_blind, prove = (rng.randbytes(32) for _ in range(4))
        theirs, their_proof = prio3._expand_shares(context, seed)
        own = [(a - b) % MODULUS128 for a, b in zip(elements, theirs, strict=True)]
        public = prio3._part(context, 0, own_blind, own, self.tag)
        public += prio3._part(context, 1, blind, theirs, self.tag)
        joint = prio3._joint(context, prio3._seed(context, public))
        tag = domain_tag(NUMBER, USAGE_PROVE, context)
        seeds = expand(prove, tag, ONE_PROOF, self.circuit.wires, FIELD128)
        proof = self.circuit.prove(elements, seeds, joint)
        rest = [(a - b) % MODULUS128 for a, b in zip(proof, their_proof, strict=True)]
        return public + FIELD128.pack([*own, *rest]) + own_blind, public + seed + blind

    def honest(self, cell: int) -> Parts:
        rng = random.Random(5)
        return self.proofs.shard([int(n == cell) for n in range(16)], self.tag, rng.randbytes)

    def encrypted(self, parts: Parts) -> dict[int, bytes]:
        shares = encrypt_shares(self.round, self.slot, self.words, parts)
        return dict(enumerate(shares))


def _table(**cells: int) -> list[int]:
    return [cells.get(f"c{n}", 0) % MODULUS128 for n in range(16)]


def _moved(parts: Parts) -> Parts:
    """Forty more in the first cell of the leader's share."""
    first, second = parts
    at, size = PUBLIC_SIZE, FIELD128.size
    value = (int.from_bytes(first[at : at + size], "little") + 40) % MODULUS128
    return first[:at] + value.to_bytes(size, "little") + first[at + size :], second


def _other_public(role: int) -> Callable[[Parts], Parts]:
    """One server gets another public share than the other: parts of joint randomness differ."""

    def change(parts: Parts) -> Parts:
        changed = [bytes(PUBLIC_SIZE) + part[PUBLIC_SIZE:] for part in parts]
        return (changed[0], parts[1]) if role == 0 else (parts[0], changed[1])

    return change


def _unreadable(parts: Parts) -> Parts:
    return parts[0][:PUBLIC_SIZE] + b"\xff" * (len(parts[0]) - PUBLIC_SIZE), parts[1]


MALICIOUS: dict[str, Callable[[TablePoisoner], Parts]] = {
    "two cells": lambda attacker: attacker.claiming(_table(c1=1, c5=1)),
    "forty in one cell": lambda attacker: attacker.claiming(_table(c1=40)),
    "none": lambda attacker: attacker.claiming(_table()),
    "less than none elsewhere": lambda attacker: attacker.claiming(_table(c1=2, c5=-1)),
    "many that sum to one": lambda attacker: attacker.claiming(_table(c1=40, c3=-39)),
    "moved after the proof": lambda attacker: _moved(attacker.honest(3)),
    "the leader has another public share": lambda attacker: _other_public(0)(attacker.honest(3)),
    "the helper has another public share": lambda attacker: _other_public(1)(attacker.honest(3)),
    "no field elements": lambda attacker: _unreadable(attacker.honest(3)),
    "another cell's helper share": lambda attacker: (
        attacker.honest(3)[0],
        attacker.claiming(_table(c3=1))[1],
    ),
}


def _released(one: Deployed) -> tuple[int, list[float]]:
    row = max(one.coordinator.rounds(Stage.RELEASED), key=lambda row: row.number)
    assert row.reports is not None
    return row.reports, json.loads(row.total or "")


def test_terms_and_rounds_with_proofs_carry_table_parameters(one: Deployed) -> None:
    assert one.pinned.terms.kind == "verified"
    announced = accept(TwoServerRound, one.pinned, policy_slot(one).announcement)
    assert isinstance(announced.proofs, TableProofs)
    assert announced.modulus == MODULUS128
    assert announced.length == 16


def test_malicious_reports_are_dropped_and_the_others_summed(one: Deployed) -> None:
    """Every kind at once beside honest ones: sums and counts are those of the honest reports."""
    asked = one.join(len(MALICIOUS) + 12)
    bad, good = asked[: len(MALICIOUS)], asked[len(MALICIOUS) :]
    sent: list[Any] = [
        (each, attacker.encrypted(make(attacker)))
        for each, make in zip(bad, MALICIOUS.values(), strict=True)
        for attacker in [TablePoisoner(one, each)]
    ]
    expected = [0] * 16
    for number, each in enumerate(good):
        cell = (number % 4, number % 2, number // 4 % 2)
        binding = accept(TwoServerRound, one.pinned, each.announcement).binding
        numbers = numbers_of(one.pinned.terms, binding, cell)
        expected = [a + b for a, b in zip(expected, numbers, strict=True)]
        sent.append((each, one.report(each, *cell)))
    assert set(one.send(sent)) == {None}
    one.clock.now += 200
    one.step(3)
    assert _released(one) == (len(good), expected)


@pytest.mark.parametrize("name", ["honest", "two cells", "none", "less than none elsewhere"])
def test_the_malicious_report_would_verify_if_it_were_one_hot(one: Deployed, name: str) -> None:
    """The same prover passes with an honest table: what is dropped above is dropped for cause."""
    attackers = [TablePoisoner(one, each) for each in one.join(11)]
    single = attackers[0].claiming(_table(c3=1))
    tried = MALICIOUS[name](attackers[0]) if name in MALICIOUS else single
    sent = [attacker.encrypted(attacker.honest(3)) for attacker in attackers[1:]]
    sent.append(attackers[0].encrypted(tried))
    assert one.helper is not None
    for party, role in ((one.coordinator, 0), (one.helper, 1)):
        for attacker, shares in zip([*attackers[1:], attackers[0]], sent, strict=True):
            waiting = party.report(attacker.round.identity, attacker.slot.number, shares[role])
            assert party.keep([waiting]) == [None]
    one.clock.now += 200
    one.step(3)
    reports, sums = _released(one)
    assert reports == sums[3] == (11 if name == "honest" else 10)
    assert sum(sums) == reports


def test_without_proofs_one_report_can_count_forty_times(tmp_path: Path) -> None:
    defined = contextual(participants=3000, evaluation=Fraction(0))
    with deployed(defined, tmp_path, options={"noise": _no_noise}) as one:
        one.step(2)
        bad, *good = one.join(11)
        about = accept(TwoServerRound, one.pinned, bad.announcement)
        assert bad.slot is not None
        assert not about.sends_seed
        words, modulus = (bytes(16), bytes([1]) * 16), about.modulus
        halves = ([20 * (n == 1) for n in range(16)] for _ in range(2))
        parts = tuple(pack_numbers(half, modulus) for half in halves)
        assert len(parts) == 2
        shares = dict(enumerate(encrypt_shares(about, bad.slot, words, parts)))
        one.send([(bad, shares), *((each, one.report(each, 0, 0, 0)) for each in good)])
        one.clock.now += 200
        one.step(3)
        reports, sums = _released(one)
    assert reports == 11
    assert sums[:2] == [10, 40]


@pytest.mark.extended
def test_a_whole_experiment_with_proofs_finds_the_best_option_per_context(tmp_path: Path) -> None:
    """Policy rounds prove cells, evaluation rounds prove bits; both servers add their noise."""
    small: dict[str, Any] = {"participants": 320, "min_batch_size": 5, "evaluation": Fraction(1, 4)}
    with deployed(contextual(proofs=True, epsilon=Fraction(8), **small), tmp_path) as one:
        rng = random.Random(3)
        while hold(one, rng):
            pass
        found = one.coordinator.estimates(one.digest)["contexts"]
    best = {each["context"]["device"]: each["option"] for each in found["answers"]}
    assert best == {"phone": "friendly", "desktop": "plain"}


def test_a_device_proves_its_report_and_rejects_rounds_without_proofs(one: Deployed) -> None:
    given, sent = policy_slot(one), list[httpx.Request]()
    own = device(one, given, sent)
    slot = own.choose(one.digest, {"device": "phone", "returning": "yes"})
    one.clock.now = (slot.reports_at or 0) + 1
    own.run_due()
    about = accept(TwoServerRound, one.pinned, given.announcement)
    sizes = {len(request.content) for request in sent if request.method == "PUT"}
    assert sizes == {about.share_size(0), about.share_size(1)}
    bare = forged(given, commitment=b"", modulus=1 << 20)
    with pytest.raises(Rejected, match="kind of the round is two-servers: must be verified"):
        device(one, bare).choose(one.digest, {"device": "phone", "returning": "yes"})
    with pytest.raises(Rejected, match="modulus of a verified round"):
        device(one, _spoilt(given)).choose(one.digest, {"device": "phone", "returning": "yes"})


def _spoilt(given: Assigned) -> Assigned:
    """The same round with the modulus of proofs of levels, which both servers signed."""
    whole = given.announcement[: -2 * SIGNATURE_SIZE]
    old = pack_integer(MODULUS128)
    assert whole.endswith(old)
    description = whole[: -len(old)] + pack_integer(MODULUS)
    signed = announce(description, [endorse(description, key) for key in SECRETS[:2]])
    return replace(given, announcement=signed)


def test_a_report_that_is_not_one_hot_is_rejected_on_the_device(one: Deployed) -> None:
    attacker = TablePoisoner(one, policy_slot(one))
    for wrong in ([0] * 16, [1, 1] + [0] * 14, [2] + [0] * 15):
        with pytest.raises(TacitError, match="a single 1 among zeros"):
            attacker.proofs.shard(wrong, attacker.tag, random.Random(1).randbytes)


def test_evidence_does_not_verify_under_other_randomness(one: Deployed) -> None:
    """Each server's seed counts, whichever is altered: both decide the same."""
    attacker = TablePoisoner(one, policy_slot(one))
    key, parts = bytes(32), attacker.honest(3)
    first, second = (attacker.proofs.prepare(key, n, attacker.tag, parts[n])[1] for n in (0, 1))
    assert attacker.proofs.accepts(first, second)
    assert not attacker.proofs.accepts(second, first)
    one_other, two_other = (part[:-1] + bytes([part[-1] ^ 1]) for part in (first, second))
    assert one_other[-32:] == two_other[-32:]
    for pair in ((one_other, second), (first, two_other), (one_other, two_other)):
        assert not attacker.proofs.accepts(*pair)


def test_the_terms_of_proofs_are_signed_and_noise_is_unchanged() -> None:
    bare, proven = (contextual(proofs=p).terms(ADDRESSES[0], KEYS[0]) for p in (False, True))
    assert proven.proofs == 1
    assert proven.noise == bare.noise
    assert proven.least_noise(chosen=True) == bare.least_noise(chosen=True)
