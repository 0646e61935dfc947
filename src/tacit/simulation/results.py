"""Results of a simulation: one flat record per run, the configuration, and summary statistics.

Every record holds at least `seed`, `checkpoints`, `regret` (cumulative, at the checkpoints) and
`final_regret`. Families of algorithms add columns (bits, batches, communication, repairs). Where an
environment does not know its true means, regret is unknown and its columns are missing. `summary`
is the output of `--json`; `rows` is a tidy table with one row per run and checkpoint.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import betainc

from tacit.errors import TacitError
from tacit.privacy import Guarantee
from tacit.simulation.log import Record, unwritable
from tacit.simulation.seeds import Runs
from tacit.version import __version__

Floats = npt.NDArray[np.float64]
NON_PRIVATE = "none: nothing is guaranteed to a participant"
CURVES = ("checkpoints", "regret", "realised", "estimates")  # columns that hold lists


NINE_OF_TEN = 0.9


def smooth_quantile(values: list[float], part: float) -> float:
    """The Harrell-Davis estimate of a quantile: a weighted mean of all order statistics.

    It varies less between sets of runs than a single order statistic (Harrell & Davis 1982).

    >>> round(smooth_quantile(list(range(1, 1001)), 0.9), 1)
    900.5
    """
    count = len(values)
    places = np.arange(count + 1) / count
    steps = np.diff(betainc((count + 1) * part, (count + 1) * (1 - part), places))
    return float(steps @ np.sort(values))


@dataclass(frozen=True)
class RegretBound:
    """A theorem, and the order of its regret bound as a function of the horizon."""

    theorem: str
    at: Callable[[npt.ArrayLike], Floats]
    order: ClassVar[str] = "order only, drawn with constant 1"


@dataclass(frozen=True)
class Result:
    """All runs of one algorithm under one configuration.

    Parameters
    ----------
    algorithm : str
        Name of the algorithm.
    horizon : int
        Number of participants or rounds.
    configuration : dict
        All options in force, defaults included.
    guarantee : Guarantee or None
        The guarantee to a participant; None without privacy.
    done : Runs
        The finished runs.
    extras : tuple of str
        Names of further columns whose means belong in the summary.
    bound : RegretBound, optional
        A theorem about the algorithm, which plots show; `tacit.papers.bounds.with_bound` adds it.

    Raises
    ------
    TacitError
        If no run was finished.

    Examples
    --------
    >>> from tacit import simulate
    >>> result = simulate("ucb1", arms=3, horizon=1000, runs=2)
    >>> result.short, result.regret.shape == (2, len(result.checkpoints))
    ('none', True)
    """

    algorithm: str
    horizon: int
    configuration: dict[str, Any]
    guarantee: Guarantee | None
    done: Runs
    extras: tuple[str, ...] = field(default=())
    bound: RegretBound | None = None

    def __post_init__(self) -> None:
        if not self.done.records:
            raise TacitError("no run was finished: nothing to report")

    @property
    def promise(self) -> str:
        """The guarantee as a sentence."""
        return NON_PRIVATE if self.guarantee is None else str(self.guarantee)

    def as_json(self) -> dict[str, Any] | None:
        """The guarantee as JSON data; None without privacy."""
        return None if self.guarantee is None else self.guarantee.to_dict()

    @property
    def short(self) -> str:
        """The guarantee in short notation, such as `(1, 0)-DP`."""
        return "none" if self.guarantee is None else self.guarantee.short

    @property
    def runs(self) -> list[Record]:
        """The records, one per run."""
        return self.done.records

    @property
    def checkpoints(self) -> Floats:
        """The rounds at which regret is recorded."""
        return np.array(self.runs[0]["checkpoints"], dtype=float)

    @property
    def regret_known(self) -> bool:
        """Whether the environment knows the true means, so that regret is recorded."""
        return "regret" in self.runs[0]

    @property
    def regret(self) -> Floats:
        """Cumulative pseudo-regret: one row per run, one column per checkpoint.

        Raises
        ------
        TacitError
            If regret is unknown.
        """
        if not self.regret_known:
            raise TacitError(
                f"the regret of {self.algorithm} is unknown: its environment does not say what its "
                "options are worth; look at the other columns of `rows`"
            )
        return np.array([record["regret"] for record in self.runs], dtype=float)

    @property
    def regret_mean(self) -> float:
        """Mean final regret."""
        return float(self.regret[:, -1].mean())

    @property
    def regret_sem(self) -> float | None:
        """Standard error of the mean final regret; None for a single run."""
        return float(self.curve()[1][-1]) if len(self.runs) > 1 else None

    @property
    def times_lower_bound(self) -> float | None:
        """Mean final regret divided by the lower bound; None without a bound.

        The bound is asymptotic and holds even with a trusted server.
        """
        if not self.regret_known or self.runs[0].get("lower_bound") is None:
            return None
        bound = self.mean("lower_bound")
        return self.regret_mean / bound if bound else None

    def mean(self, column: str) -> float:
        """Mean of a column over the runs; NaN where a value is unknown."""
        return float(np.mean([record[column] for record in self.runs], dtype=float))

    def curve(self) -> tuple[Floats, Floats]:
        """Mean and standard error of cumulative regret at the checkpoints.

        The standard error is NaN for a single run.
        """
        regret = self.regret
        if len(regret) == 1:
            return regret[0], np.full(regret.shape[1], math.nan)
        return regret.mean(axis=0), regret.std(axis=0, ddof=1) / math.sqrt(len(regret))

    def summary(self) -> dict[str, Any]:
        """The summary that `--json` prints."""
        mean, sem = (self.regret_mean, self.regret_sem) if self.regret_known else (None, None)
        served = self.mean("users") if "users" in self.runs[0] else self.horizon
        return {
            "algorithm": self.algorithm,
            "horizon": self.horizon,
            "regret_mean": mean,
            "regret_sem": sem,
            "time_average_regret": None if mean is None else mean / served,
            "guarantee": self.as_json(),
            **{name: self.mean(name) for name in self.extras if self.runs[0].get(name) is not None},
            "times_lower_bound": self.times_lower_bound,
            **self.winner(),
            **self.decided(),
            **self.paused(),
            "seconds": self.done.seconds,
            "asked": self.done.asked,
            "interrupted": self.done.interrupted,
            "version": __version__,
            "configuration": self.configuration,
            "runs": [_without_curves(record) for record in self.runs],
        }

    def decided(self) -> dict[str, Any]:
        """Fraction of runs that decided, and the 0.9 quantile of participants until a decision.

        Empty unless the runs stop at a decision; the quantile is None if fewer than 0.9 of them
        decide.
        """
        if "decided" not in self.runs[0]:
            return {}
        part, times = self.mean("decided"), [run["users"] for run in self.runs]
        last = round(smooth_quantile(times, NINE_OF_TEN)) if part >= NINE_OF_TEN else None
        return {"decided_part": part, "participants_to_decide": last}

    def paused(self) -> dict[str, Any]:
        """For each option that the guardrail paused, the number of runs; empty without a
        guardrail.
        """
        if "paused" not in self.runs[0]:
            return {}
        counts = Counter(option for run in self.runs for option in run["paused"])
        return {"paused_runs": dict(sorted(counts.items()))}

    def winner(self) -> dict[str, Any]:
        """The option that most runs recommend, their number, and the first run's arm summary.

        Empty where the best option depends on a context.
        """
        found = Counter(record.get("winner") for record in self.runs).most_common(1)[0]
        if found[0] is None:
            return {}
        return {
            "winner": found[0],
            "winner_runs": found[1],
            "estimates": self.runs[0]["estimates"],
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row per run and checkpoint.

        Where regret is unknown, yield one row per run with its other columns.
        """
        for record in self.runs:
            head = {**self.configuration, "algorithm": self.algorithm, "seed": record["seed"]}
            if not self.regret_known:
                yield {**head, **_without_curves(record)}
                continue
            for round_, regret in zip(record["checkpoints"], record["regret"], strict=True):
                yield {**head, "round": round_, "regret": regret}

    def frame(self) -> Any:
        """The rows as a pandas DataFrame, or a polars one without pandas; tacit depends on
        neither.
        """
        return data_frame(list(self.rows()))

    def plot(self, path: Path | str | None = None, *, time_average: bool = True) -> Any:
        """Plot regret against participants.

        Parameters
        ----------
        path : Path or str, optional
            File to write; its suffix selects the format.
        time_average : bool
            Plot regret per participant instead of cumulative regret.

        Returns
        -------
        matplotlib.figure.Figure or Path
            The figure, or the path if one is given.
        """
        from tacit.simulation.pictures import Panel, picture, save

        panel = Panel(f"{self.algorithm}, {len(self.runs)} runs", {self.algorithm: self})
        figure = picture([panel], time_average=time_average)
        return figure if path is None else save(figure, Path(path))


