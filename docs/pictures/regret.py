"""Draws docs/pictures/regret.png: what trusting less costs, at the same promise of (1, 0)-DP.

Run it as `python docs/pictures/regret.py`; it needs the extra `plot`.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt

import tacit

CURVES = {
    "no privacy": ("klucb", {}),
    "secure aggregation": ("private-klucb", {"trust": "secure-aggregation"}),
    "shuffler": ("private-klucb", {"trust": "shuffler"}),
    "nobody trusted": ("private-klucb", {"trust": "local"}),
    "secure aggregation, as published": ("dist-dp-se", {"constants": "paper"}),
}


def draw(path: Path) -> None:
    figure, axes = plt.subplots(figsize=(6.4, 3.6), dpi=90, layout="constrained")
    for label, (name, options) in CURVES.items():
        result = tacit.simulate(name, arms=10, horizon=1_000_000, runs=10, workers=1, **options)
        mean, error = result.curve()
        people = result.checkpoints
        (line,) = axes.plot(people, mean / people, label=label)
        low, high = (mean - error) / people, (mean + error) / people
        axes.fill_between(people, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set_xscale("log")
    axes.set_xlim(left=100)
    axes.set_xlabel("people served")
    axes.set_ylabel("regret per person so far")
    axes.set_title("ten options, (1, 0)-DP, mean of 10 runs ± one standard error", fontsize=10)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(path)


if __name__ == "__main__":
    draw(Path(__file__).with_suffix(".png"))
