"""Contextual experiments: regret relative to sequential learners without privacy; cost per
participant.

Targets, at (1, 10^-6) over two servers with 8 features and 5 options: at
most 2.0 times linear Thompson at 10^6 participants and 2.5 times at 10^5; tables of 20 x 4 at
(1, 0): at most 1.5 times Beta-Thompson; less regret than the best single option from 20,000
participants on, where that loses at least 0.03 per participant; 10^6 simulated participants in
under 2 s of one core. `python benchmarks/contextual.py [--seeds 50] [--first 0] [--only NAME]`.

References are computed here, by code of their own: they refresh their model after every
participant up to 500, then every 0.2 %.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from machine import Row, emit
from tacit.algorithms.registry import lookup
from tacit.environments.contextual import Codes, ContextualWorld, SegmentContexts
from tacit.privacy import ApproximateDP, PureDP
from tacit.protocols.statistic_sums import TwoServerStatistic
from tacit.protocols.statistics import MomentStatistic, TableStatistic
from tacit.protocols.sums import TwoServers
from tacit.simulation.driver import run

Floats = npt.NDArray[np.float64]
MARKS = (20_000, 100_000, 1_000_000)
HARD = 0.03  # regret per participant of the best single option, from which it must be beaten
REFRESH = 0.002
BLOCK = 2048  # participants of the reference that are drawn ahead


def next_batch(done: int) -> int:
    """Participants until the next refresh or mark."""
    mark = next(mark for mark in MARKS if done < mark)
    return min(max(1, int(done * REFRESH)), mark - done)


def linear_thompson(world: ContextualWorld, rng: np.random.Generator) -> list[float]:
    """Regret at the marks of Thompson sampling with a linear model, without noise.

    Participants, with the normal draws of their decisions, are drawn ahead in blocks.
    """
    assert world.features is not None
    assert world.binary
    features = world.features
    d = features.dimension
    gram, bias, done, regret, found = np.eye(d), np.zeros(d), 0, 0.0, list[float]()
    people = drawn_ahead(world, 0, rng)
    first = 0
    while done < MARKS[-1]:
        size = next_batch(done)
        if first + size > len(people[0]):
            people, first = drawn_ahead(world, max(size, BLOCK), rng), 0
        x, means, normal, uniform = (part[first : first + size] for part in people)
        first += size
        inverse = np.linalg.inv(gram)
        root = np.linalg.cholesky((inverse + inverse.T) / 8).astype(np.float32)
        drawn = normal @ root.T + (inverse @ bias).astype(np.float32)
        options = np.einsum("nkd,nd->nk", x, drawn).argmax(axis=1)
        each = np.arange(size)
        own = means[each, options]
        regret += float((means.max(axis=1) - own).sum())
        chosen = x[each, options].astype(float)
        bias += ((uniform < own) - 0.5) @ chosen
        gram += chosen.T @ chosen
        done += size
        if done in MARKS:
            found.append(regret)
    return found


def drawn_ahead(
    world: ContextualWorld, count: int, rng: np.random.Generator
) -> tuple[npt.NDArray[Any], ...]:
    """Features and means of that many participants, a normal vector and a uniform number each."""
    assert world.features is not None
    people = Codes(world.codes(count, rng), world.features)
    means = world.expected(people.codes)
    assert means is not None
    x = people.features / np.float32(world.features.resolution)
    normal = rng.standard_normal((count, world.features.dimension), dtype=np.float32)
    return x, means, normal, rng.random(count)


def beta_thompson(world: SegmentContexts, rng: np.random.Generator) -> list[float]:
    """Regret at the marks of Thompson sampling with a beta distribution per cell."""
    table, shares = world.table, world.shares
    gaps = table.max(axis=1, keepdims=True) - table
    wins, losses = np.ones_like(table), np.ones_like(table)
    done, regret, found = 0, 0.0, list[float]()
    while done < MARKS[-1]:
        size = next_batch(done)
        segments = rng.choice(len(shares), size, p=shares)
        options = rng.beta(wins[segments], losses[segments]).argmax(axis=1)
        good = rng.random(size) < table[segments, options]
        np.add.at(wins, (segments, options), good)
        np.add.at(losses, (segments, options), ~good)
        regret += float(gaps[segments, options].sum())
        done += size
        if done in MARKS:
            found.append(regret)
    return found


def regret_of(name: str, seed: int, **options: Any) -> tuple[list[float], ContextualWorld]:
    """Regret of an algorithm at the marks, and the world of the seed."""
    entry = lookup(name)
    problem: Any = entry.make_problem({"horizon": MARKS[-1], **options})
    start = problem.start(seed, None)
    experiment = entry.build(problem.for_environment(start.world, seed))
    outcome = run(experiment, start.world, start.rng, noise=start.noise, checkpoints=MARKS)
    assert outcome.regret is not None
    assert isinstance(start.world, ContextualWorld)
    return outcome.regret, start.world


def ratios(
    label: str,
    seeds: Iterable[int],
    reference: Callable[[Any, np.random.Generator], list[float]],
    **options: Any,
) -> list[Row]:
    """Mean regret over that of the reference, at 10^5 and 10^6, with and without noise."""
    private, plain, base, single = list[Any](), list[Any](), list[Any](), list[float]()
    for seed in seeds:
        found, world = regret_of("private-contextual", seed, **options)
        private.append(found)
        plain.append(regret_of("contextual-thompson", seed, **options)[0])
        base.append(reference(world, np.random.default_rng([seed, 1])))
        assert world.single_option_regret is not None
        single.append(world.single_option_regret[0])
        shown = (" ".join(f"{x:.0f}" for x in part[-1]) for part in (private, plain, base))
        print(f"{label}, seed {seed}: {', '.join(shown)}", file=sys.stderr, flush=True)
    mine, quiet, theirs = (np.array(part) for part in (private, plain, base))
    rows: list[Row] = []
    for column, mark in enumerate(MARKS[1:], start=1):
        mean, other = mine[:, column].mean(), theirs[:, column].mean()
        # the standard error of a ratio of means over the same seeds
        spread = (mine[:, column] - mean / other * theirs[:, column]).std(ddof=1)
        error = spread / np.sqrt(len(mine)) / other
        rows += [
            {"name": f"{label}, {mark:,}: times one by one", "value": mean / other, "unit": "x"},
            {"name": f"{label}, {mark:,}: standard error of that", "value": error, "unit": "x"},
            {
                "name": f"{label}, {mark:,}: times the same learner without noise",
                "value": mean / quiet[:, column].mean(),
                "unit": "x",
            },
        ]
    hard = np.array(single) >= HARD
    if hard.any():
        for column, mark in enumerate(MARKS):
            part = mine[hard, column] / (mark * np.array(single)[hard])
            rows.append(
                {
                    "name": f"{label}, {mark:,}: times the best single option "
                    f"({int(hard.sum())} instances)",
                    "value": float(part.mean()),
                    "unit": "x",
                }
            )
    return rows


def cpu(work: Callable[[], Any], times: int) -> float:
    """CPU seconds of one call."""
    start = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - start) / times


def costs() -> list[Row]:
    """Simulated participants per second; size and CPU time of a device's report against arms."""
    regret_of("private-contextual", 0)
    simulated = cpu(lambda: regret_of("private-contextual", 0), 1)
    arms = TwoServers(10_000, 1, PureDP(1.0))
    table = TwoServerStatistic(10_000, TableStatistic(20, 4), PureDP(1.0))
    moments = TwoServerStatistic(10_000, MomentStatistic(8, 1024), ApproximateDP(1.0, 1e-6))
    vector = (300, -200, 100, 50, 25, 400, 10, -5)
    spent = {
        "arms": cpu(lambda: arms.randomize(1.0), 2000),
        "table 20 x 4": cpu(lambda: table.randomize(7), 200),
        "moments of 8 features": cpu(lambda: moments.randomize((vector, 1)), 200),
    }
    bits = {
        "table 20 x 4": Fraction(table.bits_per_participant),
        "moments of 8 features": Fraction(moments.bits_per_participant),
    }
    rows: list[Row] = [
        {"name": "10^6 simulated participants, random features", "value": simulated, "unit": "s"},
        {"name": "simulated participants", "value": 1e6 / simulated, "unit": "1/s"},
    ]
    for name, size in bits.items():
        rows += [
            {
                "name": f"report, {name}: size relative to arms",
                "value": float(size / Fraction(arms.bits_per_participant)),
                "unit": "x",
            },
            {
                "name": f"report, {name}: CPU relative to arms",
                "value": spent[name] / spent["arms"],
                "unit": "x",
            },
        ]
    return rows


def rows(seeds: range, only: str = "") -> list[Row]:
    """All ratios and costs, or those of one kind of instances."""
    segments = {"contexts": "segments", "segments": 20, "arms": 4}
    kinds: dict[str, Callable[[], list[Row]]] = {
        "tables": lambda: ratios("tables 20 x 4", seeds, beta_thompson, **segments),
        "random": lambda: ratios("random features", seeds, linear_thompson, contexts="random"),
        "interactions": lambda: ratios(
            "interactions", seeds, linear_thompson, contexts="interactions"
        ),
        "costs": costs,
    }
    return [row for name, found in kinds.items() if only in ("", name) for row in found()]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", choices=("tables", "random", "interactions", "costs"), default="")
    given = parser.parse_args()
    emit(rows(range(given.first, given.first + given.seeds), given.only))
