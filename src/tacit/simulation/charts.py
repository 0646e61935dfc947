"""SVG charts without a plotting library: series with error bands on logarithmic axes.

Labels are large enough to be readable on a phone and in a grid of charts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

WIDE, HIGH = 440, 300
LEFT, RIGHT, TOP, BOTTOM = 54, 12, 10, 46
DASHES = ("", "7 4", "2 3", "9 3 2 3")
MOST_TICKS = 6
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
    """A logarithmic axis: title, and limits as powers of ten."""

    title: str
    low: float
    high: float
    places: tuple[float, ...] = ()  # ticks, instead of round numbers

    @classmethod
    def around(
        cls,
        title: str,
        values: Iterable[float],
        room: float = 0.06,
        places: Iterable[float] = (),
    ) -> Axis:
        """An axis around positive values, with a margin."""
        logs = [math.log10(value) for value in values if value > LOWEST] or [0.0]
        low, high = min(logs), max(logs)
        margin = max((high - low) * room, 0.08)
        return cls(title, low - margin, high + margin, tuple(places))

    def share(self, value: float) -> float:
        """The position of a value on the axis, between 0 and 1."""
        place = (math.log10(max(value, LOWEST)) - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, place))

    def ticks(self) -> list[float]:
        """At most six ticks: powers of ten or, if there are few, also 2 and 5 times them."""
        if 0 < len(self.places) <= MOST_TICKS:
            return list(self.places)
        first, last = math.ceil(self.low), math.floor(self.high)
        decades = [10.0**power for power in range(first, last + 1)]
        if len(decades) < 3:
            every = [m * 10.0**p for p in range(first - 1, last + 2) for m in (1, 2, 5)]
            decades = [v for v in every if self.low <= math.log10(v) <= self.high]
        step = -(-len(decades) // MOST_TICKS)
        return decades[::step] if decades else [10 ** ((self.low + self.high) / 2)]


def compact(value: float) -> str:
    """Format a number in few characters.

    >>> [compact(value) for value in (0.05, 1, 2500, 1e5, 3e7, 1e10, 1e15)]
    ['0.05', '1', '2.5k', '100k', '30M', '10G', '1e15']
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size <= value < 1e12:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}".replace("e+", "e")


def chart(about: str, x: Axis, y: Axis, series: Sequence[Series]) -> str:
    """Return one chart as SVG; `about` is its text alternative."""
    drawn = [_frame(x, y)]
    drawn += [_series(one, x, y) for one in sorted(series, key=lambda one: not one.quiet)]
    return (
        f'<svg viewBox="0 0 {WIDE} {HIGH}" role="img" aria-label="{escape(about, quote=True)}">'
        f"{''.join(drawn)}</svg>"
    )


def _across(x: Axis, value: float) -> float:
    return LEFT + (WIDE - LEFT - RIGHT) * x.share(value)


def _down(y: Axis, value: float) -> float:
    return HIGH - BOTTOM - (HIGH - TOP - BOTTOM) * y.share(value)


def _line(x: tuple[float, float], y: tuple[float, float], look: str) -> str:
    (x1, x2), (y1, y2) = ((round(start, 1), round(end, 1)) for start, end in (x, y))
    return f'<line x1="{x1}" x2="{x2}" y1="{y1}" y2="{y2}" {look}/>'


def _label(x: float, y: float, anchor: str, words: str) -> str:
    return f'<text x="{round(x, 1)}" y="{round(y, 1)}" text-anchor="{anchor}">{words}</text>'


def _frame(x: Axis, y: Axis) -> str:
    """Grid lines, tick labels and axis titles."""
    parts = []
    for value in y.ticks():
        at = _down(y, value)
        parts.append(_line((LEFT, WIDE - RIGHT), (at, at), 'stroke="var(--line)"'))
        parts.append(_label(LEFT - 7, at + 4, "end", compact(value)))
    for value in x.ticks():
        at = _across(x, value)
        parts.append(_line((at, at), (HIGH - BOTTOM, HIGH - BOTTOM + 4), 'stroke="var(--soft)"'))
        parts.append(_label(at, HIGH - BOTTOM + 18, "middle", compact(value)))
    parts.append(_label((LEFT + WIDE - RIGHT) / 2, HIGH - 8, "middle", escape(x.title)))
    parts.append(
        f'<text transform="translate(13 {(TOP + HIGH - BOTTOM) / 2}) rotate(-90)" '
        f'text-anchor="middle">{escape(y.title)}</text>'
    )
    return "".join(parts)


def _series(one: Series, x: Axis, y: Axis) -> str:
    dash = f' stroke-dasharray="{one.dash}"' if one.dash else ""
    width = 1.4 if one.quiet else 2.2
    look = f'fill="none" stroke="{one.colour}" stroke-width="{width}"{dash}'
    told = f"<title>{escape(one.name)}</title>"
    levels = [p for p in one.points if p.x is None]
    placed = [(_across(x, p.x), p) for p in one.points if p.x is not None]
    parts = [_line((LEFT, WIDE - RIGHT), (_down(y, p.y), _down(y, p.y)), look) for p in levels]
    if len(placed) > 1:
        line = " ".join(f"{at:.1f},{_down(y, p.y):.1f}" for at, p in placed)
        parts.append(f'<polyline points="{line}" {look} stroke-linejoin="round"/>')
    if one.marks:
        parts += [_mark(at, p, y, one.colour) for at, p in placed]
    elif any(p.spread for _, p in placed):
        upper = [f"{at:.1f},{_down(y, p.y + p.spread):.1f}" for at, p in placed]
        lower = [f"{at:.1f},{_down(y, p.y - p.spread):.1f}" for at, p in reversed(placed)]
        parts.insert(
            0, f'<polygon points="{" ".join(upper + lower)}" fill="{one.colour}" opacity="0.18"/>'
        )
    return f"<g>{told}{''.join(parts)}</g>"


def _mark(at: float, p: Point, y: Axis, colour: str) -> str:
    low, high = _down(y, p.y - p.spread), _down(y, p.y + p.spread)
    return _line((at, at), (low, high), f'stroke="{colour}" stroke-width="1.5"') + (
        f'<circle cx="{at:.1f}" cy="{_down(y, p.y):.1f}" r="4" '
        f'fill="{colour}" stroke="var(--ground)" stroke-width="1"/>'
    )
