"""The shuffler forwards exactly the received messages in random order, or rejects."""

from __future__ import annotations

import os
import random
import tracemalloc
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.aggregation.shuffler_channels import keys_of

from tacit.aggregation import (
    Analyzer,
    HpkeSuite,
    Rejected,
    RoundOutcome,
    ServerKeys,
    ShuffledView,
    Shuffler,
    ShufflerSession,
    run_shuffler,
    shuffler_outcome,
)
from tacit.aggregation.agreement import Channel
from tacit.aggregation.interface import new_identity
from tacit.aggregation.shuffler import ShuffleRole, ShufflerRound, prepare_party
from tacit.aggregation.two_servers import read_outcome
from tacit.aggregation.wire import Kind, header
from tacit.errors import TacitError
from tacit.records import MemoryRecords


def parties(
    reports: int = 4, minimum: int = 3, size: int = 1, messages: int = 1
) -> tuple[ShufflerSession, Shuffler, Analyzer]:
    session = ShufflerSession(reports, minimum, size, messages)
    return session, session.shuffler, session.analyzer


def finish(shuffler: Shuffler, analyzer: Analyzer) -> ShuffledView:
    (batch,) = shuffler.close().values()
    analyzer.take(batch)
    analyzer.close()
    return analyzer.view()


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 60), st.integers(1, 4), st.integers(1, 40), st.integers(0, 2**32))
def test_the_shuffler_forwards_exactly_the_received_messages_or_rejects(
    reports: int, messages: int, size: int, seed: int
) -> None:
    rng = random.Random(seed)
    sent = [
        [rng.choice((bytes(size), rng.randbytes(size))) for _ in range(messages)]
        for _ in range(reports)
    ]
    lost = {place for place in range(reports) if rng.random() < 0.2}
    minimum = rng.randrange(1, reports + 1)
    came = [report for place, report in enumerate(sent) if place not in lost]
    try:
        view = run_shuffler(sent, minimum, lost=lost)
    except Rejected:
        assert len(came) < minimum
    else:
        assert Counter(view.messages) == Counter(message for report in came for message in report)
        assert (view.reports, view.invalid) == (len(came), 0)


def test_the_hybrid_suite_forwards_the_same_messages() -> None:
    assert sorted(run_shuffler([[b"b"], [b"a"]], 2, HpkeSuite.HYBRID).messages) == [b"a", b"b"]


def test_a_report_counts_once_however_often_it_arrives() -> None:
    session, shuffler, analyzer = parties()
    for message in (b"a", b"b", b"c"):
        report = session.wrap([message])
        shuffler.take(report)
        shuffler.take(report)
    assert sorted(finish(shuffler, analyzer).messages) == [b"a", b"b", b"c"]


def test_a_reencrypted_message_counts_once() -> None:
    session, shuffler, analyzer = parties()
    for message in (b"a", b"b", b"c"):
        shuffler.take(session.wrap([message]))
    again = session.round.recipients[0].encrypt(
        next(iter(shuffler._taken.values()))[0], b"tacit mixing wrap v2" + session.round.context
    )
    with pytest.raises(Rejected, match="counts once"):
        shuffler.take(header(Kind.WRAPPED, session.round.identity) + again)
    assert finish(shuffler, analyzer).invalid == 0


def test_the_analyzer_counts_messages_repeated_by_the_shuffler_once() -> None:
    session, shuffler, analyzer = parties()
    for message in (b"a", b"b", b"c"):
        shuffler.take(session.wrap([message]))
    shuffler._taken[b"again"] = next(iter(shuffler._taken.values()))
    view = finish(shuffler, analyzer)
    assert (sorted(view.messages), view.reports) == ([b"a", b"b", b"c"], 4)
    assert (view.invalid, view.repeated) == (1, 1)


def test_a_shuffler_that_pads_with_duplicates_releases_nothing() -> None:
    session, shuffler, analyzer = parties()
    shuffler.take(session.wrap([b"a"]))
    (report,) = shuffler._taken.values()
    shuffler._taken |= {b"again": report, b"and again": report}
    told = r"valid messages \(0 cannot be decrypted, 2 are repeated\) is 1: must be at least 3"
    with pytest.raises(Rejected, match=told):
        finish(shuffler, analyzer)


