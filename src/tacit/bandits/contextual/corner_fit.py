"""Linear models fitted to noisy histograms over corners, round by round and group by group.

`tacit.contextual.corners` defines corners and groups. In a group features are x = L z, z = (1, …),
and a corner stands for z̃ with matrix Z̃, E[z̃] = z and E[Z̃] = z zᵀ. With n plays and s the sum of
centred rewards in a corner, u = Σ s z̃ and V = Σ n Z̃ satisfy E[u - V Lᵀθ] = 0. The covariance of
that is about R² Σ n z̃ z̃ᵀ, R² = ¼, and the noise: ν/2 in s, 2ν in n, for ν in a cell. A round's
best weight in a group is L V (covariance)⁻¹, so that groups in which noise exceeds the signal
hardly count.

As in `table_fit`, plays are also expected from the public policy; both are combined by their
variances, and weights follow from expected plays alone. The covariance decides what is explored,
and is no confidence set: `tacit.bandits.contextual.corner_confidence` has those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product

import numpy as np

from tacit.bandits.contextual.expected_moments import fitted_shares, public_codes
from tacit.bandits.contextual.histograms import Histograms
from tacit.bandits.contextual.moment_fit import PRECISION, VARIANCE, ParameterFit, ridge_of
from tacit.contextual.corners import CornerLayout, layout
from tacit.contextual.feature_maps import FeatureMap
from tacit.types import Floats

PASSES = 4
UNSURE = 0.1  # relative standard deviation of expected plays
RIDGE = 1e-9


@dataclass(frozen=True, eq=False)
class CornerShapes:
    """Corners of a feature map as arrays; shorter groups are padded with zeros.

    Parameters
    ----------
    group
        The group of every corner.
    code, square
        z̃ and Z̃ of every corner.
    maps
        L of every group: groups × dimensions × numbers.
    padding
        Per group, a diagonal one where it is padded.
    """

    group: Floats
    code: Floats
    square: Floats
    maps: Floats
    padding: Floats

    @cached_property
    def outer(self) -> Floats:
        """z̃ z̃ᵀ of every corner."""
        return np.asarray(self.code[:, :, None] * self.code[:, None, :])

    def grouped(self, amounts: Floats, values: Floats) -> Floats:
        """Σ amount · value over the corners of every group: rounds × groups × …"""
        member = np.zeros((len(self.group), len(self.maps)))
        member[np.arange(len(self.group)), self.group] = 1.0
        flat = values.reshape(len(values), -1)
        found = np.einsum("rc,cg,cx->rgx", amounts, member, flat, optimize=True)
        return np.asarray(found.reshape(*found.shape[:2], *values.shape[1:]))

    def covariance(self, plays: Floats, noise: Floats, spare: Floats, square: Floats) -> Floats:
        """The covariance of u - V Lᵀθ for E[θθᵀ] = `square`: rounds × groups × numbers².

        `noise` is the variance in a cell by round, `spare` that of plays by round and corner.
        """
        inside = np.einsum("gda,de,geb->gab", self.maps, square, self.maps, optimize=True)
        moved = self.square @ inside[self.group] @ self.square
        first = VARIANCE * plays + noise[:, None] / 2
        found = self.grouped(first, self.outer) + self.grouped(spare, moved)
        return np.asarray(found + self.padding + RIDGE * np.eye(found.shape[-1]))

    def weights(self, plays: Floats, covariance: Floats) -> tuple[Floats, Floats]:
        """The best weights of u - V Lᵀθ, and the information about θ."""
        signal = np.einsum("gda,rgab->rgdb", self.maps, self.grouped(plays, self.square))
        found = np.linalg.solve(covariance, signal.transpose(0, 1, 3, 2)).transpose(0, 1, 3, 2)
        known = np.einsum("rgda,rgea->de", found, signal)
        return np.asarray(found), np.asarray((known + known.T) / 2)


@lru_cache(maxsize=32)
def corner_shapes(features: FeatureMap) -> CornerShapes:
    """The arrays of a feature map's corners."""
    made: CornerLayout = layout(features)
    width = max(len(one.code) for one in made.corners)
    count, groups = made.size, len(made.groups)
    group = np.array([one.group for one in made.corners])
    code, square = np.zeros((count, width)), np.zeros((count, width, width))
    maps, padding = np.zeros((groups, features.dimension, width)), np.zeros((groups, width, width))
    for place, one in enumerate(made.corners):
        own = len(one.code)
        code[place, :own], square[place, :own, :own] = one.code, one.square
    for place, rows in enumerate(made.groups):
        own = len(rows[0])
        maps[place, :, :own] = rows
        padding[place] = np.diag((np.arange(width) >= own).astype(float))
    return CornerShapes(group, code, square, maps, padding)


