"""The contract of every learner, found by introspection, with an example and environment each."""

from __future__ import annotations

import inspect
import json
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.bandits.harness import Environment, exact, fair_bits, laplace
from tests.bandits.worlds import Answers, Arms, Linear, Silos, play_in
from tests.tables import each_row

from tacit import bandits
from tacit.bandits import Learner
from tacit.bandits.contextual.policy_learners import PolicyLearner
from tacit.bandits.contract import learner_of
from tacit.bandits.linear.fitted import FittedElimination
from tacit.environments.silos import Synthetic
from tacit.errors import TacitError
from tacit.names import name_of, resolve_name
from tacit.types import Arm, ErrorDistribution, Estimate, Round

MEANS = np.array([0.3, 0.75, 0.5])
ENVIRONMENTS = {
    rewards: Environment(MEANS, rewards) for rewards in ("bernoulli", "beta", "gaussian")
}
DISTRIBUTIONS = {"exact": exact, "laplace": laplace(1.0), "bits": fair_bits(62)}
ACTIONS = [[0.9, 0.1], [-0.8, 0.3], [0.1, -0.9], [-0.5, -0.5], [0.2, 0.9]]
PLANE = np.array(ACTIONS), np.array([0.9, -0.1])
FORGETTING = "tacit.bandits.arms.elimination:ForgettingElimination"
PRIVATE_KLUCB = "tacit.bandits.arms.klucb:PrivateKLUCB"


def arms(exactly: bool = False) -> dict[str, Answers]:
    distributions = {"exact": exact, **({} if exactly else DISTRIBUTIONS)}
    told = "exact" if exactly else "laplace"
    worlds: dict[str, Answers] = {
        name: Arms(world, distributions[told]) for name, world in ENVIRONMENTS.items()
    }
    return worlds | {
        name: Arms(ENVIRONMENTS["bernoulli"], distribution)
        for name, distribution in distributions.items()
    }


def plane() -> dict[str, Answers]:
    return {"quiet": Linear(*PLANE, 0.0), "noisy": Linear(*PLANE, 1e-3)}


def silos() -> dict[str, Answers]:
    world = Synthetic.draw(2, 3, 4, np.random.default_rng(0))
    return {"quiet": Silos(world, 0.0), "noisy": Silos(world, 3.0), "drowned": Silos(world, 1e3)}


@dataclass(frozen=True)
class Example:
    """Arguments without the horizon, and the worlds that answer; the first is the usual one.

    `beats` are those in which the learner must do better than chance. `scale` divides horizons.
    """

    arguments: dict[str, Any]
    worlds: dict[str, Answers]
    beats: tuple[str, ...] = tuple(ENVIRONMENTS)
    scale: int = 1

    @property
    def world(self) -> Answers:
        return next(iter(self.worlds.values()))


def of_arms(*options: dict[str, Any], exactly: bool = False) -> list[Example]:
    return [Example({"arms": 3} | more, arms(exactly)) for more in options]


def of_actions(*options: dict[str, Any]) -> list[Example]:
    beats = ("quiet", "noisy")
    return [Example({"actions": ACTIONS} | more, plane(), beats) for more in options]


def of_silos(*options: dict[str, Any]) -> list[Example]:
    size = {"silos": 2, "dimension": 3, "sync": 7, "clip": True}
    return [Example(size | more, silos(), ("quiet", "noisy"), 10) for more in options]


