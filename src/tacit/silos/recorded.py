"""Recorded data of one silo: reading a table, replay by rejection, and terms of evaluations.

A table has the declared context columns and `action`, `outcome` and `propensity`, the probability
with which the logged action was chosen; `LOGGED` lists other names. It comes from CSV or Parquet.
Nothing is imputed, no reward is modelled, and no propensity is estimated: a row that lacks one is
rejected with its number.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tacit.environments.silo_logs import ROUNDING
from tacit.errors import TacitError, probability
from tacit.silos.context import ContextColumn, ContextSpec
from tacit.silos.federation import RewardSpec
from tacit.types import Floats

LOGGED = {
    "action": ("action", "treatment", "option", "arm"),
    "outcome": ("outcome", "reward", "response"),
    "propensity": ("propensity", "probability", "pscore"),
}  # and accepted names of their columns
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


@dataclass(frozen=True, eq=False)
class RecordedTable:
    """Logged decisions of one silo, in their order."""

    context: ContextSpec
    contexts: tuple[Mapping[str, Any], ...]
    actions: tuple[int, ...]
    outcomes: Floats
    rewards: Floats
    propensities: Floats

    def __len__(self) -> int:
        return len(self.contexts)

    @cached_property
    def scaled(self) -> Floats:
        """The scaled values of all contexts."""
        values = [self.context.scaled(one) for one in self.contexts]
        return np.array(values).reshape(len(self), self.context.width)

    def part(self, first: int, last: int) -> RecordedTable:
        """The rows from `first` to before `last`."""
        rows = slice(first, last)
        return RecordedTable(
            self.context,
            self.contexts[rows],
            self.actions[rows],
            self.outcomes[rows],
            self.rewards[rows],
            self.propensities[rows],
        )


def read_recorded(path: Path, context: ContextSpec, reward: RewardSpec) -> RecordedTable:
    """Read a CSV or Parquet file of logged decisions.

    Raises
    ------
    TacitError
        If a column is missing, or a value is not as declared; the message names the row.
    """
    rows = _parquet(path) if path.suffix == ".parquet" else _csv(path)
    contexts, actions, outcomes, rewards, chances = [], [], [], [], []
    for number, row in enumerate(rows, start=1):
        try:
            names = _columns(context, row)
            known = {one.name: _cell(one, row[one.name]) for one in context.columns}
            context.scaled(known)
            outcome = _number("outcome", row[names["outcome"]])
            chance = _number("propensity", row[names["propensity"]])
            probability("propensity", chance, one=True)
            actions.append(context.action(str(row[names["action"]])))
            rewards.append(reward.reward(outcome))
        except TacitError as problem:
            raise TacitError(f"{path} row {number}: {problem}") from None
        contexts.append(known)
        outcomes.append(outcome)
        chances.append(chance)
    if not contexts:
        raise TacitError(f"{path} has no rows: give a table of logged decisions")
    arrays = (np.array(one) for one in (outcomes, rewards, chances))
    return RecordedTable(context, tuple(contexts), tuple(actions), *arrays)


def _csv(path: Path) -> Iterable[dict[str, Any]]:
    """The rows of a file; commas separate columns, or else semicolons or tabs."""
    try:
        text = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as problem:
        raise TacitError(
            f"{path} cannot be read ({problem.strerror}): give a CSV in UTF-8"
        ) from None
    except UnicodeDecodeError:
        raise TacitError(f"{path} is not UTF-8 text: save it as CSV in UTF-8") from None
    names = text[0] if text else ""
    separator = next((one for one in ",;\t" if one in names), ",")
    return csv.DictReader(text, delimiter=separator)


def _parquet(path: Path) -> Iterable[dict[str, Any]]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise TacitError("pyarrow is missing: pip install 'tacit[parquet]'") from None
    try:
        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    except (OSError, ValueError) as problem:
        raise TacitError(f"{path} cannot be read ({problem}): give a Parquet file") from None
    return rows


def _columns(context: ContextSpec, row: Mapping[Any, Any]) -> dict[str, str]:
    """The names of the logged columns in a table; a missing or an unknown column is rejected."""
    if None in row:
        raise TacitError("it has more cells than line 1: delete them, or quote a separator")
    declared = {column.name for column in context.columns}
    found = {
        role: next((one for one in names if one in row and one not in declared), role)
        for role, names in LOGGED.items()
    }
    wanted = declared | set(found.values())
    missing = ", ".join(sorted(wanted - set(row)))
    more = ", ".join(sorted(str(one) for one in set(row) - wanted))
    if missing or more:
        known = {role: f"{role} ({', '.join(others)})" for role, (_, *others) in LOGGED.items()}
        raise TacitError(
            f"columns lack {missing or 'none'} and have {more or 'none'} too many: must be "
            f"{', '.join(known.get(name, name) for name in sorted(wanted))}"
        )
    return found


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (ValueError, TypeError):
        raise TacitError(f"{name} is {value!r}: must be a number") from None


def _cell(column: ContextColumn, value: Any) -> Any:
    """A cell as the column declares it; text of a CSV becomes a value."""
    if not isinstance(value, str):
        return value
    if column.kind == "number":
        return _number(column.name, value)
    return _BOOLEANS.get(value.strip().lower(), value) if column.kind == "boolean" else value


@dataclass(frozen=True)
class ReplayCounts:
    """Rows that a replay has used, and those whose outcome was recorded."""

    used: int
    accepted: int


def replay(
    table: RecordedTable,
    rows: Iterable[int],
    floor: float,
    rng: np.random.Generator,
    decide: Callable[[Mapping[str, Any]], tuple[str, str]],
    record: Callable[[str, float], None],
) -> ReplayCounts:
    """Replay rows by rejection: the federation decides, and learns where the log did the same.

    A row is accepted if the proposed action is the logged one, with probability `floor` divided by
    its propensity (Li, Chu, Langford & Wang 2011, for unequal propensities). Then accepted rows are
    distributed as if the policy had acted.

    Parameters
    ----------
    table : RecordedTable
        Logged decisions.
    rows : iterable of int
        The rows to use, in this order.
    floor : float
        A declared lower bound on all propensities.
    rng : numpy.random.Generator
        Decides which rows are accepted.
    decide, record
        The silo's agent: a context to the id of a decision and the proposed action; an id and the
        outcome.

    Returns
    -------
    ReplayCounts
    """
    least = float(probability("floor", floor, one=True))
    below = table.propensities < least * (1 - ROUNDING)
    if below.any():
        row = int(np.flatnonzero(below)[0]) + 1
        raise TacitError(
            f"propensity of row {row} is {table.propensities[row - 1]:g}: must be at least the "
            f"declared floor {least:g}"
        )
    used = accepted = 0
    for row in rows:
        identity, proposed = decide(table.contexts[row])
        used += 1
        same = table.context.action(proposed) == table.actions[row]
        if rng.random() < least / table.propensities[row] and same:
            record(identity, float(table.outcomes[row]))
            accepted += 1
    return ReplayCounts(used, accepted)
