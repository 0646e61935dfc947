"""Count the tacit functions and files that one report passes, from the device to the estimate.

Both parties serve HTTP on loopback in threads of this process. The profile covers one device, from
reading the terms to its outcome, the round's release, and one request for the estimates. Other
participants, planning and announcing of rounds are not counted. Lambdas and comprehensions count as
functions, except as named ones.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import httpx
from fastapi import FastAPI

import tacit
from machine import Row, emit
from tacit.aggregation.two_servers import TwoServerRound, split
from tacit.client import Device, Ledger, Pins
from tacit.experiment import Experiment
from tacit.service import config
from tacit.service.assignment import Assigned, Ticket
from tacit.service.bootstrap import Card, create_party
from tacit.service.coordinator import Coordinator
from tacit.service.definition import Definition
from tacit.service.demo.children import free_port
from tacit.service.helper import Helper
from tacit.service.http.serve import application, create_server, listening
from tacit.service.party import ServerParty
from tacit.signatures import SIGNATURE_SIZE
from tacit.terms import cosign

ROLES = ("coordinator", "helper")
HOME = str(Path(tacit.__file__).parent) + os.sep
SECONDS = 60.0  # to wait for a step of the service


class Clock:
    """The system clock, moved ahead by `jump`."""

    ahead = 0.0

    def __call__(self) -> float:
        """Seconds since 1970."""
        return time.time() + self.ahead

    def jump(self, seconds: float) -> None:
        """Sleep, without waiting."""
        self.ahead += seconds


class Profile:
    """Counts the calls of tacit's functions in all threads that start after it."""

    def __init__(self) -> None:
        self.calls: Counter[CodeType] = Counter()
        self.on = False
        self.released = 0  # experiment reads until the round was released
        self._aside = 0  # a thread that is not counted
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        counted = self.on and event == "call" and threading.get_ident() != self._aside
        if counted and frame.f_code.co_filename.startswith(HOME):
            self.calls[frame.f_code] += 1

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count during this context."""
        self.on = True
        yield
        self.on = False

    def wait_for(self, done: Callable[[], object]) -> None:
        """Wait until something is true; this thread is not counted meanwhile."""
        self._aside = threading.get_ident()
        until(done)
        self._aside = 0

    def reads(self) -> int:
        """How often an experiment was deserialized."""
        read: Any = Experiment.from_dict
        return self.calls[read.__func__.__code__]

    def by_file(self) -> dict[str, list[str]]:
        """Names of functions by file, with lambdas and comprehensions, without module bodies."""
        files: dict[str, list[str]] = {}
        for code in self.calls:
            if code.co_name != "<module>":
                name = code.co_filename.removeprefix(HOME)
                files.setdefault(name, []).append(code.co_qualname)
        return {name: sorted(names) for name, names in sorted(files.items())}


def until(done: Callable[[], object]) -> None:
    """Wait until something is true."""
    end = time.monotonic() + SECONDS
    while not done():
        if time.monotonic() > end:
            raise TimeoutError("the service did not advance in time")
        time.sleep(0.05)


def serve(stack: ExitStack, role: str, directory: Path, clock: Clock) -> tuple[Card, ServerParty]:
    """Create a party and serve it in a thread."""
    card = create_party(role, directory, None, f"127.0.0.1:{free_port()}")
    told = config.load(directory / "party.toml")
    front = application(told, clock=clock)
    server = create_server(front)
    sockets = [stack.enter_context(listening(told))]
    thread = threading.Thread(target=server.run, kwargs={"sockets": sockets})
    thread.start()
    stack.callback(thread.join)
    stack.callback(setattr, server, "should_exit", True)
    until(lambda: server.started)
    assert isinstance(front.app, FastAPI)
    party: ServerParty = front.app.state.service.party
    return card, party


def definition(helper: Card) -> Definition:
    """A small experiment with two options."""
    today = datetime.now(UTC).date()
    return Definition(
        question="Which greeting do people like?",
        options=("Hello", "Hi"),
        meaning="1 if they wrote back, 0 if not",
        window=60,
        epsilon=Fraction(1),
        participants=4000,
        first_day=today - timedelta(days=1),
        last_day=today + timedelta(days=30),
        helper_address=helper.address,
        helper_key=helper.key,
    )


def begin(coordinator: Coordinator, helper: Helper, defined: Definition, address: str) -> bytes:
    """Publish the experiment under the signatures of both parties."""
    terms = defined.terms(address, coordinator.public_key)
    coordinator.create(terms, defined.experiment(), defined.timing)
    signatures = (coordinator.signature(terms.digest), cosign(terms, helper.key_for(terms)))
    helper.admit(terms, signatures)
    coordinator.cosign(terms.digest, signatures[1])
    return terms.digest


def others(parties: tuple[ServerParty, ServerParty], digest: bytes, assigned: list[Any]) -> None:
    """Send the reports of other participants to both parties, without HTTP."""
    for one in assigned:
        if not isinstance(one, Assigned) or one.slot is None:
            continue
        identity = TwoServerRound.decode(one.announcement[: -2 * SIGNATURE_SIZE]).identity
        shares = split(parties[0].pinned(digest), one.announcement, one.slot, [1])
        for party, share in zip(parties, shares, strict=True):
            party.keep([party.report(identity, one.slot.number, share)])


def measure(directory: Path) -> Profile:
    """Run one report from the device to the estimate."""
    profile, clock = Profile(), Clock()
    with ExitStack() as stack:
        (first, leader), (second, helper) = (
            serve(stack, role, directory / role, clock) for role in ROLES
        )
        assert isinstance(leader, Coordinator)
        assert isinstance(helper, Helper)
        digest = begin(leader, helper, definition(second), first.address)
        token = (directory / ROLES[0] / "admin-token").read_text().strip()

        def stages() -> set[str]:
            return {one["stage"] for one in leader.status(digest)["rounds"]}

        until(lambda: stages() == {"open"})
        slots = sum(one["places"] for one in leader.status(digest)["rounds"])
        tickets = [Ticket(digest, os.urandom(16)) for _ in range(slots - 1)]
        others((leader, helper), digest, leader.join(tickets))
        pins = Pins(first.address, first.key.hex(), second.key.hex())
        device = stack.enter_context(
            Device(Ledger(":memory:"), pins, clock=clock, sleep=clock.jump)
        )
        with profile.counting():
            slot = device.join(digest)
            assert slot.asked
            device.record(digest, 1)
            device.wait_and_report()
        leader.pause(digest)  # plan no further rounds
        with profile.counting():
            profile.wait_for(lambda: stages() == {"opened"})
            profile.released = profile.reads()
            asked = f"{first.address}/experiments/{digest.hex()}/estimates"
            answer = httpx.get(asked, headers={"Authorization": f"Bearer {token}"})
            device.wait_and_report(outcomes=True)
        assert all(one["participants"] for one in answer.json()["options"])
    return profile


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="print functions by file to stderr")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        profile = measure(Path(directory))
    files = profile.by_file()
    functions = [name for names in files.values() for name in names]
    named = sum("<" not in name.rpartition(".")[2] for name in functions)
    if asked.list:
        for file, names in files.items():
            print(file, *names, file=sys.stderr)
    emit(
        [
            Row(name="functions of a report", value=len(functions), unit="functions"),
            Row(name="named functions of a report", value=named, unit="functions"),
            Row(name="files of a report", value=len(files), unit="files"),
            Row(name="experiment reads until release", value=profile.released, unit="reads"),
        ]
    )


if __name__ == "__main__":
    main()
