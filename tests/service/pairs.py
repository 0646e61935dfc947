"""Two parties in one process, over real stores and key files, with a clock that tests move."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.aggregation import Aggregator, AggregatorContext
from tacit.aggregation.two_servers import TwoServerRound, split
from tacit.algorithms.registry import lookup
from tacit.environments.synthetic import Bernoulli
from tacit.errors import Rejected, Unavailable
from tacit.experiment import Experiment
from tacit.records import RecordDirectory
from tacit.service import round_scheduler
from tacit.service.assignment import Assigned, Ticket
from tacit.service.coordinator import Coordinator
from tacit.service.helper import Helper
from tacit.service.party import ServerParty
from tacit.service.schema import RoundRow
from tacit.service.store import Store
from tacit.service.timing import Timing
from tacit.service.trust_models.two_servers import TwoServerEngine
from tacit.signatures import public_key
from tacit.terms import Aggregation, Answer, Noise, Party, StatedGuarantee, Terms, cosign

START = 1_800_000_000
OPTIONS = ("plain", "friendly", "short")
TIMING = Timing(joining=60, margin=20, grace=600)
EPSILON = 1


def experiment_of(horizon: int = 4000, options: tuple[str, ...] = OPTIONS) -> Experiment:
    entry = lookup("private-med")
    asked = {"arms": len(options), "horizon": horizon, "trust": "two-servers", "epsilon": EPSILON}
    problem = entry.make_problem(asked).for_environment(Bernoulli((0.5,) * len(options)), 0)
    made = entry.build(problem)
    return Experiment(options, made.learner, made.mechanism)


def terms_of(
    keys: tuple[bytes, bytes], options: tuple[str, ...] = OPTIONS, **changed: Any
) -> Terms:
    addresses = ("https://coordinator.example", "https://helper.example")
    roles = ("coordinator", "helper")
    fields: dict[str, Any] = {
        "question": "Which greeting do people like?",
        "options": options,
        "answer": Answer("1 if you liked it, 0 if not", window=30),
        "guarantee": StatedGuarantee(Fraction(EPSILON)),
        "noise": Noise(Fraction(1, EPSILON)),
        "parties": tuple(
            Party(role, address, key)
            for role, address, key in zip(roles, addresses, keys, strict=True)
        ),
        "first_day": date(2027, 1, 15),
        "last_day": date(2027, 12, 31),
        "aggregation": Aggregation(10),
        "issuer": keys[0] if changed.get("admission") == "invitation" else b"",
    }
    return Terms(**(fields | changed))


@dataclass
class Clock:
    now: float = START

    def __call__(self) -> float:
        return self.now


@dataclass
class Link:
    """The helper in the same process; unavailable when a test requests it."""

    helper: Helper
    down: bool = False

    def _up(self) -> Helper:
        if self.down:
            raise Unavailable("the helper does not answer")
        return self.helper

    def keys(self, digest: bytes, identity: bytes, sealing: int) -> bytes:
        return self._up().keys(digest, identity, sealing)

    def describe(self, description: bytes, signature: bytes) -> bytes:
        return self._up().describe(description, signature)

    def exchange(self, identity: bytes, listing: bytes) -> tuple[bytes, bytes]:
        return self._up().exchange(identity, listing)


@dataclass
class Pair:
    """A coordinator and a helper over stores that outlive them."""

    urls: tuple[str, str]
    directory: Path
    clock: Clock = field(default_factory=Clock)
    options: dict[str, Any] = field(default_factory=dict)
    helper_options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.secrets = tuple(Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2))
        self.keys = (public_key(self.secrets[0]), public_key(self.secrets[1]))
        self.stores = tuple(Store(url) for url in self.urls)
        for store in self.stores:
            store.migrate()
        self.restart()

    def restart(self) -> None:
        """Both parties anew, as after a crash."""
        records = [RecordDirectory(self.directory / f"keys{n}") for n in (0, 1)]
        self.coordinator = Coordinator(
            self.secrets[0], self.stores[0], records[0], clock=self.clock, **self.options
        )
        self.helper = Helper(
            self.secrets[1], self.stores[1], records[1], clock=self.clock, **self.helper_options
        )
        self.link = Link(self.helper)

    @property
    def link(self) -> Any:
        """The coordinator's connection to the helper."""
        return self.coordinator.link

    @link.setter
    def link(self, link: Any) -> None:
        self.coordinator.link = link

    def begin(self, experiment: Experiment | None = None, **changed: Any) -> bytes:
        """An experiment that both have signed."""
        made = experiment or experiment_of()
        terms = terms_of(self.keys, made.options, **changed)
        digest = self.coordinator.create(terms, made, TIMING)
        self.cosign(digest)
        return digest

    def cosign(self, digest: bytes) -> None:
        terms = self.coordinator.terms(digest).terms
        signature = cosign(terms, self.secrets[1])
        self.helper.admit(terms, (self.coordinator.signature(digest), signature))
        self.coordinator.cosign(digest, signature)

    def step(self, times: int = 4) -> None:
        for _ in range(times):
            round_scheduler.step(self.coordinator)
            self.helper.step()

    def join(self, digest: bytes, nonce: bytes | None = None, **more: Any) -> Assigned:
        found = self.coordinator.join([Ticket(digest, nonce or os.urandom(16), **more)])[0]
        if isinstance(found, Rejected):
            raise found
        return found

    def shares(self, digest: bytes, assigned: Assigned, value: int) -> tuple[bytes, bytes]:
        assert assigned.slot is not None
        pinned = self.coordinator.pinned(digest)
        return split(pinned, assigned.announcement, assigned.slot, [value])

    def send(
        self, assigned: Assigned, shares: tuple[bytes, bytes], to: tuple[int, ...] = (0, 1)
    ) -> None:
        assert assigned.slot is not None
        identity = described(assigned).identity
        for role in to:
            party = (self.coordinator, self.helper)[role]
            waiting = party.report(identity, assigned.slot.number, shares[role])
            (rejection,) = party.keep([waiting])
            if rejection is not None:
                raise rejection

    def participants(self, digest: bytes, people: int) -> list[Assigned]:
        """So many participants request a slot at once; those who got one."""
        found = self.coordinator.join([Ticket(digest, os.urandom(16)) for _ in range(people)])
        assert not any(isinstance(one, Rejected) for one in found)
        return [one for one in found if isinstance(one, Assigned) and one.slot is not None]

    def report(self, digest: bytes, asked: list[Assigned], value_of: Callable[[str], int]) -> None:
        """All of them report to both servers, each server in one transaction."""
        shares = [self.shares(digest, one, value_of(one.option)) for one in asked]
        for role, party in enumerate((self.coordinator, self.helper)):
            waiting = [
                party.report(described(one).identity, one.slot.number, pair[role])
                for one, pair in zip(asked, shares, strict=True)
                if one.slot is not None
            ]
            assert party.keep(waiting) == [None] * len(waiting)

    def hold(self, digest: bytes, value_of: Callable[[str], int], come: float = 1.0) -> int:
        """All slots of the open rounds are joined, and this fraction reports; then the deadline
        passes.
        """
        self.step(2)
        rounds = self.coordinator.status(digest)["rounds"]
        wanted = sum(one["places"] - one["given"] for one in rounds if one["stage"] == "open")
        asked = self.participants(digest, wanted) if wanted else []
        self.report(digest, asked[: int(len(asked) * come)], value_of)
        self.clock.now += 200
        self.step(3)
        return len(asked)

    def close(self) -> None:
        for store in self.stores:
            store.close()


def context_of(party: ServerParty, digest: bytes, identity: bytes) -> AggregatorContext:
    """A server's aggregator context for one round."""
    engine = party.engine(digest)
    assert isinstance(engine, TwoServerEngine)
    return engine.aggregator_context(identity)


def aggregator(party: ServerParty, row: RoundRow) -> Aggregator:
    """A server's aggregator of one round."""
    served = party.serving(row)
    assert isinstance(served, Aggregator)
    return served


def described(assigned: Assigned) -> TwoServerRound:
    return _decoded(assigned.announcement)


@lru_cache(maxsize=64)
def _decoded(announcement: bytes) -> TwoServerRound:
    return TwoServerRound.decode(announcement[: -2 * 64])


@contextmanager
def sqlite_pair(directory: Path, **how: Any) -> Iterator[Pair]:
    urls = [f"sqlite:///{directory}/{name}.db" for name in ("coordinator", "helper")]
    pair = Pair((urls[0], urls[1]), directory, **how)
    try:
        yield pair
    finally:
        pair.close()
