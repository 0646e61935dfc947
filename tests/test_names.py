"""Stored names: resolution, and no import of external code."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from tests.tables import each_row

import tacit
from tacit.bandits import ForgettingElimination, Learner
from tacit.errors import TacitError
from tacit.names import Lazy, name_of, resolve_name
from tacit.types import Arm, Assignment, Design, Round


class Own(Assignment):
    """A user's class in a loaded module."""

    @property
    def coordinates(self) -> int:
        return 1

    def time(self, participants: int) -> int:
        return participants

    class Inner(Arm):
        """Inside a class, not a function."""


@pytest.mark.parametrize("thing", [ForgettingElimination, Arm, Own, Own.Inner])
def test_stored_names_resolve_to_their_object(thing: type) -> None:
    assert resolve_name(name_of(thing), object) is thing


def test_local_functions_and_classes_have_no_stored_name() -> None:
    class Hidden:
        pass

    for thing in (Hidden, lambda: None):
        with pytest.raises(TacitError, match="move it to the top of its module"):
            name_of(thing)


@each_row(
    "name",
    [
        "antigravity:fly",  # exists, is not loaded, and would be noticed
        "this:s",
        "no.such.module:Thing",
        "tacitly:Arm",
        "tacit_estimates:Arm",
        "builtins:int",
        "Arm",
        "tacit.types",
        "tacit.types:",
        ":Arm",
        "",
        "tacit.types:Nothing",
        "tacit.types:Round",
        "tacit.types:arm.Arm",
        None,
        7,
    ],
)
def test_unloaded_modules_and_objects_of_other_kinds_are_rejected(name: object) -> None:
    before = set(sys.modules)
    with pytest.raises(TacitError, match="is not known here as Assignment: import the module"):
        resolve_name(name, Assignment)
    assert set(sys.modules) == before


def test_a_missing_builtin_module_is_rejected_with_a_message() -> None:
    with pytest.raises(TacitError, match="this version of tacit has no"):
        resolve_name("tacit.bandits.oracle:Oracle", Learner)


@pytest.mark.parametrize(
    "name",
    ["tacit.bandits:ForgettingElimination", "tacit.names:sys.exit", "tacit.names:import_module"],
)
def test_names_imported_into_a_module_are_not_its_own(name: str) -> None:
    """Found: through our modules a file could name whatever they import."""
    with pytest.raises(TacitError, match="is not known here"):
        resolve_name(name, object)


def test_builtin_modules_are_imported_and_external_ones_never() -> None:
    """In a fresh interpreter: the learner's module is loaded for its name, this one is not."""
    code = """
import sys
from tacit.errors import TacitError
from tacit.names import resolve_name
name = "tacit.bandits.arms.elimination:ForgettingElimination"
assert "tacit.bandits.arms.elimination" not in sys.modules
assert resolve_name(name, object).__name__ == "ForgettingElimination"
for module in ("antigravity", "wave", "xmlrpc.client", "tests.test_names"):
    assert module not in sys.modules
    try:
        resolve_name(f"{module}:Error", object)
    except TacitError:
        assert module not in sys.modules
    else:
        raise SystemExit(module)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_lazy_modules_load_on_first_use() -> None:
    assert Lazy("tacit.types").Arm is Arm
    with pytest.raises(AttributeError):
        _ = Lazy("tacit.types").Nothing


# rounds are stored with the name of what they assign


@pytest.mark.parametrize(
    "round_",
    [
        Round(0, 5, Arm(2)),
        Round(3, 0, Design((4, 1), (7, 2), 8.5, each=True), released=False),
        Round(3, 9, Design((4,), (7,), 8.5)),
        Round(1, 2, Own.Inner(4)),
    ],
)
def test_a_round_round_trips(round_: Round) -> None:
    data = round_.to_dict()
    copy = Round.from_dict(data)
    assert copy == round_
    assert type(copy.assignment) is type(round_.assignment)
    assert copy.to_dict() == data == round_.to_dict()


def test_a_round_of_an_unknown_assignment_is_rejected() -> None:
    data = Round(0, 5, Arm(2)).to_dict()
    data["assignment"]["kind"] = "elsewhere:Arm"
    with pytest.raises(TacitError, match="not known here as Assignment"):
        Round.from_dict(data)


def test_rounds_state_their_size_and_arm() -> None:
    design = Design((4, 1), (7, 2), 8.5)
    assert (Round(0, 5, Arm(2)).time, Arm(2).coordinates, Round(0, 5, Arm(2)).arm) == (5, 1, 2)
    assert (Round(0, 5, design).time, design.coordinates) == (9, 2)
    with pytest.raises(TacitError, match="round 6 has no single option"):
        _ = Round(6, 5, design).arm


def test_public_class_names_are_unique() -> None:
    """So that a reader who searches for a name finds one thing."""
    package = Path(tacit.__file__).parent
    homes: dict[str, list[str]] = {}
    for path in sorted(package.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(package)))
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}
