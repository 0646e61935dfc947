"""Databases of the first schema are upgraded while a round is open, and rolled back by a backup."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql
from alembic import command
from alembic.config import Config
from tests.service.pairs import Pair, described, experiment_of

from tacit.service.database import MIGRATIONS
from tacit.service.store import Store

FIRST = "0002"  # the schema of 0.2.0


def silent(_identity: bytes) -> Callable[[Fraction], int]:
    return lambda _scale: 0


def downgrade(url: str) -> None:
    """The database as the first schema holds it."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with closing(Store(url)) as store, store.engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, FIRST)


def tables(url: str) -> set[str]:
    with closing(Store(url)) as store:
        return set(sql.inspect(store.engine).get_table_names())


@pytest.fixture
def old(make_pair: Callable[..., Pair]) -> tuple[Pair, bytes, list[tuple[bytes, int]]]:
    """Parties whose databases have the first schema and an open round; the slots that are taken."""
    pair = make_pair(options={"noise": silent}, helper_options={"noise": silent})
    digest = pair.begin(experiment_of(700))
    pair.step(2)
    came = pair.crowd(digest, 20)
    pair.report(digest, came, lambda _: 1)
    taken = [(described(one).identity, one.slot.number) for one in came if one.slot is not None]
    for store, url in zip(pair.stores, pair.urls, strict=True):
        store.close()
        downgrade(url)
        assert not {"slot_shards", "leases"} & tables(url)
    return pair, digest, taken


def finish(pair: Pair, digest: bytes) -> list[dict[str, Any]]:
    """Everybody else comes, and the rounds end; the first rounds."""
    rounds = pair.coordinator.status(digest)["rounds"]
    left = sum(one["places"] - one["given"] for one in rounds)
    pair.report(digest, pair.crowd(digest, left), lambda _: 0)
    pair.clock.now += 200
    pair.step(3)
    return list(pair.coordinator.status(digest)["rounds"][: len(rounds)])


def test_an_upgrade_goes_on_with_the_open_round(
    old: tuple[Pair, bytes, list[tuple[bytes, int]]],
) -> None:
    pair, digest, taken = old
    for store in pair.stores:
        store.migrate()
        store.migrate()  # once more changes nothing
    pair.restart()
    rounds = pair.coordinator.status(digest)["rounds"]
    assert sum(one["given"] for one in rounds) == len(taken)
    more = pair.crowd(digest, 5)
    new = [(described(one).identity, one.slot.number) for one in more if one.slot is not None]
    assert len(set(taken) | set(new)) == len(taken) + 5  # no slot is assigned twice
    pair.report(digest, more, lambda _: 0)
    ended = finish(pair, digest)
    assert {one["stage"] for one in ended} == {"opened"}
    assert sum(float(one["sums"][0]) for one in ended) == len(taken)


def test_a_rollback_to_the_backup_releases_nothing_twice(
    old: tuple[Pair, bytes, list[tuple[bytes, int]]],
) -> None:
    """The backup holds the round open; its key files say that it is over."""
    pair, digest, _ = old
    if not pair.urls[0].startswith("sqlite"):
        pytest.skip("a PostgreSQL database is backed up by its own tools")
    files = [Path(url.removeprefix("sqlite:///")) for url in pair.urls]
    for file in files:
        shutil.copy(file, file.with_suffix(".backup"))
    for store in pair.stores:
        store.migrate()
    pair.restart()
    before = finish(pair, digest)
    outcomes = [pair.helper.outcome(bytes.fromhex(str(one["round"]))) for one in before]
    for store, file in zip(pair.stores, files, strict=True):
        store.close()
        for more in ("-wal", "-shm"):
            file.with_name(file.name + more).unlink(missing_ok=True)
        shutil.copy(file.with_suffix(".backup"), file)
        store.migrate()
    pair.restart()
    pair.step(4)
    after = pair.coordinator.status(digest)["rounds"][: len(before)]
    for one, known, outcome in zip(after, before, outcomes, strict=True):
        assert one["sums"] in (None, known["sums"])
        assert pair.helper.outcome(bytes.fromhex(one["round"])) == outcome
