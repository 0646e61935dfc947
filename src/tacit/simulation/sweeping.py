"""Sweeps: run the cells of a study on an engine, resumable after an interrupt or a crash.

Cells that are in the study's directory are not run again. Failed cells are reported with their
seed, and the next sweep retries them. The results file depends only on the study, not on the engine
or the number of workers.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from tacit.errors import TacitError, integer, one_of
from tacit.privacy import Guarantee
from tacit.simulation.engines import (
    ONE_THREAD,
    Answers,
    Failure,
    Unloadable,
    attempt,
    run_here,
    run_locally,
    run_on_ray,
)
from tacit.simulation.grid import Bundles, Study, read_study, study_of
from tacit.simulation.log import Rows, check_same, header
from tacit.simulation.progress import bar
from tacit.simulation.results import Result, Results
from tacit.simulation.seeds import Runs
from tacit.simulation.store import FAILURES, LOG, StudyStore, read_directory, read_results, stored
from tacit.simulation.study import weakest_of_runs, weakest_recorded
from tacit.simulation.table import Record

ENGINES = ("local", "ray")
PROBED = 5.0  # seconds of computation in a dry run
START = 1.5  # seconds until the workers have started


@dataclass(frozen=True)
class ExecutionConfig:
    """How a study is executed: engine, number of workers, and file format."""

    workers: int | None = None
    engine: str = "local"
    address: str | None = None
    format: str = "auto"
    progress: bool = False

    def __post_init__(self) -> None:
        one_of("engine", self.engine, ENGINES)
        if self.workers is not None:
            integer("workers", self.workers, at_least=0, remedy="0 is this process itself")
        if self.address is not None and self.engine != "ray":
            raise TacitError(
                f"address is {self.address!r}, but the engine is local. Use --engine ray, or leave "
                "--address out."
            )


@dataclass
class SweepOutcome:
    """Outcome of a sweep."""

    study: Study
    rows: Rows = field(default_factory=dict)
    failures: list[Record] = field(default_factory=list)
    before: int = 0  # cells that an earlier sweep finished
    seconds: float = 0.0
    interrupted: bool = False
    unread: int = 0  # damaged lines of the log, whose cells were run again
    file: Path | None = None  # the results file

    def results(self) -> Results:
        """The finished runs, by configuration."""
        return results_of(self.study.identity(), _parsed(self.rows), self.failures)


def results_of(
    study: Mapping[str, Any], rows: Iterable[Record], failures: Iterable[Record]
) -> Results:
    """The results of a study: one per configuration that has a run, in the order of the grid."""
    seeds, found = int(study["seeds"]), []
    for place, group in groupby(rows, key=lambda row: int(row["cell"]) // seeds):
        records = [{k: v for k, v in row.items() if v is not None} for row in group]
        about = study["configurations"][place]
        stated = about["guarantee_data"]
        guarantee = (
            weakest_of_runs(Guarantee.from_data(stated), records)
            if stated
            else weakest_recorded(one.get("guarantee") for one in records)
        )
        found.append(
            Result(
                about["label"],
                int(about["options"]["horizon"]),
                about["options"],
                guarantee,
                Runs(records, 0.0, False, seeds),
                tuple(about["extras"]),
            )
        )
    return Results(tuple(found), tuple(failures))


def _parsed(rows: Rows) -> Iterator[Record]:
    """The rows in the order of cells."""
    return (json.loads(rows[cell]) for cell in sorted(rows))


def sweep(
    study: Study | Path | str | None = None,
    *,
    out: Path | str | None = None,
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    progress: bool = False,
    **grid: Any,
) -> Results:
    """Run a study: every algorithm × problem × environment × guarantee × seed of a grid.

    Parameters
    ----------
    study : Study, Path or str, optional
        A study or a TOML file; without it, `**grid` describes the study.
    out : Path or str, optional
        Directory for finished cells; the same call resumes an interrupted sweep.
    workers : int, optional
        Number of processes; the number of cores by default. 0 runs in this process.
    engine : {"local", "ray"}
        Where the cells run.
    address : str, optional
        Address of the Ray cluster.
    progress : bool
        Show a progress bar.
    **grid
        The axes: `algorithms`, `problems`, `environments`, `guarantees`, `seeds`, `first_seed`.

    Returns
    -------
    Results
        One result per configuration, and the failures.

    Raises
    ------
    TacitError
        If the study is invalid, or `out` holds another study; raised before any run.
    KeyboardInterrupt
        If the sweep was interrupted; finished cells are kept in `out`.

    Examples
    --------
    >>> results = sweep(algorithms=["ucb1"], problems={"horizon": [100, 200]}, seeds=2, workers=0)
    >>> results.column("horizon"), results.column("seed")
    ([100, 100, 200, 200], [0, 1, 0, 1])
    """
    way = ExecutionConfig(workers, engine, address, progress=progress)
    if study is not None and grid:
        raise TacitError(f"a study and {', '.join(grid)} are given: leave one of them out")
    if study is None:
        study = study_of(grid)
    elif not isinstance(study, Study):
        study = read_study(Path(study))
    swept = run_study(study, way, None if out is None else Path(out))
    if swept.interrupted:
        raise KeyboardInterrupt(f"{len(swept.rows)} of {study.cells}")
    return swept.results()


def run_study(
    study: Study, execution: ExecutionConfig, out: Path | None, command: str = ""
) -> SweepOutcome:
    """Run the cells that are not finished, and write the results."""
    start, swept = time.perf_counter(), SweepOutcome(study)
    head = header(study.name, study.identity(), command)
    keeping = nullcontext() if out is None else stored(out, head, study.cells, execution.format)
    with keeping as store:
        if store is not None:
            swept.rows, swept.unread = dict(store.rows), store.unread
        swept.before = len(swept.rows)
        left = [cell for cell in _in_order(study) if cell not in swept.rows]
        try:
            if left:
                _run(swept, left, execution, store)
        except KeyboardInterrupt:
            swept.interrupted = True
        swept.failures.sort(key=lambda one: one["cell"])
        if store is not None:
            if left and not swept.interrupted:
                store.finish(swept.failures)
            swept.file = store.results if store.results.exists() else None
    swept.seconds = time.perf_counter() - start
    return swept


def _in_order(study: Study) -> list[int]:
    """Order the cells: first an eighth of the seeds of every configuration, then the rest.

    Early cells give a time estimate and an early report on all configurations. The rest runs by
    configuration, because prepared data are cached.
    """
    few = -(-study.seeds // 8)
    return sorted(range(study.cells), key=lambda cell: (cell % study.seeds >= few, cell))


def _run(
    swept: SweepOutcome, remaining: list[int], execution: ExecutionConfig, store: StudyStore | None
) -> None:
    """Run cells and log the finished ones."""
    total, done = swept.study.cells, len(swept.rows)
    task = Bundles(swept.study, tuple(swept.study.bundles(remaining)))
    answers = _answers(task, execution)
    with (
        bar(swept.study.name, total, done, execution.progress, lines=True) as advance,
        closing(answers),
    ):
        for number, bundle in answers:
            failed = isinstance(bundle, Failure)
            found = [(cell, bundle) for cell in task.cells[number]] if failed else bundle
            for cell, answer in found:
                if isinstance(answer, Failure):
                    failed_cell = {**swept.study.description(cell), "error": answer.reason}
                    swept.failures.append({**failed_cell, "trace": answer.trace})
                else:
                    swept.rows[cell] = answer
                    if store is not None:
                        store.add(cell, answer)
            advance(len(found))


def _answers(task: Bundles, execution: ExecutionConfig) -> Answers:
    numbers = range(len(task.cells))
    if execution.engine == "ray":
        yield from run_on_ray(task, numbers, execution.address, execution.workers or None)
        return
    workers = min(
        os.cpu_count() or 1 if execution.workers is None else execution.workers, len(numbers)
    )
    if workers:
        try:
            yield from run_locally(task, numbers, workers, ONE_THREAD)
            return
        except Unloadable:  # not picklable, e.g. defined in a script; no cell has run
            pass
    yield from run_here(task, numbers)


# Cost estimates, and studies on disk


@dataclass(frozen=True)
class CostEstimate:
    """Cost of a study, extrapolated from probe cells: seconds on one core and on these workers."""

    cells: int
    done: int
    configurations: int
    merged: int
    probes: int
    core_seconds: float
    seconds: float
    workers: int
    failures: tuple[dict[str, Any], ...] = ()


def estimate(
    study: Study, execution: ExecutionConfig, out: Path | None, budget: float = PROBED
) -> CostEstimate:
    """Estimate the cost of a study from its first cells.

    Runs the first cell of as many configurations as fit in `budget` seconds, at least one. Other
    configurations are assumed to cost the mean of their algorithm's probes.
    """
    done = _done_cells(study, execution, out)
    seconds: dict[str, list[float]] = {}
    failures: list[dict[str, Any]] = []
    start, probes = time.perf_counter(), 0
    attempt(study, 0)  # warm-up: the first cell loads modules and caches
    for place in _spread(len(study.configurations)):
        if probes and time.perf_counter() - start > budget:
            break
        cell = place * study.seeds
        _, took, answer = attempt(study, cell)
        probes += 1
        seconds.setdefault(study.configurations[place].label, []).append(took)
        if isinstance(answer, Failure):
            failures.append({**study.description(cell), "error": answer.reason})
    known = [took for listed in seconds.values() for took in listed]
    overall = sum(known) / len(known)
    means = {label: sum(listed) / len(listed) for label, listed in seconds.items()}
    each = [means.get(one.label, overall) for one in study.configurations]
    core = sum(each) * study.seeds * (1 - done / study.cells)
    workers = max(1, execution.workers if execution.workers is not None else os.cpu_count() or 1)
    return CostEstimate(
        study.cells,
        done,
        len(study.configurations),
        study.merged,
        probes,
        core,
        core / workers + START,
        workers,
        tuple(failures),
    )


def _spread(count: int) -> Iterator[int]:
    """Indices in bit-reversed order: neighbours, which cost about the same, come late.

    >>> list(_spread(7))
    [0, 4, 2, 6, 1, 5, 3]
    """
    size = 1
    while size < count:
        size *= 2
    width = size.bit_length() - 1
    for step in range(size):
        place = int(f"{step:0{width}b}"[::-1], 2) if width else 0
        if place < count:
            yield place


def _done_cells(study: Study, execution: ExecutionConfig, out: Path | None) -> int:
    known = None if out is None else read_directory(out, execution.format)
    if out is None or known is None:
        return 0
    check_same(out / LOG, known.head, header(study.name, study.identity()))
    return len(known.rows)


@dataclass(frozen=True)
class SavedStudy:
    """A study on disk, finished or not, as input of a report."""

    head: Mapping[str, Any]
    rows: list[Record]
    failures: list[Record]

    @property
    def name(self) -> str:
        """Name of the study."""
        return str(self.head["name"])

    @property
    def cells(self) -> int:
        """Number of runs in the study."""
        return len(self.head["study"]["configurations"]) * int(self.head["study"]["seeds"])

    def results(self) -> Results:
        """The finished runs, by configuration."""
        return results_of(self.head["study"], self.rows, self.failures)


def read_saved(directory: Path) -> SavedStudy:
    """Read the study in the directory of a sweep."""
    known = read_directory(directory)
    if known is None or not known.rows:
        raise TacitError(
            f"{directory} has no finished run in {LOG}. Give the directory of a sweep (tacit sweep "
            "study.toml)."
        )
    failed = directory / FAILURES
    failures = list(read_results(failed)) if failed.exists() else []
    return SavedStudy(known.head, list(_parsed(known.rows)), failures)
