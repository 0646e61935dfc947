"""Two servers: each report in halves, for two that do not talk behind people's backs.

A device splits its numbers into two parts that add up to them modulo m, each part alone uniformly
random, and seals one to each server. One message per person and no second round: dropping out is
simply not being there. The servers compare which reports both have, each adds up its halves of
those, and a collector adds the two sums. A report counts only if both halves arrived, and nothing
is added up for fewer than `minimum` of them.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.checks import TacitError
from tacit.intermediaries import masks
from tacit.intermediaries.agreement import KEY_SIZE, Channel, public_bytes
from tacit.intermediaries.interface import (
    IDENTITY_SIZE,
    SYSTEM,
    Refusal,
    Source,
    SumView,
    check_counts,
    check_minimum,
    new_identity,
    opened,
)
from tacit.intermediaries.sealing import DEFAULT, Recipient, Sealing, ServerKeys, recipients, suite
from tacit.intermediaries.wire import (
    HEADER_SIZE,
    Kind,
    body,
    check_length,
    check_modulus,
    check_numbers,
    described,
    front,
    head,
    header,
    identity_of,
    last_modulus,
    number_size,
    pack_modulus,
    pack_numbers,
    records,
    unpack_numbers,
)

ID_SIZE = 16
WORD_SIZE = 16
DIGEST_SIZE = 16
TAG_SIZE = 16

_HEAD = struct.Struct(f">IIIB{KEY_SIZE}s")
_LINK_SIZE = WORD_SIZE + DIGEST_SIZE
_PARTIAL_HEAD = struct.Struct(">I32s")  # reports, digest of their tags


@dataclass(frozen=True)
class TwoServerRound:
    """What everyone knows about a round: the counts, the modulus, and who the two servers and the
    collector are. A new round has a fresh random identity.
    """

    reports: int
    minimum: int
    modulus: int
    servers: tuple[bytes, bytes]
    collector: bytes
    length: int = 1
    sealing: Sealing = DEFAULT
    identity: bytes = field(default_factory=new_identity)

    def __post_init__(self) -> None:
        check_counts(self.reports, self.minimum)
        check_modulus(self.modulus)
        check_length(self.length, self.modulus)
        sizes = {len(public) for public in self.servers}
        if (
            len(self.identity) != IDENTITY_SIZE
            or len(self.collector) != KEY_SIZE
            or sizes != {self.sealing.public_size}
        ):
            raise TacitError(
                "a round names two servers and a collector by keys of its suite "
                f"{self.sealing.name}"
            )
        lines = {*(public[:KEY_SIZE] for public in self.servers), self.collector}
        if len(lines) != 3 or self.servers[0][KEY_SIZE:] == self.servers[1][KEY_SIZE:]:
            raise TacitError("two of the three parties have the same key; each must have its own")

    def encode(self) -> bytes:
        """The message that announces the round."""
        fields = _HEAD.pack(self.reports, self.minimum, self.length, self.sealing, self.collector)
        return (
            header(Kind.TWO_SERVER_ROUND, self.identity)
            + fields
            + b"".join(self.servers)
            + pack_modulus(self.modulus)
        )

    @classmethod
    def decode(cls, message: bytes) -> TwoServerRound:
        """The round that a message announces."""
        fields, rest = head(_HEAD, body(message, Kind.TWO_SERVER_ROUND), "the description")
        reports, minimum, length, number, collector = fields
        sealing = suite(number)
        size = sealing.public_size
        first, second = records(
            front(rest, 2 * size, "the list of servers"), size, 2, "the list of servers"
        )
        modulus = last_modulus(rest[2 * size :])
        with described():
            servers, identity = (first, second), identity_of(message)
            return cls(reports, minimum, modulus, servers, collector, length, sealing, identity)

    @cached_property
    def context(self) -> bytes:
        """A digest of everything above; it is bound into every seal and key."""
        return hashlib.sha256(self.encode()).digest()

    @cached_property
    def recipients(self) -> tuple[Recipient, Recipient]:
        """The two servers, as people seal to them."""
        return recipients(self.sealing, self.servers)

    @property
    def half_size(self) -> int:
        """Bytes of one half of a report on the wire."""
        numbers = self.length * number_size(self.modulus)
        return HEADER_SIZE + 1 + ID_SIZE + self.sealing.overhead + WORD_SIZE + DIGEST_SIZE + numbers

    def line(self, number: int) -> bytes:
        """The public key of a server's line."""
        return self.servers[number][:KEY_SIZE]


