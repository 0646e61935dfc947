"""The figures of CZ23 and TKMS21: a plot and a tidy table each.

Settings are those of the authors' runs: K = 10, failure probability 0.1, 20 instances (seeds 0 to
19), batches 4^b (2^b in Figure 4), clipped Gaussian rewards with σ = 0.1, T = 10^6 on easy and
10^7 on hard instances, s = 10. `axis="paper"` labels algorithms by the papers' ε; `axis="equal"`
gives every algorithm the same (ε, δ) guarantee, exactly calibrated (CORRECTIONS 10).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from tacit.algorithms.registry import lookup
from tacit.environments import Environment, read_mslr
from tacit.errors import TacitError
from tacit.papers.figures.registry import Options, as_panels, figure
from tacit.simulation.pictures import Panel
from tacit.simulation.study import compare, simulate

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
HORIZONS = {"easy": EASY, "hard": HARD}
EPSILONS = (0.1, 0.5, 1.0)
DELTA = 1e-5  # in TKMS21, and on the equal axis
cz23 = partial(as_panels, title="{name} ({options.axis} axis, {options.runs} instances)")


@figure("cz23-fig1", 20, cz23, has=("axis", "data"))
def cz23_fig1(options: Options) -> list[Panel]:
    """Easy instances at two privacy levels, hard ones at one; MSLR-WEB10K below, if the data is
    given.
    """
    random = [*_random("easy", (0.1, 0.5), options), *_random("hard", (0.5,), options)]
    return random + (_mslr(options) if options.data is not None else [])


@figure("cz23-fig2", 20, cz23, has=("axis",))
def cz23_fig2(options: Options) -> list[Panel]:
    """Easy instances, ε = 0.1, 0.5, 1."""
    return _random("easy", EPSILONS, options)


@figure("cz23-fig3", 20, cz23, has=("axis",))
def cz23_fig3(options: Options) -> list[Panel]:
    """Hard instances, ε = 0.1, 0.5, 1."""
    return _random("hard", EPSILONS, options)


@figure("cz23-fig4", 20, cz23, has=("axis",))
def cz23_fig4(options: Options) -> list[Panel]:
    """All trust models on easy instances, batches 2^b."""
    return _random("easy", EPSILONS, options, MODELS, growth=2.0)


@figure("cz23-fig5", 20, cz23, has=("axis", "data"))
def _mslr(options: Options) -> list[Panel]:
    """MSLR-WEB10K, ε = 1, 5, 10."""
    if options.data is None:
        raise TacitError(
            "the figure needs MSLR-WEB10K data. Give a fold file with --data "
            "(docs/reference/data.md says where to get it)."
        )
    world = read_mslr(options.data)
    title, asked = f"MSLR-WEB10K, {world.arms} arms", options.asked(horizon=HARD)
    return [_panel(title, MAIN, e, options, asked, world) for e in (1.0, 5.0, 10.0)]


@figure("tkms21", 20)
def tkms21(options: Options) -> list[Panel]:
    """SDP-AE and VB-SDP-AE with the printed noise, and with the least noise of the same
    guarantee.
    """
    panels = []
    for epsilon in (0.1, 0.5):
        asked = options.asked(arms=10, horizon=EASY, epsilon=epsilon, delta=DELTA)
        results = {
            f"{LABELS[name]}, {constants}": simulate(name, constants=constants, **asked)
            for name in ("sdp-ae", "vb-sdp-ae")
            for constants in ("paper", "tight")
        }
        panels.append(Panel(f"Bernoulli, easy, (ε, δ) = ({epsilon:g}, {DELTA:g})", results))
    return panels


def _random(
    instance: str,
    epsilons: Iterable[float],
    options: Options,
    names: tuple[str, ...] = MAIN,
    growth: float = 4.0,
) -> list[Panel]:
    world = {"arms": 10, "rewards": "gaussian", "instance": instance, "growth": growth}
    asked = options.asked(horizon=HORIZONS[instance], **world)
    return [_panel(instance, names, epsilon, options, asked) for epsilon in epsilons]


def _panel(
    title: str,
    names: tuple[str, ...],
    epsilon: float,
    options: Options,
    asked: dict[str, Any],
    world: Environment | None = None,
) -> Panel:
    """Printed radii and noise, or exact ones at an equal guarantee."""
    axis = (
        {"constants": "paper"}
        if options.axis == "paper"
        else {"constants": "tight", "delta": DELTA}
    )
    results = compare(map(lookup, names), world, epsilon=epsilon, **axis, **asked)
    return Panel(f"{title}, ε = {epsilon:g}", {LABELS[r.algorithm]: r for r in results})
