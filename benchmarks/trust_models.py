"""Cost of a participant per trust model: CPU by role, messages, bytes, participants per second.

Each party is a process of its own; this process plays the participants. Bare cryptography is the
CPU time of the functions that make, sign and check rounds, name and check slots, and check, sum,
shuffle and unmask reports, in memory, for rounds of the same size. It is without the database that
these functions read, and without the signatures of calls between the parties. `service.py --trust`
prints the rows. Other load changes CPU times little, participants per second much.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lines import Headers, Line
from machine import Row
from tacit.aggregation import ReportSlot
from tacit.aggregation.aggregator import Aggregator
from tacit.aggregation.aggregator_context import AggregatorContext
from tacit.aggregation.collecting import Collector
from tacit.aggregation.local import LocalServer
from tacit.aggregation.masking_rounds import MaskingReports
from tacit.aggregation.masking_server import MaskingServer
from tacit.aggregation.pending import PendingReports
from tacit.aggregation.shuffler import Analyzer
from tacit.aggregation.shuffler_reports import ShufflerReports
from tacit.client.choices import zero_report
from tacit.client.entries import OpenParticipation
from tacit.client.exchange import Reply, Request
from tacit.client.trust_models import reporter
from tacit.errors import TacitError
from tacit.records import MemoryRecords
from tacit.service import definition_files, round_scheduler
from tacit.service.admin import PartyClient, publish_experiment, short_experiment
from tacit.service.assignment import Assigned, Ticket
from tacit.service.config import load
from tacit.service.coordinator import Coordinator
from tacit.service.definition import Definition
from tacit.service.helper import Helper
from tacit.service.schema import LIVE, RoundRow, Stage
from tacit.service.store import Store
from tacit.service.trust_models import (
    contract,
    coordinator_engine,
    local,
    masking,
    shuffler,
    two_servers,
)
from tacit.service.trust_models.contract import decoded
from tacit.signatures import public_key
from tacit.terms import Pinned, Terms, cosign, in_order

MODELS: dict[str, dict[str, Any]] = {
    "two-servers": {"trust": "two-servers"},
    "proofs": {"trust": "two-servers", "proofs": True},
    "local": {"trust": "local"},
    "shuffler": {"trust": "shuffler"},
    "secure-aggregation": {"trust": "secure-aggregation"},
}
FIRST = "two-servers"  # to which the others are compared
JOINING = {"secure-aggregation": 25}  # seconds; its stages begin at the deadline, never before
_NUMBERS = count(1)  # of experiments: the same terms would be the same experiment
AT_ONCE = 64  # devices that join and report at the same time
SOON = 0.3  # seconds between looks whether rounds are open, or over
LONGEST = 300.0  # seconds of one experiment
WORK: tuple[tuple[Any, str], ...] = (
    (two_servers, "prepare_collector"),
    (AggregatorContext, "prepare"),
    (AggregatorContext, "commitment"),
    (AggregatorContext, "endorse"),
    (local, "prepare_local"),
    (local, "endorse_local"),
    (shuffler, "prepare_party"),
    (shuffler, "bind"),
    (shuffler, "endorse"),
    (masking, "prepare_server"),
    (MaskingServer, "endorse"),
    (contract, "accept"),
    (PendingReports, "names"),
    (PendingReports, "slots"),
    (Aggregator, "check"),
    (Aggregator, "take"),
    (Aggregator, "close"),
    (Collector, "take"),
    (Collector, "close"),
    (LocalServer, "check"),
    (LocalServer, "close"),
    (ShufflerReports, "check"),
    (ShufflerReports, "shuffle"),
    (ShufflerReports, "finish"),
    (Analyzer, "take"),
    (Analyzer, "close"),
    (MaskingReports, "check"),
    (MaskingReports, "check_answer"),
    (MaskingReports, "advance"),
    (MaskingReports, "finish"),
)
"""Bare cryptography of the parties."""
DATABASE = "begin", "read"  # transactions of a store, which are no cryptography


@dataclass
class Measured:
    """One experiment: CPU seconds by role, and what the devices sent."""

    people: int = 0
    released: int = 0
    seconds: float = 0.0
    computed: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    messages: int = 0
    sent_bytes: int = 0


def defined(model: str, helper: tuple[str, bytes] | None, batch: int) -> Definition:
    """Two options, one answer of yes or no, rounds of at least `batch`."""
    given = {
        "question": f"What does {model} cost, time {next(_NUMBERS)}?",
        "options": ("plain", "friendly"),
        "meaning": "always 0",
        "epsilon": 4,
        "min_batch_size": batch,
        "dropout": 0,
        **short_experiment(helper, joining=JOINING.get(model, 600), margin=2, grace=300),
    }
    return Definition.of(**given | MODELS[model])


# The service


class Generator:
    """Devices of one experiment: they join, then send their reports, `AT_ONCE` at a time.

    Reports are made between these two phases, so that both parties, not the devices, limit the
    rate. Stages of secure aggregation follow at the deadline, as devices ask for them.
    """

    def __init__(self, members: Sequence[Any], pinned: Pinned) -> None:
        self._members, self._pinned = members, pinned
        self._store = Store(load(members[0].directory / members[0].file).database)
        self._reporter = reporter(pinned.terms)
        self.reported, self.released, self.messages, self.sent_bytes = 0, 0, 0, 0

    async def run(self, people: int) -> None:
        """So many participants, in full batches of rounds, until their rounds are over."""
        end = time.monotonic() + LONGEST
        lines = [[await Line.to(one) for one in self._members] for _ in range(AT_ONCE)]
        while self.reported < people and time.monotonic() < end:
            free = [0] * sum(row.slots - row.assigned for row in self._rounds(Stage.OPEN))
            if not free or self._rounds(Stage.PREPARING):
                await asyncio.sleep(SOON)
                continue
            joined: list[OpenParticipation] = []
            await asyncio.gather(*(self._join(own[0], free, joined) for own in lines))
            made = [(running, self._reporter.encode(running)) for running in joined]
            await asyncio.gather(*(self._report(own, made) for own in lines))
            await asyncio.gather(*(self._answer_stages(running) for running in joined))
        while time.monotonic() < end and any(row.assigned for row in self._rounds(*LIVE)):
            await asyncio.sleep(SOON)
        self.released = sum(row.reports or 0 for row in self._rounds(Stage.RELEASED))
        for line in chain.from_iterable(lines):
            line.close()
        self._store.close()

    def _rounds(self, *stages: Stage) -> list[RoundRow]:
        """The rounds of the experiment, read from the database: the party is not asked."""
        with self._store.read() as transaction:
            rows = transaction.rounds_in(stages)
        return [row for row in rows if row.terms == self._pinned.terms.digest]

    async def _join(self, line: Line, free: list[int], joined: list[OpenParticipation]) -> None:
        path = f"/experiments/{self._pinned.terms.digest.hex()}/places"
        while free:
            free.pop()
            asked = json.dumps({"nonce": os.urandom(16).hex()}).encode()
            said = json.loads((await line.ask("POST", path, "json", asked))[1])
            if not said["asked"]:
                continue
            announcement = bytes.fromhex(said["announcement"])
            announced = self._reporter.announced(self._pinned, announcement)
            slot = ReportSlot(said["place"], bytes.fromhex(said["token"]))
            joined.append(zero_report(self._pinned, announcement, announced, slot, time.time()))

    async def _report(self, own: list[Line], made: list[tuple[OpenParticipation, Any]]) -> None:
        while made:
            running, contents = made.pop()
            path = f"/rounds/{running.identity.hex()}/reports/{running.slot.number}"
            for role, content in contents.items():
                line = own[0 if role == self._pinned.terms.leader else 1]
                status, said = await line.ask("PUT", path, "octet-stream", content)
                if status != 204:
                    raise SystemExit(f"a report got {status}: {said!r}")
                self._count(content)
            self.reported += 1

    async def _answer_stages(self, running: OpenParticipation) -> None:
        """A device's stages, on a connection of its own: its questions are held."""
        path = f"/rounds/{running.identity.hex()}"
        due = self._reporter.stage_due(running)
        if due is None:  # its trust model has no stages
            return
        line = await Line.to(self._members[0])
        while due is not None:
            await asyncio.sleep(max(0.0, due - time.time()))
            talk, reply = self._reporter.stages(running, path, time.time()), None
            with suppress(StopIteration):
                while True:
                    asked = next(talk) if reply is None else talk.send(reply)
                    own = [pair for pair in asked.headers if pair[0] != "Content-Type"]
                    self._count(asked.content)
                    reply = await self._asked(line, asked, own)
            due = self._reporter.stage_due(running)
        line.close()

    @staticmethod
    async def _asked(line: Line, asked: Request, headers: Headers) -> Reply:
        try:
            said = await line.ask(asked.method, asked.url, "octet-stream", asked.content, headers)
        except OSError:
            return Reply(0)  # asked again
        return Reply(*said)

    def _count(self, content: bytes) -> None:
        self.messages += 1
        self.sent_bytes += len(content)


