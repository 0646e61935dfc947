"""LZJ22 Figure 2 from scratch: regret against ε, per-round regret over time, growing against fixed
numbers of clients.

Solid lines are the tight setting, dashed ones the paper's widths and noise. With the printed
constants of its Algorithm 2 the shuffle model drops no action before T = 10^6 (its noise is 300
times the central one's), so the paper's own figure cannot have used them; the ordering it reports
holds in the tight setting.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tacit.papers.lzj22 import simulate
from tacit.simulation import Result, write_csv

EPSILONS = (1.0, 2.0, 5.0, 10.0, 20.0)
MODELS = {
    "cdp-dpe": ("central", "tab:blue"),
    "sdp-dpe": ("shuffle", "tab:orange"),
    "ldp-dpe": ("local", "tab:red"),
}
OTHERS = {
    "dpe": ("no privacy", "black"),
    "dpe-fixed": ("fixed clients, same communication", "tab:green"),
}
STYLE = {"tight": "-", "paper": "--"}
Curves = dict[tuple[str, str], Result]


def figure2(
    out: Path,
    runs: int = 20,
    *,
    dimension: int = 20,
    actions: int = 1000,
    horizon: int = 1_000_000,
    epsilons: Iterable[float] = EPSILONS,
    seed: int = 0,
    progress: bool = False,
    workers: int | None = None,
) -> list[Path]:
    """Draws panels a, b and c into `out`, each as PNG with its CSV beside it; the paths of all six
    files.
    """
    common: dict[str, Any] = {
        "dimension": dimension,
        "actions": actions,
        "horizon": horizon,
        "runs": runs,
        "seed": seed,
        "progress": progress,
        "workers": workers,
    }
    budgets = list(epsilons)
    over = {
        (name, setting, epsilon): simulate(name, setting=setting, epsilon=epsilon, **common)
        for name in MODELS
        for setting in STYLE
        for epsilon in budgets
        if setting == "tight" or name != "sdp-dpe"
    }
    free: Curves = {
        (name, setting): simulate(name, setting=setting, **common)
        for name in OTHERS
        for setting in STYLE
    }
    at_ten: Curves = {
        (name, setting): over[name, setting, 10.0]
        for name, setting, epsilon in over
        if epsilon == 10.0
    }
    panel_b = {("dpe", setting): free["dpe", setting] for setting in STYLE} | at_ten
    return [
        *_panel_a(out / "lzj22-fig2a", over, budgets),
        *_panel_over_time(out / "lzj22-fig2b", panel_b, "ε = 10, δ = 0.25"),
        *_panel_over_time(out / "lzj22-fig2c", free, "no privacy"),
    ]


def _panel_a(
    stem: Path, over: dict[tuple[str, str, float], Result], budgets: list[float]
) -> list[Path]:
    figure, axes = _axes()
    rows = []
    for name, (label, colour) in MODELS.items():
        for setting, style in STYLE.items():
            results = [
                over[name, setting, epsilon]
                for epsilon in budgets
                if (name, setting, epsilon) in over
            ]
            if not results:
                continue
            mean = np.array([result.regret_mean for result in results])
            deviation = np.array([result.regret[:, -1].std() for result in results])
            axes.plot(
                budgets,
                mean,
                style,
                color=colour,
                marker="o",
                markersize=3,
                label=f"{label}, {setting}",
            )
            axes.fill_between(
                budgets,
                np.maximum(mean - deviation, 1.0),
                mean + deviation,
                color=colour,
                alpha=0.15,
                linewidth=0,
            )
            for epsilon, result in zip(budgets, results, strict=True):
                final = {
                    "algorithm": name,
                    "setting": setting,
                    "epsilon": epsilon,
                    "guarantee": result.guarantee.split(":")[0],
                }
                rows += [
                    final | {"seed": record["seed"], "regret": record["final_regret"]}
                    for record in result.runs
                ]
    axes.set(xscale="log", yscale="log", xlabel="ε (δ = 0.25)", ylabel="regret at the horizon")
    return _save(figure, axes, stem, rows)


def _panel_over_time(stem: Path, curves: Curves, title: str) -> list[Path]:
    figure, axes = _axes()
    rows = []
    for (name, setting), result in curves.items():
        label, colour = (MODELS | OTHERS)[name]
        rounds = result.checkpoints
        per_round = result.regret / rounds
        mean, deviation = per_round.mean(axis=0), per_round.std(axis=0)
        axes.plot(rounds, mean, STYLE[setting], color=colour, label=f"{label}, {setting}")
        axes.fill_between(
            rounds, mean - deviation, mean + deviation, color=colour, alpha=0.15, linewidth=0
        )
        for record in result.runs:
            values = zip(record["checkpoints"], record["regret"], strict=True)
            head = {
                "algorithm": name,
                "setting": setting,
                "seed": record["seed"],
                "reals": record["reals"],
            }
            rows += [
                head | {"round": round_, "regret": regret, "per_round": regret / round_}
                for round_, regret in values
            ]
    axes.set(xscale="log", xlabel="round", ylabel="regret per round", title=title)
    axes.set_ylim(bottom=0)
    return _save(figure, axes, stem, rows)


def _axes() -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _save(figure: Any, axes: Any, stem: Path, rows: list[dict[str, Any]]) -> list[Path]:
    axes.legend(fontsize=7, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    stem.parent.mkdir(parents=True, exist_ok=True)
    picture, table = stem.with_suffix(".png"), stem.with_suffix(".csv")
    figure.savefig(picture, dpi=150)
    write_csv(table, rows)
    return [picture, table]
