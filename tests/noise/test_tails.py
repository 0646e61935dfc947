"""Tails and quantiles: exact sums rather than bounds, and inverse to each other."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.noise.distributions import DISTRIBUTIONS

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
from tacit.noise.chernoff import tail_bound
from tacit.noise.distribution import chord_sums, grid, tail_bounds
from tacit.noise.table import entries

EACH = pytest.mark.parametrize("name", DISTRIBUTIONS)


def floats(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, allow_nan=False)


@st.composite
def tables(draw: st.DrawFn) -> NoiseDistribution:
    weights = draw(st.lists(st.integers(0, 20), min_size=1, max_size=40).filter(any))
    return Table.of(draw(st.integers(-50, 50)), np.array(weights) / sum(weights))


CHANCES = st.builds(
    Chance, st.fractions(Fraction(1, 2), 1), st.fractions(Fraction(1, 100), 5, max_denominator=1000)
)
ANY_DISTRIBUTION = st.one_of(
    st.builds(DiscreteLaplace, floats(0.02, 300)),
    st.builds(Polya, floats(1e-3, 50), st.one_of(floats(0.01, 0.99), CHANCES)),
    st.builds(PolyaDifference, floats(1e-3, 5), st.one_of(floats(0.01, 0.98), CHANCES)),
    st.builds(Skellam, floats(1e-3, 1e5)),
    st.builds(DiscreteGaussian, floats(0.05, 500)),
    st.builds(Binomial, st.integers(1, 3000), floats(1e-4, 1 - 1e-4)),
    tables(),
)
LEVELS = st.one_of(floats(1e-12, 1 - 1e-12), floats(1e-9, 1e-3), st.just(0.5))


@settings(max_examples=150, deadline=None)
@given(distribution=ANY_DISTRIBUTION, p=LEVELS)
def test_a_quantile_is_the_smallest_value_that_reaches_the_level(
    distribution: NoiseDistribution, p: float
) -> None:
    k = distribution.quantile(p)
    if p >= 0.5:
        assert distribution.tail(k) <= 1 - p < distribution.tail(k - 1)
    else:
        assert distribution.cdf(k - 1) < p <= distribution.cdf(k)


@settings(max_examples=100, deadline=None)
@given(distribution=ANY_DISTRIBUTION, exponent=floats(-250, -0.001))
def test_a_tail_quantile_inverts_very_small_tails(
    distribution: NoiseDistribution, exponent: float
) -> None:
    p = 10**exponent
    k = distribution.tail_quantile(p)
    assert distribution.tail(k) <= p < distribution.tail(k - 1)


@settings(max_examples=100, deadline=None)
@given(distribution=ANY_DISTRIBUTION, p=LEVELS)
def test_a_tail_bound_is_the_smallest_sufficient_distance_from_the_mean(
    distribution: NoiseDistribution, p: float
) -> None:
    t, centre = distribution.bound(p), round(distribution.mean)

    def exceeded(distance: int) -> float:
        return distribution.tail(centre + distance) + distribution.cdf(centre - distance - 1)

    assert t >= 0
    assert exceeded(t) <= p * (1 + 1e-12)
    assert t == 0 or exceeded(t - 1) > p * (1 - 1e-12)


@EACH
def test_tail_and_cdf_are_sums_of_probabilities(name: str) -> None:
    distribution = DISTRIBUTIONS[name]
    start, pmf = entries(distribution)
    for step in (-20, -3, -1, -0.1, 0, 0.1, 1, 3, 20):
        t = round(distribution.mean + step * distribution.std)
        cut = min(max(t + 1 - start, 0), len(pmf))
        above, below = math.fsum(pmf[cut:]), math.fsum(pmf[:cut])
        assert distribution.tail(t) == pytest.approx(
            above,
            rel=1e-12 if t >= distribution.mean else 0,
            abs=1e-300 if t >= distribution.mean else 1e-13,
        )
        assert distribution.cdf(t) == pytest.approx(
            below,
            rel=1e-12 if t < distribution.mean else 0,
            abs=1e-300 if t < distribution.mean else 1e-13,
        )
        assert distribution.tail(t) + distribution.cdf(t) == pytest.approx(1, abs=1e-13)


@EACH
def test_the_window_contains_exactly_the_mass_above_the_floor(name: str) -> None:
    distribution = DISTRIBUTIONS[name]
    first, last = distribution.window(log_floor=-30.0)
    assert float(distribution.log_pmf(first)) >= -30 > float(distribution.log_pmf(first - 1))
    assert float(distribution.log_pmf(last)) >= -30 > float(distribution.log_pmf(last + 1))


@pytest.mark.parametrize(
    "distribution", [DiscreteLaplace(3), Skellam(9), Binomial(60, 0.3)], ids=repr
)
def test_mass_outside_the_window_is_bounded_on_both_sides(
    distribution: NoiseDistribution,
) -> None:
    first, last, outside = distribution.cover(-12.0)
    assert distribution.log_pmf(first - 1) < -12
    assert distribution.log_pmf(last + 1) < -12
    true = distribution.tail(last) + distribution.cdf(first - 1)
    assert true * (1 - 1e-9) <= outside <= 1.5 * true


def test_a_tail_is_summed_across_gaps_of_a_table() -> None:
    pmf = np.zeros(2001)
    pmf[[0, 2000]] = 0.5
    distribution = Table.of(0, pmf)
    assert distribution.tail(0) == 0.5
    assert distribution.cdf(1999) == 0.5
    assert distribution.window() == (0, 2000)
    assert not distribution.log_concave


WIDE = [
    DiscreteLaplace(20_000),
    Skellam(1e9),
    DiscreteGaussian(20_000.5),
    Binomial(10**9),
    Binomial(2 * 10**8, 0.3),
    Polya(30, Chance(Fraction(1), Fraction(1, 3000))),
]


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("distribution", WIDE, ids=repr)
def test_tail_bounds_bracket_the_exact_sum(distribution: NoiseDistribution, sign: int) -> None:
    assert distribution.std > 4096
    for distance in (0.01, 0.5, 2.0, 5.0):
        t = math.ceil(sign * distribution.mean + distance * distribution.std)
        exact = distribution.tail(t) if sign > 0 else distribution.cdf(-t - 1)
        low, high = tail_bounds(distribution, t, sign)
        assert low <= exact * (1 + 1e-10)
        assert exact <= high * (1 + 1e-10)
        assert high <= low * (1 + (1e-6 if distribution.symmetric else 1e-4)) + 1e-300


@pytest.mark.extended
@pytest.mark.parametrize("distribution", WIDE, ids=repr)
def test_quantiles_of_wide_distributions_invert_the_exact_sum(
    distribution: NoiseDistribution,
) -> None:
    k = distribution.tail_quantile(1e-9)
    assert distribution.tail(k) <= 1e-9 < distribution.tail(k - 1)
    k = distribution.quantile(1e-4)
    assert distribution.cdf(k - 1) < 1e-4 <= distribution.cdf(k)


def test_tail_bounds_are_zero_at_the_end_of_the_support() -> None:
    distribution = Binomial(10**8)
    assert tail_bounds(distribution, 10**8, 1) == (0.0, 0.0)
    assert tail_bounds(distribution, 2 * 10**8, 1) == (0.0, 0.0)
    low, high = tail_bounds(distribution, 10**8 - 3, 1)
    assert 0.0 <= low <= high < 1e-300


@given(steps=st.lists(floats(0, 0.3), min_size=8, max_size=60), block=st.integers(1, 9))
@settings(deadline=None)
def test_chord_sums_bracket_the_sum_of_any_concave_sequence(steps: list[float], block: int) -> None:
    slopes = 1.0 - np.cumsum(steps)
    logs = np.concatenate([[0.0], np.cumsum(slopes)])
    points = grid(block, len(logs) - 1 - 2 * block, block) if len(logs) > 3 * block + 1 else None
    if points is None or points[-1] >= len(logs):
        return
    low, high = chord_sums(points, logs[points])
    for i in range(len(low)):
        exact = math.fsum(np.exp(logs[points[i + 1] + 1 : points[i + 2] + 1]))
        assert low[i] <= exact * (1 + 1e-12)
        assert exact <= high[i] * (1 + 1e-12)


def test_quantiles_match_documented_values() -> None:
    assert DiscreteLaplace(2).quantile(0.95) == 5
    assert Binomial(1).quantile(0.5) == 0
    assert Binomial(1).quantile(0.5000001) == 1
    assert Skellam(1388).bound(0.05) == 73


@pytest.mark.parametrize("bias", [Fraction(1, 20), Fraction(1, 2), Fraction(19, 20)])
def test_a_chernoff_bound_is_above_both_tails(bias: Fraction) -> None:
    distribution = Binomial(200, bias)
    for t in range(5, 60, 5):
        mean = int(distribution.mean)
        true = distribution.tail(mean + t) + distribution.cdf(mean - t - 1)
        assert tail_bound(distribution, t) >= true
