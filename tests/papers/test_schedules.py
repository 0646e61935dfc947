"""Synchronisation schedules: guarantee of a participant, what decides them, and how often they
synchronise.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tacit.bandits.contextual import moments
from tacit.bandits.contextual.schedules import geometric
from tacit.papers.schedules import (
    GEOMETRIC,
    PRIVATE,
    PROBLEM,
    REFUTED,
    SilosRun,
    compared,
    draw,
    private_sums,
    threshold,
)
from tacit.privacy import GaussianLoss, View

SMALL = PROBLEM.changed(silos=3, dimension=3, actions=4, horizon=60, sync=10)


def test_every_schedule_but_the_refuted_one_guarantees_a_participant_the_target(
    tmp_path: Path,
) -> None:
    found = {one.name: one for one in compared(SMALL, runs=2, seed=1)}
    assert found[REFUTED].guarantee is None
    for name, one in found.items():
        if name != REFUTED:
            assert one.guarantee is not None
            assert one.guarantee.view is View.SILO
            assert 0.97 <= one.guarantee.epsilon <= 1.0
            assert one.guarantee.delta == 1e-5
        assert one.regret.shape == (2, 60)
        assert np.all(np.diff(one.regret) >= 0)
    pytest.importorskip("matplotlib")
    assert draw(list(found.values()), tmp_path / "s.png").read_bytes().startswith(b"\x89PNG")


def test_the_private_schedule_has_noise_for_every_possible_release() -> None:
    """Independently: σ, the square root's column norm over T steps, √4.5."""
    sums = private_sums(SMALL, SMALL.horizon)
    coefficients = [math.comb(2 * m, m) / 4**m for m in range(60)]
    moved = moments.joint_sensitivity(3) * math.sqrt(sum(c * c for c in coefficients))
    assert GaussianLoss(sums.sigma, moved).delta(1.0) <= 1e-5
    assert GaussianLoss(sums.sigma, moved).epsilon(1e-5) == pytest.approx(1.0, rel=0.02)
    assert private_sums(SMALL, len(geometric(60))).sigma < sums.sigma


@pytest.mark.parametrize("name", [PRIVATE, REFUTED])
def test_the_private_schedule_reads_nothing_but_private_sums(name: str) -> None:
    """Other participants whose sums look the same through the noise are met with the same decision;
    the refuted rule tells them apart.
    """
    sums = private_sums(SMALL, SMALL.horizon)
    decided = []
    for size in (0.0, 1e6):
        silos = SilosRun(SMALL, sums, name, (), seed=4)
        other = size * np.eye(3)
        silos.actor.gram = silos.actor.gram + other
        silos.noise = silos.noise - moments.pack(np.zeros(3), other)
        decided.append([silos._speaks(t) for t in (1, 5, 20, 59)])
    assert (decided[0] == decided[1]) is (name == PRIVATE)
    if name == REFUTED:
        assert decided[1][-1]


def test_the_refuted_rule_triggers_exactly_at_its_threshold() -> None:
    silos = SilosRun(SMALL, private_sums(SMALL, SMALL.horizon), REFUTED, (), seed=0)
    for factor, fires in ((0.999, False), (1.001, True)):
        grown = math.expm1(factor * threshold(SMALL) / 10) * silos.regularizer
        silos.actor.gram = np.zeros((3, 3, 3))
        silos.actor.gram[1, 0, 0] = grown
        assert silos._speaks(10) is fires


def test_the_geometric_schedule_synchronises_logarithmically_often() -> None:
    """Twice the rounds take ln 2 / ln 1.3 synchronisations more, whatever the data."""
    counts = [len(geometric(2**k * 1000)) for k in range(6)]
    steps = np.diff(counts)
    assert set(steps.tolist()) <= {2, 3}
    (one,) = (one for one in compared(SMALL, runs=1) if one.name == GEOMETRIC)
    assert one.synchronised[0] == tuple(np.cumsum(geometric(60)).tolist())[:-1]


def test_a_seed_reproduces_decisions() -> None:
    sums = private_sums(SMALL, SMALL.horizon)
    one, other = (SilosRun(SMALL, sums, PRIVATE, (), seed=5).play() for _ in range(2))
    assert one[0] == other[0]
    assert np.array_equal(one[1], other[1])
