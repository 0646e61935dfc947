"""Four synchronisation schedules for silos, compared at the same privacy guarantee.

The refuted schedule synchronises when some silo's raw data has grown enough (Dubey & Pentland 2020,
ZC24 Algorithm 3). Its messages are private, their times are not, so it has no guarantee. ZC24
Appendix D asks for the same rule on private statistics. Every silo keeps private prefix sums of
every round, decides from those alone, and publishes them when it synchronises. Messages and times
are then post-processing of one private stream, with noise calibrated for T rounds instead of for
the number of synchronisations. The other two are fixed: the paper's, every B rounds, and our
geometric one, with about ln T synchronisations and no leak through timing. All guarantees are at
silo level, and silos are lazy.

Run it with: tacit attack
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.algorithms.silos_problem import SilosProblem
from tacit.bandits.contextual import moments
from tacit.bandits.contextual.federated import noise_shift, repair, reward_radius
from tacit.bandits.contextual.linucb import LinUCB, LinUCBPolicy
from tacit.bandits.contextual.schedules import even, geometric
from tacit.environments.silos import Synthetic
from tacit.privacy import ApproximateDP
from tacit.protocols.factorization import factorize
from tacit.protocols.prefix_noise import SiloStream, calibrated
from tacit.protocols.prefix_sums import PrefixSums
from tacit.simulation.pictures import axes, band, legend, save, style
from tacit.trust import TrustModel

Floats = npt.NDArray[np.float64]
REFUTED, PRIVATE = "refuted: raw data decides", "private statistics decide"
EVEN, GEOMETRIC = "fixed, every {sync} rounds", "fixed, geometric"
PROBLEM = SilosProblem.of(silos=10, dimension=5, actions=20, horizon=2000, epsilon=1.0, delta=1e-5)


@dataclass(frozen=True)
class ScheduleResult:
    """One schedule: its guarantee to a participant (None without one), synchronisation times,
    regret.

    `regret` is the group regret after every round (runs × rounds).
    """

    name: str
    guarantee: ApproximateDP | None
    synchronised: tuple[tuple[int, ...], ...]
    regret: Floats

    @property
    def summary(self) -> dict[str, Any]:
        """The result as data."""
        counts = [len(times) for times in self.synchronised]
        return {
            "schedule": self.name,
            "guarantee": None if self.guarantee is None else self.guarantee.to_dict(),
            "synchronisations": float(np.mean(counts)),
            "regret_per_round": float(self.regret[:, -1].mean()) / self.regret.shape[1],
        }


def threshold(problem: SilosProblem) -> float:
    """D of the rule (t - t_last) · log(det V / det V_last) > D: T ln(MT) / (dM) (Wang et al. 2020,
    the origin of the rule).
    """
    participants = problem.silos * problem.horizon
    return problem.horizon * math.log(participants) / (problem.dimension * problem.silos)


def private_sums(problem: SilosProblem, steps: int) -> PrefixSums:
    """Prefix sums with each silo's own noise, for this many steps."""
    stream = SiloStream(
        factorize("square-root", steps),
        problem.silos,
        moments.size(problem.dimension),
        moments.joint_sensitivity(problem.dimension),
        people=problem.sync,
    )
    return calibrated(stream, TrustModel.SILO, "discrete-gaussian", problem.privacy.target)


def compared(problem: SilosProblem, runs: int = 5, seed: int = 0) -> list[ScheduleResult]:
    """Run all four schedules on the same participants."""
    every = private_sums(problem, problem.horizon)
    outcomes = [
        _study(problem, runs, seed, REFUTED, every),
        _study(problem, runs, seed, PRIVATE, every),
    ]
    fixed = {
        EVEN.format(sync=problem.sync): even(problem.horizon, problem.sync),
        GEOMETRIC: geometric(problem.horizon),
    }
    for name, batches in fixed.items():
        sums = private_sums(problem, len(batches))
        outcomes.append(_study(problem, runs, seed, name, sums, batches))
    return outcomes


def _study(
    problem: SilosProblem,
    runs: int,
    seed: int,
    name: str,
    sums: PrefixSums,
    batches: tuple[int, ...] = (),
) -> ScheduleResult:
    """All runs of one schedule.

    Messages have the guarantee of the sums; so have their times, unless raw data decides.
    """
    played = [SilosRun(problem, sums, name, batches, seed + run).play() for run in range(runs)]
    times, regret = zip(*played, strict=True)
    stated = None if name == REFUTED else sums.guarantee(problem.privacy.delta)
    return ScheduleResult(name, stated, tuple(map(tuple, times)), np.array(regret))


