"""Types of the keyword options of `simulate` and `compare`: one dictionary type per family.

Type checkers and editors read them; at run time the problems declare the same options. A test
compares the two, and the names below with the registry.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypedDict

from tacit.algorithms.arms_problem import Better, Index, Rewards, Through
from tacit.algorithms.contextual_problem import Contexts, StatisticKind
from tacit.algorithms.linear_problem import Reports
from tacit.algorithms.problems import Constants, Noise
from tacit.algorithms.silos_problem import Field, Mode, PrintedBits, Schedule, Sent

Whole = float  # a whole number; 1e6 is one
Elimination = Literal["dist-dp-se", "dist-rdp-se", "dist-cdp-se", "cdp-se", "ldp-se", "dp-se"]
ShuffledElimination = Literal["split-dp-se", "shuffle-dp-se", "sdp-ae", "vb-sdp-ae"]
ArmsBaseline = Literal["ucb1", "klucb", "thompson", "successive-elimination"]
PrivateIndex = Literal["private-klucb", "private-med", "private-pe", "adap-klucb", "lazy-dp-ts"]
Featured = Literal["private-dpe"]
ArmsAlgorithm = Elimination | ShuffledElimination | ArmsBaseline | PrivateIndex | Featured
DistributedLinear = Literal["dpe", "cdp-dpe", "ldp-dpe", "sdp-dpe", "secagg-dpe", "dpe-fixed"]
SingleLinear = Literal["pe", "cdp-pe", "ldp-pe", "sdp-pe", "secagg-pe"]
LinearAlgorithm = DistributedLinear | SingleLinear
PaperSilos = Literal["fedlinucb", "ldp-fedlinucb", "sdp-fedlinucb", "sdp-fedlinucb-vec"]
ContextualAlgorithm = Literal["private-contextual"] | Literal["contextual-thompson"]
SilosAlgorithm = PaperSilos | Literal["secagg-fedlinucb", "jdp-linucb"]


class RunOptions(TypedDict, total=False):
    """Options of all families: those of `RunConfig`, and those that every problem has."""

    runs: int
    seed: int
    progress: bool
    workers: int | None
    log: Path | None
    user_by_user: bool
    resume: bool
    whole: bool
    until_decided: bool
    poisoned: float
    horizon: Whole
    epsilon: float


class PaperOptions(RunOptions, total=False):
    """Options of the papers' families."""

    participations: Whole
    constants: Constants
    failure_probability: float


class ArmsOptions(PaperOptions, total=False):
    """Options of multi-armed bandits; see `ArmsProblem`."""

    arms: Whole
    index: Index
    growth: float
    rounds: Whole | None
    plays: Whole | None
    anytime: bool
    control_share: float
    guardrail: str | None
    guardrail_better: Better
    guardrail_margin: float
    delta: float | None
    trust: str
    through: Through | None
    scale: Whole
    dropout: float
    corrupt: float
    min_batch_size: Whole
    rewards: Rewards
    instance: str
    means: Sequence[float] | None
    guardrail_means: Sequence[float] | None


class LinearOptions(PaperOptions, total=False):
    """Options of linear bandits; see `LinearProblem`."""

    alpha: float
    client_std: float
    bound: float
    population: Whole | None
    fixed_clients: Whole | None
    delta: float
    noise: Noise
    reports: Reports | None
    norm: float
    dimension: Whole
    actions: Whole
    covering: float | None


class SilosOptions(PaperOptions, total=False):
    """Options of federated bandits; see `SilosProblem`."""

    silos: Whole
    dimension: Whole
    sync: Whole
    lazy: bool
    mode: Mode
    schedule: Schedule | None
    sent: Sent
    bits: PrintedBits
    norm: float
    delta: float
    budgets: Sequence[float | tuple[float, float]] | None
    visits: Whole
    visits_per_batch: Whole
    noise: Noise
    actions: Whole
    deviation: float
    missing: Whole
    data: str | None
    field: Field


class ContextualOptions(RunOptions, total=False):
    """Options of contextual bandits; see `ContextualProblem`."""

    arms: Whole
    statistic: StatisticKind | None
    first_round: Whole | None
    growth: float | None
    evaluation: float
    delta: float | None
    trust: str
    contexts: Contexts
    dimension: Whole
    segments: Whole
