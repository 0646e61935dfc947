"""The simulation driver: it runs an experiment round by round against a simulated environment.

The driver works for every family of algorithms. The learner proposes rounds, the environment plays
them, the protocol computes the estimate, and a `RunOutcome` adds up regret and communication. The
fast path samples the aggregate of all participants directly: it is exact in distribution and its
cost does not grow with their number. The slow path (`user_by_user`) runs every participant through
randomize, combine and analyze, with simulation noise.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from tacit.algorithms.problems import Problem
from tacit.algorithms.registry import lookup
from tacit.environments.contract import Environment, World
from tacit.environments.recorded import OutOfData
from tacit.errors import TacitError
from tacit.experiment import Experiment
from tacit.privacy import Guarantee, KnownPerRound, guaranteed_reports, weakest
from tacit.protocols.contract import Protocol, SumProtocol
from tacit.protocols.joint import JointSums
from tacit.simulation.poisoning import Liars
from tacit.types import Arm, Estimate, Floats, Played, Round

MOST_LISTED = 50  # options


def checkpoints_for(horizon: int, count: int = 60) -> tuple[int, ...]:
    """Return log-spaced rounds that end at the horizon.

    >>> checkpoints_for(1000, 4)
    (1, 10, 100, 1000)
    """
    points = np.geomspace(1, horizon, count).tolist()
    return tuple(sorted({horizon} | {max(1, min(horizon, round(t))) for t in points}))


@dataclass
class RunOutcome:
    """Outcome of a run so far: cumulative regret, piecewise linear in time, and communication."""

    experiment: Experiment
    gaps: Floats | None
    checkpoints: tuple[int, ...]
    means: Floats | None = None
    opened: int = 0
    rounds: int = 0
    wrapped: int = 0
    earned: dict[Guarantee | None, None] = field(default_factory=dict)
    participants: int = 0
    reals: int = 0
    bits: float = 0.0
    notes: Counter[str] = field(default_factory=Counter)
    _time: list[Floats] = field(default_factory=lambda: [np.zeros(1)])
    _regret: list[Floats] = field(default_factory=lambda: [np.zeros(1)])
    _lost: list[float] = field(default_factory=lambda: [0.0])
    _known: bool = True

    def add(self, played: Played, protocol: Protocol | None, *, wrapped: bool) -> None:
        """Add one round."""
        self._time.append(self._time[-1][-1] + played.time)
        if played.regret is None:
            self._known = False
        else:
            self._regret.append(self._regret[-1][-1] + played.regret)
            self._lost.append(self._lost[-1] + played.lost)
        if played.notes:
            self.notes.update(played.notes)
        if protocol is not None:
            self.opened += 1
            self.wrapped += wrapped
            self.participants += protocol.participants
            self.reals += protocol.participants * protocol.coordinates
            self.bits += protocol.participants * protocol.bits_per_participant
            if isinstance(self.experiment.mechanism.privacy, KnownPerRound):
                self.earned[protocol.guarantee] = None

    @property
    def played(self) -> int:
        """Number of participants or rounds of the horizon that are used."""
        return int(self._time[-1][-1])

    @property
    def regret(self) -> list[float] | None:
        """Cumulative pseudo-regret at the checkpoints; None where the true means are unknown."""
        if not self._known:
            return None
        time, regret = np.concatenate(self._time), np.concatenate(self._regret)
        return [float(value) for value in np.interp(self.checkpoints, time, regret)]

    @property
    def final_regret(self) -> float | None:
        """Cumulative pseudo-regret at the end of the run; independent of the checkpoints."""
        return float(self._regret[-1][-1]) if self._known else None

    @property
    def realised(self) -> list[float] | None:
        """Cumulative realised regret at the checkpoints; None where the true means are unknown."""
        if not self._known:
            return None
        ends = [float(part[-1]) for part in self._time]
        return [float(value) for value in np.interp(self.checkpoints, ends, self._lost)]

    @property
    def estimates(self) -> list[dict[str, Any]]:
        """The arm summary, one dict per option; empty with more than `MOST_LISTED` options."""
        few = len(self.experiment.options) <= MOST_LISTED
        return [asdict(row) for row in self.experiment.estimates()] if few else []

    @property
    def final_realised(self) -> float | None:
        """Cumulative realised regret at the end of the run; None where the true means are
        unknown.
        """
        return self._lost[-1] if self._known else None

    @property
    def guarantee(self) -> Guarantee | None:
        """The guarantee of the whole run.

        Where the guarantee is known only after each round, it is the weakest of all rounds.
        """
        found = weakest(list(self.earned)) if self.earned else None
        return self.experiment.mechanism.printed(found)


def run(
    experiment: Experiment,
    world: World,
    rng: np.random.Generator,
    *,
    noise: np.random.Generator | None = None,
    checkpoints: tuple[int, ...] | None = None,
    user_by_user: bool = False,
    dropout: float = 0.0,
    until_decided: bool = False,
    liars: float = 0.0,
) -> RunOutcome:
    """Run an experiment through its horizon, or until one option is shown to be the best.

    Parameters
    ----------
    experiment : Experiment
        The learner and its protocol.
    world : World
        The simulated environment.
    rng : numpy.random.Generator
        Generator of the environment.
    noise : numpy.random.Generator, optional
        Generator of the protocols' noise; `rng` by default.
    checkpoints : tuple of int, optional
        Rounds at which regret is recorded; `checkpoints_for(horizon)` by default.
    user_by_user : bool
        Simulate every participant; only for arms.
    dropout : float
        Fraction of each released round that is served but does not report: the largest number that
        the guarantee tolerates. Dropouts are independent of rewards.
    until_decided : bool
        Stop when one option is shown to be the best; only for arms.
    liars : float
        Fraction of participants that poison: they report against the best option
        (`tacit.simulation.poisoning`).

    Returns
    -------
    RunOutcome
        Regret and communication; the run ends early where recorded data are used up.
    """
    source = rng if noise is None else noise
    means: Floats | None = getattr(world, "means", None)
    gaps: Floats | None = None if means is None else getattr(world, "gaps", None)
    points = checkpoints or checkpoints_for(experiment.learner.horizon)
    outcome = RunOutcome(experiment, gaps, points, means)
    lies = Liars.among(liars, world) if liars else None
    with suppress(OutOfData):  # the run ends when the recorded data are used up
        while rounds := experiment.propose():
            outcome.rounds += any(round_.opened for round_ in rounds)
            for round_ in rounds:
                protocol = experiment.open(round_) if round_.opened else None
                reporting, silent = _parted(round_, dropout if round_.opened else 0.0)
                estimate: Estimate | None = None
                lying = 0
                if lies is not None and protocol is not None:
                    lying = lies.count(reporting.participants, rng)
                honest = replace(reporting, participants=reporting.participants - lying)
                if user_by_user and protocol is not None:
                    played, estimate = _one_by_one(world, reporting, protocol, rng)
                else:
                    played = world.play(honest, protocol, rng)
                    if lies is not None and lying and protocol is not None:
                        estimate = lies.told(protocol, honest.arm, played.load, lying, source)
                    elif protocol is not None:
                        estimate = protocol.simulate(played.load, source)
                for others in (silent, replace(reporting, participants=lying) if lying else None):
                    if others is not None:
                        outcome.add(world.play(others, None, rng), None, wrapped=False)
                if estimate is None:
                    experiment.skip(round_)
                else:
                    experiment.observe(round_, estimate)
                    if silent is not None and isinstance(round_.assignment, Arm):
                        experiment.learner.served(round_.arm, silent.participants)
                wrapped = estimate is not None and estimate.wrapped
                outcome.add(played, protocol, wrapped=wrapped)
            if (
                until_decided
                and experiment.learner.arms
                and experiment.learner.decided() is not None
            ):
                break
    return outcome


def _parted(round_: Round, dropout: float) -> tuple[Round, Round | None]:
    """Split a round into participants that report and dropouts (None without any)."""
    if not dropout:
        return round_, None
    reports = guaranteed_reports(round_.participants, dropout)
    silent = replace(round_, participants=round_.participants - reports)
    return replace(round_, participants=reports), silent if silent.participants else None


def _one_by_one(
    world: World, round_: Round, protocol: Protocol, rng: np.random.Generator
) -> tuple[Played, Estimate]:
    if not isinstance(world, Environment) or not isinstance(protocol, (SumProtocol, JointSums)):
        raise TacitError("only arms are simulated user by user: leave that out")
    reports = world.reports(round_.arm, round_.participants, rng)
    estimate, earned = protocol.run(reports, rng)
    return world.played(round_.arm, round_.participants, None, earned), estimate


@dataclass(frozen=True)
class Trial:
    """One run as a picklable function of its seed.

    Every seed draws a new instance, unless a world is given. The arm summary takes longer than many
    a run, so only the run of the seed `first` records it.
    """

    algorithm: str
    problem: Problem
    world: World | None = None
    user_by_user: bool = False
    checkpoints: tuple[int, ...] | None = None
    first: int | None = None
    until_decided: bool = False
    liars: float = 0.0

    def __call__(self, seed: int) -> dict[str, Any]:
        """Run with this seed and return a flat record."""
        start = self.problem.start(seed, self.world)
        problem = self.problem.fitted(start.world, seed)
        experiment = lookup(self.algorithm).build(problem)
        outcome = run(
            experiment,
            start.world,
            start.rng,
            noise=start.noise,
            checkpoints=self.checkpoints,
            user_by_user=self.user_by_user,
            dropout=getattr(problem, "dropout", 0.0),
            until_decided=self.until_decided,
            liars=self.liars,
        )
        regret, final = outcome.regret, outcome.final_regret
        known = {} if regret is None else {"regret": regret, "final_regret": final}
        if self.until_decided:
            known["decided"] = experiment.learner.decided() is not None
        return {
            "seed": seed,
            "checkpoints": list(outcome.checkpoints),
            **known,
            "rounds": outcome.rounds,
            **problem.record(outcome),
            "winner": experiment.best(),
            "estimates": outcome.estimates if seed == self.first else [],
            **({"rows_used": start.world.used} if hasattr(start.world, "used") else {}),
        }
