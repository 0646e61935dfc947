"""Sweeps: run the cells of a study on an engine, resumable after an interrupt or a crash.

Cells that are in the study's directory are not run again. Failed cells are reported with their
seed, and the next sweep retries them. The results file depends only on the study, not on the engine
or the number of workers.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tacit.errors import TacitError, integer
from tacit.simulation.engines import (
    ONE_THREAD,
    Answers,
    Failure,
    Unloadable,
    attempt,
    here,
    local,
    on_ray,
    versions,
)
from tacit.simulation.frame import Frame
from tacit.simulation.grid import Study, read_study, study_of
from tacit.simulation.parts import (
    FAILURES,
    Rows,
    StudyStore,
    check_same,
    read_manifest,
    read_results,
    stored,
)
from tacit.simulation.progress import bar

ENGINES = ("local", "ray")
FLUSH, SLOWEST_FLUSH = 1.0, 30.0  # seconds between parts: at least, and at most in a long sweep
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
        if self.engine not in ENGINES:
            raise TacitError(f"engine is {self.engine!r}; it must be one of {', '.join(ENGINES)}")
        if self.workers is not None:
            integer("workers", self.workers, at_least=0, remedy="0 is this process itself")
        if self.address is not None and self.engine != "ray":
            raise TacitError(
                f"address is {self.address!r}, but the engine is local: use --engine ray, or leave "
                "it out"
            )


@dataclass
class Swept:
    """Outcome of a sweep."""

    study: Study
    rows: Rows = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    before: int = 0  # cells that an earlier sweep finished
    seconds: float = 0.0
    interrupted: bool = False
    unread: list[str] = field(default_factory=list)
    results: Path | None = None

    def frame(self) -> Frame:
        """The rows, in the order of cells."""
        return Frame.of((json.loads(self.rows[cell]) for cell in sorted(self.rows)), self.failures)


def sweep(
    study: Study | Path | str | None = None,
    *,
    out: Path | str | None = None,
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    progress: bool = False,
    **grid: Any,
) -> Frame:
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
    Frame
        One row per run, and the failures.

    Raises
    ------
    TacitError
        If the study is invalid, or `out` holds another study; raised before any run.
    KeyboardInterrupt
        If the sweep was interrupted; finished cells are kept in `out`.

    Examples
    --------
    >>> frame = sweep(algorithms=["ucb1"], problems={"horizon": [100, 200]}, seeds=2, workers=0)
    >>> frame["horizon"], frame["seed"]
    ([100, 100, 200, 200], [0, 1, 0, 1])
    """
    way = ExecutionConfig(workers, engine, address, progress=progress)
    if study is not None and grid:
        raise TacitError(f"a study is given, and {', '.join(grid)} too: leave one of them out")
    if study is None:
        study = study_of(grid)
    elif not isinstance(study, Study):
        study = read_study(Path(study))
    swept = carry_out(study, way, None if out is None else Path(out))
    if swept.interrupted:
        raise KeyboardInterrupt(f"{len(swept.rows)} of {study.cells}")
    return swept.frame()


def carry_out(study: Study, way: ExecutionConfig, out: Path | None, command: str = "") -> Swept:
    """Run the cells that are not finished, and write the results."""
    start, swept = time.perf_counter(), Swept(study)
    described = {**manifest(study), "command": command}
    keeping = nullcontext() if out is None else stored(out, described, study.cells, way.format)
    with keeping as store:
        if store is not None:
            swept.rows, swept.unread = dict(store.rows), store.unread
        swept.before = len(swept.rows)
        left = [cell for cell in _in_order(study) if cell not in swept.rows]
        try:
            if left:
                _run(swept, left, way, store)
        except KeyboardInterrupt:
            swept.interrupted = True
        swept.failures.sort(key=lambda one: one["cell"])
        if store is not None:
            if left and not swept.interrupted:
                store.finish(swept.failures)
            swept.results = store.results if store.results.exists() else None
    swept.seconds = time.perf_counter() - start
    return swept


