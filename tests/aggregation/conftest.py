"""Shared fixtures: random alteration of messages, and a chi-square test with a stated false
positive rate.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import pytest
from scipy import stats

from tacit.aggregation.wire import HEADER_SIZE

FALSE_ALARM = 1e-6
"""A correct program fails one chi-square test with this probability."""

Mutate = Callable[[random.Random, bytes, Sequence[bytes], int], Iterator[bytes]]


def _mutations(
    rng: random.Random, message: bytes, others: Sequence[bytes], count: int
) -> Iterator[bytes]:
    """`count` altered versions of a message: bits flipped, truncated, grown, spliced, of another
    kind, round or version.
    """
    valid = {message, *others}
    made = 0
    while made < count:
        spoilt = bytearray(message)
        match rng.randrange(9):
            case 0 | 1 | 2:
                for _ in range(rng.choice((1, 1, 1, 2, 8))):
                    spoilt[rng.randrange(len(spoilt))] ^= 1 << rng.randrange(8)
            case 3:
                del spoilt[rng.randrange(len(spoilt)) :]
            case 4:
                spoilt += rng.randbytes(rng.randrange(1, 80))
            case 5:
                place = rng.randrange(len(spoilt))
                del spoilt[place : place + rng.randrange(1, 40)]
            case 6:
                start, size = rng.randrange(len(spoilt)), rng.randrange(1, 60)
                spoilt[start : start + size] = rng.choice(
                    (bytes(size), rng.randbytes(size), b"\xff" * size)
                )
            case 7:
                other = rng.choice(others) if others else message[::-1]
                cut = rng.randrange(len(spoilt))
                spoilt = spoilt[:cut] + other[cut:]
            case _:
                spoilt[rng.randrange(HEADER_SIZE)] = rng.randrange(256)
        if bytes(spoilt) not in valid:
            made += 1
            yield bytes(spoilt)


@pytest.fixture
def mutate() -> Mutate:
    return _mutations


def _p_value(outcomes: Iterable[object], cells: int) -> float:
    counts = Counter(outcomes)
    observed = [*counts.values(), *[0] * (cells - len(counts))]
    assert len(observed) == cells, "an outcome that should be impossible was seen"
    return float(stats.chisquare(observed).pvalue)


@pytest.fixture
def assert_uniform() -> Callable[[Iterable[object], int], None]:
    def check(outcomes: Iterable[object], cells: int) -> None:
        assert _p_value(outcomes, cells) > FALSE_ALARM

    return check


@pytest.fixture
def assert_not_uniform() -> Callable[[Iterable[object], int], None]:
    """The same test must be able to fail."""

    def check(outcomes: Iterable[object], cells: int) -> None:
        assert _p_value(outcomes, cells) < FALSE_ALARM

    return check
