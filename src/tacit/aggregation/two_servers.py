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
from typing import Protocol

from tacit.aggregation import masks
from tacit.aggregation.agreement import KEY_SIZE
from tacit.aggregation.announcements import WHOLE_NOISE, Binding, SharedNoise, accept
from tacit.aggregation.encryption import DEFAULT, HpkeSuite, Recipient, recipients, suite_numbered
from tacit.aggregation.interface import (
    IDENTITY_SIZE,
    SYSTEM,
    Refusal,
    Source,
    check_counts,
    new_identity,
    uniform,
)
from tacit.aggregation.verified import COMMITMENT_SIZE, MODULUS, Proofs
from tacit.aggregation.wire import (
    HEADER_SIZE,
    SIZE_LIMIT,
    Kind,
    body,
    check_length,
    check_modulus,
    check_numbers,
    described,
    first_integer,
    front,
    head,
    header,
    identity_of,
    last_modulus,
    number_size,
    pack_integer,
    pack_modulus,
    pack_numbers,
    records,
)
from tacit.errors import TacitError, require
from tacit.signatures import Signed, verify
from tacit.terms import Offer, Pinned

WORD_SIZE = 16
DIGEST_SIZE = 16
TOKEN_SIZE = 16

_HEAD = struct.Struct(">QIIIIB")
SLOT = struct.Struct(f">I{TOKEN_SIZE}s")
SHARE_FRONT = 1 + SLOT.size  # role and slot
LINK_SIZE = WORD_SIZE + DIGEST_SIZE
_VERIFIED = bytes((Kind.VERIFIED_ROUND,))


