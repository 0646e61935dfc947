"""Feature maps, policies and reports of a device: vectors, norms, and what is rejected."""

from __future__ import annotations

import json
import math
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.bandits.contextual.device_choices import LinearChoice, TableChoice
from tacit.bandits.contextual.ellipsoid import RATIO, constant_direction, scaled_map
from tacit.contextual import (
    BoundedNumber,
    Category,
    FeatureMap,
    LinearPolicy,
    MomentReport,
    TablePolicy,
    TableReport,
)
from tacit.contextual.feature_maps import check_length, interactions, table_map
from tacit.contextual.policies import ONE, shares_of
from tacit.environments.contextual import Codes
from tacit.errors import TacitError

MAKE = runpy.run_path(str(Path(__file__).parent / "make_vectors.py"))
VECTORS: dict[str, Any] = json.loads(MAKE["FILE"].read_text(encoding="utf-8"))
LINEAR = pytest.mark.parametrize("case", VECTORS["linear"], ids=lambda case: str(case["name"]))


def test_the_committed_vectors_match_the_code() -> None:
    maps = {case["name"]: FeatureMap.from_dict(case["map"]) for case in VECTORS["linear"]}
    assert json.loads(json.dumps(MAKE["vectors"](maps))) == VECTORS


@LINEAR
def test_feature_maps_match_the_vectors_up_to_a_rotation(
    case: dict[str, Any],
) -> None:
    stored, made = FeatureMap.from_dict(case["map"]), MAKE["scaled_maps"]()[case["name"]]
    assert (stored.fields, stored.options) == (made.fields, made.options)
    assert (stored.resolution, stored.dimension) == (made.resolution, made.dimension)

    def lengths(features: FeatureMap) -> list[float]:
        return [math.hypot(*one) for code in features.extremes() for one in features.exact(code)]

    assert lengths(stored) == pytest.approx(lengths(made), rel=RATIO - 1)


@LINEAR
def test_features_choices_and_reports_match_the_vectors(case: dict[str, Any]) -> None:
    features = FeatureMap.from_dict(case["map"])
    assert features.to_dict() == case["map"]
    policy = LinearPolicy.from_dict(case["policy"])
    assert policy.to_dict() == case["policy"]
    report = MomentReport(features.dimension, features.resolution, case["levels"])
    for person in case["people"]:
        found = features.of(person["context"])
        assert features.code(person["context"]) == person["code"]
        assert [list(vector) for vector in found] == person["features"]
        chosen = policy.choose(found, person["part"], person["normals"])
        assert chosen == person["option"]
        assert report.vector(found[chosen], person["level"]) == person["report"]


def test_tables_match_the_vectors() -> None:
    table = VECTORS["table"]
    features = FeatureMap.from_dict(table["map"])
    policy = TablePolicy.from_dict(table["policy"])
    report = TableReport(features.segments, len(features.options))
    for person in table["people"]:
        assert features.segment(person["context"]) == person["segment"]
        assert policy.choose(person["segment"], person["drawn"]) == person["option"]
        chosen = (person["segment"], person["option"], person["success"])
        assert report.cell(*chosen) == person["cell"]
        assert sum(report.vector(person["cell"])) == report.vector(person["cell"])[person["cell"]]


@LINEAR
def test_simulated_devices_choose_as_real_ones(case: dict[str, Any]) -> None:
    """The vectorised policy and features agree with the device's, given its random numbers."""
    features = FeatureMap.from_dict(case["map"])
    policy = LinearPolicy.from_dict(case["policy"])
    choice = LinearChoice(policy.mean, policy.roots, policy.paused, 2.0)
    people = Codes(np.array([person["code"] for person in case["people"]]), features)
    exact = np.array([person["features"] for person in case["people"]])
    assert np.abs(people.features - exact).max() <= 1  # in single precision
    assert (people.features != exact).mean() < 0.01
    roots = np.array(policy.roots)
    drawn = np.array(
        [policy.mean + roots[p["part"]] @ np.array(p["normals"]) for p in case["people"]]
    )
    found = choice.chosen(exact.astype(np.float32), drawn.astype(np.float32))
    assert found.tolist() == [person["option"] for person in case["people"]]


def test_simulated_tables_choose_as_real_ones() -> None:
    table = VECTORS["table"]
    policy = TablePolicy.from_dict(table["policy"])
    choice = TableChoice(policy.weights)
    segments, drawn = (
        np.array([person[name] for person in table["people"]]) for name in ("segment", "drawn")
    )
    expected = [person["option"] for person in table["people"]]
    assert choice.chosen(segments, drawn).tolist() == expected
    features = FeatureMap.from_dict(table["map"])
    codes = np.array([features.code(person["context"]) for person in table["people"]])
    assert Codes(codes, features).segments.tolist() == segments.tolist()


