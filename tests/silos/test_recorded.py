"""Recorded data: reading, replay by rejection through a federation, private evaluation."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.silos.harness import WARD, LocalFederation

from tacit.errors import Rejected, TacitError
from tacit.protocols.prefix_encoder import Encoder
from tacit.records import MemoryRecords
from tacit.rounding import no_more
from tacit.silos.agent import RecordedEvaluations
from tacit.silos.context import ContextColumn, ContextSpec
from tacit.silos.coordinator import SiloAbsent
from tacit.silos.evaluation import MOST, EvaluationRequest, PinnedEvaluation, estimate
from tacit.silos.evaluation_files import evaluate_pending
from tacit.silos.exported import ExportedPolicy
from tacit.silos.federation import RewardSpec, SyncSchedule
from tacit.silos.recorded import RecordedTable, read_recorded, replay
from tacit.terms import BY_POLICY
from tacit.types import Floats

REWARD = RewardSpec("recovered, 0 or 1")
TRUTH = np.array([[0.5, 0.0, -0.3], [0.5, 0.0, 0.3]])  # surgery helps the severe
CHANCE = (0.7, 0.3)  # of drug and surgery in the logs
POLICY = ExportedPolicy(WARD, 1, np.array([[0.5, 0.0, -0.2], [0.5, 0.0, 0.2]]))


def lines(rng: np.random.Generator, count: int) -> list[str]:
    """Logged decisions of a clinic that prefers drugs, whatever the patient."""
    rows = ["age,severe,action,outcome,propensity"]
    for _ in range(count):
        age, severe = int(rng.integers(20, 81)), bool(rng.random() < 0.5)
        action = int(rng.random() < CHANCE[1])
        mean = TRUTH[action, 0] + TRUTH[action, 2] * (1 if severe else -1)
        outcome = int(rng.random() < mean)
        rows.append(f"{age},{severe},{WARD.actions[action]},{outcome},{CHANCE[action]}")
    return rows


def table(folder: Path, seed: int, count: int) -> RecordedTable:
    path = folder / f"log{seed}.csv"
    path.write_text("\n".join(lines(np.random.default_rng(seed), count)))
    return read_recorded(path, WARD, REWARD)


def test_a_table_is_read_as_declared_from_csv_and_parquet(tmp_path: Path) -> None:
    read = table(tmp_path, 1, 50)
    assert len(read) == 50
    assert set(read.actions) == {0, 1}
    assert set(read.propensities) == set(CHANCE)
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [
        {**context, "action": WARD.actions[a], "outcome": o, "propensity": p}
        for context, a, o, p in zip(
            read.contexts, read.actions, read.outcomes.tolist(), read.propensities, strict=True
        )
    ]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "log.parquet")
    again = read_recorded(tmp_path / "log.parquet", WARD, REWARD)
    assert again.contexts == read.contexts
    np.testing.assert_array_equal(again.rewards, read.rewards)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("30,True,drug,1,0", "propensity is 0"),
        ("30,True,leech,1,0.5", "action is 'leech'"),
        ("30,perhaps,drug,1,0.5", "severe is 'perhaps': must be true or false"),
        ("old,True,drug,1,0.5", "age is 'old': must be a number"),
        ("30,True,drug,,0.5", "outcome is '': must be a number"),
        ("30,True,drug", "outcome is None: must be a number"),
        ("30,True,drug,1,0.5,more", "more cells than line 1"),
    ],
)
def test_an_invalid_row_is_rejected_with_its_number(tmp_path: Path, row: str, told: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text("\n".join([*lines(np.random.default_rng(1), 2), row]))
    with pytest.raises(TacitError, match=f"row 3: .*({told})"):
        read_recorded(path, WARD, REWARD)
    path.write_text("age,severe,action,outcome\n30,True,drug,1\n")
    with pytest.raises(
        TacitError,
        match=r"row 1: columns lack propensity and have none too many: .* \(probability, pscore\)",
    ):
        read_recorded(path, WARD, REWARD)
    path.write_bytes(b"\xff")
    with pytest.raises(TacitError, match="not UTF-8 text: save it"):
        read_recorded(path, WARD, REWARD)
    for separator in ",;\t":
        table = "age,severe,treatment,reward,pscore\n30,True,drug,1,0.5\n"
        path.write_text("\ufeff" + table.replace(",", separator), encoding="utf-8")
        assert read_recorded(path, WARD, REWARD).rewards.tolist() == [1.0]


def test_replay_by_rejection_runs_through_a_federation(tmp_path: Path) -> None:
    """Accepted rows are distributed as if the policy had acted: their mean reward is that of the
    rows' truth, at a false positive rate of 1e-6."""
    federation = LocalFederation.of(
        3, algorithm="fedlinucb", schedule=SyncSchedule(horizon=400, sync=200, kind="fixed")
    )
    coordinator, rng = federation.coordinator(), np.random.default_rng(5)
    coordinator.deliver()
    counts = []
    for number, agent in enumerate(federation.agents.values()):
        read = table(tmp_path, number, 400)

        def decide(context: Mapping[str, Any], agent: Any = agent) -> tuple[str, str]:
            made = agent.decide(context)
            return made.id, made.action

        counts.append(replay(read, range(400), min(CHANCE), rng, decide, agent.record))
    for agent, count in zip(federation.agents.values(), counts, strict=True):
        assert count.used == 400
        assert agent.status()["outcomes"] == count.accepted
        # P[accepted] = floor / p · p = floor, whichever action is proposed
        slack = 5 * math.sqrt(400 * 0.3 * 0.7)
        assert abs(count.accepted - 400 * min(CHANCE)) < slack
    coordinator.synchronise()
    assert coordinator.step == 1
    with pytest.raises(TacitError, match=r"at least the declared floor 0\.5"):
        replay(read, range(1), 0.5, rng, decide, agent.record)


