"""Create a party: long-term key, its lock, admin token, configuration and public card.

The card holds the public data: role, address and key. Everything else stays with the party.
`create_party` never overwrites a file; `rotate` replaces the card and keeps the old key.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit import readers
from tacit.errors import TacitError
from tacit.keyfiles import (
    KeyFile,
    load_signing_key,
    replaced_path,
    rotate_signing_key,
    save_signing_key,
)
from tacit.service.config import PartyConfig, host_and_port
from tacit.signatures import fingerprint, public_key

PORTS = {"coordinator": 8700, "helper": 8701}
OTHER = {"coordinator": "helper", "helper": "coordinator"}

CONFIG = """\
# How this {role} runs: tacit serve {role} --config {config}
# Environment variables override entries: TACIT_ADDRESS, TACIT_LISTEN and so on.
role = "{role}"

# The public address, which the terms name. Put a TLS proxy in front: https://…
address = {address}

# The socket of this process.
listen = {listen}

# SQLite beside this file, or postgresql://user@host/name; put a password into TACIT_DATABASE.
database = "sqlite:///{role}.db"

# Key files, one per round, shared by all processes of this {role}. NEVER include them in a
# backup or a snapshot: a restored key could release a round twice.
records = "{role}-records"

# The long-term key, encrypted, and the file that decrypts it. Keep copies of both, in separate
# places. Instead of lock_file a passphrase can be in TACIT_PASSPHRASE.
signing_key = "{role}.key"
lock_file = "lock"

# This token permits changes of experiments. It can also be in TACIT_ADMIN_TOKEN.
admin_token_file = "admin-token"

# Web pages that may call this {role}; "*" allows all, without credentials.
cors_origins = ["*"]

log_level = "info"

[limits]
# Requests per second of one address, and at once. Addresses are counted in memory only.
rate = 20
burst = 200
# The header in which the proxy, and nobody else, writes the client's address. Without a proxy
# leave it out: the address of the connection counts.
{header}address_header = "X-Real-IP"
"""

CARD = """\
# Public data of this {role}. Send it to the operator of the {other}, and compare the fingerprint
# over another channel, such as the telephone.
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


def create_party(role: str, directory: Path, address: str | None, listen: str | None) -> Card:
    """Create a party's files in its own directory."""
    if role not in PORTS:
        raise TacitError(f"role is {role!r}: must be {' or '.join(PORTS)}")
    listening = listen or f"127.0.0.1:{PORTS[role]}"
    readers.checked("listen", listening, host_and_port)
    known = readers.checked("address", address or f"http://{listening}", readers.address)
    names = ("party.toml", "card.toml", "lock", "admin-token", f"{role}.key")
    there = [name for name in names if (directory / name).exists()]
    if there:
        raise TacitError(
            f"{directory} already contains {there[0]}, which is never overwritten: choose another "
            "directory"
        )
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        (directory / f"{role}-records").mkdir(mode=0o700, exist_ok=True)
        write_private(directory / "lock", secrets.token_hex(32) + "\n")
        write_private(directory / "admin-token", secrets.token_urlsafe(32) + "\n")
    except OSError as problem:
        raise TacitError(
            f"{directory} cannot be written ({problem.strerror}): choose another directory"
        ) from None
    key = Ed25519PrivateKey.generate()
    save_signing_key(directory / f"{role}.key", key, KeyFile(directory / "lock"))
    card = Card(role, known, public_key(key))
    said = {
        "role": role,
        "address": readers.quoted(known),
        "listen": readers.quoted(listening),
        "config": directory / "party.toml",
        "header": "" if known.startswith("https:") else "# ",
    }
    write_private(directory / "card.toml", _card_text(card), 0o644)
    write_private(directory / "party.toml", CONFIG.format(**said))
    return card


def rotate(config: PartyConfig, directory: Path) -> tuple[Card, Path]:
    """Replace a party's long-term key and rewrite its card; the new card and the path of the old
    key.
    """
    before = public_key(load_signing_key(config.signing_key, config.lock))
    key = rotate_signing_key(config.signing_key, config.lock)
    card = Card(config.role, config.address, public_key(key))
    (directory / "card.toml").unlink(missing_ok=True)
    write_private(directory / "card.toml", _card_text(card), 0o644)
    return card, replaced_path(config.signing_key, fingerprint(before))


def _card_text(card: Card) -> str:
    return CARD.format(
        role=card.role,
        other=OTHER[card.role],
        address=readers.quoted(card.address),
        key=card.key.hex(),
        fingerprint=card.fingerprint,
    )


def read_card(path: Path) -> Card:
    """Read and check another party's card."""
    said = readers.read_toml(path, "name the card.toml that the other operator sends")
    try:
        card = Card(said["role"], readers.address(said["address"]), readers.public_key(said["key"]))
        same = said.get("fingerprint", card.fingerprint) == card.fingerprint
    except KeyError as missing:
        raise TacitError(
            f"{path} has no {missing.args[0]}: must be a party's card. Name the card.toml that "
            "`tacit party new` wrote beside its party.toml"
        ) from None
    except ValueError as problem:
        raise TacitError(f"{path} is not a party's card ({problem}): request it again") from None
    if not same:
        raise TacitError(
            f"the fingerprint in {path} differs from that of its key: request the card again"
        )
    return card


def write_private(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a new file with this mode."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
