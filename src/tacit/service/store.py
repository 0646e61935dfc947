"""A party's database: SQLite in one file, or PostgreSQL by its URL.

It holds terms, rounds, and the report shares pending until their round closes. Report shares are
encrypted to the aggregator (HPKE) and once more under the round's secret. They are stored under
HMAC pseudonyms keyed with that secret, which only the round's key file holds. Losing, copying or
rolling back the database cannot release a round twice, because the key files decide each release
(`tacit.records`). The number of rows grows with the number of rounds. Rows of participants are
deleted with their round, except spent invitations.

A `Transaction` reads and writes typed values. No other module but `pending` contains SQL.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cache, lru_cache
from typing import Any, TypeVar, get_args, get_type_hints

import sqlalchemy as sql
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from tacit.service import database
from tacit.service.errors import Unknown
from tacit.service.slot_shards import MOST as MOST_SHARDS
from tacit.service.slot_shards import ShardRow, shards_of
from tacit.signatures import SIGNATURE_SIZE
from tacit.terms import Terms

Value = TypeVar("Value")
Key = TypeVar("Key", bytes, int)


class State(StrEnum):
    """The state of an experiment."""

    UNSIGNED = "unsigned"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    FINISHED = "finished"


class Stage(StrEnum):
    """The stage of a round; released rounds end as `OPENED`, aborted ones as `REFUSED`."""

    PREPARING = "preparing"
    OPEN = "open"
    CLOSING = "closing"
    OPENED = "opened"
    REFUSED = "refused"


LIVE = (Stage.OPEN, Stage.CLOSING)  # stages in which a round has pending reports
UNFINISHED = (Stage.PREPARING, *LIVE)


# Rows


@dataclass(frozen=True)
class Registered:
    """Terms known to a party. `signatures` holds those of all parties, or is empty.

    All terms of an experiment share a lineage, the digest of the first. `approvals` holds the
    signatures of the predecessor's parties. `participants` is the new number of planned
    participants, where these terms change it.
    """

    terms: Terms
    signatures: tuple[bytes, ...]
    approvals: tuple[bytes, ...]
    lineage: bytes
    participants: int | None = None


@dataclass(frozen=True)
class ExperimentRow:
    """An experiment of the coordinator. `learner`, `timing` and `history` are JSON.

    `digest` names the current terms, `leader` the best option so far. `history` holds the estimates
    after every round.
    """

    lineage: bytes
    digest: bytes
    state: State
    learner: str
    timing: str
    definition: str
    leader: int
    history: str = "[]"


@dataclass(frozen=True)
class ExperimentHead:
    """An experiment without its learner."""

    lineage: bytes
    digest: bytes
    state: State
    leader: int


NO_ARM = -1
"""The arm of a round in which devices choose."""


@dataclass(frozen=True)
class RoundRow:
    """A round and its released sums.

    `number` and `arm` belong to the learner; `option` is an index into the terms' options. They are
    `NO_ARM` and `BY_POLICY` where devices choose. A round
    that is abandoned before anyone joined gets a new identity. `assigned` includes the slots
    assigned in the shards of an unfinished round. `total` is JSON.
    """

    identity: bytes
    terms: bytes
    stage: Stage
    number: int
    arm: int
    option: int
    slots: int
    assigned: int = 0
    started: int = 0
    assigned_until: int = 0
    closes: int = 0
    expires: int = 0
    announcement: bytes = b""
    reports: int | None = None
    total: str | None = None


@dataclass(frozen=True)
class ShareRow:
    """A pending report share, deleted when its round ends."""

    round: bytes
    name: bytes
    content: bytes


_TYPES: dict[type, Any] = {
    bytes: sql.LargeBinary,
    int: sql.BigInteger,
    str: sql.Text,
    **{kind: sql.Enum(kind, native_enum=False, values_callable=list) for kind in (State, Stage)},
}
_metadata = sql.MetaData()


def _table(name: str, row: type | Mapping[str, Any], *keys: str) -> sql.Table:
    """A table with a column for every field of its rows, in the order of the fields."""
    hints = get_type_hints(row) if isinstance(row, type) else row
    kinds = {field: _TYPES[(get_args(hint) or (hint,))[0]] for field, hint in hints.items()}
    columns = [sql.Column(field, kind, primary_key=field in keys) for field, kind in kinds.items()]
    return sql.Table(name, _metadata, *columns)


_TERMS_ROW: dict[str, type] = {
    **dict.fromkeys(("digest", "lineage", "document", "signatures", "approvals"), bytes),
    "participants": int,
}
terms = _table("terms", _TERMS_ROW, "digest")
experiments = _table("experiments", ExperimentRow, "lineage")
rounds = _table("rounds", RoundRow, "identity")
shares = _table("shares", ShareRow, "round", "name")

slot_shards = _table("slot_shards", ShardRow, "round", "shard")
"""Counters of assigned slots; deleted when the round ends."""

_LEASE_ROW = {"name": bytes, "holder": bytes, "until": int}
leases = _table("leases", _LEASE_ROW, "name")
"""Which process advances an experiment, and until when, in milliseconds."""

joins = _table("joins", {"round": bytes, "name": bytes, "slot": int}, "round", "name")
"""Slots by ticket, so that a repeated request gets the same slot; deleted when the round ends."""

spent = _table("spent", {"invitation": bytes, "name": bytes}, "invitation")
"""Digests of spent invitations, each with the pseudonym it was spent for. The pseudonym is
indistinguishable from random once the round's secret is destroyed.
"""

_SERVED_ROW = {"lineage": bytes, "option": int, "waiting": int, "total": int}
served = _table("served", _SERVED_ROW, "lineage", "option")
"""Telemetry: requests that found no slot, in total and (`waiting`) since rounds were last planned.
"""

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
_HEADS = sql.select(*(experiments.c[field.name] for field in fields(ExperimentHead)))
_COUNT_SLOTS = sql.update(slot_shards).where(
    slot_shards.c.round == sql.bindparam("of"), slot_shards.c.shard == sql.bindparam("number")
)


# Statements of reports and joins are built once: building one takes as long as executing it.
_IDENTITIES: sql.BindParameter[Any] = sql.bindparam("identities", expanding=True)
_NUMBERS: sql.BindParameter[Any] = sql.bindparam("numbers", expanding=True)
_NAMES: sql.BindParameter[Any] = sql.bindparam("names", expanding=True)
_STAGES = (
    sql.select(rounds.c.identity, rounds.c.stage)
    .where(rounds.c.identity.in_(_IDENTITIES))
    .order_by(rounds.c.identity)
    .with_for_update(read=True)
)
_HEAD = _HEADS.where(experiments.c.lineage == sql.bindparam("lineage"))
_ASSIGNING = (
    _OPEN.where(
        rounds.c.terms == sql.bindparam("digest"),
        rounds.c.stage == Stage.OPEN,
        rounds.c.assigned_until >= sql.bindparam("now"),
    )
    .order_by(rounds.c.identity)
    .with_for_update(read=True, of=rounds)
)
_SHARDS = (
    sql.select(slot_shards)
    .where(slot_shards.c.round.in_(_IDENTITIES), slot_shards.c.shard.in_(_NUMBERS))
    .order_by(slot_shards.c.round, slot_shards.c.shard)
    .with_for_update()
)
_HELD = sql.select(joins).where(joins.c.round.in_(_IDENTITIES), joins.c.name.in_(_NAMES))
_JOIN = sql.insert(joins).returning(joins.c.slot)  # returning: all rows in one statement


@cache
def _insertion(table: sql.Table, dialect: str) -> sql.Executable:
    """Insert rows whose key does not exist yet; return the keys inserted."""
    insert = sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)
    return insert.on_conflict_do_nothing().returning(*table.primary_key)


class Transaction:
    """Typed reads and writes within one transaction."""

    def __init__(self, connection: sql.Connection) -> None:
        self.connection = connection

    def _all(self, statement: sql.Executable, **values: Any) -> Sequence[Any]:
        return self.connection.execute(statement, values).all()

    def _values(
        self, kind: Callable[..., Value], statement: sql.Executable, **values: Any
    ) -> list[Value]:
        return [kind(*row) for row in self.connection.execute(statement, values)]

    def _one(self, kind: Callable[..., Value], statement: sql.Executable, digest: bytes) -> Value:
        for found in self._values(kind, statement):
            return found
        raise unknown_experiment(digest)

    def _insert_new(self, table: sql.Table, *rows: Mapping[str, Any]) -> set[tuple[Any, ...]]:
        """Insert the rows whose key does not exist yet, in one statement; the keys inserted.

        Rows are inserted in key order, so that concurrent inserts do not deadlock.
        """
        keys = [column.name for column in table.primary_key]
        entries = sorted(rows, key=lambda row: [row[key] for key in keys])
        if not entries:
            return set()
        new = _insertion(table, self.connection.dialect.name)
        return {tuple(row) for row in self.connection.execute(new, entries)}

    # Terms

    def has_terms(self) -> bool:
        """Whether any terms are known."""
        return bool(self._all(sql.select(terms.c.digest).limit(1)))

    def all_terms(self) -> list[Registered]:
        """All known terms, in the order of their digests."""
        return self._values(_registered, sql.select(terms).order_by(terms.c.digest))

    def terms(self, digest: bytes) -> Registered:
        """The terms with this digest."""
        return self._one(_registered, sql.select(terms).where(terms.c.digest == digest), digest)

    def lineage(self, digest: bytes) -> list[Registered]:
        """All terms of the experiment that these terms belong to."""
        mine = sql.select(terms.c.lineage).where(terms.c.digest == digest).scalar_subquery()
        return self._values(_registered, sql.select(terms).where(terms.c.lineage == mine))

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
        row = dict(zip(_TERMS_ROW, values, strict=True))
        self._insert_new(terms, row)
        if participants is not None and not signatures:
            mine = terms.c.digest == new.digest, terms.c.signatures == b""
            self.connection.execute(
                sql.update(terms).where(*mine).values(participants=participants)
            )
        if signatures:
            known = sql.update(terms).where(terms.c.digest == new.digest)
            self.connection.execute(known.values(signatures=signed, approvals=approved))

    # Experiments

    def heads(self) -> list[ExperimentHead]:
        """All experiments, without their learners."""
        return self._values(ExperimentHead, _HEADS)

    def head(self, lineage: bytes) -> ExperimentHead:
        """An experiment, without its learner."""
        for found in self._values(ExperimentHead, _HEAD, lineage=lineage):
            return found
        raise unknown_experiment(lineage)

    def experiment(self, lineage: bytes, *, lock: bool = False) -> ExperimentRow:
        """An experiment; with `lock`, locked until the transaction ends."""
        query = sql.select(experiments).where(experiments.c.lineage == lineage)
        return self._one(ExperimentRow, query.with_for_update() if lock else query, lineage)

    def add_experiment(self, row: ExperimentRow) -> None:
        """Store a new experiment; a known one stays as it is."""
        self._insert_new(experiments, vars(row))

    def replace_experiment(self, old: ExperimentRow, new: ExperimentRow) -> None:
        """Store the columns in which `new` differs; the caller holds the lock."""
        if changed := _changed(old, new):
            mine = experiments.c.lineage == old.lineage
            self.connection.execute(sql.update(experiments).where(mine).values(**changed))

    # Rounds

    def round(self, identity: bytes) -> RoundRow | None:
        """The round with this identity, if known."""
        query = _ROUNDS.where(rounds.c.identity == identity)
        return next(iter(self._values(RoundRow, query)), None)

    def rounds_in(self, stages: Collection[Stage]) -> list[RoundRow]:
        """All rounds in these stages, in the order of their numbers."""
        query = _ROUNDS.where(rounds.c.stage.in_(stages)).order_by(rounds.c.number)
        return self._values(RoundRow, query)

    def rounds_of(self, lineage: bytes) -> list[RoundRow]:
        """All rounds under any terms of an experiment, in the order of their numbers."""
        query = _ROUNDS.where(_of(lineage)).order_by(rounds.c.number)
        return self._values(RoundRow, query)

    def has_unfinished(self, lineage: bytes) -> bool:
        """Whether a round of the experiment is not over."""
        mine = _of(lineage), rounds.c.stage.in_(UNFINISHED)
        return bool(self._all(sql.select(rounds.c.identity).where(*mine).limit(1)))

    def count_stages(self) -> dict[str, int]:
        """The number of rounds in each stage."""
        stage = rounds.c.stage
        return dict(self._all(sql.select(stage, sql.func.count()).group_by(stage)))

    def add_rounds(self, new: Iterable[RoundRow]) -> None:
        """Store new rounds; known ones stay as they are."""
        self._insert_new(rounds, *map(vars, new))

    def replace_round(self, old: RoundRow, new: RoundRow) -> bool:
        """Store the columns in which `new` differs, if stage and announcement are still `old`'s.

        A round that opens gets its slots. Returns whether this call did it.
        """
        mine = (
            rounds.c.identity == old.identity,
            rounds.c.stage == old.stage,
            rounds.c.announcement == old.announcement,
        )
        update = sql.update(rounds).where(*mine).values(**_changed(old, new))
        if self.connection.execute(update).rowcount != 1:
            return False
        if new.stage is Stage.OPEN and old.stage is not Stage.OPEN:
            most = 1 if self.connection.dialect.name == "sqlite" else MOST_SHARDS
            self._insert_new(slot_shards, *map(vars, shards_of(new.identity, new.slots, most)))
        return True

    def delete_pending(self, identity: bytes) -> None:
        """Delete the report shares, tickets and slot shards of a round."""
        mine = sql.update(rounds).where(rounds.c.identity == identity)
        self.connection.execute(mine.values(assigned=rounds.c.assigned + _in_shards))
        for table in (shares, joins, slot_shards):
            self.connection.execute(sql.delete(table).where(table.c.round == identity))

    # Reports

    def lock_stages(self, identities: Iterable[bytes]) -> dict[bytes, Stage]:
        """Stages of rounds, locked so that none closes before this transaction ends."""
        return dict(self._all(_STAGES, identities=padded(sorted(identities))))

    def keep_shares(self, new: Sequence[ShareRow]) -> dict[tuple[bytes, bytes], bytes]:
        """Store report shares under free names; the stored contents by round and name."""
        stored = {(row.round, row.name): row.content for row in new}
        added = self._insert_new(shares, *map(vars, new))
        unsure = list(stored.keys() - added if len(stored) == len(new) else stored)
        if unsure:  # stored before, or twice in this group
            mine, names = ({key[part] for key in unsure} for part in (0, 1))
            query = sql.select(shares).where(
                shares.c.round.in_(padded(mine)), shares.c.name.in_(padded(names))
            )
            found = {(row.round, row.name): row.content for row in self._values(ShareRow, query)}
            stored |= {key: found.get(key, b"") for key in unsure}
        return stored

    def count_shares(self, identity: bytes) -> int:
        """The number of pending report shares of a round."""
        query = sql.select(sql.func.count()).select_from(shares).where(shares.c.round == identity)
        return int(self.connection.execute(query).scalar_one())

    def spend(self, invitation: bytes, name: bytes) -> bool:
        """Spend an invitation for this name; False if it is spent for another name."""
        added = self._insert_new(spent, {"invitation": invitation, "name": name})
        return bool(added) or self._spent_for(invitation) == name

    def is_spent(self, invitation: bytes) -> bool:
        """Whether an invitation has been spent."""
        return self._spent_for(invitation) is not None

    def _spent_for(self, invitation: bytes) -> bytes | None:
        query = sql.select(spent.c.name).where(spent.c.invitation == invitation)
        found: bytes | None = self.connection.execute(query).scalar()
        return found

    # Slots

    def open_rounds(self, digest: bytes, now: int) -> list[tuple[RoundRow, int]]:
        """The rounds under these terms that assign slots, each with its number of shards.

        They are locked so that none closes before this transaction ends.
        """
        found = self._all(_ASSIGNING, digest=digest, now=now)
        return [(RoundRow(*row), shards) for *row, shards in found]

    def latest_policy(self, digest: bytes) -> bytes:
        """The announcement of the latest round under these terms in which devices choose; empty
        before the first.
        """
        mine = (
            rounds.c.terms == digest,
            rounds.c.arm == NO_ARM,
            rounds.c.stage != Stage.PREPARING,
        )
        query = sql.select(rounds.c.announcement).where(*mine).order_by(rounds.c.number.desc())
        found = self._all(query.limit(1))
        return bytes(found[0][0]) if found else b""

    def lock_shards(self, wanted: Mapping[bytes, Collection[int]]) -> list[ShardRow]:
        """These shards of rounds, locked against concurrent assignment.

        Shards with the same numbers in the other rounds are locked as well.
        """
        if not wanted:
            return []
        numbers = sorted(set().union(*wanted.values()))
        found = self._values(
            ShardRow, _SHARDS, identities=padded(sorted(wanted)), numbers=padded(numbers)
        )
        return [row for row in found if row.shard in wanted[row.round]]

    def held_slots(
        self, names: Mapping[bytes, Collection[bytes]]
    ) -> dict[tuple[bytes, bytes], int]:
        """The slots by round and name, of those that these names hold in their rounds."""
        everyone = [name for mine in names.values() for name in mine]
        found = self._all(_HELD, identities=padded(sorted(names)), names=padded(everyone))
        return {(row.round, row.name): row.slot for row in found}

    def assign_slots(
        self, new: Mapping[tuple[bytes, bytes], int], changed: Iterable[ShardRow]
    ) -> None:
        """Store new slots by round and name, and the counters of the shards that they are in."""
        rows = [
            {"round": identity, "name": name, "slot": slot}
            for (identity, name), slot in new.items()
        ]
        self.connection.execute(_JOIN, rows)
        counters = [
            {"of": row.round, "number": row.shard, "assigned": row.assigned} for row in changed
        ]
        self.connection.execute(_COUNT_SLOTS, counters)

    def count_served(self, lineage: bytes, option: int, count: int) -> None:
        """Count requests that found no slot and got this option."""
        self._insert_new(served, dict(zip(_SERVED_ROW, (lineage, option, 0, 0), strict=True)))
        mine = sql.update(served).where(served.c.lineage == lineage, served.c.option == option)
        counted = mine.values(waiting=served.c.waiting + count, total=served.c.total + count)
        self.connection.execute(counted)

    def served(self, lineage: bytes) -> tuple[int, int]:
        """Requests that found no slot: in total, and since rounds were last planned."""
        sums = (sql.func.coalesce(sql.func.sum(c), 0) for c in (served.c.total, served.c.waiting))
        query = sql.select(*sums).where(served.c.lineage == lineage)
        total, waiting = self.connection.execute(query).one()
        return int(total), int(waiting)

    def hold_leases(
        self, names: Collection[bytes], holder: bytes, now: int, until: int
    ) -> set[bytes]:
        """Take these leases where they are free, expired or already held; those held now."""
        rows = [{"name": name, "holder": holder, "until": until} for name in names]
        self._insert_new(leases, *rows)
        mine = leases.c.name.in_(padded(sorted(names)))
        found = sql.select(leases).where(mine).order_by(leases.c.name).with_for_update()
        held = {row.name for row in self._all(found) if row.holder == holder or row.until <= now}
        taken = sql.update(leases).where(leases.c.name.in_(padded(sorted(held))))
        self.connection.execute(taken.values(holder=holder, until=until))
        return held

    def release_leases(self, holder: bytes) -> None:
        """Delete the leases of a process."""
        self.connection.execute(sql.delete(leases).where(leases.c.holder == holder))

    def settle_served(self, lineage: bytes) -> None:
        """Add the requests since rounds were last planned to the public count."""
        mine = served.c.lineage == lineage
        self.connection.execute(sql.update(served).where(mine).values(waiting=0))


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
    signed, approved = _cut(signatures), _cut(approvals)
    return Registered(_decoded(document), signed, approved, lineage, participants)


def _cut(data: bytes) -> tuple[bytes, ...]:
    return tuple(data[at : at + SIGNATURE_SIZE] for at in range(0, len(data), SIGNATURE_SIZE))


def _changed(old: ExperimentRow | RoundRow, new: ExperimentRow | RoundRow) -> dict[str, Any]:
    before = vars(old)
    return {name: value for name, value in vars(new).items() if value != before[name]}


def _of(lineage: bytes) -> sql.ColumnElement[bool]:
    """Condition that selects the rounds under any terms of an experiment."""
    return rounds.c.terms.in_(sql.select(terms.c.digest).where(terms.c.lineage == lineage))


class Store:
    """The database of one party; several processes may share it."""

    def __init__(self, url: str) -> None:
        self.engine = database.connect(url)
        self.dialect = self.engine.dialect.name
        self._reader = database.reader(self.engine)

    def __repr__(self) -> str:
        return f"Store({self.dialect})"

    @contextmanager
    def begin(self) -> Iterator[Transaction]:
        """One durable write transaction."""
        try:
            with self.engine.begin() as connection:
                yield Transaction(connection)
        except SQLAlchemyError as problem:
            raise database.unavailable(problem) from None

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """One read-only transaction on a consistent snapshot; it blocks no writer."""
        try:
            with self._reader.connect() as connection, connection.begin():
                yield Transaction(connection)
        except SQLAlchemyError as problem:
            raise database.unavailable(problem) from None

    def migrate(self) -> None:
        """Upgrade the tables to this version's schema, if needed."""
        database.migrate(self.engine)

    def probe(self) -> None:
        """Raise `Unavailable` if nothing could be written now: rewrite a row durably.

        SQLite may write that row without new disk space, so its directory is probed, too.
        """
        with self.begin() as transaction:
            transaction.connection.exec_driver_sql(
                "UPDATE alembic_version SET version_num = version_num"
            )
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
