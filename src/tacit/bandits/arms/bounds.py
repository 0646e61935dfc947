"""Upper confidence bounds as functions of a level, and the largest of several by lazy evaluation.

The bounds are inverses of convex functions of the mean, hence concave in the level. A bound at a
higher level is therefore at most its tangent at an earlier level. The search below needs only that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class MeanBound(NamedTuple):
    """A bound on a mean at a level.

    `slope` is its derivative in the level, `tilt` the θ of the Chernoff bound.
    """

    value: float
    slope: float = 0.0
    tilt: float = 0.0
    level: float = 0.0

    def at(self, level: float) -> float:
        """An upper bound of this bound at a higher level: the tangent."""
        return self.value + self.slope * (level - self.level)


NOTHING_KNOWN = MeanBound(1.0)


def leader(bounds: list[MeanBound], level: float, compute: Callable[[int], MeanBound]) -> int:
    """The index of the largest bound at `level`; outdated `bounds` are recomputed only if needed.

    The index that is largest by the tangents is recomputed until the largest one is up to date.

    >>> bounds = [MeanBound(0.9, 0.1, 0.0, 1.0), MeanBound(0.5, 0.1, 0.0, 1.0)]
    >>> leader(bounds, 2.0, lambda arm: MeanBound(0.95, 0.1, 0.0, 2.0)), bounds[1].level
    (0, 1.0)
    """
    ceilings = [value + slope * (level - at) for value, slope, _, at in bounds]
    while True:
        first = ceilings.index(max(ceilings))
        if bounds[first].level == level:
            return first
        bounds[first] = compute(first)
        ceilings[first] = bounds[first].value