def served(members: Sequence[Any], token: str, model: str, people: int, batch: int) -> Measured:
    """One experiment at running parties; `members` are those of `service.py`."""
    coordinator, *helpers = members
    there = PartyClient(coordinator.url, token)
    helper = (helpers[0].url, public_key(helpers[0].key)) if helpers else None
    signer = (PartyClient(helpers[0].url, token), helpers[0].key) if helpers else None
    digest = publish_experiment(
        there, definition_files.write(defined(model, helper, batch)), signer
    )
    said = there.terms(digest)
    pinned = Pinned(said.terms, said.signatures, said.terms.keys)
    generator = Generator(members, pinned)
    before = {one.role: one.computed() for one in members}
    own, started, found = time.process_time(), time.perf_counter(), Measured()
    asyncio.run(generator.run(people))
    found.people, found.released = generator.reported, generator.released
    found.messages = generator.messages
    found.sent_bytes, found.seconds = generator.sent_bytes, time.perf_counter() - started
    for one in members:
        found.computed[one.role] = one.computed() - before[one.role]
    found.computed["device"] = time.process_time() - own
    there.post(f"/experiments/{digest}/stop")
    return found


# Cryptography alone


class Clock:
    """The system clock, moved ahead to deadlines."""

    ahead = 0.0

    def __call__(self) -> float:
        """Seconds since 1970."""
        return time.time() + self.ahead

    def reach(self, moment: int) -> None:
        """Move to this time, if it is not over."""
        self.ahead += max(0.0, moment - self())


