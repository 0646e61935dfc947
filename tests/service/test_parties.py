"""Coordinator and helper over their databases: accepted, stored, rejected and learned data."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import chain, repeat
from typing import Any

import pytest
import sqlalchemy as sql
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.service.pairs import (
    OPTIONS,
    START,
    TIMING,
    Link,
    Pair,
    aggregator,
    context_of,
    described,
    experiment_of,
    terms_of,
)

from tacit.aggregation.encryption import HpkeSuite
from tacit.aggregation.two_servers import (
    ReportSlot,
    RoundOutcome,
    TwoServerRound,
    aborted_by_both,
    read_outcome,
)
from tacit.client.exchange import Reply, Request
from tacit.client.openfeature import Flag
from tacit.errors import Rejected, TacitError
from tacit.service import invitations, schema
from tacit.service.assignment import Assigned, Ticket
from tacit.service.errors import Conflict, Forbidden, Gone, TooEarly, Unknown
from tacit.service.http.models import TicketRequest
from tacit.service.schema import Stage
from tacit.signatures import SIGNATURE_SIZE, public_key
from tacit.terms import HPKE_SUITES, REHEARSED, Answer, Noise, approve_successor, cosign

WORTH = {"plain": 0, "friendly": 1, "short": 0}


def silent(_identity: bytes) -> Callable[[Fraction], int]:
    """No noise at all, so that sums are what was reported."""
    return lambda _scale: 0


@pytest.fixture
def quiet(make_pair: Callable[..., Pair]) -> Pair:
    return make_pair(options={"noise": silent}, helper_options={"noise": silent})


def rounds_of(pair: Pair, digest: bytes, stage: str) -> list[dict[str, object]]:
    rounds = pair.coordinator.status(digest)["rounds"]
    return [one for one in rounds if one["stage"] == stage]


def rows(pair: Pair, role: int, table: sql.Table) -> int:
    with pair.stores[role].begin() as transaction:
        count = sql.select(sql.func.count()).select_from(table)
        return int(transaction.rows(count)[0][0])


@pytest.mark.extended
def test_an_experiment_runs_to_its_end_and_finds_the_best_option(pair: Pair) -> None:
    digest = pair.begin(experiment_of(1500))
    for _ in range(30):
        pair.hold(digest, WORTH.__getitem__)
        if pair.coordinator.status(digest)["state"] == "finished":
            break
    status, found = pair.coordinator.status(digest), pair.coordinator.estimates(digest)
    assert (status["state"], status["best"], found["best"]) == ("finished", "friendly", "friendly")
    assert status["people"]["asked"] == status["people"]["reported"] > 500
    assert status["people"]["reported"] <= 1500
    assert status["ended"] == "participants-reached"
    history = pair.coordinator.export(digest)["history"]
    assert len(history) == len(rounds_of(pair, digest, "opened")) > 3


def test_without_noise_every_sum_is_exact(quiet: Pair) -> None:
    digest = quiet.begin()
    quiet.hold(digest, WORTH.__getitem__)
    for one in rounds_of(quiet, digest, "opened"):
        assert one["reports"] == one["places"]
        assert one["sums"] == [float(WORTH[str(one["option"])] * int(str(one["places"])))]


def test_rows_of_participants_are_deleted_with_their_round(pair: Pair) -> None:
    digest = pair.begin()
    pair.step(2)
    asked = pair.participants(digest, 30)
    pair.report(digest, asked, WORTH.__getitem__)
    assert rows(pair, 0, schema.shares) == rows(pair, 1, schema.shares) == 30
    assert rows(pair, 0, schema.joins) == 30
    pair.clock.now += 200
    pair.step()
    for role in (0, 1):
        assert rows(pair, role, schema.shares) == rows(pair, role, schema.joins) == 0
        assert rows(pair, role, schema.spent) == 0


def test_one_ticket_gets_one_slot_and_another_ticket_another(pair: Pair) -> None:
    digest = pair.begin()
    pair.step(2)
    nonce = os.urandom(16)
    first = pair.join(digest, nonce)
    pair.restart()
    assert pair.join(digest, nonce) == first
    assert pair.join(digest) != first


def test_an_identical_report_is_accepted_and_another_rejected(pair: Pair) -> None:
    digest = pair.begin()
    pair.step(2)
    assigned = pair.join(digest)
    halves = pair.shares(digest, assigned, 1)
    pair.send(assigned, halves)
    pair.restart()
    pair.send(assigned, halves)
    for role in (0, 1):
        with pytest.raises(Conflict, match="a different report for this slot"):
            pair.send(assigned, pair.shares(digest, assigned, 1), to=(role,))
    assert rows(pair, 0, schema.shares) == 1


def test_the_first_of_two_reports_for_a_slot_in_one_batch_is_kept(pair: Pair) -> None:
    digest = pair.begin()
    pair.step(2)
    assigned = pair.join(digest)
    assert assigned.slot is not None
    identity, number = described(assigned).identity, assigned.slot.number
    both = [pair.shares(digest, assigned, value)[0] for value in (0, 1)]
    said = pair.coordinator.keep([pair.coordinator.report(identity, number, half) for half in both])
    assert sorted(type(one).__name__ for one in said) == ["Conflict", "NoneType"]


def test_reports_after_the_deadline_or_for_unknown_rounds_are_rejected(pair: Pair) -> None:
    digest = pair.begin()
    pair.step(2)
    assigned = pair.join(digest)
    halves = pair.shares(digest, assigned, 1)
    with pytest.raises(Unknown):
        pair.coordinator.report(bytes(16), 0, halves[0])
    pair.clock.now += 110
    for role in (0, 1):
        with pytest.raises(Gone):
            pair.send(assigned, halves, to=(role,))
    assert rows(pair, 0, schema.shares) == rows(pair, 1, schema.shares) == 0


def test_a_report_verified_before_the_close_is_not_stored_after_it(pair: Pair) -> None:
    digest = pair.begin()
    pair.step(2)
    assigned = pair.join(digest)
    assert assigned.slot is not None
    half = pair.shares(digest, assigned, 1)[1]
    waiting = pair.helper.report(described(assigned).identity, assigned.slot.number, half)
    pair.clock.now += 200
    pair.helper.step()
    (said,) = pair.helper.keep([waiting])
    assert isinstance(said, Gone)
    assert rows(pair, 1, schema.shares) == 0


def test_reports_stored_by_the_deadline_are_counted(
    quiet: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for its list in the last moment, the helper lists no round that it leaves open."""
    digest = quiet.begin()
    quiet.step(2)
    *others, last = [one for one in quiet.participants(digest, 500) if one.option == "plain"]
    quiet.report(digest, others, lambda _option: 1)
    halves, identity = quiet.shares(digest, last, 1), described(last).identity
    assert last.slot is not None
    quiet.send(last, halves, to=(0,))
    waiting = quiet.helper.report(identity, last.slot.number, halves[1])
    closes = described(last).binding.closes
    with monkeypatch.context() as passing:
        passing.setattr(quiet.helper, "_clock", chain([closes - 1], repeat(closes)).__next__)
        quiet.helper.exchange(identity, b"")
    (said,) = quiet.helper.keep([waiting])
    assert said is None
    quiet.clock.now = closes
    quiet.step()
    (released,) = rounds_of(quiet, digest, "opened")
    assert (released["reports"], released["sums"]) == (len(others) + 1, [len(others) + 1])


