"""Probabilities and moments: accurate to the last digits, also far in the tails and for wide
distributions.
"""

from __future__ import annotations

import math
import pickle
from fractions import Fraction
from typing import Any, cast

import mpmath as mp
import numpy as np
import pytest
from scipy.special import ndtr
from tests.noise.distributions import DISTRIBUTIONS, DRAWABLE, WIDE, digits, reference

from tacit.noise import (
    Binomial,
    Chance,
    DiscreteGaussian,
    DiscreteLaplace,
    NoiseDistribution,
    Polya,
    PolyaDifference,
    Skellam,
)
from tacit.noise.table import entries

EACH = pytest.mark.parametrize("name", DISTRIBUTIONS)


@EACH
def test_probabilities_sum_to_one(name: str) -> None:
    _, pmf = entries(DISTRIBUTIONS[name])
    assert math.fsum(pmf) == pytest.approx(1, abs=1e-13)


@EACH
def test_mean_and_variance_agree_with_summation(name: str) -> None:
    distribution = DISTRIBUTIONS[name]
    start, pmf = entries(distribution)
    k = start + np.arange(len(pmf), dtype=float)
    mean = math.fsum(k * pmf)
    assert distribution.mean == pytest.approx(mean, rel=1e-12, abs=1e-12 * distribution.std)
    assert distribution.variance == pytest.approx(math.fsum((k - mean) ** 2 * pmf), rel=1e-11)
    assert distribution.std == pytest.approx(math.sqrt(distribution.variance))


def points(distribution: NoiseDistribution) -> list[int]:
    """Near zero, through the bulk, and so far out that the probability itself is zero in double
    precision.
    """
    low, high = distribution.support
    steps = [-45, -25, -6, -2, -1, -0.3, 0, 0.3, 1, 2, 6, 25, 45]
    near = {*range(-3, 4), 15, 16, 17, 63, 64, 65}
    if distribution.std > 1e5:
        near = {0, 1}
    candidates = near | {round(distribution.mean + step * distribution.std) for step in steps}
    if math.isfinite(high):
        candidates |= {int(low), int(low) + 1, int(high) - 1, int(high)}
    return sorted(int(k) for k in candidates if low <= k <= high)


@pytest.mark.parametrize("name", [*DRAWABLE, *WIDE])
def test_log_probabilities_agree_with_mpmath(name: str) -> None:
    """To 1e-12 in the bulk; further out, to a part in 10^13 of the logarithm, about what a double
    can hold.
    """
    distribution = (DRAWABLE | WIDE)[name]
    with digits():
        truth = reference(distribution)
        for k in points(distribution):
            expected = float(truth(k))
            assert float(distribution.log_pmf(k)) == pytest.approx(
                expected, rel=1e-13, abs=1e-12
            ), k


@pytest.mark.parametrize("name", DRAWABLE)
def test_log_probabilities_reach_beyond_what_a_double_can_hold(name: str) -> None:
    distribution = DRAWABLE[name]
    high = distribution.support[1]
    k = int(min(high, round(distribution.mean + 120 * distribution.std + 400)))
    with digits():
        expected = float(reference(distribution)(k))
    assert float(distribution.log_pmf(k)) == pytest.approx(expected, rel=1e-12)
    if math.isinf(high) and expected < -750:
        assert float(distribution.pmf(k)) == 0.0


@EACH
def test_probabilities_are_elementwise_and_zero_outside_the_support(name: str) -> None:
    distribution = DISTRIBUTIONS[name]
    k = np.arange(-6, 6).reshape(3, 4)
    assert distribution.pmf(k).shape == (3, 4)
    np.testing.assert_array_equal(
        distribution.log_pmf(k), [[float(distribution.log_pmf(int(x))) for x in row] for row in k]
    )
    low, high = distribution.support
    if math.isfinite(low):
        assert float(distribution.log_pmf(int(low) - 1)) == -math.inf
    if math.isfinite(high):
        assert float(distribution.log_pmf(int(high) + 1)) == -math.inf


@EACH
def test_symmetric_distributions_are_symmetric_and_the_others_are_not(name: str) -> None:
    _, pmf = entries(DISTRIBUTIONS[name])
    assert DISTRIBUTIONS[name].symmetric == np.allclose(pmf, pmf[::-1], rtol=1e-9, atol=1e-290)


@EACH
def test_log_concavity_is_claimed_exactly_where_it_holds(name: str) -> None:
    distribution = DISTRIBUTIONS[name]
    _, pmf = entries(distribution)
    logs = np.log(pmf[np.flatnonzero(pmf > 1e-280)])
    gapless = bool(np.all(pmf[1:-1] > 0))
    assert distribution.log_concave == (gapless and bool(np.all(np.diff(logs, n=2) <= 1e-10)))


def growth_rates(distribution: NoiseDistribution) -> list[float]:
    return [
        sign * min(size / distribution.std, 0.6 * distribution.mgf_radius)
        for size in (1e-6, 0.1, 1.0, 3.0)
        for sign in (-1, 1)
    ]


@EACH
def test_the_log_moment_generating_function_agrees_with_summation(name: str) -> None:
    distribution = DISTRIBUTIONS[name]
    start, pmf = entries(distribution)
    k = start + np.arange(len(pmf), dtype=float)
    rates = growth_rates(distribution)
    values = distribution.log_mgf(np.array(rates))
    for rate, value in zip(rates, values, strict=True):
        assert float(value) == pytest.approx(
            math.log(math.fsum(pmf * np.exp(rate * k))), rel=1e-10, abs=1e-13
        )
        assert float(distribution.log_mgf(rate)) == float(value)
    assert float(distribution.log_mgf(0.0)) == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize("sigma", [0.6, 0.99, 1.0, 1.3])
