"""Each party's view of one participant is uniform, the order of a batch is uniform, and sizes are
constant.

Each chi-square test raises a false alarm with probability 1e-6 (conftest.FALSE_ALARM).
"""

from __future__ import annotations

import hashlib
import io
import logging
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.aggregation.rings import ring_session
from tests.aggregation.shuffler_channels import keys_of
from tests.tables import extended_after

from tacit.aggregation import (
    HpkeSuite,
    MaskingClient,
    MaskingPlan,
    MaskingServer,
    MaskingSession,
    Neighbourhood,
    ServerKeys,
    ShufflerSession,
    TwoServerSession,
    masks,
    run_masking,
    run_shuffler,
    run_two_servers,
)
from tacit.aggregation.agreement import Channel
from tacit.aggregation.interface import Source
from tacit.aggregation.masking import mask_seed
from tacit.aggregation.two_servers import DIGEST_SIZE
from tacit.aggregation.wire import Kind

Uniform = Callable[[Iterable[object], int], None]
MODULUS = 8


def fixed(label: str) -> Source:
    """The same bytes every time, for parties with fixed randomness."""
    stream = io.BytesIO(hashlib.shake_256(label.encode()).digest(2_000))
    return stream.read


def masked_by_victim(value: int) -> tuple[MaskingServer, MaskingClient]:
    """A round of three in which everything is fixed but the randomness of client 0."""
    session = ring_session([0], 3, MODULUS, Neighbourhood(2, 2), fixed("server"), 3)
    server, (victim,) = session.server, session.clients
    clients = [victim, *(session.client(fixed(f"client {place}")) for place in (1, 2))]
    for client in clients:
        server.take(client.join())
    setups = server.close()
    for client in clients:
        server.take(client.share(setups[client.address]))
    inboxes = server.close()
    for client in clients:
        server.take(client.check(inboxes[client.address]))
    pairs = server.close()
    server.take(victim.mask(pairs[victim.address], [value]))
    return server, victim


def victims_number(server: MaskingServer, victim: MaskingClient) -> int:
    return server._by_address[victim.address].masked[0]


@pytest.mark.parametrize("value", extended_after(1, [7, 0]))
def test_masked_numbers_are_uniform_whatever_the_value(value: int, assert_uniform: Uniform) -> None:
    assert_uniform([victims_number(*masked_by_victim(value)) for _ in range(160)], MODULUS)


def test_one_honest_neighbour_hides_a_number(
    assert_uniform: Uniform, assert_not_uniform: Uniform
) -> None:
    """The server knows the own mask (it is released in the end) and the mask with a corrupt
    neighbour: still uniform.
    """
    with_one, with_none = [], []
    for _ in range(160):
        server, victim = masked_by_victim(5)
        number, context = server._by_address[victim.address].number, server.round.context
        me, seeds = (number, victim._masking_public), {}
        for other in {0, 1, 2} - {number}:
            peer = (other, server._clients[other].masking)
            seeds[other] = mask_seed(victim._masking_key, me, peer, context)
        corrupt = min(seeds)

        known, everything = (
            masks.total(
                [victim._seed, *(seeds[other] for other in others if other > number)],
                [seeds[other] for other in others if other < number],
                MODULUS,
                1,
            )[0]
            for others in ([corrupt], list(seeds))
        )
        masked = victims_number(server, victim)
        with_one.append((masked - known) % MODULUS)
        with_none.append((masked - everything) % MODULUS)
    assert_uniform(with_one, MODULUS)
    assert set(with_none) == {5}
    assert_not_uniform(with_none, MODULUS)


CELL = 101  # eight cells of it are a modulus with room for 800 reports


def sent_by_all(value: int, people: int) -> list[dict[bytes, int]]:
    """Everyone reports this value; what each server finds in its shares, by tag."""
    session = TwoServerSession(people, 1, MODULUS * CELL)
    servers = [session.server(role) for role in (0, 1)]
    for number in range(people):
        for server, half in zip(servers, session.split(number, [value]), strict=True):
            server.take(half, session.now)
    return [
        {
            half[:DIGEST_SIZE]: server._numbers(half[DIGEST_SIZE:])[0]
            for half in server._shares(server._record())
        }
        for server in servers
    ]


