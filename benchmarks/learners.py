"""Regret of private learners.

They are compared with the published successive elimination at the same ε, with Thompson sampling
without privacy, and with each other.

Targets: at least 9 times less regret than dist-dp-se as published (10 options, easy, 10^6
participants, ε = 0.1, 0.5, 1), 8 times (hard, 10^7, ε = 0.1, 1); with `--index chernoff` 6.5 times,
with two servers' noise 7 times, all as lower 95% limits; at most 1% of runs over ten times the
mean; at most 32 rounds; at ε = 1 at most 1.75 times the regret of Thompson sampling. `--table`
prints instead the table of `docs/explanation/bandits.md`: every learner on every kind of instance;
`--shares` compares `private-med` with the shares of MED as published, on the same seeds in one run.
"""

from __future__ import annotations

import argparse
import math
import sys
from functools import cache
from itertools import product
from typing import Any

from machine import Row, emit
from tacit.algorithms.registry import lookup
from tacit.bandits.arms import med
from tacit.simulation import Result, simulate
from tacit.types import Floats

SEED = 10_000  # seeds from here on: none that anything was chosen by
HIDDEN = 700_000  # of `--shares`
EARLY = med.EARLY
Z = 1.96
EASY: dict[str, Any] = {"instance": "easy", "horizon": 10**6}
HARD: dict[str, Any] = {"instance": "hard", "horizon": 10**7}
AGAINST: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    *((f"easy, ε = {e}", EASY | {"epsilon": e}, {}) for e in (0.1, 0.5, 1.0)),
    *((f"hard, ε = {e}", HARD | {"epsilon": e}, {}) for e in (0.1, 1.0)),
    *(
        (f"easy, ε = {e}, chernoff", EASY | {"epsilon": e}, {"index": "chernoff"})
        for e in (0.1, 0.5, 1.0)
    ),
    *((f"hard, ε = {e}, chernoff", HARD | {"epsilon": e}, {"index": "chernoff"}) for e in (0.1, 1)),
    *(
        (f"easy, ε = {e}, two servers", EASY | {"epsilon": e}, {"trust": "two-servers"})
        for e in (0.1, 0.5, 1.0)
    ),
]
ABSOLUTE: dict[str, dict[str, Any]] = {
    "2% against 2.5%, 10^6, ε = 0.1": {"means": (0.02, 0.025), "horizon": 10**6, "epsilon": 0.1},
    "2% against 2.5%, 10^6, ε = 1": {"means": (0.02, 0.025), "horizon": 10**6},
    "10 options in [1%, 5%], 10^5, ε = 1": {"instance": "rare", "horizon": 10**5},
    "50 options, easy, 10^5, ε = 0.1": {"arms": 50, "horizon": 10**5, "epsilon": 0.1},
}
LEARNERS = ("private-med", "private-klucb", "adap-klucb", "lazy-dp-ts")
PEER_RUNS = 20  # at most: they are slower, and further away
CELLS = list(product(("easy", "hard", "rare"), (2, 10, 50), (0.1, 1.0)))


@cache
def _result(name: str, runs: int, asked: tuple[tuple[str, Any], ...]) -> Result:
    return simulate(lookup(name), runs=runs, seed=SEED, **dict(asked))


def result(name: str, runs: int, **options: Any) -> Result:
    """The runs of an algorithm; what it has no option for is left out."""
    known = {key: value for key, value in options.items() if key in lookup(name).options}
    return _result(name, runs, tuple(sorted(known.items())))


def finals(name: str, runs: int, **options: Any) -> Floats:
    """The final regret of every run."""
    return result(name, runs, **options).regret[:, -1]


def ratio(theirs: Floats, ours: Floats) -> tuple[float, float]:
    """How many times less regret, and half the width of its 95% limits; the runs are pairs, on the
    same instances, and the logarithm of a ratio of means is nearly normal.
    """
    a, b = theirs.mean(), ours.mean()
    spread = (theirs / a - ours / b).std(ddof=1) / math.sqrt(len(ours))
    return float(a / b), float(a / b * (1 - math.exp(-Z * spread)))


