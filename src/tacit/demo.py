"""The first thing to run: how much noise each trust model needs for the same promise, as a table and a picture.

For batches of growing size it calibrates every trust model to one guarantee and shows the standard deviation of the noise in the estimated
mean. Only the local model, which trusts nobody, pays with a curve of another slope.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from tacit.checks import TacitError
from tacit.privacy import ApproximateDP, PureDP, calibrate

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
        return calibrate("binomial", precision(n), approximate, users=n, method="paper").law.std / precision(n) / n

    return {
        "central, trusted server, pure": central,
        "secure aggregation, Pólya shares, pure": central,
        "secure aggregation, Skellam shares": skellam,
        "shuffler, exact calibration": shuffled,
        "shuffler, the paper's constant": shuffled_paper,
        "local, nobody trusted, pure": lambda n: central(n) * math.sqrt(n),
    }


def noise_table() -> list[dict[str, float | str]]:
    """One row per trust model and batch size: `trust`, `users`, `std`, `sampling_std`."""
    rows: list[dict[str, float | str]] = []
    for name, std in trust_models().items():
        rows.extend({"trust": name, "users": n, "std": std(n), "sampling_std": 0.5 / math.sqrt(n)} for n in SIZES)
    return rows


def draw(rows: list[dict[str, float | str]], path: Path) -> None:
    """The table as a picture."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise TacitError("drawing needs matplotlib: pip install 'tacit[plot]'") from error
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 5.2), layout="constrained")
    styles = {"secure aggregation, Pólya shares, pure": ("--", 4.5), "local, nobody trusted, pure": ("-", 2.0)}
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
    axes.set_title(f"The noise each trust model needs for the same promise (ε = {EPSILON:g}, δ = {DELTA:g} or 0)")
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=130)
    plt.close(figure)
