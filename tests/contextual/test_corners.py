"""Corners of features: unbiased by brute force over feature maps, one-hot reports, noise tails."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from tacit.algorithms import lookup
from tacit.bandits.contextual.corner_confidence import bounded_proxy
from tacit.bandits.contextual.corner_fit import corner_shapes, public_corners
from tacit.bandits.contextual.device_choices import LinearChoice
from tacit.bandits.contextual.ellipsoid import scaled_map
from tacit.bandits.contextual.expected_moments import chances, public_codes
from tacit.bandits.contextual.histograms import Histograms
from tacit.contextual import BoundedNumber, Category
from tacit.contextual.corners import corner_count, layout, squared_lengths
from tacit.contextual.feature_maps import FeatureMap, interactions
from tacit.environments.contextual import Codes
from tacit.errors import TacitError
from tacit.noise import DiscreteLaplace
from tacit.privacy import PureDP
from tacit.protocols.statistics import Answers, CornerStatistic

FIELDS = (
    Category("a", ("x", "y", "z")),
    BoundedNumber("b", -1, 2),
    BoundedNumber("c", 0, 1),
    Category("d", ("u", "v")),
)
NAMES = ("o", "p", "q")


def random_map(seed: int) -> FeatureMap:
    """A map whose options depend on some of the fields each."""
    rng = np.random.default_rng(seed)
    raw = np.array(interactions(FIELDS, NAMES))
    if seed % 2:
        raw = rng.normal(size=(3, 4, raw.shape[2]))
    kept = rng.random((3, 4)) < 0.5
    for option, (start, stop) in itertools.product(
        range(3), enumerate(((1, 4), (4, 5), (5, 6), (6, 8)))
    ):
        if not kept[option, start]:
            raw[option][:, stop[0] : stop[1]] = 0.0
    matrices = tuple(tuple(tuple(row) for row in matrix) for matrix in raw.tolist())
    return scaled_map(FIELDS, NAMES, matrices)


def decoded(features: FeatureMap) -> tuple[Any, Any]:
    """x̃ and the unbiased x xᵀ of every corner."""
    shapes = corner_shapes(features)
    own = shapes.maps[shapes.group]
    return (
        np.einsum("cda,ca->cd", own, shapes.code),
        own @ shapes.square @ own.transpose(0, 2, 1),
    )


@pytest.mark.parametrize("seed", range(8))
def test_rounding_to_corners_is_unbiased_for_features_and_products(seed: int) -> None:
    """Over 64 contexts and all options: the mean over a device's coins is x, and x xᵀ."""
    features = random_map(seed)
    chance = public_corners(features)
    points, squares = decoded(features)
    exact = np.array([features.exact(code) for code in public_codes(features).tolist()])
    assert chance.shape[2] == layout(features).size == corner_count(features) == len(points)
    assert chance.sum(axis=2) == pytest.approx(1.0)
    assert np.einsum("ckm,md->ckd", chance, points) == pytest.approx(exact, abs=1e-12)
    products = np.einsum("cki,ckj->ckij", exact, exact)
    assert np.einsum("ckm,mij->ckij", chance, squares) == pytest.approx(products, abs=1e-12)
    assert squared_lengths(features) == pytest.approx(float((points**2).sum()))


@pytest.mark.parametrize("seed", range(4))
def test_a_participant_adds_one_to_one_cell(seed: int) -> None:
    """Sensitivity by force: alone, whatever context, option, outcome and coins, a report is
    one-hot, so that a replacement moves two cells by one each.
    """
    features, rng = random_map(seed), np.random.default_rng(seed)
    statistic = CornerStatistic.of(features)
    codes = public_codes(features)[:12]
    for code, option, outcome in itertools.product(codes, range(3), (0, 1)):
        one = Codes(code[None], features)
        for _ in range(4):
            answers = Answers(one, np.array([option]), np.array([outcome]))
            total = statistic.total(answers, rng)
            assert len(total) == statistic.size
            assert sorted(total.tolist())[-2:] == [0, 1]
            assert total.sum() == 1
            assert total[outcome::2].sum() == 1
    reports = np.array([statistic.encode(cell) for cell in range(statistic.size)])
    assert np.abs(reports[:, None] - reports[None]).sum(axis=2).max() == 2
    (noise,) = set(statistic.noise(PureDP(0.7)))
    steps = np.abs(np.diff(noise.log_pmf(np.arange(-300, 301))))
    assert 2 * steps.max() == pytest.approx(0.7)
    with pytest.raises(TacitError, match="from 0 to"):
        statistic.encode(statistic.size)


