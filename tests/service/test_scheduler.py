"""The round scheduler: reads per step, and compare-and-swap of rounds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.service.deployed import definition_of, deployed
from tests.service.fronted import small
from tests.service.pairs import Pair, sqlite_pair

from tacit.errors import TacitError, Unavailable
from tacit.experiment import Experiment
from tacit.service import answers, coordinator, round_scheduler
from tacit.service.schema import LIVE, ExperimentRow, Stage
from tacit.terms import Terms


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with sqlite_pair(tmp_path) as made:
        yield made


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for every experiment that is deserialized."""
    found: list[str] = []
    read = Experiment.from_dict

    def counted(data: Any) -> Experiment:
        found.append("read")
        return read(data)

    monkeypatch.setattr(Experiment, "from_dict", counted)
    return found


def test_a_step_reads_an_experiment_once_to_plan_and_announce_all_its_rounds(
    pair: Pair, reads: list[str]
) -> None:
    pair.begin()
    reads.clear()
    round_scheduler.step(pair.coordinator)
    assert len(pair.coordinator.rounds(Stage.OPEN)) == 3
    assert len(reads) == 1


@pytest.mark.parametrize("away", [False, True])
def test_no_other_thread_gets_an_experiment_while_its_rounds_are_described(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, away: bool
) -> None:
    pair.begin()
    kept: list[int] = []
    keys = pair.link.keys

    def asked(*about: Any) -> Any:
        kept.append(len(pair.coordinator._experiments))
        if away:
            raise Unavailable("down")
        return keys(*about)

    monkeypatch.setattr(pair.link, "keys", asked)
    for _ in range(2):
        round_scheduler.step(pair.coordinator)
    assert set(kept) == {0}
    assert len(pair.coordinator._experiments) == 1


@pytest.mark.parametrize("another", [False, True])
def test_an_experiment_is_read_once_to_learn_and_only_if_another_process_planned_it(
    pair: Pair, reads: list[str], another: bool
) -> None:
    digest = reported(pair)
    if another:
        pair.restart()
    reads.clear()
    for _ in range(3):
        round_scheduler.step(pair.coordinator)
    assert len(pair.coordinator.rounds(Stage.RELEASED)) == 3
    assert len(reads) == another
    learned = pair.coordinator.status(digest)
    assert learned["people"]["reported"] == sum(one["reports"] for one in learned["rounds"])


def test_rolled_back_learning_is_not_cached(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, reads: list[str]
) -> None:
    digest, moment, failures = reported(pair), answers.moment, [True]

    def failing(*given: Any) -> Any:
        if failures:
            failures.clear()
            raise TacitError("the disk is full")
        return moment(*given)

    monkeypatch.setattr(answers, "moment", failing)
    reads.clear()
    for _ in range(3):
        round_scheduler.step(pair.coordinator)
    assert len(reads) == 1
    told = pair.coordinator.estimates(digest)["options"]
    slots = {one["option"]: one["reports"] for one in pair.coordinator.status(digest)["rounds"]}
    assert {one["option"]: one["participants"] for one in told} == slots


def reported(pair: Pair) -> bytes:
    """An experiment whose first rounds are full, and that plans no others."""
    digest = pair.begin()
    pair.step(1)
    slots = sum(row.slots for row in pair.coordinator.rounds(Stage.OPEN))
    pair.report(digest, pair.participants(digest, slots), lambda _option: 1)
    pair.coordinator.pause(digest)
    return digest


class Dropped(dict[bytes, int]):
    """Counts that a step drops as soon as a commit has found them."""

    def __contains__(self, _name: object) -> bool:
        return True


def test_a_count_that_a_step_drops_during_a_commit_rejects_no_report(pair: Pair) -> None:
    """The reports of a whole group were stored, and answered as not stored."""
    digest = pair.begin()
    pair.step(1)
    pair.coordinator._missing = Dropped()
    pair.report(digest, pair.participants(digest, 2), lambda _option: 1)


@pytest.mark.parametrize("answer", ["status", "estimates", "export", "view", "public"])
def test_an_answer_uses_the_experiment_in_memory_and_leaves_it_unchanged(
    pair: Pair, reads: list[str], answer: str
) -> None:
    digest = reported(pair)
    for _ in range(3):
        round_scheduler.step(pair.coordinator)
    reads.clear()
    first = getattr(pair.coordinator, answer)(digest)
    ((stored, kept),) = pair.coordinator._experiments.values()
    assert (getattr(pair.coordinator, answer)(digest), reads) == (first, [])
    assert json.loads(json.dumps(kept.to_dict())) == json.loads(stored)
    pair.restart()
    assert getattr(pair.coordinator, answer)(digest) == first


def test_a_step_without_work_reads_no_experiment(pair: Pair, reads: list[str]) -> None:
    pair.begin()
    pair.step(1)
    reads.clear()
    round_scheduler.step(pair.coordinator)
    assert reads == []


