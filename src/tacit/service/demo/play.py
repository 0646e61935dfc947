"""The demonstration from beginning to end: set up two parties, publish, watch, report."""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tacit.errors import TacitError
from tacit.keyfiles import load_signing_key
from tacit.readers import count_of
from tacit.service import config, definition_files
from tacit.service.admin import PartyClient, publish_experiment
from tacit.service.bootstrap import Card, create_party
from tacit.service.demo.children import Child, free_port
from tacit.service.demo.participants import SimulationConfig, VisitCounts
from tacit.service.schema import LIVE, Stage
from tacit.terms import ROLES
from tacit.trust import TrustModel

QUESTION = "Which reminder gets people to take a break?"
LIKING = {"No reminder": 0.1, "A quiet line": 0.2, "A friendly question": 0.85}
CONTEXTS = {"shift": ["day", "night"]}
BY_SHIFT = {
    "day": {"A quiet line": 0.2, "A friendly question": 0.85},
    "night": {"A quiet line": 0.8, "A friendly question": 0.15},
}
CONTEXT_BATCH = 300  # one or two rounds decide; noise counts once per round, however large it is
EPSILON = {TrustModel.LOCAL: 3, TrustModel.SHUFFLER: 2}
"""ε by trust model, else 1: larger where rounds would need too many people for three minutes."""

ENOUGH = 60.0  # seconds until the experiment is stopped if it is decided
LONGEST = 145.0  # the same if it is not, from the start of the servers on; more with long rounds
WINDOW = 5  # seconds from assignment to report: time to answer for manual participants
WINDOW_KEPT = 20  # the same with `keep`
ROUNDS, BATCH = 8, 60  # few large rounds: nearly all experiments are decided after one or two
BATCHES = {TrustModel.SECURE_AGGREGATION: 40}  # whose stages take each device longer
JOINING = (9, 150)  # seconds that a round assigns slots: at least and at most
MARGIN = (4, 30)  # seconds for reports to arrive: at least and at most
GRACE = (60, 480)  # seconds for servers, and for the stages of secure aggregation, which end
# as soon as all devices have answered
GRACE_PER_START = 40  # times as long as the servers took to start
SLOTS_PER_START = 70  # slots that are filled in the time that the servers took to start; two
# thirds of what was measured, since a round needs four of five reports
ATTEMPTS = 3  # experiments, each with rounds of twice the length if all rounds were aborted
FINISHING = 20.0  # seconds for open rounds to end after the experiment is stopped


@dataclass(frozen=True)
class RoundPace:
    """Durations of a round's phases in seconds, made for the speed of this machine."""

    joining: int = JOINING[0]
    margin: int = MARGIN[0]
    grace: int = GRACE[0]
    window: int = WINDOW

    @classmethod
    def of(cls, started: float, slots: int, window: int) -> RoundPace:
        """Durations for first rounds of `slots` slots; servers took `started` seconds to start.

        >>> RoundPace.of(2.5, 450, 5)
        RoundPace(joining=17, margin=4, grace=100, window=5)
        """
        return cls(
            _within(JOINING, slots * started / SLOTS_PER_START),
            _within(MARGIN, 1.5 * started),
            _within(GRACE, started * GRACE_PER_START),
            window,
        )

    @property
    def longest(self) -> float:
        """Seconds until the experiment is stopped undecided: time for two batches of rounds."""
        batch = self.joining + self.window + self.margin
        return max(LONGEST, 2 * batch + self.grace / 2)

    def slower(self) -> RoundPace:
        """Twice as long phases, after rounds that were too short for this machine."""
        return RoundPace(2 * self.joining, 2 * self.margin, 2 * self.grace, self.window)


FASTEST = RoundPace()


def _within(limits: tuple[int, int], seconds: float) -> int:
    return max(limits[0], min(limits[1], math.ceil(seconds)))


@dataclass
class DemoProgress:
    """Progress of the demonstration, for display."""

    status: dict[str, Any]
    estimates: dict[str, Any]
    counts: VisitCounts
    seconds: float
    addresses: tuple[str, ...]
    export: dict[str, Any] = field(default_factory=dict)
    requests: dict[str, dict[str, int]] = field(default_factory=dict)

    @property
    def released(self) -> bool:
        """Whether a round was released."""
        return any(one["stage"] == Stage.RELEASED for one in self.status["rounds"])

    @property
    def in_vain(self) -> bool:
        """Whether the first rounds are over and all were aborted."""
        rounds = self.status["rounds"]
        last = max((one["closes"] for one in rounds if one["stage"] == Stage.ABORTED), default=0)
        live = (one["closes"] for one in rounds if one["stage"] in LIVE)
        return last > 0 and not self.released and all(closes > last for closes in live)

    @property
    def decided(self) -> bool:
        """Whether an option is decided, in every segment where devices choose."""
        contexts = self.status["contexts"]
        if contexts is None:
            return self.status["decided"] is not None
        return bool(contexts["answers"]) and all(
            one["decision"] == "best" for one in contexts["answers"]
        )

    def to_dict(self) -> dict[str, Any]:
        """The progress as plain data."""
        return {
            "best": self.estimates["best"],
            "decided": self.estimates["decided"],
            "estimates": self.estimates["options"],
            "contexts": self.estimates["contexts"],
            "guarantee": self.status["guarantee"],
            "people": self.status["people"],
            "participants": asdict(self.counts),
            "requests": self.requests,
            "seconds": round(self.seconds, 1),
        }


