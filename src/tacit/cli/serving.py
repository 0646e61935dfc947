"""The command `serve`, which runs the coordinator or the helper."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.operating import needs_live
from tacit.errors import TacitError


class ServerRole(StrEnum):
    """Which of the two servers."""

    COORDINATOR = "coordinator"
    HELPER = "helper"


def serve(
    role: Annotated[ServerRole, typer.Argument(help="Role of this process.")],
    config: Annotated[
        Path, typer.Option("--config", help="Its party.toml, as written by `tacit party new`.")
    ] = Path("party.toml"),
) -> None:
    """Run the coordinator or the helper of live experiments until SIGTERM or ^C.

    Secrets come from the environment (TACIT_PASSPHRASE, TACIT_ADMIN_TOKEN) or from files of mode
    600. A proxy in front provides TLS.
    """
    with needs_live():
        from tacit.service.config import load
        from tacit.service.http import serve as service
    settings = load(config)
    if settings.role != role.value:
        raise TacitError(
            f"{config} configures a {settings.role}: run tacit serve {settings.role} "
            f"--config {config}"
        )
    service.serve(settings)
