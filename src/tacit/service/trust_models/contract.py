"""Contract between the live service and a trust model: one party's part in an experiment's rounds.

The coordinator and the helper store terms, rounds and reports, and keep the clock. An engine makes
a round's keys and description, checks reports before they are stored, and turns the stored reports
into one released view. Engines hold no state of their own: the record of a round (`records`)
decides what is released, the store holds pending reports. Any process may create an engine anew.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.aggregation.aggregator_context import Draw
from tacit.aggregation.announcements import LiveRound, accept, announce
from tacit.aggregation.encryption import HpkeSuite, suite_numbered
from tacit.aggregation.round_state import PartyRoundState, kept_outcome
from tacit.errors import Rejected, TacitError
from tacit.protocols.contract import Protocol
from tacit.records import Records
from tacit.rounds.codecs import Codec, Mixed, Residues, codec
from tacit.rounds.round_runner import minimum
from tacit.rounds.stated_noise import ReleasedNoise, check_stated
from tacit.service.errors import TooEarly
from tacit.service.schema import RoundRow
from tacit.service.store import Store
from tacit.service.trust_models.rounds import (
    EndedRound,
    HelperAnswer,
    HelperLink,
    RoundPlan,
    ServedRound,
)
from tacit.signatures import SIGNATURE_SIZE
from tacit.terms import Pinned, Terms

Noise = Callable[[bytes], Draw]
"""Selects the noise sampler of a round by the round's identity."""

Found = TypeVar("Found", Residues, Mixed)
Engine = TypeVar("Engine", bound="RoundEngine")


@dataclass(frozen=True, repr=False)
class EngineContext:
    """Resources of a party for an engine: terms, signing key, records, store, clock and noise.

    `role` is the party's index in the terms. `noise` serves trust models whose servers add noise,
    `helper` connects the coordinator to the helper.
    """

    pinned: Pinned
    role: int
    key: Ed25519PrivateKey
    records: Records
    store: Store
    clock: Callable[[], int]
    noise: Noise
    helper: Callable[[], HelperLink]

    @property
    def terms(self) -> Terms:
        """The terms of the experiment."""
        return self.pinned.terms

    def helper_keys(self, identity: bytes, suite: HpkeSuite) -> bytes:
        """The helper's public keys for a new round."""
        return self.helper().keys(self.terms.digest, identity, suite)


class RoundEngine(ABC):
    """One party's part in the rounds under some terms."""

    description: ClassVar[type[LiveRound]]

    def __init__(self, context: EngineContext) -> None:
        self.context = context

    @abstractmethod
    def endorse(self, description: bytes) -> bytes:
        """Sign the only description of a round; raises `Rejected` if the round was aborted."""

    @staticmethod  # noqa: B027
    def check_terms(terms: Terms) -> None:
        """Reject terms that this trust model cannot serve, before anyone signs them."""

    @abstractmethod
    def serve(self, row: RoundRow) -> ServedRound:
        """The announced round in this row."""

    def missing(self, row: RoundRow) -> int:
        """Reports that an open round waits for; without any it closes before its deadline."""
        with self.context.store.read() as transaction:
            return row.slots - transaction.count_shares(row.identity)

    @staticmethod
    @abstractmethod
    def recorded_outcome(records: Records, role: int, identity: bytes) -> bytes | None:
        """The signed outcome of a round that is over, from the party's records alone.

        None if there is no record of the round here; raises `TooEarly` while it is not over.
        """


