"""The report of a sweep: one self-contained HTML page, and tables as CSV.

The page states the findings in words first. For every problem and environment it plots regret with
error bands, regret against ε, bits against regret, and the lower bound. A sortable table of all
configurations and the information to reproduce the sweep follow. A report does not need the
algorithms to be installed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from tacit.html import render
from tacit.html.charts import DASHES, Axis, Chart, Point, Series, evenly
from tacit.simulation import limits
from tacit.simulation.files import atomic_file, write_csv
from tacit.simulation.results import CURVES, Result
from tacit.simulation.sweeping import SavedStudy, read_saved

MOST_OPEN = 4  # settings whose plots are not collapsed
MOST_PANELS = 6  # values of ε with their own plot
SHOWN = 1e-3  # of the horizon: earlier participants are not shown, as nothing is learned there
WIDTH = 2.0  # standard errors to either side of a mean: about 95%
DEEPEST = 1e-3  # of the largest regret: less is not shown
COLOURS = tuple(f"var(--o{place})" for place in range(7))
DISTINCT = 5  # colours that differ in hue; lines of further ones are dashed, too

Looks = Mapping[str, tuple[str, str]]
"""Colour and dash of every variant."""


@dataclass(frozen=True)
class ReportEntry:
    """A configuration and its runs."""

    about: Mapping[str, Any]
    result: Result

    @property
    def setting(self) -> tuple[str, str, str]:
        """Family, problem and environment; entries with the same setting are compared."""
        return self.about["family"], self.about["problem"], self.about["environment"]

    @property
    def epsilon(self) -> float | None:
        """The requested ε, which may differ from the guaranteed one; None without privacy."""
        found = self.about["options"].get("epsilon")
        return None if found is None else float(found)

    @property
    def short(self) -> str:
        """The guarantee in short notation; its ε may differ from the requested one."""
        return self.result.short

    @property
    def variant(self) -> str:
        """Label that distinguishes configurations of one algorithm, except by ε."""
        others = {k: v for k, v in self.about["chosen"]["guarantee"].items() if k != "epsilon"}
        said = [f"{'δ' if name == 'delta' else name} {v}" for name, v in others.items()]
        return ", ".join([self.about["label"], *said])

    def final(self, x: float | None) -> Point:
        """Final regret with its error, at a position."""
        return Point(x, self.result.regret_mean, WIDTH * (self.result.regret_sem or 0.0))

    def options(self) -> str:
        """All options that have a value."""
        given = self.about["options"].items()
        return ", ".join(f"{name} {value}" for name, value in given if value is not None)


def entries(study: SavedStudy) -> list[ReportEntry]:
    """The configurations that have runs, in the order of the study."""
    about, seeds = study.head["study"]["configurations"], study.head["study"]["seeds"]
    return [ReportEntry(about[one.runs[0]["cell"] // seeds], one) for one in study.results()]


def summaries(entries: Iterable[ReportEntry]) -> list[dict[str, Any]]:
    """One row per configuration: its options, and means over its runs."""
    rows = []
    for one in entries:
        result = one.result
        known = result.regret_known
        extras = {
            name: result.mean(name) for name in result.extras if all(name in r for r in result.runs)
        }
        rows.append(
            {
                "algorithm": one.about["label"],
                "problem": one.about["problem"],
                "environment": one.about["environment"],
                "guarantee": one.about["guarantee"],
                "epsilon": one.epsilon,
                "delta": one.about["options"].get("delta"),
                "horizon": result.horizon,
                "runs": len(result.runs),
                "regret_mean": result.regret_mean if known else None,
                "regret_sem": result.regret_sem if known else None,
                "times_lower_bound": result.times_lower_bound,
                "rounds": result.mean("rounds"),
                **extras,
                "achieved_guarantee": result.guarantee_text,
            }
        )
    return rows


def write_report(
    directory: Path, out: Path | None = None, bound: Callable[[Result], Result] | None = None
) -> list[Path]:
    """Write `report.html`, `summary.csv` (a row per configuration) and `runs.csv` (a row
    per run).

    `bound` adds a theorem to a result (`tacit.papers.bounds.with_bounds`), which plots then show.
    """
    found, where = read_saved(directory), out or directory
    listed = entries(found)
    if bound is not None:
        listed = [replace(one, result=bound(one.result)) for one in listed]
    paths = [where / name for name in ("report.html", "summary.csv", "runs.csv")]
    with atomic_file(paths[0]) as partial:
        partial.write_text(html(found, listed), encoding="utf-8")
    write_csv(paths[1], summaries(listed))
    curves = set(CURVES)
    write_csv(paths[2], [{k: v for k, v in r.items() if k not in curves} for r in found.rows])
    return paths


@dataclass(frozen=True)
class SettingCharts:
    """A problem in an environment: the legend and charts of its entries, and their bounds."""

    title: str
    keys: list[tuple[str, str, str]]
    figures: list[tuple[str, Chart]]
    bounded: bool
    theorems: list[str]


def html(study: SavedStudy, entries: Sequence[ReportEntry]) -> str:
    """The whole page."""
    settings: dict[tuple[str, str, str], list[ReportEntry]] = {}
    for one in entries:
        settings.setdefault(one.setting, []).append(one)
    looks = _variant_styles(entries)
    titles = {setting: _title(setting, list(settings)) for setting in settings}
    return render(
        __package__,
        "report.html",
        found=study,
        listed=entries,
        shared=_shared(list(settings)),
        winners=[
            (f"{name} ({titles[setting]})" if len(settings) > 1 else name, losses)
            for setting, group in settings.items()
            for name, losses in _least_regret(group)
        ],
        settings=[_charts(titles[setting], group, looks) for setting, group in settings.items()],
        most_open=MOST_OPEN,
        table=_table(entries),
    )


def _is_distinctive(part: str) -> bool:
    """Whether this part of a setting distinguishes it: it is neither a default nor missing."""
    return part not in ("default", "–")


def _title(setting: tuple[str, str, str], settings: Sequence[tuple[str, str, str]]) -> str:
    """The title of a setting: the parts that differ between settings, or all parts of a
    single one.
    """
    differing = [
        part
        for place, part in enumerate(setting)
        if _is_distinctive(part)
        and (place or not _is_distinctive(setting[1]))  # a problem implies its family
        and (len(settings) == 1 or len({other[place] for other in settings}) > 1)
    ]
    return "; ".join(differing) or "Regret"


def _shared(settings: Sequence[tuple[str, str, str]]) -> list[str]:
    """Problem and environment, where several settings have the same."""
    if len(settings) == 1:
        return []
    alike = [set(parts) for parts in zip(*settings, strict=True)]
    return [
        part for parts in alike[1:] if len(parts) == 1 for part in parts if _is_distinctive(part)
    ]


def _variant_styles(entries: Sequence[ReportEntry]) -> Looks:
    """A colour and a dash for every variant, the same on the whole page."""
    names = dict.fromkeys(one.variant for one in entries)
    return {
        name: (COLOURS[place % len(COLOURS)], DASHES[place // DISTINCT % len(DASHES)])
        for place, name in enumerate(names)
    }


def _least_regret(group: Sequence[ReportEntry]) -> Iterator[tuple[str, str]]:
    """The algorithm with least regret for each ε; consecutive values with the same one are
    joined.
    """
    private = [one for one in group if one.result.guarantee is not None and one.result.regret_known]
    best = [
        min(
            (one for one in private if one.epsilon == epsilon),
            key=lambda one: one.result.regret_mean,
        )
        for epsilon in _epsilons(private)
    ]
    for name, run in groupby(best, key=lambda one: one.variant):
        losses = ", ".join(
            f"{one.result.regret_mean:,.4g}"
            + (f" ± {one.result.regret_sem:,.2g}" if one.result.regret_sem else "")
            + f" under {one.short}"
            for one in run
        )
        yield name, f"regret {losses} (± standard error)"


def _epsilons(entries: Iterable[ReportEntry]) -> list[float]:
    return sorted({one.epsilon for one in entries if one.epsilon is not None})


# Charts


def _charts(title: str, group: list[ReportEntry], looks: Looks) -> SettingCharts:
    known = [one for one in group if one.result.regret_known]
    if not known:
        return SettingCharts(title, [], [], False, [])
    per, epsilons = known[0].about["per"], _epsilons(known)
    who = "participant" if per == "round" else per
    figures = [
        (f"Regret by {per}s, requested ε = {epsilon:g}", _curves(known, epsilon, looks))
        for epsilon in evenly(epsilons, MOST_PANELS)
    ] or [(f"Regret by {per}s", _curves(known, None, looks))]
    if len(epsilons) > 1:
        against = _against_epsilon(known, epsilons, looks)
        figures.append(("Regret at the end against the requested ε", against))
    figures.append((f"Regret at the end against bits sent by each {who}", _bits(known, looks)))
    keys = [(name, *looks[name]) for name in dict.fromkeys(one.variant for one in known)]
    bounded = any(one.result.times_lower_bound is not None for one in known)
    theorems = limits.theorems(one.result for one in known)
    if bounded:
        keys.append(("asymptotic lower bound", limits.SOFT, limits.LEAST_DASH))
    if theorems:
        keys.append(("bounds of the papers (order only)", limits.SOFT, limits.PROVED_DASH))
    return SettingCharts(title, keys, figures, bounded, theorems)


def _curves(entries: list[ReportEntry], epsilon: float | None, looks: Looks) -> Chart:
    """Regret over time at one ε, and of algorithms without privacy."""
    shown = [one for one in entries if one.epsilon in (epsilon, None)]
    longest = max(one.result.horizon for one in shown)
    first = max(1.0, longest * SHOWN)
    lowest = DEEPEST * max(one.result.regret_mean for one in shown)
    series = []
    for one in shown:
        mean, sem = one.result.curve()
        points = tuple(
            Point(float(t), float(m), 0.0 if math.isnan(s) else WIDTH * float(s))
            for t, m, s in zip(one.result.checkpoints, mean, sem, strict=True)
            if t >= first and m >= lowest
        )
        series.append(Series(one.variant, points, *looks[one.variant]))
    per = entries[0].about["per"]
    across = Axis.around(f"{per}s so far", [first, longest], room=0.01)
    up = Axis.around("regret", [p.y for line in series for p in line.points])
    least = limits.lower_bounds((one.result for one in shown), first)
    proved = limits.proven_orders(((one.result, looks[one.variant][0]) for one in shown), first, up)
    return Chart(f"regret by {per}s", across, up, [*series, *least, *proved])


def _by_variant(
    entries: list[ReportEntry], looks: Looks, position: Callable[[ReportEntry], float | None]
) -> list[Series]:
    """Final regret of every variant in order of ε, at the places given."""
    found: dict[str, list[Point]] = {}
    for one in sorted(entries, key=lambda one: one.epsilon or 0.0):
        found.setdefault(one.variant, []).append(one.final(position(one)))
    return [Series(name, tuple(p), *looks[name], marks=True) for name, p in found.items()]


def _against_epsilon(entries: list[ReportEntry], epsilons: list[float], looks: Looks) -> Chart:
    """Final regret against ε; an algorithm without privacy is a horizontal line."""
    bounds = {
        one.epsilon: one.result.mean("lower_bound")
        for one in entries
        if one.epsilon and one.result.times_lower_bound is not None
    }
    placed = tuple(Point(e, value) for e, value in sorted(bounds.items()))
    lowest = Series("lower bound", placed, limits.SOFT, limits.LEAST_DASH, quiet=True)
    series = [*_by_variant(entries, looks, lambda one: one.epsilon), lowest]
    across = Axis.around("requested ε", epsilons, places=epsilons)
    return Chart("regret at the end by epsilon", across, _final_regret_axis(series), series)


def _bits(entries: list[ReportEntry], looks: Looks) -> Chart:
    """Final regret against bits per participant; an algorithm's points are joined in order of ε."""
    series = _by_variant(entries, looks, lambda one: max(one.result.mean("bits_per_user"), 1e-3))
    across = Axis.around("bits", [p.x for line in series for p in line.points if p.x is not None])
    return Chart("regret at the end by bits", across, _final_regret_axis(series), series)


