"""Keys that two parties of one round share, and the channel that carries messages under them.

X25519 gives the two a common secret, HKDF turns it into keys that are bound to the round and to both public keys, and
ChaCha20-Poly1305 seals each message. A party's key lives for one round only, so a nonce may simply name the kind of
message: each kind is sealed at most once in each direction, which the channel enforces.
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tacit.intermediaries.interface import SYSTEM, Refusal, Source
from tacit.intermediaries.wire import Kind

KEY_SIZE = 32
TAG_SIZE = 16

_SHA256 = hashes.SHA256()


def new_key(source: Source = SYSTEM) -> X25519PrivateKey:
    """A fresh private key."""
    return X25519PrivateKey.from_private_bytes(source(KEY_SIZE))


def public_bytes(key: X25519PrivateKey) -> bytes:
    """The 32 bytes that others may know."""
    return key.public_key().public_bytes_raw()


def agree(own: X25519PrivateKey, peer: bytes) -> bytes:
    """The secret that `own` and the holder of the public key `peer` both compute; a point of small order is refused."""
    try:
        return own.exchange(X25519PublicKey.from_public_bytes(peer))
    except ValueError:
        raise Refusal("a public key is malformed or of small order; the key exchange was not done") from None


def derive(secret: bytes, context: bytes, info: bytes, size: int = KEY_SIZE) -> bytes:
    """Key material from a shared secret, bound to the round (`context`) and to what it is for (`info`)."""
    return HKDF(_SHA256, size, context, info).derive(secret)


class Channel:
    """An authenticated, encrypted line between two parties of one round.

    Both ends name the same `initiator` and `responder` public keys; one of the two is `own`'s.
    """

    def __init__(
        self, own: X25519PrivateKey, initiator: bytes, responder: bytes, context: bytes, *, starts: bool
    ) -> None:
        secret = agree(own, responder if starts else initiator)
        keys = derive(secret, context, b"tacit channel v1" + initiator + responder, 2 * KEY_SIZE)
        first, second = ChaCha20Poly1305(keys[:KEY_SIZE]), ChaCha20Poly1305(keys[KEY_SIZE:])
        self._outward, self._inward = (first, second) if starts else (second, first)
        self._sent: set[Kind] = set()

    def seal(self, kind: Kind, front: bytes, content: bytes) -> bytes:
        """`front` in the clear and `content` sealed, both authenticated; once per kind."""
        if kind in self._sent:
            raise Refusal(f"a {kind.name} was already sealed on this channel; a second one would reuse its nonce")
        self._sent.add(kind)
        return front + self._outward.encrypt(_nonce(kind), content, front)

    def open(self, kind: Kind, front: bytes, sealed: bytes) -> bytes:
        """The content that the other end sealed under the same `front`."""
        try:
            return self._inward.decrypt(_nonce(kind), sealed, front)
        except InvalidTag:
            raise Refusal(
                f"the {kind.name} message is not authentic: it was altered, or sealed with another key"
            ) from None


def _nonce(kind: Kind) -> bytes:
    return bytes(11) + bytes((kind,))
