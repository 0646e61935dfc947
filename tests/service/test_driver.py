"""The driver of a party: scheduled and triggered steps, and retries."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest

from tacit.errors import Unavailable
from tacit.service.http import driver
from tacit.service.http.driver import LONGEST, SHORTEST, Driver, backoff


@contextmanager
def driving(
    step: Callable[[], float], failed: Callable[[], None] = lambda: None
) -> Iterator[Driver]:
    driver = Driver(step, failed)
    driver.start()
    try:
        yield driver
    finally:
        driver.stop()
        assert not driver.alive


class Steps:
    def __init__(self, wait: float) -> None:
        self.wait, self.times = wait, list[float]()
        self.taken = threading.Semaphore(0)

    def __call__(self) -> float:
        self.times.append(time.monotonic())
        self.taken.release()
        return self.wait


def gaps(steps: Steps) -> list[float]:
    """Seconds between steps."""
    return [after - before for before, after in pairwise(steps.times)]


def test_a_step_runs_at_once_and_repeats_while_there_is_work() -> None:
    steps = Steps(0.05)
    with driving(steps):
        assert all(steps.taken.acquire(timeout=60) for _ in range(3))
    assert min(gaps(steps)) >= 0.05


def test_new_work_is_handled_soon_at_a_bounded_rate() -> None:
    steps = Steps(1000.0)
    with driving(steps) as driver:
        assert steps.taken.acquire(timeout=60)
        for _ in range(50):
            driver.notify()
            time.sleep(0.01)
        assert steps.taken.acquire(timeout=60)
    assert min(gaps(steps)) >= SHORTEST


def test_a_failing_step_is_retried_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    told: list[int] = []
    steps = Steps(1000.0)
    problems: list[Exception] = [KeyError("a secret"), Unavailable("the helper is away")]

    def step() -> float:
        if problems:
            raise problems.pop(0)
        return steps()

    with caplog.at_level(logging.WARNING), driving(step, lambda: told.append(1)):
        assert steps.taken.acquire(timeout=60)
    assert told == [1, 1]
    assert "secret" not in caplog.text
    assert "the helper is away" in caplog.text


def test_devices_that_wait_for_a_stage_do_not_wait_for_the_retry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An experiment that always fails kept those of all others waiting for up to half a minute."""
    monkeypatch.setattr(driver, "backoff", lambda _failures: 600.0)
    monkeypatch.setattr(driver, "FAILED", 0.3)
    steps = Steps(0.0)

    def step() -> float:
        steps()
        raise ZeroDivisionError

    with driving(step) as one:
        assert steps.taken.acquire(timeout=60)
        one.notify(hurry=True)
        assert steps.taken.acquire(timeout=60)
        one.notify()
        assert not steps.taken.acquire(timeout=0.6)
    assert min(gaps(steps)) >= 0.3


def test_retry_pauses_grow_up_to_a_bound() -> None:
    waits = [backoff(failures) for failures in range(1, 60)]
    assert all(0 < wait <= LONGEST for wait in waits)
    assert min(waits[20:]) >= LONGEST / 2


def test_the_driver_stops_while_waiting() -> None:
    steps = Steps(1000.0)
    with driving(steps):
        assert steps.taken.acquire(timeout=60)
        started = time.monotonic()
    assert time.monotonic() - started < 60
