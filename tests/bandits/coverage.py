"""Coverage and width of confidence sequences over whole adaptive runs, checked against the truth
after every round.

`python -m tests.bandits.coverage --runs 2000` prints the table of `docs/explanation/confidence.md`.
"""

from __future__ import annotations

import argparse
import math
import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import binom

from tacit.algorithms.registry import lookup
from tacit.bandits.arm_summaries import (
    SummarySettings,
    beats,
    best_option,
    interval,
    leading_option,
    level_of,
)
from tacit.bandits.confidence_sequences import STEP, Tally, weight_step
from tacit.environments import Bernoulli
from tacit.experiment import Experiment
from tacit.types import ErrorDistribution, Estimate, Round

LEVEL = 0.95
SURE = 0.98 * (1 - LEVEL)
DRAWS = 40_000  # of the error of an option's statistic
WIDTHS = 20  # runs whose intervals are measured


@dataclass(frozen=True)
class Scenario:
    """Options, the guarantee, who fails to report, what is added once a hundredth have come, and
    the control's share, with which others get as much until they are shown to be worse.
    """

    means: tuple[float, ...]
    epsilon: float
    horizon: int
    dropout: float = 0.0
    added: tuple[float, ...] = ()
    share: float = 0.0
    algorithm: str = "private-med"

    def experiment(self, seed: int) -> Experiment:
        entry = lookup(self.algorithm)
        asked = {"means": self.means, "epsilon": self.epsilon, "horizon": self.horizon}
        problem = entry.make_problem(
            {**asked, "dropout": self.dropout, "control_share": self.share}
        )
        return entry.build(problem.for_environment(Bernoulli(self.means), seed))


@dataclass(frozen=True)
class Width:
    """How wide the last interval of an option is, in units of one for a single look at the same
    statistic by its exact distribution: with all options of the start together, and of it alone.
    """

    together: float
    alone: float


@dataclass(frozen=True)
class Run:
    """Whether all intervals and all lifts held at every round, whether the best option was ever
    called worse or a wrong one best, whether one was named at the end, and widths.
    """

    held: bool
    lifted: bool
    erred: bool
    named: bool
    widths: list[Width]


def estimate(
    scenario: Scenario, experiment: Experiment, round_: Round, mean: float, rng: np.random.Generator
) -> Estimate:
    protocol: Any = experiment.open(round_)
    people = round_.participants
    if scenario.dropout:
        people = max(protocol.minimum, int(rng.binomial(people, 1 - scenario.dropout / 2)))
    levels = Bernoulli((mean, mean)).levels(0, people, protocol.precision, rng)
    told: Estimate = protocol.simulate(levels, rng)
    return told


def simulate_run(scenario: Scenario, seed: int, widths: bool = True) -> Run:
    rng, experiment = np.random.default_rng([seed, 11]), scenario.experiment(seed)
    means = list(scenario.means)
    errors: list[list[ErrorDistribution]] = [[] for _ in means]
    setting = SummarySettings(LEVEL, len(means))
    held = lifted = True
    erred = False
    while rounds := experiment.propose():
        if len(means) < len(scenario.means) + len(scenario.added) and (
            100 * experiment.learner.played > scenario.horizon
        ):
            means += scenario.added
            errors += [[] for _ in scenario.added]
            for mean in scenario.added:
                experiment.add(f"new {mean:g}")
        for round_ in rounds:
            if not round_.released:
                experiment.skip(round_)
                continue
            told = estimate(scenario, experiment, round_, means[round_.arm], rng)
            experiment.observe(round_, told)
            errors[round_.arm].append(told.error)
            tallies = experiment.learner._tallies
            held = held and covers(tallies, means, round_.arm, setting)
            lifted = lifted and covers_lifts(tallies, means, round_.arm, setting)
            erred = erred or errs(tallies, means, setting)
    named = best_option(tallies, range(len(means)), setting, SURE) is not None
    found = [
        relative_width(tallies[k], errors[k], means[k], setting, rng)
        for k in range(len(scenario.means) if widths else 0)
    ]
    return Run(held, lifted, erred, named, found)


def against(tally: Tally, mean: float, side: int) -> float:
    return float(tally.evidence_against(np.array([mean]), side)[0])


def covers(tallies: list[Tally], means: list[float], arm: int, setting: SummarySettings) -> bool:
    """Whether the true mean of the option that was just heard of is within its interval."""
    level = level_of(SURE * setting.share(arm) / 2)
    return all(against(tallies[arm], means[arm], side) <= level for side in (1, -1))


