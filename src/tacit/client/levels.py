"""Unbiased randomized rounding of an answer to one of the levels of the terms.

The draw is exact: a uniform integer below the denominator of the fractional part, from the
operating system's randomness. The device stores, encrypts and sends the level; it does not store
the answer itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from tacit.aggregation.interface import SYSTEM, Source, uniform
from tacit.errors import TacitError, as_fraction, require
from tacit.terms import Answer

Value = bool | int | float | Fraction
Outcome = Value | Mapping[str, Value | Sequence[Value]]
"""An answer, one for each metric, or those of every option that was tried."""


def round_to_level(answer: Answer, value: Value, source: Source = SYSTEM) -> int:
    """Round a value to an adjacent level at random; the expectation is the value.

    >>> round_to_level(Answer("minutes", levels=4, high=Fraction(60)), 45)
    3
    """
    exact = Fraction(value) if isinstance(value, bool) else as_fraction("answer", value)
    rule = f"from {answer.low} to {answer.high}. Rescale or clip it before it is recorded"
    require(answer.low <= exact <= answer.high, "answer", value, rule)
    scaled = (exact - answer.low) / (answer.high - answer.low) * answer.levels
    whole = math.floor(scaled)
    rest = scaled - whole
    return whole + (uniform(rest.denominator, 1, source)[0] < rest.numerator)


def default_levels(answer: Answer) -> tuple[int, ...]:
    """Default levels if nothing is recorded: zero, or the value of the range nearest to zero."""
    zero = min(max(Fraction(0), answer.low), answer.high)
    return tuple(round_to_level(answer, zero) for _ in answer.metrics)


def levels_of_plays(answer: Answer, plays: Sequence[str], value: Outcome) -> dict[int, int]:
    """Levels of recorded plays, by their place among `plays`, the options in order.

    >>> levels_of_plays(Answer("liked"), ("A", "B", "B"), {"B": [1, 0]})
    {1: 1, 2: 0}
    """
    names = ", ".join(dict.fromkeys(plays))
    if not isinstance(value, Mapping):
        raise TacitError(f"answer is {value!r}: must be a mapping of {names} to answers")
    found: dict[int, int] = {}
    for option, said in value.items():
        places = [place for place, one in enumerate(plays) if one == option]
        require(places, "option", repr(option), f"one of {names}, which the round tries")
        given = list(said) if isinstance(said, Sequence) else [said]
        rule = f"{len(places)}, one for each time that it is tried"
        require(len(given) == len(places), f"number of answers about {option}", len(given), rule)
        found |= {
            place: round_to_level(answer, one) for place, one in zip(places, given, strict=True)
        }
    return found


def levels_of(answer: Answer, value: Outcome) -> dict[int, int]:
    """Level of each recorded metric, by the index of the metric in the terms."""
    if isinstance(value, Mapping):
        unknown = [name for name in value if name not in answer.metrics]
        require(not unknown, "metric", unknown, f"one of {', '.join(answer.metrics)}")
        several = [name for name, part in value.items() if isinstance(part, Sequence)]
        require(not several, "answer of", several, "one number")
        return {
            answer.metrics.index(name): round_to_level(answer, part)
            for name, part in value.items()
            if not isinstance(part, Sequence)
        }
    rule = f"a mapping of {', '.join(answer.metrics)} to numbers"
    require(len(answer.metrics) == 1, "answer", value, rule)
    return {0: round_to_level(answer, value)}
