"""ZC24 Figures 2 and 3, regret per round of silos with the printed noise, and two more plots.

Figure 2(b) adds secure aggregation, which the paper does not have. Panels on MSLR-WEB10K are drawn
if the data is given. Two plots show what the paper only states: `zc24-super` adds the super-agent
of the paper's comparison, `zc24-budgets` gives silos budgets of their own (Definition 2.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from tacit.papers.figures.registry import FigureCurve, Options, as_panels, figure

LABELS = {
    "fedlinucb": "FedLinUCB",
    "ldp-fedlinucb": "LDP-FedLinUCB",
    "sdp-fedlinucb": "SDP-FedLinUCB",
    "sdp-fedlinucb-vec": "SDP-FedLinUCB (vec)",
    "secagg-fedlinucb": "SecAgg-FedLinUCB",
    "jdp-linucb": "JDP-LinUCB (super-agent)",
}
SIZE = {"horizon": 10_000, "silos": 100, "dimension": 10, "actions": 100, "sync": 25}
SMALL = {**SIZE, "horizon": 2000, "silos": 20}
SMALLER = {"horizon": 1000, "silos": 20}
TARGETS = ((0.2, 0.1), (1.0, 1e-5))
Curve = tuple[str, dict[str, Any]]
FREE: Curve = ("fedlinucb", {"lazy": False})  # the paper's Algorithm 1; its Algorithm 8 is lazy
per_round = partial(as_panels, per="round", regret="group regret")


def printed(name: str, epsilon: float, delta: float) -> Curve:
    """An algorithm with the paper's constants."""
    return name, {"epsilon": epsilon, "delta": delta, "constants": "paper", "lazy": False}


BUDGETS = [*(printed("ldp-fedlinucb", e, 0.1) for e in (0.2, 1.0, 5.0)), FREE]
FAILURES = [*(printed("ldp-fedlinucb", 5.0, d) for d in (0.1, 0.01, 0.001)), FREE]
MODERATE = [
    printed("ldp-fedlinucb", 0.2, 0.1),
    printed("sdp-fedlinucb-vec", 0.2, 0.1),
    ("secagg-fedlinucb", {"epsilon": 0.2, "delta": 0.1, "lazy": False}),
    FREE,
]


def tiny(*epsilons: float) -> list[Curve]:
    """Budgets at which amplification by shuffling is proven."""
    names = ("ldp-fedlinucb", "sdp-fedlinucb")
    return [printed(name, epsilon, 1e-4) for epsilon in epsilons for name in names]


@figure("zc24-fig2", 25, per_round, has=("data",))
def figure2(options: Options) -> list[FigureCurve]:
    """Comparison of trust models.

    (a) tiny budgets, (b) moderate ones, (c) the cost of privacy on MSLR-WEB10K with title features.
    """
    found = [
        *_panel("(a) synthetic, δ = 0.0001", tiny(1e-3, 1e-4), "epsilon", options),
        *_panel("(b) synthetic, ε = 0.2, δ = 0.1", MODERATE, "", options),
    ]
    if options.data is not None:
        title = "(c) MSLR-WEB10K, title, δ = 0.1"
        found += _panel(title, BUDGETS, "epsilon", options, "title")
    return found


@figure("zc24-fig3", 25, per_round, has=("data",))
def figure3(options: Options) -> list[FigureCurve]:
    """LDP-FedLinUCB against no privacy.

    (a) over ε, (b) over δ, (c) MSLR-WEB10K with body features, (d) tiny budgets. Without the data,
    (c) is left out and (d) uses the synthetic instance.
    """
    found = [
        *_panel("(a) synthetic, δ = 0.1", BUDGETS, "epsilon", options),
        *_panel("(b) synthetic, ε = 5", FAILURES, "delta", options),
    ]
    if options.data is None:
        return [*found, *_panel("(d) synthetic, ε = δ = 0.0001", tiny(1e-4), "", options)]
    found += _panel("(c) MSLR-WEB10K, body, δ = 0.1", BUDGETS, "epsilon", options, "body")
    found += _panel("(d) MSLR-WEB10K, body, ε = δ = 0.0001", tiny(1e-4), "", options, "body")
    return found


@figure("zc24-super", 5, per_round)
def super_agent(options: Options) -> list[FigureCurve]:
    """The cost of trusting no one: the super-agent under joint DP against silos that hide their
    sums.

    The silos hide them from each other and from the server. All are lazy, with the same guarantee
    to a participant.
    """
    names = ("ldp-fedlinucb", "sdp-fedlinucb-vec", "secagg-fedlinucb", "jdp-linucb")
    found: list[FigureCurve] = []
    for epsilon, delta in TARGETS:
        private = [(name, {"epsilon": epsilon, "delta": delta}) for name in names]
        title = f"ε = {epsilon:g}, δ = {delta:g}"
        found += _panel(title, [*private, ("fedlinucb", {})], "", options, size=SMALL)
    return found


@figure("zc24-budgets", 5, per_round)
def budgets(options: Options) -> list[FigureCurve]:
    """Half of the silos strict, half lax, against all strict and all lax.

    One panel for silos that add their noise alone, one for silos that share it.
    """
    size = options.sized(SMALL, SMALLER)
    strict, lax = (0.2, 0.1), (5.0, 0.1)
    half = int(size["silos"]) // 2
    mixed = (strict,) * half + (lax,) * (int(size["silos"]) - half)
    dealt = {
        "all silos (0.2, 0.1)": (strict,) * len(mixed),
        "half (0.2, 0.1), half (5, 0.1)": mixed,
        "all silos (5, 0.1)": (lax,) * len(mixed),
    }
    return [
        FigureCurve(LABELS[name], label, name, {"budgets": given, **size})
        for name in ("ldp-fedlinucb", "secagg-fedlinucb")
        for label, given in dealt.items()
    ]


def _panel(
    title: str,
    curves: list[Curve],
    varying: str,
    options: Options,
    field: str | None = None,
    size: dict[str, int] = SIZE,
) -> Iterator[FigureCurve]:
    """The curves of a panel; labels show the varying option.

    With a field, the simulation uses recorded data, which has its own size.
    """
    asked = options.sized(size, SMALLER)
    if field is not None:
        for name in ("silos", "dimension", "actions"):
            del asked[name]
        asked |= {"data": str(options.data), "field": field}
    symbol = {"epsilon": "ε", "delta": "δ"}.get(varying)
    for name, changes in curves:
        value = f", {symbol} = {changes[varying]:g}" if varying in changes else ""
        yield FigureCurve(title, LABELS[name] + value, name, {**changes, **asked})
