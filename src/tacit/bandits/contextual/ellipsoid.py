"""Feature maps in the coordinates of their smallest enclosing ellipsoid.

Noise that protects features of length at most 1 is the same in every direction, so features should
fill the unit ball. The smallest ellipsoid about the origin that contains all features becomes that
ball by a linear change of coordinates. It follows from the public feature map alone. By duality it
is given by the D-optimal design on the features (Kiefer & Wolfowitz 1960; Titterington 1975):
{x : xᵀ V(π)⁻¹ x <= d}. A polytope and its vertices have the same ellipsoid, so extreme contexts
suffice, and the largest length after the change is computed, not assumed. Features that span fewer
dimensions lose the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tacit.bandits.linear.design import near_g_optimal
from tacit.contextual.feature_maps import RESOLUTION, BoundedNumber, Category, FeatureMap, Matrices
from tacit.errors import TacitError, require
from tacit.types import Floats

RATIO = 1.02  # the design's excess over the smallest ellipsoid, squared
RANK = 1e-9  # relative eigenvalue below which a direction is not spanned
MARGIN = 1e-9  # relative room that scaled features leave


def scaled_map(
    fields: Sequence[Category | BoundedNumber],
    options: Sequence[str],
    matrices: Matrices,
    resolution: int = RESOLUTION,
) -> FeatureMap:
    """The feature map of these matrices, in coordinates in which features fill the unit ball.

    Parameters
    ----------
    fields, options, matrices, resolution
        As for `FeatureMap`; matrices may have any scale.

    Returns
    -------
    FeatureMap
        Features are at most 1 long, also after rounding.

    Examples
    --------
    >>> from tacit.contextual.feature_maps import interactions
    >>> fields = (BoundedNumber("age", 18, 90),)
    >>> features = scaled_map(fields, ("a", "b"), interactions(fields, ("a", "b")))
    >>> features.dimension, features.longest <= features.room
    (4, True)
    """
    raw = np.array(matrices, dtype=float)
    if raw.ndim != 3 or not np.isfinite(raw).all() or not raw.any():
        raise TacitError(
            f"matrices have shape {raw.shape}: must be one finite matrix per option, not all zero"
        )
    rows = np.abs(raw).max(axis=(0, 2), keepdims=True)  # features may differ in scale
    raw = raw / np.where(rows > 0, rows, 1.0)
    size = float(np.abs(raw).sum(axis=2).max()) * math.sqrt(raw.shape[1])
    shape = FeatureMap(tuple(fields), tuple(options), rows_of(raw / (4 * size)), resolution=1 << 20)
    points = extreme_features(shape)
    change = enclosing(points)
    moved = np.einsum("rd,kdm->krm", change, raw / (4 * size))
    longest = float(np.linalg.norm(points @ change.T, axis=1).max())
    room = 1 - math.sqrt(len(change)) / (2 * resolution)
    rule = f"larger for {len(change)} features, such as {RESOLUTION}"
    require(room > 0.5, "resolution", resolution, rule)
    scale = room * (1 - MARGIN) / longest
    return FeatureMap(tuple(fields), tuple(options), rows_of(moved * scale), resolution)


def extreme_features(features: FeatureMap) -> Floats:
    """The features of all options in all extreme contexts, one row each."""
    return np.array([vector for code in features.extremes() for vector in features.exact(code)])


def enclosing(points: Floats) -> Floats:
    """A linear map that turns the smallest enclosing ellipsoid of the points into a ball.

    >>> change = enclosing(np.array([[4.0, 0.0], [0.0, 1.0]]))
    >>> np.linalg.norm(np.array([[4.0, 0.0], [0.0, 1.0]]) @ change.T, axis=1).round(6).tolist()
    [1.414214, 1.414214]
    """
    values, vectors = np.linalg.eigh(points.T @ points)
    spanned = values > RANK * values[-1]
    white = vectors[:, spanned] / np.sqrt(values[spanned])
    inner = points @ white
    design = near_g_optimal(inner, ratio=RATIO)
    chosen = inner[design.support]
    second = (chosen * design.weights[:, None]).T @ chosen
    own, axes = np.linalg.eigh(second)
    inverse_root = (axes / np.sqrt(own)) @ axes.T
    return np.asarray((white @ inverse_root).T)


def constant_direction(features: FeatureMap) -> Floats | None:
    """A c with c·x = 1 for the features of every context and option; None if there is none."""
    points = extreme_features(features)
    found = np.linalg.lstsq(points, np.ones(len(points)), rcond=None)[0]
    exact = float(np.abs(points @ found - 1).max()) < 1e-6
    return np.asarray(found) if exact else None


def rows_of(matrices: Floats) -> Matrices:
    """Matrices as tuples of plain numbers."""
    return tuple(tuple(tuple(row) for row in matrix) for matrix in matrices.tolist())
