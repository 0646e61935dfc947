"""Several processes of a coordinator assign slots concurrently, each slot once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sql
from tests.service.pairs import Pair, described, experiment_of

from tacit.service import round_scheduler, schema
from tacit.service.assignment import Assigned, Ticket
from tacit.service.coordinator import Coordinator
from tacit.service.leases import LEASE, Leases
from tacit.service.schema import LEAST_SLOTS, MOST_SHARDS, shards_of
from tacit.service.store import Store

SLOTS = 2000


@pytest.mark.parametrize("slots", [1, 63, 64, 127, 128, 500, 10_000])
def test_shards_cover_the_slots_of_a_round(slots: int) -> None:
    shards = shards_of(b"round", slots)
    numbers = [number for one in shards for number in range(one.first, one.first + one.slots)]
    assert numbers == list(range(slots))
    assert len(shards) == max(1, min(MOST_SHARDS, slots // LEAST_SLOTS))
    assert len(shards_of(b"round", slots, 1)) == 1


@pytest.fixture
def many_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small rounds have several shards, too, where the database is PostgreSQL."""
    monkeypatch.setattr(schema, "LEAST_SLOTS", 4)


def begun(pair: Pair) -> bytes:
    digest = pair.begin(experiment_of(SLOTS * 20))
    pair.step(2)
    return digest


def another(pair: Pair) -> Coordinator:
    """The coordinator of another process."""
    return Coordinator(
        pair.secrets[0], Store(pair.urls[0]), pair.coordinator.records, clock=pair.clock
    )


def asked(
    parties: list[Coordinator], digest: bytes, nonces: list[bytes], group: int
) -> list[Assigned]:
    """The answers to tickets in groups, which several processes answer at once."""
    groups = [nonces[at : at + group] for at in range(0, len(nonces), group)]

    def join(number: int) -> list[Assigned]:
        tickets = [Ticket(digest, nonce) for nonce in groups[number]]
        answers = parties[number % len(parties)].join(tickets)
        return [one for one in answers if isinstance(one, Assigned)]

    with ThreadPoolExecutor(4) as several:
        return [one for found in several.map(join, range(len(groups))) for one in found]


@pytest.mark.usefixtures("many_shards")
def test_several_processes_assign_every_slot_once(
    make_pair: Callable[..., Pair],
) -> None:
    pair = make_pair()
    digest = begun(pair)
    rounds = pair.coordinator.status(digest)["rounds"]
    slots = sum(one["places"] for one in rounds)
    with pair.stores[0].begin() as transaction:
        counted = sql.select(sql.func.count()).select_from(schema.slot_shards)
        shards = int(transaction.rows(counted)[0][0])
    several = pair.stores[0].dialect == "postgresql"
    assert (shards > len(rounds)) == several
    second = another(pair)
    found = asked(
        [pair.coordinator, second], digest, [os.urandom(16) for _ in range(slots + 50)], 7
    )
    given = [(described(one).identity, one.slot.number) for one in found if one.slot is not None]
    assert len(given) == len(set(given)) == slots  # nobody is sent away while a slot is free
    assert sum(one.slot is None for one in found) == 50
    after = pair.coordinator.status(digest)["rounds"]
    assert [one["given"] for one in after] == [one["places"] for one in after]
    second.store.close()


@pytest.mark.usefixtures("many_shards")
def test_one_nonce_gets_one_slot_across_processes(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair()
    digest = begun(pair)
    second, nonces = another(pair), [os.urandom(16) for _ in range(5)]
    found = asked([pair.coordinator, second], digest, nonces * 12, 3)
    assert len({(described(one).identity, one.slot) for one in found}) == len(nonces)
    assert sum(one["given"] for one in pair.coordinator.status(digest)["rounds"]) == len(nonces)
    second.store.close()


@pytest.mark.usefixtures("many_shards")
def test_counters_are_moved_to_their_round_at_its_end(make_pair: Callable[..., Pair]) -> None:
    pair = make_pair()
    digest = begun(pair)
    given = [one["given"] for one in pair.coordinator.status(digest)["rounds"]]
    pair.participants(digest, 30)
    given = [one["given"] for one in pair.coordinator.status(digest)["rounds"]]
    assert sum(given) == 30
    pair.coordinator.pause(digest)
    pair.clock.now += 2000
    pair.step(3)
    rounds = pair.coordinator.status(digest)["rounds"]
    assert [one["given"] for one in rounds] == given
    assert {one["stage"] for one in rounds} <= {"opened", "refused"}
    with pair.stores[0].begin() as transaction:
        for table in (schema.slot_shards, schema.joins, schema.shares):
            count = sql.select(sql.func.count()).select_from(table)
            assert transaction.rows(count)[0][0] == 0


# Leases


def test_a_lease_has_one_holder_until_it_expires(database: Callable[[str], str]) -> None:
    url, now = database("leases"), [1000.0]
    stores = [Store(url), Store(url)]
    stores[0].migrate()
    one, two = (Leases(own, bytes([n]) * 16, lambda: now[0]) for n, own in enumerate(stores))
    assert (one({b"a", b"b"}), two({b"a", b"b"})) == ({b"a", b"b"}, set())
    assert two({b"a", b"c"}) == {b"c"}
    now[0] += LEASE - 0.1
    assert one({b"a"}) == {b"a"}  # renews it, and gives b up
    now[0] += LEASE - 0.1
    assert two({b"a", b"b"}) == {b"b"}
    now[0] += 0.2  # the lease of a has ended
    assert (two({b"a"}), one({b"a"})) == ({b"a"}, set())
    two.start()
    two.stop()
    assert one({b"a"}) == {b"a"}
    for own in stores:
        own.close()


@pytest.mark.parametrize("ahead", [LEASE, 10 * 365 * 86_400.0])
def test_a_lease_from_a_clock_far_ahead_expires(
    database: Callable[[str], str], ahead: float
) -> None:
    """The process that took it has died: nobody would have advanced its rounds for years."""
    stores = [Store(database("leases"))] * 2
    stores[0].migrate()
    dead = Leases(stores[0], bytes(16), lambda: 1000.0 + ahead)
    other = Leases(stores[1], bytes([1]) * 16, lambda: 1000.0)
    assert dead({b"a"}) == {b"a"}
    assert other({b"a"}) == (set() if ahead <= LEASE else {b"a"})
    stores[0].close()


def test_one_of_many_processes_acquires_a_lease(database: Callable[[str], str]) -> None:
    url = database("leases")
    stores = [Store(url) for _ in range(4)]
    stores[0].migrate()
    ready, found = threading.Barrier(4), list[set[bytes]]()

    def want(number: int) -> None:
        leases = Leases(stores[number], bytes([number]) * 16)
        ready.wait()
        found.append(leases({b"a", b"b", b"c"}))

    with ThreadPoolExecutor(4) as several:
        list(several.map(want, range(4)))
    assert sorted(map(len, found)) == [0, 0, 0, 3]
    for own in stores:
        own.close()


def test_a_process_without_the_lease_takes_no_step(pair: Pair) -> None:
    digest = pair.begin()
    round_scheduler.step(pair.coordinator, lambda _names: set())
    assert pair.coordinator.status(digest)["rounds"] == []
    pair.step(2)
    assert pair.coordinator.status(digest)["rounds"]
    pair.clock.now += 2000
    assert pair.helper.step(lambda _names: set()) <= 5
    assert pair.helper.rounds(schema.Stage.OPEN)
    pair.helper.step()
    assert not pair.helper.rounds(schema.Stage.OPEN)
