"""Mixing: a shuffler that sees who sends but not what, and an analyzer that sees what but not who.

Each message is sealed to the analyzer; a person's messages of a round are then wrapped together for
the shuffler, which unwraps them, drops what it has seen before, waits until the batch is full or
closed, deals all messages of all people in random order, hands them on and forgets. Every message
of a round has the same length and carries nothing that ties it to another.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tacit.checks import TacitError, integer
from tacit.intermediaries.agreement import KEY_SIZE, Channel
from tacit.intermediaries.interface import (
    IDENTITY_SIZE,
    SYSTEM,
    Refusal,
    Source,
    check_counts,
    check_minimum,
    new_identity,
    opened,
)
from tacit.intermediaries.sealing import DEFAULT, Recipient, Sealing, ServerKeys, recipients, suite
from tacit.intermediaries.wire import (
    HEADER_SIZE,
    SIZE_LIMIT,
    Kind,
    body,
    described,
    head,
    header,
    identity_of,
    records,
)

ID_SIZE = 16

_HEAD = struct.Struct(">IIIIB")
_BATCH_HEAD = struct.Struct(">I")
_SEEN_SIZE = 16


@dataclass(frozen=True)
class MixingRound:
    """What everyone knows about a round: each of `reports` people sends `messages` messages of
    `size` bytes. A new round has a fresh random identity.
    """

    reports: int
    minimum: int
    size: int
    shuffler: bytes
    analyzer: bytes
    messages: int = 1
    sealing: Sealing = DEFAULT
    identity: bytes = field(default_factory=new_identity)

    def __post_init__(self) -> None:
        check_counts(self.reports, self.minimum)
        integer("size", self.size, at_least=1)
        integer("messages", self.messages, at_least=1)
        if self.reports * self.messages * self.sealed_size >= SIZE_LIMIT:
            raise TacitError(
                f"the batch would exceed {SIZE_LIMIT} bytes; open several rounds of fewer reports"
            )
        sizes = {len(self.shuffler), len(self.analyzer)}
        if len(self.identity) != IDENTITY_SIZE or sizes != {self.sealing.public_size}:
            raise TacitError(
                f"a round names a shuffler and an analyzer by keys of its suite {self.sealing.name}"
            )
        if (
            self.shuffler[:KEY_SIZE] == self.analyzer[:KEY_SIZE]
            or self.shuffler[KEY_SIZE:] == self.analyzer[KEY_SIZE:]
        ):
            raise TacitError(
                "the shuffler and the analyzer have the same key; each must have its own"
            )

    def encode(self) -> bytes:
        """The message that announces the round."""
        fields = _HEAD.pack(self.reports, self.minimum, self.size, self.messages, self.sealing)
        return header(Kind.MIXING_ROUND, self.identity) + fields + self.shuffler + self.analyzer

    @classmethod
    def decode(cls, message: bytes) -> MixingRound:
        """The round that a message announces."""
        fields, rest = head(_HEAD, body(message, Kind.MIXING_ROUND), "the description")
        reports, minimum, size, messages, number = fields
        sealing = suite(number)
        shuffler, analyzer = records(rest, sealing.public_size, 2, "the list of keys")
        with described():
            return cls(
                reports, minimum, size, shuffler, analyzer, messages, sealing, identity_of(message)
            )

    @cached_property
    def context(self) -> bytes:
        """A digest of everything above; it is bound into every seal and key."""
        return hashlib.sha256(self.encode()).digest()

    @cached_property
    def recipients(self) -> tuple[Recipient, Recipient]:
        """The shuffler and the analyzer, as people seal to them."""
        return recipients(self.sealing, (self.shuffler, self.analyzer))

    @property
    def sealed_size(self) -> int:
        """Bytes of one message as the shuffler holds it, sealed to the analyzer."""
        return self.sealing.overhead + ID_SIZE + self.size

    @property
    def report_size(self) -> int:
        """Bytes of one person's report on the wire."""
        return HEADER_SIZE + self.sealing.overhead + self.messages * self.sealed_size


def wrap(announced: MixingRound, messages: Sequence[bytes], source: Source = SYSTEM) -> bytes:
    """One person's report: every message sealed to the analyzer by itself, all together wrapped for
    the shuffler.

    Each message carries a fresh random id, so that the analyzer counts it once whatever a shuffler
    does. `source` is for test vectors only.
    """
    if len(messages) != announced.messages or any(
        len(message) != announced.size for message in messages
    ):
        raise TacitError(
            f"a report of this round is {announced.messages} messages of {announced.size} bytes "
            "each: pad shorter ones"
        )
    shuffler, analyzer = announced.recipients
    info = _inner_info(announced.context)
    inner = b"".join([analyzer.seal(source(ID_SIZE) + message, info) for message in messages])
    return header(Kind.WRAPPED, announced.identity) + shuffler.seal(
        inner, _outer_info(announced.context)
    )


