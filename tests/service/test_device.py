"""One participant's participation, from the terms to the receipt, against real servers in
process.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from tests.service.parties import (
    ADDRESSES,
    JOINING,
    KEYS,
    MARGIN,
    PINS,
    START,
    Clock,
    Open,
    Parties,
    everything,
    rows,
    terms,
)

from tacit.aggregation import Collector
from tacit.aggregation.round_state import PartyRoundState
from tacit.client import AsyncDevice, Device, Ledger, LedgerError, Offline, Pins, Unagreed
from tacit.client.device import MOST_ABORTED, UNASKED
from tacit.client.exchange import Reply
from tacit.client.invitations import encoded, without_secret
from tacit.errors import Rejected, TacitError
from tacit.records import MemoryRecords
from tacit.signatures import public_key
from tacit.terms import Answer, Noise, StatedGuarantee, in_words


def down(*addresses: str) -> httpx.Response:
    """What is not reached; a transport that fails."""
    raise httpx.ConnectError(f"{addresses} do not answer")


def puts(parties: Parties) -> list[bytes]:
    return [
        body
        for seen, body in zip(parties.trace, parties.bodies, strict=True)
        if seen.method == "PUT"
    ]


def total(parties: Parties, released: Open) -> tuple[int, ...]:
    """What the collector opens of a round; the servers' noise is nothing here."""
    parties.clock.now = max(parties.clock.now, float(released.round.binding.closes))
    collector = Collector(released.pinned, released.announcement, parties.records[2])
    for _ in range(2):
        parties.finish(released)
        for server in released.servers:
            collector.take(dict(server.close(int(parties.clock.now)))[released.round.collector])
    collector.close()
    return collector.view().numbers


# Taking part


@pytest.mark.parametrize(("recorded", "counted"), [(1, 1), (0, 0), (None, 0), (True, 1)])
def test_recorded_answers_arrive_and_unrecorded_ones_are_zero(
    recorded: int | None, counted: int
) -> None:
    parties = Parties()
    released = parties.open(option=1)
    device = parties.device()
    given = device.join(parties.experiment)
    assert (given.option, given.asked) == ("Hi", True)
    assert recorded is None or device.record(parties.experiment, recorded)
    device.wait_and_report()
    assert total(parties, released) == (counted,)


def test_the_asynchronous_device_behaves_the_same() -> None:
    async def take_part(device: AsyncDevice, experiment: bytes) -> None:
        async with device:
            shown = await device.terms(experiment)
            assert shown.words == in_words(shown.terms)
            assert (await device.join(experiment)).option == "Hello"
            assert device.record(experiment, 1)
            assert await device.run_due() == pytest.approx(60, abs=MARGIN / 2)
            await device.wait_and_report(outcomes=True)

    parties = Parties()
    released = parties.open()
    device = parties.async_device()
    asyncio.run(take_part(device, parties.experiment))
    assert device.status()[0].outcome == "opened"
    assert total(parties, released) == (1,)


def test_both_drivers_make_the_same_requests_over_transports_and_clients() -> None:
    async def drive(device: AsyncDevice, experiment: bytes) -> None:
        await device.join(experiment)
        await device.wait_and_report(outcomes=True)

    traces = []
    for client in (False, True):
        threads, awaited = Parties(), Parties()
        for parties in (threads, awaited):
            parties.open()
        device = threads.device(client=client)
        device.join(threads.experiment)
        device.wait_and_report(outcomes=True)
        asyncio.run(drive(awaited.async_device(client=client), awaited.experiment))
        traces += [
            [(seen.at, seen.method, seen.size, seen.headers) for seen in parties.trace]
            for parties in (threads, awaited)
        ]
    assert all(trace == traces[0] for trace in traces)
    assert len(traces[0]) == 7


def test_the_number_of_ledger_operations_is_bounded() -> None:
    parties, ledger, said = Parties(), Ledger(":memory:"), list[str]()
    parties.open()
    device = parties.device(ledger)
    ledger._db.set_trace_callback(said.append)
    device.join(parties.experiment)
    device.record(parties.experiment, 1)
    device.wait_and_report()
    assert len(parties.trace) == 5
    assert said.count("COMMIT") == said.count("BEGIN IMMEDIATE") <= 14
    assert len(said) <= 102


