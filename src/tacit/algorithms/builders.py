"""Putting an experiment of arms together: what all named compositions have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tacit.algorithms.lazy_imports import bandits, experiment, mechanism, privacy
from tacit.names import name_of

if TYPE_CHECKING:
    from tacit.algorithms.problems import ArmsProblem
    from tacit.bandits import Learner
    from tacit.experiment import Experiment

WORLD = ("arms", "horizon", "anytime", "rewards", "instance", "means")
PEOPLE = ("dropout", "corrupt", "min_batch_size")
GUARDRAIL = ("guardrail", "guardrail_better", "guardrail_margin", "guardrail_means")


def assemble(
    problem: ArmsProblem,
    learner: Learner,
    make: Callable[..., Any],
    *,
    smallest: int = 1,
    sizes: Iterable[int] = (),
    **arguments: Any,
) -> Experiment:
    """A learner, and `make(participants, **arguments)` as the protocol of every round.

    The guarantee of the run is the weakest of all `sizes` of rounds that the learner is known to
    propose, of the `smallest` size by default; smaller rounds are rejected, and so are others that
    earn less. A learner that needs a horizon and is not to know it is started anew
    over periods that square.
    """
    tried = dict.fromkeys((smallest, *sizes))
    guarantee = privacy.weakest([make(size, **arguments).guarantee for size in tried])
    if problem.anytime and learner.needs_horizon:
        options = {k: v for k, v in learner.arguments().items() if k not in ("arms", "horizon")}
        inner = name_of(type(learner))
        learner = bandits.Restarts(learner.arms, learner.horizon, inner, options)
    hidden = mechanism.PerRound(make, arguments, privacy.status_of(guarantee), smallest)
    built = experiment.Experiment.of(learner, hidden, problem.names)
    if problem.control_share:
        least = getattr(learner, "least", problem.min_batch_size)
        control = built.options[problem.control]
        built.keep_control(control, problem.control_share, least, explore=True)
    if problem.guardrail is not None:
        built.guard(problem.guardrail, problem.guardrail_better, problem.guardrail_margin)
    return built
