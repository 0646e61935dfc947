"""Slot assignment: many tickets at once, in one transaction.

Each slot is drawn uniformly from the free slots of all open rounds under the terms that the device
was shown, as far as the transaction has locked them (`ShardRow`). Participants are anonymous: a
ticket is stored only as an HMAC pseudonym under the round's secret, until the round is over.

Invitations are checked first, whether or not a slot is free. Requests that find no slot are counted
as telemetry. They never reach the learner, so they cannot end an experiment.
"""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import accumulate
from operator import itemgetter
from typing import NamedTuple

from tacit.aggregation.two_servers import ReportSlot
from tacit.errors import Rejected
from tacit.service import invitations
from tacit.service.errors import Conflict, Forbidden
from tacit.service.party import ServerParty
from tacit.service.schema import MOST_SHARDS, NO_ARM, RoundRow, ShardRow, State, homes
from tacit.service.store import Transaction
from tacit.service.trust_models.rounds import ServedRound
from tacit.terms import FittedTerms

NONCE_SIZE = 16


@dataclass(frozen=True)
class Ticket:
    """A request to participate: the digest of the terms and a random nonce drawn by the device.

    The same nonce gets the same slot.
    """

    experiment: bytes
    nonce: bytes = field(repr=False)
    invitation: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if len(self.nonce) != NONCE_SIZE:
            raise Rejected(f"the nonce has {len(self.nonce)} bytes: must have {NONCE_SIZE}")


@dataclass(frozen=True)
class Assigned:
    """The option assigned to a ticket, and its slot. Without a slot, the device sends no report.

    The option is empty where the device chooses by the policy in the announcement.
    """

    option: str
    announcement: bytes = b""
    slot: ReportSlot | None = None


class NeedsAllShards(Enum):
    """The answer to a ticket for which all shards of slots must be locked."""

    ALL_SHARDS = "all-shards"


@dataclass
class _OpenRound:
    """An open round, its locked shards and the slots assigned in this transaction."""

    row: RoundRow
    server: ServedRound
    count: int  # of its shards
    shards: dict[int, ShardRow] = field(default_factory=dict)
    elsewhere: bool = False  # whether shards that are not locked may have free slots
    changed: set[int] = field(default_factory=set)
    names: dict[bytes, bytes] = field(default_factory=dict)
    new: dict[bytes, int] = field(default_factory=dict)

    @property
    def free(self) -> int:
        return sum(shard.free for shard in self.shards.values())

    @property
    def unlocked(self) -> int:
        """Free slots in shards that are not locked, at most; they were counted before locking."""
        return self.row.slots - self.row.assigned - self.free

    def take(self) -> int:
        """Assign a free slot; its number."""
        number = next(number for number, shard in self.shards.items() if shard.free)
        slot, self.shards[number] = self.shards[number].taken()
        self.changed.add(number)
        return slot


class _Slot(NamedTuple):
    """A slot in one of the open rounds."""

    round: int
    number: int


