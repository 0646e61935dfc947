"""Invitations: one-time tokens, signed by the issuer of the terms and checked by both servers.

An invitation is 16 random bytes with the issuer's signature over these bytes and the digest of the
experiment's first terms. It permits one participation and names no person. tacit does not know who
received which invitation. After use only its digest is stored.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.errors import Refusal, integer
from tacit.service.errors import Forbidden
from tacit.signatures import SIGNATURE_SIZE, Signed, sign, verify

_RANDOM = 16
LENGTH = 107  # characters of an encoded invitation


def make(lineage: bytes, key: Ed25519PrivateKey, count: int) -> list[str]:
    """Create `count` invitations to the experiment whose first terms have this digest."""
    return [_made(lineage, key) for _ in range(integer("count", count, at_least=1))]


def _made(lineage: bytes, key: Ed25519PrivateKey) -> str:
    number = os.urandom(_RANDOM)
    whole = number + sign(Signed.INVITATION, lineage + number, key)
    return base64.urlsafe_b64encode(whole).rstrip(b"=").decode()


def check(invitation: str | None, lineage: bytes, issuer: bytes) -> bytes:
    """Verify an invitation to this experiment and return its digest."""
    if not invitation:
        raise Forbidden("the invitation is missing: this experiment requires one")
    try:
        whole = base64.b64decode(invitation + "=", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        whole = b""
    number, signature = whole[:_RANDOM], whole[_RANDOM:]
    if len(invitation) == LENGTH and len(signature) == SIGNATURE_SIZE:
        try:
            verify(Signed.INVITATION, lineage + number, signature, issuer, "the issuer")
            return hashlib.sha256(whole).digest()
        except Refusal:
            pass
    raise Forbidden("the invitation is invalid for this experiment: send the one you received")
