"""Pending reports of a live round of the shuffler, and the party's signed outcome.

A device sends its slot and token, followed by its encrypted report, to the shuffler. The shuffler
stores reports under the round's secret (`pending`), and shuffles them once the round has closed.
The analyzer assigns the slots and accepts no reports.
"""

from __future__ import annotations

from collections.abc import Mapping

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.aggregation.agreement import KEY_SIZE, agree, derive
from tacit.aggregation.announcements import accept
from tacit.aggregation.interface import (
    CheckedShare,
    ClosedRound,
    Rejected,
    expect_size,
)
from tacit.aggregation.pending import PendingReports, PendingVault
from tacit.aggregation.round_state import (
    PartyRoundState,
    RoundEntry,
    RoundPhase,
    keep_outcome,
    round_over,
)
from tacit.aggregation.shuffler import (
    Shuffler,
    ShuffleRole,
    ShufflerRound,
    party_keys,
    shuffler_outcome,
)
from tacit.aggregation.two_servers import SLOT, ReportSlot
from tacit.aggregation.wire import Kind, body
from tacit.records import Records
from tacit.terms import Pinned

_TOKENS = b"tacit mixing slots v1"


class ShufflerReports(PendingReports):
    """An announced round at the shuffler or the analyzer while it accepts reports.

    `table` holds pending reports; it may be lost or restored at any time. `records` decides.
    """

    def __init__(
        self, pinned: Pinned, announcement: bytes, role: ShuffleRole, records: Records
    ) -> None:
        self.round = accept(ShufflerRound, pinned, announcement)
        self.role, self._records = role, records
        self._state = PartyRoundState(records, role.value, self.round.identity)
        self._cached: tuple[bytes, PendingVault] | None = None

    @property
    def report_size(self) -> int:
        """Bytes of a request to the shuffler; the analyzer takes none."""
        shuffles = self.role is ShuffleRole.SHUFFLER
        return SLOT.size + self.round.report_size if shuffles else 0

    def entry(self) -> RoundEntry:
        """The record of the round; raises `UnknownRound` without one of this description."""
        return self._state.entry_of(self.round)

    def check(self, message: bytes, now: int) -> CheckedShare:
        """Validate a device's request without I/O; the caller stores it."""
        if self.role is not ShuffleRole.SHUFFLER:
            raise Rejected("reports of this experiment go to the shuffler, not to the analyzer")
        expect_size("report", message, self.report_size)
        slot, report = ReportSlot.decode(message[: SLOT.size]), message[SLOT.size :]
        body(report, Kind.WRAPPED, self.round.identity)
        if now >= self.round.binding.closes:
            raise ClosedRound("round is past its deadline: it accepts no more reports")
        return self._vault().table_entry(slot, self.round.slots, report)

    def shuffle(self, table: Mapping[bytes, bytes]) -> bytes:
        """The batch for the analyzer, made once; below the minimum batch size it aborts.

        Invalid reports are dropped. Returns an empty message if the round was aborted, and the
        batch on record if it was made before.
        """
        entry = self.entry()
        shuffler = Shuffler(self.round, self._records)
        if entry.phase is RoundPhase.OPEN:
            vault = self._vault()
            for name, wrapped in table.items():
                try:
                    shuffler.take(vault.unwrap(name, wrapped))
                except Rejected:
                    continue
        try:
            (batch,) = shuffler.close().values()
        except Rejected:
            self._state.abort()
            return b""
        return batch

    def forget(self) -> None:
        """Delete the batch once the analyzer has it."""
        Shuffler(self.round, self._records).forget()

    def abort(self) -> None:
        """Abort the round unless it is over."""
        self._state.abort()

    def finish(self, role: int, key: Ed25519PrivateKey) -> bytes:
        """Sign the outcome of a round that is over, and keep it on record; idempotent.

        `role` is this process's role, under which `kept_outcome` finds it.
        """
        said = shuffler_outcome(self.round, self._records, self.role, key)
        return keep_outcome(self._records, role, self.round.identity, said)

    def _vault(self) -> PendingVault:
        entry = self.entry()
        if entry.phase is not RoundPhase.OPEN:
            raise ClosedRound(str(round_over(entry.phase)))
        if self._cached is None or self._cached[0] != entry.content:
            keys = party_keys(entry.content, self.round.identity, self.round.suite)
            ends = (self.round.shuffler[:KEY_SIZE], self.round.analyzer[:KEY_SIZE])
            peer = ends[1 if self.role is ShuffleRole.SHUFFLER else 0]
            tokens = derive(agree(keys.line, peer), self.round.context, _TOKENS)
            vault = PendingVault.of(entry.content, self.round.identity, tokens)
            self._cached = (entry.content, vault)
        return self._cached[1]


def bind(records: Records, role: ShuffleRole, described: ShufflerRound) -> None:
    """Bind a party's record to the only description that it signs for a round."""
    state = PartyRoundState.bound(records, role.value, described)
    entry = state.read()
    if entry.phase is not RoundPhase.OPEN:
        raise round_over(entry.phase)
    keys = party_keys(entry.content, described.identity, described.suite)
    if keys.public() != described.public(role):
        raise Rejected("description names other keys than this party prepared for the round")
