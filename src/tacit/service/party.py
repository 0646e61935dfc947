"""Common base of coordinator and helper: terms, rounds, and reports pending until a round closes.

A party is a state machine over a database and its key files. Database changes are transactional,
key files change by compare-and-swap, and calls are idempotent. A party trusts no other party about
the progress of a round. This module contains no HTTP. Clock and noise are injected: the clock by
the process that runs the party, the noise by tests only.
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

from tacit.aggregation.aggregator import Aggregator, ClosedRound, UnknownRound
from tacit.aggregation.aggregator import CheckedShare as CheckedHalf
from tacit.aggregation.aggregator_context import (
    AggregatorContext,
    AggregatorStage,
    Draw,
    RoundRecord,
)
from tacit.aggregation.interface import IDENTITY_SIZE
from tacit.aggregation.two_servers import SHARE_FRONT, SLOT, RoundOutcome
from tacit.aggregation.wire import HEADER_SIZE, Kind, header
from tacit.errors import Refusal, TacitError
from tacit.noise import DiscreteLaplace
from tacit.records import Records
from tacit.service import store
from tacit.service.errors import Conflict, Forbidden, Gone, TooEarly, Unknown
from tacit.service.store import Store
from tacit.signatures import SIGNATURE_SIZE, fingerprint, public_key
from tacit.terms import Pinned, Terms, check_live, cosign

Clock = Callable[[], float]
Noise = Callable[[bytes], Draw]
"""Selects the noise sampler of a round by the round's identity."""

LOG = store.LOG
COORDINATOR, HELPER = 0, 1
KIND = "two-servers"
LIVE = store.LIVE

# Built once: every device request runs them.
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
    """Terms known to a party. `signatures` holds those of all parties, or is empty."""

    terms: Terms
    signatures: tuple[bytes, ...]
    approvals: tuple[bytes, ...]
    lineage: bytes


class TermsStatus(NamedTuple):
    """Terms with the state of their experiment and the terms that succeeded them, if any."""

    known: Registered
    state: str
    successor: Registered | None


@dataclass(frozen=True, repr=False)
class CheckedReport:
    """A validated report, to be written with others in one transaction."""

    identity: bytes
    server: Aggregator
    half: CheckedHalf
    invitation: bytes = b""


def exact_noise(_identity: bytes) -> Draw:
    """Exact sampler of discrete Laplace noise, from the operating system's randomness."""
    return _draw


def _draw(scale: Fraction) -> int:
    return DiscreteLaplace(scale).draw()


