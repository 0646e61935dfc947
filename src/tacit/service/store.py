"""A party's database: SQLite in one file, or PostgreSQL by its URL.

It holds terms, rounds, and the report shares pending until their round closes. Report shares are
encrypted to the aggregator (HPKE) and once more under the round's secret. They are stored under
HMAC pseudonyms keyed with that secret, which only the round's key file holds. Losing, copying or
rolling back the database cannot release a round twice, because the key files decide each release
(`tacit.records`). The number of rows grows with the number of rounds. Rows of participants are
deleted with their round, except spent invitations.

A `Transaction` reads and writes typed values. No other module contains statements.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields
from functools import cache, lru_cache
from itertools import starmap
from operator import itemgetter
from typing import Any, TypeVar

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql, sqlite

from tacit.service import database
from tacit.service.errors import Unknown
from tacit.service.schema import (
    MOST_SHARDS,
    NO_ARM,
    SERVED_ROW,
    SHARE_ROW,
    TERMS_ROW,
    UNFINISHED,
    ExperimentHead,
    ExperimentRow,
    Registered,
    RoundRow,
    ShardRow,
    Stage,
    State,
    experiments,
    joins,
    leases,
    rounds,
    served,
    shards_of,
    shares,
    slot_shards,
    spent,
    terms,
)
from tacit.signatures import signatures_in
from tacit.terms import Terms

Key = TypeVar("Key", bytes, int)


AT_ONCE = 200  # report shares per query when a round closes

_in_shards = (
    sql.select(sql.func.coalesce(sql.func.sum(slot_shards.c.assigned), 0))
    .where(slot_shards.c.round == rounds.c.identity)
    .scalar_subquery()
)
_ROUNDS = sql.select(
    *(
        (column + _in_shards).label(column.name) if column is rounds.c.assigned else column
        for column in rounds.c
    )
)
_OPEN = _ROUNDS.add_columns(
    sql.select(sql.func.count())
    .where(slot_shards.c.round == rounds.c.identity)
    .scalar_subquery()
    .label("shards")
)


# Statements are built once: building one takes as long as executing it.


def _list_parameter(name: str) -> sql.BindParameter[Any]:
    return sql.bindparam(name, expanding=True)


def _of(column: sql.Column[Any]) -> sql.ColumnElement[bool]:
    """The condition that a column equals the bound parameter of its name."""
    return column == sql.bindparam(column.name)


@cache
def _selected(table: sql.Table, *names: str) -> sql.Select[Any]:
    """All columns of the rows with these values."""
    return sql.select(table).where(*(_of(table.c[name]) for name in names))


@cache
def _deleted(table: sql.Table, *names: str) -> sql.Delete:
    """Delete the rows with these values."""
    return sql.delete(table).where(*(_of(table.c[name]) for name in names))


@cache
def _updated(table: sql.Table, names: tuple[str, ...], changed: tuple[str, ...]) -> sql.Update:
    """Change these columns, to values `new_…`, of the rows that have these values."""
    mine = sql.update(table).where(*(_of(table.c[name]) for name in names))
    return mine.values({name: sql.bindparam(f"new_{name}") for name in changed})


@cache
def _insertion(table: sql.Table, dialect: str) -> sql.Insert:
    """Insert rows whose key does not exist yet."""
    insert = sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)
    return insert.on_conflict_do_nothing()


_LINEAGE = rounds.c.terms.in_(sql.select(terms.c.digest).where(_of(terms.c.lineage)))
"""Condition that selects the rounds under any terms of an experiment."""
_ANY_TERMS = sql.select(terms.c.digest).limit(1)
_ALL_TERMS = sql.select(terms).order_by(terms.c.digest)
_SAME_LINEAGE = sql.select(terms).where(
    terms.c.lineage == sql.select(terms.c.lineage).where(_of(terms.c.digest)).scalar_subquery()
)
_HEADS = sql.select(*(experiments.c[field.name] for field in fields(ExperimentHead)))
_HEAD = _HEADS.where(_of(experiments.c.lineage))
_LOCKED = _selected(experiments, "lineage").with_for_update()
_ROUND = _ROUNDS.where(_of(rounds.c.identity))
_ROUNDS_IN = _ROUNDS.where(rounds.c.stage.in_(_list_parameter("stages"))).order_by(rounds.c.number)
_ROUNDS_OF = _ROUNDS.where(_LINEAGE).order_by(rounds.c.number)
_IS_UNFINISHED = (
    sql.select(rounds.c.identity)
    .where(_LINEAGE, rounds.c.stage.in_(_list_parameter("stages")))
    .limit(1)
)
_IS_ABORTED_EARLY = (
    sql.select(rounds.c.identity)
    .where(_LINEAGE, rounds.c.stage == Stage.ABORTED, rounds.c.closes > sql.bindparam("now"))
    .limit(1)
)
_STAGE_COUNTS = sql.select(rounds.c.stage, sql.func.count()).group_by(rounds.c.stage)
_FINAL_COUNT = (
    sql.update(rounds).where(_of(rounds.c.identity)).values(assigned=rounds.c.assigned + _in_shards)
)
_STAGES = (
    sql.select(rounds.c.identity, rounds.c.stage)
    .where(rounds.c.identity.in_(_list_parameter("identities")))
    .order_by(rounds.c.identity)
    .with_for_update(read=True)
)
_STORED = sql.select(shares).where(
    shares.c.round.in_(_list_parameter("identities")), shares.c.name.in_(_list_parameter("names"))
)
_SHARE_COUNT = sql.select(sql.func.count()).select_from(shares).where(_of(shares.c.round))
_SHARE_NAMES = sql.select(shares.c.name).where(_of(shares.c.round))
_SHARES_AFTER = (
    sql.select(shares.c.name, shares.c.content)
    .where(_of(shares.c.round), shares.c.name > sql.bindparam("last"))
    .order_by(shares.c.name)
    .limit(AT_ONCE)
)
_ASSIGNING = (
    _OPEN.where(
        _of(rounds.c.terms),
        rounds.c.stage == Stage.OPEN,
        rounds.c.assigned_until >= sql.bindparam("now"),
    )
    .order_by(rounds.c.identity)
    .with_for_update(read=True, of=rounds)
)
_LATEST_POLICY = (
    sql.select(rounds.c.announcement)
    .where(_of(rounds.c.terms), rounds.c.arm == NO_ARM, rounds.c.stage != Stage.PREPARING)
    .order_by(rounds.c.number.desc())
    .limit(1)
)
_SHARDS = (
    sql.select(slot_shards)
    .where(
        slot_shards.c.round.in_(_list_parameter("identities")),
        slot_shards.c.shard.in_(_list_parameter("numbers")),
    )
    .order_by(slot_shards.c.round, slot_shards.c.shard)
    .with_for_update()
)
_HELD = sql.select(joins).where(
    joins.c.round.in_(_list_parameter("identities")), joins.c.name.in_(_list_parameter("names"))
)
_JOIN = sql.insert(joins)
_COUNT_SERVED = (
    sql.update(served)
    .where(_of(served.c.lineage), _of(served.c.option))
    .values(
        waiting=served.c.waiting + sql.bindparam("count"),
        total=served.c.total + sql.bindparam("count"),
    )
)
_SERVED = sql.select(
    *(sql.func.coalesce(sql.func.sum(c), 0) for c in (served.c.total, served.c.waiting))
).where(_of(served.c.lineage))
_PROBE = sql.text("UPDATE alembic_version SET version_num = version_num")
_LEASES = (
    sql.select(leases)
    .where(leases.c.name.in_(_list_parameter("names")))
    .order_by(leases.c.name)
    .with_for_update()
)


class Transaction(database.Connection):
    """Typed reads and writes within one transaction."""

    def _insert_new(self, table: sql.Table, *rows: Mapping[str, Any]) -> bool:
        """Insert the rows whose key does not exist yet; whether all rows were inserted.

        Rows are inserted in key order, so that concurrent inserts do not deadlock.
        """
        if not rows:
            return True
        keys = itemgetter(*(column.name for column in table.primary_key))
        new = _insertion(table, self.dialect)
        return self.change(new, *sorted(rows, key=keys)) == len(rows)

    def _update(self, table: sql.Table, mine: Mapping[str, Any], changed: Mapping[str, Any]) -> int:
        """Change columns of the rows with these values; the number of rows."""
        statement = _updated(table, tuple(mine), tuple(changed))
        new = {f"new_{name}": value for name, value in changed.items()}
        return self.change(statement, {**mine, **new})

    # Terms

    def has_terms(self) -> bool:
        """Whether any terms are known."""
        return bool(self.rows(_ANY_TERMS))

    def all_terms(self) -> list[Registered]:
        """All known terms, in the order of their digests."""
        return list(starmap(_registered, self.rows(_ALL_TERMS)))

    def terms(self, digest: bytes) -> Registered:
        """The terms with this digest."""
        for row in self.rows(_selected(terms, "digest"), digest=digest):
            return _registered(*row)
        raise unknown_experiment(digest)

    def lineage(self, digest: bytes) -> list[Registered]:
        """All terms of the experiment that these terms belong to."""
        return list(starmap(_registered, self.rows(_SAME_LINEAGE, digest=digest)))

    def save_terms(
        self,
        new: Terms,
        signatures: Sequence[bytes] = (),
        approvals: Sequence[bytes] = (),
        participants: int | None = None,
    ) -> None:
        """Store terms, or the signatures under known terms."""
        lineage = self.terms(new.predecessor).lineage if new.predecessor else new.digest
        signed, approved = b"".join(signatures), b"".join(approvals)
        values = (new.digest, lineage, new.encode(), signed, approved, participants)
        self._insert_new(terms, dict(zip(TERMS_ROW, values, strict=True)))
        if participants is not None and not signatures:
            mine = {"digest": new.digest, "signatures": b""}
            self._update(terms, mine, {"participants": participants})
        if signatures:
            given = {"signatures": signed, "approvals": approved}
            self._update(terms, {"digest": new.digest}, given)

    # Experiments

    def heads(self) -> list[ExperimentHead]:
        """All experiments, without their learners."""
        return list(starmap(_head, self.rows(_HEADS)))

    def head(self, lineage: bytes) -> ExperimentHead:
        """An experiment, without its learner."""
        for row in self.rows(_HEAD, lineage=lineage):
            return _head(*row)
        raise unknown_experiment(lineage)

    def experiment(self, lineage: bytes, *, lock: bool = False) -> ExperimentRow:
        """An experiment; with `lock`, locked until the transaction ends."""
        query = _LOCKED if lock else _selected(experiments, "lineage")
        for row in self.rows(query, lineage=lineage):
            return _experiment(*row)
        raise unknown_experiment(lineage)

    def add_experiment(self, row: ExperimentRow) -> None:
        """Store a new experiment; a known one stays as it is."""
        self._insert_new(experiments, vars(row))

    def replace_experiment(self, old: ExperimentRow, new: ExperimentRow) -> None:
        """Store the columns in which `new` differs; the caller holds the lock."""
        if changed := _changed_columns(old, new):
            self._update(experiments, {"lineage": old.lineage}, changed)

    # Rounds

    def round(self, identity: bytes) -> RoundRow | None:
        """The round with this identity, if known."""
        found = self.rows(_ROUND, identity=identity)
        return _round(*found[0]) if found else None

    def rounds_in(self, stages: Collection[Stage]) -> list[RoundRow]:
        """All rounds in these stages, in the order of their numbers."""
        return list(starmap(_round, self.rows(_ROUNDS_IN, stages=list(stages))))

    def rounds_of(self, lineage: bytes) -> list[RoundRow]:
        """All rounds under any terms of an experiment, in the order of their numbers."""
        return list(starmap(_round, self.rows(_ROUNDS_OF, lineage=lineage)))

    def has_unfinished(self, lineage: bytes) -> bool:
        """Whether a round of the experiment is not over."""
        stages = list(UNFINISHED)
        return bool(self.rows(_IS_UNFINISHED, lineage=lineage, stages=stages))

    def has_aborted_early(self, lineage: bytes, now: int) -> bool:
        """Whether a round of the experiment was aborted whose deadline has not passed."""
        return bool(self.rows(_IS_ABORTED_EARLY, lineage=lineage, now=now))

    def count_stages(self) -> dict[str, int]:
        """The number of rounds in each stage."""
        return dict(self.rows(_STAGE_COUNTS))

    def add_rounds(self, new: Iterable[RoundRow]) -> None:
        """Store new rounds; known ones stay as they are."""
        self._insert_new(rounds, *map(vars, new))

    def replace_round(self, old: RoundRow, new: RoundRow) -> bool:
        """Store the columns in which `new` differs, if stage and announcement are still `old`'s.

        A round that opens gets its slots. Returns whether this call did it.
        """
        mine = {name: getattr(old, name) for name in ("identity", "stage", "announcement")}
        if self._update(rounds, mine, _changed_columns(old, new)) != 1:
            return False
        if new.stage is Stage.OPEN and old.stage is not Stage.OPEN:
            most = 1 if self.dialect == "sqlite" else MOST_SHARDS
            self._insert_new(slot_shards, *map(vars, shards_of(new.identity, new.slots, most)))
        return True

    def delete_pending(self, identity: bytes) -> None:
        """Delete the report shares, tickets and slot shards of a round."""
        self.change(_FINAL_COUNT, {"identity": identity})
        for table in (shares, joins, slot_shards):
            self.change(_deleted(table, "round"), {"round": identity})

    # Reports

    def lock_stages(self, identities: Iterable[bytes]) -> dict[bytes, Stage]:
        """Stages of rounds, locked so that none closes before this transaction ends."""
        found = self.rows(_STAGES, identities=padded(sorted(identities)))
        return {identity: Stage(stage) for identity, stage in found}

    def keep_shares(self, new: Mapping[tuple[bytes, bytes], bytes]) -> Mapping[Any, bytes]:
        """Store report shares, by round and name, under free names; the stored contents."""
        rows = [dict(zip(SHARE_ROW, (*key, content), strict=True)) for key, content in new.items()]
        if self._insert_new(shares, *rows):
            return new
        mine, names = ({key[part] for key in new} for part in (0, 1))
        found = self.rows(_STORED, identities=padded(mine), names=padded(names))
        contents = {(identity, name): content for identity, name, content in found}
        return {key: contents.get(key, b"") for key in new}

    def share_names(self, identity: bytes) -> set[bytes]:
        """The names of the pending report shares of a round."""
        return {name for (name,) in self.rows(_SHARE_NAMES, round=identity)}

    def shares_named(self, identity: bytes, names: Collection[bytes]) -> dict[bytes, bytes]:
        """The contents of pending report shares by name, of those that exist."""
        found = self.rows(_STORED, identities=[identity], names=padded(names))
        return {name: content for _, name, content in found}

    def shares_after(self, identity: bytes, last: bytes) -> list[tuple[bytes, bytes]]:
        """The next names and contents of pending report shares, `AT_ONCE` at most."""
        return self.rows(_SHARES_AFTER, round=identity, last=last)

    def delete_shares(self, identity: bytes, name: bytes | None = None) -> None:
        """Delete the pending report share of this name, or all of a round."""
        mine = {"round": identity} if name is None else {"round": identity, "name": name}
        self.change(_deleted(shares, *mine), mine)

    def count_shares(self, identity: bytes) -> int:
        """The number of pending report shares of a round."""
        return int(self.rows(_SHARE_COUNT, round=identity)[0][0])

    def spend(self, invitation: bytes, name: bytes) -> bool:
        """Spend an invitation for this name; False if it is spent for another name."""
        added = self._insert_new(spent, {"invitation": invitation, "name": name})
        return added or self._spent_for(invitation) == name

    def is_spent(self, invitation: bytes) -> bool:
        """Whether an invitation has been spent."""
        return self._spent_for(invitation) is not None

    def _spent_for(self, invitation: bytes) -> bytes | None:
        found = self.rows(_selected(spent, "invitation"), invitation=invitation)
        return bytes(found[0][1]) if found else None

    # Slots

    def open_rounds(self, digest: bytes, now: int) -> list[tuple[RoundRow, int]]:
        """The rounds under these terms that assign slots, each with its number of shards.

        They are locked so that none closes before this transaction ends.
        """
        found = self.rows(_ASSIGNING, terms=digest, now=now)
        return [(_round(*row), shards) for *row, shards in found]

    def latest_policy(self, digest: bytes) -> bytes:
        """The announcement of the latest round under these terms in which devices choose; empty
        before the first.
        """
        found = self.rows(_LATEST_POLICY, terms=digest)
        return bytes(found[0][0]) if found else b""

    def lock_shards(self, wanted: Mapping[bytes, Collection[int]]) -> list[ShardRow]:
        """These shards of rounds, locked against concurrent assignment.

        Shards with the same numbers in the other rounds are locked as well.
        """
        if not wanted:
            return []
        numbers = sorted(set().union(*wanted.values()))
        found = self.rows(_SHARDS, identities=padded(sorted(wanted)), numbers=padded(numbers))
        return [row for row in starmap(ShardRow, found) if row.shard in wanted[row.round]]

    def held_slots(
        self, names: Mapping[bytes, Collection[bytes]]
    ) -> dict[tuple[bytes, bytes], int]:
        """The slots by round and name, of those that these names hold in their rounds."""
        everyone = [name for mine in names.values() for name in mine]
        found = self.rows(_HELD, identities=padded(sorted(names)), names=padded(everyone))
        return {(identity, name): slot for identity, name, slot in found}

    def assign_slots(
        self, new: Mapping[tuple[bytes, bytes], int], changed: Iterable[ShardRow]
    ) -> None:
        """Store new slots by round and name, and the counters of the shards that they are in."""
        rows = [
            {"round": identity, "name": name, "slot": slot}
            for (identity, name), slot in new.items()
        ]
        self.change(_JOIN, *rows)
        counters = [
            {"round": row.round, "shard": row.shard, "new_assigned": row.assigned}
            for row in changed
        ]
        self.change(_updated(slot_shards, ("round", "shard"), ("assigned",)), *counters)

    def count_served(self, lineage: bytes, option: int, count: int) -> None:
        """Count requests that found no slot and got this option."""
        self._insert_new(served, dict(zip(SERVED_ROW, (lineage, option, 0, 0), strict=True)))
        counted = {"lineage": lineage, "option": option, "count": count}
        self.change(_COUNT_SERVED, counted)

    def served(self, lineage: bytes) -> tuple[int, int]:
        """Requests that found no slot: in total, and since rounds were last planned."""
        ((total, waiting),) = self.rows(_SERVED, lineage=lineage)
        return int(total), int(waiting)

    def settle_served(self, lineage: bytes) -> None:
        """Add the requests since rounds were last planned to the public count."""
        self._update(served, {"lineage": lineage}, {"waiting": 0})

    def hold_leases(
        self, names: Collection[bytes], holder: bytes, now: int, until: int
    ) -> set[bytes]:
        """Take these leases where they are free, expired or already held; those held now.

        A lease that ends later than a new one, by more than its duration, is of a process whose
        clock was wrong, and free too.
        """
        rows = [{"name": name, "holder": holder, "until": until} for name in names]
        self._insert_new(leases, *rows)
        found = self.rows(_LEASES, names=padded(sorted(names)))
        last = until + (until - now)
        held = {name for name, owner, end in found if owner == holder or not now < end <= last}
        mine = {"new_holder": holder, "new_until": until}
        taken = [{"name": name} | mine for name in sorted(held)]
        if taken:
            self.change(_updated(leases, ("name",), ("holder", "until")), *taken)
        return held

    def release_leases(self, holder: bytes) -> None:
        """Delete the leases of a process."""
        self.change(_deleted(leases, "holder"), {"holder": holder})


def unknown_experiment(digest: bytes) -> Unknown:
    """The error for terms that this party does not know."""
    return Unknown(f"experiment {digest.hex()} is unknown here: check the address and the digest")


_decoded = lru_cache(maxsize=256)(Terms.decode)  # devices keep requesting the same terms


def _registered(
    _digest: bytes,
    lineage: bytes,
    document: bytes,
    signatures: bytes,
    approvals: bytes,
    participants: int | None,
) -> Registered:
    signed, approved = signatures_in(signatures), signatures_in(approvals)
    return Registered(_decoded(document), signed, approved, lineage, participants)


def _head(lineage: bytes, digest: bytes, state: str, leader: int) -> ExperimentHead:
    return ExperimentHead(lineage, digest, State(state), leader)


def _experiment(lineage: bytes, digest: bytes, state: str, *others: Any) -> ExperimentRow:
    return ExperimentRow(lineage, digest, State(state), *others)


def _round(identity: bytes, terms: bytes, stage: str, *others: Any) -> RoundRow:
    return RoundRow(identity, terms, Stage(stage), *others)


def _changed_columns(
    old: ExperimentRow | RoundRow, new: ExperimentRow | RoundRow
) -> dict[str, Any]:
    before = vars(old)
    return {name: value for name, value in vars(new).items() if value != before[name]}


class Store:
    """The database of one party; several processes may share it."""

    def __init__(self, url: str) -> None:
        self.engine = database.connect(url)
        self.dialect = self.engine.dialect.name

    def __repr__(self) -> str:
        return f"Store({self.dialect})"

    def begin(self) -> AbstractContextManager[Transaction]:
        """One durable write transaction."""
        return database.transaction(self.engine, Transaction)

    def read(self) -> AbstractContextManager[Transaction]:
        """One read-only transaction on a consistent snapshot; it blocks no writer."""
        return database.transaction(self.engine, Transaction, reading=True)

    def migrate(self) -> None:
        """Upgrade the tables to this version's schema, if needed."""
        database.migrate(self.engine)

    def probe(self) -> None:
        """Raise `Unavailable` if nothing could be written now: rewrite a row durably.

        SQLite may write that row without new disk space, so its directory is probed, too.
        """
        with self.begin() as transaction:
            transaction.change(_PROBE, {})
        database.probe_directory(self.engine)

    def used(self) -> bool:
        """Whether any terms are stored, so that key files must exist as well."""
        with self.read() as transaction:
            return transaction.has_terms()

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def padded(values: Collection[Key]) -> list[Key]:
    """The values, the last one repeated up to a power-of-two length.

    Statements with a list parameter then have few distinct lengths, which keeps statement caches
    small.

    >>> padded([b"a", b"b", b"c"])
    [b'a', b'b', b'c', b'c']
    """
    listed = list(values)
    missing = (1 << max(0, len(listed) - 1).bit_length()) - len(listed)
    return listed + listed[-1:] * missing
