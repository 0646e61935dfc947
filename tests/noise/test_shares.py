"""Noise shares: the convolution of n shares is the distribution."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.noise.distributions import DIVISIBLE

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
from tacit.noise.gaussian import sum_divergence
from tacit.noise.table import convolution_power
from tacit.sampling.draws import draw_laplace_share


def difference(start: int, pmf: np.ndarray, distribution: NoiseDistribution) -> float:
    """The largest distance between a table and a distribution, over the table and what lies
    outside it."""
    inside = float(np.abs(pmf - distribution.pmf(start + np.arange(len(pmf)))).max())
    return max(inside, distribution.cdf(start - 1), distribution.tail(start + len(pmf) - 1))


@pytest.mark.parametrize(
    ("scale", "shares"), [(Fraction(1, 3), 64), (2, 3), (2, 20), (10, 1), (10, 7), (40.5, 2)]
)
def test_polya_shares_add_up_to_discrete_laplace(scale: float, shares: int) -> None:
    distribution = DiscreteLaplace(scale)
    start, pmf = convolution_power(distribution.share(shares), shares)
    assert difference(start, pmf, distribution) < 1e-12


@pytest.mark.parametrize("shares", [2, 5, 100])
@pytest.mark.parametrize("variance", [0.5, 13.88, 1388])
def test_skellam_shares_add_up(variance: float, shares: int) -> None:
    distribution = Skellam(variance)
    assert difference(*convolution_power(distribution.share(shares), shares), distribution) < 1e-12


@pytest.mark.parametrize(
    ("bits", "bias", "shares"), [(62, 0.5, 31), (60, 0.25, 4), (1000, 0.01, 10)]
)
def test_binomial_shares_add_up(bits: int, bias: float, shares: int) -> None:
    distribution = Binomial(bits, bias)
    assert difference(*convolution_power(distribution.share(shares), shares), distribution) < 1e-12


@pytest.mark.parametrize("shares", [2, 3, 50])
def test_polya_variables_are_additive_in_r(shares: int) -> None:
    distribution = Polya(Fraction(5, 2), 0.7)
    assert difference(*convolution_power(distribution.share(shares), shares), distribution) < 1e-12


@pytest.mark.parametrize("r", [Fraction(1, 50), 0.8, 1, 3])
def test_a_polya_difference_is_the_difference_of_two_polya_variables(r: float) -> None:
    half = Polya(r, 0.8)
    k = np.arange(0, 4000)
    q = half.pmf(k)
    pmf = np.convolve(q, q[::-1])
    assert difference(-len(k) + 1, pmf, PolyaDifference(r, 0.8)) < 1e-12


@pytest.mark.parametrize("name", DIVISIBLE)
def test_powers_compose_and_moments_scale(name: str) -> None:
    distribution = DIVISIBLE[name]
    twice = distribution.power(2)
    assert (
        twice.share(2) == distribution
        or difference(*convolution_power(twice.share(2), 1), distribution) < 1e-12
    )
    assert twice.mean == pytest.approx(2 * distribution.mean)
    assert float(twice.variance) == pytest.approx(2 * float(distribution.variance))
    assert distribution.share(1).log_pmf(3) == pytest.approx(distribution.log_pmf(3))


def test_shares_of_a_discrete_laplace_distribution_recompose_to_it() -> None:
    assert DiscreteLaplace(10).share(7).power(7) == DiscreteLaplace(10)


def test_sums_of_drawn_shares_have_the_distribution() -> None:
    """A hundred participants draw, 3,000 times: the sum passes the battery of the whole
    distribution, false alarm 1e-8.
    """
    from tests.noise.battery import suspicions

    distribution = DiscreteLaplace(3)
    share = distribution.share(20)
    assert not suspicions(share.draw(20 * 10_000).reshape(10_000, 20).sum(axis=1), distribution)


@pytest.mark.parametrize(
    ("scale", "shares"), [(Fraction(3), 1), (Fraction(3), 7), (Fraction(1, 2), 3)], ids=str
)
def test_shares_drawn_on_devices_sum_to_the_distribution(scale: Fraction, shares: int) -> None:
    """20,000 sums of `draw_laplace_share`, from a seeded stream; a right sampler would fail for one
    stream of 10^8. The same sums are far from the distribution of another scale or share.
    """
    from tests.noise.battery import suspicions
    from tests.source import stream

    with stream("shares of devices", str(scale), shares):
        sums = [
            sum(draw_laplace_share(scale, shares) for _ in range(shares)) for _ in range(20_000)
        ]
    assert not suspicions(sums, DiscreteLaplace(scale))
    assert suspicions(sums, DiscreteLaplace(scale / 2))
    assert suspicions(sums, DiscreteLaplace(scale).share(shares + 1).power(shares))


def test_indivisible_binomial_bits_are_rejected_with_a_remedy() -> None:
    with pytest.raises(
        ValueError, match="62 bits do not divide that way; give everyone 21 or change"
    ) as caught:
        Binomial(62).share(3)
    assert "\n" not in str(caught.value)


def test_a_discrete_gaussian_is_not_divisible_and_names_the_remedy() -> None:
    with pytest.raises(
        ValueError, match=r"does not divide; let each participant draw.*or use Skellam noise"
    ) as caught:
        DiscreteGaussian(3).share(4)
    assert "\n" not in str(caught.value)
    assert DiscreteGaussian(3).share(1) == DiscreteGaussian(3)


def test_a_table_is_only_summed_in_whole_copies() -> None:
    with pytest.raises(ValueError, match="a table has no shares") as caught:
        DiscreteGaussian(30).power(2).share(2)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("count", [2, 3, 6])
@pytest.mark.parametrize("sigma", [0.5, 0.7, 1, 4])
def test_the_sum_of_discrete_gaussians_is_the_direct_convolution(sigma: float, count: int) -> None:
    distribution = DiscreteGaussian(sigma)
    total = distribution.power(count)
    assert isinstance(total, Table)
    reach = math.ceil(38 * sigma)
    base = distribution.pmf(np.arange(-reach, reach + 1))
    direct = np.ones(1)
    for _ in range(count):
        direct = np.convolve(direct, base)
    k = np.arange(len(direct)) - count * reach
    np.testing.assert_allclose(total.pmf(k), direct, rtol=1e-11, atol=1e-290)


@pytest.mark.parametrize("count", [2, 3, 5, 16])
@pytest.mark.parametrize("sigma", [0.5, 0.6, 0.8, 1.0, 2.0])
def test_the_sum_of_discrete_gaussians_stays_within_its_stated_divergence(
    sigma: float, count: int
) -> None:
    total, ideal = DiscreteGaussian(sigma).power(count), DiscreteGaussian(math.sqrt(count) * sigma)
    first, last = ideal.window(log_floor=-600)
    k = np.arange(first, last + 1)
    ratios = np.abs(total.log_pmf(k) - ideal.log_pmf(k))
    assert float(ratios.max()) <= sum_divergence(sigma, count) + 1e-11


def test_the_divergence_sums_all_terms_and_grows_with_the_number_of_shares() -> None:
    expected = 10 * math.fsum(math.exp(-2 * math.pi**2 * k / (k + 1)) for k in range(1, 50_000))
    assert expected <= sum_divergence(1, 50_000) <= 1.001 * expected
    assert sum_divergence(1, 1) == 0
    assert sum_divergence(1.0, 10**9) > 10
    assert sum_divergence(0.4, 2) == math.inf
