"""Agents and coordinator that crash at any commit: no noise drawn twice, all rows released."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.silos.harness import WARD, LocalFederation

from tacit.errors import Rejected
from tacit.records import MemoryRecords
from tacit.silos import silo_masking
from tacit.silos.agent import RecordedEvaluations, SiloAgent
from tacit.silos.coordinator import SiloAbsent
from tacit.silos.database import SiloDatabase
from tacit.silos.evaluation import FIRST, EvaluationRequest, estimate
from tacit.silos.exchange import InProcessExchange
from tacit.silos.exported import ExportedPolicy
from tacit.silos.federation import SyncSchedule
from tacit.silos.messages import COORDINATOR, SiloMessage, SyncStage
from tacit.silos.recorded import RecordedTable

BATCH, ROWS = 2, 2
SCHEDULE = SyncSchedule(horizon=BATCH * ROWS, sync=BATCH, kind="fixed")


TABLE = RecordedTable(
    WARD,
    tuple({"age": 20 + n, "severe": n % 2 == 0} for n in range(20)),
    tuple(n % 2 for n in range(20)),
    np.ones(20),
    np.ones(20),
    np.full(20, 0.5),
)
REQUEST = EvaluationRequest(
    ExportedPolicy(WARD, 1, np.array([[0.5, 0.0, -0.2], [0.5, 0.0, 0.2]])).to_json(),
    "clipped-ips",
    Fraction(4),
    20,
    Fraction(8),  # little noise: the noisy number of records stays positive
    Fraction(1, 10**5),
)


class Stopped(BaseException):
    """The process stops here."""


class Boundaries:
    """Counts commits and stops the process right before or after one of them."""

    def __init__(self, stop: int | None) -> None:
        self.count, self.stop = 0, stop

    def around(self, act: Callable[..., Any]) -> Callable[..., Any]:
        """The function with a boundary on either side."""

        def bounded(*given: Any) -> Any:
            self._pass()
            result = act(*given)
            self._pass()
            return result

        return bounded

    def _pass(self) -> None:
        self.count += 1
        if self.count == self.stop:
            raise Stopped


@contextmanager
def bounded(stop: int | None) -> Iterator[tuple[Boundaries, dict[Any, set[tuple[int, ...]]]]]:
    """Stop at a boundary; note every message that is ever masked, by silo and row."""
    passed = Boundaries(stop)
    masked: dict[Any, set[tuple[int, ...]]] = {}
    with pytest.MonkeyPatch.context() as patch:
        for kind, name in ((SiloDatabase, "_commit"), (MemoryRecords, "replace")):
            patch.setattr(kind, name, passed.around(getattr(kind, name)))
        start = silo_masking.SiloMasking.__init__

        def noted(self: Any, pinned: Any, key: Any, asked: Any, values: Any) -> None:
            masked.setdefault((asked.recipient, asked.step), set()).add(tuple(values))
            start(self, pinned, key, asked, values)

        patch.setattr(silo_masking.SiloMasking, "__init__", noted)
        yield passed, masked


class Restarting(InProcessExchange):
    """An agent that stops is absent for this message, and starts anew."""

    def __init__(self, federation: LocalFederation) -> None:
        super().__init__(federation.exchange().responders)
        self.federation = federation

    def exchange(self, stage: str, messages: Any, deadline: float) -> Any:
        answers: dict[str, bytes] = {}
        for name, message in messages.items():
            try:
                answers |= super().exchange(stage, {name: message}, deadline)
            except Stopped:
                self.federation.restart(self.federation.terms.number(name))
        return answers


def run_with_a_stop(folder: Path, stop: int | None) -> int:
    """Run a federation that stops once; return the number of boundaries."""
    with bounded(None):
        federation = LocalFederation.of(3, folder=folder, schedule=SCHEDULE)
        federation.recorded = RecordedEvaluations(TABLE, Fraction(8), Fraction(1, 10**5))
        for number in range(3):
            federation.restart(number)
    played: set[int] = set()
    with bounded(stop) as (passed, masked):
        exchange = Restarting(federation)
        for _ in range(40):
            try:
                coordinator = federation.coordinator(exchange)
                while not coordinator.finished:
                    coordinator.deliver()
                    if coordinator.step not in played:
                        play(federation, played, coordinator.step)
                    coordinator.synchronise()
                coordinator.deliver()
                coordinator.evaluate(REQUEST)
                break
            except (Stopped, SiloAbsent):
                continue
        boundaries = passed.count
    check(federation, masked)
    return boundaries


def play(federation: LocalFederation, played: set[int], step: int) -> None:
    """Two patients per silo; a crashed agent is restarted, and its patient repeated."""
    played.add(step)
    for number in range(3):
        for _ in range(BATCH):
            for _attempt in range(3):
                agent = federation.agents[f"silo{number}"]
                try:
                    decision = agent.decide({"age": 50, "severe": True})
                    agent.record(decision, 1)
                    break
                except Stopped:
                    federation.restart(number)


def check(federation: LocalFederation, masked: dict[Any, set[tuple[int, ...]]]) -> None:
    """Every row is the sum of the messages that each silo committed, once."""
    coordinator = federation.coordinator()
    assert coordinator.step == ROWS
    steps = (*range(ROWS), FIRST)
    assert set(masked) == {(silo + 1, step) for silo in range(3) for step in steps}
    assert all(len(values) == 1 for values in masked.values())
    mechanism: Any = coordinator.experiment.mechanism
    for step in range(ROWS):
        rows = [agent._database.rows()[step] for agent in federation.agents.values()]
        words = np.array([np.frombuffer(row.message or b"", np.uint64) for row in rows])
        total = words.sum(axis=0, dtype=np.uint64).view(np.int64) / mechanism.sums.scale
        np.testing.assert_array_equal(mechanism.released[step], total)
        assert len({row.survivors for row in rows}) == 1
    check_evaluation(federation)
    for agent in federation.agents.values():
        entered = agent._database._connection.execute(
            "SELECT COUNT(*) FROM decisions WHERE row IS NOT NULL"
        ).fetchone()[0]
        assert entered <= BATCH * ROWS


def check_evaluation(federation: LocalFederation) -> None:
    """The evaluation is charged once, and its result is that of the committed messages."""
    stored = [agent._database.evaluations() for agent in federation.agents.values()]
    assert all(set(one) == {0} for one in stored)
    words = np.array([np.frombuffer(one[0][1], np.uint64) for one in stored])
    sums = REQUEST.sums(federation.terms)
    total = words.sum(axis=0, dtype=np.uint64).view(np.int64) / sums.scale
    found = federation.coordinator().evaluate(REQUEST)  # from the records: nobody is asked
    assert found == estimate(REQUEST, sums, total)


@pytest.fixture
def boundaries(tmp_path: Path) -> int:
    (tmp_path / "whole").mkdir()
    return run_with_a_stop(tmp_path / "whole", None)


@pytest.mark.extended
def test_a_crash_at_some_steps_draws_and_charges_nothing_twice(
    tmp_path: Path, boundaries: int
) -> None:
    assert boundaries > 60
    for stop in range(3, boundaries, 41):
        folder = tmp_path / str(stop)
        folder.mkdir()
        run_with_a_stop(folder, stop)


@pytest.mark.extended
def test_a_crash_at_every_step_draws_and_charges_nothing_twice(
    tmp_path: Path, boundaries: int
) -> None:
    for stop in range(1, boundaries + 1):
        folder = tmp_path / str(stop)
        folder.mkdir()
        run_with_a_stop(folder, stop)


def copied(federation: LocalFederation, folder: Path) -> bytes:
    """A copy of the database of silo 0."""
    federation.agents["silo0"]._database._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return (folder / "silo0.sqlite").read_bytes()


def restored_from(copy: bytes, federation: LocalFederation, folder: Path) -> SiloAgent:
    """The agent of silo 0 with a copy of its database, and with its records."""
    federation.agents["silo0"]._database.close()
    for left in folder.glob("silo0.sqlite*"):
        left.unlink()
    (folder / "silo0.sqlite").write_bytes(copy)
    return federation.restart(0)


def test_a_restored_database_draws_no_noise_twice(tmp_path: Path) -> None:
    federation = LocalFederation.of(3, folder=tmp_path, schedule=SCHEDULE)
    coordinator = federation.coordinator()
    coordinator.deliver()
    copy = copied(federation, tmp_path)
    coordinator.synchronise()
    restored = restored_from(copy, federation, tmp_path)
    assert restored.status()["rows"] == 0
    federation.records["coordinator"] = MemoryRecords()  # the coordinator colludes: row 0 again
    other = federation.coordinator()
    with pytest.raises(SiloAbsent):
        other.synchronise()
    with pytest.raises(Rejected, match="row 0 is on record: the database was restored"):
        restored._row(0)
    assert restored.status()["rows"] == 0
    restored._commit(0, [])  # as a process that had asked before the record was written
    with pytest.raises(Rejected, match="has another message on record"):
        restored._row(0)


@pytest.mark.parametrize("rows", [1, 2])
def test_a_restored_database_uses_no_record_in_two_rows(tmp_path: Path, rows: int) -> None:
    """Also where the terms let silos miss rows: the released ones are none of those."""
    schedule = SyncSchedule(horizon=40)
    federation = LocalFederation.of(4, folder=tmp_path, missing=1, schedule=schedule)
    coordinator = federation.coordinator()
    coordinator.deliver()
    federation.play(3, np.random.default_rng(5))
    copy = copied(federation, tmp_path)
    for _ in range(rows):
        coordinator.synchronise()
        coordinator.deliver()
    assert federation.agents["silo0"].status()["synchronised"] > 0
    restored = restored_from(copy, federation, tmp_path)
    coordinator.deliver()
    coordinator.synchronise()
    assert coordinator.step == rows + 1  # without the restored silo
    status = restored.status()
    assert (status["policy"], status["rows"], status["synchronised"]) == (0, 0, 0)


@pytest.mark.parametrize("retried", [False, True])
def test_a_restored_database_hides_no_charge(tmp_path: Path, retried: bool) -> None:
    """Also not behind the number of an evaluation that was rejected without a charge."""
    federation = LocalFederation.of(3, folder=tmp_path, schedule=SCHEDULE)
    budget = RecordedEvaluations(TABLE, 2 * REQUEST.epsilon, Fraction(1, 10**4))
    poor = RecordedEvaluations(TABLE, REQUEST.epsilon / 2, Fraction(1, 10**4))
    federation.recorded = poor if retried else budget
    federation.restart(0)
    agent, empty = federation.agents["silo0"], copied(federation, tmp_path)
    asked = SiloMessage(federation.terms.digest, SyncStage.EVALUATE, FIRST, COORDINATOR, 1)

    def evaluate(agent: SiloAgent, number: int, request: EvaluationRequest) -> None:
        message = replace(asked, step=FIRST + number, payload=request.encode())
        agent.respond("EVALUATE", message.encode(federation.key))
        agent._row(FIRST + number)  # as JOIN does before the message is masked

    first = REQUEST if retried else replace(REQUEST, epsilon=Fraction(100))
    second = replace(REQUEST, epsilon=2 * REQUEST.epsilon)
    with pytest.raises(Rejected, match="the budget of this silo"):
        evaluate(agent, 0, first)
    if retried:  # with a larger budget, and then the first one's charge is lost
        empty, federation.recorded = copied(federation, tmp_path), budget
        agent = federation.restart(0)
        evaluate(agent, 0, first)
    else:
        evaluate(agent, 1, second)
    restored = restored_from(empty, federation, tmp_path)
    number = int(retried)
    with pytest.raises(Rejected, match="evaluation 0 is on record: the database was restored"):
        evaluate(restored, number, second)
    assert restored.status()["evaluations"] == 0
