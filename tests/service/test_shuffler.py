"""Live rounds through a shuffler: exact counts, declared noise, one release, nothing linkable."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from tests.service.fronted import fronted, small
from tests.service.pairs import TIMING, Pair

from tacit.aggregation.shuffler import ShufflerRound
from tacit.aggregation.two_servers import RoundOutcome, read_outcome
from tacit.algorithms.registry import begin
from tacit.client.entries import OpenParticipation, ParticipationOutcome
from tacit.client.trust_models.shuffler import ShufflerReporter, randomized
from tacit.errors import Rejected
from tacit.experiment import Experiment
from tacit.rounds.stated_noise import minimum_noise
from tacit.service.assignment import Assigned
from tacit.service.schema import Stage
from tacit.terms import Aggregation, Answer, Party, StatedGuarantee, Terms
from tacit.trust import TrustModel

OPTIONS = ("plain", "friendly", "short")
EPSILON, DELTA = Fraction(1), Fraction(1, 1000)
MISSING, DISHONEST = Fraction(1, 5), Fraction(1, 10)


def experiment_of(horizon: int = 1200) -> Experiment:
    return begin(
        "private-med",
        OPTIONS,
        horizon=horizon,
        epsilon=float(EPSILON),
        delta=float(DELTA),
        trust="shuffler",
        binary=True,
        dropout=float(MISSING),
        corrupt=float(DISHONEST),
        smallest=64,
    )


def terms_of(pair: Pair, experiment: Experiment) -> Terms:
    protocol = experiment.open(experiment.propose()[0])
    parties = (("analyzer", pair.keys[0]), ("shuffler", pair.keys[1]))
    return Terms(
        question="Which greeting do people like?",
        options=OPTIONS,
        answer=Answer("1 if you liked it, 0 if not", window=30),
        guarantee=StatedGuarantee(EPSILON, DELTA),
        noise=minimum_noise(protocol),
        parties=tuple(Party(role, f"https://{role}.example", key) for role, key in parties),
        first_day=date(2027, 1, 15),
        last_day=date(2027, 12, 31),
        trust=TrustModel.SHUFFLER,
        aggregation=Aggregation(40, MISSING, 1, DISHONEST),
    )


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    urls = (f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db")
    made = Pair(urls, tmp_path)
    yield made
    made.close()


def began(pair: Pair) -> bytes:
    experiment = experiment_of()
    digest = pair.coordinator.create(terms_of(pair, experiment), experiment, TIMING)
    pair.cosign(digest)
    pair.step(2)
    return digest


def announced(pair: Pair, digest: bytes, one: Assigned) -> ShufflerRound:
    return ShufflerReporter().announced(pair.coordinator.pinned(digest), one.announcement)


def encoded(pair: Pair, digest: bytes, one: Assigned, level: int) -> bytes:
    """A device's request: its own noise, encrypted."""
    assert one.slot is not None
    pinned = pair.coordinator.pinned(digest)
    identity = announced(pair, digest, one).identity
    running = OpenParticipation(
        identity, pinned, one.announcement, one.slot, os.urandom(32), 0.0, None, (level,), ()
    )
    ((role, message),) = ShufflerReporter().encode(running).items()
    assert pinned.terms.parties[role].role == "shuffler"
    return message


def send(pair: Pair, digest: bytes, one: Assigned, message: bytes) -> None:
    assert one.slot is not None
    identity = announced(pair, digest, one).identity
    waiting = pair.helper.report(identity, one.slot.number, message)
    (rejection,) = pair.helper.keep([waiting])
    if rejection is not None:
        raise rejection


def everybody(pair: Pair, digest: bytes) -> list[Assigned]:
    rounds = pair.coordinator.status(digest)["rounds"]
    wanted = sum(one["places"] - one["given"] for one in rounds if one["stage"] == "open")
    return pair.participants(digest, wanted)


def held(pair: Pair, digest: bytes, level: Callable[[str], int], come: float = 1.0) -> int:
    """All slots of the open rounds are taken; this part of them reports, then rounds close."""
    asked = everybody(pair, digest)
    for one in asked[: int(come * len(asked))]:
        send(pair, digest, one, encoded(pair, digest, one, level(one.option)))
    pair.clock.now += 200
    pair.step(3)
    return len(asked)


@pytest.mark.extended
def test_a_shuffler_experiment_finds_the_best_option(pair: Pair) -> None:
    digest = began(pair)
    while held(pair, digest, lambda option: int(option == "friendly")):
        pass
    status = pair.coordinator.status(digest)
    assert status["state"] == "finished"
    assert {one["stage"] for one in status["rounds"]} == {"opened"}
    totals = {
        (row.option, row.reports): float((row.total or "[nan]").strip("[]"))
        for row in pair.coordinator.rounds(Stage.RELEASED)
    }
    assert all(
        abs(total - (reports or 0) * (OPTIONS[option] == "friendly")) < 60
        for (option, reports), total in totals.items()
    )
    assert pair.join(digest).option == "friendly", "the best option, without a slot"


def test_complete_rounds_close_before_their_deadline(pair: Pair) -> None:
    digest = began(pair)
    asked = everybody(pair, digest)
    for one in asked[1:]:
        send(pair, digest, one, encoded(pair, digest, one, 0))
    missing = announced(pair, digest, asked[0]).identity
    pair.step(3)
    assert [row.identity for row in pair.coordinator.rounds(Stage.OPEN)] == [missing]
    send(pair, digest, asked[0], encoded(pair, digest, asked[0], 0))
    pair.step(3)
    assert missing in {row.identity for row in pair.coordinator.rounds(Stage.RELEASED)}


