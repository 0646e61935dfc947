"""Live experiments behind OpenFeature's own client, synchronous and asynchronous."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import httpx
import pytest
from openfeature import api
from openfeature.client import OpenFeatureClient
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import Reason
from openfeature.provider import ProviderStatus
from openfeature.track import TrackingEventDetails
from tests.service.parties import PINS, Parties, rows, terms

from tacit.client import Device, Ledger
from tacit.client.openfeature import Flag, TacitProvider
from tacit.terms import Answer, Noise

SOMEBODY = EvaluationContext("somebody", {"plan": "gold"})


@pytest.fixture(autouse=True)
def _cleared() -> Iterator[None]:
    yield
    api.clear_providers()


def provided(
    parties: Parties, device: Device, reporter: bool = False, **flag: Any
) -> TacitProvider:
    named = Flag(parties.experiment.hex(), **flag)
    provider = TacitProvider(device, {"greeting": named}, reporter=reporter)
    api.set_provider_and_wait(provider)
    return provider


def client() -> OpenFeatureClient:
    return api.get_client()


# Evaluating


def test_a_second_targeting_key_is_an_error_with_a_remedy(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a server, where all users would get the first one's variant."""
    parties = Parties()
    parties.open(option=1)
    device = parties.device()
    provided(parties, device)
    assert client().get_string_value("greeting", "default") == "Hi"
    assert client().get_string_value("greeting", "default", SOMEBODY) == "Hi"
    other = EvaluationContext("somebody-else")
    for _ in range(2):
        details = client().get_string_details("greeting", "default", other)
        assert (details.value, details.variant) == ("default", None)
        assert (details.reason, details.error_code) == (Reason.ERROR, ErrorCode.INVALID_CONTEXT)
        assert "Run it in each participant's app" in str(details.error_message)
        assert "somebody" not in str(details.error_message)
    recorded = list[Any]()
    monkeypatch.setattr(device, "record", lambda *given: recorded.append(given))
    client().track("greeting", other)
    assert "Event greeting not recorded: targetingKey differs" in caplog.text
    assert not recorded
    client().track("greeting", SOMEBODY)
    assert len(recorded) == 1
    asked = asyncio.run(client().get_string_details_async("greeting", "default", other))
    assert asked.error_code == ErrorCode.INVALID_CONTEXT
    assert client().get_string_value("greeting", "default", SOMEBODY) == "Hi"


def test_evaluating_a_flag_assigns_an_option_that_stays() -> None:
    parties = Parties()
    parties.open(option=1)
    provided(parties, parties.device())
    details = client().get_string_details("greeting", "default", SOMEBODY)
    assert (details.value, details.variant, details.reason) == ("Hi", "Hi", Reason.SPLIT)
    assert details.flag_metadata == {"asked": True}
    requests = len(parties.trace)
    parties.open(option=0)
    for _ in range(3):
        assert client().get_string_value("greeting", "default", SOMEBODY) == "Hi"
    assert len(parties.trace) == requests
    assert b"somebody" not in b"".join(parties.bodies)
    assert b"gold" not in b"".join(parties.bodies)


@pytest.mark.parametrize(
    ("kind", "values", "default"),
    [
        ("boolean", {"Hello": False, "Hi": True}, False),
        ("integer", {"Hello": 1, "Hi": 2}, 0),
        ("float", {"Hello": 1.5, "Hi": 2.5}, 0.0),
        ("object", {"Hello": {"size": 1}, "Hi": {"size": 2}}, {}),
        ("string", {"Hello": "good day", "Hi": "hey"}, ""),
    ],
)
def test_flags_of_every_type_return_the_value_of_their_option(
    kind: str, values: dict[str, Any], default: Any
) -> None:
    async def awaited() -> Any:
        return await getattr(client(), f"get_{kind}_value_async")("greeting", default)

    parties = Parties()
    parties.open(option=1)
    provided(parties, parties.device(), values=values)
    assert getattr(client(), f"get_{kind}_value")("greeting", default) == values["Hi"]
    assert asyncio.run(awaited()) == values["Hi"]