def test_the_mgf_of_a_narrow_discrete_gaussian_is_exact(sigma: float) -> None:
    """They differ by 10^-9 at σ = 1."""
    k = np.arange(-40.0, 41.0)
    weights = np.exp(-((k / sigma) ** 2) / 2)
    for rate in (0.2, 0.37, 1.4):
        exact = math.log(math.fsum(weights * np.exp(rate * k)) / math.fsum(weights))
        found = float(DiscreteGaussian(sigma).log_mgf(rate))
        assert found == pytest.approx(exact, rel=1e-12, abs=1e-14)


def test_a_moment_generating_function_is_infinite_where_the_sum_diverges() -> None:
    assert float(DiscreteLaplace(2).log_mgf(0.5)) == math.inf
    assert float(DiscreteLaplace(2).log_mgf(-0.7)) == math.inf
    assert float(Polya(1, 0.5).log_mgf(math.log(2) + 1e-9)) == math.inf
    assert math.isfinite(float(Polya(1, 0.5).log_mgf(-100.0)))


def test_moment_generating_functions_do_not_cancel_or_overflow() -> None:
    wide = Binomial(4 * 10**12)
    assert float(wide.log_mgf(1e-9)) - 1e-9 * wide.mean == pytest.approx(
        0.5e-18 * wide.variance, rel=1e-6
    )
    assert float(Binomial(3, 0.25).log_mgf(2000.0)) == pytest.approx(6000 + 3 * math.log(0.25))
    assert float(DiscreteGaussian(0.01).log_mgf(5000.0)) == pytest.approx(math.log(2), rel=1e-9)


@pytest.mark.parametrize("scale", [1e-4, 1e-3, 0.02, 0.3, 1.0, 50.0, 1e5])
def test_moments_hold_at_very_small_and_very_large_scales(scale: float) -> None:
    distribution = DiscreteLaplace(scale)
    with digits(400):
        p = mp.exp(-1 / mp.mpf(scale))
        expected = float(2 * p / (1 - p) ** 2)
    assert distribution.variance == pytest.approx(expected, rel=1e-13)
    assert Polya(1, Chance(Fraction(1), 1 / Fraction(scale))).variance == pytest.approx(
        expected / 2, rel=1e-13
    )
    assert distribution.tail(0) == pytest.approx((1 - float(distribution.pmf(0))) / 2, abs=1e-15)


def test_a_beta_next_to_one_keeps_its_digits() -> None:
    """1 - 1e-12 as a fraction: rounded to a double, its distance to one would be wrong in the fifth
    digit.
    """
    assert Polya(1, 1 - Fraction(1, 10**12)).mean == pytest.approx(10**12 - 1, rel=1e-12)


def test_a_polya_difference_too_wide_for_a_table_is_rejected_with_a_remedy() -> None:
    with pytest.raises(
        ValueError, match=r"needs a table of [\d,]+ terms.*use a smaller precision, or Skellam"
    ):
        DiscreteLaplace(10**6).share(2).log_pmf(0)


@pytest.mark.parametrize("name", DRAWABLE)
def test_distributions_are_hashable_values(name: str) -> None:
    """Equal, hashable, frozen, printable as code, and picklable even after they have drawn."""
    distribution = DRAWABLE[name]
    distribution.draw()
    distribution.log_pmf(1)
    copy = pickle.loads(pickle.dumps(distribution))
    assert copy == distribution
    assert hash(copy) == hash(distribution)
    assert eval(repr(distribution)) == distribution
    assert isinstance(copy.draw(), int)
    with pytest.raises(AttributeError):
        distribution.mean = 1  # type: ignore[misc]


def test_numpy_numbers_make_the_same_distributions_as_python_numbers() -> None:
    """A NumPy integer inside a Fraction would wrap around in exact arithmetic."""
    pairs = [
        (DiscreteLaplace(cast(Any, np.int64(10))), DiscreteLaplace(10)),
        (DiscreteLaplace(cast(Any, np.float32(0.5))), DiscreteLaplace(0.5)),
        (Skellam(cast(Any, np.int32(1388))), Skellam(1388)),
        (DiscreteGaussian(cast(Any, np.uint8(200))), DiscreteGaussian(200)),
        (Binomial(cast(Any, np.int64(62)), np.float64(0.25)), Binomial(62, 0.25)),
        (Polya(cast(Any, np.int8(2)), np.float64(0.5)), Polya(2, 0.5)),
        (PolyaDifference(cast(Any, np.int8(2)), np.float64(0.5)), PolyaDifference(2, 0.5)),
    ]
    for given, meant in pairs:
        assert repr(given) == repr(meant)
        assert type(given.draw()) is int


@pytest.mark.parametrize("p", [Fraction(1, 4), Fraction(1, 2), Fraction(1, 100)])
@pytest.mark.parametrize("n", [400, 40_000])
def test_a_binomial_is_within_its_bound_of_a_gaussian(n: int, p: Fraction) -> None:
    """The distance itself, summed: 7.6/σ holds with much room."""
    noise = Binomial(n, p)
    k = np.arange(n + 1)
    edges = (np.arange(n + 2) - 0.5 - noise.mean) / noise.std
    rounded = np.diff(ndtr(edges))
    true = 0.5 * float(np.abs(noise.pmf(k) - rounded).sum())
    bound = noise.distance_from_gaussian()
    assert true <= bound + 1e-12
    assert true <= 7.6 / noise.std / 5
    if p != Fraction(1, 2):
        assert bound == min(1.0, 7.6 / noise.std)
