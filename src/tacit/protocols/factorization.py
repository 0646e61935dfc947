"""Matrix factorizations for private prefix sums: which rows are released, and how sums are
reconstructed.

The matrix A of all prefix sums (ones on and below the diagonal) is factored as A = L R. At step k a
noisy row of R times the data is released; L is applied to all released rows as post-processing. The
binary tree is one factorization (ZC24 Algorithm 2). The square root of A is better: at 400 steps
its prefix sums have 9 times less variance at the same guarantee. The optimal factorization is found
numerically, for given importances of the sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from tacit.errors import TacitError, integer, one_of

Floats = npt.NDArray[np.float64]
Kind = Literal["tree", "prefix", "square-root", "optimal"]
KINDS: tuple[Kind, ...] = ("tree", "prefix", "square-root", "optimal")
CLOSE, PASSES = 1e-9, 2000  # tolerance and iterations of the optimal factorization


@dataclass(frozen=True, eq=False)
class Factorization:
    """A = left @ right over `steps` steps.

    With noise of variance σ² in every released row, the prefix sums have covariance σ² ·
    `covariance`. A participant of one batch moves all released rows by at most the largest column
    norm of `right` times the movement of the batch's sum.

    >>> factorize("tree", 400).movement() ** 2  # 1 + floor(log2 400) nodes
    9.0
    >>> root = factorize("square-root", 400)
    >>> round(float(root.movement() ** 2 * root.variances[-1]), 2)
    8.84
    """

    kind: Kind
    right: Floats
    left: Floats
    importance: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        given = np.array(self.right, dtype=float), np.array(self.left, dtype=float)
        known = given if self.kind == "optimal" else _factors(self.kind, len(given[0]))
        if not all(map(np.array_equal, given, known)):
            raise TacitError(
                f"the factors are not those of the {self.kind} kind, for which the sensitivity is "
                "derived: use factorize"
            )
        for name, factor in zip(("right", "left"), known, strict=True):
            factor.flags.writeable = False
            object.__setattr__(self, name, factor)

    @property
    def steps(self) -> int:
        """The number of prefix sums."""
        return len(self.right)

    @property
    def covariance(self) -> Floats:
        """Covariance of the prefix sums, for released rows of unit variance."""
        result: Floats = self.left @ self.left.T
        return result

    @property
    def variances(self) -> Floats:
        """The diagonal of `covariance`."""
        result: Floats = np.einsum("kj,kj->k", self.left, self.left)
        return result

    @property
    def rows_moved(self) -> int:
        """The most rows that contain one batch."""
        return int((self.right != 0).sum(axis=0).max())

    def movement(self, batches: int = 1) -> float:
        """The l2 sensitivity of all released rows to a participant of at most `batches` batches,
        who moves each by 1.

        For the tree and the square root all entries of `right` are at least 0. The worst case
        therefore moves every batch in the same direction, and the worst batches are the first ones.

        Square root: the inner product of columns a < b falls with b - a and with b. The p-th and
        q-th of any batches are at least q - p apart, and the q-th is at position q or later. Tree:
        at every level the sum of squared node counts is largest when nodes are filled one after the
        other. Optimal: entries have any sign. For any batches and movements, the square is at most
        the sum of |inner products| of their columns; a batch contributes at most its largest ones.
        """
        remedy = "a participant is in at least one batch"
        count = min(integer("batches", batches, at_least=1, remedy=remedy), self.steps)
        if self.kind == "optimal":
            products = np.sort(np.abs(self.right.T @ self.right), axis=1)
            each = products[:, -count:].sum(axis=1)
            return math.sqrt(float(np.sort(each)[-count:].sum()))
        return float(np.linalg.norm(self.right[:, :count].sum(axis=1)))


@lru_cache(maxsize=256)
def squared_silos(shape: Factorization, batches: int, each: int, silos: int) -> float:
    """The largest Σ_k V_k² for a participant of at most `batches` batches, at `each` silos in each
    of them, where V_k of all `silos` are visited in the batches of row k.

    With b_k of the chosen batches in row k, V_k is at most min(silos, each · b_k), reached by
    different silos in every batch. The worst batches depend on where the minimum switches, so all
    choices are searched. Rows contain batches up to their own, and of two rows one contains all or
    none of the other's batches. The best for a row with b batches is the best split of b among the
    rows within it (max-plus convolution).

    Parameters
    ----------
    shape
        The factorization; a row counts as containing every batch from its first one on.
    batches, each, silos
        Batches per participant, silos visited in each of them, all silos.

    Returns
    -------
    float
        Σ_k V_k² at the worst choice of batches.

    Examples
    --------
    Two batches of a tree over four: the first is in rows 1, 2, 4, the second in 2 and 4.

    >>> tree = factorize("tree", 4)
    >>> squared_silos(tree, 1, 1, 9), squared_silos(tree, 2, 1, 9), squared_silos(tree, 2, 1, 1)
    (3.0, 9.0, 4.0)
    """
    most = min(batches, shape.steps)
    worth = np.minimum(silos, each * np.arange(most + 1.0)) ** 2
    rows: list[
        tuple[int, Floats]
    ] = []  # last batch of each row not yet contained in a later one, and its best values
    for step, row in enumerate(shape.right):
        first, best = int(np.flatnonzero(row)[0]), np.zeros(2)  # without batch `step`, or with it
        while rows and rows[-1][0] >= first:
            best = _shared(best, rows.pop()[1], most)
        rows.append((step, best + worth[: len(best)]))
    total = np.zeros(1)
    for _, best in rows:
        total = _shared(total, best, most)
    return float(total[-1])


def _shared(row: Floats, other: Floats, most: int) -> Floats:
    """The best split of 0, 1, ..., `most` batches between two rows."""
    few, many = sorted((row, other), key=len)
    best = np.full(min(len(few) + len(many) - 1, most + 1), -np.inf)
    for count, value in enumerate(few):
        part = best[count : count + len(many)]
        np.maximum(part, value + many[: len(part)], out=part)
    return best


@lru_cache(maxsize=16)
def factorize(kind: Kind, steps: int, importance: tuple[float, ...] = ()) -> Factorization:
    """The factorization of a kind for `steps` prefix sums.

    - `tree`: row k is the node that is complete at step k (ZC24 Algorithm 2).
    - `prefix`: the same noise, but each sender adds up nodes itself and sends prefix sums
      (Algorithm 4).
    - `square-root`: both factors are the square root of A, Toeplitz with coefficients C(2m, m) /
      4^m.
    - `optimal`: the columns of `right` have the same norm, and Σ `importance`[k] · variance of sum
      k is minimal.
    """
    count = integer("steps", steps, at_least=1, remedy="use a horizon of at least one batch")
    if kind == "optimal":
        return _optimal(count, importance)
    return Factorization(kind, *_factors(kind, count))


@lru_cache(maxsize=16)
def _factors(kind: Kind, count: int) -> tuple[Floats, Floats]:
    """The right and the left factor of a kind that needs no importances."""
    if kind == "square-root":
        coefficients = np.cumprod(np.append(1.0, 1 - 0.5 / np.arange(1, count)))
        lags = np.subtract.outer(np.arange(count), np.arange(count))
        root = np.where(lags >= 0, coefficients[np.abs(lags)], 0.0)
        return root, root
    one_of("factorization", kind, KINDS)
    right, left = np.zeros((count, count)), np.zeros((count, count))
    for k in range(1, count + 1):
        right[k - 1, k - (k & -k) : k] = 1.0
        node = k
        while node:
            left[k - 1, node - 1] = 1.0
            node -= node & -node
    return right, left


def depth(steps: int) -> int:
    """⌊log₂ K⌋ + 1: the number of tree nodes that contain one batch (CORRECTIONS 6)."""
    return math.floor(math.log2(integer("steps", steps, at_least=1))) + 1


def _optimal(steps: int, importance: tuple[float, ...]) -> Factorization:
    """min tr(S X⁻¹) over X = RᵀR with unit diagonal, S = Aᵀ diag(importance) A (Denisov, McMahan,
    Rush, Smith & Thakurta 2022).

    X = D^{-1/2} (D^{1/2} S D^{1/2})^{1/2} D^{-1/2} for the diagonal matrix D that is a fixed point
    of D = diag((D^{1/2} S D^{1/2})^{1/2}). Columns are scaled to norm 1 at the end, so that the
    sensitivity does not depend on convergence. R is the triangular root of X: row k needs no data
    of later steps.
    """
    weights = np.array(importance, dtype=float)
    if len(weights) != steps or not (weights > 0).all():
        raise TacitError(
            f"importance has {len(weights)} numbers; give one above 0 for each of {steps} sums"
        )
    sums = np.tril(np.ones((steps, steps)))
    target = sums.T @ (weights[:, None] * sums)
    multipliers, inner = np.ones(steps), target
    for _ in range(PASSES):
        root = np.sqrt(multipliers)
        inner = _square_root(root[:, None] * target * root)
        moved = float(np.abs(np.diag(inner) / multipliers - 1).max())
        if moved < CLOSE:
            break
        multipliers = np.diag(inner).copy()
    product = inner / np.sqrt(np.outer(np.diag(inner), np.diag(inner)))
    root = np.linalg.cholesky(product[::-1, ::-1]).T[::-1, ::-1]
    right: Floats = np.tril(root / np.linalg.norm(root, axis=0))
    left: Floats = np.tril(sums @ np.linalg.inv(right))
    return Factorization("optimal", right, left, tuple(importance))


def _square_root(matrix: Floats) -> Floats:
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    result: Floats = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return result
