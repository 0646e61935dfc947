"""Audit of one deployed party: it sends known answers and tests the released noise.

The audit publishes an experiment in which every answer is zero, plays all devices and reads the
released sums. With two servers the auditor runs the other one without noise (`counterpart`), so
every sum has the noise of the audited party alone. Elsewhere the noise is that of the installed
device; the party must add nothing to it and lose nothing of it.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import httpx

from tacit.client.http import tls_context
from tacit.client.loopback import NEARBY
from tacit.errors import TacitError, integer, one_of, positive, probability
from tacit.noise.release_test import Fault, NoiseTest
from tacit.rounds.stated_noise import ReleasedNoise
from tacit.service import definition_files
from tacit.service.admin import PartyClient, publish_experiment, short_experiment
from tacit.service.audit.counterpart import KeyedParty
from tacit.service.audit.participants import Participants
from tacit.service.schema import Stage, State
from tacit.service.trust_models import coordinator_engine
from tacit.signatures import public_key
from tacit.terms import Pinned
from tacit.trust import DEPLOYABLE, TrustModel

RELEASES, FALSE_POSITIVE_RATE, SECONDS = 200, 1e-6, 1800.0
PHASES, MOST_OPTIONS = 4, 200  # releases of each option: a learner's later rounds are larger
JOINING = 16  # devices that join at the same time
OVER = (State.STOPPED, State.FINISHED)
TIMEOUT = httpx.Timeout(60.0, connect=10.0)
HALF = Fraction(1, 2)
SMALL_ROUNDS: Mapping[TrustModel, Mapping[str, Any]] = {
    TrustModel.LOCAL: {"levels": 1, "epsilon": 2},
    TrustModel.SHUFFLER: {
        "levels": 1,
        "epsilon": 16,
        "delta": Fraction(1, 10),
        "missing": 0,
        "dishonest": 0,
    },
    TrustModel.TWO_SERVERS: {"levels": 16, "epsilon": 8},
    TrustModel.SECURE_AGGREGATION: {"levels": 16, "epsilon": 8},
}
"""Entries of the definition for small rounds with enough noise to test. Nobody takes part."""


@dataclass(frozen=True)
class AuditSettings:
    """Settings of an audit: trust model, number of released sums, false positive rate, time."""

    trust: TrustModel
    proofs: bool = False
    releases: int = RELEASES
    false_positive_rate: float = FALSE_POSITIVE_RATE
    seconds: float = SECONDS

    def __post_init__(self) -> None:
        one_of("trust", self.trust.value, DEPLOYABLE)
        integer("releases", self.releases, at_least=2)
        probability("false_positive_rate", self.false_positive_rate)
        positive("seconds", self.seconds)
        if self.proofs and self.trust is not TrustModel.TWO_SERVERS:
            raise TacitError(
                f"proofs is true with trust {self.trust.value}: must be false. Only two-servers "
                "has proofs."
            )

    @property
    def options(self) -> tuple[str, ...]:
        """So many options that all sums come from first rounds, which need few reports."""
        count = min(max(PHASES, -(-self.releases // PHASES)), MOST_OPTIONS)
        return tuple(f"Option {number}" for number in range(1, count + 1))


@dataclass(frozen=True)
class AuditProgress:
    """Progress of an audit."""

    releases: int
    wanted: int
    reports: int
    aborted: int
    seconds: float


@dataclass(frozen=True)
class DeploymentAudit:
    """The result of an audit: the released noise against its stated distribution."""

    experiment: str
    releases: int
    reports: int
    aborted: int
    p_values: Mapping[Fault, float]
    rejected: frozenset[Fault]
    false_positive_rate: float
    power: float  # probability of a rejection if the noise were halved, at least
    detects_repetition: bool
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether no statistic rejects the stated distribution."""
        return not self.rejected


@dataclass(frozen=True)
class Release:
    """One released sum, its stated noise, and the noise if it were halved."""

    value: int
    stated: ReleasedNoise
    halved: ReleasedNoise


Watch = Callable[[AuditProgress], None]


def judge(releases: list[Release], rate: float) -> tuple[NoiseTest, dict[Fault, float], float]:
    """The test of some releases, its p-values, and its power against halved noise."""
    test = NoiseTest(tuple(one.stated.distribution for one in releases), rate)
    power = test.power([one.halved.distribution for one in releases])
    return test, test.p_values([one.value for one in releases]), power


def definition_of(settings: AuditSettings, helper: KeyedParty | None) -> str:
    """The definition file of the audit's experiment."""
    other = None if helper is None else (helper.operated.url, public_key(helper.key))
    given = {
        "question": "Audit of the noise: nobody takes part in this experiment",
        "options": settings.options,
        "purpose": f"audit {secrets.token_hex(8)}",  # an audit has terms of its own
        "meaning": "always 0",
        "trust": settings.trust.value,
        "proofs": settings.proofs,
        "labels": (),
        "min_batch_size": 2,
        "dropout": 0,
        **short_experiment(other, joining=60, margin=2, grace=120),
        **SMALL_ROUNDS[settings.trust],
    }
    return definition_files.write(given)


