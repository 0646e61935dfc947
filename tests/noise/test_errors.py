"""Rejections: one line with value and remedy, raised before any randomness is drawn."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.noise.distributions import DISTRIBUTIONS
from tests.tables import each_row

from tacit.errors import TacitError
from tacit.noise import (
    Binomial,
    Chance,
    DiscreteGaussian,
    DiscreteLaplace,
    Polya,
    PolyaDifference,
    Skellam,
    Table,
    modular_pmf,
    sum_divergence,
    wrap_probability,
)

POSITIVE: dict[str, Callable[[Any], object]] = {
    "scale": DiscreteLaplace,
    "variance": Skellam,
    "sigma": DiscreteGaussian,
    "r": lambda r: Polya(r, 0.5),
    "n": Binomial,
}
NOT_POSITIVE = [0, -1, -0.5, math.nan, math.inf, -math.inf, "2", None, True, 1j, [1]]


def rejection(call: Callable[[], object]) -> str:
    with pytest.raises(TacitError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    return message


@each_row("value", NOT_POSITIVE)
@each_row("name", POSITIVE)
def test_a_nonpositive_or_infinite_parameter_is_rejected(name: str, value: object) -> None:
    message = rejection(lambda: POSITIVE[name](value))
    assert message.startswith(f"{name} is ")
    assert str(value) in message
    assert "must be" in message
    assert ": " in message, "no remedy"


@each_row("value", [0, 1, -0.1, 1.5, math.nan, math.inf, "half", None])
@each_row(
    "make", [lambda p: Polya(1, p), lambda p: PolyaDifference(1, p), lambda p: Binomial(5, p)]
)
def test_a_bias_outside_zero_to_one_is_rejected(
    make: Callable[[Any], object], value: object
) -> None:
    message = rejection(lambda: make(value))
    assert str(value) in message
    assert "must be a probability with 0 <" in message


@pytest.mark.parametrize("chance", [Chance(Fraction(0)), Chance(Fraction(1))])
def test_a_probability_of_one_is_no_beta(chance: Chance) -> None:
    assert "strictly between 0 and 1" in rejection(lambda: Polya(1, chance))


@pytest.mark.parametrize(
    ("factor", "rate"), [(2, 0), (-1, 0), (1, -1), ("1", 0), (math.nan, 0), (1, math.inf)]
)
def test_a_probability_above_one_is_rejected(factor: Any, rate: Any) -> None:
    assert (
        "must be" in (message := rejection(lambda: Chance(factor, rate)))
        or "needs a factor" in message
    )


@each_row("count", [0, -3, 2.5, math.nan, "two", None])
@each_row("name", DISTRIBUTIONS)
def test_a_share_count_below_one_is_rejected(name: str, count: Any) -> None:
    message = rejection(lambda: DISTRIBUTIONS[name].share(count))
    assert message.startswith(f"shares is {count}: ")
    assert "at least one participant" in message


@each_row("times", [0, -1, math.nan, math.inf, "two"])
@each_row("name", DISTRIBUTIONS)
def test_a_nonpositive_power_is_rejected(name: str, times: Any) -> None:
    assert str(times) in rejection(lambda: DISTRIBUTIONS[name].power(times))


@each_row("p", [0, 1, -0.1, 1.1, math.nan, math.inf, "0.5", None])
@each_row("ask", ["quantile", "tail_quantile", "bound"])
@each_row("name", ["laplace-10", "skellam-1388", "binomial-62", "table"])
def test_a_level_outside_zero_to_one_is_rejected(name: str, ask: str, p: Any) -> None:
    message = rejection(lambda: getattr(DISTRIBUTIONS[name], ask)(p))
    assert f"is {p}: must be a probability" in message


@pytest.mark.parametrize(
    "p", [1 - Fraction(1, 10**30), Fraction(1, 10**400)], ids=["almost one", "almost zero"]
)
@pytest.mark.parametrize("ask", ["quantile", "tail_quantile", "bound"])
def test_a_level_indistinguishable_from_an_endpoint_is_rejected(ask: str, p: Fraction) -> None:
    assert "in double precision" in rejection(lambda: getattr(DiscreteLaplace(10), ask)(p))


@pytest.mark.parametrize("size", [-1, 2.5, "3"], ids=repr)
def test_an_invalid_sample_size_is_rejected(size: Any) -> None:
    assert f"size is {size}:" in rejection(lambda: Skellam(3).draw(size))


@pytest.mark.parametrize("modulus", [1, 0, -7, 2.5, "31"], ids=repr)
def test_a_modulus_out_of_range_is_rejected(modulus: Any) -> None:
    assert f"modulus is {modulus}:" in rejection(lambda: modular_pmf(Skellam(3), modulus))


@pytest.mark.parametrize("failure", [0, 1, math.nan, -1e-9, "never"], ids=repr)
def test_a_failure_probability_outside_zero_to_one_is_rejected(failure: Any) -> None:
    said = rejection(lambda: Skellam(3).tail_margin(failure))
    assert f"failure probability is {failure}:" in said


def test_a_modulus_too_small_is_rejected() -> None:
    assert "use at least" in rejection(lambda: wrap_probability(Skellam(3), 10, 5))
    assert "use at least" in rejection(lambda: DiscreteLaplace(300).wrap_chance(10, 5))
    assert "largest sum is -1" in rejection(lambda: wrap_probability(Skellam(3), -1, 5))


@each_row(
    "probabilities",
    [[], [0.5], [0.5, 0.6], [1.5, -0.5], [math.nan, 1.0], [[0.5, 0.5]], "half", None],
)
def test_a_table_that_is_no_distribution_is_rejected(probabilities: Any) -> None:
    assert "sum to 1" in rejection(lambda: Table.of(0, probabilities))


def test_a_table_starts_at_an_integer() -> None:
    starts: list[Any] = [0.5, "0", None]
    for start in starts:
        assert "whole number to start at" in rejection(partial(Table.of, start, np.array([1.0])))


@pytest.mark.parametrize(("sigma", "n"), [(0, 2), (math.nan, 2), (1, 0), (1, 1.5), ("1", 2)])
def test_a_divergence_of_no_shares_is_rejected(sigma: Any, n: Any) -> None:
    assert "must be" in rejection(lambda: sum_divergence(sigma, n))


def test_more_bits_than_a_simulation_can_count_are_rejected() -> None:
    rng = np.random.default_rng(1)
    for size in (None, 3):
        found = rejection(partial(Binomial(1 << 63).sample, rng, size))
        assert "n is 9.22e+18" in found
        assert "use a larger epsilon" in found
    assert 0 <= Binomial((1 << 63) - 1).sample(rng) < 1 << 63
