"""The wheel alone, in clean environments: with each extra, and with the lowest versions allowed."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
CORE = """
import tacit
result = tacit.simulate("private-med", arms=3, horizon=2000, runs=1, workers=1)
assert result.guarantee.short == "(1, 0)-DP"
assert tacit.privacy_of(tacit.DiscreteLaplace(10), sensitivity=10).epsilon == 1.0
"""
SMOKE = {
    "": CORE,
    "plot": CORE + "result.plot('regret.png')\n",
    "certificates": "import tacit.papers.certificates\n",
    "compare": "import river.bandit, tacit\n",
    "parquet": CORE + "assert result.to_arrow().num_rows == 1\n",
    "pandas": CORE + "assert len(result.to_pandas()) == 1\n",
    "device": "from tacit.client import Device, Ledger, Pins\nLedger(':memory:')\n",
    "openfeature": "from tacit.client.openfeature import Flag, TacitProvider\n",
    "live": "import tacit.service.http.serve\nfrom tacit.service.definition import Definition\n",
    "flare": "from tacit.silos.flare import FederationController, RelayExecutor\n",
    "postgresql": "import psycopg, tacit.service.http.serve\n",
    "ray": "import ray, tacit\n",
}
UNTRIED = {"dev", "docs", "all", "flower"}  # tools, unions, and what pins exclude


def run(words: list[str], where: Path) -> str:
    ended = subprocess.run(words, cwd=where, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)], ROOT)
    (found,) = out.glob("*.whl")
    return found


def environment(directory: Path) -> Path:
    """A clean environment, without pip; its Python."""
    venv.create(directory / "env")
    return directory / "env" / "bin" / "python"


def install(python: Path, wheel: Path, extra: str, constraints: Path) -> None:
    what = f"{wheel}[{extra}]" if extra else str(wheel)
    words = ["install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    pip = [sys.executable, "-m", "pip", "--python", str(python), *words]
    run([*pip, "--constraint", str(constraints), what], constraints.parent)


def test_every_extra_has_a_smoke_test() -> None:
    assert SMOKE.keys() - {""} | UNTRIED >= EXTRAS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("extra", sorted(SMOKE))
def test_the_wheel_alone_works_with_an_extra(extra: str, wheel: Path, tmp_path: Path) -> None:
    if extra and extra not in EXTRAS:
        pytest.skip(f"there is no extra {extra}")
    python = environment(tmp_path)
    install(python, wheel, extra, ROOT / "constraints.txt")
    run([str(python), "-W", "error::DeprecationWarning:tacit", "-c", SMOKE[extra]], tmp_path)
    run([str(python.parent / "tacit"), "--version"], tmp_path)
    run([str(python.parent / "tacit"), "algorithms"], tmp_path)


def lowest(*extras: str) -> list[str]:
    """The lowest version of every direct dependency, as constraints."""
    wanted = [*PROJECT["dependencies"], *(need for extra in extras for need in EXTRAS[extra])]
    found = (re.match(r"([\w.-]+)(?:\[[\w,]+\])?>=([\w.]+)", need) for need in wanted)
    return [f"{match[1]}=={match[2]}" for match in found if match]


@pytest.mark.slow
@pytest.mark.parametrize("extra", ["", "plot", "device"])
def test_the_lowest_versions_allowed_work(extra: str, wheel: Path, tmp_path: Path) -> None:
    constraints = tmp_path / "lowest.txt"
    constraints.write_text("\n".join(lowest(*filter(None, [extra]))), encoding="utf-8")
    python = environment(tmp_path)
    install(python, wheel, extra, constraints)
    run([str(python), "-c", SMOKE[extra]], tmp_path)
    run(
        [
            str(python.parent / "tacit"),
            "calibrate",
            "--noise",
            "skellam",
            "--epsilon",
            "1",
            "--delta",
            "1e-6",
        ],
        tmp_path,
    )
