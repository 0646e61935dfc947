"""Privacy loss of nearly Gaussian integer noise, by its distance from a rounded Gaussian.

Rounding N(0, σ²) to integers is post-processing, so a rounded Gaussian on an integer query has the
exact δ(ε) of the Gaussian mechanism. A wide discrete Gaussian, Skellam or fair binomial
distribution lies within a tiny total variation distance of a rounded Gaussian. That distance is
computed, not assumed, and added to δ. At large δ this is far tighter than converting zCDP or Rényi
bounds: 27% less noise at (0.2, 0.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from tacit.errors import integer, positive
from tacit.noise import NoiseDistribution
from tacit.privacy.gaussian import GaussianLoss
from tacit.privacy.guarantees import ConcentratedDP
from tacit.privacy.search import least


@lru_cache(maxsize=256)
def distance_from_gaussian(distribution: NoiseDistribution) -> float:
    """Bound the total variation distance between centred noise and rounded N(0, variance).

    Results are cached.

    >>> from tacit.noise import DiscreteGaussian
    >>> distance_from_gaussian(DiscreteGaussian(1000.0)) < 2.1e-8
    True
    """
    return distribution.distance_from_gaussian()


@dataclass(frozen=True)
class NearlyGaussianLoss:
    """The loss of adding `distribution` to each of `coordinates` integers, at l2 sensitivity
    `sensitivity`.

    `shares` > 1: the noise is the sum of that many shares of a distribution that is not divisible.
    With |ln ratio| <= ψ between the sum and one draw everywhere, (ε', δ') of one draw is (ε' + 2ψ,
    e^ψ δ') of the sum. As for the Gaussian mechanism, the bound also holds when later queries
    depend on earlier outputs: noise is independent and the sensitivity is fixed in advance.

    >>> from tacit.noise import DiscreteGaussian
    >>> loss = NearlyGaussianLoss(DiscreteGaussian(3731.0), 1000.0, coordinates=65)
    >>> round(loss.epsilon(1e-5), 2)
    1.0
    """

    distribution: NoiseDistribution
    sensitivity: float
    coordinates: int
    shares: int = 1

    def __post_init__(self) -> None:
        positive("sensitivity", self.sensitivity, "it is the l2 sensitivity of the integers")
        integer("coordinates", self.coordinates, at_least=1)

    @property
    def divergence(self) -> float:
        """ψ: the log ratio between the sum of shares and one draw; 0 for divisible noise."""
        if self.shares == 1 or self.distribution.divisible:
            return 0.0
        return self.coordinates * self.distribution.approximate_share(self.shares).closeness(
            self.shares
        )

    @property
    def distance(self) -> float:
        """Total variation distance of all coordinates together."""
        return min(1.0, self.coordinates * distance_from_gaussian(self.distribution))

    def delta(self, epsilon: float) -> float:
        """An upper bound on the least δ at ε."""
        psi = self.divergence
        inner = epsilon - 2 * psi
        if not inner >= 0:
            return 1.0
        exact = GaussianLoss(self.distribution.std, self.sensitivity).delta(inner)
        return min(1.0, math.exp(psi) * (exact + (1 + math.exp(min(inner, 700.0))) * self.distance))

    def epsilon(self, delta: float) -> float:
        """An upper bound on the least ε at δ, by bisection to the safe end."""
        if self.delta(0.0) <= delta:
            return 0.0
        gaussian = GaussianLoss(self.distribution.std, self.sensitivity)
        enough = gaussian.epsilon(delta / 2) + 2 * self.divergence
        if not self.delta(enough) <= delta:
            return self._concentrated(delta)
        return float(least(lambda e: self.delta(e) <= delta, enough))

    def _concentrated(self, delta: float) -> float:
        """The ε at δ by zCDP, for large ε, where a small distance is multiplied by e^ε.

        inf for distributions without a known zCDP bound.
        """
        psi, rho = self.divergence, self.distribution.concentration(self.sensitivity)
        if rho is None or psi > 1:
            return math.inf
        return ConcentratedDP(rho).epsilon_at(delta * math.exp(-psi)) + 2 * psi


@dataclass(frozen=True)
class GroupedGaussianLoss:
    """The loss of a vector of integers whose coordinates have noise of several widths.

    A group is (distribution, unit, coordinates): the real value of a coordinate is its integer
    times the unit. The query has l2 sensitivity `sensitivity` in real values. Rounded Gaussians of
    standard deviation σ_g on coordinates of group g are a Gaussian mechanism, whose sensitivity
    relative to its noise is at most that of the group of least unit · σ_g. The distances of all
    coordinates add up, as in `NearlyGaussianLoss`; so do the divergences of `shares`.

    >>> from tacit.noise import DiscreteGaussian
    >>> groups = ((DiscreteGaussian(43000.0), 1e-4, 8), (DiscreteGaussian(21500.0), 2e-4, 36))
    >>> GroupedGaussianLoss(groups, 1.0).delta(1.0) < 1e-6
    True
    """

    groups: tuple[tuple[NoiseDistribution, float, int], ...]
    sensitivity: float
    shares: int = 1

    @property
    def std(self) -> float:
        """The least standard deviation of a coordinate, in real values."""
        return min(one.std * unit for one, unit, _ in self.groups)

    def delta(self, epsilon: float) -> float:
        """An upper bound on the least δ at ε."""
        psi = sum(
            NearlyGaussianLoss(one, 1.0, count, self.shares).divergence
            for one, _, count in self.groups
        )
        inner = epsilon - 2 * psi
        if not inner >= 0:
            return 1.0
        distance = sum(count * distance_from_gaussian(one) for one, _, count in self.groups)
        exact = GaussianLoss(self.std, self.sensitivity).delta(inner)
        return min(1.0, math.exp(psi) * (exact + (1 + math.exp(min(inner, 700.0))) * distance))
