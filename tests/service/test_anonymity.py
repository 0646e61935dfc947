"""A device behind a third party's CONNECT proxy: the proxy sees no content, the parties no address.

Parties, TLS and proxy are on this machine; each has an address of its own in 127.0.0.0/8.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx
import pytest
from tests.service.pairs import experiment_of, terms_of
from tests.service.served import Threads, served, wait_for
from tests.service.test_proxies import certificate

from tacit.client import AsyncDevice, Device, Ledger, Pins, http
from tacit.errors import Rejected, TacitError
from tacit.service.timing import Timing
from tacit.terms import Answer, Party, cosign

QUICK = Timing(joining=600, margin=2, grace=600)
DEVICE, PROXY = "127.0.0.1", "127.0.0.9"


@dataclass
class Pipe:
    """A server that passes every connection on, and remembers peers and bytes."""

    peers: list[str] = field(default_factory=list)
    seen: bytearray = field(default_factory=bytearray)
    asked: list[bytes] = field(default_factory=list)

    def copy(self, source: socket.socket, target: socket.socket, *, both: socket.socket) -> None:
        with suppress(OSError):
            while part := source.recv(1 << 16):
                self.seen += part
                target.sendall(part)
        for one in (target, both):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def carry(self, near: socket.socket, far: socket.socket) -> None:
        back = threading.Thread(
            target=self.copy, args=(far, near), kwargs={"both": far}, daemon=True
        )
        back.start()
        self.copy(near, far, both=near)
        back.join(30)
        near.close()
        far.close()


@contextmanager
def listening(address: str, handle: Callable[[socket.socket, str], None]) -> Iterator[int]:
    """Call `handle` with each connection in a new thread; the port."""
    with socket.create_server((address, 0)) as front:

        def accept() -> None:
            while True:
                try:
                    near, peer = front.accept()
                except OSError:
                    return
                threading.Thread(target=handle, args=(near, peer[0]), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield front.getsockname()[1]
        with suppress(OSError):
            front.shutdown(socket.SHUT_RDWR)


def terminate(
    pipe: Pipe, context: ssl.SSLContext, port: int, near: socket.socket, peer: str
) -> None:
    """TLS in front of a party."""
    pipe.peers.append(peer)
    with near, suppress(OSError), context.wrap_socket(near, server_side=True) as inside:
        pipe.carry(inside, socket.create_connection((DEVICE, port)))


def connect(pipe: Pipe, near: socket.socket, peer: str) -> None:
    """A CONNECT proxy; its outgoing connections have its own address."""
    pipe.peers.append(peer)
    head = b""
    while b"\r\n\r\n" not in head:
        head += near.recv(4096)
    pipe.asked.append(head)
    found = re.match(rb"CONNECT ([0-9.]+):([0-9]+) HTTP/1.1\r\n", head)
    if found is None:
        near.sendall(b"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n")
        near.close()
        return
    far = socket.create_connection((found[1].decode(), int(found[2])), source_address=(PROXY, 0))
    near.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
    pipe.carry(near, far)


@dataclass
class Hidden:
    """Both parties behind TLS, an experiment, and the proxy in front of all."""

    both: Threads
    pins: Pins
    digest: bytes
    proxy: str
    between: Pipe
    fronts: tuple[Pipe, Pipe]


@pytest.fixture
def hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hidden]:
    public, secret = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(public, secret)
    trusted = ssl.create_default_context(cafile=public)
    monkeypatch.setenv("SSL_CERT_FILE", str(public))  # the coordinator calls the helper by TLS
    monkeypatch.setattr("tacit.client.http.tls_context", lambda: trusted)
    with ExitStack() as stack:
        both = stack.enter_context(served(tmp_path))
        fronts, urls = (Pipe(), Pipe()), list[str]()
        for pipe, url in zip(fronts, both.urls, strict=True):
            handle = partial(terminate, pipe, context, int(url.rpartition(":")[2]))
            urls.append(f"https://{DEVICE}:{stack.enter_context(listening(DEVICE, handle))}")
        between = Pipe()
        port = stack.enter_context(listening(PROXY, partial(connect, between)))
        roles = ("coordinator", "helper")
        parties = tuple(map(Party, roles, urls, both.keys))
        days = both.terms(("a", "b"))
        terms = terms_of(
            both.keys,
            ("a", "b"),
            parties=parties,
            first_day=days.first_day,
            last_day=days.last_day,
            answer=Answer("1 or 0", window=0),
        )
        digest = both.coordinator.create(terms, experiment_of(options=("a", "b")), QUICK)
        signature = cosign(terms, both.members[1].key)
        both.helper.admit(terms, (both.coordinator.signature(digest), signature))
        path = f"/experiments/{digest.hex()}/cosignature"
        both.post(0, path, json={"signature": signature.hex()}).raise_for_status()
        wait_for(lambda: any(one["stage"] == "open" for one in both.status(digest)["rounds"]))
        keys = [key.hex() for key in both.keys]
        pins = Pins(urls[0], coordinator=keys[0], helper=keys[1])
        yield Hidden(both, pins, digest, f"http://{PROXY}:{port}", between, fronts)


def check(hidden: Hidden, ledger: Ledger) -> None:
    """What each has seen after a report."""
    (receipt,) = ledger_receipts(ledger, hidden.pins)
    assert receipt == [True, True]
    assert set(hidden.between.peers) == {DEVICE}
    asked = hidden.between.asked
    assert all(one.startswith(b"CONNECT 127.0.0.1:") for one in asked)
    assert not any(b"cookie" in one.lower() or b"tacit" in one.lower() for one in asked)
    for word in (b"HTTP/1.1", b"/places", b"/reports/", b"nonce", b"Which greeting"):
        assert word not in hidden.between.seen  # TLS only
    for front in hidden.fronts:
        others = [peer for peer in front.peers if peer != DEVICE]
        assert set(others) == {PROXY}
        assert b"/reports/" in front.seen  # what the party reads, and the proxy does not
        assert b"X-Forwarded-For" not in front.seen


def ledger_receipts(ledger: Ledger, pins: Pins) -> list[list[bool]]:
    with Device(ledger, pins) as device:
        return [[half.sent is not None for half in one.shares] for one in device.status()]


@pytest.mark.extended
def test_the_proxy_sees_no_content_and_the_servers_no_address(hidden: Hidden) -> None:
    ledger = Ledger(":memory:")
    with Device(ledger, hidden.pins, proxy=hidden.proxy) as device:
        wait_for(lambda: device.join(hidden.digest).asked)
        device.record(hidden.digest, 1)
        device.wait_and_report()
    check(hidden, ledger)


@pytest.mark.extended
def test_an_asynchronous_device_uses_the_proxy_too(hidden: Hidden) -> None:
    ledger = Ledger(":memory:")

    async def report() -> None:
        async with AsyncDevice(ledger, hidden.pins, proxy=hidden.proxy) as device:
            while not (await device.join(hidden.digest)).asked:
                await asyncio.sleep(0.1)
            device.record(hidden.digest, 1)
            await device.wait_and_report()

    asyncio.run(report())
    check(hidden, ledger)


@pytest.mark.parametrize("kind", [Device, AsyncDevice])
def test_a_proxy_that_could_read_reports_is_rejected(kind: type[Device | AsyncDevice]) -> None:
    plain = Pins("http://coordinator.example", "ab" * 32, "cd" * 32)
    pins = Pins("https://coordinator.example", "ab" * 32, "cd" * 32)
    ledger = Ledger(":memory:")
    with pytest.raises(Rejected, match="must be https, because the proxy reads http"):
        kind(ledger, plain, proxy="http://proxy.example:3128")
    with pytest.raises(TacitError, match=r"proxy is 'proxy\.example': must be a URL"):
        kind(ledger, pins, proxy="proxy.example")
    with pytest.raises(Rejected, match=r"http://helper\.example"):
        http.check_tunnel("http://helper.example/rounds")


def test_a_proxy_and_a_transport_exclude_each_other() -> None:
    pins = Pins("https://coordinator.example", "ab" * 32, "cd" * 32)
    with httpx.HTTPTransport() as own, pytest.raises(TacitError, match="both given"):
        Device(Ledger(":memory:"), pins, http=own, proxy="http://proxy.example:3128")
