"""Discrete Gaussian noise, and bounds on sums of its shares.

P[X = k] is proportional to e^{-k²/(2σ²)}. The distribution is not divisible: a sum of n discrete
Gaussians is only close to a discrete Gaussian. `sum_divergence` bounds the distance (Kairouz, Liu &
Steinke 2021); for moderate sizes `power` gives the exact distribution of the sum. See CZ23 Theorem
4 and CORRECTIONS 11.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tacit.errors import Number, integer, positive
from tacit.noise.cumulants import Cumulants
from tacit.noise.distribution import Floats, NoiseDistribution, no_power, plain
from tacit.noise.laplace import DiscreteLaplace
from tacit.noise.table import Table, convolution_power
from tacit.sampling.draws import draw_gaussian


@dataclass(frozen=True)
class DiscreteGaussian(NoiseDistribution):
    """P[X = k] proportional to e^{-k² / (2 sigma²)}, on the integers.

    Parameters
    ----------
    sigma : number
        Parameter of the distribution, > 0; equal to the standard deviation in double precision from
        sigma = 3 on.

    Notes
    -----
    Satisfies ρ-zCDP with ρ = Δ₂² / 2σ² (CKS20 Theorem 14). Not divisible: shares are
    DiscreteGaussian(sigma / √n), whose sum is within `closeness(n)` of this distribution.

    Examples
    --------
    >>> noise = DiscreteGaussian(3)
    >>> round(noise.variance, 9), noise.quantile(0.975)
    (9.0, 6)
    """

    sigma: Number
    mean = 0.0
    log_concave = True
    divisible = False
    sum_tells_all = True

    def __post_init__(self) -> None:
        positive("sigma", self.sigma, "a discrete Gaussian needs a positive standard deviation")
        object.__setattr__(self, "sigma", plain(self.sigma))

    @cached_property
    def _sums(self) -> tuple[float, float]:
        """Σ e^{-k²/2σ²} and Σ k² e^{-k²/2σ²}, directly or by Poisson summation, whichever converges
        faster.
        """
        s = float(self.sigma)
        j = np.arange(1, 13, dtype=float)
        if s < 1.0:
            with np.errstate(over="ignore"):
                terms = np.exp(-((j / s) ** 2) / 2)
            return 1 + 2 * float(terms.sum()), 2 * float((j * j * terms).sum())
        dual = np.exp(-2 * (math.pi * s * j) ** 2)
        total = math.sqrt(2 * math.pi) * s * (1 + 2 * float(dual.sum()))
        second = (
            math.sqrt(2 * math.pi)
            * s**3
            * (1 + 2 * float(((1 - (2 * math.pi * s * j) ** 2) * dual).sum()))
        )
        return total, second

    @property
    def variance(self) -> float:
        """Just below sigma²; equal to it in double precision from sigma = 3 on."""
        total, second = self._sums
        return second / total

    def log_pmf(self, k: npt.ArrayLike) -> Floats:
        """-k²/(2σ²) - ln of the normaliser."""
        return -((np.asarray(k, dtype=float) / float(self.sigma)) ** 2) / 2 - math.log(
            self._sums[0]
        )

    def log_mgf(self, s: npt.ArrayLike) -> Floats:
        """ln E[e^{sX}] = s²σ²/2 + ln(ϑ(sσ²) / ϑ(0)), with ϑ(c) the normaliser of the distribution
        centred at c.
        """
        s = np.asarray(s, dtype=float)
        sigma = float(self.sigma)
        centre = s * sigma**2
        j = np.arange(-40, 41, dtype=float) if sigma < 1 else np.arange(1, 7, dtype=float)
        if sigma < 1:
            offset = (centre - np.round(centre))[..., None]
            exponents = -(((j - offset) / sigma) ** 2) / 2
            peak = exponents.max(axis=-1)
            log_shifted = peak + np.log(np.exp(exponents - peak[..., None]).sum(axis=-1))
        else:
            waves = np.cos(2 * math.pi * centre[..., None] * j) * np.exp(
                -2 * (math.pi * sigma * j) ** 2
            )
            log_shifted = math.log(math.sqrt(2 * math.pi) * sigma) + np.log1p(
                2 * waves.sum(axis=-1)
            )
        result: Floats = s * centre / 2 + log_shifted - math.log(self._sums[0])
        return result

    def power(self, times: Number) -> NoiseDistribution:
        """The exact distribution of a sum of whole copies, as a table; a fraction raises
        TacitError.
        """
        if Fraction(positive("share fraction", times)).denominator != 1:
            raise no_power(
                self,
                times,
                "a discrete Gaussian does not divide; let each participant draw "
                "DiscreteGaussian(sigma / sqrt(n)) and account for the sum with "
                "calibrate('discrete-gaussian', shares=n), or use Skellam noise, which divides "
                "exactly",
            )
        count = integer("copies", times, at_least=1)
        return self if count == 1 else Table.of(*convolution_power(self, count))

    @classmethod
    def of_std(cls, std: float) -> Self:
        """sigma = std, which is the standard deviation in double precision from 3 on."""
        return cls(std)

    def sum_of_shares(self, n: int) -> DiscreteGaussian:
        """DiscreteGaussian(√n sigma), which is close to the sum."""
        return self if n == 1 else DiscreteGaussian(float(self.sigma) * math.sqrt(n))

    def closeness(self, n: int) -> float:
        """See `sum_divergence`."""
        return sum_divergence(float(self.sigma), n)

    def approximate_share(self, n: int) -> DiscreteGaussian:
        """DiscreteGaussian(sigma / √n): n such draws sum to nearly this distribution."""
        return self if n == 1 else DiscreteGaussian(float(self.sigma) / math.sqrt(n))

    def concentration(self, l2: float) -> float:
        """l2² / 2σ² (CKS20 Theorem 14)."""
        return l2**2 / (2 * float(self.sigma) ** 2)

    def distance_from_gaussian(self) -> float:
        """A closed-form bound, for sigma >= 1.

        |φ(k) - ∫ φ over the unit interval around k| is at most max |φ''| / 24 there. A sum of
        maxima over unit intervals is at most ∫ |φ''| + ∫ |φ'''|. The normaliser differs from 1 by 2
        e^{-2π²σ²}.
        """
        sigma = float(self.sigma)
        if sigma < 1:
            return 1.0
        curvature = 4 * math.exp(-0.5) / math.sqrt(2 * math.pi)  # E|z² - 1|
        variation = 2 * (1 + 4 * math.exp(-1.5)) / math.sqrt(2 * math.pi)  # E|z³ - 3z|
        return (curvature / sigma**2 + variation / sigma**3) / 48 + 2.1 * math.exp(
            -2 * (math.pi * sigma) ** 2
        )

    def cumulants(self) -> Cumulants:
        """The upper bound s²σ²/2; the normaliser of a shifted discrete Gaussian is largest at shift
        0.
        """
        square = float(self.sigma) ** 2
        return lambda s: (s * s * square / 2, s * square, square)

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...] | None = None) -> Any:
        """Rejection from a discrete Laplace proposal (CKS20 Algorithm 3, in floating point)."""
        count = int(np.prod(size)) if size is not None else 1
        sigma = float(self.sigma)
        scale = math.floor(sigma) + 1
        proposal = DiscreteLaplace(scale)
        accepted: list[npt.NDArray[np.int64]] = []
        missing = count
        while missing > 0:
            y = proposal.sample(rng, int(1.6 * missing) + 16)
            distance = (np.abs(y) - sigma * sigma / scale) ** 2 / (2 * sigma * sigma)
            kept = y[rng.standard_exponential(len(y)) >= distance]
            accepted.append(kept)
            missing -= len(kept)
        values = np.concatenate(accepted)[:count] if accepted else np.empty(0, dtype=np.int64)
        return values.reshape(size) if size is not None else values[0]

    def _draw_one(self) -> int:
        return draw_gaussian(Fraction(self.sigma) ** 2)


def sum_divergence(sigma: float, n: int) -> float:
    """A bound on |ln ratio|, at every point, between a sum of n discrete Gaussians of this sigma
    and DiscreteGaussian(√n sigma).

    10 Σ_{k=1}^{n-1} e^{-2π² σ² k/(k+1)}, for sigma >= 1/2 (Kairouz, Liu & Steinke 2021, Corollary
    12). It grows with n: vacuous at sigma = 1 and n = 10^9, negligible from sigma = 2 on. The cost
    is constant: terms past k = 10,000 are bounded by the value at infinity times a factor.

    >>> sum_divergence(2.0, 1000) < 1e-16
    True
    """
    count = integer("shares", n, at_least=1)
    width = float(positive("sigma", sigma))
    if width < 0.5:
        return math.inf if count > 1 else 0.0
    k = np.arange(1, min(count, 10_001), dtype=float)
    first = float(np.exp(-2 * (math.pi * width) ** 2 * k / (k + 1)).sum())
    rest = (
        (count - 10_001) * math.exp(-2 * (math.pi * width) ** 2 * 10_001 / 10_002)
        if count > 10_001
        else 0.0
    )
    return 10 * (first + rest)
