"""Malformed, replayed and forged requests: 4xx with a reason, and nothing is stored."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sql
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.service.pairs import experiment_of
from tests.service.served import ADMIN, TIMING, TOKEN, Joined, Threads, served

from tacit.aggregation.encryption import HpkeSuite
from tacit.aggregation.two_servers import ReportSlot, split
from tacit.service import schema
from tacit.service.http import connections
from tacit.service.http.calls import CALL, SIGNATURE, CallHeader, new_call, sign_call
from tacit.service.http.problems import TYPES
from tacit.service.party import ServerParty
from tacit.signatures import Signed, sign
from tacit.terms import StatedGuarantee, cosign

EVERY = (
    "not_a_server_error,status_code_conformance,content_type_conformance,unsupported_method,"
    "response_schema_conformance,response_headers_conformance,negative_data_rejection,"
    "missing_required_header,ignored_auth"
)
"""All checks but that what the schema allows is welcome: definitions and terms are texts to it."""
REJECTIONS = """
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 429]
"""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Threads]:
    with served(tmp_path_factory.mktemp("hostile")) as made:
        yield made


@pytest.fixture(scope="module")
def digest(servers: Threads) -> bytes:
    return servers.begin()


@pytest.fixture(scope="module")
def joined(servers: Threads, digest: bytes) -> Joined:
    return servers.place(digest)


def rows(party: ServerParty) -> dict[str, int]:
    """The number of rows in tables that requests can grow."""
    with party.store.begin() as transaction:
        rows = transaction.rows
        kept = (schema.terms, schema.shares, schema.joins, schema.spent, schema.served)
        return {one.name: rows(sql.select(sql.func.count()).select_from(one))[0][0] for one in kept}


def assert_problem(said: httpx.Response) -> None:
    """A problem document of the type of its status."""
    name, title = TYPES[said.status_code]
    assert said.headers["content-type"] == "application/problem+json"
    found = said.json()
    assert (found["type"], found["title"]) == (f"/problems/{name}", title)
    assert (found["status"], found["detail"]) == (said.status_code, found["error"])


# Reports


@pytest.mark.parametrize("role", [0, 1])
def test_a_truncated_report_is_rejected_and_not_stored(
    servers: Threads, digest: bytes, joined: Joined, role: int
) -> None:
    pinned = servers.pinned(digest)
    halves = split(pinned, joined.announcement, joined.place, [1])
    half = halves[role]
    forged = ReportSlot(joined.place.number, bytes(16))
    elsewhere = ReportSlot(joined.place.number + 1, joined.place.token)
    before = rows(servers.parties[role])
    for what, body in {
        "empty": b"",
        "cut": half[:-1],
        "noise": os.urandom(len(half)),
        "altered": half[:3] + bytes((half[3] ^ 1,)) + half[4:],
        "the other server's": halves[1 - role],
        "without its token": split(pinned, joined.announcement, forged, [1])[role],
        "of another place": split(pinned, joined.announcement, elsewhere, [1])[role],
    }.items():
        said = servers.put(role, joined.path, body)
        assert said.status_code == 422, (what, said.text)
        assert_problem(said)
    for longer in (half + b"x", b"x" * 5000):
        said = servers.put(role, joined.path, longer)
        assert (said.status_code, f"exactly {len(half)} bytes" in said.text) == (413, True)
        assert_problem(said)
    assert rows(servers.parties[role]) == before


def test_a_report_is_bound_to_its_slot_and_round(
    servers: Threads, digest: bytes, joined: Joined
) -> None:
    half = split(servers.pinned(digest), joined.announcement, joined.place, [1])[0]
    name = joined.round.identity.hex()
    for path, status in {
        f"/rounds/{name}/reports/{joined.place.number + 1}": 422,
        f"/rounds/{name}/reports/{1 << 40}": 422,
        f"/rounds/{name}/reports/-1": 422,
        f"/rounds/{name}/reports/zero": 422,
        f"/rounds/{name.upper()}x/reports/0": 422,
        f"/rounds/{'0' * 32}/reports/{joined.place.number}": 404,
        f"/rounds/{name}/reports": 404,
    }.items():
        assert servers.put(0, path, half).status_code == status, path


# Joining


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"nonce": 5}',
        b'{"nonce": "00"}',
        b'{"nonce": "' + b"g" * 32 + b'"}',
        b'{"nonce": "' + b"A" * 32 + b'"}',
        b'{"nonce": "' + b"0" * 32 + b'", "more": 1}',
        b'{"nonce": "' + b"0" * 32 + b'", "invitation": 7}',
        b'{"nonce": "' + b"0" * 32 + b'", "invitation": "' + b"x" * 3000 + b'"}',
        b'{"nonce": "\\ud800"}',
        b"\xff\xfe",
        b"[" * 4_000,
        b'{"nonce": ' + b"9" * 4000 + b"}",
    ],
)
def test_malformed_joins_get_no_slot(
    servers: Threads, digest: bytes, joined: Joined, body: bytes
) -> None:
    del joined  # there are places
    before = rows(servers.coordinator)
    headers = {"content-type": "application/json"}
    path = f"/experiments/{digest.hex()}/places"
    said = servers.post(0, path, content=body, headers=headers)
    assert said.status_code == 422
    assert_problem(said)
    assert rows(servers.coordinator) == before


def test_rejections_do_not_repeat_the_request(servers: Threads, digest: bytes) -> None:
    path, secret = f"/experiments/{digest.hex()}/places", "my-secret-invitation"
    for body in ({"nonce": secret}, {"nonce": "0" * 32, secret: secret, "invitation": [secret]}):
        said = servers.post(0, path, json=body)
        assert said.status_code == 422
        assert secret not in said.text


def test_a_problem_names_the_field_and_the_rule(servers: Threads, digest: bytes) -> None:
    path = f"/experiments/{digest.hex()}/places"
    for body, said in {
        b"{}": "Request validation failed: `nonce` is required.",
        b'{"nonce": 5}': "Request validation failed: `nonce` must be a valid string.",
        b"{": "Request validation failed: `body` must be valid JSON.",
        b'{"nonce": "' + b"0" * 32 + b'", "x": 1}': "`body` must not have unknown fields.",
    }.items():
        found = servers.post(0, path, content=body, headers={"content-type": "application/json"})
        assert found.json()["detail"].endswith(said)
    untyped = servers.post(0, path, content=b"{}").json()["detail"]
    assert "a JSON object, sent with `Content-Type: application/json`" in untyped


def test_an_unknown_experiment_cannot_be_joined(servers: Threads) -> None:
    asked = {"nonce": "0" * 32}
    assert servers.post(0, f"/experiments/{'0' * 64}/places", json=asked).status_code == 404
    assert servers.post(0, "/experiments/short/places", json=asked).status_code == 422
    assert servers.post(1, f"/experiments/{'0' * 64}/places", json=asked).status_code == 404


# Signatures


def helper_calls(digest: bytes, joined: Joined) -> dict[str, dict[str, Any]]:
    name = f"/rounds/{joined.round.identity.hex()}"
    described = joined.round.encode()
    return {
        f"{name}/keys": {"experiment": digest.hex(), "sealing": int(joined.round.suite)},
        f"{name}/description": {
            "experiment": digest.hex(),
            "description": described.hex(),
            "signature": joined.announcement[len(described) :][:64].hex(),
        },
        f"{name}/exchange": {"listing": ""},
    }


def called(
    servers: Threads, named: bytes, asked: str, body: bytes, **changed: Any
) -> dict[str, str]:
    """The headers of a call by the coordinator, with other fields than the right ones."""
    method, key = changed.pop("method", "POST"), changed.pop("key", servers.members[0].key)
    path = changed.pop("path", asked)
    header = CallHeader.of(named, body, int(time.time()), os.urandom(16))
    return sign_call(path, replace(header, **changed), key, method)


def test_the_helper_answers_the_coordinator_only(
    servers: Threads, digest: bytes, joined: Joined
) -> None:
    stranger, helper = Ed25519PrivateKey.generate(), servers.members[1].key
    for path, asked in helper_calls(digest, joined).items():
        body = json.dumps(asked).encode()
        make = partial(called, servers, digest, path, body)
        right = make()
        for what, headers, status in (
            ("right", right, 200),
            ("replayed", right, 403),
            ("no signature", {CALL: right[CALL]}, 422),
            ("no header", {SIGNATURE: right[SIGNATURE]}, 422),
            ("a short signature", right | {SIGNATURE: "00"}, 422),
            ("a short header", right | {CALL: "00"}, 422),
            ("a stranger's", make(key=stranger), 403),
            ("the helper's", make(key=helper), 403),
            ("another method's", make(method="GET"), 403),
            ("another path's", make(path=path + "/"), 403),
            ("another header's", right | {CALL: make()[CALL]}, 403),
            ("another experiment's", make(experiment=bytes(32)), 404),
            ("another digest", make(digest=bytes(32)), 403),
            ("a smaller length", make(length=len(body) - 1), 413),
            ("a larger length", make(length=len(body) + 1), 422),
            ("too large a length", make(length=(1 << 26) + 1), 413),
            ("an old call", make(time=int(time.time()) - 310), 503),
            ("a call of later", make(time=int(time.time()) + 310), 503),
        ):
            said = servers.post(
                1, path, content=body, headers=headers | {"content-type": "application/json"}
            )
            assert said.status_code == status, (path, what, said.text)
            if status != 200:
                assert_problem(said)


def test_a_call_for_another_experiment_is_rejected(
    servers: Threads, digest: bytes, joined: Joined
) -> None:
    other = servers.begin(question="Another one?")
    for path, asked in helper_calls(digest, joined).items():
        body = json.dumps(asked).encode()
        headers = called(servers, other, path, body) | {"content-type": "application/json"}
        said = servers.post(1, path, content=body, headers=headers)
        assert (said.status_code, "experiment of the round" in said.text) == (403, True)


def test_a_call_about_another_round_than_its_path_is_rejected(
    servers: Threads, digest: bytes, joined: Joined
) -> None:
    asked = helper_calls(digest, joined)[f"/rounds/{joined.round.identity.hex()}/description"]
    path, body = f"/rounds/{'1' * 32}/description", json.dumps(asked).encode()
    headers = new_call(path, digest, body, servers.members[0].key)
    said = servers.post(
        1, path, content=body, headers=headers | {"content-type": "application/json"}
    )
    assert (said.status_code, "the round in the path" in said.text) == (422, True)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"grace": (1 << 32) - 1}, "grace of the round is 4294967295"),
        ({"suite": HpkeSuite.X25519}, "suite of the round is"),
    ],
)
def test_the_helper_rejects_a_longer_grace_and_another_suite(
    servers: Threads, digest: bytes, joined: Joined, changed: dict[str, Any], reason: str
) -> None:
    owner, identity = servers.members[0].key, os.urandom(16)

    def call(what: str, asked: dict[str, Any]) -> httpx.Response:
        path, body = f"/rounds/{identity.hex()}/{what}", json.dumps(asked).encode()
        headers = new_call(path, digest, body, owner) | {"content-type": "application/json"}
        return servers.post(1, path, content=body, headers=headers)

    number = int(changed.get("suite", joined.round.suite))
    made = call("keys", {"experiment": digest.hex(), "sealing": number})
    assert made.status_code == (422 if "suite" in changed else 200)
    described = replace(joined.round, identity=identity, **changed)
    if made.status_code == 200:
        keys = bytes.fromhex(made.json()["keys"])
        described = replace(described, servers=(described.servers[0], keys))
    description = described.encode()
    said = call(
        "description",
        {
            "experiment": digest.hex(),
            "description": description.hex(),
            "signature": sign(Signed.ROUND, description, owner).hex(),
        },
    )
    assert said.status_code == 422
    assert reason in said.text
    assert identity not in {row.identity for row in servers.helper.rounds(*schema.LIVE)}


def test_only_the_helpers_signature_activates_terms(servers: Threads) -> None:
    terms = servers.terms(("a", "b", "c"), question="Signed by whom?")
    name = servers.coordinator.create(terms, experiment_of(options=("a", "b", "c")), TIMING).hex()
    path = f"/experiments/{name}/cosignature"
    own = cosign(terms, servers.members[0].key).hex()
    for forged in ("0" * 128, own):
        assert servers.post(0, path, json={"signature": forged}).status_code == 422
    said = servers.get(0, f"/experiments/{name}/terms").json()
    assert (said["state"], said["signatures"]) == ("unsigned", [own])
    assert servers.ask(bytes.fromhex(name)).status_code == 409


def test_the_helper_rejects_terms_that_it_did_not_sign(servers: Threads, digest: bytes) -> None:
    terms = servers.pinned(digest).terms
    foreign = replace(terms, question="Foreign?")
    weaker = replace(terms, predecessor=digest, guarantee=StatedGuarantee(Fraction(2)))
    keys = [one.key for one in servers.members]
    before = rows(servers.helper)
    for offered, signatures in (
        (foreign, ["0" * 128, "0" * 128]),
        (foreign, [cosign(foreign, keys[0]).hex()] * 2),
        (weaker, [cosign(weaker, key).hex() for key in keys]),
    ):
        asked = {"terms": offered.encode().decode(), "signatures": signatures}
        assert servers.post(1, "/experiments", json=asked).status_code == 401
        said = servers.post(1, "/experiments", json=asked, headers=ADMIN)
        assert said.status_code == 422, said.text
    assert rows(servers.helper) == before


# Everything that the documents allow, and more


def test_unknown_paths_and_methods_are_problem_documents(servers: Threads) -> None:
    for role in (0, 1):
        for path in ("/", "/nowhere", "/experiments/", "/docs", "/redoc", "//", "/%00", "/.git"):
            if (role, path) == (0, "/"):
                continue  # the coordinator's page
            said = servers.get(role, path)
            assert said.status_code == 404
            assert_problem(said)
        said = servers.client.delete(servers.urls[role] + "/experiments")
        assert said.status_code == 405
        assert "GET" in said.headers["allow"]


def test_the_openapi_documents_describe_every_response(servers: Threads) -> None:
    for role in (0, 1):
        document = servers.get(role, "/openapi.json").json()
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                numbers = set(operation["responses"])
                assert {"413", "422", "429", "500", "503"} <= numbers, (method, path)
                secured = "admin" in operation["tags"]
                assert ("401" in numbers) == ("security" in operation) == secured, path
                for number in numbers & {str(known) for known in TYPES}:
                    (content,) = operation["responses"][number]["content"].items()
                    named = content[1]["schema"]["properties"]["type"]["const"]
                    problem_type = f"/problems/{TYPES[int(number)][0]}"
                    assert (content[0], named) == ("application/problem+json", problem_type)


def schemathesis(url: str, directory: Path, *words: str) -> str:
    """What it finds: nothing, where it ends with 0."""
    command = [sys.executable, "-m", "schemathesis.cli"]
    directory.mkdir(exist_ok=True)
    config = directory / "schemathesis.toml"
    with config.open("a") as file:
        file.write(REJECTIONS)
    done = subprocess.run(
        [*command, f"--config-file={config}", "run", f"{url}/openapi.json", "--no-color", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.extended
@pytest.mark.parametrize("role", [0, 1])
def test_unauthenticated_requests_get_documented_responses_only(
    servers: Threads, tmp_path: Path, role: int
) -> None:
    found = schemathesis(servers.urls[role], tmp_path, "--phases=coverage", "--seed=1")
    assert found == ""


@pytest.mark.slow
@pytest.mark.parametrize("role", [0, 1])
def test_authenticated_requests_get_documented_responses_only(
    servers: Threads, digest: bytes, joined: Joined, tmp_path: Path, role: int
) -> None:
    (tmp_path / "schemathesis.toml").write_text(
        f'[parameters]\n"path.digest" = "{digest.hex()}"\n'
        f'"path.identity" = "{joined.round.identity.hex()}"\n'
    )
    found = schemathesis(
        servers.urls[role],
        tmp_path,
        "--phases=coverage,fuzzing",
        "--max-examples=30",
        f"--header=Authorization: Bearer {TOKEN}",
        f"--checks={EVERY}",
    )
    assert found == ""


def test_malformed_http_is_answered_and_the_next_request_served(servers: Threads) -> None:
    host, port = servers.urls[0].removeprefix("http://").split(":")
    negative = b"PUT /x HTTP/1.1\r\nContent-Length: -5\r\n\r\n"
    for nonsense in (b"\x00\xff\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", negative):
        with socket.create_connection((host, int(port)), timeout=30) as line:
            line.sendall(nonsense)
            said = line.recv(2000)
            assert said.startswith(b"HTTP/1.1 400 ")  # by uvicorn, in plain text
    assert servers.get(0, "/healthz").status_code == 200


HEAD = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"


@pytest.mark.parametrize(
    "head",
    [
        [HEAD + b"A: " + b"x" * connections.LARGEST + b"\r\n\r\n"],
        [HEAD + b"A: x\r\n" * (connections.LARGEST // 2) + b"\r\n"],
        [HEAD + b"A: ", *[b"x" * 4096] * (connections.LARGEST // 4096)],
        [b"GET /" + b"x" * connections.LARGEST + b" HTTP/1.1\r\n\r\n"],
    ],
)
def test_oversized_headers_are_rejected(servers: Threads, head: list[bytes]) -> None:
    """Whole, in many, in parts without an end, or a path."""
    host, port = servers.urls[0].removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as line:
        for part in head:
            line.sendall(part)
        said = line.recv(2000)
        while b"must have at most" not in said and (more := line.recv(2000)):
            said += more
    assert said.startswith(b"HTTP/1.1 431 ")
    assert b"application/problem+json" in said
    assert b"must have at most" in said
    small = HEAD + b"A: " + b"x" * (connections.LARGEST - 200) + b"\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=30) as line:
        line.sendall(small)
        assert line.recv(1000).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("begun", [b"", b"GET /heal", HEAD[:-1]])
def test_a_stalled_request_times_out(
    servers: Threads, begun: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SLOWEST", 0.2)
    host, port = servers.urls[0].removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as line:
        line.sendall(begun)
        assert line.recv(100) == b""
