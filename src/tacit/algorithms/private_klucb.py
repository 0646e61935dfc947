"""Beyond the papers: batched private KL-UCB under every trust model.

One arm at a time gets a round of fresh participants; its index is the large-deviation bound of the
estimate itself, sampling and privacy noise together. Same messages and same guarantee as successive
elimination, several times less regret.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tacit.algorithms.assembly import WORLD, assemble
from tacit.algorithms.problems import ArmsProblem
from tacit.algorithms.registry import algorithm
from tacit.algorithms.rooms import bandits, privacy, pure_shuffle, recipes

if TYPE_CHECKING:
    from tacit.experiment import Experiment
    from tacit.privacy import Guarantee

TYPICAL = 4096  # participants of the round by which the noise of a protocol is judged in advance


@algorithm(
    "private-klucb",
    paper="tacit",
    trust="any: --trust",
    promise="(ε, 0)-DP, or (ε, δ)-DP with --trust shuffle --delta",
    problem=ArmsProblem,
    options=(*WORLD, "epsilon", "delta", "trust", "index", "growth", "dropout", "control_share"),
    defaults={"growth": 1.4},
)
def private_klucb(problem: ArmsProblem) -> Experiment:
    """The protocol of the trust model asked for; a pure guarantee unless the shuffler is given
    a δ.
    """
    make, guarantee, how = protocols(problem)
    error = make(TYPICAL, **how).error(TYPICAL)
    local = problem.trust == "local"
    learner = bandits.PrivateKLUCB(
        problem.arms,
        problem.horizon,
        noise_variance=0.0 if local else error.variance,
        index=problem.index,
        first_batch=math.ceil(20 / problem.epsilon**2) if local else None,
        growth=problem.growth,
    )
    return assemble(problem, learner, make, guarantee, **how)


def protocols(problem: ArmsProblem) -> tuple[Any, Guarantee | None, dict[str, Any]]:
    """The recipe of a round under the trust model asked for, its promise, and its arguments."""
    e, bits = problem.epsilon, {"binary": problem.binary}
    how: dict[str, Any]
    view = privacy.View
    match problem.trust:
        case "central":
            how = {"epsilon": e, **bits, "confidence": None}
            return recipes.central_laplace, privacy.PureDP(e, view=view.SERVER_OUTPUT), how
        case "two-servers":
            how = {"epsilon": e, **bits}
            promise = recipes.two_servers_laplace(1, **how).guarantee
            return recipes.two_servers_laplace, promise, how
        case "local":
            how = {"epsilon": e, **bits, "paper": False}
            return recipes.local_laplace, privacy.PureDP(e, view=view.MESSAGE), how
        case "shuffle":
            if not problem.delta:
                problem.refuse_dropout("certificates are for complete groups only")
                promise = recipes.pure_shuffle(pure_shuffle.EVERY_GROUP, epsilon=e).guarantee
                return recipes.pure_shuffle, promise, {"epsilon": e}
            target = problem.target.at(view=view.SHUFFLED)
            how = {"target": target, **bits, "dropout": problem.dropout}
            return recipes.shuffled_tight, target, how
    how = {"epsilon": e, **bits, "dropout": problem.dropout}
    return recipes.polya_tight, privacy.PureDP(e), how
