"""Directed rounding for printed guarantees: upper bounds round up, lower bounds down."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

LONGEST = 4096
"""Bits of a numerator or denominator that is spelt exactly."""


def up(value: float, digits: int = 4) -> str:
    """Format a number of a guarantee, rounded up to `digits` significant digits.

    An excess of one part in 10^12, the error of double arithmetic, adds no digit.

    >>> up(1.0), up(1.0004), up(1.00001), up(0.1 + 0.2), up(3.2e-18)
    ('1', '1.001', '1.001', '0.3', '3.2e-18')
    """
    if not math.isfinite(value):
        return f"{value:g}"
    rounding = Context(prec=digits, rounding=ROUND_CEILING)
    exact = Decimal(repr(no_less(value))) * (1 - Decimal("1e-12"))
    return f"{float(rounding.create_decimal(exact)):.{digits}g}"


def down(value: float, digits: int = 4) -> str:
    """Format a proven lower bound, rounded down to `digits` significant digits.

    >>> down(1.0), down(0.99996), down(1.23456, 2)
    ('1', '0.9999', '1.2')
    """
    if not math.isfinite(value):
        return f"{value:g}"
    rounding = Context(prec=digits, rounding=ROUND_FLOOR)
    return f"{float(rounding.create_decimal(repr(float(value)))):.{digits}g}"


def exactly(value: float) -> str:
    """Format a number by as many digits as it has: a wanted ε, which no rounding may change.

    >>> exactly(1.0), exactly(1e-6), exactly(1.0000001)
    ('1', '1e-06', '1.0000001')
    """
    short = f"{value:g}"
    return short if float(short) == value else repr(float(value))


def spelt(value: Fraction) -> str:
    """Spell a fraction exactly, or rounded up to twelve digits if it is very long.

    Sums of many fractions may have more digits than Python converts.

    >>> spelt(Fraction(3, 2)), spelt(Fraction(10**9999 + 1, 10**9999))
    ('3/2', '1.00000000001')
    """
    if max(abs(value.numerator), value.denominator).bit_length() <= LONGEST:
        return str(value)
    rounding = Context(prec=12, rounding=ROUND_CEILING)
    return str(rounding.divide(Decimal(value.numerator), Decimal(value.denominator)))


def percent(part: Fraction, towards: str = ROUND_FLOOR) -> str:
    """Format a fraction as a percentage of four digits, rounded down, or up with `ROUND_CEILING`.

    >>> percent(Fraction(1, 10)), percent(Fraction(2, 3)), percent(Fraction(2, 3), ROUND_CEILING)
    ('10%', '66.66%', '66.67%')
    """
    rounding = Context(prec=4, rounding=towards)
    whole = part * 100
    return f"{float(rounding.divide(whole.numerator, whole.denominator)):.4g}%"


def no_less(value: float | Fraction) -> float:
    """Return the nearest float that is not below a number, which may be a fraction."""
    near = float(value)
    return near if near >= value else math.nextafter(near, math.inf)


def no_more(value: float | Fraction) -> float:
    """Return the nearest float that is not above a number, which may be a fraction.

    >>> Fraction(no_more(Fraction(1, 10))) <= Fraction(1, 10) < Fraction(0.1)
    True
    """
    near = float(value)
    return near if near <= value else math.nextafter(near, -math.inf)


def delta_up(value: float) -> float:
    """Return a computed δ that is not 0: below the smallest positive double it is that one.

    >>> delta_up(1e-6), delta_up(0.0) > 0
    (1e-06, True)
    """
    return max(value, math.ulp(0.0))


def total_of(numbers: Iterable[float]) -> float:
    """Return the exact sum of these, rounded up; inf if one of them is.

    >>> total_of([0.1] * 3) >= 3 * Fraction(0.1), total_of([1.0, math.inf])
    (True, inf)
    """
    given = list(numbers)
    finite = all(map(math.isfinite, given))
    return no_less(sum(map(Fraction, given), Fraction(0))) if finite else math.inf


def times_up(value: float, count: int) -> float:
    """Return `count` times a number, rounded up; inf if it is.

    >>> times_up(0.1, 3) >= 3 * Fraction(0.1)
    True
    """
    return no_less(Fraction(value) * count) if math.isfinite(value) else math.inf
