"""Slot assignment: many tickets at once, in one transaction.

Each slot is drawn uniformly from the free slots of all open rounds under the terms that the device
was shown. Participants are anonymous: a ticket is stored only as an HMAC pseudonym under the
round's secret, until the round is over.

Invitations are checked first, whether or not a slot is free. Requests that find no slot are counted
as telemetry. They never reach the learner, so they cannot end an experiment.
"""

from __future__ import annotations

import secrets
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

import sqlalchemy as sql

from tacit.aggregation.aggregator import Aggregator
from tacit.aggregation.two_servers import ReportSlot
from tacit.errors import Refusal
from tacit.service import invitations, store
from tacit.service.errors import Conflict, Forbidden
from tacit.service.party import Registered, ServerParty

Choose = Callable[[bytes, int], int]
"""Maps a ticket's nonce and the number of free slots to the index of a slot."""

NONCE_SIZE = 16

# Built once: every join request runs them.
_STANDING = sql.select(
    store.experiments.c.state, store.experiments.c.digest, store.experiments.c.leader
).where(store.experiments.c.lineage == sql.bindparam("lineage"))
_OPEN = (
    sql.select(store.rounds)
    .where(
        store.rounds.c.terms == sql.bindparam("digest"),
        store.rounds.c.stage == "open",
        store.rounds.c.assigned_until >= sql.bindparam("now"),
    )
    .order_by(store.rounds.c.identity)
    .with_for_update()
)
_HELD = sql.select(store.joins.c.name, store.joins.c.place).where(
    store.joins.c.round == sql.bindparam("mine"),
    store.joins.c.name.in_(sql.bindparam("names", expanding=True)),
)
_USED = sql.select(store.spent.c.name).where(
    store.spent.c.invitation == sql.bindparam("invitation")
)
_JOIN = sql.insert(store.joins)
_GIVE = (
    sql.update(store.rounds)
    .where(store.rounds.c.identity == sql.bindparam("mine"))
    .values(given=sql.bindparam("taken"))
)


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
            raise Refusal(f"a nonce has {NONCE_SIZE} bytes; this has {len(self.nonce)}")


@dataclass(frozen=True)
class Assigned:
    """The option assigned to a ticket, and its slot. Without a slot, the device sends no report."""

    option: str
    announcement: bytes = b""
    place: ReportSlot | None = None


def at_random(_nonce: bytes, places: int) -> int:
    """A uniformly random index, from the operating system's randomness."""
    return secrets.randbelow(places)


@dataclass
class _Open:
    """An open round and the slots assigned in this transaction."""

    row: Any
    server: Aggregator
    given: int
    names: dict[bytes, bytes] = field(default_factory=dict)
    new: dict[bytes, int] = field(default_factory=dict)

    @property
    def left(self) -> int:
        return int(self.row.places) - self.given


class _Seat(NamedTuple):
    """A slot in one of the open rounds."""

    round: int
    number: int


