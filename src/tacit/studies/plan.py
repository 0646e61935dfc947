"""What an experiment would cost under each trust model, before anyone is asked anything.

The best learner is simulated on a problem of the size and the gap that the planner expects; the
table says what each trust model costs in regret, users and bits, and one sentence says which to
take.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.checks import integer, probability
from tacit.papers.arms import Problem, Task, Trust, simulate

SETTLED = 0.1  # a run has settled when a user loses less than this part of the gap on average

WHAT_IS_TRUSTED: dict[Trust, str] = {
    "central": "the server sees every answer and is trusted to publish noisy sums only",
    "secagg": "nobody sees an answer; secure aggregation opens noisy sums only",
    "shuffle": "nobody sees an answer; a shuffler that does not collude with the server hides "
    "who sent what",
    "local": "nobody is trusted with anything: every message is private by itself",
}


@dataclass(frozen=True)
class Cost:
    """What one trust model costs."""

    trust: Trust
    trusted: str
    guarantee: str
    regret: float
    regret_sem: float
    lost_share: float
    users_to_settle: int | None
    batches: float
    bits_per_user: float


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
) -> Plan:
    """Simulates every trust model on one option that is better than the others by `gap` (around one
    half).
    """
    arms = integer("options", options, at_least=2)
    difference = float(
        probability(
            "gap", gap, "how much better the best option is, in success probability, such as 0.05"
        )
    )
    means = (0.5 + difference / 2, *[0.5 - difference / 2] * (arms - 1))
    costs = []
    trusts: tuple[Trust, ...] = ("central", "secagg", "shuffle", "local")
    for trust in trusts:
        problem = Problem(arms, horizon, epsilon=epsilon, delta=delta, trust=trust)
        result = simulate(Task("private-klucb", problem, means=means), runs=runs, seed=seed)
        costs.append(
            Cost(
                trust,
                WHAT_IS_TRUSTED[trust],
                result.guarantee,
                result.regret_mean,
                result.regret_sem,
                result.regret_mean / (difference * horizon),
                _settles(result.checkpoints, result.curve()[0], difference),
                result.mean("batches"),
                result.mean("bits_per_user"),
            )
        )
    return Plan(costs, _recommend({cost.trust: cost for cost in costs}, difference, horizon))


def _settles(rounds: np.ndarray, regret: np.ndarray, gap: float) -> int | None:
    """The first checkpoint from which on the mean regret per user stays below a tenth of the
    gap.
    """
    slopes = np.diff(regret) / np.maximum(np.diff(rounds), 1)
    late = np.flatnonzero(slopes >= SETTLED * gap)
    last = int(late[-1]) + 1 if len(late) else 0
    return int(rounds[last]) if last < len(slopes) else None


def _recommend(costs: dict[Trust, Cost], gap: float, horizon: int) -> str:
    secure, central, local, shuffle = (
        costs[name] for name in ("secagg", "central", "local", "shuffle")
    )
    lost = secure.regret / gap
    head = (
        "Use secure aggregation: nobody has to be trusted with answers, and about "
        f"{lost:,.0f} of {horizon:,} users get a worse option"
    )
    if secure.users_to_settle is None:
        return (
            f"{horizon:,} users are too few to tell options {gap:g} apart at this guarantee, "
            "whatever the trust model: recruit more, "
            "look for a larger gap, or accept a weaker guarantee."
        )
    against_central = (
        "as with a trusted server"
        if secure.regret <= 1.05 * central.regret
        else f"against {central.regret / gap:,.0f} with a trusted server"
    )
    parts = [f"{head}, {against_central}."]
    if shuffle.regret <= 1.05 * secure.regret and shuffle.bits_per_user <= 4 * secure.bits_per_user:
        parts.append(
            "A shuffler does as well, if you have one that does not collude with the server."
        )
    if local.regret <= 1.5 * secure.regret:
        parts.append("The local model costs little more here and needs no intermediary at all.")
    else:
        parts.append(
            f"Without any intermediary (local model) it would be {local.regret / gap:,.0f}."
        )
    return " ".join(parts)
