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
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from tacit.simulation import limits
from tacit.simulation.charts import DASHES, Axis, Point, Series, chart
from tacit.simulation.files import whole, write_csv
from tacit.simulation.page import COLOURS, page
from tacit.simulation.results import CURVES, Result
from tacit.simulation.sweeping import Saved, saved

MOST_OPEN = 4  # settings whose plots are not collapsed
MOST_PANELS = 6  # values of ε with their own plot
SHOWN = 1e-3  # of the horizon: earlier participants are not shown, as nothing is learned there
WIDTH = 2.0  # standard errors to either side of a mean: about 95%
DEEPEST = 1e-3  # of the largest regret: less is not shown

STYLE = """
body { max-width: 64rem; }
svg text { font-size: 13px; }
h3 { font-size: 1rem; margin: 2.25rem 0 .5rem; }
.grid { display: grid; gap: 1.75rem 2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr)); }
dl.first dd div + div { margin-top: .6rem; }
figure { margin: 0; } figcaption { color: var(--soft); margin-bottom: .35rem; }
ul.keys { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .1rem 1.4rem;
  margin: 0 0 1rem; font-size: .95rem; }
ul.keys svg { display: inline-block; width: 2.2em; height: .8em; margin-right: .45em; }
details { margin-top: 2.5rem; } summary { cursor: pointer; font-weight: 600; }
th button { all: unset; cursor: pointer; color: inherit; }
th button:focus-visible { outline: 2px solid var(--accent); }
th[aria-sort=ascending] button::after { content: " ↑"; }
th[aria-sort=descending] button::after { content: " ↓"; }
td.word, th.word { text-align: left; }
table.plain th { vertical-align: top; }
table.plain td { white-space: normal; text-align: left; vertical-align: top; }
code { overflow-wrap: anywhere; }
@media (max-width: 40rem) { body { padding-top: 1.5rem; } dl.first dd { font-size: 1.15rem; }
  table.sortable { font-size: .85rem; } table.sortable :is(th, td) { padding: .35rem .3rem; }
  td.word { white-space: normal; min-width: 4.5rem; line-height: 1.3; }
  table.sortable :is(th, td):first-child { position: sticky; left: 0; background: var(--ground);
    min-width: 6.5rem; } }
"""
SCRIPT = """
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, place) => head.firstChild.addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    heads.forEach(one => one.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = row => row.cells[place].dataset.value;
    const words = head.classList.contains("word");
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === "" || y === "") return (x === "") - (y === "");
      const less = words ? x.localeCompare(y) : Number(x) - Number(y);
      return up ? less : -less;
    });
    table.tBodies[0].append(...rows);
  }));
}
"""


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

    def final(self) -> Point:
        """Final regret with its error, at the requested ε."""
        return Point(self.epsilon, self.result.regret_mean, WIDTH * (self.result.regret_sem or 0.0))


