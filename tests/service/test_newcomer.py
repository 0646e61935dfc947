"""docs/tutorials/live.md, run as documented except for ports and installation."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorials" / "live.md"
PORTS = ("8700", "8701")
PATIENCE = 300.0  # seconds that any one command may take


def shape(text: str) -> str:
    """Text without what differs from run to run: numbers, keys and digests."""
    return " ".join(re.sub(r"\b[0-9a-f]{4,64}\b|\d[\d,.]*", "#", text).split())


def shown(text: str) -> dict[str, list[str]]:
    """The lines of output that the page shows below a command, for each command."""
    found: dict[str, list[str]] = {}
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.M | re.S):
        for line in block.splitlines():
            if line.startswith("$ "):
                lines = found.setdefault(line.removeprefix("$ "), [])
            else:
                lines.append(line)
    return found


def steps(text: str) -> Iterator[tuple[str, str]]:
    """Commands and files of the page, in its order; lines without a prompt are output."""
    pattern = r"^```console\n(.*?)^```$|^```\{code-block\} python\n:caption: (\S+)\n(.*?)^```$"
    for found in re.finditer(pattern, text, re.M | re.S):
        if found[2]:
            yield found[2], found[3]
        for line in (found[1] or "").splitlines():
            if line.startswith("$ "):
                yield "$", line.removeprefix("$ ")


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


@contextmanager
def running(words: list[str], port: int, log: Path, **where: object) -> Iterator[None]:
    """A server, from when it answers until the page is over."""
    with log.open("wb") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out, **where)  # type: ignore[call-overload]
        try:
            end = time.monotonic() + PATIENCE
            while not answers(port):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < end
                time.sleep(0.1)
            yield
        finally:
            process.terminate()
            assert process.wait(30) == 0


@pytest.mark.slow
def test_the_getting_started_commands_lead_to_a_winner(tmp_path: Path) -> None:
    ports = {old: free_port() for old in PORTS}
    text = PAGE.read_text(encoding="utf-8")
    for old, new in ports.items():
        text = text.replace(old, str(new))
    expected = shown(text)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200"}
    where: dict[str, object] = {"cwd": tmp_path, "env": environment}
    said: list[tuple[str, str]] = []
    with ExitStack() as servers:
        for what, content in steps(text):
            if what != "$":
                (tmp_path / what).write_text(content, encoding="utf-8")
                continue
            words = shlex.split(content)
            if words[0] == "pip":
                continue
            start = {"tacit": [sys.executable, "-m", "tacit"], "python": [sys.executable]}
            call = start[words[0]] + words[1:]
            if words[1] == "serve":
                port = ports[PORTS[words[2] == "helper"]]
                servers.enter_context(running(call, port, tmp_path / words[2] / "log", **where))
                continue
            ended = subprocess.run(  # type: ignore[call-overload]
                call, capture_output=True, text=True, timeout=PATIENCE, check=False, **where
            )
            assert ended.returncode == 0, (content, ended.stdout, ended.stderr)
            said.append((content, ended.stdout))
            if not content.startswith("tacit experiment estimates"):  # noise decides
                for line in expected.get(content, ()):
                    assert shape(line) in shape(ended.stdout), (content, line, ended.stdout)
            if words[1:3] == ["party", "new"]:
                for name in ("party.toml", "card.toml"):
                    file = tmp_path / words[4] / name
                    changed = file.read_text()
                    for old, new in ports.items():
                        changed = changed.replace(old, str(new))
                    file.write_text(changed)
    tables = [out for content, out in said if "estimates" in content]
    assert len(tables) == 2
    first = tables[0].split("which is best:")[1]
    # 40 participants each, 0.9 against 0.3 with noise: below 10^-5 to see it the other way round
    assert "Hi leads" in first or "Hi is better than every other option" in first
    assert "You are greeted with:" in next(out for content, out in said if "app.py" in content)
    assert "0 broken" in said[-1][1]
