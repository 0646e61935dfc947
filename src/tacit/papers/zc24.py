"""Differentially private federated linear contextual bandits (Zhou & Chowdhury, ICLR 2024): silos that learn together.

Five named algorithms that differ only in how sums over silos are made private, each with a lazy form, and Figures 2 and 3. λ and β_t are
those of Lemma C.4; the `tight` setting takes λ from the spectral quantile of the noise that is really there. `secagg-fedlinucb` is ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit.bandits import statistics
from tacit.bandits.federated import Coordinator, Settings
from tacit.checks import TacitError, integer
from tacit.environments.silos import Field, Silos, Synthetic, read_ranking
from tacit.papers import zc24_noise
from tacit.papers.catalogue import Entry, register
from tacit.papers.zc24_noise import Mechanism, Problem, Setting
from tacit.simulation.federated import run_federation
from tacit.simulation.results import Result
from tacit.simulation.run import checkpoints_for
from tacit.simulation.sweep import Record, sweep

PAPER = "ZC24"
Builder = Callable[[Problem], Mechanism]
ALGORITHMS: dict[str, Builder] = {
    "fedlinucb": zc24_noise.fedlinucb,
    "ldp-fedlinucb": zc24_noise.ldp_fedlinucb,
    "sdp-fedlinucb": zc24_noise.sdp_fedlinucb,
    "sdp-fedlinucb-vec": zc24_noise.sdp_fedlinucb_vec,
    "secagg-fedlinucb": zc24_noise.secagg_fedlinucb,
}
EXTRAS = ("group_regret_per_round", "repairs", "communication", "bits_per_user", "clipped")


def regularizer(mechanism: Mechanism, problem: Problem) -> float:
    """λ: 1 without noise; the printed max{1, σ(√d + √ln(T/(Bα)))} with the printed noise; else the noise's spectral quantile.

    The quantile is that of the largest eigenvalue of the noise in the last, noisiest, released Gram matrix, at level 1 - α: λI plus the
    noise is then positive definite but for a chance of α, and the rest is repaired and counted.
    """
    if mechanism.guarantee is None:
        return 1.0
    if mechanism.sigma is not None:
        d, chance = problem.dimension, problem.horizon / (problem.sync * problem.confidence)
        return max(1.0, mechanism.sigma * (math.sqrt(d) + math.sqrt(math.log(chance))))
    spread = math.sqrt(mechanism.protocol.variances.max())
    return max(1.0, spread * statistics.spectral_quantile(problem.dimension, 1 - problem.confidence))


@dataclass(frozen=True, eq=False)
class Task:
    """One algorithm on one instance, ready to run for any seed."""

    name: str
    problem: Problem
    mechanism: Mechanism
    settings: Settings
    recorded: Silos | None
    deviation: float

    @classmethod
    def of(cls, name: str, problem: Problem, recorded: Silos | None = None, deviation: float = 0.25) -> Task:
        """Calibrates the noise and sets the regularizer, once for all runs."""
        if name not in ALGORITHMS:
            raise TacitError(f"algorithm is {name!r}; federated ones are {', '.join(ALGORITHMS)}")
        mechanism = ALGORITHMS[name](problem)
        settings = Settings(
            problem.silos,
            problem.dimension,
            problem.horizon,
            problem.sync,
            regularizer(mechanism, problem),
            problem.confidence,
            lazy=problem.lazy,
            clip=True,
            scaled=mechanism.sigma is None,
        )
        return cls(name, problem, mechanism, settings, recorded, deviation)

    def __call__(self, seed: int) -> Record:
        """One run. Users and noise have generators of their own, so all algorithms meet the same users."""
        users, noise = (np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2))
        problem, protocol = self.problem, self.mechanism.protocol
        environment = self.recorded
        if environment is None:
            environment = Synthetic.draw(problem.silos, problem.dimension, problem.actions, users, self.deviation)
        simulator = protocol.simulator(noise)
        run = run_federation(
            self.settings,
            environment,
            lambda batches: simulator.step(batches.sum(axis=0)),
            Coordinator(self.settings, protocol.decoder()),
            users,
            checkpoints=checkpoints_for(problem.horizon),
        )
        sent = protocol.bits_per_silo * problem.silos
        return {
            "seed": seed,
            "checkpoints": list(run.checkpoints),
            "regret": list(run.regret),
            "final_regret": run.regret[-1],
            "group_regret_per_round": run.regret[-1] / problem.horizon,
            "repairs": run.repairs,
            "communication": sent,
            "bits_per_user": sent / (problem.silos * problem.horizon),
            "clipped": run.clipped_rewards / (problem.silos * problem.horizon),
        }

    def promise(self) -> str:
        """The guarantee in a sentence, and between whom it holds.

        When actions react to raw data within a batch (not lazy), replacing a user changes what later users of the same silo and batch are
        given, so up to `sync` pairs (x, y) move at once. ZC24 counts one. Both are stated.
        """
        guarantee = self.mechanism.guarantee
        if guarantee is None:
            return "none: silos send sums as they are"
        every = f"{guarantee} In all {self.problem.steps} releases together; {self.mechanism.derivation}."
        if self.problem.lazy:
            return every
        loss = self.mechanism.protocol.loss(times=self.problem.sync)
        users = loss.epsilon(self.problem.delta)
        return (
            f"{every} Between streams that differ in one recorded (x, y); a user whose silo acts on raw data within a batch may move up "
            f"to {self.problem.sync} of them: ({users:.3g}, {self.problem.delta:g})-DP. The lazy form has no such gap."
        )


def simulate(
    name: str,
    *,
    silos: int = 100,
    dimension: int = 10,
    actions: int = 100,
    sync: int = 25,
    epsilon: float = 0.2,
    delta: float = 0.1,
    horizon: int = 10_000,
    runs: int = 25,
    seed: int = 0,
    setting: Setting = "tight",
    lazy: bool = False,
    progress: bool = False,
    confidence: float = 0.01,
    deviation: float = 0.25,
    data: Path | Silos | None = None,
    field: Field = "title",
    workers: int | None = None,
    log: Path | None = None,
) -> Result:
    """Runs a federated algorithm over seeds, on ZC24's synthetic instance or on an MSLR-WEB10K file (`data`: sets silos and dimension).

    `communication` is the number of bits that all silos send up in a run, `bits_per_user` the same per user, `clipped` the part of rewards
    that had to be cut to [0, 1], `repairs` how many released Gram matrices were not positive definite.
    """
    recorded = read_ranking(data, field=field, silos=min(silos, 10)) if isinstance(data, Path) else data
    if recorded is not None:
        silos, dimension = recorded.silos, recorded.dimension
    rounds = integer("horizon", horizon, at_least=1)
    problem = Problem(silos, dimension, actions, sync, epsilon, delta, rounds, setting, lazy, confidence)
    task = Task.of(name, problem, recorded, deviation)
    first = integer("seed", seed, at_least=0)
    done = sweep(task, range(first, first + integer("runs", runs, at_least=1)), label=name, progress=progress, workers=workers, path=log)
    configuration: dict[str, Any] = {**asdict(problem), "regularizer": task.settings.regularizer, "deviation": deviation}
    if recorded is not None:
        configuration["instance"] = "recorded"
    return Result(name, rounds, configuration, task.promise(), done, EXTRAS)


register(
    Entry("fedlinucb", "federated", PAPER, "server sees sums of silos", "none"),
    Entry("ldp-fedlinucb", "federated", PAPER, "nobody outside the silo", "(ε, δ)-DP of all that a silo sends"),
    Entry("sdp-fedlinucb", "federated", PAPER, "a shuffler of silos' messages", "(ε, δ)-DP of the shuffled messages, tiny ε only"),
    Entry("sdp-fedlinucb-vec", "federated", PAPER, "a shuffler of bits", "(ε, δ)-DP of the shuffled bits"),
    Entry("secagg-fedlinucb", "federated", "tacit", "secure aggregation of silos", "(ε, δ)-DP of the opened sums"),
)
