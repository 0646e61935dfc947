"""Shuffler: the helper permutes encrypted messages, the coordinator analyzes them.

Devices add the noise and send everything to the helper, which stores envelopes until the deadline,
permutes their messages and forwards them once. The coordinator decrypts them and learns no sender.
The cryptography is in `tacit.aggregation.shuffler` and `shuffler_reports`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from fractions import Fraction

from tacit.aggregation.announcements import LiveRound, SharedNoise, endorse
from tacit.aggregation.encryption import HpkeSuite, suite_named
from tacit.aggregation.round_state import RoundPhase
from tacit.aggregation.shuffler import (
    BIT,
    Analyzer,
    ShuffleRole,
    ShufflerRound,
    prepare_party,
)
from tacit.aggregation.shuffler_reports import ShufflerReports, bind
from tacit.aggregation.two_servers import SLOT, RoundOutcome, read_outcome
from tacit.aggregation.wire import Kind, kind_of
from tacit.errors import Rejected, TacitError, Unavailable, require
from tacit.noise import Binomial
from tacit.noise.parameters import sum_of_shares
from tacit.protocols.contract import Protocol
from tacit.protocols.joint import JointSums
from tacit.protocols.pure_shuffle import PureShuffle, released_shares
from tacit.protocols.shuffled_bits import ShuffledBits
from tacit.protocols.split_and_mix import SplitAndMix
from tacit.protocols.statistic_sums import ShuffledTable
from tacit.records import Records
from tacit.rounds.codecs import Mixed
from tacit.rounds.stated_noise import ReleasedNoise, stated_noise
from tacit.sampling.certificates import lookup
from tacit.service.errors import LOG
from tacit.service.pending import PendingShares
from tacit.service.schema import RoundRow, Stage
from tacit.service.trust_models.contract import (
    CoordinatorEngine,
    HelperEngine,
    RoundEngine,
    abort_party,
    party_outcome,
    stated_codec,
)
from tacit.service.trust_models.rounds import EndedRound, HelperAnswer, RoundPlan, ServedRound
from tacit.terms import BY_POLICY, Terms
from tacit.terms.parts import CERTIFIED_POLYA, MOST_MESSAGES

KIND = "mixing"
RECEIVED = b"received"
"""The coordinator's message once it has the batch: the helper deletes its copy."""


class ShufflerEngine(RoundEngine):
    """The part that shuffler and analyzer share."""

    description = ShufflerRound
    part: ShuffleRole
    process_role: int

    def serve(self, row: RoundRow) -> ShufflerReports:
        """The round in this row."""
        about = self.context
        return ShufflerReports(about.pinned, row.announcement, self.part, about.records)

    @staticmethod
    def recorded_outcome(records: Records, role: int, identity: bytes) -> bytes | None:
        """The signed outcome in the party's record."""
        return party_outcome(records, list(ShuffleRole)[role].value, role, identity)

    def endorse(self, description: bytes) -> bytes:
        """Sign the only description of a round whose keys are on record."""
        described = ShufflerRound.decode(description)
        self.context.pinned.check(described.offer())
        bind(self.context.records, self.part, described)
        return endorse(description, self.context.key)

    def _ended(self, served: ShufflerReports) -> bytes:
        return served.finish(self.process_role, self.context.key)


