"""A device's part with two servers that each add noise of their own: two encrypted shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from tacit.aggregation import TwoServerRound, aborted_by_both, split
from tacit.client.choices import numbers_of
from tacit.client.entries import OpenParticipation
from tacit.client.trust_models.contract import Reporter
from tacit.terms import Pinned, Terms
from tacit.trust import View


class TwoServerReporter(Reporter):
    """Splits the levels into one report share per server.

    Terms whose devices add the noise are rejected: they need both servers to be honest.
    """

    description, view = TwoServerRound, View.OTHER_SERVER

    def least_cost(self, terms: Terms) -> Fraction:
        """Sensitivity / scale; for Gaussian noise ε."""
        return terms.round_cost(terms.context is not None, terms.noise.scale)

    def encode(self, participation: OpenParticipation) -> Mapping[int, bytes]:
        """The encrypted shares of both servers."""
        assert participation.levels is not None
        pinned, announcement = participation.pinned, participation.announcement
        announced = self.announced(pinned, announcement)
        numbers = numbers_of(pinned.terms, announced.binding, participation.levels)
        shares = split(pinned, announcement, participation.slot, numbers)
        return dict(enumerate(shares))

    def refunds(self, pinned: Pinned, announcement: bytes, outcomes: Sequence[bytes]) -> bool:
        """Both servers signed that they aborted."""
        return aborted_by_both(pinned, announcement, outcomes)
