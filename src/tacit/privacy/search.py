"""Bisection that returns the safe end: a value at which the condition was checked to hold."""

from __future__ import annotations

import math
from collections.abc import Callable

from tacit.checks import TacitError

RELATIVE = 1e-7


def least(holds: Callable[[float], bool], guess: float) -> float:
    """The least positive value at which `holds` (which stays true once it is true), to a part in 10^7, from above.

    >>> round(least(lambda x: x * x >= 2, guess=10.0), 6)
    1.414214
    """
    low = high = guess
    factor = 1.02
    while not holds(high):
        low, high, factor = high, high * factor, factor * factor
        if high > 1e300:
            raise TacitError("no amount is enough: the target cannot be met with this kind of noise")
    while low == high or holds(low):
        low, high, factor = low / factor, low, factor * factor
        if low < 1e-300:
            return high
    while high - low > RELATIVE * high:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def least_integer(holds: Callable[[int], bool], guess: int, floor: int = 1) -> int:
    """The least integer of at least `floor` at which `holds` (which stays true once it is true).

    >>> least_integer(lambda n: n * n >= 200, guess=3)
    15
    """
    low, high = floor - 1, max(floor, guess)
    while not holds(high):
        low, high = high, 2 * high
        if high > 1 << 62:
            raise TacitError(f"no number up to {low:,} is enough: the target cannot be met with this kind of noise")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
