"""Ed25519 signatures of an experiment's parties (RFC 8032), with domain separation.

A label and a zero byte precede every signed message, so a signature for one kind of message is
never valid for another. Verified signatures are cached, so a client that reports often under the
same terms checks them once.
"""

from __future__ import annotations

import hashlib
from enum import Enum
from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tacit.errors import Rejected

KEY_SIZE = 32
SIGNATURE_SIZE = 64
REMEMBERED = 1024


class Signed(Enum):
    """The kinds of signed messages; the value is the label."""

    TERMS = "tacit terms v2"
    SUCCESSOR = "tacit successor terms v2"
    ROUND = "tacit round v2"
    PARTIAL = "tacit partial sum v2"
    OUTCOME = "tacit outcome v2"
    SHARES = "tacit shares v2"
    CALL = "tacit call v2"
    INVITATION = "tacit invitation v2"
    FEDERATION = "tacit federation terms v2"
    SILO_MESSAGE = "tacit silo message v2"
    SILO_KEYS = "tacit silo keys v2"
    SURVIVORS = "tacit survivors v2"


def sign(kind: Signed, message: bytes, key: Ed25519PrivateKey) -> bytes:
    """Sign a message of this kind: 64 bytes, deterministic."""
    return key.sign(_labelled(kind, message))


def verify(kind: Signed, message: bytes, signature: bytes, public: bytes, party: str) -> None:
    """Raise `Rejected` unless the holder of this public key signed the message as this kind."""
    if not _verified(kind, message, signature, public):
        raise Rejected(
            f"{party} did not sign this {kind.value.removeprefix('tacit ').removesuffix(' v2')}: "
            f"it was altered, or signed with another key than {fingerprint(public)}"
        )


def signatures_in(joined: bytes) -> tuple[bytes, ...]:
    """The signatures that follow each other in these bytes."""
    size = SIGNATURE_SIZE
    return tuple(joined[at : at + size] for at in range(0, len(joined), size))


def public_key(key: Ed25519PrivateKey) -> bytes:
    """The 32-byte public key, which others pin."""
    return key.public_key().public_bytes_raw()


def fingerprint(public: bytes) -> str:
    """A public key in a form that people can compare: the first 16 bytes of its SHA-256, in groups.

    >>> fingerprint(bytes(32))
    '6668 7aad f862 bd77 6c8f c18b 8e9f 8e20'
    """
    digits = hashlib.sha256(public).hexdigest()[:32]
    return " ".join(digits[start : start + 4] for start in range(0, 32, 4))


def _labelled(kind: Signed, message: bytes) -> bytes:
    return kind.value.encode() + b"\x00" + message


@lru_cache(maxsize=REMEMBERED)
def _verified(kind: Signed, message: bytes, signature: bytes, public: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, _labelled(kind, message))
    except (InvalidSignature, ValueError):
        return False
    return True