def data_frame(rows: list[dict[str, Any]]) -> Any:
    """Return rows as a pandas DataFrame, or a polars one without pandas."""
    for library, options in (("pandas", {}), ("polars", {"infer_schema_length": None})):
        with suppress(ModuleNotFoundError):
            return import_module(library).DataFrame(rows, **options)
    raise TacitError("a frame needs pandas or polars: pip install pandas, or pip install polars")


def _without_curves(record: Record) -> Record:
    return {key: value for key, value in record.items() if key not in CURVES}


def probe(out: Path) -> None:
    """Reject a directory that is not writable, before any work is done; leaves no files behind."""
    missing: list[Path] = []
    try:
        missing = [path for path in (out, *out.parents) if not path.exists()]
        out.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=out).close()
    except OSError as error:
        raise unwritable(out, error) from error
    finally:
        for path in missing:
            with suppress(OSError):
                path.rmdir()


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Atomic write: yield a temporary path, then sync it and move it into place.

    On an error the temporary file is removed and an existing file stays as it was.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        with partial.open("rb+") as written:
            os.fsync(written.fileno())
        partial.replace(path)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with suppress(OSError):
            partial.unlink()


def write_csv(path: Path, rows: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> None:
    """Write a tidy CSV table atomically, with one column for every name in any row."""
    listed = list(rows)
    if not listed:
        raise TacitError(f"nothing to write to {path}")
    names = list(dict.fromkeys(name for row in listed for name in row))
    with whole(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=names)
        writer.writeheader()
        writer.writerows(
            {
                key: json.dumps(v) if isinstance(v, (list, tuple, dict)) else v
                for key, v in row.items()
            }
            for row in listed
        )
