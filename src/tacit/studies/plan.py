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
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit.algorithms.problems import MOST
from tacit.algorithms.registry import Algorithm, lookup
from tacit.errors import TacitError, integer, positive, probability
from tacit.privacy.calibration import LARGEST_EPSILON
from tacit.sampling.certificates import largest_group
from tacit.simulation.results import Result
from tacit.simulation.study import RunConfig, simulate
from tacit.studies.influence import (
    TRIED,
    ContextualInfluence,
    Influence,
    contextual_influence,
    influence,
    reached,
    right_winners,
)
from tacit.studies.influence import draw as draw_right_winners
from tacit.trust import DEPLOYABLE, DISHONEST, MISSING, TrustModel

SETTLED = 0.1  # of the gap: a run has settled when regret per participant is below it
SHARED = 0.8  # of all participants: split evenly until an option is shown to be worse
MOST_OPTIONS = 100
RUNS = 60  # per row
PILOTS = 8  # pilot runs, to find a sufficient horizon
LONGEST = 4  # pilot horizons, each four times the previous one
LEVEL = 12.0  # approximate level at which a mixture decides between two options; a first guess

WHAT_IS_TRUSTED: dict[str, str] = {
    TrustModel.CENTRAL: "the server sees every answer and is trusted to release noisy sums only",
    TrustModel.SECURE_AGGREGATION: "no party sees an answer; secure aggregation releases noisy "
    "sums only",
    TrustModel.TWO_SERVERS: "no party sees an answer unless both servers collude; each adds its "
    "own noise",
    TrustModel.SHUFFLER: "a shuffler that does not collude with the server hides who sent which "
    "message",
    TrustModel.LOCAL: "no party is trusted: every message is private by itself",
}
NAMES: dict[str, str] = {
    TrustModel.SECURE_AGGREGATION: "secure aggregation: no party is trusted with answers",
    TrustModel.TWO_SERVERS: "two servers",
    TrustModel.SHUFFLER: "a shuffler",
    TrustModel.CENTRAL: "a trusted server",
    TrustModel.LOCAL: "the local model",
}
"""Trust models in a recommendation, the preferred ones first."""

COMPARED: dict[str, str] = {
    TrustModel.CENTRAL: "a trusted server",
    TrustModel.LOCAL: "local privacy",
}
"""Trust models that a recommendation is compared with."""


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


@dataclass(frozen=True)
class Expected:
    """Expected means: every option has the baseline rate but one, which is better.

    It is better by a lift (relative) or a gap (absolute). Without a baseline, the means are
    symmetric around one half.
    """

    options: int = 2
    baseline: float | None = None
    lift: float | None = None
    gap: float | None = None
    means: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        arms = integer("options", self.options, at_least=2)
        if arms > MOST_OPTIONS:
            raise TacitError(f"options is {arms:,}: must be at most {MOST_OPTIONS}.")
        if (self.lift is None) == (self.gap is None):
            both = f"lift is {self.lift} and gap is {self.gap}"
            given = "lift and gap are missing" if self.lift is None else both
            raise TacitError(
                f"{given}: must be one of them. Say how much better the best option is, such as "
                "--lift 0.2 for 20%."
            )
        if self.gap is not None:
            remedy = "how much better the best option is, in success probability, such as 0.05"
            probability("gap", self.gap, remedy)
        if self.lift is not None:
            positive("lift", self.lift, "how much better the best option is, such as 0.1 for 10%")
            if self.baseline is None:
                raise TacitError(
                    f"lift is {self.lift:g}, relative to a baseline. Give the baseline."
                )
        if self.baseline is not None:
            remedy = "the success probability of the options today, such as 0.02"
            probability("baseline", self.baseline, remedy)
        low = 0.5 - (self.gap or 0) / 2 if self.baseline is None else float(self.baseline)
        best = low + (low * self.lift if self.lift is not None else (self.gap or 0))
        if best > 1:
            raise TacitError(
                f"the best option has mean {best:g}: must be at most 1. Use a smaller lift or gap."
            )
        object.__setattr__(self, "means", (*[low] * (arms - 1), best))

    @property
    def difference(self) -> float:
        """The gap between the best option and the others."""
        return self.means[-1] - self.means[0]