def entries(found: Saved) -> list[ReportEntry]:
    """The configurations that have runs, in the order of the study."""
    about, seeds = found.head["study"]["configurations"], found.head["study"]["seeds"]
    return [ReportEntry(about[one.runs[0]["cell"] // seeds], one) for one in found.results()]


def summaries(listed: Iterable[ReportEntry]) -> list[dict[str, Any]]:
    """One row per configuration: its options, and means over its runs."""
    rows = []
    for one in listed:
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
                "promise": result.promise,
            }
        )
    return rows


def write_report(
    directory: Path, out: Path | None = None, bound: Callable[[Result], Result] | None = None
) -> list[Path]:
    """Write `report.html`, `summary.csv` (a row per configuration) and `runs.csv` (a row
    per run).

    `bound` adds a theorem to a result (`tacit.papers.bounds.with_bound`), which plots then show.
    """
    found, where = saved(directory), out or directory
    listed = entries(found)
    if bound is not None:
        listed = [replace(one, result=bound(one.result)) for one in listed]
    paths = [where / name for name in ("report.html", "summary.csv", "runs.csv")]
    with whole(paths[0]) as partial:
        partial.write_text(html(found, listed), encoding="utf-8")
    write_csv(paths[1], summaries(listed))
    curves = set(CURVES)
    write_csv(paths[2], [{k: v for k, v in r.items() if k not in curves} for r in found.rows])
    return paths


def html(found: Saved, listed: Sequence[ReportEntry]) -> str:
    """The whole page."""
    settings = [
        (setting, list(group))
        for setting, group in groupby(_by_setting(listed), lambda e: e.setting)
    ]
    looks = _looks(listed)
    parts = [f"<h1>{escape(found.head['name'])}</h1>", _first(found, settings)]
    for place, (setting, group) in enumerate(settings):
        title, body = _titled(setting, settings), _pictures(group, looks)
        parts += (
            [f"<h2>{escape(title)}</h2>", body]
            if place < MOST_OPEN
            else [f"<details><summary>{escape(title)}</summary>{body}</details>"]
        )
    parts += ["<h2>Everything, in one table</h2>", _table(listed)]
    parts += _failures(found)
    parts += ["<h2>To run it again</h2>", *_again(found)]
    return page(found.name, parts, STYLE, SCRIPT)


def _by_setting(listed: Sequence[ReportEntry]) -> list[ReportEntry]:
    order = list(dict.fromkeys(one.setting for one in listed))
    return sorted(listed, key=lambda one: order.index(one.setting))


def _titled(setting: tuple[str, str, str], settings: Sequence[Any]) -> str:
    """The title of a setting: the parts that differ between settings, or all parts of a
    single one.
    """
    known = [other for other, _ in settings]
    alone = len(known) == 1
    told = [
        part
        for place, part in enumerate(setting)
        if part not in ("default", "–")
        and (place or setting[1] == "default")  # a problem implies its family
        and (alone or len({other[place] for other in known}) > 1)
    ]
    return "; ".join(told) or "Regret"


def _looks(listed: Sequence[ReportEntry]) -> dict[str, tuple[str, str]]:
    """A colour and a dash for every variant, the same on the whole page."""
    names = dict.fromkeys(one.variant for one in listed)
    return {
        name: (COLOURS[place % len(COLOURS)], DASHES[place // len(COLOURS) % len(DASHES)])
        for place, name in enumerate(names)
    }


# Findings in words


def _first(found: Saved, settings: Sequence[tuple[tuple[str, str, str], list[ReportEntry]]]) -> str:
    about = found.head["study"]
    runs = f"{len(found.rows):,} runs"
    if len(found.rows) < found.cells:
        runs = f"{len(found.rows):,} of {found.cells:,} runs, so far"
    labels = dict.fromkeys(one["label"] for one in about["configurations"])
    said = (
        f"{_count(len(labels), 'algorithm')} in "
        f"{_count(len(about['configurations']), 'configuration')}, "
        f"{_count(about['seeds'], 'seed')} each: {runs}"
    )
    shared = [
        part
        for place, part in enumerate(settings[0][0])
        if place
        and len(settings) > 1
        and part not in ("default", "–")
        and len({setting[place] for setting, _ in settings}) == 1
    ]
    told = f"<small>{escape('; '.join(shared))}</small>" if shared else ""
    winners = [line for setting in settings for line in _least(setting, settings)]
    more = f"<small>and {len(winners) - 6} more, in the table below</small>" * (len(winners) > 6)
    least = "".join(winners[:6]) or "Nobody knows what the options are worth."
    return (
        f'<dl class="first"><dt>What was compared?</dt><dd>{escape(said)}{told}</dd>'
        f"<dt>Who lost least, of those that promise something?</dt><dd>{least}{more}</dd></dl>"
    )


def _count(number: int, name: str) -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def _least(
    setting: tuple[tuple[str, str, str], list[ReportEntry]], settings: Sequence[Any]
) -> Iterator[str]:
    """The algorithm with least regret for each ε; consecutive values with the same one are
    joined.
    """
    place, group = setting
    private = [one for one in group if one.result.guarantee is not None and one.result.regret_known]
    best = []
    for epsilon in _epsilons(private):
        same = [one for one in private if one.epsilon == epsilon]
        best.append(min(same, key=lambda one: one.result.regret_mean))
    for name, found in groupby(best, key=lambda one: one.variant):
        run = list(found)
        losses = ", ".join(
            f"{one.result.regret_mean:,.4g}"
            + (f" ± {one.result.regret_sem:,.2g}" if one.result.regret_sem else "")
            + f" under {one.short}"
            for one in run
        )
        where = f" ({_titled(place, settings)})" if len(settings) > 1 else ""
        told = f"regret {losses} (± standard error)"
        yield f"<div>{escape(name + where)}<small>{escape(told)}</small></div>"


def _epsilons(listed: Iterable[ReportEntry]) -> list[float]:
    return sorted({one.epsilon for one in listed if one.epsilon is not None})


# Plots


def _pictures(group: list[ReportEntry], looks: Mapping[str, tuple[str, str]]) -> str:
    known = [one for one in group if one.result.regret_known]
    if not known:
        return '<p class="note">What the options are worth is not known here, nor is regret.</p>'
    per = known[0].about["per"]
    epsilons = _epsilons(known)
    figures = [
        (f"Regret by {per}s, asked for ε = {epsilon:g}", _curves(known, epsilon, looks))
        for epsilon in _some(epsilons)
    ] or [(f"Regret by {per}s", _curves(known, None, looks))]
    if len(epsilons) > 1:
        figures.append(
            ("Regret at the end against the ε asked for", _against_epsilon(known, looks))
        )
    figures.append(
        (f"Regret at the end against bits sent by each {_who(per)}", _bits(known, looks))
    )
    drawn = "".join(
        f"<figure><figcaption>{escape(title)}</figcaption>{svg}</figure>" for title, svg in figures
    )
    bands = "Bands and bars are two standard errors to either side."
    return (
        f'{_keys(known, looks)}<div class="grid">{drawn}</div><p class="note">{bands}'
        f"{_bound_note(known)}</p>"
    )


def _who(per: str) -> str:
    return "participant" if per == "round" else per


def _some(epsilons: list[float]) -> list[float]:
    """At most `MOST_PANELS` of the values, evenly spaced."""
    if len(epsilons) <= MOST_PANELS:
        return epsilons
    step = (len(epsilons) - 1) / (MOST_PANELS - 1)
    return [epsilons[round(place * step)] for place in range(MOST_PANELS)]


def _keys(known: list[ReportEntry], looks: Mapping[str, tuple[str, str]]) -> str:
    """The legend."""
    names = dict.fromkeys(one.variant for one in known)
    keys = [(name, *looks[name]) for name in names]
    if any(one.result.times_lower_bound is not None for one in known):
        keys.append(("lower bound", limits.SOFT, limits.LEAST_DASH))
    if limits.theorems(one.result for one in known):
        keys.append(("what papers prove (order only)", limits.SOFT, limits.PROVED_DASH))
    return (
        '<ul class="keys">'
        + "".join(
            f'<li><svg viewBox="0 0 34 12" aria-hidden="true"><line x1="1" x2="33" y1="6" y2="6" '
            f'stroke="{colour}" stroke-width="3" stroke-dasharray="{dash}"/></svg>'
            f"{escape(name)}</li>"
            for name, colour, dash in keys
        )
        + "</ul>"
    )


def _bound_note(known: list[ReportEntry]) -> str:
    notes = ""
    if any(one.result.times_lower_bound is not None for one in known):
        notes = (
            " The lower bound is what no learner beats in the long run, even with a trusted "
            "server; it is asymptotic, so with few participants less is possible."
        )
    if theorems := limits.theorems(one.result for one in known):
        notes += (
            f" Papers prove the order of regret, drawn with constant 1 in the colour of whom it "
            f"is about, where it lies within the picture: {', '.join(theorems)}."
        )
    return notes


def _curves(
    known: list[ReportEntry], epsilon: float | None, looks: Mapping[str, tuple[str, str]]
) -> str:
    """Regret over time at one ε, and of algorithms without privacy."""
    shown = [one for one in known if one.epsilon in (epsilon, None)]
    longest = max(one.result.horizon for one in shown)
    first = max(1.0, longest * SHOWN)
    lowest = DEEPEST * max(one.result.regret_mean for one in shown)
    series = []
    for one in shown:
        mean, sem = one.result.curve()
        colour, dash = looks[one.variant]
        points = tuple(
            Point(float(t), float(m), 0.0 if math.isnan(s) else WIDTH * float(s))
            for t, m, s in zip(one.result.checkpoints, mean, sem, strict=True)
            if t >= first and m >= lowest
        )
        series.append(Series(one.variant, points, colour, dash))
    ends = [p.y for line in series for p in line.points]
    per = known[0].about["per"]
    across = Axis.around(f"{per}s so far", [first, longest], room=0.01)
    up = Axis.around("regret", ends)
    least = limits.least((one.result for one in shown), first)
    proved = limits.proved(((one.result, looks[one.variant][0]) for one in shown), first, up)
    return chart(f"regret by {per}s", across, up, [*series, *least, *proved])


def _series_by_variant(known: list[ReportEntry]) -> dict[str, list[ReportEntry]]:
    found: dict[str, list[ReportEntry]] = {}
    for one in sorted(known, key=lambda one: one.epsilon or 0.0):
        found.setdefault(one.variant, []).append(one)
    return found


def _against_epsilon(known: list[ReportEntry], looks: Mapping[str, tuple[str, str]]) -> str:
    """Final regret against ε; an algorithm without privacy is a horizontal line."""
    series = [
        Series(name, tuple(one.final() for one in group), *looks[name], marks=True)
        for name, group in _series_by_variant(known).items()
    ]
    bounds = {
        one.epsilon: one.result.mean("lower_bound")
        for one in known
        if one.result.times_lower_bound is not None
    }
    placed = tuple(Point(e, v) for e, v in sorted((e, v) for e, v in bounds.items() if e))
    lowest = Series("lower bound", placed, limits.SOFT, limits.LEAST_DASH, quiet=True)
    values = [y for line in [*series, lowest] for p in line.points for y in (p.y, p.y + p.spread)]
    across = Axis.around("ε asked for", _epsilons(known), places=_epsilons(known))
    up = Axis.around("regret at the end", values)
    return chart("regret at the end by epsilon", across, up, [*series, lowest])


def _bits(known: list[ReportEntry], looks: Mapping[str, tuple[str, str]]) -> str:
    """Final regret against bits per participant; an algorithm's points are joined in order of ε."""
    series = []
    for name, group in _series_by_variant(known).items():
        points = tuple(
            Point(max(one.result.mean("bits_per_user"), 1e-3), one.final().y, one.final().spread)
            for one in group
        )
        series.append(Series(name, points, *looks[name], marks=True))
    placed = [p for line in series for p in line.points]
    across = Axis.around("bits", [p.x for p in placed if p.x is not None])
    up = Axis.around("regret at the end", [y for p in placed for y in (p.y, p.y + p.spread)])
    return chart("regret at the end by bits", across, up, series)


# Tables


def _table(listed: Sequence[ReportEntry]) -> str:
    found = zip(summaries(listed), listed, strict=True)
    rows = [row | {"promise": one.short} for row, one in found]
    words = {"algorithm": "algorithm", "promise": "promise"} | {
        name: "asked for" if name == "guarantee" else name
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
    heads = "".join(
        f'<th scope="col"{_class(name in words)}><button type="button">{label}</button></th>'
        for name, label in (words | kept).items()
    )
    body = "".join(
        "<tr>"
        + "".join(f'<td class="word" data-value="{_q(row[k])}">{_q(row[k])}</td>' for k in words)
        + "".join(f'<td data-value="{_raw(row.get(k))}">{_number(row.get(k))}</td>' for k in kept)
        + "</tr>"
        for row in sorted(rows, key=lambda row: [str(row[k]) for k in reversed(words)][:-1])
    )
    return (
        f'<div class="scroll"><table class="sortable"><thead><tr>{heads}</tr></thead>'
        f'<tbody>{body}</tbody></table></div><p class="note">A click on a heading sorts.</p>'
    )


def _class(word: bool) -> str:
    return ' class="word"' if word else ""


def _q(text: object) -> str:
    return escape(str(text), quote=True)


def _raw(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else repr(value)


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.3g}"


def _failures(found: Saved) -> list[str]:
    if not found.failures:
        return []
    items = "".join(
        f"<li>cell {one['cell']}: {escape(one['algorithm'])}, seed {one['seed']}: "
        f"{escape(one['error'])}</li>"
        for one in found.failures[:50]
    )
    return [f"<h2>{_count(len(found.failures), 'run')} failed</h2>", f"<ul>{items}</ul>"]


def _again(found: Saved) -> list[str]:
    """Configurations, versions and command, to reproduce the sweep."""
    about, versions = found.head["study"], found.head["versions"]
    first, seeds = about["first_seed"], about["seeds"]
    rows = [
        ("command", f"<code>{escape(found.head['command'] or 'tacit.sweep in Python')}</code>"),
        ("version", escape(", ".join(f"{name} {v}" for name, v in versions.items()))),
        ("seeds", f"{first} to {first + seeds - 1}"),
    ]
    for axis in ("label", "problem", "environment", "guarantee"):
        names = dict.fromkeys(one[axis] for one in about["configurations"])
        label = {"label": "algorithms", "guarantee": "asked for"}.get(axis, f"{axis}s")
        rows.append((label, "<br>".join(map(escape, names))))
    told = "".join(
        f'<tr><th scope="row">{escape(one.about["label"])}<br>{escape(one.about["guarantee"])}</th>'
        f"<td>{escape(one.result.promise)}</td><td>{escape(_options(one.about['options']))}</td></tr>"
        for one in entries(found)
    )
    body = "".join(f'<tr><th scope="row">{name}</th><td>{text}</td></tr>' for name, text in rows)
    return [
        f'<table class="plain"><tbody>{body}</tbody></table>',
        "<details><summary>Every configuration: what it promises, and all its options</summary>"
        f'<div class="scroll"><table class="plain"><tbody>{told}</tbody></table></div></details>',
    ]


def _options(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in options.items() if value is not None)
