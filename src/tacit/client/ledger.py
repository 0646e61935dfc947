"""Privacy budget of one participant and the reports that wait to be sent, in one SQLite file.

Terms and all their successors share one entry. Its limits are the smallest ε and the fewest
participations ever shown; every round counts as one participation, whatever it costs. The
participant's own limit covers all experiments; it is `OWN_LIMIT` unless another is set.

The ledger charges a round in the transaction that stores its encrypted report shares, so before
anything is sent. Every change is on disk before the call returns. Several processes may share the
file. Answers are stored as levels until they are encrypted; encrypted shares are stored until both
servers have them or the round is over.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

from tacit.aggregation import ReportSlot
from tacit.client.entries import (
    ExperimentSpending,
    Joining,
    Known,
    PartySpending,
    Post,
    Receipt,
    Running,
    Sent,
)
from tacit.client.exports import FORMAT as EXPORT_FORMAT
from tacit.client.exports import Exported, read_export
from tacit.client.report_schedule import Attempt
from tacit.errors import Refusal, TacitError, Unavailable
from tacit.signatures import SIGNATURE_SIZE
from tacit.terms import Account, Pinned, Terms

FORMAT = 2
OWN_LIMIT = Fraction(8)
"""Default limit of the sum of ε over all experiments of a ledger."""

_APPLICATION = 0x7AC17001
_PATIENCE = 10  # seconds to wait for another process's lock
_PRAGMAS = ("journal_mode=DELETE", "synchronous=EXTRA", "secure_delete=ON", "trusted_schema=OFF")
_REMEMBERED = 64  # cached terms; a participant knows few

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
    identity BLOB PRIMARY KEY, lineage INTEGER NOT NULL, cost TEXT NOT NULL,
    charged INTEGER NOT NULL DEFAULT 0, outcome TEXT, terms BLOB, option TEXT, joined REAL,
    sends REAL, announcement BLOB, place BLOB, seed BLOB, invitation TEXT, levels TEXT
);
CREATE TABLE posts (
    identity BLOB NOT NULL, role INTEGER NOT NULL, address TEXT NOT NULL, size INTEGER NOT NULL,
    digest TEXT NOT NULL, sealed BLOB, sent REAL, refused TEXT, outcome BLOB,
    report_attempts INTEGER NOT NULL DEFAULT 0, report_last REAL NOT NULL DEFAULT 0,
    outcome_attempts INTEGER NOT NULL DEFAULT 0, outcome_last REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (identity, role)
);
"""


class LedgerError(Unavailable):
    """The ledger cannot be read or written; the device sends nothing until it can."""


