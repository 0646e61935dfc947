"""Pictures of results: regret against rounds, with bands of one standard error.

Matplotlib is loaded when a picture is drawn, never before, and draws to files only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.checks import TacitError
from tacit.simulation.results import Result, write_csv

SHOWN = 1e-4  # rounds below this part of the horizon are not shown: nothing is learned there


@dataclass(frozen=True)
class Panel:
    """One set of axes: results by label, and a title."""

    title: str
    results: dict[str, Result]


def pyplot() -> Any:
    """Matplotlib's pyplot, drawing to files, or an error that names the extra."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise TacitError("drawing needs matplotlib: pip install 'tacit[plot]'") from error
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def band(axes: Any, x: Any, mean: Any, spread: Any, *, color: str, **style: Any) -> None:
    """A line, and how far around it the runs are."""
    axes.plot(x, mean, color=color, **style)
    axes.fill_between(x, mean - spread, mean + spread, color=color, alpha=0.2, linewidth=0)


def draw_panels(
    panels: Sequence[Panel],
    path: Path,
    *,
    time_average: bool = True,
    title: str = "",
    per: str = "user",
    regret: str = "regret",
) -> None:
    """Panels side by side (at most three in a row), all curves of a label in one colour."""
    plt = pyplot()
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure, grid = plt.subplots(
        rows,
        columns,
        figsize=(max(7.5, 5.2 * columns), max(4.8, 3.9 * rows)),
        layout="constrained",
        squeeze=False,
    )
    colours = {
        label: f"C{i}"
        for i, label in enumerate(
            dict.fromkeys(label for panel in panels for label in panel.results)
        )
    }
    for axes, panel in zip(grid.flat, panels, strict=False):
        for label, result in panel.results.items():
            mean, sem = result.curve()
            rounds = result.checkpoints
            scale = 1 / rounds if time_average else 1.0
            band(axes, rounds, mean * scale, sem * scale, color=colours[label], label=label)
        axes.set_xscale("log")
        axes.set_xlim(
            left=max(1.0, max(result.horizon for result in panel.results.values()) * SHOWN)
        )
        if not time_average:
            axes.set_yscale("log")
            axes.set_ylim(bottom=1)
        axes.set_title(panel.title, fontsize=11)
        axes.set_xlabel(f"{per}s")
        axes.set_ylabel(f"{regret} per {per}" if time_average else f"cumulative {regret}")
        axes.grid(visible=True, alpha=0.3)
        axes.legend(frameon=False, fontsize=9)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    if title:
        figure.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def write_panels(panels: Sequence[Panel], out: Path, name: str) -> list[Path]:
    """The data of panels beside their picture: `name.csv` has every run, `name-means.csv` means and
    standard errors.
    """
    every, means = out / f"{name}.csv", out / f"{name}-means.csv"
    write_csv(
        every,
        [
            {"panel": p.title, "label": label, **row}
            for p in panels
            for label, r in p.results.items()
            for row in r.rows()
        ],
    )
    rows = []
    for panel in panels:
        for label, result in panel.results.items():
            mean, sem = result.curve()
            for t, m, s in zip(result.checkpoints, mean, sem, strict=True):
                common = {
                    "panel": panel.title,
                    "label": label,
                    "algorithm": result.algorithm,
                    "round": int(t),
                }
                rows.append(
                    {
                        **common,
                        "regret_mean": m,
                        "regret_sem": s,
                        "time_average": m / t,
                        "guarantee": result.guarantee,
                    }
                )
    write_csv(means, rows)
    return [every, means]
