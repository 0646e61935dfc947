"""Plots of results with Matplotlib: regret against rounds, with bands of one standard error.

Matplotlib is imported only when a plot is drawn. Figures do not use pyplot, so the caller's own
figures are not affected. Coinciding curves stay distinguishable: each is thinner than those below
it and dashed, and markers are staggered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit.errors import TacitError
from tacit.simulation.files import atomic_file, write_csv
from tacit.simulation.results import Result

SHOWN = 1e-4  # of the horizon: earlier rounds are not shown, as nothing is learned there
DASHES = ("-", (0, (6, 3)), (2, (2, 2)), (1, (8, 2, 1, 2)))
MARKERS = "osD^vPX"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444")
THEOREM = {"linestyle": (0, (1, 1)), "linewidth": 1.3, "zorder": 1.5}
BOUND = {"color": "#888888", "linestyle": (0, (1, 1.5)), "linewidth": 1.5, "zorder": 1}
LINE, ROOM = 0.21, 4  # inches per line of a legend, and lines that fit below the axes
BELOW = "it holds as T grows: at a finite T\na curve may lie below it"
MARK_EVERY = 9  # checkpoints between markers; the next curve's are offset by one


@dataclass(frozen=True)
class Panel:
    """One set of axes: results by label, and a title."""

    title: str
    results: dict[str, Result]


def axes(rows: int = 1, columns: int = 1) -> tuple[Any, Any]:
    """A figure and its axes (an array if there are several), in the common style."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise TacitError(
            "matplotlib is missing: plots need it. Install it with pip install 'tacit[plot]'."
        ) from error
    size = (max(9.5, 5.6 * columns), max(5.0, 5.4 * rows))
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(rows, columns, squeeze=False)
    for one in grid.flat:
        one.grid(visible=True, alpha=0.25)
        one.spines[["top", "right"]].set_visible(False)
    return figure, grid if grid.size > 1 else grid[0, 0]


def save(figure: Any, path: Path) -> Path:
    """Write a figure atomically, in the format of the file's suffix."""
    kind = path.suffix[1:].lower() or "png"
    known = figure.canvas.get_supported_filetypes()
    if kind not in known:
        raise TacitError(f"plot file is {path.name}: its suffix must be one of {', '.join(known)}")
    with atomic_file(path) as partial:
        figure.savefig(partial, dpi=150, format=kind)
    return path


