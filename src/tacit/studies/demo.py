"""The first thing to run: what the trust models cost at the same promise, in noise and in regret.

The first picture calibrates every trust model to one guarantee and shows the noise in an estimated
mean, by size of the batch. The second runs one bandit problem under each of them and shows what is
lost while learning. Both come with their table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tacit.papers.arms import Problem, Task, simulate
from tacit.privacy import ApproximateDP, PureDP, calibrate
from tacit.simulation import Result
from tacit.simulation.pictures import Panel, draw_panels, pyplot

SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
EPSILON, DELTA = 1.0, 1e-5


def precision(users: int) -> int:
    """⌈ε √n⌉ levels, so that rounding adds no more than the noise does (CZ23)."""
    return math.ceil(EPSILON * math.sqrt(users))


def trust_models() -> dict[str, Callable[[int], float]]:
    """Standard deviation of the noise in the mean of n rewards, by trust model."""
    pure, approximate = PureDP(EPSILON), ApproximateDP(EPSILON, DELTA)

    def central(n: int) -> float:
        return calibrate("discrete-laplace", precision(n), pure).law.std / precision(n) / n

    def skellam(n: int) -> float:
        return calibrate("skellam", precision(n), approximate).law.std / precision(n) / n

    def shuffled(n: int) -> float:
        return calibrate("binomial", precision(n), approximate, users=n).law.std / precision(n) / n

    def shuffled_paper(n: int) -> float:
        return (
            calibrate("binomial", precision(n), approximate, users=n, method="paper").law.std
            / precision(n)
            / n
        )

    return {
        "central, trusted server, pure": central,
        "secure aggregation, Pólya shares, pure": central,
        "secure aggregation, Skellam shares": skellam,
        "shuffler, exact calibration": shuffled,
        "shuffler, the paper's constant": shuffled_paper,
        "local, nobody trusted, pure": lambda n: central(n) * math.sqrt(n),
    }


MEANS = (0.55, 0.5, 0.5, 0.45, 0.45, 0.4)
HORIZON, RUNS = 10**6, 10


def regret_results() -> dict[str, Result]:
    """One problem at (ε, 0)-DP under each trust model, the published algorithm beside ours, and no
    privacy for comparison.
    """
    problem = Problem(len(MEANS), HORIZON, epsilon=EPSILON)
    tasks = {
        "no privacy at all (KL-UCB)": Task("klucb", problem, means=MEANS),
        "trusted server": Task("private-klucb", replace(problem, trust="central"), means=MEANS),
        "secure aggregation": Task("private-klucb", replace(problem, trust="secagg"), means=MEANS),
        "shuffler": Task("private-klucb", replace(problem, trust="shuffle"), means=MEANS),
        "nobody trusted (local)": Task(
            "private-klucb", replace(problem, trust="local"), means=MEANS
        ),
        "secure aggregation, as published (Dist-DP-SE)": Task(
            "dist-dp-se", replace(problem, setting="paper"), means=MEANS
        ),
    }
    return {label: simulate(task, runs=RUNS) for label, task in tasks.items()}


def noise_table() -> list[dict[str, float | str]]:
    """One row per trust model and batch size: `trust`, `users`, `std`, `sampling_std`."""
    rows: list[dict[str, float | str]] = []
    for name, std in trust_models().items():
        rows.extend(
            {"trust": name, "users": n, "std": std(n), "sampling_std": 0.5 / math.sqrt(n)}
            for n in SIZES
        )
    return rows


def draw(rows: list[dict[str, float | str]], path: Path) -> None:
    """The table as a picture."""
    plt = pyplot()
    figure, axes = plt.subplots(figsize=(9, 5.2), layout="constrained")
    styles = {
        "secure aggregation, Pólya shares, pure": ("--", 4.5),
        "local, nobody trusted, pure": ("-", 2.0),
    }
    for name in dict.fromkeys(str(row["trust"]) for row in rows):
        mine = [row for row in rows if row["trust"] == name]
        style, width = styles.get(name, ("-", 2.0))
        axes.loglog(
            [float(r["users"]) for r in mine],
            [float(r["std"]) for r in mine],
            style,
            lw=width,
            marker="o",
            ms=4,
            label=name,
        )
    first = str(rows[0]["trust"])
    sampling = [row for row in rows if row["trust"] == first]
    axes.loglog(
        [float(r["users"]) for r in sampling],
        [float(r["sampling_std"]) for r in sampling],
        ":",
        color="0.4",
        label="sampling error of a coin",
    )
    axes.set_xlabel("people in the batch")
    axes.set_ylabel("standard deviation of the noise in the mean")
    axes.set_title(
        f"The noise each trust model needs for the same promise (ε = {EPSILON:g}, δ = {DELTA:g} or "
        "0)"
    )
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw_regret(results: dict[str, Result], path: Path) -> None:
    """The regret of every trust model, against users."""
    title = f"One problem with {len(MEANS)} options, ε = {EPSILON:g}: what is lost while learning"
    draw_panels([Panel("", results)], path, time_average=False, title=title)
