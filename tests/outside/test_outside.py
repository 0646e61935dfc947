"""An external package is found by every command and passes the same contract suites."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PACKAGE = Path(__file__).with_name("package")
LINES = {"distribution": 60, "protocol": 80, "learner": 50, "algorithm": 15}
SUITES = """
import math
import sys
from fractions import Fraction
from outside.distribution import Sign
from outside.learner import Commit
from outside.protocol import Response
from tacit import testing
from tacit.types import ErrorDistribution

class Halved(Response):
    def randomize(self, x):
        return self.encode(x)

class Proxy(Response):
    # takes the variance for a sub-Gaussian proxy
    def error(self, reports):
        error = super().error(reports)
        v = error.noise.variance
        class Wrong(type(error.noise)):
            def log_mgf(self, s):
                return v * s * s / 2
            def bound(self, p):
                return (2 * v * math.log(2 / p)) ** 0.5
        return ErrorDistribution(reports, 1, Wrong(reports, error.noise.lie))

class Proposed(Commit):
    # divides by the participants of a round
    def _learn(self, round_, estimate):
        self._sums[round_.arm] = float(estimate.total) / round_.participants

class Still(Sign):
    def _draw_one(self):
        return 0

class Forgetful(Commit):
    def _state(self):
        return {"sums": [None] * self.arms}

checks = {
    "distribution": lambda: testing.check_distribution(Sign(Fraction(1, 3))),
    "protocol": lambda: testing.check_protocol(Response(40, 1.0)),
    "learner": lambda: testing.check_learner(lambda: Commit(3, 1000)),
    "algorithm": lambda: testing.check_algorithm("outside-commit"),
    "broken distribution": lambda: testing.check_distribution(Still(Fraction(1, 3))),
    "broken protocol": lambda: testing.check_protocol(Halved(40, 1.0)),
    "wrong error": lambda: testing.check_protocol(Proxy(40, 1.0)),
    "broken learner": lambda: testing.check_learner(lambda: Forgetful(3, 1000)),
    "wrong count": lambda: testing.check_learner(lambda: Proposed(3, 1000)),
}
for name, check in checks.items():
    try:
        check()
        print(name, "passes")
    except AssertionError:
        print(name, "fails")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process in which the package is installed, with its entry point."""
    site = tmp_path_factory.mktemp("site")
    shutil.copytree(PACKAGE / "outside", site / "outside")
    about = site / "outside-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[tacit.algorithms]\ncommit = outside.algorithm\n")
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def run_cli(installed: dict[str, str], *words: str) -> Any:
    ended = subprocess.run(
        [sys.executable, "-m", "tacit", *words, "--json"],
        capture_output=True,
        text=True,
        env=installed,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.extended
def test_an_external_package_is_listed_simulated_compared_swept_and_planned(
    installed: dict[str, str], tmp_path: Path
) -> None:
    names = [entry["name"] for entry in run_cli(installed, "algorithms")["algorithms"]]
    assert "outside-commit" in names
    size = ("--arms", "3", "--horizon", "20000", "--runs", "3")
    found = run_cli(installed, "simulate", "--algorithm", "outside-commit", *size)
    assert found["guarantee"]["text"].startswith(
        "(1, 0)-DP: to an adversary who sees the participant's own message"
    )
    assert found["guarantee"]["arithmetic"] == "unstated"
    declared = {"id": "declared-by-author", "draws": 100_000, "participants": 1}
    assert declared in found["guarantee"]["assumptions"]
    assert found["guarantee"]["text"].endswith(
        "declared by its author; recomputed from its stated distribution; randomizer sampled 10⁵ "
        "times, in rounds of 1; how the noise is drawn is not stated."
    )
    assert set(found["configuration"]) >= {"arms", "horizon", "epsilon"}
    assert "trust" not in found["configuration"]
    both = ("--algorithms", "outside-commit,klucb", "--out", str(tmp_path))
    compared = run_cli(installed, "compare", *both, *size)
    assert [result["algorithm"] for result in compared["results"]] == ["outside-commit", "klucb"]
    (tmp_path / "study.toml").write_text(
        'algorithms = ["outside-commit", "klucb"]\nseeds = 3\n'
        "problems = {arms = 3, horizon = 2e4}\nguarantees = {epsilon = [1, 2]}\n"
    )
    swept = run_cli(installed, "sweep", str(tmp_path / "study.toml"), "--workers", "1")
    assert (swept["done"], swept["failed"]) == (9, [])
    first = swept["configurations"][0]
    assert (first["algorithm"], first["regret_mean"]) == ("outside-commit", found["regret_mean"])
    options = ("--options", "3", "--gap", "0.1", "--horizon", "20000", "--runs", "2")
    planned = run_cli(installed, "plan", "--algorithms", "outside-commit", *options)
    assert len(planned["costs"]) == 1


@pytest.mark.extended
def test_the_contract_suites_accept_it_and_reject_broken_copies(installed: dict[str, str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SUITES], capture_output=True, text=True, env=installed, check=False
    )
    assert ended.returncode == 0, ended.stderr
    said = dict(line.rsplit(" ", 1) for line in ended.stdout.splitlines())
    assert said == {
        **dict.fromkeys(("distribution", "protocol", "learner", "algorithm"), "passes"),
        **dict.fromkeys(("broken distribution", "broken protocol", "broken learner"), "fails"),
        **dict.fromkeys(("wrong error", "wrong count"), "fails"),
    }


@pytest.mark.parametrize("part", LINES)
def test_each_part_is_as_short_as_documented(part: str) -> None:
    text = (PACKAGE / "outside" / f"{part}.py").read_text(encoding="utf-8")
    ast.parse(text)
    written = [line for line in text.splitlines() if line.strip()]
    assert len(written) <= LINES[part]
