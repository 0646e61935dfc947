"""Masking: secure aggregation with one server, after Bell et al. 2020 (Algorithm 2).

Each client adds to its numbers one mask for every neighbour, which cancels in the sum, and one mask
of its own, whose seed it shares among its neighbours. The server learns the sum of those who stayed
and nothing else, as long as it follows the protocol and not too many clients lend it their secrets.
Here is what both sides agree on: the round, the keys of a pair of neighbours and the layout of the
bodies; `masking_client` and `masking_server` are the two sides.

A round has four stages: join (keys), share (encrypted shares for the neighbours), mask (the masked
numbers) and reveal (for each neighbour that stayed, the share of its own mask; for each that left,
the share of its masking key; never both).
"""

from __future__ import annotations

import hashlib
import math
import struct
from dataclasses import dataclass
from functools import cached_property

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.checks import TacitError
from tacit.intermediaries.agreement import KEY_SIZE, TAG_SIZE, agree, derive
from tacit.intermediaries.announcements import Binding
from tacit.intermediaries.graph import Claim, Neighbourhood, Security, security
from tacit.intermediaries.interface import IDENTITY_SIZE, Refusal, check_counts
from tacit.intermediaries.shamir import SHARE_SIZE
from tacit.intermediaries.wire import (
    HEADER_SIZE,
    Kind,
    body,
    check_length,
    check_modulus,
    described,
    head,
    header,
    identity_of,
    last_modulus,
    pack_modulus,
)
from tacit.terms import Middle, Offer

ADDRESS_SIZE = KEY_SIZE
"""A client is addressed by its public key for encryption."""

FRONT_SIZE = HEADER_SIZE + ADDRESS_SIZE
"""What a message between client and server carries in the clear: the header and the client's
address.
"""

PARCEL_SIZE = 2 * SHARE_SIZE + TAG_SIZE
"""What one neighbour sends to another through the server: two shares, sealed."""

SETUP_HEAD = struct.Struct(">III")  # own number, clients that joined, neighbours that follow
SETUP_ENTRY = struct.Struct(f">I{KEY_SIZE}s{KEY_SIZE}s")  # number, encryption key, masking key
INBOX_ENTRY = struct.Struct(f">I{PARCEL_SIZE}s")  # number of the sender, parcel
REQUEST_HEAD = struct.Struct(
    ">III"
)  # survivors in all, neighbours that stayed, neighbours that left
REVEAL_ENTRY = struct.Struct(
    f">IB{SHARE_SIZE}s"
)  # number of the owner, 1 if the share is there, share

_HEAD = struct.Struct(f">IIIII{KEY_SIZE}s")


@dataclass(frozen=True)
class MaskingRound:
    """What everyone knows about a round: made by the server, checked and obeyed by every client.

    `binding` names the terms; `length` numbers per report are added up modulo `modulus`; nothing is
    opened for fewer than `minimum` of at most `reports` clients.
    """

    binding: Binding
    identity: bytes
    reports: int
    minimum: int
    modulus: int
    length: int
    neighbourhood: Neighbourhood
    server: bytes

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
        front = header(Kind.MASKING_ROUND, self.identity) + self.binding.encode()
        return front + fields + pack_modulus(self.modulus)

    @classmethod
    def decode(cls, message: bytes) -> MaskingRound:
        """The round that a message announces."""
        with described():
            binding, rest = Binding.first(body(message, Kind.MASKING_ROUND))
            fields, rest = head(_HEAD, rest, "the description")
            reports, minimum, length, degree, threshold, server = fields
            modulus, among = last_modulus(rest), Neighbourhood(degree, threshold)
            identity = identity_of(message)
            return cls(binding, identity, reports, minimum, modulus, length, among, server)

    def offer(self) -> Offer:
        """What a device holds against its terms."""
        about = self.binding
        return Offer(
            terms=about.terms,
            kind="masking",
            option=about.option,
            places=self.reports,
            minimum=self.minimum,
            levels=about.levels,
            metrics=self.length,
            window=about.window,
            closes=about.closes,
            modulus=self.modulus,
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


def check_withstands(announced: MaskingRound, middle: Middle, bits: int = BITS) -> None:
    """Refuses a round whose degree, threshold and minimum keep the terms' claim with fewer bits
    than asked for, while the part of the people that the terms name is corrupt.
    """
    if middle.claim not in tuple(Claim):
        raise Refusal(f"the claim {middle.claim} of the terms is none of {', '.join(Claim)}")
    corrupt = math.floor(middle.corrupt * announced.reports)
    found = announced.security(corrupt, Claim(middle.claim))
    if found.bits < bits:
        raise Refusal(f"the round is weaker than the {bits} bits that are asked for: {found}")


CLIENT_KINDS = (Kind.JOIN, Kind.SHARES, Kind.MASKED, Kind.REVEAL)


def client_kind(message: bytes, identity: bytes) -> Kind:
    """Which of a client's messages this is, in this round; a `Refusal` if it is none."""
    for kind in CLIENT_KINDS[1:]:
        if isinstance(message, bytes | bytearray | memoryview) and message[3:4] == bytes((kind,)):
            break
    else:
        kind = Kind.JOIN
    body(message, kind, identity)
    return kind


def route_key(
    own: X25519PrivateKey, me: tuple[int, bytes], other: tuple[int, bytes], context: bytes
) -> bytes:
    """The key under which two neighbours seal parcels for each other; each is named by number and
    encryption key.
    """
    return derive(agree(own, other[1]), context, _pair(b"tacit masking route v2", me, other))


def mask_seed(
    own: X25519PrivateKey, me: tuple[int, bytes], other: tuple[int, bytes], context: bytes
) -> bytes:
    """The seed of the mask that two neighbours share; each is named by its number and masking
    key.
    """
    return derive(agree(own, other[1]), context, _pair(b"tacit masking mask v2", me, other))


def parcel_nonce(sender: int, receiver: int) -> bytes:
    """One parcel goes each way under a pair's key, so the direction is all that the nonce has to
    say.
    """
    return bytes(11) + bytes((sender > receiver,))


def commitment(context: bytes, number: int, seed: bytes) -> bytes:
    """What binds a client to the seed of its own mask, so that wrong shares are noticed and give no
    wrong sum.
    """
    return hashlib.sha256(
        b"tacit masking seed v2" + context + number.to_bytes(4, "big") + seed
    ).digest()


def _pair(label: bytes, me: tuple[int, bytes], other: tuple[int, bytes]) -> bytes:
    (low, low_key), (high, high_key) = (me, other) if me[0] < other[0] else (other, me)
    return label + low.to_bytes(4, "big") + low_key + high.to_bytes(4, "big") + high_key