class ServerParty:
    """One of the two aggregators, with its signing keys, database and key files.

    `former` holds the party's earlier keys. Experiments whose terms name one of them continue with
    it.
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
        self._servers: dict[bytes, Aggregator] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.store!r})"

    @property
    def now(self) -> int:
        """This party's clock, in whole seconds since 1970."""
        return int(self._clock())

    def ready(self) -> None:
        """Raise `Unavailable` if the database or the key files cannot be used."""
        self.records.read(b"ready")
        with self.store.read() as connection:
            connection.execute(sql.select(sql.func.count()).select_from(store.terms))

    # Terms

    def experiments(self) -> list[Registered]:
        """All terms known to this party."""
        with self.store.read() as connection:
            rows = connection.execute(sql.select(store.terms).order_by(store.terms.c.digest)).all()
        return [_registered(row) for row in rows]

    def terms(self, digest: bytes) -> Registered:
        """The terms with this digest."""
        with self.store.read() as connection:
            return self._terms(connection, digest)

    def _terms(self, connection: sql.Connection, digest: bytes) -> Registered:
        row = connection.execute(_KNOWN, {"digest": digest}).one_or_none()
        if row is None:
            raise _nowhere(digest)
        return _registered(row)

    def state(self, known: Registered) -> str:
        """The experiment's state, as far as this party knows it."""
        with self.store.read() as connection:
            return self._state(connection, known)

    def _state(self, connection: sql.Connection, known: Registered) -> str:  # noqa: ARG002
        return "running" if known.signatures else "unsigned"

    def shown(self, digest: bytes) -> TermsStatus:
        """The terms with this digest, their state and their successor, as sent to devices."""
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
        """Store terms, or the signatures under known terms."""
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
        """Reject terms of rehearsals, of another party or another kind of round."""
        check_live(terms)
        if terms.kind != KIND or terms.noise.by != "servers":
            raise TacitError(
                f"live experiments run over {KIND} with noise by servers; these terms say "
                f"{terms.kind} with noise by {terms.noise.by}"
            )
        self.key_for(terms)

    def key_for(self, terms: Terms) -> Ed25519PrivateKey:
        """The signing key of this party that the terms name."""
        named = terms.keys[self.role]
        if named not in self._keys:
            raise Refusal(
                f"the terms name {fingerprint(named)} as the key of the "
                f"{terms.parties[self.role].role}; this party's is {fingerprint(self.public_key)}"
            )
        return self._keys[named]

    def pinned(self, digest: bytes) -> Pinned:
        """The terms with this digest and all signatures, verified once."""
        if digest not in self._pinned:
            known = self.terms(digest)
            if not known.signatures:
                raise Conflict(
                    "the helper's operator has not signed these terms yet: tacit terms cosign"
                )
            self._lineages[digest] = known.lineage
            self._pinned[digest] = Pinned(known.terms, known.signatures, known.terms.keys)
        return self._pinned[digest]

    def aggregator_context(self, digest: bytes, identity: bytes) -> AggregatorContext:
        """This party's aggregator context for one round of an experiment."""
        pinned = self.pinned(digest)
        key, draw = self.key_for(pinned.terms), self._noise(identity)
        return AggregatorContext(pinned, self.role, key, self.records, draw)

    def signature(self, digest: bytes) -> bytes:
        """This party's own signature under known terms."""
        terms = self.terms(digest).terms
        return cosign(terms, self.key_for(terms))

    # Reports

    def report(
        self, identity: bytes, place: int, message: bytes, invitation: str | None = None
    ) -> CheckedReport:
        """Validate a report share as far as possible without writing to the database."""
        server = self.server(identity)
        try:
            half = server.check(message, self.now)
        except UnknownRound as reason:
            raise Unknown(str(reason)) from None
        except ClosedRound as reason:
            raise Gone(str(reason)) from None
        if SLOT.unpack_from(message, HEADER_SIZE + SHARE_FRONT - SLOT.size)[0] != place:
            raise Refusal(f"this report is not that of place {place}")
        return CheckedReport(identity, server, half, self._invited(server, invitation))

    def _invited(self, server: Aggregator, invitation: str | None) -> bytes:  # noqa: ARG002
        """The digest of the invitation that a report needs here; empty for none."""
        return b""

    def keep(self, waiting: Sequence[CheckedReport]) -> list[Refusal | None]:
        """Store reports in one durable transaction.

        Returns, for each report, None or the reason of its rejection.
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
        """Stages of rounds, locked so that none closes before this transaction ends."""
        found = connection.execute(_STAGES, {"identities": store.padded(sorted(identities))})
        return {bytes(identity): stage for identity, stage in found}

    def _spend(
        self,
        connection: sql.Connection,
        waiting: Sequence[CheckedReport],
        taken: Sequence[int],
        refusals: list[Refusal | None],
    ) -> None:
        """Spend each report's invitation; reject reports whose invitation is spent."""
        invited = [n for n in taken if waiting[n].invitation]
        for n in invited:
            if not self.spent_for(connection, waiting[n].invitation, waiting[n].half.name):
                refusals[n] = Forbidden("this invitation has been used: each is for one report")

    def spent_for(self, connection: sql.Connection, invitation: bytes, name: bytes) -> bool:
        """Spend an invitation for this name; False if it is spent for another name."""
        self.store.insert_new(connection, store.spent, [{"invitation": invitation, "name": name}])
        query = sql.select(store.spent.c.name).where(store.spent.c.invitation == invitation)
        return bytes(connection.execute(query).scalar_one()) == name

    # Rounds

    def at_hand(self, identity: bytes) -> bool:
        """Whether a report of this round can be checked without a database query."""
        return identity in self._servers

    def server(self, identity: bytes) -> Aggregator:
        """This party's aggregator of an announced, live round."""
        with self._lock:
            found = self._servers.get(identity)
        if found is not None:
            return found
        row = self._round(identity)
        if row is None or row.stage not in LIVE:
            raise Unknown("this round is unknown here, or over")
        return self.serving(row)

    def serving(self, row: Any) -> Aggregator:
        """The aggregator of the round in this row, whatever its stage."""
        identity, digest = bytes(row.identity), bytes(row.terms)
        with self._lock:
            found = self._servers.get(identity)
        if found is not None:
            return found
        table = store.PendingShares(self.store, identity)
        made = Aggregator(self.aggregator_context(digest, identity), bytes(row.announcement), table)
        if row.stage not in LIVE:
            return made
        with self._lock:
            return self._servers.setdefault(identity, made)

    def _round(self, identity: bytes) -> Any:
        with self.store.read() as connection:
            query = sql.select(store.rounds).where(store.rounds.c.identity == identity)
            return connection.execute(query).one_or_none()

    def _driven(self, *stages: str) -> list[Any]:
        """All rounds in these stages; evicts cached aggregators of all other rounds.

        Eviction is needed because another process may have ended a round, or a request that read
        the round before its end may have cached its aggregator again.
        """
        with self._lock:
            held = set(self._servers)
        rows = self._rounds(*stages)
        with self._lock:
            for identity in held.difference(bytes(row.identity) for row in rows):
                self._servers.pop(identity, None)
        return rows

    def _rounds(self, *stages: str) -> list[Any]:
        """All rounds in these stages."""
        with self.store.read() as connection:
            query = sql.select(store.rounds).where(store.rounds.c.stage.in_(stages))
            return list(connection.execute(query.order_by(store.rounds.c.number)).all())

    def experiment_of(self, identity: bytes) -> bytes:
        """The digest of the terms of a round."""
        row = self._round(identity)
        if row is None:
            raise Unknown("this round is unknown here")
        return bytes(row.terms)

    def gauges(self) -> dict[str, dict[str, float]]:
        """Metrics for monitoring, by kind; none concerns a single participant."""
        late = [self.now - int(row.closes) for row in self._rounds("closing")]
        return {
            "rounds": {stage: float(count) for stage, count in self.stages().items()},
            "seconds_since_deadline": {"oldest": float(max([0, *late]))},
        }

    def stages(self) -> dict[str, int]:
        """The number of rounds in each stage."""
        stage = store.rounds.c.stage
        with self.store.read() as connection:
            query = sql.select(stage, sql.func.count()).group_by(stage)
            return {name: int(count) for name, count in connection.execute(query)}

    def outcome(self, identity: bytes) -> bytes:
        """The signed outcome of a finished round, read from its key file alone.

        Without a record the outcome is "unknown", which is not signed.
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
        """Move a round from one stage to another; whether this call did it."""
        rounds = store.rounds
        mine = sql.update(rounds).where(rounds.c.identity == identity, rounds.c.stage == old)
        return connection.execute(mine.values(stage=new)).rowcount == 1

    def _close_when_due(self, row: Any, now: int) -> bool:
        """Close a round whose deadline has passed or whose slots have all reported; whether this
        call did it.
        """
        identity = bytes(row.identity)
        with self.store.read() as connection:
            full = store.count_halves(connection, identity) >= int(row.places)
        if now < row.closes and not full:
            return False
        with self.store.begin() as connection:
            return self._move(connection, identity, "open", "closing")

    def _finish(self, connection: sql.Connection, identity: bytes, stage: str) -> bool:
        """End a round and delete its pending rows; whether this call did it."""
        moved = self._move(connection, identity, "closing", stage)
        for table in (store.halves, store.joins):
            connection.execute(sql.delete(table).where(table.c.round == identity))
        with self._lock:
            self._servers.pop(identity, None)
        return moved


_decoded = lru_cache(maxsize=256)(Terms.decode)  # devices keep requesting the same terms


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
    """The stored contents under these names of these rounds."""
    rounds, names = {identity for identity, _ in keys}, [name for _, name in keys]
    asked = {"rounds": store.padded(rounds), "names": store.padded(names)}
    rows = connection.execute(_CONTENTS, asked)
    return {(bytes(row.round), bytes(row.name)): bytes(row.content) for row in rows}


def _compared(one: CheckedReport, there: bytes | None) -> Refusal | None:
    """None if the stored report is this one, otherwise the reason of the rejection."""
    try:
        if there is not None and one.server.same(one.half, there):
            return None
    except Refusal:
        return Gone("this round takes no more reports; it is closed")
    return Conflict("this place has reported before, and something else")
