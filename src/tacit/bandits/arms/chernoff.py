"""Chernoff bounds on an arm's mean from its batches, for sampling and noise together.

The statistic is W = Σ h_b S_b over batches, S_b the estimated sum of n_b rewards and h_b = 1/(1/4 +
v_b/n_b) its weight (v_b the variance of its noise). W / Σ h_b n_b is an inverse-variance weighted
mean. For a true mean q and any θ > 0

    E[e^{-θW}] <= Π_b (1 - q + q e^{-θ h_b})^{n_b} · M_b(-θ h_b),

because among rewards in [0, 1] of mean q the Bernoulli distribution has the largest moment
generating function; M_b is that of the noise. So q is rejected at level L when sup_θ [-θW - ln of
the right-hand side] > L, and a true mean is rejected with probability at most e^{-L}. This assumes
that sizes, weights and noise distributions do not depend on the rewards of this arm; weights are
set without them. It does not cover misread batches: their probability adds to e^{-L}.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit.bandits.arms.bounds import MeanBound
from tacit.bandits.stored import Kept, noisy_from_dict, noisy_to_dict
from tacit.noise.cumulants import Cumulants, cumulants
from tacit.types import Estimate

# largest θh; if all observed rewards are 0 the optimal θ is infinite, and e^-30 is close enough
STEEPEST = 30.0


@dataclass
class BatchGroup:
    """Batches of one size and noise distribution, stored as totals; exact sums of any size."""

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


class ArmEvidence(Kept):
    """The estimates of one arm, grouped, with Chernoff bounds on its mean.

    `forget` is the share of the arm's participants whose oldest batches may be dropped to keep the
    sums short.
    """

    kept = ("users", "batches", "_forgotten")

    def __init__(self, forget: float = 0.0) -> None:
        self.forget = forget
        self.users = 0
        self.batches = 0
        self._forgotten = 0
        self._groups: list[BatchGroup] = []
        self._terms: list[tuple[int, float, int, float, Cumulants | None]] = []
        self._statistic = self._capacity = self._sampling = self._noise = 0.0

    def add(self, estimate: Estimate) -> None:
        """Add one batch."""
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
        """Cache ΣhS, Σhn, Σh²n, Σh²v, and (n, h, batches, h/precision, K) per group."""
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
        """The inverse-variance weighted mean of the batches, possibly outside [0, 1] by noise."""
        return self._statistic / self._capacity

    @property
    def spread(self) -> tuple[float, float]:
        """(A, C) such that the mean has variance A·p(1-p) + C for rewards of mean p.

        A is due to sampling, C to privacy noise.
        """
        return self._sampling / self._capacity**2, self._noise / self._capacity**2

    @property
    def effective(self) -> float:
        """The effective number of exact rewards, by a normal approximation of the noise.

        It is p(1-p) over the variance, p the mean shrunk slightly towards 1/2.
        """
        sampling, noise = self.spread
        mean, pull = min(max(self.mean, 0.0), 1.0), sampling + 4 * noise
        shrunk = (mean + 2 * pull) / (1 + 4 * pull)
        return 1 / (sampling + noise / (shrunk * (1 - shrunk)))

    def upper(self, level: float, start: MeanBound | None = None) -> MeanBound:
        """The largest mean not rejected at `level`.

        `start` is an earlier bound from the same batches.
        """
        return self._solve(level, -1.0, self._statistic, start)

    def lower(self, level: float) -> MeanBound:
        """The smallest mean not rejected at `level`: the reflected upper bound for 1 - reward."""
        mirrored = self._solve(level, 1.0, self._capacity - self._statistic, None)
        return MeanBound(1 - mirrored.value, -mirrored.slope, mirrored.tilt, level)

    def exponent(self, mean: float) -> float:
        """The highest level at which a mean above the estimate is rejected: sup of G over θ.

        Newton's method in θ with bisection as fallback; every θ gives a valid level.
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
            if g == -math.inf:  # the noise's moment is infinite
                high, theta = theta, (low + theta) / 2
                continue
            best = max(best, g)
            if g1 * g1 < -2e-4 * g2 * best:  # gain of a step; near a pole steps are short
                break
            low, high = (theta, high) if g1 > 0 else (low, theta)
            theta -= g1 / g2
            if not low < theta < high:
                theta = (low + high) / 2
        return best

    def _solve(
        self, level: float, side: float, statistic: float, start: MeanBound | None
    ) -> MeanBound:
        """The smallest root q of G(θ, q) = level over θ.

        G, the exponent in the module's docstring, is convex and increasing in q and concave in θ.
        Newton's method in both variables. For any final θ the last step in q is on the safe side: a
        Newton step on a convex increasing function ends at or above the root. Stopping early
        therefore widens the bound and never invalidates it.
        """
        mean = statistic / self._capacity
        if mean >= 1:
            return MeanBound(1.0, 0.0, 0.0, level)
        if start is not None and start.tilt > 0:
            theta, q = start.tilt * math.sqrt(level / start.level), min(start.at(level), 1.0)
        else:
            theta, q = self._guess(level, mean)
        finite, steepest = 0.0, STEEPEST / max(group.weight for group in self._groups)
        theta = min(theta, steepest)  # a first guess from one participant may be arbitrary
        for _ in range(100):
            g, g1, g2, gq, g1q = self._exponent(theta, q, side, statistic)
            if g == -math.inf:  # the noise's moment is infinite
                steepest, theta = theta, (theta + finite) / 2
                continue
            if (
                q == 0.0 and g > level
            ):  # noise alone does not explain the statistic: every mean is rejected
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
        # no convergence: keep the last θ, which is valid, and solve for its root from above
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
        """G and its derivatives G_θ, G_θθ, G_q, G_θq; `side` is the sign of the noise."""
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
        """The state as plain data."""
        return super().to_dict() | {"groups": list(map(noisy_to_dict, self._groups))}

    def restore(self, stored: Mapping[str, Any]) -> None:
        """Restore what `to_dict` returned."""
        super().restore(stored)
        self._groups = [noisy_from_dict(BatchGroup, one) for one in stored["groups"]]
        self._sum_up()
