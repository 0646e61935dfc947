"""LZJ22 Figure 2: regret against ε, regret per round over time, growing against fixed clients.

Solid lines are tight constants, dashed ones the paper's widths and noise; bands are one standard
deviation. With the printed constants of Algorithm 2, the shuffle model drops no action before T =
10^6: its noise is 300 times the central one's. So the paper's own figure cannot have used them; the
ordering that it reports holds in tight constants.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tacit.papers.bounds import of, with_bounds
from tacit.papers.figures.registry import Curves, FigureCurve, Options, figure
from tacit.simulation.files import write_csv
from tacit.simulation.pictures import THEOREM, axes, band, legend, save, theorems
from tacit.simulation.results import Result

EPSILONS = (1.0, 2.0, 5.0, 10.0, 20.0)
SHOWN, DELTA = 10.0, 0.25
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
SMALLER = {"dimension": 5, "actions": 100, "horizon": 20_000}
Found = dict[tuple[str, str, float | None], Result]  # by algorithm, constants and ε


def _write(name: str, out: Path, options: Options, results: Curves) -> list[Path]:  # noqa: ARG001
    """Panels a, b and c, each as PNG with its CSV beside it."""
    curves = {
        (curve.algorithm, curve.options["constants"], curve.options.get("epsilon")): result
        for curve, result in results
    }
    shown = {key: result for key, result in curves.items() if key[2] in (SHOWN, None)}
    private = {key: result for key, result in shown.items() if key[0] != "dpe-fixed"}
    free = {key: result for key, result in shown.items() if key[2] is None}
    return [
        *_over_epsilon(out / f"{name}a", curves),
        *_over_time(out / f"{name}b", private, f"ε = {SHOWN:g}, δ = {DELTA:g}"),
        *_over_time(out / f"{name}c", free, "no privacy"),
    ]


@figure("lzj22-fig2", 20, _write)
def figure2(options: Options) -> list[FigureCurve]:
    """All algorithms in both settings (without the printed shuffle noise), at every ε."""
    asked = options.sized({"dimension": 20, "actions": 1000, "horizon": 1_000_000}, SMALLER)
    free = [
        FigureCurve("", OTHERS[name][0], name, {"constants": constants, **asked})
        for name in OTHERS
        for constants in STYLE
    ]
    return free + [
        FigureCurve(
            "",
            MODELS[name][0],
            name,
            {"constants": constants, "epsilon": epsilon, "delta": DELTA, **asked},
        )
        for name in MODELS
        for constants in STYLE
        for epsilon in EPSILONS
        if constants == "tight" or name != "sdp-dpe"
    ]


def _over_epsilon(stem: Path, curves: Found) -> list[Path]:
    figure, one = axes()
    rows = []
    for name, constants in dict.fromkeys(key[:2] for key in curves if key[0] in MODELS):
        results = [curves[name, constants, epsilon] for epsilon in EPSILONS]
        ends = np.array([result.regret[:, -1] for result in results])
        _line(one, name, constants, EPSILONS, ends, marker="o", markersize=3)
        for epsilon, result in zip(EPSILONS, results, strict=True):
            guarantee = result.short
            about = {"algorithm": name, "constants": constants, "epsilon": epsilon}
            rows += [
                about | {"guarantee": guarantee, "seed": run["seed"], "regret": run["final_regret"]}
                for run in result.runs
            ]
    label = f"ε (δ = {DELTA:g})"
    one.set(xscale="log", yscale="log", xlabel=label, ylabel="regret at the horizon")
    _theorems(one, curves)
    return _save(figure, one, stem, rows)


def _theorems(axis: Any, curves: Found) -> None:
    """Plot the order that the paper proves for each trust model at the horizon, against ε."""
    limits = axis.get_ylim()
    for name, (label, colour) in MODELS.items():
        results = [curves[name, "tight", epsilon] for epsilon in EPSILONS]
        proved = [bound for result in results if (bound := of(result)) is not None]
        line = [float(bound.at(results[0].horizon)) for bound in proved]
        said = f"{proved[0].theorem} for {label}\n({proved[0].order})"
        axis.plot(EPSILONS, line, label=said, color=colour, **THEOREM)
    axis.set_ylim(limits)


def _over_time(stem: Path, curves: Found, title: str) -> list[Path]:
    figure, one = axes()
    rows = []
    for (name, constants, _), result in curves.items():
        rounds = result.checkpoints
        _line(one, name, constants, rounds, (result.regret / rounds).T)
        for run in result.runs:
            about = {"algorithm": name, "constants": constants, "seed": run["seed"]}
            rows += [
                about | {"reals": run["reals"], "round": t, "regret": r, "per_round": r / t}
                for t, r in zip(run["checkpoints"], run["regret"], strict=True)
            ]
    one.set(xscale="log", xlabel="round", ylabel="regret per round", title=title)
    one.set_ylim(bottom=0)
    shown = {
        (MODELS | OTHERS)[name][0]: with_bounds(result) for (name, _, _), result in curves.items()
    }
    theorems(one, shown, dict((MODELS | OTHERS).values()), average=True)
    return _save(figure, one, stem, rows)


def _line(axis: Any, name: str, constants: str, x: Any, values: Any, **marks: Any) -> None:
    label, colour = (MODELS | OTHERS)[name]
    mean, spread = values.mean(axis=1), values.std(axis=1)
    marks |= {"linestyle": STYLE[constants], "label": f"{label}, {constants}"}
    band(axis, x, mean, spread, color=colour, **marks)


def _save(figure: Any, axis: Any, stem: Path, rows: list[dict[str, Any]]) -> list[Path]:
    legend(axis)
    table = stem.with_suffix(".csv")
    write_csv(table, rows)
    return [save(figure, stem.with_suffix(".png")), table]
