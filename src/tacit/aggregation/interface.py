"""Interfaces and argument checks shared by all aggregation protocols.

An intermediary is the S of a protocol P = (R, S, A): it stands between the clients and the analyzer
and hides which client sent which report. All parties are state machines without I/O: bytes in,
bytes out. The caller (a test, a simulation, a live service) carries the bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tacit.aggregation.blame import Blame
from tacit.errors import Rejected as Rejected
from tacit.errors import integer, require

Source = Callable[[int], bytes]
"""A source of random bytes: the operating system, or a reproducible one for test vectors."""

SYSTEM: Source = os.urandom

IDENTITY_SIZE = 16
"""Bytes of a round's random identifier, which is in every message and every key derivation."""

ViewT_co = TypeVar("ViewT_co", covariant=True)


class Relay(Protocol):
    """A party that takes messages one at a time and returns messages to send at the end of a stage.

    Every operation is atomic: one that raises `Rejected` leaves the state unchanged. A repeated
    message is accepted once; a repeated `close` returns the same messages.
    """

    def take(self, message: bytes) -> None:
        """Accept one message of the current stage, or raise `Rejected` and keep the state."""

    def close(self) -> Mapping[bytes, bytes]:
        """End the current stage and return the messages to send, by address.

        With too few messages it raises `Rejected`, and the stage continues until more arrive or the
        round is aborted.
        """


class Intermediary(Relay, Protocol[ViewT_co]):
    """The last party of an aggregation: after its last stage it releases only the aggregate."""

    def view(self) -> ViewT_co:
        """The view, once every stage is closed; raises `Rejected` if nothing was released."""


@dataclass(frozen=True)
class SumView:
    """The released aggregate of a summing protocol.

    `numbers` are the sums modulo m, one per number of a report, and `reports` is the batch size.
    `rejected` counts reports dropped as out of range, in verified rounds. `blamed` lists clients
    known to be malicious, in masking.
    """

    numbers: tuple[int, ...]
    reports: int
    rejected: int = 0
    blamed: tuple[Blame, ...] = ()


class UnknownRound(Rejected):
    """This party has no record of the round."""


class ClosedRound(Rejected):
    """The round accepts no more reports."""


@dataclass(frozen=True, repr=False)
class CheckedShare:
    """A validated report for a party's table: its key there, its ciphertext, content and slot."""

    name: bytes
    wrapped: bytes
    share: bytes
    slot: int


def expect(condition: object, name: str, value: object, rule: str) -> None:
    """Raise `Rejected` unless the rule holds, for values that come from others."""
    require(condition, name, value, rule, Rejected)


def expect_size(name: str, data: bytes, size: int) -> bytes:
    """Return `data`; raise `Rejected` unless it has `size` bytes."""
    expect(len(data) == size, name, f"{len(data)} bytes long", f"{size} bytes long")
    return data


def new_identity(source: Source = SYSTEM) -> bytes:
    """A fresh random identifier for a round."""
    return source(IDENTITY_SIZE)


def check_counts(reports: object, minimum: object, least: int = 1) -> tuple[int, int]:
    """Check the number of reports that a round is for and its minimum batch size.

    `minimum` counts all reports that arrive. If up to c of them may come from corrupted clients
    that omit their noise, a guarantee that needs h honest reports needs a minimum of h + c.

    >>> check_counts(64, 57)
    (64, 57)
    >>> check_counts(40, 57)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tacit.errors.TacitError: minimum is 57: must be at most 40, the reports ...
    """
    whole = integer("reports", reports, at_least=least)
    fewest = integer("minimum", minimum, at_least=least)
    require(whole < 1 << 32, "reports", whole, "below 2^32. Split the round into several")
    require(fewest <= whole, "minimum", fewest, f"at most {whole}, the reports of the round")
    return whole, fewest


def check_minimum(arrived: int, minimum: int, name: str = "reports") -> None:
    """Raise `Rejected` if fewer than `minimum` reports arrived.

    >>> check_minimum(40, 57)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tacit.errors.Rejected: number of reports is 40: must be at least 57, the minimum ...
    """
    rule = f"at least {minimum}, the minimum batch size. Nothing was released"
    expect(arrived >= minimum, f"number of {name}", arrived, rule)


def uniform(bound: int, count: int, source: Source = SYSTEM) -> list[int]:
    """Draw `count` independent integers, exactly uniform in 0..bound-1 by rejection sampling."""
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
