"""Named algorithms: the registry, the problems they solve, and the papers' compositions."""

import sys
from types import ModuleType

from tacit.algorithms.arms_problem import ArmsProblem
from tacit.algorithms.contextual_problem import ContextualProblem
from tacit.algorithms.linear_problem import LinearProblem
from tacit.algorithms.problems import Problem, option
from tacit.algorithms.registry import Algorithm, algorithm, algorithms, lookup
from tacit.algorithms.silos_problem import SilosProblem


class _Package(ModuleType):
    """Makes the package callable: `tacit.algorithms()` lists the algorithms."""

    def __call__(self) -> dict[str, Algorithm]:
        return algorithms()


sys.modules[__name__].__class__ = _Package

__all__ = [
    "Algorithm",
    "ArmsProblem",
    "ContextualProblem",
    "LinearProblem",
    "Problem",
    "SilosProblem",
    "algorithm",
    "algorithms",
    "lookup",
    "option",
]
