"""Configuration of a party's process: `party.toml`, overridden by variables `TACIT_…`.

Secrets are the passphrase of the long-term key, the admin token and a database's password. They
come from the environment or from files that only their owner can read, never from the command line.
This module never prints them. Paths are relative to the file. Every error names the field, its
value and the remedy.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.errors import TacitError
from tacit.keyfiles import KeyFile, Lock, Passphrase, load_signing_keys
from tacit.signatures import fingerprint, public_key
from tacit.terms import Terms

ROLES = ("coordinator", "helper")
LOG_LEVELS = ("debug", "info", "warning", "error")
RESULTS = ("open", "token")
SHORTEST_TOKEN = 16  # characters of an admin token, at least
PREFIX = "TACIT_"


@dataclass(frozen=True)
class Limits:
    """Limits on requests from unauthenticated clients.

    They bound the bytes of a body, the requests waiting for the database, the open page streams,
    and the requests per second and address. Addresses are counted in memory only.

    Behind a proxy all connections come from the proxy's address. No address is counted there unless
    `address_header` names the header in which the proxy alone writes the client's address.
    """

    report_bytes: int = 1 << 16
    request_bytes: int = 1 << 18
    call_bytes: int = 1 << 26
    waiting: int = 4096
    streams: int = 200
    rate: int = 20
    burst: int = 200
    behind_proxy: bool = True
    address_header: str = ""

    def __post_init__(self) -> None:
        for name in ("report_bytes", "request_bytes", "call_bytes", "waiting", "streams", "burst"):
            if getattr(self, name) < 1:
                raise _wrong(f"limits.{name}", getattr(self, name), "a whole number from 1 on")
        if self.rate < 0:
            raise _wrong("limits.rate", self.rate, "0 for no limit, or requests per second")
        if self.address_header and not re.fullmatch("[A-Za-z0-9-]+", self.address_header):
            raise _wrong("limits.address_header", self.address_header, "a header such as X-Real-IP")

    @property
    def counted(self) -> bool:
        """Whether requests are counted by address."""
        return self.rate > 0 and (bool(self.address_header) or not self.behind_proxy)


@dataclass(frozen=True)
class PartyConfig:
    """Configuration of one process of a party.

    `records` is the directory of key files. All processes of the party share it, and backups must
    exclude it. `results` says who can see the coordinator's page: everyone (`open`) or holders of
    the admin token (`token`).
    """

    role: str
    address: str
    signing_key: Path
    lock: Lock = field(repr=False)
    admin_token: str = field(repr=False)
    database: str = field(repr=False)
    records: Path
    listen: tuple[str, int] = ("127.0.0.1", 8700)
    cors_origins: tuple[str, ...] = ("*",)
    log_level: str = "info"
    results: str = "open"
    limits: Limits = field(default_factory=Limits)

    def key_for(self, terms: Terms) -> Ed25519PrivateKey:
        """The current or former key of this party that the terms name."""
        return self._key(terms.keys[ROLES.index(self.role)], f"{self.role}'s")

    def issuer_key(self, terms: Terms) -> Ed25519PrivateKey:
        """The key of this party that the terms name as the issuer of invitations."""
        return self._key(terms.issuer, "issuer's")

    def _key(self, named: bytes, whose: str) -> Ed25519PrivateKey:
        keys = load_signing_keys(self.signing_key, self.lock)
        for key in keys:
            if public_key(key) == named:
                return key
        raise TacitError(
            f"the terms name another {whose} key, {fingerprint(named)}; yours is "
            f"{fingerprint(public_key(keys[0]))}: send the other party's operator your card.toml"
        )


_DEFAULT_PORTS = {"coordinator": 8700, "helper": 8701}
_TEXTS = ("role", "address", "listen", "database", "records", "signing_key", "lock_file")
_FIELDS = (*_TEXTS, "admin_token_file", "log_level", "results", "cors_origins", "limits")
_SECRETS = {"passphrase": "TACIT_PASSPHRASE", "admin_token": "TACIT_ADMIN_TOKEN"}


def load(path: str | os.PathLike[str], environment: Mapping[str, str] = os.environ) -> PartyConfig:
    """Read the configuration in this file, with overrides from the environment."""
    file = Path(path)
    found = _read(file)
    for name in found:
        if name in _SECRETS:
            raise TacitError(
                f"{file}: {name} is a secret and does not belong into this file: put it into "
                f"{_SECRETS[name]}"
            )
        if name not in _FIELDS:
            raise TacitError(f"{file}: {name} is not known; known are {', '.join(_FIELDS)}")
    try:
        return _config(file, _overridden(found, environment), environment)
    except TacitError as problem:
        raise TacitError(f"{file}: {problem}") from None


def _config(file: Path, settings: Mapping[str, Any], environment: Mapping[str, str]) -> PartyConfig:
    role = _text(settings, "role", None, f"one of {', '.join(ROLES)}")
    if role not in ROLES:
        raise _wrong("role", role, f"one of {', '.join(ROLES)}")
    beside = file.resolve().parent
    log_level = _text(settings, "log_level", "info", "a level")
    if log_level not in LOG_LEVELS:
        raise _wrong("log_level", log_level, f"one of {', '.join(LOG_LEVELS)}")
    results = _text(settings, "results", "open", "a word")
    if results not in RESULTS:
        raise _wrong("results", results, f"one of {', '.join(RESULTS)}")
    return PartyConfig(
        role=role,
        address=_address(_text(settings, "address", None, "https://… as in the terms")),
        signing_key=beside / _text(settings, "signing_key", f"{role}.key", "a path"),
        lock=_lock(settings, beside, environment),
        admin_token=_admin_token(settings, beside, environment),
        database=_database(settings, file, role, environment),
        records=beside / _text(settings, "records", f"{role}-records", "a directory"),
        listen=_listen(settings, role),
        cors_origins=_origins(settings),
        log_level=log_level,
        results=results,
        limits=_limits(settings.get("limits", {})),
    )


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as problem:
        raise TacitError(
            f"{file} cannot be read ({problem.strerror}): name a party.toml, or make one with "
            "`tacit party new`"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise TacitError(f"{file} is no TOML: {problem}") from None


def _overridden(found: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """The settings of the file, with overrides from the environment."""
    settings = dict(found)
    for name in _FIELDS:
        said = environment.get(PREFIX + name.upper())
        if said is not None and name != "limits":
            settings[name] = said.split(",") if name == "cors_origins" else said
    limits = settings.get("limits", {})
    if not isinstance(limits, dict):
        raise _wrong("limits", limits, "a table [limits]")
    for one in fields(Limits):
        said = environment.get(f"{PREFIX}LIMITS_{one.name.upper()}")
        if said is not None:
            limits = limits | {one.name: _plain(said)}
    return settings | {"limits": limits}


def _plain(said: str) -> str | int | bool:
    if said in ("true", "false"):
        return said == "true"
    return int(said) if re.fullmatch("[0-9]{1,15}", said) else said


def _text(settings: Mapping[str, Any], name: str, default: str | None, expected: str) -> str:
    value = settings.get(name, default)
    if value is None:
        raise TacitError(f"{name} is missing; write {name} = {expected}")
    if not isinstance(value, str) or not value.strip():
        raise _wrong(name, value, expected)
    return value


def _address(address: str) -> str:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise _wrong("address", address, "the URL that others call this party by: https://…")
    return address.rstrip("/")


def _listen(settings: Mapping[str, Any], role: str) -> tuple[str, int]:
    return host_and_port(
        _text(settings, "listen", f"127.0.0.1:{_DEFAULT_PORTS[role]}", "host:port")
    )


def host_and_port(text: str) -> tuple[str, int]:
    """Parse the address to listen on."""
    host, _, port = text.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise _wrong("listen", text, "host:port such as 127.0.0.1:8700")
    return host.strip("[]"), int(port)


def _lock(settings: Mapping[str, Any], beside: Path, environment: Mapping[str, str]) -> Lock:
    if "lock_file" in settings:
        return KeyFile(_private(beside / _text(settings, "lock_file", None, "a path"), "lock_file"))
    if "TACIT_PASSPHRASE" in environment:
        return Passphrase(environment["TACIT_PASSPHRASE"])
    raise TacitError(
        "nothing opens the long-term key: name lock_file = …, or put its passphrase into "
        "TACIT_PASSPHRASE"
    )


def _admin_token(settings: Mapping[str, Any], beside: Path, environment: Mapping[str, str]) -> str:
    token = environment.get("TACIT_ADMIN_TOKEN")
    if token is None:
        if "admin_token_file" not in settings:
            raise TacitError(
                "there is no admin token: name admin_token_file = … (mode 600), or put the token "
                "into TACIT_ADMIN_TOKEN"
            )
        name = _text(settings, "admin_token_file", None, "a path")
        token = _private(beside / name, "admin_token_file").read_text(encoding="utf-8").strip()
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise TacitError(
            f"the admin token has {len(token)} characters; it must have at least {SHORTEST_TOKEN} "
            "plain ones: make one with `openssl rand -hex 32`"
        )
    return token


def _private(path: Path, name: str) -> Path:
    """Check that a file exists and that only its owner can access it."""
    try:
        mode = path.stat().st_mode
    except OSError as problem:
        raise _wrong(name, str(path), f"a file that can be read ({problem.strerror})") from None
    if mode & 0o077:
        raise TacitError(f"{name} is {str(path)!r}, which others may read: chmod 600 {path}")
    return path


def _database(
    settings: Mapping[str, Any], file: Path, role: str, environment: Mapping[str, str]
) -> str:
    """The SQLAlchemy URL; it may hold a password, so no error repeats it."""
    beside = file.resolve().parent
    url = _text(settings, "database", f"sqlite:///{role}.db", "a URL")
    scheme, found, rest = url.partition("://")
    if scheme == "sqlite" and found:
        return f"sqlite:///{beside / rest.removeprefix('/')}"
    if scheme not in ("postgresql", "postgresql+psycopg") or not found:
        begins = f"begins with {scheme!r}" if found else "is no URL"
        raise TacitError(f"database {begins}; it must be sqlite:///file or postgresql://…")
    if urlsplit(url).password and PREFIX + "DATABASE" not in environment:
        _private(file, "the file with the database's password")
    return f"postgresql+psycopg://{rest}"


def _origins(settings: Mapping[str, Any]) -> tuple[str, ...]:
    origins = settings.get("cors_origins", ["*"])
    if not isinstance(origins, list) or not all(isinstance(one, str) and one for one in origins):
        raise _wrong("cors_origins", origins, 'a list such as ["*"] or ["https://app.example"]')
    return tuple(origins)


def _limits(table: Mapping[str, Any]) -> Limits:
    known = {one.name: one for one in fields(Limits)}
    for name, value in table.items():
        if name not in known:
            raise TacitError(f"limits.{name} is not known; known are {', '.join(known)}")
        default = known[name].default
        if default is MISSING or type(value) is not type(default):
            raise _wrong(f"limits.{name}", value, f"such as {default!r}")
    return Limits(**table)


def _wrong(name: str, value: object, expected: str) -> TacitError:
    return TacitError(f"{name} is {value!r}; it must be {expected}")