@dataclass(frozen=True)
class People:
    """The participants: number per day, participations of each, dropouts, corrupted ones, most
    rounds.
    """

    participations: int = 1
    dropout: float = 0.0
    poisoned: float = 0.0
    rounds: int | None = None
    per_day: int | None = None
    horizon: int | None = None

    def __post_init__(self) -> None:
        remedy = "the fraction of a round that may drop out, such as 0.1"
        probability("dropout", self.dropout, remedy, zero=True)
        remedy = "the fraction of poisoned reports, such as 0.01"
        probability("poisoned", self.poisoned, remedy, zero=True)
        for name, value in vars(self).items():
            if name not in ("dropout", "poisoned") and value is not None:
                found = integer(name, value, at_least=1)
                if found > MOST:
                    raise TacitError(f"{name} is {found:.4g}: must be at most {MOST:.0e}.")
                object.__setattr__(self, name, found)

    def days(self, participants: int | None) -> int | None:
        """Days until this many participants have arrived."""
        known = participants is not None and self.per_day is not None
        return math.ceil((participants or 0) / (self.per_day or 1)) if known else None


@dataclass(frozen=True)
class PlanRequest:
    """The input of a plan: expected means, participants, guarantee, algorithms and execution.

    `trusts` are the trust models to compare, if there is a single algorithm. `control_share` is the
    share of participants that get the control.
    """

    expected: Expected
    people: People
    epsilon: float = 1.0
    delta: float | None = None
    algorithms: tuple[str, ...] = ("private-med",)
    control_share: float | None = None
    trusts: tuple[str, ...] = tuple(str(trust) for trust in WHAT_IS_TRUSTED)
    how: RunConfig = field(default_factory=lambda: RunConfig(RUNS))

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon, "a guarantee needs epsilon > 0")
        if self.epsilon > LARGEST_EPSILON:
            raise TacitError(
                f"epsilon is {self.epsilon:g}: must be at most {LARGEST_EPSILON}. A larger one "
                "protects nothing."
            )
        if self.control_share is not None:
            remedy = "the fraction of participants that get the control, such as 0.2"
            probability("control_share", self.control_share, remedy, zero=True)

    @classmethod
    def of(cls, **asked: Any) -> PlanRequest:
        """Build a request from the fields of all parts, by name; `algorithm` stands for one of
        `algorithms`.
        """
        own = ("epsilon", "delta", "control_share", "trusts")
        parts: dict[str, dict[str, Any]] = {}
        kinds = {"expected": Expected, "people": People, "how": RunConfig}
        for part, kind in kinds.items():
            names = [entry.name for entry in fields(kind) if entry.init]
            parts[part] = {name: asked.pop(name) for name in names if name in asked}
        chosen = tuple(asked.pop("algorithms", ()))
        one = asked.pop("algorithm", "private-med")
        mine = {name: asked.pop(name) for name in own if name in asked}
        if asked:
            raise TacitError(f"a plan has no option {', '.join(asked)}. See tacit plan --help.")
        expected, people = Expected(**parts["expected"]), People(**parts["people"])
        how = RunConfig(**({"runs": RUNS} | parts["how"]))
        return cls(expected, people, algorithms=chosen or (one,), how=how, **mine)

    def given(self, entry: Algorithm, trust: str | None) -> dict[str, Any]:
        """The requested options that an algorithm has."""
        share, options = self.control_share, self.expected.options
        asked = {
            "means": self.expected.means,
            "epsilon": self.epsilon,
            "participations": self.people.participations,
            "delta": self.delta,
            "dropout": self.people.dropout or None,
            "rounds": self.people.rounds,
            "control_share": SHARED / options if share is None else share,
            "trust": trust,
        }
        if entry.family == "contextual":
            asked["arms"] = options
        return {k: v for k, v in asked.items() if v is not None and k in entry.options}


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
        δ of the guarantee; by default the algorithm's own.
    **more
        Fields of `Expected` (`baseline`, `lift`), `People` (`participations`, `dropout`,
        `poisoned`, `rounds`, `per_day`), `PlanRequest` (`algorithms`, `trusts`, `control_share`)
        and `RunConfig` (`runs`, `seed`, `progress`).

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
    by_trust = len(wanted) == 1 and "trust" in wanted[0].options
    costs, errors, influences, measured = [], [], list[Influence](), list[ContextualInfluence]()
    for entry in wanted:
        for trust in question.trusts if by_trust else (None,):
            who = (trust or entry.name, WHAT_IS_TRUSTED[trust] if trust else entry.trust)
            about = (*who, entry.name, entry.family)
            given = question.given(entry, trust)
            try:
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
    advice = _by_trust(served, question.expected) if decides else _least(served)
    return Plan(costs, advice, influences, measured)


def _cost(entry: Algorithm, given: dict[str, Any], question: PlanRequest) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if entry.family == "arms" and "control_share" in entry.options:
        found = _until_decided(entry, given, question)
    if question.people.horizon is not None or not found:
        found = _whole(entry, given, question) | found
    notes = (_note(given), _tolerating(entry, given, question) if "worse" in found else "")
    return found | {"note": "; ".join(filter(None, notes))}


