"""Recorded contextual logs, replayed by rejection (Li, Chu, Langford & Wang 2011).

A row has a participant's context, the option that was assigned at random, the reward, and
optionally the probability of that assignment (propensity). The policy sees one row after the other
and picks an option for it: where it picks the logged one the row counts, else it is discarded. With
propensities, a row also counts only with the smallest propensity divided by its own, so that all
options are accepted equally often. Accepted rows are then distributed as if the policy had been
used. Assignments must have been random; the module cannot check that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit.assumptions import ParticipantsFrom, Source
from tacit.contextual.feature_maps import (
    BoundedNumber,
    Category,
    FeatureMap,
    Fields,
    Matrices,
)
from tacit.environments.contextual import Codes, ContextualWorld, RoundTotals, code_map
from tacit.environments.recorded import OutOfData
from tacit.environments.tables import ROLES, Sheet, is_number, read_sheet
from tacit.errors import TacitError
from tacit.types import Arm, DeviceChoice, Floats, Integers, Played, Round

CHUNK = 1 << 15  # rows looked at at once
MOST_VALUES = 50  # of a category
FEW = 12  # different numbers from which a column of numbers is one, not a category
SPARE = 0.95  # of the expected accepted rows, for the default horizon


@dataclass(frozen=True, eq=False)
class ContextLog(ContextualWorld):
    """A contextual log; see `read_context_log`.

    Parameters
    ----------
    fields : tuple of Category or BoundedNumber
        The context.
    names : tuple of str
        The options.
    table : array
        Codes of the contexts, one row per participation.
    logged : array of int
        The assigned options.
    outcomes : array
        The rewards.
    propensities : array, optional
        The probability with which each option was assigned.
    participations : int
        Largest number of rows of one participant.
    clipped : int
        The number of rewards that were clipped to [0, 1].
    matrices : tuple
        The options' interaction matrices; by default those of all fields and options.
    features : FeatureMap, optional
        The feature map of the learner; set by `mapped`.
    """

    fields: Fields
    table: Floats
    logged: Integers
    outcomes: Floats
    names: tuple[str, ...] = ()
    propensities: Floats | None = None
    participations: int = 1
    clipped: int = 0
    matrices: Matrices = ()
    features: FeatureMap | None = None

    @property
    def binary(self) -> bool:  # type: ignore[override]
        """Whether every recorded reward is 0 or 1."""
        return bool(np.all((self.outcomes == 0) | (self.outcomes == 1)))

    @property
    def rows(self) -> int:
        """The number of recorded participations."""
        return len(self.outcomes)

    @property
    def acceptance(self) -> Floats:
        """The probability with which a matching row counts."""
        if self.propensities is None:
            return np.ones(self.rows)
        return np.asarray(self.propensities.min() / self.propensities)

    @property
    def horizon(self) -> int:
        """Participants that the log is likely to suffice for."""
        return max(1, int(SPARE * float(self.acceptance.sum()) / len(self.names)))

    @property
    def remark(self) -> ParticipantsFrom:
        """The source of the participants, as an assumption of the guarantee."""
        return ParticipantsFrom(Source.ROW, self.participations)

    def fresh(self, rng: np.random.Generator) -> ContextLogRun:
        """The log at the start of a run, in a random order."""
        return ContextLogRun(self, rng.permutation(self.rows), rng.random(self.rows))

    def codes(self, count: int, rng: np.random.Generator) -> Floats:
        """Recorded contexts, for statistics about them."""
        return self.table[rng.integers(0, self.rows, count)]

    def expected(self, codes: Floats) -> None:
        """None: true means are unknown."""

    def rewards(self, *_: object) -> Floats:
        """Always raises: only a run tracks which rows are used."""
        raise TacitError(
            "each row of a log is used at most once in a run: begin a run with fresh(rng)"
        )


class ContextLogRun(ContextualWorld):
    """The unused rows of one run of a log."""

    def __init__(self, log: ContextLog, order: Integers, coins: Floats) -> None:
        self.log, self._order, self._coins, self._next = log, order, coins, 0
        self.fields, self.names, self.matrices = log.fields, log.names, log.matrices
        self.features, self.binary = log.features, log.binary

    @property
    def participations(self) -> int:
        """The largest number of rows of one participant."""
        return self.log.participations

    @property
    def used(self) -> int:
        """The number of rows that were looked at."""
        return self._next

    def mapped(self, features: FeatureMap) -> ContextLogRun:
        """The same run with these features."""
        return ContextLogRun(self.log.mapped(features), self._order, self._coins)

    def codes(self, count: int, rng: np.random.Generator) -> Floats:
        """As those of the log."""
        return self.log.codes(count, rng)

    def expected(self, codes: Floats) -> None:
        """None: true means are unknown."""

    def rewards(self, *_: object) -> Floats:
        """Always raises: only `play` takes rows of a log."""
        return self.log.rewards()

    def play(self, round_: Round, protocol: Any, rng: np.random.Generator) -> Played:
        """The next rows for which the policy picks the logged option.

        Raises
        ------
        OutOfData
            If the log ends before; no row is used up then.
        """
        log, features, assignment = self.log, self.features, round_.assignment
        if not isinstance(assignment, (Arm, DeviceChoice)) or features is None:
            raise TacitError(f"assignment is a {type(assignment).__name__}: must be a policy")
        totals = RoundTotals(self, features, assignment, protocol)
        missing, at, chances = round_.participants, self._next, log.acceptance
        while missing:
            rows = self._order[at : at + CHUNK]
            if not len(rows):
                raise OutOfData(
                    f"the log of {log.rows:,} rows has no further match: {missing:,} participants "
                    f"are missing in a round of {round_.participants:,}. Use a shorter horizon, or "
                    "record more."
                )
            participants = Codes(log.table[rows], features)
            options = totals.options(participants, rng)
            fits = (options == log.logged[rows]) & (self._coins[rows] < chances[rows])
            taken = np.flatnonzero(fits)[:missing]
            at += int(taken[-1]) + 1 if len(taken) == missing else len(rows)
            missing -= len(taken)
            some = Codes(participants.codes[taken], features)
            totals.take(some, options[taken], log.outcomes[rows[taken]], rng)
        self._next = at
        return totals.played()


def read_context_log(
    path: Path | str,
    *,
    fields: Sequence[Category | BoundedNumber] | None = None,
    clip: bool = False,
) -> ContextLog:
    """A contextual log from a CSV file.

    Parameters
    ----------
    path
        A log with the columns option and reward, optionally participant and propensity; all other
        columns are the context.
    fields
        The context's fields, by the names of columns. By default a column with more than 12
        different numbers is a number between its least and largest, any other a category. A real
        experiment must declare them: bounds taken from data are not public.
    clip
        Whether rewards outside [0, 1] are clipped and counted instead of rejected.

    Returns
    -------
    ContextLog

    Raises
    ------
    TacitError
        If a column is missing or a value does not fit; the message names the line.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> text = "option,reward,device\\nold,0,phone\\nnew,1,phone\\nold,1,desktop\\n"
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "log.csv"
    ...     _ = file.write_text(text)
    ...     log = read_context_log(file)
    >>> log.names, log.rows, [one.name for one in log.fields]
    (('new', 'old'), 3, ['device'])
    """
    sheet = read_sheet(Path(path))
    roles = {
        role: next((k for k, name in enumerate(sheet.names) if name.lower() in words), None)
        for role, words in ROLES.items()
    }
    for role in ("option", "reward"):
        if roles[role] is None:
            raise TacitError(
                f"{sheet.source} has no column {role}: a contextual log must have option and "
                "reward. Name the columns in its first line."
            )
    rest = [k for k in range(len(sheet.names)) if k not in roles.values()]
    if fields is None:
        fields = [_field(sheet, k) for k in rest]
    if not fields:
        raise TacitError(
            f"{sheet.source} has no context: must have a column for it, beside option and reward"
        )
    columns = {name: k for k, name in enumerate(sheet.names)}
    missing = [one.name for one in fields if one.name not in columns]
    if missing:
        raise TacitError(f"{sheet.source} has no column {', '.join(missing)}: must have each field")
    options = sheet.texts(int(roles["option"] or 0))
    names = tuple(sorted(set(options)))
    if len(names) < 2:
        raise TacitError(
            f"{sheet.source} has {len(names)} option: must have at least 2, each in some rows"
        )
    outcomes, clipped = sheet.rewards(int(roles["reward"] or 0), clip=clip)
    chances = None if roles["propensity"] is None else sheet.numbers(roles["propensity"])
    if chances is not None and not ((chances > 0) & (chances <= 1)).all():
        raise TacitError(f"{sheet.source}: propensity must be above 0 and at most 1 in every row")
    participants = 1
    if roles["participant"] is not None:
        participants = max(Counter(sheet.texts(roles["participant"])).values())
    table = _coded(sheet, tuple(fields), columns)
    logged = np.array([names.index(option) for option in options])
    return ContextLog(
        tuple(fields), table, logged, outcomes, names, chances, participations=participants,
        clipped=clipped,
    )  # fmt: skip


def _field(sheet: Sheet, column: int) -> Category | BoundedNumber:
    """A column as a field: a number if it has many different ones."""
    cells, name = sheet.texts(column), sheet.names[column]
    different = sorted(set(cells))
    if len(different) > FEW and all(is_number(cell) for cell in different):
        numbers = sheet.numbers(column)
        return BoundedNumber(name, float(numbers.min()), float(numbers.max()))
    if len(different) > MOST_VALUES:
        raise TacitError(
            f"{sheet.source} column {name!r} has {len(different)} different values: must have at "
            f"most {MOST_VALUES}, or be a number. Group its values, or leave the column out."
        )
    return Category(name, tuple(different))


def _coded(sheet: Sheet, fields: Fields, columns: dict[str, int]) -> Floats:
    """The codes of all rows."""
    shape = code_map(fields)
    cells = {
        one.name: sheet.texts(columns[one.name])
        if isinstance(one, Category)
        else sheet.numbers(columns[one.name]).tolist()
        for one in fields
    }
    found = []
    for row in range(len(sheet.rows)):
        context = {name: values[row] for name, values in cells.items()}
        try:
            found.append(shape.code(context))
        except TacitError as error:
            raise sheet.fault(row, str(error), "Correct it, or declare the field.") from error
    return np.array(found)
