"""Round description, pairwise keys and message layouts of secure aggregation with one server.

Implements Bell et al. 2020, Algorithm 2. Each client adds to its numbers one pairwise mask per
neighbour, which cancels in the sum, and one self-mask, whose seed it secret-shares among its
neighbours. The server learns only the survivors' sum, if it follows the protocol and not too many
clients are corrupted. The two sides are `masking_client` and `masking_server`.

A round has five stages:

1. join: clients send public keys.
2. share: clients send encrypted secret shares to their neighbours.
3. check: clients complain about shares that are invalid.
4. mask: clients send their masked numbers.
5. reveal: first, if any dropped out, shares of the dropouts' masking keys, then shares of the
   survivors' self-mask seeds; never both for one neighbour.

A client that shared another secret than it announced is convicted by its own shares; then its
neighbours reveal their pairwise masks with it. The commitments to shares are in
`share_commitments`.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.aggregation import wire
from tacit.aggregation.agreement import KEY_SIZE, NONCE_SIZE, TAG_SIZE, agree, derive
from tacit.aggregation.announcements import WHOLE_NOISE, Binding, LiveRound, SharedNoise
from tacit.aggregation.graph import Claim, Neighbourhood, Security, security
from tacit.aggregation.interface import IDENTITY_SIZE, check_counts, expect, expect_size
from tacit.aggregation.share_commitments import COMMITMENT_SIZE, SHARE_PAIR_SIZE
from tacit.aggregation.wire import Kind
from tacit.errors import require
from tacit.terms import MASKING_SUITE, Aggregation, Offer
from tacit.trust import MASKING_SECURITY

ADDRESS_SIZE = KEY_SIZE
"""A client's address is its public key for encryption."""

FRONT_SIZE = wire.HEADER_SIZE + ADDRESS_SIZE
"""Bytes in the clear of a message between client and server: header and client address."""

FORMAT = 5
"""Version of the masking messages, part of the description."""

SETUP_HEAD = struct.Struct(">III")  # own number, clients that joined, number of neighbours
SETUP_ENTRY = struct.Struct(">I32s32s32s")  # number, keys: encryption, masking, signatures
INBOX_HEAD = struct.Struct(f">I{COMMITMENT_SIZE}s")  # start of each of a sender's entries
INBOX_ENTRY = struct.Struct(
    f">I{COMMITMENT_SIZE}s{COMMITMENT_SIZE}s{COMMITMENT_SIZE}s{SHARE_PAIR_SIZE}s"
)  # sender, root of its list, its commitments to the two shares, encrypted shares
PAIRS_HEAD = struct.Struct(">II")  # number of neighbours to mask with, of evidence records
ACCUSED_ENTRY = struct.Struct(f">I{KEY_SIZE}s")  # sender, key of its encrypted shares
LEFT_HEAD = struct.Struct(">II")  # survivors in total, neighbours that dropped out
PROOF_HEAD = struct.Struct(">BI")  # which secret, convicted neighbours
SEEDS_ENTRY = struct.Struct(f">I{KEY_SIZE}s")  # convicted client, seed of the pairwise mask
REQUEST_HEAD = struct.Struct(">III")  # survivors in total, surviving neighbours, newly dropped ones

_HEAD = struct.Struct(f">QIIIIII{KEY_SIZE}s")


@dataclass(frozen=True)
class MaskingRound(LiveRound):
    """Public description of a round: made by the server, checked by every client.

    `binding` names the terms. `length` numbers per report are summed modulo `modulus`. Nothing is
    released for fewer than `minimum` of at most `slots` clients, each of whom draws a share of the
    `noise`. Slots are assigned until `assigned_until` and clients join until `binding.closes`. A
    round without release `grace` seconds later is aborted.
    """

    binding: Binding
    identity: bytes
    slots: int
    minimum: int
    modulus: int
    length: int
    neighbourhood: Neighbourhood
    server: bytes
    noise: SharedNoise = WHOLE_NOISE
    assigned_until: int = 0
    grace: int = 0

    def __post_init__(self) -> None:
        check_counts(self.slots, self.minimum, least=2)
        self.check_times()
        wire.check_modulus(self.modulus)
        wire.check_length(self.length, self.modulus)
        joined = self.neighbourhood.degree > 1 or self.slots == 2
        require(joined, "degree", 1, "at least 2, or the sums of pairs would be revealed")
        sizes, wanted = [len(self.identity), len(self.server)], [IDENTITY_SIZE, KEY_SIZE]
        require(sizes == wanted, "list of sizes of identity and key", sizes, f"{wanted}")

    def encode(self) -> bytes:
        """Serialize the round description."""
        fields = _HEAD.pack(
            self.assigned_until,
            self.grace,
            self.slots,
            self.minimum,
            self.length,
            self.neighbourhood.degree,
            self.neighbourhood.threshold,
            self.server,
        )
        front = wire.header(Kind.MASKING_ROUND, self.identity) + bytes((FORMAT,))
        rest = self.noise.encode() + wire.pack_integer(self.modulus)
        return front + self.binding.encode() + fields + rest

    @classmethod
    def decode(cls, message: bytes) -> MaskingRound:
        """Parse a round description."""
        with wire.rejecting_invalid():
            data = wire.body(message, Kind.MASKING_ROUND)
            (spoken,) = wire.leading_bytes(data, 1, "description")
            rule = f"{FORMAT}. Update the older side"
            expect(spoken == FORMAT, "masking format of the round", spoken, rule)
            binding, rest = Binding.first(data[1:])
            fields, rest = wire.leading_fields(_HEAD, rest, "description")
            until, grace, slots, minimum, length, degree, threshold, server = fields
            noise, rest = SharedNoise.first(rest)
            modulus, among = wire.last_modulus(rest), Neighbourhood(degree, threshold)
            identity = wire.identity_of(message)
            counts = (slots, minimum, modulus, length)
            return cls(binding, identity, *counts, among, server, noise, until, grace)

    def offer(self) -> Offer:
        """The fields that a client checks against its terms."""
        about = {"metrics": self.length, "suite": MASKING_SUITE, "modulus": self.modulus}
        return self.offer_of("masking", self.noise, **about)

    @property
    def masked_size(self) -> int:
        """Bytes of a client's masked numbers on the wire."""
        return FRONT_SIZE + NONCE_SIZE + TAG_SIZE + self.length * wire.number_size(self.modulus)

    def security(self, corrupt: int | None = None, claim: Claim = Claim.SEMI_HONEST) -> Security:
        """The security of the round with `corrupt` corrupted clients (default: a tenth)."""
        return security(self.neighbourhood, self.slots, self.minimum, corrupt, claim)


