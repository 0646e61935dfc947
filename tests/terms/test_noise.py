"""Noise of every distribution in terms and rounds, against independent accounting."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from scipy import stats
from tests.terms.examples import KEYS, masked, offer, pinned, shared, terms

from tacit.assumptions import DistinctRounds
from tacit.errors import Rejected, TacitError
from tacit.noise import (
    Binomial,
    DiscreteGaussian,
    DiscreteLaplace,
    NoiseDistribution,
    Skellam,
    sum_divergence,
)
from tacit.privacy.loss import privacy_loss
from tacit.sampling.certificates import lookup
from tacit.signatures import public_key
from tacit.terms import Answer, Noise, Offer, Party, StatedGuarantee, Terms
from tacit.terms.accounting import (
    MOST_TERMS,
    _divergence,
    binomial_delta,
    gaussian_delta,
    least_epsilon,
    pair_delta,
    skellam_delta,
    vector_delta,
)
from tacit.terms.parts import MOST_MESSAGES
from tacit.trust import TrustModel, split_shares

DELTA = Fraction(1, 10**6)
ONE = {
    "answer": Answer("1 if yes", levels=1),
    "guarantee": StatedGuarantee(Fraction(1), DELTA),
}
VARIANCE = Fraction(14240876, 10**6)  # a little more than calibrate("skellam", …) finds
SIGMA = Fraction(4230780, 10**6)  # a little more than calibrate("discrete-gaussian", …) finds


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(1), Fraction(7, 3)])
@pytest.mark.parametrize(
    ("found", "distribution", "shift"),
    [
        (lambda e: skellam_delta(Fraction(9, 2), 1, e), Skellam(Fraction(9, 2)), 1),
        (lambda e: skellam_delta(Fraction(5000), 16, e), Skellam(5000), 16),
        (lambda e: gaussian_delta(Fraction(9, 2), 2, e), DiscreteGaussian(4.5), 2),
        (lambda e: gaussian_delta(Fraction(1, 2), 1, e), DiscreteGaussian(0.5), 1),
        (lambda e: binomial_delta(126, Fraction(2, 7), 1, e), Binomial(126, Fraction(2, 7)), 1),
        (lambda e: binomial_delta(126, Fraction(5, 7), 1, e), Binomial(126, Fraction(5, 7)), 1),
        (lambda e: binomial_delta(3, Fraction(1, 2), 2, e), Binomial(3, Fraction(1, 2)), 2),
        (lambda e: binomial_delta(9000, Fraction(1, 9), 20, e), Binomial(9000, Fraction(1, 9)), 20),
        (lambda e: binomial_delta(7, Fraction(1, 900), 1, e), Binomial(7, Fraction(1, 900)), 1),
    ],
)
def test_a_device_computes_the_delta_of_the_servers(
    found: Any, distribution: NoiseDistribution, shift: int, epsilon: Fraction
) -> None:
    exact = privacy_loss(distribution, shift).delta(float(epsilon))
    assert found(epsilon) == pytest.approx(exact, rel=1e-9, abs=1e-22)


def test_shares_of_discrete_gaussians_are_charged_their_distance_from_one_draw() -> None:
    sigma, shares = Fraction(8), 400
    assert gaussian_delta(sigma, 1, Fraction(1), shares) == 1.0  # shares of σ = 0.4
    some = Fraction(24)  # shares of σ = 1.2
    apart = Fraction(sum_divergence(1.2, shares))
    assert 0 < apart < Fraction(1, 100)
    alone = gaussian_delta(some, 20, 1 - 2 * apart)
    assert gaussian_delta(some, 20, Fraction(1), shares) == pytest.approx(
        math.exp(apart) * alone, rel=1e-9
    )


@pytest.mark.parametrize(("share", "shares"), [(0.51, 2), (0.9, 3), (1.0, 10_001), (1.0, 30_000)])
def test_the_distance_of_shares_from_one_draw_is_summed_completely(
    share: float, shares: int
) -> None:
    """10 Σ_k e^{-2π²σ²k/(k+1)}: never below the sum over every k, and exact up to 10,001 shares."""
    exact = 10 * math.fsum(
        math.exp(-2 * (math.pi * share) ** 2 * k / (k + 1)) for k in range(1, shares)
    )
    found = _divergence(share, shares)
    assert exact * (1 - 1e-12) <= found <= exact * (1 + (1e-12 if shares <= 10_001 else 1e-2))
    assert _divergence(share, 1) == 0


def test_shares_narrower_than_half_a_step_give_no_guarantee() -> None:
    """The bound is proven from σ = ½ on; its formula is finite below, too."""
    assert _divergence(0.499, 2) == math.inf
    assert math.isfinite(_divergence(0.5, 2))
    assert gaussian_delta(Fraction(7, 10), 1, Fraction(4), 2) == 1.0  # shares of σ = 0.495


def test_sums_beyond_a_devices_limits_give_no_guarantee() -> None:
    """A coordinator could else state millions of levels under hardly any noise."""
    assert skellam_delta(Fraction(9), MOST_TERMS, Fraction(1)) == 1.0
    assert gaussian_delta(Fraction(3), MOST_TERMS, Fraction(1)) == 1.0
    assert binomial_delta(36, Fraction(1, 2), MOST_TERMS, Fraction(1)) == 1.0
    narrow, little = Fraction(99, 100), Fraction(1, 100)
    assert vector_delta(narrow, little, 1, little) == 1.0, "the bound is proven from σ = 1 on"
    assert vector_delta(Fraction(1), little, 1, little) < 1


def test_vectors_are_charged_the_distance_of_every_coordinate_from_a_gaussian() -> None:
    numbers = np.arange(-60, 61)
    drawn = np.exp(-(numbers**2) / 8)
    rounded = stats.norm.cdf((numbers + 0.5) / 2) - stats.norm.cdf((numbers - 0.5) / 2)
    apart = np.abs(drawn / drawn.sum() - rounded).sum() / 2
    one, two = (vector_delta(Fraction(2), Fraction(1), many, Fraction(1)) for many in (1, 2))
    assert two - one >= (1 + math.e) * apart


def test_shares_of_vectors_are_charged_their_distance_from_one_draw_in_every_coordinate() -> None:
    sigma, square, coordinates, shares = Fraction(40), Fraction(2500), 3, 1600  # shares of σ = 1
    psi = Fraction(coordinates * sum_divergence(1.0, shares))
    assert Fraction(1, 10**4) < psi < Fraction(1, 100)
    alone = vector_delta(sigma, square, coordinates, 2 - 2 * psi)
    found = vector_delta(sigma, square, coordinates, Fraction(2), shares)
    assert found == pytest.approx(math.exp(psi) * alone, rel=1e-12)
    assert found > vector_delta(sigma, square, coordinates, Fraction(2)) * (1 + psi)


@pytest.mark.parametrize("tail", [0.1, 1.0, 2.5, 4.0, 8.0])
@pytest.mark.parametrize("epsilon", [1e-12, 1e-9, 1e-6, 1e-2])
def test_delta_of_gaussian_noise_is_rounded_up_at_very_small_epsilon(
    epsilon: float, tail: float
) -> None:
    """Two tails that agree in most digits are subtracted: 40 digits say by how much."""
    moved = epsilon / tail
    found = vector_delta(Fraction(10**9 / moved), Fraction(10**18), 1, Fraction(epsilon))
    with mp.workdps(60):
        one, other = tail - mp.mpf(moved) / 2, tail + mp.mpf(moved) / 2
        upper = [mp.erfc(end / mp.sqrt(2)) / 2 for end in (one, other)]
        true = upper[0] - mp.exp(epsilon) * upper[1]
        assert true * (1 - mp.mpf(10) ** -15 * (1 + tail**2)) <= found
        assert found <= true + mp.mpf(10) ** -14 * (1 + tail**2) * upper[0] + mp.mpf(10) ** -22


@pytest.mark.parametrize(("scale", "shift"), [(1, 1), (3, 2), (50, 20)])
def test_two_laplace_draws_have_the_delta_of_their_sum(scale: int, shift: int) -> None:
    own = privacy_loss(DiscreteLaplace(scale).power(2), shift)
    for epsilon in (Fraction(1, 10), Fraction(1, 3)):
        found = pair_delta(Fraction(scale), shift, epsilon)
        assert found == pytest.approx(own.delta(float(epsilon)), rel=1e-9)


@pytest.mark.parametrize("rate", [0.3, 7.0, 500.0, 20_000.0])
def test_the_minimal_epsilon_suffices_and_nothing_less_of_three_digits(rate: float) -> None:
    delta = Fraction(1, 10**6)
    found = least_epsilon(lambda at: math.exp(-rate * float(at)), delta)
    digit = 10.0 ** (math.floor(math.log10(found)) - 2)
    exact = math.log(1e6) / rate
    assert exact <= found < exact + digit * 1.01
    assert least_epsilon(lambda at: math.exp(-float(at) / 5), delta) == math.inf, "above 64"
    assert least_epsilon(lambda _: 1e-7, delta) == 0
    near = math.log(1e6) / 0.1  # the search ends between 0.09999… and 0.10000…
    assert least_epsilon(lambda at: math.exp(-near * float(at)), delta) == 0.101


def under(distribution: str, parameter: Fraction, **changes: Any) -> Terms:
    """Terms of secure aggregation with this noise on one bit."""
    noise = Noise(parameter, "devices", distribution)
    return masked(noise=noise, claim="semi-honest", **ONE | changes)


@pytest.mark.parametrize(
    ("distribution", "parameter"), [("skellam", VARIANCE), ("discrete-gaussian", SIGMA)]
)
def test_terms_need_the_noise_of_their_delta(distribution: str, parameter: Fraction) -> None:
    made = under(distribution, parameter)
    assert Terms.decode(made.encode()) == made
    assert (made.cost, made.delta_cost) == (Fraction(1), DELTA)
    for changes in (
        {"guarantee": StatedGuarantee(Fraction(1), DELTA / 2)},
        {"guarantee": StatedGuarantee(Fraction(9, 10), DELTA)},
        {"guarantee": StatedGuarantee(Fraction(1), DELTA, participations=2)},
        {"answer": Answer("2 levels", levels=2)},
        {"answer": Answer("2 numbers", ("one", "other"))},
    ):
        with pytest.raises(TacitError, match=r"noise\.minimum is .* has a delta of"):
            under(distribution, parameter, **changes)
    with pytest.raises(TacitError, match=r"noise\.minimum is"):
        under(distribution, parameter / 2)
    with pytest.raises(TacitError, match="delta is 0: must be above 0"):
        under(distribution, parameter, guarantee=StatedGuarantee(Fraction(1)))


def test_many_rare_bits_are_summed_as_precisely_as_few() -> None:
    """Found: factorials of 10^11 bits, whose logarithms are good to 2·10^-4, were subtracted; so
    many rare bits are nearly a Poisson number of ones.
    """
    bits, mean, shift, epsilon = 10**11, 400, 20, 1.0
    ones = stats.poisson.pmf(np.arange(1200), mean)
    moved = np.concatenate([np.zeros(shift), ones[:-shift]])
    near = max(
        np.maximum(p - math.e**epsilon * q, 0).sum() for p, q in ((ones, moved), (moved, ones))
    )
    assert binomial_delta(bits, Fraction(mean, bits), shift, Fraction(1)) == pytest.approx(
        near, rel=1e-6
    )


def test_noise_with_a_delta_needs_distinct_rounds_of_participations() -> None:
    """Found: two reports in one round move its sum twice under one draw of the noise, of which
    equal parts of δ do not account; terms did not say so.
    """
    twice = StatedGuarantee(Fraction(1), DELTA, participations=2)
    for made in (
        under("skellam", 8 * VARIANCE, guarantee=twice),
        under("discrete-gaussian", 4 * SIGMA, guarantee=twice),
        shuffled("binomial", Fraction(5), guarantee=twice),
    ):
        assert DistinctRounds() in made.assumptions
        assert Terms.decode(made.encode()) == made
        once = replace(made, guarantee=StatedGuarantee(Fraction(1), DELTA))
        assert DistinctRounds() not in once.assumptions
    pure = under("discrete-laplace", Fraction(2), guarantee=twice)
    assert DistinctRounds() not in pure.assumptions
    # at the least noise, both reports in one round need a larger δ than that of the terms
    each, least = under("skellam", 8 * VARIANCE, guarantee=twice).per_metric_target, 8 * VARIANCE
    while skellam_delta(least, 1, each[0]) <= each[1]:
        least *= Fraction(99, 100)
    assert skellam_delta(least / Fraction(99, 100), 2, Fraction(1)) > DELTA


def test_masked_noise_leaves_delta_for_the_masking() -> None:
    made = under("skellam", VARIANCE)
    assert made.aggregation_delta == Fraction(1, 2**40)
    assert made.per_metric_target == (Fraction(1), DELTA - Fraction(1, 2**40))
    tight = Fraction(skellam_delta(VARIANCE, 1, Fraction(1)))
    assert tight < DELTA
    under("skellam", VARIANCE, guarantee=StatedGuarantee(Fraction(1), tight + Fraction(1, 2**40)))
    short = StatedGuarantee(Fraction(1), tight + Fraction(1, 2**41))
    with pytest.raises(TacitError, match=r"noise\.minimum is .* has a delta of"):
        under("skellam", VARIANCE, guarantee=short)
    both = replace(made, guarantee=StatedGuarantee(Fraction(30), DELTA, participations=3))
    assert both.per_metric_target == (Fraction(10), (DELTA - Fraction(3, 2**40)) / 3)


def test_metrics_and_participations_share_epsilon_and_delta() -> None:
    two = Answer("1 if yes", ("sold", "returned"), levels=1)
    often = StatedGuarantee(Fraction(12), DELTA, participations=3)
    made = under("skellam", VARIANCE, answer=two, guarantee=often)
    assert (made.cost, made.delta_cost) == (Fraction(4), DELTA / 3)
    assert made.per_metric_target == (Fraction(2), (DELTA - Fraction(3, 2**40)) / 6)


def round_of(of: Terms, **changes: Any) -> Offer:
    base = replace(
        shared(), terms=of.digest, levels=1, metrics=1, window=0, total=of.noise.least, modulus=None
    )
    return replace(base, **changes)


@pytest.mark.parametrize(
    ("distribution", "parameter"),
    [("skellam", VARIANCE), ("discrete-gaussian", 12 * SIGMA), ("discrete-laplace", Fraction(1))],
)
def test_rounds_need_the_noise_shares_of_their_terms(
    distribution: str, parameter: Fraction
) -> None:
    shown = pinned(under(distribution, parameter))
    assert shown.check(round_of(shown.terms)) == 1
    shown.check(round_of(shown.terms, total=2 * parameter))
    for weaker in ({"total": parameter / 2}, {"divisor": 71}, {"minimum": 79}, {"divisor": 0}):
        with pytest.raises(Rejected, match="of the round is"):
            shown.check(round_of(shown.terms, **weaker))


@pytest.mark.parametrize(
    ("distribution", "parameter", "most"),
    [("skellam", VARIANCE, 2**31), ("discrete-laplace", Fraction(1), 2**20)],
)
def test_rounds_have_at_most_the_noise_that_a_device_can_draw(
    distribution: str, parameter: Fraction, most: int
) -> None:
    shown = pinned(under(distribution, parameter))
    assert shown.check(round_of(shown.terms, total=Fraction(most))) == 1
    with pytest.raises(Rejected, match=f"total noise of the round is .*: must be at most {most}"):
        shown.check(round_of(shown.terms, total=most + Fraction(1, 100)))


def test_rounds_of_narrow_gaussian_shares_are_rejected() -> None:
    """Shares of σ = 0.51 are not close enough to parts of one draw."""
    shown = pinned(under("discrete-gaussian", SIGMA))
    with pytest.raises(Rejected, match="delta of the noise of the round is"):
        shown.check(round_of(shown.terms))


def shuffled(distribution: str, parameter: Fraction, **changes: Any) -> Terms:
    parties = tuple(
        Party(role, f"https://{role}.example", public_key(key))
        for role, key in zip(("analyzer", "shuffler"), KEYS[:2], strict=True)
    )
    about: dict[str, Any] = {
        "trust": TrustModel.SHUFFLER,
        "noise": Noise(parameter, "devices", distribution),
        "parties": parties,
        "suite": "",
        "aggregation": replace(masked().aggregation, claim="semi-honest"),
        **ONE,
    }
    return terms(**about | changes)


def test_noise_bits_are_verified_per_round() -> None:
    shown = pinned(shuffled("binomial", Fraction(5)))
    bits, honest = 2, 70
    least = next(
        Fraction(bias, 100)
        for bias in range(1, 51)
        if binomial_delta(bits * honest, Fraction(bias, 100), 1, Fraction(1)) <= 1e-6
    )
    about = {
        "kind": "mixing",
        "suite": shown.terms.suite,
        "divisor": honest,
        "total": least,
        "parts": 1 + bits,
    }
    assert shown.check(round_of(shown.terms, **about)) == 1
    for weaker in (
        {"total": least - Fraction(1, 100)},
        {"parts": bits},
        {"parts": 1},
        {"parts": None},
        {"total": Fraction(0)},
        {"total": Fraction(1)},
        {"divisor": honest + 1},
        {"divisor": honest // 2},
        {"modulus": 1009},  # found: devices then split numbers with Laplace noise of this bias
    ):
        with pytest.raises(Rejected, match="of the round is"):
            shown.check(round_of(shown.terms, **about | weaker))


def test_noise_bits_suffice_at_the_minimum_of_honest_reports() -> None:
    """62 fair bits are the fewest for (1, 1e-5); a larger minimum of the terms needs more."""
    once = StatedGuarantee(Fraction(1), Fraction(1, 10**5))
    plain = pinned(shuffled("binomial", Fraction(5), guarantee=once))
    strict = pinned(shuffled("binomial", Fraction(65, 4), guarantee=once))
    about: dict[str, Any] = {"kind": "mixing", "total": Fraction(1, 2), "parts": 2}
    about["suite"] = plain.terms.suite
    for shown, divisor, words in (
        (plain, 62, ""),
        (plain, 61, "delta of the noise"),
        (strict, 65, ""),
        (strict, 64, "variance of the noise bits"),
    ):
        offered = round_of(shown.terms, **about, divisor=divisor)
        if not words:
            assert shown.check(offered) == 1
            continue
        with pytest.raises(Rejected, match=words):
            shown.check(offered)
    for weaker, words in (
        ({"parts": 1}, "number of messages per metric"),
        ({"total": Fraction(0)}, "bias of noise bits"),
        ({"total": Fraction(1)}, "bias of noise bits"),
    ):
        with pytest.raises(Rejected, match=words):
            plain.check(round_of(plain.terms, **about | weaker, divisor=70))


def test_rounds_need_noise_for_all_levels_of_an_answer() -> None:
    """Noise for one level of two, and shares that are close to one draw for one level only."""
    two = {"answer": Answer("2 levels", levels=2)}
    half, one = Fraction(1, 2), Fraction(1)
    shown = pinned(shuffled("binomial", Fraction(5), **two))
    fair = {"kind": "mixing", "suite": shown.terms.suite, "levels": 2, "total": half, "divisor": 70}
    bits = next(n for n in range(1, 99) if binomial_delta(70 * n, half, 2, one) <= 1e-6)
    assert binomial_delta(70 * (bits - 1), half, 1, one) <= 1e-6
    assert shown.check(round_of(shown.terms, **fair, parts=2 + bits)) == 1
    with pytest.raises(Rejected, match="delta of the noise of the round is"):
        shown.check(round_of(shown.terms, **fair, parts=1 + bits))
    sigmas = (Fraction(n, 1000) for n in range(8000, 9000))
    least = next(sigma for sigma in sigmas if gaussian_delta(sigma, 2, one) < 0.9999e-6)
    assert gaussian_delta(least, 1, one, 70) < 1e-6
    wide = pinned(under("discrete-gaussian", least, **two))
    with pytest.raises(Rejected, match="delta of the noise of the round is"):
        wide.check(round_of(wide.terms, levels=2))
    assert wide.check(round_of(wide.terms, levels=2, total=3 * SIGMA)) == 1


def test_certified_shares_have_the_minimum_noise_of_their_terms() -> None:
    """Terms may state more noise than the certificate for the round's users has."""
    proven = lookup(64, Fraction(1)).certificate.parameters
    total = 1 / proven.noise_epsilon
    about = {"kind": "mixing", "divisor": 64, "total": total, "parts": proven.bits}
    changes: dict[str, Any] = {"guarantee": StatedGuarantee(Fraction(1)), "admission": "invitation"}
    changes["issuer"] = public_key(KEYS[2])
    shown = pinned(shuffled("certified-polya", total, **changes))
    assert shown.check(round_of(shown.terms, suite=shown.terms.suite, **about)) == 1
    more = total + Fraction(1, 1000)
    strict = pinned(shuffled("certified-polya", more, **changes))
    with pytest.raises(Rejected, match=f"total noise of the round is .*: must be at least {more}"):
        strict.check(round_of(strict.terms, suite=strict.terms.suite, **about))