def request(estimator: str = "clipped-ips", epsilon: str = "1") -> EvaluationRequest:
    return EvaluationRequest(
        POLICY.to_json(), estimator, Fraction(4), 800, Fraction(epsilon), Fraction(1, 10**6)
    )


def federation_with_tables(folder: Path, count: int) -> LocalFederation:
    federation = LocalFederation.of(3)
    for number, agent in enumerate(federation.agents.values()):
        logs = table(folder, number, count)
        agent._recorded = RecordedEvaluations(logs, Fraction(2), Fraction(1, 10**5))
    return federation


@pytest.mark.parametrize("estimator", ["clipped-ips", "doubly-robust"])
def test_an_evaluation_covers_the_true_value_and_is_charged(tmp_path: Path, estimator: str) -> None:
    federation = federation_with_tables(tmp_path, 800)
    coordinator = federation.coordinator()
    found = coordinator.evaluate(request(estimator))
    assert abs(found.records - 2400) < 200
    assert found.low - 0.1 < 0.8 < found.high + 0.1  # the policy always does what helps
    assert found.high - found.low < 1.0
    assert coordinator.evaluate(request(estimator)) == found  # stored: no second release
    for agent in federation.agents.values():
        status = agent.status()
        assert (status["evaluations"], status["epsilon_of_evaluations"]) == (1, "1")
        assert status["delta_of_evaluations"] == "1/1000000"
    coordinator.evaluate(request(estimator, "1/2"))
    with pytest.raises(SiloAbsent, match="only 0 silos accept"):
        coordinator.evaluate(request(estimator, "3/4"))  # 1 + 1/2 + 3/4 > 2


def test_an_evaluation_rejected_by_one_silo_blocks_no_later_one(tmp_path: Path) -> None:
    """Nor is it lost: it succeeds, under its old number, once the silo accepts it."""
    federation = federation_with_tables(tmp_path, 800)
    poor = federation.agents["silo1"]
    rich = poor._recorded
    assert rich is not None
    poor._recorded = RecordedEvaluations(rich.table, Fraction(1, 2), Fraction(1, 10**5))
    coordinator = federation.coordinator()
    with pytest.raises(SiloAbsent, match="only 2 silos accept"):
        coordinator.evaluate(request())
    found = coordinator.evaluate(request(epsilon="1/4"))
    assert abs(found.records - 2400) < 400
    assert [one.status()["evaluations"] for one in federation.agents.values()] == [2, 1, 2]
    poor._recorded = rich
    assert abs(coordinator.evaluate(request()).records - 2400) < 200
    assert [one.status()["evaluations"] for one in federation.agents.values()] == [2, 2, 2]


