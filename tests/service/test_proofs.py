"""Two servers with range proofs, live: reports out of range are dropped, honest ones count."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.service.pairs import Pair, described

from tacit.aggregation.aggregator_context import Draw
from tacit.aggregation.announcements import accept
from tacit.aggregation.two_servers import (
    TwoServerRound,
    encrypt_shares,
    report_tag,
    word_digest,
)
from tacit.aggregation.wire import pack_numbers
from tacit.service.assignment import Assigned
from tacit.service.schema import Stage
from tacit.service.trust_models import HELPERS, coordinator_engine
from tacit.service.trust_models.two_servers import TwoServerCoordinator, TwoServerHelper
from tacit.vdaf import MODULUS


def _no_noise(_identity: bytes) -> Draw:
    return lambda _scale: 0


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    urls = (f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db")
    made = Pair(urls, tmp_path)
    made.options = made.helper_options = {"noise": _no_noise}
    made.restart()
    yield made
    made.close()


def _far(pair: Pair, digest: bytes, assigned: Assigned, numbers: int) -> tuple[bytes, bytes]:
    """A malicious report: additive shares of any number, with an honest proof of another one."""
    pinned = pair.coordinator.pinned(digest)
    announced = accept(TwoServerRound, pinned, assigned.announcement)
    assert announced.proofs is not None
    assert assigned.slot is not None
    words = (bytes(16), bytes([1]) * 16)
    tag = report_tag(
        announced.context, assigned.slot.number, (word_digest(words[0]), word_digest(words[1]))
    )
    first, second = announced.proofs.shard([1], tag, lambda size: bytes([7]) * size)
    element = len(pack_numbers([0], MODULUS))
    value = int.from_bytes(first[:element], "little")
    moved = ((value + numbers) % MODULUS).to_bytes(element, "little")
    return encrypt_shares(announced, assigned.slot, words, (moved + first[element:], second))


def _released(pair: Pair, digest: bytes) -> list[tuple[str, int, float]]:
    found = []
    for row in pair.coordinator.rounds(Stage.RELEASED):
        assert row.terms == digest
        option = pair.coordinator.terms(digest).terms.options[row.option]
        assert row.reports is not None
        assert row.total is not None
        found.append((option, row.reports, float(row.total.strip("[]"))))
    return found


def test_terms_with_proofs_use_the_two_server_engines(pair: Pair) -> None:
    digest = pair.begin(proofs=1)
    terms = pair.coordinator.terms(digest).terms
    assert terms.kind == "verified"
    assert coordinator_engine(terms) is TwoServerCoordinator
    assert HELPERS[terms.kind] is TwoServerHelper


def test_reports_with_proofs_are_summed_exactly_without_noise(pair: Pair) -> None:
    digest = pair.begin(proofs=1)
    pair.hold(digest, lambda option: int(option == "friendly"))
    released = _released(pair, digest)
    assert released
    assert all(
        total == (reports if option == "friendly" else 0) for option, reports, total in released
    )


def test_reports_out_of_range_are_dropped_and_the_round_is_released(pair: Pair) -> None:
    digest = pair.begin(proofs=1)
    pair.step(2)
    wanted = sum(one["places"] for one in pair.coordinator.status(digest)["rounds"])
    asked = pair.participants(digest, wanted)
    bad = [next(one for one in asked if one.option == option) for option in ("plain", "short")]
    for one in bad:
        pair.send(one, _far(pair, digest, one, 40))
    pair.report(digest, [one for one in asked if one not in bad], lambda _: 0)
    pair.clock.now += 200
    pair.step(3)
    released = _released(pair, digest)
    sent = {option: sum(one.option == option for one in asked) for option, _, _ in released}
    assert len(released) == 3
    for option, reports, total in released:
        assert total == 0, "a report out of range moved the sum"
        assert reports == sent[option] - (option in ("plain", "short"))


def test_without_proofs_the_same_reports_move_the_sum(pair: Pair) -> None:
    """What the proofs are for: one report of 40 counts as 40."""
    digest = pair.begin()
    pair.step(2)
    wanted = sum(one["places"] for one in pair.coordinator.status(digest)["rounds"])
    asked = pair.participants(digest, wanted)
    bad = next(one for one in asked if one.option == "plain")
    announced = described(bad)
    assert bad.slot is not None
    words, modulus = (bytes(16), bytes([1]) * 16), announced.modulus
    parts = (pack_numbers([3], modulus), pack_numbers([37 % modulus], modulus))
    pair.send(bad, encrypt_shares(announced, bad.slot, words, parts))
    pair.report(digest, [one for one in asked if one is not bad], lambda _: 0)
    pair.clock.now += 200
    pair.step(3)
    totals = {option: total for option, _, total in _released(pair, digest)}
    assert totals["plain"] == 40
