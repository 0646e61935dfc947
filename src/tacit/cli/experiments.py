"""The commands plan, reproduce, attack and algorithms.

Functions with annotated options; `tacit.cli` registers them as commands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tacit.cli.options import (
    Address,
    AxisChoice,
    Delta,
    Engine,
    Epsilon,
    Json,
    Out,
    Runs,
    Seed,
    SizeChoice,
    Whole,
    Workers,
    argument,
    grouped,
    interactive,
    option,
)
from tacit.cli.printing import count_of, no_more, print_json, print_sentence, print_table

if TYPE_CHECKING:
    from tacit.studies.plan import Plan


@dataclass(frozen=True)
class PlanOptions:
    """Problem, guarantee and simulation of a plan."""

    options: Annotated[int, option("Number of options to choose among.", **Whole)] = 2
    baseline: Annotated[
        float | None, option("Success probability of the options today; default ½.")
    ] = None
    lift: Annotated[
        float | None, option("Relative improvement by the best option: 0.1 for 10%.")
    ] = None
    gap: Annotated[
        float | None, option("The improvement as a difference of success probabilities.")
    ] = None
    epsilon: Epsilon = 1.0
    delta: Delta = None
    participations: Annotated[int, option("Maximum participations per participant.", **Whole)] = 1
    dropout: Annotated[float, option("Share of participants who may drop out.")] = 0.0
    poisoned: Annotated[
        float, option("Share of corrupted participants: print their influence.")
    ] = 0.0
    rounds: Annotated[int | None, option("Maximum number of rounds.", **Whole)] = None
    per_day: Annotated[int | None, option("Participants per day.", **Whole)] = None
    horizon: Annotated[
        int | None, option("Number of people to serve: print the regret.", **Whole)
    ] = None
    control_share: Annotated[
        float | None, option("Minimum share of the control, and of options not shown worse.")
    ] = None
    runs: Annotated[int, option("Simulated runs per row.", **Whole)] = 60
    seed: Seed = 0


@grouped
def plan(
    options: PlanOptions,
    algorithms: Annotated[
        str, option("Comma-separated algorithms instead of the trust models.")
    ] = "",
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Compare the trust models for an experiment: participants, days, regret, and a recommendation.

    Example: tacit plan --baseline 0.02 --lift 0.1 --epsilon 1 --per-day 20000
    """
    from tacit.simulation import files
    from tacit.studies import plan as planning
    from tacit.studies import plan_pictures
    from tacit.studies.plan_request import PlanRequest

    if out is not None:
        files.probe(out)
    names = [name.strip() for name in algorithms.split(",") if name.strip()]
    question = PlanRequest.of(**vars(options), algorithms=names, progress=interactive())
    result = planning.answer(question)
    picture = None if out is None else str(plan_pictures.draw(result, out / "plan.png"))
    poisoning = None
    if out is not None and options.poisoned:
        poisoning = str(plan_pictures.draw_poisoning(question, result, out / "poisoning.png"))
    if as_json:
        costs = [cost.to_dict() for cost in result.costs]
        record: dict[str, Any] = {
            "costs": costs,
            "recommendation": result.recommendation,
            "picture": picture,
        }
        if options.poisoned:
            rows = [asdict(row) for row in result.influence]
            record |= {"influence": rows, "picture_of_poisoning": poisoning}
            record |= {"contextual_influence": [asdict(row) for row in result.contextual]}
        print_json(record)
        return
    print_plan(result, options.horizon)
    if options.poisoned:
        print_influence(result, options.poisoned)
    print_sentence("advice", result.recommendation)
    for drawn in (picture, poisoning):
        if drawn is not None:
            print_sentence("picture", drawn)


def print_plan(result: Plan, horizon: int | None) -> None:
    """Print the rows of a plan, without columns that are empty in every row."""
    columns = {
        "participants": "to decide",
        "days": "days",
        "worse": "on worse options",
        "regret": "regret",
        "lost_share": "lost share",
        "users_to_settle": "settles at",
        "rounds": "rounds",
        "bits_per_user": "bits each",
    }
    kept = {
        key: label
        for key, label in columns.items()
        if any(getattr(cost, key) is not None for cost in result.costs if not cost.infeasible)
    }
    several = len({cost.algorithm for cost in result.costs}) > 1
    rows = [
        [
            cost.algorithm if several else cost.trust,
            *(None if cost.infeasible else getattr(cost, key) for key in kept),
        ]
        for cost in result.costs
    ]
    served = "" if horizon is None else f"; {horizon:,} served"
    decided = "participants until nine of ten experiments are decided"
    title = f"{decided if 'participants' in kept else 'simulated runs'}{served}"
    print_table(title, ["algorithm" if several else "trust", *kept.values()], rows)
    for cost in result.costs:
        said = f"not available: {cost.infeasible}" if cost.infeasible else cost.guarantee
        said += f" Note: {cost.note}." if cost.note else ""
        print_sentence(cost.algorithm if several else cost.trust, said)