def covers_lifts(
    tallies: list[Tally], means: list[float], arm: int, setting: SummarySettings
) -> bool:
    """Whether all lifts hold that may have changed: the pair of true means is not refuted."""
    others = range(1, len(means)) if arm == 0 else (arm,)
    return all(
        against(tallies[k], means[k], side) + against(tallies[0], means[0], -side)
        <= level_of(SURE * setting.share(k) / 2)
        for k in others
        for side in (1, -1)
    )


def errs(tallies: list[Tally], means: list[float], setting: SummarySettings) -> bool:
    """Whether the best option is called worse; where several are the best, whether one is named."""
    best, present = means.index(max(means)), range(len(means))
    if means.count(max(means)) > 1:
        return best_option(tallies, present, setting, SURE) is not None
    leader = leading_option(tallies, present)
    return leader != best and beats(tallies, leader, best, setting, SURE)


def relative_width(
    tally: Tally,
    errors: list[ErrorDistribution],
    mean: float,
    setting: SummarySettings,
    rng: np.random.Generator,
) -> Width:
    """By quantiles of the statistic's error, sampling and noise, drawn anew; for all options
    together by dividing what may fail by their number.
    """
    low, high = interval(tally, SURE * setting.share(0))
    off, held = np.zeros(DRAWS), 0.0
    for error in errors:
        people, noise = error.participants, error.noise
        weight = STEP ** -weight_step(people, error.variance)
        off += weight * (rng.binomial(people, mean, DRAWS) - people * mean)
        if noise is not None:
            drawn: Any = noise
            off += weight * (drawn.sample(rng, DRAWS) - noise.mean) / error.precision
        held += weight * people
    tails = (1 - LEVEL) / 2 / np.array([setting.first, 1])
    fixed = (np.quantile(off, 1 - tails) - np.quantile(off, tails)) / held
    return Width(*((high - low) / fixed).tolist())


SCENARIOS = {
    "options added midway": Scenario((0.02, 0.02), 0.5, 100_000, added=(0.025, 0.02)),
    "rates of 2%": Scenario((0.02, 0.02, 0.025), 1.0, 100_000),
    "two equal rates": Scenario((0.02, 0.02), 0.5, 100_000),
    "50 options": Scenario(tuple(np.linspace(0.25, 0.75, 50).tolist()), 0.1, 100_000),
    "a small epsilon": Scenario((0.02, 0.024), 0.1, 300_000),
    "dropout": Scenario((0.02, 0.03, 0.03), 0.5, 100_000, dropout=0.2),
    "a control's share, 2% and 2.5%": Scenario((0.02, 0.025), 0.5, 400_000, share=0.4),
    "a control's share, equal rates": Scenario((0.02, 0.02), 0.5, 400_000, share=0.4),
    "a control's share, 3 options": Scenario((0.02, 0.02, 0.026), 1.0, 400_000, share=0.3),
}


def most_failures(runs: int, rate: float, false_alarm: float = 1e-6) -> int:
    """So many failures in so many runs are likelier than the false alarm at the rate allowed."""
    return math.ceil(binom.isf(false_alarm, runs, rate))


def many(name: str, runs: int) -> list[Run]:
    """Runs of the seeds from 0 on; widths of the first few."""
    return [simulate_run(SCENARIOS[name], seed, seed < WIDTHS) for seed in range(runs)]


def line(name: str, done: list[Run]) -> str:
    """A row of the table."""
    widths = [(width.together, width.alone) for run in done for width in run.widths]
    together, alone = np.array(widths).T
    share = [
        f"{np.mean([getattr(run, part) for run in done]):.2%}"
        for part in ("held", "lifted", "erred", "named")
    ]
    wide = f"{together.mean():.2f} ({together.max():.2f}) | {alone.mean():.2f}"
    return f"| {name} | {' | '.join(share)} | {wide} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--only", default="", help="scenarios whose names contain this")
    given = parser.parse_args()
    names = [name for name in SCENARIOS if given.only in name]
    print("| | intervals held | lifts held | erred | decided | width (widest) | alone |")
    print("|---|---|---|---|---|---|---|")
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(partial(many, runs=given.runs), names)
        for name, done in zip(names, found, strict=True):
            print(line(name, done), flush=True)


if __name__ == "__main__":
    main()
