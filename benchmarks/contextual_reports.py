"""Cost of a report of a contextual experiment, relative to an experiment of two arms.

`python benchmarks/contextual_reports.py` prints JSON: bytes of a report, CPU time of a device that
verifies the round, chooses and reports, and participants per second of both servers on one core,
without HTTP. All kinds are measured in turn, with waves of equal size (one round of a table, one
for each of two arms), and ratios are medians over the runs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from machine import Row, emit
from tacit.aggregation import TwoServerRound
from tacit.aggregation.announcements import Binding
from tacit.client.choices import choose
from tacit.client.entries import OpenParticipation
from tacit.client.trust_models import reporter
from tacit.records import MemoryRecords
from tacit.service import round_scheduler
from tacit.service.assignment import Assigned, Ticket
from tacit.service.coordinator import Coordinator
from tacit.service.definition import Definition
from tacit.service.helper import Helper
from tacit.service.schema import Stage
from tacit.service.store import Store
from tacit.signatures import SIGNATURE_SIZE, public_key
from tacit.terms import ContextField, Pinned, Terms, cosign
from trust_models import DirectLink

ARMS = "arms"
WAVE = 640  # reports of rounds that are held at the same time
BATCH = 100  # reports of a transaction
SMALL: dict[str, Any] = {"context_fields": ("a: 1, 2", "b: 1, 2")}
LARGE: dict[str, Any] = {
    "context_fields": ("a: " + ", ".join(str(n) for n in range(20)),),
    "options": ("1", "2", "3", "4"),
}
KINDS: dict[str, dict[str, Any]] = {
    ARMS: {},
    "table of 16": SMALL,
    "table of 160": LARGE,
    "arms with proofs": {"proofs": True},
    "table of 16 with proofs": SMALL | {"proofs": True},
    "table of 160 with proofs": LARGE | {"proofs": True},
}
ADDRESSES = ("http://127.0.0.1:1", "http://127.0.0.1:2")


@dataclass
class ReportCosts:
    """Of so many participants: CPU seconds of devices and of both servers, and bytes sent."""

    people: int = 0
    device: float = 0.0
    servers: float = 0.0
    sent_bytes: int = 0


def defined(kind: str, helper: bytes) -> Definition:
    """Yes or no, in a first wave of `WAVE`."""
    today = datetime.now(UTC).date()
    given: dict[str, Any] = {
        "question": f"What does {kind} cost?",
        "options": ("plain", "friendly"),
        "meaning": "always 0",
        "window": 0,
        "epsilon": 4,
        "participants": 20_000,
        "min_batch_size": WAVE // 2,
        "dropout": 0,
        "first_day": today - timedelta(days=1),
        "last_day": today + timedelta(days=1),
        "joining": 600,
        "margin": 2,
        "grace": 300,
        "helper_address": ADDRESSES[1],
        "helper_key": helper,
    }
    if "context_fields" in KINDS[kind]:
        given |= {"algorithm": "private-contextual", "evaluation": 0, "min_batch_size": WAVE}
    return Definition.of(**given | KINDS[kind])


@contextmanager
def spent(costs: ReportCosts, name: str) -> Iterator[None]:
    """Add the CPU time of a block."""
    started = time.process_time()
    yield
    setattr(costs, name, getattr(costs, name) + time.process_time() - started)


def made(pinned: Pinned, given: Assigned, costs: ReportCosts) -> tuple[bytes, dict[int, bytes]]:
    """A device's report: the announcement's signatures are verified, as every device does."""
    terms, description = pinned.terms, given.announcement[: -2 * SIGNATURE_SIZE]
    signatures = given.announcement[-2 * SIGNATURE_SIZE :]
    assert given.slot is not None
    fields = terms.context.fields if terms.context else ()
    context = {one.name: one.values[0] for one in fields if isinstance(one, ContextField)}
    with spent(costs, "device"):
        pair = (signatures[:SIGNATURE_SIZE], signatures[SIGNATURE_SIZE:])
        pinned.check_signed_round(description, pair)
        round_ = TwoServerRound.decode(description)
        pinned.check(round_.offer())
        binding: Binding = round_.binding
        levels = choose(terms, binding, context or None).levels
        running = OpenParticipation(
            round_.identity, pinned, given.announcement, given.slot, b"", 0.0, None, levels, ()
        )
        shares = dict(reporter(terms).encode(running))
    costs.people += 1
    costs.sent_bytes += sum(map(len, shares.values()))
    return round_.identity, shares


def measured(directory: Path, kind: str) -> ReportCosts:
    """The first wave of an experiment."""
    keys = [Ed25519PrivateKey.generate() for _ in range(2)]
    told = defined(kind, public_key(keys[1]))
    terms, costs = told.terms(ADDRESSES[0], public_key(keys[0])), ReportCosts()
    stores = [Store(f"sqlite:///{directory}/{n}-{time.monotonic_ns()}.db") for n in range(2)]
    for store in stores:
        store.migrate()
    coordinator = Coordinator(keys[0], stores[0], MemoryRecords())
    helper = Helper(keys[1], stores[1], MemoryRecords())
    digest = coordinator.create(terms, told.experiment(), told.timing)
    theirs = cosign(terms, keys[1])
    helper.admit(terms, (coordinator.signature(digest), theirs))
    coordinator.cosign(digest, theirs)
    try:
        _hold(coordinator, helper, terms, costs)
    finally:
        for store in stores:
            store.close()
    assert costs.people == WAVE, costs.people
    return costs


def _hold(coordinator: Coordinator, helper: Helper, terms: Terms, costs: ReportCosts) -> None:
    """The open rounds from the first slot to the release."""
    coordinator.link = DirectLink(helper)
    pinned = coordinator.pinned(terms.digest)

    def step() -> None:
        for _ in range(3):
            round_scheduler.step(coordinator)
            helper.step()

    with spent(costs, "servers"):
        step()
        wanted = sum(row.slots - row.assigned for row in coordinator.rounds(Stage.OPEN))
        tickets = [Ticket(terms.digest, os.urandom(16)) for _ in range(wanted)]
        asked = [one for one in coordinator.join(tickets) if isinstance(one, Assigned) and one.slot]
    for start in range(0, len(asked), BATCH):
        some = asked[start : start + BATCH]
        reports = [(one, *made(pinned, one, costs)) for one in some]
        with spent(costs, "servers"):
            for role, party in enumerate((coordinator, helper)):
                waiting = [
                    party.report(identity, one.slot.number, shares[role])
                    for one, identity, shares in reports
                    if one.slot is not None
                ]
                assert party.keep(waiting) == [None] * len(waiting)
    with spent(costs, "servers"):
        step()


def rows(runs: int) -> list[Row]:
    """Each kind beside arms, and the ratios."""
    found: dict[str, list[ReportCosts]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as name:
        for _ in range(runs):
            for kind in KINDS:
                found[kind].append(measured(Path(name), kind))
    made: list[Row] = []
    quantities: dict[str, tuple[str, Callable[[ReportCosts], float]]] = {
        "bytes of a report": ("bytes", lambda one: one.sent_bytes / one.people),
        "CPU of a device": ("ms", lambda one: 1e3 * one.device / one.people),
        "people of both servers": ("per second and core", lambda one: one.people / one.servers),
    }
    for kind, costs in found.items():
        for what, (unit, value) in quantities.items():
            middle = statistics.median(map(value, costs))
            made.append({"name": f"{kind}: {what}", "value": round(middle, 3), "unit": unit})
            if kind != ARMS:
                pairs = zip(costs, found[ARMS], strict=True)
                ratio = statistics.median(value(one) / value(arms) for one, arms in pairs)
                row: Row = {
                    "name": f"{kind}: {what}, to arms",
                    "value": round(ratio, 3),
                    "unit": "x",
                }
                made.append(row)
    return made


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    emit(rows(parser.parse_args().runs))
