"""Commitments of a secure aggregation client to the secret shares that it distributes.

A client lists a commitment to its self-mask seed and, per neighbour, commitments to the two shares
that this neighbour gets and to the key that encrypts them. The digest of the list, its root, is
associated data of all encrypted shares, so all neighbours know the same list. The client signs root
and encrypted shares. So a share revealed wrongly can be told from one dealt wrongly, and a client
that deals other shares than it announced is convicted by its own signature.

The commitments are plain hashes: the hidden 32 bytes are uniform to an adversary with fewer shares
than the threshold.
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
from tacit.aggregation.interface import Rejected, expect, expect_size
from tacit.aggregation.shamir import SHARE_SIZE
from tacit.signatures import SIGNATURE_SIZE

COMMITMENT_SIZE = 32
SHARE_PAIR_SIZE = 2 * SHARE_SIZE + TAG_SIZE
"""Bytes of the encrypted pair of shares from one neighbour to another, relayed by the server."""

SHARE_ENTRY = struct.Struct(f">I{SHARE_SIZE}s")  # number of a client, share
_ENTRY = struct.Struct(">I32s32s32s")  # holder, commitments: own share, masking share, key
_HELD = struct.Struct(">IB")  # holder, which of the two secrets
_SHARE = b"tacit masking share v3"
_PARCEL_NONCE = bytes(NONCE_SIZE)  # each key encrypts one message


class SharedSecret(IntEnum):
    """The secret that a share belongs to: self-mask seed or masking key."""

    OWN = 0
    MASKING = 1


def share_commitment(
    context: bytes, owner: int, holder: int, secret: SharedSecret, share: bytes
) -> bytes:
    """The owner's commitment to the share for this holder."""
    return _committed(_SHARE + context + owner.to_bytes(4, "big"), holder, secret, share)


def _committed(front: bytes, holder: int, secret: SharedSecret, share: bytes) -> bytes:
    return hashlib.sha256(front + _HELD.pack(holder, secret) + share).digest()


def key_commitment(context: bytes, owner: int, holder: int, key: bytes) -> bytes:
    """The owner's commitment to the key that encrypts its shares for this holder."""
    ids = owner.to_bytes(4, "big") + _HELD.pack(holder, 0)
    return hashlib.sha256(b"tacit masking direction v3" + context + ids + key).digest()


def seed_commitment(context: bytes, owner: int, seed: bytes) -> bytes:
    """A client's commitment to its self-mask seed."""
    return hashlib.sha256(
        b"tacit masking seed v3" + context + owner.to_bytes(4, "big") + seed
    ).digest()


HolderCommitments = tuple[bytes, bytes, bytes]
"""The commitments for one holder: to both shares, in the order of `SharedSecret`, and the key."""


@dataclass(frozen=True)
class ShareCommitments:
    """A client's list of commitments in wire format; `holders` are in the order of share positions.

    A server holds many lists and reads few, so fields are decoded on demand.
    """

    encoded: bytes
    holders: tuple[int, ...]

    @classmethod
    def decode(cls, data: bytes, degree: int) -> ShareCommitments:
        """Parse the list of a client with `degree` neighbours; holders are distinct."""
        expect_size("list of commitments", data, commitments_size(degree))
        holders = _column(degree, 0, "I").unpack(data)
        distinct = len(set(holders))
        expect(distinct == degree, "number of holders of commitments", distinct, f"{degree}")
        return cls(data, holders)

    @property
    def seed(self) -> bytes:
        """The commitment to the self-mask seed."""
        return self.encoded[:COMMITMENT_SIZE]

    def both(self) -> tuple[bytes, ...]:
        """For each holder the commitments to both of its shares."""
        return _column(len(self.holders), 4, "64s").unpack(self.encoded)

    def shares(self, secret: SharedSecret) -> tuple[bytes, ...]:
        """For each holder the commitment to its share of this secret."""
        before = 4 + secret * COMMITMENT_SIZE
        return _column(len(self.holders), before, "32s").unpack(self.encoded)

    def at(self, holder: int) -> HolderCommitments | None:
        """The commitments for this holder; None if it is not in the list."""
        if holder not in self.holders:
            return None
        start = COMMITMENT_SIZE + self.holders.index(holder) * _ENTRY.size
        _, own, masking, key = _ENTRY.unpack_from(self.encoded, start)
        return own, masking, key

    def root(self, context: bytes, owner: int) -> bytes:
        """The digest of the list."""
        front = b"tacit masking list v3" + context + owner.to_bytes(4, "big")
        return hashlib.sha256(front + self.encoded).digest()


