"""Two non-colluding servers: each sums its report shares and adds noise of its own.

The cryptography is in `tacit.aggregation.aggregator` and `collecting`. The coordinator is also the
collector. One honest server suffices for the guarantee. With range proofs (kind "verified"), the
servers drop reports out of range; that needs both servers to be honest.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from tacit.aggregation import SumView
from tacit.aggregation.aggregator import Aggregator, partial_size
from tacit.aggregation.aggregator_context import AggregatorContext, AggregatorStage, RoundRecord
from tacit.aggregation.announcements import LiveRound
from tacit.aggregation.collecting import Collector, prepare_collector
from tacit.aggregation.encryption import HpkeSuite, suite_named
from tacit.aggregation.two_servers import TwoServerRound
from tacit.aggregation.wire import Kind, kind_of
from tacit.errors import Rejected, TacitError
from tacit.noise.parameters import sum_of_shares
from tacit.protocols.contract import Protocol
from tacit.protocols.statistic_sums import StatisticSum
from tacit.records import Records
from tacit.rounds.codecs import Residues, codec
from tacit.rounds.stated_noise import ReleasedNoise
from tacit.service.errors import LOG
from tacit.service.pending import PendingShares
from tacit.service.schema import RoundRow, Stage
from tacit.service.trust_models.contract import (
    CoordinatorEngine,
    HelperEngine,
    RoundEngine,
    not_over,
)
from tacit.service.trust_models.rounds import EndedRound, HelperAnswer, RoundPlan, ServedRound
from tacit.terms import Terms


class TwoServerEngine(RoundEngine):
    """The part that both servers share."""

    description = TwoServerRound

    @staticmethod
    def check_terms(terms: Terms) -> None:
        """Reject terms whose devices add the noise: those need both servers to be honest."""
        if terms.noise.by != "servers":
            raise TacitError(
                f"the terms name {terms.kind} with noise by {terms.noise.by}: live experiments "
                "with two servers need noise by servers"
            )

    def aggregator_context(self, identity: bytes) -> AggregatorContext:
        """This server's aggregator context for one round."""
        about = self.context
        draw = about.noise(identity)
        return AggregatorContext(about.pinned, about.role, about.key, about.records, draw)

    def endorse(self, description: bytes) -> bytes:
        """Sign a description whose keys are on record."""
        identity = TwoServerRound.decode(description).identity
        return self.aggregator_context(identity).endorse(description)

    def serve(self, row: RoundRow) -> Aggregator:
        """This server's aggregator of the round in this row."""
        table = PendingShares(self.context.store, row.identity)
        return Aggregator(self.aggregator_context(row.identity), row.announcement, table)

    @staticmethod
    def recorded_outcome(records: Records, role: int, identity: bytes) -> bytes | None:
        """The signed outcome in the round's record."""
        found = records.read(bytes((role,)) + identity)
        if found is None:
            return None
        record = RoundRecord.decode(found)
        if record.stage is not AggregatorStage.CLOSED:
            raise not_over(identity)
        return record.outcome or None


