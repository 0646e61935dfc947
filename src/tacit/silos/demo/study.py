"""The study of the demonstration: its terms, and a run of it in one process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.bandits.contextual.linucb import LinUCBPolicy
from tacit.records import MemoryRecords
from tacit.signatures import public_key
from tacit.silos.agent import SiloAgent, SiloIdentity
from tacit.silos.coordinator import CoordinatorTiming, FederationCoordinator
from tacit.silos.database import SiloDatabase
from tacit.silos.demo.hospital import Decide, Hospital, Record
from tacit.silos.demo.patients import HOSPITALS, WARD, Patients, courses, own_linucb
from tacit.silos.exchange import InProcessExchange, Responder
from tacit.silos.federation import (
    FederationTerms,
    PinnedFederation,
    RewardSpec,
    SiloParty,
    SyncSchedule,
    sign_federation,
)
from tacit.types import Floats

QUESTION = "Which treatment helps which patient?"
OUTCOME = "recovered within 30 days, 0 or 1"
EPSILON, DELTA = Fraction(1), Fraction(1, 100_000)
PATIENTS, SYNCHRONISATIONS = 2000, 5  # per hospital


@dataclass(frozen=True, eq=False)
class StudyResult:
    """Results of the study on held-out patients.

    Parameters
    ----------
    shared : float
        Mean regret of the shared policy on all held-out patients.
    own : tuple of float
        Mean regret of each hospital's own non-private LinUCB on the same patients.
    at_home : tuple of (float, float)
        On held-out patients like the hospital's own: the shared policy, the hospital's own.
    effects, truth
        Estimated and true intercepts and slopes of every action.
    treated : tuple of float
        Mean regret of each hospital's patients during the study.
    received : mapping
        Bytes that the coordinator received from each hospital.
    """

    shared: float
    own: tuple[float, ...]
    at_home: tuple[tuple[float, float], ...]
    effects: Floats
    truth: Floats
    treated: tuple[float, ...]
    received: dict[str, int]

    @property
    def better(self) -> bool:
        """Whether the shared policy is better than the policies that hospitals learn alone."""
        return self.shared < min(self.own)


def schedule(patients: int, starts: int = 0, pace: int = 0) -> SyncSchedule:
    """Few synchronisations: every release costs a part of the budget."""
    return SyncSchedule(
        horizon=patients,
        sync=patients // SYNCHRONISATIONS,
        kind="fixed",
        starts=starts,
        pace=pace,
        patience=300,
    )


@dataclass(frozen=True, eq=False)
class Cohort:
    """The patients of one run: the world, the held-out patients and the random streams."""

    seed: int
    patients: Patients
    held_out: Floats
    count: int

    @classmethod
    def draw(cls, seed: int, count: int = PATIENTS, others: float = 0.0) -> Cohort:
        """The cohort of a seed."""
        rng = np.random.default_rng([seed, 0])
        patients = Patients.draw(rng, others)
        return cls(seed, patients, patients.held_out(rng), count)

    def hospital(self, number: int, decide: Decide, record: Record) -> Hospital:
        """A hospital whose patients the seed decides."""
        coming = courses(self.patients, number, self.count, self._rng(number))
        return Hospital(self.patients, coming, decide, record)

    def _rng(self, number: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, 1 + number])

    def result(
        self, effects: Floats, hospitals: list[Hospital], received: dict[str, int]
    ) -> StudyResult:
        """Compare a shared policy with the policies that hospitals learn alone."""
        world, numbers = self.patients, range(len(HOSPITALS))
        alone = [own_linucb(world, n, self.count, self._rng(n)) for n in numbers]
        homes = [self.held_out[n :: len(HOSPITALS)] for n in numbers]
        return StudyResult(
            world.regret(effects, self.held_out),
            tuple(world.regret(one, self.held_out) for one in alone),
            tuple(
                (world.regret(effects, home), world.regret(one, home))
                for one, home in zip(alone, homes, strict=True)
            ),
            effects,
            world.effects,
            tuple(one.lost / max(1, one.treated) for one in hospitals),
            received,
        )


def coefficient_widths(policy: LinUCBPolicy) -> Floats:
    """Half the 95% interval of every intercept and slope, calibrated as the policy's widths."""
    covariance = policy.covariance
    if covariance is None:
        raise ValueError("the policy has no covariance: must be of secagg-fedlinucb")
    basis = WARD.effects(np.eye(WARD.dimension)).reshape(-1, WARD.dimension)
    variances = np.einsum("ij,jk,ik->i", basis, np.array(covariance), basis)
    widths = policy.radii[0] * np.sqrt(np.maximum(variances, 0.0))
    return np.asarray(widths.reshape(len(WARD.actions), -1))


def in_process(seed: int, count: int = PATIENTS, others: float = 0.0) -> StudyResult:
    """The whole study in one process: the same agents and coordinator, no engine.

    Parameters
    ----------
    seed : int
        Decides the patients; the noise is the operating system's.
    count : int
        Patients of each hospital.
    others : float
        How often a hospital treats patients of another kind than its own; see `Patients`.

    Returns
    -------
    StudyResult
    """
    cohort = Cohort.draw(seed, count, others)
    key = Ed25519PrivateKey.generate()
    keys = [Ed25519PrivateKey.generate() for _ in HOSPITALS]
    terms = FederationTerms(
        QUESTION,
        "secagg-fedlinucb",
        WARD,
        RewardSpec(OUTCOME),
        schedule(count),
        public_key(key),
        tuple(
            SiloParty(name, public_key(one), EPSILON, DELTA)
            for name, one in zip(HOSPITALS, keys, strict=True)
        ),
    )
    pinned = PinnedFederation(terms, tuple(sign_federation(terms, one) for one in (key, *keys)))
    agents = {
        name: SiloAgent(
            SiloIdentity(pinned, name, one),
            SiloDatabase(":memory:", terms.digest),
            MemoryRecords(),
        )
        for name, one in zip(HOSPITALS, keys, strict=True)
    }
    hospitals = [
        cohort.hospital(number, _decide(agent), agent.record)
        for number, agent in enumerate(agents.values())
    ]
    reached: dict[str, Callable[[], Responder]] = {
        name: lambda agent=agent: agent  # type: ignore[misc]
        for name, agent in agents.items()
    }
    coordinator = FederationCoordinator(
        pinned, key, InProcessExchange(reached), MemoryRecords(), CoordinatorTiming()
    )
    while not coordinator.finished:
        coordinator.deliver()
        for hospital in hospitals:
            hospital.treat(terms.batches[coordinator.step])
        coordinator.synchronise()
    coordinator.deliver()
    effects = agents[HOSPITALS[0]].export().effects
    return cohort.result(effects, hospitals, coordinator.received)


def _decide(agent: SiloAgent) -> Decide:
    def decide(context: dict[str, Any]) -> tuple[str, str]:
        made = agent.decide(context)
        return made.id, made.action

    return decide
