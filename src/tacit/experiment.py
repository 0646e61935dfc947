"""`Experiment`: a learner and a privacy mechanism over named options, with storage as JSON.

Arms, linear and contextual bandits use the same class. A simulation and a live service drive it
alike:

    while rounds := experiment.propose():
        for round_ in rounds:
            if round_.released:
                experiment.observe(round_, estimate_of(round_))
            else:
                experiment.skip(round_)

An experiment is stored as a whole and resumes where it was. `observe` rejects an estimate made
under another guarantee. The module does no I/O besides `save` and `load`.

With a guardrail every participant reports two numbers: the metric to learn from, and a second one
that must not get clearly worse. The mechanism releases both sums under one guarantee, an estimate
holds both, and an option that is clearly worse than the control is paused:

    experiment.keep_control("old", share=0.2)
    experiment.guard("errors", better="lower", margin=0.01)
    experiment.observe(round_, experiment.open(round_).analyze(Aggregate((sales, errors), reports)))
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from tacit.assumptions import Declared, Protects
from tacit.bandits.arms.managed import Managed
from tacit.bandits.contextual.policy_learners import PolicyLearner
from tacit.bandits.contextual.silos import SiloLearner
from tacit.bandits.contract import Learner
from tacit.bandits.guardrail import Guard, Guardrail
from tacit.bandits.sample_ratio import SampleRatio
from tacit.errors import TacitError, one_of, probability, require
from tacit.names import is_own
from tacit.privacy import Arithmetic, Guarantee, Guaranteed, KnownPerRound
from tacit.privacy.guarantees import state_arithmetic
from tacit.protocols.contract import Protocol
from tacit.protocols.mechanism import Mechanism, Releases, check_round
from tacit.types import ArmSummary, Estimate, PublishedAssignment, Round

FORMAT = 5
BY_HAND = "by hand"
ROUNDING = 1e-12  # relative difference of a sensitivity that was computed elsewhere


@dataclass(eq=False)
class Experiment:
    """Named options, a learner that chooses among them, and a mechanism that privatizes reports.

    Parameters
    ----------
    options : tuple of str
        Unique names, one per arm; empty where the arms depend on a context.
    learner : Learner
        Proposes rounds and learns from estimates.
    mechanism : Mechanism
        Gives each round its protocol and states the guarantee.
    control : str, optional
        The option that others are compared with. `estimates` compares with the first by default.

    Raises
    ------
    TacitError
        If the names are not unique, do not match the learner's arms, or lack the control; if the
        guarantee names another secret than participants report; or if private prefix sums do not
        account for the statistics that the learner's silos report.

    Examples
    --------
    >>> from tacit import begin
    >>> experiment = begin("dist-dp-se", arms=2, horizon=10_000, epsilon=1.0)
    >>> experiment.options, experiment.finished
    (('option 1', 'option 2'), False)
    >>> [round_.arm for round_ in experiment.propose()]
    [0, 1]
    """

    options: tuple[str, ...]
    learner: Learner
    mechanism: Mechanism
    control: str | None = None
    _guard: Guard | None = field(default=None, init=False, repr=False)
    _opened: dict[int, tuple[Round, Protocol]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.learner.arms != len(self.options):
            raise TacitError(
                f"{len(self.options)} options are named: must be {self.learner.arms}, as many "
                "as the learner has. Name each of them"
            )
        if len(set(self.options)) < len(self.options):
            raise TacitError(f"options are {', '.join(self.options)}: must be distinct")
        if self.control is not None:
            self._index(self.control)
        _check_secret(self.learner, self.mechanism)
        if isinstance(self.mechanism, Releases) and self.mechanism.guarantee is not None:
            _check_statistics(self.learner, self.mechanism)

    @classmethod
    def of(cls, learner: Learner, mechanism: Mechanism, options: Sequence[str] = ()) -> Experiment:
        """Build an experiment.

        Parameters
        ----------
        learner : Learner
            A learner before its first round.
        mechanism : Mechanism
            Its protocols and guarantee.
        options : sequence of str
            Names of the options; by default "option 1", "option 2", ….
        """
        names = tuple(options) or tuple(f"option {k + 1}" for k in range(learner.arms))
        return cls(names, learner, mechanism)

    @property
    def guarantee(self) -> Guarantee | None:
        """The guarantee for one participant over the whole run; None if there is none.

        That of a protocol from outside tacit is checked first, and never counts as exact
        (`Mechanism.printed`).
        """
        return self.printed()

    def printed(self, guarantee: Guarantee | None = None) -> Guarantee | None:
        """The guarantee to print, as checked or not checked; see `Mechanism.printed`.

        Parameters
        ----------
        guarantee : Guarantee, optional
            As there.

        Returns
        -------
        Guarantee or None
            Unchecked where a learner from outside tacit states how far one participant moves the
            sums.
        """
        shown = Mechanism.printed(self.mechanism, guarantee)
        if shown is None or not isinstance(self.mechanism, Releases) or is_own(type(self.learner)):
            return shown
        return state_arithmetic(shown, Arithmetic.UNSTATED).assuming(Declared())

    @property
    def finished(self) -> bool:
        """Whether the horizon is used up and no round is outstanding."""
        return self.learner.finished

    def propose(self, no_show: Fraction = Fraction(0)) -> list[Round]:
        """Return the rounds to run now, in parallel.

        Parameters
        ----------
        no_show : Fraction
            The expected fraction of participants who never report; new rounds get so many more.

        Returns
        -------
        list of Round
            The same rounds until each is observed or skipped; empty when the experiment is
            finished.
        """
        return self.learner.propose(no_show)

    def open(self, round_: Round) -> Protocol:
        """Return the protocol by which the participants of a proposed round report.

        Parameters
        ----------
        round_ : Round
            An outstanding round whose result is to be released.

        Returns
        -------
        Protocol
            Its `analyze` makes the estimate that `observe` expects.

        Raises
        ------
        TacitError
            If the round is not outstanding, is played without release, or has a weaker guarantee
            than the run.
        """
        if not round_.released:
            raise TacitError(f"round {round_.number} is played but not released: call skip(round)")
        self.learner.check_open(round_)
        known, protocol = self._opened.get(round_.number, (None, None))
        if protocol is None or known is not round_:
            protocol = self.mechanism.open(round_)
            if not is_own(type(self.mechanism)):
                check_round(self.mechanism, protocol, f"round {round_.number}")
            self._opened[round_.number] = round_, protocol
        return protocol

    def observe(self, round_: Round, estimate: Estimate) -> None:
        """Learn from the estimate of a round, if it was made under the round's guarantee.

        Parameters
        ----------
        round_ : Round
            The outstanding round that the estimate belongs to; only the caller knows which.
        estimate : Estimate
            The output of the round's protocol; with a guardrail, of both metrics.

        Raises
        ------
        TacitError
            If the estimate does not fit the round or was made under another guarantee.
        """
        if not isinstance(estimate, Estimate):
            raise TacitError(
                f"estimate is a {type(estimate).__name__}: must be an Estimate of the round's "
                "protocol. Use protocol.analyze(protocol.combine(messages))"
            )
        parts = self._metrics(round_, estimate)
        for part in parts:
            self.learner.check(round_, part)
        protocol = self.open(round_)
        if estimate.guarantee_id != protocol.guarantee_id:
            raise TacitError(
                f"the estimate of round {round_.number} has guarantee "
                f"{estimate.guarantee_id[:16] or 'none'}: must be "
                f"{protocol.guarantee_id[:16] or 'none'}. Analyze it with the round's protocol"
            )
        self.learner.take(round_, parts[0])
        del self._opened[round_.number]
        if self._guard is not None and len(parts) > 1:
            self._guard.take(round_.arm, parts[1])
            self._pause_worse(self._guard, round_.arm)

    def _metrics(self, round_: Round, estimate: Estimate) -> list[Estimate]:
        """Split the estimate into one per metric: the learned metric, then the guardrail.

        Rounds in which devices choose report the learned metric only.
        """
        if self._guard is None or isinstance(round_.assignment, PublishedAssignment):
            return [estimate]
        if np.size(estimate.total) != self.mechanism.metrics:
            raise TacitError(
                f"the estimate of round {round_.number} has {np.size(estimate.total)} numbers: "
                f"must have 2, the second one of the guardrail {self._guard.rail.name}"
            )
        return [estimate.metric(place) for place in range(self.mechanism.metrics)]

    def _pause_worse(self, guard: Guard, tried: int) -> None:
        """Pause options that are clearly worse than the control, after new data about an option."""
        learner, control = self._pausing(), self._index(str(self.control))
        changed = range(len(self.options)) if tried == control else (tried,)
        for place in guard.newly_worse((k for k in changed if k not in learner.removed), control):
            learner.halt(place)

    def skip(self, round_: Round, served: int | None = None) -> None:
        """End a round without releasing its result.

        Parameters
        ----------
        round_ : Round
            An outstanding round.
        served : int, optional
            The part of the horizon that it used. By default all of a round that is played without
            release, and none of an aborted one: only released reports use up the horizon.
        """
        self.learner.skip(round_, served)
        self._opened.pop(round_.number, None)

    def served(self, option: str, count: int) -> None:
        """Count participants who got an option without a report; they use up the horizon.

        Parameters
        ----------
        option : str
            The option that they got.
        count : int
            Their number.
        """
        self.learner.served(self._index(option), count)

    def _index(self, option: str) -> int:
        one_of("option", option, self.options)
        return self.options.index(option)

    def extend(self, participants: int) -> None:
        """Plan for more participants in all, also after the experiment is finished.

        Parameters
        ----------
        participants : int
            The number of participants whose reports are released, more than before.

        Raises
        ------
        TacitError
            If the number is not larger, or if the noise was made for the number before.
        """
        if isinstance(self.mechanism, Releases):
            raise TacitError(
                "the noise of prefix sums is made for the planned participants: begin another "
                "experiment"
            )
        rule = f"more than {self.learner.horizon}, as planned before"
        require(participants > self.learner.horizon, "participants", participants, rule)
        self._managed().extend(participants)

    def add(self, option: str) -> None:
        """Add an option, which takes part from the next rounds on.

        Raises
        ------
        TacitError
            If the option exists, or the learner cannot add options.
        """
        if option in self.options:
            raise TacitError(f"option is {option!r}, which exists: give a new name")
        self._managed().add()
        self.options = (*self.options, option)
        if self._guard is not None:
            self._guard.add()

    def pause(self, option: str) -> None:
        """Stop assigning the option from the next rounds on, until it is resumed."""
        self._changing(option).pause(self._index(option))

    def resume(self, option: str) -> None:
        """Assign a paused option again, from the next rounds on."""
        self._changing(option).resume(self._index(option))

    def remove(self, option: str) -> None:
        """Remove the option permanently; its estimates stay listed."""
        self._changing(option).remove(self._index(option))

    def _changing(self, option: str) -> Managed:
        self._index(option)
        if option == self.control:
            raise TacitError(
                f"option is {option!r}, the control, which cannot be paused or removed: change "
                "another"
            )
        return self._managed()

    def _pausing(self) -> Managed | PolicyLearner:
        """The learner whose options a guardrail pauses."""
        return self.learner if isinstance(self.learner, PolicyLearner) else self._managed()

    def _managed(self) -> Managed:
        if not self.options:
            raise TacitError("a contextual experiment has no options: there is none to change")
        if isinstance(self.learner, PolicyLearner):
            raise TacitError(
                "devices choose among the options: options, control and number of participants of "
                "a contextual experiment cannot be changed. Begin another experiment"
            )
        if not isinstance(self.learner, Managed):
            self.learner = Managed.wrap(self.learner, self.mechanism.smallest)
        return self.learner

    def keep_control(
        self, option: str, share: float, least: int = 1, explore: bool = False
    ) -> None:
        """Make an option the control from the next rounds on; a control is never paused or removed.

        Parameters
        ----------
        option : str
            The control.
        share : float
            The control gets at least this fraction of all participants.
        least : int
            Fewest participants of a round of the control.
        explore : bool
            If true, every other option gets as many participants as the control (or an equal part
            of those available) until it is shown to be worse.

        Raises
        ------
        TacitError
            If a guardrail already compares with another control.
        """
        if self._guard is not None and option != self.control:
            raise TacitError(
                f"option is {option!r}, but the guardrail compares all options with "
                f"{self.control}: keep that as the control"
            )
        place = self._index(option)
        if isinstance(self.learner, PolicyLearner) and not share:
            self.control = option  # by which the evaluation slice is compared
            return
        if self.learner.separate:
            self._managed().set_control(place, share, max(least, self.mechanism.smallest), explore)
        elif share:
            raise TacitError(
                f"share is {share:g}: must be 0 where options share one parameter, which decides "
                "what is tried"
            )
        self.control = option

    def guard(
        self, name: str, better: str = "lower", margin: float = 0.0, level: float = 0.95
    ) -> None:
        """Treat the second metric of every estimate as a guardrail.

        An option whose mean is worse than the control's by clearly more than the margin is paused,
        once; `resume` overrules that.

        Parameters
        ----------
        name : str
            Name of the second metric.
        better : {"lower", "higher"}
            Which direction is better.
        margin : float
            Tolerated difference from the control.
        level : float
            Confidence level. Among options that are not worse by more than the margin, the
            probability that any is ever paused is at most 1 - level.

        Raises
        ------
        TacitError
            If there is no control, the mechanism does not release two metrics, there is a guardrail
            already, or the learner has started.
        """
        rail = Guardrail(name, better, margin, level)
        if self.control is None:
            raise TacitError(
                f"guardrail is {name!r}, but there is no control to compare with: call "
                "keep_control(option, share) first"
            )
        if self.mechanism.metrics != 2:
            raise TacitError(
                f"guardrail is {name!r}, but the mechanism has {self.mechanism.metrics} metrics: "
                "must have 2. Make it of factories.joint with metrics=2"
            )
        if self._guard is not None or self.learner.started:
            raise TacitError(
                f"guardrail is {name!r}, which is too late: there is at most one, set before the "
                "first round"
            )
        learner = self._pausing()
        learner.guarded()
        self._guard = Guard(rail, learner.horizon, len(self.options))

    @property
    def guardrail(self) -> Guardrail | None:
        """The guardrail on the second metric; None if there is none."""
        return None if self._guard is None else self._guard.rail

    @property
    def paused(self) -> dict[str, str]:
        """The options that are paused but not removed, each with the reason."""
        if not isinstance(self.learner, (Managed, PolicyLearner)):
            return {}
        reasons = {} if self._guard is None else self._guard.reasons
        return {
            self.options[k]: reasons[k] if halted else BY_HAND
            for k, halted in self.learner.paused.items()
        }

    def sample_ratio(self) -> SampleRatio:
        """Test for sample ratio mismatch: whether all options' reports arrive at the same rate."""
        return self.learner.sample_ratio()

    def estimates(self, level: float = 0.95) -> list[ArmSummary]:
        """Return the summary of each option, with the current decision.

        Summaries are post-processing of private estimates, so reading them costs no privacy budget.

        Parameters
        ----------
        level : float
            Confidence level of the intervals.

        Returns
        -------
        list of ArmSummary
            One per option, in the order of `options`.
        """
        chance = float(probability("level", level, "how sure intervals are to be, such as 0.95"))
        control = 0 if self.control is None else self._index(self.control)
        rows = self.learner.summaries(self.options, chance, control)
        if self._guard is not None:
            rows = [self._guard.extend_summary(row, k, chance) for k, row in enumerate(rows)]
        why = self.paused
        return [replace(row, paused=why.get(row.option)) for row in rows] if why else rows

    def decided(self, level: float = 0.95) -> str | None:
        """Return the option shown to be better than every other: the experiment can stop.

        Anytime-valid: the probability that a wrong option is named in any round is at most
        1 - level. None if no option is decided.
        """
        place = self.learner.decided(level)
        return None if place is None else self.options[place]

    def best(self) -> str | None:
        """Return the option to recommend; None where it depends on a context."""
        place = self.learner.best()
        return None if place is None else self.options[place]

    def to_dict(self) -> dict[str, Any]:
        """Return the whole state as plain data that JSON keeps exactly."""
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
        """Restore the experiment that `to_dict` wrote.

        Raises
        ------
        TacitError
            If the format is another one, or the stored guarantee differs from the mechanism's.
        """
        if data.get("format") != FORMAT:
            raise TacitError(
                f"the experiment has format {data.get('format')!r}; this version reads {FORMAT}: "
                "begin a new experiment, or use the version that wrote it"
            )
        mechanism = Mechanism.from_dict(data["mechanism"])
        if _digest(mechanism) != data["guarantee_id"]:
            raise TacitError(
                "the stored guarantee differs from that of the stored mechanism: the file was "
                "changed; restore it from a copy"
            )
        learner = Learner.from_dict(data["learner"])
        restored = cls(tuple(data["options"]), learner, mechanism, data["control"])
        restored._guard = None if data["guard"] is None else Guard.from_dict(data["guard"])
        return restored