def test_an_invalid_message_drops_only_itself() -> None:
    session, shuffler, analyzer = parties()
    for message in (b"a", b"b", b"c"):
        shuffler.take(session.wrap([message]))
    nonsense = session.round.recipients[0].encrypt(
        bytes(session.round.encrypted_size), b"tacit mixing wrap v2" + session.round.context
    )
    shuffler.take(header(Kind.WRAPPED, session.round.identity) + nonsense)
    view = finish(shuffler, analyzer)
    assert (sorted(view.messages), view.invalid) == ([b"a", b"b", b"c"], 1)


Nonsense = Callable[[ShufflerSession], bytes]


def wrapped(session: ShufflerSession, inner: bytes) -> bytes:
    """A report with any content that the shuffler can open."""
    encrypted = session.round.recipients[0].encrypt(
        inner, b"tacit mixing wrap v2" + session.round.context
    )
    return header(Kind.WRAPPED, session.round.identity) + encrypted


def for_the_analyzer(session: ShufflerSession, content: bytes, info: bytes | None = None) -> bytes:
    usual = b"tacit mixing message v2" + session.round.context
    return session.round.recipients[1].encrypt(content, usual if info is None else info)


def noise(session: ShufflerSession) -> bytes:
    return wrapped(session, os.urandom(2 * session.round.encrypted_size))


def zeros(session: ShufflerSession) -> bytes:
    size = session.round.encrypted_size
    return wrapped(session, os.urandom(8) + bytes(size - 8) + os.urandom(8) + b"\xff" * (size - 8))


def of_another_round(session: ShufflerSession) -> bytes:
    other = b"tacit mixing message v2" + bytes(32)
    encrypted = [for_the_analyzer(session, os.urandom(17), other) for _ in range(2)]
    return wrapped(session, b"".join(encrypted))


def for_nobody(session: ShufflerSession) -> bytes:
    stranger = ShufflerSession(4, 3, messages=2).round.recipients[1]
    info = b"tacit mixing message v2" + session.round.context
    return wrapped(session, b"".join(stranger.encrypt(os.urandom(17), info) for _ in range(2)))


def flipped(session: ShufflerSession) -> bytes:
    encrypted = [bytearray(for_the_analyzer(session, os.urandom(17))) for _ in range(2)]
    for item in encrypted:
        item[-1] ^= 1
    return wrapped(session, b"".join(encrypted))


SPOILT: list[Nonsense] = [noise, zeros, of_another_round, for_nobody, flipped]


@pytest.mark.parametrize("nonsense", SPOILT)
@pytest.mark.parametrize("honest", [2, 3, 4])
def test_invalid_messages_abort_no_round_with_its_minimum_of_valid_ones(
    nonsense: Nonsense, honest: int
) -> None:
    """Below the minimum, exactly at it and above, with more nonsense than reports."""
    session, shuffler, analyzer = parties(reports=9, minimum=3, messages=2)
    for _ in range(5):
        shuffler.take(nonsense(session))
    for place in range(honest):
        shuffler.take(session.wrap([b"a", bytes((place,))]))
    if honest < 3:
        told = r"valid messages \(10 cannot be decrypted, 0 are repeated\) is 4: must be at least 6"
        with pytest.raises(Rejected, match=told):
            finish(shuffler, analyzer)
        return
    view = finish(shuffler, analyzer)
    expected = Counter([b"a"] * honest) + Counter(bytes((place,)) for place in range(honest))
    assert Counter(view.messages) == expected
    assert (view.reports, view.invalid, view.repeated) == (honest + 5, 10, 0)


def test_two_messages_with_one_id_count_once_and_are_reported() -> None:
    session, shuffler, analyzer = parties(reports=4, minimum=3, messages=2)
    same = os.urandom(16)
    twice = [for_the_analyzer(session, same + letter) for letter in (b"x", b"y")]
    shuffler.take(wrapped(session, b"".join(twice)))
    for _ in range(3):
        shuffler.take(session.wrap([b"a", b"b"]))
    view = finish(shuffler, analyzer)
    assert len(view.messages) == 7
    assert (view.reports, view.invalid, view.repeated) == (4, 1, 1)


def test_messages_that_the_shuffler_cannot_decrypt_take_no_slot() -> None:
    session, shuffler, analyzer = parties(reports=3, minimum=3, messages=2)
    good = session.wrap([b"a", b"b"])
    for content in (good[:20] + os.urandom(len(good) - 20), good[:-1], good + b"x", good[:20]):
        with pytest.raises(Rejected):
            shuffler.take(content)
    size = session.round.encrypted_size
    twice = for_the_analyzer(session, os.urandom(17)) * 2
    for inner in (b"", os.urandom(size), os.urandom(3 * size), twice):
        with pytest.raises(Rejected):
            shuffler.take(wrapped(session, inner))
    for _ in range(3):
        shuffler.take(session.wrap([b"a", b"b"]))
    assert finish(shuffler, analyzer).invalid == 0


