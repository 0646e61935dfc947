"""Reports larger than other requests: bodies that do not end keep nobody out, and use no memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.service.fronted import Fronted, fronted, small
from tests.service.test_deployed_hostile import Guest, Scene, asked, begun, session_of
from tests.service.test_deployed_hostile import said as stage_message

from tacit.aggregation.two_servers import SLOT
from tacit.client.trust_models.masking import _answer
from tacit.service.config import Limits
from tacit.service.http.bodies import FRONT
from tacit.service.http.middleware import LimitsMiddleware

MODELS = ("two-servers", "shuffler", "local")


@pytest.fixture(params=MODELS)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """Every report is large, and a process reads three at a time."""
    with fronted(small(request.param), tmp_path) as one:
        scene = Scene(one)
        size = max(len(said) for said in scene.guests[0].sent.values())
        limits = Limits(rate=0, request_bytes=FRONT, admin_bytes=2 * FRONT, call_bytes=3 * size)
        one.configs = [config.model_copy(update={"limits": limits}) for config in one.configs]
        one.restart()
        yield scene


def served(one: Fronted, role: int, scene: Scene) -> LimitsMiddleware:
    host = "coordinator" if role == scene.terms.leader else "helper"
    found: Any = one.router.clients[f"{host}.example"].app
    assert isinstance(found, LimitsMiddleware)
    return found


@contextmanager
def unfinished(
    app: LimitsMiddleware, path: str, said: bytes, first: bytes, slot: bytes = b""
) -> Iterator[list[int]]:
    """A request whose body does not end; the statuses of the answer, if there is one."""
    statuses: list[int] = []
    loop = asyncio.new_event_loop()
    parts = [{"type": "http.request", "body": first, "more_body": True}]
    scope = {
        "type": "http",
        "method": "PUT",
        "path": path,
        "query_string": b"",
        "headers": [
            (b"content-length", str(len(said)).encode()),
            *([(b"tacit-slot", slot.hex().encode())] if slot else []),
        ],
        "client": ("192.0.2.1", 1),
    }

    async def receive() -> Any:
        if not parts:
            await asyncio.Event().wait()
        return parts.pop()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def begin() -> asyncio.Task[None]:
        task = asyncio.ensure_future(app(scope, receive, send))
        await asyncio.wait([task], timeout=0.2)
        return task

    task = loop.run_until_complete(begin())
    try:
        yield statuses
    finally:
        task.cancel()
        loop.run_until_complete(asyncio.wait([task]))
        loop.close()


def first_sent(guest: Guest) -> tuple[int, bytes]:
    return next(iter(guest.sent.items()))


def test_large_unauthenticated_bodies_block_no_report(scene: Scene) -> None:
    """Without any token, three of them had all reports answered with 503."""
    victim, *others = scene.guests
    role, said = first_sent(victim)
    app = served(scene.one, role, scene)
    for first in (bytes(FRONT), said[: SLOT.size], other_token(said)):
        with (
            unfinished(app, victim.path, said, first),
            unfinished(app, victim.path, said, first),
            unfinished(app, victim.path, said, first),
        ):
            assert scene.put(role, others[0].path, others[0].sent[role]) == 204
    scene.all_released()


def other_token(said: bytes) -> bytes:
    """The start of a report with another bit in every byte."""
    return bytes(byte ^ 1 for byte in said[:FRONT])


def test_a_stranger_is_rejected_as_soon_as_the_token_is_missing(scene: Scene) -> None:
    role, said = first_sent(scene.guests[0])
    app = served(scene.one, role, scene)
    with unfinished(app, scene.guests[0].path, said, other_token(said)) as statuses:
        assert statuses == [403]
    with unfinished(app, scene.guests[0].path, said, said[:FRONT]) as statuses:
        assert statuses == []


def test_a_slot_sends_one_large_report_at_a_time(scene: Scene) -> None:
    first, second, *_ = scene.guests
    role, said = first_sent(first)
    app = served(scene.one, role, scene)
    with unfinished(app, first.path, said, said[:FRONT]):
        with unfinished(app, first.path, said, said[:FRONT]) as statuses:
            assert statuses == [503]
        assert scene.put(role, second.path, second.sent[role]) == 204
    assert scene.put(role, first.path, said) == 204


def test_a_report_beyond_the_size_of_other_requests_needs_its_token_first(scene: Scene) -> None:
    role, said = first_sent(scene.guests[0])
    for size, status in ((len(said) - 1, 403), (len(said), 422)):
        limits = Limits(rate=0, request_bytes=size)
        scene.one.configs = [one.model_copy(update={"limits": limits}) for one in scene.one.configs]
        scene.one.restart()
        assert scene.put(role, scene.guests[0].path, other_token(said) + said[FRONT:]) == status


@pytest.mark.parametrize("admin", [2 * FRONT, 1 << 19])
def test_a_slot_sends_two_stage_messages_at_a_time(tmp_path: Path, admin: int) -> None:
    """One slot had all stage messages answered with 503, or small ones fill memory."""
    with fronted(small("secure-aggregation"), tmp_path) as one:
        scene = Scene(one)
        begun(scene)
        first, second, *_ = scene.guests
        content = {id(guest): next_answer(scene, guest) for guest in (first, second)}
        size = one.coordinator.staged(first.running.identity).largest_answer
        limits = Limits(rate=0, request_bytes=FRONT, admin_bytes=admin, call_bytes=4 * size)
        one.configs = [config.model_copy(update={"limits": limits}) for config in one.configs]
        one.restart()
        path = f"/rounds/{first.running.identity.hex()}/messages"
        app, said = served(one, 0, scene), content[id(first)]
        about = app, path, said, said[:1], first.running.slot.encode()
        with ExitStack() as held:
            statuses = [held.enter_context(unfinished(*about)) for _ in range(4)]
            assert statuses == [[], [], [503], [503]]
            assert stage_message(scene, second, content[id(second)]) == 204
        assert stage_message(scene, first, said) == 204


def next_answer(scene: Scene, guest: Guest) -> bytes:
    return _answer(session_of(scene, guest), asked(scene, guest, 0))
