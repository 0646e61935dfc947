"""Long polling of stage messages: one poll per round, and only new messages are read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.service.deployed import stage_message
from tests.service.fronted import fronted, small
from tests.service.test_deployed_hostile import Scene, begun, session_of, stage

from tacit.aggregation import ReportSlot
from tacit.aggregation.masking_rounds import MaskingReports
from tacit.errors import Unavailable
from tacit.service.http import stages
from tacit.service.http.stages import StageRoute
from tacit.service.pending import PendingShares
from tacit.service.store import AT_ONCE, Store, Transaction

ROUND, OTHER = bytes(16), bytes([1]) * 16
PEOPLE = 40


class Round:
    """A round with stages, as a question sees it."""

    messages_sent, message = 0, b""

    def slots(self, numbers: Collection[int]) -> list[ReportSlot]:
        return [ReportSlot(number, bytes(16)) for number in numbers]

    def next_message(self, _address: bytes, _after: int) -> bytes:
        return self.message

    def end_stage(self) -> None:
        self.message, self.messages_sent = b"next", 1


class Asked:
    """A coordinator whose record has no stage until another process ends one; counts the polls."""

    def __init__(self) -> None:
        self.rounds = {ROUND: Round(), OTHER: Round()}
        self.looks, self.elsewhere = 0, False
        self.reason: Exception | None = None

    def is_loaded(self, _identity: bytes) -> bool:
        return True

    def staged(self, identity: bytes) -> Round:
        return self.rounds[identity]

    def synchronize(self, identity: bytes) -> None:
        self.looks += 1
        if self.reason is not None:
            raise self.reason
        if self.elsewhere:
            self.rounds[identity].end_stage()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    monkeypatch.setattr(stages, "LOOKS", 0.01)
    monkeypatch.setattr(stages, "PATIENCE", 1000)
    return Asked()


def route(asked: Asked) -> StageRoute:
    given: Any = asked
    unused: Any = SimpleNamespace()
    return StageRoute(given, unused, unused)


async def holding(one: StageRoute, count: int) -> None:
    """Wait until so many long polls are pending."""
    async with asyncio.timeout(10):
        while one._held.total() < count:
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.02)


def ask_message(one: StageRoute, slot: int, identity: bytes = ROUND) -> Any:
    return asyncio.ensure_future(one.message(identity, bytes(32), 0, ReportSlot(slot, bytes(16))))


def test_all_requests_of_a_round_share_one_watcher(asked: Asked) -> None:
    async def held() -> None:
        one = route(asked)
        waiting = [ask_message(one, slot) for slot in range(PEOPLE)]
        await holding(one, PEOPLE)
        (watch,) = one._watches.values()
        assert asked.looks == 1
        asked.rounds[ROUND].end_stage()
        answers = await asyncio.gather(*waiting)
        assert {(answer.status_code, answer.body) for answer in answers} == {(200, b"next")}
        assert asked.looks == 1  # the answers are in memory
        assert watch.done()
        assert not one._watches
        assert not one._held

    asyncio.run(held())


def test_a_cancelled_request_does_not_stop_the_watcher(asked: Asked) -> None:
    async def held() -> None:
        one = route(asked)
        first, second = ask_message(one, 0), ask_message(one, 1)
        await holding(one, 2)
        first.cancel()  # it began the watch
        await asyncio.wait([first])
        assert first.cancelled()
        asked.rounds[ROUND].end_stage()
        assert (await second).body == b"next"
        assert not one._watches
        assert not one._held

    asyncio.run(held())


def test_rounds_have_separate_watchers(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "HELD", 0.2)

    async def held() -> None:
        one = route(asked)
        first, second = ask_message(one, 0), ask_message(one, 0, OTHER)
        await holding(one, 2)
        assert set(one._watches) == {ROUND, OTHER}
        asked.rounds[ROUND].end_stage()
        assert (await first).body == b"next"
        assert (await second).status_code == 204  # its own round has ended no stage

    asyncio.run(held())


def test_stages_ended_by_another_process_are_found_by_polling(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "PATIENCE", 3)

    async def held() -> None:
        one = route(asked)
        only = ask_message(one, 0)
        async with asyncio.timeout(10):
            while not asked.looks:
                await asyncio.sleep(0.001)
        asked.elsewhere = True  # and this process has ended no stage
        began = time.monotonic()
        assert (await only).body == b"next"
        assert time.monotonic() - began < stages.HELD / 2
        assert asked.looks == 2

    asyncio.run(held())


def test_the_polling_rate_is_independent_of_the_number_of_requests(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stages, "HELD", 0.5)
    monkeypatch.setattr(stages, "PATIENCE", 10)  # so one look in a tenth of a second at most

    async def held() -> None:
        one = route(asked)
        answers = await asyncio.gather(*(ask_message(one, slot) for slot in range(PEOPLE)))
        assert {answer.status_code for answer in answers} == {204}
        assert 1 < asked.looks <= 6

    asyncio.run(held())


def test_all_requests_get_the_error_of_an_unreadable_record(asked: Asked) -> None:
    asked.reason = Unavailable("the key files are unavailable")

    async def held() -> None:
        one = route(asked)
        waiting = [ask_message(one, slot) for slot in range(PEOPLE)]
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert set(answers) == {asked.reason}
        assert not one._watches
        assert not one._held
        assert asked.looks == 1

    asyncio.run(held())


# Only new messages are read


class Read:
    """Counts the contents of pending messages that are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: list[bytes] = []
        plain = Transaction.shares_named

        def noted(one: Transaction, identity: bytes, names: Collection[bytes]) -> Any:
            self.names += names
            return plain(one, identity, names)

        monkeypatch.setattr(Transaction, "shares_named", noted)
        monkeypatch.setattr(Transaction, "shares_after", lambda *_: pytest.fail("all are read"))


def test_known_messages_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(f"sqlite:///{tmp_path}/a.db")
    store.migrate()
    names = [number.to_bytes(16, "big") for number in range(AT_ONCE + 20)]
    with store.begin() as transaction:
        transaction.keep_shares({(ROUND, name): name * 2 for name in names})
        transaction.keep_shares({(OTHER, name): b"of another round" for name in names})
    read, table = Read(monkeypatch), PendingShares(store, ROUND)
    known = set(names[5:])
    assert dict(table.without(known)) == {name: name * 2 for name in names[:5]}
    assert sorted(read.names) == names[:5]
    assert dict(table.without(())) == {name: name * 2 for name in names}  # in two parts
    assert list(table.without(names)) == []
    store.close()


def test_a_stage_reads_each_message_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fronted(small("secure-aggregation"), tmp_path) as one:
        scene = Scene(one)
        begun(scene)
        identity = scene.guests[0].running.identity
        mine = [guest for guest in scene.guests if guest.running.identity == identity]
        read = Read(monkeypatch)
        stage(scene, 0)
        one.step(3)
        assert len(read.names) == len(set(read.names)) == len(scene.guests)
        served = one.coordinator.staged(identity)
        assert isinstance(served, MaskingReports)
        assert served.messages_sent == 2
        read.names.clear()
        for guest in mine:
            address = session_of(scene, guest).client.address
            assert stage_message(one.coordinator, identity, address, 1)
        assert read.names == []  # questions are answered from memory
