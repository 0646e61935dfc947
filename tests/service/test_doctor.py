"""The doctor: correct and broken checks of parties served on loopback."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from email.utils import formatdate
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cli.commands import Command, rejected
from tests.cli.conftest import command as command
from tests.service.pairs import experiment_of
from tests.service.served import TIMING, Threads, member, running, served

from tacit.service.doctor import BROKEN, OK, WARNING, Finding, examine, examine_files
from tacit.service.http.serve import application
from tacit.signatures import fingerprint
from tacit.terms import cosign


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Threads]:
    with served(tmp_path_factory.mktemp("doctor"), rate=50, burst=500) as made:
        made.begin()
        yield made


@contextmanager
def proxied(target: str, **broken: Any) -> Iterator[str]:
    """A proxy that alters the given parts."""

    class Proxy(http.server.BaseHTTPRequestHandler):
        def pass_on(self) -> None:
            sent = self.rfile.read(int(self.headers.get("content-length", 0)))
            keep = ("origin", "authorization", "content-type")
            headers = {k: v for k, v in self.headers.items() if k.lower() in keep}
            headers |= broken.get("asks", {})
            answer = client.request(self.command, target + self.path, content=sent, headers=headers)
            given = {k: v for k, v in answer.headers.items() if k not in broken.get("drops", ())}
            given |= broken.get("adds", {})
            self.send_response_only(broken.get("statuses", {}).get(self.path, answer.status_code))
            for name, value in given.items():
                if name not in ("transfer-encoding", "content-length"):
                    self.send_header(name, value)
            self.send_header("content-length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_POST = pass_on  # noqa: N815 - as the server wants them

        def log_message(self, *_words: object) -> None:
            """Nothing."""

    client = httpx.Client(timeout=30)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
        client.close()


def states(found: list[Finding], where: str) -> dict[str, str]:
    return {one.what: one.state for one in found if one.where == where}


def test_a_correct_deployment_has_no_broken_checks(servers: Threads) -> None:
    pins = [servers.keys[0].hex(), fingerprint(servers.keys[1])]
    found = examine([servers.urls[0]], pins, metrics_meant=True)
    assert [one for one in found if one.state == BROKEN] == []
    for url in servers.urls:  # the helper was found through the terms
        seen = states(found, url)
        assert seen.pop("TLS") == WARNING
        assert set(seen.values()) == {OK}
        assert {"reachable", "version", "ready", "clock", "admin closed", "headers", "CORS"} < set(
            seen
        )
    assert states(found, "coordinator's key") == states(found, "helper's key") == {"pinned": OK}
    assert [one.state for one in found if one.where.startswith("terms")] == [OK]
    assert states(found, "both") == {"apart": WARNING}


def test_public_metrics_are_a_warning_unless_intended(servers: Threads) -> None:
    assert states(examine([servers.urls[0]]), servers.urls[0])["metrics"] == WARNING
    found = examine([servers.urls[0]], metrics_meant=True)
    assert states(found, servers.urls[0])["metrics"] == OK


@pytest.mark.extended
@pytest.mark.parametrize(
    ("limits", "state"),
    [
        ({"rate": 5, "burst": 20}, OK),
        ({"rate": 5, "behind_proxy": True}, BROKEN),
        ({"rate": 5, "address_header": "X-Real-IP"}, BROKEN),  # clients write it
        ({"rate": 5, "address_header": "X-Elsewhere"}, BROKEN),  # nobody writes it
        ({"rate": 0}, BROKEN),
    ],
)
def test_a_party_without_rate_limits_is_broken(
    tmp_path: Path, limits: dict[str, Any], state: str
) -> None:
    told = member(tmp_path, "helper", **limits)
    assert told.bound is not None
    with running(application(told.config), told.bound):
        assert states(examine([told.url]), told.url)["limits"] == state


@pytest.mark.extended
@pytest.mark.parametrize(
    ("broken", "what", "state"),
    [
        ({"adds": {"date": formatdate(0, usegmt=True)}}, "clock", BROKEN),
        ({"drops": ("date",)}, "clock", WARNING),
        ({"drops": ("content-security-policy",)}, "headers", WARNING),
        ({"adds": {"access-control-allow-credentials": "true"}}, "CORS", BROKEN),
        ({"adds": {"access-control-allow-origin": "*"}}, "CORS", BROKEN),
        ({"statuses": {"/readyz": 503}}, "ready", BROKEN),
        ({"statuses": {"/healthz": 502}}, "reachable", BROKEN),
        (
            {"asks": {"Authorization": "Bearer an-admin-token-of-these-tests"}},
            "admin closed",
            BROKEN,
        ),
    ],
)
def test_defects_of_a_proxy_are_detected(
    servers: Threads, broken: dict[str, Any], what: str, state: str
) -> None:
    with proxied(servers.urls[0], **broken) as url:
        found = examine([url])
        assert states(found, url)[what] == state
        assert all(one.fix for one in found if one.state != OK)


def test_keys_other_than_the_pinned_ones_are_broken(servers: Threads) -> None:
    found = examine([servers.urls[1]], ["ab" * 32, servers.keys[0].hex()])
    assert states(found, "helper's key") == {"pinned": BROKEN}
    assert states(found, "coordinator's key") == {"pinned": OK}
    assert {one.state for one in examine([servers.urls[1]]) if one.what == "pinned"} == {WARNING}


@pytest.mark.extended
def test_terms_at_one_party_only_are_broken(tmp_path: Path) -> None:
    with served(tmp_path) as alone:
        experiment = experiment_of()
        terms = alone.terms(experiment.options)
        digest = alone.coordinator.create(terms, experiment, TIMING)

        def signed(**how: Any) -> list[str]:
            found = examine([alone.urls[0]], **how)
            return [one.state for one in found if one.what == "signed"]

        assert signed() == [WARNING]
        alone.coordinator.cosign(digest, cosign(terms, alone.members[1].key))
        assert signed() == [BROKEN]
        assert signed(today=terms.last_day + timedelta(days=1)) == [OK]


def test_an_address_that_is_no_party_is_broken(command: Command) -> None:
    code, out, err = command("doctor", "http://127.0.0.1:9")
    assert (code, err) == (1, "")
    assert "start it with tacit serve" in " ".join(out.split())
    assert "64 hexadecimal digits" in rejected(command("doctor", "http://x", "--pin", "zz"))


def test_the_operator_learns_who_can_read_the_key_files(servers: Threads, command: Command) -> None:
    member = servers.members[0]
    assert {one.state for one in examine_files(member.config)} == {OK}
    words = ("doctor", servers.urls[0], "--config", member.path)
    code, out, _ = command(*words)
    assert code == 0
    assert "exclude the key files" in out
    member.config.records.chmod(0o755)
    try:
        assert command(*words)[0] == 1
    finally:
        member.config.records.chmod(0o700)
