"""Environments from a user's own data: a table with one column per option, or a log.

Both come from a CSV file or from a frame (pandas, polars, or any mapping of names to columns). In a
table, each cell is one participant's reward and columns may have different lengths. A log has one
row per participation, with columns participant, option, reward and optionally propensity. Ambiguous
or invalid input is rejected with its line number; the module never imputes or drops values.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from tacit.environments.recorded import Recorded
from tacit.environments.replay import Replay, option_names
from tacit.errors import TacitError, did_you_mean
from tacit.types import Floats

ROLES = {
    "participant": ("participant", "participant_id", "person", "user", "user_id", "id"),
    "option": ("option", "arm", "action", "variant"),
    "reward": ("reward", "outcome", "response"),
    "propensity": ("propensity", "probability", "pscore"),
}
EXPECTED = "Give a CSV file with one column of rewards per option."
LOG_COLUMNS = ", ".join(f"{role} ({', '.join(names[1:])})" for role, names in ROLES.items())
TWO_OPTIONS = "must have two or more options"


@dataclass(frozen=True)
class Sheet:
    """Raw cells with column names; `places` says where each row is in the source."""

    source: str
    names: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    places: Sequence[str]

    def fault(self, row: int, value: str, remedy: str) -> TacitError:
        """An error that names the row."""
        return TacitError(f"{self.source} {self.places[row]}: {value}. {remedy}")

    def numbers(self, column: int, *, may_end: bool = False) -> Floats:
        """A column of finite numbers; with `may_end`, empty cells at its end are dropped."""
        name, cells = self.names[column], [row[column] for row in self.rows]
        while may_end and cells and empty(cells[-1]):
            cells.pop()
        if not cells:
            raise TacitError(
                f"{self.source} column {name!r} is empty: must have a number. Delete the column, "
                "or fill it in."
            )
        values = np.array([as_number(cell) for cell in cells])
        for row in np.flatnonzero(~np.isfinite(values))[:1].tolist():
            found = "empty" if empty(cells[row]) else shown(cells[row])
            comma = is_number(str(cells[row]).replace(",", ".")) and "," in str(cells[row])
            remedy = "Write decimals with a point." if comma else "Correct it, or delete the row."
            if may_end and row == 0 and not comma:  # a log under other names
                remedy = f"A log's columns are {LOG_COLUMNS}."
            raise self.fault(row, f"{name!r} is {found}: must be a number", remedy)
        return values

    def rewards(self, column: int, *, clip: bool, may_end: bool = False) -> tuple[Floats, int]:
        """A column of rewards in [0, 1], and how many of them were clipped."""
        values = self.numbers(column, may_end=may_end)
        outside = np.flatnonzero((values < 0) | (values > 1))
        if len(outside) and not clip:
            raise self.fault(
                int(outside[0]),
                f"{self.names[column]!r} is {values[outside[0]]:g}, and {len(outside)} of "
                f"{len(values)} are outside [0, 1]",
                "Rescale rewards, or clip them (clip).",
            )
        return np.clip(values, 0.0, 1.0), len(outside)

    def texts(self, column: int) -> list[str]:
        """A column of non-empty names."""
        cells = [row[column] for row in self.rows]
        for row, cell in enumerate(cells):
            if empty(cell):
                raise self.fault(row, f"{self.names[column]!r} is empty", "Fill it in.")
        return [str(cell).strip() for cell in cells]


def empty(cell: object) -> bool:
    """Whether a cell is blank text or a frame's missing value."""
    if isinstance(cell, str):
        return not cell.strip()
    return cell is None or str(cell) in ("nan", "<NA>", "NaT")


def as_number(cell: Any) -> float:
    """A cell as a number; NaN if it is none."""
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def is_number(text: str) -> bool:
    """Whether text is a number, including "nan" and "inf"."""
    return not math.isnan(as_number(text)) or text.strip("+-").lower() == "nan"


def shown(cell: object) -> str:
    """A cell as error messages show it, truncated."""
    text = repr(cell)
    return text if len(text) <= 40 else f"{text[:37]}..."


def read_table(
    path: Path | str, *, clip: bool = False, resample: bool = False
) -> Recorded | Replay:
    r"""An environment from a CSV file: a table of rewards or a log.

    Parameters
    ----------
    path
        A table with one column of rewards per option, with or without a header; or a log with the
        columns participant, option, reward and optionally propensity.
    clip
        Whether rewards outside [0, 1] are clipped and counted instead of rejected.
    resample
        Whether rows are sampled with replacement instead of used once each.

    Returns
    -------
    Recorded or Replay
        A `Replay` if `resample`, otherwise a `Recorded`.

    Raises
    ------
    TacitError
        If the file cannot be read unambiguously; the message names the line.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "rewards.csv"
    ...     _ = path.write_text("old,new\n0,1\n1,1\n0,\n")
    ...     world = read_table(path)
    >>> world.names, world.rows, world.horizon
    (('old', 'new'), 5, 2)
    """
    return environment_of(read_sheet(Path(path)), clip=clip, resample=resample)


