"""The figures of CZ23 and TKMS21: a plot and a tidy table each.

Settings are those of the authors' runs: K = 10, failure probability 0.1, 20 instances (seeds 0 to
19), batches 4^b (2^b in Figure 4), clipped Gaussian rewards with σ = 0.1, T = 10^6 on easy and
10^7 on hard instances, s = 10, and s = 100 for a second curve of Dist-RDP-SE. `axis="paper"` labels
algorithms by the papers' ε; `axis="equal"` gives every algorithm the same (ε, δ) guarantee, exactly
calibrated (CORRECTIONS 10).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from tacit.environments import read_mslr
from tacit.environments.contract import World
from tacit.errors import TacitError
from tacit.papers.figures.registry import FigureCurve, Options, as_panels, figure

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
FINER = 100  # s of the authors' second curve of Dist-RDP-SE
MAIN = ("dp-se", "dist-dp-se", "dist-rdp-se")
MODELS = ("cdp-se", "ldp-se", "dist-dp-se", "dist-rdp-se", "dist-cdp-se")
EASY, HARD = 10**6, 10**7
HORIZONS = {"easy": EASY, "hard": HARD}
SMALLER = 20  # times fewer participants at the small size
EPSILONS = (0.1, 0.5, 1.0)
DELTA = 1e-5  # in TKMS21, and on the equal axis
cz23 = partial(as_panels, title="{name} ({options.axis} axis, {options.runs} instances)")


@figure("cz23-fig1", 20, cz23, has=("axis", "data"))
def cz23_fig1(options: Options) -> list[FigureCurve]:
    """Easy instances at two privacy levels, hard ones at one; MSLR-WEB10K below, if the data is
    given.
    """
    random = [*_random("easy", (0.1, 0.5), options), *_random("hard", (0.5,), options)]
    return random + (_mslr(options) if options.data is not None else [])


@figure("cz23-fig2", 20, cz23, has=("axis",))
def cz23_fig2(options: Options) -> list[FigureCurve]:
    """Easy instances, ε = 0.1, 0.5, 1."""
    return _random("easy", EPSILONS, options)


@figure("cz23-fig3", 20, cz23, has=("axis",))
def cz23_fig3(options: Options) -> list[FigureCurve]:
    """Hard instances, ε = 0.1, 0.5, 1."""
    return _random("hard", EPSILONS, options)


@figure("cz23-fig4", 20, cz23, has=("axis",))
def cz23_fig4(options: Options) -> list[FigureCurve]:
    """All trust models on easy instances, batches 2^b."""
    return _random("easy", EPSILONS, options, MODELS, growth=2.0)


@figure("cz23-fig5", 20, cz23, has=("axis", "data"))
def _mslr(options: Options) -> list[FigureCurve]:
    """MSLR-WEB10K, ε = 1, 5, 10."""
    if options.data is None:
        raise TacitError(
            "the figure needs MSLR-WEB10K data. Give a fold file with --data "
            "(docs/reference/data.md says where to get it)."
        )
    world = read_mslr(options.data)
    title, asked = f"MSLR-WEB10K, {world.arms} arms", _sized(options, HARD)
    found = (_panel(title, MAIN, e, options, asked, world) for e in (1.0, 5.0, 10.0))
    return [curve for curves in found for curve in curves]


@figure("tkms21", 20)
def tkms21(options: Options) -> list[FigureCurve]:
    """SDP-AE and VB-SDP-AE with the printed noise, and with the least noise of the same
    guarantee.
    """
    return [
        FigureCurve(
            f"Bernoulli, easy, (ε, δ) = ({epsilon:g}, {DELTA:g})",
            f"{LABELS[name]}, {constants}",
            name,
            _sized(options, EASY, arms=10)
            | {"epsilon": epsilon, "delta": DELTA, "constants": constants},
        )
        for epsilon in (0.1, 0.5)
        for name in ("sdp-ae", "vb-sdp-ae")
        for constants in ("paper", "tight")
    ]


def _sized(options: Options, horizon: int, **paper: Any) -> dict[str, Any]:
    return options.sized({"horizon": horizon, **paper}, {"horizon": horizon // SMALLER})


def _random(
    instance: str,
    epsilons: Iterable[float],
    options: Options,
    names: tuple[str, ...] = MAIN,
    growth: float = 4.0,
) -> list[FigureCurve]:
    world = {"arms": 10, "rewards": "gaussian", "instance": instance, "growth": growth}
    asked = _sized(options, HORIZONS[instance], **world)
    found = (_panel(instance, names, epsilon, options, asked) for epsilon in epsilons)
    return [curve for curves in found for curve in curves]


def _panel(
    title: str,
    names: tuple[str, ...],
    epsilon: float,
    options: Options,
    settings: dict[str, Any],
    world: World | None = None,
) -> Iterator[FigureCurve]:
    """Printed radii and noise, or exact ones at an equal guarantee, where s plays no part."""
    printed = options.axis == "paper"
    axis = {"constants": "paper"} if printed else {"constants": "tight", "delta": DELTA}
    every = {"epsilon": epsilon, **axis, **settings}
    for name in names:
        about = (f"{title}, ε = {epsilon:g}", LABELS[name], name)
        yield FigureCurve(*about, every, world)
        if name == "dist-rdp-se" and printed:
            label = f"{LABELS[name]}, s = {FINER}"
            yield FigureCurve(about[0], label, name, {**every, "scale": FINER}, world)
