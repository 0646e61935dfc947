"""Near-G-optimal designs: distributions of plays that estimate all actions about equally well.

A design is a distribution π over actions; g(π) = max over actions of ‖x‖² in the norm of V(π)⁻¹,
V(π) = Σ π(x) x xᵀ. The minimum of g is the dimension (Kiefer & Wolfowitz 1960). Phased elimination
needs g <= 2d on a support of at most 4d ln ln d + 16 actions (LZJ22 Algorithm 1, after Lattimore,
Szepesvári & Weisz 2020).

The search takes Wynn's steps towards the action of largest variance and away from actions of small
variance (Todd & Yıldırım 2007), from an initial point as in Kumar & Yıldırım 2005. Actions that do
not span the space are treated in their span.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit.errors import TacitError

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

RANK_TOLERANCE = 1e-12  # relative size of an eigenvalue of Σ x xᵀ below which it counts as zero
MOST_STEPS = 100_000
REFRESH = 50  # rank-one updates between full recomputations


def largest_support(dimension: int) -> int:
    """⌊4d ln ln d + 16⌋ (LZJ22 Algorithm 1); 16 for d = 1, where ln ln d is undefined.

    >>> largest_support(20), largest_support(2), largest_support(1)
    (103, 13, 16)
    """
    return math.floor(4 * dimension * math.log(math.log(dimension)) + 16) if dimension > 1 else 16


@dataclass(frozen=True, eq=False)
class DesignWeights:
    """A design: its support and weights, the dimension of the actions' span, the certified g(π)."""

    support: Indices
    weights: Floats
    dimension: int
    g: float

    def plays(self, length: float) -> Indices:
        """⌈length · π(x)⌉ for each supported action."""
        return np.ceil(length * self.weights * (1 - 1e-12)).astype(np.int64)


def certificate(actions: Floats, support: Indices, weights: Floats) -> float:
    """g(π) from its definition: the largest xᵀ V(π)⁺ x over all actions.

    Infinite if an action is outside the span of the support. Independent of the search: it uses
    eigenvectors of V(π) in the original coordinates.
    """
    chosen = actions[support]
    values, vectors = np.linalg.eigh((chosen * weights[:, None]).T @ chosen)
    present = values > RANK_TOLERANCE * values[-1]
    coordinates = actions @ vectors
    outside = float((coordinates[:, ~present] ** 2).sum(axis=1).max()) if not present.all() else 0.0
    if outside > 1e-8 * float((actions**2).sum(axis=1).max()):
        return math.inf
    return float(((coordinates[:, present] ** 2) @ (1 / values[present])).max())


def near_g_optimal(actions: npt.ArrayLike, *, ratio: float = 2.0) -> DesignWeights:
    """A design with g(π) <= ratio · (dimension of the span) on few actions.

    If a ratio below 2 needs more actions than `largest_support`, it is increased until it does not.
    The cost is one pass over the actions per step: about 10 to 20 steps per dimension at ratio 1.2,
    fewer at 2.

    >>> design = near_g_optimal([[1.0, 0.0], [0.0, 1.0], [0.1, 0.1]])
    >>> design.support.tolist(), design.weights.tolist(), round(design.g, 6)
    ([0, 1], [0.5, 0.5], 2.0)
    """
    points = np.asarray(actions, dtype=float)
    if points.ndim != 2 or not len(points) or not np.isfinite(points).all():
        raise TacitError(
            f"actions have shape {points.shape}; a design needs a table of finite numbers, one row "
            "per action"
        )
    if not ratio > 1:
        raise TacitError(
            f"ratio is {ratio}; no design has g below the dimension: use a ratio above 1, such as 2"
        )
    white = _whiten(points)
    dimension = white.shape[1]
    if dimension == 0:
        raise TacitError(
            "all actions are zero, so no parameter can be estimated: give at least one other action"
        )
    search = _Search(white, _first_points(white))
    search.run(ratio * dimension)
    support, weights = search.pruned(ratio * dimension)
    g = certificate(points, support, weights)
    most = largest_support(dimension)
    if len(support) > most and ratio < 2.0:
        return near_g_optimal(points, ratio=min(2.0, 1 + 1.5 * (ratio - 1)))
    return DesignWeights(support, weights, dimension, g)


def exact_design(actions: npt.ArrayLike, plays: int) -> tuple[Indices, Indices]:
    """Round a design to `plays` plays: the actions, and the number of plays of each.

    One action per dimension of the span, and then the action of largest variance, again and again
    (Wynn 1970).

    >>> support, counts = exact_design([[1.0, 0.0], [0.0, 1.0], [0.1, 0.1]], plays=5)
    >>> support.tolist(), counts.tolist()
    ([0, 1], [3, 2])
    """
    white = _whiten(np.asarray(actions, dtype=float))
    counts = np.zeros(len(white), dtype=np.int64)
    start = _first_points(white)
    if plays < len(start):
        raise TacitError(f"plays is {plays}: must be at least {len(start)}, one per dimension")
    counts[start] = 1
    inverse = np.linalg.inv(white[start].T @ white[start])
    for _ in range(plays - len(start)):
        images = white @ inverse
        variances = np.einsum("ij,ij->i", images, white)
        worst = int(variances.argmax())
        inverse -= np.outer(images[worst], images[worst]) / (1 + variances[worst])
        counts[worst] += 1
    support = np.flatnonzero(counts)
    return support, counts[support]


