"""The ledger: exact, never overspent, transactional, with the required deletions."""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.service.parties import KEYS, PINS, START, Parties, pinned, rows, terms
from tests.terms import examples
from tests.terms.examples import masked

from tacit.aggregation import ReportSlot
from tacit.client import OWN_LIMIT, Device, Ledger, LedgerError
from tacit.client.entries import AcceptedSlot, OpenParticipation, ParticipationOutcome
from tacit.client.report_schedule import Attempt
from tacit.errors import Rejected, TacitError
from tacit.signatures import public_key
from tacit.terms import Account, Noise, StatedGuarantee, Terms

TOKEN = bytes(16)


OFTEN = terms(guarantee=StatedGuarantee(Fraction(1), participations=9), noise=Noise(Fraction(9)))


def joining(
    of: Terms,
    identity: bytes = bytes(16),
    cost: Fraction = Fraction(1, 2),
    place: int = 0,
    seed: bytes = bytes(32),
) -> AcceptedSlot:
    return AcceptedSlot(
        identity,
        of.digest,
        "Hello",
        cost,
        b"announcement",
        ReportSlot(place, TOKEN),
        seed,
        START,
        START + 60,
        START,
        (0,),
    )


def report_shares(running: OpenParticipation) -> dict[int, bytes]:
    assert running.levels is not None
    return {0: b"first" + bytes(running.levels), 1: b"second"}


def remembering(path: Path | str, *known: Terms) -> Ledger:
    ledger = Ledger(path)
    for of in known or (terms(),):
        ledger.remember(pinned(of), "running", START)
    return ledger


# Spending


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30), st.booleans()), max_size=12),
    st.none() | st.fractions(0, 2, max_denominator=50),
)
def test_charges_are_exact_and_within_both_limits(
    costs: list[tuple[int, int, bool]], own: Fraction | None
) -> None:
    first = terms(
        guarantee=StatedGuarantee(Fraction(1), participations=4), noise=Noise(Fraction(4))
    )
    second = terms(question="Which other?", guarantee=StatedGuarantee(Fraction(2)))
    ledger = remembering(":memory:", first, second)
    ledger.set_own_limit(own)
    spent = {first.digest: Fraction(0), second.digest: Fraction(0)}
    taken = {first.digest: 0, second.digest: 0}
    for number, (top, bottom, other) in enumerate(costs):
        of, cost = (second if other else first), Fraction(top, bottom)
        room = spent[of.digest] + cost <= of.guarantee.epsilon
        room = room and (own is None or sum(spent.values()) + cost <= own)
        room = room and taken[of.digest] < of.guarantee.participations
        identity = number.to_bytes(16, "big")
        try:
            ledger.join(joining(of, identity, cost))
            ledger.charge(identity, report_shares)
        except Rejected:
            assert not room
        else:
            assert room
            spent[of.digest] += cost
            taken[of.digest] += 1
    assert ledger.spent == sum(spent.values())
    ledger.close()


def test_reports_awaiting_encryption_reserve_budget() -> None:
    ledger = remembering(":memory:", OFTEN)
    for number in (0, 1):
        ledger.join(joining(OFTEN, bytes([number]) * 16))
    with pytest.raises(Rejected, match="epsilon of the round is"):
        ledger.join(joining(OFTEN, bytes([2]) * 16))
    assert ledger.spent == 0


def test_a_round_identity_shared_by_two_experiments_is_joined_once() -> None:
    """Colluding coordinators name the same round, slot and token: the second one is rejected."""
    second = terms(question="Which other?")
    ledger = remembering(":memory:", terms(), second)
    ledger.join(joining(terms()))
    with pytest.raises(Rejected, match="once in a round"):
        ledger.join(joining(second))
    assert len(ledger.running()) == 1


def test_a_cheap_round_counts_as_one_participation_also_after_a_restart(tmp_path: Path) -> None:
    """A round with a million times the noise costs next to nothing; the terms say twice."""
    cheap = Fraction(1, 10**6)
    successor = terms(predecessor=terms().digest, question="Which one?")
    for number in (0, 1):
        ledger = remembering(tmp_path / "ledger.db")
        ledger.join(joining(terms(), bytes([number]) * 16, cheap))
        ledger.charge(bytes([number]) * 16, report_shares)
        ledger.end(bytes([number]) * 16, ParticipationOutcome.RELEASED)
        ledger.close()
    ledger = remembering(tmp_path / "ledger.db", terms(), successor)
    for of in (terms(), successor):
        with pytest.raises(Rejected, match="number of participations is 2"):
            ledger.join(joining(of, bytes([2]) * 16, cheap))
        with pytest.raises(Rejected, match="number of participations is 2"):
            ledger.check_budget(of.digest, cheap)
    copy = Ledger(":memory:")
    copy.merge(ledger.export())
    copy.remember(pinned(terms()), "running", START)
    with pytest.raises(Rejected, match="number of participations is 2"):
        copy.join(joining(terms(), bytes([2]) * 16, cheap))
    ledger.close()


def test_only_a_refund_restores_a_participation() -> None:
    ledger = remembering(":memory:")
    for number in (0, 1):
        ledger.join(joining(terms(), bytes([number]) * 16, Fraction(1, 9)))
        ledger.charge(bytes([number]) * 16, report_shares)
    for outcome in (ParticipationOutcome.ABORTED, ParticipationOutcome.UNKNOWN):
        ledger.end(bytes(16), outcome)
        with pytest.raises(Rejected, match="participations"):
            ledger.check_budget(terms().digest, Fraction(1, 9))
    ledger.end(bytes([1]) * 16, ParticipationOutcome.ABORTED, refund=True)
    ledger.check_budget(terms().digest, Fraction(1, 9))
    known = ledger.known(terms().digest)
    assert known is not None
    assert known.account == Account(Fraction(1), 2, Fraction(1, 9), 1)


