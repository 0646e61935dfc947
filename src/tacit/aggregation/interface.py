"""What every intermediary has in common: it takes messages, closes, and hands over one view or
refuses.

An intermediary is the S of a protocol P = (R, S, A): it stands between the people who report and
the analyzer who learns, and hides who said what. Everything here is a state machine without input
or output: bytes come in, bytes go out, and whoever drives it (a test, a simulation, a live service)
carries the bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tacit.aggregation.blame import Blame
from tacit.errors import Refusal as Refusal
from tacit.errors import TacitError, integer

Source = Callable[[int], bytes]
"""Where random bytes come from: the operating system, except where test vectors need the same bytes
twice.
"""

SYSTEM: Source = os.urandom

IDENTITY_SIZE = 16
"""Bytes of the random name that a round carries in every message and in every key derivation."""

ViewT_co = TypeVar("ViewT_co", covariant=True)


class Relay(Protocol):
    """A party that takes messages, one at a time, and at the end of a stage says what to send to
    whom.

    It raises `Refusal` instead of doing anything halfway: what is refused leaves the state as it
    was. The same message twice is taken once; a `close` that comes again gives the same.
    """

    def take(self, message: bytes) -> None:
        """Accept one message of the current stage, or raise `Refusal` and stay as before."""

    def close(self) -> Mapping[bytes, bytes]:
        """End the current stage; returns what to send, by address.

        Too few messages: `Refusal`, and the stage goes on until more come or the round is refused.
        """


class Intermediary(Relay, Protocol[ViewT_co]):
    """The party at the end of the middle: after its last stage it hands over what may be learnt,
    and only that.
    """

    def view(self) -> ViewT_co:
        """The view, once every stage is closed; a `Refusal` if the round was not opened."""


@dataclass(frozen=True)
class SumView:
    """What a sum intermediary hands over: the sums modulo m, one per number of a report, the count
    of reports in them, the count of those that were dropped because they are not in range, where
    that is verified, and who is known to have lied, in masking.
    """

    numbers: tuple[int, ...]
    reports: int
    rejected: int = 0
    blamed: tuple[Blame, ...] = ()


def new_identity(source: Source = SYSTEM) -> bytes:
    """A fresh random name for a round."""
    return source(IDENTITY_SIZE)


def check_counts(reports: object, minimum: object, least: int = 1) -> tuple[int, int]:
    """The number of reports a round is opened for and the number below which nothing is opened.

    `minimum` counts all reports that arrive. Where up to c of them may come from people who left
    out their noise, a guarantee that needs h honest reports needs a minimum of h + c.

    >>> check_counts(64, 57)
    (64, 57)
    >>> check_counts(40, 57)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tacit.errors.TacitError: minimum is 57 but the round is for 40 reports; open ...
    """
    whole = integer("reports", reports, at_least=least)
    fewest = integer("minimum", minimum, at_least=least)
    if whole >= 1 << 32:
        raise TacitError(
            f"reports is {whole}; a round holds fewer than 2^32 reports: split it into several "
            "rounds"
        )
    if fewest > whole:
        raise TacitError(
            f"minimum is {fewest} but the round is for {whole} reports; open the round for at "
            f"least {fewest} reports"
        )
    return whole, fewest


def check_minimum(arrived: int, minimum: int, what: str = "reports") -> None:
    """Raise `Refusal` when fewer than `minimum` arrived.

    >>> check_minimum(40, 57)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tacit.errors.Refusal: 40 reports: the minimum is 57; ... or a new round.
    """
    if arrived < minimum:
        raise Refusal(
            f"{arrived} {what}: the minimum is {minimum}; nothing was opened. {minimum - arrived} "
            "more, or a new round."
        )


def uniform(bound: int, count: int, source: Source = SYSTEM) -> list[int]:
    """`count` independent integers, each uniform in 0..bound-1: words that would favour some are
    drawn again.
    """
    size = (bound.bit_length() + 7) // 8 + 8
    limit = (1 << 8 * size) - (1 << 8 * size) % bound
    numbers: list[int] = []
    while len(numbers) < count:
        drawn = source(size * (count - len(numbers)))
        words = [
            int.from_bytes(drawn[start : start + size], "big")
            for start in range(0, len(drawn), size)
        ]
        numbers += [word % bound for word in words if word < limit]
    return numbers
