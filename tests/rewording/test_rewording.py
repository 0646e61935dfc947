"""No sentence of the package decides anything: with all of them reworded, experiments, designs,
estimates and terms that the package itself saved behave the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.rewording.rewrite import backwards, is_sentence, reword

import tacit

ROOT = Path(__file__).resolve().parents[2]


def run_script(package: Path, *command: str) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The package as it is, and reworded."""
    target = tmp_path_factory.mktemp("reworded")
    package = Path(tacit.__file__).parent
    assert reword(package, target / "tacit") > 1_000
    return package.parent, target


def test_sentences_are_distinguished_from_identifiers() -> None:
    assert is_sentence("the secret is out")
    assert is_sentence("at most 1 participant of a batch is curious")
    for other in ("two-servers", "epsilon", "the secret", "<p>some words of text</p>", "a|b c d e"):
        assert not is_sentence(other)
    assert backwards("every report of {count} counts") == "yreve troper of {count} stnuoc"


@pytest.mark.extended
def test_stored_data_behaves_the_same_under_reworded_sentences(
    packages: tuple[Path, Path], tmp_path: Path
) -> None:
    ours, reworded = packages
    script = ("-m", "tests.rewording.behaviour")
    saved = json.loads(run_script(ours, *script, "save", str(tmp_path)))
    restored = json.loads(run_script(reworded, *script, "load", str(tmp_path)))
    assert restored.keys() == saved.keys()
    for case in saved:
        assert restored[case] == saved[case], case


@pytest.mark.extended
def test_the_reworded_package_prints_other_sentences(packages: tuple[Path, Path]) -> None:
    """Else the test above could not fail."""
    script = (
        "from tacit.privacy import PureDP, ThreatModel; "
        "print(PureDP(1.0).assuming(*ThreatModel(0.1, 0.1).assumptions()))"
    )
    said = [run_script(package, "-c", script) for package in packages]
    assert "at most 10% of the participants" in said[0]
    assert "curious" not in said[1]
    assert "suoiruc" in said[1]


@pytest.mark.extended
def test_commands_print_the_same_numbers_and_identifiers(packages: tuple[Path, Path]) -> None:
    command = (
        *("-m", "tacit", "simulate", "--algorithm", "private-med", "--arms", "3"),
        *("--horizon", "3000", "--runs", "2", "--dropout", "0.2", "--json"),
    )
    ours, reworded = (json.loads(run_script(package, *command)) for package in packages)
    assert ours["guarantee"].pop("text") != reworded["guarantee"].pop("text")
    for found in (ours, reworded):
        for changing in ("seconds", "warnings"):
            found.pop(changing)
        for one in found["runs"]:
            one.pop("seconds", None)
    assert _numbers(ours) == _numbers(reworded)


def _numbers(value: Any) -> Any:
    """Everything but sentences."""
    if isinstance(value, dict):
        return {key: _numbers(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_numbers(part) for part in value]
    return (
        "…"
        if isinstance(value, str) and (is_sentence(value) or is_sentence(value[::-1]))
        else value
    )