def split(
    announced: TwoServerRound, values: Sequence[int], source: Source = SYSTEM
) -> tuple[bytes, bytes]:
    """One person's report: the half for server 0 and the half for server 1. `source` is for test
    vectors only.

    The halves carry the same random id in the clear. Inside, each carries a random word of its own
    and the digest of the other's word: nobody who does not know a half's word, not even the other
    server, can put another in its place.
    """
    numbers = check_numbers(values, announced.modulus, announced.length)
    name, seed = source(ID_SIZE), source(masks.SEED_SIZE)
    words = (source(WORD_SIZE), source(WORD_SIZE))
    first = masks.total([seed], [], announced.modulus, announced.length)
    second = [
        (number - part) % announced.modulus for number, part in zip(numbers, first, strict=True)
    ]
    halves = []
    for role, (recipient, part) in enumerate(
        zip(announced.recipients, (first, second), strict=True)
    ):
        content = words[role] + _digest(words[1 - role]) + pack_numbers(part, announced.modulus)
        sealed = recipient.seal(content, _half_info(announced.context, role, name))
        halves.append(header(Kind.HALF, announced.identity) + bytes((role,)) + name + sealed)
    return halves[0], halves[1]


class HalfServer:
    """One of the two servers in one round.

    One object per round, never a second one for the same round: two sums over different reports
    would tell them apart. It takes halves until `close`, which returns the list of what it has for
    the other server; then it takes the other's list, and the second `close` returns its partial sum
    for the collector and forgets everything.
    """

    def __init__(self, announced: TwoServerRound, role: int, keys: ServerKeys) -> None:
        if role not in (0, 1) or announced.servers[role] != keys.public():
            raise TacitError(f"these keys are not those of server {role} of the round")
        self.round = announced
        self.role = role
        self._key = keys.sealing
        ends = (announced.line(0), announced.line(1))
        self._peer = Channel(keys.line, *ends, announced.context, starts=role == 0)
        self._collector = Channel(
            keys.line,
            ends[role],
            announced.collector,
            announced.context,
            starts=True,
        )
        self._halves: dict[bytes, list[int]] = {}
        self._common: list[bytes] | None = None
        self._stage: Kind | None = Kind.HALF

    def __repr__(self) -> str:
        where = f"round={self.round.identity.hex()}, role={self.role}"
        return f"HalfServer({where}, halves={len(self._halves)})"

    def take(self, message: bytes) -> None:
        """Accept one half of a report or, after the first `close`, the other server's list."""
        if self._stage is Kind.HALF:
            self._take_half(message)
        elif self._stage is Kind.PRESENT:
            self._take_list(message)
        else:
            raise Refusal("this round is over; it takes no more messages")

    def close(self) -> Mapping[bytes, bytes]:
        """End the current stage; returns a message for the other server, then one for the
        collector.
        """
        try:
            if self._stage is Kind.HALF:
                check_minimum(len(self._halves), self.round.minimum)
                self._stage = Kind.PRESENT
                return {
                    self.round.line(1 - self.role): self._seal(
                        self._peer, Kind.PRESENT, b"".join(sorted(self._halves))
                    )
                }
            if self._stage is Kind.PRESENT:
                common = self._common or []
                check_minimum(len(common), self.round.minimum, "reports at both servers")
                content = _PARTIAL_HEAD.pack(len(common), hashlib.sha256(b"".join(common)).digest())
                sums = [
                    sum(column) % self.round.modulus
                    for column in zip(*map(self._halves.__getitem__, common), strict=True)
                ]
                content += pack_numbers(sums, self.round.modulus)
                self._end()
                return {self.round.collector: self._seal(self._collector, Kind.PARTIAL, content)}
        except Refusal:
            self._end()
            raise
        raise Refusal("this round is over; there is nothing to close")

    def _take_half(self, message: bytes) -> None:
        data = body(message, Kind.HALF, self.round.identity)
        if len(data) + HEADER_SIZE != self.round.half_size:
            raise Refusal(
                f"a half of a report has {self.round.half_size} bytes here; this has "
                f"{len(data) + HEADER_SIZE}"
            )
        if data[0] != self.role:
            raise Refusal(f"this half is for server {data[0]}; this is server {self.role}")
        name = data[1 : 1 + ID_SIZE]
        content = self._key.open(
            data[1 + ID_SIZE :], _half_info(self.round.context, self.role, name)
        )
        word, other, numbers = (
            content[:WORD_SIZE],
            content[WORD_SIZE:_LINK_SIZE],
            content[_LINK_SIZE:],
        )
        digests = (_digest(word), other) if self.role == 0 else (other, _digest(word))
        tag = _tag(self.round.context, name, digests)
        if tag in self._halves:
            raise Refusal("this half has arrived before; it counts once")
        if len(self._halves) >= self.round.reports:
            raise Refusal(f"the round is full: it was opened for {self.round.reports} reports")
        self._halves[tag] = unpack_numbers(numbers, self.round.modulus, self.round.length, "a half")

    def _take_list(self, message: bytes) -> None:
        if self._common is not None:
            raise Refusal("the other server's list has arrived before")
        content = _open(self._peer, Kind.PRESENT, message, self.round.identity)
        count = len(content) // TAG_SIZE
        listed = records(content, TAG_SIZE, count, "the list of the other server")
        if count > self.round.reports or any(a >= b for a, b in pairwise(listed)):
            raise Refusal("the other server's list is too long, or not in ascending order")
        self._common = [tag for tag in listed if tag in self._halves]

    def _seal(self, channel: Channel, kind: Kind, content: bytes) -> bytes:
        return channel.seal(header(kind, self.round.identity) + bytes((self.role,)), content)

    def _end(self) -> None:
        self._stage = None
        self._halves = {}
        self._common = None


