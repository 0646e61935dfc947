"""Phased elimination: schedules, widths, surviving actions, and storage at any time."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.tables import each_row

from tacit.bandits import Learner
from tacit.bandits.contract import learner_of
from tacit.bandits.linear.phased import (
    ClientSampling,
    DistributedElimination,
    FittedReports,
    PhasedElimination,
    SingleElimination,
    Widths,
)
from tacit.bandits.linear.widths import PhaseEvidence, RunEvidence
from tacit.errors import TacitError
from tacit.names import name_of
from tacit.types import Design, Estimate, Round, VectorError

Floats = npt.NDArray[np.float64]
FIXED = ClientSampling(fixed_clients=30)


def design(round_: Round) -> Design:
    assert isinstance(round_.assignment, Design)
    return round_.assignment


def estimate(
    round_: Round, means: Floats, variance: float = 0.0, reach: float = math.inf
) -> Estimate:
    """Means with an error of known sub-Gaussian variance."""
    people: Any = round_.participants
    if design(round_).each:
        people = np.array(design(round_).plays)
    columns = (np.full(len(means), value) for value in (variance, reach, math.sqrt(variance)))
    return Estimate(means * people, VectorError(people, *columns))


def sphere(actions: int, dimension: int, seed: int = 0) -> Floats:
    table = np.random.default_rng(seed).standard_normal((actions, dimension))
    return np.asarray(table / np.linalg.norm(table, axis=1)[:, None])


def drive(
    learner: PhasedElimination,
    theta: Floats,
    rng: np.random.Generator,
    variance: float = 0.0,
    limit: int = 1000,
) -> list[Round]:
    """Plays up to `limit` phases with Gaussian errors of the stated variance."""
    phases: list[Round] = []
    while len(phases) < limit and (proposed := learner.propose()):
        (round_,) = proposed
        phases.append(round_)
        if round_.released:
            support, plays = list(design(round_).support), np.array(design(round_).plays)
            reports = plays if learner.each else np.array(round_.participants)
            spread = learner._variances(reports, plays.astype(float))
            shift = math.sqrt(learner._client_variance(reports)) * rng.standard_normal(len(theta))
            means = learner.actions[support] @ (theta + shift) + np.sqrt(
                spread + variance
            ) * rng.standard_normal(len(support))
            learner.observe(round_, estimate(round_, means, variance))
        else:
            learner.skip(round_)
    return phases


def recorded(learner: Any) -> list[int]:
    """The numbers of reports that the paper's width is asked for."""
    told: list[int] = []
    original = learner._paper_width

    def width(design: Any, reports: int, stated: Any) -> float:
        told.append(reports)
        return float(original(design, reports, stated))

    learner._paper_width = width
    return told


@pytest.mark.parametrize("constants", ["tight", "paper"])
def test_widths_and_arm_summaries_count_reports_not_participants(constants: str) -> None:
    """A third of the reports: the evidence of clients is three times as wide, and of single plays
    too; the paper's width follows reports.
    """
    for learner, each in (
        (
            DistributedElimination(
                np.eye(3), 10_000, sampling=FIXED, widths=Widths(constants=constants)
            ),
            False,
        ),
        (SingleElimination(np.eye(3), 10_000, widths=Widths(constants=constants)), True),
    ):
        (round_,) = learner.propose()
        plays = np.array(design(round_).plays)
        few = plays // 3 if each else np.array(round_.participants // 3)
        columns = (np.full(3, value) for value in (0.0, math.inf, 0.0))
        people = few if each else int(few)
        told = recorded(learner)
        learner.observe(round_, Estimate(np.zeros(3) * few, VectorError(people, *columns)))
        assert learner._asked.tolist() == np.broadcast_to(few, 3).tolist()
        if constants == "paper":
            assert told == [int(np.sum(few))]
            continue
        heard = few if each else few * plays
        (phase,) = learner._evidence.phases
        assert np.diag(phase.matrix) == pytest.approx(
            learner.bound**2 / heard + learner._client_variance(few)
        )


@pytest.mark.parametrize("constants", ["tight", "paper"])
def test_phases_fill_the_horizon_exactly(constants: str) -> None:
    table = sphere(50, 4)
    for learner in (
        DistributedElimination(table, 12_345, widths=Widths(constants=constants)),
        SingleElimination(table, 12_345, widths=Widths(constants=constants)),
    ):
        phases = drive(learner, 0.5 * table[0], np.random.default_rng(0))
        assert sum(phase.time for phase in phases) == 12_345
        assert learner.propose() == []
        assert learner.finished


def test_numbers_of_clients_grow_as_in_the_paper() -> None:
    learner = DistributedElimination(sphere(50, 4), 10_000, widths=Widths(constants="paper"))
    phases = drive(learner, np.zeros(4), np.random.default_rng(0))
    released = [phase for phase in phases if phase.released]
    assert [phase.participants for phase in released] == [
        math.ceil(2 ** (0.8 * number)) for number in range(1, len(released) + 1)
    ]
    assert [design(phase).length for phase in released] == [
        2.0**number for number in range(1, len(released) + 1)
    ]
    assert learner.scheduled_clients() >= sum(phase.participants for phase in released)


