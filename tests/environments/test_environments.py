"""Environments: aggregate and single rewards have one distribution with the stated means; recorded
data is read or rejected by line.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from tests.samples import same_distribution, z_score
from tests.tables import each_row

from tacit.environments import (
    Bernoulli,
    Beta,
    ClippedGaussian,
    Environment,
    Replay,
    TwoMetrics,
    instance_means,
    read_mslr,
    read_table,
)
from tacit.environments.contract import ContinuousEnvironment, level_table
from tacit.environments.replay import read_mslr_rows
from tacit.errors import TacitError
from tacit.privacy import PureDP
from tacit.protocols.continuous import Exact
from tacit.protocols.contract import round_levels
from tacit.protocols.joint import JointSums
from tacit.protocols.sums import TwoServers
from tacit.types import Arm, Design, Round

ALARM = 1e-6

ENVIRONMENTS: dict[str, Environment] = {
    "bernoulli": Bernoulli((0.2, 0.7, 1.0)),
    "gaussian": ClippedGaussian((0.02, 0.5, 0.93)),
    "wide gaussian": ClippedGaussian((0.3, 0.6), sigma=1.5),
    "beta": Beta((0.2, 0.9), concentration=1.5),
    "replay": Replay.of([[0, 0.25, 0.25, 1, 0.613], [1, 1, 0.5]]),
}
EACH = pytest.mark.parametrize("name", ENVIRONMENTS)


@pytest.mark.extended
@EACH
@pytest.mark.parametrize("precision", [1, 2, 7, 100])
def test_levels_and_rounded_rewards_have_one_distribution(name: str, precision: int) -> None:
    """Sums of 12 users, 4,000 times each way, and the histogram of 20,000 levels; false-alarm rate
    1e-6 each.
    """
    world = ENVIRONMENTS[name]
    rng = np.random.default_rng(precision)
    for arm in range(world.arms):
        levels = world.levels(arm, 20_000, precision, rng)
        assert levels.participants == 20_000
        assert 0 <= levels.values.min() <= levels.values.max() <= precision
        rounded = round_levels(world.rewards(arm, 20_000, rng), precision, rng)
        assert same_distribution(np.repeat(levels.values, levels.counts), rounded) > ALARM
        at_once = [world.levels(arm, 12, precision, rng).total for _ in range(1500)]
        one_by_one = (
            round_levels(world.rewards(arm, 12 * 1500, rng), precision, rng)
            .reshape(1500, 12)
            .sum(axis=1)
        )
        assert same_distribution(at_once, one_by_one) > ALARM


@EACH
def test_means_match_the_instance_and_determine_gaps(name: str) -> None:
    """200,000 rewards per arm, at most 5 standard errors off."""
    world = ENVIRONMENTS[name]
    rng = np.random.default_rng(0)
    assert world.means is not None
    for arm, mean in enumerate(world.means):
        rewards = world.rewards(arm, 200_000, rng)
        assert 0 <= rewards.min() <= rewards.max() <= 1
        assert abs(z_score(rewards, float(mean))) < 5
    np.testing.assert_allclose(world.gaps, world.means.max() - world.means)
    assert world.arms == len(world.means)


@EACH
def test_regret_of_a_round_is_the_gap_of_its_arm(name: str) -> None:
    """2,000 participants: the realised regret is within 5 standard errors of the pseudo-regret, and
    is that of the levels handed on.
    """
    world = ENVIRONMENTS[name]
    assert world.means is not None
    for arm in range(world.arms):
        played = world.play(Round(0, 2_000, Arm(arm)), Exact(2_000, 10), np.random.default_rng(arm))
        assert played.time.tolist() == [2_000]
        assert played.regret is not None
        assert played.regret.tolist() == pytest.approx([2_000 * float(world.gaps[arm])])
        assert played.load.participants == 2_000
        earned = played.load.total / 10
        assert played.lost == pytest.approx(2_000 * float(world.means.max()) - earned)
        assert abs(played.lost - played.regret[0]) <= 5 * 0.5 * 2_000**0.5
    with pytest.raises(TacitError, match="no single option"):
        world.play(Round(0, 5, Design((0,), (5,), 5.0)), None, np.random.default_rng(0))


@EACH
def test_binary_environments_declare_it(name: str) -> None:
    assert ENVIRONMENTS[name].binary is (name == "bernoulli")
    assert Replay.of([[0, 1, 1], [0, 0]]).binary


@pytest.mark.parametrize(
    "name", [n for n, world in ENVIRONMENTS.items() if isinstance(world, ContinuousEnvironment)]
)
@pytest.mark.parametrize("precision", [1, 3, 1000, 200_000])
def test_level_probabilities_have_the_exact_mean_and_clean_tails(name: str, precision: int) -> None:
    """Found: at fine precision rounding errors of one tail were clipped to be positive, and added
    up.
    """
    world = ENVIRONMENTS[name]
    assert isinstance(world, ContinuousEnvironment)
    assert world.means is not None
    for arm in range(world.arms):
        values, probabilities = level_table(world, arm, precision)
        assert probabilities.sum() == pytest.approx(1, abs=1e-12)
        assert np.all(np.diff(probabilities) >= 0)
        assert float(values @ probabilities) / precision == pytest.approx(
            float(world.means[arm]), abs=1e-10
        )
        if name == "gaussian" and precision > 1 and arm == 0:
            far = values / precision > 0.02 + 0.1 * 7
            assert probabilities[far].sum() < 2 * stats.norm.sf(7 - 0.2)


def test_fine_levels_keep_accuracy_for_many_participants() -> None:
    world = ClippedGaussian((0.25, 0.5))
    assert world.means is not None
    levels = world.levels(0, 10**12, 10**6, np.random.default_rng(1))
    assert levels.participants == 10**12
    assert levels.total / 10**18 == pytest.approx(world.means[0], abs=6 * 0.1 / 10**6)


@pytest.mark.parametrize("name", ["easy", "hard"])
@pytest.mark.parametrize("seed", [0, 1, 19])
def test_instances_match_the_paper(name: str, seed: int) -> None:
    np.random.seed(seed)  # noqa: NPY002
    uniform = np.random.rand(10)  # noqa: NPY002
    low, high = {"easy": (0.25, 0.75), "hard": (0.45, 0.55)}[name]
    np.testing.assert_array_equal(instance_means(name, 10, seed), low + (high - low) * uniform)


def test_instances_and_means_out_of_range_are_rejected() -> None:
    with pytest.raises(TacitError, match=r"must be one of easy, hard, rare\. Or give"):
        instance_means("medium", 3, 0)
    with pytest.raises(TacitError, match="must lie in"):
        Bernoulli((0.2, 1.2))
    with pytest.raises(TacitError, match="two or more"):
        ClippedGaussian((0.5,))
    with pytest.raises(TacitError, match="strictly between 0 and 1"):
        Beta((0.0, 0.5))


def test_replay_rejects_or_clips_and_counts() -> None:
    with pytest.raises(
        TacitError,
        match=r"arm 1 has 2 reward\(s\) outside \[0, 1\], such as -1\. Rescale them, or clip",
    ):
        Replay.of([[0, 1], [-1, 0.5, 3]])
    clipped = Replay.of([[0, 1], [-1, 0.5, 3]], clip=True)
    assert clipped.clipped == 2
    assert clipped.means.tolist() == [0.5, 0.5]
    assert Replay.of([[0, 1], [0.5]]).clipped == 0
    too_short: list[list[float]] = [[0.0, 1.0]]
    for bad in (too_short, [*too_short, []], [*too_short, [np.nan]]):
        with pytest.raises(TacitError, match=r"must have two or more|non-empty list of numbers"):
            Replay.of(bad)


# MSLR-WEB10K


def fold(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def line(label: int, query: int, features: np.ndarray) -> str:
    return f"{label} qid:{query} " + " ".join(
        f"{i}:{value:g}" for i, value in enumerate(features, 1)
    )


def three_groups(rows: int = 60) -> list[str]:
    """Documents of three well-separated kinds of features with different labels."""
    rng = np.random.default_rng(0)
    return [line(2 * (i % 3), i // 10, 10.0 * (i % 3) + rng.normal(size=136)) for i in range(rows)]


def test_clusters_of_documents_become_arms(tmp_path: Path) -> None:
    world = read_mslr(fold(tmp_path / "train.txt", three_groups()), arms=3)
    assert world.arms == 3
    assert sorted(world.means) == [0.0, 0.5, 1.0]
    again = read_mslr(tmp_path / "train.txt", arms=3)
    np.testing.assert_array_equal(world.means, again.means)


def test_comments_blank_lines_and_missing_features_are_parsed(tmp_path: Path) -> None:
    path = fold(
        tmp_path / "fold.txt",
        ["# a comment", "", "3 qid:7 1:0.5 136:2 #docid = G1", "0 qid:8 5:1e-3"],
    )
    first, second = read_mslr_rows(path)
    assert first[:2] == (3, 7)
    assert first[2][[0, 1, 135]].tolist() == [0.5, 0.0, 2.0]
    assert second[2][4] == 1e-3


@each_row(
    "bad",
    [
        "x qid:1 1:2",
        "1",
        "1 qid:a 1:2",
        "1 1:2 2:3",
        "1 5 1:2",
        "1 qid:1 0:4",
        "1 qid:1 137:4",
        "1 qid:1 -1:4",
        "1 qid:1 1:nan",
        "1 qid:1 12",
    ],
)
def test_invalid_lines_are_named(tmp_path: Path, bad: str) -> None:
    """Found: feature 0 was read as feature 136, and a missing qid passed."""
    path = fold(tmp_path / "fold.txt", [*three_groups(3), bad])
    with pytest.raises(TacitError, match=r"fold.txt line 4 is not of the form 'rel qid:"):
        list(read_mslr_rows(path))


def test_labels_missing_files_and_too_few_rows_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(TacitError, match="line 1 has relevance 5: must be 0 to 4"):
        list(read_mslr_rows(fold(tmp_path / "a.txt", ["5 qid:1 1:2"])))
    with pytest.raises(TacitError, match=r"does not exist. Download MSLR-WEB10K"):
        read_mslr(tmp_path / "none.txt")
    with pytest.raises(
        TacitError, match=r"3 rows, fewer than 50 arms\. Use fewer arms, or a larger"
    ):
        read_mslr(fold(tmp_path / "b.txt", three_groups(3)))


def test_fewer_different_documents_than_arms_are_rejected(tmp_path: Path) -> None:
    """Found: clustering divided by zero."""
    path = fold(tmp_path / "c.txt", [line(i % 5, 1, np.full(136, float(i % 2))) for i in range(30)])
    with pytest.raises(TacitError, match="2 different documents, fewer than 6 arms"):
        read_mslr(path, arms=6)
    assert read_mslr(path, arms=2).arms == 2


def test_a_second_metric_is_simulated_beside_the_first() -> None:
    world = TwoMetrics(Bernoulli((0.2, 0.7)), Beta((0.5, 0.25)))
    rng = np.random.default_rng(0)
    assert (world.arms, world.metrics, world.binary) == (2, 2, False)
    assert Bernoulli((0.2, 0.7)).metrics == 1
    assert world.gaps == pytest.approx([0.5, 0.0])
    rows = world.reports(1, 4_000, rng)
    assert abs(z_score(rows[:, 0], 0.7)) < 5
    assert abs(z_score(rows[:, 1], 0.25)) < 5
    assert world.rewards(1, 3, rng).shape == (3,)
    protocol = JointSums(TwoServers(100, 8, PureDP(1.0, participations=2)), 2)
    played = world.play(Round(0, 100, Arm(1)), protocol, rng)
    first, second = played.load
    assert (first.participants, second.participants) == (100, 100)
    assert set(first.values) == {0, 8}
    assert played.lost == pytest.approx(100 * 0.7 - first.total / 8)
    assert world.play(Round(0, 100, Arm(1), released=False), None, rng).load.participants == 100


def test_invalid_second_metrics_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(TacitError, match="the first metric has 2 arms, the second 3"):
        TwoMetrics(Bernoulli((0.2, 0.7)), Bernoulli((0.2, 0.7, 0.1)))
    (tmp_path / "wide.csv").write_text("a,b\n1,0\n0,1\n", encoding="utf-8")
    recorded = read_table(tmp_path / "wide.csv")
    with pytest.raises(TacitError, match="has one metric of each recorded participant"):
        TwoMetrics(recorded, Bernoulli((0.2, 0.7)))