def test_the_lowest_limit_of_participations_ever_shown_applies() -> None:
    once = terms(
        predecessor=terms().digest, guarantee=StatedGuarantee(Fraction(1), participations=1)
    )
    ledger = remembering(":memory:", terms(), once, terms())
    ledger.join(joining(terms(), cost=Fraction(1, 100)))
    with pytest.raises(Rejected, match="number of participations is 1"):
        ledger.join(joining(terms(), bytes([1]) * 16, Fraction(1, 100)))


def test_the_default_limit_over_all_experiments_is_eight() -> None:
    """Siblings without a predecessor have an ε of their own each, and one participant."""
    known = [
        terms(question=f"Which, once more? {n}", guarantee=StatedGuarantee(Fraction(3)))
        for n in range(3)
    ]
    ledger = remembering(":memory:", *known)
    assert ledger.own_limit == OWN_LIMIT == 8
    for number, of in enumerate(known[:2]):
        ledger.join(joining(of, bytes([number]) * 16, Fraction(3)))
    with pytest.raises(Rejected, match=r"at most .*, the rest of your own limit 8 over all"):
        ledger.join(joining(known[2], bytes([2]) * 16, Fraction(2) + Fraction(1, 10**9)))
    ledger.set_own_limit(None)
    ledger.check_budget(known[2].digest, Fraction(3))
    ledger.set_own_limit(OWN_LIMIT)
    ledger.join(joining(known[2], bytes([2]) * 16, Fraction(2)))


def test_an_apps_limit_can_only_lower_the_current_one(tmp_path: Path) -> None:
    """Also the default: an app neither raises it nor switches it off in passing."""

    def released(**given: Any) -> Fraction | None:
        ledger = Ledger(tmp_path / "ledger.db")
        Device(ledger, PINS, **given).close()
        limit = ledger.own_limit
        ledger.close()
        return limit

    for fresh in ({}, {"limit": None}, {"limit": Fraction(1000)}):
        ledger = Ledger(":memory:")
        Device(ledger, PINS, **fresh).close()
        assert ledger.own_limit == OWN_LIMIT
    assert released(limit=Fraction(20)) == 8
    assert released(limit=None) == 8
    assert released(limit=Fraction(3, 2)) == Fraction(3, 2)
    assert released(limit=Fraction(2)) == Fraction(3, 2)
    assert released() == Fraction(3, 2)


def test_raising_or_removing_the_limit_needs_an_explicit_call() -> None:
    ledger = Ledger(":memory:")
    ledger.set_own_limit(Fraction(20))
    Device(ledger, PINS, limit=Fraction(30)).close()
    assert ledger.own_limit == 20
    ledger.set_own_limit(None)
    Device(ledger, PINS, limit=None).close()
    assert ledger.own_limit is None
    ledger.lower_own_limit(Fraction(9))
    assert ledger.own_limit == 9


def test_experiments_of_the_same_party_are_listed_together_with_their_total() -> None:
    """One key in common is enough, of coordinator or helper; also where another device was."""

    def by(*keys: int) -> Terms:
        named = zip(terms().parties, keys, strict=True)
        parties = tuple(replace(party, key=public_key(KEYS[key])) for party, key in named)
        return terms(question=f"By {keys}?", parties=parties)

    known = [by(0, 1), by(2, 3), by(0, 2)]
    ledger = remembering(":memory:", *known[:2])
    for number, cost in ((0, Fraction(1, 2)), (1, Fraction(1, 3))):
        ledger.join(joining(known[number], bytes([number]) * 16, cost))
    first, second = ledger.overview()
    assert (first.spent, second.spent) == (Fraction(1, 2), Fraction(1, 3))
    assert [one.question for one in first.experiments] == ["By (0, 1)?"]
    ledger.remember(pinned(known[2]), "running", START)
    (group,) = ledger.overview()
    assert group.spent == Fraction(5, 6)
    assert group.keys == tuple(sorted(public_key(key).hex() for key in KEYS))
    assert [one.question for one in group.experiments] == [of.question for of in known]
    assert [one.taken for one in group.experiments] == [1, 1, 0]
    (exported,) = json.loads(ledger.export())["parties"]
    assert exported == {
        "keys": list(group.keys),
        "experiments": [[of.digest.hex()] for of in known],
        "spent": "5/6",
    }
    copy = Ledger(":memory:")
    copy.merge(ledger.export())
    (again,) = copy.overview()
    assert (again.keys, again.spent) == (group.keys, Fraction(5, 6))
    assert [one.question for one in again.experiments] == [None] * 3
    assert copy.export() == ledger.export()


