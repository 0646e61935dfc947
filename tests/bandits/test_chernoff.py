"""The bound of `tacit.bandits.arms.chernoff`: equal to brute force, safe, and failing no more often
than it says.
"""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar
from scipy.stats import binom
from tests.bandits.harness import Distribution, Environment, estimate, exact, fair_bits, laplace

from tacit.bandits import ArmEvidence, PrivateKLUCB
from tacit.bandits.arms.divergence import kl, kl_upper
from tacit.noise import DiscreteGaussian, NoiseDistribution, Skellam
from tacit.types import Arm, ErrorDistribution, Estimate, Round

SKELLAM: NoiseDistribution = Skellam(800)
DISTRIBUTIONS: dict[str, Distribution] = {
    "exact": exact,
    "laplace": laplace(0.4),
    "bits": fair_bits(62),
    "skellam": lambda users: ErrorDistribution(users, 10, SKELLAM),
    "gaussian": lambda users: ErrorDistribution(users, 5, DiscreteGaussian(15)),
}


def collect(estimates: list[Estimate], forget: float = 0.0) -> ArmEvidence:
    evidence = ArmEvidence(forget)
    for one in estimates:
        evidence.add(one)
    return evidence


def refuted_at(q: float, estimates: list[Estimate]) -> float:
    """sup over θ of the exponent, by a general optimiser on the distributions' own moment
    generating functions.
    """
    weights = [1 / (0.25 + e.error.variance / e.error.participants) for e in estimates]

    def negative(log_theta: float) -> float:
        theta, value = math.exp(log_theta), 0.0
        for e, h in zip(estimates, weights, strict=True):
            value += theta * h * e.total + e.error.participants * math.log1p(
                q * math.expm1(-theta * h)
            )
            value += float(e.error.log_mgf(-theta * h))
        return value if math.isfinite(value) else 1e9

    grid = np.linspace(-12, 4, 60)
    best = grid[np.argmin([negative(x) for x in grid])]
    return -float(
        minimize_scalar(
            negative, bounds=(best - 0.4, best + 0.4), method="bounded", options={"xatol": 1e-9}
        ).fun
    )


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("mean", [0.03, 0.5, 0.9])
def test_the_bound_matches_brute_force(distribution: str, mean: float) -> None:
    rng, environment = np.random.default_rng(11), Environment(np.array([mean, mean]))
    estimates = [
        estimate(Round(i, n, Arm(0)), environment, DISTRIBUTIONS[distribution], rng)
        for i, n in enumerate([60, 60, 130, 700])
    ]
    evidence, level = collect(estimates), math.log(500)
    centre = min(max(evidence.mean, 1e-6), 1 - 1e-6)
    root = brentq(lambda q: refuted_at(q, estimates) - level, centre + 1e-7, 1 - 1e-9, xtol=1e-12)
    bound = evidence.upper(level)
    assert bound.value == pytest.approx(root, abs=2e-4 * (root - centre))
    assert bound.value >= root - 1e-7  # never on the unsafe side


@given(p=st.floats(0, 1), samples=st.integers(1, 10**9), level=st.floats(0.1, 40))
@settings(deadline=None, derandomize=True)
def test_without_noise_the_bound_is_the_kl_bound(p: float, samples: int, level: float) -> None:
    total = float(round(p * samples))
    evidence = collect([Estimate(total, ErrorDistribution(samples, 1, None))])
    value, _ = kl_upper(total / samples, level, samples)
    found, close = evidence.upper(level).value, 1e-3 * (value - total / samples) + 1e-9
    assert found >= value - close
    if value < 0.95:  # near 1 the search may stop at 1, on the safe side
        assert found == pytest.approx(value, abs=close)


@given(p=st.floats(0, 0.999), samples=st.floats(1, 1e9), level=st.floats(0.01, 40))
@settings(deadline=None, derandomize=True)
def test_kl_bound_solves_its_equation_from_above(p: float, samples: float, level: float) -> None:
    q, _ = kl_upper(p, level, samples)
    assert p <= q <= 1
    if q < 1 - 1e-9:
        assert samples * kl(p, q) == pytest.approx(level, rel=1e-5, abs=1e-5)


@given(
    sizes=st.lists(st.integers(1, 5000), min_size=1, max_size=6),
    shares=st.lists(st.floats(-0.5, 1.5), min_size=6, max_size=6),
    level=st.floats(0.5, 30),
    distribution=st.sampled_from(sorted(DISTRIBUTIONS)),
)
@settings(deadline=None, derandomize=True, max_examples=200)
def test_bounds_enclose_rise_with_the_level_and_stay_below_their_tangents(
    sizes: list[int], shares: list[float], level: float, distribution: str
) -> None:
    evidence = collect(
        [
            Estimate(n * x, DISTRIBUTIONS[distribution](n))
            for n, x in zip(sizes, shares, strict=False)
        ]
    )
    low, high, higher = evidence.lower(level), evidence.upper(level), evidence.upper(level + 1)
    assert 0 <= low.value <= high.value + 1e-9 or not 0 <= evidence.mean <= 1
    assert 0 <= high.value <= higher.value + 1e-4
    assert higher.value <= 1
    assert higher.value <= high.at(level + 1) + 1e-3 * (1 - high.value) + 1e-6


