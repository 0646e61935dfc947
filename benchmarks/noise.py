"""Samples per second: exact draws, as on a device, and simulation samples. One core.

Targets: `draw` of a Pólya share at scale 10 at least 40,000 per second; fair binomial vectors at
least 10 million per second; `sample` of each distribution at least 2 million per second.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from machine import Row, emit, per_second
from tacit.noise import (
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    NoiseDistribution,
    Polya,
    PolyaDifference,
    Skellam,
    Table,
)
from tacit.noise.table import convolve

DRAWS = 10_000
SAMPLES = 1_000_000


def distributions() -> dict[str, NoiseDistribution]:
    whole = DiscreteLaplace(10)
    share = whole.share(100)
    assert isinstance(share, PolyaDifference)
    return {
        "Pólya(1/100) of scale 10": Polya(share.r, share.beta),
        "Pólya share (a difference of two), 1 of 100, scale 10": share,
        "discrete Laplace, scale 10": whole,
        "Skellam share, variance 13.88": Skellam(13.88),
        "Skellam, variance 1388": Skellam(1388),
        "discrete Gaussian, sigma 37": DiscreteGaussian(37),
        "discrete Gaussian, sigma 1000": DiscreteGaussian(1000),
        "binomial, 62 fair bits": Binomial(62),
        "binomial, 1000 bits of bias 0.01": Binomial(1000, 0.01),
    }


def drawing(distribution: NoiseDistribution) -> Callable[[], object]:
    def work() -> None:
        for _ in range(DRAWS):
            distribution.draw()

    return work


def sampling(distribution: NoiseDistribution) -> Callable[[], object]:
    rng = np.random.default_rng(0)
    return lambda: distribution.sample(rng, SAMPLES)


def rows() -> list[Row]:
    table: Table = convolve(DiscreteGaussian(10), DiscreteGaussian(10))
    result = [
        per_second(f"draw: {name}", drawing(distribution), DRAWS)
        for name, distribution in distributions().items()
    ]
    result.append(
        per_second(
            "draw vector: binomial, 62 fair bits", lambda: Binomial(62).draw(SAMPLES), SAMPLES
        )
    )
    result += [
        per_second(f"sample: {name}", sampling(distribution), SAMPLES)
        for name, distribution in distributions().items()
    ]
    result.append(
        per_second("sample: table of a sum of two discrete Gaussians", sampling(table), SAMPLES)
    )
    return result


if __name__ == "__main__":
    emit(rows())
