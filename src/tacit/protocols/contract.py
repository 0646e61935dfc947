"""The contract of a sum protocol: what leaves a device, what the intermediary opens, and the law of the error that remains.

A protocol is built for one batch: a number of users and a guarantee. `randomize` runs on the device, `combine` is the
intermediary's ideal functionality, `analyze` turns what was opened into an estimate of the sum of rewards. `simulate` has the same
law as running every user through the three, in time that does not grow with the number of users.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class NoiseLike(Protocol):
    """What an error law needs to know of the noise; every integer law of `tacit.noise` fits."""

    @property
    def mean(self) -> float:
        """The expected value."""

    @property
    def variance(self) -> float:
        """The variance."""

    def log_mgf(self, s: npt.ArrayLike) -> Floats:
        """ln E[e^{sX}]; inf where it does not exist."""

    def bound(self, p: float) -> float:
        """A t with P[|X - mean| > t] <= p."""


@dataclass(frozen=True)
class ErrorLaw:
    """The law of (estimated sum - sum of rounded rewards) of one batch: noise, divided by the precision, less its mean.

    Rewards are rounded at random to the levels 0, 1/g, ..., 1 and keep their mean and their range, so a bound that holds for
    every reward in [0, 1] holds for the rounded ones; rounding needs no term of its own. `misread` bounds the probability that
    the opened value is not sum + noise at all (it wrapped around the modulus, or the batch was spoilt).
    """

    users: int
    precision: int
    noise: NoiseLike | None
    misread: float = 0.0

    @property
    def variance(self) -> float:
        """The variance of the noise in the estimated sum, in units of reward."""
        return float(self.noise.variance) / self.precision**2 if self.noise is not None else 0.0

    def log_mgf(self, s: npt.ArrayLike) -> Floats:
        """ln E[e^{s · error}]; inf where it does not exist."""
        scaled = np.asarray(s, dtype=float) / self.precision
        if self.noise is None:
            return np.zeros_like(scaled)
        return self.noise.log_mgf(scaled) - scaled * self.noise.mean

    def radius(self, p: float) -> float:
        """The least r with P[|error| > r] <= p, from the exact law of the noise."""
        return self.noise.bound(p) / self.precision if self.noise is not None else 0.0


@dataclass(frozen=True)
class Estimate:
    """What the learner is told of a batch: the estimated sum of its rewards, and the law of the error."""

    total: float
    error: ErrorLaw

    @property
    def mean(self) -> float:
        """The estimated mean reward."""
        return self.total / self.error.users


class SumProtocol(ABC):
    """P = (R, S, A) for the sum of one number in [0, 1] per user, for a batch of fixed size."""

    users: int
    precision: int
    error: ErrorLaw
    guarantee: Any
    bits_per_user: float

    @abstractmethod
    def randomize(self, x: float) -> Any:
        """What leaves the device of a user with reward x. Exact randomness from the operating system."""

    @abstractmethod
    def combine(self, messages: list[Any]) -> Any:
        """What the intermediary opens, given everyone's message."""

    @abstractmethod
    def analyze(self, view: Any) -> Estimate:
        """The estimate, from what was opened."""

    @abstractmethod
    def simulate(self, level_counts: Integers, rng: np.random.Generator) -> Estimate:
        """An estimate with the law of `analyze(combine([randomize(x), ...]))`, given how many users hold each level 0..g."""
