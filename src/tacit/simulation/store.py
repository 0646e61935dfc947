"""The directory of a sweep: its log, failures, and one results file sorted by cell.

The log holds finished cells while others are missing. The results file has a typed column for every
name, in Parquet if pyarrow is installed, else a JSON line per cell. It depends only on the study:
its bytes are the same in whatever order, and by however many processes, the cells were finished.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tacit.errors import TacitError, one_of
from tacit.simulation.files import atomic_file
from tacit.simulation.log import LogContent, Rows, RunLog, read_log
from tacit.simulation.table import ENCODED, Record, arrow_table, parquet_library

KINDS = ("parquet", "jsonl")
LOG, FAILURES, FORMER = "log.jsonl", "failures.jsonl", "study.json"
GROUP = 1 << 16  # rows of a row group in the results file


def chosen_kind(requested: str, directory: Path) -> str:
    """The format of the results file: that of an existing one, as requested, or by default Parquet
    if pyarrow is installed.
    """
    one_of("format", requested, ("auto", *KINDS))
    there = [kind for kind in KINDS if (directory / f"results.{kind}").exists()]
    if there and requested not in ("auto", *there):
        raise TacitError(
            f"format is {requested!r}, but {directory} has results.{there[0]}. Leave --format out, "
            "or choose another --out."
        )
    kind = requested if requested != "auto" else (there or [_preferred()])[0]
    if kind == "parquet":
        parquet_library()
    return kind


def _preferred() -> str:
    return "parquet" if find_spec("pyarrow") else "jsonl"


class StudyStore:
    """The directory of one study, with the log open; `rows` are those of finished cells."""

    def __init__(self, directory: Path, kind: str, cells: int, log: RunLog) -> None:
        self.failures = directory / FAILURES
        self.results = directory / f"results.{kind}"
        self.cells, self._kind, self._log = cells, kind, log
        self.unread = log.unread  # damaged lines of the log: their cells are run again
        self.rows = finished(self.results, log.rows, cells)

    def add(self, cell: int, row: str) -> None:
        """Log a finished cell."""
        self._log.add(cell, row)
        self.rows[cell] = row

    def finish(self, failures: Sequence[Mapping[str, Any]]) -> None:
        """Write the results file; keep the log as long as cells are missing, to resume from it."""
        ordered = [self.rows[cell] for cell in sorted(self.rows)]
        if failures:
            with atomic_file(self.failures) as partial:
                partial.write_text("".join(json.dumps(one) + "\n" for one in failures), "utf-8")
        else:
            self.failures.unlink(missing_ok=True)
        if ordered:
            with atomic_file(self.results) as partial:
                _write_results(partial, self._kind, ordered)
        if len(ordered) == self.cells:
            self._log.clear()


@contextmanager
def stored(directory: Path, head: Record, cells: int, kind: str = "auto") -> Iterator[StudyStore]:
    """Open and lock the directory of a study; the directory of another study is rejected."""
    _check_former(directory)
    chosen = chosen_kind(kind, directory)
    if (directory / f"results.{chosen}").exists() and read_log(directory / LOG, "cell") is None:
        raise TacitError(
            f"{directory} has results.{chosen} but no {LOG}, so its study is unknown. Choose "
            "another --out."
        )
    with RunLog(directory / LOG, head, "cell") as log:
        yield StudyStore(directory, chosen, cells, log)


def _check_former(directory: Path) -> None:
    if (directory / FORMER).exists():
        raise TacitError(
            f"{directory} has {FORMER}: sweeps of format 1 cannot be read or resumed. Sweep again "
            "with another --out."
        )


def read_directory(directory: Path, kind: str = "auto") -> LogContent | None:
    """The log of a study, with the rows of the results file if it is finished; None without one."""
    _check_former(directory)
    found = read_log(directory / LOG, "cell")
    if found is not None:
        about = found.head["study"]
        cells = len(about["configurations"]) * int(about["seeds"])
        results = directory / f"results.{chosen_kind(kind, directory)}"
        return replace(found, rows=finished(results, found.rows, cells))
    return None


def finished(results: Path, logged: Rows, cells: int) -> Rows:
    """The rows of finished cells: from the log or, if it has none, from the results file."""
    if not logged and results.exists():
        return {row["cell"]: json.dumps(row) for row in read_results(results)}
    return {cell: row for cell, row in logged.items() if 0 <= cell < cells}


def _write_results(path: Path, kind: str, rows: Sequence[str]) -> None:
    if kind == "jsonl":
        path.write_text("".join(f"{text}\n" for text in rows), "utf-8")
        return
    table = arrow_table([json.loads(text) for text in rows])
    parquet_library().write_table(table, path, compression="zstd", row_group_size=GROUP)


def read_results(path: Path) -> Iterator[Record]:
    """Yield the rows of a results file."""
    try:
        if path.suffix == ".jsonl":
            yield from (json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1])
            return
        table = parquet_library().read_table(path)
        coded = [one.name for one in table.schema if (one.metadata or {}).get(ENCODED)]
        for row in table.to_pylist():
            yield row | {k: None if row[k] is None else json.loads(row[k]) for k in coded}
    except TacitError:
        raise
    except Exception as error:  # libraries raise anything on a modified file
        raise TacitError(f"{path} cannot be read ({error}). Remove it and sweep again.") from error
