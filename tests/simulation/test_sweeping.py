"""Sweeps: the same results file with every engine, and nothing lost at any end."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.samples import HARMFUL_TOML, SMALL, SMALL_TOML, installed

from tacit import TacitError
from tacit.environments import FromFunction
from tacit.simulation import sweeping
from tacit.simulation.grid import read_study, study_of
from tacit.simulation.store import LOG, read_directory
from tacit.simulation.sweeping import ExecutionConfig, estimate, read_saved, run_study, sweep

posix = pytest.mark.skipif(os.name != "posix", reason="signals")
Sweeping = subprocess.Popen[str]
KILLED_TOML = """
algorithms = ["private-med", "ucb1"]
problems = {arms = 3, horizon = [200, 400]}
seeds = 100
"""
LARGE = Path(__file__).parents[2] / "benchmarks" / "sweeps.toml"


def command(*words: object, **how: Any) -> Sweeping:
    """A running sweep in its own process group."""
    return subprocess.Popen(
        [sys.executable, "-m", "tacit", "sweep", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
        **how,
    )


def group(pgid: int) -> list[int]:
    """The processes of a group that are alive."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == pgid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def content(out: Path) -> bytes:
    (path,) = out.glob("results.*")
    return path.read_bytes()


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The last file of the small study, made in one process."""
    out = tmp_path_factory.mktemp("reference")
    run_study(study_of(SMALL), ExecutionConfig(workers=0), out)
    return content(out)


@pytest.mark.extended
def test_one_worker_and_two_write_the_same_bytes(tmp_path: Path, reference: bytes) -> None:
    for workers in (1, 2):
        swept = run_study(
            study_of(SMALL), ExecutionConfig(workers=workers), tmp_path / str(workers)
        )
        assert (len(swept.rows), swept.failures, swept.before) == (20, [], 0)
        assert content(tmp_path / str(workers)) == reference


@posix
@pytest.mark.extended
@pytest.mark.parametrize("kills", [2, pytest.param(5, marks=pytest.mark.slow)])
def test_a_sweep_killed_at_random_times_ends_in_the_same_file(tmp_path: Path, kills: int) -> None:
    """However the moments fall: while workers load, and after cells were logged."""
    study, out, rng = tmp_path / "study.toml", tmp_path / "study", random.Random()
    study.write_text(KILLED_TOML)
    run_study(read_study(study), ExecutionConfig(workers=0, format="jsonl"), tmp_path / "whole")
    done: list[int] = []
    for kill in range(kills):
        process = command(study, "--workers", 2, "--format", "jsonl")
        wanted = lines_in(out) + rng.randrange(1, 80) if kill else 0  # first: while they load
        until(lambda: lines_in(out) >= wanted or process.poll() is not None)  # noqa: B023
        time.sleep(rng.uniform(0.0, 0.05 if kill else 0.3))
        process.kill()
        process.communicate()
        until(lambda: not group(process.pid), 5.0)  # noqa: B023
        cells = cells_in(out)
        if cells:
            logged = lines_in(out)
            assert not logged or logged - 2 <= len(cells) < logged, "a cell was done twice"
        assert set(done) <= set(cells), "what was done is not done any more"
        done = cells
    assert done
    last = command(study, "--workers", 2, "--format", "jsonl")
    _, err = last.communicate(timeout=120)
    assert last.returncode == 0, err
    assert content(out) == content(tmp_path / "whole")
    assert lines_in(out) == 1  # the header


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "never happened"
        time.sleep(0.05)


def lines_in(out: Path) -> int:
    """The lines of the log: a header and a line per cell, of which the last may be incomplete."""
    return len((out / LOG).read_bytes().splitlines()) if (out / LOG).exists() else 0


def cells_in(out: Path) -> list[int]:
    """The cells on disk; at most the last line of the log is damaged."""
    found = read_directory(out)
    assert found is None or found.unread <= 1
    return [] if found is None else list(found.rows)


@pytest.mark.extended
@posix
def test_an_interrupt_keeps_finished_cells_and_states_progress(tmp_path: Path) -> None:
    study, out = tmp_path / "study.toml", tmp_path / "study"
    study.write_text(SMALL_TOML.format(seeds=2000))
    process = command(study, "--workers", 1, "--format", "jsonl")
    until(lambda: lines_in(out) > 1)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    cells = cells_in(out)
    assert 0 < len(cells) < 20_000
    kept = f"{len(cells)} of 20000 cells are kept"
    assert err.splitlines()[-1] == f"tacit: interrupted, {kept}; the same command goes on"
    until(lambda: group(process.pid) == [])


@pytest.mark.extended
def test_a_failing_cell_is_reported_with_its_seed_and_others_finish(tmp_path: Path) -> None:
    """One raises an error, one ends its worker; both of an algorithm from outside."""
    study, out = tmp_path / "study.toml", tmp_path / "study"
    study.write_text(HARMFUL_TOML)
    env = installed(tmp_path / "site", HARM="yes")
    process = command(study, "--workers", 2, "--json", env=env)
    text, err = process.communicate(timeout=120)
    said = json.loads(text)
    assert process.returncode == 1
    assert [(one["algorithm"], one["seed"]) for one in said["failed"]] == [
        ("harmful", 3),
        ("harmful", 40),
    ]
    for one, expected in zip(
        said["failed"], ("ZeroDivisionError: at seed 3", "exit code 9"), strict=True
    ):
        assert expected in one["error"]
        told = f"tacit: cell {one['seed']} failed: harmful, seed {one['seed']}"
        assert any(line.startswith(told) and expected in line for line in err.splitlines())
    assert (said["cells"], said["done"]) == (120, 118)
    found = read_saved(out)
    assert [row["cell"] for row in found.rows] == [c for c in range(120) if c not in (3, 40)]
    assert [one["cell"] for one in found.failures] == [3, 40]
    assert "ZeroDivisionError" in found.failures[0]["trace"]
    mended = command(study, "--workers", 0, "--json", env=env | {"HARM": ""})
    said = json.loads(mended.communicate(timeout=60)[0])
    assert mended.returncode == 0
    assert (said["done"], said["done_before"], said["failed"]) == (120, 118, [])
    assert not (out / "failures.jsonl").exists()
    assert [row["cell"] for row in read_saved(out).rows] == list(range(120))


def test_a_finished_sweep_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of({"algorithms": ["ucb1"], "problems": {"arms": 3, "horizon": 100}, "seeds": 3})
    run_study(study, ExecutionConfig(workers=0), tmp_path)
    before = content(tmp_path)
    monkeypatch.setattr(sweeping, "run_here", None)
    again = run_study(study, ExecutionConfig(workers=0), tmp_path)
    assert (again.before, len(again.rows)) == (3, 3)
    assert content(tmp_path) == before
    assert list(again.results().rows()) == list(sweep(study, out=tmp_path, workers=0).rows())


def test_tacit_sweep_returns_results() -> None:
    results = sweep(
        algorithms=["private-med", "ucb1"],
        problems={"arms": 3, "horizon": 200},
        guarantees={"epsilon": [0.5, 2]},
        seeds=3,
        workers=0,
    )
    assert len(results) == 3
    assert results.column("algorithm") == ["private-med"] * 6 + ["ucb1"] * 3
    assert results.column("epsilon") == [0.5] * 3 + [2] * 3 + [None] * 3
    assert len(results.where(algorithm="private-med", epsilon=2).column("seed")) == 3
    assert [row["seed"] for row in results.rows()] == [0, 1, 2] * 3
    assert results[0].short == "(0.5, 0)-DP"
    assert results.failures == ()
    with pytest.raises(TacitError, match="a study and seeds are given"):
        sweep("study.toml", seeds=3)


def test_a_local_environment_is_swept_in_this_process() -> None:
    world = FromFunction(lambda arm, rng: float(rng.random() < 0.2 + arm / 4), 2)
    results = sweep(
        algorithms=["ucb1"], environments=[world], problems={"horizon": 50}, seeds=2, workers=2
    )
    assert results.column("environment") == ["FromFunction 1"] * 2


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"engine": "slurm"}, "engine is 'slurm': must be one of local, ray"),
        ({"workers": -1}, "workers is -1"),
        ({"address": "head:6379"}, "the engine is local. Use --engine ray, or leave"),
    ],
)
def test_an_unknown_engine_is_rejected(how: dict[str, Any], message: str) -> None:
    with pytest.raises(TacitError, match=message):
        sweep(algorithms=["ucb1"], **how)


def test_a_dry_run_counts_cells_and_measures_probes(tmp_path: Path) -> None:
    study = study_of(SMALL)
    found = estimate(study, ExecutionConfig(workers=2), tmp_path / "none")
    assert (found.cells, found.done, found.configurations, found.merged) == (20, 0, 10, 2)
    assert 1 <= found.probes <= 10
    assert 0 < found.core_seconds < 60
    assert found.seconds == pytest.approx(found.core_seconds / 2 + sweeping.START)
    assert not (tmp_path / "none").exists()
    one = estimate(study, ExecutionConfig(workers=1), None, budget=0.0)
    assert one.probes == 1
    run_study(study, ExecutionConfig(workers=0), tmp_path)
    assert estimate(study, ExecutionConfig(), tmp_path, budget=0.0).core_seconds == 0


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("ray"), reason="needs Ray")
def test_two_thousand_cells_agree_between_one_worker_two_and_ray(tmp_path: Path) -> None:
    files = {}
    for name, how in {
        "one": ("--workers", 1),
        "two": ("--workers", 2),
        "ray": ("--engine", "ray", "--address", "local"),
    }.items():
        process = command(LARGE, *how, "--json", "--out", tmp_path / name)
        text, err = process.communicate(timeout=1200)
        assert process.returncode == 0, err
        assert json.loads(text)["done"] == 2000
        files[name] = content(tmp_path / name)
    assert files["one"] == files["two"] == files["ray"]
