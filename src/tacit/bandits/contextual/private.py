"""Lazy LinUCB in every silo on a data-independent schedule, with noise-aware confidence widths.

Rewards are recorded minus ½ and weighted against xxᵀ, so that the noise is balanced between both
statistics as their joint sensitivity allows (`moments.centred_sensitivity`). There are two widths.
`rigorous` has two terms and a proof (`PrivateLinUCB.radius`) and holds for all actions and
synchronisations simultaneously. `calibrated` is the standard deviation of the actual error times a
normal quantile, for one action and one synchronisation; it has no proof, but its coverage is
measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtri, ndtri

from tacit.bandits.contextual import moments
from tacit.bandits.contextual.linucb import CENTRE, LinUCBPolicy
from tacit.bandits.contextual.silos import SiloLearner, SiloStatistics
from tacit.bandits.contract import Plan
from tacit.errors import TacitError, integer, one_of, positive, probability
from tacit.types import Estimate, Floats, Round

MODES = ("rigorous", "calibrated")
SPREAD = 0.5  # rewards in [0, 1] minus their means are ½-sub-Gaussian (Hoeffding)
USUAL = 0.01  # probability with which the noise of one release exceeds the bound if calibrated
REGULARIZED = {"rigorous": 0.4, "calibrated": 0.7}  # (λ - 1) / bound on the noise's eigenvalues
LEAST = 0.1  # smallest eigenvalue after repair, relative to the regularizer


@dataclass(frozen=True)
class CentredRewards:
    """Model of rewards by features, and the weight with which silos record them: w (y - ½).

    Parameters
    ----------
    weight
        The weight w of rewards minus ½; see `moments.centred_sensitivity`.
    constant
        The value of the last feature, if it is the same for every action. Otherwise an intercept is
        appended, and features are scaled down to make room for it.
    norm
        A public bound on the norm of the parameter, part of the problem: that of the rewards minus
        ½ if there is a constant feature, otherwise that of the rewards.
    clip
        Whether features and rewards out of bounds are clipped and counted instead of rejected.

    >>> round(CentredRewards(norm=1.5).shrink ** 2, 9)
    0.75
    """

    weight: float = 2.0
    constant: float | None = None
    norm: float = 1.0
    clip: bool = False

    def __post_init__(self) -> None:
        positive("weight", self.weight)
        positive("norm", self.norm)

    @property
    def shrink(self) -> float | None:
        """The a of (a x, √(1 - a²)) that minimises the bound on the parameter's norm: `norm` + ½.

        The parameter of the rewards minus ½ is (θ/a, -½/√(1 - a²)).
        """
        return None if self.constant is not None else math.sqrt(self.norm / (self.norm + CENTRE))

    @property
    def length(self) -> float:
        """A bound on the norm of the parameter of the rewards minus ½."""
        return float(self.norm if self.constant is not None else self.norm + CENTRE)


CENTRED = CentredRewards()


class PrivateLinUCB(SiloLearner):
    """LinUCB in every silo, from private sums only (ZC24 Algorithm 8).

    Parameters
    ----------
    schedule
        Rounds of each batch; the rest of the horizon is played, not reported.
    noise
        The standard deviation of the noise in each entry of each release.
    mode, failure_probability
        The width and its failure probability: at any time for any action (`rigorous`), or at one
        synchronisation for one action (`calibrated`).
    rewards
        The linear model of rewards, and how they are recorded.

    >>> learner = PrivateLinUCB(3, 2, 25, schedule=[10, 10], noise=[1.0, 1.0])
    >>> learner.propose()[0].time, learner.size, learner.rewards.length
    (10, 3, 1.5)
    """

    kept = ("repairs", "_released", "_bias", "_gram", "_covariance", "_shift")

    def __init__(
        self,
        silos: int,
        dimension: int,
        horizon: int,
        schedule: Sequence[int],
        noise: Sequence[float],
        *,
        mode: str = "rigorous",
        failure_probability: float = 0.01,
        rewards: CentredRewards = CENTRED,
    ) -> None:
        super().__init__(None, horizon)
        self.silos = integer("silos", silos, at_least=1)
        self.dimension = integer("dimension", dimension, at_least=1)
        self.schedule = tuple(integer("schedule", batch, at_least=1) for batch in schedule)
        self.noise = tuple(map(float, noise))
        if len(self.noise) != len(self.schedule):
            raise TacitError(
                f"the schedule has {len(self.schedule)} batches, the noise {len(self.noise)} "
                "numbers: give one for each"
            )
        one_of("mode", mode, MODES)
        probability("failure_probability", failure_probability)
        self.mode, self.failure_probability = mode, float(failure_probability)
        self.rewards = rewards
        self.repairs = self._released = 0
        self._bias, self._gram = np.zeros(self.size), np.eye(self.size)
        self._covariance = np.eye(self.size)
        self._shift = 0.0

    @property
    def size(self) -> int:
        """The number of features, including an appended one."""
        return self.dimension + (self.rewards.constant is None)

    @property
    def statistics(self) -> SiloStatistics:
        """Sums of w (y - ½) x and xxᵀ; silos are lazy."""
        moved = moments.centred_sensitivity(self.rewards.weight)
        return SiloStatistics(moments.size(self.size), moved, max(self.schedule, default=1), True)

    def radius(self, steps: int) -> float:
        """The factor of an action's width after this many reported rounds.

        Rigorous. Let W and b be the true sums of xxᵀ and (y - ½)x, N and h the noise in them, V = W
        + N + Λ and Vθ = b + h, Λ the regularizer. For the true parameter θ*, V(θ - θ*) = Σ xη + (h
        - Nθ*) - Λθ*. Rewards in [0, 1] minus their means, η, are ½-sub-Gaussian. So at all times
        simultaneously, except with probability α/3, Σ xη has norm at most β = ½ √(2 ln(3/α) + d
        ln(1 + Mt/d)) with respect to (W + I)⁻¹ (Abbasi-Yadkori, Pál & Szepesvári 2011, Theorem 1).
        Silos' choices depend on releases only, so their noise does not affect that. W is at most W
        + N + qI in all K releases, except with probability α/3, q the noise's
        `moments.spectral_bound` at α/3K. The rest has norm at most `noise_shift`. The error of an
        action's mean is thus at most β √(xᵀCx) + `noise_shift` ‖V⁻¹x‖, with
        C = V⁻¹(W + N + (1 + q)I)V⁻¹. This assumes means that are linear in x, which those of
        rewards clipped to [0, 1] are not.

        Calibrated. The normal quantile at 1 - α/2, as a factor of the standard deviation from
        `_error`.
        """
        if self.mode == "calibrated":
            return float(ndtri(1 - self.failure_probability / 2))
        seen = self.size * math.log1p(self.silos * steps / self.size)
        return SPREAD * math.sqrt(2 * math.log(3 / self.failure_probability) + seen)

    def eigenvalue_bound(self, noise: float) -> float:
        """q: a bound on the largest eigenvalue of the noise in a Gram matrix."""
        chance = (
            self.failure_probability / (3 * len(self.noise)) if self.mode == "rigorous" else USUAL
        )
        return noise * moments.spectral_bound(self.size, chance)

    def noise_shift(self, noise: float, regularizer: float, raised: float) -> float:
        """A bound on ‖Λθ* - e‖, e = h - Nθ*, in all releases, except with probability α/3.

        N has off-diagonal entries of half the variance v of the diagonal ones and h has variance
        v/w². So for ‖θ*‖ <= S, e is normal with covariance (v/w² + v‖θ*‖²/2) I + v θ*θ*ᵀ/2, at most
        (v/w² + vS²) I. Its norm and its component along θ* exceed their quantiles with probability
        α/6K each. Where Λ = λI, ‖Λθ* - e‖² = λ²‖θ*‖² - 2λ⟨θ*, e⟩ + ‖e‖². Where eigenvalues were
        `raised` by more than λ, Λ depends on the noise, and the norms are added.
        """
        chance = self.failure_probability / (6 * len(self.noise))
        spread = noise * math.hypot(1 / self.rewards.weight, self.rewards.length)
        length = spread * math.sqrt(float(chdtri(self.size, chance)))
        if raised > regularizer:
            return raised * self.rewards.length + length
        along, reach = -spread * float(ndtri(chance)), regularizer * self.rewards.length
        return math.sqrt(reach**2 + 2 * reach * along + length**2)

    def best(self) -> None:
        """None: the best action depends on the context."""

    def _plan(self) -> Plan:
        """The next batch of every silo; the rest after the last batch is played, not reported."""
        left, due = self.horizon - self.played, self.schedule[self._released :]
        released = bool(due) and due[0] <= left
        return [(self.policy(due[0] if released else left), self.silos, released)]

    def policy(self, steps: int) -> LinUCBPolicy:
        """The policy after the last release, for this number of steps."""
        reported = sum(self.schedule[: self._released])
        return LinUCBPolicy(
            tuple(self._bias.tolist()),
            _rows(self._gram),
            (self.radius(reported),) * steps,
            lazy=True,
            clip=self.rewards.clip,
            shift=self._shift,
            covariance=_rows(self._covariance),
            weight=self.rewards.weight,
            constant=self.rewards.constant,
            shrink=self.rewards.shrink,
            in_turn=self._released == 0,
        )

    def _learn(self, round_: Round, estimate: Estimate) -> None:  # noqa: ARG002
        """Unpack, regularise and repair the sums of a released prefix sum."""
        total = np.asarray(estimate.total, dtype=float)
        bias, gram = moments.unpack(total, self.size, weight=self.rewards.weight)
        noise = self.noise[self._released]
        largest = self.eigenvalue_bound(noise)
        lam = 1.0 + REGULARIZED[self.mode] * largest
        values, vectors = np.linalg.eigh((gram + gram.T) / 2)
        least = max(1.0, LEAST * lam)
        shifted = np.maximum(values + lam, least)
        self.repairs += bool(values[0] + lam < least)
        self._bias, self._gram = np.array(bias), (vectors * shifted) @ vectors.T
        inverse = (vectors / shifted) @ vectors.T
        if self.mode == "rigorous":
            inner = (vectors * np.maximum(values + 1 + largest, 1.0)) @ vectors.T
            self._shift = self.noise_shift(noise, lam, max(lam, least - float(values[0])))
        else:
            seen = (vectors * np.maximum(values, 0.0)) @ vectors.T
            inner = self._error(seen, noise, lam)
        self._covariance = inverse @ inner @ inverse
        self._released += 1

    def _error(self, seen: Floats, noise: float, regularizer: float) -> Floats:
        """The covariance of V(θ - θ*), at its worst where it is unknown.

        The sum of R²W for rewards, R = ½; v/w² + v‖θ*‖²/2 in every direction for the noise; and λθ*
        for the regularizer, as if θ* had the largest norm and any direction.
        """
        square = self.rewards.length**2
        spread = noise**2 * (self.rewards.weight**-2 + square / 2)
        bias = regularizer**2 * square / self.size
        result: Floats = SPREAD**2 * seen + (spread + bias) * np.eye(self.size)
        return result


def _rows(matrix: Floats) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in matrix.tolist())
