"""Contexts in terms: the features by which devices choose options, and the statistic they report.

A device codes its participant's context by the fields, picks an option by the policy of the round,
and reports one statistic. Context, choice and answer stay on the device. A table (`ContextTerms`)
is one-hot over segment, option and outcome: replacing a participant moves two cells by one.
Moments (`MomentTerms`) are those of `tacit.contextual.ScaledMomentReport`; corners (`CornerTerms`)
are one-hot over the corner to which a device rounds its features at random, and outcome. The
feature map of both (`FeatureTerms`) is part of the terms, in integers. Where participants try
several options and report a fitted parameter (`FittedTerms`), there is no context: the round says
what they try.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from tacit.assumptions import Secret
from tacit.contextual import fitted
from tacit.contextual.corners import MOST_CORNERS, corner_count, layout
from tacit.contextual.feature_maps import (
    FINEST,
    RESOLUTION,
    BoundedNumber,
    Category,
    FeatureMap,
    table_map,
)
from tacit.contextual.fitted import FitPolicy, FitReport, most_plays
from tacit.contextual.policies import LinearPolicy, TablePolicy
from tacit.contextual.statistics import ScaledMomentReport, TableReport
from tacit.errors import TacitError, require
from tacit.terms.canonical import from_plain
from tacit.terms.parts import check_fraction, check_names, check_text, check_whole

BY_POLICY = 0xFFFF
"""In place of a round's option: devices choose by the policy of the round."""

TABLE = "table"
MOMENTS = "moments"
CORNERS = "corners"
FIT = "fit"
MOST_CELLS = 512
"""Cells of context and option in a table, at most, in any terms."""

TABLE_SENSITIVITY = 2
MATRIX_UNIT = 1 << 20
"""Entries of a feature map are integers in units of 1/MATRIX_UNIT."""

LARGEST_ENTRY = 2 * MATRIX_UNIT  # two features of length 1 differ by no more

MOST_FEATURES = 32
MOST_FITTED = 64
"""Coordinates of a fitted report, at most."""

MOST_CONTEXTS = 1024
"""Combinations of values and bounds of a context with features, at most: devices try them all."""


@dataclass(frozen=True)
class ContextField:
    """A field of the context: its name, and its possible values."""

    name: str
    values: tuple[str, ...]

    def check(self) -> None:
        """Reject unreadable names, and fewer than two values."""
        check_text("context.fields", self.name)
        check_names(f"values of {self.name}", self.values)
        count = len(self.values)
        require(count >= 2, f"number of values of {self.name}", count, "at least 2")

    def coded(self) -> Category:
        """The field as features use it."""
        return Category(self.name, self.values)

    def text(self) -> str:
        """The field in words: its name and values."""
        return f"{self.name} ({', '.join(self.values)})"

    @property
    def extremes(self) -> int:
        """The number of values."""
        return len(self.values)


@dataclass(frozen=True)
class NumberField:
    """A field of the context that is a number from `low` to `high`; others are clipped."""

    name: str
    low: Fraction
    high: Fraction

    def check(self) -> None:
        """Reject unreadable names and empty ranges."""
        check_text("context.fields", self.name)
        check_fraction(f"low of {self.name}", self.low)
        check_fraction(f"high of {self.name}", self.high)
        require(self.low < self.high, f"low of {self.name}", self.low, f"below {self.high}")

    def coded(self) -> BoundedNumber:
        """The field as features use it."""
        return BoundedNumber(self.name, float(self.low), float(self.high))

    def text(self) -> str:
        """The field in words: its name and range."""
        return f"{self.name} (from {self.low} to {self.high})"

    @property
    def extremes(self) -> int:
        """Both bounds."""
        return 2


