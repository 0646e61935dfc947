"""Calibration: the noise meets its target by independent computation, and slightly less noise does
not.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm
from tests.tables import extended_after

from tacit.assumptions import DishonestAtMost, ReleasedOnlyAbove, Scope
from tacit.errors import TacitError
from tacit.noise import Binomial, DiscreteGaussian, DiscreteLaplace, NoiseDistribution, Skellam
from tacit.privacy import (
    ApproximateDP,
    Arithmetic,
    ComposedLoss,
    ConcentratedDP,
    Gaussian,
    Neighbours,
    NoiseBits,
    PureDP,
    View,
    calibrate,
    l2_guarantee,
    linf_loss,
    privacy_loss,
    privacy_of,
    renyi_divergence,
    state_drawn_arithmetic,
)
from tacit.privacy.accounting import epsilon_of
from tacit.privacy.calibration import Calibration
from tacit.privacy.search import least, least_integer, least_root
from tacit.protocols.sums import SecureSum


def hockey_stick(distribution: NoiseDistribution, sensitivity: int, epsilon: float) -> float:
    """By a plain sum over the integers, both directions."""
    centre, width = round(distribution.mean), math.ceil(12 * distribution.std + 60)
    k = np.arange(centre - width, centre + width + 1)
    if distribution.log_pmf(k[0]) == -np.inf or isinstance(distribution, Binomial):
        k = k[(k >= 0) & (k <= distribution.support[1])]
    p = distribution.pmf(k)
    return max(
        float(np.maximum(0.0, p - math.exp(epsilon) * distribution.pmf(k + s)).sum())
        for s in (sensitivity, -sensitivity)
    )


def gaussian_delta(sigma: float, sensitivity: float, epsilon: float) -> float:
    mu = sensitivity / sigma
    return float(
        norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    )


def true_delta(
    distribution: NoiseDistribution | Gaussian, sensitivity: int, epsilon: float
) -> float:
    if isinstance(distribution, Gaussian):
        return gaussian_delta(distribution.sigma, sensitivity, epsilon)
    return hockey_stick(distribution, sensitivity, epsilon)


def narrower(
    distribution: NoiseDistribution | Gaussian, factor: float
) -> NoiseDistribution | Gaussian:
    """The same kind of noise with its standard deviation multiplied."""
    match distribution:
        case DiscreteLaplace():
            return DiscreteLaplace(float(distribution.scale) * factor)
        case Skellam():
            return Skellam(float(distribution.variance) * factor**2)
        case DiscreteGaussian():
            return DiscreteGaussian(float(distribution.sigma) * factor)
        case Binomial():
            return Binomial(max(1, math.floor(distribution.n * factor**2)), distribution.p)
        case Gaussian():
            return Gaussian(distribution.sigma * factor)
    raise AssertionError(distribution)


KINDS = ["discrete-laplace", "skellam", "discrete-gaussian", "gaussian", "binomial"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sensitivity", [1, 3, 40])
@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1.0, 1e-5), (0.2, 1e-3), (4.0, 1e-8), (10.0, 0.25)]
)
def test_the_noise_meets_the_target_and_one_percent_less_does_not(
    kind: str, sensitivity: int, epsilon: float, delta: float
) -> None:
    found = calibrate(kind, sensitivity, ApproximateDP(epsilon, delta))
    assert found.meets_target
    assert true_delta(found.distribution, sensitivity, epsilon) <= delta * (1 + 1e-9)
    assert found.epsilon <= epsilon
    assert (
        true_delta(found.distribution, sensitivity, max(0.0, found.epsilon - 1e-6))
        >= delta * (1 - 1e-9)
        or found.epsilon == 0
    )
    less = (
        Binomial(found.distribution.n - 1)
        if isinstance(found.distribution, Binomial) and found.distribution.n > 1
        else narrower(found.distribution, 0.99)
    )
    if less != found.distribution:
        assert true_delta(less, sensitivity, epsilon) > delta * (1 - 1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_halved_noise_fails(kind: str) -> None:
    for sensitivity in (1, 10):
        found = calibrate(kind, sensitivity, ApproximateDP(1.0, 1e-5))
        assert true_delta(narrower(found.distribution, 0.5), sensitivity, 1.0) > 50 * 1e-5


@pytest.mark.parametrize(("epsilon", "sensitivity"), [(0.1, 1), (1.0, 7), (3.0, 1000)])
def test_pure_discrete_laplace_has_the_exact_scale(epsilon: float, sensitivity: int) -> None:
    found = calibrate("discrete-laplace", sensitivity, PureDP(epsilon), users=10)
    assert isinstance(found.distribution, DiscreteLaplace)
    assert found.distribution.scale == Fraction(sensitivity) / Fraction(epsilon)
    assert found.epsilon == epsilon
    shared = PureDP(epsilon).assuming(
        DishonestAtMost(Scope.ROUND, 0), ReleasedOnlyAbove(Fraction(1))
    )
    assert found.guarantee == state_drawn_arithmetic(shared, found.distribution)
    assert found.share is not None
    assert np.allclose(
        found.share.power(10).log_pmf([0, 3, 50]), found.distribution.log_pmf([0, 3, 50])
    )
    half = narrower(found.distribution, 0.5)
    assert privacy_loss(half, sensitivity).pure == pytest.approx(2 * epsilon)  # type: ignore[arg-type]


def test_a_delta_permits_slightly_less_laplace_noise() -> None:
    pure = calibrate("discrete-laplace", 10, PureDP(1.0)).distribution.std
    assert (
        0.9 * pure
        < calibrate("discrete-laplace", 10, ApproximateDP(1.0, 1e-2)).distribution.std
        < pure
    )


@pytest.mark.parametrize(("kind", "width"), [("discrete-gaussian", 1.0), ("gaussian", 1.0)])
def test_concentrated_targets_are_met(kind: str, width: float) -> None:
    found = calibrate(kind, 3, ConcentratedDP(0.5))
    assert found.distribution.std == pytest.approx(3 * width, rel=1e-5)
    assert found.epsilon <= 0.5
    assert found.guarantee == state_drawn_arithmetic(
        ConcentratedDP(found.epsilon), found.distribution
    )
    vector = calibrate(kind, 3, ConcentratedDP(0.5), dimension=4)
    assert vector.distribution.std == pytest.approx(6 * width, rel=1e-5)


def test_concentrated_laplace_needs_less_noise_than_half_epsilon_squared() -> None:
    """ε = 1 would be enough, at scale 2; its divergences themselves allow for less noise."""
    found = calibrate("discrete-laplace", 2, ConcentratedDP(0.5))
    assert found.epsilon == pytest.approx(0.5, rel=1e-6)
    assert isinstance(found.distribution, DiscreteLaplace)
    scale = float(found.distribution.scale)
    assert 1.7 < scale < 2.0
    orders = [1 + x / 50 for x in range(1, 400)]
    worst = max(renyi_divergence(found.distribution, 2, a) / a for a in orders)
    assert 0.97 * 0.5 < worst <= 0.5


# shares


@pytest.mark.parametrize("users", [1, 7, 1000])
def test_skellam_shares_sum_to_the_calibrated_noise(users: int) -> None:
    found = calibrate("skellam", 10, ApproximateDP(1.0, 1e-5), users=users)
    assert found.share is not None
    assert float(found.share.variance) * users == pytest.approx(float(found.distribution.variance))


@pytest.mark.parametrize("users", [2, 5, 40])
def test_a_sum_of_discrete_gaussian_shares_meets_the_target_exactly(users: int) -> None:
    """The sum's own distribution, convolved: not the single discrete Gaussian that the bound
    compares it with.
    """
    found = calibrate("discrete-gaussian", 4, ApproximateDP(1.0, 1e-5), users=users)
    assert found.share is not None
    total = found.share.power(users)
    assert privacy_loss(total, 4).delta(1.0) <= 1e-5
    assert found.meets_target
    assert "Kairouz" in found.derivation


def test_many_discrete_gaussian_shares_have_standard_deviations_above_a_half() -> None:
    found = calibrate("discrete-gaussian", 1, ApproximateDP(1.0, 1e-5), users=10_000)
    assert found.share is not None
    assert found.share.std > 0.5
    with pytest.raises(TacitError, match="give a delta"):
        calibrate("discrete-gaussian", 1, ConcentratedDP(0.5), users=10)


# binomial: bits, bias, users


def test_binomial_bits_per_user_and_their_bias_are_minimal() -> None:
    target = ApproximateDP(1.0, 1e-5)
    found = calibrate("binomial", 10, target, users=1000)
    assert isinstance(found.distribution, Binomial)
    assert found.bits_per_user is not None
    assert found.bits_per_user == math.ceil(calibrate("binomial", 10, target).distribution.n / 1000)  # type: ignore[union-attr]
    assert found.distribution.n == 1000 * found.bits_per_user
    assert hockey_stick(found.distribution, 10, 1.0) <= 1e-5
    assert (
        hockey_stick(Binomial(found.distribution.n, float(found.distribution.p) * 0.99), 10, 1.0)
        > 1e-5
    )
    assert found.share == Binomial(found.bits_per_user, found.distribution.p)


def test_a_fixed_number_of_bits_gives_the_minimal_bias() -> None:
    found = calibrate(
        "binomial", 1, ApproximateDP(1.0, 1e-5), users=100, bits=NoiseBits(per_user=3)
    )
    assert isinstance(found.distribution, Binomial)
    assert found.distribution.n == 300
    assert float(found.distribution.p) < 0.5
    assert (
        hockey_stick(found.distribution, 1, 1.0)
        <= 1e-5
        < hockey_stick(Binomial(300, float(found.distribution.p) * 0.99), 1, 1.0)
    )


def test_a_fixed_bias_gives_the_minimal_number_of_bits() -> None:
    found = calibrate("binomial", 2, ApproximateDP(1.0, 1e-5), bits=NoiseBits(bias=0.1))
    assert isinstance(found.distribution, Binomial)
    assert (
        hockey_stick(found.distribution, 2, 1.0)
        <= 1e-5
        < hockey_stick(Binomial(found.distribution.n - 1, 0.1), 2, 1.0)
    )
    shared = calibrate("binomial", 2, ApproximateDP(1.0, 1e-5), bits=NoiseBits(bias=0.1), users=50)
    assert shared.bits_per_user == math.ceil(found.distribution.n / 50)


def test_one_bit_from_each_of_many_users_suffices() -> None:
    found = calibrate("binomial", 1, ApproximateDP(1.0, 1e-5), users=100_000)
    assert found.bits_per_user == 1
    assert isinstance(found.distribution, Binomial)
    assert float(found.distribution.p) < 0.001
    assert hockey_stick(found.distribution, 1, 1.0) <= 1e-5


def test_too_few_bits_are_rejected_with_a_sufficient_number() -> None:
    with pytest.raises(TacitError, match="use at least 7"):
        calibrate("binomial", 1, ApproximateDP(1.0, 1e-5), users=10, bits=NoiseBits(per_user=3))


# vectors


@pytest.mark.parametrize("kind", ["discrete-laplace", "skellam", "discrete-gaussian", "binomial"])
def test_linf_vectors_meet_the_target_by_composition(kind: str) -> None:
    found = calibrate(kind, 2, ApproximateDP(1.0, 1e-5), dimension=5)
    assert isinstance(found.distribution, NoiseDistribution)
    assert ComposedLoss(((privacy_loss(found.distribution, 2), 5),)).delta(1.0) <= 1e-5
    less = narrower(found.distribution, 0.99)
    assert isinstance(less, NoiseDistribution)
    assert ComposedLoss(((privacy_loss(less, 2), 5),)).delta(1.0) > 1e-5


def test_pure_laplace_of_a_vector_pays_for_each_coordinate() -> None:
    found = calibrate("discrete-laplace", 2, PureDP(1.0), dimension=5)
    assert isinstance(found.distribution, DiscreteLaplace)
    assert found.distribution.scale == 10
    assert found.epsilon == 1.0


@pytest.mark.parametrize("kind", extended_after(1, ["skellam", "discrete-gaussian", "binomial"]))
def test_l2_vectors_meet_the_target_by_their_proven_bound(kind: str) -> None:
    found = calibrate(kind, 5.0, ApproximateDP(1.0, 1e-5), dimension=20, norm="l2")
    assert l2_guarantee(found.distribution, 5.0, 20, 1e-5).epsilon <= 1.0
    assert l2_guarantee(narrower(found.distribution, 0.97), 5.0, 20, 1e-5).epsilon > 1.0
    assert (
        found.distribution.std
        >= calibrate("gaussian", 5.0, ApproximateDP(1.0, 1e-5)).distribution.std * 0.999
    )
    assert (
        found.distribution.std
        < calibrate("gaussian", 5.0, ApproximateDP(1.0, 1e-5)).distribution.std * 1.25
    )


def test_gaussian_vectors_are_exact_in_either_norm() -> None:
    single = calibrate("gaussian", 1.0, ApproximateDP(2.0, 1e-6)).distribution.std
    assert calibrate(
        "gaussian", 1.0, ApproximateDP(2.0, 1e-6), dimension=9, norm="l2"
    ).distribution.std == pytest.approx(single, rel=1e-6)
    assert calibrate(
        "gaussian", 1.0, ApproximateDP(2.0, 1e-6), dimension=9
    ).distribution.std == pytest.approx(3 * single, rel=1e-6)


def test_every_coordinate_of_every_participation_is_paid_for() -> None:
    """Three times five numbers, in each way of accounting."""
    often: dict[str, Any] = {"participations": 3}
    pure = calibrate("discrete-laplace", 2, PureDP(1.0, **often), dimension=5)
    assert isinstance(pure.distribution, DiscreteLaplace)
    assert (pure.distribution.scale, pure.epsilon) == (30, 1.0)
    found = calibrate("discrete-laplace", 2, ConcentratedDP(0.5, **often), dimension=5)
    assert isinstance(found.distribution, DiscreteLaplace)
    assert float(found.distribution.scale) == pytest.approx(2 * math.sqrt(15), rel=1e-6)
    number = calibrate("discrete-laplace", 2, ConcentratedDP(0.5, **often)).distribution
    third = calibrate("discrete-laplace", 2, ConcentratedDP(0.5 / 3)).distribution
    assert number.std == pytest.approx(third.std, rel=1e-6)
    target = ApproximateDP(2.0, 1e-6, **often)
    single = calibrate("gaussian", 1.0, ApproximateDP(2.0, 1e-6)).distribution.std
    ideal = calibrate("gaussian", 1.0, target, dimension=5).distribution.std
    assert ideal == pytest.approx(math.sqrt(15) * single, rel=1e-6)
    skellam = calibrate("skellam", 2, target, dimension=5)
    composed = ComposedLoss(((privacy_loss(skellam.integer_distribution, 2), 15),))
    assert composed.epsilon(1e-6) == pytest.approx(skellam.epsilon, rel=1e-9)
    assert 1.99 < skellam.epsilon <= 2.0


def test_approximate_shares_pay_their_distance_in_every_coordinate() -> None:
    """So many shares that their sum is visibly not one draw."""
    found = calibrate("discrete-gaussian", 1, ApproximateDP(1.0, 1e-5), users=3000, dimension=3)
    assert found.share is not None
    psi = 3 * found.share.closeness(3000)
    assert psi > 1e-6
    inner = linf_loss(found.integer_distribution, 1, 3).epsilon(1e-5 * math.exp(-psi))
    assert found.epsilon == pytest.approx(inner + 2 * psi, rel=1e-12)


@pytest.mark.extended
def test_very_many_bits_are_minimal_to_a_part_in_ten_million() -> None:
    target = ApproximateDP(1e-4, 1e-6)
    found = calibrate("binomial", 1, target)
    assert isinstance(found.distribution, Binomial)
    assert found.distribution.n > 10**7
    assert found.epsilon <= 1e-4
    fewer = round(found.distribution.n * (1 - 1e-6))
    assert privacy_loss(Binomial(fewer), 1).epsilon(1e-6) > 1e-4


@pytest.mark.parametrize(
    ("epsilon", "delta", "times", "users"),
    [(0.5, 1e-2, 3, 60), (1.0, 1e-6, 2, 400), (9, 1e-6, 3, 9)],
)
def test_shares_for_several_participations_match_the_protocol(
    epsilon: float, delta: float, times: int, users: int
) -> None:
    """Each round pays for being only close to one draw."""
    target = ApproximateDP(epsilon, delta, participations=times)
    found = calibrate("discrete-gaussian", 1, target, users=users)
    assert found.share is not None
    apart = found.share.closeness(users)
    assert found.epsilon == epsilon_of(found.integer_distribution, 1, target, apart)
    assert found.epsilon > epsilon_of(found.integer_distribution, 1, target)
    protocol = SecureSum(users + 1, 1, found.integer_distribution, target)
    assert protocol.honest == users
    assert protocol.guarantee.epsilon == epsilon


# the papers' closed forms


def test_methods_of_the_papers_state_their_true_guarantee() -> None:
    target = ApproximateDP(1.0, 1e-5)
    forms: list[Calibration] = [
        calibrate("discrete-laplace", 10, target, constants="paper", users=4),
        calibrate("skellam", 10, target, constants="paper", users=4),
        calibrate("discrete-gaussian", 10, target, constants="paper", users=4),
        calibrate("gaussian", 10, target, constants="paper"),
        calibrate("binomial", 1, target, constants="paper"),
        calibrate("binomial", 10, target, constants="paper", users=100),
    ]
    for form in forms:
        sensitivity = 1 if form.users is None and form.kind == "binomial" else 10
        assert form.constants == "paper"
        assert form.meets_target
        assert true_delta(form.distribution, sensitivity, form.epsilon) <= 1e-5 * (1 + 1e-6)
        tight = calibrate(form.kind, sensitivity, target)
        assert tight.distribution.std <= form.distribution.std * (1 + 1e-6)
    wrong = calibrate("gaussian", 1, ApproximateDP(10.0, 0.25), constants="paper")
    assert not wrong.meets_target
    assert wrong.epsilon > 10
    assert wrong.guarantee == state_drawn_arithmetic(
        ApproximateDP(wrong.epsilon, 0.25), wrong.distribution
    )
    assert wrong.guarantee.arithmetic is Arithmetic.IDEAL


def test_invalid_targets_are_rejected_with_a_remedy() -> None:
    target = ApproximateDP(1.0, 1e-5)
    rejections: list[tuple[str, dict[str, object]]] = [
        ("one of binomial", {"kind": "laplace"}),
        ("one of tight, paper", {"constants": "best"}),
        ("one of linf, l2", {"norm": "l3"}),
        ("sensitivity is 0", {"sensitivity": 0}),
        ("scale the query to integers", {"sensitivity": 0.5}),
        ("scale the query to integers", {"sensitivity": 0.5, "norm": "l2"}),
        ("users is 0", {"users": 0}),
        ("dimension is 0", {"dimension": 0}),
        ("use discrete-laplace", {"target": PureDP(1.0)}),
        (
            "no concentrated guarantee",
            {"target": ConcentratedDP(0.5), "dimension": 2, "norm": "l2"},
        ),
        ("epsilon is 0", {"target": ApproximateDP(0.0, 1e-5)}),
        ("no meaningful privacy", {"target": ApproximateDP(1e4, 1e-5)}),
        ("epsilon is 1e-30; below 1e-09", {"target": ApproximateDP(1e-30, 1e-6)}),
        ("for binomial noise", {"bits": NoiseBits(3)}),
        ("finite range", {"kind": "binomial", "target": PureDP(1.0)}),
        ("give users", {"kind": "binomial", "bits": NoiseBits(3)}),
        ("bias is 1.5", {"kind": "binomial", "bits": NoiseBits(bias=1.5)}),
        ("not shared", {"kind": "gaussian", "users": 3}),
        (
            "norm='linf'",
            {"kind": "discrete-laplace", "target": PureDP(1.0), "norm": "l2", "dimension": 2},
        ),
        (
            "norm='linf'",
            {"kind": "discrete-laplace", "target": ConcentratedDP(1), "norm": "l2", "dimension": 2},
        ),
        ("more than one parameter", {"kind": "polya"}),
        ("no closed form", {"kind": "table", "constants": "paper"}),
        ("one coordinate", {"constants": "paper", "dimension": 2}),
        ("depends on the batch", {"kind": "binomial", "sensitivity": 2, "constants": "paper"}),
    ]
    for message, change in rejections:
        arguments: dict[str, object] = {
            "kind": "skellam",
            "sensitivity": 1,
            "target": target,
        } | change
        with pytest.raises(TacitError, match=message):
            calibrate(**arguments)  # type: ignore[arg-type]


def test_interpolation_brackets_the_root_in_few_steps() -> None:
    for truth, power in ((1e-9, 3.0), (0.3, 1.0), (7.0, 20.0), (1e12, 0.5)):
        steps = 0

        def excess(x: float, truth: float = truth, power: float = power) -> float:
            nonlocal steps
            steps += 1
            return power * math.log(truth / x)

        found = least_root(excess, truth * 1.01)
        assert truth * (1 - 1e-12) <= found <= truth * (1 + 2e-7)
        assert steps <= 12
        assert truth * (1 - 1e-12) <= least_root(excess, 1.0) <= truth * (1 + 2e-7)
    cliff = least_root(lambda x: 1.0 if x < 5 else -math.inf, 3.0)
    assert 5 <= cliff <= 5 * (1 + 2e-7)
    with pytest.raises(TacitError, match="no amount"):
        least_root(lambda _: 1.0, 1.0)


def test_searches_return_the_safe_end() -> None:
    for truth in (1e-9, 0.3, 7.0, 1e12):
        found = least(lambda x, truth=truth: x >= truth, 1.0)  # type: ignore[misc]
        assert truth <= found <= truth * (1 + 2e-7)
    for whole in (1, 2, 62, 10**9):
        for guess in (1, 50, 10**10):
            assert least_integer(lambda n, whole=whole: n >= whole, guess) == whole  # type: ignore[misc]
    with pytest.raises(TacitError, match="no amount"):
        least(lambda _: False, 1.0)
    with pytest.raises(TacitError, match="no number"):
        least_integer(lambda _: False, 1)


def test_printed_shares_that_are_not_divisible_are_not_accounted_as_one_draw() -> None:
    """A sum of narrow discrete Gaussian shares is narrower than one draw; from some number on it
    is nothing like it.
    """
    target = ApproximateDP(1.0, 1e-5)
    alone = calibrate("discrete-gaussian", 1, target, constants="paper")
    shared = calibrate("discrete-gaussian", 1, target, constants="paper", users=60)
    assert isinstance(shared.share, DiscreteGaussian)
    truth = privacy_loss(shared.share.power(60), 1).epsilon(1e-5)
    assert alone.epsilon < truth <= shared.epsilon
    with pytest.raises(
        TacitError, match="100 shares of discrete-gaussian noise do not approximate"
    ):
        calibrate("discrete-gaussian", 1, target, constants="paper", users=100)


def test_a_calibrated_guarantee_states_its_assumptions_and_arithmetic() -> None:
    target = ApproximateDP(1.0, 1e-5)
    ideal, alone = (calibrate(kind, 1, target).guarantee for kind in ("gaussian", "skellam"))
    assert (ideal.arithmetic, alone.arithmetic) == (Arithmetic.IDEAL, Arithmetic.EXACT)
    assert Arithmetic.IDEAL.text() in ideal.clauses()
    assert alone.assumptions == ideal.assumptions == frozenset()
    shared = calibrate("skellam", 1, target, users=2).guarantee
    assert shared.arithmetic is Arithmetic.EXACT
    assert shared.assumptions == {
        DishonestAtMost(Scope.ROUND, 0),
        ReleasedOnlyAbove(Fraction(1)),
    }
    assert "no participant of a batch is curious, corrupted or invented" in shared.clauses()
    assert "a batch is released only if all of its reports arrive" in shared.clauses()
    assert not shared.implies(alone)
    half = privacy_loss(calibrate("skellam", 1, target).integer_distribution.share(2), 1)
    assert half.epsilon(1e-5) > 1.3  # which is what one of the two sees


@pytest.mark.parametrize("kind", ["skellam", "discrete-gaussian", "binomial"])
def test_noise_shares_state_the_view_that_they_protect(
    kind: str,
) -> None:
    for about, message in (
        ({"view": View.MESSAGE}, "who sees each share alone"),
        ({"view": View.OTHER_SERVER}, "who sees each share alone"),
        ({"neighbours": Neighbours.ADD_OR_REMOVE_ONE}, "the number of participants is public"),
    ):
        target = ApproximateDP(1.0, 1e-3, **about)
        with pytest.raises(TacitError, match=message):
            calibrate(kind, 1, target, users=64)
        assert calibrate(kind, 1, target).guarantee.view is target.view
    shuffled = ApproximateDP(1.0, 1e-3, view=View.SHUFFLED)
    assert calibrate(kind, 1, shuffled, users=2).guarantee.view is View.SHUFFLED


def test_a_printed_skellam_bound_that_no_variance_meets_is_rejected() -> None:
    """At orders up to 512 a delta of 10^-100 alone costs an epsilon of 0.44."""
    with pytest.raises(TacitError, match="no amount of this noise"):
        calibrate("skellam", 1, ApproximateDP(0.1, 1e-100), constants="paper")


@pytest.mark.parametrize("participations", [1, 3])
def test_noise_that_guarantees_nothing_at_a_delta_says_so(participations: int) -> None:
    with pytest.raises(TacitError, match=r"gives no guarantee at delta 1e-06: give a larger"):
        privacy_of(Binomial(3), 1, 1e-6, participations=participations)
