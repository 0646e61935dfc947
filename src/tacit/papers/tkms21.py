"""DP multi-armed bandits in the shuffle model (Tenenbaum, Kaplan, Mansour & Stemmer, NeurIPS 2021).

SDP-AE gives every viable arm batches of a fixed size, VB-SDP-AE batches that double; sums
accumulate. `paper` sends the printed number of noise bits (ε < 1, rewards 0 or 1), `tight` the
least that suffice, at any ε and for rewards in [0, 1].
"""

from __future__ import annotations

import math
from functools import lru_cache, partial

from tacit.bandits import CumulativeElimination
from tacit.checks import TacitError
from tacit.papers import batches
from tacit.papers.arms import BUILDERS, Assembly, Problem, Setting
from tacit.papers.catalogue import Entry, register
from tacit.privacy import ApproximateDP, View, calibrate

PAPER = "TKMS21"


def sdp_ae(problem: Problem) -> Assembly:
    """Fixed batches of ⌈σ²⌉ users, σ² the variance of a batch's noise (Cor. 3.2 as corrected)."""
    return _arm_elimination(problem, fixed=True)


def vb_sdp_ae(problem: Problem) -> Assembly:
    """Batches of 2^t users."""
    return _arm_elimination(problem, fixed=False)


def _arm_elimination(problem: Problem, *, fixed: bool) -> Assembly:
    target = ApproximateDP(problem.epsilon, problem.delta_or_default, view=View.SHUFFLED)
    paper = problem.setting == "paper"
    if paper:
        problem.refuse_dropout("the printed noise is set for everyone present")
    if paper and not problem.binary:
        raise TacitError(
            "TKMS21's protocol is for rewards 0 or 1: use --rewards bernoulli, or --setting tight, "
            "which rounds to levels"
        )
    if paper and problem.epsilon >= 1:
        raise TacitError(
            f"epsilon is {problem.epsilon:g}; TKMS21's noise is proven for epsilon < 1: use "
            "--setting tight, exact at every epsilon"
        )
    variance = _noise_variance(target, problem.setting)
    learner = CumulativeElimination(
        problem.arms,
        problem.horizon,
        batch=math.ceil(variance) if fixed else None,
        confidence=problem.confidence,
        radius=problem.setting,
        sigma=math.sqrt(variance),
    )
    if paper:
        return Assembly(learner, partial(batches.shuffled_paper, target=target), target)
    return Assembly(
        learner,
        partial(
            batches.shuffled_tight, target=target, binary=problem.binary, dropout=problem.dropout
        ),
        target,
    )


@lru_cache(maxsize=256)
def _noise_variance(target: ApproximateDP, method: Setting) -> float:
    """The variance of the noise of a batch; every run asks for it again."""
    return float(calibrate("binomial", 1, target, method=method).law.variance)


BUILDERS.update({"sdp-ae": sdp_ae, "vb-sdp-ae": vb_sdp_ae})
register(
    Entry("sdp-ae", "arms", PAPER, "shuffler", "(ε, δ)-DP of the shuffled bits"),
    Entry("vb-sdp-ae", "arms", PAPER, "shuffler", "(ε, δ)-DP of the shuffled bits"),
)
