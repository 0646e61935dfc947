"""Recorded tables of silos in simulation: replay by rejection, and simulated evaluation."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.silos.harness import WARD
from tests.silos.test_recorded import CHANCE, POLICY, TRUTH, lines, request
from typer.testing import CliRunner

from tacit.bandits.contextual.linucb import LinUCBPolicy
from tacit.cli import app
from tacit.environments.recorded import OutOfData
from tacit.environments.silo_logs import RecordedSilos, SiloLog
from tacit.errors import TacitError
from tacit.silos.evaluation import estimate
from tacit.silos.recorded import RecordedTable
from tacit.silos.replays import read_replay
from tacit.simulation import simulate
from tacit.types import Round

DECLARED = """\
logs = [{logs}]
floor = {floor}
actions = ["drug", "surgery"]
[outcome]
meaning = "recovered, 0 or 1"
[[columns]]
name = "age"
low = 20
high = 80
[[columns]]
name = "severe"
kind = "boolean"
"""


def write(folder: Path, rows: int = 300, silos: int = 3, floor: float = min(CHANCE)) -> Path:
    """Tables of silos and the file that declares them."""
    for number in range(silos):
        text = "\n".join(lines(np.random.default_rng(number), rows))
        (folder / f"log{number}.csv").write_text(text)
    path = folder / "logs.toml"
    logs = ", ".join(f'"log{number}.csv"' for number in range(silos))
    path.write_text(DECLARED.format(logs=logs, floor=floor))
    return path


def policy(parameter: list[float], steps: int) -> LinUCBPolicy:
    """A policy that does not explore."""
    d = len(parameter)
    gram = tuple(tuple(row) for row in np.eye(d).tolist())
    return LinUCBPolicy(tuple(parameter), gram, (0.0,) * steps, lazy=True)


def test_accepted_rows_have_the_distribution_of_the_policy() -> None:
    """Two kinds of participants, of whom action 1 helps the second; it was logged for 1 in 5 of
    the first and 4 in 5 of the second. The policy always takes action 1: of its accepted rows half
    are of either kind, which among logged ones only 1 in 5 are. False positive rate 1e-6."""
    rng, rows, steps, floor = np.random.default_rng(3), 20_000, 800, 0.2
    logs = []
    for _ in range(2):
        kind = rng.integers(0, 2, rows)
        chance = np.where(kind == 1, 0.8, 0.2)
        actions = (rng.random(rows) < chance).astype(np.int64)
        taken = np.where(actions == 1, chance, 1 - chance)
        tables = np.zeros((rows, 2, 2))
        tables[:, 1, 0], tables[:, 1, 1] = 0.5, 0.5 * kind
        logs.append(SiloLog(tables, actions, kind.astype(float), taken))
    run = RecordedSilos(tuple(logs), floor).fresh(rng)
    played = run.play(Round(0, 2, policy([1.0, 0.0], steps)), None, rng)
    accepted = played.notes["accepted"]
    assert accepted == 2 * steps
    ones = int(played.notes["earned"])
    assert stats.binomtest(ones, 2 * steps, 0.5).pvalue > 1e-6
    assert stats.binomtest(2 * steps, run.used, floor).pvalue > 1e-6
    assert played.regret is None


def test_each_row_is_used_at_most_once_and_the_run_ends_with_the_rows() -> None:
    rng, rows = np.random.default_rng(4), 50
    tables = np.full((rows, 2, 2), 0.5)
    log = SiloLog(tables, np.zeros(rows, dtype=np.int64), np.ones(rows), np.ones(rows))
    world = RecordedSilos((log, log), 1.0)
    run = world.fresh(rng)
    first = run.play(Round(0, 2, policy([1.0, 1.0], 30)), None, rng)
    assert (run.used, first.notes["earned"]) == (60, 60)
    with pytest.raises(OutOfData, match="no further match"):
        run.play(Round(1, 2, policy([1.0, 1.0], 30)), None, rng)
    with pytest.raises(TacitError, match=r"begin a run with fresh\(rng\)"):
        world.play(Round(0, 2, policy([1.0, 1.0], 30)), None, rng)


@pytest.mark.extended
@pytest.mark.parametrize("algorithm", ["fedlinucb", "secagg-fedlinucb", "ldp-fedlinucb"])
def test_a_simulation_reports_mean_rewards_and_no_regret(tmp_path: Path, algorithm: Any) -> None:
    replay = read_replay(write(tmp_path, 450))
    world = replay.world()
    result = simulate(algorithm, world, runs=2, workers=1)
    assert (world.silos, world.dimension, world.horizon) == (3, 6, int(0.95 * 0.3 * 300))
    summary = result.summary()
    assert summary["regret_mean"] is None
    assert 0.3 < summary["reward_mean"] < 0.95
    for run in result.runs:
        assert run["rows_used"] <= world.rows
        assert replay.policy(run).effects.shape == (2, 3)
    again = simulate(algorithm, world, runs=2, workers=1)
    assert [run["learned"] for run in again.runs] == [run["learned"] for run in result.runs]


@pytest.mark.extended
def test_a_replay_without_privacy_learns_the_best_action_per_context(tmp_path: Path) -> None:
    replay = read_replay(write(tmp_path, 3000))
    result = simulate("fedlinucb", replay.world(), runs=1, workers=1)
    learned = replay.policy(result.runs[0])
    assert learned.choose({"age": 50, "severe": True}) == "surgery"
    assert learned.choose({"age": 50, "severe": False}) == "drug"
    np.testing.assert_allclose(learned.effects, TRUTH, atol=0.1)
    assert result.summary()["reward_mean"] > 0.7  # always right: 0.8; never: 0.2


def run_cli(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


@pytest.mark.extended
def test_the_commands_replay_and_evaluate(tmp_path: Path) -> None:
    path, out = write(tmp_path, 600), tmp_path / "out"
    done = run_cli(
        *("simulate", "--algorithm", "secagg-fedlinucb", "--replay", str(path), "--runs", "1"),
        *("--out", str(out), "--json"),
    )
    assert done.exit_code == 0, done.output
    told = json.loads(done.output)
    assert told["replay"]["rows"] == 3 * 400
    assert told["runs"][0]["users"] <= told["horizon"]
    assert "log-row" in json.dumps(told["configuration"]["people"])
    for estimator in ("clipped-ips", "doubly-robust"):
        words = ["federation", "evaluate", str(out / "policy.json"), "--replay", str(path)]
        found = run_cli(*words, "--estimator", estimator, "--epsilon", "2", "--json")
        assert found.exit_code == 0, found.output
        result = json.loads(found.output)
        assert result["low"] < result["value"] < result["high"]
        assert abs(result["records"] - 600) < 60
        assert json.loads(run_cli(*words, "--estimator", estimator, "--epsilon", "2", "--json").output) == result  # fmt: skip # noqa: E501


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("floor = 0.3", "floor = 0.5"), "must be at least the declared floor 0.5"),
        (("floor = 0.3", ""), "floor"),
        (('"log0.csv", "log1.csv", "log2.csv"', '"log0.csv"'), "one for each silo"),
        (("high = 80", "high = 10"), "low is 20"),
        (('"surgery"', '"leech"'), "action is 'surgery'"),
    ],
)
def test_invalid_declarations_are_rejected(
    tmp_path: Path, change: tuple[str, str], told: str
) -> None:
    path = write(tmp_path, 60)
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(TacitError, match=told):
        read_replay(path).world()


def test_options_of_other_problems_are_rejected(tmp_path: Path) -> None:
    path = write(tmp_path, 60)
    words = ["simulate", "--algorithm", "fedlinucb", "--replay", str(path)]
    for more in (["--clip"], ["--resample"], ["--deviation", "0.1"], ["--actions", "3"]):
        assert run_cli(*words, *more).exit_code != 0
    path.write_text("held_out = 0\n" + path.read_text())
    with pytest.raises(TacitError, match="held_out leaves no rows"):
        read_replay(path).evaluate(request(), np.random.default_rng(1))


def draw(rows: int, rng: np.random.Generator) -> RecordedTable:
    """Logged decisions as in `lines`, without a file."""
    severe, ages = rng.random(rows) < 0.5, rng.integers(20, 81, rows)
    taken = (rng.random(rows) < CHANCE[1]).astype(int)
    means = TRUTH[taken, 0] + TRUTH[taken, 2] * np.where(severe, 1, -1)
    rewards = (rng.random(rows) < means).astype(float)
    contexts = tuple(
        {"age": int(age), "severe": bool(one)} for age, one in zip(ages, severe, strict=True)
    )
    actions = tuple(int(one) for one in taken)
    return RecordedTable(WARD, contexts, actions, rewards, rewards, np.array(CHANCE)[taken])


@pytest.mark.extended
@pytest.mark.parametrize("estimator", ["clipped-ips", "doubly-robust"])
@pytest.mark.parametrize(("rows", "epsilon"), [(100, "1/2"), (100, "4"), (400, "1")])
def test_intervals_of_evaluations_have_their_coverage(
    rows: int, epsilon: str, estimator: str
) -> None:
    """300 evaluations of three silos; the policy always does what helps, so that its value is 0.8.
    The interval's stated rate is 95%: so few hits have a probability below 1e-6 at that rate.
    Intervals of a quarter of the width fail (coverage about 0.4 where noise dominates)."""
    rng, count = np.random.default_rng(11), 300
    asked = request(estimator, epsilon)
    sums = asked.shared_sums(3)
    hits = narrow = 0
    for _ in range(count):
        total = sum(asked.vector(draw(rows, rng)) for _ in range(3)) + sums.sample_noise(rng)
        found = estimate(asked, sums, total)
        hits += found.low <= 0.8 <= found.high
        quarter = (found.high - found.low) / 8
        narrow += abs(found.value - 0.8) <= quarter
    fewest = int(stats.binom.ppf(1e-6, count, 0.95))
    assert hits >= fewest
    assert narrow < fewest or rows * float(Fraction(epsilon)) > 300


def test_the_sums_of_an_evaluation_match_its_records() -> None:
    """Against the definitions, written out per record."""
    table = draw(200, np.random.default_rng(12))
    for estimator in ("clipped-ips", "doubly-robust"):
        asked, expected = request(estimator), []
        for row in range(len(table)):
            means = np.clip(POLICY.estimates(table.contexts[row]), 0, 1)
            logged, chance = table.actions[row], float(table.propensities[row])
            reward, chosen = float(table.rewards[row]), int(np.argmax(means))
            weight = min(1 / chance, 4) * (chosen == logged)
            robust = means[chosen] + weight * (reward - means[logged])
            ips = estimator == "clipped-ips"
            expected.append(weight * reward / 4 if ips else (robust + 4) / 9)
        np.testing.assert_allclose(asked.values(table), expected)
        assert asked.vector(table)[1] == 200
        assert math.isclose(asked.vector(table)[0], sum(expected))