def style(index: int) -> dict[str, Any]:
    """The style of the curve with this index; the first 28 are distinct."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": DASHES[index % len(DASHES)],
        "marker": MARKERS[index % len(MARKERS)],
        "markevery": (index % MARK_EVERY, MARK_EVERY),
        "markersize": 7,
        "markeredgecolor": "white",
        "markeredgewidth": 0.6,
        "linewidth": max(1.2, 3.2 - 0.35 * index),
        "zorder": 2 + index / 100,
    }


def legend(axis: Any, *, below: bool = False) -> None:
    """Add a legend outside the axes, in the order of the curves' last values, highest first.

    It is placed to the right of the axes or, with `below`, under them.
    """
    drawn, labels = axis.get_legend_handles_labels()
    ends = [float(curve.get_ydata()[-1]) for curve in drawn]
    order = sorted(range(len(ends)), key=lambda i: -ends[i] if math.isfinite(ends[i]) else math.inf)
    axis.legend(
        [drawn[i] for i in order],
        [labels[i] for i in order],
        fontsize=10,
        frameon=False,
        handlelength=3.5,
        loc="upper center" if below else "upper left",
        bbox_to_anchor=(0.5, -0.15) if below else (1.0, 1.0),
    )


def _legends_height(figure: Any) -> float:
    """Additional inches that legends below the axes need."""
    texts = [
        [text.get_text() for text in one.get_legend().get_texts()] for one in _with_legend(figure)
    ]
    lines = max(sum(text.count("\n") + 1 for text in entries) for entries in texts)
    rows = figure.axes[0].get_gridspec().nrows
    return float(rows * max(0.0, LINE * (lines - ROOM)))


def _with_legend(figure: Any) -> list[Any]:
    return [one for one in figure.axes if one.get_legend() is not None]


def band(axis: Any, x: Any, mean: Any, spread: Any, *, color: str, **style: Any) -> None:
    """Plot a line with an error band."""
    axis.plot(x, mean, color=color, **style)
    axis.fill_between(x, mean - spread, mean + spread, color=color, alpha=0.2, linewidth=0)


def picture(
    panels: Sequence[Panel],
    *,
    time_average: bool = True,
    title: str = "",
    per: str = "participant",
    regret: str = "regret",
) -> Any:
    """A figure with panels side by side, at most three in a row; each label has one style."""
    columns = min(3, len(panels))
    figure, _ = axes(-(-len(panels) // columns), columns)
    styles = _styles(panels)
    for one, panel in zip(figure.axes, panels, strict=False):
        draw_panel(one, panel, styles, time_average=time_average, per=per, regret=regret)
        legend(one, below=columns > 1)
    if columns > 1:
        figure.set_figheight(figure.get_figheight() + _legends_height(figure))
    for one in figure.axes[len(panels) :]:
        one.set_visible(False)
    if title:
        figure.suptitle(title, fontsize=13)
    return figure


def draw_panel(
    axis: Any,
    panel: Panel,
    styles: Mapping[str, dict[str, Any]] | None = None,
    *,
    time_average: bool = True,
    per: str = "participant",
    regret: str = "regret",
) -> None:
    """Draw a panel on axes, without a legend."""
    drawn = _styles([panel]) if styles is None else styles
    for label, result in panel.results.items():
        _curve(axis, label, result, drawn[label], time_average)
    _bounds(axis, panel, time_average)
    colours = {label: str(drawn[label]["color"]) for label in panel.results}
    theorems(axis, panel.results, colours, time_average)
    longest = max(result.horizon for result in panel.results.values())
    axis.set_xscale("log")
    axis.set_xlim(max(1.0, longest * SHOWN), longest * 1.1)
    if not time_average:
        axis.set_yscale("log")
        axis.set_ylim(bottom=1)
    axis.set_title(panel.title, fontsize=12)
    axis.set_xlabel(f"{per}s so far", fontsize=11)
    axis.set_ylabel(f"{regret} per {per}" if time_average else f"{regret} so far", fontsize=11)


def _styles(panels: Sequence[Panel]) -> dict[str, dict[str, Any]]:
    """One style per label."""
    labels = dict.fromkeys(label for panel in panels for label in panel.results)
    return {label: style(i) for i, label in enumerate(labels)}


def _curve(axis: Any, label: str, result: Result, drawn: dict[str, Any], average: bool) -> None:
    mean, sem = result.curve()
    rounds = result.checkpoints
    scale = 1 / rounds if average else 1.0
    band(axis, rounds, mean * scale, sem * scale, label=label, **drawn)


def _bounds(axis: Any, panel: Panel, average: bool) -> None:
    """Plot the asymptotic lower bounds on regret, one line per distinct bound."""
    found: dict[float, float | None] = {}
    for result in panel.results.values():
        if (slope := result.lower_bound_slope) is not None:
            found[slope] = result.configuration.get("epsilon") or found.get(slope)
    longest = max(panel.results.values(), key=lambda result: result.horizon)
    rounds, limits = longest.checkpoints[1:], axis.get_ylim()
    for slope, epsilon in found.items():
        line = slope * np.log(rounds) / (rounds if average else 1.0)
        privacy = "no privacy" if epsilon is None else f"central DP, ε = {epsilon:g}"
        said = f"lower bound\n(asymptotic, {privacy};\n{BELOW})"
        axis.plot(rounds, line, label=said, **BOUND)
    axis.set_ylim(limits)  # early on, the asymptotic bound is far above any regret


def theorems(
    axis: Any, results: Mapping[str, Result], colours: Mapping[str, str], average: bool
) -> None:
    """Plot the orders that the papers prove, in each curve's colour.

    Results with the same bound share one line. The label says if a line is outside the axes.
    """
    limits, drawn = axis.get_ylim(), set[tuple[str, bytes]]()
    shown = [(label, result, bound) for label, result in results.items() for bound in result.bounds]
    for label, result, bound in shown:
        rounds = result.checkpoints[result.checkpoints >= 2]
        line = bound.at(rounds) / (rounds if average else 1.0)
        if (bound.theorem, line.tobytes()) in drawn:
            continue
        drawn.add((bound.theorem, line.tobytes()))
        hidden = not ((line >= limits[0]) & (line <= limits[1])).any()
        where = f"; beyond, ends at {line[-1]:.3g}" if hidden else ""
        said = f"{bound.theorem} for {label}\n({bound.order}{where})"
        axis.plot(rounds, line, label=said, color=colours[label], **THEOREM)
    axis.set_ylim(limits)


def draw_panels(panels: Sequence[Panel], path: Path, **options: Any) -> None:
    """Write the `picture` of panels to a file."""
    save(picture(panels, **options), path)


def write_panels(panels: Sequence[Panel], out: Path, name: str) -> list[Path]:
    """Write the data of panels: `name.csv` with every run, `name-means.csv` with means and standard
    errors.
    """
    every, means = out / f"{name}.csv", out / f"{name}-means.csv"
    labelled = [
        ({"panel": panel.title, "label": label}, result)
        for panel in panels
        for label, result in panel.results.items()
    ]
    write_csv(every, [about | row for about, result in labelled for row in result.curves()])
    rows = [
        about
        | {
            "algorithm": result.algorithm,
            "round": int(t),
            "regret_mean": m,
            "regret_sem": None if math.isnan(s) else s,
            "time_average": m / t,
            "guarantee": result.guarantee_text,
        }
        for about, result in labelled
        for t, m, s in zip(result.checkpoints, *result.curve(), strict=True)
    ]
    write_csv(means, rows)
    return [every, means]
