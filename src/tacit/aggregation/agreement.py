"""Key agreement between two parties of a round, and an authenticated encrypted channel.

X25519 (RFC 7748) gives a shared secret. HKDF derives keys bound to the round and both public keys,
one per direction. ChaCha20-Poly1305 encrypts each message. The header, which names the message's
kind and round, is sent in the clear and authenticated.

The nonce is an HMAC of the message under a third key. So the same message always gives the same
ciphertext and no nonce serves two messages, even in a restored copy of a party.
"""

from __future__ import annotations

import hmac

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tacit.aggregation.interface import SYSTEM, Rejected, Source, expect, expect_size

KEY_SIZE = 32
NONCE_SIZE = 12
TAG_SIZE = 16

_SHA256 = hashes.SHA256()
_FIELD = 2**255 - 19

_SMALL_ORDER = {
    0,
    1,
    _FIELD - 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
}
"""The u-coordinates of order at most 8, on the curve and on its twist."""


def new_key(source: Source = SYSTEM) -> X25519PrivateKey:
    """A fresh private key."""
    return X25519PrivateKey.from_private_bytes(source(KEY_SIZE))


def public_bytes(key: X25519PrivateKey) -> bytes:
    """The 32-byte public key."""
    return key.public_key().public_bytes_raw()


def check_public(peer: bytes) -> bytes:
    """Check that a public key is canonical and not of small order.

    Canonical means 32 bytes and below 2^255 - 19; RFC 7748 accepts other encodings of the same key.
    """
    number = int.from_bytes(peer, "little")
    expect_size("X25519 public key", peer, KEY_SIZE)
    canonical = number < _FIELD and number not in _SMALL_ORDER
    expect(canonical, "X25519 public key", peer.hex(), "canonical and not of small order")
    return peer


def agree(own: X25519PrivateKey, peer: bytes) -> bytes:
    """The X25519 shared secret of `own` and the holder of the public key `peer`."""
    return own.exchange(X25519PublicKey.from_public_bytes(check_public(peer)))


def derive(secret: bytes, context: bytes, info: bytes, size: int = KEY_SIZE) -> bytes:
    """Derive key material from a secret with HKDF, bound to the round (`context`) and to `info`."""
    return HKDF(_SHA256, size, context, info).derive(secret)


class Channel:
    """An authenticated, encrypted channel between two parties of one round.

    Both ends pass the same `initiator` and `responder` public keys; one of them belongs to `own`.
    """

    def __init__(
        self,
        own: X25519PrivateKey,
        initiator: bytes,
        responder: bytes,
        context: bytes,
        *,
        starts: bool,
    ) -> None:
        secret = agree(own, responder if starts else initiator)
        keys = derive(secret, context, b"tacit channel v2" + initiator + responder, 3 * KEY_SIZE)
        first, second = (
            ChaCha20Poly1305(keys[start : start + KEY_SIZE]) for start in (0, KEY_SIZE)
        )
        self._outward, self._inward = (first, second) if starts else (second, first)
        self._nonces = keys[2 * KEY_SIZE :]

    def encrypt(self, front: bytes, content: bytes) -> bytes:
        """Return `front` in the clear, the nonce and the encrypted `content`, all authenticated."""
        nonce = hmac.digest(self._nonces, front + content, "sha256")[:NONCE_SIZE]
        return front + nonce + self._outward.encrypt(nonce, content, front)

    def decrypt(self, front: bytes, encrypted: bytes) -> bytes:
        """Decrypt a message that the other end encrypted under the same `front`."""
        size, least = len(encrypted), NONCE_SIZE + TAG_SIZE
        expect(size >= least, "encrypted message", f"{size} bytes long", f"at least {least}")
        try:
            return self._inward.decrypt(encrypted[:NONCE_SIZE], encrypted[NONCE_SIZE:], front)
        except InvalidTag:
            raise Rejected(
                "message is not authentic: it was altered, or encrypted with another key"
            ) from None