def test_forged_slots_and_foreign_shares_are_rejected(pair: Pair) -> None:
    digest = pair.begin()
    pair.step(2)
    assigned = pair.join(digest)
    assert assigned.slot is not None
    forged = replace(assigned, slot=ReportSlot(assigned.slot.number, bytes(16)))
    with pytest.raises(Rejected, match="was not assigned"):
        pair.send(forged, pair.shares(digest, forged, 1))
    halves = pair.shares(digest, assigned, 1)
    with pytest.raises(Rejected, match="for server 1"):
        pair.send(assigned, (halves[1], halves[0]))
    identity = described(assigned).identity
    with pytest.raises(Rejected, match=r"is for slot \d+: the path names slot"):
        pair.coordinator.report(identity, assigned.slot.number + 1, halves[0])
    assert rows(pair, 0, schema.shares) == 0


def test_participants_without_a_slot_get_the_best_option(pair: Pair) -> None:
    digest = pair.begin()
    pair.step(2)
    wanted = sum(int(str(one["places"])) for one in rounds_of(pair, digest, "open"))
    assert len(pair.participants(digest, wanted + 7)) == wanted
    assert pair.coordinator.status(digest)["people"]["served"] == 7
    assert pair.join(digest) == Assigned("plain")


@pytest.mark.parametrize("nonce", [None, bytes(16)], ids=["new", "repeated"])
def test_requests_without_a_slot_do_not_load_the_learner(pair: Pair, nonce: bytes | None) -> None:
    """As many as the horizon and more, and one nonce over and over: nothing but a count changes."""
    digest = pair.begin(experiment_of(1500))
    pair.step(2)
    wanted = sum(int(str(one["places"])) for one in rounds_of(pair, digest, "open"))
    pair.report(digest, pair.participants(digest, wanted), WORTH.__getitem__)
    extra = [Ticket(digest, nonce or os.urandom(16)) for _ in range(2000)]
    assert set(pair.coordinator.join(extra)) == {Assigned("plain")}
    before = pair.coordinator._snapshot(digest).experiment.learner.played
    pair.clock.now += 200
    pair.step()
    after = pair.coordinator._snapshot(digest)
    assert after.experiment.learner.played == before + wanted
    assert (after.served, after.settled) == (2000, 2000)
    assert after.row.state == "running"
    assert rounds_of(pair, digest, "open")


