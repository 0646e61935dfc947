"""What passes between a party of the live service and its engine: a round's plan, part and end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from tacit.aggregation import ReportSlot, ShuffledView, SumView
from tacit.aggregation.announcements import Binding, LiveRound
from tacit.aggregation.interface import CheckedShare
from tacit.protocols.contract import Protocol as PrivacyProtocol
from tacit.service.schema import Stage
from tacit.terms import Terms

ReleasedView = SumView | ShuffledView


class HelperLink(Protocol):
    """The coordinator's connection to the helper; raises `Unavailable` if it does not answer."""

    def keys(self, digest: bytes, identity: bytes, sealing: int) -> bytes:
        """The helper's public keys for a new round."""

    def describe(self, description: bytes, signature: bytes) -> bytes:
        """The announcement of a round, signed by the helper."""

    def exchange(self, identity: bytes, listing: bytes) -> tuple[bytes, bytes]:
        """The helper's message and answer; each is empty until it exists."""


@dataclass(frozen=True)
class RoundPlan:
    """A planned round: its place in the experiment, its protocol and its times in seconds.

    With a `policy`, by which devices choose, the option is `BY_POLICY`.
    """

    identity: bytes
    option: int
    slots: int
    protocol: PrivacyProtocol
    assigned_until: int
    closes: int
    grace: int
    policy: bytes = b""

    def binding(self, terms: Terms) -> Binding:
        """The fields that bind the round to its experiment."""
        about = terms.answer
        return Binding(
            terms.digest, self.option, about.levels, about.window, self.closes, self.policy
        )


@dataclass(frozen=True)
class EndedRound:
    """The end of a round: its released view, or None if it was aborted."""

    view: ReleasedView | None


@dataclass(frozen=True)
class HelperAnswer:
    """The helper's messages for the coordinator, and the final stage once its part is over."""

    listing: bytes = b""
    answer: bytes = b""
    ended: Stage | None = None


class ServedRound(Protocol):
    """A round at one party while it accepts reports; created anew in any process.

    All methods raise `UnknownRound` without a record of the round, `ClosedRound` once it is closed.
    """

    @property
    def round(self) -> LiveRound:
        """The description of the round."""

    @property
    def report_size(self) -> int:
        """Bytes of a report for this party."""

    @property
    def slot_at(self) -> int:
        """Bytes of a report in front of its slot and token."""

    def slots(self, numbers: Iterable[int]) -> list[ReportSlot]:
        """The slots with these numbers, with their tokens."""

    def names(self, things: Iterable[bytes]) -> list[bytes]:
        """Pseudonyms under the round's secret, meaningless once it is destroyed."""

    def check(self, message: bytes, now: int) -> CheckedShare:
        """Validate one report without I/O; the caller stores it."""

    def same(self, waiting: CheckedShare, there: bytes) -> bool:
        """Whether the stored entry `there` is this report."""
