"""The tutorial for hospitals, run as documented."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tacit.errors import Unavailable
from tacit.silos.relay import AgentRelay

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "silos.md"
pytestmark = pytest.mark.extended


def commands() -> list[tuple[list[str], list[str]]]:
    """Every command of the page with the lines that the page shows of its output."""
    found: list[tuple[list[str], list[str]]] = []
    for block in re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((shlex.split(line[2:], comments=True), []))
            else:
                found[-1][1].append(" ".join(line.split()))
    return found


def wait_for(port: int) -> None:
    for _ in range(600):
        try:
            AgentRelay("127.0.0.1", port, "none").respond("POLICY", b"")
        except Unavailable as problem:
            if "status 401" in str(problem):
                return
            time.sleep(0.1)
    raise AssertionError(f"no agent at {port}")


def test_every_command_of_the_tutorial_runs(tmp_path: Path) -> None:
    (program,) = re.findall(r"```py\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    (tmp_path / "treat.py").write_text(program, encoding="utf-8")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "100"}
    agents = []
    try:
        for words, shown in commands():
            if words[0] == "pip":
                continue
            if words[:3] == ["tacit", "silo", "serve"]:
                agents.append(subprocess.Popen(words, cwd=tmp_path, env=environment))
                continue
            if words[:3] == ["tacit", "federation", "rehearse"]:
                for port in (18711, 18712, 18713):
                    wait_for(port)
            done = subprocess.run(
                words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, (words, done.stderr)
            said = " ".join(done.stdout.split())
            for line in shown:
                assert line in said, (words, line, said)
    finally:
        for process in agents:
            process.terminate()
        for process in agents:
            process.wait(20)
    assert '"effects"' in (tmp_path / "policy.json").read_text()
