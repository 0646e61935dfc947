"""The helper: the second aggregator, which stores its report shares and returns noisy partial sums.

The helper sends no requests. The coordinator initiates every exchange, and devices upload their
report shares. Every call is idempotent. The helper trusts no other party about the progress of a
round. It closes rounds by its own clock and destroys the secrets of those not released when the
grace period ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from tacit.aggregation.aggregator import Aggregator
from tacit.aggregation.aggregator_context import AggregatorStage
from tacit.aggregation.announcements import accept, announce
from tacit.aggregation.encryption import suite_numbered
from tacit.aggregation.two_servers import TwoServerRound
from tacit.errors import Refusal
from tacit.service import invitations
from tacit.service.leases import Leads, everything
from tacit.service.party import HELPER, SOON, ServerParty, attempt
from tacit.service.store import LIVE, RoundRow, Stage
from tacit.terms import Pinned, Terms

PAUSE = 60.0  # seconds between steps when no round is open
FOLLOWING = 5.0  # seconds between steps while another process leads


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
        with self.store.begin() as transaction:
            transaction.save_terms(terms, signatures, approvals)

    # Calls by the coordinator

    def keys(self, digest: bytes, identity: bytes, sealing: int) -> bytes:
        """Public keys for a new round; idempotent. Only the HPKE suite of the terms is accepted."""
        context, asked = self.aggregator_context(digest, identity), suite_numbered(sealing)
        named = context.pinned.terms.suite
        if asked.identifier != named:
            raise Refusal(f"suite is {asked.identifier}: must be {named}, the suite of the terms")
        return context.prepare(identity, asked)

    def describe(self, description: bytes, signature: bytes) -> bytes:
        """Return the announcement of a round: its description with both signatures.

        The description is on record before this helper signs it. The helper signs one description
        per round, ever.
        """
        described = TwoServerRound.decode(description)
        about, identity = described.binding, described.identity
        with self.store.read() as transaction:
            known = transaction.round(identity)
        if about.closes <= self.now and known is None:
            raise Refusal(f"closes is {about.closes}: must be in the future. Plan a new round.")
        context = self.aggregator_context(about.terms, identity)
        own = context.endorse(description)
        announcement = announce(description, (signature, own))
        accept(TwoServerRound, context.pinned, announcement)
        row = RoundRow(
            identity=identity,
            terms=about.terms,
            stage=Stage.OPEN,
            number=0,
            arm=0,
            option=about.option,
            slots=described.slots,
            assigned_until=described.assigned_until,
            closes=about.closes,
            expires=about.closes + described.grace,
            announcement=announcement,
        )
        with self.store.begin() as transaction:
            transaction.add_rounds([row])
        return announcement

    def exchange(self, identity: bytes, listing: bytes) -> tuple[bytes, bytes]:
        """Take the coordinator's list of reports, if any; return this helper's list and answer.

        The answer, for the collector, is an encrypted partial sum or a signed abort. Each is empty
        until it exists.
        """
        row = self.round(identity)
        now = self.now  # one reading: a round that still accepts reports is not listed
        if row.stage is Stage.OPEN and self.close_when_due(row, now) is None:
            return b"", b""  # a list that is stored early would count as a report
        server = self.serving(row)
        if listing:
            server.take(listing, now)
        return self._close(row, now)

    def _close(self, row: RoundRow, now: int) -> tuple[bytes, bytes]:
        """Advance a round as far as possible; this helper's list and answer."""
        server = self.serving(row)
        try:
            out = server.close(now)
        except Refusal:  # too early, or no record of the round is left
            return b"", b""
        record = self.aggregator_context(row.terms, row.identity).record(row.identity)
        if record is not None and record.stage is AggregatorStage.CLOSED:
            stage = Stage.OPENED if record.partial else Stage.REFUSED
            with self.store.begin() as transaction:
                self.finish(transaction, row, stage)
        return out.get(server.peer, b""), out.get(server.round.collector, b"")

    def step(self, leads: Leads = everything) -> float:
        """Close due rounds and abort those past their grace period, by this helper's clock.

        Only rounds of experiments that this process leads are advanced. Returns the seconds until
        the next call is worthwhile.
        """
        rows = [(self.lineage(row.terms), row) for row in self.driven(*LIVE)]
        mine = leads({lineage for lineage, _ in rows})
        waits = (attempt(self._advance, row) for lineage, row in rows if lineage in mine)
        return min([PAUSE if len(mine) == len({one for one, _ in rows}) else FOLLOWING, *waits])

    def _advance(self, row: RoundRow) -> float:
        """Advance one round; the seconds until its next step."""
        now = self.now
        if row.stage is Stage.OPEN and not self.close_when_due(row, now):
            return max(float(row.closes - now), SOON)
        self._close(row, now)
        return max(float(row.expires - now), SOON)

    def _invited(self, server: Aggregator, invitation: str | None) -> bytes:
        """The digest of a valid invitation where the terms require one.

        The helper checks it itself and does not trust the coordinator's admission.
        """
        digest = server.round.binding.terms
        known = self.pinned(digest).terms
        if known.admission != "invitation":
            return b""
        return invitations.check(invitation, self.lineage(digest), known.issuer)
