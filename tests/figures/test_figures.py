"""Figures and plans: pictures, tables with the right columns, and a recommendation."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.checks import TacitError
from tacit.papers import figures
from tacit.papers.arms import Problem
from tacit.papers.figures import FIGURES, Axis, Options, reproduce
from tacit.papers.planning import plan

pytest.importorskip("matplotlib")
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every figure at a horizon of 2,000."""

    def problem(arms: int, _: int, **changes: Any) -> Problem:
        return Problem(arms, 2000, **changes)

    monkeypatch.setattr(figures, "Problem", problem)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    path = tmp_path / "train.txt"
    rows = (
        f"{i % 5} qid:{i // 10} "
        + " ".join(f"{j}:{x:.4f}" for j, x in enumerate(rng.normal(size=136), 1))
        for i in range(200)
    )
    path.write_text("\n".join(rows))
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


PANELS = {
    "cz23-fig1": 6,
    "cz23-fig2": 3,
    "cz23-fig3": 3,
    "cz23-fig4": 3,
    "cz23-fig5": 3,
    "tkms21": 2,
}
CURVES = {"cz23-fig4": 5, "tkms21": 4}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow) if n in ("cz23-fig1", "tkms21") else n
        for n in PANELS
    ],
)
def test_a_figure_is_a_picture_and_its_data(name: str, tmp_path: Path, data: Path) -> None:
    assert set(PANELS) == set(FIGURES)
    picture, table, means = reproduce(name, tmp_path / "out", Options(runs=2, data=data, workers=1))
    assert picture.read_bytes().startswith(PNG)
    rows = read(table)
    assert {"panel", "label", "algorithm", "seed", "round", "regret", "epsilon", "setting"} <= set(
        rows[0]
    )
    assert len({row["panel"] for row in rows}) == PANELS[name]
    assert len({(row["panel"], row["label"]) for row in rows}) == PANELS[name] * CURVES.get(name, 3)
    assert {row["seed"] for row in rows} == {"0", "1"}
    averages = read(means)
    assert list(averages[0]) == [
        "panel",
        "label",
        "algorithm",
        "round",
        "regret_mean",
        "regret_sem",
        "time_average",
        "guarantee",
    ]
    first = averages[-1]
    ends = [
        float(r["regret"])
        for r in rows
        if (r["panel"], r["label"], r["round"]) == (first["panel"], first["label"], first["round"])
    ]
    assert float(first["regret_mean"]) == pytest.approx(sum(ends) / 2)
    assert float(first["time_average"]) == pytest.approx(sum(ends) / 2 / 2000)


@pytest.mark.parametrize(("axis", "setting"), [("paper", "paper"), ("equal", "tight")])
def test_the_axis_says_what_an_epsilon_means(axis: Axis, setting: str, tmp_path: Path) -> None:
    _, table, means = reproduce("cz23-fig2", tmp_path, Options(runs=1, axis=axis, workers=1))
    assert {row["setting"] for row in read(table)} == {setting}
    guarantees = {row["label"]: row["guarantee"] for row in read(means)}
    assert ("RDP" in guarantees["Dist-RDP-SE"]) == (axis == "paper")


def test_settings_are_those_of_the_authors() -> None:
    assert (figures.EASY, figures.HARD) == (10**6, 10**7)
    assert Options().runs == 20
    assert (Problem(10, 100).confidence, Problem(10, 100).growth, Problem(10, 100).scale) == (
        0.1,
        4.0,
        10,
    )


def test_a_figure_without_its_data_says_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(TacitError, match=r"--data \(docs/data.md says where to get it\)"):
        reproduce("cz23-fig5", tmp_path, Options(runs=1))
    assert not list(tmp_path.iterdir())


def test_a_plan_costs_every_trust_model_and_recommends_one() -> None:
    result = plan(3, 20_000, 0.2, 1.0, runs=2)
    assert [cost.trust for cost in result.costs] == ["central", "secagg", "shuffle", "local"]
    assert all(cost.regret > 0 and cost.bits_per_user > 0 for cost in result.costs)
    assert result.recommendation.startswith("Use secure aggregation")
    assert "too few" in plan(3, 200, 0.02, 0.5, runs=2).recommendation
    with pytest.raises(TacitError, match="how much better the best option is"):
        plan(3, 1000, 0.0, 1.0)
