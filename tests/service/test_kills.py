"""kill -9 of either party at random times while devices retry: nothing is lost, released twice or
counted twice.

Every report is a power of two by its place, so that a sum, without the noise that the test chose
for the round, says exactly which reports are in it.
"""

from __future__ import annotations

import json
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sql
from tests.service.conftest import fresh
from tests.service.nursery import nursery
from tests.service.pairs import OPTIONS, Link, Pair, described, sqlite_pair
from tests.service.party import sources
from tests.service.served import (
    AGAIN,
    ROLES,
    STARTING,
    Joined,
    Process,
    Processes,
    again,
    kept,
    processes,
    wait_for,
)

from tacit.aggregation.aggregator_context import AggregatorStage, Draw, RoundRecord
from tacit.aggregation.collecting import _MADE as MADE
from tacit.aggregation.two_servers import split
from tacit.algorithms.registry import begin
from tacit.errors import Unavailable
from tacit.experiment import Experiment
from tacit.records import RecordDirectory
from tacit.service import schema
from tacit.service.answers import Snapshot
from tacit.service.timing import Timing
from tacit.terms import Aggregation, Answer, Noise, Pinned

pytestmark = pytest.mark.extended  # test_faults.py has crashes without processes

SEED = 20
LEVELS = 1 << 31  # a bit for every place
MINIMUM = 5  # the fewest reports that are released
TERMS: dict[str, Any] = {
    "answer": Answer("a number", levels=LEVELS, window=0),
    "noise": Noise(Fraction(LEVELS)),
    "aggregation": Aggregation(MINIMUM),
}
TIMING = Timing(joining=3, margin=2, grace=600)
LIFE = 2.0  # seconds that a party lives at most before it is killed
REST = 0.2  # and that it is dead
PACE = 0.2  # seconds at most before each share is sent: participants are about when parties die
OVER = (404, 410)  # a round takes no more
END = 1 << 30  # after the last round


def small() -> Experiment:
    """Twice three rounds of sixteen participants."""
    given = {"horizon": 100, "epsilon": 1, "levels": LEVELS, "smallest": MINIMUM}
    return begin("private-med", OPTIONS, trust="two-servers", binary=False, **given)


def noise_of(identity: bytes) -> int:
    """What both parties add to the sum of a round."""
    drawn = (sources(role, SEED)["noise"](identity)(Fraction(LEVELS)) for role in ROLES)
    return int(sum(drawn))


@dataclass
class Participants:
    """Devices of one experiment, which send the same bytes again until they are answered.

    By round, `acknowledged` are the places that got 204 from both parties and `sent` those that
    began to send to both. `ended` is what stands in key files of rounds that are over, and
    `planned` has the last round of every batch that was planned.
    """

    both: Processes
    digest: bytes
    pinned: Pinned
    acknowledged: dict[bytes, set[int]] = field(default_factory=lambda: defaultdict(set))
    sent: dict[bytes, set[int]] = field(default_factory=lambda: defaultdict(set))
    ended: dict[tuple[int, str], bytes] = field(default_factory=dict)
    planned: set[int] = field(default_factory=set)

    def come(self) -> None:
        """As many as there are places, from the first round to the last."""
        end = time.monotonic() + 5 * STARTING
        with ThreadPoolExecutor(8) as several:
            while self.look() == "running":
                assert time.monotonic() < end, "the experiment does not end"
                list(several.map(lambda _: self.take_part(), range(self.wanted())))
                time.sleep(5 * AGAIN)

    def wanted(self) -> int:
        """Slots that can still be taken, with a second to spare."""
        rounds = self.both.coordinator.status(self.digest)["rounds"]
        ending = time.time() + 1 + TIMING.margin
        return sum(
            one["places"] - one["given"]
            for one in rounds
            if one["stage"] == "open" and ending < one["closes"]
        )

    def take_part(self) -> None:
        """One device: a place, then both shares of its report. In the second rounds some report to
        the coordinator only, so that their deadline has to pass.
        """
        nonce = random.randbytes(16)
        joined = Joined.read(again(lambda: self.both.ask(self.digest, nonce)).json())
        if joined is None:
            return
        place, identity = joined.place.number, joined.round.identity
        shares = split(self.pinned, joined.announcement, joined.place, [1 << place])
        lost = place % 8 == 1 and len(self.planned) == 2
        if not lost:
            self.sent[identity].add(place)
        answers = []
        for role in (0,) if lost else (0, 1):
            time.sleep(random.uniform(0, PACE))
            answers.append(self._send(role, joined, shares[role]))
        if answers == [204, 204]:
            self.acknowledged[identity].add(place)

    def _send(self, role: int, joined: Joined, half: bytes) -> int:
        answer = again(lambda: self.both.put(role, joined.path, half))
        assert answer.status_code in (204, *OVER), answer.text
        return answer.status_code

    def look(self) -> str:
        """How far the experiment is. Nothing changes that is on record of a round that is over."""
        for role, party in enumerate(self.both.parties):
            assert isinstance(party.records, RecordDirectory)
            for name, content in over(party.records.directory, role):
                assert self.ended.setdefault((role, name), content) == content
        with self.both.coordinator.store.begin() as transaction:
            ((last, state),) = transaction.rows(_standing(self.digest))
        if last is not None:
            self.planned.add(int(last) if state == "running" else END)
        return str(state)

    def stages(self) -> set[str]:
        """Those of all rounds."""
        return {one["stage"] for one in self.both.coordinator.status(self.digest)["rounds"]}

    def check(self) -> dict[int, dict[str, Any]]:
        """Every released round is counted once, with what was acknowledged, and nothing that was
        not sent; the rounds by number, with the places in their sums and the order of closing.
        """
        seen = self.both.coordinator._snapshot(self.digest)
        rounds = self.both.coordinator.status(self.digest)["rounds"]
        turns = [one["round"] for one in json.loads(seen.row.history)]
        assert sorted(turns) == [one["number"] for one in rounds]
        for one in rounds:
            one |= {"in_sum": self.in_sum(one), "turn": turns.index(one["number"])}
        learned = sum(standing.participants for standing in seen.experiment.estimates())
        assert learned == sum(one["reports"] for one in rounds)
        return {one["number"]: one for one in rounds}

    def in_sum(self, one: Mapping[str, Any]) -> set[int]:
        """The places whose reports are in the sum of a round that is over."""
        if one["stage"] == "refused":
            assert len(self.acknowledged[bytes.fromhex(one["round"])]) < MINIMUM
            return set()
        assert one["stage"] == "opened"
        identity, (total,) = bytes.fromhex(one["round"]), one["sums"]
        places = _bits(int(total * LEVELS) - noise_of(identity))
        assert self.acknowledged[identity] <= places <= self.sent[identity]
        assert one["reports"] == len(places)
        return places


