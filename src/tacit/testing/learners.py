"""Contract suite of learners, for every kind of assignment."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tacit.bandits.contract import Learner
from tacit.errors import TacitError
from tacit.testing.statistics import check_rejected
from tacit.types import Arm, Design, ErrorDistribution, Estimate, Round, VectorError

MOST_ROUNDS = 100_000
REPORTS = 10


def check_learner(build: Callable[[], Learner]) -> None:
    """Check that a learner fulfils its contract.

    Outstanding rounds stay until all are dealt with, the horizon is used up, and reports are
    counted. Foreign rounds and invalid estimates are rejected, and a stored state continues
    identically.

    Parameters
    ----------
    build : callable
        Returns a fresh learner; use a small horizon.

    Raises
    ------
    AssertionError
        If the learner violates its contract.

    Examples
    --------
    >>> from tacit.bandits import KLUCB
    >>> check_learner(lambda: KLUCB(3, 200))
    """
    _check_barrier(build())
    _check_strangers(build())
    _check_lost(build())
    _check_stored(build)
    _check_counts(build)


def answer(learner: Learner, round_: Round, seed: int) -> None:
    """Observe or skip a round, with randomness that depends only on the seed and the round."""
    if not round_.released:
        learner.skip(round_)
        return
    learner.observe(round_, invent(round_, np.random.default_rng([seed, round_.number])))


def invent(round_: Round, rng: np.random.Generator) -> Estimate:
    """Return a plausible estimate of a round."""
    n, size = round_.participants, round_.assignment.coordinates
    if isinstance(round_.assignment, Arm):
        mean = (1 + round_.arm % 3) / 4
        return Estimate(float(rng.binomial(n, mean)), ErrorDistribution(n, 1, None))
    each = isinstance(round_.assignment, Design) and round_.assignment.each
    participants = np.array(round_.assignment.plays) if each else n  # type: ignore[attr-defined]
    noise = rng.normal(0.0, 0.01, size) * participants
    columns = (np.full(size, value) for value in (1e-4, math.inf, 1e-2))
    return Estimate(noise, VectorError(participants, *columns))


def _without_ratios(state: Any) -> Any:
    """A state without the sample ratios of inner learners, which count the participants asked."""
    if isinstance(state, dict):
        return {key: _without_ratios(value) for key, value in state.items() if key != "ratios"}
    return [_without_ratios(part) for part in state] if isinstance(state, list) else state


def _check_counts(build: Callable[[], Learner]) -> None:
    """Ten reports teach the same whether ten or forty participants were asked.

    Learners that hold other learners' rounds, and designs of single plays, are not covered.
    """
    states = []
    for asked in (REPORTS, 4 * REPORTS):
        learner = build()
        learner.propose()
        stored = json.loads(json.dumps(learner.to_dict()))
        for entry in stored["pending"]:
            entry["participants"] = asked
        learner = Learner.from_dict(stored)
        for round_ in learner.propose():
            if not _simple(round_):
                return
            try:
                learner.observe(round_, _exact_estimate(round_, REPORTS, 0.5))
            except TacitError:
                return  # an inner learner proposed the round
        states.append(json.dumps(_without_ratios(learner._state())))
    assert states[0] == states[1], (
        "a learner counts reports (estimate.error.participants), not the participants of a round"
    )


def _simple(round_: Round) -> bool:
    plain = type(round_.assignment) is Design and not round_.assignment.each
    return round_.released and (plain or isinstance(round_.assignment, Arm))


def _exact_estimate(round_: Round, reports: int, mean: float) -> Estimate:
    """An exact estimate of this many reports."""
    if isinstance(round_.assignment, Arm):
        return Estimate(mean * reports, ErrorDistribution(reports, 1, None))
    size = round_.assignment.coordinates
    columns = (np.full(size, value) for value in (1e-4, math.inf, 1e-2))
    return Estimate(np.full(size, mean * reports), VectorError(reports, *columns))


def _play(learner: Learner, seed: int) -> list[Round]:
    seen: list[Round] = []
    while rounds := learner.propose():
        for round_ in rounds:
            seen.append(round_)
            answer(learner, round_, seed)
        assert len(seen) < MOST_ROUNDS, "the horizon must be used up"
    return seen


def _check_barrier(learner: Learner) -> None:
    while rounds := learner.propose():
        assert learner.propose() == rounds, "a second propose() must return the same rounds"
        assert not learner.finished, "a learner with outstanding rounds is not finished"
        for round_ in rounds:
            assert learner.propose()[0] == round_, "outstanding rounds must stay"
            answer(learner, round_, 1)
    assert learner.finished, "a learner that proposes nothing must be finished"
    assert learner.played >= learner.horizon, "the horizon must be used up"
    best = learner.best()
    assert best is None or best in learner.active, "best() must be an active option"


def _check_strangers(learner: Learner) -> None:
    """Rounds that were not proposed, and estimates of NaN, are rejected."""
    first = learner.propose()[0]
    before = json.dumps(learner.to_dict())
    good = invent(first, np.random.default_rng(0))
    stranger = replace(first, participants=first.participants + 1)
    for strange in (stranger, replace(first, number=10**6), replace(first, number=-1)):
        check_rejected(partial(learner.observe, strange, good), "a round that was not proposed")
        check_rejected(partial(learner.skip, strange), "a round that was not proposed")
    nonsense = replace(good, total=good.total * math.nan)
    check_rejected(lambda: learner.observe(first, nonsense), "an estimate of NaN")
    assert json.dumps(learner.to_dict()) == before, "a rejection must not change the state"
    answer(learner, first, 0)
    check_rejected(lambda: learner.skip(first), "a round that was observed before")


def _check_lost(learner: Learner) -> None:
    lost, count = np.random.default_rng(5), 0
    while rounds := learner.propose():
        for round_ in rounds:
            count += 1
            assert count < MOST_ROUNDS, "skipped rounds must be replaced"
            if lost.random() < 0.3:
                learner.skip(round_)
            else:
                answer(learner, round_, 5)


def _check_stored(build: Callable[[], Learner]) -> None:
    """A learner stored midway, with outstanding rounds, continues exactly as the original."""
    original = build()
    trace = _play(original, 7)
    for place in sorted({0, 1, len(trace) // 3, len(trace) // 2, len(trace) - 1}):
        copy = build()
        for round_ in trace[:place]:
            copy.propose()
            answer(copy, round_, 7)
        copy.propose()
        stored = json.dumps(copy.to_dict(), allow_nan=False)
        copy = Learner.from_dict(json.loads(stored))
        assert json.dumps(copy.to_dict()) == stored, "a restored learner must have the same state"
        for round_ in trace[place:]:
            assert copy.propose()[0] == round_, "a restored learner must propose as the original"
            answer(copy, round_, 7)
        assert json.dumps(copy.to_dict()) == json.dumps(original.to_dict()), (
            "final states must be equal"
        )
