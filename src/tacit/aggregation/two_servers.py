"""Client side and round description of aggregation with two non-colluding servers.

A client splits its numbers into two additive shares modulo m, each uniformly random alone, and
encrypts one share to each server (HPKE, RFC 9180). The first share is a 32-byte seed where that is
shorter. Each client sends one message per server, so a dropout is just a missing report. In a
verified round (`verified`) the shares carry a proof that the numbers are in range.

Threat model: where each server adds noise of its own, one honest server suffices; where clients add
the noise, both must be honest.

The servers are in `aggregator`; `collecting` adds up their partial sums.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from fractions import Fraction
from functools import cached_property

from tacit.aggregation import masks, wire
from tacit.aggregation.agreement import KEY_SIZE
from tacit.aggregation.announcements import (
    WHOLE_NOISE,
    Binding,
    LiveRound,
    RoundDescription,
    SharedNoise,
    accept,
)
from tacit.aggregation.encryption import DEFAULT, HpkeSuite, Recipient, recipients, suite_numbered
from tacit.aggregation.interface import (
    IDENTITY_SIZE,
    SYSTEM,
    Source,
    check_counts,
    expect,
    expect_size,
    new_identity,
    uniform,
)
from tacit.aggregation.verified import COMMITMENT_SIZE, Proofs, TableProofs
from tacit.aggregation.wire import Kind
from tacit.errors import TacitError, require
from tacit.signatures import Signed, verify
from tacit.terms import Offer, Pinned

WORD_SIZE = 16
DIGEST_SIZE = 16
TOKEN_SIZE = 16
SCALE_LIMIT = 1 << 208  # of numerator and denominator

_HEAD = struct.Struct(">QIIIIB")
SLOT = struct.Struct(f">I{TOKEN_SIZE}s")
SHARE_FRONT = 1 + SLOT.size  # role and slot
LINK_SIZE = WORD_SIZE + DIGEST_SIZE
_VERIFIED = bytes((Kind.VERIFIED_ROUND,))


@dataclass(frozen=True)
class TwoServerRound(LiveRound):
    """Public description of a round: terms, counts, times, noise and the parties' keys.

    Both servers and the collector make their keys for this round only. `scale` is the parameter of
    the noise that each server adds to each number: the scale of discrete Laplace noise, σ of a
    discrete Gaussian where the terms say so. It is None where clients draw the noise `shared`
    among them. Slots are assigned until `assigned_until` and reports accepted until
    `binding.closes`. A round without release `grace` seconds later is aborted. A round with a
    `commitment` to a verify key is a verified one.
    """

    binding: Binding
    slots: int
    minimum: int
    modulus: int
    servers: tuple[bytes, bytes]
    collector: bytes
    length: int = 1
    scale: Fraction | None = None
    assigned_until: int = 0
    grace: int = 0
    suite: HpkeSuite = DEFAULT
    identity: bytes = field(default_factory=new_identity)
    commitment: bytes = b""
    shared: SharedNoise = WHOLE_NOISE

    def __post_init__(self) -> None:
        check_counts(self.slots, self.minimum)
        wire.check_modulus(self.modulus)
        wire.check_length(self.length, self.modulus)
        self.check_times()
        self._check_scale()
        self._check_keys()
        self._check_verified()

    def _check_scale(self) -> None:
        """Reject a scale whose cost, sensitivity / scale, is too long for a ledger's export."""
        if self.scale is not None:
            short = self.scale > 0 and max(self.scale.as_integer_ratio()) < SCALE_LIMIT
            rule = "above 0, with numerator and denominator below 2^208"
            require(short, "scale", self.scale, rule)

    def _check_keys(self) -> None:
        wanted = [IDENTITY_SIZE, self.suite.key_size, *[self.suite.public_size] * 2]
        sizes = [len(one) for one in (self.identity, self.collector, *self.servers)]
        rule = f"{wanted}, as in the suite {self.suite.name}"
        require(sizes == wanted, "list of sizes of identity and keys", sizes, rule)
        lines = {self.channel_key(0), self.channel_key(1)}
        keys = {self.servers[0][KEY_SIZE:], self.servers[1][KEY_SIZE:], self.collector}
        if len(lines) != 2 or len(keys) != 3:
            raise TacitError("two parties have the same key: each must have its own")

    def _check_verified(self) -> None:
        proofs = self.proofs
        if proofs is None:
            return
        size = len(self.commitment)
        require(size == COMMITMENT_SIZE, "commitment", f"{size} bytes long", f"{COMMITMENT_SIZE}")
        wanted = proofs.modulus
        require(self.modulus == wanted, "modulus of a verified round", self.modulus, f"{wanted}")
        require(self.scale, "scale of a verified round", self.scale, "that of the servers' noise")
        small = proofs.part_size(0) < wire.SIZE_LIMIT
        require(
            small,
            "length",
            self.length,
            f"smaller: a report has fewer than {wire.SIZE_LIMIT} bytes",
        )

    def encode(self) -> bytes:
        """Serialize the round description."""
        counts = (self.slots, self.minimum, self.length)
        kind = Kind.VERIFIED_ROUND if self.commitment else Kind.TWO_SERVER_ROUND
        return (
            wire.header(kind, self.identity)
            + self.binding.encode()
            + self.commitment
            + _HEAD.pack(self.assigned_until, self.grace, *counts, self.suite)
            + self.collector
            + b"".join(self.servers)
            + self._encoded_noise()
            + wire.pack_integer(self.modulus)
        )

    def _encoded_noise(self) -> bytes:
        """The servers' noise scale; or 00, followed by the clients' noise."""
        if self.scale is None:
            return b"\x00" + self.shared.encode()
        return wire.pack_fraction(self.scale)

    @classmethod
    def decode(cls, message: bytes) -> TwoServerRound:
        """Parse a round description."""
        with wire.rejecting_invalid():
            verified = isinstance(message, bytes) and message[3:4] == _VERIFIED
            kind = Kind.VERIFIED_ROUND if verified else Kind.TWO_SERVER_ROUND
            binding, rest = Binding.first(wire.body(message, kind))
            size = COMMITMENT_SIZE if verified else 0
            commitment, rest = wire.leading_bytes(rest, size, "description"), rest[size:]
            fields, rest = wire.leading_fields(_HEAD, rest, "description")
            until, grace, slots, minimum, length, number = fields
            suite = suite_numbered(number)
            sizes = (suite.key_size, suite.public_size, suite.public_size)
            keys, rest = wire.leading_bytes(rest, sum(sizes), "list of keys"), rest[sum(sizes) :]
            collector, both = keys[: sizes[0]], keys[sizes[0] :]
            first, second = wire.records(both, sizes[1], 2, "list of servers")
            scale, shared, rest = _first_noise(rest)
            servers, modulus = (first, second), wire.last_modulus(rest)
            about = (
                length,
                scale,
                until,
                grace,
                suite,
                wire.identity_of(message),
                commitment,
                shared,
            )
            return cls(binding, slots, minimum, modulus, servers, collector, *about)

    def offer(self) -> Offer:
        """The fields that a client checks against its terms."""
        return self.offer_of(
            "verified" if self.commitment else "two-servers",
            self.shared if self.scale is None else None,
            metrics=self.length,
            suite=self.suite.identifier,
            modulus=self.modulus,
            scale=self.scale,
        )

    @cached_property
    def recipients(self) -> tuple[Recipient, Recipient]:
        """The HPKE public keys of both servers, for report shares."""
        return recipients(self.suite, self.servers)

    @cached_property
    def collector_key(self) -> Recipient:
        """The HPKE public key of the collector, for partial sums."""
        return Recipient.parse(self.suite, self.collector)

    @cached_property
    def proofs(self) -> Proofs | TableProofs | None:
        """The proof system of a verified round; None in other rounds.

        Where devices choose, a report proves that it is one cell, else that its numbers are levels.
        """
        if not self.commitment:
            return None
        if self.binding.policy:
            return TableProofs(self.length, self.context)
        return Proofs(self.binding.levels, self.length, self.context)

    @property
    def sends_seed(self) -> bool:
        """Whether the share for server 0 is a seed, because that is shorter."""
        return self.length * wire.number_size(self.modulus) > masks.SEED_SIZE

    def share_size(self, role: int) -> int:
        """Bytes of one report share on the wire."""
        if self.proofs:
            part = self.proofs.part_size(role)
        elif role == 0 and self.sends_seed:
            part = masks.SEED_SIZE
        else:
            part = self.length * wire.number_size(self.modulus)
        return wire.HEADER_SIZE + SHARE_FRONT + self.suite.overhead + LINK_SIZE + part

    def channel_key(self, role: int) -> bytes:
        """A server's public key for the server-to-server channel."""
        return self.servers[role][:KEY_SIZE]