def _standing(digest: bytes) -> Any:
    """The last round planned, and the state."""
    rounds, experiments = schema.rounds, schema.experiments
    return sql.select(
        sql.select(sql.func.max(rounds.c.number)).where(rounds.c.terms == digest).scalar_subquery(),
        sql.select(experiments.c.state).where(experiments.c.lineage == digest).scalar_subquery(),
    )


def _bits(total: int) -> set[int]:
    """The places whose powers of two add up to this."""
    assert total >= 0
    return {place for place in range(total.bit_length()) if total >> place & 1}


def over(directory: Path, role: int) -> Iterator[tuple[str, bytes]]:
    """What key files say of rounds that are over: outcome and partial sum, and the collector's
    sum; nothing else is in them any more.
    """
    for file in directory.glob(f"{role:02x}*.record"):
        record = RoundRecord.decode(file.read_bytes())
        if record.stage is AggregatorStage.CLOSED:
            assert not record.secret
            yield file.name, record.outcome + record.partial
    for file in directory.glob(f"{b'c'.hex()}*.record"):
        if (content := file.read_bytes())[:1] != MADE:
            yield file.name, content


# Parties that are killed


def kill(process: Process, times: int, seed: int) -> None:
    """Ends a party again and again, also while it starts."""
    chance = random.Random(seed)
    for _ in range(times):
        if chance.random() < 0.8:
            process.ready()
        time.sleep(chance.uniform(0, LIFE))
        process.kill()
        time.sleep(chance.uniform(0, REST))
        process.launch()
    process.ready()


@contextmanager
def killing(both: Processes, times: int) -> Iterator[Callable[[], bool]]:
    """Kill each party so often; whether more kills remain."""
    with ThreadPoolExecutor(len(both.processes)) as killers:
        running = [killers.submit(kill, one, times, n) for n, one in enumerate(both.processes)]
        yield lambda: not all(one.done() for one in running)
        for one in running:
            one.result()


@contextmanager
def parties(
    directory: Path, database: Callable[[str], str], copies: int = 1
) -> Iterator[Processes]:
    urls = (database("coordinator"), database("helper"))
    with (
        nursery() as born,
        processes(directory, urls, SEED, make=born.process, copies=copies) as both,
    ):
        yield both


def group(both: Processes, number: int = 0, timing: Timing = TIMING) -> Participants:
    """An experiment that runs, and the participants for it."""

    def begun() -> bytes | None:
        try:
            return both.begin(small(), timing, question=f"Which one, time {number}?", **TERMS)
        except httpx.HTTPError:
            return None

    digest = wait_for(begun)
    return Participants(both, digest, both.coordinator.pinned(digest))


def survive(directory: Path, database: Callable[[str], str], times: int, copies: int = 1) -> None:
    """Experiments, one after the other, until each process was killed so often."""
    with parties(directory, database, copies) as both:
        groups = [group(both)]
        wait_for(groups[0].wanted)
        with killing(both, times) as more:
            groups[0].come()
            while more():
                groups.append(group(both, len(groups)))
                groups[-1].come()
        for number, one in enumerate(groups):
            assert one.look() == "finished"
            rounds = one.check()
            storm = one.both.coordinator._snapshot(one.digest)
            assert learned(storm) == learned(calm(directory / str(number), one, rounds))


