"""Readers and writers for the entries of a definition: texts, exact fractions, durations.

A reader takes the value that TOML or YAML parsed and returns a typed value, or raises `Wrong` with
the expected form. Numbers never pass through floating point. A writer returns text that both
languages parse back to the same value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any
from urllib.parse import urlsplit

from tacit.signatures import KEY_SIZE

UNITS = {"week": 604_800, "day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
LONGEST = 10 * 366 * 86_400  # seconds of a duration, at most
LARGEST = 10**15  # maximum of numerators, denominators and counts
_SHORT = {"s": "second", "sec": "second", "min": "minute", "h": "hour", "d": "day"}
_NUMBER = re.compile(r"([+-]?\d{1,15}(?:\.\d{1,15})?)(?:/(\d{1,15}))?(%?)")
_PART = re.compile(r"(\d{1,10}(?:\.\d{1,6})?)\s*([a-z]+)(?:\s*(?:,|and)?\s*|$)")

Reader = Callable[[object], Any]


class Wrong(Exception):  # noqa: N818 - a validation result, not an error
    """The expected form of an entry that could not be read."""


def text(value: object) -> str:
    """A text; a number stands for its digits."""
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        raise Wrong('words in quotes, such as "Hello"')
    return value.strip()


def texts(value: object) -> tuple[str, ...]:
    """A list of texts."""
    if not isinstance(value, list):
        raise Wrong('a list such as ["Hello", "Hi"]')
    return tuple(text(entry) for entry in value)


def fraction(value: object) -> Fraction:
    """An exact number: 2, 0.1, "1/3" or "10%".

    >>> fraction("1/3"), fraction(Decimal("0.1")), fraction("5%")
    (Fraction(1, 3), Fraction(1, 10), Fraction(1, 20))
    """
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) <= 15:
        value = format(value, "f")
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    found = _NUMBER.fullmatch(value.replace(" ", "")) if isinstance(value, str) else None
    if found is None or (found[2] and not int(found[2])):
        raise Wrong('a number such as 2, 0.1, "1/3" or "10%", with at most 15 digits')
    number = Fraction(found[1]) / int(found[2] or 1) / (100 if found[3] else 1)
    if max(abs(number.numerator), number.denominator) > LARGEST:
        raise Wrong("a simpler number, with at most 15 digits in lowest terms")
    return number


def above_zero(value: object) -> Fraction:
    """A number above 0."""
    number = fraction(value)
    if number <= 0:
        raise Wrong("a number above 0")
    return number


def part(value: object) -> Fraction:
    """A fraction from 0 to less than 1."""
    number = fraction(value)
    if not 0 <= number < 1:
        raise Wrong('a part from 0 to less than 1, such as 0.1, "1/5" or "10%"')
    return number


def whole(value: object, least: int = 1) -> int:
    """A count; thousands separators are allowed.

    >>> whole("20,000"), whole(Decimal("1e6"))
    (20000, 1000000)
    """
    wanted = Wrong(f"a whole number from {least} on, with at most 15 digits")
    try:
        number = fraction(re.sub(r"[,_' ]", "", value) if isinstance(value, str) else value)
    except Wrong:
        raise wanted from None
    if number.denominator != 1 or number < least:
        raise wanted
    return int(number)


def several(value: object) -> int:
    """A count of at least 2."""
    return whole(value, 2)


def duration(value: object) -> int:
    """A duration, in seconds.

    >>> duration("90 seconds"), duration("1 day and 12 hours"), duration("1.5 h")
    (90, 129600, 5400)
    """
    seconds, rest = Fraction(0), value.strip().lower() if isinstance(value, str) else ""
    wanted = Wrong('a number and a unit, such as "90 seconds", "6 hours" or "1 day"')
    while rest:
        found = _PART.match(rest)
        name = "" if found is None else _SHORT.get(found[2], found[2].removesuffix("s"))
        if found is None or name not in UNITS:
            raise wanted
        seconds, rest = seconds + Fraction(found[1]) * UNITS[name], rest[found.end() :]
    if value == "" or not isinstance(value, str) or seconds.denominator != 1:
        raise wanted
    if seconds > LONGEST:
        raise Wrong("less than ten years")
    return int(seconds)


def lasting(value: object) -> int:
    """A duration of at least a second."""
    seconds = duration(value)
    if not seconds:
        raise Wrong('longer than that, such as "10 minutes"')
    return seconds


def twice(value: object) -> int:
    """A duration of at least two seconds, so that half of it is at least one."""
    seconds = lasting(value)
    if seconds < 2:
        raise Wrong('at least "2 seconds"')
    return seconds


def day(value: object) -> date:
    """A calendar day."""
    try:
        if isinstance(value, str):
            return date.fromisoformat(value.strip())
    except ValueError:
        pass
    if not isinstance(value, date) or isinstance(value, datetime):
        raise Wrong("a day such as 2026-12-31")
    return value


def one_of(*allowed: str) -> Reader:
    """A reader that accepts only these words."""

    def read(value: object) -> str:
        if value not in allowed:
            raise Wrong(" or ".join(f'"{word}"' for word in allowed))
        return str(value)

    return read


def address(value: object) -> str:
    """The URL of a party."""
    found = text(value).rstrip("/")
    wanted = Wrong('an address such as "https://helper.example"')
    try:
        parts = urlsplit(found)
        rest = parts.query or parts.fragment or parts.username or parts.password
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        raise wanted from None
    if not known or rest or not found.isascii() or re.search(r"[\s<>\"\\]", found):
        raise wanted
    return found


def public_key(value: object) -> bytes:
    """A public long-term key in hexadecimal digits."""
    if not isinstance(value, str) or not re.fullmatch(r"[0-9a-fA-F]{64}", value.strip()):
        raise Wrong(
            f"the helper's key, {2 * KEY_SIZE} hexadecimal digits as `tacit party new helper` "
            "prints them"
        )
    return bytes.fromhex(value)


def in_words(seconds: int) -> str:
    """A duration in words, in one unit if that takes fewer than a hundred of it.

    >>> in_words(90), in_words(86_400), in_words(88_200), in_words(0)
    ('90 seconds', '1 day', '1 day and 30 minutes', '0 seconds')
    """
    small = {name: size for name, size in UNITS.items() if name != "week"}
    for name, size in small.items():
        if seconds >= size and seconds % size == 0 and seconds < 100 * size:
            return counted(seconds // size, name)
    parts = []
    for name, size in small.items():
        count, seconds = divmod(seconds, size)
        parts += [counted(count, name)] if count else []
    return " and ".join(parts) or "0 seconds"


def digest(value: object) -> bytes:
    """The digest of terms."""
    if not isinstance(value, str) or not re.fullmatch(r"[0-9a-fA-F]{64}", value.strip()):
        raise Wrong("64 hexadecimal digits, as `tacit experiment status` shows them")
    return bytes.fromhex(value)


def counted(count: int, name: str) -> str:
    """A count with its noun, in the plural where needed."""
    return f"{count} {name}{'' if count == 1 else 's'}"


def written(value: Any, read: Reader) -> str:
    """A value as text that TOML and YAML both parse."""
    match value:
        case bytes():
            return quoted(value.hex())
        case Fraction() if 10**6 % value.denominator == 0:
            return f"{Decimal(value.numerator) / value.denominator:f}"
        case Fraction():
            return quoted(str(value))
        case int() if read in (duration, lasting, twice):
            return quoted(in_words(value))
        case str():
            return quoted(value)
        case date():
            return value.isoformat()
        case tuple():
            return _listed(value)
    return str(value)


def _listed(values: Sequence[str]) -> str:
    return f"[{', '.join(map(quoted, values))}]"


def quoted(words: str) -> str:
    """A quoted string with unprintable characters escaped.

    >>> quoted('say "ö"')
    '"say \\\\"ö\\\\""'
    """
    plain = json.dumps(words, ensure_ascii=False)
    return "".join(sign if sign.isprintable() else _escaped(sign) for sign in plain)


def _escaped(sign: str) -> str:
    return f"\\u{ord(sign):04x}" if ord(sign) < 1 << 16 else f"\\U{ord(sign):08x}"
