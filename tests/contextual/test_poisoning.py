"""Corrupted participants of contextual experiments: the range of a report, and its cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tacit.algorithms.registry import lookup
from tacit.contextual import Category
from tacit.environments.contextual import ContextFunction
from tacit.errors import TacitError
from tacit.experiment import Experiment
from tacit.protocols.statistic_sums import StatisticSum
from tacit.protocols.statistics import MomentStatistic
from tacit.simulation import simulate
from tacit.simulation.poisoning import ContextualPoisoning
from tacit.studies.plan import plan

STATISTICS = {"segments": "tables", "random": "moments"}


def begun(contexts: str) -> tuple[Any, Experiment]:
    """A world and an experiment in it."""
    entry = lookup("private-contextual")
    asked: dict[str, Any] = {"contexts": contexts, "arms": 4, "horizon": 20_000}
    asked |= {"trust": "two-servers", "statistic": STATISTICS[contexts]}
    problem: Any = entry.make_problem(asked)
    world = problem.start(0, None).world
    fitted = problem.for_environment(world, 0)
    return world.mapped(fitted.features), entry.build(fitted)


def reports(contexts: str, corrupted: int, checked: bool = False) -> tuple[Any, Any]:
    """The protocol of the first round, and the sum of corrupted participants' reports."""
    world, experiment = begun(contexts)
    protocol = experiment.open(experiment.propose()[0])
    assert isinstance(protocol, StatisticSum)
    rng = np.random.default_rng(0)
    made = ContextualPoisoning(0.01, (), world, checked)
    return protocol, made.reports(protocol, corrupted, rng)


def test_each_corrupted_participant_moves_a_table_by_one_cell() -> None:
    _, sums = reports("segments", 50)
    assert sums.sum() == 50
    assert sums.min() == 0
    assert not sums[::2].any()  # outcomes of 1 only


def test_corrupted_participants_move_moments_to_their_limits() -> None:
    protocol, sums = reports("random", 50)
    statistic = protocol.statistic
    assert isinstance(statistic, MomentStatistic)
    d = statistic.dimension
    assert set(np.abs(sums[:d]).tolist()) <= {0, 50 * statistic.levels * statistic.resolution}
    assert not sums[d:].any()
    _, false = reports("random", 50, checked=True)
    first = slice(0, d)
    assert np.linalg.norm(sums[first]) > 1.5 * np.linalg.norm(false[first])


@pytest.mark.extended
def test_corrupted_participants_increase_regret() -> None:
    how: dict[str, Any] = {"horizon": 20_000, "runs": 2, "workers": 1, "arms": 4}
    entry = lookup("private-contextual")
    for contexts, factor in (("segments", 1.1), ("random", 2.0)):
        how |= {"contexts": contexts, "statistic": STATISTICS[contexts]}
        honest = simulate(entry, **how)
        false = simulate(entry, poisoned=0.02, **how)
        assert false.regret_mean > factor * honest.regret_mean


@pytest.mark.extended
def test_a_plan_states_the_effect_of_poisoning_and_the_weight_of_a_report() -> None:
    found = plan(
        options=5,
        horizon=5000,
        algorithm="private-contextual",
        trusts=("two-servers",),
        poisoned=0.2,
        runs=2,
    )
    (row,) = found.contextual
    assert (row.trust, row.statistic, row.weight) == ("two-servers", "corners", 1.0)
    assert row.poisoned > 2 * row.honest
    assert row.single is not None
    assert not found.influence
    assert "--arms 5 " in found.costs[0].command


def test_poisoning_with_unknown_means_is_rejected() -> None:
    fields = (Category("device", ("phone", "desktop")),)

    def draw(count: int, rng: np.random.Generator) -> list[dict[str, Any]]:
        return [{"device": one} for one in rng.choice(["phone", "desktop"], count).tolist()]

    world = ContextFunction(fields, draw, lambda *_: 0.25, ("old", "new"))
    with pytest.raises(TacitError, match="it needs known means: leave it out"):
        simulate("private-contextual", world, horizon=2000, runs=1, workers=1, poisoned=0.1)
