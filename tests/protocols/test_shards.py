"""A sharded aggregator adds its noise once to the sum of its shards, so one server's guarantee
holds.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.noise import NoiseDistribution
from tacit.privacy import PureDP
from tacit.protocols.sums import TwoServers
from tacit.types import Floats

LEVELS = 4
PEOPLE = 24
PROTOCOL = TwoServers(PEOPLE, LEVELS, PureDP(1.0))
ROUNDING = 1e-12
answers = st.lists(st.integers(0, LEVELS), min_size=PEOPLE, max_size=PEOPLE)


def noisy(total: int, distribution: NoiseDistribution, copies: int, modulus: int) -> Floats:
    """The probabilities of a number plus so many draws of noise, modulo m, by plain convolution."""
    reach = int(distribution.quantile(1 - 1e-15)) + 1
    points = np.arange(-reach, reach + 1)
    single = np.zeros(modulus)
    np.add.at(single, points % modulus, distribution.pmf(points))
    found = np.zeros(modulus)
    found[total % modulus] = 1.0
    for _ in range(copies):
        found = np.array([found @ np.roll(single[::-1], place + 1) for place in range(modulus)])
    return found


def released(shares: list[list[list[int]]], copies: int) -> Floats:
    """The distribution of what both organisations open together: each adds up its shards' sums and
    adds noise; `copies` draws in all.
    """
    modulus = PROTOCOL.modulus
    partial = [sum(sum(shard) % modulus for shard in shards) % modulus for shards in shares]
    return noisy(sum(partial), PROTOCOL.distribution, copies, modulus)


@settings(max_examples=25, deadline=None)
@given(
    levels=answers,
    where=st.lists(st.integers(0, 4), min_size=PEOPLE, max_size=PEOPLE),
    seed=st.integers(0, 2**32 - 1),
)
def test_sums_of_shards_with_noise_once_have_the_distribution_of_one_sum(
    levels: list[int], where: list[int], seed: int
) -> None:
    """However shares were spread over shards, and whatever the shares are."""
    first = np.random.default_rng(seed).integers(PROTOCOL.modulus, size=PEOPLE).tolist()
    second = [(a - b) % PROTOCOL.modulus for a, b in zip(levels, first, strict=True)]
    shares = [
        [[h for h, place in zip(half, where, strict=True) if place == shard] for shard in range(5)]
        for half in (first, second)
    ]
    distribution = PROTOCOL.released_distribution(sum(levels), PEOPLE)
    stated = distribution.pmf(np.arange(PROTOCOL.modulus))
    np.testing.assert_allclose(released(shares, 2), stated, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("shards", [2, 5])
def test_adding_noise_to_every_shard_changes_the_distribution(shards: int) -> None:
    """As private, and so many times the variance: the reason to add it once."""
    shares = [[[1, 0, 1]], [[0, 1, 0]]]
    once, each = released(shares, 2), released(shares, 2 * shards)
    assert 0.5 * np.abs(once - each).sum() > 0.1
    assert PROTOCOL.distribution.power(2 * shards).variance == pytest.approx(
        shards * PROTOCOL.distribution.power(2).variance
    )


def test_shard_sums_in_the_clear_would_reveal_a_single_participant() -> None:
    """Two organisations' sums of the same shard, before noise, are its participants' exact
    total.
    """
    modulus, level, half = PROTOCOL.modulus, 3, 17
    shard = ([half], [(level - half) % modulus])
    assert sum(map(sum, shard)) % modulus == level
