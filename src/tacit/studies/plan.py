"""Experiment planning: the sample size and cost of an experiment under each trust model.

The best learner is simulated on means that the planner expects, until one option is shown to be the
best. A row reports participants and days until nine of ten experiments are decided, participants on
worse options until then, rounds and bits. With a horizon, a row also reports the regret of a run
that serves the whole horizon. Named algorithms of any family are costed the same way, one row each.
An infeasible row states the reason. With corrupted participants, the plan reports their influence
under each trust model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from tacit.algorithms.problems import DEFAULT_DELTA, MOST
from tacit.algorithms.registry import Algorithm, lookup
from tacit.assumptions import BoundedAdversary
from tacit.errors import TacitError
from tacit.privacy import ApproximateDP, Guarantee, PureDP
from tacit.privacy.guarantees import state_arithmetic
from tacit.rounding import no_less
from tacit.sampling.certificates import largest_group
from tacit.simulation.results import NON_PRIVATE, Result
from tacit.simulation.study import RunConfig, simulate
from tacit.studies.influence import (
    ContextualInfluence,
    Influence,
    contextual_influence,
    influence,
)
from tacit.studies.plan_request import (
    ONE_OF_THEM,
    WHAT_IS_TRUSTED,
    ExpectedMeans,
    PlanRequest,
    trust_of,
)
from tacit.terms.aggregation_delta import smallest_masking_delta
from tacit.trust import DEPLOYABLE, DISHONEST, MISSING, TrustModel

SETTLED = 0.1  # of the gap: a run has settled when regret per participant is below it
PILOTS = 8  # pilot runs, to find a sufficient horizon
LONGEST = 4  # pilot horizons, each four times the previous one
LEVEL = 12.0  # approximate level at which a mixture decides between two options; a first guess

NAMES: dict[str, str] = {
    TrustModel.SECURE_AGGREGATION: "secure aggregation: no party sees an answer, if the server "
    "follows the protocol",
    TrustModel.TWO_SERVERS: "two servers",
    TrustModel.SHUFFLER: "a shuffler",
    TrustModel.CENTRAL: "a trusted server",
    TrustModel.LOCAL: "the local model",
}
"""Trust models in a recommendation, the preferred ones first."""

WITH_PROOFS = "two servers with proofs: a report changes a sum by one answer at most"

COMPARED: dict[str, str] = {
    TrustModel.CENTRAL: "a trusted server",
    TrustModel.LOCAL: "local privacy",
}
"""Trust models that a recommendation is compared with."""

OWN_MEANS = "the problem has means of its own, not the expected ones"


@dataclass(frozen=True)
class Cost:
    """The cost of one trust model or algorithm; `infeasible` says why it cannot be run.

    `participants` is the number until nine of ten experiments are decided, dropouts included.
    `worse` is the mean number of them that get a worse option. Both are None where unknown.
    `regret`, `lost_share` and `users_to_settle` describe a run over a whole horizon, if one is
    given. `command` simulates the row. `note` is a caveat.
    """

    trust: str
    trusted: str
    algorithm: str
    family: str
    guarantee: str = ""
    participants: int | None = None
    days: int | None = None
    worse: float | None = None
    rounds: float | None = None
    bits_per_user: float = math.nan
    regret: float | None = None
    regret_sem: float | None = None
    lost_share: float | None = None
    users_to_settle: int | None = None
    command: str = ""
    note: str = ""
    infeasible: str = ""
    stated: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The row as data, with the guarantee as data; None without one."""
        found = asdict(self)
        return found | {"guarantee": found.pop("stated")}


@dataclass(frozen=True)
class Plan:
    """The costs of all trust models, a recommendation and, if requested, the influence of
    poisoning.
    """

    costs: list[Cost]
    recommendation: str
    influence: list[Influence] = field(default_factory=list)
    contextual: list[ContextualInfluence] = field(default_factory=list)


