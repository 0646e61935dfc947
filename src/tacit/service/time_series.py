"""The time series of an experiment as CSV: the estimates of every option after every round."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from tacit.types import ArmSummary

FIRST = ("time", "round", "round_option", "round_reports")
"""Columns about a round: when it ended (UTC), its number, its option, and reports if released."""
ESTIMATES = tuple(one.name for one in fields(ArmSummary))


def time_series(history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row per round and option, in the order in which rounds ended.

    `history` has the entries of `answers.moment`.
    """
    return [
        {
            "time": datetime.fromtimestamp(moment["time"], UTC).isoformat(),
            "round": moment["round"],
            "round_option": moment["option"],
            "round_reports": moment["reports"],
            **option,
        }
        for moment in history
        for option in moment["options"]
    ]


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV (RFC 4180), with the same columns before the first round has ended."""
    columns = dict.fromkeys([*FIRST, *ESTIMATES, *(name for row in rows for name in row)])
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(columns), lineterminator="\n", restval="")
    writer.writeheader()
    writer.writerows({name: _safe(value) for name, value in row.items()} for row in rows)
    return buffer.getvalue()


def _safe(value: Any) -> Any:
    """Escape text that a spreadsheet would take for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" else value
