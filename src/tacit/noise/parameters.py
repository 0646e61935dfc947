"""The parameter of a noise distribution by which terms state it."""

from __future__ import annotations

import math
from fractions import Fraction

from tacit.errors import TacitError
from tacit.noise.distribution import NoiseDistribution
from tacit.noise.gaussian import DiscreteGaussian
from tacit.noise.laplace import DiscreteLaplace
from tacit.noise.skellam import Skellam


def stated_parameter(distribution: NoiseDistribution) -> tuple[str, Fraction]:
    """The name of a distribution and its parameter: scale, variance or sigma.

    >>> stated_parameter(Skellam(9))
    ('skellam', Fraction(9, 1))
    """
    match distribution:
        case DiscreteLaplace(scale=scale):
            return "discrete-laplace", Fraction(scale)
        case Skellam(variance=variance):
            return "skellam", Fraction(variance)
        case DiscreteGaussian(sigma=sigma):
            return "discrete-gaussian", Fraction(sigma)
    raise TacitError(f"{distribution!r} cannot be deployed: terms state no such noise")


def sum_of_shares(name: str, parameter: Fraction, divisor: int, shares: int) -> NoiseDistribution:
    """The sum of `shares` noise shares, of which `divisor` have the stated parameter together.

    >>> sum_of_shares("skellam", Fraction(9), 10, 20)
    Skellam(variance=Fraction(18, 1))
    """
    match name:
        case "discrete-laplace":
            return DiscreteLaplace(parameter).power(Fraction(shares, divisor))
        case "skellam":
            return Skellam(parameter * shares / divisor)
        case "discrete-gaussian":
            return DiscreteGaussian(math.sqrt(parameter**2 / divisor)).power(shares)
    raise TacitError(f"distribution is {name!r}: must be one whose shares add up")