class SlotAssigner:
    """Assigns slots of one experiment within one transaction."""

    def __init__(
        self, party: ServerParty, connection: sql.Connection, known: Registered, choose: Choose
    ) -> None:
        self._party, self._connection = party, connection
        self._known, self._choose = known, choose
        standing = connection.execute(_STANDING, {"lineage": known.lineage}).one()
        state, current, self._leader = standing
        self._current = bytes(current) == known.terms.digest
        self._running = state == "running"
        self._rounds = self._open() if self._running else []

    def _open(self) -> list[_Open]:
        """The open rounds, locked against concurrent assignment."""
        asked = {"digest": self._known.terms.digest, "now": self._party.now}
        rows = self._connection.execute(_OPEN, asked).all()
        return [_Open(row, self._party.serving(row), int(row.given)) for row in rows]

    def assign(self, tickets: Sequence[Ticket]) -> list[Assigned | Refusal]:
        """Answer each ticket with its existing slot, a new slot, or an option without a slot.

        A ticket without a valid invitation is rejected where the terms require one.
        """
        held = self._held([ticket.nonce for ticket in tickets])
        seats: list[_Seat | Refusal | None] = []
        for ticket in tickets:
            seat: _Seat | Refusal | None
            try:
                invitation = self._invitation(ticket)
                seat = held.get(ticket.nonce) or self._draw(ticket, invitation)
            except Refusal as reason:
                seat = reason
            if isinstance(seat, _Seat):
                held[ticket.nonce] = seat
            seats.append(seat)
        self._write(sum(seat is None for seat in seats))
        places = self._places([seat for seat in seats if isinstance(seat, _Seat)])
        return [seat if isinstance(seat, Refusal) else self._said(seat, places) for seat in seats]

    def _held(self, nonces: Sequence[bytes]) -> dict[bytes, _Seat]:
        """The slots that these tickets already hold."""
        held: dict[bytes, _Seat] = {}
        self._rounds = [one for one in self._rounds if self._named(one, nonces)]
        for place, one in enumerate(self._rounds):
            asked = {"mine": one.row.identity, "names": store.padded(one.names.values())}
            rows = self._connection.execute(_HELD, asked)
            found = {bytes(name): int(number) for name, number in rows}
            held |= {
                nonce: _Seat(place, found[name])
                for nonce, name in one.names.items()
                if name in found
            }
        return held

    def _named(self, one: _Open, nonces: Sequence[bytes]) -> bool:
        """Compute the tickets' pseudonyms in a round; False if its key file says it is not open."""
        try:
            names = one.server.names(b"join" + nonce for nonce in nonces)
        except Refusal:
            return False
        one.names = dict(zip(nonces, names, strict=True))
        return True

    def _invitation(self, ticket: Ticket) -> bytes:
        """The digest of the ticket's invitation; empty where admission is open."""
        terms = self._known.terms
        if terms.admission != "invitation":
            return b""
        return invitations.check(ticket.invitation, self._known.lineage, terms.issuer)

    def _draw(self, ticket: Ticket, invitation: bytes) -> _Seat | None:
        """Assign a new slot and spend the invitation; None if no slot is free."""
        ends = list(accumulate(one.left for one in self._rounds))
        if not ends or not ends[-1]:
            if not self._current:
                raise Conflict("these terms have been succeeded by others: read those")
            self._check_unused(invitation)
            return None
        place = bisect_right(ends, self._choose(ticket.nonce, ends[-1]))
        one = self._rounds[place]
        name = one.names[ticket.nonce]
        if invitation and not self._party.spent_for(self._connection, invitation, name):
            raise _used()
        one.new[name] = one.given
        one.given += 1
        return _Seat(place, one.given - 1)

    def _check_unused(self, invitation: bytes) -> None:
        """Reject a spent invitation also when no slot is free.

        While an experiment is paused, and after it has ended, everyone invited gets the best
        option.
        """
        if not invitation or not self._running:
            return
        if self._connection.execute(_USED, {"invitation": invitation}).first() is not None:
            raise _used()

    def _write(self, unasked: int) -> None:
        for one in self._rounds:
            if one.new:
                identity = one.row.identity
                entries = [
                    {"round": identity, "name": name, "place": place}
                    for name, place in one.new.items()
                ]
                self._connection.execute(_JOIN, entries)
                self._connection.execute(_GIVE, {"mine": identity, "taken": one.given})
        if unasked:
            self._count(unasked)

    def _count(self, unasked: int) -> None:
        """Telemetry: count requests that found no slot."""
        served, lineage = store.served, self._known.lineage
        row = {"lineage": lineage, "option": self._leader, "waiting": 0, "total": 0}
        self._party.store.insert_new(self._connection, served, [row])
        mine = sql.update(served).where(
            served.c.lineage == lineage, served.c.option == self._leader
        )
        self._connection.execute(
            mine.values(waiting=served.c.waiting + unasked, total=served.c.total + unasked)
        )

    def _places(self, seats: Sequence[_Seat]) -> dict[_Seat, ReportSlot]:
        """The slots with their tokens."""
        places: dict[_Seat, ReportSlot] = {}
        for number, one in enumerate(self._rounds):
            mine = [seat for seat in seats if seat.round == number]
            places |= dict(zip(mine, one.server.slots(s.number for s in mine), strict=True))
        return places

    def _said(self, seat: _Seat | None, places: dict[_Seat, ReportSlot]) -> Assigned:
        options = self._known.terms.options
        if seat is None:
            return Assigned(options[self._leader % len(options)])
        row = self._rounds[seat.round].row
        return Assigned(options[row.option], bytes(row.announcement), places[seat])


def _used() -> Forbidden:
    return Forbidden("this invitation has been used: each is for one participation")
