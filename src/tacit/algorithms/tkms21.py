"""TKMS21, DP multi-armed bandits in the shuffle model: SDP-AE and VB-SDP-AE.

Tenenbaum, Kaplan, Mansour & Stemmer, NeurIPS 2021. SDP-AE gives every viable arm batches of a fixed
size, VB-SDP-AE batches that double; sums accumulate. `paper` sends the printed number of noise bits
(ε < 1, rewards 0 or 1), `tight` the least that suffice, at any ε and for rewards in [0, 1].
"""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from tacit.algorithms.arms_problem import ArmsProblem
from tacit.algorithms.builders import PEOPLE, WORLD, assemble
from tacit.algorithms.lazy_imports import bandits, factories, privacy
from tacit.algorithms.registry import algorithm
from tacit.errors import TacitError
from tacit.trust import TrustModel

if TYPE_CHECKING:
    from tacit.algorithms.problems import Constants
    from tacit.experiment import Experiment
    from tacit.privacy import ApproximateDP

OPTIONS = (
    *WORLD,
    *PEOPLE,
    "epsilon",
    "delta",
    "participations",
    "failure_probability",
    "constants",
)
NARROW = (
    "the printed radius is kept, whose noise part is up to √2 too narrow in batches far above "
    "96 ln(2/δ)/ε² (correction 27): the best option can be dropped more often than the "
    "failure probability says; --constants tight has a radius that holds"
)
tkms21 = partial(
    algorithm,
    paper="TKMS21",
    trust=TrustModel.SHUFFLER,
    guarantee="(ε, δ)-DP of the shuffled bits",
    problem=ArmsProblem,
    options=OPTIONS,
)


@tkms21("sdp-ae")
def sdp_ae(problem: ArmsProblem) -> Experiment:
    """Fixed batches of ⌈σ²⌉ participants, σ² a batch's noise variance (Cor. 3.2 as corrected)."""
    return _arm_elimination(problem, fixed=True)


@tkms21("vb-sdp-ae", cautions={"paper": NARROW})
def vb_sdp_ae(problem: ArmsProblem) -> Experiment:
    """Batches of 2^t participants."""
    return _arm_elimination(problem, fixed=False)


def _arm_elimination(problem: ArmsProblem, *, fixed: bool) -> Experiment:
    """Compose arm elimination with shuffled bits."""
    target, paper = problem.privacy.target, problem.constants == "paper"
    if paper:
        problem.privacy.reject_losses("the printed noise is set for everyone present")
    if paper and not problem.binary:
        raise TacitError(
            "TKMS21's protocol is for rewards 0 or 1: use --rewards bernoulli, or "
            "--constants tight, which rounds to levels"
        )
    if paper and problem.privacy.epsilon >= 1:
        raise TacitError(
            f"epsilon is {problem.privacy.epsilon:g}; TKMS21's noise is proven for epsilon < 1: "
            "use --constants tight, exact at every epsilon"
        )
    variance = _noise_variance(target, problem.constants)
    smallest = 2 if paper else problem.privacy.min_batch_size
    batch = max(smallest, math.ceil(variance)) if fixed else None
    learner = bandits.CumulativeElimination(
        problem.arms,
        problem.horizon,
        batch=batch,
        failure_probability=problem.failure_probability,
        constants=problem.constants,
        sigma=math.sqrt(variance),
        start=max(1, math.ceil(math.log2(smallest))),
    )
    if paper:
        smallest = batch or smallest
        how: dict[str, Any] = {"target": target, "fewest": smallest}
        sizes = [] if fixed else _doubling_sizes(learner.start, problem.horizon)
        make = factories.shuffled_paper
        return assemble(problem, learner, make, smallest=smallest, sizes=sizes, **how)
    how = {"target": target, "binary": problem.binary, **problem.privacy.losses}
    how |= problem.privacy.fixed_levels
    return assemble(problem, learner, factories.shuffled_tight, smallest=smallest, **how)


def _doubling_sizes(start: int, horizon: int) -> list[int]:
    """Every doubling batch size within the horizon, as printed noise depends on it."""
    return [1 << power for power in range(start, horizon.bit_length()) if 1 << power <= horizon]


@lru_cache(maxsize=256)
def _noise_variance(target: ApproximateDP, constants: Constants) -> float:
    """The noise variance of a batch; cached, as every run needs it."""
    return float(
        privacy.calibrate("binomial", 1, target, constants=constants).distribution.variance
    )