def test_numbers_are_split_into_sufficiently_many_shares() -> None:
    shown = pinned(shuffled("discrete-laplace", Fraction(1)))
    modulus, honest = 1009, 70
    enough = split_shares(honest, modulus)
    about = {
        "kind": "mixing",
        "suite": shown.terms.suite,
        "divisor": honest,
        "parts": enough,
        "modulus": modulus,
    }
    assert shown.check(round_of(shown.terms, **about)) == 1
    fewest = {"divisor": 19, "parts": split_shares(19, modulus)}
    assert shown.check(round_of(shown.terms, **about | fewest)) == 1
    for weaker in ({"parts": enough - 1}, {"parts": 1}, {"divisor": 18}, {"modulus": 1 << 90}):
        with pytest.raises(Rejected, match="of the round is"):
            shown.check(round_of(shown.terms, **about | weaker))
    for missing in ({"parts": None}, {"modulus": None}):
        with pytest.raises(Rejected, match="is missing"):
            shown.check(round_of(shown.terms, **about | missing))


def local(distribution: str, parameter: Fraction, **changes: Any) -> Terms:
    about: dict[str, Any] = {
        "trust": TrustModel.LOCAL,
        "noise": Noise(parameter, "devices", distribution),
        "parties": terms().parties[:1],
        "answer": Answer("1 if yes"),
        "guarantee": StatedGuarantee(Fraction(1, 2), participations=3),
    }
    return terms(**about | changes)