def test_the_lower_bound_mirrors_the_upper_one() -> None:
    one = collect(
        [
            Estimate(30.0, DISTRIBUTIONS["laplace"](100)),
            Estimate(100.0, DISTRIBUTIONS["laplace"](300)),
        ]
    )
    mirrored = collect(
        [
            Estimate(70.0, DISTRIBUTIONS["laplace"](100)),
            Estimate(200.0, DISTRIBUTIONS["laplace"](300)),
        ]
    )
    assert one.lower(5.0).value == pytest.approx(1 - mirrored.upper(5.0).value, abs=1e-12)


def test_forgetting_drops_only_old_small_batches() -> None:
    estimates = [Estimate(n / 2, DISTRIBUTIONS["laplace"](n)) for n in (10, 20, 1_000, 2_000)]
    kept = collect(estimates, forget=0.01)
    assert kept.users == 3_030
    assert len(kept.to_dict()["groups"]) == 2
    assert kept.upper(5.0).value == pytest.approx(collect(estimates).upper(5.0).value, abs=5e-3)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_evidence_round_trips_exactly(distribution: str) -> None:
    evidence = collect([Estimate(n / 3, DISTRIBUTIONS[distribution](n)) for n in (50, 50, 700)])
    copy = ArmEvidence()
    copy.restore(json.loads(json.dumps(evidence.to_dict())))
    assert copy.to_dict() == evidence.to_dict()
    assert copy.upper(7.0) == evidence.upper(7.0)
    assert copy.spread == evidence.spread


HISTORIES = 5_000


@pytest.mark.parametrize(
    "rewards",
    [
        "bernoulli",
        pytest.param("beta", marks=pytest.mark.slow),
        pytest.param("gaussian", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    ("distribution", "mean"), [("laplace", 0.5), ("bits", 0.95), ("skellam", 0.1)]
)
def test_the_index_fails_at_most_at_its_stated_rate(
    rewards: str, distribution: str, mean: float
) -> None:
    """5,000 histories of three batches: the mean is above the bound at level ln 20 in 1 of 20
    (false alarm 10^-6).
    """
    rng, level = np.random.default_rng([13, len(rewards)]), math.log(20)
    sizes, environment = (20, 40, 90), Environment(np.array([mean, mean]), rewards)
    mean = environment.mean(0)
    rounds = [Round(i, n, Arm(0)) for i, n in enumerate(sizes)]
    failures = 0
    for _ in range(HISTORIES):
        evidence = collect(
            [estimate(round_, environment, DISTRIBUTIONS[distribution], rng) for round_ in rounds]
        )
        failures += evidence.upper(level).value < mean
    assert failures <= binom.isf(1e-6, HISTORIES, math.exp(-level))


def test_the_index_is_not_needlessly_wide() -> None:
    """For Bernoulli rewards it fails as often as Chernoff bounds do: a few times less than stated,
    not more.
    """
    rng, environment, level = (
        np.random.default_rng(17),
        Environment(np.array([0.5, 0.5])),
        math.log(20),
    )
    failures = sum(
        collect([estimate(Round(0, 400, Arm(0)), environment, DISTRIBUTIONS["laplace"], rng)])
        .upper(level)
        .value
        < 0.5
        for _ in range(4_000)
    )
    assert failures > 4_000 * math.exp(-level) / 12


@pytest.mark.parametrize("index", ["chernoff", "variance"])
def test_batch_sizes_are_independent_of_rewards(index: str) -> None:
    """The proof needs it: an arm's n-th batch has the same size in every run."""
    sizes: dict[int, set[int]] = {}
    for seed in range(6):
        rng = np.random.default_rng(seed)
        learner, environment = (
            PrivateKLUCB(4, 50_000, 12.5, index),
            Environment(rng.uniform(0.2, 0.8, 4)),
        )
        counts = [0] * 4
        while rounds := learner.propose():
            for round_ in rounds:
                if not round_.released:
                    learner.skip(round_)
                    continue
                sizes.setdefault(counts[round_.arm], set()).add(round_.participants)
                counts[round_.arm] += 1
                learner.observe(
                    round_, estimate(round_, environment, DISTRIBUTIONS["laplace"], rng)
                )
    assert len(sizes) > 5
    assert all(len(found) == 1 for found in sizes.values())
