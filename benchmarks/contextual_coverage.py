"""Contextual experiments: how often confidence sets miss a true mean or difference.

Each run is one experiment on an instance of its own: corners or moments with 4 to 10 features and
3, 5 or 8 options, tables with up to 12 segments. Gaps are uneven (a t distribution with 2 degrees
of freedom), means fill a random part of [0.02, 0.98], some segments are rare; ε is 0.5 to 3, the
horizon 1,000 to 8,000. A run misses if after any round any 95 % interval of a mean or a
difference misses. `python benchmarks/contextual_coverage.py [--runs 2000] [--only NAME]`.

`radius used` is the largest distance of the truth from the centre of a set in a run, relative to
the set's radius; above 1 the set itself misses.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import stats

from machine import Row, emit
from tacit.algorithms import lookup
from tacit.bandits.contextual.confidence import cell_bounds
from tacit.bandits.contextual.policy_learners import LinearPolicyLearner, TableThompson
from tacit.environments.contextual import LinearContexts, SegmentContexts, random_linear

LEVEL = 0.95
FALSE_POSITIVES = 1e-6
TRUST = ("two-servers", "two-servers", "secure-aggregation", "central")


def linear_world(rng: np.random.Generator) -> LinearContexts:
    """An instance with uneven gaps; rewards are linear in its features."""
    options = int(rng.choice([3, 5, 8]))
    if rng.random() < 0.5:
        world = random_linear("random", options, int(rng.choice([4, 6, 8])), rng)
    else:
        world = random_linear("interactions", options, options + int(rng.integers(1, 3)), rng)
    raw = np.array(world.matrices)
    slopes = np.einsum("kdm,d->km", raw, rng.standard_t(2, size=raw.shape[1]))
    fields = [slopes[:, 1:][:, place] for place in range(slopes.shape[1] - 1)]
    spread, start = np.zeros((2, options)), 0
    for field in world.fields:  # the least and the largest mean of every option
        each = np.array(fields[start : start + field.size])
        each = each if field.size > 1 else np.array([each[0], -each[0]])
        spread += np.array([each.min(axis=0), each.max(axis=0)])
        start += field.size
    least, most = (slopes[:, 0] + spread[0]).min(), (slopes[:, 0] + spread[1]).max()
    low, high = rng.uniform(0.02, 0.4), rng.uniform(0.6, 0.98)
    scale = (high - low) / (most - least)
    coefficients = slopes * scale
    coefficients[:, 0] += low - least * scale
    return replace(world, coefficients=coefficients)


def segment_world(rng: np.random.Generator) -> SegmentContexts:
    """An instance with rare segments and means in all of [0, 1]."""
    segments, options = int(rng.integers(2, 13)), int(rng.integers(2, 7))
    shares = 0.9 * rng.dirichlet(np.full(segments, 0.5)) + 0.1 / segments
    return SegmentContexts(rng.beta(0.7, 0.7, (segments, options)), shares)


def run_of(statistic: str, seed: int) -> tuple[bool, float]:
    """Whether an interval of any round misses, and the largest share of the radius used."""
    rng = np.random.default_rng([seed, 31])
    world = segment_world(rng) if statistic == "tables" else linear_world(rng)
    given = {
        "statistic": statistic,
        "epsilon": float(rng.choice([0.5, 1.0, 3.0])),
        "trust": str(rng.choice(TRUST)),
        "horizon": int(np.exp(rng.uniform(np.log(1000), np.log(8000)))),
    }
    entry = lookup("private-contextual")
    problem: Any = entry.make_problem(given)
    start: Any = problem.start(seed, world)
    experiment = entry.build(problem.for_environment(start.world, seed))
    learner, check = experiment.learner, checker(start.world, seed)
    missed, used = False, 0.0
    while rounds := experiment.propose():
        for round_ in rounds:
            protocol = experiment.open(round_)
            played = start.world.play(round_, protocol, start.rng)
            experiment.observe(round_, protocol.simulate(played.load, start.noise))
        wrong, share = check(learner)
        missed, used = missed or wrong, max(used, share)
    return missed, used


def checker(world: Any, seed: int) -> Callable[[Any], tuple[bool, float]]:
    """A function that compares a learner's confidence set with the truth."""
    codes = world.codes(20, np.random.default_rng([seed, 32])).astype(float)
    means = world.expected(codes)
    if isinstance(world, SegmentContexts):

        def cells(learner: TableThompson) -> tuple[bool, float]:
            low, high = cell_bounds(learner.histograms, LEVEL)
            return bool(((low > world.table + 1e-9) | (high < world.table - 1e-9)).any()), 0.0

        return cells
    assert world.features is not None
    vectors = np.array([world.features.exact(code) for code in codes.tolist()])
    d = vectors.shape[2]
    rows = np.vstack([vectors.reshape(-1, d), (vectors[:, 1:] - vectors[:, :1]).reshape(-1, d)])
    truth = np.concatenate([means.ravel() - 0.5, (means[:, 1:] - means[:, :1]).ravel()])
    parameter = np.linalg.lstsq(rows, truth, rcond=None)[0]
    assert np.abs(rows @ parameter - truth).max() < 1e-6

    def linear(learner: LinearPolicyLearner) -> tuple[bool, float]:
        found = learner.confidence_set(LEVEL)
        low, high = found.bounds(rows)
        away = found.first - found.second @ parameter
        share = float(np.sqrt(away @ np.linalg.solve(found.spread, away))) / found.radius
        return bool(((low > truth + 1e-6) | (high < truth - 1e-6)).any()), share

    return linear


def rows_of(statistic: str, seeds: range) -> list[Row]:
    """Runs that missed, with limits."""
    found = []
    for seed in seeds:
        found.append(run_of(statistic, seed))
        if len(found) % 100 == 0:
            misses = sum(wrong for wrong, _ in found)
            print(f"{statistic}: {misses} of {len(found)}", file=sys.stderr, flush=True)
    count, misses = len(found), sum(wrong for wrong, _ in found)
    used = np.array([share for _, share in found])
    allowed = int(stats.binom.isf(FALSE_POSITIVES, count, 1 - LEVEL))
    upper = float(stats.beta.isf(FALSE_POSITIVES, misses + 1, count - misses))
    sure = f"wrong with probability {FALSE_POSITIVES:g}"
    rows: list[Row] = [
        {"name": f"{statistic}: runs", "value": count, "unit": "runs"},
        {"name": f"{statistic}: runs that missed", "value": misses, "unit": "runs"},
        {"name": f"{statistic}: misses that 5 % exceed, {sure}", "value": allowed, "unit": "runs"},
        {"name": f"{statistic}: upper limit of misses, {sure}", "value": upper, "unit": "share"},
    ]
    if statistic != "tables":
        for name, value in (("median", np.median(used)), ("largest", used.max())):
            rows.append(
                {"name": f"{statistic}: radius used, {name}", "value": float(value), "unit": "x"}
            )
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    kinds = ("corners", "moments", "tables")
    parser.add_argument("--only", choices=kinds, default="")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.runs)
    emit([row for kind in kinds if given.only in ("", kind) for row in rows_of(kind, seeds)])