def against_published(runs: int) -> list[Row]:
    """Lower limits of ratios to dist-dp-se with the paper's constants; long runs and rounds."""
    rows: list[Row] = []
    longest, worst = 0.0, 0.0
    for label, world, how in AGAINST:
        ours = result("private-med", runs, **world, **how)
        value, width = ratio(
            finals("dist-dp-se", runs, **world, constants="paper"), ours.regret[:, -1]
        )
        rows.append(row(f"less regret than published, lower limit: {label}", value - width))
        longest = max(longest, *(record["rounds"] for record in ours.runs))
        regret = ours.regret[:, -1]
        worst = max(worst, float((regret > 10 * regret.mean()).mean()))
    rows.append(row("rounds of private-med, at most", longest, "rounds"))
    rows.append(row("runs over ten times the mean, at most", 100 * worst, "%"))
    return rows


def absolute(runs: int) -> list[Row]:
    """Mean regret where the papers have no figure, and against no privacy."""
    rows = [
        row(f"regret of private-med: {label}", float(finals("private-med", runs, **how).mean()), "")
        for label, how in ABSOLUTE.items()
    ]
    for label, world in (("easy, 10^6", EASY), ("hard, 10^7", HARD)):
        free = finals("thompson", min(runs, 100), **world).mean()
        ours = finals("private-med", runs, **world)[: min(runs, 100)].mean()
        rows.append(row(f"private-med at ε = 1 over thompson: {label}", float(ours / free)))
    return rows


def limits(values: Floats) -> tuple[float, float]:
    """The mean, and half the width of its 95% limits."""
    return float(values.mean()), float(Z * values.std(ddof=1) / math.sqrt(len(values)))


def row(name: str, value: float, unit: str = "times") -> Row:
    print(f"{name}: {value:.3g} {unit}", file=sys.stderr, flush=True)
    return {"name": name, "value": round(value, 3), "unit": unit}


def table(runs: int, horizon: int) -> None:
    """Mean regret ± 95% in every cell, in Markdown; bold is clearly less than every other, in
    italics something that is clearly less than `private-med`.
    """
    print("| instance | options | ε |", " | ".join(LEARNERS), "|")
    print("|---|---|---|" + "---|" * len(LEARNERS))
    for instance, arms, epsilon in CELLS:
        options = {"instance": instance, "arms": arms, "epsilon": epsilon, "horizon": horizon}
        ours, *others = (
            finals(name, runs if name.startswith("private") else min(runs, PEER_RUNS), **options)
            for name in LEARNERS
        )
        gaps = [limits(regret - ours[: len(regret)]) for regret in others]
        clear = all(mean > width for mean, width in gaps)
        cells = ["**{:,.0f} ± {:,.0f}**" if clear else "{:,.0f} ± {:,.0f}"]
        cells += ["*{:,.0f} ± {:,.0f}*" if -m > w else "{:,.0f} ± {:,.0f}" for m, w in gaps]
        cells = [
            cell.format(*limits(regret))
            for cell, regret in zip(cells, (ours, *others), strict=True)
        ]
        print(f"| {instance} | {arms} | {epsilon:g} |", " | ".join(cells), "|", flush=True)


def shares(runs: int) -> None:
    """Regret with the shares of MED and with ours in every setting, in Markdown; ± is 95% of the
    mean difference. In one process, where the constant can be changed.
    """
    settings = {
        f"{i}, {k} options, ε = {e}": {"instance": i, "arms": k, "epsilon": e, "horizon": 10**6}
        for i, k, e in CELLS
    }
    settings |= {label: world | how for label, world, how in AGAINST} | ABSOLUTE
    print("| setting | shares of MED | `private-med` | ratio | difference |\n" + "|---" * 5 + "|")
    for label, options in settings.items():
        found = []
        for med.EARLY in (0.0, EARLY):
            how: dict[str, Any] = {"runs": runs, "seed": HIDDEN, "workers": 1, **options}
            found.append(simulate(lookup("private-med"), **how).regret[:, -1])
        before, now = found
        mean, width = limits(now - before)
        print(f"| {label} | {before.mean():,.0f} | {now.mean():,.0f} ", end="")
        print(f"| {now.mean() / before.mean():.2f} | {mean:,.0f} ± {width:,.0f} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--horizon", type=int, default=10**6, help="of the table")
    parser.add_argument("--table", action="store_true", help="print the table of the docs")
    parser.add_argument("--shares", action="store_true", help="compare with the shares of MED")
    given = parser.parse_args()
    if given.shares:
        shares(given.runs)
    elif given.table:
        table(given.runs, given.horizon)
    else:
        emit([*against_published(given.runs), *absolute(given.runs)])