VALUES = st.integers(2, 4).map(lambda count: tuple("abcd"[:count]))
FIELD = st.one_of(
    VALUES.map(lambda values: Category("x", values)), st.just(BoundedNumber("x", -3.0, 5.0))
)


@settings(max_examples=40, deadline=None)
@given(
    fields=st.lists(FIELD, min_size=1, max_size=3),
    options=st.integers(2, 4),
    seed=st.integers(0, 10**6),
    resolution=st.sampled_from([64, 1000, 4096]),
)
def test_features_have_norm_at_most_one(
    fields: list[Any], options: int, seed: int, resolution: int
) -> None:
    """Random maps of random contexts, inside: the largest length is nearly reached at an extreme,
    and the integers of every context are at most the resolution long.
    """
    rng = np.random.default_rng(seed)
    named = tuple(
        Category(f"f{k}", one.values)
        if isinstance(one, Category)
        else BoundedNumber(f"f{k}", one.low, one.high)
        for k, one in enumerate(fields)
    )
    names = tuple(f"o{k}" for k in range(options))
    raw = np.array(interactions(named, names))
    if seed % 2:
        raw = rng.normal(size=(options, 4, raw.shape[2]))
    matrices = tuple(tuple(tuple(row) for row in matrix) for matrix in raw.tolist())
    features = scaled_map(named, names, matrices, resolution)
    assert features.longest <= features.room <= 1
    assert features.longest > 0.99 * features.room
    for _ in range(30):
        context = {
            one.name: rng.choice(one.values)
            if isinstance(one, Category)
            else rng.uniform(one.low - 1, one.high + 1)
            for one in named
        }
        for vector in features.of(context):
            assert sum(x * x for x in vector) <= resolution**2


def test_the_ellipsoid_has_minimum_volume() -> None:
    """Features whose directions differ in scale by 1000 fill the ball in every direction."""
    fields = (BoundedNumber("a", 0, 1), BoundedNumber("b", 0, 1))
    raw = np.array(interactions(fields, ("x", "y"))) * np.array([1, 1000, 1, 0.001, 1, 5])[:, None]
    matrices = tuple(tuple(tuple(row) for row in matrix) for matrix in raw.tolist())
    features = scaled_map(fields, ("x", "y"), matrices)
    plain = scaled_map(fields, ("x", "y"), interactions(fields, ("x", "y")))
    assert features.dimension == plain.dimension == 6

    def smallest(one: FeatureMap) -> float:
        points = np.array([v for code in one.extremes() for v in one.exact(code)])
        return float(np.linalg.eigvalsh(points.T @ points / len(points))[0])

    assert smallest(features) == pytest.approx(smallest(plain), rel=0.05)
    assert smallest(plain) > 0.5 / 6  # of 1/d, which no features of length 1 exceed


def test_redundant_features_are_dropped_and_constants_detected() -> None:
    fields = (Category("a", ("x", "y")),)
    doubled = interactions(fields, ("u", "v"))
    twice = tuple((*matrix, *matrix) for matrix in doubled)
    features = scaled_map(fields, ("u", "v"), twice)
    assert features.dimension == 4
    direction = constant_direction(features)
    assert direction is not None
    for vector in features.exact(features.code({"a": "y"})):
        assert np.dot(direction, vector) == pytest.approx(1)
    rows = (((0.0, 0.5, 0.0),), ((0.0, 0.0, 0.4),))
    assert constant_direction(FeatureMap(fields, ("u", "v"), rows)) is None


def test_probabilities_are_rounded_to_integers_with_the_exact_total() -> None:
    assert shares_of((1, 1, 1)) in [(21846, 21845, 21845), (21845, 21845, 21846)]
    rng = np.random.default_rng(0)
    for _ in range(50):
        chances = rng.dirichlet(np.full(7, 0.3))
        shares = shares_of(chances.tolist())
        assert sum(shares) == ONE
        assert np.abs(np.array(shares) / ONE - chances).max() <= 1 / ONE


