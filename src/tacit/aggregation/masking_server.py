"""Server of secure aggregation with one server (masking): releases the survivors' sum or nothing.

The server draws the graph, relays encrypted shares and holds public keys and masked numbers. It
gets shares only after masking, in two stages: of the dropouts' masking keys, then of the survivors'
self-mask seeds. It reconstructs secrets only when enough shares of every secret of that stage are
there. Secrets reconstructed before an abort are useless without the rest.

Every outgoing message follows from the round's key and the set of messages that count. That set is
on record before anything is sent, so a copy restored from an older state gives the same answer or
none. A repeated message is accepted once; `close` of a finished stage returns the same messages.
`save` contains the encrypted messages as received. The key is only in the record, until the round's
result replaces it.
"""

from __future__ import annotations

import hashlib
import struct
import threading
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import ClassVar, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.aggregation import masking as layout
from tacit.aggregation import wire
from tacit.aggregation.agreement import (
    KEY_SIZE,
    Channel,
    check_public,
    derive,
    public_bytes,
)
from tacit.aggregation.announcements import endorse_offer
from tacit.aggregation.blame import decode_blames, describe_blames
from tacit.aggregation.client_registry import ClientRegistry, Member
from tacit.aggregation.graph import Shuffle, regular_graph, shuffled_by
from tacit.aggregation.interface import (
    SYSTEM,
    Rejected,
    Source,
    SumView,
    check_minimum,
)
from tacit.aggregation.masking import (
    BITS,
    MaskingRound,
    check_withstands,
    expect_kind,
)
from tacit.aggregation.masking_messages import (
    READERS,
    Messages,
    appeals,
    inboxes,
    left,
    pairs,
    proofs,
    requests,
    setups,
)
from tacit.aggregation.round_state import (
    PartyRoundState,
    RoundEntry,
    RoundPhase,
    forbid_copying,
    round_over,
)
from tacit.aggregation.wire import Kind
from tacit.errors import TacitError
from tacit.records import Records
from tacit.terms import PinnedTerms

_DIGEST_SIZE = 32
_DECIDED = struct.Struct(">BI")  # stage, number of messages that count
PARTY = b"masking server"
"""The name of the server's record."""


class MaskingStage(Enum):
    """The stage of a round: which messages are accepted next, or how it ended.

    `LEAVING`, `PROVING` and `APPEALING` are skipped if there is nothing to request.
    """

    JOINING = "joining"
    SHARING = "sharing"
    CHECKING = "checking"
    MASKING = "masking"
    LEAVING = "leaving"
    PROVING = "proving"
    REVEALING = "revealing"
    APPEALING = "appealing"
    RELEASED = "released"
    ABORTED = "aborted"


STAGES: tuple[MaskingStage, ...] = tuple(MaskingStage)[:-2]
_ENDS = {RoundPhase.ANSWERED: MaskingStage.RELEASED, RoundPhase.ABORTED: MaskingStage.ABORTED}
_STAGE_OF = {
    Kind.JOIN: MaskingStage.JOINING,
    Kind.SHARES: MaskingStage.SHARING,
    Kind.CHECKED: MaskingStage.CHECKING,
    Kind.MASKED: MaskingStage.MASKING,
    Kind.ACCUSED: MaskingStage.MASKING,
    Kind.KEYS: MaskingStage.LEAVING,
    Kind.SEEDS: MaskingStage.PROVING,
    Kind.REVEAL: MaskingStage.REVEALING,
    Kind.LAST_SEEDS: MaskingStage.APPEALING,
}


_CONCLUSIONS: Mapping[MaskingStage, Callable[[ClientRegistry], None]] = {
    MaskingStage.SHARING: ClientRegistry.check_shared,
    MaskingStage.CHECKING: ClientRegistry.pair_clients,
    MaskingStage.MASKING: ClientRegistry.find_dropouts,
    MaskingStage.LEAVING: ClientRegistry.reconstruct_keys,
    MaskingStage.PROVING: ClientRegistry.drop_silent,
    MaskingStage.REVEALING: ClientRegistry.reconstruct_seeds,
}


