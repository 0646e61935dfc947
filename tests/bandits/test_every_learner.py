"""What holds for every learner: found by introspection, run against every environment of the
harness.
"""

from __future__ import annotations

import inspect
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.bandits.harness import Environment, Law, estimate, exact, fair_bits, laplace, play

from tacit.bandits import Batch, Learner
from tacit.checks import TacitError
from tacit.protocols.contract import ErrorLaw, Estimate

OPTIONS: dict[
    str, list[dict[str, Any]]
] = {  # beyond the defaults: what must be given, and what is worth running too
    "CumulativeElimination": [{}, {"batch": 40}, {"radius": "paper", "sigma": 4.0}],
    "DPSE": [{"epsilon": 1.0}],
    "Doubling": [
        {"learner": "ForgettingElimination", "start": 300},
        {"learner": "PrivateKLUCB", "options": {"noise_variance": 2.0}},
    ],
    "ForgettingElimination": [{}, {"growth": 4, "radius": "paper", "sigma": 1.5, "h": 1.0}],
    "PrivateKLUCB": [{"noise_variance": 2.0}, {"noise_variance": 2.0, "index": "variance"}, {}],
}
NAMES = sorted(
    name for name, learner in Learner.learners.items() if not inspect.isabstract(learner)
)
CASES = [
    pytest.param(name, options, id=f"{name}-{i}")
    for name in NAMES
    for i, options in enumerate(OPTIONS.get(name, [{}]))
]
MEANS = np.array([0.3, 0.75, 0.5])
ENVIRONMENTS = {
    rewards: Environment(MEANS, rewards) for rewards in ("bernoulli", "beta", "gaussian")
}
LAWS = {"exact": exact, "laplace": laplace(1.0), "bits": fair_bits(62)}


def make(name: str, options: dict[str, Any], horizon: int = 6_000, arms: int = 3) -> Learner:
    return Learner.learners[name](arms, horizon, **options)


def law_for(name: str) -> Law:
    return (
        exact if name in ("UCB1", "KLUCB", "Thompson", "SuccessiveElimination") else LAWS["laplace"]
    )


def answer(learner: Learner, batch: Batch, seed: int) -> None:
    """One batch played, with randomness that depends on nothing but the seed and the batch."""
    if batch.opened:
        rng = np.random.default_rng([seed, batch.number])
        learner.observe(
            batch, estimate(batch, ENVIRONMENTS["bernoulli"], law_for(type(learner).__name__), rng)
        )
    else:
        learner.skip(batch)


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("rewards", ENVIRONMENTS)
def test_uses_up_its_horizon_and_beats_chance(
    name: str, options: dict[str, Any], rewards: str
) -> None:
    learner = make(name, options, horizon=20_000)
    regret = play(learner, ENVIRONMENTS[rewards], law_for(name), np.random.default_rng(1))
    assert learner.played == 20_000
    assert learner.propose() == []
    assert learner.best() in learner.active
    assert 0 < regret < 0.9 * 20_000 * float((MEANS.max() - MEANS).mean())


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("law", LAWS)
def test_copes_with_every_error_law(name: str, options: dict[str, Any], law: str) -> None:
    learner = make(name, options, horizon=2_000)
    play(learner, ENVIRONMENTS["bernoulli"], LAWS[law], np.random.default_rng(2))
    assert learner.played == 2_000


@pytest.mark.parametrize(("name", "options"), CASES)
def test_proposing_again_changes_nothing(name: str, options: dict[str, Any]) -> None:
    learner = make(name, options)
    for _ in range(20):
        batches = learner.propose()
        before = learner.to_dict()
        assert learner.propose() == batches
        assert learner.to_dict() == before
        for batch in batches:
            assert learner.propose()[0] == batch
            answer(learner, batch, 3)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_numbers_are_unique_and_only_a_cut_batch_stays_closed(
    name: str, options: dict[str, Any]
) -> None:
    learner, seen = make(name, options), []
    while batches := learner.propose():
        for batch in batches:
            seen.append(batch)
            answer(learner, batch, 4)
    assert [batch.number for batch in seen] == list(range(len(seen)))
    assert all(batch.users >= 1 for batch in seen)
    closed = [batch.number for batch in seen if not batch.opened]
    assert name == "Doubling" or closed in ([], [len(seen) - 1])


