"""Anytime-valid confidence sets of linear models, from noisy histograms over corners.

`confidence` has the method: with weights w_r fixed by earlier rounds, b = Σ w_r u_r and A = Σ w_r
V_r, the sum b - Aθ is a martingale, and a variance proxy Q of it gives a set. Here u = Σ s x̃ and
V = Σ n X̃ over corners, x̃ = L z̃ and X̃ = L Z̃ Lᵀ (`corner_fit`). With φ = Lᵀθ:

**Participants.** x̃ (y - ½) - X̃θ = x̃η + L (z̃ z·φ - Z̃φ), η the reward minus its mean. The first has
variance proxy ¼ x̃ x̃ᵀ given the corner. The second depends on the corner alone, has mean 0, and is
Σ bᵢ wᵢ for the coefficients bᵢ of the group's numbers, with p·wᵢ = (p·z̃)(zᵢ - z̃ᵢ) + pᵢ [z̃ᵢ = 0].
For one number p·w₁ lies in an interval of length at most √10 |p|: with s, t = p₁ ± p₂ its values
are -(1 - z)s, (1 + z)t and ((1 + z)s - (1 - z)t)/2, and |p|² = (s² + t²)/2. For m numbers |p·wᵢ|
<= 2 √(1 + m) |p|. By Hoeffding's lemma its variance proxy is at most κ β² L Lᵀ, β = Σ |bᵢ|, κ = 5/2
for one number and 4 (1 + m) for more.

**Noise.** Noise e in the wins and e' in the losses of a corner add e (x̃/2 - X̃θ) - e' (x̃/2 + X̃θ).
Means in [0, 1] at all extreme contexts give Σ |φᵢ| <= ½. So Z̃φ is in the convex hull of ± half the
columns of Z̃, and the variance proxy is at most σ² L (z̃ z̃ᵀ + Z̃ Z̃ᵀ) Lᵀ / 2.

**Tails.** Laplace noise is not sub-Gaussian. With ln E[e^{t·e}] <= t² v/2 for |t| <= ρ only, |e|
exceeds B with probability at most 2 exp(ρ² v/2 - ρB). Set to 0 where it does, noise stays
symmetric, and its logarithmic moment generating function grows by at most B per unit beyond ρ. So
σ² = max(v, B²/2C), C = ρB - ρ² v/2, is its variance proxy. The set holds with the changed noise,
and the change goes unnoticed except with a part of α that is spent over rounds and cells.

Q needs plays: noisy ones plus a bound on their noise, at another part of α. β is bounded by the
set itself, like |θ|: the event is that of the true β, and a larger Q keeps the bound.
"""

from __future__ import annotations

import math

import numpy as np

from tacit.bandits.contextual.confidence import (
    SHRINKS,
    USUAL,
    LinearSet,
    longest_parameter,
    spread_and_radius,
)
from tacit.bandits.contextual.corner_fit import corner_shapes
from tacit.bandits.contextual.histograms import Histograms
from tacit.bandits.contextual.moment_fit import VARIANCE
from tacit.contextual.feature_maps import FeatureMap
from tacit.errors import probability
from tacit.types import Floats

STEEPEST = 0.5  # largest Σ |bᵢ| for means in [0, 1]


def corner_set(
    histograms: Histograms, features: FeatureMap, horizon: int, level: float
) -> LinearSet:
    """`linear_set` from released histograms over corners instead of moments."""
    failure = 1 - float(probability("level", level))
    shapes, d = corner_shapes(features), features.dimension
    rounds, corners = histograms.wins.shape
    own = shapes.maps[shapes.group]  # L of every corner
    points = np.einsum("cda,ca->cd", own, shapes.code)
    squares = own @ shapes.square @ own.transpose(0, 2, 1)
    proxy = bounded_proxy(histograms, failure / 4)
    weights = 1 / (
        1 + histograms.noise * (0.5 + 2 * USUAL / d) * corners / (VARIANCE * histograms.people)
    )
    first = weights @ ((histograms.wins - histograms.losses) / 2) @ points
    plays = histograms.wins + histograms.losses
    second = np.einsum("rc,cij->ij", weights[:, None] * plays, squares)
    squared = weights**2
    spent = failure / 4 * 6 / (math.pi * rounds) ** 2 / corners
    excess = math.sqrt(2 * math.log(1 / spent) * float(squared**2 @ (2 * proxy)))
    held = np.maximum(squared @ plays + excess, 0.0)  # at least Σ w² times true plays
    outer = (shapes.outer + shapes.square @ shapes.square.transpose(0, 2, 1)) / 2
    noisy = float(squared @ proxy) * (own @ outer @ own.transpose(0, 2, 1)).sum(axis=0)
    seen_part = np.einsum("c,ci,cj->ij", held, points, points)
    participants = np.bincount(shapes.group, held, minlength=len(shapes.maps))
    kappa, length = VARIANCE * horizon / (10 * d), longest_parameter(features)
    steep = np.full(len(shapes.maps), STEEPEST)
    found: LinearSet | None = None
    for _ in range(1 + SHRINKS):
        rounding = participants * _constants(shapes.padding) * steep**2
        inner = VARIANCE * seen_part + noisy
        inner = inner + np.einsum("g,gia,gja->ij", rounding, shapes.maps, shapes.maps)
        spread, radius = spread_and_radius(inner, kappa, failure)
        total = float(histograms.people.sum())
        found = LinearSet(first, second, spread, seen_part, total, radius, length, 0.0)
        length = found.longest()
        slopes = shapes.maps[:, :, 1:].transpose(0, 2, 1).reshape(-1, d)
        if len(slopes):
            low, high = found.bounds(slopes)
            largest = np.maximum(np.abs(low), np.abs(high)).reshape(len(steep), -1)
            steep = np.minimum(steep, largest.sum(axis=1))
    assert found is not None
    return found


def bounded_proxy(histograms: Histograms, failure: float) -> Floats:
    """σ² of every round's noise in a cell, set to 0 where it exceeds a bound.

    Over all rounds, some noise exceeds its bound with probability at most `failure`.
    """
    rounds, corners = histograms.wins.shape
    chance = failure * 6 / (math.pi * np.arange(1, rounds + 1)) ** 2 / (2 * corners)
    proxy, reach = histograms.proxy, histograms.reach
    bound = np.log(2 / chance) / reach + reach * proxy / 2
    rest = reach * bound - reach**2 * proxy / 2
    steeper = np.where(2 * rest >= reach * bound, bound**2 / (2 * rest), 0.0)
    return np.asarray(np.where(proxy > 0, np.maximum(proxy, steeper), 0.0))


def _constants(padding: Floats) -> Floats:
    """κ of every group, by the number of its numbers."""
    width = padding.shape[-1]
    numbers = width - 1 - np.einsum("gaa->g", padding)
    return np.where(numbers == 0, 0.0, np.where(numbers == 1, 2.5, 4 * (1 + numbers)))
