"""Arm summaries: means, confidence sequences, lifts and decisions that an experimenter can act on.

`anytime_summaries` uses the confidence sequences of `tacit.bandits.confidence_sequences`. All
intervals, all lifts against the control and the decision are anytime-valid at the stated level. The
probability to be best assumes independent normal means and is approximate. `summaries` has
normal-approximation intervals too, for learners whose options share one parameter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from scipy.special import ndtr

from tacit.bandits.confidence_sequences import Tally, is_larger
from tacit.types import ArmSummary, Floats

REACH = 8.0  # standard deviations around a mean covered by the integral below
POINTS = 10_000  # integration points for the probability to be best, over all options
LEAST = 1e-12  # a smaller standard deviation, such as that of a zero action, counts as this
MISREAD = 0.02  # share of the failure probability reserved for misread rounds
LATER = 0.75  # share reserved for options added later, relative to that of an initial option
CELLS = 24  # grid cells for splitting the level between an option and the control

Known = tuple[int, float | None, float]  # participants, mean, standard deviation of the mean


def summaries(
    known: Sequence[Known], names: Sequence[str], level: float, lowest: float = 0.0
) -> list[ArmSummary]:
    """One summary per option by normal approximation; rewards lie in [lowest, 1].

    A negative `lowest` means rewards in [lowest, -lowest].

    >>> seen = [(1000, 0.42, 0.02), (1000, 0.61, 0.02)]
    >>> [(row.option, row.mean, round(row.best, 6)) for row in summaries(seen, ["a", "b"], 0.95)]
    [('a', 0.42, 0.0), ('b', 0.61, 1.0)]
    """
    highest = 1.0 if lowest == 0 else -lowest
    width = NormalDist().inv_cdf((1 + level) / 2)
    rows = []
    for name, (count, mean, spread), chance in zip(names, known, best_of(known), strict=True):
        centre = (lowest + highest) / 2 if mean is None else mean
        low, high = max(lowest, centre - width * spread), min(highest, centre + width * spread)
        rows.append(ArmSummary(name, count, mean, min(low, highest), max(high, lowest), chance))
    return rows


@dataclass(frozen=True)
class SummarySettings:
    """Settings that summaries depend on besides the estimates.

    Parameters
    ----------
    level
        The confidence level.
    first
        How many options there were at the start.
    control
        The control option.
    absent
        The options that were removed.
    halted
        The options that a guardrail has paused; None without a guardrail.
    """

    level: float = 0.95
    first: int = 2
    control: int = 0
    absent: frozenset[int] = frozenset()
    halted: frozenset[int] | None = None

    def share(self, option: int) -> float:
        """An option's share of the failure probability.

        Initial options have equal shares; later ones divide a reserve without limit. The sum is at
        most 1.
        """
        late, parts = option - self.first + 1, self.first + LATER
        return 1 / parts if late <= 0 else LATER / (parts * late * (late + 1))

    def rival_factor(self, option: int) -> float:
        """An option's factor in the failure probability, in the role of the truly best option.

        Which initial option is the best is fixed, so no union bound over initial options is needed.
        Which one is the best of those that a guardrail leaves depends on the data. With a
        guardrail, half of the failure probability is reserved for that case, with a union bound.
        """
        fixed = self.first if option < self.first else 1
        if self.halted is None:
            return self.share(option) * fixed
        return self.share(option) * (1 if self.halted else fixed) / 2

    def present(self, options: int) -> list[int]:
        """The options that are compared."""
        gone = self.absent | (self.halted or frozenset())
        return [k for k in range(options) if k not in gone]


def anytime_summaries(
    tallies: Sequence[Tally], names: Sequence[str], setting: SummarySettings
) -> list[ArmSummary]:
    """One anytime-valid summary per option, from all of its rounds."""
    if not tallies:
        return []
    sure = failure_left(tallies, setting)
    known = [(tally.participants, tally.mean, tally.spread) for tally in tallies]
    present = setting.present(len(tallies))
    chances = dict(zip(present, best_of([known[k] for k in present]), strict=True))
    intervals = [interval(tally, sure * setting.share(k)) for k, tally in enumerate(tallies)]
    leader = leading_option(tallies, present)
    worse = {k for k in present if beats(tallies, leader, k, setting, sure)}
    decisions = dict.fromkeys(worse, "worse") | dict.fromkeys(setting.halted or (), "paused")
    decisions |= dict.fromkeys(setting.absent, "removed")
    if 0 < len(worse) == len(present) - 1:
        decisions[leader] = "best"
    undecided = "open" if sure else "unavailable"
    rows = []
    for k, name in enumerate(names):
        low, high = intervals[k]
        lift, lift_low, lift_high = None, None, None
        if k != setting.control:
            base = known[setting.control][1]
            lift = relative_lift(known[k][1], base)
            lift_low, lift_high = lift_interval(
                tallies[k], tallies[setting.control], sure * setting.share(k)
            )
        rows.append(
            ArmSummary(
                name,
                *known[k][:2],
                low,
                high,
                chances.get(k, 0.0),
                lift,
                lift_low,
                lift_high,
                decisions.get(k, undecided),
                always=True,
            )
        )
    return rows


def failure_left(tallies: Sequence[Tally], setting: SummarySettings) -> float:
    """The failure probability left for sampling and noise; 0 where misread rounds use too much."""
    failure = 1 - setting.level
    misread = sum(tally.misread for tally in tallies)
    return (1 - MISREAD) * failure if misread <= MISREAD * failure else 0.0


def level_of(failure: float) -> float:
    """The level of log evidence that is ever reached with at most this probability."""
    return math.log(1 / failure) if failure > 0 else math.inf


def interval(tally: Tally, failure: float) -> tuple[float, float]:
    """The means not rejected; it ever excludes the true one with at most this probability."""
    level = np.array([level_of(failure / 2)])
    return float(tally.bounds(level, 1)[0]), float(tally.bounds(level, -1)[0])


def relative_lift(mean: float | None, base: float | None) -> float | None:
    """The lift: mean over the control's mean, minus 1; None where it is undefined."""
    return None if mean is None or base is None or base <= 0 else mean / base - 1


