"""Runs over seeds: the same records in one process and in several, interrupts, and summaries."""

from __future__ import annotations

import csv
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.tables import extended_after

from tacit import __version__
from tacit.algorithms.registry import lookup
from tacit.errors import TacitError
from tacit.simulation import Result, Runs, Trial, over_seeds, simulate, write_csv
from tacit.simulation import seeds as seeding


class Stops:
    """A task that is interrupted at one seed; others take a moment."""

    def __init__(self, at: int, seconds: float = 0.0) -> None:
        self.at, self.seconds = at, seconds

    def __call__(self, seed: int) -> dict[str, Any]:
        if seed == self.at:
            raise KeyboardInterrupt
        time.sleep(self.seconds)
        return {"seed": seed, "process": os.getpid()}


def test_an_interrupt_keeps_and_logs_finished_runs(tmp_path: Path) -> None:
    path = tmp_path / "log" / "runs.jsonl"
    result = over_seeds(Stops(at=3), range(6), workers=1, path=path)
    assert result.interrupted
    assert [record["seed"] for record in result.records] == [0, 1, 2]
    assert [json.loads(line)["seed"] for line in path.read_text().splitlines()[1:]] == [0, 1, 2]


@pytest.mark.extended
def test_an_interrupt_in_a_worker_keeps_runs_of_other_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found: a run that ended together with the interrupt was thrown away."""
    monkeypatch.setattr(seeding, "WORTH_A_POOL", 0.0)
    path = tmp_path / "runs.jsonl"
    result = over_seeds(Stops(at=8, seconds=0.05), range(12), workers=2, path=path)
    assert result.interrupted
    assert result.asked == 12
    done = [record["seed"] for record in result.records]
    assert {0, 1, 2, 3, 4, 5, 6} <= set(done)
    assert 8 not in done
    assert len(done) < 12
    assert sorted(json.loads(line)["seed"] for line in path.read_text().splitlines()[1:]) == done


def test_other_errors_are_not_swallowed(tmp_path: Path) -> None:
    def fails(seed: int) -> dict[str, Any]:
        if seed == 1:
            raise ZeroDivisionError
        return {"seed": seed}

    path = tmp_path / "runs.jsonl"
    with pytest.raises(ZeroDivisionError):
        over_seeds(fails, range(3), workers=1, path=path)
    assert len(path.read_text().splitlines()) == 2


@pytest.mark.extended
@pytest.mark.parametrize("name", extended_after(1, ["dist-dp-se", "private-klucb", "thompson"]))
def test_processes_reproduce_records_bit_for_bit(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = lookup(name).make_problem({"arms": 4, "horizon": 5000, "rewards": "gaussian"})
    task = Trial(name, problem)
    alone = over_seeds(task, range(5), workers=1)
    monkeypatch.setattr(seeding, "WORTH_A_POOL", 0.0)
    together = over_seeds(task, range(5), workers=2)
    assert alone.records == together.records
    assert [record["seed"] for record in together.records] == list(range(5))


@pytest.mark.extended
def test_a_pool_is_used_when_it_pays_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeding, "WORTH_A_POOL", 0.0)
    assert (
        len(
            {
                record["process"]
                for record in over_seeds(Stops(at=-1, seconds=0.5), range(6), workers=2).records
            }
        )
        == 3
    )


@pytest.fixture(scope="module")
def result() -> Result:
    return simulate("private-klucb", means=(0.2, 0.5, 0.8), horizon=2000, runs=3, seed=5, workers=1)


def test_the_summary_contains_the_configuration(result: Result) -> None:
    summary = json.loads(json.dumps(result.summary()))
    for key in (
        "algorithm",
        "horizon",
        "regret_mean",
        "regret_sem",
        "time_average_regret",
        "guarantee",
        "bits_per_user",
        "seconds",
        "asked",
        "version",
        "runs",
    ):
        assert key in summary
    assert summary["algorithm"] == "private-klucb"
    finals = [run["final_regret"] for run in summary["runs"]]
    assert [run["seed"] for run in summary["runs"]] == [5, 6, 7]
    assert summary["regret_mean"] == pytest.approx(sum(finals) / 3)
    assert summary["time_average_regret"] == pytest.approx(sum(finals) / 3 / 2000)
    assert "(1, 0)-DP" in summary["guarantee"]["text"]
    assert summary["configuration"]["means"] == [0.2, 0.5, 0.8]
    assert summary["configuration"]["first_seed"] == 5
    assert not summary["interrupted"]
    assert summary["asked"] == 3
    assert summary["version"] == __version__


def test_tables_are_in_tidy_format(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "regret.csv"
    write_csv(path, result.curves())
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * len(result.checkpoints)
    assert {
        "algorithm",
        "seed",
        "round",
        "regret",
        "epsilon",
        "arms",
        "horizon",
        "growth",
        "trust",
        "rewards",
    } <= set(rows[0])
    assert {row["seed"] for row in rows} == {"5", "6", "7"}
    assert json.loads(rows[0]["means"]) == [0.2, 0.5, 0.8]
    last = [float(row["regret"]) for row in rows if row["round"] == "2000"]
    assert sum(last) / 3 == pytest.approx(result.regret_mean)
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(TacitError, match="a table needs at least one run"):
        write_csv(path, [])


def test_no_finished_run_is_an_error() -> None:
    with pytest.raises(TacitError, match="no run was finished"):
        Result("x", 1, {}, None, Runs([], 0.0, True))


def test_standard_errors_match_direct_computation() -> None:
    records = [
        {"seed": s, "checkpoints": [1, 2], "regret": [0.0, float(r)]}
        for s, r in enumerate((1, 2, 6))
    ]
    result = Result("x", 2, {}, None, Runs(records, 0.0, False))
    assert result.regret_mean == 3
    assert result.regret_sem == pytest.approx((((4 + 1 + 9) / 2) / 3) ** 0.5)
    mean, sem = result.curve()
    assert mean.tolist() == [0, 3]
    assert sem[1] == pytest.approx(result.regret_sem)
    assert Result("x", 2, {}, None, Runs(records[:1], 0.0, False)).regret_sem is None
