"""The commands around experiments: demo, plan, reproduce, algorithms.

Plain functions with annotated options; `tacit.cli` hangs them on the command line.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.options import AxisChoice, Delta, Epsilon, Json, Seed, interactive, whole
from tacit.cli.printing import print_json, sentence, table


def plan(
    options: Annotated[
        int, typer.Option(help="Number of options to choose among.", parser=whole, metavar="N")
    ],
    gap: Annotated[
        float, typer.Option(help="How much better the best option is, in success probability.")
    ],
    horizon: Annotated[
        int, typer.Option(help="Number of participants.", parser=whole, metavar="N")
    ],
    epsilon: Epsilon = 1.0,
    delta: Delta = None,
    runs: Annotated[
        int, typer.Option(help="Simulated runs for each row.", parser=whole, metavar="N")
    ] = 10,
    seed: Seed = 0,
    algorithms: Annotated[
        str, typer.Option(help="Names, comma-separated, instead of private-klucb's trust models.")
    ] = "",
    as_json: Json = False,
) -> None:
    """What an experiment would cost under each trust model, and which to take.

    Example: tacit plan --options 4 --gap 0.05 --horizon 1e6 --epsilon 1
    """
    from tacit.studies.plan import plan as make

    names = [name.strip() for name in algorithms.split(",") if name.strip()]
    how = {"runs": runs, "seed": seed, "algorithms": names, "progress": interactive()}
    result = make(options, horizon, gap, epsilon, delta, **how)  # type: ignore[arg-type]
    if as_json:
        costs = [asdict(cost) for cost in result.costs]
        print_json({"costs": costs, "recommendation": result.recommendation})
        return
    headings = ["trust", "regret", "± s.e.", "lost share", "settles at", "rounds", "bits each"]
    rows = [
        [
            cost.algorithm if names else cost.trust,
            None if cost.refused else cost.regret,
            cost.regret_sem,
            cost.lost_share,
            cost.users_to_settle,
            cost.batches,
            None if cost.refused else cost.bits_per_user,
        ]
        for cost in result.costs
    ]
    table(f"{options} options, gap {gap:g}, {horizon:,} participants", headings, rows)
    for cost in result.costs:
        said = f"cannot be had: {cost.refused}" if cost.refused else cost.guarantee
        sentence(cost.algorithm if names else cost.trust, said)
    sentence("advice", result.recommendation)


def reproduce(
    figure: Annotated[
        str,
        typer.Argument(help="cz23-fig1 ... cz23-fig5, tkms21, lzj22-fig2, zc24-fig2, zc24-fig3."),
    ],
    out: Annotated[Path, typer.Option(help="Directory for the picture and the tables.")] = Path(
        "figures"
    ),
    runs: Annotated[
        int | None, typer.Option(help="Number of runs; the papers' own number by default.")
    ] = None,
    axis: Annotated[
        AxisChoice,
        typer.Option(help="CZ23: the paper's epsilon, or the same (epsilon, delta) for all."),
    ] = AxisChoice.paper,
    data: Annotated[
        Path | None, typer.Option(help="MSLR-WEB10K fold file, for the figures that need it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw a figure of a paper from scratch: a picture and its data.

    Example: tacit reproduce cz23-fig2 --out figures
    """
    from tacit.figures import Options, lookup

    chosen = Options(runs, axis.value, data, progress=interactive())
    written = lookup(figure).draw(out, chosen)
    if as_json:
        print_json({"figure": figure, "files": [str(path) for path in written]})
        return
    for path in written:
        print(path)


def algorithms(as_json: Json = False) -> None:
    """List every named algorithm with its paper, trust model and guarantee."""
    from tacit.algorithms import algorithms as known

    shown = ("name", "family", "paper", "trust", "promise")
    entries = [{key: getattr(entry, key) for key in shown} for entry in known().values()]
    if as_json:
        print_json({"algorithms": entries})
        return
    table(
        "algorithms",
        ["name", "family", "paper", "who is trusted", "what is promised"],
        [list(entry.values()) for entry in entries],
    )


def demo(
    out: Annotated[Path, typer.Option(help="Directory for the pictures.")] = Path("demo-output"),
    as_json: Json = False,
) -> None:
    """What the trust models cost at the same promise, in noise and in regret: two tables, two
    pictures.
    """
    from tacit.studies import demo as demonstration

    rows = demonstration.noise_table()
    out.mkdir(parents=True, exist_ok=True)
    noise, regret = out / "noise.png", out / "regret.png"
    demonstration.draw(rows, noise)
    results = demonstration.regret_results()
    demonstration.draw_regret(results, regret)
    if as_json:
        summaries = {label: result.summary() for label, result in results.items()}
        print_json({"noise": rows, "regret": summaries, "pictures": [str(noise), str(regret)]})
        return
    sizes = demonstration.SIZES
    names = dict.fromkeys(str(row["trust"]) for row in rows)
    body: list[list[Any]] = [
        [name, *(row["std"] for row in rows if row["trust"] == name)] for name in names
    ]
    body.append(
        ["(sampling error of a coin)", *(row["sampling_std"] for row in rows[: len(sizes)])]
    )
    table(
        f"noise in the mean (standard deviation), by people in the round; {demonstration.PROMISE}",
        ["trust model", *(f"{n:,}" for n in sizes)],
        body,
    )
    ordered = sorted(results.items(), key=lambda item: item[1].regret_mean)
    lost = [
        [label, r.regret_mean, r.regret_sem, r.mean("bits_per_user"), r.promise.split(":")[0]]
        for label, r in ordered
    ]
    size = f"{demonstration.HORIZON:,} users, {demonstration.RUNS} runs"
    title = f"regret on one problem, {size}: what is lost while learning"
    table(title, ["trust model", "regret", "± s.e.", "bits per user", "guarantee"], lost)
    print(f"pictures: {noise} {regret}")