def test_failing_requests_do_not_stop_others(tmp_path: Path) -> None:
    """Three files of requests: too dear for the silos, no request at all, and one that succeeds."""
    federation = federation_with_tables(tmp_path, 800)
    folder = tmp_path / "study" / "evaluations"
    folder.mkdir(parents=True)
    contents = (request(epsilon="3").encode(), b"{}", request().encode())
    for number, content in enumerate(contents):
        (folder / f"{number:04}.request.json").write_bytes(content)
    definition = folder.parent / "federation.toml"
    (failed,) = evaluate_pending(federation.coordinator(), definition)
    assert failed.startswith("0000.request.json: only 0 silos accept")
    found = [folder / f"{number:04}.result.json" for number in range(3)]
    assert not found[0].exists()
    assert "invalid" in json.loads(found[1].read_text())["problem"]
    assert abs(json.loads(found[2].read_text())["records"] - 2400) < 200
    assert len(evaluate_pending(federation.coordinator(), definition)) == 1  # the first, again


def test_a_federation_has_a_fixed_number_of_evaluations(tmp_path: Path) -> None:
    """Round options end at `BY_POLICY`, which is of devices; nothing is charged beyond."""
    federation = federation_with_tables(tmp_path, 10)
    records = federation.records.setdefault("coordinator", MemoryRecords())
    for number in range(MOST):
        name = b"evaluation" + number.to_bytes(4, "big")
        records.replace(name, None, b'{"request": "", "numbers": null}')
    with pytest.raises(
        Rejected, match="number of the evaluation is 32767: must be from 0 to 32766"
    ):
        federation.coordinator().evaluate(request())
    assert not any(one._database.evaluations() for one in federation.agents.values())
    pinned = PinnedEvaluation(federation.terms, federation.pinned.signatures, request())
    pinned.check_step(BY_POLICY - 1)
    with pytest.raises(Rejected, match="number of the evaluation"):
        pinned.check_step(BY_POLICY)


def test_the_cost_of_an_evaluation_is_not_rounded_down(tmp_path: Path) -> None:
    """1/10 and 1/1000000 are no doubles: the noise is for less, the printed cost is no less."""
    asked = request(epsilon="1/10")
    sums = asked.shared_sums(3)
    assert Fraction(sums.guarantee(no_more(asked.delta)).epsilon) <= asked.epsilon
    found = federation_with_tables(tmp_path, 800).coordinator().evaluate(asked)
    assert Fraction(found.epsilon) >= asked.epsilon
    assert Fraction(found.delta) >= asked.delta


def test_no_more_records_than_the_capacity_count() -> None:
    table = table_of(WARD, [{"age": 50.0, "severe": True}] * 5)
    counts = [replace(request(), capacity=most).vector(table)[1] for most in (3, 5, 9)]
    assert counts == [3, 5, 5]


def test_evaluations_together_stay_within_both_budgets() -> None:
    both = (request(), request())
    epsilon, delta = (2 * vars(both[0])[name] for name in ("epsilon", "delta"))
    table = table_of(WARD, [])
    RecordedEvaluations(table, epsilon, delta).check_budget(both)
    for name, less in (
        ("epsilon", (epsilon * Fraction(99, 100), delta)),
        ("delta", (epsilon, delta * Fraction(99, 100))),
    ):
        with pytest.raises(Rejected, match=f"{name} of all evaluations is .* budget of this silo"):
            RecordedEvaluations(table, *less).check_budget(both)


def test_evaluations_have_the_stated_sensitivity() -> None:
    """The vectors of neighbouring tables, over random records and both estimators."""
    rng = np.random.default_rng(7)

    def vector(asked: EvaluationRequest, rows: int, outcome: float, chance: float) -> Floats:
        contexts = tuple({"age": 50, "severe": bool(rng.random() < 0.5)} for _ in range(rows))
        outcomes, chances = np.full(rows, outcome), np.full(rows, chance)
        actions = tuple(int(one) for one in rng.integers(0, 2, rows))
        logs = RecordedTable(WARD, contexts, actions, outcomes, outcomes, chances)
        return asked.vector(logs) if rows else np.zeros(2)

    for estimator in ("clipped-ips", "doubly-robust"):
        asked = request(estimator)
        for _ in range(100):
            one, other = (
                vector(asked, int(rng.integers(0, 2)), float(rng.integers(0, 2)), chance)
                for chance in rng.uniform(0.01, 1, 2)
            )
            assert np.linalg.norm(one - other) <= math.sqrt(2) + 1e-12


@pytest.mark.parametrize("bound", ["8e1", "8e999999999", "80/0", "[" * 5_000])
def test_policies_with_intractable_bounds_are_rejected(bound: str) -> None:
    """A coordinator sends policies: ten characters stood for a number of 400 MB."""
    policy = ExportedPolicy(WARD, 1, np.zeros((2, 3))).to_json()
    hostile = policy.replace('"80"', bound if bound.startswith("[") else f'"{bound}"')
    assert hostile != policy
    with pytest.raises(TacitError, match="no exported policy"):
        ExportedPolicy.from_json(hostile)
    encoded = request("clipped-ips").encode().replace(b'\\"80\\"', f'\\"{bound}\\"'.encode())
    assert bound.encode() in encoded
    with pytest.raises(Rejected, match="no exported policy"):
        EvaluationRequest.decode(encoded)


