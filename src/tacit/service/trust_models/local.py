"""Local model: the coordinator alone sums reports to which devices have added all of the noise.

There is no helper. A report is private by itself, whatever the coordinator does with it.
"""

from __future__ import annotations

import math
from fractions import Fraction

from tacit.aggregation.announcements import LiveRound, SharedNoise
from tacit.aggregation.encryption import suite_named
from tacit.aggregation.interface import ClosedRound
from tacit.aggregation.local import (
    LocalRound,
    LocalServer,
    abandon_local,
    endorse_local,
    local_outcome,
    prepare_local,
)
from tacit.noise import Binomial
from tacit.noise.parameters import sum_of_shares
from tacit.protocols.contract import Protocol
from tacit.protocols.joint import JointSums
from tacit.protocols.randomized_bits import RandomizedBits
from tacit.protocols.statistic_sums import UnaryStatistic
from tacit.protocols.sums import Local
from tacit.records import Records
from tacit.rounds.codecs import Residues
from tacit.rounds.stated_noise import ReleasedNoise, check_stated
from tacit.service.errors import LOG
from tacit.service.pending import PendingShares
from tacit.service.schema import RoundRow
from tacit.service.trust_models.contract import CoordinatorEngine, not_over
from tacit.service.trust_models.rounds import EndedRound, RoundPlan, ServedRound
from tacit.terms import Terms
from tacit.terms.parts import DISCRETE_LAPLACE, UNARY_ENCODING

CLAMPED = 40  # a number is clamped with a probability below 2^-40


class LocalCoordinator(CoordinatorEngine):
    """The only party of the local model."""

    description = LocalRound

    @staticmethod
    def codec(protocol: Protocol, terms: Terms) -> Residues:
        """Sums of noisy levels; rejects a protocol whose noise is not that of the terms."""
        check_stated(protocol, terms)
        part = protocol.part if isinstance(protocol, JointSums) else protocol
        assert isinstance(part, Local | RandomizedBits | UnaryStatistic)
        return Residues(protocol, part.modulus)

    @staticmethod
    def traffic(announced: LiveRound) -> tuple[tuple[int, ...], int]:
        """Bytes of a report; there is no helper."""
        assert isinstance(announced, LocalRound)
        return (announced.report_size,), 0

    @staticmethod
    def released_noise(
        terms: Terms, announced: LiveRound, reports: int, factor: Fraction = Fraction(1)
    ) -> ReleasedNoise:
        """The number of randomized bits, or the discrete Laplace noise of all devices."""
        assert isinstance(announced, LocalRound)
        total, name = announced.noise.total * factor, terms.distribution(announced.binding.chosen)
        if name == DISCRETE_LAPLACE:
            noise = sum_of_shares(name, total, 1, reports)
            return ReleasedNoise(noise, terms.answer.levels)
        unary = name == UNARY_ENCODING
        flipped = 1 / (1 + math.exp((2 if unary else 1) / total))
        unit = (0.5 if unary else 1 - flipped) - flipped
        return ReleasedNoise(Binomial(reports, flipped), unit, reports * flipped)

    def describe(self, plan: RoundPlan) -> LocalRound:
        """Describe a round with a key of its own."""
        terms = self.context.terms
        way, suite = self.codec(plan.protocol, terms), suite_named(terms.suite)
        chosen = isinstance(plan.protocol, UnaryStatistic)
        return LocalRound(
            plan.binding(terms),
            plan.slots,
            self.least(way.protocol),
            prepare_local(self.context.records, plan.identity, suite),
            _room(terms, chosen),
            terms.numbers(chosen),
            SharedNoise(1, terms.parameter(chosen)),
            plan.assigned_until,
            plan.grace,
            suite,
            plan.identity,
        )

    def endorse(self, description: bytes) -> bytes:
        """Sign a description whose key is on record."""
        about = self.context
        return endorse_local(about.pinned, about.records, description, about.key)

    def abandon(self, identity: bytes) -> None:
        """Abort a round that is not over and destroy its key."""
        abandon_local(self.context.records, identity, self.context.key)

    def serve(self, row: RoundRow) -> LocalServer:
        """The announced round in this row."""
        about, table = self.context, PendingShares(self.context.store, row.identity)
        return LocalServer(about.pinned, row.announcement, about.records, table, about.key)

    def close(self, row: RoundRow, served: ServedRound) -> EndedRound | None:
        """Sum the reports of a closing round."""
        assert isinstance(served, LocalServer)
        view = served.close(self.context.clock())
        if view is None:
            LOG.warning("round %s is aborted: it has too few reports", row.identity.hex())
        return EndedRound(view)

    @staticmethod
    def recorded_outcome(records: Records, role: int, identity: bytes) -> bytes | None:  # noqa: ARG004
        """The signed outcome in the round's record."""
        try:
            return local_outcome(records, identity)
        except ClosedRound:
            raise not_over(identity) from None


def _room(terms: Terms, chosen: bool) -> int:
    """Distance of a noisy number from the range of levels at most; 0 for randomized bits."""
    if terms.distribution(chosen) != DISCRETE_LAPLACE:
        return 0
    return math.ceil(terms.noise.scale * CLAMPED)
