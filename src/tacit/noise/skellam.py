"""Skellam noise: the difference of two Poisson variables, closed under sums and infinitely
divisible.

The variance is any positive number, and one of n shares is Skellam noise of variance / n. This
makes it the natural noise for secure aggregation under Rényi DP. See CZ23 Definition 5 and Theorem
2; Agarwal, Kairouz & Liu 2021.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tacit.errors import Number, positive
from tacit.noise.cumulants import OUTSIDE, Cumulants
from tacit.noise.distribution import Floats, NoiseDistribution, plain
from tacit.noise.log_functions import log_scaled_bessel
from tacit.sampling.draws import draw_skellam


@dataclass(frozen=True)
class Skellam(NoiseDistribution):
    """P[X = k] = e^{-v} I_k(v) for variance v, on the integers.

    Parameters
    ----------
    variance : number
        Variance, > 0; a fraction keeps shares exact.

    Notes
    -----
    `skellam_renyi` states the Rényi DP bound (Agarwal, Kairouz & Liu 2021, Theorem 3.5).

    Examples
    --------
    >>> Skellam(1388).share(4)
    Skellam(variance=Fraction(347, 1))
    >>> round(float(Skellam(2).pmf(0)), 6)
    0.308508
    """

    variance: Number  # type: ignore[assignment]
    mean = 0.0
    log_concave = True

    def __post_init__(self) -> None:
        positive("variance", self.variance, "one of n shares has variance / n")
        object.__setattr__(self, "variance", plain(self.variance))

    def log_pmf(self, k: npt.ArrayLike) -> Floats:
        """ln P[X = k], elementwise."""
        return log_scaled_bessel(k, float(self.variance))

    def log_mgf(self, s: npt.ArrayLike) -> Floats:
        """v (cosh s - 1)."""
        return float(self.variance) * 2 * np.sinh(np.asarray(s, dtype=float) / 2) ** 2

    def power(self, times: Number) -> Skellam:
        """Skellam of `times` times the variance: independent copies add up exactly."""
        return Skellam(Fraction(self.variance) * positive("share fraction", times))

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...] | None = None) -> Any:
        """The difference of two Poisson samples."""
        half = float(self.variance) / 2
        return rng.poisson(half, size) - rng.poisson(half, size)

    @classmethod
    def of_std(cls, std: float) -> Self:
        """Variance std²."""
        return cls(std**2)

    @classmethod
    def family(cls, std: float) -> tuple[type[Self], float]:
        """Parametrised by variance."""
        return cls, std**2

    def renyi_bound(self, order: int, l2: float, dimension: int) -> float:
        """Agarwal, Kairouz & Liu 2021, Theorem 3.5."""
        return skellam_renyi(float(self.variance), l2, dimension, order)

    def cumulants(self) -> Cumulants:
        """v (cosh s - 1), v sinh s, v cosh s."""
        v = float(self.variance)
        return lambda s: (
            (2 * v * math.sinh(s / 2) ** 2, v * math.sinh(s), v * math.cosh(s))
            if -700 < s < 700
            else OUTSIDE
        )

    def _draw_one(self) -> int:
        return draw_skellam(Fraction(self.variance))


def skellam_renyi(variance: float, l2: float, dimension: int, order: int) -> float:
    """The Rényi divergence bound αΔ₂²/(2v) + min(((2α-1)Δ₂² + 6Δ₁)/(4v²), 3Δ₁/(2v)), at integer
    orders (Agarwal, Kairouz & Liu 2021, Theorem 3.5).

    Δ₁ is at most √d Δ₂, and at most Δ₂² because movements are integers. In one dimension both are
    Δ₂.

    Parameters
    ----------
    variance : float
        The variance v of the noise in each coordinate.
    l2 : float
        The l2 sensitivity Δ₂.
    dimension : int
        The number d of coordinates.
    order : int
        The Rényi order α > 1.

    Returns
    -------
    float
        An upper bound on the divergence.
    """
    l1 = min(math.sqrt(dimension) * l2, l2 * l2) if dimension > 1 else l2
    correction = min(
        ((2 * order - 1) * l2**2 + 6 * l1) / (2 * variance) / (2 * variance),
        3 * l1 / (2 * variance),
    )
    return order * l2**2 / (2 * variance) + correction
