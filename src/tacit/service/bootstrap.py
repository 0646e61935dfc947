"""Create a party: long-term key, its lock, admin token, configuration and public card.

The card holds the public data: role, address and key. Everything else stays with the party. `found`
never overwrites a file; `rotate` replaces the card and keeps the old key.
"""

from __future__ import annotations

import os
import secrets
import tomllib
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.errors import TacitError
from tacit.keyfiles import (
    KeyFile,
    kept_as,
    load_signing_key,
    rotate_signing_key,
    save_signing_key,
)
from tacit.service import readers
from tacit.service.config import PartyConfig, host_and_port
from tacit.signatures import fingerprint, public_key

PORTS = {"coordinator": 8700, "helper": 8701}
OTHER = {"coordinator": "helper", "helper": "coordinator"}

CONFIG = """\
# How this {role} runs: tacit serve {role} --config {config}
# Every entry can also be said by the environment, as TACIT_ADDRESS, TACIT_LISTEN and so on.
role = "{role}"

# What others call it by; it stands in the terms that people read. Put TLS in front: https://…
address = {address}

# Where this process listens.
listen = {listen}

# SQLite beside this file, or postgresql://user@host/name; a password belongs into TACIT_DATABASE.
database = "sqlite:///{role}.db"

# A file per round with the key that opens it. Shared by all processes of this {role}, and
# NEVER in a backup or a snapshot: a key that comes back could open a round twice.
records = "{role}-records"

# The long-term key, encrypted, and the file that unlocks it. Keep a copy of both, apart from each
# other. Instead of lock_file a passphrase can be in TACIT_PASSPHRASE.
signing_key = "{role}.key"
lock_file = "lock"

# Whoever has this token can change experiments. Or put it into TACIT_ADMIN_TOKEN.
admin_token_file = "admin-token"

# Which web pages may call this {role}; "*" is any, without credentials.
cors_origins = ["*"]

log_level = "info"

[limits]
# Requests per second of one address, where the proxy says which: address_header = "X-Real-IP".
rate = 20
"""

CARD = """\
# What others may know of this {role}. Hand it to whoever runs the {other}, and read them the
# fingerprint by another way, such as the telephone.
role = "{role}"
address = {address}
key = "{key}"
fingerprint = "{fingerprint}"
"""


@dataclass(frozen=True)
class Card:
    """The public data of a party."""

    role: str
    address: str
    key: bytes

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the key, for comparison over another channel."""
        return fingerprint(self.key)


def found(role: str, directory: Path, address: str | None, listen: str | None) -> Card:
    """Create a party's files in its own directory."""
    if role not in PORTS:
        raise TacitError(f"role is {role!r}; it must be {' or '.join(PORTS)}")
    listening = listen or f"127.0.0.1:{PORTS[role]}"
    readers.checked("listen", listening, host_and_port)
    known = readers.checked("address", address or f"http://{listening}", readers.address)
    names = ("party.toml", "card.toml", "lock", "admin-token", f"{role}.key")
    there = [name for name in names if (directory / name).exists()]
    if there:
        raise TacitError(
            f"{directory} has a {there[0]} already, which is not written over: name another "
            "directory"
        )
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (directory / f"{role}-records").mkdir(mode=0o700, exist_ok=True)
        _write(directory / "lock", secrets.token_hex(32) + "\n")
        _write(directory / "admin-token", secrets.token_urlsafe(32) + "\n")
    except OSError as problem:
        raise TacitError(
            f"{directory} cannot be written ({problem.strerror}): name another directory"
        ) from None
    key = Ed25519PrivateKey.generate()
    save_signing_key(directory / f"{role}.key", key, KeyFile(directory / "lock"))
    card = Card(role, known, public_key(key))
    said = {
        "role": role,
        "address": readers.quoted(known),
        "listen": readers.quoted(listening),
        "config": directory / "party.toml",
    }
    _write(directory / "card.toml", _spelled(card), 0o644)
    _write(directory / "party.toml", CONFIG.format(**said))
    return card


def rotate(config: PartyConfig, directory: Path) -> tuple[Card, Path]:
    """Replace a party's long-term key and rewrite its card; the new card and the path of the old
    key.
    """
    before = public_key(load_signing_key(config.signing_key, config.lock))
    key = rotate_signing_key(config.signing_key, config.lock)
    card = Card(config.role, config.address, public_key(key))
    (directory / "card.toml").unlink(missing_ok=True)
    _write(directory / "card.toml", _spelled(card), 0o644)
    return card, kept_as(config.signing_key, fingerprint(before))


def _spelled(card: Card) -> str:
    return CARD.format(
        role=card.role,
        other=OTHER[card.role],
        address=readers.quoted(card.address),
        key=card.key.hex(),
        fingerprint=card.fingerprint,
    )


def read_card(path: Path) -> Card:
    """Read and check another party's card."""
    try:
        said = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        card = Card(said["role"], readers.address(said["address"]), readers.public_key(said["key"]))
        same = said.get("fingerprint", card.fingerprint) == card.fingerprint
    except OSError as problem:
        raise TacitError(f"{path} cannot be read ({problem.strerror}): name a card.toml") from None
    except UnicodeDecodeError:
        raise TacitError(f"{path} is no text, hence no card of a party: ask for it again") from None
    except (ValueError, LookupError) as problem:
        raise TacitError(f"{path} is no card of a party ({problem!r}): ask for it again") from None
    if not same:
        raise TacitError(f"the fingerprint in {path} is not that of the key: ask for it again")
    return card


def _write(path: Path, text: str, mode: int = 0o600) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
