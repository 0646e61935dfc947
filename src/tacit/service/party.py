"""What coordinator and helper have in common: terms, rounds, and reports that wait for the close.

A party is a state machine over a store and its key files: what comes in changes both in one
transaction, the same again gives the same answer, and nobody else is believed about how far a round
is. There is no HTTP here; clock and noise are handed in, the clock by whoever runs the party and
the noise by tests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import sqlalchemy as sql
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.aggregation.aggregator import CheckedShare as CheckedHalf
from tacit.aggregation.aggregator import ClosedRound, HalfServer, UnknownRound
from tacit.aggregation.aggregator_context import AggregatorStage, Draw, RoundRecord, Seat
from tacit.aggregation.interface import IDENTITY_SIZE
from tacit.aggregation.two_servers import HALF_FRONT, PLACE, RoundOutcome
from tacit.aggregation.wire import HEADER_SIZE, Kind, header
from tacit.errors import Refusal, TacitError
from tacit.noise import DiscreteLaplace
from tacit.records import Records
from tacit.service import store
from tacit.service.errors import Conflict, Forbidden, Gone, TooEarly, Unknown
from tacit.service.store import Store
from tacit.signatures import SIGNATURE_SIZE, fingerprint, public_key
from tacit.terms import Pinned, Terms, cosign

Clock = Callable[[], float]
Noise = Callable[[bytes], Draw]
"""Which noise a server draws in which round."""

LOG = store.LOG
COORDINATOR, HELPER = 0, 1
KIND = "two-servers"
LIVE = store.LIVE

# made once, because every device asks them
_KNOWN = sql.select(store.terms).where(store.terms.c.digest == sql.bindparam("digest"))
_LINE = sql.select(store.terms).where(
    store.terms.c.lineage
    == sql.select(store.terms.c.lineage)
    .where(store.terms.c.digest == sql.bindparam("digest"))
    .scalar_subquery()
)
_STAGES = (
    sql.select(store.rounds.c.identity, store.rounds.c.stage)
    .where(store.rounds.c.identity.in_(sql.bindparam("identities", expanding=True)))
    .order_by(store.rounds.c.identity)
    .with_for_update(read=True)
)
_CONTENTS = sql.select(store.halves).where(
    store.halves.c.round.in_(sql.bindparam("rounds", expanding=True)),
    store.halves.c.name.in_(sql.bindparam("names", expanding=True)),
)


@dataclass(frozen=True)
class Registered:
    """Terms as a party knows them. `signatures` are those of all parties, or none yet."""

    terms: Terms
    signatures: tuple[bytes, ...]
    approvals: tuple[bytes, ...]
    lineage: bytes


class TermsStatus(NamedTuple):
    """Terms at one moment: how far their experiment is, and the terms that took their place."""

    known: Registered
    state: str
    successor: Registered | None


@dataclass(frozen=True, repr=False)
class CheckedReport:
    """A report that was checked and waits to be written down, with others, in one transaction."""

    identity: bytes
    server: HalfServer
    half: CheckedHalf
    invitation: bytes = b""


def exact_noise(_identity: bytes) -> Draw:
    """Discrete Laplace noise, drawn exactly from the operating system's source."""
    return _draw


def _draw(scale: Fraction) -> int:
    return DiscreteLaplace(scale).draw()


