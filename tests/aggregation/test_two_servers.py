"""Two servers release the exact noisy sum of the reports that both have, once, or abort."""

from __future__ import annotations

import random
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit import signatures
from tacit.aggregation import (
    AggregatorContext,
    Collector,
    HpkeSuite,
    OwnNoise,
    Rejected,
    ReportSlot,
    RoundOutcome,
    SumView,
    TwoServerRound,
    TwoServerSession,
    aborted_by_both,
    prepare_collector,
    run_two_servers,
)
from tacit.aggregation.aggregator import PARTIAL_HEAD, Aggregator, _Working, partial_info
from tacit.aggregation.aggregator_context import AggregatorStage, RoundRecord, RoundSecrets
from tacit.aggregation.agreement import NONCE_SIZE, Channel
from tacit.aggregation.announcements import announce, endorse
from tacit.aggregation.encryption import DEFAULT
from tacit.aggregation.interface import new_identity
from tacit.aggregation.two_servers import DIGEST_SIZE, read_outcome, share_info, word_digest
from tacit.aggregation.wire import Kind, header, pack_numbers
from tacit.errors import TacitError
from tacit.records import MemoryRecords, RecordDirectory


def no_noise(_: Fraction) -> int:
    return 0


QUIET = OwnNoise(4, Fraction(4), no_noise)
LOUD = OwnNoise(4, Fraction(4), lambda _: random.randrange(1000))


def report(session: TwoServerSession, place: int, *values: int) -> tuple[bytes, bytes]:
    """A report that reaches both servers."""
    shares = session.split(place, values)
    for role in (0, 1):
        session.server(role).take(shares[role], session.now)
    return shares


def tags_of(server: Aggregator) -> list[bytes]:
    """Of the shares that it can use."""
    return [half[:DIGEST_SIZE] for half in server._shares(server._record())]


def secrets(session: TwoServerSession, role: int) -> RoundSecrets:
    """What only the server has while the round is open."""
    identity = session.round.identity
    record = session.party(role).record(identity)
    assert record is not None
    return RoundSecrets(record.secret, identity, record.suite)


# The sum


@settings(deadline=None, max_examples=30)
@given(
    st.integers(1, 60),
    st.integers(61, 2**70) | st.sampled_from([2**32 + 15, 2**64]),
    st.sampled_from([1, 1, 4, 11]),
    st.integers(0, 2**32),
)
def test_two_servers_release_the_exact_sum_of_complete_reports_or_abort(
    reports: int, modulus: int, length: int, seed: int
) -> None:
    rng = random.Random(seed)
    values = [[rng.randrange(-modulus, 2 * modulus) for _ in range(length)] for _ in range(reports)]
    lost = tuple({place for place in range(reports) if rng.random() < 0.2} for _ in range(2))
    complete = [value for place, value in enumerate(values) if place not in lost[0] | lost[1]]
    minimum = rng.randrange(1, reports + 1)
    try:
        view = run_two_servers(values, modulus, minimum, lost=(lost[0], lost[1]))
    except Rejected:
        assert len(complete) < minimum
    else:
        assert view == SumView(
            tuple(sum(column) % modulus for column in zip(*complete, strict=True)), len(complete)
        )


@pytest.mark.parametrize("sealing", list(HpkeSuite))
def test_every_suite_gives_the_same_sum(sealing: HpkeSuite) -> None:
    assert run_two_servers([3, 5, 9], 10, 3, sealing) == SumView((7,), 3)


@pytest.mark.parametrize("length", [1, 40])
def test_each_server_adds_its_own_noise_to_every_number(length: int) -> None:
    asked: list[Fraction] = []

    def draw(scale: Fraction) -> int:
        asked.append(scale)
        return 1000 if len(asked) > length else 1

    noise = OwnNoise(4, Fraction(9, 2), draw)
    view = run_two_servers([[2] * length] * 3, 10**9, 3, noise=noise)
    assert view == SumView((6 + 1001,) * length, 3)
    assert asked == [Fraction(9, 2)] * 2 * length


