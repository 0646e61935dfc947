"""The demonstration: noise and regret of each trust model at the same guarantee.

The first plot calibrates every trust model to one guarantee and shows the noise in an estimated
mean against the batch size. The second runs one bandit problem under each trust model and shows
regret. Each plot comes with its table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tacit.algorithms.registry import lookup
from tacit.privacy import ApproximateDP, PureDP, calibrate
from tacit.simulation import Result, simulate
from tacit.simulation.pictures import Panel, axes, draw_panels, legend, save, style

SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
EPSILON, DELTA = 1.0, 1e-6
GUARANTEE = f"ε = {EPSILON:g}; δ = {DELTA:g} where it is not pure"


def precision(users: int) -> int:
    """⌈ε √n⌉ levels, at which rounding adds no more error than the noise (CZ23)."""
    return math.ceil(EPSILON * math.sqrt(users))


def trust_models() -> dict[str, Callable[[int], float]]:
    """Standard deviation of the noise in the mean of n rewards, by trust model."""
    pure, approximate = PureDP(EPSILON), ApproximateDP(EPSILON, DELTA)

    def std(n: int, kind: str, target: PureDP | ApproximateDP, **arguments: Any) -> float:
        return (
            calibrate(kind, precision(n), target, **arguments).distribution.std / precision(n) / n
        )

    def central(n: int) -> float:
        return std(n, "discrete-laplace", pure)

    def response(n: int) -> float:
        """Randomized response on bits, as in `private-med --trust local` (Warner 1965)."""
        return 1 / (2 * math.sinh(EPSILON / 2)) / math.sqrt(n)

    return {
        "central, trusted server, pure": central,
        "secure aggregation, Pólya shares, pure": central,
        "secure aggregation, Skellam shares": lambda n: std(n, "skellam", approximate),
        "shuffler, exact calibration": lambda n: std(n, "binomial", approximate, users=n),
        "shuffler, the paper's constant": lambda n: std(
            n, "binomial", approximate, users=n, constants="paper"
        ),
        "local, no trusted party, bits, pure": response,
    }


MEANS = (0.55, 0.5, 0.5, 0.45, 0.45, 0.4)
HORIZON, RUNS = 10**6, 10


def regret_results() -> dict[str, Result]:
    """One problem at (ε, 0)-DP under each trust model, with the published algorithm and a
    non-private one.
    """
    ours = {
        "trusted server": "central",
        "secure aggregation": "secure-aggregation",
        "shuffler": "shuffler",
        "no trusted party (local)": "local",
    }
    published = {"epsilon": EPSILON, "constants": "paper"}
    runs: dict[str, tuple[str, dict[str, Any]]] = {
        "no privacy at all (Thompson sampling)": ("thompson", {}),
        **{k: ("private-med", {"epsilon": EPSILON, "trust": v}) for k, v in ours.items()},
        "secure aggregation, as published (Dist-DP-SE)": ("dist-dp-se", published),
    }
    common: dict[str, Any] = {"means": MEANS, "horizon": HORIZON, "runs": RUNS}
    return {label: simulate(lookup(name), **how, **common) for label, (name, how) in runs.items()}


def noise_table() -> list[dict[str, float | str]]:
    """One row per trust model and batch size: `trust`, `users`, `std`, `sampling_std`."""
    return [
        {"trust": name, "users": n, "std": std(n), "sampling_std": 0.5 / math.sqrt(n)}
        for name, std in trust_models().items()
        for n in SIZES
    ]


def draw(rows: list[dict[str, float | str]], path: Path) -> None:
    """Plot the noise table."""
    figure, one = axes()
    for place, name in enumerate(dict.fromkeys(str(row["trust"]) for row in rows)):
        std = [float(row["std"]) for row in rows if row["trust"] == name]
        one.loglog(SIZES, std, label=name, **style(place) | {"markevery": 1})
    sampling = [float(row["sampling_std"]) for row in rows[: len(SIZES)]]
    one.loglog(SIZES, sampling, ":", color="0.4", label="sampling error of a coin")
    one.set_xlabel("participants in the round")
    one.set_ylabel("standard deviation of the noise in the mean")
    one.set_title(f"The noise each trust model needs for the same guarantee ({GUARANTEE})")
    legend(one)
    save(figure, path)


def draw_regret(results: dict[str, Result], path: Path) -> None:
    """Plot the regret of every trust model against participants."""
    title = f"One problem with {len(MEANS)} options, ε = {EPSILON:g}: regret by trust model"
    draw_panels([Panel("", results)], path, time_average=False, title=title)
