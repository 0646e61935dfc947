"""Malicious clients of secure aggregation and the shuffler: prevented attacks, and those that
docs/explanation/trust/secure-aggregation.md lists as possible.
"""

from __future__ import annotations

import math
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.aggregation.malicious_clients import (
    Garbage,
    MaliciousClient,
    Slanderer,
    WrongShare,
    corrupt,
    play,
    reworded,
)
from tests.aggregation.rings import ring_session

from tacit.aggregation import (
    MaskingClient,
    MaskingPlan,
    MaskingServer,
    MaskingSession,
    Neighbourhood,
    Rejected,
    ShufflerSession,
    SumView,
)
from tacit.aggregation.blame import Misbehaviour
from tacit.aggregation.client_registry import _most_disputed
from tacit.aggregation.masking_server import MaskingStage
from tacit.aggregation.masks import total as masks_total
from tacit.aggregation.wire import Kind, header

INFO = b"tacit mixing wrap v2"


def test_a_repeated_join_or_a_copied_key_takes_no_second_slot() -> None:
    session = MaskingSession([1, 2, 3], MaskingPlan(3, 100, participants=4))
    first, second = session.clients[:2]
    session.server.take(first.join())
    session.server.take(second.join())
    stolen = first._channel.encrypt(first.join()[:52], second._masking_public + bytes(32))
    for message in (stolen, first.join()[:20] + second.address + first.join()[52:]):
        with pytest.raises(Rejected):
            session.server.take(message)
    assert "clients=2" in repr(session.server)


def test_a_late_client_cannot_enter_a_finished_stage() -> None:
    session = MaskingSession([1, 2, 3, 4], MaskingPlan(3, 100))
    late = session.clients[3]
    join = late.join()
    session.join(without=[3])
    with pytest.raises(Rejected, match="the stage sharing"):
        session.server.take(join)
    for stage in (session.share, session.mask, session.reveal):
        stage()
    assert session.server.view() == SumView((6,), 3)


def test_a_server_copy_with_other_clients_adopts_the_recorded_decision() -> None:
    session = MaskingSession([1, 2, 3], MaskingPlan(3, 100))
    first, second = session.server, MaskingServer(session.server.round, session.store)
    for client in session.clients:
        first.take(client.join())
    for client in (*session.clients[:2], session.client()):
        second.take(client.join())
    sent = first.close()
    with pytest.raises(Rejected, match="server lacks 1 messages"):
        second.close()
    second.take(session.clients[2].join())
    second.close()
    assert second.close(MaskingStage.JOINING) == sent


def test_a_client_that_sends_conflicting_messages_stops_no_server_copy() -> None:
    session = MaskingSession([1, 2, 3, 4], MaskingPlan(3, 100))
    for step in (session.join, session.share, session.check):
        step()
    first, second = session.server, MaskingServer.restore(session.server.save(), session.store)
    for place, client in enumerate(session.clients):
        masked = client.mask(session.outgoing[client.address], [place])
        other = reworded(session, client, masked, lambda said: bytes((said[0] ^ 1,)))
        first.take(masked)
        second.take(masked if place else other)
    sent = first.close()
    with pytest.raises(Rejected, match="server lacks 1 messages"):
        second.close()
    with pytest.raises(Rejected, match="too late"):
        second.take(other)
    second.take(session.clients[0].mask(session.outgoing[session.clients[0].address], [0]))
    second.close()
    assert second.close(MaskingStage.MASKING) == sent


def test_more_malicious_clients_than_tolerated_abort_and_are_named() -> None:
    """Not prevented: where every share is needed, one wrong share costs the round; the sum is never
    wrong, and the rejection names who it was.
    """
    session = MaskingSession([1, 2, 3, 4], MaskingPlan(3, 100, Neighbourhood(3, 3)))
    for _ in range(2):
        with pytest.raises(
            Rejected, match=r"of client . is 2: must be.* Blamed: client 0 revealed"
        ):
            play(session, {0: WrongShare()})
    with pytest.raises(Rejected, match="there is no sum"):
        session.server.view()


