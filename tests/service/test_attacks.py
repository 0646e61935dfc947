"""Attacks on live parties: large bodies on every route, responses that nobody reads, races."""

from __future__ import annotations

import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from tests.cli.commands import Command, rejected
from tests.cli.conftest import command as command
from tests.service.pairs import Pair, described
from tests.service.served import TOKEN, Processes, Threads, processes, served, wait_for
from tests.service.test_bounds import GROWTH, LARGE, answered, connected, head, memory, pid

from tacit.aggregation.two_servers import split
from tacit.errors import Rejected
from tacit.service import invitations
from tacit.service.assignment import Assigned, Ticket
from tacit.service.coordinator import Coordinator
from tacit.service.errors import Forbidden
from tacit.service.helper import Helper
from tacit.service.http import connections
from tacit.service.store import Store

MANY = 16  # connections at once
ROLES = (0, 1)


@pytest.fixture(scope="module")
def separate_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with processes(tmp_path_factory.mktemp("attacked")) as made:
        yield made


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Threads]:
    with served(tmp_path_factory.mktemp("attacked")) as made:
        yield made


# Bodies


def routes(url: str, digest: str, report: str) -> list[tuple[str, str]]:
    """Every method and path in a party's document, with a real experiment and an open round."""
    _, _, identity, _, slot = report.split("/")
    real = {"digest": digest, "experiment": digest, "identity": identity, "place": slot}
    found = [
        (method.upper(), re.sub(r"\{(\w+)\}", lambda name: real.get(name[1], "0" * 64), path))
        for path, operations in httpx.get(f"{url}/openapi.json").json()["paths"].items()
        for method in operations
        if method in ("get", "put", "post")
    ]
    assert ("PUT", report) in found
    return found


@pytest.mark.extended
def test_no_route_of_either_party_buffers_a_large_body(separate_processes: Processes) -> None:
    """Declared or in chunks, with real names in the path: 64 MB cost a few kilobytes."""
    digest = separate_processes.begin()
    report = separate_processes.place(digest).path

    def send(asked: tuple[str, str, str, bool]) -> None:
        url, method, path, chunked = asked
        size = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {LARGE}"
        part = b"10000\r\n" + bytes(1 << 16) + b"\r\n" if chunked else bytes(1 << 16)
        sent = 0
        with connected(url) as line, suppress(OSError):
            line.sendall(head(method, path, size, "Content-Type: application/json"))
            while sent < LARGE:
                line.sendall(part)
                sent += len(part)
        assert sent < LARGE, (method, path)

    for process in separate_processes.processes:
        url = process.member.url
        asked = [
            (url, *one, chunked)
            for one in routes(url, digest.hex(), report)
            for chunked in (False, True)
        ]
        assert len(asked) > 20
        Path(f"/proc/{pid(process)}/clear_refs").write_text("5")  # resets VmHWM
        before = memory(process, "VmRSS")
        with ThreadPoolExecutor(MANY) as strangers:
            list(strangers.map(send, asked))
        assert memory(process, "VmHWM") - before < GROWTH
        assert httpx.get(f"{url}/healthz").status_code == 200


@pytest.mark.parametrize("role", ROLES)
def test_every_route_rejects_a_large_body_before_it_is_sent(servers: Threads, role: int) -> None:
    digest = servers.begin(question=f"Who is large? {role}")
    report = servers.place(digest).path
    for method, path in routes(servers.urls[role], digest.hex(), report):
        with connected(servers.urls[role]) as line:
            line.sendall(head(method, path, f"Content-Length: {LARGE}"))
            status, said = answered(line)
        assert status in (401, 403, 404, 413, 422), (method, path, said)
        assert said["status"] == status


# Responses


def unread(url: str) -> socket.socket:
    """A connection that asks for much and reads nothing."""
    host, port = url.removeprefix("http://").split(":")
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.settimeout(30)
    line.connect((host, int(port)))
    line.setblocking(False)
    with suppress(BlockingIOError):
        for _ in range(300):
            line.send(head("GET", "/openapi.json"))
    return line


def closed(line: socket.socket) -> bool:
    """Whether the other side has closed the connection."""
    established = 1  # TCP_ESTABLISHED
    return line.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != established


