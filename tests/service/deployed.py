"""Live experiments of any trust model from a definition, in one process: parties and devices."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.service.pairs import START, Clock, Link

from tacit.client.entries import OpenParticipation
from tacit.client.exchange import Reply, Request
from tacit.client.trust_models import reporter
from tacit.errors import Rejected, TacitError
from tacit.records import RecordDirectory
from tacit.service import invitations, round_scheduler
from tacit.service.assignment import Assigned, Ticket
from tacit.service.coordinator import Coordinator
from tacit.service.definition import Definition
from tacit.service.helper import Helper
from tacit.service.schema import Stage
from tacit.service.store import Store
from tacit.service.trust_models import coordinator_engine
from tacit.service.trust_models.contract import decoded
from tacit.signatures import public_key
from tacit.terms import Pinned, cosign

SECRETS = tuple(Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2, 3))
KEYS = tuple(public_key(one) for one in SECRETS)
ADDRESSES = ("https://coordinator.example", "https://helper.example")
HELPED = ("two-servers", "shuffler")


def stage_message(party: Coordinator, identity: bytes, address: bytes, after: int) -> bytes:
    """A device's next message in a round with stages; empty until it exists."""
    party.synchronize(identity)
    return party.staged(identity).next_message(address, after)


def definition_of(trust: str = "local", **changed: Any) -> Definition:
    """A definition of two options."""
    given: dict[str, Any] = {
        "question": "Which greeting do people like?",
        "options": ("plain", "friendly"),
        "meaning": "1 if you liked it, 0 if not",
        "trust": trust,
        "window": 30,
        "epsilon": Fraction(2),
        "participants": 600,
        "first_day": date(2027, 1, 15),
        "last_day": date(2027, 12, 31),
        "joining": 60,
        "margin": 20,
        "grace": 600,
        "min_batch_size": 10,
    }
    if trust in HELPED:
        given |= {"helper_address": ADDRESSES[1], "helper_key": KEYS[1]}
    return Definition.of(**given | changed)


