"""Published state of the art for a trusted server and pure DP, as reference algorithms."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tacit.algorithms.arms_problem import ArmsProblem
from tacit.algorithms.builders import WORLD, assemble
from tacit.algorithms.lazy_imports import bandits, factories
from tacit.algorithms.registry import algorithm
from tacit.trust import TrustModel

if TYPE_CHECKING:
    from tacit.bandits import Learner
    from tacit.experiment import Experiment

peer = partial(
    algorithm,
    trust=TrustModel.CENTRAL,
    guarantee="(ε, 0)-DP of what the server publishes, in ideal arithmetic",
    problem=ArmsProblem,
    options=(*WORLD, "epsilon", "participations"),
)


@peer("adap-klucb", paper="Azize & Basu 2022")
def adap_klucb(problem: ArmsProblem) -> Experiment:
    """KL-UCB on episodes that double and forget earlier rewards."""
    size = (problem.arms, problem.horizon)
    return _trusted(problem, bandits.AdaPKLUCB(*size, problem.epsilon_per_number))


@peer("lazy-dp-ts", paper="Hu & Hegde 2022")
def lazy_dp_ts(problem: ArmsProblem) -> Experiment:
    """Thompson sampling on batches that double and forget earlier rewards."""
    size, seed = (problem.arms, problem.horizon), problem.learner_seed
    return _trusted(problem, bandits.LazyDPTS(*size, problem.epsilon_per_number, seed=seed))


def _trusted(problem: ArmsProblem, learner: Learner) -> Experiment:
    """Continuous Laplace noise of scale 1/ε on the sum of every batch."""
    return assemble(problem, learner, factories.continuous_laplace, target=problem.privacy.pure)
