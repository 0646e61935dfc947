"""Commitments of a secure aggregation client to the secret shares that it hands out.

A client lists a commitment to the seed of its own mask and, for each neighbour, commitments to both
shares that this neighbour gets and to the key that encrypts them. Every parcel is encrypted
together with the digest of the list, its root, so that all neighbours know one list; the client
signs root and parcels. A share that is revealed wrongly is thus told from one that was dealt
wrongly, and a client that deals other shares than it announced is convicted by its own signature.

The commitments are plain hashes: the hidden 32 bytes are uniform to anybody with fewer shares than
the threshold.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from tacit.aggregation import shamir
from tacit.aggregation.agreement import NONCE_SIZE, TAG_SIZE, public_bytes
from tacit.aggregation.interface import Refusal
from tacit.aggregation.shamir import SHARE_SIZE
from tacit.signatures import SIGNATURE_SIZE

COMMITMENT_SIZE = 32
PARCEL_SIZE = 2 * SHARE_SIZE + TAG_SIZE
"""What one neighbour sends to another through the server: two shares, sealed."""

SHARE_ENTRY = struct.Struct(f">I{SHARE_SIZE}s")  # number of a client, share
_ENTRY = struct.Struct(">I32s32s32s")  # holder, commitments: own share, masking share, key
_HELD = struct.Struct(">IB")  # holder, which of the two secrets
_SHARE = b"tacit masking share v3"
_PARCEL_NONCE = bytes(NONCE_SIZE)  # a direction's key seals one parcel


class SharedSecret(IntEnum):
    """Which of its two secrets a share is of."""

    OWN = 0
    MASKING = 1


def share_commitment(
    context: bytes, owner: int, holder: int, secret: SharedSecret, share: bytes
) -> bytes:
    """What binds the owner to the share that it gives to this holder."""
    return _committed(_SHARE + context + owner.to_bytes(4, "big"), holder, secret, share)


def _committed(front: bytes, holder: int, secret: SharedSecret, share: bytes) -> bytes:
    return hashlib.sha256(front + _HELD.pack(holder, secret) + share).digest()


def key_commitment(context: bytes, owner: int, holder: int, key: bytes) -> bytes:
    """What binds the owner to the key of its parcel for this holder."""
    ids = owner.to_bytes(4, "big") + _HELD.pack(holder, 0)
    return hashlib.sha256(b"tacit masking direction v3" + context + ids + key).digest()


def seed_commitment(context: bytes, owner: int, seed: bytes) -> bytes:
    """What binds a client to the seed of its own mask."""
    return hashlib.sha256(
        b"tacit masking seed v3" + context + owner.to_bytes(4, "big") + seed
    ).digest()


Pledge = tuple[bytes, bytes, bytes]
"""The commitments to what one holder gets: both shares, in the order of `SharedSecret`, and the key
that encrypts them.
"""


@dataclass(frozen=True)
class Pledges:
    """All that a client commits to, as it was sent: `holders` are in the order of positions. A
    server has many of these lists and looks into few, so that nothing else is cut out in advance.
    """

    encoded: bytes
    holders: tuple[int, ...]

    @classmethod
    def decode(cls, data: bytes, degree: int) -> Pledges:
        """The list of a client with so many neighbours; each holder is in it once."""
        if len(data) != pledges_size(degree):
            raise Refusal(f"a list of {degree} commitments does not take {len(data)} bytes")
        holders = _column(degree, 0, "I").unpack(data)
        if len(set(holders)) != degree:
            raise Refusal("a list of commitments names a holder twice")
        return cls(data, holders)

    @property
    def seed(self) -> bytes:
        """The commitment to the seed of the own mask."""
        return self.encoded[:COMMITMENT_SIZE]

    def both(self) -> tuple[bytes, ...]:
        """For each holder the commitments to both of its shares."""
        return _column(len(self.holders), 4, "64s").unpack(self.encoded)

    def shares(self, secret: SharedSecret) -> tuple[bytes, ...]:
        """For each holder the commitment to its share of this secret."""
        before = 4 + secret * COMMITMENT_SIZE
        return _column(len(self.holders), before, "32s").unpack(self.encoded)

    def at(self, holder: int) -> Pledge | None:
        """The commitments to what this holder gets; None if it is not in the list."""
        if holder not in self.holders:
            return None
        start = COMMITMENT_SIZE + self.holders.index(holder) * _ENTRY.size
        _, own, masking, key = _ENTRY.unpack_from(self.encoded, start)
        return own, masking, key

    def root(self, context: bytes, owner: int) -> bytes:
        """The digest that stands for the whole list."""
        front = b"tacit masking list v3" + context + owner.to_bytes(4, "big")
        return hashlib.sha256(front + self.encoded).digest()


@lru_cache(maxsize=256)
def _column(degree: int, before: int, kind: str) -> struct.Struct:
    """Reads one field of every entry of a list of so many, so many bytes into the entry."""
    after = _ENTRY.size - before - struct.calcsize(f">{kind}")
    return struct.Struct(f">{COMMITMENT_SIZE}x" + f"{before}x{kind}{after}x" * degree)


def pledges_size(degree: int) -> int:
    """Bytes of the list of a client with so many neighbours."""
    return COMMITMENT_SIZE + degree * _ENTRY.size


def encode_pledges(seed: bytes, by_holder: Mapping[int, Pledge]) -> bytes:
    """The list as it is sent."""
    entries = [_ENTRY.pack(holder, *pledge) for holder, pledge in by_holder.items()]
    return seed + b"".join(entries)


def signed_shares(root: bytes, parcels: bytes) -> bytes:
    """What a client signs: its list, and all its parcels."""
    return root + hashlib.sha256(parcels).digest()


def sealed_parcel(key: bytes, root: bytes, pledge: Pledge, shares: bytes) -> bytes:
    """Both shares for one holder, sealed together with the commitments to them."""
    return ChaCha20Poly1305(key).encrypt(_PARCEL_NONCE, shares, root + pledge[0] + pledge[1])


def opened_parcel(
    key: bytes,
    root: bytes,
    commitments: tuple[bytes, bytes],
    pair: tuple[int, int],
    parcel: bytes,
    context: bytes,
) -> tuple[bytes, bytes] | None:
    """The two shares in a parcel of this pair of owner and holder; None unless it opens to what its
    sender committed to.
    """
    try:
        content = ChaCha20Poly1305(key).decrypt(_PARCEL_NONCE, parcel, root + b"".join(commitments))
    except InvalidTag:
        return None
    owner, holder = pair
    front = _SHARE + context + owner.to_bytes(4, "big")
    own, masking = content[:SHARE_SIZE], content[SHARE_SIZE:]
    found = (
        _committed(front, holder, SharedSecret.OWN, own),
        _committed(front, holder, SharedSecret.MASKING, masking),
    )
    if found != commitments or not (shamir.is_share(own) and shamir.is_share(masking)):
        return None
    return own, masking


def proves(
    pledges: Pledges,
    owner: tuple[int, bytes],
    secret: SharedSecret,
    shares: Mapping[int, bytes],
    context: bytes,
) -> bool:
    """Whether these shares, by holder, convict an owner, named by number and masking key: each is
    the one that it committed to, and together they do not give the secret that it announced.
    """
    if matching(pledges, owner[0], secret, shares, context).keys() != shares.keys():
        return False
    found = combined(pledges, shares)
    return found is None or not announced(pledges, owner, secret, found, context)


def matching(
    pledges: Pledges, owner: int, secret: SharedSecret, shares: Mapping[int, bytes], context: bytes
) -> dict[int, bytes]:
    """Those of the shares, by holder, that are what the owner committed to, in the order of
    positions.
    """
    front, right = _SHARE + context + owner.to_bytes(4, "big"), dict[int, bytes]()
    for holder, promised in zip(pledges.holders, pledges.shares(secret), strict=True):
        share = shares.get(holder)
        if share is not None and _committed(front, holder, secret, share) == promised:
            right[holder] = share
    return right


def announced(
    pledges: Pledges, owner: tuple[int, bytes], secret: SharedSecret, found: bytes, context: bytes
) -> bool:
    """Whether this is the secret that an owner, named by number and masking key, announced."""
    if secret is SharedSecret.MASKING:
        return public_bytes(X25519PrivateKey.from_private_bytes(found)) == owner[1]
    return seed_commitment(context, owner[0], found) == pledges.seed


def combined(pledges: Pledges, shares: Mapping[int, bytes]) -> bytes | None:
    """The secret that these shares give, by holder; None if they are of no 32-byte secret."""
    places = enumerate(pledges.holders, start=1)
    known = [(position, shares[holder]) for position, holder in places if holder in shares]
    positions, values = zip(*known, strict=True)
    try:
        return shamir.combine(positions, values)
    except Refusal:
        return None


@dataclass(frozen=True)
class SignedShares:
    """What a client signed: its list, and all its parcels in the order of their receivers there."""

    owner: int
    pledges: Pledges
    parcels: bytes
    signature: bytes

    def encode(self) -> bytes:
        """The bytes of it: as the client sent them, with its number in front."""
        return self.owner.to_bytes(4, "big") + self.pledges.encoded + self.parcels + self.signature

    @classmethod
    def decode(cls, data: bytes, degree: int) -> SignedShares:
        """What a client with so many neighbours sent."""
        pledges, parcels, signature = cut_shares(data[4:], degree, "the evidence")
        return cls(int.from_bytes(data[:4], "big"), pledges, parcels, signature)

    def parcel(self, holder: int) -> bytes:
        """The parcel for one of the holders in the list."""
        start = self.pledges.holders.index(holder) * PARCEL_SIZE
        return self.parcels[start : start + PARCEL_SIZE]


def cut_shares(content: bytes, degree: int, what: str) -> tuple[Pledges, bytes, bytes]:
    """The list, the parcels and the signature of a client with so many neighbours."""
    if len(content) != evidence_size(degree) - 4:
        raise Refusal(f"{what} has {len(content)} bytes; {degree} neighbours take others")
    start, end = pledges_size(degree), len(content) - SIGNATURE_SIZE
    return Pledges.decode(content[:start], degree), content[start:end], content[end:]


def evidence_size(degree: int) -> int:
    """Bytes of what a client with so many neighbours signed, with its number and signature."""
    return 4 + pledges_size(degree) + degree * PARCEL_SIZE + SIGNATURE_SIZE


@dataclass(frozen=True)
class Proof:
    """Shares of one secret of a client, by their holders, with the list that they are held
    against.
    """

    owner: int
    pledges: Pledges
    shares: Mapping[int, bytes]

    def encode(self) -> bytes:
        """The bytes of it."""
        return self.owner.to_bytes(4, "big") + self.pledges.encoded + pack_shares(self.shares)

    @classmethod
    def decode(cls, data: bytes, degree: int, threshold: int) -> Proof:
        """A proof by as many shares as the threshold, of different holders."""
        owner, start = int.from_bytes(data[:4], "big"), 4 + pledges_size(degree)
        pledges = Pledges.decode(data[4:start], degree)
        shares = dict(SHARE_ENTRY.iter_unpack(data[start:]))
        if len(shares) != threshold:
            raise Refusal(f"a proof takes the shares of {threshold} different holders")
        return cls(owner, pledges, shares)


def proof_size(degree: int, threshold: int) -> int:
    """Bytes of a proof against a client with so many neighbours."""
    return 4 + pledges_size(degree) + threshold * SHARE_ENTRY.size


def pack_shares(shares: Mapping[int, bytes]) -> bytes:
    """Shares, each with the number of a client in front, in the order of these numbers."""
    return b"".join([SHARE_ENTRY.pack(number, shares[number]) for number in sorted(shares)])


def read_shares(data: bytes, numbers: Sequence[int], what: str) -> dict[int, bytes]:
    """Exactly one share for each of these numbers, in their order."""
    if len(data) != len(numbers) * SHARE_ENTRY.size:
        raise Refusal(f"{what} has {len(data)} bytes; {len(numbers)} shares were asked for")
    shares = dict(SHARE_ENTRY.iter_unpack(data))
    if list(shares) != list(numbers):
        raise Refusal(f"{what} does not answer what was asked: it names other clients")
    return shares
