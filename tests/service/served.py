"""Both parties over real HTTP on loopback: in threads of this process, or in their own processes.

In threads the party objects can be looked at; processes can be killed. Everything goes through the
configuration and the code that serves participants; only sources of noise and assignments are
injected.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import httpx
import sqlalchemy as sql
import uvicorn
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import FastAPI
from tests.service.balancer import balanced
from tests.service.pairs import experiment_of, terms_of

from tacit.aggregation.two_servers import ReportSlot, TwoServerRound, split
from tacit.experiment import Experiment
from tacit.keyfiles import KeyFile, save_signing_key
from tacit.service import schema
from tacit.service.config import PartyConfig, load
from tacit.service.coordinator import Coordinator
from tacit.service.helper import Helper
from tacit.service.http.middleware import LimitsMiddleware
from tacit.service.http.serve import application, create_server
from tacit.service.party import ServerParty
from tacit.service.timing import Timing
from tacit.signatures import SIGNATURE_SIZE, public_key
from tacit.terms import Pinned, Terms, cosign

ROLES = ("coordinator", "helper")
TOKEN = "an-admin-token-of-these-tests"
ADMIN = {"Authorization": f"Bearer {TOKEN}"}
TIMING = Timing(joining=3600, margin=60, grace=600)
STARTING = 180.0  # seconds that a server may take to start on a busy machine
AGAIN = 0.03  # seconds until a device sends again, at first
SHARED = sys.platform == "linux"  # where a server may listen on a port that is reserved
NONE: Mapping[str, str] = {}


@dataclass
class Member:
    """One of the two parties: its address and files."""

    role: str
    path: Path
    key: Ed25519PrivateKey
    url: str
    bound: socket.socket | None

    @property
    def config(self) -> PartyConfig:
        return load(self.path, {})


@cache
def signing_key(_role: str) -> tuple[Ed25519PrivateKey, dict[str, bytes]]:
    """A key and its files, encrypted once for all parties of this role: that takes long."""
    key = Ed25519PrivateKey.generate()
    with TemporaryDirectory() as place:
        lock, encrypted = Path(place) / "lock", Path(place) / "signing.key"
        lock.write_text(secrets.token_hex(32))
        save_signing_key(encrypted, key, KeyFile(lock))
        return key, {one.name: one.read_bytes() for one in (lock, encrypted)}


def member(directory: Path, role: str, database: str | None = None, **limits: object) -> Member:
    """The files of a party, and its port."""
    directory.mkdir(parents=True, exist_ok=True)
    bound = reserved()
    url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    key, files = signing_key(role)
    for name, content in (files | {"token": TOKEN.encode()}).items():
        (directory / name).write_bytes(content)
        (directory / name).chmod(0o600)
    entries: dict[str, object] = {
        "role": role,
        "address": url,
        "listen": url.removeprefix("http://"),
        "signing_key": "signing.key",
        "lock_file": "lock",
        "admin_token_file": "token",
    }
    if database is not None:
        entries["database"] = database
    lines = [f"{name} = {json.dumps(value)}" for name, value in entries.items()]
    own = {"rate": 0} | limits  # one address is all participants here
    lines += ["[limits]", *(f"{name} = {json.dumps(value)}" for name, value in own.items())]
    (directory / "party.toml").write_text("\n".join(lines) + "\n")
    (directory / "party.toml").chmod(0o600)
    return Member(role, directory / "party.toml", key, url, bound)


def reserved() -> socket.socket:
    """A port that is reserved until this is closed."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", 0))
    return bound


def beside(member: Member) -> Member:
    """Another process of a party: its key, database and key files, and another port."""
    bound = reserved()
    url = f"http://127.0.0.1:{bound.getsockname()[1]}"
    path = member.path.with_name("second") / "party.toml"
    shutil.copytree(member.path.parent, path.parent)
    text = member.path.read_text().replace(f'listen = "{member.url[7:]}', f'listen = "{url[7:]}')
    records = json.dumps(str(member.config.records))
    path.write_text(f"records = {records}\n{text}")
    return replace(member, path=path, url=url, bound=bound)


