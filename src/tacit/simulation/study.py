"""Run named algorithms over many seeds; the Python API of `tacit simulate` and `tacit compare`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from tacit.algorithms.problems import LinearProblem, Problem
from tacit.algorithms.registry import Algorithm, lookup, spelled
from tacit.assumptions import DishonestAtMost, DistinctRounds, Poisoned
from tacit.environments.contract import Environment, World
from tacit.errors import TacitError, integer, probability
from tacit.experiment import Experiment
from tacit.privacy import Guarantee, weakest
from tacit.simulation.driver import Trial
from tacit.simulation.poisoning import Liars
from tacit.simulation.results import Result, Results
from tacit.simulation.seeds import over_seeds

MOST_RUNS = 10_000_000
MOST_PILOTS = 20  # runs on which the communication of dpe-fixed is matched to that of dpe


@dataclass(frozen=True)
class RunConfig:
    """Number of runs and how they are executed; the seeds are `seed`, `seed` + 1, and so on."""

    runs: int = 20
    seed: int = 0
    progress: bool = False
    workers: int | None = None
    log: Path | None = None
    user_by_user: bool = False
    resume: bool = False
    whole: bool = False  # all runs or none: re-raise an interrupt
    until_decided: bool = False  # stop when one option is shown to be the best
    liars: float = 0.0  # fraction of participants that poison, against the best option

    def __post_init__(self) -> None:
        remedy = "the part of all participants who lie, such as 0.01"
        probability("liars", self.liars, remedy, zero=True)
        if self.liars and self.user_by_user:
            raise TacitError("liars are simulated all at once, not user by user: leave one out")
        if integer("runs", self.runs, at_least=1) > MOST_RUNS:
            raise TacitError(f"runs is {self.runs:.4g}; nobody waits for more than {MOST_RUNS:,}")
        integer("seed", self.seed, at_least=0)

    @property
    def seeds(self) -> range:
        """The seeds of all runs."""
        return range(self.seed, self.seed + self.runs)


HOW = tuple(entry.name for entry in fields(RunConfig))


def simulate(algorithm: str, environment: World | None = None, **options: Any) -> Result:
    """Run a named algorithm over seeds.

    Parameters
    ----------
    algorithm : str
        Name in the registry; `tacit algorithms` lists them.
    environment : World, optional
        Your own environment; by default random instances of the algorithm's problem.
    **options
        Options of the algorithm's problem (such as `arms`, `horizon`, `epsilon`) and of `RunConfig`
        (such as `runs`, `seed`, `workers`).

    Returns
    -------
    Result
        One record per finished run; an interrupt keeps the finished runs.

    Raises
    ------
    TacitError
        If an option is unknown or out of range; raised before any run.

    Examples
    --------
    >>> result = simulate("dist-dp-se", arms=3, horizon=2000, runs=2)
    >>> result.guarantee.short, len(result.runs)
    ('(1, 0)-DP', 2)
    """
    how = RunConfig(**{name: options.pop(name) for name in HOW if name in options})
    entry = lookup(algorithm)
    return study(entry, entry.ask(asked(entry, environment, options)), how, environment)


def asked(entry: Algorithm, environment: World | None, options: dict[str, Any]) -> dict[str, Any]:
    """Complete the options with those that the environment determines.

    Raises
    ------
    TacitError
        If an option describes random instances although an environment is given.
    """
    if environment is None:
        return options
    if not isinstance(environment, World):
        kind = type(environment).__name__
        raise TacitError(
            f"the environment is a {kind}; give read_table('clicks.csv'), from_frame(frame), "
            "FromFunction(...) or OwnSilos(...)"
        )
    described = entry.problem.options()
    vain = [name for name in options if name in described and described[name].metadata["world"]]
    if vain:
        raise TacitError(
            f"{', '.join(map(spelled, vain))} would describe random instances, but the environment "
            "is your own: leave that out"
        )
    if isinstance(environment, Environment):
        limit = getattr(environment, "horizon", None)
        if limit and limit < environment.arms and "horizon" not in options:
            raise TacitError(
                f"the rarest option has {limit} recorded people, too few to serve "
                f"{environment.arms} options once each: record more, give a horizon, or resample"
            )
        return ({"horizon": limit} if limit else {}) | {"arms": environment.arms} | options
    return options


def study(entry: Algorithm, problem: Problem, how: RunConfig, world: World | None = None) -> Result:
    """All runs of one algorithm on one problem."""
    if isinstance(problem, LinearProblem) and "fixed_clients" in entry.options:
        problem = matched(entry, problem, how)
    fitted, experiment = tried(entry, problem, how, world)
    trial = Trial(
        entry.name,
        problem,
        world,
        how.user_by_user,
        first=how.seed,
        until_decided=how.until_decided,
        liars=how.liars,
    )
    about = recorded(entry, fitted, world) | ({"liars": how.liars} if how.liars else {})
    configuration = about | {"first_seed": how.seed}
    done = over_seeds(
        trial,
        how.seeds,
        label=entry.name,
        progress=how.progress,
        workers=how.workers,
        path=how.log,
        resume=how.resume,
        identity={"algorithm": entry.name, **about},
    )
    if done.interrupted and (how.whole or not done.records):
        raise KeyboardInterrupt(f"0 of {done.asked}")
    promise = promise_of(experiment, world, done.records, how.liars)
    horizon = int(getattr(problem, "horizon"))  # noqa: B009 - every problem that is played has one
    return Result(entry.name, horizon, configuration, promise, done, problem.extras)


def promise_of(
    experiment: Experiment,
    world: World | None,
    records: list[dict[str, Any]],
    liars: float = 0.0,
) -> Guarantee | None:
    """The guarantee to participants of this world; None without one.

    Recorded participants who are resampled take part without limit, so they have no guarantee.
    Corrupted participants add no noise that a guarantee of shared noise could rely on.
    """
    if getattr(world, "participations", 1) is None:
        return None
    remark = getattr(world, "remark", None)
    promised = experiment.mechanism.printed()
    if promised is not None:
        remarks = [*([remark] if remark else []), *_poisoned(promised, liars)]
        return promised.given(*remarks)
    return weakest_recorded(record.get("guarantee") for record in records)


def weakest_recorded(stored: Iterable[object]) -> Guarantee | None:
    """The weakest guarantee that the runs recorded; None without any."""
    found = [Guarantee.from_data(data) for data in stored if isinstance(data, Mapping)]
    return weakest(found) if found else None


def _poisoned(guarantee: Guarantee, corrupted: float) -> list[Poisoned]:
    """A remark where more participants are corrupted than a guarantee of shared noise assumes."""
    counted = [one for one in guarantee.assumptions if isinstance(one, DishonestAtMost)]
    part = Fraction(str(corrupted))
    return [Poisoned(part)] if counted and any(part > one.fraction for one in counted) else []


def tried(
    entry: Algorithm, problem: Problem, how: RunConfig, world: World | None
) -> tuple[Problem, Experiment]:
    """Build the experiment of the first run without playing a round, to reject bad options
    early.
    """
    if how.user_by_user and entry.family != "arms":
        raise TacitError(f"{entry.name} is {entry.family}; only arms are simulated user by user")
    if how.until_decided and entry.family != "arms":
        raise TacitError(f"{entry.name} is {entry.family}; only arms are ever decided")
    start = problem.start(how.seed, world)
    if how.liars:
        if entry.family != "arms":
            raise TacitError(f"{entry.name} is {entry.family}; only arms are simulated with liars")
        Liars.among(how.liars, start.world)
    fitted = problem.fitted(start.world, how.seed)
    experiment = entry.build(fitted)
    often = getattr(world, "participations", None) or 1
    if often > 1 and _assumes_distinct_rounds(experiment):
        raise TacitError(
            f"a recorded person occurs {often} times, perhaps twice in one round; the guarantee "
            "assumes different rounds: leave --delta out, or keep one row of each person"
        )
    if experiment.guarantee is not None and often > experiment.guarantee.participations:
        raise TacitError(
            f"a recorded person occurs {often} times, the promise is for "
            f"{experiment.guarantee.participations}: give --participations {often}, or keep fewer "
            "rows of each person"
        )
    return fitted, experiment


def _assumes_distinct_rounds(experiment: Experiment) -> bool:
    guarantee = experiment.guarantee
    return guarantee is not None and DistinctRounds() in guarantee.assumptions


def recorded(entry: Algorithm, problem: Problem, world: World | None) -> dict[str, Any]:
    """The options in force; those about random instances only if instances are random."""
    described = entry.problem.options()
    own = world is not None
    used = {
        name: value
        for name, value in entry.describe(problem).items()
        if not (own and described[name].metadata["world"])
    }
    remark = getattr(world, "remark", None)
    about = None if remark is None else remark.to_dict()
    named = {"environment": type(world).__name__, "people": about} if own else {}
    return used | {key: value for key, value in named.items() if value is not None}


def compare(names: Iterable[str], environment: World | None = None, **options: Any) -> Results:
    """Run several algorithms on the same instances.

    Parameters
    ----------
    names : iterable of str
        Names of algorithms.
    environment : World, optional
        Your own environment; by default random instances.
    **options
        As for `simulate`. Each algorithm gets the options that it has; at least one must have each.
        `log` is a directory here.

    Returns
    -------
    Results
        One result per name; fewer after an interrupt.

    Raises
    ------
    TacitError
        If an option is invalid for any algorithm; raised before any run.

    Examples
    --------
    >>> results = compare(["ucb1", "dist-dp-se"], arms=3, horizon=2000, runs=2)
    >>> [(result.algorithm, result.short) for result in results]
    [('ucb1', 'none'), ('dist-dp-se', '(1, 0)-DP')]
    """
    log: Path | None = options.pop("log", None)
    how = RunConfig(**{name: options.pop(name) for name in HOW if name in options})
    entries = [lookup(name) for name in names]
    for option in options:
        if not any(option in entry.options for entry in entries):
            raise TacitError(
                f"none of {', '.join(e.name for e in entries)} has {spelled(option)}: leave it out"
            )
    problems = []
    for entry in entries:
        mine = {name: value for name, value in options.items() if name in entry.options}
        problems.append(entry.ask(asked(entry, environment, mine)))
        if "fixed_clients" not in entry.options:
            tried(entry, problems[-1], how, environment)
    results: list[Result] = []
    for entry, problem in zip(entries, problems, strict=True):
        mine_too = replace(how, log=None if log is None else log / f"{entry.name}.jsonl")
        try:
            results.append(study(entry, problem, mine_too, environment))
        except KeyboardInterrupt:
            if not results:
                raise
            break
        if results[-1].done.interrupted:
            break
    return Results(tuple(results))


def matched(entry: Algorithm, problem: LinearProblem, how: RunConfig) -> LinearProblem:
    """Set the fixed number of clients per phase, unless it is given.

    It is the largest number, to within 5 %, that sends no more reals on these seeds than dpe.
    """
    if problem.fixed_clients is not None:
        return problem
    seeds = how.seeds[: min(how.runs, MOST_PILOTS)]

    def sent(name: str, clients: int | None) -> float:
        asked = replace(problem, fixed_clients=clients)
        trial = Trial(name, asked, checkpoints=(problem.horizon,))
        done = over_seeds(trial, seeds, workers=how.workers)
        return float(np.mean([record["reals"] for record in done.records]))

    wanted = sent("dpe", None)
    low, high = 1, 64
    while sent(entry.name, high) <= wanted and high < 1 << 40:
        low, high = high, 4 * high
    while high - low > max(1, low // 20):
        middle = round(float(np.sqrt(low * high)))
        if middle in (low, high):
            break
        low, high = (middle, high) if sent(entry.name, middle) <= wanted else (low, middle)
    return replace(problem, fixed_clients=low)
