"""Random schedules of crashes, restored states, clones, duplicates, delays and reorderings: one
exact result or an abort, never two answers.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import pytest
from tests.tables import extended_after

from tacit.aggregation import (
    Analyzer,
    MaskingClient,
    MaskingPlan,
    MaskingServer,
    MaskingSession,
    Rejected,
    ShuffledView,
    Shuffler,
    ShufflerSession,
    SumView,
    prepare_server,
)
from tacit.aggregation.agreement import new_key, public_bytes
from tacit.aggregation.masking_server import STAGES, MaskingStage
from tacit.aggregation.wire import Kind
from tacit.records import MemoryRecords, RecordDirectory

QUIET = (
    MaskingStage.JOINING,
    MaskingStage.SHARING,
    MaskingStage.CHECKING,
    MaskingStage.MASKING,
    MaskingStage.REVEALING,
)
AGAIN = 0.2  # how often a client is asked again what it has answered, at most
Result = TypeVar("Result")


def attempt(work: Callable[[], Result]) -> Result | None:
    """What it gives, or None where it is rejected; any other exception ends the test."""
    try:
        return work()
    except Rejected:
        return None


class RacingRecords(MemoryRecords):
    """Records that let another copy of a party act between what one has read and what it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.race: Callable[[], None] | None = None

    def replace(self, name: bytes, old: bytes | None, new: bytes) -> bytes | None:
        race, self.race = self.race, None
        if race is not None:
            race()
        found = super().replace(name, old, new)
        self.race = race
        return found


PartyT = TypeVar("PartyT", MaskingServer, Shuffler, Analyzer)


class Party(Generic[PartyT]):
    """Copies of one party that share a record, and everything that was ever saved of it."""

    def __init__(
        self, first: PartyT, restore: Callable[[bytes], PartyT], rng: random.Random
    ) -> None:
        self.copies: list[PartyT] = [first]
        self.restore: Callable[[bytes], PartyT] = restore
        self.rng = rng
        self.saved = [first.save()]

    def any(self) -> PartyT:
        return self.copies[self.rng.randrange(len(self.copies))]

    def shake(self) -> None:
        """Save one, crash one, or restore one from any state that was ever saved."""
        match self.rng.randrange(4):
            case 0 | 1:
                self.saved.append(self.any().save())
            case 2:
                self.copies = self.copies[-1:]
                self.copies[0] = self.restore(self.rng.choice(self.saved))
            case _:
                self.copies.append(self.restore(self.rng.choice(self.saved)))
                self.copies = self.copies[-2:]


