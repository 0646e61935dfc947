"""The commands that simulate: one algorithm, or several on the same problems.

Plain functions with annotated options; `tacit.cli` hangs them on the command line. One `simulate`
serves all families of algorithms: the name says which of the options matter.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.checks import TacitError, integer
from tacit.cli.options import (
    Arms,
    Delta,
    Dropout,
    Epsilon,
    Growth,
    Horizon,
    IndexChoice,
    IndexOption,
    Instance,
    Json,
    Means,
    Out,
    RewardChoice,
    Rewards,
    Runs,
    Seed,
    SettingChoice,
    SettingOption,
    TrustChoice,
    TrustOption,
    interactive,
)
from tacit.cli.printing import print_json, table

if TYPE_CHECKING:
    from tacit.papers.arms import Problem
    from tacit.simulation import Result


def simulate(
    algorithm: Annotated[str, typer.Option(help="Name of the algorithm; see: tacit algorithms.")],
    epsilon: Epsilon = 1.0,
    delta: Delta = None,
    arms: Arms = 10,
    instance: Instance = "easy",
    means: Means = None,
    rewards: Rewards = RewardChoice.bernoulli,
    horizon: Annotated[
        float | None,
        typer.Option(help="Number of users (rounds); 1e6, or 1e4 for federated algorithms."),
    ] = None,
    growth: Growth = 4.0,
    runs: Runs = 20,
    seed: Seed = 0,
    setting: SettingOption = SettingChoice.tight,
    trust: TrustOption = TrustChoice.secagg,
    index: IndexOption = IndexChoice.chernoff,
    dropout: Dropout = 0.0,
    anytime: Annotated[
        bool,
        typer.Option(
            help="Do not tell the learner the horizon: restart it over periods that double."
        ),
    ] = False,
    replay: Annotated[
        Path | None,
        typer.Option(
            help="CSV of recorded rewards, one column per arm, instead of a random instance."
        ),
    ] = None,
    clip: Annotated[
        bool,
        typer.Option(
            help="Clip recorded rewards to [0, 1] and count them, instead of refusing them."
        ),
    ] = False,
    user_by_user: Annotated[
        bool,
        typer.Option(
            help="Run every user through the protocol, instead of drawing a batch at once."
        ),
    ] = False,
    dimension: Annotated[
        int | None,
        typer.Option(
            rich_help_panel="Linear and federated bandits",
            help="Dimension; 20, or 10 for federated.",
        ),
    ] = None,
    actions: Annotated[
        int | None,
        typer.Option(
            rich_help_panel="Linear and federated bandits",
            help="Number of actions; 1000, or 100 for federated.",
        ),
    ] = None,
    alpha: Annotated[
        float,
        typer.Option(
            rich_help_panel="Linear bandits", help="How fast the number of clients per phase grows."
        ),
    ] = 0.8,
    client_std: Annotated[
        float, typer.Option(rich_help_panel="Linear bandits", help="How much clients differ.")
    ] = 0.1,
    bound: Annotated[
        float, typer.Option(rich_help_panel="Linear bandits", help="Largest absolute reward.")
    ] = 1.0,
    population: Annotated[
        int | None,
        typer.Option(
            rich_help_panel="Linear bandits",
            help="How many clients there are; no limit by default.",
        ),
    ] = None,
    silos: Annotated[
        int, typer.Option(rich_help_panel="Federated bandits", help="Number of silos.")
    ] = 100,
    sync: Annotated[
        int,
        typer.Option(rich_help_panel="Federated bandits", help="Rounds between synchronisations."),
    ] = 25,
    lazy: Annotated[
        bool,
        typer.Option(
            rich_help_panel="Federated bandits", help="Decide from private statistics only."
        ),
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel="Federated bandits",
            help="MSLR-WEB10K fold file instead of the synthetic instance.",
        ),
    ] = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Simulate one algorithm and report its regret, guarantee and cost.

    Examples: tacit simulate --algorithm dist-dp-se --epsilon 1 --arms 10 --instance easy --horizon
    1e6 --runs 20 tacit simulate --algorithm cdp-dpe --dimension 20 --actions 1000 --epsilon 10
    --delta 0.25 tacit simulate --algorithm secagg-fedlinucb --silos 20 --epsilon 0.2 --delta 0.1
    --horizon 2000
    """
    from tacit.papers import lzj22, zc24
    from tacit.papers.arms import load_all
    from tacit.papers.catalogue import lookup

    load_all()
    family = lookup(algorithm).family
    users = integer(
        "horizon",
        horizon if horizon is not None else 1e4 if family == "federated" else 1e6,
        at_least=1,
    )
    common: dict[str, Any] = {
        "epsilon": epsilon,
        "horizon": users,
        "runs": runs,
        "seed": seed,
        "setting": setting.value,
    }
    if family == "linear":
        shape: dict[str, Any] = {
            "dimension": dimension or 20,
            "actions": actions or 1000,
            "alpha": alpha,
            "client_std": client_std,
            "bound": bound,
        }
        result = lzj22.simulate(
            algorithm,
            delta=_some(delta),
            population=population,
            progress=interactive(),
            **shape,
            **common,
        )
    elif family == "federated":
        shape = {
            "dimension": dimension or 10,
            "actions": actions or 100,
            "silos": silos,
            "sync": sync,
            "lazy": lazy,
            "data": data,
        }
        result = zc24.simulate(
            algorithm, delta=_some(delta), progress=interactive(), **shape, **common
        )
    else:
        problem = replace(
            _problem(epsilon, delta, arms, means, users, growth, setting, trust, index, dropout),
            anytime=anytime,
        )
        if replay is not None:
            result = _replay(algorithm, problem, replay, clip, runs, seed, user_by_user)
        else:
            result = _simulate_arms(
                algorithm, problem, rewards, instance, means, runs, seed, user_by_user, out
            )
    _report(result, as_json, out)