def test_sums_of_many_long_fractions_are_exported_or_rejected() -> None:
    """Their common denominator has more digits than Python prints."""
    ledger, digest = Ledger(":memory:"), terms().digest
    costs = [Fraction(1, 10**70 + number) for number in range(80)]
    rounds = [
        {"round": f"{n:032x}", "report": f"{n:032x}", "cost": str(cost), "charged": True}
        for n, cost in enumerate(costs)
    ]
    entry = {"terms": [digest.hex()], "keys": [], "epsilon": "1", "withdrawn": False}
    entry |= {"participations": 99, "rounds": [one | {"refused": False} for one in rounds]}
    document = json.loads(ledger.export()) | {"experiments": [entry]}
    ledger.merge(json.dumps(document))
    assert ledger.spent == sum(costs)
    assert json.loads(ledger.export())["parties"][0]["spent"] == "8.00000000000E-69"
    ledger.check_budget(digest, Fraction(1, 2))
    with pytest.raises(Rejected, match=r"at most 1\.00000000000, the rest of the privacy budget 1"):
        ledger.check_budget(digest, Fraction(1))
    ledger.set_own_limit(Fraction(1, 2))
    with pytest.raises(Rejected, match="the rest of your own limit 1/2"):
        ledger.check_budget(digest, Fraction(1, 2))


def test_the_participants_own_limit_includes_other_experiments() -> None:
    first, second = terms(), terms(question="Which other?")
    ledger = remembering(":memory:", first, second)
    ledger.set_own_limit(Fraction(3, 4))
    ledger.join(joining(first))
    ledger.charge(bytes(16), report_shares)
    with pytest.raises(Rejected, match="must be at most 1/4, the rest of your own limit 3/4"):
        ledger.join(joining(second, bytes([1]) * 16))
    ledger.join(joining(second, bytes([1]) * 16, Fraction(1, 4)))


def test_the_smallest_epsilon_ever_shown_is_the_limit() -> None:
    ledger = remembering(":memory:")
    smaller = terms(
        predecessor=terms().digest,
        guarantee=StatedGuarantee(Fraction(1, 2), participations=2),
        noise=Noise(Fraction(4)),
    )
    ledger.remember(pinned(smaller), "running", START)
    ledger.remember(pinned(terms()), "running", START)
    for digest in (terms().digest, smaller.digest):
        known = ledger.known(digest)
        assert known is not None
        assert known.account.limit == Fraction(1, 2)
    ledger.join(joining(terms()))
    with pytest.raises(Rejected, match="at most 0, the rest of the privacy budget 1/2"):
        ledger.join(joining(smaller, bytes([1]) * 16))


def test_charge_and_ciphertext_are_stored_atomically(tmp_path: Path) -> None:
    ledger = remembering(tmp_path / "ledger.db")
    ledger.join(joining(terms()))
    seen = []

    def make(_: OpenParticipation) -> dict[int, bytes]:
        seen.append(rows(ledger, "SELECT charged, levels FROM rounds"))
        raise Rejected("not this one")

    with pytest.raises(Rejected):
        ledger.charge(bytes(16), make)
    assert seen == [[(0, "[0]")]]
    assert rows(ledger, "SELECT charged, levels FROM rounds") == [(0, "[0]")]
    assert rows(ledger, "SELECT * FROM shares") == []
    ledger.charge(bytes(16), report_shares)
    assert rows(ledger, "SELECT charged, levels FROM rounds") == [(1, None)]
    assert rows(ledger, "SELECT encrypted FROM shares") == [(b"first\x00",), (b"second",)]
    ledger.charge(bytes(16), lambda _: pytest.fail("encrypted twice"))
    ledger.close()


def test_a_limit_lowered_after_joining_withholds_the_report() -> None:
    """A round is checked again when it is charged: nothing is encrypted beyond a limit."""
    about: dict[str, Any] = {
        "guarantee": StatedGuarantee(Fraction(1, 4), participations=2),
        "noise": Noise(Fraction(8)),
    }
    smaller = terms(predecessor=terms().digest, **about)
    for own in (True, False):
        ledger = remembering(":memory:")
        ledger.join(joining(terms()))
        if own:
            ledger.set_own_limit(Fraction(1, 4))
        else:
            ledger.remember(pinned(smaller), "running", START)
        with pytest.raises(Rejected, match="epsilon of the round is 1/2: must be at most 1/4"):
            ledger.charge(bytes(16), lambda _: pytest.fail("encrypted"))
        assert ledger.spent == 0
        assert ledger.deliveries(bytes(16)) == ()
        ledger.close()


def test_a_transaction_is_applied_completely_or_not_at_all(tmp_path: Path) -> None:
    ledger = remembering(tmp_path / "ledger.db")

    def fail() -> None:
        with ledger.together():
            ledger.join(joining(terms()))
            ledger.charge(bytes(16), report_shares)
            assert ledger.spent == Fraction(1, 2)
            assert rows(ledger, "SELECT * FROM rounds") == []  # nobody else sees it yet
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert ledger.spent == 0
    assert not ledger.running()
    with ledger.together():
        ledger.join(joining(terms()))
        ledger.charge(bytes(16), report_shares)
    assert rows(ledger, "SELECT charged FROM rounds") == [(1,)]
    ledger.close()


def test_a_refund_happens_once(tmp_path: Path) -> None:
    ledger = remembering(tmp_path / "ledger.db")
    for number in (0, 1):
        ledger.join(joining(terms(), bytes([number]) * 16))
        ledger.charge(bytes([number]) * 16, report_shares)
    for _ in range(2):
        ledger.end(bytes(16), ParticipationOutcome.ABORTED, refund=True)
    assert ledger.spent == Fraction(1, 2)
    ledger.close()


SPENDER = """
import sys
from fractions import Fraction
from tacit.errors import Rejected
from tacit.client import Ledger
from tests.service.test_ledger import OFTEN, report_shares, joining

ledger, name = Ledger(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
won = 0
for number in range(20):
    identity = bytes([name, number]) * 8
    try:
        ledger.join(joining(OFTEN, identity, Fraction(1, 8)))
        ledger.charge(identity, report_shares)
    except Rejected:
        continue
    won += 1
print(won)
"""