def test_an_asynchronous_evaluation_does_not_block_the_loop() -> None:
    """A server that answers only after the loop has done something else."""
    parties, other = Parties(), threading.Event()
    parties.open()
    parties.fail = lambda _: None if other.wait(60) else httpx.Response(503)

    async def both() -> str:
        waiting = asyncio.create_task(client().get_string_value_async("greeting", "default"))
        await asyncio.sleep(0.05)
        other.set()
        return await waiting

    provided(parties, parties.device())
    assert asyncio.run(both()) == "Hello"


def test_a_flag_of_the_wrong_type_sends_no_request() -> None:
    parties = Parties()
    parties.open()
    provided(parties, parties.device(), values={"Hello": True})  # and nothing for Hi
    for kind, default in (("boolean", True), ("integer", 3), ("object", {})):
        details = getattr(client(), f"get_{kind}_details")("greeting", default)
        assert details.value == default
        assert details.error_code is ErrorCode.TYPE_MISMATCH
    assert all(seen.method == "GET" for seen in parties.trace)


def test_an_unknown_flag_is_not_found() -> None:
    parties = Parties()
    provided(parties, parties.device())
    details = client().get_string_details("other", "default")
    assert (details.value, details.error_code) == ("default", ErrorCode.FLAG_NOT_FOUND)
    assert parties.trace == []


def test_offline_or_rejected_flags_use_the_default_without_hammering() -> None:
    for answer in (httpx.Response(503), httpx.Response(409, json={"error": "it is paused"})):
        parties = Parties()
        parties.open()
        provided(parties, parties.device())
        parties.fail = lambda request, answer=answer: (  # type: ignore[misc]
            answer if request.method == "POST" else None
        )
        details = client().get_string_details("greeting", "default")
        assert (details.value, details.reason, details.error_code) == (
            "default",
            Reason.DEFAULT,
            None,
        )
        assert "coordinator" in str(details.flag_metadata["why"])
        requests = len(parties.trace)
        assert client().get_string_value("greeting", "default") == "default"
        assert len(parties.trace) == requests


def test_changed_options_wait_for_consent() -> None:
    parties = Parties()
    first = parties.experiment
    parties.open()
    device = parties.device()
    provider = provided(parties, device)
    client().get_string_value("greeting", "default")
    device.wait_and_report(outcomes=True)
    parties.succeed(terms(predecessor=first, options=("Hello", "Hey")))
    parties.clock.sleep(3600)
    parties.open(option=1)
    details = client().get_string_details("greeting", "default")
    assert (details.value, details.reason) == ("default", Reason.DEFAULT)
    device.agree(parties.experiment)
    provider._not_before.clear()  # half a minute later
    assert client().get_string_value("greeting", "default") == "Hey"


# Tracking


def levels(device: Device) -> str:
    return str(device.ledger._db.execute("SELECT levels FROM rounds").fetchone()[0])


def test_tracking_is_local_and_sends_nothing() -> None:
    parties = Parties()
    parties.open()
    device = parties.device()
    provided(parties, device)
    client().track("greeting")  # before there is anything to record
    assert parties.trace == []
    client().get_string_value("greeting", "default")
    requests = len(parties.trace)
    for event, details, expected in (
        ("something else", None, "[0]"),
        ("greeting", None, "[1]"),
        ("answer", TrackingEventDetails(0.0), "[0]"),
        ("answer", TrackingEventDetails(7.0), "[1]"),
        ("answer", TrackingEventDetails(float("-inf")), "[0]"),
        ("answer", TrackingEventDetails(1.0), "[1]"),
        ("answer", TrackingEventDetails(float("nan")), "[1]"),
    ):
        client().track(event, SOMEBODY, details)
        assert levels(device) == expected
    assert len(parties.trace) == requests


