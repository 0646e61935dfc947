"""Two servers, what a server does: it keeps sealed halves, compares lists, and adds up once.

A server has two stores. `table` holds the halves that wait, wrapped under a secret of the round,
and may be lost, restored or rolled back at any time. `records` holds one record per round and
never goes back: the round's secret, made before the description is signed, until the noisy partial
sum or the refusal takes its place. Only what that record holds is ever handed on, so there is one
list, one partial sum and one outcome per round, whatever is restored, repeated or run twice. Bare
sums and noise are in neither store.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
import threading
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import add

from cryptography.exceptions import InvalidTag

from tacit.aggregation import masks
from tacit.aggregation.aggregator_context import AggregatorStage, RoundRecord, RoundSecrets, Seat
from tacit.aggregation.agreement import NONCE_SIZE, Channel, agree, derive
from tacit.aggregation.announcements import accept
from tacit.aggregation.interface import Refusal
from tacit.aggregation.two_servers import (
    DIGEST_SIZE,
    HALF_FRONT,
    LINK_SIZE,
    PLACE,
    TOKEN_SIZE,
    WORD_SIZE,
    Place,
    RoundOutcome,
    TwoServerRound,
    half_info,
    report_tag,
    word_digest,
)
from tacit.aggregation.verified import verify_key
from tacit.aggregation.wire import (
    HEADER_SIZE,
    Kind,
    body,
    header,
    number_size,
    pack_numbers,
    unpack_numbers,
)
from tacit.errors import TacitError
from tacit.signatures import SIGNATURE_SIZE, Signed, sign

PARTIAL_HEAD = struct.Struct(">I32s")  # reports, digest of their tags
_VERIFIED_HEAD = struct.Struct(">I32sI")  # and reports that were not in range
_LISTED = b"list of the other"  # in the table; longer than a place, whose name it must not be


def partial_size(announced: TwoServerRound) -> int:
    """Bytes of a server's noisy partial sum on the wire."""
    numbers = announced.length * number_size(announced.modulus)
    content = partial_head(announced).size + numbers + SIGNATURE_SIZE
    return HEADER_SIZE + 1 + announced.sealing.overhead + content


class UnknownRound(Refusal):
    """There is no record of a round."""


class ClosedRound(Refusal):
    """A round takes no more reports."""


@dataclass(frozen=True, repr=False)
class CheckedShare:
    """A half that was checked, for the table: its name there, how it is kept, and what it is."""

    name: bytes
    wrapped: bytes
    half: bytes


