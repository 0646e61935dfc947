"""The server's side of masking: it deals the graph, carries parcels, and opens the sum of those who
stayed, or nothing.

The server holds public keys, sealed parcels and masked numbers. Only in the last stage do shares
reach it, and only when every secret that the sum needs can be put together does it put together
any.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.intermediaries import masking as layout
from tacit.intermediaries import masks, shamir
from tacit.intermediaries.agreement import KEY_SIZE, Channel, check_public, new_key, public_bytes
from tacit.intermediaries.graph import (
    Neighbourhood,
    Shuffle,
    connected,
    neighbourhood,
    regular_graph,
)
from tacit.intermediaries.interface import (
    SYSTEM,
    Refusal,
    Source,
    SumView,
    check_minimum,
    new_identity,
    opened,
)
from tacit.intermediaries.masking import MaskingRound, commitment, mask_seed
from tacit.intermediaries.wire import Kind, body, header, records, unpack_numbers

_COMMITMENT_SIZE = 32


class Stage(Enum):
    """Where a round stands: which message is taken next, or how it ended."""

    JOINING = Kind.JOIN
    SHARING = Kind.SHARES
    MASKING = Kind.MASKED
    REVEALING = Kind.REVEAL
    OPENED = "opened"
    REFUSED = "refused"


@dataclass(repr=False)
class _Client:
    """What the server knows about one client; left out of every repr, because shares pass through
    here.
    """

    number: int
    address: bytes
    masking: bytes
    channel: Channel
    entry: bytes
    neighbours: list[int] = field(default_factory=list)
    place_of: dict[int, int] = field(default_factory=dict)
    pledge: bytes = b""
    parcels: dict[int, bytes] = field(default_factory=dict)
    masked: list[int] = field(default_factory=list)
    answered: bool = False
    held: dict[int, bytes] = field(default_factory=dict)


class MaskingServer:
    """One round of masking: `take` messages and `close` stages until `view`.

    >>> server = MaskingServer.open(reports=64, minimum=57, modulus=1000)
    >>> server.stage.name, server.round.neighbourhood
    ('JOINING', Neighbourhood(degree=14, threshold=8))
    """

    def __init__(
        self,
        announced: MaskingRound,
        key: X25519PrivateKey,
        source: Source = SYSTEM,
        shuffle: Shuffle | None = None,
    ) -> None:
        self.round = announced
        self.stage = Stage.JOINING
        self._key = key
        self._source = source
        self._shuffle = shuffle
        self._clients: list[_Client] = []
        self._by_address: dict[bytes, _Client] = {}
        self._known_keys: set[bytes] = set()
        self._threshold = 0
        self._view: SumView | None = None

    @classmethod
    def open(
        cls,
        reports: int,
        minimum: int,
        modulus: int,
        length: int = 1,
        among: Neighbourhood | None = None,
        source: Source = SYSTEM,
        shuffle: Shuffle | None = None,
    ) -> MaskingServer:
        """Open a round; without `among`, the neighbourhood is computed for the minimum, a tenth
        dropping out and a tenth corrupt.

        `source` and `shuffle` are for test vectors only.
        """
        chosen = among or neighbourhood(reports, minimum)
        key = new_key(source)
        announced = MaskingRound(
            new_identity(source), reports, minimum, modulus, length, chosen, public_bytes(key)
        )
        return cls(announced, key, source, shuffle)

    def __repr__(self) -> str:
        where = f"round={self.round.identity.hex()}, stage={self.stage.name}"
        return f"MaskingServer({where}, clients={len(self._clients)})"

    def take(self, message: bytes) -> None:
        """Accept one message of the current stage from one client."""
        match self.stage:
            case Stage.JOINING:
                self._take_join(message)
            case Stage.SHARING:
                self._take_shares(message)
            case Stage.MASKING:
                self._take_masked(message)
            case Stage.REVEALING:
                self._take_reveal(message)
            case _:
                raise Refusal(f"this round is {self.stage.value}; it takes no more messages")

    def close(self) -> Mapping[bytes, bytes]:
        """End the current stage; returns one message for each client that is still there, by
        address.
        """
        try:
            match self.stage:
                case Stage.JOINING:
                    return self._deal_graph()
                case Stage.SHARING:
                    return self._carry_parcels()
                case Stage.MASKING:
                    return self._request_shares()
                case Stage.REVEALING:
                    self._view = self._unmask()
                    self._end(Stage.OPENED)
                    return {}
                case _:
                    raise Refusal(f"this round is {self.stage.value}; there is nothing to close")
        except Refusal:
            if self.stage is not Stage.OPENED:
                self._end(Stage.REFUSED)
            raise

    def view(self) -> SumView:
        """The sum of those who stayed."""
        return opened(self._view, "is no sum")

    def _take_join(self, message: bytes) -> None:
        data = body(message, Kind.JOIN, self.round.identity)
        address = data[: layout.ADDRESS_SIZE]
        if len(self._clients) >= self.round.reports:
            raise Refusal(f"the round is full: it was opened for {self.round.reports} reports")
        if len(address) != layout.ADDRESS_SIZE or address in self._by_address:
            raise Refusal("this client has joined already, or its JOIN is too short")
        channel = Channel(
            self._key,
            address,
            self.round.server,
            self.round.context,
            starts=False,
            source=self._source,
        )
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
        number = len(self._clients)
        client = _Client(
            number, address, masking, channel, layout.SETUP_ENTRY.pack(number, address, masking)
        )
        self._clients.append(client)
        self._by_address[address] = client
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

    def _deal_graph(self) -> dict[bytes, bytes]:
        check_minimum(len(self._clients), self.round.minimum, "clients joined")
        fitted = self.round.neighbourhood.fit(len(self._clients))
        self._threshold = fitted.threshold
        for client, neighbours in zip(
            self._clients,
            regular_graph(len(self._clients), fitted.degree, self._shuffle),
            strict=True,
        ):
            client.neighbours = neighbours
            client.place_of = {number: place for place, number in enumerate(neighbours, start=1)}
        self.stage = Stage.SHARING
        return self._send(Kind.SETUP, self._clients, self._setup)

    def _setup(self, client: _Client) -> bytes:
        head = layout.SETUP_HEAD.pack(client.number, len(self._clients), len(client.neighbours))
        return head + b"".join([self._clients[number].entry for number in client.neighbours])

    def _carry_parcels(self) -> dict[bytes, bytes]:
        sharing = [client for client in self._clients if client.parcels]
        check_minimum(len(sharing), self.round.minimum, "clients shared their secrets")
        self.stage = Stage.MASKING
        return self._send(Kind.INBOX, sharing, self._inbox)

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

    def _request_shares(self) -> dict[bytes, bytes]:
        staying = [client for client in self._clients if client.masked]
        check_minimum(len(staying), self.round.minimum)
        if not connected(
            [client.neighbours for client in self._clients], {client.number for client in staying}
        ):
            raise Refusal(
                "those who stayed fall apart into groups without common masks, whose separate sums "
                "would show; "
                "nothing was opened. Open a new round, with more neighbours."
            )
        self.stage = Stage.REVEALING
        return self._send(Kind.REQUEST, staying, lambda client: self._request(client, len(staying)))

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
                    f"{self._threshold} are needed. Nothing was opened: open a new round."
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

    def _end(self, stage: Stage) -> None:
        """Whether opened or refused, nothing that came from a client is kept."""
        self.stage = stage
        self._clients = []
        self._by_address = {}
        self._known_keys = set()
        self.__dict__.pop("_key", None)


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
