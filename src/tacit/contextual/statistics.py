"""The statistic that a device reports: integers of one chosen option's features and its reward.

A `TableReport` is the cell (segment, option, outcome) of a histogram. A `MomentReport` is the
vector of x (y - ½) and of the upper triangle of x xᵀ. Rewards in [0, 1] are randomly rounded to
levels before, with `tacit.client.levels` on a device; features are integers already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tacit.contextual.feature_maps import check_length
from tacit.errors import TacitError, require


@dataclass(frozen=True)
class TableReport:
    """Cells of a table: segments × options × outcomes, in this order.

    Examples
    --------
    >>> table = TableReport(segments=2, options=3)
    >>> table.size, table.cell(segment=1, option=0, success=1)
    (12, 7)
    """

    segments: int
    options: int

    @property
    def size(self) -> int:
        """The number of cells."""
        return 2 * self.segments * self.options

    def cell(self, segment: int, option: int, success: int) -> int:
        """The cell of a participant with this outcome, 0 or 1."""
        for name, value, many in (
            ("segment", segment, self.segments),
            ("option", option, self.options),
            ("success", success, 2),
        ):
            require(0 <= value < many, name, value, f"from 0 to {many - 1}")
        return (segment * self.options + option) * 2 + success

    def vector(self, cell: int) -> list[int]:
        """The report: a one in its cell."""
        require(0 <= cell < self.size, "cell", cell, f"from 0 to {self.size - 1}")
        return [int(place == cell) for place in range(self.size)]


@dataclass(frozen=True)
class MomentReport:
    """Moments of features and reward as integers.

    Parameters
    ----------
    dimension : int
        The number of features.
    resolution : int
        Features are multiples of 1/resolution, of length at most 1.
    levels : int
        Rewards are multiples of 1/levels from 0 to 1.

    Examples
    --------
    >>> MomentReport(dimension=2, resolution=10).vector((6, 8), level=1)
    [6, 8, 36, 48, 64]
    """

    dimension: int
    resolution: int
    levels: int = 1

    @property
    def size(self) -> int:
        """d + d (d + 1) / 2 integers."""
        return self.dimension + self.dimension * (self.dimension + 1) // 2

    def vector(self, features: Sequence[int], level: int) -> list[int]:
        """(2 level - levels) x, in units of 1/(2 levels resolution), and x_i x_j for i <= j.

        Raises
        ------
        TacitError
            If the features are longer than 1 or the level is out of range.
        """
        if len(features) != self.dimension or any(type(x) is not int for x in features):
            raise TacitError(f"features are {list(features)}: must be {self.dimension} integers")
        check_length(features, self.resolution)
        require(0 <= level <= self.levels, "level", level, f"from 0 to {self.levels}")
        centred = 2 * level - self.levels
        upper = [a * b for i, a in enumerate(features) for b in features[i:]]
        return [centred * x for x in features] + upper
