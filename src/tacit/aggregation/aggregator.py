"""One of two non-colluding aggregators: keeps encrypted report shares, releases one partial sum.

A server has two stores. `table` holds pending report shares, encrypted under a secret of the round;
it may be lost, restored or rolled back at any time. `records` holds one record per round and must
never be rolled back. The record starts as the round's secret, made before the description is
signed; the noisy partial sum or the abort replaces it.

A server sends only the content of that record. So each round has one list, one partial sum and one
outcome, whatever is restored, repeated or run twice. Neither store ever contains bare sums or
noise.
"""

from __future__ import annotations

import hashlib
import struct
import threading
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from operator import add

from tacit.aggregation import masks, wire
from tacit.aggregation.aggregator_context import (
    AggregatorContext,
    AggregatorStage,
    Draw,
    RoundRecord,
    RoundSecrets,
)
from tacit.aggregation.agreement import Channel, agree, derive
from tacit.aggregation.announcements import accept
from tacit.aggregation.interface import (
    CheckedShare,
    ClosedRound,
    Rejected,
    UnknownRound,
    expect,
)
from tacit.aggregation.pending import PendingReports, PendingVault
from tacit.aggregation.two_servers import (
    DIGEST_SIZE,
    LINK_SIZE,
    SHARE_FRONT,
    SLOT,
    WORD_SIZE,
    ReportSlot,
    RoundOutcome,
    TwoServerRound,
    report_tag,
    share_info,
    word_digest,
)
from tacit.aggregation.verified import verify_key
from tacit.aggregation.wire import Kind
from tacit.errors import TacitError
from tacit.sampling.draws import accepted_gaussian
from tacit.signatures import SIGNATURE_SIZE, Signed, sign
from tacit.terms.parts import DISCRETE_GAUSSIAN

PARTIAL_HEAD = struct.Struct(">I32s")  # reports, digest of their tags
_VERIFIED_HEAD = struct.Struct(">I32sI")  # and reports out of range
_LISTED = b"list of the other"  # table key; longer than a slot number, so the two cannot collide


def partial_size(announced: TwoServerRound) -> int:
    """Bytes of a server's noisy partial sum on the wire."""
    numbers = announced.length * wire.number_size(announced.modulus)
    content = partial_head(announced).size + numbers + SIGNATURE_SIZE
    return wire.HEADER_SIZE + 1 + announced.suite.overhead + content


