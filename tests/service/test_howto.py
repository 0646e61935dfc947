"""How-to pages of one-server trust models, word by word but for the port."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tacit.service.demo.children import Child, free_port

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
EXPECTED = {
    "local": ("randomized-response", "It costs 3 of ε"),
    "secure-aggregation": ("discrete-laplace", "It costs 1 of ε"),
}


@pytest.mark.extended
@pytest.mark.parametrize("name", EXPECTED)
def test_the_page_about_one_server_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8").replace("8700", str(port))
    commands = re.findall(r"^\$ (tacit .*)$", page, re.M)
    assert len(commands) == 7
    (program,) = re.findall(r"^```py\n(.*?)^```$", page, re.M | re.S)
    serving: list[Child] = []
    said: dict[str, str] = {}
    monkeypatch.chdir(tmp_path)
    try:
        for command in commands:
            words = shlex.split(command)[1:]
            if words[0] == "serve":
                serving.append(Child(["-m", "tacit", *words], tmp_path / "serve.log"))
                serving[0].wait_for(f"http://127.0.0.1:{port}/readyz", lambda: None)
                continue
            done = run(["-m", "tacit", *words])
            said[" ".join(words[:2])] = done
            if words[:2] == ["experiment", "create"]:
                time.sleep(4)  # the coordinator announces the first rounds
                told = run(["-c", program])
    finally:
        for server in serving:
            server.end()
    noise, cost = EXPECTED[name]
    assert noise in said["experiment check"]
    assert "(running)" in said["experiment create"]
    assert "cosign" not in said["experiment create"]
    assert "was taken" in told
    assert cost in told
    assert "running" in said["experiment status"]


def run(words: list[str]) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.extended
def test_the_live_part_of_the_contextual_tutorial_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = {"8700": free_port(), "8701": free_port()}
    page = (PAGES.parent / "tutorials" / "contextual.md").read_text(encoding="utf-8")
    for written, port in ports.items():
        page = page.replace(written, str(port))
    commands = re.findall(r"^\$ (tacit .*)$", page, re.M)
    assert len(commands) == 9
    (program,) = re.findall(r"^```py\n(.*?)^```$", page, re.M | re.S)
    serving: list[Child] = []
    said: dict[str, str] = {}
    monkeypatch.chdir(tmp_path)
    try:
        for command in commands:
            words = shlex.split(command)[1:]
            if words[0] == "serve":
                serving.append(Child(["-m", "tacit", *words], tmp_path / f"{words[1]}.log"))
                port = list(ports.values())[len(serving) - 1]
                serving[-1].wait_for(f"http://127.0.0.1:{port}/readyz", lambda: None)
                continue
            said[" ".join(words[:2])] = run(["-m", "tacit", *words])
            if words[:2] == ["terms", "cosign"]:
                time.sleep(4)  # the coordinator announces the first rounds
                told = run(["-c", program])
    finally:
        for server in serving:
            server.end()
    checked = " ".join(said["experiment check"].split())
    assert "8 cells of context and option" in checked
    assert "Your device chooses which one" in checked
    assert "was taken" in told
    assert "It costs 1 of ε" in told
    assert "chosen on the device" in said["experiment status"]