EXAMPLES: dict[str, list[Example]] = {
    "AdaPKLUCB": of_arms({"epsilon": 1.0}),
    "CumulativeElimination": of_arms({}, {"batch": 40}, {"constants": "paper", "sigma": 4.0}),
    "DPSE": of_arms({"epsilon": 1.0}),
    "DistributedElimination": of_actions(
        {"client_std": 0.0}, {"client_std": 0.05, "fixed_clients": 300, "constants": "paper"}
    ),
    "Restarts": of_arms(
        {"learner": FORGETTING, "start": 300},
        {"learner": PRIVATE_KLUCB, "options": {"noise_variance": 2.0}},
    ),
    "FederatedLinUCB": of_silos({}, {"lazy": False, "regularizer": 2.0}, {"scaled": False}),
    "ForgettingElimination": of_arms(
        {}, {"growth": 4, "constants": "paper", "sigma": 1.5, "h": 1.0}
    ),
    "KLUCB": of_arms({}, exactly=True),
    "Managed": of_arms(
        {"learner": PRIVATE_KLUCB, "options": {"noise_variance": 2.0}, "control": 0, "share": 0.2},
        {"learner": FORGETTING},
    ),
    "OptionElimination": [
        Example({"features": np.eye(3).tolist()} | more, arms())
        for more in ({}, {"first": 20, "smallest": 10})
    ],
    "LazyDPTS": of_arms({"epsilon": 1.0, "seed": 2}),
    "PrivateLinUCB": [
        Example(
            {"silos": 2, "dimension": 3, "clip": True, "schedule": [7] * 200, **more},
            silos(),
            ("quiet", "noisy"),
            10,
        )
        for more in (
            {"noise": [0.0] * 200, "constant": 0.5**0.5},
            {"noise": [0.5] * 200, "mode": "calibrated"},
        )
    ],
    "PrivateKLUCB": of_arms(
        {"noise_variance": 2.0}, {"noise_variance": 2.0, "index": "variance"}, {}
    ),
    "PrivateMED": of_arms(
        {"first": 29, "least": 15, "seed": 3},
        {"first": 64, "least": 64, "index": "chernoff", "rounds": 6},
        {},
    ),
    "SingleElimination": of_actions({}, {"constants": "paper"}, {"per_person": True}),
    "SuccessiveElimination": of_arms({}, exactly=True),
    "Thompson": of_arms({}, exactly=True),
    "UCB1": of_arms({}, exactly=True),
}


def concrete(kind: type[Learner] = Learner) -> Iterator[type[Learner]]:
    """Every learner of tacit's own that can be made."""
    for child in kind.__subclasses__():
        yield from concrete(child)
        if child.__module__.split(".")[0] == "tacit" and not inspect.isabstract(child):
            yield child


for _module in pkgutil.walk_packages(bandits.__path__, "tacit.bandits."):
    import_module(_module.name)
# learners whose policies act on devices have suites of their own: tests/contextual, test_fits.py
DEVICES = (PolicyLearner, FittedElimination)
LEARNERS = {one.__name__: one for one in concrete() if not issubclass(one, DEVICES)}
CASES = [
    pytest.param(name, example, id=f"{name}-{i}")
    for name in sorted(LEARNERS)
    for i, example in enumerate(EXAMPLES.get(name, []))
]
EACH = pytest.mark.parametrize(("name", "example"), CASES)
ALL = each_row(("name", "example"), [case.values for case in CASES])  # quick ones, in one test


