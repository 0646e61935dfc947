"""Contract between the device and a trust model: checks before joining, and the bytes of a report.

The device keeps the ledger, the schedule and the network. A `Reporter` says which terms it can
verify, what a round costs, and which bytes go to which party. It keeps no state: everything that
must survive is in the ledger.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import ClassVar

from tacit.aggregation.announcements import LiveRound, accept
from tacit.client.entries import OpenParticipation
from tacit.client.exchange import Conversation
from tacit.errors import Rejected, require
from tacit.terms import Pinned, Terms
from tacit.trust import View


class Reporter(ABC):
    """A device's part in the rounds of one trust model."""

    description: ClassVar[type[LiveRound]]

    view: ClassVar[View | None] = None
    """The view that the guarantee of the terms must be about; None for any."""

    def announced(self, pinned: Pinned, announcement: bytes) -> LiveRound:
        """Parse a round that all parties signed and that is no weaker than the terms.

        It draws no randomness.
        """
        return accept(self.description, pinned, announcement)

    def cost(self, pinned: Pinned, announced: LiveRound) -> Fraction:
        """ε of the round, for the ledger."""
        return pinned.check(announced.offer())

    def check_terms(self, terms: Terms) -> None:
        """Reject terms whose guarantee a device cannot verify, before they are shown."""
        if self.view is not None:
            rule = f"{self.view.value} with {terms.kind} rounds"
            require(terms.view is self.view, "view", terms.view.value, rule, Rejected)

    def least_cost(self, terms: Terms) -> Fraction:
        """ε of a round with exactly the noise of the terms: by default an equal part of all."""
        return terms.cost

    @abstractmethod
    def encode(self, participation: OpenParticipation) -> Mapping[int, bytes]:
        """The report: bytes by the index of the party in the terms.

        The ledger charges the round and stores the bytes in one transaction, before anything is
        sent. It calls this once per participation, so noise is drawn once.
        """

    def stages(self, participation: OpenParticipation, url: str, now: float) -> Conversation[bool]:  # noqa: ARG002
        """Exchange further messages about a round that has closed, with the party at this URL.

        Returns whether more are to come. Trust models with one message per party have none.
        """
        yield from ()
        return False

    def stage_due(self, participation: OpenParticipation) -> float | None:  # noqa: ARG002
        """Time of the next call of `stages`, in seconds since 1970; None for never."""
        return None

    def forget(self, participation: OpenParticipation) -> None:  # noqa: B027
        """Delete the in-memory state of a participation that is over."""

    @abstractmethod
    def refunds(self, pinned: Pinned, announcement: bytes, outcomes: Sequence[bytes]) -> bool:
        """Whether these signed outcomes prove that nothing was released."""
