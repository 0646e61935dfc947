"""A hundred thousand reports in one experiment: memory and rows do not grow."""

from __future__ import annotations

import gc
import os
import re
from pathlib import Path

import pytest
import sqlalchemy as sql
from tests.service.pairs import Pair, experiment_of, sqlite_pair

from tacit.service import schema
from tacit.service.http.serve import trim_memory

AT_ONCE = 500  # participants of one transaction
GROWTH = 24 << 20  # bytes: what closing the largest round may leave in the allocator


def resident() -> int:
    """Bytes of this process in memory."""
    gc.collect()
    told = Path("/proc/self/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", told)[1]) << 10  # type: ignore[index]


def rows(pair: Pair) -> int:
    """Rows of participants at both parties, and slot counters beyond those of the open rounds."""
    found = -len(pair.coordinator.rounds(schema.Stage.OPEN))
    for own in pair.stores:
        with own.begin() as transaction:
            for table in (schema.shares, schema.joins, schema.slot_shards, schema.spent):
                count = sql.select(sql.func.count()).select_from(table)
                found += int(transaction.rows(count)[0][0])
    return found


def play(pair: Pair, digest: bytes) -> int:
    """All slots of the open rounds report, in groups; then the rounds end."""
    pair.step(2)
    wanted: int = sum(
        one["places"] - one["given"]
        for one in pair.coordinator.status(digest)["rounds"]
        if one["stage"] == "open"
    )
    for at in range(0, wanted, AT_ONCE):
        pair.report(digest, pair.participants(digest, min(AT_ONCE, wanted - at)), lambda _: 1)
    pair.clock.now += 200
    pair.step(3)
    return wanted


@pytest.mark.slow
def test_a_hundred_thousand_reports_leave_no_memory_and_no_rows(tmp_path: Path) -> None:
    reports = int(os.environ.get("TACIT_REPORTS", "100000"))
    trim_memory()
    with sqlite_pair(tmp_path) as pair:
        digest = pair.begin(experiment_of(4 * reports))
        came, halfway = 0, 0
        while came < reports:
            came += play(pair, digest)
            assert rows(pair) == 0
            if not halfway and came >= reports // 3:
                halfway = resident()
        status = pair.coordinator.status(digest)
        assert status["people"]["reported"] == came
        assert resident() - halfway < GROWTH
