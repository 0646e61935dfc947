"""Shuffle model: a shuffler that learns who sends, and an analyzer that learns unlinked messages.

A client encrypts each message to the analyzer, then all its messages of a round together to the
shuffler (HPKE, RFC 9180). The shuffler decrypts the outer layer, drops duplicates and waits until
the batch is full or closed. Then it permutes all messages of all clients uniformly, sends them to
the analyzer and deletes them.

All messages of a round have the same length and carry nothing that links them. Both parties make
keys for the round, which stay in their records until the round's answer replaces them. Shuffler and
analyzer must not collude.
"""

from __future__ import annotations

import hashlib
import io
import secrets
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import ClassVar, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.aggregation import wire
from tacit.aggregation.agreement import KEY_SIZE, Channel, derive, public_bytes
from tacit.aggregation.announcements import (
    WHOLE_NOISE,
    Binding,
    LiveRound,
    SharedNoise,
    accept,
)
from tacit.aggregation.encryption import (
    DEFAULT,
    HpkeSuite,
    Recipient,
    ServerKeys,
    recipients,
    suite_numbered,
)
from tacit.aggregation.interface import (
    IDENTITY_SIZE,
    SYSTEM,
    Rejected,
    Source,
    check_counts,
    check_minimum,
    expect,
    expect_size,
    new_identity,
)
from tacit.aggregation.round_state import (
    PartyRoundState,
    RoundEntry,
    RoundPhase,
    forbid_copying,
    round_over,
)
from tacit.aggregation.wire import Kind
from tacit.errors import TacitError, integer, require
from tacit.records import Records
from tacit.terms import Offer, Pinned

ID_SIZE = 16
BIT = 2
"""The modulus of rounds whose messages are bits."""

_HEAD = struct.Struct(">QIIIIIIB")
_BATCH_HEAD = struct.Struct(">I")
_VIEW_HEAD = struct.Struct(">III")  # reports, undecryptable messages, repeated messages
_SEEN_SIZE = 16
_DIGEST_SIZE = 32
_SECRET_SIZE = 32
_KEYS_INFO = b"tacit mixing keys v2"


class ShuffleRole(Enum):
    """The two parties of the shuffle model in the order of the terms.

    The value is the name of their record.
    """

    ANALYZER = b"analyzer"
    SHUFFLER = b"shuffler"


