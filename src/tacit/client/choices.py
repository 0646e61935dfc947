"""Choice of an option on the device, by the participant's context and the policy of the round.

Nothing of it leaves the device but the statistic, inside a report. The choice is drawn with
randomness of the operating system. Features and policies are in `tacit.contextual`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tacit.aggregation.announcements import Binding, LiveRound
from tacit.aggregation.two_servers import ReportSlot
from tacit.client.entries import OpenParticipation
from tacit.client.levels import default_levels
from tacit.errors import Rejected, TacitError
from tacit.terms import BY_POLICY, FittedTerms, Pinned, Terms

Context = Mapping[str, Any]


@dataclass(frozen=True)
class ChosenOption:
    """An option, and what the ledger stores for its report: the coded context, then the levels.

    `plays` are the options to try one after the other, where the device reports a fitted parameter.
    """

    option: str
    levels: tuple[int, ...]
    plays: tuple[str, ...] = ()


def check_context(terms: Terms, context: Context | None) -> None:
    """Reject a missing, unexpected or invalid context before anything is sent."""
    if terms.context is None or isinstance(terms.context, FittedTerms):
        if context is not None:
            raise TacitError("context is given, but the terms have none: call join()")
        return
    if context is None:
        names = ", ".join(one.name for one in terms.context.fields)
        raise TacitError(f"context is missing: must have {names}. Call choose() with it")
    terms.context.features(terms.options).code(context)


def choose(terms: Terms, binding: Binding, context: Context | None) -> ChosenOption:
    """The option of a round that complies with the terms, and the levels if nothing happens.

    Parameters
    ----------
    terms : Terms
        The terms.
    binding : Binding
        The fields of the announced round.
    context : mapping or None
        The value of each field of the context; None where the terms have none.
    """
    answer = default_levels(terms.answer)
    if binding.option != BY_POLICY:
        return ChosenOption(terms.options[binding.option], answer)
    if isinstance(terms.context, FittedTerms):
        plays = plays_of(terms, binding)
        return ChosenOption(plays[0], answer * len(plays), plays)
    if terms.context is None or context is None:
        raise Rejected("the round asks the device to choose: must be under terms with a context")
    chosen = terms.context.choose(binding.policy, terms.options, context)
    return ChosenOption(terms.options[chosen.option], (*chosen.known, *answer))


def plays_of(terms: Terms, binding: Binding) -> tuple[str, ...]:
    """The options that a participant of a round tries, in order; empty where it is one option."""
    if not isinstance(terms.context, FittedTerms) or binding.option != BY_POLICY:
        return ()
    policy = terms.context.policy(binding.policy, len(terms.options))
    return tuple(terms.options[option] for option in policy.sequence)


def numbers_of(terms: Terms, binding: Binding, levels: Sequence[int]) -> list[int]:
    """The numbers of a report: the statistic of the stored levels, or the levels themselves."""
    context = terms.context
    if binding.option != BY_POLICY or context is None:
        return list(levels)
    if isinstance(context, FittedTerms):
        count = len(terms.options)
        report = context.report(count, terms.answer.levels)
        return report.vector(context.policy(binding.policy, count), levels)
    known, level = levels[: context.known_size], levels[context.known_size]
    return context.vector(len(terms.options), terms.answer.levels, known, level)


def zero_report(
    pinned: Pinned, announcement: bytes, announced: LiveRound, slot: ReportSlot, joined: float
) -> OpenParticipation:
    """A participation whose answers are all zero, without a ledger: for audits and the demo."""
    context, about = pinned.terms.context, announced.binding
    kept = len(plays_of(pinned.terms, about)) - 1
    if not isinstance(context, FittedTerms):
        kept = context.known_size if context is not None and about.chosen else 0
    levels = (0,) * (len(pinned.terms.answer.metrics) + kept)
    return OpenParticipation(
        announced.identity, pinned, announcement, slot, b"", joined, None, levels, ()
    )
