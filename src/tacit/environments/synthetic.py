"""Synthetic rewards: Bernoulli, clipped Gaussian and beta distributions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import betainc, ndtr

from tacit.environments.contract import ContinuousEnvironment, Environment, check_means
from tacit.errors import positive
from tacit.types import Floats, Levels


@dataclass(frozen=True)
class Bernoulli(Environment):
    """Bernoulli rewards.

    >>> Bernoulli((0.2, 0.7)).levels(1, 1000, 10, np.random.default_rng(0)).counts
    array([320, 680])
    """

    probabilities: tuple[float, ...]
    binary = True

    def __post_init__(self) -> None:
        check_means(self.probabilities)

    @cached_property
    def means(self) -> Floats:
        """The success probabilities."""
        return np.array(self.probabilities)

    def rewards(self, arm: int, users: int, rng: np.random.Generator) -> Floats:
        """Bernoulli samples."""
        return (rng.random(users) < self.probabilities[arm]).astype(float)

    def levels(self, arm: int, users: int, precision: int, rng: np.random.Generator) -> Levels:
        """One binomial sample: each participant holds level 0 or the highest."""
        ones = int(rng.binomial(users, self.probabilities[arm]))
        return Levels(np.array([0, precision]), np.array([users - ones, ones]))


@dataclass(frozen=True)
class ClippedGaussian(ContinuousEnvironment):
    """Rewards N(centre, sigma²), clipped to [0, 1]; the papers' figures use sigma = 0.1.

    >>> ClippedGaussian((0.0, 0.5)).means.round(4)
    array([0.0399, 0.5   ])
    """

    centres: tuple[float, ...]
    sigma: float = 0.1

    def __post_init__(self) -> None:
        check_means(self.centres)
        positive("sigma", self.sigma)

    @cached_property
    def means(self) -> Floats:
        """The means after clipping."""
        return np.array(
            [
                1.0 - float(self.shortfall(arm, np.array([1.0]))[0])
                for arm in range(len(self.centres))
            ]
        )

    def rewards(self, arm: int, users: int, rng: np.random.Generator) -> Floats:
        """Clipped normal samples."""
        return np.clip(rng.normal(self.centres[arm], self.sigma, users), 0.0, 1.0)

    def shortfall(self, arm: int, c: Floats) -> Floats:
        """E[(c - X)⁺] for c in [0, 1]."""
        return _shortfall(self.centres[arm], self.sigma, c)

    def excess(self, arm: int, c: Floats) -> Floats:
        """E[(X - c)⁺]: the shortfall of 1 - X at 1 - c."""
        return _shortfall(1 - self.centres[arm], self.sigma, 1 - c)


def _shortfall(centre: float, sigma: float, c: Floats) -> Floats:
    """E[(c - X)⁺] of the Gaussian, minus its value at 0."""
    z = (np.append(c, 0.0) - centre) / sigma
    whole: Floats = sigma * (z * ndtr(z) + np.exp(-z * z / 2) / math.sqrt(2 * math.pi))
    return np.asarray(whole[:-1] - whole[-1])


@dataclass(frozen=True)
class Beta(ContinuousEnvironment):
    """Rewards Beta(concentration · mean, concentration · (1 - mean)).

    >>> Beta((0.2, 0.7)).means
    array([0.2, 0.7])
    """

    centres: tuple[float, ...]
    concentration: float = 4.0

    def __post_init__(self) -> None:
        means = check_means(self.centres)
        positive("concentration", self.concentration)
        for mean in means:
            positive(
                "mean",
                float(mean * (1 - mean)),
                "a beta variable has its mean strictly between 0 and 1",
            )

    @cached_property
    def means(self) -> Floats:
        """The means."""
        return np.array(self.centres)

    def rewards(self, arm: int, users: int, rng: np.random.Generator) -> Floats:
        """Beta samples."""
        mean = self.centres[arm]
        return rng.beta(self.concentration * mean, self.concentration * (1 - mean), users)

    def shortfall(self, arm: int, c: Floats) -> Floats:
        """c F(c) - E[X; X <= c]."""
        mean = self.centres[arm]
        a, b = self.concentration * mean, self.concentration * (1 - mean)
        result: Floats = c * betainc(a, b, c) - mean * betainc(a + 1, b, c)
        return result

    def excess(self, arm: int, c: Floats) -> Floats:
        """E[(X - c)⁺]: the shortfall of 1 - X at 1 - c."""
        return Beta((1 - self.centres[arm],) * 2, self.concentration).shortfall(0, 1 - c)
