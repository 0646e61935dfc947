"""The proxies of docs/how-to/two-organisations.md except for names, ports and certificates.

Both parties are behind one, with TLS; everything that anybody asks of them goes through it.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from tests.service.test_newcomer import free_port, running

from tacit.client import Device, Ledger, Pins

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "two-organisations.md").read_text(encoding="utf-8")
PATIENCE = 60.0
LARGE = 3 << 20  # bytes of a body, which a proxy rejects unless it is told


def certificate(directory: Path) -> tuple[Path, Path]:
    """A certificate of this machine, which it has signed itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a party")])
    today = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(today - timedelta(days=1))
        .not_valid_after(today + timedelta(days=2))
        .add_extension(x509.BasicConstraints(True, None), True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(key, hashes.SHA256())
    )
    public, secret = directory / "party.pem", directory / "party.key"
    public.write_bytes(made.public_bytes(Encoding.PEM))
    secret.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return public, secret


def caddy(directory: Path, ports: dict[str, tuple[int, int]]) -> tuple[list[str], str]:
    """How it is started, and its configuration."""
    found = re.search(r"^```\n(coordinator\.example \{.*?)^```$", PAGE, re.M | re.S)
    assert found is not None
    sites = []
    for front, behind in ports.values():
        site = found[1].replace("127.0.0.1:8700", f"127.0.0.1:{behind}")
        own = f"https://127.0.0.1:{front} {{\n\ttls {directory}/party.pem {directory}/party.key\n"
        sites.append(site.replace("coordinator.example {\n", own))
    whole = "{\n\tadmin off\n\tauto_https disable_redirects\n}\n" + "\n".join(sites)
    file = str(directory / "caddy.conf")
    return ["caddy", "run", "--adapter", "caddyfile", "--config", file], whole


def nginx(directory: Path, ports: dict[str, tuple[int, int]]) -> tuple[list[str], str]:
    """How it is started, and its configuration."""
    found = re.search(r"^```nginx\n(.*?)^```$", PAGE, re.M | re.S)
    assert found is not None
    sites = []
    for front, behind in ports.values():
        site = found[1].replace("127.0.0.1:8700", f"127.0.0.1:{behind}")
        site = site.replace("listen 443 ", f"listen 127.0.0.1:{front} ")
        site = site.replace("/etc/ssl/coordinator", f"{directory}/party")
        sites.append(site.replace("/var/log/nginx/error.log", f"{directory}/errors"))
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{kind}_temp_path {directory}/{kind};\n" for kind in kinds)
    user = "user root;\n" if os.getuid() == 0 else ""
    begin = f"{user}daemon off;\npid {directory}/pid;\nevents {{}}\nhttp {{\n{places}"
    command = ["nginx", "-e", f"{directory}/start", "-c", f"{directory}/nginx.conf"]
    return command, begin + "\n".join(sites) + "}\n"


@contextmanager
def proxy(name: str, directory: Path, ports: dict[str, tuple[int, int]]) -> Iterator[None]:
    """The proxy, from when it listens."""
    command, configuration = {"caddy": caddy, "nginx": nginx}[name](directory, ports)
    (directory / f"{name}.conf").write_text(configuration, encoding="utf-8")
    places = {"XDG_DATA_HOME": str(directory), "XDG_CONFIG_HOME": str(directory)}
    with (directory / "said").open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env=os.environ | places)
    trusted = ssl.create_default_context(cafile=directory / "party.pem")
    try:
        end = time.monotonic() + PATIENCE
        while True:
            try:
                for front, _ in ports.values():
                    httpx.get(f"https://127.0.0.1:{front}/healthz", verify=trusted)
                break
            except httpx.HTTPError:
                assert process.poll() is None, (directory / "said").read_text()
                assert time.monotonic() < end
                time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["caddy", "nginx"])