def print_influence(result: Plan, poisoned: float) -> None:
    """Print the influence of corrupted participants under each trust model."""
    if result.contextual:
        measured = [list(asdict(row).values()) for row in result.contextual]
        headings = ["trust", "statistic", "one report counts for", "regret if honest"]
        headings += [f"regret with {poisoned:.2%} corrupted", "regret of the best single option"]
        print_table("influence of corrupted participants, measured", headings, measured)
    if not result.influence:
        return
    rows = [
        [
            row.trust,
            "anything" if row.change is None else row.change,
            "anything" if row.shift is None else row.shift,
            row.people,
            f"{row.part:.2%}" if row.change is not None else "any",
        ]
        for row in result.influence
    ]
    headings = ["trust", "one report shifts a sum by", f"{poisoned:.2%} corrupted shift a mean by"]
    headings += ["corrupted to change the winner", "share"]
    print_table("influence of corrupted participants", headings, rows)


def reproduce(
    figure: Annotated[
        str,
        argument(
            "cz23-fig1 ... cz23-fig5, tkms21, lzj22-fig2, zc24-fig2, zc24-fig3, zc24-super, "
            "zc24-budgets."
        ),
    ],
    out: Annotated[Path, option("Directory for the picture and the tables.")] = Path("figures"),
    runs: Annotated[int | None, option("Number of runs; default as in the paper.", **Whole)] = None,
    axis: Annotated[
        AxisChoice, option("CZ23: the paper's epsilon, or the same (epsilon, delta) for all.")
    ] = AxisChoice.paper,
    data: Annotated[Path | None, option("MSLR-WEB10K fold file, for figures that need it.")] = None,
    size: Annotated[
        SizeChoice, option("The paper's size, or a small one with few runs for a first look.")
    ] = SizeChoice.paper,
    workers: Workers = None,
    engine: Engine = "local",
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Reproduce a figure of a paper: picture and data.

    The same command resumes a drawing that was interrupted or killed.

    Example: tacit reproduce cz23-fig2 --size small --out figures
    """
    from tacit.papers.figures import Options, lookup
    from tacit.simulation import files
    from tacit.simulation.sweeping import ExecutionConfig

    way = ExecutionConfig(workers, engine, address, progress=True)
    drawn, asked = lookup(figure), Options(runs, axis.value, data, size.value, way)
    drawn.check(asked)
    files.probe(out)
    if data is not None:
        data.open("rb").close()  # fail early, before panels that do not need the data
    written = drawn.draw(out, asked)
    if as_json:
        print_json({"figure": figure, "files": [str(path) for path in written]})
        return
    for path in written:
        print(path)


def attack(
    out: Annotated[Path, option("Directory for the pictures.")] = Path("attack-output"),
    games: Annotated[int, option("Number of attack games.", **Whole)] = 1000,
    runs: Runs = 5,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Attack a schedule that was claimed to be private, and compare private schedules.

    Example: tacit attack --out attack-output
    """
    from tacit.papers import schedule_attack as attacks
    from tacit.papers import schedules
    from tacit.simulation import files
    from tacit.simulation.study import RunConfig

    files.probe(out)
    RunConfig(runs, seed)
    outcome = attacks.attack(games, seed)
    found = schedules.compared(schedules.PROBLEM, runs, seed)
    pictures = [
        attacks.draw(outcome, out / "attack.png"),
        schedules.draw(found, out / "schedules.png"),
    ]
    rows = [one.summary for one in found]
    if as_json:
        written = [str(path) for path in pictures]
        print_json({"attack": asdict(outcome), "schedules": rows, "files": written})
        return
    print_table(
        f"adversary's success in {games:,} games; at most {outcome.limit:.3f} under "
        f"({outcome.epsilon:g}, {outcome.delta:g})-DP",
        ["view", "success rate", "epsilon at least"],
        [
            [
                label.replace("\n", " "),
                getattr(outcome, name),
                no_more(outcome.epsilon_at_least[name]),
            ]
            for name, label in attacks.SHOWN.items()
        ],
    )
    print_table(
        f"schedules, {count_of('run', runs, runs)}",
        ["schedule", "guarantee per participant", "synchronisations", "regret per round"],
        [
            [
                one.name,
                "none" if one.guarantee is None else one.guarantee.short,
                row["synchronisations"],
                row["regret_per_round"],
            ]
            for one, row in zip(found, rows, strict=True)
        ],
    )
    print_sentence("guarantee", str(found[-1].guarantee))
    print_sentence("pictures", " ".join(map(str, pictures)))


def algorithms(as_json: Json = False) -> None:
    """List every named algorithm with its paper, trust model, guarantee, and the trust models under
    which the live service runs it.
    """
    from tacit.algorithms import algorithms as known

    shown = ("name", "family", "paper", "trust", "guarantee", "deployable")
    entries = [{key: getattr(entry, key) for key in shown} for entry in known().values()]
    if as_json:
        print_json({"algorithms": entries})
        return
    heads = ["name", "paper", "trust model", "guarantee", "deployable"]
    for family in dict.fromkeys(entry["family"] for entry in entries):
        rows = [
            [entry["name"], entry["paper"], entry["trust"], entry["guarantee"], _live(entry)]
            for entry in entries
            if entry["family"] == family
        ]
        print_table(f"{family}: algorithms", heads, rows)
    print_sentence("next", "tacit simulate --algorithm NAME --help")


def _live(entry: Mapping[str, str]) -> str:
    """Whether the live service runs an algorithm under its trust models."""
    simulated = set(entry["trust"].split(", ")) - set(entry["deployable"].split(", "))
    if not entry["deployable"]:
        return "no"
    return f"not {', '.join(sorted(simulated))}" if simulated else "yes"