@dataclass(frozen=True)
class ShufflerRound(LiveRound):
    """Public description of a round: terms, counts, message format, times, noise and keys.

    The client of each of `slots` slots sends `messages` messages of `size` bytes about `metrics`
    metrics, which include a share of the noise. Slots are assigned until `assigned_until` and
    reports accepted until `binding.closes`. A round without release `grace` seconds later is
    aborted. A message is a bit, or an additive share modulo `modulus`; with several metrics it is
    label · modulus + number. A new round has a fresh random identity.
    """

    binding: Binding
    slots: int
    minimum: int
    size: int
    shuffler: bytes
    analyzer: bytes
    messages: int = 1
    suite: HpkeSuite = DEFAULT
    identity: bytes = field(default_factory=new_identity)
    metrics: int = 1
    noise: SharedNoise = WHOLE_NOISE
    assigned_until: int = 0
    grace: int = 0
    modulus: int = BIT

    def __post_init__(self) -> None:
        check_counts(self.slots, self.minimum)
        self.check_times()
        integer("size", self.size, at_least=1)
        integer("messages", self.messages, at_least=1)
        integer("metrics", self.metrics, at_least=1)
        wire.check_modulus(self.modulus)
        whole = self.messages % self.metrics == 0
        require(whole, "messages", self.messages, f"a multiple of the {self.metrics} metrics")
        size = self.slots * self.messages * self.encrypted_size
        rule = f"below {wire.SIZE_LIMIT}. Split the round into several"
        require(size < wire.SIZE_LIMIT, "size of the batch in bytes", size, rule)
        sizes = [len(one) for one in (self.identity, self.shuffler, self.analyzer)]
        wanted = [IDENTITY_SIZE, *[self.suite.public_size] * 2]
        rule = f"{wanted}, as in the suite {self.suite.name}"
        require(sizes == wanted, "list of sizes of identity and keys", sizes, rule)
        if (
            self.shuffler[:KEY_SIZE] == self.analyzer[:KEY_SIZE]
            or self.shuffler[KEY_SIZE:] == self.analyzer[KEY_SIZE:]
        ):
            raise TacitError("shuffler and analyzer have the same key: each must have its own")

    def encode(self) -> bytes:
        """Serialize the round description."""
        counts = (self.slots, self.minimum, self.size, self.messages, self.metrics)
        times = (self.assigned_until, self.grace)
        return b"".join(
            (
                wire.header(Kind.MIXING_ROUND, self.identity),
                self.binding.encode(),
                _HEAD.pack(*times, *counts, self.suite),
                self.noise.encode(),
                self.shuffler + self.analyzer,
                wire.pack_integer(self.modulus),
            )
        )

    @classmethod
    def decode(cls, message: bytes) -> ShufflerRound:
        """Parse a round description."""
        with wire.rejecting_invalid():
            binding, rest = Binding.first(wire.body(message, Kind.MIXING_ROUND))
            fields, rest = wire.leading_fields(_HEAD, rest, "description")
            until, grace, slots, minimum, size, messages, metrics, number = fields
            suite = suite_numbered(number)
            noise, rest = SharedNoise.first(rest)
            keys = wire.leading_bytes(rest, 2 * suite.public_size, "list of keys")
            shuffler, analyzer = wire.records(keys, suite.public_size, 2, "list of keys")
            modulus = wire.last_modulus(rest[len(keys) :])
            about = (
                messages,
                suite,
                wire.identity_of(message),
                metrics,
                noise,
                until,
                grace,
                modulus,
            )
            return cls(binding, slots, minimum, size, shuffler, analyzer, *about)

    def offer(self) -> Offer:
        """The fields that a client checks against its terms."""
        return self.offer_of(
            "mixing",
            self.noise,
            metrics=self.metrics,
            suite=self.suite.identifier,
            modulus=None if self.modulus == BIT else self.modulus,
            parts=self.messages // self.metrics,
        )

    @cached_property
    def recipients(self) -> tuple[Recipient, Recipient]:
        """The HPKE public keys of shuffler and analyzer, for clients."""
        return recipients(self.suite, (self.shuffler, self.analyzer))

    def public(self, role: ShuffleRole) -> bytes:
        """The public keys of a party."""
        return self.shuffler if role is ShuffleRole.SHUFFLER else self.analyzer

    @property
    def encrypted_size(self) -> int:
        """Bytes of one message encrypted to the analyzer."""
        return self.suite.overhead + ID_SIZE + self.size

    @property
    def report_size(self) -> int:
        """Bytes of one client's report on the wire."""
        return wire.HEADER_SIZE + self.suite.overhead + self.messages * self.encrypted_size


def wrap(
    pinned: Pinned, announcement: bytes, messages: Sequence[bytes], source: Source = SYSTEM
) -> bytes:
    """Make one client's report: messages encrypted to the analyzer, then all to the shuffler.

    The announced round must comply with the terms that the client agreed to; it fixes the number
    and size of messages. Each message carries a fresh random id, so that the analyzer counts it
    once whatever the shuffler does. `source` is for test vectors only.
    """
    announced = accept(ShufflerRound, pinned, announcement)
    sizes, wanted = [len(message) for message in messages], [announced.size] * announced.messages
    require(sizes == wanted, "list of message sizes", sizes, f"{wanted}. Pad shorter messages")
    shuffler, analyzer = announced.recipients
    info = _inner_info(announced.context)
    inner = b"".join([analyzer.encrypt(source(ID_SIZE) + message, info) for message in messages])
    return wire.header(Kind.WRAPPED, announced.identity) + shuffler.encrypt(
        inner, _outer_info(announced.context)
    )


