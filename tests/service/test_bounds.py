"""Unauthenticated clients that send too much or nothing: their cost to a party, on raw sockets."""

from __future__ import annotations

import json
import os
import re
import resource
import socket
import stat
import subprocess
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from starlette.responses import Response
from tests.service.served import (
    ADMIN,
    Process,
    Processes,
    Running,
    Threads,
    member,
    processes,
    running,
    served,
    wait_for,
)

from tacit.errors import Unavailable
from tacit.records import RecordDirectory
from tacit.service.errors import Forbidden
from tacit.service.http import connections
from tacit.service.http.calls import CallCheck, CallHeader, new_call, sign_call
from tacit.service.http.connections import ConnectionLimit, GuardedConnection
from tacit.service.http.serve import application
from tacit.service.store import Store
from tacit.signatures import public_key

LARGE = 1 << 26  # bytes that a stranger sends on one connection
MANY = 16  # connections
GROWTH = 6 << 20  # bytes that all of them together may cost
REPORT = f"/rounds/{'0' * 32}/reports/0"
PATHS = (
    ("POST", f"/rounds/{'0' * 32}/exchange"),
    ("PUT", REPORT),
    ("POST", "/experiments"),
    ("GET", "/healthz"),
    ("PUT", "/nowhere"),
)


def connected(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def head(method: str, path: str, *more: str) -> bytes:
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: x", *more, "", "")).encode()


def answered(line: socket.socket) -> tuple[int, Any]:
    """Status and document of the answer, from a connection that may stay open."""
    said = b""
    while b"\r\n\r\n" not in said:
        said += line.recv(4096)
    first, _, body = said.partition(b"\r\n\r\n")
    size = int(re.search(rb"content-length: (\d+)", first)[1])  # type: ignore[index]
    while len(body) < size:
        body += line.recv(4096)
    return int(first.split()[1]), json.loads(body)


def memory(process: Process, what: str) -> int:
    """Bytes in memory now (`VmRSS`) or at most since it was reset (`VmHWM`)."""
    told = Path(f"/proc/{pid(process)}/status").read_text()
    return int(re.search(rf"{what}:\s+(\d+) kB", told)[1]) << 10  # type: ignore[index]


def pid(process: Process) -> int:
    started = process._running
    assert isinstance(started, subprocess.Popen)
    return started.pid


@pytest.fixture(scope="module")
def separate_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with processes(tmp_path_factory.mktemp("apart")) as made:
        yield made


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Threads]:
    with served(tmp_path_factory.mktemp("bounds")) as made:
        yield made


# Bodies


@pytest.mark.extended
@pytest.mark.parametrize("chunked", [False, True])
def test_many_large_unauthenticated_bodies_use_little_memory(
    separate_processes: Processes, chunked: bool
) -> None:
    size = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {LARGE}"
    part = b"10000\r\n" + bytes(1 << 16) + b"\r\n" if chunked else bytes(1 << 16)

    def send(url: str, method: str, path: str) -> int:
        """How many bytes went before the party hung up."""
        sent = 0
        with connected(url) as line, suppress(OSError):
            line.sendall(head(method, path, size))
            while sent < LARGE:
                line.sendall(part)
                sent += len(part)
        return sent

    for process in separate_processes.processes:
        url = process.member.url
        httpx.get(f"{url}/healthz")
        Path(f"/proc/{pid(process)}/clear_refs").write_text("5")  # resets VmHWM
        before = memory(process, "VmRSS")
        with ThreadPoolExecutor(MANY) as strangers:
            asked = [PATHS[number % len(PATHS)] for number in range(MANY)]
            list(strangers.map(lambda one: send(url, *one), asked))  # noqa: B023
        assert memory(process, "VmHWM") - before < GROWTH
        assert httpx.get(f"{url}/healthz").status_code == 200


@pytest.mark.parametrize("role", [0, 1])
@pytest.mark.parametrize(("method", "path"), PATHS)
def test_a_large_body_is_rejected_from_its_headers(
    servers: Threads, role: int, method: str, path: str
) -> None:
    with connected(servers.urls[role]) as line:
        line.sendall(head(method, path, f"Content-Length: {LARGE}"))
        status, document = answered(line)
    if path == REPORT:  # of a round that is not there
        assert (status, document["type"]) == (404, "/problems/not-found")
    else:
        assert (status, document["type"]) == (413, "/problems/body-too-large")


def test_a_client_expecting_100_continue_is_rejected_instead(servers: Threads) -> None:
    more = (f"Content-Length: {LARGE}", "Expect: 100-continue")
    with connected(servers.urls[1]) as line:
        line.sendall(head("POST", "/experiments", *more))
        assert answered(line)[0] == 413


