"""Mixing hands over exactly the messages that came, in random order, or refuses."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.intermediaries.mixers import keys_of

from tacit.checks import TacitError
from tacit.intermediaries import (
    Analyzer,
    MixingSession,
    MixView,
    Refusal,
    Sealing,
    ServerKeys,
    Shuffler,
    run_mixing,
)
from tacit.intermediaries.agreement import Channel
from tacit.intermediaries.interface import new_identity
from tacit.intermediaries.mixing import Role, prepare_party
from tacit.intermediaries.wire import Kind, header
from tacit.records import MemoryRecords


def parties(
    reports: int = 4, minimum: int = 3, size: int = 1, messages: int = 1
) -> tuple[MixingSession, Shuffler, Analyzer]:
    session = MixingSession(reports, minimum, size, messages)
    return session, session.shuffler, session.analyzer


def finish(shuffler: Shuffler, analyzer: Analyzer) -> MixView:
    (batch,) = shuffler.close().values()
    analyzer.take(batch)
    analyzer.close()
    return analyzer.view()


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 200), st.integers(1, 4), st.integers(1, 40), st.integers(0, 2**32))
def test_mixing_hands_over_exactly_the_messages_that_came_or_refuses(
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
        view = run_mixing(sent, minimum, lost=lost)
    except Refusal:
        assert len(came) < minimum
    else:
        assert Counter(view.messages) == Counter(message for report in came for message in report)
        assert (view.reports, view.spoilt) == (len(came), 0)


def test_the_hybrid_suite_hands_over_the_same_messages() -> None:
    assert sorted(run_mixing([[b"b"], [b"a"]], 2, Sealing.HYBRID).messages) == [b"a", b"b"]


def test_a_report_counts_once_however_often_it_arrives() -> None:
    session, shuffler, analyzer = parties()
    for message in (b"a", b"b", b"c"):
        report = session.wrap([message])
        shuffler.take(report)
        shuffler.take(report)
    assert sorted(finish(shuffler, analyzer).messages) == [b"a", b"b", b"c"]


def test_a_message_wrapped_anew_counts_once() -> None:
    session, shuffler, analyzer = parties()
    for message in (b"a", b"b", b"c"):
        shuffler.take(session.wrap([message]))
    again = session.round.recipients[0].seal(
        next(iter(shuffler._taken.values()))[0], b"tacit mixing wrap v2" + session.round.context
    )
    with pytest.raises(Refusal, match="counts once"):
        shuffler.take(header(Kind.WRAPPED, session.round.identity) + again)
    assert finish(shuffler, analyzer).spoilt == 0


def test_messages_that_a_shuffler_repeats_are_counted_once_by_the_analyzer() -> None:
    session, shuffler, analyzer = parties()
    for message in (b"a", b"b", b"c"):
        shuffler.take(session.wrap([message]))
    shuffler._taken[b"again"] = next(iter(shuffler._taken.values()))
    view = finish(shuffler, analyzer)
    assert (sorted(view.messages), view.reports, view.spoilt) == ([b"a", b"b", b"c"], 4, 1)


def test_a_shuffler_that_fills_up_with_repeats_opens_nothing() -> None:
    session, shuffler, analyzer = parties()
    shuffler.take(session.wrap([b"a"]))
    (report,) = shuffler._taken.values()
    shuffler._taken |= {b"again": report, b"and again": report}
    with pytest.raises(Refusal, match="1 messages that open: the minimum is 3"):
        finish(shuffler, analyzer)


def test_nonsense_from_one_device_spoils_its_own_message_only() -> None:
    session, shuffler, analyzer = parties()
    for message in (b"a", b"b", b"c"):
        shuffler.take(session.wrap([message]))
    nonsense = session.round.recipients[0].seal(
        bytes(session.round.sealed_size), b"tacit mixing wrap v2" + session.round.context
    )
    shuffler.take(header(Kind.WRAPPED, session.round.identity) + nonsense)
    view = finish(shuffler, analyzer)
    assert (sorted(view.messages), view.spoilt) == ([b"a", b"b", b"c"], 1)


def test_fewer_than_the_minimum_are_forgotten_and_nothing_is_handed_on() -> None:
    session, shuffler, _ = parties()
    shuffler.take(session.wrap([b"a"]))
    with pytest.raises(Refusal, match="1 reports: the minimum is 3; nothing was opened"):
        shuffler.close()
    shuffler.refuse()
    assert not shuffler._taken
    assert not shuffler._seen
    for attempt in (shuffler.close, lambda: shuffler.take(session.wrap([b"a"]))):
        with pytest.raises(Refusal, match="over"):
            attempt()


def test_too_early_a_close_and_a_second_one_change_nothing() -> None:
    session, shuffler, analyzer = parties()
    for attempt in (shuffler.close, analyzer.close, analyzer.view):
        with pytest.raises(Refusal):
            attempt()
    for message in (b"a", b"b", b"c"):
        shuffler.take(session.wrap([message]))
    assert shuffler.close() == shuffler.close()
    (batch,) = shuffler.close().values()
    analyzer.take(batch)
    analyzer.take(batch)
    for _ in range(2):
        assert analyzer.close() == {}
        analyzer.refuse()
        assert sorted(analyzer.view().messages) == [b"a", b"b", b"c"]
    shuffler.refuse()
    assert shuffler.close() == {session.round.analyzer[:32]: batch}
    shuffler.forget()
    with pytest.raises(Refusal, match="handed on and forgotten"):
        shuffler.close()


def test_a_full_batch_takes_no_more_and_a_closed_one_is_forgotten() -> None:
    session, shuffler, analyzer = parties(reports=3)
    for message in (b"a", b"b", b"c"):
        assert not shuffler.full
        shuffler.take(session.wrap([message]))
    assert shuffler.full
    with pytest.raises(Refusal, match="full"):
        shuffler.take(session.wrap([b"d"]))
    finish(shuffler, analyzer)
    assert not shuffler._taken
    assert not shuffler._seen


def test_reports_of_another_round_key_or_size_are_refused() -> None:
    session, shuffler, _ = parties()
    other, _, _ = parties()
    with pytest.raises(Refusal, match="another round"):
        shuffler.take(other.wrap([b"a"]))
    with pytest.raises(Refusal, match="does not open"):
        shuffler.take(header(Kind.WRAPPED, session.round.identity) + other.wrap([b"a"])[20:])
    with pytest.raises(Refusal, match="bytes here"):
        shuffler.take(session.wrap([b"a"]) + b"x")
    for messages in ([b"aa"], [b""], [], [b"a", b"b"]):
        with pytest.raises(TacitError, match="1 messages of 1 bytes"):
            session.wrap(messages)


def test_batches_that_make_no_sense_are_refused() -> None:
    session, shuffler, analyzer = parties()
    announced, keys = session.round, keys_of(session)
    for message in (b"a", b"b", b"c"):
        shuffler.take(session.wrap([message]))
    sealed = b"".join(item for report in shuffler._taken.values() for item in report)
    for content in (
        b"",
        bytes(5),
        (3).to_bytes(4, "big") + sealed[:-1],
        (9).to_bytes(4, "big") + sealed * 3,
    ):
        line = Channel(
            keys[0].line,
            announced.shuffler[:32],
            announced.analyzer[:32],
            announced.context,
            starts=True,
        )
        with pytest.raises(Refusal):
            analyzer.take(line.seal(header(Kind.BATCH, announced.identity), content))
    (batch,) = shuffler.close().values()
    analyzer.take(batch)
    two = (2).to_bytes(4, "big") + sealed[: 2 * announced.sealed_size]
    other = line.seal(header(Kind.BATCH, announced.identity), two)
    with pytest.raises(Refusal, match="another batch"):
        analyzer.take(other)
    analyzer.close()
    with pytest.raises(Refusal, match="over: it was opened"):
        analyzer.take(batch)
    assert analyzer.view().reports == 3


def test_parties_with_wrong_or_shared_keys_are_refused() -> None:
    session = MixingSession(4, 3)
    announced, store, keys = session.round, session.store, ServerKeys.new().public()
    other = replace(announced, identity=new_identity())
    strange = replace(announced, shuffler=keys)
    for party in (Shuffler, Analyzer):
        with pytest.raises(Refusal, match="unknown here"):
            party(other, store)
        with pytest.raises(Refusal, match="made for another description"):
            party(strange, store)
    fresh, identity = MemoryRecords(), new_identity()
    prepare_party(fresh, Role.SHUFFLER, identity)
    with pytest.raises(TacitError, match="other keys of the shuffler"):
        Shuffler(replace(announced, identity=identity), fresh)
    with pytest.raises(TacitError, match="same key"):
        replace(announced, shuffler=keys, analyzer=keys)
    with pytest.raises(TacitError, match="open several rounds"):
        replace(announced, reports=10**6, size=10**6)


@pytest.mark.parametrize("sealing", list(Sealing))
def test_a_buffered_message_takes_at_most_two_kilobytes(sealing: Sealing) -> None:
    session = MixingSession(500, 1, sealing=sealing)
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