@pytest.mark.parametrize("size", [1e6, 1e200, 1.7e308])
def test_a_malicious_policy_does_not_raise_the_sensitivity(size: float) -> None:
    """Estimates that overflow for some contexts only must not mark a record."""
    effects = np.array([[size, size, size], [size, -size, size]])
    policy = ExportedPolicy(WARD, 1, effects).to_json()
    logs = RecordedTable(
        WARD,
        tuple({"age": age, "severe": severe} for age in (20, 50, 80) for severe in (True, False)),
        (0, 1, 0, 1, 0, 1),
        np.ones(6),
        np.ones(6),
        np.full(6, 0.01),
    )
    for estimator in ("clipped-ips", "doubly-robust"):
        values = replace(request(estimator), policy=policy).values(logs)
        assert np.isfinite(values).all()
        assert values.min() >= 0
        assert values.max() <= 1


def test_evaluation_noise_has_the_declared_distribution() -> None:
    """Silos without records send noise and nothing else: 240 numbers of the devices' own draws,
    false positive rate 1e-6; half of the noise, none, or the same twice fails."""
    federation = LocalFederation.of(3)
    asked = request()
    sums = asked.sums(federation.terms)
    assert sums.guarantee(1e-6).epsilon <= 1 + 1e-9
    drawn = [[Encoder(sums).randomize(np.zeros(2)) for _ in range(3)] for _ in range(120)]
    words = np.array(drawn).sum(axis=1, dtype=np.uint64).view(np.int64)
    squares = float(((words / sums.scale) ** 2).sum() / sums.row_variance)
    assert 1e-6 < 2 * stats.chi2.cdf(squares, words.size) < 2 - 1e-6
    assert len(np.unique(words)) > words.size / 2
    with pytest.raises(TacitError, match="too few to evaluate"):
        estimate(asked, sums, np.array([0.0, -3.0]))


def test_evaluation_noise_is_shared_by_guaranteed_silos_only() -> None:
    """Of four silos one may collude and one be missing: two shares must be enough."""
    federation = LocalFederation.of(4, missing=1)
    sums = request().sums(federation.terms)
    assert (sums.corrupt, sums.missing, sums.honest) == (federation.terms.corrupted, 1, 2)
    left = sums.share.sum_of_shares(2)
    assert left.variance == pytest.approx(float(sums.total.variance), rel=1e-9)
    alone = request().shared_sums(4, corrupted=0)
    assert float(alone.share.variance) < 0.6 * float(sums.share.variance)


@pytest.mark.parametrize("estimator", ["clipped-ips", "doubly-robust"])
@pytest.mark.parametrize("columns", [2, 8, 128])
def test_no_policy_raises_the_weight_of_a_record(estimator: str, columns: int) -> None:
    """Found: finite effects of 1e308 overflow to NaN where a record has other values than zero; so
    one record decided, with certainty, what its silo sent.
    """
    context = ContextSpec(tuple(ContextColumn(f"c{n}") for n in range(columns)), ("a", "b"))
    effects = np.zeros((2, columns + 1))
    effects[0, 1:] = 1.7e308 * np.resize([1, -1], columns)
    policy = ExportedPolicy(context, 0, effects).to_json()
    request = EvaluationRequest(policy, estimator, Fraction(2), 50, Fraction(1), Fraction(1, 100))
    middle, top = ({f"c{n}": value for n in range(columns)} for value in (0.5, 1.0))
    before = request.vector(table_of(context, [middle] * 20))
    after = request.vector(table_of(context, [*[middle] * 19, top]))
    assert np.isfinite([before, after]).all()
    assert np.linalg.norm(after - before) <= 1
    request.exported.effects[:] = math.nan  # whatever else goes wrong
    assert 0 <= request.values(table_of(context, [top]))[0] <= 1


def table_of(context: ContextSpec, contexts: list[dict[str, float]]) -> RecordedTable:
    """Rows of the first action, with the best outcome."""
    ones = np.ones(len(contexts))
    return RecordedTable(context, tuple(contexts), (0,) * len(contexts), ones, ones, ones / 2)
