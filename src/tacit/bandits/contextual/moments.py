"""A silo's statistics as one vector: the bias xy and the upper triangle of the Gram matrix xxᵀ.

By default off-diagonal entries are scaled by √2, so that the vector's norm is the matrix's
Frobenius norm. Noise of equal variance in every entry is then a matrix with a rotation-invariant
distribution, whose off-diagonal entries have half the variance of the diagonal ones. The joint
sensitivity is √4.5 with and without the scaling, so the smaller noise is free.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tacit.errors import TacitError, integer, positive, probability

Floats = npt.NDArray[np.float64]
TOLERANCE = 1e-9  # floating-point excess of a norm over 1; the sensitivity includes it


def size(dimension: int) -> int:
    """d + d(d+1)/2: the number of values released together.

    >>> size(10)
    65
    """
    d = integer("dimension", dimension, at_least=1)
    return d + d * (d + 1) // 2


def joint_sensitivity(dimension: int) -> float:
    """The l2 sensitivity to replacing one (x, y), for ‖x‖ <= 1 and 0 <= y <= 1 (CORRECTIONS 8).

    The square is convex in y and y', so the maximum is at 0 or 1. At y = y' = 1 it is ‖x - x'‖² +
    ‖xxᵀ - x'x'ᵀ‖² <= 4 - 2c - 2c² with c = ⟨x, x'⟩, at most 4.5, attained at c = -1/2. In one
    dimension c is ±‖x‖‖x'‖ and the maximum is 4, at x = -x'. Without the scaling the same is
    attained where xxᵀ - x'x'ᵀ is diagonal.

    >>> round(joint_sensitivity(10) ** 2, 6), round(joint_sensitivity(1) ** 2, 6)
    (4.5, 4.0)
    """
    return (
        math.sqrt(4.5 if integer("dimension", dimension, at_least=1) > 1 else 4.0)
        * (1 + TOLERANCE) ** 2
    )


def centred_sensitivity(weight: float) -> float:
    """The l2 sensitivity of (w (y - 1/2) x, xxᵀ) to replacing one (x, y): √2 (1 + s²/2), s = w/2.

    For ‖x‖ <= 1 and 0 <= y <= 1.

    Proof. Let r = 2y - 1 in [-1, 1], so that the first part is s r x, and g = ⟨x, x'⟩. The squared
    change is s²(r²‖x‖² + r'²‖x'‖² - 2rr'g) + ‖x‖⁴ + ‖x'‖⁴ - 2g². It is convex in r and in r', so
    both are ±1 at the maximum, and s²(∓2g) - 2g² <= s⁴/2 for every g (complete the square). Norms
    are at most 1, so the square is at most 2s² + 2 + s⁴/2 = 2(1 + s²/2)². Unit vectors with ⟨x, x'⟩
    = -s²/2 and y = y' = 1 attain it where they exist: s² <= 2, in two dimensions or more.

    >>> round(centred_sensitivity(2.0) ** 2, 6)
    4.5
    """
    share = float(positive("weight", weight)) / 2
    return math.sqrt(2) * (1 + share**2 / 2) * (1 + TOLERANCE) ** 2


def pack(bias: Floats, gram: Floats, *, scaled: bool = True, weight: float = 1.0) -> Floats:
    """One vector of a weighted bias and a symmetric matrix; leading axes are batches."""
    rows, columns, weights = _entries(bias.shape[-1], scaled)
    return np.concatenate([weight * bias, gram[..., rows, columns] * weights], axis=-1)


def unpack(
    vector: Floats, dimension: int, *, scaled: bool = True, weight: float = 1.0
) -> tuple[Floats, Floats]:
    """The bias and the symmetric matrix of a vector."""
    if vector.shape[-1] != size(dimension):
        raise TacitError(
            f"{vector.shape[-1]} numbers arrived; dimension {dimension} needs {size(dimension)}: "
            "give all silos the same dimension"
        )
    rows, columns, weights = _entries(dimension, scaled)
    gram = np.zeros((*vector.shape[:-1], dimension, dimension))
    entries = vector[..., dimension:] / weights
    gram[..., rows, columns] = entries
    gram[..., columns, rows] = entries
    return vector[..., :dimension] / weight, gram


def _entries(
    dimension: int, scaled: bool
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Floats]:
    rows, columns = np.triu_indices(dimension)
    return rows, columns, np.where(rows == columns, 1.0, math.sqrt(2) if scaled else 1.0)


@lru_cache(maxsize=64)
def spectral_quantile(dimension: int, level: float) -> float:
    """The `level` quantile of the largest eigenvalue of a unit-variance noise matrix.

    Every entry of the vector has unit variance. By simulation with a fixed seed: of the order of
    √(2d) plus a little. It sets a regularizer, not a guarantee.

    >>> 5.0 < spectral_quantile(10, 0.99) < 5.6
    True
    """
    rng = np.random.default_rng(0)
    draws = max(400, min(4000, 40_000 // dimension))
    _, noise = unpack(rng.standard_normal((draws, size(dimension))), dimension)
    return float(np.quantile(np.linalg.eigvalsh(noise)[:, -1], level))


@lru_cache(maxsize=256)
def spectral_bound(dimension: int, chance: float) -> float:
    """A t that the largest eigenvalue of such a (scaled) noise matrix rarely exceeds.

    The probability is at most `chance`, which is the expected number of eigenvalues above t. The
    matrix is from the Gaussian orthogonal ensemble, whose eigenvalue density is known (Mehta,
    Random Matrices, chapter 7): Σ_{j<d} φ_j² + √(d/2) φ_{d-1} ∫ sgn(x - t)/2 φ_d(t) dt, plus
    φ_{d-1}/∫φ_{d-1} in odd dimensions, φ_j the oscillator functions.

    >>> 5.2 < spectral_bound(10, 0.01) < 5.4
    True
    """
    d, rare = integer("dimension", dimension, at_least=1), float(probability("chance", chance))
    reach = math.sqrt(2 * d) + 14.0
    points, step = np.linspace(-reach, reach, 1 + round(400 * reach), retstep=True)
    before, now = np.zeros_like(points), math.pi**-0.25 * np.exp(-(points**2) / 2)
    density = now**2
    for j in range(1, d):
        before, now = now, _next_oscillator(points, before, now, j)
        density = density + now**2
    after = np.cumsum(_next_oscillator(points, before, now, d)) * step
    density += math.sqrt(d / 2) * now * (after - after[-1] / 2)
    if d % 2:
        density += now / (now.sum() * step)
    beyond = np.cumsum(density[::-1])[::-1] * step
    return float(points[np.flatnonzero(beyond > rare)[-1] + 1])


def _next_oscillator(points: Floats, before: Floats, now: Floats, j: int) -> Floats:
    """φ_j from φ_{j-2} and φ_{j-1}."""
    return np.asarray(points * math.sqrt(2 / j) * now - math.sqrt((j - 1) / j) * before)