class ShufflerCoordinator(ShufflerEngine, CoordinatorEngine):
    """The analyzer."""

    part, process_role = ShuffleRole.ANALYZER, 0

    @staticmethod
    def codec(protocol: Protocol, terms: Terms) -> Mixed:
        """Bits or additive shares; rejects noise that differs from that of the terms, and more
        messages than a device encrypts.
        """
        found = stated_codec(protocol, terms, KIND, Mixed)
        rule = f"at most {MOST_MESSAGES}. Use larger rounds, a larger epsilon or fewer levels"
        require(found.count <= MOST_MESSAGES, "number of messages of a report", found.count, rule)
        return found

    @staticmethod
    def traffic(announced: LiveRound) -> tuple[tuple[int, ...], int]:
        """Bytes of a report to the shuffler, and of the batch per report."""
        assert isinstance(announced, ShufflerRound)
        return (0, SLOT.size + announced.report_size), announced.messages * announced.encrypted_size

    @staticmethod
    def released_noise(
        terms: Terms, announced: LiveRound, reports: int, factor: Fraction = Fraction(1)
    ) -> ReleasedNoise:
        """The number of ones among all noise bits, or the noise shares of all devices."""
        assert isinstance(announced, ShufflerRound)
        levels, divisor = terms.answer.levels, announced.noise.divisor
        total = announced.noise.total * factor
        if terms.noise.distribution == CERTIFIED_POLYA:
            proven = lookup(divisor, terms.per_metric_target[0]).certificate.parameters
            noisy = replace(proven, noise_epsilon=1 / total)
            return ReleasedNoise(released_shares(noisy, reports), levels)
        if announced.modulus != BIT:
            name = terms.noise.distribution
            return ReleasedNoise(sum_of_shares(name, total, divisor, reports), levels)
        bits = reports * (announced.messages // announced.metrics - levels)
        return ReleasedNoise(Binomial(bits, total), levels, float(bits * total))

    def describe(self, plan: RoundPlan) -> ShufflerRound:
        """Describe a round with keys of both parties."""
        terms, identity = self.context.terms, plan.identity
        way, suite = self.codec(plan.protocol, terms), suite_named(terms.suite)
        theirs = self.context.helper_keys(identity, suite)  # first: if rejected, make no key
        own = prepare_party(self.context.records, self.part, identity, suite)
        noise, modulus = _announced_noise(plan.protocol)
        return ShufflerRound(
            plan.binding(terms),
            plan.slots,
            self.least(way.protocol),
            way.size,
            theirs,
            own,
            way.count,
            suite,
            identity,
            terms.numbers(plan.option == BY_POLICY),
            noise,
            plan.assigned_until,
            plan.grace,
            modulus,
        )

    def missing(self, row: RoundRow) -> int:
        """1 until the helper, which holds all reports, has finished its part; then 0."""
        if row.assigned < row.slots:
            return row.slots - row.assigned
        return int(not self.context.helper().exchange(row.identity, b"")[1])

    def abandon(self, identity: bytes) -> None:
        """Abort a round that is not over and destroy its keys."""
        abort_party(self.context.records, self.part.value, identity)

    def close(self, row: RoundRow, served: ServedRound) -> EndedRound | None:
        """Fetch the batch, decrypt its messages once, and have the helper delete its copy."""
        assert isinstance(served, ShufflerReports)
        helper = self.context.helper()
        analyzer = Analyzer(served.round, self.context.records)
        if served.entry().phase is RoundPhase.OPEN:
            if self.context.clock() >= row.expires:
                served.abort()
            elif not self._analyzed(analyzer, served, helper.exchange(row.identity, b"")[1]):
                return None
        self._ended(served)
        if served.entry().phase is not RoundPhase.ANSWERED:
            return EndedRound(None)
        with suppress(Unavailable):
            helper.exchange(row.identity, RECEIVED)
        return EndedRound(analyzer.view())

    def _analyzed(self, analyzer: Analyzer, served: ShufflerReports, answer: bytes) -> bool:
        """Take the helper's answer; False until there is one."""
        if not answer:
            return False
        if kind_of(answer) is Kind.OUTCOME:
            _, said = read_outcome(self.context.pinned, served.round, answer)
            if said is not RoundOutcome.ABORTED:
                raise Rejected("helper states an outcome without a batch: must be an abort")
            served.abort()
            return True
        analyzer.take(answer)
        try:
            analyzer.close()
        except Rejected as reason:
            LOG.warning("round %s is aborted: %s", served.round.identity.hex(), reason)
            served.abort()
        return True


class ShufflerHelper(ShufflerEngine, HelperEngine):
    """The shuffler."""

    part, process_role = ShuffleRole.SHUFFLER, 1

    def prepare(self, identity: bytes, suite: HpkeSuite) -> bytes:
        """Public keys for a new round, on record before this returns."""
        return prepare_party(self.context.records, self.part, identity, suite)

    def close(self, served: ServedRound, message: bytes, now: int) -> HelperAnswer:
        """Shuffle the stored reports once; the answer is the batch or a signed abort."""
        assert isinstance(served, ShufflerReports)
        phase = served.entry().phase
        if message == RECEIVED and phase in (RoundPhase.ANSWERED, RoundPhase.FORGOTTEN):
            served.forget()
            return HelperAnswer(ended=Stage.RELEASED)
        if phase is RoundPhase.OPEN and now >= served.round.binding.closes + served.round.grace:
            served.abort()
        batch = served.shuffle(PendingShares(self.context.store, served.round.identity))
        outcome = self._ended(served)
        if batch:
            return HelperAnswer(answer=batch, ended=Stage.RELEASED)
        return HelperAnswer(answer=outcome, ended=Stage.ABORTED)


def _announced_noise(protocol: Protocol) -> tuple[SharedNoise, int]:
    """The shares of the noise and the modulus of a message, as a round announces them."""
    part = protocol.part if isinstance(protocol, JointSums) else protocol
    if isinstance(part, (ShuffledBits, ShuffledTable)):
        return SharedNoise(part.honest, part.bias), BIT
    if isinstance(part, PureShuffle):
        return SharedNoise(part.honest, 1 / part.parameters.noise_epsilon), BIT
    if isinstance(part, SplitAndMix):
        return SharedNoise(part.honest, stated_noise(part).scale), part.modulus
    raise TacitError(f"{type(part).__name__} has no announced noise: use bits, or split and mix")