@dataclass(frozen=True)
class DemoSettings:
    """Settings of a demonstration: people, seed, trust model, range proofs and contexts."""

    people: int = 3000
    seed: int = 1
    trust: TrustModel = TrustModel.TWO_SERVERS
    proofs: bool = False
    keep: bool = False
    contextual: bool = False

    @property
    def roles(self) -> tuple[str, ...]:
        """The servers that are started: a helper only where the trust model has one."""
        return ("coordinator", "helper")[: len(ROLES[self.trust])]


@dataclass(frozen=True)
class Parties:
    """The parties on this machine, the coordinator first."""

    cards: tuple[Card, ...]
    operated: tuple[PartyClient, ...]
    directory: Path


Watch = Callable[[str, DemoProgress | None], None]


@contextmanager
def playing(settings: DemoSettings, watch: Watch | None = None) -> Iterator[DemoProgress]:
    """Context manager of one live experiment, until it is decided or over.

    All servers run as long as the context; with `keep`, participants continue to take part. At the
    end no process and no file remains, except what the caller writes.
    """
    said = watch or (lambda _stage, _shown: None)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tacit-demo-")))
        said(f"starting {count_of(len(settings.roles), 'server')}", None)
        started = time.monotonic()
        parties = _start(stack, directory, settings.roles)
        took = time.monotonic() - started  # measures the speed of the machine
        said("publishing the experiment", None)
        planned = definition_files.parse(definition_of(parties.cards[1:], settings))
        slots = sum(one.participants for one in planned.experiment().propose())
        pace = RoundPace.of(took, slots, WINDOW_KEPT if settings.keep else WINDOW)
        for attempt in range(1, ATTEMPTS + 1):
            watched = _begin(stack, parties, settings, pace, said)
            shown = _watch(parties, watched, said, keep=settings.keep)
            if shown.released or attempt == ATTEMPTS:
                break
            said("all rounds were aborted: publishing it anew with longer rounds", None)
            watched.participants.end()
            pace = pace.slower()
        yield shown


def _begin(
    stack: ExitStack, parties: Parties, settings: DemoSettings, pace: RoundPace, watch: Watch
) -> Watched:
    """Publish the experiment and start its simulated participants."""
    digest = _publish(parties, definition_of(parties.cards[1:], settings, pace))
    counts = parties.directory / f"counts-{digest[:8]}.json"
    given = SimulationConfig(
        parties.cards[0].address,
        tuple(card.key.hex() for card in parties.cards),
        digest,
        LIKING,
        str(counts),
        4 * settings.people,
        settings.seed,
        *((CONTEXTS, BY_SHIFT) if settings.contextual else ()),
    )
    page = f"{parties.cards[0].address}/e/{digest}"
    watch(f"watch it at {page}", None)
    watch(f"take part at {page}/take-part", None)
    log = parties.directory / f"participants-{digest[:8]}.log"
    participants = Child(["-m", "tacit.service.demo.participants"], log, json.dumps(asdict(given)))
    stack.callback(participants.end)
    return Watched(digest, counts, participants, pace, time.monotonic())


def definition_of(
    helpers: Sequence[Card], settings: DemoSettings, pace: RoundPace = FASTEST
) -> str:
    """The definition file of the demonstration's experiment."""
    helper = (
        {"helper_address": one.address, "helper_key": one.key}
        if (one := next(iter(helpers), None))
        else {}
    )
    today = datetime.now(UTC).date()
    asked: dict[str, Any] = {"options": tuple(LIKING), "control": "No reminder", "most": ROUNDS}
    if settings.contextual:
        fields = (f"{name}: {', '.join(values)}" for name, values in CONTEXTS.items())
        asked = {
            "options": tuple(BY_SHIFT["day"]),
            "algorithm": "private-contextual",
            "context_fields": tuple(fields),
            "min_batch_size": CONTEXT_BATCH,
            "exploration": Fraction(4, 5),
            "evaluation": 0,
        }
    return definition_files.write(
        {
            "question": QUESTION,
            "trust": settings.trust.value,
            "proofs": settings.proofs,
            "min_batch_size": BATCHES.get(settings.trust, BATCH),
            **asked,
            "organisation": "A hospital that is made up for this demonstration",
            "purpose": "to choose the reminder that everybody on its wards gets",
            "contact": "breaks@hospital.example",
            "meaning": "whether you took a break",
            "metric": "break",
            "levels": 1,
            "window": pace.window,
            "participants": settings.people,
            "first_day": today - timedelta(days=1),
            "last_day": today + timedelta(days=1),
            "dropout": "1/5",
            "epsilon": EPSILON.get(settings.trust, 1),
            "joining": pace.joining,
            "margin": pace.margin,
            "grace": pace.grace,
            **helper,
        }
    )


