"""The contract of a learner: a state machine without I/O that decides which options to try.

`propose` returns rounds of fresh participants. `observe` takes the private estimate of one of
them; `skip` marks one as never released. Simulator and live service drive the same objects. A
learner knows no protocol, only estimates and their error distributions.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from tacit.assumptions import Secret
from tacit.bandits.arm_summaries import (
    SummarySettings,
    anytime_summaries,
    best_option,
    failure_left,
)
from tacit.bandits.confidence_sequences import Tally
from tacit.bandits.sample_ratio import ResponseRates, SampleRatio
from tacit.bandits.stored import kept_state, restore_kept
from tacit.errors import TacitError, integer
from tacit.names import name_of, resolve_name
from tacit.types import Arm, ArmSummary, Assignment, Estimate, PublishedAssignment, Round

Options = Mapping[str, Any] | None  # of a learner given by name
Plan = Iterable[tuple[Assignment, int] | tuple[Assignment, int, bool]]


class Learner(ABC):
    """Decides what the next participants are assigned, from private estimates of earlier rounds.

    Parameters
    ----------
    arms
        The number of options; None where options depend on a context.
    horizon
        The total number of steps; a round of an `Arm` uses one per released report, and one per
        participant that `served` or `skip` counts.

    Notes
    -----
    Every proposed round must be observed or skipped before the learner decides on new ones:

        while rounds := learner.propose():
            for round_ in rounds:
                if round_.released:
                    learner.observe(round_, estimate_of(round_))
                else:
                    learner.skip(round_)

    A subclass stores its constructor's arguments under their own names. It implements `_plan` (the
    next rounds), `_learn` (the update by an estimate), `best`, and `_state`/`_restore` for its
    state. The fields of an argument whose default is a frozen dataclass are
    settings of their own (`settings`).

    Examples
    --------
    >>> from tacit.bandits import UCB1
    >>> learner = UCB1(arms=2, horizon=100)
    >>> [(round_.arm, round_.participants) for round_ in learner.propose()]
    [(0, 1), (1, 1)]
    """

    separate: ClassVar[bool] = True  # whether estimates of one option carry none of another

    def __init__(self, arms: int | None, horizon: int) -> None:
        least = {"at_least": 2, "remedy": "a bandit chooses among two or more"}
        self.arms = 0 if arms is None else integer("arms", arms, **least)  # type: ignore[arg-type]
        self.horizon = integer("horizon", horizon, at_least=1)
        self.played = 0
        self._number = 0
        self._pending: dict[int, Round] = {}
        self._first = self.arms  # options at the start
        self._came: list[tuple[int, int, int]] = []  # option, asked, reports: concurrent rounds
        self._ratios = ResponseRates()
        alone = range(self.arms if self.separate else 0)
        self._tallies = [Tally(self.horizon, self.horizon // self.arms) for _ in alone]

    @property
    def active(self) -> list[int]:
        """The options that may still be tried."""
        return list(range(self.arms))

    @property
    def needs_horizon(self) -> bool:
        """Whether decisions depend on the horizon, beyond fitting the first and last rounds in.

        If False, the experiment can stop at any time or continue past the horizon.
        """
        return True

    @property
    def secret(self) -> Secret | None:
        """The secret in a participant's report, where a guarantee must name it; None elsewhere."""
        return None

    @property
    def started(self) -> bool:
        """Whether the learner has proposed any round."""
        return self._number > 0

    @property
    def finished(self) -> bool:
        """Whether the horizon is used up and no round is pending."""
        return self.played >= self.horizon and not self._pending

    @abstractmethod
    def best(self) -> int | None:
        """The option to recommend given all estimates; None where it depends on a context."""

    @abstractmethod
    def _plan(self) -> Plan:
        """The next independent rounds as (assignment, participants); called if none is pending.

        Plan as if the horizon were far: `propose` truncates the round of an `Arm` that exceeds it,
        which is then the last and not released. Other assignments must fit the horizon by
        themselves; a third value says whether the round is to be released.
        """

    @abstractmethod
    def _learn(self, round_: Round, estimate: Estimate) -> None:
        """Update the state by the estimate of a round."""

    @abstractmethod
    def _state(self) -> dict[str, Any]:
        """The subclass's state as plain numbers, strings and lists."""

    @abstractmethod
    def _restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `_state` returned."""

    def propose(self, no_show: Fraction = Fraction(0)) -> list[Round]:
        """The pending rounds; if there are none, decide on new ones.

        Repeated calls return the same rounds, also after a restart.

        Parameters
        ----------
        no_show
            The expected fraction of participants who never report. New rounds of an `Arm` that are
            released get ⌈n / (1 - no_show)⌉ participants in place of n, as far as the horizon
            allows.

        Returns
        -------
        list of Round
            Empty once the horizon is used up.
        """
        if not self._pending:
            left = self.horizon - self.played
            for assignment, participants, *released in self._plan() if left > 0 else ():
                count = min(participants, left) if isinstance(assignment, Arm) else participants
                open_it = all(released) and count == participants
                round_ = Round(self._number, count, assignment, released=open_it)
                self._pending[round_.number] = round_
                self._number += 1
                left -= round_.time
                if left <= 0:
                    break
            if no_show:
                self._over_allocate(no_show, left)
        return list(self._pending.values())

    def _over_allocate(self, no_show: Fraction, spare: int) -> None:
        """Replace pending rounds by larger ones, with at most `spare` more participants."""
        for number, round_ in self._pending.items():
            count = round_.participants
            if round_.released and isinstance(round_.assignment, Arm):
                more = max(0, min(math.ceil(count / (1 - no_show)) - count, spare))
                self._pending[number] = replace(round_, participants=count + more)
                spare -= more

    def observe(self, round_: Round, estimate: Estimate) -> None:
        """Learn from the estimate of a proposed round.

        Parameters
        ----------
        round_
            A pending round, as `propose` returned it.
        estimate
            The protocol's estimate of it.

        Raises
        ------
        TacitError
            If `check` rejects the estimate; the state is then unchanged.
        """
        self.check(round_, estimate)
        self.take(round_, estimate)

    def take(self, round_: Round, estimate: Estimate) -> None:
        """Do what `observe` does, for callers that have already called `check`.

        Parameters
        ----------
        round_ : Round
            A proposed round.
        estimate : Estimate
            Its estimate.
        """
        if isinstance(round_.assignment, Arm):
            reports = int(estimate.error.participants)
            self._done(round_, reports)
            if self.separate:
                self._tallies[round_.arm].add(estimate)
            self._came.append((round_.arm, round_.participants, reports))
        elif isinstance(round_.assignment, PublishedAssignment):
            self._done(round_, int(estimate.error.participants))
        else:
            self._done(round_, round_.time)
        self._learn(round_, estimate)
        self._compare_shares()

    def _compare_shares(self) -> None:
        """Update the sample ratio test once all concurrent rounds are observed or skipped."""
        if not self._pending:
            self._ratios.add(self._came, self._first)
            self._came = []

    def check(self, round_: Round, estimate: Estimate) -> None:
        """Reject an estimate that cannot belong to a proposed round, without changing the state.

        Raises
        ------
        TacitError
            If the round is not pending or not to be released, or if the estimate's number of
            participants, number of coordinates or value is impossible.
        """
        self._check(round_)
        if not round_.released:
            raise TacitError(
                f"round {round_.number} was cut short by the horizon and must not be released: "
                "call skip(round)"
            )
        participants, total = estimate.error.participants, estimate.total
        one = isinstance(total, float)  # a fast path for arms, the most frequent rounds
        reported = participants if isinstance(participants, int) else int(np.sum(participants))
        if not 0 < reported <= round_.participants:
            raise TacitError(
                f"the estimate of round {round_.number} holds {reported} participants: must "
                f"hold 1 to {round_.participants}"
            )
        size = 1 if one else np.size(total)
        if size != round_.assignment.coordinates:
            raise TacitError(
                f"the estimate of round {round_.number} has {size} numbers: must have "
                f"{round_.assignment.coordinates}"
            )
        if not (abs(total) < 1e300 if one else np.all(np.abs(total) < 1e300)):
            raise TacitError(
                f"the estimate of round {round_.number} is {total}: must be a finite number"
            )

    def skip(self, round_: Round, served: int | None = None) -> None:
        """Mark a proposed round as never released.

        The horizon truncated it, or too few reports arrived. In the second case the learner asks
        for new participants where it still needs them.

        Parameters
        ----------
        round_
            A pending round, as `propose` returned it.
        served
            The steps of the horizon that it used. By default all of a round that is played without
            release, and none of a round of an `Arm` that was to be released.
        """
        self._check(round_)
        self._done(round_, self._unreleased(round_, served))
        self._compare_shares()

    @staticmethod
    def _unreleased(round_: Round, served: int | None) -> int:
        """The steps that a skipped round used."""
        if served is None:
            aborted = round_.released and isinstance(round_.assignment, Arm)
            return 0 if aborted else round_.time
        if not 0 <= served <= round_.time:
            raise TacitError(f"served is {served}: must be 0 to {round_.time}, the round's steps")
        return served

    def served(self, option: int, count: int) -> None:
        """Count participants who received an option without a report.

        Parameters
        ----------
        option : int
            The number of the option.
        count : int
            The number of participants.

        Raises
        ------
        TacitError
            If there is no such option, or options depend on a context.
        """
        if not self.arms:
            raise TacitError(
                "the learner has no fixed options: they depend on a context. Count the "
                "participants at the silos."
            )
        if not 0 <= option < self.arms:
            raise TacitError(f"option is {option}: must be 0 to {self.arms - 1}")
        self.played += integer("count", count, at_least=0)

    def summaries(
        self, names: Sequence[str], level: float = 0.95, control: int = 0
    ) -> list[ArmSummary]:
        """The summary of each option.

        Parameters
        ----------
        names
            The options' names.
        level
            The confidence level of intervals and decisions.
        control
            The option against which lifts are computed.

        Returns
        -------
        list of ArmSummary
            Empty where options depend on a context.
        """
        return anytime_summaries(self._tallies, names, self._setting(level, control))

    def decided(self, level: float = 0.95) -> int | None:
        """The option that is shown to be better than all others that take part, or None."""
        setting = self._setting(level, 0)
        sure = failure_left(self._tallies, setting)
        return best_option(self._tallies, setting.present(len(self._tallies)), setting, sure)

    def _setting(self, level: float, control: int) -> SummarySettings:
        return SummarySettings(level, self._first, control)

    def sample_ratio(self) -> SampleRatio:
        """The sample ratio mismatch (SRM) test: whether all options have the same response rate."""
        return self._ratios.result()

    def memory(self, arm: int) -> Any:  # noqa: ARG002
        """The learner's knowledge of an arm as plain data, for another learner of this kind.

        None where it cannot be transferred.
        """
        return None

    def recall(self, arm: int, memory: Any) -> None:  # noqa: B027
        """Take over another learner's knowledge of an arm."""

    def adopt(self, arm: int, estimate: Estimate) -> None:  # noqa: B027
        """Use the estimate of a round that another learner proposed, if it is of use."""

    def check_open(self, round_: Round) -> None:
        """Reject a round that was already observed or skipped."""
        if 0 <= round_.number < self._number and round_.number not in self._pending:
            raise TacitError(
                f"round {round_.number} was already observed or skipped; each counts once: call "
                "propose() for new ones"
            )

    def _check(self, round_: Round) -> None:
        if self._pending.get(round_.number) == round_:
            return
        self.check_open(round_)
        raise TacitError(
            f"{round_} was not proposed by this learner: observe only what propose() returned"
        )

    def _done(self, round_: Round, steps: int) -> None:
        del self._pending[round_.number]
        self.played += steps

    def arguments(self) -> dict[str, Any]:
        """The constructor's arguments."""
        return {name: getattr(self, name) for name in _parameters(type(self))}

    def settings(self) -> dict[str, Any]:
        """The constructor's arguments as plain data, for `learner_of`."""
        found: dict[str, Any] = {}
        for name, value in self.arguments().items():
            if is_dataclass(value):
                found |= vars(value)
            else:
                found[name] = value.tolist() if isinstance(value, np.ndarray) else value
        return found

    def to_dict(self) -> dict[str, Any]:
        """The learner and its whole state as plain data: numbers, strings, lists.

        JSON represents it exactly.
        """
        return {
            "learner": name_of(type(self)),
            "arguments": self.settings(),
            "played": self.played,
            "number": self._number,
            "pending": [round_.to_dict() for round_ in self._pending.values()],
            "first": self._first,
            "came": [list(entry) for entry in self._came],
            "ratios": self._ratios.to_dict(),
            "tallies": [tally.to_dict() for tally in self._tallies],
            "state": self._state(),
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Learner:
        """The learner that `to_dict` serialised; it continues exactly as the original."""
        learner = learner_of(data.get("learner"), data.get("arguments", {}))
        learner.played, learner._number = data["played"], data["number"]
        learner._pending = {entry["number"]: Round.from_dict(entry) for entry in data["pending"]}
        learner._tallies = [Tally.from_dict(entry) for entry in data["tallies"]]
        learner._first, learner._ratios = data["first"], ResponseRates.from_dict(data["ratios"])
        learner._came = [(option, asked, came) for option, asked, came in data["came"]]
        learner._restore(data["state"])
        return learner

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.arguments().items())
        return f"{type(self).__name__}({given})"


