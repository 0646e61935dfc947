"""Failed steps of rounds are counted, and logged once a minute."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from tests.service.served import served

from tacit.errors import Unavailable
from tacit.service.failed_steps import AGAIN, SILENT, FailedSteps
from tacit.service.schema import RoundRow

NAME = "tacit_step_failures_total "


def row(number: int) -> RoundRow:
    return cast("RoundRow", SimpleNamespace(identity=bytes([number]) * 16))


def unreachable(_row: RoundRow) -> float:
    raise Unavailable("the helper is unreachable")


def test_every_failure_is_counted_and_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A helper that was down for a day wrote 70 MB of the same three lines, and counted nothing."""
    now, counted = [0.0], list[int]()
    steps = FailedSteps(lambda: now[0])
    steps.count = lambda: counted.append(1)
    with caplog.at_level(logging.WARNING):
        for second in range(int(2 * SILENT)):
            now[0] = float(second)
            assert steps.advance(unreachable, row(second % 2)) == AGAIN
            assert steps.advance(lambda _row: 7.0, row(2)) == 7.0
    assert len(counted) == 2 * SILENT
    assert len(caplog.records) == 4
    assert "01010101 failed to advance: the helper is unreachable (retry in 1 s)" in caplog.text


def test_failures_of_rounds_are_in_the_metrics(tmp_path: Path) -> None:
    with served(tmp_path) as both:

        def failures() -> float:
            lines = both.get(0, "/metrics").text.splitlines()
            return next(float(one.split()[1]) for one in lines if one.startswith(NAME))

        before = failures()
        both.coordinator.steps.advance(unreachable, row(3))
        assert failures() > before
