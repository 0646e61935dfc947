"""The rows of a sweep by columns, without a DataFrame library; convertible to pandas or polars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tacit.errors import TacitError
from tacit.simulation.results import data_frame


@dataclass(frozen=True)
class Frame:
    """The rows of a sweep: one per run, in the order of the grid; unknown values are None.

    Parameters
    ----------
    columns : mapping of str to list
        The columns, all of the same length.
    failures : tuple of mapping
        The failed runs, each with its seed and its error.

    Raises
    ------
    TacitError
        By `frame[name]`, if there is no such column.

    Examples
    --------
    >>> frame = Frame.of([{"seed": 0, "regret": 3.0}, {"seed": 1, "regret": 5.0}])
    >>> len(frame), frame["regret"], len(frame.where(seed=1))
    (2, [3.0, 5.0], 1)
    """

    columns: Mapping[str, list[Any]]
    failures: tuple[Mapping[str, Any], ...] = field(default=())

    @classmethod
    def of(
        cls, rows: Iterable[Mapping[str, Any]], failures: Iterable[Mapping[str, Any]] = ()
    ) -> Frame:
        """Build a frame from rows, which need not have the same columns."""
        listed = list(rows)
        names = dict.fromkeys(name for row in listed for name in row)
        return cls({name: [row.get(name) for row in listed] for name in names}, tuple(failures))

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), []))

    def __getitem__(self, name: str) -> list[Any]:
        if name not in self.columns:
            raise TacitError(f"there is no column {name!r}; there are {', '.join(self.columns)}")
        return self.columns[name]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one dict per run."""
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, values, strict=True))

    def where(self, choose: Callable[[dict[str, Any]], bool] | None = None, **equal: Any) -> Frame:
        """Select rows.

        Parameters
        ----------
        choose : callable, optional
            Predicate of a row as a dict.
        **equal
            Values that columns must have.

        Returns
        -------
        Frame
            The rows that satisfy all conditions; `failures` is unchanged.
        """
        for name in equal:
            self[name]  # raises if there is no such column
        kept = [
            row
            for row in self.rows()
            if all(row[name] == value for name, value in equal.items())
            and (choose is None or choose(row))
        ]
        return Frame({name: [row[name] for row in kept] for name in self.columns}, self.failures)

    def pandas(self) -> Any:
        """The rows as a pandas DataFrame, or a polars one without pandas; tacit depends on
        neither.
        """
        return data_frame(list(self.rows()))
