"""Invitations: one-time tokens, signed by the issuer of the terms and checked by both servers.

An invitation is a secret of 16 random bytes with the issuer's signature over a digest of it and the
digest of the experiment's first terms. It permits one participation and names no participant. tacit
does not know who received which invitation. After use only its digest is stored.

Devices show the coordinator the digest of the secret, and the helper the secret itself: so a
coordinator cannot use the invitations of those who ask it for slots.
"""

from __future__ import annotations

import hashlib
import os

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.client.invitations import SECRET_SIZE, decoded, encoded, number_of
from tacit.errors import Rejected, integer
from tacit.service.errors import Forbidden
from tacit.signatures import Signed, sign, verify


def make(lineage: bytes, key: Ed25519PrivateKey, count: int) -> list[str]:
    """Create `count` invitations to the experiment whose first terms have this digest."""
    return [_create_one(lineage, key) for _ in range(integer("count", count, at_least=1))]


def _create_one(lineage: bytes, key: Ed25519PrivateKey) -> str:
    secret = os.urandom(SECRET_SIZE)
    return encoded(secret + sign(Signed.INVITATION, lineage + number_of(secret), key))


def check(invitation: str | None, lineage: bytes, issuer: bytes) -> bytes:
    """Verify an invitation with its secret, for the helper; return its digest."""
    secret, signature = _parts(invitation)
    return _checked(number_of(secret), signature, lineage, issuer)


def check_shown(invitation: str | None, lineage: bytes, issuer: bytes) -> bytes:
    """Verify an invitation with or without its secret, for the coordinator; return its digest."""
    shown, signature = _parts(invitation)
    try:
        return _checked(shown, signature, lineage, issuer)
    except Forbidden:
        return _checked(number_of(shown), signature, lineage, issuer)


def _parts(invitation: str | None) -> tuple[bytes, bytes]:
    """The secret or number of an invitation, and the signature."""
    if not invitation:
        raise Forbidden("the invitation is missing: this experiment requires one")
    whole = decoded(invitation)
    return whole[:SECRET_SIZE], whole[SECRET_SIZE:]


def _checked(number: bytes, signature: bytes, lineage: bytes, issuer: bytes) -> bytes:
    try:
        verify(Signed.INVITATION, lineage + number, signature, issuer, "the issuer")
    except Rejected:
        raise Forbidden(
            "the invitation is invalid for this experiment: send the one you received"
        ) from None
    return hashlib.sha256(number + signature).digest()
