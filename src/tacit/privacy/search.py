"""Bisection that returns the safe end: a value at which the condition was checked to hold."""

from __future__ import annotations

import math
from collections.abc import Callable

from tacit.errors import TacitError

RELATIVE = 1e-7


def least(condition: Callable[[float], bool], guess: float, relative: float = RELATIVE) -> float:
    """The least positive value at which a monotone condition holds, from above, to `relative`.

    >>> round(least(lambda x: x * x >= 2, guess=10.0), 6)
    1.414214
    """
    low = high = guess
    factor = 1.002
    while not condition(high):
        low, high, factor = high, high * factor, factor * factor
        if high > 1e300:
            raise TacitError(
                "no amount of this noise meets the target: use another kind of noise, or a "
                "weaker target"
            )
    while low == high or condition(low):
        low, high, factor = low / factor, low, factor * factor
        if low < 1e-300:
            return high
    while high - low > relative * high:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if condition(middle) else (middle, high)
    return high


def least_root(excess: Callable[[float], float], guess: float) -> float:
    """The least positive value at which a decreasing, costly function is at most 0, from above.

    The result is within a part in 10^7. It brackets as `least` does, then interpolates in ln x and
    probes just beside the estimate, so that both ends close in. A step that does not shrink the
    bracket by 0.6 is followed by a bisection, so it is never much slower than one.

    >>> round(least_root(lambda x: 2 - x * x, guess=10.0), 6)
    1.414214
    """
    value = excess(guess)
    low = high = (math.log(guess), value)
    step = 2e-3
    while low[1] <= 0 or high[1] > 0:
        grows = high[1] > 0
        at = high[0] + step if grows else low[0] - step
        if abs(at) > 690:
            if grows:
                raise TacitError(
                    "no amount of this noise meets the target: use another kind of noise, or a "
                    "weaker target"
                )
            return math.exp(high[0])
        point = (at, excess(math.exp(at)))
        low, high = (high, point) if grows else (point, low)
        step *= 2
    bisect = False
    while (width := high[0] - low[0]) > RELATIVE:
        middle = (low[0] + high[0]) / 2
        at = middle
        if not bisect and math.isfinite(low[1]) and math.isfinite(high[1]):
            root = low[0] + width * low[1] / (low[1] - high[1])
            at = (
                root + (0.4 if root < middle else -0.4) * RELATIVE
            )  # beyond the root, from the nearer end
            at = min(max(at, low[0] + 0.2 * RELATIVE), high[0] - 0.2 * RELATIVE)
        point = (at, excess(math.exp(at)))
        low, high = (low, point) if point[1] <= 0 else (point, high)
        bisect = high[0] - low[0] > 0.6 * width
    return math.exp(high[0])


def least_integer(condition: Callable[[int], bool], guess: int) -> int:
    """The least positive integer at which a monotone condition holds.

    >>> least_integer(lambda n: n * n >= 200, guess=3)
    15
    """
    low, high = 0, max(1, guess)
    while not condition(high):
        low, high = high, 2 * high
        if high > 1 << 62:
            raise TacitError(
                f"no number up to {low:,} meets the target: use another kind of noise, or a weaker "
                "target"
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if condition(middle) else (middle, high)
    return high
