"""The Gaussian mechanism, with exact δ(ε) at every ε.

Adding N(0, σ²) to a query of l2 sensitivity Δ is (ε, δ)-DP if and only if δ is at least Φ(μ/2 -
ε/μ) - e^ε Φ(-μ/2 - ε/μ) with μ = Δ/σ (Balle & Wang 2018). The papers' closed form σ = Δ √(2
ln(1.25/δ)) / ε holds only for ε < 1 (CORRECTIONS 7). The distribution is continuous, so it serves
central and local baselines in simulation; devices add discrete noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtri

from tacit.errors import TacitError, positive, probability
from tacit.privacy.guarantees import ConcentratedDP
from tacit.privacy.renyi import finite_epsilon
from tacit.rounding import delta_up

NARROW = 0.5  # shift in standard deviations, below which two logarithms would cancel
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(7)


def _narrow(t: float, mu: float) -> float:
    """δ at a small shift: φ(t) (R(t) - R(t + μ)) with R(s) = Φ(-s)/φ(s).

    Because e^ε φ(t + μ) = φ(t). It is the integral of φ(t) (1 - s R(s)) from t to t + μ.
    """
    s = t + mu * (_NODES + 1) / 2
    ratio = math.sqrt(math.pi / 2) * erfcx(s / math.sqrt(2))
    falls = float(_WEIGHTS @ (1 - s * ratio).clip(min=0.0)) * mu / 2
    return math.exp(-t * t / 2) / math.sqrt(2 * math.pi) * falls


@dataclass(frozen=True)
class Gaussian:
    """Continuous noise N(0, sigma²), for simulation and comparison.

    It has the methods of a `NoiseDistribution` that calibration uses, and its exact `loss`.
    """

    sigma: float
    mean: ClassVar[float] = 0.0
    kind: ClassVar[str] = "gaussian"
    continuous: ClassVar[Literal[True]] = True
    mgf_radius: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        positive("sigma", self.sigma, "Gaussian noise needs a positive standard deviation")

    @property
    def variance(self) -> float:
        """sigma²."""
        return self.sigma**2

    @property
    def std(self) -> float:
        """sigma."""
        return self.sigma

    def log_mgf(self, s: Any) -> Any:
        """s² sigma² / 2."""
        return (np.asarray(s, dtype=float) * self.sigma) ** 2 / 2

    @classmethod
    def family(cls, std: float) -> tuple[type[Self], float]:
        """Parametrized by sigma."""
        return cls, std

    def concentration(self, l2: float) -> float:
        """The ρ of zCDP: l2² / 2σ²."""
        return l2**2 / (2 * self.sigma**2)

    def loss(self, l2: float) -> GaussianLoss:
        """The exact privacy loss at l2 sensitivity `l2`."""
        return GaussianLoss(self.sigma, l2)

    def scaled(self, factor: float) -> Gaussian:
        """The same noise with its standard deviation multiplied by `factor`."""
        return Gaussian(self.sigma * factor)

    def bound(self, p: float) -> float:
        """The t with P[|X| > t] = p."""
        return -self.sigma * float(ndtri(p / 2))

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...] | None = None) -> Any:
        """Pseudorandom normal values."""
        return self.sigma * rng.standard_normal(size)

    def sample_sum(self, rng: np.random.Generator, count: int, size: tuple[int, ...]) -> Any:
        """Sums of `count` values each.

        Parameters
        ----------
        rng : numpy.random.Generator
            The source of randomness.
        count : int
            The number of values in each sum.
        size : tuple of int
            The shape of the result.

        Returns
        -------
        array
            Pseudorandom sums.
        """
        return self.sigma * math.sqrt(count) * rng.standard_normal(size)


@dataclass(frozen=True)
class GaussianLoss:
    """The exact privacy loss of adding `Gaussian(sigma)` to a query of this l2 sensitivity.

    The paper's noise for (10, 0.25):

    >>> round(GaussianLoss(sigma=0.1794, sensitivity=1).delta(10), 3)
    0.789
    """

    sigma: float
    sensitivity: float

    def __post_init__(self) -> None:
        positive("sigma", self.sigma)
        positive("sensitivity", self.sensitivity, "it is the l2 sensitivity of the query")

    @property
    def pure(self) -> float:
        """inf: the loss is unbounded."""
        return math.inf

    def delta(self, epsilon: float) -> float:
        """Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ), without cancellation in the tail; never 0."""
        at, mu = finite_epsilon(epsilon), self._mu
        if at == 0:
            return math.erf(mu / math.sqrt(8))
        if mu < NARROW:
            return delta_up(_narrow(at / mu - mu / 2, mu))
        one, other = log_ndtr(mu / 2 - at / mu), at + log_ndtr(-mu / 2 - at / mu)
        # so far out, the difference of both logs is rounding error and e^one is 0
        return delta_up(math.exp(one) * -math.expm1(min(0.0, other - one)))

    @property
    def _mu(self) -> float:
        mu = float(self.sensitivity) / float(self.sigma)
        if not 1e-150 < mu < 1e150:
            raise TacitError(
                f"sensitivity {self.sensitivity:g} over sigma {self.sigma:g} is {mu:g}, out of the "
                "range of double precision: "
                "use numbers nearer to each other"
            )
        return mu

    def epsilon(self, delta: float) -> float:
        """The least ε at δ."""
        level = float(probability("delta", delta, "Gaussian noise has no pure guarantee"))
        if self.delta(0.0) <= level:
            return 0.0
        from scipy.optimize import brentq  # slow to import

        high = 1.0
        while self.delta(high) > level:
            high *= 2
        root = float(
            brentq(
                lambda e: math.log(max(self.delta(e), 1e-320)) - math.log(level),
                0.0,
                high,
                xtol=1e-300,
                rtol=1e-14,
            )
        )
        step = 1e-15
        while self.delta(root) > level:  # round up: δ must not exceed the level
            root, step = root * (1 + step), 2 * step
        return root

    def renyi(self, order: float) -> float:
        """αμ²/2."""
        return ConcentratedDP(self._mu**2 / 2).renyi(order)