class SlotAssigner:
    """Assigns slots of one experiment within one transaction.

    It locks the shards of its tickets, or with `whole` all shards.
    """

    def __init__(self, party: ServerParty, transaction: Transaction, digest: bytes) -> None:
        self._transaction = transaction
        self._terms, self._lineage = party.pinned(digest).terms, party.lineage(digest)
        self._head = transaction.head(self._lineage)
        self._rounds: list[_OpenRound] = []
        if self._head.state is State.RUNNING:
            rows = transaction.open_rounds(digest, party.now)
            self._rounds = [_OpenRound(row, party.serving(row), count) for row, count in rows]

    def assign(
        self, tickets: Sequence[Ticket], *, whole: bool = False
    ) -> list[Assigned | Rejected | NeedsAllShards]:
        """Answer each ticket with its existing slot, a new slot, or an option without a slot.

        A ticket without a valid invitation is rejected where the terms require one. `ALL_SHARDS`
        asks for another transaction with `whole`: the free slots are in other shards. Invitations
        are spent in their order, so that processes do not deadlock.
        """
        nonces = [ticket.nonce for ticket in tickets]
        self._lock(range(MOST_SHARDS) if whole else homes(nonces))
        held = self._held_slots(nonces)
        slots: list[_Slot | Rejected | NeedsAllShards | None] = [None] * len(tickets)
        invited: dict[int, bytes] = {}
        for n, ticket in enumerate(tickets):
            try:
                invited[n] = self._invitation(ticket)
            except Rejected as reason:
                slots[n] = reason
        for n, invitation in sorted(invited.items(), key=itemgetter(1)):
            nonce = tickets[n].nonce
            try:
                slot = held.get(nonce) or self._draw(tickets[n], invitation)
            except Rejected as reason:
                slots[n] = reason
                continue
            slots[n] = slot
            if isinstance(slot, _Slot):
                held[nonce] = slot
        self._write(sum(slot is None for slot in slots))
        tokens = self._tokens([slot for slot in slots if isinstance(slot, _Slot)])
        return [
            slot if isinstance(slot, (Rejected, NeedsAllShards)) else self._answer_for(slot, tokens)
            for slot in slots
        ]

    def _lock(self, numbers: Collection[int]) -> None:
        """Lock the shards of these numbers in every open round."""
        by_round = {one.row.identity: one for one in self._rounds}
        wanted = {
            name: {number % one.count for number in numbers} for name, one in by_round.items()
        }
        for shard in self._transaction.lock_shards(wanted):
            by_round[shard.round].shards[shard.shard] = shard
        for one in self._rounds:
            one.elsewhere = len(one.shards) < one.count and one.unlocked > 0

    def _held_slots(self, nonces: Sequence[bytes]) -> dict[bytes, _Slot]:
        """The slots that these tickets already hold."""
        held: dict[bytes, _Slot] = {}
        self._rounds = [one for one in self._rounds if self._compute_pseudonyms(one, nonces)]
        names = {one.row.identity: one.names.values() for one in self._rounds}
        found = self._transaction.held_slots(names) if names else {}
        for index, one in enumerate(self._rounds):
            held |= {
                nonce: _Slot(index, found[one.row.identity, name])
                for nonce, name in one.names.items()
                if (one.row.identity, name) in found
            }
        return held

    def _compute_pseudonyms(self, round_: _OpenRound, nonces: Sequence[bytes]) -> bool:
        """Compute the tickets' pseudonyms in a round; False if its key file says it is not open."""
        try:
            names = round_.server.names(b"join" + nonce for nonce in nonces)
        except Rejected:
            return False
        round_.names = dict(zip(nonces, names, strict=True))
        return True

    def _invitation(self, ticket: Ticket) -> bytes:
        """The digest of the ticket's invitation; empty where admission is open."""
        terms = self._terms
        if terms.admission != "invitation":
            return b""
        return invitations.check_shown(ticket.invitation, self._lineage, terms.issuer)

    def _draw(self, ticket: Ticket, invitation: bytes) -> _Slot | NeedsAllShards | None:
        """Assign a new slot and spend the invitation; None if no slot is free."""
        ends = list(accumulate(one.free for one in self._rounds))
        if not ends or not ends[-1]:
            if any(one.elsewhere for one in self._rounds):
                return NeedsAllShards.ALL_SHARDS
            if self._head.digest != self._terms.digest:
                raise Conflict("these terms have successors: read and agree to the current terms")
            self._check_unused(invitation)
            return None
        index = bisect_right(ends, secrets.randbelow(ends[-1]))
        one = self._rounds[index]
        name = one.names[ticket.nonce]
        if invitation and not self._transaction.spend(invitation, name):
            raise _used_invitation()
        number = one.new[name] = one.take()
        return _Slot(index, number)

    def _check_unused(self, invitation: bytes) -> None:
        """Reject a spent invitation also when no slot is free.

        While an experiment is paused, and after it has ended, everyone invited gets the best
        option.
        """
        if not invitation or self._head.state is not State.RUNNING:
            return
        if self._transaction.is_spent(invitation):
            raise _used_invitation()

    def _write(self, unasked: int) -> None:
        new = {
            (one.row.identity, name): slot for one in self._rounds for name, slot in one.new.items()
        }
        if new:
            changed = [one.shards[number] for one in self._rounds for number in one.changed]
            self._transaction.assign_slots(new, changed)
        if unasked:  # telemetry
            self._transaction.count_served(self._lineage, self._head.leader, unasked)

    def _tokens(self, slots: Sequence[_Slot]) -> dict[_Slot, ReportSlot]:
        """The slots with their tokens."""
        tokens: dict[_Slot, ReportSlot] = {}
        for index, one in enumerate(self._rounds):
            mine = [slot for slot in slots if slot.round == index]
            tokens |= dict(zip(mine, one.server.slots(s.number for s in mine), strict=True))
        return tokens

    def _answer_for(self, slot: _Slot | None, tokens: dict[_Slot, ReportSlot]) -> Assigned:
        options = self._terms.options
        if slot is None:
            if policy := self._policy:
                return Assigned("", policy)
            return Assigned(options[self._head.leader % len(options)])
        row = self._rounds[slot.round].row
        option = "" if row.arm == NO_ARM else options[row.option]
        return Assigned(option, row.announcement, tokens[slot])

    @cached_property
    def _policy(self) -> bytes:
        """The latest announcement with a policy by which devices choose; empty without one."""
        terms = self._terms
        if terms.context is None or isinstance(terms.context, FittedTerms):
            return b""
        return self._transaction.latest_policy(terms.digest)


def _used_invitation() -> Forbidden:
    return Forbidden("this invitation is used: each is for one participation")
