"""Phased elimination for options with features, one round per option and phase.

`OptionElimination` is DP-PE (LZJ22 Algorithm 3) for rewards in [0, 1] that are linear in public
features of the options. A phase is a near-G-optimal design, as in `tacit.bandits.linear.phased`.
Each option of the design gets a round of its own, so every trust model that sums rewards of one
option serves it. A phase is learned from when all of its rounds are released; those that are
aborted are proposed again.

Intervals and decisions are anytime-valid if mean rewards are linear in the features.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.assumptions import Secret
from tacit.bandits.arm_summaries import MISREAD, relative_lift
from tacit.bandits.contract import Plan
from tacit.bandits.linear.phased import COARSE, SHARP, SingleElimination, Widths, least_squares
from tacit.bandits.linear.widths import PhaseEvidence
from tacit.errors import Number, TacitError, integer
from tacit.types import Arm, ArmSummary, ErrorDistribution, Estimate, Floats, Round

HALF = 0.5  # rewards minus this lie in [-HALF, HALF]
TAIL = 4.0  # standard deviations of the noise over which its sub-Gaussian proxy is taken
POINTS = 512  # at which the proxy is computed
SLACK = 1e-3  # relative increase that covers maxima between these points
GROWTH = 2.0  # of phases


def with_intercept(features: npt.ArrayLike) -> Floats:
    """Features as actions: an intercept, and every feature centred and scaled to its range.

    A feature with the same value for all options is dropped: the intercept covers it.

    >>> with_intercept([[1.0, 7.0], [3.0, 7.0], [5.0, 7.0]])
    array([[ 1. , -0.5],
           [ 1. ,  0. ],
           [ 1. ,  0.5]])
    """
    table = np.asarray(features, dtype=float)
    if table.ndim != 2 or len(table) < 2 or not np.isfinite(table).all():
        raise TacitError(
            f"features have shape {table.shape}: must be a table of finite numbers, one row for "
            "each of at least 2 options"
        )
    low, high = table.min(axis=0), table.max(axis=0)
    varied = high > low
    if not varied.any():
        raise TacitError("all options have the same features: give features that differ")
    scaled = (table[:, varied] - (low + high)[varied] / 2) / (high - low)[varied]
    return np.column_stack([np.ones(len(table)), scaled])


@dataclass(frozen=True)
class OptionMean:
    """The released mean of one option in a phase, minus ½, and the noise of its sum.

    `proxy` and `reach` are those of `sub_gaussian`.
    """

    mean: float
    reports: int
    proxy: float
    reach: float | None

    @property
    def variance(self) -> float:
        """The sub-Gaussian variance of the mean: sampling by Hoeffding's lemma, and noise."""
        return HALF**2 / self.reports + self.proxy / self.reports**2


def sub_gaussian(error: ErrorDistribution) -> tuple[float, float | None]:
    """A sub-Gaussian variance proxy of the noise of a sum, and the |t| up to which it holds.

    The proxy is the largest 2 ln M(t)/t² on a grid, plus a thousandth. A reach of None has no end.
    """
    if not error.variance:
        return 0.0, None
    reach = TAIL / math.sqrt(error.variance)
    while not np.isfinite(error.log_mgf([-reach, reach])).all():
        reach /= 2
    side = np.linspace(reach / POINTS, reach, POINTS)
    points = np.concatenate([-side, side])
    ratios = 2 * error.log_mgf(points) / points**2
    return max(error.variance, float(np.max(ratios))) * (1 + SLACK), reach


