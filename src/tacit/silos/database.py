"""A silo's SQLite database: policies, decisions with their outcomes, and committed rows.

Every write is one transaction that is on disk before it returns. Nothing in here leaves the silo
but a row's noisy message. The digest of each message is also in the records (`tacit.records`),
which are in no backup: a database that was rolled back cannot draw a row's noise anew.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit.errors import TacitError, Unavailable
from tacit.types import Floats

FORMAT = 1
_SCHEMA = """
CREATE TABLE about (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE policies (step INTEGER PRIMARY KEY, content BLOB NOT NULL);
CREATE TABLE decisions (
    id TEXT PRIMARY KEY,
    step INTEGER NOT NULL,
    features BLOB NOT NULL,
    actions INTEGER NOT NULL,
    proposed INTEGER NOT NULL,
    taken INTEGER,
    reward REAL,
    known INTEGER,
    row INTEGER
) WITHOUT ROWID;
CREATE INDEX waiting ON decisions (known) WHERE row IS NULL AND known IS NOT NULL;
CREATE INDEX made ON decisions (step);
CREATE TABLE rows (
    step INTEGER PRIMARY KEY,
    vector BLOB NOT NULL,
    message BLOB,
    survivors BLOB
);
CREATE TABLE evaluations (
    number INTEGER PRIMARY KEY,
    question BLOB NOT NULL,
    message BLOB NOT NULL
);
"""


_DECISION = "id, step, features, actions, proposed, taken, reward, row"


@dataclass(frozen=True)
class StoredDecision:
    """A decision: the features of all actions, the proposed and the taken one, and the reward.

    `features` has one row per action. `taken` and `reward` are None until the outcome is known,
    `row` until the record has entered a synchronisation.
    """

    id: str
    step: int
    features: Floats
    proposed: int
    taken: int | None = None
    reward: float | None = None
    row: int | None = None


@dataclass(frozen=True)
class CommittedRow:
    """A silo's contribution to one row: its vector, and the noisy message if it made one.

    `survivors` is the set for which the silo has revealed, once it has signed one.
    """

    step: int
    vector: Floats
    message: bytes | None
    survivors: bytes | None = None


class SiloDatabase:
    """The database of one silo; `:memory:` is for simulations."""

    def __init__(self, path: str | Path, terms: bytes) -> None:
        self._lock = threading.RLock()
        try:
            if str(path) != ":memory:":
                Path(path).touch(mode=0o600)  # of its owner only; SQLite's other files follow it
            self._connection = sqlite3.connect(
                str(path), isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
        except (sqlite3.Error, OSError) as problem:
            raise TacitError(f"database is {path}: it cannot be opened ({problem})") from None
        with self.transaction():
            self._prepare(path, terms)

    def _prepare(self, path: str | Path, terms: bytes) -> None:
        tables = self._connection.execute("SELECT name FROM sqlite_master").fetchall()
        if not tables:
            for statement in _SCHEMA.split(";"):
                self._connection.execute(statement)
            self._connection.executemany(
                "INSERT INTO about VALUES (?, ?)", [("format", FORMAT), ("terms", terms)]
            )
        about = dict(self._connection.execute("SELECT name, value FROM about"))
        if about != {"format": FORMAT, "terms": terms}:
            raise TacitError(
                f"database is {path}, which belongs to other terms or another version: name "
                "another file for this federation"
            )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Atomic, durable transaction."""
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._commit()
            except sqlite3.Error as problem:
                self._roll_back()
                raise Unavailable(
                    f"the database is unavailable ({problem}); nothing was changed: retry later"
                ) from None
            except BaseException:
                self._roll_back()
                raise

    def _commit(self) -> None:
        self._connection.execute("COMMIT")

    def _roll_back(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def _all(self, statement: str, *values: Any) -> list[Any]:
        with self._lock:
            return self._connection.execute(statement, values).fetchall()

    # Policies

    def policy(self) -> tuple[int, bytes] | None:
        """The newest policy and its step; None before the first."""
        found = self._all("SELECT step, content FROM policies ORDER BY step DESC LIMIT 1")
        return found[0] if found else None

    def add_policy(self, step: int, content: bytes) -> None:
        """Store a new policy."""
        self._connection.execute("INSERT INTO policies VALUES (?, ?)", (step, content))

    # Decisions

    def made(self, step: int) -> int:
        """The number of decisions made under the policy of a step."""
        return int(self._all("SELECT COUNT(*) FROM decisions WHERE step = ?", step)[0][0])

    def add_decision(self, decision: StoredDecision) -> None:
        """Store a new decision."""
        features = np.ascontiguousarray(decision.features, dtype=np.float64)
        self._connection.execute(
            "INSERT INTO decisions (id, step, features, actions, proposed) VALUES (?, ?, ?, ?, ?)",
            (decision.id, decision.step, features.tobytes(), len(features), decision.proposed),
        )

    def decision(self, identity: str) -> StoredDecision | None:
        """A decision; None if there is none of this identity."""
        found = self._all(f"SELECT {_DECISION} FROM decisions WHERE id = ?", identity)
        return _decision(found[0]) if found else None

    def set_outcome(self, identity: str, taken: int, reward: float) -> None:
        """Store the action that was taken and its reward."""
        self._connection.execute(
            "UPDATE decisions SET taken = ?, reward = ?, known = "
            "(SELECT COALESCE(MAX(known), 0) + 1 FROM decisions) WHERE id = ? AND known IS NULL",
            (taken, reward, identity),
        )

    def waiting(self, limit: int) -> list[StoredDecision]:
        """The records that have entered no row, in the order in which outcomes became known."""
        found = self._all(
            f"SELECT {_DECISION} FROM decisions WHERE row IS NULL AND known IS NOT NULL "
            "ORDER BY known LIMIT ?",
            limit,
        )
        return [_decision(one) for one in found]

    def counts(self) -> dict[str, int]:
        """Decisions, known outcomes and records in rows; they stay inside the silo."""
        (found,) = self._all("SELECT COUNT(*), COUNT(known), COUNT(row) FROM decisions")
        return dict(zip(("decisions", "outcomes", "synchronised"), found, strict=True))

    # Rows

    def rows(self) -> list[CommittedRow]:
        """All committed rows, by step."""
        found = self._all("SELECT step, vector, message, survivors FROM rows ORDER BY step")
        return [CommittedRow(one[0], np.frombuffer(one[1]), one[2], one[3]) for one in found]

    def add_row(self, row: CommittedRow, records: list[str]) -> None:
        """Store a committed row, and mark these records as part of it."""
        self._connection.execute(
            "INSERT INTO rows (step, vector, message) VALUES (?, ?, ?)",
            (row.step, np.ascontiguousarray(row.vector).tobytes(), row.message),
        )
        self._connection.executemany(
            "UPDATE decisions SET row = ? WHERE id = ?", [(row.step, one) for one in records]
        )

    def set_survivors(self, step: int, survivors: bytes) -> bytes:
        """Store the set for which the silo reveals, unless one is stored; return the stored one."""
        with self.transaction():
            self._connection.execute(
                "UPDATE rows SET survivors = ? WHERE step = ? AND survivors IS NULL",
                (survivors, step),
            )
            ((found,),) = self._all("SELECT survivors FROM rows WHERE step = ?", step)
        return bytes(found)

    # Evaluations

    def evaluations(self) -> dict[int, tuple[bytes, bytes]]:
        """The request and the noisy message of every evaluation, by number.

        The message of one that was rejected is empty.
        """
        found = self._all("SELECT number, question, message FROM evaluations ORDER BY number")
        return {number: (question, message) for number, question, message in found}

    def add_evaluation(self, number: int, question: bytes, message: bytes) -> None:
        """Store an evaluation; with a message it is charged from now on."""
        self._connection.execute(
            "INSERT INTO evaluations VALUES (?, ?, ?) ON CONFLICT (number) DO UPDATE SET message = "
            "excluded.message WHERE length(message) = 0",
            (number, question, message),
        )


def _decision(row: tuple[Any, ...]) -> StoredDecision:
    identity, step, features, actions, *more = row
    return StoredDecision(identity, step, np.frombuffer(features).reshape(actions, -1), *more)
