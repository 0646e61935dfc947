"""Local model: one server sums numbers to which every device has added all of the noise.

A report is private by itself. It is encrypted to a key of the round (HPKE, RFC 9180) and stored
under pseudonyms, so that nothing linkable remains after the round. Numbers are limited to a range
that the description states: a device clamps its noisy numbers to it, and the server drops a report
outside of it, so no report moves a sum by more than the range.

The record of a round is its secret until the sums or the abort replace it; only the content of the
record is ever released.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.aggregation import wire
from tacit.aggregation.aggregator_context import SECRET_SIZE, RoundSecrets
from tacit.aggregation.agreement import derive
from tacit.aggregation.announcements import (
    WHOLE_NOISE,
    Binding,
    LiveRound,
    SharedNoise,
    accept,
    endorse_offer,
)
from tacit.aggregation.encryption import DEFAULT, HpkeSuite, Recipient, suite_numbered
from tacit.aggregation.interface import (
    IDENTITY_SIZE,
    SYSTEM,
    CheckedShare,
    ClosedRound,
    Rejected,
    SumView,
    check_counts,
    new_identity,
)
from tacit.aggregation.pending import PendingReports, PendingVault
from tacit.aggregation.round_state import PartyRoundState, RoundEntry, RoundPhase
from tacit.aggregation.two_servers import SLOT, ReportSlot, RoundOutcome
from tacit.aggregation.wire import Kind
from tacit.errors import require
from tacit.records import Records
from tacit.signatures import Signed, sign
from tacit.terms import Offer, Pinned

_HEAD = struct.Struct(">QIIIIIB")
_COUNT = struct.Struct(">I")
_TOTAL = struct.Struct(">q")
_RECORD = b"local"
ROLE = 0
"""Index of the only party."""


@dataclass(frozen=True)
class LocalRound(LiveRound):
    """Public description of a round: terms, counts, times, range, noise and the server's key.

    Every number of a report is from -`margin` to levels + `margin`. `noise` is that of each device
    on each number, in one share.
    """

    binding: Binding
    slots: int
    minimum: int
    server: bytes
    margin: int = 0
    length: int = 1
    noise: SharedNoise = WHOLE_NOISE
    assigned_until: int = 0
    grace: int = 0
    suite: HpkeSuite = DEFAULT
    identity: bytes = field(default_factory=new_identity)

    def __post_init__(self) -> None:
        check_counts(self.slots, self.minimum)
        require(0 <= self.margin < 1 << 31, "room", self.margin, "from 0 to 2^31 - 1")
        wire.check_length(self.length, self.span)
        self.check_times()
        sizes = [len(self.identity), len(self.server)]
        wanted = [IDENTITY_SIZE, self.suite.key_size]
        rule = f"{wanted}, as in the suite {self.suite.name}"
        require(sizes == wanted, "list of sizes of identity and key", sizes, rule)

    @property
    def span(self) -> int:
        """Number of values that a number of a report can have."""
        return self.binding.levels + 2 * self.margin + 1

    def encode(self) -> bytes:
        """Serialize the round description."""
        counts = (self.slots, self.minimum, self.length, self.margin)
        return (
            wire.header(Kind.LOCAL_ROUND, self.identity)
            + self.binding.encode()
            + _HEAD.pack(self.assigned_until, self.grace, *counts, self.suite)
            + self.server
            + self.noise.encode()
        )

    @classmethod
    def decode(cls, message: bytes) -> LocalRound:
        """Parse a round description."""
        with wire.rejecting_invalid():
            binding, rest = Binding.first(wire.body(message, Kind.LOCAL_ROUND))
            fields, rest = wire.leading_fields(_HEAD, rest, "description")
            until, grace, slots, minimum, length, room, number = fields
            suite = suite_numbered(number)
            server, rest = wire.leading_bytes(rest, suite.key_size, "key"), rest[suite.key_size :]
            noise, rest = SharedNoise.first(rest)
            require(not rest, "description", f"{len(rest)} bytes too long", "complete")
            about = (room, length, noise, until, grace, suite, wire.identity_of(message))
            return cls(binding, slots, minimum, server, *about)

    def offer(self) -> Offer:
        """The fields that a client checks against its terms."""
        suite = self.suite.identifier
        return self.offer_of("local", self.noise, metrics=self.length, suite=suite)

    @cached_property
    def recipient(self) -> Recipient:
        """The server's HPKE public key."""
        return Recipient.parse(self.suite, self.server)

    @property
    def report_size(self) -> int:
        """Bytes of a report on the wire."""
        numbers = self.length * wire.number_size(self.span)
        return wire.HEADER_SIZE + SLOT.size + self.suite.overhead + numbers


