"""A study on disk: manifest, part files of finished cells, and one results file sorted by cell.

Files are written atomically, so a process may be killed at any moment: cells in a part are
finished, others are run again. Parts hold rows as computed: JSON text, in Parquet if pyarrow is
installed, else in lines. The results file has a typed column for every name. It is identical, byte
for byte, however the cells were divided among parts.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tacit.errors import TacitError
from tacit.simulation.log import unwritable
from tacit.simulation.results import whole

KINDS = ("parquet", "jsonl")
MANIFEST, PARTS, GONE, LOCK = "study.json", "parts", "parts.gone", "lock"
FAILURES = "failures.jsonl"
NAME = re.compile(r"part-(\d{6,})")
AS_JSON = {b"encoding": b"json"}  # metadata of a column whose values are JSON text
GROUP = 1 << 16  # rows of a row group in the results file
LARGEST_INTEGER, LARGEST_EXACT = 1 << 63, 1 << 53  # exclusive, for int64 and float64

Rows = dict[int, str]


def chosen_kind(asked: str) -> str:
    """The file format: as requested, or by default Parquet if pyarrow is installed."""
    if asked not in (*KINDS, "auto"):
        raise TacitError(f"format is {asked!r}; it must be one of auto, {', '.join(KINDS)}")
    if asked == "parquet":
        _pyarrow()
    if asked != "auto":
        return asked
    return "parquet" if find_spec("pyarrow") else "jsonl"


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise TacitError(
            "Parquet files need pyarrow: pip install 'tacit[parquet]', or use --format jsonl"
        ) from error
    return pyarrow, pyarrow.parquet


@dataclass
class StudyStore:
    """The directory of one study; `rows` are those of finished cells."""

    directory: Path
    kind: str
    cells: int
    rows: Rows = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)  # unreadable parts: their cells are run again
    _next: int = 0

    @property
    def results(self) -> Path:
        """Path of the results file."""
        return self.directory / f"results.{self.kind}"

    @property
    def failures(self) -> Path:
        """Path of the file of failed cells and their errors."""
        return self.directory / FAILURES

    def read(self) -> None:
        """Read the finished rows: from the parts or, without any, from the results file."""
        parts = self.directory / PARTS
        if not parts.is_dir():
            if self.results.exists():
                self.rows |= {row["cell"]: json.dumps(row) for row in read_results(self.results)}
            return
        for path in sorted(parts.iterdir()):
            found = NAME.fullmatch(path.stem)
            if found is None or path.suffix != f".{self.kind}":
                continue
            self._next = max(self._next, int(found[1]) + 1)
            rows = _read_part(path, self.kind)
            if rows is None or not all(0 <= cell < self.cells for cell in rows):
                self.unread.append(path.name)
                continue
            self.rows |= rows

    def add(self, rows: Rows) -> None:
        """Write one more part."""
        path = self.directory / PARTS / f"part-{self._next:06}.{self.kind}"
        with whole(path) as partial:
            _write_part(partial, self.kind, dict(sorted(rows.items())))
        self._next += 1
        self.rows |= rows

    def finish(self, failures: Sequence[Mapping[str, Any]]) -> None:
        """Write the results file; keep the parts as long as cells are missing, to resume
        from them.
        """
        ordered = [self.rows[cell] for cell in sorted(self.rows)]
        if failures:
            with whole(self.failures) as partial:
                partial.write_text("".join(json.dumps(one) + "\n" for one in failures), "utf-8")
        else:
            self.failures.unlink(missing_ok=True)
        if ordered:
            with whole(self.results) as partial:
                _write_results(partial, self.kind, ordered)
        if len(ordered) == self.cells and (self.directory / PARTS).is_dir():
            (self.directory / PARTS).rename(self.directory / GONE)
            shutil.rmtree(self.directory / GONE, ignore_errors=True)


@contextmanager
def stored(
    directory: Path, manifest: Mapping[str, Any], cells: int, kind: str = "auto"
) -> Iterator[StudyStore]:
    """Open and lock the directory of a study; the directory of another study is rejected."""
    found = chosen_kind(kind)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / LOCK).open("a")
    except OSError as error:
        raise unwritable(directory, error) from error
    with lock:
        _alone(lock, directory)
        known = read_manifest(directory)
        if known is None:
            foreign = [
                name
                for name in (PARTS, *(f"results.{k}" for k in KINDS))
                if (directory / name).exists()
            ]
            if foreign:
                raise TacitError(
                    f"{directory} has {foreign[0]} but no {MANIFEST}, so it is no study: choose "
                    "another --out"
                )
            known = {**manifest, "format": found}
            with whole(directory / MANIFEST) as partial:
                partial.write_text(json.dumps(known, indent=1) + "\n", "utf-8")
        check_same(directory, known, manifest, kind)
        shutil.rmtree(directory / GONE, ignore_errors=True)
        for left in (directory / PARTS).glob("*.partial"):
            left.unlink(missing_ok=True)
        store = StudyStore(directory, known["format"], cells)
        store.read()
        yield store


def _alone(lock: Any, directory: Path) -> None:
    """Lock the directory against a second sweep; the lock ends with the process."""
    with suppress(ImportError):
        import fcntl

        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise TacitError(
                f"{directory} is locked by another sweep: wait for it, or choose another --out"
            ) from None


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """The manifest of a directory; None without one."""
    path = directory / MANIFEST
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text("utf-8"))
        found["format"], found["versions"], found["study"]["configurations"]
    except (ValueError, KeyError, TypeError, OSError):
        raise TacitError(f"{path} is no manifest of a study: choose another directory") from None
    return dict(found)


def check_same(
    directory: Path, known: Mapping[str, Any], asked: Mapping[str, Any], kind: str
) -> None:
    """Reject a directory that holds another study, versions or file format."""
    if kind not in ("auto", known["format"]):
        raise TacitError(
            f"format is {kind}, but {directory} has files of format {known['format']}: leave "
            "--format out, or choose another --out"
        )
    if known["format"] == "parquet":
        _pyarrow()
    mine, theirs = (json.loads(json.dumps(one)) for one in (asked, known))
    differing = [
        *_differing(theirs["versions"], mine["versions"]),
        *_differing(*({**one["study"], "configurations": None} for one in (theirs, mine))),
        *_configurations(theirs["study"]["configurations"], mine["study"]["configurations"]),
    ]
    if differing:
        more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
        raise TacitError(
            f"{directory} holds another study, which differs in {', '.join(differing[:3])}{more}: "
            "choose another --out, or remove it"
        )


def _configurations(theirs: list[Any], mine: list[Any]) -> list[str]:
    if len(theirs) != len(mine):
        return [f"its configurations (there {len(theirs)}, here {len(mine)})"]
    return [
        f"{name} of configuration {number}"
        for number, (one, other) in enumerate(zip(theirs, mine, strict=True), start=1)
        for name in _differing(
            {**one, **one["options"], "options": None},
            {**other, **other["options"], "options": None},
        )
    ]


def _differing(there: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    return [
        f"{name} (there {there.get(name)!r}, here {here.get(name)!r})"
        for name in {**there, **here}
        if there.get(name) != here.get(name)
    ]


# Files


def _write_part(path: Path, kind: str, rows: Rows) -> None:
    if kind == "jsonl":
        path.write_text("".join(f"{text}\n" for text in rows.values()), "utf-8")
        return
    arrow, parquet = _pyarrow()
    table = arrow.table({"cell": list(rows), "row": list(rows.values())})
    parquet.write_table(table, path, compression="zstd")


def _read_part(path: Path, kind: str) -> Rows | None:
    """The rows of a part; None if it is incomplete."""
    try:
        if kind == "jsonl":
            text = path.read_text("utf-8")
            rows = {json.loads(line)["cell"]: line for line in text.split("\n")[:-1]}
            return rows if text.endswith("\n") else None
        _, parquet = _pyarrow()
        table = parquet.read_table(path)
        return dict(zip(table["cell"].to_pylist(), table["row"].to_pylist(), strict=True))
    except TacitError:
        raise
    except Exception:  # libraries raise anything on an incomplete file
        return None


def _write_results(path: Path, kind: str, rows: Sequence[str]) -> None:
    if kind == "jsonl":
        path.write_text("".join(f"{text}\n" for text in rows), "utf-8")
        return
    arrow, parquet = _pyarrow()
    parsed = [json.loads(text) for text in rows]
    names = dict.fromkeys(name for row in parsed for name in row)
    fields, columns = [], []
    for name in names:
        kept, values = _column(arrow, name, [row.get(name) for row in parsed])
        fields.append(kept)
        columns.append(arrow.array(values, type=kept.type))
    table = arrow.Table.from_arrays(columns, schema=arrow.schema(fields))
    parquet.write_table(table, path, compression="zstd", row_group_size=GROUP)


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
    return arrow.field(name, arrow.string(), metadata=AS_JSON), texts


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


def read_results(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a results file."""
    try:
        if path.suffix == ".jsonl":
            yield from (json.loads(line) for line in path.read_text("utf-8").split("\n")[:-1])
            return
        _, parquet = _pyarrow()
        table = parquet.read_table(path)
        coded = [one.name for one in table.schema if (one.metadata or {}).get(b"encoding")]
        for row in table.to_pylist():
            for name in coded:
                row[name] = None if row[name] is None else json.loads(row[name])
            yield row
    except TacitError:
        raise
    except Exception as error:  # libraries raise anything on a modified file
        raise TacitError(
            f"{path} cannot be read ({error}): remove it and run the sweep again"
        ) from error
