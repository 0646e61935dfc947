"""Gain of the published policies over one option for everybody, anytime-valid.

In every round participants are assigned at random to the policy or to one option for everybody,
with fixed sizes n and m. With ρ = n / m, the sum over rounds of (policy's rewards - ρ · option's
rewards) has mean Σ n (v - μ): n times the difference between the policy's mean reward v and the
option's μ, whatever changes over time. Rewards in [0, 1] are ½-sub-Gaussian about their means, and
the noise's moment generating functions are known, so that for every fixed t

    exp(±t (sum - Σ n (v - μ)) - Σ t² (n + ρ² m) / 8 - ln M(±t) - ln M'(∓ρt))

is a supermartingale, and so is the mean of J of them for fixed t. It reaches 2K/α with probability
at most α/2K (Ville), and so does 1/J of the largest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.bandits.stored import Kept, noisy_from_dict, noisy_to_dict
from tacit.types import ErrorDistribution, Floats

STEPS: Floats = 0.1 * 1.6 ** -np.arange(22.0)  # the fixed t


@dataclass(frozen=True)
class PolicyValue:
    """The reward of all participants of one policy round, as it was released.

    Parameters
    ----------
    total
        The estimated sum of rewards.
    people
        Participants.
    proxy, reach
        ln E[e^{t · noise}] <= t² · proxy / 2 for |t| <= reach.
    """

    total: float
    people: int
    proxy: float
    reach: float

    def cumulants(self, steps: Floats) -> Floats:
        """Bounds of ln E[e^{t · noise}]; inf beyond the reach."""
        return np.where(np.abs(steps) <= self.reach, steps**2 * self.proxy / 2, np.inf)


@dataclass(frozen=True)
class SingleOptionGain:
    """The policy's mean reward minus that of one option for everybody, with a confidence interval.

    Parameters
    ----------
    option
        The option's name.
    gain, low, high
        The estimated difference and its bounds, at all times and for all options at once.
    """

    option: str
    gain: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class SliceValue:
    """The reward of one option's participants in the evaluation slice, as it was released."""

    option: int
    total: float
    error: ErrorDistribution

    def to_dict(self) -> dict[str, Any]:
        """The value as plain data."""
        return vars(self) | {"error": noisy_to_dict(self.error)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SliceValue:
        """The value that `to_dict` wrote."""
        return cls(**{**data, "error": noisy_from_dict(ErrorDistribution, data["error"])})


class GainTally(Kept):
    """Sums of one option's comparison with the policy."""

    kept = ("people", "total", "_cumulants")

    def __init__(self) -> None:
        self.people = 0
        self.total = 0.0
        self._cumulants = np.zeros((2, len(STEPS)))  # for t and for -t

    def add(self, policy: PolicyValue, total: float, error: ErrorDistribution) -> None:
        """Add a round: rewards under the policy, and under one option for everybody."""
        participants = int(error.participants)
        ratio = policy.people / participants
        self.people += policy.people
        self.total += policy.total - ratio * total
        sampling = STEPS**2 / 8 * (policy.people + ratio**2 * participants)
        for place, side in enumerate((1.0, -1.0)):
            noise = policy.cumulants(side * STEPS) + error.log_mgf(-side * ratio * STEPS)
            self._cumulants[place] += sampling + noise

    def interval(self, failure: float) -> tuple[float, float, float]:
        """The difference with bounds that both hold but with this probability."""
        if not self.people:
            return 0.0, -1.0, 1.0
        level = math.log(2 / failure) + math.log(len(STEPS))
        bounds = []
        for place in (0, 1):
            # the largest term alone reaches the mixture's level: a bound for each t, the best one
            known = np.isfinite(self._cumulants[place])
            reach = (level + self._cumulants[place][known]) / STEPS[known]
            bounds.append(float(reach.min()) / self.people if known.any() else 1.0)
        middle = self.total / self.people
        return middle, max(middle - bounds[0], -1.0), min(middle + bounds[1], 1.0)
