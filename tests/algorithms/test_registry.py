"""The registry: every entry builds an experiment, runs, survives a restart, and accepts its own
options only.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from tests.algorithms.asking import options_of

from tacit.algorithms import ArmsProblem, algorithm, algorithms, lookup
from tacit.algorithms.problems import Problem, Start, option
from tacit.algorithms.registry import _KNOWN
from tacit.errors import TacitError
from tacit.experiment import Experiment
from tacit.simulation import compare, run, simulate

AGREED = {
    "arms": "dist-dp-se dist-rdp-se dist-cdp-se cdp-se ldp-se shuffle-dp-se split-dp-se dp-se "
    "sdp-ae vb-sdp-ae private-klucb private-med private-pe private-dpe adap-klucb lazy-dp-ts "
    "ucb1 klucb thompson successive-elimination",
    "linear": "dpe cdp-dpe ldp-dpe sdp-dpe secagg-dpe pe cdp-pe ldp-pe sdp-pe secagg-pe dpe-fixed",
    "federated": "fedlinucb ldp-fedlinucb sdp-fedlinucb sdp-fedlinucb-vec secagg-fedlinucb "
    "jdp-linucb",
    "contextual": "private-contextual contextual-thompson",
}
NAMES = list(algorithms())
EACH = pytest.mark.parametrize("name", NAMES)
SMALL: dict[str, dict[str, Any]] = {
    "arms": {"arms": 3, "horizon": 3000},
    "linear": {"dimension": 3, "actions": 12, "horizon": 900, "fixed_clients": 20},
    "federated": {"silos": 3, "dimension": 3, "actions": 5, "sync": 10, "horizon": 65},
    "contextual": {"arms": 3, "dimension": 4, "horizon": 3000},
}
TINY = {"sdp-fedlinucb": {"epsilon": 1e-3, "delta": 1e-4}}  # beyond, nothing is proven


def small_options(name: str) -> Problem:
    size = options_of(name, **SMALL[lookup(name).family])
    return lookup(name).make_problem({**size, **TINY.get(name, {})})


def ready(name: str, seed: int = 5) -> tuple[Experiment, Start]:
    """A small experiment with its own environment."""
    start = small_options(name).start(seed, None)
    return lookup(name).build(small_options(name).for_environment(start.world, seed)), start


def test_the_list_of_algorithm_names_is_fixed() -> None:
    ours = {name: e for name, e in algorithms().items() if e.build.__module__.startswith("tacit")}
    found = {name: entry.family for name, entry in ours.items()}
    assert found == {name: family for family, names in AGREED.items() for name in names.split()}
    assert all(entry.name == name for name, entry in algorithms().items())


@EACH
def test_every_algorithm_runs_to_its_horizon_and_keeps_its_options(name: str) -> None:
    experiment, start = ready(name)
    outcome = run(experiment, start.world, start.rng, noise=start.noise)
    assert experiment.finished
    assert outcome.played == experiment.learner.horizon
    assert outcome.released > 0
    assert outcome.regret is not None
    assert lookup(name).describe(small_options(name)).keys() == set(lookup(name).options)
    assert (experiment.guarantee is None) == (lookup(name).guarantee in ("none", "nothing"))


@EACH
def test_a_restored_experiment_continues_identically(name: str) -> None:
    """Written down half way, inside a barrier where there is one; then the same chances for
    both.
    """
    experiment, start = ready(name)
    done = 0
    while done < 3:
        for round_ in experiment.propose()[:2]:
            done += 1
            protocol = experiment.open(round_) if round_.released else None
            played = start.world.play(round_, protocol, start.rng)
            if protocol is None:
                experiment.skip(round_)
            else:
                experiment.observe(round_, protocol.simulate(played.load, start.noise))
    text = json.dumps(experiment.to_dict(), allow_nan=False)
    restored = Experiment.from_dict(json.loads(text))
    assert json.dumps(restored.to_dict(), allow_nan=False) == text
    assert restored.propose() == experiment.propose()
    ends = []
    for going in (experiment, restored):
        again = small_options(name).start(9, start.world)
        outcome = run(going, start.world, again.rng, noise=again.noise)
        assert going.finished
        ends.append((outcome.regret, outcome.guarantee, going.best(), going.estimates()))
    assert ends[0] == ends[1]


@EACH
def test_options_of_other_algorithms_are_rejected_by_name(name: str) -> None:
    entry = lookup(name)
    others = {option for other in algorithms().values() for option in other.options}
    for strange in (others | {"colour"}) - set(entry.options):
        with pytest.raises(TacitError, match=f"{name} has no option --{strange.replace('_', '-')}"):
            entry.make_problem({strange: 1})


@pytest.mark.parametrize("family", SMALL)
def test_results_record_every_option_of_their_algorithm(family: str) -> None:
    entry = next(one for one in algorithms().values() if one.family == family)
    recorded = simulate(entry, **entry.describe(small_options(entry.name)), runs=1)
    assert set(recorded.configuration) == {*entry.options, "first_seed"}


def test_a_shared_option_reaches_every_algorithm_that_has_it() -> None:
    asked: dict[str, Any] = {
        "epsilon": 2.0,
        "trust": "central",
        "arms": 2,
        "horizon": 500,
        "runs": 1,
    }
    free, ours = compare(["ucb1", "private-klucb"], **asked)
    assert "epsilon" not in free.configuration
    assert (ours.configuration["epsilon"], ours.configuration["trust"]) == (2.0, "central")
    with pytest.raises(TacitError, match="none of ucb1, klucb has the option --epsilon"):
        compare(["ucb1", "klucb"], epsilon=1.0)


def test_duplicate_algorithm_names_are_rejected() -> None:
    about: dict[str, Any] = {
        "paper": "",
        "trust": "central",
        "guarantee": "",
        "problem": ArmsProblem,
    }
    with pytest.raises(
        TacitError, match=r"name is 'dist-dp-se', which tacit\.algorithms\.cz23 has"
    ):
        algorithm("dist-dp-se", **about)(lookup("klucb").build)
    with pytest.raises(TacitError, match="ArmsProblem has no colour"):
        algorithm("painted", options=("colour",), **about)(lookup("klucb").build)
    assert "painted" not in algorithms()


def test_a_registered_algorithm_is_simulated_like_the_builtin_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    algorithms()  # ours are in
    monkeypatch.setattr("tacit.algorithms.registry._KNOWN", dict(_KNOWN))
    about: dict[str, Any] = {
        "paper": "mine",
        "trust": "central",
        "guarantee": "none",
        "problem": ArmsProblem,
    }

    @algorithm("mine", options=("arms", "horizon"), defaults={"horizon": 400}, **about)
    def mine(problem: ArmsProblem) -> Experiment:
        return lookup("klucb").build(problem.changed(failure_probability=0.2))

    result = simulate(lookup("mine"), arms=2, runs=2)
    assert (result.horizon, result.configuration["arms"], len(result.runs)) == (400, 2, 2)
    assert result.regret_mean == simulate("klucb", arms=2, horizon=400, runs=2).regret_mean


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("dist-dp-es", "dist-dp-se"),
        ("private-klucbs", "private-klucb"),
        ("secagg-fedlinuc", "secagg-fedlinucb"),
        ("cdpdpe", "cdp-dpe"),
    ],
)
def test_a_misspelt_name_suggests_the_closest_one(wrong: str, meant: str) -> None:
    with pytest.raises(TacitError, match=f"did you mean {meant}"):
        lookup(wrong)


def test_a_name_without_a_close_match_lists_all_names() -> None:
    with pytest.raises(
        TacitError, match=r"must be one of adap-klucb, .* vb-sdp-ae \(see: tacit algor"
    ):
        lookup("qqqq")


def test_options_reach_their_configuration_group_by_name() -> None:
    problem = ArmsProblem.of(arms=3, epsilon=0.5, rewards="beta", binary=True)
    assert (problem.privacy.epsilon, problem.environment.rewards) == (0.5, "beta")
    assert problem.changed(epsilon=2.0, horizon=50).privacy.epsilon == 2.0
    assert problem.changed(epsilon=2.0).environment == problem.environment
    assert problem.values()["epsilon"] == 0.5
    assert problem.values().keys() == ArmsProblem.options().keys()
    panels = {option.panel for option in ArmsProblem.options().values()}
    assert panels == {"Problem", "Privacy", "Environment"}
    for call in (ArmsProblem.of, problem.changed):
        with pytest.raises(TacitError, match=r"ArmsProblem has no epsilonn; did you mean epsilon"):
            call(epsilonn=1.0)


def test_an_external_problem_adds_its_own_options() -> None:
    @dataclass(frozen=True)
    class Coloured(ArmsProblem):
        colour: str = option("red", "Colour of the options.")

    assert Coloured.of(colour="blue", epsilon=2.0).values()["colour"] == "blue"
    declared = Coloured.options()["colour"]
    assert (declared.help, declared.panel, declared.value_type) == (
        "Colour of the options.",
        "Problem",
        str,
    )
