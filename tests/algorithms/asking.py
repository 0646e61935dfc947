"""Problems of arms as an algorithm takes them, its own defaults included."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tacit.algorithms import ArmsProblem, lookup
from tacit.experiment import Experiment


def problem_for(name: str, *, binary: bool = False, **options: Any) -> ArmsProblem:
    """With those of the options that this algorithm has."""
    entry = lookup(name)
    problem = entry.ask({key: value for key, value in options.items() if key in entry.options})
    assert isinstance(problem, ArmsProblem)
    return replace(problem, binary=binary)


def built(name: str, problem: ArmsProblem) -> Experiment:
    return lookup(name).build(problem)
