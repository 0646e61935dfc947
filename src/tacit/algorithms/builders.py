"""Assembly of multi-armed bandit experiments, shared by all named algorithms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tacit.algorithms.lazy_imports import bandits, experiment, mechanism, privacy
from tacit.names import name_of

if TYPE_CHECKING:
    from tacit.algorithms.arms_problem import ArmsProblem
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
    least: int | None = None,
    **arguments: Any,
) -> Experiment:
    """Build an experiment of a learner and of `make(participants, **arguments)` as round protocol.

    The guarantee of the run is the weakest over the `smallest` round and all `sizes` of rounds that
    the learner is known to propose. Smaller rounds and rounds with a weaker guarantee are rejected.
    A control's additional rounds have `least` participants, by default the minimum batch size. With
    `anytime`, a learner that needs a horizon is restarted over periods of squared length.
    """
    tried = dict.fromkeys((smallest, *sizes))
    guarantee = privacy.weakest([make(size, **arguments).guarantee for size in tried])
    if problem.anytime and learner.needs_horizon:
        options = {k: v for k, v in learner.settings().items() if k not in ("arms", "horizon")}
        inner = name_of(type(learner))
        learner = bandits.Restarts(learner.arms, learner.horizon, inner, options)
    hidden = mechanism.PerRound(make, arguments, privacy.status_of(guarantee), smallest)
    built = experiment.Experiment.of(learner, hidden, problem.names)
    if problem.control_share:
        few = problem.privacy.min_batch_size
        control = built.options[problem.control]
        built.keep_control(control, problem.control_share, least or few, explore=True)
    if problem.guardrail is not None:
        built.guard(problem.guardrail, problem.guardrail_better, problem.guardrail_margin)
    return built
