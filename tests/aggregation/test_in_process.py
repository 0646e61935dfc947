"""Rounds in one process accept integers, arrays and vectors as reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tacit.aggregation import (
    Aggregator,
    Analyzer,
    Collector,
    Intermediary,
    MaskingServer,
    Relay,
    ShuffledView,
    Shuffler,
    SumView,
    run_masking,
    run_shuffler,
    run_two_servers,
)
from tacit.errors import TacitError

SUMS: list[Callable[..., SumView]] = [run_masking, run_two_servers]


@pytest.mark.parametrize("run", SUMS)
def test_arrays_and_vectors_are_reports(run: Callable[..., SumView]) -> None:
    assert run(np.array([3, -5, 9]), 10, 3) == SumView((7,), 3)
    assert run(np.arange(30).reshape(3, 10), 50, 3).numbers == tuple(
        (30 + 3 * place) % 50 for place in range(10)
    )
    assert run([(1, 2), [3, 4]], 10, 2) == SumView((4, 6), 2)


@pytest.mark.parametrize("run", SUMS)
def test_reports_of_different_lengths_are_an_error(run: Callable[..., SumView]) -> None:
    with pytest.raises(TacitError, match="number of values is"):
        run([[1], [2, 3]], 10, 2)


@pytest.mark.parametrize("run", [*SUMS, lambda reports, _, minimum: run_shuffler(reports, minimum)])
def test_no_reports_are_an_error(run: Callable[..., object]) -> None:
    with pytest.raises(TacitError, match="number of reports is 0"):
        run([], 10, 1)


def test_all_parties_implement_the_common_interface() -> None:
    relays: list[type[Relay]] = [MaskingServer, Collector, Shuffler, Analyzer]
    ends: list[type[Intermediary[SumView]]] = [MaskingServer, Collector]
    last: list[type[Intermediary[ShuffledView]]] = [Analyzer]
    parties: list[type[Any]] = [*relays, *ends, *last, Aggregator]
    for party in parties:
        assert callable(party.take)
        assert callable(party.close)
