"""The rows and tables of a party's database.

Every table has a column for each field of its rows. Rows of participants are deleted with their
round, except spent invitations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any, get_args, get_type_hints

import sqlalchemy as sql

from tacit.terms import Terms


class State(StrEnum):
    """The state of an experiment."""

    UNSIGNED = "unsigned"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    FINISHED = "finished"


class Stage(StrEnum):
    """The stage of a round; every round ends as `RELEASED` or as `ABORTED`."""

    PREPARING = "preparing"
    OPEN = "open"
    CLOSING = "closing"
    RELEASED = "opened"
    ABORTED = "refused"


LIVE = (Stage.OPEN, Stage.CLOSING)  # stages in which a round has pending reports
UNFINISHED = (Stage.PREPARING, *LIVE)


# Rows


@dataclass(frozen=True)
class ExperimentHead:
    """An experiment without its learner: its current terms, state and best option so far."""

    lineage: bytes
    digest: bytes
    state: State
    leader: int


@dataclass(frozen=True)
class ExperimentRow(ExperimentHead):
    """An experiment of the coordinator. `learner`, `timing` and `history` are JSON.

    `history` holds the estimates after every round.
    """

    learner: str
    timing: str
    definition: str = ""
    history: str = "[]"


@dataclass(frozen=True)
class Registered:
    """Terms known to a party. `signatures` holds those of all parties, or is empty.

    All terms of an experiment share a lineage, the digest of the first. `approvals` holds the
    signatures of the predecessor's parties. `participants` is the new number of planned
    participants, where these terms change it.
    """

    terms: Terms
    signatures: tuple[bytes, ...]
    approvals: tuple[bytes, ...]
    lineage: bytes
    participants: int | None = None


NO_ARM = -1
"""The arm of a round in which devices choose."""


@dataclass(frozen=True)
class RoundRow:
    """A round and its released sums.

    `number` and `arm` belong to the learner; `option` is an index into the terms' options. They are
    `NO_ARM` and `BY_POLICY` where devices choose. A round that is abandoned before anyone joined
    gets a new identity. `assigned` includes the slots assigned in the shards of an unfinished
    round. `total` is JSON.
    """

    identity: bytes
    terms: bytes
    stage: Stage
    number: int
    arm: int
    option: int
    slots: int
    announcement: bytes = b""
    assigned: int = 0
    started: int = 0
    assigned_until: int = 0
    closes: int = 0
    expires: int = 0
    reports: int | None = None
    total: str | None = None


MOST_SHARDS = 8  # of a round
LEAST_SLOTS = 64  # of a shard, where a round has several


@dataclass(frozen=True)
class ShardRow:
    """A shard: consecutive slots of a round, and how many of them are assigned.

    Processes that assign slots of one round seldom wait for each other: a ticket belongs to one
    shard of every round, by its nonce, and a transaction locks the shards of its tickets. So a
    repeated ticket waits for the first one and finds its slot. When these shards are full, a second
    transaction locks all shards. Every transaction locks in the order of the keys, which excludes
    deadlocks.
    """

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


def shards_of(identity: bytes, slots: int, most: int = MOST_SHARDS) -> list[ShardRow]:
    """The empty shards of a round: as equal as possible, none below `LEAST_SLOTS` slots if several.

    >>> [(shard.first, shard.slots) for shard in shards_of(b"round", 200)]
    [(0, 66), (66, 67), (133, 67)]
    """
    count = max(1, min(most, slots // LEAST_SLOTS))
    ends = [slots * number // count for number in range(count + 1)]
    return [
        ShardRow(identity, number, first, end - first)
        for number, (first, end) in enumerate(pairwise(ends))
    ]


def homes(nonces: Iterable[bytes]) -> set[int]:
    """The numbers of tickets; modulo the shards of a round, the shard of a ticket in it."""
    return {nonce[-1] % MOST_SHARDS for nonce in nonces}


_TYPES: dict[type, Any] = {
    bytes: sql.LargeBinary,
    int: sql.BigInteger,
    str: sql.Text,
    **{kind: sql.Enum(kind, native_enum=False, values_callable=list) for kind in (State, Stage)},
}
_metadata = sql.MetaData()


def _table(name: str, row: type | Mapping[str, Any], *keys: str) -> sql.Table:
    """A table with a column for every field of its rows, in the order of the fields."""
    hints = get_type_hints(row) if isinstance(row, type) else row
    kinds = {field: _TYPES[(get_args(hint) or (hint,))[0]] for field, hint in hints.items()}
    columns = [sql.Column(field, kind, primary_key=field in keys) for field, kind in kinds.items()]
    return sql.Table(name, _metadata, *columns)


TERMS_ROW: dict[str, type] = {
    **dict.fromkeys(("digest", "lineage", "document", "signatures", "approvals"), bytes),
    "participants": int,
}
terms = _table("terms", TERMS_ROW, "digest")
experiments = _table("experiments", ExperimentRow, "lineage")
rounds = _table("rounds", RoundRow, "identity")

SHARE_ROW = dict.fromkeys(("round", "name", "content"), bytes)
shares = _table("shares", SHARE_ROW, "round", "name")
"""Pending report shares, deleted when their round ends."""

slot_shards = _table("slot_shards", ShardRow, "round", "shard")
"""Counters of assigned slots; deleted when the round ends."""

_LEASE_ROW = {"name": bytes, "holder": bytes, "until": int}
leases = _table("leases", _LEASE_ROW, "name")
"""Which process advances an experiment, and until when, in milliseconds."""

joins = _table("joins", {"round": bytes, "name": bytes, "slot": int}, "round", "name")
"""Slots by ticket, so that a repeated request gets the same slot; deleted when the round ends."""

spent = _table("spent", {"invitation": bytes, "name": bytes}, "invitation")
"""Digests of spent invitations, each with the pseudonym it was spent for. The pseudonym is
indistinguishable from random once the round's secret is destroyed.
"""

SERVED_ROW = {"lineage": bytes, "option": int, "waiting": int, "total": int}
served = _table("served", SERVED_ROW, "lineage", "option")
"""Telemetry: requests that found no slot, in total and (`waiting`) since rounds were last planned.
"""
