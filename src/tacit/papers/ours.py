"""Beyond the papers: batched private KL-UCB under every trust model, and the references without
privacy.

One arm at a time gets a batch of fresh users; its index is the large-deviation bound of the
estimate itself, sampling and privacy noise together. Same messages and same guarantee as successive
elimination, several times less regret.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from tacit.bandits import KLUCB, UCB1, Learner, PrivateKLUCB, SuccessiveElimination, Thompson
from tacit.papers import batches
from tacit.papers.arms import BUILDERS, Assembly, Problem
from tacit.papers.catalogue import Entry, register
from tacit.privacy import ApproximateDP, Guarantee, PureDP, View
from tacit.protocols.contract import SumProtocol
from tacit.protocols.pure import EVERY_GROUP

TYPICAL = 4096  # users of the batch by which the noise of a protocol is judged in advance


def private_klucb(problem: Problem) -> Assembly:
    """The protocol of the trust model asked for; a pure guarantee unless the shuffler is
    given a δ.
    """
    protocols, guarantee = _protocols(problem)
    error = protocols(TYPICAL).error(TYPICAL)
    local = problem.trust == "local"
    learner = PrivateKLUCB(
        problem.arms,
        problem.horizon,
        noise_variance=0.0 if local else error.variance,
        index=problem.index,
        first_batch=math.ceil(20 / problem.epsilon**2) if local else None,
    )
    return Assembly(learner, protocols, guarantee)


def _protocols(problem: Problem) -> tuple[Callable[[int], SumProtocol], Guarantee]:
    e, binary = problem.epsilon, problem.binary
    match problem.trust:
        case "central":
            return partial(
                batches.central_laplace, epsilon=e, binary=binary, confidence=None
            ), PureDP(e, view=View.SERVER_OUTPUT)
        case "local":
            return partial(batches.local_laplace, epsilon=e, binary=binary, paper=False), PureDP(
                e, view=View.MESSAGE
            )
        case "shuffle":
            if not problem.delta:
                problem.refuse_dropout("certificates are for complete groups only")
                return partial(batches.pure_shuffle, epsilon=e), batches.pure_shuffle(
                    EVERY_GROUP, epsilon=e
                ).guarantee
            target = ApproximateDP(e, problem.delta, view=View.SHUFFLED)
            return partial(
                batches.shuffled_tight, target=target, binary=binary, dropout=problem.dropout
            ), target
    return partial(batches.polya_tight, epsilon=e, binary=binary, dropout=problem.dropout), PureDP(
        e
    )


def _reference(learner: Callable[[Problem], Learner]) -> Callable[[Problem], Assembly]:
    def build(problem: Problem) -> Assembly:
        return Assembly(learner(problem), partial(batches.exact, binary=problem.binary), None)

    return build


BUILDERS.update(
    {
        "private-klucb": private_klucb,
        "ucb1": _reference(lambda problem: UCB1(problem.arms, problem.horizon)),
        "klucb": _reference(lambda problem: KLUCB(problem.arms, problem.horizon)),
        "thompson": _reference(
            lambda problem: Thompson(problem.arms, problem.horizon, seed=problem.learner_seed)
        ),
        "successive-elimination": _reference(
            lambda problem: SuccessiveElimination(problem.arms, problem.horizon, problem.confidence)
        ),
    }
)
register(
    Entry(
        "private-klucb",
        "arms",
        "tacit",
        "any: --trust",
        "(ε, 0)-DP, or (ε, δ)-DP with --trust shuffle --delta",
    ),
    Entry("ucb1", "arms", "Auer, Cesa-Bianchi & Fischer 2002", "server sees all", "none"),
    Entry("klucb", "arms", "Garivier & Cappé 2011", "server sees all", "none"),
    Entry("thompson", "arms", "Thompson 1933", "server sees all", "none"),
    Entry(
        "successive-elimination",
        "arms",
        "Even-Dar, Mannor & Mansour 2006",
        "server sees all",
        "none",
    ),
)
