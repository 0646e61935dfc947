"""The simulation driver: it runs an experiment round by round against a simulated environment.

The driver works for every family of algorithms. The learner proposes rounds, the environment plays
them, the protocol computes the estimate, and a `RunOutcome` adds up regret and communication. The
fast path samples the aggregate of all participants directly: it is exact in distribution and its
cost does not grow with their number. The slow path (`user_by_user`) runs every participant through
randomize, combine and analyze, with simulation noise.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from tacit.algorithms.problems import Problem, Start
from tacit.algorithms.registry import lookup
from tacit.algorithms.run_outcome import RunOutcome
from tacit.environments.contract import Environment, World
from tacit.environments.recorded import OutOfData
from tacit.environments.silos import SharedDraws, Synthetic
from tacit.errors import TacitError
from tacit.experiment import Experiment
from tacit.privacy import guaranteed_reports
from tacit.protocols.contract import Protocol, SumProtocol
from tacit.protocols.joint import JointSums
from tacit.simulation.engines import Failure, failure_of
from tacit.simulation.poisoning import Poisoning, poisoning_of
from tacit.types import Arm, Estimate, Played, Round


def checkpoints_for(horizon: int, count: int = 60) -> tuple[int, ...]:
    """Return log-spaced rounds that end at the horizon.

    >>> checkpoints_for(1000, 4)
    (1, 10, 100, 1000)
    """
    points = np.geomspace(1, horizon, count).tolist()
    return tuple(sorted({horizon} | {max(1, min(horizon, round(t))) for t in points}))


@dataclass(frozen=True)
class RunConditions:
    """Differences from a plain simulated run.

    Parameters
    ----------
    user_by_user : bool
        Simulate every participant; only for arms.
    dropout : float
        Fraction of each released round that is served but does not report: the largest number that
        the guarantee tolerates. Dropouts are independent of rewards.
    until_decided : bool
        Stop when one option is shown to be the best; only for arms.
    poisoned : float
        Fraction of participants that poison: they report against the best option
        (`tacit.simulation.poisoning`).
    """

    user_by_user: bool = False
    dropout: float = 0.0
    until_decided: bool = False
    poisoned: float = 0.0


PLAIN = RunConditions()


def run(
    experiment: Experiment,
    world: World,
    rng: np.random.Generator,
    *,
    noise: np.random.Generator | None = None,
    checkpoints: tuple[int, ...] | None = None,
    conditions: RunConditions = PLAIN,
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
    conditions : RunConditions
        Dropout, poisoning, early stop, and whether participants are simulated one by one.

    Returns
    -------
    RunOutcome
        Regret and communication; the run ends early where recorded data are used up.
    """
    points = checkpoints or checkpoints_for(experiment.learner.horizon)
    sources = (rng, rng if noise is None else noise)
    return finished(stages(experiment, world, sources, points, conditions))


Sources = tuple[np.random.Generator, np.random.Generator]  # of the environment, and of the noise
Returned = TypeVar("Returned")


def finished(stages: Generator[None, None, Returned]) -> Returned:
    """Run a generator to its end and return its value."""
    while True:
        try:
            next(stages)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def stages(
    experiment: Experiment,
    world: World,
    sources: Sources,
    checkpoints: tuple[int, ...],
    conditions: RunConditions = PLAIN,
) -> Generator[None, None, RunOutcome]:
    """Run an experiment, pausing after each of the learner's proposals; see `run`."""
    learner, means, rng = experiment.learner, world.means, sources[0]
    gaps = None if means is None else world.gaps
    outcome = RunOutcome(experiment, gaps, checkpoints, means, world.single_option_regret)
    poisoning = poisoning_of(conditions.poisoned, world) if conditions.poisoned else None
    with suppress(OutOfData):  # the run ends when the recorded data are used up
        while rounds := experiment.propose():
            outcome.rounds += any(round_.released for round_ in rounds)
            for round_ in rounds:
                if round_.released:
                    _release(outcome, world, round_, sources, conditions, poisoning)
                else:
                    played = world.play(round_, None, rng)
                    experiment.skip(round_)
                    outcome.add(played, None, wrapped=False)
            if conditions.until_decided and learner.arms and learner.decided() is not None:
                break
            yield
    return outcome


