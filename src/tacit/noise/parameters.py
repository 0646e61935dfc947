"""The parameter of a noise distribution by which terms state it."""

from __future__ import annotations

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