def test_a_server_without_a_noise_source_is_rejected() -> None:
    session = TwoServerSession(3, 1, 100, noise=QUIET)
    session.noise = None
    with pytest.raises(TacitError, match="must be a sampler"):
        session.server(0)


def test_sums_outside_the_range_of_the_noise_are_not_sent() -> None:
    session = TwoServerSession(3, 1, 100, noise=QUIET)
    for value in (-1, 5, 96):
        with pytest.raises(TacitError, match="numbers from 0 to 4"):
            session.split(0, [value])


def test_one_share_of_a_long_report_is_a_seed() -> None:
    """32 bytes and what every half has, however many numbers there are."""
    session = TwoServerSession(3, 1, 1_000_003, length=500)
    first, second = session.split(0, list(range(500)))
    assert len(second) - len(first) == 500 * 3 - 32
    short = TwoServerSession(3, 1, 1_000_003, length=2)
    assert len({len(half) for half in short.split(0, [1, 2])}) == 1


# Shares


def test_repeated_and_reordered_report_shares_count_once() -> None:
    session = TwoServerSession(5, 3, 100)
    shares = [session.split(place, [value]) for place, value in enumerate((10, 20, 30))]
    for role in (0, 1):
        for order in (0, 2, 0, 1, 2, 1):
            session.server(role).take(shares[order if role else 2 - order][role], session.now)
    assert session.finish() == SumView((60,), 3)


def test_a_report_share_without_its_counterpart_does_not_count() -> None:
    session = TwoServerSession(5, 3, 100)
    for place, value in enumerate((10, 20, 30)):
        report(session, place, value)
    session.server(0).take(session.split(3, [99])[0], session.now)
    session.server(1).take(session.split(4, [98])[1], session.now)
    assert session.finish() == SumView((60,), 3)


def test_one_slot_holds_one_report_share() -> None:
    session = TwoServerSession(5, 1, 100)
    mine, another = session.split(0, [10]), session.split(0, [20])
    for role in (0, 1):
        session.server(role).take(mine[role], session.now)
        with pytest.raises(Rejected, match="another report share"):
            session.server(role).take(another[role], session.now)
    assert session.finish() == SumView((10,), 1)


def test_a_report_share_cannot_be_replaced() -> None:
    """Who took the place at one server first, with another half, spoils that report alone."""
    session = TwoServerSession(5, 2, 100)
    for place, value in enumerate((10, 20)):
        report(session, place, value)
    honest = session.split(2, [30])
    session.server(1).take(session.split(2, [77])[1], session.now)
    session.server(0).take(honest[0], session.now)
    with pytest.raises(Rejected, match="another report share"):
        session.server(1).take(honest[1], session.now)
    assert session.finish() == SumView((30,), 2)


def test_a_server_cannot_replace_the_report_share_at_the_other_server() -> None:
    """It knows its own word and the digest of the other's word, but not the other's word."""
    session = TwoServerSession(9, 1, 100)
    context = session.round.context
    for number, guess in enumerate(("own", "other", "zero")):
        honest = session.split(number, [10])
        known = secrets(session, 1).keys.encryption.decrypt(
            honest[1][41:], share_info(context, 1, number)
        )
        words = {"own": known[:16], "other": known[16:32], "zero": bytes(16)}
        content = words[guess] + word_digest(known[:16]) + b"\x05"
        encrypted = session.round.recipients[0].encrypt(content, share_info(context, 0, number))
        session.server(0).take(honest[0][:41] + encrypted, session.now)
        session.server(1).take(honest[1], session.now)
    report(session, 5, 42)
    assert session.finish() == SumView((42,), 1)