def test_single_elimination_starts_at_the_bound_on_the_support() -> None:
    assert SingleElimination(sphere(100, 20), 10_000).length(1) == 103


def test_widths_match_the_paper() -> None:
    learner = DistributedElimination(sphere(1000, 20), 10**6, widths=Widths(constants="paper"))
    phase = Design((0, 1, 2), (86, 86, 86), 256.0)
    expected = (
        math.sqrt(40 / (85 * 256)) + 0.1 / math.sqrt(85) + 2 * 0.01 * math.sqrt(103 * 20)
    ) * math.sqrt(2 * math.log(1e9))
    assert learner._paper_width(phase, 85, np.full(3, 0.01)) == pytest.approx(expected)
    single = SingleElimination(sphere(1000, 20), 10**6, widths=Widths(constants="paper"))
    expected = (math.sqrt(40 / 256) + 2 * 20 * 0.5 * math.sqrt(3) / 256) * math.sqrt(
        2 * math.log(1e9)
    )
    assert single._paper_width(phase, 258, np.full(3, 0.5 / 86)) == pytest.approx(expected)


@pytest.mark.parametrize("kind", [DistributedElimination, SingleElimination])
def test_a_clear_winner_is_found(kind: type[PhasedElimination]) -> None:
    table = sphere(200, 5)
    learner = kind(table, 200_000)
    drive(learner, 0.9 * table[7], np.random.default_rng(3))
    assert 7 in learner.active
    assert learner.best() == 7
    assert len(learner.active) < 5


@pytest.mark.parametrize("constants", ["tight", "paper"])
@pytest.mark.parametrize("kind", [DistributedElimination, SingleElimination])
def test_a_learner_restored_from_json_continues_identically(
    kind: type[PhasedElimination], constants: str
) -> None:
    table = sphere(60, 4)
    learner = kind(table, 50_000, widths=Widths(constants=constants))
    drive(learner, 0.8 * table[3], np.random.default_rng(1), variance=0.01, limit=7)
    copy = Learner.from_dict(json.loads(json.dumps(learner.to_dict())))
    assert isinstance(copy, kind)
    one = drive(learner, 0.8 * table[3], np.random.default_rng(2), variance=0.01)
    other = drive(copy, 0.8 * table[3], np.random.default_rng(2), variance=0.01)
    assert one == other
    assert learner.active == copy.active
    assert learner.best() == copy.best()


def test_actions_that_do_not_span_the_space_are_compared() -> None:
    table = np.hstack([sphere(80, 3), np.zeros((80, 2))])
    learner = DistributedElimination(table, 100_000)
    drive(learner, np.array([*(0.8 * table[5, :3]), 0.3, -0.2]), np.random.default_rng(0))
    assert learner.best() == 5


