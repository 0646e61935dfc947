"""Common base of coordinator and helper: terms, rounds, and reports pending until a round closes.

A party is a state machine over a database and its key files. Database changes are transactional,
key files change by compare-and-swap, and calls are idempotent. A party trusts no other party about
the progress of a round. This module contains no HTTP. Clock and noise are injected: the clock by
the process that runs the party, the noise by tests only.
"""

from __future__ import annotations

import hmac
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Generic, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from typing_extensions import TypeVar

from tacit.aggregation.aggregator_context import Draw
from tacit.aggregation.interface import IDENTITY_SIZE, CheckedShare, ClosedRound, UnknownRound
from tacit.aggregation.two_servers import SLOT, TOKEN_SIZE, ReportSlot, RoundOutcome
from tacit.aggregation.wire import Kind, header
from tacit.errors import Rejected, TacitError
from tacit.noise import DiscreteLaplace
from tacit.records import Records
from tacit.service.errors import Conflict, Forbidden, Gone, Unknown
from tacit.service.failed_steps import FailedSteps
from tacit.service.schema import LIVE, Registered, RoundRow, Stage, State
from tacit.service.store import Store, Transaction, unknown_experiment
from tacit.service.trust_models.contract import (
    EngineContext,
    Noise,
    RoundEngine,
    engine_in,
)
from tacit.service.trust_models.rounds import HelperLink, ServedRound
from tacit.signatures import fingerprint, public_key
from tacit.terms import Pinned, Terms, check_live, cosign

Engine = TypeVar("Engine", bound=RoundEngine, default=RoundEngine, covariant=True)
Clock = Callable[[], float]
COORDINATOR, HELPER = 0, 1
SOON = 0.1
READY = 1.0  # seconds for which a write probe is cached


class TermsStatus(NamedTuple):
    """Terms with the state of their experiment and the terms that succeeded them, if any."""

    known: Registered
    state: State
    successor: Registered | None


@dataclass(frozen=True, repr=False)
class CheckedReport:
    """A validated report, to be written with others in one transaction."""

    identity: bytes
    server: ServedRound
    share: CheckedShare
    invitation: bytes = b""
    stages: tuple[Stage, ...] = (Stage.OPEN,)

    def compare(self, stored: bytes | None) -> Rejected | None:
        """Compare with the stored report: None if equal, otherwise the reason of the rejection."""
        try:
            if stored is not None and self.server.same(self.share, stored):
                return None
        except Rejected:
            return _closed_round()
        return Conflict("a different report for this slot is stored: each slot takes one report")


def exact_noise(_identity: bytes) -> Draw:
    """Exact sampler of discrete Laplace noise, from the operating system's randomness."""
    return _draw


def _draw(scale: Fraction) -> int:
    return DiscreteLaplace(scale).draw()


