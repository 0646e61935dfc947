"""Memory of a party after its rounds: nothing of rounds and participants remains."""

from __future__ import annotations

import asyncio
import gc
import platform
import subprocess
import sys
import time
import tracemalloc
from collections import Counter, OrderedDict, deque
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from tests.service import pairs
from tests.service.pairs import Pair, experiment_of, sqlite_pair
from tests.service.served import served, wait_for

from tacit.aggregation.aggregator import Aggregator
from tacit.service import pending, round_scheduler
from tacit.service.errors import Unknown
from tacit.service.http.reports import ReportRoute
from tacit.service.http.writer import GroupWriter
from tacit.service.schema import Stage
from tacit.service.store import AT_ONCE

PER_ROUND = 20  # objects of announcements, of which the last few hundred are remembered

HELD, PEAK = 150, 400  # bytes per report of rounds that close: until the answer, and for a moment


def alive() -> Counter[str]:
    """Objects of tacit's own kinds, by kind, and what is in all containers together."""
    gc.collect()
    found: Counter[str] = Counter()
    for one in gc.get_objects():
        kind = type(one)
        if str(kind.__module__).startswith("tacit."):
            found[kind.__qualname__] += 1
        elif kind in (dict, set, list, deque, OrderedDict):
            found["entries"] += len(one)
    return found


def over(pair: Pair, digest: bytes) -> set[str]:
    """The names of rounds that are over."""
    rounds = pair.coordinator.status(digest)["rounds"]
    return {one["round"] for one in rounds if one["stage"] in ("opened", "refused")}


def servers() -> set[str]:
    """The rounds that any party of this process still has a server of."""
    gc.collect()
    return {one.round.identity.hex() for one in gc.get_objects() if isinstance(one, Aggregator)}


def of_four_rounds(pair: Pair, digest: bytes) -> tuple[float, float]:
    """How much stays in containers per participant, and how many objects per round."""
    before, rounds = alive(), len(over(pair, digest))
    people = sum(pair.hold(digest, lambda option: int(option == "plain")) for _ in range(4))
    more, new = len(over(pair, digest)) - rounds, alive() - before
    assert more >= 4
    assert people >= 100 * more
    return new.pop("entries", 0) / people, sum(new.values()) / more


@pytest.mark.extended
def test_nothing_of_a_finished_round_is_kept_in_memory(tmp_path: Path) -> None:
    with sqlite_pair(tmp_path) as pair:
        digest = pair.begin(experiment_of(20_000))
        for _ in range(3):  # until all that is made once is there
            pair.hold(digest, lambda option: int(option == "plain"))
        seen = [of_four_rounds(pair, digest) for _ in range(3)]
        kept = [min(part) for part in zip(*seen, strict=True)]  # others add to it
        assert kept[0] < 1 / 2
        assert kept[1] <= PER_ROUND
        assert not servers() & over(pair, digest)


@pytest.mark.extended
def test_a_server_reloaded_by_a_late_request_is_released_again(tmp_path: Path) -> None:
    with sqlite_pair(tmp_path) as pair:
        digest = pair.begin()
        pair.step(2)
        looked = [(party, party.rounds(Stage.OPEN)) for party in (pair.coordinator, pair.helper)]
        pair.hold(digest, lambda _: 1)
        for party, rows in looked:
            for row in rows:
                party.serving(row)
        assert servers() & over(pair, digest)
        pair.step(1)
        assert not servers() & over(pair, digest)


@pytest.mark.extended
def test_servers_keep_nothing_of_participants_over_http(tmp_path: Path) -> None:
    with served(tmp_path) as both:
        digest = both.begin(experiment_of(20_000))

        def round_() -> int:
            reported = both.status(digest)["people"]["reported"]
            came = len(both.hold(digest, lambda _: 1))
            wait_for(lambda: both.status(digest)["people"]["reported"] >= reported + came)
            return came

        def grown() -> tuple[float, str]:
            """By how many objects per participant the kind grew that grew most in a round."""
            before = alive()
            people = round_()
            assert people >= 40
            for _ in range(20):  # parties clean up after they answer
                new = alive() - before
                del new["entries"]
                most = max(new, key=new.__getitem__, default="")
                if new[most] < people / 2:
                    break
                time.sleep(0.5)
            return new[most] / people, most

        round_()
        # announcements are remembered, also those of rounds that a busy machine aborts meanwhile
        assert min(grown() for _ in range(4))[0] < 1 / 2


