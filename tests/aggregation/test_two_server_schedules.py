"""Two servers under random schedules of crashes, restored tables, clones, duplicates, delays and
skewed clocks: one exact noisy sum or an abort.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from functools import cache, partial

import pytest
from tests.tables import extended_after

from tacit.aggregation import (
    Aggregator,
    AggregatorContext,
    Collector,
    OwnNoise,
    Rejected,
    RoundOutcome,
    SumView,
    TwoServerSession,
)
from tacit.aggregation.two_servers import WORD_SIZE, encrypt_shares
from tacit.aggregation.wire import Kind
from tacit.records import MemoryRecords
from tacit.vdaf import MODULUS as PRIME

PLACES, STEPS = 4, 36
BASE = 8  # place i reports BASE^i, below ABOVE, so that a sum says who is in it
ABOVE = 1 << 12  # noise comes in multiples of it, so that a sum says which draws are in it
MODULUS = 1 << 80


@cache
def rehearsed(
    round_: int, minimum: int, verified: bool = False
) -> tuple[TwoServerSession, list[list[tuple[bytes, bytes]]]]:
    """A round, and for every place two reports of which one should count; in a verified round none
    of the last place, whose parts do not belong together.
    """
    noise, modulus = OwnNoise(ABOVE, Fraction(ABOVE), int), PRIME if verified else MODULUS
    session = TwoServerSession(PLACES, minimum, modulus, noise=noise, verified=verified)
    shares = [[session.split(place, [BASE**place]) for _ in range(2)] for place in range(PLACES)]
    proofs = session.round.proofs
    if proofs:
        words, place = (b"w" * WORD_SIZE, b"v" * WORD_SIZE), session.server(0).slot(PLACES - 1)
        parts = [proofs.shard([BASE ** (PLACES - 1)], bytes(16), os.urandom) for _ in range(2)]
        shares[-1] = [encrypt_shares(session.round, place, words, (parts[0][0], parts[1][1]))]
    assert round_ >= 0
    return session, shares


class Raced(MemoryRecords):
    """Records that another process may use between reading and replacing."""

    def __init__(self, records: MemoryRecords, race: Callable[[], None]) -> None:
        super().__init__()
        self._records = dict(records._records)
        self.race = race

    def replace(self, name: bytes, old: bytes | None, new: bytes) -> bytes | None:
        self.race()
        return super().replace(name, old, new)


class Schedule:
    """One round from start to end, with random faults."""

    def __init__(self, seed: int, verified: bool = False) -> None:
        self.rng = random.Random(seed)
        most = PLACES - verified
        self.session, self.shares = rehearsed(seed // 500 % 5, self.rng.randint(1, most), verified)
        self.racing = False
        self.records = [
            Raced(records, partial(self.race, role))
            for role, records in enumerate(self.session.records)
        ]
        closes = self.session.round.binding.closes
        self.clocks = [closes - self.rng.randint(5, 40) for _ in range(2)]
        self.tables: list[dict[bytes, bytes]] = [{}, {}]
        self.backups: list[list[dict[bytes, bytes]]] = [[{}], [{}]]
        self.servers = [[self.started(role, self.tables[role])] for role in (0, 1)]
        self.wires: list[list[bytes]] = [[], [], []]  # to server 0, server 1, the collector
        self.said: dict[tuple[int, int], set[bytes]] = {}
        self.draws: list[list[int]] = [[], []]
        self.views: set[SumView] = set()
        self.collecting: Collector | None = None

    def started(self, role: int, table: dict[bytes, bytes]) -> Aggregator:
        """A server process over the party's records and this table."""
        pinned, key = self.session.pinned, self.session.rehearsal.keys[role]
        aggregator = AggregatorContext(
            pinned, role, key, self.records[role], partial(self.draw, role)
        )
        return Aggregator(aggregator, self.session.announcement, table)

    def draw(self, role: int, scale: Fraction) -> int:
        assert scale == ABOVE
        drawn = self.rng.randrange(1, 1 << 40)
        self.draws[role].append(drawn)
        return drawn * ABOVE

    def race(self, role: int) -> None:
        """Sometimes another process of the party closes in between."""
        if role == 2 or self.racing or self.rng.random() < 0.85:
            return
        self.racing = True
        with suppress(Rejected):
            self.close_one(role, self.started(role, dict(self.tables[role])))
        self.racing = False

    # What may happen

    def send(self) -> None:
        report = self.rng.choice(self.rng.choice(self.shares)[: self.rng.choice((1, 1, 2))])
        for role in (0, 1):
            if self.rng.random() < 0.9:
                self.wires[role].append(report[role])

    def deliver(self) -> None:
        to = self.rng.randrange(3)
        if self.wires[to]:
            message = self.rng.choice(self.wires[to])
            if self.rng.random() < 0.05:
                at = self.rng.randrange(len(message))
                message = message[:at] + bytes((message[at] ^ 1,)) + message[at + 1 :]
            self.hand(to, message)

    def hand(self, to: int, message: bytes) -> None:
        if to == 2:
            self.collector().take(message)
        else:
            self.rng.choice(self.servers[to]).take(message, self.clocks[to])

    def close(self) -> None:
        role = self.rng.randrange(2)
        self.close_one(role, self.rng.choice(self.servers[role]))

    def close_one(self, role: int, server: Aggregator) -> None:
        for address, message in server.close(self.clocks[role]).items():
            self.said.setdefault((role, message[3]), set()).add(message)
            self.wires[1 - role if address == server.peer else 2].append(message)

    def ask(self) -> None:
        role = self.rng.randrange(2)
        message = self.rng.choice(self.servers[role]).outcome()
        self.said.setdefault((role, Kind.OUTCOME), set()).add(message)

    def tick(self) -> None:
        self.clocks[self.rng.randrange(2)] += self.rng.choice(
            (1, 1, 5, 10, 30) if self.rng.random() < 0.97 else (3600,)
        )

    def back_up(self) -> None:
        role = self.rng.randrange(2)
        self.backups[role].append(dict(self.tables[role]))

    def restore(self) -> None:
        """All processes of a party end; one starts over an older table, or an empty one."""
        role = self.rng.randrange(2)
        self.tables[role] = dict(self.rng.choice(self.backups[role]))
        self.servers[role] = [self.started(role, self.tables[role])]

    def crash(self) -> None:
        role = self.rng.randrange(2)
        self.servers[role] = [self.started(role, self.tables[role])]

    def clone(self) -> None:
        """Another process of the party, over the same table or over one restored from a backup."""
        role = self.rng.randrange(2)
        old = dict(self.rng.choice(self.backups[role]))
        table = self.rng.choice((self.tables[role], old))
        self.servers[role].append(self.started(role, table))

    def collect(self) -> None:
        self.collector().close()
        self.views.add(self.collector().view())

    def collector(self) -> Collector:
        if self.collecting is None or self.rng.random() < 0.1:
            arguments = (self.session.pinned, self.session.announcement, self.records[2])
            self.collecting = Collector(*arguments)
        return self.collecting

    def run(self) -> SumView | None:
        """Some random steps, then all parties finish; returns what was released, if anything."""
        steps: list[Callable[[], None]] = [
            *[self.send] * 5,
            *[self.deliver] * 12,
            *[self.close] * 4,
            *[self.tick] * 3,
            self.ask,
            self.back_up,
            self.restore,
            self.crash,
            self.clone,
            self.collect,
        ]
        for _ in range(STEPS):
            with suppress(Rejected):
                self.rng.choice(steps)()
        for late in (0, 0, 0, 3700):
            self.everything_arrives(late)
        with suppress(Rejected):
            self.collect()
        return next(iter(self.views), None)

    def everything_arrives(self, late: int) -> None:
        closes = self.session.round.binding.closes
        for role in (0, 1):
            for message in list(self.wires[role]):
                with suppress(Rejected):
                    self.hand(role, message)
            self.clocks[role] = max(self.clocks[role], closes + late)
            for server in self.servers[role]:
                with suppress(Rejected):
                    self.close_one(role, server)
        for message in list(self.wires[2]):
            with suppress(Rejected):
                self.collector().take(message)

    def check(self) -> str:
        """No party gave two answers; the release is the exact noisy sum of complete reports."""
        view = self.run()
        assert all(len(messages) == 1 for messages in self.said.values())
        assert len(self.views) <= 1
        outcomes = []
        for role in (0, 1):
            (outcome,) = {server.outcome() for server in self.servers[role]}
            assert self.said.get((role, Kind.OUTCOME), {outcome}) == {outcome}
            assert ((role, Kind.PARTIAL) in self.said) == (outcome[21] == RoundOutcome.RELEASED)
            outcomes.append(RoundOutcome(outcome[21]))
        if view is None:
            return "aborted"
        assert outcomes == [RoundOutcome.RELEASED] * 2
        noise, people = divmod(view.numbers[0], ABOVE)
        digits = [people // BASE**place % BASE for place in range(PLACES)]
        assert set(digits) <= {0, 1}
        assert sum(digits) == view.reports >= self.session.round.minimum
        if self.session.round.proofs:
            assert digits[-1] == 0
            assert view.rejected <= 1
        assert noise in {a + b for a in self.draws[0] for b in self.draws[1]}
        return "opened"


@pytest.mark.parametrize("start", extended_after(1, range(0, 2000, 100)))
def test_two_thousand_random_schedules_release_one_exact_sum_or_abort(start: int) -> None:
    ends = [Schedule(seed).check() for seed in range(start, start + 100)]
    assert min(ends.count("opened"), ends.count("aborted")) > 15


@pytest.mark.parametrize("start", extended_after(1, range(0, 600, 100)))
def test_random_schedules_of_verified_rounds_drop_the_malicious_report(
    start: int,
) -> None:
    pytest.importorskip("Crypto", reason="needs pycryptodome: pip install '.[verified]'")
    schedules = [Schedule(seed, verified=True) for seed in range(start, start + 100)]
    ends = [schedule.check() for schedule in schedules]
    assert min(ends.count("opened"), ends.count("aborted")) > 15
    assert sum(view.rejected for schedule in schedules for view in schedule.views) > 10


@pytest.mark.slow
def test_ten_thousand_schedules_of_verified_rounds_release_one_sum_or_none() -> None:
    ends = [Schedule(seed, verified=True).check() for seed in range(10_000, 20_000)]
    assert min(ends.count("opened"), ends.count("aborted")) > 1_500


@pytest.mark.slow
def test_a_hundred_thousand_random_schedules_release_one_exact_sum_or_abort() -> None:
    ends = [Schedule(seed).check() for seed in range(10_000, 110_000)]
    assert min(ends.count("opened"), ends.count("aborted")) > 15_000
