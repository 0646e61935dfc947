"""Results of a simulation: one flat record per run, the configuration, and summary statistics.

Every record holds at least `seed`, `checkpoints`, `regret` (cumulative, at the checkpoints) and
`final_regret`. Families of algorithms add columns (bits, batches, communication, repairs). Where an
environment does not know its true means, regret is unknown and its columns are missing. `summary`
is the output of `--json`; `rows` and `curves` are tidy tables.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, ClassVar, overload

import numpy as np
import numpy.typing as npt
from scipy.special import betainc

from tacit.errors import TacitError
from tacit.privacy import Guarantee
from tacit.simulation.seeds import Runs
from tacit.simulation.table import Record, Tabular, check_columns
from tacit.version import __version__

Floats = npt.NDArray[np.float64]
NON_PRIVATE = "none: nothing is guaranteed to a participant"
CURVES = (
    "checkpoints",
    "regret",
    "realised",
    "estimates",
    "answers",
    "gains",
)  # columns that hold lists
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


@dataclass(frozen=True, repr=False)
class Result(Tabular):
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
    bounds : tuple of RegretBound
        Theorems about the algorithm, which plots show; `tacit.papers.bounds.with_bounds` adds them.

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
    bounds: tuple[RegretBound, ...] = ()

    def __post_init__(self) -> None:
        if not self.done.records:
            raise TacitError("no run was finished. Allow at least one to finish.")

    @property
    def guarantee_text(self) -> str:
        """The guarantee as a sentence."""
        return NON_PRIVATE if self.guarantee is None else str(self.guarantee)

    def guarantee_json(self) -> dict[str, Any] | None:
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
                f"the regret of {self.algorithm} is unknown, because its environment has no true "
                "means. Use the other columns of `rows`."
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

    @property
    def lower_bound_slope(self) -> float | None:
        """The asymptotic lower bound on regret over ln T; None without a bound."""
        if self.times_lower_bound is None:
            return None
        return self.mean("lower_bound") / math.log(self.horizon)

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
            "guarantee": self.guarantee_json(),
            **{name: self.mean(name) for name in self.extras if self.runs[0].get(name) is not None},
            "times_lower_bound": self.times_lower_bound,
            **self.winner(),
            **{name: self.runs[0][name] for name in ("answers", "gains") if name in self.runs[0]},
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
        return {"winner": found[0], "winner_runs": found[1], "estimates": self.runs[0]["estimates"]}

    def rows(self) -> Iterator[Record]:
        """Yield one row per run: configuration, algorithm, seed and every column but the curves."""
        for record in self.runs:
            yield {**self._head(record), **_without_curves(record)}

    def curves(self) -> Iterator[Record]:
        """Yield one row per run and checkpoint, with cumulative regret; `rows` if it is unknown."""
        if not self.regret_known:
            yield from self.rows()
            return
        for record in self.runs:
            for round_, regret in zip(record["checkpoints"], record["regret"], strict=True):
                yield {**self._head(record), "round": round_, "regret": regret}

    def _head(self, record: Record) -> Record:
        return {**self.configuration, "algorithm": self.algorithm, "seed": record["seed"]}

    def overview(self) -> list[tuple[str, ...]]:
        """One line: algorithm, guarantee, regret, standard error, runs."""
        mean = f"{self.regret_mean:,.4g}" if self.regret_known else "unknown"
        sem = self.regret_sem if self.regret_known else None
        spread = "–" if sem is None else f"{sem:,.2g}"
        return [(self.algorithm, self.short, mean, spread, f"{len(self.runs):,}")]

    def _drawn(self) -> tuple[str, dict[str, Any]]:
        return f"{self.algorithm}, {len(self.runs)} runs", {self.algorithm: self}

    def __repr__(self) -> str:
        ((name, guarantee, mean, spread, runs),) = self.overview()
        return f"Result({name}, {guarantee}: regret {mean} ± {spread}, runs {runs})"


@dataclass(frozen=True, repr=False)
class Results(Tabular, Sequence[Result]):
    """The results of several configurations, of a comparison or of a sweep.

    Parameters
    ----------
    results : tuple of Result
        One per configuration that has a finished run, in order.
    failures : tuple of mapping
        Failed runs, each with its configuration, its seed and its error.

    Examples
    --------
    >>> from tacit import compare
    >>> results = compare(["ucb1", "dist-dp-se"], arms=3, horizon=2000, runs=2)
    >>> results
    Results(2 configurations, 4 runs, 0 failures)
    >>> results[1].short, len(results.where(seed=0).column("final_regret"))
    ('(1, 0)-DP', 2)
    """

    results: tuple[Result, ...]
    failures: tuple[Mapping[str, Any], ...] = ()

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> Results: ...
    def __getitem__(self, index: int | slice) -> Result | Results:
        if isinstance(index, slice):
            return Results(self.results[index], self.failures)
        return self.results[index]

    def __len__(self) -> int:
        return len(self.results)

    def rows(self) -> Iterator[Record]:
        """Yield one row per run of every configuration."""
        return chain.from_iterable(result.rows() for result in self)

    def curves(self) -> Iterator[Record]:
        """Yield one row per run and checkpoint of every configuration."""
        return chain.from_iterable(result.curves() for result in self)

    def overview(self) -> list[tuple[str, ...]]:
        """One line per configuration: algorithm, guarantee, regret, standard error, runs."""
        labelled = self._labelled().items()
        return [(label, *result.overview()[0][1:]) for label, result in labelled]

    def where(self, choose: Callable[[Record], bool] | None = None, **equal: Any) -> Results:
        """Select runs.

        Parameters
        ----------
        choose : callable, optional
            Predicate of a row.
        **equal
            Values that columns must have.

        Returns
        -------
        Results
            The runs that satisfy all conditions; `failures` is unchanged.

        Raises
        ------
        TacitError
            If no row has a named column.
        """
        check_columns(equal, list(self.rows()))

        def kept(row: Record) -> bool:
            same = all(row.get(name) == value for name, value in equal.items())
            return same and (choose is None or choose(row))

        found = []
        for one in self:
            runs = [run for run, row in zip(one.runs, one.rows(), strict=True) if kept(row)]
            if runs:
                found.append(replace(one, done=replace(one.done, records=runs)))
        return Results(tuple(found), self.failures)

    def _drawn(self) -> tuple[str, dict[str, Any]]:
        return "", self._labelled()

    def _labelled(self) -> dict[str, Result]:
        """The results by algorithm, and by the options that differ where one occurs repeatedly."""
        seen: dict[tuple[str, str], set[str]] = {}
        for one in self:
            for name, value in one.configuration.items():
                seen.setdefault((one.algorithm, name), set()).add(repr(value))
        found: dict[str, Result] = {}
        for one in self:
            options = one.configuration.items()
            differing = [f"{k} {v}" for k, v in options if len(seen[one.algorithm, k]) > 1]
            label = ", ".join([one.algorithm, *differing])
            found[f"{label} ({len(found) + 1})" if label in found else label] = one
        return found

    def __repr__(self) -> str:
        runs = sum(len(result.runs) for result in self)
        return (
            f"Results({len(self)} configurations, {runs:,} runs, {len(self.failures):,} failures)"
        )


def _without_curves(record: Record) -> Record:
    return {key: value for key, value in record.items() if key not in CURVES}