def test_report_shares_for_another_server_round_or_slot_are_rejected() -> None:
    session, other = TwoServerSession(5, 3, 100), TwoServerSession(5, 3, 100)
    half, foreign = session.split(0, [1])[0], other.split(0, [1])[0]
    server, now = session.server(0), session.now
    with pytest.raises(Rejected, match="for server 0: must be for server 1"):
        session.server(1).take(half, now)
    with pytest.raises(Rejected, match="another round"):
        server.take(foreign, now)
    with pytest.raises(Rejected, match="was not assigned"):
        server.take(half[:20] + foreign[20:], now)
    with pytest.raises(Rejected, match="was not assigned"):
        server.take(half[:24] + b"\x01" + half[25:], now)
    with pytest.raises(Rejected, match="was not assigned"):
        server.take(half[:25] + bytes(16) + half[41:], now)
    with pytest.raises(Rejected, match="bytes long"):
        server.take(half + b"\x00", now)


def test_a_slot_out_of_range_is_rejected_even_with_its_token() -> None:
    session = TwoServerSession(5, 3, 100)
    with pytest.raises(Rejected, match="slot 5 was not assigned"):
        session.server(0).take(session.split(5, [1])[0], session.now)


def test_undecryptable_or_out_of_range_shares_do_not_count() -> None:
    session = TwoServerSession(9, 1, 200)
    report(session, 0, 7)
    context = session.round.context
    for number, content in enumerate((bytes(32) + b"\xc8", bytes(32) + b"\xff"), start=1):
        half = session.split(number, [1])[0]
        encrypted = session.round.recipients[0].encrypt(content, share_info(context, 0, number))
        session.server(0).take(half[:41] + encrypted, session.now)
    half = session.split(4, [1])[0]
    session.server(0).take(half[:41] + bytes(len(half) - 41), session.now)
    assert session.finish() == SumView((7,), 1)


# Time


def test_an_early_close_changes_nothing() -> None:
    session = TwoServerSession(5, 2, 100)
    for place, value in enumerate((10, 20)):
        report(session, place, value)
        before = [dict(table) for table in session.tables]
        for role in (0, 1):
            with pytest.raises(Rejected, match="stays open"):
                session.server(role).close(session.now)
            with pytest.raises(Rejected, match="not closed yet"):
                session.server(role).outcome()
        with pytest.raises(Rejected, match="number of answers is 0"):
            session.collector().close()
        assert session.tables == before
    report(session, 2, 30)
    assert session.finish() == SumView((60,), 3)


def test_a_round_closes_early_when_every_slot_has_reported() -> None:
    session = TwoServerSession(2, 2, 100)
    report(session, 0, 1)
    report(session, 1, 2)
    assert session.server(0).close(session.now).keys() == {session.server(0).peer}


def test_no_report_is_accepted_after_the_deadline() -> None:
    session = TwoServerSession(5, 1, 100)
    shares = session.split(0, [1])
    with pytest.raises(Rejected, match="no more reports"):
        session.server(0).take(shares[0], session.round.binding.closes)


def test_a_round_without_the_other_servers_list_is_aborted_after_its_grace() -> None:
    session = TwoServerSession(5, 1, 100)
    report(session, 0, 1)
    server, late = session.server(0), session.round.binding.closes
    listing = server.close(late)
    assert listing.keys() == {server.peer}
    assert server.close(late + session.round.grace - 1) == listing
    out = server.close(late + session.round.grace)
    assert out == {**listing, session.round.collector: server.outcome()}
    assert read_outcome(session.pinned, session.round, server.outcome()) == (
        0,
        RoundOutcome.ABORTED,
    )


def test_every_round_is_aborted_after_its_grace() -> None:
    """Also with all shares and the other's list at hand: its key is due to end."""
    for listed in (False, True):
        session = TwoServerSession(5, 1, 100)
        report(session, 0, 1)
        late = session.round.binding.closes
        if listed:
            session.server(1).take(session.server(0).close(late)[session.server(0).peer], late)
        server = session.server(1)
        server.close(late + session.round.grace)
        assert (
            read_outcome(session.pinned, session.round, server.outcome())[1] is RoundOutcome.ABORTED
        )
        assert session.tables[1] == {}


