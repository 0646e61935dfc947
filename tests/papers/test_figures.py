"""Figures: the registry, pictures, and their tables."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.environments.test_silos import write_fold

from tacit.algorithms import ArmsProblem
from tacit.errors import TacitError
from tacit.papers.figures import Axis, Options, arms, figures, lookup
from tacit.papers.figures.registry import as_study
from tacit.simulation.grid import Study
from tacit.simulation.sweeping import ExecutionConfig

pytest.importorskip("matplotlib")
PNG = b"\x89PNG\r\n\x1a\n"


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
CURVES = {"cz23-fig4": 6, "tkms21": 4}
HERE = ExecutionConfig(workers=0)
TOLD = ("zc24-super", "zc24-budgets")  # pictures of what a paper tells without one


@pytest.mark.extended
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow) if n in ("cz23-fig1", "tkms21") else n
        for n in PANELS
    ],
)
def test_a_figure_is_written_with_its_data(name: str, tmp_path: Path, data: Path) -> None:
    given = data if "data" in lookup(name).has else None
    options = Options(runs=2, data=given, execution=HERE, changes={"horizon": 2000})
    picture, table, means = lookup(name).draw(tmp_path / "out", options)
    assert picture.read_bytes().startswith(PNG)
    rows = read(table)
    assert {
        "panel",
        "label",
        "algorithm",
        "seed",
        "round",
        "regret",
        "epsilon",
        "constants",
    } <= set(rows[0])
    assert len({row["panel"] for row in rows}) == PANELS[name]
    assert len({(row["panel"], row["label"]) for row in rows}) == PANELS[name] * CURVES.get(name, 4)
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


@pytest.mark.extended
@pytest.mark.parametrize(("axis", "constants"), [("paper", "paper"), ("equal", "tight")])
def test_the_axis_states_the_kind_of_epsilon(axis: Axis, constants: str, tmp_path: Path) -> None:
    options = Options(runs=1, axis=axis, execution=HERE, changes={"horizon": 2000})
    _, table, means = lookup("cz23-fig2").draw(tmp_path, options)
    rows = [row for row in read(table) if row["algorithm"] != "dp-se"]  # which has one form only
    assert {row["constants"] for row in rows} == {constants}
    guarantees = {row["label"]: row["guarantee"] for row in read(means)}
    guaranteed = guarantees["Dist-RDP-SE"].startswith("(1, 1e-05)-DP")
    assert guaranteed == (axis == "equal")  # the paper's epsilon is a Rényi scale


def test_settings_match_the_papers() -> None:
    assert (arms.EASY, arms.HARD) == (10**6, 10**7)
    assert {lookup(name).runs for name in PANELS} == {20}
    problem = ArmsProblem()
    assert (problem.arms, problem.failure_probability, problem.growth, problem.privacy.scale) == (
        10,
        0.1,
        4.0,
        10,
    )


def test_a_figure_with_missing_data_states_where_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(TacitError, match=r"--data \(docs/reference/data.md says where"):
        lookup("cz23-fig5").draw(tmp_path, Options(runs=1))
    assert not list(tmp_path.iterdir())


def test_every_figure_is_drawn_by_its_name() -> None:
    assert list(figures()) == [*PANELS, "lzj22-fig2", "zc24-fig2", "zc24-fig3", *TOLD]
    with pytest.raises(TacitError, match=r"must be one of cz23-fig1, .*zc24-budgets"):
        lookup("cz23-fig6")
    with pytest.raises(TacitError, match="runs is 0"):
        lookup("tkms21").draw(Path("nowhere"), Options(runs=0))


@pytest.mark.extended
def test_figure_two_of_lzj22_has_three_panels_with_their_data(tmp_path: Path) -> None:
    changes = {"dimension": 3, "actions": 20, "horizon": 200}
    options = Options(runs=2, execution=HERE, changes=changes)
    files = lookup("lzj22-fig2").draw(tmp_path / "out", options)
    assert [path.name for path in files] == [
        f"lzj22-fig2{panel}.{kind}" for panel in "abc" for kind in ("png", "csv")
    ]
    assert all(path.stat().st_size > 500 for path in files)
    rows = read(files[1])
    assert {row["algorithm"] for row in rows} == {"cdp-dpe", "sdp-dpe", "ldp-dpe"}
    assert {row["constants"] for row in rows} == {"tight", "paper"}
    assert {float(row["epsilon"]) for row in rows} == {1.0, 2.0, 5.0, 10.0, 20.0}
    assert {row["algorithm"] for row in read(files[5])} == {"dpe", "dpe-fixed"}


@pytest.mark.extended
def test_figures_of_zc24_are_drawn_with_their_tables(tmp_path: Path) -> None:
    data = write_fold(tmp_path / "train.txt")
    small = Options(runs=2, execution=HERE, changes={"horizon": 50, "silos": 4})
    for name, panels in (("zc24-fig2", "abc"), ("zc24-fig3", "abcd")):
        assert lookup(name).runs == 25
        picture, table, means = lookup(name).draw(tmp_path / "out", replace(small, data=data))
        assert picture.read_bytes().startswith(PNG)
        rows = read(means)
        assert {row["panel"][1] for row in rows} == set(panels)
        assert {"regret_mean", "regret_sem", "time_average", "guarantee"} <= set(rows[0])
        dimensions = {row["panel"][:3]: row["dimension"] for row in read(table)}
        assert dimensions["(a)"] == "10"
        assert dimensions["(c)"] == {"zc24-fig2": "57", "zc24-fig3": "78"}[name]
    files = lookup("zc24-fig3").draw(tmp_path / "out", replace(small, runs=1))
    assert [path.suffix for path in files] == [".png", ".csv", ".csv"]


@pytest.mark.extended
def test_an_interrupted_figure_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are made once: after an interrupt the rest, after the end none."""
    changes = {"horizon": 40, "silos": 4, "dimension": 3, "actions": 5, "sync": 10}
    options = Options(runs=2, execution=HERE, changes=changes)
    run, made = Study.together, list[int]()

    def counted(self: Study, cells: tuple[int, ...]) -> object:
        if len(made) == 3:
            raise KeyboardInterrupt
        made.extend(cells)
        return run(self, cells)

    monkeypatch.setattr(Study, "together", counted)
    with pytest.raises(KeyboardInterrupt, match="3 of 12 runs; repeat it to resume"):
        lookup("zc24-budgets").draw(tmp_path, options)
    made.append(-1)
    first = lookup("zc24-budgets").draw(tmp_path, options)
    assert sorted(made) == [-1, *range(12)]
    before = [path.read_bytes() for path in first]
    assert lookup("zc24-budgets").draw(tmp_path, options) == first
    assert [path.read_bytes() for path in first] == before
    assert len(made) == 13


