"""Charts of an experiment as scalable SVG with HTML labels, which keep their size on a phone.

Each chart has an area of fixed size, with or without data. Options have the colours of Okabe and
Ito's palette, which people with colour blindness can distinguish, darkened or lightened for
contrast (`page.css`). An option keeps its colour everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tacit.service.pages.markup import Content, Safe, Value, tag
from tacit.service.pages.sentences import View, leader, percent

COLOURS = 8
WIDE, HIGH = 1000, 400
LEAST_MOMENTS = 8  # minimum number of rounds on the axis
MOST_MOMENTS = 80
LEAST_COLUMNS, MOST_COLUMNS = 20, 40
CELL = 24
HIDDEN = "true"  # aria-hidden of drawings whose content is also in the text


def colour(view: View, option: str) -> str:
    """The CSS class of an option's colour."""
    names = [one["option"] for one in view["estimates"]["options"]]
    return f"o{names.index(option) % COLOURS}"


def swatch(view: View, option: str) -> Safe:
    """A patch of an option's colour."""
    patch = tag("rect", width=10, height=10, rx=2, class_=f"fill {colour(view, option)}")
    return tag("svg", patch, class_="swatch", viewBox="0 0 10 10", aria_hidden=HIDDEN)


def faded(one: dict[str, Any]) -> bool:
    """Whether an option is not assigned at present."""
    return one["paused"] is not None or one["decision"] in ("paused", "removed")


# Intervals by round


def moments(view: View) -> list[dict[str, Any]]:
    """The estimates after every round, evenly subsampled to `MOST_MOMENTS`."""
    history: list[dict[str, Any]] = view["history"]
    if len(history) <= MOST_MOMENTS:
        return history
    step = (len(history) - 1) / (MOST_MOMENTS - 1)
    return [history[round(step * n)] for n in range(MOST_MOMENTS)]


def intervals(view: View) -> Safe:
    """Chart of each option's interval after every round as a band, the leader's in front."""
    shown = moments(view)
    ticks = _ticks(view, shown)
    rows = max(len(shown), LEAST_MOMENTS)

    def y(value: float) -> int:
        within = min(max(value, ticks[0]), ticks[-1])
        return round(HIGH * (ticks[-1] - within) / (ticks[-1] - ticks[0]))

    lines = [
        tag("line", x1=0, x2=WIDE, y1=y(tick), y2=y(tick), class_="grid") for tick in ticks[1:-1]
    ]
    bands = [
        _band(view, one, [_standing(moment, one["option"]) for moment in shown], rows, y)
        for one in _order(view)
    ]
    closed = len(view["history"])
    about = "Intervals of every option, round by round; the table below says the same."
    picture = tag(
        "svg",
        lines,
        bands,
        viewBox=f"0 0 {WIDE} {HIGH}",
        preserveAspectRatio="none",
        role="img",
        aria_label=about,
    )
    latest = tag("span", "latest round") if closed >= rows else None
    nothing = None if closed else tag("p", "Nothing has been opened yet.", class_="nothing")
    return tag(
        "div",
        tag("div", [tag("span", label) for label in reversed(_labels(view, ticks))], class_="y"),
        tag("div", picture, nothing, class_="plot"),
        tag("div", tag("span", "first round"), latest, class_="x"),
        class_="chart",
    )


def _order(view: View) -> list[dict[str, Any]]:
    """Options from the back of the chart to its front."""
    first = leader(view)
    best = None if first is None else first["option"]
    found: list[dict[str, Any]] = view["estimates"]["options"]
    return sorted(
        found, key=lambda one: (one["option"] == best, not faded(one), one["mean"] or 0.0)
    )


def _standing(moment: dict[str, Any], option: str) -> dict[str, Any] | None:
    known = (one for one in moment["options"] if one["option"] == option)
    return next((one for one in known if one["mean"] is not None), None)


def _band(
    view: View, option: dict[str, Any], values: Sequence[dict[str, Any] | None], rows: int, y: Any
) -> list[Safe]:
    """Step band of an option: an estimate holds until the next round."""
    known = [(n, one) for n, one in enumerate(values) if one is not None]
    if not known:
        return []
    ends = [round(WIDE * n / rows) for n in range(rows + 1)]
    upper = [(ends[n], ends[n + 1], y(one["high"])) for n, one in known]
    lower = [(ends[n + 1], ends[n], y(one["low"])) for n, one in reversed(known)]
    middle = [(ends[n], ends[n + 1], y(one["mean"])) for n, one in known]
    kind = f"{colour(view, option['option'])}{' faded' if faded(option) else ''}"
    around = f"M{_steps(upper)}L{_steps(lower)}Z"
    return [
        tag("path", d=around, class_=f"band {kind}"),
        tag("path", d=f"M{_steps(middle)}", class_=f"mean {kind}"),
    ]


def _steps(pieces: Sequence[tuple[int, int, int]]) -> str:
    start, end, level = pieces[0]
    return f"{start} {level}H{end}" + "".join(f"V{at}H{to}" for _, to, at in pieces[1:])