def test_a_large_round_is_read_in_chunks(tmp_path: Path) -> None:
    """2 MB of shares in parts of 400 KB."""
    with sqlite_pair(tmp_path) as pair:
        identity = bytes(16)
        table = pending.PendingShares(pair.stores[0], identity)
        kept = {bytes([number]) * 16: bytes([number]) for number in range(1, 22)}
        assert list(table.items()) == []
        for name, content in kept.items():
            table.setdefault(name, content)
        pending.PendingShares(pair.stores[0], bytes([1]) * 16).setdefault(
            bytes(16), b"another round"
        )
        assert list(table.items()) == sorted(kept.items())
        tracemalloc.start()
        try:
            names = (number.to_bytes(16) for number in range(5 * AT_ONCE))
            table.update({bytes([200]) + name[1:]: bytes(2000) for name in names})
            tracemalloc.reset_peak()
            start = tracemalloc.get_traced_memory()[0]
            assert sum(len(content) for _, content in table.items()) == 2_000_021
            assert tracemalloc.get_traced_memory()[1] - start < 1_000_000
        finally:
            tracemalloc.stop()


@pytest.mark.extended
def test_closing_needs_little_memory_beyond_the_lists_of_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "EPSILON", Fraction(1, 16))
    with sqlite_pair(tmp_path) as pair:
        digest = pair.begin(experiment_of(20_000))
        pair.step(2)
        asked = pair.participants(digest, 5000)
        pair.report(digest, asked, lambda _: 1)
        people = len(asked)
        pair.clock.now += 200
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            pair.helper.step()
            gc.collect()  # tests collect rarely by themselves
            held, peak = (now - before for now in tracemalloc.get_traced_memory())
            tracemalloc.reset_peak()
            round_scheduler.step(pair.coordinator)
            highest = tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
        assert pair.coordinator.status(digest)["people"]["reported"] == people >= 1000
        assert held < HELD * people
        assert max(peak, highest) < PEAK * people


def test_a_round_is_loaded_once_for_concurrent_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sqlite_pair(tmp_path) as pair:
        pair.begin()
        pair.step(2)
        (identity, *_) = (bytes(row.identity) for row in pair.helper.rounds(Stage.OPEN))
        asked: list[bytes] = []
        party, find = pair.helper, pair.helper.round

        def counted(name: bytes) -> Any:
            asked.append(name)
            return find(name)

        monkeypatch.setattr(party, "round", counted)
        reports = ReportRoute(party, GroupWriter(10), lambda _: None)

        async def come(name: bytes) -> list[BaseException | None]:
            many = (reports._load_round(name) for _ in range(50))
            return await asyncio.gather(*many, return_exceptions=True)

        assert asyncio.run(come(identity)) == [None] * 50
        assert all(isinstance(one, Unknown) for one in asyncio.run(come(bytes(16))))
        assert asked == [identity, bytes(16)]
        assert party.is_loaded(identity)


BLOCKS = """
from pathlib import Path
from tacit.service.http.serve import trim_memory

def used():
    return int(Path("/proc/self/statm").read_text().split()[1])

trim_memory()
large = b"x" * 30_000_000
del large  # from here on the C library would think that such blocks are usual
before, held, between = used(), [], []
for _ in range(20):
    held.append(b"x" * 1_000_000)
    between.append(b"y" * 2_000)
most = used()
del held
print((most - before) > 0, (used() - before) / (most - before))
"""


@pytest.mark.extended
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library is left alone")
def test_memory_of_a_large_round_is_returned_to_the_system() -> None:
    """Though small things that stay lie between the blocks that are freed."""
    said = subprocess.run([sys.executable, "-c", BLOCKS], check=True, capture_output=True).stdout
    took, kept = said.split()
    assert took == b"True"
    assert float(kept) < 0.1
