"""A live round of masking at its server: slots, stored messages, and stages with deadlines.

Devices send their JOIN with a slot and its token until the round closes. Then the stages of
`masking_server` run with the devices that are online: each device asks for its next message and
answers it. Every message is stored, encrypted under the round's secret, before it counts. A stage
ends when all clients that were asked have answered, or after `stage_seconds`; who is late has
dropped out. The record decides each stage once, so the server may stop at any point.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.aggregation.agreement import KEY_SIZE, NONCE_SIZE, TAG_SIZE, derive
from tacit.aggregation.announcements import accept
from tacit.aggregation.interface import (
    CheckedShare,
    ClosedRound,
    Rejected,
    SumView,
    expect_size,
)
from tacit.aggregation.masking import FRONT_SIZE, MaskingRound
from tacit.aggregation.masking_server import (
    PARTY,
    STAGES,
    MaskingServer,
    MaskingStage,
    masking_outcome,
)
from tacit.aggregation.pending import PendingReports, PendingVault
from tacit.aggregation.round_state import (
    PartyRoundState,
    RoundEntry,
    RoundPhase,
    keep_outcome,
    round_over,
)
from tacit.aggregation.share_commitments import evidence_size
from tacit.aggregation.two_servers import SLOT, ReportSlot
from tacit.aggregation.wire import Kind, body, pack_parts
from tacit.records import Records
from tacit.terms import Pinned

JOIN_SIZE = FRONT_SIZE + NONCE_SIZE + 2 * KEY_SIZE + TAG_SIZE
SLOWEST_STAGE = 60.0  # seconds
_ANSWERS = {
    bytes((kind,)): kind
    for kind in (
        Kind.SHARES,
        Kind.CHECKED,
        Kind.MASKED,
        Kind.ACCUSED,
        Kind.KEYS,
        Kind.SEEDS,
        Kind.REVEAL,
        Kind.LAST_SEEDS,
    )
}
_TOKENS = b"tacit masking slots v1"


class StoredMessages(Protocol):
    """The stored messages of a round, still encrypted under its secret."""

    def without(self, known: Collection[bytes]) -> Iterable[tuple[bytes, bytes]]:
        """Names and contents of those whose name is not known."""


@dataclass
class _Progress:
    """A server in memory: rebuilt from stored messages whenever the record changes elsewhere."""

    server: MaskingServer
    entry: RoundEntry
    began: float
    taken: set[bytes] = field(default_factory=set)
    sent: list[Mapping[bytes, bytes]] = field(default_factory=list)


class MaskingReports(PendingReports):
    """An announced round of masking at its server."""

    def __init__(self, pinned: Pinned, announcement: bytes, records: Records) -> None:
        self.round = accept(MaskingRound, pinned, announcement)
        self._records = records
        self._state = PartyRoundState(records, PARTY, self.round.identity)
        self._lock = threading.RLock()
        self._vaults: tuple[bytes, PendingVault] | None = None
        self._progress: _Progress | None = None
        self.reason = ""  # why this process aborted the round

    @property
    def report_size(self) -> int:
        """Bytes of a device's first request: its slot and its JOIN."""
        return SLOT.size + JOIN_SIZE

    @property
    def stage_seconds(self) -> float:
        """Longest duration of a stage: all stages fit into the grace."""
        return max(1.0, min(SLOWEST_STAGE, self.round.grace / len(STAGES)))

    def entry(self) -> RoundEntry:
        """The record of the round; raises `UnknownRound` without one of this description."""
        return self._state.entry_of(self.round)

    def check(self, message: bytes, now: int) -> CheckedShare:
        """Validate a device's JOIN without I/O; the caller stores it."""
        expect_size("report", message, self.report_size)
        slot, join = ReportSlot.decode(message[: SLOT.size]), message[SLOT.size :]
        body(join, Kind.JOIN, self.round.identity)
        entry = self.entry()
        if now >= self.round.binding.closes or self._first_stage_ended(entry):
            raise ClosedRound("round is closed or past its deadline: nobody can join it")
        return self._vault_of(entry).table_entry(slot, self.round.slots, join)

    @property
    def largest_answer(self) -> int:
        """Bytes of a stage message at most: of encrypted shares, or of masked numbers."""
        degree = self.round.neighbourhood.degree + 1  # `fit` adds one at most
        shares = FRONT_SIZE + NONCE_SIZE + TAG_SIZE + evidence_size(degree)
        return max(self.round.masked_size, shares)

    @property
    def messages_sent(self) -> int:
        """Stages that this process has ended; 0 before the first and once the round is over."""
        progress = self._progress
        return 0 if progress is None else len(progress.sent)

    def check_answer(self, slot: ReportSlot, message: bytes) -> CheckedShare:
        """Validate the frame of a stage message without I/O; the caller stores it.

        Its content is verified by the stage. Each slot has one message of each kind, and none
        before the first stage has ended: until then, stored messages are counted as reports.
        """
        kind = _ANSWERS.get(message[3:4])
        if kind is None:
            raise Rejected("message is not an answer of a client")
        body(message, kind, self.round.identity)
        entry = self.entry()
        if not self._first_stage_ended(entry):
            raise Rejected("message is too early: stages begin at the deadline of the round")
        vault = self._vault_of(entry)
        vault.check_slot(slot, self.round.slots)
        name = vault.name(b"answer " + bytes((kind,)) + slot.encode())
        return CheckedShare(name, vault.wrap(name, message), message, slot.number)

    def advance(self, table: StoredMessages, now: float) -> RoundPhase:
        """Take stored messages and end every stage that is complete or too old."""
        with self._lock:
            if self.entry().phase is not RoundPhase.OPEN:
                return self._over()
            progress = self._synchronized(table, now)
            while progress.server.stage in STAGES and self._due(progress, now):
                stage = progress.server.stage
                try:
                    sent = progress.server.close(stage)
                except Rejected as reason:
                    entry = self.entry()
                    if entry.phase is not RoundPhase.OPEN:
                        break
                    if entry != progress.entry:  # another process has ended the stage meanwhile
                        progress = self._synchronized(table, now)
                        continue
                    self.reason = f"{stage.value}: {reason}"
                    progress.server.abort()
                    break
                progress.entry = self._state.read()
                progress.began = now
                if progress.server.stage in STAGES:
                    progress.sent.append(sent)
            if self.entry().phase is not RoundPhase.OPEN:
                return self._over()
            return RoundPhase.OPEN

    def synchronize(self, table: StoredMessages, now: float) -> None:
        """Load the messages of stages that another process has ended.

        They follow from the record and the `table`. Raises `ClosedRound` once the round is over.
        """
        with self._lock:
            entry, progress = self.entry(), self._progress
            if entry.phase is not RoundPhase.OPEN:
                raise ClosedRound(str(round_over(entry.phase)))
            if self._first_stage_ended(entry) and (progress is None or progress.entry != entry):
                self._synchronized(table, now)

    def next_message(self, address: bytes, after: int) -> bytes:
        """The server's message number `after` for a client, from memory; empty if there is none.

        A stage may concern only some clients; the others are asked again in a later one. Another
        process may have ended stages: see `synchronize`. Raises `ClosedRound` for an address that
        did not join.
        """
        progress = self._progress
        if progress is None or not progress.sent:
            return b""
        mine = [sent[address] for sent in progress.sent if address in sent]
        if not mine:
            raise ClosedRound("client did not join this round")
        return mine[after] if after < len(mine) else b""

    def abort(self) -> None:
        """Abort the round unless it is over."""
        self._state.abort()

    def view(self) -> SumView:
        """The released sum."""
        return MaskingServer(self.round, self._records).view()

    def finish(self, role: int, key: Ed25519PrivateKey) -> bytes:
        """Sign the outcome of a round that is over, and keep it on record; idempotent."""
        said = masking_outcome(self.round, self._records, key)
        return keep_outcome(self._records, role, self.round.identity, said)

    @staticmethod
    def _first_stage_ended(entry: RoundEntry) -> bool:
        """Whether the first stage of a round has ended, in any process."""
        return len(entry.content) > KEY_SIZE

    def _over(self) -> RoundPhase:
        self._progress = None
        return self.entry().phase

    def _due(self, progress: _Progress, now: float) -> bool:
        """Whether the current stage may end: all answered, or its time is over.

        Stages begin at the deadline, when devices ask for them, even if all slots joined before.
        """
        if progress.server.stage is MaskingStage.JOINING:
            return now >= self.round.binding.closes
        asked = len(progress.sent[-1]) if progress.sent else 0
        return progress.server.answered >= asked or now - progress.began >= self.stage_seconds

    def _synchronized(self, table: StoredMessages, now: float) -> _Progress:
        """The server with all stored messages, and all messages that it has sent."""
        entry, progress = self.entry(), self._progress
        vault = self._vault_of(entry)
        if progress is None or progress.entry != entry:
            messages = dict(_unwrapped(vault, table))
            saved = pack_parts([self.round.encode(), *messages.values()])
            server = MaskingServer.restore(saved, self._records)
            progress = _Progress(server, entry, now, set(messages))
            progress.sent = list(server.sent_messages())
            self._progress = progress
            return progress
        for name, message in _unwrapped(vault, table, progress.taken):
            progress.taken.add(name)
            try:
                progress.server.take(message)
            except Rejected:
                continue
        return progress

    def _vault(self) -> PendingVault:
        return self._vault_of(self.entry())

    def _vault_of(self, entry: RoundEntry) -> PendingVault:
        if entry.phase is not RoundPhase.OPEN:
            raise ClosedRound(str(round_over(entry.phase)))
        secret = entry.content[:KEY_SIZE]
        if self._vaults is None or self._vaults[0] != secret:
            tokens = derive(secret, self.round.context, _TOKENS)
            self._vaults = (secret, PendingVault.of(secret, self.round.identity, tokens))
        return self._vaults[1]


def _unwrapped(
    vault: PendingVault, table: StoredMessages, known: Collection[bytes] = ()
) -> Iterable[tuple[bytes, bytes]]:
    """Stored messages by name, without those known."""
    for name, wrapped in table.without(known):
        try:
            yield name, vault.unwrap(name, wrapped)
        except Rejected:
            continue