class MaskingSchedule:
    """A round of a few clients, of whom some crash, under a random schedule."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.count = rng.randrange(3, 9)
        self.minimum = rng.randrange(max(2, self.count - 2), self.count + 1)
        self.store = RacingRecords()
        session = MaskingSession([0] * self.count, MaskingPlan(self.minimum, 1 << 20))
        self.store._records = session.store._records
        first = session.server
        self.server = Party(first, partial(MaskingServer.restore, store=self.store), rng)
        self.clients = session.clients
        self.values = {client.address: 1 << place for place, client in enumerate(self.clients)}
        self.sent: dict[MaskingStage, dict[bytes, bytes]] = {}
        self.views: set[SumView] = set()
        self.masked: set[bytes] = set()
        self.answered: set[bytes] = set()
        self.attackers = {self.clients[0].address} if rng.random() < 0.5 else set()
        self.lie = rng.choice((Kind.CHECKED, Kind.SHARES, Kind.KEYS, Kind.REVEAL, Kind.JOIN))
        if self.lie is Kind.JOIN and self.attackers:
            self.clients[0]._masking_public = public_bytes(new_key())
        self.inbound = [client.join() for client in self.clients]

    def deliver(self) -> None:
        """A message reaches the server, perhaps twice, perhaps never."""
        if self.inbound:
            message = self.rng.choice(self.inbound)
            attempt(partial(self.server.any().take, message))
            if self.rng.random() < 0.005:
                self.inbound.remove(message)

    def close(self, named: MaskingStage | None = None) -> None:
        stage = named or self.rng.choice(STAGES)
        answer = attempt(partial(self.server.any().close, stage))
        if answer:
            assert self.sent.setdefault(stage, dict(answer)) == answer, "two answers for one stage"

    def answer(self) -> None:
        """A client answers some of its messages in any order."""
        client = self.rng.choice(self.clients)
        self.answer_all(client, sure=0.7)
        if self.rng.random() < 0.001 and len(self.clients) > 1:
            self.clients.remove(client)

    def answer_all(self, client: MaskingClient, sure: float) -> None:
        methods = {
            Kind.SETUP: client.share,
            Kind.INBOX: client.check,
            Kind.PAIRS: self.mask(client),
        }
        for sent in list(self.sent.values()):
            message = sent.get(client.address)
            if message is not None and self.leaves(client, message):
                continue
            again = message in self.answered
            if message is not None and self.rng.random() < (min(sure, AGAIN) if again else sure):
                method = methods.get(Kind(message[3]), client.reveal)
                made = attempt(partial(method, message))
                if made is not None:
                    self.answered.add(message)
                if made is not None and made[3] == Kind.MASKED:
                    self.masked.add(client.address)
                if made is not None and client.address in self.attackers and made[3] == self.lie:
                    made = self.reworded(client, made)
                if made is not None and made not in self.inbound:
                    self.inbound.append(made)

    def leaves(self, client: MaskingClient, message: bytes) -> bool:
        """A client that does not know its masking key is gone before it masks."""
        keyless = self.lie is Kind.JOIN and client.address in self.attackers
        return keyless and message[3] == Kind.PAIRS

    def reworded(self, client: MaskingClient, message: bytes) -> bytes:
        """A lie: the last byte of shares or of the signature is another, or of a parcel, or a
        parcel that opens is complained of.
        """
        channel = client._channel
        content = bytearray(channel._outward.decrypt(message[52:64], message[64:], message[:52]))
        if self.lie is Kind.CHECKED:
            content = bytearray(min(client._neighbours).to_bytes(4, "big"))
        else:
            content[-1 if self.rng.random() < 0.5 else -65] ^= 1
        return channel.encrypt(message[:52], bytes(content))

    def mask(self, client: MaskingClient) -> Callable[[bytes], bytes]:
        return lambda inbox: client.mask(inbox, [self.values[client.address]])

    def look(self) -> None:
        view = attempt(self.server.any().view)
        if view is not None:
            self.views.add(view)
            assert len(self.views) == 1, "two sums of one round"

    def race(self) -> None:
        """Another copy takes some of the messages and closes some stage."""
        if self.rng.random() < 0.3:
            kept, other = (
                self.server.copies,
                self.server.restore(self.rng.choice(self.server.saved)),
            )
            self.server.copies = [other]
            for message in self.rng.sample(self.inbound, self.rng.randrange(len(self.inbound) + 1)):
                attempt(partial(other.take, message))
            self.close()
            self.look()
            self.server.copies = kept

    def run(self, steps: int) -> bool:
        """Whether the round was released in the end."""
        self.store.race = self.race
        moves = [*[self.deliver, self.answer] * 4, self.close, self.server.shake, self.look]
        for _ in range(steps):
            self.rng.choice(moves)()
        if self.rng.random() < 0.1:
            self.server.any().abort()
        for stage in (*STAGES, *STAGES):
            for message in list(self.inbound):
                attempt(partial(self.server.copies[-1].take, message))
            self.server.copies = self.server.copies[-1:]
            self.close(stage)
            for client in self.clients:
                self.answer_all(client, sure=1)
            if self.server.copies[0].stage not in STAGES and self.rng.random() < 0.5:
                break
        self.server.shake()
        for copy in self.server.copies:
            self.server.copies = [copy]
            self.look()
        for view in self.views:
            (total,) = view.numbers
            counted = [address for address, value in self.values.items() if value & total]
            assert sum(self.values[address] for address in counted) == total
            assert self.masked.issuperset(counted)
            assert len(counted) == view.reports >= self.minimum
            assert all(self.attackers.intersection(blame.addresses) for blame in view.blamed)
        return bool(self.views)


class MixingSchedule:
    """A round of a few reports under a random schedule."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.reports = rng.randrange(1, 5)
        self.minimum = rng.randrange(1, self.reports + 1)
        store = RacingRecords()
        session = ShufflerSession(self.reports, self.minimum, store=store)
        store.race = self.race
        self.shuffler = Party(session.shuffler, partial(Shuffler.restore, store=store), rng)
        self.analyzer = Party(session.analyzer, partial(Analyzer.restore, store=store), rng)
        came = rng.randrange(self.minimum - 1, self.reports + 1)
        self.wrapped = [session.wrap([bytes((place,))]) for place in range(came)]
        self.batches: list[bytes] = []
        self.views: set[ShuffledView] = set()

    def deliver(self) -> None:
        if self.wrapped:
            message = self.rng.choice(self.wrapped)
            attempt(partial(self.shuffler.any().take, message))

    def close(self) -> None:
        answer = attempt(self.shuffler.any().close)
        for batch in (answer or {}).values():
            assert not self.batches or self.batches == [batch], "two batches of one round"
            self.batches = [batch]

    def analyze(self) -> None:
        for batch in self.batches:
            attempt(partial(self.analyzer.any().take, batch))

    def race(self) -> None:
        """Another copy of the shuffler takes some of the reports and closes the round."""
        if self.rng.random() < 0.5:
            kept = self.shuffler.copies
            other = self.shuffler.restore(self.rng.choice(self.shuffler.saved))
            self.shuffler.copies = [other]
            for message in self.rng.sample(self.wrapped, self.rng.randrange(len(self.wrapped) + 1)):
                attempt(partial(other.take, message))
            self.close()
            self.shuffler.copies = kept

    def look(self) -> None:
        attempt(self.analyzer.any().close)
        view = attempt(self.analyzer.any().view)
        if view is not None:
            self.views.add(view)
            assert len(self.views) == 1, "two views of one round"

    def run(self, steps: int) -> bool:
        moves = (self.deliver, self.deliver, self.deliver, self.shuffler.shake, self.analyze)
        for _ in range(steps):
            self.rng.choice((*moves, self.analyzer.shake, self.look))()
            if self.rng.random() < 0.1:
                self.close()
        if self.rng.random() < 0.1:
            self.rng.choice((self.shuffler, self.analyzer)).any().abort()
        for _ in range(3):
            for message in self.wrapped:
                attempt(partial(self.shuffler.any().take, message))
            self.close()
            self.analyze()
            self.look()
        for view in self.views:
            known = Counter(bytes((place,)) for place in range(len(self.wrapped)))
            assert not Counter(view.messages) - known
            assert len(view.messages) == view.reports >= self.minimum
            assert view.invalid == 0
        return bool(self.views)


