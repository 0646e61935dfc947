"""`simulate` and `compare` as type checkers see them: `make check` runs mypy over this file.

An expected error has a `type: ignore` with its code; mypy rejects those that are not needed.
"""

from __future__ import annotations

from typing import Any, assert_type, get_args, get_type_hints

import pytest

import tacit
from tacit import Result, Results, TacitError
from tacit.algorithms import Problem, algorithms
from tacit.simulation import call_options
from tacit.simulation.study import HOW

FAMILIES: dict[str, tuple[Any, Any]] = {
    "arms": (call_options.ArmsAlgorithm, call_options.ArmsOptions),
    "linear": (call_options.LinearAlgorithm, call_options.LinearOptions),
    "federated": (call_options.SilosAlgorithm, call_options.SilosOptions),
    "contextual": (call_options.ContextualAlgorithm, call_options.ContextualOptions),
}


def test_options_of_each_family_are_typed() -> None:
    arms = tacit.simulate("dist-dp-se", arms=3, horizon=1e3, epsilon=2.0, constants="tight", runs=1)
    assert_type(arms, Result)
    assert_type(tacit.simulate("cdp-dpe", dimension=3, actions=5, horizon=500, runs=1), Result)
    silos = tacit.simulate("fedlinucb", silos=2, dimension=3, horizon=50, lazy=True, runs=1)
    assert_type(silos, Result)
    entry = tacit.algorithms.lookup("ucb1")  # a name that is known only at run time
    assert_type(tacit.simulate(entry, arms=2, horizon=100, runs=1), Result)
    both = tacit.compare(["ucb1", "dist-dp-se"], arms=2, horizon=1000, runs=1)
    assert_type(both, Results)
    assert [result.algorithm for result in (arms, silos, *both)][2:] == ["ucb1", "dist-dp-se"]


def test_misspelt_options_are_type_errors_with_a_suggestion() -> None:
    with pytest.raises(TacitError, match=r"--epsilonn; did you mean epsilon\?"):
        tacit.simulate("dist-dp-se", epsilonn=1.0)  # type: ignore[call-overload]
    with pytest.raises(TacitError, match=r"--rnus; did you mean runs\?"):
        tacit.simulate("dist-dp-se", rnus=2)  # type: ignore[call-overload]
    with pytest.raises(TacitError, match=r"--horizn; did you mean horizon\?"):
        tacit.compare(["ucb1", "klucb"], horizn=100)  # type: ignore[list-item]
    with pytest.raises(TacitError, match=r"'dist-dp-es'; did you mean dist-dp-se\?"):
        tacit.simulate("dist-dp-es")  # type: ignore[call-overload]


def test_options_of_another_problem_and_wrong_values_are_type_errors() -> None:
    with pytest.raises(TacitError, match="dist-dp-se has no option --silos"):
        tacit.simulate("dist-dp-se", silos=3)  # type: ignore[call-overload]
    with pytest.raises(TacitError, match="constants is 'loose'"):
        tacit.simulate("dist-dp-se", constants="loose")  # type: ignore[call-overload]
    with pytest.raises(TacitError, match="mode is 'wild'"):
        tacit.simulate("secagg-fedlinucb", mode="wild")  # type: ignore[call-overload]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_types_match_the_registry(family: str) -> None:
    names, options = FAMILIES[family]
    own = {
        name: entry
        for name, entry in algorithms().items()
        if entry.family == family and entry.build.__module__.startswith("tacit.")
    }
    assert {name for part in get_args(names) for name in get_args(part)} == set(own)
    problem: type[Problem] = next(iter(own.values())).problem
    hints = get_type_hints(options)
    assert set(hints) == {*problem.options(), *HOW}
    for name, declared in problem.options().items():
        if declared.kind in (float, str, bool) or get_args(declared.kind)[:1] == ("tight",):
            assert hints[name] == declared.kind, name


def test_the_help_of_simulate_lists_every_option() -> None:
    described = str(tacit.simulate.__doc__)
    for entry in algorithms().values():
        for name, declared in entry.problem.options().items():
            assert f"{name} : " in described, name
            assert declared.help.split()[0] in described
