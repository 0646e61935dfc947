"""A party's database: SQLite in one file, or PostgreSQL by its URL.

It holds terms, rounds, and the report shares pending until their round closes. Report shares are
encrypted to the aggregator (HPKE) and once more under the round's secret. They are stored under
HMAC pseudonyms keyed with that secret, which only the round's key file holds. Losing, copying or
rolling back the database cannot release a round twice, because the key files decide each release
(`tacit.records`). The number of rows grows with the number of rounds. Rows of participants are
deleted with their round, except spent invitations.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from tacit.errors import TacitError, Unavailable

MIGRATIONS = Path(__file__).parent / "migrations"
LOG = logging.getLogger("tacit.service")
PATIENCE = 30  # seconds a writer waits for the lock
STATEMENTS = 64  # cached per SQLite connection
CACHE = 256  # kilobytes of page cache per SQLite connection: large rounds are not cached
AT_ONCE = 200  # report shares per query when a round closes

_metadata = sql.MetaData()


def _key(name: str, kind: Any = sql.LargeBinary) -> sql.Column[Any]:
    return sql.Column(name, kind, primary_key=True)


def _column(name: str, kind: Any, *, index: bool = False) -> sql.Column[Any]:
    return sql.Column(name, kind, nullable=False, index=index)


terms = sql.Table(
    "terms",
    _metadata,
    _key("digest"),
    _column("lineage", sql.LargeBinary, index=True),
    _column("document", sql.LargeBinary),
    _column("signatures", sql.LargeBinary),
    _column("approvals", sql.LargeBinary),
)
"""Terms and their successors. All terms of an experiment share a lineage, the digest of the first.
`signatures` holds those of all parties once they exist, `approvals` those of the predecessor's
parties.
"""

experiments = sql.Table(
    "experiments",
    _metadata,
    _key("lineage"),
    _column("digest", sql.LargeBinary),
    _column("state", sql.String(16)),
    _column("learner", sql.Text),
    _column("timing", sql.Text),
    _column("definition", sql.Text),
    _column("leader", sql.Integer),
    _column("history", sql.Text),
)
"""The coordinator's experiments: learner state, current terms, and the estimates after every round.
"""

rounds = sql.Table(
    "rounds",
    _metadata,
    _key("identity"),
    _column("terms", sql.LargeBinary, index=True),
    _column("stage", sql.String(16), index=True),
    _column("number", sql.Integer),
    _column("arm", sql.Integer),
    _column("option", sql.Integer),
    _column("places", sql.Integer),
    _column("given", sql.Integer),
    _column("started", sql.BigInteger),
    _column("assigned_until", sql.BigInteger),
    _column("closes", sql.BigInteger),
    _column("expires", sql.BigInteger),
    _column("announcement", sql.LargeBinary),
    sql.Column("reports", sql.Integer),
    sql.Column("total", sql.Text),
)
"""Rounds and their released sums. `number` and `arm` belong to the learner; `option` is an index
into the terms' options. A round that is abandoned before anyone joined gets a new identity.
"""

halves = sql.Table(
    "halves", _metadata, _key("round"), _key("name"), _column("content", sql.LargeBinary)
)
"""Pending report shares, deleted when their round ends."""

joins = sql.Table("joins", _metadata, _key("round"), _key("name"), _column("place", sql.Integer))
"""Slots by ticket, so that a repeated request gets the same slot; deleted when the round ends."""

spent = sql.Table("spent", _metadata, _key("invitation"), _column("name", sql.LargeBinary))
"""Digests of spent invitations, each with the pseudonym it was spent for. The pseudonym is
indistinguishable from random once the round's secret is destroyed.
"""

served = sql.Table(
    "served",
    _metadata,
    _key("lineage"),
    _key("option", sql.Integer),
    _column("waiting", sql.BigInteger),
    _column("total", sql.BigInteger),
)
"""Telemetry: requests that found no slot, in total and (`waiting`) since rounds were last planned.
"""


LIVE = ("open", "closing")  # stages in which a round has pending reports
_STAGE = (
    sql.select(rounds.c.stage)
    .where(rounds.c.identity == sql.bindparam("identity"))
    .with_for_update(read=True)  # the round cannot end before this transaction
)


class Store:
    """The database of one party; several processes may share it."""

    def __init__(self, url: str) -> None:
        try:
            self.engine = sql.create_engine(url, **_options(url))
        except (ArgumentError, NoSuchModuleError, ImportError):
            raise TacitError(
                "the database must be named as sqlite:///file.db or postgresql+psycopg://… (which "
                "needs tacit[postgresql])"
            ) from None
        self.dialect = self.engine.dialect.name
        if self.dialect == "sqlite":
            sql.event.listen(self.engine, "connect", _configure)
            sql.event.listen(self.engine, "begin", _begin_writing)
        elif self.dialect != "postgresql":
            raise TacitError(f"the database is {self.dialect}; it must be SQLite or PostgreSQL")

    def __repr__(self) -> str:
        return f"Store({self.dialect})"

    @contextmanager
    def begin(self) -> Iterator[sql.Connection]:
        """One durable write transaction."""
        try:
            with self.engine.begin() as connection:
                yield connection
        except SQLAlchemyError as problem:
            raise _unavailable(problem) from None

    @contextmanager
    def read(self) -> Iterator[sql.Connection]:
        """One read-only transaction on a consistent snapshot; it blocks no writer."""
        try:
            with self.engine.connect() as connection, self._looking(connection).begin():
                yield connection
        except SQLAlchemyError as problem:
            raise _unavailable(problem) from None

    def _looking(self, connection: sql.Connection) -> sql.Connection:
        if self.dialect == "sqlite":
            return connection.execution_options(reading=True)
        return connection.execution_options(isolation_level="REPEATABLE READ")

    def migrate(self) -> None:
        """Upgrade the tables to this version's schema, if needed."""
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        try:
            with self.engine.begin() as connection:
                if self.dialect == "postgresql":  # one process at a time
                    connection.execute(sql.text("SELECT pg_advisory_xact_lock(7461636974)"))
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
        except SQLAlchemyError as problem:
            _log(problem)
            raise TacitError(self._unusable()) from None
        except CommandError:
            raise TacitError(
                "the tables of the database are those of another version of tacit: install that "
                "one, or restore the backup from before it was installed"
            ) from None

    def _unusable(self) -> str:
        """The error message for the operator; the log holds the database's own message."""
        if self.dialect == "sqlite":
            return (
                f"the database {self.engine.url.database} cannot be used: let this user write the "
                "file and its directory, free the disk, or name another file as database"
            )
        return (
            "the database cannot be used: start it, mend its URL (database, or TACIT_DATABASE), or "
            "let this user make tables there"
        )

    def used(self) -> bool:
        """Whether any terms are stored, so that key files must exist as well."""
        with self.read() as connection:
            return connection.execute(sql.select(terms.c.digest).limit(1)).first() is not None

    def insert_new(
        self, connection: sql.Connection, table: sql.Table, rows: Iterable[dict[str, Any]]
    ) -> None:
        """Insert the rows whose key does not exist yet.

        Rows are inserted in key order, so that concurrent inserts do not deadlock.
        """
        keys = [column.name for column in table.primary_key]
        if entries := sorted(rows, key=lambda row: [row[key] for key in keys]):
            kind = sqlite.insert if self.dialect == "sqlite" else postgresql.insert
            connection.execute(kind(table).on_conflict_do_nothing(), entries)

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


