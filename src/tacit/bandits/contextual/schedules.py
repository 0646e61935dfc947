"""When silos synchronise: fixed beforehand, so that when they speak says nothing.

A geometric schedule has about ln T / ln growth synchronisations where an even one has T / B, the
first of them early: what is learned soonest is worth most, and noise is shared by fewer releases.
"""

from __future__ import annotations

from tacit.errors import integer

FIRST, GROWTH = 10, 1.3  # rounds before the first synchronisation; total over total before


def even(horizon: int, every: int) -> tuple[int, ...]:
    """Batches of so many rounds, as many as fit.

    >>> even(23, 5)
    (5, 5, 5, 5)
    """
    return (every,) * (horizon // integer("sync", every, at_least=1))


def geometric(horizon: int) -> tuple[int, ...]:
    """Batches of (GROWTH - 1) times what came before, at least `FIRST`; the last takes the rest.

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