def test_a_client_that_does_not_read_is_disconnected(
    servers: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection would be neither idle nor served, and would keep others out for good."""
    monkeypatch.setattr(connections, "UNREAD", 0.3)
    monkeypatch.setattr(connections, "PIPELINED", 1000)
    lines = [unread(servers.urls[0]) for _ in range(3)]
    wait_for(lambda: all(closed(line) for line in lines))
    for line in lines:
        line.close()
    assert servers.get(0, "/healthz").status_code == 200


# Bytes that are no part of a body


def swallowed(url: str, first: bytes, more: bytes) -> int:
    """How many bytes one connection takes until it is closed, at most 64 MB."""
    sent = 0
    with connected(url) as line, suppress(OSError):
        line.sendall(first)
        while sent < 1 << 26:
            sent += line.send(more)
    return sent


def test_trailers_extensions_and_pipelined_requests_are_limited(servers: Threads) -> None:
    """The parser keeps them in memory: 8 MB of pipelined requests took 260 MB."""
    chunked = head("POST", f"/experiments/{'a' * 64}/places", "Transfer-Encoding: chunked")
    endless = b"x" * (1 << 16)
    attacks = {
        "a trailer": (chunked + b"0\r\nx: ", endless),
        "a chunk extension": (chunked + b"5;x=", endless),
        "a pipelined header": (head("GET", "/healthz") + b"GET / HTTP/1.1\r\nx: ", endless),
        "pipelined requests": (b"", head("GET", "/healthz") * 2000),
    }
    for name, (first, more) in attacks.items():
        assert swallowed(servers.urls[0], first, more) < 1 << 25, name
    assert servers.get(0, "/healthz").status_code == 200


def test_a_few_pipelined_requests_are_served(servers: Threads) -> None:
    with connected(servers.urls[0]) as line:
        line.sendall(head("GET", "/healthz") * 10)
        got = b""
        while got.count(b"HTTP/1.1 200") < 10:
            got += line.recv(1 << 16) or pytest.fail("closed")


# Races between the processes of a party


def first_to_win(tries: list[Callable[[], object]]) -> list[object]:
    """The results of calls that begin at the same time; rejections as exceptions."""
    ready = threading.Barrier(len(tries))

    def one(call: Callable[[], object]) -> object:
        ready.wait()
        try:
            return call()
        except Rejected as reason:
            return reason

    with ThreadPoolExecutor(len(tries)) as several:
        return list(several.map(one, tries))


def test_one_invitation_admits_one_device_across_processes(pair: Pair) -> None:
    digest = pair.begin(admission="invitation")
    pair.step(2)
    parties = [
        Coordinator(pair.secrets[0], Store(url), pair.coordinator.records, clock=pair.clock)
        for url in [pair.urls[0]] * 3
    ]
    for invitation in invitations.make(digest, pair.secrets[0], 5):
        tickets = [Ticket(digest, os.urandom(16), invitation) for _ in parties]
        found = first_to_win(
            [
                lambda party=party, ticket=ticket: party.join([ticket])[0]  # type: ignore[misc]
                for party, ticket in zip(parties, tickets, strict=True)
            ]
        )
        assert sum(isinstance(one, Assigned) for one in found) == 1
        assert sum(isinstance(one, Forbidden) for one in found) == len(parties) - 1
    for party in parties:
        party.store.close()


def test_one_invitation_admits_one_report_across_processes(pair: Pair) -> None:
    """A coordinator may give two slots for it; the helper takes one report."""
    digest = pair.begin(admission="invitation")
    pair.step(2)
    pinned = pair.coordinator.pinned(digest)
    parties = [
        Helper(pair.secrets[1], Store(url), pair.helper.records, clock=pair.clock)
        for url in [pair.urls[1]] * 2
    ]
    shared, *others = invitations.make(digest, pair.secrets[0], 3)
    given = [pair.join(digest, invitation=own) for own in others]
    reports = []
    for party, one in zip(parties, given, strict=True):
        assert one.slot is not None
        half = split(pinned, one.announcement, one.slot, [1])[1]
        reports.append(party.report(described(one).identity, one.slot.number, half, shared))
    found = first_to_win(
        [
            lambda party=party, report=report: party.keep([report])[0]  # type: ignore[misc]
            for party, report in zip(parties, reports, strict=True)
        ]
    )
    assert sum(one is None for one in found) == 1
    assert sum(isinstance(one, Forbidden) for one in found) == 1
    for party in parties:
        party.store.close()


# Messages


class Foreign(BaseHTTPRequestHandler):
    """A web server that is not tacit."""

    status = 200

    def do_GET(self) -> None:
        """Answer everything alike."""
        self.send_response(self.status)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", "5")
        self.end_headers()
        self.wfile.write(b"hello")

    do_POST = do_GET  # noqa: N815

    def log_message(self, *_given: object) -> None:
        """Log nothing."""


@pytest.mark.parametrize("status", [200, 401, 403, 404, 500])
def test_every_command_names_a_server_that_is_not_tacit(
    command: Command, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("TACIT_ADMIN_TOKEN", TOKEN)
    kind = type("Answering", (Foreign,), {"status": status})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        for words in (("list",), ("status", "ab"), ("stop", "ab", "--yes")):
            said = rejected(command("experiment", *words, "--url", url))
            assert "is not a tacit server" in said, words
            assert TOKEN not in said
        server.shutdown()
