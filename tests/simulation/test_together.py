"""Runs of one seed that share the draws of their participants."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit.algorithms import SilosProblem
from tacit.environments.silos import SharedDraws, Synthetic
from tacit.errors import TacitError
from tacit.simulation.driver import Trial
from tacit.simulation.engines import Failure
from tacit.simulation.grid import Study, study_of

SIZE: dict[str, Any] = {"silos": 4, "dimension": 3, "actions": 5, "sync": 10, "horizon": 45}
PRIVATE: dict[str, Any] = {"epsilon": 5.0, "delta": 0.1}


def study(**more: Any) -> Study:
    names = ("ldp-fedlinucb", "secagg-fedlinucb")
    listed = [{"name": name, "lazy": False, **PRIVATE} for name in names]
    listed.append({**listed[0], "constants": "paper", "label": "printed"})
    lazy = {"name": "fedlinucb", "label": "lazy"}
    free = {"name": "fedlinucb", "lazy": False, "label": "free"}
    return study_of({"algorithms": [*listed, free, lazy], "problems": SIZE, "seeds": 2, **more})


def test_runs_sharing_draws_equal_separate_runs() -> None:
    """Not lazy: everything a policy decides depends on every draw before it."""
    one = study()
    bundles = one.bundles(range(one.cells))
    assert sorted(map(len, bundles)) == [1, 1, 4, 4]
    for bundle in bundles:
        rows = dict(one.together(bundle))
        assert rows == {cell: one(cell) for cell in bundle}
    regrets = [json.loads(one(cell))["final_regret"] for cell in bundles[0]]
    assert len(set(regrets)) == 4  # different algorithms


def test_a_failing_trial_does_not_affect_others(monkeypatch: pytest.MonkeyPatch) -> None:
    one = study()
    (bundle, *_) = one.bundles(range(one.cells))
    alone = {cell: one(cell) for cell in bundle}
    stages = Trial.stages

    def failing(self: Trial, seed: int, start: Any) -> Any:
        if self.algorithm == "secagg-fedlinucb":
            raise TacitError("no luck")
        return stages(self, seed, start)

    def lazily(self: Trial, seed: int, start: Any) -> Any:
        return (yield from failing(self, seed, start))

    monkeypatch.setattr(Trial, "stages", lazily)
    found = dict(one.together(bundle))
    failed = [cell for cell, row in found.items() if isinstance(row, Failure)]
    assert [found[cell].reason for cell in failed] == ["TacitError: no luck"]  # type: ignore[union-attr]
    assert {cell: row for cell, row in found.items() if cell not in failed} == {
        cell: row for cell, row in alone.items() if cell not in failed
    }


def test_draws_are_freed_after_every_run_has_read_them() -> None:
    rng = np.random.default_rng(0)
    draws = SharedDraws(Synthetic.draw(2, 3, 4, rng), rng, 2)
    worlds = [draws.reader(place) for place in range(2)]
    for _ in range(5):
        worlds[0].contexts(rng)
        worlds[0].rewards(np.zeros(2), rng)
    assert len(draws._kept) == 5
    for _ in range(5):
        worlds[1].contexts(rng)
        worlds[1].rewards(np.zeros(2), rng)
    assert not draws._kept
    worlds[0].contexts(rng)
    worlds[0].rewards(np.zeros(2), rng)
    draws.leave(1)
    assert not draws._kept
    with pytest.raises(ValueError, match="read-only"):
        worlds[0].contexts(rng)[0, 0, 0] = 1.0


def test_only_problems_with_the_same_participants_share_draws() -> None:
    one = study()
    problem = one.configurations[0].problem
    assert isinstance(problem, SilosProblem)
    assert problem.shared_draws is not None
    assert replace(problem, lazy=True).shared_draws is None  # it may have a schedule of its own
    other = study(problems={**SIZE, "deviation": [0.1, 0.2]})
    assert {len(bundle) for bundle in other.bundles(range(other.cells))} == {1, 4}
