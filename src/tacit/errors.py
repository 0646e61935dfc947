"""Exceptions of tacit and checks of arguments.

Every message names the value given, the rule and the remedy. All errors derive from `TacitError`, a
`ValueError`; the command line prints them as one line. Checks run before any randomness is drawn
and before anything is stored.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from numbers import Integral, Rational, Real

Number = int | float | Fraction


class TacitError(ValueError):
    """An argument, file or request that cannot be processed; the message states the remedy.

    Examples
    --------
    >>> from tacit import PureDP
    >>> try:
    ...     PureDP(-1.0)
    ... except TacitError as error:
    ...     print(error)
    epsilon is -1.0: must be greater than 0. A guarantee needs epsilon > 0
    """


class Rejected(TacitError):  # noqa: N818 - it is an answer, not a fault
    """A message, round or terms document was rejected; nothing was released, sent or spent."""


class Unavailable(TacitError):  # noqa: N818 - it is an answer, not a fault
    """A required resource, such as disk space or a database, is unavailable; nothing was changed.

    The same request may be retried later.
    """


class InvalidFile(Rejected):
    """A file with errors; `heading` counts them, `problems` lists them one by one."""

    def __init__(self, file: str, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        self.heading = f"{file} has {len(problems)} error{'s' if len(problems) > 1 else ''}"
        super().__init__(f"{self.heading}: {'; '.join(problems)}")


def require(
    condition: object, name: str, value: object, rule: str, error: type[TacitError] = TacitError
) -> None:
    """Raise an error that names the field, its value and the rule, unless the rule holds.

    >>> require(0 < -1, "epsilon", -1, "> 0")
    Traceback (most recent call last):
    tacit.errors.TacitError: epsilon is -1: must be > 0
    """
    if not condition:
        raise error(f"{name} is {value}: must be {rule}")


def as_fraction(name: str, value: object, remedy: str = "") -> Fraction:
    """Return `value` as an exact fraction; a float is taken as its exact dyadic value.

    >>> as_fraction("scale", 0.5)
    Fraction(1, 2)
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TacitError(_join(f"{name} is {value!r}: must be a number", remedy))
    if isinstance(value, Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    number = float(value)
    if not math.isfinite(number):
        raise TacitError(_join(f"{name} is {number}: must be a finite number", remedy))
    return Fraction(number)


def positive(name: str, value: object, remedy: str = "") -> Fraction:
    """Return `value` as an exact fraction greater than zero.

    >>> positive("epsilon", 0, "for no privacy use klucb")
    Traceback (most recent call last):
    tacit.errors.TacitError: epsilon is 0: must be greater than 0. For no privacy use klucb
    """
    fraction = as_fraction(name, value, remedy)
    if fraction <= 0:
        raise TacitError(_join(f"{name} is {value}: must be greater than 0", remedy))
    return fraction


def integer(name: str, value: object, at_least: int, remedy: str = "") -> int:
    """Return `value` as an int of at least `at_least`; whole floats such as 1e6 are accepted.

    >>> integer("users", 1e6, at_least=1)
    1000000
    >>> integer("shares", 0, at_least=1)
    Traceback (most recent call last):
    tacit.errors.TacitError: shares is 0: must be a whole number of at least 1
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
            _join(f"{name} is {value}: must be a whole number of at least {at_least}", remedy)
        )
    return whole


def probability(
    name: str, value: object, remedy: str = "", *, zero: bool = False, one: bool = False
) -> Fraction:
    """Return `value` as an exact fraction in (0, 1); `zero` and `one` include the ends.

    >>> probability("delta", 1.5)
    Traceback (most recent call last):
    tacit.errors.TacitError: delta is 1.5: must be a probability with 0 < delta < 1
    """
    low, high = ("<=" if zero else "<"), ("<=" if one else "<")
    expected = f"must be a probability with 0 {low} {name} {high} 1"
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise TacitError(_join(f"{name} is {value}: {expected}", remedy))
    fraction = as_fraction(name, value)
    if not (0 < fraction < 1 or (zero and fraction == 0) or (one and fraction == 1)):
        raise TacitError(_join(f"{name} is {value}: {expected}", remedy))
    return fraction


def one_of(name: str, value: object, allowed: Iterable[str]) -> None:
    """Reject a value that is not in a list.

    >>> one_of("constants", "loose", ("tight", "paper"))
    Traceback (most recent call last):
    tacit.errors.TacitError: constants is 'loose': must be one of tight, paper
    """
    known = tuple(allowed)
    if value not in known:
        near = did_you_mean(str(value), known)
        raise TacitError(f"{name} is {value!r}: must be one of {', '.join(known)}{near}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question about the nearest known word, to append to a message; empty without any.

    >>> did_you_mean("epsilom", ["delta", "epsilon"])
    '; did you mean epsilon?'
    """
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.7)
    return f"; did you mean {near[0]}?" if near else ""


def toml_problem(text: str, problem: ValueError) -> str:
    """The line at which a text is no TOML, with the reason and the remedy.

    >>> toml_problem("epsilon = 0,5", ValueError("Expected newline (at line 1, column 12)"))
    "line 1 is 'epsilon = 0,5' (Expected newline): text needs quotes, a number a decimal point"
    """
    found = re.fullmatch(r"(.*) \(at line (\d+), column \d+\)", str(problem), re.S)
    if found is None:
        return f"it is not complete ({problem}): close every quote and bracket"
    number = int(found[2])
    line = text.replace("\r\n", "\n").split("\n")[number - 1].strip()[:80]
    remedy = "text needs quotes, a number a decimal point"
    if re.search(r"=\s*(True|False)\b", line):
        remedy = "true and false are written in lower case"
    elif re.search(r"=\s*\d{4}-\d\d?-\d\d?", line):
        remedy = "a day is written as 2026-12-31"
    elif "overwrite" in found[1] or "declare" in found[1]:
        remedy = "name it once"
    return f"line {number} is {line!r} ({found[1]}): {remedy}"


def _join(message: str, remedy: str) -> str:
    return f"{message}. {remedy[:1].upper()}{remedy[1:]}" if remedy else message
