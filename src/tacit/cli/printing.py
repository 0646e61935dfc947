"""How results are printed: a table for people, one JSON object for programs."""

from __future__ import annotations

import json
import math
from typing import Any


def show(record: dict[str, Any], title: str, as_json: bool) -> None:
    """A record, as JSON or as a two-column table."""
    if as_json:
        print_json(record)
        return
    table(
        title,
        None,
        [[key.replace("_", " "), value] for key, value in record.items() if value is not None],
    )


def print_json(record: dict[str, Any]) -> None:
    """One JSON object; numbers that JSON does not know become null."""
    print(json.dumps(_finite(record)))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


def table(title: str, headings: list[str] | None, rows: list[list[Any]]) -> None:
    """A table; columns of numbers to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 140)
    drawn = Table(show_header=headings is not None, box=box.SIMPLE)
    for index, heading in enumerate(headings or ["", ""]):
        numbers = headings is not None and all(
            isinstance(row[index], (int, float)) or row[index] is None for row in rows
        )
        drawn.add_column(heading, justify="right" if numbers else "left")
    for row in rows:
        drawn.add_row(*(_cell(value) for value in row))
    console.print(f"[bold]{title}[/bold]")
    console.print(drawn)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