def test_a_round_with_unusable_keys_is_not_signed() -> None:
    session = TwoServerSession(5, 1, 100, suite=HpkeSuite.X25519)
    zero, announced = bytes(32), replace(session.round, identity=new_identity())
    public = session.party(0).prepare(announced.identity, announced.suite)
    other = announced.servers[1]
    for changes in (
        {"servers": (public, other), "collector": zero},
        {"servers": (public, other[:32] + zero)},
        {"servers": (public, zero + other[32:])},
    ):
        with pytest.raises(Rejected, match="public key"):
            session.party(0).endorse(replace(announced, **changes).encode())


def test_fewer_complete_reports_than_the_minimum_release_nothing() -> None:
    with pytest.raises(Rejected, match=r"aborted the round, whose minimum batch size is 4"):
        run_two_servers([1, 2, 3, 4, 5], 10, 4, lost=({0}, {1}))


# Once


def closed(session: TwoServerSession, *values: int) -> list[dict[bytes, bytes]]:
    for place, value in enumerate(values):
        report(session, place, value)
    session.finish()
    return [dict(session.server(role).close(session.now)) for role in (0, 1)]


def test_requests_after_the_close_get_the_same_answer() -> None:
    session = TwoServerSession(5, 1, 100, noise=LOUD)
    answers = closed(session, 1, 2, 3)
    for role in (0, 1):
        for now in (0, session.now, session.now + 10**9):
            assert session.server(role).close(now) == answers[role]
            assert session.server(role).outcome()[21] == RoundOutcome.RELEASED
        with pytest.raises(Rejected, match="closed"):
            session.server(role).slot(4)
    view = session.collector().view()
    for message in (answers[role][session.round.collector] for role in (1, 0, 1)):
        session.collector().take(message)
        session.collector().close()
    assert session.collector().view() == view


def test_a_closed_server_stores_no_report() -> None:
    session = TwoServerSession(5, 1, 100)
    closed(session, 1, 2, 3)
    assert session.tables == [{}, {}]
    for role in (0, 1):
        record = session.party(role).record(session.round.identity)
        assert record is not None
        assert (record.secret, record.tags) == (b"", b"")


def test_an_abandoned_round_is_aborted_and_its_secrets_deleted() -> None:
    session = TwoServerSession(5, 1, 100)
    report(session, 0, 1)
    aggregator, identity = session.party(0), session.round.identity
    aggregator.abandon(identity)
    record = aggregator.record(identity)
    assert record is not None
    assert (record.stage, record.secret, record.partial) == (AggregatorStage.CLOSED, b"", b"")
    said = session.server(0).outcome()
    assert read_outcome(session.pinned, session.round, said) == (0, RoundOutcome.ABORTED)
    with pytest.raises(Rejected, match="round is over"):
        aggregator.prepare(identity, session.round.suite)
    fresh = new_identity()
    aggregator.prepare(fresh)
    aggregator.abandon(fresh)  # which nobody described: there is nothing to be said about it
    assert aggregator.record(fresh) == RoundRecord(AggregatorStage.CLOSED, DEFAULT)
    released = TwoServerSession(5, 1, 100)
    answers = closed(released, 1)
    released.party(0).abandon(released.round.identity)
    assert released.server(0).close(released.now) == answers[0]


def test_stored_report_shares_are_useless_without_the_secret_key() -> None:
    """Neither names nor tokens follow from the description; what is kept twice looks different."""
    session = TwoServerSession(5, 1, 100)
    server, half = session.server(0), session.split(0, [1])[0]
    one, two = (server.check(half, session.now) for _ in range(2))
    assert one.name == two.name
    assert one.wrapped[:NONCE_SIZE] != two.wrapped[:NONCE_SIZE]
    stranger = _Working(session.round, 0, bytes(32))
    tokens = {server.slot(number).token for number in range(5)}
    assert len(tokens) == 5
    assert tokens.isdisjoint({stranger.vault.token(number) for number in range(5)})
    assert one.name != stranger.vault.name(struct.pack(">I", 0))


