"""Arm summaries: probabilities against closed forms, intervals against the truth."""

from __future__ import annotations

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from tests.bandits.harness import Distribution, Environment, estimate, exact, fair_bits, laplace
from tests.tables import extended_after

from tacit.bandits import ForgettingElimination, NoiseTail
from tacit.bandits.arm_summaries import Known, best_of, summaries
from tacit.bandits.confidence_sequences import Tally
from tacit.noise import DiscreteLaplace
from tacit.types import Arm, ErrorDistribution, Estimate, Round

PHI = NormalDist().cdf
DISTRIBUTIONS: dict[str, Distribution] = {
    "exact": exact,
    "laplace": laplace(0.5),
    "bits": fair_bits(203),
}
spreads = st.floats(-9, 0).map(lambda power: 10.0**power)
options = st.tuples(st.just(10), st.floats(-1, 1), spreads)


@given(known=st.lists(options, min_size=1, max_size=12))
def test_probabilities_to_be_best_sum_to_one(known: list[Known]) -> None:
    chances = best_of(known)
    assert sum(chances) == pytest.approx(1, abs=1e-12)
    assert all(0 <= chance <= 1 for chance in chances)


@given(one=options, other=options)
def test_the_probability_for_two_options_has_its_closed_form(one: Known, other: Known) -> None:
    """P[X > Y] = Φ((a - b) / √(s² + t²)), over nine orders of magnitude of spreads."""
    assert one[1] is not None
    assert other[1] is not None
    expected = PHI((one[1] - other[1]) / math.hypot(one[2], other[2]))
    chances = best_of([one, other])
    assert chances[0] == pytest.approx(expected, abs=1e-4)
    assert chances[1] == pytest.approx(1 - expected, abs=1e-4)


@given(gap=st.floats(-8, 8), spread=st.floats(1e-3, 1), ratio=st.floats(1e-2, 1e2))
def test_small_probabilities_keep_their_precision(gap: float, spread: float, ratio: float) -> None:
    """Down to 1e-9, to a hundredth of themselves."""
    wide = math.hypot(spread, spread * ratio)
    known: list[Known] = [(1, 0.1 + gap * wide / 2, spread), (1, 0.1, spread * ratio)]
    expected = PHI(gap / 2)
    assert best_of(known)[0] == pytest.approx(expected, rel=1e-2, abs=1e-9)


@pytest.mark.parametrize("count", [2, 3, 10, 100, 1000])
def test_equal_options_are_equally_likely_to_be_best(count: int) -> None:
    assert best_of([(5, 0.4, 0.1)] * count) == pytest.approx([1 / count] * count)
    assert best_of([(0, None, math.inf)] * count) == [1 / count] * count
    assert best_of([]) == []


def test_several_options_are_compared_as_in_simulation() -> None:
    """400,000 draws of four normal means; each probability within 5 standard errors."""
    known: list[Known] = [(1, 0.5, 0.1), (1, 0.52, 0.001), (1, 0.3, 0.4), (1, 0.55, 0.03)]
    rng, draws = np.random.default_rng(0), 400_000
    means, widths = np.array([row[1] for row in known]), np.array([row[2] for row in known])
    winners = np.argmax(means + widths * rng.standard_normal((draws, 4)), axis=1)
    found = np.bincount(winners, minlength=4) / draws
    for chance, share in zip(best_of(known), found, strict=True):
        assert abs(chance - share) < 5 * math.sqrt(chance * (1 - chance) / draws)


@pytest.mark.parametrize("spread", [0.0, 1e-300, 1e-150, 1e-17, 1e-12])
def test_an_exactly_known_option_is_compared_as_a_constant(spread: float) -> None:
    """Found: its narrow density was integrated over the gap to the next point, and always won."""
    for mean in (0.0, 0.5):
        chances = best_of([(9, mean, spread), (9, mean - 0.3, 0.1)])
        assert chances[1] == pytest.approx(PHI(-3.0), rel=1e-3)
        assert best_of([(9, mean, spread)] * 3) == pytest.approx([1 / 3] * 3)


