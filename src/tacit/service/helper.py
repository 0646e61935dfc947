"""The helper: the second aggregator, which stores its report shares and returns noisy partial sums.

The helper sends no requests. The coordinator initiates every exchange, and devices upload their
report shares. Every call is idempotent. The helper trusts no other party about the progress of a
round. It closes rounds by its own clock and destroys the secrets of those not released when the
grace period ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tacit.aggregation.aggregator import Aggregator
from tacit.aggregation.aggregator_context import AggregatorStage
from tacit.aggregation.announcements import accept, announce
from tacit.aggregation.encryption import suite_numbered
from tacit.aggregation.two_servers import TwoServerRound
from tacit.errors import Refusal, TacitError
from tacit.service import invitations, store
from tacit.service.errors import Forbidden, Unknown
from tacit.service.party import HELPER, LIVE, LOG, ServerParty
from tacit.terms import Pinned, Terms

PAUSE = 60.0  # seconds between steps when no round is open
AGAIN, SOON = 1.0, 0.1


class Helper(ServerParty):
    """The second aggregator of a live experiment."""

    role = HELPER

    def admit(
        self, terms: Terms, signatures: Sequence[bytes], approvals: Sequence[bytes] = ()
    ) -> None:
        """Register signed terms, so that rounds under them are accepted.

        This helper's operator has read and signed them. Successor terms need the approvals of the
        parties of the terms they succeed.
        """
        self._check_own(terms)
        if terms.predecessor:
            before = self.pinned(terms.predecessor)
            before.succeeded_by(terms, tuple(signatures), approvals)
        Pinned(terms, tuple(signatures), terms.keys)
        with self.store.begin() as connection:
            self._register(connection, terms, signatures, approvals)

    # Calls by the coordinator

    def keys(self, digest: bytes, identity: bytes, sealing: int) -> bytes:
        """Public keys for a new round; idempotent. Only the HPKE suite of the terms is accepted."""
        aggregator, asked = self.aggregator_context(digest, identity), suite_numbered(sealing)
        named = aggregator.pinned.terms.suite
        if asked.identifier != named:
            raise Refusal(
                f"the suite of the round is {asked.identifier}: must be {named}, as the terms say"
            )
        return aggregator.prepare(identity, asked)

    def describe(self, description: bytes, signature: bytes) -> bytes:
        """Return the announcement of a round: its description with both signatures.

        The description is on record before this helper signs it. The helper signs one description
        per round, ever.
        """
        described = TwoServerRound.decode(description)
        about, identity = described.binding, described.identity
        if about.closes <= self.now and self._round(identity) is None:
            raise Refusal(f"the round closes at {about.closes}, which is over: open a new round")
        aggregator = self.aggregator_context(about.terms, identity)
        own = aggregator.endorse(description)
        announcement = announce(description, (signature, own))
        accept(TwoServerRound, aggregator.pinned, announcement)
        with self.store.begin() as connection:
            self.store.insert_new(connection, store.rounds, [_row(described, announcement)])
        return announcement

    def exchange(self, identity: bytes, listing: bytes) -> tuple[bytes, bytes]:
        """Take the coordinator's list of reports, if any; return this helper's list and answer.

        The answer, for the collector, is an encrypted partial sum or a signed abort. Each is empty
        until it exists.
        """
        row = self._round(identity)
        if row is None:
            raise Unknown("this round is unknown here")
        now = self.now  # one reading: a round that still accepts reports is not listed
        if row.stage == "open":
            self._close_when_due(row, now)
        server = self.serving(row)
        if listing:
            server.take(listing, now)
        return self._go_on(server, now)

    def _go_on(self, server: Aggregator, now: int) -> tuple[bytes, bytes]:
        """Advance a round as far as possible; this helper's list and answer."""
        try:
            out = server.close(now)
        except Refusal:  # too early, or no record of the round is left
            return b"", b""
        self._end(server)
        return out.get(server.peer, b""), out.get(server.round.collector, b"")

    def _end(self, server: Aggregator) -> None:
        identity = server.round.identity
        record = self.aggregator_context(server.round.binding.terms, identity).record(identity)
        if record is not None and record.stage is AggregatorStage.CLOSED:
            with self.store.begin() as connection:
                self._finish(connection, identity, "opened" if record.partial else "refused")

    def step(self) -> float:
        """Close due rounds and abort those past their grace period, by this helper's clock.

        Returns the seconds until the next call is worthwhile.
        """
        wait = PAUSE
        for row in self._driven(*LIVE):
            try:
                wait = min(wait, self._advance(row))
            except TacitError as problem:
                LOG.error("a round does not go on: %s", problem)
                wait = min(wait, AGAIN)
        return wait

    def _advance(self, row: Any) -> float:
        """Advance one round; the seconds until its next step."""
        now = self.now
        if row.stage == "open" and not self._close_when_due(row, now):
            return max(float(row.closes - now), SOON)
        self._go_on(self.serving(row), now)
        return max(float(row.expires - now), SOON)

    def _invited(self, server: Aggregator, invitation: str | None) -> bytes:
        """The digest of a valid invitation where the terms require one.

        The helper checks it itself and does not trust the coordinator's admission.
        """
        terms = server.round.binding.terms
        known = self.pinned(terms).terms
        if known.admission != "invitation":
            return b""
        if invitation is None:
            raise Forbidden("this experiment is by invitation: send the one you were given")
        return invitations.check(invitation, self._lineages[terms], known.issuer)


def _row(described: TwoServerRound, announcement: bytes) -> dict[str, Any]:
    about = described.binding
    return {
        "identity": described.identity,
        "terms": about.terms,
        "stage": "open",
        "number": 0,
        "arm": 0,
        "option": about.option,
        "places": described.slots,
        "given": 0,
        "started": 0,
        "assigned_until": described.assigned_until,
        "closes": about.closes,
        "expires": about.closes + described.grace,
        "announcement": announcement,
        "reports": None,
        "total": None,
    }
