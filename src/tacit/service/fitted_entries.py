"""Entries of a definition whose participants try several options and report a fitted parameter.

Validators see the earlier entries that could be read, as in `definition_rules`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationInfo

from tacit.contextual.fitted import most_plays
from tacit.readers import InvalidValue, RuleViolation, shown
from tacit.service.option_tables import OptionTable, read
from tacit.terms import FittedTerms
from tacit.trust import DEPLOYABLE_WITH_FITS as LIVE

FITTED = "private-dpe"


def check_plays(count: int | None, info: ValidationInfo) -> int | None:
    """Check that participants can fit the features of the table to `plays` answers."""
    found = info.data
    if count is None or "options_table" not in found:
        return count
    if not found["options_table"]:
        raise RuleViolation(
            f"plays is {count}, but options_file is missing: name a CSV file of options with "
            "features, or leave plays out"
        )
    if "trust" in found and found["trust"] not in LIVE:
        raise RuleViolation(
            f"plays is {count}, but trust is {shown(found['trust'])}: fitted parameters need "
            f"{' or '.join(LIVE)}. Change one of them"
        )
    if found.get("proofs"):
        raise RuleViolation("proofs is true, but fitted parameters have none: leave proofs out")
    least = dimension(read(found["options_table"]))
    most = most_plays(least)
    if not least <= count <= most:
        raise InvalidValue(f"from {least}, one for each feature and one more, to {most}")
    return count


def dimension(table: OptionTable) -> int:
    """Coordinates of a fitted parameter: features that differ between options, and an intercept."""
    return 1 + sum(len(set(column)) > 1 for column in zip(*table.rows, strict=True))


def fitted_terms(entries: Mapping[str, Any]) -> FittedTerms | None:
    """Terms of fitted parameters; None where each participant tries one option."""
    if entries["plays"] is None:
        return None
    return FittedTerms(
        (), dimension=dimension(read(entries["options_table"])), plays=entries["plays"]
    )
