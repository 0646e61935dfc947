"""Entries of a definition about contexts: fields, interactions, and the statistic of reports.

The size of the feature map decides whether devices report tables or moments (`usual_statistic`);
corners are reported where the definition says so.
Validators see the earlier entries that could be read, as in `definition_rules`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from pydantic import ValidationInfo

from tacit.contextual.corners import MOST_CORNERS, corner_count
from tacit.contextual.feature_maps import RESOLUTION, FeatureMap, Fields, interactions
from tacit.errors import TacitError
from tacit.readers import InvalidValue, RuleViolation, fraction, shown, visible
from tacit.service.fitted_entries import fitted_terms
from tacit.terms import ContextField, ContextTerms, CornerTerms, MomentTerms, NumberField
from tacit.terms.context import (
    CORNERS,
    MOMENTS,
    MOST_CONTEXTS,
    MOST_FEATURES,
    TABLE,
    FeatureTerms,
    in_units,
)
from tacit.trust import DEPLOYABLE_WITH_CONTEXTS as LIVE
from tacit.trust import TrustModel

CONTEXTUAL = "private-contextual"
MOST_CELLS = 80  # of context and option, up to which tables have less noise than moments
_RANGE = re.compile(r"\s*(\S+)\s+to\s+(\S+)\s*")
Field = ContextField | NumberField


def context_field(text: str) -> Field:
    """A field of the context: categories or a bounded number.

    >>> context_field("device: phone, desktop")
    ContextField(name='device', values=('phone', 'desktop'))
    >>> context_field("age: 18 to 90")
    NumberField(name='age', low=Fraction(18, 1), high=Fraction(90, 1))
    """
    name, colon, rest = text.partition(":")
    values = tuple(value.strip() for value in rest.split(","))
    if (bounds := _RANGE.fullmatch(rest)) and colon and name.strip():
        return _number(name.strip(), bounds)
    if not colon or not name.strip() or len(values) < 2 or not all(values):
        raise InvalidValue(
            'a field with at least two values, such as "device: phone, desktop", or with its '
            'range, such as "age: 18 to 90"'
        )
    if len({visible(value) for value in values}) < len(values):
        raise RuleViolation(f"contextual.fields names a value of {name} twice; names must differ")
    return ContextField(name.strip(), values)


def _number(name: str, bounds: re.Match[str]) -> NumberField:
    low, high = fraction(bounds[1]), fraction(bounds[2])
    if not low < high:
        raise RuleViolation(
            f"contextual.fields has {name} from {shown(low)} to {shown(high)}: must go from a "
            "smaller number to a larger one"
        )
    return NumberField(name, low, high)


def fields_of(texts: Sequence[str]) -> tuple[Field, ...]:
    """All fields of the context."""
    return tuple(map(_listed_field, texts))


def _listed_field(text: str) -> Field:
    """A field of the list, which names it when it is wrong."""
    try:
        return context_field(text)
    except InvalidValue as wrong:
        raise RuleViolation(f"contextual.fields has {shown(text)}: must be {wrong}") from None


def check_context(fields: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    """Fields of the context, with the algorithm that uses them."""
    name = info.data.get("algorithm")
    if name is not None and (name == CONTEXTUAL) != bool(fields):
        raise RuleViolation(
            f'contextual.fields needs algorithm = "{CONTEXTUAL}": add it, or leave the fields out'
            if fields
            else f"contextual.fields is missing; {CONTEXTUAL} chooses by them: add it, such as "
            '["device: phone, desktop"]'
        )
    named = fields_of(fields)
    if len({visible(one.name) for one in named}) < len(named):
        raise RuleViolation("contextual.fields names two fields alike; names must differ")
    return fields


def check_interactions(pairs: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    """Interactions are between fields and options that exist."""
    if pairs and not info.data.get("context_fields", True):
        raise InvalidValue("left out without contextual.fields")
    if not {"context_fields", "options"} <= info.data.keys():
        return pairs
    names = [one.name for one in fields_of(info.data["context_fields"])]
    options = info.data["options"]
    for field, chosen in between(pairs).items():
        for kind, one, known in (
            ("field", field, names),
            *(("option", c, options) for c in chosen),
        ):
            if one not in known:
                raise RuleViolation(
                    f"contextual.interactions names the {kind} {shown(one)}: must be one of "
                    f"{', '.join(known)}"
                )
    return pairs


def between(pairs: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The options that each field interacts with.

    >>> between(["age: new, other"])
    {'age': ('new', 'other')}
    """
    found: dict[str, tuple[str, ...]] = {}
    for pair in pairs:
        name, colon, rest = pair.partition(":")
        chosen = tuple(option.strip() for option in rest.split(","))
        if not colon or not name.strip() or not all(chosen) or name.strip() in found:
            raise InvalidValue('a list such as "age: new, other", each field once')
        found[name.strip()] = chosen
    return found


