"""Tables of runs: the methods that every result has, and conversion to pandas and Arrow.

pandas and pyarrow are optional; each is imported only when a table is converted to it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from tacit.errors import TacitError

Record = dict[str, Any]
ENCODED = b"encoding"  # metadata key of a column whose values are JSON text
LARGEST_INTEGER, LARGEST_EXACT = 1 << 63, 1 << 53  # exclusive, for int64 and float64
HEADS = ("algorithm", "guarantee", "regret", "± s.e.", "runs")


class Tabular(ABC):
    """Runs as a table, whether of one algorithm, of a comparison or of a sweep."""

    @abstractmethod
    def rows(self) -> Iterator[Record]:
        """Yield one row per run: configuration, seed and every column but the curves."""

    @abstractmethod
    def curves(self) -> Iterator[Record]:
        """Yield one row per run and checkpoint, with cumulative regret."""

    @abstractmethod
    def overview(self) -> list[tuple[str, ...]]:
        """One line per configuration: algorithm, guarantee, regret, standard error, runs."""

    @abstractmethod
    def _drawn(self) -> tuple[str, dict[str, Any]]:
        """The title of a plot, and the results whose curves it shows, by label."""

    def plot(
        self, path: Path | str | None = None, *, ax: Any = None, time_average: bool = True
    ) -> Any:
        """Plot regret against participants, a curve per configuration.

        Parameters
        ----------
        path : Path or str, optional
            File to write; its suffix selects the format.
        ax : matplotlib.axes.Axes, optional
            Axes to draw on, instead of a new figure.
        time_average : bool
            Plot regret per participant instead of cumulative regret.

        Returns
        -------
        matplotlib.figure.Figure, matplotlib.axes.Axes or Path
            The path or the axes if given, else the new figure.
        """
        from tacit.simulation.pictures import Panel, draw_panel, picture, save

        panel = Panel(*self._drawn())
        if ax is not None:
            draw_panel(ax, panel, time_average=time_average)
            return ax
        figure = picture([panel], time_average=time_average)
        return figure if path is None else save(figure, Path(path))

    def column(self, name: str) -> list[Any]:
        """The values of a column of `rows`; None where a row lacks it.

        Raises
        ------
        TacitError
            If no row has the column.
        """
        listed = list(self.rows())
        check_columns([name], listed)
        return [row.get(name) for row in listed]

    def to_pandas(self, *, curves: bool = False) -> Any:
        """The table as a pandas DataFrame, with one row per run.

        Parameters
        ----------
        curves : bool
            One row per run and checkpoint instead.

        Raises
        ------
        TacitError
            If pandas is not installed.
        """
        rows = list(self.curves() if curves else self.rows())
        return library("pandas", "pandas").DataFrame(rows)

    def to_arrow(self, *, curves: bool = False) -> Any:
        """The table as a pyarrow Table, with one row per run.

        Columns that have no common Arrow type hold JSON text.

        Parameters
        ----------
        curves : bool
            As for `to_pandas`.

        Raises
        ------
        TacitError
            If pyarrow is not installed.
        """
        return arrow_table(list(self.curves() if curves else self.rows()))

    def _repr_html_(self) -> str:
        lines = [(HEADS, "th"), *((line, "td") for line in self.overview())]
        body = "".join(
            "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in line) + "</tr>"
            for line, tag in lines
        )
        return f"<table>{body}</table>"


def check_columns(names: Iterable[str], rows: Sequence[Record]) -> None:
    """Reject names that are columns of no row."""
    known = dict.fromkeys(name for row in rows for name in row)
    for name in names:
        if name not in known:
            raise TacitError(f"column is {name!r}: must be one of {', '.join(known)}.")


def library(name: str, extra: str) -> Any:
    """Import an optional library; the error names the extra that installs it."""
    try:
        return import_module(name)
    except ImportError as error:
        needed = name.partition(".")[0]
        raise TacitError(
            f"{needed} is missing. Install it with pip install 'tacit[{extra}]'."
        ) from error


def parquet_library() -> Any:
    """pyarrow.parquet, if it is installed."""
    return library("pyarrow.parquet", "parquet")


def arrow_table(rows: Sequence[Record]) -> Any:
    """Rows as a pyarrow Table with a typed column for every name."""
    arrow = library("pyarrow", "parquet")
    names = dict.fromkeys(name for row in rows for name in row)
    fields, columns = [], []
    for name in names:
        kept, values = _column(arrow, name, [row.get(name) for row in rows])
        fields.append(kept)
        columns.append(arrow.array(values, type=kept.type))
    return arrow.Table.from_arrays(columns, schema=arrow.schema(fields))


def _column(arrow: Any, name: str, values: list[Any]) -> tuple[Any, list[Any]]:
    """The type of a column, from all its values, and the values in that type."""
    scalars = {bool: arrow.bool_(), int: arrow.int64(), float: arrow.float64(), str: arrow.string()}
    found = _type(values)
    if found is list:
        inner = [item for value in values for item in value or ()]
        if (kind := _type(inner)) in (int, float):
            return arrow.field(name, arrow.list_(scalars[kind])), values
    elif found in scalars:
        return arrow.field(name, scalars[found]), values
    texts = [None if value is None else json.dumps(value) for value in values]
    return arrow.field(name, arrow.string(), metadata={ENCODED: b"json"}), texts


def _type(values: Iterable[Any]) -> type | None:
    """The common type of values, None if none represents them exactly; float for an empty
    column.
    """
    known = [value for value in values if value is not None]
    found = {type(value) for value in known}
    kind = float if found <= {int, float} and found != {int} else None
    if len(found) == 1:
        kind = next(iter(found))
    most = LARGEST_INTEGER if kind is int else LARGEST_EXACT
    whole_numbers = (value for value in known if isinstance(value, int))
    return kind if all(abs(value) < most for value in whole_numbers) else None