def test_a_figure_is_one_study_and_equal_curves_run_once() -> None:
    options = Options(runs=1, size="small")
    curves = lookup("zc24-fig3").curves(options)
    study, places = as_study("zc24-fig3", curves, options)
    assert len(curves) == len(places) == 10
    assert len(study.configurations) == len(set(places)) == 8  # no privacy, and (5, 0.1), twice
    sizes = {(one.problem.horizon, one.options["silos"]) for one in study.configurations}
    assert sizes == {(1000, 20)}
    assert [len(bundle) for bundle in study.bundles(range(study.cells))] == [8]


def test_small_figures_are_much_smaller_than_the_papers() -> None:
    for name in figures():
        if name == "cz23-fig5":  # needs data
            continue
        paper, small = (
            max(c.options["horizon"] for c in lookup(name).curves(Options(runs=1, size=size)))
            for size in ("paper", "small")
        )
        assert 2 * small <= paper
    with pytest.raises(TacitError, match="size is 'large': must be one of paper, small"):
        Options(size="large")  # type: ignore[arg-type]


def test_the_second_curve_of_the_public_code_has_scale_one_hundred() -> None:
    for name in ("cz23-fig1", "cz23-fig2", "cz23-fig3", "cz23-fig4"):
        curves = lookup(name).curves(Options(runs=1))
        finer = [one for one in curves if one.label == "Dist-RDP-SE, s = 100"]
        assert len(finer) == 3
        assert {one.options["scale"] for one in finer} == {100}
        equal = lookup(name).curves(Options(runs=1, axis="equal"))  # where s plays no part
        assert not [one for one in equal if "scale" in one.options]
