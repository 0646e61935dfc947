"""One run: regret by hand, checkpoints, cut batches, and both paths from one seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

from tacit.bandits import Batch, Learner
from tacit.bandits.contract import EstimateLike
from tacit.environments import Bernoulli, ClippedGaussian
from tacit.noise import DiscreteLaplace
from tacit.papers import batches
from tacit.privacy import PureDP
from tacit.protocols.continuous import Exact
from tacit.protocols.contract import SumProtocol
from tacit.protocols.modular import SecureSum
from tacit.simulation import checkpoints_for, run

WORLD = Bernoulli((0.2, 0.9, 0.5))
GAPS = (0.7, 0.0, 0.4)


class Scripted(Learner):
    """Plays a list of (arm, users), round by round, whatever it sees."""

    def __init__(
        self, arms: int, horizon: int, script: tuple[tuple[tuple[int, int], ...], ...]
    ) -> None:
        super().__init__(arms, horizon)
        self.script = script
        self.seen: list[tuple[int, int, float]] = []
        self.step = 0

    def best(self) -> int:
        return 2

    def _plan(self) -> Iterable[tuple[int, int]]:
        self.step += 1
        return self.script[self.step - 1]

    def _learn(self, batch: Batch, estimate: EstimateLike) -> None:
        self.seen.append((batch.arm, batch.users, estimate.total))

    def _state(self) -> dict[str, Any]:
        return {}

    def _restore(self, state: Mapping[str, Any]) -> None:
        raise AssertionError(state)


SCRIPT = (((0, 10), (2, 5)), ((1, 20),), ((2, 8), (0, 100)))


def exact(users: int) -> SumProtocol:
    return Exact(users, 1)


def test_pseudo_regret_is_what_a_hand_computes() -> None:
    learner = Scripted(3, 50, SCRIPT)
    marks = (1, 5, 10, 12, 15, 30, 35, 43, 50)
    result = run(learner, WORLD, exact, np.random.default_rng(0), checkpoints=marks)
    played = (
        [0] * 10 + [2] * 5 + [1] * 20 + [2] * 8 + [0] * 7
    )  # the last batch is cut from 100 to 7
    by_hand = np.cumsum([GAPS[arm] for arm in played])
    np.testing.assert_allclose(result.regret, [by_hand[t - 1] for t in marks], rtol=1e-12)
    assert result.final_regret == pytest.approx(by_hand[-1])
    assert (result.users, result.batches, result.best, result.active) == (50, 4, 2, 3)
    assert [entry[:2] for entry in learner.seen] == [
        (0, 10),
        (2, 5),
        (1, 20),
        (2, 8),
    ]  # the cut batch is never opened
    assert result.bits == 43 * 1


def test_final_regret_is_at_the_horizon_whatever_the_checkpoints() -> None:
    result = run(Scripted(3, 50, SCRIPT), WORLD, exact, np.random.default_rng(0), checkpoints=(10,))
    assert list(result.regret) == pytest.approx([7.0])
    assert result.final_regret == pytest.approx(10 * 0.7 + 5 * 0.4 + 8 * 0.4 + 7 * 0.7)


def test_realised_regret_counts_every_reward_also_of_batches_that_are_not_opened() -> None:
    """The mean over 2,000 runs is the pseudo-regret, within 5 standard errors; its spread is that
    of coins, of all 50 users.
    """
    rng = np.random.default_rng(5)
    lost = np.array(
        [run(Scripted(3, 50, SCRIPT), WORLD, exact, rng).realised[-1] for _ in range(2000)]
    )
    variance = 17 * 0.2 * 0.8 + 13 * 0.25 + 20 * 0.09
    assert abs(lost.mean() - 17.1) < 5 * np.sqrt(variance / 2000)
    assert lost.var(ddof=1) == pytest.approx(variance, rel=0.2)


def test_checkpoints_are_log_spaced_and_end_at_the_horizon() -> None:
    for horizon in (1, 2, 10, 999, 10**6, 10**12 + 1):
        for count in (1, 2, 60):
            marks = checkpoints_for(horizon, count)
            assert marks[-1] == horizon
            assert list(marks) == sorted(set(marks))
            assert all(type(mark) is int for mark in marks)
    assert checkpoints_for(10**6, 7) == (1, 10, 100, 1000, 10**4, 10**5, 10**6)


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize(
    "protocols",
    [
        partial(batches.polya_tight, epsilon=1.0, binary=False, dropout=0.1),
        partial(batches.central_laplace, epsilon=1.0, binary=False, confidence=None),
        partial(batches.local_laplace, epsilon=1.0, binary=False, paper=False),
        partial(batches.continuous_laplace, epsilon=1.0),
        partial(batches.pure_shuffle, epsilon=1.0),
    ],
    ids=["polya", "central", "local", "continuous", "pure"],
)
def test_a_seed_reproduces_a_run_bit_for_bit_on_both_paths(protocols: Any, slow: bool) -> None:
    """Found: with a trusted server the slow path drew its noise from the operating system."""
    world = ClippedGaussian((0.2, 0.9, 0.5))
    once, again = (Scripted(3, 50, SCRIPT) for _ in range(2))
    results = [
        run(learner, world, protocols, np.random.default_rng(9), user_by_user=slow)
        for learner in (once, again)
    ]
    assert results[0] == results[1]
    assert once.seen == again.seen
    other = Scripted(3, 50, SCRIPT)
    run(other, world, protocols, np.random.default_rng(10), user_by_user=slow)
    assert other.seen != once.seen


@pytest.mark.parametrize("slow", [False, True])
def test_wrap_arounds_are_counted_on_both_paths(slow: bool) -> None:
    protocol = SecureSum(20, 1, DiscreteLaplace(8), PureDP(1 / 8), modulus=23)
    script = tuple(((0, 20),) for _ in range(200))
    result = run(
        Scripted(3, 4000, script),
        WORLD,
        lambda _: protocol,
        np.random.default_rng(1),
        user_by_user=slow,
    )
    assert 30 < result.wrapped == protocol.wrapped < 100
    again = run(
        Scripted(3, 4000, script),
        WORLD,
        lambda _: protocol,
        np.random.default_rng(1),
        user_by_user=slow,
    )
    assert again.wrapped == result.wrapped  # of this run, not of all runs that share the protocol
