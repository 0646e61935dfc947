"""Both parties over HTTP, as devices and operators meet them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
from tests.service.served import ADMIN, Threads, served, wait_for

from tacit.aggregation.two_servers import RoundOutcome, read_outcome, split
from tacit.terms import in_words


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Threads]:
    with served(tmp_path_factory.mktemp("served")) as made:
        yield made


def test_an_experiment_runs_from_terms_to_estimates_over_http(servers: Threads) -> None:
    digest = servers.begin()
    name = digest.hex()
    pinned = servers.pinned(digest)
    for role in (0, 1):
        listed = servers.get(role, "/experiments").json()
        assert {"digest": name, "question": pinned.terms.question, "state": "running"} in listed
        words = servers.get(role, f"/experiments/{name}/words")
        assert words.text.splitlines() == in_words(pinned.terms)
    came = servers.hold(digest, lambda option: int(option == "friendly"))
    identities = {joined.round.identity for joined in came}
    wait_for(lambda: servers.status(digest)["people"]["reported"] >= 39 * len(identities))
    rounds = servers.status(digest)["rounds"]
    stages = {one["stage"] for one in rounds if bytes.fromhex(one["round"]) in identities}
    assert stages == {"opened"}
    estimates = servers.get(0, f"/experiments/{name}/estimates", headers=ADMIN).json()
    means = {one["option"]: one["mean"] for one in estimates["options"]}
    assert max(means, key=lambda option: means[option]) == "friendly"
    assert servers.get(0, f"/experiments/{name}/export", headers=ADMIN).json()["history"]


def test_identical_requests_are_idempotent_and_others_rejected(servers: Threads) -> None:
    digest = servers.begin(question="Again?")
    pinned, joined = servers.pinned(digest), servers.place(digest)
    assert servers.join(digest, b"n" * 16) == servers.join(digest, b"n" * 16)
    shares = split(pinned, joined.announcement, joined.place, [1])
    others = split(pinned, joined.announcement, joined.place, [1])
    for role in (0, 1):
        assert [servers.put(role, joined.path, shares[role]).status_code for _ in "12"] == [
            204,
            204,
        ]
        rejected = servers.put(role, joined.path, others[role])
        assert rejected.status_code == 409
        assert "a different report" in rejected.json()["error"]


def test_an_outcome_is_available_after_the_round(servers: Threads) -> None:
    digest = servers.begin(question="Over?")
    pinned, joined = servers.pinned(digest), servers.place(digest)
    path = f"/rounds/{joined.round.identity.hex()}/outcome"
    early = servers.get(0, path)
    assert (early.status_code, early.headers["retry-after"]) == (425, "5")
    unknown = servers.get(1, f"/rounds/{'0' * 32}/outcome")
    assert unknown.status_code == 200
    servers.report(pinned, joined, 0)
    servers.hold(digest, lambda _option: 0)
    for role in (0, 1):
        wait_for(partial(servers.found, role, path))
        said = servers.get(role, path).content
        assert read_outcome(pinned, joined.round, said) == (role, RoundOutcome.RELEASED)
        half = split(pinned, joined.announcement, joined.place, [0])[role]
        assert servers.put(role, joined.path, half).status_code in (404, 410)


def test_the_admin_pauses_resumes_and_stops_an_experiment(servers: Threads) -> None:
    name = servers.begin(question="Stop?").hex()
    states = []
    for what in ("pause", "pause", "resume", "stop", "resume"):
        said = servers.post(0, f"/experiments/{name}/{what}", headers=ADMIN)
        states.append(
            (said.status_code, servers.get(0, f"/experiments/{name}/terms").json()["state"])
        )
    assert states == [
        (204, "paused"),
        (204, "paused"),
        (204, "running"),
        (204, "stopped"),
        (409, "stopped"),
    ]


@pytest.mark.parametrize("token", [None, "Bearer wrong-token-of-this-test", "Basic abc", "Bearer"])
def test_without_the_token_admin_requests_are_rejected(servers: Threads, token: str | None) -> None:
    name = servers.begin(question="Whose?").hex()
    headers = {} if token is None else {"Authorization": token}
    for method, what in (
        ("POST", "pause"),
        ("POST", "resume"),
        ("POST", "stop"),
        ("GET", "status"),
        ("GET", "estimates"),
        ("GET", "export"),
    ):
        url = f"{servers.urls[0]}/experiments/{name}/{what}"
        said = servers.client.request(method, url, headers=headers)
        assert said.status_code == 401, what
        assert said.headers["www-authenticate"] == "Bearer"
    assert servers.post(1, "/experiments", json={}, headers=headers).status_code in (401, 422)
    assert servers.get(0, f"/experiments/{name}/terms").json()["state"] == "running"


def test_both_parties_report_their_health(servers: Threads) -> None:
    for role in (0, 1):
        for path in ("/healthz", "/readyz"):
            assert servers.get(role, path).json() == {"status": "ok"}
        assert "tacit_rounds" in servers.get(role, "/metrics").text


@pytest.mark.extended
def test_an_idle_connection_outlives_the_clients_keep_alive(servers: Threads) -> None:
    kept_for = httpx.Limits(max_connections=1).keepalive_expiry
    assert kept_for == 5.0  # httpx's own
    with httpx.Client(limits=httpx.Limits(keepalive_expiry=60.0), timeout=30) as client:
        ports = set()
        for pause in (0.0, kept_for + 0.5):
            time.sleep(pause)
            answer = client.get(f"{servers.urls[0]}/healthz").raise_for_status()
            stream = answer.extensions["network_stream"]
            ports.add(stream.get_extra_info("client_addr")[1])
    assert len(ports) == 1


def test_a_party_without_its_database_is_not_ready(tmp_path: Path) -> None:
    with served(tmp_path) as alone:
        assert alone.get(1, "/readyz").status_code == 200
        for file in (tmp_path / "helper").glob("helper.db*"):
            file.unlink()
        (tmp_path / "helper" / "helper.db").mkdir()
        alone.helper.store.engine.dispose()
        said = alone.get(1, "/readyz")
        assert (said.status_code, said.headers["retry-after"]) == (503, "1")
        assert alone.get(1, "/healthz").status_code == 200
