"""Malicious participants of two servers: invalid, repeated, single and foreign report shares."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest

from tacit.aggregation import Rejected, RoundOutcome, SumView, TwoServerSession


def test_lone_report_shares_displace_no_honest_report() -> None:
    """Sixty lone shares at the helper, before anybody else: each has its own place or none."""
    session = TwoServerSession(70, 10, 1009)
    for place in range(60):
        session.server(1).take(session.split(place, [1])[1], session.now)
    for place in range(60, 70):
        for role, half in enumerate(session.split(place, [2])):
            session.server(role).take(half, session.now)
    assert session.finish() == SumView((20,), 10)


def test_the_list_key_collides_with_no_slot() -> None:
    """A half under that name would keep the list out, or be read as one."""
    place = int.from_bytes(b"list", "big")
    session = TwoServerSession(place + 1, 1, 1 << 40)
    for number in (0, place):
        for role, half in enumerate(session.split(number, [2])):
            session.server(role).take(half, session.now)
    assert session.finish() == SumView((4,), 2)


def test_requests_without_a_token_are_rejected() -> None:
    session = TwoServerSession(5, 1, 1009)
    half = session.split(0, [1])[1]
    for _ in range(50):
        with pytest.raises(Rejected, match="was not assigned"):
            session.server(1).take(half[:25] + os.urandom(len(half) - 25), session.now)
    assert session.tables[1] == {}


def test_an_invalid_report_affects_no_other_slot() -> None:
    """Also at exactly the minimum, and also where it fills the round."""
    session = TwoServerSession(4, 2, 1009)
    for place, value in enumerate((5, 6)):
        for role, half in enumerate(session.split(place, [value])):
            session.server(role).take(half, session.now)
    for place in (2, 3):
        for role, half in enumerate(session.split(place, [9])):
            session.server(role).take(half[:41] + os.urandom(len(half) - 41), session.now)
    assert session.finish() == SumView((11,), 2)


def test_a_token_is_valid_for_one_slot_at_each_server() -> None:
    session = TwoServerSession(4, 1, 1009)
    for _ in range(5):
        for role, half in enumerate(session.split(0, [9])):
            with suppress(Rejected):
                session.server(role).take(half, session.now)
    with pytest.raises(Rejected):  # the shares that were first are of one report, or of none
        session.server(0).close(session.now)
    assert session.finish().reports == 1


def test_shares_of_two_reports_in_one_slot_do_not_count() -> None:
    session = TwoServerSession(4, 1, 1009)
    one, other = session.split(0, [500]), session.split(0, [7])
    session.server(0).take(one[0], session.now)
    session.server(1).take(other[1], session.now)
    for role, half in enumerate(session.split(1, [3])):
        session.server(role).take(half, session.now)
    assert session.finish() == SumView((3,), 1)


def test_too_few_honest_reports_give_an_abort_signed_by_both() -> None:
    session = TwoServerSession(4, 2, 1009)
    for role, half in enumerate(session.split(0, [3])):
        session.server(role).take(half, session.now)
    with pytest.raises(Rejected):
        session.finish()
    for role in (0, 1):
        assert session.server(role).outcome()[21] == RoundOutcome.ABORTED


def test_out_of_range_numbers_without_proofs_shift_the_sum() -> None:
    """A device of one's own making can report anything modulo m: documented."""
    session = TwoServerSession(4, 1, 1009)
    for place, value in enumerate((1, 500)):
        for role, half in enumerate(session.split(place, [value])):
            session.server(role).take(half, session.now)
    assert session.finish() == SumView((501,), 2)