def prepare_party(
    store: Records,
    role: ShuffleRole,
    identity: bytes,
    suite: HpkeSuite = DEFAULT,
    source: Source = SYSTEM,
) -> bytes:
    """Make a party's public keys for a new round; their secret is on record before this returns.

    Repeated calls return the same keys. `source` is for test vectors only.
    """
    secret = PartyRoundState(store, role.value, identity).prepare(source(_SECRET_SIZE))
    return party_keys(secret, identity, suite).public()


def shuffler_outcome(
    announced: ShufflerRound, store: Records, role: ShuffleRole, key: Ed25519PrivateKey
) -> bytes:
    """A party's signed outcome of a round: see `PartyRoundState.outcome`."""
    state = PartyRoundState(store, role.value, announced.identity)
    return state.outcome(announced, list(ShuffleRole).index(role), key)


class _ShuffleParty(ABC):
    """The shuffler or the analyzer in one round: its record, and its keys while it is open."""

    _role: ClassVar[ShuffleRole]

    def __init__(self, announced: ShufflerRound, store: Records) -> None:
        """Create the party of a round prepared in this store."""
        self.round = announced
        self._lock = threading.RLock()
        self._state = PartyRoundState.bound(store, self._role.value, announced)
        self._keys: ServerKeys | None = None
        self._forget()
        self._adopt(self._state.read())

    __reduce_ex__ = forbid_copying

    def abort(self) -> None:
        """Abort the round permanently; one that has ended stays as it is."""
        with self._lock:
            self._adopt(self._state.abort())

    @abstractmethod
    def _answer(self) -> bytes:
        """The content that replaces the keys in the record; raises `Rejected` if too early."""

    @abstractmethod
    def _forget(self) -> None:
        """Delete everything that was received."""

    def _closed(self) -> bytes:
        """Close the round, once; return the answer on record."""
        entry = self._state.read()
        while entry.phase is RoundPhase.OPEN:
            answer = RoundEntry(RoundPhase.ANSWERED, entry.context, self._answer())
            entry = self._state.move(entry, answer)
        self._adopt(entry)
        if entry.phase is not RoundPhase.ANSWERED:
            raise round_over(entry.phase)
        return entry.content

    def _open_keys(self) -> ServerKeys:
        if self._keys is None:
            raise round_over(self._state.read().phase)
        return self._keys

    def _adopt(self, entry: RoundEntry) -> None:
        """Adopt the state of the record; once the round is over, delete all reports."""
        if entry.phase is not RoundPhase.OPEN:
            self._keys = None
            self._forget()
            return
        self._keys = party_keys(entry.content, self.round.identity, self.round.suite)
        if self._keys.public() != self.round.public(self._role):
            raise TacitError(f"round names other keys than the {self._role.name.lower()} prepared")


