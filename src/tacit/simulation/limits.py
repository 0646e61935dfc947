"""Reference lines in a report's charts: asymptotic lower bounds, and orders of proven upper
bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from tacit.html.charts import Axis, Point, Series
from tacit.simulation.results import Result

SOFT, LEAST_DASH, PROVED_DASH = "var(--soft)", "1 3", "2 5"


def lower_bounds(results: Iterable[Result], first: float) -> list[Series]:
    """The asymptotic lower bounds on regret, one line per distinct bound."""
    slopes = {
        slope: result for result in results if (slope := result.lower_bound_slope) is not None
    }
    return [
        Series(
            "lower bound",
            tuple(
                Point(float(t), slope * math.log(t))
                for t in result.checkpoints
                if t > max(first, 1)
            ),
            SOFT,
            LEAST_DASH,
            quiet=True,
        )
        for slope, result in slopes.items()
    ]


def proven_orders(results: Iterable[tuple[Result, str]], first: float, up: Axis) -> list[Series]:
    """The orders that papers prove, in each result's colour, clipped to the chart.

    Results with the same bound share one line.
    """
    lines: dict[tuple[Point, ...], Series] = {}
    for result, colour in results:
        rounds = [t for t in result.checkpoints.tolist() if t >= max(first, 2)]
        for bound in result.bounds if rounds else ():
            points = tuple(
                Point(float(t), value)
                for t, value in zip(rounds, bound.at(rounds).tolist(), strict=True)
                if value > 0 and up.low <= math.log10(value) <= up.high
            )
            if len(points) > 1:
                said = f"{bound.theorem} ({bound.order})"
                lines.setdefault(points, Series(said, points, colour, PROVED_DASH, quiet=True))
    return list(lines.values())


def theorems(results: Iterable[Result]) -> list[str]:
    """Names of the theorems about these results."""
    return list(dict.fromkeys(bound.theorem for one in results for bound in one.bounds))
