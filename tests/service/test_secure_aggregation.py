"""Live rounds of secure aggregation: sums, declared noise, dropouts at each stage, crashes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.service.deployed import definition_of, deployed, stage_message
from tests.service.pairs import TIMING, Clock

from tacit.aggregation.graph import security
from tacit.aggregation.masking import MaskingRound
from tacit.aggregation.two_servers import RoundOutcome, read_outcome
from tacit.algorithms.registry import begin
from tacit.client.entries import OpenParticipation
from tacit.client.exchange import Reply
from tacit.client.trust_models.masking import MaskingReporter, _key, share
from tacit.errors import Rejected, TacitError
from tacit.experiment import Experiment
from tacit.noise import DiscreteLaplace
from tacit.records import RecordDirectory
from tacit.rounds.stated_noise import minimum_noise
from tacit.service import round_scheduler
from tacit.service.assignment import Assigned, Ticket
from tacit.service.coordinator import Coordinator
from tacit.service.schema import Stage
from tacit.service.store import Store
from tacit.service.trust_models.masking import neighbourhood_for
from tacit.signatures import public_key
from tacit.terms import Aggregation, Answer, Party, StatedGuarantee, Terms
from tacit.testing.statistics import chi_square_p_value
from tacit.trust import MASKING_SECURITY, TrustModel

OPTIONS = ("plain", "friendly")
MISSING, DISHONEST = Fraction(1, 5), Fraction(1, 10)
ISSUER = Ed25519PrivateKey.from_private_bytes(bytes([9]) * 32)


def experiment_of(horizon: int = 400) -> Experiment:
    return begin(
        "private-med",
        OPTIONS,
        horizon=horizon,
        epsilon=1.0,
        trust="secure-aggregation",
        binary=True,
        dropout=float(MISSING),
        corrupt=float(DISHONEST),
        smallest=64,
    )


class Single:
    """A coordinator alone, with devices that answer its stages."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.clock = directory, Clock()
        self.key = Ed25519PrivateKey.from_private_bytes(bytes([1]) * 32)
        self.store = Store(f"sqlite:///{directory}/a.db")
        self.store.migrate()
        self.restart()

    def restart(self) -> None:
        records = RecordDirectory(self.directory / "keys")
        self.coordinator = Coordinator(self.key, self.store, records, clock=self.clock)

    def begin(self) -> bytes:
        experiment = experiment_of()
        protocol = experiment.open(experiment.propose()[0])
        terms = Terms(
            question="Which greeting do people like?",
            options=OPTIONS,
            answer=Answer("1 if you liked it, 0 if not", window=30),
            guarantee=StatedGuarantee(Fraction(1), Fraction(1, 2**30)),
            noise=minimum_noise(protocol),
            parties=(Party("coordinator", "https://coordinator.example", public_key(self.key)),),
            first_day=date(2027, 1, 15),
            last_day=date(2027, 12, 31),
            trust=TrustModel.SECURE_AGGREGATION,
            aggregation=Aggregation(40, MISSING, 1, DISHONEST),
        )
        digest = self.coordinator.create(terms, experiment, TIMING)
        self.step(2)
        return digest

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            round_scheduler.step(self.coordinator)

    def devices(self, digest: bytes, level: Callable[[str], int]) -> list[Phone]:
        """All slots of the open rounds are taken."""
        rounds = self.coordinator.status(digest)["rounds"]
        wanted = sum(one["places"] - one["given"] for one in rounds if one["stage"] == "open")
        found = self.coordinator.join([Ticket(digest, os.urandom(16)) for _ in range(wanted)])
        asked = [one for one in found if isinstance(one, Assigned) and one.slot is not None]
        return [Phone(self, digest, one, level(one.option)) for one in asked]


