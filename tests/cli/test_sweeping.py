"""The commands sweep and report: printed output, rejections and written files."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
from tests.cli.commands import Command, rejected, result
from tests.simulation.samples import SMALL_TOML
from tests.tables import each_row

STUDY = """
algorithms = ["private-med", "ucb1"]
problems = {arms = 3, horizon = 200}
guarantees = {epsilon = [0.5, 2]}
seeds = 2
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    return path


@pytest.mark.extended
def test_a_sweep_and_its_report_take_two_commands(command: Command, study: Path) -> None:
    code, out, err = command("sweep", study, "--workers", 0)
    assert (code, err) == (0, "")
    assert "done: 6 cells" in out
    assert "private-med   ε 0.5" in out
    out_dir = study.with_suffix("")
    assert (out_dir / "log.jsonl").exists()
    again = result(command("sweep", study, "--workers", 0, "--json"))
    assert (again["cells"], again["done"], again["done_before"]) == (6, 6, 6)
    assert len(again["configurations"]) == 3
    guarantee = next(row for row in again["configurations"] if row["asked"] == "ε 0.5")["guarantee"]
    assert (guarantee["epsilon"], guarantee["participations"]) == (0.5, 1)
    assert Path(again["results"]).exists()
    told = result(command("report", out_dir, "--json"))
    assert {Path(path).name for path in told.values()} == {"report.html", "summary.csv", "runs.csv"}
    assert "sweep" in json.loads((out_dir / "log.jsonl").read_text())["command"]


@pytest.mark.extended
def test_a_sweep_prints_requested_and_achieved_guarantees(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    asked = {"algorithms": "['dist-dp-se']", "problems": "{arms = 2, horizon = 200}", "seeds": 1}
    lines = [f"{name} = {value}" for name, value in asked.items()]
    path.write_text("\n".join([*lines, "guarantees = {epsilon = 1, constants = 'paper'}"]))
    _, out, _ = command("sweep", path, "--workers", 0)
    assert re.search(r"requested +guarantee", out)
    assert "(1.366, 0)-DP" in out


def test_a_dry_run_states_its_size_and_writes_nothing(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(SMALL_TOML.format(seeds=1000))
    code, out, err = command("sweep", path, "--dry-run", "--workers", 4)
    assert (code, err) == (0, "")
    assert "probe cell" in out
    assert "10,000" in out
    assert "with 4 workers" in out
    assert "10 (2 more are equal to others)" in out
    assert [each.name for each in tmp_path.iterdir()] == ["study.toml"]


@each_row(
    ("words", "message"),
    [
        (("sweep",), "Missing argument 'study'"),
        (("sweep", "none.toml"), "none.toml cannot be read (No such file or directory)"),
        (("sweep", "study.toml", "--workers", "-2"), "workers is -2"),
        (("sweep", "study.toml", "--workers", "two"), "'two' is not a whole number"),
        (("sweep", "study.toml", "--engine", "slurm"), "engine is 'slurm': must be one of"),
        (("sweep", "study.toml", "--address", "head:1"), "the engine is local. Use --engine ray"),
        (("sweep", "study.toml", "--format", "xls"), "format is 'xls': must be one of auto,"),
        (("sweep", "study.toml", "--out", "study.toml"), "a file is in the way"),
        (("report", "."), "no finished run in log.jsonl. Give the directory of a sweep"),
    ],
)
def test_invalid_arguments_give_one_line_and_exit_code_2(
    command: Command,
    study: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(study.parent)
    assert message in rejected(command(*words))
    assert [path.name for path in study.parent.iterdir()] == ["study.toml"]


def test_an_invalid_study_gives_one_line_and_writes_nothing(command: Command, study: Path) -> None:
    study.write_text(STUDY.replace("epsilon", "epsilom"))
    said = rejected(command("sweep", study))
    assert said == (
        "tacit: study.toml: guarantees[1].epsilom is not an option of private-med, ucb1; "
        "did you mean epsilon?\n"
    )
    assert not study.with_suffix("").exists()


def test_a_changed_study_is_rejected_in_its_old_directory(command: Command, study: Path) -> None:
    command("sweep", study, "--workers", 0)
    study.write_text(STUDY.replace("seeds = 2", "seeds = 3"))
    said = rejected(command("sweep", study, "--workers", 0))
    assert "holds runs of another study: seeds (there 2, here 3). Choose" in said
    assert "another study" in rejected(command("sweep", study, "--dry-run"))


def test_without_ray_the_engine_says_what_to_install(
    command: Command, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    said = rejected(command("sweep", study, "--engine", "ray"))
    assert "ray is missing. Install it with pip install 'tacit[ray]'" in said


def test_without_pyarrow_results_are_lines_of_json(
    command: Command, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert "pip install 'tacit[parquet]'" in rejected(
        command("sweep", study, "--workers", 0, "--format", "parquet", "--out", study.parent / "p")
    )
    found = result(command("sweep", study, "--workers", 0, "--json"))
    assert found["results"].endswith("results.jsonl")
    assert os.listdir(study.with_suffix(""))  # noqa: PTH208