class Shuffler(_ShuffleParty):
    """The shuffler in one round: takes reports, then releases all messages once, in random order.

    The batch replaces the round's keys in its record, and only the content of the record is ever
    sent. A rejected call changes nothing. One lock guards the whole round.
    """

    _role = ShuffleRole.SHUFFLER

    def __repr__(self) -> str:
        return f"Shuffler(round={self.round.identity.hex()}, reports={len(self._taken)})"

    def _forget(self) -> None:
        self._taken: dict[bytes, list[bytes]] = {}
        self._seen: set[bytes] = set()

    @property
    def full(self) -> bool:
        """Whether the batch is complete and should be closed."""
        return len(self._taken) >= self.round.slots

    def take(self, message: bytes) -> None:
        """Decrypt the outer layer of one report and keep its messages; a repetition is ignored."""
        with self._lock:
            keys = self._open_keys()
            data = wire.body(message, Kind.WRAPPED, self.round.identity)
            digest = hashlib.sha256(data).digest()
            if digest in self._taken:
                return
            if self.full:
                raise Rejected(f"round is full: it accepts {self.round.slots} reports")
            expect_size("report", data, self.round.report_size - wire.HEADER_SIZE)
            inner = keys.encryption.decrypt(data, _outer_info(self.round.context))
            self._keep(digest, inner)

    def close(self) -> Mapping[bytes, bytes]:
        """The batch for the analyzer in random order, made once; repeated calls return the same."""
        with self._lock:
            return {self.round.analyzer[:KEY_SIZE]: self._closed()}

    def forget(self) -> None:
        """Delete the batch once the analyzer has it."""
        with self._lock:
            entry = self._state.read()
            if entry.phase is RoundPhase.ANSWERED:
                self._state.move(entry, RoundEntry(RoundPhase.FORGOTTEN, entry.context))

    def save(self) -> bytes:
        """The description and the accepted reports, encrypted under a secret in the record only.

        Reports are sorted by digest, so that their order of arrival is not saved.
        """
        with self._lock:
            parts = [self.round.encode()]
            if self._keys is not None:
                reports = [digest + b"".join(self._taken[digest]) for digest in sorted(self._taken)]
                parts.append(
                    _vault(self.round, self._keys, writes=True).encrypt(
                        b"", wire.pack_parts(reports)
                    )
                )
            return wire.pack_parts(parts)

    @classmethod
    def restore(cls, saved: bytes, store: Records) -> Self:
        """Restore a saved shuffler, as far as its record agrees."""
        description, *encrypted = wire.unpack_parts(saved)
        shuffler = cls(ShufflerRound.decode(description), store)
        if shuffler._keys is not None:
            vault = _vault(shuffler.round, shuffler._keys, writes=False)
            for content in [vault.decrypt(b"", part) for part in encrypted]:
                for report in wire.unpack_parts(content) if content else ():
                    shuffler._keep(report[:_DIGEST_SIZE], report[_DIGEST_SIZE:])
        return shuffler

    def _keep(self, digest: bytes, inner: bytes) -> None:
        encrypted = wire.records(
            inner, self.round.encrypted_size, self.round.messages, "decrypted report"
        )
        seen = {hashlib.sha256(item).digest()[:_SEEN_SIZE] for item in encrypted}
        if len(seen) != len(encrypted) or not seen.isdisjoint(self._seen):
            raise Rejected("a message of this report was accepted before: each counts once")
        self._seen |= seen
        self._taken[digest] = encrypted

    def _answer(self) -> bytes:
        """The batch of all accepted messages; too few reports are rejected."""
        check_minimum(len(self._taken), self.round.minimum)
        return self._batch()

    def _batch(self) -> bytes:
        batch = [message for report in self._taken.values() for message in report]
        secrets.SystemRandom().shuffle(batch)
        content = _BATCH_HEAD.pack(len(self._taken)) + b"".join(batch)
        line = _line(self.round, self._open_keys(), starts=True)
        return line.encrypt(wire.header(Kind.BATCH, self.round.identity), content)


@dataclass(frozen=True)
class ShuffledView:
    """The analyzer's view: messages in random order, the number of reports and of dropped messages.

    `invalid` counts messages that do not decrypt or repeat another's id; `repeated` counts the
    latter. Honest clients and shufflers produce none. Dropped messages do not abort a round that
    has its minimum of valid ones.
    """

    messages: tuple[bytes, ...]
    reports: int
    invalid: int
    repeated: int = 0