def prepare_server(store: Records, identity: bytes, source: Source = SYSTEM) -> bytes:
    """Make the server's key for a round and return the public key; the secret is on record before.

    Repeated calls return the same key. `source` is for test vectors only.
    """
    secret = PartyRoundState(store, PARTY, identity).prepare(source(KEY_SIZE))
    return public_bytes(X25519PrivateKey.from_private_bytes(secret[:KEY_SIZE]))


def masking_outcome(announced: MaskingRound, store: Records, key: Ed25519PrivateKey) -> bytes:
    """The server's signed outcome of a round: see `PartyRoundState.outcome`."""
    return PartyRoundState(store, PARTY, announced.identity).outcome(announced, 0, key)


class MaskingServer:
    """One round of masking: `take` messages and `close` stages until `view`; `abort` ends it.

    A rejected call changes nothing. One lock guards the whole round.
    """

    def __init__(
        self, announced: MaskingRound, store: Records, shuffle: Shuffle | None = None
    ) -> None:
        """Create the server of a round prepared in this store.

        `shuffle` is for test vectors only.
        """
        self.round = announced
        self.stage = MaskingStage.JOINING
        self._by_address: dict[bytes, Member] = {}
        self._registry = ClientRegistry(announced, [], 0)
        self._known_keys: set[tuple[str, bytes]] = set()
        self._taken: dict[MaskingStage, dict[bytes, bytes]] = {stage: {} for stage in STAGES}
        self._decided: dict[MaskingStage, frozenset[bytes]] = {}
        self._lock = threading.RLock()
        self._state = PartyRoundState.bound(store, PARTY, announced)
        self._shuffle = shuffle
        self._adopt(self._state.read())

    __reduce_ex__ = forbid_copying

    def __repr__(self) -> str:
        where = f"round={self.round.identity.hex()}, stage={self.stage.name}"
        return f"MaskingServer({where}, clients={len(self._by_address)})"

    def endorse(self, pinned: PinnedTerms, key: Ed25519PrivateKey, bits: int = BITS) -> bytes:
        """Sign the description that the record is bound to, if it complies with the terms."""
        check_withstands(self.round, pinned.terms.aggregation, bits)
        return endorse_offer(pinned, self.round, key)

    @property
    def _clients(self) -> list[Member]:
        return self._registry.members

    def take(self, message: bytes, keys: bytes = b"") -> None:
        """Accept a client's message of the current stage, or one accepted before, in any stage.

        `keys`, if given, are the three public keys that a joining client must have.
        """
        with self._lock:
            if self.stage not in STAGES:
                raise _over(self.stage)
            kind, message = self._kind(message), bytes(message)
            digest = hashlib.sha256(message).digest()
            if digest in self._taken[_STAGE_OF[kind]]:
                return
            if _STAGE_OF[kind] is not self.stage:
                raise Rejected(f"{kind.name} does not belong to the stage {self.stage.value}")
            decided = self._decided.get(self.stage)
            if decided is not None and digest not in decided:
                raise Rejected("message is too late: its stage is over")
            if kind is Kind.JOIN:
                self._take_join(message, keys)
            else:
                READERS[kind](self._registry, *self._open(kind, message))
            self._taken[self.stage][digest] = message

    def close(self, stage: MaskingStage | None = None) -> Mapping[bytes, bytes]:
        """End a stage (default: the current one); return one message per remaining client.

        Messages are keyed by address. A finished stage returns the same messages again; one that
        cannot end yet raises `Rejected` and continues. Name the stage wherever a `close` may be
        repeated.
        """
        with self._lock:
            wanted = self.stage if stage is None else stage
            if wanted is self.stage in STAGES:
                self._close_now()
            if self.stage is MaskingStage.RELEASED and wanted in (
                *STAGES[-2:],
                MaskingStage.RELEASED,
            ):
                return {}
            if self.stage not in STAGES:
                raise _over(self.stage)
            if wanted not in STAGES or STAGES.index(wanted) >= STAGES.index(self.stage):
                raise Rejected(
                    f"stage of the round is {self.stage.value}: {wanted.value} is not over"
                )
            return self._outgoing(wanted)

    @property
    def answered(self) -> int:
        """Clients whose message of the current stage was accepted."""
        with self._lock:
            return len(self._taken[self.stage]) if self.stage in STAGES else 0

    def sent_messages(self) -> list[Mapping[bytes, bytes]]:
        """The messages sent at the end of every finished stage, in order."""
        with self._lock:
            stage, sent = MaskingStage.JOINING, []
            while self.stage in STAGES and stage is not self.stage:
                sent.append(self._outgoing(stage))
                stage = self._after(stage)
            return sent

    def view(self) -> SumView:
        """The survivors' sum, and the clients known to be malicious."""
        with self._lock:
            if self.stage is not MaskingStage.RELEASED:
                raise Rejected("round is not released: there is no sum")
            content = self._state.read().content
            modulus, length = self.round.modulus, self.round.length
            end = 4 + length * wire.number_size(modulus)
            numbers = wire.unpack_numbers(content[4:end], modulus, length, "sum")
            reports, blamed = int.from_bytes(content[:4], "big"), decode_blames(content[end:])
            return SumView(tuple(numbers), reports, blamed=blamed)

    def abort(self) -> None:
        """Abort the round permanently; a released round stays released."""
        with self._lock:
            self._adopt(self._state.abort())

    def save(self) -> bytes:
        """The state without secrets: the description and the accepted messages as received."""
        with self._lock:
            messages = [message for taken in self._taken.values() for message in taken.values()]
            return wire.pack_parts([self.round.encode(), *messages])

    @classmethod
    def restore(cls, saved: bytes, store: Records) -> Self:
        """Restore a saved server, as far as its record agrees.

        Messages that the record lists as counted but the saved state lacks must be sent again.
        """
        description, *messages = wire.unpack_parts(saved)
        server = cls(MaskingRound.decode(description), store)
        with server._lock:
            by_stage: dict[MaskingStage, list[bytes]] = {stage: [] for stage in STAGES}
            for message in messages:
                by_stage[_STAGE_OF[server._kind(message)]].append(message)
            while server.stage in STAGES and server._retake(by_stage[server.stage]):
                pass
        return server

    def _kind(self, message: bytes) -> Kind:
        """The kind of a client's message in this round; raises `Rejected` if it is none."""
        return expect_kind(tuple(_STAGE_OF), message, self.round.identity)

    def _retake(self, messages: Iterable[bytes]) -> bool:
        """Accept saved messages of the current stage; whether it was decided and is complete."""
        for message in messages:
            try:
                self.take(message)
            except Rejected:
                continue  # not among the messages that count
        decided = self._decided.get(self.stage)
        if decided is None or not decided <= self._taken[self.stage].keys():
            return False
        self._advance()
        return True

    def _close_now(self) -> None:
        """Decide the current stage, unless its record already does, and advance."""
        entry, concluded = self._state.read(), False
        self._adopt(entry)
        while self.stage in STAGES and self.stage not in self._decided:
            try:
                self._conclude()
                decision = self._decision(entry)
            except Rejected as why:
                raise Rejected(f"{why}{describe_blames(self._registry.blamed())}") from None
            concluded = True
            self._adopt(self._state.move(entry, decision))
            entry = self._state.read()
        if self.stage not in STAGES:
            return
        if self._drop_undecided():
            concluded = False
        missing = self._decided[self.stage] - self._taken[self.stage].keys()
        if missing:
            raise Rejected(
                f"server lacks {len(missing)} messages of the closed stage. Let clients send them "
                "again, or abort the round"
            )
        self._advance(concluded=concluded)

    def _decision(self, entry: RoundEntry) -> RoundEntry:
        """The record after the current stage: the messages that count, or finally the sum."""
        registry, stage = self._registry, self.stage
        if stage is MaskingStage.APPEALING or (
            stage is MaskingStage.REVEALING and not registry.appealed
        ):
            numbers, reports = registry.total()
            blamed = b"".join([blame.encode() for blame in registry.blamed()])
            packed_numbers = wire.pack_numbers(numbers, self.round.modulus)
            answer = reports.to_bytes(4, "big") + packed_numbers + blamed
            return RoundEntry(RoundPhase.ANSWERED, entry.context, answer)
        digests = sorted(self._taken[stage])
        listed = _DECIDED.pack(STAGES.index(stage), len(digests)) + b"".join(digests)
        return entry._replace(content=entry.content + listed)

    def _adopt(self, entry: RoundEntry) -> None:
        """Adopt the state of the record."""
        if entry.phase is not RoundPhase.OPEN:
            self._forget()
            self.stage = _ENDS[entry.phase]
            return
        secret, rest = entry.content[:KEY_SIZE], entry.content[KEY_SIZE:]
        if "_key" not in self.__dict__:  # constant while the round is open
            self._key = X25519PrivateKey.from_private_bytes(secret)
            if public_bytes(self._key) != self.round.server:
                raise TacitError("round names another server key than the prepared one")
        while rest:
            index, count = _DECIDED.unpack_from(rest)
            end = _DECIDED.size + _DIGEST_SIZE * count
            listed = wire.records(rest[_DECIDED.size : end], _DIGEST_SIZE, count, "record")
            self._decided[STAGES[index]], rest = frozenset(listed), rest[end:]

    def _conclude(self) -> None:
        """Evaluate the messages of the current stage; raise `Rejected` if it cannot end yet."""
        if self.stage is MaskingStage.JOINING:
            check_minimum(len(self._by_address), self.round.minimum, "clients that joined")
            self._draw_graph()
        elif self.stage in _CONCLUSIONS:
            _CONCLUSIONS[self.stage](self._registry)

    def _advance(self, *, concluded: bool = False) -> None:
        """Advance to the next stage with exactly the messages that count.

        `concluded` states that the accepted messages were already evaluated.
        """
        taken = self._taken[self.stage]
        self._taken[self.stage] = {digest: taken[digest] for digest in sorted(taken)}
        if not concluded:
            self._conclude()
        self.stage = self._after(self.stage)

    def _drop_undecided(self) -> bool:
        """Undo messages that came too late for the stage as it was decided; whether there were any.

        So the messages that count find their slots free.
        """
        decided, taken = self._decided[self.stage], self._taken[self.stage]
        extra = [digest for digest in taken if digest not in decided]
        for digest in extra:
            self._drop(taken.pop(digest))
        return bool(extra)

    def _after(self, ended: MaskingStage) -> MaskingStage:
        """The next stage, skipping those with nothing to request."""
        following = STAGES[STAGES.index(ended) + 1]
        nothing = {
            MaskingStage.LEAVING: not self._registry.left,
            MaskingStage.PROVING: not self._registry.convicted,
        }
        return self._after(following) if nothing.get(following) else following

    def _drop(self, message: bytes) -> None:
        """Undo a message."""
        kind = self._kind(message)
        address = wire.body(message, kind)[: layout.ADDRESS_SIZE]
        if kind is Kind.JOIN:
            self._known_keys -= self._by_address.pop(address).its_keys()
        else:
            self._by_address[address].undo(kind)

    def _outgoing(self, ended: MaskingStage) -> Mapping[bytes, bytes]:
        """The messages sent at the end of a stage; deterministic."""
        kind, contents = self._ASK[self._after(ended)](self._registry)
        return {
            self._clients[number].address: self._encrypt(self._clients[number], kind, content)
            for number, content in contents.items()
        }

    def _take_join(self, message: bytes, keys: bytes) -> None:
        """Register a client's keys."""
        data = wire.body(message, Kind.JOIN, self.round.identity)
        address = wire.leading_bytes(data, layout.ADDRESS_SIZE, "JOIN")
        if address in self._by_address:
            raise Rejected("client has already joined, with another message")
        if len(self._by_address) >= self.round.slots:
            raise Rejected(f"round is full: it accepts {self.round.slots} reports")
        channel = Channel(self._key, address, self.round.server, self.round.context, starts=False)
        content = channel.decrypt(bytes(message[: layout.FRONT_SIZE]), data[layout.ADDRESS_SIZE :])
        masking, signing = wire.records(content, KEY_SIZE, 2, "JOIN")
        if keys and keys != address + masking + signing:
            raise Rejected("JOIN has other keys than those that the client has signed")
        # Addresses travel in the clear, so copying one as a masking key must not block its owner.
        member = Member(address, masking, signing, channel)
        if len({address, masking, signing}) < 3 or not self._known_keys.isdisjoint(
            member.its_keys()
        ):
            raise Rejected("a key of the client is used twice: every key must be fresh")
        check_public(masking)  # an invalid key would make every neighbour drop out
        self._by_address[address] = member
        self._known_keys |= member.its_keys()

    def _draw_graph(self) -> None:
        """Number the clients by address and draw the graph, deterministically."""
        clients = [self._by_address[address] for address in sorted(self._by_address)]
        fitted = self.round.neighbourhood.fit(len(clients))
        joined = hashlib.sha256(b"".join(sorted(self._taken[MaskingStage.JOINING]))).digest()
        seed = derive(
            self._key.private_bytes_raw(), self.round.context, b"tacit masking graph v2" + joined
        )
        graph = regular_graph(len(clients), fitted.degree, self._shuffle or shuffled_by(seed))
        for number, (client, neighbours) in enumerate(zip(clients, graph, strict=True)):
            client.number, client.neighbours = number, neighbours
        self._registry = ClientRegistry(self.round, clients, fitted.threshold)

    def _open(self, kind: Kind, message: bytes) -> tuple[Member, bytes]:
        data = wire.body(message, kind, self.round.identity)
        client = self._by_address.get(data[: layout.ADDRESS_SIZE])
        if client is None:
            raise Rejected(f"{kind.name} is from a client that has not joined this round")
        encrypted = data[layout.ADDRESS_SIZE :]
        return client, client.channel.decrypt(bytes(message[: layout.FRONT_SIZE]), encrypted)

    def _encrypt(self, client: Member, kind: Kind, content: bytes) -> bytes:
        return client.channel.encrypt(
            wire.header(kind, self.round.identity) + client.address, content
        )

    def _forget(self) -> None:
        """Delete all client data once the round is released or aborted."""
        self._registry = ClientRegistry(self.round, [], 0)
        for held in (self._by_address, self._known_keys, self._decided):
            held.clear()
        for taken in self._taken.values():
            taken.clear()
        self.__dict__.pop("_key", None)

    _ASK: ClassVar[Mapping[MaskingStage, Callable[[ClientRegistry], Messages]]] = {
        MaskingStage.SHARING: setups,
        MaskingStage.CHECKING: inboxes,
        MaskingStage.MASKING: pairs,
        MaskingStage.LEAVING: left,
        MaskingStage.PROVING: proofs,
        MaskingStage.REVEALING: requests,
        MaskingStage.APPEALING: appeals,
    }


def _over(stage: MaskingStage) -> Rejected:
    return round_over(RoundPhase.ANSWERED if stage is MaskingStage.RELEASED else RoundPhase.ABORTED)
