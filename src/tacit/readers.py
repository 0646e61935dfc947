"""Types of the entries of a definition and of a configuration, for pydantic models.

A reader takes a value from TOML, YAML or Python and returns a typed value, or raises `InvalidValue`
with the expected form. Numbers never pass through floating point. `to_text` returns text that TOML
and YAML both parse back to the same value. `problems` renders all errors of a model: field, value,
rule and remedy.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PlainValidator,
    ValidationError,
)
from pydantic_core import ErrorDetails

from tacit.errors import TacitError, did_you_mean
from tacit.terms import check_text

UNITS = {"week": 604_800, "day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
LONGEST = 10 * 366 * 86_400  # seconds of a duration, at most
LARGEST = 10**15  # maximum of numerators, denominators and counts
SHORT = 100  # maximum characters of a name
_SHORT_UNITS = {"s": "second", "sec": "second", "min": "minute", "h": "hour", "d": "day"}
_NUMBER = re.compile(r"([+-]?\d{1,15}(?:\.\d{1,15})?)(?:/(\d{1,15}))?(%?)")
_PART = re.compile(r"(\d{1,10}(?:\.\d{1,6})?)\s*([a-z]+)(?:\s*(?:,|and)?\s*|$)")


class InvalidValue(ValueError):  # noqa: N818 - a validation result, not an error
    """The expected form of an entry that could not be read."""


class RuleViolation(ValueError):  # noqa: N818 - a validation result, not an error
    """A violated rule between entries, as a whole sentence."""


def read_toml(path: Path, remedy: str) -> dict[str, Any]:
    """The content of a TOML file, in which numbers with a point are exact."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"), parse_float=Decimal)
    except OSError as problem:
        raise TacitError(f"{path} cannot be read ({problem.strerror}): {remedy}") from None
    except ValueError as problem:
        raise TacitError(f"{path} is not TOML ({problem}): correct it. Or {remedy}") from None


def checked(name: str, value: object, read: Callable[[Any], Any]) -> Any:
    """Read one value; raise `TacitError` with its name, the value and the expected form."""
    try:
        return read(value)
    except InvalidValue as wrong:
        raise TacitError(f"{name} is {shown(value)}: must be {wrong}") from None
    except RuleViolation as wrong:
        raise TacitError(str(wrong)) from None


def text(value: object) -> str:
    """A text; a number is taken as its digits."""
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise InvalidValue('text in quotes, such as "Hello"')
    return value.strip()


def words(most: int = SHORT, *, optional: bool = False) -> PlainValidator:
    """Text that participants can read, of at most this many characters."""

    def read(value: object) -> str:
        found = text(value)
        if optional and not found:
            return found
        if not visible(found):
            raise InvalidValue('text that can be seen, in quotes, such as "Hello"')
        if len(found) > most:
            raise InvalidValue(f"at most {most:,} characters long, not {len(found):,}")
        try:
            check_text("text", found)
        except TacitError:
            raise InvalidValue("text without control characters. Type it again") from None
        return found

    return PlainValidator(read)


def visible(text: str) -> str:
    """The visible form of a text; texts that look the same compare equal."""
    plain = unicodedata.normalize("NFC", text)
    return " ".join("".join(s for s in plain if unicodedata.category(s) != "Cf").split())


def listed(example: str) -> BeforeValidator:
    """A list, with an example for messages."""

    def read(value: object) -> object:
        if not isinstance(value, (list, tuple)):
            raise InvalidValue(f"a list such as {example}")
        return value

    return BeforeValidator(read)


def fraction(value: object) -> Fraction:
    """An exact number: 2, 0.1, "1/3" or "10%".

    >>> fraction("1/3"), fraction(Decimal("0.1")), fraction("5%")
    (Fraction(1, 3), Fraction(1, 10), Fraction(1, 20))
    """
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) <= 15:
        value = format(value, "f")
    if isinstance(value, (int, Fraction)) and not isinstance(value, bool):
        number = Fraction(value)
    else:
        found = _NUMBER.fullmatch(value.replace(" ", "")) if isinstance(value, str) else None
        if found is None or (found[2] and not int(found[2])):
            raise InvalidValue('a number such as 2, 0.1, "1/3" or "10%", with at most 15 digits')
        number = Fraction(found[1]) / int(found[2] or 1) / (100 if found[3] else 1)
    if max(abs(number.numerator), number.denominator) > LARGEST:
        raise InvalidValue("a simpler number, with at most 15 digits in lowest terms")
    return number