def plan(
    options: int = 2,
    horizon: int | None = None,
    gap: float | None = None,
    epsilon: float = 1.0,
    delta: float | None = None,
    **more: Any,
) -> Plan:
    """Estimate what an experiment costs under each trust model, or with each of several algorithms.

    Parameters
    ----------
    options : int
        Number of options.
    horizon : int, optional
        Number of participants to serve; adds the regret of a run over the whole horizon.
    gap : float, optional
        Absolute difference between the best option and the others; give either `gap` or `lift`.
    epsilon : float
        ε of the guarantee to a participant over all participations.
    delta : float, optional
        δ of the guarantee; by default the algorithm's own, and 1e-6 with secure aggregation.
    **more
        Fields of `ExpectedMeans` (`baseline`, `lift`), `ExpectedParticipants` (`participations`,
        `dropout`, `poisoned`, `rounds`, `per_day`), `PlanRequest` (`algorithms`, `trusts`,
        `control_share`) and `RunConfig` (`runs`, `seed`, `progress`).

    Returns
    -------
    Plan
        One row per trust model or algorithm, and a recommendation.

    Raises
    ------
    TacitError
        If a value is out of range, or if every row is infeasible.

    Examples
    --------
    >>> result = plan(baseline=0.2, lift=0.5, epsilon=1, runs=2)
    >>> [cost.trust for cost in result.costs]
    ['central', 'secure-aggregation', 'two-servers', 'shuffler', 'local']
    """
    return answer(
        PlanRequest.of(
            options=options, horizon=horizon, gap=gap, epsilon=epsilon, delta=delta, **more
        )
    )


def answer(question: PlanRequest) -> Plan:
    """Compute one row per trust model or algorithm, and the recommendation."""
    wanted = [lookup(name) for name in question.algorithms]
    for entry in wanted:
        if entry.featured:
            raise TacitError(
                f"algorithm is {entry.name}, whose cost depends on the features of the options. "
                "Name their table in a definition (options_file) and use tacit experiment check."
            )
    _check_expected(wanted, question.expected)
    by_trust = len(wanted) == 1 and "trust" in wanted[0].options
    costs, errors, influences, measured = [], [], list[Influence](), list[ContextualInfluence]()
    for entry in wanted:
        for trust in question.trusts if by_trust else (None,):
            who = (trust or entry.name, WHAT_IS_TRUSTED[trust] if trust else entry.trust)
            about = (*who, entry.name, entry.family)
            try:
                given = question.given(entry, trust)
                costs.append(Cost(*about, **_cost(entry, given, question)))
                if question.people.poisoned and entry.family == "arms":
                    decided = costs[-1].participants
                    influences += influence(entry, given, question.people.poisoned, decided)
                if question.people.poisoned and entry.family == "contextual":
                    served_all = _served(given, question)
                    how = question.how
                    measured.append(
                        contextual_influence(entry, served_all, question.people.poisoned, how)
                    )
            except TacitError as error:
                errors.append(error)
                costs.append(Cost(*about, infeasible=str(error)))
    if len(errors) == len(costs):
        raise errors[0]
    served = {cost.trust: cost for cost in costs if not cost.infeasible}
    decides = by_trust and wanted[0].family == "arms"
    advice = _by_trust(served, question) if decides else _least_regret(served)
    return Plan(costs, advice, influences, measured)


def _check_expected(wanted: Sequence[Algorithm], expected: ExpectedMeans) -> None:
    """Reject means that no algorithm takes, and algorithms that lack theirs."""
    if any("means" in entry.options for entry in wanted):
        if not expected.means:
            raise TacitError(f"lift and gap are missing: {ONE_OF_THEM}")
    elif expected.stated:
        names = ", ".join(entry.name for entry in wanted)
        raise TacitError(
            f"{expected.stated}: must not be given for {names}, whose problem has means of its "
            "own. Leave it out."
        )


def _cost(entry: Algorithm, settings: dict[str, Any], question: PlanRequest) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if entry.family == "arms" and "control_share" in entry.options:
        found = _until_decided(entry, settings, question)
    if question.people.horizon is not None or not found:
        found = _whole(entry, settings, question) | found
    other = "" if "means" in settings or not question.expected.means else OWN_MEANS
    notes = (
        other,
        _note(settings),
        _tolerating(entry, settings, question) if "worse" in found else "",
    )
    return found | {"note": "; ".join(filter(None, notes))}


def _tolerating(entry: Algorithm, settings: dict[str, Any], question: PlanRequest) -> str:
    """The cost of tolerating a definition's default losses of reports; empty if there is none.

    Rows without `dropout` have noise for one curious participant and nobody missing.
    """
    shared = "trust" in settings and TrustModel(settings["trust"]).shares_noise
    if not shared or "dropout" in settings or "corrupt" not in entry.options:
        return ""
    losses = f"{float(MISSING):.0%} missing and {float(DISHONEST):.0%} dishonest participants"
    lost = {"dropout": float(MISSING), "corrupt": float(DISHONEST)}
    try:
        found = _until_decided(entry, settings | lost, question)["participants"]
    except TacitError:
        return f"{losses}, which definitions tolerate by default, are not tolerated here"
    more = float(1 / (1 - MISSING - DISHONEST) - 1)
    participants = (
        "more participants than were simulated" if found is None else _round_participants(found)
    )
    return (
        f"to tolerate {losses}, as definitions do by default, a full round has {more:.0%} more "
        f"noise variance, and it takes {participants}"
    )