def from_frame(frame: Any, *, clip: bool = False, resample: bool = False) -> Recorded | Replay:
    """An environment from a pandas or polars frame, or a mapping of names to columns.

    Parameters
    ----------
    frame
        A table or a log, as in `read_table`; missing values are empty cells.
    clip, resample
        As in `read_table`; errors name the row.

    Returns
    -------
    Recorded or Replay
        The environment, as `read_table` returns it.

    Raises
    ------
    TacitError
        If `frame` is no table or log of rewards.

    Examples
    --------
    >>> world = from_frame({"old": [0, 1, 0, 0], "new": [1, 1, 0]})
    >>> world.names, world.rows, world.horizon
    (('old', 'new'), 7, 3)
    >>> log = from_frame({"user": [1, 2, 1], "arm": ["a", "b", "b"], "reward": [1, 0, 1]})
    >>> log.names, log.remark.occurrences
    (('a', 'b'), 2)
    """
    keys = frame if isinstance(frame, Mapping) else getattr(frame, "columns", None)  # foreign type
    if keys is None:
        raise TacitError(
            f"frame is a {type(frame).__name__}: must be a pandas or polars frame, or a mapping of "
            "names to columns."
        )
    rows = list(zip_longest(*(list(frame[key]) for key in keys)))
    places = [f"row {number}" for number in range(1, len(rows) + 1)]
    sheet = Sheet("the frame", tuple(str(key).strip() for key in keys), rows, places)
    return environment_of(sheet, clip=clip, resample=resample)


def read_sheet(path: Path) -> Sheet:
    """The cells of a CSV file; every line must have as many as the first."""
    source, lines = read_lines(path)
    while lines and all(empty(cell) for cell in lines[-1][1]):
        lines.pop()
    if not lines:
        raise TacitError(f"{source} is empty. {EXPECTED}")
    first = [cell.strip() for cell in lines[0][1]]
    headed = has_names(source, first, (cell for _, row in lines[1:] for cell in row))
    names = tuple(first) if headed else option_names(len(first))
    lines = lines[headed:]
    sheet = Sheet(
        source, names, [row for _, row in lines], [f"line {number}" for number, _ in lines]
    )
    for row, cells in enumerate(sheet.rows):
        if len(cells) != len(names):
            raise sheet.fault(
                row,
                f"it has {len(cells)} cells, line 1 has {len(names)}",
                "Give every line as many, with empty cells where a column has ended.",
            )
    return sheet


def read_lines(path: Path) -> tuple[str, list[tuple[int, list[str]]]]:
    """The name of a CSV file for error messages, and its lines with their numbers.

    Commas separate columns, or semicolons or tabs if the first line has these alone.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TacitError(f"{path} cannot be read ({error.strerror}). {EXPECTED}") from error
    try:
        text = data.decode("utf-8-sig")
        wrong = data.find(b"\0")
    except UnicodeDecodeError as error:
        wrong = error.start
    if wrong >= 0:
        line = data[:wrong].count(b"\n") + 1
        raise TacitError(
            f"{path.name} line {line} has the byte {data[wrong]:#04x}, which is not UTF-8 text. "
            "Save the data as CSV in UTF-8."
        )
    lines = _split(path.name, text, ",")
    for separator, name in ((";", "semicolons"), ("\t", "tabs")):
        if lines and len(lines[0][1]) == 1 and separator in lines[0][1][0]:
            source = f"{path.name} (separated by {name})"
            return source, _split(source, text, separator)
    return path.name, lines


def _split(source: str, text: str, separator: str) -> list[tuple[int, list[str]]]:
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True
    )
    try:
        return [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise TacitError(
            f"{source} line {reader.line_num} is not CSV ({error}). Check its quotation marks."
        ) from error


def _columns(count: int) -> str:
    return f"{count} column{'' if count == 1 else 's'}"


def has_names(source: str, first: Sequence[str], rest: Iterable[str]) -> bool:
    """Whether the first line is a header; rejects lines that could be header or data: numbers
    above 1 in all cells, if none of the `rest` is above 1.
    """
    if len(first) < 2:
        raise TacitError(
            f"{source} line 1 has {_columns(len(first))}: {TWO_OPTIONS}, separated by commas, "
            "semicolons or tabs."
        )
    named = [cell for cell in first if cell and not is_number(cell)]
    numbers = [as_number(cell) for cell in first if cell and cell not in named]
    if named and numbers:
        raise TacitError(
            f"{source} line 1 mixes names and numbers ({shown(', '.join(first))}). Begin every "
            "name with a letter, or give numbers only."
        )
    count = len(first)
    counted = numbers in (list(range(1, count + 1)), list(range(count))) and max(numbers) > 1
    large = len(numbers) == count and min(numbers) > 1 and not any(as_number(c) > 1 for c in rest)
    if counted or large:
        raise TacitError(
            f"{source} line 1 numbers the columns ({shown(', '.join(first))}): must be names or "
            "rewards. Begin every name with a letter, or delete the line."
        )
    return bool(named)


def environment_of(sheet: Sheet, *, clip: bool, resample: bool) -> Recorded | Replay:
    """A sheet as a log, if it has a log's columns, otherwise as a table."""
    roles = find_roles(sheet)
    if not sheet.rows:
        raise TacitError(
            f"{sheet.source} has names but no rewards. Add a line for every participant."
        )
    is_log = "participant" in roles or len(roles) > 1
    world = log_of(sheet, roles, clip=clip) if is_log else table_of(sheet, clip=clip)
    return world.resampled() if resample else world


