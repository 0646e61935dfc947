"""Rényi and zCDP guarantees, recomputed from probabilities and from the view of a round."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tacit.algorithms import ArmsProblem
from tacit.algorithms.registry import lookup
from tacit.assumptions import DishonestAtMost, DistinctRounds
from tacit.errors import TacitError
from tacit.noise import (
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    NoiseDistribution,
    PolyaDifference,
    Skellam,
)
from tacit.privacy import (
    ConcentratedDP,
    Gaussian,
    PureDP,
    RenyiDP,
    View,
    calibrate,
    concentrated_of,
    renyi_of,
    repeat,
    weakest_divergence,
)
from tacit.privacy.divergences import _steepest, divergence
from tacit.privacy.guarantees import Arithmetic
from tacit.protocols import factories
from tacit.simulation import simulate
from tacit.simulation.study import in_theorem_form

Tacit = Callable[..., dict[str, Any]]
NOISE: list[tuple[NoiseDistribution, int]] = [
    (DiscreteGaussian(2.0), 1),
    (DiscreteGaussian(0.7), 2),
    (DiscreteLaplace(3), 2),
    (Skellam(9), 2),
    (Skellam(400), 25),
    (PolyaDifference(0.75, math.exp(-0.5)), 1),
]
ORDERS = (1.25, 2, 2.5, 3, 8, 20)


def by_hand(log_pmf: Any, shift: int, order: float, reach: int) -> float:
    """D_α by brute force, in both directions."""
    k = np.arange(-reach, reach + 1)
    p, q = (np.array(log_pmf(k + s), dtype=np.longdouble) for s in (0, shift))
    kept = np.isfinite(p) & np.isfinite(q)
    return max(
        float(np.log(np.sum(np.exp(order * a[kept] + (1 - order) * b[kept]))) / (order - 1))
        for a, b in ((p, q), (q, p))
    )


@pytest.mark.parametrize(("noise", "sensitivity"), NOISE, ids=str)
def test_renyi_divergences_match_the_probabilities_from_above(
    noise: NoiseDistribution, sensitivity: int
) -> None:
    found = renyi_of(noise, sensitivity, ORDERS)
    for order, value in found.curve:
        reach = math.ceil(order * sensitivity + 60 * noise.std)
        true = max(by_hand(noise.log_pmf, s, order, reach) for s in range(1, sensitivity + 1))
        assert true * (1 - 1e-12) <= value <= true * (1 + 1e-9) + 1e-10
    assert found.arithmetic is Arithmetic.EXACT


@pytest.mark.parametrize("order", [1.5, 2.0, 4.0])
def test_renyi_of_approximate_sums_pays_for_their_distance(
    order: float,
) -> None:
    """Halves of both distributions weighted against each other, within a factor e everywhere."""
    noise, apart = DiscreteGaussian(30.0), 1.0
    heavy = 1 - math.exp(-apart) / 2
    k = np.arange(-400, 401)
    p, q = (np.exp(np.array(noise.log_pmf(k + s), dtype=np.longdouble)) for s in (0, 1))
    right = k >= 0
    sides = [(part[right].sum(), part[~right].sum()) for part in (p, q)]
    p[right] *= heavy / sides[0][0]
    p[~right] *= (1 - heavy) / sides[0][1]
    q[right] *= (1 - heavy) / sides[1][0]
    q[~right] *= heavy / sides[1][1]
    true = float(np.log(np.sum(p**order * q ** (1 - order))) / (order - 1))
    assert true > apart + divergence(noise, 1, order)
    ((_, stated),) = renyi_of(noise, 1, (order,), log_ratio=1.05 * apart).curve
    assert stated >= true


@pytest.mark.parametrize("ends", [(1.1, 4.0), (1.5, 1.8), (2.0, 30.0)])
def test_zcdp_covers_orders_between_grid_points(ends: tuple[float, float]) -> None:
    """That of a parabola: between two orders it exceeds the ρ at both."""
    low, high = ends
    rho = 0.3
    points = [(a, rho * a * (a - 1)) for a in ends]
    slope = (points[1][1] - points[0][1]) / (high - low)
    inside = np.linspace(low, high, 10_001)
    chord = points[0][1] + slope * (inside - low)
    largest = float((chord / (inside * (inside - 1))).max())
    assert largest > rho * 1.001
    assert largest <= _steepest(points[0], points[1]) <= largest * (1 + 1e-6)


@pytest.mark.parametrize(("noise", "sensitivity"), NOISE, ids=str)
def test_rho_bounds_every_order_tightly(noise: NoiseDistribution, sensitivity: int) -> None:
    rho = concentrated_of(noise, sensitivity).rho
    orders = 1 + np.geomspace(1e-3, 40, 60)
    reach = math.ceil(40 * sensitivity + 60 * noise.std)
    true = max(by_hand(noise.log_pmf, sensitivity, a, reach) / a for a in orders)
    assert true * (1 - 1e-11) <= rho <= 1.05 * true


@pytest.mark.parametrize(("noise", "sensitivity"), NOISE, ids=str)
def test_less_noise_has_larger_divergences(noise: NoiseDistribution, sensitivity: int) -> None:
    """A guarantee that is stated for the noise does not hold for half of it."""
    if isinstance(noise, PolyaDifference):
        pytest.skip("it has two parameters")
    stated, half = renyi_of(noise, sensitivity), noise.scaled(0.5)
    true = [by_hand(half.log_pmf, sensitivity, a, 2000) for a, _ in stated.curve[:3]]
    assert all(value < 0.9 * is_ for (_, value), is_ in zip(stated.curve, true, strict=False))


@pytest.mark.parametrize("sigma", [0.5, 0.6, 1.0])
@pytest.mark.parametrize("count", [2, 5])
def test_sums_of_approximate_shares_are_covered(sigma: float, count: int) -> None:
    """The true distribution of the sum, by convolution (CZ23 Theorem 4)."""
    share = DiscreteGaussian(sigma)
    k = np.arange(-60, 61)
    total = np.array([1.0])
    for _ in range(count):
        total = np.convolve(total, np.array(share.pmf(k), dtype=float))
    middle = len(total) // 2

    def log_pmf(points: Any) -> Any:
        places = np.asarray(points) + middle
        return np.log(total[places])

    sum_, apart = share.sum_of_shares(count), share.closeness(count)
    assert apart > 0
    curve = renyi_of(sum_, 1, (2, 3, 4), log_ratio=apart).curve
    rho = concentrated_of(sum_, 1, log_ratio=apart).rho
    for order, value in curve:
        true = by_hand(log_pmf, 1, order, 8 * count)
        assert true <= value
        assert true <= rho * order


def test_participations_are_composed_and_stated() -> None:
    once, thrice = (renyi_of(Skellam(50), 3, participations=n) for n in (1, 3))
    assert all(
        b == pytest.approx(3 * a) for (_, a), (_, b) in zip(once.curve, thrice.curve, strict=True)
    )
    assert DistinctRounds() in thrice.assumptions
    assert DistinctRounds() not in once.assumptions
    assert concentrated_of(DiscreteGaussian(5.0), participations=4).rho == pytest.approx(0.08)
    found = repeat(RenyiDP(((2.0, 0.1), (4.0, 0.3))), 3)
    assert found.curve == ((2.0, 0.30000000000000004), (4.0, 0.9))
    assert repeat(ConcentratedDP(0.1), 3).rho >= 0.1 * 3
    assert repeat(PureDP(0.1), 10).short == "(1, 0)-DP"
    assert repeat(PureDP(0.1), 10).participations == 10
    assert DistinctRounds() in found.assumptions


def test_the_common_guarantee_has_the_largest_numbers() -> None:
    one, other = RenyiDP(((2.0, 0.1), (4.0, 0.5))), RenyiDP(((2.0, 0.2), (4.0, 0.3)))
    assert weakest_divergence([one, other]).curve == ((2.0, 0.2), (4.0, 0.5))
    with pytest.raises(TacitError, match="different orders"):
        weakest_divergence([one, RenyiDP(((3.0, 0.2),))])


def test_the_common_guarantee_keeps_kind_view_and_participations() -> None:
    """Found: a concentrated guarantee beside Rényi ones was left out, and the first one's
    participations were stated for all.
    """
    one = RenyiDP(((2.0, 0.1),), participations=3)
    strange: list[Any] = [ConcentratedDP(9.0), replace(one, view=View.MESSAGE)]
    for other in strange:
        for both in ([one, other], [other, one]):
            with pytest.raises(TacitError, match="no weakest one"):
                weakest_divergence(both)
    once = RenyiDP(((2.0, 0.2),))
    for pair in ([one, once], [once, one]):
        assert weakest_divergence(pair) == RenyiDP(((2.0, 0.2),))


@pytest.mark.parametrize("rewards", ["bernoulli", "beta"])
@pytest.mark.parametrize("name", ["dist-rdp-se", "dist-cdp-se"])
def test_a_guarantee_is_restated_for_the_noise_of_its_own_rounds(name: str, rewards: str) -> None:
    """Found: divergences of 16 levels were printed where rewards are bits, a fifth too small."""
    asked: Any = {"horizon": 1000, "means": (0.3, 0.6), "rewards": rewards}
    entry = lookup(name)
    problem = entry.make_problem(asked)
    made = entry.build(problem.for_environment(problem.start(0, None).world, 0))
    told = in_theorem_form(simulate(lookup(name), runs=1, **asked))
    assert told is not None
    for round_ in made.propose():
        own: Any = made.open(round_)
        found = own.renyi() if name == "dist-rdp-se" else own.concentrated()
        assert found.implies(told)


def test_bounded_noise_has_no_renyi_guarantee() -> None:
    for derive in (renyi_of, concentrated_of):
        with pytest.raises(TacitError, match=r"binomial noise has no .* guarantee"):
            derive(Binomial(1000), 1)


def test_continuous_noise_is_the_gaussian_mechanism_in_ideal_arithmetic() -> None:
    found = renyi_of(Gaussian(4.0), 2.0, (2, 5))
    assert dict(found.curve) == {2: pytest.approx(0.25), 5: pytest.approx(0.625)}
    assert found.arithmetic is Arithmetic.IDEAL
    assert concentrated_of(Gaussian(4.0), 2.0).rho == pytest.approx(0.125)


# Calibration


@pytest.mark.parametrize("kind", ["discrete-gaussian", "skellam", "discrete-laplace", "gaussian"])
def test_the_minimum_noise_for_a_renyi_target_is_found(kind: str) -> None:
    target = RenyiDP(((2.0, 0.5), (8.0, 1.2)), participations=2)
    found = calibrate(kind, 3, target)
    assert found.meets_target
    assert found.guarantee.implies(target.assuming(DistinctRounds()))
    less = found.distribution.scaled(0.99)
    assert any(2 * divergence(less, 3, a) > value for a, value in target.curve)


@pytest.mark.parametrize("kind", ["discrete-gaussian", "skellam", "discrete-laplace", "gaussian"])
def test_the_minimum_noise_for_a_concentrated_target_is_found(kind: str) -> None:
    found = calibrate(kind, 3, ConcentratedDP(0.2))
    assert found.meets_target
    assert isinstance(found.guarantee, ConcentratedDP)
    assert 0.199 <= found.guarantee.rho <= 0.2
    assert concentrated_of(found.distribution.scaled(0.99), 3).rho > 0.2


def test_a_renyi_target_of_a_vector_is_rejected() -> None:
    with pytest.raises(TacitError, match="one coordinate"):
        calibrate("skellam", 3, RenyiDP(((2.0, 0.5),)), dimension=2)


# Rounds, and the algorithms of the papers


@pytest.mark.parametrize(
    "protocol",
    [
        factories.skellam_paper(4, ArmsProblem.of(delta=1e-5).privacy.target, 2, 0.1),
        factories.gaussian_paper(4, ArmsProblem.of(delta=1e-5).privacy.target, 2, 0.1),
    ],
    ids=["skellam", "discrete-gaussian"],
)
def test_the_divergences_of_a_round_bound_those_of_the_servers_view(protocol: Any) -> None:
    """Against one curious participant: the sum of the others' shares, modulo m."""
    views = [
        protocol.view_distribution(total, protocol.honest) for total in (0, protocol.precision)
    ]
    residues = np.arange(protocol.modulus)
    p, q = (np.array(view.pmf(residues), dtype=np.longdouble) for view in views)
    rho = protocol.concentrated().rho
    for order, value in protocol.renyi((2, 3, 4)).curve:
        true = float(np.log(np.sum(p**order * q ** (1 - order))) / (order - 1))
        assert 0.5 * value < true <= value
        assert true <= rho * order
    half = protocol.noise(max(1, protocol.honest // 2))  # too few shares: no longer covered
    few = by_hand(half.log_pmf, protocol.precision, 2, 500)
    assert few > protocol.renyi((2,)).curve[0][1]


def test_the_divergences_of_the_theorems_are_printed_beside_epsilon_and_delta() -> None:
    asked: dict[str, Any] = {"horizon": 5000, "constants": "paper", "runs": 1, "epsilon": 0.5}
    skellam, gaussian = (
        in_theorem_form(simulate(lookup(f"dist-{x}-se"), **asked)) for x in ("rdp", "cdp")
    )
    assert isinstance(skellam, RenyiDP)
    assert isinstance(gaussian, ConcentratedDP)
    # the smallest round has 4 participants, one of them curious: variance ¾ of g²/ε²
    assert gaussian.rho == pytest.approx(0.5**2 / 2 * 4 / 3, rel=1e-6)
    theorem = [a * 0.5**2 / 2 * 4 / 3 for a, _ in skellam.curve]
    assert skellam.curve[0][1] == pytest.approx(theorem[0], rel=0.01)
    assert all(value <= 1.1 * most for (_, value), most in zip(skellam.curve, theorem, strict=True))
    for one in (skellam, gaussian):
        assert any(isinstance(a, DishonestAtMost) for a in one.assumptions)
        assert one.arithmetic is Arithmetic.EXACT
    assert in_theorem_form(simulate("dist-dp-se", horizon=500, runs=1)) is None


def test_every_round_has_at_most_the_printed_divergences() -> None:
    for name, factory in (
        ("dist-rdp-se", factories.skellam_tight),
        ("dist-cdp-se", factories.gaussian_tight),
    ):
        problem = ArmsProblem.of(delta=1e-5, rewards="gaussian", horizon=20_000)
        also = lookup(name).form.also
        assert also is not None
        stated = also(problem)
        sizes = [4**b for b in range(3, 8) if 64 <= 4**b <= 20_000]
        how = {"binary": False, **({"dropout": 0.0} if name == "dist-rdp-se" else {})}
        for size in sizes:
            round_ = factory(size, problem.privacy.target, **how)
            other: Any = round_.renyi() if name == "dist-rdp-se" else round_.concentrated()  # type: ignore[attr-defined]
            assert other.implies(stated)


# Commands


def test_commands_accept_and_print_every_kind_of_guarantee(tacit: Tacit) -> None:
    given = {"noise": "skellam", "variance": 1388, "sensitivity": 10}
    curve = dict(tacit("privacy", **given, **{"as": "renyi"}, orders="2,8")["renyi_curve"])
    assert curve == {2: pytest.approx(0.07205, rel=1e-3), 8: pytest.approx(0.288, rel=1e-3)}
    rho = tacit("privacy", **given, **{"as": "zcdp"}, delta=1e-5)
    assert rho["rho"] == pytest.approx(100 / (2 * 1388), rel=0.03)
    assert rho["epsilon"] == pytest.approx(ConcentratedDP(rho["rho"]).epsilon_at(1e-5))
    laplace = {"noise": "discrete-laplace", "sensitivity": 10}
    assert tacit("privacy", **laplace, scale=10, **{"as": "pure"})["epsilon"] == 1.0
    found = tacit("calibrate", **laplace, **{"as": "zcdp"}, rho=0.3)
    assert found["meets_target"]
    assert found["rho"] <= 0.3
    found = tacit("calibrate", **laplace, **{"as": "renyi"}, orders="4", epsilon=0.5)
    assert found["renyi_curve"][0][1] <= 0.5
    total = tacit("compose", **{"as": "zcdp"}, rho=0.01, participations=10, delta=1e-6)
    assert total["rho"] == pytest.approx(0.1)
    assert total["guarantee"]["participations"] == 10
    total = tacit("compose", **{"as": "renyi"}, orders="4,8", epsilon=0.1, participations=10)
    assert [order for order, _ in total["renyi_curve"]] == [4, 8]
    assert tacit("compose", **{"as": "pure"}, epsilon=0.1, participations=3)["epsilon"] >= 0.3
