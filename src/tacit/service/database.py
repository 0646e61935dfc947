"""Connections to a party's database: SQLite in one file, or PostgreSQL by its URL.

Every commit is durable and deleted rows are overwritten. Errors for operators name the remedy;
callers get a generic error, and the log holds the database's own message without values.

SQLAlchemy builds the statements and pools the connections. Statements run on the driver's own
cursor, compiled once: SQLAlchemy's execution of a short one costs several times what SQLite takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sql
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from tacit.errors import TacitError, Unavailable
from tacit.records import probe_disk
from tacit.service.errors import LOG

MIGRATIONS = Path(__file__).parent / "migrations"
PATIENCE = 30  # seconds a writer waits for the lock
STATEMENTS = 64  # cached per SQLite connection
CACHE = 256  # kilobytes of page cache per SQLite connection: large rounds are not cached
_UNAVAILABLE = "the database is unavailable; nothing was changed: retry later"


def connect(url: str) -> sql.Engine:
    """The engine of a database; it connects at the first transaction."""
    try:
        engine = sql.create_engine(url, **_options(url))
    except (ArgumentError, NoSuchModuleError, ImportError):
        raise TacitError(
            "database is not a usable URL: must be sqlite:///file.db or postgresql+psycopg://… "
            "For PostgreSQL install tacit[postgresql]."
        ) from None
    if engine.dialect.name == "sqlite":
        sql.event.listen(engine, "connect", _configure)
        sql.event.listen(engine, "begin", _begin_writing)
    elif engine.dialect.name != "postgresql":
        raise TacitError(f"database is {engine.dialect.name}: must be SQLite or PostgreSQL")
    return engine


_DIALECTS: dict[str, sql.Dialect] = {}


class Connection:
    """The driver's cursor within one transaction."""

    def __init__(self, cursor: Any, dialect: sql.Dialect) -> None:
        self._cursor, self.dialect = cursor, dialect.name
        # of this name the first, so that all databases share compiled statements
        self._dialect = _DIALECTS.setdefault(dialect.name, dialect)

    def rows(self, statement: sql.ClauseElement, **values: Any) -> list[Any]:
        """The rows of a statement; lists are the values of its IN conditions."""
        lengths = tuple([(key, len(of)) for key, of in values.items() if isinstance(of, list)])
        compiled = _compiled(statement, self._dialect, lengths)
        found: list[Any] = self._cursor.execute(compiled.text, compiled.bind(values)).fetchall()
        return found

    def change(self, statement: sql.ClauseElement, *rows: Mapping[str, Any]) -> int:
        """Execute a statement for each of these values; the number of rows changed."""
        compiled = _compiled(statement, self._dialect, ())
        if len(rows) == 1:
            self._cursor.execute(compiled.text, compiled.bind(rows[0]))
        else:
            self._cursor.executemany(compiled.text, [compiled.bind(one) for one in rows])
        return int(self._cursor.rowcount)


ConnectionT = TypeVar("ConnectionT", bound=Connection)


@contextmanager
def transaction(
    engine: sql.Engine, kind: type[ConnectionT], *, reading: bool = False
) -> Iterator[ConnectionT]:
    """A durable transaction; with `reading`, a snapshot that blocks no writer.

    Raises `Unavailable` if the database fails.
    """
    failures = (SQLAlchemyError, engine.dialect.loaded_dbapi.Error)
    try:
        with closing(engine.raw_connection()) as line:  # returned to the pool, rolled back
            try:
                _begin(line.driver_connection, engine.dialect.name, reading=reading)
                yield kind(line.cursor(), engine.dialect)
                line.commit()
            except failures:
                line.invalidate()
                raise
    except failures as problem:
        raise unavailable(problem) from None


def _begin(line: Any, dialect: str, *, reading: bool) -> None:
    """Writers of SQLite take the lock at once, readers of PostgreSQL see one snapshot."""
    if dialect == "sqlite":
        line.execute("BEGIN" if reading else "BEGIN IMMEDIATE")
        return
    import psycopg

    line.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ if reading else None


class _Compiled(NamedTuple):
    """A statement's text, the names of its positional values (None: by name) and fixed values."""

    text: str
    order: tuple[str, ...] | None
    fixed: Mapping[str, Any]

    def bind(self, values: Mapping[str, Any]) -> Mapping[str, Any] | Sequence[Any]:
        """The values as the driver takes them."""
        given = {**self.fixed, **values}
        for key, several in values.items():
            if isinstance(several, list):
                given |= {f"{key}_{n}": one for n, one in enumerate(given.pop(key), 1)}
        return given if self.order is None else [given[name] for name in self.order]


@lru_cache(maxsize=1024)
def _compiled(
    statement: Any, dialect: sql.Dialect, lengths: tuple[tuple[str, int], ...]
) -> _Compiled:
    compiled = statement.compile(dialect=dialect)
    fixed = {
        key: value.value if isinstance(value, Enum) else value
        for key, value in compiled.params.items()
        if value is not None
    }
    text, order = str(compiled), compiled.positiontup
    if lengths:
        several = {key: [None] * length for key, length in lengths}
        expanded = compiled.construct_expanded_state(dict.fromkeys(compiled.params) | several)
        text, order = expanded.statement, expanded.positiontup
    return _Compiled(text, None if order is None else tuple(order), fixed)


def migrate(engine: sql.Engine) -> None:
    """Upgrade the tables to this version's schema, if needed."""
    config, file = Config(), _file(engine)
    config.set_main_option("script_location", str(MIGRATIONS))
    if file is not None:
        with suppress(OSError):  # reported below
            file.touch(mode=0o600)  # -wal and -shm files get the same mode
    try:
        with engine.begin() as connection:
            if engine.dialect.name == "postgresql":  # one process at a time
                connection.execute(sql.text("SELECT pg_advisory_xact_lock(7461636974)"))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except SQLAlchemyError as problem:
        _log(problem)
        raise TacitError(_unusable(engine)) from None
    except CommandError:
        raise TacitError(
            "the database has the tables of another version of tacit: install that version, "
            "or restore the backup from before the upgrade"
        ) from None


def probe_directory(engine: sql.Engine) -> None:
    """Raise `Unavailable` if SQLite's directory has no disk space."""
    file = _file(engine)
    if file is None:
        return
    try:
        probe_disk(file.parent)
    except OSError as problem:
        LOG.error("database: %s", problem.strerror)
        raise Unavailable(_UNAVAILABLE) from None


def unavailable(problem: Exception) -> Unavailable:
    """Log the database's message without statement values; the caller gets a generic error."""
    _log(problem)
    return Unavailable(_UNAVAILABLE)


def _file(engine: sql.Engine) -> Path | None:
    """The file of an SQLite database."""
    named = engine.url.database if engine.dialect.name == "sqlite" else None
    return Path(named) if named else None


def _unusable(engine: sql.Engine) -> str:
    """The error message for the operator."""
    if engine.dialect.name == "sqlite":
        return (
            f"database {engine.url.database} is unusable: let this user write the file and its "
            "directory, free disk space, or set database to another file"
        )
    return (
        "the database is unusable: start it, correct its URL (database or TACIT_DATABASE), or "
        "let this user create tables"
    )


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
    """Migrations take the lock at the start of their transaction."""
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _log(problem: Exception) -> None:
    """Log the driver's message without statement and values, which SQLAlchemy's contains."""
    own = problem.orig if isinstance(problem, DBAPIError) else problem
    said = "" if isinstance(own, SQLAlchemyError) else str(own)
    LOG.error("database: %s", (said.strip() or type(problem).__name__).splitlines()[0])
