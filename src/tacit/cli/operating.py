"""Helpers shared by the commands of live experiments: select a party, authenticate, print keys.

Secrets come from files and the environment, never from the command line.
"""

from __future__ import annotations

import os
import shlex
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.printing import print_sentence, width
from tacit.errors import TacitError

if TYPE_CHECKING:
    from tacit.service.admin import PartyClient, Published
    from tacit.service.config import PartyConfig

Config = Annotated[
    Path | None, typer.Option(help="The coordinator's party.toml, for its address and admin token.")
]
Url = Annotated[
    str | None, typer.Option(help="The party's URL; the admin token comes from TACIT_ADMIN_TOKEN.")
]
TokenFile = Annotated[Path | None, typer.Option(help="File with the admin token, mode 600.")]
Which = Annotated[
    str | None,
    typer.Argument(help="First digits of the digest; optional if there is only one experiment."),
]


@contextmanager
def needs_live() -> Iterator[None]:
    """Turn a missing package into an error that names the extra to install."""
    try:
        yield
    except ImportError as missing:
        name = missing.name or "a package"
        if name.startswith("tacit"):
            raise
        extra = "flare" if name.partition(".")[0] == "nvflare" else "live"
        raise TacitError(
            f"{name} is missing, which this command needs: pip install 'tacit[{extra}]'"
        ) from None


@dataclass(frozen=True)
class SelectedExperiment:
    """The selected experiment and its coordinator."""

    experiment: Which = None
    config: Config = None
    url: Url = None
    token_file: TokenFile = None

    def __str__(self) -> str:
        """The selection as command line options."""
        named = {"": self.experiment, "--config ": self.config, "--url ": self.url}
        named["--token-file "] = self.token_file
        words = [f" {how}{shlex.quote(str(said))}" for how, said in named.items() if said]
        return "".join(words)

    def found(self) -> tuple[PartyClient, str]:
        """The coordinator, and the digest of the experiment."""
        party = party_client(self.config, self.url, self.token_file)
        return party, party.experiment(self.experiment)


def party_client(config: Path | None, url: str | None, token_file: Path | None) -> PartyClient:
    """The coordinator, with the admin token from the configuration, a file or the environment."""
    with needs_live():
        from tacit.service.admin import PartyClient
    if config is not None:
        settings = load_config(config, "coordinator")
        return PartyClient(address_of(settings, url), settings.admin_token)
    token = os.environ.get("TACIT_ADMIN_TOKEN", "")
    if token_file is not None:
        token = _secret(token_file)
    if url is None:
        raise TacitError(
            "--config is missing: give --config coordinator/party.toml, or --url with the admin "
            "token in TACIT_ADMIN_TOKEN"
        )
    return PartyClient(check_token_address(url) if token else url.rstrip("/"), token)


def check_token_address(url: str) -> str:
    """An address to which the admin token is sent; warns if it is sent unencrypted over a
    network.
    """
    from tacit.client.loopback import is_loopback

    if url.lower().startswith("http://") and not is_loopback(url):
        typer.echo(f"tacit: {url} sends the admin token unencrypted: use https://", err=True)
    return url.rstrip("/")


def _secret(file: Path) -> str:
    if file.stat().st_mode & 0o077:
        raise TacitError(f"{file} can be read by others: chmod 600 {file}")
    return file.read_text(encoding="utf-8").strip()


def load_config(config: Path, role: str) -> PartyConfig:
    """Load the configuration of a party of this role."""
    with needs_live():
        from tacit.service.config import load
    settings = load(config)
    if settings.role != role:
        raise TacitError(
            f"{config} configures a {settings.role}: give the party.toml of the {role}"
        )
    return settings


def address_of(settings: PartyConfig, url: str | None) -> str:
    """The given URL of a party, as `check_token_address` has it, or its address on this machine."""
    return check_token_address(url) if url else local_url(settings)


def local_url(settings: PartyConfig) -> str:
    """The address at which a process of this machine reaches the party."""
    host, port = settings.listen
    near = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{near}:{port}"


def confirm(question: str) -> bool:
    """Ask for confirmation, on a terminal; without one, `--yes` is needed."""
    if not sys.stdin.isatty():
        raise TacitError("standard input is no terminal: nobody can be asked, so give --yes")
    return input(f"{question} Type yes: ").strip().lower() == "yes"


def write_new(file: Path, text: str, mode: int = 0o666) -> None:
    """Write a new file with these permissions; an existing file is rejected."""
    check_new(file)
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(handle, "w", encoding="utf-8") as released:
        released.write(text)


def check_new(file: Path) -> None:
    """Reject a file that exists."""
    if file.exists():
        raise TacitError(f"{file} exists and is not overwritten: name another")


def print_lines(lines: list[str]) -> None:
    """Print sentences, each wrapped, and an empty line."""
    for line in lines:
        print(textwrap.fill(line, width(), initial_indent="  ", subsequent_indent="    "))
    print()


def keys_of(published: Published) -> dict[str, Any]:
    """Both keys, and their fingerprints, which people compare."""
    return {
        "keys": {party.role: party.key.hex() for party in published.terms.parties},
        "fingerprints": published.fingerprints,
    }


def print_keys(published: Published) -> None:
    """Print the fingerprints of both keys."""
    for role, digits in published.fingerprints.items():
        print_sentence(f"{role}'s key", digits)