class ServerParty(ABC, Generic[Engine]):
    """The coordinator or the helper, with its signing keys, database and key files.

    `former` holds the party's earlier keys. Experiments whose terms name one of them continue with
    it.
    """

    role: int
    engines: Mapping[str, type[Engine]]
    link: HelperLink | None = None
    """The coordinator's connection to the helpers of its experiments."""

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
        self._engines: dict[bytes, Engine] = {}
        self._servers: dict[bytes, ServedRound] = {}
        self._missing: dict[bytes, int] = {}  # reports, counted by the last step and since
        self.steps = FailedSteps()
        self._lock = threading.Lock()
        self._probing, self._ready_until = threading.Lock(), 0.0

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.store!r})"

    @property
    def now(self) -> int:
        """This party's clock, in whole seconds since 1970."""
        return int(self._clock())

    def ready(self) -> None:
        """Raise `Unavailable` if the database or the key files cannot be read and written.

        Every call reads. A successful write is cached for `READY` seconds, because anyone may ask.
        """
        self.records.read(b"ready")
        self.store.used()
        with self._probing:
            if time.monotonic() >= self._ready_until:
                self.records.probe()
                self.store.probe()
                self._ready_until = time.monotonic() + READY

    # Terms

    def experiments(self) -> list[Registered]:
        """All terms known to this party."""
        with self.store.read() as transaction:
            return transaction.all_terms()

    def terms(self, digest: bytes) -> Registered:
        """The terms with this digest."""
        with self.store.read() as transaction:
            return transaction.terms(digest)

    def state(self, known: Registered) -> State:
        """The experiment's state, as far as this party knows it."""
        with self.store.read() as transaction:
            return self._state(transaction, known)

    def _state(self, transaction: Transaction, known: Registered) -> State:  # noqa: ARG002
        return State.RUNNING if known.signatures else State.UNSIGNED

    def terms_status(self, digest: bytes) -> TermsStatus:
        """The terms with this digest, their state and their successor, as sent to devices."""
        with self.store.read() as transaction:
            found = transaction.lineage(digest)
            known = next((one for one in found if one.terms.digest == digest), None)
            if known is None:
                raise unknown_experiment(digest)
            state = self._state(transaction, known)
        after = (one for one in found if one.signatures and one.terms.predecessor == digest)
        return TermsStatus(known, state, next(after, None))

    def _check_own(self, terms: Terms) -> None:
        """Reject terms of rehearsals, of another party or another kind of round."""
        check_live(terms)
        engine_in(self.engines, terms).check_terms(terms)
        self.key_for(terms)

    @abstractmethod
    def position(self, terms: Terms) -> int:
        """The index of this party in the terms."""

    def key_for(self, terms: Terms) -> Ed25519PrivateKey:
        """The signing key of this party that the terms name."""
        own = self.position(terms)
        named = terms.keys[own]
        if named not in self._keys:
            raise Rejected(
                f"the {terms.parties[own].role}'s key in the terms is {fingerprint(named)}: "
                f"must be {fingerprint(self.public_key)}, the key of this party"
            )
        return self._keys[named]

    def pinned(self, digest: bytes) -> Pinned:
        """The terms with this digest and all signatures, verified once."""
        if digest not in self._pinned:
            known = self.terms(digest)
            if not known.signatures:
                raise Conflict(
                    "the helper's operator has not signed these terms: run tacit terms cosign"
                )
            self._lineages[digest] = known.lineage
            self._pinned[digest] = Pinned(known.terms, known.signatures, known.terms.keys)
        return self._pinned[digest]

    def lineage(self, digest: bytes) -> bytes:
        """The digest of the first terms of an experiment, by any of its signed terms."""
        self.pinned(digest)
        return self._lineages[digest]

    def engine(self, digest: bytes) -> Engine:
        """This party's part in the rounds under signed terms."""
        if digest not in self._engines:
            pinned = self.pinned(digest)
            terms = pinned.terms
            context = EngineContext(
                pinned,
                self.position(terms),
                self.key_for(terms),
                self.records,
                self.store,
                lambda: self.now,
                lambda identity: self._noise(identity),
                self._helper,
            )
            self._engines[digest] = engine_in(self.engines, terms)(context)
        return self._engines[digest]

    def _helper(self) -> HelperLink:
        """The connection to the helper of an experiment that has one."""
        if self.link is None:
            raise TacitError("the terms name a helper, but this coordinator has no link to helpers")
        return self.link

    def signature(self, digest: bytes) -> bytes:
        """This party's own signature under known terms."""
        terms = self.terms(digest).terms
        return cosign(terms, self.key_for(terms))

    # Reports

    def report(
        self, identity: bytes, slot: int, message: bytes, invitation: str | None = None
    ) -> CheckedReport:
        """Validate a report share as far as possible without writing to the database."""
        server = self.server(identity)
        try:
            share = server.check(message, self.now)
        except UnknownRound as reason:
            raise Unknown(str(reason)) from None
        except ClosedRound as reason:
            raise Gone(str(reason)) from None
        if share.slot != slot:
            raise Rejected(f"the report is for slot {share.slot}: the path names slot {slot}")
        return CheckedReport(identity, server, share, self._invited(server, invitation))

    def check_sender(self, identity: bytes, slot: int, begun: bytes) -> ServedRound:
        """The round of a report; rejects one without the token of this slot in its first bytes."""
        server = self.server(identity)
        at = server.slot_at
        check_token(server, ReportSlot(slot, begun[at : at + SLOT.size][-TOKEN_SIZE:]))
        return server

    def _invited(self, server: ServedRound, invitation: str | None) -> bytes:  # noqa: ARG002
        """The digest of the invitation that a report needs here; empty for none."""
        return b""

    def keep(self, waiting: Sequence[CheckedReport]) -> list[Rejected | None]:
        """Store reports in one durable transaction.

        Returns, for each report, None or the reason of its rejection. Invitations are spent in
        their order, so that processes do not deadlock.
        """
        rejections: list[Rejected | None] = [None] * len(waiting)
        with self.store.begin() as transaction:
            stages = transaction.lock_stages({one.identity for one in waiting})
            for n, one in sorted(enumerate(waiting), key=lambda pair: pair[1].invitation):
                if stages.get(one.identity) not in one.stages:
                    rejections[n] = _closed_round()
                elif one.invitation and not transaction.spend(one.invitation, one.share.name):
                    rejections[n] = Forbidden("this invitation is used: each is for one report")
            new: dict[tuple[bytes, bytes], bytes] = {}
            for one, rejection in zip(waiting, rejections, strict=True):
                if rejection is None:  # of two for one slot, the first is kept
                    new.setdefault((one.identity, one.share.name), one.share.wrapped)
            stored = transaction.keep_shares(new)
        for one in waiting:
            if (missing := self._missing.get(one.identity)) is not None:  # the scheduler drops it
                self._missing[one.identity] = missing - 1
        return [
            rejection or one.compare(stored.get((one.identity, one.share.name)))
            for one, rejection in zip(waiting, rejections, strict=True)
        ]

    # Rounds

    def may_be_full(self, identity: bytes) -> bool:
        """Whether the last report of a round may have been kept since the last step.

        Reports that are rejected or sent again count, too; those kept by other processes do not.
        """
        return self._missing.get(identity, 0) <= 0

    def is_loaded(self, identity: bytes) -> bool:
        """Whether a report of this round can be checked without a database query."""
        return identity in self._servers

    def server(self, identity: bytes) -> ServedRound:
        """This party's part in an announced, live round."""
        if (found := self._servers.get(identity)) is not None:
            return found
        row = self.round(identity)
        if row.stage not in LIVE:
            raise unknown_round(identity)
        return self.serving(row)

    def serving(self, row: RoundRow) -> ServedRound:
        """This party's part in the round of this row, whatever its stage."""
        if (found := self._servers.get(row.identity)) is not None:
            return found
        made = self.engine(row.terms).serve(row)
        if row.stage not in LIVE:
            return made
        with self._lock:
            return self._servers.setdefault(row.identity, made)

    def round(self, identity: bytes) -> RoundRow:
        """A round that this party knows."""
        with self.store.read() as transaction:
            found = transaction.round(identity)
        if found is None:
            raise unknown_round(identity)
        return found

    def rounds(self, *stages: Stage) -> list[RoundRow]:
        """All rounds in these stages."""
        with self.store.read() as transaction:
            return transaction.rounds_in(stages)

    def live_rounds(self, *stages: Stage) -> list[RoundRow]:
        """All rounds in these stages; evicts all other rounds from the cache.

        Eviction is needed because another process may have ended a round, or a request that read
        the round before its end may have cached it again.
        """
        with self._lock:
            held = self._servers.keys() | self._missing.keys()
        rows = self.rounds(*stages)
        with self._lock:
            for identity in held.difference(row.identity for row in rows):
                self._servers.pop(identity, None)
                self._missing.pop(identity, None)
        return rows

    def gauges(self) -> dict[str, dict[str, float]]:
        """Metrics for monitoring, by kind; none concerns a single participant."""
        late = [self.now - row.closes for row in self.rounds(Stage.CLOSING)]
        return {
            "rounds": {stage: float(count) for stage, count in self.stages().items()},
            "seconds_since_deadline": {"oldest": float(max([0, *late]))},
        }

    def stages(self) -> dict[str, int]:
        """The number of rounds in each stage."""
        with self.store.read() as transaction:
            return transaction.count_stages()

    def outcome(self, identity: bytes) -> bytes:
        """The signed outcome of a finished round, read from its key file alone.

        Without a record the outcome is "unknown", which is not signed.
        """
        if len(identity) != IDENTITY_SIZE:
            raise Unknown(f"the round's name has {len(identity)} bytes: must be {IDENTITY_SIZE}")
        for engine in self.engines.values():
            if said := engine.recorded_outcome(self.records, self.role, identity):
                return said
        return header(Kind.OUTCOME, identity) + bytes((self.role, RoundOutcome.UNKNOWN))

    def close_when_due(self, row: RoundRow, now: int) -> RoundRow | None:
        """Close an open round whose deadline has passed or whose slots have all reported.

        Returns the closing round, or None if it stays open or another process closed it.
        """
        self._missing.pop(row.identity, None)  # a report during the count may be the last
        if now < row.closes:
            missing = self.engine(row.terms).missing(row)
            if missing > 0:
                self._missing[row.identity] = missing
                return None
        closing = replace(row, stage=Stage.CLOSING)
        with self.store.begin() as transaction:
            return closing if transaction.replace_round(row, closing) else None

    def finish(self, transaction: Transaction, row: RoundRow, stage: Stage) -> RoundRow | None:
        """End a closing round and delete its pending rows; None if another process ended it."""
        closing, ended = (replace(row, stage=one) for one in (Stage.CLOSING, stage))
        moved = transaction.replace_round(closing, ended)
        transaction.delete_pending(row.identity)
        with self._lock:
            self._servers.pop(row.identity, None)
            self._missing.pop(row.identity, None)
        return ended if moved else None


def check_token(server: ServedRound, slot: ReportSlot) -> None:
    """Raise `Forbidden` unless the token is that of the slot."""
    try:
        (own,) = server.slots([slot.number])
    except ClosedRound as reason:
        raise Gone(str(reason)) from None
    if not hmac.compare_digest(own.token, slot.token):
        raise Forbidden(f"slot {slot.number} has another token")


def _closed_round() -> Gone:
    return Gone("the round is closed: it accepts no more reports")


def unknown_round(identity: bytes) -> Unknown:
    """The error for a round that this party does not know, or that is over."""
    return Unknown(f"round {identity.hex()} is unknown here, or over: join again")