def answer_at_stage(
    client: MaskingClient, stage: MaskingStage, message: bytes, value: int
) -> bytes:
    match stage:
        case MaskingStage.JOINING:
            return client.join()
        case MaskingStage.SHARING:
            return client.share(message)
        case MaskingStage.CHECKING:
            return client.check(message)
        case MaskingStage.MASKING:
            return client.mask(message, [value])
        case _:
            return client.reveal(message)


def test_rounds_stored_in_files_survive_a_restart_before_every_step(tmp_path: Path) -> None:
    """Every party is restored from its last saved state before each message and each close; its
    records are files, as in life.
    """
    store = RecordDirectory(tmp_path / "records")
    session = MaskingSession([1, 2, 4, 8], MaskingPlan(3, 100))
    identity = session.server.round.identity
    key = prepare_server(store, identity)
    first = MaskingServer(replace(session.server.round, server=key), store)
    announcement = session.rehearsal.announced(first.round.encode())
    clients = [MaskingClient(session.pinned, announcement) for _ in range(4)]
    saved, outgoing = first.save(), {client.address: b"" for client in clients}
    for stage in QUIET:
        for place, client in enumerate(clients):
            message = answer_at_stage(client, stage, outgoing[client.address], 1 << place)
            server = MaskingServer.restore(saved, store)
            server.take(message)
            saved = server.save()
        outgoing = dict(MaskingServer.restore(saved, store).close(stage))
        assert MaskingServer.restore(saved, store).close(stage) == outgoing
    assert MaskingServer.restore(saved, store).view() == SumView((15,), 4)
    assert key not in b"".join(path.read_bytes() for path in store.directory.iterdir())


SCHEDULES: dict[str, type[MaskingSchedule] | type[MixingSchedule]] = {
    "masking": MaskingSchedule,
    "mixing": MixingSchedule,
}


def run_schedules(kind: str, seeds: range) -> None:
    released = sum(SCHEDULES[kind](seed).run(steps=25) for seed in seeds)
    assert len(seeds) // 10 < released < len(seeds), "schedules should end both ways"


@pytest.mark.extended
@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("start", extended_after(1, range(0, 2000, 50)))
def test_two_thousand_restart_schedules_release_one_exact_sum_or_none(
    kind: str, start: int
) -> None:
    run_schedules(kind, range(start, start + 50))


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("start", range(2000, 102_000, 5000))
def test_a_hundred_thousand_restart_schedules_release_one_exact_sum_or_none(
    kind: str, start: int
) -> None:
    run_schedules(kind, range(start, start + 5000))
