"""Stated error distributions are upper bounds on the exact ones: tails, log-MGFs, proxies."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from tests.protocols.examples import EXAMPLES, ONE, TEN

from tacit.noise import Binomial, DiscreteGaussian, DiscreteLaplace, NoiseDistribution, Skellam
from tacit.privacy import ApproximateDP, PureDP
from tacit.protocols import vectors
from tacit.protocols.continuous import CentralLaplace
from tacit.protocols.integer_vectors import SecureVector, ShuffledVector
from tacit.protocols.l2_sums import CentralBall, LocalBall, SecureBall, ShuffledBall
from tacit.protocols.randomized_bits import RandomizedBits
from tacit.protocols.vectors import noise_proxy
from tacit.testing import check_protocol
from tacit.testing.errors import check_error
from tacit.types import Aggregate, ErrorDistribution, Floats

LEVELS = [10.0**-k for k in range(1, 13)]
TILTS = np.concatenate([np.geomspace(1e-3, 8, 40), -np.geomspace(1e-3, 8, 40)])


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0, 3.0, 5.0, 10.0])
@pytest.mark.parametrize("reports", [1, 2, 7, 40])
def test_the_error_bound_of_randomized_response_holds_for_any_bits(
    epsilon: float, reports: int
) -> None:
    """For all numbers of ones: `radius(p)` is exceeded with probability at most p, and `log_mgf`
    is at least the exact one, of coins that are written down a second time.
    """
    protocol = RandomizedBits(reports, PureDP(epsilon))
    error, lie = protocol.error(reports), 1 / (1 + math.exp(epsilon))
    stretch = 1 / (1 - 2 * lie)
    radii = [error.radius(p) for p in LEVELS]
    stated, told = error.log_mgf(TILTS), np.arange(reports + 1)
    for ones in range(reports + 1):
        off = (told - reports * lie) * stretch - ones
        probabilities = protocol.released_distribution(ones, reports).pmf(told)
        assert float(probabilities @ off) == pytest.approx(0, abs=1e-9)
        assert float(probabilities @ off**2) == pytest.approx(error.variance, rel=1e-9)
        for p, radius in zip(LEVELS, radii, strict=True):
            assert float(probabilities[np.abs(off) > radius].sum()) <= p
        exact = ones * coin(TILTS * stretch, 1 - lie) + (reports - ones) * coin(
            TILTS * stretch, lie
        )
        assert (exact <= stated + 1e-12 * reports).all()


def coin(u: Floats, p: float) -> Floats:
    """ln E[e^{u(X - p)}] of a coin."""
    return np.asarray(np.logaddexp(math.log1p(-p), math.log(p) + u) - p * u)


def test_a_sub_gaussian_bound_from_the_variance_fails() -> None:
    """ε = 5, n = 1,000, p = 1e-9: a sub-Gaussian bound from the variance fails with 1.5e-7."""
    protocol = RandomizedBits(1000, PureDP(5.0))
    error, told = protocol.error(1000), np.arange(1001)
    off = np.array([protocol._sum(Aggregate((int(k),), 1000)) for k in told])
    probabilities = protocol.released_distribution(0, 1000).pmf(told)
    wrong = math.sqrt(2 * error.variance * math.log(2e9))
    assert float(probabilities[np.abs(off) > wrong].sum()) == pytest.approx(1.5e-7, rel=0.03)
    assert float(probabilities[np.abs(off) > error.radius(1e-9)].sum()) < 1e-9


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "central-laplace"])
def test_the_stated_error_distribution_of_every_sum_holds(name: str) -> None:
    protocol = EXAMPLES[name].build(1.0)
    for reports in {protocol.minimum, (protocol.minimum + protocol.participants) // 2,
                    protocol.participants}:  # fmt: skip
        check_error(protocol, reports)


def test_continuous_laplace_noise_states_its_own_tails() -> None:
    protocol = CentralLaplace(40, PureDP(0.5), precision=8)
    error, scale = protocol.error(40), 2.0
    for p in LEVELS:
        assert math.exp(-error.radius(p) / scale) == pytest.approx(p)
    t = np.linspace(-0.45, 0.45, 19)
    assert error.log_mgf(t) == pytest.approx(-np.log1p(-((t * scale) ** 2)), abs=1e-12)
    assert error.variance == pytest.approx(2 * scale**2)


# Vectors: ln E[e^{t·error}] <= t² proxy / 2 up to the reach


@dataclass(frozen=True)
class Added:
    """A protocol, the distribution of one draw of noise, and how many are in a sum; `rounded` is
    how many numbers are rounded at random.
    """

    build: Callable[[], Any]
    share: Callable[[Any], NoiseDistribution]
    copies: int
    rounded: int


ADDED = {
    "central": Added(
        lambda: vectors.CentralVectors(6, 3, 1.0, TEN), lambda p: p.distribution, 1, 1
    ),
    "central-pure": Added(
        lambda: vectors.CentralVectors(6, 3, 1.0, PureDP(1.0)), lambda p: p.distribution, 1, 1
    ),
    "local": Added(lambda: vectors.LocalVectors(6, 3, 1.0, TEN), lambda p: p.device, 6, 6),
    "local-small": Added(
        lambda: vectors.LocalVectors(6, 1, 1.0, ApproximateDP(0.1, 1e-8)), lambda p: p.device, 6, 6
    ),
    "local-pure": Added(
        lambda: vectors.LocalVectors(6, 3, 1.0, PureDP(2.0)), lambda p: p.device, 6, 6
    ),
    "shuffle": Added(
        lambda: ShuffledVector(6, 3, 1.0, TEN, precision=5),
        lambda p: Binomial(p.noise_bits, p.bias),
        6,
        6,
    ),
    "shuffle-few-bits": Added(
        lambda: ShuffledVector(6, 1, 1.0, ApproximateDP(12.0, 0.4), precision=1),
        lambda p: Binomial(p.noise_bits, p.bias),
        6,
        6,
    ),
    "secagg": Added(lambda: SecureVector(6, 3, 1.0, ONE, precision=5), lambda p: p.share, 6, 6),
    "secagg-pure": Added(
        lambda: SecureVector(6, 3, 1.0, PureDP(5.0), precision=5), lambda p: p.share, 6, 6
    ),
    "secagg-gaussian": Added(
        lambda: SecureVector(6, 3, 1.0, TEN, precision=5, noise_kind="discrete-gaussian"),
        lambda p: p.share,
        6,
        6,
    ),
    "ball-central": Added(lambda: CentralBall(6, 3, 2.0, TEN), lambda p: p.distribution, 1, 6),
    "ball-local": Added(lambda: LocalBall(6, 3, 2.0, TEN), lambda p: p.distribution, 6, 6),
    "ball-secagg": Added(lambda: SecureBall(6, 3, 2.0, TEN), lambda p: p.distribution, 6, 6),
    "ball-secagg-gaussian": Added(
        lambda: SecureBall(6, 3, 2.0, TEN, noise_kind="discrete-gaussian"),
        lambda p: p.distribution,
        6,
        6,
    ),
    "ball-shuffle": Added(lambda: ShuffledBall(20, 3, 2.0, TEN), lambda p: p.distribution, 20, 20),
}


@pytest.mark.parametrize("name", ADDED)
def test_the_stated_proxy_of_every_vector_holds(name: str) -> None:
    """The exact noise, and rounding at its worst: halfway between two levels."""
    added = ADDED[name]
    protocol = added.build()
    share, n = added.share(protocol), protocol.participants
    error = protocol.analyze(Aggregate((0,) * protocol.coordinates, n)).error
    proxy, reach, scale = float(error.proxies[0]), float(error.reaches[0]), protocol.unit / n
    furthest = min(reach, 40 / math.sqrt(proxy))
    t = np.concatenate([np.linspace(-1, -1e-2, 3001), np.linspace(1e-2, 1, 3001)]) * furthest
    noise = added.copies * (share.log_mgf(t * scale) - t * scale * share.mean)
    rounding = added.rounded * np.log(np.cosh(t * scale / 2))
    assert (noise + rounding <= t**2 * proxy / 2 * (1 + 1e-9)).all()
    exact = added.copies * share.variance * scale**2
    assert exact <= proxy * (1 + 1e-9)


DISTRIBUTIONS: list[NoiseDistribution] = [
    *(Binomial(n, p) for n in (1, 2, 5, 20, 10_000) for p in (0.5, 0.3, 0.1, 0.01, 0.001, 0.9)),
    *(DiscreteGaussian(sigma) for sigma in (0.2, 0.4, 0.5, 1.0, 30.0)),
    *(Skellam(variance) for variance in (0.05, 1.0, 1000.0)),
    *(DiscreteLaplace(scale) for scale in (0.2, 1.0, 50.0)),
]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=repr)
def test_the_proxy_is_at_least_every_ratio_within_its_radius(
    distribution: NoiseDistribution,
) -> None:
    proxy, reach = noise_proxy(distribution)
    points = np.random.default_rng(1).uniform(0.01, 1, 20_000) * reach
    for t in (points, -points):
        assert (
            2 * (distribution.log_mgf(t) - t * distribution.mean) / t**2 <= proxy * (1 + 1e-8)
        ).all()


# The suite rejects every fault by its own sentence


@dataclass(frozen=True)
class Stated:
    """Another protocol's noise, with one thing wrong."""

    noise: Any
    narrower: float = 1.0
    variance: float = 0.0
    moments: float = 1.0
    mean: float = 0.0

    def log_mgf(self, s: Any) -> Any:
        return self.moments * self.noise.log_mgf(s)

    def bound(self, p: float) -> float:
        return float(self.narrower * self.noise.bound(p))