def _differences(evidence: RunEvidence, differences: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gains and widths of these, each the difference between nothing and a point."""
    points = np.vstack([np.zeros(differences.shape[1]), -differences])
    return evidence.compare(evidence.seen(points), 0, np.arange(1, len(points)))


def test_close_actions_are_compared_without_cancellation() -> None:
    """What is multiplied out is never below the variance of a difference, and hardly above it."""
    rng = np.random.default_rng(3)
    root = rng.standard_normal((5, 5))
    evidence = RunEvidence(2, 5, 1.0, 0.05)
    evidence.phases = [PhaseEvidence(rng.standard_normal(5), root @ root.T, math.inf)]
    point, direction = rng.standard_normal(5), rng.standard_normal(5)
    for apart, looser in ((1e-1, 1e-6), (1e-3, 1e-3), (1e-6, 1e3), (1e-12, 1e12), (0.0, math.inf)):
        _, plain = _differences(evidence, apart * direction[None])
        points = np.vstack([point, point - apart * direction])
        _, width = evidence.compare(evidence.seen(points), 0, np.array([1]))
        assert plain[0] * (1 - 1e-9) <= width[0] <= plain[0] * (1 + looser)


@pytest.mark.extended
def test_the_error_of_pooled_differences_stays_within_the_width_at_all_phases() -> None:
    """Ville's inequality: over phases whose precision depends on what was seen, at most a share p.

    Alarm rate below 1e-4.
    """
    runs, failure_probability = 1500, 0.2
    rng = np.random.default_rng(5)
    evidence = RunEvidence(2, 1, 1.0, failure_probability)
    assert evidence.level == pytest.approx(math.log(24 / failure_probability))
    broken = 0
    for _ in range(runs):
        evidence.phases = []
        variance, failed = 1.0, False
        for _ in range(6):
            error = math.sqrt(variance) * rng.standard_normal()
            evidence.phases.append(
                PhaseEvidence(np.array([error]), np.array([[variance]]), math.inf)
            )
            gain, width = _differences(evidence, np.array([[1.0]]))
            failed |= bool(gain[0] > width[0])
            variance *= 0.2 if gain[0] > 0 else 0.9  # the next phase is as good as the luck so far
        broken += failed
    assert broken / runs <= failure_probability / 24 * 4


def test_widths_are_directional_and_close_to_the_single_gaussian_bound() -> None:
    evidence = RunEvidence(2, 2, 1.0, 0.05)
    evidence.phases = [PhaseEvidence(np.zeros(2), np.diag([1e-2, 1e-4]), math.inf)]
    _, widths = _differences(evidence, np.eye(2))
    best = np.sqrt(2 * evidence.level * np.array([1e-2, 1e-4]))
    assert (widths >= best * (1 - 1e-9)).all()
    assert (widths <= 1.07 * best).all()


def test_noise_without_gaussian_tails_widens_the_confidence_width() -> None:
    evidence = RunEvidence(2, 1, 1.0, 0.05)
    evidence.phases = [PhaseEvidence(np.zeros(1), np.array([[1e-2]]), 1.0)]
    _, capped = _differences(evidence, np.eye(1))
    evidence.phases = [PhaseEvidence(np.zeros(1), np.array([[1e-2]]), math.inf)]
    _, free = _differences(evidence, np.eye(1))
    assert capped[0] > 1.5 * free[0]


@pytest.mark.extended
def test_the_best_action_is_dropped_in_at_most_a_share_of_runs() -> None:
    """Errors exactly as declared, neighbours close to the best: 60 runs at β = 0.2."""
    table = np.array([[math.cos(angle), math.sin(angle)] for angle in np.linspace(-0.6, 0.6, 25)])
    dropped = 0
    for seed in range(60):
        learner = DistributedElimination(table, 20_000, widths=Widths(failure_probability=0.2))
        drive(learner, np.array([0.9, 0.0]), np.random.default_rng(seed), variance=0.001)
        dropped += 12 not in learner.active
        assert len(learner.active) < 25
    assert dropped <= 0.2 * 60


@each_row(
    ("arguments", "message"),
    [
        ({"alpha": 0.0}, "alpha"),
        ({"alpha": -1.0}, "alpha"),
        ({"alpha": 100.0}, "alpha"),
        ({"fixed_clients": 0}, "Every phase needs clients"),
        ({"client_std": -1.0}, "client_std"),
        ({"bound": 0}, "bound"),
        ({"failure_probability": 0}, "failure_probability"),
        ({"constants": "loose"}, "constants"),
    ],
)
def test_invalid_arguments_are_rejected(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(TacitError, match=message):
        learner_of(
            name_of(DistributedElimination), {"actions": np.eye(3), "horizon": 1000} | arguments
        )


def test_phases_run_in_order() -> None:
    learner = DistributedElimination(np.eye(3), 1000)
    (phase,) = learner.propose()
    assert learner.propose() == [phase]
    with pytest.raises(TacitError, match="has 2 numbers: must have 3"):
        learner.observe(phase, estimate(phase, np.zeros(2)))
    learner.observe(phase, estimate(phase, np.zeros(3)))
    with pytest.raises(TacitError, match="already observed"):
        learner.observe(phase, estimate(phase, np.zeros(3)))
    with pytest.raises(TacitError, match="not known here"):
        Learner.from_dict({"learner": "tacit.bandits.linear.phased:Phase"})


@pytest.mark.parametrize("kind", [DistributedElimination, SingleElimination])
def test_dropped_actions_keep_their_estimates(kind: type[PhasedElimination]) -> None:
    """Found: later phases do not span a dropped action, and pulled its mean to a certain zero.

    Intervals of 99.99 % for 3 options in 20 runs; alarm rate below 1e-2, with sub-Gaussian
    variances that are those of the noise.
    """
    theta, dropped = np.array([0.9, 0.85, -0.6]), 0
    for seed in range(20):
        learner = kind(np.eye(3), 20_000)
        drive(learner, theta, np.random.default_rng(seed))
        rows = learner.summaries(("a", "b", "c"), 0.9999)
        dropped += 2 not in learner.active
        for row, mean in zip(rows, theta, strict=True):
            assert row.mean is not None
            assert row.low <= mean <= row.high
            assert row.participants > 0
        assert sum(row.best for row in rows) == pytest.approx(1)
        assert rows[2].best < 1e-3
    assert dropped == 20


def test_clients_fit_parameters_only_where_that_reduces_the_error() -> None:
    """Among very many, privacy noise is nothing and a fit gains nothing: averages are reported."""
    kinds = {}
    for clients in (1000, 10**6):
        learner = DistributedElimination(
            np.eye(6),
            10**9,
            sampling=ClientSampling(fixed_clients=clients),
            fitted=FittedReports(parameters_from=1, noise_ratio=0.5),
        )
        learner._number = 14
        (round_,) = learner.propose()
        kinds[clients] = type(round_.assignment).__name__
    assert kinds == {1000: "Fit", 10**6: "Design"}
