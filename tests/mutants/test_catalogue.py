"""The catalogue of mutants is consistent with the package: a moved target is reported at once."""

from __future__ import annotations

import gc
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from tests.mutants.browser_catalogue import CHANGES
from tests.mutants.catalogue import EQUIVALENT, TARGETS
from tests.mutants.running import Broken, put


@pytest.mark.extended
def test_every_mutation_applies_and_equivalent_ones_are_still_generated() -> None:
    call = [sys.executable, "-m", "tests.mutants", "--list"]
    root = Path(__file__).parents[2]
    ended = subprocess.run(call, capture_output=True, text=True, check=False, cwd=root)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    *named, _ = ended.stdout.splitlines()
    assert len(named) >= max(80, len(TARGETS))
    assert all(any(line.startswith(name) for line in named) for name in EQUIVALENT)
    for test in {test for one in TARGETS for test in one.tests}:
        file, _, function = test.partition("::")
        assert (root / file).exists(), test
        assert not function or f"def {function}(" in (root / file).read_text("utf-8"), test


def test_a_mutated_function_replaces_the_original_invisibly_to_gc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `tests/conftest.py` freezes what is collected; else every mutant is loaded afresh."""
    module = tmp_path / "sound_module.py"
    module.write_text("def said() -> int:\n    return 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    sound = importlib.import_module("sound_module")
    gc.freeze()
    module.write_text("def said() -> int:\n    return 2\n", encoding="utf-8")
    assert put(Broken(str(module), "said", 1))
    assert sound.said() == 2


def test_every_change_of_the_browser_device_replaces_one_text() -> None:
    """A change to the device that moves a text is noticed here, too."""
    root = Path(__file__).parents[2]
    for one in CHANGES:
        module = (root / "clients" / "js" / one.path).read_text(encoding="utf-8")
        assert module.count(one.old) == 1, one.name
        named = [(test.partition("::")[0], test.partition("::")[2]) for test in one.tests]
        assert all(f"def {name}" in (root / file).read_text("utf-8") for file, name in named)
    assert len({one.name for one in CHANGES}) == len(CHANGES)
