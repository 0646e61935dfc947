"""Recorded tables of several silos in simulation: replay by rejection, and private evaluation.

One TOML file declares columns, actions and outcome as `silo.toml` does, and names a table per silo.
A simulation learns from the first rows of every table; a simulated evaluation uses the held-out
rest, so that no policy is evaluated on rows that it has learned from. Noise comes from a seed: a
simulation protects nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from tacit.environments.silo_logs import RecordedSilos, SiloLog
from tacit.errors import TacitError
from tacit.readers import Number
from tacit.silos.config import Declarations, read_entries
from tacit.silos.context import ContextSpec
from tacit.silos.evaluation import EvaluationRequest, EvaluationResult, estimate
from tacit.silos.exported import ExportedPolicy
from tacit.silos.policies import export_parameter
from tacit.silos.recorded import RecordedTable, read_recorded


class ReplayFile(Declarations):
    """The declarations of recorded tables, one table per silo."""

    logs: tuple[Path, ...]
    floor: Number = Field(gt=0, le=1)
    held_out: Number = Field(Fraction(1, 3), ge=0, lt=1)


@dataclass(frozen=True, eq=False)
class SiloReplay:
    """Recorded tables of silos: those to learn from, and the held-out rows of each.

    Parameters
    ----------
    context : ContextSpec
        The declared columns and actions.
    learned, held_out : tuple of RecordedTable
        One table per silo each.
    floor : float
        The declared lower bound on all propensities.
    clipped : int
        Outcomes to learn from that are beyond their declared bounds.
    """

    context: ContextSpec
    learned: tuple[RecordedTable, ...]
    held_out: tuple[RecordedTable, ...]
    floor: float
    clipped: int

    def world(self) -> RecordedSilos:
        """The environment of a simulation."""
        logs = tuple(_log(self.context, table) for table in self.learned)
        return RecordedSilos(logs, self.floor, self.context.constant, self.clipped)

    def policy(self, record: Mapping[str, Any]) -> ExportedPolicy:
        """The policy that a run has learned, from its record."""
        learned = record["learned"]
        parameter, centre = np.array(learned["parameter"]), float(learned["centre"])
        return export_parameter(self.context, parameter, centre, int(learned["released"]))

    def evaluate(self, request: EvaluationRequest, rng: np.random.Generator) -> EvaluationResult:
        """Simulate a private evaluation on the held-out rows."""
        if not all(map(len, self.held_out)):
            raise TacitError("held_out leaves no rows to evaluate: declare more, such as 1/3")
        sums = request.shared_sums(len(self.held_out))
        total = np.sum([request.vector(table) for table in self.held_out], axis=0)
        return estimate(request, sums, total + sums.sample_noise(rng))


def read_replay(path: Path) -> SiloReplay:
    """Read the declarations and all tables.

    Raises
    ------
    TacitError
        If the file or a table is not as declared; the message names field or row.
    """
    declared = read_entries(ReplayFile, path)
    if len(declared.logs) < 2:
        raise TacitError(
            f"logs of {path} has {len(declared.logs)} tables: must have one for each silo"
        )
    tables = [
        read_recorded(path.parent / log, declared.context, declared.reward) for log in declared.logs
    ]
    cuts = [round(len(table) * (1 - declared.held_out)) for table in tables]
    pairs = list(zip(tables, cuts, strict=True))
    learned = tuple(table.part(0, cut) for table, cut in pairs)
    held_out = tuple(table.part(cut, len(table)) for table, cut in pairs)
    clipped = sum(declared.reward.outside(one) for table in learned for one in table.outcomes)
    return SiloReplay(declared.context, learned, held_out, float(declared.floor), clipped)


def _log(context: ContextSpec, table: RecordedTable) -> SiloLog:
    actions = np.array(table.actions, dtype=np.int64)
    return SiloLog(context.tables(table.scaled), actions, table.rewards, table.propensities)