def test_batches_below_the_minimum_are_deleted_and_not_forwarded() -> None:
    session, shuffler, _ = parties()
    shuffler.take(session.wrap([b"a"]))
    with pytest.raises(Rejected, match="number of reports is 1: must be at least 3"):
        shuffler.close()
    shuffler.abort()
    assert not shuffler._taken
    assert not shuffler._seen
    for attempt in (shuffler.close, lambda: shuffler.take(session.wrap([b"a"]))):
        with pytest.raises(Rejected, match="over"):
            attempt()


def test_the_analyzer_decrypts_no_batch_below_the_minimum() -> None:
    session, shuffler, analyzer = parties()
    for message in (b"a", b"b"):
        shuffler.take(session.wrap([message]))
    analyzer.take(shuffler._batch())
    with pytest.raises(Rejected, match="number of reports is 2: must be at least 3"):
        analyzer.close()


def test_the_messages_of_one_report_are_separated() -> None:
    """Were only whole reports shuffled, each would be told by its first message; by chance all stay
    together once in 10^18 rounds.
    """
    session, shuffler, analyzer = parties(reports=8, minimum=8, messages=4)
    for who in range(8):
        shuffler.take(session.wrap([bytes([who])] * 4))
    messages = finish(shuffler, analyzer).messages
    assert any(len(set(messages[at : at + 4])) > 1 for at in range(0, 32, 4))


def test_saved_state_does_not_reveal_the_order_of_reports() -> None:
    session, shuffler, _ = parties()
    other, reports = Shuffler(session.round, session.store), [session.wrap([b"a"]) for _ in "123"]
    for one, another in zip(reports, reversed(reports), strict=True):
        shuffler.take(one)
        other.take(another)
    assert shuffler.save() == other.save()


def test_early_and_repeated_closes_change_nothing() -> None:
    session, shuffler, analyzer = parties()
    for attempt, reason in (
        (shuffler.close, "number of reports is 0: must be at least 3"),
        (analyzer.close, "batch is missing"),
        (analyzer.view, "is not released"),
    ):
        with pytest.raises(Rejected, match=reason):
            attempt()
    with pytest.raises(Rejected, match="batch is missing"):
        analyzer.close()
    for message in (b"a", b"b", b"c"):
        shuffler.take(session.wrap([message]))
    assert shuffler.close() == shuffler.close()
    (batch,) = shuffler.close().values()
    analyzer.take(batch)
    analyzer.take(batch)
    for _ in range(2):
        assert analyzer.close() == {}
        analyzer.abort()
        assert sorted(analyzer.view().messages) == [b"a", b"b", b"c"]
    shuffler.abort()
    assert shuffler.close() == {session.round.analyzer[:32]: batch}
    shuffler.forget()
    with pytest.raises(Rejected, match="forwarded and deleted"):
        shuffler.close()


def test_a_full_batch_rejects_reports_and_a_closed_one_is_deleted() -> None:
    session, shuffler, analyzer = parties(reports=3)
    for message in (b"a", b"b", b"c"):
        assert not shuffler.full
        shuffler.take(session.wrap([message]))
    assert shuffler.full
    with pytest.raises(Rejected, match="full"):
        shuffler.take(session.wrap([b"d"]))
    finish(shuffler, analyzer)
    assert not shuffler._taken
    assert not shuffler._seen


def test_reports_of_another_round_key_or_size_are_rejected() -> None:
    session, shuffler, _ = parties()
    other, _, _ = parties()
    with pytest.raises(Rejected, match="another round"):
        shuffler.take(other.wrap([b"a"]))
    with pytest.raises(Rejected, match="cannot be decrypted"):
        shuffler.take(header(Kind.WRAPPED, session.round.identity) + other.wrap([b"a"])[20:])
    with pytest.raises(Rejected, match="bytes long"):
        shuffler.take(session.wrap([b"a"]) + b"x")
    for messages in ([b"aa"], [b""], [], [b"a", b"b"]):
        with pytest.raises(TacitError, match="list of message sizes is"):
            session.wrap(messages)