def test_partial_sums_of_different_reports_are_not_added() -> None:
    session = TwoServerSession(5, 1, 100)
    for place, value in enumerate((1, 2, 3, 4)):
        report(session, place, value)
    late, servers = session.round.binding.closes, [session.server(role) for role in (0, 1)]
    listing = servers[1].close(late)[servers[1].peer]
    lines = (session.round.channel_key(0), session.round.channel_key(1))
    attacker = Channel(secrets(session, 0).keys.line, *lines, session.round.context, starts=True)
    tags = tags_of(servers[0])
    front = header(Kind.PRESENT, session.round.identity) + b"\x00"
    servers[1].take(attacker.encrypt(front, b"".join(tags[:3])), late)
    servers[0].take(listing, late)
    for server in servers:
        session.collector().take(server.close(late)[session.round.collector])
    session.collector().close()
    with pytest.raises(Rejected, match="different reports"):
        session.collector().view()


def test_repeated_oversized_or_changed_lists_are_rejected() -> None:
    session = TwoServerSession(5, 1, 100)
    for place, value in enumerate((1, 2, 3)):
        report(session, place, value)
    server, late = session.server(1), session.round.binding.closes
    tags = tags_of(server)
    lines = (session.round.channel_key(0), session.round.channel_key(1))
    attacker = Channel(secrets(session, 0).keys.line, *lines, session.round.context, starts=True)
    front = header(Kind.PRESENT, session.round.identity) + b"\x00"
    six = b"".join(bytes((i,)) * 16 for i in range(6))
    for content in (tags[0] * 3, b"".join(reversed(tags)), six, b"odd"):
        with pytest.raises(Rejected):
            server.take(attacker.encrypt(front, content), late)
    server.take(attacker.encrypt(front, tags[0]), late)
    server.take(attacker.encrypt(front, tags[0]), late)
    with pytest.raises(Rejected, match="differs from its earlier one"):
        server.take(attacker.encrypt(front, tags[1]), late)
    own = session.server(0).close(late)[session.server(0).peer]
    with pytest.raises(Rejected, match="not from the other server"):
        session.server(0).take(own, late)


def test_refunds_need_signed_aborts_of_both_servers() -> None:
    session = TwoServerSession(5, 3, 100)
    report(session, 0, 1)
    with pytest.raises(Rejected):
        session.finish()
    said = [session.server(role).outcome() for role in (0, 1)]
    check = (session.pinned, session.announcement)
    assert aborted_by_both(*check, said)
    for some in ([], said[:1], said[1:], said[:1] * 2):
        assert not aborted_by_both(*check, some)
    forged = said[1][:-1] + bytes((said[1][-1] ^ 1,))
    with pytest.raises(Rejected, match="did not sign"):
        aborted_by_both(*check, [said[0], forged])
    released = TwoServerSession(5, 1, 100)
    closed(released, 1)
    outcomes = [released.server(role).outcome() for role in (0, 1)]
    assert not aborted_by_both(released.pinned, released.announcement, outcomes)
    with pytest.raises(Rejected, match="another round"):
        aborted_by_both(released.pinned, released.announcement, said)


# Opening a round


def test_round_keys_are_stored_before_use_and_never_change() -> None:
    aggregator, identity = SESSION.party(0), new_identity()
    public = aggregator.prepare(identity, HpkeSuite.X25519)
    assert aggregator.prepare(identity, HpkeSuite.X25519) == public
    assert aggregator.record(identity) is not None
    with pytest.raises(Rejected, match="another suite"):
        aggregator.prepare(identity, HpkeSuite.HYBRID)
    records = MemoryRecords()
    key = prepare_collector(records, identity, HpkeSuite.X25519)
    assert prepare_collector(records, identity, HpkeSuite.X25519) == key
    with pytest.raises(Rejected, match="another suite"):
        prepare_collector(records, identity, HpkeSuite.HYBRID)


def test_a_server_signs_one_description_per_round() -> None:
    session = TwoServerSession(5, 3, 100)
    again = session.party(0).endorse(session.round.encode())
    assert again == session.announcement[-128:-64]
    other = replace(session.round, minimum=4)
    for _ in range(2):
        with pytest.raises(Rejected, match="one description per round"):
            session.party(0).endorse(other.encode())
        closed_session = TwoServerSession(5, 1, 100)
        closed(closed_session, 1)
        session, other = closed_session, replace(closed_session.round, minimum=2)
    with pytest.raises(Rejected, match="round is over"):
        session.party(0).prepare(session.round.identity, session.round.suite)