def test_a_round_that_fails_to_be_observed_delays_no_other_experiment(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (pair.begin(question=question) for question in ("Which first?", "And then?"))
    pair.step(1)
    moment = answers.moment

    def rejected(now: int, terms: Terms, *more: Any) -> Any:
        if terms.digest == first:
            raise TacitError("nothing can be learned from this round")
        return moment(now, terms, *more)

    monkeypatch.setattr(answers, "moment", rejected)
    pair.clock.now += 200
    pair.step(3)
    stages = {
        digest: {one["stage"] for one in pair.coordinator.status(digest)["rounds"]}
        for digest in (first, second)
    }
    assert stages[first] == {"closing"}
    assert "refused" in stages[second]


def test_an_unreadable_experiment_delays_no_other(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (pair.begin(question=question) for question in ("Which first?", "And then?"))
    read = coordinator.load

    def load(row: ExperimentRow) -> Experiment:
        if row.digest == first:
            raise TacitError("the experiment has format 3: begin a new experiment")
        return read(row)

    monkeypatch.setattr(coordinator, "load", load)
    assert round_scheduler.step(pair.coordinator) <= 1
    assert {row.terms for row in pair.coordinator.rounds(Stage.OPEN)} == {second}
    assert f"experiment {first.hex()} failed to plan rounds" in caplog.text


@pytest.mark.parametrize(("where", "after"), [("propose", Stage.OPEN), ("skip", Stage.ABORTED)])
def test_an_error_of_one_experiments_algorithm_stalls_no_other(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, where: str, after: Stage
) -> None:
    """An algorithm from outside tacit may divide by zero, for instance by a poisoned sum."""
    digests = sorted(pair.begin(question=question) for question in ("Which first?", "And then?"))
    if where == "skip":
        pair.step(1)
        pair.clock.now += 200

    def broken(*_about: Any) -> Any:
        raise ZeroDivisionError

    read = coordinator.load

    def load(row: ExperimentRow) -> Experiment:
        found = read(row)
        if row.digest == digests[0]:
            monkeypatch.setattr(found, where, broken)
        return found

    monkeypatch.setattr(coordinator, "load", load)
    pair.coordinator._experiments.clear()
    for _ in range(4):
        with pytest.raises(ZeroDivisionError):
            round_scheduler.step(pair.coordinator)
        pair.helper.step()
    found = pair.coordinator.rounds(*Stage)
    stages = [{row.stage for row in found if row.terms == digest} for digest in digests]
    assert after in stages[1]
    assert after not in stages[0]


def test_a_damaged_key_file_of_one_round_stalls_no_other_at_the_helper(tmp_path: Path) -> None:
    with deployed(small("shuffler"), tmp_path) as one:
        one.step(2)
        one.restart()
        assert one.helper is not None
        rows = one.helper.rounds(Stage.OPEN)
        (damaged,) = tmp_path.glob(f"keys1/*{rows[0].identity.hex()}.record")
        damaged.write_bytes(b"\xff")
        one.clock.now += 10_000_000
        for _ in range(2):
            with pytest.raises(ValueError, match="255"):
                one.helper.step()
        assert [row.identity for row in one.helper.rounds(*LIVE)] == [rows[0].identity]


def test_a_round_is_replaced_by_compare_and_swap(pair: Pair) -> None:
    pair.begin()
    pair.step(1)
    row = pair.coordinator.rounds(Stage.OPEN)[0]
    closing = replace(row, stage=Stage.CLOSING)
    described = replace(row, announcement=b"another")
    with pair.coordinator.store.begin() as transaction:
        assert not transaction.replace_round(described, replace(described, number=7))
        assert transaction.replace_round(row, closing)
        assert not transaction.replace_round(row, closing)
    assert pair.coordinator.round(row.identity) == closing


def test_slots_assigned_concurrently_survive_the_replacement_of_a_round(pair: Pair) -> None:
    digest = pair.begin()
    pair.step(1)
    before = {row.identity: row for row in pair.coordinator.rounds(Stage.OPEN)}
    asked = len(pair.participants(digest, 5))
    with pair.coordinator.store.begin() as transaction:
        for row in before.values():
            assert transaction.replace_round(row, replace(row, stage=Stage.CLOSING))
    closing = pair.coordinator.rounds(Stage.CLOSING)
    assert sum(row.assigned for row in closing) == asked == 5


def test_a_step_with_open_rounds_writes_nothing(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = pair.begin()
    pair.step(1)
    pair.participants(digest, 1)

    def begin() -> None:
        raise AssertionError("a step writes")

    monkeypatch.setattr(pair.coordinator.store, "begin", begin)
    round_scheduler.step(pair.coordinator)


def test_only_a_possibly_last_report_triggers_a_step(tmp_path: Path) -> None:
    with deployed(definition_of("local"), tmp_path) as one:
        one.step(2)
        asked = one.join(sum(row.slots for row in one.coordinator.rounds(Stage.OPEN)))
        first, *others = [a for a in asked if one.identity(a) == one.identity(asked[0])]
        name, full = one.identity(first), one.coordinator.may_be_full
        one.send([(first, one.report(first, 1))])
        one.step()
        for n, other in enumerate(others, 2):
            assert not full(name)
            one.send([(other, one.report(other, 1))])
            if n == 5:  # a count by another process, which took none of these
                one.restart()
                full = one.coordinator.may_be_full
                assert full(name)
                one.step()
        assert full(name)
        one.step()
        assert name in {row.identity for row in one.coordinator.rounds(Stage.RELEASED)}
