"""Slow parties and oversized answers in calls between parties."""

from __future__ import annotations

import gzip
import socketserver
import ssl
import threading
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import FastAPI
from tests.service.parties import terms
from tests.service.served import served, wait_for
from tests.service.test_proxies import certificate

from tacit.client import Device, Ledger, Pins
from tacit.client.deadlines import limit_exchanges
from tacit.client.exchange import Offline
from tacit.client.loopback import NEARBY
from tacit.errors import Rejected, Unavailable
from tacit.service.admin import PartyClient
from tacit.service.http import helper_client as links
from tacit.service.http import pages
from tacit.service.http.helper_client import HttpHelperClient
from tacit.service.http.middleware import LimitsMiddleware
from tacit.service.party import ServerParty


def coordinator_of(helper: str) -> ServerParty:
    """A coordinator whose terms name a helper at this address."""
    key, made = Ed25519PrivateKey.generate(), terms()
    own, other = made.parties
    pinned = SimpleNamespace(terms=replace(made, parties=(own, replace(other, address=helper))))
    coordinator = SimpleNamespace(pinned=lambda _: pinned, key_for=lambda _: key)
    return cast("ServerParty", coordinator)


def linked(answer: httpx.Response) -> HttpHelperClient:
    """A link to a helper that answers so."""
    made = HttpHelperClient(coordinator_of("https://helper.example"))
    made.close()
    made._client = httpx.Client(transport=httpx.MockTransport(lambda _: answer))
    return made


