"""Multi-armed bandits put together: a learner, a protocol for every batch, a guarantee, under one
name.

A `Problem` says what is asked; `assemble` finds the named composition; `simulate` runs it over
seeds. The compositions themselves live in the papers' modules (`cz23`, `tkms21`) and in `ours`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tacit.bandits import Doubling, Learner
from tacit.checks import TacitError, integer, positive, probability
from tacit.environments import Bernoulli, Beta, ClippedGaussian, Environment, instance_means
from tacit.privacy import Guarantee, reporting_condition
from tacit.protocols.contract import SumProtocol
from tacit.simulation import Result, checkpoints_for, run, sweep

Setting = Literal["paper", "tight"]
Trust = Literal["secagg", "shuffle", "central", "local"]
REWARDS = ("bernoulli", "gaussian", "beta")
DEFAULT_DELTA = 1e-5


@dataclass(frozen=True)
class Problem:
    """What an algorithm is asked to do. Fields that an algorithm does not need are ignored by it.

    `learner_seed` is for learners that draw (Thompson sampling); a `Task` sets it for every run.
    """

    arms: int
    horizon: int
    epsilon: float = 1.0
    delta: float | None = None
    growth: float = 4.0
    confidence: float = 0.1
    setting: Setting = "tight"
    binary: bool = False
    trust: Trust = "secagg"
    index: str = "chernoff"
    scale: int = 10
    dropout: float = 0.0
    anytime: bool = False
    learner_seed: int = 0

    def __post_init__(self) -> None:
        integer("arms", self.arms, at_least=2, remedy="a bandit chooses among two or more")
        integer("horizon", self.horizon, at_least=1)
        if self.horizon < self.arms:
            raise TacitError(
                f"horizon is {self.horizon}, fewer users than the {self.arms} arms: drop arms or "
                "recruit more users"
            )
        positive(
            "epsilon",
            self.epsilon,
            "a guarantee needs epsilon > 0; for no privacy use ucb1, klucb, thompson or "
            "successive-elimination",
        )
        if self.delta is not None:
            probability("delta", self.delta, "leave delta out for a pure guarantee", zero=True)
        probability(
            "confidence",
            self.confidence,
            "the probability with which the best arm may be dropped, such as 0.1",
        )
        integer("scale", self.scale, at_least=1)
        probability(
            "dropout",
            self.dropout,
            "the part of a batch that may fail to report, such as 0.1",
            zero=True,
        )
        if self.setting not in ("paper", "tight"):
            raise TacitError(f"setting is {self.setting!r}; it must be paper or tight")
        if self.trust not in ("secagg", "shuffle", "central", "local"):
            raise TacitError(
                f"trust is {self.trust!r}; it must be secagg, shuffle, central or local"
            )

    @property
    def delta_or_default(self) -> float:
        """δ, or 10^-5 for algorithms that cannot do without."""
        if self.delta == 0:
            raise TacitError(
                "delta is 0; this algorithm has no guarantee without exceptions: leave delta out "
                "for 1e-05, or use dist-dp-se, "
                "shuffle-dp-se or private-klucb, which are pure"
            )
        return DEFAULT_DELTA if self.delta is None else self.delta

    def refuse_dropout(self, reason: str) -> None:
        """For algorithms whose batches are only opened when everyone reports."""
        if self.dropout:
            raise TacitError(
                f"dropout is {self.dropout:g}; {reason}: use dist-dp-se, vb-sdp-ae or "
                "private-klucb in the tight setting"
            )


@dataclass(frozen=True)
class Assembly:
    """A learner, the protocol of a batch of n users, and what the whole run promises to each user
    (who is in one batch).
    """

    learner: Learner
    protocols: Callable[[int], SumProtocol]
    guarantee: Guarantee | None


Builder = Callable[[Problem], Assembly]
BUILDERS: dict[str, Builder] = {}


def assemble(name: str, problem: Problem) -> Assembly:
    """The named algorithm for a problem."""
    load_all()
    if name not in BUILDERS:
        raise TacitError(
            f"algorithm is {name!r}; known multi-armed bandits are {', '.join(sorted(BUILDERS))} "
            "(see: tacit algorithms)"
        )
    assembly = BUILDERS[name](problem)
    if problem.dropout and assembly.guarantee is not None:
        assembly = replace(
            assembly,
            guarantee=replace(assembly.guarantee, condition=reporting_condition(problem.dropout)),
        )
    return replace(assembly, learner=_anytime(assembly.learner)) if problem.anytime else assembly


def _anytime(learner: Learner) -> Learner:
    """The same learner, started anew over periods that double, without knowing the horizon."""
    options = {
        name: value
        for name, value in learner.arguments().items()
        if name not in ("arms", "horizon")
    }
    return Doubling(learner.arms, learner.horizon, type(learner).__name__, options)


def load_all() -> None:
    """Imports the modules that register algorithms."""
    from tacit.papers import cz23, ours, tkms21  # noqa: F401


@dataclass(frozen=True)
class Task:
    """One run as a picklable function of its seed.

    Instances are drawn anew for every seed, unless means are given.
    """

    name: str
    problem: Problem
    rewards: str = "bernoulli"
    instance: str = "easy"
    means: tuple[float, ...] | None = None
    user_by_user: bool = False
    environment: Environment | None = None

    def world(self, seed: int) -> Environment:
        """The environment of this seed."""
        if self.environment is not None:
            return self.environment
        means = self.means or tuple(instance_means(self.instance, self.problem.arms, seed).tolist())
        match self.rewards:
            case "bernoulli":
                return Bernoulli(means)
            case "gaussian":
                return ClippedGaussian(means)
            case "beta":
                return Beta(means)
        raise TacitError(f"rewards is {self.rewards!r}; it must be one of {', '.join(REWARDS)}")

    def __call__(self, seed: int) -> dict[str, Any]:
        """A flat record of the run."""
        world = self.world(seed)
        assembly = assemble(
            self.name, replace(self.problem, binary=world.binary, learner_seed=seed)
        )
        rng = np.random.default_rng([seed, 0x7AC17])
        marks = checkpoints_for(self.problem.horizon)
        result = run(
            assembly.learner,
            world,
            assembly.protocols,
            rng,
            checkpoints=marks,
            user_by_user=self.user_by_user,
        )
        return {
            "seed": seed,
            **{
                name: list(value) if isinstance(value, tuple) else value
                for name, value in vars(result).items()
            },
            "final_realised_regret": result.realised[-1],
            "bits_per_user": result.bits / result.users,
            "best_mean_gap": float(world.gaps[result.best]),
        }


def simulate(
    task: Task,
    *,
    runs: int,
    seed: int = 0,
    progress: bool = False,
    workers: int | None = None,
    log: Path | None = None,
) -> Result:
    """Runs a task for `runs` seeds from `seed` on."""
    count = integer("runs", runs, at_least=1)
    assembly = assemble(task.name, replace(task.problem, binary=task.world(seed).binary))
    done = sweep(
        task,
        range(seed, seed + count),
        label=task.name,
        progress=progress,
        workers=workers,
        path=log,
    )
    problem = {
        name: value
        for name, value in asdict(task.problem).items()
        if name not in ("binary", "learner_seed")
    }
    configuration = {
        **problem,
        "rewards": task.rewards,
        "instance": None if task.means else task.instance,
        "means": task.means,
        "first_seed": seed,
        "environment": type(task.world(seed)).__name__,
    }
    promise = (
        str(assembly.guarantee)
        if assembly.guarantee is not None
        else "none: the server sees every sum as it is"
    )
    extras = ("bits_per_user", "batches", "active", "wrapped", "final_realised_regret")
    return Result(task.name, task.problem.horizon, configuration, promise, done, extras)
