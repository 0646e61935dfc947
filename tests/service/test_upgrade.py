"""A party is rolled back to its backup; databases of earlier schemas are rejected."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sql
from tests.service.pairs import Pair, experiment_of

from tacit.errors import TacitError


def no_noise(_identity: bytes) -> Callable[[Fraction], int]:
    return lambda _scale: 0


@pytest.fixture
def running(make_pair: Callable[..., Pair]) -> tuple[Pair, bytes]:
    """Parties with an open round in which 20 participants have reported."""
    pair = make_pair(options={"noise": no_noise}, helper_options={"noise": no_noise})
    digest = pair.begin(experiment_of(700))
    pair.step(2)
    pair.report(digest, pair.participants(digest, 20), lambda _: 1)
    for store in pair.stores:
        store.close()
    return pair, digest


def finish(pair: Pair, digest: bytes) -> list[dict[str, Any]]:
    """All other participants report, and the rounds end; the first rounds."""
    rounds = pair.coordinator.status(digest)["rounds"]
    left = sum(one["places"] - one["given"] for one in rounds)
    pair.report(digest, pair.participants(digest, left), lambda _: 0)
    pair.clock.now += 200
    pair.step(3)
    return list(pair.coordinator.status(digest)["rounds"][: len(rounds)])


@pytest.mark.parametrize("revision", ["0002", "0003"])
def test_a_database_of_an_earlier_schema_is_rejected_with_a_remedy(
    running: tuple[Pair, bytes], revision: str
) -> None:
    store = running[0].stores[0]
    with store.engine.begin() as connection:
        connection.execute(sql.text(f"UPDATE alembic_version SET version_num = '{revision}'"))
    with pytest.raises(TacitError, match="install that version, or restore the backup"):
        store.migrate()


def test_a_rollback_to_the_backup_releases_nothing_twice(
    running: tuple[Pair, bytes],
) -> None:
    """The backup holds the round open; its key files say that it is over."""
    pair, digest = running
    if not pair.urls[0].startswith("sqlite"):
        pytest.skip("a PostgreSQL database is backed up by its own tools")
    files = [Path(url.removeprefix("sqlite:///")) for url in pair.urls]
    for file in files:
        shutil.copy(file, file.with_suffix(".backup"))
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
