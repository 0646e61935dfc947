"""`draw` and `sample` follow their distributions, and the battery detects defective samplers."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from tests.noise.battery import adjacent_ratios, chi_square, signs, suspicions
from tests.noise.distributions import DISTRIBUTIONS, DRAWABLE

from tacit.noise import Chance, DiscreteLaplace, NoiseDistribution, Polya, Skellam
from tacit.sampling.coins import ONE_OVER_E, flip_exp, random_bits, uniform_below

EACH = pytest.mark.parametrize("name", DRAWABLE)
DRAWS = 40_000  # as many as catch the wrong samplers below
WRONG = DRAWS


@EACH
def test_draws_follow_the_distribution(name: str) -> None:
    distribution = DRAWABLE[name]
    assert not suspicions([distribution.draw() for _ in range(DRAWS)], distribution)


@EACH
@pytest.mark.slow
def test_a_million_draws_follow_the_distribution(name: str) -> None:
    distribution = DRAWABLE[name]
    assert not suspicions(distribution.draw(1_000_000), distribution)


@pytest.mark.parametrize("name", ["binomial-62", "binomial-130"])
def test_fair_bits_drawn_in_bulk_follow_the_distribution(name: str) -> None:
    distribution = DRAWABLE[name]
    assert not suspicions(distribution.draw(1_000_000), distribution)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_samples_follow_the_distribution(name: str) -> None:
    distribution = DISTRIBUTIONS[name]
    assert not suspicions(distribution.sample(np.random.default_rng(2026), 500_000), distribution)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.slow
def test_millions_of_samples_follow_the_distribution(name: str) -> None:
    distribution = DISTRIBUTIONS[name]
    assert not suspicions(distribution.sample(np.random.default_rng(11), 5_000_000), distribution)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_seed_reproduces_samples_and_shapes_are_kept(name: str) -> None:
    distribution = DISTRIBUTIONS[name]
    once, again = (distribution.sample(np.random.default_rng(5), (3, 4)) for _ in range(2))
    assert once.shape == (3, 4)
    assert np.issubdtype(once.dtype, np.integer)
    np.testing.assert_array_equal(once, again)
    assert np.ndim(distribution.sample(np.random.default_rng(5))) == 0
    assert distribution.sample(np.random.default_rng(5), 0).shape == (0,)


@pytest.mark.extended
def test_wide_draws_have_the_stated_variance() -> None:
    """Far beyond what a histogram resolves: the variance of 60 draws at standard deviation 10^6,
    false alarm 1e-8.
    """
    from scipy import stats

    distribution = Skellam(10**12)
    values = np.array([distribution.draw() for _ in range(60)], dtype=float)
    statistic = float((values**2).sum() / distribution.variance)
    assert stats.chi2.ppf(5e-9, 60) < statistic < stats.chi2.isf(5e-9, 60)


# Samplers that are wrong, each in a way that has happened.


def half_scale() -> int:
    return DiscreteLaplace(5).draw()


def zero_counted_twice() -> int:
    """The sign of a magnitude, without throwing away minus zero."""
    while True:
        remainder = uniform_below(10)
        if flip_exp(Fraction(remainder, 10)):
            break
    whole = 0
    while ONE_OVER_E.flip():
        whole += 1
    magnitude = remainder + 10 * whole
    return -magnitude if random_bits(1) else magnitude


def never_minus_one() -> int:
    """Off by one at zero: negative values start one too low."""
    value = DiscreteLaplace(10).draw()
    return value - 1 if value < 0 else value


def leaning_to_the_right() -> int:
    """One sign in twenty is lost."""
    value = DiscreteLaplace(10).draw()
    return abs(value) if uniform_below(20) == 0 else value


@pytest.mark.parametrize(
    "wrong", [half_scale, zero_counted_twice, never_minus_one, leaning_to_the_right]
)
def test_a_defective_discrete_laplace_sampler_is_detected(wrong: Callable[[], int]) -> None:
    assert suspicions([wrong() for _ in range(WRONG)], DiscreteLaplace(10))


def test_each_test_of_the_battery_detects_its_own_defect() -> None:
    distribution = DiscreteLaplace(10)
    assert chi_square(np.array([half_scale() for _ in range(WRONG)]), distribution) < 1e-12
    assert (
        adjacent_ratios(np.array([zero_counted_twice() for _ in range(WRONG)]), distribution)
        < 1e-12
    )
    assert signs(np.array([leaning_to_the_right() for _ in range(2 * WRONG)])) < 1e-4


def test_a_polya_walk_without_restart_is_detected() -> None:
    r, beta = Fraction(1, 2), Chance(Fraction(1), Fraction(1, 10))

    def walk() -> int:
        x = 0
        while beta.flip() and Chance((x + r) / (x + 1)).flip():
            x += 1
        return x

    assert suspicions([walk() for _ in range(10_000)], Polya(r, beta))


@pytest.mark.extended
def test_the_battery_accepts_a_correct_sampler_at_its_stated_rate() -> None:
    """At an alarm of 5%, 200 runs of NumPy's own Poisson difference raise 0 to 26 alarms but for a
    chance of 1e-5.
    """
    distribution, rng = Skellam(20), np.random.default_rng(1)
    alarms = sum(
        bool(suspicions(rng.poisson(10, 5000) - rng.poisson(10, 5000), distribution, 0.05))
        for _ in range(200)
    )
    assert alarms <= 26


@pytest.mark.parametrize("name", DRAWABLE)
def test_the_battery_detects_a_shift_by_one(name: str) -> None:
    distribution: NoiseDistribution = DRAWABLE[name]
    count = 400_000 if distribution.std < 100 else 3_000_000
    values = distribution.sample(np.random.default_rng(3), count) + 1
    assert suspicions(values, distribution)
    assert math.isfinite(distribution.std)
