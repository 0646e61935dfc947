"""Secure aggregation with one server (masking): the coordinator alone, devices add the noise.

Devices join while a round is open. After it has closed, the coordinator runs the stages with the
devices that are online (`tacit.aggregation.masking_rounds`), and learns the sum of the survivors.
"""

from __future__ import annotations

from fractions import Fraction

from tacit.aggregation.announcements import LiveRound, SharedNoise
from tacit.aggregation.graph import Claim, Neighbourhood, neighbourhood
from tacit.aggregation.masking import MaskingRound
from tacit.aggregation.masking_rounds import MaskingReports
from tacit.aggregation.masking_server import PARTY, MaskingServer, prepare_server
from tacit.aggregation.round_state import RoundPhase
from tacit.errors import TacitError
from tacit.noise.parameters import sum_of_shares
from tacit.protocols.contract import Protocol
from tacit.protocols.joint import JointSums
from tacit.protocols.statistic_sums import SecureStatistic
from tacit.protocols.sums import SecureSum
from tacit.records import Records
from tacit.rounds.codecs import Residues
from tacit.rounds.stated_noise import ReleasedNoise, stated_noise
from tacit.service.errors import LOG
from tacit.service.pending import PendingShares
from tacit.service.schema import RoundRow
from tacit.service.trust_models.contract import (
    CoordinatorEngine,
    abort_party,
    party_outcome,
    stated_codec,
)
from tacit.service.trust_models.rounds import EndedRound, RoundPlan, ServedRound
from tacit.terms import Aggregation, Terms

KIND = "masking"
ROLE = 0


class MaskingCoordinator(CoordinatorEngine):
    """The only server."""

    description = MaskingRound

    @staticmethod
    def codec(protocol: Protocol, terms: Terms) -> Residues:
        """Residues; rejects noise that differs from that of the terms."""
        return stated_codec(protocol, terms, KIND, Residues)

    @staticmethod
    def traffic(announced: LiveRound) -> tuple[tuple[int, ...], int]:
        """Bytes of a masked report; the other stages depend on the neighbourhood."""
        assert isinstance(announced, MaskingRound)
        return ((announced.masked_size,), 0)

    @staticmethod
    def released_noise(
        terms: Terms, announced: LiveRound, reports: int, factor: Fraction = Fraction(1)
    ) -> ReleasedNoise:
        """The noise shares of all devices that reported."""
        assert isinstance(announced, MaskingRound)
        noise, name = announced.noise, terms.distribution(announced.binding.chosen)
        shared = sum_of_shares(name, noise.total * factor, noise.divisor, reports)
        return ReleasedNoise(shared, terms.answer.levels)

    def serve(self, row: RoundRow) -> MaskingReports:
        """The round in this row."""
        return MaskingReports(self.context.pinned, row.announcement, self.context.records)

    @staticmethod
    def recorded_outcome(records: Records, role: int, identity: bytes) -> bytes | None:
        """The signed outcome in the server's record."""
        return party_outcome(records, PARTY, role, identity)

    def describe(self, plan: RoundPlan) -> MaskingRound:
        """Describe a round whose neighbourhood withstands the adversary of the terms."""
        terms = self.context.terms
        tolerated, way = terms.aggregation, self.codec(plan.protocol, terms)
        least = self.least(way.protocol)
        return MaskingRound(
            plan.binding(terms),
            plan.identity,
            plan.slots,
            least,
            way.modulus,
            way.protocol.coordinates,
            neighbourhood_for(tolerated, plan.slots, least),
            prepare_server(self.context.records, plan.identity),
            _announced_noise(plan.protocol),
            plan.assigned_until,
            plan.grace,
        )

    def endorse(self, description: bytes) -> bytes:
        """Sign the only description of a round whose key is on record."""
        server = MaskingServer(MaskingRound.decode(description), self.context.records)
        return server.endorse(self.context.pinned, self.context.key)

    def abandon(self, identity: bytes) -> None:
        """Abort a round that is not over and destroy its key."""
        abort_party(self.context.records, PARTY, identity)

    def close(self, row: RoundRow, served: ServedRound) -> EndedRound | None:
        """Advance the stages; None while devices still answer."""
        assert isinstance(served, MaskingReports)
        now = self.context.clock()
        if served.entry().phase is RoundPhase.OPEN and now >= row.expires:
            served.abort()
        phase = served.advance(PendingShares(self.context.store, row.identity), now)
        if phase is RoundPhase.OPEN:
            return None
        if served.reason:
            LOG.warning("round %s is aborted: %s", row.identity.hex(), served.reason)
        served.finish(ROLE, self.context.key)
        return EndedRound(served.view() if phase is RoundPhase.ANSWERED else None)


def neighbourhood_for(tolerated: Aggregation, slots: int, least: int) -> Neighbourhood:
    """The smallest neighbourhood that withstands the adversary of the terms, in whole clients."""
    return neighbourhood(
        slots,
        least,
        dropout=tolerated.missing_fraction,
        corrupt=Fraction(tolerated.dishonest(slots), slots),
        claim=Claim(tolerated.claim),
    )


def _announced_noise(protocol: Protocol) -> SharedNoise:
    """The shares of the noise, as a round announces them."""
    part = protocol.part if isinstance(protocol, JointSums) else protocol
    if not isinstance(part, (SecureSum, SecureStatistic)):
        raise TacitError(f"{type(part).__name__} has no announced noise: use secure sums")
    return SharedNoise(part.honest, stated_noise(part).scale)