def test_a_server_signs_only_descriptions_with_its_own_keys() -> None:
    session = TwoServerSession(5, 3, 100)
    named = replace(session.round, identity=new_identity())
    with pytest.raises(Rejected, match="prepared its keys"):
        session.party(0).endorse(named.encode())
    first, second = (session.party(role).prepare(named.identity, named.suite) for role in (0, 1))
    for servers in (named.servers, (second, first)):
        with pytest.raises(Rejected, match="other keys"):
            session.party(0).endorse(replace(named, servers=servers).encode())


def test_a_server_answers_only_for_the_recorded_description() -> None:
    session = TwoServerSession(5, 1, 100)
    other = replace(session.round, minimum=2).encode()
    signatures = [endorse(other, key) for key in session.rehearsal.keys]  # as it never does
    server = Aggregator(session.party(0), announce(other, signatures), {})
    with pytest.raises(Rejected, match="server has no record"):
        server.slot(0)
    assert read_outcome(session.pinned, server.round, server.outcome())[1] is RoundOutcome.UNKNOWN


def test_a_server_without_a_record_signs_nothing_and_returns_unknown() -> None:
    session = TwoServerSession(5, 1, 100)
    shares = report(session, 0, 1)
    session.records = (MemoryRecords(), *session.records[1:])
    server = session.server(0)
    assert read_outcome(session.pinned, session.round, server.outcome()) == (
        0,
        RoundOutcome.UNKNOWN,
    )
    for wrong in (
        lambda: server.take(shares[0], session.now),
        lambda: server.close(session.now + 1),
        lambda: server.slot(0),
    ):
        with pytest.raises(Rejected, match="server has no record"):
            wrong()


def test_a_damaged_record_is_rejected_and_reveals_nothing() -> None:
    session = TwoServerSession(5, 1, 100)
    report(session, 0, 1)
    name = session.party(0).name(session.round.identity)
    good = session.records[0].read(name) or b""
    for damaged in (b"", good[:1], good[:40], good + b"x", b"\x09" + good[1:], good[:-2]):
        broken = MemoryRecords()
        broken.replace(name, None, damaged)
        session.records = (broken, *session.records[1:])
        with pytest.raises(Rejected, match=r"damaged|unknown|neither"):
            session.server(0).close(session.round.binding.closes)


def test_a_damaged_record_of_the_collector_releases_nothing() -> None:
    session = TwoServerSession(5, 1, 100)
    ((name, good),) = session.records[2]._records.items()
    for damaged in (
        b"",
        good[:1],
        good[:20],
        good + b"x",
        b"\x02",
        b"\x02" + bytes(9),
        b"\x03\xff",
    ):
        session.records[2]._records[name] = damaged
        with pytest.raises(Rejected):
            session.collector().view()


def test_a_slot_has_one_encoding() -> None:
    place = TwoServerSession(5, 1, 100).server(1).slot(3)
    assert ReportSlot.decode(place.encode()) == place
    for wrong in (place.encode()[:-1], place.encode() + b"x", b""):
        with pytest.raises(Rejected):
            ReportSlot.decode(wrong)
    for number, token in ((-1, bytes(16)), (1 << 32, bytes(16)), (0, bytes(15)), (0, bytes(17))):
        with pytest.raises(TacitError, match=r"slot is|token is"):
            ReportSlot(number, token)


def test_parties_with_wrong_or_shared_keys_are_rejected() -> None:
    session = TwoServerSession(5, 3, 10)
    keys = session.rehearsal.keys
    for wrong in (
        lambda: AggregatorContext(session.pinned, 1, keys[0], MemoryRecords()),
        lambda: Collector(session.pinned, session.announcement, MemoryRecords()),
    ):
        with pytest.raises(TacitError, match=r"must be that of|no record"):
            wrong()
    announced = session.round
    same = (announced.servers[0], announced.servers[0])
    with pytest.raises(TacitError, match="same key"):
        replace(announced, servers=same)
    with pytest.raises(TacitError, match="same key"):
        replace(announced, collector=announced.servers[0][32:])
    with pytest.raises(TacitError, match="as in the suite HYBRID"):
        replace(announced, suite=HpkeSuite.HYBRID)


