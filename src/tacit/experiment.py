"""An experiment: what is tried, who decides, how answers are hidden, what is promised.

One object for arms, linear and contextual bandits, driven alike by a simulation and by a live
service:

    while rounds := experiment.propose():
        for round_ in rounds:
            if round_.opened:
                experiment.observe(round_, estimate_of(round_))
            else:
                experiment.skip(round_)

It is stored whole and continues where it was. An estimate that was made under another guarantee
is rejected.

With a guardrail everybody answers with two numbers, the metric that is learned from and a second
one that must not get clearly worse. The mechanism opens both sums under one guarantee, an estimate
holds both, and an option that is clearly worse than the control is paused:

    experiment.keep_control("old", share=0.2)
    experiment.guard("errors", better="lower", margin=0.01)
    experiment.observe(round_, experiment.open(round_).analyze(Opened((sales, errors), reports)))
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tacit.bandits.arms.managed import Managed
from tacit.bandits.contract import Learner
from tacit.bandits.guardrail import Guard, Guardrail
from tacit.bandits.sample_ratio import SampleRatio
from tacit.errors import TacitError, probability
from tacit.privacy import Guarantee, Guaranteed, KnownPerRound
from tacit.protocols.contract import Protocol
from tacit.protocols.mechanism import Mechanism
from tacit.types import ArmSummary, Estimate, Round

FORMAT = 4
BY_HAND = "by hand"


@dataclass(eq=False)
class Experiment:
    """Options by name, a learner that decides among them, a mechanism that hides what they did.

    `options` is empty where what is tried depends on a context. `control` is the one that others
    are measured by; the first, unless said otherwise.
    """

    options: tuple[str, ...]
    learner: Learner
    mechanism: Mechanism
    control: str | None = None
    _guard: Guard | None = field(default=None, init=False, repr=False)
    _opened: dict[int, Protocol] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.learner.arms != len(self.options):
            raise TacitError(
                f"{len(self.options)} options are named, the learner chooses among "
                f"{self.learner.arms}: name each of them"
            )
        if len(set(self.options)) < len(self.options):
            raise TacitError(f"options are {', '.join(self.options)}; every name is given once")
        if self.control is not None:
            self._place(self.control)

    @classmethod
    def of(cls, learner: Learner, mechanism: Mechanism, options: Sequence[str] = ()) -> Experiment:
        """With names made up where none are given."""
        names = tuple(options) or tuple(f"option {k + 1}" for k in range(learner.arms))
        return cls(names, learner, mechanism)

    @property
    def guarantee(self) -> Guarantee | None:
        """The guarantee of a participant over the whole run."""
        return self.mechanism.guarantee

    @property
    def finished(self) -> bool:
        """Whether the horizon is used up and no round is outstanding."""
        return self.learner.finished

    def propose(self) -> list[Round]:
        """The rounds to hold now, side by side: the outstanding ones until all are dealt with."""
        return self.learner.propose()

    def open(self, round_: Round) -> Protocol:
        """The protocol by which the participants of a proposed round report."""
        if not round_.opened:
            raise TacitError(f"round {round_.number} is played but not opened: call skip(round)")
        self.learner.check_open(round_)
        protocol = self.mechanism.open(round_)
        self._opened[round_.number] = protocol
        return protocol

    def observe(self, round_: Round, estimate: Estimate) -> None:
        """Learn from the estimate of a round, if it was made under the round's guarantee.

        Which of several outstanding rounds it is of, only the caller knows.
        """
        if not isinstance(estimate, Estimate):
            raise TacitError(
                f"the estimate is a {type(estimate).__name__}; give what the round's protocol "
                "makes of its messages: protocol.analyze(protocol.combine(messages))"
            )
        parts = self._metrics(round_, estimate)
        for part in parts:
            self.learner.check(round_, part)
        protocol = self._opened.get(round_.number) or self.open(round_)
        if estimate.guarantee_id != protocol.guarantee_id:
            raise TacitError(
                f"the estimate of round {round_.number} was made under another guarantee "
                f"({estimate.guarantee_id[:16] or 'none'}) than the round's "
                f"({protocol.guarantee_id[:16] or 'none'}): analyze it with the round's protocol"
            )
        self.learner.take(round_, parts[0])
        del self._opened[round_.number]
        if self._guard is not None:
            self._guard.take(round_.arm, parts[1])
            self._pause_worse(self._guard, round_.arm)

    def _metrics(self, round_: Round, estimate: Estimate) -> list[Estimate]:
        """The estimate of each metric: of the one that is learned from, and of the guardrail."""
        if self._guard is None:
            return [estimate]
        if np.size(estimate.total) != self.mechanism.metrics:
            raise TacitError(
                f"the estimate of round {round_.number} has {np.size(estimate.total)} numbers; it "
                f"must have 2, the second one of the guardrail {self._guard.rail.name}"
            )
        return [estimate.metric(place) for place in range(self.mechanism.metrics)]

    def _pause_worse(self, guard: Guard, tried: int) -> None:
        """Pauses what is clearly worse, now that more is known of an option."""
        learner, control = self._managed(), self._place(str(self.control))
        changed = range(len(self.options)) if tried == control else (tried,)
        for place in guard.newly_worse((k for k in changed if k not in learner.removed), control):
            learner.halt(place)

    def skip(self, round_: Round) -> None:
        """Count a round as played but never opened."""
        self.learner.skip(round_)
        self._opened.pop(round_.number, None)

    def served(self, option: str, count: int) -> None:
        """Count people who got an option without being asked."""
        self.learner.served(self._place(option), count)

    def _place(self, option: str) -> int:
        if option not in self.options:
            raise TacitError(f"option is {option!r}; they are {', '.join(self.options)}")
        return self.options.index(option)

    def add(self, option: str) -> None:
        """One more option, which takes part from the next rounds on."""
        if option in self.options:
            raise TacitError(f"option is {option!r}, which there is already: give a new name")
        self._managed().add()
        self.options = (*self.options, option)
        if self._guard is not None:
            self._guard.add()

    def pause(self, option: str) -> None:
        """Nobody gets the option from the next rounds on, until it is resumed."""
        self._changing(option).pause(self._place(option))

    def resume(self, option: str) -> None:
        """A paused option takes part again, from the next rounds on."""
        self._changing(option).resume(self._place(option))

    def remove(self, option: str) -> None:
        """The option is taken out for good; what was found about it stays among the estimates."""
        self._changing(option).remove(self._place(option))

    def _changing(self, option: str) -> Managed:
        self._place(option)
        if option == self.control:
            raise TacitError(f"{option} is the control, which never goes away: change another")
        return self._managed()

    def _managed(self) -> Managed:
        if not self.options:
            raise TacitError("what is tried depends on a context: there are no options to change")
        if not isinstance(self.learner, Managed):
            self.learner = Managed.around(self.learner, self._smallest)
        return self.learner

    @property
    def _smallest(self) -> int:
        """Participants of the smallest round that may be opened."""
        return int(getattr(self.mechanism, "smallest", 1))

    def keep_control(
        self, option: str, share: float, least: int = 1, explore: bool = False
    ) -> None:
        """From the next rounds on the option is the control: it never goes away, and gets at least
        this share of all participants, in rounds of at least so many. With `explore` every other
        option gets as much (or an equal part of what there is) until it is shown to be worse.
        """
        if self._guard is not None and option != self.control:
            raise TacitError(
                f"the guardrail compares all options with {self.control}: keep it as the control"
            )
        self._managed().hold(self._place(option), share, max(least, self._smallest), explore)
        self.control = option

    def guard(
        self, name: str, better: str = "lower", margin: float = 0.0, level: float = 0.95
    ) -> None:
        """The second metric of every estimate is a guardrail: an option whose mean is clearly worse
        than the control's, by more than the margin, is paused, once; `resume` overrules that. Of
        options that are not that much worse any is ever paused with probability 1 - level at most.
        """
        rail = Guardrail(name, better, margin, level)
        if self.control is None:
            raise TacitError(
                f"the guardrail {name} compares options with the control, and there is none: call "
                "keep_control(option, share) first"
            )
        if self.mechanism.metrics != 2:
            raise TacitError(
                f"the guardrail {name} is a second metric, and the mechanism opens "
                f"{self.mechanism.metrics} of everybody: make it of recipes.joint with metrics=2"
            )
        if self._guard is not None or self.learner.started:
            raise TacitError(
                f"the guardrail {name} comes too late: there is one guardrail, from the first "
                "round on"
            )
        managed = self._managed()
        managed.guarded()
        self._guard = Guard(rail, managed.horizon, managed.arms)

    @property
    def guardrail(self) -> Guardrail | None:
        """What is watched besides the metric that is learned from."""
        return None if self._guard is None else self._guard.rail

    @property
    def paused(self) -> dict[str, str]:
        """The options that nobody gets now, though they were not removed, and why."""
        if not isinstance(self.learner, Managed):
            return {}
        reasons = {} if self._guard is None else self._guard.reasons
        return {
            self.options[k]: reasons[k] if halted else BY_HAND
            for k, halted in self.learner.paused.items()
        }

    def sample_ratio(self) -> SampleRatio:
        """Whether reports come back from all options alike, as far as can be told."""
        return self.learner.sample_ratio()

    def estimates(self, level: float = 0.95) -> list[ArmSummary]:
        """The summary of each option, and what is decided; `ArmSummary` explains the numbers.

        All of it is made of private estimates, so that looking costs no privacy.
        """
        chance = float(probability("level", level, "how sure intervals are to be, such as 0.95"))
        control = 0 if self.control is None else self._place(self.control)
        rows = self.learner.standings(self.options, chance, control)
        if self._guard is not None:
            rows = [self._guard.beside(row, k, chance) for k, row in enumerate(rows)]
        why = self.paused
        return [replace(row, paused=why.get(row.option)) for row in rows] if why else rows

    def decided(self, level: float = 0.95) -> str | None:
        """The option that is shown to be better than every other: the experiment can stop. A wrong
        one is ever named, at any round, with probability 1 - level at most.
        """
        place = self.learner.decided(level)
        return None if place is None else self.options[place]

    def best(self) -> str | None:
        """The option to recommend; None where it depends on a context."""
        place = self.learner.best()
        return None if place is None else self.options[place]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data, which JSON keeps exactly."""
        return {
            "format": FORMAT,
            "options": list(self.options),
            "control": self.control,
            "learner": self.learner.to_dict(),
            "guard": None if self._guard is None else self._guard.to_dict(),
            "mechanism": self.mechanism.to_dict(),
            "guarantee_id": _digest(self.mechanism),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Experiment:
        """The experiment that `to_dict` wrote down."""
        if data.get("format") != FORMAT:
            raise TacitError(
                f"the experiment has format {data.get('format')!r}; this version reads {FORMAT}: "
                "begin a new experiment, or use the version that wrote it"
            )
        mechanism = Mechanism.from_dict(data["mechanism"])
        if _digest(mechanism) != data["guarantee_id"]:
            raise TacitError(
                "the stored guarantee is not that of the stored mechanism: the file was changed"
            )
        learner = Learner.from_dict(data["learner"])
        restored = cls(tuple(data["options"]), learner, mechanism, data["control"])
        restored._guard = None if data["guard"] is None else Guard.from_dict(data["guard"])
        return restored


def _digest(mechanism: Mechanism) -> str:
    match mechanism.privacy:
        case Guaranteed(guarantee):
            return guarantee.digest
        case KnownPerRound(target):
            return f"known-per-round:{target.digest}"
    return ""


def save(experiment: Experiment, path: Path | str) -> None:
    """Writes an experiment to a file; what stood there is replaced at once or not at all."""
    target = Path(path)
    partial = target.with_name(target.name + ".partial")
    try:
        partial.write_text(json.dumps(experiment.to_dict(), allow_nan=False), encoding="utf-8")
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise TacitError(
            f"{target} cannot be written ({error.strerror}): choose another"
        ) from error


def load(path: Path | str) -> Experiment:
    """The experiment of a file that `save` wrote."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        return Experiment.from_dict(data)
    except OSError as error:
        raise TacitError(f"{path} cannot be read ({error.strerror}): give a saved file") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        if isinstance(error, TacitError):
            raise
        raise TacitError(f"{path} is not a saved experiment ({error!r})") from error
