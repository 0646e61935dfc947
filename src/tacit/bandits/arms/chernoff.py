"""What an arm's batches have shown, and the large-deviation bounds on its mean: sampling and noise
together.

The statistic is W = Σ h_b S_b over batches, S_b the estimated sum of n_b rewards, h_b = 1/(1/4 +
v_b/n_b) its weight (v_b the variance of its noise): an inverse-variance mean once divided by Σ h_b
n_b. For a true mean q and any θ > 0

    E[e^{-θW}] <= Π_b (1 - q + q e^{-θ h_b})^{n_b} · M_b(-θ h_b),

because among rewards in [0, 1] of mean q the Bernoulli one has the largest moment generating
function; M_b is that of the noise. So q is refuted at level L when sup_θ [-θW - ln of the
right-hand side] > L, and a true mean is refuted with probability at most e^{-L}. That holds for a
design (sizes, weights, noise laws) that does not depend on the rewards of this arm: weights are set
without looking at them. It does not cover batches that were misread; their probability adds to
e^{-L}.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tacit.bandits.arms.bounds import MeanBound
from tacit.noise.cumulants import Cumulants, cumulants
from tacit.noise.serialize import law_from_dict, law_to_dict
from tacit.types import Estimate

# largest θh; where all rewards seen were 0 the best θ is infinite, and e^-30 is close enough
STEEPEST = 30.0


@dataclass
class BatchGroup:
    """Batches of one size and noise law (exact sums: of any size); only their number, users and
    total matter.
    """

    weight: float
    precision: int
    noise: Any
    size: int
    users: int = 0
    batches: int = 0
    total: float = 0.0

    def __post_init__(self) -> None:
        self.function: Cumulants | None = None if self.noise is None else cumulants(self.noise)
        self.variance = 0.0 if self.function is None else self.function(0.0)[2] / self.precision**2


class ArmEvidence:
    """The estimates of one arm, grouped, with Chernoff bounds on its mean.

    `forget` is the share of the arm's users whose (oldest) batches may be dropped to keep the sums
    short.
    """

    def __init__(self, forget: float = 0.0) -> None:
        self.forget = forget
        self.users = 0
        self.batches = 0
        self._forgotten = 0
        self._groups: list[BatchGroup] = []
        self._terms: list[tuple[int, float, int, float, Cumulants | None]] = []
        self._statistic = self._capacity = self._sampling = self._noise = 0.0

    def add(self, estimate: Estimate) -> None:
        """Take in one batch."""
        error, groups = estimate.error, self._groups
        users, precision, noise = int(error.participants), int(error.precision), error.noise
        last = groups[-1] if groups else None
        if last is None or last.size != users or last.precision != precision or last.noise != noise:
            weight = 1 / (0.25 + float(error.variance) / users)
            if noise is not None or last is None or last.noise is not None:
                last = BatchGroup(weight, precision, noise, users)
                groups.append(last)
        last.users += users
        last.batches += 1
        last.total += float(estimate.total)
        self.users += users
        self.batches += 1
        while self._forgotten + groups[0].users <= self.forget * self.users:
            self._forgotten += groups.pop(0).users
        self._sum_up()

    def _sum_up(self) -> None:
        """What the bounds need again and again: ΣhS, Σhn, Σh²n, Σh²v, and per group (n, h, batches,
        h/precision, K).
        """
        self._statistic = self._capacity = self._sampling = self._noise = 0.0
        for group in self._groups:
            weight, users = group.weight, group.users
            self._statistic += weight * group.total
            self._capacity += weight * users
            self._sampling += weight * weight * users
            self._noise += weight * weight * group.batches * group.variance
        self._terms = [
            (g.users, g.weight, g.batches, g.weight / g.precision, g.function) for g in self._groups
        ]

    @property
    def mean(self) -> float:
        """The inverse-variance mean of the batch means; noise may put it outside [0, 1]."""
        return self._statistic / self._capacity

    @property
    def spread(self) -> tuple[float, float]:
        """(A, C) such that the mean has variance A·p(1-p) + C for rewards of mean p: sampling and
        privacy.
        """
        return self._sampling / self._capacity**2, self._noise / self._capacity**2

    @property
    def effective(self) -> float:
        """How many exact rewards would be worth as much, by a normal approximation of the noise:
        p(1-p) over the variance, p a little nearer to one half than the mean.
        """
        sampling, noise = self.spread
        mean, pull = min(max(self.mean, 0.0), 1.0), sampling + 4 * noise
        shrunk = (mean + 2 * pull) / (1 + 4 * pull)
        return 1 / (sampling + noise / (shrunk * (1 - shrunk)))

    def upper(self, level: float, start: MeanBound | None = None) -> MeanBound:
        """The largest mean that is not refuted at `level`; `start` is an earlier bound from the
        same batches.
        """
        return self._solve(level, -1.0, self._statistic, start)

    def lower(self, level: float) -> MeanBound:
        """The least mean that is not refuted at `level`: the upper bound for 1 - reward,
        reflected.
        """
        mirrored = self._solve(level, 1.0, self._capacity - self._statistic, None)
        return MeanBound(1 - mirrored.value, -mirrored.slope, mirrored.tilt, level)

    def exponent(self, mean: float) -> float:
        """The highest level at which a mean above the estimate is refuted: sup of G over θ.

        Newton in θ, between what is known to be too low and too high; any θ gives a level that
        holds.
        """
        gap = mean - self.mean
        if gap <= 0:
            return 0.0
        a, c = self.spread
        low, high = 0.0, STEEPEST / max(group.weight for group in self._groups)
        spread = (a * mean * (1 - mean) + c) * self._capacity
        theta, best = min(gap / spread, high / 2), 0.0
        for _ in range(60):
            g, g1, g2, _, _ = self._exponent(theta, mean, -1.0, self._statistic)
            if g == -math.inf:  # beyond the noise's moments
                high, theta = theta, (low + theta) / 2
                continue
            best = max(best, g)
            if g1 * g1 < -2e-4 * g2 * best:  # what a step would gain; near a pole steps are short
                break
            low, high = (theta, high) if g1 > 0 else (low, theta)
            theta -= g1 / g2
            if not low < theta < high:
                theta = (low + high) / 2
        return best

    def _solve(
        self, level: float, side: float, statistic: float, start: MeanBound | None
    ) -> MeanBound:
        """The least root q of G(θ, q) = level over θ, G the exponent above: convex and rising in q,
        concave in θ.

        Newton in both at once. Whatever θ it stops at, its last step in q lands on the safe side
        for that θ (a Newton step on a convex rising function ends at or above the root), so
        stopping early widens the bound, never breaks it.
        """
        mean = statistic / self._capacity
        if mean >= 1:
            return MeanBound(1.0, 0.0, 0.0, level)
        if start is not None and start.tilt > 0:
            theta, q = start.tilt * math.sqrt(level / start.level), min(start.at(level), 1.0)
        else:
            theta, q = self._guess(level, mean)
        finite, steepest = 0.0, STEEPEST / max(group.weight for group in self._groups)
        theta = min(theta, steepest)  # a first guess from one participant may be anything
        for _ in range(100):
            g, g1, g2, gq, g1q = self._exponent(theta, q, side, statistic)
            if g == -math.inf:  # beyond the noise's moments
                steepest, theta = theta, (theta + finite) / 2
                continue
            if (
                q == 0.0 and g > level
            ):  # noise alone does not explain what was seen: every mean is refuted
                return MeanBound(0.0, 0.0, theta, level)
            finite = theta
            moved = min(max(q + (level - g) / gq, 0.0), 1.0)
            step = -(g1 + g1q * (moved - q)) / g2
            if theta + step > steepest:
                step = (steepest - theta) / 2
            if (
                abs(step) < 0.02 * theta
                and abs(moved - q) <= 1e-3 * min(abs(moved - mean), 1 - moved) + 1e-12
            ):
                return MeanBound(moved, 0.0 if moved in (0.0, 1.0) else 1 / gq, theta, level)
            theta = max(min(theta + step, 4 * theta), theta / 4)
            q = moved
        # did not settle: keep the last θ, which is as valid as any, and come down to its root
        q = 1.0
        for _ in range(50):
            g, _, _, gq, _ = self._exponent(finite, q, side, statistic)
            q = min(max(q + (level - g) / gq, 0.0), q)
        return MeanBound(q, 0.0 if q in (0.0, 1.0) else 1 / gq, finite, level)

    def _guess(self, level: float, mean: float) -> tuple[float, float]:
        """(θ, q) of the Gaussian bound."""
        a, c = self.spread
        centre = min(max(mean, 0.0), 1.0)
        variance = a * max(centre * (1 - centre), min(0.25, level * a / 2)) + c
        return math.sqrt(2 * level / variance) / self._capacity, min(
            centre + math.sqrt(2 * level * variance), 1.0
        )

    def _exponent(
        self, theta: float, q: float, side: float, statistic: float
    ) -> tuple[float, float, float, float, float]:
        """G and its derivatives G_θ, G_θθ, G_q, G_θq; `side` is the sign with which the noise
        enters.
        """
        g, g1, g2, gq, g1q = -theta * statistic, -statistic, 0.0, 0.0, 0.0
        log1p, expm1 = math.log1p, math.expm1
        variance = q * (1 - q)
        for users, weight, batches, scale, function in self._terms:
            c = -expm1(-theta * weight)
            d = 1 - q * c
            g -= users * log1p(-q * c)
            gq += users * c / d
            part = users * weight * (1 - c) / d
            g1 += part * q
            part /= d
            g1q += part
            g2 -= part * variance * weight
            if function is not None:
                k, k1, k2 = function(side * theta * scale)
                g -= batches * k
                g1 -= side * batches * scale * k1
                g2 -= batches * scale * scale * k2
        return g, g1, g2 or -math.inf, gq, g1q

    def to_dict(self) -> dict[str, Any]:
        """The groups as plain data."""
        groups = [
            asdict(g) | {"noise": None if g.noise is None else law_to_dict(g.noise)}
            for g in self._groups
        ]
        return {
            "users": self.users,
            "batches": self.batches,
            "forgotten": self._forgotten,
            "groups": groups,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], forget: float = 0.0) -> ArmEvidence:
        """The reverse of `to_dict`."""
        evidence = cls(forget)
        evidence.users, evidence.batches, evidence._forgotten = (
            data["users"],
            data["batches"],
            data["forgotten"],
        )
        for entry in data["groups"]:
            noise = entry["noise"]
            evidence._groups.append(
                BatchGroup(**(entry | {"noise": None if noise is None else law_from_dict(noise)}))
            )
        evidence._sum_up()
        return evidence
