"""Linear models fitted to noisy moments, round by round and direction by direction.

Round r releases u = Σ x (y - ½) and V = Σ x xᵀ, each with noise. For the parameter θ of centred
rewards, u - Vθ has covariance about R²V + ν I: rewards of variance at most R² = ¼, and the noise of
u and of V times θ. An estimate weights the rounds: Σ M (u - Vθ) = 0. A round's best weight in a
direction of eigenvalue l of its own V is l / (R² l + ν), so that rounds in which noise exceeds the
signal hardly count. Weights are those of the round's expected V (`expected_moments`), which takes
no noise for signal; weights from V pooled over rounds would spoil the first, small rounds.
Dummies and interactions leave entries of V that are always 0, or equal: V is projected onto the
span of x xᵀ over all contexts and options (`SecondSpan`), which drops the noise outside of it.

The covariance is calibrated on average. It decides what is explored, and is no confidence set:
`tacit.bandits.contextual.confidence` has those.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from tacit.types import Floats

VARIANCE = 0.25  # largest variance of a reward in [0, 1]
PRECISION = 4.0  # of the prior on each coefficient of centred rewards
PASSES = 3


@dataclass(frozen=True, eq=False)
class Moments:
    """Released moments of all rounds: one row per round.

    Parameters
    ----------
    first
        Noisy sums of x (y - ½), rounds × d.
    second
        Noisy sums of x xᵀ, rounds × d × d.
    participants
        Participants.
    first_noise, second_noise
        Variance of the noise in an entry of `first`, and in an off-diagonal entry of `second`,
        which is half of that in a diagonal one.
    """

    first: Floats
    second: Floats
    participants: Floats
    first_noise: Floats
    second_noise: Floats

    @property
    def dimension(self) -> int:
        """The number of features."""
        return int(self.first.shape[1])


@dataclass(frozen=True, eq=False)
class ParameterFit(ABC):
    """An estimated parameter with its covariance, and what a participant of a round adds.

    Parameters
    ----------
    mean, covariance
        Of the parameter of centred rewards.
    """

    mean: Floats
    covariance: Floats

    def after(self, participants: float) -> Floats:
        """The covariance as if this many more participants of one round were known."""
        if not participants:
            return self.covariance
        return np.asarray(np.linalg.inv(np.linalg.inv(self.covariance) + self._added(participants)))

    @abstractmethod
    def _added(self, participants: float) -> Floats:
        """The precision that this many participants of one round add."""


@dataclass(frozen=True, eq=False)
class LinearFit(ParameterFit):
    """A fit to moments.

    Parameters
    ----------
    each
        Expected Σ x xᵀ per participant of the last round.
    noise
        Covariance of the noise in the last round's u - Vθ.
    """

    each: Floats
    noise: Floats

    def _added(self, participants: float) -> Floats:
        seen = self.each * participants
        inner = VARIANCE * seen + self.noise + 1e-9 * np.eye(len(self.mean))
        return np.asarray(seen @ np.linalg.solve(inner, seen))


@dataclass(frozen=True, eq=False)
class SecondSpan:
    """The linear span of x xᵀ over all contexts and options; noise outside of it is dropped.

    Parameters
    ----------
    basis
        Symmetric matrices that are orthonormal as vectors, matrices × d × d; None for a basis of
        all of them.
    """

    basis: Floats | None

    def projected(self, second: Floats) -> Floats:
        """The matrices of the span that are nearest to symmetric ones."""
        if self.basis is None:
            return second
        along = np.einsum("bij,rij->rb", self.basis, second)
        return np.asarray(np.einsum("rb,bij->rij", along, self.basis))

    def spread(self, square: Floats) -> Floats:
        """The covariance of Nθ with E[θθᵀ] = `square`, N of unit variance along the basis."""
        if self.basis is None:
            return np.asarray((np.trace(square) * np.eye(len(square)) + square) / 2)
        return np.asarray((self.basis @ square @ self.basis).sum(axis=0))


def prior(dimension: int) -> LinearFit:
    """The fit before any round."""
    size = np.eye(dimension)
    return LinearFit(np.zeros(dimension), size / PRECISION, size / dimension, 0 * size)


def fitted(moments: Moments, expected: Floats, start: LinearFit, span: SecondSpan) -> LinearFit:
    """The weighted fit of all rounds.

    Parameters
    ----------
    moments
        The released moments.
    expected
        The expected Σ x xᵀ of every round, from its policy; that of exact moments is their own.
    start
        The fit of the rounds before.
    span
        Where second moments are; `moments` are projected onto it.

    Returns
    -------
    LinearFit
    """
    d, participants = moments.dimension, moments.participants
    size, fit = np.eye(d), start
    for _ in range(PASSES):
        square = np.outer(fit.mean, fit.mean) + fit.covariance
        noise = moments.first_noise[:, None, None] * size
        noise = noise + 2 * moments.second_noise[:, None, None] * span.spread(square)
        inner = VARIANCE * expected + noise + 1e-9 * size
        weights = np.linalg.solve(inner, expected)
        weights = (weights + weights.transpose(0, 2, 1)) / 2
        held = np.einsum("rij,rjk->ik", weights, moments.second)
        ridge = ridge_of(held)
        total = np.einsum("rij,rj->i", weights, moments.first)
        mean = np.linalg.solve(held + ridge, total)
        known = np.einsum("rij,rjk->ik", weights, expected)
        covariance = np.linalg.inv((known + known.T) / 2 + ridge)
        fit = LinearFit(mean, covariance, expected[-1] / participants[-1], noise[-1])
    return fit


def ridge_of(held: Floats) -> Floats:
    """The prior's precision, or more where noise made the information matrix indefinite."""
    ridge = PRECISION * np.eye(len(held))
    lowest = float(np.linalg.eigvalsh((held + held.T) / 2 + ridge)[0])
    return ridge if lowest >= PRECISION else ridge + (PRECISION - lowest) * np.eye(len(held))


def root_of(covariance: Floats) -> Floats:
    """A matrix R with R Rᵀ = covariance."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def best_weight(mean: Floats) -> float:
    """The weight w of x (y - ½) with the least noise in u - Vθ.

    The noise of u has variance ∝ Δ(w)²/w², that of Vθ ∝ Δ(w)² |θ|² (1 + 1/d)/2, with Δ(w)² =
    2 (1 + w²/8)²; weights are at most √8, where the sensitivity is that of u alone.

    >>> round(best_weight(np.zeros(8)) ** 2, 3), round(best_weight(np.full(8, 0.2)) ** 2, 3)
    (8.0, 4.0)
    """
    length = float(mean @ mean) * (1 + 1 / len(mean))
    squares = np.array([0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0])
    cost = (1 + squares / 8) ** 2 * (1 / squares + length / 2)
    return float(math.sqrt(squares[cost.argmin()]))
