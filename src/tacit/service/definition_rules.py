"""Rules between the entries of a definition, as validators of its fields.

Each validator sees the earlier entries that could be read (`info.data`), so that all errors of a
file are reported together. A rule whose entries could not be read is skipped.
"""

from __future__ import annotations

import difflib
import math
from datetime import date
from fractions import Fraction

from pydantic import ValidationInfo

from tacit.service.readers import UNITS, InvalidValue, RuleViolation, in_words, shown, visible


def smallest(min_batch_size: int, dropout: Fraction) -> int:
    """Participants of the smallest round: the minimum batch size with an allowance for dropouts."""
    return math.ceil(min_batch_size / (1 - dropout))


def distinct(options: tuple[str, ...]) -> tuple[str, ...]:
    """Options: at least two, which look different."""
    if len(options) < 2:
        raise InvalidValue("a list of at least 2: one option needs no experiment")
    looks = [visible(name) for name in options]
    twice = [name for name, look in zip(options, looks, strict=True) if looks.count(look) > 1]
    if twice:
        raise RuleViolation(f"options names {shown(twice[0])} twice; names must differ")
    return options


def among_options(control: str, info: ValidationInfo) -> str:
    """The control is one of the options."""
    options = info.data.get("options", (control,))
    if control not in options:
        near = difflib.get_close_matches(control, options, n=1, cutoff=0.5)
        hint = (
            f"did you mean {shown(near[0])}?" if near else f"it must be one of {', '.join(options)}"
        )
        raise RuleViolation(f"control is {shown(control)}, which is not an option; {hint}")
    return control


def one_for_each_value(labels: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    """Labels of answers: none, or one for each value, which look different."""
    levels = info.data.get("levels", len(labels) - 1)
    if labels and len(labels) != levels + 1:
        raise InvalidValue(f"a list of {levels + 1}, one for each value, or left out")
    if len({visible(label) for label in labels}) < len(labels):
        raise RuleViolation("answer.labels names two values alike; names must differ")
    return labels


def above_low(high: Fraction, info: ValidationInfo) -> Fraction:
    """The range of an answer is not empty."""
    low = info.data.get("low")
    if low is not None and low >= high:
        raise InvalidValue(f"greater than answer.low, which is {low}")
    return high


def after_first(last: date, info: ValidationInfo) -> date:
    """The last day is not before the first."""
    first = info.data.get("first_day", last)
    if first > last:
        raise InvalidValue(f"at or after people.first_day, which is {first}")
    return last


def one_round_fits(margin: int, info: ValidationInfo) -> int:
    """One round fits between the first and the last day."""
    found = info.data
    if {"first_day", "last_day", "joining", "window"} <= found.keys():
        length = found["joining"] + found["window"] + margin
        if length > ((found["last_day"] - found["first_day"]).days + 1) * UNITS["day"]:
            raise RuleViolation(
                f"people.last_day is {found['last_day']}; it leaves no time for one round of "
                f"{in_words(length)} (rounds.joining, answer.window and rounds.margin) "
                f"from {found['first_day']} on: end later, or shorten them"
            )
    return margin


def enough_participants(min_batch_size: int, info: ValidationInfo) -> int:
    """Every option can be tried in two rounds of the minimum batch size."""
    found = info.data
    if found.get("participants") is not None and {"options", "dropout"} <= found.keys():
        least = 2 * len(found["options"]) * smallest(min_batch_size, found["dropout"])
        if found["participants"] < least:
            raise RuleViolation(
                f"people.participants is {found['participants']}; it must be at least {least} "
                f"for {len(found['options'])} options in rounds of at least {min_batch_size} "
                "reports: ask more people, or lower promise.min_batch_size"
            )
    return min_batch_size


def of_participants(most: int | None, info: ValidationInfo) -> int | None:
    """A maximum of rounds needs a number of participants."""
    if most is not None and info.data.get("participants", most) is None:
        raise RuleViolation(
            f"rounds.most is {most}, which needs people.participants: add that, or leave it out"
        )
    return most


def second_number(guardrail: str, info: ValidationInfo) -> str:
    """The guardrail differs from the answer, and has a control to compare with."""
    if guardrail and guardrail == info.data.get("metric"):
        raise InvalidValue("another name than answer.metric")
    if guardrail and info.data.get("control_share") == 0:
        raise RuleViolation(
            "control_share is 0, but the guardrail compares options with the control: give the "
            "control a share, such as 0.2"
        )
    return guardrail


def within_range(margin: Fraction, info: ValidationInfo) -> Fraction:
    """The guardrail's margin is less than the range of the answer."""
    found = info.data
    if margin and found.get("guardrail") == "":
        raise RuleViolation(
            f"guardrail.margin is {margin}, which needs guardrail.metric: add that, or leave it out"
        )
    width = found["high"] - found["low"] if {"low", "high"} <= found.keys() else margin + 1
    if not 0 <= margin < width:
        raise InvalidValue(f"at least 0 and less than the range of the answer, which is {width}")
    return margin


def possible(lift: Fraction | None, info: ValidationInfo) -> Fraction | None:
    """Baseline and lift are given together, and the best mean is within the range."""
    if not {"baseline", "low", "high"} <= info.data.keys():
        return lift
    baseline, low, high = (info.data[name] for name in ("baseline", "low", "high"))
    if baseline is None or lift is None:
        if baseline is not lift:
            missing, given = ("lift", "baseline") if lift is None else ("baseline", "lift")
            raise RuleViolation(
                f"expected.{missing} is missing; add it, or leave expected.{given} out"
            )
    elif not low < baseline < high:
        raise RuleViolation(
            f"expected.baseline is {baseline}; it must be between answer.low, {low}, and "
            f"answer.high, {high}"
        )
    elif not baseline < baseline * (1 + lift) <= high:
        raise InvalidValue(
            f"such that the best option's mean, {baseline * (1 + lift)}, is greater than "
            f"expected.baseline, {baseline}, and at most answer.high, {high}"
        )
    return lift
