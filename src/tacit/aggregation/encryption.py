"""Sealing a message to one recipient with HPKE (RFC 9180), and the recipients' keys.

Three suites, all with HKDF-SHA256: X25519 with AES-128-GCM, which browsers have and new rounds use;
X25519 with ChaCha20-Poly1305; and X25519 joined with ML-KEM-768, which stays closed to whoever
records today and owns a quantum computer tomorrow. HPKE says nothing about who sealed a message,
only who can open it.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from enum import IntEnum

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import (
    AEAD,
    KDF,
    KEM,
    MLKEM768X25519PrivateKey,
    MLKEM768X25519PublicKey,
    Suite,
)

from tacit.aggregation.agreement import KEY_SIZE, TAG_SIZE, check_public, new_key, public_bytes
from tacit.aggregation.interface import SYSTEM, Refusal, Source
from tacit.keyfiles import Location, Lock, read_key, set_aside, write_key
from tacit.signatures import fingerprint
from tacit.terms import HPKE_SUITES

_MLKEM_SEED_SIZE = 64
_MLKEM_PUBLIC_SIZE = 1184
_KIND, _KINDS = b"sealing", b"server"  # of key files


class Sealing(IntEnum):
    """Which HPKE suite a round uses; the number is its byte on the wire."""

    X25519 = 1
    HYBRID = 2
    X25519_AES = 3

    @property
    def key_size(self) -> int:
        """Bytes of a public key."""
        return (_MLKEM_PUBLIC_SIZE if self is Sealing.HYBRID else 0) + KEY_SIZE

    @property
    def public_size(self) -> int:
        """Bytes of the public half of `ServerKeys`."""
        return KEY_SIZE + self.key_size

    @property
    def overhead(self) -> int:
        """Bytes that sealing adds to a message, whatever it says.

        >>> Sealing.X25519.overhead, Sealing.HYBRID.overhead
        (48, 1136)
        """
        return _PARTS[self][0].enc_length() + TAG_SIZE

    @property
    def identifier(self) -> str:
        """What terms call the suite.

        >>> Sealing.X25519_AES.identifier
        'hpke-x25519-aes128gcm'
        """
        return _IDENTIFIERS[self]


DEFAULT = Sealing.X25519_AES
"""The suite of new keys and rounds."""


def suite_named(identifier: str) -> Sealing:
    """The suite that terms name."""
    for sealing, known in _IDENTIFIERS.items():
        if known == identifier:
            return sealing
    raise Refusal(f"suite {identifier!r} is unknown; known are {', '.join(_IDENTIFIERS.values())}")


def suite(number: int) -> Sealing:
    """The suite with this byte on the wire."""
    if number not in tuple(Sealing):
        raise Refusal(
            f"suite {number} is unknown; known are "
            f"{', '.join(f'{s.value} ({s.name})' for s in Sealing)}"
        )
    return Sealing(number)


_IDENTIFIERS = dict(
    zip((Sealing.X25519_AES, Sealing.X25519, Sealing.HYBRID), HPKE_SUITES, strict=True)
)
_PARTS = {
    Sealing.X25519: (KEM.X25519, AEAD.CHACHA20_POLY1305),
    Sealing.HYBRID: (KEM.MLKEM768_X25519, AEAD.CHACHA20_POLY1305),
    Sealing.X25519_AES: (KEM.X25519, AEAD.AES_128_GCM),
}
_SUITES = {sealing: Suite(kem, KDF.HKDF_SHA256, aead) for sealing, (kem, aead) in _PARTS.items()}


@dataclass(frozen=True, repr=False)
class PrivateKey:
    """A recipient's key. Its repr shows the suite and nothing else."""

    sealing: Sealing
    classical: X25519PrivateKey
    lattice: MLKEM768PrivateKey | None = None

    def __repr__(self) -> str:
        return f"PrivateKey({self.sealing.name})"

    @classmethod
    def new(cls, sealing: Sealing = DEFAULT, source: Source = SYSTEM) -> PrivateKey:
        """A fresh key; `source` is for test vectors only.

        >>> PrivateKey.new(Sealing.HYBRID)
        PrivateKey(HYBRID)
        """
        classical = new_key(source)
        if sealing is not Sealing.HYBRID:
            return cls(sealing, classical)
        return cls(sealing, classical, MLKEM768PrivateKey.from_seed_bytes(source(_MLKEM_SEED_SIZE)))

    def private_bytes(self) -> bytes:
        """Everything secret, unprotected: the suite, the X25519 key, the ML-KEM seed if there is
        one.
        """
        seed = self.lattice.private_bytes_raw() if self.lattice else b""
        return bytes((self.sealing,)) + self.classical.private_bytes_raw() + seed

    @classmethod
    def from_private_bytes(cls, private: bytes) -> PrivateKey:
        """The key that these bytes are."""
        sealing = suite(private[0] if private else 0)
        size = 1 + KEY_SIZE + (_MLKEM_SEED_SIZE if sealing is Sealing.HYBRID else 0)
        if len(private) != size:
            raise Refusal(
                f"a private key has {len(private)} bytes; the suite {sealing.name} has {size}"
            )
        return cls.new(sealing, io.BytesIO(private[1:]).read)

    def save(self, path: Location, lock: Lock) -> None:
        """Encrypted, in place of what is there."""
        write_key(path, _KIND, self.private_bytes(), lock)

    @classmethod
    def load(cls, path: Location, lock: Lock) -> PrivateKey:
        """The key that was saved there."""
        return cls.from_private_bytes(read_key(path, _KIND, lock))

    @classmethod
    def rotate(cls, path: Location, lock: Lock) -> PrivateKey:
        """A new key of the same suite in the place of the saved one, which is kept beside it."""
        present = cls.load(path, lock)
        set_aside(path, present.fingerprint())
        fresh = cls.new(present.sealing)
        fresh.save(path, lock)
        return fresh

    def fingerprint(self) -> str:
        """The public key, for people to compare."""
        return fingerprint(self.public())

    def public(self) -> bytes:
        """The bytes that anyone may seal to: the ML-KEM key if there is one, then the X25519
        key.
        """
        lattice = self.lattice.public_key().public_bytes_raw() if self.lattice else b""
        return lattice + public_bytes(self.classical)

    def open(self, sealed: bytes, info: bytes) -> bytes:
        """What was sealed to this key under the same `info`."""
        key = (
            MLKEM768X25519PrivateKey(self.lattice, self.classical)
            if self.lattice
            else self.classical
        )
        try:
            return _SUITES[self.sealing].decrypt(sealed, key, info)
        except (InvalidTag, ValueError):
            raise Refusal(
                "a sealed message does not open: it was altered, or sealed to another key or for "
                "another round"
            ) from None


