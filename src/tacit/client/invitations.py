"""Invitations as a device shows them: the helper gets the secret, the coordinator a digest of it.

A coordinator that could use the invitations of those who ask it for slots could fill a round with
participants of its own. The helper takes a report only with the secret.
"""

from __future__ import annotations

import base64
import binascii
import hashlib

from tacit.errors import Rejected

SECRET_SIZE = 16
LENGTH = 107  # characters of an encoded invitation
_LABEL = b"tacit invitation secret v1\x00"


def number_of(secret: bytes) -> bytes:
    """The number that the issuer signs, the truncated digest of an invitation's secret."""
    return hashlib.sha256(_LABEL + secret).digest()[:SECRET_SIZE]


def encoded(whole: bytes) -> str:
    """An invitation as text."""
    return base64.urlsafe_b64encode(whole).rstrip(b"=").decode()


def decoded(invitation: str) -> bytes:
    """The bytes of an invitation: its secret or number, then the signature; empty if malformed."""
    try:
        whole = base64.b64decode(invitation + "=", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""
    return whole if len(invitation) == LENGTH else b""


def without_secret(invitation: str) -> str:
    """The invitation for the coordinator; raises `Rejected` for a malformed one.

    A malformed one, such as one with a space at its end, may contain the whole secret.
    """
    whole = decoded(invitation)
    if not whole:
        raise Rejected(
            f"invitation is malformed: must be {LENGTH} printable ASCII characters without spaces. "
            "Copy it again; nothing was sent"
        )
    return encoded(number_of(whole[:SECRET_SIZE]) + whole[SECRET_SIZE:])
