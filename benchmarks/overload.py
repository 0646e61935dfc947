"""Overload: reports at three times the capacity of the helper, open loop, on new connections.

Capacity is measured on new connections, too. The same reports are sent again and again; at most
16,000 requests wait at once. Printed are capacity, the rate really sent, answers by status,
503 without `Retry-After`, acknowledged reports that are not on disk, the largest memory of the
helper, and the seconds until it answers as before.
"""

from __future__ import annotations

import argparse
import select
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sql

from machine import Row, emit
from service import Member, deployed, encrypted
from tacit.service import schema
from tacit.service.http.connections import raise_descriptor_limit

TIMES = 3
PATIENCE = 30.0  # seconds for one request
MOST = 16_000  # requests that wait at once, four times the connections of a party
AT_ONCE = 64  # requests at once that measure capacity
NORMAL = 0.5  # seconds of an answer without overload, at most

Report = tuple[str, bytes]


class Generator:
    """Sends reports to a party, each on a connection of its own, without a thread per request."""

    def __init__(self, one: Member, reports: list[Report]) -> None:
        self._member, self._reports = one, reports
        self._poll = select.epoll()
        self._open: dict[int, tuple[socket.socket, int, float]] = {}
        self.answers: dict[int, str] = {}
        self.memory, self._looked = one.memory(), time.perf_counter()

    def send(self, due: Callable[[float], float], at_once: int) -> None:
        """Send report after report, by now `due` of them, until it is negative."""
        started = time.perf_counter()
        while (wanted := due(time.perf_counter() - started)) >= 0:
            while len(self.answers) + len(self._open) < wanted and len(self._open) < at_once:
                self._begin(len(self.answers) + len(self._open))
            self._wait()

    def drain(self) -> None:
        """Wait for the answers that are left."""
        while self._open:
            self._wait()

    def _wait(self) -> None:
        for descriptor, event in self._poll.poll(0.002):
            self._go_on(descriptor, event)
        now = time.perf_counter()
        if now - self._looked > 1:
            self._looked = now
            self.memory = max(self.memory, self._member.memory())
            for descriptor, (_, _, began) in list(self._open.items()):
                if now - began > PATIENCE:
                    self._end(descriptor, "late")

    def _begin(self, number: int) -> None:
        line = socket.socket()
        line.setblocking(False)
        line.connect_ex(("127.0.0.1", self._member.port))
        self._open[line.fileno()] = line, number, time.perf_counter()
        self._poll.register(line, select.EPOLLOUT)

    def _go_on(self, descriptor: int, event: int) -> None:
        line, number, _ = self._open[descriptor]
        try:
            if event & select.EPOLLOUT:
                path, body = self._reports[number % len(self._reports)]
                head = f"PUT {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                line.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                self._poll.modify(line, select.EPOLLIN)
                return
            said = line.recv(1 << 16).lower()
        except OSError as problem:
            self._end(descriptor, type(problem).__name__)
            return
        status = said[9:12].decode() or "closed"
        bare = status == "503" and b"retry-after:" not in said
        self._end(descriptor, "503 bare" if bare else status)

    def _end(self, descriptor: int, answer: str) -> None:
        line, number, _ = self._open.pop(descriptor)
        self._poll.unregister(line)
        line.close()
        self.answers[number] = answer


def capacity_of(one: Member, reports: list[Report]) -> float:
    """How many reports a party takes in a second, closed loop."""
    generator, started = Generator(one, reports), time.perf_counter()
    generator.send(lambda _: len(reports) if len(generator.answers) < len(reports) else -1, AT_ONCE)
    if set(generator.answers.values()) != {"204"}:
        raise SystemExit(f"reports got {Counter(generator.answers.values())}")
    return len(reports) / (time.perf_counter() - started)


def recovery_of(one: Member, report: Report) -> float:
    """Seconds until a party answers as without overload."""
    started = time.perf_counter()
    while time.perf_counter() - started < 2 * PATIENCE:
        asked, generator = time.perf_counter(), Generator(one, [report])
        generator.send(lambda _: -1 if generator.answers else 1, 1)  # noqa: B023
        if generator.answers == {0: "204"} and time.perf_counter() - asked < NORMAL:
            break
    return time.perf_counter() - started


def main() -> None:
    """Prints one JSON object."""
    raise_descriptor_limit()
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--seconds", type=float, default=60.0)
    words.add_argument(
        "--encrypted", type=int, default=20_000, help="reports for capacity and flood"
    )
    said = words.parse_args()
    with tempfile.TemporaryDirectory() as name:
        urls = ("sqlite:///coordinator.db", "sqlite:///helper.db")
        with deployed(Path(name), urls) as there:
            pinned, helper = there.begin("Overload?"), there.members[1]
            ready = [
                (path, shares[1]) for path, _, shares in encrypted(there, pinned, said.encrypted)
            ]
            ready = [one for place, one in enumerate(ready) if place % 20]  # no round is complete
            first = len(ready) // 10
            capacity = capacity_of(helper, ready[:first])
            before, rest = helper.memory(), ready[first:]
            flood = Generator(helper, rest)
            flood.send(
                lambda passed: TIMES * capacity * passed if passed < said.seconds else -1, MOST
            )
            recovered = recovery_of(helper, rest[0])
            flood.drain()
            counts = Counter(flood.answers.values())
            with there.helper.store.begin() as transaction:
                count = sql.select(sql.func.count()).select_from(schema.shares)
                stored = int(transaction.rows(count)[0][0])
    acknowledged = {number % len(rest) for number, one in flood.answers.items() if one == "204"}
    lost = max(0, first + len(acknowledged) - stored)
    rows = [
        Row(name="capacity of the helper", value=capacity, unit="reports per second"),
        Row(name="sent", value=len(flood.answers) / said.seconds, unit="reports per second"),
        Row(name="memory before", value=before, unit="MB"),
        Row(name="memory at most", value=flood.memory, unit="MB"),
        Row(name="acknowledged and lost", value=float(lost), unit="reports"),
        Row(name="normal again after", value=recovered, unit="s"),
    ]
    rows += [Row(name=f"answers: {k}", value=float(v), unit="") for k, v in sorted(counts.items())]
    emit(rows)


if __name__ == "__main__":
    main()
