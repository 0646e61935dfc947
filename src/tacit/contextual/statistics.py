"""The statistic that a device reports: integers of one chosen option's features and its reward.

A `TableReport` is the cell (segment, option, outcome) of a histogram. A `MomentReport` is the
vector of x (y - ½) and of the upper triangle of x xᵀ, a `ScaledMomentReport` the same in units in
which noise of one width serves all coordinates. Rewards in [0, 1] are randomly rounded to levels
before, with `tacit.client.levels` on a device; features are integers already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from tacit.contextual.feature_maps import check_length
from tacit.errors import TacitError, require

DIAGONAL, OTHER = 5, 7  # factors of entries of x xᵀ: 7/5 is just below √2
SQUARED_WEIGHT = 4  # of x (y - ½) in the sensitivity of scaled moments


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

    @property
    def largest(self) -> int:
        """The largest product of two features, or of a feature and a centred reward."""
        return max(self.resolution**2, self.levels * self.resolution)

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


@dataclass(frozen=True)
class ScaledMomentReport(MomentReport):
    """Moments in units in which all coordinates get noise of the same width.

    The units are 1/(5 resolution²) for w x (y - ½) with w = 2 or slightly less, and for the
    diagonal of x xᵀ. Other entries of x xᵀ count 7/5 times, a little less than the √2 of a matrix
    norm. Replacing a participant moves the whole by at most √2 (1 + w²/8) of the unit ball's
    radius (`tacit.bandits.contextual.moments`), as every coordinate is at most as long as there.

    Examples
    --------
    >>> ScaledMomentReport(dimension=2, resolution=10).vector((6, 8), level=1)
    [300, 400, 180, 336, 320]
    """

    @property
    def largest(self) -> int:
        """Largest absolute value of a coordinate: that of features of length 1."""
        return DIAGONAL * self.resolution**2

    @property
    def squared_sensitivity(self) -> Fraction:
        """The square of the l2 sensitivity to replacing a participant, in the report's units."""
        return 2 * (1 + Fraction(SQUARED_WEIGHT, 8)) ** 2 * self.largest**2

    @property
    def factor(self) -> int:
        """The integer that scales (2 level - levels) x.

        It makes the weight w of x (y - ½) 2 factor levels / (5 resolution), at most 2.
        """
        return DIAGONAL * self.resolution // self.levels

    def vector(self, features: Sequence[int], level: int) -> list[int]:
        """The moments of `MomentReport`, each times the factor of its group."""
        plain, d = super().vector(features, level), self.dimension
        factors = [DIAGONAL if i == j else OTHER for i in range(d) for j in range(i, d)]
        upper = [factor * number for factor, number in zip(factors, plain[d:], strict=True)]
        return [self.factor * number for number in plain[:d]] + upper
