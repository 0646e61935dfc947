"""Corners: finitely many values to which features are rounded at random, without bias.

The features of an option are linear in the numbers of the context. For each number z in [-1, 1]
that the option's features depend on, two independent signs of mean z are drawn. Their mean z̃ is
-1, 0 or 1, and has mean z; their product has mean z². So the corner, which is the option with the
values of the categories that its features depend on and all z̃, determines unbiased values of the
features x and of the matrix x xᵀ. A corner and the outcome make one cell of a histogram, however
many features there are.

Corners of one option and categories are a group. In a group x = L (1, z₁, …, zₘ) for a matrix L.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product

from tacit.contextual.feature_maps import Category, FeatureMap, placed
from tacit.errors import TacitError

MOST_CORNERS = 256
STATES = ((-1.0, 1.0), (0.0, -1.0), (1.0, 1.0))  # mean and product of two signs


@dataclass(frozen=True)
class OptionCorners:
    """Where an option's corners are.

    Parameters
    ----------
    categories : tuple of (int, int)
        First column and number of values of each category that the features depend on.
    numbers : tuple of int
        Columns of the code with the numbers that the features depend on.
    first : int
        The option's first corner.
    """

    categories: tuple[tuple[int, int], ...]
    numbers: tuple[int, ...]
    first: int

    @property
    def states(self) -> int:
        """Corners of a group."""
        return int(len(STATES) ** len(self.numbers))

    @property
    def size(self) -> int:
        """Corners of the option."""
        return math.prod(size for _, size in self.categories) * self.states

    def corner(self, code: Sequence[float], signs: Sequence[int]) -> int:
        """The corner of a context's code, with the number of positive signs of each number."""
        place = 0
        for start, size in self.categories:
            place = place * size + list(code[start : start + size]).index(1.0)
        for positive in signs:
            place = place * len(STATES) + positive
        return self.first + place

    def draw(self, code: Sequence[float]) -> int:
        """The corner to which a device rounds, with randomness of the operating system."""
        source = random.SystemRandom()
        return self.corner(
            code,
            [
                sum(source.random() < (1 + code[column]) / 2 for _ in range(2))
                for column in self.numbers
            ],
        )


@dataclass(frozen=True)
class Corner:
    """A corner of a group.

    Parameters
    ----------
    group : int
        Its group.
    code : tuple of float
        The unbiased values of (1, z₁, …, zₘ).
    square : tuple
        The unbiased matrix of their products.
    """

    group: int
    code: tuple[float, ...]
    square: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class CornerLayout:
    """All corners of a feature map: option by option, group by group.

    Parameters
    ----------
    options : tuple of OptionCorners
        The corners of every option.
    groups : tuple
        The matrix L of every group, row by row.
    """

    options: tuple[OptionCorners, ...]
    groups: tuple[tuple[tuple[float, ...], ...], ...]

    @property
    def size(self) -> int:
        """The number of corners."""
        return sum(one.size for one in self.options)

    @cached_property
    def corners(self) -> tuple[Corner, ...]:
        """All corners in order."""
        found = []
        for group, rows in enumerate(self.groups):
            for states in product(STATES, repeat=len(rows[0]) - 1):
                code = (1.0, *(mean for mean, _ in states))
                square = [[a * b for b in code] for a in code]
                for place, (_, both) in enumerate(states, start=1):
                    square[place][place] = both
                found.append(Corner(group, code, tuple(map(tuple, square))))
        return tuple(found)


@lru_cache(maxsize=64)
def layout(features: FeatureMap) -> CornerLayout:
    """The corners of a feature map.

    Raises
    ------
    TacitError
        If there are more than 256.

    Examples
    --------
    >>> from tacit.contextual.feature_maps import BoundedNumber
    >>> fields = (Category("device", ("phone", "desktop")), BoundedNumber("age", 18, 90))
    >>> same, other = ((0.5, 0.0, 0.0, 0.0),), ((0.5, 0.0, 0.2, 0.1),)
    >>> corners = layout(FeatureMap(fields, ("old", "new"), (same, other)))
    >>> corners.size, [one.first for one in corners.options]
    (7, [0, 1])
    """
    count = corner_count(features)
    if count > MOST_CORNERS:
        raise TacitError(
            f"the features have {count:,} corners: must be at most {MOST_CORNERS}. Use --statistic "
            "moments."
        )
    options, groups, first = list[OptionCorners](), list[tuple[tuple[float, ...], ...]](), 0
    for matrix in features.matrices:
        categories, numbers = _relevant(features, matrix)
        options.append(OptionCorners(categories, numbers, first))
        first += options[-1].size
        ignored = [
            start
            for one, start in placed(features.fields)
            if isinstance(one, Category) and (start, one.size) not in categories
        ]
        for values in product(*(range(size) for _, size in categories)):
            chosen = [start + k for (start, _), k in zip(categories, values, strict=True)]
            columns = [0, *ignored, *chosen]
            groups.append(
                tuple(
                    (sum(row[column] for column in columns), *(row[z] for z in numbers))
                    for row in matrix
                )
            )
    return CornerLayout(tuple(options), tuple(groups))


def corner_count(features: FeatureMap) -> int:
    """The number of corners of a feature map."""
    relevant = (_relevant(features, matrix) for matrix in features.matrices)
    return sum(OptionCorners(*one, 0).size for one in relevant)


def squared_lengths(features: FeatureMap) -> float:
    """Σ |x̃|² over all corners, to which noise in sums of x̃ (y - ½) is proportional."""
    made = layout(features)
    return sum(
        sum(a * z for a, z in zip(row, one.code, strict=True)) ** 2
        for one in made.corners
        for row in made.groups[one.group]
    )


def _relevant(
    features: FeatureMap, matrix: tuple[tuple[float, ...], ...]
) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
    """Categories (first column, values) and numbers (column) that a matrix depends on."""
    categories, numbers = list[tuple[int, int]](), list[int]()
    for one, start in placed(features.fields):
        if not isinstance(one, Category):
            if any(row[start] for row in matrix):
                numbers.append(start)
        elif any(len(set(row[start : start + one.size])) > 1 for row in matrix):
            categories.append((start, one.size))
    return tuple(categories), tuple(numbers)