@lru_cache(maxsize=32)
def public_corners(features: FeatureMap) -> Floats:
    """Chances of corners in the public contexts: contexts × options × corners."""
    codes, made = public_codes(features), layout(features)
    found = np.zeros((len(codes), len(made.options), made.size))
    rows = np.arange(len(codes))
    for option, one in enumerate(made.options):
        place = np.zeros(len(codes), dtype=np.int64)
        for start, size in one.categories:
            place = place * size + codes[:, start : start + size].argmax(axis=1)
        plus = (1 + codes[:, list(one.numbers)]) / 2
        each = np.stack([(1 - plus) ** 2, 2 * plus * (1 - plus), plus**2], axis=2)
        for state, picked in enumerate(product(range(3), repeat=len(one.numbers))):
            chance = np.prod([each[:, i, k] for i, k in enumerate(picked)], axis=0)
            found[rows, option, one.first + place * one.states + state] = chance
    return found


def expected_plays(shapes: Sequence[Floats], histograms: Histograms) -> Floats:
    """Expected plays of corners in every round, from the corners of its policy: rounds × corners.

    `shapes` are, per round, the chances of corners in the public contexts.
    """
    plays, corners = histograms.wins + histograms.losses, histograms.wins.shape[1]
    spread = np.sqrt(2 * histograms.noise + histograms.people / corners) / histograms.people
    system = [shape.T / own for shape, own in zip(shapes, spread, strict=True)]
    right = list(plays / (histograms.people * spread)[:, None])
    found = np.einsum("c,rcm->rm", fitted_shares(system, right), np.array(shapes))
    return np.asarray(found * histograms.people[:, None])


@dataclass(frozen=True, eq=False)
class CornerFit(ParameterFit):
    """A fit to histograms over corners.

    Parameters
    ----------
    each
        Expected plays of every corner per participant of the last round.
    noise
        Variance of the noise in a cell of the last round.
    shapes
        The corners.
    """

    each: Floats
    noise: float
    shapes: CornerShapes

    def _added(self, participants: float) -> Floats:
        plays, noise = self.each[None] * participants, np.array([self.noise])
        square = np.outer(self.mean, self.mean) + self.covariance
        spare = np.full(plays.shape, 2 * self.noise)
        covariance = self.shapes.covariance(plays, noise, spare, square)
        return self.shapes.weights(plays, covariance)[1]


def corner_prior(features: FeatureMap) -> CornerFit:
    """The fit before any round."""
    shapes, d = corner_shapes(features), features.dimension
    each = np.full(len(shapes.group), 1 / len(shapes.group))
    return CornerFit(np.zeros(d), np.eye(d) / PRECISION, each, 0.0, shapes)


def fitted_corners(histograms: Histograms, expected: Floats, start: CornerFit) -> CornerFit:
    """The weighted fit of all rounds.

    Parameters
    ----------
    histograms
        The released histograms.
    expected
        Expected plays (`expected_plays`).
    start
        The prior.

    Returns
    -------
    CornerFit
    """
    shapes = start.shapes
    centred, plays = (histograms.wins - histograms.losses) / 2, histograms.wins + histograms.losses
    own = 2 * histograms.noise[:, None]
    unsure = expected + (UNSURE * expected) ** 2 + 1e-3
    share = unsure / (own + unsure)
    first = np.asarray(shapes.grouped(centred, shapes.code))
    second = shapes.grouped(share * plays + (1 - share) * expected, shapes.square)
    mean, covariance = start.mean, start.covariance
    for _ in range(PASSES):
        square = np.outer(mean, mean) + covariance
        inner = shapes.covariance(expected, histograms.noise, own * share, square)
        weights, known = shapes.weights(expected, inner)
        held = np.einsum("rgda,rgab,geb->de", weights, second, shapes.maps, optimize=True)
        ridge = ridge_of(held)
        mean = np.linalg.solve(held + ridge, np.einsum("rgda,rga->d", weights, first))
        covariance = np.asarray(np.linalg.inv(known + ridge))
    each = expected[-1] / histograms.people[-1]
    return CornerFit(mean, covariance, each, float(histograms.noise[-1]), shapes)