def test_two_processes_cannot_overspend_together(tmp_path: Path) -> None:
    ledger = remembering(tmp_path / "ledger.db", OFTEN)
    command = [sys.executable, "-c", SPENDER, ledger.path]
    spenders = [
        subprocess.Popen(
            [*command, str(name)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in (1, 2)
    ]
    for spender in spenders:
        assert spender.stdout is not None
        assert spender.stdout.readline() == "ready\n"
    for spender in spenders:
        assert spender.stdin is not None
        spender.stdin.write("go\n")
        spender.stdin.flush()
    won = [int(spender.communicate(timeout=100)[0]) for spender in spenders]
    assert sum(won) == 8
    assert ledger.spent == 1
    ledger.close()


def test_no_other_writer_intervenes_between_check_and_charge(ledger: Ledger) -> None:
    ledger.remember(pinned(terms()), "running", START)
    ledger.join(joining(terms()))

    def make(running: OpenParticipation) -> dict[int, bytes]:
        other = sqlite3.connect(ledger.path, timeout=0)
        with closing(other), pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        return report_shares(running)

    ledger.charge(bytes(16), make)
    assert ledger.spent == Fraction(1, 2)


def test_a_due_attempt_is_made_by_one_process(ledger: Ledger) -> None:
    ledger.remember(pinned(terms()), "running", START)
    ledger.join(joining(terms()))
    ledger.charge(bytes(16), report_shares)
    first, second = ledger.deliveries(bytes(16))
    assert ledger.claim(first, Attempt.REPORT, START)
    assert not ledger.claim(first, Attempt.REPORT, START)
    assert ledger.claim(second, Attempt.REPORT, START)
    (again, _) = ledger.deliveries(bytes(16))
    assert again.attempts == {Attempt.REPORT: (1, START), Attempt.OUTCOME: (0, 0.0)}
    assert ledger.claim(again, Attempt.REPORT, START + 1)


# Disks and files


@contextmanager
def no_room() -> Iterator[None]:
    """No byte more fits into any file of this process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_withholds_every_report(ledger: Ledger) -> None:
    parties = Parties()
    parties.open()
    device = parties.device(ledger)
    device.join(parties.experiment)
    device.record(parties.experiment, 1)
    before, requests = rows(ledger, "SELECT * FROM rounds"), len(parties.trace)
    parties.clock.now = device.status()[0].reports_at
    with no_room(), pytest.raises(LedgerError, match=r"nothing is sent: .* free the disk"):
        device.run_due()
    assert len(parties.trace) == requests
    assert rows(ledger, "SELECT * FROM rounds") == before
    assert ledger.spent == 0
    device.wait_and_report()
    assert len(parties.trace) == requests + 2


def test_a_full_disk_when_joining_requests_no_slot(ledger: Ledger) -> None:
    parties = Parties()
    parties.open()
    device = parties.device(ledger)
    with no_room(), pytest.raises(LedgerError):
        device.join(parties.experiment)
    assert [seen.method for seen in parties.trace] == ["GET", "GET"]
    assert rows(ledger, "SELECT * FROM terms") == []
    assert device.join(parties.experiment).asked


def test_a_failed_write_charges_and_stores_nothing(ledger: Ledger) -> None:
    ledger.remember(pinned(terms()), "running", START)
    ledger.join(joining(terms()))
    pages = ledger._db.execute("PRAGMA page_count").fetchone()[0]
    ledger._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(LedgerError, match="full"):
        ledger.charge(bytes(16), lambda _: {0: bytes(5000), 1: bytes(50_000)})
    assert ledger.spent == 0
    assert rows(ledger, "SELECT levels FROM rounds") == [("[0]",)]
    assert rows(ledger, "SELECT * FROM shares") == []


@pytest.mark.parametrize(
    "content", [b"no database at all" * 100, b"SQLite format 3\x00" + bytes(4000), b"\x00" * 5000]
)
def test_a_file_that_is_no_ledger_is_rejected_unchanged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(content)
    with pytest.raises(LedgerError, match="nothing"):
        Ledger(path)
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE own (name TEXT)")
        db.commit()
    with pytest.raises(LedgerError, match="is no ledger"):
        Ledger(path)


def test_a_ledger_of_an_older_format_is_rejected_with_a_remedy(tmp_path: Path) -> None:
    ledger = remembering(tmp_path / "ledger.db")
    ledger._run("PRAGMA user_version=3")
    ledger.close()
    with pytest.raises(
        LedgerError, match=r"a ledger of format 3: must be .* 5\. .* use the version"
    ):
        Ledger(tmp_path / "ledger.db")


def test_a_damaged_ledger_is_rejected_and_nothing_is_sent(tmp_path: Path) -> None:
    parties = Parties()
    parties.open()
    path = tmp_path / "ledger.db"
    ledger = Ledger(path)
    parties.device(ledger).join(parties.experiment)
    ledger.close()
    whole = bytearray(path.read_bytes())
    for page in range(4096, len(whole), 4096):
        whole[page : page + 64] = os.urandom(64)
    path.write_bytes(bytes(whole))
    requests = len(parties.trace)
    with pytest.raises(LedgerError, match="nothing is sent"):
        parties.device(Ledger(path)).run_due()
    assert len(parties.trace) == requests


def test_forged_terms_in_the_file_are_not_trusted(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = remembering(path)
    weak = terms(guarantee=StatedGuarantee(Fraction(9)))
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE terms SET text = ?", (weak.encode(),))
        db.commit()
    with pytest.raises(LedgerError, match="did not sign"):
        ledger.known(terms().digest)
    ledger.close()


def test_the_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    assert (tmp_path / "ledger.db").stat().st_mode & 0o077 == 0
    ledger.close()


def test_an_unusable_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="missing"):
        Ledger(tmp_path / "missing" / "ledger.db")


# Export and import


def spent_ledger(count: int, start: int = 0) -> Ledger:
    ledger = remembering(":memory:", OFTEN)
    for number in range(start, start + count):
        identity = bytes([number]) * 16
        ledger.join(joining(OFTEN, identity, Fraction(1, 4)))
        ledger.charge(identity, report_shares)
    return ledger


def test_an_export_contains_neither_answers_nor_ciphertexts() -> None:
    ledger = spent_ledger(2)
    ledger.join(joining(OFTEN, bytes([9]) * 16, Fraction(1, 4)))
    text = ledger.export()
    assert "first" not in text
    document = json.loads(text)
    assert set(document) == {"format", "own_limit", "experiments", "parties"}
    (entry,) = document["experiments"]
    assert {name for one in entry["rounds"] for name in one} == {
        "round",
        "report",
        "cost",
        "charged",
        "refused",
    }
    assert all(one["charged"] for one in entry["rounds"])  # what waits will be


def test_merged_ledgers_add_up_and_count_common_entries_once() -> None:
    one, other = spent_ledger(2), spent_ledger(2, start=1)
    other.set_own_limit(Fraction(5))
    one.set_own_limit(Fraction(6))
    one.merge(other.export())
    assert one.spent == Fraction(3, 4)
    assert one.own_limit == Fraction(5)
    one.merge(other.export())
    one.merge(one.export())
    assert one.spent == Fraction(3, 4)


def reporting(seed: int, charge: bool = True) -> Ledger:
    """A device that takes part in the round 00…, once."""
    ledger = remembering(":memory:", OFTEN)
    ledger.join(joining(OFTEN, cost=Fraction(1, 4), seed=bytes([seed]) * 32))
    if charge:
        ledger.charge(bytes(16), report_shares)
    return ledger


def test_two_devices_that_report_in_one_round_count_twice() -> None:
    one, other, third = reporting(1), reporting(2), Ledger(":memory:")
    for ledger in (one, other, one, third):
        for source in (one, other):
            ledger.merge(source.export())
    for ledger in (one, other, third):
        assert ledger.spent == Fraction(1, 2)
        assert [one.taken for group in ledger.overview() for one in group.experiments] == [2]
    assert json.loads(one.export()) == json.loads(other.export()) == json.loads(third.export())
    assert len(one.receipts()) == len(other.receipts()) == 1
    with pytest.raises(Rejected, match="was joined before"):
        one.check_round(OFTEN.digest, bytes(16), ReportSlot(1, TOKEN), Fraction(1, 4), START)


def test_participations_of_both_devices_in_one_round_use_budget() -> None:
    twice = terms(
        guarantee=StatedGuarantee(Fraction(1), participations=2), noise=Noise(Fraction(2))
    )
    one, other = (remembering(":memory:", twice) for _ in range(2))
    for number, ledger in enumerate((one, other)):
        ledger.join(joining(twice, cost=Fraction(1, 4), seed=bytes([number]) * 32))
    one.merge(other.export())
    one.charge(bytes(16), report_shares)  # room for both: its own counts once
    with pytest.raises(Rejected, match="number of participations is 2"):
        one.join(joining(twice, bytes([1]) * 16, Fraction(1, 4)))


def test_outcomes_of_participations_are_independent() -> None:
    """The other device's row in the same round is neither recorded, charged, ended nor refunded."""
    one = reporting(1, charge=False)
    one.merge(reporting(2).export())
    assert one.spent == Fraction(1, 4)
    assert one.record(OFTEN.digest, {0: 1})
    assert [row["levels"] for row in one._all("SELECT * FROM rounds ORDER BY levels")] == [
        None,
        "[1]",
    ]
    known = one.known(OFTEN.digest)
    assert known is not None
    assert (known.reports_at, known.pending) == (START + 60, Fraction(1, 4))
    one.charge(bytes(16), report_shares)
    assert one.spent == Fraction(1, 2)
    assert [len(receipt.shares) for receipt in one.receipts()] == [2]
    one.end(bytes(16), ParticipationOutcome.ABORTED, refund=True)
    assert one.spent == Fraction(1, 4)
    one.merge(reporting(1).export())  # an old export of this device
    assert one.spent == Fraction(1, 4)


def test_an_aborted_round_of_two_devices_is_one_aborted_round() -> None:
    one, other = reporting(1), reporting(2)
    for ledger in (one, other):
        ledger.end(bytes(16), ParticipationOutcome.ABORTED, refund=True)
    one.merge(other.export())
    known = one.known(OFTEN.digest)
    assert known is not None
    assert (known.aborted, one.spent) == (1, Fraction(0))


def test_an_import_keeps_limits_of_unknown_terms() -> None:
    new = Ledger(":memory:")
    new.merge(spent_ledger(4).export())
    new.remember(pinned(OFTEN), "running", START)
    with pytest.raises(Rejected, match="at most 0, the rest of the privacy budget 1"):
        new.join(joining(OFTEN, bytes([77]) * 16))


def test_an_import_never_lowers_spending_nor_raises_limits() -> None:
    ledger = spent_ledger(2)
    ledger.set_own_limit(Fraction(1))
    document = json.loads(ledger.export())
    document["own_limit"] = "100"
    (entry,) = document["experiments"]
    entry["epsilon"], entry["participations"] = "100", 100
    for one in entry["rounds"]:
        one |= {"charged": False, "cost": "0", "refused": True}
    ledger.merge(json.dumps(document))
    known = ledger.known(OFTEN.digest)
    assert known is not None
    assert known.account == Account(Fraction(1), 9, Fraction(1, 2), 2)
    assert ledger.own_limit == 1


def test_withdrawal_survives_imports() -> None:
    left, other = spent_ledger(1), spent_ledger(1, start=1)
    left.withdraw(OFTEN.digest)
    other.merge(left.export())
    with pytest.raises(Rejected, match="has left the experiment"):
        other.join(joining(OFTEN, bytes([9]) * 16))
    second = terms(predecessor=terms().digest, question="Which one?")
    third = terms(predecessor=second.digest, question="Which other?")
    apart = remembering(":memory:", terms(), third)
    apart.withdraw(third.digest)
    apart.join(joining(terms(), bytes([1]) * 16))
    apart.remember(pinned(second), "running", START)  # all three belong together
    with pytest.raises(Rejected, match="has left the experiment"):
        apart.join(joining(terms(), bytes([2]) * 16))


def test_withdrawal_deletes_unsent_data_and_refunds_nothing() -> None:
    ledger = remembering(":memory:", OFTEN)
    encrypted, waiting = bytes(16), bytes([1]) * 16
    ledger.join(joining(OFTEN, encrypted, Fraction(1, 3)))
    ledger.charge(encrypted, report_shares)
    ledger.join(replace(joining(OFTEN, waiting, Fraction(1, 4)), until=START + 500))
    assert ledger.nonce(OFTEN.digest, b"old") == b"old"
    ledger.withdraw(OFTEN.digest)
    assert not ledger.running()
    assert not ledger.deliveries(encrypted)
    assert [row["encrypted"] for row in ledger._all("SELECT encrypted FROM shares")] == [None] * 2
    assert {row["levels"] for row in ledger._all("SELECT levels FROM rounds")} == {None}
    assert ledger.spent == Fraction(1, 3)
    ledger.charge(waiting, lambda _running: pytest.fail("encrypted"))
    known = ledger.known(OFTEN.digest)
    assert known is not None
    assert (known.withdrawn, known.option, known.until, known.reports_at) == (True, None, 0, None)
    assert ledger.nonce(OFTEN.digest, b"new") == b"new"


def test_deleted_data_is_overwritten_in_the_file(tmp_path: Path) -> None:
    """A stolen device shows no answer, and no share that was sent or abandoned."""
    path = tmp_path / "ledger.db"
    ledger = remembering(path, OFTEN)
    kept, left = bytes(16), bytes([1]) * 16
    for identity in (kept, left):
        ledger.join(replace(joining(OFTEN, identity, Fraction(1, 9)), until=START))
        ledger.record(OFTEN.digest, dict.fromkeys(range(len(OFTEN.answer.metrics)), 424242))
        assert b"424242" in path.read_bytes()
    ledger.charge(kept, lambda _: {0: b"\xa5one" * 99, 1: b"\xa5two" * 99})
    assert b"\xa5one" * 99 in path.read_bytes()
    for delivery in ledger.deliveries(kept):
        ledger.accepted(delivery, START)
    ledger.withdraw(OFTEN.digest)
    for secret in (b"424242", b"\xa5one", b"\xa5two"):
        assert secret not in path.read_bytes()
    ledger.close()


def test_an_absorbed_line_of_terms_leaves_its_keys_only() -> None:
    ledger = Ledger(":memory:")
    empty = json.loads(ledger.export())
    apart = [ENTRY | {"terms": [f"0{n}"], "keys": [f"{n}a" * 32]} for n in (1, 2)]
    ledger.merge(json.dumps(empty | {"experiments": apart}))
    assert len(ledger.overview()) == 2
    ledger.merge(json.dumps(empty | {"experiments": [ENTRY | {"terms": ["01", "02"]}]}))
    (party,) = ledger.overview()
    assert party.keys == ("1a" * 32, "2a" * 32)
    assert [one.terms for one in party.experiments] == [("01", "02")]
    assert len({row["lineage"] for row in ledger._all("SELECT lineage FROM keys")}) == 1


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
def test_merged_lines_of_terms_have_the_lowest_limits(order: tuple[int, ...]) -> None:
    """Whichever of them was stored first; the document that unites them has the last limits."""
    ledger = Ledger(":memory:")
    empty = json.loads(ledger.export())
    limits = [{"epsilon": "2", "participations": 3}, {"epsilon": "1", "participations": 5}]
    limits += [{"epsilon": "3/2", "participations": 4}]
    first, second, last = (ENTRY | limits[place] for place in order)
    apart = [first | {"terms": ["01"]}, second | {"terms": ["02"]}]
    ledger.merge(json.dumps(empty | {"experiments": apart}))
    ledger.merge(json.dumps(empty | {"experiments": [last | {"terms": ["01", "02"]}]}))
    (entry,) = json.loads(ledger.export())["experiments"]
    assert (entry["epsilon"], entry["participations"]) == ("1", 3)


def test_only_an_aborted_round_is_exported_as_aborted() -> None:
    """A participation that one copy of a device missed is charged if the other copy sent it."""
    missed = reporting(1, charge=False)
    missed.end(bytes(16), ParticipationOutcome.MISSED, refund=False)
    other = remembering(":memory:", OFTEN)
    for source, spent in ((missed, Fraction(0)), (reporting(1), Fraction(1, 4))):
        other.merge(source.export())
        known = other.known(OFTEN.digest)
        assert known is not None
        assert (known.aborted, other.spent) == (0, spent)


def test_a_locally_proven_refund_survives_an_old_export() -> None:
    ledger = spent_ledger(1)
    old = ledger.export()
    ledger.end(bytes(16), ParticipationOutcome.ABORTED, refund=True)
    ledger.merge(old)
    assert ledger.spent == 0


def test_an_import_merges_lines_found_to_be_one() -> None:
    first = terms()
    second = terms(predecessor=first.digest, question="Which one?")
    third = terms(predecessor=second.digest, question="Which other?")
    apart = remembering(":memory:", first, third)
    apart.join(joining(first, bytes([1]) * 16, Fraction(3, 4)))
    apart.join(joining(third, bytes([2]) * 16, Fraction(3, 4)))
    apart.merge(remembering(":memory:", first, second).export())
    known = apart.known(third.digest)
    assert known is not None
    assert known.pending == Fraction(3, 2)
    with pytest.raises(Rejected):
        apart.join(joining(first, bytes([3]) * 16, Fraction(1, 100)))


def test_terms_found_to_be_related_share_one_account() -> None:
    first = terms()
    less = {
        "guarantee": StatedGuarantee(Fraction(3, 4), participations=2),
        "noise": Noise(Fraction(3)),
    }
    second = terms(predecessor=first.digest, **less)
    third = terms(predecessor=second.digest, question="?", **less)
    ledger = remembering(":memory:", first, third)
    ledger.join(joining(first, bytes([1]) * 16, Fraction(1, 2)))
    ledger.charge(bytes([1]) * 16, report_shares)
    ledger.check_budget(third.digest, Fraction(1, 2))
    ledger.remember(pinned(second), "running", START)
    with pytest.raises(Rejected, match="at most 1/4, the rest of the privacy budget 3/4"):
        ledger.check_budget(third.digest, Fraction(1, 2))
    known = ledger.known(first.digest)
    assert known is not None
    assert known.pinned.terms == first  # nobody has signed yet that others succeed them
    for of in (second, third):
        ledger.remember(pinned(of), "running", START, approved=True)
        ledger.remember(pinned(of), "running", START)
    known = ledger.known(first.digest)
    assert known is not None
    assert known.pinned.terms == third


ROUND = {"round": "01", "report": "00" * 16, "cost": "1/2", "charged": True, "refused": False}
ENTRY: dict[str, object] = {
    "terms": ["00"],
    "keys": [],
    "epsilon": "1",
    "participations": 1,
    "withdrawn": False,
    "rounds": [],
}


def test_a_child_entry_is_imported_completely() -> None:
    document = json.loads(Ledger(":memory:").export()) | {"experiments": [ENTRY]}
    ledger = Ledger(":memory:")
    ledger.merge(json.dumps(document))
    ledger.check_budget(bytes(1), Fraction(1))
    ledger.merge(json.dumps(document | {"experiments": [ENTRY | {"rounds": [ROUND]}]}))
    assert ledger.spent == Fraction(1, 2)


@pytest.mark.parametrize(
    "change",
    [
        {"format": "tacit ledger 1"},
        {"format": "tacit ledger 2"},
        {"format": "tacit ledger 9"},
        {"own_limit": "-1"},
        {"own_limit": "1e999999999"},
        {"own_limit": 1},
        {"experiments": [{}]},
        {"experiments": [ENTRY | {"terms": []}]},
        {"experiments": [ENTRY | {"terms": ["zz"]}]},
        {"experiments": [ENTRY | {"epsilon": "1/0"}]},
        {"experiments": [ENTRY | {"participations": "1"}]},
        {"experiments": [ENTRY | {"participations": -1}]},
        {"experiments": [ENTRY | {"keys": ["zz"]}]},
        {"experiments": [ENTRY | {"keys": 1}]},
        {"experiments": [ENTRY | {"rounds": [ROUND | {"report": ""}]}]},
        {"experiments": [ENTRY | {"rounds": [ROUND | {"report": None}]}]},
        {"experiments": [ENTRY | {"rounds": [ROUND | {"report": "00" * 15}]}]},
        {"experiments": 7},
    ],
)
def test_an_invalid_export_is_rejected_completely(change: dict[str, object]) -> None:
    ledger = spent_ledger(1)
    before = ledger.export()
    document = json.loads(spent_ledger(3).export()) | change
    with pytest.raises(TacitError, match="export of the ledger is invalid"):
        ledger.merge(json.dumps(document))
    for text in ("", "[]", "null", "{"):
        with pytest.raises(TacitError, match="export of the ledger is invalid"):
            ledger.merge(text)
    assert ledger.export() == before


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sets(st.integers(0, 3), max_size=4), min_size=2, max_size=4))
def test_merging_is_independent_of_order(parts: list[set[int]]) -> None:
    ledgers = []
    for part in parts:
        ledger = remembering(":memory:", OFTEN)
        for number in part:
            ledger.join(joining(OFTEN, bytes([number]) * 16, Fraction(1, 4)))
            ledger.charge(bytes([number]) * 16, report_shares)
        ledgers.append(ledger)
    forwards, backwards = Ledger(":memory:"), Ledger(":memory:")
    for ledger in ledgers:
        forwards.merge(ledger.export())
    for ledger in ledgers[::-1]:
        backwards.merge(ledger.export())
    assert json.loads(forwards.export()) == json.loads(backwards.export())
    assert forwards.spent == Fraction(len(set().union(*parts)), 4)
    for ledger in (*ledgers, forwards, backwards):
        ledger.close()


