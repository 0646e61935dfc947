"""Confidence sequences: exact supermartingale computations, and coverage in whole runs."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom
from tests.bandits import coverage
from tests.bandits.coverage import LEVEL, SCENARIOS, Run, many, most_failures, simulate_run
from tests.tables import extended_but_every

from tacit.bandits.arm_summaries import (
    SummarySettings,
    anytime_summaries,
    beats,
    best_option,
    interval,
    level_of,
    lift_interval,
)
from tacit.bandits.confidence_sequences import CELL, Tally, evidence_that_larger, is_larger
from tacit.noise import Binomial, DiscreteLaplace, NoiseDistribution
from tacit.types import ErrorDistribution, Estimate

NOISE: dict[str, NoiseDistribution | None] = {
    "none": None,
    "laplace": DiscreteLaplace(3),
    "bits": Binomial(4, 0.25),
}


def tally_of(*rounds: tuple[float, int, NoiseDistribution | None], horizon: int = 10_000) -> Tally:
    tally = Tally(horizon, horizon // 2)
    for total, people, noise in rounds:
        tally.add(Estimate(total, ErrorDistribution(people, 1, noise)))
    return tally


def outcomes(
    people: int, mean: float, noise: NoiseDistribution | None
) -> list[tuple[float, float]]:
    """Every estimated sum with its probability."""
    bits = [(k, float(binom.pmf(k, people, mean))) for k in range(people + 1)]
    if noise is None:
        return [(float(k), chance) for k, chance in bits]
    first, last = noise.window()
    added = [(k - noise.mean, float(noise.pmf(k))) for k in range(first, last + 1)]
    return [(k + x, p * r) for (k, p), (x, r) in itertools.product(bits, added)]


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("noise", ["none", "bits"])
@pytest.mark.parametrize("mean", [0.02, 0.5, 0.9])
def test_the_mixture_martingale_of_bits_has_mean_one(noise: str, mean: float, side: int) -> None:
    """Added up over everything that can happen in two rounds, the second of which is the larger
    the better the first went: sizes may depend on what was seen.
    """
    distribution, truth, expected = NOISE[noise], np.array([mean]), 0.0
    for total, chance in outcomes(3, mean, distribution):
        second = 2 if total > 3 * mean else 1
        for more, likely in outcomes(second, mean, distribution):
            tally = tally_of((total, 3, distribution), (more, second, distribution), horizon=100)
            expected += chance * likely * math.exp(float(tally.evidence_against(truth, side)[0]))
    assert expected == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("noise", list(NOISE))
@pytest.mark.parametrize("mean", [0.0, 0.02, 0.5, 1.0])
def test_confidence_bounds_equal_bisection_to_the_last_bit(
    noise: str, mean: float, side: int
) -> None:
    for people in ((2,), (50,), (50, 3000), (400, 90, 7000)):
        tally = tally_of(*((mean * count, count, NOISE[noise]) for count in people))
        floor = tally.evidence_floor
        for levels in (np.linspace(floor, 9, 25)[1:], np.array([floor - 1, 0.1, 700.0, math.inf])):
            low, near = tally._bisected(levels, side), tally._near(levels, side)
            assert near is not None
            assert np.array_equal(near, low)
            end = 0.0 if side > 0 else 1.0
            rejected = tally.evidence_against(np.full(len(levels), end), side) > levels
            expected = np.where(rejected, low if side > 0 else low + CELL, end)
            assert np.array_equal(tally.bounds(levels, side), expected)


def test_heavy_tailed_noise_keeps_the_martingale_mean_at_one() -> None:
    """One round, with all noise that double precision knows of."""
    truth, distribution = np.array([0.3]), DiscreteLaplace(3)
    for side in (1, -1):
        found = [
            math.exp(
                math.log(chance)
                + tally_of((total, 2, distribution)).evidence_against(truth, side)[0]
            )
            for total, chance in outcomes(2, 0.3, distribution)
            if chance > 0
        ]
        assert 1 - 1e-3 < sum(found) < 1 + 1e-9  # a tilt near the end of the moments


def test_rewards_that_are_not_binary_keep_the_mean_below_one() -> None:
    """Two participants with reward 0 or ½, whose mean is ¼."""
    truth, expected = np.array([0.25]), {1: 0.0, -1: 0.0}
    for total, chance in ((0.0, 0.25), (0.5, 0.5), (1.0, 0.25)):
        for side in expected:
            tally = tally_of((total, 2, None), horizon=100)
            expected[side] += chance * math.exp(float(tally.evidence_against(truth, side)[0]))
    assert all(0.5 < value < 1 for value in expected.values())


rounds = st.lists(
    st.tuples(st.integers(1, 3_000), st.floats(-0.2, 1.2), st.sampled_from(sorted(NOISE))),
    min_size=1,
    max_size=5,
)


@given(seen=rounds, level=st.floats(0.5, 20))
@settings(max_examples=50, deadline=None)
def test_an_interval_is_the_set_of_means_that_are_not_rejected(
    seen: list[tuple[int, float, str]], level: float
) -> None:
    tally = tally_of(*((share * n, n, NOISE[name]) for n, share, name in seen))
    levels = np.array([level])
    low, high = (float(tally.bounds(levels, side)[0]) for side in (1, -1))
    assert 0 <= low <= 1
    assert 0 <= high <= 1
    for side, bound in ((1, low), (-1, high)):
        outside = bound - side * 1e-9
        if 0 < outside < 1:
            assert tally.evidence_against(np.array([outside]), side)[0] > level - 1e-6
        inside = np.linspace(bound, 1.0 if side > 0 else 0.0, 7)
        if side * (bound - (1 if side > 0 else 0)) < -1e-6:
            assert np.all(tally.evidence_against(inside[1:], side) <= level + 1e-6)
    assert tally.evidence_against(np.linspace(0, 1, 9), 1).min() >= tally.evidence_floor - 1e-12


def test_a_comparison_is_the_minimum_over_a_common_mean() -> None:
    one = tally_of((130.0, 1_000, DiscreteLaplace(10)), (400.0, 3_000, DiscreteLaplace(10)))
    other = tally_of((60.0, 1_000, DiscreteLaplace(10)), (300.0, 3_500, None))
    grid = np.linspace(0, 1, 20_001)
    brute = float(np.min(one.evidence_against(grid, 1) + other.evidence_against(grid, -1)))
    assert brute > 5
    assert evidence_that_larger(one, other) == pytest.approx(brute, abs=1e-3)
    assert evidence_that_larger(other, one) <= 0
    assert is_larger(one, other, brute - 0.01)
    assert not is_larger(one, other, brute + 0.01)
    sure, noisy = tally_of((100.0, 200, None)), tally_of((40.0, 2_000, DiscreteLaplace(4)))
    least = float(np.min(sure.evidence_against(grid, 1) + noisy.evidence_against(grid, -1)))
    assert is_larger(sure, noisy, least - 0.1)
    assert not is_larger(sure, noisy, least + 0.1)  # which a common mean by variances would pass
    assert not is_larger(other, one, 0.1)


def test_a_lift_interval_covers_every_pair_that_is_not_rejected_tightly() -> None:
    one = tally_of((1_300.0, 10_000, DiscreteLaplace(10)))
    control = tally_of((900.0, 9_000, DiscreteLaplace(10)))
    level = level_of(0.05 / 2)
    grid = np.linspace(0.05, 0.2, 1_501)
    low, high = lift_interval(one, control, 0.05)
    assert high is not None
    for side, bound in ((1, low), (-1, high)):
        joint = (
            one.evidence_against(grid, side)[:, None]
            + control.evidence_against(grid, -side)[None, :]
        )
        ratios = (grid[:, None] / grid[None, :])[joint <= level] - 1
        end = float(ratios.min() if side > 0 else ratios.max())
        assert side * (end - bound) >= -1e-3
        assert abs(end - bound) < 0.03
    apart = interval(one, 0.05), interval(control, 0.05)
    assert low > apart[0][0] / apart[1][1] - 1
    assert high < apart[0][1] / apart[1][0] - 1


def test_the_best_option_is_better_than_every_other() -> None:
    """Of three, one is clearly worse; the other two are hardly apart, whichever is ahead."""
    setting = SummarySettings(0.95, first=3)
    for totals in ((100.0, 901.0, 900.0), (100.0, 900.0, 901.0), (901.0, 100.0, 900.0)):
        tallies = [tally_of((total, 1_000, DiscreteLaplace(2))) for total in totals]
        assert [row.decision for row in anytime_summaries(tallies, "abc", setting)] == [
            "worse" if total < 900 else "open" for total in totals
        ]
        assert best_option(tallies, range(3), setting, 0.05) is None
    tallies = [tally_of((total, 1_000, DiscreteLaplace(2))) for total in (100.0, 900.0, 500.0)]
    decisions = [row.decision for row in anytime_summaries(tallies, "abc", setting)]
    assert decisions == ["worse", "best", "worse"]
    assert best_option(tallies, range(3), setting, 0.05) == 1


@given(first=st.integers(2, 60), later=st.integers(0, 40))
def test_failure_probabilities_sum_to_at_most_one(first: int, later: int) -> None:
    setting = SummarySettings(first=first)
    assert sum(map(setting.share, range(first + later))) <= 1 + 1e-12
    rivals = [setting.rival_factor(0), *map(setting.rival_factor, range(first, first + later))]
    assert sum(rivals) <= 1 + 1e-12
    assert len({setting.share(k) for k in range(first)}) == 1


def test_too_many_possible_wrap_arounds_give_trivial_intervals() -> None:
    tallies = [Tally(10_000, 5_000) for _ in range(2)]
    for tally, rate in zip(tallies, (0.1, 0.9), strict=True):
        tally.add(Estimate(rate * 5_000, ErrorDistribution(5_000, 1, None, misread=1e-4)))
    rows = anytime_summaries(tallies, ("a", "b"), SummarySettings(0.95))
    assert [row.decision for row in rows] == ["worse", "best"]
    assert rows[1].lift == pytest.approx(8)
    for tally in tallies:
        tally.add(Estimate(1.0, ErrorDistribution(1, 1, None, misread=1e-3)))
    vague = anytime_summaries(tallies, ("a", "b"), SummarySettings(0.95))
    assert [(row.low, row.high, row.decision) for row in vague] == [(0.0, 1.0, "unavailable")] * 2
    assert (vague[1].lift_low, vague[1].lift_high) == (-1.0, None)


def test_an_arm_summary_round_trips() -> None:
    """Also with tilts beyond the moments of a later round's noise."""
    tally = tally_of((30.0, 900, DiscreteLaplace(2)), (5.0, 90, DiscreteLaplace(60)))
    stored = json.dumps(tally.to_dict(), allow_nan=False)
    copy = Tally.from_dict(json.loads(stored))
    assert json.dumps(copy.to_dict()) == stored
    grid = np.linspace(0, 1, 11)
    for side in (1, -1):
        assert np.array_equal(copy.evidence_against(grid, side), tally.evidence_against(grid, side))
    for each in (tally, copy):
        each.add(Estimate(70.0, ErrorDistribution(2_000, 1, DiscreteLaplace(2))))
    assert copy.to_dict() == tally.to_dict()


