"""Directional confidence widths for the difference between two actions, from all phases so far.

For actions b and x let z = b - x. Given the past, phase l estimates ⟨θ*, z⟩ with a sub-Gaussian
error of variance v_l(z) = zᵀM_l z. The error comes from rewards, sampled clients, rounding and
privacy noise, each propagated through the phase's own least squares. Estimates are averaged with
weights 1/v_l(z).

For fixed λ, exp(λ Σ_l error_l/v_l - λ²I/2), I = Σ_l 1/v_l, is a supermartingale. By Ville's
inequality the error of the average stays below λ/2 + ln(1/p)/(λI) at all phases simultaneously with
probability 1 - p. Widths use the best λ of a fixed grid. p is divided among the grid and the k - 1
actions that could wrongly beat the best one: it is ever dropped with probability at most β. Where
an estimate has a further bias, as clipped parameters do, its contribution is added.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tacit.bandits.stored import Kept, plain

Floats = npt.NDArray[np.float64]

GRID = 24  # values of λ, each half the previous one: for precisions I over 14 orders of magnitude
LARGEST = 512.0  # the largest λ, times the bound on rewards
CANCELLED = 1e-13  # rounding error of a difference's variance, relative to the two variances
RIVALS = 16  # the number of leading actions that the others are compared with
DRAWS = 2000  # of θ*, for the probability to be best
SINGULAR = 1e-9  # relative precision below which no phase says anything about a direction


@dataclass(frozen=True, eq=False)
class PhaseEvidence:
    """The estimate of one phase.

    `theta` is its estimate of θ*, `matrix` the M of its error, `cap` the largest λ/√v for which
    that holds. If `beyond` is a matrix B, ⟨θ, z⟩ may be biased by a further ‖Bz‖.
    """

    theta: Floats
    matrix: Floats
    cap: float
    beyond: Floats | None = None


class Seen(NamedTuple):
    """Points, one per row, with every phase's estimates of ⟨θ*, x⟩ and their variances xᵀMx."""

    points: Floats
    estimates: Floats
    variances: Floats


