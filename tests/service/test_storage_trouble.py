"""A full disk or unavailable database: 503, no data lost, and recovery."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql
from tests.service.conftest import fresh
from tests.service.served import kept, served

from tacit.errors import TacitError
from tacit.service.http.serve import application
from tacit.service.party import ServerParty
from tacit.service.store import Store


def room(party: ServerParty, pages: int) -> None:
    """So many pages and no more, as on a disk that is full."""
    engine = party.store.engine
    engine.dispose()

    @sql.event.listens_for(engine, "connect")
    def limit(connection: Any, _record: object) -> None:
        connection.execute(f"PRAGMA max_page_count={pages}")


@contextmanager
def gone(url: str) -> Iterator[None]:
    """Disconnect and block all connections to this database."""
    where = sql.make_url(url)
    name = where.database
    engine = sql.create_engine(where.set(database="postgres"), isolation_level="AUTOCOMMIT")
    away = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
            connection.exec_driver_sql(away)
            yield
            connection.exec_driver_sql(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    finally:
        engine.dispose()


@pytest.mark.extended
def test_a_full_disk_is_a_503_and_acknowledged_reports_stay(tmp_path: Path) -> None:
    with served(tmp_path) as both:
        everybody = both.people(both.begin(), 60)
        with both.helper.store.engine.connect() as connection:
            pages = int(connection.exec_driver_sql("PRAGMA page_count").scalar_one())
        room(both.helper, pages + 1)
        said = [both.put(1, joined.path, shares[1]) for joined, shares in everybody]
        statuses = [one.status_code for one in said]
        assert set(statuses) == {204, 503}
        full = said[statuses.index(503)]
        assert full.headers["retry-after"] == "1"
        assert "nothing was changed" in full.json()["error"]
        assert kept(both.helper) == statuses.count(204)
        room(both.helper, pages + 10_000)
        again = [both.put(1, joined.path, shares[1]).status_code for joined, shares in everybody]
        assert set(again) == {204}
        assert kept(both.helper) == len(everybody)


def test_unreadable_key_files_are_a_503_without_a_path(tmp_path: Path) -> None:
    """In their place is something else, or nothing, or an empty directory, as where a volume is
    away for a while.
    """
    with served(tmp_path) as both:
        ((joined, shares),) = both.people(both.begin(), 1)
        records = both.members[1].config.records
        for instead in (Path.touch, lambda _: None, Path.mkdir):
            away = records.rename(records.with_name("away"))
            instead(records)
            outcome = f"/rounds/{joined.round.identity.hex()}/outcome"
            rejected = [both.put(1, joined.path, shares[1])]
            rejected += [both.get(1, path) for path in (outcome, "/readyz")]
            if records.is_file():
                records.unlink()
            away.rename(records)  # also over an empty directory
            assert [one.status_code for one in rejected] == [503] * 3
            assert str(tmp_path) not in "".join(one.text for one in rejected)
        assert both.put(1, joined.path, shares[1]).status_code == 204


@pytest.mark.extended
def test_a_party_with_moved_key_files_does_not_start(tmp_path: Path) -> None:
    """Where a volume is not mounted an empty directory is left, which must not be taken for one
    that has lost its keys; the party that lost them says so.
    """
    with served(tmp_path) as both:
        both.place(both.begin())
        configs = [one.config for one in both.members]
    for config in configs:
        config.records.rename(config.records.with_name("away"))
        config.records.mkdir()
        with pytest.raises(TacitError, match="mount its volume"):
            application(config)
        assert not list(config.records.iterdir())
        (config.records / "lock").touch()
        application(config)


@pytest.mark.extended
@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_an_unavailable_database_is_a_503_until_it_returns(
    tmp_path: Path, database: Callable[[str], str]
) -> None:
    urls = database("coordinator"), database("helper")
    with served(tmp_path, urls) as both:
        digest = both.begin()
        everybody = both.people(digest, 6)
        for joined, shares in everybody[:3]:
            assert both.put(0, joined.path, shares[0]).status_code == 204
        with gone(urls[0]):
            rejected = both.put(0, everybody[3][0].path, everybody[3][1][0])
            assert (rejected.status_code, rejected.headers["retry-after"]) == (503, "1")
            assert both.ask(digest).status_code == 503
            assert both.get(0, "/readyz").status_code == 503
            assert both.get(0, "/healthz").status_code == 200
            assert "tacit_requests_total" in both.get(0, "/metrics").text
        for joined, shares in everybody:
            assert both.put(0, joined.path, shares[0]).status_code == 204
        assert kept(both.coordinator) == len(everybody)
        assert both.get(0, "/readyz").status_code == 200


def test_an_unusable_database_at_the_start_is_named_with_a_remedy(tmp_path: Path) -> None:
    file = tmp_path / "helper.db"
    file.write_text("something else" * 100)
    with pytest.raises(TacitError, match="to another file") as rejection:
        Store(f"sqlite:///{file}").migrate()
    assert str(file) in str(rejection.value)
    assert "later" not in str(rejection.value)
    file.unlink()
    store = Store(f"sqlite:///{file}")
    store.migrate()
    with closing(sqlite3.connect(file)) as database:
        database.execute("UPDATE alembic_version SET version_num = 'from the future'")
        database.commit()
    with pytest.raises(TacitError, match="another version of tacit"):
        store.migrate()
    store.close()


@pytest.mark.extended
def test_the_tests_database_outlives_another_run_of_the_tests(
    postgresql: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A run that begins makes the directory of all runs private, also to the user of PostgreSQL."""
    tmp_path_factory.getbasetemp().parent.chmod(0o700)
    engine = sql.create_engine(fresh(postgresql)("probe"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql("CHECKPOINT")
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    engine.dispose()