def _in_order(study: Study) -> list[int]:
    """Order the cells: first an eighth of the seeds of every configuration, then the rest.

    Early cells give a time estimate and an early report on all configurations. The rest runs by
    configuration, because prepared data are cached.
    """
    few = -(-study.seeds // 8)
    return sorted(range(study.cells), key=lambda cell: (cell % study.seeds >= few, cell))


def manifest(study: Study) -> dict[str, Any]:
    """Description of a study for its results directory: name, versions, configurations."""
    return {"name": study.name, "versions": versions(), "study": study.identity()}


def _run(swept: Swept, left: list[int], way: ExecutionConfig, store: StudyStore | None) -> None:
    """Run cells and store finished ones at short intervals."""
    fresh: Rows = {}
    start = flushed = time.monotonic()
    total, done = swept.study.cells, len(swept.rows)
    answers = _answers(swept.study, left, way)
    try:
        with (
            bar(swept.study.name, total, done, way.progress, lines=True) as advance,
            closing(answers),
        ):
            for cell, answer in answers:
                if isinstance(answer, Failure):
                    told = {**swept.study.told(cell), "error": answer.reason}
                    swept.failures.append({**told, "trace": answer.trace})
                else:
                    fresh[cell] = answer
                advance()
                now = time.monotonic()
                if now - flushed > min(SLOWEST_FLUSH, max(FLUSH, (now - start) / 100)):
                    _keep(swept, fresh, store)
                    fresh, flushed = {}, now
    finally:
        _keep(swept, fresh, store)


def _keep(swept: Swept, fresh: Rows, store: StudyStore | None) -> None:
    if fresh and store is not None:
        store.add(fresh)
    swept.rows |= fresh


def _answers(study: Study, cells: list[int], way: ExecutionConfig) -> Answers:
    if way.engine == "ray":
        yield from on_ray(study, cells, way.address, way.workers or None)
        return
    workers = min(os.cpu_count() or 1 if way.workers is None else way.workers, len(cells))
    if workers:
        try:
            yield from local(study, cells, workers, ONE_THREAD)
            return
        except Unloadable:  # not picklable, e.g. defined in a script; no cell has run
            pass
    yield from here(study, cells)


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
    study: Study, way: ExecutionConfig, out: Path | None, budget: float = PROBED
) -> CostEstimate:
    """Estimate the cost of a study from its first cells.

    Runs the first cell of as many configurations as fit in `budget` seconds, at least one. Other
    configurations are assumed to cost the mean of their algorithm's probes.
    """
    done = _done_cells(study, way, out)
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
            failures.append({**study.told(cell), "error": answer.reason})
    known = [took for listed in seconds.values() for took in listed]
    overall = sum(known) / len(known)
    means = {label: sum(listed) / len(listed) for label, listed in seconds.items()}
    each = [means.get(one.label, overall) for one in study.configurations]
    core = sum(each) * study.seeds * (1 - done / study.cells)
    workers = max(1, way.workers if way.workers is not None else os.cpu_count() or 1)
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


def _done_cells(study: Study, way: ExecutionConfig, out: Path | None) -> int:
    known = None if out is None else read_manifest(out)
    if out is None or known is None:
        return 0
    check_same(out, known, manifest(study), way.format)
    store = StudyStore(out, known["format"], study.cells)
    store.read()
    return len(store.rows)


@dataclass(frozen=True)
class Saved:
    """A study on disk, finished or not, as input of a report."""

    name: str
    manifest: Mapping[str, Any]
    rows: list[dict[str, Any]]
    failures: list[dict[str, Any]]

    @property
    def cells(self) -> int:
        """Number of runs in the study."""
        about = self.manifest["study"]
        return len(about["configurations"]) * int(about["seeds"])


def saved(directory: Path) -> Saved:
    """Read the study in the directory of a sweep."""
    known = read_manifest(directory)
    if known is None:
        raise TacitError(
            f"{directory} has no study.json: give the directory of a sweep (tacit sweep study.toml)"
        )
    about = known["study"]
    store = StudyStore(directory, known["format"], len(about["configurations"]) * about["seeds"])
    store.read()
    if not store.rows:
        raise TacitError(f"{directory} has no finished cell yet: nothing to report")
    rows = [json.loads(store.rows[cell]) for cell in sorted(store.rows)]
    failed = directory / FAILURES
    failures = list(read_results(failed)) if failed.exists() else []
    return Saved(known["name"], known, rows, failures)