def _tolerating(entry: Algorithm, given: dict[str, Any], question: PlanRequest) -> str:
    """What it costs to tolerate the losses of a definition's defaults; empty where it is nothing.

    Rows without `dropout` have noise for one curious participant and nobody missing.
    """
    shared = "trust" in given and TrustModel(given["trust"]).shares_noise
    if not shared or "dropout" in given or "corrupt" not in entry.options:
        return ""
    losses = f"{float(MISSING):.0%} missing and {float(DISHONEST):.0%} dishonest participants"
    lost = {"dropout": float(MISSING), "corrupt": float(DISHONEST)}
    try:
        found = _until_decided(entry, given | lost, question)["participants"]
    except TacitError:
        return f"{losses}, which definitions tolerate by default, are not tolerated here"
    more = float(1 / (1 - MISSING - DISHONEST) - 1)
    people = "more participants than were simulated" if found is None else _people(found)
    return (
        f"to tolerate {losses}, as definitions do by default, a full round has {more:.0%} more "
        f"noise variance, and it takes {people}"
    )


def _until_decided(
    entry: Algorithm, given: dict[str, Any], question: PlanRequest
) -> dict[str, Any]:
    """Runs that stop at a decision, with a horizon that hardly any of them reaches."""
    how = replace(question.how, until_decided=True)
    options = given | {"horizon": _long_enough(entry, given, question)}
    result = simulate(entry, **options, **vars(how))
    participants = result.decided()["participants_to_decide"]
    return {
        "guarantee": result.guarantee_text,
        "stated": result.as_json(),
        "participants": participants,
        "days": question.people.days(participants),
        "worse": result.regret_mean / question.expected.difference,
        "rounds": result.mean("rounds"),
        "bits_per_user": result.mean("bits_per_user"),
        "command": command(entry.name, options, how, "--until-decided"),
    }


def _long_enough(entry: Algorithm, given: dict[str, Any], question: PlanRequest) -> int:
    """A horizon at least 1.5 times the slowest of a few pilot runs.

    It is rounded up to 1000 times a power of two, so that rows of equal cost mostly share it.
    """
    few = replace(question.how, runs=min(question.how.runs, PILOTS), until_decided=True)
    horizon = _guess(given, question.expected)
    for _ in range(LONGEST):
        pilots = simulate(entry, **given, horizon=horizon, **vars(few))
        if pilots.decided()["decided_part"] == 1 or horizon > MOST / 4:
            break
        horizon *= 4
    slowest = max(run["users"] for run in pilots.runs)
    return min(1000 << max(0, math.ceil(math.log2(1.5 * slowest / 1000))), MOST)


def _note(given: dict[str, Any]) -> str:
    """The caveat of a row; empty without one."""
    if given.get("trust") != TrustModel.SHUFFLER or given.get("delta"):
        return ""
    people = largest_group(given["epsilon"] / given.get("participations", 1))
    return (
        f"rounds are cut into groups of {people:,}, the most that are certified at this epsilon; "
        "each has noise of its own"
    )


def _guess(given: dict[str, Any], expected: Expected) -> int:
    """First guess of a horizon: twice the number at which equally served options are
    distinguishable.
    """
    rate, arms = expected.means[0], len(expected.means)
    epsilon = given["epsilon"] / given.get("participations", 1)
    share = min(given["control_share"] or 1 / arms, 1 / arms)
    noise = 0.0
    if given.get("trust") == TrustModel.LOCAL:
        noise = 2 / epsilon**2
    spread = (rate * (1 - rate) + noise) * (1 / share + 1 / (1 - share))
    sampling = 2 * LEVEL * spread / expected.difference**2
    rounds = 2 * math.sqrt(2 * LEVEL) * 3 / (epsilon * expected.difference * share)
    least = 40 * arms / epsilon
    return min(int(2 * max(sampling, 1) + rounds + least) + arms, MOST)


def _served(given: dict[str, Any], question: PlanRequest) -> dict[str, Any]:
    """The options of a run over the whole horizon."""
    options = {k: v for k, v in given.items() if k != "control_share"}
    horizon = question.people.horizon
    return options if horizon is None else options | {"horizon": horizon}


