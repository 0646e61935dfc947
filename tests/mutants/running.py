"""Runs tests on a copy of the package, over and over, without loading the libraries every time.

A process of its own loads what tests need of others (never the package itself), then forks for
every run: `Runner` is its other end. A run says how pytest ended and which test failed first.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
COMPUTING, WAITING = 240, 1200.0  # seconds; a mutant that hangs has been noticed
HANGS = -1
OPTIONS: tuple[str, ...] = ("-x", "-q", "-n0", "-pno:cacheprovider", "-pno:schemathesis")
OPTIONS += ("-m", "not slow")  # extended tests, where the catalogue names them
OPTIONS += ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # libraries that are there already
LIBRARIES: tuple[str, ...] = (
    "cryptography.hazmat.primitives.ciphers.aead",
    "hypothesis.strategies",
    "pytest",
)
LIBRARIES += ("mpmath", "scipy.optimize", "scipy.special", "scipy.stats")


class Runner:
    """A process that runs tests on the package in this folder."""

    def __init__(self, folder: Path) -> None:
        environment = {
            **os.environ,
            "CI": "true",  # the same draws every time: see tests/conftest.py
            "PYTHONPATH": str(folder),
            "PYTHONPYCACHEPREFIX": str(folder / "cache"),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "examples"),
            "OPENBLAS_NUM_THREADS": "1",
        }
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # what is compiled serves every run
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.running"],
            cwd=ROOT,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def run(self, tests: tuple[str, ...]) -> tuple[int, str]:
        """How pytest ended, `HANGS` where it took too long, and the first test that failed."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(tests) + "\n")
        self.process.stdin.flush()
        code, first = json.loads(self.process.stdout.readline())
        return code, first

    def end(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


class First:
    """Notes the first test that fails, or the file of tests that cannot be loaded."""

    def __init__(self) -> None:
        self.name = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Called by pytest after each part of a test."""
        if report.failed and not self.name:
            self.name = report.nodeid

    pytest_collectreport = pytest_runtest_logreport


def answer(tests: list[str]) -> tuple[int, str]:
    """One run, in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (COMPUTING, COMPUTING))
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        import pytest

        first = First()
        code = pytest.main([*OPTIONS, *tests], [first])
        os.write(writing, json.dumps((int(code), first.name)).encode())
        os._exit(0)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], WAITING)
        said = os.read(reading, 1 << 16) if ready else b""
        code, name = json.loads(said) if said else (HANGS, "")  # or the process was ended
        return code, name
    finally:
        os.close(reading)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)


def serve() -> None:
    """Answers one line of tests after another."""
    for library in LIBRARIES:
        importlib.import_module(library)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    serve()