def test_invalid_batches_are_rejected() -> None:
    session, shuffler, analyzer = parties()
    announced, keys = session.round, keys_of(session)
    for message in (b"a", b"b", b"c"):
        shuffler.take(session.wrap([message]))
    encrypted = b"".join(item for report in shuffler._taken.values() for item in report)
    for content in (
        b"",
        bytes(5),
        (3).to_bytes(4, "big") + encrypted[:-1],
        (9).to_bytes(4, "big") + encrypted * 3,
    ):
        line = Channel(
            keys[0].line,
            announced.shuffler[:32],
            announced.analyzer[:32],
            announced.context,
            starts=True,
        )
        with pytest.raises(Rejected):
            analyzer.take(line.encrypt(header(Kind.BATCH, announced.identity), content))
    (batch,) = shuffler.close().values()
    analyzer.take(batch)
    two = (2).to_bytes(4, "big") + encrypted[: 2 * announced.encrypted_size]
    other = line.encrypt(header(Kind.BATCH, announced.identity), two)
    with pytest.raises(Rejected, match="differs from the earlier"):
        analyzer.take(other)
    analyzer.close()
    with pytest.raises(Rejected, match=r"over \(released\)"):
        analyzer.take(batch)
    assert analyzer.view().reports == 3


def test_parties_with_wrong_or_shared_keys_are_rejected() -> None:
    session = ShufflerSession(4, 3)
    announced, store, keys = session.round, session.store, ServerKeys.new().public()
    other = replace(announced, identity=new_identity())
    strange = replace(announced, shuffler=keys)
    for party in (Shuffler, Analyzer):
        with pytest.raises(Rejected, match="is unknown"):
            party(other, store)
        with pytest.raises(Rejected, match="a round has one description"):
            party(strange, store)
    fresh, identity = MemoryRecords(), new_identity()
    prepare_party(fresh, ShuffleRole.SHUFFLER, identity)
    with pytest.raises(TacitError, match="other keys than the shuffler"):
        Shuffler(replace(announced, identity=identity), fresh)
    with pytest.raises(TacitError, match="same key"):
        replace(announced, shuffler=keys, analyzer=keys)
    for half in (keys[:32] + announced.shuffler[32:], announced.shuffler[:32] + keys[32:]):
        with pytest.raises(TacitError, match="same key"):
            replace(announced, shuffler=keys, analyzer=half)
    with pytest.raises(TacitError, match="Split the round"):
        replace(announced, slots=10**6, size=10**6)


@pytest.mark.parametrize("came", [2, 3])
def test_each_party_signs_the_outcome_of_its_own_round_only(came: int) -> None:
    session, shuffler, analyzer = parties()
    announced, pinned = session.round, session.pinned

    def said(description: ShufflerRound) -> list[tuple[int, RoundOutcome]]:
        keys = zip(ShuffleRole, session.rehearsal.keys, strict=True)
        words = [shuffler_outcome(description, session.store, role, key) for role, key in keys]
        return [read_outcome(pinned, description, word) for word in words]

    with pytest.raises(Rejected, match="not over yet"):
        said(announced)
    for _ in range(came):
        shuffler.take(session.wrap([b"a"]))
    if came == 3:
        finish(shuffler, analyzer)
        shuffler.forget()
    shuffler.abort()
    analyzer.abort()
    became = RoundOutcome.RELEASED if came == 3 else RoundOutcome.ABORTED
    assert said(announced) == [(0, became), (1, became)]
    for other in (replace(announced, identity=new_identity()), replace(announced, minimum=2)):
        assert said(other) == [(0, RoundOutcome.UNKNOWN), (1, RoundOutcome.UNKNOWN)]


def test_a_partys_round_keys_are_created_once_and_never_after_the_end() -> None:
    session, shuffler, _ = parties()
    store, identity = session.store, session.round.identity
    assert prepare_party(store, ShuffleRole.SHUFFLER, identity) == session.round.shuffler
    shuffler.abort()
    with pytest.raises(Rejected, match=r"over \(aborted\)"):
        prepare_party(store, ShuffleRole.SHUFFLER, identity)


@pytest.mark.parametrize("sealing", list(HpkeSuite))
def test_a_buffered_message_takes_at_most_two_kilobytes(sealing: HpkeSuite) -> None:
    session = ShufflerSession(500, 1, suite=sealing)
    shuffler = session.shuffler
    reports = [session.wrap([b"1"]) for _ in range(500)]
    tracemalloc.start()
    try:
        for report in reports:
            shuffler.take(report)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used / 500 <= 2048