def make(name: str, example: Example, horizon: int = 6_000) -> Learner:
    size = {"horizon": horizon // example.scale}
    return learner_of(name_of(LEARNERS[name]), size | example.arguments)


def answer(learner: Learner, round_: Round, example: Example, seed: int) -> None:
    """One round played, with randomness that depends on nothing but the seed and the round."""
    if round_.released:
        rng = np.random.default_rng([seed, round_.number])
        learner.observe(round_, example.world.answer(round_, rng)[0])
    else:
        learner.skip(round_)


def as_json(learner: Learner) -> str:
    return json.dumps(learner.to_dict(), allow_nan=False)


def test_every_learner_has_an_example() -> None:
    assert set(EXAMPLES) == set(LEARNERS)
    assert all(resolve_name(name_of(kind), Learner) is kind for kind in LEARNERS.values())


HORIZONS = {"FederatedLinUCB": 5_000, "PrivateLinUCB": 5_000}  # which are slow


@EACH
def test_every_learner_uses_its_horizon_and_beats_chance(name: str, example: Example) -> None:
    for world, answers in example.worlds.items():
        learner = make(name, example, horizon=HORIZONS.get(name, 20_000))
        regret = play_in(learner, answers, np.random.default_rng(1))
        assert learner.played == learner.horizon, world
        assert learner.finished
        assert learner.propose() == []
        assert learner.best() in (learner.active or (None,))
        if world in example.beats:
            assert 0 < regret < 0.9 * learner.horizon * answers.chance, world


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@ALL
def test_arm_learners_tolerate_unexpected_noise(
    name: str, example: Example, distribution: str
) -> None:
    if "arms" not in example.arguments:
        return
    learner = make(name, example, horizon=2_000)
    play_in(
        learner,
        Arms(ENVIRONMENTS["bernoulli"], DISTRIBUTIONS[distribution]),
        np.random.default_rng(2),
    )
    assert learner.played == 2_000


@EACH
def test_repeated_proposals_are_idempotent_also_after_a_restart(
    name: str, example: Example
) -> None:
    learner = make(name, example)
    for _ in range(20):
        rounds = learner.propose()
        before = as_json(learner)
        assert learner.propose() == rounds
        assert as_json(learner) == before
        copy = Learner.from_dict(json.loads(before))
        assert copy.propose() == rounds
        assert as_json(copy) == before
        for round_ in rounds:
            assert learner.propose()[0] == round_
            answer(learner, round_, example, 3)


@EACH
def test_round_numbers_are_unique_and_only_truncated_rounds_are_not_released(
    name: str, example: Example
) -> None:
    learner, seen = make(name, example), []
    while rounds := learner.propose():
        for round_ in rounds:
            seen.append(round_)
            answer(learner, round_, example, 4)
    assert [round_.number for round_ in seen] == list(range(len(seen)))
    assert all(round_.time >= 1 for round_ in seen)
    assert all(round_.participants >= 1 for round_ in seen if round_.released)
    assert sum(round_.time for round_ in seen) == learner.horizon
    closed = [round_.number for round_ in seen if not round_.released]
    assert name in ("Restarts", "LazyDPTS") or closed in ([], [len(seen) - 1])


@EACH
def test_rounds_round_trip(name: str, example: Example) -> None:
    learner = make(name, example, horizon=2_000)
    while rounds := learner.propose():
        for round_ in rounds:
            stored = json.dumps(round_.to_dict(), allow_nan=False)
            copy = Round.from_dict(json.loads(stored))
            assert copy == round_
            assert (copy.time, copy.assignment.coordinates) == (
                round_.time,
                round_.assignment.coordinates,
            )
            assert hash(copy) == hash(round_)
            answer(learner, round_, example, 8)


@ALL
def test_invalid_rounds_are_rejected_without_side_effects(name: str, example: Example) -> None:
    learner = make(name, example)
    first, *_ = learner.propose()
    good = example.world.answer(first, np.random.default_rng(0))[0]
    before = as_json(learner)
    strangers = [
        replace(first, participants=first.participants + 1),
        replace(first, released=False),
        replace(first, assignment=Arm(77)),
        replace(first, number=999),
        replace(first, number=-1),
    ]
    for strange in strangers:
        with pytest.raises(TacitError, match="was not proposed"):
            learner.observe(strange, good)
        with pytest.raises(TacitError, match="was not proposed"):
            learner.skip(strange)
    assert as_json(learner) == before
    learner.observe(first, good)
    after = as_json(learner)
    with pytest.raises(TacitError, match="already observed"):
        learner.observe(first, good)
    with pytest.raises(TacitError, match="already observed"):
        learner.skip(first)
    assert as_json(learner) == after


@ALL
def test_invalid_estimates_are_rejected_without_side_effects(name: str, example: Example) -> None:
    learner = make(name, example)
    first, *_ = learner.propose()
    good = example.world.answer(first, np.random.default_rng(0))[0]
    before, total = as_json(learner), np.asarray(good.total, dtype=float)
    spoilt = total.copy()
    spoilt.flat[-1] = np.nan
    people = good.error.participants
    bad = [
        replace(good, error=replace(good.error, participants=people + 1)),
        replace(good, error=replace(good.error, participants=0 * people)),
        replace(good, total=spoilt),
        replace(good, total=total + np.inf),
        replace(good, total=np.append(total, 0.5)),
    ]
    for estimate in bad:
        with pytest.raises(TacitError, match="must"):
            learner.check(first, estimate)
        with pytest.raises(TacitError, match="must"):
            learner.observe(first, estimate)
    assert as_json(learner) == before
    learner.check(first, good)
    assert as_json(learner) == before
    learner.observe(first, good)


@EACH
def test_learners_continue_after_aborted_rounds(name: str, example: Example) -> None:
    learner, lost = make(name, example), np.random.default_rng(5)
    while rounds := learner.propose():
        for round_ in rounds:
            if lost.random() < 0.3:
                learner.skip(round_)
            else:
                answer(learner, round_, example, 5)
    assert learner.played == learner.horizon


@ALL
def test_learners_continue_if_nothing_is_ever_released(name: str, example: Example) -> None:
    learner = make(name, example, horizon=1_000)
    while rounds := learner.propose():
        for round_ in rounds:
            learner.skip(round_, round_.time)
    assert learner.played == learner.horizon
    assert learner.best() in (learner.active or (None,))
    assert all(row.mean is None for row in learner.summaries(names_of(learner)))


@ALL
def test_rounds_without_reports_do_not_use_the_horizon(name: str, example: Example) -> None:
    learner = make(name, example, horizon=1_000)
    if not all(isinstance(round_.assignment, Arm) for round_ in learner.propose()):
        return
    for _ in range(100):
        rounds = learner.propose()
        assert any(round_.released for round_ in rounds)
        for round_ in rounds:
            learner.skip(round_, 0)
        assert (learner.played, learner.finished) == (0, False)


@ALL
def test_a_skipped_round_serves_at_most_its_participants(name: str, example: Example) -> None:
    learner = make(name, example)
    first = learner.propose()[0]
    before = as_json(learner)
    for count in (-1, first.time + 1):
        with pytest.raises(TacitError, match=f"served is {count}: must be 0 to {first.time}"):
            learner.skip(first, count)
    assert as_json(learner) == before


def names_of(learner: Learner) -> list[str]:
    return [f"option {arm}" for arm in range(learner.arms)]


@ALL
def test_served_participants_count_as_plays(name: str, example: Example) -> None:
    learner = make(name, example)
    rounds = learner.propose()
    if not learner.arms:
        with pytest.raises(TacitError, match="depend on a context"):
            learner.served(0, 1)
        return
    pending = sum(round_.time for round_ in rounds)
    learner.served(1, 700)
    learner.served(0, 0)
    assert learner.played == 700
    assert learner.propose() == rounds
    rows = learner.summaries(names_of(learner))
    assert all(row.participants == 0 for row in rows)  # they were not asked
    before = as_json(learner)
    for option, count, message in (
        (learner.arms, 1, "option is"),
        (-1, 1, "option is -1"),
        (0, -1, "count is -1"),
        (0, 0.5, "count is 0.5"),
    ):
        with pytest.raises(TacitError, match=message):
            learner.served(option, count)  # type: ignore[arg-type]
    assert as_json(learner) == before
    later = Learner.from_dict(json.loads(before))
    for machine in (learner, later):
        for round_ in machine.propose():
            answer(machine, round_, example, 6)
        assert machine.played == 700 + pending
        assert all(round_.time <= machine.horizon - machine.played for round_ in machine.propose())
        machine.served(0, machine.horizon)
        assert not machine.finished  # rounds are outstanding
        for round_ in machine.propose():
            answer(machine, round_, example, 6)
        assert machine.finished
        assert machine.propose() == []
    assert as_json(learner) == as_json(later)


@EACH
def test_arm_summaries_are_probabilities_and_intervals(name: str, example: Example) -> None:
    learner = make(name, example)
    play_in(learner, example.world, np.random.default_rng(7))
    rows = learner.summaries(names_of(learner), 0.9)
    assert [row.option for row in rows] == names_of(learner)
    if not rows:
        assert learner.best() is None
        return
    assert sum(row.best for row in rows) == pytest.approx(1)
    lowest = -1.0 if "actions" in example.arguments else 0.0
    for row in rows:
        assert lowest <= row.low <= row.high <= 1
        assert 0 <= row.best <= 1
        assert row.mean is None or row.low <= min(max(row.mean, lowest), 1) <= row.high
    wider = learner.summaries(names_of(learner), 0.999)
    assert all(b.low <= a.low and a.high <= b.high for a, b in zip(rows, wider, strict=True))


@ALL
def test_arguments_round_trip(name: str, example: Example) -> None:
    learner = make(name, example)
    stored = json.loads(as_json(learner))["arguments"]
    assert {key: stored[key] for key in example.arguments} == example.arguments
    groups = {type(value).__name__: type(value) for value in learner.arguments().values()}
    known: dict[str, Any] = {**groups, **LEARNERS, "array": np.array}
    assert repr(eval(repr(learner), known)) == repr(learner)


@EACH
@settings(max_examples=4, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32), stop=st.floats(0.0, 1.0), asked=st.booleans())
def test_a_learner_stored_at_any_point_continues_identically(
    name: str, example: Example, seed: int, stop: float, asked: bool
) -> None:
    """Also in the middle of a round, with rounds pending, asked for or not."""
    original, trace = make(name, example, horizon=800), []
    while rounds := original.propose():
        for round_ in rounds:
            trace.append(round_)
            answer(original, round_, example, seed)
    copy, place = make(name, example, horizon=800), int(stop * len(trace))
    for round_ in trace[:place]:
        copy.propose()
        answer(copy, round_, example, seed)
    if asked:
        copy.propose()
    stored = as_json(copy)
    copy = Learner.from_dict(json.loads(stored))
    assert as_json(copy) == stored
    for round_ in trace[place:]:
        assert copy.propose()[0] == round_
        answer(copy, round_, example, seed)
    assert copy.propose() == []
    assert as_json(copy) == as_json(original)