class PendingShares(MutableMapping[bytes, bytes]):
    """The pending report shares of one round, as the aggregator's mapping."""

    def __init__(self, store: Store, identity: bytes) -> None:
        self._store = store
        self._identity = identity
        self._mine = halves.c.round == identity

    def __getitem__(self, name: bytes) -> bytes:
        with self._store.read() as connection:
            found = self._content(connection, name)
        if found is None:
            raise KeyError(name)
        return found

    def _content(self, connection: sql.Connection, name: bytes) -> bytes | None:
        query = sql.select(halves.c.content).where(self._mine, halves.c.name == name)
        found = connection.execute(query).scalar()
        return None if found is None else bytes(found)

    def __setitem__(self, name: bytes, content: bytes) -> None:
        self.setdefault(name, content)

    def __delitem__(self, name: bytes) -> None:
        with self._store.begin() as connection:
            connection.execute(sql.delete(halves).where(self._mine, halves.c.name == name))

    def __iter__(self) -> Iterator[bytes]:
        with self._store.read() as connection:
            names = connection.execute(sql.select(halves.c.name).where(self._mine)).scalars().all()
        return iter([bytes(name) for name in names])

    def __len__(self) -> int:
        with self._store.read() as connection:
            return count_halves(connection, self._identity)

    def items(self) -> Any:
        """All names and contents in the order of names, read in chunks to bound memory."""
        last = b""
        while True:
            part = self._after(last)
            yield from part
            if len(part) < AT_ONCE:
                return
            last = part[-1][0]

    def _after(self, last: bytes) -> list[tuple[bytes, bytes]]:
        query = sql.select(halves.c.name, halves.c.content).where(self._mine, halves.c.name > last)
        with self._store.read() as connection:
            found = connection.execute(query.order_by(halves.c.name).limit(AT_ONCE))
            return [(bytes(name), bytes(content)) for name, content in found]

    def setdefault(self, name: bytes, content: bytes = b"") -> bytes:
        """Insert unless present, atomically across processes, and return the stored content.

        Content for a round that is over is not stored, because nothing would delete it.
        """
        row, found = {"round": self._identity, "name": name, "content": content}, None
        while found is None:
            with self._store.begin() as connection:
                stage = connection.execute(_STAGE, {"identity": self._identity}).scalar()
                if stage is not None and stage not in LIVE:
                    return content
                self._store.insert_new(connection, halves, [row])
                found = self._content(connection, name)
        return found

    def clear(self) -> None:
        """Delete all pending report shares of the round."""
        with self._store.begin() as connection:
            connection.execute(sql.delete(halves).where(self._mine))


