"""The command `doctor`, which checks a deployment from outside."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.operating import needs_live
from tacit.cli.options import Json
from tacit.cli.printing import print_json, sentence, table
from tacit.errors import TacitError


def doctor(
    url: Annotated[
        list[str], typer.Argument(help="A party's address; the other is found through its terms.")
    ],
    pin: Annotated[
        list[str] | None,
        typer.Option(help="A key or fingerprint that you were told; give this once for each."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="Your own party.toml, to look at its files, too.")
    ] = None,
    metrics_public: Annotated[bool, typer.Option(help="Metrics are meant to be public.")] = False,
    as_json: Json = False,
) -> None:
    """Look at a deployment from outside: what is well, what is doubtful, what is broken. The exit
    code is 1 if something is broken.

    Example: tacit doctor https://coordinator.example
    """
    with needs_live():
        from tacit.service import doctor as practice
        from tacit.service.config import load
    for asked in url:
        if not asked.startswith(("http://", "https://")):
            raise TacitError(f"{asked!r} is no address: write it like https://coordinator.example")
    found = practice.examine(url, pin or (), metrics_meant=metrics_public)
    if config is not None:
        found += practice.examine_files(load(config))
    broken = sum(one.state == practice.BROKEN for one in found)
    doubtful = sum(one.state == practice.WARNING for one in found)
    if as_json:
        findings = [asdict(one) for one in found]
        print_json({"broken": broken, "warnings": doubtful, "findings": findings})
    else:
        rows = [[one.where, one.what, one.state, one.said] for one in found]
        table("what was found", ["where", "what", "state", "said"], rows)
        for one in found:
            if one.fix and one.state != practice.OK:
                sentence(f"{one.state}: {one.where}, {one.what}", one.fix)
        sentence("in all", f"{broken} broken, {doubtful} doubtful, of {len(found)}")
        sentence("keep in mind", "key files of rounds belong into no backup and no snapshot")
    if broken:
        raise typer.Exit(1)