@lru_cache(maxsize=256)
def _column(degree: int, offset: int, kind: str) -> struct.Struct:
    """The layout that reads one field, `offset` bytes into the entry, of all `degree` entries."""
    after = _ENTRY.size - offset - struct.calcsize(f">{kind}")
    return struct.Struct(f">{COMMITMENT_SIZE}x" + f"{offset}x{kind}{after}x" * degree)


def commitments_size(degree: int) -> int:
    """Bytes of the list of a client with `degree` neighbours."""
    return COMMITMENT_SIZE + degree * _ENTRY.size


def encode_commitments(seed: bytes, by_holder: Mapping[int, HolderCommitments]) -> bytes:
    """Serialize the list."""
    entries = [_ENTRY.pack(holder, *committed) for holder, committed in by_holder.items()]
    return seed + b"".join(entries)


def signed_shares(root: bytes, ciphertexts: bytes) -> bytes:
    """The message that a client signs: root of its list and digest of its encrypted shares."""
    return root + hashlib.sha256(ciphertexts).digest()


def encrypt_share_pair(
    key: bytes, root: bytes, committed: HolderCommitments, shares: bytes
) -> bytes:
    """Encrypt both shares for one holder; root and commitments are associated data."""
    return ChaCha20Poly1305(key).encrypt(_PARCEL_NONCE, shares, root + committed[0] + committed[1])


def decrypt_share_pair(
    key: bytes,
    root: bytes,
    commitments: tuple[bytes, bytes],
    pair: tuple[int, int],
    ciphertext: bytes,
    context: bytes,
) -> tuple[bytes, bytes] | None:
    """Decrypt the two shares of this (owner, holder) pair; None unless they match `commitments`."""
    try:
        content = ChaCha20Poly1305(key).decrypt(
            _PARCEL_NONCE, ciphertext, root + b"".join(commitments)
        )
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
    commitments: ShareCommitments,
    owner: tuple[int, bytes],
    secret: SharedSecret,
    shares: Mapping[int, bytes],
    context: bytes,
) -> bool:
    """Whether these shares, by holder, convict an owner, given by number and masking key.

    Each must match its commitment, and together they must not give the secret that was announced.
    """
    if matching_shares(commitments, owner[0], secret, shares, context).keys() != shares.keys():
        return False
    found = combine_shares(commitments, shares)
    return found is None or not is_announced_secret(commitments, owner, secret, found, context)


def matching_shares(
    commitments: ShareCommitments,
    owner: int,
    secret: SharedSecret,
    shares: Mapping[int, bytes],
    context: bytes,
) -> dict[int, bytes]:
    """The shares, by holder in the order of positions, that match the owner's commitments."""
    front, right = _SHARE + context + owner.to_bytes(4, "big"), dict[int, bytes]()
    for holder, committed in zip(commitments.holders, commitments.shares(secret), strict=True):
        share = shares.get(holder)
        if share is not None and _committed(front, holder, secret, share) == committed:
            right[holder] = share
    return right


def is_announced_secret(
    commitments: ShareCommitments,
    owner: tuple[int, bytes],
    secret: SharedSecret,
    candidate: bytes,
    context: bytes,
) -> bool:
    """Whether this is the secret that an owner, given by number and masking key, announced."""
    if secret is SharedSecret.MASKING:
        return public_bytes(X25519PrivateKey.from_private_bytes(candidate)) == owner[1]
    return seed_commitment(context, owner[0], candidate) == commitments.seed


