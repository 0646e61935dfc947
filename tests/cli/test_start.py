"""Start-up: no unused package is imported. Times are in benchmarks/start.py."""

from __future__ import annotations

import subprocess
import sys

from tests.cli.commands import program, rejected

from tacit.cli import HOMES, built

NUMERICS = {"numpy", "scipy", "dp_accounting", "cryptography", "matplotlib"}


def modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules, file=sys.stderr)"
    words = [sys.executable, "-c", code]
    return set(subprocess.run(words, capture_output=True, text=True, check=True).stderr.split())


def of_commands(*commands: str) -> set[str]:
    """All modules that one interpreter has loaded after these commands."""
    ran = (f"sys.argv = ['tacit', *{words!r}.split()]; main()" for words in commands)
    return modules_after(f"from tacit.cli import main; {'; '.join(ran)}")


def test_importing_tacit_loads_no_heavy_package() -> None:
    loaded = modules_after("import tacit")
    assert not (NUMERICS | {"typer", "rich"}) & loaded
    assert len([name for name in loaded if name.startswith("tacit")]) <= 2
    assert "tacit.privacy" in modules_after("import tacit; tacit.privacy")


def test_lists_and_help_load_no_numerical_package() -> None:
    loaded = of_commands("--help", "algorithms", "algorithms --json", "simulate --help")
    assert not NUMERICS & loaded


def test_a_simulation_loads_only_special_functions_of_scipy() -> None:
    loaded = of_commands("simulate --algorithm dist-dp-se --arms 2 --horizon 10 --runs 1 --json")
    public = {name for name in loaded if name.startswith("scipy.") and name.count(".") == 1}
    assert {name for name in public if "._" not in name} <= {"scipy.special", "scipy.version"}
    assert not {"matplotlib", "dp_accounting", "cryptography", "rich.progress"} & loaded


def test_the_module_runs_as_a_program() -> None:
    words = ("calibrate", "--noise", "skellam", "--epsilon", -3, "--delta", 1e-5)
    assert "epsilon is -3" in rejected(program(*words))


def test_help_lists_every_command_without_loading_any() -> None:
    loaded = of_commands("--help")
    assert not {f"tacit.cli.{home}" for home in HOMES.values()} & loaded
    assert "tacit.algorithms" not in loaded
    for name, home in HOMES.items():
        assert built(name).name == name, home
