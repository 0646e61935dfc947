"""The distributions under test, each with its probabilities by mpmath to 60 digits and more."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any, cast

import mpmath as mp
import numpy as np

from tacit.noise import (
    Binomial,
    Chance,
    DiscreteGaussian,
    DiscreteLaplace,
    NoiseDistribution,
    Polya,
    PolyaDifference,
    Skellam,
    Table,
)

DIVISIBLE: dict[str, NoiseDistribution] = {
    "laplace-10": DiscreteLaplace(10),
    "laplace-third": DiscreteLaplace(Fraction(1, 3)),
    "polya-share": Polya(Fraction(1, 100), Chance(Fraction(1), Fraction(1, 10))),
    "polya-5/2": Polya(Fraction(5, 2), 0.7),
    "polya-40": Polya(40, 0.25),
    "difference-share": DiscreteLaplace(10).share(100),
    "difference-0.8": PolyaDifference(0.8, Chance(Fraction(1), Fraction(1, 2))),
    "difference-3": DiscreteLaplace(4).power(3),
    "skellam-half": Skellam(0.5),
    "skellam-1388": Skellam(1388),
    "binomial-62": Binomial(62),
    "binomial-130": Binomial(130, 0.5),
    "binomial-biased": Binomial(1000, 0.01),
    "binomial-high": Binomial(20, Fraction(9, 10)),
}
DRAWABLE: dict[str, NoiseDistribution] = DIVISIBLE | {
    "gaussian-0.4": DiscreteGaussian(0.4),
    "gaussian-3": DiscreteGaussian(3),
    "gaussian-37": DiscreteGaussian(37.5),
    "gaussian-300": DiscreteGaussian(300),
}
DISTRIBUTIONS: dict[str, NoiseDistribution] = DRAWABLE | {
    "table": Table.of(-3, np.array([0.125, 0.25, 0.375, 0.0, 0.125, 0.125]))
}

# The same families where the standard deviation is large, up to 10^6.
WIDE: dict[str, NoiseDistribution] = {
    "laplace-7e5": DiscreteLaplace(7e5),
    "polya-7e5": Polya(Fraction(1, 2), Chance(Fraction(1), Fraction(1, 1_000_000))),
    "polya-r1e6": Polya(10**6, Chance(Fraction(1), Fraction(1, 1000))),
    "difference-3000": DiscreteLaplace(3000).share(7),
    "skellam-1e6": Skellam(1e6),
    "skellam-1e12": Skellam(10**12),
    "gaussian-1e6": DiscreteGaussian(1e6),
    "binomial-4e12": Binomial(4 * 10**12),
    "binomial-1e12": Binomial(10**12, 0.01),
}


def digits(count: int = 60) -> mp.workdps:
    return mp.workdps(count)


def exact(number: object) -> mp.mpf:
    fraction = Fraction(cast(Any, number))
    return mp.mpf(fraction.numerator) / fraction.denominator


def reference(distribution: NoiseDistribution) -> Callable[[int], mp.mpf]:
    """ln P[X = k] in mpmath, computed independently; call it inside `digits()`."""
    match distribution:
        case DiscreteLaplace(scale=scale):
            b = exact(scale)
            return lambda k: mp.log(mp.tanh(1 / (2 * b))) - abs(k) / b
        case Polya(r=r, beta=beta):
            return lambda k: _log_polya(k, exact(r), _rate(beta)) if k >= 0 else -mp.inf
        case PolyaDifference(r=r, beta=beta):
            return lambda k: _log_difference(abs(k), exact(r), _rate(beta))
        case Skellam(variance=variance):
            return lambda k: _log_bessel(abs(k), exact(variance))
        case DiscreteGaussian(sigma=sigma):
            return lambda k: -((k / exact(sigma)) ** 2) / 2 - _log_theta(Fraction(sigma))
        case Binomial(n=n, p=p):
            return lambda k: (
                mp.log(mp.binomial(n, k)) + k * mp.log(exact(p)) + (n - k) * mp.log(1 - exact(p))
                if 0 <= k <= n
                else -mp.inf
            )
    raise AssertionError(distribution)


def _rate(beta: object) -> mp.mpf:
    return (
        exact(beta.rate) - mp.log(exact(beta.factor))
        if isinstance(beta, Chance)
        else -mp.log(exact(beta))
    )


def _log_polya(k: int, r: mp.mpf, rate: mp.mpf) -> mp.mpf:
    return (
        mp.loggamma(k + r)
        - mp.loggamma(k + 1)
        - mp.loggamma(r)
        - k * rate
        + r * mp.log(1 - mp.exp(-rate))
    )


def _log_difference(k: int, r: mp.mpf, rate: mp.mpf) -> mp.mpf:
    """Σ_j q(j) q(j+k) as a hypergeometric function."""
    beta = mp.exp(-rate)
    rest = mp.log(mp.hyp2f1(r, r + k, k + 1, beta**2)) + r * mp.log(1 - beta)
    return _log_polya(k, r, rate) + rest


def _log_bessel(k: int, v: mp.mpf) -> mp.mpf:
    """ln(e^{-v} I_k(v)); for a large v by Hankel's expansion (DLMF 10.40.1), with digits for its
    cancellation.
    """
    if v < 10_000:
        return mp.log(mp.besseli(k, v)) - v
    with mp.workdps(mp.mp.dps + 40 + int(k * k / v / 2)):
        term = total = mp.mpf(1)
        j = 0
        while abs(term) > mp.mpf(10) ** -mp.mp.dps:
            j += 1
            term *= -(4 * mp.mpf(k) ** 2 - (2 * j - 1) ** 2) / (8 * v * j)
            total += term
        return mp.log(total) - mp.log(2 * mp.pi * v) / 2


@cache
def _log_theta(sigma: Fraction) -> mp.mpf:
    """ln Σ_k e^{-k²/2σ²}, by summation, or for a large σ as the integral, which differs by
    e^{-2π²σ²}.
    """
    with mp.workdps(80):
        s = exact(sigma)
        if s > 400:
            return mp.log(mp.sqrt(2 * mp.pi) * s)
        return mp.log(
            1 + 2 * mp.fsum(mp.exp(-((k / s) ** 2) / 2) for k in range(1, int(20 * s) + 20))
        )