@pytest.mark.parametrize("seed", range(4))
def test_simulated_devices_hit_corners_with_their_probabilities(seed: int) -> None:
    """20,000 devices of one context and option each; 5 standard errors, seeded."""
    features, rng = random_map(seed), np.random.default_rng(seed + 50)
    statistic, chance = CornerStatistic.of(features), public_corners(features)
    for place, option in ((3, 0), (40, 1), (17, 2)):
        people = Codes(np.repeat(public_codes(features)[place : place + 1], 20_000, 0), features)
        answers = Answers(people, np.full(20_000, option), np.ones(20_000, dtype=int))
        total = statistic.total(answers, rng)
        expected = chance[place, option]
        spread = 5 * np.sqrt(expected * (1 - expected) / 20_000) + 1e-12
        assert (np.abs(total[1::2] / 20_000 - expected) <= spread).all()


@pytest.mark.parametrize("values", [128, 129])
def test_corners_are_enumerated_up_to_the_limit(values: int) -> None:
    device = Category("device", tuple(f"d{k}" for k in range(values)))
    matrix = ((0.5, 0.1, *(0.25,) * (values - 1)),)
    features = FeatureMap((device,), ("a", "b"), (matrix, matrix))
    if values > 128:
        with pytest.raises(TacitError, match="258 corners: must be at most 256"):
            layout(features)
    else:
        assert layout(features).size == 256


def test_dummies_have_few_corners_and_random_features_many() -> None:
    def chosen(**options: Any) -> tuple[str, str]:
        problem: Any = lookup("private-contextual").make_problem(options)
        found: tuple[str, str] = problem.for_environment(problem.start(0, None).world, 0).chosen()
        return found

    assert chosen(contexts="interactions")[0] == "corners"
    assert chosen()[0] == "corners"
    assert chosen(arms=10)[0] == "moments"
    assert chosen(arms=10, delta=0.0)[0] == "corners"
    assert chosen(statistic="corners") == ("corners", "requested")
    many = tuple(BoundedNumber(f"n{k}", 0, 1) for k in range(6))
    features = scaled_map(many, ("o", "p"), interactions(many, ("o", "p")))
    assert corner_count(features) == 2 * 3**6
    with pytest.raises(TacitError, match="1,458 corners: must be at most 256"):
        layout(features)


@pytest.mark.parametrize(("scale", "servers"), [(2.0, 1), (2.0, 2), (0.7, 2)])
def test_noise_truncated_to_its_bulk_is_sub_gaussian(scale: float, servers: int) -> None:
    """The exact moment generating function of noise that is set to 0 beyond the bound."""
    one = DiscreteLaplace(scale)
    both = one if servers == 1 else one.power(2)
    reach = 0.9 / scale
    points = np.linspace(reach / 200, reach, 200)
    proxy = max(float(both.variance), float((2 * both.log_mgf(points) / points**2).max()))
    column = np.array([proxy])
    seen = Histograms(
        np.zeros((1, 9)), np.zeros((1, 9)), np.array([100.0]), column, column, np.array([reach])
    )
    found = float(bounded_proxy(seen, 0.0125)[0])
    chance = 0.0125 * 6 / math.pi**2 / 18
    bound = math.log(2 / chance) / reach + reach * proxy / 2
    k = np.arange(-600, 601)
    mass = both.pmf(k)
    assert mass[np.abs(k) > bound].sum() <= chance
    kept = np.where(np.abs(k) <= bound, k, 0)
    for t in np.concatenate([points, np.linspace(reach, 8 / scale, 200)]):
        assert math.log(float(mass @ np.exp(t * kept))) <= t * t * found / 2
    assert proxy <= found <= 4 * proxy


@pytest.mark.parametrize("away", [1.0, 2.5, 3.6])
def test_probabilities_of_rarely_drawn_options_are_estimated(away: float) -> None:
    """Against the exact probability of two options, down to 1.6e-4: none of 192 draws."""
    points = np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    root = tuple(tuple(row) for row in (0.1 * np.eye(3)).tolist())
    choice = LinearChoice((away * 0.1 * math.sqrt(2), 0.0, 0.0), (root,), (), 1.0)
    found = float(chances(points, choice)[0, 1])
    assert 0.5 < found / float(ndtr(-away)) < 2
    paused = LinearChoice(choice.mean, choice.roots, (0,), 1.0)
    assert chances(points, paused).tolist() == [[0.0, pytest.approx(1.0)]]
