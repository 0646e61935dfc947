"""A minimal simulator: sums of simple rewards over a round, plus one draw of the noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from tacit.bandits import Learner
from tacit.noise import Binomial, DiscreteLaplace, NoiseDistribution
from tacit.types import ErrorDistribution, Estimate, Round

Distribution = Callable[[int], ErrorDistribution]


@dataclass(frozen=True)
class Environment:
    """Rewards in [0, 1] with these means; sums of many real ones by a normal approximation (above
    4,096).
    """

    means: npt.NDArray[np.float64]
    rewards: str = "bernoulli"

    def mean(self, arm: int) -> float:
        """The mean reward; clipping moves it where the mean is near 0 or 1."""
        mean = float(self.means[arm])
        if self.rewards != "gaussian":
            return mean
        high, low = (1 - mean) / 0.1, -mean / 0.1
        inside = mean * (norm.cdf(high) - norm.cdf(low)) - 0.1 * (norm.pdf(high) - norm.pdf(low))
        return float(inside + norm.sf(high))

    def total(self, arm: int, users: int, rng: np.random.Generator) -> float:
        mean = float(self.means[arm])
        if self.rewards == "bernoulli":
            return float(rng.binomial(users, mean))
        if self.rewards == "beta":
            return self._sum(
                users,
                lambda n: rng.beta(2 * mean, 2 * (1 - mean), n),
                mean,
                math.sqrt(mean * (1 - mean) / 3),
                rng,
            )
        return self._sum(
            users, lambda n: np.clip(rng.normal(mean, 0.1, n), 0.0, 1.0), mean, 0.1, rng
        )

    def _sum(
        self,
        users: int,
        draw: Callable[[int], npt.NDArray[np.float64]],
        mean: float,
        deviation: float,
        rng: np.random.Generator,
    ) -> float:
        if users <= 4096:
            return float(draw(users).sum())
        return users * mean + deviation * math.sqrt(users) * float(rng.standard_normal())


def exact(users: int) -> ErrorDistribution:
    """No privacy."""
    return ErrorDistribution(users, 1, None)


def laplace(epsilon: float) -> Distribution:
    """Pure privacy through secure aggregation, precision ⌈ε√n⌉."""

    @lru_cache(maxsize=4096)
    def distribution(users: int) -> ErrorDistribution:
        precision = math.ceil(epsilon * math.sqrt(users))
        return ErrorDistribution(users, precision, DiscreteLaplace(precision / epsilon))

    return distribution


def fair_bits(bits: int) -> Distribution:
    """Approximate privacy through a shuffler, binary rewards."""
    noise = Binomial(bits)
    return lambda users: ErrorDistribution(users, 1, noise)


def estimate(
    round_: Round, environment: Environment, distribution: Distribution, rng: np.random.Generator
) -> Estimate:
    error = distribution(round_.participants)
    total = environment.total(round_.arm, round_.participants, rng)
    if isinstance(error.noise, NoiseDistribution):
        noise = float(error.noise.sample(rng)) - error.noise.mean
        total = (math.floor(total * error.precision + rng.random()) + noise) / error.precision
    return Estimate(total, error)


def play(
    learner: Learner, environment: Environment, distribution: Distribution, rng: np.random.Generator
) -> float:
    """Runs the learner to its horizon; the pseudo-regret."""
    gaps = environment.means.max() - environment.means
    regret = 0.0
    while rounds := learner.propose():
        for round_ in rounds:
            regret += round_.participants * float(gaps[round_.arm])
            if round_.released:
                learner.observe(round_, estimate(round_, environment, distribution, rng))
            else:
                learner.skip(round_)
    return regret