@pytest.mark.parametrize("value", extended_after(1, [5, 0, 807]))
def test_each_aggregator_sees_a_uniform_number_whatever_the_value(
    value: int, assert_uniform: Uniform
) -> None:
    for seen in sent_by_all(value, 400):
        assert len(seen) == 400
        assert_uniform([number // CELL for number in seen.values()], MODULUS)


def test_both_report_shares_together_give_the_number(assert_not_uniform: Uniform) -> None:
    first, second = sent_by_all(5, 200)
    whole = [(first[tag] + second[tag]) % (MODULUS * CELL) for tag in first]
    assert set(whole) == {5}
    assert_not_uniform([number // CELL for number in whole], MODULUS)


def orders(people: int, times: int) -> list[tuple[int, ...]]:
    session = ShufflerSession(people, people)
    announced, shuffler, keys = session.round, session.shuffler, keys_of(session)
    for place in range(people):
        shuffler.take(session.wrap([bytes((place,))]))
    encrypted, seen = list(shuffler._taken.values()), []
    place_of = {item: place for place, (item,) in enumerate(encrypted)}
    ends = announced.shuffler[:32], announced.analyzer[:32]
    line = Channel(keys[1].line, *ends, announced.context, starts=False)
    for _ in range(times):
        batch = shuffler._batch()
        content = line.decrypt(batch[:20], batch[20:])
        size = announced.encrypted_size
        dealt = [content[start : start + size] for start in range(4, len(content), size)]
        seen.append(tuple(place_of[item] for item in dealt))
    return seen


def test_the_order_of_a_batch_is_uniform(assert_uniform: Uniform) -> None:
    assert_uniform(orders(people=4, times=3600), 24)


def test_every_position_in_a_larger_batch_is_uniform(assert_uniform: Uniform) -> None:
    seen = orders(people=20, times=1500)
    for place in (0, 7, 19):
        assert_uniform([order.index(place) for order in seen], 20)


@settings(deadline=None, max_examples=15)
@given(st.integers(5, 2**70), st.data())
def test_sizes_on_the_wire_do_not_depend_on_values(modulus: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(0, modulus - 1), min_size=4, max_size=4))
    assert sizes_of_masking(values, modulus) == sizes_of_masking([0, 0, 0, 0], modulus)
    session = TwoServerSession(4, 1, modulus)
    halves = [session.split(place, [value]) for place, value in enumerate(values)]
    for role in (0, 1):
        assert {len(half[role]) for half in halves} == {session.round.share_size(role)}


def sizes_of_masking(values: list[int], modulus: int) -> list[list[int]]:
    session = MaskingSession(values, MaskingPlan(4, modulus))
    session.join()
    sizes = [[len(message) for message in session.outgoing.values()]]
    for stage in (session.share, session.mask, session.reveal):
        stage()
        sizes.append([len(message) for message in session.outgoing.values()])
    sizes += [
        [len(client._answers[kind][1]) for kind in client._answers] for client in session.clients
    ]
    return sizes


@pytest.mark.parametrize("sealing", list(HpkeSuite))
def test_every_shuffled_report_has_the_same_size(sealing: HpkeSuite) -> None:
    session = ShufflerSession(4, 4, 3, 2, sealing)
    reports = [session.wrap([bytes(3), b"\xff" * 3]), session.wrap([b"abc", b"abc"])]
    assert {len(report) for report in reports} == {session.round.report_size}


def test_neither_reprs_nor_logs_show_keys_shares_or_numbers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    session = MaskingSession(
        [11111111, 22222222, 33333333], MaskingPlan(3, 2**64, Neighbourhood(2, 2))
    )
    session.join()
    session.share()
    session.mask()
    client, server = session.clients[0], session.server
    keys = (ServerKeys.new(), ServerKeys.new(HpkeSuite.HYBRID))
    mixing = ServerKeys.new()
    secrets = [
        client._seed,
        client._key.private_bytes_raw(),
        client._masking_key.private_bytes_raw(),
        server._key.private_bytes_raw(),
        client._signing_key.private_bytes_raw(),
        *client._incoming.values(),
        *client._pairs.values(),
        *(share for shares in client._held.values() for share in shares),
        *(key.line.private_bytes_raw() for key in (*keys, mixing)),
        *(key.encryption.classical.private_bytes_raw() for key in (*keys, mixing)),
    ]
    numbers = [str(number) for known in server._clients for number in known.masked]
    halves = TwoServerSession(3, 3, 100)
    for record in (*halves.records[0]._records.values(), *halves.records[2]._records.values()):
        secrets += [record[at : at + 32] for at in (2, 6)]
    mixed = ShufflerSession(3, 3)
    shown = [
        client,
        server,
        server._clients,
        client._channel,
        server._registry,
        *keys,
        mixing,
        keys[1].encryption,
    ]
    shown += [
        halves.server(0),
        halves.server(0)._record(),
        halves.collector(),
        halves.rehearsal,
        mixed.shuffler,
        mixed.analyzer,
    ]
    text = "".join(f"{thing!r} {thing!s}" for thing in shown)
    run_masking([1, 2, 3], 10, 3)
    run_two_servers([1, 2, 3], 10, 3)
    run_shuffler([[b"a"], [b"b"]], 2)
    for secret in secrets:
        assert repr(secret)[2:-1] not in text
        assert secret.hex() not in text
        assert str(int.from_bytes(secret, "big")) not in text
    assert not any(number in text for number in numbers if len(number) > 3)
    assert caplog.text == ""
    assert Kind.MASKED in client._answers
