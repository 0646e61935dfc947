"""Contexts and actions with declared bounds, and their features of norm at most 1.

Bounds and scaling are declared before any data exists; nothing is fitted. A context of p scaled
values z gives action a the features (z in the block of a, contrast of a, constant) / √(p + 1). The
constant and the contrasts are an orthogonal transform of one intercept per action, so that the last
feature is the same for every action, as `tacit.bandits.contextual.private` needs it. This module
needs NumPy only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.errors import TacitError, integer, one_of, require

Floats = npt.NDArray[np.float64]
KINDS = ("number", "boolean", "category")


def as_double(number: float | Fraction) -> float:
    """A number as a double; infinity where it is too large for one."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def finite_number(name: str, value: object) -> float:
    """A number as a finite double; others are rejected."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TacitError(f"{name} is {value!r}: must be a number")
    number = as_double(value)
    if not math.isfinite(number):
        raise TacitError(f"{name} is {number}: must be a finite number")
    return number


@dataclass(frozen=True)
class ContextColumn:
    """One column of a context, with declared bounds.

    Parameters
    ----------
    name : str
        The key of the column in a context.
    kind : {"number", "boolean", "category"}
        A number from `low` to `high` is scaled to [-1, 1]; values beyond are clipped. A boolean is
        -1 or 1. A category has one indicator for each of its `levels` but the first.
    low, high : Fraction
        The declared bounds of a number.
    levels : tuple of str
        The declared levels of a category.

    Examples
    --------
    >>> ContextColumn("age", low=Fraction(20), high=Fraction(80)).scaled(95)
    [1.0]
    >>> ContextColumn("ward", "category", levels=("a", "b", "c")).scaled("c")
    [0.0, 1.0]
    """

    name: str
    kind: str = "number"
    low: Fraction = Fraction(0)
    high: Fraction = Fraction(1)
    levels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        one_of(f"kind of column {self.name}", self.kind, KINDS)
        rule = (
            f"below high, which is {self.high}. Declare low and high of column {self.name}; "
            "without them they are 0 and 1"
        )
        width = as_double(self.high) - as_double(self.low)
        require(0 < width < math.inf, "low", self.low, rule)
        wanted = 2 if self.kind == "category" else 0
        rule = f"at least {wanted}, distinct" if wanted else "0: only a category has levels"
        distinct = len(set(self.levels)) == len(self.levels)
        enough = len(self.levels) >= wanted and bool(wanted) == bool(self.levels)
        require(enough and distinct, f"levels of column {self.name}", len(self.levels), rule)

    @property
    def size(self) -> int:
        """The number of scaled values."""
        return max(1, len(self.levels) - 1)

    def scaled(self, value: Any) -> list[float]:
        """The value as numbers whose squares add up to at most 1."""
        if self.kind == "category":
            one_of(self.name, value, self.levels)
            return [float(value == level) for level in self.levels[1:]]
        if self.kind == "boolean":
            if not isinstance(value, (bool, int)) or value not in (0, 1):
                raise TacitError(f"{self.name} is {value!r}: must be true or false")
            return [1.0 if value else -1.0]
        number = finite_number(self.name, value)
        low, high = float(self.low), float(self.high)
        return [2 * (min(max(number, low), high) - low) / (high - low) - 1]


@dataclass(frozen=True)
class ContextSpec:
    """The columns of a context and the actions, or the size of features that callers compute.

    Parameters
    ----------
    columns : tuple of ContextColumn
        The declared columns.
    actions : tuple of str
        The actions to choose among.
    features : int
        Without columns: each context is a matrix of one row of so many features, of norm at most
        1, for each action. The number of actions may then differ from context to context.

    Examples
    --------
    >>> spec = ContextSpec((ContextColumn("age", high=Fraction(100)),), ("a", "b"))
    >>> spec.dimension, spec.constant
    (4, 0.5)
    >>> spec.table({"age": 100}).round(3).tolist()
    [[0.707, 0.0, 0.5, 0.5], [0.0, 0.707, -0.5, 0.5]]
    """

    columns: tuple[ContextColumn, ...] = ()
    actions: tuple[str, ...] = ()
    features: int = 0

    def __post_init__(self) -> None:
        if not self.columns:
            integer("features", self.features, at_least=2, remedy="or declare context columns")
            return
        require(not self.features, "features", self.features, "0 where columns are declared")
        names = [column.name for column in self.columns]
        require(len(set(names)) == len(names), "columns", ", ".join(names), "distinct")
        distinct = len(self.actions) >= 2 and len(set(self.actions)) == len(self.actions)
        require(distinct, "actions", ", ".join(self.actions), "two or more, distinct")

    @property
    def width(self) -> int:
        """The number of scaled values of a context."""
        return sum(column.size for column in self.columns)

    @property
    def dimension(self) -> int:
        """The number of features of an action."""
        return len(self.actions) * (self.width + 1) if self.columns else self.features

    @property
    def constant(self) -> float | None:
        """The value of the last feature; None where callers compute the features."""
        if not self.columns:
            return None
        return 1 / math.sqrt(len(self.actions) * (len(self.columns) + 1))

    @cached_property
    def _contrasts(self) -> Floats:
        """An orthogonal matrix whose last column is constant: one row per action."""
        count = len(self.actions)
        rows = np.zeros((count, count))
        for j in range(1, count):
            rows[:j, j - 1], rows[j, j - 1] = 1.0, -float(j)
            rows[:, j - 1] /= math.sqrt(j * (j + 1))
        rows[:, -1] = 1 / math.sqrt(count)
        return rows

    def scaled(self, context: object) -> Floats:
        """The scaled values of a context; a missing or an unknown column is rejected."""
        if not isinstance(context, Mapping):
            raise TacitError(f"context is {type(context).__name__}: must be an object of columns")
        names = [column.name for column in self.columns]
        missing = [name for name in names if name not in context]
        unknown = sorted(str(name) for name in context if name not in names)
        if missing or unknown:
            wrong = [("lacks", missing), ("has unknown", unknown)]
            said = " and ".join(f"{verb} {', '.join(some)}" for verb, some in wrong if some)
            raise TacitError(f"context {said}: must have exactly {', '.join(names)}")
        values = [column.scaled(context[column.name]) for column in self.columns]
        return np.array([number for one in values for number in one])

    def table(self, context: Mapping[str, Any] | Sequence[Sequence[float]]) -> Floats:
        """The features of every action: actions × dimension."""
        if not self.columns:
            try:
                table = np.asarray(context, dtype=float)
            except (TypeError, ValueError, OverflowError):
                raise TacitError(
                    f"context is not a table of numbers: must be one row of {self.features} "
                    "features "
                    "for each action"
                ) from None
            if table.ndim != 2 or table.shape[1] != self.features or not len(table):
                raise TacitError(
                    f"context has shape {table.shape}: must be one row of {self.features} features "
                    "for each action"
                )
            return table
        return np.asarray(self.tables(self.scaled(context)[None])[0])

    def tables(self, scaled: Floats) -> Floats:
        """The features of many scaled contexts: contexts × actions × dimension."""
        count, width = len(self.actions), self.width
        table = np.zeros((len(scaled), count, self.dimension))
        for a in range(count):
            table[:, a, a * width : (a + 1) * width] = scaled
            table[:, a, count * width :] = self._contrasts[a]
        return table / math.sqrt(len(self.columns) + 1)

    def by_action(self, parameter: Floats) -> Floats:
        """A parameter of the features as intercept and slope per scaled value: actions × (1 + p).

        The mean of action a is its intercept plus the scaled values times its slopes.
        """
        return np.asarray(self.effects(parameter[:, None])[..., 0])

    def effects(self, basis: Floats) -> Floats:
        """The linear map from parameters to intercepts and slopes: actions × (1 + p) × columns."""
        count, width = len(self.actions), self.width
        slopes = basis[: count * width].reshape(count, width, -1)
        intercepts = self._contrasts @ basis[count * width :]
        joined = np.concatenate([intercepts[:, None, :], slopes], axis=1)
        return np.asarray(joined / math.sqrt(len(self.columns) + 1))

    def action(self, name: str) -> int:
        """The index of a named action."""
        one_of("action", name, self.actions)
        return self.actions.index(name)
