"""Long-term keys on disk: a party's Ed25519 key, encrypted under a passphrase or a key file.

The file says which public key it is of, and nothing else in the clear; AES-256-GCM under a key from
scrypt (RFC 7914). A key is never overwritten: to rotate, make a new one beside it, and let the old
one approve successor terms that name the new (`tacit.terms.approve_successor`). Keys of single
rounds are not here: they live and die in `tacit.records`.
"""

from __future__ import annotations

import json
import os
import unicodedata
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from tacit.checks import TacitError
from tacit.signatures import fingerprint, public_key

Secret = str | bytes
"""A passphrase, or the content of a key file."""

SHORTEST_PASSPHRASE, SHORTEST_KEY_FILE = 12, 32
_WORK, _LABEL, _SALT, _NONCE = 1 << 15, "tacit key v2", 16, 12


def create(path: str | os.PathLike[str], secret: Secret) -> Ed25519PrivateKey:
    """A new key, on disk before it is returned."""
    key = Ed25519PrivateKey.generate()
    save(path, key, secret)
    return key


def save(path: str | os.PathLike[str], key: Ed25519PrivateKey, secret: Secret) -> None:
    """Write a key to a file of its own, which only its owner may read."""
    public, salt, nonce = public_key(key), os.urandom(_SALT), os.urandom(_NONCE)
    sealed = AESGCM(_stretched(secret, salt)).encrypt(nonce, key.private_bytes_raw(), public)
    content = {"kind": _LABEL, "public": public.hex(), "sealed": (salt + nonce + sealed).hex()}
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise TacitError(
            f"no key can be written to {os.fspath(path)} ({problem.strerror}): name a new file in "
            "a directory that is there; keys are never overwritten"
        ) from None
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(json.dumps(content, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())


def load(path: str | os.PathLike[str], secret: Secret) -> Ed25519PrivateKey:
    """The key in a file."""
    content = _content(Path(path))
    data, public = bytes.fromhex(content["sealed"]), bytes.fromhex(content["public"])
    salt, nonce, sealed = data[:_SALT], data[_SALT : _SALT + _NONCE], data[_SALT + _NONCE :]
    try:
        raw = AESGCM(_stretched(secret, salt)).decrypt(nonce, sealed, public)
        key = Ed25519PrivateKey.from_private_bytes(raw)
    except (InvalidTag, ValueError) as problem:
        if isinstance(problem, TacitError):
            raise
        raise TacitError(
            f"{path} does not open: the passphrase or key file is another, or the file was altered"
        ) from None
    if public_key(key) != public:
        raise TacitError(f"{path} holds another key than it says: it was altered")
    return key


def fingerprint_of(path: str | os.PathLike[str]) -> str:
    """The fingerprint of the key in a file, for which no secret is needed."""
    return fingerprint(bytes.fromhex(_content(Path(path))["public"]))


def _content(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_mode & 0o077:
            raise TacitError(f"{path} can be read by others than its owner: chmod 600 {path}")
        content = json.loads(path.read_text(encoding="utf-8"))
        known = content["kind"] == _LABEL and len(bytes.fromhex(content["public"])) == 32
        bytes.fromhex(content["sealed"])
    except OSError as problem:
        raise TacitError(f"there is no key in {path}: {problem.strerror}") from None
    except (ValueError, KeyError, TypeError) as problem:
        if isinstance(problem, TacitError):
            raise
        known = False
    if not known:
        raise TacitError(f"{path} is no key of tacit")
    return dict(content)


def _stretched(secret: Secret, salt: bytes) -> bytes:
    if isinstance(secret, str):
        text = unicodedata.normalize("NFC", secret)
        if len(text) < SHORTEST_PASSPHRASE:
            raise TacitError(
                f"a passphrase has at least {SHORTEST_PASSPHRASE} characters: use several words"
            )
        given = b"passphrase" + text.encode()
    elif len(secret) < SHORTEST_KEY_FILE:
        raise TacitError(
            f"a key file has at least {SHORTEST_KEY_FILE} random bytes; this has {len(secret)}"
        )
    else:
        given = b"key file" + secret
    return Scrypt(salt, 32, _WORK, 8, 1).derive(given)