class ServerParty:
    """One of the two servers, with its key, its database and its key files. `former` are keys that
    it had before: what runs under terms that name one of them goes on with it.
    """

    role: int

    def __init__(
        self,
        key: Ed25519PrivateKey,
        database: Store,
        records: Records,
        *,
        former: Sequence[Ed25519PrivateKey] = (),
        clock: Clock = time.time,
        noise: Noise = exact_noise,
    ) -> None:
        self.public_key = public_key(key)
        self._keys = {public_key(one): one for one in (key, *former)}
        self.store = database
        self.records = records
        self._clock = clock
        self._noise = noise
        self._pinned: dict[bytes, Pinned] = {}
        self._lineages: dict[bytes, bytes] = {}
        self._servers: dict[bytes, HalfServer] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.store!r})"

    @property
    def now(self) -> int:
        """This party's time, in whole seconds since 1970."""
        return int(self._clock())

    def ready(self) -> None:
        """Says `Unavailable` if the database or the key files cannot be used."""
        self.records.read(b"ready")
        with self.store.read() as connection:
            connection.execute(sql.select(sql.func.count()).select_from(store.terms))

    # Terms

    def experiments(self) -> list[Registered]:
        """All terms that this party knows."""
        with self.store.read() as connection:
            rows = connection.execute(sql.select(store.terms).order_by(store.terms.c.digest)).all()
        return [_registered(row) for row in rows]

    def terms(self, digest: bytes) -> Registered:
        """The terms of this digest."""
        with self.store.read() as connection:
            return self._terms(connection, digest)

    def _terms(self, connection: sql.Connection, digest: bytes) -> Registered:
        row = connection.execute(_KNOWN, {"digest": digest}).one_or_none()
        if row is None:
            raise _nowhere(digest)
        return _registered(row)

    def state(self, known: Registered) -> str:
        """How far the experiment is, as far as this party knows."""
        with self.store.read() as connection:
            return self._state(connection, known)

    def _state(self, connection: sql.Connection, known: Registered) -> str:  # noqa: ARG002
        return "running" if known.signatures else "unsigned"

    def shown(self, digest: bytes) -> TermsStatus:
        """What a device is shown of the terms of this digest."""
        with self.store.read() as connection:
            found = [_registered(row) for row in connection.execute(_LINE, {"digest": digest})]
            known = next((one for one in found if one.terms.digest == digest), None)
            if known is None:
                raise _nowhere(digest)
            state = self._state(connection, known)
        after = (one for one in found if one.signatures and one.terms.predecessor == digest)
        return TermsStatus(known, state, next(after, None))

    def _register(
        self,
        connection: sql.Connection,
        terms: Terms,
        signatures: Sequence[bytes] = (),
        approvals: Sequence[bytes] = (),
    ) -> None:
        """Writes terms down, or the signatures under terms that are known."""
        lineage = terms.digest
        if terms.predecessor:
            lineage = self._terms(connection, terms.predecessor).lineage
        row = {
            "digest": terms.digest,
            "lineage": lineage,
            "document": terms.encode(),
            "signatures": b"".join(signatures),
            "approvals": b"".join(approvals),
        }
        self.store.insert_new(connection, store.terms, [row])
        if signatures:
            known = store.terms.c.digest == terms.digest
            connection.execute(sql.update(store.terms).where(known).values(row))

    def _check_own(self, terms: Terms) -> None:
        """Rejects terms that are not for this party and this kind of round."""
        if terms.kind != KIND or terms.noise.by != "servers":
            raise TacitError(
                f"live experiments run over {KIND} with noise by servers; these terms say "
                f"{terms.kind} with noise by {terms.noise.by}"
            )
        self.key_for(terms)

    def key_for(self, terms: Terms) -> Ed25519PrivateKey:
        """The key of this party that terms name."""
        named = terms.keys[self.role]
        if named not in self._keys:
            raise Refusal(
                f"the terms name {fingerprint(named)} as the key of the "
                f"{terms.parties[self.role].role}; this party's is {fingerprint(self.public_key)}"
            )
        return self._keys[named]

    def pinned(self, digest: bytes) -> Pinned:
        """The terms of this digest with all signatures, checked once."""
        if digest not in self._pinned:
            known = self.terms(digest)
            if not known.signatures:
                raise Conflict(
                    "the helper's operator has not signed these terms yet: tacit terms cosign"
                )
            self._lineages[digest] = known.lineage
            self._pinned[digest] = Pinned(known.terms, known.signatures, known.terms.keys)
        return self._pinned[digest]

    def seat(self, digest: bytes, identity: bytes) -> Seat:
        """This party's seat in one round of an experiment."""
        pinned = self.pinned(digest)
        key, draw = self.key_for(pinned.terms), self._noise(identity)
        return Seat(pinned, self.role, key, self.records, draw)

    def signature(self, digest: bytes) -> bytes:
        """This party's own signature under terms that it knows."""
        terms = self.terms(digest).terms
        return cosign(terms, self.key_for(terms))

    # Reports

    def report(
        self, identity: bytes, place: int, message: bytes, invitation: str | None = None
    ) -> CheckedReport:
        """A report that may be kept: everything that can be said without writing is said here."""
        server = self.server(identity)
        try:
            half = server.check(message, self.now)
        except UnknownRound as reason:
            raise Unknown(str(reason)) from None
        except ClosedRound as reason:
            raise Gone(str(reason)) from None
        if PLACE.unpack_from(message, HEADER_SIZE + HALF_FRONT - PLACE.size)[0] != place:
            raise Refusal(f"this report is not that of place {place}")
        return CheckedReport(identity, server, half, self._invited(server, invitation))

    def _invited(self, server: HalfServer, invitation: str | None) -> bytes:  # noqa: ARG002
        """The digest of the invitation that a report needs here; empty for none."""
        return b""

    def keep(self, waiting: Sequence[CheckedReport]) -> list[Refusal | None]:
        """Writes reports down in one transaction, which is on disk afterwards; for each None, or
        why it was not taken.
        """
        refusals: list[Refusal | None] = [None] * len(waiting)
        with self.store.begin() as connection:
            stages = self._stages(connection, {one.identity for one in waiting})
            for place, one in enumerate(waiting):
                if stages.get(one.identity) != "open":
                    refusals[place] = Gone("this round takes no more reports; it is closed")
            taken = [n for n, refusal in enumerate(refusals) if refusal is None]
            self._spend(connection, waiting, taken, refusals)
            taken = [n for n in taken if refusals[n] is None]
            rows = [(waiting[n].identity, waiting[n].half.name) for n in taken]
            self.store.insert_new(connection, store.halves, [_row(waiting[n]) for n in taken])
            there = _contents(connection, rows)
        for n in taken:
            one = waiting[n]
            refusals[n] = _compared(one, there.get((one.identity, one.half.name)))
        return refusals

    def _stages(self, connection: sql.Connection, identities: set[bytes]) -> dict[bytes, str]:
        """How far rounds are; none of them closes before this transaction has ended."""
        found = connection.execute(_STAGES, {"identities": store.padded(sorted(identities))})
        return {bytes(identity): stage for identity, stage in found}

    def _spend(
        self,
        connection: sql.Connection,
        waiting: Sequence[CheckedReport],
        taken: Sequence[int],
        refusals: list[Refusal | None],
    ) -> None:
        """Each invitation is for one report."""
        invited = [n for n in taken if waiting[n].invitation]
        for n in invited:
            if not self.spent_for(connection, waiting[n].invitation, waiting[n].half.name):
                refusals[n] = Forbidden("this invitation has been used: each is for one report")

    def spent_for(self, connection: sql.Connection, invitation: bytes, name: bytes) -> bool:
        """Whether an invitation is spent for what has this name, and for nothing else."""
        self.store.insert_new(connection, store.spent, [{"invitation": invitation, "name": name}])
        query = sql.select(store.spent.c.name).where(store.spent.c.invitation == invitation)
        return bytes(connection.execute(query).scalar_one()) == name

    # Rounds

    def at_hand(self, identity: bytes) -> bool:
        """Whether a report of this round can be checked without asking the database."""
        return identity in self._servers

    def server(self, identity: bytes) -> HalfServer:
        """This party's server of a round that was announced."""
        with self._lock:
            found = self._servers.get(identity)
        if found is not None:
            return found
        row = self._round(identity)
        if row is None or row.stage not in LIVE:
            raise Unknown("this round is unknown here, or over")
        return self.serving(row)

    def serving(self, row: Any) -> HalfServer:
        """The server of the round in this row, whatever its stage."""
        identity, digest = bytes(row.identity), bytes(row.terms)
        with self._lock:
            found = self._servers.get(identity)
        if found is not None:
            return found
        table = store.PendingShares(self.store, identity)
        made = HalfServer(self.seat(digest, identity), bytes(row.announcement), table)
        if row.stage not in LIVE:
            return made
        with self._lock:
            return self._servers.setdefault(identity, made)

    def _round(self, identity: bytes) -> Any:
        with self.store.read() as connection:
            query = sql.select(store.rounds).where(store.rounds.c.identity == identity)
            return connection.execute(query).one_or_none()

    def _driven(self, *stages: str) -> list[Any]:
        """All rounds in one of these stages, those with reports among them. Nothing else stays at
        hand: another process may have ended a round, or a request brought its server back that had
        looked before the end.
        """
        with self._lock:
            held = set(self._servers)
        rows = self._rounds(*stages)
        with self._lock:
            for identity in held.difference(bytes(row.identity) for row in rows):
                self._servers.pop(identity, None)
        return rows

    def _rounds(self, *stages: str) -> list[Any]:
        """All rounds in one of these stages."""
        with self.store.read() as connection:
            query = sql.select(store.rounds).where(store.rounds.c.stage.in_(stages))
            return list(connection.execute(query.order_by(store.rounds.c.number)).all())

    def experiment_of(self, identity: bytes) -> bytes:
        """The digest of the terms that a round is under."""
        row = self._round(identity)
        if row is None:
            raise Unknown("this round is unknown here")
        return bytes(row.terms)

    def gauges(self) -> dict[str, dict[str, float]]:
        """Numbers for whoever watches, by kind; nothing about anybody."""
        late = [self.now - int(row.closes) for row in self._rounds("closing")]
        return {
            "rounds": {stage: float(count) for stage, count in self.stages().items()},
            "seconds_since_deadline": {"oldest": float(max([0, *late]))},
        }

    def stages(self) -> dict[str, int]:
        """How many rounds are in which stage."""
        stage = store.rounds.c.stage
        with self.store.read() as connection:
            query = sql.select(stage, sql.func.count()).group_by(stage)
            return {name: int(count) for name, count in connection.execute(query)}

    def outcome(self, identity: bytes) -> bytes:
        """What became of a round: one fixed signed answer once it is over, read from the key file
        alone; where there is none, "unknown", which is not signed.
        """
        if len(identity) != IDENTITY_SIZE:
            raise Unknown(f"a round has a name of {IDENTITY_SIZE} bytes")
        found = self.records.read(bytes((self.role,)) + identity)
        record = None if found is None else RoundRecord.decode(found)
        if record is not None and record.stage is not AggregatorStage.CLOSED:
            raise TooEarly("this round is not over yet; ask again after its deadline")
        if record is None or not record.outcome:
            return header(Kind.OUTCOME, identity) + bytes((self.role, RoundOutcome.UNKNOWN))
        return record.outcome

    def _move(self, connection: sql.Connection, identity: bytes, old: str, new: str) -> bool:
        """Whether this call took a round from one stage to the next."""
        rounds = store.rounds
        mine = sql.update(rounds).where(rounds.c.identity == identity, rounds.c.stage == old)
        return connection.execute(mine.values(stage=new)).rowcount == 1

    def _close_when_due(self, row: Any, now: int) -> bool:
        """Whether a round takes no more reports from now on: its deadline is over, or every place
        has reported.
        """
        identity = bytes(row.identity)
        with self.store.read() as connection:
            full = store.count_halves(connection, identity) >= int(row.places)
        if now < row.closes and not full:
            return False
        with self.store.begin() as connection:
            return self._move(connection, identity, "open", "closing")

    def _finish(self, connection: sql.Connection, identity: bytes, stage: str) -> bool:
        """Ends a round and deletes what waited for it; whether this call did it."""
        moved = self._move(connection, identity, "closing", stage)
        for table in (store.halves, store.joins):
            connection.execute(sql.delete(table).where(table.c.round == identity))
        with self._lock:
            self._servers.pop(identity, None)
        return moved