@dataclass(frozen=True)
class ContextTerms:
    """Contexts of an experiment with tables: fields, statistic, share of the evaluation slice.

    Participants of the slice get an option at random, the same for a whole round, and report their
    answer alone.

    Examples
    --------
    >>> context = ContextTerms((ContextField("device", ("phone", "desktop")),))
    >>> context.numbers(options=3), context.features(("a", "b", "c")).segments
    (12, 2)
    """

    fields: tuple[ContextField | NumberField, ...]
    statistic: str = TABLE
    evaluation: Fraction = Fraction(0)

    def check(self, options: Sequence[str], levels: int) -> None:
        """Reject fields with the same name, and statistics that are too large."""
        for one in self.fields:
            one.check()
        if self.fields or self.statistic != FIT:
            check_names("context.fields", [one.name for one in self.fields])
        check_fraction("context.evaluation", self.evaluation)
        part = self.evaluation
        require(0 <= part < 1, "context.evaluation", part, "at least 0 and below 1")
        self._check_statistic(options, levels)

    def _check_statistic(self, options: Sequence[str], levels: int) -> None:
        require(self.statistic == TABLE, "context.statistic", repr(self.statistic), TABLE)
        numbers = [one.name for one in self.fields if isinstance(one, NumberField)]
        require(not numbers, "number among context.fields", numbers, "absent with a table")
        require(levels == 1, "levels", levels, "1 where devices choose by a table")
        cells = self.numbers(len(options)) // 2
        rule = f"at most {MOST_CELLS}. Use fewer fields, values or options"
        require(cells <= MOST_CELLS, "number of cells of context and option", cells, rule)

    @property
    def exact(self) -> bool:
        """Whether the guarantee of the statistic has no δ."""
        return True

    @property
    def secret(self) -> Secret:
        """The part of a participant's data in which neighbours differ."""
        return Secret.CONTEXT_AND_REWARDS

    def numbers(self, options: int) -> int:
        """Numbers of a report where the device chooses."""
        return self.report(options, 1).size

    def bounds(self) -> tuple[int, int]:
        """The least and the largest number of a report."""
        return 0, 1

    def slice_noise(self, stated: Fraction, moved: int, epsilon: Fraction) -> Fraction:  # noqa: ARG002
        """The scale of the noise of the evaluation slice, whose sums move by `moved`.

        It is as large for that as the `stated` noise is for a table.
        """
        return stated * moved / TABLE_SENSITIVITY

    def report(
        self,
        options: int,
        levels: int = 1,  # noqa: ARG002
    ) -> TableReport | ScaledMomentReport | FitReport:
        """The statistic."""
        return TableReport(math.prod(one.extremes for one in self.fields), options)

    def features(self, options: Sequence[str]) -> FeatureMap:
        """The public feature map of these fields."""
        return _features(self, tuple(options))

    def made(self, options: tuple[str, ...]) -> FeatureMap:
        """Build the public feature map, which `features` caches."""
        return table_map(tuple(one.coded() for one in self.fields), options)

    def choose(
        self, policy: bytes, options: Sequence[str], context: Mapping[str, Any]
    ) -> PickedOption:
        """Pick an option by the policy of a round, with randomness of the operating system."""
        segment = self.features(options).segment(context)
        option = self._policy(policy, len(options)).draw(segment)
        return PickedOption(option, (segment, option))

    def vector(self, options: int, levels: int, known: Sequence[int], level: int) -> list[int]:
        """The numbers of a report, from what `choose` made known and the level of the answer."""
        report, (segment, option) = self.report(options, levels), known
        assert isinstance(report, TableReport)
        return report.vector(report.cell(segment, option, level))

    @property
    def known_size(self) -> int:
        """The number of integers that `choose` returns."""
        return 2

    def check_policy(self, data: bytes, options: int) -> None:
        """Raise `TacitError` if a policy is not one of these contexts."""
        self._policy(data, options)

    def _policy(self, data: bytes, options: int) -> TablePolicy:
        segments = math.prod(one.extremes for one in self.fields)
        return TablePolicy.decode(data, segments, options)


@dataclass(frozen=True)
class PickedOption:
    """A chosen option by its index, and what its report needs besides the answer."""

    option: int
    known: tuple[int, ...]


