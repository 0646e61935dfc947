"""Noise of every distribution in terms and rounds, against independent accounting."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from tests.terms.examples import KEYS, masked, offer, pinned, shared, terms

from tacit.errors import Refusal, TacitError
from tacit.noise import Binomial, DiscreteGaussian, NoiseDistribution, Skellam, sum_divergence
from tacit.privacy.loss import privacy_loss
from tacit.signatures import public_key
from tacit.terms import Answer, Noise, Offer, Party, Promise, Terms
from tacit.terms.accounting import binomial_delta, gaussian_delta, skellam_delta
from tacit.trust import TrustModel, split_shares

DELTA = Fraction(1, 10**6)
ONE = {
    "answer": Answer("1 if yes", levels=1),
    "promise": Promise(Fraction(1), DELTA),
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
        (lambda e: binomial_delta(3, Fraction(1, 2), 2, e), Binomial(3, Fraction(1, 2)), 2),
        (lambda e: binomial_delta(9000, Fraction(1, 9), 20, e), Binomial(9000, Fraction(1, 9)), 20),
    ],
)
def test_a_device_finds_the_delta_that_servers_find(
    found: Any, distribution: NoiseDistribution, shift: int, epsilon: Fraction
) -> None:
    exact = privacy_loss(distribution, shift).delta(float(epsilon))
    assert found(epsilon) == pytest.approx(exact, rel=1e-7, abs=1e-25)


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
        {"promise": Promise(Fraction(1), DELTA / 2)},
        {"promise": Promise(Fraction(9, 10), DELTA)},
        {"promise": Promise(Fraction(1), DELTA, participations=2)},
        {"answer": Answer("2 levels", levels=2)},
        {"answer": Answer("2 numbers", ("one", "other"))},
    ):
        with pytest.raises(TacitError, match=r"noise\.minimum is .* has a delta of"):
            under(distribution, parameter, **changes)
    with pytest.raises(TacitError, match=r"noise\.minimum is"):
        under(distribution, parameter / 2)
    with pytest.raises(TacitError, match="delta is 0: must be above 0"):
        under(distribution, parameter, promise=Promise(Fraction(1)))


def round_of(of: Terms, **changes: Any) -> Offer:
    base = replace(
        shared(), terms=of.digest, levels=1, metrics=1, window=0, total=of.noise.least, modulus=None
    )
    return replace(base, **changes)


@pytest.mark.parametrize(
    ("distribution", "parameter"),
    [("skellam", VARIANCE), ("discrete-gaussian", 12 * SIGMA), ("discrete-laplace", Fraction(1))],
)
def test_rounds_need_the_shares_of_their_terms(distribution: str, parameter: Fraction) -> None:
    shown = pinned(under(distribution, parameter))
    assert shown.check(round_of(shown.terms)) == 1
    shown.check(round_of(shown.terms, total=2 * parameter))
    for weaker in ({"total": parameter / 2}, {"divisor": 71}, {"minimum": 79}, {"divisor": 0}):
        with pytest.raises(Refusal, match="of the round is"):
            shown.check(round_of(shown.terms, **weaker))


def test_rounds_of_narrow_gaussian_shares_are_rejected() -> None:
    """Shares of σ = 0.51 are not close enough to parts of one draw."""
    shown = pinned(under("discrete-gaussian", SIGMA))
    with pytest.raises(Refusal, match="delta of the noise of the round is"):
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


def test_noise_bits_are_verified_round_by_round() -> None:
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
    ):
        with pytest.raises(Refusal, match="of the round is"):
            shown.check(round_of(shown.terms, **about | weaker))


def test_numbers_are_split_into_enough_shares() -> None:
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
    for weaker in ({"parts": enough - 1}, {"parts": 1}, {"divisor": 18}, {"modulus": 1 << 90}):
        with pytest.raises(Refusal, match="of the round is"):
            shown.check(round_of(shown.terms, **about | weaker))
    for missing in ({"parts": None}, {"modulus": None}):
        with pytest.raises(Refusal, match="is missing"):
            shown.check(round_of(shown.terms, **about | missing))


def local(distribution: str, parameter: Fraction, **changes: Any) -> Terms:
    about: dict[str, Any] = {
        "trust": TrustModel.LOCAL,
        "noise": Noise(parameter, "devices", distribution),
        "parties": terms().parties[:1],
        "answer": Answer("1 if yes"),
        "promise": Promise(Fraction(1, 2), participations=3),
    }
    return terms(**about | changes)


@pytest.mark.parametrize("distribution", ["discrete-laplace", "randomized-response"])
def test_local_noise_is_whole_on_every_device(distribution: str) -> None:
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
        with pytest.raises(Refusal):
            shown.check(offer(**about | weaker))
    with pytest.raises(TacitError, match=r"noise\.minimum is 3"):
        local(distribution, Fraction(3))
    with pytest.raises(TacitError, match="delta is 1/1000000: must be 0"):
        local(distribution, Fraction(6), promise=Promise(Fraction(1, 2), DELTA, 3))


def test_randomized_response_is_for_bits() -> None:
    with pytest.raises(TacitError, match="levels is 2: must be 1"):
        local("randomized-response", Fraction(12), answer=Answer("2 levels", levels=2))