@dataclass(frozen=True)
class ServerKeys:
    """The private keys of a server, a shuffler or an analyzer: people seal to the first, the other
    parties know the second.
    """

    sealing: PrivateKey
    line: X25519PrivateKey

    def __repr__(self) -> str:
        return f"ServerKeys({self.sealing.sealing.name})"

    @classmethod
    def new(cls, sealing: Sealing = DEFAULT, source: Source = SYSTEM) -> ServerKeys:
        """Fresh keys; `source` is for test vectors only."""
        return cls(PrivateKey.new(sealing, source), new_key(source))

    def save(self, path: Location, lock: Lock) -> None:
        """Encrypted, in place of what is there."""
        write_key(path, _KINDS, self.line.private_bytes_raw() + self.sealing.private_bytes(), lock)

    @classmethod
    def load(cls, path: Location, lock: Lock) -> ServerKeys:
        """The keys that were saved there."""
        private = read_key(path, _KINDS, lock)
        line = X25519PrivateKey.from_private_bytes(private[:KEY_SIZE])
        return cls(PrivateKey.from_private_bytes(private[KEY_SIZE:]), line)

    @classmethod
    def rotate(cls, path: Location, lock: Lock) -> ServerKeys:
        """New keys of the same suite in the place of the saved ones, which are kept beside them."""
        present = cls.load(path, lock)
        set_aside(path, present.fingerprint())
        fresh = cls.new(present.sealing.sealing)
        fresh.save(path, lock)
        return fresh

    def fingerprint(self) -> str:
        """The public keys, for people to compare."""
        return fingerprint(self.public())

    def public(self) -> bytes:
        """What everyone may know: the line's public key, then the key that people seal to."""
        return public_bytes(self.line) + self.sealing.public()


@dataclass(frozen=True)
class Recipient:
    """A public key that messages are sealed to, parsed once."""

    sealing: Sealing
    key: X25519PublicKey | MLKEM768X25519PublicKey

    @classmethod
    def parse(cls, sealing: Sealing, public: bytes) -> Recipient:
        """The recipient with these public bytes."""
        if len(public) != sealing.key_size:
            raise Refusal(
                f"a public key has {len(public)} bytes; the suite {sealing.name} has "
                f"{sealing.key_size}"
            )
        classical = X25519PublicKey.from_public_bytes(check_public(public[-KEY_SIZE:]))
        if sealing is not Sealing.HYBRID:
            return cls(sealing, classical)
        try:
            return cls(
                sealing,
                MLKEM768X25519PublicKey(
                    MLKEM768PublicKey.from_public_bytes(public[:-KEY_SIZE]), classical
                ),
            )
        except ValueError:
            raise Refusal("a public key is malformed") from None

    def seal(self, message: bytes, info: bytes) -> bytes:
        """The message, for the recipient's eyes only; `overhead` bytes longer."""
        return _SUITES[self.sealing].encrypt(message, self.key, info)


def recipients(sealing: Sealing, publics: tuple[bytes, bytes]) -> tuple[Recipient, Recipient]:
    """The two parties with these public halves of `ServerKeys`, as people seal to them."""
    first, second = (Recipient.parse(sealing, public[KEY_SIZE:]) for public in publics)
    return first, second
