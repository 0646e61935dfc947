"""Run tests on mutated copies of the package without importing everything again.

A process of its own loads the copy and collects every test that the catalogue names, then forks for
every run. In the fork the code of the broken function takes the place of the sound one, wherever
that function is held; processes that a test starts load the broken module, which is in the copy,
too. `Runner` is the other end. What only loading shows (a constant, a default, a decorator) is not
seen there: a mutant that seems to survive is run by `afresh` in a process that has loaded nothing.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from tests.mutants.operators import HELPERS

ROOT = Path(__file__).resolve().parents[2]
WAITING = 600.0  # seconds that a run may wait for whatever it is; a mutant that hangs is noticed
HANGS = "hangs"
OPTIONS: tuple[str, ...] = ("-q", "-n0", "-pno:cacheprovider", "-pno:schemathesis")
OPTIONS += ("-m", "not slow")  # extended tests, where the catalogue names them


@dataclass(frozen=True)
class Broken:
    """A function of the copy and the broken module that is in its place; empty: nothing is."""

    module: str = ""
    function: str = ""
    line: int = 0


@dataclass(frozen=True)
class Run:
    """What became of tests: how long each that ended took, the one that failed or hung, if any."""

    took: dict[str, float]
    failed: str = ""
    hangs: bool = False


def named(test: str, name: str) -> bool:
    """Whether a file, folder or test of this name contains a test."""
    return test == name or test.startswith((f"{name}/", f"{name}::", f"{name}["))


class Runner:
    """A process that runs tests on the package in this folder."""

    def __init__(self, folder: Path, tests: list[str]) -> None:
        self._environment = {
            **os.environ,
            "CI": "true",  # the same draws every time: see tests/conftest.py
            "PYTHONPATH": str(folder),
            "PYTHONPYCACHEPREFIX": str(folder / "cache"),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "examples"),
            "OPENBLAS_NUM_THREADS": "1",
        }
        self._environment.pop("PYTHONDONTWRITEBYTECODE", None)  # what is compiled serves every run
        self._folder = folder
        self._process = subprocess.Popen(
            [*self._command("tests"), *tests],
            cwd=ROOT,
            env=self._environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.tests: list[str] = self._answer()

    def _command(self, name: str) -> list[str]:
        own = f"--basetemp={self._folder / name}"
        return [sys.executable, "-m", "tests.mutants.running", own]

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            return json.loads(line)
        raise RuntimeError("the tests cannot be collected: run `python -m pytest --collect-only`")

    def run(self, tests: list[str], broken: Broken, seconds: list[float]) -> Run | None:
        """The tests in this order until one fails, each given its seconds of computing; None
        where the function cannot be replaced without loading the module again.
        """
        assert self._process.stdin is not None
        request = {"tests": tests, "broken": vars(broken), "seconds": seconds}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        return None if answer is None else Run(**answer)

    def afresh(self, tests: tuple[str, ...]) -> str:
        """The first test that fails in a process that has loaded nothing; `hangs` or none."""
        call = [*self._command("afresh"), "--afresh", *tests]
        try:
            ended = subprocess.run(
                call,
                cwd=ROOT,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                check=False,
                timeout=3 * WAITING,
            )
        except subprocess.TimeoutExpired:
            return HANGS
        code, failed = json.loads(ended.stdout.splitlines()[-1])
        if code not in (0, 1, 2):  # passed; a test failed, or a file of tests cannot be loaded
            raise RuntimeError(f"pytest ended with {code} on {' '.join(tests)}")
        return str(failed) if code else ""

    def end(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Reports:
    """Notes what pytest reports: the time that tests took, and the first that failed."""

    def __init__(self) -> None:
        self.took: dict[str, float] = {}
        self.failed = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Called by pytest after each part of a test."""
        self.took[report.nodeid] = self.took.get(report.nodeid, 0.0) + report.duration
        self.failed = self.failed or (report.nodeid if report.failed else "")

    def pytest_collectreport(self, report: Any) -> None:
        """Called by pytest after a file was loaded."""
        self.failed = self.failed or (report.nodeid if report.failed else "")


