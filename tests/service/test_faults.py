"""Crashes, restored databases and lost files: nothing is released or counted twice.

Every noise that a server draws is written to a book outside of both parties. A party may draw for a
round again only if its first draw never left it: whatever was handed on before stays what it was.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql
from tests.service.pairs import Pair, aggregator, described, experiment_of, sqlite_pair

from tacit.aggregation.aggregator_context import AggregatorStage, RoundRecord
from tacit.errors import Rejected, TacitError, Unavailable
from tacit.records import RecordDirectory
from tacit.service import round_scheduler
from tacit.service.assignment import Assigned, Ticket
from tacit.service.schema import Stage, shares
from tacit.service.store import Store

ACTIONS = ("step",) * 6 + ("people",) * 6 + ("retry",) * 2 + ("time", "copy", "back")
WORTH = {"plain": 0, "friendly": 1, "short": 0}


class Killed(BaseException):
    """What a party's process does not survive."""


class Fate:
    """Kills after so many more commits and key files, before or after the last of them."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.after = False

    def sentence(self, steps: int, after: bool) -> None:
        self.left, self.after = steps, after

    @contextmanager
    def step(self) -> Iterator[None]:
        due = False
        if self.left is not None:
            self.left -= 1
            due = self.left <= 0
        if due and not self.after:
            self.left = None
            raise Killed
        yield
        if due:
            self.left = None
            raise Killed


class MortalStore(Store):
    """A database whose user may be killed just before or just after a commit."""

    fate: Fate

    @contextmanager
    def begin(self) -> Iterator[Any]:
        with self.fate.step(), super().begin() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Any]:
        with self.fate.step(), super().read() as connection:
            yield connection


class MortalRecords(RecordDirectory):
    """Key files whose user may be killed just before or just after one is replaced."""

    fate: Fate

    def replace(self, name: bytes, old: bytes | None, new: bytes) -> bytes | None:
        with self.fate.step():
            return super().replace(name, old, new)


class Book:
    """Noise by round, the same for a round each time, and how often it was drawn."""

    def __init__(self, seed: int) -> None:
        self.seed, self.draws = seed, defaultdict[bytes, int](int)

    def noise(self, identity: bytes) -> Callable[[Fraction], int]:
        def draw(_scale: Fraction) -> int:
            self.draws[identity] += 1
            return random.Random(self.seed * 1_000_003 + self.draws[identity]).randrange(-50, 50)

        return draw


def mortal(pair: Pair, fate: Fate) -> None:
    """The pair over stores and key files that obey the fate."""
    for place, store in enumerate(pair.stores):
        store.__class__ = MortalStore
        store.fate = fate  # type: ignore[attr-defined]
        party = (pair.coordinator, pair.helper)[place]
        party.records.__class__ = MortalRecords
        party.records.fate = fate  # type: ignore[attr-defined]


class Story:
    """One experiment with crashes, restored databases, retries and delays at random."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.directory = directory
        self.books = (Book(seed), Book(seed + 1))
        self.pair = Pair(
            (f"sqlite:///{directory}/coordinator.db", f"sqlite:///{directory}/helper.db"),
            directory,
            options={"noise": self.books[0].noise},
            helper_options={"noise": self.books[1].noise},
        )
        self.fate = Fate()
        self.digest = self.pair.begin(experiment_of(400))
        self.handed: dict[tuple[int, bytes], set[bytes]] = defaultdict(set)
        self.sent: list[tuple[Assigned, tuple[bytes, bytes]]] = []
        self.copies: list[Path] = []

    def run(self, steps: int) -> None:
        for number in range(steps):
            mortal(self.pair, self.fate)
            if self.random.random() < 0.4:
                self.fate.sentence(self.random.randrange(1, 12), self.random.random() < 0.5)
            try:
                self.act(number)
            except Killed:
                self.pair.restart()
            except Rejected:
                pass
            self.fate.left = None
            self.look()
        self.pair.restart()
        for _ in range(6):
            self.pair.clock.now += 300
            self.pair.step(3)
            self.look()

    def act(self, number: int) -> None:
        pair = self.pair
        match self.random.choice(
            ["step", "step", "people", "people", "retry", "time", "copy", "back"]
        ):
            case "step":
                pair.step(1)
            case "people":
                self.people(self.random.randrange(10, 60))
            case "retry" if self.sent:
                assigned, halves = self.random.choice(self.sent)
                pair.send(assigned, halves, to=(self.random.randrange(2),))
            case "time":
                pair.clock.now += self.random.choice([1, 20, 130])
            case "copy":
                self.copy(number)
            case "back" if self.copies:
                self.restore()

    def people(self, count: int) -> None:
        pair = self.pair
        tickets = [Ticket(self.digest, os.urandom(16)) for _ in range(count)]
        for one in pair.coordinator.join(tickets):
            if isinstance(one, Assigned) and one.slot is not None:
                pair_of = pair.shares(self.digest, one, WORTH[one.option])
                self.sent.append((one, pair_of))
                if self.random.random() < 0.9:
                    pair.send(one, pair_of)

    def copy(self, number: int) -> None:
        role = self.random.choice(("coordinator", "helper"))
        copied = self.directory / f"copy{number}"
        copied.mkdir()
        for file in self.directory.glob(f"{role}.db*"):
            shutil.copy(file, copied)
        self.copies.append(copied)

    def restore(self) -> None:
        """Restore an older database; the key files stay, as required."""
        copied = self.random.choice(self.copies)
        role = next(copied.iterdir()).name.split(".")[0]
        place = ("coordinator", "helper").index(role)
        self.pair.stores[place].close()
        for file in self.directory.glob(f"{role}.db*"):
            file.unlink()
        for file in copied.iterdir():
            shutil.copy(file, self.directory)
        self.pair.restart()

    def look(self) -> None:
        """Whatever a key file has released stays unchanged."""
        for role in (0, 1):
            for file in (self.directory / f"keys{role}").glob(f"{role:02x}*.record"):
                record = RoundRecord.decode(file.read_bytes())
                if record.stage is AggregatorStage.CLOSED:
                    said = self.handed[role, bytes.fromhex(file.stem)]
                    said.add(record.partial + record.outcome)
                    assert len(said) == 1
                    assert not record.secret

    def check(self) -> int:
        """Every released round is counted once, in the learner too; returns how many there are."""
        seen = self.pair.coordinator._snapshot(self.digest)
        released = [row for row in seen.rounds if row.stage == "opened"]
        numbers = [row.number for row in released]
        assert len(set(numbers)) == len(numbers)
        learned = sum(one.participants for one in seen.experiment.estimates())
        assert learned == sum(row.reports or 0 for row in released)
        assert all(0 < (row.reports or 0) <= row.slots for row in released)
        return len(released)


