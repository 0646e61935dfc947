"""Issuers of invitations who are no party: their signing key, its lock and their public card.

Where devices share the noise, the terms name the key of an issuer that is neither server's, so that
no server can admit participants of its own. An issuer runs no server.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit import readers
from tacit.errors import TacitError
from tacit.keyfiles import KeyFile, load_signing_key, save_signing_key
from tacit.service.bootstrap import write_private
from tacit.signatures import fingerprint, public_key

KEY, LOCK, CARD = "issuer.key", "lock", "card.toml"
_CARD = """\
# Public key of an issuer of invitations. Send it to the coordinator's operator, and compare the
# fingerprint over another channel, such as the telephone.
role = "issuer"
key = "{key}"
fingerprint = "{fingerprint}"
"""


def create_issuer(directory: Path) -> bytes:
    """Create an issuer's files in a directory of its own; the public key."""
    there = [name for name in (KEY, LOCK, CARD) if (directory / name).exists()]
    if there:
        raise TacitError(
            f"{directory} already contains {there[0]}, which is never overwritten: choose another "
            "directory"
        )
    secret = Ed25519PrivateKey.generate()
    key = public_key(secret)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(directory / LOCK, secrets.token_hex(32) + "\n")
        save_signing_key(directory / KEY, secret, KeyFile(directory / LOCK))
        text = _CARD.format(key=key.hex(), fingerprint=fingerprint(key))
        write_private(directory / CARD, text, 0o644)
    except OSError as problem:
        raise TacitError(
            f"{directory} cannot be written ({problem.strerror}): choose another directory"
        ) from None
    return key


def issuer_secret(directory: Path, key: bytes) -> Ed25519PrivateKey:
    """The issuer's signing key; it must be the one that the terms name."""
    secret = load_signing_key(directory / KEY, KeyFile(directory / LOCK))
    mine = public_key(secret)
    if mine != key:
        raise TacitError(
            f"the terms name another issuer's key, {fingerprint(key)}; yours is "
            f"{fingerprint(mine)}: send your {CARD} to the coordinator's operator before they "
            "publish the experiment"
        )
    return secret


def read_issuer(path: Path) -> bytes:
    """The public key in an issuer's card."""
    said = readers.read_toml(path, f"name a {CARD}")
    try:
        role, key = said["role"], readers.public_key(said["key"])
        same = said.get("fingerprint", fingerprint(key)) == fingerprint(key)
    except (ValueError, LookupError) as problem:
        raise TacitError(
            f"{path} is not an issuer's card ({problem!r}): request it again"
        ) from None
    if role != "issuer" or not same:
        raise TacitError(
            f"{path} is the card of a {role}, or its fingerprint is not that of its key: give the "
            "card that tacit invitations issuer made"
        )
    return key