class Shuffler:
    """The shuffler in one round: takes reports until it is full or closed, then hands everything on
    in random order.
    """

    def __init__(self, announced: MixingRound, keys: ServerKeys) -> None:
        if announced.shuffler != keys.public():
            raise TacitError("these keys are not those of the round's shuffler")
        self.round = announced
        self._key = keys.sealing
        ends = (announced.shuffler[:KEY_SIZE], announced.analyzer[:KEY_SIZE])
        self._line = Channel(keys.line, *ends, announced.context, starts=True)
        self._buffer: list[bytes] = []
        self._seen: set[bytes] = set()
        self._open = True

    def __repr__(self) -> str:
        return f"Shuffler(round={self.round.identity.hex()}, buffered={len(self._buffer)})"

    @property
    def full(self) -> bool:
        """Whether the batch is complete and should be closed."""
        return len(self._buffer) >= self.round.reports * self.round.messages

    def take(self, message: bytes) -> None:
        """Unwrap one report and keep its sealed messages."""
        if not self._open:
            raise Refusal("this round is over; it takes no more messages")
        data = body(message, Kind.WRAPPED, self.round.identity)
        if self.full:
            raise Refusal(f"the round is full: it was opened for {self.round.reports} reports")
        if len(data) + HEADER_SIZE != self.round.report_size:
            raise Refusal(
                f"a report has {self.round.report_size} bytes here; this has "
                f"{len(data) + HEADER_SIZE}"
            )
        inner = self._key.open(data, _outer_info(self.round.context))
        sealed = records(inner, self.round.sealed_size, self.round.messages, "the wrapped report")
        seen = {hashlib.sha256(item).digest()[:_SEEN_SIZE] for item in sealed}
        if len(seen) != len(sealed) or not seen.isdisjoint(self._seen):
            raise Refusal("a message of this report has arrived before; it counts once")
        self._seen |= seen
        self._buffer += sealed

    def close(self) -> Mapping[bytes, bytes]:
        """Deal the buffered messages in random order to the analyzer, and forget them."""
        if not self._open:
            raise Refusal("this round is over; there is nothing to close")
        batch, reports = self._buffer, len(self._buffer) // self.round.messages
        self._open, self._buffer, self._seen = False, [], set()
        check_minimum(reports, self.round.minimum)
        secrets.SystemRandom().shuffle(batch)
        content = _BATCH_HEAD.pack(reports) + b"".join(batch)
        line = self.round.analyzer[:KEY_SIZE]
        return {line: self._line.seal(header(Kind.BATCH, self.round.identity), content)}


@dataclass(frozen=True)
class MixView:
    """What the analyzer learns: the messages in random order, how many reports came, and how many
    messages were spoilt.

    A message is spoilt when it does not open or repeats another's id. Honest devices and shufflers
    make none.
    """

    messages: tuple[bytes, ...]
    reports: int
    spoilt: int


class Analyzer:
    """The analyzer in one round: takes the shuffler's batch and opens its messages."""

    def __init__(self, announced: MixingRound, keys: ServerKeys) -> None:
        if announced.analyzer != keys.public():
            raise TacitError("these keys are not those of the round's analyzer")
        self.round = announced
        self._key = keys.sealing
        ends = (announced.shuffler[:KEY_SIZE], announced.analyzer[:KEY_SIZE])
        self._line = Channel(keys.line, *ends, announced.context, starts=False)
        self._batch: tuple[int, list[bytes]] | None = None
        self._view: MixView | None = None
        self._over = False

    def __repr__(self) -> str:
        return f"Analyzer(round={self.round.identity.hex()}, opened={self._view is not None})"

    def take(self, message: bytes) -> None:
        """Accept the shuffler's batch."""
        if self._batch is not None or self._over:
            raise Refusal("the batch of this round has arrived before, or the round is over")
        data = body(message, Kind.BATCH, self.round.identity)
        content = self._line.open(bytes(message[:HEADER_SIZE]), data)
        (reports,), rest = head(_BATCH_HEAD, content, "the batch")
        if reports > self.round.reports:
            raise Refusal(
                f"the batch has {reports} reports; the round was opened for {self.round.reports}"
            )
        sealed = records(
            rest,
            self.round.sealed_size,
            reports * self.round.messages,
            "the batch",
        )
        self._batch = (reports, sealed)

    def close(self) -> Mapping[bytes, bytes]:
        """Open the messages; too few that can be opened are a `Refusal`."""
        self._over = True
        if self._batch is None:
            raise Refusal("no batch has arrived, or it is closed already; nothing was opened")
        (reports, sealed), self._batch = self._batch, None
        check_minimum(reports, self.round.minimum)
        info = _inner_info(self.round.context)
        opened: dict[bytes, bytes] = {}
        for item in sealed:
            try:
                content = self._key.open(item, info)
            except Refusal:
                continue  # a device sealed nonsense: it spoils its own message and no other
            opened.setdefault(content[:ID_SIZE], content[ID_SIZE:])
        check_minimum(len(opened), self.round.minimum * self.round.messages, "messages that open")
        self._view = MixView(tuple(opened.values()), reports, len(sealed) - len(opened))
        return {}

    def view(self) -> MixView:
        """The messages, in an order that says nothing about who sent them."""
        return opened(self._view, "are no messages")


def _inner_info(context: bytes) -> bytes:
    return b"tacit mixing message v1" + context


def _outer_info(context: bytes) -> bytes:
    return b"tacit mixing wrap v1" + context
