"""Data-independent synchronisation schedules: the time of a report leaks nothing.

A geometric schedule has about ln T / ln growth synchronisations, an even one T / B. Its first ones
are early, when estimates are worth most, and fewer releases divide the privacy budget.
"""

from __future__ import annotations

from tacit.errors import integer

FIRST, GROWTH = 10, 1.3  # rounds before the first synchronisation; ratio of successive totals


def even(horizon: int, every: int) -> tuple[int, ...]:
    """Fixed schedule: as many batches of `every` rounds as fit into the horizon.

    >>> even(23, 5)
    (5, 5, 5, 5)
    """
    return (every,) * (horizon // integer("sync", every, at_least=1))


def geometric(horizon: int) -> tuple[int, ...]:
    """Batches of (GROWTH - 1) times the rounds so far, at least `FIRST`; the last takes the rest.

    >>> geometric(100)
    (10, 10, 10, 10, 12, 16, 20, 12)
    """
    batches: list[int] = []
    done = 0
    while done < integer("horizon", horizon, at_least=1):
        batch = min(max(FIRST, round((GROWTH - 1) * done)), horizon - done)
        if 2 * (horizon - done - batch) < batch:
            batch = horizon - done
        batches.append(batch)
        done += batch
    return tuple(batches)


def growing(horizon: int, first: int, growth: float) -> tuple[int, ...]:
    """Sizes of rounds that grow by a factor and add up to the horizon; the last may be longer.

    >>> growing(1000, 100, 2.0)
    (100, 200, 700)
    """
    sizes, left, size = list[int](), horizon, float(first)
    while left > 0:
        now = min(round(size), left)
        if left - now < size * growth / 2:
            now = left
        sizes.append(now)
        left -= now
        size *= growth
    return tuple(sizes)