def combine_shares(commitments: ShareCommitments, shares: Mapping[int, bytes]) -> bytes | None:
    """The secret that these shares, by holder, reconstruct; None if it is no 32-byte secret."""
    places = enumerate(commitments.holders, start=1)
    known = [(position, shares[holder]) for position, holder in places if holder in shares]
    positions, values = zip(*known, strict=True)
    try:
        return shamir.combine(positions, values)
    except Rejected:
        return None


@dataclass(frozen=True)
class SignedShares:
    """A client's signed message: its list, and its encrypted shares in the order of the list."""

    owner: int
    commitments: ShareCommitments
    ciphertexts: bytes
    signature: bytes

    def encode(self) -> bytes:
        """Serialize the message as the client sent it, after the client's number."""
        return (
            self.owner.to_bytes(4, "big")
            + self.commitments.encoded
            + self.ciphertexts
            + self.signature
        )

    @classmethod
    def decode(cls, data: bytes, degree: int) -> SignedShares:
        """Parse the message of a client with `degree` neighbours."""
        commitments, ciphertexts, signature = split_shares_message(data[4:], degree, "evidence")
        return cls(int.from_bytes(data[:4], "big"), commitments, ciphertexts, signature)

    def ciphertext(self, holder: int) -> bytes:
        """The encrypted shares for one holder in the list."""
        start = self.commitments.holders.index(holder) * SHARE_PAIR_SIZE
        return self.ciphertexts[start : start + SHARE_PAIR_SIZE]


def split_shares_message(
    content: bytes, degree: int, name: str
) -> tuple[ShareCommitments, bytes, bytes]:
    """Split a message into list, encrypted shares and signature."""
    expect_size(name, content, evidence_size(degree) - 4)
    start, end = commitments_size(degree), len(content) - SIGNATURE_SIZE
    return ShareCommitments.decode(content[:start], degree), content[start:end], content[end:]


def evidence_size(degree: int) -> int:
    """Bytes of a `SignedShares` of a client with `degree` neighbours."""
    return 4 + commitments_size(degree) + degree * SHARE_PAIR_SIZE + SIGNATURE_SIZE


@dataclass(frozen=True)
class Proof:
    """Shares of one secret of a client, by holder, and the commitments to check them against."""

    owner: int
    commitments: ShareCommitments
    shares: Mapping[int, bytes]

    def encode(self) -> bytes:
        """Serialize the proof."""
        return self.owner.to_bytes(4, "big") + self.commitments.encoded + pack_shares(self.shares)

    @classmethod
    def decode(cls, data: bytes, degree: int, threshold: int) -> Proof:
        """Parse a proof of `threshold` shares of distinct holders."""
        owner, start = int.from_bytes(data[:4], "big"), 4 + commitments_size(degree)
        commitments = ShareCommitments.decode(data[4:start], degree)
        shares = dict(SHARE_ENTRY.iter_unpack(data[start:]))
        expect(
            len(shares) == threshold, "number of holders of a proof", len(shares), f"{threshold}"
        )
        return cls(owner, commitments, shares)


def proof_size(degree: int, threshold: int) -> int:
    """Bytes of a proof against a client with `degree` neighbours."""
    return 4 + commitments_size(degree) + threshold * SHARE_ENTRY.size


def pack_shares(shares: Mapping[int, bytes]) -> bytes:
    """Serialize shares, each after a client number, in ascending order of the numbers."""
    return b"".join([SHARE_ENTRY.pack(number, shares[number]) for number in sorted(shares)])


def read_shares(data: bytes, numbers: Sequence[int], name: str) -> dict[int, bytes]:
    """Parse exactly one share for each of these numbers, in their order."""
    expect_size(name, data, len(numbers) * SHARE_ENTRY.size)
    shares = dict(SHARE_ENTRY.iter_unpack(data))
    if list(shares) != list(numbers):
        raise Rejected(f"{name} names other clients than requested")
    return shares
