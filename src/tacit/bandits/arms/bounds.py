"""Upper confidence bounds that rise with a level, and finding the largest of several without
computing them all.

The bounds used here are inverses of convex functions of the mean, hence concave in the level: a
bound computed at an earlier level stays below its tangent. That is all the search below rests on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class MeanBound(NamedTuple):
    """A bound on a mean at a level; `slope` is its growth with the level there, `tilt` the θ of the
    Chernoff bound.
    """

    value: float
    slope: float = 0.0
    tilt: float = 0.0
    level: float = 0.0

    def at(self, level: float) -> float:
        """What the bound is at most at a higher level: the tangent."""
        return self.value + self.slope * (level - self.level)


NOTHING_KNOWN = MeanBound(1.0)


def leader(bounds: list[MeanBound], level: float, compute: Callable[[int], MeanBound]) -> int:
    """The place of the largest bound at `level`; `bounds` may be older and are renewed only where
    it matters.

    Whoever leads by the tangents is recomputed, until the leader is up to date.

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
