"""Charts of pages and reports: axes and paths; `templates/charts.html` draws them as SVG.

`Chart` plots series with error bands on logarithmic axes, `StepChart` intervals by round on a
linear axis. Colours are CSS classes or variables after the palette of Okabe and Ito, which people
with colour blindness can distinguish.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

T = TypeVar("T")

WIDE, HIGH = 440, 300
LEFT, RIGHT, TOP, BOTTOM = 54, 12, 10, 46
STEPS_WIDE, STEPS_HIGH = 1000, 400
DASHES = ("", "7 4", "2 3", "9 3 2 3")
MOST_TICKS = 6
LABELS = 5  # most times below a chart of steps
DAILY = 3 * 86_400  # seconds beyond which times are given as days
LOWEST = 1e-12


@dataclass(frozen=True)
class Point:
    """A value with its error, at a position; without a position, a horizontal line."""

    x: float | None
    y: float
    spread: float = 0.0


@dataclass(frozen=True)
class Series:
    """A named series of points: a curve with a band, markers with error bars, or a
    horizontal line.
    """

    name: str
    points: tuple[Point, ...]
    colour: str
    dash: str = ""
    marks: bool = False
    quiet: bool = False  # drawn thin and behind the others


@dataclass(frozen=True)
class Axis:
    """An axis with its title and limits; those of a logarithmic one are powers of ten."""

    title: str
    low: float
    high: float
    places: tuple[float, ...] = ()  # ticks, instead of round numbers
    logarithmic: bool = True

    @classmethod
    def around(
        cls, title: str, values: Iterable[float], room: float = 0.06, places: Iterable[float] = ()
    ) -> Axis:
        """A logarithmic axis around positive values, with a margin."""
        logs = [math.log10(value) for value in values if value > LOWEST] or [0.0]
        low, high = min(logs), max(logs)
        margin = max((high - low) * room, 0.08)
        return cls(title, low - margin, high + margin, tuple(places))

    @classmethod
    def linear(cls, values: Iterable[float], least: float, most: float) -> Axis:
        """A linear axis around values between `least` and `most`, in two to six round steps.

        >>> Axis.linear([0.03, 0.57], 0.0, 1.0).ticks()
        [0.0, 0.2, 0.4, 0.6]
        """
        within = [min(max(value, least), most) for value in values]
        low, high = min(within, default=least), max(within, default=most)
        rough = max(high - low, (most - least) / 1000) / 4
        unit = 10 ** math.floor(math.log10(rough))
        step = next(unit * n for n in (1, 2, 2.5, 5, 10) if unit * n >= rough)
        first = math.floor(low / step + 1e-9)
        last = max(math.ceil(high / step - 1e-9), first + 2)
        ticks = tuple(round(step * n, 12) for n in range(first, last + 1))
        return cls("", ticks[0], ticks[-1], ticks, logarithmic=False)

    def share(self, value: float) -> float:
        """The position of a value on the axis, between 0 and 1."""
        scaled = math.log10(max(value, LOWEST)) if self.logarithmic else value
        return min(1.0, max(0.0, (scaled - self.low) / (self.high - self.low)))

    def ticks(self) -> list[float]:
        """The given ticks, or at most six: powers of ten or, if there are few, also 2 and 5
        times them.
        """
        if not self.logarithmic or 0 < len(self.places) <= MOST_TICKS:
            return list(self.places)
        first, last = math.ceil(self.low), math.floor(self.high)
        decades = [10.0**power for power in range(first, last + 1)]
        if len(decades) < 3:
            every = [m * 10.0**p for p in range(first - 1, last + 2) for m in (1, 2, 5)]
            decades = [v for v in every if self.low <= math.log10(v) <= self.high]
        step = -(-len(decades) // MOST_TICKS)
        return decades[::step] if decades else [10 ** ((self.low + self.high) / 2)]


@dataclass(frozen=True)
class Chart:
    """Series on two logarithmic axes; `about` is the text alternative."""

    about: str
    x: Axis
    y: Axis
    series: Sequence[Series]

    def x_position(self, value: float) -> float:
        """Horizontal position of a value."""
        return round(LEFT + (WIDE - LEFT - RIGHT) * self.x.share(value), 1)

    def y_position(self, value: float) -> float:
        """Vertical position of a value."""
        return round(HIGH - BOTTOM - (HIGH - TOP - BOTTOM) * self.y.share(value), 1)

    def drawn(self) -> list[Series]:
        """The series from back to front."""
        return sorted(self.series, key=lambda one: not one.quiet)

    def line(self, points: Sequence[Point], spreads: float = 0.0) -> str:
        """Coordinates of the values, or of values that many errors away."""
        placed = [(p.x, p.y + spreads * p.spread) for p in points if p.x is not None]
        return " ".join(f"{self.x_position(x)},{self.y_position(y)}" for x, y in placed)


@dataclass(frozen=True)
class TimeLabel:
    """A label below a step: a time in seconds since 1970, and a count.

    `daily`: the day is enough, as steps are days apart. `last`: it ends where the chart ends.
    """

    time: int
    count: int | None = None
    daily: bool = False
    last: bool = False


def time_labels(
    times: Sequence[int], steps: int, counts: Sequence[int] = (), limit: int = LABELS
) -> list[TimeLabel | None]:
    """Labels of at most `limit` of `steps` steps, of which the first have these times and counts.

    Labels are so far apart that they do not overlap; the last step that has a time has one.

    >>> [None if one is None else one.time for one in time_labels([5, 6, 7, 8, 9, 10], 8)]
    [5, None, 7, None, None, 10, None, None]
    """
    apart, last = -(-steps // limit), len(times) - 1
    daily = bool(times) and max(times) - min(times) > DAILY
    chosen = {n for n in range(0, last, apart) if last - n >= apart} | {last}
    return [
        TimeLabel(times[n], counts[n] if counts else None, daily, n > steps - apart)
        if n in chosen
        else None
        for n in range(steps)
    ]


@dataclass(frozen=True)
class StepChart:
    """Intervals with means by step, each until the next step, on a linear axis."""

    axis: Axis
    rounds: int
    labels: Sequence[TimeLabel | None] = ()

    def y_position(self, value: float) -> int:
        """Vertical position of a value."""
        return round(STEPS_HIGH * (1 - self.axis.share(value)))

    def line(self, known: Mapping[int, Mapping[str, Any]], name: str = "mean") -> str:
        """Path of a value of the intervals, by round."""
        return self._steps([(n, n + 1, self.y_position(one[name])) for n, one in known.items()])

    def band(self, known: Mapping[int, Mapping[str, Any]]) -> str:
        """Path around the intervals, by round."""
        back = [(n + 1, n, self.y_position(one["low"])) for n, one in reversed(list(known.items()))]
        return f"{self.line(known, 'high')}L{self._steps(back)[1:]}Z"

    def _steps(self, pieces: Sequence[tuple[int, int, int]]) -> str:
        ends = [round(STEPS_WIDE * n / self.rounds) for n in range(self.rounds + 1)]
        start, end, level = pieces[0]
        rest = "".join(f"V{at}H{ends[to]}" for _, to, at in pieces[1:])
        return f"M{ends[start]} {level}H{ends[end]}{rest}"


def utc(seconds: int) -> datetime:
    """A time in seconds since 1970, in UTC."""
    return datetime.fromtimestamp(seconds, tz=UTC)


def evenly(values: Sequence[T], limit: int) -> Sequence[T]:
    """At most `limit` of the values, evenly spaced, including the first and the last.

    >>> evenly(range(10), 4)
    [0, 3, 6, 9]
    """
    if len(values) <= limit:
        return values
    step = (len(values) - 1) / (limit - 1)
    return [values[round(step * n)] for n in range(limit)]


def compact(value: float) -> str:
    """Format a number in few characters.

    >>> [compact(value) for value in (0.05, 1, 2500, 1e5, 3e7, 1e10, 1e15)]
    ['0.05', '1', '2.5k', '100k', '30M', '10G', '1e15']
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size <= value < 1e12:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}".replace("e+", "e")