def test_a_signed_call_is_read_to_its_declared_length(servers: Threads) -> None:
    digest = servers.begin()
    joined = servers.place(digest)
    path = f"/rounds/{joined.round.identity.hex()}/exchange"
    body = json.dumps({"listing": "00" * (1 << 19)}).encode()
    key, kind = servers.members[0].key, {"content-type": "application/json"}

    def parts() -> Iterator[bytes]:
        yield from (body[at : at + 4096] for at in range(0, len(body), 4096))

    def post(content: Any, headers: dict[str, str]) -> httpx.Response:
        return servers.post(1, path, content=content, headers=headers | kind)

    assert post(body, new_call(path, digest, body, key)).status_code == 200
    assert post(parts(), new_call(path, digest, body, key)).status_code == 200
    for other in (body[:-1] + b" ", body.replace(b"00", b"01", 1)):
        said = post(other, new_call(path, digest, body, key))
        assert (said.status_code, "digest of the body" in said.text) == (403, True)
    for size, status in ((len(body) + 1, 413), (len(body) - 1, 422)):
        headers = new_call(path, digest, body, key) | {"Content-Length": str(size)} | kind
        lines = [f"{name}: {value}" for name, value in headers.items()]
        with connected(servers.urls[1]) as line:
            line.sendall(head("POST", path, *lines))
            assert answered(line)[0] == status


def test_a_signed_call_with_many_values_is_not_parsed(servers: Threads) -> None:
    """Lists of a few bytes took twenty times the memory: 64 MB ended a helper."""
    digest = servers.begin()
    path = f"/rounds/{servers.place(digest).round.identity.hex()}/exchange"
    body = b'{"listing": "", "more": [' + b"[]," * 1000 + b"0]}"
    headers = new_call(path, digest, body, servers.members[0].key)
    said = servers.post(
        1, path, content=body, headers=headers | {"content-type": "application/json"}
    )
    assert (said.status_code, "over 256 values" in said.text) == (422, True)


def test_an_admin_may_send_a_definition_of_many_kilobytes(servers: Threads) -> None:
    asked = {"definition": "# " + "x" * 60_000}
    said = servers.post(0, "/experiments", json=asked, headers=ADMIN)
    assert (said.status_code, "question" in said.text) == (422, True), said.text  # it was read
    said = servers.post(0, "/experiments", json=asked, headers={"Authorization": "Bearer wrong"})
    assert (said.status_code, said.headers["www-authenticate"]) == (401, "Bearer")


def test_a_signed_call_is_accepted_once_and_within_its_time() -> None:
    key, now = Ed25519PrivateKey.generate(), [1000.0]
    check = CallCheck(lambda _: public_key(key), lambda: now[0])

    def call(when: int, nonce: bytes) -> CallHeader | None:
        made = sign_call("/x", CallHeader.of(bytes(32), b"", when, nonce), key)
        return check("/x", *made.values())

    assert call(1000, bytes(16)) is not None
    for now[0] in (1000.0, 1299.0):
        with pytest.raises(Forbidden, match="made before"):
            call(1000, bytes(16))
    now[0] = 1301.0
    with pytest.raises(Unavailable, match="-301 s off this helper's clock"):
        call(1000, bytes(16))
    for number in range(5):
        now[0] += 250
        assert call(int(now[0]), bytes([number + 1]) * 16) is not None
        assert len(check._seen) <= 3