class Analyzer(_ShuffleParty):
    """The analyzer in one round: takes the shuffler's batch and decrypts its messages, once.

    The decrypted messages replace the round's keys in its record. A rejected call changes nothing.
    One lock guards the whole round.
    """

    _role = ShuffleRole.ANALYZER

    def __repr__(self) -> str:
        return f"Analyzer(round={self.round.identity.hex()}, batch={bool(self._batch)})"

    def _forget(self) -> None:
        self._batch = b""

    def take(self, message: bytes) -> None:
        """Accept the shuffler's batch; a repetition is accepted, another batch is rejected."""
        with self._lock:
            keys = self._open_keys()
            data = wire.body(message, Kind.BATCH, self.round.identity)
            if self._batch and self._batch != data:
                raise Rejected("batch differs from the earlier one of this round: must be the same")
            self._read(keys, data)
            self._batch = data

    def close(self) -> Mapping[bytes, bytes]:
        """Decrypt the messages; raises `Rejected` without a batch or with too few messages."""
        with self._lock:
            self._closed()
            return {}

    def view(self) -> ShuffledView:
        """The messages, in an order that reveals nothing about their senders."""
        with self._lock:
            entry = self._state.read()
            if entry.phase is not RoundPhase.ANSWERED:
                raise Rejected("round is not released: there are no messages")
            counts, rest = wire.leading_fields(_VIEW_HEAD, entry.content, "record")
            reports, unopened, repeated = counts
            size, invalid = self.round.size, unopened + repeated
            count = reports * self.round.messages - invalid
            messages = tuple(wire.records(rest, size, count, "record"))
            return ShuffledView(messages, reports, invalid, repeated)

    def save(self) -> bytes:
        """The description and the batch, encrypted as received."""
        with self._lock:
            return wire.pack_parts([self.round.encode(), self._batch])

    @classmethod
    def restore(cls, saved: bytes, store: Records) -> Self:
        """Restore a saved analyzer, as far as its record agrees."""
        description, *batches = wire.unpack_parts(saved)
        analyzer = cls(ShufflerRound.decode(description), store)
        for batch in batches:
            if batch and analyzer._keys is not None:
                analyzer.take(wire.header(Kind.BATCH, analyzer.round.identity) + batch)
        return analyzer

    def _read(self, keys: ServerKeys, data: bytes) -> tuple[int, list[bytes]]:
        """The number of reports in a batch, and its messages, still encrypted."""
        line = _line(self.round, keys, starts=False)
        content = line.decrypt(wire.header(Kind.BATCH, self.round.identity), data)
        (reports,), rest = wire.leading_fields(_BATCH_HEAD, content, "batch")
        most = self.round.slots
        expect(reports <= most, "number of reports of the batch", reports, f"at most {most}")
        size, count = self.round.encrypted_size, reports * self.round.messages
        return reports, wire.records(rest, size, count, "batch")

    def _answer(self) -> bytes:
        """Decrypt the batch and count its messages; reject too few."""
        keys = self._open_keys()
        if not self._batch:
            raise Rejected("batch is missing. Nothing was released")
        reports, encrypted = self._read(keys, self._batch)
        check_minimum(reports, self.round.minimum)
        info = _inner_info(self.round.context)
        released: dict[bytes, bytes] = {}
        unopened = 0
        for item in encrypted:
            try:
                content = keys.encryption.decrypt(item, info)
            except Rejected:
                unopened += 1  # a malicious client spoils only its own message
            else:
                released.setdefault(content[:ID_SIZE], content[ID_SIZE:])
        repeated = len(encrypted) - unopened - len(released)
        good = "valid messages"
        if unopened or repeated:
            good += f" ({unopened} cannot be decrypted, {repeated} are repeated)"
        check_minimum(len(released), self.round.minimum * self.round.messages, good)
        return _VIEW_HEAD.pack(reports, unopened, repeated) + b"".join(released.values())


def party_keys(secret: bytes, identity: bytes, suite: HpkeSuite) -> ServerKeys:
    """A party's keys for one round, derived from the secret in its record."""
    return ServerKeys.new(suite, io.BytesIO(derive(secret, identity, _KEYS_INFO, 256)).read)


def _vault(announced: ShufflerRound, keys: ServerKeys, *, writes: bool) -> Channel:
    """The shuffler's channel to itself, for saved state."""
    own = public_bytes(keys.line)
    return Channel(keys.line, own, own, announced.context, starts=writes)


def _line(announced: ShufflerRound, keys: ServerKeys, *, starts: bool) -> Channel:
    """The channel between shuffler and analyzer."""
    ends = (announced.shuffler[:KEY_SIZE], announced.analyzer[:KEY_SIZE])
    return Channel(keys.line, *ends, announced.context, starts=starts)


def _inner_info(context: bytes) -> bytes:
    return b"tacit mixing message v2" + context


def _outer_info(context: bytes) -> bytes:
    return b"tacit mixing wrap v2" + context