def _ticks(view: View, shown: Sequence[dict[str, Any]]) -> list[float]:
    """Round tick values around the last intervals and all means."""
    least, most = (float(end) for end in _range(view))
    means = [one["mean"] for moment in shown for one in moment["options"]]
    known = [one for one in view["estimates"]["options"] if one["mean"] is not None]
    ends = [one[name] for one in known for name in ("low", "high")]
    values = [min(max(value, least), most) for value in [*means, *ends] if value is not None]
    low, high = min(values, default=least), max(values, default=most)
    return _round_numbers(low, high, least, most)


def _labels(view: View, ticks: Sequence[float]) -> list[str]:
    """Labels of the ticks, all with the same sufficient number of digits."""
    values = [100 * tick for tick in ticks] if percent(view) else list(ticks)
    digits = next(n for n in range(13) if all(abs(one - round(one, n)) < 1e-9 for one in values))
    return [f"{value:,.{digits}f}{'%' if percent(view) else ''}" for value in values]


def _range(view: View) -> Iterator[float]:
    for end in view["terms"]["answer"]["range"]:
        above, _, below = end.partition("/")
        yield int(above) / int(below or 1)


def _round_numbers(low: float, high: float, least: float, most: float) -> list[float]:
    """Equally spaced round numbers that cover the interval, in two to six steps.

    >>> _round_numbers(0.03, 0.57, 0.0, 1.0)
    [0.0, 0.2, 0.4, 0.6]
    """
    width = max(high - low, (most - least) / 1000)
    rough = width / 4
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * n for n in (1, 2, 2.5, 5, 10) if unit * n >= rough)
    first = math.floor(max(low, least) / step + 1e-9)
    last = max(math.ceil(min(high, most) / step - 1e-9), first + 2)
    return [round(step * n, 12) for n in range(first, last + 1)]


# Allocation of participants


def bar(view: View, option: str, share: float) -> Safe:
    """A horizontal bar of relative length `share`, from 0 to 1."""
    ground = tag("rect", width=100, height=10, class_="ground")
    filled = tag("rect", width=f"{100 * share:.1f}", height=10, class_=_fill(view, option))
    return tag(
        "svg",
        ground,
        filled,
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        class_="bar",
        aria_hidden=HIDDEN,
    )


def _fill(view: View, option: str) -> str:
    return f"fill {colour(view, option)}"


# Rounds


@dataclass
class _Column:
    """Concurrent rounds."""

    closes: int
    rounds: dict[str, dict[str, Any]] = field(default_factory=dict)

    def takes(self, one: dict[str, Any]) -> bool:
        apart = abs(one["closes"] - self.closes) > 5 and bool(self.closes and one["closes"])
        return one["option"] not in self.rounds and not apart


def columns(rounds: Sequence[dict[str, Any]]) -> list[_Column]:
    """Group rounds into columns of concurrent rounds, in chronological order."""
    found: list[_Column] = []
    for one in rounds:
        if not found or not found[-1].takes(one):
            found.append(_Column(one["closes"]))
        found[-1].rounds[one["option"]] = one
    return found


def strip(view: View, option: str) -> Safe:
    """An option's rounds in a row."""
    shown = columns(view["status"]["rounds"])[-MOST_COLUMNS:]
    room = max(len(shown), LEAST_COLUMNS)
    cells = [
        cell(one, colour(view, option), CELL * n)
        for n, column in enumerate(shown)
        if (one := column.rounds.get(option)) is not None
    ]
    return tag(
        "svg",
        cells,
        viewBox=f"0 0 {CELL * room} {CELL}",
        preserveAspectRatio="xMinYMid",
        class_="strip",
        aria_hidden=HIDDEN,
    )


def cell(one: dict[str, Any], kind: str, left: int = 0) -> Safe:
    """Symbol of a round: filled if released, crossed out if aborted, partly filled while open.

    An open round is half full if the number of assigned slots is hidden.
    """
    stage = one["stage"]
    edge = {"x": left + 3, "y": 3, "width": 18, "height": 18, "rx": 4}
    if stage == "opened":
        return tag("rect", **edge, class_=f"fill {kind}")
    outline = tag("rect", **edge, class_=f"edge {kind} {stage}")
    if stage == "refused":
        cross = f"M{left + 8} 8l8 8m0 -8l-8 8"
        return Safe(outline + tag("path", d=cross, class_=f"edge {kind}"))
    if stage in ("open", "closing") and one["places"]:
        level = 9 if one["given"] is None else round(18 * one["given"] / one["places"])
        inner = edge | {"y": 21 - level, "height": level, "rx": min(4, level // 2)}
        return Safe(tag("rect", **inner, class_=f"fill {kind} half") + outline)
    return outline


# Data flow


def arrow(place: str, *said: Content, **attributes: Value) -> Safe:
    """An arrow labelled with the data sent; `place` is its CSS class among the parties."""
    line = tag("path", d="M2 6H56M50 1l7 5-7 5", class_="arrow")
    drawn = tag("svg", line, viewBox="0 0 60 12", aria_hidden=HIDDEN)
    words = [tag("span", one) for one in said]
    return tag("p", drawn, tag("span", words), class_=f"passed {place}", **attributes)