@dataclass(frozen=True)
class FeatureTerms(ContextTerms):
    """Contexts of an experiment whose devices choose by features: its feature map besides.

    Parameters
    ----------
    matrices
        The feature map as `FeatureMap` takes it, in integers: multiples of 1/`MATRIX_UNIT`.
    resolution
        Features are rounded to multiples of 1/resolution.
    """

    statistic: str = ""
    evaluation: Fraction = Fraction(0)
    matrices: tuple[tuple[tuple[int, ...], ...], ...] = ()
    resolution: int = RESOLUTION

    def _check_statistic(self, options: Sequence[str], levels: int) -> None:
        check_whole("context.resolution", self.resolution, 1)
        many = math.prod(one.extremes for one in self.fields)
        rule = f"at most {MOST_CONTEXTS}. Use fewer fields or values"
        require(many <= MOST_CONTEXTS, "number of extreme contexts", many, rule)
        numbers = [number for matrix in self.matrices for row in matrix for number in row]
        whole = all(type(number) is int and abs(number) <= LARGEST_ENTRY for number in numbers)
        rule = f"integers within ±{LARGEST_ENTRY}"
        require(numbers and whole, "context.matrices", "something else", rule)
        dimension = self.features(options).dimension  # checks shapes and lengths
        rule = f"at most {MOST_FEATURES}. Use fewer fields, values, options or interactions"
        require(dimension <= MOST_FEATURES, "number of features", dimension, rule)
        most = self.resolution
        require(levels <= most, "levels", levels, f"at most {most}, the resolution of features")

    @property
    def dimension(self) -> int:
        """The number of features."""
        return len(self.matrices[0])

    def made(self, options: tuple[str, ...]) -> FeatureMap:
        """Build the public feature map, which `features` caches."""
        matrices = tuple(
            tuple(tuple(number / MATRIX_UNIT for number in row) for row in matrix)
            for matrix in self.matrices
        )
        fields = tuple(one.coded() for one in self.fields)
        return FeatureMap(fields, options, matrices, self.resolution)

    def check_policy(self, data: bytes, options: int) -> None:
        """Raise `TacitError` if a policy is not one of these features."""
        self._linear(data, options)

    def _linear(self, data: bytes, options: int) -> LinearPolicy:
        return LinearPolicy.decode(data, self.dimension, options)


@dataclass(frozen=True)
class MomentTerms(FeatureTerms):
    """Contexts of an experiment with moments; its parameters are those of `FeatureTerms`."""

    statistic: str = MOMENTS

    def _check_statistic(self, options: Sequence[str], levels: int) -> None:
        require(self.statistic == MOMENTS, "context.statistic", repr(self.statistic), MOMENTS)
        super()._check_statistic(options, levels)

    @property
    def exact(self) -> bool:
        """False: the noise is Gaussian."""
        return False

    def bounds(self) -> tuple[int, int]:
        """The least and the largest number of a report."""
        largest = ScaledMomentReport(self.dimension, self.resolution).largest
        return -largest, largest

    def slice_noise(self, stated: Fraction, moved: int, epsilon: Fraction) -> Fraction:  # noqa: ARG002
        """The scale of the noise of the evaluation slice, which is discrete Laplace: moved / ε."""
        return moved / epsilon

    def report(self, options: int, levels: int = 1) -> ScaledMomentReport:  # noqa: ARG002
        """The statistic."""
        return ScaledMomentReport(self.dimension, self.resolution, levels)

    def choose(
        self, policy: bytes, options: Sequence[str], context: Mapping[str, Any]
    ) -> PickedOption:
        """Pick an option by Thompson draws of this device; known are its features."""
        vectors = self.features(options).of(context)
        option = self._linear(policy, len(options)).draw(vectors)
        return PickedOption(option, vectors[option])

    def vector(self, options: int, levels: int, known: Sequence[int], level: int) -> list[int]:
        """The moments; features longer than 1 are rejected."""
        return self.report(options, levels).vector(known, level)

    @property
    def known_size(self) -> int:
        """The number of integers that `choose` returns: the features of the chosen option."""
        return self.dimension


@dataclass(frozen=True)
class CornerTerms(FeatureTerms):
    """Contexts of an experiment with corners; its parameters are those of `FeatureTerms`.

    A report is a one in the cell (corner, outcome). Replacing a participant with all coins moves
    two cells by one, whichever corners the device draws.
    """

    statistic: str = CORNERS

    def _check_statistic(self, options: Sequence[str], levels: int) -> None:
        require(self.statistic == CORNERS, "context.statistic", repr(self.statistic), CORNERS)
        super()._check_statistic(options, levels)
        require(levels == 1, "levels", levels, "1 where devices report corners")
        count = corner_count(self.features(options))
        rule = f"at most {MOST_CORNERS}. Use fewer fields, values, options or interactions"
        require(count <= MOST_CORNERS, "number of corners", count, rule)

    def report(self, options: int, levels: int = 1) -> TableReport:  # noqa: ARG002
        """The statistic: a table whose segments are corners."""
        names = tuple(map(str, range(options)))  # corners depend on no name
        return TableReport(layout(self.features(names)).size, 1)

    def choose(
        self, policy: bytes, options: Sequence[str], context: Mapping[str, Any]
    ) -> PickedOption:
        """Pick an option by Thompson draws of this device; known is the corner that it draws."""
        features = self.features(options)
        option = self._linear(policy, len(options)).draw(features.of(context))
        corner = layout(features).options[option].draw(features.code(context))
        return PickedOption(option, (corner,))

    def vector(self, options: int, levels: int, known: Sequence[int], level: int) -> list[int]:
        """A one in the cell of corner and answer."""
        report, (corner,) = self.report(options, levels), known
        return report.vector(report.cell(corner, 0, level))

    @property
    def known_size(self) -> int:
        """The number of integers that `choose` returns: the corner."""
        return 1


