"""The noise of a protocol as terms state it, and the comparison of both.

A protocol that is not listed here cannot be deployed: terms would not describe its noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import singledispatch

from tacit.errors import TacitError
from tacit.noise import NoiseDistribution
from tacit.noise.parameters import stated_parameter
from tacit.protocols.contract import Protocol, SumProtocol
from tacit.protocols.joint import JointSums
from tacit.protocols.pure_shuffle import PureShuffle
from tacit.protocols.randomized_bits import RandomizedBits
from tacit.protocols.shuffled_bits import ShuffledBits
from tacit.protocols.split_and_mix import SplitAndMix
from tacit.protocols.statistic_sums import (
    SecureStatistic,
    ShuffledTable,
    StatisticSum,
    TwoServerStatistic,
    UnaryStatistic,
)
from tacit.protocols.sums import Local, SecureSum, TwoServers
from tacit.terms import Noise, Terms
from tacit.terms.canonical import LARGEST
from tacit.terms.context import TABLE_SENSITIVITY
from tacit.terms.parts import (
    BINOMIAL,
    CERTIFIED_POLYA,
    RANDOMIZED_RESPONSE,
    UNARY_ENCODING,
)

ROUNDED = 1e-3  # distance of a released number from an integer at most
_BITS = 2  # the stated minimum of noise bits is their variance divided by this


@dataclass(frozen=True)
class ReleasedNoise:
    """The stated noise in one released sum of all-zero answers, as an integer.

    A published total t, in units of the answer's range, is the integer factor · t + offset, which
    has this distribution.
    """

    distribution: NoiseDistribution
    factor: float
    offset: float = 0.0

    def value(self, total: float) -> int:
        """The integer that was released as this total."""
        exact = self.factor * total + self.offset
        if abs(exact - round(exact)) > ROUNDED:
            raise TacitError(f"released total is {total!r}: must be a sum of whole levels")
        return round(exact)


@singledispatch
def stated_noise(protocol: Protocol) -> Noise:
    """The noise of one metric, as terms state it.

    Raises
    ------
    TacitError
        If terms cannot state the noise of this protocol.

    Examples
    --------
    >>> from tacit.privacy import PureDP
    >>> stated_noise(TwoServers(100, 1, PureDP(1.0))).scale
    Fraction(1, 1)
    """
    raise TacitError(
        f"{type(protocol).__name__} cannot be deployed: terms state no such noise. Use an "
        "algorithm that tacit algorithms lists as deployable"
    )


@stated_noise.register
def _(protocol: TwoServers) -> Noise:
    return Noise(Fraction(protocol.distribution.scale))


@stated_noise.register
def _(protocol: TwoServerStatistic) -> Noise:
    name, parameter = stated_parameter(protocol.own[0])
    return Noise(parameter, "servers", name)


@stated_noise.register
def _(protocol: SecureStatistic) -> Noise:
    return _shares(protocol.total[0])


@stated_noise.register
def _(protocol: Local) -> Noise:
    return _shares(protocol.distribution)


@stated_noise.register
def _(protocol: RandomizedBits) -> Noise:
    return Noise(1 / protocol.epsilon, "devices", RANDOMIZED_RESPONSE)


@stated_noise.register
def _(protocol: UnaryStatistic) -> Noise:
    return Noise(TABLE_SENSITIVITY / protocol.epsilon, "devices", UNARY_ENCODING)


@stated_noise.register
def _(protocol: SecureSum) -> Noise:
    return _shares(protocol.distribution)


@stated_noise.register
def _(protocol: SplitAndMix) -> Noise:
    return stated_noise(protocol.inner)


@stated_noise.register(ShuffledBits)
@stated_noise.register(ShuffledTable)
def _(protocol: ShuffledBits | ShuffledTable) -> Noise:
    bits, bias = protocol.honest * protocol.noise_bits, Fraction(protocol.bias)
    variance = Fraction(int(bits * bias * (1 - bias) * 1000), 1000)
    return Noise(variance, "devices", BINOMIAL)


@stated_noise.register
def _(protocol: PureShuffle) -> Noise:
    return Noise(1 / protocol.target, "devices", CERTIFIED_POLYA)


@stated_noise.register
def _(protocol: JointSums) -> Noise:
    return stated_noise(protocol.part)


def _shares(distribution: NoiseDistribution) -> Noise:
    """Noise that devices share, by its distribution; a parameter below 1 that terms cannot hold is
    rounded up.
    """
    name, parameter = stated_parameter(distribution)
    if parameter < 1 and parameter.denominator > LARGEST:
        parameter = Fraction(math.ceil(parameter * LARGEST), LARGEST)
    return Noise(parameter, "devices", name)


def minimum_noise(protocol: Protocol) -> Noise:
    """The noise that terms state for all rounds, from the protocol of the smallest one.

    The variance of noise bits changes with the size of a round, so terms state half of it; δ is
    verified in every round.
    """
    noise = stated_noise(protocol)
    if noise.distribution != BINOMIAL:
        return noise
    return Noise(noise.scale / _BITS, noise.by, noise.distribution)


def check_stated(protocol: Protocol, terms: Terms) -> None:
    """Reject a protocol with less noise than the terms state, or with other levels or metrics."""
    found, chosen = stated_noise(protocol), isinstance(protocol, StatisticSum)
    part = protocol.part if isinstance(protocol, JointSums) else protocol
    precision = part.precision if isinstance(part, SumProtocol) else 0
    if isinstance(protocol, StatisticSum):
        precision = protocol.statistic.precision
    same = (found.by, found.distribution) == (terms.noise.by, terms.distribution(chosen))
    sizes = (precision, protocol.coordinates) == (terms.answer.levels, terms.numbers(chosen))
    if not same or not sizes or found.least < terms.least_noise(chosen):
        raise TacitError(
            "the noise of the experiment differs from that of the terms: use the same levels, "
            "epsilon, participations and metrics"
        )
