"""The command `doctor`, which checks a deployment from outside."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.operating import needs_live
from tacit.cli.options import Json, argument, option
from tacit.cli.printing import print_json, print_sentence, print_table
from tacit.errors import TacitError


def doctor(
    url: Annotated[
        list[str], argument("URL of a party; the other one is found through its terms.")
    ],
    pin: Annotated[
        list[str] | None, option("A key or fingerprint from an operator; repeatable.")
    ] = None,
    config: Annotated[Path | None, option("Your own party.toml: check its files, too.")] = None,
    metrics_public: Annotated[bool, option("Public metrics are intended.")] = False,
    as_json: Json = False,
) -> None:
    """Check a deployment from outside: reachability, TLS, headers, admin routes, terms and keys.
    The exit code is 1 if a check finds something broken.

    Example: tacit doctor https://coordinator.example
    """
    with needs_live():
        from tacit.readers import count_of
        from tacit.service import doctor as practice
        from tacit.service.config import load
    for asked in url:
        if not asked.startswith(("http://", "https://")):
            raise TacitError(f"url is {asked!r}: must be a URL such as https://coordinator.example")
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
        print_table("findings", ["where", "check", "state", "finding"], rows)
        for one in found:
            if one.fix and one.state != practice.OK:
                print_sentence(f"{one.state}: {one.where}, {one.what}", one.fix)
        counts = f"{broken} broken, {count_of(doubtful, 'warning')}, {len(found)} checks"
        print_sentence("total", counts)
        print_sentence("note", "exclude the key files of rounds from backups and snapshots")
    if broken:
        raise typer.Exit(1)