def test_a_device_uses_the_proxy_of_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = list[bytes]()

    def answer() -> None:
        connection, _ = proxy.accept()
        with connection:
            asked.append(connection.recv(1 << 16).splitlines()[0])
            connection.sendall(b"HTTP/1.1 503 Later\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as proxy:
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        with Device(Ledger(":memory:"), PINS) as device, pytest.raises(Offline):
            device.join(bytes(32))
        thread.join(10)
    assert asked == [f"GET {ADDRESSES[0]}/experiments/{'00' * 32}/terms HTTP/1.1".encode()]


def test_an_unrequested_compressed_reply_is_not_decompressed() -> None:
    """A few bytes of it may be a gigabyte."""
    parties = Parties()
    parties.open()
    packed = gzip.compress(b"{}")
    parties.fail = lambda _: httpx.Response(
        200, headers={"content-encoding": "gzip"}, content=packed
    )
    with pytest.raises(Offline):
        parties.device().join(parties.experiment)


class Dripping(httpx.SyncByteStream, httpx.AsyncByteStream):
    """An endless body that arrives byte by byte, each within its own time limit."""

    def __init__(self, passed: Callable[[float], None]) -> None:
        self.sent, self._passed = 0, passed

    def __iter__(self) -> Iterator[bytes]:
        while True:
            self._passed(9.0)
            self.sent += 1
            yield b" "

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            await asyncio.sleep(0.002)
            self.sent += 1
            yield b" "


def test_a_slow_reply_occupies_a_device_for_half_a_minute_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parties, clock = Parties(), Clock()
    body = Dripping(clock.sleep)
    monkeypatch.setattr("tacit.client.http.time", SimpleNamespace(monotonic=clock))
    parties.fail = lambda _: httpx.Response(200, stream=body)
    with pytest.raises(Offline):
        parties.device().join(parties.experiment)
    assert body.sent == 4


def test_a_slow_reply_does_not_block_an_asynchronous_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parties = Parties()
    monkeypatch.setattr("tacit.client.aio.SLOWEST_REPLY", 0.05)
    body = Dripping(lambda _seconds: None)
    parties.fail = lambda _: httpx.Response(200, stream=body)
    with pytest.raises(Offline):
        asyncio.run(parties.async_device().join(parties.experiment))
    assert 1 <= body.sent < 40


def test_several_metrics_are_recorded_by_name_and_the_last_value_counts() -> None:
    answer = Answer("how it went", ("walked", "liked"), 4, 60, high=Fraction(60))
    parties = Parties(terms(answer=answer, noise=Noise(Fraction(16))))
    released = parties.open()
    device = parties.device()
    device.join(parties.experiment)
    assert device.record(parties.experiment, {"walked": 60, "liked": 15})
    assert device.record(parties.experiment, {"walked": 45})
    device.wait_and_report()
    assert total(parties, released) == (3, 1)


def test_the_receipt_states_exactly_what_was_sent_to_whom() -> None:
    parties = Parties()
    parties.open()
    device = parties.device()
    device.join(parties.experiment)
    assert device.status()[0].shares == ()
    device.wait_and_report()
    (receipt,) = device.status()
    sent = puts(parties)
    assert [half.address for half in receipt.shares] == list(ADDRESSES)
    assert [half.digest for half in receipt.shares] == [
        hashlib.sha256(body).hexdigest() for body in sent
    ]
    assert [half.size for half in receipt.shares] == [len(body) for body in sent]
    assert (receipt.cost, receipt.charged, receipt.outcome) == (Fraction(1, 2), True, None)
    assert any(receipt.shares[0].digest in sentence for sentence in receipt.in_words())
    assert all("tried once: was taken. Alone" in told for told in receipt.in_words()[1:-1])


def test_a_participant_without_a_slot_gets_an_option_and_reports_nothing() -> None:
    parties = Parties()
    device = parties.device()
    given = device.join(parties.experiment)
    assert (given.option, given.asked, given.reports_at) == ("Hello", False, None)
    assert not device.record(parties.experiment, 1)
    device.wait_and_report(outcomes=True)
    assert [seen.method for seen in parties.trace] == ["GET", "GET", "POST"]
    assert device.status() == []


def test_an_answer_outside_the_range_or_of_no_metric_is_rejected_with_the_range() -> None:
    parties = Parties()
    parties.open()
    device = parties.device()
    device.join(parties.experiment)
    for value in (-1, 2, float("nan"), "1", None):
        with pytest.raises(TacitError):
            device.record(parties.experiment, value)  # type: ignore[arg-type]
    with pytest.raises(TacitError, match="must be one of answer"):
        device.record(parties.experiment, {"other": 1})


# Asking again


def test_joining_again_sends_nothing_and_returns_the_same_option() -> None:
    parties = Parties()
    parties.open(option=1)
    device = parties.device()
    given = device.join(parties.experiment)
    requests = len(parties.trace)
    parties.open(option=0)
    for pause in (0.0, 59.0, 20.0):
        parties.clock.sleep(pause)
        assert device.join(parties.experiment.hex()) == given
    assert len(parties.trace) == requests
    device.run_due()
    assert device.join(parties.experiment) == given  # sent, and the round is still open
    assert len(parties.trace) == requests + 2


def test_an_option_without_a_slot_is_kept_for_the_window() -> None:
    parties = Parties()
    device = parties.device()
    device.join(parties.experiment)
    requests = len(parties.trace)
    parties.clock.sleep(UNASKED - 1)
    device.join(parties.experiment)
    assert len(parties.trace) == requests
    parties.clock.sleep(1)
    parties.open(option=1)
    assert device.join(parties.experiment).asked
    assert len(parties.trace) == requests + 1  # the terms are still fresh


def test_without_budget_the_last_option_is_kept_and_no_slot_requested() -> None:
    parties = Parties()
    device = parties.device()
    for option in (0, 1):
        released = parties.open(option)
        assert device.join(parties.experiment).asked
        device.wait_and_report()
        parties.clock.now = float(released.round.binding.closes)
    assert device.ledger.spent == 1
    places = [seen for seen in parties.trace if seen.method == "POST"]
    parties.open(0)
    given = device.join(parties.experiment)
    assert (given.option, given.asked) == ("Hi", False)
    assert [seen for seen in parties.trace if seen.method == "POST"] == places


def test_a_lost_reply_is_retried_with_the_same_nonce_and_slot() -> None:
    parties = Parties()
    released = parties.open()
    device = parties.device()

    def lose(request: httpx.Request) -> httpx.Response | None:
        if request.method != "POST":
            return None
        parties.assign(json.loads(request.content))
        return down()

    parties.fail = lose
    with pytest.raises(Offline, match="Try again"):
        device.join(parties.experiment)
    parties.fail = lambda _: None
    assert device.join(parties.experiment).asked
    nonces = {
        json.loads(body)["nonce"]
        for seen, body in zip(parties.trace, parties.bodies, strict=True)
        if seen.method == "POST"
    }
    assert len(nonces) == 1
    assert released.next == 1


def test_a_new_participation_has_a_new_nonce() -> None:
    parties = Parties()
    device = parties.device()
    for _ in range(2):
        released = parties.open()
        device.join(parties.experiment)
        device.wait_and_report()
        parties.clock.now = float(released.round.binding.closes)
    assert len(parties.nonces) == 2


# Sending


def test_both_report_shares_are_sent_independently() -> None:
    for gone, other in (ADDRESSES, ADDRESSES[::-1]):
        parties = Parties()
        parties.open()
        device = parties.device()
        device.join(parties.experiment)
        parties.fail = lambda request, gone=gone: (  # type: ignore[misc]
            down(gone) if str(request.url).startswith(gone) else None
        )
        device.wait_and_report()
        fates = {half.address: half.sent is not None for half in device.status()[0].shares}
        assert fates == {gone: False, other: True}


def test_resends_are_identical_also_after_a_restart(ledger: Ledger) -> None:
    parties = Parties()
    released = parties.open()
    device = parties.device(ledger)
    device.join(parties.experiment)
    device.record(parties.experiment, 1)
    parties.fail = lambda request: down() if request.method == "PUT" else None
    parties.clock.now = device.status()[0].reports_at
    device.run_due()
    ledger.close()
    parties.fail = lambda _: None
    again = parties.device(Ledger(ledger.path), seed=99)
    again.wait_and_report()
    assert len(puts(parties)) == 4
    assert sorted(puts(parties)[:2]) == sorted(puts(parties)[2:])
    assert total(parties, released) == (1,)
    again.ledger.close()


def test_retry_pauses_grow_and_end_at_the_deadline() -> None:
    parties = Parties()
    released = parties.open()
    device = parties.device()
    device.join(parties.experiment)
    parties.fail = lambda request: httpx.Response(503) if request.method == "PUT" else None
    device.wait_and_report()
    times = [seen.at for seen in parties.trace if seen.method == "PUT" and ADDRESSES[0] in seen.url]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert len(times) >= 5
    assert times[-1] < released.round.binding.closes
    for number, pause in enumerate(pauses):
        assert MARGIN / 64 * 2**number / 2 <= pause <= MARGIN / 64 * 2**number


@pytest.mark.parametrize("status", [409, 410, 422, 413, 403])
def test_a_permanently_rejected_report_share_is_not_sent_again(status: int) -> None:
    parties = Parties()
    parties.open()
    device = parties.device()
    device.join(parties.experiment)
    sentence = {"error": "no\x1b[31m more\n" + "x" * 1000}
    parties.fail = lambda request: (
        httpx.Response(status, json=sentence)
        if request.method == "PUT" and ADDRESSES[1] in str(request.url)
        else None
    )
    device.wait_and_report()
    half = device.status()[0].shares[1]
    assert half.attempts == 1
    assert half.rejected is not None
    assert half.rejected.startswith("rejected: no[31m more")
    assert len(half.rejected) < 400
    assert device.status()[0].shares[0].sent


def test_a_device_offline_until_the_deadline_sends_and_pays_nothing() -> None:
    parties = Parties()
    released = parties.open()
    device = parties.device()
    device.join(parties.experiment)
    device.record(parties.experiment, 1)
    parties.clock.now = float(released.round.binding.closes)
    device.wait_and_report(outcomes=True)
    assert puts(parties) == []
    assert device.status()[0].outcome == "missed"
    assert device.ledger.spent == 0


def test_a_device_that_wakes_late_still_reports_before_the_deadline() -> None:
    parties = Parties()
    released = parties.open()
    device = parties.device()
    device.join(parties.experiment)
    parties.clock.now = released.round.binding.closes - 0.5
    device.wait_and_report()
    assert len(puts(parties)) == 2


def test_after_sending_the_ledger_contains_neither_answer_nor_ciphertext(ledger: Ledger) -> None:
    parties = Parties()
    parties.open()
    device = parties.device(ledger)
    device.join(parties.experiment)
    device.record(parties.experiment, 1)
    assert rows(ledger, "SELECT levels FROM rounds") == [("[1]",)]
    device.wait_and_report()
    assert rows(ledger, "SELECT levels FROM rounds") == [(None,)]
    sent = puts(parties)
    assert len(sent) == 2
    for body in sent:
        assert body not in everything(ledger)
        assert body[-40:] not in everything(ledger)
    device.wait_and_report(outcomes=True)
    kept = rows(ledger, "SELECT announcement, slot, seed, invitation, levels FROM rounds")
    assert kept == [(None,) * 5]


def test_an_undelivered_report_is_deleted_at_the_deadline(ledger: Ledger) -> None:
    parties = Parties()
    released = parties.open()
    device = parties.device(ledger)
    device.join(parties.experiment)
    parties.fail = lambda request: down() if "/rounds/" in str(request.url) else None
    device.wait_and_report()
    assert puts(parties)[0] in everything(ledger)
    attempts = len(puts(parties))
    parties.clock.now = released.round.binding.closes + 3600.0
    device.run_due()
    assert len(puts(parties)) == attempts
    assert puts(parties)[0] not in everything(ledger)
    assert device.ledger.spent == Fraction(1, 2)


def test_two_devices_on_one_ledger_make_each_attempt_once(ledger: Ledger) -> None:
    parties = Parties()
    parties.open()
    first, second = parties.device(ledger), parties.device(Ledger(ledger.path), seed=1)
    assert first.join(parties.experiment) == second.join(parties.experiment)
    parties.clock.now = first.status()[0].reports_at
    first.run_due()
    second.run_due()
    assert len(puts(parties)) == 2
    second.ledger.close()


@pytest.mark.parametrize("asked", [(True, True), (True, False), (False, True)])
def test_the_first_of_two_concurrent_joins_counts(ledger: Ledger, asked: tuple[bool, bool]) -> None:
    """Both saw that nothing was joined; the first is done before the second asks."""
    parties = Parties()
    parties.open(option=1)
    devices = parties.device(ledger), parties.device(Ledger(ledger.path), seed=1)
    devices[0].terms(parties.experiment)
    first, late = (device.join_round(parties.experiment) for device in devices)
    given = []
    for talk, wanted in zip((first, late), asked, strict=True):
        parties.asked = wanted
        ledger._db.execute("UPDATE lineages SET until = -until, nonce = NULL")  # not seen yet
        request = next(talk)
        ledger._db.execute("UPDATE lineages SET until = abs(until)")
        response = parties.answer(httpx.Request("POST", request.url, content=request.content))
        with pytest.raises(StopIteration) as done:
            talk.send(Reply(response.status_code, response.content))
        given.append(done.value.value)
    assert given[0] == given[1]
    assert given[0].asked == asked[0]
    assert len(rows(ledger, "SELECT * FROM rounds")) == asked[0]
    assert len(parties.nonces) == 2
    devices[1].ledger.close()


# Refunds


def rejected_round(parties: Parties, device: Device) -> Open:
    """A round aborted with too few reports."""
    released = parties.open(minimum=2)
    assert device.join(parties.experiment).asked
    device.wait_and_report()
    parties.clock.now = float(released.round.binding.closes)
    return released


def test_a_round_aborted_by_both_servers_is_refunded() -> None:
    parties = Parties()
    device = parties.device()
    rejected_round(parties, device)
    assert device.ledger.spent == Fraction(1, 2)
    device.wait_and_report(outcomes=True)
    assert device.ledger.spent == 0
    assert (device.status()[0].outcome, device.status()[0].charged) == ("refused", False)


@pytest.mark.parametrize("role", [0, 1])
def test_one_servers_abort_refunds_nothing(role: int) -> None:
    parties = Parties()
    device = parties.device()
    rejected_round(parties, device)
    parties.fail = lambda request: (
        down() if str(request.url).startswith(ADDRESSES[1 - role]) else None
    )
    device.wait_and_report(outcomes=True)
    assert (device.status()[0].outcome, device.status()[0].charged) == ("refused", True)


def test_one_servers_repeated_or_forged_abort_refunds_nothing() -> None:
    for spoilt in (False, True):
        parties = Parties()
        device = parties.device()
        released = rejected_round(parties, device)
        parties.finish(released)
        said = released.servers[0].outcome()
        if spoilt:
            said = said[:-1] + bytes([said[-1] ^ 1])
        parties.fail = lambda request, said=said: (  # type: ignore[misc]
            httpx.Response(200, content=said) if request.url.path.endswith("outcome") else None
        )
        device.wait_and_report(outcomes=True)
        assert device.status()[0].charged


@pytest.mark.parametrize("unknown", [False, True])
def test_an_invalid_outcome_is_ignored_and_requested_again(unknown: bool) -> None:
    """Neither the other server's rejection, nor that the server knows nothing of the round."""
    parties = Parties()
    device = parties.device()
    released = rejected_round(parties, device)
    parties.finish(released)
    nothing = PartyRoundState(MemoryRecords(), b"", released.round.identity)
    said = nothing.outcome(released.round, 0, KEYS[0])
    relayed = [said if unknown else released.servers[1].outcome()]

    def relay(request: httpx.Request) -> httpx.Response | None:
        mine = str(request.url).startswith(ADDRESSES[0]) and request.url.path.endswith("outcome")
        return httpx.Response(200, content=relayed.pop()) if mine and relayed else None

    parties.fail = relay
    device.wait_and_report(outcomes=True)
    assert relayed == []
    assert (device.status()[0].outcome, device.status()[0].charged) == ("refused", False)


def test_a_released_round_is_charged_even_if_the_report_was_lost() -> None:
    parties = Parties()
    released = parties.open(minimum=1)
    other, device = parties.device(seed=1), parties.device(seed=2)
    for one in (other, device):
        one.join(parties.experiment)
    now = parties.clock.now
    other.wait_and_report()
    parties.clock.now = now
    parties.fail = lambda request: down() if request.method == "PUT" else None
    device.wait_and_report()
    parties.clock.now = float(released.round.binding.closes)
    device.wait_and_report(outcomes=True)
    assert (device.status()[0].outcome, device.status()[0].charged) == ("opened", True)
    assert not any(half.sent for half in device.status()[0].shares)


def test_a_device_joins_at_most_three_aborted_rounds() -> None:
    parties = Parties(terms(guarantee=StatedGuarantee(Fraction(8), participations=16)))
    device = parties.device()
    for _ in range(MOST_ABORTED):
        rejected_round(parties, device)
        device.wait_and_report(outcomes=True)
    parties.open()
    requests = len(parties.trace)
    with pytest.raises(Rejected, match="unresolved rounds is 3: must be below 3"):
        device.join(parties.experiment)
    assert len(parties.trace) == requests


def test_withheld_outcomes_allow_no_more_rounds_than_aborts() -> None:
    parties = Parties(terms(guarantee=StatedGuarantee(Fraction(8), participations=16)))
    parties.fail = lambda request: down() if request.url.path.endswith("outcome") else None
    device = parties.device()
    for _ in range(MOST_ABORTED):
        rejected_round(parties, device)
    parties.open()
    with pytest.raises(Rejected, match="unresolved rounds is 3"):
        device.join(parties.experiment)
    parties.fail = lambda _: None
    device.wait_and_report(outcomes=True)
    assert {one.outcome for one in device.status()} == {"refused"}
    with pytest.raises(Rejected, match="unresolved rounds is 3: must be below 3"):
        device.join(parties.experiment)


# Leaving


def test_withdrawal_deletes_unsent_reports_and_refunds_nothing(ledger: Ledger) -> None:
    parties = Parties()
    parties.open()
    device = parties.device(ledger)
    device.join(parties.experiment)
    device.record(parties.experiment, 1)
    device.withdraw(parties.experiment)
    device.wait_and_report(outcomes=True)
    assert puts(parties) == []
    assert device.status()[0].outcome == "withdrawn"
    assert device.ledger.spent == 0
    assert rows(ledger, "SELECT levels FROM rounds") == [(None,)]


def test_withdrawal_between_encryption_and_sending_stays_charged(ledger: Ledger) -> None:
    parties = Parties()
    parties.open()
    device = parties.device(ledger)
    device.join(parties.experiment)
    parties.fail = lambda request: down() if request.method == "PUT" else None
    parties.clock.now = device.status()[0].reports_at
    device.run_due()
    encrypted = puts(parties)
    device.withdraw(parties.experiment)
    parties.fail = lambda _: None
    device.wait_and_report(outcomes=True)
    assert puts(parties) == encrypted
    assert device.ledger.spent == Fraction(1, 2)
    assert all(body not in everything(ledger) for body in encrypted)


def test_rejoining_after_withdrawal_needs_consent() -> None:
    parties = Parties()
    parties.open()
    device = parties.device()
    device.join(parties.experiment)
    device.withdraw(parties.experiment)
    with pytest.raises(Unagreed):
        device.join(parties.experiment)
    device.agree(parties.experiment)
    parties.open()
    assert device.join(parties.experiment).asked


# Successors


def test_successors_with_the_same_question_are_followed_and_share_the_account() -> None:
    parties = Parties()
    first = parties.experiment
    device = parties.device()
    released = parties.open()
    device.join(first)
    device.wait_and_report()
    parties.succeed(
        terms(predecessor=first, guarantee=StatedGuarantee(Fraction(3, 4)), admission="open")
    )
    parties.open()
    parties.clock.now = released.round.binding.closes + 3600.0
    given = device.join(first)
    assert (given.asked, given.option) == (False, "Hello")  # 1/2 + 1/2 is more than 3/4
    known = device.ledger.known(first)
    assert known is not None
    assert (known.account.limit, known.account.spent) == (Fraction(3, 4), Fraction(1, 2))
    assert known.pinned.terms.digest == parties.experiment


def test_changed_options_are_shown_again_before_joining() -> None:
    parties = Parties()
    first = parties.experiment
    device = parties.device()
    parties.open()
    device.join(first)
    device.wait_and_report(outcomes=True)
    parties.succeed(terms(predecessor=first, options=("Hello", "Hi", "Hey")))
    parties.clock.sleep(3600)
    parties.open(option=2)
    with pytest.raises(Unagreed) as asked:
        device.join(first)
    assert any("Hey" in sentence for sentence in asked.value.words)
    assert not device.terms(first).agreed
    device.agree(asked.value.digest)
    assert device.join(first).option == "Hey"
    device.wait_and_report()
    assert device.ledger.spent == 1


def test_a_device_learns_of_successors_from_a_slot() -> None:
    parties = Parties()
    first = parties.experiment
    device = parties.device()
    device.terms(first)
    parties.succeed(terms(predecessor=first, guarantee=StatedGuarantee(Fraction(1, 2))))
    parties.open(option=1)
    parties.fail = lambda request: (
        httpx.Response(409, json={"error": "these terms have been succeeded by others"})
        if request.method == "POST" and first.hex() in str(request.url)
        else None
    )
    assert device.join(first).option == "Hi"
    device.wait_and_report()
    assert device.ledger.spent == Fraction(1, 2)


def test_a_coordinator_that_always_claims_a_successor_is_asked_once() -> None:
    parties = Parties()
    device = parties.device()
    parties.fail = lambda request: httpx.Response(409) if request.method == "POST" else None
    with pytest.raises(Rejected, match="the coordinator rejects"):
        device.join(parties.experiment)
    assert len(parties.trace) == 5


def test_a_changed_purpose_or_organisation_is_shown_again() -> None:
    for changes in ({"purpose": "to sell"}, {"organisation": "Somebody else"}):
        parties = Parties()
        parties.open()
        device, first = parties.device(), parties.experiment
        device.join(first)
        device.wait_and_report(outcomes=True)
        parties.succeed(terms(predecessor=first, contact="a@b.example"))
        parties.clock.now += 3700
        parties.open()
        assert device.join(first).asked  # whom to write to may change
        device.wait_and_report(outcomes=True)
        parties.succeed(terms(predecessor=parties.experiment, **changes))
        parties.clock.now += 3700
        with pytest.raises(Unagreed):
            device.join(first)


def test_without_budget_the_best_option_of_an_ended_experiment_is_used() -> None:
    parties = Parties(terms(guarantee=StatedGuarantee(Fraction(1, 2))))
    device = parties.device()
    released = parties.open(option=1)
    assert device.join(parties.experiment).option == "Hi"
    device.wait_and_report()
    parties.clock.now = released.round.binding.closes + 3600.0
    for copies in parties.copies:
        copies[parties.experiment]["state"] = "finished"
    given = device.join(parties.experiment)
    assert (given.option, given.asked) == ("Hello", False)


def test_keys_change_through_successor_terms_only() -> None:
    parties = Parties()
    first = parties.experiment
    device = parties.device()
    device.terms(first)
    moved = tuple(
        replace(party, key=key.public_key().public_bytes_raw())
        for party, key in zip(terms().parties, KEYS[2:], strict=True)
    )
    parties.succeed(terms(predecessor=first, parties=moved))
    parties.clock.sleep(3600)
    released = parties.open()
    assert device.join(first).asked
    device.record(first, 1)
    device.wait_and_report()
    assert total(parties, released) == (1,)


def test_a_device_that_sees_the_successor_first_pins_it_normally() -> None:
    parties = Parties()
    parties.succeed(terms(predecessor=parties.experiment, options=("Hello", "Hey")))
    parties.open(option=1)
    assert parties.device().join(parties.experiment).option == "Hey"


# Invitations


def test_the_invitation_secret_goes_to_the_helper_only() -> None:
    parties = Parties(terms(admission="invitation", issuer=public_key(KEYS[3])))
    parties.open()
    device = parties.device()
    with pytest.raises(Rejected, match="by invitation"):
        device.join(parties.experiment)
    with pytest.raises(Rejected, match="ASCII"):
        device.join(parties.experiment, "nö\n")
    ticket = encoded(bytes(range(80)))
    for malformed in (f"{ticket} ", f" {ticket}", f"{ticket}=", ticket[:-1], f"<{ticket}>"):
        with pytest.raises(Rejected, match="Copy it again"):
            device.join(parties.experiment, malformed)
    assert all(seen.method == "GET" for seen in parties.trace)
    shown = without_secret(ticket)
    assert shown != ticket
    device.join(parties.experiment, ticket)
    device.wait_and_report()
    places = [body for body in parties.bodies if body.startswith(b"{")]
    assert [json.loads(body)["invitation"] for body in places] == [shown]
    said = {
        httpx.URL(seen.url).host: dict(seen.headers)["tacit-invitation"]
        for seen in parties.trace
        if seen.method == "PUT"
    }
    assert said == {"coordinator.test": shown, "helper.test": ticket}


# What a network sees


@pytest.mark.parametrize("client", [False, True])
def test_cookies_are_never_sent_back(client: bool) -> None:
    parties = Parties()
    parties.open()
    device = parties.device(client=client)

    def marked(request: httpx.Request) -> httpx.Response | None:
        if request.method != "GET":
            return None
        found = parties.copies[0][parties.experiment]
        return httpx.Response(200, json=found, headers={"Set-Cookie": "who=this; Path=/"})

    parties.fail = marked
    device.join(parties.experiment)
    device.wait_and_report()
    assert len(parties.trace) == 5
    assert not any("cookie" in dict(seen.headers) for seen in parties.trace)


@pytest.mark.parametrize("problem", [httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError])
def test_a_connection_closed_meanwhile_loses_no_request(
    problem: type[httpx.TransportError],
) -> None:
    async def drive(device: AsyncDevice, experiment: bytes) -> None:
        await device.join(experiment)
        await device.wait_and_report(outcomes=True)

    for awaited in (False, True):
        parties, met = Parties(), set[str]()
        parties.open()

        def closing(request: httpx.Request, met: set[str] = met) -> None:
            if str(request.url) not in met:
                met.add(str(request.url))
                raise problem("Server disconnected without sending a response.")

        parties.fail = closing
        device = parties.async_device() if awaited else parties.device()
        if isinstance(device, AsyncDevice):
            asyncio.run(drive(device, parties.experiment))
        else:
            device.join(parties.experiment)
            device.wait_and_report(outcomes=True)
        (receipt,) = device.status()
        assert receipt.outcome == "opened"
        assert [half.attempts for half in receipt.shares] == [1, 1]
        assert len(parties.trace) == 2 * len(met) == 14


def test_a_request_that_fails_twice_is_not_made_a_third_time() -> None:
    parties, tried = Parties(), list[str]()

    def gone(request: httpx.Request) -> None:
        tried.append(request.method)
        raise httpx.RemoteProtocolError("Server disconnected without sending a response.")

    parties.fail = gone
    with pytest.raises(Offline):
        parties.device().join(parties.experiment)
    assert tried == ["GET", "GET"]


def test_an_endless_reply_is_discarded() -> None:
    parties = Parties()
    device = parties.device()
    parties.fail = lambda _: httpx.Response(200, content=b"[" * (1 << 21))
    with pytest.raises(Offline):
        device.join(parties.experiment)


def test_pins_are_validated_on_construction() -> None:
    assert PINS.helper is not None
    for wrong in ("", "ab", "zz" * 32, PINS.helper + "00", " " + PINS.helper[1:]):
        with pytest.raises(TacitError, match="hexadecimal"):
            Pins(ADDRESSES[0], PINS.coordinator, wrong)
    for wrong in ("coordinator.example", "127.0.0.1:8700", ""):
        with pytest.raises(TacitError, match=r"address is '.*': must be a URL that begins with"):
            Pins(wrong, PINS.coordinator, PINS.helper)


@pytest.mark.parametrize("kind", [Device, AsyncDevice])
def test_a_device_rejects_arguments_of_wrong_types_immediately(kind: type, tmp_path: Path) -> None:
    path = tmp_path / "me.db"
    for ledger in (str(path), path, PINS):
        with pytest.raises(TacitError, match=r"ledger is .*: must be of type Ledger. Give"):
            kind(ledger, PINS)
    assert not path.exists()
    with pytest.raises(TacitError, match=r"pins is \{.*: must be of type Pins. Give Pins"):
        kind(Ledger(":memory:"), {"address": ADDRESSES[0]})
    with pytest.raises(TacitError, match="accept is True: must be of type Acceptance"):
        kind(Ledger(":memory:"), PINS, accept=True)


def test_a_ledger_in_a_missing_directory_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"No such file or .*create its directory"):
        Ledger(tmp_path / "data" / "me.db")


