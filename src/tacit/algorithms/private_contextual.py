"""Private contextual bandits: devices choose by a published policy; not from the papers.

`private-contextual` releases one noisy sum of statistics per round under every trust model:
tables, corners or moments. `contextual-thompson` is the same learner without noise. Each
participant comes once. The guarantee is towards replacing a participant's context, potential
rewards and choices.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tacit import assumptions
from tacit.algorithms.contextual_problem import CONTEXTUAL_TRUSTS, ContextualProblem, StatisticKind
from tacit.algorithms.lazy_imports import (
    corner_learner,
    experiment,
    factories,
    mechanism,
    policy_learners,
    privacy,
    slice_mechanism,
    statistic_sums,
    statistics,
)
from tacit.algorithms.problems import DEFAULT_DELTA
from tacit.algorithms.registry import algorithm
from tacit.contextual.corners import corner_count
from tacit.errors import TacitError, require
from tacit.names import name_of
from tacit.trust import TrustModel

if TYPE_CHECKING:
    from collections.abc import Callable

    from tacit.bandits.contextual.policy_learners import PolicyLearner
    from tacit.contextual.feature_maps import FeatureMap
    from tacit.experiment import Experiment
    from tacit.privacy import ApproximateDP, Guarantee, PrivacyStatus, PureDP
    from tacit.protocols.mechanism import Mechanism, PerRound
    from tacit.protocols.statistic_sums import StatisticSum

SMALL_CELLS = 24  # of context and option, up to which shuffler and local model serve tables
GROWTH: dict[StatisticKind, float] = {"tables": 1.4, "corners": 1.5, "moments": 2.0}
FIRST_CELL = 8.0  # participants of the first round per cell, in standard deviations of its noise
FIRST_CORNERS = 4  # per feature: of more corners, the first round need not measure each
FIRST_MOMENTS = 8.4  # participants of the first round per √d³, in standard deviations
LEAST_FIRST = 64
BOLDNESS_CORNERS = 0.85  # standard deviations of draws; with less, wrong leads may stay
ROUND = 100  # participants of a round whose cost through a shuffler is stated
OPTIONS = (
    "arms",
    "horizon",
    "statistic",
    "first_round",
    "growth",
    "evaluation",
    "contexts",
    "dimension",
    "segments",
)


@algorithm(
    "private-contextual",
    paper="tacit",
    trust=CONTEXTUAL_TRUSTS,
    guarantee="(ε, 0)-DP with tables and corners, (ε, δ)-DP with moments",
    problem=ContextualProblem,
    options=(*OPTIONS, "epsilon", "delta", "trust"),
)
def private_contextual(problem: ContextualProblem) -> Experiment:
    """Tables, corners or moments under the requested trust model."""
    statistic, _ = problem.chosen()
    target = problem.privacy.target(statistic)
    check_cost(problem, statistic)
    return compose(problem, statistic, target)


@algorithm(
    "contextual-thompson",
    paper="tacit",
    trust=TrustModel.NONE,
    guarantee="nothing",
    problem=ContextualProblem,
    options=OPTIONS,
)
def contextual_thompson(problem: ContextualProblem) -> Experiment:
    """The same rounds without noise; exact moments need no corners."""
    statistic = problem.chosen()[0]
    corners = statistic == "corners" and problem.statistic is None
    return compose(problem, "moments" if corners else statistic, None)


def check_cost(problem: ContextualProblem, statistic: StatisticKind) -> None:
    """Reject the shuffler and the local model where their cost is too high, and state it."""
    trust, features = TrustModel(problem.privacy.trust), problem.features
    assert features is not None
    if trust not in (TrustModel.SHUFFLER, TrustModel.LOCAL):
        return
    remedy = "Use two-servers or secure-aggregation, or fewer segments and options."
    cost = trust_cost(trust, statistic, features, problem.privacy.epsilon)
    if statistic == "moments":
        raise TacitError(f"trust is {trust}: must be another for moments: {cost}. {remedy}")
    cells = _cells(statistic, features)
    if cells > SMALL_CELLS:
        what = "corners" if statistic == "corners" else "cells of context and option"
        raise TacitError(
            f"trust is {trust} with {cells} {what}: must be at most {SMALL_CELLS}: {cost}. {remedy}"
        )


def _cells(statistic: StatisticKind, features: FeatureMap) -> int:
    """Pairs of cells of a histogram, for success and failure."""
    if statistic == "corners":
        return corner_count(features)
    return features.segments * len(features.options)


def trust_cost(
    trust: TrustModel, statistic: StatisticKind, features: FeatureMap, epsilon: float
) -> str:
    """The cost of the shuffler or the local model with a statistic, as a clause."""
    cells = _cells(statistic, features)
    if trust is TrustModel.SHUFFLER:
        if statistic == "moments":
            return f"a participant would send {_moment_bits(features.dimension):,} bits"
        return (
            f"a participant would send {_table_bits(cells):,} bits, or with a delta "
            f"{_table_messages(cells):,} messages in a round of {ROUND}"
        )
    if statistic == "moments":
        target = privacy.ApproximateDP(epsilon, DEFAULT_DELTA)
        made = statistics.ScaledMomentStatistic(features.dimension, features.resolution)
        std = made.noise(target)[0].std / made.largest
        return (
            f"the noise in each number of n reports has a standard deviation of {std:.2g} √n, "
            "which leaves moments less than the best single option earns"
        )
    rate = math.exp(-epsilon)
    std = math.sqrt(rate) / (1 - rate) * 2
    return (
        f"the noise in a cell of n reports has a standard deviation of {std:.2g} √n, and a cell "
        f"holds n/{cells} of them"
    )


def _table_bits(cells: int) -> int:
    """Bits of a shuffled table in a round of 10,000."""
    made = statistic_sums.table_sum(
        10_000, segments=cells, options=1, trust=TrustModel.SHUFFLER, target=privacy.PureDP(1.0)
    )
    return int(made.bits_per_participant)


def _table_messages(cells: int) -> int:
    """Messages of a shuffled table with a δ."""
    target = privacy.ApproximateDP(1.0, DEFAULT_DELTA)
    made = statistic_sums.table_sum(
        ROUND, segments=cells, options=1, trust=TrustModel.SHUFFLER, target=target
    )
    return int(made.bits_per_participant)


def _moment_bits(dimension: int) -> int:
    """Bits of shuffled moments in a round of 10,000."""
    size = dimension + dimension * (dimension + 1) // 2
    target = privacy.ApproximateDP(1.0, 1e-6)
    made = factories.vector_of(
        10_000,
        size,
        1.0,
        trust=TrustModel.SHUFFLER,
        bound=1.0,
        target=target,
        noise="skellam",
        client_std=0.0,
    )
    return int(made.bits_per_participant)


def compose(
    problem: ContextualProblem, statistic: StatisticKind, target: PureDP | ApproximateDP | None
) -> Experiment:
    """The learner of a statistic, with the protocols of its rounds."""
    features = problem.features
    assert features is not None
    trust = TrustModel.NONE if target is None else TrustModel(problem.privacy.trust)
    how: dict[str, Any] = {"trust": trust, "target": target}
    make: Callable[..., StatisticSum] = statistic_sums.moment_sum
    if statistic == "tables":
        make = statistic_sums.table_sum
        how |= {"segments": features.segments, "options": len(features.options)}
    elif statistic == "corners":
        make = statistic_sums.corner_sum
        how["features"] = features.to_dict()
    else:
        how["size"] = [features.dimension, features.resolution, problem.precision]
        how |= {"scaled": True} if problem.scaled else {}
    if problem.missing or problem.dishonest:
        how |= {"missing": problem.missing, "dishonest": problem.dishonest}
    fewest = LEAST_FIRST if trust.shares_noise and problem.smallest == 1 else 1
    smallest = max(problem.smallest, fewest)
    rule = f"at least {smallest}, the smallest round of {trust}"
    require(problem.horizon >= smallest, "horizon", problem.horizon, rule)
    small = make(max(smallest, 2), **how)
    status = with_secret(small.guarantee)
    policies = mechanism.PerRound(make, how, status, smallest)
    kinds: dict[StatisticKind, type[PolicyLearner]] = {
        "tables": policy_learners.TableThompson,
        "corners": corner_learner.CornerThompson,
        "moments": policy_learners.LinearThompson,
    }
    more: dict[str, float] = {}
    if statistic == "tables":
        more["exploration"] = problem.exploration
    elif statistic == "corners":
        more["boldness"] = BOLDNESS_CORNERS
    learner = kinds[statistic](
        features.to_dict(),
        problem.horizon,
        first=min(problem.first_round or first_round(problem, statistic, small), problem.horizon),
        growth=problem.growth or GROWTH[statistic],
        evaluation=problem.evaluation,
        smallest=smallest,
        **more,
    )
    hidden: Mechanism = policies
    if problem.evaluation:
        hidden = slice_mechanism.SliceMechanism(policies, slices(problem, trust, smallest))
    return experiment.Experiment.of(learner, hidden, features.options)


def slices(problem: ContextualProblem, trust: TrustModel, smallest: int) -> PerRound:
    """Sums of one option's rewards in the evaluation slice, under the same trust model."""
    how: dict[str, Any] = {"binary": problem.binary}
    pure = privacy.PureDP(problem.privacy.epsilon)
    makes: dict[TrustModel, tuple[Any, dict[str, Any]]] = {
        TrustModel.NONE: (factories.exact, {}),
        TrustModel.CENTRAL: (
            factories.central_laplace,
            {"target": pure, "failure_probability": None},
        ),
        TrustModel.TWO_SERVERS: (
            factories.two_servers_laplace,
            {"target": pure, "levels": problem.precision},
        ),
        TrustModel.SECURE_AGGREGATION: (
            factories.polya_tight,
            {
                "target": pure,
                "dropout": problem.missing,
                "corrupt": problem.dishonest,
                "levels": problem.levels,
            },
        ),
        TrustModel.SHUFFLER: (
            factories.split_and_mix,
            {"target": pure, "failure_probability": None},
        ),
        TrustModel.LOCAL: (factories.response, {"target": pure}),
    }
    make, more = makes[trust]
    how = more if trust == TrustModel.LOCAL else how | more
    if problem.metrics > 1:
        how = {"metrics": problem.metrics, "each": name_of(make), **how}
        make = factories.joint
    return mechanism.PerRound(
        make, how, with_secret(make(max(smallest, 2), **how).guarantee), smallest
    )


def with_secret(guarantee: Guarantee | None) -> PrivacyStatus:
    """The guarantee of the run: the guarantee of one round, with the secret that it protects."""
    if guarantee is None:
        return privacy.NonPrivate()
    protects = assumptions.Protects(assumptions.Secret.CONTEXT_AND_REWARDS)
    return privacy.status_of(guarantee.assuming(protects, assumptions.PublicMembership()))


def first_round(problem: ContextualProblem, statistic: StatisticKind, small: StatisticSum) -> int:
    """Participants of the first round, proportional to the noise of one round's sums."""
    features = problem.features
    assert features is not None
    std = float(small.error(small.participants).stated[0]) * small.participants
    if statistic == "moments":
        usual = FIRST_MOMENTS * max(std, 1.0) * features.dimension**1.5
    else:
        cells = _cells(statistic, features)
        if statistic == "corners":
            cells = min(cells, FIRST_CORNERS * features.dimension)
        usual = FIRST_CELL * max(std, 1.0) * cells
    least = max(LEAST_FIRST, problem.smallest)
    return int(max(least, min(math.ceil(usual), problem.horizon // 10)))
