"""One run: regret by direct computation, checkpoints, truncated rounds, and both paths from one
seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from tacit.algorithms import ArmsProblem
from tacit.algorithms.registry import lookup
from tacit.bandits import Learner
from tacit.bandits.contract import Plan
from tacit.environments import Bernoulli, ClippedGaussian, FromFunction, Recorded, TwoMetrics
from tacit.environments.silos import Synthetic
from tacit.errors import TacitError
from tacit.experiment import Experiment
from tacit.noise import DiscreteLaplace
from tacit.privacy import PureDP
from tacit.protocols import factories
from tacit.protocols.continuous import Exact
from tacit.protocols.contract import SumProtocol
from tacit.protocols.mechanism import PerRound
from tacit.protocols.sums import SecureSum
from tacit.simulation import RunConditions, Trial, checkpoints_for, run
from tacit.types import Arm, Estimate, Round

WORLD = Bernoulli((0.2, 0.9, 0.5))
GAPS = (0.7, 0.0, 0.4)


class Scripted(Learner):
    """Plays a fixed list of (arm, participants), round by round."""

    def __init__(
        self, arms: int, horizon: int, script: tuple[tuple[tuple[int, int], ...], ...]
    ) -> None:
        super().__init__(arms, horizon)
        self.script = script
        self.seen: list[tuple[int, int, float]] = []
        self.step = 0

    def best(self) -> int:
        return 2

    def _plan(self) -> Plan:
        self.step += 1
        return [(Arm(arm), count) for arm, count in self.script[self.step - 1]]

    def _learn(self, round_: Round, estimate: Estimate) -> None:
        self.seen.append((round_.arm, round_.participants, estimate.total))

    def _state(self) -> dict[str, Any]:
        return {}

    def _restore(self, state: Mapping[str, Any]) -> None:
        raise AssertionError(state)


SCRIPT = (((0, 10), (2, 5)), ((1, 20),), ((2, 8), (0, 100)))


def exact(participants: int) -> SumProtocol:
    return Exact(participants, 1)


def scripted(
    make: Callable[..., Any] = exact,
    arguments: Mapping[str, Any] | None = None,
    horizon: int = 50,
    script: tuple[tuple[tuple[int, int], ...], ...] = SCRIPT,
) -> tuple[Scripted, Experiment]:
    learner = Scripted(3, horizon, script)
    return learner, Experiment.of(learner, PerRound(make, arguments or {}))


def test_pseudo_regret_matches_direct_computation() -> None:
    learner, experiment = scripted()
    marks = (1, 5, 10, 12, 15, 30, 35, 43, 50)
    result = run(experiment, WORLD, np.random.default_rng(0), checkpoints=marks)
    played = (
        [0] * 10 + [2] * 5 + [1] * 20 + [2] * 8 + [0] * 7
    )  # the last round is cut from 100 to 7
    by_hand = np.cumsum([GAPS[arm] for arm in played])
    assert result.regret is not None
    np.testing.assert_allclose(result.regret, [by_hand[t - 1] for t in marks], rtol=1e-12)
    assert result.final_regret == pytest.approx(by_hand[-1])
    assert (result.played, result.released, result.participants, result.reals) == (50, 4, 43, 43)
    record = ArmsProblem.of(arms=3, horizon=50).record(result)
    assert [record[name] for name in ("users", "batches", "best", "active")] == [50, 4, 2, 3]
    assert record["best_mean_gap"] == pytest.approx(0.4)
    assert experiment.best() == "option 3"
    assert experiment.finished
    assert [entry[:2] for entry in learner.seen] == [
        (0, 10),
        (2, 5),
        (1, 20),
        (2, 8),
    ]  # the cut round is never released
    assert result.bits == 43 * 1


def test_final_regret_is_at_the_horizon_for_any_checkpoints() -> None:
    result = run(scripted()[1], WORLD, np.random.default_rng(0), checkpoints=(10,))
    assert result.regret == pytest.approx([7.0])
    assert result.final_regret == pytest.approx(10 * 0.7 + 5 * 0.4 + 8 * 0.4 + 7 * 0.7)


@pytest.mark.extended
def test_realised_regret_includes_unreleased_rounds() -> None:
    """The mean over 2,000 runs is the pseudo-regret, within 5 standard errors; its spread is that
    of coins, of all 50 users.
    """
    rng = np.random.default_rng(5)
    realised = [run(scripted()[1], WORLD, rng).realised for _ in range(2000)]
    lost = np.array([row[-1] for row in realised if row is not None])
    assert len(lost) == 2000
    variance = 17 * 0.2 * 0.8 + 13 * 0.25 + 20 * 0.09
    assert abs(lost.mean() - 17.1) < 5 * np.sqrt(variance / 2000)
    assert lost.var(ddof=1) == pytest.approx(variance, rel=0.2)


def test_checkpoints_are_log_spaced_and_end_at_the_horizon() -> None:
    for horizon in (1, 2, 10, 999, 10**6, 10**12 + 1):
        for count in (1, 2, 60):
            marks = checkpoints_for(horizon, count)
            assert marks[-1] == horizon
            assert list(marks) == sorted(set(marks))
            assert all(type(mark) is int for mark in marks)
    assert checkpoints_for(10**6, 7) == (1, 10, 100, 1000, 10**4, 10**5, 10**6)


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (factories.polya_tight, {"binary": False, "dropout": 0.1}),
        (factories.central_laplace, {"binary": False, "failure_probability": None}),
        (factories.local_laplace, {"paper": False}),
        (factories.response, {}),
        (factories.continuous_laplace, {}),
        (factories.pure_shuffle, {}),
    ],
    ids=["polya", "central", "local", "response", "continuous", "pure"],
)
def test_a_seed_reproduces_a_run_bit_for_bit_on_both_paths(
    make: Callable[..., Any], arguments: dict[str, Any], slow: bool
) -> None:
    """Found: with a trusted server the slow path drew its noise from the operating system."""
    world = ClippedGaussian((0.2, 0.9, 0.5))
    seen, results = [], []
    for seed in (9, 9, 10):
        learner, experiment = scripted(make, {"target": PureDP(1.0)} | arguments)
        rng = np.random.default_rng(seed)
        result = run(experiment, world, rng, conditions=RunConditions(user_by_user=slow))
        seen.append(learner.seen)
        results.append((result.regret, result.realised, result.bits, result.wrapped))
    assert results[0] == results[1]
    assert seen[0] == seen[1] != seen[2]


@pytest.mark.parametrize("slow", [False, True])
def test_wrap_arounds_are_counted_on_both_paths(slow: bool) -> None:
    protocol = SecureSum(20, 1, DiscreteLaplace(8), PureDP(1 / 8), modulus=23)
    script = tuple(((0, 20),) for _ in range(200))
    counts = []
    for _ in range(2):
        learner, experiment = scripted(lambda _: protocol, horizon=4000, script=script)
        rng = np.random.default_rng(1)
        result = run(experiment, WORLD, rng, conditions=RunConditions(user_by_user=slow))
        misread = sum(not -1 <= total <= 21 for _, _, total in learner.seen)
        assert misread == 0  # every residue is read as a number that could be true
        counts.append(result.wrapped)
    assert 30 < counts[0] < 100
    assert counts[0] == counts[1]  # of this run, not of all runs that share the protocol


def test_an_environment_without_means_has_no_regret() -> None:
    world = FromFunction(lambda arm, rng: float(rng.random() < 0.2 + arm / 4), ["a", "b", "c"])
    learner, experiment = scripted()
    result = run(experiment, world, np.random.default_rng(0))
    assert (result.regret, result.realised, result.final_regret) == (None, None, None)
    assert (result.played, result.gaps, len(learner.seen)) == (50, None, 4)


def test_an_exhausted_log_ends_the_run_with_an_open_round() -> None:
    columns = (np.ones(12), np.zeros(40), np.full(12, 0.5))
    log = Recorded(columns, ("A", "B", "C"), log=True)
    learner, experiment = scripted()
    rng = np.random.default_rng(0)
    result = run(experiment, log.fresh(rng), rng)
    assert [entry[:2] for entry in learner.seen] == [(0, 10), (2, 5), (1, 20)]
    assert (result.played, learner.played, experiment.finished) == (35, 35, False)
    assert result.final_regret == pytest.approx(5 * 0.5 + 20 * 1.0)


def test_environments_reject_foreign_rounds() -> None:
    _, experiment = scripted()
    silos = Synthetic.draw(2, 3, 4, np.random.default_rng(0))
    with pytest.raises(TacitError, match="must be a Policy"):
        run(experiment, silos, np.random.default_rng(0))
    with pytest.raises(TacitError, match="user_by_user is for arms only"):
        run(
            experiment, silos, np.random.default_rng(0), conditions=RunConditions(user_by_user=True)
        )


@pytest.mark.parametrize("slow", [False, True])
def test_both_paths_report_two_metrics_per_participant(slow: bool) -> None:
    """So little noise that there is none: what is learned is what participants held."""
    world = TwoMetrics(Bernoulli((0.2, 0.9)), Bernoulli((1.0, 0.0)))
    problem = ArmsProblem.of(
        arms=2, horizon=3_000, control_share=0.3, guardrail="errors", epsilon=60.0, binary=True
    )
    experiment = lookup("private-klucb").build(problem)
    result = run(
        experiment, world, np.random.default_rng(0), conditions=RunConditions(user_by_user=slow)
    )
    rows = experiment.estimates()
    assert result.reals == 2 * result.participants == 2 * sum(row.participants for row in rows)
    assert [row.guardrail for row in rows] == pytest.approx([1.0, 0.0], abs=1e-3)
    assert [row.mean for row in rows] == pytest.approx([0.2, 0.9], abs=0.1)
    assert result.final_realised == pytest.approx(result.final_regret, rel=0.2)


def test_a_trial_is_a_function_of_its_seed() -> None:
    trial = Trial("dist-dp-se", ArmsProblem.of(arms=3, horizon=2000), checkpoints=(10,))
    once, again, other = (trial(seed) for seed in (4, 4, 5))
    assert once == again
    assert once["regret"] != other["regret"]
    assert once["final_regret"] > once["regret"][-1]
