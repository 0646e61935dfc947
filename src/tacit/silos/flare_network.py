"""A FLARE network on this machine, for demonstrations, tests and benchmarks.

It has a certificate authority of its own, a server, one process per site, and an administrator.
Sites allow the classes of `tacit.silos.flare` and deny bring-your-own-code, as
docs/how-to/flare.md tells administrators to.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from nvflare.fuel.flare_api.api_spec import NoConnection
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session
from nvflare.lighter.provision import prepare_builders, prepare_packager, prepare_project
from nvflare.lighter.provisioner import Provisioner

from tacit.errors import TacitError
from tacit.silos.flare import FEDERATION, PORT, TOKEN_FILE
from tacit.silos.jobs import ALLOWED

ADMIN, SERVER, ORGANISATION = "admin@tacit.example", "localhost", "tacit"
LOGGING = "nvflare.app_common.logging."
START = 120.0  # seconds until all sites are connected
PERMISSIONS = {
    "project_admin": {
        "submit_job": "any",
        "clone_job": "any",
        "manage_job": "any",
        "download_job": "any",
        "view": "any",
        "operate": "any",
        "shell_commands": "none",
        "byoc": "none",
    }
}


@dataclass(frozen=True)
class FlareSite:
    """A site: its name, its agent's port and the file with the engine's token."""

    name: str
    port: int
    token_file: Path


def free_port() -> int:
    """A free port of the loopback interface."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def provision(folder: Path, sites: Sequence[str]) -> Path:
    """Make certificates and startup kits; return their directory."""
    port = free_port()
    server: dict[str, Any] = {
        "name": SERVER,
        "type": "server",
        "fed_learn_port": port,
        "admin_port": port,
    }
    clients: list[dict[str, Any]] = [{"name": name, "type": "client"} for name in sites]
    admin: dict[str, Any] = {"name": ADMIN, "type": "admin", "role": "project_admin"}
    implementation = "nvflare.lighter.impl"
    project = {
        "api_version": 3,
        "name": "tacit",
        "participants": [one | {"org": ORGANISATION} for one in (server, *clients, admin)],
        "builders": [
            {
                "path": f"{implementation}.workspace.WorkspaceBuilder",
                "args": {"template_file": ["master_template.yml"]},
            },
            {
                "path": f"{implementation}.static_file.StaticFileBuilder",
                "args": {"config_folder": "config", "scheme": "tcp"},
            },
            {"path": f"{implementation}.cert.CertBuilder"},
            {"path": f"{implementation}.signature.SignatureBuilder"},
        ],
    }
    with redirect_stdout(StringIO()):
        made = prepare_project(project)
        builders, packager = prepare_builders(project), prepare_packager(project)
        Provisioner(str(folder), builders, packager).provision(made)
    kits = folder / "tacit" / "prod_00"
    for name in (SERVER, *sites):
        _restrict(kits / name / "local", folder)
    return kits


def _restrict(local: Path, folder: Path) -> None:
    """Allow two classes, deny bring-your-own-code, stream no logs, keep jobs in the folder."""
    resources = json.loads((local / "resources.json.default").read_text(encoding="utf-8"))
    resources["class_allow_list"] = list(ALLOWED)
    resources["allow_log_streaming"] = False
    resources["components"] = [
        one for one in resources["components"] if not one["path"].startswith(LOGGING)
    ]
    text = json.dumps(resources, indent=1)
    for place in ("/tmp/nvflare/snapshot-storage", "/tmp/nvflare/jobs-storage"):
        text = text.replace(place, str(folder / Path(place).name))
    (local / "resources.json").write_text(text, encoding="utf-8")
    rules = {"format_version": "1.0", "permissions": PERMISSIONS}
    (local / "authorization.json").write_text(json.dumps(rules), encoding="utf-8")


class FlareNetwork:
    """A running network; `submit` a job and `wait` for it."""

    def __init__(self, folder: Path, kits: Path, sites: Sequence[str]) -> None:
        self.folder, self.kits, self.sites = folder, kits, tuple(sites)
        self.session: Session | None = None

    def connect(self) -> None:
        """Log in as the administrator, once all sites are connected."""
        end = time.monotonic() + START
        while time.monotonic() < end:
            try:
                with redirect_stdout(StringIO()):
                    if self.session is None:
                        kit = str(self.kits / ADMIN)
                        self.session = new_secure_session(ADMIN, kit, timeout=10.0)
                    found = self.session.get_connected_client_list()
            except (NoConnection, RuntimeError, OSError):
                found = []
            if len(found) == len(self.sites):
                return
            time.sleep(0.5)
        raise TacitError(f"sites did not connect within {START:.0f} s: see {self.folder}/logs")

    def submit(self, job: Path) -> str:
        """Submit a job; return its id."""
        assert self.session is not None
        with redirect_stdout(StringIO()):
            return str(self.session.submit_job(str(job)))

    def status(self, job: str) -> str:
        """The status of a job, as FLARE names it."""
        assert self.session is not None
        return str(self.session.get_job_meta(job).get("status", ""))

    def wait(self, job: str, seconds: float) -> str:
        """Wait until a job has ended; return its last status."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = self.status(job)
            if found.startswith("FINISHED") or found in ("REJECTED", "FAILED_TO_RUN", "ABANDONED"):
                return found
            time.sleep(1.0)
        return self.status(job)


@contextmanager
def running_network(
    folder: Path, sites: Sequence[FlareSite], federation: Path, kits: Path | None = None
) -> Iterator[FlareNetwork]:
    """Start a network in a folder, of new startup kits or of these; stop all of it at the end."""
    names = [site.name for site in sites]
    kits = kits or provision(folder, names)
    logs = folder / "logs"
    logs.mkdir()
    network = FlareNetwork(folder, kits, names)
    processes = []
    try:
        settings = {FEDERATION: str(federation.resolve())}
        processes.append(_start(kits / SERVER, "server", settings, logs))
        for site in sites:
            settings = {PORT: str(site.port), TOKEN_FILE: str(site.token_file.resolve())}
            processes.append(_start(kits / site.name, "client", settings, logs))
        network.connect()
        yield network
    finally:
        if network.session is not None:
            with redirect_stdout(StringIO()):
                network.session.close()
        _stop(processes)


def _start(
    kit: Path, kind: str, settings: Mapping[str, str], logs: Path
) -> subprocess.Popen[bytes]:
    (kit / "transfer").mkdir(exist_ok=True)
    identity = [f"uid={kit.name}"] if kind == "client" else []
    command = [
        *(sys.executable, "-u", "-m", f"nvflare.private.fed.app.{kind}.{kind}_train"),
        *("-m", str(kit), "-s", f"fed_{kind}.json", "--set", "secure_train=true"),
        *(*identity, f"org={ORGANISATION}", "config_folder=config"),
    ]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    with (logs / f"{kit.name}.log").open("wb") as log:
        return subprocess.Popen(
            command,
            cwd=kit,
            env={**os.environ, "PATH": path, **settings},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End every process with its children, clients first."""
    for process in reversed(processes):
        for number in (15, 9):
            try:
                os.killpg(process.pid, number)
                process.wait(5)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
    for process in processes:
        if process.poll() is None:
            process.wait(10)
