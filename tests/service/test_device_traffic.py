"""Traffic analysis: time, number, size and order of a device's requests are independent of the
answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction
from itertools import product

import httpx
import pytest
from tests.samples import same_distribution
from tests.service.parties import ADDRESSES, JOINING, MARGIN, START, Parties, Seen, terms

from tacit.client import Device, Ledger
from tacit.client.report_schedule import Attempt, RequestSchedule
from tacit.terms import Answer, Noise

FALSE_ALARM = 1e-6

Act = Callable[[Device, Parties], None]


def never(device: Device, parties: Parties) -> None:
    """Nothing happens."""


def early(value: int) -> Act:
    """The outcome is known at once."""
    return lambda device, parties: _recorded(device, parties, value, 1.0)


def late(value: int) -> Act:
    """The event is recorded at the last moment, and again."""
    return lambda device, parties: _recorded(device, parties, value, 59.9, 0.05)


def after(value: int) -> Act:
    """The event is recorded after everything was sent."""
    return lambda device, parties: _recorded(device, parties, value, 139.0)


def _recorded(device: Device, parties: Parties, value: int, *pauses: float) -> None:
    for pause in pauses:
        requests = len(parties.trace)
        parties.clock.sleep(pause)
        device.record(parties.experiment, value)
        assert len(parties.trace) == requests


ANSWERS: dict[str, Act] = {
    "never": never,
    "early 0": early(0),
    "early 1": early(1),
    "late 0": late(0),
    "late 1": late(1),
}


def traffic(act: Act, seed: int, lossy: float) -> list[tuple[object, ...]]:
    """Every request of two participations: when, to whom, how large, with which headers. Places
    and rounds have random names, so they are numbered.
    """
    parties, network = Parties(), random.Random(seed + 1)
    device = parties.device(seed=seed)

    def flaky(request: httpx.Request) -> httpx.Response | None:
        if request.method == "POST":
            return None
        parties.clock.sleep(network.random())  # a reply takes its time
        match network.random() / lossy if lossy else 9:
            case drawn if drawn < 0.3:
                raise httpx.ReadTimeout("lost")
            case drawn if drawn < 0.7:
                return httpx.Response(503)
            case drawn if drawn < 0.8:
                raise httpx.ConnectError("gone")
            case drawn if drawn < 1.0:
                return httpx.Response(429, headers={"Retry-After": "1"})
        return None

    for _ in range(2):
        released = parties.open()
        parties.fail = lambda _: None
        device.join(parties.experiment)
        parties.fail = flaky
        began = parties.clock.now
        act(device, parties)
        device.wait_and_report()
        parties.clock.now = max(parties.clock.now, float(released.round.binding.closes))
        parties.finish(released)
        device.wait_and_report(outcomes=True)
        parties.clock.now = began + 3000  # the next day
    return named(parties.trace)


def named(trace: list[Seen]) -> list[tuple[object, ...]]:
    names: dict[str, int] = {}
    plain: list[tuple[object, ...]] = []
    for seen in trace:
        parts = seen.url.split("/")
        where = tuple(names.setdefault(part, len(names)) for part in parts)
        plain.append((seen.at, seen.method, where, seen.size, seen.headers))
    return plain


@pytest.mark.parametrize("lossy", [0.0, 0.7])
def test_traffic_is_identical_whatever_the_answer(lossy: float) -> None:
    """With the same seeds of clock and network; only encrypted bytes differ."""
    retried = 0
    for seed in range(3):
        seen = {name: traffic(act, seed, lossy) for name, act in ANSWERS.items()}
        assert all(trace == seen["never"] for trace in seen.values())
        retried += sum(method == "PUT" for _, method, *_ in seen["never"]) > 4
    assert bool(retried) == bool(lossy)


def test_one_additional_request_is_detected() -> None:
    """The comparison can fail: who asks for the terms again when something happened is caught."""

    def nosy(device: Device, parties: Parties) -> None:
        if device.record(parties.experiment, 1):
            device.ledger.remember(parties.pinned, "running", 0.0)  # old, so it is asked for again
            device.terms(parties.experiment)

    assert traffic(nosy, 1, 0.0) != traffic(never, 1, 0.0)


def test_a_late_answer_changes_no_traffic() -> None:
    """The device was running all the time, and looks at nothing twice."""

    def running(value: int | None) -> list[tuple[object, ...]]:
        parties = Parties()
        device = parties.device(seed=3)
        parties.open()
        device.join(parties.experiment)
        device.wait_and_report()
        if value is not None:
            assert not device.record(parties.experiment, value)
        device.wait_and_report(outcomes=True)
        return named(parties.trace)

    assert running(0) == running(1) == running(None)


def test_message_sizes_are_equal_for_every_level_and_metric() -> None:
    answer = Answer("how it went", ("walked", "liked"), 300, 60, high=Fraction(60))
    sizes = set()
    for walked, liked in product((0, 7.25, 60), repeat=2):
        parties = Parties(terms(answer=answer, noise=Noise(Fraction(1200))))
        parties.open()
        device = parties.device()
        device.join(parties.experiment)
        device.record(parties.experiment, {"walked": walked, "liked": liked})
        device.wait_and_report()
        sizes.add(tuple(seen.size for seen in parties.trace))
    assert len(sizes) == 1


def test_sending_times_are_independent_of_the_answer() -> None:
    """120 devices with randomness of their own; false-alarm rate 1e-6."""
    times: dict[int, list[float]] = {0: [], 1: []}
    for number in range(120):
        parties = Parties()
        parties.open()
        device = parties.device(seed=number)
        device.join(parties.experiment)
        device.record(parties.experiment, number % 2)
        device.wait_and_report()
        times[number % 2].append(parties.trace[-1].at - START)
    assert same_distribution(times[0], times[1]) > FALSE_ALARM
    assert all(60 <= when <= 60 + MARGIN / 2 for both in times.values() for when in both)


def test_the_sending_time_is_fixed_when_joining() -> None:
    parties = Parties()
    parties.open()
    device = parties.device()
    given = device.join(parties.experiment)
    device.record(parties.experiment, 1)
    device.wait_and_report()
    sent = [seen.at for seen in parties.trace if seen.method == "PUT"]
    assert sent == [given.reports_at] * 2


def test_sending_times_are_uniform_over_half_the_margin() -> None:
    """2000 seeds; false-alarm rate 1e-6."""
    draws = [_pace(number).first_send - START - 60 for number in range(2000)]
    even = [(number + 0.5) / 2000 * MARGIN / 2 for number in range(2000)]
    assert same_distribution(draws, even) > FALSE_ALARM
    assert 0 <= min(draws) <= max(draws) < MARGIN / 2


def test_the_two_servers_are_retried_independently() -> None:
    pace = _pace(7)
    first, second = (pace.next_attempt(Attempt.REPORT, role, 1, START) for role in (0, 1))
    assert first != second
    assert (
        pace.next_attempt(Attempt.REPORT, 0, 0, 0.0)
        == pace.next_attempt(Attempt.REPORT, 1, 0, 0.0)
        == pace.first_send
    )


def test_both_servers_get_equal_requests_in_the_same_order() -> None:
    parties = Parties()
    parties.open()
    device = parties.device()
    device.join(parties.experiment)
    device.wait_and_report()
    sent = [seen for seen in parties.trace if seen.method == "PUT"]
    assert [seen.url.split("/rounds")[0] for seen in sent] == list(ADDRESSES)
    assert sent[0].size == sent[1].size


def test_only_joining_causes_requests_before_the_report(ledger: Ledger) -> None:
    parties = Parties()
    parties.open()
    device = parties.device(ledger)
    device.join(parties.experiment)
    requests = len(parties.trace)
    for value in (0, 1, 0.5):
        device.record(parties.experiment, value)
        device.join(parties.experiment)
        device.status()
        assert device.run_due() is not None
    assert len(parties.trace) == requests


def _pace(number: int) -> RequestSchedule:
    closes = int(START) + JOINING + 60 + MARGIN
    return RequestSchedule(random.Random(number).randbytes(32), START, 60, closes, MARGIN)
