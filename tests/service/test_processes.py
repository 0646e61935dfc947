"""Parties as processes: shutdown, kills, and logs without personal data."""

from __future__ import annotations

import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.service.served import ADMIN, TOKEN, Joined, Processes, kept, processes, wait_for

ADDRESS = "203.0.113.77"


@pytest.mark.extended
def test_acknowledged_reports_survive_kills_and_shutdowns(tmp_path: Path) -> None:
    with processes(tmp_path, seed=1) as both:
        people = both.people(both.begin(), 40)
        for number, (joined, shares) in enumerate(people[:4]):
            if number == 2:
                for process in both.processes:
                    process.kill()
                    process.start()
            for role, half in enumerate(shares):
                assert both.put(role, joined.path, half).status_code == 204
            assert (kept(both.coordinator), kept(both.helper)) == (number + 1, number + 1)
        answers: list[int] = []

        def send(person: tuple[Joined, tuple[bytes, bytes]]) -> None:
            try:
                answers.append(both.put(1, person[0].path, person[1][1]).status_code)
            except httpx.HTTPError:
                answers.append(0)

        with ThreadPoolExecutor(8) as participants:
            stopping = threading.Timer(0.05, lambda: both.processes[1].end(signal.SIGTERM))
            stopping.start()
            list(participants.map(send, people))
            stopping.join()
        assert set(answers) <= {204, 503, 0}
        assert kept(both.helper) >= answers.count(204)
        last = json.loads(both.processes[1].log.read_text().splitlines()[-1])
        assert (last["message"], last["role"]) == ("party stopped", "helper")
        assert both.processes[0].end(signal.SIGINT) == 0


@pytest.mark.extended
def test_no_secret_address_or_identifier_is_logged_counted_or_echoed(tmp_path: Path) -> None:
    """With every limit and error on the way, at the most talkative level."""
    told = {"TACIT_LOG_LEVEL": "debug", "TACIT_LIMITS_ADDRESS_HEADER": "X-Real-IP"}
    with processes(tmp_path, environment=told, rate=1, burst=150) as both:
        both.client.headers["X-Real-IP"] = ADDRESS
        digest = both.begin()
        secrets, said = _hostile_day(both, digest)
        assert 429 in {both.ask(digest).status_code for _ in range(200)}
        del both.client.headers["X-Real-IP"]
        said += [both.get(role, "/metrics").text for role in (0, 1)]
        both.processes[1].kill()
        both.begin(question="Is the helper there?")
        wait_for(lambda: "helper is unreachable" in both.processes[0].log.read_text())
        written = [process.log.read_bytes() for process in both.processes]
        written += [one.encode() for one in said]
        for place in (tmp_path / "coordinator", tmp_path / "helper"):
            written += [file.read_bytes() for file in place.rglob("*.db*")]
    for what, secret in secrets.items():
        for text in written:
            assert secret not in text, what


def _hostile_day(both: Processes, digest: bytes) -> tuple[dict[str, bytes], list[str]]:
    """What must not be found anywhere, and everything that was answered."""
    (joined, shares), nonce = both.people(digest, 1)[0], os.urandom(16)
    invitation, wrong = "marked-invitation-4711", "marked-wrong-token-4711"
    strange = Ed25519PrivateKey.generate().private_bytes_raw()
    path = f"/experiments/{digest.hex()}/places"
    answers = [
        both.ask(digest, nonce),
        both.post(0, path, json={"nonce": nonce.hex(), "invitation": invitation}),
        both.post(0, path, json={"nonce": strange.hex(), invitation: invitation}),
        both.put(0, joined.path, shares[0], headers={"Tacit-Invitation": invitation}),
        both.put(1, joined.path, shares[1]),
        both.put(1, joined.path, shares[0]),
        both.put(1, joined.path, strange),
        both.put(1, joined.path, shares[1][:-1] + b"x"),
        both.get(0, f"/nowhere/{nonce.hex()}"),
        both.get(0, f"/experiments/{digest.hex()}/status", headers={"Authorization": wrong}),
        both.get(0, f"/experiments/{digest.hex()}/status", headers=ADMIN),
        both.post(1, "/experiments", content=strange, headers=ADMIN),
        both.post(1, joined.path.rpartition("/")[0].replace("reports", "exchange"), json={}),
    ]
    files = [one.path.with_name("lock").read_bytes() for one in both.members]
    keys = [one.key.private_bytes_raw() for one in both.members]
    secrets = {
        "an address": ADDRESS.encode(),
        "the admin token": TOKEN.encode(),
        "a wrong token": wrong.encode(),
        "an invitation": invitation.encode(),
        "a nonce": nonce,
        "a nonce in hex": nonce.hex().encode(),
        "a half": shares[0][60:],
        "a half in hex": shares[1][60:].hex().encode(),
        "a body": strange.hex().encode(),
        "a path": joined.path.encode(),
    }
    for number, (file, key) in enumerate(zip(files, keys, strict=True)):
        secrets |= {
            f"lock {number}": file,
            f"key {number}": key,
            f"hex {number}": key.hex().encode(),
        }
    said = [answer.text for answer in answers[1:] if answer.status_code >= 400]
    assert len(said) >= 8
    return secrets, said