def cells_of(fields: Sequence[Field], options: int) -> int | None:
    """Cells of context and option of a table; None if the context has numbers."""
    if any(isinstance(one, NumberField) for one in fields):
        return None
    return math.prod((options, *(one.extremes for one in fields)))


def usual_statistic(entries: Mapping[str, Any]) -> str:
    """The statistic by default: tables up to 80 cells, else moments; empty without contexts."""
    if not entries["context_fields"]:
        return ""
    return _less_noisy_statistic(
        cells_of(fields_of(entries["context_fields"]), len(entries["options"]))
    )


def _less_noisy_statistic(cells: int | None) -> str:
    """The statistic with less noise for this number of cells; None with numeric fields."""
    return TABLE if cells is not None and cells <= MOST_CELLS else MOMENTS


def check_statistic(name: str, info: ValidationInfo) -> str:
    """The statistic fits the contexts."""
    found = info.data
    if not {"context_fields", "options", "interactions"} <= found.keys():
        return name
    if not found["context_fields"]:
        if name:
            raise InvalidValue("left out without contextual.fields")
        return name
    fields, options = fields_of(found["context_fields"]), found["options"]
    cells = cells_of(fields, len(options))
    if name not in (TABLE, CORNERS, MOMENTS):
        raise InvalidValue(f"{TABLE}, {CORNERS} or {MOMENTS}")
    _check_trust(found, name, fields)
    if name == MOMENTS and found.get("proofs"):
        raise RuleViolation(
            "proofs is true, but only tables and corners have proofs: leave proofs out"
        )
    if name in (CORNERS, MOMENTS):
        feature_terms(name, fields, options, found["interactions"], Fraction(0))
    elif cells is None:
        raise InvalidValue(f"{CORNERS} or {MOMENTS}: a table has no place for numbers")
    elif found["interactions"]:
        raise RuleViolation(
            "contextual.interactions is given, but tables have a cell for every combination: leave "
            f'it out, or add statistic = "{CORNERS}" or "{MOMENTS}"'
        )
    elif cells > MOST_CELLS:
        raise RuleViolation(
            f"contextual.fields has {cells // len(options)} segments, with options {cells} cells; "
            f"a live table must have at most {MOST_CELLS}: use fewer fields, values or options, or "
            f'statistic = "{MOMENTS}"'
        )
    return name


def _check_trust(entries: Mapping[str, Any], name: str, fields: tuple[Field, ...]) -> None:
    """Reject trust models without live rounds of this statistic; the error states their cost."""
    trust = TrustModel(entries.get("trust", LIVE[0]))
    if trust not in (TrustModel.LOCAL, TrustModel.SHUFFLER):
        return
    from tacit.algorithms.contextual_problem import StatisticKind
    from tacit.algorithms.private_contextual import SMALL_CELLS, trust_cost

    cells = cells_of(fields, len(entries["options"]))
    table = name == TABLE and cells is not None
    if table and cells is not None and cells <= SMALL_CELLS:
        return
    features = (
        ContextTerms(fields).features(entries["options"])
        if table
        else _scaled(fields, entries["options"], entries["interactions"])
    )
    kind: StatisticKind = "tables" if table else "corners" if name == CORNERS else "moments"
    cost = trust_cost(trust, kind, features, epsilon=1.0)
    served = f"which serves tables of at most {SMALL_CELLS} cells of context and option"
    others = [one for one in LIVE if one not in (TrustModel.LOCAL, TrustModel.SHUFFLER)]
    raise RuleViolation(
        f"trust is {shown(trust.value)}, {served}: at epsilon 1 {cost}. Use {' or '.join(others)}"
    )


def statistic_reason(fields: Sequence[Field], options: int, name: str) -> str:
    """Why this statistic is used, as a clause."""
    cells = cells_of(fields, options)
    if cells is None:
        return "the definition asks for it" if name == CORNERS else "the context has numbers"
    if name == _less_noisy_statistic(cells):
        many = "at most" if cells <= MOST_CELLS else "more than"
        return f"{cells} cells of context and option are {many} {MOST_CELLS}"
    return f"the definition asks for it; {cells} cells of context and option"