@pytest.mark.parametrize("attacker", [Garbage(), Garbage(signs=False), Slanderer(of=2)])
def test_a_client_that_aborts_before_masking_is_named(attacker: MaliciousClient) -> None:
    """Where nobody can be spared, one that is left out costs the round."""
    session = MaskingSession([1] * 8, MaskingPlan(8, 100, Neighbourhood(7, 5)))
    with pytest.raises(Rejected, match=r"must be at least 8.* Blamed: client 3 "):
        play(session, {3: attacker})


def test_an_abort_lists_a_bounded_number_of_malicious_clients() -> None:
    session = MaskingSession([1] * 8, MaskingPlan(8, 100, Neighbourhood(7, 5)))
    with pytest.raises(Rejected, match=r"And \d+ more\.$"):
        play(session, {place: Garbage() for place in range(8)})


def test_an_accusation_lists_each_fault_once() -> None:
    """One that repeats itself would be kept, however long it is."""
    session = MaskingSession([1] * 8, MaskingPlan(6, 100, Neighbourhood(7, 5)))
    corrupt(session.clients[3], Garbage())
    for step in (session.join, session.share, session.check):
        step()
    accuser = session.clients[5]
    accused = accuser.accuse(session.outgoing[accuser.address])
    with pytest.raises(Rejected, match="did not complain about"):
        session.server.take(reworded(session, accuser, accused, lambda said: 1000 * said))
    attacker = session.server._by_address[session.clients[3].address].number
    other = ((attacker + 1) % 8).to_bytes(4, "big")
    with pytest.raises(Rejected, match="did not complain about"):
        session.server.take(reworded(session, accuser, accused, lambda said: other + said[4:]))
    session.server.take(accused)


def test_a_receiver_of_two_invalid_shares_proves_both_and_is_not_blamed() -> None:
    """It is in two complaints and so left out; its server has it show the keys."""
    session = MaskingSession([1] * 12, MaskingPlan(9, 100, Neighbourhood(11, 7)))
    for place in (5, 8):
        corrupt(session.clients[place], Garbage(some=1))
    for step in (session.join, session.share, session.mask, session.reveal):
        step()
    view = session.server.view()
    named = [(blame.kind, blame.numbers) for blame in view.blamed]
    assert named == [(Misbehaviour.INVALID_SHARES, (5,)), (Misbehaviour.INVALID_SHARES, (8,))]
    assert view == SumView((11,), 11, blamed=view.blamed)


def test_two_malicious_clients_can_exclude_as_many_honest_ones() -> None:
    """Not prevented: nobody but they can tell that the parcels do open."""
    session = MaskingSession([1] * 12, MaskingPlan(9, 100, Neighbourhood(11, 7)))
    play(session, {10: Slanderer(of=2), 11: Slanderer(of=2)})
    view = session.server.view()
    alone = [(blame.kind, blame.numbers) for blame in view.blamed if len(blame.numbers) == 1]
    assert alone == [(Misbehaviour.DISPUTED, (0,)), (Misbehaviour.DISPUTED, (1,))]
    pairs = {blame.numbers for blame in view.blamed if len(blame.numbers) == 2}
    assert pairs == {(honest, attacker) for honest in (0, 1) for attacker in (10, 11)}
    assert view.numbers == (10,)


class About(MaliciousClient):
    """Complains of the parcel of this client."""

    def __init__(self, number: int) -> None:
        self.number = number

    def spoil(self, client: MaskingClient, kind: Kind, content: bytes, /) -> bytes:
        if kind is not Kind.CHECKED:
            return content
        client._spoilt[self.number] = b""
        return self.number.to_bytes(4, "big")


