"""What an arm's batches have shown, and the large-deviation bounds on its mean: sampling and noise together.

The statistic is W = Σ h_b S_b over batches, S_b the estimated sum of n_b rewards, h_b = 1/(1/4 + v_b/n_b) its weight
(v_b the variance of its noise): an inverse-variance mean once divided by Σ h_b n_b. For a true mean q and any θ > 0

    E[e^{-θW}] <= Π_b (1 - q + q e^{-θ h_b})^{n_b} · M_b(-θ h_b),

because among rewards in [0, 1] of mean q the Bernoulli one has the largest moment generating function; M_b is that of
the noise. So q is refuted at level L when sup_θ [-θW - ln of the right-hand side] > L, and a true mean is refuted
with probability at most e^{-L}. That holds for a design (sizes, weights, noise laws) that does not depend on the
rewards of this arm: weights are set without looking at them. It does not cover batches that were misread; their
probability adds to e^{-L}.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tacit.bandits.contract import EstimateLike
from tacit.noise.cumulants import Cumulants, cumulants
from tacit.noise.serialize import law_from_dict, law_to_dict


@dataclass
class Group:
    """Batches of one weight and one noise law; only their number, users and total matter."""

    weight: float
    precision: int
    noise: Any
    users: int = 0
    batches: int = 0
    total: float = 0.0
    cumulants: Cumulants = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.cumulants = cumulants(self.noise)


@dataclass(frozen=True)
class Bound:
    """A bound on the mean at a level; `slope` bounds its growth with the level, `tilt` is the θ that gave it."""

    value: float
    slope: float = 0.0
    tilt: float = 0.0


class Evidence:
    """The estimates of one arm, grouped, with Chernoff bounds on its mean.

    `forget` is the share of the arm's users whose (oldest) batches may be dropped to keep the sums short.
    """

    def __init__(self, forget: float = 0.0) -> None:
        self.forget = forget
        self.users = 0
        self.batches = 0
        self._forgotten = 0
        self._groups: list[Group] = []

    def add(self, estimate: EstimateLike) -> None:
        """Take in one batch."""
        error = estimate.error
        users, variance = int(error.users), float(error.variance)
        weight = 1 / (0.25 + variance / users)
        groups = self._groups
        if not (
            groups
            and groups[-1].weight == weight
            and groups[-1].precision == error.precision
            and groups[-1].noise == error.noise
        ):
            groups.append(Group(weight, int(error.precision), error.noise))
        groups[-1].users += users
        groups[-1].batches += 1
        groups[-1].total += float(estimate.total)
        self.users += users
        self.batches += 1
        while self._forgotten + groups[0].users <= self.forget * self.users:
            self._forgotten += groups.pop(0).users

    @property
    def mean(self) -> float:
        """The inverse-variance mean of the batch means; noise may put it outside [0, 1]."""
        return sum(g.weight * g.total for g in self._groups) / sum(g.weight * g.users for g in self._groups)

    @property
    def spread(self) -> tuple[float, float]:
        """(A, C) such that the mean has variance A·p(1-p) + C for rewards of mean p: sampling and privacy."""
        scale = sum(g.weight * g.users for g in self._groups) ** 2
        sampling = sum(g.weight**2 * g.users for g in self._groups)
        noise = sum(g.weight**2 * g.batches * g.cumulants(0.0)[2] / g.precision**2 for g in self._groups)
        return sampling / scale, noise / scale

    def upper(self, level: float, start: Bound | None = None) -> Bound:
        """The largest mean that is not refuted at `level` from above."""
        return self._solve(level, -1.0, sum(g.weight * g.total for g in self._groups), start)

    def lower(self, level: float) -> Bound:
        """The least mean that is not refuted at `level`: the upper bound for 1 - reward, reflected."""
        mirrored = self._solve(level, 1.0, sum(g.weight * (g.users - g.total) for g in self._groups), None)
        return Bound(1 - mirrored.value, mirrored.slope, mirrored.tilt)

    def _solve(self, level: float, side: float, statistic: float, start: Bound | None) -> Bound:
        """The least root q of G(θ, q) = level over θ, G the exponent above: convex and rising in q, concave in θ.

        Newton in both at once. Whatever θ it stops at, its last step in q lands on the safe side for that θ (a Newton
        step on a convex rising function ends at or above the root), so stopping early gives a wider bound, never a
        wrong one.
        """
        capacity = sum(g.weight * g.users for g in self._groups)
        if statistic >= capacity:
            return Bound(1.0)
        theta, q = (
            (start.tilt, start.value)
            if start is not None and start.tilt > 0
            else self._guess(level, statistic, capacity)
        )
        for _ in range(100):
            g, g1, g2, gq, g1q = self._exponent(theta, q, side, statistic)
            if g == -math.inf:  # beyond the noise's moments
                theta *= 0.6
                continue
            root = q + (level - g) / gq
            moved = min(max(root, 0.0), 1.0)
            step = -(g1 + g1q * (moved - q)) / g2
            if abs(step) < 3e-3 * theta and abs(moved - q) <= 1e-5 * max(abs(moved - statistic / capacity), 1e-9):
                return Bound(moved, 0.0 if moved in (0.0, 1.0) else 1 / gq, theta)
            theta = min(max(theta + step, theta / 4), 4 * theta)
            q = moved
        while True:  # did not settle: keep θ, which is safe, and walk down to its root
            g, _, _, gq, _ = self._exponent(theta, q, side, statistic)
            if g == -math.inf:
                return Bound(1.0)
            moved = min(max(q + (level - g) / gq, 0.0), 1.0)
            if abs(moved - q) < 1e-9:
                return Bound(moved, 0.0 if moved in (0.0, 1.0) else 1 / gq, theta)
            q = moved

    def _guess(self, level: float, statistic: float, capacity: float) -> tuple[float, float]:
        """(θ, q) of the Gaussian bound."""
        a, c = self.spread
        centre = min(max(statistic / capacity, 0.0), 1.0)
        variance = a * max(centre * (1 - centre), min(0.25, level * a / 2)) + c
        return math.sqrt(2 * level / variance) / capacity, min(centre + math.sqrt(2 * level * variance), 1.0)

    def _exponent(
        self, theta: float, q: float, side: float, statistic: float
    ) -> tuple[float, float, float, float, float]:
        """G and its derivatives G_θ, G_θθ, G_q, G_θq; `side` is the sign with which the noise enters."""
        g, g1, g2, gq, g1q = -theta * statistic, -statistic, 0.0, 0.0, 0.0
        log1p, expm1 = math.log1p, math.expm1
        for group in self._groups:
            users, weight = group.users, group.weight
            c = -expm1(-theta * weight)
            d = 1 - q * c
            g -= users * log1p(-q * c)
            gq += users * c / d
            part = users * weight * (1 - c) / d
            g1 += part * q
            part /= d
            g1q += part
            g2 -= part * q * (1 - q) * weight
            if group.noise is not None:
                scale = weight / group.precision
                k, k1, k2 = group.cumulants(side * theta * scale)
                g -= group.batches * k
                g1 -= side * group.batches * scale * k1
                g2 -= group.batches * scale * scale * k2
        return g, g1, g2 or -math.inf, gq, g1q

    def to_dict(self) -> dict[str, Any]:
        """The groups as plain data."""
        groups = [
            {
                "weight": g.weight,
                "precision": g.precision,
                "noise": None if g.noise is None else law_to_dict(g.noise),
                "users": g.users,
                "batches": g.batches,
                "total": g.total,
            }
            for g in self._groups
        ]
        return {"users": self.users, "batches": self.batches, "forgotten": self._forgotten, "groups": groups}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], forget: float = 0.0) -> Evidence:
        """The reverse of `to_dict`."""
        evidence = cls(forget)
        evidence.users, evidence.batches, evidence._forgotten = data["users"], data["batches"], data["forgotten"]
        for entry in data["groups"]:
            noise = entry["noise"]
            evidence._groups.append(Group(**(entry | {"noise": None if noise is None else law_from_dict(noise)})))
        return evidence
