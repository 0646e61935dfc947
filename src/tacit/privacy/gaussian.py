"""The Gaussian mechanism, exactly, at every ε.

Adding N(0, σ²) to a query of l2 sensitivity Δ is (ε, δ)-DP if and only if δ is at least Φ(μ/2 -
ε/μ) - e^ε Φ(-μ/2 - ε/μ) with μ = Δ/σ (Balle & Wang 2018). The closed form σ = Δ √(2 ln(1.25/δ)) / ε
of the papers holds only for ε < 1 (CORRECTIONS 7). The law is continuous, so it serves central and
local baselines in simulation; what devices add is discrete.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtri

from tacit.errors import TacitError, positive, probability
from tacit.privacy.guarantees import ConcentratedDP, finite_epsilon

NARROW = 0.5  # standard deviations that are moved, below which two logarithms would cancel
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(7)


def _narrow(t: float, mu: float) -> float:
    """δ where little is moved: with R(s) = Φ(-s)/φ(s), and because e^ε φ(t + μ) = φ(t), it is
    φ(t) (R(t) - R(t + μ)), the integral of φ(t) (1 - s R(s)) from t to t + μ.
    """
    s = t + mu * (_NODES + 1) / 2
    ratio = math.sqrt(math.pi / 2) * erfcx(s / math.sqrt(2))
    falls = float(_WEIGHTS @ (1 - s * ratio).clip(min=0.0)) * mu / 2
    return math.exp(-t * t / 2) / math.sqrt(2 * math.pi) * falls


@dataclass(frozen=True)
class Gaussian:
    """Continuous noise N(0, sigma²), for simulation and for comparison.

    It answers what calibration asks of a `NoiseLaw`, and has its exact `loss` besides.
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
        """By sigma."""
        return cls, std

    def concentration(self, l2: float) -> float:
        """l2² / 2σ²."""
        return l2**2 / (2 * self.sigma**2)

    def loss(self, l2: float) -> GaussianLoss:
        """The exact loss of adding it to numbers that move by `l2` in all."""
        return GaussianLoss(self.sigma, l2)

    def scaled(self, factor: float) -> Gaussian:
        """The same kind of noise with its standard deviation multiplied."""
        return Gaussian(self.sigma * factor)

    def bound(self, p: float) -> float:
        """The t with P[|X| > t] = p."""
        return -self.sigma * float(ndtri(p / 2))

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...] | None = None) -> Any:
        """Pseudorandom normal values."""
        return self.sigma * rng.standard_normal(size)

    def sample_sum(self, rng: np.random.Generator, count: int, size: tuple[int, ...]) -> Any:
        """Sums of so many values each."""
        return self.sigma * math.sqrt(count) * rng.standard_normal(size)


@dataclass(frozen=True)
class GaussianLoss:
    """The exact loss of adding `Gaussian(sigma)` to a query of l2 sensitivity `sensitivity`.

    # the paper's noise for (10, 0.25)
    >>> round(GaussianLoss(sigma=0.1794, sensitivity=1).delta(10), 3)
    0.789
    """

    sigma: float
    sensitivity: float

    def __post_init__(self) -> None:
        positive("sigma", self.sigma)
        positive(
            "sensitivity",
            self.sensitivity,
            "the most that one person can move the query, in l2 norm",
        )

    @property
    def pure(self) -> float:
        """Unbounded."""
        return math.inf

    def delta(self, epsilon: float) -> float:
        """Φ(μ/2 - ε/μ) - e^ε Φ(-μ/2 - ε/μ), without cancellation in the tail."""
        at, mu = finite_epsilon(epsilon), self._mu
        if at == 0:
            return math.erf(mu / math.sqrt(8))
        if mu < NARROW:
            return _narrow(at / mu - mu / 2, mu)
        one, other = log_ndtr(mu / 2 - at / mu), at + log_ndtr(-mu / 2 - at / mu)
        # so far out that the difference of both logs is rounding, e^one is 0
        return math.exp(one) * -math.expm1(min(0.0, other - one)) + 0.0

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
        level = float(
            probability("delta", delta, "Gaussian noise has no guarantee without exceptions")
        )
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
        while self.delta(root) > level:  # the safe side
            root, step = root * (1 + step), 2 * step
        return root

    def renyi(self, order: float) -> float:
        """αμ²/2."""
        return ConcentratedDP(self._mu**2 / 2).renyi(order)