def run_schedule(directory: Path, seed: int) -> int:
    directory.mkdir()
    story = Story(directory, seed)
    try:
        story.run(40)
        return story.check()
    finally:
        story.pair.close()


@pytest.mark.extended
def test_crashes_and_restored_databases_release_nothing_twice(tmp_path: Path) -> None:
    assert sum(run_schedule(tmp_path / str(seed), seed) for seed in range(2)) > 1


@pytest.mark.slow
def test_many_crashes_and_restored_databases_release_nothing_twice(tmp_path: Path) -> None:
    """About one round in each history is released: they are short, and mostly of crashes."""
    assert sum(run_schedule(tmp_path / str(seed), seed) for seed in range(100, 600)) > 400


@pytest.mark.extended
def test_an_interrupted_run_ends_like_an_uninterrupted_one(tmp_path: Path) -> None:
    """The same reports, the same noise by round number, crashes at every place in between."""
    ends = []
    for name, deadly in (("calm", False), ("stormy", True)):
        directory = tmp_path / name
        directory.mkdir()
        quiet = {"noise": lambda _identity: lambda _scale: 0}
        with sqlite_pair(directory, options=quiet, helper_options=quiet) as pair:
            digest = pair.begin(experiment_of(400))
            fate, rng = Fate(), random.Random(5)
            for _ in range(4):
                survive(pair, fate, rng, deadly)
                asked = pair.participants(digest, 400)
                pair.report(digest, asked, WORTH.__getitem__)
                pair.clock.now += 200
                survive(pair, fate, rng, deadly)
            seen = pair.coordinator._snapshot(digest)
            ends.append((seen.experiment.to_dict(), [(r.number, r.total) for r in seen.rounds]))
    assert ends[0] == ends[1]


