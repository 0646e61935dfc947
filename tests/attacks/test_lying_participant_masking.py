"""Participants of masking and mixing who send nonsense, too much, or what is not theirs: what they
cannot do, and what they can, which docs/security.md says.
"""

from __future__ import annotations

import os

import pytest
from tests.intermediaries.liars import WrongShare, play

from tacit.intermediaries import (
    MaskingPlan,
    MaskingSession,
    MixingSession,
    Neighbourhood,
    Refusal,
    SumView,
)
from tacit.intermediaries.wire import Kind, header

INFO = b"tacit mixing wrap v2"


def test_a_client_that_joins_again_or_with_anothers_address_takes_no_second_place() -> None:
    session = MaskingSession([1, 2, 3], MaskingPlan(3, 100, participants=4))
    first, second = session.clients[:2]
    session.server.take(first.join())
    session.server.take(second.join())
    stolen = first._channel.seal(first.join()[:52], second._masking_public + bytes(32))
    for message in (stolen, first.join()[:20] + second.address + first.join()[52:]):
        with pytest.raises(Refusal):
            session.server.take(message)
    assert "clients=2" in repr(session.server)


def test_a_late_client_does_not_get_into_a_stage_that_is_over() -> None:
    session = MaskingSession([1, 2, 3, 4], MaskingPlan(3, 100))
    late = session.clients[3]
    join = late.join()
    session.join(without=[3])
    with pytest.raises(Refusal, match="this round is sharing"):
        session.server.take(join)
    for stage in (session.share, session.mask, session.reveal):
        stage()
    assert session.server.view() == SumView((6,), 3)


def test_liars_beyond_what_the_threshold_spares_end_a_round_and_are_named() -> None:
    """Not prevented: where every share is needed, one wrong share costs the round; the sum is never
    wrong, and the refusal names who it was.
    """
    session = MaskingSession([1, 2, 3, 4], MaskingPlan(3, 100, Neighbourhood(3, 3)))
    for _ in range(2):
        with pytest.raises(Refusal, match=r"2 neighbours revealed .* Blamed: client 0 revealed"):
            play(session, {0: WrongShare()})
    with pytest.raises(Refusal, match="there is no sum"):
        session.server.view()


def test_nonsense_for_the_shuffler_does_not_crowd_out_honest_reports() -> None:
    session = MixingSession(3, 3)
    for _ in range(60):
        wrapped = session.wrap([b"x"])
        with pytest.raises(Refusal):
            session.shuffler.take(wrapped[:20] + os.urandom(len(wrapped) - 20))
    for message in (b"a", b"b", b"c"):
        session.shuffler.take(session.wrap([message]))
    (batch,) = session.shuffler.close().values()
    session.analyzer.take(batch)
    session.analyzer.close()
    assert sorted(session.analyzer.view().messages) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(("honest", "opens"), [(2, False), (3, True)])
def test_nonsense_inside_a_wrap_counts_for_nothing(honest: int, opens: bool) -> None:
    """The shuffler cannot see it; the analyzer drops it, and opens what has its minimum without
    it.
    """
    session = MixingSession(4, 3)
    recipient = session.round.recipients[0]
    nonsense = recipient.seal(os.urandom(session.round.sealed_size), INFO + session.round.context)
    session.shuffler.take(header(Kind.WRAPPED, session.round.identity) + nonsense)
    for place in range(honest):
        session.shuffler.take(session.wrap([bytes((place,))]))
    (batch,) = session.shuffler.close().values()
    session.analyzer.take(batch)
    if opens:
        session.analyzer.close()
        view = session.analyzer.view()
        assert (len(view.messages), view.spoilt) == (3, 1)
    else:
        with pytest.raises(Refusal, match=r"2 messages that open .*: the minimum is 3"):
            session.analyzer.close()
