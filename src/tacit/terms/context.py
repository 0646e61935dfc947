"""The part of terms about contexts: what devices choose options by, and the statistic they report.

A device codes its participant's context by the fields, picks an option by the policy of the round,
and reports one statistic. Context, choice and answer stay on the device. A table is one-hot over
segment, option and outcome: replacing a participant moves two cells by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from tacit.contextual.feature_maps import Category, FeatureMap, table_map
from tacit.contextual.policies import TablePolicy
from tacit.contextual.statistics import TableReport
from tacit.errors import require
from tacit.terms.parts import check_fraction, check_names, check_text

BY_POLICY = 0xFFFF
"""In place of a round's option: devices choose by the policy of the round."""

TABLE = "table"
MOST_CELLS = 512
"""Cells of context and option in a table, at most, in any terms."""

TABLE_SENSITIVITY = 2


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


@dataclass(frozen=True)
class ContextTerms:
    """Contexts of an experiment: fields, statistic, and the share of the evaluation slice.

    Participants of the slice get an option at random, the same for a whole round, and report their
    answer alone.

    Examples
    --------
    >>> context = ContextTerms((ContextField("device", ("phone", "desktop")),))
    >>> context.numbers(options=3), context.features(("a", "b", "c")).segments
    (12, 2)
    """

    fields: tuple[ContextField, ...]
    statistic: str = TABLE
    evaluation: Fraction = Fraction(0)

    def check(self, options: Sequence[str]) -> None:
        """Reject fields with the same name, unknown statistics and tables that are too large."""
        for one in self.fields:
            one.check()
        check_names("context.fields", [one.name for one in self.fields])
        known = self.statistic == TABLE
        require(known, "context.statistic", repr(self.statistic), TABLE)
        check_fraction("context.evaluation", self.evaluation)
        part = self.evaluation
        require(0 <= part < 1, "context.evaluation", part, "at least 0 and below 1")
        cells = self.numbers(len(options)) // 2
        rule = f"at most {MOST_CELLS}. Use fewer fields, values or options"
        require(cells <= MOST_CELLS, "number of cells of context and option", cells, rule)

    def numbers(self, options: int) -> int:
        """Numbers of a report where the device chooses."""
        return self.report(options).size

    @property
    def sensitivity(self) -> int:
        """By how much replacing a participant moves the sums of such a round, in l1 norm."""
        return TABLE_SENSITIVITY

    def report(self, options: int) -> TableReport:
        """The statistic."""
        segments = 1
        for one in self.fields:
            segments *= len(one.values)
        return TableReport(segments, options)

    def features(self, options: Sequence[str]) -> FeatureMap:
        """The public feature map of these fields."""
        return _features(self, tuple(options))

    def policy(self, data: bytes, options: int) -> TablePolicy:
        """The policy of a round; raises `TacitError` if it is not one of these contexts."""
        return TablePolicy.decode(data, self.report(options).segments, options)


@lru_cache(maxsize=64)
def _features(context: ContextTerms, options: tuple[str, ...]) -> FeatureMap:
    return table_map(tuple(Category(one.name, one.values) for one in context.fields), options)
