"""Federations in one process for tests: keys, signed terms, agents that restart, a coordinator."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.records import MemoryRecords, Records
from tacit.signatures import public_key
from tacit.silos.agent import RecordedEvaluations, SiloAgent, SiloIdentity
from tacit.silos.context import ContextColumn, ContextSpec
from tacit.silos.coordinator import CoordinatorTiming, FederationCoordinator
from tacit.silos.database import SiloDatabase
from tacit.silos.exchange import InProcessExchange
from tacit.silos.federation import (
    FederationTerms,
    PinnedFederation,
    RewardSpec,
    SiloParty,
    SyncSchedule,
    sign_federation,
)
from tacit.silos.http import agent_app

AGE = ContextColumn("age", low=Fraction(20), high=Fraction(80))
SEVERE = ContextColumn("severe", "boolean")
WARD = ContextSpec((AGE, SEVERE), ("drug", "surgery"))


def no_sleep(_seconds: float) -> None:
    """Tests do not wait."""


@dataclass
class LocalFederation:
    """A federation in one process; `restart` drops an agent's memory."""

    pinned: PinnedFederation
    key: Ed25519PrivateKey
    keys: tuple[Ed25519PrivateKey, ...]
    folder: Path | None = None
    now: float = 0.0
    agents: dict[str, SiloAgent] = field(default_factory=dict)
    records: dict[str, Records] = field(default_factory=dict)
    recorded: RecordedEvaluations | None = None

    @classmethod
    def of(cls, silos: int = 3, folder: Path | None = None, **about: Any) -> LocalFederation:
        """A federation of so many silos; `about` replaces fields of the terms."""
        key = Ed25519PrivateKey.generate()
        keys = tuple(Ed25519PrivateKey.generate() for _ in range(silos))
        budgets = about.pop("budgets", [(Fraction(1), Fraction(1, 100_000))] * silos)
        given: dict[str, Any] = {
            "question": "Which treatment?",
            "algorithm": "secagg-fedlinucb",
            "context": WARD,
            "reward": RewardSpec("recovered, 0 or 1"),
            "schedule": SyncSchedule(horizon=40, sync=10),
        } | about
        parties = tuple(
            SiloParty(f"silo{n}", public_key(one), *budget)
            for n, (one, budget) in enumerate(zip(keys, budgets, strict=True))
        )
        terms = FederationTerms(coordinator=public_key(key), silos=parties, **given)
        signed = tuple(sign_federation(terms, one) for one in (key, *keys))
        made = cls(PinnedFederation(terms, signed), key, keys, folder)
        for number in range(silos):
            made.restart(number)
        return made

    @property
    def terms(self) -> FederationTerms:
        """The terms."""
        return self.pinned.terms

    def restart(self, number: int) -> SiloAgent:
        """Start the agent of a silo, from its files where there is a folder."""
        name = self.terms.silos[number].name
        identity = SiloIdentity(self.pinned, name, self.keys[number])
        path = ":memory:" if self.folder is None else str(self.folder / f"{name}.sqlite")
        records = self.records.setdefault(name, MemoryRecords())
        database = SiloDatabase(path, self.terms.digest)
        self.agents[name] = SiloAgent(identity, database, records, lambda: self.now, self.recorded)
        return self.agents[name]

    def exchange(self) -> InProcessExchange:
        """An exchange that reaches the present agents."""
        return InProcessExchange({name: lambda n=name: self.agents[n] for name in self.agents})  # type: ignore[misc]

    def coordinator(self, exchange: Any = None) -> FederationCoordinator:
        """A coordinator that resumes from its records."""
        records = self.records.setdefault("coordinator", MemoryRecords())
        timing = CoordinatorTiming(clock=lambda: self.now, sleep=no_sleep)
        return FederationCoordinator(
            self.pinned, self.key, exchange or self.exchange(), records, timing
        )

    def play(self, patients: int, rng: np.random.Generator) -> None:
        """Every silo treats so many patients whose outcomes are known at once."""
        for agent in self.agents.values():
            for _ in range(patients):
                context = {"age": int(rng.integers(20, 81)), "severe": bool(rng.random() < 0.5)}
                decision = agent.decide(context)
                better = "surgery" if context["severe"] else "drug"
                chance = 0.8 if decision.action == better else 0.3
                agent.record(decision, int(rng.random() < chance))


def serving(
    federation: LocalFederation, application: str, engine: str
) -> AbstractContextManager[dict[str, int]]:
    """All agents behind real sockets of this process; their ports by name."""
    agents = federation.agents.items()
    return listening({name: agent_app(agent, application, engine) for name, agent in agents})


@contextmanager
def listening(apps: Mapping[str, Any]) -> Iterator[dict[str, int]]:
    """Applications behind real sockets of this process; their ports by name."""
    servers, ports = [], {}
    for name, app in apps.items():
        bound = socket.socket()
        bound.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, log_level="error", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        servers.append((server, thread, bound))
        ports[name] = bound.getsockname()[1]
    deadline = time.monotonic() + 20
    while not all(server.started for server, _, _ in servers) and time.monotonic() < deadline:
        time.sleep(0.01)
    try:
        yield ports
    finally:
        for server, thread, bound in servers:
            server.should_exit = True
            thread.join(20)
            bound.close()