@settings(deadline=None, max_examples=30)
@given(
    st.integers(1, 2**32 - 1),
    st.integers(2, 2**80),
    st.none() | st.fractions(min_value=Fraction(1, 1000), max_value=10**9),
    st.integers(0, 2**32 - 1),
)
def test_a_description_round_trips(
    places: int, modulus: int, scale: Fraction | None, grace: int
) -> None:
    base = SESSION.round
    made = replace(base, slots=places, minimum=1, modulus=modulus, scale=scale, grace=grace)
    assert TwoServerRound.decode(made.encode()) == made
    for longer in (made.encode() + b"\x00", made.encode()[:-1]):
        with pytest.raises(Rejected):
            TwoServerRound.decode(longer)


SESSION = TwoServerSession(5, 3, 100)


def test_a_scale_has_one_encoding() -> None:
    plain = replace(SESSION.round, scale=Fraction(3, 2)).encode()
    at = plain.index(b"\x01\x03\x01\x02", len(plain) - 10)
    for other in (b"\x01\x06\x01\x04", b"\x02\x00\x03\x01\x02", b"\x00\x01\x02", b"\x01\x03\x00"):
        with pytest.raises(Rejected):
            TwoServerRound.decode(plain[:at] + other + plain[at + 4 :])


# Several at once


class Overtaken(dict[bytes, bytes]):
    """A table whose round another process closes while this one waits for a list."""

    def __init__(self, closing: Callable[[], object]) -> None:
        super().__init__()
        self.closing: Callable[[], object] | None = closing

    def get(self, name: bytes, default: bytes | None = None) -> bytes | None:  # type: ignore[override]
        """What is there when the other is done."""
        closing, self.closing = self.closing, None
        if closing is not None:
            closing()
        return super().get(name, default)


def test_concurrent_closes_give_the_same_answer() -> None:
    session = TwoServerSession(8, 1, 10_000, noise=LOUD)
    late = session.round.binding.closes
    session.tables[1] = Overtaken(lambda: answers.append(session.server(1).close(late)))
    answers: list[Mapping[bytes, bytes]] = []
    for place in range(8):
        for role, half in enumerate(session.split(place, [1])):
            session.server(role).take(half, session.now)
    session.server(1).take(session.server(0).close(late)[session.server(0).peer], late)
    answers.append(session.server(1).close(late))
    assert session.tables[1] == {}
    assert answers[0] == answers[1]
    assert answers[0][session.round.collector]


def test_parallel_report_shares_and_closes_give_one_answer(tmp_path: Path) -> None:
    """Threads with a server object each, over the same key files and table."""
    session = TwoServerSession(8, 1, 10_000, noise=LOUD)
    files = RecordDirectory(tmp_path)
    name = session.party(1).name(session.round.identity)
    files.replace(name, None, session.records[1].read(name) or b"")
    session.records = (session.records[0], files, session.records[2])  # type: ignore[assignment]
    shares = [session.split(place, [1]) for place in range(8)]
    for half in shares:
        session.server(0).take(half[0], session.now)
    late = session.round.binding.closes
    listing = session.server(0).close(late)[session.server(0).peer]
    found: list[bytes] = []

    def work(seed: int) -> None:
        server, order = session.server(1), random.Random(seed).sample(shares, 8)
        for half in order:
            server.take(half[1], session.now)
        barrier.wait()
        server.take(listing, late)
        found.append(server.close(late)[session.round.collector])

    barrier = threading.Barrier(8)
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert found[0][3] == Kind.PARTIAL