class CoordinatorEngine(RoundEngine):
    """The coordinator's part: it describes and announces rounds, and releases their views."""

    @staticmethod
    @abstractmethod
    def codec(protocol: Protocol, terms: Terms) -> Codec:
        """The codec of a round's protocol; rejects a protocol whose noise is not the terms'."""

    @staticmethod
    @abstractmethod
    def traffic(announced: LiveRound) -> tuple[tuple[int, ...], int]:
        """Bytes of a report for each party of the terms, and of the helper's answer."""

    @staticmethod
    @abstractmethod
    def released_noise(
        terms: Terms, announced: LiveRound, reports: int, factor: Fraction = Fraction(1)
    ) -> ReleasedNoise:
        """The stated noise in one metric's sum over `reports` all-zero answers, for audits.

        Where servers add the noise, it is that of one of them. `factor` multiplies the parameter
        of the noise, for the distribution of faulty noise.
        """

    @abstractmethod
    def describe(self, plan: RoundPlan) -> LiveRound:
        """Describe a planned round. Its keys are on record before this returns; idempotent."""

    def least(self, protocol: Protocol) -> int:
        """The minimum batch size of a round: the protocol's, or that of the terms if larger."""
        terms = self.context.terms
        return max(minimum(protocol, terms.kind), terms.aggregation.minimum_batch_size)

    def announce(self, description: bytes, signature: bytes) -> bytes:
        """The announcement: a signed description with the signatures of all parties; verified."""
        if len(self.context.terms.parties) == 1:
            announcement = announce(description, (signature,))
        else:
            announcement = self.context.helper().describe(description, signature)
        if not announcement.startswith(description):
            raise Rejected("the helper answered with the announcement of another round")
        accept(self.description, self.context.pinned, announcement)
        return announcement

    @abstractmethod
    def abandon(self, identity: bytes) -> None:
        """Abort a round that is not over and destroy its keys."""

    @abstractmethod
    def close(self, row: RoundRow, served: ServedRound) -> EndedRound | None:
        """Advance a closing round as far as possible; None until it is over. Idempotent.

        Raises `UnknownRound` if this party has no record of the round, which then ends as aborted.
        """


class HelperEngine(RoundEngine):
    """The helper's part: it signs rounds, takes its share of reports, answers the coordinator."""

    def keys(self, identity: bytes, sealing: int) -> bytes:
        """Public keys for a new round. Only the HPKE suite of the terms is accepted."""
        asked, named = suite_numbered(sealing), self.context.terms.suite
        if asked.identifier != named:
            raise Rejected(f"suite is {asked.identifier}: must be {named}, the suite of the terms")
        return self.prepare(identity, asked)

    @abstractmethod
    def prepare(self, identity: bytes, suite: HpkeSuite) -> bytes:
        """Public keys for a new round, on record before this returns; idempotent."""

    def announce(self, description: bytes, signature: bytes) -> bytes:
        """Sign a description after it is on record; return the announcement."""
        announcement = announce(description, (signature, self.endorse(description)))
        accept(self.description, self.context.pinned, announcement)
        return announcement

    @abstractmethod
    def close(self, served: ServedRound, message: bytes, now: int) -> HelperAnswer:
        """Take the coordinator's message, if any, and advance a closing round."""


def decoded(engine: type[RoundEngine], terms: Terms, announcement: bytes) -> LiveRound:
    """The description in a verified announcement."""
    return engine.description.decode(announcement[: -SIGNATURE_SIZE * len(terms.parties)])


def engine_in(engines: Mapping[str, type[Engine]], terms: Terms) -> type[Engine]:
    """The engine for rounds under these terms, of those by the wire name of their rounds."""
    if terms.kind not in engines:
        raise TacitError(f"the terms name {terms.kind} rounds: must be {' or '.join(engines)}")
    return engines[terms.kind]


def stated_codec(protocol: Protocol, terms: Terms, kind: str, expected: type[Found]) -> Found:
    """The codec of a protocol; rejects noise that differs from that of the terms."""
    found = codec(protocol, kind)
    check_stated(protocol, terms)
    assert isinstance(found, expected)
    return found


def party_outcome(records: Records, party: bytes, role: int, identity: bytes) -> bytes | None:
    """`recorded_outcome` of a party whose rounds have a `PartyRoundState`."""
    if PartyRoundState(records, party, identity).find() is None:
        return None
    said = kept_outcome(records, role, identity)
    if not said:
        raise not_over(identity)
    return said


def abort_party(records: Records, party: bytes, identity: bytes) -> None:
    """Abort a round with a `PartyRoundState` that is not over, and destroy its keys."""
    state = PartyRoundState(records, party, identity)
    if state.find() is not None:
        state.abort()


def not_over(identity: bytes) -> TooEarly:
    """The error for an outcome that does not exist yet."""
    return TooEarly(f"round {identity.hex()} is not over: ask again after its deadline")
