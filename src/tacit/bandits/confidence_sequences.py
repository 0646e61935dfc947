"""Confidence sequences for the mean of an option, from its private estimates.

The statistic is W = Σ h_b S_b, S_b the estimated sum of round b's n_b rewards and h_b its weight.
For a mean q and any fixed θ

    exp(θW) / Π_b (1 - q + q e^{θ h_b})^{n_b} M_b(θ h_b)

is a supermartingale. Among rewards in [0, 1] of mean q, the Bernoulli distribution has the largest
moment generating function. M_b is that of the noise. Earlier rounds determine sizes, weights and
noise distributions. A mixture over θ, fixed before the option's first report, is a supermartingale
too. It ever reaches e^L with probability at most e^{-L} (Ville's inequality), however rounds are
chosen and at any stopping time.

Different options have different participants, so the product of two options' mixtures is a
supermartingale as well; comparisons use it. The bounds do not cover misread rounds: callers add
their probability to the stated level.

References: Robbins 1970 for mixtures; Howard, Ramdas, McAuliffe & Sekhon 2021 for such bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from operator import mul
from typing import Any

import numpy as np

from tacit.bandits.stored import Kept
from tacit.types import ErrorDistribution, Estimate, Floats

LIKELY = 6.0  # the exponent for which tilts are optimised; any choice is valid
TINY = 1e-300  # a smaller slope counts as this
TYPICAL = 0.1  # success rate whose sampling variance sets the weights of rounds
RAREST = 0.01  # lowest success rate for which the first round's tilt is optimised
STEEPEST = 4.0  # for binary rewards a larger tilt is as good as infinite
LARGEST = 30.0  # the largest tilt: e^-30 is still representable beside 1
STEP = math.sqrt(2.0)  # ratio of neighbouring weights
APART = 1.6  # ratio of neighbouring tilts
LIGHTEST = 16  # steps of weight: 1 to 1/256
STEPS: Floats = STEP ** -np.arange(LIGHTEST + 1, dtype=float)
HALVINGS = 40  # bisection steps on the interval of means, initially [0, 1]
CELL = 2.0**-HALVINGS  # width of the interval after the last step
NEWTON, NEIGHBOURS = 40, 3  # at most so many steps, and corrections by a cell


class Tally(Kept):
    """Pooled estimates of one option, with anytime-valid bounds on its mean.

    A round's weight is about 1 / (1 + noise variance / sampling variance), the latter at a success
    rate of 0.1. A small round dominated by noise therefore counts for little. `tilts` are the θ of
    the mixture and `odds` their weights; θ = 0 is one of them.

    Parameters
    ----------
    horizon
        The largest number of participants who may try the option.
    typical
        The number of participants at which the bounds are narrowest; they are valid for any.
    """

    kept = (
        *("participants", "misread", "tilts", "odds"),
        *("_people", "_sums", "_noise", "_cumulants"),
    )

    def __init__(self, horizon: int, typical: int) -> None:
        self.horizon = horizon
        self.typical = typical
        self.participants = 0
        self.misread = 0.0
        self.tilts, self.odds = np.zeros(0), np.zeros(0)
        self._people: list[float] = []  # participants per step of weight
        self._sums: list[float] = []  # estimated sums per step of weight
        self._noise = 0.0  # variance of the noise in the weighted sum
        self._cumulants = np.zeros((2, 0))  # of the noise, at the tilts and at their negatives
        self._sum_up()

    def add(self, estimate: Estimate) -> None:
        """Add the estimate of one round."""
        error: Any = estimate.error
        participants = int(error.participants)
        variance = 0.0 if error.noise is None else float(error.variance)
        if not self.participants:
            self.tilts, self.odds = mixture(error, self.horizon, self.typical)
            self._cumulants = np.zeros((2, len(self.tilts)))
        step = weight_step(participants, variance)
        while len(self._people) <= step:
            self._people.append(0.0)
            self._sums.append(0.0)
        self._people[step] += participants
        self._sums[step] += float(estimate.total)
        self.participants += participants
        self.misread += error.misread
        if variance:
            weight = STEP**-step
            self._noise += weight * weight * variance
            scaled = tuple((weight * self.tilts).tolist())
            self._cumulants = self._cumulants + cumulants(error.noise, error.precision, scaled)
        self._sum_up()

    def _sum_up(self) -> None:
        """Cache the sums that bounds use repeatedly: the weights, W, and Σhn."""
        self._weights: Floats = STEPS[: len(self._people)]
        weights = self._weights.tolist()
        self._statistic = float(sum(map(mul, weights, self._sums)))
        self._held = float(sum(map(mul, weights, self._people)))
        self.evidence_floor = math.log(1 - self.odds.sum())  # a bound of `evidence_against`
        self._found: dict[tuple[bytes, int], Floats] = {}  # bounds since the last estimate
        # what `evidence_against` needs of each side, because bisection repeats it
        self._sides: dict[int, tuple[Floats, ...]] = {}

    @property
    def mean(self) -> float | None:
        """The weighted mean, possibly outside [0, 1] by noise; None before the first estimate."""
        if not self.participants:
            return None
        return self._statistic / self._held

    @property
    def spread(self) -> float:
        """The standard deviation of the mean, from sampling and noise.

        The sampling part is that of a Bernoulli variable with the success rate shrunk towards 1/2.
        """
        if not self.participants:
            return math.inf
        rate = min(max((self._statistic + 1) / (self._held + 2), 0.0), 1.0)
        sampling = max(rate * (1 - rate), 0.25 / self.participants)
        squares = float(self._weights**2 @ self._people)
        return math.sqrt(sampling * squares + self._noise) / self._held

    def evidence_against(self, means: Floats, side: int) -> Floats:
        """The evidence against each of these means, as the logarithm of the mixture.

        Side 1 tests whether a mean is too small (decreasing in the mean), side -1 whether it is too
        large (increasing). Convex in the mean.
        """
        if not self.participants:
            return np.zeros(len(means))
        growth, fixed, odds, participants = self._side(side)
        grown = np.log1p(means[:, None, None] * growth) @ participants
        found: Floats = np.logaddexp.reduce(fixed - grown + odds, axis=1)
        return np.logaddexp(found, self.evidence_floor)

    def _side(self, side: int) -> tuple[Floats, ...]:
        """The terms of the evidence of one side that do not depend on the means."""
        if side not in self._sides:
            tilt = side * self.tilts
            fixed = tilt * self._statistic - self._cumulants[(1 - side) // 2]
            growth = np.expm1(tilt[:, None] * self._weights)
            self._sides[side] = growth, fixed, np.log(self.odds), np.array(self._people)
        return self._sides[side]

    def bounds(self, levels: Floats, side: int) -> Floats:
        """The smallest (side 1) or largest (side -1) mean that is not rejected at each level."""
        asked = (levels.tobytes(), side)
        if asked not in self._found:
            self._found[asked] = self._computed(levels, side)
        return self._found[asked]

    def _computed(self, levels: Floats, side: int) -> Floats:
        low = self._near(levels, side) if self.participants else None
        if low is None:
            low = self._bisected(levels, side)
        end = 0.0 if side > 0 else 1.0
        open_ = self.evidence_against(np.full(len(levels), end), side) <= levels
        return np.where(open_, end, low if side > 0 else low + CELL)

    def _bisected(self, levels: Floats, side: int) -> Floats:
        """The lower ends of the intervals after the last step of bisection."""
        low, high = np.zeros(len(levels)), np.ones(len(levels))
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            above = self._is_below_bound(middle, levels, side)
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        return low

    def _near(self, levels: Floats, side: int) -> Floats | None:
        """The result of `_bisected`, sought near Newton's solution; None if it is not found there.

        Evidence is convex and largest at the end where Newton's method begins, so it overshoots no
        bound. The interval is confirmed by the same comparisons as in bisection.
        """
        means = np.full(len(levels), 0.0 if side > 0 else 1.0)
        for _ in range(NEWTON):
            growth, fixed, odds, participants = self._side(side)
            grown = means[:, None, None] * growth
            terms = fixed - np.log1p(grown) @ participants + odds
            evidence = np.logaddexp(np.logaddexp.reduce(terms, axis=1), self.evidence_floor)
            slopes = (growth / (1 + grown)) @ participants
            slope = np.abs((np.exp(terms - evidence[:, None]) * slopes).sum(axis=1))
            more = np.maximum(evidence - levels, 0.0) / np.maximum(slope, TINY)
            before, means = means, np.clip(means + side * more, 0.0, 1.0)
            if np.abs(means - before).max() < CELL / 16:
                break
        low = np.minimum(np.floor(means / CELL) * CELL, 1 - CELL)
        for _ in range(NEIGHBOURS):
            high = low + CELL
            down = ~self._is_below_bound(low, levels, side) & (low > 0)
            up = self._is_below_bound(high, levels, side) & (high < 1)
            if not (down | up).any():
                return low
            low = low + CELL * up - CELL * down
        return None

    def _is_below_bound(self, means: Floats, levels: Floats, side: int) -> Any:
        """Whether means lie below the bound: rejected on side 1, not rejected on side -1."""
        return (self.evidence_against(means, side) > levels) == (side > 0)

    def to_dict(self) -> dict[str, Any]:
        """The state as plain data."""
        return {"horizon": self.horizon, "typical": self.typical, **super().to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Tally:
        """The tally that `to_dict` serialised."""
        tally = cls(data["horizon"], data["typical"])
        tally.restore(data)
        tally._sum_up()
        return tally


def weight_step(participants: int, variance: float) -> int:
    """The weight of a round, in steps down from 1: about 1 / (1 + noise / sampling variance)."""
    weight = 1 / (1 + variance / (participants * TYPICAL * (1 - TYPICAL)))
    return min(round(-math.log(weight) / math.log(STEP)), LIGHTEST)


@lru_cache(maxsize=4096)
def mixture(error: ErrorDistribution, horizon: int, typical: int) -> tuple[Floats, Floats]:
    """Tilts and their weights, for an option whose first round has this error distribution.

    Tilts range from the optimum for the first round, if successes are rare, down to the optimum for
    the whole horizon, as far as the noise has moments. Weights are largest near the optimum for a
    typical number of participants.
    """
    variance, participants = float(error.variance), error.participants
    weight = STEP ** -weight_step(participants, variance)
    largest, smallest, middle = (
        math.sqrt(2 * LIKELY / (variance + sampling)) / scale
        for sampling, scale in (
            (RAREST * participants, weight),
            (horizon / 4, 1.0),
            (TYPICAL * (1 - TYPICAL) * typical, 1.0),
        )
    )
    top = min(largest, STEEPEST / weight, LARGEST)
    count = max(1, math.ceil(math.log(top * APART / smallest) / math.log(APART)))
    tilts = top * APART ** -np.arange(count, dtype=float)
    moments = error.log_mgf(weight * tilts) + error.log_mgf(-weight * tilts)
    tilts = tilts[np.isfinite(moments)] if np.isfinite(moments).any() else np.array([smallest])
    odds = 1 / (1 + np.abs(np.log(tilts / min(middle, tilts[0]))) / math.log(APART))
    return tilts, odds / (odds.sum() + odds.min())  # the remaining weight is for θ = 0


@lru_cache(maxsize=4096)
def cumulants(noise: Any, precision: int, scaled: tuple[float, ...]) -> Floats:
    """ln E[e^{s · error}] at these s and at their negatives."""
    s = np.array(scaled)
    error = ErrorDistribution(1, precision, noise)
    return np.array([error.log_mgf(s), error.log_mgf(-s)])


def is_larger(tally: Tally, other: Tally, level: float, margin: float = 0.0) -> bool:
    """Whether the hypothesis mean(one) <= mean(other) + margin is rejected at a level."""
    if tally.mean is None or other.mean is None or tally.mean <= other.mean + margin:
        return False
    weights = [1 / tally.spread**2, 1 / other.spread**2]
    common = (weights[0] * (tally.mean - margin) + weights[1] * other.mean) / sum(weights)
    common = min(max(common, 0.0), 1.0 - margin)
    if _joint(tally, other, common, margin) <= level:  # a cheap test that settles most cases
        return False
    return evidence_that_larger(tally, other, level, margin) > level


def _joint(tally: Tally, other: Tally, mean: float, margin: float) -> float:
    return float(
        tally.evidence_against(np.array([mean + margin]), 1)[0]
        + other.evidence_against(np.array([mean]), -1)[0]
    )


def evidence_that_larger(
    tally: Tally, other: Tally, enough: float = 0.0, margin: float = 0.0
) -> float:
    """The level at which the hypothesis mean(one) <= mean(other) + margin is rejected.

    It is the minimum of a convex function of the mean of `other`, with the mean of `tally` a margin
    above it. The search stops once the value falls below `enough`.
    """
    low, high = 0.0, 1.0 - margin
    ratio = (math.sqrt(5) - 1) / 2

    def joint(mean: float) -> float:
        return _joint(tally, other, mean, margin)

    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = joint(left), joint(right)
    while high - low > 1e-7 and min(at_left, at_right) > enough:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = joint(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = joint(right)
    return min(at_left, at_right, joint(0.0), joint(1.0 - margin))
