"""What a silo learns from one user, as one vector: the bias xy and the Gram matrix xxᵀ, entries on and above the diagonal.

Off-diagonal entries are scaled by √2, so that the vector's norm is the matrix's Frobenius norm. Noise of one variance in every entry is then a
matrix whose law does not change under rotation, with off-diagonal entries of half the variance of the diagonal ones. The joint sensitivity
is the same √4.5 with or without the scaling, so the smaller noise is free.
"""

from __future__ import annotations

import math

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
    """The most that replacing one user's (x, y) moves the vector in l2 norm, for ‖x‖ <= 1 and 0 <= y <= 1 (CORRECTIONS 8).

    The square is convex in y and y', so the worst are at 0 or 1; at y = y' = 1 it is ‖x - x'‖² + ‖xxᵀ - x'x'ᵀ‖² <= 4 - 2c - 2c² with c = ⟨x, x'⟩,
    at most 4.5, reached at c = -1/2. In one dimension c is ±‖x‖‖x'‖ and the worst is 4, at x = -x'.

    >>> round(joint_sensitivity(10) ** 2, 6), round(joint_sensitivity(1) ** 2, 6)
    (4.5, 4.0)
    """
    return math.sqrt(4.5 if integer("dimension", dimension, at_least=1) > 1 else 4.0) * (1 + TOLERANCE) ** 2


def pack(bias: Floats, gram: Floats) -> Floats:
    """The vector of a bias and a symmetric matrix; leading axes are kept."""
    d = bias.shape[-1]
    rows, columns = np.triu_indices(d)
    return np.concatenate([bias, gram[..., rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2))], axis=-1)


def unpack(vector: Floats, dimension: int) -> tuple[Floats, Floats]:
    """The bias and the symmetric matrix of a vector."""
    if vector.shape[-1] != size(dimension):
        raise TacitError(
            f"{vector.shape[-1]} numbers arrived; dimension {dimension} needs {size(dimension)}: do all silos have one dimension?"
        )
    rows, columns = np.triu_indices(dimension)
    gram = np.zeros((*vector.shape[:-1], dimension, dimension))
    entries = vector[..., dimension:] * np.where(rows == columns, 1.0, 1 / math.sqrt(2))
    gram[..., rows, columns] = entries
    gram[..., columns, rows] = entries
    return vector[..., :dimension], gram