@dataclass
class Deployed:
    """A coordinator, and a helper if the trust model has one, over stores that outlive them."""

    definition: Definition
    directory: Path
    clock: Clock = field(default_factory=Clock)
    options: dict[str, Any] = field(default_factory=dict)
    running: list[OpenParticipation] = field(default_factory=list)
    invited: dict[tuple[bytes, int], str | None] = field(default_factory=dict)
    _described: dict[bytes, Any] = field(default_factory=dict)  # rounds by announcement

    def __post_init__(self) -> None:
        names = ("coordinator", "helper") if self.definition.trust in HELPED else ("coordinator",)
        self.stores = [Store(f"sqlite:///{self.directory}/{name}.db") for name in names]
        for store in self.stores:
            store.migrate()
        self.restart()
        terms = self.definition.terms(ADDRESSES[0], KEYS[0])
        self.digest = self.coordinator.create(
            terms, self.definition.experiment(), self.definition.timing
        )
        if self.helper is not None:
            mine, theirs = self.coordinator.signature(self.digest), cosign(terms, SECRETS[1])
            self.helper.admit(terms, (mine, theirs) if terms.leader == 0 else (theirs, mine))
            self.coordinator.cosign(self.digest, theirs)

    def restart(self) -> None:
        """All parties anew, as after a crash."""
        records = [RecordDirectory(self.directory / f"keys{n}") for n in range(len(self.stores))]
        self.coordinator = Coordinator(
            SECRETS[0], self.stores[0], records[0], clock=self.clock, **self.options
        )
        self.helper = (
            Helper(SECRETS[1], self.stores[1], records[1], clock=self.clock, **self.options)
            if len(records) > 1
            else None
        )
        self.link = None if self.helper is None else Link(self.helper)

    @property
    def link(self) -> Any:
        """The coordinator's connection to the helper."""
        return self.coordinator.link

    @link.setter
    def link(self, link: Any) -> None:
        self.coordinator.link = link

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            round_scheduler.step(self.coordinator)
            if self.helper is not None:
                self.helper.step()

    @property
    def pinned(self) -> Pinned:
        return self.coordinator.pinned(self.digest)

    def join(self, people: int) -> list[Assigned]:
        """So many participants request a slot at once; those who got one."""
        invited = self.invitations(people)
        tickets = [Ticket(self.digest, os.urandom(16), one) for one in invited]
        found = self.coordinator.join(tickets)
        rejections = [one for one in found if isinstance(one, Rejected)]
        assert not rejections, rejections[0]
        pairs = zip(found, invited, strict=True)
        asked = [(a, one) for a, one in pairs if isinstance(a, Assigned) and a.slot is not None]
        self.invited |= {(self.identity(a), a.slot.number): one for a, one in asked if a.slot}
        return [a for a, _ in asked]

    def invitations(self, people: int, issuer: Ed25519PrivateKey = SECRETS[2]) -> list[str | None]:
        """One invitation of the issuer for each; None where admission is open."""
        if self.definition.admission == "open":
            return [None] * people
        return [*invitations.make(self.digest, issuer, people)]

    def described(self, assigned: Assigned) -> Any:
        """The round that was announced, decoded once for all of its participants."""
        announcement = assigned.announcement
        if announcement not in self._described:
            terms = self.pinned.terms
            engine = coordinator_engine(terms)
            self._described[announcement] = decoded(engine, terms, announcement)
        return self._described[announcement]

    def identity(self, assigned: Assigned) -> bytes:
        return bytes(self.described(assigned).identity)

    def report(self, assigned: Assigned, *levels: int) -> Mapping[int, bytes]:
        """The bytes of a device's report, by party."""
        assert assigned.slot is not None
        running = OpenParticipation(
            identity=self.identity(assigned),
            pinned=self.pinned,
            announcement=assigned.announcement,
            slot=assigned.slot,
            seed=bytes(32),
            joined=self.clock.now,
            invitation=None,
            levels=levels,
            deliveries=(),
        )
        self.running.append(running)
        return reporter(self.pinned.terms).encode(running)

    def answer_stages(self) -> None:
        """Devices answer further messages of their rounds until every round is over."""
        for _ in range(12):
            if not self.running or not self.coordinator.rounds(Stage.OPEN, Stage.CLOSING):
                break
            self.running = [one for one in self.running if self._answered(one)]
            self.step()
        self.running = []

    def _answered(self, running: OpenParticipation) -> bool:
        """One step of a device's stages over direct calls; whether more remain."""
        talk = reporter(self.pinned.terms).stages(running, "https://c.example", self.clock.now)
        try:
            request = next(talk)
            while True:
                request = talk.send(self._reply(running, request))
        except StopIteration as done:
            return bool(done.value)

    def _reply(self, running: OpenParticipation, request: Request) -> Reply:
        try:
            if request.method == "GET":
                *_, address, after = request.url.split("/")
                where = (running.identity, bytes.fromhex(address), int(after))
                said = stage_message(self.coordinator, *where)
                return Reply(200, said) if said else Reply(204)
            answer = self.coordinator.answer(running.identity, running.slot, request.content or b"")
            (rejection,) = self.coordinator.keep([answer])
            return Reply(204 if rejection is None else 409)
        except TacitError:
            return Reply(410)

    def send(self, reports: list[tuple[Assigned, Mapping[int, bytes]]]) -> list[Rejected | None]:
        """Send reports to their parties, each party in one transaction; the answers."""
        answers: list[Rejected | None] = []
        terms = self.pinned.terms
        for index in range(len(terms.parties)):
            party = self.coordinator if index == terms.leader else self.helper
            assert party is not None
            waiting = [
                party.report(name, one.slot.number, made[index], self.invited.get(slot))
                for one, made in reports
                if index in made and one.slot is not None
                for name in [self.identity(one)]
                for slot in [(name, one.slot.number)]
            ]
            answers += party.keep(waiting)
        return answers

    def hold(self, liking: Callable[[str], tuple[int, ...]], come: float = 1.0) -> int:
        """All open slots are joined, this fraction of them reports, and the deadline passes."""
        self.step(2)
        open_rounds = self.coordinator.rounds(Stage.OPEN)
        wanted = sum(row.slots - row.assigned for row in open_rounds)
        asked = self.join(wanted) if wanted else []
        asked = asked[: int(len(asked) * come)]
        sent = [(one, self.report(one, *liking(one.option))) for one in asked]
        assert set(self.send(sent)) <= {None}
        self.clock.now += 200
        self.step(3)
        self.answer_stages()
        return len(asked)

    def run(self, means: Mapping[str, float], seed: int, most: int = 40) -> str | None:
        """Hold rounds until the experiment ends; the best option."""
        rng, metrics = random.Random(seed), len(self.pinned.terms.answer.metrics)
        levels = self.pinned.terms.answer.levels

        def liking(option: str) -> tuple[int, ...]:
            return tuple(levels * (rng.random() < means[option]) for _ in range(metrics))

        for _ in range(most):
            if not self.hold(liking):
                break
        best: str | None = self.coordinator.status(self.digest)["best"]
        return best

    def close(self) -> None:
        for store in self.stores:
            store.close()


@contextmanager
def deployed(definition: Definition, directory: Path, **how: Any) -> Iterator[Deployed]:
    """A live experiment that is closed at the end."""
    made = Deployed(definition, directory, **how)
    try:
        yield made
    finally:
        made.close()


__all__ = ["KEYS", "SECRETS", "START", "Deployed", "definition_of", "deployed"]