def _first_noise(data: bytes) -> tuple[Fraction | None, SharedNoise, bytes]:
    """Parse the servers' scale, or None and the clients' noise; return the rest too."""
    if data[:1] == b"\x00":
        shared, rest = SharedNoise.first(data[1:])
        return None, shared, rest
    scale, rest = wire.first_fraction(data, "scale")
    return scale, WHOLE_NOISE, rest


class RoundOutcome(IntEnum):
    """How a round ended, as a server states it: sum released, round aborted, or round unknown."""

    RELEASED = 1
    ABORTED = 2
    UNKNOWN = 3


def read_outcome(
    pinned: Pinned, announced: RoundDescription, message: bytes
) -> tuple[int, RoundOutcome]:
    """Verify an outcome message; return the role of the party that states it and the outcome.

    UNKNOWN is not signed and proves nothing.
    """
    data = wire.body(message, Kind.OUTCOME, announced.identity)
    role, number = wire.leading_bytes(data, 2, "outcome")
    known = role < len(pinned.keys) and number in tuple(RoundOutcome)
    expect(known, "outcome", f"{number} of server {role}", "1, 2 or 3, of a party of the terms")
    said = RoundOutcome(number)
    if said is not RoundOutcome.UNKNOWN:
        signed = announced.context + data[:2]
        verify(Signed.OUTCOME, signed, data[2:], pinned.terms.keys[role], f"server {role}")
    else:
        expect_size("outcome UNKNOWN", data, 2)
    return role, said