def test_a_limit_is_an_exact_fraction() -> None:
    ledger = Ledger(":memory:")
    for wrong in (-1, 0.5, Fraction(-1, 2), "1"):
        with pytest.raises(TacitError, match="the limit is"):
            ledger.set_own_limit(wrong)  # type: ignore[arg-type]
    ledger.set_own_limit(Fraction(1))
    ledger.set_own_limit(None)
    assert ledger.own_limit is None


def with_delta(delta: Fraction, predecessor: bytes = b"") -> Terms:
    """Terms of secure aggregation for two participations."""
    guarantee = StatedGuarantee(Fraction(1, 2), delta, participations=2)
    return masked(guarantee=guarantee, predecessor=predecessor)


def remembering_one_server(path: Path | str, *known: Terms) -> Ledger:
    ledger = Ledger(path)
    for of in known:
        ledger.remember(examples.pinned(of), "running", START)
    return ledger


def taking(ledger: Ledger, of: Terms, identity: bytes) -> None:
    """One participation, charged as the terms cost."""
    new = joining(of, identity, of.cost, seed=identity * 2)
    ledger.join(replace(new, delta=of.delta_cost, joined=START + 1000 * identity[0]))
    ledger.charge(identity, lambda _running: {0: b"report"})


def test_delta_is_charged_exported_and_merged(tmp_path: Path) -> None:
    made = with_delta(Fraction(2, 10**6))
    ledger = remembering_one_server(":memory:", made)
    ledger.join(replace(joining(made, cost=made.cost), delta=made.delta_cost))
    assert ledger.spent_delta == 0
    ledger.charge(bytes(16), lambda _running: {0: b"report"})
    assert ledger.spent_delta == Fraction(1, 10**6)
    (receipt,) = ledger.receipts()
    assert receipt.delta == Fraction(1, 10**6)
    assert "and δ = 1e-06" in receipt.in_words()[-1]
    more = replace(receipt, delta=Fraction(12345612, 10**13))
    assert "and δ = 1.235e-06" in more.in_words()[-1]  # rounded up
    assert not any("say nothing about your answer" in told for told in receipt.in_words())
    for outcome in set(ParticipationOutcome) - {ParticipationOutcome.UNKNOWN}:
        assert outcome not in replace(receipt, outcome=outcome).in_words()[-1]
    other = Ledger(tmp_path / "other")
    other.merge(ledger.export())
    assert other.spent_delta == Fraction(1, 10**6)