def wrong(**fault: float) -> Callable[[ErrorDistribution], ErrorDistribution]:
    def made(error: ErrorDistribution) -> ErrorDistribution:
        noise: Any = error.noise
        return replace(error, noise=Stated(noise, **{"variance": noise.variance, **fault}))

    return made


FAULTS: dict[str, tuple[Callable[[ErrorDistribution], ErrorDistribution], str]] = {
    "no bound": (wrong(narrower=0.0), r"bound\(0\.1\) is 0: exceeded"),
    "narrow": (wrong(narrower=0.6), "exceeded with probability"),
    "moments": (wrong(moments=0.999), r"log_mgf\(.*\) is .*: below the exact"),
    "no moments": (wrong(moments=math.inf), "is infinite"),
    "variance": (wrong(variance=36.9), "the stated variance is 36.9"),
    "participants": (lambda error: replace(error, participants=39), "counts the reports"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_suite_rejects_a_false_error_distribution(fault: str) -> None:
    change, said = FAULTS[fault]

    class Faulty(RandomizedBits):
        def error(self, reports: int) -> ErrorDistribution:
            return change(super().error(reports))

    with pytest.raises(AssertionError, match=said):
        check_protocol(Faulty(40, PureDP(1.0)), rounds=200, exact_rounds=20)


def test_the_suite_rejects_a_biased_estimate() -> None:
    class Faulty(RandomizedBits):
        def _sum(self, released: Aggregate) -> float:
            return super()._sum(released) + 0.01  # a 600th of a standard deviation

    with pytest.raises(AssertionError, match=r"errors have mean 0\.01, not 0"):
        check_protocol(Faulty(40, PureDP(1.0)), rounds=200, exact_rounds=20)


def test_the_suite_rejects_a_false_message_distribution() -> None:
    class Faulty(RandomizedBits):
        released_distribution = RandomizedBits.view_distribution

    with pytest.raises(AssertionError, match="does not follow released_distribution"):
        check_protocol(Faulty(40, PureDP(1.0)), rounds=200, exact_rounds=20)


def test_the_suite_rejects_a_false_guarantee() -> None:
    protocol = EXAMPLES["response"].build(0.5)
    with pytest.raises(AssertionError, match=r"delta of RandomizedBits is .* declared is 0"):
        check_protocol(protocol, rounds=200, exact_rounds=20)
