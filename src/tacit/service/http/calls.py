"""What the coordinator asks of the helper, signed with its long-term key.

The signature is under method, path and body's digest, with a label of its own. Every call may be
repeated and gets the same answer, so that a recorded one gains nothing.
"""

from __future__ import annotations

import hashlib

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.errors import Refusal
from tacit.service.errors import Forbidden
from tacit.signatures import Signed, sign, verify

HEADER = "Tacit-Signature"


def sign_call(method: str, path: str, body: bytes, key: Ed25519PrivateKey) -> str:
    """The header's value, hexadecimal."""
    return sign(Signed.CALL, _said(method, path, body), key).hex()


def check_call(method: str, path: str, body: bytes, signature: str, public: bytes) -> None:
    """Refuses what the holder of this key did not ask."""
    try:
        said = _said(method, path, body)
        verify(Signed.CALL, said, bytes.fromhex(signature), public, "the coordinator")
    except Refusal as reason:
        raise Forbidden(str(reason)) from None


def _said(method: str, path: str, body: bytes) -> bytes:
    return f"{method} {path}\n".encode() + hashlib.sha256(body).digest()