def aborted_by_both(
    pinned: Pinned,
    announcement: bytes,
    messages: Iterable[bytes],
    kind: type[RoundDescription] | None = None,
) -> bool:
    """Whether both parties signed that the round was aborted: the condition for a budget refund.

    Rounds of two servers by default.
    """
    announced = accept(kind or TwoServerRound, pinned, announcement)
    said = {read_outcome(pinned, announced, message) for message in messages}
    return {(0, RoundOutcome.ABORTED), (1, RoundOutcome.ABORTED)} <= said


@dataclass(frozen=True)
class ReportSlot:
    """A slot in a round, as the coordinator assigns it: a number and a token for both servers.

    Each server accepts one report share per slot.
    """

    number: int
    token: bytes = field(repr=False)

    def __post_init__(self) -> None:
        require(0 <= self.number < 1 << 32, "slot", self.number, "from 0 to 2^32 - 1")
        size = len(self.token)
        require(size == TOKEN_SIZE, "token", f"{size} bytes long", f"{TOKEN_SIZE} bytes")

    def encode(self) -> bytes:
        """Serialize the slot."""
        return SLOT.pack(self.number, self.token)

    @classmethod
    def decode(cls, data: bytes) -> ReportSlot:
        """Parse a slot."""
        (only,) = wire.records(data, SLOT.size, 1, "slot")
        return cls(*SLOT.unpack(only))


def split(
    pinned: Pinned,
    announcement: bytes,
    slot: ReportSlot,
    values: Sequence[int],
    source: Source = SYSTEM,
) -> tuple[bytes, bytes]:
    """Make one client's report: the encrypted report shares for server 0 and server 1.

    Parameters
    ----------
    pinned : Pinned
        The terms that the client agreed to, with the keys of their parties.
    announcement : bytes
        The round, signed by all parties; it must comply with the terms.
    slot : ReportSlot
        The client's slot.
    values : sequence of int
        The numbers to report: 0..levels, or those of a statistic within its bounds, where servers
        add the noise; else any integers.
    source : callable
        For test vectors only.

    Returns
    -------
    tuple of bytes
        One message for each server.

    Notes
    -----
    Each share carries a random word of its own and the digest of the other share's word. So no one
    without a share's word, not even the other server, can replace that share.
    """
    announced = accept(TwoServerRound, pinned, announcement)
    numbers = wire.check_numbers(values, announced.modulus, announced.length)
    low, high = pinned.terms.bounds(announced.binding.chosen)
    hidden = announced.scale is None or all(low <= value <= high for value in values)
    rule = f"numbers from {low} to {high}. Encode answers as levels"
    require(hidden, "report", list(values), rule)
    words = (source(WORD_SIZE), source(WORD_SIZE))
    if announced.proofs:
        digests = (word_digest(words[0]), word_digest(words[1]))
        tag = report_tag(announced.context, slot.number, digests)
        parts = announced.proofs.shard(numbers, tag, source)
    else:
        parts = _parts(announced, numbers, source)
    return encrypt_shares(announced, slot, words, parts)


def encrypt_shares(
    announced: TwoServerRound,
    slot: ReportSlot,
    words: tuple[bytes, bytes],
    parts: tuple[bytes, bytes],
) -> tuple[bytes, bytes]:
    """Encrypt both shares of a report, given their words and contents."""
    shares = []
    for role, recipient in enumerate(announced.recipients):
        content = words[role] + word_digest(words[1 - role]) + parts[role]
        encrypted = recipient.encrypt(content, share_info(announced.context, role, slot.number))
        front_ = wire.header(Kind.HALF, announced.identity) + bytes((role,)) + slot.encode()
        shares.append(front_ + encrypted)
    return shares[0], shares[1]


def _parts(announced: TwoServerRound, numbers: list[int], source: Source) -> tuple[bytes, bytes]:
    """Additive shares of the numbers: uniform ones, and the differences to the true ones."""
    modulus, length = announced.modulus, announced.length
    if announced.sends_seed:
        sent = source(masks.SEED_SIZE)
        first = masks.expand(sent, modulus, length)
    else:
        first = uniform(modulus, length, source)
        sent = wire.pack_numbers(first, modulus)
    second = [(number - part) % modulus for number, part in zip(numbers, first, strict=True)]
    return sent, wire.pack_numbers(second, modulus)


def share_info(context: bytes, role: int, slot: int) -> bytes:
    """The HPKE info string of a report share."""
    return b"tacit half v2" + context + struct.pack(">BI", role, slot)


def word_digest(text: bytes) -> bytes:
    """The digest of a share's word, which the other share contains."""
    return hashlib.sha256(b"tacit word v2" + text).digest()[:DIGEST_SIZE]


def report_tag(context: bytes, slot: int, digests: tuple[bytes, bytes]) -> bytes:
    """The identifier of a report, equal at both servers.

    Making another share with the same tag requires that share's word.
    """
    whole = b"tacit tag v2" + context + struct.pack(">I", slot) + b"".join(digests)
    return hashlib.sha256(whole).digest()[:DIGEST_SIZE]