def test_a_slow_process_sums_the_reports_that_another_has_listed() -> None:
    session = TwoServerSession(5, 1, 100)
    early, late = session.server(1), session.round.binding.closes
    for place in (0, 1):
        report(session, place, 1)
    assert len(early._shares(early._record())) == 2
    report(session, 2, 1)
    listing = session.server(0).close(late)[session.server(0).peer]
    session.server(1).close(late)
    early.take(listing, late)
    assert early.close(late)[session.round.collector][3] == Kind.PARTIAL
    assert session.finish() == SumView((3,), 3)


def test_a_report_share_received_while_its_round_closes_is_still_verified(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a server works with is taken away between two looks, by what closes the round."""
    session = TwoServerSession(3, 1, 100)
    half, server = session.split(0, [1])[0], session.server(0)
    looks = iter([server._working(server._record()), None, None])
    monkeypatch.setattr(Aggregator, "_secrets", property(lambda _: next(looks)), raising=False)
    assert server.check(half, session.now).share


def test_signatures_are_verified_once_per_announcement() -> None:
    session = TwoServerSession(30, 1, 100)
    session.split(0, [1])
    checked = signatures._verified.cache_info()
    for place in range(1, 30):
        session.split(place, [1])
    assert signatures._verified.cache_info() == checked


def test_the_collector_accepts_each_servers_signed_partial_sum_once() -> None:
    session = TwoServerSession(3, 2, 100)
    announced, keys = session.round, session.rehearsal.keys
    about = [announced.context + bytes((role,)) for role in (0, 1)]

    def partial(key: Ed25519PrivateKey, number: int = 7, rest: bytes = b"", role: int = 0) -> bytes:
        content = PARTIAL_HEAD.pack(2, bytes(32)) + pack_numbers([number], 100) + rest
        signed = content + signatures.sign(signatures.Signed.PARTIAL, about[role] + content, key)
        front = header(Kind.PARTIAL, announced.identity) + bytes((role,))
        return front + announced.collector_key.encrypt(signed, partial_info(about[role]))

    def outcome(said: RoundOutcome) -> bytes:
        data, front = bytes((said,)), header(Kind.OUTCOME, announced.identity) + bytes(1)
        return front + data + signatures.sign(signatures.Signed.OUTCOME, about[0] + data, keys[0])

    rejected = {
        "server 0": partial(keys[1]),
        "partial sum": partial(keys[0], rest=bytes(1)),
        "role of the server is 2": header(Kind.PARTIAL, announced.identity)
        + bytes((2,))
        + bytes(99),
        "or a partial sum": outcome(RoundOutcome.RELEASED),
    }
    for reason, message in rejected.items():
        with pytest.raises(Rejected, match=reason):
            session.collector().take(message)
    sound = partial(keys[0])
    session.collector().take(sound)
    session.collector().take(sound)
    with pytest.raises(Rejected, match="another answer before"):
        session.collector().take(partial(keys[0], 8))
    assert not session.collector().over


def test_the_collector_of_an_aborted_round_accepts_no_further_answers() -> None:
    session = TwoServerSession(3, 2, 100)
    session.now = session.round.binding.closes
    answer = session.server(0).close(session.now)[session.round.collector]
    session.collector().take(answer)
    session.collector().close()
    assert session.collector().over
    front = header(Kind.PARTIAL, session.round.identity) + bytes((1,))
    with pytest.raises(Rejected, match="round is over"):
        session.collector().take(front + bytes(200))


def test_a_server_signs_no_round_that_is_weaker_than_its_terms() -> None:
    session, identity = TwoServerSession(3, 2, 100), new_identity()
    first, second = (session.party(role).prepare(identity) for role in (0, 1))
    collecting = prepare_collector(session.records[2], identity, session.round.suite)
    changed: dict[str, Any] = {"identity": identity, "servers": (first, second)}
    changed["collector"] = collecting
    weaker = replace(session.round, **changed, minimum=1)
    with pytest.raises(Rejected, match="minimum batch size of 2"):
        session.party(0).endorse(weaker.encode())
    assert session.party(0).endorse(replace(session.round, **changed).encode())
