"""The commands that run experiments: simulate, compare, plan, reproduce, algorithms.

Plain functions with annotated options; `tacit.cli` hangs them on the command line. One `simulate` serves all families of
algorithms: the name says which of the options matter.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.checks import TacitError, integer
from tacit.printing import print_json, table

if TYPE_CHECKING:
    from tacit.papers.arms import Problem
    from tacit.simulation import Result


class SettingChoice(StrEnum):
    """Whose constants."""

    tight = "tight"
    paper = "paper"


class RewardChoice(StrEnum):
    """What rewards look like."""

    bernoulli = "bernoulli"
    gaussian = "gaussian"
    beta = "beta"


class TrustChoice(StrEnum):
    """Who is trusted, for private-klucb."""

    secagg = "secagg"
    shuffle = "shuffle"
    central = "central"
    local = "local"


class IndexChoice(StrEnum):
    """The index of private-klucb."""

    chernoff = "chernoff"
    variance = "variance"


class AxisChoice(StrEnum):
    """What an epsilon in a figure means."""

    paper = "paper"
    equal = "equal"


Epsilon = Annotated[float, typer.Option(help="Epsilon of the guarantee.")]
Delta = Annotated[float | None, typer.Option(help="Delta of the guarantee; none for a pure one.")]
Arms = Annotated[int, typer.Option(help="Number of arms of a random instance.")]
Instance = Annotated[str, typer.Option(help="Random instance: easy (means in [0.25, 0.75]) or hard ([0.45, 0.55]).")]
Means = Annotated[str | None, typer.Option(help="Means of the arms, comma-separated, instead of a random instance.")]
Rewards = Annotated[RewardChoice, typer.Option(help="Law of the rewards.")]
Horizon = Annotated[float, typer.Option(help="Number of users.")]
Growth = Annotated[float, typer.Option(help="Growth of batches in successive elimination.")]
Runs = Annotated[int, typer.Option(help="Number of runs.")]
Seed = Annotated[int, typer.Option(help="First seed; run r has seed + r.")]
SettingOption = Annotated[SettingChoice, typer.Option(help="tight: exact calibration and radii; paper: printed constants.")]
TrustOption = Annotated[TrustChoice, typer.Option(help="private-klucb: who is trusted.")]
IndexOption = Annotated[IndexChoice, typer.Option(help="private-klucb: rigorous bound, or a tighter one that is Gaussian in its tails.")]
Dropout = Annotated[float, typer.Option(help="Fraction of users who may drop out of a batch; shares are set so that the guarantee holds.")]
Out = Annotated[Path | None, typer.Option(help="Directory for a tidy CSV of every run.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


def simulate(
    algorithm: Annotated[str, typer.Option(help="Name of the algorithm; see: tacit algorithms.")],
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
    user_by_user: Annotated[bool, typer.Option(help="Run every user through the protocol, instead of drawing a batch at once.")] = False,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Simulate one algorithm and report its regret, guarantee and cost.

    Example: tacit simulate --algorithm dist-dp-se --epsilon 1 --arms 10 --instance easy --horizon 1e6 --runs 20
    """
    problem = _problem(epsilon, delta, arms, means, horizon, growth, setting, trust, index, dropout)
    result = _simulate_arms(algorithm, problem, rewards, instance, means, runs, seed, user_by_user, out)
    _report(result, as_json, out)


def compare(
    algorithms: Annotated[str, typer.Option(help="Names, comma-separated; see: tacit algorithms.")] = (
        "private-klucb,dist-dp-se,cdp-se,split-dp-se,vb-sdp-ae,ldp-se"
    ),
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
    out: Annotated[Path, typer.Option(help="Directory for the picture and the table.")] = Path("compare-output"),
    as_json: Json = False,
) -> None:
    """Compare several algorithms on the same problems: one picture, one table.

    Example: tacit compare --algorithms private-klucb,dist-dp-se,ldp-se --epsilon 1
    """
    problem = _problem(epsilon, delta, arms, means, horizon, growth, setting, trust, index, dropout)
    names = [name.strip() for name in algorithms.split(",") if name.strip()]
    compared: list[Result] = []
    for name in names:
        compared.append(_simulate_arms(name, problem, rewards, instance, means, runs, seed, False, None))
        if compared[-1].sweep.interrupted:
            break
    _report_comparison(compared, out, as_json, f"{rewards.value} rewards, ε = {epsilon:g}")