def _final_regret_axis(series: Sequence[Series]) -> Axis:
    ends = [y for line in series for p in line.points for y in (p.y, p.y + p.spread)]
    return Axis.around("regret at the end", ends)


# Table


@dataclass(frozen=True)
class ReportTable:
    """A sortable table: headings of words and of numbers, and rows of both.

    A number is its exact value, for sorting, and its text.
    """

    words: list[str]
    numbers: list[str]
    rows: list[tuple[list[str], list[tuple[str, str]]]]


def _table(entries: Sequence[ReportEntry]) -> ReportTable:
    found = zip(summaries(entries), entries, strict=True)
    rows = [row | {"achieved": one.short} for row, one in found]
    words = {"algorithm": "algorithm", "achieved": "achieved guarantee"} | {
        name: "requested" if name == "guarantee" else name
        for name in ("guarantee", "problem", "environment")
        if len({row[name] for row in rows}) > 1
    }
    numbers = {
        "regret_mean": "regret",
        "regret_sem": "± s.e.",
        "times_lower_bound": "times bound",
        "bits_per_user": "bits each",
        "rounds": "rounds",
        "runs": "runs",
    }
    kept = {k: v for k, v in numbers.items() if any(row.get(k) is not None for row in rows)}
    rows.sort(key=lambda row: [str(row[k]) for k in reversed(words)][:-1])
    return ReportTable(
        list(words.values()),
        list(kept.values()),
        [([str(row[k]) for k in words], [_number(row.get(k)) for k in kept]) for row in rows],
    )


def _number(value: float | None) -> tuple[str, str]:
    if value is None or math.isnan(value):
        return "", "–"
    short = f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"
    return repr(value), short
