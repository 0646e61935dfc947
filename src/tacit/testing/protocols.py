"""Contract suite of protocols."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tacit.errors import TacitError
from tacit.protocols.checking import recompute, sample
from tacit.protocols.contract import Protocol, SumProtocol
from tacit.testing.errors import check_error
from tacit.testing.statistics import SEEDED, UNSEEDED, check_rejected, chi_square_p_value
from tacit.types import Aggregate, Estimate, Levels

Sample = np.ndarray[Any, np.dtype[np.float64]]


def check_protocol(
    protocol: Protocol,
    reports: Sequence[Any] = (),
    load: Any = None,
    *,
    rounds: int = 2_000,
    exact_rounds: int = 150,
) -> None:
    """Check that device, simulation and stated distribution of a protocol agree.

    Parameters
    ----------
    protocol : Protocol
    reports : sequence
        One report for each participant; only for protocols other than `SumProtocol`.
    load
        The same reports as a simulation's load; only for protocols other than `SumProtocol`.
    rounds : int
        Simulated rounds; chi-square against `released_distribution` at a false positive rate of
        1e-6.
    exact_rounds : int
        Device rounds; chi-square at a false positive rate of 1e-9.

    Raises
    ------
    AssertionError
        If a property is violated.

    Notes
    -----
    Mean, variance, log-MGF and bounds of the error are compared with the same distribution
    (`tacit.testing.errors`); `tacit.protocols.checking` recomputes the declared guarantee. For a
    protocol that is no `SumProtocol`, devices and simulation are compared by means and mean
    absolute deviations.

    Examples
    --------
    >>> from tacit import PureDP
    >>> from tacit.protocols.factories import polya_tight
    >>> protocol = polya_tight(8, target=PureDP(1.0), binary=True, dropout=0, corrupt=0)
    >>> check_protocol(protocol, rounds=200, exact_rounds=20)
    """
    if not isinstance(protocol, SumProtocol):
        _check_paths(protocol, reports, load, rounds, exact_rounds)
        return
    levels = _some_levels(protocol)
    _check_rejections(protocol)
    _check_estimates(protocol, levels, rounds)
    try:
        distribution = protocol.released_distribution(int(levels.sum()), len(levels))
    except TacitError:
        return  # continuous noise, for comparison only, has no integer distribution
    rng = np.random.default_rng(3)
    for name, released in (
        ("simulate", _simulated(protocol, levels, rng, rounds)),
        ("randomize_batch", _one_by_one(protocol, levels, rng, rounds)),
    ):
        assert chi_square_p_value(released, distribution) > SEEDED, (
            f"{name} does not follow released_distribution"
        )
    device = [_devices(protocol, levels).value for _ in range(exact_rounds)]
    assert chi_square_p_value(device, distribution) > UNSEEDED, (
        "devices do not follow released_distribution"
    )
    for count in sorted({protocol.minimum, protocol.participants}):
        check_error(protocol, count)
    if protocol.guarantee is not None:
        try:
            recompute(protocol)
            sample(protocol, exact_rounds * max(10, protocol.minimum))
        except TacitError as problem:
            raise AssertionError(str(problem)) from problem


def _check_paths(
    protocol: Protocol, reports: Sequence[Any], load: Any, rounds: int, exact_rounds: int
) -> None:
    """Devices and simulation agree in mean and in mean absolute deviation, in each coordinate.

    The tolerance is 6 standard errors: one false positive in a million runs, even for noise with
    exponential tails.
    """
    assert len(reports) == protocol.participants, "give one report for each participant"
    rng, count = np.random.default_rng(6), min(rounds, 1000)
    made = [protocol.simulate(load, rng) for _ in range(count)]
    fast = np.array([estimate.total for estimate in made])
    slow = np.array([_run_devices(protocol, reports).total for _ in range(exact_rounds)])
    assert fast.shape[1:] == slow.shape[1:] == (protocol.coordinates,), "one number per coordinate"
    least = 1e-6 * (1 + np.abs(fast).max())
    assert _agree(fast, slow, least), "devices and simulation differ in their means"
    middle = fast.mean(axis=0)
    far = np.abs(fast - middle), np.abs(slow - middle)
    assert _agree(*far, least), "devices and simulation differ in their amount of noise"
    assert made[0].guarantee_id == protocol.guarantee_id, "an estimate names its guarantee"
    if protocol.minimum > 1:
        few = list(reports)[: protocol.minimum - 1]
        check_rejected(lambda: _run_devices(protocol, few), f"{len(few)} reports")


def _agree(first: Sample, second: Sample, tolerance: float) -> bool:
    errors = np.sqrt(first.var(axis=0) / len(first) + second.var(axis=0) / len(second))
    return bool((np.abs(first.mean(axis=0) - second.mean(axis=0)) <= 6 * errors + tolerance).all())


def _run_devices(protocol: Protocol, reports: Sequence[Any]) -> Estimate:
    messages = [protocol.report(x, place) for place, x in enumerate(reports)]
    return protocol.analyze(protocol.combine(messages))


def _some_levels(protocol: SumProtocol) -> np.ndarray[Any, np.dtype[np.int64]]:
    rng = np.random.default_rng(protocol.participants)
    return rng.integers(0, protocol.precision + 1, protocol.participants)


def _simulated(
    protocol: SumProtocol, levels: Any, rng: np.random.Generator, rounds: int
) -> list[int]:
    total, reports = int(levels.sum()), len(levels)
    return [protocol._open(total, reports, rng).value for _ in range(rounds)]


def _one_by_one(
    protocol: SumProtocol, levels: Any, rng: np.random.Generator, rounds: int
) -> list[int]:
    return [
        protocol.combine_batch(protocol.randomize_batch(levels, rng), rng).value
        for _ in range(min(rounds, 500))
    ]


def _devices(protocol: SumProtocol, levels: Any) -> Aggregate:
    rewards = [int(level) / protocol.precision for level in levels]
    return protocol.combine([protocol.report(x, place) for place, x in enumerate(rewards)])


def _check_rejections(protocol: SumProtocol) -> None:
    n = protocol.participants
    assert 1 <= protocol.minimum <= n, "minimum must lie between 1 and participants"
    assert protocol.bits_per_participant > 0, "bits_per_participant must be positive"
    for reports in {protocol.minimum - 1, n + 1} - {0}:
        check_rejected(partial(protocol.analyze, Aggregate((0,), reports)), f"{reports} reports")
    for reward in (-0.1, 1.5, math.nan, True, "1"):
        check_rejected(partial(protocol.randomize, reward), f"a reward of {reward!r}")


def _check_estimates(protocol: SumProtocol, levels: Any, rounds: int) -> None:
    """Estimates are unbiased with the stated variance, within 6 standard errors each."""
    rng, truth = np.random.default_rng(4), float(levels.sum()) / protocol.precision
    values, counts = np.unique(levels, return_counts=True)
    made = [protocol.simulate(Levels(values, counts), rng) for _ in range(rounds)]
    off = np.array([estimate.total - truth for estimate in made if not estimate.wrapped])
    error = made[0].error
    assert error.participants == len(levels), "the error distribution counts the reports"
    assert made[0].guarantee_id == protocol.guarantee_id, "an estimate names its guarantee"
    spread = math.sqrt(max(error.variance, 1e-12) / len(off))
    assert abs(off.mean()) <= 6 * spread + 1e-9, f"estimates are off by {off.mean():.4g}"
    squares = (off - off.mean()) ** 2
    wide = 6 * float(squares.std()) / math.sqrt(len(off)) + 1e-9
    assert abs(float(squares.mean()) - error.variance) <= wide, "the stated variance is wrong"
