"""Malicious clients of secure aggregation are excluded and named, alone or as a pair, and no honest
client is named alone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.aggregation.malicious_clients import (
    Evader,
    Garbage,
    MaliciousClient,
    NoSeed,
    OtherShares,
    ScatteredKey,
    Slanderer,
    UnknownKey,
    UnknownSeed,
    WrongShare,
    play,
)
from tests.aggregation.rings import ring_session

from tacit.aggregation import MaskingClient, MaskingSession, Neighbourhood, Rejected
from tacit.aggregation.blame import Blame, Misbehaviour, decode_blames
from tacit.aggregation.graph import neighbourhood
from tacit.aggregation.masking_server import STAGES, MaskingServer, MaskingStage
from tacit.aggregation.wire import Kind

MODULUS = 1 << 32


def session_of(count: int, minimum: int, among: Neighbourhood) -> MaskingSession:
    return ring_session([1 << place % 20 for place in range(count)], minimum, MODULUS, among)


def total_without(session: MaskingSession, places: Collection[int]) -> int:
    kept = [report[0] for place, report in enumerate(session.reports) if place not in places]
    return sum(kept) % MODULUS


def check_opened(session: MaskingSession, out: Collection[int]) -> None:
    view = session.server.view()
    assert view.numbers == (total_without(session, out),)
    assert view.reports == len(session.reports) - len(out)


def check_named(session: MaskingSession, *expected: tuple[Misbehaviour, tuple[int, ...]]) -> None:
    view = session.server.view()
    assert sorted((blame.kind, blame.numbers) for blame in view.blamed) == sorted(expected)
    for blame in view.blamed:
        assert blame.addresses == tuple(session.clients[one].address for one in blame.numbers)


Named = list[tuple[Misbehaviour, tuple[int, ...]]]


def every_pair(sender: int, receivers: Collection[int]) -> Named:
    """The accusation of one that is excluded because these complain of it."""
    pairs: Named = [(Misbehaviour.INVALID_SHARES, (sender, receiver)) for receiver in receivers]
    return [(Misbehaviour.DISPUTED, (sender,)), *pairs]


def every_complaint(receiver: int, senders: Collection[int]) -> Named:
    """The accusation of one that is excluded because it complains of these."""
    pairs: Named = [(Misbehaviour.INVALID_SHARES, (sender, receiver)) for sender in senders]
    return [(Misbehaviour.DISPUTED, (receiver,)), *pairs]


def test_a_client_that_reveals_a_wrong_share_is_named_among_two_hundred() -> None:
    session = session_of(200, 200, Neighbourhood(12, 8))
    play(session, {3: WrongShare()})
    check_opened(session, ())
    check_named(session, (Misbehaviour.WRONG_SHARE, (3,)))


def test_invalid_encrypted_shares_are_attributed_among_two_hundred_clients() -> None:
    session = session_of(200, 199, Neighbourhood(12, 8))
    play(session, {3: Garbage()})
    check_opened(session, [3])
    check_named(session, *every_pair(3, ring(3, 200, 12)))


def test_a_client_that_withholds_its_masking_key_is_named_among_two_hundred() -> None:
    session = session_of(200, 199, Neighbourhood(12, 8))
    play(session, {3: UnknownKey()})
    check_opened(session, [3])
    check_named(session, (Misbehaviour.UNKNOWN_KEY, (3,)))


def ring(place: int, count: int, degree: int) -> list[int]:
    steps = range(-(degree // 2), degree // 2 + 1)
    return [(place + step) % count for step in steps if step]


OTHERS = [number for number in range(12) if number != 3]


@pytest.mark.parametrize(
    ("attacker", "out", "named"),
    [
        (MaliciousClient(), [], []),
        (WrongShare(every=True), [], [(Misbehaviour.WRONG_SHARE, (3,))]),
        (Garbage(), [3], every_pair(3, OTHERS)),
        (Garbage(some=1), [], [(Misbehaviour.INVALID_SHARES, (3, 0))]),
        (Garbage(some=2), [3], every_pair(3, OTHERS[:2])),
        (Garbage(some=5), [3], every_pair(3, OTHERS[:5])),
        (Garbage(signs=False), [3], [(Misbehaviour.UNSIGNED, (3,))]),
        (Garbage(some=1, signs=False), [3], [(Misbehaviour.UNSIGNED, (3,))]),
        (OtherShares(), [3], every_pair(3, OTHERS)),
        (UnknownKey(), [3], [(Misbehaviour.UNKNOWN_KEY, (3,))]),
        (ScatteredKey(), [3], [(Misbehaviour.UNKNOWN_KEY, (3,))]),
        (UnknownSeed(), [3], [(Misbehaviour.UNKNOWN_SEED, (3,))]),
        (Slanderer(), [], [(Misbehaviour.INVALID_SHARES, (0, 3))]),
        (Slanderer(of=2), [3], every_complaint(3, OTHERS[:2])),
        (Slanderer(of=11), [3], every_complaint(3, OTHERS)),
    ],
)
def test_a_malicious_client_costs_at_most_its_own_number_and_is_named(
    attacker: MaliciousClient, out: list[int], named: Named
) -> None:
    """Twelve who are all neighbours, of whom seven must agree on a secret."""
    session = session_of(12, 11, Neighbourhood(11, 7))
    play(session, {3: attacker})
    check_opened(session, out)
    check_named(session, *named)


class OtherSeeds(MaliciousClient):
    """Reveals the seeds of masks with another client."""

    def spoil(self, _client: MaskingClient, kind: Kind, content: bytes, /) -> bytes:
        seeds = kind in (Kind.SEEDS, Kind.LAST_SEEDS)
        return (4).to_bytes(4, "big") + content[4:] if seeds else content


@pytest.mark.parametrize("attacker", [UnknownKey(), UnknownSeed()])
def test_revealed_seeds_are_those_requested(attacker: MaliciousClient) -> None:
    with pytest.raises(Rejected, match="are of other clients than requested"):
        play(session_of(12, 11, Neighbourhood(11, 7)), {3: attacker, 5: OtherSeeds()})


def test_a_wrong_share_of_a_dropped_clients_key_is_ignored() -> None:
    session = session_of(12, 11, Neighbourhood(11, 7))
    play(session, {3: WrongShare(Kind.KEYS)}, {MaskingStage.MASKING: {0}})
    check_opened(session, [0])
    check_named(session, (Misbehaviour.WRONG_SHARE, (3,)))


def test_spare_shares_reconstruct_down_to_the_threshold_and_not_below() -> None:
    for attackers, opens in ((4, True), (5, False)):
        session = session_of(12, 12, Neighbourhood(11, 7))
        attacks: dict[int, MaliciousClient] = {
            place: WrongShare(every=True) for place in range(attackers)
        }
        if opens:
            play(session, attacks)
            check_opened(session, ())
            check_named(
                session, *[(Misbehaviour.WRONG_SHARE, (place,)) for place in range(attackers)]
            )
        else:
            with pytest.raises(Rejected, match=r"is 6: must be.*Blamed: client 0 revealed"):
                play(session, attacks)


def test_only_the_sender_is_named_if_a_receiver_proves_it_and_drops_out() -> None:
    session = session_of(12, 10, Neighbourhood(11, 7))
    play(session, {3: Garbage()}, accusing={5})
    check_opened(session, [3, 5])
    rest = [number for number in OTHERS if number != 5]
    check_named(session, (Misbehaviour.INVALID_SHARES, (3,)), *every_pair(3, rest))


def test_false_commitments_name_the_sender_together_with_its_receivers() -> None:
    """Not prevented: the key that the accuser shows is not the one that was committed to."""
    session = session_of(12, 10, Neighbourhood(11, 7))
    play(session, {3: Evader()}, accusing={5})
    check_opened(session, [3, 5])
    check_named(session, *every_pair(3, OTHERS))


@pytest.mark.extended
def test_one_false_accuser_beside_a_tenth_of_dropouts_excludes_nobody_else() -> None:
    """Were it kept with as few pairs as the threshold, one of these that leaves would end the
    round.
    """
    among = neighbourhood(200, 160)
    session = session_of(200, 160, among)
    leaving = set(random.Random(1).sample([place for place in range(200) if place != 3], 20))
    play(
        session, {3: Slanderer(of=among.degree - among.threshold)}, {MaskingStage.MASKING: leaving}
    )
    check_opened(session, leaving | {3})
    assert session.server.view().blamed[0].kind is Misbehaviour.DISPUTED
    assert session.server.view().blamed[0].addresses == (session.clients[3].address,)


def test_clients_in_most_complaints_are_excluded_first() -> None:
    session = session_of(12, 8, Neighbourhood(11, 7))
    play(session, {3: Slanderer(of=4), 7: Slanderer(of=5)})
    check_opened(session, [3, 7])


def test_an_abort_names_first_the_clients_in_most_complaints() -> None:
    silent = {MaskingStage.REVEALING: set(range(6, 12))}
    with pytest.raises(Rejected, match=r"must be .*\. Blamed: client 3 was excluded"):
        play(session_of(12, 8, Neighbourhood(11, 7)), {3: Slanderer(of=4)}, silent)


def test_a_false_complaint_is_attributed_to_its_receivers_key() -> None:
    session = session_of(12, 11, Neighbourhood(11, 7))
    play(session, {3: Slanderer()}, accusing={3})
    check_opened(session, [3])
    check_named(session, (Misbehaviour.FALSE_COMPLAINT, (3,)))


def test_a_false_key_convicts_no_client() -> None:
    session = session_of(12, 11, Neighbourhood(11, 7))
    play(session, {3: Slanderer(key=bytes(32))}, accusing={3})
    check_opened(session, [3])
    check_named(session, (Misbehaviour.INVALID_SHARES, (0, 3)))


def test_neighbours_that_drop_out_during_a_proof_lose_only_their_numbers() -> None:
    """The seeds that they have with the attacker are missing, so they count as having left."""
    session = session_of(12, 9, Neighbourhood(11, 7))
    play(
        session,
        {3: UnknownKey()},
        {MaskingStage.PROVING: {4, 5}, MaskingStage.REVEALING: {4, 5, 6}},
    )
    check_opened(session, [3, 4, 5])
    check_named(session, (Misbehaviour.UNKNOWN_KEY, (3,)))


def test_a_client_that_drops_out_during_a_proof_aborts_the_round_and_is_named() -> None:
    """Not prevented: the others have been asked for their own masks by then."""
    session = session_of(12, 9, Neighbourhood(11, 7))
    late = UnknownKey()
    late.leaves_before = MaskingStage.PROVING
    with pytest.raises(Rejected, match=r"client 4 dropped out late.*client 3 shared"):
        play(session, {3: UnknownKey(), 4: late})
    with pytest.raises(Rejected, match="there is no sum"):
        session.server.view()


def test_a_convicted_survivor_with_a_silent_neighbour_counts_its_shared_seeds() -> None:
    """What it may add to the sum so is no more than it may report."""
    session = session_of(12, 11, Neighbourhood(11, 7))
    play(session, {3: UnknownSeed()}, {MaskingStage.APPEALING: {4}})
    check_opened(session, [])
    check_named(session, (Misbehaviour.UNKNOWN_SEED, (3,)))


def test_a_client_that_shared_no_seed_needs_all_its_neighbours() -> None:
    for silent in (set[int](), {4}):
        session = session_of(12, 11, Neighbourhood(11, 7))
        if silent:
            with pytest.raises(Rejected, match=r"seeds are invalid.*client 3 shared"):
                play(session, {3: NoSeed()}, {MaskingStage.APPEALING: silent})
        else:
            play(session, {3: NoSeed()})
            check_opened(session, [3])


def test_without_a_convicted_survivor_the_rest_must_reach_the_minimum() -> None:
    with pytest.raises(Rejected, match="11"):
        play(session_of(12, 12, Neighbourhood(11, 7)), {3: UnknownSeed()})


def test_messages_of_a_stage_stay_the_same_after_a_later_dropout() -> None:
    session, sent = (
        session_of(12, 9, Neighbourhood(11, 7)),
        dict[MaskingStage, Mapping[bytes, bytes]](),
    )
    close = session.server.close

    def closed() -> Mapping[bytes, bytes]:
        stage = session.server.stage
        sent[stage] = close()
        return sent[stage]

    silent = {MaskingStage.PROVING: {4, 5}, MaskingStage.REVEALING: set(range(12))}
    with patch.object(session.server, "close", closed), pytest.raises(Rejected):
        play(session, {3: UnknownKey()}, silent)
    assert MaskingStage.PROVING in sent
    assert all(close(stage) == before for stage, before in sent.items())


def test_a_copied_masking_key_excludes_no_honest_client() -> None:
    """The network that carries the first message reads the address."""
    session = session_of(12, 11, Neighbourhood(11, 7))
    thief, robbed = session.clients[3], session.clients[8]
    thief._masking_public = robbed.address
    session.server.take(thief.join())
    play(session, {}, {MaskingStage.MASKING: {3}})
    check_opened(session, [3])
    check_named(session, (Misbehaviour.UNKNOWN_KEY, (3,)))


@pytest.mark.parametrize("attacker", [UnknownKey(), UnknownSeed(), Garbage(), WrongShare()])
def test_a_server_restored_at_any_stage_names_the_same_malicious_clients(
    attacker: MaliciousClient,
) -> None:
    """A copy that is made from what was saved, at every step, gives the same messages and view."""
    session = session_of(8, 7, Neighbourhood(7, 5))
    original = session.server
    close = original.close

    def closed() -> Mapping[bytes, bytes]:
        stage, saved = original.stage, original.save()
        sent = close()
        restored = _restored(saved, session)
        if restored.stage is not MaskingStage.RELEASED:
            assert restored.close(stage) == sent
        return sent

    with patch.object(original, "close", closed):
        play(session, {3: attacker})
    assert _restored(original.save(), session).view() == original.view()
    assert original.view().blamed


def _restored(saved: bytes, session: MaskingSession) -> MaskingServer:
    plain = "tacit.aggregation.masking_server.shuffled_by"
    with patch(plain, lambda _: list.copy):
        return MaskingServer.restore(saved, session.store)


KINDS: list[Callable[[], MaliciousClient]] = [
    MaliciousClient,
    WrongShare,
    lambda: WrongShare(Kind.KEYS),
    Garbage,
    lambda: Garbage(some=2),
    lambda: Garbage(signs=False),
    OtherShares,
    UnknownKey,
    ScatteredKey,
    UnknownSeed,
    NoSeed,
    Evader,
    Slanderer,
    lambda: Slanderer(of=3),
]
CONVICTIONS = (Misbehaviour.UNKNOWN_KEY, Misbehaviour.UNKNOWN_SEED)
FATES: list[MaskingStage] = list(STAGES[:-1])


@settings(deadline=None, max_examples=15)
@given(st.data())
def test_the_sum_is_exact_and_no_honest_client_is_named(
    data: st.DataObject,
) -> None:
    """The sum is that of those whose numbers came, without those who were convicted afterwards or
    vanished; every lie that is named was told by one of the attackers.
    """
    session = session_of(8, 5, Neighbourhood(7, 5))
    places = st.integers(0, 7)
    attackers = data.draw(st.dictionaries(places, st.sampled_from(KINDS), max_size=2))
    attacks = {place: made() for place, made in attackers.items()}
    silent = data.draw(
        st.dictionaries(st.sampled_from(FATES), st.sets(places, max_size=1), max_size=2)
    )
    try:
        play(session, attacks, silent)
    except Rejected:
        assert attacks or any(silent.values())
        return
    view = session.server.view()
    place_of = {client.address: place for place, client in enumerate(session.clients)}
    named = [(blame.kind, [place_of[one] for one in blame.addresses]) for blame in view.blamed]
    false = {place for place, attacker in attacks.items() if type(attacker) is not MaliciousClient}
    for lie, who in named:
        assert false.intersection(who) or (lie is Misbehaviour.DISPUTED and len(false) > 1)
    out = {who[0] for lie, who in named if lie in CONVICTIONS}
    for stage in (
        MaskingStage.LEAVING,
        MaskingStage.PROVING,
    ):  # who missed the first is not asked the second
        out |= silent.get(stage, set())
    sent = {one for one, client in enumerate(session.clients) if Kind.MASKED in client._answers}
    counted = {place for place in sent if view.numbers[0] >> place & 1}
    assert view.numbers == (sum(1 << place for place in counted),)
    assert len(counted) == view.reports >= 5
    assert sent - counted <= out


BLAMES = st.builds(
    lambda lie, clients: Blame(lie, tuple(n for n, _ in clients), tuple(a for _, a in clients)),
    st.sampled_from(Misbehaviour),
    st.lists(
        st.tuples(st.integers(0, 2**32 - 1), st.binary(min_size=32, max_size=32)),
        min_size=1,
        max_size=2,
    ),
)


@given(st.lists(BLAMES, max_size=4))
def test_the_record_keeps_every_named_client(blames: list[Blame]) -> None:
    assert decode_blames(b"".join(blame.encode() for blame in blames)) == tuple(blames)


def test_an_accusation_is_rendered_with_client_and_fault() -> None:
    alone, both = (
        Blame(Misbehaviour.INVALID_SHARES, numbers, (b"",) * len(numbers))
        for numbers in ((3,), (3, 5))
    )
    assert str(alone) == "client 3 sent encrypted shares that do not match its commitments"
    assert str(both) == (
        "client 3 sent encrypted shares that do not match its commitments, or client 5 or the "
        "server accuses it falsely"
    )