@pytest.mark.parametrize("corrupted", [True, False])
def test_malicious_clients_that_know_the_graph_can_disconnect_it(corrupted: bool) -> None:
    """Not prevented: clients 2, 4, 10 and 12 have 3 and 11 left out, so that of all masks between 5
    to 9 and the others they know every one; with a server that follows the protocol they see the
    sum of these five. If they do not lie, masks with 3 and 11 hide it.
    """
    numbers = [100 + place for place in range(16)]
    session = ring_session(numbers, 14, 10_000, Neighbourhood(4, 3))
    for attacker, about in ((2, 3), (4, 3), (10, 11), (12, 11)) if corrupted else ():
        corrupt(session.clients[attacker], About(about))
    for step in (session.join, session.share, session.mask):
        step()
    registry, cluster = session.server._registry, range(5, 10)
    for client in session.clients:
        if client.address in session.outgoing:
            session.server.take(client.reveal(session.outgoing[client.address]))
    registry.reconstruct_seeds()
    known = [
        (number > attacker, seed)
        for attacker in (4, 10)
        for number, seed in session.clients[attacker]._pairs.items()
        if number in cluster
    ]
    taken = [registry.own_seeds[number] for number in cluster] + [
        seed for up, seed in known if not up
    ]
    added = [seed for up, seed in known if up]
    (masks,) = masks_total(added, taken, 10_000, 1)
    seen = (sum(registry.members[number].masked[0] for number in cluster) + masks) % 10_000
    assert (seen == sum(numbers[5:10])) is corrupted
    session.outgoing = session.server.close()
    assert session.server.view().reports == (14 if corrupted else 16)


@given(st.dictionaries(st.integers(0, 9), st.sets(st.integers(10, 40), min_size=1), min_size=1))
def test_excluded_honest_clients_are_bounded_by_malicious_ones_times_a_logarithm(
    complaints: dict[int, set[int]],
) -> None:
    disputes: dict[int, set[int]] = {attacker: set(of) for attacker, of in complaints.items()}
    for attacker, of in complaints.items():
        for honest in of:
            disputes.setdefault(honest, set()).add(attacker)
    out = _most_disputed(disputes)
    attackers = len(complaints)
    honest_out = sum(number >= 10 for number in out)
    assert honest_out <= attackers * (1 + math.log(attackers))
    assert honest_out == 0 or attackers > 1


def test_invalid_messages_to_the_shuffler_displace_no_honest_report() -> None:
    session = ShufflerSession(3, 3)
    for _ in range(60):
        wrapped = session.wrap([b"x"])
        with pytest.raises(Rejected):
            session.shuffler.take(wrapped[:20] + os.urandom(len(wrapped) - 20))
    for message in (b"a", b"b", b"c"):
        session.shuffler.take(session.wrap([message]))
    (batch,) = session.shuffler.close().values()
    session.analyzer.take(batch)
    session.analyzer.close()
    assert sorted(session.analyzer.view().messages) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(("honest", "opens"), [(2, False), (3, True)])
def test_invalid_inner_ciphertexts_do_not_count(honest: int, opens: bool) -> None:
    """The shuffler cannot see it; the analyzer drops it, and opens what has its minimum without
    it.
    """
    session = ShufflerSession(4, 3)
    recipient = session.round.recipients[0]
    nonsense = recipient.encrypt(
        os.urandom(session.round.encrypted_size), INFO + session.round.context
    )
    session.shuffler.take(header(Kind.WRAPPED, session.round.identity) + nonsense)
    for place in range(honest):
        session.shuffler.take(session.wrap([bytes((place,))]))
    (batch,) = session.shuffler.close().values()
    session.analyzer.take(batch)
    if opens:
        session.analyzer.close()
        view = session.analyzer.view()
        assert (len(view.messages), view.invalid) == (3, 1)
    else:
        with pytest.raises(Rejected, match=r"valid messages .* is 2: must be at least 3"):
            session.analyzer.close()
