"""The command `serve`, which runs the coordinator or the helper."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tacit.errors import TacitError


class ServerRole(StrEnum):
    """Which of the two servers."""

    COORDINATOR = "coordinator"
    HELPER = "helper"


def serve(
    role: Annotated[ServerRole, typer.Argument(help="Which of the two servers this process is.")],
    config: Annotated[
        Path, typer.Option("--config", help="Its party.toml; `tacit party new` writes one.")
    ] = Path("party.toml"),
) -> None:
    """Run a party of live experiments until it is told to stop (SIGTERM or ^C).

    Secrets come from the environment (TACIT_PASSPHRASE, TACIT_ADMIN_TOKEN) or from files that only
    their owner may read. TLS is for a proxy in front.
    """
    try:
        from tacit.service import config as configuration
        from tacit.service.http import serve as service
    except ImportError as missing:
        raise TacitError(
            f"{missing.name or 'a package'} is missing, which live experiments need: "
            "pip install 'tacit[live]'"
        ) from None
    told = configuration.load(config)
    if told.role != role.value:
        raise TacitError(
            f"{config} is that of a {told.role}; run: tacit serve {told.role} --config {config}"
        )
    service.serve(told)
