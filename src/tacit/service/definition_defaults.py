"""Defaults of a definition's entries that are derived from the entries before them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from tacit.service import definition_rules as rules
from tacit.service.fitted_entries import FITTED
from tacit.terms.context import CORNERS, TABLE
from tacit.trust import DISHONEST, MISSING, TrustModel

ROUNDS = 32  # maximum
_EVALUATION = Fraction(1, 10)  # share of the evaluation slice
_EXPLORATION = Fraction(1, 5)  # share of every segment
_EVENLY = Fraction(4, 5)  # of participants are split evenly until an option is shown to be worse
_FINEST = 100  # levels at most
_YES_OR_NO = ("No", "Yes")

Entries = dict[str, Any]
"""The entries read so far, by field."""


def default_algorithm(entries: Entries) -> str:
    """Elimination for linear models where options have features."""
    if entries["plays"] is not None:
        return FITTED
    return "private-pe" if entries["options_table"] else "private-med"


def default_control_share(entries: Entries) -> Fraction:
    """An even share where the algorithm tries options side by side."""
    even = rules.side_by_side(entries["algorithm"])
    return _EVENLY / len(entries["options"]) if even else Fraction(0)


def default_evaluation(entries: Entries) -> Fraction:
    """Share of the evaluation slice; 0 without contexts."""
    served = entries["context_fields"] and entries["trust"] != TrustModel.SHUFFLER
    return _EVALUATION if served else Fraction(0)


def default_exploration(entries: Entries) -> Fraction:
    """Share of every segment that gets an option at random; 0 without tables."""
    return _EXPLORATION if entries["statistic"] == TABLE else Fraction(0)


def default_levels(entries: Entries) -> int:
    """One level for each unit of the range if it is whole; 1 with tables and corners."""
    if entries.get("statistic") in (TABLE, CORNERS):
        return 1
    steps = entries["high"] - entries["low"]
    return int(steps) if steps.denominator == 1 and 0 < steps <= _FINEST else _FINEST


def default_labels(entries: Entries) -> tuple[str, ...]:
    """Yes or no for answers from 0 to 1 in one step."""
    return _YES_OR_NO if (entries["low"], entries["high"], entries["levels"]) == (0, 1, 1) else ()


def default_missing(entries: Entries) -> Fraction:
    """Share of a round that may drop out; 0 where servers add the noise."""
    return MISSING if rules.shares(entries["trust"]) else Fraction(0)


def default_dishonest(entries: Entries) -> Fraction:
    """Share of a round that may leave the noise out; 0 where servers add it."""
    return DISHONEST if rules.shares(entries["trust"]) else Fraction(0)


def default_rounds(entries: Entries) -> int | None:
    """Maximum of rounds, for an algorithm that plans them and a known number of participants."""
    planned = entries["participants"] is not None and rules.has_option(
        entries["algorithm"], "rounds"
    )
    return ROUNDS if planned else None