def test_optional_stopping_keeps_the_failure_probability() -> None:
    """150 runs of up to 60 looks, false-alarm rate 1e-6; normal intervals miss in a fifth."""
    rng, missed, normal = np.random.default_rng(8), 0, 0
    level = level_of(0.05 / 2)
    for _ in range(150):
        tally, fooled = Tally(100_000, 5_000), False
        ever = False
        for look in range(60):
            people = 40 + 10 * look
            distribution = DiscreteLaplace(4)
            total = rng.binomial(people, 0.05) + float(distribution.sample(rng))
            tally.add(Estimate(float(total), ErrorDistribution(people, 1, distribution)))
            ever = ever or abs(float(tally.mean or 0) - 0.05) > 1.96 * tally.spread
            at = np.array([0.05])
            fooled = fooled or any(tally.evidence_against(at, side)[0] > level for side in (1, -1))
        missed, normal = missed + fooled, normal + ever
    assert missed <= most_failures(150, 0.05)
    assert normal > 30


def check(done: list[Run], failures: int) -> None:
    """Few failures of any kind; intervals less than twice as wide as for one look at as many
    options.
    """
    for part in ("held", "lifted"):
        assert sum(not getattr(run, part) for run in done) <= failures
    assert sum(run.erred for run in done) <= failures
    assert np.mean([width.together for run in done for width in run.widths]) < 2


