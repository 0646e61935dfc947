"""Public feature maps: a context and an option become an integer vector of bounded length.

A context has categories (one-hot) and bounded numbers (scaled to [-1, 1]). Together with an
intercept they make its code, a vector of 1 and further numbers in [-1, 1]. Each option has a
matrix; the features of an option are its matrix times the code, rounded to multiples of
1/resolution. Dummies, interactions and any change of coordinates are such matrices.

The length of features is a convex function of the code, so its maximum over all contexts is at an
extreme one: numbers at their bounds. `FeatureMap` computes it over all of these and rejects maps
that exceed 1. Rounded features are integers, whose length is checked again, exactly, for every
context.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Self

from tacit.errors import TacitError, did_you_mean, integer

RESOLUTION = 4096  # default multiples of features
FINEST = 1 << 20  # so that products of two features are below 2^53
MOST_EXTREMES = 1 << 16  # contexts that are tried for the largest length
MOST_OPTIONS = 1000
MOST_FEATURES = 128
SLACK = 1e-12  # relative rounding error of a length computed in doubles

Context = Mapping[str, Any]


@dataclass(frozen=True)
class Category:
    """A field of the context with one of several values.

    Parameters
    ----------
    name : str
        Name of the field.
    values : tuple of str
        Its possible values, two or more.
    """

    name: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(map(str, self.values)))
        if len(self.values) < 2 or len(set(self.values)) < len(self.values):
            raise TacitError(
                f"values of {self.name} are {', '.join(self.values) or 'none'}: must be two or "
                "more different ones. Leave the field out, or name its values."
            )

    @property
    def size(self) -> int:
        """Numbers of the code."""
        return len(self.values)

    def place(self, value: Any) -> int:
        """The place of a value among the values."""
        if str(value) not in self.values:
            hint = did_you_mean(str(value), self.values)
            shown = ", ".join(self.values[:8]) + (", …" if len(self.values) > 8 else "")
            raise TacitError(f"{self.name} is {value!r}: must be one of {shown}{hint}")
        return self.values.index(str(value))

    def code(self, value: Any) -> list[float]:
        """One-hot."""
        place = self.place(value)
        return [float(k == place) for k in range(self.size)]

    def extremes(self) -> list[list[float]]:
        """The codes of all values."""
        return [self.code(value) for value in self.values]

    def to_dict(self) -> dict[str, Any]:
        """The field as plain data."""
        return {"name": self.name, "values": list(self.values)}


@dataclass(frozen=True)
class BoundedNumber:
    """A field of the context that is a number from `low` to `high`; others are clipped."""

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf:
            raise TacitError(
                f"bounds of {self.name} are {self.low} and {self.high}: must be two finite numbers "
                "in increasing order."
            )

    @property
    def size(self) -> int:
        """One number of the code."""
        return 1

    def code(self, value: Any) -> list[float]:
        """The number, scaled to [-1, 1]."""
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
            raise TacitError(
                f"{self.name} is {value!r}: must be a number from {self.low:g} to {self.high:g}"
            )
        clipped = min(max(float(value), self.low), self.high)
        scaled = 2.0 * (clipped - self.low) / (self.high - self.low) - 1.0
        return [min(max(scaled, -1.0), 1.0)]

    def extremes(self) -> list[list[float]]:
        """The bounds."""
        return [[-1.0], [1.0]]

    def to_dict(self) -> dict[str, Any]:
        """The field as plain data."""
        return {"name": self.name, "low": self.low, "high": self.high}


Fields = tuple[Category | BoundedNumber, ...]
Matrices = tuple[tuple[tuple[float, ...], ...], ...]


def code_size(fields: Sequence[Category | BoundedNumber]) -> int:
    """Numbers in the code of a context: the intercept, and those of all fields."""
    return 1 + sum(one.size for one in fields)


def placed(
    fields: Iterable[Category | BoundedNumber],
) -> Iterator[tuple[Category | BoundedNumber, int]]:
    """Every field, and the first column of its part of a code."""
    start = 1
    for one in fields:
        yield one, start
        start += one.size


@dataclass(frozen=True)
class FeatureMap:
    """Features φ(context, option): one matrix per option, applied to the code of the context.

    Parameters
    ----------
    fields : tuple of Category or BoundedNumber
        The context.
    options : tuple of str
        Names of the options.
    matrices : tuple
        One matrix per option, with as many rows as there are features and as many columns as the
        code has numbers (`code_size`).
    resolution : int
        Features are rounded to multiples of 1/resolution.

    Raises
    ------
    TacitError
        If names repeat, a matrix has another shape, or some context has features longer than 1.

    Examples
    --------
    >>> fields = (Category("device", ("phone", "desktop")),)
    >>> same, other = ((0.5, 0.0, 0.0), (0.0, 0.0, 0.0)), ((0.5, 0.0, 0.0), (0.0, 0.0, 0.5))
    >>> features = FeatureMap(fields, ("old", "new"), (same, other), resolution=10)
    >>> features.of({"device": "desktop"})
    [(5, 0), (5, 5)]
    """

    fields: Fields
    options: tuple[str, ...]
    matrices: Matrices
    resolution: int = RESOLUTION

    def __post_init__(self) -> None:
        names = [one.name for one in self.fields]
        if len(set(names)) < len(names):
            raise TacitError(f"fields are {', '.join(names)}: must have different names")
        if len(set(self.options)) < len(self.options) or not self.options:
            raise TacitError(
                f"options are {', '.join(self.options) or 'none'}: must have different names"
            )
        if len(self.options) > MOST_OPTIONS:
            raise TacitError(f"options are {len(self.options)}: must be at most {MOST_OPTIONS}")
        integer("resolution", self.resolution, at_least=1)
        if self.resolution > FINEST:
            raise TacitError(f"resolution is {self.resolution}: must be at most {FINEST}")
        self._check_shape()
        longest = self.longest
        if longest > self.room:
            raise TacitError(
                f"features are up to {longest:.6g} long: must be at most {self.room:.6g}, 1 less "
                "rounding. Scale the matrices down, or use a finer resolution."
            )

    def _check_shape(self) -> None:
        rows, columns = len(self.matrices[0]) if self.matrices else 0, code_size(self.fields)
        shapes = {len(matrix) for matrix in self.matrices}
        widths = {len(row) for matrix in self.matrices for row in matrix}
        numbers = (number for matrix in self.matrices for row in matrix for number in row)
        if (
            len(self.matrices) != len(self.options)
            or shapes != {rows}
            or widths != {columns}
            or not 1 <= rows <= MOST_FEATURES
            or not all(map(math.isfinite, numbers))
        ):
            raise TacitError(
                f"matrices have {sorted(shapes)} rows and {sorted(widths)} columns: must be one "
                f"finite matrix for each of {len(self.options)} options, with the same 1 to "
                f"{MOST_FEATURES} rows and {columns} columns"
            )

    @property
    def dimension(self) -> int:
        """The number of features."""
        return len(self.matrices[0])

    @property
    def room(self) -> float:
        """The largest length whose rounding to the grid is at most 1: 1 - √d / (2 resolution)."""
        return 1.0 - math.sqrt(self.dimension) / (2 * self.resolution)

    @cached_property
    def longest(self) -> float:
        """The largest length of features over all contexts, before they are rounded."""
        squares = (
            sum(number * number for number in vector)
            for code in self.extremes()
            for vector in self.exact(code)
        )
        return math.sqrt(max(squares)) * (1 + SLACK)

    def extremes(self) -> Iterator[list[float]]:
        """The codes of all extreme contexts: every value of categories, bounds of numbers.

        Raises
        ------
        TacitError
            If there are too many.
        """
        parts = [one.extremes() for one in self.fields]
        count = math.prod(map(len, parts))
        if count > MOST_EXTREMES:
            raise TacitError(
                f"the context has {count:,} extreme values: must be at most {MOST_EXTREMES:,}. "
                "Use fewer fields or values."
            )
        for chosen in product(*parts):
            yield [1.0, *(number for part in chosen for number in part)]

    def code(self, context: Context) -> list[float]:
        """The code of a context.

        Raises
        ------
        TacitError
            If a field is missing, unknown, or has another value than declared.
        """
        names = [one.name for one in self.fields]
        for name in context:
            if name not in names:
                raise TacitError(
                    f"context has {name!r}: must have {', '.join(names)}{did_you_mean(name, names)}"
                )
        missing = [name for name in names if name not in context]
        if missing:
            raise TacitError(f"context has no {', '.join(missing)}: must have {', '.join(names)}")
        return [1.0, *(number for one in self.fields for number in one.code(context[one.name]))]

    def exact(self, code: Sequence[float]) -> list[list[float]]:
        """The features of every option before rounding; sums run from left to right."""
        return [[_dot(row, code) for row in matrix] for matrix in self.matrices]

    def of(self, context: Context) -> list[tuple[int, ...]]:
        """The features of every option, as multiples of 1/resolution.

        Parameters
        ----------
        context : mapping
            The value of each field.

        Returns
        -------
        list of tuple of int
            One vector per option, of length at most `resolution`.

        Raises
        ------
        TacitError
            If the context is not one of this map.
        """
        return [self.rounded(vector) for vector in self.exact(self.code(context))]

    def rounded(self, vector: Sequence[float]) -> tuple[int, ...]:
        """Features on the grid; a vector that would be longer than 1 is rejected."""
        levels = tuple(math.floor(number * self.resolution + 0.5) for number in vector)
        check_length(levels, self.resolution)
        return levels

    @property
    def segments(self) -> int:
        """The number of combinations of all categories; 0 if the context has numbers."""
        if any(isinstance(one, BoundedNumber) for one in self.fields):
            return 0
        return math.prod(one.size for one in self.fields)

    def segment(self, context: Context) -> int:
        """The place of a context among all combinations of categories, the last field fastest."""
        self.code(context)  # rejects anything but a context of this map
        place = 0
        for one in self.fields:
            if isinstance(one, BoundedNumber):
                raise TacitError(f"{one.name} is a number: segments need categories only")
            place = place * one.size + one.place(context[one.name])
        return place

    def to_dict(self) -> dict[str, Any]:
        """The map as plain data, which JSON keeps exactly."""
        return {
            "fields": [one.to_dict() for one in self.fields],
            "options": list(self.options),
            "matrices": [[list(row) for row in matrix] for matrix in self.matrices],
            "resolution": self.resolution,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The map that `to_dict` wrote."""
        fields = tuple(
            Category(one["name"], tuple(one["values"]))
            if "values" in one
            else BoundedNumber(one["name"], one["low"], one["high"])
            for one in data["fields"]
        )
        matrices = tuple(tuple(tuple(row) for row in matrix) for matrix in data["matrices"])
        return cls(fields, tuple(data["options"]), matrices, data["resolution"])