def _until_decided(
    entry: Algorithm, settings: dict[str, Any], question: PlanRequest
) -> dict[str, Any]:
    """Runs that stop at a decision, with a horizon that hardly any of them reaches."""
    how = replace(question.how, until_decided=True)
    options = settings | {"horizon": _long_enough(entry, settings, question)}
    result = simulate(entry, **options, **vars(how))
    participants = result.decided()["participants_to_decide"]
    return {
        **_stated(result, trust_of(entry, settings.get("trust")), question),
        "participants": participants,
        "days": question.people.days(participants),
        "worse": result.regret_mean / question.expected.difference,
        "rounds": result.mean("rounds"),
        "bits_per_user": result.mean("bits_per_user"),
        "command": command(entry.name, options, how, "--until-decided"),
    }


def _stated(result: Result, trust: TrustModel, question: PlanRequest) -> dict[str, Any]:
    """The guarantee of terms: a simulated sum has no δ of masks, and nothing is encrypted."""
    found = result.guarantee
    if found is None:
        return {"guarantee": NON_PRIVATE}
    if trust is TrustModel.SECURE_AGGREGATION:
        found = _with_masks(found, question.total_delta)
    if trust in (TrustModel.SECURE_AGGREGATION, TrustModel.SHUFFLER):
        found = found.assuming(BoundedAdversary())
    return {"guarantee": str(found), "stated": found.to_dict()}


def _with_masks(noise: Guarantee, total: float) -> Guarantee:
    """The guarantee with the δ of terms, or with more where the noise leaves masks too little."""
    masks, least = smallest_masking_delta(noise.participations), noise.approximated
    used = Fraction(0) if isinstance(least, PureDP) else Fraction(least.delta)
    delta = max(total, no_less(used + masks))
    made = ApproximateDP(least.epsilon, delta, **noise.shared_fields)
    return state_arithmetic(made, noise.arithmetic)


def _long_enough(entry: Algorithm, settings: dict[str, Any], question: PlanRequest) -> int:
    """A horizon of at least 1.5 times the slowest of a few pilot runs.

    It is rounded up to 1000 times a power of two, so that rows of equal cost mostly share it.
    """
    few = replace(question.how, runs=min(question.how.runs, PILOTS), until_decided=True)
    horizon = _guess(settings, question.expected)
    for _ in range(LONGEST):
        pilots = simulate(entry, **settings, horizon=horizon, **vars(few))
        if pilots.decided()["decided_part"] == 1 or horizon > MOST / 4:
            break
        horizon *= 4
    slowest = max(run["users"] for run in pilots.runs)
    return min(1000 << max(0, math.ceil(math.log2(1.5 * slowest / 1000))), MOST)


def _note(settings: dict[str, Any]) -> str:
    """The caveat of a row; empty without one."""
    if settings.get("trust") != TrustModel.SHUFFLER or settings.get("delta"):
        return ""
    size = largest_group(settings["epsilon"] / settings.get("participations", 1))
    return (
        f"rounds are cut into groups of {size:,}, the most that are certified at this epsilon; "
        "each has noise of its own; definitions have a delta here, so plan them with "
        f"--delta {DEFAULT_DELTA:g}"
    )


def _guess(settings: dict[str, Any], expected: ExpectedMeans) -> int:
    """First guess of a horizon: twice the number at which equally served options are
    distinguishable.
    """
    rate, arms = expected.means[0], len(expected.means)
    epsilon = settings["epsilon"] / settings.get("participations", 1)
    share = min(settings["control_share"] or 1 / arms, 1 / arms)
    noise = 0.0
    if settings.get("trust") == TrustModel.LOCAL:
        noise = 2 / epsilon**2
    spread = (rate * (1 - rate) + noise) * (1 / share + 1 / (1 - share))
    sampling = 2 * LEVEL * spread / expected.difference**2
    rounds = 2 * math.sqrt(2 * LEVEL) * 3 / (epsilon * expected.difference * share)
    least = 40 * arms / epsilon
    return min(int(2 * max(sampling, 1) + rounds + least) + arms, MOST)


def _served(settings: dict[str, Any], question: PlanRequest) -> dict[str, Any]:
    """The options of a run over the whole horizon."""
    options = {k: v for k, v in settings.items() if k != "control_share"}
    horizon = question.people.horizon
    return options if horizon is None else options | {"horizon": horizon}


