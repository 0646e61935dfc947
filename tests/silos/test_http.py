"""The agent over local HTTP: tokens, problems, decisions; and the relay of an engine."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.silos.harness import LocalFederation, serving

from tacit.errors import Rejected, TacitError, Unavailable
from tacit.silos.application import AgentClient
from tacit.silos.exchange import InProcessExchange
from tacit.silos.http import agent_app
from tacit.silos.relay import AgentRelay

APPLICATION, ENGINE = "application", "engine"


class Caller:
    """Requests to the first silo's agent, with a token."""

    def __init__(self, federation: LocalFederation, token: str) -> None:
        self.app = agent_app(federation.agents["silo0"], APPLICATION, ENGINE)
        self.headers = {"authorization": f"Bearer {token}"}

    def post(self, path: str, **body: Any) -> httpx.Response:
        return asyncio.run(self._ask("POST", path, body))

    def get(self, path: str) -> httpx.Response:
        return asyncio.run(self._ask("GET", path, {}))

    async def _ask(self, method: str, path: str, body: dict[str, Any]) -> httpx.Response:
        way = httpx.ASGITransport(app=self.app)
        async with httpx.AsyncClient(transport=way, base_url="http://agent") as client:
            return await client.request(method, path, headers=self.headers, **body)


def test_an_application_requests_decisions_and_records_outcomes() -> None:
    federation = LocalFederation.of(3)
    client = Caller(federation, APPLICATION)
    early = client.post("/decide", json={"context": {"age": 50, "severe": True}})
    assert early.status_code == 503
    assert "no policy has arrived" in early.json()["detail"]
    federation.coordinator().deliver()
    made = client.post("/decide", json={"context": {"age": 50, "severe": True}})
    assert made.status_code == 200
    decision = made.json()
    assert set(decision) == {"id", "action", "estimate", "width"}
    assert client.post("/record", json={"id": decision["id"], "outcome": 1}).status_code == 204
    assert client.get("/status").json()["waiting"] == 1
    assert client.get("/policy").json()["format"] == 1


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/decide", {"context": {"age": 50}}, "context lacks severe"),
        ("/decide", {"context": {"age": "old", "severe": True}}, "age is 'old'"),
        ("/decide", {"context": {"age": 50, "severe": True}, "more": 1}, "no other members"),
        ("/decide", {"context": [1, 2]}, "must be an object"),
        ("/decide", [], "object"),
        ("/record", {"id": "none", "outcome": 1}, "must be one that decide returned"),
        ("/record", {"id": 3, "outcome": 1}, "texts"),
        ("/record", {"id": "none", "outcome": "good"}, "must be a number"),
    ],
)
def test_invalid_requests_name_the_field_and_the_rule(path: str, body: object, told: str) -> None:
    federation = LocalFederation.of(3)
    federation.coordinator().deliver()
    answer = Caller(federation, APPLICATION).post(path, json=body)
    assert answer.status_code == 422
    assert told in answer.json()["detail"]


def test_a_request_of_many_brackets_is_no_document() -> None:
    answer = Caller(LocalFederation.of(3), APPLICATION).post("/decide", content=b"[" * 100_000)
    assert answer.status_code == 422
    assert "not a JSON document" in answer.json()["detail"]


def test_each_token_authorises_its_own_routes_only() -> None:
    federation = LocalFederation.of(3)
    engine, application, nobody = (Caller(federation, t) for t in (ENGINE, APPLICATION, "other"))
    for client in (engine, nobody):
        assert client.get("/status").status_code == 401
        assert client.post("/decide", json={}).status_code == 401
    for client in (application, nobody):
        assert client.post("/respond/POLICY", content=b"x").status_code == 401
    rejected = engine.post("/respond/POLICY", content=b"x" * 200)
    assert rejected.status_code == 409


@pytest.fixture
def served() -> Iterator[tuple[LocalFederation, dict[str, AgentRelay]]]:
    """Three agents behind real sockets."""
    federation = LocalFederation.of(3)
    with serving(federation, APPLICATION, ENGINE) as ports:
        yield federation, {n: AgentRelay("127.0.0.1", port, ENGINE) for n, port in ports.items()}


def test_a_synchronisation_runs_through_relays(
    served: tuple[LocalFederation, dict[str, AgentRelay]],
) -> None:
    federation, relays = served
    exchange = InProcessExchange({name: lambda n=name: relays[n] for name in relays})  # type: ignore[misc]
    coordinator = federation.coordinator(exchange)
    coordinator.deliver()
    federation.play(3, np.random.default_rng(1))
    coordinator.synchronise()
    assert coordinator.step == 1
    with pytest.raises(Rejected, match="see its log"):
        relays["silo0"].respond("POLICY", b"x" * 200)


def test_an_application_learns_of_a_wrong_token_or_agent(tmp_path: Path) -> None:
    token = tmp_path / "application-token"
    with pytest.raises(TacitError, match=r"application-token, which cannot be read .* name the"):
        AgentClient(1, token)
    token.write_text("another", encoding="utf-8")
    with serving(LocalFederation.of(3), APPLICATION, ENGINE) as ports:
        port = ports["silo0"]
        client = AgentClient(port, token)
        with pytest.raises(TacitError, match=rf"127.0.0.1:{port} rejects its token. Name the"):
            client.status()
        client.close()
    with pytest.raises(Unavailable, match=r"does not answer .* tacit silo serve"):
        AgentClient(free_port(), token).status()


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def test_a_relay_without_its_agent_reports_it() -> None:
    port = free_port()
    with pytest.raises(Unavailable, match="tacit silo serve"):
        AgentRelay("127.0.0.1", port, ENGINE).respond("POLICY", b"")
