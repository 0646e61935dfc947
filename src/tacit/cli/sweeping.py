"""The commands `sweep` and `report`, for grids of algorithms and problems.

Exit codes: 0 if every cell is finished, 1 if some failed, 2 if the study or the directory is
rejected, 130 after an interrupt. The same command resumes a sweep.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.options import Address, Engine, Json, Workers, argument, option
from tacit.cli.printing import print_json, print_sentence, print_table
from tacit.cli.simulating import exit_after_interrupt

if TYPE_CHECKING:
    from tacit.simulation.sweeping import CostEstimate, SweepOutcome

FAILED = 1
MOST_ROWS = 40
MOST_FAILURES = 5


def sweep(
    study: Annotated[Path, argument("Study file in TOML.")],
    out: Annotated[
        Path | None, option("Directory of results; by default the study's name, beside it.")
    ] = None,
    workers: Workers = None,
    engine: Engine = "local",
    address: Address = None,
    file_format: Annotated[
        str,
        option(
            "Results file: parquet, jsonl, or auto (parquet if pyarrow is installed).", "--format"
        ),
    ] = "auto",
    dry_run: Annotated[
        bool, option("Print the number of cells and the estimated time only.", "--dry-run")
    ] = False,
    as_json: Json = False,
) -> None:
    """Sweep a grid of algorithms, problems, environments, guarantees and seeds.

    The same command resumes a sweep that was interrupted or killed.

    Examples:

    tacit sweep study.toml --dry-run

    tacit sweep study.toml --workers 8

    tacit sweep study.toml --engine ray --address ray-head:6379
    """
    from tacit.simulation.grid import read_study
    from tacit.simulation.sweeping import ExecutionConfig, estimate, run_study

    way = ExecutionConfig(workers, engine, address, file_format, progress=True)
    where = study.with_suffix("") if out is None else out
    read = read_study(study)
    if dry_run:
        print_cost_estimate(estimate(read, way, where), as_json)
        return
    command = shlex.join(["tacit", *sys.argv[1:]])
    print_outcome(run_study(read, way, where, command), where, as_json)


def report(
    study: Annotated[Path, argument("Directory of a sweep.")],
    out: Annotated[Path | None, option("Directory of the report; the sweep's by default.")] = None,
    as_json: Json = False,
) -> None:
    """Report on a sweep: one self-contained HTML page, and tables as CSV.

    Example: tacit report study/
    """
    from tacit.papers.bounds import with_bounds
    from tacit.simulation.report import write_report

    paths = write_report(study, out, with_bounds)
    if as_json:
        print_json({path.stem: str(path) for path in paths})
        return
    for path in paths:
        print_sentence(path.stem, str(path))


def print_cost_estimate(estimate: CostEstimate, as_json: bool) -> None:
    """Print the cost estimate of a dry run."""
    from tacit.simulation.progress import duration

    if as_json:
        print_json(asdict(estimate))
    else:
        alone = f" ({estimate.merged:,} more are equal to others)" if estimate.merged else ""
        rows: list[list[Any]] = [
            ["configurations", f"{estimate.configurations:,}{alone}"],
            ["cells", estimate.cells],
            ["finished before", estimate.done],
            ["seconds on one core", round(estimate.core_seconds, 1)],
            [
                f"with {estimate.workers} worker{'s' * (estimate.workers != 1)}",
                duration(estimate.seconds),
            ],
        ]
        probes = f"measured on {estimate.probes} probe cell{'s' * (estimate.probes != 1)}"
        print_table(f"a dry run, {probes}", None, rows)
    _failed(list(estimate.failures))


def print_outcome(swept: SweepOutcome, directory: Path, as_json: bool) -> None:
    """Print the outcome of a sweep."""
    from tacit.simulation.store import LOG

    cells, done = swept.study.cells, len(swept.rows)
    if swept.unread:
        text = f"{directory / LOG}: {swept.unread} damaged lines were ignored, their cells repeated"
        typer.echo(f"tacit: {text}", err=True)
    rows = _summary(directory) if done else []
    if as_json:
        shown = [{k: v for k, v in one.items() if k != "trace"} for one in swept.failures]
        print_json(
            {
                "cells": cells,
                "done": done,
                "done_before": swept.before,
                "failed": shown,
                "seconds": swept.seconds,
                "interrupted": swept.interrupted,
                "results": None if swept.file is None else str(swept.file),
                "configurations": rows,
            }
        )
    else:
        _print_summary(rows, cells, done)
        if swept.before:
            print_sentence("resumed", f"{swept.before:,} of {cells:,} cells were finished before")
        if swept.file is not None:
            print_sentence("results", str(swept.file))
            print_sentence("report", f"tacit report {shlex.quote(str(directory))}")
    then = " cells are kept; the same command goes on"
    exit_after_interrupt(swept.interrupted, done, cells, then)
    _failed(swept.failures)


def _summary(directory: Path) -> list[dict[str, Any]]:
    from tacit.simulation.report import entries, summaries
    from tacit.simulation.sweeping import read_saved

    listed = entries(read_saved(directory))
    return [
        row
        | {
            "asked": row["guarantee"],
            "guarantee": one.result.guarantee_json(),
            "short": one.result.short,
        }
        for row, one in zip(summaries(listed), listed, strict=True)
    ]


def _print_summary(rows: list[dict[str, Any]], cells: int, done: int) -> None:
    """Print a table for each problem and environment."""
    counted = f"{done:,} of {cells:,} cells" if done < cells else f"{cells:,} cells"
    shown = rows[:MOST_ROWS]
    settings = dict.fromkeys((row["problem"], row["environment"]) for row in shown)
    for setting in settings:
        same = [row for row in shown if (row["problem"], row["environment"]) == setting]
        body = [
            [
                row["algorithm"],
                row["asked"],
                row["short"],
                row["regret_mean"],
                row["regret_sem"],
                row.get("bits_per_user"),
                row["runs"],
            ]
            for row in same
        ]
        title = "; ".join(part for part in setting if part not in ("default", "–")) or counted
        heads = ["algorithm", "requested", "guarantee", "regret", "± s.e.", "bits each", "runs"]
        print_table(title, heads, body)
    if len(rows) > MOST_ROWS:
        print_sentence(
            "note", f"first {MOST_ROWS} of {len(rows)} configurations; the report has all"
        )
    print_sentence("done", counted)


def _failed(failures: list[dict[str, Any]]) -> None:
    """Print failed cells, one line each on standard error, and exit with 1."""
    if not failures:
        return
    for one in failures[:MOST_FAILURES]:
        where = ", ".join(
            f"{axis} {one[axis]}"
            for axis in ("problem", "environment", "guarantee")
            if one[axis] not in ("default", "–")
        )
        typer.echo(
            f"tacit: cell {one['cell']} failed: {one['algorithm']}, seed {one['seed']}"
            f"{', ' if where else ''}{where}: {' '.join(one['error'].split())}",
            err=True,
        )
    if len(failures) > MOST_FAILURES:
        typer.echo(f"tacit: {len(failures) - MOST_FAILURES} more failed", err=True)
    raise typer.Exit(FAILED)