class RunEvidence(Kept):
    """All phases of one run, and which actions survive them."""

    kept = ("_typical",)

    def __init__(
        self, actions: int, dimension: int, bound: float, failure_probability: float
    ) -> None:
        self.level = math.log(max(1, actions - 1) * GRID / failure_probability)
        self.dimension = dimension
        self.largest = LARGEST / bound
        self.phases: list[PhaseEvidence] = []
        self._typical: list[float] = []

    def add(self, phase: PhaseEvidence, active: Floats) -> None:
        """Add a phase; `active`, the actions active in it, determines its weight in `pooled`."""
        self.phases.append(phase)
        centred = active - active.mean(axis=0)
        self._typical.append(
            float(np.einsum("ij,ij->i", centred @ phase.matrix, centred).mean()) + 1e-300
        )

    def pooled(self) -> Floats:
        """One estimate of θ* from all phases, to select leading actions.

        Its quality affects only speed.
        """
        weights = 1 / np.array(self._typical)
        return np.asarray(
            weights @ np.array([phase.theta for phase in self.phases]) / weights.sum()
        )

    def means(self, points: Floats, known: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
        """The averaged estimate of ⟨θ*, x⟩ for each row x, and its standard deviation.

        Uses the first `known` phases of each, because later ones need not span a dropped action.
        The standard deviation is infinite where there are none.
        """
        precision, weighted = np.zeros(len(points)), np.zeros(len(points))
        for number, phase in enumerate(self.phases):
            variance = np.einsum("ij,ij->i", points @ phase.matrix, points) + 1e-300
            weight = np.where(number < known, 1 / variance, 0.0)
            precision += weight
            weighted += points @ phase.theta * weight
        seen = known > 0
        safe = np.where(seen, precision, 1.0)
        return weighted / safe, np.where(seen, 1 / np.sqrt(safe), np.inf)

    def seen(self, points: Floats) -> Seen:
        """Every phase's estimates and variances of these points."""
        thetas = np.array([phase.theta for phase in self.phases])
        variances = [np.einsum("ij,ij->i", points @ p.matrix, points) for p in self.phases]
        return Seen(points, thetas @ points.T, np.array(variances))

    def surviving(self, active: Floats) -> npt.NDArray[np.bool_]:
        """Which active actions no leading action significantly beats."""
        worth = active @ self.pooled()
        leaders = np.argsort(-worth, kind="stable")[:RIVALS].tolist()
        leaders.append(int((active @ self.phases[-1].theta).argmax()))
        alive = np.ones(len(active), dtype=bool)
        seen = self.seen(active)
        for leader in dict.fromkeys(leaders):
            if alive[leader]:
                others = np.flatnonzero(alive)
                gain, width = self.compare(seen, leader, others)
                alive[others[(gain > width) & (others != leader)]] = False
        return alive

    def compare(
        self, seen: Seen, leader: int, others: npt.NDArray[np.int64]
    ) -> tuple[Floats, Floats]:
        """The averaged estimate of ⟨θ*, z⟩ and its one-sided width, for z = leader - x.

        x is each of the others. Variances are (b - x)ᵀM(b - x), expanded, plus a bound on the
        rounding error.
        """
        first, points = seen.points[leader], seen.points[others]
        crossed = np.array([phase.matrix @ first for phase in self.phases]) @ points.T
        both = seen.variances[:, leader, None] + seen.variances[:, others]
        variances = np.maximum(both - 2 * crossed, 0.0) + (CANCELLED * both + 1e-300)
        weights = 1 / variances
        precision = weights.sum(axis=0)
        gains = seen.estimates[:, leader, None] - seen.estimates[:, others]
        weighted = (gains * weights).sum(axis=0)
        beyond = np.zeros(len(others))
        for number, phase in enumerate(self.phases):
            if phase.beyond is not None:
                off = np.linalg.norm((first - points) @ phase.beyond.T, axis=1)
                beyond += off * weights[number]
        return weighted / precision, self._widths(variances, weights, self.level, beyond)

    def _widths(
        self, variances: Floats, weights: Floats, level: float, beyond: Floats | float = 0.0
    ) -> Floats:
        """One-sided widths of averages with these weights of phases, for e^-level per λ."""
        precision = weights.sum(axis=0)
        caps = np.array([phase.cap for phase in self.phases])
        cap = np.where(weights > 0, caps[:, None] * np.sqrt(variances), math.inf).min(axis=0)
        wanted = np.minimum(np.sqrt(2 * level / precision), cap)
        halvings = np.log2(self.largest / wanted)
        step = np.where(wanted < cap, np.round(halvings), np.ceil(halvings)).clip(0, GRID - 1)
        rate = self.largest * 2.0**-step
        rate = np.where(rate > cap, rate / 2, rate)
        allowed = (rate <= cap) & (rate >= self.largest * 2.0 ** (1 - GRID) * (1 - 1e-9))
        width = rate / 2 + (level / rate + beyond) / precision
        return np.where(allowed, width, math.inf)

    def intervals(
        self, points: Floats, known: npt.NDArray[np.int64], failure: float
    ) -> tuple[Floats, Floats]:
        """Anytime-valid bounds on ⟨θ*, x⟩ for all rows x from the first `known` phases of each.

        The probability that any of them ever excludes the truth is at most `failure`. Rows without
        a phase have infinite bounds.
        """
        low, high = np.full(len(points), -math.inf), np.full(len(points), math.inf)
        rows = np.flatnonzero(known)
        if not len(rows) or not failure > 0:
            return low, high
        seen = self.seen(points[rows])
        variances = seen.variances + 1e-300
        used = np.arange(len(self.phases))[:, None] < known[rows]
        weights = np.where(used, 1 / variances, 0.0)
        centre = (seen.estimates * weights).sum(axis=0) / weights.sum(axis=0)
        level = math.log(2 * len(points) * GRID / failure)
        width = self._widths(variances, weights, level)
        low[rows], high[rows] = centre - width, centre + width
        return low, high

    def chances(self, points: Floats) -> Floats:
        """The approximate probability that each row has the largest ⟨θ*, x⟩.

        θ* is normal with the precision of all phases together; a fixed sample of it is counted.
        """
        precisions = [np.linalg.pinv(phase.matrix, hermitian=True) for phase in self.phases]
        pairs = zip(precisions, self.phases, strict=True)
        weighted = np.sum([one @ phase.theta for one, phase in pairs], axis=0)
        values, vectors = np.linalg.eigh(np.sum(precisions, axis=0))
        spread = np.where(values > SINGULAR * values[-1], 1 / np.maximum(values, 1e-300), 0.0)
        normal = np.random.default_rng(0).standard_normal((DRAWS, len(spread)))
        sample = (vectors * spread) @ (vectors.T @ weighted) + (
            normal * np.sqrt(spread)
        ) @ vectors.T
        leaders = (sample @ points.T).argmax(axis=1)
        return np.bincount(leaders, minlength=len(points)) / DRAWS

    def to_dict(self) -> dict[str, Any]:
        """The state as plain data."""
        phases = [{name: plain(one) for name, one in vars(phase).items()} for phase in self.phases]
        return {"phases": phases, **super().to_dict()}

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Restore what `to_dict` returned."""
        super().restore(stored)
        self.phases = [
            PhaseEvidence(
                np.array(item["theta"]),
                np.array(item["matrix"]),
                math.inf if item["cap"] is None else float(item["cap"]),
                None if item.get("beyond") is None else np.array(item["beyond"]),
            )
            for item in stored["phases"]
        ]