class TwoServerCoordinator(TwoServerEngine, CoordinatorEngine):
    """The first server, which is the collector too."""

    @staticmethod
    def codec(protocol: Protocol, terms: Terms) -> Residues:
        """Exact levels; rejects noise of the servers that differs from that of the terms."""
        chosen = isinstance(protocol, StatisticSum)
        way = codec(protocol, "two-servers" if chosen else terms.kind)
        expected = terms.numbers(chosen), terms.answer.levels, terms.parameter(chosen)
        own = way.noise if isinstance(way, Residues) else None
        if (
            not isinstance(way, Residues)
            or own is None
            or (protocol.coordinates, own.levels, own.scale) != expected
        ):
            raise TacitError(
                "the noise of the experiment differs from that of the terms: use the same levels, "
                "epsilon, participations and metrics"
            )
        return replace(way, verified=bool(terms.proofs))

    @staticmethod
    def traffic(announced: LiveRound) -> tuple[tuple[int, ...], int]:
        """Bytes of both report shares and of the helper's partial sum."""
        assert isinstance(announced, TwoServerRound)
        sizes = announced.share_size(0), announced.share_size(1)
        return sizes, partial_size(announced)

    @staticmethod
    def released_noise(
        terms: Terms,
        announced: LiveRound,
        reports: int,  # noqa: ARG004
        factor: Fraction = Fraction(1),
    ) -> ReleasedNoise:
        """One server's noise."""
        assert isinstance(announced, TwoServerRound)
        assert announced.scale is not None
        name = terms.distribution(announced.binding.chosen)
        noise = sum_of_shares(name, announced.scale * factor, 1, 1)
        return ReleasedNoise(noise, terms.answer.levels)

    def describe(self, plan: RoundPlan) -> TwoServerRound:
        """Describe a round with keys of both servers and of the collector."""
        terms, identity = self.context.terms, plan.identity
        way, suite = self.codec(plan.protocol, terms), suite_named(terms.suite)
        theirs = self.context.helper_keys(identity, suite)  # first: if rejected, make no key
        assert way.noise is not None
        context = self.aggregator_context(identity)
        own = context.prepare(identity, suite)
        return TwoServerRound(
            plan.binding(terms),
            plan.slots,
            self.least(way.protocol),
            way.field if way.verified else way.modulus,
            (own, theirs),
            prepare_collector(self.context.records, identity, suite),
            way.protocol.coordinates,
            Fraction(way.noise.scale),
            plan.assigned_until,
            plan.grace,
            suite,
            identity,
            context.commitment(identity, (own, theirs)) if terms.proofs else b"",
        )

    def endorse(self, description: bytes) -> bytes:
        """Sign a description whose keys are on record; rejects a round that was aborted."""
        signature = super().endorse(description)
        identity = TwoServerRound.decode(description).identity
        record = self.aggregator_context(identity).record(identity)
        if record is None or record.stage is not AggregatorStage.OPEN:
            raise Rejected("this server aborted it before")
        return signature

    def abandon(self, identity: bytes) -> None:
        """Abort a round that is not over and destroy this server's keys."""
        self.aggregator_context(identity).abandon(identity)

    def close(self, row: RoundRow, served: ServedRound) -> EndedRound | None:
        """Sum this server's report shares, request the helper's partial sum, and add both."""
        assert isinstance(served, Aggregator)
        collector = Collector(served.pinned, row.announcement, self.context.records)
        mine, listing = self._own(served)
        if mine:
            collector.take(mine)
        if kind_of(mine) is not Kind.OUTCOME and not collector.over:
            theirs, answer = self.context.helper().exchange(row.identity, listing)
            if answer:
                collector.take(answer)
            if theirs and not mine:
                served.take(theirs, self.context.clock())
            elif kind_of(answer) is Kind.OUTCOME:  # aborted by the helper: destroy this secret, too
                self.abandon(row.identity)
            mine, _ = self._own(served)
            if mine:
                collector.take(mine)
        if not mine:
            return None
        collector.close()
        return EndedRound(_view(collector))

    def _own(self, served: Aggregator) -> tuple[bytes, bytes]:
        """This server's answer to the collector and its list for the helper, each empty until it
        exists.
        """
        out = served.close(self.context.clock())
        return out.get(served.round.collector, b""), out.get(served.peer, b"")


class TwoServerHelper(TwoServerEngine, HelperEngine):
    """The second server."""

    def prepare(self, identity: bytes, suite: HpkeSuite) -> bytes:
        """Public keys for a new round, on record before this returns."""
        return self.aggregator_context(identity).prepare(identity, suite)

    def close(self, served: ServedRound, message: bytes, now: int) -> HelperAnswer:
        """Take the coordinator's list; return this server's list and its answer.

        The answer, for the collector, is an encrypted partial sum or a signed abort.
        """
        assert isinstance(served, Aggregator)
        if message:
            served.take(message, now)
        try:
            out = served.close(now)
        except Rejected:  # too early, or no record of the round is left
            return HelperAnswer()
        record = self.aggregator_context(served.round.identity).record(served.round.identity)
        ended = None
        if record is not None and record.stage is AggregatorStage.CLOSED:
            ended = Stage.RELEASED if record.partial else Stage.ABORTED
        return HelperAnswer(out.get(served.peer, b""), out.get(served.round.collector, b""), ended)


def _view(collector: Collector) -> SumView | None:
    try:
        return collector.view()
    except Rejected as reason:
        LOG.warning("round %s is aborted: %s", collector.round.identity.hex(), reason)
        return None