def _some(delta: float | None) -> float:
    """The delta of algorithms that do not default to a pure guarantee."""
    return 1e-5 if delta is None else delta


def compare(
    algorithms: Annotated[
        str, typer.Option(help="Names, comma-separated; see: tacit algorithms.")
    ] = ("private-klucb,dist-dp-se,cdp-se,split-dp-se,vb-sdp-ae,ldp-se"),
    epsilon: Epsilon = 1.0,
    delta: Delta = None,
    arms: Arms = 10,
    instance: Instance = "easy",
    means: Means = None,
    rewards: Rewards = RewardChoice.bernoulli,
    horizon: Horizon = 1e6,
    growth: Growth = 4.0,
    runs: Runs = 20,
    seed: Seed = 0,
    setting: SettingOption = SettingChoice.tight,
    trust: TrustOption = TrustChoice.secagg,
    index: IndexOption = IndexChoice.chernoff,
    dropout: Dropout = 0.0,
    out: Annotated[Path, typer.Option(help="Directory for the picture and the table.")] = Path(
        "compare-output"
    ),
    as_json: Json = False,
) -> None:
    """Compare several algorithms on the same problems: one picture, one table.

    Example: tacit compare --algorithms private-klucb,dist-dp-se,ldp-se --epsilon 1
    """
    problem = _problem(epsilon, delta, arms, means, horizon, growth, setting, trust, index, dropout)
    names = [name.strip() for name in algorithms.split(",") if name.strip()]
    compared: list[Result] = []
    for name in names:
        compared.append(
            _simulate_arms(name, problem, rewards, instance, means, runs, seed, False, None)
        )
        if compared[-1].sweep.interrupted:
            break
    _report_comparison(compared, out, as_json, f"{rewards.value} rewards, ε = {epsilon:g}")


def _problem(
    epsilon: float,
    delta: float | None,
    arms: int,
    means: str | None,
    horizon: float,
    growth: float,
    setting: SettingChoice,
    trust: TrustChoice,
    index: IndexChoice,
    dropout: float,
) -> Problem:
    from tacit.papers.arms import Problem

    count = len(_means(means) or ()) or arms
    users = integer("horizon", horizon, at_least=1)
    return Problem(
        count,
        users,
        epsilon,
        delta,
        growth,
        setting=setting.value,
        trust=trust.value,
        index=index.value,
        dropout=dropout,
    )


def _simulate_arms(
    name: str,
    problem: Problem,
    rewards: RewardChoice,
    instance: str,
    means: str | None,
    runs: int,
    seed: int,
    user_by_user: bool,
    out: Path | None,
) -> Result:
    from tacit.papers.arms import Task
    from tacit.papers.arms import simulate as run

    task = Task(name, problem, rewards.value, instance, _means(means), user_by_user)
    log = out / f"{name}.jsonl" if out is not None else None
    return run(task, runs=runs, seed=seed, progress=interactive(), log=log)


def _replay(
    name: str, problem: Problem, path: Path, clip: bool, runs: int, seed: int, user_by_user: bool
) -> Result:
    from tacit.environments import read_table
    from tacit.papers.arms import Task
    from tacit.papers.arms import simulate as run

    world = read_table(path, clip=clip)
    task = Task(
        name,
        replace(problem, arms=world.arms),
        "replay",
        environment=world,
        user_by_user=user_by_user,
    )
    result = run(task, runs=runs, seed=seed, progress=interactive())
    return replace(
        result,
        configuration={**result.configuration, "instance": None, "clipped_rewards": world.clipped},
    )


def _means(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise TacitError(
            f"means is {text!r}; give numbers separated by commas, such as 0.31,0.47"
        ) from error


def _report(result: Result, as_json: bool, out: Path | None) -> None:
    from tacit.simulation import write_csv

    if out is not None:
        write_csv(out / f"{result.algorithm}.csv", result.rows())
    summary = result.summary()
    if as_json:
        print_json(summary)
        return
    runs = summary.pop("runs")
    configuration = summary.pop("configuration")
    shown = ", ".join(f"{key} {value}" for key, value in configuration.items() if value is not None)
    rows: list[list[Any]] = [[key.replace("_", " "), value] for key, value in summary.items()]
    table(f"{result.algorithm}: {len(runs)} runs", None, [*rows, ["configuration", shown]])


def _report_comparison(compared: list[Result], out: Path, as_json: bool, title: str) -> None:
    from tacit.simulation import write_csv
    from tacit.simulation.pictures import Panel, draw_panels

    picture = out / "regret.png"
    write_csv(out / "regret.csv", [row for result in compared for row in result.rows()])
    panel = Panel(title, {result.algorithm: result for result in compared})
    draw_panels([replace(panel, title="regret per user")], picture, title=title)
    if as_json:
        print_json({"results": [result.summary() for result in compared], "picture": str(picture)})
        return
    ordered = sorted(compared, key=lambda result: result.regret_mean)
    headings = ["algorithm", "regret", "± s.e.", "bits per user", "batches", "seconds", "guarantee"]
    rows = [
        [
            r.algorithm,
            r.regret_mean,
            r.regret_sem,
            r.mean("bits_per_user"),
            r.mean("batches"),
            r.sweep.seconds,
            r.guarantee.split(":")[0],
        ]
        for r in ordered
    ]
    table(
        f"{title}, {compared[0].horizon:,} users, {len(compared[0].runs)} runs each", headings, rows
    )
    print(f"picture: {picture}")
