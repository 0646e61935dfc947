"""Two servers give the exact sum of the reports that both have, or refuse."""

from __future__ import annotations

import contextlib
import hashlib
import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.checks import TacitError
from tacit.intermediaries import (
    Collector,
    HalfServer,
    Refusal,
    Relay,
    Sealing,
    ServerKeys,
    SumView,
    TwoServerRound,
    run_two_servers,
    split,
)
from tacit.intermediaries.agreement import Channel, new_key, public_bytes
from tacit.intermediaries.wire import Kind, header

KEYS = (ServerKeys.new(), ServerKeys.new())
COLLECTING = new_key()


def parties(
    reports: int = 5, minimum: int = 3, modulus: int = 100, length: int = 1
) -> tuple[TwoServerRound, list[HalfServer], Collector]:
    publics = (KEYS[0].public(), KEYS[1].public())
    announced = TwoServerRound(reports, minimum, modulus, publics, public_bytes(COLLECTING), length)
    servers = [HalfServer(announced, role, KEYS[role]) for role in (0, 1)]
    return announced, servers, Collector(announced, COLLECTING)


def finish(announced: TwoServerRound, servers: list[HalfServer], collector: Collector) -> SumView:
    first, second = (server.close() for server in servers)
    servers[0].take(second[announced.line(0)])
    servers[1].take(first[announced.line(1)])
    for server in servers:
        collector.take(server.close()[announced.collector])
    collector.close()
    return collector.view()


@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 200),
    st.integers(2, 2**70) | st.sampled_from([2, 2**32 + 15, 2**64]),
    st.sampled_from([1, 1, 4, 11]),
    st.integers(0, 2**32),
)
def test_two_servers_give_the_exact_sum_of_complete_reports_or_refuses(
    reports: int, modulus: int, length: int, seed: int
) -> None:
    rng = random.Random(seed)
    values = [[rng.randrange(-modulus, 2 * modulus) for _ in range(length)] for _ in range(reports)]
    lost = tuple({place for place in range(reports) if rng.random() < 0.2} for _ in range(2))
    complete = [value for place, value in enumerate(values) if place not in lost[0] | lost[1]]
    minimum = rng.randrange(1, reports + 1)
    try:
        view = run_two_servers(values, modulus, minimum, lost=(lost[0], lost[1]))
    except Refusal:
        assert len(complete) < minimum
    else:
        assert view == SumView(
            tuple(sum(column) % modulus for column in zip(*complete, strict=True)), len(complete)
        )


def test_the_hybrid_suite_gives_the_same_sum() -> None:
    assert run_two_servers([3, 5, 9], 10, 3, Sealing.HYBRID) == SumView((7,), 3)


def test_fewer_complete_reports_than_the_minimum_open_nothing() -> None:
    with pytest.raises(
        Refusal, match=r"3 reports at both servers: the minimum is 4; nothing was opened"
    ):
        run_two_servers([1, 2, 3, 4, 5], 10, 4, lost=({0}, {1}))


def test_halves_count_once_however_often_and_in_whatever_order_they_arrive() -> None:
    announced, servers, collector = parties()
    halves = [split(announced, [value]) for value in (10, 20, 30)]
    for role, order in product((0, 1), (0, 2, 0, 1, 2, 1)):
        half = halves[order if role else 2 - order][role]
        with contextlib.suppress(Refusal):
            servers[role].take(half)
        with pytest.raises(Refusal, match="arrived before"):
            servers[role].take(half)
    assert finish(announced, servers, collector) == SumView((60,), 3)


def test_a_half_that_arrived_alone_does_not_count() -> None:
    announced, servers, collector = parties()
    for value in (10, 20, 30):
        for server, half in zip(servers, split(announced, [value]), strict=True):
            server.take(half)
    servers[0].take(split(announced, [99])[0])
    servers[1].take(split(announced, [98])[1])
    assert finish(announced, servers, collector) == SumView((60,), 3)


def test_nobody_can_put_another_half_in_place_of_one() -> None:
    """An attacker who saw the id of a report and is faster than its second half changes nothing."""
    announced, servers, collector = parties()
    honest = [split(announced, [value]) for value in (10, 20, 30)]
    seen = honest[0][1]
    forged = _with_id(announced, seen[21:37])
    servers[1].take(forged)
    for server, half in [
        (server, half) for report in honest for server, half in zip(servers, report, strict=True)
    ]:
        server.take(half)
    assert finish(announced, servers, collector) == SumView((60,), 3)


def _with_id(announced: TwoServerRound, name: bytes) -> bytes:
    fixed = iter([name, bytes(32), bytes(16), bytes(16)])
    return split(announced, [77], source=lambda _: next(fixed))[1]


def test_a_server_cannot_put_its_own_half_in_place_of_one_at_the_other() -> None:
    """It knows the id, its own word and the digest of the other's word, but not the other's
    word.
    """
    announced, servers, _ = parties(reports=9)
    for value in (10, 20, 30):
        honest = split(announced, [value])
        name = honest[1][21:37]
        known = KEYS[1].sealing.open(
            honest[1][37:], b"tacit splitting half v1" + announced.context + b"\x01" + name
        )
        own, other = (
            known[:16],
            hashlib.sha256(b"tacit splitting word v1" + known[:16]).digest()[:16],
        )
        info = b"tacit splitting half v1" + announced.context + b"\x00" + name
        for guess in (own, known[16:32], bytes(16)):
            forged = announced.recipients[0].seal(guess + other + b"\x05", info)
            assert len(forged) == len(honest[0]) - 37
            servers[0].take(announced_header(announced) + b"\x00" + name + forged)
        servers[1].take(honest[1])
    assert (len(servers[0]._halves), len(servers[1]._halves)) == (9, 3)
    assert servers[0]._halves.keys().isdisjoint(servers[1]._halves)


