"""Every sum protocol, small, each with a twin whose noise is half as wide: what the tests of
protocols run over.

A new protocol is added here; `test_every_protocol_is_tested` fails until it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from tacit.noise import DiscreteGaussian, DiscreteLaplace, Skellam
from tacit.privacy import ApproximateDP, PureDP, View, calibrate
from tacit.protocols.continuous import CentralLaplace, Exact
from tacit.protocols.contract import Estimate, Integers, Levels, SumProtocol
from tacit.protocols.modular import Central, Local, SecureSum, paper_modulus
from tacit.protocols.pure import PureShuffle
from tacit.protocols.shuffle import ShuffledBits, shuffle_noise
from tacit.protocols.splitting import SplitAndMix

APPROXIMATE = ApproximateDP(1.0, 1e-5)


def polya(factor: float) -> SumProtocol:
    return SecureSum(40, 4, DiscreteLaplace(4 * factor), PureDP(1.0))


def polya_dropout(factor: float) -> SumProtocol:
    return SecureSum(40, 4, DiscreteLaplace(4 * factor), PureDP(1.0), dropout=0.25)


@cache
def skellam_variance() -> float:
    return float(calibrate("skellam", 8, APPROXIMATE).law.variance)


def skellam(factor: float) -> SumProtocol:
    return SecureSum(40, 8, Skellam(skellam_variance() * factor**2), APPROXIMATE)


@cache
def gaussian_sigma() -> float:
    return float(calibrate("discrete-gaussian", 16, APPROXIMATE, users=40).law.std)


def gaussian(factor: float) -> SumProtocol:
    sigma = gaussian_sigma() * factor
    return SecureSum(
        40, 16, DiscreteGaussian(sigma), APPROXIMATE, share=DiscreteGaussian(sigma / math.sqrt(40))
    )


def central(factor: float) -> SumProtocol:
    return Central(40, 4, DiscreteLaplace(4 * factor), PureDP(1.0, view=View.SERVER_OUTPUT))


def local(factor: float) -> SumProtocol:
    return Local(
        40,
        4,
        DiscreteLaplace(4 * factor),
        PureDP(1.0, view=View.MESSAGE),
        modulus=paper_modulus(40, 4, 600),
    )


def shuffled(precision: int, dropout: float = 0.0) -> Callable[[float], SumProtocol]:
    def build(factor: float) -> SumProtocol:
        bits, bias = shuffle_noise(math.ceil(40 * (1 - dropout)), precision, APPROXIMATE)
        p = (
            bias
            if factor == 1
            else 0.5 - 0.5 * math.sqrt(1 - 4 * factor**2 * float(bias * (1 - bias)))
        )
        return ShuffledBits(
            40, precision, bits, p, guarantee=APPROXIMATE.at(view=View.SHUFFLED), dropout=dropout
        )

    return build


def split(factor: float) -> SumProtocol:
    return SplitAndMix(24, 4, DiscreteLaplace(4 * factor), PureDP(1.0))


def pure(factor: float) -> SumProtocol:
    return PureShuffle(21, 1.0 / factor)  # groups of 16, 4 and 1


@dataclass(frozen=True)
class Example:
    """`build(1.0)` is the protocol as calibrated, `build(0.5)` has noise of half the width under
    the same promise.
    """

    build: Callable[[float], SumProtocol]
    noisy: bool = True


EXAMPLES: dict[str, Example] = {
    "secagg-polya": Example(polya),
    "secagg-polya-dropout": Example(polya_dropout),
    "secagg-skellam": Example(skellam),
    "secagg-gaussian": Example(gaussian),
    "central": Example(central),
    "local": Example(local),
    "shuffle-binary": Example(shuffled(1)),
    "shuffle-levels": Example(shuffled(5)),
    "shuffle-dropout": Example(shuffled(3, 0.25)),
    "split-and-mix": Example(split),
    "pure-shuffle": Example(pure),
    "exact": Example(lambda _: Exact(40, 8), noisy=False),
    "central-laplace": Example(lambda factor: CentralLaplace(40, 1.0 / factor, 8)),
}


def some_levels(protocol: SumProtocol, reports: int) -> Integers:
    """Levels that use the whole range, the same every time."""
    return np.random.default_rng(reports).integers(0, protocol.precision + 1, size=reports)


def counted(levels: Integers) -> Levels:
    values, counts = np.unique(levels, return_counts=True)
    return Levels(values, counts)


def fast(protocol: SumProtocol, levels: Integers, rng: np.random.Generator) -> Estimate:
    return protocol.simulate(counted(levels), rng)


def slow(protocol: SumProtocol, levels: Integers, rng: np.random.Generator) -> Estimate:
    return protocol.analyze(protocol.combine_batch(protocol.randomize_batch(levels, rng), rng))


def device(protocol: SumProtocol, levels: Integers) -> Estimate:
    """Everyone's message from exact draws; the intermediary and the server as they are live."""
    rewards = [int(level) / protocol.precision for level in levels]
    if isinstance(protocol, PureShuffle):
        return protocol.analyze(
            protocol.combine(
                [protocol.randomize(x, position) for position, x in enumerate(rewards)]
            )
        )
    return protocol.analyze(protocol.combine([protocol.randomize(x) for x in rewards]))