def test_slots_are_drawn_uniformly_from_the_remaining_ones(pair: Pair) -> None:
    """Chi-square over which round participants get, false alarm 1e-4."""
    digest = pair.begin(experiment_of(200_000))
    pair.step(2)
    rounds = rounds_of(pair, digest, "open")
    places = {str(one["round"]): int(str(one["places"])) for one in rounds}
    asked = pair.participants(digest, sum(places.values()) // 3)
    got = [described(one).identity.hex() for one in asked]
    share = len(got) / sum(places.values())
    chi = sum(
        (got.count(name) - share * size) ** 2 / (share * size) for name, size in places.items()
    )
    assert len(places) == 3
    assert chi / (1 - share) < 18.4


def test_a_round_below_its_minimum_is_aborted_and_skipped(pair: Pair) -> None:
    digest = pair.begin()
    pair.step(2)
    asked = pair.participants(digest, 30)
    pair.report(digest, asked[:2], WORTH.__getitem__)
    pinned, announcement = pair.coordinator.pinned(digest), asked[0].announcement
    identity = described(asked[0]).identity
    with pytest.raises(TooEarly):
        pair.coordinator.outcome(identity)
    pair.clock.now += 1000
    pair.step()
    said = [party.outcome(identity) for party in (pair.coordinator, pair.helper)]
    assert aborted_by_both(pinned, announcement, said)
    assert {one["reports"] for one in rounds_of(pair, digest, "refused")} == {0}
    assert pair.coordinator.status(digest)["state"] == "running"


def test_a_round_aborted_by_the_helper_ends_at_both_at_once(pair: Pair) -> None:
    """Enough shares at the coordinator, too few at the helper: nobody waits for the grace."""
    digest = pair.begin()
    pair.step(2)
    asked = pair.participants(digest, 100)
    for number, one in enumerate(asked):
        pair.send(one, pair.shares(digest, one, 1), to=(0, 1) if number < 5 else (0,))
    pair.clock.now += 200
    pair.step(2)
    pinned = pair.coordinator.pinned(digest)
    for announcement in {one.announcement for one in asked}:
        identity = TwoServerRound.decode(announcement[: -2 * 64]).identity
        said = [party.outcome(identity) for party in (pair.coordinator, pair.helper)]
        assert aborted_by_both(pinned, announcement, said)
    assert {one["number"] for one in rounds_of(pair, digest, "refused")} == {0, 1, 2}
    assert rounds_of(pair, digest, "open")


def test_a_round_with_dropouts_releases_the_reports_that_arrived(quiet: Pair) -> None:
    digest = quiet.begin()
    asked = quiet.hold(digest, lambda _option: 1, come=0.8)
    released = rounds_of(quiet, digest, "opened")
    assert sum(int(str(one["reports"])) for one in released) == int(asked * 0.8)
    assert all(one["sums"] == [one["reports"]] for one in released)


def test_only_reports_at_both_servers_are_counted(quiet: Pair) -> None:
    digest = quiet.begin()
    quiet.step(2)
    asked = quiet.participants(digest, 90)
    quiet.report(digest, asked[:80], lambda _option: 1)
    for one in asked[80:]:
        quiet.send(one, quiet.shares(digest, one, 1), to=(0,))
    quiet.clock.now += 200
    quiet.step()
    released = rounds_of(quiet, digest, "opened")
    assert sum(int(str(one["reports"])) for one in released) == 80


def test_an_unavailable_helper_only_delays(quiet: Pair) -> None:
    digest = quiet.begin()
    quiet.link.down = True
    quiet.step()
    assert not rounds_of(quiet, digest, "open")
    quiet.link.down = False
    quiet.step()
    asked = quiet.participants(digest, 90)
    quiet.report(digest, asked, lambda _option: 1)
    quiet.link.down = True
    quiet.clock.now += 200
    quiet.step()
    assert not rounds_of(quiet, digest, "opened")
    assert rounds_of(quiet, digest, "closing")
    quiet.restart()
    quiet.step()
    released = rounds_of(quiet, digest, "opened")
    assert sum(int(str(one["reports"])) for one in released) == len(asked) == 90


def test_a_round_not_signed_in_time_is_planned_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = pair.begin()
    monkeypatch.setattr(pair.helper, "describe", rejecting)
    pair.step()
    before = {one["round"] for one in rounds_of(pair, digest, "preparing")}
    pair.clock.now += TIMING.joining / 2 + 2
    pair.step(1)
    monkeypatch.undo()
    pair.step()
    after = {one["round"] for one in rounds_of(pair, digest, "open")}
    assert len(after) == len(before) == 3
    assert not before & after
    assert {pair.coordinator.outcome(bytes.fromhex(str(one)))[-65] for one in before} == {
        RoundOutcome.ABORTED
    }


def rejecting(*_: object) -> bytes:
    raise Rejected("no")


class RepeatingLink(Link):
    """A helper that answers every description with the first announcement that it signed."""

    first = b""

    def describe(self, description: bytes, signature: bytes) -> bytes:
        announcement = super().describe(description, signature)
        self.first = self.first or announcement
        return self.first


def test_a_round_never_opens_with_the_announcement_of_another(quiet: Pair) -> None:
    quiet.link = RepeatingLink(quiet.helper)
    digest = quiet.begin()
    quiet.step(2)
    stages = sorted(one["stage"] for one in quiet.coordinator.status(digest)["rounds"])
    assert stages.count("open") == 1
    assert len(stages) > 1


@pytest.mark.parametrize("what", ["keys", "describe"])
def test_repeated_rejections_of_a_helper_leave_no_rounds(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """It may have lost its database, and its operator be on holiday."""
    digest = pair.begin()
    monkeypatch.setattr(pair.helper, what, rejecting)
    pair.step(30)
    assert len(rounds_of(pair, digest, "preparing")) == rows(pair, 0, schema.rounds) == 3
    assert all(len(list(pair.directory.glob(f"keys{role}/*"))) <= 7 for role in (0, 1))
    monkeypatch.undo()
    pair.step()
    assert len(rounds_of(pair, digest, "open")) == 3


def test_a_round_abandoned_during_a_crash_is_planned_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key is destroyed, and the database knows nothing of it; the helper would sign."""
    digest = pair.begin()
    monkeypatch.setattr(pair.helper, "describe", rejecting)
    pair.step(2)
    before = [bytes.fromhex(str(one["round"])) for one in rounds_of(pair, digest, "preparing")]
    for identity in before:
        pair.coordinator.engine(digest).abandon(identity)
    monkeypatch.undo()
    pair.step()
    assert len(rounds_of(pair, digest, "open")) == len(before) == 3
    assert len(pair.participants(digest, 30)) == 30


def test_pause_resume_and_stop_work(pair: Pair) -> None:
    digest = pair.begin()
    pair.step(2)
    assigned = pair.join(digest)
    pair.coordinator.pause(digest)
    assert pair.join(digest).slot is None
    pair.send(assigned, pair.shares(digest, assigned, 1))
    pair.clock.now += 1000
    pair.step()
    assert not rounds_of(pair, digest, "open")
    pair.coordinator.resume(digest)
    pair.step()
    assert rounds_of(pair, digest, "open")
    pair.coordinator.stop(digest)
    pair.coordinator.stop(digest)
    with pytest.raises(Conflict, match="stopped"):
        pair.coordinator.resume(digest)
    assert pair.join(digest) == Assigned(pair.join(digest).option)


def test_no_round_starts_before_the_helper_has_signed(pair: Pair) -> None:
    experiment = experiment_of()
    digest = pair.coordinator.create(terms_of(pair.keys), experiment, TIMING)
    pair.step()
    with pytest.raises(Conflict, match="has not signed"):
        pair.join(digest)
    with pytest.raises(Rejected, match="did not sign"):
        pair.coordinator.cosign(digest, bytes(64))
    assert not pair.coordinator.status(digest)["rounds"]
    pair.cosign(digest)
    pair.step()
    assert pair.join(digest).slot is not None


def test_an_experiment_differing_from_its_terms_is_rejected(pair: Pair) -> None:
    twice = terms_of(pair.keys, answer=Answer("1 if you liked it", window=30, levels=1))
    other = replace(twice, noise=replace(twice.noise, scale=Fraction(2)))
    with pytest.raises(TacitError, match="noise of the experiment differs"):
        pair.coordinator.create(other, experiment_of(), TIMING)
    strangers = terms_of((pair.keys[1], pair.keys[0]))
    with pytest.raises(Rejected, match="coordinator's key in the terms is"):
        pair.coordinator.create(strangers, experiment_of(), TIMING)
    assert pair.coordinator.experiments() == []


def test_invitations_allow_one_participation_at_both_servers(pair: Pair) -> None:
    digest = pair.begin(admission="invitation")
    pair.step(2)
    one, two = invitations.make(digest, pair.secrets[0], 2)
    for wrong in (None, "", "x" * 107, invitations.make(bytes(32), pair.secrets[0], 1)[0]):
        with pytest.raises(Forbidden):
            pair.join(digest, invitation=wrong)
    nonce = os.urandom(16)
    first = pair.join(digest, nonce, invitation=one)
    assert pair.join(digest, nonce, invitation=one) == first
    with pytest.raises(Forbidden, match="is used: each is for one"):
        pair.join(digest, invitation=one)
    second = pair.join(digest, invitation=two)
    for assigned, mine in ((first, one), (second, two)):
        assert assigned.slot is not None
        halves = pair.shares(digest, assigned, 1)
        identity, number = described(assigned).identity, assigned.slot.number
        with pytest.raises(Forbidden):
            pair.helper.report(identity, number, halves[1])
        waiting = pair.helper.report(identity, number, halves[1], mine)
        assert pair.helper.keep([waiting, waiting]) == [None, None]
        if mine is two:
            other = pair.helper.report(identity, number, halves[1], one)
            assert isinstance(pair.helper.keep([other])[0], Forbidden)


@pytest.mark.parametrize("slots", ["none yet", "some", "all given", "paused"])
def test_invitations_are_verified_even_without_a_free_slot(pair: Pair, slots: str) -> None:
    digest = pair.begin(admission="invitation")
    used, unused, foreign = "", "", invitations.make(bytes(32), pair.secrets[0], 1)[0]
    nonce = os.urandom(16)
    if slots != "none yet":
        pair.step(2)
        wanted = sum(int(str(one["places"])) for one in rounds_of(pair, digest, "open"))
        used, unused, *others = invitations.make(digest, pair.secrets[0], wanted + 1)
        held = pair.join(digest, nonce, invitation=used)
        if slots == "all given":
            pair.coordinator.join([Ticket(digest, os.urandom(16), one) for one in others])
            assert pair.join(digest, nonce, invitation=used) == held
            assert pair.join(digest, invitation=unused).slot is None
        elif slots == "paused":
            pair.coordinator.pause(digest)
            assert pair.join(digest, nonce, invitation=used).slot is None
    before = pair.coordinator.status(digest)["people"]
    for wrong in (None, "", "x" * 107, foreign):
        for own in (nonce, os.urandom(16)):
            with pytest.raises(Forbidden):
                pair.join(digest, own, invitation=wrong)
    if slots in ("some", "all given"):
        with pytest.raises(Forbidden, match="is used: each is for one"):
            pair.join(digest, invitation=used)
    assert pair.coordinator.status(digest)["people"] == before


def test_an_invitation_without_a_slot_stays_valid(pair: Pair) -> None:
    digest = pair.begin(admission="invitation")
    (invitation,) = invitations.make(digest, pair.secrets[0], 1)
    assert pair.join(digest, invitation=invitation).slot is None
    pair.step(2)
    assert pair.join(digest, invitation=invitation).slot is not None


@pytest.mark.extended
def test_successor_terms_add_and_remove_options_and_open_rounds_finish(quiet: Pair) -> None:
    digest = quiet.begin()
    quiet.step(2)
    before = quiet.participants(digest, 30)
    terms = terms_of(quiet.keys, (*OPTIONS[:2], "new"), predecessor=digest)
    after = quiet.coordinator.succeed(terms)
    old = quiet.coordinator.terms(digest).terms
    signature = cosign(terms, quiet.secrets[1])
    approval = approve_successor(old, terms, quiet.secrets[1], quiet.helper.records)
    mine = approve_successor(old, terms, quiet.secrets[0], quiet.coordinator.records)
    with pytest.raises(Rejected):
        quiet.coordinator.cosign(after, signature, bytes(64))
    quiet.helper.admit(terms, (quiet.coordinator.signature(after), signature), (mine, approval))
    quiet.coordinator.cosign(after, signature, approval)
    quiet.report(digest, before, WORTH.__getitem__)
    quiet.clock.now += 200
    quiet.step()
    assert len(rounds_of(quiet, digest, "opened")) >= 1
    with pytest.raises(Conflict, match="have successors"):
        quiet.join(digest)
    for _ in range(4):
        quiet.hold(after, lambda option: int(option == "new"))
    status = quiet.coordinator.status(digest)
    assert status["digest"] == after.hex()
    assert status["best"] == "new"
    assert "short" not in status["options"]
    assert quiet.coordinator.terms_status(digest).successor is not None


def test_invitations_stay_valid_and_spent_under_successor_terms(quiet: Pair) -> None:
    first = quiet.begin(admission="invitation")
    quiet.step(2)
    used, unused = invitations.make(first, quiet.secrets[0], 2)
    assert quiet.join(first, invitation=used).slot is not None
    old = quiet.coordinator.terms(first).terms
    terms = replace(old, options=(*OPTIONS[:2], "new"), predecessor=first)
    after = quiet.coordinator.succeed(terms)
    signature = cosign(terms, quiet.secrets[1])
    approval = approve_successor(old, terms, quiet.secrets[1], quiet.helper.records)
    mine = approve_successor(old, terms, quiet.secrets[0], quiet.coordinator.records)
    quiet.helper.admit(terms, (quiet.coordinator.signature(after), signature), (mine, approval))
    quiet.coordinator.cosign(after, signature, approval)
    quiet.clock.now += 200
    quiet.step(3)
    with pytest.raises(Forbidden, match="is used: each is for one"):
        quiet.join(after, invitation=used)
    assert quiet.join(after, invitation=unused).slot is not None


def test_both_servers_accept_invitations_of_the_issuer_only(quiet: Pair) -> None:
    """Somebody else lets participants in: what the coordinator signs itself is no invitation."""
    issuer = Ed25519PrivateKey.from_private_bytes(bytes([9]) * 32)
    digest = quiet.begin(admission="invitation", issuer=public_key(issuer))
    quiet.step(2)
    (good,) = invitations.make(digest, issuer, 1)
    (forged,) = invitations.make(digest, quiet.secrets[0], 1)
    with pytest.raises(Forbidden, match="invalid for this experiment"):
        quiet.join(digest, invitation=forged)
    assigned = quiet.join(digest, invitation=good)
    assert assigned.slot is not None
    identity, halves = described(assigned).identity, quiet.shares(digest, assigned, 1)
    with pytest.raises(Forbidden, match="invalid for this experiment"):
        quiet.helper.report(identity, assigned.slot.number, halves[1], forged)
    waiting = quiet.helper.report(identity, assigned.slot.number, halves[1], good)
    assert quiet.helper.keep([waiting]) == [None]


def test_an_early_list_does_not_close_a_round_at_the_helper(quiet: Pair) -> None:
    """All reports but one are there, and the coordinator's list would take the last one's place."""
    digest = quiet.begin()
    quiet.step(2)
    everybody = quiet.participants(digest, 2000)
    identity = described(everybody[0]).identity
    asked = [one for one in everybody if described(one).identity == identity]
    row = quiet.helper.round(identity)
    assert len(asked) == row.slots
    halves = [quiet.shares(digest, one, 1) for one in asked]
    for one, pair in zip(asked[:-1], halves[:-1], strict=True):
        quiet.send(one, pair)
    quiet.send(asked[-1], halves[-1], to=(0,))
    now = quiet.coordinator.now
    assert now < row.closes
    server = aggregator(quiet.coordinator, row)
    listing = server.close(now)[server.peer]
    for _ in range(2):
        assert quiet.helper.exchange(identity, listing) == (b"", b"")
        quiet.helper.step()
    assert quiet.helper.round(identity).stage is Stage.OPEN
    quiet.send(asked[-1], halves[-1], to=(1,))
    theirs, answer = quiet.helper.exchange(identity, listing)
    assert theirs
    assert answer


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"grace": 601}, "grace of the round is 601"),
        ({"scale": Fraction(99, 100)}, "noise scale of the round is 99/100: must be at least 1"),
        ({"minimum": 9}, "minimum batch size of 10"),
        ({"suite": HpkeSuite.X25519}, "suite of the round is hpke-x25519-chacha20poly1305"),
        ({"length": 2}, "number of metrics"),
        ({"modulus": 2}, "modulus of the round is 2"),
    ],
)
def test_neither_party_signs_a_round_weaker_than_the_terms(
    quiet: Pair, changes: dict[str, Any], words: str
) -> None:
    digest = quiet.begin(grace=600)
    quiet.step(2)
    (row,) = quiet.coordinator.rounds(Stage.OPEN)[:1]
    sound = TwoServerRound.decode(bytes(row.announcement)[: -2 * SIGNATURE_SIZE])
    for party in (quiet.coordinator, quiet.helper):
        context = context_of(party, digest, sound.identity)
        assert context.endorse(sound.encode())
        with pytest.raises(Rejected, match=words):
            context.endorse(replace(sound, **changes).encode())


@pytest.mark.parametrize("sealing", [HpkeSuite.X25519, HpkeSuite.HYBRID])
def test_the_helper_makes_keys_for_the_suite_of_the_terms_only(
    quiet: Pair, sealing: HpkeSuite
) -> None:
    digest = quiet.begin()
    with pytest.raises(Rejected, match="must be hpke-x25519-aes128gcm, the suite"):
        quiet.helper.keys(digest, bytes(16), sealing)
    assert quiet.helper.keys(digest, bytes(16), HpkeSuite.X25519_AES)


@pytest.mark.parametrize("suite", HPKE_SUITES)
def test_rounds_announce_the_suite_of_the_terms(quiet: Pair, suite: str) -> None:
    digest = quiet.begin(suite=suite)
    quiet.step(2)
    assert described(quiet.join(digest)).suite.identifier == suite


def test_a_round_ends_with_the_grace_of_its_terms(quiet: Pair) -> None:
    with pytest.raises(TacitError, match="grace is 600: must be at most 599, the grace"):
        quiet.begin(grace=599)
    digest = quiet.begin()
    terms = terms_of(quiet.keys, predecessor=digest, grace=7)
    old = quiet.coordinator.terms(digest).terms
    quiet.coordinator.succeed(terms)
    signature = cosign(terms, quiet.secrets[1])
    approval = approve_successor(old, terms, quiet.secrets[1], quiet.helper.records)
    quiet.coordinator.cosign(terms.digest, signature, approval)
    after = quiet.coordinator.terms_status(digest).successor
    assert after is not None
    quiet.helper.admit(terms, after.signatures, after.approvals)
    quiet.step(4)
    found = described(quiet.join(terms.digest))
    assert found.grace == 7
    (row,) = {int(row.expires) - int(row.closes) for row in quiet.coordinator.rounds(Stage.OPEN)}
    assert row == 7


def test_neither_party_accepts_terms_of_other_trust_models(quiet: Pair) -> None:
    shares = terms_of(quiet.keys, noise=Noise(Fraction(1), "devices"))
    for take in (
        lambda: quiet.coordinator.create(shares, experiment_of(), TIMING),
        lambda: quiet.helper.admit(shares, tuple(cosign(shares, key) for key in quiet.secrets)),
    ):
        with pytest.raises(TacitError, match="noise by devices"):
            take()


def test_neither_party_accepts_terms_of_rehearsals(quiet: Pair) -> None:
    made = terms_of(quiet.keys, noise=Noise(Fraction(1), "devices", REHEARSED))
    with pytest.raises(TacitError, match=r"noise\.distribution is 'rehearsed'"):
        quiet.coordinator.create(made, experiment_of(), TIMING)
    with pytest.raises(TacitError, match=r"noise\.distribution is 'rehearsed'"):
        quiet.helper.admit(made, tuple(cosign(made, key) for key in quiet.secrets))


def test_an_invited_report_is_verified_without_the_database(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All requests would wait for it."""
    digest = pair.begin(admission="invitation")
    pair.step(2)
    (invitation,) = invitations.make(digest, pair.secrets[0], 1)
    assigned = pair.join(digest, invitation=invitation)
    assert assigned.slot is not None
    identity, halves = described(assigned).identity, pair.shares(digest, assigned, 1)
    pair.helper.server(identity)  # is at hand from now on
    with monkeypatch.context() as away:
        for way in ("read", "begin"):
            away.setattr(pair.stores[1], way, None)
        waiting = pair.helper.report(identity, assigned.slot.number, halves[1], invitation)
    assert pair.helper.keep([waiting]) == [None]


def succeeded(pair: Pair, digest: bytes, options: tuple[str, ...]) -> bytes:
    """Successor terms with these options, which both have signed."""
    old, terms = pair.coordinator.terms(digest).terms, terms_of(pair.keys, options)
    terms = replace(terms, predecessor=digest)
    after = pair.coordinator.succeed(terms)
    signature = cosign(terms, pair.secrets[1])
    parties = (pair.coordinator, pair.helper)
    mine, other = (
        approve_successor(old, terms, key, party.records)
        for key, party in zip(pair.secrets, parties, strict=True)
    )
    pair.helper.admit(terms, (pair.coordinator.signature(after), signature), (mine, other))
    pair.coordinator.cosign(after, signature, other)
    return after


def test_successors_have_successors_and_removed_options_stay_removed(quiet: Pair) -> None:
    first = quiet.begin()
    quiet.hold(first, lambda option: int(option == "short"))
    second = succeeded(quiet, first, ("plain", "short"))
    for back in (("plain", "short", "friendly"), ("friendly", "new")):
        terms = replace(terms_of(quiet.keys, back), predecessor=second)
        with pytest.raises(TacitError, match="'friendly' was removed by earlier terms"):
            quiet.coordinator.succeed(terms)
    third = succeeded(quiet, second, ("short", "new"))
    quiet.clock.now += 200
    quiet.step()
    quiet.hold(third, lambda option: int(option == "new"))
    status = quiet.coordinator.status(third)
    assert (status["digest"], status["options"]) == (third.hex(), ["short", "new"])
    assert {one["option"] for one in status["rounds"][-2:]} <= {"short", "new"}


def test_terms_that_remove_the_control_are_rejected_before_signing(pair: Pair) -> None:
    experiment = experiment_of()
    experiment.keep_control("plain", 0.2)
    digest = pair.begin(experiment)
    terms = replace(terms_of(pair.keys, ("friendly", "short")), predecessor=digest)
    with pytest.raises(TacitError, match="the control, which cannot be paused or removed"):
        pair.coordinator.succeed(terms)
    succeeded(pair, digest, ("plain", "short"))


def test_participants_without_a_slot_get_the_best_option_after_a_succession(quiet: Pair) -> None:
    """It stands in another place among the options of the new terms."""
    digest = quiet.begin()
    quiet.hold(digest, lambda option: int(option == "short"))
    quiet.coordinator.pause(digest)
    assert quiet.join(digest) == Assigned("short")
    after = succeeded(quiet, digest, ("plain", "short"))
    assert quiet.join(after) == Assigned("short")


def test_both_long_term_keys_can_change_during_an_experiment(quiet: Pair) -> None:
    digest = quiet.begin()
    quiet.step(2)
    before, old = quiet.participants(digest, 30), quiet.secrets
    quiet.secrets = tuple(Ed25519PrivateKey.generate() for _ in old)
    quiet.keys = (public_key(quiet.secrets[0]), public_key(quiet.secrets[1]))
    terms = terms_of(quiet.keys, predecessor=digest)
    quiet.restart()
    with pytest.raises(Rejected, match="coordinator's key in the terms is"):
        quiet.coordinator.succeed(terms)
    quiet.options["former"], quiet.helper_options["former"] = (old[0],), (old[1],)
    quiet.restart()
    after = quiet.coordinator.succeed(terms)
    signatures = (quiet.coordinator.signature(after), cosign(terms, quiet.secrets[1]))
    pinned = quiet.coordinator.pinned(digest)
    approvals = tuple(
        approve_successor(pinned.terms, terms, key, party.records)
        for key, party in zip(old, (quiet.coordinator, quiet.helper), strict=True)
    )
    assert pinned.succeeded_by(terms, signatures, approvals).keys == quiet.keys
    quiet.helper.admit(terms, signatures, approvals)
    quiet.coordinator.cosign(after, signatures[1], approvals[1])
    quiet.report(digest, before, WORTH.__getitem__)
    quiet.clock.now += 200
    quiet.step()
    finished = rounds_of(quiet, digest, "opened")
    quiet.hold(after, WORTH.__getitem__)
    assert 1 <= len(finished) < len(rounds_of(quiet, after, "opened"))
    assert quiet.coordinator.key_for(pinned.terms) is old[0]


def test_requests_after_the_close_get_one_signed_answer(pair: Pair) -> None:
    digest = pair.begin()
    pair.hold(digest, WORTH.__getitem__)
    one = rounds_of(pair, digest, "opened")[0]
    identity = bytes.fromhex(str(one["round"]))
    row = pair.coordinator.round(identity)
    announced = pair.coordinator.serving(row).round
    for party in (pair.coordinator, pair.helper):
        said = party.outcome(identity)
        assert (
            read_outcome(pair.coordinator.pinned(digest), announced, said)[1]
            is RoundOutcome.RELEASED
        )
        pair.clock.now += 10_000
        assert party.outcome(identity) == said
        assert party.outcome(bytes(16))[-1] == RoundOutcome.UNKNOWN


@pytest.mark.extended
@pytest.mark.parametrize("jump", [-5000, 5000])
def test_jumps_of_the_clock_are_harmless(quiet: Pair, jump: int) -> None:
    digest = quiet.begin()
    quiet.step(2)
    asked = quiet.participants(digest, 40)
    quiet.report(digest, asked, lambda _option: 1)
    quiet.clock.now += jump
    quiet.step()
    quiet.clock.now = START + 2000
    quiet.step()
    quiet.hold(digest, lambda _option: 1)
    for one in rounds_of(quiet, digest, "opened"):
        assert one["sums"] == [one["reports"]]
    assert rounds_of(quiet, digest, "opened")


def test_identifiers_of_participants_are_not_printed() -> None:
    nonce, token, invitation = b"n" * 16, b"t" * 16, "a-marked-invitation"
    place = ReportSlot(7, token)
    shown = repr(
        [
            Ticket(bytes(32), nonce, invitation),
            Assigned("plain", b"", place),
            Flag("ab" * 32, invitation=invitation),
            Request("PUT", "https://x.example", nonce, (("Tacit-Invitation", invitation),)),
            Reply(200, token),
            TicketRequest(nonce=nonce.hex(), invitation=invitation),
        ]
    )
    assert "number=7" in shown
    for secret in (nonce, token):
        assert secret.decode() not in shown
        assert secret.hex() not in shown
    assert invitation not in shown


def test_tickets_of_unknown_experiments_have_no_effect(pair: Pair) -> None:
    digest = pair.begin()
    pair.step(2)
    said = pair.coordinator.join([Ticket(bytes(32), bytes(16)), Ticket(digest, bytes(16))])
    assert isinstance(said[0], Unknown)
    assert isinstance(said[1], Assigned)
