"""Output of results: a table, or one JSON object.

Nothing is truncated at any width: cells fold, and sentences are printed below their table.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
import textwrap
from collections.abc import Collection
from typing import Any

from tacit.rounding import down, up

INTERRUPTED = 130  # exit code
WIDEST = 100  # columns, if there is no terminal
LONGEST_CELL = 40  # characters of a value in a two-column table; longer ones are sentences
GAP = 3  # between columns
LARGE, LONGEST_NUMBER = 10_000, 1e15  # numbers between these are shown to whole ones


def show(
    record: dict[str, Any],
    title: str,
    as_json: bool,
    guarantees: Collection[str] = (),
    shown: Collection[str] = (),
) -> None:
    """Print a record as JSON or as a two-column table.

    In the table, numbers of guarantees (`guarantees`) are rounded up, and lower bounds (`shown`)
    down.
    """
    if as_json:
        print_json(record)
        return
    rounded = dict.fromkeys(guarantees, no_less) | dict.fromkeys(shown, no_more)
    known = {
        key.replace("_", " "): rounded[key](value) if key in rounded else value
        for key, value in record.items()
        if value is not None
    }
    long = {key: value for key, value in known.items() if is_long(value)}
    print_table(title, None, [[key, value] for key, value in known.items() if key not in long])
    for key, value in long.items():
        print_sentence(key, value)


def print_json(record: dict[str, Any]) -> None:
    """Print one JSON object; numbers that are not finite become null."""
    print(json.dumps(_finite(record)))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def width() -> int:
    """Number of columns: the terminal's or, without one, that of COLUMNS up to `WIDEST`."""
    columns = shutil.get_terminal_size((WIDEST, 24)).columns
    return columns if sys.stdout.isatty() else min(columns, WIDEST)


def is_long(value: Any) -> bool:
    """Whether a value belongs below a table instead of in it."""
    return isinstance(value, str) and len(value) > LONGEST_CELL


def harmless(text: str) -> str:
    """Replace control characters, so that foreign text cannot control the terminal.

    >>> harmless("fine\\x1b[2J")
    'fine\ufffd[2J'
    """
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", "\ufffd", text)


def print_sentence(label: str, text: str) -> None:
    """Print a labelled sentence, wrapped."""
    wrapped = textwrap.fill(
        harmless(f"{label}: {text}"),
        max(width(), 20),
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    print(wrapped)


def print_table(title: str, headings: list[str] | None, rows: list[list[Any]]) -> None:
    """Print a table with numbers right-aligned.

    Text folds between words, and within them only if nothing else fits.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=width(), highlight=False)
    heads = headings or ["", ""]
    cells = [[format_cell(value) for value in row] for row in rows]
    columns = [[row[index] for row in cells] for index in range(len(heads))]
    numeric = [
        all(isinstance(row[index], (int, float)) or row[index] is None for row in rows)
        for index in range(len(heads))
    ]
    stiff = [index == 0 or numeric[index] for index in range(len(heads))]
    most = [max(map(len, [head, *found])) for head, found in zip(heads, columns, strict=True)]
    least = [
        max(map(len, [*head.split(), *(found if stiff[index] else " ".join(found).split()), ""]))
        for index, (head, found) in enumerate(zip(heads, columns, strict=True))
    ]
    drawn = Table(show_header=headings is not None, box=box.SIMPLE, pad_edge=False, show_edge=False)
    room = console.width - GAP * (len(heads) - 1)
    for heading, size, right in zip(heads, column_widths(least, most, room), numeric, strict=True):
        side: Any = "right" if headings is not None and right else "left"
        drawn.add_column(Text(heading), justify=side, overflow="fold", width=size)
    for row in cells:
        drawn.add_row(*map(Text, row))
    console.print(Text(title, style="bold"))
    console.print(drawn)
    print()


def column_widths(least: list[int], most: list[int], room: int) -> list[int]:
    """Widths of columns: each gets its minimum, then the narrowest get the rest.

    If the minimums do not fit, the widest columns shrink.

    >>> column_widths([4, 4], [4, 30], 20), column_widths([12, 4], [12, 4], 10)
    ([4, 16], [6, 4])
    """
    widths = list(least)
    places = range(len(widths))
    while sum(widths) < room and widths != most:
        widths[min((i for i in places if widths[i] < most[i]), key=lambda i: widths[i])] += 1
    while sum(widths) > room and max(widths) > 1:
        widths[max(places, key=lambda i: widths[i])] -= 1
    return widths


def format_cell(value: Any) -> str:
    """Format a value for a table.

    >>> [format_cell(value) for value in (None, True, 1234567, 12345.6, 0.123456, 1e-6, math.inf)]
    ['–', 'yes', '1,234,567', '12,346', '0.1235', '1e-6', '∞']
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if isinstance(value, float):
        large = LARGE <= abs(value) < LONGEST_NUMBER
        return f"{value:,.0f}" if large else re.sub(r"e([+-])0*", _power, f"{value:.4g}")
    return f"{value:,}" if isinstance(value, int) else harmless(str(value))


def no_less(value: float) -> str:
    """Format a number of a guarantee, or the noise that it needs, rounded up.

    >>> no_less(1.00014), no_less(1e-5), no_less(12345.2), no_less(math.inf)
    ('1.001', '1e-5', '12,346', '∞')
    """
    if LARGE <= value < LONGEST_NUMBER:
        return f"{math.ceil(value * (1 - 1e-12)):,}"
    shown = re.sub(r"e([+-])0*", _power, up(value))
    return shown if math.isfinite(value) else format_cell(value)


def no_more(value: float) -> str:
    """Format a lower bound, rounded down.

    >>> no_more(0.99996), no_more(1.0)
    ('0.9999', '1')
    """
    return re.sub(r"e([+-])0*", _power, down(value))


def _power(match: re.Match[str]) -> str:
    return "e-" if match[1] == "-" else "e"


def count_of(name: str, done: int, requested: int) -> str:
    """Format a count, and the requested count if it differs.

    >>> count_of("run", 1, 1), count_of("run", 2, 3)
    ('1 run', '2 of 3 runs')
    """
    plural = "" if requested == 1 else "s"
    if done == requested:
        return f"{requested} {name}{plural}"
    return f"{done} of {requested} {name}{plural}"
