"""Coverage of the confidence sets of silos: linear rewards within [0, 1] are covered, clipped ones
are not, and the run reports it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tacit.algorithms import SilosProblem, lookup
from tacit.bandits.contextual.federated import FederatedLinUCB
from tacit.cli.options import warnings
from tacit.environments.silos import Synthetic
from tacit.types import Floats

SIZE: dict[str, Any] = {"silos": 20, "dimension": 5, "actions": 20, "sync": 25, "horizon": 1000}
STRONG, WEAK = {"epsilon": 1.0, "delta": 1e-6}, {"epsilon": 5.0, "delta": 0.1}
WAYS = [
    ("fedlinucb", {}),
    ("secagg-fedlinucb", {**STRONG, "lazy": False}),
    ("secagg-fedlinucb", {**WEAK, "lazy": False}),
    ("ldp-fedlinucb", STRONG),
    ("ldp-fedlinucb", {"budgets": ((1.0, 1e-6), (5.0, 0.1)) * 10}),
    ("sdp-fedlinucb-vec", WEAK),
]


@dataclass(frozen=True, eq=False)
class Bits(Synthetic):
    """Rewards 0 or 1 with linear means: as noisy as rewards in [0, 1] can be."""

    def rewards(self, means: Floats, rng: np.random.Generator) -> Floats:
        """Coins."""
        return (rng.random(len(means)) < means).astype(float)


def farthest(name: str, world: type[Synthetic], seed: int, **changes: Any) -> tuple[float, float]:
    """How far the estimate of any of 400 actions is off at any synchronisation, in widths; and the
    part of rewards that were cut.
    """
    deviation = changes.pop("deviation", 0.25)
    problem = SilosProblem.of(**SIZE, **changes)
    rng, noise = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    silos = world.draw(
        problem.silos, problem.dimension, problem.environment.actions, rng, deviation
    )
    experiment = lookup(name).build(problem)
    learner: Any = experiment.learner
    assert isinstance(learner, FederatedLinUCB)
    worst, cut = 0.0, 0.0
    while rounds := experiment.propose():
        (round_,) = rounds
        protocol = experiment.open(round_)
        played = silos.play(round_, protocol, rng)
        cut += played.notes["clipped_rewards"] / (problem.silos * problem.horizon)
        experiment.observe(round_, protocol.simulate(played.load, noise))
        inverse = np.linalg.inv(learner._gram)
        x = silos.contexts(rng).reshape(-1, problem.dimension)
        along = x @ inverse
        spread = np.sqrt(np.einsum("nd,nd->n", along, x))
        width = learner.radius(learner.played) * spread
        width += learner.noise_shift * np.linalg.norm(along, axis=1)
        off = np.abs(x @ (inverse @ learner._bias - silos.parameter))
        worst = max(worst, float((off / width).max()))
    return worst, cut


@pytest.mark.extended
@pytest.mark.parametrize(("name", "guarantee"), WAYS)
def test_confidence_sets_cover_for_rewards_within_bounds(name: str, guarantee: Any) -> None:
    """At α = 0.01 and 40 synchronisations in each of 2 runs; sets are wide enough that none of them
    comes near, so a false alarm has no measurable chance.
    """
    for seed in range(2):
        worst, cut = farthest(name, Bits, seed, **guarantee)
        assert cut == 0
        assert worst <= 1


def test_half_the_reward_width_loses_coverage_at_a_loose_confidence() -> None:
    """The sets are not so wide that nothing could leave them: without privacy, at α = 0.9, the
    estimate goes farther than a quarter of them in most runs.
    """
    found = [farthest("fedlinucb", Bits, seed, failure_probability=0.9)[0] for seed in range(4)]
    assert sorted(found)[1] > 0.25
    assert max(found) <= 1


@pytest.mark.parametrize(("deviation", "least"), [(0.25, 0.3), (0.5, 0.42)])
def test_clipped_rewards_void_coverage_and_the_run_reports_it(
    deviation: float, least: float
) -> None:
    worst, cut = farthest("fedlinucb", Synthetic, 0, deviation=deviation)
    assert cut > least
    assert worst > 2
    assert any("confidence sets do not hold" in line for line in warnings(1.0, 1e-6, cut))
    assert not warnings(1.0, 1e-6, 0.0)