@dataclass(frozen=True)
class TwoServerRound:
    """Public description of a round: terms, counts, times, noise and the parties' keys.

    Both servers and the collector make their keys for this round only. `scale` is that of the
    discrete Laplace noise that each server adds to each number; it is None where clients draw the
    noise `shared` among them. Slots are assigned until `assigned_until` and reports accepted until
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
        check_modulus(self.modulus)
        check_length(self.length, self.modulus)
        if not 0 <= self.assigned_until <= self.binding.closes or not 0 <= self.grace < 1 << 32:
            raise TacitError("places are given out until the deadline, and a grace is below 2^32")
        if self.scale is not None and not 0 < self.scale < 1 << 1000:
            raise TacitError(f"the scale of a server's noise is {self.scale}; it must be above 0")
        self._check_keys()
        self._check_verified()

    def _check_keys(self) -> None:
        sizes = {len(public) for public in self.servers}
        if (
            len(self.identity) != IDENTITY_SIZE
            or len(self.collector) != self.suite.key_size
            or sizes != {self.suite.public_size}
        ):
            raise TacitError(
                f"a round names two servers and a collector by keys of its suite {self.suite.name}"
            )
        lines = {self.line(0), self.line(1)}
        keys = {self.servers[0][KEY_SIZE:], self.servers[1][KEY_SIZE:], self.collector}
        if len(lines) != 2 or len(keys) != 3:
            raise TacitError("two of the three parties have the same key; each must have its own")

    def _check_verified(self) -> None:
        proofs = self.proofs
        if proofs is None:
            return
        if len(self.commitment) != COMMITMENT_SIZE or self.modulus != MODULUS or not self.scale:
            raise TacitError(
                f"a verified round has a commitment of {COMMITMENT_SIZE} bytes, the modulus "
                f"{MODULUS}, and noise that the servers add"
            )
        if proofs.part_size(0) >= SIZE_LIMIT:
            raise TacitError(
                f"length is {self.length}; a report must stay below {SIZE_LIMIT} bytes: use "
                "several rounds"
            )

    def encode(self) -> bytes:
        """Serialize the round description."""
        counts = (self.slots, self.minimum, self.length)
        kind = Kind.VERIFIED_ROUND if self.commitment else Kind.TWO_SERVER_ROUND
        return (
            header(kind, self.identity)
            + self.binding.encode()
            + self.commitment
            + _HEAD.pack(self.assigned_until, self.grace, *counts, self.suite)
            + self.collector
            + b"".join(self.servers)
            + self._encoded_noise()
            + pack_modulus(self.modulus)
        )

    def _encoded_noise(self) -> bytes:
        """The servers' noise scale; or 00, followed by the clients' noise."""
        if self.scale is None:
            return b"\x00" + self.shared.encode()
        return pack_integer(self.scale.numerator) + pack_integer(self.scale.denominator)

    @classmethod
    def decode(cls, message: bytes) -> TwoServerRound:
        """Parse a round description."""
        with described():
            verified = isinstance(message, bytes) and message[3:4] == _VERIFIED
            kind = Kind.VERIFIED_ROUND if verified else Kind.TWO_SERVER_ROUND
            binding, rest = Binding.first(body(message, kind))
            size = COMMITMENT_SIZE if verified else 0
            commitment, rest = front(rest, size, "the description"), rest[size:]
            fields, rest = head(_HEAD, rest, "the description")
            assigned_until, grace, slots, minimum, length, number = fields
            suite = suite_numbered(number)
            sizes = (suite.key_size, suite.public_size, suite.public_size)
            keys, rest = front(rest, sum(sizes), "the list of keys"), rest[sum(sizes) :]
            collector, both = keys[: sizes[0]], keys[sizes[0] :]
            first, second = records(both, sizes[1], 2, "the list of servers")
            scale, shared, rest = _first_noise(rest)
            return cls(
                binding,
                slots,
                minimum,
                last_modulus(rest),
                (first, second),
                collector,
                length,
                scale,
                assigned_until,
                grace,
                suite,
                identity_of(message),
                commitment,
                shared,
            )

    def offer(self) -> Offer:
        """The fields that a client checks against its terms."""
        devices = self.scale is None
        return self.binding.offer(
            kind="verified" if self.commitment else "two-servers",
            slots=self.slots,
            minimum=self.minimum,
            metrics=self.length,
            suite=self.suite.identifier,
            grace=self.grace,
            modulus=self.modulus,
            scale=self.scale,
            divisor=self.shared.divisor if devices else None,
            total=self.shared.total if devices else None,
        )

    @cached_property
    def context(self) -> bytes:
        """SHA-256 of the description; it is bound into every ciphertext and every key."""
        return hashlib.sha256(self.encode()).digest()

    @cached_property
    def recipients(self) -> tuple[Recipient, Recipient]:
        """The HPKE public keys of both servers, for report shares."""
        return recipients(self.suite, self.servers)

    @cached_property
    def collecting(self) -> Recipient:
        """The HPKE public key of the collector, for partial sums."""
        return Recipient.parse(self.suite, self.collector)

    @cached_property
    def proofs(self) -> Proofs | None:
        """The proof system of a verified round; None in other rounds."""
        if not self.commitment:
            return None
        return Proofs(self.binding.levels, self.length, self.context)

    @property
    def seeded(self) -> bool:
        """Whether the share for server 0 is a seed, because that is shorter."""
        return self.length * number_size(self.modulus) > masks.SEED_SIZE

    def share_size(self, role: int) -> int:
        """Bytes of one report share on the wire."""
        if self.proofs:
            part = self.proofs.part_size(role)
        elif role == 0 and self.seeded:
            part = masks.SEED_SIZE
        else:
            part = self.length * number_size(self.modulus)
        return HEADER_SIZE + SHARE_FRONT + self.suite.overhead + LINK_SIZE + part

    def line(self, role: int) -> bytes:
        """A server's public key for the server-to-server channel."""
        return self.servers[role][:KEY_SIZE]


def _first_noise(data: bytes) -> tuple[Fraction | None, SharedNoise, bytes]:
    """Parse the servers' scale, or None and the clients' noise; return the rest too."""
    if data[:1] == b"\x00":
        shared, rest = SharedNoise.first(data[1:])
        return None, shared, rest
    numerator, rest = first_integer(data, "scale")
    denominator, rest = first_integer(rest, "scale")
    scale = Fraction(numerator, denominator)
    if denominator != scale.denominator:
        raise Refusal("the scale is not spelt in lowest terms")
    return scale, WHOLE_NOISE, rest