def feature_terms(
    name: str,
    fields: tuple[Field, ...],
    options: tuple[str, ...],
    pairs: tuple[str, ...],
    evaluation: Fraction,
) -> FeatureTerms:
    """The contexts of terms with corners or moments, with their feature map.

    Features are in the coordinates of their smallest enclosing ellipsoid, at most 1 long.
    """
    many = math.prod(one.extremes for one in fields)
    if many > MOST_CONTEXTS:
        raise RuleViolation(
            f"contextual.fields has {many:,} combinations of values and bounds: must be at most "
            f"{MOST_CONTEXTS:,}. Use fewer fields or values"
        )
    features = _scaled(fields, options, pairs)
    if features.dimension > MOST_FEATURES:
        raise RuleViolation(
            f"contextual.fields makes {features.dimension} features: must be at most "
            f"{MOST_FEATURES}. Use fewer fields, values or options, or name in "
            "contextual.interactions which field matters for which option"
        )
    matrices = in_units(features)
    if name == MOMENTS:
        return MomentTerms(fields, evaluation=evaluation, matrices=matrices)
    made = CornerTerms(fields, evaluation=evaluation, matrices=matrices)
    count = corner_count(made.features(options))
    if count > MOST_CORNERS:
        raise RuleViolation(
            f"contextual.fields makes {count:,} corners: must be at most {MOST_CORNERS}. Use fewer "
            "fields, values or options, name in contextual.interactions which field matters for "
            f'which option, or use statistic = "{MOMENTS}"'
        )
    return made


@lru_cache(maxsize=64)
def _scaled(
    fields: tuple[Field, ...], options: tuple[str, ...], pairs: tuple[str, ...]
) -> FeatureMap:
    from tacit.bandits.contextual.ellipsoid import scaled_map

    coded: Fields = tuple(one.coded() for one in fields)
    matrices = interactions(coded, options, between(pairs) or None)
    try:
        return scaled_map(coded, options, matrices)
    except TacitError as problem:
        raise RuleViolation(f"contextual.fields has no feature map: {problem}") from None


def context_terms(entries: Mapping[str, Any]) -> ContextTerms | None:
    """Context terms of a definition: the devices' features, or their fitted parameters.

    None where rounds assign options.
    """
    if not entries["context_fields"]:
        return fitted_terms(entries)
    fields, evaluation = fields_of(entries["context_fields"]), entries["evaluation"]
    if entries["statistic"] == TABLE:
        return ContextTerms(fields, evaluation=evaluation)
    named = entries["statistic"]
    return feature_terms(named, fields, entries["options"], entries["interactions"], evaluation)


def check_evaluation(part: Fraction, info: ValidationInfo) -> Fraction:
    """An evaluation slice needs contexts to compare with."""
    if part and info.data.get("context_fields") == ():
        raise InvalidValue("0, or left out, without contextual.fields")
    return part


def check_slice(part: Fraction, info: ValidationInfo) -> Fraction:
    """An evaluation slice needs contexts, and no shuffler."""
    check_evaluation(part, info)
    if part and info.data.get("trust") == TrustModel.SHUFFLER:
        raise InvalidValue("0, or left out, with trust shuffler")
    return part


def check_exploration(part: Fraction, info: ValidationInfo) -> Fraction:
    """Exploration of segments needs a table of them."""
    check_evaluation(part, info)
    name = info.data.get("statistic")
    if part and name in (CORNERS, MOMENTS):
        raise InvalidValue(f"0, or left out, with {name}, which explore by Thompson draws")
    return part


def check_participations(count: int, info: ValidationInfo) -> int:
    """Participants come once."""
    if count > 1 and info.data.get("context_fields"):
        raise InvalidValue("1 with contextual.fields")
    if count > 1 and info.data.get("plays"):
        raise InvalidValue("1 with plays")
    return count


def check_levels(levels: int, info: ValidationInfo) -> int:
    """Tables and corners count one outcome, 0 or 1; moments have several levels."""
    name = info.data.get("statistic")
    if levels > 1 and name in (TABLE, CORNERS):
        what = "a table" if name == TABLE else "corners"
        raise InvalidValue(f'1 with contextual.fields and {what}; or add statistic = "{MOMENTS}"')
    if levels > RESOLUTION and info.data.get("statistic") == MOMENTS:
        raise InvalidValue(f"at most {RESOLUTION} with moments")
    return levels


def check_no_show(part: Fraction, info: ValidationInfo) -> Fraction:
    """Rounds in which devices choose offer no more slots than they have participants."""
    if part and info.data.get("context_fields"):
        raise InvalidValue("0 with contextual.fields")
    if part and info.data.get("plays"):
        raise InvalidValue("0 with plays")
    return part