def _release(
    outcome: RunOutcome,
    world: World,
    round_: Round,
    sources: Sources,
    conditions: RunConditions,
    poisoning: Poisoning | None,
) -> None:
    """Play a round that is released: the honest, the corrupted and the dropouts."""
    rng, noise = sources
    protocol = outcome.experiment.open(round_)
    reporting, silent = _parted(round_, conditions.dropout)
    corrupted = 0 if poisoning is None else poisoning.count(reporting.participants, rng)
    honest = replace(reporting, participants=reporting.participants - corrupted)
    if conditions.user_by_user:
        played, estimate = _one_by_one(world, reporting, protocol, rng)
    else:
        played = world.play(honest, protocol, rng)
        if poisoning is not None and corrupted:
            estimate = poisoning.estimate(protocol, honest, played.load, corrupted, noise)
        else:
            estimate = protocol.simulate(played.load, noise)
    for others in (silent, replace(reporting, participants=corrupted)):
        if others.participants:
            outcome.add(world.play(others, None, rng), None, wrapped=False)
    outcome.experiment.observe(round_, estimate)
    if silent.participants and isinstance(round_.assignment, Arm):
        outcome.experiment.learner.served(round_.arm, silent.participants)
    outcome.add(played, protocol, wrapped=estimate.wrapped)


def _parted(round_: Round, dropout: float) -> tuple[Round, Round]:
    """Split a round into participants that report and dropouts."""
    total = round_.participants
    reports = guaranteed_reports(total, dropout) if dropout else total
    return replace(round_, participants=reports), replace(round_, participants=total - reports)


def _one_by_one(
    world: World, round_: Round, protocol: Protocol, rng: np.random.Generator
) -> tuple[Played, Estimate]:
    if not isinstance(world, Environment) or not isinstance(protocol, (SumProtocol, JointSums)):
        raise TacitError("user_by_user is for arms only: leave it out")
    reports = world.reports(round_.arm, round_.participants, rng)
    estimate, earned = protocol.run(reports, rng)
    return world.played(round_.arm, round_.participants, None, earned), estimate


@dataclass(frozen=True)
class Trial:
    """One run as a picklable function of its seed.

    Every seed draws a new instance, unless a world is given. The arm summary takes longer than many
    a run, so only the run of the seed `first` records it.

    Parameters
    ----------
    algorithm : str
        The algorithm's name.
    problem : Problem
        The problem with its options.
    world : World, optional
        The environment of all runs; by default a new instance per seed.
    conditions : RunConditions
        Dropout, poisoning, stopping rule and the like.
    checkpoints : tuple of int, optional
        The steps at which regret is recorded; by default spread over the horizon.
    first : int, optional
        The seed whose run records the arm summary.
    """

    algorithm: str
    problem: Problem
    world: World | None = None
    conditions: RunConditions = PLAIN
    checkpoints: tuple[int, ...] | None = None
    first: int | None = None

    def __call__(self, seed: int) -> dict[str, Any]:
        """Run with this seed and return a flat record."""
        return finished(self.stages(seed, self.problem.start(seed, self.world)))

    def stages(self, seed: int, start: Start) -> Generator[None, None, dict[str, Any]]:
        """Run from a start, pausing after each of the learner's proposals."""
        problem = self.problem.for_environment(start.world, seed)
        experiment = lookup(self.algorithm).build(problem)
        outcome = yield from stages(
            experiment,
            start.world,
            (start.rng, start.noise),
            self.checkpoints or checkpoints_for(experiment.learner.horizon),
            replace(self.conditions, dropout=problem.dropout),
        )
        regret, used = outcome.regret, start.world.used
        known = {} if regret is None else {"regret": regret, "final_regret": outcome.final_regret}
        if self.conditions.until_decided:
            known["decided"] = experiment.learner.decided() is not None
        return {
            "seed": seed,
            "checkpoints": list(outcome.checkpoints),
            **known,
            "rounds": outcome.rounds,
            **problem.record(outcome),
            "winner": experiment.best(),
            "estimates": outcome.estimates if seed == self.first else [],
            **(outcome.answers if seed == self.first else {}),
            **({} if used is None else {"rows_used": used}),
        }


def together(trials: Sequence[Trial], seed: int) -> list[dict[str, Any] | Failure]:
    """The records of trials with this seed that share their draws (`Problem.shared_draws`).

    The trials take turns, a synchronisation each. Records are those of separate runs. A trial that
    fails does not end the others.
    """
    starts = [trial.problem.start(seed, None) for trial in trials]
    world = starts[0].world
    assert isinstance(world, Synthetic)
    draws = SharedDraws(world, starts[0].rng, len(trials))
    running = {
        place: trial.stages(seed, replace(start, world=draws.reader(place)))
        for place, (trial, start) in enumerate(zip(trials, starts, strict=True))
    }
    found: dict[int, dict[str, Any] | Failure] = {}
    while running:
        for place, stage in list(running.items()):
            try:
                next(stage)
                continue
            except StopIteration as end:
                found[place] = end.value
            except Exception as error:
                found[place] = failure_of(error)
            draws.leave(place)
            del running[place]
    return [found[place] for place in range(len(trials))]
