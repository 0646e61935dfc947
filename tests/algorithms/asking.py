"""Options and problems as an algorithm receives them, with its own defaults."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tacit.algorithms import ArmsProblem, lookup
from tacit.experiment import Experiment


def options_of(name: str, **options: Any) -> dict[str, Any]:
    """Those of the options that this algorithm has."""
    return {key: value for key, value in options.items() if key in lookup(name).options}


def problem_for(name: str, **options: Any) -> ArmsProblem:
    """A problem of arms; `binary` tells whether rewards are bits."""
    problem = lookup(name).make_problem(options_of(name, **options))
    assert isinstance(problem, ArmsProblem)
    return replace(problem, binary=options.get("binary", False))


def built(name: str, problem: ArmsProblem) -> Experiment:
    return lookup(name).build(problem)
