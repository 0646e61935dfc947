"""A crash at every commit of a round: released once, no acknowledged report lost."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.service.deployed import Deployed, definition_of, deployed
from tests.service.test_faults import Fate, Killed, MortalRecords

from tacit.service.assignment import Assigned, Ticket
from tacit.service.schema import Stage
from tacit.service.store import Store

MOST = 80  # more commits than a round has


class CommittingStore(Store):
    """A database whose user may be killed just before or just after a commit."""

    fate: Fate

    @contextmanager
    def begin(self) -> Iterator[Any]:
        with self.fate.step(), super().begin() as connection:
            yield connection


def inject_crashes(one: Deployed, fate: Fate) -> None:
    parties = [one.coordinator, *([] if one.helper is None else [one.helper])]
    for party in parties:
        for thing, kind in ((party.store, CommittingStore), (party.records, MortalRecords)):
            thing.__class__ = kind
            thing.fate = fate  # type: ignore[union-attr]


class Story:
    """One batch of rounds from planning to release, killed once and started again."""

    def __init__(self, one: Deployed, fate: Fate) -> None:
        self.one, self.fate = one, fate
        self.nonces = [os.urandom(16) for _ in range(400)]
        self.asked: list[Assigned] = []
        self.reports: list[Any] = []

    def run(self) -> None:
        actions: list[Callable[[], object]] = [
            lambda: self.one.step(2),
            self.join,
            self.send,
            self.send,
            self.late,
            lambda: self.one.step(4),
            lambda: self.one.step(2),
        ]
        for action in actions:
            try:
                action()
            except Killed:
                self.one.restart()
                inject_crashes(self.one, self.fate)
                action()

    def join(self) -> None:
        wanted = sum(row.slots for row in self.one.coordinator.rounds(Stage.OPEN))
        tickets = [Ticket(self.one.digest, nonce) for nonce in self.nonces[:wanted]]
        found = self.one.coordinator.join(tickets)
        self.asked = [one for one in found if isinstance(one, Assigned) and one.slot is not None]

    def send(self) -> None:
        """Every report, twice: the second time as a retry of the same bytes."""
        if not self.reports:
            self.reports = [(one, self.one.report(one, 1)) for one in self.asked]
        assert set(self.one.send(self.reports)) == {None}

    def late(self) -> None:
        self.one.clock.now += 200


@pytest.mark.extended
@pytest.mark.parametrize("trust", ["local", "shuffler"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_every_commit_releases_each_round_once(
    tmp_path: Path, trust: str, after: bool
) -> None:
    defined = definition_of(trust, participants=300, options=("plain", "friendly"))
    for number in range(1, MOST):
        directory = tmp_path / str(number)
        directory.mkdir()
        with deployed(defined, directory) as one:
            fate = Fate()
            inject_crashes(one, fate)
            fate.sentence(number, after)
            story = Story(one, fate)
            story.run()
            rows = {row.identity: row for row in one.coordinator.rounds(Stage.RELEASED)}
            mine = {one.identity(each) for each in story.asked}
            assert mine <= rows.keys()
            counted = sum(rows[identity].reports or 0 for identity in mine)
            assert counted == len(story.asked) > 20
            for identity in mine:
                said = {one.coordinator.outcome(identity) for _ in range(2)}
                one.restart()
                assert said == {one.coordinator.outcome(identity)}
            if fate.left is not None:  # nothing was left to kill
                return
    pytest.fail(f"a round has more than {MOST} commits")