class KeptLearner(Learner):
    """Base of learners whose own state is the attributes that `kept` names.

    Parameters
    ----------
    arms : int
        Number of options; 0 where they depend on a context.
    horizon : int
        Number of participants.

    Examples
    --------
    >>> from tacit.bandits import PrivateMED
    >>> len(PrivateMED.kept) > 0
    True
    """

    kept: ClassVar[tuple[str, ...]]

    def _state(self) -> dict[str, Any]:
        return kept_state(self, self.kept)

    def _restore(self, state: Mapping[str, Any]) -> None:
        restore_kept(self, self.kept, state)


def learner_of(name: object, settings: Mapping[str, Any]) -> Learner:
    """A fresh learner of the named class with these `Learner.settings`, or part of them.

    Parameters
    ----------
    name : str
        The class as `module:qualname`.
    settings : mapping
        Arguments of the constructor by name, as plain data.

    Returns
    -------
    Learner
        The learner before its first round.

    Examples
    --------
    >>> name = "tacit.bandits.arms.klucb:PrivateKLUCB"
    >>> learner_of(name, {"arms": 3, "horizon": 1000}).arms
    3
    """
    kind = resolve_name(name, Learner)
    found = dict(settings)
    for group, parameter in _parameters(kind).items():
        default: Any = parameter.default
        if is_dataclass(default) and not isinstance(default, type):
            names = [one.name for one in fields(default) if one.name in found]
            found[group] = replace(default, **{one: found.pop(one) for one in names})
    learner: Learner = kind(**found)
    return learner


@lru_cache(maxsize=256)
def _parameters(kind: type[Learner]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a learner's constructor."""
    return inspect.signature(kind).parameters


def check_horizon(arms: int, horizon: int) -> None:
    """Reject a horizon with fewer participants than arms.

    Parameters
    ----------
    arms, horizon : int
        The number of arms, and of all participants.

    Raises
    ------
    TacitError
        If an arm would get no participant.

    Examples
    --------
    >>> check_horizon(3, 10)
    """
    if horizon < arms:
        raise TacitError(
            f"horizon is {horizon}, fewer participants than the {arms} arms: drop arms or recruit "
            "more participants"
        )
