"""Options and output of `tacit audit --live`: the audit of a deployed party."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.operating import (
    TokenFile,
    Url,
    address_of,
    needs_live,
    party_client,
)
from tacit.cli.options import Whole, option
from tacit.cli.printing import print_sentence, show
from tacit.errors import TacitError, one_of
from tacit.trust import DEPLOYABLE, TrustModel

if TYPE_CHECKING:
    from tacit.service.admin import PartyClient
    from tacit.service.audit.counterpart import KeyedParty
    from tacit.service.audit.deployment import AuditProgress, DeploymentAudit

NOTE = (
    "this finds faults, not malice: a party that recognizes the audit can behave differently in it"
)
CONTRIBUTIONS = {
    TrustModel.TWO_SERVERS: "the {role}'s noise in each sum; the other server, the audit's own, "
    "adds none",
    TrustModel.LOCAL: "the noisy answers of devices, as the {role} sums them",
    TrustModel.SHUFFLER: "the ones among shuffled messages, with the {role} in between",
    TrustModel.SECURE_AGGREGATION: "the sum of masked reports, as the {role} releases it",
}


@dataclass(frozen=True)
class LiveAuditOptions:
    """The deployed party, and the audit's own one."""

    live: Annotated[
        bool, option("Audit a deployed party, with an experiment of its own.", "--live")
    ] = False
    config: Annotated[
        Path | None, option("Live: party.toml of the audited coordinator or helper.")
    ] = None
    url: Url = None
    token_file: TokenFile = None
    proofs: Annotated[bool, option("Live: two servers with range proofs.", "--proofs")] = False
    releases: Annotated[int | None, option("Live: number of released sums; 200.", **Whole)] = None
    listen: Annotated[
        str | None, option("Live: host:port of the audit's own server; on this machine.")
    ] = None
    address: Annotated[
        str | None, option("Live: URL at which the coordinator reaches that server.")
    ] = None

    @property
    def given(self) -> dict[str, object]:
        """The options that were given without --live, by name."""
        named = {
            "--config": self.config,
            "--url": self.url,
            "--token-file": self.token_file,
            "--proofs": self.proofs or None,
            "--releases": self.releases,
            "--listen": self.listen,
            "--address": self.address,
        }
        return {name: value for name, value in named.items() if value is not None}


def audit_live(
    options: LiveAuditOptions,
    trust: str | None,
    seconds: float | None,
    false_positive_rate: float | None,
    as_json: bool,
) -> None:
    """Audit the party and print the verdict; ^C stops the audit's experiment."""
    with needs_live():
        from tacit.service.audit import deployment
    one_of("trust", trust or "two-servers", DEPLOYABLE)
    settings = deployment.AuditSettings(
        TrustModel(trust or "two-servers"),
        options.proofs,
        options.releases or deployment.RELEASES,
        false_positive_rate or deployment.FALSE_POSITIVE_RATE,
        seconds or deployment.SECONDS,
    )
    with ExitStack() as stack:
        role, coordinator, helper = _parties(options, settings.trust, stack)
        watch = stack.enter_context(_progress(as_json))
        found = deployment.audit_deployment(settings, coordinator, helper, watch)
    _print(found, settings.trust, role, as_json)


def _parties(
    options: LiveAuditOptions, trust: TrustModel, stack: ExitStack
) -> tuple[str, PartyClient, KeyedParty | None]:
    """The role of the audited party, the coordinator and the helper of the audit."""
    from tacit.service.audit.counterpart import KeyedParty, counterpart
    from tacit.service.config import load
    from tacit.service.demo.children import free_port
    from tacit.terms import ROLES

    config = None if options.config is None else load(options.config)
    helped = len(ROLES[trust]) > 1
    listen = options.listen or f"127.0.0.1:{free_port()}"
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tacit-audit-")))
    if config is not None and config.role == "helper":
        if not helped:
            raise TacitError(f"trust is {trust.value}, which has no helper: audit the coordinator")
        mine = KeyedParty.of(config, address_of(config, options.url))
        own = stack.enter_context(counterpart("coordinator", directory, listen, options.address))
        return config.role, own.operated, mine
    party = party_client(options.config, options.url, options.token_file)
    if not party.token:
        raise TacitError(
            "the admin token is missing: give --config, --token-file, or TACIT_ADMIN_TOKEN"
        )
    party.experiments()  # a wrong address is noticed before anything starts
    if not helped:
        return "coordinator", party, None
    own = stack.enter_context(counterpart("helper", directory, listen, options.address))
    return "coordinator", party, own


@contextmanager
def _progress(as_json: bool) -> Iterator[Callable[[AuditProgress], None]]:
    """A progress line on standard error; none with JSON."""
    if as_json:
        yield lambda _shown: None
        return
    from rich.console import Console

    with Console(stderr=True).status("publishing the audit's experiment") as line:
        yield lambda shown: line.update(
            f"{shown.seconds:.0f} s, {shown.releases} of {shown.wanted} sums released, "
            f"{shown.reports:,} reports; ^C stops"
        )


def _print(audit: DeploymentAudit, trust: TrustModel, role: str, as_json: bool) -> None:
    record = {
        "audited": role,
        "trust": trust.value,
        "experiment": audit.experiment if as_json else audit.experiment[:12],
        "releases": audit.releases,
        "reports": audit.reports,
        "aborted_rounds": audit.aborted,
        "verdict": "the stated distribution" if audit.passed else "NOT the stated distribution",
        "rejected": ", ".join(sorted(audit.rejected)) or "nothing",
        **{f"p_{fault.value}": p for fault, p in audit.p_values.items()},
        "false_positive_rate": audit.false_positive_rate,
        "halved_noise_found_with": audit.power,
        "reused_noise_found": audit.detects_repetition,
        "seconds": round(audit.seconds, 1),
    }
    if as_json:
        record |= {"compared": CONTRIBUTIONS[trust].format(role=role), "note": NOTE}
    show(record, f"audit of a deployed {role}", as_json, shown=("halved_noise_found_with",))
    if not as_json:
        print_sentence("compared", CONTRIBUTIONS[trust].format(role=role))
        print_sentence("note", NOTE)
    if not audit.passed:
        raise typer.Exit(1)
