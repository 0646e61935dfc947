"""How often answers that are to hold at all rounds at once do: whole runs of a learner that decides
by what it sees, checked against the truth after every round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.algorithms.registry import lookup
from tacit.bandits.always import Tally
from tacit.bandits.standings import Setting, best_option, interval, level_of
from tacit.environments import Bernoulli
from tacit.estimates import Estimate, Round
from tacit.experiment import Experiment

LEVEL = 0.95
SURE = 0.98 * (1 - LEVEL)


@dataclass(frozen=True)
class Scenario:
    """Options, the promise, who fails to report, and what is added once a hundredth have come."""

    means: tuple[float, ...]
    epsilon: float
    horizon: int
    dropout: float = 0.0
    added: tuple[float, ...] = ()
    algorithm: str = "private-med"

    def experiment(self, seed: int) -> Experiment:
        entry = lookup(self.algorithm)
        asked = {"means": self.means, "epsilon": self.epsilon, "horizon": self.horizon}
        problem = entry.ask({**asked, "dropout": self.dropout})
        return entry.build(problem.fitted(Bernoulli(self.means), seed))


@dataclass(frozen=True)
class Run:
    """Whether every interval held at every round, whether a wrong option was ever named best, and
    the final widths as parts of those of normal intervals for one look at one option.
    """

    held: bool
    erred: bool
    named: bool
    widths: list[float]


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


def play(scenario: Scenario, seed: int) -> Run:
    rng, experiment = np.random.default_rng([seed, 11]), scenario.experiment(seed)
    means = list(scenario.means)
    setting = Setting(LEVEL, len(means))
    held, erred = True, False
    while rounds := experiment.propose():
        if len(means) < len(scenario.means) + len(scenario.added) and (
            100 * experiment.learner.played > scenario.horizon
        ):
            means += scenario.added
            for mean in scenario.added:
                experiment.add(f"new {mean:g}")
        for round_ in rounds:
            if not round_.opened:
                experiment.skip(round_)
                continue
            told = estimate(scenario, experiment, round_, means[round_.arm], rng)
            experiment.observe(round_, told)
            held = held and covered(experiment, round_.arm, means, setting)
            erred = erred or names_wrongly(experiment, round_.arm, means, setting)
    tallies = experiment.learner._tallies
    named = best_option(tallies, range(len(means)), setting, SURE) is not None
    widths = [relative_width(tally, SURE * setting.share(k)) for k, tally in enumerate(tallies)]
    return Run(held, erred, named, widths)


def relative_width(tally: Tally, failure: float) -> float:
    low, high = interval(tally, failure)
    return (high - low) / (2 * 1.96 * tally.spread)


def covered(experiment: Experiment, arm: int, means: list[float], setting: Setting) -> bool:
    tally, truth = experiment.learner._tallies[arm], np.array([means[arm]])
    level = level_of(SURE * setting.share(arm) / 2)
    return all(float(tally.against(truth, side)[0]) <= level for side in (1, -1))


def names_wrongly(experiment: Experiment, arm: int, means: list[float], setting: Setting) -> bool:
    """The rule itself is asked only where it could err: where a pair of true means is refuted."""
    tallies = experiment.learner._tallies
    best = max(means)
    truth = [np.array([mean]) for mean in means]
    rivals = [k for k, mean in enumerate(means) if mean == best and k != arm]
    for k in rivals:
        for one, other in ((arm, k), (k, arm)):
            wrong = float(
                tallies[one].against(truth[one], 1)[0] + tallies[other].against(truth[other], -1)[0]
            )
            if wrong > level_of(SURE * setting.share(one) * setting.rival(other)):
                found = best_option(tallies, range(len(means)), setting, SURE)
                alone = sum(mean == best for mean in means) == 1
                if found is not None and not (alone and means[found] == best):
                    return True
    return False


SCENARIOS = {
    "options added midway": Scenario((0.02, 0.02), 0.5, 100_000, added=(0.025, 0.02)),
    "rates of 2%": Scenario((0.02, 0.02, 0.025), 1.0, 100_000),
    "two equal rates": Scenario((0.02, 0.02), 0.5, 100_000),
    "50 options": Scenario(tuple(np.linspace(0.25, 0.75, 50).tolist()), 0.1, 100_000),
    "a small epsilon": Scenario((0.02, 0.024), 0.1, 300_000),
    "dropout": Scenario((0.02, 0.03, 0.03), 0.5, 100_000, dropout=0.2),
}


def most_failures(runs: int, rate: float, false_alarm: float = 1e-6) -> int:
    """So many failures in so many runs are likelier than the false alarm at the rate allowed."""
    from scipy.stats import binom

    return math.ceil(binom.isf(false_alarm, runs, rate))
