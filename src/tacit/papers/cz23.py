"""Distributed DP in multi-armed bandits (Chowdhury & Zhou, ICLR 2023): batched successive
elimination over private sums.

Six named algorithms that differ only in the protocol, and DP-SE, the paper's central baseline
(Sajed & Sheffet 2019). `paper` settings are those of the figures: confidence 0.1, batches 4^b, s =
10, the printed radii and moduli. Shared draws between arms, as in the authors' DP-SE, are not
reproduced: every arm gets its own noise.
"""

from __future__ import annotations

import math
from functools import partial

from tacit.bandits import DPSE, ForgettingElimination
from tacit.papers import batches
from tacit.papers.arms import BUILDERS, Assembly, Problem
from tacit.papers.catalogue import Entry, register
from tacit.privacy import ApproximateDP, PureDP, View
from tacit.protocols.pure import EVERY_GROUP
from tacit.protocols.splitting import FEWEST_USERS

PAPER = "CZ23"
PRINTED = "the printed noise is set for everyone present"


def _elimination(
    problem: Problem,
    sigma: float = 0.0,
    h: float = 0.0,
    *,
    per_user: bool = False,
    smallest: int = 1,
) -> ForgettingElimination:
    start = 1
    while math.ceil(problem.growth**start) < smallest:
        start += 1
    return ForgettingElimination(
        problem.arms,
        problem.horizon,
        growth=problem.growth,
        confidence=problem.confidence,
        radius=problem.setting,
        sigma=sigma,
        h=h,
        per_user=per_user,
        start=start,
    )


def dist_dp_se(problem: Problem) -> Assembly:
    """Secure aggregation with Pólya shares (Theorem 1)."""
    e = problem.epsilon
    learner = _elimination(problem, math.sqrt(2) / e, 1 / e)
    if problem.setting == "paper":
        problem.refuse_dropout(PRINTED)
        return Assembly(
            learner,
            partial(batches.polya_paper, epsilon=e, confidence=problem.confidence),
            PureDP(e),
        )
    return Assembly(
        learner,
        partial(batches.polya_tight, epsilon=e, binary=problem.binary, dropout=problem.dropout),
        PureDP(e),
    )


def dist_rdp_se(problem: Problem) -> Assembly:
    """Secure aggregation with Skellam shares (Theorem 2).

    `paper` takes ε as a Rényi scale, `tight` as the ε of (ε, δ)-DP.
    """
    e, s = problem.epsilon, problem.scale
    learner = _elimination(problem, 2 / e + math.sqrt(2) / (s * e), 1 / (s * e))
    if problem.setting == "paper":
        problem.refuse_dropout(PRINTED)
        smallest = batches.printed_precision(math.ceil(problem.growth), e, s)
        protocols = partial(
            batches.skellam_paper, epsilon=e, scale=s, confidence=problem.confidence
        )
        return Assembly(learner, protocols, batches.skellam_promise(e, smallest))
    target = ApproximateDP(e, problem.delta_or_default)
    return Assembly(
        learner,
        partial(
            batches.skellam_tight, target=target, binary=problem.binary, dropout=problem.dropout
        ),
        target,
    )


def dist_cdp_se(problem: Problem) -> Assembly:
    """Secure aggregation with discrete Gaussian shares (Theorem 4).

    `paper` takes ε as √(2ρ), `tight` as the ε of (ε, δ)-DP.
    """
    e, s = problem.epsilon, problem.scale
    learner = _elimination(problem, math.sqrt(2) / e, 0.0)
    problem.refuse_dropout(
        "a sum of discrete Gaussian shares is accounted for with everyone present"
    )
    if problem.setting == "paper":
        protocols = partial(
            batches.gaussian_paper, epsilon=e, scale=s, confidence=problem.confidence
        )
        return Assembly(learner, protocols, batches.gaussian_promise(problem.horizon, e, s))
    target = ApproximateDP(e, problem.delta_or_default)
    return Assembly(
        learner, partial(batches.gaussian_tight, target=target, binary=problem.binary), target
    )


def cdp_se(problem: Problem) -> Assembly:
    """A trusted server adds discrete Laplace noise (Theorem 5)."""
    e = problem.epsilon
    confidence = problem.confidence if problem.setting == "paper" else None
    protocols = partial(
        batches.central_laplace, epsilon=e, binary=problem.binary, confidence=confidence
    )
    return Assembly(
        _elimination(problem, math.sqrt(2) / e, 1 / e),
        protocols,
        PureDP(e, view=View.SERVER_OUTPUT),
    )


