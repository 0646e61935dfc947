"""Configuration of a party's process: `party.toml`, overridden by variables `TACIT_…`.

Secrets are the passphrase of the long-term key, the admin token and a database's password. They
come from the environment or from files that only their owner can read, never from the command line.
This module never prints them. Paths are relative to the file. All errors are reported together;
each names the field, its value and the remedy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    SecretStr,
    ValidationError,
    ValidationInfo,
)

from tacit import readers
from tacit.errors import InvalidFile, TacitError
from tacit.keyfiles import KeyFile, Lock, Passphrase, load_signing_keys
from tacit.readers import InvalidValue, RuleViolation, shown
from tacit.signatures import fingerprint, public_key
from tacit.terms import Terms

ROLES = ("coordinator", "helper")
SHORTEST_TOKEN = 16  # characters of an admin token, at least
PREFIX = "TACIT_"
_DEFAULT_PORTS = {"coordinator": 8700, "helper": 8701}
_SECRETS = {"passphrase": "TACIT_PASSPHRASE", "admin_token": "TACIT_ADMIN_TOKEN"}


def host_and_port(value: object) -> tuple[str, int]:
    """Parse the address to listen on."""
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise InvalidValue("host:port such as 127.0.0.1:8700")
    return host.strip("[]"), int(port)


def private(path: Path, name: str) -> Path:
    """Check that a file exists and that only its owner can access it."""
    try:
        mode = path.stat().st_mode
    except OSError as problem:
        raise RuleViolation(
            f"{name} is {shown(str(path))}, which cannot be read ({problem.strerror}): name "
            "another file"
        ) from None
    if mode & 0o077:
        raise RuleViolation(
            f"{name} is {shown(str(path))}, which others can read: chmod 600 {path}"
        )
    return path


def _path(value: object, info: ValidationInfo) -> Path:
    """A path relative to the directory of the configuration, which is the validation context."""
    if not isinstance(value, (str, Path)) or not str(value).strip():
        raise InvalidValue("a path in quotes")
    return Path(info.context or "") / value


def _lock(value: object, info: ValidationInfo) -> Lock:
    """The lock of the long-term key: a passphrase, or the path of a key file."""
    if isinstance(value, (KeyFile, Passphrase)):
        return value
    return KeyFile(private(_path(value, info), "lock_file"))


def _admin_token(value: object, info: ValidationInfo) -> str:
    """The admin token: a secret, or the path of a file that contains it."""
    if isinstance(value, SecretStr):
        token = value.get_secret_value()
    else:
        file = private(_path(value, info), "admin_token_file")
        token = file.read_text(encoding="utf-8").strip()
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable():
        raise RuleViolation(
            f"the admin token has {len(token)} characters: must have at least {SHORTEST_TOKEN} "
            "printable ASCII characters. Make one with `openssl rand -hex 32`"
        )
    return token


def _database(value: object, info: ValidationInfo) -> str:
    """The SQLAlchemy URL; it may contain a password, so no error repeats it."""
    scheme, found, rest = value.partition("://") if isinstance(value, str) else ("", "", "")
    if scheme == "sqlite" and found:
        return f"sqlite:///{Path(info.context or '') / rest.removeprefix('/')}"
    if scheme not in ("postgresql", "postgresql+psycopg") or not found:
        begins = f"begins with {scheme!r}" if found else "is not a URL"
        raise RuleViolation(f"database {begins}: must be sqlite:///file or postgresql://…")
    return f"postgresql+psycopg://{rest}"


def _origins(value: object) -> object:
    if not isinstance(value, (list, tuple)) or not all(value):
        raise InvalidValue('a list such as ["*"] or ["https://app.example"]')
    return value


def _header(name: str) -> str:
    if not re.fullmatch("[A-Za-z0-9-]*", name):
        raise InvalidValue("a header such as X-Real-IP")
    return name


Positive = Annotated[int, Field(ge=1)]


class Limits(BaseModel):
    """Limits on requests from unauthenticated clients.

    They bound the bytes of a body (of strangers, with the admin token, of the coordinator's signed
    calls), the requests waiting for the database, the open page streams, and the requests per
    second and address. Addresses are counted in memory only.

    Behind a proxy all connections come from the proxy's address. No address is counted there unless
    `address_header` names the header in which the proxy alone writes the client's address. By
    default there is a proxy if the public address is https, or has another port than this process
    listens on.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    request_bytes: Positive = 1 << 12
    admin_bytes: Positive = 1 << 19
    call_bytes: Positive = 1 << 26
    waiting: Positive = 4096
    streams: Positive = 200
    rate: Annotated[int, Field(ge=0)] = 20
    burst: Positive = 200
    behind_proxy: bool | None = None
    address_header: Annotated[str, AfterValidator(_header)] = ""

    @property
    def counted(self) -> bool:
        """Whether requests are counted by address."""
        return self.rate > 0 and (bool(self.address_header) or self.behind_proxy is False)

    def of(self, address: str, listen: tuple[str, int]) -> Limits:
        """The limits of a party at this address, which listens there."""
        if self.behind_proxy is not None:
            return self
        public = urlsplit(address)
        proxied = public.scheme == "https" or (public.port or 80) != listen[1]
        return self.model_copy(update={"behind_proxy": proxied})


