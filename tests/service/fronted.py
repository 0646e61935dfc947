"""Parties of any trust model behind their HTTP applications, in one process without sockets.

Requests pass the middleware, routes and group commits of the real applications. The test calls the
steps that a background thread would call, with a clock of its own. Devices are real ones, each with
a ledger.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.service.deployed import ADDRESSES, KEYS, Deployed, definition_of
from tests.service.served import ADMIN, member

from tacit.client import Acceptance, Device, Ledger, Pins
from tacit.client.trust_models import REPORTERS
from tacit.client.trust_models.masking import MaskingReporter
from tacit.service.config import PartyConfig
from tacit.service.definition import Definition
from tacit.service.http import apps, helper_client, stages
from tacit.service.http.driver import Driver
from tacit.service.http.helper_client import HttpHelperClient
from tacit.service.schema import Stage

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the package, about the next version of its client
    from starlette.testclient import TestClient

MODELS: dict[str, dict[str, Any]] = {
    "local": {"trust": "local", "epsilon": Fraction(2)},
    "shuffler": {
        "trust": "shuffler",
        "epsilon": Fraction(8),
        "delta": Fraction(1, 10),
        "missing": Fraction(0),
        "dishonest": Fraction(0),
    },
    "secure-aggregation": {"trust": "secure-aggregation", "epsilon": Fraction(8), "levels": 16},
    "two-servers": {"trust": "two-servers", "epsilon": Fraction(8), "levels": 16},
    "proofs": {"trust": "two-servers", "epsilon": Fraction(8), "levels": 16, "proofs": True},
}


def small(model: str, **changed: Any) -> Definition:
    """The smallest experiment of a trust model."""
    about = {"min_batch_size": 2, "dropout": 0, "participants": None} | MODELS[model]
    return definition_of(**about | changed)


class StillDriver(Driver):
    """No background thread: the test takes the steps."""

    @property
    def alive(self) -> bool:
        return True

    def start(self) -> None: ...

    def stop(self) -> None: ...


class NoLeases:
    """The only process of its party."""

    leading = True

    def __init__(self, *_store: Any) -> None: ...

    def __call__(self, names: Any) -> set[bytes]:
        return set(names)

    def start(self) -> None: ...

    def stop(self) -> None: ...


@dataclass
class Exchanged:
    """A request that a party answered."""

    request: httpx.Request
    status: int


class Router(httpx.BaseTransport):
    """Requests to the applications by host; notes all of them."""

    def __init__(self) -> None:
        self.clients: dict[str, TestClient] = {}
        self.seen: list[Exchanged] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        client = self.clients.get(request.url.host)
        if client is None:
            raise httpx.ConnectError("down", request=request)
        answer = client.request(
            request.method, str(request.url), content=request.content, headers=request.headers
        )
        self.seen.append(Exchanged(request, answer.status_code))
        kept = {k: v for k, v in answer.headers.items() if k != "content-encoding"}
        return httpx.Response(answer.status_code, content=answer.content, headers=kept)


@dataclass
class Fronted(Deployed):
    """A deployed experiment whose messages go through HTTP."""

    router: Router = field(default_factory=Router)
    configs: list[PartyConfig] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)

    def restart(self) -> None:
        """All parties and applications anew."""
        self.down()
        super().restart()
        if not self.configs:
            roles = ("coordinator", "helper")[: len(self.stores)]
            for role in roles:
                told = member(self.directory / role, role)
                self.configs.append(told.config)
                if told.bound is not None:
                    told.bound.close()
        fronts = []
        if self.helper is not None:
            fronts.append(apps.helper_app(self.helper, self.configs[1]))
        link = HttpHelperClient(self.coordinator)
        link._client = httpx.Client(transport=self.router)
        fronts.append(apps.coordinator_app(self.coordinator, self.configs[0], link))
        for host, front in zip(("helper", "coordinator")[-len(fronts) :], fronts, strict=True):
            client = TestClient(front, raise_server_exceptions=False)
            client.__enter__()
            self.router.clients[f"{host}.example"] = client

    def down(self) -> None:
        """Stop the applications."""
        for client in self.router.clients.values():
            client.__exit__(None, None, None)
        self.router.clients.clear()

    def request(self, method: str, url: str, **how: Any) -> httpx.Response:
        """An unauthenticated request."""
        with httpx.Client(transport=self.router) as client:
            return client.request(method, url, **how)

    def device(self) -> Device:
        """A real device that accepts this trust model."""
        helper = None if self.helper is None else KEYS[1].hex()
        made = Device(
            Ledger(":memory:"),
            Pins(ADDRESSES[0], KEYS[0].hex(), helper),
            http=self.router,
            clock=self.clock,
            sleep=lambda _: None,
            accept=Acceptance(obedient_coordinator=True),
        )
        self.devices.append(made)
        return made

    def status(self) -> dict[str, Any]:
        url = f"{ADDRESSES[0]}/experiments/{self.digest.hex()}/status"
        found: dict[str, Any] = self.request("GET", url, headers=ADMIN).json()
        return found

    def wanted(self) -> int:
        """Slots that are free."""
        return sum(row.slots - row.assigned for row in self.coordinator.rounds(Stage.OPEN))

    def close(self) -> None:
        self.down()
        for device in self.devices:
            device.ledger.close()
        super().close()


@contextmanager
def fronted(definition: Definition, directory: Path, **how: Any) -> Iterator[Fronted]:
    """An experiment behind HTTP, closed at the end."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(apps, "Driver", StillDriver)
        patched.setattr(apps, "Leases", NoLeases)
        patched.setattr(helper_client, "SLOW", math.inf)  # a machine may be busy
        patched.setattr(stages, "HELD", stages.LOOKS)
        patched.setattr(stages, "LOOKS", stages.LOOKS / 50)
        patched.setitem(REPORTERS, "masking", MaskingReporter())
        made = Fronted(definition, directory, **how)
        try:
            yield made
        finally:
            made.close()
