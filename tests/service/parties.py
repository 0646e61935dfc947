"""Two servers in one process, as a device sees them over HTTP: real rounds, a settable clock,
network failures, recorded requests.
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.aggregation import (
    Aggregator,
    AggregatorContext,
    Binding,
    ReportSlot,
    TwoServerRound,
    announce,
)
from tacit.aggregation.announcements import endorse
from tacit.aggregation.collecting import prepare_collector
from tacit.aggregation.encryption import DEFAULT
from tacit.aggregation.interface import new_identity
from tacit.client import AsyncDevice, Device, Ledger, Pins
from tacit.errors import Rejected
from tacit.records import MemoryRecords
from tacit.signatures import Signed, public_key, sign
from tacit.terms import Aggregation, Answer, Noise, Party, Pinned, StatedGuarantee, Terms, cosign

KEYS = tuple(Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2, 3, 4))
ADDRESSES = ("http://coordinator.test", "http://helper.test")
START = 1_795_000_000.0  # in November 2026
JOINING, MARGIN, GRACE = 100, 40, 30
PINS = Pins(ADDRESSES[0], public_key(KEYS[0]).hex(), public_key(KEYS[1]).hex())

Fail = Callable[[httpx.Request], httpx.Response | None]


def terms(**changes: Any) -> Terms:
    """ε = 1 for two participations with one bit, within a window of 60 seconds."""
    base = Terms(
        question="Which greeting do people like?",
        options=("Hello", "Hi"),
        answer=Answer("1 if you liked it", window=60),
        guarantee=StatedGuarantee(Fraction(1), participations=2),
        noise=Noise(Fraction(2)),
        parties=tuple(
            Party(role, address, public_key(key))
            for role, address, key in zip(("coordinator", "helper"), ADDRESSES, KEYS, strict=False)
        ),
        first_day=date(2026, 11, 1),
        last_day=date(2026, 12, 31),
        aggregation=Aggregation(1),
    )
    return replace(base, **changes)


def pinned(of: Terms) -> Pinned:
    signers = [key for key in KEYS if public_key(key) in of.keys]
    signers.sort(key=lambda key: of.keys.index(public_key(key)))
    return Pinned(of, tuple(cosign(of, key) for key in signers), of.keys)


class Clock:
    """Time that passes while a party sleeps."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    async def pause(self, seconds: float) -> None:
        self.now += seconds


@dataclass(frozen=True)
class Seen:
    """One request, as an observer of the network sees it."""

    at: float
    method: str
    url: str
    size: int
    headers: tuple[tuple[str, str], ...]


class Open:
    """A round that both servers run."""

    def __init__(
        self,
        of: Pinned,
        announcement: bytes,
        aggregators: tuple[AggregatorContext, AggregatorContext],
    ) -> None:
        self.pinned, self.announcement = of, announcement
        self.servers = [Aggregator(aggregator, announcement, {}) for aggregator in aggregators]
        self.next = 0

    @property
    def round(self) -> TwoServerRound:
        return self.servers[0].round

    def place(self) -> ReportSlot:
        self.next += 1
        return self.servers[0].slot(self.next - 1)