def test_all_participations_together_cost_at_most_the_delta_of_the_terms() -> None:
    made = with_delta(Fraction(2, 10**6))
    ledger = remembering_one_server(":memory:", made)
    for number in (1, 2):
        taking(ledger, made, bytes([number]) * 16)
    assert (ledger.spent, ledger.spent_delta) == (made.guarantee.epsilon, made.guarantee.delta)
    with pytest.raises(Rejected, match="number of participations is 2"):
        taking(ledger, made, bytes([3]) * 16)


def test_successors_with_a_smaller_delta_lower_the_remaining_budget() -> None:
    """1e-6 spent of 2e-6 is more than successors allow that guarantee 1e-6 in all."""
    first = with_delta(Fraction(2, 10**6))
    second = with_delta(Fraction(1, 10**6), first.digest)
    third = with_delta(Fraction(19, 10**7), first.digest)
    for successor, left in ((second, "at most 0"), (third, "at most 9/10000000")):
        ledger = remembering_one_server(":memory:", first)
        taking(ledger, first, bytes([1]) * 16)
        ledger.remember(examples.pinned(successor), "running", START, approved=True)
        with pytest.raises(Rejected, match=f"delta of the round is .*: must be {left}"):
            taking(ledger, successor, bytes([2]) * 16)
        assert len(ledger.receipts()) == 1  # it was not even joined
        assert ledger.spent_delta == Fraction(1, 10**6)


