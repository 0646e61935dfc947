"""Experiments: saved at any point they continue identically, and estimates of another guarantee are
rejected.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tables import each_row

from tacit.algorithms.registry import lookup
from tacit.bandits import ForgettingElimination
from tacit.environments import Bernoulli
from tacit.environments.contract import World
from tacit.environments.population import Population
from tacit.environments.silos import Synthetic
from tacit.errors import TacitError
from tacit.experiment import Experiment, load, save
from tacit.protocols import factories
from tacit.protocols.mechanism import PerRound
from tacit.protocols.prefix_sums import PrefixRound
from tacit.simulation import run
from tacit.types import Estimate, Round

TABLE = np.array([[0.9, 0.1], [-0.8, 0.3], [0.1, -0.9], [-0.5, -0.5], [0.2, 0.9]])
FAMILIES: dict[str, tuple[str, dict[str, Any], World]] = {
    "arms": (
        "dist-dp-se",
        {"arms": 3, "horizon": 3_000, "min_batch_size": 4, "labels": ("red", "green", "blue")},
        Bernoulli((0.2, 0.8, 0.5)),
    ),
    "linear": (
        "secagg-dpe",
        {"table": TABLE, "horizon": 3_000, "client_std": 0.05},
        Population(TABLE, np.array([0.6, -0.1]), 0.05, 0.1, 1.0),
    ),
    "federated": (
        "secagg-fedlinucb",
        {"silos": 3, "dimension": 3, "sync": 10, "horizon": 95},
        Synthetic.draw(3, 3, 5, np.random.default_rng(0)),
    ),
}
EACH = pytest.mark.parametrize("family", FAMILIES)


def experiment_of(family: str, epsilon: float = 1.0) -> Experiment:
    name, options, _ = FAMILIES[family]
    entry = lookup(name)
    settings = {**entry.defaults, **options, "epsilon": epsilon}
    return entry.build(entry.problem.of(**settings))


def hold(experiment: Experiment, round_: Round, family: str, seed: int = 0) -> Estimate:
    """What a simulation would observe; depends on nothing but the round, the seed and the past."""
    rng = np.random.default_rng([seed, round_.number])
    protocol = experiment.open(round_)
    return protocol.simulate(FAMILIES[family][2].play(round_, protocol, rng).load, rng)


def observe_or_skip(experiment: Experiment, round_: Round, family: str, seed: int = 0) -> None:
    if round_.released:
        experiment.observe(round_, hold(experiment, round_, family, seed))
    else:
        experiment.skip(round_)


def finish(experiment: Experiment, family: str) -> list[Round]:
    held = []
    while rounds := experiment.propose():
        for round_ in rounds:
            held.append(round_)
            observe_or_skip(experiment, round_, family)
    return held


def as_json(experiment: Experiment) -> str:
    return json.dumps(experiment.to_dict(), allow_nan=False)


@EACH
def test_an_experiment_saved_after_any_round_continues_identically(
    family: str, tmp_path: Path
) -> None:
    """Also with rounds outstanding, and with those that were simulated before it was saved."""
    original = experiment_of(family)
    trace = finish(original, family)
    assert len(trace) > 4
    assert original.finished
    places = sorted({0, 1, 2, len(trace) // 2, len(trace) - 1, len(trace)})
    for place in places:
        other = experiment_of(family)
        for round_ in trace[:place]:
            assert other.propose()[0] == round_
            observe_or_skip(other, round_, family)
        save(other, tmp_path / "saved.json")
        restored = load(tmp_path / "saved.json")
        assert as_json(restored) == as_json(other)
        assert restored.guarantee == original.guarantee
        assert finish(restored, family) == trace[place:]
        assert as_json(restored) == as_json(original)
        assert restored.best() == original.best()
        assert restored.estimates() == original.estimates()
    assert [path.name for path in tmp_path.iterdir()] == ["saved.json"]


@EACH
def test_the_driver_continues_a_restored_experiment(family: str, tmp_path: Path) -> None:
    """From one state of the generator: the rest of the run is the same, regret and all."""
    world, original = FAMILIES[family][2], experiment_of(family)
    for _ in range(2):
        for round_ in original.propose():
            observe_or_skip(original, round_, family)
    original.propose()
    save(original, tmp_path / "saved.json")
    restored = load(tmp_path / "saved.json")
    outcomes = [run(one, world, np.random.default_rng(5)) for one in (original, restored)]
    assert outcomes[0].regret == outcomes[1].regret
    assert outcomes[0].final_regret is not None
    assert outcomes[0].final_regret > 0
    assert outcomes[0].bits == outcomes[1].bits > 0
    assert outcomes[0].guarantee == outcomes[1].guarantee
    assert as_json(original) == as_json(restored)


@EACH
@pytest.mark.parametrize("other", [0.5, 2.0])
def test_an_estimate_under_another_epsilon_is_rejected(family: str, other: float) -> None:
    mine, theirs = experiment_of(family), experiment_of(family, other)
    (round_, *_), before = mine.propose(), as_json(mine)
    protocol = theirs.mechanism.open(round_)
    rng = np.random.default_rng(0)
    stranger = protocol.simulate(FAMILIES[family][2].play(round_, protocol, rng).load, rng)
    for restored in (mine, Experiment.from_dict(json.loads(before))):
        with pytest.raises(TacitError, match=rf"round {round_.number} has guarantee .*: must be"):
            restored.observe(round_, stranger)
        with pytest.raises(TacitError, match="has guarantee none: must be"):
            restored.observe(round_, Estimate(stranger.total, stranger.error))
        assert as_json(restored) == before
        assert restored.propose()[0] == round_
    mine.observe(round_, hold(mine, round_, family))
    assert as_json(mine) != before


@EACH
def test_an_estimate_under_a_slightly_larger_epsilon_is_rejected(family: str) -> None:
    mine, theirs = experiment_of(family), experiment_of(family, 1.0004)
    (round_, *_) = mine.propose()
    stranger = hold(theirs, theirs.propose()[0], family)
    with pytest.raises(TacitError, match=r"has guarantee .*: must be"):
        mine.observe(round_, stranger)


def test_an_aborted_synchronisation_ends_silos_before_any_report() -> None:
    """Prefix sums need every step, and a second message for one would not be accounted for."""
    experiment = experiment_of("federated")
    experiment.skip(experiment.propose()[0])
    with pytest.raises(TacitError, match="synchronisation 1 was never released"):
        experiment.open(experiment.propose()[0])


def test_a_step_of_silos_is_released_once_also_after_a_restart() -> None:
    experiment = experiment_of("federated")
    (round_,) = experiment.propose()
    protocol = experiment.open(round_)
    history = np.zeros((1, protocol.coordinates))
    messages = [protocol.randomize(history) for _ in range(protocol.participants)]
    first = protocol.analyze(protocol.combine(messages))
    restored = Experiment.from_dict(json.loads(json.dumps(experiment.to_dict())))
    late = restored.open(restored.propose()[0])
    for again in (lambda: late.randomize(history), lambda: late.combine(messages)):
        with pytest.raises(TacitError, match="was released before"):
            again()
    assert isinstance(late, PrefixRound)
    assert np.array_equal(late.repeat_estimate().total, first.total)
    restored.observe(round_, late.repeat_estimate())
    with pytest.raises(TacitError, match="already observed"):
        restored.open(round_)


def test_silos_with_altered_noise_are_rejected() -> None:
    stored = experiment_of("federated").to_dict()
    for change in ({"sigma": 1e-3}, {"noise": "none", "trust": "none", "sigma": 0.0}):
        changed = copy.deepcopy(stored)
        changed["mechanism"]["sums"] |= change
        with pytest.raises(TacitError, match="their noise was changed"):
            Experiment.from_dict(changed)


@pytest.mark.parametrize("family", ["arms", "linear"])
def test_a_file_with_altered_noise_is_rejected(family: str) -> None:
    stored = json.loads(as_json(experiment_of(family)))
    arguments = stored["mechanism"].get("arguments", {})
    for name, value in arguments.items():
        if name == "epsilon":
            arguments[name] = 50.0
        if name == "target":
            arguments[name] = {"guarantee": {**value["guarantee"], "epsilon": 50.0}}
    with pytest.raises(TacitError, match="noise, guarantee or smallest round was changed"):
        Experiment.from_dict(stored)


@EACH
def test_invalid_rounds_are_rejected_before_anything_is_released(family: str) -> None:
    experiment = experiment_of(family)
    (first, *_) = experiment.propose()
    good = hold(experiment_of(family), first, family)
    before = as_json(experiment)
    strange = Round(first.number + 77, first.participants, first.assignment)
    with pytest.raises(TacitError, match="was not proposed"):
        experiment.observe(strange, good)
    with pytest.raises(TacitError, match="was not proposed"):
        experiment.skip(strange)
    assert as_json(experiment) == before
    with pytest.raises(TacitError, match=r"is played but not released: call skip\(round\)"):
        experiment.open(Round(0, first.participants, first.assignment, released=False))
    experiment.observe(first, good)
    with pytest.raises(TacitError, match="already observed"):
        experiment.observe(first, good)


@EACH
def test_an_experiment_finishes_exactly_when_the_horizon_is_used(family: str) -> None:
    experiment = experiment_of(family)
    assert not experiment.finished
    while rounds := experiment.propose():
        for round_ in rounds:
            assert not experiment.finished
            observe_or_skip(experiment, round_, family)
    assert experiment.finished
    assert experiment.propose() == []
    assert experiment.learner.played == experiment.learner.horizon


def test_estimates_are_of_the_named_options() -> None:
    experiment = experiment_of("arms")
    assert [row.option for row in experiment.estimates()] == ["red", "green", "blue"]
    assert all(row.mean is None for row in experiment.estimates())
    finish(experiment, "arms")
    rows = experiment.estimates(0.9)
    assert [row.option for row in rows] == ["red", "green", "blue"]
    assert experiment.best() == "green"
    assert max(rows, key=lambda row: row.best).option == "green"
    assert sum(row.best for row in rows) == pytest.approx(1)
    for row, mean in zip(rows, (0.2, 0.8, 0.5), strict=True):
        assert row.mean == pytest.approx(mean, abs=0.15)
    linear = experiment_of("linear")
    finish(linear, "linear")
    assert [row.option for row in linear.estimates()] == [f"option {k}" for k in range(1, 6)]
    assert linear.best() == "option 1"
    federated = experiment_of("federated")
    assert (federated.options, federated.estimates(), federated.best()) == ((), [], None)


def test_served_participants_of_a_named_option_count_as_plays() -> None:
    experiment = experiment_of("arms")
    experiment.served("green", 40)
    assert experiment.learner.played == 40
    with pytest.raises(TacitError, match="option is 'pink': must be one of red, green, blue"):
        experiment.served("pink", 1)
    with pytest.raises(TacitError, match="option is 'pink'"):
        experiment_of("federated").served("pink", 1)


def test_option_names_are_unique_and_complete() -> None:
    learner, mechanism = ForgettingElimination(3, 100), PerRound(factories.exact, {"binary": True})
    assert Experiment.of(learner, mechanism).options == ("option 1", "option 2", "option 3")
    with pytest.raises(TacitError, match="2 options are named: must be 3"):
        Experiment.of(learner, mechanism, ("a", "b"))
    with pytest.raises(TacitError, match="options are a, b, a: must be distinct"):
        Experiment.of(learner, mechanism, ("a", "b", "a"))


def test_the_control_is_one_of_the_options() -> None:
    learner, mechanism = ForgettingElimination(2, 100), PerRound(factories.exact, {"binary": True})
    assert Experiment(("a", "b"), learner, mechanism, "b").control == "b"
    with pytest.raises(TacitError, match="option is 'c': must be one of a, b"):
        Experiment(("a", "b"), learner, mechanism, "c")


@EACH
def test_only_an_estimate_is_observed(family: str) -> None:
    experiment = experiment_of(family)
    (round_, *_), before = experiment.propose(), as_json(experiment)
    with pytest.raises(TacitError, match="estimate is a dict: must be an Estimate of the round's"):
        experiment.observe(round_, {"total": 1.0})  # type: ignore[arg-type]
    assert as_json(experiment) == before


# files


def saved(tmp_path: Path, family: str = "arms") -> Path:
    experiment = experiment_of(family)
    for round_ in experiment.propose():
        observe_or_skip(experiment, round_, family)
    save(experiment, tmp_path / "saved.json")
    return tmp_path / "saved.json"


@EACH
def test_a_file_truncated_anywhere_is_rejected(family: str, tmp_path: Path) -> None:
    path = saved(tmp_path, family)
    whole = path.read_text(encoding="utf-8")
    for place in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_text(whole[:place], encoding="utf-8")
        with pytest.raises(TacitError, match="is not a saved experiment"):
            load(path)


def test_missing_files_and_unwritable_paths_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(TacitError, match=r"missing\.json cannot be read \(No such file"):
        load(tmp_path / "missing.json")
    with pytest.raises(TacitError, match="cannot be read"):
        load(tmp_path)
    with pytest.raises(TacitError, match="cannot be written"):
        save(experiment_of("arms"), tmp_path / "nowhere" / "saved.json")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_save_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path)
    before = path.read_text(encoding="utf-8")

    def full(self: Path, data: str, **_: Any) -> int:
        self.write_bytes(data[:10].encode())
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(TacitError, match=r"cannot be written \(No space left on device\)"):
        save(experiment_of("arms"), path)
    monkeypatch.undo()
    assert path.read_text(encoding="utf-8") == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["saved.json"]


def leaves(data: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    """The path to every number in nested plain data."""
    nested = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in nested:
        if isinstance(value, (dict, list)):
            yield from leaves(value, *path, key)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield (*path, key)


@EACH
def test_a_number_set_to_zero_is_rejected_or_harmless(family: str, tmp_path: Path) -> None:
    """Found: a bound, a confidence or a number of records of 0 was a ZeroDivisionError."""
    path = saved(tmp_path, family)
    whole = json.loads(path.read_text(encoding="utf-8"))
    places = [*leaves(whole["mechanism"], "mechanism"), *leaves(whole["learner"], "learner")]
    fields = {tuple(key for key in place if isinstance(key, str)): place for place in places}
    for *above, last in fields.values():  # one number of each list
        changed = json.loads(json.dumps(whole))
        entry = changed
        for key in above:
            entry = entry[key]
        entry[last] = 0
        path.write_text(json.dumps(changed), encoding="utf-8")
        with suppress(TacitError):
            load(path)


@each_row("text", ["[]", "[1, 2]", "7", "null", '"saved"', "{}", '{"format": 99}', "\x00\x01"])
def test_files_of_another_format_are_rejected(text: str, tmp_path: Path) -> None:
    """Found: a list was an AttributeError."""
    path = tmp_path / "other.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TacitError, match=r"format|is not a saved experiment"):
        load(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TacitError, match="is not a saved experiment"):
        load(path)


def _set(*keys: Any) -> Callable[[Any, Any], None]:
    def change(data: Any, value: Any) -> None:
        for key in keys[:-1]:
            data = data[key]
        data[keys[-1]] = value

    return change


@EACH
@each_row(
    ("change", "value", "message"),
    [
        (
            _set("guarantee_id"),
            "(0.1, 0)-DP",
            "guarantee differs from that of the stored mechanism",
        ),
        (_set("guarantee_id"), "", "guarantee differs from that of the stored mechanism"),
        (_set("mechanism", "privacy", "guarantee", "epsilon"), 0.1, "was changed"),
        (_set("mechanism", "privacy", "guarantee", "assumptions"), [], "was changed|not stated"),
        (_set("mechanism", "privacy", "guarantee", "view"), "message", "was changed"),
        (_set("mechanism", "privacy", "guarantee", "participations"), 2, "was changed"),
        (
            _set("mechanism", "privacy"),
            {"status": "non-private"},
            "guarantee differs from that|was changed",
        ),
        (_set("mechanism", "privacy"), {"status": "trust me"}, "privacy status is 'trust me'"),
        (_set("mechanism", "mechanism"), "os:path", "not known here as Mechanism"),
        (_set("mechanism", "mechanism"), "antigravity:fly", "not known here as Mechanism"),
        (_set("learner", "learner"), "antigravity:fly", "not known here as Learner"),
        (_set("learner", "learner"), "tacit.bandits.contract:Learner", "not a saved experiment"),
        (_set("learner", "arguments"), {"lucky": 7}, "is not a saved experiment"),
        (_set("learner", "pending"), [{"number": 0}], "is not a saved experiment"),
        (_set("learner", "state"), {}, "is not a saved experiment"),
        (_set("learner"), [], "is not a saved experiment"),
        (_set("options"), ["one"], "1 options are named"),
        (_set("format"), 0, "format 0; this version reads 5: begin a new"),
    ],
)
def test_an_altered_file_is_rejected(
    family: str, change: Callable[[Any, Any], None], value: Any, message: str, tmp_path: Path
) -> None:
    path = saved(tmp_path, family)
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data, copy.deepcopy(value))
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(TacitError, match=message):
        load(path)
