"""A network adversary that reads, repeats, delays, reorders, redirects and alters every message."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from fractions import Fraction
from itertools import permutations

import pytest

from tacit.aggregation import OwnNoise, Rejected, SumView, TwoServerSession


def started(places: int = 3) -> tuple[TwoServerSession, list[tuple[bytes, bytes]]]:
    session = TwoServerSession(places, 1, 1009)
    return session, [session.split(place, [place + 1]) for place in range(places)]


def test_messages_may_be_repeated_and_reordered() -> None:
    """All orders of two lists and two partial sums, each message three times."""
    for order in permutations((0, 1)):
        session, shares = started()
        for report in shares * 3:
            for role in order:
                session.server(role).take(report[role], session.now)
        late = session.round.binding.closes
        for _ in range(3):
            for role in order:
                for address, message in session.server(role).close(late).items():
                    for _ in range(3):
                        if address == session.server(role).peer:
                            session.server(1 - role).take(message, late)
                        else:
                            session.collector().take(message)
        for _ in range(3):
            session.collector().close()
            assert session.collector().view() == SumView((6,), 3)


def test_a_list_received_before_the_own_close_is_kept() -> None:
    session, shares = started()
    for report in shares:
        for role in (0, 1):
            session.server(role).take(report[role], session.now)
    late = session.round.binding.closes
    listing = session.server(0).close(late)[session.server(0).peer]
    session.server(1).take(listing, session.now - 5)
    assert session.finish() == SumView((6,), 3)


def test_lists_and_partial_sums_of_another_round_or_direction_are_rejected() -> None:
    session, shares = started()
    other, others = started()
    late = session.round.binding.closes
    for one, reports in ((session, shares), (other, others)):
        for report in reports:
            for role in (0, 1):
                one.server(role).take(report[role], one.now)
    listing = other.server(0).close(late)[other.server(0).peer]
    own = session.server(0).close(late)[session.server(0).peer]
    for wrong in (listing, own[:20] + listing[20:], own[:20] + b"\x01" + own[21:]):
        with pytest.raises(Rejected):
            session.server(1).take(wrong, late)
    with pytest.raises(Rejected):
        session.server(0).take(own, late)
    with pytest.raises(Rejected):
        session.collector().take(own)


def test_premature_closes_change_nothing() -> None:
    session, shares = started()
    for report in shares[:2]:
        for role in (0, 1):
            session.server(role).take(report[role], session.now)
            with pytest.raises(Rejected, match="stays open"):
                session.server(role).close(session.now)
            with suppress(Rejected):
                session.collector().close()
    late = session.round.binding.closes
    first = session.server(0)
    session.server(1).take(first.close(late)[first.peer], late)
    for _ in range(3):
        first.close(late)
        session.collector().take(session.server(1).close(late)[session.round.collector])
        with pytest.raises(Rejected, match="number of answers is 1"):
            session.collector().close()
    assert session.finish() == SumView((3,), 2)


def test_parallel_identical_shares_take_one_slot() -> None:
    """Sixty rounds of eight threads that send the same half at once."""
    for _ in range(60):
        session = TwoServerSession(2, 1, 1009)
        shares = session.split(0, [5])
        servers = [session.server(role) for role in (0, 1)]
        session.server(1).take(shares[1], session.now)
        threads = [
            threading.Thread(target=servers[0].take, args=(shares[0], session.now))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(session.tables[0]) == 1
        assert session.finish() == SumView((5,), 1)


def test_an_eavesdropper_decrypts_no_message() -> None:
    """Neither numbers nor noise stand in the clear in anything that is sent."""
    drawn = random.Random(7).getrandbits(60)
    noise = OwnNoise(4, Fraction(4), lambda _: drawn)
    session = TwoServerSession(2, 1, 1 << 64, noise=noise)
    seen: list[bytes] = []
    for place in (0, 1):
        for role, half in enumerate(session.split(place, [1])):
            seen.append(half)
            session.server(role).take(half, session.now)
    view = session.finish()
    for role in (0, 1):
        seen += session.server(role).close(session.now).values()
    for number in (drawn, *view.numbers):
        assert number.to_bytes(8, "big") not in b"".join(seen)
