"""Non-private baselines: textbook learners that see every exact sum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tacit.algorithms.arms_problem import ArmsProblem
from tacit.algorithms.builders import WORLD, assemble
from tacit.algorithms.lazy_imports import bandits, factories
from tacit.algorithms.registry import algorithm
from tacit.trust import TrustModel

if TYPE_CHECKING:
    from tacit.experiment import Experiment

OPEN: dict[str, Any] = {"trust": TrustModel.NONE, "guarantee": "none", "problem": ArmsProblem}


@algorithm("ucb1", paper="Auer, Cesa-Bianchi & Fischer 2002", options=WORLD, **OPEN)
def ucb1(problem: ArmsProblem) -> Experiment:
    """UCB1."""
    learner = bandits.UCB1(problem.arms, problem.horizon)
    return assemble(problem, learner, factories.exact, binary=problem.binary)


@algorithm("klucb", paper="Garivier & Cappé 2011", options=WORLD, **OPEN)
def klucb(problem: ArmsProblem) -> Experiment:
    """KL-UCB."""
    learner = bandits.KLUCB(problem.arms, problem.horizon)
    return assemble(problem, learner, factories.exact, binary=problem.binary)


@algorithm("thompson", paper="Thompson 1933", options=WORLD, **OPEN)
def thompson(problem: ArmsProblem) -> Experiment:
    """Thompson sampling."""
    learner = bandits.Thompson(problem.arms, problem.horizon, seed=problem.learner_seed)
    return assemble(problem, learner, factories.exact, binary=problem.binary)


@algorithm(
    "successive-elimination",
    paper="Even-Dar, Mannor & Mansour 2006",
    options=(*WORLD, "failure_probability"),
    **OPEN,
)
def successive_elimination(problem: ArmsProblem) -> Experiment:
    """Successive elimination."""
    size = (problem.arms, problem.horizon)
    learner = bandits.SuccessiveElimination(*size, problem.failure_probability)
    return assemble(problem, learner, factories.exact, binary=problem.binary)