class OptionElimination(SingleElimination):
    """DP-PE over options with features: rounds of single options, one per option of a design.

    Parameters
    ----------
    features
        The options' features, one row per option; an intercept is added.
    horizon
        The number of participants.
    first
        The mean number of participants per option of the first phase's design.
    smallest
        The fewest participants of a round.
    failure_probability
        The probability that the best option is ever dropped.

    Notes
    -----
    Phases double. The last one takes the participants that are left, if every option of its design
    gets a round of `smallest`.

    Examples
    --------
    >>> learner = OptionElimination([[1.0], [2.0], [4.0]], 1000, first=50)
    >>> [(round_.arm, round_.participants) for round_ in learner.propose()]
    [(0, 50), (2, 50)]
    """

    kept = (*SingleElimination.kept, "_phase", "_wanted", "_misread")
    needs_horizon = False  # the horizon only ends the last phase
    secret: Secret | None = None  # a participant reports one reward, as with arms

    def __init__(
        self,
        features: npt.ArrayLike,
        horizon: int,
        *,
        first: int = 1,
        smallest: int = 1,
        failure_probability: Number = 0.05,
    ) -> None:
        self.features = np.asarray(features, dtype=float)
        super().__init__(with_intercept(self.features), horizon, Widths(HALF, failure_probability))
        self.first = integer("first", first, at_least=1)
        self.smallest = integer("smallest", smallest, at_least=1)
        self.first_length = float(self.first)
        self._phase = 0  # phases that were learned from
        self._wanted: dict[int, int] = {}  # participants of each option of the present phase
        self._heard: dict[int, OptionMean] = {}
        self._misread = 0.0

    def length(self, phase: int) -> float:
        """Participants of a phase per option of its design."""
        return self.first_length * GROWTH ** (phase - 1)

    def _plan(self) -> Plan:
        """The current phase's rounds that were not released, or the next phase's rounds."""
        left = self.horizon - self.played
        if not self._wanted:
            self._wanted = self._next_phase(left)
        missing = [(Arm(k), n) for k, n in self._wanted.items() if k not in self._heard]
        return missing or [(Arm(self.best()), left, False)]

    def _next_phase(self, remaining: int) -> dict[int, int]:
        """Participants of the next phase's options; empty if there is none."""
        if len(self._active) == 1:
            return {}
        design = self._design(SHARP if self._phase else COARSE)
        options = self._active[design.support].tolist()
        if len(options) * self.smallest > remaining:
            return {}
        length = self.length(self._phase + 1) * len(options)
        plays = np.maximum(design.plays(length), self.smallest)
        if 2 * int(plays.sum()) > remaining:  # the next phase, twice as long, would not fit
            plays = np.maximum(np.floor(remaining * design.weights), self.smallest).astype(np.int64)
            plays[plays.argmax()] -= max(0, int(plays.sum()) - remaining)
        if plays.min() < self.smallest:
            return {}
        return dict(zip(options, plays.tolist(), strict=True))

    def _learn(self, round_: Round, estimate: Estimate) -> None:
        """Keep an option's mean; conclude the phase with the last of them."""
        error = estimate.error
        proxy, reach = sub_gaussian(error)
        reports = int(error.participants)
        mean = float(estimate.mean) - HALF
        self._heard[round_.arm] = OptionMean(mean, reports, proxy, reach)
        self._asked[round_.arm] += reports
        self._misread += error.misread
        if self._heard.keys() >= self._wanted.keys():
            self._finish()

    def _finish(self) -> None:
        heard = [self._heard[option] for option in self._wanted]
        played = self.actions[list(self._wanted)]
        variances = np.array([one.variance for one in heard])
        solve = least_squares(played, 1 / variances)
        reaches = [math.inf if one.reach is None else one.reach * one.reports for one in heard]
        cap = float((np.array(reaches) * np.sqrt(variances)).min())
        theta = solve @ np.array([one.mean for one in heard])
        self._wanted, self._heard = {}, {}
        self._phase += 1
        self._conclude(PhaseEvidence(theta, (solve * variances) @ solve.T, cap))

    def _usable_failure(self, level: float) -> float:
        """The failure probability at a level without that of misread sums; 0 if they exceed it."""
        failure = 1 - level
        return (1 - MISREAD) * failure if self._misread <= MISREAD * failure else 0.0

    def decided(self, level: float = 0.95) -> int | None:
        """The option that is left, if others were dropped at this confidence level."""
        sure = self.failure_probability <= self._usable_failure(level) * (1 + 1e-9)
        return int(self._active[0]) if sure and len(self._active) == 1 else None

    def summaries(
        self, names: Sequence[str], level: float = 0.95, control: int = 0
    ) -> list[ArmSummary]:
        """Anytime-valid intervals of all options from the common parameter, and the decisions."""
        means, _ = self._evidence.means(self.actions, self._phases)
        failure = self._usable_failure(level)
        low, high = self._evidence.intervals(self.actions, self._phases, failure)
        low, high = (np.clip(end + HALF, 0.0, 1.0) for end in (low, high))
        best = self._chances()
        decided, open_ = self.decided(level), set(self.active)
        rows = []
        for k, name in enumerate(names):
            mean = float(means[k] + HALF) if self._phases[k] else None
            verdict = "open" if failure else "unavailable"
            if failure and k not in open_:
                verdict = "worse"
            ends = (float(low[k]), float(high[k]))
            base = None
            if k != control and self._phases[control]:
                base = (float(means[control] + HALF), float(low[control]), float(high[control]))
            rows.append(
                ArmSummary(
                    name,
                    int(self._asked[k]),
                    mean,
                    *ends,
                    float(best[k]),
                    *_lift(mean, ends, base),
                    decision="best" if k == decided else verdict,
                    always=True,
                )
            )
        return rows

    def _chances(self) -> Floats:
        chances = np.zeros(self.arms)
        active = self._active
        chances[active] = (
            self._evidence.chances(self.actions[active])
            if self._evidence.phases
            else 1 / len(active)
        )
        return chances

    def _state(self) -> dict[str, Any]:
        heard = [[option, asdict(mean)] for option, mean in self._heard.items()]
        return super()._state() | {"heard": heard}

    def _restore(self, state: Mapping[str, Any]) -> None:
        super()._restore(state)
        self._heard = {option: OptionMean(**mean) for option, mean in state["heard"]}


def _lift(
    mean: float | None, ends: tuple[float, float], base: tuple[float, float, float] | None
) -> tuple[float | None, float | None, float | None]:
    """The lift over the control with its interval, from intervals that hold together.

    `base` has the control's mean and the ends of its interval.
    """
    if mean is None or base is None:
        return None, None, None
    centre, low, high = base
    point = relative_lift(mean, centre)
    if point is None:
        return None, None, None
    return point, ends[0] / high - 1, ends[1] / low - 1 if low > 0 else None