def test_an_experiment_runs_behind_the_proxies_of_the_page(name: str, tmp_path: Path) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed: its part of two-organisations.md is not tried")
    certificate(tmp_path)
    ports = {role: (free_port(), free_port()) for role in ("coordinator", "helper")}
    address = {role: f"https://127.0.0.1:{front}" for role, (front, _) in ports.items()}
    trust = {"SSL_CERT_FILE": str(tmp_path / "party.pem"), "PYTHONPATH": str(ROOT / "src")}
    where: dict[str, Any] = {"cwd": tmp_path, "env": os.environ | trust | {"COLUMNS": "200"}}

    def tacit(*words: str) -> str:
        call = [sys.executable, "-m", "tacit", *words]
        ended = subprocess.run(
            call, capture_output=True, text=True, timeout=PATIENCE, check=False, **where
        )
        assert ended.returncode == 0, (words, ended.stdout, ended.stderr)
        return str(ended.stdout)

    with ExitStack() as servers:
        for role, (_, behind) in ports.items():
            listen = f"127.0.0.1:{behind}"
            tacit("party", "new", role, role, "--address", address[role], "--listen", listen)
            config = str(tmp_path / role / "party.toml")
            call = [sys.executable, "-m", "tacit", "serve", role, "--config", config]
            servers.enter_context(running(call, behind, tmp_path / role / "log", **where))
        servers.enter_context(proxy(name, tmp_path, ports))
        asked = ("--question", "Which?", "--option", "Hello", "--option", "Hi")
        times = ("--window", "1 second", "--joining", "10 minutes", "--margin", "2 seconds")
        tacit("experiment", "new", "q.toml", "--helper", "helper/card.toml", *asked, *times)
        tacit(
            *("experiment", "create", "q.toml", "--config", "coordinator/party.toml"),
            *("--app", "app.json"),
        )
        assert "Which?" in tacit("terms", "show", address["coordinator"])
        signing = ("--config", "helper/party.toml", "--yes")
        tacit("terms", "cosign", address["coordinator"], *signing)
        assert "0 broken" in tacit("doctor", address["coordinator"])
        client = servers.enter_context(
            httpx.Client(verify=ssl.create_default_context(cafile=tmp_path / "party.pem"))
        )
        report(tmp_path, client)
        for role in ports:
            assert client.get(f"{address[role]}/metrics").status_code == 404
            fine = client.get(f"{address[role]}/healthz")
            assert fine.headers["Strict-Transport-Security"] == "max-age=31536000"
        exchange = f"{address['helper']}/rounds/{'0' * 32}/exchange"
        large = client.post(exchange, content=bytes(LARGE))
        assert large.status_code != 413 or "error" in large.text  # it is not the proxy that says no
        kept_up_to_date(client, address["coordinator"])
    for file in ("said", "errors"):
        if (tmp_path / file).exists():
            assert "/places" not in (tmp_path / file).read_text()
            assert "/reports/" not in (tmp_path / file).read_text()


def report(directory: Path, client: httpx.Client) -> None:
    """One participant takes part."""
    built_in = json.loads((directory / "app.json").read_text())
    experiment, ledger = built_in["experiment"], Ledger(":memory:")
    device = Device(ledger, Pins(**built_in["pins"]), http=client)
    end = time.monotonic() + PATIENCE
    while not device.join(experiment).asked:
        assert time.monotonic() < end, "no round opens"
        time.sleep(0.2)
    device.record(experiment, 1)
    device.wait_and_report()
    (receipt,) = device.status()
    assert all(half.sent for half in receipt.shares), receipt
    ledger.close()


def kept_up_to_date(client: httpx.Client, address: str) -> None:
    """A page gets its events immediately, not when a buffer is full."""
    (experiment,) = client.get(f"{address}/experiments").json()
    with client.stream("GET", f"{address}/e/{experiment['digest']}/live", timeout=30) as told:
        assert told.headers["Content-Type"].startswith("text/event-stream")
        assert next(told.iter_bytes())
