"""Privacy of a whole run: two reward tables that differ in one participant, against an adversary
with the server's view.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.algorithms.asking import built, problem_for
from tests.tables import extended_after

from tacit.environments import Environment
from tacit.experiment import Experiment
from tacit.privacy import audit
from tacit.protocols.contract import SumProtocol, round_levels
from tacit.types import Aggregate, Levels

Floats = npt.NDArray[np.float64]


class Recorded(Environment):
    """One recorded reward per user in order of arrival, whatever arm they try."""

    binary = True

    def __init__(self, rewards: Floats, arms: int) -> None:
        self.table, self.next, self._arms = rewards, 0, arms

    @property
    def means(self) -> Floats:
        return np.full(self._arms, 0.5)

    def rewards(self, arm: int, users: int, rng: np.random.Generator) -> Floats:  # noqa: ARG002
        self.next += users
        return self.table[self.next - users : self.next]

    def levels(self, arm: int, users: int, precision: int, rng: np.random.Generator) -> Levels:  # noqa: ARG002
        raise AssertionError("every user counts here")


@dataclass
class Transcript:
    """The server's view: assignments, and every released value."""

    decisions: list[tuple[int, int]]
    released: list[int]


def release(protocol: SumProtocol, data: Floats, rng: np.random.Generator) -> Aggregate:
    """The sum of these rewards, as users and servers make it."""
    levels = round_levels(data, protocol.precision, rng)
    return protocol.combine_batch(protocol.randomize_batch(levels, rng), rng)


def run_experiment(experiment: Experiment, rewards: Floats, rng: np.random.Generator) -> Transcript:
    world = Recorded(rewards, experiment.learner.arms)
    seen = Transcript([], [])
    while rounds := experiment.propose():
        for round_ in rounds:
            seen.decisions.append((round_.arm, round_.participants))
            data = world.rewards(round_.arm, round_.participants, rng)
            if not round_.released:
                experiment.skip(round_)
                continue
            protocol = experiment.open(round_)
            assert isinstance(protocol, SumProtocol)
            released = release(protocol, data, rng)
            seen.released.append(released.value)
            experiment.observe(round_, protocol.analyze(released))
    assert world.next == len(rewards)
    return seen


def affected(experiment: Experiment, rng: np.random.Generator) -> Callable[[Floats], float]:
    """The estimate of the batch that the changed user, the first one, is in: the likelihood ratio
    of the transcript rises with it, and nothing later changes it.
    """
    first = experiment.propose()[0]
    protocol = experiment.open(first)
    assert isinstance(protocol, SumProtocol)
    users = first.participants
    return lambda rewards: protocol._sum(release(protocol, rewards[:users], rng))


def afterwards(transcript: Transcript) -> float:
    """All later releases, as one number."""
    return (
        float(sum(transcript.released[1:]))
        + 0.001 * len(transcript.decisions)
        + transcript.decisions[-1][0]
    )


HORIZON = 60
ZERO = np.tile([0.0, 1.0], HORIZON // 2)
ONE = np.concatenate([[1.0], ZERO[1:]])


def attack(
    name: str, built_for: float, claimed: float, samples: int, statistic: str, **changes: Any
) -> tuple[bool, float]:
    """Whether the attack refutes the claim, for an algorithm whose noise was built for some
    epsilon. Seeded; confidence 0.999.
    """
    size = {"arms": 2, "horizon": HORIZON, "min_batch_size": 4}
    problem = problem_for(name, **size, epsilon=built_for, binary=True, **changes)
    rng = np.random.default_rng(11)

    def whole(rewards: Floats) -> float:
        return afterwards(run_experiment(built(name, problem), rewards, rng))

    output = whole if statistic == "afterwards" else affected(built(name, problem), rng)
    whole(ZERO)  # every run ends

    def mechanism(rewards: Floats, count: int) -> Floats:
        return np.array([output(rewards) for _ in range(count)])

    delta = problem.privacy.delta or 0.0
    found = audit(mechanism, ZERO, ONE, samples, delta=delta)
    return found.refutes(claimed), found.epsilon


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "dist-dp-se": ("dist-dp-se", {"constants": "paper"}),
    "dist-dp-se-tight": ("dist-dp-se", {}),
    "private-klucb": ("private-klucb", {"index": "chernoff"}),
    "shuffle-dp-se": ("shuffle-dp-se", {"constants": "paper", "growth": 17.0}),
    "cdp-se": ("cdp-se", {}),
    "growth-2": ("dist-dp-se", {"growth": 2.0}),
    "vb-sdp-ae": ("vb-sdp-ae", {"delta": 1e-5}),
}


@pytest.mark.parametrize("case", extended_after(1, ["dist-dp-se", "shuffle-dp-se"]))
def test_a_whole_run_meets_its_guarantee_and_half_the_noise_does_not(
    case: str,
) -> None:
    name, changes = CASES[case]
    samples = 1000 if case == "dist-dp-se" else 2000  # as many as refute half of the noise
    refuted, epsilon = attack(name, 1.0, 1.0, samples, "affected", **changes)
    assert not refuted
    assert epsilon > 0.3  # the attack is a good one
    refuted, epsilon = attack(name, 2.0, 1.0, samples, "affected", **changes)
    assert refuted, epsilon


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("statistic", ["affected", "afterwards"])
def test_whole_runs_of_many_algorithms_meet_their_guarantees(case: str, statistic: str) -> None:
    name, changes = CASES[case]
    refuted, _ = attack(name, 1.0, 1.0, 4000, statistic, **changes)
    assert not refuted
    if (
        statistic == "affected" and name != "vb-sdp-ae"
    ):  # whose loss lies in events too rare to sample
        refuted, epsilon = attack(name, 2.0, 1.0, 4000, statistic, **changes)
        assert refuted, epsilon


def test_a_transcript_without_noise_identifies_the_participant() -> None:
    problem = problem_for("ucb1", arms=2, horizon=HORIZON, binary=True)
    rng = np.random.default_rng(0)
    values = [
        run_experiment(built("ucb1", problem), table, rng).released[0] for table in (ZERO, ONE)
    ]
    assert values == [0, 1]


def test_every_participant_is_in_one_batch() -> None:
    for name in ("dist-dp-se", "private-klucb", "vb-sdp-ae", "dp-se"):
        seen = run_experiment(
            built(name, problem_for(name, arms=2, horizon=HORIZON, epsilon=0.9, binary=True)),
            ZERO,
            np.random.default_rng(1),
        )
        assert sum(users for _, users in seen.decisions) == HORIZON
    assert math.isclose(ZERO.sum() + 1, ONE.sum())