def test_events_map_to_the_declared_metrics() -> None:
    answer = Answer("how it went", ("walked", "liked"), 4, 60, high=Fraction(60))
    parties = Parties(terms(answer=answer, noise=Noise(Fraction(16))))
    parties.open()
    device = parties.device()
    provided(parties, device, events={"steps": "walked"})
    client().get_string_value("greeting", "default")
    client().track("steps", tracking_event_details=TrackingEventDetails(45))
    client().track("liked", tracking_event_details=TrackingEventDetails(60))
    client().track("greeting")
    assert levels(device) == "[3, 0]"


def test_an_unknown_metric_is_logged_without_raising(caplog: pytest.LogCaptureFixture) -> None:
    parties = Parties()
    parties.open()
    provided(parties, parties.device(), events={"steps": "nothing"})
    client().get_string_value("greeting", "default")
    client().track("steps")
    assert "Event steps not recorded" in caplog.text


# The reporter


def real_time(parties: Parties, ledger: Ledger) -> Device:
    """A device whose clock is that of the machine, and servers with the same."""
    http = httpx.Client(transport=httpx.MockTransport(parties.answer))
    return Device(ledger, PINS, http=http)


class Machine:
    """The machine's clock, for servers that live in the year of these tests' terms."""

    @property
    def now(self) -> float:
        return time.time()

    def __call__(self) -> float:
        return time.time()


def quick() -> Parties:
    """Rounds of this very second, with a window of none."""
    today = datetime.now(UTC).date()
    return Parties(
        terms(
            answer=Answer("1 if you liked it", window=0),
            first_day=today - timedelta(days=1),
            last_day=today + timedelta(days=1),
        ),
        Machine(),  # type: ignore[arg-type]
    )


def test_a_background_thread_reports_at_the_fixed_time(ledger: Ledger) -> None:
    parties = quick()
    now = int(time.time())
    parties.open(assigned_until=now + 60, closes=now + 62)
    device = real_time(parties, ledger)
    provider = provided(parties, device, reporter=True)
    assert client().get_provider_status() is ProviderStatus.READY
    assert client().get_string_value("greeting", "default") == "Hello"
    client().track("greeting")
    due = device.status()[0].reports_at
    _until(lambda: len(parties.trace) >= 5)
    sent = [seen.at for seen in parties.trace if seen.method == "PUT"]
    assert len(sent) == 2
    assert due <= sent[0] < due + 20
    assert provider._thread is not None
    api.shutdown()
    assert provider._thread is None


def test_the_reporter_restarts_after_shutdown_and_sends_waiting_reports(ledger: Ledger) -> None:
    parties = quick()
    now = int(time.time())
    parties.open(assigned_until=now + 60, closes=now + 64)
    device = real_time(parties, ledger)
    provider = provided(parties, device, reporter=True)
    client().get_string_value("greeting", "default")
    provider.shutdown()
    provider.shutdown()
    assert not [thread for thread in threading.enumerate() if thread.name == "tacit"]
    assert device.status()[0].shares == () or len(parties.trace) == 5
    provider.initialize(EvaluationContext())
    provider.initialize(EvaluationContext())
    assert len([thread for thread in threading.enumerate() if thread.name == "tacit"]) == 1
    _until(lambda: len(parties.trace) >= 5)


def test_an_unwritable_ledger_does_not_end_the_reporter(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    parties = quick()
    provider = provided(parties, real_time(parties, ledger), reporter=False)
    ledger.close()
    provider._reporter = True
    provider.initialize(EvaluationContext())
    _until(lambda: "Reports not sent" in caplog.text)
    assert provider._thread is not None
    assert provider._thread.is_alive()
    provider.shutdown()


def test_without_a_reporter_nothing_is_sent_automatically(ledger: Ledger) -> None:
    parties = Parties()
    parties.open()
    device = parties.device(ledger)
    provider = provided(parties, device)
    client().get_string_value("greeting", "default")
    assert provider._thread is None
    parties.clock.sleep(85)
    assert len(parties.trace) == 3
    device.run_due()
    assert len(parties.trace) == 5
    assert rows(ledger, "SELECT charged FROM rounds") == [(1,)]


def _until(happened: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)