def survive(pair: Pair, fate: Fate, rng: random.Random, deadly: bool) -> None:
    """Steps that are killed, again and again, until they get through."""
    for _ in range(8 if deadly else 0):
        mortal(pair, fate)
        fate.sentence(rng.randrange(1, 15), rng.random() < 0.5)
        with suppress(Killed):
            pair.step(3)
        fate.left = None
        pair.restart()
    pair.step(3)


def test_a_full_disk_loses_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with sqlite_pair(tmp_path) as pair:
        digest = pair.begin()
        pair.step(2)
        asked = pair.participants(digest, 90)
        pair.report(digest, asked, WORTH.__getitem__)

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            pair.clock.now += 200
            pair.step()
            assert not any(
                r["stage"] == "opened" for r in pair.coordinator.status(digest)["rounds"]
            )
        pair.step()
        released = [r for r in pair.coordinator.status(digest)["rounds"] if r["stage"] == "opened"]
        assert sum(r["reports"] for r in released) == len(asked) == 90


def test_an_unavailable_database_is_reported(tmp_path: Path) -> None:
    with sqlite_pair(tmp_path) as pair:
        digest = pair.begin()
        pair.step(2)
        assigned = pair.join(digest)
        halves = pair.shares(digest, assigned, 1)
        pair.stores[0].close()
        for file in tmp_path.glob("coordinator.db*"):
            file.rename(file.with_suffix(file.suffix + ".away"))
        (tmp_path / "coordinator.db").mkdir()
        with pytest.raises(Unavailable):
            pair.send(assigned, halves)
        (tmp_path / "coordinator.db").rmdir()
        for file in tmp_path.glob("*.away"):
            file.rename(file.with_suffix(""))
        pair.send(assigned, halves)


def test_lost_key_files_abort_the_round_and_reveal_nothing(tmp_path: Path) -> None:
    with sqlite_pair(tmp_path) as pair:
        digest = pair.begin()
        pair.step(2)
        asked = pair.participants(digest, 60)
        pair.report(digest, asked, WORTH.__getitem__)
        shutil.rmtree(tmp_path / "keys0")
        pair.restart()
        with pytest.raises(TacitError):
            pair.send(asked[0], pair.shares(digest, asked[0], 1), to=(0,))
        pair.clock.now += 200
        pair.step()
        stages = {r["stage"] for r in pair.coordinator.status(digest)["rounds"][:3]}
        assert stages == {"refused"}
        assert pair.coordinator.outcome(described(asked[0]).identity)[-1] == 3
        round_scheduler.step(pair.coordinator)
        assert pair.hold(digest, WORTH.__getitem__) > 0


def test_temporarily_missing_key_files_only_delay(tmp_path: Path) -> None:
    with sqlite_pair(tmp_path) as pair:
        digest = pair.begin()
        pair.step(2)
        asked = pair.participants(digest, 90)
        pair.report(digest, asked, WORTH.__getitem__)
        pair.clock.now += 200
        for role in (0, 1):
            (tmp_path / f"keys{role}").rename(tmp_path / f"away{role}")
            pair.step(2)
            (tmp_path / f"away{role}").rename(tmp_path / f"keys{role}")
        pair.step(3)
        rounds = pair.coordinator.status(digest)["rounds"]
        assert sum(one["reports"] or 0 for one in rounds) == len(asked) == 90


def test_a_late_list_leaves_no_state(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = pair.begin()
    pair.step(2)
    pair.report(digest, pair.participants(digest, 500), lambda _: 1)
    pair.clock.now += 200
    row = pair.helper.rounds(Stage.OPEN)[0]
    mine, theirs = (aggregator(one, row) for one in (pair.helper, pair.coordinator))
    listing = theirs.close(pair.helper.now)[theirs.peer]
    mine.close(pair.helper.now)
    before = mine._record()  # as another process saw it just before the end
    pair.step(4)
    assert before.stage is AggregatorStage.LISTED
    assert pair.helper.round(row.identity).stage is Stage.RELEASED
    with monkeypatch.context() as late:
        late.setattr(mine, "_record", lambda: before)
        mine.take(listing, pair.helper.now)  # and dies before it learns that the round is over
    for store in pair.stores:
        with store.read() as transaction:
            assert not transaction.rows(sql.select(shares))