class Phone:
    """One device's reporter over direct calls instead of HTTP."""

    def __init__(self, single: Single, digest: bytes, assigned: Assigned, level: int) -> None:
        assert assigned.slot is not None
        self.single, self.option = single, assigned.option
        pinned = single.coordinator.pinned(digest)
        self.reporter = MaskingReporter()
        announced = self.reporter.announced(pinned, assigned.announcement)
        assert isinstance(announced, MaskingRound)
        self.round = announced
        seed = os.urandom(32)
        self.running = OpenParticipation(
            announced.identity,
            pinned,
            assigned.announcement,
            assigned.slot,
            seed,
            0.0,
            None,
            (level,),
            (),
        )

    def join(self) -> None:
        ((_, message),) = self.reporter.encode(self.running).items()
        party, slot = self.single.coordinator, self.running.slot.number
        (rejection,) = party.keep([party.report(self.round.identity, slot, message)])
        if rejection is not None:
            raise rejection

    def answer(self) -> bool:
        """Answer as the device does; whether it is still in the round."""
        talk = self.reporter.stages(self.running, "http://c", self.single.clock.now)
        try:
            request = next(talk)
            while True:
                request = talk.send(self._reply(request.method, request.url, request.content))
        except StopIteration as done:
            return bool(done.value)

    def _reply(self, method: str, url: str, content: bytes | None) -> Reply:
        party, identity = self.single.coordinator, self.round.identity
        try:
            if method == "GET":
                *_, address, after = url.split("/")
                said = stage_message(party, identity, bytes.fromhex(address), int(after))
                return Reply(200, said) if said else Reply(204)
            assert content is not None
            (rejection,) = party.keep([party.answer(identity, self.running.slot, content)])
            return Reply(204 if rejection is None else 409)
        except TacitError:
            return Reply(410)


@pytest.fixture
def single(tmp_path: Path) -> Iterator[Single]:
    made = Single(tmp_path)
    yield made
    made.store.close()


def finish(single: Single, phones: list[Phone], stages: int = 12) -> None:
    """The deadline passes, then devices answer until every round is over."""
    single.clock.now += 200
    for _ in range(stages):
        single.step()
        phones = [phone for phone in phones if phone.answer()]
        if not single.coordinator.rounds(Stage.OPEN, Stage.CLOSING):
            return


def released(single: Single) -> list[tuple[str, int, float]]:
    return [
        (OPTIONS[row.option], row.reports or 0, float((row.total or "").strip("[]")))
        for row in single.coordinator.rounds(Stage.RELEASED)
    ]


@pytest.mark.extended
def test_secure_aggregation_finds_the_best_option(single: Single) -> None:
    digest = single.begin()
    while phones := single.devices(digest, lambda option: int(option == "friendly")):
        for phone in phones:
            phone.join()
        finish(single, phones)
        single.step(2)
    status = single.coordinator.status(digest)
    assert status["state"] == "finished"
    assert {one["stage"] for one in status["rounds"]} == {"opened"}
    for option, reports, total in released(single):
        assert abs(total - reports * (option == "friendly")) < 40