def test_a_call_that_comes_twice_at_once_is_accepted_once() -> None:
    """Calls are checked in threads, which both found that the call was new."""

    class Slow(OrderedDict[bytes, float]):
        def __contains__(self, nonce: object) -> bool:
            found = super().__contains__(nonce)
            time.sleep(0.1)
            return found

    key, taken = Ed25519PrivateKey.generate(), []
    check = CallCheck(lambda _: public_key(key), lambda: 1000.0)
    check._seen = Slow()
    made = sign_call("/x", CallHeader.of(bytes(32), b"", 1000, bytes(16)), key)

    def call() -> None:
        with suppress(Forbidden):
            taken.append(check("/x", *made.values()))

    threads = [threading.Thread(target=call) for _ in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(taken) == 1


# Connections


class Few(Process):
    """A party with few file descriptors."""

    def _begun(self) -> Running:
        with self.log.open("ab") as log:
            command = ["prlimit", "--nofile=256:256", *self._command]
            return subprocess.Popen(command, stdout=log, stderr=log, env=self._environment)


@pytest.mark.extended
def test_idle_connections_block_nobody_and_are_logged(tmp_path: Path) -> None:
    party = Few(member(tmp_path, "helper", rate=0))
    try:
        party.start()
        with ExitStack() as lines:
            for _ in range(400):
                lines.enter_context(connected(party.member.url))
            for _ in range(20):
                assert httpx.get(f"{party.member.url}/healthz", timeout=10).status_code == 200
        said = [json.loads(line) for line in party.log.read_text().splitlines()]
        warned = [one["message"] for one in said if one["level"] == "warning"]
        assert len(warned) == 1
        assert warned[0].startswith("connection limit of 128 reached")
        assert "LimitNOFILE" in warned[0]
    finally:
        party.kill()
        party.free()


@pytest.mark.extended
def test_malformed_requests_write_no_log_lines(tmp_path: Path) -> None:
    """Every one wrote a line or two, or one per slice: strangers filled the disk."""
    party = Process(member(tmp_path, "helper", rate=0))
    upgrade = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    try:
        party.start()
        for said in (b"\0" * (1 << 16), upgrade):
            with connected(party.member.url) as line:
                line.sendall(said)
                assert line.recv(12) in (b"HTTP/1.1 400", b"HTTP/1.1 200")
        messages = [json.loads(one)["message"] for one in party.log.read_text().splitlines()]
        assert all(one.startswith("party started") for one in messages), messages
    finally:
        party.kill()
        party.free()


def test_at_the_connection_limit_the_longest_idle_one_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now, closed = [0.0], list[int]()
    limit = ConnectionLimit(2, clock=lambda: now[0])

    def admit(number: int) -> None:
        limit.admit(
            ("", number), cast("GuardedConnection", Closing(partial(closed.append, number)))
        )

    admit(0)
    admit(1)
    limit.activate(("", 0))
    admit(2)
    assert closed == [1]
    limit.finish(("", 0))
    admit(3)
    admit(4)
    assert closed == [1, 2, 0]
    assert len(caplog.records) == 1
    now[0] = connections.QUIET
    admit(5)
    assert [record.getMessage()[:39] for record in caplog.records] == [
        "connection limit of 2 reached: closed 1",
        "connection limit of 2 reached: closed 3",
    ]
    assert not limit.full
    for number in range(6, 6 + connections.SLACK):
        for active in range(number):
            limit.activate(("", active))
        admit(number)
    assert (limit.full, closed) == (True, [1, 2, 0, 3])  # none is idle: their requests get 503
    limit.activate(("", number))
    admit(1000)
    assert closed == [1, 2, 0, 3, 1000]


class Closing:
    """A connection that can only be closed."""

    def __init__(self, closed: Callable[[], None]) -> None:
        self._closed = closed

    def reject(self, answer: Response) -> None:
        """Close it with 503."""
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        self._closed()

    def finish(self) -> None:
        """The next data begins a head."""


# Disks


@contextmanager
def tmpfs(directory: Path) -> Iterator[None]:
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m,mode=700", "tmpfs", str(directory)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("mount is not installed")
    if done.returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


def fill(directory: Path) -> Path:
    """A file that takes all the room."""
    file = directory / "filling"
    with suppress(OSError), file.open("wb", buffering=0) as out:
        while True:
            out.write(bytes(4096))
    return file


@pytest.mark.parametrize("what", ["database", "records"])
def test_readyz_is_503_on_a_full_disk(tmp_path: Path, what: str) -> None:
    small = tmp_path / "small"
    with tmpfs(small):
        told = member(tmp_path / "helper", "helper")
        named = {"database": f"sqlite:///{small}/helper.db", "records": f"{small}/records"}
        text = told.path.read_text()
        told.path.write_text(f"{what} = {json.dumps(named[what])}\n{text}")
        assert told.bound is not None
        with running(application(told.config), told.bound):
            ready = f"{told.url}/readyz"
            filled = fill(small)
            said = wait_for(lambda: (one := httpx.get(ready)).status_code != 200 and one, 10)
            assert (said.status_code, said.json()["type"]) == (503, "/problems/unavailable")
            assert str(small) not in said.text
            assert httpx.get(f"{told.url}/healthz").status_code == 200
            filled.unlink()
            wait_for(lambda: httpx.get(ready).status_code == 200, 10)
            assert not list(small.rglob("probe-*"))


@pytest.mark.extended
def test_a_process_without_write_permission_is_not_ready(separate_processes: Processes) -> None:
    """As on a full disk, for any user: the system lets no file grow."""
    process = separate_processes.processes[1]
    ready = f"{process.member.url}/readyz"
    assert httpx.get(ready).status_code == 200
    _, hard = before = resource.prlimit(pid(process), resource.RLIMIT_FSIZE)
    resource.prlimit(pid(process), resource.RLIMIT_FSIZE, (4096, hard))
    try:
        wait_for(lambda: httpx.get(ready).status_code == 503, 10)
    finally:
        resource.prlimit(pid(process), resource.RLIMIT_FSIZE, before)
    wait_for(lambda: httpx.get(ready).status_code == 200, 10)


def test_unauthenticated_readiness_requests_cause_few_writes(
    servers: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    probes, records = list[int](), servers.helper.records
    assert isinstance(records, RecordDirectory)
    probe = records.probe

    def counted() -> None:
        probes.append(1)
        probe()

    monkeypatch.setattr(records, "probe", counted)
    started = time.monotonic()
    for _ in range(50):
        assert servers.get(1, "/readyz").status_code == 200
    assert len(probes) <= 2 + time.monotonic() - started


def test_database_files_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with closing(Store(f"sqlite:///{tmp_path}/helper.db")) as store:
            store.migrate()
            store.probe()
            modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("helper.db", "helper.db-wal", "helper.db-shm"), 0o600)
