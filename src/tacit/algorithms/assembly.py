"""Putting an experiment of arms together: what all named compositions have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tacit.algorithms.rooms import bandits, experiment, mechanism
from tacit.names import name_of

if TYPE_CHECKING:
    from tacit.algorithms.problems import ArmsProblem
    from tacit.bandits import Learner
    from tacit.experiment import Experiment

WORLD = ("arms", "horizon", "anytime", "rewards", "instance", "means")
PEOPLE = ("dropout", "corrupt", "crowd")
GUARDRAIL = ("guardrail", "guardrail_better", "guardrail_margin", "guardrail_means")


def assemble(
    problem: ArmsProblem,
    learner: Learner,
    make: Callable[..., Any],
    *,
    smallest: int = 1,
    **arguments: Any,
) -> Experiment:
    """A learner, and `make(participants, **arguments)` as the protocol of every round.

    What is promised is what a round of the `smallest` size earns; smaller ones are refused, and so
    are others that earn less. A learner that needs a horizon and is not to know it is started anew
    over periods that square.
    """
    guarantee = make(smallest, **arguments).guarantee
    if problem.anytime and learner.needs_horizon:
        options = {k: v for k, v in learner.arguments().items() if k not in ("arms", "horizon")}
        inner = name_of(type(learner))
        learner = bandits.Restarts(learner.arms, learner.horizon, inner, options)
    note = "" if guarantee is not None else "none: the server sees every sum as it is"
    hidden = mechanism.PerRound(make, arguments, guarantee, note, smallest)
    built = experiment.Experiment.of(learner, hidden, problem.names)
    if problem.control_share:
        least = getattr(learner, "least", problem.crowd)
        control = built.options[problem.control]
        built.keep_control(control, problem.control_share, least, explore=True)
    if problem.guardrail is not None:
        built.guard(problem.guardrail, problem.guardrail_better, problem.guardrail_margin)
    return built