def plan(
    options: Annotated[int, typer.Option(help="Number of options to choose among.")],
    gap: Annotated[float, typer.Option(help="How much better the best option is, in success probability.")],
    horizon: Annotated[float, typer.Option(help="Number of users.")],
    epsilon: Epsilon = 1.0,
    delta: Delta = None,
    runs: Annotated[int, typer.Option(help="Number of simulated runs per trust model.")] = 10,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """What an experiment would cost under each trust model, and which to take.

    Example: tacit plan --options 4 --gap 0.05 --horizon 1e6 --epsilon 1
    """
    from tacit.papers.planning import plan as make

    result = make(options, integer("horizon", horizon, at_least=1), gap, epsilon, delta, runs=runs, seed=seed)
    if as_json:
        print_json({"costs": [asdict(cost) for cost in result.costs], "recommendation": result.recommendation})
        return
    headings = ["trust", "regret", "± s.e.", "lost share", "users to settle", "batches", "bits per user", "guarantee"]
    rows = [
        [c.trust, c.regret, c.regret_sem, c.lost_share, c.users_to_settle, c.batches, c.bits_per_user, c.guarantee.split(":")[0]]
        for c in result.costs
    ]
    table(f"{options} options, gap {gap:g}, {int(horizon):,} users", headings, rows)
    print(result.recommendation)


def reproduce(
    figure: Annotated[str, typer.Argument(help="cz23-fig1 ... cz23-fig5, tkms21.")],
    out: Annotated[Path, typer.Option(help="Directory for the picture and the tables.")] = Path("figures"),
    runs: Runs = 20,
    axis: Annotated[
        AxisChoice, typer.Option(help="The papers' epsilon, or the same (epsilon, delta) guarantee for all.")
    ] = AxisChoice.paper,
    data: Annotated[Path | None, typer.Option(help="MSLR-WEB10K fold file, for the figures that need it.")] = None,
    as_json: Json = False,
) -> None:
    """Draw a figure of a paper from scratch: a picture and its data.

    Example: tacit reproduce cz23-fig2 --out figures
    """
    from tacit.papers.figures import FIGURES, Options
    from tacit.papers.figures import reproduce as draw

    if figure not in FIGURES:
        raise TacitError(f"figure is {figure!r}; known are {', '.join(FIGURES)}")
    written = draw(figure, out, Options(runs, axis.value, data, progress=_interactive()))
    if as_json:
        print_json({"figure": figure, "files": [str(path) for path in written]})
        return
    for path in written:
        print(path)


def algorithms(as_json: Json = False) -> None:
    """List every named algorithm with its paper, trust model and guarantee."""
    from tacit.papers.arms import load_all
    from tacit.papers.catalogue import CATALOGUE

    load_all()
    entries = [asdict(entry) for entry in CATALOGUE.values()]
    if as_json:
        print_json({"algorithms": entries})
        return
    table("algorithms", ["name", "family", "paper", "who is trusted", "what is promised"], [list(entry.values()) for entry in entries])


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
    return Problem(count, users, epsilon, delta, growth, setting=setting.value, trust=trust.value, index=index.value, dropout=dropout)


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
    return run(task, runs=runs, seed=seed, progress=_interactive(), log=log)


def _means(text: str | None) -> tuple[float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise TacitError(f"means is {text!r}; give numbers separated by commas, such as 0.31,0.47") from error


def _interactive() -> bool:
    return sys.stderr.isatty()


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
        [r.algorithm, r.regret_mean, r.regret_sem, r.mean("bits_per_user"), r.mean("batches"), r.sweep.seconds, r.guarantee.split(":")[0]]
        for r in ordered
    ]
    table(f"{title}, {compared[0].horizon:,} users, {len(compared[0].runs)} runs each", headings, rows)
    print(f"picture: {picture}")
