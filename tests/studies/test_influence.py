"""Influence of poisoning in plans: a row for every trust model, and a chart."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tacit.cli import app
from tacit.studies.influence import influence_of_reach
from tacit.studies.plan import answer, plan
from tacit.studies.plan_pictures import draw_poisoning
from tacit.studies.plan_request import PlanRequest


@settings(max_examples=100, deadline=None)
@given(
    other=st.floats(0.01, 0.5),
    gap=st.floats(0.01, 0.4),
    low=st.floats(-20, 0),
    high=st.floats(1, 20),
)
def test_the_flipping_fraction_is_where_two_means_meet(
    other: float, gap: float, low: float, high: float
) -> None:
    best = other + gap
    row = influence_of_reach("x", (low, high), (other, best), 0.01, 1000)
    against = (1 - row.part) * best + row.part * low
    assert against == pytest.approx((1 - row.part) * other + row.part * high)
    assert row.people == max(1, math.ceil(1000 * row.part))
    assert row.change == max(high, 1 - low)


def test_one_malicious_report_of_unbounded_reach_suffices() -> None:
    row = influence_of_reach("x", (-math.inf, math.inf), (0.1, 0.2), 0.01, None)
    assert (row.change, row.shift, row.part, row.people) == (None, None, 0.0, 1)


def test_a_plan_states_the_effect_of_poisoning_per_trust_model() -> None:
    result = plan(baseline=0.2, lift=0.5, epsilon=1.0, runs=2, poisoned=0.01)
    rows = {row.trust: row for row in result.influence}
    assert list(rows) == [
        "central",
        "secure-aggregation",
        "two-servers",
        "verified",
        "shuffler",
        "local",
    ]
    for trust in ("secure-aggregation", "two-servers"):
        assert (rows[trust].change, rows[trust].people) == (None, 1)
    for trust in ("central", "verified"):
        assert rows[trust].change == 1
        assert rows[trust].part == pytest.approx(0.1 / 1.1)
        assert rows[trust].shift == pytest.approx(0.008)
    assert (rows["verified"].people or 0) > 10
    for trust in ("shuffler", "local"):
        assert 0 < rows[trust].part < rows["verified"].part
    assert result.recommendation.startswith("Use two servers with proofs")
    assert plan(baseline=0.2, lift=0.5, runs=1, trusts=("central",)).influence == []


def test_the_chart_of_poisoning_is_drawn(tmp_path: Path) -> None:
    question = PlanRequest.of(
        baseline=0.2, lift=0.5, runs=2, poisoned=0.02, trusts=("two-servers",)
    )
    path = draw_poisoning(question, answer(question), tmp_path / "poisoning.png")
    assert path.stat().st_size > 1000


def test_the_command_prints_the_table_of_influence_and_its_rows_as_data() -> None:
    asked = ["plan", "--gap", "0.3", "--runs", "1", "--poisoned", "0.01"]
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 0, shown.output
    assert "influence of corrupted participants" in shown.output
    assert "anything" in shown.output
    data = json.loads(CliRunner().invoke(app, [*asked, "--json"]).output)
    assert [row["trust"] for row in data["influence"]][3] == "verified"
    plain = json.loads(CliRunner().invoke(app, [*asked[:-2], "--json"]).output)
    assert "influence" not in plain
