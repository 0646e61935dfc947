"""Rewards from a callable are passed on unchanged, or rejected with the option's name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.tables import each_row

from tacit.environments import FromFunction, contract
from tacit.errors import TacitError
from tacit.types import Arm, Round

Rng = np.random.Generator


def bernoulli_rewards(arm: int, users: int, rng: Rng) -> Any:
    return (rng.random(users) < 0.25 + arm / 2).astype(float)


def bernoulli_reward(arm: int, rng: Rng, threshold: float = 0.25) -> float:
    return float(rng.random() < threshold + arm / 2)


def test_batched_and_single_calls_give_the_same_rewards() -> None:
    for arm in (0, 1):
        found, expected = (
            FromFunction(f, 2, (0.25, 0.75), True).rewards(arm, 50, np.random.default_rng(1))
            for f in (bernoulli_reward, bernoulli_rewards)
        )
        np.testing.assert_array_equal(found, expected)


def test_levels_match_the_rewards_in_one_call_and_in_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(contract, "CHUNK", 7)
    world = FromFunction(bernoulli_rewards, ["old", "new"], binary=True)
    levels = world.levels(1, 1000, 10, np.random.default_rng(0))
    assert levels.participants == 1000
    assert set(levels.values.tolist()) == {0, 10}
    assert abs(levels.total / 10 - 750) < 5 * np.sqrt(1000 * 3 / 16)


def test_means_are_declared_or_unknown() -> None:
    known = FromFunction(bernoulli_rewards, 2, (0.25, 0.75))
    assert known.means is not None
    assert known.means.tolist() == [0.25, 0.75]
    assert known.gaps.tolist() == [0.5, 0.0]
    assert known.names == ("option 1", "option 2")
    unknown = FromFunction(bernoulli_rewards, ["old", "new"])
    assert unknown.arms == 2
    assert unknown.means is None
    with pytest.raises(TacitError, match="means are unknown, so gaps and regret are too"):
        _ = unknown.gaps
    played = unknown.play(Round(0, 30, Arm(1)), None, np.random.default_rng(0))
    assert (played.regret, played.time.tolist()) == (None, [30.0])


BAD_RESULTS: list[tuple[Any, str]] = [
    ([0.5, 1.5, 0], r"returned 1.5 for 'new': must be in \[0, 1\]\. Rescale or clip it"),
    ([0.5, -0.1, 0], "returned -0.1 for 'new'"),
    ([0.5, np.nan, 0], "returned nan for 'new'"),
    ([0.5], r"returned shape \(1,\) for 'new': must be 3 rewards"),
    (0.5, r"returned shape \(\) for 'new'"),
    (["a", "b", "c"], r"returned \['a', 'b', 'c'\] for 'new': must be numbers"),
    (None, r"returned shape \(\) for 'new'"),
]


@each_row(("result", "message"), BAD_RESULTS)
def test_invalid_results_are_rejected_with_the_option(result: Any, message: str) -> None:
    world = FromFunction(lambda _arm, _users, _rng: result, ["old", "new"])
    with pytest.raises(TacitError, match=message):
        world.rewards(1, 3, np.random.default_rng(0))


def test_environments_declared_binary_reject_other_rewards() -> None:
    world = FromFunction(lambda _arm, _rng: 0.5, 2, binary=True)
    with pytest.raises(
        TacitError, match=r"returned 0.5 for 'option 1': .* 0 or 1, as it is binary"
    ):
        world.rewards(0, 1, np.random.default_rng(0))


def test_invalid_definitions_are_rejected() -> None:
    with pytest.raises(TacitError, match="options are old: must be two or more different names"):
        FromFunction(bernoulli_rewards, ["old"])
    with pytest.raises(TacitError, match="two or more different names"):
        FromFunction(bernoulli_rewards, ["old", "old"])
    with pytest.raises(TacitError, match="options is 1: must be a whole number of at least 2"):
        FromFunction(bernoulli_rewards, 1)
    with pytest.raises(TacitError, match="options is old"):
        FromFunction(bernoulli_rewards, "old")
    with pytest.raises(TacitError, match="true_means has 2 values: must have 3"):
        FromFunction(bernoulli_rewards, 3, (0.1, 0.2))
    with pytest.raises(TacitError, match=r"takes 1 arguments: must take \(arm, users, rng\)"):
        FromFunction(lambda arm: arm, 2)
