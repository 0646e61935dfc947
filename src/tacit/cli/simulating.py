"""The commands that simulate: one algorithm, or several on the same problems.

Plain functions; `tacit.cli` hangs them on the command line. One `simulate` serves all families: the
algorithm's problem says which options there are.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.algorithms.registry import lookup
from tacit.checks import TacitError
from tacit.cli.options import (
    Algorithm,
    Clip,
    Json,
    Out,
    Replay,
    Resample,
    Runs,
    Seed,
    asks,
    interactive,
    own_data,
    said,
    warnings,
)
from tacit.cli.printing import print_json, table

if TYPE_CHECKING:
    from tacit.simulation import Result

INTERRUPTED = 130


@asks()
def simulate(
    algorithm: Algorithm,
    runs: Runs = 20,
    seed: Seed = 0,
    replay: Replay = None,
    clip: Clip = False,
    resample: Resample = False,
    user_by_user: Annotated[
        bool, typer.Option(help="Run everybody through the protocol, instead of all at once.")
    ] = False,
    out: Out = None,
    resume: Annotated[
        bool, typer.Option(help="Go on with the runs that are in the log in --out.")
    ] = False,
    as_json: Json = False,
    **options: Any,
) -> None:
    """Simulate one algorithm: its regret, what it found, what it promises and costs.

    Examples:

    tacit simulate --algorithm dist-dp-se --epsilon 1 --arms 10 --instance easy --horizon 1e6

    tacit simulate --algorithm cdp-dpe --dimension 20 --actions 1000 --epsilon 1

    tacit simulate --algorithm secagg-fedlinucb --silos 20 --horizon 2000 --lazy
    """
    entry = lookup(algorithm)
    if replay is not None and entry.family != "arms":
        raise TacitError(
            f"--replay is a table of options' rewards, {algorithm} is a {entry.family} algorithm: "
            "use one of arms, such as private-klucb"
        )
    if resume and out is None:
        raise TacitError("--resume goes on with the log in --out: give the directory")
    problem = entry.ask(said(options))  # refuses before anything is loaded or read
    environment = own_data(replay, clip, resample)
    from tacit.simulation import results, study

    if out is not None:
        results.probe(out)
    log = None if out is None else out / f"{algorithm}.jsonl"
    how = study.How(runs, seed, interactive(), None, log, user_by_user, resume)
    asked = study.asked(entry, environment, said(options)) if environment is not None else None
    result = study.study(entry, entry.ask(asked) if asked else problem, how, environment)
    report(result, as_json, out)


@asks()
def compare(
    algorithms: Annotated[
        str, typer.Option(help="Names, comma-separated; see: tacit algorithms.")
    ] = "private-klucb,dist-dp-se,cdp-se,split-dp-se,vb-sdp-ae,ldp-se",
    runs: Runs = 20,
    seed: Seed = 0,
    replay: Replay = None,
    clip: Clip = False,
    resample: Resample = False,
    out: Annotated[Path, typer.Option(help="Directory for the picture and the table.")] = Path(
        "compare-output"
    ),
    as_json: Json = False,
    **options: Any,
) -> None:
    """Compare several algorithms on the same problems: one picture, one table.

    Example: tacit compare --algorithms private-klucb,dist-dp-se,ldp-se --epsilon 1
    """
    names = [name.strip() for name in algorithms.split(",") if name.strip()]
    families = {lookup(name).family for name in names}
    if not names or len(families) > 1:
        raise TacitError(
            f"algorithms is {algorithms!r}; give names of one family"
            + (f", not of {' and '.join(sorted(families))}" if families else "")
        )
    environment = own_data(replay, clip, resample)
    from tacit.simulation import results, study

    results.probe(out)
    how = {"runs": runs, "seed": seed, "progress": interactive()}
    compared = study.compare(names, environment, **said(options), **how)
    report_comparison(compared, out, as_json, len(names))


def report(result: Result, as_json: bool, out: Path | None) -> None:
    """Writes the table, prints the summary; an interrupted one says so and exits with 130."""
    from tacit.simulation import write_csv

    if out is not None:
        write_csv(out / f"{result.algorithm}.csv", result.rows())
    summary = result.summary()
    used = result.configuration
    said = warnings(used.get("epsilon"), used.get("delta"))
    if as_json:
        print_json(summary | ({"warnings": said} if said else {}))
    else:
        runs, configuration = summary.pop("runs"), summary.pop("configuration")
        estimates = summary.pop("estimates", [])
        shown = ", ".join(
            f"{key} {value}" for key, value in configuration.items() if value is not None
        )
        rows = [
            [key.replace("_", " "), value] for key, value in summary.items() if value is not None
        ]
        table(f"{result.algorithm}: {len(runs)} runs", None, [*rows, ["configuration", shown]])
        standings(estimates)
        for line in said:
            print(f"note: {line}")
    stopped(result.sweep.interrupted, len(result.runs), result.sweep.asked)


def standings(rows: list[dict[str, Any]]) -> None:
    """Where the options stood at the end of the last run, the best first."""
    if not rows:
        return
    ordered = sorted(rows, key=lambda row: -row["best"])[:10]
    headings = ["option", "asked", "mean", "95% interval", "best, probably"]
    body = [
        [
            row["option"],
            row["participants"],
            row["mean"],
            f"{row['low']:.4f} – {row['high']:.4f}",
            f"{row['best']:.1%}",
        ]
        for row in ordered
    ]
    table("what the first run found (normal approximation)", headings, body)


def stopped(interrupted: bool, done: int, asked: int) -> None:
    """After an interrupt: how far it came, on standard error, and exit code 130."""
    if interrupted:
        typer.echo(f"tacit: interrupted, {done} of {asked}", err=True)
        raise typer.Exit(INTERRUPTED)


def report_comparison(compared: list[Result], out: Path, as_json: bool, asked: int) -> None:
    """One table and one picture; without matplotlib the table comes anyway."""
    from tacit.simulation import write_csv
    from tacit.simulation.pictures import Panel, draw_panels

    write_csv(out / "regret.csv", [row for result in compared for row in result.rows()])
    first, picture, missing = compared[0], out / "regret.png", ""
    known = all(result.regret_known for result in compared)
    if known:
        title = f"{first.horizon:,} participants, {len(first.runs)} runs each"
        panel = Panel(title, {result.algorithm: result for result in compared})
        try:
            draw_panels([panel], picture)
        except TacitError as error:
            missing = str(error)
    if as_json:
        drawn = str(picture) if known and not missing else None
        print_json({"results": [result.summary() for result in compared], "picture": drawn})
    else:
        ordered = sorted(compared, key=lambda r: r.regret_mean if known else 0.0)
        headings = ["algorithm", "regret", "± s.e.", "bits each", "rounds", "seconds", "guarantee"]
        rows = [
            [
                r.algorithm,
                r.regret_mean if known else None,
                r.regret_sem if known else None,
                r.mean("bits_per_user"),
                r.mean("rounds"),
                r.sweep.seconds,
                r.guarantee.split(":")[0],
            ]
            for r in ordered
        ]
        table(f"{first.horizon:,} participants, {len(first.runs)} runs each", headings, rows)
        print(f"no picture: {missing}" if missing else f"picture: {picture}" if known else "")
    done = sum(not result.sweep.interrupted for result in compared)
    stopped(compared[-1].sweep.interrupted, done, asked)