def test_halves_for_the_other_server_round_or_key_are_refused() -> None:
    announced, servers, _ = parties()
    other, _, _ = parties()
    half = split(announced, [1])[0]
    with pytest.raises(Refusal, match="for server 0; this is server 1"):
        servers[1].take(half)
    with pytest.raises(Refusal, match="does not open"):
        servers[1].take(half[:20] + b"\x01" + half[21:])
    with pytest.raises(Refusal, match="another round"):
        servers[0].take(split(other, [1])[0])
    with pytest.raises(Refusal, match="does not open"):
        servers[0].take(announced_header(announced) + split(other, [1])[0][20:])
    with pytest.raises(Refusal, match="does not open"):
        servers[0].take(half[:21] + bytes(16) + half[37:])


def announced_header(announced: TwoServerRound) -> bytes:
    return header(Kind.HALF, announced.identity)


def test_a_sealed_number_at_or_above_the_modulus_is_refused() -> None:
    announced, servers, _ = parties(modulus=200)
    recipient, name = announced.recipients[0], bytes(16)
    info = b"tacit splitting half v1" + announced.context + b"\x00" + name
    for number, fine in ((199, True), (200, False), (255, False)):
        sealed = recipient.seal(number.to_bytes(32, "big") + bytes((number,)), info)
        message = announced_header(announced) + b"\x00" + name + sealed
        if fine:
            servers[0].take(message)
        else:
            with pytest.raises(Refusal, match="not below the modulus"):
                servers[0].take(message)


def test_a_full_round_and_a_closed_one_take_nothing_more() -> None:
    announced, servers, collector = parties(reports=3)
    for value in range(3):
        for server, half in zip(servers, split(announced, [value]), strict=True):
            server.take(half)
    late = split(announced, [9])
    with pytest.raises(Refusal, match="full"):
        servers[0].take(late[0])
    finish(announced, servers, collector)
    everyone: list[Relay] = [*servers, collector]
    for party in everyone:
        with pytest.raises(Refusal):
            party.take(late[0])
        with pytest.raises(Refusal):
            party.close()


def test_a_server_opens_one_sum_and_then_holds_nothing() -> None:
    announced, servers, collector = parties()
    for value in (1, 2, 3):
        for server, half in zip(servers, split(announced, [value]), strict=True):
            server.take(half)
    finish(announced, servers, collector)
    assert all(not server._halves and server._common is None for server in servers)


def test_a_server_without_the_others_list_opens_nothing() -> None:
    announced, servers, _ = parties()
    for value in (1, 2, 3):
        servers[0].take(split(announced, [value])[0])
    servers[0].close()
    with pytest.raises(Refusal, match="0 reports at both servers"):
        servers[0].close()
    assert not servers[0]._halves


def test_partial_sums_of_different_reports_are_not_added() -> None:
    announced, servers, collector = parties()
    for value in (1, 2, 3, 4):
        for server, half in zip(servers, split(announced, [value]), strict=True):
            server.take(half)
    tags = sorted(servers[0]._halves)
    first, second = (server.close() for server in servers)
    peer = Channel(
        KEYS[0].line, announced.line(0), announced.line(1), announced.context, starts=True
    )
    lie = peer.seal(header(Kind.PRESENT, announced.identity) + b"\x00", b"".join(tags[:3]))
    servers[1].take(lie)
    servers[0].take(second[announced.line(0)])
    assert first
    for server in servers:
        collector.take(server.close()[announced.collector])
    with pytest.raises(Refusal, match="different reports"):
        collector.close()
    with pytest.raises(Refusal, match="not opened"):
        collector.view()


def test_lists_that_repeat_or_exceed_the_round_are_refused() -> None:
    announced, servers, _ = parties()
    for value in (1, 2, 3):
        servers[1].take(split(announced, [value])[1])
    servers[1].close()
    tags = sorted(servers[1]._halves)
    for content in (
        tags[0] * 3,
        b"".join(reversed(tags)),
        b"".join(bytes((i,)) * 16 for i in range(6)),
        b"odd",
    ):
        peer = Channel(
            KEYS[0].line, announced.line(0), announced.line(1), announced.context, starts=True
        )
        with pytest.raises(Refusal):
            servers[1].take(peer.seal(header(Kind.PRESENT, announced.identity) + b"\x00", content))


def test_one_partial_sum_opens_nothing() -> None:
    _, _, collector = parties()
    with pytest.raises(Refusal, match="0 of 2 partial sums"):
        collector.close()


def test_parties_with_wrong_or_shared_keys_are_refused() -> None:
    announced, _, _ = parties()
    for wrong in (
        lambda: HalfServer(announced, 1, KEYS[0]),
        lambda: Collector(announced, new_key()),
    ):
        with pytest.raises(TacitError, match="not"):
            wrong()
    with pytest.raises(TacitError, match="same key"):
        TwoServerRound(5, 3, 10, (KEYS[0].public(), KEYS[0].public()), public_bytes(COLLECTING))
    with pytest.raises(TacitError, match="keys of its suite HYBRID"):
        TwoServerRound(5, 3, 10, announced.servers, announced.collector, sealing=Sealing.HYBRID)