def test_an_untried_option_may_be_best() -> None:
    rows = summaries([(100, 0.5, 0.05), (0, None, math.inf)], ("tried", "new"), 0.95)
    assert (rows[1].mean, rows[1].low, rows[1].high, rows[1].participants) == (None, 0.0, 1.0, 0)
    assert rows[0].best == pytest.approx(rows[1].best)
    assert rows[0].low == pytest.approx(0.5 - 1.96 * 0.05, abs=1e-4)


def test_intervals_stay_within_the_range_of_rewards() -> None:
    for mean, lowest in itertools.product((-0.7, 0.01, 0.99, 1.7), (0.0, -1.0, -0.2)):
        (row,) = summaries([(10, mean, 0.2)], ("only",), 0.95, lowest)
        assert lowest <= row.low <= row.high <= (1.0 if lowest == 0 else -lowest)
        assert row.mean == mean


@pytest.mark.extended
@pytest.mark.parametrize("level", [0.8, 0.95])
@pytest.mark.parametrize("distribution", extended_after(1, DISTRIBUTIONS))
@pytest.mark.parametrize(("mean", "sizes"), [(0.5, (400,)), (0.3, (200, 800)), (0.85, (900, 100))])
def test_intervals_cover_at_about_the_nominal_rate(
    distribution: str, mean: float, sizes: tuple[int, ...], level: float
) -> None:
    """1,500 histories of fixed sizes, bits as rewards: the share is within 2 points of the nominal
    one, and a sampling error of false-alarm rate 1e-6 on either side.
    """
    runs = 1_500
    rng, world = (
        np.random.default_rng([len(distribution), len(sizes)]),
        Environment(np.array([mean, mean])),
    )
    held = 0
    for _ in range(runs):
        tally = Tally(2_000, 1_000)
        for number, size in enumerate(sizes):
            tally.add(
                estimate(Round(number, size, Arm(0)), world, DISTRIBUTIONS[distribution], rng)
            )
        known = [(tally.participants, tally.mean, tally.spread)]
        (row,) = summaries(known, ("only",), level)
        held += row.low <= mean <= row.high
    assert binom.ppf(1e-6, runs, level - 0.02) <= held <= binom.isf(1e-6, runs, level + 0.02)


def test_intervals_of_non_binary_rewards_are_conservative() -> None:
    """A coin has the largest variance of all rewards with its mean."""
    rng, held = np.random.default_rng(3), 0
    world = Environment(np.array([0.4, 0.4]), "beta")
    for _ in range(1_000):
        tally = Tally(300, 300)
        tally.add(estimate(Round(0, 300, Arm(0)), world, laplace(1.0), rng))
        (row,) = summaries([(300, tally.mean, tally.spread)], ("only",), 0.9)
        held += row.low <= 0.4 <= row.high
    assert held >= binom.ppf(1e-6, 1_000, 0.95)


def test_a_summary_sums_rewards_participants_and_noise() -> None:
    tally = Tally(1_000, 500)
    assert (tally.mean, tally.spread) == (None, math.inf)
    distribution = DiscreteLaplace(20)
    tally.add(Estimate(30.0, ErrorDistribution(100, 10, distribution)))
    tally.add(Estimate(270.0, ErrorDistribution(300, 1, None)))
    noise = float(distribution.variance) / 100
    assert 2**-0.25 < 1 / (1 + noise / (100 * 0.09)) / 0.5 < 2**0.25
    weight = 0.5  # the nearest step of the first round's
    held, total = weight * 100 + 300, weight * 30 + 270
    assert tally.participants == 400
    assert tally.mean == pytest.approx(total / held)
    rate = (total + 1) / (held + 2)
    variance = rate * (1 - rate) * (weight**2 * 100 + 300) + weight**2 * noise
    assert tally.spread == pytest.approx(math.sqrt(variance) / held)


def test_arm_summaries_include_batches_that_the_learner_forgets() -> None:
    learner = ForgettingElimination(2, 10_000, growth=4, constants="paper", tail=NoiseTail(9.0))
    for _ in range(3):
        for round_ in learner.propose():
            n = round_.participants
            told = Estimate(n * (0.4, 0.6)[round_.arm], ErrorDistribution(n, 1, None))
            learner.observe(round_, told)
    rows = learner.summaries(("a", "b"))
    assert [row.participants for row in rows] == [84, 84]
    assert [row.mean for row in rows] == pytest.approx([0.4, 0.6])
    assert rows[1].best > 0.95