@dataclass(frozen=True)
class FittedTerms(ContextTerms):
    """Experiments in which each participant tries several options and reports one fitted vector.

    Parameters
    ----------
    dimension
        Coordinates of a report.
    plays
        How many options a participant tries at most, counting repetitions.
    resolution
        The radius of the ball in which reports are, as integers.

    Examples
    --------
    >>> FittedTerms((), dimension=4, plays=8).numbers(options=200)
    4
    """

    statistic: str = FIT
    evaluation: Fraction = Fraction(0)
    dimension: int = 1
    plays: int = 1
    resolution: int = fitted.RESOLUTION

    def _check_statistic(self, options: Sequence[str], levels: int) -> None:
        require(self.statistic == FIT, "context.statistic", repr(self.statistic), FIT)
        require(not self.fields, "context.fields", len(self.fields), "empty with a fit")
        require(not self.evaluation, "context.evaluation", self.evaluation, "0 with a fit")
        for name, number, most in (
            ("context.dimension", self.dimension, MOST_FITTED),
            ("context.resolution", self.resolution, FINEST),
            ("context.plays", self.plays, most_plays(self.dimension)),
        ):
            check_whole(name, number, 1)
            require(number <= most, name, number, f"at most {most}")
        self.report(len(options), levels)

    @property
    def exact(self) -> bool:
        """False: the noise is Gaussian."""
        return False

    @property
    def secret(self) -> Secret:
        """All rewards of a participant."""
        return Secret.FITTED_PARAMETER

    def bounds(self) -> tuple[int, int]:
        """The least and the largest number of a report."""
        return -self.resolution, self.resolution

    def report(self, options: int, levels: int = 1) -> FitReport:  # noqa: ARG002
        """The statistic."""
        return FitReport(self.dimension, self.resolution, levels)

    def policy(self, data: bytes, options: int) -> FitPolicy:
        """The options that participants of a round try; raises `TacitError` outside these terms."""
        return FitPolicy.decode(data, self.dimension, options, self.plays)

    def check_policy(self, data: bytes, options: int) -> None:
        """Raise `TacitError` if a policy is not one of these terms."""
        self.policy(data, options)


def in_units(features: FeatureMap) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """The matrices of a feature map in integers, scaled down so that rounding adds no length."""
    places = 1 + len(features.fields)  # numbers of a code that are not 0
    room = math.sqrt(features.dimension) * places / MATRIX_UNIT
    scale = (1 - room) * MATRIX_UNIT
    return tuple(
        tuple(tuple(round(number * scale) for number in row) for row in matrix)
        for matrix in features.matrices
    )


def read_context(data: Any) -> ContextTerms | None:
    """The contexts in a document; raises `KeyError`, `TypeError` or `ValueError`."""
    if data is None:
        return None
    kinds: dict[str, type[ContextTerms]] = {
        TABLE: ContextTerms,
        MOMENTS: MomentTerms,
        CORNERS: CornerTerms,
        FIT: FittedTerms,
    }
    if data["statistic"] not in kinds:
        raise TacitError(
            f"context.statistic is {data['statistic']!r}: must be {' or '.join(kinds)}"
        )
    fields = tuple(
        from_plain(ContextField if "values" in one else NumberField, one) for one in data["fields"]
    )
    kind = kinds[data["statistic"]]
    more = {}
    if issubclass(kind, FeatureTerms):
        more["matrices"] = tuple(tuple(map(tuple, matrix)) for matrix in data["matrices"])
        more["resolution"] = data["resolution"]
    if kind is FittedTerms:
        more = {name: data[name] for name in ("dimension", "plays", "resolution")}
    evaluation = from_plain(Fraction, data["evaluation"])
    return kind(fields, data["statistic"], evaluation, **more)


@lru_cache(maxsize=64)
def _features(context: ContextTerms, options: tuple[str, ...]) -> FeatureMap:
    return context.made(options)
