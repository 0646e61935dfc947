"""The coalescing cache: one lookup for concurrent identical reads, and no stale answers after
changes.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tacit.errors import Unavailable
from tacit.service.http import coalescing_cache
from tacit.service.http.coalescing_cache import CacheInvalidation, CoalescingCache


class Looked:
    """Counts lookups of each name; the first `failing` times they fail."""

    def __init__(self, failing: int = 0) -> None:
        self.asked: list[str] = []
        self.failing = failing
        self.free = threading.Event()
        self.free.set()

    def __call__(self, name: str) -> bytes:
        self.asked.append(name)
        self.free.wait(10)
        if len(self.asked) <= self.failing:
            raise Unavailable("away")
        return f"{name}{len(self.asked)}".encode()


def test_concurrent_requests_share_one_lookup() -> None:
    look = Looked()
    look.free.clear()
    said = CoalescingCache(look)

    async def ask() -> list[bytes]:
        asking = [asyncio.ensure_future(said("a")) for _ in range(20)]
        await asyncio.sleep(0.05)
        asking[0].cancel()  # who goes away takes nothing from the others
        look.free.set()
        return await asyncio.gather(*asking[1:])

    assert set(asyncio.run(ask())) == {b"a1"}
    assert look.asked == ["a"]


def test_a_cached_answer_expires_soon_and_on_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coalescing_cache, "FRESH", 3600.0)
    said = CoalescingCache(Looked())

    async def ask() -> list[bytes]:
        found = [await said("a"), await said("a"), await said("b")]
        said.forget()
        found.append(await said("a"))
        monkeypatch.setattr(coalescing_cache, "FRESH", 0.0)
        return [*found, await said("a")]

    assert asyncio.run(ask()) == [b"a1", b"a1", b"b2", b"a3", b"a4"]


def test_failed_lookups_are_retried() -> None:
    look = Looked(failing=1)
    said = CoalescingCache(look)

    async def ask() -> bytes:
        together = await asyncio.gather(said("a"), said("a"), return_exceptions=True)
        assert all(isinstance(one, Unavailable) for one in together)
        return await said("a")

    assert asyncio.run(ask()) == b"a2"


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalescing_cache, "MOST", 3)
    said = CoalescingCache(Looked())

    async def ask() -> None:
        for number in range(50):
            await said(str(number))
            assert len(said._found) <= 3

    asyncio.run(ask())


@pytest.mark.parametrize(
    ("method", "path", "forgets"),
    [
        ("GET", "/experiments", False),
        ("POST", "/experiments/00/places", False),
        ("POST", "/experiments/00/stop", True),
        ("PUT", "/elsewhere", True),
    ],
)
def test_changes_to_an_experiment_are_visible_before_the_response(
    method: str, path: str, forgets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coalescing_cache, "FRESH", 60.0)  # also on a busy machine
    said, found = CoalescingCache(Looked()), []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await said("a")
        await send({"type": "http.response.start"})

    async def sent(_message: Any) -> None:
        found.append(await said("a"))

    async def ask() -> None:
        scope = {"type": "http", "method": method, "path": path}
        receive: Any = None
        await CacheInvalidation(app, said)(scope, receive, sent)

    asyncio.run(ask())
    assert found == [b"a2" if forgets else b"a1"]
