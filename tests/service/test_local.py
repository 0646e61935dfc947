"""The local trust model, live: one process, no helper, noise on the device."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import pytest
from scipy.stats import binom
from tests.service.deployed import ADDRESSES, KEYS, SECRETS, Deployed, definition_of, deployed
from tests.service.fronted import StillDriver, fronted
from tests.service.served import ADMIN

import tacit.client.trust_models.local as device_side
from tacit.aggregation.interface import new_identity
from tacit.aggregation.local import (
    LocalRound,
    LocalServer,
    abandon_local,
    encrypt_report,
    endorse_local,
    local_outcome,
    prepare_local,
)
from tacit.aggregation.two_servers import RoundOutcome, read_outcome
from tacit.aggregation.wire import HEADER_SIZE
from tacit.client import Acceptance, Device, Ledger, Pins
from tacit.errors import Rejected, TacitError
from tacit.noise import DiscreteLaplace
from tacit.records import MemoryRecords
from tacit.sampling.draws import flip_response
from tacit.service import definition_files
from tacit.service.errors import Conflict, Gone, TooEarly
from tacit.service.schema import Stage
from tacit.signatures import SIGNATURE_SIZE
from tacit.trust import TrustModel

MEANS = {"plain": 0.1, "friendly": 0.9}
ALARM = 1e-6  # false-positive rate of a statistical test
RELEASES = 120  # of 16 reports: half of the noise, or twice as much, escapes once in a million


@pytest.mark.parametrize(
    ("algorithm", "levels"),
    [
        *(("private-med", 4), ("private-klucb", 1), ("ldp-se", 4)),
        pytest.param("private-med", 1, marks=pytest.mark.extended),
        pytest.param("ldp-se", 1, marks=pytest.mark.extended),
    ],
)
def test_a_local_experiment_finds_the_best_option(
    tmp_path: Path, algorithm: str, levels: int
) -> None:
    defined = definition_of(algorithm=algorithm, levels=levels)
    with deployed(defined, tmp_path) as one:
        assert one.run(MEANS, seed=1) == "friendly"
        status = one.coordinator.status(one.digest)
    assert status["state"] == "finished"
    assert status["guarantee"]["epsilon"] == 2


def test_an_experiment_without_a_helper_starts_when_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []
    monkeypatch.setattr(StillDriver, "notify", lambda _driver: begun.append("step"))
    with fronted(definition_of(), tmp_path) as one:
        asked = {"definition": definition_files.write(definition_of(question="And then?"))}
        url = f"{ADDRESSES[0]}/experiments"
        assert one.request("POST", url, json=asked, headers=ADMIN).status_code == 201
    assert begun == ["step"]


def test_guardrail_and_participations_share_the_noise(tmp_path: Path) -> None:
    defined = definition_of(
        guardrail="thanks",
        guardrail_better="higher",
        participations=2,
        epsilon=Fraction(8),
        participants=800,
    )
    terms = defined.terms(ADDRESSES[0], KEYS[0])
    assert terms.noise.scale == Fraction(4, 8)
    assert terms.cost == 4
    with deployed(defined, tmp_path) as one:
        assert one.run(MEANS, seed=2) == "friendly"


def test_no_round_is_announced_under_an_invalid_signature(tmp_path: Path) -> None:
    with deployed(definition_of(), tmp_path) as one:
        engine = one.coordinator.engine(one.digest)
        one.step(1)
        announcement = one.coordinator.rounds(Stage.OPEN)[0].announcement
        description, signature = announcement[:-SIGNATURE_SIZE], announcement[-SIGNATURE_SIZE:]
        assert engine.announce(description, signature) == announcement
        with pytest.raises(Rejected, match="did not sign this round"):
            engine.announce(description, bytes(SIGNATURE_SIZE))


# Noise of devices


def flips(one: Deployed, count: int) -> int:
    """How many of so many all-zero answers arrive as ones."""
    one.step(2)
    ones = 0
    assigned = one.join(1)[0]
    server = one.coordinator.server(one.identity(assigned))
    assert isinstance(server, LocalServer)
    for _ in range(count):
        message = one.report(assigned, 0)[0]
        checked = server.check(message, one.coordinator.now)
        numbers = server._open().numbers(checked.name, checked.wrapped)
        assert numbers is not None
        ones += numbers[0]
    return ones


def suspicious(ones: int, count: int, epsilon: float) -> bool:
    """Whether so many flips are improbable at this ε (two-sided, false-positive rate `ALARM`)."""
    chance = 1 / (1 + 2.718281828459045**epsilon)
    tail = min(binom.cdf(ones, count, chance), binom.sf(ones - 1, count, chance))
    return bool(2 * tail < ALARM)


def test_released_noise_matches_the_stated_one(tmp_path: Path) -> None:
    """All-zero answers at the minimum batch: the number of ones is binomial."""
    defined = definition_of(participants=10**6, algorithm="ldp-se", epsilon=Fraction(1))
    with deployed(defined, tmp_path) as one:
        engine = one.coordinator.engine(one.digest)
        one.step(1)
        batch = min(row.slots for row in one.coordinator.rounds(Stage.OPEN))
        assert batch == 16 >= engine.context.terms.aggregation.minimum_batch_size
        ones = flips(one, RELEASES * batch)
    assert not suspicious(ones, RELEASES * batch, 1.0)


@pytest.mark.parametrize(
    ("broken", "reports"),  # as many as miss the fault once in a million, at most
    [
        (lambda _epsilon: False, 100),
        (lambda epsilon: flip_response(2 * epsilon), 800),
        (lambda epsilon: flip_response(epsilon / 2), 1900),
    ],
    ids=["missing", "halved", "doubled"],
)
def test_wrong_flip_probabilities_of_devices_are_detected(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: Callable[[Fraction], bool],
    reports: int,
) -> None:
    monkeypatch.setattr(device_side, "flip_response", broken)
    with deployed(definition_of(epsilon=Fraction(1)), tmp_path) as one:
        assert suspicious(flips(one, reports), reports, 1.0)


def test_laplace_noise_of_devices_matches_the_stated_one(tmp_path: Path) -> None:
    """Values of all-zero answers by class, against the exact distribution (chi-squared, 10^-6)."""
    with deployed(definition_of(levels=4, epsilon=Fraction(2)), tmp_path) as one:
        drawn = drawn_of(one)
    distribution = DiscreteLaplace(Fraction(2))
    assert not unlike(drawn, distribution)
    assert unlike([value // 2 for value in drawn], distribution)
    assert unlike([0] * len(drawn), distribution)
    assert unlike(drawn[:10] * (len(drawn) // 10), distribution)


def drawn_of(one: Deployed, count: int = 3000) -> list[int]:
    one.step(2)
    assigned = one.join(1)[0]
    server = one.coordinator.server(one.identity(assigned))
    assert isinstance(server, LocalServer)
    found = []
    for _ in range(count):
        checked = server.check(one.report(assigned, 0)[0], one.coordinator.now)
        numbers = server._open().numbers(checked.name, checked.wrapped)
        assert numbers is not None
        found.append(numbers[0])
    return found


def unlike(drawn: list[int], distribution: DiscreteLaplace) -> bool:
    """Whether values do not follow the distribution (chi-squared over 13 classes)."""
    from scipy.stats import chi2

    edge = 6
    counts = Counter(min(max(value, -edge), edge) for value in drawn)
    chances = {value: float(distribution.pmf(value)) for value in range(-edge + 1, edge)}
    outer = (1 - sum(chances.values())) / 2
    chances |= {-edge: outer, edge: outer}
    statistic = sum(
        (counts[value] - len(drawn) * chance) ** 2 / (len(drawn) * chance)
        for value, chance in chances.items()
    )
    return bool(chi2.sf(statistic, 2 * edge) < ALARM)


# Reports, crashes, outcomes


@pytest.fixture
def one(tmp_path: Path) -> Any:
    with deployed(definition_of(), tmp_path) as made:
        yield made


def test_the_local_model_needs_no_helper_and_no_cosignature(one: Deployed) -> None:
    assert one.helper is None
    assert one.coordinator.status(one.digest)["state"] == "running"
    with pytest.raises(Conflict, match="has no helper"):
        one.coordinator.cosign(one.digest, bytes(64))


def test_an_identical_report_is_accepted_and_another_rejected(one: Deployed) -> None:
    one.step(2)
    (assigned,) = one.join(1)
    report = one.report(assigned, 1)
    for _ in range(3):
        assert one.send([(assigned, report)]) == [None]
    (rejection,) = one.send([(assigned, one.report(assigned, 1))])
    assert isinstance(rejection, Conflict)


def test_reports_out_of_range_are_dropped(one: Deployed) -> None:
    """A client that packs a larger number moves no sum."""
    one.step(2)
    rounds = one.coordinator.rounds(Stage.OPEN)
    asked = one.join(sum(row.slots for row in rounds))
    announced = LocalRound.decode(asked[0].announcement[:-64])
    assert (announced.margin, announced.span) == (0, 2)
    good = [(each, one.report(each, 0)) for each in asked[1:]]
    assert asked[0].slot is not None
    info = b"tacit local v3" + announced.context + asked[0].slot.number.to_bytes(4, "big")
    forged = announced.recipient.encrypt(b"\xff", info)
    front = encrypt_report(one.pinned, asked[0].announcement, asked[0].slot, [0])
    bad = front[: HEADER_SIZE + 20] + forged
    assert set(one.send([*good, (asked[0], {0: bad})])) == {None}
    one.clock.now += 200
    one.step(3)
    row = one.coordinator.round(announced.identity)
    assert row.stage is Stage.RELEASED
    assert row.reports == sum(each.announcement == asked[0].announcement for each in asked) - 1


def test_a_crash_at_any_step_releases_each_round_once(one: Deployed) -> None:
    one.step(2)
    asked = one.join(30)
    made = [(each, one.report(each, 1)) for each in asked]
    assert set(one.send(made)) == {None}
    one.restart()
    assert set(one.send(made)) == {None}
    one.clock.now += 200
    released = []
    for row in one.coordinator.rounds(Stage.OPEN):
        first = one.coordinator.serving(row)
        assert isinstance(first, LocalServer)
        released.append(first.close(one.coordinator.now))  # and the process dies before it learns
    one.restart()
    one.step(3)
    rows = one.coordinator.rounds(Stage.RELEASED)
    assert sum(row.reports or 0 for row in rows) == len(asked)
    assert {view.reports for view in released if view} == {row.reports for row in rows}
    for row in rows:
        said = one.coordinator.outcome(row.identity)
        announced = LocalRound.decode(row.announcement[:-64])
        assert read_outcome(one.pinned, announced, said) == (0, RoundOutcome.RELEASED)


def test_small_rounds_are_aborted_and_their_reports_deleted(one: Deployed) -> None:
    one.step(2)
    asked = one.join(12)
    assert set(one.send([(each, one.report(each, 1)) for each in asked[:3]])) == {None}
    with pytest.raises(TooEarly):
        one.coordinator.outcome(one.identity(asked[0]))
    one.clock.now += 200
    one.step(3)
    with pytest.raises((Gone, Rejected)):
        one.send([(asked[5], one.report(asked[5], 1))])
    assert not one.coordinator.rounds(Stage.RELEASED), "fewer reports than the minimum"
    aborted = one.coordinator.rounds(Stage.ABORTED)
    assert one.identity(asked[0]) in {row.identity for row in aborted}
    for row in aborted:
        said = local_outcome(one.coordinator.records, row.identity)
        assert said is not None
        assert said[21] == RoundOutcome.ABORTED


def test_a_server_signs_only_with_its_own_key_and_never_an_aborted_round(one: Deployed) -> None:
    one.step(2)
    (assigned,) = one.join(1)
    records, identity = MemoryRecords(), new_identity()
    sound = LocalRound.decode(assigned.announcement[:-64])
    own = prepare_local(records, identity, sound.suite)
    described = replace(sound, identity=identity, server=own).encode()
    signature = endorse_local(one.pinned, records, described, SECRETS[0])
    one.pinned.check_signed_round(described, [signature])
    abandon_local(records, identity, SECRETS[0])
    with pytest.raises(Rejected, match="aborted it before"):
        endorse_local(one.pinned, records, described, SECRETS[0])

    identity = new_identity()
    prepare_local(records, identity, sound.suite)
    foreign = replace(sound, identity=identity, server=own).encode()
    with pytest.raises(Rejected, match="another key than this server prepared"):
        endorse_local(one.pinned, records, foreign, SECRETS[0])


def test_a_weaker_round_is_rejected_by_devices(one: Deployed) -> None:
    from tacit.aggregation.announcements import SharedNoise, endorse

    one.step(2)
    (assigned,) = one.join(1)
    sound = LocalRound.decode(assigned.announcement[:-64])
    for noise in (SharedNoise(1, Fraction(1, 4)), SharedNoise(2, Fraction(1))):
        weaker = replace(sound, noise=noise).encode()
        forged = replace(assigned, announcement=weaker + endorse(weaker, SECRETS[0]))
        with pytest.raises(Rejected, match="of the round is"):
            one.report(forged, 1)


# The device


def transport(one: Deployed, seen: list[httpx.Request]) -> httpx.MockTransport:
    """The coordinator's answers to a device, without a network."""

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        path = request.url.path.split("/")
        try:
            if path[-1] == "terms":
                known = one.coordinator.terms(one.digest)
                said: dict[str, Any] = {
                    "terms": known.terms.encode().decode(),
                    "signatures": [word.hex() for word in known.signatures],
                    "state": "running",
                    "successor": None,
                }
            elif path[-1] == "places":
                (given,) = one.join(1)
                assert given.slot is not None
                said = {
                    "asked": True,
                    "option": given.option,
                    "announcement": given.announcement.hex(),
                    "place": given.slot.number,
                    "token": given.slot.token.hex(),
                }
            elif path[-1] == "outcome":
                return httpx.Response(200, content=one.coordinator.outcome(bytes.fromhex(path[2])))
            else:
                waiting = one.coordinator.report(
                    bytes.fromhex(path[2]), int(path[4]), request.content
                )
                (rejection,) = one.coordinator.keep([waiting])
                if rejection is not None:
                    raise rejection
                return httpx.Response(204)
        except TacitError as problem:
            return httpx.Response(409, json={"error": str(problem)})
        return httpx.Response(200, content=json.dumps(said))

    return httpx.MockTransport(answer)


