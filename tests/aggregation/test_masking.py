"""Secure aggregation releases the exact modular sum of the survivors or aborts, with dropouts down
to the threshold.
"""

from __future__ import annotations

import copy
import hashlib
import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.aggregation.rings import ring_session
from tests.tables import each_row

from tacit.aggregation import (
    Dropouts,
    MaskingClient,
    MaskingPlan,
    MaskingServer,
    MaskingSession,
    Neighbourhood,
    Rejected,
    SumView,
    run_masking,
)
from tacit.aggregation.agreement import derive
from tacit.aggregation.graph import regular_graph, shuffled_by
from tacit.aggregation.masking_server import MaskingStage
from tacit.aggregation.wire import Kind
from tacit.errors import TacitError

MODULI = st.integers(201, 2**70) | st.sampled_from(
    [201, 257, 2**32, 2**32 + 15, 10**12 + 39, 2**64, 2**64 + 13]
)


@st.composite
def rounds(draw: st.DrawFn, most: int) -> tuple[list[list[int]], int, Neighbourhood, Dropouts]:
    clients = draw(st.integers(2, most))
    modulus = draw(MODULI)
    length = draw(st.sampled_from([1, 1, 1, 3, 9]))
    degree = draw(st.integers(min(2, clients - 1), min(clients - 1, 11)))
    threshold = draw(st.integers(degree // 2 + 1, degree))
    rng = random.Random(draw(st.integers(0, 2**32)))
    values = [[rng.randrange(-modulus, 2 * modulus) for _ in range(length)] for _ in range(clients)]
    stages = [rng.sample(range(clients), rng.randrange(0, 1 + clients // 6)) for _ in range(4)]
    return values, modulus, Neighbourhood(degree, threshold), Dropouts(*stages)


def _ideal(values: list[list[int]], modulus: int, gone: Dropouts) -> tuple[int, ...]:
    out = {*gone.join, *gone.share, *gone.mask}
    staying = [value for place, value in enumerate(values) if place not in out]
    return tuple(sum(column) % modulus for column in zip(*staying, strict=True))


@settings(deadline=None, max_examples=30)
@given(rounds(most=40))
def test_masking_gives_the_exact_sum_or_rejects(
    case: tuple[list[list[int]], int, Neighbourhood, Dropouts],
) -> None:
    _check_round(case)


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(rounds(most=200))
def test_masking_gives_the_exact_sum_or_rejects_for_many(
    case: tuple[list[list[int]], int, Neighbourhood, Dropouts],
) -> None:
    _check_round(case)


def _check_round(case: tuple[list[list[int]], int, Neighbourhood, Dropouts]) -> None:
    values, modulus, among, gone = case
    session = MaskingSession(values, MaskingPlan(2, modulus, among))
    try:
        session.join(gone.join)
        session.share(gone.share)
        session.mask(gone.mask)
        session.reveal(gone.reveal)
    except Rejected:
        assert gone != Dropouts([], [], [], [])
        return
    sent = [
        value
        for value, client in zip(values, session.clients, strict=True)
        if Kind.MASKED in client._answers
    ]
    expected = tuple(sum(column) % modulus for column in zip(*sent, strict=True))
    assert session.server.view() == SumView(expected, len(sent))


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 14), st.data())
def test_among_all_neighbours_a_round_is_rejected_exactly_below_threshold_or_minimum(
    clients: int, data: st.DataObject
) -> None:
    threshold = data.draw(st.integers((clients - 1) // 2 + 1, clients - 1))
    minimum = data.draw(st.integers(2, clients))
    fates = data.draw(
        st.lists(st.sampled_from([0, 1, 2, 3, 4, 4, 4, 4]), min_size=clients, max_size=clients)
    )
    gone = Dropouts(
        *[[place for place, fate in enumerate(fates) if fate == stage] for stage in range(4)]
    )
    masked, revealing = (sum(fate > stage for fate in fates) for stage in (2, 3))
    # A client that reveals needs the threshold among the others who reveal; everything before
    # follows from that.
    opens = masked >= minimum and masked > threshold and revealing > threshold
    values = [[place * 7 + 1] for place in range(clients)]
    try:
        view = run_masking(values, 1009, minimum, Neighbourhood(clients - 1, threshold), gone)
    except Rejected:
        assert not opens
    else:
        assert opens
        assert view == SumView(_ideal(values, 1009, gone), masked)


@pytest.mark.parametrize("stage", ["join", "share", "mask", "reveal"])
def test_dropout_at_every_stage_is_survived_down_to_the_threshold(stage: str) -> None:
    clients, threshold = 12, 7
    values = [[place] for place in range(clients)]
    among = Neighbourhood(clients - 1, threshold)
    most = clients - 1 - threshold
    survived = Dropouts(**{stage: range(most)})
    expected = sum(range(clients if stage == "reveal" else most, clients)) + (
        sum(range(clients)) if stage == "reveal" else 0
    )
    assert run_masking(values, 1000, 2, among, survived).numbers == (expected,)
    with pytest.raises(Rejected):
        run_masking(values, 1000, 2, among, Dropouts(**{stage: range(most + 1)}))


@pytest.mark.parametrize("clients", range(4, 13))
@pytest.mark.parametrize("stage", ["join", "share", "mask", "reveal"])
def test_the_default_threshold_of_few_clients_tolerates_one_dropout(
    clients: int, stage: str
) -> None:
    values = list(range(1, clients + 1))
    view = run_masking(values, 1000, clients - 1, dropouts=Dropouts(**{stage: [0]}))
    assert view.numbers == (sum(values) - (0 if stage == "reveal" else 1),)


def test_the_default_neighbourhood_follows_the_minimum_and_is_sparse() -> None:
    for minimum in (450, 300):
        session = MaskingSession([0], MaskingPlan(minimum, 1000, participants=500))
        announced = session.server.round
        assert announced.security().bits >= 40
        assert announced.neighbourhood.degree < 100
    with pytest.raises(TacitError, match="must be above"):
        MaskingSession([0], MaskingPlan(2, 1000, participants=500))


def test_numbers_of_a_client_that_drops_out_before_revealing_still_count() -> None:
    view = run_masking([1, 2, 3, 4, 5], 100, 5, Neighbourhood(4, 3), Dropouts(reveal=[0]))
    assert view == SumView((15,), 5)


@pytest.mark.parametrize("stage", ["join", "share", "mask"])
def test_fewer_clients_than_the_minimum_release_nothing(stage: str) -> None:
    values = list(range(10))
    assert run_masking(values, 100, 9, Neighbourhood(9, 5), Dropouts(**{stage: [3]})).reports == 9
    with pytest.raises(Rejected, match="must be at least 9, the minimum batch size"):
        run_masking(values, 100, 9, Neighbourhood(9, 5), Dropouts(**{stage: [3, 4]}))


def test_a_disconnected_graph_of_survivors_is_not_released_by_component() -> None:
    """On a ring of eight with two neighbours each, two that leave cut it into two groups with a sum
    of their own.
    """
    session = ring_session(list(range(8)), 4, 100, Neighbourhood(2, 2))
    server = session.server
    session.join()
    session.share()
    with pytest.raises(Rejected, match="form groups without common masks"):
        session.mask(without=[0, 4])
    assert server.stage is MaskingStage.MASKING
    for late in (0, 4):
        client = session.clients[late]
        server.take(client.mask(session.outgoing[client.address], [late]))
    session.outgoing = server.close()
    session.reveal()
    assert server.view() == SumView((sum(range(8)),), 8)


def test_two_clients_are_no_neighbourhood() -> None:
    with pytest.raises(TacitError, match="sums of pairs"):
        MaskingSession([0] * 4, MaskingPlan(4, 100, Neighbourhood(1, 1)))
    assert run_masking([1, 2], 10, 2, Neighbourhood(1, 1)).numbers == (3,)


def test_the_graph_depends_on_its_participants_alone() -> None:
    """Of twelve clients one is another: neighbours by number agree but for a chance of 10⁻⁷."""
    plan = MaskingPlan(10, 100, Neighbourhood(4, 3), participants=13)
    session, dealt = MaskingSession([0] * 12, plan), []
    others = [*session.clients[:11], session.client()]
    for clients in (session.clients, session.clients, others):
        server = MaskingServer(session.server.round, session.store)
        for client in clients:
            server.take(client.join())
        server._draw_graph()
        dealt.append([member.neighbours for member in server._registry.members])
    assert dealt[0] == dealt[1] != dealt[2]
    joined = hashlib.sha256(b"".join(sorted(server._taken[MaskingStage.JOINING]))).digest()
    about = server.round.context, b"tacit masking graph v2" + joined
    for known in (server.round.server, bytes(32)):  # to anybody else
        assert regular_graph(12, 4, shuffled_by(derive(known, *about))) != dealt[2]
    own = server._key.private_bytes_raw()
    assert regular_graph(12, 4, shuffled_by(derive(own, *about))) == dealt[2]


def test_the_server_reports_the_abort_and_keeps_no_secret() -> None:
    session = MaskingSession([1, 2, 3, 4], MaskingPlan(4, 100))
    session.join()
    with pytest.raises(Rejected, match="must be at least 4"):
        session.share(without=[0])
    assert "SHARING" in repr(session.server)
    for _ in range(2):
        session.server.abort()
        assert session.server.stage is MaskingStage.ABORTED
        assert "clients=0" in repr(session.server)
        assert len(session.server.save()) == 4 + len(session.server.round.encode())
        for attempt in (session.server.close, lambda: session.server.take(b"")):
            with pytest.raises(Rejected, match=r"over \(aborted\)"):
                attempt()
        with pytest.raises(Rejected, match="there is no sum"):
            session.server.view()


def test_a_sum_is_released_once_and_stays_released() -> None:
    session = MaskingSession([1, 2, 3], MaskingPlan(3, 100))
    session.join()
    session.share()
    session.mask()
    session.reveal()
    for _ in range(2):
        assert session.server.close() == session.server.close(MaskingStage.REVEALING) == {}
        session.server.abort()
        with pytest.raises(Rejected, match=r"over \(released\)"):
            session.server.take(session.clients[0].join())
        assert session.server.view() == SumView((6,), 3)


def test_late_repeated_and_foreign_messages_are_rejected() -> None:
    session, elsewhere = (MaskingSession([1, 2, 3], MaskingPlan(3, 100)) for _ in range(2))
    elsewhere.join()
    join = session.clients[0].join()
    session.server.take(join)
    assert session.clients[0].join() == join
    session.server.take(join)
    assert "clients=1" in repr(session.server)
    with pytest.raises(Rejected, match="another round"):
        session.server.take(elsewhere.clients[0].join())
    for client in session.clients[1:]:
        session.server.take(client.join())
    setups = session.server.close()
    shares = session.clients[0].share(setups[session.clients[0].address])
    content = session.server._clients[0].channel.decrypt(shares[:52], shares[52:])
    other = session.clients[0]._channel.encrypt(shares[:52], content[:-64] + bytes(64))
    early = session.clients[0]._channel.encrypt(shares[:3] + b"\x15" + shares[4:52], bytes(1))
    for message in (shares, shares, join):
        session.server.take(message)
    for message, reason in ((other, "already"), (early, "MASKED does not belong")):
        with pytest.raises(Rejected, match=reason):
            session.server.take(message)
    with pytest.raises(Rejected, match="another round"):
        session.clients[1].share(elsewhere.outgoing[elsewhere.clients[1].address])
    with pytest.raises(Rejected, match="addressed to another client"):
        session.clients[1].share(setups[session.clients[2].address])


def test_only_clients_with_masked_numbers_reveal_and_once_each() -> None:
    session = MaskingSession([1, 2, 3, 4], MaskingPlan(2, 100, Neighbourhood(3, 2)))
    session.join()
    session.share()
    session.mask(without=[3])
    *staying, gone = session.clients
    for client in staying:
        session.server.take(client.reveal(session.outgoing[client.address]))
    session.outgoing = session.server.close()
    answers = [client.reveal(session.outgoing[client.address]) for client in staying]
    session.server.take(answers[0])
    front, content = answers[0][:52], answers[0][52 + 12 + 16 :]
    for client, reason in ((staying[0], "revealed its shares already"), (gone, "no longer in")):
        again = client._channel.encrypt(front[:20] + client.address, bytes(len(content)))
        with pytest.raises(Rejected, match=reason):
            session.server.take(again)
    for answer in answers[1:]:
        session.server.take(answer)
    session.server.close()
    assert session.server.view() == SumView((6,), 3)


def test_a_full_round_rejects_further_clients() -> None:
    session = MaskingSession([0, 0], MaskingPlan(2, 100))
    for client in session.clients:
        session.server.take(client.join())
    with pytest.raises(Rejected, match="full"):
        session.server.take(session.client().join())


def test_a_client_of_another_round_cannot_join() -> None:
    session = MaskingSession([0] * 3, MaskingPlan(3, 100))
    other = replace(session.server.round, modulus=101).encode()
    client = MaskingClient(session.pinned, session.rehearsal.announced(other))
    with pytest.raises(Rejected, match="not authentic"):
        session.server.take(client.join())


@pytest.mark.parametrize("stage", ["join", "share", "mask", "reveal"])
def test_a_masking_client_is_never_pickled_or_copied(stage: str) -> None:
    session = MaskingSession([1, 2, 3], MaskingPlan(3, 100))
    for name in ("join", "share", "mask", "reveal"):
        getattr(session, name)()
        if name == stage:
            break
    things: tuple[object, ...] = (session.clients[0], session.server, [session.clients[0]])
    for thing in things:
        for copied in (pickle.dumps, copy.copy, copy.deepcopy):
            if not (isinstance(thing, list) and copied is copy.copy):
                with pytest.raises(TacitError, match="cannot be pickled or copied"):
                    copied(thing)


def test_a_reencrypted_request_gets_the_same_answer() -> None:
    session = MaskingSession([1, 2, 3], MaskingPlan(3, 100))
    session.join()
    session.share()
    session.mask()
    client = session.clients[0]
    message = session.outgoing[client.address]
    answer = client.reveal(message)
    channel = session.server._clients[0].channel
    content = client._channel.decrypt(message[:52], message[52:])
    nonce = bytes(12)
    anew = message[:52] + nonce + channel._outward.encrypt(nonce, content, message[:52])
    assert anew != message
    assert client.reveal(anew) == client.reveal(message) == answer


def test_messages_from_several_threads_count_each_client_once() -> None:
    for _ in range(20):
        session = MaskingSession([0] * 8, MaskingPlan(8, 1000))
        server, clients = session.server, session.clients
        joins = [client.join() for client in clients] * 4
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(server.take, joins))
            setups = list(pool.map(server.close, [MaskingStage.JOINING] * 8))
        assert all(setup == setups[0] for setup in setups)
        assert len(setups[0]) == len({client.number for client in server._clients}) == 8


def test_invalid_reports_are_rejected_before_anything_is_sent() -> None:
    session = MaskingSession([1, 2, 3], MaskingPlan(3, 100))
    session.join()
    session.share()
    session.check()
    client = session.clients[0]
    pairs = session.outgoing[client.address]
    for values, reason in (
        ([1, 2], "number of values is"),
        ([0.5], "a whole number"),
        (["3"], "a whole number"),
    ):
        with pytest.raises(TacitError, match=reason):
            client.mask(pairs, values)  # type: ignore[arg-type]
    with pytest.raises(TacitError, match="must be REQUEST"):
        client.reveal(pairs)
    assert client.mask(pairs, [7]) == client.mask(pairs, [7])


@each_row(
    ("reports", "minimum", "modulus", "length"),
    [
        (1, 1, 10, 1),
        (5, 6, 10, 1),
        (5, 1, 10, 1),
        (5, 3, 1, 1),
        (5, 3, 10, 0),
        (5, 3, 1 << 2040, 1),
        (5, 3, 10, 1 << 31),
    ],
)
def test_impossible_rounds_are_rejected(
    reports: int, minimum: int, modulus: int, length: int
) -> None:
    announced = MaskingSession([0] * 5, MaskingPlan(3, 10)).server.round
    with pytest.raises(TacitError):
        replace(announced, slots=reports, minimum=minimum, modulus=modulus, length=length)


@pytest.mark.parametrize("stage", ["SHARING", "CHECKING", "MASKING", "LEAVING", "REVEALING"])
def test_a_server_copy_drops_clients_that_the_decision_excludes(stage: str) -> None:
    """One message came too late for the server that closed the stage; its copy had it in time."""
    plan = MaskingPlan(4, 10**9, Neighbourhood(7, 4))
    session = MaskingSession([[10**place] for place in range(8)], plan)
    server, copied = session.server, MaskingServer(session.server.round, session.store)
    for client in session.clients:
        server.take(client.join())
        copied.take(client.join())
    outgoing = server.close()
    assert copied.close() == outgoing
    late, total = False, 0
    while server.stage is not MaskingStage.RELEASED:
        now = server.stage.name
        for place, client in enumerate(session.clients):
            if client.address not in outgoing or (place, now) == (1, "MASKING"):
                continue  # the second client leaves without its numbers
            message = outgoing[client.address]
            match now:
                case "SHARING":
                    answer = client.share(message)
                case "CHECKING":
                    answer = client.check(message)
                case "MASKING":
                    answer = client.mask(message, session.reports[place])
                case _:
                    answer = client.reveal(message)
            copied.take(answer)
            if now == stage and not late:
                late = True
                continue
            server.take(answer)
            total += 10**place if now == "MASKING" else 0
        outgoing = server.close()
        assert copied.close() == outgoing
    assert late
    assert copied.view() == server.view()
    assert server.view().numbers == (total,)
