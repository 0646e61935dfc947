"""Batched private KL-UCB under every trust model; not from the papers.

One arm at a time gets a round of fresh participants. Its index is the large-deviation bound of the
estimate itself, sampling and privacy noise together. Messages and guarantee are those of successive
elimination, with several times less regret.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tacit.algorithms.arms_problem import TRUSTS, ArmsProblem
from tacit.algorithms.builders import GUARDRAIL, PEOPLE, WORLD, assemble
from tacit.algorithms.lazy_imports import bandits, factories
from tacit.algorithms.registry import algorithm
from tacit.names import name_of
from tacit.trust import TrustModel

if TYPE_CHECKING:
    from tacit.experiment import Experiment

TYPICAL = 4096  # participants of the round at which a protocol's noise is evaluated in advance
OPTIONS = (
    *WORLD,
    *PEOPLE,
    *("epsilon", "delta", "participations", "trust", "through", "index", "growth"),
    "control_share",
    *GUARDRAIL,
)


@algorithm(
    "private-klucb",
    paper="tacit",
    trust=TRUSTS,
    guarantee="(ε, 0)-DP, or (ε, δ)-DP with --trust shuffler --delta",
    problem=ArmsProblem,
    options=OPTIONS,
    defaults={"growth": 1.4},
)
def private_klucb(problem: ArmsProblem) -> Experiment:
    """Use the protocol of the requested trust model; pure DP unless the shuffler is given a δ."""
    make, smallest, how = protocols(problem)
    error = make(TYPICAL, **how).error(TYPICAL)
    local = problem.privacy.trust == TrustModel.LOCAL
    learner = bandits.PrivateKLUCB(
        problem.arms,
        problem.horizon,
        noise_variance=0.0 if local else error.variance,
        index=problem.index,
        first_batch=math.ceil(20 / problem.epsilon_per_number**2) if local else None,
        growth=problem.growth,
        smallest=smallest,
    )
    return assemble(problem, learner, make, smallest=smallest, **how)


def protocols(problem: ArmsProblem) -> tuple[Any, int, dict[str, Any]]:
    """The protocol factory of a trust model, the minimum batch size, and the factory's arguments.

    With a guardrail both metrics are covered by one guarantee.
    """
    make, smallest, how = sums(problem)
    if problem.metrics == 1:
        return make, smallest, how
    return factories.joint, smallest, how | {"metrics": problem.metrics, "each": name_of(make)}


def sums(problem: ArmsProblem) -> tuple[Any, int, dict[str, Any]]:
    """The factory of a sum of one metric, its smallest round and its further arguments."""
    privacy = problem.privacy
    how: dict[str, Any] = {"target": privacy.pure, "binary": problem.binary}
    match privacy.trust:
        case TrustModel.CENTRAL:
            privacy.reject_losses("a trusted server adds all of the noise itself", "corrupt")
            return factories.central_laplace, 1, how | {"failure_probability": None}
        case TrustModel.TWO_SERVERS:
            privacy.reject_losses("each server adds all of the noise itself", "corrupt")
            verified = privacy.through == "verified"
            make = factories.verified_laplace if verified else factories.two_servers_laplace
            return make, privacy.smallest, how | privacy.fixed_levels
        case TrustModel.LOCAL if problem.binary:
            privacy.reject_losses("every message is private by itself", "corrupt")
            return factories.response, privacy.smallest, {"target": privacy.pure}
        case TrustModel.LOCAL:
            privacy.reject_losses("every message is private by itself", "corrupt")
            how = {"target": privacy.pure, "paper": False, **privacy.fixed_levels}
            return factories.local_laplace, privacy.smallest, how
        case TrustModel.SHUFFLER if not privacy.delta:
            privacy.reject_losses("certificates are for complete groups only")
            return (factories.pure_shuffle, privacy.min_batch_size, {"target": privacy.pure})
        case TrustModel.SHUFFLER:
            how = how | {"target": privacy.target} | privacy.losses | privacy.fixed_levels
            return factories.shuffled_tight, privacy.min_batch_size, how
    return (
        factories.polya_tight,
        privacy.min_batch_size,
        how | privacy.losses | privacy.fixed_levels,
    )