@contextmanager
def running(app: LimitsMiddleware, bound: socket.socket) -> Iterator[uvicorn.Server]:
    """A server in a thread of this process."""
    server = create_server(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    try:
        wait_for(lambda: server.started or not thread.is_alive())
        yield server
    finally:
        server.should_exit = True
        thread.join(STARTING)
        assert not thread.is_alive()


def wait_for(found: Callable[[], Any], seconds: float = STARTING) -> Any:
    """What is found, as soon as there is something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if something := found():
            return something
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")


def again(request: Callable[[], httpx.Response]) -> httpx.Response:
    """The first answer that does not ask to retry."""
    end, wait = time.monotonic() + 2 * STARTING, AGAIN
    while time.monotonic() < end:
        try:
            answer = request()
        except httpx.HTTPError:
            answer = httpx.Response(503)
        if answer.status_code not in (429, 503):
            return answer
        time.sleep(wait)
        wait = min(1.5 * wait, 10 * AGAIN)
    raise AssertionError("nobody answers")


def kept(party: ServerParty) -> int:
    """How many reports wait in a party's database."""
    with party.store.begin() as transaction:
        count = sql.select(sql.func.count()).select_from(schema.shares)
        return int(transaction.rows(count)[0][0])


@dataclass(frozen=True)
class Joined:
    """A participant's slot in a round."""

    option: str
    announcement: bytes
    place: ReportSlot

    @classmethod
    def read(cls, said: Any) -> Joined | None:
        """The coordinator's answer; None without a slot."""
        if not said["asked"]:
            return None
        place = ReportSlot(said["place"], bytes.fromhex(said["token"]))
        return cls(said["option"], bytes.fromhex(said["announcement"]), place)

    @property
    def round(self) -> TwoServerRound:
        return TwoServerRound.decode(self.announcement[: -2 * SIGNATURE_SIZE])

    @property
    def path(self) -> str:
        return f"/rounds/{self.round.identity.hex()}/reports/{self.place.number}"


@dataclass
class Served:
    """Both parties, as the world sees them."""

    members: tuple[Member, Member]
    parties: tuple[Coordinator, Helper]
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=30.0))

    @property
    def urls(self) -> tuple[str, str]:
        return self.members[0].url, self.members[1].url

    @property
    def keys(self) -> tuple[bytes, bytes]:
        return public_key(self.members[0].key), public_key(self.members[1].key)

    def terms(self, options: tuple[str, ...], **changed: Any) -> Terms:
        """Terms that name these parties, for the days around today."""
        made = terms_of(self.keys, options)
        today = datetime.now(UTC).date()
        parties = tuple(
            type(party)(party.role, url, party.key)
            for party, url in zip(made.parties, self.urls, strict=True)
        )
        days: dict[str, date] = {
            "first_day": today - timedelta(days=1),
            "last_day": today + timedelta(days=30),
        }
        return terms_of(self.keys, options, **({"parties": parties} | days | changed))

    def pinned(self, digest: bytes) -> Pinned:
        """The terms as a device gets them."""
        said = self.get(0, f"/experiments/{digest.hex()}/terms").json()
        terms = Terms.decode(said["terms"].encode())
        return Pinned(terms, tuple(bytes.fromhex(one) for one in said["signatures"]), self.keys)

    def get(self, role: int, path: str, **more: Any) -> httpx.Response:
        return self.client.get(self.urls[role] + path, **more)

    def found(self, role: int, path: str) -> bool:
        """Whether there is something to get."""
        return self.get(role, path).status_code == 200

    def post(self, role: int, path: str, **more: Any) -> httpx.Response:
        return self.client.post(self.urls[role] + path, **more)

    def put(self, role: int, path: str, content: bytes, **more: Any) -> httpx.Response:
        return self.client.put(self.urls[role] + path, content=content, **more)

    def ask(self, digest: bytes, nonce: bytes | None = None) -> httpx.Response:
        asked = {"nonce": (nonce or os.urandom(16)).hex()}
        return self.post(0, f"/experiments/{digest.hex()}/places", json=asked)

    def join(self, digest: bytes, nonce: bytes | None = None) -> Joined | None:
        """A slot in a round; None if there is none."""
        asked = partial(self.ask, digest, nonce or os.urandom(16))
        return Joined.read(again(asked).raise_for_status().json())

    def place(self, digest: bytes) -> Joined:
        """A place, as soon as there is one."""
        joined = wait_for(lambda: self.join(digest))
        assert isinstance(joined, Joined)
        return joined

    def report(self, pinned: Pinned, joined: Joined, value: int) -> None:
        """Both shares, to both parties."""
        halves = split(pinned, joined.announcement, joined.place, [value])
        for role, half in enumerate(halves):
            again(partial(self.put, role, joined.path, half)).raise_for_status()

    def hold(self, digest: bytes, value_of: Callable[[str], int]) -> list[Joined]:
        """All slots of the open rounds are joined, several at once, and report."""
        pinned, first, came = self.pinned(digest), self.place(digest), list[Joined]()

        def come(joined: Joined | None) -> None:
            while joined is not None:
                came.append(joined)
                self.report(pinned, joined, value_of(joined.option))
                joined = self.join(digest)

        with ThreadPoolExecutor(8) as participants:
            list(participants.map(come, [first, *(self.join(digest) for _ in range(7))]))
        return came

    def people(self, digest: bytes, count: int) -> list[tuple[Joined, tuple[bytes, bytes]]]:
        """So many participants, each with a slot and encrypted shares of 1."""
        pinned, first = self.pinned(digest), self.place(digest)
        found = [first, *(self.join(digest) for _ in range(count - 1))]
        return [
            (joined, split(pinned, joined.announcement, joined.place, [1]))
            for joined in found
            if joined is not None
        ]

    def status(self, digest: bytes) -> Any:
        said = self.get(0, f"/experiments/{digest.hex()}/status", headers=ADMIN)
        return said.raise_for_status().json()

    @property
    def coordinator(self) -> Coordinator:
        return self.parties[0]

    @property
    def helper(self) -> Helper:
        return self.parties[1]

    def begin(
        self, experiment: Experiment | None = None, timing: Timing = TIMING, **changed: Any
    ) -> bytes:
        """An experiment that both have signed."""
        made = experiment or experiment_of()
        terms = self.terms(made.options, **changed)
        digest = self.coordinator.create(terms, made, timing)
        signature = cosign(terms, self.members[1].key)
        self.helper.admit(terms, (self.coordinator.signature(digest), signature))
        cosigned = {"signature": signature.hex()}
        path = f"/experiments/{digest.hex()}/cosignature"
        self.post(0, path, json=cosigned).raise_for_status()
        return digest


