"""Audits by attack: never above a true claim, above it with halved noise.

At a confidence of 99.9% a sound mechanism is refuted with probability at most 1e-3 (Clopper-Pearson
bounds at 5e-4 each, on samples that did not choose the event). Nine sound mechanisms with fixed
seeds: a false alarm anywhere had a chance of at most 0.9% when the seeds were chosen, and none
since.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta

from tacit.errors import TacitError
from tacit.noise import Binomial, DiscreteGaussian, DiscreteLaplace, NoiseDistribution, Skellam
from tacit.privacy import ApproximateDP, PureDP, RandomizedResponse, audit, calibrate
from tacit.privacy.audit import samples_to_refute

SAMPLES = 200_000
Mechanism = Callable[[Any, int], Any]


def additive(distribution: NoiseDistribution, seed: int) -> Mechanism:
    rng = np.random.default_rng(seed)
    return lambda x, count: x + distribution.sample(rng, count)


def summed_shares(distribution: DiscreteLaplace, users: int, seed: int) -> Mechanism:
    rng = np.random.default_rng(seed)
    share = distribution.share(users)
    return lambda x, count: x + sum(share.sample(rng, count) for _ in range(users))


def halved(distribution: NoiseDistribution) -> NoiseDistribution:
    match distribution:
        case DiscreteLaplace():
            return DiscreteLaplace(float(distribution.scale) / 2)
        case Skellam():
            return Skellam(float(distribution.variance) / 4)
        case DiscreteGaussian():
            return DiscreteGaussian(float(distribution.sigma) / 2)
        case Binomial():
            return Binomial(round(distribution.n / 4))
    raise AssertionError(distribution)


@pytest.mark.parametrize("sensitivity", [1, 10])
def test_discrete_laplace_passes_its_audit(sensitivity: int) -> None:
    distribution = DiscreteLaplace(sensitivity)
    assert 0.9 < audit(additive(distribution, 1), 0, sensitivity, SAMPLES).epsilon <= 1.0
    caught = audit(additive(halved(distribution), 2), 0, sensitivity, SAMPLES)
    assert caught.refutes(1.0)
    assert 1.8 < caught.epsilon <= 2.0


@pytest.mark.parametrize("users", [2, 5])
def test_sums_of_pólya_shares_pass_their_audit(users: int) -> None:
    distribution = DiscreteLaplace(4)
    assert 0.85 < audit(summed_shares(distribution, users, 3), 0, 4, SAMPLES).epsilon <= 1.0
    assert audit(summed_shares(DiscreteLaplace(2), users, 4), 0, 4, SAMPLES).refutes(1.0)


@pytest.mark.parametrize("kind", ["skellam", "discrete-gaussian", "binomial"])
def test_calibrated_noise_with_a_delta_passes_and_halved_noise_fails(kind: Any) -> None:
    target = ApproximateDP(1.0, 1e-3)
    distribution = calibrate(kind, 4, target).distribution
    assert isinstance(distribution, NoiseDistribution)
    sound = audit(additive(distribution, 5), 0, 4, SAMPLES, delta=target.delta)
    assert 0.3 < sound.epsilon <= 1.0
    assert not sound.refutes(1.0)
    assert audit(additive(halved(distribution), 6), 0, 4, SAMPLES, delta=target.delta).refutes(1.0)


def test_shuffled_randomized_response_passes_its_audit() -> None:
    epsilon0, users = 2.0, 5
    rng = np.random.default_rng(7)

    def mechanism(keep: float) -> Mechanism:
        return lambda x, count: (
            (rng.random(count) < (keep if x else 1 - keep))
            + rng.binomial(users - 1, 1 - keep, count)
        )

    claimed = RandomizedResponse(epsilon0, users).epsilon(1e-6, ones=0)
    keep = 1 / (1 + math.exp(-epsilon0))
    assert 0.8 * claimed < audit(mechanism(keep), 0, 1, SAMPLES, delta=1e-6).epsilon <= claimed
    careless = 1 / (1 + math.exp(-2 * epsilon0))  # flips half as reluctantly: twice the epsilon
    assert audit(mechanism(careless), 0, 1, SAMPLES, delta=1e-6).refutes(claimed)


def test_a_mechanism_without_noise_is_refuted_at_any_epsilon() -> None:
    found = audit(lambda x, count: np.full(count, float(x)), 0, 1, 10_000)
    assert found.epsilon > 6


def test_an_asymmetric_leak_is_detected_in_its_direction() -> None:
    rng = np.random.default_rng(8)

    def leaky(x: int, count: int) -> np.ndarray:
        # an outcome that only one input can produce
        return np.where(rng.random(count) < 0.01 * x, -5, rng.integers(0, 3, count))

    for pair in ((0, 1), (1, 0)):
        assert audit(leaky, *pair, 100_000).refutes(3.0)


def test_events_within_delta_refute_nothing() -> None:
    points = np.arange(-60, 61)
    p, q = (DiscreteLaplace(0.5).pmf(points - shift) for shift in (0, 1))
    few, more = (samples_to_refute(p, q, 1.0, delta=delta) for delta in (0.0, 0.3))
    assert few is not None
    assert more is not None
    assert more > 1.5 * few
    assert samples_to_refute(p, q, 1.0, delta=0.7) is None


@pytest.mark.parametrize("delta", [0.0, 0.1])
def test_the_bound_is_clopper_pearson_on_held_out_samples(delta: float) -> None:
    rng = np.random.default_rng(9)
    outputs = {0: rng.integers(0, 2, 1000), 1: rng.integers(0, 2, 1000) | rng.integers(0, 2, 1000)}
    found = audit(lambda x, count: outputs[x][:count], 0, 1, 1000, confidence=0.95, delta=delta)
    first, second = (
        (outputs[1][500:], outputs[0][500:])
        if found.swapped
        else (outputs[0][500:], outputs[1][500:])
    )
    hits, misses = (
        int((side >= found.threshold if found.above else side <= found.threshold).sum())
        for side in (first, second)
    )
    low, high = beta.ppf(0.025, hits, 500 - hits + 1), beta.ppf(0.975, misses + 1, 500 - misses)
    assert found.epsilon == pytest.approx(max(0.0, math.log((low - delta) / high)))
    assert found.epsilon > 0


@pytest.mark.slow
def test_the_false_positive_rate_is_below_the_stated_one() -> None:
    """400 audits at 95% of a sound mechanism: at most 5% expected; more than 35 has probability
    below 1e-3.
    """
    rng = np.random.default_rng(10)
    distribution = DiscreteLaplace(1)
    alarms = sum(
        audit(lambda x, n: x + distribution.sample(rng, n), 0, 1, 5000, confidence=0.95).refutes(
            1.0
        )
        for _ in range(400)
    )
    assert alarms <= 35


def test_invalid_audits_are_rejected() -> None:
    noisy = additive(DiscreteLaplace(1), 11)
    for samples in (0, 99, 1e12):
        with pytest.raises(TacitError, match="samples is"):
            audit(noisy, 0, 1, samples)  # type: ignore[arg-type]
    with pytest.raises(TacitError, match="confidence is"):
        audit(noisy, 0, 1, 1000, confidence=1.0)
    with pytest.raises(TacitError, match="delta is"):
        audit(noisy, 0, 1, 1000, delta=1.0)
    with pytest.raises(TacitError, match="shape"):
        audit(lambda x, count: np.zeros((count, 2)) + x, 0, 1, 1000)
    with pytest.raises(TacitError, match="NaN"):
        audit(lambda x, count: np.full(count, math.nan) + x, 0, 1, 1000)


def test_the_audited_claim_is_that_of_the_calibration() -> None:
    distribution = calibrate("discrete-laplace", 3, PureDP(0.5)).distribution
    assert isinstance(distribution, DiscreteLaplace)
    assert audit(additive(distribution, 12), 0, 3, SAMPLES).epsilon <= 0.5