_decoded = lru_cache(maxsize=256)(Terms.decode)  # as often as devices ask for the same ones


def _nowhere(digest: bytes) -> Unknown:
    return Unknown(f"there is no experiment {digest.hex()} here")


def _registered(row: Any) -> Registered:
    terms = _decoded(bytes(row.document))
    signatures, approvals = _cut(bytes(row.signatures)), _cut(bytes(row.approvals))
    return Registered(terms, signatures, approvals, bytes(row.lineage))


def _cut(data: bytes) -> tuple[bytes, ...]:
    return tuple(data[at : at + SIGNATURE_SIZE] for at in range(0, len(data), SIGNATURE_SIZE))


def _row(one: CheckedReport) -> dict[str, bytes]:
    return {"round": one.identity, "name": one.half.name, "content": one.half.wrapped}


def _contents(
    connection: sql.Connection, keys: Sequence[tuple[bytes, bytes]]
) -> dict[tuple[bytes, bytes], bytes]:
    """What is kept under these names of these rounds."""
    rounds, names = {identity for identity, _ in keys}, [name for _, name in keys]
    asked = {"rounds": store.padded(rounds), "names": store.padded(names)}
    rows = connection.execute(_CONTENTS, asked)
    return {(bytes(row.round), bytes(row.name)): bytes(row.content) for row in rows}


def _compared(one: CheckedReport, there: bytes | None) -> Refusal | None:
    """Nothing if this very report is kept now."""
    try:
        if there is not None and one.server.same(one.half, there):
            return None
    except Refusal:
        return Gone("this round takes no more reports; it is closed")
    return Conflict("this place has reported before, and something else")
