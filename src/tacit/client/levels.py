"""Unbiased randomized rounding of an answer to one of the levels of the terms.

The draw is exact: a uniform integer below the denominator of the fractional part, from the
operating system's randomness. The device stores, encrypts and sends the level; it does not store
the answer itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

from tacit.aggregation.interface import SYSTEM, Source, uniform
from tacit.errors import as_fraction, require
from tacit.terms import Answer

Value = bool | int | float | Fraction


def level(answer: Answer, value: Value, source: Source = SYSTEM) -> int:
    """Round a value to an adjacent level at random; the expectation is the value.

    >>> level(Answer("minutes", levels=4, high=Fraction(60)), 45)
    3
    """
    exact = Fraction(value) if isinstance(value, bool) else as_fraction("answer", value)
    rule = f"from {answer.low} to {answer.high}. Rescale or clip it before it is recorded"
    require(answer.low <= exact <= answer.high, "answer", value, rule)
    scaled = (exact - answer.low) / (answer.high - answer.low) * answer.levels
    whole = math.floor(scaled)
    rest = scaled - whole
    return whole + (uniform(rest.denominator, 1, source)[0] < rest.numerator)


def nothing_happened(answer: Answer) -> tuple[int, ...]:
    """Default levels if nothing is recorded: zero, or the value of the range nearest to zero."""
    zero = min(max(Fraction(0), answer.low), answer.high)
    return tuple(level(answer, zero) for _ in answer.metrics)


def levels_of(answer: Answer, value: Value | Mapping[str, Value]) -> dict[int, int]:
    """Level of each recorded metric, by the index of the metric in the terms."""
    if isinstance(value, Mapping):
        unknown = [name for name in value if name not in answer.metrics]
        require(not unknown, "metric", unknown, f"one of {', '.join(answer.metrics)}")
        return {answer.metrics.index(name): level(answer, part) for name, part in value.items()}
    rule = f"a mapping of {', '.join(answer.metrics)} to numbers"
    require(len(answer.metrics) == 1, "answer", value, rule)
    return {0: level(answer, value)}
