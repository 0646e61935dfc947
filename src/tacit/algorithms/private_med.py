"""Beyond the papers: private minimum empirical divergence under every trust model.

Every round serves several options side by side, so that what is compared was tried at the same
time, and a run takes some twenty to thirty rounds. Same messages and same guarantee as
`private-klucb`, less regret; what of it is heuristic says `tacit.bandits.arms.med`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tacit.algorithms.builders import assemble
from tacit.algorithms.lazy_imports import bandits
from tacit.algorithms.private_klucb import OPTIONS, TYPICAL, protocols
from tacit.algorithms.problems import TRUSTS, ArmsProblem
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
    promise="(ε, 0)-DP, or (ε, δ)-DP with --trust shuffler --delta",
    problem=ArmsProblem,
    options=(*OPTIONS, "rounds"),
    defaults={"index": "variance", "growth": 1.4, "rounds": 32},
)
def private_med(problem: ArmsProblem) -> Experiment:
    """The protocol of the trust model asked for; a pure guarantee unless the shuffler is given
    a δ.
    """
    make, smallest, how = protocols(problem)
    if problem.trust == TrustModel.LOCAL:
        usual = LOCAL / problem.each**2
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
    return assemble(problem, learner, make, smallest=smallest, **how)