def audit_deployment(
    settings: AuditSettings,
    coordinator: PartyClient,
    helper: KeyedParty | None = None,
    watch: Watch = lambda _progress: None,
) -> DeploymentAudit:
    """Audit a deployment with an experiment of its own, which is stopped at the end.

    Parameters
    ----------
    settings : AuditSettings
        The trust model, and how many sums are compared.
    coordinator : PartyClient
        The coordinator, with its admin token.
    helper : KeyedParty, optional
        The helper, where the trust model has one. With two servers one of both is the auditor's
        `counterpart`, which adds no noise.
    watch : callable
        Called with the progress about every second.

    Returns
    -------
    DeploymentAudit

    Raises
    ------
    TacitError
        If a party rejects the experiment or its devices, or releases fewer than two sums in time.
    """
    started = time.monotonic()
    digest = publish_experiment(
        coordinator,
        definition_of(settings, helper),
        None if helper is None else (helper.operated, helper.key),
    )
    try:
        found = _AuditRun(settings, coordinator, helper, digest, watch)
        releases = asyncio.run(found.run())
    finally:
        with suppress(TacitError):
            coordinator.post(f"/experiments/{digest}/stop")
    if len(releases) < 2:
        raise TacitError(
            f"number of released sums is {len(releases)} after {settings.seconds:g} s: must be 2 "
            "or more. Look into the logs of the parties, or allow more --seconds."
        )
    test, p_values, power = judge(releases, settings.false_positive_rate)
    each = settings.false_positive_rate / len(Fault)
    return DeploymentAudit(
        digest,
        len(releases),
        found.participants.reported,
        found.aborted,
        p_values,
        frozenset(fault for fault, p in p_values.items() if p < each),
        settings.false_positive_rate,
        power,
        test.detects_repetition,
        time.monotonic() - started,
    )


class _AuditRun:
    """All devices of an audit, until enough sums are released."""

    def __init__(
        self,
        settings: AuditSettings,
        coordinator: PartyClient,
        helper: KeyedParty | None,
        digest: str,
        watch: Watch,
    ) -> None:
        self._settings, self._coordinator, self._digest = settings, coordinator, digest
        self._watch = watch
        published = coordinator.terms(digest)
        self._terms = published.terms
        self._pinned = Pinned(published.terms, published.signatures, published.terms.keys)
        self._parties = {self._terms.leader: coordinator}
        if helper is not None and self._terms.helper is not None:
            self._parties[self._terms.helper] = helper.operated
        self._stages: set[asyncio.Task[None]] = set()
        self._found: dict[str, Release] = {}
        self.aborted = 0

    async def run(self) -> list[Release]:
        """Play until enough sums are released, the experiment ends or time is up."""
        client = httpx.AsyncClient(
            auth=self._authorize, timeout=TIMEOUT, verify=tls_context(), mounts=NEARBY
        )
        async with client as http:
            addresses = {role: party.url for role, party in self._parties.items()}
            self.participants = Participants(self._pinned, addresses, http)
            devices = [asyncio.create_task(self._run_devices()) for _ in range(JOINING)]
            try:
                await self._released(devices)
            finally:
                for task in (*devices, *self._stages):
                    task.cancel()
                await asyncio.gather(*devices, *self._stages, return_exceptions=True)
        return list(self._found.values())[: self._settings.releases]

    def _authorize(self, request: httpx.Request) -> httpx.Request:
        """Add the operator's token, so that limits per address do not slow the audit down."""
        for party in self._parties.values():
            if party.token and str(request.url).startswith(f"{party.url.rstrip('/')}/"):
                request.headers["Authorization"] = f"Bearer {party.token}"
        return request

    async def _run_devices(self) -> None:
        """Devices, one after another."""
        while True:
            running = await self.participants.join()
            if running is None:
                await asyncio.sleep(0.2)
                continue
            await self.participants.report(running)
            task = asyncio.create_task(self.participants.answer_stages(running))
            self._stages.add(task)
            task.add_done_callback(self._stages.discard)

    async def _released(self, devices: list[asyncio.Task[None]]) -> None:
        """Read the released sums every second."""
        started = time.monotonic()
        url = f"{self._coordinator.url}/experiments/{self._digest}/status"
        while (lasted := time.monotonic() - started) < self._settings.seconds:
            answer = await self.participants.request("GET", url)
            state = self._read(answer.json())
            said = (len(self._found), self._settings.releases, self.participants.reported)
            self._watch(AuditProgress(*said, self.aborted, lasted))
            if len(self._found) >= self._settings.releases or state in OVER:
                return
            done, _ = await asyncio.wait(devices, timeout=1.0, return_when="FIRST_EXCEPTION")
            for task in done:
                task.result()

    def _read(self, status: dict[str, Any]) -> str:
        """Take the rounds that are over; the state of the experiment."""
        engine = coordinator_engine(self._terms)
        self.aborted = sum(one["stage"] == Stage.ABORTED for one in status["rounds"])
        for one in status["rounds"]:
            name = one["round"]
            announced = self.participants.rounds.get(bytes.fromhex(name))
            if announced is None or one["sums"] is None or name in self._found:
                continue
            stated, halved = (
                engine.released_noise(self._terms, announced, one["reports"], factor)
                for factor in (Fraction(1), HALF)
            )
            self._found[name] = Release(stated.value(one["sums"][0]), stated, halved)
        return str(status["state"])
