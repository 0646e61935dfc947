"""Results as tables, frames and charts: atomic files, no unknown values, distinguishable curves,
and named extras.
"""

from __future__ import annotations

import csv
import json
import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tacit.errors import TacitError
from tacit.privacy import PureDP
from tacit.simulation import Result, Results, Runs, write_csv
from tacit.simulation.files import probe
from tacit.simulation.pictures import Panel, draw_panels, picture, style, write_panels
from tacit.simulation.study import weakest_recorded


def of(*finals: float, horizon: int = 4) -> Result:
    records = [
        {"seed": s, "checkpoints": [1, horizon], "regret": [1.0, r], "final_regret": r, "bits": 8}
        for s, r in enumerate(finals)
    ]
    return Result("some", horizon, {"epsilon": 1.0}, PureDP(1.0), Runs(records, 0.0, False))


def result_without_means() -> Result:
    records = [{"seed": s, "checkpoints": [1], "bits": 8.0, "best": s} for s in range(2)]
    return Result("own", 4, {"epsilon": 1.0}, None, Runs(records, 0.0, True, 5), ("bits", "gap"))


def test_a_single_run_has_no_standard_error(tmp_path: Path) -> None:
    assert of(2.0).summary()["regret_sem"] is None
    mean, sem = of(2.0).curve()
    assert mean.tolist() == [1.0, 2.0]
    assert not (sem >= 0).any()
    _, means = write_panels([Panel("one", {"some": of(2.0)})], tmp_path, "panels")
    with means.open(encoding="utf-8") as file:
        assert {row["regret_sem"] for row in csv.DictReader(file)} == {""}
    assert of(2.0).plot(tmp_path / "one.png").exists()


def test_unknown_regret_is_not_estimated() -> None:
    result = result_without_means()
    assert list(result.rows()) == [
        {"epsilon": 1.0, "algorithm": "own", "seed": s, "bits": 8.0, "best": s} for s in range(2)
    ]
    summary = json.loads(json.dumps(result.summary()))
    assert summary["regret_mean"] is summary["regret_sem"] is summary["time_average_regret"] is None
    assert summary["bits"] == 8
    assert (summary["asked"], summary["interrupted"]) == (5, True)
    with pytest.raises(TacitError, match="regret of own is unknown"):
        result.plot()


def test_results_convert_to_pandas_and_arrow_or_name_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    several = Results((of(1.0, 2.0), of(3.0)))
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=len))
        assert (of(1.0, 2.0).to_pandas(), of(1.0, 2.0).to_pandas(curves=True)) == (2, 4)
        assert several.to_pandas() == 3
    for name in ("pandas", "pyarrow"):
        monkeypatch.setitem(sys.modules, name, None)
    for convert, extra in ((several.to_pandas, "pandas"), (several.to_arrow, "parquet")):
        with pytest.raises(TacitError, match=rf"is missing.*pip install 'tacit\[{extra}\]'"):
            convert()


def test_an_arrow_table_has_a_typed_column_for_every_name() -> None:
    pytest.importorskip("pyarrow")
    several = Results((of(1.0, 2.0), result_without_means()))
    table = several.to_arrow()
    assert table["algorithm"].to_pylist() == ["some", "some", "own", "own"]
    assert table["final_regret"].to_pylist() == [1.0, 2.0, None, None]
    assert str(table.schema.field("seed").type) == "int64"
    assert of(1.0, 2.0).to_arrow(curves=True)["round"].to_pylist() == [1, 4, 1, 4]


def test_pandas_frames_have_the_rows_of_every_run() -> None:
    pandas = pytest.importorskip("pandas")
    frame = Results((of(1.0, 2.0), result_without_means())).to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["seed"].tolist() == [0, 1, 0, 1]


def test_a_result_is_one_line_of_text_and_a_table_in_a_notebook() -> None:
    assert repr(of(1.0, 3.0)) == "Result(some, (1, 0)-DP: regret 2 ± 1, runs 2)"
    several = Results(
        (of(1.0), replace(of(2.0), configuration={"epsilon": 2.0}), result_without_means())
    )
    assert repr(several) == "Results(3 configurations, 4 runs, 0 failures)"
    shown = several._repr_html_()
    assert shown.count("<tr>") == 4
    assert "<td>some, epsilon 2.0</td><td>(1, 0)-DP</td><td>2</td><td>–</td><td>1</td>" in shown
    assert "<td>own</td><td>none</td><td>unknown</td>" in shown
    bad = replace(of(1.0), algorithm="<b>")
    assert "<b>" not in bad._repr_html_()


def test_results_are_a_sequence_with_selectable_runs() -> None:
    several = Results((of(1.0, 2.0), result_without_means()), ({"seed": 9},))
    assert [one.algorithm for one in several] == ["some", "own"]
    assert len(several[1:]) == 1
    chosen = several.where(lambda row: row["seed"] > 0, algorithm="some")
    assert (chosen.column("final_regret"), chosen.failures) == ([2.0], ({"seed": 9},))
    assert len(several.where(algorithm="none")) == 0
    for wrong in (lambda: several.column("regrets"), lambda: several.where(regrets=1)):
        with pytest.raises(TacitError, match="column is 'regrets': must be one of epsilon, algo"):
            wrong()


def test_results_are_drawn_on_the_callers_axes() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    one, other = figure.subplots(1, 2)
    assert of(1.0, 2.0).plot(ax=one) is one
    twice = Results((of(1.0), of(2.0)))
    assert twice.plot(ax=other) is other
    assert [line.get_label() for line in other.get_lines()] == ["some", "some (2)"]
    assert twice.plot().axes