class Parties:
    """Coordinator and helper of one experiment and its successors."""

    def __init__(self, of: Terms | None = None, clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.pinned = pinned(of or terms())
        self.records = (MemoryRecords(), MemoryRecords(), MemoryRecords())
        self.rounds: dict[bytes, Open] = {}
        self.copies: list[dict[bytes, dict[str, Any]]] = [{}, {}]
        self.nonces: dict[str, dict[str, Any]] = {}
        self.given: Callable[[dict[str, Any]], dict[str, Any]] = lambda reply: reply
        self.fail: Fail = lambda _: None
        self.trace: list[Seen] = []
        self.bodies: list[bytes] = []
        self.asked, self.lag = True, 0.0
        self.know(self.pinned)

    # Terms

    @property
    def experiment(self) -> bytes:
        return self.pinned.terms.digest

    def know(self, of: Pinned) -> None:
        for copies in self.copies:
            copies[of.terms.digest] = {
                "terms": of.terms.encode().decode(),
                "signatures": [signature.hex() for signature in of.signatures],
                "state": "running",
                "successor": None,
            }

    def succeed(self, new: Terms, approvers: tuple[Ed25519PrivateKey, ...] = KEYS[:2]) -> None:
        """New terms in the place of the present ones, on both servers."""
        of = pinned(new)
        self.know(of)
        for copies in self.copies:
            copy = dict(copies[new.digest])
            approvals = [sign(Signed.SUCCESSOR, new.encode(), key).hex() for key in approvers]
            copies[new.predecessor]["successor"] = {
                "terms": copy["terms"],
                "signatures": copy["signatures"],
                "approvals": approvals,
            }
        self.pinned = of

    # Rounds

    def aggregators(self, of: Pinned | None = None) -> tuple[AggregatorContext, AggregatorContext]:
        own = of or self.pinned
        keys = {public_key(key): key for key in KEYS}
        first, second = (
            AggregatorContext(
                own, role, keys[own.terms.keys[role]], self.records[role], lambda _: 0
            )
            for role in (0, 1)
        )
        return first, second

    def describe(self, option: int = 0, **changes: Any) -> TwoServerRound:
        of, identity = self.pinned.terms, new_identity()
        answer, now = of.answer, int(self.clock())
        closes = now + JOINING + answer.window + MARGIN
        first, second = (aggregator.prepare(identity) for aggregator in self.aggregators())
        described = TwoServerRound(
            Binding(of.digest, option, answer.levels, answer.window, closes),
            slots=4,
            minimum=of.aggregation.minimum_batch_size,
            modulus=1 << 20,
            servers=(first, second),
            collector=prepare_collector(self.records[2], identity, DEFAULT),
            length=len(answer.metrics),
            scale=of.noise.scale,
            assigned_until=now + JOINING,
            grace=GRACE,
            identity=identity,
        )
        binding = replace(
            described.binding, **{k: changes.pop(k) for k in list(changes) if k in BINDING}
        )
        return replace(described, binding=binding, **changes)

    def open(self, option: int = 0, **changes: Any) -> Open:
        """A round that both servers sign after their own checks."""
        description = self.describe(option, **changes).encode()
        announcement = announce(
            description, [aggregator.endorse(description) for aggregator in self.aggregators()]
        )
        released = Open(self.pinned, announcement, self.aggregators())
        self.rounds[released.round.identity] = released
        return released

    def forge(self, described: TwoServerRound, *keys: Ed25519PrivateKey) -> bytes:
        """An announcement that these keys sign without looking."""
        description = described.encode()
        return announce(description, [endorse(description, key) for key in keys or KEYS[:2]])

    def finish(self, released: Open) -> None:
        """Both servers close, as the deadline has passed."""
        first, second = released.servers
        for _ in range(2):
            for server, other in ((first, second), (second, first)):
                for address, message in server.close(int(self.clock.now)).items():
                    if address == server.peer:
                        other.take(message, int(self.clock.now))

    # HTTP

    def answer(self, request: httpx.Request) -> httpx.Response:
        """The response of the party at this address."""
        body = request.read()
        kept = ("content-type", "tacit-invitation", "content-length", "user-agent", "cookie")
        headers = tuple(sorted((k, v) for k, v in request.headers.items() if k in kept))
        size = len(body)
        self.trace.append(Seen(self.clock.now, request.method, str(request.url), size, headers))
        self.bodies.append(body)
        failed = self.fail(request)
        if failed is not None:
            return failed
        role = 0 if str(request.url).startswith(ADDRESSES[0]) else 1
        parts = request.url.path.strip("/").split("/")
        try:
            match request.method, parts:
                case "GET", ["experiments", digest, "terms"]:
                    found = self.copies[role].get(bytes.fromhex(digest))
                    return (
                        _error(404, "these terms are not known here")
                        if found is None
                        else httpx.Response(200, json=found)
                    )
                case "POST", ["experiments", _, "places"]:
                    return self.assign(json.loads(body))
                case "PUT", ["rounds", identity, "reports", _]:
                    self.rounds[bytes.fromhex(identity)].servers[role].take(
                        body, int(self.clock.now)
                    )
                    return httpx.Response(204)
                case "GET", ["rounds", identity, "outcome"]:
                    released = self.rounds[bytes.fromhex(identity)]
                    if self.clock.now >= released.round.binding.closes:
                        self.finish(released)
                    return httpx.Response(200, content=released.servers[role].outcome())
        except Rejected as problem:
            return _error(410 if "no more" in str(problem) else 409, str(problem))
        return _error(404, "there is nothing here")

    def assign(self, wanted: dict[str, Any]) -> httpx.Response:
        """A place, the same for the same nonce."""
        nonce = wanted["nonce"]
        if nonce not in self.nonces:
            self.nonces[nonce] = self._assigned()
        return httpx.Response(200, json=self.given(self.nonces[nonce]))

    def _assigned(self) -> dict[str, Any]:
        options = self.pinned.terms.options
        now = self.clock.now
        free = [
            one
            for one in self.rounds.values()
            if one.next < one.round.slots
            and now - self.lag <= one.round.assigned_until
            and one.pinned == self.pinned
        ]
        if not free or not self.asked:
            return {"asked": False, "option": options[0]}
        place = free[-1].place()
        return {
            "asked": True,
            "option": options[free[-1].round.binding.option],
            "announcement": free[-1].announcement.hex(),
            "place": place.number,
            "token": place.token.hex(),
        }

    # Devices

    def device(
        self,
        ledger: Ledger | None = None,
        pins: Pins = PINS,
        seed: int = 0,
        *,
        client: bool = False,
    ) -> Device:
        """A device over its own transport, or over a given client."""
        transport = httpx.MockTransport(self.answer)
        return Device(
            ledger or Ledger(":memory:"),
            pins,
            http=httpx.Client(transport=transport) if client else transport,
            clock=self.clock,
            sleep=self.clock.sleep,
            source=random.Random(seed).randbytes,
        )

    def async_device(
        self, ledger: Ledger | None = None, seed: int = 0, *, client: bool = False
    ) -> AsyncDevice:
        transport = httpx.MockTransport(self.answer)
        return AsyncDevice(
            ledger or Ledger(":memory:"),
            PINS,
            http=httpx.AsyncClient(transport=transport) if client else transport,
            clock=self.clock,
            sleep=self.clock.pause,
            source=random.Random(seed).randbytes,
        )


BINDING = ("terms", "levels", "window", "closes")


def _error(status: int, sentence: str) -> httpx.Response:
    return httpx.Response(status, json={"error": sentence})


def everything(ledger: Ledger) -> bytes:
    """Every byte of a ledger's files."""
    whole = Path(ledger.path)
    return b"".join(path.read_bytes() for path in whole.parent.glob(f"{whole.name}*"))


def rows(ledger: Ledger, query: str) -> list[tuple[Any, ...]]:
    """The content of a ledger's file."""
    with closing(sqlite3.connect(ledger.path)) as db:
        return db.execute(query).fetchall()
