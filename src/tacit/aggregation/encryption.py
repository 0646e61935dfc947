"""HPKE encryption to one recipient (RFC 9180), and the recipients' keys.

There are three suites, all with HKDF-SHA256. New rounds use X25519 with AES-128-GCM, which browsers
support. The others are X25519 with ChaCha20-Poly1305, and the hybrid of X25519 and ML-KEM-768,
which resists adversaries who record now and decrypt later with a quantum computer. HPKE base mode
does not authenticate the sender.
"""

from __future__ import annotations

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
from tacit.aggregation.interface import SYSTEM, Rejected, Source, expect, expect_size
from tacit.terms import HPKE_SUITES

_MLKEM_SEED_SIZE = 64
_MLKEM_PUBLIC_SIZE = 1184


class HpkeSuite(IntEnum):
    """The HPKE suite of a round; the value is its byte on the wire."""

    X25519 = 1
    HYBRID = 2
    X25519_AES = 3

    @property
    def key_size(self) -> int:
        """Bytes of an encryption public key."""
        return (_MLKEM_PUBLIC_SIZE if self is HpkeSuite.HYBRID else 0) + KEY_SIZE

    @property
    def public_size(self) -> int:
        """Bytes of the public keys of `ServerKeys`."""
        return KEY_SIZE + self.key_size

    @property
    def overhead(self) -> int:
        """Bytes that encryption adds to any message.

        >>> HpkeSuite.X25519.overhead, HpkeSuite.HYBRID.overhead
        (48, 1136)
        """
        return _PARTS[self][0].enc_length() + TAG_SIZE

    @property
    def identifier(self) -> str:
        """The identifier of the suite in the terms.

        >>> HpkeSuite.X25519_AES.identifier
        'hpke-x25519-aes128gcm'
        """
        return _IDENTIFIERS[self]


DEFAULT = HpkeSuite.X25519_AES
"""The suite of new keys and rounds."""


def suite_named(identifier: str) -> HpkeSuite:
    """The suite with this identifier in the terms."""
    known = {name: suite for suite, name in _IDENTIFIERS.items()}
    expect(identifier in known, "suite", repr(identifier), f"one of {', '.join(known)}")
    return known[identifier]


def suite_numbered(number: int) -> HpkeSuite:
    """The suite with this byte on the wire."""
    known = ", ".join(f"{suite.value} ({suite.name})" for suite in HpkeSuite)
    expect(number in tuple(HpkeSuite), "suite", number, f"one of {known}")
    return HpkeSuite(number)


_IDENTIFIERS = dict(
    zip((HpkeSuite.X25519_AES, HpkeSuite.X25519, HpkeSuite.HYBRID), HPKE_SUITES, strict=True)
)
_PARTS = {
    HpkeSuite.X25519: (KEM.X25519, AEAD.CHACHA20_POLY1305),
    HpkeSuite.HYBRID: (KEM.MLKEM768_X25519, AEAD.CHACHA20_POLY1305),
    HpkeSuite.X25519_AES: (KEM.X25519, AEAD.AES_128_GCM),
}
_SUITES = {suite: Suite(kem, KDF.HKDF_SHA256, aead) for suite, (kem, aead) in _PARTS.items()}


@dataclass(frozen=True, repr=False)
class PrivateKey:
    """A recipient's private key; its repr shows only the suite."""

    suite: HpkeSuite
    classical: X25519PrivateKey
    lattice: MLKEM768PrivateKey | None = None

    def __repr__(self) -> str:
        return f"PrivateKey({self.suite.name})"

    @classmethod
    def new(cls, suite: HpkeSuite = DEFAULT, source: Source = SYSTEM) -> PrivateKey:
        """Make a fresh key; `source` is for test vectors only.

        >>> PrivateKey.new(HpkeSuite.HYBRID)
        PrivateKey(HYBRID)
        """
        classical = new_key(source)
        if suite is not HpkeSuite.HYBRID:
            return cls(suite, classical)
        return cls(suite, classical, MLKEM768PrivateKey.from_seed_bytes(source(_MLKEM_SEED_SIZE)))

    def public(self) -> bytes:
        """The encryption public key: the ML-KEM key in the hybrid suite, then the X25519 key."""
        lattice = self.lattice.public_key().public_bytes_raw() if self.lattice else b""
        return lattice + public_bytes(self.classical)

    def decrypt(self, encrypted: bytes, info: bytes) -> bytes:
        """Decrypt a message that was encrypted to this key under the same `info`."""
        key = (
            MLKEM768X25519PrivateKey(self.lattice, self.classical)
            if self.lattice
            else self.classical
        )
        try:
            return _SUITES[self.suite].decrypt(encrypted, key, info)
        except (InvalidTag, ValueError):
            raise Rejected(
                "message cannot be decrypted: it was altered, or encrypted to another key or for "
                "another round"
            ) from None


@dataclass(frozen=True)
class ServerKeys:
    """The private keys of a server, shuffler or analyzer.

    Clients encrypt to `encryption`; `line` is for the channel to the other parties.
    """

    encryption: PrivateKey
    line: X25519PrivateKey

    def __repr__(self) -> str:
        return f"ServerKeys({self.encryption.suite.name})"

    @classmethod
    def new(cls, suite: HpkeSuite = DEFAULT, source: Source = SYSTEM) -> ServerKeys:
        """Make fresh keys; `source` is for test vectors only."""
        return cls(PrivateKey.new(suite, source), new_key(source))

    def public(self) -> bytes:
        """The public keys: the channel key, then the encryption key."""
        return public_bytes(self.line) + self.encryption.public()


@dataclass(frozen=True)
class Recipient:
    """A parsed encryption public key."""

    suite: HpkeSuite
    key: X25519PublicKey | MLKEM768X25519PublicKey

    @classmethod
    def parse(cls, suite: HpkeSuite, public: bytes) -> Recipient:
        """Parse an encryption public key."""
        expect_size(f"public key of the suite {suite.name}", public, suite.key_size)
        classical = X25519PublicKey.from_public_bytes(check_public(public[-KEY_SIZE:]))
        if suite is not HpkeSuite.HYBRID:
            return cls(suite, classical)
        try:
            return cls(
                suite,
                MLKEM768X25519PublicKey(
                    MLKEM768PublicKey.from_public_bytes(public[:-KEY_SIZE]), classical
                ),
            )
        except ValueError:
            raise Rejected("ML-KEM public key is malformed") from None

    def encrypt(self, message: bytes, info: bytes) -> bytes:
        """Encrypt a message to the recipient; the ciphertext is `overhead` bytes longer."""
        return _SUITES[self.suite].encrypt(message, self.key, info)


def recipients(suite: HpkeSuite, publics: tuple[bytes, bytes]) -> tuple[Recipient, Recipient]:
    """The encryption keys of two parties, given the public bytes of their `ServerKeys`."""
    first, second = (Recipient.parse(suite, public[KEY_SIZE:]) for public in publics)
    return first, second
