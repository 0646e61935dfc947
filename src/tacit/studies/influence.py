"""Influence of poisoning on an experiment under each trust model, and its plot.

One report adds between `low` and `high` answers to an estimated sum (`SumProtocol.reach`); an
honest one adds 0 to 1. If a fraction λ of participants reports against the best option, its mean
becomes (1 - λ)μ + λ·low and another's (1 - λ)ν + λ·high. So the winner changes from λ = (μ - ν) /
(μ - ν + high - low) on. Where a report may add any number, one corrupted participant is enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit.algorithms.contextual_problem import ContextualProblem
from tacit.algorithms.registry import Algorithm, lookup
from tacit.protocols.contract import SumProtocol
from tacit.simulation.results import Result
from tacit.simulation.study import RunConfig, build_first_run, simulate
from tacit.trust import TrustModel

TRIED = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # multiples of the requested fraction, in the plot
WAYS = {TrustModel.TWO_SERVERS.value: "two servers", "verified": "two servers, verified reports"}


@dataclass(frozen=True)
class Influence:
    """Influence of corrupted participants under one trust model.

    `change` is the most by which one of them moves a sum, in answers. `shift` is the most by which
    the requested fraction moves an estimate. Both are None if unbounded. Another option wins from a
    fraction `part` of all participants on: `people` of those until the experiment is decided.
    """

    trust: str
    change: float | None
    shift: float | None
    part: float
    people: int | None = None


@dataclass(frozen=True)
class ContextualInfluence:
    """Measured influence of corrupted participants on a contextual experiment.

    `weight` is how much farther one of their reports moves the sums of rewards than a false answer
    does, in l2 norm. The regrets are those of a whole run: of honest participants, of the requested
    fraction corrupted, and of the best single option for everybody; None where it is unknown.
    """

    trust: str
    statistic: str
    weight: float
    honest: float
    poisoned: float
    single: float | None


def contextual_influence(
    entry: Algorithm, settings: dict[str, Any], poisoned: float, config: RunConfig
) -> ContextualInfluence:
    """Simulate a contextual algorithm without and with corrupted participants.

    A report of tables and corners is one cell; one of moments may have all of its d
    entries at their limits.
    """
    problem, _ = build_first_run(entry, entry.make_problem(settings), config, None)
    assert isinstance(problem, ContextualProblem)
    statistic, _ = problem.chosen()
    assert problem.features is not None
    weight = math.sqrt(problem.features.dimension) if statistic == "moments" else 1.0
    honest = simulate(entry, **settings, **vars(config))
    false = simulate(entry, **settings, **vars(replace(config, poisoned=poisoned)))
    singles = [run["single_regret"] for run in honest.runs]
    single = None if None in singles else sum(singles) / len(singles)
    about = (settings.get("trust") or entry.name, statistic, weight)
    return ContextualInfluence(*about, honest.regret_mean, false.regret_mean, single)


def influence_of_reach(
    trust: str,
    reach: tuple[float, float],
    means: Sequence[float],
    poisoned: float,
    participants: int | None,
) -> Influence:
    """The influence on a protocol of this reach, among options of these means.

    >>> influence_of_reach("verified", (0.0, 1.0), (0.5, 0.5625), 0.01, 1000)  # doctest: +ELLIPSIS
    Influence(trust='verified', change=1.0, shift=0.005625, part=0.058..., people=59)
    """
    low, high = reach
    best, other = max(means), min(means)
    gap = best - other
    any_number = not math.isfinite(high - low)
    part = 0.0 if any_number else gap / (gap + high - low)
    known = participants is not None
    people = max(1, math.ceil(part * (participants or 0))) if known or any_number else None
    if any_number:
        return Influence(trust, None, None, part, people)
    change, shift = max(high, 1 - low), poisoned * max(high - other, best - low)
    return Influence(trust, change, shift, part, people)


def influence(
    entry: Algorithm, settings: dict[str, Any], poisoned: float, participants: int | None
) -> list[Influence]:
    """One row for an arms algorithm, and one with verified reports where they are available."""
    ways = {settings.get("trust") or entry.name: settings}
    if settings.get("trust") == TrustModel.TWO_SERVERS and "through" in entry.options:
        ways["verified"] = settings | {"through": "verified"}
    found = []
    for trust, options in ways.items():
        _, experiment = build_first_run(entry, entry.make_problem(options), RunConfig(), None)
        protocol = experiment.open(experiment.propose()[0])
        if isinstance(protocol, SumProtocol):
            row = influence_of_reach(
                trust, protocol.reach, options["means"], poisoned, participants
            )
            found.append(row)
    return found


def right_winners(
    algorithm: str, poisoned: Sequence[float], config: RunConfig, **options: Any
) -> dict[str, list[float]]:
    """Fraction of simulated experiments over two servers that find the best option.

    By fraction of corrupted participants, without and with verified reports.
    """
    entry, means, found = lookup(algorithm), options["means"], dict[str, list[float]]()
    for through in WAYS:
        asked = options | {"trust": "two-servers", "through": through}
        _, experiment = build_first_run(entry, entry.make_problem(asked), config, None)
        best = experiment.options[means.index(max(means))]
        runs = [
            simulate(entry, **asked, **vars(replace(config, poisoned=part))) for part in poisoned
        ]
        found[through] = [_part_of(best, result) for result in runs]
    return found


def _part_of(best: str, result: Result) -> float:
    found = [record["winner"] for record in result.runs]
    return found.count(best) / len(found)


def draw(
    rates: dict[str, list[float]], poisoned: Sequence[float], turning: float, path: Path
) -> Path:
    """Plot how often the best option is found against the fraction of corrupted participants.

    From `turning` on, false answers in range suffice to make another option look best.
    """
    from tacit.simulation import pictures

    figure, axes = pictures.axes()
    for index, (through, right) in enumerate(rates.items()):
        drawn = pictures.style(index) | {"markevery": 1}
        axes.plot([100 * part for part in poisoned], right, label=WAYS[through], **drawn)
    axes.set_xscale("log")
    axes.set_xticks([100 * part for part in poisoned], [f"{100 * part:g}" for part in poisoned])
    axes.minorticks_off()
    label = "false answers in range suffice from here on"
    axes.axvline(100 * turning, label=label, **pictures.BOUND)
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("corrupted participants, in percent")
    axes.set_ylabel("experiments that find the best option")
    pictures.legend(axes)
    return pictures.save(figure, path)
