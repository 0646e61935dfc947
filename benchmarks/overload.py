"""Overload: reports at three times the capacity of the helper, open loop, on new connections.

The same reports are sent again and again; at most 6,000 requests wait at once. Printed are
capacity, answers by status, 503 without `Retry-After`, acknowledged reports that are
not on disk, the largest memory of the helper, and the seconds until it answers as before.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from pathlib import Path

import sqlalchemy as sql

from machine import Row, emit
from service import Member, brought, deployed, sealed
from tacit.service import store
from tacit.service.http.connections import raise_descriptor_limit

TIMES = 3
PATIENCE = 30.0  # seconds for one request
MOST = 6000  # requests that wait at once, more than the connections of a party
NORMAL = 0.5  # seconds of an answer without overload, at most


async def put(one: Member, path: str, body: bytes) -> str:
    """Send a report on a connection of its own; status, with "bare" for 503 without a delay."""
    try:
        async with asyncio.timeout(PATIENCE):
            reader, writer = await asyncio.open_connection("127.0.0.1", one.port)
            head = f"PUT {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            said = (await reader.read()).lower()
            writer.close()
    except (OSError, TimeoutError) as problem:
        return type(problem).__name__
    status = said[9:12].decode() or "closed"
    return "503 bare" if status == "503" and b"retry-after:" not in said else status


async def flood(
    one: Member, reports: list[tuple[str, bytes]], rate: float, seconds: float
) -> tuple[dict[int, str], float, float]:
    """Answers by report, the largest memory, and seconds until an answer is quick again."""
    started, tasks, memory = time.perf_counter(), dict[int, asyncio.Task[str]](), one.memory()
    number, waiting = 0, set[asyncio.Task[str]]()
    while (passed := time.perf_counter() - started) < seconds:
        while number < rate * passed and len(waiting) < MOST:
            path, body = reports[number % len(reports)]
            tasks[number] = asyncio.ensure_future(put(one, path, body))
            waiting.add(tasks[number])
            tasks[number].add_done_callback(waiting.discard)
            number += 1
        memory = max(memory, one.memory())
        await asyncio.sleep(0.01)
    ended = time.perf_counter()
    while True:
        asked = time.perf_counter()
        answer = await put(one, *reports[0])
        quick = time.perf_counter() - asked < NORMAL and answer not in ("503", "503 bare")
        if quick or time.perf_counter() - ended > 2 * PATIENCE:
            break
    recovered = time.perf_counter() - ended
    answers = await asyncio.gather(*tasks.values())
    return dict(zip(tasks, answers, strict=True)), memory, recovered


def main() -> None:
    """Prints one JSON object."""
    raise_descriptor_limit()
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--seconds", type=float, default=60.0)
    words.add_argument("--sealed", type=int, default=20_000, help="reports for capacity and flood")
    said = words.parse_args()
    with tempfile.TemporaryDirectory() as name:
        urls = ("sqlite:///coordinator.db", "sqlite:///helper.db")
        with deployed(Path(name), urls) as there:
            pinned, helper = there.begin("Overload?"), there.members[1]
            ready = [(path, halves[1]) for path, _, halves in sealed(there, pinned, said.sealed)]
            ready = [one for place, one in enumerate(ready) if place % 20]  # no round is complete
            first = len(ready) // 10
            capacity, _ = asyncio.run(brought(helper, ready[:first]))
            before = helper.memory()
            rest = ready[first:]
            answers, memory, recovered = asyncio.run(
                flood(helper, rest, TIMES * capacity, said.seconds)
            )
            counts = Counter(answers.values())
            with there.helper.store.begin() as transaction:
                count = sql.select(sql.func.count()).select_from(store.shares)
                stored = int(transaction.connection.execute(count).scalar_one())
    acknowledged = {number % len(rest) for number, one in answers.items() if one == "204"}
    lost = max(0, first + len(acknowledged) - stored)
    rows = [
        Row(name="capacity of the helper", value=capacity, unit="reports per second"),
        Row(name="memory before", value=before, unit="MB"),
        Row(name="memory at most", value=memory, unit="MB"),
        Row(name="acknowledged and lost", value=float(lost), unit="reports"),
        Row(name="normal again after", value=recovered, unit="s"),
    ]
    rows += [Row(name=f"answers: {k}", value=float(v), unit="") for k, v in sorted(counts.items())]
    emit(rows)


if __name__ == "__main__":
    main()