@pytest.mark.parametrize("distribution", ["discrete-laplace", "randomized-response"])
def test_local_noise_is_complete_on_every_device(distribution: str) -> None:
    shown = pinned(local(distribution, Fraction(6)))
    about = {
        "kind": "local",
        "levels": 1,
        "metrics": 1,
        "window": 0,
        "modulus": None,
        "scale": None,
        "divisor": 1,
        "total": Fraction(6),
        "terms": shown.terms.digest,
    }
    assert shown.check(offer(**about)) == Fraction(1, 6)
    for weaker in ({"divisor": 2}, {"total": Fraction(599, 100)}, {"total": None}):
        with pytest.raises(Rejected):
            shown.check(offer(**about | weaker))
    with pytest.raises(TacitError, match=r"noise\.minimum is 3"):
        local(distribution, Fraction(3))
    with pytest.raises(TacitError, match="delta is 1/1000000: must be 0"):
        local(distribution, Fraction(6), guarantee=StatedGuarantee(Fraction(1, 2), DELTA, 3))


def test_randomized_response_is_for_binary_answers_only() -> None:
    with pytest.raises(TacitError, match="levels is 2: must be 1"):
        local("randomized-response", Fraction(12), answer=Answer("2 levels", levels=2))


def test_messages_of_all_metrics_count_towards_those_of_a_report() -> None:
    answer = Answer("1 if yes", metrics=("a", "b"), levels=1)
    shown = pinned(shuffled("discrete-laplace", Fraction(2), answer=answer))
    about: dict[str, Any] = {"kind": "mixing", "suite": shown.terms.suite, "metrics": 2}
    about |= {"divisor": 70, "modulus": 1009}
    most = MOST_MESSAGES // 2
    shown.check(round_of(shown.terms, parts=most, **about))
    rule = f"number of messages of a report of the round is {MOST_MESSAGES + 2}: must be at most"
    with pytest.raises(Rejected, match=rule):
        shown.check(round_of(shown.terms, parts=most + 1, **about))
