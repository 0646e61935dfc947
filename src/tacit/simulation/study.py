"""Run named algorithms over many seeds; the Python API of `tacit simulate` and `tacit compare`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar, Unpack, overload

import numpy as np

from tacit.algorithms import ArmsProblem, ContextualProblem, LinearProblem, SilosProblem
from tacit.algorithms.problems import Problem, merged_options
from tacit.algorithms.registry import Algorithm, lookup, spelled
from tacit.assumptions import DishonestAtMost, DistinctRounds, Poisoned, Remark
from tacit.environments.contract import Environment, World
from tacit.errors import TacitError, did_you_mean, integer, probability
from tacit.experiment import Experiment
from tacit.names import is_own
from tacit.privacy import Guarantee, KnownPerRound, PureDP, weakest
from tacit.simulation.call_options import (
    ArmsAlgorithm,
    ArmsOptions,
    ContextualAlgorithm,
    ContextualOptions,
    LinearAlgorithm,
    LinearOptions,
    SilosAlgorithm,
    SilosOptions,
)
from tacit.simulation.driver import RunConditions, Trial
from tacit.simulation.poisoning import poisoning_of
from tacit.simulation.results import Result, Results
from tacit.simulation.seeds import over_seeds

Function = TypeVar("Function", bound=Callable[..., Any])
MOST_RUNS = 10_000_000
MOST_PILOTS = 20  # runs on which an option is matched


@dataclass(frozen=True)
class RunConfig:
    """Number of runs and how they are executed.

    Parameters
    ----------
    runs, seed : int
        Number of runs; their seeds are `seed`, `seed` + 1, and so on.
    progress : bool
        Show a progress bar.
    workers : int, optional
        Number of processes; the number of cores by default.
    log, resume
        File of all records, and whether to continue one; `compare` takes a directory.
    whole : bool
        All runs or none: re-raise an interrupt.
    user_by_user, until_decided, poisoned
        Conditions of the runs; see `RunConditions`.
    """

    runs: int = 20
    seed: int = 0
    progress: bool = False
    workers: int | None = None
    log: Path | None = None
    user_by_user: bool = False
    resume: bool = False
    whole: bool = False
    until_decided: bool = False
    poisoned: float = 0.0

    def __post_init__(self) -> None:
        remedy = "a fraction of all participants, such as 0.01"
        probability("poisoned", self.poisoned, remedy, zero=True)
        if self.poisoned and self.user_by_user:
            raise TacitError(
                f"poisoned is {self.poisoned:g}; it excludes user_by_user: leave one out"
            )
        if integer("runs", self.runs, at_least=1) > MOST_RUNS:
            raise TacitError(f"runs is {self.runs:.4g}: must be at most {MOST_RUNS:,}")
        integer("seed", self.seed, at_least=0)

    @property
    def seeds(self) -> range:
        """The seeds of all runs."""
        return range(self.seed, self.seed + self.runs)

    @property
    def conditions(self) -> RunConditions:
        """The conditions of every run; its problem sets the dropout."""
        return RunConditions(
            self.user_by_user, until_decided=self.until_decided, poisoned=self.poisoned
        )


HOW = tuple(entry.name for entry in fields(RunConfig))


def _parted(options: Mapping[str, Any]) -> tuple[RunConfig, dict[str, Any]]:
    """The run's configuration, and the options of problems."""
    how = {name: value for name, value in options.items() if name in HOW}
    return RunConfig(**how), {name: options[name] for name in options if name not in HOW}


def _documented(function: Function) -> Function:
    """Add every option with its help text to the documentation, for `help()`."""
    options = merged_options((ArmsProblem, LinearProblem, SilosProblem, ContextualProblem))
    lines = ["", "    Other Parameters", "    ----------------"]
    for name, declared in options.items():
        kind = declared.kind.__name__ if isinstance(declared.kind, type) else str(declared.kind)
        lines += [f"    {name} : {kind.replace('typing.', '')}", f"        {declared.help}"]
    text, examples = (function.__doc__ or "").split("    Examples\n", 1)
    function.__doc__ = "\n".join([text.rstrip(), *lines, "", f"    Examples\n{examples}"])
    return function


