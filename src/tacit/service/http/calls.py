"""Signatures of the coordinator's calls to the helper, with its long-term Ed25519 key.

The signature covers method, path and the SHA-256 digest of the body, under a label of its own.
Calls are idempotent, so replaying a recorded call gains nothing.
"""

from __future__ import annotations

import hashlib

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.errors import Refusal
from tacit.service.errors import Forbidden
from tacit.signatures import Signed, sign, verify

HEADER = "Tacit-Signature"


def sign_call(method: str, path: str, body: bytes, key: Ed25519PrivateKey) -> str:
    """The value of the signature header, hexadecimal."""
    return sign(Signed.CALL, _said(method, path, body), key).hex()


def check_call(method: str, path: str, body: bytes, signature: str, public: bytes) -> None:
    """Reject a call that the holder of this key did not sign."""
    try:
        said = _said(method, path, body)
        verify(Signed.CALL, said, bytes.fromhex(signature), public, "the coordinator")
    except Refusal as reason:
        raise Forbidden(str(reason)) from None


def _said(method: str, path: str, body: bytes) -> bytes:
    return f"{method} {path}\n".encode() + hashlib.sha256(body).digest()