def padded(values: Collection[bytes]) -> list[bytes]:
    """The values, the last one repeated up to a power-of-two length.

    Statements with a list parameter then have few distinct lengths, which keeps statement caches
    small.

    >>> padded([b"a", b"b", b"c"])
    [b'a', b'b', b'c', b'c']
    """
    listed = list(values)
    missing = (1 << max(0, len(listed) - 1).bit_length()) - len(listed)
    return listed + listed[-1:] * missing


def count_halves(connection: sql.Connection, identity: bytes) -> int:
    """The number of pending report shares of a round."""
    query = sql.select(sql.func.count()).select_from(halves).where(halves.c.round == identity)
    return int(connection.execute(query).scalar_one())


def _options(url: str) -> dict[str, Any]:
    if url.startswith("sqlite"):
        return {"connect_args": {"timeout": PATIENCE, "cached_statements": STATEMENTS}}
    return {"pool_pre_ping": True, "connect_args": {"connect_timeout": 5}}


def _configure(connection: Any, _record: object) -> None:
    """Make every commit durable and overwrite deleted rows."""
    connection.isolation_level = None  # _begin_writing issues BEGIN
    for setting in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "secure_delete=ON",
        f"cache_size=-{CACHE}",
        f"busy_timeout={PATIENCE * 1000}",
    ):
        connection.execute(f"PRAGMA {setting}")


def _begin_writing(connection: sql.Connection) -> None:
    """Writers take the lock at the start of their transaction; readers take none."""
    looks = connection.get_execution_options().get("reading")
    connection.exec_driver_sql("BEGIN" if looks else "BEGIN IMMEDIATE")


def _unavailable(problem: SQLAlchemyError) -> Unavailable:
    """Log the database's message without statement values; the caller gets a generic error."""
    _log(problem)
    return Unavailable("the database cannot be used now; nothing was changed: try again later")


def _log(problem: SQLAlchemyError) -> None:
    said = str(problem.orig) if isinstance(problem, DBAPIError) else ""
    LOG.error("database: %s", (said.strip() or type(problem).__name__).splitlines()[0])
