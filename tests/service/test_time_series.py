"""The time series of an experiment as CSV."""

from __future__ import annotations

import csv
from dataclasses import fields

from tacit.service.time_series import FIRST, csv_text
from tacit.types import ArmSummary


def test_the_columns_are_complete_before_the_first_round() -> None:
    (header,) = csv.reader(csv_text([]).splitlines())
    assert header == [*FIRST, *(one.name for one in fields(ArmSummary))]
