"""Designs: the certificate g(π), recomputed here from its definition, and the size of the
support.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from tacit.bandits.linear.design import DesignWeights, certificate, largest_support, near_g_optimal
from tacit.errors import TacitError

Floats = npt.NDArray[np.float64]


def sphere(actions: int, dimension: int, seed: int = 0) -> Floats:
    table = np.random.default_rng(seed).standard_normal((actions, dimension))
    return np.asarray(table / np.linalg.norm(table, axis=1)[:, None])


def definition(actions: Floats, design: DesignWeights) -> float:
    """max xᵀ V⁺ x, by least squares: no code shared with the product."""
    chosen = actions[design.support]
    moments = sum(
        (w * np.outer(x, x) for w, x in zip(design.weights, chosen, strict=True)),
        np.zeros((actions.shape[1],) * 2),
    )
    solved = np.linalg.lstsq(moments, actions.T, rcond=1e-12)[0]
    return float((actions.T * solved).sum(axis=0).max())


def check(actions: Floats, design: DesignWeights, dimension: int) -> None:
    assert design.dimension == dimension
    assert design.g <= 2 * dimension
    assert definition(actions, design) == pytest.approx(design.g, rel=1e-6)
    assert len(design.support) <= largest_support(dimension)
    assert design.weights.sum() == pytest.approx(1)
    assert (design.weights > 0).all()


@pytest.mark.parametrize(
    ("actions", "dimension"), [(5, 2), (40, 3), (300, 7), (1000, 20), (5000, 50)]
)
@pytest.mark.parametrize("ratio", [2.0, 1.2])
def test_designs_are_near_optimal_on_few_actions(
    actions: int, dimension: int, ratio: float
) -> None:
    table = sphere(actions, dimension)
    design = near_g_optimal(table, ratio=ratio)
    check(table, design, dimension)


def test_the_minimum_g_equals_the_dimension() -> None:
    for seed in range(5):
        table = sphere(200, 6, seed)
        assert 6 <= near_g_optimal(table, ratio=1.01).g <= 6 * 1.1


def test_rank_deficient_actions_are_treated_in_their_span() -> None:
    table = sphere(500, 3) @ np.random.default_rng(1).standard_normal((3, 20)) / 10
    check(table, near_g_optimal(table), 3)


@pytest.mark.parametrize("spread", [1e-2, 1e-4])
def test_nearly_equal_actions_have_a_design(spread: float) -> None:
    table = np.array([0.9, 0.0, 0.0, 0.0]) + spread * sphere(60, 4)
    check(table, near_g_optimal(table), 4)


def test_a_single_action_is_its_own_design() -> None:
    design = near_g_optimal([[0.3, 0.4]])
    assert (design.support.tolist(), design.weights.tolist(), round(design.g, 9)) == (
        [0],
        [1.0],
        1.0,
    )


def test_the_certificate_sees_actions_outside_the_span_of_the_support() -> None:
    assert certificate(np.eye(2), np.array([0]), np.array([1.0])) == math.inf


def test_plays_are_rounded_up_except_whole_numbers() -> None:
    design = DesignWeights(np.array([0, 1, 2]), np.array([0.5, 0.25, 0.25]), 3, 3.0)
    assert design.plays(4.0).tolist() == [2, 1, 1]
    assert design.plays(5.0).tolist() == [3, 2, 2]


@pytest.mark.parametrize("actions", [[[0.0, 0.0]], [[math.nan, 1.0]], [1.0, 2.0], np.empty((0, 3))])
def test_invalid_action_sets_are_rejected(actions: npt.ArrayLike) -> None:
    with pytest.raises(TacitError):
        near_g_optimal(actions)


@pytest.mark.slow
def test_a_design_exists_for_a_hundred_thousand_actions() -> None:
    table = sphere(100_000, 50)
    check(table, near_g_optimal(table), 50)
    check(table, near_g_optimal(table, ratio=1.2), 50)
