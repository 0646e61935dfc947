"""The report of a sweep: one self-contained page, and tables as CSV."""

from __future__ import annotations

import csv
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.samples import SMALL

from tacit import html
from tacit.environments import FromFunction
from tacit.errors import TacitError
from tacit.html.charts import Axis, Chart, Point, Series
from tacit.papers.bounds import with_bounds
from tacit.simulation import Results
from tacit.simulation.grid import study_of
from tacit.simulation.log import header
from tacit.simulation.report import entries, summaries, write_report
from tacit.simulation.store import stored
from tacit.simulation.sweeping import ExecutionConfig, read_saved, run_study, sweep


class Reader(HTMLParser):
    """What a page is made of."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(path: Path) -> tuple[str, Reader]:
    text = path.read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    return text, reader


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Results]:
    out = tmp_path_factory.mktemp("study")
    swept = run_study(study_of(SMALL), ExecutionConfig(workers=0), out, "tacit sweep small.toml")
    assert [path.name for path in write_report(out, bound=with_bounds)] == [
        "report.html",
        "summary.csv",
        "runs.csv",
    ]
    return out, swept.results()


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def test_a_report_is_self_contained(made: tuple[Path, Results]) -> None:
    text, reader = read(made[0] / "report.html")
    assert not re.search(r"https?://|url\(|@import|<link|<img", text)
    assert all("src" not in attrs and "href" not in attrs for _, attrs in reader.tags)
    labels = [attrs["aria-label"] for tag, attrs in reader.tags if "aria-label" in attrs]
    assert labels.count("regret by participants") == 4
    assert labels.count("regret at the end by epsilon") == 4
    assert labels.count("regret at the end by bits") == 4
    assert text.count("<title>lower bound</title>") >= 4
    assert "bounds of the papers (order only)" in text
    assert "picture: LZJ22 Thm 5.3." in text
    for word in ("prefers-color-scheme: dark", "width=device-width", "private-med", "cdp-dpe"):
        assert word in text
    for word in ("tacit sweep small.toml", "numpy ", "0 to 1", "(0.5, 0)-DP", "horizon 300"):
        assert word in text


def test_the_table_can_be_sorted_by_every_column(made: tuple[Path, Results]) -> None:
    text, _ = read(made[0] / "report.html")
    table = text[text.index('<table class="sortable">') :]
    table = table[: table.index("</table>")]
    assert table.count('<th scope="col"') == table.count('<button type="button">') == 10
    body = table[table.index("<tbody>") :]
    assert body.count("<tr>") == 10
    assert body.count("data-value=") == 100
    assert body.count('data-value="(0.5, 0)-DP"') > 1


def test_a_report_states_the_achieved_guarantee(tmp_path: Path) -> None:
    given = {"algorithms": ["dist-rdp-se"], "problems": {"arms": 2, "horizon": 200}, "seeds": 1}
    study = study_of({**given, "guarantees": {"epsilon": [1, 2], "constants": "paper"}})
    with stored(tmp_path, header(study.name, study.identity()), study.cells) as store:
        for cell in range(2):
            store.add(cell, study(cell))
    write_report(tmp_path)
    short = rows(tmp_path / "summary.csv")[0]["achieved_guarantee"].split(":")[0]
    assert not short.startswith("(1, ")
    text, _ = read(tmp_path / "report.html")
    assert f"under {short}, " in text
    assert f'<td class="word" data-value="{short}">' in text
    for asked in ("requested ε = 1<", "against the requested ε<", ">requested ε<", ">requested<"):
        assert asked in text
    assert not re.search(r"[a-z], ε = 1<|>guarantees?<", text)


def test_tables_contain_means_over_runs(made: tuple[Path, Results]) -> None:
    out, results = made
    summary, runs = rows(out / "summary.csv"), rows(out / "runs.csv")
    assert (len(summary), len(runs)) == (10, 20)
    assert [float(row["final_regret"]) for row in runs] == results.column("final_regret")
    mean = sum(run["regret"][-1] for run in results[0].runs) / 2
    assert float(summary[0]["regret_mean"]) == pytest.approx(mean)
    assert summary[0]["achieved_guarantee"].startswith("(0.5, 0)-DP")
    assert summary[0]["runs"] == "2"
    assert "checkpoints" not in runs[0]


def test_an_unfinished_sweep_has_a_report_that_says_so(tmp_path: Path) -> None:
    study = study_of(SMALL)
    with stored(tmp_path, header(study.name, study.identity()), study.cells) as store:
        for cell in (0, 1, 4):
            store.add(cell, study(cell))
    write_report(tmp_path)
    text, _ = read(tmp_path / "report.html")
    assert "3 of 20 runs, so far" in text
    assert [row["runs"] for row in rows(tmp_path / "summary.csv")] == ["2", "1"]


def test_failed_runs_are_listed_with_their_seed_and_error(tmp_path: Path) -> None:
    study = study_of({"algorithms": ["ucb1"], "problems": {"arms": 3, "horizon": 50}, "seeds": 2})
    with stored(tmp_path, header(study.name, study.identity()), 2) as store:
        store.add(0, study(0))
        store.finish([{**study.description(1), "error": "ValueError: <b>", "trace": ""}])
    write_report(tmp_path)
    text, _ = read(tmp_path / "report.html")
    assert "1 run failed" in text
    assert "ucb1, seed 1: ValueError: &lt;b&gt;" in text


def test_names_are_escaped(tmp_path: Path) -> None:
    bad = '<script>alert("1")</script>{{7*7}}'
    given: dict[str, Any] = {
        "name": bad,
        "algorithms": [{"name": "ucb1", "label": bad}],
        "problems": {"arms": 3, "horizon": [50, 60], "label": bad + "&amp;"},
        "seeds": 1,
    }
    sweep(study_of(given), out=tmp_path, workers=0)
    write_report(tmp_path)
    text, reader = read(tmp_path / "report.html")
    assert [tag for tag, _ in reader.tags].count("script") == 1
    assert bad not in text
    assert text.count("{{7*7}}") >= 5
    assert reader.texts.count(bad) >= 4


def test_a_report_without_jinja2_names_the_extra(
    made: tuple[Path, Results], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setattr(html, "_environment", html._environment.__wrapped__)
    with pytest.raises(TacitError, match=r"jinja2 is missing.*pip install 'tacit\[plot\]'"):
        write_report(made[0], tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert len(summaries(entries(read_saved(made[0])))) == 10


def test_a_report_without_known_regret_says_so(tmp_path: Path) -> None:
    world = FromFunction(lambda arm, rng: float(rng.random() < 0.2 + arm / 4), 2)
    sweep(
        algorithms=["ucb1"], environments=[world], problems={"horizon": 50}, out=tmp_path, seeds=1
    )
    write_report(tmp_path)
    text, _ = read(tmp_path / "report.html")
    assert "not known here, nor is regret" in text
    (row,) = summaries(entries(read_saved(tmp_path)))
    assert row["regret_mean"] is None


def test_a_directory_without_a_sweep_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(
        TacitError, match=r"no finished run in log.jsonl. Give the directory of a sweep"
    ):
        write_report(tmp_path)
    study = study_of(SMALL)
    with stored(tmp_path, header(study.name, study.identity()), study.cells):
        pass
    with pytest.raises(TacitError, match=r"no finished run in log.jsonl"):
        write_report(tmp_path)


def test_a_chart_maps_larger_values_up_and_right() -> None:
    points = tuple(Point(x, 3 * x, x) for x in (1.0, 10.0, 1000.0))
    axes = (Axis.around("ε", [1, 1000]), Axis.around("regret", [1, 5000]))
    drawn = Chart("x", *axes, [Series("s", points, "red", marks=True)])
    places = [tuple(map(float, one.split(","))) for one in drawn.line(points).split()]
    assert places == [(drawn.x_position(p.x or 0), drawn.y_position(p.y)) for p in points]
    assert sorted(places) == places
    assert sorted((y for _, y in places), reverse=True) == [y for _, y in places]


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([1, 1e6], [1, 10, 100, 1e3, 1e4, 1e5, 1e6][::2]),
        ([90, 1100], [100, 200, 500, 1000]),
        ([0.0, 0.0], [1]),
        ([3.0], [pytest.approx(3.0)]),
    ],
)
def test_an_axis_has_few_round_ticks(values: list[float], ticks: list[float]) -> None:
    assert Axis.around("x", values).ticks() == ticks
    assert len(ticks) <= 6


def test_lines_of_a_report_differ_by_hue_or_dash(tmp_path: Path) -> None:
    names = ["ucb1", "klucb", "thompson", "successive-elimination", "dp-se", "ldp-se"]
    sweep(algorithms=names, problems={"arms": 2, "horizon": 500}, seeds=1, workers=0, out=tmp_path)
    write_report(tmp_path)
    keys = re.findall(r"<li>(<svg.*?</svg>)", (tmp_path / "report.html").read_text("utf-8"), re.S)
    (sixth,) = (key for key in keys if "var(--o5)" in key)
    lines = {key: 'stroke-dasharray=""' not in key for key in keys if "var(--o" in key}
    assert [key for key, dashed in lines.items() if dashed] == [sixth]
    assert len(lines) == len(names)
