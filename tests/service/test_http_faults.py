"""Crashes at every commit of a round, behind HTTP, per trust model.

A party that has crashed writes nothing more until it is started again. Devices are real ones, which
repeat requests; afterwards everything that they sent is sent again, in another order. No round is
released twice, no acknowledged report is lost, no privacy budget is charged twice.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.service.fronted import MODELS, Fronted, fronted, small

from tacit.client import Device
from tacit.errors import TacitError, Unavailable
from tacit.records import RecordDirectory
from tacit.service.schema import Stage
from tacit.service.store import Store

PERIOD = 25  # commits from one crash to the next
TRIES = 6  # of an action that crashes interrupt
SAMPLED = 8  # of every so many histories one is played in the short test


class Crashed(Unavailable):
    """A write of a party that is down."""


class Lightning:
    """Takes all parties down at a commit, just before or just after it."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.after = self.down = False
        self.strikes = 0

    def strike(self, commits: int, after: bool) -> None:
        self.left, self.after = commits, after

    def clear(self) -> None:
        """Restart the parties; the next crash is `PERIOD` commits later."""
        self.down, self.left = False, PERIOD

    @contextmanager
    def commit(self) -> Iterator[None]:
        if self.down:
            raise Crashed("down")
        due = False
        if self.left is not None:
            self.left -= 1
            due = self.left <= 0
        if due:
            self.left, self.down = None, True
            self.strikes += 1
        if due and not self.after:
            raise Crashed("down")
        yield
        if due:
            raise Crashed("down")


class StruckStore(Store):
    lightning: Lightning

    @contextmanager
    def begin(self) -> Iterator[Any]:
        with self.lightning.commit(), super().begin() as connection:
            yield connection


class StruckRecords(RecordDirectory):
    lightning: Lightning

    def replace(self, name: bytes, old: bytes | None, new: bytes) -> bytes | None:
        with self.lightning.commit():
            return super().replace(name, old, new)


class Story:
    """One batch of rounds from planning to release, with crashes and restarts of the parties."""

    def __init__(self, one: Fronted, lightning: Lightning, seed: int) -> None:
        self.one, self.lightning, self.random = one, lightning, random.Random(seed)
        self.released: dict[bytes, tuple[str | None, bytes]] = {}
        self.prepare()

    def prepare(self) -> None:
        for party in (self.one.coordinator, self.one.helper):
            if party is not None:
                for thing, kind in ((party.store, StruckStore), (party.records, StruckRecords)):
                    thing.__class__ = kind
                    thing.lightning = self.lightning  # type: ignore[union-attr]

    def recover(self) -> None:
        """Start the parties again if they are down."""
        if self.lightning.down:
            self.one.restart()
            self.lightning.clear()
            self.prepare()

    def run(self) -> None:
        self.steps(3)
        people = [self.one.device() for _ in range(self.one.wanted())]
        joined = [person for person in people if self.join(person)]
        assert len(joined) > 3
        self.one.clock.now += 51  # the window is over, the round is not
        self.report(joined)
        self.replay()
        self.one.clock.now += 200
        for _ in range(14):
            self.steps(1)
            self.report(joined)
            self.look()
            if not self.one.coordinator.rounds(Stage.CLOSING):
                break
        self.replay()
        self.steps(2)
        self.check(joined)

    def steps(self, times: int) -> None:
        for _ in range(times):
            for _ in range(TRIES):
                try:
                    self.one.step()
                except TacitError:
                    assert self.lightning.down
                if not self.lightning.down:
                    break
                self.recover()

    def join(self, person: Device) -> bool:
        for _ in range(TRIES):
            try:
                slot = person.join(self.one.digest)
            except TacitError:
                self.recover()
                continue
            person.record(self.one.digest, 1)
            assert slot.option == person.join(self.one.digest).option
            return slot.asked
        raise AssertionError("nobody can join")

    def report(self, people: list[Device]) -> None:
        """Devices send what is due, in any order; those that failed try again."""
        for _ in range(3):
            self.random.shuffle(people)
            for person in people:
                person.run_due()
                self.recover()
            self.one.clock.now += 2

    def replay(self) -> None:
        """Everything that devices sent arrives once more, in another order; nothing changes."""
        again = [one for one in self.one.router.seen if one.request.method == "PUT"]
        self.random.shuffle(again)
        for one in again:
            how = {"content": one.request.content, "headers": one.request.headers}
            status = self.one.request("PUT", str(one.request.url), **how).status_code
            self.recover()
            assert status in ({204, 404, 409, 410, 422} | {one.status}) or status >= 500

    def look(self) -> None:
        """What was released stays as it is."""
        for row in self.one.coordinator.rounds(Stage.RELEASED):
            try:
                said = (row.total, self.one.coordinator.outcome(row.identity))
            except TacitError:
                continue
            assert self.released.setdefault(row.identity, said) == said

    def check(self, joined: list[Device]) -> None:
        one, terms = self.one, self.one.pinned.terms
        acknowledged = defaultdict[bytes, dict[str, set[int]]](lambda: defaultdict(set))
        for seen in one.router.seen:
            path = seen.request.url.path.split("/")
            if seen.request.method == "PUT" and path[3] == "reports" and seen.status == 204:
                acknowledged[bytes.fromhex(path[2])][seen.request.url.host].add(int(path[4]))
        rows = {row.identity: row for row in one.coordinator.rounds(*Stage)}
        for identity, by_party in acknowledged.items():
            both = set.intersection(*by_party.values())
            assert rows[identity].stage is Stage.RELEASED
            assert rows[identity].reports == len(both), "an acknowledged report is lost"
        assert sum(row.reports or 0 for row in rows.values()) == len(joined)
        seen_by_learner = one.coordinator._snapshot(one.digest).experiment.estimates()
        assert sum(each.participants for each in seen_by_learner) == len(joined)
        for person in joined:
            assert person.ledger.spent == terms.cost, "charged once"
        self.look()
        one.restart()
        self.look()


def play(directory: Path, model: str, first: int, after: bool) -> int:
    """One history with crashes at this commit and every `PERIOD` commits later; their number."""
    directory.mkdir()
    with fronted(small(model), directory) as one:
        lightning = Lightning()
        story = Story(one, lightning, first)
        lightning.strike(first, after)
        story.run()
        return lightning.strikes


@pytest.mark.extended
@pytest.mark.parametrize("model", MODELS)
def test_crashes_at_some_commits_lose_no_data(tmp_path: Path, model: str) -> None:
    for number in range(3, PERIOD, SAMPLED):
        assert play(tmp_path / str(number), model, number, after=number % 2 == 0) > 1


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("model", MODELS)
def test_crashes_at_every_commit_lose_no_data(tmp_path: Path, model: str, after: bool) -> None:
    """Histories with crashes from each of `PERIOD` consecutive commits on."""
    for first in range(1, PERIOD + 1):
        assert play(tmp_path / str(first), model, first, after) > 1