HEAD = b"HTTP/1.1 200 OK\r\n"
ENDLESS = {  # what comes first, and then again and again, each part in time
    "a body": (HEAD + b"Content-Length: 1000000\r\n\r\n", b" "),
    "chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "a header": (HEAD + b"X: ", b"x"),
    "interim responses": (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    "nothing": (b"", b""),
}


@contextmanager
def endless(first: bytes, again: bytes) -> Iterator[str]:
    """The address of a server with endless responses."""
    over = threading.Event()

    class Answer(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1 << 16)
            with suppress(OSError):
                self.request.sendall(first)
                while not over.wait(0.01):
                    self.request.sendall(again)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            over.set()
            server.shutdown()


@pytest.mark.parametrize("how", ENDLESS)
def test_an_endless_helper_response_blocks_only_briefly(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """All rounds of a coordinator are advanced by one thread, also those with other helpers."""
    monkeypatch.setattr(links, "SLOWEST", 0.3)
    with endless(*ENDLESS[how]) as address:
        link = HttpHelperClient(coordinator_of(address))
        began = time.monotonic()
        with pytest.raises(Unavailable, match="unreachable"):
            link.keys(bytes(32), bytes(16), 1)
        assert time.monotonic() - began < 5
        link.close()


@contextmanager
def untrusted(directory: Path) -> Iterator[str]:
    """The address of a server whose certificate nobody here trusts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(directory))
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"https://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def test_an_untrusted_certificate_is_named_with_its_remedy(tmp_path: Path) -> None:
    with untrusted(tmp_path) as url:
        with pytest.raises(Unavailable, match=r"certificate .* trusted .* SSL_CERT_FILE"):
            PartyClient(url).experiments()
        with (
            closing(HttpHelperClient(coordinator_of(url))) as link,
            pytest.raises(Unavailable, match=r"unreachable \(.*CERTIFICATE_VERIFY_FAILED"),
        ):
            link.keys(bytes(32), bytes(16), 1)
        pins = Pins(url, coordinator="ab" * 32, helper="cd" * 32)
        with (
            Device(Ledger(":memory:"), pins) as device,
            pytest.raises(Offline, match="CERTIFICATE_VERIFY_FAILED"),
        ):
            device.terms("ef" * 32)


def test_a_slow_helper_does_not_delay_calls_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With ten rounds, each call in vain, it took nearly all of the time."""
    monkeypatch.setattr(links, "SLOWEST", 0.3)
    monkeypatch.setattr(links, "SLOW", 0.2)
    with endless(*ENDLESS["nothing"]) as address:
        link = HttpHelperClient(coordinator_of(address))
        for _ in range(2):
            with pytest.raises(Unavailable, match="unreachable"):
                link.keys(bytes(32), bytes(16), 1)
            began = time.monotonic()
            for _ in range(10):
                with pytest.raises(Unavailable, match="later"):
                    link.keys(bytes(32), bytes(16), 1)
            assert time.monotonic() - began < 0.3
            time.sleep(links.REST * 0.4)
        link._coordinator = coordinator_of("http://127.0.0.1:9")
        with pytest.raises(Unavailable, match="Connection refused"):
            link.keys(bytes(32), bytes(16), 1)
        link.close()


@pytest.mark.parametrize("content", [b"[" + b"[]," * (1 << 20) + b"0]", b'{"keys": ["a"]}'])
def test_a_response_with_many_values_is_not_parsed(content: bytes) -> None:
    """64 MB of empty lists take more than 1 GB."""
    link = linked(httpx.Response(200, content=content))
    tracemalloc.start()
    try:
        with pytest.raises(Rejected if len(content) < 99 else Unavailable):
            link.keys(bytes(32), bytes(16), 1)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4 * len(content) + (1 << 20)


@pytest.mark.parametrize("how", ENDLESS)
def test_an_endless_reply_delays_no_other_experiment(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A device reports for all experiments of its ledger, one after the other."""
    monkeypatch.setattr("tacit.client.http.SLOWEST_REPLY", 0.3)
    with endless(*ENDLESS[how]) as address, closing(Ledger(":memory:")) as ledger:
        began = time.monotonic()
        device = Device(ledger, Pins(address, "ab" * 32, "cd" * 32))
        with device, pytest.raises(Offline):
            device.join("ef" * 32)
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("how", ENDLESS)
def test_an_endless_readiness_reply_blocks_no_page(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Nothing of the body is kept either: it may be larger than the memory."""
    monkeypatch.setattr(pages, "PATIENCE", 0.3)
    with endless(*ENDLESS[how]) as address:
        began = time.monotonic()
        up = pages.RenderedExperiments(lambda _: {})._answers(address)
        assert time.monotonic() - began < 5
        assert up is (how in ("a body", "chunks"))


@pytest.mark.parametrize("pause", [0.0, 0.25])
def test_every_exchange_has_its_own_time_limit(pause: float) -> None:
    """Also through a client with transports of its own for some addresses."""

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            size = len(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", str(size))
            self.end_headers()
            self.wfile.write(bytes(size))

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with httpx.Client(mounts=NEARBY) as client:
            limit_exchanges(client, 0.4)
            for size in (0, 1, 300_000):
                said = client.post(f"http://127.0.0.1:{server.server_port}", content=bytes(size))
                assert len(said.content) == size
                time.sleep(pause)
        server.shutdown()


def test_an_unrequested_compressed_response_is_not_decompressed() -> None:
    answer = httpx.Response(
        200, headers={"content-encoding": "gzip"}, content=gzip.compress(b'{"keys": "00"}')
    )
    with pytest.raises(Unavailable, match="compressed"):
        linked(answer).keys(bytes(32), bytes(16), 1)


def test_a_stopping_coordinator_closes_its_connections_to_helpers(tmp_path: Path) -> None:
    """A connection left to the garbage collector is a warning, hence an error here."""
    with served(tmp_path) as both:
        digest = both.begin()
        wait_for(lambda: any(one["stage"] == "open" for one in both.status(digest)["rounds"]))
        (front,) = (one for one in both.fronts if parties_link(one) is not None)
        link = parties_link(front)
    assert link is not None
    assert link._client.is_closed


def parties_link(front: LimitsMiddleware) -> HttpHelperClient | None:
    assert isinstance(front.app, FastAPI)
    link: HttpHelperClient | None = front.app.state.service.link
    return link
