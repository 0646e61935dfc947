"""The figures of CZ23 and TKMS21, drawn from scratch: a picture and a tidy table each.

Settings are those of the authors' runs: K = 10, confidence 0.1, 20 instances (seeds 0 to 19),
batches 4^b (2^b in Figure 4), clipped Gaussian rewards with σ = 0.1, T = 10^6 on easy and 10^7 on
hard instances, s = 10. `axis="paper"` labels algorithms by the papers' ε; `axis="equal"` gives
every algorithm the same (ε, δ) guarantee, exactly calibrated (CORRECTIONS 10).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from tacit.checks import TacitError
from tacit.environments import Environment, read_mslr
from tacit.papers.arms import Problem, Setting, Task, simulate
from tacit.simulation.pictures import Panel, draw_panels, write_panels
from tacit.simulation.results import Result

Axis = Literal["paper", "equal"]
LABELS = {
    "dp-se": "DP-SE",
    "dist-dp-se": "Dist-DP-SE",
    "dist-rdp-se": "Dist-RDP-SE",
    "dist-cdp-se": "Dist-CDP-SE",
    "cdp-se": "CDP-SE",
    "ldp-se": "LDP-SE",
    "sdp-ae": "SDP-AE",
    "vb-sdp-ae": "VB-SDP-AE",
}
MAIN = ("dp-se", "dist-dp-se", "dist-rdp-se")
MODELS = ("cdp-se", "ldp-se", "dist-dp-se", "dist-rdp-se", "dist-cdp-se")
EASY, HARD = 10**6, 10**7


@dataclass(frozen=True)
class Options:
    """What a user may change about a figure."""

    runs: int = 20
    axis: Axis = "paper"
    data: Path | None = None
    progress: bool = False
    workers: int | None = None

    @property
    def setting(self) -> Setting:
        """Printed radii and noise, or exact ones at an equal guarantee."""
        return "paper" if self.axis == "paper" else "tight"


@dataclass(frozen=True)
class Setup:
    """One panel before it is run."""

    title: str
    algorithms: Sequence[str]
    epsilon: float
    instance: str = "easy"
    horizon: int = EASY
    growth: float = 4.0


def cz23_fig1(options: Options) -> list[Panel]:
    """Easy instances at two privacy levels, hard ones at one; below them MSLR-WEB10K, if the data
    is given.
    """
    setups = [
        Setup("easy, ε = 0.1", MAIN, 0.1),
        Setup("easy, ε = 0.5", MAIN, 0.5),
        Setup("hard, ε = 0.5", MAIN, 0.5, "hard", HARD),
    ]
    panels = [_panel(setup, options) for setup in setups]
    return panels + (_mslr(options) if options.data is not None else [])


def cz23_fig2(options: Options) -> list[Panel]:
    """Easy instances, ε = 0.1, 0.5, 1."""
    return [_panel(Setup(f"easy, ε = {e:g}", MAIN, e), options) for e in (0.1, 0.5, 1.0)]


def cz23_fig3(options: Options) -> list[Panel]:
    """Hard instances, ε = 0.1, 0.5, 1."""
    return [
        _panel(Setup(f"hard, ε = {e:g}", MAIN, e, "hard", HARD), options) for e in (0.1, 0.5, 1.0)
    ]


def cz23_fig4(options: Options) -> list[Panel]:
    """All trust models on easy instances, batches 2^b."""
    return [
        _panel(Setup(f"easy, ε = {e:g}", MODELS, e, growth=2.0), options) for e in (0.1, 0.5, 1.0)
    ]


def cz23_fig5(options: Options) -> list[Panel]:
    """MSLR-WEB10K, ε = 1, 5, 10."""
    if options.data is None:
        raise TacitError(
            "this figure needs the MSLR-WEB10K data: give the path of a fold file with --data "
            "(docs/data.md says where to get it)"
        )
    return _mslr(options)


def tkms21(options: Options) -> list[Panel]:
    """SDP-AE and VB-SDP-AE with the printed noise and with the least noise of the same
    guarantee.
    """
    panels = []
    for epsilon in (0.1, 0.5):
        problem = Problem(10, EASY, epsilon=epsilon, delta=1e-5)
        results: dict[str, Result] = {}
        for name in ("sdp-ae", "vb-sdp-ae"):
            settings: tuple[Setting, ...] = ("paper", "tight")
            for setting in settings:
                task = Task(name, replace(problem, setting=setting))
                results[f"{LABELS[name]}, {setting}"] = _run(task, options)
        panels.append(Panel(f"Bernoulli, easy, (ε, δ) = ({epsilon:g}, 1e-05)", results))
    return panels


FIGURES: dict[str, Callable[[Options], list[Panel]]] = {
    "cz23-fig1": cz23_fig1,
    "cz23-fig2": cz23_fig2,
    "cz23-fig3": cz23_fig3,
    "cz23-fig4": cz23_fig4,
    "cz23-fig5": cz23_fig5,
    "tkms21": tkms21,
}


def reproduce(name: str, out: Path, options: Options) -> list[Path]:
    """Draws a figure into a directory: `name.png`, `name.csv` (every run) and `name-means.csv`
    (means and standard errors).
    """
    panels = FIGURES[name](options)
    picture = out / f"{name}.png"
    tables = write_panels(panels, out, name)
    draw_panels(panels, picture, title=f"{name} ({options.axis} axis, {options.runs} instances)")
    return [picture, *tables]


def _panel(setup: Setup, options: Options) -> Panel:
    results = {}
    for name in setup.algorithms:
        problem = Problem(
            10, setup.horizon, epsilon=setup.epsilon, growth=setup.growth, setting=options.setting
        )
        results[LABELS[name]] = _run(
            Task(name, problem, rewards="gaussian", instance=setup.instance), options
        )
    return Panel(setup.title, results)


def _mslr(options: Options) -> list[Panel]:
    if options.data is None:
        return []
    world = read_mslr(options.data)
    panels = []
    for epsilon in (1.0, 5.0, 10.0):
        results = {
            LABELS[name]: _run(_replayed(name, world, epsilon, options), options) for name in MAIN
        }
        panels.append(Panel(f"MSLR-WEB10K, {world.arms} arms, ε = {epsilon:g}", results))
    return panels


def _replayed(name: str, world: Environment, epsilon: float, options: Options) -> Task:
    return Task(
        name,
        Problem(world.arms, HARD, epsilon=epsilon, setting=options.setting),
        environment=world,
        rewards="replay",
    )


def _run(task: Task, options: Options) -> Result:
    return simulate(task, runs=options.runs, progress=options.progress, workers=options.workers)