def _check_secret(learner: Learner, mechanism: Mechanism) -> None:
    """Reject a guarantee that names another secret than the learner's participants report."""
    stated = mechanism.stated
    if stated is None:
        return
    named = {one.secret.value for one in stated.assumptions if isinstance(one, Protects)}
    reported = set() if learner.secret is None else {learner.secret.value}
    if named != reported:
        raise TacitError(
            f"the guarantee protects {', '.join(sorted(named)) or 'no stated secret'}; "
            f"participants report {', '.join(sorted(reported)) or 'none that is named'}: state "
            "that secret with tacit.assumptions.Protects"
        )


def _check_statistics(learner: Learner, mechanism: Releases) -> None:
    """Reject prefix sums whose guarantee is computed for other statistics than silos report."""
    if not isinstance(learner, SiloLearner):
        raise TacitError(
            f"learner is a {type(learner).__name__}: must be a SiloLearner, because the guarantee "
            "of prefix sums covers its statistics"
        )
    needed, sums = learner.statistics, mechanism.sums
    least = needed.sensitivity * (1 - ROUNDING)
    eager = sums.presence.eager
    for name, value, holds, rule in (
        ("size", sums.size, sums.size == needed.size, f"must be {needed.size}"),
        (
            "sensitivity",
            f"{sums.sensitivity:.6g}",
            sums.sensitivity >= least,
            f"must be at least {needed.sensitivity:.6g}",
        ),
        (
            "people",
            sums.people,
            sums.people >= needed.records,
            f"must be >= {needed.records}",
        ),
        ("eager", eager, eager == (not needed.lazy), f"must be {not needed.lazy}"),
    ):
        if not holds:
            raise TacitError(
                f"{name} of the prefix sums is {value}: {rule} for the statistics that silos "
                "report. The noise, the guarantee or the learner was changed"
            )


