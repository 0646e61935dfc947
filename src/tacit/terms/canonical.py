"""Canonical JSON of terms: sorted keys, integers and strings only, one encoding per document.

Fractions are strings such as "1/3", bytes hexadecimal, days ISO dates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import date
from fractions import Fraction
from functools import cache
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from tacit.errors import Rejected, TacitError

LONGEST = 1 << 16  # most bytes of a document
LARGEST = (1 << 53) - 1  # largest integer that every JSON parser represents exactly
_FRACTION = re.compile(r"-?(0|[1-9][0-9]{0,39})(/[1-9][0-9]{0,39})?")


def canonical(document: object) -> bytes:
    """Encode a document canonically: sorted keys, no spaces, UTF-8, integers and strings only.

    >>> canonical({"b": [1, "1/3"], "a": "ö"}).decode()
    '{"a":"ö","b":[1,"1/3"]}'
    """
    _only_plain(document)
    try:
        return json.dumps(
            document, sort_keys=True, separators=(",", ":"), ensure_ascii=False
        ).encode()
    except UnicodeEncodeError as problem:
        raise TacitError(
            f"a text of the terms contains half of a surrogate pair at {problem.start}: must be "
            "valid Unicode. Type the text again."
        ) from None


@contextmanager
def invalid_terms() -> Iterator[None]:
    """Convert the errors of a document with missing or invalid fields into `Rejected`."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        reason = str(problem) if isinstance(problem, TacitError) else repr(problem)
        raise Rejected(f"terms are invalid: {reason}") from None


def parsed(data: bytes) -> Any:
    """Decode a document; reject bytes that are not in canonical form."""
    if len(data) > LONGEST:
        raise Rejected(
            f"terms have {len(data)} bytes: must be at most {LONGEST}. Shorten the texts"
        )
    try:
        document = json.loads(data.decode("utf-8", "strict"))
        same = canonical(document) == data
    except (ValueError, RecursionError) as problem:
        raise Rejected(f"terms are not a JSON document: {problem}") from None
    if not same:
        raise Rejected(
            "terms are not in canonical form: keys must be sorted, without spaces and with no "
            "escapes but those of control characters. Write them with tacit.terms.canonical"
        )
    return document


def to_plain(value: Any) -> Any:
    """A value of terms as plain data; a dataclass becomes an object of its fields."""
    match value:
        case Fraction():
            return str(value)
        case bytes():
            return value.hex()
        case date():
            return value.isoformat()
        case tuple():
            return [to_plain(one) for one in value]
    if is_dataclass(value):
        return {one.name: to_plain(vars(value)[one.name]) for one in fields(value)}
    return value


def from_plain(kind: Any, value: Any) -> Any:
    """Inverse of `plain` for a type; raises `KeyError`, `TypeError` or `ValueError`."""
    if is_dataclass(kind):
        if is_dataclass(value):  # read before
            return value
        hints = _hints(kind)
        given = {one.name: from_plain(hints[one.name], value[one.name]) for one in fields(kind)}
        return kind(**given)  # type: ignore[operator]
    if get_origin(kind) is UnionType and is_dataclass(get_args(kind)[0]):  # or None
        return None if value is None else from_plain(get_args(kind)[0], value)
    if get_origin(kind) is tuple:
        return tuple(from_plain(get_args(kind)[0], one) for one in value)
    readers: dict[Any, Any] = {
        Fraction: read_fraction,
        bytes: bytes.fromhex,
        date: date.fromisoformat,
    }
    return readers.get(kind, lambda same: same)(value)


# annotations are texts, and evaluating them is slow
_hints: Callable[[Any], dict[str, Any]] = cache(get_type_hints)


def read_fraction(text: object) -> Fraction:
    """Parse a fraction such as 2 or 1/3, of at most 40 digits above and below the line."""
    if not isinstance(text, str) or not _FRACTION.fullmatch(text):
        raise TacitError(
            f"{text!r} is not a fraction: must be such as 2 or 1/3, of at most 40 digits each"
        )
    return Fraction(text)


def _only_plain(value: object) -> None:
    if isinstance(value, Mapping):
        for key, entry in value.items():
            if not isinstance(key, str) or not re.fullmatch("[a-z_]+", key):
                raise TacitError(
                    f"{key!r} is not a key of terms: use small letters and underscores"
                )
            _only_plain(entry)
    elif isinstance(value, list):
        for entry in value:
            _only_plain(entry)
    elif isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TacitError(
            f"{value!r} cannot be part of terms: use integers, strings, lists and objects"
        )
    elif isinstance(value, int) and abs(value) > LARGEST:
        raise TacitError(f"{value} is too large for terms: integers must be within ±{LARGEST}")
