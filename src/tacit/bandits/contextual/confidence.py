"""Anytime-valid confidence sets of contextual experiments, from noisy statistics.

**Linear model.** The means are ½ + x·θ. Round r releases u_r = Σ x (y - ½) + h_r and V_r = Σ x xᵀ +
N_r. With weights w_r that earlier rounds determine, let A = Σ w_r V_r, b = Σ w_r u_r. Then

    b - Aθ = Σ w_r (Σ x η + h_r - N_r θ),

where rewards minus their means, η, are ½-sub-Gaussian given the features, and noise is independent.
N_r θ has variance proxy at most t² |θ|² in every direction, t² that of a diagonal entry. So the sum
is a martingale with variance proxy Q = Σ w_r² (¼ Σ x xᵀ + (s_r² + t_r² |θ|²) I). By the method of
mixtures (Abbasi-Yadkori, Pál & Szepesvári 2011, Theorem 1), at all rounds simultaneously,

    ‖b - Aθ‖² in the norm of (κI + Q)⁻¹ is at most 2 ln(1/α') + ln det(I + Q/κ).

Q is not known. Σ w_r² Σ x xᵀ is at most its noisy value plus a bound on the largest eigenvalue of
the noise (`moments.spectral_bound`), at a part of α that is spent over the rounds; a larger Q keeps
the bound. No noisy matrix is inverted: for every vector p,

    c·θ = p·Aθ + (c - Ap)·θ <= p·b + ‖p‖_(κI+Q) · radius + |c - Ap| |θ|,

so that any p gives a bound, and the least of several is one. |θ| is bounded by the public features,
because means lie in [0, 1], and then by the set itself. Rounding features to the grid makes means
linear only up to μ = |θ| √d / (2 resolution); it adds at most μ √(n Σ w² (p·x)²), by Cauchy and
Schwarz.

**Tables.** For a cell of mean q and any a with q e^a < 1, let e^-b = (1 - q e^a) / (1 - q). Then
E[exp(a y - b (1 - y))] = 1, whatever the number of plays. With the noise's moment generating
function, exp(Σ a_r wins_r - b_r losses_r - ln M_r(a_r) - ln M_r(b_r)) is a supermartingale, and so
is a mixture over a fixed set of tilts. With positive tilts it tests whether q is too small, with
negative ones whether it is too large; each reaches 2SK/α with probability at most α/2SK (Ville).

Both hold at all times, whatever the rounds' policies, if contexts may even change over time. The
condition is that mean rewards are as modelled and do not change.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tacit.bandits.contextual import moments
from tacit.bandits.contextual.ellipsoid import extreme_features
from tacit.bandits.contextual.moment_fit import VARIANCE, Moments
from tacit.bandits.contextual.table_fit import TableHistograms
from tacit.bandits.linear.design import near_g_optimal
from tacit.contextual.feature_maps import FeatureMap
from tacit.errors import probability
from tacit.types import Floats

USUAL = 0.5  # squared length of a parameter for which rounds are weighted
RIDGES = 10.0 ** np.arange(-8, 3)  # of the test vectors p, relative to the largest eigenvalue
SHRINKS = 3  # times that the bound on |θ| is tightened
TILTS = 2.0 ** -np.arange(0.0, 11.0, 0.75)  # of a cell's mixture
GRID = 200  # means that are tested per cell


@dataclass(frozen=True)
class ContextAnswer:
    """The best option in a context, and how sure that is.

    Parameters
    ----------
    context : mapping
        The context, by field.
    option : str
        The option with the largest estimated mean.
    mean, low, high : float
        Its estimated mean reward with a confidence interval.
    lead : float
        By how much its mean exceeds every other option's, at least; negative while undecided.
    decision : str
        `best` if the lead is above 0, else `open`.
    """

    context: Mapping[str, Any]
    option: str
    mean: float
    low: float
    high: float
    lead: float
    decision: str


@dataclass(frozen=True, eq=False)
class LinearSet:
    """A confidence set of the parameter: |b - Aθ| <= radius in the norm of `spread`⁻¹."""

    first: Floats  # b
    second: Floats  # A
    spread: Floats  # κI + Q
    seen: Floats  # an upper bound on Σ w² Σ x xᵀ
    participants: float
    radius: float
    length: float  # bound on |θ|
    misfit: float  # μ

    def bounds(self, contrasts: Floats) -> tuple[Floats, Floats]:
        """Lower and upper bounds of c·θ for every row c, simultaneously."""
        inverse = np.linalg.inv(self.spread)
        core = self.second @ inverse @ self.second
        largest = float(np.linalg.eigvalsh((core + core.T) / 2)[-1])
        size = np.eye(len(self.first))
        low = np.full(len(contrasts), -math.inf)
        high = np.full(len(contrasts), math.inf)
        for ridge in RIDGES:
            tests = np.linalg.solve(core + ridge * max(largest, 1e-300) * size, contrasts.T)
            p = (inverse @ self.second @ tests).T
            rest = contrasts - p @ self.second.T
            centre = p @ self.first
            width = self.radius * np.sqrt(np.einsum("ij,jk,ik->i", p, self.spread, p))
            width += self.length * np.linalg.norm(rest, axis=1)
            inside = np.maximum(np.einsum("ij,jk,ik->i", p, self.seen, p), 0.0)
            width += self.misfit * np.sqrt(self.participants * inside)
            low, high = np.maximum(low, centre - width), np.minimum(high, centre + width)
        return low, high

    def longest(self) -> float:
        """The largest |θ| in the set, if it is below the known bound."""
        low, high = self.bounds(np.eye(len(self.first)))
        return min(self.length, float(np.linalg.norm(np.maximum(np.abs(low), np.abs(high)))))


def spread_and_radius(inner: Floats, kappa: float, failure: float) -> tuple[Floats, float]:
    """κ I + S of a martingale whose squares are at most S, and the radius of its mixture bound."""
    unit = np.eye(len(inner))
    grown = float(np.linalg.slogdet(unit + inner / kappa)[1])
    return kappa * unit + inner, math.sqrt(2 * math.log(2 / failure) + grown)


@lru_cache(maxsize=64)
def longest_parameter(features: FeatureMap) -> float:
    """The largest |θ| with |x·θ| <= ½ for the features of all contexts and options.

    For a design π on features with Σ π x xᵀ >= l I, ½ >= max |x·θ| >= √l |θ|.
    """
    points = extreme_features(features)
    design = near_g_optimal(points, ratio=1.02)
    chosen = points[design.support]
    second = (chosen * design.weights[:, None]).T @ chosen
    return 0.5 / math.sqrt(float(np.linalg.eigvalsh(second)[0]))


def linear_set(released: Moments, features: FeatureMap, horizon: int, level: float) -> LinearSet:
    """The confidence set after these rounds; valid at all rounds at once.

    Parameters
    ----------
    released : Moments
        The released moments.
    features : FeatureMap
        The public features.
    horizon : int
        The number of participants for which the set is narrowest.
    level : float
        Confidence level, such as 0.95.

    Returns
    -------
    LinearSet
    """
    failure = 1 - float(probability("level", level))
    d, rounds = released.dimension, len(released.participants)
    noise = released.first_noise + released.second_noise * USUAL
    weights = 1 / (1 + noise * d / (VARIANCE * np.maximum(released.participants, 1.0)))
    first = weights @ released.first
    second = np.einsum("r,rij->ij", weights, released.second)
    squares = weights**2
    spent = failure / 2 * 6 / (math.pi * rounds) ** 2  # Σ 6/(πr)² = 1
    noisy = math.sqrt(2 * float(squares**2 @ released.second_noise))
    largest = noisy * moments.spectral_bound(d, spent) if noisy else 0.0
    held = np.einsum("r,rij->ij", squares, released.second) + largest * np.eye(d)
    values, vectors = np.linalg.eigh((held + held.T) / 2)
    held = (vectors * np.maximum(values, 0.0)) @ vectors.T
    kappa = VARIANCE * horizon / (10 * d)
    length = longest_parameter(features)
    found: LinearSet | None = None
    for _ in range(1 + SHRINKS):
        extra = squares @ (released.first_noise + 2 * released.second_noise * length**2)
        inner = VARIANCE * held + extra * np.eye(d)
        spread, radius = spread_and_radius(inner, kappa, failure)
        misfit = length * math.sqrt(d) / (2 * features.resolution)
        participants = float(released.participants.sum())
        found = LinearSet(first, second, spread, held, participants, radius, length, misfit)
        length = found.longest()
    assert found is not None
    return found


def cell_bounds(histograms: TableHistograms, level: float) -> tuple[Floats, Floats]:
    """Confidence intervals of all cells' means, segments × options, simultaneously.

    Parameters
    ----------
    histograms : TableHistograms
        The released histograms.
    level : float
        Confidence level, such as 0.95.

    Returns
    -------
    low, high : array
        Bounds of mean rewards.
    """
    failure = 1 - float(probability("level", level))
    _, segments, options = histograms.wins.shape
    enough = math.log(2 * segments * options / failure)
    plays = (
        histograms.people[:, None, None] * histograms.policies / segments
    )  # expected; any weight is valid
    weights = 1 / (1 + histograms.proxy[:, None, None] / (VARIANCE * np.maximum(plays, 1e-9)))
    means = (np.arange(GRID) + 0.5) / GRID
    low, high = np.zeros((segments, options)), np.ones((segments, options))
    for side in (1.0, -1.0):
        evidence = _evidence(histograms, weights, means, side)
        kept = evidence <= enough  # segments × options × means
        if side > 0:  # small means are rejected
            first = np.where(kept.any(axis=2), kept.argmax(axis=2), GRID)
            low = np.maximum(first - 0.5, 0.0) / GRID  # the last mean that is rejected
        else:
            last = GRID - 1 - kept[:, :, ::-1].argmax(axis=2)
            high = np.minimum(np.where(kept.any(axis=2), last + 1.5, 0.5), GRID) / GRID
    return low, high


def _evidence(histograms: TableHistograms, weights: Floats, means: Floats, side: float) -> Floats:
    """The logarithm of the mixture against each mean: segments × options × means."""
    rounds, segments, options = weights.shape
    total = np.full((segments, options, len(means), len(TILTS)), 0.0)
    for r in range(rounds):
        tilt = side * TILTS * weights[r][:, :, None]  # segments × options × tilts
        tilt = np.clip(tilt, -histograms.reach[r], histograms.reach[r])[:, :, None, :]
        left = 1 - means[None, None, :, None] * np.exp(tilt)
        usable = left > 1e-12
        other = np.log((1 - means)[None, None, :, None]) - np.log(np.where(usable, left, 1.0))
        usable &= np.abs(other) <= histograms.reach[r]
        gain = (
            tilt * histograms.wins[r][:, :, None, None]
            - other * histograms.losses[r][:, :, None, None]
        )
        gain -= histograms.proxy[r] / 2 * (tilt**2 + other**2)
        total += np.where(usable, gain, 0.0)  # a round that is left out counts as 1
    return np.asarray(np.logaddexp.reduce(total, axis=3) - math.log(len(TILTS)))