def lift_interval(tally: Tally, control: Tally, failure: float) -> tuple[float, float | None]:
    """A confidence interval for (mean - control's mean) / control's mean; None for no upper end.

    A pair of means is rejected when the two log evidences sum to the level. The split of the level
    between them is divided into cells; in each cell both options get the wider bound of its two
    ends.
    """
    level = level_of(failure / 2)
    if not math.isfinite(level):
        return -1.0, None
    mine = np.linspace(tally.evidence_floor, level - control.evidence_floor, CELLS + 1)
    theirs = level - mine
    with np.errstate(divide="ignore", invalid="ignore"):
        low = tally.bounds(mine[1:], 1) / control.bounds(theirs[:-1], -1)
        high = tally.bounds(mine[1:], -1) / control.bounds(theirs[:-1], 1)
    top = float(np.max(np.where(np.isnan(high), math.inf, high))) - 1
    return float(np.min(low)) - 1, top if math.isfinite(top) else None


def leading_option(tallies: Sequence[Tally], present: Sequence[int]) -> int:
    """The option with the largest estimated mean."""
    return max(present, key=lambda k: -math.inf if (mean := tallies[k].mean) is None else mean)


def best_option(
    tallies: Sequence[Tally],
    present: Sequence[int],
    setting: SummarySettings,
    failure_probability: float,
) -> int | None:
    """The option that is shown to be better than every other present one, or None."""
    if len(present) < 2:
        return None
    leader = leading_option(tallies, present)
    others = sorted((k for k in present if k != leader), key=lambda k: -(tallies[k].mean or 0.0))
    better = all(beats(tallies, leader, k, setting, failure_probability) for k in others)
    return leader if better else None


def beats(
    tallies: Sequence[Tally],
    option: int,
    other: int,
    setting: SummarySettings,
    failure_probability: float,
) -> bool:
    """Whether one option is shown to be better than another.

    The probability that the best option, if unique, is ever found worse than another is at most
    `failure_probability`.
    """
    level = level_of(failure_probability * setting.share(option) * setting.rival_factor(other))
    return is_larger(tallies[option], tallies[other], level)


def best_of(known: Sequence[Known]) -> list[float]:
    """P[option k has the largest mean] for independent normal means; uniform without estimates."""
    if not any(math.isfinite(spread) for _, _, spread in known):
        return [1 / max(1, len(known))] * len(known)
    means = np.array([0.5 if mean is None else mean for _, mean, _ in known])
    spreads = np.array([spread if math.isfinite(spread) else 1.0 for _, _, spread in known])
    spreads = np.maximum(spreads, LEAST)
    rivals = np.flatnonzero(means + REACH * spreads >= (means - REACH * spreads).max())
    nodes = np.linspace(-REACH, REACH, min(401, max(21, POINTS // len(rivals))))
    points = np.unique(means[rivals, None] + spreads[rivals, None] * nodes)

    def below(k: int) -> Floats:
        chance: Floats = ndtr((points - means[k]) / spreads[k])
        return np.maximum(chance, 1e-300)

    every = np.zeros(len(points))
    for k in rivals.tolist():
        every += np.log(below(k))
    points, every = points[every > -100], every[every > -100]  # drop negligible probabilities
    chances = np.zeros(len(known))
    for k in rivals.tolist():
        own = below(k)
        others = np.exp(every - np.log(own))
        chances[k] = (others[1:] + others[:-1]) @ np.diff(own) / 2
    return [float(chance) for chance in chances / chances.sum()]