def check_length(levels: Sequence[int], resolution: int) -> None:
    """Reject features longer than 1, for which a report would not be private as stated."""
    square = sum(level * level for level in levels)
    if square > resolution * resolution:
        raise TacitError(
            f"features are {math.sqrt(square) / resolution:.6g} long: must be at most 1. The "
            "feature map was changed; report nothing."
        )


def _dot(row: Sequence[float], code: Sequence[float]) -> float:
    total = 0.0
    for a, b in zip(row, code, strict=True):
        total += a * b
    return total


def table_map(fields: Fields, options: Sequence[str]) -> FeatureMap:
    """A map of an intercept alone, for tables: these use the segments of contexts only.

    >>> table_map((Category("device", ("phone", "desktop")),), ("old", "new")).segments
    2
    """
    half = ((0.5, *(0.0,) * (code_size(fields) - 1)),)
    return FeatureMap(fields, tuple(options), (half,) * len(options))


def interactions(
    fields: Fields, options: Sequence[str], between: Mapping[str, Sequence[str]] | None = None
) -> Matrices:
    """Matrices of dummies and interactions, not yet scaled.

    The features are an intercept, a dummy for every option but the first, the effect of each field
    on all options, and the interaction of a field with an option, which is its effect on that
    option. One value of each category has no feature of its own: it is the reference.

    Parameters
    ----------
    fields : tuple of Category or BoundedNumber
        The context.
    options : sequence of str
        Names of the options.
    between : mapping, optional
        The options that each field interacts with; by default all but the first, with a common
        effect for all options. Given, a field has no effect on other options.

    Returns
    -------
    tuple
        One matrix per option, as `FeatureMap` takes them.

    Examples
    --------
    >>> fields = (BoundedNumber("age", 18, 90),)
    >>> [len(matrix) for matrix in interactions(fields, ("a", "b", "c"))]
    [6, 6, 6]
    """
    names = list(options)
    width, rows = code_size(fields), list[dict[str, dict[int, float]]]()
    rows.append({name: {0: 1.0} for name in names})
    rows += [{name: {0: 1.0}} for name in names[1:]]
    for one, start in placed(fields):
        first = start if isinstance(one, BoundedNumber) else start + 1
        columns = range(first, start + one.size)
        if between is None:
            rows += [{name: {column: 1.0} for name in names} for column in columns]
        chosen = names[1:] if between is None else between.get(one.name, ())
        for name in chosen:
            if name not in names:
                raise TacitError(
                    f"{one.name} interacts with {name!r}: must be one of {', '.join(names)}"
                )
            rows += [{name: {column: 1.0}} for column in columns]
    return tuple(
        tuple(tuple(row.get(name, {}).get(column, 0.0) for column in range(width)) for row in rows)
        for name in names
    )
