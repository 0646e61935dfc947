"""Ledger of one participant in one SQLite file: terms, slots and reports that wait to be sent.

The ledger charges a round in the transaction that stores its encrypted report shares, so before
anything is sent. Answers are stored as levels until they are encrypted; encrypted shares are stored
until both servers have them or the round is over. `budget` has the limits and the spending.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from functools import lru_cache
from operator import attrgetter

from tacit.aggregation import ReportSlot
from tacit.client.budget import Budget, decoded
from tacit.client.entries import (
    AcceptedSlot,
    Delivery,
    KnownTerms,
    OpenParticipation,
    ParticipationOutcome,
    Receipt,
    SentShare,
)
from tacit.client.report_schedule import Attempt
from tacit.errors import Rejected
from tacit.signatures import signatures_in
from tacit.terms import Account, Pinned, Terms
from tacit.terms.pinned import check_no_weaker

_CACHED = 64  # terms; a participant knows few
_OWN = "terms IS NOT NULL"  # participations of this device, at most one in a round


class Ledger(Budget):
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

    # Terms

    def remember(self, pinned: Pinned, state: str, now: float, *, approved: bool = False) -> None:
        """Store terms that are about to be shown, and decrease the limits to theirs if smaller.

        Parameters
        ----------
        pinned : Pinned
            The verified terms.
        state : str
            State of the experiment, as its coordinator names it.
        now : float
            The time in seconds since 1970.
        approved : bool
            Whether the parties of the preceding terms signed that these succeed them. Otherwise
            only terms of the same parties share limits, and known terms of others may not be named.
        """
        terms, guarantee = pinned.terms, pinned.terms.guarantee
        with self.together():
            names = self._related_digests(terms, approved)
            lineage = self._merged_lineage(names, guarantee.epsilon, guarantee.participations)
            self._store_keys(lineage, terms.keys)
            self._run(
                "UPDATE terms SET text = ?, signatures = ?, state = ?, checked = ?, "
                "approved = max(approved, ?) WHERE digest = ?",
                *(terms.encode(), b"".join(pinned.signatures), state, now, approved, terms.digest),
            )

    def agree(self, digest: bytes, *, returns: bool = True) -> None:
        """Record agreement to these terms.

        Parameters
        ----------
        digest : bytes
            Digest of the terms.
        returns : bool
            Revoke a withdrawal. Otherwise one that another process stored meanwhile stands.
        """
        with self.together():
            lineage = self._lineage(digest)
            self._run("UPDATE terms SET agreed = 1 WHERE digest = ?", digest)
            if returns:
                self._run("UPDATE lineages SET withdrawn = 0 WHERE id = ?", lineage)

    def known(self, digest: bytes) -> KnownTerms | None:
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
            lineage, last = start["lineage"], _latest_successor(start, line)
            entry = self._only("SELECT * FROM lineages WHERE id = ?", lineage)
            rounds = self._all(
                "SELECT identity, terms, cost, charged, outcome, sends FROM rounds "
                "WHERE lineage = ?",
                lineage,
            )
            pinned = self._pinned(last)
            charged = [row for row in rounds if row["charged"]]
            joined = [row for row in rounds if not row["charged"] and row["outcome"] is None]
            own = [row for row in rounds if row["terms"] is not None]
            sends = [row["sends"] for row in own if row["identity"] == entry["asked"]]
            return KnownTerms(
                pinned=pinned,
                state=last["state"],
                agreed=_agreed(line, pinned.terms),
                checked=last["checked"],
                account=Account(*self._read_limits(entry), self._cost(charged), len(charged)),
                pending=self._cost(joined),
                aborted=len({row["identity"] for row in rounds if _refundable(row)}),
                withdrawn=bool(entry["withdrawn"]),
                option=entry["option"],
                until=entry["until"],
                reports_at=sends[0] if sends else None,
                named=decoded(start["text"]),
            )

    def _pinned(self, row: sqlite3.Row) -> Pinned:
        """Terms from the file, with their signatures verified again: the file cannot forge them."""
        try:
            return _pinned(row["text"], row["signatures"])
        except Rejected as problem:
            raise self._unusable(str(problem)) from None

    # Slots

    def nonce(self, digest: bytes, fresh: bytes) -> bytes:
        """The nonce of the slot request: stored on first use, then reused until a reply arrives."""
        with self.together():
            lineage = self._lineage(digest)
            self._run(
                "UPDATE lineages SET nonce = ? WHERE id = ? AND nonce IS NULL", fresh, lineage
            )
            return bytes(self._only("SELECT nonce FROM lineages WHERE id = ?", lineage)["nonce"])

    def forget_nonce(self, digest: bytes) -> None:
        """Discard the nonce after a reply that assigned no slot."""
        with self.together():
            self._run("UPDATE lineages SET nonce = NULL WHERE id = ?", self._lineage(digest))

    def keep_option(self, digest: bytes, option: str, now: float, until: float) -> None:
        """Store an option assigned without a report, and how long it is valid.

        An assignment that another process stored meanwhile takes precedence.

        Parameters
        ----------
        digest : bytes
            Digest of the terms.
        option : str
            The assigned option.
        now, until : float
            The time, and the end of the assignment, in seconds since 1970.
        """
        with self.together():
            lineage = self._lineage(digest)
            if not self._all("SELECT 1 FROM lineages WHERE id = ? AND until > ?", lineage, now):
                self._keep_option(lineage, option, until)

    def _keep_option(
        self, lineage: int, option: str, until: float, chosen: bytes | None = None
    ) -> None:
        self._run(
            "UPDATE lineages SET option = ?, until = ?, asked = ?, nonce = NULL WHERE id = ?",
            *(option, until, chosen, lineage),
        )

    def check_round(
        self, digest: bytes, identity: bytes, slot: ReportSlot, cost: Fraction, now: float
    ) -> None:
        """Reject a round that `join` would reject.

        Parameters
        ----------
        digest : bytes
            Digest of the terms.
        identity : bytes
            The round.
        slot : ReportSlot
            The assigned slot.
        cost : Fraction
            ε of the round.
        now : float
            The time in seconds since 1970.

        Raises
        ------
        Rejected
            If the participant withdrew, or a limit would be exceeded.
        """
        with self.together():
            self._joined(self._lineage(digest), identity, slot, cost, now)

    def _joined(
        self, lineage: int, identity: bytes, slot: ReportSlot, cost: Fraction, now: float
    ) -> bool:
        """Whether this slot or another valid assignment is stored; reject an inadmissible slot."""
        entry = self._only("SELECT withdrawn, until FROM lineages WHERE id = ?", lineage)
        if entry["withdrawn"]:
            raise Rejected("the participant has left the experiment. Call agree() to join it again")
        found = self._all("SELECT slot, lineage FROM rounds WHERE identity = ?", identity)
        same = [row["slot"] for row in found if row["lineage"] == lineage]
        if entry["until"] > now or slot.encode() in same:
            return True
        if found:
            raise Rejected(
                f"round {identity.hex()} was joined before: a device takes part once in a round"
            )
        self._check_budget(lineage, cost)
        return False

    def join(self, new: AcceptedSlot) -> None:
        """Store a slot; reject it if its cost exceeds a limit or the round was joined before."""
        with self.together():
            lineage = self._lineage(new.terms)
            if self._joined(lineage, new.identity, new.slot, new.cost, new.joined):
                return
            self._check_delta(lineage, new.delta)
            self._run(
                "INSERT INTO rounds VALUES (?, ?, ?, ?, 0, NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                *(new.identity, new.report, lineage, str(new.cost), new.terms, new.option),
                *(new.joined, new.sends, new.announcement, new.slot.encode(), new.seed),
                new.invitation,
                json.dumps(new.levels),
                str(new.delta),
            )
            self._keep_option(lineage, new.option, new.until, new.identity)

    def record(self, digest: bytes, levels: Mapping[int, int]) -> bool:
        """Replace recorded levels by these; False if no report waits to be encrypted."""
        with self.together():
            row = self._unsent(digest)
            if row is None:
                return False
            merged = json.loads(row["levels"])
            for metric, level in levels.items():
                merged[metric] = level
            self._run(
                "UPDATE rounds SET levels = ? WHERE identity = ? AND report = ?",
                *(json.dumps(merged), row["identity"], row["report"]),
            )
            return True

    def waiting(self, digest: bytes) -> OpenParticipation | None:
        """The latest participation whose report waits to be encrypted, under any of these terms.

        It may have been joined under preceding terms.
        """
        with self.together():
            row = self._unsent(digest)
            return None if row is None else self._running(row)

    def _unsent(self, digest: bytes) -> sqlite3.Row | None:
        return self._single_row(
            "SELECT * FROM rounds WHERE lineage = ? AND outcome IS NULL AND levels IS NOT NULL "
            "ORDER BY joined DESC",
            self._lineage(digest),
        )

    # Encrypting and sending

    def running(self) -> list[OpenParticipation]:
        """All participations that are not over, ordered by their sending time."""
        with self.together():
            rows = self._all("SELECT * FROM rounds WHERE outcome IS NULL ORDER BY sends, identity")
            return [self._running(row) for row in rows]

    def _running(self, row: sqlite3.Row) -> OpenParticipation:
        return OpenParticipation(
            identity=row["identity"],
            pinned=self._pinned(self._only("SELECT * FROM terms WHERE digest = ?", row["terms"])),
            announcement=row["announcement"],
            slot=ReportSlot.decode(row["slot"]),
            seed=row["seed"],
            joined=row["joined"],
            invitation=row["invitation"],
            levels=None if row["levels"] is None else tuple(json.loads(row["levels"])),
            deliveries=self._deliveries(row["identity"]),
        )

    def _deliveries(self, identity: bytes) -> tuple[Delivery, ...]:
        rows = self._all("SELECT * FROM shares WHERE identity = ? ORDER BY role", identity)
        stored = {field.name for field in fields(Delivery)} - {"attempts"}
        return tuple(
            Delivery(
                **{name: row[name] for name in stored},
                attempts={
                    what: (row[f"{what.value}_attempts"], row[f"{what.value}_last"])
                    for what in Attempt
                },
            )
            for row in rows
        )

    def deliveries(self, identity: bytes) -> tuple[Delivery, ...]:
        """Report shares of a participation; empty if it is over or not yet encrypted."""
        with self.together():
            row = self._single_row(
                "SELECT 1 FROM rounds WHERE identity = ? AND outcome IS NULL", identity
            )
            return () if row is None else self._deliveries(identity)

    def charge(
        self, identity: bytes, make: Callable[[OpenParticipation], Mapping[int, bytes]]
    ) -> None:
        """Charge the round, store the report shares encrypted by `make`, and delete the levels.

        All of it happens in one transaction. The call does nothing if the report is encrypted
        already.
        """
        with self.together():
            row = self._single_row(
                "SELECT * FROM rounds WHERE identity = ? AND outcome IS NULL "
                "AND levels IS NOT NULL",
                identity,
            )
            if row is None:
                return
            self._check_budget(
                row["lineage"], self._fraction(row["cost"]), except_report=row["report"]
            )
            self._check_delta(
                row["lineage"], self._fraction(row["delta"]), except_report=row["report"]
            )
            running = self._running(row)
            made = make(running)
            for role, party in enumerate(running.pinned.terms.parties):
                share = made.get(role)  # None: the party is only asked for the outcome
                digest = hashlib.sha256(share).hexdigest() if share else ""
                self._run(
                    "INSERT INTO shares (identity, role, address, size, digest, encrypted) "
                    "VALUES (?, ?, ?, ?, ?, ?)",
                    *(identity, role, party.address, len(share or b""), digest, share),
                )
            self._run(
                "UPDATE rounds SET charged = 1, levels = NULL WHERE identity = ? AND report = ?",
                *(identity, row["report"]),
            )

    def claim(self, delivery: Delivery, attempt: Attempt, now: float) -> bool:
        """Claim the next attempt for this process.

        False if another process was faster, or if the participation is over, as after a withdrawal.

        Parameters
        ----------
        delivery : Delivery
            The server's side of the participation, as it was read.
        attempt : Attempt
            Sending the report share, or asking for the outcome.
        now : float
            The time in seconds since 1970.
        """
        done = self._write(
            f"UPDATE shares SET {attempt.value}_attempts = {attempt.value}_attempts + 1, "
            f"{attempt.value}_last = ? WHERE identity = ? AND role = ? "
            f"AND {attempt.value}_attempts = ? "
            "AND identity IN (SELECT identity FROM rounds WHERE outcome IS NULL)",
            *(now, delivery.identity, delivery.role, delivery.attempts[attempt][0]),
        )
        return done.rowcount == 1

    def accepted(self, delivery: Delivery, now: float) -> None:
        """Delete a report share that its server accepted now, in seconds since 1970."""
        self._update(delivery, "encrypted = NULL, sent = ?", now)

    def rejected(self, delivery: Delivery, reason: str) -> None:
        """Delete a report share that its server rejected permanently, and store the reason."""
        self._update(delivery, "encrypted = NULL, rejected = ?", reason)

    def keep_outcome(self, delivery: Delivery, outcome: bytes) -> None:
        """Store a server's signed statement of the round's outcome."""
        self._update(delivery, "outcome = ?", outcome)

    def _update(self, delivery: Delivery, change: str, value: object) -> None:
        changed = f"UPDATE shares SET {change} WHERE identity = ? AND role = ?"
        self._write(changed, value, delivery.identity, delivery.role)

    def expire(self, identity: bytes) -> None:
        """The deadline has passed: delete the encrypted shares that no server accepted."""
        self._write("UPDATE shares SET encrypted = NULL WHERE identity = ?", identity)

    def end(self, identity: bytes, outcome: ParticipationOutcome, *, refund: bool = False) -> None:
        """End a participation.

        Parameters
        ----------
        identity : bytes
            The round.
        outcome : ParticipationOutcome
            How it ended.
        refund : bool
            No longer charge its cost. Requires that both servers signed that the round was aborted.
        """
        with self.together():
            self._end("identity = ?", identity, outcome)
            if refund:
                self._run(f"UPDATE rounds SET charged = 0 WHERE identity = ? AND {_OWN}", identity)

    def _end(self, condition: str, value: object, outcome: ParticipationOutcome) -> None:
        """End participations and delete everything but the account and the receipt."""
        chosen = f"SELECT identity FROM rounds WHERE {condition} AND outcome IS NULL"
        self._run(
            f"UPDATE shares SET encrypted = NULL, outcome = NULL WHERE identity IN ({chosen})",
            value,
        )
        self._run(
            "UPDATE rounds SET outcome = ?, announcement = NULL, slot = NULL, seed = NULL, "
            f"invitation = NULL, levels = NULL WHERE {condition} AND outcome IS NULL",
            *(outcome, value),
        )

    def withdraw(self, digest: bytes) -> None:
        """Leave the experiment: delete unsent reports and refund nothing."""
        with self.together():
            lineage = self._lineage(digest)
            self._end("lineage = ?", lineage, ParticipationOutcome.WITHDRAWN)
            self._run(
                "UPDATE lineages SET withdrawn = 1, option = NULL, until = 0, asked = NULL, "
                "nonce = NULL WHERE id = ?",
                lineage,
            )

    def receipts(self) -> list[Receipt]:
        """Receipts of all participations of this device, latest first."""
        with self.together():
            rows = self._all(f"SELECT * FROM rounds WHERE {_OWN} ORDER BY joined DESC")
            return [self._receipt(row) for row in rows]

    def _receipt(self, row: sqlite3.Row) -> Receipt:
        """The receipt of a stored participation."""
        terms = self._only("SELECT text FROM terms WHERE digest = ?", row["terms"])
        return Receipt(
            round=row["identity"].hex(),
            question=decoded(terms["text"]).question,
            option=row["option"],
            joined=row["joined"],
            reports_at=row["sends"],
            cost=self._fraction(row["cost"]),
            delta=self._fraction(row["delta"]),
            charged=bool(row["charged"]),
            outcome=row["outcome"],
            shares=tuple(
                SentShare(
                    one.address,
                    one.size,
                    one.digest,
                    one.attempts[Attempt.REPORT][0],
                    one.sent,
                    one.rejected,
                )
                for one in self._deliveries(row["identity"])
                if one.size
            ),
        )


@lru_cache(maxsize=_CACHED)
def _pinned(text: bytes, joined: bytes) -> Pinned:
    terms = decoded(text)
    return Pinned(terms, signatures_in(joined), terms.keys)


def _latest_successor(start: sqlite3.Row, line: Sequence[sqlite3.Row]) -> sqlite3.Row:
    """The row of the terms, or of their last approved successor."""
    successors = {decoded(row["text"]).predecessor: row for row in line if row["approved"]}
    last = start
    while last["digest"] in successors:
        last = successors[last["digest"]]
    return last


def _refundable(row: sqlite3.Row) -> bool:
    """Whether a round was aborted or its outcome is unknown.

    Both count alike, so that servers gain nothing by withholding the outcome of an aborted round.
    """
    unsaid = row["charged"] and row["outcome"] in (None, ParticipationOutcome.UNKNOWN)
    return bool(row["outcome"] == ParticipationOutcome.ABORTED or unsaid)


def _agreed(line: Sequence[sqlite3.Row], terms: Terms) -> bool | None:
    """Whether terms of the line with the same text were agreed to that these are no weaker than.

    None if no terms of the line were agreed to.
    """
    agreed = [decoded(row["text"]) for row in line if row["agreed"]]
    return any(_covers(old, terms) for old in agreed) if agreed else None


def _covers(old: Terms, terms: Terms) -> bool:
    """Whether agreement to old terms of the line is agreement to these.

    Terms of a line need not be successors: one that came first may have named others, unseen then.
    """
    try:
        check_no_weaker(old, terms)
    except Rejected:
        return False
    return bool(_consented(old) == _consented(terms))


_consented = attrgetter("question", "options", "organisation", "purpose")
"""The fields whose change requires a new agreement."""
