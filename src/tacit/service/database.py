"""Connections to a party's database: SQLite in one file, or PostgreSQL by its URL.

Every commit is durable and deleted rows are overwritten. Errors for operators name the remedy;
callers get a generic error, and the log holds the database's own message without values.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

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
            "database is no usable URL: must be sqlite:///file.db or postgresql+psycopg://… "
            "For PostgreSQL install tacit[postgresql]."
        ) from None
    if engine.dialect.name == "sqlite":
        sql.event.listen(engine, "connect", _configure)
        sql.event.listen(engine, "begin", _begin_writing)
    elif engine.dialect.name != "postgresql":
        raise TacitError(f"database is {engine.dialect.name}: must be SQLite or PostgreSQL")
    return engine


def reader(engine: sql.Engine) -> sql.Engine:
    """The same database for transactions that only read, each from one snapshot."""
    if engine.dialect.name == "sqlite":
        return engine.execution_options(reading=True)
    return engine.execution_options(isolation_level="REPEATABLE READ")


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


def unavailable(problem: SQLAlchemyError) -> Unavailable:
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
    """Writers take the lock at the start of their transaction; readers take none."""
    reading = connection.get_execution_options().get("reading")
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


def _log(problem: SQLAlchemyError) -> None:
    said = str(problem.orig) if isinstance(problem, DBAPIError) else ""
    LOG.error("database: %s", (said.strip() or type(problem).__name__).splitlines()[0])
