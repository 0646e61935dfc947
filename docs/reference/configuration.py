"""Prints docs/reference/configuration.md from the definition's and the party's own fields.

Run it as `python docs/reference/configuration.py > docs/reference/configuration.md`; a test
compares the two.
"""

from __future__ import annotations

from typing import Any

from pydantic_core import PydanticUndefined

from tacit.readers import DURATION, format_duration, to_text
from tacit.service.config import Limits, PartyConfig
from tacit.service.definition import ENTRIES, Definition

PAGE = """\
# Configuration

Every entry of an experiment's definition and of a party's `party.toml`. This page is printed by
`python docs/reference/configuration.py` from the code that reads them.

## Definition of an experiment

TOML, or YAML if the file's name says so. `tacit experiment new` writes it with these comments,
`tacit experiment check` reports all errors at once.

| entry | meaning | default |
|---|---|---|
{entries}

## party.toml

Written by `tacit party new`. Paths are relative to the file. An environment variable overrides an
entry: `TACIT_` and its name in capitals (`TACIT_LISTEN`), for limits `TACIT_LIMITS_RATE`. Secrets
are never in the file: `TACIT_PASSPHRASE` and `TACIT_ADMIN_TOKEN`, or files of mode 600.

| entry | meaning | default |
|---|---|---|
{party}

| entry of `[limits]` | meaning | default |
|---|---|---|
{limits}
"""
ABOUT = {
    "signing_key": "the long-term key, encrypted",
    "database": "URL of the database: SQLite or PostgreSQL",
    "records": "directory of the rounds' key files; all processes share it, no backup holds it",
    "listen": "local address and port",
    "cors_origins": "origins whose pages may take part",
    "log_level": "debug, info, warning or error",
    "results": "who sees the coordinator's pages: `open` or `token`",
    "limits": "see below",
    "request_bytes": "bytes of a body without authentication",
    "admin_bytes": "bytes of a body with the admin token",
    "call_bytes": "bytes of a signed call between parties",
    "waiting": "requests that may wait for the database",
    "streams": "pages that are kept up to date at once",
    "rate": "requests per second and address; 0 for no limit",
    "burst": "requests that an address may save up",
    "behind_proxy": "whether a proxy is in front, whose address all connections have",
    "address_header": "header in which the proxy alone writes the client's address",
}


def row(name: str, meaning: str, default: str) -> str:
    meaning = " ".join(meaning.split()).replace("|", "\\|")
    return f"| `{name}` | {meaning} | {default} |"


def default(field: Any) -> str:
    """The default of a field as a definition states it."""
    if field.default_factory is not None:
        return "see meaning"
    if field.default is PydanticUndefined:
        return "required"
    if field.default in (None, "", b""):
        return ""
    value = format_duration(field.default) if DURATION in field.metadata else field.default
    return f"`{to_text(value)}`"


def party_default(name: str, field: Any) -> str:
    if name == "limits":
        return ""
    if field.default is not PydanticUndefined:
        return f"`{field.default}`"
    if field.default_factory is None:
        return "required"
    coordinator, helper = (field.default_factory({"role": r}) for r in ("coordinator", "helper"))
    return f"`{coordinator}`, `{helper}`"


def page() -> str:
    """The whole page."""
    fields = Definition.model_fields
    entries = [
        row(place, str(fields[name].description), default(fields[name]))
        for place, name in ENTRIES.items()
    ]
    party = [
        row(
            str(field.validation_alias or name),
            str(field.description or ABOUT[name]),
            party_default(name, field),
        )
        for name, field in PartyConfig.model_fields.items()
    ]
    limits = [
        row(name, ABOUT[name], f"`{field.default}`" if field.default not in (None, "") else "")
        for name, field in Limits.model_fields.items()
    ]
    return PAGE.format(
        entries="\n".join(entries),
        party="\n".join(party),
        limits="\n".join(limits),
    )


if __name__ == "__main__":
    print(page(), end="")
