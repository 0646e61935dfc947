"""Privacy budget of one participant: limits, spending, and its export to other devices.

Terms and all their successors share one entry, a lineage. Its limits are the smallest ε and the
fewest participations ever shown; every round counts as one participation, whatever it costs. The
participant's own limit covers all experiments; it is `OWN_LIMIT` unless another is set. By basic
composition the budget spent is the sum of ε over rounds, in exact fractions.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache

from tacit.client.entries import ExperimentSpending, ParticipationOutcome, PartySpending
from tacit.client.exports import FORMAT, Exported, read_export
from tacit.client.ledger_file import LedgerFile
from tacit.errors import Rejected, TacitError, require
from tacit.rounding import spelt
from tacit.terms import Account, Terms

OWN_LIMIT = Fraction(8)
"""Default limit of the sum of ε over all experiments of a ledger."""

_CACHED = 64  # terms; a participant knows few
_TAKEN = "(charged OR outcome IS NULL)"  # rounds that are charged or will be


class Budget(LedgerFile):
    """The accounting of a ledger."""

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
        self._run("INSERT OR REPLACE INTO own VALUES ('limit', ?)", text)

    def _own_limit(self) -> Fraction | None:
        row = self._single_row("SELECT value FROM own WHERE name = 'limit'")
        if row is None:
            return OWN_LIMIT
        return None if row["value"] is None else self._fraction(row["value"])

    @property
    def spent(self) -> Fraction:
        """Sum of ε over all charged rounds of all experiments."""
        with self.together():
            return self._cost(self._all("SELECT cost FROM rounds WHERE charged"))

    @property
    def spent_delta(self) -> Fraction:
        """Sum of δ over all charged rounds of all experiments, by basic composition."""
        with self.together():
            return self._cost(self._all("SELECT delta FROM rounds WHERE charged"), "delta")

    def check_budget(self, digest: bytes, cost: Fraction) -> None:
        """Reject a round whose cost exceeds the terms' limits or the participant's own limit."""
        with self.together():
            self._check_budget(self._lineage(digest), cost)

    def _check_budget(self, lineage: int, cost: Fraction, except_report: bytes = b"") -> None:
        """Reject a round whose cost exceeds a limit, given all charged and pending rounds."""
        taken = self._all(
            f"SELECT lineage, cost FROM rounds WHERE {_TAKEN} AND report != ?", except_report
        )
        here = [row for row in taken if row["lineage"] == lineage]
        Account(*self._limits(lineage), self._cost(here), len(here)).charged(cost)
        own, everywhere = self._own_limit(), self._cost(taken)
        if own is not None and everywhere + cost > own:
            left = spelt(own - everywhere)
            raise Rejected(
                f"epsilon of the round is {cost}: must be at most {left}, the rest of your own "
                f"limit {own} over all experiments. Nothing is sent"
            )

    def _check_delta(self, lineage: int, delta: Fraction, except_report: bytes = b"") -> None:
        """Reject a round whose δ, added to that of all others, exceeds the least δ ever shown."""
        if not delta:
            return
        taken = self._all(
            f"SELECT delta FROM rounds WHERE {_TAKEN} AND report != ? AND lineage = ?",
            *(except_report, lineage),
        )
        shown = self._all("SELECT text FROM terms WHERE lineage = ? AND text IS NOT NULL", lineage)
        limit = min((decoded(row["text"]).guarantee.delta for row in shown), default=delta)
        left = limit - self._cost(taken, "delta")
        rule = f"at most {spelt(left)}, the rest of the delta {limit} of the terms. "
        rule += "Nothing is sent"
        require(delta <= left, "delta of the round", delta, rule, Rejected)

    # Lineages of terms

    def _lineage(self, digest: bytes) -> int:
        row = self._single_row("SELECT lineage FROM terms WHERE digest = ?", digest)
        if row is None:
            raise TacitError(f"terms {digest.hex()} are unknown to this device. Call join() first")
        return int(row["lineage"])

    def _limits(self, lineage: int) -> tuple[Fraction, int]:
        """The smallest ε and the fewest participations shown under a lineage."""
        return self._read_limits(self._only("SELECT * FROM lineages WHERE id = ?", lineage))

    def _read_limits(self, row: sqlite3.Row) -> tuple[Fraction, int]:
        return self._fraction(row["epsilon"]), int(row["participations"])

    def _related_digests(self, terms: Terms, approved: bool) -> list[bytes]:
        """The digests that share limits with these terms: their own, and that of preceding ones.

        Unless the parties of preceding terms signed, other parties cannot lower their limits.
        """
        own = self._single_row("SELECT approved FROM terms WHERE digest = ?", terms.digest)
        names = {terms.digest, terms.predecessor or terms.digest}
        if approved or (own is not None and own["approved"]):
            return sorted(names)
        others = {digest for digest in names if self._of_others(digest, terms.keys)}
        for digest in others:
            known = self._single_row("SELECT text FROM terms WHERE digest = ?", digest)
            if known is not None and known["text"] is not None:
                raise Rejected(
                    f"predecessor is {digest.hex()}, of other parties: must be of the same ones, "
                    "or they must sign these terms. Name the preceding terms"
                )
        if terms.digest in others:  # others named them before they were known
            self._run("DELETE FROM terms WHERE digest = ?", terms.digest)
        return sorted({terms.digest} | names - others)

    def _of_others(self, digest: bytes, keys: Iterable[bytes]) -> bool:
        """Whether the lineage of a digest is known, and not one of all these keys."""
        row = self._single_row("SELECT lineage FROM terms WHERE digest = ?", digest)
        known = set() if row is None else set(self._keys(row["lineage"]))
        return bool(known) and not known.issuperset(keys)

    def _merged_lineage(
        self, digests: Sequence[bytes], epsilon: Fraction, participations: int
    ) -> int:
        """Merge the lineages of related terms into one, with the smallest limits of all.

        Terms have several lineages if their relation was unknown when they were stored.
        """
        marks = ", ".join("?" * len(digests))
        rows = self._all(
            f"SELECT DISTINCT lineage FROM terms WHERE digest IN ({marks}) ORDER BY 1", *digests
        )
        new = "INSERT INTO lineages (epsilon, participations) VALUES (?, ?)"
        lineage, *others = [int(row["lineage"]) for row in rows] or [
            self._run(new, str(epsilon), participations).lastrowid or 0
        ]
        limits = [(epsilon, participations), *map(self._limits, (lineage, *others))]
        epsilons, times = zip(*limits, strict=True)
        self._run(
            "UPDATE lineages SET epsilon = ?, participations = ? WHERE id = ?",
            *(str(min(epsilons)), min(times), lineage),
        )
        for other in others:
            self._absorb(lineage, other)
        for digest in digests:
            self._run(
                "INSERT OR IGNORE INTO terms (digest, lineage) VALUES (?, ?)", digest, lineage
            )
        return lineage

    def _absorb(self, lineage: int, other: int) -> None:
        for table in ("terms", "rounds"):
            self._run(f"UPDATE {table} SET lineage = ? WHERE lineage = ?", lineage, other)
        self._store_keys(lineage, self._keys(other))
        self._run("DELETE FROM keys WHERE lineage = ?", other)
        self._run(
            "UPDATE lineages SET withdrawn = max(withdrawn, "
            "(SELECT withdrawn FROM lineages WHERE id = ?)) WHERE id = ?",
            *(other, lineage),
        )
        self._run("DELETE FROM lineages WHERE id = ?", other)

    def _store_keys(self, lineage: int, keys: Iterable[bytes]) -> None:
        """Store the keys by which experiments of the same party are grouped."""
        for key in keys:
            self._run("INSERT OR IGNORE INTO keys VALUES (?, ?)", lineage, key)

    def _keys(self, lineage: int) -> list[bytes]:
        rows = self._all("SELECT key FROM keys WHERE lineage = ? ORDER BY key", lineage)
        return [bytes(row["key"]) for row in rows]

    # Spending

    def overview(self) -> list[PartySpending]:
        """Privacy budget spent per party, largest total first.

        Experiments that share a party's key form one group.
        """
        with self.together():
            groups: list[tuple[set[bytes], list[int]]] = []
            for row in self._all("SELECT id FROM lineages ORDER BY id"):
                keys, members = set(self._keys(row["id"])), [int(row["id"])]
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
        rows = self._all(f"SELECT cost FROM rounds WHERE lineage = ? AND {_TAKEN}", lineage)
        terms = self._all("SELECT digest, text FROM terms WHERE lineage = ? ORDER BY 1", lineage)
        texts = [row["text"] for row in terms if row["text"] is not None]
        return ExperimentSpending(
            tuple(row["digest"].hex() for row in terms),
            decoded(texts[0]).question if texts else None,
            self._cost(rows),
            len(rows),
            *self._limits(lineage),
        )

    # Other devices of the participant

    def export(self) -> str:
        """The privacy budget spent, as JSON for the participant's other devices.

        The export contains no answers and no encrypted shares. Reports that wait to be sent count
        as spent, because they will be sent.
        """
        with self.together():
            own = self._own_limit()
            lineages = self._all("SELECT * FROM lineages ORDER BY id")
            document = {
                "format": FORMAT,
                "own_limit": None if own is None else str(own),
                "experiments": [self._exported(row) for row in lineages],
                "parties": [group.to_dict() for group in self.overview()],
            }
            return json.dumps(document, indent=1)

    def _exported(self, entry: sqlite3.Row) -> dict[str, object]:
        """The budget spent under one line of terms, and its rounds, as plain data."""
        lineage = entry["id"]
        digests = self._all("SELECT digest FROM terms WHERE lineage = ? ORDER BY 1", lineage)
        rounds = self._all("SELECT * FROM rounds WHERE lineage = ? ORDER BY 1, 2", lineage)
        return {
            "terms": [row["digest"].hex() for row in digests],
            "keys": [key.hex() for key in self._keys(lineage)],
            "epsilon": entry["epsilon"],
            "participations": entry["participations"],
            "withdrawn": bool(entry["withdrawn"]),
            "rounds": [
                {
                    "round": row["identity"].hex(),
                    "report": row["report"].hex(),
                    "cost": row["cost"],
                    "charged": bool(row["charged"]) or row["outcome"] is None,
                    "refused": row["outcome"] == ParticipationOutcome.ABORTED,
                    **({} if row["delta"] == "0" else {"delta": row["delta"]}),
                }
                for row in rounds
            ],
        }

    def merge(self, exported: str) -> None:
        """Merge another device's export: limits only decrease, charges are only added.

        A participation that both devices know counts once. Reports of both devices in one round
        are two participations.

        Raises
        ------
        TacitError
            The export is invalid; nothing is merged.

        Examples
        --------
        >>> from tacit.client import Ledger
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
        lineage = self._merged_lineage(other.terms, other.epsilon, other.participations)
        self._store_keys(lineage, other.keys)
        if other.withdrawn:
            self._run("UPDATE lineages SET withdrawn = 1 WHERE id = ?", lineage)
        aborted, elsewhere = ParticipationOutcome.ABORTED, ParticipationOutcome.ELSEWHERE
        for one in other.rounds:
            self._run(
                "INSERT INTO rounds (identity, report, lineage, cost, delta, charged, outcome) "
                "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (identity, report) DO UPDATE SET "
                "charged = max(charged, excluded.charged) WHERE outcome IS NOT ?",
                *(one.identity, one.report, lineage, str(one.cost), str(one.delta), one.charged),
                *(aborted if one.aborted else elsewhere, aborted),
            )


@lru_cache(maxsize=_CACHED)
def decoded(text: bytes) -> Terms:
    """Decode terms, with a cache."""
    return Terms.decode(text)


def _check_limit(limit: object) -> None:
    holds = limit is None or (isinstance(limit, Fraction) and limit >= 0)
    require(holds, "the limit", repr(limit), "a Fraction of at least 0, or None for no limit")


def _lesser(first: Fraction | None, second: Fraction | None) -> Fraction | None:
    """The smaller of two limits, where None means no limit."""
    return min((limit for limit in (first, second) if limit is not None), default=None)
