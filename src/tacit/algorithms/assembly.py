"""Putting an experiment of arms together: what all named compositions have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tacit.algorithms.rooms import bandits, experiment, mechanism, privacy
from tacit.names import name_of

if TYPE_CHECKING:
    from tacit.algorithms.problems import ArmsProblem
    from tacit.bandits import Learner
    from tacit.experiment import Experiment
    from tacit.privacy import Guarantee

WORLD = ("arms", "horizon", "anytime", "rewards", "instance", "means")


CROWD = 64  # participants of a control's round, where the learner does not say


def assemble(
    problem: ArmsProblem,
    learner: Learner,
    make: Callable[..., Any],
    guarantee: Guarantee | None,
    **arguments: Any,
) -> Experiment:
    """A learner, and `make(participants, **arguments)` as the protocol of every round.

    With a dropout the guarantee says what it then rests on. A learner that needs a horizon and is
    not to know it is started anew over periods that square.
    """
    if problem.dropout and guarantee is not None:
        condition = privacy.reporting_condition(problem.dropout)
        guarantee = replace(guarantee, condition=condition)
    if problem.anytime and learner.needs_horizon:
        options = {k: v for k, v in learner.arguments().items() if k not in ("arms", "horizon")}
        inner = name_of(type(learner))
        learner = bandits.Restarts(learner.arms, learner.horizon, inner, options)
    note = "" if guarantee is not None else "none: the server sees every sum as it is"
    hidden = mechanism.PerRound(make, arguments, guarantee, note)
    least = getattr(learner, "least", CROWD)
    built = experiment.Experiment.of(learner, hidden, problem.names)
    if problem.control_share:
        built.keep_control(built.options[0], problem.control_share, least, explore=True)
    return built
