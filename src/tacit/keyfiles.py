"""Long-term private keys on disk, encrypted under a passphrase or a key file.

A file is a header (kind of key, salt, nonce), then the private bytes under AES-256-GCM. The
encryption key is derived with scrypt (RFC 7914) from the passphrase or the key file's content. The
header is authenticated, the file readable by its owner only, and every write replaces it
atomically.
"""

from __future__ import annotations

import glob
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from tacit.errors import Rejected, TacitError
from tacit.records import put
from tacit.signatures import fingerprint, public_key

MAGIC = b"tacit key 2\n"
SIGNING = b"signing"
_SALT_SIZE, _NONCE_SIZE, _KIND_SIZE = 16, 12, 16
_HEADER_SIZE = len(MAGIC) + _KIND_SIZE + _SALT_SIZE + _NONCE_SIZE
_COST = 1 << 16  # 64 MiB for every guess
_MARK = 16  # hex digits of the fingerprint in the file name of a replaced key
_SHORTEST = {"passphrase": 8, "key file": 32}

Location = str | os.PathLike[str]


class Lock(Protocol):
    """A secret that a key is encrypted under."""

    def material(self) -> bytes:
        """The input of the key derivation."""


@dataclass(frozen=True, repr=False)
class Passphrase:
    """A passphrase; choose a long one, because an adversary with the file can guess offline."""

    text: str

    def material(self) -> bytes:
        """The input of the key derivation."""
        return _long_enough("passphrase", self.text.encode())


@dataclass(frozen=True)
class KeyFile:
    """A file of at least 32 random bytes, stored apart from the keys that it encrypts."""

    path: Location

    def material(self) -> bytes:
        """The input of the key derivation."""
        return _long_enough("key file", _read(Path(self.path)))


def write_key(path: Location, kind: bytes, secret: bytes, lock: Lock) -> None:
    """Encrypt a key and write it to `path`, replacing an existing file."""
    salt, nonce = os.urandom(_SALT_SIZE), os.urandom(_NONCE_SIZE)
    header = MAGIC + kind.ljust(_KIND_SIZE) + salt + nonce
    encrypted = AESGCM(_derived_key(lock, salt)).encrypt(nonce, secret, header)
    _write(Path(path), header + encrypted)


def read_key(path: Location, kind: bytes, lock: Lock) -> bytes:
    """Decrypt the private bytes of a key of this kind."""
    data = _read(Path(path))
    header = data[:_HEADER_SIZE]
    found = header[len(MAGIC) :][:_KIND_SIZE].strip()
    if len(data) <= _HEADER_SIZE or not header.startswith(MAGIC) or found != kind:
        raise Rejected(f"{path} is not a key file of kind {kind.decode()!r}: name another file")
    salt, nonce = header[-_SALT_SIZE - _NONCE_SIZE : -_NONCE_SIZE], header[-_NONCE_SIZE:]
    try:
        return AESGCM(_derived_key(lock, salt)).decrypt(nonce, data[_HEADER_SIZE:], header)
    except InvalidTag:
        raise Rejected(
            f"{path} cannot be decrypted: check the passphrase or key file; the file may be altered"
        ) from None


def replaced_path(path: Location, mark: str) -> Path:
    """The file name under which a replaced key with this fingerprint is kept."""
    return Path(path).with_name(f"{Path(path).name}.{mark.replace(' ', '')[:_MARK]}")


def set_aside(path: Location, mark: str) -> Path:
    """Hard-link a key file that is about to be replaced to a name with its fingerprint."""
    present, aside = Path(path), replaced_path(path, mark)
    with suppress(FileExistsError):
        os.link(present, aside)
    return aside


def save_signing_key(path: Location, key: Ed25519PrivateKey, lock: Lock) -> None:
    """Encrypt and save a party's long-term signing key."""
    write_key(path, SIGNING, key.private_bytes_raw(), lock)


def load_signing_key(path: Location, lock: Lock) -> Ed25519PrivateKey:
    """Load a signing key."""
    return Ed25519PrivateKey.from_private_bytes(read_key(path, SIGNING, lock))


def load_signing_keys(path: Location, lock: Lock) -> tuple[Ed25519PrivateKey, ...]:
    """Load a signing key, followed by the keys that it replaced."""
    present = Path(path)
    kept = sorted(present.parent.glob(f"{glob.escape(present.name)}.{'[0-9a-f]' * _MARK}"))
    return tuple(load_signing_key(one, lock) for one in (present, *kept))


def rotate_signing_key(path: Location, lock: Lock) -> Ed25519PrivateKey:
    """Replace a signing key by a new one and keep the old: successor terms need both signatures."""
    present, fresh = load_signing_key(path, lock), Ed25519PrivateKey.generate()
    set_aside(path, fingerprint(public_key(present)))
    save_signing_key(path, fresh, lock)
    return fresh


def _derived_key(lock: Lock, salt: bytes) -> bytes:
    return Scrypt(salt, length=32, n=_COST, r=8, p=1).derive(lock.material())


def _long_enough(name: str, material: bytes) -> bytes:
    if len(material) < _SHORTEST[name]:
        raise TacitError(
            f"the {name} has {len(material)} bytes: must have at least {_SHORTEST[name]}"
        )
    return material


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise TacitError(f"{path} cannot be read ({problem.strerror}): name another file") from None


def _write(path: Path, content: bytes) -> None:
    aside = path.with_name(f"{path.name}.{os.urandom(8).hex()}.new")
    try:
        put(path, aside, content)
    except OSError as problem:
        raise TacitError(
            f"{path} cannot be written ({problem.strerror}): name another file"
        ) from None
