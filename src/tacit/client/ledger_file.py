"""SQLite file of the ledger: schema, format, durability and transactions.

Every change is on disk before the call returns. Several processes may share the file.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

from tacit.errors import Unavailable

FORMAT = 5
_WITHOUT_DELTA = 4  # the format before, which is upgraded
_APPLICATION = 0x7AC17001
_PATIENCE = 10  # seconds to wait for another process's lock
_PRAGMAS = ("journal_mode=DELETE", "synchronous=EXTRA", "secure_delete=ON", "trusted_schema=OFF")

_SCHEMA = """
CREATE TABLE own (name TEXT PRIMARY KEY, value TEXT);
CREATE TABLE lineages (
    id INTEGER PRIMARY KEY, epsilon TEXT NOT NULL, participations INTEGER NOT NULL,
    withdrawn INTEGER NOT NULL DEFAULT 0, option TEXT, until REAL NOT NULL DEFAULT 0,
    asked BLOB, nonce BLOB
);
CREATE TABLE keys (lineage INTEGER NOT NULL, key BLOB NOT NULL, PRIMARY KEY (lineage, key));
CREATE TABLE terms (
    digest BLOB PRIMARY KEY, lineage INTEGER NOT NULL, text BLOB, signatures BLOB, state TEXT,
    agreed INTEGER NOT NULL DEFAULT 0, checked REAL NOT NULL DEFAULT 0,
    approved INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE rounds (
    identity BLOB NOT NULL, report BLOB NOT NULL, lineage INTEGER NOT NULL, cost TEXT NOT NULL,
    charged INTEGER NOT NULL DEFAULT 0, outcome TEXT, terms BLOB, option TEXT, joined REAL,
    sends REAL, announcement BLOB, slot BLOB, seed BLOB, invitation TEXT, levels TEXT,
    delta TEXT NOT NULL DEFAULT '0', PRIMARY KEY (identity, report)
);
CREATE TABLE shares (
    identity BLOB NOT NULL, role INTEGER NOT NULL, address TEXT NOT NULL, size INTEGER NOT NULL,
    digest TEXT NOT NULL, encrypted BLOB, sent REAL, rejected TEXT, outcome BLOB,
    report_attempts INTEGER NOT NULL DEFAULT 0, report_last REAL NOT NULL DEFAULT 0,
    outcome_attempts INTEGER NOT NULL DEFAULT 0, outcome_last REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (identity, role)
);
"""


class LedgerError(Unavailable):
    """The ledger cannot be read or written; the device sends nothing until it can."""


class LedgerFile:
    """An open ledger file; `together` is a transaction."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._lock = threading.RLock()
        with self._guarded():
            if self.path != ":memory:":
                Path(self.path).touch(mode=0o600)
            self._db = sqlite3.connect(
                self.path, timeout=_PATIENCE, isolation_level=None, check_same_thread=False
            )
            self._db.row_factory = sqlite3.Row
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def _prepare(self) -> None:
        for pragma in _PRAGMAS:
            self._run(f"PRAGMA {pragma}")
        with self.together():
            found = [self._pragma(name) for name in ("application_id", "user_version")]
            if found == [0, 0] and not self._all("SELECT 1 FROM sqlite_schema"):
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    self._run(statement)
                self._run(f"PRAGMA application_id={_APPLICATION}")
                self._run(f"PRAGMA user_version={FORMAT}")
            elif found == [_APPLICATION, _WITHOUT_DELTA]:
                self._run("ALTER TABLE rounds ADD COLUMN delta TEXT NOT NULL DEFAULT '0'")
                self._run(f"PRAGMA user_version={FORMAT}")
            elif found != [_APPLICATION, FORMAT]:
                older = (
                    f"a ledger of format {found[1]}" if found[0] == _APPLICATION else "no ledger"
                )
                raise LedgerError(
                    f"{self.path} is {older}: must be a ledger of format {FORMAT}. Name the right "
                    "file, or use the version of tacit that wrote it until its experiments end"
                )
            elif self._pragma("quick_check(1)") != "ok":
                raise self._unusable("the file is damaged")

    def _pragma(self, name: str) -> object:
        return self._run(f"PRAGMA {name}").fetchone()[0]

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as problem:
            raise self._unusable(str(problem)) from None

    def _unusable(self, reason: str) -> LedgerError:
        return LedgerError(
            f"ledger {self.path} cannot be used ({reason}). Nothing was changed and nothing is "
            "sent: create its directory, free the disk, or restore a copy of the file that is not "
            "older than the last report"
        )

    @contextmanager
    def together(self) -> Iterator[None]:
        """Context manager that runs all calls inside it as one transaction.

        The transaction excludes all other threads and processes. It is on disk at the end, or
        rolled back on an exception. Send nothing inside it.
        """
        with self._lock, self._guarded():
            if self._db.in_transaction:  # of this thread: it holds the lock
                yield
                return
            self._run("BEGIN IMMEDIATE")
            try:
                yield
                self._run("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._run("ROLLBACK")
                raise

    def _run(self, query: str, *values: object) -> sqlite3.Cursor:
        return self._db.execute(query, values)

    def _write(self, query: str, *values: object) -> sqlite3.Cursor:
        """Run one statement as a transaction."""
        with self.together():
            return self._run(query, *values)

    def _all(self, query: str, *values: object) -> list[sqlite3.Row]:
        return self._run(query, *values).fetchall()

    def _single_row(self, query: str, *values: object) -> sqlite3.Row | None:
        found: sqlite3.Row | None = self._run(query, *values).fetchone()
        return found

    def _only(self, query: str, *values: object) -> sqlite3.Row:
        """The one row of a query; a missing one means that the file was altered."""
        found = self._single_row(query, *values)
        if found is None:
            raise self._unusable("a row is missing")
        return found

    def _fraction(self, text: object) -> Fraction:
        try:
            return Fraction(str(text))
        except (ValueError, ZeroDivisionError):
            raise self._unusable(f"{text!r} is not a fraction") from None

    def _cost(self, rows: Iterable[sqlite3.Row], of: str = "cost") -> Fraction:
        """The sum of ε over rounds, or of `delta`."""
        return sum((self._fraction(row[of]) for row in rows), Fraction(0))