def learned(seen: Snapshot) -> tuple[Any, ...]:
    """What an experiment knows, and how it stood after every round."""
    history = [one | {"time": None} for one in json.loads(seen.row.history)]
    sums = [(row.number, row.stage, row.reports, row.total) for row in seen.rounds]
    return seen.experiment.to_dict(), seen.row.leader, seen.row.state, sums, history


# The same without interruption


@dataclass
class InTurn(Link):
    """A helper that closes one round after the other."""

    turn: bytes = b""

    def exchange(self, identity: bytes, listing: bytes) -> tuple[bytes, bytes]:
        if identity != self.turn:
            raise Unavailable("it is not this round's turn")
        return super().exchange(identity, listing)


def calm(directory: Path, storm: Participants, rounds: Mapping[int, Mapping[str, Any]]) -> Snapshot:
    """What parties learn that nobody interrupts: from the same reports, with the same noise by
    number of the round and the same order of closing.
    """
    directory.mkdir()
    names: dict[bytes, bytes] = {}

    def noise(role: str) -> Callable[[bytes], Draw]:
        own = sources(role, SEED)["noise"]
        return lambda identity: lambda scale: int(own(names[identity])(scale))

    with sqlite_pair(
        directory, options={"noise": noise(ROLES[0])}, helper_options={"noise": noise(ROLES[1])}
    ) as pair:
        pair.link = InTurn(pair.helper)
        digest = pair.begin(small(), **TERMS)
        for _ in range(len(storm.planned) - 1):
            pair.step(2)
            phase = {
                bytes.fromhex(one["round"]): rounds[one["number"]]
                for one in pair.coordinator.status(digest)["rounds"]
                if one["stage"] == "open"
            }
            names |= {mine: bytes.fromhex(one["round"]) for mine, one in phase.items()}
            report(pair, digest, {mine: one["in_sum"] for mine, one in phase.items()})
            pair.clock.now += 200
            for pair.link.turn in sorted(phase, key=lambda mine: phase[mine]["turn"]):
                pair.step(2)
        return pair.coordinator._snapshot(digest)


def report(pair: Pair, digest: bytes, in_sum: Mapping[bytes, set[int]]) -> None:
    """Everybody who is wanted comes, and these places report; where there are none, some report to
    the coordinator only, so that the helper rejects the round in its turn.
    """
    rounds = pair.coordinator.status(digest)["rounds"]
    wanted = sum(one["places"] - one["given"] for one in rounds)
    for one in pair.participants(digest, wanted):
        assert one.slot is not None
        number, known = one.slot.number, in_sum[described(one).identity]
        if number in (known or range(MINIMUM)):
            to = (0, 1) if known else (0,)
            pair.send(one, pair.shares(digest, one, 1 << number), to)


# Claims


def test_killed_parties_lose_and_duplicate_nothing(
    database: Callable[[str], str], tmp_path: Path
) -> None:
    """Ten times each, over both databases together."""
    survive(tmp_path, database, 5)


def test_two_killed_processes_per_party_lose_and_duplicate_nothing(
    postgresql: str, tmp_path: Path
) -> None:
    """Four processes on two databases, three kills of each."""
    survive(tmp_path, fresh(postgresql), 3, copies=2)


@pytest.mark.slow
def test_a_hundred_kills_lose_and_duplicate_nothing(
    database: Callable[[str], str], tmp_path: Path
) -> None:
    survive(tmp_path, database, 100)


def test_an_unavailable_helper_only_delays(tmp_path: Path) -> None:
    """Away while participants report, and away when the deadline has passed; then the next
    rounds.
    """
    with nursery() as born, processes(tmp_path, seed=SEED, make=born.process) as both:
        one, helper = group(both, timing=replace(TIMING, joining=600)), both.processes[1]
        wait_for(lambda: one.stages() == {"open"})
        people = one.wanted() - 3
        helper.kill()
        with ThreadPoolExecutor(people) as everybody:
            sending = [everybody.submit(one.take_part) for _ in range(people)]
            wait_for(lambda: kept(both.coordinator) == people)
            helper.start()
            for person in sending:
                person.result()
        helper.kill()
        assert sum(map(len, one.acknowledged.values())) == people
        for process in both.processes:
            process.hurry(620)
        wait_for(lambda: "open" not in one.stages())
        wait_for(lambda: "helper is unreachable" in both.processes[0].log.read_text())
        assert "closing" in one.stages() <= {"closing", "opened"}
        helper.start()
        wait_for(one.wanted)
        rounds = both.coordinator.status(one.digest)["rounds"][:3]
        assert sum(len(one.in_sum(each)) for each in rounds) == people
