"""Group commit: pending writes share a transaction, and responses follow the commit."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

from tacit.errors import Unavailable
from tacit.service.errors import Conflict
from tacit.service.http.writer import LARGEST, GroupWriter

T = TypeVar("T")


@contextmanager
def writing(most: int = 10_000) -> Iterator[tuple[GroupWriter, list[int]]]:
    sizes: list[int] = []
    writer = GroupWriter(most, lambda size, _seconds: sizes.append(size))
    writer.start()
    try:
        yield writer, sizes
    finally:
        writer.stop()


def run_async(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


class Database:
    """Something that commits; `gate` holds it up, `asked` is set when it was asked to."""

    def __init__(self) -> None:
        self.kept: list[list[int]] = []
        self.gate, self.asked = threading.Event(), threading.Event()
        self.gate.set()
        self.broken: Exception | None = None

    @property
    def all(self) -> list[int]:
        return [work for group in self.kept for work in group]

    def commit(self, works: Sequence[int]) -> list[int]:
        self.asked.set()
        assert self.gate.wait(60)
        if self.broken is not None:
            raise self.broken
        self.kept.append(list(works))
        return [-work for work in works]


def test_grouped_writes_get_individual_answers_from_one_commit() -> None:
    database = Database()

    async def write_concurrently(writer: GroupWriter) -> list[int]:
        return await asyncio.gather(*(writer(database.commit, n) for n in range(1000)))

    with writing() as (writer, sizes):
        assert run_async(write_concurrently(writer)) == [-n for n in range(1000)]
    assert sorted(database.all) == list(range(1000))
    assert sum(sizes) == 1000
    assert len(sizes) < 20
    assert max(sizes) <= LARGEST


def test_no_request_is_answered_before_the_commit() -> None:
    database = Database()
    database.gate.clear()

    async def one(writer: GroupWriter) -> int:
        waiting = asyncio.ensure_future(writer(database.commit, 7))
        done, _ = await asyncio.wait([waiting], timeout=0.1)
        assert not done
        assert database.kept == []
        database.gate.set()
        return await waiting

    with writing() as (writer, _):
        assert run_async(one(writer)) == -7
    assert database.kept == [[7]]


def test_requests_beyond_the_bound_are_told_to_retry() -> None:
    database = Database()
    database.gate.clear()

    async def participants(writer: GroupWriter) -> list[int | BaseException]:
        first = asyncio.ensure_future(writer(database.commit, 0))
        assert await asyncio.to_thread(database.asked.wait, 60)  # now it is being written
        others = [asyncio.ensure_future(writer(database.commit, n)) for n in range(1, 8)]
        await asyncio.sleep(0.05)
        database.gate.set()
        return await asyncio.gather(first, *others, return_exceptions=True)

    with writing(most=5) as (writer, _):
        answers = run_async(participants(writer))
    assert answers[:6] == [0, -1, -2, -3, -4, -5]
    assert [type(answer) for answer in answers[6:]] == [Unavailable] * 2
    assert sorted(database.all) == list(range(6))


@pytest.mark.parametrize("broken", [Unavailable("gone"), OSError("no space: secret")])
def test_a_failing_commit_is_reported_and_the_next_group_is_written(
    broken: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    database = Database()

    async def twice(writer: GroupWriter) -> int:
        database.broken = broken
        said = await asyncio.gather(
            *(writer(database.commit, n) for n in range(3)), return_exceptions=True
        )
        assert [type(one) for one in said] == [Unavailable] * 3
        assert len({id(one) for one in said}) == 3
        assert not any("secret" in str(one) for one in said)
        database.broken = None
        return await writer(database.commit, 5)

    with writing() as (writer, _), caplog.at_level(logging.ERROR):
        assert run_async(twice(writer)) == -5
    assert database.kept == [[5]]
    assert "secret" not in caplog.text


def test_one_rejection_does_not_affect_others_in_its_group() -> None:
    def commit(works: Sequence[int]) -> list[int | Conflict]:
        return [Conflict("other bytes") if work == 1 else work for work in works]

    async def three(writer: GroupWriter) -> list[int | Conflict | BaseException]:
        several = [writer(commit, n) for n in range(3)]
        return list(await asyncio.gather(*several, return_exceptions=True))

    with writing() as (writer, _):
        answers = run_async(three(writer))
    assert answers[::2] == [0, 2]
    assert isinstance(answers[1], Conflict)


def test_one_work_that_fails_does_not_affect_others_in_its_group(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Such as a request about a round whose key file is damaged, of one experiment of many."""
    kept: list[int] = []

    def commit(works: Sequence[int]) -> list[int]:
        if 5 in works:
            raise ZeroDivisionError
        kept.extend(works)
        return list(works)

    async def write_concurrently(writer: GroupWriter) -> list[int | BaseException]:
        several = [writer(commit, n) for n in range(20)]
        return list(await asyncio.gather(*several, return_exceptions=True))

    with writing() as (writer, _), caplog.at_level(logging.ERROR):
        answers = run_async(write_concurrently(writer))
    assert isinstance(answers.pop(5), Unavailable)
    assert answers == sorted(kept) == [n for n in range(20) if n != 5]
    assert len(caplog.records) == 1


def test_a_cancelled_request_does_not_affect_its_group() -> None:
    database = Database()
    database.gate.clear()

    async def impatient(writer: GroupWriter) -> int:
        gone = asyncio.ensure_future(writer(database.commit, 1))
        await asyncio.sleep(0.02)
        stays = asyncio.ensure_future(writer(database.commit, 2))
        await asyncio.sleep(0.02)
        gone.cancel()
        database.gate.set()
        return await stays

    with writing() as (writer, _):
        assert run_async(impatient(writer)) == -2
    assert database.all == [1, 2]


def test_pending_writes_finish_at_shutdown_and_later_ones_are_rejected() -> None:
    database = Database()
    database.gate.clear()

    async def late(writer: GroupWriter) -> list[int]:
        waiting = [asyncio.ensure_future(writer(database.commit, n)) for n in range(4)]
        await asyncio.sleep(0.02)
        stopping = asyncio.get_running_loop().run_in_executor(None, writer.stop)
        while not writer._stopping:
            await asyncio.sleep(0.001)
        with pytest.raises(Unavailable):
            await writer(database.commit, 9)
        database.gate.set()
        await stopping
        return await asyncio.gather(*waiting)

    writer = GroupWriter(100)
    writer.start()
    assert run_async(late(writer)) == [0, -1, -2, -3]
    assert database.all == [0, 1, 2, 3]
