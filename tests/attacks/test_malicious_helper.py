"""A malicious helper (server 1) with all other participants against an honest coordinator."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import suppress
from fractions import Fraction

import pytest
from tests.attacks.two_server_attacks import (
    EPSILON,
    MODULUS,
    forged_list,
    joint_distribution,
    opened_session,
    secrets,
    worst_loss,
)

from tacit.aggregation import Rejected, RoundOutcome, SumView, TwoServerSession, aborted_by_both
from tacit.aggregation.two_servers import DIGEST_SIZE, report_tag, word_digest

Draw = Callable[[Fraction], int]


def word_for(residue: int) -> bytes:
    """The random bytes of which this number becomes the coordinator's half."""
    return (residue % MODULUS).to_bytes(9, "big")


def observed(
    answer: int, draw: Draw, wanted: Callable[[list[bytes]], list[list[bytes]]]
) -> Hashable:
    """What an honest coordinator answers to a helper that knows its half of every report (5, for
    the victim) and sends the lists that it wants, each to a coordinator that was restored.
    """
    session = opened_session(draw)
    tags, heard = [], []
    for number, value in enumerate((answer, 2)):
        words = [bytes((number, role)) * 8 for role in (0, 1)]
        drawn = iter([*words, word_for(value - 5)])
        shares = session.split(number, [value], lambda _: next(drawn))  # noqa: B023
        session.server(0).take(shares[0], session.now)
        digests = (word_digest(words[0]), word_digest(words[1]))
        tags.append(report_tag(session.round.context, number, digests))
    table, late = dict(session.tables[0]), session.round.binding.closes
    for listed in wanted(tags):
        session.tables[0] = dict(table)
        server = session.server(0)
        with suppress(Rejected):
            server.take(forged_list(session, 1, listed), late)
        for address, message in server.close(late).items():
            if address == session.round.collector:
                heard.append(session.collector()._content(0, message))
    return tuple(heard)


LISTS: dict[str, Callable[[list[bytes]], list[list[bytes]]]] = {
    "all": lambda tags: [tags],
    "the victim alone": lambda tags: [tags[:1]],
    "with, then without the victim": lambda tags: [tags, tags[1:], tags[:1]],
}


@pytest.mark.parametrize("name", LISTS)
def test_the_collectors_view_meets_the_guarantee(name: str) -> None:
    """Also if the helper is handed the coordinator's partial sum."""
    distribution = joint_distribution(lambda answer, draw: observed(answer, draw, LISTS[name]))
    assert len(distribution) == MODULUS
    assert float(EPSILON) * 0.99 < worst_loss(distribution) <= float(EPSILON) + 1e-9


def test_one_report_share_alone_is_uniform() -> None:
    """For every answer the same half may be at the helper, once in so many draws."""
    session = opened_session(lambda _: 0)
    found = set()
    for answer in range(4):
        drawn = iter([bytes(16), bytes(16), word_for(answer - 5)])
        half = session.split(answer, [answer], lambda _: next(drawn))[1]  # noqa: B023
        session.server(1).take(half, session.now)
        (found_half,) = session.server(1)._shares(session.server(1)._record())
        found.add(found_half[DIGEST_SIZE])
        session.tables[1].clear()
    assert found == {5}


def two_reports() -> TwoServerSession:
    session = opened_session(lambda _: 0)
    for place in (0, 1):
        for role, half in enumerate(session.split(place, [place + 1])):
            session.server(role).take(half, session.now)
    return session


def test_the_helper_cannot_retract_or_change_its_answer() -> None:
    session = two_reports()
    assert session.finish() == SumView((3,), 2)
    other = two_reports()
    other.finish()
    wrong = other.server(1).close(other.now)[other.round.collector]
    with pytest.raises(Rejected):
        session.collector().take(wrong)
    assert session.collector().view() == SumView((3,), 2)


def test_one_servers_abort_refunds_nothing() -> None:
    """A participant who was counted stays charged, whatever one server says."""
    session = two_reports()
    late = session.round.binding.closes
    servers = [session.server(role) for role in (0, 1)]
    listing = servers[1].close(late)[servers[1].peer]
    servers[0].take(listing, late)
    servers[0].close(late)
    rejection = servers[1].close(late + session.round.grace)[session.round.collector]
    assert rejection[21] == RoundOutcome.ABORTED
    outcomes = [servers[0].outcome(), servers[1].outcome()]
    assert not aborted_by_both(session.pinned, session.announcement, outcomes)
    session.collector().take(servers[0].close(late)[session.round.collector])
    session.collector().take(rejection)
    session.collector().close()
    with pytest.raises(Rejected, match="server 1 aborted"):
        session.collector().view()


def test_forged_tokens_fill_only_slots_of_their_round() -> None:
    """It can make tokens, as the coordinator can; one half per place stays the rule."""
    session = opened_session(lambda _: 0)
    assert secrets(session, 1).keys.public() == session.round.servers[1]
    honest = session.split(0, [1])
    session.server(0).take(honest[0], session.now)
    with pytest.raises(Rejected, match="another report share"):
        session.server(0).take(session.split(0, [2])[0], session.now)
