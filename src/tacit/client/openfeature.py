"""OpenFeature provider: evaluating a flag joins an experiment, tracking records an outcome.

A flag names an experiment; its variants are the options. Recorded outcomes stay on the device until
the reporting time that was fixed at assignment. In contextual experiments the device chooses by the
attributes of the evaluation context that the terms name. Where participants try several options,
a flag has the one to try next, and an event is the answer about it. No evaluation context,
targeting key or event leaves the device. If no option can be assigned (paused, rejected, offline),
the provider returns the default with a reason.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Concatenate, ParamSpec, TypeVar

try:
    from openfeature.evaluation_context import EvaluationContext
    from openfeature.exception import ErrorCode
    from openfeature.flag_evaluation import FlagResolutionDetails, FlagValueType, Reason
    from openfeature.provider import AbstractProvider, Metadata
    from openfeature.track import TrackingEventDetails
except ImportError as error:
    raise ImportError("openfeature is missing: pip install 'tacit[openfeature]'") from error

from tacit.client import Device, Slot
from tacit.errors import TacitError, require
from tacit.terms import Answer, FittedTerms, Terms

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")
Structure = Sequence[FlagValueType] | Mapping[str, FlagValueType]
PAUSE = 30.0  # seconds before retrying after a failed assignment
_LONGEST_SLEEP = 600.0
_log = logging.getLogger(__name__)


@dataclass
class _PlaysInProgress:
    """The options that a participant tries, and the answers so far."""

    plays: tuple[str, ...]
    answers: list[Fraction] = field(default_factory=list)

    @property
    def place(self) -> int:
        """The play without an answer that is next, else the last."""
        return min(len(self.answers), len(self.plays) - 1)

    def outcome(self, unknown: Fraction) -> dict[str, list[Fraction]]:
        """Answers by option, in order; an option that is tried again has `unknown` until then."""
        rest = [unknown] * (len(self.plays) - len(self.answers))
        pairs = list(zip(self.plays, [*self.answers, *rest], strict=True))
        return {
            option: [answer for one, answer in pairs if one == option]
            for option in self.plays[: len(self.answers)]
        }


@dataclass(frozen=True)
class Flag:
    """Mapping of a feature flag to an experiment.

    Attributes
    ----------
    experiment : str
        Digest of the terms, hexadecimal.
    values : mapping of str to flag value
        Value of each option. String flags default to the options' names.
    events : mapping of str to str
        Metric of each tracked event. By default an event records the metric of the same name. If
        there is one metric, an event named like the flag records it, too.
    invitation : str or None
        Required if the terms admit participants by invitation.

    Examples
    --------
    >>> Flag("ab" * 32, values={"old": False, "new": True}, events={"purchase": "bought"}).events
    {'purchase': 'bought'}
    """

    experiment: str
    values: Mapping[str, FlagValueType] = field(default_factory=dict)
    events: Mapping[str, str] = field(default_factory=dict)
    invitation: str | None = field(default=None, repr=False)


def _threaded(
    resolve: Callable[Concatenate[Any, P], T],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """The asynchronous form of a method: it blocks on the network, so it runs in a thread."""

    async def resolved(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(resolve, self, *args, **kwargs)

    return resolved


def _resolver(*kinds: type[V]) -> Callable[..., FlagResolutionDetails[V]]:
    """A method that resolves a flag of this type to the value or name of the assigned option."""

    def resolved(
        provider: TacitProvider,
        flag_key: str,
        default_value: V,
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[V]:
        return provider._resolve(flag_key, default_value, kinds, evaluation_context)

    return resolved


class SecondParticipant(TacitError):  # noqa: N818 - as OpenFeature's InvalidContextError
    """A provider was asked about a second participant. The message contains no targeting key."""

    def __init__(self) -> None:
        super().__init__(
            "targetingKey differs from the first one of this provider: a provider is one "
            "participant's device and gives all callers one variant. Run it in each participant's "
            "app, or make a Device, Ledger and provider per participant (OpenFeature domains)."
        )


class TacitProvider(AbstractProvider):
    """OpenFeature provider of one participant's device.

    Evaluating a flag joins its experiment: evaluate flags only for participants who were shown the
    terms. The first targeting key names the participant. With another one evaluation returns the
    default with the error code `INVALID_CONTEXT`, and `track` records nothing.

    Parameters
    ----------
    device : Device
        The participant's device.
    flags : mapping of str to Flag
        The experiment of each flag key.
    reporter : bool
        Whether a thread sends reports at their scheduled times from `initialize` to `shutdown`.
        Otherwise the application calls `device.run_due()`.
    """

    def __init__(self, device: Device, flags: Mapping[str, Flag], *, reporter: bool = True) -> None:
        super().__init__()
        self.device, self.flags = device, dict(flags)
        self._reporter = reporter
        self._thread: threading.Thread | None = None
        self._stop, self._wake = threading.Event(), threading.Event()
        self._not_before: dict[str, tuple[float, str]] = {}
        self._participant: str | None = None
        self._tries: dict[str, _PlaysInProgress] = {}
        self._lock = threading.Lock()

    def get_metadata(self) -> Metadata:
        """The name of the provider."""
        return Metadata(name="tacit")

    # Lifecycle

    def initialize(self, evaluation_context: EvaluationContext) -> None:  # noqa: ARG002
        """Start the reporter thread, which also sends reports pending from an earlier run."""
        if self._reporter and self._thread is None:
            self._stop = threading.Event()
            self._thread = threading.Thread(
                target=self._report, args=(self._stop,), name="tacit", daemon=True
            )
            self._thread.start()

    def shutdown(self) -> None:
        """Stop the reporter thread; pending reports are sent after the next start."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stop.set()
            self._wake.set()
            thread.join()

    def _report(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._wake.clear()
            try:
                pause = self.device.run_due()
            except TacitError as problem:
                _log.warning("Reports not sent: %s", problem)
                pause = PAUSE
            if not stop.is_set():
                self._wake.wait(_LONGEST_SLEEP if pause is None else min(pause, _LONGEST_SLEEP))

    def _check_participant(self, context: EvaluationContext | None) -> None:
        """Raise `SecondParticipant` for another targeting key than the first."""
        key = None if context is None else context.targeting_key
        if not key:
            return
        with self._lock:
            self._participant = self._participant or key
            if key != self._participant:
                raise SecondParticipant

    # Recording

    def track(
        self,
        tracking_event_name: str,
        evaluation_context: EvaluationContext | None = None,
        tracking_event_details: TrackingEventDetails | None = None,
    ) -> None:
        """Record an outcome on this device; sends nothing.

        An event without a value counts as the highest answer. Values outside the range are clipped.
        Where several options are tried, it is the answer about the one that the flag has, which
        then has the next; an event of value 0 tells that nothing happened.
        """
        try:
            self._check_participant(evaluation_context)
        except SecondParticipant as problem:
            _log.warning("Event %s not recorded: %s", tracking_event_name, problem)
            return
        value = None if tracking_event_details is None else tracking_event_details.value
        for key, flag in self.flags.items():
            try:
                terms = self.device.known_terms(flag.experiment)
                metric = None if terms is None else _metric(key, flag, terms, tracking_event_name)
                if terms is None or metric is None:
                    continue
                answer = _clipped(terms.answer, value)
                if isinstance(terms.context, FittedTerms):
                    self._record_try(flag, terms.answer, answer)
                else:
                    self.device.record(flag.experiment, {metric: answer})
            except TacitError as problem:
                _log.warning("Event %s not recorded: %s", tracking_event_name, problem)

    def _record_try(self, flag: Flag, reported: Answer, answer: Fraction) -> None:
        """Record the answer about the option that a flag has, which then has the next."""
        with self._lock:
            tries = self._tries.get(flag.experiment)
            if tries is None:
                raise TacitError("no option was tried: evaluate the flag first")
            if len(tries.answers) == len(tries.plays):
                raise TacitError(f"all {len(tries.plays)} options that are tried have an answer")
            tries.answers.append(answer)
            self.device.record(flag.experiment, tries.outcome(_clipped(reported, 0)))

    # Evaluation

    resolve_boolean_details = _resolver(bool)
    resolve_string_details = _resolver(str)
    resolve_integer_details = _resolver(int)
    resolve_float_details = _resolver(float)
    resolve_object_details = _resolver(dict, list)
    resolve_boolean_details_async = _threaded(resolve_boolean_details)
    resolve_string_details_async = _threaded(resolve_string_details)
    resolve_integer_details_async = _threaded(resolve_integer_details)
    resolve_float_details_async = _threaded(resolve_float_details)
    resolve_object_details_async = _threaded(resolve_object_details)

    def _resolve(
        self,
        key: str,
        default: V,
        kinds: tuple[type, ...],
        context: EvaluationContext | None,
    ) -> FlagResolutionDetails[V]:
        """Resolve a flag to the assigned option, or to the default with a reason."""
        try:
            self._check_participant(context)
        except SecondParticipant as problem:
            return _unresolved(default, ErrorCode.INVALID_CONTEXT, str(problem))
        flag = self.flags.get(key)
        if flag is None:
            return _unresolved(default, ErrorCode.FLAG_NOT_FOUND, f"flag {key} has no experiment")
        until, why = self._not_before.get(key, (0.0, ""))
        if time.monotonic() < until:
            return _defaulted(default, why)
        try:
            values = self._values(flag)
            wrong = [option for option, value in values.items() if not _is(value, kinds)]
            if wrong:
                return _unresolved(
                    default,
                    ErrorCode.TYPE_MISMATCH,
                    f"flag {key} has no value of this type for option {wrong[0]!r}",
                )
            given = self._assignment(flag, context)
        except TacitError as problem:
            self._not_before[key] = (time.monotonic() + PAUSE, str(problem))
            return _defaulted(default, str(problem))
        self._wake.set()
        if not given.plays:
            return _assigned(values.get(given.option, default), given)
        with self._lock:
            tries = self._tries.get(flag.experiment)
            if tries is None or tries.plays != given.plays:
                tries = self._tries[flag.experiment] = _PlaysInProgress(given.plays)
            place = tries.place
        return _tried(values.get(given.plays[place], default), given, place)

    def _assignment(self, flag: Flag, context: EvaluationContext | None) -> Slot:
        """The assignment; where the device chooses, by attributes of the evaluation context."""
        terms = self.device.known_terms(flag.experiment)
        if terms is None or terms.context is None or isinstance(terms.context, FittedTerms):
            return self.device.join(flag.experiment, flag.invitation)
        attributes = {} if context is None else context.attributes
        names = [one.name for one in terms.context.fields]
        known = {name: attributes[name] for name in names if name in attributes}
        return self.device.choose(flag.experiment, known, flag.invitation)

    def _values(self, flag: Flag) -> dict[str, Any]:
        """Value of every option, looked up before an option is assigned."""
        terms = self.device.known_terms(flag.experiment)
        if terms is None:
            terms = self.device.terms(flag.experiment).terms
        named = flag.values or {option: option for option in terms.options}
        return {option: named.get(option) for option in terms.options}


def _is(value: object, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and (kinds == (bool,) or not isinstance(value, bool))


def _assigned(value: V, slot: Slot) -> FlagResolutionDetails[V]:
    return FlagResolutionDetails(
        value, reason=Reason.SPLIT, variant=slot.option, flag_metadata={"asked": slot.asked}
    )


def _tried(value: V, slot: Slot, index: int) -> FlagResolutionDetails[V]:
    found = _assigned(value, replace(slot, option=slot.plays[index]))
    found.flag_metadata = {**found.flag_metadata, "play": index + 1, "plays": len(slot.plays)}
    return found


def _defaulted(default: V, reason: str) -> FlagResolutionDetails[V]:
    return FlagResolutionDetails(default, reason=Reason.DEFAULT, flag_metadata={"why": reason})


def _unresolved(default: V, code: ErrorCode, reason: str) -> FlagResolutionDetails[V]:
    return FlagResolutionDetails(default, code, reason, Reason.ERROR)


def _metric(key: str, flag: Flag, terms: Terms, event: str) -> str | None:
    """The metric that an event records; None if it records none of this flag's."""
    metrics = terms.answer.metrics
    if flag.events:
        return flag.events.get(event)
    if event in metrics:
        return event
    return metrics[0] if event == key and len(metrics) == 1 else None


def _clipped(answer: Answer, value: float | None) -> Fraction:
    if value is None:
        return answer.high
    require(value == value, "value", value, "a number")  # NaN differs from itself
    if not answer.low < value < answer.high:
        return answer.low if value <= answer.low else answer.high
    return Fraction(value)