@pytest.mark.parametrize(
    "name", extended_but_every(2, zip(name for name in SCENARIOS if "50" not in name))
)
def test_intervals_cover_at_all_rounds_at_once(name: str) -> None:
    """4 runs each, false-alarm rate 1e-6; widths of one."""
    done = [simulate_run(SCENARIOS[name], seed, seed == 0) for seed in range(4)]
    check(done, most_failures(4, 1 - LEVEL))


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_intervals_cover_at_all_rounds_at_once_in_many_runs(name: str) -> None:
    """2,000 runs each, in at least 95% of them; measured are 99% and more, so that a false alarm
    has no measurable chance.
    """
    check(many(name, 2_000), 100)


@pytest.mark.slow
def test_the_stopping_rule_errs_at_most_at_its_rate() -> None:
    """300 runs each, where the control has a share and the others as much: nearly all decide where
    one option is better, hardly any where none is.
    """
    for name in (name for name in SCENARIOS if "share" in name):
        done = many(name, 300)
        assert sum(run.erred for run in done) <= 15
        named = float(np.mean([run.named for run in done]))
        assert named < 0.05 if "equal" in name else named > 0.9


def test_fixed_time_intervals_are_not_labelled_anytime_valid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The runs of this test would notice: with normal intervals most of 30 runs fail."""

    def once(tally: Tally, mean: float, side: int) -> float:
        off = side * (float(tally.mean or 0.0) - mean) / tally.spread
        return math.inf if off > 1.96 else 0.0

    monkeypatch.setattr(coverage, "against", once)
    done = [simulate_run(SCENARIOS["rates of 2%"], seed, False) for seed in range(30)]
    assert sum(not run.held for run in done) > most_failures(30, 1 - LEVEL)


def test_simultaneous_intervals_split_the_failure_probability_evenly() -> None:
    tallies = [tally_of((total, 1000, DiscreteLaplace(2))) for total in (300.0, 350.0, 500.0)]
    setting = SummarySettings(0.95, first=2)  # the third option came later
    shares = [setting.share(option) for option in range(1000)]
    assert 0.99 < sum(shares) <= 1
    assert shares[0] == shares[1] > shares[2] > shares[3]
    chance = 0.98 * 0.05  # the rest is for rounds that are misread
    for row, tally, share in zip(
        anytime_summaries(tallies, "abc", setting), tallies, shares, strict=False
    ):
        level = np.array([math.log(2 / (chance * share))])
        ends = [float(tally.bounds(level, side)[0]) for side in (1, -1)]
        assert [row.low, row.high] == pytest.approx(ends, abs=1e-9)
        if tally is not tallies[0]:
            lift = lift_interval(tally, tallies[0], chance * share)
            assert (row.lift_low, row.lift_high) == pytest.approx(lift, abs=1e-9)


@pytest.mark.parametrize(("halted", "kept"), [(None, 1.0), ((), 0.5), ((1,), 0.25)])
def test_a_decision_splits_its_failure_probability_over_both_options(
    halted: tuple[int, ...] | None, kept: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two options of the start either may be best, which need not be added up unless a guardrail
    has paused one of them.
    """
    levels: list[float] = []
    monkeypatch.setattr(
        "tacit.bandits.arm_summaries.is_larger", lambda *given: levels.append(given[2])
    )
    setting = SummarySettings(first=2, halted=None if halted is None else frozenset(halted))
    beats([Tally(100, 50)] * 3, 2, 0, setting, 0.04)
    part = 1 / 2.75  # of an option of the start; the third came later
    assert levels == [pytest.approx(math.log(1 / (0.04 * (0.75 * part / 2) * 2 * part * kept)))]
