"""Definition files: reading, parsing and writing a `Definition` in TOML or YAML.

`parse` reports all errors of a file at once. `write` is its inverse and adds a comment to every
entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tacit import readers
from tacit.errors import TacitError
from tacit.service import option_tables
from tacit.service.definition import ENTRIES, Definition, validated
from tacit.service.definition_defaults import ROUNDS
from tacit.service.definition_text import DefinitionError, document_of

LONGEST = 1 << 18  # characters of a file, with the table of its options


def load(path: Path | str) -> Definition:
    """Parse the definition in a file, with the table of options that it names."""
    values = dict(_entries(read_text(path)))
    named = values.get("options_file")
    if isinstance(named, str) and named and not values.get("options_table"):
        values["options_table"] = option_tables.load_text(Path(path).parent / named)
    return validated(values, by_name=False)


def whole_text(path: Path | str) -> str:
    """The text of a definition file; one that names a table of options is written out with it."""
    defined = load(path)
    return write(defined) if defined.options_file else read_text(path)


def read_text(path: Path | str) -> str:
    """Read the text of a definition file, without a byte order mark."""
    try:
        with Path(path).open(encoding="utf-8-sig") as file:
            return file.read(LONGEST + 1)
    except OSError as problem:
        raise TacitError(
            f"{path} cannot be read ({problem.strerror}): name a definition, or write one with "
            f"tacit experiment new {path}"
        ) from None
    except UnicodeDecodeError:
        raise TacitError(f"{path} is not text in UTF-8: save it in that encoding") from None


def parse(text: str) -> Definition:
    """Parse a definition in TOML or YAML.

    >>> parse('questoin = "Which?"')  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tacit.service.definition_text.DefinitionError: the definition has 10 errors: ...
    """
    return validated(dict(_entries(text)), by_name=False)


def _entries(text: str) -> Iterator[tuple[str, Any]]:
    """The entries of a definition's text by their places."""
    if len(text) > LONGEST:
        raise DefinitionError([f"the file has more than {LONGEST:,} characters: shorten it"])
    return _flat(document_of(text))


def write(definition: Definition | Mapping[str, Any], *, yaml: bool = False) -> str:
    """Write a definition as a file, with a comment for every entry.

    Fields that a mapping lacks are written as commented placeholders.
    """
    values = vars(definition) if isinstance(definition, Definition) else definition
    lines: list[str] = []
    section = ""
    for place, field in ENTRIES.items():
        before, _, name = place.rpartition(".")
        if before != section:
            section = before
            lines += ["", f"{section}:" if yaml else f"[{section}]"]
        indent = "  " if yaml and section else ""
        about = Definition.model_fields[field]
        value = values.get(field)
        if readers.DURATION in about.metadata and value is not None:
            value = readers.format_duration(value)
        lines += [f"{indent}# {line}" for line in str(about.description).splitlines()]
        given = value not in (None, "", b"")
        said = readers.to_text(value) if given else _EXAMPLES.get(field, '"…"')
        lines.append(f"{indent}{'' if given else '# '}{name}{':' if yaml else ' ='} {said}")
    return "\n".join(lines) + "\n"


_EXAMPLES = {
    "options_file": '"prices.csv"',
    "control_share": '"1/5"',
    "participants": "20000",
    "most": str(ROUNDS),
    "baseline": "0.1",
    "lift": "0.2",
    "per_day": "1000",
    "levels": "1",
    "labels": '["No", "Yes"]',
    "guardrail": '"complaints"',
    "context_fields": '["device: phone, desktop"]',
    "interactions": '["age: friendly"]',
    "statistic": '"table"',
    "evaluation": "0.1",
    "exploration": "0.2",
}


def _flat(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Entries by their places.

    A section that is no table counts as an ordinary entry; an empty section has no entries.
    """
    sections = {place.partition(".")[0] for place in ENTRIES if "." in place}
    for name, value in document.items():
        if name in sections and (isinstance(value, Mapping) or value == ""):
            yield from ((f"{name}.{inner}", entry) for inner, entry in dict(value).items())
        else:
            yield name, value