class DirectLink:
    """Calls of the coordinator to a helper in the same process."""

    def __init__(self, helper: Helper) -> None:
        self._helper = helper
        self.keys, self.describe = helper.keys, helper.describe
        self.exchange = helper.exchange


@contextmanager
def clocked() -> Iterator[dict[str, float]]:
    """The CPU time inside `WORK` without the database; nested calls count once."""
    spent = {"parties": 0.0}
    depth = [0]
    originals = [(kind, name, getattr(kind, name)) for kind, name in WORK]
    transactions = [(Store, name, getattr(Store, name)) for name in DATABASE]

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*words: Any, **more: Any) -> Any:
            depth[0] += 1
            started = time.thread_time()
            try:
                return function(*words, **more)
            finally:
                depth[0] -= 1
                if not depth[0]:
                    spent["parties"] += time.thread_time() - started

        return called

    def left_out(function: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def begun(store: Store) -> Iterator[Any]:
            started = time.thread_time()
            try:
                with function(store) as transaction:
                    yield transaction
            finally:
                if depth[0]:
                    spent["parties"] -= time.thread_time() - started

        return begun

    for kind, name, function in originals:
        setattr(kind, name, timed(function))
    for kind, name, function in transactions:
        setattr(kind, name, left_out(function))
    try:
        yield spent
    finally:
        for kind, name, function in originals + transactions:
            setattr(kind, name, function)


def bare(directory: Path, model: str, people: int, batch: int) -> Measured:
    """The cryptography of parties and devices in memory, for the same rounds."""
    keys = [Ed25519PrivateKey.generate() for _ in range(2)]
    helped = MODELS[model]["trust"] in ("two-servers", "shuffler")
    addresses = ("http://127.0.0.1:1", "http://127.0.0.1:2")
    told = defined(model, (addresses[1], public_key(keys[1])) if helped else None, batch)
    terms, found = told.terms(addresses[0], public_key(keys[0])), Measured()
    stores = [Store(f"sqlite:///{directory}/{n}-{time.monotonic_ns()}.db") for n in range(2)]
    for store in stores:
        store.migrate()
    clock = Clock()
    coordinator = Coordinator(keys[0], stores[0], MemoryRecords(), clock=clock)
    helper = Helper(keys[1], stores[1], MemoryRecords(), clock=clock)
    digest = coordinator.create(terms, told.experiment(), told.timing)
    if helped:
        coordinator.link, theirs = DirectLink(helper), cosign(terms, keys[1])
        helper.admit(terms, in_order(terms, coordinator.signature(digest), theirs))
        coordinator.cosign(digest, theirs)
    try:
        with clocked() as spent:
            while found.people < people:
                _batch((coordinator, helper), clock, terms, found)
        found.computed["parties"] = spent["parties"]
    finally:
        for store in stores:
            store.close()
    return found


def _batch(
    parties: tuple[Coordinator, Helper], clock: Clock, terms: Terms, found: Measured
) -> None:
    """The open rounds from the first slot to the release."""
    coordinator, helper = parties

    def step(times: int) -> None:
        for _ in range(times):
            round_scheduler.step(coordinator)
            if coordinator.link is not None:
                helper.step()

    step(2)
    pinned, engine = coordinator.pinned(terms.digest), coordinator_engine(terms)
    wanted = sum(row.slots - row.assigned for row in coordinator.rounds(Stage.OPEN))
    tickets = [Ticket(terms.digest, os.urandom(16)) for _ in range(wanted)]
    asked = [one for one in coordinator.join(tickets) if isinstance(one, Assigned) and one.slot]
    making, devices = reporter(terms), []
    for one in asked:
        assert one.slot is not None
        identity = decoded(engine, terms, one.announcement).identity
        running = OpenParticipation(
            identity, pinned, one.announcement, one.slot, b"", 0.0, None, (0,), ()
        )
        started = time.thread_time()
        made = making.encode(running)
        found.computed["device"] += time.thread_time() - started
        devices.append(running)
        for role, content in made.items():
            party = coordinator if role == terms.leader else helper
            party.keep([party.report(identity, one.slot.number, content)])
    for _ in range(12):
        step(2)
        if not any(row.assigned for row in coordinator.rounds(*LIVE)):
            break
        for row in coordinator.rounds(Stage.CLOSING):
            clock.reach(row.closes)
        for running in devices:
            _answer(coordinator, making.stages(running, "http://c", clock()), running, found)
    else:
        raise TimeoutError(f"rounds of {terms.question!r} did not end")
    found.people += len(asked)


def _answer(
    coordinator: Coordinator, talk: Any, running: OpenParticipation, found: Measured
) -> None:
    """One device's stages; its own work is timed."""
    reply: Reply | None = None
    try:
        while True:
            started = time.thread_time()
            try:
                request = next(talk) if reply is None else talk.send(reply)
            finally:
                found.computed["device"] += time.thread_time() - started
            reply = _reply(coordinator, running, request)
    except StopIteration:
        return


def _reply(coordinator: Coordinator, running: OpenParticipation, request: Request) -> Reply:
    try:
        if request.method == "GET":
            *_, address, after = urlsplit(request.url).path.split("/")
            served = coordinator.staged(running.identity)
            said = served.next_message(bytes.fromhex(address), int(after))
            return Reply(200, said) if said else Reply(204)
        waiting = coordinator.answer(running.identity, running.slot, request.content)
        (rejection,) = coordinator.keep([waiting])
        return Reply(204 if rejection is None else 409)
    except TacitError:
        return Reply(410)


# Rows


def rows_of(model: str, runs: list[tuple[Measured, Measured]]) -> list[Row]:
    """Medians over the runs of one trust model."""
    rows: list[Row] = []

    def add(name: str, unit: str, value: Callable[[Measured, Measured], float]) -> None:
        middle = statistics.median(value(one, alone) for one, alone in runs)
        rows.append({"name": f"{model}: {name}", "value": round(middle, 4), "unit": unit})

    def parties(one: Measured) -> float:
        return sum(one.computed[role] for role in ("coordinator", "helper")) / one.people

    def crypto(alone: Measured) -> float:
        return alone.computed["parties"] / alone.people

    def at(role: str) -> Callable[[Measured, Measured], float]:
        return lambda one, _alone: 1e3 * one.computed[role] / one.people

    for role in runs[0][0].computed:
        add(f"CPU per participant at the {role}", "ms", at(role))
    add("CPU per participant at all parties", "ms", lambda one, _alone: 1e3 * parties(one))
    add("bare cryptography per participant at all parties", "ms",
        lambda _one, alone: 1e3 * crypto(alone))  # fmt: skip
    add("bare cryptography per participant at the device", "ms",
        lambda _one, alone: 1e3 * alone.computed["device"] / alone.people)  # fmt: skip
    add("parties' CPU to bare cryptography", "ratio",
        lambda one, alone: parties(one) / crypto(alone))  # fmt: skip
    add("messages per report", "", lambda one, _alone: one.messages / one.people)
    add("bytes per report", "bytes", lambda one, _alone: one.sent_bytes / one.people)
    add("reports in released rounds", "ratio", lambda one, _alone: one.released / one.people)
    add("people", "per second", lambda one, _alone: one.people / one.seconds)
    return rows


def compared(rows: list[Row]) -> list[Row]:
    """Ratios of parties' CPU and of participants per second to those of `FIRST`, of the same
    run.
    """
    by_name = {row["name"]: row["value"] for row in rows}
    found: list[Row] = []
    for model in MODELS:
        for what in ("CPU per participant at all parties", "bytes per report", "people"):
            own, first = by_name.get(f"{model}: {what}"), by_name.get(f"{FIRST}: {what}")
            if own and first and model != FIRST:
                name = f"{model}: {what}, to {FIRST}"
                found.append({"name": name, "value": round(own / first, 3), "unit": "ratio"})
    return found


def measured(
    directory: Path,
    members: Callable[[Path, ExitStack, Sequence[str]], Sequence[Any]],
    token: str,
    models: Sequence[str],
    people: int,
    runs: int,
    batch: int,
) -> list[Row]:
    """All rows: parties are started once per trust model, with an experiment per run."""
    rows: list[Row] = []
    for model in models:
        helped = MODELS[model]["trust"] in ("two-servers", "shuffler")
        roles = ("coordinator", "helper") if helped else ("coordinator",)
        (place := directory / model).mkdir()
        with ExitStack() as stack:
            there = members(place, stack, roles)
            served(there, token, model, 1, batch)  # warm
            found = []
            for number in range(1, runs + 1):
                live = served(there, token, model, people, batch)
                found.append((live, bare(place, model, people, batch)))
                print(f"{model}: run {number} of {runs}", file=sys.stderr)
        rows += rows_of(model, found)
    return rows + compared(rows)
