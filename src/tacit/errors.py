"""Refusals that teach: every check names what was given, what is expected, and what to do instead.

All errors of tacit's own derive from `TacitError`, which is a `ValueError`; the command line prints
them as one line. A check runs before any randomness is spent and before anything is stored.
"""

from __future__ import annotations

import math
from fractions import Fraction
from numbers import Integral, Rational, Real

Number = int | float | Fraction


class TacitError(ValueError):
    """Something was asked for that cannot be done as asked; the message says what to do instead."""


class Refusal(TacitError):  # noqa: N818 - it is an answer, not a fault
    """A message, a round or terms that are not accepted; nothing was opened, sent or spent because
    of it.
    """


class Unavailable(TacitError):  # noqa: N818 - it is an answer, not a fault
    """Something that is needed is not there now, such as room on a disk or a database: nothing was
    changed, and the same may be tried again later.
    """


def as_fraction(name: str, value: object, remedy: str = "") -> Fraction:
    """`value` as an exact fraction; a float stands for the dyadic number that it is, not for its
    decimal shorthand.

    >>> as_fraction("scale", 0.5)
    Fraction(1, 2)
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TacitError(_join(f"{name} is {value!r}; it must be a number", remedy))
    if isinstance(value, Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    number = float(value)
    if not math.isfinite(number):
        raise TacitError(_join(f"{name} is {number}; it must be a finite number", remedy))
    return Fraction(number)


def positive(name: str, value: object, remedy: str = "") -> Fraction:
    """`value` as an exact fraction that is greater than zero.

    >>> positive("epsilon", 0, "for no privacy use klucb")
    Traceback (most recent call last):
    tacit.errors.TacitError: epsilon is 0; it must be greater than 0: for no privacy use klucb
    """
    fraction = as_fraction(name, value, remedy)
    if fraction <= 0:
        raise TacitError(_join(f"{name} is {value}; it must be greater than 0", remedy))
    return fraction


def integer(name: str, value: object, at_least: int, remedy: str = "") -> int:
    """`value` as an int no smaller than `at_least`; whole floats such as 1e6 are welcome, because
    people type them.

    >>> integer("users", 1e6, at_least=1)
    1000000
    >>> integer("shares", 0, at_least=1)
    Traceback (most recent call last):
    tacit.errors.TacitError: shares is 0; it must be a whole number of at least 1
    """
    whole = (
        int(value)
        if isinstance(value, Integral) and not isinstance(value, bool)
        else int(value)
        if isinstance(value, (float, Fraction)) and math.isfinite(value) and value == int(value)
        else None
    )
    if whole is None or whole < at_least:
        raise TacitError(
            _join(f"{name} is {value}; it must be a whole number of at least {at_least}", remedy)
        )
    return whole


def probability(
    name: str, value: object, remedy: str = "", *, zero: bool = False, one: bool = False
) -> Fraction:
    """`value` as an exact fraction strictly between 0 and 1, the ends included where said.

    >>> probability("delta", 1.5)
    Traceback (most recent call last):
    tacit.errors.TacitError: delta is 1.5; it must be a probability with 0 < delta < 1
    """
    low, high = ("<=" if zero else "<"), ("<=" if one else "<")
    expected = f"it must be a probability with 0 {low} {name} {high} 1"
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise TacitError(_join(f"{name} is {value}; {expected}", remedy))
    fraction = as_fraction(name, value)
    if not (0 < fraction < 1 or (zero and fraction == 0) or (one and fraction == 1)):
        raise TacitError(_join(f"{name} is {value}; {expected}", remedy))
    return fraction


def _join(message: str, remedy: str) -> str:
    return f"{message}: {remedy}" if remedy else message
