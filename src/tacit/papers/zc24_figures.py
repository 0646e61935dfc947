"""Figures 2 and 3 of ZC24, drawn from scratch: a picture with bands of one standard error, and the table behind it.

Settings are the paper's: M = 100, d = 10, 100 actions, B = 25, α = 0.01, 25 runs, the printed noise. The paper does not give T; 10^4 is
ours. Figure 2(b) also shows the algorithm without privacy and ours. Panels on MSLR-WEB10K need the data; without it they are left out
(and 3(d) is drawn on the synthetic instance).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit.environments.silos import Field, Silos, read_ranking
from tacit.papers.zc24 import simulate
from tacit.papers.zc24_noise import Setting
from tacit.simulation.pictures import Panel, draw_panels
from tacit.simulation.results import Result, write_csv

LABELS = {
    "fedlinucb": "FedLinUCB",
    "ldp-fedlinucb": "LDP-FedLinUCB",
    "sdp-fedlinucb": "SDP-FedLinUCB",
    "sdp-fedlinucb-vec": "SDP-FedLinUCB (vec)",
    "secagg-fedlinucb": "SecAgg-FedLinUCB",
}


@dataclass(frozen=True)
class Curve:
    """One line of a panel."""

    name: str
    epsilon: float = 0.2
    delta: float = 0.1
    setting: Setting = "paper"

    def label(self, varying: tuple[str, ...]) -> str:
        """The algorithm, and what varies in its panel."""
        if self.name == "fedlinucb":
            return LABELS[self.name]
        marks = {"epsilon": f"ε = {self.epsilon:g}", "delta": f"δ = {self.delta:g}"}
        return ", ".join([LABELS[self.name], *(marks[key] for key in varying)])


@dataclass(frozen=True)
class Scale:
    """How large the experiment is."""

    runs: int = 25
    horizon: int = 10_000
    silos: int = 100
    dimension: int = 10
    actions: int = 100
    sync: int = 25
    seed: int = 0
    progress: bool = False
    data: Silos | None = None


def figure2(
    out: Path, *, runs: int = 25, horizon: int = 10_000, silos: int = 100, data: Path | None = None, seed: int = 0, progress: bool = False
) -> list[Path]:
    """Trust models compared: (a) tiny budgets, (b) moderate ones, (c) the price of privacy on MSLR-WEB10K with title features."""
    scale = Scale(runs, horizon, silos, seed=seed, progress=progress)
    tiny = [Curve(name, e, 1e-4) for e in (1e-3, 1e-4) for name in ("ldp-fedlinucb", "sdp-fedlinucb")]
    moderate = [Curve("ldp-fedlinucb"), Curve("sdp-fedlinucb-vec"), Curve("secagg-fedlinucb", setting="tight"), Curve("fedlinucb")]
    panels = [
        _panel("(a) synthetic, δ = 0.0001", tiny, ("epsilon",), scale),
        _panel("(b) synthetic, ε = 0.2, δ = 0.1", moderate, (), scale),
    ]
    if data is not None:
        panels.append(_panel("(c) MSLR-WEB10K, title, δ = 0.1", _budgets(), ("epsilon",), _recorded(scale, data, "title")))
    return _write("zc24-fig2", panels, out, runs)


def figure3(
    out: Path, *, runs: int = 25, horizon: int = 10_000, silos: int = 100, data: Path | None = None, seed: int = 0, progress: bool = False
) -> list[Path]:
    """LDP-FedLinUCB against no privacy: (a) over ε, (b) over δ, (c) MSLR-WEB10K with body features; (d) tiny budgets."""
    scale = Scale(runs, horizon, silos, seed=seed, progress=progress)
    failures = [*(Curve("ldp-fedlinucb", 5.0, d) for d in (0.1, 0.01, 0.001)), Curve("fedlinucb")]
    tiny = [Curve(name, 1e-4, 1e-4) for name in ("ldp-fedlinucb", "sdp-fedlinucb")]
    panels = [
        _panel("(a) synthetic, δ = 0.1", _budgets(), ("epsilon",), scale),
        _panel("(b) synthetic, ε = 5", failures, ("delta",), scale),
    ]
    if data is not None:
        body = _recorded(scale, data, "body")
        panels.append(_panel("(c) MSLR-WEB10K, body, δ = 0.1", _budgets(), ("epsilon",), body))
        panels.append(_panel("(d) MSLR-WEB10K, body, ε = δ = 0.0001", tiny, (), body))
    else:
        panels.append(_panel("(d) synthetic, ε = δ = 0.0001", tiny, (), scale))
    return _write("zc24-fig3", panels, out, runs)


def _budgets() -> list[Curve]:
    return [*(Curve("ldp-fedlinucb", e) for e in (0.2, 1.0, 5.0)), Curve("fedlinucb")]


def _recorded(scale: Scale, data: Path, field: Field) -> Scale:
    return replace(scale, data=read_ranking(data, field=field))


def _panel(title: str, curves: list[Curve], varying: tuple[str, ...], scale: Scale) -> Panel:
    return Panel(title, {curve.label(varying): _run(curve, scale) for curve in curves})


def _run(curve: Curve, scale: Scale) -> Result:
    return simulate(
        curve.name,
        silos=scale.silos,
        dimension=scale.dimension,
        actions=scale.actions,
        sync=scale.sync,
        epsilon=curve.epsilon,
        delta=curve.delta,
        horizon=scale.horizon,
        runs=scale.runs,
        seed=scale.seed,
        setting=curve.setting,
        progress=scale.progress,
        data=scale.data,
    )


def _write(name: str, panels: list[Panel], out: Path, runs: int) -> list[Path]:
    picture, table, means = out / f"{name}.png", out / f"{name}.csv", out / f"{name}-means.csv"
    write_csv(table, [{"panel": p.title, "label": label, **row} for p in panels for label, r in p.results.items() for row in r.rows()])
    write_csv(means, _means(panels))
    draw_panels(panels, picture, title=f"{name} ({runs} runs)", per="round", regret="group regret")
    return [picture, table, means]


def _means(panels: list[Panel]) -> list[dict[str, Any]]:
    rows = []
    for panel in panels:
        for label, result in panel.results.items():
            mean, sem = result.curve()
            for t, m, s in zip(result.checkpoints, mean, sem, strict=True):
                common = {"panel": panel.title, "label": label, "algorithm": result.algorithm, "round": int(t)}
                rows.append({**common, "regret_mean": m, "regret_sem": s, "time_average": m / t, "guarantee": result.guarantee})
    return rows
