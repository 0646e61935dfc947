"""Explore-then-commit over randomized response."""

from outside.learner import Commit
from outside.protocol import response
from tacit import ArmsProblem, Experiment, Guaranteed, PerRound, TrustModel, algorithm

USED = ("arms", "horizon", "epsilon", "rewards", "instance", "means")
ABOUT = {"paper": "outside", "trust": TrustModel.LOCAL, "guarantee": "(ε, 0)-DP of each message"}


@algorithm("outside-commit", problem=ArmsProblem, options=USED, **ABOUT)
def commit(problem: ArmsProblem) -> Experiment:
    privacy = Guaranteed(response(1, problem.privacy.epsilon).guarantee)
    learner = Commit(problem.arms, problem.horizon, max(1, problem.horizon // (4 * problem.arms)))
    return Experiment.of(learner, PerRound(response, {"epsilon": problem.privacy.epsilon}, privacy))