def _whole(entry: Algorithm, settings: dict[str, Any], question: PlanRequest) -> dict[str, Any]:
    """Runs over the whole horizon, without a reserved share for the control."""
    how, options = question.how, _served(settings, question)
    result = simulate(entry, **options, **vars(how))
    known: dict[str, Any] = {}
    if entry.family == "arms":
        gap = question.expected.difference
        known["lost_share"] = result.regret_mean / (gap * result.horizon)
        known["users_to_settle"] = _settles(result, gap)
    return {
        **_stated(result, trust_of(entry, settings.get("trust")), question),
        "regret": result.regret_mean,
        "regret_sem": result.regret_sem,
        "rounds": result.mean("rounds"),
        "bits_per_user": result.mean("bits_per_user"),
        "command": command(entry.name, options, how),
        **known,
    }


def command(algorithm: str, options: Mapping[str, Any], config: RunConfig, *flags: str) -> str:
    """The command line that simulates a row.

    >>> command("private-med", {"means": (0.02, 0.022), "horizon": 1000}, RunConfig(3, 7))
    'tacit simulate --algorithm private-med --means 0.02,0.022 --horizon 1000 --runs 3 --seed 7'
    """
    said = [
        f"--{name.replace('_', '-')} {','.join(map(repr, v)) if isinstance(v, tuple) else v}"
        for name, v in options.items()
    ]
    parts = ["tacit simulate --algorithm", algorithm, *said, *flags]
    return " ".join([*parts, f"--runs {config.runs} --seed {config.seed}"])


def _settles(result: Result, gap: float) -> int | None:
    """The first checkpoint after which regret per participant stays below a tenth of the gap."""
    points, regret = result.checkpoints, result.curve()[0]
    slopes = np.diff(regret) / np.maximum(np.diff(points), 1)
    late = np.flatnonzero(slopes >= SETTLED * gap)
    last = int(late[-1]) + 1 if len(late) else 0
    return int(points[last]) if last < len(slopes) else None


def _least_regret(served: dict[str, Cost]) -> str:
    """The algorithm with least regret in each family; regrets of families are not comparable."""
    families: dict[str, list[Cost]] = {}
    for cost in served.values():
        if cost.regret is not None:
            families.setdefault(cost.family, []).append(cost)
    least = {
        name: min(costs, key=lambda cost: cost.regret or 0.0) for name, costs in families.items()
    }
    return " ".join(
        f"Of {family} algorithms, {cost.trust} loses least: {cost.regret:,.0f}."
        for family, cost in least.items()
    )


def _by_trust(served: dict[str, Cost], question: PlanRequest) -> str:
    """Recommend secure aggregation where it is feasible and deployable, else the next trust model;
    compare the central and local models with it. With malicious participants, recommend proofs.
    """
    expected, names = question.expected, NAMES
    if question.people.poisoned:
        others = {name: said for name, said in NAMES.items() if name != TrustModel.TWO_SERVERS}
        names = {TrustModel.TWO_SERVERS: WITH_PROOFS, **others}
    decided = {
        name: served[name].participants
        for name in sorted(names, key=lambda one: one not in DEPLOYABLE)
        if name in served and served[name].participants is not None
    }
    apart = f"{expected.means[0]:g} and {expected.means[-1]:g}"
    if not decided:
        return (
            f"No available number of participants distinguishes rates of {apart} at this "
            "guarantee. Plan for a larger difference, or accept a weaker guarantee."
        )
    first, ours = next(iter(decided.items()))
    days = served[first].days
    waited = "" if days is None else f" ({days:,} day{'s' * (days > 1)})"
    parts = [
        f"Use {names[first]}. Nine of ten experiments distinguish rates of {apart} with "
        f"{_round_participants(ours)}{waited}, of whom "
        f"{_round_participants(served[first].worse)} get a worse option."
    ]
    if first not in DEPLOYABLE:
        parts.append("This version simulates it and does not deploy it.")
    for name, count in decided.items():
        if name in COMPARED and name != first and count and ours:
            ratio = count / ours
            compared = (
                "as many" if 0.8 < ratio < 1.25 else f"{float(f'{ratio:.2g}'):,g} times as many"
            )
            parts.append(f"With {COMPARED[name]} it takes {compared}.")
    return " ".join(parts)


def _round_participants(count: float | None) -> str:
    """Rounded to two significant digits, the precision of the estimate."""
    if not count:
        return "no participants"
    digits = 2 - 1 - math.floor(math.log10(count))
    return f"about {round(count, digits):,.0f} participants"
