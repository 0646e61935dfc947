"""Masking: secure aggregation with one server, after Bell et al. 2020 (Algorithm 2).

Each client adds to its numbers one mask for every neighbour, which cancels in the sum, and one mask
of its own, whose seed it shares among its neighbours. The server learns the sum of those who stayed
and nothing else, as long as it follows the protocol and not too many clients lend it their secrets.
Here is what both sides agree on: the round, the keys of a pair of neighbours and the layout of the
bodies; `masking_client` and `masking_server` are the two sides.

A round has five stages: join (keys), share (encrypted shares for the neighbours), check (whose
shares are not what they should be), mask (the masked numbers) and reveal: first, if anybody left,
the shares of their masking keys, then the shares of the own masks of those who stayed, never both
of one neighbour. Who shared something else than it announced is convicted by its own shares, and
then its neighbours reveal the masks that they have with it. What binds everybody to their shares
is in `pledges`.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.aggregation.agreement import KEY_SIZE, agree, derive
from tacit.aggregation.announcements import WHOLE_NOISE, Binding, SharedNoise
from tacit.aggregation.graph import Claim, Neighbourhood, Security, security
from tacit.aggregation.interface import IDENTITY_SIZE, Refusal, check_counts
from tacit.aggregation.share_commitments import COMMITMENT_SIZE, PARCEL_SIZE
from tacit.aggregation.wire import (
    HEADER_SIZE,
    Kind,
    body,
    check_length,
    check_modulus,
    described,
    front,
    head,
    header,
    identity_of,
    last_modulus,
    pack_modulus,
)
from tacit.errors import TacitError
from tacit.terms import MASKING_SUITE, Aggregation, Offer

ADDRESS_SIZE = KEY_SIZE
"""A client is addressed by its public key for encryption."""

FRONT_SIZE = HEADER_SIZE + ADDRESS_SIZE
"""What a message between client and server carries in the clear: the header and the client's
address.
"""

FORMAT = 4
"""The version of masking's messages, which stands in the description."""

SETUP_HEAD = struct.Struct(">III")  # own number, clients that joined, neighbours that follow
SETUP_ENTRY = struct.Struct(">I32s32s32s")  # number, keys: encryption, masking, signatures
INBOX_HEAD = struct.Struct(f">I{COMMITMENT_SIZE}s")  # what each of a sender's entries begins with
INBOX_ENTRY = struct.Struct(
    f">I{COMMITMENT_SIZE}s{COMMITMENT_SIZE}s{COMMITMENT_SIZE}s{PARCEL_SIZE}s"
)  # number of the sender, root of its list, its commitments to the two shares, parcel
PAIRS_HEAD = struct.Struct(">II")  # neighbours to mask with, evidence that follows
ACCUSED_ENTRY = struct.Struct(f">I{KEY_SIZE}s")  # number of the sender, key of its parcel
LEFT_HEAD = struct.Struct(">II")  # survivors in all, neighbours that left
PROOF_HEAD = struct.Struct(">BI")  # which secret, neighbours that are convicted
SEEDS_ENTRY = struct.Struct(f">I{KEY_SIZE}s")  # number of the convicted, seed of the pair's mask
REQUEST_HEAD = struct.Struct(">III")  # survivors in all, neighbours that stayed, that left since

_HEAD = struct.Struct(f">IIIII{KEY_SIZE}s")


