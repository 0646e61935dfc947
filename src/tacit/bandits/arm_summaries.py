"""Arm summaries: means, confidence sequences, lifts and decisions that an experimenter can act on.

`answers` uses the anytime-valid intervals of `tacit.bandits.confidence_sequences`: all intervals,
all lifts against the control and the decision hold at all rounds at once, each but for the
probability that the level leaves. The probability to be best is that of independent normal means,
and only approximate. `standings` has normal intervals too, for learners whose options share one
parameter.
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

REACH = 8.0  # standard deviations about a mean within which anything can happen
POINTS = 10_000  # of the integral that gives the probability to be best, all options together
LEAST = 1e-12  # a smaller spread, such as that of an action that is zero, is none
MISREAD = 0.02  # part of the failure probability that is kept for rounds that were misread
LATER = 0.75  # as much as this part of an option of the start is kept for options that are added
CELLS = 24  # into which the level is cut when it is shared between an option and the control

Known = tuple[int, float | None, float]  # participants, mean, standard deviation of the mean


def standings(
    known: Sequence[Known], names: Sequence[str], level: float, lowest: float = 0.0
) -> list[ArmSummary]:
    """One row per option; rewards lie between `lowest` and 1 (or its mirror image).

    >>> seen = [(1000, 0.42, 0.02), (1000, 0.61, 0.02)]
    >>> [(row.option, row.mean, round(row.best, 6)) for row in standings(seen, ["a", "b"], 0.95)]
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
class Setting:
    """What answers depend on besides the estimates: the level, how many options there were at the
    start, which is the control, which were taken out, and which a guardrail has paused (None where
    there is no guardrail).
    """

    level: float = 0.95
    first: int = 2
    control: int = 0
    absent: frozenset[int] = frozenset()
    halted: frozenset[int] | None = None

    def share(self, option: int) -> float:
        """An option's part of the failure probability: equal ones for those of the start, and
        something is left for any number of later ones. They add up to 1 at most.
        """
        late, parts = option - self.first + 1, self.first + LATER
        return 1 / parts if late <= 0 else LATER / (parts * late * (late + 1))

    def rival(self, option: int) -> float:
        """The part of an option as the one that is really the best: one of the start, or a later
        one; they need not be added up over those of the start. Which is the best of those that a
        guardrail leaves depends on what was seen, so half is kept for that, and added up.
        """
        fixed = self.first if option < self.first else 1
        if self.halted is None:
            return self.share(option) * fixed
        return self.share(option) * (1 if self.halted else fixed) / 2

    def present(self, options: int) -> list[int]:
        """Those that are compared."""
        gone = self.absent | (self.halted or frozenset())
        return [k for k in range(options) if k not in gone]


def answers(tallies: Sequence[Tally], names: Sequence[str], setting: Setting) -> list[ArmSummary]:
    """One row per option, from all of its rounds."""
    if not tallies:
        return []
    sure = failure_left(tallies, setting)
    known = [(tally.participants, tally.mean, tally.spread) for tally in tallies]
    present = setting.present(len(tallies))
    chances = dict(zip(present, best_of([known[k] for k in present]), strict=True))
    intervals = [interval(tally, sure * setting.share(k)) for k, tally in enumerate(tallies)]
    leader = leading(tallies, present)
    worse = {k for k in present if beats(tallies, leader, k, setting, sure)}
    decisions = dict.fromkeys(worse, "worse") | dict.fromkeys(setting.halted or (), "paused")
    decisions |= dict.fromkeys(setting.absent, "removed")
    if 0 < len(worse) == len(present) - 1:
        decisions[leader] = "best"
    rows = []
    for k, name in enumerate(names):
        low, high = intervals[k]
        lift, lift_low, lift_high = None, None, None
        if k != setting.control:
            base = known[setting.control][1]
            lift = relative(known[k][1], base)
            lift_low, lift_high = lifts(
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
                decisions.get(k, "open"),
                always=True,
            )
        )
    return rows


def failure_left(tallies: Sequence[Tally], setting: Setting) -> float:
    """The failure probability that is left for chance: nothing where too much was misread."""
    failure = 1 - setting.level
    misread = sum(tally.misread for tally in tallies)
    return (1 - MISREAD) * failure if misread <= MISREAD * failure else 0.0


def level_of(failure: float) -> float:
    """The level of the mixture that is reached with this probability at most."""
    return math.log(1 / failure) if failure > 0 else math.inf


def interval(tally: Tally, failure: float) -> tuple[float, float]:
    """The means that are not refuted; ever without the true one with this probability at most."""
    level = np.array([level_of(failure / 2)])
    return float(tally.bounds(level, 1)[0]), float(tally.bounds(level, -1)[0])


def relative(mean: float | None, base: float | None) -> float | None:
    """How much larger than the control's a mean is, as a part of that; None where it has none."""
    return None if mean is None or base is None or base <= 0 else mean / base - 1


def lifts(one: Tally, control: Tally, failure: float) -> tuple[float, float | None]:
    """An interval for (mean - control's mean) / control's mean; None where it has no upper end.

    A pair of means is refuted when the two exponents add up to the level. How they share it is cut
    into cells, and in each both options get the benefit of the whole cell.
    """
    level = level_of(failure / 2)
    if not math.isfinite(level):
        return -1.0, None
    mine = np.linspace(one.least, level - control.least, CELLS + 1)
    theirs = level - mine
    with np.errstate(divide="ignore", invalid="ignore"):
        low = one.bounds(mine[1:], 1) / control.bounds(theirs[:-1], -1)
        high = one.bounds(mine[1:], -1) / control.bounds(theirs[:-1], 1)
    top = float(np.max(np.where(np.isnan(high), math.inf, high))) - 1
    return float(np.min(low)) - 1, top if math.isfinite(top) else None


def leading(tallies: Sequence[Tally], present: Sequence[int]) -> int:
    """The option with the largest mean."""
    return max(present, key=lambda k: -math.inf if (mean := tallies[k].mean) is None else mean)


def best_option(
    tallies: Sequence[Tally], present: Sequence[int], setting: Setting, sure: float
) -> int | None:
    """The option that is shown to be better than every other one that is present."""
    if len(present) < 2:
        return None
    leader = leading(tallies, present)
    others = sorted((k for k in present if k != leader), key=lambda k: -(tallies[k].mean or 0.0))
    better = all(beats(tallies, leader, k, setting, sure) for k in others)
    return leader if better else None


def beats(tallies: Sequence[Tally], one: int, other: int, setting: Setting, sure: float) -> bool:
    """Whether an option is shown to be better than another. Of the best one (if it is alone) it is
    ever said that another is better with probability `sure` at most.
    """
    level = level_of(sure * setting.share(one) * setting.rival(other))
    return is_larger(tallies[one], tallies[other], level)


def best_of(known: Sequence[Known]) -> list[float]:
    """P[option k has the largest mean], for independent normal means; equal shares where nothing
    is known of any.
    """
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
    points, every = points[every > -100], every[every > -100]  # where the best can be at all
    chances = np.zeros(len(known))
    for k in rivals.tolist():
        own = below(k)
        others = np.exp(every - np.log(own))
        chances[k] = (others[1:] + others[:-1]) @ np.diff(own) / 2
    return [float(chance) for chance in chances / chances.sum()]