def _whole(entry: Algorithm, given: dict[str, Any], question: PlanRequest) -> dict[str, Any]:
    """Runs over the whole horizon, without a reserved share for the control."""
    how, options = question.how, _served(given, question)
    result = simulate(entry, **options, **vars(how))
    known: dict[str, Any] = {}
    if entry.family == "arms":
        gap = question.expected.difference
        known["lost_share"] = result.regret_mean / (gap * result.horizon)
        known["users_to_settle"] = _settles(result, gap)
    return {
        "guarantee": result.guarantee_text,
        "stated": result.as_json(),
        "regret": result.regret_mean,
        "regret_sem": result.regret_sem,
        "rounds": result.mean("rounds"),
        "bits_per_user": result.mean("bits_per_user"),
        "command": command(entry.name, options, how),
        **known,
    }


def command(algorithm: str, options: Mapping[str, Any], how: RunConfig, *flags: str) -> str:
    """The command line that simulates a row.

    >>> command("private-med", {"means": (0.02, 0.022), "horizon": 1000}, RunConfig(3, 7))
    'tacit simulate --algorithm private-med --means 0.02,0.022 --horizon 1000 --runs 3 --seed 7'
    """
    said = [
        f"--{name.replace('_', '-')} {','.join(map(repr, v)) if isinstance(v, tuple) else v}"
        for name, v in options.items()
    ]
    parts = ["tacit simulate --algorithm", algorithm, *said, *flags]
    return " ".join([*parts, f"--runs {how.runs} --seed {how.seed}"])


def _settles(result: Result, gap: float) -> int | None:
    """The first checkpoint after which regret per participant stays below a tenth of the gap."""
    points, regret = result.checkpoints, result.curve()[0]
    slopes = np.diff(regret) / np.maximum(np.diff(points), 1)
    late = np.flatnonzero(slopes >= SETTLED * gap)
    last = int(late[-1]) + 1 if len(late) else 0
    return int(points[last]) if last < len(slopes) else None


def _least(served: dict[str, Cost]) -> str:
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


def _by_trust(served: dict[str, Cost], expected: Expected) -> str:
    """Recommend secure aggregation where it is feasible and deployable, else the next trust model;
    compare the central and local models with it.
    """
    decided = {
        name: served[name].participants
        for name in sorted(NAMES, key=lambda one: one not in DEPLOYABLE)
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
        f"Use {NAMES[first]}. Nine of ten experiments distinguish rates of {apart} with "
        f"{_people(ours)}{waited}, of whom "
        f"{_people(served[first].worse)} get a worse option."
    ]
    if first not in DEPLOYABLE:
        parts.append("This version simulates it and does not deploy it.")
    for name, count in decided.items():
        if name in COMPARED and name != first and count and ours:
            ratio = count / ours
            compared = "as many" if 0.8 < ratio < 1.25 else f"{ratio:,.1f} times as many"
            parts.append(f"With {COMPARED[name]} it takes {compared}.")
    return " ".join(parts)


def _people(count: float | None) -> str:
    """Rounded to two significant digits, the precision of the estimate."""
    if not count:
        return "no participants"
    digits = 2 - 1 - math.floor(math.log10(count))
    return f"about {round(count, digits):,.0f} participants"


def draw_poisoning(question: PlanRequest, result: Plan, path: Path) -> Path:
    """Plot how often two servers find the best option under poisoning, with and without
    verification.

    The fractions of corrupted participants are multiples of the requested one.
    """
    named = [name for name in question.algorithms if "through" in lookup(name).options]
    algorithm = named[0] if named else "private-med"
    decided = {cost.trust: cost.participants for cost in result.costs}
    horizon = decided.get("two-servers") or max((n or 0 for n in decided.values()), default=0)
    options = {
        "means": question.expected.means,
        "epsilon": question.epsilon,
        "participations": question.people.participations,
        "horizon": max(horizon, 100 * question.expected.options),
    }
    parts = [part for times in TRIED if (part := times * question.people.poisoned) < 1]
    found = right_winners(algorithm, parts, question.how, **options)
    means = question.expected.means
    turning = reached("verified", (0.0, 1.0), means, question.people.poisoned, None).part
    return draw_right_winners(found, parts, turning, path)


def draw(result: Plan, path: Path) -> Path:
    """Plot participants until a decision, and those on a worse option, by trust model."""
    from tacit.simulation import pictures

    shown = [cost for cost in result.costs if cost.participants is not None]
    if not shown:
        raise TacitError(
            "no row reaches a decision, so there is nothing to draw. Use a larger difference."
        )
    figure, axes = pictures.axes()
    places = np.arange(len(shown))
    axes.barh(places, [cost.participants for cost in shown], color="#4477aa", label="asked")
    axes.barh(places, [cost.worse for cost in shown], color="#ee6677", label="on a worse option")
    axes.set_yticks(places, [cost.trust for cost in shown])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("participants until nine of ten experiments are decided")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False)
    return pictures.save(figure, path)
