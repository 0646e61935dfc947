"""Recorded participants are used once each in random order, and a run reports their end."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import stats
from tests.samples import z_score

from tacit.algorithms import ArmsProblem
from tacit.assumptions import ParticipantsFrom, Source
from tacit.environments import (
    Bernoulli,
    OutOfData,
    Recorded,
    Replay,
    check_horizon,
    from_frame,
)
from tacit.environments.silos import Synthetic
from tacit.errors import TacitError

ALARM = 1e-6
TABLE = Recorded((np.linspace(0, 1, 50), np.linspace(0, 0.5, 30)), ("A", "B"))


def log(rows: int = 4000, seed: int = 0) -> Recorded:
    """Two kinds of participants; those with high rewards were likelier to get option A."""
    rng = np.random.default_rng(seed)
    good = rng.random(rows) < 0.5
    chance = np.where(good, 0.8, 0.2)
    first = rng.random(rows) < chance
    world = from_frame(
        {
            "participant": range(rows),
            "option": np.where(first, "A", "B"),
            "reward": np.where(good, 0.9, 0.1),
            "propensity": np.where(first == good, 0.8, 0.2),
        }
    )
    assert isinstance(world, Recorded)
    return world


def test_every_recorded_participant_is_used_once_for_any_round_sizes() -> None:
    rng = np.random.default_rng(1)
    run = TABLE.fresh(rng)
    parts = [run.rewards(0, n, rng) for n in (1, 19, 30)]
    run.rewards(1, 7, rng)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), TABLE.columns[0])
    assert (run.served, run.used, run.rows) == (57, 57, 80)
    assert not np.array_equal(np.concatenate(parts), TABLE.columns[0])


def test_runs_are_independent_and_seeds_repeat() -> None:
    one, other, again = (TABLE.fresh(np.random.default_rng(s)) for s in (1, 2, 1))
    first = one.rewards(0, 10, np.random.default_rng(9))
    assert not np.array_equal(first, other.rewards(0, 10, np.random.default_rng(9)))
    np.testing.assert_array_equal(first, again.rewards(0, 10, np.random.default_rng(9)))


def test_the_recorded_order_is_kept_on_request() -> None:
    world = Recorded(TABLE.columns, TABLE.names, shuffle=False)
    rng = np.random.default_rng(0)
    np.testing.assert_array_equal(world.fresh(rng).rewards(0, 50, rng), world.columns[0])


@pytest.mark.parametrize("before", [0, 15])
def test_sums_of_binary_rewards_are_hypergeometric(before: int) -> None:
    """4,000 runs, 12 of 40 participants with 17 ones, also after a round before: chi-square against
    the hypergeometric distribution, false-alarm rate 1e-6 each; the binomial distribution of
    drawing with replacement must fail it.
    """
    world = Recorded((np.repeat([0.0, 1.0], [23, 17]), np.ones(2)), ("A", "B"))
    rng = np.random.default_rng(before)
    sums = []
    for _ in range(4000):
        run = world.fresh(rng)
        run.levels(0, before, 10, rng)
        sums.append(run.levels(0, 12, 10, rng).total // 10)
    distribution = stats.hypergeom(40, 17, 12)
    cells = [range(3), *([k] for k in range(3, 8)), range(8, 13)]
    found = np.array([sum(np.isin(sums, list(cell))) for cell in cells])
    for sampled, fits in ((distribution, True), (stats.binom(12, 17 / 40), False)):
        expected = np.array([sum(float(sampled.pmf(k)) for k in cell) for cell in cells]) * 4000
        assert bool(stats.chisquare(found, expected).pvalue > ALARM) is fits


def test_levels_are_randomly_rounded_with_the_exact_mean() -> None:
    """2,000 runs of 5 participants at precision 2, at most 5 standard errors off."""
    rng = np.random.default_rng(0)
    totals = []
    for _ in range(2000):
        levels = TABLE.fresh(rng).levels(1, 5, 2, rng)
        assert levels.participants == 5
        totals.append(levels.total / 10)
    assert abs(z_score(totals, 0.25)) < 5


def test_the_end_of_the_data_is_reported_and_nothing_served_beyond_it() -> None:
    rng = np.random.default_rng(0)
    run = TABLE.fresh(rng)
    run.rewards(1, 20, rng)
    run.rewards(0, 5, rng)
    with pytest.raises(
        OutOfData,
        match=r"'B' has 10 recorded participants left, and the round needs 11, after 25",
    ) as end:
        run.levels(1, 11, 10, rng)
    assert end.value.served == run.served == 25
    assert pickle.loads(pickle.dumps(end.value)).served == 25
    assert len(run.rewards(1, 10, rng)) == 10


def test_a_recorded_environment_is_immutable_and_only_runs_serve_participants() -> None:
    copy = pickle.loads(pickle.dumps(TABLE))
    rng, same = np.random.default_rng(3), np.random.default_rng(3)
    np.testing.assert_array_equal(
        copy.fresh(rng).rewards(0, 9, rng), TABLE.fresh(same).rewards(0, 9, same)
    )
    with pytest.raises(
        TacitError, match=r"used at most once.*begin a run with fresh\(rng\), or sample"
    ):
        TABLE.rewards(0, 1, rng)
    with pytest.raises(TacitError, match="used at most once"):
        TABLE.levels(0, 1, 10, rng)
    np.testing.assert_allclose(TABLE.fresh(rng).means, [0.5, 0.25])
    assert TABLE.fresh(rng).arms == 2
    assert not TABLE.binary
    assert Recorded((np.ones(2), np.zeros(1)), ("A", "B")).fresh(rng).binary


def test_a_recorded_environment_states_which_participations_it_covers() -> None:
    assert TABLE.remark == ParticipantsFrom(Source.CELL, 1)
    assert TABLE.remark.text().startswith("each recorded participant takes part at most once")
    resampled = TABLE.resampled()
    assert resampled.remark.source is Source.RESAMPLED
    assert "drawn again and again, so nothing is guaranteed" in resampled.remark.text()
    assert resampled.participations is None
    assert resampled.horizon is None
    plain = from_frame({"user": [1, 2], "arm": "ab", "reward": [0, 1]})
    assert plain.remark == ParticipantsFrom(Source.ROW, 1)


@pytest.mark.parametrize("precision", [1, 10])
def test_resampling_has_the_distribution_of_replay_bit_for_bit(precision: int) -> None:
    columns = [[0, 0.25, 0.25, 1, 0.613], [1, 1, 0.5]]
    world = from_frame({"A": columns[0], "B": columns[1]}, resample=True)
    for arm in (0, 1):
        found, expected = (
            w.levels(arm, 1000, precision, np.random.default_rng(5))
            for w in (world, Replay.of(columns))
        )
        np.testing.assert_array_equal(found.values, expected.values)
        np.testing.assert_array_equal(found.counts, expected.counts)


def test_rejection_sampling_removes_selection_bias() -> None:
    """Both options have mean 0.5 in the population, but 0.74 and 0.26 among those who got them;
    200 logs, at most 5 standard errors off.
    """
    found: list[list[float]] = []
    for seed in range(200):
        world, rng = log(400, seed), np.random.default_rng(seed)
        run = world.fresh(rng)
        found.append([run.rewards(arm, 40, rng).mean() for arm in (0, 1)])
    logged = dict(zip(log().names, log().columns, strict=True))
    assert logged["A"].mean() > 0.7
    assert logged["B"].mean() < 0.3
    for arm in (0, 1):
        assert abs(z_score([means[arm] for means in found], 0.5)) < 5
    np.testing.assert_allclose(log().means, 0.5, atol=0.05)


def test_rejected_rows_count_as_used() -> None:
    world, rng = log(), np.random.default_rng(0)
    run = world.fresh(rng)
    assert run.used == 0
    run.rewards(0, 100, rng)
    accepted = 0.5 * (0.8 * 0.25 + 0.2) / 0.5
    assert run.used > 100
    assert run.used == pytest.approx(100 / accepted, rel=0.5)
    with pytest.raises(OutOfData):
        run.rewards(0, 2000, rng)


def test_a_horizon_counts_only_rows_that_are_always_accepted() -> None:
    world = log()
    assert world.propensities is not None
    assert world.horizon == min(int((p == 0.2).sum()) for p in world.propensities)
    run = world.fresh(np.random.default_rng(0))
    assert len(run.rewards(0, world.horizon, np.random.default_rng(0))) == world.horizon


def test_arms_and_horizons_that_do_not_match_the_data_are_rejected() -> None:
    """Found: two arms on a three-armed environment never tried its best one, four were an
    IndexError.
    """
    three = Bernoulli((0.1, 0.2, 0.3))
    ArmsProblem.of(arms=3).for_environment(three, 0)
    assert ArmsProblem.of(arms=2).for_environment(TABLE, 0).names == ("A", "B")
    for arms in (2, 4):
        with pytest.raises(TacitError, match=f"arms is {arms}, but the environment has 3: leave"):
            ArmsProblem.of(arms=arms).for_environment(three, 0)
    run = TABLE.fresh(np.random.default_rng(0))
    with pytest.raises(TacitError, match="arms is 3, but the environment has 2: leave arms out"):
        ArmsProblem.of(arms=3, horizon=30).for_environment(run, 0)
    with pytest.raises(
        TacitError, match="is 1,000: must be at most 30, the recorded participants of 'B'"
    ):
        ArmsProblem.of(arms=2, horizon=1000).for_environment(run, 0)
    with pytest.raises(
        TacitError, match="environment is Synthetic: must be an environment of arms"
    ):
        ArmsProblem.of(arms=2).for_environment(Synthetic.draw(2, 3, 4, np.random.default_rng(0)), 0)
    check_horizon(30, TABLE)
    for unlimited in (three, log(), TABLE.resampled()):
        check_horizon(10**9, unlimited)
    with pytest.raises(
        TacitError, match="is 1,000: must be at most 30, the recorded participants of 'B'"
    ):
        check_horizon(1000, TABLE)