def find_roles(sheet: Sheet) -> dict[str, int]:
    """The columns of a log, found by their names."""
    roles: dict[str, int] = {}
    for column, name in enumerate(sheet.names):
        for role, words in ROLES.items():
            if name.lower().replace(" ", "_") in words:
                if role in roles:
                    raise TacitError(
                        f"{sheet.source} has two columns for the {role}, "
                        f"{sheet.names[roles[role]]!r} and {name!r}. Rename one of them."
                    )
                roles[role] = column
    return roles


def table_of(sheet: Sheet, *, clip: bool) -> Recorded:
    """An environment from one column per option."""
    if len(sheet.names) < 2:
        raise TacitError(
            f"{sheet.source} has {_columns(len(sheet.names))}: {TWO_OPTIONS}. Add one for each."
        )
    for column, name in enumerate(sheet.names):
        if not name or name in sheet.names[:column]:
            called = f"has the name {name!r} of another one" if name else "has no name"
            raise TacitError(
                f"{sheet.source} column {column + 1} {called}. Give it a name of its own, or "
                "delete it."
            )
    # columns that begin with text first: they tell a log under other names
    order = sorted(range(len(sheet.names)), key=lambda c: is_number(str(sheet.rows[0][c])))
    read = {c: sheet.rewards(c, clip=clip, may_end=True) for c in order}
    columns = tuple(read[c][0] for c in range(len(sheet.names)))
    return Recorded(columns, sheet.names, clipped=sum(clipped for _, clipped in read.values()))


def log_of(sheet: Sheet, roles: Mapping[str, int], *, clip: bool) -> Recorded:
    """An environment from one row per participation; options in order of first occurrence."""
    missing = [role for role in ("participant", "option", "reward") if role not in roles]
    if missing:
        found = ", ".join(repr(sheet.names[column]) for column in roles.values())
        needed = "; ".join(f"{role} ({', '.join(ROLES[role][1:])})" for role in missing)
        others = (name for c, name in enumerate(sheet.names) if c not in roles.values())
        near = [
            f"For {name!r}{hint[1:]}"
            for name in others
            if (
                hint := did_you_mean(name.lower(), [word for one in missing for word in ROLES[one]])
            )
        ]
        remedy = near[0] if near else "A table has one column per option and no other."
        raise TacitError(f"{sheet.source} has {found}: a log must also have {needed}. {remedy}")
    participants, options = Counter(sheet.texts(roles["participant"])), sheet.texts(roles["option"])
    rewards, clipped = sheet.rewards(roles["reward"], clip=clip)
    names = tuple(dict.fromkeys(options))
    if len(names) < 2:
        raise TacitError(
            f"{sheet.source} has only the option {names[0]!r}: {TWO_OPTIONS}. Add rows of another."
        )
    members = [np.array(options) == name for name in names]
    chances = log_propensities(sheet, roles)
    return Recorded(
        tuple(rewards[member] for member in members),
        names,
        None if chances is None else tuple(chances[member] for member in members),
        max(participants.values()),
        log=True,
        clipped=clipped,
    )


def log_propensities(sheet: Sheet, roles: Mapping[str, int]) -> Floats | None:
    """The probability with which each row's option was assigned, if the log has it."""
    if "propensity" not in roles:
        return None
    chances = sheet.numbers(roles["propensity"])
    wrong = np.flatnonzero((chances <= 0) | (chances > 1))
    if len(wrong):
        raise sheet.fault(
            int(wrong[0]),
            f"{sheet.names[roles['propensity']]!r} is {chances[wrong[0]]:g}: must be in (0, 1]",
            "Give the probability with which the option was assigned.",
        )
    return chances