class Aggregator(PendingReports):
    """One of the two aggregators in one round.

    `take` incoming messages, `close` at the deadline, send the messages that `close` returns, and
    repeat until nothing changes.

    Every call is idempotent, and the object can be recreated over the same stores at any time.
    `now` is this server's own clock, in seconds since 1970: the server trusts no other party about
    the progress of a round. One lock guards the object. Several objects, in several processes, may
    share the stores if `replace` and `setdefault` are atomic.
    """

    slot_at = wire.HEADER_SIZE + 1  # behind the role

    def __init__(
        self, party: AggregatorContext, announcement: bytes, table: MutableMapping[bytes, bytes]
    ) -> None:
        self.round = accept(TwoServerRound, party.pinned, announcement)
        if self.round.scale is not None and party.draw is None:
            raise TacitError("draw is None: must be a sampler where servers add the noise")
        self.role = party.role
        self.peer = party.pinned.terms.keys[1 - party.role]
        self.pinned = party.pinned
        self._party = party
        self._table = table
        self._name = party.name(self.round.identity)
        self._secrets: _Working | None = None
        self._read: tuple[bytes | None, RoundRecord | None] = (None, None)
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"Aggregator(round={self.round.identity.hex()}, role={self.role})"

    @cached_property
    def report_size(self) -> int:
        """Bytes of a report share for this server."""
        return self.round.share_size(self.role)

    def slot(self, number: int) -> ReportSlot:
        """The slot with this number, with its token."""
        return self.slots([number])[0]

    def _vault(self) -> PendingVault:
        return self._working(self._record()).vault

    def take(self, message: bytes, now: int) -> None:
        """Accept a report share or the other server's list.

        A repetition changes nothing; a different message for the same slot is rejected.
        """
        with self._lock:
            kind = message[3] if isinstance(message, bytes) and len(message) > 3 else None
            if kind == Kind.PRESENT:
                self._take_list(wire.body(message, Kind.PRESENT, self.round.identity))
            else:
                self._take_share(message, now)

    def check(self, message: bytes, now: int) -> CheckedShare:
        """Validate one report share, for callers that store many at once.

        The caller stores it in the table under its name if that is free; otherwise `same` must hold
        for the stored entry. Takes no lock, so it does not wait for a concurrent `close`.
        """
        data = wire.body(message, Kind.HALF, self.round.identity)
        if len(message) != self.report_size:
            raise Rejected(f"report share is {len(message)} bytes long: must be {self.report_size}")
        if data[0] != self.role:
            raise Rejected(f"report share is for server {data[0]}: must be for server {self.role}")
        number, token = SLOT.unpack_from(data, 1)
        record = self._record()
        if record.stage is not AggregatorStage.OPEN or now >= self.round.binding.closes:
            raise ClosedRound("round is closed or past its deadline: it accepts no more reports")
        share = data[1 : 1 + 4] + data[SHARE_FRONT:]
        vault = self._working(record).vault
        return vault.table_entry(ReportSlot(number, token), self.round.slots, share)

    def close(self, now: int) -> Mapping[bytes, bytes]:
        """Advance the round as far as possible; return messages by address.

        These are a list for the other server and a partial sum for the collector, once they exist.
        Too early, it raises `Rejected` and changes nothing. After the grace period a round without
        release is aborted.
        """
        with self._lock:
            record = self._record()
            if record.secret and now >= self.round.binding.closes + self.round.grace:
                record = self._close_record(record, None)
            if record.stage is AggregatorStage.OPEN:
                record = self._list_shares(record, now)
            if record.stage is AggregatorStage.LISTED:
                record = self._compute_answer(record)
            out = {self.peer: record.listing, self.round.collector: record.partial}
            if record.stage is AggregatorStage.CLOSED:
                self._forget()
                out[self.round.collector] = record.partial or record.outcome
            return {address: message for address, message in out.items() if message}

    def outcome(self) -> bytes:
        """The signed outcome of the round, once it is closed.

        A server without a record of the round states UNKNOWN, unsigned.
        """
        with self._lock:
            try:
                record = self._record()
            except UnknownRound:
                return self._front(Kind.OUTCOME) + bytes((RoundOutcome.UNKNOWN,))
            if record.stage is not AggregatorStage.CLOSED:
                raise Rejected("round is not closed yet. Ask again after its deadline")
            return record.outcome

    # Incoming messages

    def _take_share(self, message: bytes, now: int) -> None:
        waiting = self.check(message, now)
        if not self.same(waiting, self._table.setdefault(waiting.name, waiting.wrapped)):
            (number,) = struct.unpack_from(">I", waiting.share)
            raise Rejected(f"slot {number} has sent another report share before")

    def _take_list(self, data: bytes) -> None:
        record = self._record()
        if record.stage is AggregatorStage.CLOSED:
            return
        working = self._working(record)
        if data[:1] != bytes((1 - self.role,)):
            raise Rejected("list is not from the other server")
        content = working.peer_line.decrypt(self._front(Kind.PRESENT, 1 - self.role), data[1:])
        if len(content) > self.round.slots * self._entry_size or any(
            one >= two for (one, _), (two, _) in pairwise(self._entries(content))
        ):
            raise Rejected("list of the other server is too long or not in ascending order")
        name = working.list_name
        wrapped = working.vault.wrap(name, content)
        there = self._table.setdefault(name, wrapped)
        if there is not wrapped and working.vault.unwrap(name, there) != content:
            raise Rejected(
                "list of the other server differs from its earlier one: must be the same"
            )

    # Outgoing messages

    def _list_shares(self, record: RoundRecord, now: int) -> RoundRecord:
        """Record the list of usable report shares; abort below the minimum batch size."""
        working = self._working(record)
        waiting = len(self._table) - (working.list_name in self._table)
        if now < self.round.binding.closes and waiting < self.round.slots:
            raise Rejected(
                f"{waiting} of {self.round.slots} slots have reported before the deadline. The "
                "round stays open"
            )
        shares = self._shares(record)
        if len(shares) < self.round.minimum:
            return self._close_record(record, None)
        tags = content = shares.columns(0, DIGEST_SIZE)
        if self.round.proofs:
            content = shares.columns(0, self._entry_size)
        listing = working.peer_line.encrypt(self._front(Kind.PRESENT), content)
        return self._replaced(
            record, replace(record, stage=AggregatorStage.LISTED, tags=tags, listing=listing)
        )

    def _compute_answer(self, record: RoundRecord) -> RoundRecord:
        """Replace the secret by the noisy partial sum over the common reports, or by an abort.

        Verified rounds count only reports in range. Without the other server's list nothing
        changes.
        """
        working = self._working(record)
        name = working.list_name
        wrapped = self._table.get(name)
        if wrapped is None:  # or another process has closed the round and cleared the table
            return self._record()
        listing = working.vault.unwrap(name, wrapped)
        found = self._sum_common(record, listing, self._shares(record))
        if found is None:  # another process listed shares that arrived after these were decrypted
            found = self._sum_common(record, listing, self._shares(record, anew=True))
        if found is None or found.reports < self.round.minimum:
            return self._close_record(record, None)
        about = found.reports, found.digest, found.common - found.reports
        first = partial_head(self.round).pack(*about[: 3 if self.round.proofs else 2])
        sums = self._noisy(found.sums)
        return self._close_record(record, first + wire.pack_numbers(sums, self.round.modulus))

    def _sum_common(
        self, record: RoundRecord, listing: bytes, shares: _ReportShares
    ) -> _Sum | None:
        """Sum the reports that both servers hold; in verified rounds only those in range.

        Returns None if a listed share is missing.
        """
        proofs, evident = self.round.proofs, self._entry_size
        common = reports = 0
        digest, sums = hashlib.sha256(), [0] * self.round.length
        there = iter(shares)
        for tag, evidence in self._common(record, listing):
            share = next((one for one in there if one[:DIGEST_SIZE] >= tag), b"")
            if share[:DIGEST_SIZE] != tag:
                return None
            common += 1
            own = share[DIGEST_SIZE:evident]
            if proofs is None or proofs.accepts(*self._by_server(own, evidence)):
                reports += 1
                digest.update(tag)
                sums = list(map(add, sums, self._numbers(share[evident:])))
        return _Sum(common, reports, digest.digest(), sums)

    def _by_server(self, own: bytes, other: bytes) -> tuple[bytes, bytes]:
        """This server's value and the other server's, ordered by server number."""
        return (own, other) if self.role == 0 else (other, own)

    def _common(self, record: RoundRecord, listing: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The tags in both lists, with the other server's verifier shares; both lists ascend."""
        own = _cut(record.tags, DIGEST_SIZE)
        mine = next(own, None)
        for tag, evidence in self._entries(listing):
            while mine is not None and mine < tag:
                mine = next(own, None)
            if mine == tag:
                yield tag, evidence

    def _entries(self, listing: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The tags and verifier shares in a list; raises `Rejected` if its length is wrong."""
        size = self._entry_size
        whole = not len(listing) % size
        expect(
            whole, "list of the other server", f"{len(listing)} bytes long", f"a multiple of {size}"
        )
        for at in range(0, len(listing), size):
            yield listing[at : at + DIGEST_SIZE], listing[at + DIGEST_SIZE : at + size]

    @property
    def _entry_size(self) -> int:
        return DIGEST_SIZE + (self.round.proofs.evidence_size if self.round.proofs else 0)

    def _noisy(self, sums: Sequence[int]) -> list[int]:
        """Add this server's own noise to every sum."""
        modulus, scale, draw = self.round.modulus, self.round.scale, self._party.draw
        noise = [
            0 if scale is None or draw is None else self._draw_noise(scale, draw) for _ in sums
        ]
        return [(number + own) % modulus for number, own in zip(sums, noise, strict=True)]

    def _draw_noise(self, parameter: Fraction, draw: Draw) -> int:
        """Draw noise of the terms' distribution; Gaussian noise by rejection from Laplace draws."""
        if self.pinned.terms.distribution(self.round.binding.chosen) == DISCRETE_GAUSSIAN:
            return accepted_gaussian(parameter**2, draw)
        return draw(parameter)

    def _numbers(self, part: bytes) -> list[int]:
        modulus, length = self.round.modulus, self.round.length
        if self.role == 0 and self.round.sends_seed and not self.round.proofs:
            return masks.expand(part, modulus, length)
        return wire.unpack_numbers(part, modulus, length, "report share")

    def _close_record(self, record: RoundRecord, content: bytes | None) -> RoundRecord:
        """Close the round: replace all secrets by the outcome and the partial sum, if any."""
        about = self.round.context + bytes((self.role,))
        said = bytes((RoundOutcome.ABORTED if content is None else RoundOutcome.RELEASED,))
        outcome = (
            self._front(Kind.OUTCOME) + said + sign(Signed.OUTCOME, about + said, self._party.key)
        )
        partial = b""
        if content is not None:
            signed = content + sign(Signed.PARTIAL, about + content, self._party.key)
            encrypted = self.round.collector_key.encrypt(signed, partial_info(about))
            partial = self._front(Kind.PARTIAL) + encrypted
        last = replace(
            record,
            stage=AggregatorStage.CLOSED,
            secret=b"",
            tags=b"",
            outcome=outcome,
            partial=partial,
        )
        return self._replaced(record, last)

    # Stored state

    def _record(self) -> RoundRecord:
        """The record; decoded once while the round is open, because every report reads it."""
        encoded, (kept, record) = self._party.records.read(self._name), self._read
        if encoded != kept or record is None:
            record = None if encoded is None else RoundRecord.decode(encoded)
            is_open = record is not None and record.stage is AggregatorStage.OPEN
            self._read = (encoded, record) if is_open else (None, None)
        if record is None or record.context != self.round.context:
            raise UnknownRound("server has no record of this round: it makes no statement about it")
        return record

    def _replaced(self, old: RoundRecord, new: RoundRecord) -> RoundRecord:
        """Compare-and-swap the record; return the one that stands, perhaps another process's."""
        self._party.records.replace(self._name, old.encode(), new.encode())
        return self._record()

    def _working(self, record: RoundRecord) -> _Working:
        if not record.secret:
            raise ClosedRound("round is closed. Ask for its outcome")
        working = self._secrets  # a concurrent `close` may clear it
        if working is None:
            working = self._secrets = _Working(self.round, self.role, record.secret)
        return working

    def _shares(self, record: RoundRecord, *, anew: bool = False) -> _ReportShares:
        """The usable report shares in the table, decrypted once unless `anew`."""
        working = self._working(record)
        if anew or not len(working.shares):
            shares, table = _ReportShares(), self._table
            for name, wrapped in list(table.items()) if isinstance(table, dict) else table.items():
                if name != working.list_name and (share := working.decrypted(name, wrapped)):
                    shares.add(share)
            working.shares = shares
        return working.shares

    def _forget(self) -> None:
        self._secrets = None
        self._table.clear()

    def _front(self, kind: Kind, role: int | None = None) -> bytes:
        who = self.role if role is None else role
        return wire.header(kind, self.round.identity) + bytes((who,))


class _Working:
    """Keys and decrypted shares that a server derives from a round's secret; never saved."""

    def __init__(self, announced: TwoServerRound, role: int, secret: bytes) -> None:
        self.round, self.role = announced, role
        self.secrets = RoundSecrets(secret, announced.identity, announced.suite)
        ends = (announced.channel_key(0), announced.channel_key(1))
        line = self.secrets.keys.line
        self.peer_line = Channel(line, *ends, announced.context, starts=role == 0)
        tokens = derive(agree(line, ends[1 - role]), announced.context, b"tacit places v2")
        self.vault = PendingVault(self.secrets.wrapping, self.secrets.naming, tokens)
        self.shares = _ReportShares()
        self.list_name = self.vault.name(_LISTED)
        self._key = verify_key(line, ends, announced.identity) if announced.proofs else b""

    def decrypted(self, name: bytes, wrapped: bytes) -> bytes:
        """Decrypt a report share: tag, verifier share if any, content. Empty if invalid."""
        announced, role = self.round, self.role
        try:
            share = self.vault.unwrap(name, wrapped)
            (number,) = struct.unpack_from(">I", share)
            info = share_info(announced.context, role, number)
            content = self.secrets.keys.encryption.decrypt(share[4:], info)
            own, other = word_digest(content[:WORD_SIZE]), content[WORD_SIZE:LINK_SIZE]
            digests = (own, other) if role == 0 else (other, own)
            tag = report_tag(announced.context, number, digests)
            return tag + self._read(tag, content[LINK_SIZE:])
        except (Rejected, struct.error):
            return b""

    def _read(self, tag: bytes, part: bytes) -> bytes:
        """A share's content: seed or numbers as sent, or verifier share and numbers."""
        announced = self.round
        if announced.proofs:
            numbers, evidence = announced.proofs.prepare(self._key, self.role, tag, part)
            usable = numbers or [0] * announced.length  # the verifier share excludes them
            return evidence + wire.pack_numbers(usable, announced.modulus)
        if not (self.role == 0 and announced.sends_seed):
            wire.unpack_numbers(part, announced.modulus, announced.length, "report share")
        return part


@dataclass(frozen=True, repr=False)
class _Sum:
    """A server's sum before noise, over the reports that both servers hold and that are in range.

    `common` counts reports that both hold, `reports` those in range; `digest` covers their tags.
    """

    common: int
    reports: int
    digest: bytes
    sums: list[int]


class _ReportShares:
    """Decrypted report shares of equal size, in ascending order of their tags.

    They are kept in contiguous buffers: one object per share would take several times the memory.
    """

    def __init__(self) -> None:
        self._size = 0
        self._count = 0
        self._parts: dict[int, bytearray] = {}  # by the first byte of the tag

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        for shares in self._in_order():
            yield from shares

    def add(self, share: bytes) -> None:
        """Add a share, which starts with its tag."""
        self._size = len(share)
        self._count += 1
        self._parts.setdefault(share[0], bytearray()).extend(share)

    def columns(self, start: int, end: int) -> bytes:
        """Concatenate bytes start..end of every share."""
        return b"".join(
            [b"".join([share[start:end] for share in shares]) for shares in self._in_order()]
        )

    def _in_order(self) -> Iterator[list[bytes]]:
        """All shares in order, one buffer at a time."""
        for first in sorted(self._parts):
            yield sorted(_cut(bytes(self._parts[first]), self._size))


def partial_head(announced: TwoServerRound) -> struct.Struct:
    """The layout of the fields before the numbers of a partial sum."""
    return _VERIFIED_HEAD if announced.proofs else PARTIAL_HEAD


def partial_info(context: bytes) -> bytes:
    """The HPKE info string of a partial sum."""
    return b"tacit partial v2" + context


def _cut(content: bytes, size: int) -> Iterator[bytes]:
    return (content[at : at + size] for at in range(0, len(content), size))