def test_an_unknown_learner_is_rejected() -> None:
    for name in ("Oracle", "tacit.bandits:Oracle", "tacit.oracles:Oracle", "os:system", None):
        with pytest.raises(
            TacitError, match=r"not known here as Learner|this version of tacit has no"
        ):
            Learner.from_dict({"learner": name})


@each_row(
    ("name", "options", "message"),
    [
        ("UCB1", {"arms": 1}, "arms is 1"),
        ("UCB1", {"arms": 10, "horizon": 5}, "fewer participants than the 10 arms"),
        ("UCB1", {"lazy": -0.1}, "lazy is -0.1"),
        ("Thompson", {"seed": -1}, "seed is -1"),
        ("ForgettingElimination", {"growth": 1}, "growth is 1"),
        ("ForgettingElimination", {"failure_probability": 1.5}, "failure_probability is 1.5"),
        ("ForgettingElimination", {"constants": "loose"}, "one of tight, paper"),
        ("CumulativeElimination", {"batch": 0}, "batch is 0"),
        ("AdaPKLUCB", {"epsilon": 0}, "For no privacy use KLUCB"),
        ("AdaPKLUCB", {"epsilon": 1, "alpha": 0}, "alpha is 0"),
        ("LazyDPTS", {"epsilon": 1, "lazy": -1}, "lazy is -1"),
        ("DPSE", {"epsilon": 0}, "For no privacy use SuccessiveElimination"),
        ("PrivateKLUCB", {"index": "gauss"}, "one of chernoff, variance"),
        ("PrivateKLUCB", {"growth": 1.0}, "growth is 1.0"),
        ("PrivateKLUCB", {"noise_variance": -1.0}, "noise_variance is -1.0"),
        ("PrivateKLUCB", {"first_batch": 0}, "first_batch is 0"),
        ("PrivateMED", {"index": "gauss"}, "one of chernoff, variance"),
        ("PrivateMED", {"growth": 1.0}, "growth is 1.0"),
        ("PrivateMED", {"first": 0}, "first is 0"),
        ("PrivateMED", {"least": 0}, "least is 0"),
        ("PrivateMED", {"rounds": 0}, "rounds is 0"),
        ("PrivateMED", {"seed": -1}, "seed is -1"),
        ("Restarts", {"learner": "Oracle"}, "not known here as Learner"),
        (
            "Restarts",
            {"learner": "tacit.bandits.arms.nonprivate_baselines:UCB1", "start": 1},
            "start is 1",
        ),
    ],
)
def test_wrong_arguments_are_rejected(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TacitError, match=message):
        learner_of(name_of(LEARNERS[name]), {"arms": 3, "horizon": 1000} | options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"silos": 0}, "silos is 0"),
        ({"dimension": 0}, "dimension is 0"),
        ({"horizon": 0}, "horizon is 0"),
        ({"sync": 0}, "Silos synchronise every `sync` rounds"),
        ({"regularizer": 0}, "regularizer is 0"),
        ({"failure_probability": 1.5}, "failure_probability is 1.5"),
    ],
)
def test_wrong_arguments_of_silos_are_rejected(options: dict[str, Any], message: str) -> None:
    size = {"silos": 2, "dimension": 3, "horizon": 20, "sync": 4}
    with pytest.raises(TacitError, match=message):
        learner_of(name_of(LEARNERS["FederatedLinUCB"]), size | options)


def test_a_truncated_round_cannot_be_observed() -> None:
    learner = make("ForgettingElimination", EXAMPLES["ForgettingElimination"][0], horizon=5)
    *_, last = learner.propose()
    assert (last.participants, last.released) == (1, False)
    with pytest.raises(TacitError, match="must not be released"):
        learner.observe(last, Estimate(1.0, ErrorDistribution(1, 1, None)))