def _whiten(points: Floats) -> Floats:
    """Coordinates of the span in which Σ x xᵀ is the identity; g is invariant to coordinates."""
    values, vectors = np.linalg.eigh(points.T @ points)
    present = values > RANK_TOLERANCE * max(float(values[-1]), 1e-300)
    return np.asarray(points @ (vectors[:, present] / np.sqrt(values[present])))


def _first_points(white: Floats) -> Indices:
    """One action per dimension, by pivoted Gram-Schmidt: the longest after projection."""
    remaining = np.einsum("ij,ij->i", white, white)
    basis = np.empty((0, white.shape[1]))
    chosen: list[int] = []
    for _ in range(white.shape[1]):
        remaining[chosen] = -1.0
        pick = int(remaining.argmax())
        chosen.append(pick)
        direction = white[pick] - basis.T @ (basis @ white[pick])
        direction -= basis.T @ (basis @ direction)
        direction /= np.linalg.norm(direction)
        basis = np.vstack([basis, direction])
        remaining -= (white @ direction) ** 2
    return np.array(sorted(chosen))


class _Search:
    """Weights on all actions, V⁻¹ and variances xᵀV⁻¹x, maintained by rank-one updates."""

    def __init__(self, white: Floats, start: Indices) -> None:
        self.white = white
        self.dimension = white.shape[1]
        self.weights = np.zeros(len(white))
        self.weights[start] = 1 / len(start)
        self._refresh()

    def _refresh(self) -> None:
        held = np.flatnonzero(self.weights)
        chosen = self.white[held]
        self.inverse = np.linalg.inv((chosen * self.weights[held, None]).T @ chosen)
        self.variances = np.einsum("ij,ij->i", self.white @ self.inverse, self.white)

    def run(self, target: float) -> None:
        """Step until the largest variance is at most the target."""
        for step in range(MOST_STEPS):
            if step % REFRESH == REFRESH - 1:
                self._refresh()
            worst = int(self.variances.argmax())
            if self.variances[worst] <= target * (1 - 1e-9):
                self._refresh()
                if self.variances.max() <= target * (1 - 1e-9):
                    return
                continue
            held = np.flatnonzero(self.weights)
            known = int(held[self.variances[held].argmin()])
            towards = (
                self.variances[worst] - self.dimension >= self.dimension - self.variances[known]
            )
            self._move(worst if towards else known)
        raise TacitError(
            f"no design with g <= {target:g} was found in {MOST_STEPS:,} steps: ask for a larger "
            "ratio"
        )

    def _move(self, index: int) -> None:
        """The step along one action that increases det V most.

        A negative step removes weight, at most all of it.
        """
        variance, weight = float(self.variances[index]), float(self.weights[index])
        lowest = -weight / (1 - weight) if weight < 1 else -math.inf
        step = (variance / self.dimension - 1) / (variance - 1) if variance > 1 else lowest
        dropped = step <= lowest
        step = max(step, lowest)
        self.weights *= 1 - step
        self.weights[index] = 0.0 if dropped else self.weights[index] + step
        image = self.inverse @ self.white[index]
        scale = step / (1 - step)
        factor = scale / (1 + scale * variance)
        self.inverse = (self.inverse - factor * np.outer(image, image)) / (1 - step)
        self.variances = (self.variances - factor * (self.white @ image) ** 2) / (1 - step)

    def pruned(self, target: float) -> tuple[Indices, Floats]:
        """Support and weights without the lightest actions, as far as g stays within the target."""
        support = np.flatnonzero(self.weights)
        order = support[np.argsort(self.weights[support])]
        low, high = 0, len(order) - self.dimension
        while low < high:
            middle = (low + high + 1) // 2
            if self._g(order[middle:]) <= target * (1 - 1e-9):
                low = middle
            else:
                high = middle - 1
        kept = np.sort(order[low:])
        return kept, self.weights[kept] / self.weights[kept].sum()

    def _g(self, kept: Indices) -> float:
        chosen, weights = self.white[kept], self.weights[kept] / self.weights[kept].sum()
        matrix = (chosen * weights[:, None]).T @ chosen
        if np.linalg.matrix_rank(matrix, hermitian=True) < self.dimension:
            return math.inf
        return float(np.einsum("ij,ij->i", self.white @ np.linalg.inv(matrix), self.white).max())