def whole(value: object) -> int:
    """A count; thousands separators are allowed.

    >>> whole("20,000"), whole(Decimal("1e6"))
    (20000, 1000000)
    """
    try:
        number = fraction(re.sub(r"[,_' ]", "", value) if isinstance(value, str) else value)
    except InvalidValue:
        number = Fraction(1, 2)
    if number.denominator != 1:
        raise InvalidValue("a whole number with at most 15 digits")
    return int(number)


def duration(value: object) -> int:
    """A duration in seconds; from Python also as a count of them.

    >>> duration("90 seconds"), duration("1 day and 12 hours"), duration("1.5 h")
    (90, 129600, 5400)
    """
    if type(value) is int:
        return value
    wanted = InvalidValue('a number and a unit, such as "90 seconds", "6 hours" or "1 day"')
    seconds, rest = Fraction(0), value.strip().lower() if isinstance(value, str) else ""
    while rest:
        found = _PART.match(rest)
        name = "" if found is None else _SHORT_UNITS.get(found[2], found[2].removesuffix("s"))
        if found is None or name not in UNITS:
            raise wanted
        seconds, rest = seconds + Fraction(found[1]) * UNITS[name], rest[found.end() :]
    if value == "" or not isinstance(value, str) or seconds.denominator != 1:
        raise wanted
    return int(seconds)


def duration_within(shortest: int = 0, longest: int = LONGEST) -> AfterValidator:
    """A duration within these limits."""

    def check(seconds: int) -> int:
        if seconds < shortest:
            raise InvalidValue(f'at least "{format_duration(shortest)}"')
        if seconds > longest:
            raise InvalidValue(f'at most "{format_duration(longest)}"')
        return seconds

    return AfterValidator(check)


def day(value: object) -> date:
    """A calendar day."""
    try:
        if isinstance(value, str):
            return date.fromisoformat(value.strip())
    except ValueError:
        pass
    if not isinstance(value, date) or isinstance(value, datetime):
        raise InvalidValue("a day such as 2026-12-31")
    return value


def address(value: object) -> str:
    """The URL of a party."""
    found = text(value).rstrip("/")
    wanted = InvalidValue('a URL such as "https://helper.example"')
    try:
        parts = urlsplit(found)
        rest = parts.query or parts.fragment or parts.username or parts.password
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        raise wanted from None
    if not known or rest or not found.isascii() or re.search(r"[\s<>\"\\]", found):
        raise wanted
    return found


def _hexadecimal(source: str) -> Callable[[object], bytes]:
    def read(value: object) -> bytes:
        digits = value.hex() if isinstance(value, bytes) else value
        if not isinstance(digits, str) or not re.fullmatch(r"[0-9a-fA-F]{64}", digits.strip()):
            raise InvalidValue(f"64 hexadecimal digits, as {source}")
        return bytes.fromhex(digits)

    return read


public_key = _hexadecimal("`tacit party new helper` prints them in card.toml")
digest = _hexadecimal("`tacit experiment status` shows them")

DURATION = PlainValidator(duration)
Texts = tuple[Annotated[str, words(200)], ...]
Number = Annotated[Fraction, PlainValidator(fraction)]
Positive = Annotated[Number, Field(gt=0)]
Part = Annotated[Number, Field(ge=0, lt=1)]
Count = Annotated[int, PlainValidator(whole), Field(ge=1)]
Duration = Annotated[int, DURATION]
Day = Annotated[date, PlainValidator(day)]
Address = Annotated[str, PlainValidator(address)]
PublicKey = Annotated[bytes, PlainValidator(public_key)]
OptionalKey = Annotated[
    bytes, PlainValidator(lambda value: value if value == b"" else public_key(value))
]
Digest = Annotated[bytes, PlainValidator(lambda value: value if value == b"" else digest(value))]


# Errors


def problems(
    error: ValidationError, model: type[BaseModel], labels: Mapping[str, str]
) -> Iterator[str]:
    """Every error of a model: field, value, rule and remedy.

    `labels` maps the places of fields in the file to their names in the model.
    """
    for one in error.errors(include_url=False):
        place = ".".join(part for part in one["loc"] if isinstance(part, str))
        reason = one.get("ctx", {}).get("error")
        field = model.model_fields.get(labels.get(place, ""))
        if one["type"] == "extra_forbidden":
            yield f"{place} is unknown; {_nearest(place, list(labels))}"
        elif one["type"] == "missing":
            about = " ".join((field.description or "").split()) if field else ""
            said = f": {about[0].lower()}{about[1:].rstrip('.')}" if about else ""
            yield f"{place} is missing; add it{said}"
        elif isinstance(reason, RuleViolation):
            yield str(reason)
        elif one["type"] != "default_factory_not_called":
            where = "".join(f"entry {part + 1} of " for part in one["loc"] if isinstance(part, int))
            rule = f"must be {reason}" if reason is not None else _rule(one)
            yield f"{where}{place} is {shown(one['input'])}: {rule}"