def test_the_delta_of_an_experiment_does_not_affect_others() -> None:
    first = with_delta(Fraction(2, 10**6))
    other = replace(with_delta(Fraction(1, 10**6)), question="Which other?")
    ledger = remembering_one_server(":memory:", other, first)
    taking(ledger, first, bytes([1]) * 16)
    taking(ledger, other, bytes([2]) * 16)
    assert ledger.spent_delta == Fraction(3, 2 * 10**6)


def test_a_smaller_delta_after_joining_withholds_the_report() -> None:
    first = with_delta(Fraction(2, 10**6))
    ledger = remembering(":memory:", first)
    ledger.join(replace(joining(first, cost=first.cost), delta=first.delta_cost))
    smaller = with_delta(Fraction(1, 10**7), first.digest)
    ledger.remember(pinned(smaller), "running", START)
    with pytest.raises(Rejected, match="delta of the round is 1/1000000: must be at most"):
        ledger.charge(bytes(16), lambda _: pytest.fail("encrypted"))
    assert ledger.spent_delta == 0


def test_a_ledger_without_delta_is_upgraded(tmp_path: Path) -> None:
    ledger = remembering(tmp_path / "old", OFTEN)
    ledger.join(joining(OFTEN))
    ledger.charge(bytes(16), report_shares)
    spent = ledger.spent
    ledger._run("ALTER TABLE rounds DROP COLUMN delta")
    ledger._run("PRAGMA user_version=4")
    ledger.close()
    upgraded = Ledger(tmp_path / "old")
    assert (upgraded.spent, upgraded.spent_delta) == (spent, Fraction(0))
