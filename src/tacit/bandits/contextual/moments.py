"""What a silo learns from one user, as one vector: the bias xy and the Gram matrix xxᵀ, entries on
and above the diagonal.

By default off-diagonal entries are scaled by √2, so that the vector's norm is the matrix's
Frobenius norm. Noise of one variance in every entry is then a matrix whose law does not change
under rotation, with off-diagonal entries of half the variance of the diagonal ones. The joint
sensitivity is the same √4.5 with or without the scaling, so the smaller noise is free.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tacit.checks import TacitError, integer

Floats = npt.NDArray[np.float64]
TOLERANCE = 1e-9  # by how much a norm may exceed 1 in floating point; the sensitivity includes it


def size(dimension: int) -> int:
    """d + d(d+1)/2: how many numbers are released together.

    >>> size(10)
    65
    """
    d = integer("dimension", dimension, at_least=1)
    return d + d * (d + 1) // 2


def joint_sensitivity(dimension: int) -> float:
    """The most that replacing one user's (x, y) moves the vector in l2 norm, for ‖x‖ <= 1 and 0 <=
    y <= 1 (CORRECTIONS 8).

    The square is convex in y and y', so the worst are at 0 or 1; at y = y' = 1 it is ‖x - x'‖² +
    ‖xxᵀ - x'x'ᵀ‖² <= 4 - 2c - 2c² with c = ⟨x, x'⟩, at most 4.5, reached at c = -1/2. In one
    dimension c is ±‖x‖‖x'‖ and the worst is 4, at x = -x'. Without the scaling the same is reached
    where xxᵀ - x'x'ᵀ is diagonal.

    >>> round(joint_sensitivity(10) ** 2, 6), round(joint_sensitivity(1) ** 2, 6)
    (4.5, 4.0)
    """
    return (
        math.sqrt(4.5 if integer("dimension", dimension, at_least=1) > 1 else 4.0)
        * (1 + TOLERANCE) ** 2
    )


def pack(bias: Floats, gram: Floats, *, scaled: bool = True) -> Floats:
    """The vector of a bias and a symmetric matrix; leading axes are kept."""
    rows, columns, weights = _entries(bias.shape[-1], scaled)
    return np.concatenate([bias, gram[..., rows, columns] * weights], axis=-1)


def unpack(vector: Floats, dimension: int, *, scaled: bool = True) -> tuple[Floats, Floats]:
    """The bias and the symmetric matrix of a vector."""
    if vector.shape[-1] != size(dimension):
        raise TacitError(
            f"{vector.shape[-1]} numbers arrived; dimension {dimension} needs {size(dimension)}: "
            "do all silos have one dimension?"
        )
    rows, columns, weights = _entries(dimension, scaled)
    gram = np.zeros((*vector.shape[:-1], dimension, dimension))
    entries = vector[..., dimension:] / weights
    gram[..., rows, columns] = entries
    gram[..., columns, rows] = entries
    return vector[..., :dimension], gram


def _entries(
    dimension: int, scaled: bool
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Floats]:
    rows, columns = np.triu_indices(dimension)
    return rows, columns, np.where(rows == columns, 1.0, math.sqrt(2) if scaled else 1.0)


@lru_cache(maxsize=64)
def spectral_quantile(dimension: int, level: float, *, scaled: bool = True) -> float:
    """The `level` quantile of the largest eigenvalue of a noise matrix with unit variance in every
    number of the vector.

    By simulation with a fixed seed: of the order of √(2d) (2√d without scaling) plus a little. It
    sets a regularizer, not a guarantee.

    >>> 5.0 < spectral_quantile(10, 0.99) < 5.6
    True
    """
    rng = np.random.default_rng(0)
    draws = max(400, min(4000, 40_000 // dimension))
    _, noise = unpack(rng.standard_normal((draws, size(dimension))), dimension, scaled=scaled)
    return float(np.quantile(np.linalg.eigvalsh(noise)[:, -1], level))
