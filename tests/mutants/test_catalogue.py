"""The catalogue of mutants names what there is: a change to the package that moves a target is told
at once, not when all mutants are run.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.mutants.catalogue import EQUIVALENT, TARGETS


def test_every_target_can_be_broken_and_every_equivalent_is_still_made() -> None:
    call = [sys.executable, "-m", "tests.mutants", "--list"]
    root = Path(__file__).parents[2]
    ended = subprocess.run(call, capture_output=True, text=True, check=False, cwd=root)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    *named, _ = ended.stdout.splitlines()
    assert len(named) >= max(80, len(TARGETS))
    assert all(any(line.startswith(name) for line in named) for name in EQUIVALENT)
    assert all((root / test.split("::")[0]).exists() for one in TARGETS for test in one.tests)