class Server(Reports):
    """Replaces pytest's loop over tests: forks for each request."""

    def __init__(self, requests: int, answers: int) -> None:
        super().__init__()
        self._requests = os.fdopen(requests)
        self._answers = os.fdopen(answers, "w")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Called by pytest once all tests are collected; True: nothing else shall run them."""
        items = {item.nodeid: item for item in session.items}
        print(json.dumps(list(items)), file=self._answers, flush=True)
        for line in self._requests:
            request = json.loads(line)
            found = self._forked(items, request)
            print(json.dumps(found), file=self._answers, flush=True)
        return True

    def _forked(self, items: dict[str, pytest.Item], request: dict[str, Any]) -> Any:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                os.setsid()
                with os.fdopen(writing, "w") as pipe:
                    self._work(items, request, pipe)
            os._exit(0)
        os.close(writing)
        try:
            return _read(reading)
        finally:
            os.close(reading)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)

    def _work(self, items: dict[str, pytest.Item], request: dict[str, Any], pipe: Any) -> None:
        broken = Broken(**request["broken"])
        if broken.module and not put(broken):
            print(json.dumps(("unable", "", 0.0)), file=pipe, flush=True)
            return
        chosen = [items[test] for test in request["tests"]]
        follow = [*chosen[1:], None]
        for item, following, seconds in zip(chosen, follow, request["seconds"], strict=True):
            print(json.dumps(("begins", item.nodeid, 0.0)), file=pipe, flush=True)
            limit = int(time.process_time() + seconds) + 1
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            said = "failed" if self.failed else "passed"
            print(json.dumps((said, item.nodeid, self.took[item.nodeid])), file=pipe, flush=True)
            if self.failed:
                return
        print(json.dumps(("end", "", 0.0)), file=pipe, flush=True)


def _read(pipe: int) -> Any:
    """A fork's output until it ends or is silent for too long: a `Run`, or None."""
    took: dict[str, float] = {}
    begun = ""
    for said, test, seconds in _lines(pipe):
        if said == "unable":
            return None
        if said == "begins":
            begun = test
            continue
        if said == "end":
            return {"took": took}
        took[test] = seconds
        if said == "failed":
            return {"took": took, "failed": test}
    return {"took": took, "failed": begun, "hangs": True}


def _lines(pipe: int) -> Iterator[tuple[str, str, float]]:
    rest = b""
    while True:
        ready, _, _ = select.select([pipe], [], [], WAITING)
        more = os.read(pipe, 1 << 16) if ready else b""
        if not more:
            return
        *whole, rest = (rest + more).split(b"\n")
        for line in whole:
            said, test, seconds = json.loads(line)
            yield said, test, seconds


def put(broken: Broken) -> bool:
    """Gives every holder of a function the broken code; False where only loading can do that.

    A module that is not loaded yet needs nothing: it will be loaded as it is in the copy.
    """
    if not any(getattr(m, "__file__", None) == broken.module for m in list(sys.modules.values())):
        return True
    text = Path(broken.module).read_text(encoding="utf-8")
    code = _inside(compile(text, broken.module, "exec"), broken.function.split("."))
    gc.unfreeze()  # tests/conftest.py hides what is loaded from gc
    holders = [
        one
        for one in gc.get_objects()
        if isinstance(one, FunctionType)
        and one.__code__.co_filename == broken.module
        and one.__code__.co_firstlineno == broken.line
    ]
    if code is None or not holders:
        return False
    for one in holders:
        if one.__code__.co_freevars != code.co_freevars:
            return False
        exec(HELPERS, one.__globals__)
        one.__code__ = code
    return True


def _inside(code: CodeType, path: list[str]) -> CodeType | None:
    """The code of a function, by its dotted name; the last of several, as Python takes it."""
    for name in path:
        inside = [c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name]
        if not inside:
            return None
        code = inside[-1]
    return code


def main() -> None:
    """Serves requests, or runs the tests named once."""
    own, *tests = sys.argv[1:]
    afresh = "--afresh" in tests
    with Path(os.devnull).open("r+b", buffering=0) as quiet:
        requests, answers = os.dup(0), os.dup(1)
        for stream in (0, 1, 2):
            os.dup2(quiet.fileno(), stream)
        if not afresh:
            pytest.main([own, *OPTIONS, *tests], [Server(requests, answers)])
            return
        reports = Reports()
        resource.setrlimit(resource.RLIMIT_CPU, (1200, 1200))
        code = pytest.main([own, *OPTIONS, "-x", *tests[1:]], [reports])
        os.write(answers, json.dumps((int(code), reports.failed)).encode() + b"\n")
        os._exit(0)


if __name__ == "__main__":
    main()