def encrypt_report(
    pinned: Pinned, announcement: bytes, slot: ReportSlot, numbers: Sequence[int]
) -> bytes:
    """Make one client's report from its noisy numbers, each clamped to the range of the round.

    The announced round must comply with the terms that the client agreed to.
    """
    announced = accept(LocalRound, pinned, announcement)
    count, room = len(numbers), announced.margin
    require(count == announced.length, "number of metrics", count, f"{announced.length}")
    shifted = [min(max(number + room, 0), announced.span - 1) for number in numbers]
    content = wire.pack_numbers(shifted, announced.span)
    encrypted = announced.recipient.encrypt(content, _info(announced.context, slot.number))
    return wire.header(Kind.LOCAL_REPORT, announced.identity) + slot.encode() + encrypted


def prepare_local(records: Records, identity: bytes, suite: HpkeSuite) -> bytes:
    """Make the server's public key for a new round; its secret is on record before this returns.

    Repeated calls return the same key.
    """
    secret = PartyRoundState(records, _RECORD, identity).prepare(SYSTEM(SECRET_SIZE))
    return RoundSecrets(secret, identity, suite).keys.encryption.public()


def endorse_local(
    pinned: Pinned, records: Records, description: bytes, key: Ed25519PrivateKey
) -> bytes:
    """Sign a description that complies with the terms and names the key on record.

    A server signs one description per round, ever.
    """
    announced = LocalRound.decode(description)
    entry = PartyRoundState.bound(records, _RECORD, announced).read()
    if entry.phase is not RoundPhase.OPEN:
        raise Rejected("this server aborted it before")
    secrets = RoundSecrets(entry.content, announced.identity, announced.suite)
    if secrets.keys.encryption.public() != announced.server:
        raise Rejected("description names another key than this server prepared for the round")
    return endorse_offer(pinned, announced, key)


def abandon_local(records: Records, identity: bytes, key: Ed25519PrivateKey) -> None:
    """Abort a round that is not over and destroy its key."""
    state = PartyRoundState(records, _RECORD, identity)
    entry = state.find()
    while entry is not None and entry.phase is RoundPhase.OPEN:
        entry = _close_record(state, entry, identity, key, None)


def local_outcome(records: Records, identity: bytes) -> bytes | None:
    """The signed outcome of a round that is over; None without one, `Rejected` before."""
    entry = PartyRoundState(records, _RECORD, identity).find()
    if entry is None:
        return None
    if entry.phase is RoundPhase.OPEN:
        raise ClosedRound("round is not over yet")
    outcome, *_ = wire.unpack_parts(entry.content)
    return outcome or None