class SilosRun:
    """One run: lazy LinUCB in every silo, private sums at every synchronisation."""

    def __init__(
        self,
        problem: SilosProblem,
        sums: PrefixSums,
        name: str,
        batches: tuple[int, ...],
        seed: int,
    ) -> None:
        participants, noise = (
            np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(2)
        )
        size = (problem.silos, problem.dimension, problem.environment.actions)
        self.world = Synthetic.draw(*size, participants, problem.environment.deviation)
        self.people = participants
        self.problem, self.sums, self.name = problem, sums, name
        self.due = frozenset(np.cumsum(batches).tolist())
        self.noise = self._noise(noise)
        worst = math.sqrt(float(sums.variances.max()))
        level = 1 - problem.failure_probability / 3
        self.regularizer = 1 + worst * moments.spectral_quantile(problem.dimension, level)
        self.last, self.synchronised = 0, list[int]()
        self.bias, self.gram = np.zeros(size[:2]), np.zeros((size[0], size[1], size[1]))
        self.base = self.regularizer * np.eye(problem.dimension)
        self.actor = self._actor(np.zeros(problem.dimension), 0.0)

    def _noise(self, rng: np.random.Generator) -> Floats:
        """Each silo's noise in its prefix sum of every step: silos × steps × numbers."""
        steps, size = self.sums.shape.steps, self.sums.size
        drawn = [
            np.asarray(self.sums.share.sample(rng, steps * size)).reshape(steps, size)
            for _ in range(self.sums.silos)
        ]
        return np.asarray(self.sums.shape.left @ np.array(drawn) / self.sums.scale)

    def _actor(self, bias: Floats, noise: float) -> LinUCB:
        problem, d = self.problem, self.problem.dimension
        radius = reward_radius(problem.silos * max(self.last, 1), d, problem.failure_probability)
        shift = noise_shift(noise, d, self.regularizer, problem.failure_probability)
        gram = tuple(map(tuple, self.base.tolist()))
        left = (radius,) * (problem.horizon - self.last)
        return LinUCBPolicy(tuple(bias.tolist()), gram, left, True, True, shift=shift).start(
            problem.silos
        )

    def play(self) -> tuple[list[int], Floats]:
        """Run; return the synchronisation times and the group regret after every round."""
        everyone, lost = np.arange(self.problem.silos), []
        for t in range(1, self.problem.horizon + 1):
            features = self.actor.as_features(self.world.contexts(self.people))
            chosen = self.actor.choose(features)
            means = self.world.mean_rewards(features)
            assert means is not None
            got = means[everyone, chosen]
            lost.append(float((means.max(axis=1) - got).sum()))
            self.actor.learn(self.world.rewards(got, self.people))
            if t < self.problem.horizon and self._speaks(t):
                self._synchronise(t)
        return self.synchronised, np.cumsum(lost)

    def _speaks(self, t: int) -> bool:
        """Whether silos synchronise after round t."""
        if self.name not in (REFUTED, PRIVATE):
            return t in self.due
        grown = self.actor.gram
        if self.name == PRIVATE:
            before = self.noise[:, self.last - 1] if self.last else 0.0
            fresh = self.noise[:, t - 1] - before  # difference of two private prefix sums of a silo
            grown = grown + moments.unpack(fresh, self.problem.dimension)[1]
        start = np.linalg.slogdet(self.base)[1]
        known = (repair(self.base + one - np.eye(len(one)), 1.0)[0] for one in grown)
        most = max(float(np.linalg.slogdet(matrix)[1] - start) for matrix in known)
        return (t - self.last) * most > threshold(self.problem)

    def _synchronise(self, t: int) -> None:
        """Publish and add up all silos' private sums."""
        self.bias += self.actor.bias
        self.gram += self.actor.gram
        self.last = t
        self.synchronised.append(t)
        step = t - 1 if self.name in (REFUTED, PRIVATE) else len(self.synchronised) - 1
        hidden, noise = moments.unpack(self.noise[:, step].sum(axis=0), self.problem.dimension)
        self.base = repair(self.gram.sum(axis=0) + noise, self.regularizer)[0]
        spread = math.sqrt(float(self.sums.variances[step]))
        self.actor = self._actor(self.bias.sum(axis=0) + hidden, spread)


def draw(outcomes: list[ScheduleResult], path: Path) -> Path:
    """Plot regret per round, and below it the synchronisation times of each schedule's first run.

    The legend states the guarantees.
    """
    figure, _ = axes(2, 1)
    above, below = figure.axes
    figure.set_size_inches(9.5, 7.0)
    above.get_gridspec().set_height_ratios((3, 1))
    for place, one in enumerate(outcomes):
        rounds = np.arange(1, one.regret.shape[1] + 1)
        curves = one.regret / rounds
        mean, error = curves.mean(axis=0), curves.std(axis=0) / math.sqrt(len(curves))
        look = style(place) | {"markevery": (60 * (place + 1), 240)}
        stated = "no guarantee" if one.guarantee is None else one.guarantee.short
        count = one.summary["synchronisations"]
        band(above, rounds, mean, error, label=f"{one.name}\n{stated}, {count:.0f} times", **look)
        times = one.synchronised[0]
        below.scatter(times, [place] * len(times), marker="|", s=120, color=look["color"])
    runs = len(outcomes[0].regret)
    title = f"silos that synchronise on four schedules, {runs} run{'s' if runs > 1 else ''}"
    above.set(ylabel="group regret per round", title=title, ylim=(0, None), xscale="log")
    legend(above)
    below.set(xlabel="round", xscale="log", xlim=above.get_xlim(), title="synchronisations")
    below.set_yticks(range(len(outcomes)), [one.name for one in outcomes])
    below.set_ylim(len(outcomes) - 0.4, -0.6)
    return save(figure, path)