class HalfServer:
    """One of the two servers in one round: `take` what comes, `close` when it is time, hand on what
    `close` returns, and again until nothing changes.

    Every call may be repeated, and the object thrown away and made anew over the same stores at any
    time. `now` is this server's own clock, in seconds since 1970: nobody else is believed about how
    far a round is. One lock guards the object; several objects, in several processes, may share the
    stores if both replace and `setdefault` atomically.
    """

    def __init__(
        self, seat: Seat, announcement: bytes, table: MutableMapping[bytes, bytes]
    ) -> None:
        self.round = accept(TwoServerRound, seat.pinned, announcement)
        if self.round.scale is not None and seat.draw is None:
            raise TacitError("this server adds noise to its partial sum: say how it is drawn")
        self.role = seat.role
        self.peer = seat.pinned.terms.keys[1 - seat.role]
        self.pinned = seat.pinned
        self._seat = seat
        self._table = table
        self._name = seat.name(self.round.identity)
        self._secrets: _Working | None = None
        self._read: tuple[bytes, RoundRecord | None] = (b"", None)
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"HalfServer(round={self.round.identity.hex()}, role={self.role})"

    def place(self, number: int) -> Place:
        """The place of this number, with its token."""
        return self.places([number])[0]

    def places(self, numbers: Iterable[int]) -> list[Place]:
        """The places of these numbers, with their tokens."""
        working = self._working(self._record())
        return [Place(number, working.token(number)) for number in numbers]

    def take(self, message: bytes, now: int) -> None:
        """Accept one half of a report, or the other server's list; the same again changes
        nothing, and another in its place is refused.
        """
        with self._lock:
            kind = message[3] if isinstance(message, bytes) and len(message) > 3 else None
            if kind == Kind.PRESENT:
                self._take_list(body(message, Kind.PRESENT, self.round.identity))
            else:
                self._take_half(message, now)

    def check(self, message: bytes, now: int) -> CheckedShare:
        """A half of a report that may be put on the table, by whoever puts many at once: under its
        name, where none is, or the `same`. It waits for nobody who closes the round meanwhile.
        """
        data = body(message, Kind.HALF, self.round.identity)
        expected = self.round.half_size(self.role)
        if len(message) != expected:
            raise Refusal(f"a half of a report has {expected} bytes here; this has {len(message)}")
        if data[0] != self.role:
            raise Refusal(f"this half is for server {data[0]}; this is server {self.role}")
        number, token = PLACE.unpack_from(data, 1)
        record = self._record()
        if record.stage is not AggregatorStage.OPEN or now >= self.round.binding.closes:
            raise ClosedRound(
                "this round takes no more reports; its deadline is over or it is closed"
            )
        working = self._working(record)
        if number >= self.round.places or not hmac.compare_digest(token, working.token(number)):
            raise Refusal(f"place {number} was not given out in this round, or not to this report")
        name, half = working.name(struct.pack(">I", number)), data[1 : 1 + 4] + data[HALF_FRONT:]
        return CheckedShare(name, working.wrap(name, half), half)

    def same(self, waiting: CheckedShare, there: bytes) -> bool:
        """Whether what is on the table under this name is this half."""
        if there == waiting.wrapped:
            return True
        return self._working(self._record()).unwrap(waiting.name, there) == waiting.half

    def names(self, things: Iterable[bytes]) -> list[bytes]:
        """What things of this round are called where they are kept: as long as the round is not
        closed, and nothing that anybody could recognize afterwards.
        """
        working = self._working(self._record())
        return [working.name(b"other " + thing) for thing in things]

    def close(self, now: int) -> Mapping[bytes, bytes]:
        """Go as far as can be gone; returns a list for the other server and a partial sum for the
        collector, by address, as far as there are any. Too early: `Refusal`, and nothing changes;
        after the grace what is not opened is refused.
        """
        with self._lock:
            record = self._record()
            if record.secret and now >= self.round.binding.closes + self.round.grace:
                record = self._closed(record, None)
            if record.stage is AggregatorStage.OPEN:
                record = self._listed(record, now)
            if record.stage is AggregatorStage.LISTED:
                record = self._answered(record)
            out = {self.peer: record.listing, self.round.collector: record.partial}
            if record.stage is AggregatorStage.CLOSED:
                self._forget()
                out[self.round.collector] = record.partial or record.outcome
            return {address: message for address, message in out.items() if message}

    def outcome(self) -> bytes:
        """What became of the round: one signed message once it is closed, for whoever asks. A
        server that has no record of it says so and signs nothing.
        """
        with self._lock:
            try:
                record = self._record()
            except UnknownRound:
                return self._front(Kind.OUTCOME) + bytes((RoundOutcome.UNKNOWN,))
            if record.stage is not AggregatorStage.CLOSED:
                raise Refusal("this round is not closed yet; ask again after its deadline")
            return record.outcome

    # What comes in

    def _take_half(self, message: bytes, now: int) -> None:
        waiting = self.check(message, now)
        if not self.same(waiting, self._table.setdefault(waiting.name, waiting.wrapped)):
            (number,) = struct.unpack_from(">I", waiting.half)
            raise Refusal(f"place {number} has reported before, and something else")

    def _take_list(self, data: bytes) -> None:
        record = self._record()
        if record.stage is AggregatorStage.CLOSED:
            return
        working = self._working(record)
        if data[:1] != bytes((1 - self.role,)):
            raise Refusal("this list is not the other server's")
        content = working.peer_line.open(self._front(Kind.PRESENT, 1 - self.role), data[1:])
        if len(content) > self.round.places * self._entry_size or any(
            one >= two for (one, _), (two, _) in pairwise(self._entries(content))
        ):
            raise Refusal("the other server's list is too long, or not in ascending order")
        name = working.list_name
        if not self._kept(working, name, content):
            raise Refusal("the other server has sent another list before")

    def _kept(self, working: _Working, name: bytes, content: bytes) -> bool:
        """Whether this is in the table now: it was free, or the same was there."""
        wrapped = working.wrap(name, content)
        there = self._table.setdefault(name, wrapped)
        return there is wrapped or working.unwrap(name, there) == content

    # What goes out

    def _listed(self, record: RoundRecord, now: int) -> RoundRecord:
        """The list of usable halves, or a refusal, in the place of the open round."""
        working = self._working(record)
        waiting = len(self._table) - (working.list_name in self._table)
        if now < self.round.binding.closes and waiting < self.round.places:
            raise Refusal(
                f"{waiting} of {self.round.places} places have reported and the deadline is not "
                "over; the round stays open"
            )
        halves = self._halves(record)
        if len(halves) < self.round.minimum:
            return self._closed(record, None)
        tags = content = halves.columns(0, DIGEST_SIZE)
        if self.round.proofs:
            content = halves.columns(0, self._entry_size)
        listing = working.peer_line.seal(self._front(Kind.PRESENT), content)
        return self._replaced(
            record, replace(record, stage=AggregatorStage.LISTED, tags=tags, listing=listing)
        )

    def _answered(self, record: RoundRecord) -> RoundRecord:
        """The noisy partial sum of what both have, and what is in range where that is verified, or
        a refusal, in the place of the secret; still the same without the other's list.
        """
        working = self._working(record)
        name = working.list_name
        wrapped = self._table.get(name)
        if wrapped is None:  # or another process has closed the round and cleared the table
            return self._record()
        listing = working.unwrap(name, wrapped)
        found = self._added(record, listing, self._halves(record))
        if found is None:  # another process has listed what came after these were opened
            found = self._added(record, listing, self._halves(record, anew=True))
        if found is None or found.reports < self.round.minimum:
            return self._closed(record, None)
        about = found.reports, found.digest, found.common - found.reports
        first = partial_head(self.round).pack(*about[: 3 if self.round.proofs else 2])
        sums = self._noisy(found.sums)
        return self._closed(record, first + pack_numbers(sums, self.round.modulus))

    def _added(self, record: RoundRecord, listing: bytes, halves: _Halves) -> _Sum | None:
        """The sum of what both have and, where that is verified, is in range; one half after the
        other. None if a half that was listed is not there.
        """
        proofs, evident = self.round.proofs, self._entry_size
        common = reports = 0
        digest, sums = hashlib.sha256(), [0] * self.round.length
        there = iter(halves)
        for tag, evidence in self._common(record, listing):
            half = next((one for one in there if one[:DIGEST_SIZE] >= tag), b"")
            if half[:DIGEST_SIZE] != tag:
                return None
            common += 1
            if proofs is None or proofs.hold(half[DIGEST_SIZE:evident], evidence):
                reports += 1
                digest.update(tag)
                sums = list(map(add, sums, self._numbers(half[evident:])))
        return _Sum(common, reports, digest.digest(), sums)

    def _common(self, record: RoundRecord, listing: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Tags that both lists have, with the other server's evidence; both are in ascending
        order.
        """
        own = _cut(record.tags, DIGEST_SIZE)
        mine = next(own, None)
        for tag, evidence in self._entries(listing):
            while mine is not None and mine < tag:
                mine = next(own, None)
            if mine == tag:
                yield tag, evidence

    def _entries(self, listing: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Tags and evidence of a list, which must be one."""
        size = self._entry_size
        if len(listing) % size:
            raise Refusal(
                f"the other server's list has {len(listing)} bytes; expected are records of {size}"
            )
        for at in range(0, len(listing), size):
            yield listing[at : at + DIGEST_SIZE], listing[at + DIGEST_SIZE : at + size]

    @property
    def _entry_size(self) -> int:
        return DIGEST_SIZE + (self.round.proofs.evidence_size if self.round.proofs else 0)

    def _noisy(self, sums: Sequence[int]) -> list[int]:
        """These sums, with noise of this server's own on every number."""
        modulus, scale, draw = self.round.modulus, self.round.scale, self._seat.draw
        noise = [0 if scale is None or draw is None else draw(scale) for _ in sums]
        return [(number + own) % modulus for number, own in zip(sums, noise, strict=True)]

    def _numbers(self, part: bytes) -> list[int]:
        modulus, length = self.round.modulus, self.round.length
        if self.role == 0 and self.round.seeded and not self.round.proofs:
            return masks.expand(part, modulus, length)
        return unpack_numbers(part, modulus, length, "a half")

    def _closed(self, record: RoundRecord, content: bytes | None) -> RoundRecord:
        """The end of a round: what is sent from now on, in the place of everything secret."""
        about = self.round.context + bytes((self.role,))
        said = bytes((RoundOutcome.REFUSED if content is None else RoundOutcome.OPENED,))
        outcome = (
            self._front(Kind.OUTCOME) + said + sign(Signed.OUTCOME, about + said, self._seat.key)
        )
        partial = b""
        if content is not None:
            signed = content + sign(Signed.PARTIAL, about + content, self._seat.key)
            sealed = self.round.collecting.seal(signed, partial_info(about))
            partial = self._front(Kind.PARTIAL) + sealed
        last = replace(
            record,
            stage=AggregatorStage.CLOSED,
            secret=b"",
            tags=b"",
            outcome=outcome,
            partial=partial,
        )
        return self._replaced(record, last)

    # What is kept

    def _record(self) -> RoundRecord:
        found = self._seat.records.read(self._name)
        record = self._decoded(found) if found is not None else None
        if record is None or record.context != self.round.context:
            raise UnknownRound(
                "this server has neither key, partial sum nor refusal on record for this round: it "
                "says nothing about it"
            )
        return record

    def _decoded(self, found: bytes) -> RoundRecord:
        """A record, read once as long as every report asks for it: lists are not kept at hand."""
        kept, record = self._read
        if record is None or kept != found:
            record = RoundRecord.decode(found)
            self._read = (found, record) if record.stage is AggregatorStage.OPEN else (b"", None)
        return record

    def _replaced(self, old: RoundRecord, new: RoundRecord) -> RoundRecord:
        """What is on record after the attempt to replace it: somebody else may have been
        faster.
        """
        self._seat.records.replace(self._name, old.encode(), new.encode())
        return self._record()

    def _working(self, record: RoundRecord) -> _Working:
        if not record.secret:
            raise ClosedRound("this round is closed; ask for its outcome")
        working = self._secrets  # which whoever closes the round meanwhile takes away
        if working is None:
            working = self._secrets = _Working(self.round, self.role, record.secret)
        return working

    def _halves(self, record: RoundRecord, *, anew: bool = False) -> _Halves:
        """The usable halves on the table; opened once, unless they are wanted anew."""
        working = self._working(record)
        if anew or not len(working.halves):
            halves, table = _Halves(), self._table
            for name, wrapped in list(table.items()) if isinstance(table, dict) else table.items():
                if name != working.list_name and (half := working.opened(name, wrapped)):
                    halves.add(half)
            working.halves = halves
        return working.halves

    def _forget(self) -> None:
        self._secrets = None
        self._table.clear()

    def _front(self, kind: Kind, role: int | None = None) -> bytes:
        who = self.role if role is None else role
        return header(kind, self.round.identity) + bytes((who,))


class _Working:
    """What a server works with while it has a round's secret; never saved."""

    def __init__(self, announced: TwoServerRound, role: int, secret: bytes) -> None:
        self.round, self.role = announced, role
        self.secrets = RoundSecrets(secret, announced.identity, announced.sealing)
        ends = (announced.line(0), announced.line(1))
        line = self.secrets.keys.line
        self.peer_line = Channel(line, *ends, announced.context, starts=role == 0)
        places = derive(agree(line, ends[1 - role]), announced.context, b"tacit places v2")
        self._places = hmac.new(places, digestmod="sha256")
        self.halves = _Halves()
        self.list_name = self.name(_LISTED)
        self._key = verify_key(line, ends, announced.identity) if announced.proofs else b""

    def token(self, number: int) -> bytes:
        """What both servers recognize a place by."""
        return _mac(self._places, struct.pack(">I", number))[:TOKEN_SIZE]

    def name(self, what: bytes) -> bytes:
        """What something is called in the table: says nothing to who has not the secret."""
        return _mac(self.secrets.naming, what)[:16]

    def wrap(self, name: bytes, content: bytes) -> bytes:
        """What is kept in the table."""
        nonce = os.urandom(NONCE_SIZE)
        return nonce + self.secrets.wrapping.encrypt(nonce, content, name)

    def unwrap(self, name: bytes, wrapped: bytes) -> bytes:
        """What was kept in the table."""
        try:
            nonce, rest = wrapped[:NONCE_SIZE], wrapped[NONCE_SIZE:]
            return self.secrets.wrapping.decrypt(nonce, rest, name)
        except (InvalidTag, ValueError):
            raise Refusal("what was kept of this round is damaged, or another round's") from None

    def opened(self, name: bytes, wrapped: bytes) -> bytes:
        """A half as it is held: its tag, its evidence where that is verified, and its part; empty
        for what does not open.
        """
        announced, role = self.round, self.role
        try:
            half = self.unwrap(name, wrapped)
            (number,) = struct.unpack_from(">I", half)
            info = half_info(announced.context, role, number)
            content = self.secrets.keys.sealing.open(half[4:], info)
            own, other = word_digest(content[:WORD_SIZE]), content[WORD_SIZE:LINK_SIZE]
            digests = (own, other) if role == 0 else (other, own)
            tag = report_tag(announced.context, number, digests)
            return tag + self._read(tag, content[LINK_SIZE:])
        except (Refusal, struct.error):
            return b""

    def _read(self, tag: bytes, part: bytes) -> bytes:
        """What a half says: a seed or packed numbers, as it was sent, or, after its evidence,
        numbers that were verified.
        """
        announced = self.round
        if announced.proofs:
            numbers, evidence = announced.proofs.prepared(self._key, self.role, tag, part)
            usable = numbers or [0] * announced.length  # the evidence keeps them out
            return evidence + pack_numbers(usable, announced.modulus)
        if not (self.role == 0 and announced.seeded):
            unpack_numbers(part, announced.modulus, announced.length, "a half")
        return part


@dataclass(frozen=True, repr=False)
class _Sum:
    """What a server adds up: of halves that both have, those in range, the digest of their tags,
    and the sums, to which nothing was added yet.
    """

    common: int
    reports: int
    digest: bytes
    sums: list[int]


class _Halves:
    """Opened halves in ascending order of their tags, all of the same size and in as many bytes as
    that: an object for each would take several times the memory.
    """

    def __init__(self) -> None:
        self._size = 0
        self._count = 0
        self._parts: dict[int, bytearray] = {}  # by the first byte of the tag

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        for halves in self._in_order():
            yield from halves

    def add(self, half: bytes) -> None:
        """One more, with its tag in front."""
        self._size = len(half)
        self._count += 1
        self._parts.setdefault(half[0], bytearray()).extend(half)

    def columns(self, start: int, end: int) -> bytes:
        """These bytes of every half."""
        return b"".join(
            [b"".join([half[start:end] for half in halves]) for halves in self._in_order()]
        )

    def _in_order(self) -> Iterator[list[bytes]]:
        """All of them, a part at a time."""
        for first in sorted(self._parts):
            yield sorted(_cut(bytes(self._parts[first]), self._size))


def _mac(keyed: hmac.HMAC, message: bytes) -> bytes:
    """HMAC-SHA256, of a key that was prepared once."""
    one = keyed.copy()
    one.update(message)
    return one.digest()


def partial_head(announced: TwoServerRound) -> struct.Struct:
    """What stands before the numbers of a partial sum."""
    return _VERIFIED_HEAD if announced.proofs else PARTIAL_HEAD


def partial_info(about: bytes) -> bytes:
    """What a partial sum is sealed under."""
    return b"tacit partial v2" + about


def _cut(content: bytes, size: int) -> Iterator[bytes]:
    return (content[at : at + size] for at in range(0, len(content), size))