def _start(stack: ExitStack, directory: Path, roles: Sequence[str]) -> Parties:
    """Start all servers, each with its own directory, key and database."""
    cards, servers = [], []
    for role in roles:
        cards.append(create_party(role, directory / role, None, f"127.0.0.1:{free_port()}"))
        words = ["-m", "tacit", "serve", role, "--config", str(directory / role / "party.toml")]
        log = directory / f"{role}.log"
        servers.append(Child(words, log, TACIT_LIMITS_RATE="0"))  # one address is everybody
        stack.callback(servers[-1].end)
    for card, server in zip(cards, servers, strict=True):
        server.wait_for(f"{card.address}/readyz", lambda: None)
    tokens = [(directory / role / "admin-token").read_text().strip() for role in roles]
    operated = (PartyClient(card.address, token) for card, token in zip(cards, tokens, strict=True))
    return Parties(tuple(cards), tuple(operated), directory)


def _publish(parties: Parties, text: str) -> str:
    """Publish as the coordinator and sign as the helper's operator; here this program is both."""
    coordinator, *helpers = parties.operated
    if not helpers:
        return publish_experiment(coordinator, text)
    helper = config.load(parties.directory / "helper" / "party.toml")
    return publish_experiment(
        coordinator, text, (helpers[0], load_signing_key(helper.signing_key, helper.lock))
    )


@dataclass(frozen=True)
class Watched:
    """The experiment that is watched, its simulated participants and its pace."""

    digest: str
    counts: Path
    participants: Child
    pace: RoundPace
    started: float


def _watch(parties: Parties, watched: Watched, watch: Watch, *, keep: bool) -> DemoProgress:
    """Poll every second until the experiment is over or time is up; then stop it, unless `keep`.

    Return the final progress with the export and the request counts.
    """
    digest, counts, participants = watched.digest, watched.counts, watched.participants
    coordinator = parties.operated[0]
    while True:
        shown = _progress(parties, digest, counts, time.monotonic() - watched.started)
        watch("participants report", shown)
        limit = ENOUGH if shown.decided else watched.pace.longest
        if shown.status["state"] == "finished" or shown.in_vain or shown.seconds > limit:
            break
        if participants.ended:
            last = participants.log.read_text(encoding="utf-8", errors="replace").strip()[-500:]
            raise TacitError(
                f"simulated participants stopped early: {last or 'their log is empty'}"
            )
        time.sleep(1.0)
    if not keep:
        if shown.status["state"] != "finished":
            coordinator.post(f"/experiments/{digest}/stop")
        longest = FINISHING if shown.released or shown.in_vain else float(watched.pace.grace)
        _let_finish(parties, digest, watch, longest)
    shown = _progress(parties, digest, counts, time.monotonic() - watched.started)
    shown.export = coordinator.get(f"/experiments/{digest}/export")
    shown.requests = {
        card.role: _response_counts(one)
        for card, one in zip(parties.cards, parties.operated, strict=True)
    }
    return shown


def _let_finish(parties: Parties, digest: str, watch: Watch, longest: float) -> None:
    """Wait until the open rounds end."""
    end = time.monotonic() + longest
    while time.monotonic() < end:
        status = parties.operated[0].get(f"/experiments/{digest}/status")
        if not any(one["stage"] in ("open", "closing") for one in status["rounds"]):
            return
        watch("closing the last rounds", None)
        time.sleep(0.5)


def _progress(parties: Parties, digest: str, counts: Path, seconds: float) -> DemoProgress:
    coordinator = parties.operated[0]
    status = coordinator.get(f"/experiments/{digest}/status")
    estimates = coordinator.get(f"/experiments/{digest}/estimates")
    known = VisitCounts(**json.loads(counts.read_text())) if counts.exists() else VisitCounts()
    addresses = tuple(card.address for card in parties.cards)
    return DemoProgress(status, estimates, known, seconds, addresses)


def _response_counts(party: PartyClient) -> dict[str, int]:
    """Number of responses of a party, by method, route and status."""
    answers: dict[str, int] = {}
    for family in text_string_to_metric_families(party.text("/metrics")):
        for sample in family.samples:
            if sample.name == "tacit_requests_total":
                asked = f"{sample.labels['method']} {sample.labels['route']}"
                name = f"{asked} {sample.labels['status']}"
                answers[name] = answers.get(name, 0) + int(sample.value)
    return answers