def device_of(one: Deployed, ledger: Ledger, seen: list[httpx.Request]) -> Device:
    pins = Pins(ADDRESSES[0], KEYS[0].hex())
    return Device(ledger, pins, http=transport(one, seen), clock=one.clock, sleep=lambda _: None)


def test_a_device_charges_before_sending_and_never_redraws(
    one: Deployed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one.step(2)
    drawn: list[bool] = []

    def flip(epsilon: Fraction) -> bool:
        drawn.append(flip_response(epsilon))
        return drawn[-1]

    monkeypatch.setattr(device_side, "flip_response", flip)
    seen: list[httpx.Request] = []
    ledger = Ledger(tmp_path / "ledger")
    device = device_of(one, ledger, seen)
    slot = device.join(one.digest)
    assert slot.asked
    assert drawn == []
    device.record(one.digest, 1)
    one.clock.now = (slot.reports_at or 0) + 1
    lost = httpx.MockTransport(lambda _request: httpx.Response(503))
    with Device(ledger, device.pins, http=lost, clock=one.clock, sleep=lambda _: None) as offline:
        offline.run_due()
    assert ledger.spent == 2
    assert len(drawn) == 1
    stored = ledger.running()[0].deliveries[0].encrypted
    ledger.close()
    with device_of(one, Ledger(tmp_path / "ledger"), seen) as again:
        one.clock.now += 5
        again.run_due()
        sent = [request.content for request in seen if request.method == "PUT"]
        assert sent == [stored]
        assert len(drawn) == 1
        assert again.ledger.spent == 2
    assert len({str(request.url.host) for request in seen}) == 1


def test_a_device_pins_the_only_server(one: Deployed) -> None:
    one.step(2)
    seen: list[httpx.Request] = []
    for pins in (
        Pins(ADDRESSES[0], KEYS[1].hex()),
        Pins(ADDRESSES[0], KEYS[0].hex(), KEYS[1].hex()),
    ):
        with (
            Device(Ledger(":memory:"), pins, http=transport(one, seen), clock=one.clock) as device,
            pytest.raises(Rejected, match="pinned key"),
        ):
            device.join(one.digest)


def test_a_device_joins_only_under_an_accepted_trust_model(one: Deployed) -> None:
    one.step(2)
    seen: list[httpx.Request] = []
    pins, accept = Pins(ADDRESSES[0], KEYS[0].hex()), Acceptance((TrustModel.TWO_SERVERS,))
    how: dict[str, Any] = {"http": transport(one, seen), "clock": one.clock, "accept": accept}
    with (
        Device(Ledger(":memory:"), pins, **how) as device,
        pytest.raises(Rejected, match="trust is local: must be one of two-servers"),
    ):
        device.join(one.digest)
    assert all(request.method == "GET" for request in seen)
