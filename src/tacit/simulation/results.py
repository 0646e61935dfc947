"""Results of a simulation: one flat record per run, the whole configuration beside them, and the
numbers people ask for.

Every record holds at least `seed`, `checkpoints`, `regret` (cumulative, at the checkpoints) and
`final_regret`; families of algorithms add their own columns (bits, batches, communication,
repairs). `summary` is what the command line prints with `--json`; `rows` is a tidy table, one row
per run and checkpoint.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.checks import TacitError
from tacit.simulation.sweep import Record, Sweep

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Result:
    """All runs of one algorithm under one configuration."""

    algorithm: str
    horizon: int
    configuration: dict[str, Any]
    guarantee: str
    sweep: Sweep
    extras: tuple[str, ...] = field(
        default=()
    )  # names of further columns whose means belong in the summary

    def __post_init__(self) -> None:
        if not self.sweep.records:
            raise TacitError("no run was finished: nothing to report")

    @property
    def runs(self) -> list[Record]:
        """The records."""
        return self.sweep.records

    @property
    def checkpoints(self) -> Floats:
        """The rounds at which regret was taken."""
        return np.array(self.runs[0]["checkpoints"], dtype=float)

    @property
    def regret(self) -> Floats:
        """Cumulative pseudo-regret: one row per run, one column per checkpoint."""
        return np.array([record["regret"] for record in self.runs], dtype=float)

    @property
    def regret_mean(self) -> float:
        """Mean final regret."""
        return float(self.regret[:, -1].mean())

    @property
    def regret_sem(self) -> float:
        """Standard error of the mean final regret; 0 for a single run."""
        return self._sem(self.regret[:, -1])

    def mean(self, column: str) -> float:
        """The mean of a column over runs."""
        return float(np.mean([record[column] for record in self.runs]))

    def curve(self) -> tuple[Floats, Floats]:
        """Mean and standard error of cumulative regret at the checkpoints."""
        regret = self.regret
        sem = (
            regret.std(axis=0, ddof=1) / math.sqrt(len(regret))
            if len(regret) > 1
            else np.zeros(regret.shape[1])
        )
        return regret.mean(axis=0), sem

    @staticmethod
    def _sem(values: Floats) -> float:
        return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0

    def summary(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "algorithm": self.algorithm,
            "horizon": self.horizon,
            "regret_mean": self.regret_mean,
            "regret_sem": self.regret_sem,
            "time_average_regret": self.regret_mean / self.horizon,
            "guarantee": self.guarantee,
            **{name: self.mean(name) for name in self.extras},
            "seconds": self.sweep.seconds,
            "interrupted": self.sweep.interrupted,
            "configuration": self.configuration,
            "runs": [
                {
                    key: value
                    for key, value in record.items()
                    if key not in ("checkpoints", "regret", "realised")
                }
                for record in self.runs
            ],
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """One row per run and checkpoint."""
        for record in self.runs:
            for round_, regret in zip(record["checkpoints"], record["regret"], strict=True):
                yield {
                    **self.configuration,
                    "algorithm": self.algorithm,
                    "seed": record["seed"],
                    "round": round_,
                    "regret": regret,
                }


def write_csv(path: Path, rows: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> None:
    """A tidy table; a column for every name in any row.

    Written to a neighbour and moved into place, so no half file is left.
    """
    listed = list(rows)
    if not listed:
        raise TacitError(f"nothing to write to {path}")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(path.suffix + ".partial")
    names = list(dict.fromkeys(name for row in listed for name in row))
    with partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=names)
        writer.writeheader()
        writer.writerows(
            {
                key: json.dumps(v) if isinstance(v, (list, tuple, dict)) else v
                for key, v in row.items()
            }
            for row in listed
        )
    partial.replace(path)
