"""HPKE against an independent implementation of RFC 9180 and the RFC's test vectors."""

from __future__ import annotations

import hmac
from typing import NamedTuple

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

from tacit.aggregation import HpkeSuite, PrivateKey, Rejected, ServerKeys
from tacit.aggregation.encryption import DEFAULT, Recipient


class Book(NamedTuple):
    """A suite of RFC 9180 with DHKEM(X25519) and HKDF-SHA256: the number and key size of its
    AEAD.
    """

    number: int
    key_size: int
    cipher: type[AESGCM] | type[ChaCha20Poly1305]


BOOKS = {
    HpkeSuite.X25519_AES: Book(1, 16, AESGCM),
    HpkeSuite.X25519: Book(3, 32, ChaCha20Poly1305),
}
KEM_ID = b"KEM\x00\x20"


def extract(suite: bytes, salt: bytes, label: bytes, key: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + key, "sha256")


def expand(suite: bytes, key: bytes, label: bytes, info: bytes, size: int) -> bytes:
    text = size.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return hmac.digest(key, text + b"\x01", "sha256")[:size]


def key_and_nonce(
    book: Book, own: bytes, peer: bytes, enc: bytes, receiver: bytes, info: bytes
) -> tuple[bytes, bytes]:
    """The schedule of RFC 9180, sections 4.1 and 5.1, in base mode."""
    exchanged = X25519PrivateKey.from_private_bytes(own).exchange(
        X25519PublicKey.from_public_bytes(peer)
    )
    secret = extract(KEM_ID, b"", b"eae_prk", exchanged)
    shared = expand(KEM_ID, secret, b"shared_secret", enc + receiver, 32)
    suite = b"HPKE\x00\x20\x00\x01" + book.number.to_bytes(2, "big")
    context = (
        b"\x00" + extract(suite, b"", b"psk_id_hash", b"") + extract(suite, b"", b"info_hash", info)
    )
    secret = extract(suite, shared, b"secret", b"")
    key = expand(suite, secret, b"key", context, book.key_size)
    return key, expand(suite, secret, b"base_nonce", context, 12)


RFC = {
    HpkeSuite.X25519_AES: (  # appendix A.1.1
        "52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736",
        "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431",
        "4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8",
        "3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d",
        "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a96d8770ac83d07bea87e13c512a",
    ),
    HpkeSuite.X25519: (  # appendix A.2.1
        "f4ec9b33b792c372c1d2c2063507b684ef925b8c75a42dbcbf57d63ccd381600",
        "1afa08d3dec047a643885163f1180476fa7ddb54c6a8029ea33f95796bf2ac4a",
        "8057991eef8f1f1af18f4a9491d16a1ce333f695d4db8e38da75975c4478e0fb",
        "4310ee97d88cc1f088a5576c77ab0cf5c3ac797f3d95139c6c84b5429c59662a",
        "1c5250d8034ec2b784ba2cfd69dbdb8af406cfe3ff938e131f0def8c8b60b4db21993c62ce81883d2dd1b51a28",
    ),
}
INFO = b"Ode on a Grecian Urn"


@pytest.mark.parametrize("sealing", RFC)
def test_an_independent_hpke_reproduces_the_rfc_vectors(sealing: HpkeSuite) -> None:
    ephemeral, enc, private, public, encrypted = map(bytes.fromhex, RFC[sealing])
    book = BOOKS[sealing]
    for own, peer in ((ephemeral, public), (private, enc)):
        key, nonce = key_and_nonce(book, own, peer, enc, public, INFO)
        message = book.cipher(key).decrypt(nonce, encrypted, b"Count-0")
        assert message == b"Beauty is truth, truth beauty"


@pytest.mark.parametrize("sealing", RFC)
def test_tacit_and_an_independent_hpke_decrypt_each_other(
    sealing: HpkeSuite,
) -> None:
    ephemeral, enc, private, public, _ = map(bytes.fromhex, RFC[sealing])
    book = BOOKS[sealing]
    key, nonce = key_and_nonce(book, ephemeral, public, enc, public, INFO)
    theirs = enc + book.cipher(key).encrypt(nonce, b"a truth", b"")
    holder = PrivateKey(sealing, X25519PrivateKey.from_private_bytes(private))
    assert holder.decrypt(theirs, INFO) == b"a truth"
    ours = Recipient.parse(sealing, public).encrypt(b"a truth", INFO)
    assert len(ours) == len(theirs) == len(b"a truth") + sealing.overhead
    key, nonce = key_and_nonce(book, private, ours[:32], ours[:32], public, INFO)
    assert book.cipher(key).decrypt(nonce, ours[32:], b"") == b"a truth"


def test_new_keys_use_the_suite_that_browsers_support() -> None:
    assert DEFAULT is HpkeSuite.X25519_AES
    assert PrivateKey.new().suite is ServerKeys.new().encryption.suite is DEFAULT


@pytest.mark.parametrize("sealing", list(HpkeSuite))
def test_decryption_needs_the_same_suite_and_info(sealing: HpkeSuite) -> None:
    key = PrivateKey.new(sealing)
    encrypted = Recipient.parse(sealing, key.public()).encrypt(b"x", b"round 1")
    assert key.decrypt(encrypted, b"round 1") == b"x"
    others = {HpkeSuite.X25519, HpkeSuite.X25519_AES} - {sealing}
    wrong = [key, *(PrivateKey(other, key.classical) for other in others)]
    for holder, info in zip(wrong, (b"round 2", b"round 1", b"round 1"), strict=False):
        with pytest.raises(Rejected, match="cannot be decrypted"):
            holder.decrypt(encrypted, info)
