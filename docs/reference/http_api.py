"""Prints docs/reference/http_api.md from the parties' OpenAPI documents.

Run it as `python docs/reference/http_api.py > docs/reference/http_api.md`; a test compares the two.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path
from typing import Any

from tacit.cli import app as command
from tacit.service.config import load
from tacit.service.http.serve import application

PAGE = """\
# HTTP API

Every operation of coordinator and helper. This page is printed by
`python docs/reference/http_api.py` from the OpenAPI documents, which a party serves at
`/openapi.json`; a client can be generated from those.

| rule | |
|---|---|
| bodies | JSON or bytes; sizes are limited by [configuration](configuration.md) |
| admin | `Authorization: Bearer TOKEN`, never in an address |
| calls to the helper | `Tacit-Call`, `Tacit-Signature`: [wire formats](wire-formats/terms.md) |
| errors | problem documents (RFC 9457) with a stable `type`: [errors](errors.md); \
each operation may also answer 400, 408, 413, 422, 429, 431, 500, 503 |
| retries | every operation may be repeated; 425, 429 and 503 carry `Retry-After` |
| CORS | any origin unless `cors_origins` says otherwise; no credentials |

{parties}
"""
PARTY = """\
## {role}

| operation | what it does | answers |
|---|---|---|
{rows}
"""
SHARED = {"400", "408", "413", "422", "429", "431", "500", "503"}


def document(role: str) -> dict[str, Any]:
    """The OpenAPI document of a fresh party."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / role
        with contextlib.redirect_stdout(io.StringIO()):
            command(["party", "new", role, str(directory)], standalone_mode=False)
        front = application(load(directory / "party.toml"))
        return front.app.openapi()  # type: ignore[attr-defined]


def rows(paths: dict[str, Any]) -> list[str]:
    """A row per operation."""
    found = []
    for path, operations in sorted(paths.items()):
        for method, about in operations.items():
            text = str(about.get("description") or about.get("summary") or "").split("\n\n")[0]
            token = " Admin token." if about.get("security") else ""
            codes = ", ".join(sorted(set(about.get("responses", {})) - SHARED))
            said = " ".join(text.split()).replace("|", "\\|")
            found.append(f"| `{method.upper()} {path}` | {said}{token} | {codes} |")
    return found


def page() -> str:
    """The whole page."""
    parties = [
        PARTY.format(role=role.capitalize(), rows="\n".join(rows(document(role)["paths"])))
        for role in ("coordinator", "helper")
    ]
    return PAGE.format(parties="\n".join(parties).rstrip())


if __name__ == "__main__":
    print(page(), end="")