def test_a_table_is_written_completely_or_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table.csv"
    write_csv(path, [{"a": 1}])

    def stops(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(csv.DictWriter, "writerows", stops)
        with pytest.raises(KeyboardInterrupt):
            write_csv(path, [{"a": 2}])
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text().split() == ["a", "1"]
    with pytest.raises(TacitError, match="a file is in the way"):
        write_csv(path / "below.csv", [{"a": 1}])


def test_probing_a_directory_leaves_no_files(tmp_path: Path) -> None:
    probe(tmp_path / "one" / "two")
    assert list(tmp_path.iterdir()) == []
    probe(tmp_path)
    (tmp_path / "file").touch()
    for bad, reason in (
        (tmp_path / "file", "a file is in the way"),
        (tmp_path / "file" / "below", "a file is in the way"),
        (tmp_path / "new" / ("x" * 300), "too long"),
    ):
        with pytest.raises(TacitError, match=rf"cannot write to .*: .*{reason}") as caught:
            probe(bad)
        assert str(bad) in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    yield tmp_path
    tmp_path.chmod(stat.S_IRWXU)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may do anything")
def test_a_directory_without_permission_is_rejected(closed: Path) -> None:
    for out in (closed, closed / "new"):
        with pytest.raises(TacitError, match=r"no permission\. Choose a directory"):
            probe(out)


def test_a_missing_permission_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def rejects(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", rejects)
    with pytest.raises(TacitError, match=r"no permission\. Choose a directory"):
        probe(tmp_path / "new")


def test_coinciding_curves_are_distinguishable(tmp_path: Path) -> None:
    names = [f"curve {i}" for i in range(8)]
    figure = picture([Panel("same", dict.fromkeys(names, of(1.0, 2.0)))])
    lines = figure.axes[0].get_lines()
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines}
    assert len(looks) == 8
    assert len({line.get_zorder() for line in lines}) == 8
    kinds = [(str(style(i)["linestyle"]), style(i)["marker"]) for i in range(28)]
    assert len(set(kinds)) == 28
    figure.savefig(tmp_path / "same.png")


def test_the_legend_follows_the_final_order_of_curves() -> None:
    results = {"low": of(1.0, 1.0), "high": of(9.0, 9.0), "middle": of(4.0, 4.0)}
    for panels in ([Panel("", results)], [Panel("", results)] * 4):
        figure = picture(panels, title="all")
        for axes in figure.axes[: len(panels)]:
            shown = [text.get_text() for text in axes.get_legend().get_texts()]
            assert shown == ["high", "middle", "low"]
            assert axes.get_ylabel() == "regret per participant"
    assert [axes.get_visible() for axes in figure.axes] == [True] * 4 + [False] * 2


def bounded(epsilon: float | None, bound: float | None) -> Result:
    records = [
        {"seed": s, "checkpoints": [1, 10, 100], "regret": [1.0, 2.0, 4.0], "lower_bound": bound}
        for s in range(2)
    ]
    known = {} if epsilon is None else {"epsilon": epsilon}
    return Result("some", 100, known, None, Runs(records, 0.0, False), ("lower_bound",))


def test_a_lower_bound_is_a_ratio_in_tables_and_a_labelled_line_in_charts() -> None:
    private, free, without = bounded(0.1, 2.0), bounded(None, 1.0), bounded(1.0, None)
    assert private.summary()["lower_bound"] == 2.0
    assert private.summary()["times_lower_bound"] == 2.0
    assert without.summary()["times_lower_bound"] is None
    figure = picture([Panel("", {"a": private, "b": private, "c": free, "d": without})])
    lines = {str(line.get_label()): line for line in figure.axes[0].get_lines()}
    bounds = {label: line for label, line in lines.items() if label.startswith("lower bound")}
    assert [label.split("(")[1].split(";")[0] for label in bounds] == [
        "asymptotic, central DP, ε = 0.1",
        "asymptotic, no privacy",
    ]
    for line, bound in zip(bounds.values(), (2.0, 1.0), strict=True):
        assert line.get_ydata() == pytest.approx([bound / 2 / 10, bound / 100])  # bound · ln t/ln T
    assert "lower bound" not in str(picture([Panel("", {"d": without})]).axes[0].get_lines())


def test_pictures_are_written_completely_or_not_at_all(tmp_path: Path) -> None:
    result = of(1.0, 2.0)
    path = tmp_path / "new" / "regret.svg"
    assert result.plot(path, time_average=False) == path
    assert path.read_text(encoding="utf-8").startswith("<?xml")
    assert list(path.parent.iterdir()) == [path]
    assert result.plot().axes
    with pytest.raises(TacitError, match=r"plot file is regret\.docx: its suffix must be one of"):
        result.plot(tmp_path / "regret.docx")
    with pytest.raises(TacitError, match="a file is in the way"):
        draw_panels([Panel("", {"some": result})], path / "below.png")


def test_a_missing_matplotlib_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(TacitError, match=r"pip install 'tacit\[plot\]'"):
        draw_panels([Panel("", {"some": of(1.0)})], tmp_path / "x.png")
    with pytest.raises(TacitError, match=r"pip install 'tacit\[plot\]'"):
        of(1.0).plot()


def test_one_run_without_a_guarantee_leaves_the_result_without_one() -> None:
    data = PureDP(1.0).to_data()
    assert weakest_recorded([data, PureDP(2.0).to_data()]) == PureDP(2.0)
    assert weakest_recorded([data, None]) is None
    assert weakest_recorded([]) is None