BITS = MASKING_SECURITY
"""Default security of a round, in bits, that only the sum is revealed."""

MOST_NEIGHBOURS = 1024
"""Largest degree that a client accepts: the time to compute the security grows with its square."""


def check_withstands(announced: MaskingRound, aggregation: Aggregation, bits: int = BITS) -> None:
    """Reject a round that is weaker than `bits` against the adversary of the terms.

    The adversary corrupts as many participants as the terms tolerate; degree, threshold and minimum
    batch size determine the bits.
    """
    known = aggregation.claim in tuple(Claim)
    expect(known, "claim of the terms", aggregation.claim, f"one of {', '.join(Claim)}")
    degree = announced.neighbourhood.degree
    expect(degree <= MOST_NEIGHBOURS, "degree of the round", degree, f"at most {MOST_NEIGHBOURS}")
    found = announced.security(aggregation.dishonest(announced.slots), Claim(aggregation.claim))
    rule = f"at least {bits} bits: {found}"
    expect(found.bits >= bits, "security of the round", f"{found.bits:.1f} bits", rule)


_BY_BYTE = {bytes((kind,)): kind for kind in Kind}


def expect_kind(kinds: tuple[Kind, ...], message: bytes, identity: bytes) -> Kind:
    """Which of these kinds a message of this round has; raises `Rejected` if none."""
    named = message[3:4] if isinstance(message, bytes | bytearray | memoryview) else b""
    kind = _BY_BYTE.get(bytes(named))
    if kind not in kinds:
        kind = kinds[0]
    wire.body(message, kind, identity)
    return kind


class ClientKeys(NamedTuple):
    """A client as its neighbours know it: its number and its three public keys."""

    number: int
    address: bytes
    masking: bytes
    signing: bytes


def route_keys(
    own: X25519PrivateKey, me: ClientKeys, other: ClientKeys, context: bytes
) -> tuple[bytes, bytes]:
    """The keys that encrypt the shares from `me` to `other` and back.

    They depend on all public keys of both clients. If the server reported a false key to either,
    the keys differ, decryption fails and the pair is excluded.
    """
    low, high = (me, other) if me.number < other.number else (other, me)
    info = b"tacit masking route v3" + SETUP_ENTRY.pack(*low) + SETUP_ENTRY.pack(*high)
    keys = derive(agree(own, other.address), context, info, 2 * KEY_SIZE)
    up, down = keys[:KEY_SIZE], keys[KEY_SIZE:]
    return (up, down) if me is low else (down, up)


def mask_seed(
    own: X25519PrivateKey, me: tuple[int, bytes], other: tuple[int, bytes], context: bytes
) -> bytes:
    """The seed of the pairwise mask of two neighbours, each given by number and masking key."""
    (low, low_key), (high, high_key) = (me, other) if me[0] < other[0] else (other, me)
    info = b"tacit masking mask v2" + low.to_bytes(4, "big") + low_key
    return derive(agree(own, other[1]), context, info + high.to_bytes(4, "big") + high_key)


def pack_listed(numbers: Collection[int]) -> bytes:
    """Serialize a list of client numbers."""
    return struct.pack(f">{len(numbers)}I", *numbers)


def read_listed(data: bytes, count: int, name: str) -> list[int]:
    """Parse a list of `count` client numbers."""
    return list(struct.unpack(f">{count}I", expect_size(name, data, 4 * count)))
