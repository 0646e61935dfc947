"""Tables of options with public features, which definitions name as CSV files.

The column `option` names the options. Every other column is a feature: numbers as they are, other
cells as categories, with one feature per category but the first. Mean answers are taken to be
linear in the features.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import TacitError
from tacit.readers import InvalidValue, shown, text

OPTION = "option"
LONGEST = 1 << 17  # characters of a table
MOST_OPTIONS = 2000
MOST_FEATURES = 40  # a phase tries up to about four options per feature side by side


@dataclass(frozen=True)
class OptionTable:
    """Options, and the names and values of their features, one row per option.

    Examples
    --------
    >>> table = read("option,price,colour\\nA,1,red\\nB,2.5,blue\\nC,4,red\\n")
    >>> table.options, table.names, table.rows
    (('A', 'B', 'C'), ('price', 'colour: blue'), ((1.0, 0.0), (2.5, 1.0), (4.0, 0.0)))
    """

    options: tuple[str, ...]
    names: tuple[str, ...]
    rows: tuple[tuple[float, ...], ...]


def read(table: str) -> OptionTable:
    """Parse the text of a table; raises `InvalidValue` for one that is none."""
    head, *lines = _cells(table)
    if OPTION not in head or len(head) < 2:
        raise InvalidValue(
            f'a table with the columns "{OPTION}" and one for each feature, not {shown(head)}'
        )
    for number, cells in enumerate(lines, 2):
        if len(cells) != len(head):
            raise InvalidValue(
                f"a table of {len(head)} columns: line {number} has {len(cells)} cells"
            )
        if "" in cells:
            raise InvalidValue(
                f"a table without empty cells: see line {number}, {head[cells.index('')]}"
            )
    if not 2 <= len(lines) <= MOST_OPTIONS:
        raise InvalidValue(f"a table of 2 to {MOST_OPTIONS:,} options, not {len(lines):,}")
    place = head.index(OPTION)
    features = [
        feature
        for column, name in enumerate(head)
        if column != place
        for feature in _features(name, [cells[column] for cells in lines])
    ]
    if len(features) > MOST_FEATURES:
        raise InvalidValue(
            f"a table of at most {MOST_FEATURES} features, one for each number and category, not "
            f"{len(features)}: leave out or group some"
        )
    names, columns = zip(*features, strict=True)
    rows = tuple(zip(*columns, strict=True))
    return OptionTable(tuple(cells[place] for cells in lines), names, rows)


def _cells(table: str) -> list[list[str]]:
    """The cells of all lines that are not empty, without surrounding space."""
    first = table.lstrip().partition("\n")[0]
    separator = ";" if first.count(";") > first.count(",") else ","
    try:
        rows = list(csv.reader(table.splitlines(), delimiter=separator, strict=True))
    except csv.Error as problem:
        raise InvalidValue(f"a table of comma-separated values ({problem})") from None
    found = [[cell.strip() for cell in row] for row in rows if any(map(str.strip, row))]
    return found or [[]]


def _features(name: str, cells: Sequence[str]) -> Iterator[tuple[str, tuple[float, ...]]]:
    """A column as one number per option, or one for each category but the first."""
    numbers = [_number(cell) for cell in cells]
    if all(map(math.isfinite, numbers)):
        yield name, tuple(numbers)
        return
    kinds = list(dict.fromkeys(cells))
    yield from (
        (f"{name}: {kind}", tuple(float(cell == kind) for cell in cells)) for kind in kinds[1:]
    )


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan


def table_text(value: object) -> str:
    """The text of a table as a definition holds it; empty for none."""
    found = text(value)
    if len(found) > LONGEST:
        raise InvalidValue(f"at most {LONGEST:,} characters long, not {len(found):,}")
    if found:
        read(found)
    return found


def load_text(path: Path) -> str:
    """The text of a table in a file."""
    try:
        return path.read_text(encoding="utf-8-sig")[: LONGEST + 1]
    except UnicodeDecodeError:
        raise TacitError(
            f"options_file is {str(path)!r}, which is not text in UTF-8: save it in that encoding"
        ) from None
    except OSError as problem:
        raise TacitError(
            f"options_file is {str(path)!r}, which cannot be read ({problem.strerror}): name a "
            f'CSV file with the columns "{OPTION}" and one for each feature'
        ) from None