class RoundOutcome(IntEnum):
    """How a round ended, as a server states it: sum released, round aborted, or round unknown."""

    RELEASED = 1
    ABORTED = 2
    UNKNOWN = 3


class AnnouncedRound(Protocol):
    """The fields of a round of any kind that its outcome refers to."""

    @property
    def identity(self) -> bytes:
        """The round's random identifier."""

    @property
    def context(self) -> bytes:
        """The digest of its description."""


def read_outcome(
    pinned: Pinned, announced: AnnouncedRound, message: bytes
) -> tuple[int, RoundOutcome]:
    """Verify an outcome message; return the role of the party that states it and the outcome.

    UNKNOWN is not signed and proves nothing.
    """
    data = body(message, Kind.OUTCOME, announced.identity)
    role, number = front(data, 2, "the outcome")
    if role >= len(pinned.keys) or number not in tuple(RoundOutcome):
        raise Refusal(f"an outcome {number} of server {role} is not known")
    said = RoundOutcome(number)
    if said is not RoundOutcome.UNKNOWN:
        signed = announced.context + data[:2]
        verify(Signed.OUTCOME, signed, data[2:], pinned.terms.keys[role], f"server {role}")
    elif len(data) != 2:
        raise Refusal("an outcome that is not known has nothing behind it")
    return role, said


def aborted_by_both(pinned: Pinned, announcement: bytes, messages: Iterable[bytes]) -> bool:
    """Whether both servers signed that the round was aborted: the condition for a budget refund."""
    announced = accept(TwoServerRound, pinned, announcement)
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
        (only,) = records(data, SLOT.size, 1, "a place")
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
    place : Place
        The client's slot.
    values : sequence of int
        The numbers to report: 0..levels where servers add the noise, else any integers.
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
    numbers = _checked(announced, values)
    words = (source(WORD_SIZE), source(WORD_SIZE))
    if announced.proofs:
        digests = (word_digest(words[0]), word_digest(words[1]))
        tag = report_tag(announced.context, slot.number, digests)
        parts = announced.proofs.shards(numbers, tag, source)
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
        front_ = header(Kind.HALF, announced.identity) + bytes((role,)) + slot.encode()
        shares.append(front_ + encrypted)
    return shares[0], shares[1]


def _parts(announced: TwoServerRound, numbers: list[int], source: Source) -> tuple[bytes, bytes]:
    """Additive shares of the numbers: uniform ones, and the differences to the true ones."""
    modulus, length = announced.modulus, announced.length
    if announced.seeded:
        sent = source(masks.SEED_SIZE)
        first = masks.expand(sent, modulus, length)
    else:
        first = uniform(modulus, length, source)
        sent = pack_numbers(first, modulus)
    second = [(number - part) % modulus for number, part in zip(numbers, first, strict=True)]
    return sent, pack_numbers(second, modulus)


def _checked(announced: TwoServerRound, values: Sequence[int]) -> list[int]:
    """Validate a client's values: 0..levels where servers add the noise, else any residues."""
    numbers = check_numbers(values, announced.modulus, announced.length)
    levels = announced.binding.levels
    if announced.scale is not None and any(not 0 <= value <= levels for value in values):
        raise TacitError(
            f"the report holds {list(values)}; the noise of this round hides numbers from 0 to "
            f"{levels}: encode the answer to a level"
        )
    return numbers


def share_info(context: bytes, role: int, slot: int) -> bytes:
    """The HPKE info string of a report share."""
    return b"tacit half v2" + context + struct.pack(">BI", role, slot)


def word_digest(word: bytes) -> bytes:
    """The digest of a share's word, which the other share contains."""
    return hashlib.sha256(b"tacit word v2" + word).digest()[:DIGEST_SIZE]


def report_tag(context: bytes, slot: int, digests: tuple[bytes, bytes]) -> bytes:
    """The identifier of a report, equal at both servers.

    Making another share with the same tag requires that share's word.
    """
    whole = b"tacit tag v2" + context + struct.pack(">I", slot) + b"".join(digests)
    return hashlib.sha256(whole).digest()[:DIGEST_SIZE]