class Collector:
    """The party that learns the sum: it takes one partial sum from each server and adds the two."""

    def __init__(self, announced: TwoServerRound, key: X25519PrivateKey) -> None:
        if announced.collector != public_bytes(key):
            raise TacitError("this key is not the collector's of the round")
        self.round = announced
        self._channels = [
            Channel(key, announced.line(role), announced.collector, announced.context, starts=False)
            for role in (0, 1)
        ]
        self._partials: dict[int, tuple[bytes, list[int]]] = {}
        self._view: SumView | None = None
        self._over = False

    def __repr__(self) -> str:
        return f"Collector(round={self.round.identity.hex()}, partials={sorted(self._partials)})"

    def take(self, message: bytes) -> None:
        """Accept a server's partial sum."""
        role = front(body(message, Kind.PARTIAL, self.round.identity), 1, "the partial sum")[0]
        if self._over or role not in (0, 1) or role in self._partials:
            raise Refusal(
                f"the partial sum of server {role} is not expected, or has arrived before"
            )
        content = _open(self._channels[role], Kind.PARTIAL, message, self.round.identity)
        about = front(content, _PARTIAL_HEAD.size, "the partial sum")
        sums = unpack_numbers(
            content[_PARTIAL_HEAD.size :], self.round.modulus, self.round.length, "the partial sum"
        )
        self._partials[role] = (about, sums)

    def close(self) -> Mapping[bytes, bytes]:
        """Add the two partial sums, if they are about the same reports."""
        partials, self._partials, self._over = self._partials, {}, True
        if len(partials) != 2:
            raise Refusal(f"{len(partials)} of 2 partial sums arrived; nothing was opened")
        (about, first), (other, second) = partials[0], partials[1]
        if about != other:
            raise Refusal(
                "the two servers added up different reports; nothing was opened. Open a new round."
            )
        reports, _ = _PARTIAL_HEAD.unpack(about)
        check_minimum(reports, self.round.minimum, "reports at both servers")
        sums = ((a + b) % self.round.modulus for a, b in zip(first, second, strict=True))
        self._view = SumView(tuple(sums), reports)
        return {}

    def view(self) -> SumView:
        """The sum of the reports that both servers had."""
        return opened(self._view, "is no sum")


def _half_info(context: bytes, role: int, name: bytes) -> bytes:
    return b"tacit splitting half v1" + context + bytes((role,)) + name


def _digest(word: bytes) -> bytes:
    return hashlib.sha256(b"tacit splitting word v1" + word).digest()[:DIGEST_SIZE]


def _tag(context: bytes, name: bytes, digests: tuple[bytes, bytes]) -> bytes:
    """What both servers call the same report; only who knows a half's word can make a half with the
    same tag.
    """
    return hashlib.sha256(b"tacit splitting tag v1" + context + name + b"".join(digests)).digest()[
        :TAG_SIZE
    ]


def _open(channel: Channel, kind: Kind, message: bytes, identity: bytes) -> bytes:
    data = body(message, kind, identity)
    start = HEADER_SIZE + 1
    return channel.open(bytes(message[:start]), data[1:])