def test_devices_draw_the_announced_noise(pair: Pair) -> None:
    """4,000 reports of one level; the number of ones is binomial (false positive rate 1e-6)."""
    digest = began(pair)
    one = everybody(pair, digest)[0]
    found = announced(pair, digest, one)
    bits, bias = found.messages - 1, float(found.noise.total)
    for level in (0, 1):
        drawn = np.array([sum(randomized(found, level)) - level for _ in range(4000)])
        total = int(drawn.sum())
        assert stats.binomtest(total, 4000 * bits, bias).pvalue > 1e-6
        assert stats.binomtest(total, 4000 * bits, bias / 2).pvalue < 1e-9, "half the noise"
        assert total > 0, "no noise"
        assert len(set(drawn.tolist())) > 1, "one draw, reused"


def test_a_device_rejects_a_round_with_less_noise(pair: Pair) -> None:
    digest = began(pair)
    one = everybody(pair, digest)[0]
    found = announced(pair, digest, one)
    pinned = pair.coordinator.pinned(digest)
    weaker = (
        replace(found, noise=replace(found.noise, total=found.noise.total / 2)),
        replace(found, noise=replace(found.noise, divisor=found.noise.divisor + 60)),
        replace(found, messages=found.messages - 1),
        replace(found, minimum=found.minimum - 20),
    )
    pinned.check(found.offer())
    for offer in weaker:
        with pytest.raises(Rejected):
            pinned.check(offer.offer())


def test_a_round_with_too_many_missing_reports_is_aborted_by_both(pair: Pair) -> None:
    digest = began(pair)
    asked = everybody(pair, digest)
    for one in asked[: len(asked) // 2]:
        send(pair, digest, one, encoded(pair, digest, one, 0))
    pair.clock.now += 200
    pair.step(3)
    rows = pair.coordinator.rounds(Stage.ABORTED)
    assert rows
    pinned = pair.coordinator.pinned(digest)
    for row in rows:
        described = ShufflerReporter().announced(pinned, row.announcement)
        outcomes = [party.outcome(row.identity) for party in (pair.coordinator, pair.helper)]
        assert [read_outcome(pinned, described, said) for said in outcomes] == [
            (0, RoundOutcome.ABORTED),
            (1, RoundOutcome.ABORTED),
        ]
        assert ShufflerReporter().refunds(pinned, row.announcement, outcomes)
        assert not ShufflerReporter().refunds(pinned, row.announcement, outcomes[:1])


def test_a_round_aborted_by_both_parties_is_refunded(tmp_path: Path) -> None:
    """The device asked the shuffler only, which got its report, so nothing was ever refunded."""
    with fronted(small("shuffler"), tmp_path) as one:
        one.step(3)
        device = one.device()
        assert device.join(one.digest).asked
        one.clock.now += 45
        device.run_due()
        assert device.ledger.spent > 0
        (sent,) = device.status()[0].shares
        assert (sent.size > 0, sent.address) == (True, one.pinned.terms.parties[1].address)
        for _ in range(8):
            one.clock.now += 60
            one.step(2)
            device.run_due()
        assert device.status()[0].outcome == ParticipationOutcome.ABORTED
        assert device.ledger.spent == 0


def test_reports_are_accepted_once_per_slot_by_the_shuffler_only(pair: Pair) -> None:
    digest = began(pair)
    one, other = everybody(pair, digest)[:2]
    message = encoded(pair, digest, one, 1)
    send(pair, digest, one, message)
    send(pair, digest, one, message)
    with pytest.raises(Rejected, match="a different report for this slot"):
        send(pair, digest, one, encoded(pair, digest, one, 1))
    assert one.slot is not None
    assert other.slot is not None
    identity = announced(pair, digest, one).identity
    with pytest.raises(Rejected, match="go to the shuffler"):
        pair.coordinator.report(identity, one.slot.number, message)
    forged = (one.slot.number + 1).to_bytes(4, "big") + message[4:]
    with pytest.raises(Rejected, match="another token"):
        pair.helper.report(identity, one.slot.number + 1, forged)
    with pytest.raises(Rejected, match="bytes long"):
        pair.helper.report(identity, one.slot.number, message + b"x")


def test_a_crash_anywhere_releases_each_round_once(pair: Pair) -> None:
    """Both parties restart between all steps; the helper is away while the round closes."""
    digest = began(pair)
    asked = everybody(pair, digest)
    for one in asked:
        send(pair, digest, one, encoded(pair, digest, one, int(one.option == "short")))
        if one is asked[3]:
            pair.restart()
    pair.clock.now += 200
    pair.link.down = True
    pair.step(2)
    assert not pair.coordinator.rounds(Stage.RELEASED)
    pair.restart()
    batches = {}
    for row in pair.helper.rounds(*Stage):
        batches[row.identity] = pair.helper.exchange(row.identity, b"")[1]
        pair.restart()
        assert pair.helper.exchange(row.identity, b"")[1] == batches[row.identity]
    for _ in range(3):
        pair.step(1)
        pair.restart()
    rows = pair.coordinator.rounds(Stage.RELEASED)
    assert {row.identity for row in rows} == set(batches)
    assert sum(row.reports or 0 for row in rows) == len(asked)
    for row in rows:
        with pair.stores[1].read() as transaction:
            assert transaction.count_shares(row.identity) == 0, "envelopes remain"


def test_a_batch_is_deleted_once_the_analyzer_received_it(pair: Pair) -> None:
    digest = began(pair)
    held(pair, digest, lambda _: 0)
    (row, *_) = pair.coordinator.rounds(Stage.RELEASED)
    _, said = pair.helper.exchange(row.identity, b"")
    pinned = pair.coordinator.pinned(digest)
    described = ShufflerReporter().announced(pinned, row.announcement)
    assert read_outcome(pinned, described, said) == (1, RoundOutcome.RELEASED)
