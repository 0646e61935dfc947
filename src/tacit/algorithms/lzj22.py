"""LZJ22, differentially private linear bandits with partial distributed feedback: its algorithms as
compositions.

DP-DPE and DP-PE over the trust models none, central, local, shuffle and (not in the paper) secure
aggregation. `tight` is the default: exact calibration at every ε, directional widths. `paper` has
the printed noise and widths, and says what they truly guarantee. Instances are random: seed r gives
every algorithm the same actions and the same θ*. The figure is in `tacit.figures.lzj22`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from tacit.algorithms.problems import LinearProblem
from tacit.algorithms.registry import algorithm
from tacit.algorithms.rooms import (
    experiment,
    mechanism,
    phased,
    population,
    privacy,
    recipes,
    vector_noise,
    vectors,
)
from tacit.checks import TacitError

if TYPE_CHECKING:
    from tacit.bandits.linear.phased import DistributedElimination, SingleElimination
    from tacit.experiment import Experiment
    from tacit.privacy import Guarantee

Trust = Literal["none", "central", "local", "shuffle", "secagg"]
WORLD = ("dimension", "actions", "covering", "horizon", "bound", "confidence", "setting")
CLIENTS = ("alpha", "client_std", "population")
FITTED = ("reports", "norm")
FEWEST = {"shuffle": 19}  # clients of a phase whose parameters can be split for a shuffler
PRIVATE = ("epsilon", "delta", "participations")
TRUSTED = {
    "none": ("everyone with everything", "nothing"),
    "central": ("the server, to add noise", "(ε, δ) or pure DP of what the server publishes"),
    "local": ("nobody", "(ε, δ) or pure DP of each client's message"),
    "shuffle": (
        "the shuffler, to permute",
        "(ε, δ)-DP of the shuffled bits, jointly over coordinates",
    ),
    "secagg": (
        "secure aggregation, to open sums only",
        "(ε, δ) or pure DP of the opened sums, jointly over coordinates",
    ),
}


def _enter(name: str, trust: Trust, distributed: bool, *more: str) -> None:
    """One of the paper's algorithms: which learner, which trust model."""
    trusted, promise = TRUSTED[trust]
    private = trust != "none"
    options = (*WORLD, *(CLIENTS if distributed else ()), *(PRIVATE if private else ()))
    options += FITTED if distributed and private else ()

    def build(problem: LinearProblem) -> Experiment:
        return compose(replace(problem, distributed=distributed), trust)

    algorithm(
        name,
        paper="LZJ22",
        trust=trusted,
        promise=promise,
        problem=LinearProblem,
        options=(*options, *(("noise",) if trust == "secagg" else ()), *more),
        defaults={"distributed": distributed},
    )(build)


for _trust, _prefix in (
    ("none", ""),
    ("central", "cdp-"),
    ("local", "ldp-"),
    ("shuffle", "sdp-"),
    ("secagg", "secagg-"),
):
    _enter(f"{_prefix}dpe", _trust, True)  # type: ignore[arg-type]
    _enter(f"{_prefix}pe", _trust, False)  # type: ignore[arg-type]
_enter("dpe-fixed", "none", True, "fixed_clients")


def compose(problem: LinearProblem, trust: Trust) -> Experiment:
    """Phased elimination over the actions of the problem, and the protocol of every phase."""
    if problem.setting == "paper" and trust == "secagg":
        raise TacitError(
            "secure aggregation is not in the paper: use the tight setting for secagg-dpe and "
            "secagg-pe"
        )
    if problem.table is None:
        raise TacitError("a linear bandit chooses among actions: give a table of them")
    how = {
        "trust": trust,
        "bound": problem.bound,
        "target": problem.target,
        "setting": problem.setting,
        "noise": problem.noise,
        "client_std": problem.client_std,
    }
    make = recipes.vector_of if problem.distributed else recipes.sums_of
    guarantee, note = promised(problem, trust)
    hidden = mechanism.PerRound(make, how, guarantee, note)
    return experiment.Experiment.of(learner_for(problem, trust), hidden)


def learner_for(problem: LinearProblem, trust: Trust) -> DistributedElimination | SingleElimination:
    """A fresh learner."""
    size = (problem.table, problem.horizon)
    common: dict[str, Any] = {
        "bound": problem.bound,
        "confidence": problem.confidence,
        "setting": problem.setting,
    }
    if not problem.distributed:
        return phased.SingleElimination(*size, **common, per_person=trust == "local")
    if problem.fits and trust != "none":
        each = vector_noise.each_time(problem.target)
        common |= {
            "parameters_from": FEWEST.get(trust, 1),
            "norm": problem.norm,
            "noise_ratio": vector_noise.gaussian_ratio(each),
            "noise_alone": trust == "local",
        }
    learner = phased.DistributedElimination(
        *size,
        **common,
        alpha=problem.alpha,
        client_std=problem.client_std,
        fixed_clients=problem.fixed_clients,
    )
    population.check_schedule(learner.scheduled_clients(), problem.population)
    return learner


FITTED_SECRET = "all that a participant saw: the parameter fitted to it, and whatever made it"


def promised(problem: LinearProblem, trust: Trust) -> tuple[Guarantee | None, str]:
    """The guarantee where it is known beforehand, and what is to be read with it: the secret, and
    in the paper's setting also what was asked for.
    """
    if trust == "none":
        return None, "none: the server sees every report"
    paper, target = problem.setting == "paper", problem.target
    secret = "a person's one reward"
    if problem.distributed:
        secret = FITTED_SECRET if problem.fits else vectors.SECRET
    note = f"the secret is {secret}" + (f"; asked for: {target.short}" if paper else "")
    if paper:
        return None, note  # what the printed noise gives depends on the phases
    view = privacy.View
    views = {"central": view.SERVER_OUTPUT, "local": view.MESSAGE, "shuffle": view.SHUFFLED}
    shared = () if trust in ("central", "local") else (privacy.ALL_BUT_ONE,)
    return target.at(view=views.get(trust, view.OPENED_SUM)).given(*shared), note
