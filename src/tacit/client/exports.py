"""Strict parser for ledger exports of another device; it accepts a whole export or nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tacit.errors import TacitError, require

FORMAT = "tacit ledger 3"
REPORT_SIZE = 16
"""Bytes of the random name of a participation; a round may have several of one participant."""

_FRACTION = re.compile(r"[0-9]{1,80}(/[1-9][0-9]{0,79})?")


@dataclass(frozen=True)
class Participation:
    """One report of the participant in a round, of any of their devices."""

    identity: bytes
    report: bytes
    cost: Fraction
    charged: bool
    aborted: bool
    delta: Fraction = Fraction(0)


@dataclass(frozen=True)
class Exported:
    """One entry of an export: the spending under terms and their successors."""

    terms: tuple[bytes, ...]
    keys: tuple[bytes, ...]
    epsilon: Fraction
    participations: int
    withdrawn: bool
    rounds: tuple[Participation, ...]


def read_export(exported: str) -> tuple[Fraction | None, list[Exported]]:
    """Return the participant's own limit and all entries; raise `TacitError` if invalid."""
    try:
        document = json.loads(exported)
        if document["format"] != FORMAT:
            raise TacitError(
                f"format is {document['format']!r}: must be {FORMAT!r}. Use the same version of "
                "tacit on both devices"
            )
        own = document["own_limit"]
        limit = None if own is None else _read_fraction(own)
        return limit, [_read_entry(entry) for entry in document["experiments"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise TacitError(
            f"export of the ledger is invalid ({problem}). Nothing was merged: export it again"
        ) from None


def _read_entry(entry: Mapping[str, Any]) -> Exported:
    terms, rounds, keys = entry["terms"], entry["rounds"], entry["keys"]
    lists = all(isinstance(one, list) for one in (terms, rounds, keys))
    if not lists or not terms:
        raise TacitError("an experiment lacks its list of terms, keys or rounds")
    times = entry["participations"]
    holds = type(times) is int and times >= 0
    require(holds, "participations", repr(times), "a whole number of at least 0")
    return Exported(
        tuple(bytes.fromhex(digest) for digest in terms),
        tuple(bytes.fromhex(key) for key in keys),
        _read_fraction(entry["epsilon"]),
        times,
        bool(entry["withdrawn"]),
        tuple(_read_round(row) for row in rounds),
    )


def _read_round(row: Mapping[str, Any]) -> Participation:
    report = bytes.fromhex(row["report"])
    require(len(report) == REPORT_SIZE, "report", row["report"], f"{REPORT_SIZE} bytes")
    return Participation(
        bytes.fromhex(row["round"]),
        report,
        _read_fraction(row["cost"]),
        bool(row["charged"]),
        bool(row["refused"]),
        _read_fraction(row.get("delta", "0")),
    )


def _read_fraction(text: object) -> Fraction:
    holds = isinstance(text, str) and _FRACTION.fullmatch(text)
    require(holds, "an amount", repr(text), "a fraction such as 2 or 1/3")
    return Fraction(str(text))
