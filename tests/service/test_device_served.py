"""Devices and both parties over real HTTP: what participants answer is what is counted."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import pytest
from openfeature import api
from tests.service.pairs import experiment_of
from tests.service.served import Threads, served, wait_for

from tacit.aggregation import TwoServerRound, announce
from tacit.aggregation.announcements import endorse
from tacit.client import AsyncDevice, Device, Ledger, Pins
from tacit.client.openfeature import Flag, TacitProvider
from tacit.errors import Rejected
from tacit.service import invitations
from tacit.service.timing import Timing
from tacit.terms import Aggregation, Answer

QUICK = Timing(joining=8, margin=8, grace=60)
ANSWER = Answer("1 if you liked it, 0 if not", window=1)


def pins(servers: Threads) -> Pins:
    return Pins(servers.urls[0], servers.keys[0].hex(), servers.keys[1].hex())


def silent(_identity: bytes) -> Any:
    """Servers without noise, so that what is counted can be compared."""
    return lambda _scale: 0


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Threads]:
    quiet = {"noise": silent}
    with served(tmp_path_factory.mktemp("served"), sources=(quiet, quiet)) as parties:
        yield parties


def begin(servers: Threads, question: str, timing: Timing = QUICK, **changed: Any) -> bytes:
    """A new experiment on the same servers, with an open round."""
    few = {"aggregation": Aggregation(1), "answer": ANSWER, "question": question}
    digest = servers.begin(experiment_of(horizon=400), timing, **(few | changed))
    wait_for(lambda: _round(servers, digest)["stage"] == "open")
    return digest


def _round(servers: Threads, digest: bytes, number: int = 0) -> Any:
    rounds = servers.status(digest)["rounds"]
    return rounds[number] if len(rounds) > number else {"stage": None}


@pytest.mark.extended
def test_answers_from_devices_are_counted_by_the_experiment(servers: Threads) -> None:
    async def person(number: int, http: httpx.AsyncClient, servers: Threads, digest: bytes) -> Any:
        device = AsyncDevice(Ledger(":memory:"), pins(servers), http=http)
        given = await device.join(digest)
        if given.asked and number % 3:
            device.record(digest, number % 3 == 1)
        await device.wait_and_report(outcomes=True)
        return given, number % 3 == 1, device.status()

    async def everybody(servers: Threads, digest: bytes) -> list[Any]:
        async with httpx.AsyncClient(timeout=30.0) as http:
            return await asyncio.gather(
                *(person(number, http, servers, digest) for number in range(12))
            )

    digest = begin(servers, "Is it counted?")
    came = [one for one in asyncio.run(everybody(servers, digest)) if one[0].asked]
    receipts = [status[0] for _, _, status in came]
    assert "opened" in {receipt.outcome for receipt in receipts}
    assert {receipt.outcome for receipt in receipts} <= {"opened", "refused", "missed"}
    assert all(receipt.charged == (receipt.outcome == "opened") for receipt in receipts)
    rounds = wait_for(lambda: _summed(servers, digest))
    for identity, one in rounds.items():
        arrived = [
            liked
            for (_, liked, _), receipt in zip(came, receipts, strict=True)
            if receipt.round == identity and all(half.sent for half in receipt.shares)
        ]
        assert (one["reports"], one["sums"]) == (len(arrived), [sum(arrived)])


def _summed(servers: Threads, digest: bytes) -> dict[str, Any]:
    """The rounds that were released, by their names."""
    rounds = servers.status(digest)["rounds"]
    return {one["round"]: one for one in rounds if one["sums"] is not None}


@pytest.mark.extended
def test_an_aborted_round_below_its_minimum_is_refunded_over_http(
    servers: Threads, ledger: Ledger
) -> None:
    few = Aggregation(4)
    digest = begin(
        servers, "Is it refunded?", Timing(joining=3, margin=4, grace=2), aggregation=few
    )
    with Device(ledger, pins(servers)) as device:
        assert device.join(digest).asked
        device.wait_and_report()
        assert ledger.spent == 1
        assert all(half.sent for half in device.status()[0].shares)
        device.wait_and_report(outcomes=True)
    assert device.status()[0].outcome == "refused"
    assert ledger.spent == 0


@pytest.mark.extended
def test_a_device_sends_its_encrypted_report_after_a_crash(
    servers: Threads, tmp_path: Path
) -> None:
    """The first attempt reaches nobody, and the process is gone after it."""

    def lost(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("lost")

    digest = begin(servers, "Is it sent again?")
    with Device(Ledger(tmp_path / "ledger.db"), pins(servers)) as device:
        given = device.join(digest)
        device.record(digest, 1)
    assert given.reports_at is not None
    time.sleep(max(0.0, given.reports_at - time.time()))
    dead = httpx.Client(transport=httpx.MockTransport(lost))
    Device(device.ledger, pins(servers), http=dead).run_due()
    digests = [half.digest for half in device.status()[0].shares]
    assert len(digests) == 2
    device.ledger.close()
    with Device(Ledger(tmp_path / "ledger.db"), pins(servers)) as again:
        again.wait_and_report()
    (receipt,) = again.status()
    assert [half.digest for half in receipt.shares] == digests
    assert all(half.sent for half in receipt.shares)
    again.ledger.close()


def test_paused_and_stopped_experiments_assign_no_slots(servers: Threads) -> None:
    digest = begin(servers, "Is it paused?")
    for change in (servers.coordinator.pause, servers.coordinator.stop):
        change(digest)
        with Device(Ledger(":memory:"), pins(servers)) as device:
            assert not device.join(digest).asked


def test_devices_pin_keys_against_real_servers(servers: Threads) -> None:
    digest, mine = begin(servers, "Is it pinned?"), pins(servers)
    assert mine.helper is not None
    with Device(Ledger(":memory:"), Pins(mine.address, mine.helper, mine.coordinator)) as device:
        with pytest.raises(Rejected, match="must be the pinned key"):
            device.join(digest)
        with pytest.raises(Rejected, match="is unknown here"):
            device.join(bytes(32))


def test_only_an_invited_participant_takes_part(servers: Threads) -> None:
    digest = begin(servers, "Is it by invitation?", admission="invitation")
    (ticket,) = invitations.make(digest, servers.members[0].key, 1)
    with Device(Ledger(":memory:"), pins(servers)) as device:
        assert device.join(digest, ticket).asked
        device.wait_and_report()
        assert all(half.sent for half in device.status()[0].shares), device.status()
    for wrong in ("made-up", ticket[:-1] + ("A" if ticket[-1] != "A" else "B")):
        device = Device(Ledger(":memory:"), pins(servers))
        with device, pytest.raises(Rejected, match="invitation"):
            device.join(digest, wrong)


class Altering(httpx.HTTPTransport):
    """The way to the parties, on which the announcement of a round is altered; both sign it."""

    def __init__(
        self, servers: Threads, change: Callable[[TwoServerRound], TwoServerRound]
    ) -> None:
        super().__init__()
        self._keys, self._change = [member.key for member in servers.members], change

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = super().handle_request(request)
        if not request.url.path.endswith("/places"):
            return answer
        said = json.loads(answer.read())
        described = TwoServerRound.decode(bytes.fromhex(said["announcement"])[:-128])
        description = self._change(described).encode()
        forged = announce(description, [endorse(description, key) for key in self._keys])
        return httpx.Response(200, json=said | {"announcement": forged.hex()})


def bound(**changes: Any) -> Callable[[TwoServerRound], TwoServerRound]:
    return lambda round_: replace(round_, binding=replace(round_.binding, **changes))


WEAKER: dict[str, Callable[[TwoServerRound], TwoServerRound]] = {
    "scale": lambda round_: replace(round_, scale=Fraction(99, 100)),
    "adds the noise": lambda round_: replace(round_, scale=None),
    "window": bound(window=2),
    "number of levels": bound(levels=2),
    "option of the round is 3": bound(option=3),
    "days of the terms": bound(closes=4_000_000_000),
    "minimum batch size of 2": lambda round_: replace(round_, minimum=1),
    "number of metrics": lambda round_: replace(round_, length=2),
    "modulus of the round": lambda round_: replace(round_, modulus=round_.slots),
    "terms of the round": bound(terms=bytes(32)),
}


def test_a_round_weaker_than_the_terms_is_rejected_over_http(servers: Threads) -> None:
    """Both servers signed it, and the device draws, keeps and sends nothing."""
    slow = Timing(joining=60, margin=8, grace=60)
    digest = begin(servers, "Is it weaker?", slow, aggregation=Aggregation(2))
    for reason, change in WEAKER.items():
        ledger = Ledger(":memory:")
        with Altering(servers, change) as way, Device(ledger, pins(servers), http=way) as device:
            with pytest.raises(Rejected, match=reason):
                device.join(digest)
            assert not device.status()
            assert ledger.spent == 0
    with (
        Altering(servers, lambda one: one) as way,
        Device(ledger, pins(servers), http=way) as device,
    ):
        assert device.join(digest).asked
    servers.coordinator.stop(digest)


@pytest.mark.extended
def test_a_flag_is_evaluated_tracked_and_reported_over_http(
    servers: Threads, ledger: Ledger
) -> None:
    digest = begin(servers, "Is it a flag?")
    with Device(ledger, pins(servers)) as device:
        api.set_provider_and_wait(TacitProvider(device, {"greeting": Flag(digest.hex())}))
        client = api.get_client()
        assert client.get_string_value("greeting", "none") in ("plain", "friendly", "short")
        client.track("greeting")
        wait_for(lambda: any(half.sent for half in device.status()[0].shares))
        wait_for(lambda: all(half.sent for half in device.status()[0].shares))
        api.clear_providers()


@pytest.mark.extended
def test_the_documented_device_programs_run(
    servers: Threads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/devices.md").read_text(encoding="utf-8")
    digest, mine = begin(servers, "Does the page work?"), pins(servers)
    said = {
        "https://coordinator.example": mine.address,
        "COORDINATOR_KEY": mine.coordinator,
        "HELPER_KEY": str(mine.helper),
        "EXPERIMENT": digest.hex(),
    }
    program = "\n".join(re.findall(r"^```py\n(.*?)^```$", page, re.M | re.S))
    for blank, filled in said.items():
        assert blank in program
        program = program.replace(blank, filled)
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    exec(program, found)
    asyncio.run(found["take_part"]())
    assert found["greeting"] in ("plain", "friendly", "short")
    assert [half.sent is not None for half in found["receipt"].shares] == [True, True]
    api.clear_providers()
    found["device"].close()
    found["device"].ledger.close()
