"""Key agreement: public keys have one encoding, and keys of small order are rejected."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from tacit.aggregation import HpkeSuite, MaskingPlan, MaskingSession, Rejected
from tacit.aggregation.agreement import (
    _SMALL_ORDER,
    NONCE_SIZE,
    TAG_SIZE,
    Channel,
    agree,
    check_public,
    derive,
    new_key,
    public_bytes,
)
from tacit.aggregation.encryption import Recipient

FIELD = 2**255 - 19


def spelt(number: int) -> bytes:
    return number.to_bytes(32, "little")


@pytest.mark.parametrize("point", sorted(_SMALL_ORDER))
def test_points_of_small_order_are_rejected(point: int) -> None:
    own = X25519PrivateKey.generate()
    with pytest.raises(ValueError, match="computing shared key"):
        own.exchange(X25519PublicKey.from_public_bytes(spelt(point)))
    with pytest.raises(Rejected, match="small order"):
        agree(own, spelt(point))


def test_neighbours_of_small_order_points_are_ordinary_keys() -> None:
    ordinary = {n + step for n in _SMALL_ORDER for step in (-1, 1)} - _SMALL_ORDER
    for number in ordinary - {-1, FIELD}:
        assert any(agree(new_key(), spelt(number)))


def test_a_key_has_one_encoding() -> None:
    own, peer = new_key(), public_bytes(new_key())
    number = int.from_bytes(peer, "little")
    assert own.exchange(
        X25519PublicKey.from_public_bytes(spelt(number | 1 << 255))
    ) == own.exchange(X25519PublicKey.from_public_bytes(peer))
    assert check_public(peer) == peer
    others = [spelt(number | 1 << 255), spelt(FIELD), spelt(FIELD + 9), b"\xff" * 32]
    for other in [*others, peer[:31], peer + b"\x00", b""]:
        with pytest.raises(Rejected, match="X25519 public key is"):
            agree(own, other)
    with pytest.raises(Rejected, match="X25519 public key is"):
        Recipient.parse(HpkeSuite.X25519_AES, others[0])


def test_a_reencoded_masking_key_of_another_client_cannot_join() -> None:
    session = MaskingSession([0] * 4, MaskingPlan(3, 100))
    server, (first, second, *_) = session.server, session.clients
    server.take(first.join())
    flipped = bytearray(first._masking_public)
    flipped[31] ^= 0x80
    second._masking_public = bytes(flipped)
    with pytest.raises(Rejected, match="X25519 public key is"):
        server.take(second.join())


@given(st.binary(min_size=1, max_size=80), st.binary(max_size=80), st.binary(), st.integers(1, 300))
def test_key_derivation_is_the_hkdf_of_the_library(
    secret: bytes, salt: bytes, info: bytes, size: int
) -> None:
    assert derive(secret, salt, info, size) == HKDF(SHA256(), size, salt, info).derive(secret)


def test_a_ciphertext_shorter_than_nonce_and_tag_is_rejected_by_its_length() -> None:
    own, peer = new_key(), new_key()
    ends = public_bytes(own), public_bytes(peer)
    sender = Channel(own, *ends, b"round", starts=True)
    receiver = Channel(peer, *ends, b"round", starts=False)
    empty = sender.encrypt(b"front", b"")[5:]
    assert len(empty) == NONCE_SIZE + TAG_SIZE
    assert receiver.decrypt(b"front", empty) == b""
    for size in (0, 3, NONCE_SIZE, NONCE_SIZE + TAG_SIZE - 1):
        with pytest.raises(Rejected, match=f"at least {NONCE_SIZE + TAG_SIZE}"):
            receiver.decrypt(b"front", empty[:size])
