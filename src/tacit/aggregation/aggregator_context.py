"""Context of an aggregator across rounds: terms, role, long-term key, records and noise sampler.

For every round a server derives keys from one secret, which is on record before the public keys are
published, and signs exactly one description. The record advances from the secret to the answer and
never back.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from fractions import Fraction

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.aggregation.agreement import KEY_SIZE, check_public, derive
from tacit.aggregation.announcements import endorse
from tacit.aggregation.encryption import DEFAULT, HpkeSuite, ServerKeys, suite_numbered
from tacit.aggregation.interface import SYSTEM, Rejected, Source
from tacit.aggregation.two_servers import RoundOutcome, TwoServerRound
from tacit.aggregation.verified import commitment, verify_key
from tacit.aggregation.wire import Kind, header, pack_parts, unpack_parts
from tacit.errors import require
from tacit.records import Records
from tacit.signatures import Signed, fingerprint, public_key, sign
from tacit.terms import Pinned

Draw = Callable[[Fraction], int]
"""An exact sampler of discrete Laplace noise of a scale; Gaussian noise accepts its draws."""

SECRET_SIZE = 32


class AggregatorStage(IntEnum):
    """A server's progress in a round."""

    MADE = 1
    OPEN = 2
    LISTED = 3
    CLOSED = 4


@dataclass(frozen=True, repr=False)
class RoundRecord:
    """A server's record of a round: its secret, until the answer replaces it."""

    stage: AggregatorStage
    suite: HpkeSuite
    secret: bytes = b""
    context: bytes = b""
    tags: bytes = b""
    listing: bytes = b""
    outcome: bytes = b""
    partial: bytes = b""

    def encode(self) -> bytes:
        """Serialize the record."""
        parts = (self.secret, self.context, self.tags, self.listing, self.outcome, self.partial)
        return bytes((self.stage, self.suite)) + pack_parts(parts)

    @classmethod
    def decode(cls, data: bytes) -> RoundRecord:
        """Parse a record; a damaged one raises `Rejected`."""
        try:
            secret, context, tags, listing, outcome, partial = unpack_parts(data[2:])
            stage, suite = AggregatorStage(data[0]), suite_numbered(data[1])
        except ValueError:  # also `Rejected`
            raise Rejected("record of the round is damaged") from None
        return cls(stage, suite, secret, context, tags, listing, outcome, partial)


class RoundSecrets:
    """All keys of a server for one round, derived from the secret in its record."""

    def __init__(self, secret: bytes, identity: bytes, suite: HpkeSuite) -> None:
        material = io.BytesIO(derive(secret, identity, b"tacit round keys v2", 256))
        self.keys = ServerKeys.new(suite, material.read)
        self.wrapping, self.naming = material.read(KEY_SIZE), material.read(KEY_SIZE)


@dataclass(frozen=True)
class AggregatorContext:
    """One of the two aggregators of an experiment.

    `draw` samples the noise; it is None where clients add it.
    """

    pinned: Pinned
    role: int
    key: Ed25519PrivateKey
    records: Records
    draw: Draw | None = None

    def __post_init__(self) -> None:
        require(self.role in (0, 1), "role", self.role, "0 or 1")
        own, stated = public_key(self.key), self.pinned.terms.keys[self.role]
        require(own == stated, "key", fingerprint(own), f"that of server {self.role} in the terms")

    def __repr__(self) -> str:
        return f"AggregatorContext(role={self.role}, terms={self.pinned.terms.digest.hex()})"

    def prepare(
        self, identity: bytes, suite: HpkeSuite = DEFAULT, source: Source = SYSTEM
    ) -> bytes:
        """Make public keys for a new round; their secret is on record before this returns.

        Repeated calls return the same keys. `source` is for test vectors only.
        """
        fresh = RoundRecord(AggregatorStage.MADE, suite, source(SECRET_SIZE)).encode()
        made = RoundRecord.decode(self.records.replace(self.name(identity), None, fresh) or fresh)
        if made.stage is AggregatorStage.CLOSED or made.suite is not suite:
            raise Rejected("round is over, or was prepared for another suite. Prepare a new round")
        return RoundSecrets(made.secret, identity, suite).keys.public()

    def commitment(self, identity: bytes, servers: tuple[bytes, bytes]) -> bytes:
        """The commitment to the verify key of a verified round, for its description.

        Both servers compute the same commitment once both have made their keys; the key stays
        secret.
        """
        record = self.record(identity)
        if record is None or not record.secret:
            raise Rejected("server has no keys for this round. Prepare it first")
        line = RoundSecrets(record.secret, identity, record.suite).keys.line
        lines = (servers[0][:KEY_SIZE], servers[1][:KEY_SIZE])
        return commitment(verify_key(line, lines, identity), identity)

    def endorse(self, description: bytes) -> bytes:
        """Sign a round description that complies with the terms and names the keys on record.

        A server signs one description per round, ever.
        """
        described = TwoServerRound.decode(description)
        self.pinned.check(described.offer())
        _check_usable(described)
        record = self.record(described.identity)
        if record is not None and record.stage is AggregatorStage.MADE:
            record = self._bound(record, described)
        if record is None or record.context != described.context:
            raise Rejected(
                "description cannot be signed: a server signs one description per round, after it "
                "prepared its keys"
            )
        return endorse(description, self.key)

    def abandon(self, identity: bytes) -> None:
        """Abort a round that is not closed, and destroy its keys.

        This is for rounds that no client was invited to or that the other server rejected. If a
        description was signed, the record keeps a signed ABORTED outcome for it.
        """
        record = self.record(identity)
        while record is not None and record.stage is not AggregatorStage.CLOSED:
            about = record.context + bytes((self.role,))
            said = bytes((RoundOutcome.ABORTED,))
            front = header(Kind.OUTCOME, identity) + about[-1:] + said
            outcome = front + sign(Signed.OUTCOME, about + said, self.key)
            ended = RoundRecord(AggregatorStage.CLOSED, record.suite, context=record.context)
            if record.context:
                ended = replace(ended, outcome=outcome)
            self.records.replace(self.name(identity), record.encode(), ended.encode())
            record = self.record(identity)

    def record(self, identity: bytes) -> RoundRecord | None:
        """The record of a round; None if there is none."""
        found = self.records.read(self.name(identity))
        return None if found is None else RoundRecord.decode(found)

    def name(self, identity: bytes) -> bytes:
        """The name of a round's record."""
        return bytes((self.role,)) + identity

    def _bound(self, made: RoundRecord, described: TwoServerRound) -> RoundRecord | None:
        secrets = RoundSecrets(made.secret, described.identity, made.suite)
        if secrets.keys.public() != described.servers[self.role]:
            raise Rejected("description names other keys than this server prepared for the round")
        if described.commitment and described.commitment != self.commitment(
            described.identity, described.servers
        ):
            raise Rejected("description commits to another verify key than that of the servers")
        bound = replace(made, stage=AggregatorStage.OPEN, context=described.context)
        self.records.replace(self.name(described.identity), made.encode(), bound.encode())
        return self.record(described.identity)


def _check_usable(described: TwoServerRound) -> None:
    """Reject public keys that cannot be encrypted to, before anything is sent."""
    for recipient in (*described.recipients, described.collector_key):
        recipient.encrypt(b"", b"")
    for role in (0, 1):
        check_public(described.channel_key(role))
