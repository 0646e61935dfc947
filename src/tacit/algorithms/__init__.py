"""Named algorithms: the registry, the problems they solve, and the papers' compositions."""

from tacit.algorithms.problems import ArmsProblem, LinearProblem, Problem, SilosProblem
from tacit.algorithms.registry import Algorithm, algorithm, algorithms, lookup, option

__all__ = [
    "Algorithm",
    "ArmsProblem",
    "LinearProblem",
    "Problem",
    "SilosProblem",
    "algorithm",
    "algorithms",
    "lookup",
    "option",
]