@dataclass(frozen=True)
class MaskingRound:
    """What everyone knows about a round: made by the server, checked and obeyed by every client.

    `binding` names the terms; `length` numbers per report are added up modulo `modulus`; nothing is
    opened for fewer than `minimum` of at most `reports` clients, each of whom draws a share of the
    `noise`.
    """

    binding: Binding
    identity: bytes
    reports: int
    minimum: int
    modulus: int
    length: int
    neighbourhood: Neighbourhood
    server: bytes
    noise: SharedNoise = WHOLE_NOISE

    def __post_init__(self) -> None:
        check_counts(self.reports, self.minimum, least=2)
        check_modulus(self.modulus)
        check_length(self.length, self.modulus)
        if self.neighbourhood.degree == 1 and self.reports > 2:
            raise TacitError(
                "one neighbour each makes pairs, whose separate sums would show; take at least 2"
            )
        if len(self.identity) != IDENTITY_SIZE or len(self.server) != KEY_SIZE:
            raise TacitError(
                f"a round has an identity of {IDENTITY_SIZE} bytes and a server key of {KEY_SIZE}"
            )

    def encode(self) -> bytes:
        """The message that announces the round."""
        fields = _HEAD.pack(
            self.reports,
            self.minimum,
            self.length,
            self.neighbourhood.degree,
            self.neighbourhood.threshold,
            self.server,
        )
        front = header(Kind.MASKING_ROUND, self.identity) + bytes((FORMAT,))
        rest = self.noise.encode() + pack_modulus(self.modulus)
        return front + self.binding.encode() + fields + rest

    @classmethod
    def decode(cls, message: bytes) -> MaskingRound:
        """The round that a message announces."""
        with described():
            data = body(message, Kind.MASKING_ROUND)
            (spoken,) = front(data, 1, "the description")
            if spoken != FORMAT:
                raise Refusal(
                    f"the round is of format {spoken} of masking; this side speaks format "
                    f"{FORMAT}: update the older side"
                )
            binding, rest = Binding.first(data[1:])
            fields, rest = head(_HEAD, rest, "the description")
            reports, minimum, length, degree, threshold, server = fields
            noise, rest = SharedNoise.first(rest)
            modulus, among = last_modulus(rest), Neighbourhood(degree, threshold)
            identity = identity_of(message)
            return cls(binding, identity, reports, minimum, modulus, length, among, server, noise)

    def offer(self) -> Offer:
        """What a device holds against its terms."""
        return self.binding.offer(
            kind="masking",
            slots=self.reports,
            minimum=self.minimum,
            metrics=self.length,
            suite=MASKING_SUITE,
            modulus=self.modulus,
            divisor=self.noise.divisor,
            total=self.noise.total,
        )

    def security(self, corrupt: int | None = None, claim: Claim = Claim.SEMI_HONEST) -> Security:
        """How sure it is that only the sum is learnt, with so many corrupt: a tenth unless said."""
        return security(self.neighbourhood, self.reports, self.minimum, corrupt, claim)

    @cached_property
    def context(self) -> bytes:
        """A digest of everything above.

        It goes into every key, so two sides that differ in anything share no key.
        """
        return hashlib.sha256(self.encode()).digest()


BITS = 40
"""How sure a round must be, unless less is asked for, that nothing but the sum is learnt."""


def check_withstands(announced: MaskingRound, about: Aggregation, bits: int = BITS) -> None:
    """Rejects a round whose degree, threshold and minimum keep the terms' claim with fewer bits
    than asked for, while as many participants are corrupted as the terms tolerate.
    """
    if about.claim not in tuple(Claim):
        raise Refusal(f"the claim {about.claim} of the terms is none of {', '.join(Claim)}")
    found = announced.security(about.dishonest(announced.reports), Claim(about.claim))
    if found.bits < bits:
        raise Refusal(f"the round is weaker than the {bits} bits that are asked for: {found}")


CLIENT_KINDS = (
    Kind.JOIN,
    Kind.SHARES,
    Kind.CHECKED,
    Kind.MASKED,
    Kind.ACCUSED,
    Kind.KEYS,
    Kind.SEEDS,
    Kind.REVEAL,
    Kind.LAST_SEEDS,
)
_BY_BYTE = {bytes((kind,)): kind for kind in Kind}


def client_kind(message: bytes, identity: bytes) -> Kind:
    """Which of a client's messages this is, in this round; a `Refusal` if it is none."""
    return one_of(CLIENT_KINDS, message, identity)


def one_of(kinds: tuple[Kind, ...], message: bytes, identity: bytes) -> Kind:
    """Which of these kinds a message of this round is of; a `Refusal` if it is of none."""
    named = message[3:4] if isinstance(message, bytes | bytearray | memoryview) else b""
    kind = _BY_BYTE.get(bytes(named))
    if kind not in kinds:
        kind = kinds[0]
    body(message, kind, identity)
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
    """The keys of the one parcel from `me` to `other` and of the one back.

    They follow from all keys of both: whoever is told a false one has other keys, which open
    nothing, so that the pair is left out.
    """
    low, high = (me, other) if me.number < other.number else (other, me)
    info = b"tacit masking route v3" + SETUP_ENTRY.pack(*low) + SETUP_ENTRY.pack(*high)
    keys = derive(agree(own, other.address), context, info, 2 * KEY_SIZE)
    up, down = keys[:KEY_SIZE], keys[KEY_SIZE:]
    return (up, down) if me is low else (down, up)


def mask_seed(
    own: X25519PrivateKey, me: tuple[int, bytes], other: tuple[int, bytes], context: bytes
) -> bytes:
    """The seed of the mask that two neighbours share; each is named by its number and masking
    key.
    """
    (low, low_key), (high, high_key) = (me, other) if me[0] < other[0] else (other, me)
    info = b"tacit masking mask v2" + low.to_bytes(4, "big") + low_key
    return derive(agree(own, other[1]), context, info + high.to_bytes(4, "big") + high_key)


def pack_listed(numbers: Collection[int]) -> bytes:
    """Clients, by number."""
    return struct.pack(f">{len(numbers)}I", *numbers)


def read_listed(data: bytes, count: int, what: str) -> list[int]:
    """So many clients, by number."""
    if len(data) != 4 * count:
        raise Refusal(f"{what} has {len(data)} bytes; {count} numbers are to be in it")
    return list(struct.unpack(f">{count}I", data))