def _digest(mechanism: Mechanism) -> str:
    match mechanism.privacy:
        case Guaranteed(guarantee):
            return guarantee.digest
        case KnownPerRound(target):
            return f"known-per-round:{target.digest}"
    return ""


def save(experiment: Experiment, path: Path | str) -> None:
    """Write an experiment to a file, which is replaced atomically.

    Parameters
    ----------
    experiment : Experiment
    path : Path or str

    Raises
    ------
    TacitError
        If the file cannot be written.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from tacit import begin
    >>> experiment = begin("dist-dp-se", arms=2, horizon=10_000, epsilon=1.0)
    >>> with TemporaryDirectory() as folder:
    ...     save(experiment, f"{folder}/experiment.json")
    ...     load(f"{folder}/experiment.json").guarantee == experiment.guarantee
    True
    """
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
    """Read the experiment that `save` wrote to a file.

    Parameters
    ----------
    path : path
        The file.

    Returns
    -------
    Experiment
        The experiment, which continues exactly as the saved one.

    Raises
    ------
    TacitError
        If the file cannot be read or holds no experiment of this format.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from tacit import begin
    >>> with TemporaryDirectory() as folder:
    ...     save(begin("private-med", arms=3, horizon=10_000), Path(folder) / "run.json")
    ...     load(Path(folder) / "run.json").finished
    False
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        return Experiment.from_dict(data)
    except OSError as error:
        raise TacitError(f"{path} cannot be read ({error.strerror}): give a saved file") from error
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        if isinstance(error, TacitError):
            raise
        raise TacitError(
            f"{path} is not a saved experiment ({error!r}): give a saved file"
        ) from error
