"""`tacit audit --live`: errors before anything starts, and audits of parties over HTTP."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cli.commands import Command, rejected, result
from tests.cli.conftest import command
from tests.service.served import TOKEN, Member, member, running

from tacit.errors import TacitError
from tacit.noise.release_test import Fault
from tacit.service.admin import PartyClient, publish_experiment
from tacit.service.audit.counterpart import KeyedParty, counterpart, no_noise
from tacit.service.audit.deployment import (
    AuditSettings,
    DeploymentAudit,
    audit_deployment,
    definition_of,
)
from tacit.service.audit.participants import Participants
from tacit.service.demo.children import free_port
from tacit.service.http.serve import application
from tacit.service.schema import Stage
from tacit.terms import Pinned
from tacit.trust import TrustModel

__all__ = ["command"]


def served(stack: ExitStack, directory: Path, role: str = "coordinator", **sources: Any) -> Member:
    """A party in a thread, as an operator runs it."""
    told = member(directory, role)
    assert told.bound is not None
    stack.enter_context(told.bound)
    stack.enter_context(running(application(told.config, **sources), told.bound))
    return told


def test_mistakes_are_reported_before_anything_starts(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TACIT_ADMIN_TOKEN", raising=False)
    nowhere = f"http://127.0.0.1:{free_port()}"
    helper = member(tmp_path / "helper", "helper")
    assert helper.bound is not None
    helper.bound.close()
    for words, reason in {
        ("--url", nowhere): "the admin token is missing",
        ("--url", nowhere, "--trust", "central"): "trust is 'central'",
        (): "--config is missing",
        ("--config", str(helper.path), "--trust", "local"): "which has no helper",
        ("--url", nowhere, "--trust", "local", "--proofs"): "proofs is true with trust local",
        ("--url", nowhere, "--releases", "1"): "releases is 1",
        ("--url", nowhere, "--noise", "discrete-laplace"): "not for --live",
    }.items():
        assert reason in rejected(command("audit", "--live", *words)), words
    monkeypatch.setenv("TACIT_ADMIN_TOKEN", TOKEN)
    said = rejected(command("audit", "--live", "--url", nowhere, "--trust", "local"))
    assert "does not answer" in said
    assert "for --live only" in rejected(command("audit", "--releases", "5"))


def audited(
    stack: ExitStack, told: Member, trust: TrustModel, releases: int, *, proofs: bool = False
) -> DeploymentAudit:
    settings = AuditSettings(trust, proofs, releases=releases, seconds=600)
    helper = None
    if trust in (TrustModel.TWO_SERVERS, TrustModel.SHUFFLER):
        own = f"127.0.0.1:{free_port()}"
        helper = stack.enter_context(counterpart("helper", told.path.parent / "own", own))
    return audit_deployment(settings, PartyClient(told.url, TOKEN), helper)


@pytest.mark.extended
def test_a_device_whose_round_ended_before_its_report_does_not_end_the_audit(
    tmp_path: Path,
) -> None:
    async def late(coordinator: PartyClient, digest: str) -> tuple[int, int]:
        published = coordinator.terms(digest)
        pinned = Pinned(published.terms, published.signatures, published.terms.keys)
        async with httpx.AsyncClient() as http:
            devices = Participants(pinned, {published.terms.leader: coordinator.url}, http)
            while (running := await devices.join()) is None:
                await asyncio.sleep(0.1)
            coordinator.post(f"/experiments/{digest}/stop")
            while True:
                rounds = coordinator.get(f"/experiments/{digest}/status")["rounds"]
                if all(one["stage"] == Stage.ABORTED for one in rounds):
                    break
                await asyncio.sleep(0.1)
            await devices.report(running)
            return devices.reported, len(devices.rounds)

    with ExitStack() as stack:
        coordinator = PartyClient(served(stack, tmp_path).url, TOKEN)
        definition = definition_of(AuditSettings(TrustModel.LOCAL), None)
        short = definition.replace('joining = "1 minute"', 'joining = "3 seconds"')
        digest = publish_experiment(coordinator, short, None)
        assert asyncio.run(late(coordinator, digest)) == (0, 1)


@pytest.mark.extended
def test_a_correct_coordinator_passes_and_its_experiment_is_stopped(
    command: Command, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        told = served(stack, tmp_path)
        words = ("--trust", "local", "--releases", 8, "--config", told.path, "--json")
        found = result(command("audit", "--live", *words))
        assert found["verdict"] == "the stated distribution"
        assert found["releases"] == 8
        assert "faults, not malice" in found["note"]
        (listed,) = PartyClient(told.url, TOKEN).experiments()
        assert (listed["digest"], listed["state"]) == (found["experiment"], "stopped")


@pytest.mark.extended
@pytest.mark.parametrize(
    ("trust", "proofs"),
    [
        (TrustModel.TWO_SERVERS, False),
        (TrustModel.TWO_SERVERS, True),
        (TrustModel.SHUFFLER, False),
        (TrustModel.SECURE_AGGREGATION, False),
    ],
)
def test_a_correct_coordinator_of_every_trust_model_passes(
    tmp_path: Path, trust: TrustModel, proofs: bool
) -> None:
    """With a false positive rate of 10^-6."""
    with ExitStack() as stack:
        found = audited(stack, served(stack, tmp_path), trust, 4, proofs=proofs)
    assert found.passed, found.p_values
    assert (found.releases, found.aborted) == (4, 0)


@pytest.mark.extended
@pytest.mark.parametrize("trust", ["two-servers", "shuffler"])
def test_a_correct_helper_passes(command: Command, tmp_path: Path, trust: str) -> None:
    with ExitStack() as stack:
        told = served(stack, tmp_path, "helper")
        words = ("--trust", trust, "--releases", 4, "--config", told.path, "--json")
        found = result(command("audit", "--live", *words))
    assert (found["verdict"], found["releases"]) == ("the stated distribution", 4)


@pytest.mark.extended
@pytest.mark.parametrize("role", ["coordinator", "helper"])
def test_a_server_without_noise_is_detected(tmp_path: Path, role: str) -> None:
    """12 sums that are all 0 have a probability of 5e-8 with noise of scale 2."""
    with ExitStack() as stack:
        told = served(stack, tmp_path, role, noise=no_noise)
        if role == "coordinator":
            found = audited(stack, told, TrustModel.TWO_SERVERS, 12)
        else:
            own = f"127.0.0.1:{free_port()}"
            mine = stack.enter_context(counterpart("coordinator", tmp_path / "own", own))
            audited_party = KeyedParty.of(told.config, told.url)
            settings = AuditSettings(TrustModel.TWO_SERVERS, releases=12, seconds=300)
            found = audit_deployment(settings, mine.operated, audited_party)
    assert not found.passed
    assert Fault.SPREAD in found.rejected


def test_audit_settings_are_validated() -> None:
    with pytest.raises(TacitError, match="Only two-servers has proofs"):
        AuditSettings(TrustModel.LOCAL, proofs=True)
    with pytest.raises(TacitError, match="trust is"):
        AuditSettings(TrustModel.CENTRAL)
    with pytest.raises(TacitError, match="false_positive_rate"):
        AuditSettings(TrustModel.LOCAL, false_positive_rate=2.0)


def test_an_audit_needs_few_releases_of_each_option() -> None:
    """Rounds of an option grow: an audit of 200 sums of 4 options did not end in half an hour."""
    for releases in (2, 8, 200, 800):
        options = AuditSettings(TrustModel.LOCAL, releases=releases).options
        assert releases <= 4 * len(set(options))
    assert len(AuditSettings(TrustModel.LOCAL, releases=10**6).options) == 200


@pytest.mark.extended
def test_a_party_can_be_audited_twice(tmp_path: Path) -> None:
    """The second audit got the terms of the first, which is stopped, and waited in vain."""
    with ExitStack() as stack:
        told = served(stack, tmp_path)
        first, second = (audited(stack, told, TrustModel.LOCAL, 2) for _ in range(2))
    assert first.experiment != second.experiment
    assert (first.releases, second.releases) == (2, 2)


def test_every_audit_has_terms_of_its_own() -> None:
    first, second = (definition_of(AuditSettings(TrustModel.LOCAL), None) for _ in range(2))
    assert first != second