@pytest.mark.parametrize(("name", "options"), CASES)
def test_refuses_strange_batches_before_it_changes_anything(
    name: str, options: dict[str, Any]
) -> None:
    learner = make(name, options)
    first, *_ = learner.propose()
    good = Estimate(first.users / 2, ErrorLaw(first.users, 1, None))
    before = json.dumps(learner.to_dict())
    stranger = Batch(first.number, first.arm, first.users + 1)
    for strange in (stranger, Batch(999, 0, 1), Batch(-1, 0, 1)):
        with pytest.raises(TacitError, match="was not proposed"):
            learner.observe(strange, good)
        with pytest.raises(TacitError, match="was not proposed"):
            learner.skip(strange)
    for bad in (
        Estimate(1.0, ErrorLaw(first.users + 1, 1, None)),
        Estimate(float("nan"), good.error),
    ):
        with pytest.raises(TacitError, match="it must"):
            learner.observe(first, bad)
    assert json.dumps(learner.to_dict()) == before
    learner.observe(first, good)
    after = json.dumps(learner.to_dict())
    with pytest.raises(TacitError, match="already observed"):
        learner.observe(first, good)
    with pytest.raises(TacitError, match="already observed"):
        learner.skip(first)
    assert json.dumps(learner.to_dict()) == after


@pytest.mark.parametrize(("name", "options"), CASES)
def test_goes_on_when_batches_are_lost(name: str, options: dict[str, Any]) -> None:
    learner, lost = make(name, options), np.random.default_rng(5)
    while batches := learner.propose():
        for batch in batches:
            if lost.random() < 0.3:
                learner.skip(batch)
            else:
                answer(learner, batch, 5)
    assert learner.played == learner.horizon


@pytest.mark.parametrize(("name", "options"), CASES)
def test_keeps_its_arguments(name: str, options: dict[str, Any]) -> None:
    learner = make(name, options)
    assert {key: learner.arguments()[key] for key in options} == options
    assert repr(eval(repr(learner), dict(Learner.learners))) == repr(learner)


@pytest.mark.parametrize(("name", "options"), CASES)
@settings(max_examples=8, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), stop=st.floats(0.0, 1.0))
def test_stored_anywhere_it_continues_identically(
    name: str, options: dict[str, Any], seed: int, stop: float
) -> None:
    """Also in the middle of a round, with batches pending."""
    original, trace = make(name, options, horizon=1_500), []
    while batches := original.propose():
        for batch in batches:
            trace.append(batch)
            answer(original, batch, seed)
    copy, place = make(name, options, horizon=1_500), int(stop * len(trace))
    for batch in trace[:place]:
        copy.propose()
        answer(copy, batch, seed)
    stored = json.dumps(copy.to_dict(), allow_nan=False)
    copy = Learner.from_dict(json.loads(stored))
    assert json.dumps(copy.to_dict()) == stored
    for batch in trace[place:]:
        assert copy.propose()[0] == batch
        answer(copy, batch, seed)
    assert copy.propose() == []
    assert json.dumps(copy.to_dict()) == json.dumps(original.to_dict())


def test_an_unknown_learner_is_refused() -> None:
    with pytest.raises(TacitError, match="known are"):
        Learner.from_dict({"learner": "Oracle"})


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("UCB1", {"arms": 1}, "arms is 1"),
        ("UCB1", {"arms": 10, "horizon": 5}, "fewer users than the 10 arms"),
        ("UCB1", {"lazy": -0.1}, "lazy is -0.1"),
        ("Thompson", {"seed": -1}, "seed is -1"),
        ("ForgettingElimination", {"growth": 1}, "growth is 1"),
        ("ForgettingElimination", {"confidence": 1.5}, "confidence is 1.5"),
        ("ForgettingElimination", {"radius": "loose"}, "one of tight, paper"),
        ("CumulativeElimination", {"batch": 0}, "batch is 0"),
        ("DPSE", {"epsilon": 0}, "for no privacy use SuccessiveElimination"),
        ("PrivateKLUCB", {"index": "gauss"}, "one of chernoff, variance"),
        ("PrivateKLUCB", {"growth": 1.0}, "growth is 1.0"),
        ("PrivateKLUCB", {"noise_variance": -1.0}, "noise_variance is -1.0"),
        ("PrivateKLUCB", {"first_batch": 0}, "first_batch is 0"),
        ("Doubling", {"learner": "Oracle"}, "known are"),
        ("Doubling", {"learner": "UCB1", "start": 1}, "start is 1"),
    ],
)
def test_wrong_arguments_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TacitError, match=message):
        Learner.learners[name](**({"arms": 3, "horizon": 1000} | options))


def test_a_cut_batch_cannot_be_observed() -> None:
    learner = make("ForgettingElimination", {}, horizon=5)
    *_, last = learner.propose()
    assert (last.users, last.opened) == (1, False)
    with pytest.raises(TacitError, match="must not be opened"):
        learner.observe(last, Estimate(1.0, ErrorLaw(1, 1, None)))