@dataclass
class Threads(Served):
    """Both parties in threads of this process; `parties` are those that serve."""

    fronts: tuple[LimitsMiddleware, ...] = ()


def parties_of(fronts: Sequence[LimitsMiddleware]) -> tuple[Coordinator, Helper]:
    """The parties behind applications."""
    apps = [front.app for front in fronts]
    coordinator, helper = (app.state.service.party for app in apps if isinstance(app, FastAPI))
    assert isinstance(coordinator, Coordinator)
    assert isinstance(helper, Helper)
    return coordinator, helper


@contextmanager
def served(
    directory: Path,
    databases: tuple[str | None, str | None] = (None, None),
    sources: tuple[dict[str, Any], dict[str, Any]] = ({}, {}),
    **limits: object,
) -> Iterator[Threads]:
    """Both parties over HTTP, in threads."""
    with ExitStack() as stack:
        members = [
            member(directory / role, role, database, **limits)
            for role, database in zip(ROLES, databases, strict=True)
        ]
        fronts = []
        for one, more in zip(members, sources, strict=True):
            fronts.append(application(one.config, **more))
            assert one.bound is not None
            stack.enter_context(running(fronts[-1], one.bound))
        both = Threads((members[0], members[1]), parties_of(fronts), fronts=tuple(fronts))
        stack.callback(both.client.close)
        yield both