def _by_role(pattern: str, **more: Any) -> Any:
    """A field whose default depends on the role."""

    def default(settings: dict[str, Any]) -> str:
        return pattern.format(role=settings["role"], port=_DEFAULT_PORTS[settings["role"]])

    return Field(default_factory=default, **more)


class PartyConfig(BaseModel):
    """Configuration of one process of a party.

    `records` is the directory of key files. All processes of the party share it, and backups must
    exclude it. `results` says who can see the coordinator's page: everyone (`open`) or holders of
    the admin token (`token`).
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        validate_by_name=True,
        arbitrary_types_allowed=True,
    )

    role: Literal["coordinator", "helper"] = Field(description='"coordinator" or "helper"')
    address: readers.Address = Field(
        description='the URL that others call this party by, such as "https://helper.example"'
    )
    signing_key: Annotated[Path, PlainValidator(_path)] = _by_role("{role}.key")
    lock: Annotated[Lock, PlainValidator(_lock)] = Field(
        validation_alias="lock_file",
        repr=False,
        description="the file that unlocks the long-term key, or put the passphrase into "
        "TACIT_PASSPHRASE",
    )
    admin_token: Annotated[str, PlainValidator(_admin_token)] = Field(
        validation_alias="admin_token_file",
        repr=False,
        description="the file (mode 600) with the admin token, or put the token into "
        "TACIT_ADMIN_TOKEN",
    )
    database: Annotated[str, PlainValidator(_database)] = _by_role(
        "sqlite:///{role}.db", repr=False
    )
    records: Annotated[Path, PlainValidator(_path)] = _by_role("{role}-records")
    listen: Annotated[tuple[str, int], PlainValidator(host_and_port)] = _by_role("127.0.0.1:{port}")
    cors_origins: Annotated[tuple[str, ...], BeforeValidator(_origins)] = ("*",)
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    results: Literal["open", "token"] = "open"
    limits: Limits = Limits()

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
            f"{fingerprint(public_key(keys[0]))}: send your card.toml to the other party's operator"
        )


_FIELDS = {
    str(one.validation_alias or name): name for name, one in PartyConfig.model_fields.items()
}
_KNOWN = _FIELDS | {f"limits.{name}": name for name in Limits.model_fields}


def load(path: str | os.PathLike[str], environment: Mapping[str, str] = os.environ) -> PartyConfig:
    """Read the configuration in this file, with overrides from the environment."""
    file = Path(path)
    found = readers.read_toml(file, "name a party.toml, or make one with `tacit party new`")
    problems = [
        f"{name} is a secret and must not be in this file: put it into {_SECRETS[name]}"
        for name in _SECRETS
        if found.pop(name, None) is not None
    ]
    try:
        database = str(found.get("database", ""))
        if urlsplit(database).password and PREFIX + "DATABASE" not in environment:
            private(file, "the file with the database's password")
    except RuleViolation as problem:
        problems.append(str(problem))
    try:
        config = PartyConfig.model_validate(
            _overridden(found, environment),
            by_name=False,
            by_alias=True,
            context=file.resolve().parent,
        )
    except ValidationError as error:
        problems += readers.problems(error, PartyConfig, _KNOWN)
    if problems:
        raise InvalidFile(str(file), problems)
    return config


def _overridden(stored: Mapping[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """The settings of the file, with overrides from the environment."""
    settings = dict(stored)
    for name in _FIELDS:
        said = environment.get(PREFIX + name.upper())
        if said is not None and name != "limits":
            settings[name] = said.split(",") if name == "cors_origins" else said
    limits = {
        name: _plain(environment[variable])
        for name in Limits.model_fields
        if (variable := f"{PREFIX}LIMITS_{name.upper()}") in environment
    }
    if limits and isinstance(settings.get("limits", {}), dict):
        settings["limits"] = settings.get("limits", {}) | limits
    if "lock_file" not in settings and "TACIT_PASSPHRASE" in environment:
        settings["lock_file"] = Passphrase(environment["TACIT_PASSPHRASE"])
    if "TACIT_ADMIN_TOKEN" in environment:
        settings["admin_token_file"] = SecretStr(environment["TACIT_ADMIN_TOKEN"])
    return settings


def _plain(text: str) -> str | int | bool:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch("[0-9]{1,15}", text) else text
