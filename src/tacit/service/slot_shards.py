"""Slot counters in shards, so that processes that assign slots of one round seldom wait.

The slots of a round are split into shards of consecutive numbers. A ticket belongs to one shard of
every round, by its nonce; a transaction locks the shards of its tickets. A repeated ticket
therefore waits for the first one and finds its slot. When these shards are full, a second
transaction locks all shards. Every transaction locks in the order of the keys, which excludes
deadlocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

MOST = 8  # shards of a round
LEAST = 64  # slots of a shard, at least, where a round has several


@dataclass(frozen=True)
class ShardRow:
    """A range of slots of a round, and how many of them are assigned."""

    round: bytes
    shard: int
    first: int
    slots: int
    assigned: int = 0

    @property
    def free(self) -> int:
        """The number of free slots."""
        return self.slots - self.assigned

    def taken(self) -> tuple[int, ShardRow]:
        """The number of the next free slot, and the shard without it."""
        return self.first + self.assigned, replace(self, assigned=self.assigned + 1)


def shards_of(identity: bytes, slots: int, most: int = MOST) -> list[ShardRow]:
    """The empty shards of a round: as equal as possible, none below `LEAST` slots if several.

    >>> [(shard.first, shard.slots) for shard in shards_of(b"round", 200)]
    [(0, 66), (66, 67), (133, 67)]
    """
    count = max(1, min(most, slots // LEAST))
    ends = [slots * number // count for number in range(count + 1)]
    return [
        ShardRow(identity, number, first, end - first)
        for number, (first, end) in enumerate(pairwise(ends))
    ]


def homes(nonces: Iterable[bytes]) -> set[int]:
    """The numbers of tickets; modulo the shards of a round, the shard of a ticket in it."""
    return {nonce[-1] % MOST for nonce in nonces}
