"""The log of runs, the same for simulate, compare and sweep: a header and one record per run.

A log is a file of JSON lines. Its header states the format, the versions and the study. Records are
appended as runs finish, so a process may be killed at any moment. An incomplete or damaged line is
ignored and its run is repeated. A log of another study, version or format is rejected.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import TacitError
from tacit.simulation.engines import versions
from tacit.simulation.files import unwritable
from tacit.simulation.table import Record

FORMAT = 2
START = b'{"format": '
SYNC = 1.0  # seconds between syncs to disk
MOST_TOLD = 3  # differences in an error message

Rows = dict[int, str]  # records as JSON text, by number


def header(name: str, study: Mapping[str, Any], command: str = "") -> Record:
    """The header of a log: `study` and the versions decide whether a log can be resumed."""
    about = json.loads(json.dumps(study, default=str))
    return {
        "format": FORMAT,
        "name": name,
        "command": command,
        "versions": versions(),
        "study": about,
    }


class RunLog:
    """An open log, locked against other processes, to which finished runs are added.

    Parameters
    ----------
    path : Path
        The file; it is created if missing.
    head : dict
        The header.
    key : str
        Column of a record that holds its number: `seed`, or `cell` of a sweep.
    resume : bool
        Keep the records that are there. Otherwise the first new record replaces an old log.

    Raises
    ------
    TacitError
        If the path is not writable, another process writes to it, or it holds another study.
    """

    def __init__(self, path: Path, head: Record, key: str, *, resume: bool = True) -> None:
        self.path, self._head = path, head
        self._start = self._length = 0  # bytes of the header, and up to the last complete record
        self.rows: Rows = {}
        self.unread = 0  # damaged lines
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
        except OSError as error:
            raise unwritable(path, error) from error
        try:
            self._lock()
            if resume and (found := read_log(path, key)) is not None:
                check_same(path, found.head, head)
                self.rows, self.unread = found.rows, found.unread
                self._start, self._length = found.start, found.length
        except BaseException:
            self._file.close()
            raise
        self._torn = True  # bytes after `_length` are removed before the first record
        self._synced = time.monotonic()

    def _lock(self) -> None:
        with suppress(ImportError):
            import fcntl

            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise TacitError(
                    f"another process writes to {self.path}: wait for it, or choose another --out"
                ) from None

    def add(self, number: int, text: str) -> None:
        """Append the record of a finished run."""
        try:
            if self._torn:
                self._file.truncate(self._length)
                self._torn = False
            if not self._start:
                self._start = self._length = self._file.write(_line(json.dumps(self._head)))
            self._length += self._file.write(_line(text))
            self._file.flush()
            if time.monotonic() - self._synced > SYNC:
                os.fsync(self._file.fileno())
                self._synced = time.monotonic()
        except OSError as error:
            raise unwritable(self.path, error) from error
        self.rows[number] = text

    def clear(self) -> None:
        """Remove all records from the file, but not the header."""
        self._file.truncate(self._start)
        self._length = self._start

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, *_: object) -> None:
        with self._file:
            os.fsync(self._file.fileno())


@dataclass(frozen=True)
class LogContent:
    """A log as read; `start` and `length` are the bytes of the header, and up to the last complete
    record.
    """

    head: Record
    rows: Rows
    unread: int  # damaged lines
    start: int
    length: int


def read_log(path: Path, key: str) -> LogContent | None:
    """Read a log; None if there is none, or its header is incomplete."""
    if not path.exists():
        return None
    with path.open("rb") as file:
        first = file.readline()
        if not first.endswith(b"\n") and START.startswith(first[: len(START)]):
            return None
        head = _parsed(first)
        if head.get("format") != FORMAT:
            raise TacitError(
                f"{path} is not a log of format {FORMAT}, the only one that this version reads. "
                "Choose another --out, or remove the file."
            )
        rows: Rows = {}
        unread, length, at = 0, len(first), len(first)
        for line in file:
            at += len(line)
            number = _parsed(line).get(key)
            if isinstance(number, int):
                rows[number], length = line.decode().removesuffix("\n"), at
            else:
                unread += 1
    return LogContent(head, rows, unread, len(first), length)


def _line(text: str) -> bytes:
    return f"{text}\n".encode()


def _parsed(line: bytes) -> Record:
    """The record of a complete line; empty if the line is incomplete or invalid."""
    try:
        record = json.loads(line)
    except ValueError:
        return {}
    return record if line.endswith(b"\n") and isinstance(record, dict) else {}


def check_same(path: Path, logged: Mapping[str, Any], requested: Mapping[str, Any]) -> None:
    """Reject a log of another study, or of other versions."""
    found = [
        *_differing(logged["versions"], requested["versions"]),
        *_differing(logged["study"], requested["study"]),
    ]
    if found:
        more = f" and {len(found) - MOST_TOLD} more" if len(found) > MOST_TOLD else ""
        raise TacitError(
            f"{path} holds runs of another study: {', '.join(found[:MOST_TOLD])}{more}. Choose "
            "another --out, or remove it."
        )


def _differing(there: Any, here: Any, path: str = "") -> Iterator[str]:
    """The places at which two JSON values differ.

    >>> list(_differing({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}], "c": None}))
    ['a[2].b (there 2, here 3)']
    """
    if isinstance(there, dict) and isinstance(here, dict):
        for name in {**there, **here}:
            inside = f"{path}.{name}" if path else name
            yield from _differing(there.get(name), here.get(name), inside)
    elif isinstance(there, list) and isinstance(here, list):
        if len(there) != len(here):
            yield f"number of {path} (there {len(there)}, here {len(here)})"
            return
        for number, (one, other) in enumerate(zip(there, here, strict=True), start=1):
            yield from _differing(one, other, f"{path}[{number}]")
    elif there != here:
        yield f"{path} (there {there!r}, here {here!r})"
