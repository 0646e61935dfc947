"""The server's side of masking: it deals the graph, carries parcels, and opens the sum of those who
stayed, or nothing.

The server holds public keys, sealed parcels and masked numbers. Only in the last stage do shares
reach it, and only when every secret that the sum needs can be put together does it put together
any. Everything it sends follows from the round's key and from the set of messages that counts, and
which set that is stands in its record before anything is sent: a copy that was restored from an
older state gives the same answer or none. The same message twice is taken once, and `close` of a
stage that is over gives what it gave. `save` holds the messages as they came, sealed; the key is in
the record alone, and the end of the round takes its place.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.checks import TacitError
from tacit.intermediaries import masking as layout
from tacit.intermediaries import masks, shamir
from tacit.intermediaries.agreement import (
    KEY_SIZE,
    Channel,
    check_public,
    derive,
    public_bytes,
)
from tacit.intermediaries.announcements import endorse_offer
from tacit.intermediaries.graph import (
    Shuffle,
    connected,
    regular_graph,
    shuffled_by,
)
from tacit.intermediaries.interface import (
    SYSTEM,
    Refusal,
    Source,
    SumView,
    check_minimum,
)
from tacit.intermediaries.masking import (
    BITS,
    MaskingRound,
    check_withstands,
    client_kind,
    commitment,
    mask_seed,
)
from tacit.intermediaries.standing import (
    CONTEXT_SIZE,
    Entry,
    Phase,
    Standing,
    ended,
    never_copied,
    packed,
    signed_outcome,
    unpacked,
)
from tacit.intermediaries.wire import (
    Kind,
    body,
    front,
    header,
    pack_numbers,
    records,
    unpack_numbers,
)
from tacit.records import Records
from tacit.terms import Pinned

_COMMITMENT_SIZE = 32
_DIGEST_SIZE = 32
_PARTY = b"masking server"


class Stage(Enum):
    """Where a round stands: which message is taken next, or how it ended."""

    JOINING = Kind.JOIN
    SHARING = Kind.SHARES
    MASKING = Kind.MASKED
    REVEALING = Kind.REVEAL
    OPENED = "opened"
    REFUSED = "refused"


_STAGES = (Stage.JOINING, Stage.SHARING, Stage.MASKING, Stage.REVEALING)
_ENDS = {Phase.ANSWERED: Stage.OPENED, Phase.REFUSED: Stage.REFUSED}


@dataclass(repr=False)
class _Client:
    """What the server knows about one client; left out of every repr, because shares pass through
    here.
    """

    address: bytes
    masking: bytes
    channel: Channel
    number: int = 0
    neighbours: list[int] = field(default_factory=list)
    place_of: dict[int, int] = field(default_factory=dict)
    pledge: bytes = b""
    parcels: dict[int, bytes] = field(default_factory=dict)
    masked: list[int] = field(default_factory=list)
    answered: bool = False
    held: dict[int, bytes] = field(default_factory=dict)


def prepare_server(store: Records, identity: bytes, source: Source = SYSTEM) -> bytes:
    """Makes the server's key for a round, on record before anybody hears of it; returns its public
    half. Asked again, the same. `source` is for test vectors only.
    """
    secret = Standing(store, _PARTY, identity).prepare(source(KEY_SIZE))
    return public_bytes(X25519PrivateKey.from_private_bytes(secret[:KEY_SIZE]))


def masking_outcome(announced: MaskingRound, store: Records, key: Ed25519PrivateKey) -> bytes:
    """What the server says to whoever asks what became of a round: see `signed_outcome`."""
    return signed_outcome(Standing(store, _PARTY, announced.identity), announced, 0, key)


class MaskingServer:
    """One round of masking: `take` messages and `close` stages until `view`, or `refuse` the round.

    Whatever is refused changes nothing. One lock guards the whole round.
    """

    def __init__(
        self, announced: MaskingRound, store: Records, shuffle: Shuffle | None = None
    ) -> None:
        """The server of a round that was prepared in this store. `shuffle` is for test vectors
        only.
        """
        self.round = announced
        self.stage = Stage.JOINING
        self._clients: list[_Client] = []
        self._by_address: dict[bytes, _Client] = {}
        self._known_keys: set[bytes] = set()
        self._taken: dict[Kind, dict[bytes, bytes]] = {Kind(s.value): {} for s in _STAGES}
        self._decided: dict[Stage, frozenset[bytes]] = {}
        self._threshold = 0
        self._lock = threading.RLock()
        self._standing = Standing(store, _PARTY, announced.identity)
        self._standing.bind(announced.context)
        self._shuffle = shuffle
        self._obey(self._standing.read())

    __reduce_ex__ = never_copied

    def __repr__(self) -> str:
        where = f"round={self.round.identity.hex()}, stage={self.stage.name}"
        return f"MaskingServer({where}, clients={len(self._by_address)})"

    def endorse(self, pinned: Pinned, key: Ed25519PrivateKey, bits: int = BITS) -> bytes:
        """The server's signature under the description that its record is tied to, if that keeps
        to the terms.
        """
        check_withstands(self.round, pinned.terms.middle, bits)
        return endorse_offer(pinned, self.round, key)

    def take(self, message: bytes) -> None:
        """Accept one message of the current stage from one client, or one that was accepted before,
        in whatever stage.
        """
        with self._lock:
            if self.stage not in _STAGES:
                raise _over(self.stage)
            kind, message = client_kind(message, self.round.identity), bytes(message)
            digest = hashlib.sha256(message).digest()
            if digest in self._taken.get(kind, ()):
                return
            if kind is not self.stage.value:
                raise Refusal(
                    f"the message is of kind 0x{kind:02x} ({kind.name}); this round is "
                    f"{self.stage.name.lower()}"
                )
            decided = self._decided.get(self.stage)
            if decided is not None and digest not in decided:
                raise Refusal("this stage is over, and this message came too late for it")
            self._TAKE[kind](self, message)
            self._taken[kind][digest] = message

    def close(self, stage: Stage | None = None) -> Mapping[bytes, bytes]:
        """End a stage, the current one unless named; returns one message for each client that is
        still there, by address.

        A stage that is over gives the same messages again; one that cannot be ended yet is refused
        and goes on. Name the stage wherever a `close` may be repeated.
        """
        with self._lock:
            wanted = self.stage if stage is None else stage
            if wanted is self.stage in _STAGES:
                self._close_now()
            if self.stage is Stage.OPENED and wanted in (Stage.REVEALING, Stage.OPENED):
                return {}
            if self.stage not in _STAGES:
                raise _over(self.stage)
            if wanted not in _STAGES or _STAGES.index(wanted) >= _STAGES.index(self.stage):
                raise Refusal(f"this round is {self.stage.name.lower()}; it is not that far yet")
            return self._outgoing(wanted)

    def view(self) -> SumView:
        """The sum of those who stayed."""
        with self._lock:
            if self.stage is not Stage.OPENED:
                raise Refusal("this round was not opened; there is no sum")
            content = self._standing.read().content
            reports = int.from_bytes(content[:4], "big")
            modulus, length = self.round.modulus, self.round.length
            return SumView(tuple(unpack_numbers(content[4:], modulus, length, "a view")), reports)

    def refuse(self) -> None:
        """End the round without a sum, for ever; a round that is opened stays opened."""
        with self._lock:
            self._obey(self._standing.refuse())

    def save(self) -> bytes:
        """Everything but the secrets: the description, and the messages that were taken, as they
        came.
        """
        with self._lock:
            messages = [message for kind in Kind for message in self._taken.get(kind, {}).values()]
            return packed([self.round.encode(), *messages])

    @classmethod
    def restore(cls, saved: bytes, store: Records) -> Self:
        """The server as it was saved, as far as its record agrees. Of what the record says was
        decided, messages that are missing must be sent again.
        """
        description, *messages = unpacked(saved)
        server = cls(MaskingRound.decode(description), store)
        with server._lock:
            by_kind: dict[Kind, list[bytes]] = {kind: [] for kind in server._taken}
            for message in messages:
                by_kind[client_kind(message, server.round.identity)].append(message)
            while server.stage in _STAGES and server._retake(by_kind[Kind(server.stage.value)]):
                pass
        return server

    def _retake(self, messages: Iterable[bytes]) -> bool:
        """Takes messages of the current stage from a saved state; whether the stage was over, and
        is now.
        """
        for message in messages:
            try:
                self.take(message)
            except Refusal:
                continue  # it did not count
        decided = self._decided.get(self.stage)
        if decided is None or not decided <= self._taken[Kind(self.stage.value)].keys():
            return False
        self._advance()
        return True

    def _close_now(self) -> None:
        """Decides the current stage, unless its record says that it is decided, and moves on."""
        entry = self._standing.read()
        self._obey(entry)
        while self.stage in _STAGES and self.stage not in self._decided:
            self._check_stage()
            self._obey(self._standing.move(entry, self._decision(entry)))
            entry = self._standing.read()
        if self.stage not in _STAGES:
            return
        missing = self._decided[self.stage] - self._taken[Kind(self.stage.value)].keys()
        if missing:
            raise Refusal(
                f"this stage was closed with {len(missing)} messages that this copy of the server "
                "does not hold: have them sent again, or refuse the round"
            )
        self._advance()

    def _decision(self, entry: Entry) -> Entry:
        """The record after the current stage: who counts, or in the end the sum."""
        if self.stage is Stage.REVEALING:
            view = self._unmask()
            numbers = pack_numbers(view.numbers, self.round.modulus)
            return Entry(Phase.ANSWERED, view.reports.to_bytes(4, "big") + numbers)
        digests = sorted(self._taken[Kind(self.stage.value)])
        listed = len(digests).to_bytes(4, "big") + b"".join(digests)
        return Entry(Phase.OPEN, entry.content + listed)

    def _obey(self, entry: Entry) -> None:
        """Takes over what the record says."""
        if entry.phase is not Phase.OPEN:
            self._forget()
            self.stage = _ENDS[entry.phase]
            return
        secret, rest = entry.content[CONTEXT_SIZE:][:KEY_SIZE], entry.content[CONTEXT_SIZE:]
        self._key = X25519PrivateKey.from_private_bytes(secret)
        if public_bytes(self._key) != self.round.server:
            raise TacitError("the round names another server key than the one that was prepared")
        rest = rest[KEY_SIZE:]
        for stage in _STAGES:
            if rest:
                end = 4 + _DIGEST_SIZE * int.from_bytes(rest[:4], "big")
                listed = records(rest[4:end], _DIGEST_SIZE, (end - 4) // _DIGEST_SIZE, "the record")
                self._decided[stage], rest = frozenset(listed), rest[end:]

    def _check_stage(self) -> None:
        """Refuses to end a stage for which too few are there."""
        match self.stage:
            case Stage.JOINING:
                check_minimum(len(self._by_address), self.round.minimum, "clients joined")
                self.round.neighbourhood.fit(len(self._by_address))
            case Stage.SHARING:
                sharing = [client for client in self._clients if client.parcels]
                check_minimum(len(sharing), self.round.minimum, "clients shared their secrets")
            case Stage.MASKING:
                self._check_survivors()

    def _check_survivors(self) -> None:
        staying = {client.number for client in self._clients if client.masked}
        check_minimum(len(staying), self.round.minimum)
        if not connected([client.neighbours for client in self._clients], staying):
            raise Refusal(
                "those who stayed fall apart into groups without common masks, whose separate sums "
                "would show; nothing was opened. Wait for more, or open a new round, with more "
                "neighbours."
            )

    def _advance(self) -> None:
        """To the next stage, with exactly the messages that were decided on."""
        kind, decided = Kind(self.stage.value), self._decided[self.stage]
        extra = [message for digest, message in self._taken[kind].items() if digest not in decided]
        for message in extra:
            self._drop(kind, message)
        self._taken[kind] = {digest: self._taken[kind][digest] for digest in sorted(decided)}
        if self.stage is Stage.JOINING:
            self._deal_graph()
        self.stage = _STAGES[_STAGES.index(self.stage) + 1]

    def _drop(self, kind: Kind, message: bytes) -> None:
        """Undoes what a message did that came too late for the stage as it was decided."""
        address = body(message, kind)[: layout.ADDRESS_SIZE]
        match kind:
            case Kind.JOIN:
                del self._by_address[address]
            case Kind.SHARES:
                self._by_address[address].parcels = {}
            case Kind.MASKED:
                self._by_address[address].masked = []

    def _outgoing(self, stage: Stage) -> Mapping[bytes, bytes]:
        """What the end of a stage sends: the same whenever it is asked for."""
        match stage:
            case Stage.JOINING:
                return self._send(Kind.SETUP, self._clients, self._setup)
            case Stage.SHARING:
                sharing = [client for client in self._clients if client.parcels]
                return self._send(Kind.INBOX, sharing, self._inbox)
            case _:
                staying = [client for client in self._clients if client.masked]
                return self._send(
                    Kind.REQUEST, staying, lambda client: self._request(client, len(staying))
                )

    def _take_join(self, message: bytes) -> None:
        data = body(message, Kind.JOIN, self.round.identity)
        address = front(data, layout.ADDRESS_SIZE, "the JOIN")
        if address in self._by_address:
            raise Refusal("this client has joined already, with another message")
        if len(self._by_address) >= self.round.reports:
            raise Refusal(f"the round is full: it was opened for {self.round.reports} reports")
        channel = Channel(self._key, address, self.round.server, self.round.context, starts=False)
        masking = channel.open(bytes(message[: layout.FRONT_SIZE]), data[layout.ADDRESS_SIZE :])
        if len(masking) != KEY_SIZE:
            raise Refusal(
                f"the JOIN holds a masking key of {len(masking)} bytes; expected are {KEY_SIZE}"
            )
        if masking == address or not self._known_keys.isdisjoint((address, masking)):
            raise Refusal(
                "a key of this client is also another's, or used twice; every key must be fresh"
            )
        check_public(masking)  # a useless key would make every neighbour leave
        self._by_address[address] = _Client(address, masking, channel)
        self._known_keys |= {address, masking}

    def _take_shares(self, message: bytes) -> None:
        client, content = self._open(Kind.SHARES, message)
        _check_turn(client, client.parcels, "sent its shares")
        parcels = records(
            content[_COMMITMENT_SIZE:], layout.PARCEL_SIZE, len(client.neighbours), "the SHARES"
        )
        client.pledge = content[:_COMMITMENT_SIZE]
        client.parcels = dict(zip(client.neighbours, parcels, strict=True))

    def _take_masked(self, message: bytes) -> None:
        client, content = self._open(Kind.MASKED, message)
        _check_turn(client, client.masked, "sent its masked numbers")
        _check_there(client, client.parcels, "has not shared its secrets")
        client.masked = unpack_numbers(content, self.round.modulus, self.round.length, "the MASKED")

    def _take_reveal(self, message: bytes) -> None:
        client, content = self._open(Kind.REVEAL, message)
        _check_turn(client, client.answered, "revealed its shares")
        _check_there(client, client.masked, "sent no masked numbers")
        owners = [owner.number for owner in self._sharers(client)]
        entries = [
            layout.REVEAL_ENTRY.unpack(entry)
            for entry in records(content, layout.REVEAL_ENTRY.size, len(owners), "the REVEAL")
        ]
        for owner, (number, there, share) in zip(owners, entries, strict=True):
            if number != owner or not (
                shamir.is_share(share) if there == 1 else there == 0 and not any(share)
            ):
                raise Refusal(
                    f"the REVEAL of client {client.number} does not answer what was asked"
                )
        for number, there, share in entries:
            if there:
                owner_of = self._clients[number]
                owner_of.held[owner_of.place_of[client.number]] = share
        client.answered = True

    def _deal_graph(self) -> None:
        """Numbers the clients by their addresses and deals the graph, both the same whenever the
        same clients joined.
        """
        self._clients = [self._by_address[address] for address in sorted(self._by_address)]
        fitted = self.round.neighbourhood.fit(len(self._clients))
        self._threshold = fitted.threshold
        joined = hashlib.sha256(b"".join(sorted(self._decided[Stage.JOINING]))).digest()
        seed = derive(
            self._key.private_bytes_raw(), self.round.context, b"tacit masking graph v2" + joined
        )
        shuffle = self._shuffle or shuffled_by(seed)
        for number, (client, neighbours) in enumerate(
            zip(
                self._clients,
                regular_graph(len(self._clients), fitted.degree, shuffle),
                strict=True,
            )
        ):
            client.number, client.neighbours = number, neighbours
            client.place_of = {other: place for place, other in enumerate(neighbours, start=1)}

    def _setup(self, client: _Client) -> bytes:
        head = layout.SETUP_HEAD.pack(client.number, len(self._clients), len(client.neighbours))
        others = [self._clients[number] for number in client.neighbours]
        return head + b"".join(
            [
                layout.SETUP_ENTRY.pack(other.number, other.address, other.masking)
                for other in others
            ]
        )

    def _inbox(self, client: _Client) -> bytes:
        parcels = [
            layout.INBOX_ENTRY.pack(sender.number, sender.parcels[client.number])
            for sender in self._sharers(client)
        ]
        return b"".join(parcels)

    def _sharers(self, client: _Client) -> list[_Client]:
        """The neighbours that shared their secrets."""
        neighbours = [self._clients[number] for number in client.neighbours]
        return [other for other in neighbours if other.parcels]

    def _request(self, client: _Client, survivors: int) -> bytes:
        sharers = self._sharers(client)
        stayed = [other.number.to_bytes(4, "big") for other in sharers if other.masked]
        left = [other.number.to_bytes(4, "big") for other in sharers if not other.masked]
        return layout.REQUEST_HEAD.pack(survivors, len(stayed), len(left)) + b"".join(stayed + left)

    def _unmask(self) -> SumView:
        stayed = [client for client in self._clients if client.masked]
        present = {client.number for client in stayed}
        left = [
            client
            for client in self._clients
            if client.parcels and not client.masked and not present.isdisjoint(client.neighbours)
        ]
        for client in stayed + left:
            if len(client.held) < self._threshold:
                raise Refusal(
                    f"only {len(client.held)} neighbours revealed their shares of client "
                    f"{client.number}; "
                    f"{self._threshold} are needed. Nothing was opened: wait for more, or open a "
                    "new round."
                )
        seeds = [self._own_seed(client) for client in stayed]
        added: list[bytes] = []
        for client in left:
            key = self._masking_key(client)
            for number in client.neighbours:
                if number in present:
                    other = (number, self._clients[number].masking)
                    seed = mask_seed(
                        key, (client.number, client.masking), other, self.round.context
                    )
                    (seeds if number < client.number else added).append(seed)
        correction = masks.total(added, seeds, self.round.modulus, self.round.length)
        sums = (
            sum(column)
            for column in zip(correction, *[client.masked for client in stayed], strict=True)
        )
        return SumView(tuple(number % self.round.modulus for number in sums), len(stayed))

    def _own_seed(self, client: _Client) -> bytes:
        seed = self._combine(client)
        if commitment(self.round.context, client.number, seed) != client.pledge:
            raise _wrong_shares(client)
        return seed

    def _masking_key(self, client: _Client) -> X25519PrivateKey:
        key = X25519PrivateKey.from_private_bytes(self._combine(client))
        if public_bytes(key) != client.masking:
            raise _wrong_shares(client)
        return key

    def _combine(self, client: _Client) -> bytes:
        positions = tuple(sorted(client.held)[: self._threshold])
        return shamir.combine(positions, [client.held[position] for position in positions])

    def _open(self, kind: Kind, message: bytes) -> tuple[_Client, bytes]:
        data = body(message, kind, self.round.identity)
        client = self._by_address.get(data[: layout.ADDRESS_SIZE])
        if client is None:
            raise Refusal(f"the {kind.name} comes from a client that has not joined this round")
        sealed = data[layout.ADDRESS_SIZE :]
        return client, client.channel.open(bytes(message[: layout.FRONT_SIZE]), sealed)

    def _send(
        self, kind: Kind, clients: list[_Client], content: Callable[[_Client], bytes]
    ) -> dict[bytes, bytes]:
        return {client.address: self._seal(client, kind, content(client)) for client in clients}

    def _seal(self, client: _Client, kind: Kind, content: bytes) -> bytes:
        return client.channel.seal(header(kind, self.round.identity) + client.address, content)

    def _forget(self) -> None:
        """Whether opened or refused, nothing that came from a client is kept."""
        for held in (self._clients, self._by_address, self._known_keys, self._decided):
            held.clear()
        for taken in self._taken.values():
            taken.clear()
        self.__dict__.pop("_key", None)

    _TAKE: ClassVar[Mapping[Kind, Callable[[MaskingServer, bytes], None]]] = {
        Kind.JOIN: _take_join,
        Kind.SHARES: _take_shares,
        Kind.MASKED: _take_masked,
        Kind.REVEAL: _take_reveal,
    }


def _over(stage: Stage) -> Refusal:
    return ended(Phase.ANSWERED if stage is Stage.OPENED else Phase.REFUSED)


def _check_turn(client: _Client, already: object, what: str) -> None:
    if already:
        raise Refusal(f"client {client.number} has {what} already")


def _check_there(client: _Client, before: object, otherwise: str) -> None:
    if not before:
        raise Refusal(f"client {client.number} {otherwise}; it is no longer in this round")


def _wrong_shares(client: _Client) -> Refusal:
    return Refusal(
        f"the revealed shares of client {client.number} do not give its secret: someone revealed a "
        "wrong share. "
        f"Nothing was opened: open a new round."
    )