class Ledger:
    """Privacy budget ledger of one participant on one device.

    Parameters
    ----------
    path : str or path-like
        SQLite file, created if missing with mode 0600. `":memory:"` keeps no file, for tests and
        simulations.

    Raises
    ------
    LedgerError
        The file is not a ledger of this format, is damaged, or cannot be accessed.

    Notes
    -----
    By basic composition, the budget spent is the sum of ε over all charged rounds, computed exactly
    with fractions. A round is charged before its report is sent. It is refunded only if both
    servers signed that the round was aborted.

    Examples
    --------
    >>> ledger = Ledger(":memory:")
    >>> ledger.own_limit, ledger.spent
    (Fraction(8, 1), Fraction(0, 1))
    >>> ledger.set_own_limit(Fraction(2))
    >>> ledger.own_limit
    Fraction(2, 1)
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._lock = threading.RLock()
        with self._told():
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
        return f"Ledger({self.path!r})"

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    # The file

    def _prepare(self) -> None:
        for pragma in _PRAGMAS:
            self._db.execute(f"PRAGMA {pragma}")
        with self.together():
            found = [self._pragma(name) for name in ("application_id", "user_version")]
            if found == [0, 0] and not self._all("SELECT 1 FROM sqlite_schema"):
                for statement in filter(str.strip, _SCHEMA.split(";")):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA application_id={_APPLICATION}")
                self._db.execute(f"PRAGMA user_version={FORMAT}")
            elif found != [_APPLICATION, FORMAT]:
                raise LedgerError(
                    f"{self.path} is no ledger of format {FORMAT}: name the right file; nothing is "
                    "sent without it"
                )
            elif self._pragma("quick_check(1)") != "ok":
                raise LedgerError(self._unusable("it is damaged"))

    def _pragma(self, name: str) -> object:
        return self._db.execute(f"PRAGMA {name}").fetchone()[0]

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as problem:
            raise LedgerError(self._unusable(str(problem))) from None

    def _unusable(self, why: str) -> str:
        return (
            f"the ledger {self.path} cannot be used ({why}); nothing was changed and nothing is "
            "sent: free the disk, or put a copy of the file back that is not older than what was "
            "sent last"
        )

    @contextmanager
    def together(self) -> Iterator[None]:
        """Context manager that runs all calls inside it as one transaction.

        The transaction excludes all other threads and processes. It is on disk at the end, or
        rolled back on an exception. Send nothing inside it.
        """
        with self._lock, self._told():
            if self._db.in_transaction:  # of this thread: it holds the lock
                yield
                return
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def _all(self, query: str, *values: object) -> list[sqlite3.Row]:
        return self._db.execute(query, values).fetchall()

    def _one(self, query: str, *values: object) -> sqlite3.Row | None:
        found: sqlite3.Row | None = self._db.execute(query, values).fetchone()
        return found

    def _fraction(self, text: object) -> Fraction:
        try:
            return Fraction(str(text))
        except (ValueError, ZeroDivisionError):
            raise LedgerError(self._unusable(f"{text!r} is no fraction")) from None

    # Privacy budget

    @property
    def own_limit(self) -> Fraction | None:
        """The participant's own limit of ε over all experiments; None if it is switched off.

        It is `OWN_LIMIT` unless another limit was set.
        """
        with self.together():
            return self._own_limit()

    def set_own_limit(self, limit: Fraction | None) -> None:
        """Set the participant's own limit, also a larger one, or None to switch it off.

        `spent` does not change. Call it only where the participant decides so.
        """
        _check_limit(limit)
        with self.together():
            self._set_limit(limit)

    def lower_own_limit(self, limit: Fraction | None) -> None:
        """Lower the limit in force to that of an app, if it is smaller; None lowers nothing.

        The default `OWN_LIMIT` is in force, too. Only `set_own_limit` raises a limit or switches it
        off.
        """
        _check_limit(limit)
        with self.together():
            self._set_limit(_lesser(limit, self._own_limit()))

    def _set_limit(self, limit: Fraction | None) -> None:
        text = None if limit is None else str(limit)
        self._db.execute("INSERT OR REPLACE INTO own VALUES ('limit', ?)", (text,))

    @property
    def spent(self) -> Fraction:
        """Sum of ε over all charged rounds of all experiments."""
        with self.together():
            rows = self._all("SELECT cost FROM rounds WHERE charged")
            return sum((self._fraction(row["cost"]) for row in rows), Fraction(0))

    def _own_limit(self) -> Fraction | None:
        row = self._one("SELECT value FROM own WHERE name = 'limit'")
        if row is None:
            return OWN_LIMIT
        return None if row["value"] is None else self._fraction(row["value"])

    def _limits(self, lineage: int) -> tuple[Fraction, int]:
        """The smallest ε and the fewest participations shown under an entry."""
        row = self._one("SELECT epsilon, participations FROM lineages WHERE id = ?", lineage)
        assert row is not None
        return self._read_limits(row)

    def _read_limits(self, row: sqlite3.Row) -> tuple[Fraction, int]:
        return self._fraction(row["epsilon"]), int(row["participations"])

    def _check_room(self, lineage: int, cost: Fraction, besides: bytes = b"") -> None:
        """Reject a round whose cost exceeds a limit, given all charged and pending rounds."""
        rows = self._all(
            "SELECT lineage, cost FROM rounds WHERE (charged OR outcome IS NULL) AND identity != ?",
            besides,
        )
        taken = [(row["lineage"], self._fraction(row["cost"])) for row in rows]
        here = [other for entry, other in taken if entry == lineage]
        Account(*self._limits(lineage), sum(here, Fraction(0)), len(here)).charged(cost)
        own, everywhere = self._own_limit(), sum((other for _, other in taken), Fraction(0))
        if own is not None and everywhere + cost > own:
            raise Refusal(
                f"own limit: this round costs {cost}, and of your own limit {own} over all "
                f"experiments {everywhere} are taken, so nothing is sent"
            )

    def check_room(self, digest: bytes, cost: Fraction) -> None:
        """Reject a round whose cost exceeds the terms' limits or the participant's own limit."""
        with self.together():
            self._check_room(self._lineage(digest), cost)

    # Terms

    def remember(self, pinned: Pinned, state: str, now: float, *, approved: bool = False) -> None:
        """Store terms that are about to be shown, and decrease the limits to theirs if smaller.

        `approved`: the parties of the preceding terms signed that these succeed them.
        """
        terms = pinned.terms
        with self.together():
            names, promise = {terms.digest, terms.predecessor or terms.digest}, terms.promise
            lineage = self._united(sorted(names), promise.epsilon, promise.participations)
            self._know_keys(lineage, terms.keys)
            self._db.execute(
                "UPDATE terms SET text = ?, signatures = ?, state = ?, checked = ?, "
                "approved = max(approved, ?) WHERE digest = ?",
                (terms.encode(), b"".join(pinned.signatures), state, now, approved, terms.digest),
            )

    def _know_keys(self, lineage: int, keys: Iterable[bytes]) -> None:
        """Store the keys by which experiments of the same party are grouped."""
        rows = [(lineage, key) for key in keys]
        self._db.executemany("INSERT OR IGNORE INTO keys VALUES (?, ?)", rows)

    def _united(self, digests: Sequence[bytes], epsilon: Fraction, participations: int) -> int:
        """Merge the entries of related terms into one, with the smallest limits of all.

        Terms have several entries if their relation was unknown when they were stored.
        """
        marks = ", ".join("?" * len(digests))
        rows = self._all(
            f"SELECT DISTINCT lineage FROM terms WHERE digest IN ({marks}) ORDER BY 1", *digests
        )
        lineage, *others = [int(row["lineage"]) for row in rows] or [
            self._new_entry(epsilon, participations)
        ]
        limits = [(epsilon, participations), *map(self._limits, (lineage, *others))]
        epsilons, times = zip(*limits, strict=True)
        self._db.execute(
            "UPDATE lineages SET epsilon = ?, participations = ? WHERE id = ?",
            (str(min(epsilons)), min(times), lineage),
        )
        for other in others:
            self._absorb(lineage, other)
        for digest in digests:
            self._db.execute(
                "INSERT OR IGNORE INTO terms (digest, lineage) VALUES (?, ?)", (digest, lineage)
            )
        return lineage

    def _absorb(self, lineage: int, other: int) -> None:
        for table in ("terms", "rounds"):
            self._db.execute(f"UPDATE {table} SET lineage = ? WHERE lineage = ?", (lineage, other))
        self._know_keys(lineage, self._keys(other))
        self._db.execute("DELETE FROM keys WHERE lineage = ?", (other,))
        self._db.execute(
            "UPDATE lineages SET withdrawn = max(withdrawn, "
            "(SELECT withdrawn FROM lineages WHERE id = ?)) WHERE id = ?",
            (other, lineage),
        )
        self._db.execute("DELETE FROM lineages WHERE id = ?", (other,))

    def _keys(self, lineage: int) -> list[bytes]:
        rows = self._all("SELECT key FROM keys WHERE lineage = ? ORDER BY key", lineage)
        return [bytes(row["key"]) for row in rows]

    def _new_entry(self, epsilon: Fraction, participations: int) -> int:
        made = self._db.execute(
            "INSERT INTO lineages (epsilon, participations) VALUES (?, ?)",
            (str(epsilon), participations),
        )
        assert made.lastrowid is not None
        return made.lastrowid

    def agree(self, digest: bytes) -> None:
        """Record agreement to these terms; this also revokes a withdrawal."""
        with self.together():
            lineage = self._lineage(digest)
            self._db.execute("UPDATE terms SET agreed = 1 WHERE digest = ?", (digest,))
            self._db.execute("UPDATE lineages SET withdrawn = 0 WHERE id = ?", (lineage,))

    def known(self, digest: bytes) -> Known | None:
        """The last successor of these terms, with the participant's budget and assignment.

        None if this device does not know the terms.
        """
        with self.together():
            line = self._all(
                "SELECT * FROM terms WHERE text IS NOT NULL AND lineage = "
                "(SELECT lineage FROM terms WHERE digest = ?)",
                digest,
            )
            start = next((row for row in line if row["digest"] == digest), None)
            if start is None:
                return None
            lineage, last = start["lineage"], _last(start, line)
            entry = self._one("SELECT * FROM lineages WHERE id = ?", lineage)
            assert entry is not None
            rounds = self._all(
                "SELECT identity, cost, charged, outcome, sends FROM rounds WHERE lineage = ?",
                lineage,
            )
            pinned = self._pinned(last)
            charged = [row for row in rounds if row["charged"]]
            joined = [row for row in rounds if not row["charged"] and row["outcome"] is None]
            spent, pending = (
                sum((self._fraction(row["cost"]) for row in rows), Fraction(0))
                for rows in (charged, joined)
            )
            asked = [row["sends"] for row in rounds if row["identity"] == entry["asked"]]
            return Known(
                pinned=pinned,
                state=last["state"],
                agreed=_agreed(line, pinned.terms),
                checked=last["checked"],
                account=Account(*self._read_limits(entry), spent, len(charged)),
                pending=pending,
                refused=sum(_in_vain(row) for row in rounds),
                withdrawn=bool(entry["withdrawn"]),
                option=entry["option"],
                until=entry["until"],
                reports_at=asked[0] if asked else None,
                named=decoded(start["text"]),
            )

    def _pinned(self, row: sqlite3.Row) -> Pinned:
        """Terms from the file, with their signatures verified again: the file cannot forge
        terms.
        """
        try:
            return _pinned(row["text"], row["signatures"])
        except Refusal as problem:
            raise LedgerError(self._unusable(str(problem))) from None

    def _lineage(self, digest: bytes) -> int:
        row = self._one("SELECT lineage FROM terms WHERE digest = ?", digest)
        if row is None:
            raise TacitError(f"the terms {digest.hex()} were not shown on this device: join first")
        return int(row["lineage"])

    # Slots

    def nonce(self, digest: bytes, fresh: bytes) -> bytes:
        """The nonce of the slot request: stored on first use, then reused until a reply arrives."""
        with self.together():
            lineage = self._lineage(digest)
            self._db.execute(
                "UPDATE lineages SET nonce = ? WHERE id = ? AND nonce IS NULL", (fresh, lineage)
            )
            row = self._one("SELECT nonce FROM lineages WHERE id = ?", lineage)
            assert row is not None
            return bytes(row["nonce"])

    def forget_nonce(self, digest: bytes) -> None:
        """Discard the nonce after a reply that assigned no slot."""
        with self.together():
            self._db.execute(
                "UPDATE lineages SET nonce = NULL WHERE id = ?", (self._lineage(digest),)
            )

    def keep_option(self, digest: bytes, option: str, now: float, until: float) -> None:
        """Store an option assigned without a report, and how long it is valid.

        An assignment that another process stored meanwhile takes precedence.
        """
        with self.together():
            lineage = self._lineage(digest)
            if not self._all("SELECT 1 FROM lineages WHERE id = ? AND until > ?", lineage, now):
                self._keep_option(lineage, option, until)

    def _keep_option(
        self, lineage: int, option: str, until: float, asked: bytes | None = None
    ) -> None:
        self._db.execute(
            "UPDATE lineages SET option = ?, until = ?, asked = ?, nonce = NULL WHERE id = ?",
            (option, until, asked, lineage),
        )

    def check_round(
        self, digest: bytes, identity: bytes, place: ReportSlot, cost: Fraction, now: float
    ) -> None:
        """Reject a round that `join` would reject."""
        with self.together():
            self._joined(self._lineage(digest), identity, place, cost, now)

    def _joined(
        self, lineage: int, identity: bytes, place: ReportSlot, cost: Fraction, now: float
    ) -> bool:
        """Whether this slot or another valid assignment is stored; reject an inadmissible new
        slot.
        """
        entry = self._one("SELECT withdrawn, until FROM lineages WHERE id = ?", lineage)
        assert entry is not None
        if entry["withdrawn"]:
            raise Refusal("this person has left the experiment: the place is not taken")
        row = self._one("SELECT place FROM rounds WHERE identity = ?", identity)
        if entry["until"] > now or (row is not None and row["place"] == place.encode()):
            return True
        if row is not None:
            raise Refusal("this device was in this round before: it takes part once in a round")
        self._check_room(lineage, cost)
        return False

    def join(self, new: Joining) -> None:
        """Store a slot; reject it if its cost exceeds a limit or the round was joined before."""
        with self.together():
            lineage = self._lineage(new.terms)
            if self._joined(lineage, new.identity, new.place, new.cost, new.joined):
                return
            self._db.execute(
                "INSERT INTO rounds VALUES (?, ?, ?, 0, NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    new.identity,
                    lineage,
                    str(new.cost),
                    new.terms,
                    new.option,
                    new.joined,
                    new.sends,
                    new.announcement,
                    new.place.encode(),
                    new.seed,
                    new.invitation,
                    json.dumps(new.levels),
                ),
            )
            self._keep_option(lineage, new.option, new.until, new.identity)

    def record(self, digest: bytes, levels: Mapping[int, int]) -> bool:
        """Replace recorded levels by these; False if no report waits to be encrypted."""
        with self.together():
            row = self._waiting(self._lineage(digest))
            if row is None:
                return False
            merged = json.loads(row["levels"])
            for place, level in levels.items():
                merged[place] = level
            self._db.execute(
                "UPDATE rounds SET levels = ? WHERE identity = ?",
                (json.dumps(merged), row["identity"]),
            )
            return True

    def _waiting(self, lineage: int) -> sqlite3.Row | None:
        return self._one(
            "SELECT * FROM rounds WHERE lineage = ? AND outcome IS NULL AND levels IS NOT NULL "
            "ORDER BY joined DESC",
            lineage,
        )

    # Encrypting and sending

    def running(self) -> list[Running]:
        """All participations that are not over, ordered by their sending time."""
        with self.together():
            rows = self._all("SELECT * FROM rounds WHERE outcome IS NULL ORDER BY sends, identity")
            return [self._running(row) for row in rows]

    def _running(self, row: sqlite3.Row) -> Running:
        terms = self._one("SELECT * FROM terms WHERE digest = ?", row["terms"])
        assert terms is not None
        return Running(
            identity=row["identity"],
            pinned=self._pinned(terms),
            announcement=row["announcement"],
            place=ReportSlot.decode(row["place"]),
            seed=row["seed"],
            joined=row["joined"],
            invitation=row["invitation"],
            levels=None if row["levels"] is None else tuple(json.loads(row["levels"])),
            posts=self._posts(row["identity"]),
        )

    def _posts(self, identity: bytes) -> tuple[Post, ...]:
        rows = self._all("SELECT * FROM posts WHERE identity = ? ORDER BY role", identity)
        names = ("role", "address", "size", "digest", "sealed", "sent", "refused", "outcome")
        return tuple(
            Post(
                **{name: row[name] for name in names},
                attempts={
                    what: (row[f"{what.value}_attempts"], row[f"{what.value}_last"])
                    for what in Attempt
                },
            )
            for row in rows
        )

    def posts(self, identity: bytes) -> tuple[Post, ...]:
        """Report shares of a participation; empty if it is over or not yet encrypted."""
        with self.together():
            row = self._one("SELECT 1 FROM rounds WHERE identity = ? AND outcome IS NULL", identity)
            return () if row is None else self._posts(identity)

    def charge(
        self,
        identity: bytes,
        make: Callable[[Running], Sequence[bytes]],
    ) -> None:
        """Charge the round, store the report shares encrypted by `make`, and delete the levels.

        All of it happens in one transaction. The call does nothing if the report is encrypted
        already.
        """
        with self.together():
            row = self._one("SELECT * FROM rounds WHERE identity = ?", identity)
            if row is None or row["outcome"] is not None or row["levels"] is None:
                return
            self._check_room(row["lineage"], self._fraction(row["cost"]), besides=identity)
            running = self._running(row)
            for role, half in enumerate(make(running)):
                address = running.pinned.terms.parties[role].address
                digest = hashlib.sha256(half).hexdigest()
                self._db.execute(
                    "INSERT INTO posts (identity, role, address, size, digest, sealed) "
                    "VALUES (?, ?, ?, ?, ?, ?)",
                    (identity, role, address, len(half), digest, half),
                )
            self._db.execute(
                "UPDATE rounds SET charged = 1, levels = NULL WHERE identity = ?", (identity,)
            )

    def claim(self, identity: bytes, post: Post, what: Attempt, now: float) -> bool:
        """Claim the next attempt for this process; False if another process was faster."""
        with self.together():
            done = self._db.execute(
                f"UPDATE posts SET {what.value}_attempts = {what.value}_attempts + 1, "
                f"{what.value}_last = ? WHERE identity = ? AND role = ? "
                f"AND {what.value}_attempts = ?",
                (now, identity, post.role, post.attempts[what][0]),
            )
            return done.rowcount == 1

    def taken(self, identity: bytes, role: int, now: float) -> None:
        """The server accepted its report share: delete the bytes."""
        self._post(identity, role, "sealed = NULL, sent = ?", now)

    def turned_down(self, identity: bytes, role: int, why: str) -> None:
        """The server rejected its report share permanently: delete the bytes."""
        self._post(identity, role, "sealed = NULL, refused = ?", why)

    def told(self, identity: bytes, role: int, outcome: bytes) -> None:
        """Store a server's signed statement of the round's outcome."""
        self._post(identity, role, "outcome = ?", outcome)

    def _post(self, identity: bytes, role: int, change: str, value: object) -> None:
        with self.together():
            self._db.execute(
                f"UPDATE posts SET {change} WHERE identity = ? AND role = ?",
                (value, identity, role),
            )

    def expire(self, identity: bytes) -> None:
        """The deadline has passed: delete the encrypted shares that no server accepted."""
        with self.together():
            self._db.execute("UPDATE posts SET sealed = NULL WHERE identity = ?", (identity,))

    def end(self, identity: bytes, outcome: str, *, refund: bool = False) -> None:
        """End a participation; with `refund`, its cost is no longer charged.

        A refund requires that both servers signed that the round was aborted.
        """
        with self.together():
            self._end("identity = ?", identity, outcome)
            if refund:
                self._db.execute("UPDATE rounds SET charged = 0 WHERE identity = ?", (identity,))

    def _end(self, where: str, value: object, outcome: str) -> None:
        """End participations and delete everything but the account and the receipt."""
        chosen = f"SELECT identity FROM rounds WHERE {where} AND outcome IS NULL"
        self._db.execute(
            f"UPDATE posts SET sealed = NULL, outcome = NULL WHERE identity IN ({chosen})", (value,)
        )
        self._db.execute(
            "UPDATE rounds SET outcome = ?, announcement = NULL, place = NULL, seed = NULL, "
            f"invitation = NULL, levels = NULL WHERE {where} AND outcome IS NULL",
            (outcome, value),
        )

    def withdraw(self, digest: bytes) -> None:
        """Leave the experiment: delete unsent reports and refund nothing."""
        with self.together():
            lineage = self._lineage(digest)
            self._end("lineage = ?", lineage, "withdrawn")
            self._db.execute(
                "UPDATE lineages SET withdrawn = 1, option = NULL, until = 0, asked = NULL, "
                "nonce = NULL WHERE id = ?",
                (lineage,),
            )

    # Receipts, spending and exports

    def receipts(self) -> list[Receipt]:
        """Receipts of all participations of this device, latest first."""
        with self.together():
            rows = self._all("SELECT * FROM rounds WHERE terms IS NOT NULL ORDER BY joined DESC")
            return [self._receipt(row) for row in rows]

    def _receipt(self, row: sqlite3.Row) -> Receipt:
        terms = self._one("SELECT text FROM terms WHERE digest = ?", row["terms"])
        assert terms is not None
        return Receipt(
            round=row["identity"].hex(),
            question=decoded(terms["text"]).question,
            option=row["option"],
            joined=row["joined"],
            reports_at=row["sends"],
            cost=self._fraction(row["cost"]),
            charged=bool(row["charged"]),
            outcome=row["outcome"],
            halves=tuple(
                Sent(
                    post.address,
                    post.size,
                    post.digest,
                    post.attempts[Attempt.REPORT][0],
                    post.sent,
                    post.refused,
                )
                for post in self._posts(row["identity"])
            ),
        )

    def export(self) -> str:
        """The privacy budget spent, as JSON for the participant's other devices.

        The export contains no answers and no encrypted shares. Reports that wait to be sent count
        as spent, because they will be sent.
        """
        with self.together():
            own = self._own_limit()
            entries = self._all("SELECT * FROM lineages ORDER BY id")
            document = {
                "format": EXPORT_FORMAT,
                "own_limit": None if own is None else str(own),
                "experiments": [self._exported(entry) for entry in entries],
                "parties": [group.to_dict() for group in self._overview()],
            }
            return json.dumps(document, indent=1)

    def overview(self) -> list[PartySpending]:
        """Privacy budget spent per party, largest total first.

        Experiments that share a party's key form one group.
        """
        with self.together():
            return self._overview()

    def _overview(self) -> list[PartySpending]:
        groups: list[tuple[set[bytes], list[int]]] = []
        for entry in self._all("SELECT id FROM lineages ORDER BY id"):
            keys, members = set(self._keys(entry["id"])), [int(entry["id"])]
            for group in [one for one in groups if one[0] & keys]:
                groups.remove(group)
                keys, members = keys | group[0], group[1] + members
            groups.append((keys, members))
        found = [self._spending(keys, sorted(members)) for keys, members in groups]
        return sorted(found, key=lambda one: (-one.spent, one.keys))

    def _spending(self, keys: set[bytes], lineages: Sequence[int]) -> PartySpending:
        experiments = tuple(self._spent_in(lineage) for lineage in lineages)
        total = sum((one.spent for one in experiments), Fraction(0))
        return PartySpending(tuple(sorted(key.hex() for key in keys)), experiments, total)

    def _spent_in(self, lineage: int) -> ExperimentSpending:
        """Budget spent on one experiment, and the number of participations."""
        rows = self._all(
            "SELECT cost FROM rounds WHERE lineage = ? AND (charged OR outcome IS NULL)", lineage
        )
        terms = self._all(
            "SELECT digest, text FROM terms WHERE lineage = ? ORDER BY digest", lineage
        )
        texts = [row["text"] for row in terms if row["text"] is not None]
        return ExperimentSpending(
            tuple(row["digest"].hex() for row in terms),
            decoded(texts[0]).question if texts else None,
            sum((self._fraction(row["cost"]) for row in rows), Fraction(0)),
            len(rows),
            *self._limits(lineage),
        )

    def _exported(self, entry: sqlite3.Row) -> dict[str, object]:
        lineage = entry["id"]
        digests = self._all("SELECT digest FROM terms WHERE lineage = ? ORDER BY 1", lineage)
        rounds = self._all("SELECT * FROM rounds WHERE lineage = ? ORDER BY identity", lineage)
        return {
            "terms": [row["digest"].hex() for row in digests],
            "keys": [key.hex() for key in self._keys(lineage)],
            "epsilon": entry["epsilon"],
            "participations": entry["participations"],
            "withdrawn": bool(entry["withdrawn"]),
            "rounds": [
                {
                    "round": row["identity"].hex(),
                    "cost": row["cost"],
                    "charged": bool(row["charged"]) or row["outcome"] is None,
                    "refused": row["outcome"] == "refused",
                }
                for row in rounds
            ],
        }

    def merge(self, exported: str) -> None:
        """Merge another device's export: limits only decrease, charges are only added.

        Raises
        ------
        TacitError
            The export is invalid; nothing is merged.

        Examples
        --------
        >>> old, new = Ledger(":memory:"), Ledger(":memory:")
        >>> old.set_own_limit(Fraction(2))
        >>> new.merge(old.export())
        >>> new.own_limit
        Fraction(2, 1)
        """
        limit, experiments = read_export(exported)
        with self.together():
            self._set_limit(_lesser(limit, self._own_limit()))
            for experiment in experiments:
                self._merge(experiment)

    def _merge(self, other: Exported) -> None:
        lineage = self._united(other.terms, other.epsilon, other.participations)
        self._know_keys(lineage, other.keys)
        if other.withdrawn:
            self._db.execute("UPDATE lineages SET withdrawn = 1 WHERE id = ?", (lineage,))
        for identity, cost, charged, refused in other.rounds:
            self._db.execute(
                "INSERT INTO rounds (identity, lineage, cost, charged, outcome) "
                "VALUES (?, ?, ?, ?, ?) ON CONFLICT (identity) DO UPDATE SET "
                "charged = max(charged, excluded.charged) WHERE outcome IS NOT 'refused'",
                (identity, lineage, str(cost), charged, "refused" if refused else "elsewhere"),
            )


def _check_limit(limit: object) -> None:
    if limit is not None and (not isinstance(limit, Fraction) or limit < 0):
        raise TacitError(f"the limit is {limit!r}; it must be a Fraction, at least 0, or None")


def _lesser(one: Fraction | None, other: Fraction | None) -> Fraction | None:
    """The smaller of two limits, where None means no limit."""
    given = [limit for limit in (one, other) if limit is not None]
    return min(given, default=None)


@lru_cache(maxsize=_REMEMBERED)
def decoded(text: bytes) -> Terms:
    """Decode terms, with a cache."""
    return Terms.decode(text)


@lru_cache(maxsize=_REMEMBERED)
def _pinned(text: bytes, joined: bytes) -> Pinned:
    terms, parts = decoded(text), range(0, len(joined), SIGNATURE_SIZE)
    signatures = tuple(joined[at : at + SIGNATURE_SIZE] for at in parts)
    return Pinned(terms, signatures, terms.keys)


def _last(start: sqlite3.Row, line: Sequence[sqlite3.Row]) -> sqlite3.Row:
    """The row of the terms, or of their last approved successor."""
    successors = {decoded(row["text"]).predecessor: row for row in line if row["approved"]}
    last = start
    while last["digest"] in successors:
        last = successors[last["digest"]]
    return last


def _in_vain(row: sqlite3.Row) -> bool:
    """Whether a round was aborted or its outcome is unknown.

    Both count alike, so that servers gain nothing by withholding the outcome of an aborted round.
    """
    unsaid = row["charged"] and row["outcome"] in (None, "unknown")
    return bool(row["outcome"] == "refused" or unsaid)


def _agreed(line: Sequence[sqlite3.Row], terms: Terms) -> bool | None:
    """Whether these terms, or terms of the line with the same visible text, were agreed to.

    None if no terms of the line were agreed to.
    """
    agreed = [decoded(row["text"]) for row in line if row["agreed"]]
    return any(_said(old) == _said(terms) for old in agreed) if agreed else None


def _said(terms: Terms) -> tuple[object, ...]:
    """The fields whose change requires a new agreement."""
    return terms.question, terms.options, terms.organisation, terms.purpose