def ldp_se(problem: Problem) -> Assembly:
    """Every user adds discrete Laplace noise of their own (Theorem 6); the printed radius has √n of
    it, with constants of our own.

    The paper leaves the constant of Lemma 5 open: Laplace noise of scale b is sub-exponential with
    (4b², √2 b), so n of them stay within √8 b √(n ln(2/p)) + 2√2 b ln(2/p).
    """
    e = problem.epsilon
    learner = _elimination(problem, math.sqrt(8) / e, 2 * math.sqrt(2) / e, per_user=True)
    protocols = partial(
        batches.local_laplace, epsilon=e, binary=problem.binary, paper=problem.setting == "paper"
    )
    return Assembly(learner, protocols, PureDP(e, view=View.MESSAGE))


def split_dp_se(problem: Problem) -> Assembly:
    """Pólya shares, split and mixed by a shuffler (App. G.2), from batches of 19 users on."""
    e = problem.epsilon
    problem.refuse_dropout("shares are split for everyone present")
    learner = _elimination(problem, math.sqrt(2) / e, 1 / e, smallest=FEWEST_USERS)
    confidence = problem.confidence if problem.setting == "paper" else None
    protocols = partial(
        batches.split_and_mix, epsilon=e, binary=problem.binary, confidence=confidence
    )
    return Assembly(learner, protocols, protocols(FEWEST_USERS).guarantee)


def shuffle_dp_se(problem: Problem) -> Assembly:
    """Certified groups behind a shuffler (Theorem 3 with the construction of ALGORITHMS E); real
    rewards are rounded to bits.

    There is no `paper` protocol: the one that the theorem cites needs about n^2.5 messages per user
    (CORRECTIONS 9). The `paper` setting changes the radius only.
    """
    e = problem.epsilon
    problem.refuse_dropout("certificates are for complete groups only")
    protocols = partial(batches.pure_shuffle, epsilon=e)
    return Assembly(
        _elimination(problem, math.sqrt(2) / e, 1 / e), protocols, protocols(EVERY_GROUP).guarantee
    )


def dp_se(problem: Problem) -> Assembly:
    """A trusted server, epochs made for the noise (Sajed & Sheffet 2019)."""
    learner = DPSE(problem.arms, problem.horizon, problem.epsilon, problem.confidence)
    return Assembly(
        learner,
        partial(batches.continuous_laplace, epsilon=problem.epsilon),
        PureDP(problem.epsilon, view=View.SERVER_OUTPUT),
    )


BUILDERS.update(
    {
        "dist-dp-se": dist_dp_se,
        "dist-rdp-se": dist_rdp_se,
        "dist-cdp-se": dist_cdp_se,
        "cdp-se": cdp_se,
        "ldp-se": ldp_se,
        "shuffle-dp-se": shuffle_dp_se,
        "split-dp-se": split_dp_se,
        "dp-se": dp_se,
    }
)
register(
    Entry("dist-dp-se", "arms", PAPER, "secure aggregation", "(ε, 0)-DP of the opened sums"),
    Entry(
        "dist-rdp-se",
        "arms",
        PAPER,
        "secure aggregation",
        "Rényi curve (paper) or (ε, δ)-DP (tight) of the opened sums",
    ),
    Entry(
        "dist-cdp-se",
        "arms",
        PAPER,
        "secure aggregation",
        "½ε²-zCDP (paper) or (ε, δ)-DP (tight) of the opened sums",
    ),
    Entry("cdp-se", "arms", PAPER, "trusted server", "(ε, 0)-DP of what the server publishes"),
    Entry("ldp-se", "arms", PAPER, "nobody", "(ε, 0)-DP of each message"),
    Entry(
        "shuffle-dp-se",
        "arms",
        PAPER,
        "shuffler",
        "(ε, 0)-DP of the shuffled bits, certified for ε of 0.5, 1 or 2 (the next below)",
    ),
    Entry(
        "split-dp-se", "arms", PAPER, "shuffler", "(ε, (1 + e^ε) 2^-60)-DP of the shuffled shares"
    ),
    Entry(
        "dp-se",
        "arms",
        "Sajed & Sheffet 2019",
        "trusted server",
        "(ε, 0)-DP of what the server publishes",
    ),
)
