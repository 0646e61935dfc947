"""What an experiment would cost under each trust model, before anyone is asked anything.

The best learner is simulated on a problem of the size and the gap that the planner expects; the
table says what each trust model costs in regret, users and bits, and one sentence says which to
take. Named algorithms of any family are costed the same way, one row each. What cannot be had is a
row that says why.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from tacit.algorithms.registry import Algorithm, lookup
from tacit.checks import TacitError, integer, probability
from tacit.simulation.results import Result
from tacit.simulation.study import simulate

SETTLED = 0.1  # a run has settled when a user loses less than this part of the gap on average

WHAT_IS_TRUSTED = {
    "central": "the server sees every answer and is trusted to publish noisy sums only",
    "secagg": "nobody sees an answer; secure aggregation opens noisy sums only",
    "shuffle": "nobody sees an answer; a shuffler that does not collude with the server hides "
    "who sent what",
    "local": "nobody is trusted with anything: every message is private by itself",
}


@dataclass(frozen=True)
class Cost:
    """What one trust model, or one algorithm, costs; `refused` says why it cannot be had.

    The share of users that is lost and when a run settles are known where the gap is: for arms.
    """

    trust: str
    trusted: str
    algorithm: str
    family: str
    guarantee: str = ""
    regret: float = math.nan
    regret_sem: float | None = None
    lost_share: float | None = None
    users_to_settle: int | None = None
    batches: float | None = None
    bits_per_user: float = math.nan
    refused: str = ""


@dataclass(frozen=True)
class Plan:
    """The costs of all trust models, and what to take."""

    costs: list[Cost]
    recommendation: str


def plan(
    options: int,
    horizon: int,
    gap: float,
    epsilon: float,
    delta: float | None = None,
    *,
    runs: int = 10,
    seed: int = 0,
    algorithm: str = "private-klucb",
    algorithms: Iterable[str] = (),
    progress: bool = False,
) -> Plan:
    """Simulates every trust model of an algorithm, or several algorithms, at one guarantee.

    Arms have one option that is better than the others by `gap` (around one half); linear and
    federated bandits have instances of their own.
    """
    arms = integer("options", options, at_least=2)
    remedy = "how much better the best option is, in success probability, such as 0.05"
    difference = float(probability("gap", gap, remedy))
    means = (0.5 + difference / 2, *[0.5 - difference / 2] * (arms - 1))
    given: dict[str, Any] = {"means": means, "horizon": horizon, "epsilon": epsilon, "delta": delta}
    how: dict[str, Any] = {"runs": runs, "seed": seed, "progress": progress}
    wanted = [lookup(name) for name in (tuple(algorithms) or (algorithm,))]
    by_trust = len(wanted) == 1 and "trust" in wanted[0].options
    costs, errors = [], []
    for entry, trust in product(wanted, WHAT_IS_TRUSTED if by_trust else [None]):
        asked = given | {"trust": trust}
        mine = {k: v for k, v in asked.items() if k in entry.options and v is not None}
        names = (trust or entry.name, WHAT_IS_TRUSTED[trust] if trust else entry.trust)
        try:
            result = simulate(entry.name, **mine, **how)
            costs.append(_cost(names, entry, result, difference))
        except TacitError as error:
            errors.append(error)
            costs.append(Cost(*names, entry.name, entry.family, refused=str(error)))
    if len(errors) == len(costs):
        raise errors[0]
    served = {cost.trust: cost for cost in costs if not cost.refused}
    compared = by_trust and {"central", "secagg", "local"} <= served.keys()
    advice = _by_trust(served, difference, horizon) if compared else _least(served)
    return Plan(costs, advice)


def _cost(names: tuple[str, str], entry: Algorithm, result: Result, gap: float) -> Cost:
    known: dict[str, Any] = {}
    if entry.family == "arms":
        known["lost_share"] = result.regret_mean / (gap * result.horizon)
        known["users_to_settle"] = _settles(result.checkpoints, result.curve()[0], gap)
    rounds = next((name for name in ("batches", "phases") if name in result.runs[0]), None)
    return Cost(
        *names,
        entry.name,
        entry.family,
        result.promise,
        result.regret_mean,
        result.regret_sem,
        batches=result.mean(rounds) if rounds else None,
        bits_per_user=result.mean("bits_per_user"),
        **known,
    )


def _settles(rounds: np.ndarray, regret: np.ndarray, gap: float) -> int | None:
    """The first checkpoint from which on the mean regret per user stays below a tenth of the
    gap.
    """
    slopes = np.diff(regret) / np.maximum(np.diff(rounds), 1)
    late = np.flatnonzero(slopes >= SETTLED * gap)
    last = int(late[-1]) + 1 if len(late) else 0
    return int(rounds[last]) if last < len(slopes) else None


def _least(served: dict[str, Cost]) -> str:
    """Which of those that can be had loses least, family by family: their regrets are not
    comparable.
    """
    families = {
        cost.family: [c for c in served.values() if c.family == cost.family]
        for cost in served.values()
    }
    least = {name: min(costs, key=lambda cost: cost.regret) for name, costs in families.items()}
    return " ".join(
        f"Of {family} algorithms, {cost.trust} loses least: {cost.regret:,.0f}."
        for family, cost in least.items()
    )


def _by_trust(served: dict[str, Cost], gap: float, horizon: int) -> str:
    """Secure aggregation, and how the other trust models that can be had compare to it."""
    lost = {trust: cost.regret / gap for trust, cost in served.items()}
    ours = lost["secagg"]
    if served["secagg"].users_to_settle is None:
        return (
            f"{horizon:,} users are too few to tell options {gap:g} apart at this guarantee, "
            "whatever the trust model: recruit more, "
            "look for a larger gap, or accept a weaker guarantee."
        )
    head = (
        "Use secure aggregation: nobody has to be trusted with answers, and about "
        f"{ours:,.0f} of {horizon:,} users get a worse option"
    )
    as_central = ours <= 1.05 * lost["central"]
    against = "as" if as_central else f"against {lost['central']:,.0f}"
    parts = [f"{head}, {against} with a trusted server."]
    bits = {trust: cost.bits_per_user for trust, cost in served.items()}
    shuffled = lost.get("shuffle", math.inf) <= 1.05 * ours
    if shuffled and bits["shuffle"] <= 4 * bits["secagg"]:
        parts.append(
            "A shuffler does as well, if you have one that does not collude with the server."
        )
    if lost["local"] <= 1.5 * ours:
        parts.append("The local model costs little more here and needs no intermediary at all.")
    else:
        parts.append(f"Without any intermediary (local model) it would be {lost['local']:,.0f}.")
    return " ".join(parts)
