"""Split-and-mix: additive shares, their proven number, and the cost in δ."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tacit.errors import TacitError
from tacit.noise import DiscreteLaplace
from tacit.privacy import ApproximateDP, PureDP, ThreatModel
from tacit.protocols.split_and_mix import SplitAndMix, shuffled_guarantee
from tacit.protocols.sums import SecureSum
from tacit.trust import split_shares


def test_shares_of_a_message_sum_to_it() -> None:
    protocol = SplitAndMix(SecureSum(20, 4, DiscreteLaplace(4), PureDP(1.0)))
    rows = protocol.randomize_batch(np.full(20, 3), np.random.default_rng(0))
    assert rows.shape == (20, protocol.shares)
    totals = rows.sum(axis=1) % protocol.modulus
    plain = protocol.inner.randomize_batch(np.full(20, 3), np.random.default_rng(0))
    np.testing.assert_array_equal(totals, plain % protocol.modulus)
    assert protocol.combine(rows) == protocol.combine(
        [[int(share) for share in row] for row in rows]
    )
    message = protocol.randomize(0.75)
    assert all(0 <= share < protocol.modulus for share in message)
    assert protocol.combine([message] * 20).value == 20 * sum(message) % protocol.modulus


def test_all_but_one_share_are_uniform() -> None:
    """Whatever is left out, the rest says nothing: 4,000 splits of two messages, false-alarm rate
    1e-6.
    """
    protocol = SplitAndMix(SecureSum(20, 1, DiscreteLaplace(1), PureDP(1.0)))
    rng = np.random.default_rng(1)
    for level in (0, 1):
        rows = np.concatenate(
            [protocol.randomize_batch(np.full(20, level), rng) for _ in range(200)]
        )
        for missing in (0, protocol.shares - 1):
            partial = np.delete(rows, missing, axis=1).sum(axis=1) % protocol.modulus
            assert stats.chisquare(np.bincount(partial, minlength=protocol.modulus)).pvalue > 1e-6


def test_the_number_of_shares_follows_the_theorem() -> None:
    for users, modulus, security in [(19, 100, 40), (1000, 2**20, 60), (10**6, 2**40, 80)]:
        k = split_shares(users, modulus, security)
        bound = 2 + (2 * security + math.log2(modulus)) / (math.log2(users) - math.log2(math.e))
        assert bound <= k < bound + 1
    assert split_shares(10**12, 2**10, security=1) == 3  # fewer are never enough


def test_too_few_participants_are_rejected_in_favour_of_secure_aggregation() -> None:
    with pytest.raises(TacitError, match=r"users is 18.*use secure aggregation for fewer"):
        SplitAndMix(SecureSum(19, 1, DiscreteLaplace(1), PureDP(1.0)))
    with pytest.raises(TacitError, match=r"users is 15.*use secure aggregation"):
        SplitAndMix(
            SecureSum(20, 1, DiscreteLaplace(1), PureDP(1.0), threat=ThreatModel(dropout=0.2))
        )


def test_the_slack_is_added_to_delta() -> None:
    pure = SplitAndMix(SecureSum(20, 1, DiscreteLaplace(1), PureDP(1.0)), security=40).guarantee
    assert isinstance(pure, ApproximateDP)
    assert pure.delta == pytest.approx((1 + math.e) * 2.0**-40)
    loose = SplitAndMix(
        SecureSum(20, 1, DiscreteLaplace(1), ApproximateDP(1.0, 1e-6)), security=40
    ).guarantee
    assert isinstance(loose, ApproximateDP)
    assert loose.delta == pytest.approx(1e-6 + (1 + math.e) * 2.0**-40)
    often = shuffled_guarantee(PureDP(1.0, participations=5), 40)
    assert often.delta == pytest.approx(5 * (1 + math.e) * 2.0**-40)


def test_shares_that_would_overflow_are_rejected() -> None:
    protocol = SplitAndMix(SecureSum(20, 1, DiscreteLaplace(1), PureDP(1.0), modulus=1 << 58))
    with pytest.raises(TacitError, match=r"too large to simulate user by user: use simulate"):
        protocol.randomize_batch(np.zeros(20, dtype=np.int64), np.random.default_rng(0))


def test_an_epsilon_beyond_the_splitting_bound_is_rejected() -> None:
    for epsilon in (50.0, 800.0):
        with pytest.raises(TacitError, match="must be a probability"):
            SplitAndMix(SecureSum(100, 1, DiscreteLaplace(1 / epsilon), PureDP(epsilon)))
