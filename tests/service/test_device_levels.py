"""An answer is rounded to a level at random, exactly and within its range."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tacit.client.levels import default_levels, levels_of, round_to_level
from tacit.errors import TacitError
from tacit.terms import Answer

FALSE_ALARM = 1e-6


@given(
    st.fractions(-5, 5, max_denominator=1000),
    st.fractions(Fraction(1, 100), 20, max_denominator=1000),
    st.integers(1, 300),
    st.fractions(0, 1, max_denominator=10**6),
)
def test_a_value_is_rounded_to_one_of_its_two_neighbouring_levels(
    low: Fraction, width: Fraction, levels: int, part: Fraction
) -> None:
    answer = Answer("", levels=levels, low=low, high=low + width)
    found = round_to_level(answer, low + width * part)
    assert found in {math.floor(part * levels), math.ceil(part * levels)}


@pytest.mark.parametrize("numerator", range(8))
def test_stochastic_rounding_has_the_exact_mean(numerator: int) -> None:
    """With a denominator of 8 the draw depends on the last three bits alone."""
    words = [partial(int.to_bytes, end, byteorder="big") for end in range(8)]
    drawn = [round_to_level(Answer("", levels=3), Fraction(numerator, 24), word) for word in words]
    assert Fraction(sum(drawn), 8) == Fraction(numerator, 8)


def test_rounding_with_system_randomness_follows_the_value() -> None:
    """3000 draws of 0.3 of 7 levels; false-alarm rate 1e-6."""
    answer = Answer("", levels=7, high=Fraction(10))
    counts = Counter(round_to_level(answer, Fraction(3)) for _ in range(3000))
    assert set(counts) == {2, 3}
    assert stats.binomtest(counts[3], 3000, 0.1).pvalue > FALSE_ALARM


def test_floats_are_converted_exactly() -> None:
    assert round_to_level(Answer("", levels=10), 0.5) == 5
    assert round_to_level(Answer("", levels=1 << 20), 2.0**-20) == 1
    assert {
        round_to_level(Answer("", levels=1), True),
        round_to_level(Answer("", levels=1), False),
    } == {0, 1}


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(0, 1, {0}), (1, 5, {0}), (-4, 4, {2}), (-5, -1, {4})]
)
def test_an_unrecorded_answer_is_zero_or_the_closest_value(
    low: int, high: int, expected: set[int]
) -> None:
    answer = Answer("", ("one", "other"), 4, low=Fraction(low), high=Fraction(high))
    assert set(default_levels(answer)) == expected
    assert len(default_levels(answer)) == 2


def test_several_metrics_must_be_named() -> None:
    answer = Answer("", ("one", "other"))
    assert levels_of(answer, {"other": 1}) == {1: 1}
    with pytest.raises(TacitError, match="must be a mapping of"):
        levels_of(answer, 1)
