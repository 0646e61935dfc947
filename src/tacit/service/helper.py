"""The helper: the second party of an experiment, which stores its part of the reports.

`tacit.service.trust_models` says what it does with them. The helper sends no requests. The
coordinator initiates every exchange, and devices upload their part. Every call is idempotent. The
helper trusts no other party about the progress of a round. It closes rounds by its own clock and
destroys the secrets of those not released when the grace period ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from tacit.aggregation.announcements import binding_of
from tacit.errors import Rejected
from tacit.service import invitations
from tacit.service.errors import Conflict
from tacit.service.leases import Leads, everything
from tacit.service.party import HELPER, SOON, ServerParty
from tacit.service.schema import LIVE, RoundRow, Stage
from tacit.service.trust_models import HELPERS
from tacit.service.trust_models.contract import HelperEngine
from tacit.service.trust_models.rounds import ServedRound
from tacit.terms import Pinned, Terms

PAUSE = 60.0  # seconds between steps when no round is open
FOLLOWING = 5.0  # seconds between steps while another process leads


class Helper(ServerParty[HelperEngine]):
    """The second party of a live experiment."""

    role, engines = HELPER, HELPERS

    def position(self, terms: Terms) -> int:
        """The index of the helper in the terms."""
        if terms.helper is None:
            raise Rejected(f"trust is {terms.trust.value}, which has no helper: nothing to sign")
        return terms.helper

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

    def coordinator_key(self, digest: bytes) -> bytes:
        """The public key of the party that calls this helper under these terms."""
        terms = self.pinned(digest).terms
        return terms.keys[terms.leader]

    def keys(self, digest: bytes, identity: bytes, sealing: int) -> bytes:
        """Public keys for a new round; idempotent. Only the HPKE suite of the terms is accepted."""
        self._known(digest, identity)
        return self.engine(digest).keys(identity, sealing)

    def describe(self, description: bytes, signature: bytes) -> bytes:
        """Return the announcement of a round: its description with both signatures.

        The description is on record before this helper signs it. The helper signs one description
        per round, ever.
        """
        identity, about = binding_of(description)
        engine = self.engine(about.terms)
        described = engine.description.decode(description)
        known = self._known(about.terms, identity)
        if about.closes <= self.now and known is None:
            raise Rejected(f"closes is {about.closes}: must be in the future. Plan a new round.")
        announcement = engine.announce(description, signature)
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

    def _known(self, digest: bytes, identity: bytes) -> RoundRow | None:
        """The described round of this name; rejects one of another experiment.

        Trust models keep records apart, so a second round of this name could hide its outcome.
        """
        with self.store.read() as transaction:
            found = transaction.round(identity)
        if found is not None and found.terms != digest:
            raise Conflict("a round of another experiment has this name. Plan a new round")
        return found

    def exchange(self, identity: bytes, listing: bytes) -> tuple[bytes, bytes]:
        """Take the coordinator's list of reports, if any; return this helper's list and answer.

        The answer, for the collector, is an encrypted partial sum or a signed abort. Each is empty
        until it exists.
        """
        row = self.round(identity)
        now = self.now  # one reading: a round that still accepts reports is not listed
        if row.stage is Stage.OPEN and self.close_when_due(row, now) is None:
            return b"", b""  # a list that is stored early would count as a report
        return self._close(row, listing, now)

    def _close(self, row: RoundRow, listing: bytes, now: int) -> tuple[bytes, bytes]:
        """Advance a round as far as possible; this helper's list and answer."""
        said = self.engine(row.terms).close(self.serving(row), listing, now)
        if said.ended is not None:
            with self.store.begin() as transaction:
                self.finish(transaction, row, said.ended)
        return said.listing, said.answer

    def step(self, leads: Leads = everything) -> float:
        """Close due rounds and abort those past their grace period, by this helper's clock.

        Only rounds of experiments that this process leads are advanced. Returns the seconds until
        the next call is worthwhile. An unexpected error of a round is raised once all others have
        advanced.
        """
        rows = [(self.lineage(row.terms), row) for row in self.live_rounds(*LIVE)]
        mine = leads({lineage for lineage, _ in rows})
        waits = [PAUSE if len(mine) == len({one for one, _ in rows}) else FOLLOWING]
        failed: list[Exception] = []
        for lineage, row in rows:
            try:
                if lineage in mine:
                    waits.append(self.steps.advance(self._advance, row))
            except Exception as problem:  # such as one of a damaged key file
                failed.append(problem)
        if failed:
            raise failed[0]
        return min(waits)

    def _advance(self, row: RoundRow) -> float:
        """Advance one round; the seconds until its next step."""
        now = self.now
        if row.stage is Stage.OPEN and not self.close_when_due(row, now):
            return max(float(row.closes - now), SOON)
        self._close(row, b"", now)
        return max(float(row.expires - now), SOON)

    def _invited(self, server: ServedRound, invitation: str | None) -> bytes:
        """The digest of a valid invitation where the terms require one.

        The helper checks it itself and does not trust the coordinator's admission.
        """
        digest = server.round.binding.terms
        known = self.pinned(digest).terms
        if known.admission != "invitation":
            return b""
        return invitations.check(invitation, self.lineage(digest), known.issuer)