def test_a_devices_choices_follow_its_policy() -> None:
    """False positives about 1e-9: 6 standard deviations of 4,000 draws."""
    policy = TablePolicy((shares_of((0.2, 0.8)),))
    share = sum(policy.draw(0) for _ in range(4000)) / 4000
    assert abs(share - 0.8) < 6 * math.sqrt(0.16 / 4000)
    linear = LinearPolicy((0.0,), (((1.0,),),))
    share = sum(linear.draw([(1,), (-1,)]) for _ in range(4000)) / 4000
    assert abs(share - 0.5) < 6 * math.sqrt(0.25 / 4000)


FIELDS = (Category("device", ("phone", "desktop")), BoundedNumber("age", 0, 10))
MAP = scaled_map(FIELDS, ("a", "b"), interactions(FIELDS, ("a", "b")))


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ({"device": "phone"}, "no age"),
        ({"device": "phone", "age": 3, "agee": 4}, "did you mean age"),
        ({"device": "fax", "age": 3}, "must be one of phone, desktop"),
        ({"device": "phone", "age": "old"}, "must be a number from 0 to 10"),
        ({"device": "phone", "age": math.nan}, "must be a number from 0 to 10"),
    ],
)
def test_contexts_of_another_map_are_rejected(context: dict[str, Any], said: str) -> None:
    with pytest.raises(TacitError, match=said):
        MAP.of(context)


def test_numbers_out_of_bounds_are_clipped() -> None:
    assert MAP.of({"device": "phone", "age": 99}) == MAP.of({"device": "phone", "age": 10})


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: FeatureMap(FIELDS, ("a", "a"), MAP.matrices), "must have different names"),
        (lambda: FeatureMap(FIELDS, ("a",), MAP.matrices), "one finite matrix for each of 1"),
        (lambda: FeatureMap(FIELDS, ("a",), (((2.0, 0, 0, 0),),)), "up to 2 long: must be at most"),
        (lambda: FeatureMap(FIELDS, ("a",), (((math.nan, 0, 0, 0),),)), "one finite matrix"),
        (
            lambda: FeatureMap(FIELDS * 2, ("a",), (((0.5, *[0] * 6),),)),
            "must have different names",
        ),
        (lambda: table_map(FIELDS, [f"{n}" for n in range(1001)]), "must be at most 1000"),
        (lambda: FeatureMap(FIELDS, ("a",), (((0.5, 0, 0, 0),),), 0), "resolution is 0"),
        (lambda: FeatureMap(FIELDS, ("a",), (((0.5, 0, 0, 0),),), 1 << 21), "at most 1048576"),
        (lambda: MAP.rounded((1.01, *[0.0] * (MAP.dimension - 1))), "must be at most 1"),
        (lambda: Category("x", ("only",)), "two or more different"),
        (lambda: BoundedNumber("x", 2, 1), "increasing order"),
        (lambda: LinearPolicy((0.0, 0.0), (((1.0,),),)), "must be 2 by 2 matrices"),
        (lambda: TablePolicy(((1, 2),)), "sum to 65,536"),
        (lambda: LinearPolicy((0.0,), (((1.0,),),), (0,)).choose([(1,)], 0, (0.0,)), "paused"),
        (lambda: TablePolicy((shares_of((1, 1)),)).choose(1, 0), "segment is 1"),
        (lambda: TablePolicy((shares_of((1, 1)),)).choose(0, ONE), "drawn is 65536"),
        (lambda: MomentReport(2, 10).vector((8, 8), 1), "features are 1.13"),
        (lambda: MomentReport(2, 10).vector((True, 2), 1), "must be 2 integers"),
        (lambda: MomentReport(2, 10).vector((1, 2), 2), "level is 2"),
        (lambda: TableReport(2, 2).cell(2, 0, 0), "segment is 2"),
        (lambda: TableReport(2, 2).vector(8), "cell is 8"),
        (lambda: check_length((11,), 10), "must be at most 1"),
        (lambda: interactions(FIELDS, ("a", "b"), {"age": ["c"]}), "must be one of a, b"),
        (lambda: scaled_map(FIELDS, ("a", "b"), (((0.0,) * 4,),) * 2), "not all zero"),
        (lambda: MAP.segment({"device": "phone", "age": 1}), "segments need categories"),
    ],
)
def test_wrong_values_are_rejected(wrong: Any, said: str) -> None:
    with pytest.raises(TacitError, match=said):
        wrong()


def test_features_of_norm_one_are_reported() -> None:
    report = MomentReport(dimension=2, resolution=10)
    assert report.vector((6, 8), level=1) == [6, 8, 36, 48, 64]


def test_a_device_needs_no_numpy() -> None:
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "from tacit.contextual import FeatureMap, LinearPolicy, MomentReport, TablePolicy\n"
        "print('ok')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "ok", done.stderr
