"""Study files: the grid, and one-line errors before anything runs."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.samples import SMALL, SMALL_TOML
from tests.tables import each_row

from tacit.algorithms.registry import algorithms, lookup
from tacit.environments import FromFunction
from tacit.errors import TacitError
from tacit.simulation import simulate
from tacit.simulation.grid import Study, read_study, study_of

ARMS: dict[str, Any] = {"algorithms": ["private-med"], "problems": {"arms": 3, "horizon": 300}}
SIZES: dict[str, dict[str, Any]] = {
    "arms": {"arms": 3, "horizon": 300},
    "linear": {"dimension": 3, "actions": 6, "horizon": 200},
    "federated": {"silos": 3, "dimension": 3, "actions": 5, "horizon": 20, "sync": 10},
    "contextual": {"dimension": 3, "arms": 2, "horizon": 3000},
}


def labels_and_axes(study: Study) -> list[tuple[str, ...]]:
    return [(one.label, *one.axes.values()) for one in study.configurations]


def test_the_grid_is_a_product_in_the_order_of_the_study() -> None:
    study = study_of(
        ARMS
        | {
            "problems": {"arms": [3, 4], "horizon": 300},
            "environments": [{"instance": ["easy", "hard"]}, {"means": [0.1, 0.2, 0.3]}][:1],
            "guarantees": [{"epsilon": [1, 0.5]}, {"epsilon": 2, "delta": 1e-6}],
            "seeds": 10,
            "first_seed": 5,
        }
    )
    assert len(study.configurations) == 2 * 2 * 3
    assert study.cells == 120
    assert labels_and_axes(study)[:4] == [
        ("private-med", "arms 3, horizon 300", "instance easy", "ε 1"),
        ("private-med", "arms 3, horizon 300", "instance easy", "ε 0.5"),
        ("private-med", "arms 3, horizon 300", "instance easy", "ε 2, δ 1e-06"),
        ("private-med", "arms 3, horizon 300", "instance hard", "ε 1"),
    ]
    where, seed = study.at(37)
    assert (where, seed) == (study.configurations[3], 12)


def test_options_that_an_algorithm_lacks_do_not_multiply_it() -> None:
    study = study_of(SMALL)
    labels = [one.label for one in study.configurations]
    assert {name: labels.count(name) for name in labels} == {
        "private-med": 4,
        "ucb1": 2,
        "cdp-dpe": 2,
        "secagg-fedlinucb": 2,
    }
    assert study.merged == 2
    assert {one.axes["guarantee"] for one in study.configurations if one.label == "ucb1"} == {"–"}


def test_variants_of_an_algorithm_have_distinct_names() -> None:
    both = [{"name": "private-klucb", "trust": ["secure-aggregation", "shuffler"]}]
    study = study_of(ARMS | {"algorithms": both})
    assert [one.label for one in study.configurations] == [
        "private-klucb (trust secure-aggregation)",
        "private-klucb (trust shuffler)",
    ]
    called = study_of(ARMS | {"algorithms": [{"name": "klucb", "label": "no privacy"}]})
    assert called.configurations[0].label == "no privacy"


def test_one_list_of_means_is_one_instance() -> None:
    one = ARMS | {"problems": {"horizon": 300}, "environments": {"means": [0.2, 0.8]}}
    assert len(study_of(one).configurations) == 1
    two = one | {"environments": {"means": [[0.2, 0.8], [0.4, 0.5, 0.6]]}}
    assert [len(c.problem.environment.means) for c in study_of(two).configurations] == [2, 3]  # type: ignore[attr-defined]


def test_a_cell_equals_simulate_at_its_seed() -> None:
    study = study_of(SMALL | {"first_seed": 7})
    for cell in range(0, study.cells, 3):
        where, seed = study.at(cell)
        row = json.loads(pickle.loads(pickle.dumps(study))(cell))
        options = {k: v for choice in where.chosen.values() for k, v in choice.items()}
        alone = simulate(lookup(where.algorithm), runs=1, seed=seed, workers=1, **options)
        assert row["seed"] == seed
        assert row["regret"] == alone.runs[0]["regret"]
        assert row["bits_per_user"] == alone.runs[0]["bits_per_user"]
        assert row["horizon"] == alone.horizon


@pytest.mark.extended
def test_every_algorithm_can_be_in_a_study() -> None:
    tables = [{"family": family, **size} for family, size in SIZES.items()]
    names = [name for name in algorithms() if name != "sdp-dpe"]  # it takes its time
    own = {"sdp-fedlinucb": {"epsilon": 0.01}}  # it guarantees no more than that
    listed = [{"name": name, "label": name, **own.get(name, {})} for name in names]
    study = study_of({"algorithms": listed, "problems": tables, "seeds": 1})
    assert [one.algorithm for one in study.configurations] == names
    rows = [json.loads(study(cell)) for cell in range(study.cells)]
    assert [row["algorithm"] for row in rows] == names
    for row in rows:
        assert len(row["checkpoints"]) == len(row["regret"])
        assert row["final_regret"] >= 0


def test_tables_and_objects_can_be_environments(tmp_path: Path) -> None:
    rows = [f"{int(i % 5 == 0)},{int(i % 2 == 0)}" for i in range(400)]
    (tmp_path / "clicks.csv").write_text("\n".join(["old,new", *rows]) + "\n")
    path = tmp_path / "study.toml"
    path.write_text(
        'algorithms = ["private-med"]\nseeds = 1\n[[environments]]\nreplay = "clicks.csv"\n'
        '[[environments]]\nreplay = "clicks.csv"\nresample = true\nhorizon = 500\n'
    )
    study = read_study(path)
    assert [one.axes["environment"] for one in study.configurations] == [
        "clicks.csv",
        "clicks.csv, resample",
    ]
    assert [json.loads(study(cell))["horizon"] for cell in (0, 1)] == [400, 500]
    assert study.configurations[1].guarantee is None, "recorded people come without end"
    world = FromFunction(lambda arm, rng: float(rng.random() < 0.2 + arm / 4), 2)
    own = study_of({"algorithms": ["ucb1"], "environments": [world], "problems": {"horizon": 50}})
    assert json.loads(own(0))["horizon"] == 50


CONTEXTS = "option,reward,device\n" + "A,1,phone\nB,0,phone\nA,0,desktop\nB,1,desktop\n" * 200


@pytest.mark.parametrize("algorithms", [["private-contextual"], ["private-contextual", "ucb1"]])
def test_a_contextual_log_is_an_environment(tmp_path: Path, algorithms: list[str]) -> None:
    """The family is given, or that of all algorithms."""
    (tmp_path / "log.csv").write_text(CONTEXTS)
    environments: list[dict[str, Any]] = [{"replay": "log.csv"}]
    if len(algorithms) > 1:
        environments = [{"replay": "log.csv", "family": "contextual"}, {"arms": 2}]
        environments[1]["family"] = "arms"
    given = {"algorithms": algorithms, "problems": {"horizon": 100}, "seeds": 1}
    study = study_of(given | {"environments": environments}, beside=tmp_path)
    assert study.configurations[0].axes["environment"] == "log.csv"
    row = json.loads(study(0))
    assert (row["algorithm"], row["horizon"]) == ("private-contextual", 100)
    assert row["rows_used"] > 100
    with pytest.raises(TacitError, match="resample is for arms: a contextual log is used once"):
        study_of(given | {"environments": [environments[0] | {"resample": True}]}, beside=tmp_path)


def test_a_changed_table_makes_another_study(tmp_path: Path) -> None:
    given = ARMS | {"problems": {"horizon": 20}, "environments": {"replay": "clicks.csv"}}
    identities = []
    for first in ("0,1", "1,1"):
        (tmp_path / "clicks.csv").write_text("\n".join(["old,new", first, *["0,1"] * 39]) + "\n")
        identities.append(study_of(given, beside=tmp_path).identity())
    assert identities[0]["data"] != identities[1]["data"]
    assert identities[0]["configurations"] == identities[1]["configurations"]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no algorithm": ({"algorithms": []}, r"algorithms is \[\]: must be a list of names"),
    "strange field": (
        {"problem": {}},
        r"problem is not a field of a study; did you mean problems\?",
    ),
    "no table around": (
        {"replay": "clicks.csv"},
        r"replay stands outside of a table: write it in \[environments\]",
    ),
    "strange name": ({"algorithms": ["private-mad"]}, "did you mean private-med"),
    "no name": ({"algorithms": [{"trust": "local"}]}, r"algorithms\[1\] is .*must be a name"),
    "twice": ({"algorithms": ["ucb1", "ucb1"]}, "has ucb1 twice. Leave one out"),
    "strange option": (
        {"problems": [{"arms": 3}, {"horizn": 3}]},
        r"problems\[2\].horizn is not an option of private-med; did you mean horizon\?",
    ),
    "word for a number": (
        {"problems": {"arms": 3, "horizon": "many"}},
        r"problems\[1\].horizon is 'many': must be a whole number, such as 1e5",
    ),
    "number for a word": ({"environments": {"instance": 3}}, r"environments\[1\].instance is 3"),
    "yes for a number": ({"guarantees": {"epsilon": True}}, r"epsilon is True: must be a number"),
    "empty": ({"guarantees": {"epsilon": []}}, r"guarantees\[1\].epsilon is empty"),
    "below zero": (
        {"guarantees": [{"epsilon": 1}, {"epsilon": -1}]},
        r"guarantees\[2\], private-med: epsilon is -1: must be greater than 0",
    ),
    "half an arm": ({"problems": {"arms": 2.5}}, r"problems\[1\], private-med: arms is 2.5"),
    "no table": ({"problems": ["arms"]}, r"problems\[1\] is 'arms': must be a table"),
    "no tables": ({"problems": "arms"}, r"problems is 'arms': must be tables \[\[problems\]\]"),
    "for nobody": (
        {"algorithms": ["ucb1"], "guarantees": {"epsilon": 1}},
        r"guarantees\[1\].epsilon is not an option of ucb1. Leave it out",
    ),
    "of no family": (
        {"algorithms": ["ucb1", "cdp-dpe"], "problems": {"arms": 3, "alpha": 0.5}},
        r"problems\[1\] has options that no family has together \(arms, alpha\). Split",
    ),
    "strange family": ({"problems": {"family": "lineal"}}, "family is 'lineal': must be one of"),
    "none of a family": (
        {"algorithms": ["ucb1", "cdp-dpe"]},
        r'problems have no table for cdp-dpe, whose family is linear. Add .* family = "linear"',
    ),
    "given twice": (
        {"environments": {"arms": 4}},
        r"arms is given by problems\[1\] and by environments\[1\]. Leave one out",
    ),
    "against each other": (
        {"environments": {"means": [0.1, 0.2]}},
        "arms is 3, but means has 2: leave arms out",
    ),
    "seeds": ({"seeds": 0}, "seeds is 0: must be a whole number of at least 1"),
    "first seed": ({"first_seed": -1}, "first_seed is -1"),
    "name": ({"name": 3}, "name is 3: must be a few words"),
    "too much": ({"seeds": 10**6, "guarantees": {"epsilon": [1, 2]}}, "more than 1,000,000"),
    "no file": ({"environments": {"replay": "none.csv"}}, "none.csv"),
    "replay": ({"environments": {"replay": 3}}, "replay is 3: must name a CSV file"),
    "vain": (
        {"environments": {"replay": "here.csv", "instance": "easy"}, "problems": {"horizon": 9}},
        "instance would describe random instances, but the environment is your own: leave",
    ),
}


@each_row("case", BAD)
def test_an_invalid_study_is_rejected_with_field_value_and_remedy(
    case: str, tmp_path: Path
) -> None:
    change, message = BAD[case]
    (tmp_path / "here.csv").write_text("old,new\n" + "0,1\n" * 20)
    with pytest.raises(TacitError, match=message) as caught:
        study_of(ARMS | change, source="study.toml", beside=tmp_path)
    assert str(caught.value).startswith("study.toml: ")
    assert "\n" not in str(caught.value)
    assert "--" not in str(caught.value)


def test_a_file_that_is_no_study_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(TacitError, match=r"none.toml cannot be read \(No such file"):
        read_study(tmp_path / "none.toml")
    bad = tmp_path / "bad.toml"
    bad.write_text("algorithms = oops")
    with pytest.raises(TacitError, match=r"bad.toml is not TOML: .*line 1"):
        read_study(bad)
    bad.write_bytes(b"\xff\xfe")
    with pytest.raises(TacitError, match="is not text"):
        read_study(bad)


def test_a_file_and_a_mapping_define_the_same_study(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(SMALL_TOML.format(seeds=2))
    assert read_study(path).identity() == study_of(SMALL).identity()
    path.write_text('algorithms = ["ucb1"]\n')
    assert read_study(path).name == "study"