@pytest.mark.parametrize(
    "stage", [3, *(pytest.param(one, marks=pytest.mark.extended) for one in (0, 1, 2, 4))]
)
def test_a_fifth_may_drop_out_before_each_stage(single: Single, stage: int) -> None:
    digest = single.begin()
    phones = single.devices(digest, lambda _: 1)
    by_round = {
        phone.round.identity: [p for p in phones if p.round == phone.round] for phone in phones
    }
    gone = [one for several in by_round.values() for one in several[: len(several) // 5]]
    for phone in phones:
        if stage or phone not in gone:
            phone.join()
    single.clock.now += 200
    for number in range(1, 60):
        single.step()
        for phone in phones:
            if phone not in gone or number < stage:
                phone.answer()
        single.clock.now += 20  # a stage lasts at most a part of the grace
        if not single.coordinator.rounds(Stage.OPEN, Stage.CLOSING):
            break
    assert len(released(single)) == len(by_round)
    for _, reports, total in released(single):
        assert abs(total - reports) < 40


def test_too_many_dropouts_abort_the_round_without_release(single: Single) -> None:
    digest = single.begin()
    phones = single.devices(digest, lambda _: 1)
    for phone in phones[: len(phones) // 2]:
        phone.join()
    finish(single, phones[: len(phones) // 2])
    assert not released(single)
    pinned = single.coordinator.pinned(digest)
    for row in single.coordinator.rounds(Stage.ABORTED):
        described = MaskingReporter().announced(pinned, row.announcement)
        said = single.coordinator.outcome(row.identity)
        assert read_outcome(pinned, described, said) == (0, RoundOutcome.ABORTED)
        assert not MaskingReporter().refunds(pinned, row.announcement, [said])


@pytest.mark.extended
def test_the_coordinator_can_be_killed_between_any_steps(single: Single) -> None:
    digest = single.begin()
    phones = single.devices(digest, lambda option: int(option == "plain"))
    for number, phone in enumerate(phones):
        phone.join()
        if number % 20 == 0:
            single.restart()
    single.clock.now += 200
    for _ in range(12):
        single.restart()
        single.step()
        for phone in phones:
            phone.answer()
        single.restart()
        single.step()
        if not single.coordinator.rounds(Stage.OPEN, Stage.CLOSING):
            break
    found = released(single)
    assert sum(reports for _, reports, _ in found) == len(phones), "each report counts once"
    for option, reports, total in found:
        assert abs(total - reports * (option == "plain")) < 40
    for row in single.coordinator.rounds(Stage.RELEASED):
        with single.store.read() as transaction:
            assert transaction.count_shares(row.identity) == 0, "messages remain"


def test_shares_of_all_devices_sum_to_the_stated_noise(single: Single) -> None:
    """400 sums of honest shares follow the discrete Laplace distribution (rate 1e-6)."""
    digest = single.begin()
    phone = single.devices(digest, lambda _: 0)[0]
    terms, announced = phone.running.pinned.terms, phone.round
    sums = [
        sum(share(terms, announced) for _ in range(announced.noise.divisor)) for _ in range(400)
    ]
    stated = DiscreteLaplace(announced.noise.total)
    assert chi_square_p_value(sums, stated) > 1e-6
    half = DiscreteLaplace(announced.noise.total / 2)
    assert chi_square_p_value(sums, half) < 1e-6, "half of the noise would be noticed"
    assert np.std(sums) > 0


def test_a_device_rejects_weaker_rounds(single: Single) -> None:
    digest = single.begin()
    phone = single.devices(digest, lambda _: 0)[0]
    pinned, announced = phone.running.pinned, phone.round
    pinned.check(announced.offer())
    noise = announced.noise
    for weaker in (
        replace(announced, noise=replace(noise, total=noise.total / 2)),
        replace(announced, noise=replace(noise, divisor=noise.divisor + 9)),
        replace(announced, minimum=announced.minimum - 9),
        replace(announced, grace=announced.grace + 86_400),
    ):
        with pytest.raises(Rejected):
            pinned.check(weaker.offer())
    assert MASKING_SECURITY == 40


@pytest.mark.parametrize("slots", [6, 21, 24, 29, 42, 63, 105])
def test_every_planned_round_meets_the_threat_model_of_the_terms(slots: int) -> None:
    """Clients are counted exactly: the float of 2/21 is a little less, so 1 of 21."""
    about = Aggregation(slots, Fraction(0), 1, DISHONEST)
    among = neighbourhood_for(about, slots, about.minimum_batch_size)
    found = security(among, slots, about.minimum_batch_size, about.dishonest(slots))
    assert found.bits >= MASKING_SECURITY


def test_messages_need_a_slot_and_are_stored_once(single: Single) -> None:
    digest = single.begin()
    phones = single.devices(digest, lambda _: 0)
    for phone in phones:
        phone.join()
    single.clock.now += 200
    single.step()
    phone, other = phones[:2]
    client = phone.reporter._sessions[_key(phone.running)].client
    party, identity = single.coordinator, phone.round.identity
    setup = stage_message(party, identity, client.address, 0)
    answer = client.share(setup)
    with pytest.raises(Rejected, match="another token"):
        party.answer(identity, replace(phone.running.slot, token=bytes(16)), answer)
    assert party.keep([party.answer(identity, phone.running.slot, answer)]) == [None]
    assert party.keep([party.answer(identity, phone.running.slot, answer)]) == [None]
    changed = answer[:-1] + bytes([answer[-1] ^ 1])
    (rejection,) = party.keep([party.answer(identity, phone.running.slot, changed)])
    assert rejection is not None
    with pytest.raises(Rejected):
        stage_message(party, identity, os.urandom(32), 0)
    assert other.answer()


@pytest.mark.extended
def test_every_process_of_a_coordinator_serves_stage_messages(single: Single) -> None:
    """One process leads; devices reach any of them, and are no dropouts with the others."""
    digest = single.begin()
    phones = single.devices(digest, lambda _: 1)
    leader = single.coordinator
    single.restart()
    follower = single.coordinator
    for phone in phones:
        phone.join()
    single.clock.now += 200
    for _ in range(12):
        round_scheduler.step(leader)
        single.coordinator = follower
        phones = [phone for phone in phones if phone.answer()]
        if not leader.rounds(Stage.OPEN, Stage.CLOSING):
            break
    assert sum(reports for _, reports, _ in released(single)) > 0
    assert not leader.rounds(Stage.ABORTED)


def exchanged(phone: Phone, said: bytes, most: int = 100) -> int:
    """The requests of a device to a coordinator that always has this message for it."""
    talk = phone.reporter.stages(phone.running, "http://c", phone.single.clock.now)
    request, count = next(talk), 1
    with suppress(StopIteration):
        while count < most:
            reply = Reply(200, said) if request.method == "GET" else Reply(204)
            request, count = talk.send(reply), count + 1
    return count


def test_a_device_limits_its_answers_to_a_round_in_number_and_time(single: Single) -> None:
    """Round keys live for the grace of the terms: masks may not be asked for later."""
    digest = single.begin()
    phones = single.devices(digest, lambda _: 1)
    for phone in phones:
        phone.join()
    single.clock.now += 200
    single.step()
    first, second = phones[:2]
    session = first.reporter._sessions[_key(first.running)]
    setup = stage_message(single.coordinator, first.round.identity, session.client.address, 0)
    assert exchanged(first, setup) < 20, "the same message again and again"
    assert not first.reporter._sessions
    single.clock.now = second.round.binding.closes + second.round.grace
    with pytest.raises(StopIteration) as ended:
        next(second.reporter.stages(second.running, "http://c", single.clock.now))
    assert not ended.value.value
    assert not second.reporter._sessions, "keys and numbers are forgotten"


@pytest.mark.parametrize(("status", "goes_on"), [(404, False), (429, True), (503, True), (0, True)])
def test_a_device_leaves_a_rejecting_round_and_retries_a_busy_one(
    single: Single, status: int, goes_on: bool
) -> None:
    phone = single.devices(single.begin(), lambda _: 1)[0]
    phone.join()
    talk = phone.reporter.stages(phone.running, "http://c", single.clock.now)
    next(talk)
    with pytest.raises(StopIteration) as ended:
        talk.send(Reply(status))
    assert ended.value.value is goes_on
    assert bool(phone.reporter._sessions) is goes_on


@pytest.mark.parametrize("epsilon", [Fraction(5), Fraction(8)])
def test_noise_of_a_tiny_variance_is_stated_no_smaller(tmp_path: Path, epsilon: Fraction) -> None:
    """Found: the variance was a double with a denominator that terms cannot hold."""
    about = {"algorithm": "dist-rdp-se", "epsilon": epsilon, "delta": Fraction(1, 10**6)}
    defined = definition_of("secure-aggregation", min_batch_size=100, missing=Fraction(0), **about)
    with deployed(defined, tmp_path) as one:
        one.step(2)
        assert one.coordinator.rounds(Stage.OPEN)
        stated = one.pinned.terms.noise.least
    protocol: Any = defined.experiment().mechanism.example()
    variance = Fraction(protocol.distribution.variance)
    assert variance <= stated < variance * (1 + Fraction(1, 10**9)) < 1