_TYPES = {
    "model_type": "a table",
    "tuple_type": 'a list such as ["a", "b"]',
    "string_type": "text in quotes",
    "int_type": "a whole number, without quotes",
    "int_parsing": "a whole number, without quotes",
    "int_from_float": "a whole number",
    "bool_type": "true or false, without quotes",
    "bool_parsing": "true or false, without quotes",
}


def _rule(error: ErrorDetails) -> str:
    """The violated rule of one of pydantic's own checks."""
    if error["type"] in _TYPES:
        return f"must be {_TYPES[error['type']]}"
    if error["type"] == "literal_error":
        allowed = error["ctx"]["expected"].replace("'", '"')
        near = did_you_mean(str(error["input"]), re.findall('"([^"]*)"', allowed))
        return f"must be {allowed}{near}"
    rule = re.sub(r"^\w+ should", "must", error["msg"])
    rule = rule.replace("greater than or equal to", "at least")
    rule = rule.replace("less than or equal to", "at most")
    return re.sub(r"Fraction\((\d+), (\d+)\)", lambda one: f"{int(one[1]) / int(one[2]):g}", rule)


def places(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Dotted paths of all entries of a model, including its tables."""
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}"
        for part in (field.annotation, *get_args(field.annotation)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from places(part, f"{prefix}{name}.")


def _nearest(path: str, known: Sequence[str]) -> str:
    """The known field or table that is closest to an unknown one, or those beside it."""
    section, _, name = path.rpartition(".")
    last = {one.rpartition(".")[2]: one for one in known}
    tables = {one.partition(".")[0]: f"[{one.partition('.')[0]}]" for one in known if "." in one}
    near = [
        *([last[name]] if name in last else []),
        *difflib.get_close_matches(path, known, n=1, cutoff=0.7),
        *(tables[one] for one in difflib.get_close_matches(path, tables, n=1) if not section),
        *(last[one] for one in difflib.get_close_matches(name, last, n=1)),
    ]
    if near:
        return f"did you mean {near[0]}?"
    beside = [one for one in known if one.rpartition(".")[0] == section and one not in tables]
    if section:
        return f"[{section}] has {', '.join(one.rpartition('.')[2] for one in beside)}"
    return f"known are {', '.join([*beside, *tables.values()])}"


def shown(value: object) -> str:
    """A value as it stands in a file, shortened.

    >>> shown(["Hello", True]), shown(Fraction(1, 10))
    ('["Hello", true]', '0.1')
    """
    words = _written(value)
    return words if len(words) <= 80 else f"{words[:77]}…"


def _written(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_written, value))}]"
    return to_text(value)


# Writing


def format_duration(seconds: int) -> str:
    """A duration in words, in one unit if that takes fewer than a hundred of it.

    >>> format_duration(90), format_duration(86_400), format_duration(88_200), format_duration(0)
    ('90 seconds', '1 day', '1 day and 30 minutes', '0 seconds')
    """
    small = {name: size for name, size in UNITS.items() if name != "week"}
    for name, size in small.items():
        if seconds >= size and seconds % size == 0 and seconds < 100 * size:
            return count_of(seconds // size, name)
    parts = []
    for name, size in small.items():
        count, seconds = divmod(seconds, size)
        parts += [count_of(count, name)] if count else []
    return " and ".join(parts) or "0 seconds"


def count_of(count: int, name: str) -> str:
    """A count with its noun, in the plural where needed."""
    return f"{count} {name}{'' if count == 1 else 's'}"


def to_text(value: Any) -> str:
    """A value as text that TOML and YAML both parse."""
    match value:
        case bool():
            return str(value).lower()
        case bytes():
            return quoted(value.hex())
        case Fraction() if 10**6 % value.denominator == 0:
            return f"{Decimal(value.numerator) / value.denominator:f}"
        case Fraction() | str():
            return quoted(str(value))
        case tuple():
            return f"[{', '.join(map(quoted, value))}]"
    return str(value)


def quoted(text: str) -> str:
    """A quoted string with unprintable characters escaped.

    >>> quoted('say "ö"')
    '"say \\\\"ö\\\\""'
    """
    plain = json.dumps(text, ensure_ascii=False)
    return "".join(sign if sign.isprintable() else _escaped(sign) for sign in plain)


def _escaped(sign: str) -> str:
    return f"\\u{ord(sign):04x}" if ord(sign) < 1 << 16 else f"\\U{ord(sign):08x}"
