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
from typing import TYPE_CHECKING, Any

from tacit.algorithms.assembly import WORLD, assemble
from tacit.algorithms.problems import ArmsProblem
from tacit.algorithms.registry import algorithm
from tacit.algorithms.rooms import bandits, privacy, pure_shuffle, recipes, split_and_mix

if TYPE_CHECKING:
    from tacit.bandits import ForgettingElimination
    from tacit.experiment import Experiment

cz23 = partial(algorithm, paper="CZ23", problem=ArmsProblem)
PRINTED = "the printed noise is set for everyone present"
COMMON = (*WORLD, "epsilon", "growth", "confidence", "setting")


def _elimination(
    problem: ArmsProblem,
    sigma: float = 0.0,
    h: float = 0.0,
    *,
    per_user: bool = False,
    smallest: int = 1,
) -> ForgettingElimination:
    start = 1
    while math.ceil(problem.growth**start) < smallest:
        start += 1
    return bandits.ForgettingElimination(
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


@cz23(
    "dist-dp-se",
    trust="secure aggregation",
    promise="(ε, 0)-DP of the opened sums",
    options=(*COMMON, "dropout"),
)
def dist_dp_se(problem: ArmsProblem) -> Experiment:
    """Secure aggregation with Pólya shares (Theorem 1)."""
    e = problem.epsilon
    learner, promise = _elimination(problem, math.sqrt(2) / e, 1 / e), privacy.PureDP(e)
    if problem.setting == "paper":
        problem.refuse_dropout(PRINTED)
        how = {"epsilon": e, "confidence": problem.confidence}
        return assemble(problem, learner, recipes.polya_paper, promise, **how)
    how = {"epsilon": e, "binary": problem.binary, "dropout": problem.dropout}
    return assemble(problem, learner, recipes.polya_tight, promise, **how)


@cz23(
    "dist-rdp-se",
    trust="secure aggregation",
    promise="Rényi curve (paper) or (ε, δ)-DP (tight) of the opened sums",
    options=(*COMMON, "delta", "scale", "dropout"),
)
def dist_rdp_se(problem: ArmsProblem) -> Experiment:
    """Secure aggregation with Skellam shares (Theorem 2).

    `paper` takes ε as a Rényi scale, `tight` as the ε of (ε, δ)-DP.
    """
    e, s = problem.epsilon, problem.scale
    how: dict[str, Any]
    learner = _elimination(problem, 2 / e + math.sqrt(2) / (s * e), 1 / (s * e))
    if problem.setting == "paper":
        problem.refuse_dropout(PRINTED)
        smallest = recipes.printed_precision(math.ceil(problem.growth), e, s)
        promise = recipes.skellam_promise(e, smallest)
        how = {"epsilon": e, "scale": s, "confidence": problem.confidence}
        return assemble(problem, learner, recipes.skellam_paper, promise, **how)
    how = {"target": problem.target, "binary": problem.binary, "dropout": problem.dropout}
    return assemble(problem, learner, recipes.skellam_tight, problem.target, **how)


@cz23(
    "dist-cdp-se",
    trust="secure aggregation",
    promise="½ε²-zCDP (paper) or (ε, δ)-DP (tight) of the opened sums",
    options=(*COMMON, "delta", "scale"),
)
def dist_cdp_se(problem: ArmsProblem) -> Experiment:
    """Secure aggregation with discrete Gaussian shares (Theorem 4).

    `paper` takes ε as √(2ρ), `tight` as the ε of (ε, δ)-DP.
    """
    e, s = problem.epsilon, problem.scale
    how: dict[str, Any]
    learner = _elimination(problem, math.sqrt(2) / e, 0.0)
    problem.refuse_dropout(
        "a sum of discrete Gaussian shares is accounted for with everyone present"
    )
    if problem.setting == "paper":
        promise = recipes.gaussian_promise(problem.horizon, e, s)
        how = {"epsilon": e, "scale": s, "confidence": problem.confidence}
        return assemble(problem, learner, recipes.gaussian_paper, promise, **how)
    how = {"target": problem.target, "binary": problem.binary}
    return assemble(problem, learner, recipes.gaussian_tight, problem.target, **how)


@cz23(
    "cdp-se",
    trust="trusted server",
    promise="(ε, 0)-DP of what the server publishes",
    options=COMMON,
)
def cdp_se(problem: ArmsProblem) -> Experiment:
    """A trusted server adds discrete Laplace noise (Theorem 5)."""
    e = problem.epsilon
    confidence = problem.confidence if problem.setting == "paper" else None
    learner = _elimination(problem, math.sqrt(2) / e, 1 / e)
    promise = privacy.PureDP(e, view=privacy.View.SERVER_OUTPUT)
    how = {"epsilon": e, "binary": problem.binary, "confidence": confidence}
    return assemble(problem, learner, recipes.central_laplace, promise, **how)


@cz23(
    "ldp-se",
    trust="nobody",
    promise="(ε, 0)-DP of each message",
    options=COMMON,
)
def ldp_se(problem: ArmsProblem) -> Experiment:
    """Every participant adds discrete Laplace noise of their own (Theorem 6); the printed radius
    has √n of it, with constants of our own.

    The paper leaves the constant of Lemma 5 open: Laplace noise of scale b is sub-exponential with
    (4b², √2 b), so n of them stay within √8 b √(n ln(2/p)) + 2√2 b ln(2/p).
    """
    e = problem.epsilon
    learner = _elimination(problem, math.sqrt(8) / e, 2 * math.sqrt(2) / e, per_user=True)
    promise = privacy.PureDP(e, view=privacy.View.MESSAGE)
    how = {"epsilon": e, "binary": problem.binary, "paper": problem.setting == "paper"}
    return assemble(problem, learner, recipes.local_laplace, promise, **how)


@cz23(
    "split-dp-se",
    trust="shuffler",
    promise="(ε, (1 + e^ε) 2^-60)-DP of the shuffled shares",
    options=COMMON,
)
def split_dp_se(problem: ArmsProblem) -> Experiment:
    """Pólya shares, split and mixed by a shuffler (App. G.2), from rounds of 19 on."""
    e = problem.epsilon
    problem.refuse_dropout("shares are split for everyone present")
    smallest = split_and_mix.FEWEST_USERS
    learner = _elimination(problem, math.sqrt(2) / e, 1 / e, smallest=smallest)
    confidence = problem.confidence if problem.setting == "paper" else None
    how = {"epsilon": e, "binary": problem.binary, "confidence": confidence}
    promise = recipes.split_and_mix(smallest, **how).guarantee
    return assemble(problem, learner, recipes.split_and_mix, promise, **how)


@cz23(
    "shuffle-dp-se",
    trust="shuffler",
    promise="(ε, 0)-DP of the shuffled bits, certified for ε of 0.5, 1 or 2 (the next below)",
    options=COMMON,
)
def shuffle_dp_se(problem: ArmsProblem) -> Experiment:
    """Certified groups behind a shuffler (Theorem 3 with the construction of docs/design/pure.md);
    real rewards are rounded to bits.

    There is no `paper` protocol: the one that the theorem cites needs about n^2.5 messages per
    participant (CORRECTIONS 9). The `paper` setting changes the radius only.
    """
    e = problem.epsilon
    problem.refuse_dropout("certificates are for complete groups only")
    promise = recipes.pure_shuffle(pure_shuffle.EVERY_GROUP, epsilon=e).guarantee
    learner = _elimination(problem, math.sqrt(2) / e, 1 / e)
    return assemble(problem, learner, recipes.pure_shuffle, promise, epsilon=e)


@algorithm(
    "dp-se",
    paper="Sajed & Sheffet 2019",
    trust="trusted server",
    promise="(ε, 0)-DP of what the server publishes",
    problem=ArmsProblem,
    options=(*WORLD, "epsilon", "confidence"),
)
def dp_se(problem: ArmsProblem) -> Experiment:
    """A trusted server, epochs made for the noise (Sajed & Sheffet 2019)."""
    e = problem.epsilon
    learner = bandits.DPSE(problem.arms, problem.horizon, e, problem.confidence)
    promise = privacy.PureDP(e, view=privacy.View.SERVER_OUTPUT)
    return assemble(problem, learner, recipes.continuous_laplace, promise, epsilon=e)
