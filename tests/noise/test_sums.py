"""Sums of independent distributions, sums modulo m, and wrap-around probabilities."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.noise.distributions import DISTRIBUTIONS

from tacit.noise import (
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    NoiseDistribution,
    Polya,
    Skellam,
    Table,
    convolve,
    modular_pmf,
    table,
    wrap_probability,
)
from tacit.noise.table import entries


def brute_force(one: NoiseDistribution, other: NoiseDistribution) -> dict[int, float]:
    (start, p), (offset, q) = entries(one), entries(other)
    terms: dict[int, list[float]] = {}
    for (i, a), (j, b) in product(enumerate(p), enumerate(q)):
        terms.setdefault(start + offset + i + j, []).append(a * b)
    return {k: math.fsum(values) for k, values in terms.items()}


PAIRS = [
    (Binomial(30, 0.2), DiscreteGaussian(1.5)),
    (DiscreteLaplace(0.3), Polya(0.5, 0.2)),
    (Table.of(-5, np.array([0.5, 0.0, 0.5])), Skellam(0.1)),
]


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=repr)
def test_convolution_agrees_with_brute_force(
    one: NoiseDistribution, other: NoiseDistribution
) -> None:
    total = convolve(one, other)
    truth = brute_force(one, other)
    np.testing.assert_allclose(
        total.pmf(list(truth)), list(truth.values()), rtol=1e-13, atol=1e-300
    )
    assert total.mean == pytest.approx(one.mean + other.mean, abs=1e-12)
    assert total.variance == pytest.approx(one.variance + other.variance, rel=1e-11)


def test_long_convolutions_by_fourier_transform_agree_with_direct_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, other = Skellam(900), DiscreteLaplace(20)
    direct = convolve(one, other)
    monkeypatch.setattr(table, "DIRECT_LIMIT", 0)
    fast = convolve(one, other)
    np.testing.assert_allclose(fast.probabilities, direct.probabilities, rtol=0, atol=1e-15)


def test_convolution_preserves_log_concavity_and_symmetry() -> None:
    total = convolve(DiscreteGaussian(30), Skellam(100))
    assert total.log_concave
    assert total.symmetric
    assert not convolve(Polya(0.1, 0.5), Polya(0.1, 0.5)).log_concave


@pytest.mark.parametrize("modulus", [2, 3, 17, 1000])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_distribution_modulo_m_agrees_with_brute_force(name: str, modulus: int) -> None:
    start, pmf = entries(DISTRIBUTIONS[name])
    terms: list[list[float]] = [[] for _ in range(modulus)]
    for i, p in enumerate(pmf):
        terms[(start + i) % modulus].append(float(p))
    result = modular_pmf(DISTRIBUTIONS[name], modulus)
    np.testing.assert_allclose(
        result, [math.fsum(values) for values in terms], rtol=1e-11, atol=1e-300
    )
    assert result.sum() == pytest.approx(1, abs=1e-12)


def misread(distribution: NoiseDistribution, total: int, largest_sum: int, modulus: int) -> float:
    """P[the analyzer does not decode `total` + noise]: residues above largest_sum + τ are
    negative.
    """
    start, pmf = entries(distribution)
    released = total + start + np.arange(len(pmf))
    spare = (modulus - largest_sum - 1) // 2
    right = (released >= -spare) & (released <= largest_sum + spare)
    return math.fsum(pmf[~right])


@settings(max_examples=40, deadline=None)
@given(
    distribution=st.one_of(
        st.builds(DiscreteLaplace, st.floats(0.2, 10)),
        st.builds(Skellam, st.floats(0.1, 50)),
        st.builds(Binomial, st.integers(1, 30), st.floats(0.05, 0.95)),
        st.builds(Polya, st.floats(0.1, 3), st.floats(0.1, 0.8)),
    ),
    largest_sum=st.integers(0, 30),
    room=st.integers(1, 80),
)
@example(distribution=Table.of(-5, np.array([0.1] * 5 + [0.5])), largest_sum=3, room=5)
@example(distribution=Table.of(0, np.array([0.5] + [0.1] * 5)), largest_sum=3, room=5)
def test_the_wrap_probability_is_that_of_the_worst_sum(
    distribution: NoiseDistribution, largest_sum: int, room: int
) -> None:
    modulus = largest_sum + room
    worst = max(
        misread(distribution, total, largest_sum, modulus) for total in range(largest_sum + 1)
    )
    stated = wrap_probability(distribution, largest_sum, modulus)
    assert worst <= stated * (1 + 1e-9) + 1e-300
    assert worst <= distribution.wrap_chance(largest_sum, modulus) * (1 + 1e-9) + 1e-300
    if distribution.symmetric and distribution.mean == 0:
        assert stated == pytest.approx(worst, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("largest_sum", [0, 5, 40])
def test_the_wrap_probability_agrees_with_simulation(largest_sum: int) -> None:
    """A small modulus, 10^6 sums at the worst end; seeded, false-alarm rate 1e-6."""
    distribution, count, spare = DiscreteLaplace(3), 1_000_000, 9
    modulus = largest_sum + 2 * spare + 1
    noise = distribution.sample(np.random.default_rng(8), count)
    released = (largest_sum + noise) % modulus
    read = np.where(released > largest_sum + spare, released - modulus, released)
    wrong = int((read != largest_sum + noise).sum())
    chance = wrap_probability(distribution, largest_sum, modulus)
    assert stats.binomtest(wrong, count, chance).pvalue > 1e-6


@pytest.mark.parametrize(
    "distribution",
    [DiscreteLaplace(9), DiscreteLaplace(9).share(5), DiscreteLaplace(90).power(20), Skellam(90)],
    ids=repr,
)
def test_a_distribution_states_its_required_modulus(distribution: NoiseDistribution) -> None:
    modulus = 130 + 2 * distribution.tail_margin(1e-9) + 1
    assert 0 < distribution.wrap_chance(130, modulus) <= 1e-9
    assert distribution.wrap_chance(130, 132) > 0.1


def test_a_modulus_below_the_sum_is_rejected_with_a_sufficient_one() -> None:
    with pytest.raises(
        ValueError, match=r"modulus 10 is too small for sums up to 10: use at least \d+"
    ) as caught:
        wrap_probability(Binomial(100), 10, 10)
    recommended = int(str(caught.value).split("at least ")[1].split(",")[0])
    assert wrap_probability(Binomial(100), 10, recommended) <= 1e-9


def test_a_table_is_immutable_and_cannot_be_drawn_from() -> None:
    given_array = np.array([0.5, 0.5])
    distribution = Table.of(0, given_array)
    given_array[0] = 1.0
    assert float(distribution.pmf(0)) == 0.5
    with pytest.raises(ValueError, match="read-only"):
        distribution.probabilities[0] = 1.0
    with pytest.raises(ValueError, match="draw from the distributions that it sums"):
        distribution.draw()


def test_sums_too_long_for_a_table_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "LARGEST_WINDOW", 1000)
    with pytest.raises(ValueError, match=r"spreads over .* integers, more than a table of 1,000"):
        convolve(DiscreteLaplace(100), DiscreteLaplace(1))
    monkeypatch.setattr(table, "DIRECT_LIMIT", 0)
    distribution = Table.of(0, np.full(600, 1 / 600))
    with pytest.raises(ValueError, match="exceeds the largest table of 1,000"):
        convolve(distribution, distribution)
