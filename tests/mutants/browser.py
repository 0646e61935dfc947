"""Runs tests in Node on copies of the browser's device, each with one change.

    python -m tests.mutants.browser [--only PATTERN]

One of the tests of every change must fail. Tests run in this process, one change after the other;
Node reads the copy, which `tests.browser.vectors` names.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from tests.mutants.browser_catalogue import CHANGES, Change
from tests.mutants.running import ROOT

PLACE = "TACIT_BROWSER_COPY"
"""Environment variable: where the tests find a copy of clients/js, and what runs it."""

OPTIONS = ("-q", "-x", "-n0", "-pno:cacheprovider", "-pno:schemathesis", "-m", "not extended")


def fails(tests: tuple[str, ...]) -> bool:
    """Whether one of these tests fails."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return pytest.main([*OPTIONS, *tests]) == pytest.ExitCode.TESTS_FAILED


def survives(change: Change, copy: Path) -> bool:
    """Whether no test notices the change."""
    module = copy / "clients" / "js" / change.path
    sound = module.read_text(encoding="utf-8")
    if sound.count(change.old) != 1:
        sys.exit(f"{change.path} has {change.old!r} not exactly once: name another text")
    module.write_text(sound.replace(change.old, change.new), encoding="utf-8")
    try:
        return not fails(change.tests)
    finally:
        module.write_text(sound, encoding="utf-8")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.browser", description=__doc__)
    parser.add_argument("--only", default="", help="changes whose name matches this")
    chosen = [one for one in CHANGES if re.search(parser.parse_args().only, one.name)]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(ROOT / "clients" / "js", copy / "clients" / "js")
        scripts = copy / "tests" / "browser"
        scripts.mkdir(parents=True)
        for script in (ROOT / "tests" / "browser").glob("*.mjs"):
            shutil.copy(script, scripts)
        os.environ[PLACE] = folder
        os.chdir(ROOT)
        tests = tuple(sorted({test for one in chosen for test in one.tests}))
        if fails(tests):
            print("tests fail without any change")
            return 1
        survivors = 0
        for one in chosen:
            alive = survives(one, copy)
            survivors += alive
            print("SURVIVES" if alive else "caught  ", one.name, flush=True)
    print(f"{len(chosen)} changes of the browser's device, {survivors} survive")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
