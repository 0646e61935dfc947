"""Private phased elimination for options with features (LZJ22 DP-PE) under every trust model.

Rewards are linear in public features of the options, so a thousand options need no more
participants than their features do. Every participant tries one option; each option of a phase is
a round of its own, with the sums of `private-klucb`. Without features every option has its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tacit.algorithms.arms_problem import TRUSTS, ArmsProblem
from tacit.algorithms.builders import PEOPLE, WORLD, assemble
from tacit.algorithms.lazy_imports import linear_options
from tacit.algorithms.private_klucb import TYPICAL, protocols
from tacit.algorithms.registry import algorithm
from tacit.trust import TrustModel

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tacit.experiment import Experiment

FIRST = 20.0  # participants of an option in the first phase, in standard deviations of its noise
LOCAL = 20.0  # the same in the local model, in 1/ε²
PHASES = 8  # at least this many phases as long as the first one fit into the horizon


@dataclass(frozen=True)
class FeaturedProblem(ArmsProblem):
    """A multi-armed bandit problem whose options have features, in `table`."""

    featured: ClassVar[bool] = True


def features_of(problem: ArmsProblem) -> npt.NDArray[np.float64]:
    """The options' features, one row each; without any, every option has one of its own."""
    import numpy as np

    return np.eye(problem.arms) if problem.table is None else np.asarray(problem.table)


@algorithm(
    "private-pe",
    paper="LZJ22",
    trust=TRUSTS,
    guarantee="(ε, 0)-DP, or (ε, δ)-DP with --trust shuffler --delta",
    problem=FeaturedProblem,
    options=(
        *(name for name in WORLD if name != "rewards"),  # a linear instance has bits
        *PEOPLE,
        *("epsilon", "delta", "participations", "trust", "through", "failure_probability"),
    ),
    defaults={"instance": "linear", "failure_probability": 0.049},
)
def private_pe(problem: FeaturedProblem) -> Experiment:
    """Use the protocol of the requested trust model; pure DP unless the shuffler is given a δ."""
    make, smallest, how = protocols(problem)
    table = features_of(problem)
    if problem.privacy.trust == TrustModel.LOCAL:
        usual = LOCAL / problem.epsilon_per_number**2
    else:
        usual = FIRST * math.sqrt(make(TYPICAL, **how).error(TYPICAL).variance)
    most = problem.horizon // (PHASES * min(table.shape[1] + 1, problem.arms))
    learner = linear_options.OptionElimination(
        table,
        problem.horizon,
        first=max(smallest, min(math.ceil(usual), most), 1),
        smallest=max(smallest, 1),
        failure_probability=problem.failure_probability,
    )
    return assemble(problem, learner, make, smallest=smallest, **how)
