"""The files of deploy/, and the instructions for a new party's operator."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from tests.cli.commands import Command
from tests.cli.conftest import command as command

from tacit.service.config import Limits, load

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy" / "tacit@.service"
MOST = 2.0  # exposure level of systemd-analyze, from 0 (best) to 10


@pytest.mark.parametrize("role", ["coordinator", "helper"])
def test_the_systemd_unit_is_hardened(tmp_path: Path, role: str) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed: the exposure of the unit is not computed")
    unit = tmp_path / f"tacit@{role}.service"
    unit.write_text(UNIT.read_text())
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(unit)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    found = re.search(r"exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found is not None
    assert float(found[1]) <= MOST


def test_the_systemd_unit_permits_the_connection_limit() -> None:
    found = re.search(r"^LimitNOFILE=(\d+)$", UNIT.read_text(), re.M)
    assert found is not None
    assert int(found[1]) // 2 >= 4096  # a party uses half of its descriptors for connections


def test_the_container_installs_existing_extras() -> None:
    text = (ROOT / "deploy" / "Containerfile").read_text()
    assert "Not built" in text  # until it has been
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = re.search(r"/source\[([a-z,]+)\]", text)
    assert found is not None
    assert set(found[1].split(",")) <= set(extras["optional-dependencies"])
    for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.M):
        assert all((ROOT / name).exists() for name in line.split())


def test_a_new_party_prints_the_next_three_commands(command: Command, tmp_path: Path) -> None:
    for role, words in {
        "helper": ("serve helper", "terms cosign", "doctor"),
        "coordinator": ("serve coordinator", "experiment new", "experiment create"),
    }.items():
        code, out, _ = command("party", "new", role, tmp_path / role)
        lines = [line.strip() for line in out.splitlines() if line.startswith("  tacit ")]
        assert (code, len(lines)) == (0, 3)
        for line, said in zip(lines, words, strict=True):
            assert line.startswith(f"tacit {said}")


@pytest.mark.parametrize(
    ("address", "counted"), [("https://helper.example", True), ("http://127.0.0.1:8701", True)]
)
def test_a_new_party_rate_limits_with_and_without_a_proxy(
    command: Command, tmp_path: Path, address: str, counted: bool
) -> None:
    assert command("party", "new", "helper", tmp_path / "helper", "--address", address)[0] == 0
    config = load(tmp_path / "helper" / "party.toml", {})
    limits = config.limits.of(config.address, config.listen)
    assert limits.counted == counted
    assert bool(limits.address_header) == address.startswith("https")
    proxied = Limits().of("https://helper.example", config.listen)
    assert not proxied.counted  # without the header everybody would share the proxy's address