class LocalServer(PendingReports):
    """The server in one round, over a table of pending reports and the record of the round.

    It can be recreated at any time, in several processes. Every call is idempotent.
    """

    slot_at = wire.HEADER_SIZE

    def __init__(
        self,
        pinned: Pinned,
        announcement: bytes,
        records: Records,
        table: MutableMapping[bytes, bytes],
        key: Ed25519PrivateKey,
    ) -> None:
        self.round = accept(LocalRound, pinned, announcement)
        self._state = PartyRoundState(records, _RECORD, self.round.identity)
        self._table, self._key = table, key
        self._secrets: _LocalSecrets | None = None
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"LocalServer(round={self.round.identity.hex()})"

    @property
    def report_size(self) -> int:
        """Bytes of a report."""
        return self.round.report_size

    def check(self, message: bytes, now: int) -> CheckedShare:
        """Validate one report, which the caller stores in the table."""
        data = wire.body(message, Kind.LOCAL_REPORT, self.round.identity)
        if len(message) != self.report_size:
            raise Rejected(f"report is {len(message)} bytes long: must be {self.report_size}")
        slot = ReportSlot(*SLOT.unpack_from(data))
        if now >= self.round.binding.closes:
            raise ClosedRound("round is past its deadline: it accepts no more reports")
        content = data[:4] + data[SLOT.size :]
        return self._open().vault.table_entry(slot, self.round.slots, content)

    def close(self, now: int) -> SumView | None:
        """Replace the round's secret by the sums or the abort; return the released sums.

        None stands for an aborted round. Too early, it raises `Rejected` and changes nothing.
        """
        with self._lock:
            entry = self._entry()
            while entry.phase is RoundPhase.OPEN:
                view = self._sum_reports(now)
                entry = _close_record(self._state, entry, self.round.identity, self._key, view)
            self._secrets = None
            self._table.clear()
        return _read_view(entry, self.round.length)

    def _sum_reports(self, now: int) -> SumView | None:
        """The sums of all reports in range; None if they are too few, or come too late."""
        secrets, announced = self._open(), self.round
        waiting = len(self._table)
        if now < announced.binding.closes and waiting < announced.slots:
            raise Rejected(
                f"{waiting} of {announced.slots} slots have reported before the deadline. The "
                "round stays open"
            )
        if now >= announced.binding.closes + announced.grace:
            return None
        reports, rejected, sums = 0, 0, [0] * announced.length
        for name, wrapped in list(self._table.items()):
            numbers = secrets.numbers(name, wrapped)
            if numbers is None:
                rejected += 1
                continue
            reports += 1
            sums = [total + number for total, number in zip(sums, numbers, strict=True)]
        if reports < announced.minimum:
            return None
        return SumView(tuple(sums), reports, rejected)

    def _entry(self) -> RoundEntry:
        return self._state.entry_of(self.round)

    def _vault(self) -> PendingVault:
        return self._open().vault

    def _open(self) -> _LocalSecrets:
        entry = self._entry()
        if entry.phase is not RoundPhase.OPEN:
            raise ClosedRound("round is closed. Ask for its outcome")
        if self._secrets is None:
            self._secrets = _LocalSecrets(self.round, entry.content)
        return self._secrets


class _LocalSecrets:
    """Keys that the server derives from a round's secret; never saved."""

    def __init__(self, announced: LocalRound, secret: bytes) -> None:
        self._round = announced
        secrets = RoundSecrets(secret, announced.identity, announced.suite)
        tokens = derive(secret, announced.context, b"tacit local slots v3")
        self._key = secrets.keys.encryption
        self.vault = PendingVault(secrets.wrapping, secrets.naming, tokens)

    def numbers(self, name: bytes, wrapped: bytes) -> list[int] | None:
        """The numbers of a stored report; None if it is invalid or out of range."""
        announced = self._round
        try:
            share = self.vault.unwrap(name, wrapped)
            (number,) = _COUNT.unpack_from(share)
            info = _info(announced.context, number)
            content = self._key.decrypt(share[4:], info)
            found = wire.unpack_numbers(content, announced.span, announced.length, "report")
        except (Rejected, struct.error):
            return None
        return [one - announced.margin for one in found]


def _close_record(
    state: PartyRoundState,
    entry: RoundEntry,
    identity: bytes,
    key: Ed25519PrivateKey,
    view: SumView | None,
) -> RoundEntry:
    """Replace the secret in the record by the signed outcome and the sums, if any."""
    said = RoundOutcome.ABORTED if view is None else RoundOutcome.RELEASED
    signed = entry.context + bytes((ROLE, said))
    outcome = wire.header(Kind.OUTCOME, identity) + signed[-2:] + sign(Signed.OUTCOME, signed, key)
    parts = [outcome if entry.bound else b""]
    if view is not None:
        totals = b"".join(map(_TOTAL.pack, view.numbers))
        parts.append(_COUNT.pack(view.reports) + _COUNT.pack(view.rejected) + totals)
    phase = RoundPhase.ABORTED if view is None else RoundPhase.ANSWERED
    return state.move(entry, RoundEntry(phase, entry.context, wire.pack_parts(parts)))


def _read_view(entry: RoundEntry, length: int) -> SumView | None:
    if entry.phase is not RoundPhase.ANSWERED:
        return None
    _, content = wire.unpack_parts(entry.content)
    layout = struct.Struct(f">II{length}q")
    reports, rejected, *sums = layout.unpack(content)
    return SumView(tuple(sums), reports, rejected)


def _info(context: bytes, slot: int) -> bytes:
    return b"tacit local v3" + context + _COUNT.pack(slot)
