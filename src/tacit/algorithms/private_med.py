"""Private minimum empirical divergence (MED) under every trust model; not from the papers.

Every round serves several options in parallel, so that compared options were tried at the same
time. A run takes some twenty to thirty rounds. Messages and guarantee are those of `private-klucb`,
with less regret. `tacit.bandits.arms.med` states which parts are heuristic.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tacit.algorithms.arms_problem import TRUSTS, ArmsProblem
from tacit.algorithms.builders import assemble
from tacit.algorithms.lazy_imports import bandits
from tacit.algorithms.private_klucb import OPTIONS, TYPICAL, protocols
from tacit.algorithms.registry import algorithm
from tacit.trust import TrustModel

if TYPE_CHECKING:
    from tacit.experiment import Experiment

FIRST, LEAST = 20.0, 10.0  # participants of a batch, in standard deviations of its noise
LOCAL = 20.0  # participants of a first batch in the local model, in 1/ε²


@algorithm(
    "private-med",
    paper="tacit",
    trust=TRUSTS,
    guarantee="(ε, 0)-DP, or (ε, δ)-DP with --trust shuffler --delta",
    problem=ArmsProblem,
    options=(*OPTIONS, "rounds"),
    defaults={"index": "variance", "growth": 1.4, "rounds": 32},
)
def private_med(problem: ArmsProblem) -> Experiment:
    """Use the protocol of the requested trust model; pure DP unless the shuffler is given a δ."""
    make, smallest, how = protocols(problem)
    if problem.privacy.trust == TrustModel.LOCAL:
        usual = LOCAL / problem.epsilon_per_number**2
    else:
        usual = FIRST * math.sqrt(make(TYPICAL, **how).error(TYPICAL).variance)
    learner = bandits.PrivateMED(
        problem.arms,
        problem.horizon,
        first=max(smallest, min(math.ceil(usual), problem.horizon // (2 * problem.arms)), 1),
        least=max(smallest, math.ceil(usual * LEAST / FIRST)),
        index=problem.index,
        growth=problem.growth,
        rounds=None if problem.anytime else problem.rounds,
        seed=problem.learner_seed,
    )
    return assemble(problem, learner, make, smallest=smallest, least=learner.least, **how)