@overload
def simulate(
    algorithm: ArmsAlgorithm, environment: World | None = None, **options: Unpack[ArmsOptions]
) -> Result: ...
@overload
def simulate(
    algorithm: LinearAlgorithm, environment: World | None = None, **options: Unpack[LinearOptions]
) -> Result: ...
@overload
def simulate(
    algorithm: SilosAlgorithm, environment: World | None = None, **options: Unpack[SilosOptions]
) -> Result: ...
@overload
def simulate(
    algorithm: ContextualAlgorithm,
    environment: World | None = None,
    **options: Unpack[ContextualOptions],
) -> Result: ...
@overload
def simulate(algorithm: Algorithm, environment: World | None = None, **options: Any) -> Result: ...
@_documented
def simulate(
    algorithm: str | Algorithm, environment: World | None = None, **options: Any
) -> Result:
    """Run a named algorithm over seeds.

    Parameters
    ----------
    algorithm : str or Algorithm
        Name of an algorithm, or its entry `tacit.algorithms.lookup(name)`. Type checkers know the
        options of tacit's own names; for a name that is known only at run time, pass the entry.
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
    how, asked_for = _parted(options)
    entry = lookup(algorithm) if isinstance(algorithm, str) else algorithm
    problem = entry.make_problem(complete_options(entry, environment, asked_for), HOW)
    return study(entry, problem, how, environment)


def complete_options(
    entry: Algorithm, environment: World | None, options: dict[str, Any]
) -> dict[str, Any]:
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
            f"environment is a {kind}: must be a World. Give read_table('clicks.csv'), "
            "from_frame(frame), FromFunction(...) or OwnSilos(...)"
        )
    described = entry.problem.options()
    vain = [name for name in options if name in described and described[name].simulated]
    if vain:
        raise TacitError(
            f"{', '.join(map(spelled, vain))} would describe random instances, but the environment "
            "is your own: leave that out"
        )
    if isinstance(environment, Environment):
        limit = environment.horizon
        if limit and limit < environment.arms and "horizon" not in options:
            raise TacitError(
                f"the rarest option has {limit} recorded participants: must have at least "
                f"{environment.arms}, one per option. Record more, give a horizon, or resample"
            )
        return ({"horizon": limit} if limit else {}) | {"arms": environment.arms} | options
    return options if environment.horizon is None else {"horizon": environment.horizon} | options


def study(
    entry: Algorithm, problem: Problem, config: RunConfig, world: World | None = None
) -> Result:
    """All runs of one algorithm on one problem."""
    problem = with_pilot_totals(entry, problem, config)
    fitted, experiment = build_first_run(entry, problem, config, world)
    trial = Trial(entry.name, problem, world, config.conditions, first=config.seed)
    about = options_in_force(entry, fitted, world)
    about |= {"poisoned": config.poisoned} if config.poisoned else {}
    configuration = about | {"first_seed": config.seed}
    done = over_seeds(
        trial,
        config.seeds,
        label=entry.name,
        progress=config.progress,
        workers=config.workers,
        path=config.log,
        resume=config.resume,
        identity={"algorithm": entry.name, **about},
    )
    if done.interrupted and (config.whole or not done.records):
        raise KeyboardInterrupt(f"0 of {done.asked}")
    guarantee = guarantee_to(experiment, world, done.records, config.poisoned)
    return Result(entry.name, problem.horizon, configuration, guarantee, done, problem.extras)


def guarantee_to(
    experiment: Experiment,
    world: World | None,
    records: list[dict[str, Any]],
    poisoned: float = 0.0,
) -> Guarantee | None:
    """The guarantee to participants of this world; None without one.

    Recorded participants who are resampled take part without limit, so they have no guarantee.
    Corrupted participants add no noise that a guarantee of shared noise could rely on.
    """
    if world is not None and world.participations is None:
        return None
    found = experiment.guarantee
    if isinstance(experiment.mechanism.privacy, KnownPerRound):
        found = weakest_recorded(record.get("guarantee") for record in records)
    found = weakest_of_runs(found, records)
    if found is None:
        return None
    recorded_by = [] if world is None or world.remark is None else [world.remark]
    return found.assuming(*recorded_by, *_poisoned(found, poisoned))


def in_theorem_form(result: Result) -> Guarantee | None:
    """The guarantee of a result in the form that its paper's theorem states, where that is another:
    Rényi divergences of `dist-rdp-se`, the ρ of `dist-cdp-se`.

    >>> in_theorem_form(simulate("dist-cdp-se", horizon=2000, constants="paper", runs=1)).short
    '0.6667-zCDP'
    """
    entry = lookup(result.algorithm)
    if entry.form.also is None or result.guarantee is None or "environment" in result.configuration:
        return None
    if not (is_own(entry.build) and is_own(entry.form.also)):
        return None  # nothing checks what code from outside states there
    known = result.configuration
    problem = entry.problem.of(**{k: known[k] for k in entry.options if k in known})
    world = problem.start(0, None).world  # rewards may be bits, which have other noise
    return entry.form.also(problem.for_environment(world, 0))


def weakest_recorded(stored: Iterable[object]) -> Guarantee | None:
    """The weakest guarantee that the runs recorded; None if a run recorded none."""
    found = [Guarantee.from_data(data) if isinstance(data, Mapping) else None for data in stored]
    return weakest(found) if found else None


def weakest_of_runs(stated: Guarantee | None, records: list[dict[str, Any]]) -> Guarantee | None:
    """The guarantee of all runs: that of the first, unless instances of other seeds have another.

    Contextual experiments choose their statistic, and with it a δ, by the instance.
    """
    if stated is None:
        return None
    kept = (one["guarantee"] for one in records if isinstance(one.get("guarantee"), Mapping))
    found = dict.fromkeys(map(Guarantee.from_data, kept))
    claims = {one for one in stated.assumptions if isinstance(one, Remark) and not one.warns}
    others = [one for one in found if not (one.implies(stated) and claims <= one.assumptions)]
    return weakest([stated, *others]) if others else stated


def _poisoned(guarantee: Guarantee, corrupted: float) -> list[Poisoned]:
    """A remark where more participants are corrupted than a guarantee of shared noise assumes."""
    counted = [one for one in guarantee.assumptions if isinstance(one, DishonestAtMost)]
    part = Fraction(str(corrupted))
    return [Poisoned(part)] if counted and any(part > one.fraction for one in counted) else []


def build_first_run(
    entry: Algorithm, problem: Problem, config: RunConfig, world: World | None
) -> tuple[Problem, Experiment]:
    """Build the experiment of the first run without playing a round, to reject bad options
    early.
    """
    if not isinstance(problem, ArmsProblem):
        for name in ("user_by_user", "until_decided", "poisoned"):
            contextual = name == "poisoned" and isinstance(problem, ContextualProblem)
            if vars(config)[name] and not contextual:
                raise TacitError(f"{name} is for arms only, but {entry.name} is {entry.family}")
    start = problem.start(config.seed, world)
    if config.poisoned:
        poisoning_of(config.poisoned, start.world)
    fitted = problem.for_environment(start.world, config.seed)
    experiment = entry.build(fitted)
    often = 1 if world is None else world.participations or 1
    if often > 1 and _assumes_distinct_rounds(experiment):
        raise TacitError(
            f"a recorded participant occurs {often} times, perhaps twice in one round, but the "
            "guarantee assumes different rounds: leave --delta out, or keep one row of each"
        )
    stated = experiment.mechanism.stated
    if stated is not None and often > stated.participations:
        raise TacitError(
            f"a recorded participant occurs {often} times, but the guarantee covers "
            f"{stated.participations}: give --participations {often}, or keep fewer "
            "rows of each"
        )
    return fitted, experiment


def _assumes_distinct_rounds(experiment: Experiment) -> bool:
    stated = experiment.mechanism.stated
    if stated is None:
        return False
    composed = stated.participations > 1 and not isinstance(stated, PureDP)
    return DistinctRounds() in stated.assumptions or composed


def options_in_force(entry: Algorithm, problem: Problem, world: World | None) -> dict[str, Any]:
    """The options in force; those about random instances only if instances are random."""
    if world is None:
        return entry.describe(problem)
    described = entry.problem.options()
    used = {
        name: value
        for name, value in entry.describe(problem).items()
        if not described[name].simulated
    }
    participants = {} if world.remark is None else {"people": world.remark.to_dict()}
    return used | {"environment": type(world).__name__} | participants


@overload
def compare(
    names: Iterable[ArmsAlgorithm], environment: World | None = None, **options: Unpack[ArmsOptions]
) -> Results: ...
@overload
def compare(
    names: Iterable[LinearAlgorithm],
    environment: World | None = None,
    **options: Unpack[LinearOptions],
) -> Results: ...
@overload
def compare(
    names: Iterable[SilosAlgorithm],
    environment: World | None = None,
    **options: Unpack[SilosOptions],
) -> Results: ...
@overload
def compare(
    names: Iterable[ContextualAlgorithm],
    environment: World | None = None,
    **options: Unpack[ContextualOptions],
) -> Results: ...
@overload
def compare(
    names: Iterable[Algorithm], environment: World | None = None, **options: Any
) -> Results: ...
@_documented
def compare(
    names: Iterable[str | Algorithm], environment: World | None = None, **options: Any
) -> Results:
    """Run several algorithms on the same instances.

    Parameters
    ----------
    names : iterable of str or Algorithm
        Names of algorithms, or their entries.
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
    how, asked_for = _parted(options)
    entries = [lookup(name) if isinstance(name, str) else name for name in names]
    known = [*dict.fromkeys(name for entry in entries for name in entry.options), *HOW]
    for option in asked_for:
        if option not in known:
            hint = did_you_mean(option, known) or ": leave it out"
            which = ", ".join(entry.name for entry in entries)
            raise TacitError(f"none of {which} has the option {spelled(option)}{hint}")
    problems = []
    for entry in entries:
        mine = {name: value for name, value in asked_for.items() if name in entry.options}
        problems.append(entry.make_problem(complete_options(entry, environment, mine)))
        if entry.pilot_option is None:
            build_first_run(entry, problems[-1], how, environment)
    results: list[Result] = []
    for entry, problem in zip(entries, problems, strict=True):
        log = None if how.log is None else how.log / f"{entry.name}.jsonl"
        try:
            results.append(study(entry, problem, replace(how, log=log), environment))
        except KeyboardInterrupt:
            if not results:
                raise
            break
        if results[-1].done.interrupted:
            break
    return Results(tuple(results))


def with_pilot_totals(entry: Algorithm, problem: Problem, config: RunConfig) -> Problem:
    """The problem with the option that pilot runs set, unless it is given.

    Its value is the largest, to within 5 %, whose runs have no more of a total on these seeds than
    those of the reference algorithm.
    """
    if entry.pilot_option is None:
        return problem
    option, rule = entry.pilot_option
    if problem.values()[option] is not None:
        return problem
    seeds = config.seeds[: min(config.runs, MOST_PILOTS)]

    def total(name: str, value: int | None) -> float:
        asked = problem.changed(**{option: value})
        trial = Trial(name, asked, checkpoints=(problem.horizon,))
        done = over_seeds(trial, seeds, workers=config.workers)
        return float(np.mean([record[rule.total] for record in done.records]))

    wanted = total(rule.reference, None)
    low, high = 1, 64
    while total(entry.name, high) <= wanted and high < 1 << 40:
        low, high = high, 4 * high
    while high - low > max(1, low // 20):
        middle = round(float(np.sqrt(low * high)))
        if middle in (low, high):
            break
        low, high = (middle, high) if total(entry.name, middle) <= wanted else (low, middle)
    return problem.changed(**{option: low})
