"""The contract of a sum protocol: what leaves a device, what the intermediary opens, and the law of
the error that remains.

A protocol is built for one batch: a number of users and a guarantee. `randomize` runs on the
device, `combine` is the intermediary's ideal functionality, `analyze` turns what was opened into an
estimate of the sum of rewards. `simulate` has the same law as running every user through the three,
in time that does not grow with the number of users.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tacit.checks import TacitError, as_fraction
from tacit.noise import Chance
from tacit.privacy import Guarantee

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
    """The law of (estimated sum - sum of rounded rewards) of one batch: noise, divided by the
    precision, less its mean.

    Rewards are rounded at random to the levels 0, 1/g, ..., 1 and keep their mean and their range,
    so a bound that holds for every reward in [0, 1] holds for the rounded ones; rounding needs no
    term of its own. `misread` bounds the probability that the opened value is not sum + noise at
    all (it wrapped around the modulus, or the batch was spoilt).
    """

    users: int
    precision: int
    noise: NoiseLike | None
    misread: float = 0.0

    @property
    def variance(self) -> float:
        """The variance of the noise in the estimated sum, in units of reward."""
        return float(self.noise.variance) / self.precision**2 if self.noise is not None else 0.0

    @property
    def rounding_variance(self) -> float:
        """A bound on the variance that rounding to levels adds to the sum: at most ¼ of a level
        squared per user.
        """
        return self.users / (4 * self.precision**2)

    def log_mgf(self, s: npt.ArrayLike) -> Floats:
        """ln E[e^{s · error}]; inf where it does not exist."""
        scaled = np.asarray(s, dtype=float) / self.precision
        if self.noise is None:
            return np.zeros_like(scaled)
        return self.noise.log_mgf(scaled) - scaled * self.noise.mean

    def radius(self, p: float) -> float:
        """An r with P[|error| > r] <= p, from the exact law of the noise: the least one, up to half
        a level where its mean is not whole.
        """
        if self.noise is None:
            return 0.0
        off_centre = abs(
            self.noise.mean - round(self.noise.mean)
        )  # integer laws are bounded about their rounded mean
        return (self.noise.bound(p) + off_centre) / self.precision


@dataclass(frozen=True)
class Estimate:
    """What the learner is told of a batch: the estimated sum of its rewards, and the law of the
    error.
    """

    total: float
    error: ErrorLaw

    @property
    def mean(self) -> float:
        """The estimated mean reward."""
        return self.total / self.error.users


@dataclass(frozen=True)
class Levels:
    """How many users hold each level: `counts[i]` of them hold `values[i]`, out of 0..precision."""

    values: Integers
    counts: Integers

    @cached_property
    def users(self) -> int:
        """The number of users."""
        return int(self.counts.sum())

    @cached_property
    def total(self) -> int:
        """The sum of all levels, exactly."""
        if len(self.values) <= 64 or int(self.values.max()) * self.users >= 1 << 63:
            return sum(
                v * c for v, c in zip(self.values.tolist(), self.counts.tolist(), strict=True)
            )
        return int(self.values @ self.counts)


@dataclass(frozen=True)
class Opened:
    """What the intermediary hands to the server: one value, and how many reports it holds."""

    value: int
    reports: int


class SumProtocol(ABC):
    """P = (R, S, A) for the sum of one number in [0, 1] per user, for a batch of at most `users`
    reports.

    `minimum` is the number of reports below which nothing is opened; the noise is shared out so
    that the guarantee holds from there on.
    """

    users: int
    precision: int
    minimum: int
    guarantee: Guarantee
    bits_per_user: float
    # how many batches were misread so far, of those that took their noise from a caller's generator
    wrapped: int = 0

    @abstractmethod
    def randomize(self, x: float) -> Any:
        """What leaves the device of a user with reward x: exact randomness from the operating
        system.
        """

    @abstractmethod
    def randomize_batch(self, levels: Integers, rng: np.random.Generator) -> Any:
        """The messages of many users with these levels, for simulation: one row per user, from the
        caller's generator.
        """

    @abstractmethod
    def combine(self, messages: Any) -> Opened:
        """What the intermediary opens, given everyone's message."""

    def combine_batch(self, messages: Any, rng: np.random.Generator) -> Opened:  # noqa: ARG002
        """`combine` for messages of `randomize_batch`; a server that adds noise of its own takes it
        from the caller's generator.
        """
        return self.combine(messages)

    @abstractmethod
    def error(self, reports: int) -> ErrorLaw:
        """The law of the error when this many reports arrive."""

    @abstractmethod
    def _sum(self, opened: Opened) -> float:
        """The estimated sum of levels, from what was opened."""

    @abstractmethod
    def _open(self, total: int, reports: int, rng: np.random.Generator) -> Opened:
        """A value with the law of `combine` for reports whose levels sum to `total`."""

    def analyze(self, opened: Opened) -> Estimate:
        """The estimate, from what was opened."""
        self.check_reports(opened.reports)
        return Estimate(self._sum(opened) / self.precision, self.error(opened.reports))

    def simulate(self, levels: Levels, rng: np.random.Generator) -> Estimate:
        """An estimate with the law of running every user, given how many hold each level."""
        reports = levels.users
        self.check_reports(reports)
        return self.analyze(self._open(levels.total, reports, rng))

    def check_reports(self, reports: int) -> None:
        """Refuses a number of reports for which the guarantee would not hold."""
        if reports < self.minimum:
            raise TacitError(
                f"batch of {reports} reports is below the {self.minimum} that the guarantee needs "
                f"(n={self.users}); nothing was opened: "
                f"{self.minimum - reports} more reports, or a new round"
            )
        if reports > self.users:
            raise TacitError(
                f"batch of {reports} reports is over the {self.users} that the protocol was built "
                "for: open a larger round"
            )

    def encode(self, x: float) -> int:
        """⌊xg⌋ or the next level, at random so that the mean is xg exactly (the codec of all
        protocols, CZ23 Algorithm 1).
        """
        if isinstance(x, bool) or not isinstance(x, Real) or not 0 <= x <= 1:
            raise TacitError(
                f"reward is {x!r}; it must be a number in [0, 1]: rescale or clip it before it is "
                "reported"
            )
        scaled = as_fraction("reward", x) * self.precision
        level = math.floor(scaled)
        rest = scaled - level
        return level + (Chance(rest).flip() if rest else False)


def round_levels(rewards: Floats, precision: int, rng: np.random.Generator) -> Integers:
    """The codec for many rewards at once, for simulation."""
    if len(rewards) and not (float(np.min(rewards)) >= 0 and float(np.max(rewards)) <= 1):
        raise TacitError(
            "a reward lies outside [0, 1]: rescale or clip rewards before they are reported"
        )
    scaled = rewards * precision
    lower = np.floor(scaled)
    return (lower + (rng.random(len(rewards)) < scaled - lower)).astype(np.int64)