class Running(Protocol):
    """A process that was started."""

    def poll(self) -> int | None:
        """How it ended; None as long as it runs."""

    def send_signal(self, sig: int) -> None:
        """Send a signal to the process."""

    def wait(self, timeout: float | None = None) -> int:
        """How it ended, as soon as it has."""


class Process:
    """A party in its own process, which can be killed and started again."""

    def __init__(
        self, member: Member, seed: int | None = None, environment: Mapping[str, str] = NONE
    ) -> None:
        self.member = member
        words = [] if seed is None else ["--seed", str(seed)]
        self._command = [sys.executable, "-m", "tests.service.party", "--config", str(member.path)]
        self._command += words
        self._environment = os.environ | environment
        self.log = member.path.with_name("log")
        self._running: Running | None = None

    def start(self) -> None:
        """Starts it; ready when it answers."""
        self.launch()
        self.ready()

    def launch(self) -> None:
        """Starts it, and does not wait."""
        if not SHARED:
            self.free()
        self._running = self._begun()

    def free(self) -> None:
        """Release its port."""
        if self.member.bound is not None:
            self.member.bound.close()
            self.member.bound = None

    def ready(self) -> None:
        """Waits until it answers."""
        wait_for(self._answers)

    def _begun(self) -> Running:
        with self.log.open("ab") as log:
            return subprocess.Popen(self._command, stdout=log, stderr=log, env=self._environment)

    def _answers(self) -> bool:
        assert self._running is not None
        assert self._running.poll() is None, self.log.read_text()
        try:
            return httpx.get(self.member.url + "/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def hurry(self, seconds: float) -> None:
        """Its clock is so far ahead from now on, where a seed chose its sources."""
        (new := self.member.path.with_name("ahead.new")).write_text(str(seconds))
        new.rename(new.with_name("ahead"))

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End it; the exit code."""
        if self._running is None:
            return 0
        self._running.send_signal(how)
        code = self._running.wait(STARTING)
        self._running = None
        return code

    def kill(self) -> None:
        """kill -9."""
        self.end(signal.SIGKILL)


@dataclass
class Processes(Served):
    """Both parties in their own processes; `parties` are further ones over the same stores."""

    processes: tuple[Process, ...] = ()


@contextmanager
def processes(
    directory: Path,
    databases: tuple[str | None, str | None] = (None, None),
    seed: int | None = None,
    environment: Mapping[str, str] = NONE,
    make: Callable[..., Process] = Process,
    copies: int = 1,
    **limits: object,
) -> Iterator[Processes]:
    """Both parties over HTTP, in their own processes; with two copies behind a balancer."""
    members = [
        member(directory / role, role, database, **limits)
        for role, database in zip(ROLES, databases, strict=True)
    ]
    with ExitStack() as stack:
        hosts = list(members)
        if copies > 1:
            hosts = [copy for one in members for copy in (one, beside(one))]
            for number, one in enumerate(members):
                pair = hosts[2 * number : 2 * number + 2]
                url = stack.enter_context(balanced([int(copy.url[17:]) for copy in pair]))
                for copy in pair:
                    text = copy.path.read_text()
                    copy.path.write_text(text.replace(f'address = "{one.url}', f'address = "{url}'))
                members[number] = replace(one, url=url)
        yield from _started(members, [make(one, seed, environment) for one in hosts])


def _started(members: list[Member], started: list[Process]) -> Iterator[Processes]:
    parties = parties_of([application(one.config) for one in members])
    both = Processes((members[0], members[1]), parties, processes=tuple(started))
    try:
        for one in started:
            one.start()
        yield both
    finally:
        both.client.close()
        for one in started:
            one.kill()
            one.free()
        for party in parties:
            party.store.close()