def test_an_experiment_is_identified_by_its_full_digest(tmp_path: Path) -> None:
    with Device(Ledger(tmp_path / "ledger"), PINS) as device:
        for part in ("e9631", "", b"ab", "z" * 64):
            with pytest.raises(TacitError, match=r"experiment is .*hexadecimal digits"):
                device.terms(part)


def test_terms_under_keys_no_longer_pinned_are_not_used() -> None:
    parties = Parties()
    parties.open()
    ledger = Ledger(":memory:")
    parties.device(ledger).terms(parties.experiment)
    assert PINS.helper is not None
    other = Pins(ADDRESSES[0], PINS.helper, PINS.coordinator)
    with pytest.raises(Rejected, match="must be the pinned key"):
        parties.device(ledger, other).join(parties.experiment)
    assert all(seen.method == "GET" for seen in parties.trace)


def test_a_device_manages_its_own_http_client() -> None:
    with Device(Ledger(":memory:"), PINS) as device:
        assert device.run_due() is None
        assert device.record(bytes(32), 1) is False
    for name in (b"short", "00", "x" * 64):
        with pytest.raises(TacitError):
            device.record(name, 1)


@pytest.mark.parametrize(("late", "taken"), [(0.0, True), (0.9, True), (1.0, False)])
def test_the_last_second_of_joining_uses_the_devices_clock(late: float, taken: bool) -> None:
    parties = Parties()
    parties.open()
    device = parties.device()
    parties.clock.now = START + JOINING + late
    parties.lag = 5.0  # the coordinator's clock goes after
    if taken:
        assert device.join(parties.experiment).asked
    else:
        with pytest.raises(Rejected, match="clocks"):
            device.join(parties.experiment)


def test_a_slow_reply_does_not_make_a_device_late() -> None:
    parties = Parties()
    released = parties.open()
    device = parties.device()
    parties.clock.now = START + JOINING

    def slow(request: httpx.Request) -> httpx.Response | None:
        if request.method != "POST":
            return None
        given = parties.assign(json.loads(request.content))
        parties.clock.sleep(8)
        return given

    parties.fail = slow
    given = device.join(parties.experiment)
    assert given.reports_at is not None
    assert given.reports_at <= released.round.binding.closes - MARGIN / 2
