"""A wrapper for learners of arms: options can be added, paused or removed, and a control stays.

After a change, a fresh inner learner continues with the present options from the next rounds on. It
takes over the old one's knowledge of each option where possible (`Learner.memory`). The control
gets at least a fixed share of participants, in additional rounds where the inner learner assigns it
fewer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

from tacit.bandits.arm_summaries import SummarySettings, beats, failure_left, leading_option
from tacit.bandits.confidence_sequences import Tally
from tacit.bandits.contract import KeptLearner, Learner, Options, Plan, learner_of
from tacit.bandits.sample_ratio import ResponseRates
from tacit.errors import TacitError, integer, probability
from tacit.names import name_of
from tacit.types import Arm, Estimate, Round

MOST = 0.9  # largest sum of all guaranteed shares
LEVEL = 0.95  # confidence level at which an option counts as worse
GROWTH = 0.4  # round size relative to participants so far, if only one option is left


class Managed(KeptLearner):
    """A learner of arms whose options can be changed while it runs.

    Parameters
    ----------
    arms, horizon
        As in `Learner`.
    learner
        The name of the inner learner's class, as in `tacit.names`.
    options
        Its further arguments, without arms and horizon.
    control
        The option that can be neither paused nor removed, if any.
    share
        The control's minimum share of all participants.
    least
        The minimum size of rounds that are added to fill a share.
    explore
        Whether every other option gets the same share, or an equal part of what is left, until it
        is shown to be worse. A learner that rarely tries bad options takes long to show that.

    >>> from tacit.bandits import PrivateKLUCB
    >>> from tacit.names import name_of
    >>> inner = name_of(PrivateKLUCB)
    >>> managed = Managed(2, 1000, inner, {"first_batch": 50}, control=0, share=0.6)
    >>> [(round_.arm, round_.participants) for round_ in managed.propose()]
    [(0, 25), (0, 50), (1, 50)]
    """

    kept = ("_live", "_owed", "_paused", "_removed", "_inside")

    def __init__(
        self,
        arms: int,
        horizon: int,
        learner: str,
        options: Options = None,
        control: int | None = None,
        share: float = 0.0,
        least: int = 1,
        explore: bool = False,
    ) -> None:
        super().__init__(arms, horizon)
        self.learner, self.options = learner, dict(options or {})
        self.control: int | None = None
        self.share, self.least, self.explore = 0.0, 1, False
        self._paused: set[int] = set()
        self._halted: set[int] | None = None  # paused by a guardrail; None without a guardrail
        self._removed: set[int] = set()
        self._memories: dict[int, Any] = {}
        self._live = list(range(self.arms))  # the option of each inner arm
        self._inside: dict[int, int] = {}  # the inner number of each pending round
        self._owed: dict[int, float] = {}  # participants still owed to an option's share
        self._inner: Learner | None = self._fresh()
        self.set_control(control, share, least, explore)

    def set_control(
        self, control: int | None, share: float, least: int = 1, explore: bool = False
    ) -> None:
        """Set the control and its minimum share, from the next rounds on.

        Parameters
        ----------
        control : int or None
            The option that can be neither paused nor removed, if any.
        share : float
            The control's minimum share of all participants.
        least : int
            The minimum size of rounds that are added to fill a share.
        explore : bool
            Whether the other options get a minimum share, too, until they are shown to be
            worse.
        """
        remedy = "the part of all participants that the control gets, such as 0.1"
        probability("share", share, remedy, zero=True)
        if share and control is None:
            raise TacitError(f"share is {share:g}, but there is no control: name one")
        if control is not None and control not in self.present:
            raise TacitError(f"control is {control}: must be an existing option")
        self.control, self.share, self.explore = control, share, explore
        self.least = integer("least", least, at_least=1)

    @classmethod
    def wrap(cls, learner: Learner, least: int = 1) -> Self:
        """Wrap an existing learner of arms, at any point of its run."""
        if not learner.separate:
            raise TacitError("options that share one parameter cannot be changed: begin another")
        options = {k: v for k, v in learner.settings().items() if k not in ("arms", "horizon")}
        kind = name_of(type(learner))
        managed = cls(learner.arms, learner.horizon, kind, options, least=least)
        managed._inner, managed.played = learner, learner.played
        managed._number, managed._pending = learner._number, dict(learner._pending)
        managed._inside = {number: number for number in learner._pending}
        managed._came = list(learner._came)
        managed._ratios = ResponseRates.from_dict(learner._ratios.to_dict())
        managed._tallies = [Tally.from_dict(tally.to_dict()) for tally in learner._tallies]
        return managed

    def add(self) -> int:
        """Add an option and return its number."""
        self.arms += 1
        self._tallies.append(Tally(self.horizon, max(1, self.horizon // self.arms)))
        return self.arms - 1

    def extend(self, horizon: int) -> None:
        """Continue to a later horizon; from now on only released reports count towards it.

        A fresh inner learner plans for the new horizon from the next rounds on. Bounds of options
        with estimates stay as they were tuned, and valid.
        """
        self.horizon = integer("horizon", horizon, at_least=self.horizon)
        self.played = sum(tally.participants for tally in self._tallies)
        for place, tally in enumerate(self._tallies):
            if not tally.participants:
                self._tallies[place] = Tally(horizon, max(1, horizon // self.arms))

    def pause(self, option: int) -> None:
        """Assign the option to no participant from the next rounds on, until it is resumed."""
        self._check_change(option)
        self._paused.add(option)

    def resume(self, option: int) -> None:
        """Let the option take part again."""
        self._check_change(option)
        self._paused.discard(option)
        if self._halted is not None:
            self._halted.discard(option)

    def guarded(self) -> None:
        """Declare, at the start, that a guardrail may pause options.

        Options that it pauses are no longer compared.
        """
        self._halted = set()

    def halt(self, option: int) -> None:
        """Pause an option because of the guardrail."""
        self.pause(option)
        if self._halted is None:
            raise TacitError(f"option {option} is halted without a guardrail: pause it")
        self._halted.add(option)

    @property
    def removed(self) -> frozenset[int]:
        """The options that were permanently removed."""
        return frozenset(self._removed)

    @property
    def paused(self) -> dict[int, bool]:
        """The paused options, and whether a guardrail paused them."""
        halted = self._halted or set()
        return {k: k in halted for k in sorted(self._paused - self._removed)}

    def remove(self, option: int) -> None:
        """Remove the option permanently; its estimates are kept."""
        self._check_change(option)
        self._removed.add(option)

    def _check_change(self, option: int) -> None:
        if option == self.control:
            raise TacitError(
                f"option {option} is the control, which cannot be paused or removed: change another"
            )
        if option in self._removed:
            raise TacitError(f"option {option} was removed: add it as a new option")
        others = [k for k in self.present if k != option]
        if not others:
            raise TacitError(f"option {option} is the last one: add or resume another first")

    @property
    def present(self) -> list[int]:
        """The options that take part."""
        return [k for k in range(self.arms) if k not in self._paused | self._removed]

    @property
    def active(self) -> list[int]:
        """The present options that the inner learner may still try, and the control."""
        inner = self._live if self._inner is None else [self._live[k] for k in self._inner.active]
        return sorted(set(inner) | ({self.control} if self.control is not None else set()))

    def best(self) -> int | None:
        """The inner learner's recommendation, if that option is present; else the largest mean."""
        place = None if self._inner is None else self._inner.best()
        option = None if place is None else self._live[place]
        return option if option in self.present else leading_option(self._tallies, self.present)

    def _setting(self, level: float, control: int) -> SummarySettings:
        chosen = control if self.control is None else self.control
        halted = None if self._halted is None else frozenset(self._halted)
        return SummarySettings(level, self._first, chosen, frozenset(self._removed), halted)

    def _fresh(self) -> Learner | None:
        """An inner learner of the present options, with the remembered estimates."""
        if len(self._live) < 2 or self.horizon - self.played < len(self._live):
            return None
        size = {"arms": len(self._live), "horizon": self.horizon}
        inner = learner_of(self.learner, size | self.options)
        inner.served(0, self.played)
        for place, option in enumerate(self._live):
            if self._memories.get(option) is not None:
                inner.recall(place, self._memories[option])
        return inner

    def _rebuild_inner(self) -> None:
        for place, option in enumerate(self._live):
            if self._inner is not None:
                self._memories[option] = self._inner.memory(place)
        self._live = self.present
        self._inner = self._fresh()

    def _plan(self) -> Plan:
        planned = None if self._inner is None else self._inner.horizon
        if self._live != self.present or planned != self.horizon:
            self._rebuild_inner()
        rounds: list[Round] = []
        if self._inner is None:
            alone = self.best()
            size = max(self.least, math.ceil(GROWTH * self.played))
            plan = [(Arm(self._live[0] if alone is None else alone), size, True)]
        else:
            rounds = self._inner.propose()
            plan = [(Arm(self._live[r.arm]), r.participants, r.released) for r in rounds]
        extra = self._for_shares(plan)
        start = self._number + len(extra)
        self._inside = {start + place: r.number for place, r in enumerate(rounds)}
        return extra + plan

    def _for_shares(self, plan: list[tuple[Arm, int, bool]]) -> list[tuple[Arm, int, bool]]:
        """Additional rounds that fill the options' minimum shares of all participants."""
        floors = self._floors()
        if not floors:
            return []
        given = dict.fromkeys(floors, 0)
        for arm, count, _ in plan:
            if arm.arm in given:
                given[arm.arm] += count
        planned, left = sum(count for _, count, _ in plan), self.horizon - self.played
        everyone = float(min(planned, left))
        for _ in range(200):  # converges, because shares sum to at most MOST
            lacking = {
                k: max(0.0, self._owed.get(k, 0.0) + share * everyone - given[k])
                for k, share in floors.items()
            }
            before, everyone = everyone, min(planned + sum(lacking.values()), left)
            if everyone - before < 1e-3:
                break
        extra = {k: math.ceil(more) for k, more in lacking.items() if more >= self.least}
        self._owed = {k: more for k, more in lacking.items() if k not in extra}
        return [(Arm(k), more, True) for k, more in extra.items() if more]

    def _floors(self) -> dict[int, float]:
        """The minimum share of each option that has one."""
        if self.control is None or not self.share:
            return {}
        floors = {self.control: min(self.share, MOST)}
        if self.explore:
            setting = self._setting(LEVEL, self.control)
            sure = failure_left(self._tallies, setting)
            leader = leading_option(self._tallies, self.present)
            open_ = [
                k
                for k in self.present
                if k != self.control and not beats(self._tallies, leader, k, setting, sure)
            ]
            for k in open_:
                floors[k] = max(0.0, min(self.share, (MOST - self.share) / len(open_)))
        return floors

    def _learn(self, round_: Round, estimate: Estimate) -> None:
        inner = self._inner
        if inner is None:
            return
        number = self._inside.pop(round_.number, None)
        if number is not None:
            inner.take(self._within(round_, number), estimate)
            return
        place = self._live.index(round_.arm)
        inner.served(place, int(estimate.error.participants))
        inner.adopt(place, estimate)

    def _within(self, round_: Round, number: int) -> Round:
        return replace(round_, number=number, assignment=Arm(self._live.index(round_.arm)))

    def skip(self, round_: Round, served: int | None = None) -> None:
        """Mark a round as skipped, here and (before the horizon) in the inner learner."""
        super().skip(round_, served)
        steps = self._unreleased(round_, served)
        number = self._inside.pop(round_.number, None)
        if self._inner is None or self.played >= self.horizon:
            return
        if number is None:
            self._inner.served(self._live.index(round_.arm), steps)
        else:  # the inner round is not truncated, even if the horizon truncated it here
            self._inner.skip(next(r for r in self._inner.propose() if r.number == number), steps)

    def served(self, option: int, count: int) -> None:
        """Count participants without a report, here and in the inner learner."""
        super().served(option, count)
        if self._inner is not None:
            self._inner.served(0, count)

    def _state(self) -> dict[str, Any]:
        return super()._state() | {
            "halted": None if self._halted is None else sorted(self._halted),
            "memories": [[key, value] for key, value in sorted(self._memories.items())],
            "inner": None if self._inner is None else self._inner.to_dict(),
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        super()._restore(state)
        self._halted = None if state["halted"] is None else set(state["halted"])
        self._memories = dict(state["memories"])
        inner = state["inner"]
        self._inner = None if inner is None else Learner.from_dict(inner)
