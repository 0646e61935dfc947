"""LZJ22, differentially private linear bandits with partial distributed feedback, as compositions.

DP-DPE and DP-PE over the trust models none, central, local, shuffler and (not in the paper) secure
aggregation. `tight` is the default: exact calibration at every ε, directional widths. `paper` has
the printed noise and widths, and states their true guarantee. Instances are random: seed r gives
every algorithm the same actions and the same θ*. The figure is in `tacit.papers.figures.lzj22`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tacit import assumptions
from tacit.algorithms.lazy_imports import (
    experiment,
    factories,
    mechanism,
    phased,
    population,
    privacy,
    vector_noise,
)
from tacit.algorithms.linear_problem import LinearProblem
from tacit.algorithms.registry import SetByPilots, algorithm
from tacit.errors import TacitError
from tacit.trust import TrustModel

if TYPE_CHECKING:
    from tacit.bandits.linear.phased import DistributedElimination, SingleElimination
    from tacit.experiment import Experiment
    from tacit.privacy import PrivacyStatus

WORLD = ("dimension", "actions", "covering", "horizon", "bound", "failure_probability", "constants")
CLIENTS = ("alpha", "client_std", "population")
FITTED = ("reports", "norm")
FEWEST = {TrustModel.SHUFFLER: 19}  # fewest clients of a phase for split-and-mix of parameters
PRIVATE = ("epsilon", "delta", "participations")
GUARANTEES = {
    TrustModel.NONE: "nothing",
    TrustModel.CENTRAL: "(ε, δ) or pure DP of what the server publishes",
    TrustModel.LOCAL: "(ε, δ) or pure DP of each client's message",
    TrustModel.SHUFFLER: "(ε, δ)-DP of the shuffled bits, jointly over coordinates",
    TrustModel.SECURE_AGGREGATION: "(ε, δ) or pure DP of the released sums, jointly over "
    "coordinates",
}


def _enter(name: str, trust: TrustModel, distributed: bool, **defaults: Any) -> None:
    """Register one of the paper's algorithms: a learner and a trust model."""
    private = trust != TrustModel.NONE
    options = (*WORLD, *(CLIENTS if distributed else ()), *(PRIVATE if private else ()))
    options += FITTED if distributed and private else ()
    options += ("noise",) if trust == TrustModel.SECURE_AGGREGATION else ()

    def build(problem: LinearProblem) -> Experiment:
        return compose(replace(problem, distributed=distributed), trust)

    algorithm(
        name,
        paper="LZJ22",
        trust=trust,
        guarantee=GUARANTEES[trust],
        problem=LinearProblem,
        options=(*options, *defaults),
        defaults={"distributed": distributed, **defaults},
    )(build)


for _trust, _prefix in (
    (TrustModel.NONE, ""),
    (TrustModel.CENTRAL, "cdp-"),
    (TrustModel.LOCAL, "ldp-"),
    (TrustModel.SHUFFLER, "sdp-"),
    (TrustModel.SECURE_AGGREGATION, "secagg-"),
):
    _enter(f"{_prefix}dpe", _trust, True)
    _enter(f"{_prefix}pe", _trust, False)
_enter("dpe-fixed", TrustModel.NONE, True, fixed_clients=SetByPilots("dpe", "reals"))


def compose(problem: LinearProblem, trust: TrustModel) -> Experiment:
    """Build phased elimination over the problem's actions, with the protocol of every phase."""
    if problem.constants == "paper" and trust == TrustModel.SECURE_AGGREGATION:
        raise TacitError(
            "constants is paper; secure aggregation is not in the paper: use tight constants for "
            "secagg-dpe and secagg-pe"
        )
    if problem.table is None:
        raise TacitError("table is missing; a linear bandit needs its actions: give a table")
    how = {
        "trust": trust,
        "bound": problem.bound,
        "target": problem.privacy.target,
        "noise": factories.PRINTED if problem.constants == "paper" else problem.privacy.noise,
        "client_std": problem.client_std,
    }
    make = factories.vector_of if problem.distributed else factories.sums_of
    hidden = mechanism.PerRound(make, how, status(problem, trust)).in_arithmetic_of_rounds()
    return experiment.Experiment.of(learner_for(problem, trust), hidden)


def learner_for(
    problem: LinearProblem, trust: TrustModel
) -> DistributedElimination | SingleElimination:
    """Build a fresh learner for the problem."""
    widths = phased.Widths(problem.bound, problem.failure_probability, problem.constants)
    common = (problem.table, problem.horizon, widths)
    if not problem.distributed:
        return phased.SingleElimination(*common, per_person=trust == TrustModel.LOCAL)
    fitted = phased.AVERAGES
    if problem.fits and trust != TrustModel.NONE:
        each = vector_noise.per_participation(problem.privacy.target)
        fitted = phased.FittedReports(
            parameters_from=FEWEST.get(trust, 1),
            norm=problem.privacy.norm,
            noise_ratio=vector_noise.gaussian_ratio(each),
            noise_alone=trust == TrustModel.LOCAL,
        )
    sampling = phased.ClientSampling(problem.alpha, problem.client_std, problem.fixed_clients)
    learner = phased.DistributedElimination(*common, sampling=sampling, fitted=fitted)
    population.check_schedule(learner.scheduled_clients(), problem.population)
    return learner


def status(problem: LinearProblem, trust: TrustModel) -> PrivacyStatus:
    """The guarantee where it is known in advance.

    In `paper` constants only the target is known, because the printed noise depends on the
    phases.
    """
    if trust == TrustModel.NONE:
        return privacy.NonPrivate()
    secret = assumptions.Secret.ONE_REWARD
    if problem.distributed:
        kinds = assumptions.Secret
        secret = kinds.FITTED_PARAMETER if problem.fits else kinds.AVERAGE_REWARDS
    target = problem.privacy.target.assuming(assumptions.Protects(secret))
    if problem.constants == "paper":
        return privacy.KnownPerRound(target)
    view, scope = privacy.View, assumptions.Scope
    views = {
        TrustModel.CENTRAL: view.SERVER_OUTPUT,
        TrustModel.LOCAL: view.MESSAGE,
        TrustModel.SHUFFLER: view.SHUFFLED,
    }
    stated = target.with_view(view=views.get(trust, view.RELEASED_SUM))
    stated = stated.assuming(*privacy.in_distinct_rounds(target))
    if trust not in (TrustModel.CENTRAL, TrustModel.LOCAL):
        whom = scope.ROUND if problem.distributed else scope.GROUP
        stated = stated.assuming(*privacy.ThreatModel().assumptions(whom))
    return privacy.Guaranteed(stated)
