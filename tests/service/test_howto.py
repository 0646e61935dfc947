"""How-to pages of trust models, run as documented except for ports, addresses and installation."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tacit.client import Device, Ledger, Pins
from tacit.service.admin import PartyClient
from tacit.service.demo.children import Child, free_port

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
ROLES = {"coordinator": "8700", "helper": "8701"}
PATIENCE = 180.0  # seconds until the coordinator has announced rounds


def page_of(name: str, ports: dict[str, int]) -> str:
    """The text of a page, with free ports of this machine."""
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    for role, port in ports.items():
        page = page.replace(f"https://{role}.example", f"http://127.0.0.1:{port}")
        page = page.replace(ROLES[role], str(port))
    return page


def commands(page: str) -> list[list[str]]:
    """The commands of tacit on a page, in its order."""
    lines = re.findall(r"^\$ (tacit .*)$", page, re.M)
    return [shlex.split(line, comments=True)[1:] for line in lines]


@contextmanager
def following(name: str, where: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Following]:
    """Follow a page in a directory; servers run until the end."""
    with ExitStack() as stack:
        monkeypatch.chdir(where)
        yield Following(name, where, stack)


class Following:
    """A reader of one page."""

    def __init__(self, name: str, where: Path, stack: ExitStack) -> None:
        self.ports = {role: free_port() for role in ROLES}
        self.page = page_of(name, self.ports)
        self.where, self.stack = where, stack
        self.said: dict[str, str] = {}

    def follow(self, words: list[str]) -> None:
        """Run one command; a server until the end of the page."""
        if words[0] == "serve":
            log = self.where / f"{words[1]}.log"
            server = Child(["-m", "tacit", *words], log)
            self.stack.callback(server.end)
            server.wait_for(f"http://127.0.0.1:{self.ports[words[1]]}/readyz", lambda: None)
            return
        self.said[" ".join(words[:2])] = run_command(["-m", "tacit", *words])

    def wait_for_rounds(self) -> str:
        """Wait until the coordinator has announced rounds; the experiment."""
        experiment = str(json.loads(Path("app.json").read_text())["experiment"])
        token = Path("coordinator/admin-token").read_text().strip()
        party = PartyClient(f"http://127.0.0.1:{self.ports['coordinator']}", token)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            rounds = party.get(f"/experiments/{experiment}/status")["rounds"]
            if any(one["stage"] == "open" for one in rounds):
                return experiment
            time.sleep(0.2)
        raise AssertionError("no round was announced")


def run_command(words: list[str]) -> str:
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


EXPECTED = {
    "local": ("randomized-response", "It costs ε = 3; ", 7),
    "secure-aggregation": ("discrete-laplace", "It costs ε = 1 and δ = 1e-06; ", 7),
    "shuffler": ("binomial", "It costs ε = 1 and δ = 1e-06; ", 12),
}


@pytest.mark.extended
@pytest.mark.parametrize("name", EXPECTED)
def test_the_page_of_each_trust_model_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise, cost, count = EXPECTED[name]
    with following(name, tmp_path, monkeypatch) as reader:
        steps = commands(reader.page)
        assert len(steps) == count
        (program,) = re.findall(r"^```py\n(.*?)^```$", reader.page, re.M | re.S)
        for words in steps:
            if words[:2] == ["experiment", "status"]:
                reader.wait_for_rounds()
                told = run_command(["-c", program])
            reader.follow(words)
    assert noise in reader.said["experiment check"]
    created = reader.said["experiment create"]
    assert ("(running)" in created) == (name != "shuffler")
    then = "terms cosign" if name == "shuffler" else "experiment status --config coordinator/"
    assert f"tacit {then}" in created.split("next: ")[1]
    assert "was taken" in told
    assert cost in told
    assert "running" in reader.said["experiment status"]
    caution = "only against a coordinator that follows the protocol"
    assert (caution in reader.said["experiment check"]) == (name == "secure-aggregation")


@pytest.mark.extended
def test_the_page_of_two_organisations_runs_with_proofs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with following("two-organisations", tmp_path, monkeypatch) as reader:
        for words in commands(reader.page):
            if words[:2] == ["experiment", "new"]:
                shutil.copy("helper/card.toml", "card.toml")  # as the helper's operator sent it
            sign = words[:2] == ["terms", "cosign"]
            reader.follow([*words, "--yes"] if sign else words)
        assert re.search("^proofs = true$", Path("greeting.toml").read_text(), re.M)
        assert "with range proofs" in reader.said["experiment check"]
        signed = reader.said["terms cosign"]
        assert "the experiment is running" in signed
        assert "tacit doctor " in signed.split("next: ")[1]
        experiment = reader.wait_for_rounds()
        app = json.loads(Path("app.json").read_text())
        with Device(Ledger("ledger"), Pins(**app["pins"])) as device:
            assert device.join(experiment).asked
            terms = device.known_terms(experiment)
    assert terms is not None
    assert (terms.proofs, terms.trust.value) == (1, "two-servers")


@pytest.mark.extended
def test_the_live_part_of_the_contextual_tutorial_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with following("../tutorials/contextual", tmp_path, monkeypatch) as reader:
        steps = commands(reader.page)
        assert len(steps) == 9
        (program,) = re.findall(r"^```py\n(.*?)^```$", reader.page, re.M | re.S)
        for words in steps:
            if words[:2] == ["experiment", "status"]:
                reader.wait_for_rounds()
                told = run_command(["-c", program])
            reader.follow(words)
    checked = " ".join(reader.said["experiment check"].split())
    assert "8 cells of context and option" in checked
    assert "Your device chooses which one" in checked
    assert "was taken" in told
    assert "It costs ε = 1; " in told
    assert "which option for whom" in reader.said["experiment status"]
