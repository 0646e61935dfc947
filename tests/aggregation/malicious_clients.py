"""Malicious clients of secure aggregation, one class per attack, in rounds of otherwise honest
clients.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from unittest.mock import patch

from tacit.aggregation import MaskingClient, MaskingSession, Rejected
from tacit.aggregation.agreement import new_key, public_bytes
from tacit.aggregation.masking import FRONT_SIZE, INBOX_ENTRY
from tacit.aggregation.masking_server import MaskingStage
from tacit.aggregation.shamir import SHARE_SIZE
from tacit.aggregation.share_commitments import (
    SHARE_ENTRY,
    SHARE_PAIR_SIZE,
    ShareCommitments,
    commitments_size,
    signed_shares,
)
from tacit.aggregation.wire import Kind
from tacit.signatures import SIGNATURE_SIZE, Signed, sign

Spoil = Callable[[bytes], bytes]
CLIENT = "tacit.aggregation.masking_client"


def reworded(session: MaskingSession, client: MaskingClient, message: bytes, spoil: Spoil) -> bytes:
    """The message with other content, encrypted as only its sender can."""
    channel = session.server._by_address[client.address].channel
    content = channel.decrypt(message[:FRONT_SIZE], message[FRONT_SIZE:])
    return client._channel.encrypt(message[:FRONT_SIZE], spoil(content))


class MaliciousClient:
    """An honest client; the others differ from it in one thing."""

    leaves_before = MaskingStage.RELEASED

    def prepare(self, client: MaskingClient) -> None:
        """What it does before it joins."""

    def corrupted(self) -> AbstractContextManager[object]:
        """What is different while it shares."""
        return nullcontext()

    def receive(self, inbox: bytes) -> None:
        """What it keeps of its inbox."""

    def spoil(self, _client: MaskingClient, _kind: Kind, content: bytes, /) -> bytes:
        """The altered content."""
        return content


class WrongShare(MaliciousClient):
    """Reveals a share, or all, that it was not given."""

    def __init__(self, kind: Kind = Kind.REVEAL, every: bool = False) -> None:
        self.kind, self.every = kind, every

    def spoil(self, _client: MaskingClient, kind: Kind, content: bytes, /) -> bytes:
        if kind is not self.kind:
            return content
        spoilt = bytearray(content)
        for start in range(0, len(content) if self.every else 1, SHARE_ENTRY.size):
            spoilt[start + SHARE_ENTRY.size - 1] ^= 1
        return bytes(spoilt)


class Garbage(MaliciousClient):
    """Sends parcels that do not open, to all or to some neighbours; signs them, or does not."""

    def __init__(self, some: int | None = None, signs: bool = True) -> None:
        self.some, self.signs = some, signs

    def spoil(self, client: MaskingClient, kind: Kind, content: bytes, /) -> bytes:
        if kind is not Kind.SHARES:
            return content
        degree = len(client._neighbours)
        start, end = commitments_size(degree), len(content) - SIGNATURE_SIZE
        size = SHARE_PAIR_SIZE * (degree if self.some is None else self.some)
        ciphertexts = os.urandom(size) + content[start + size : end]
        if not self.signs:
            return content[:start] + ciphertexts + content[end:]
        return content[:start] + ciphertexts + self.signature(client, content[:start], ciphertexts)

    def signature(self, client: MaskingClient, listed: bytes, ciphertexts: bytes) -> bytes:
        commitments = ShareCommitments.decode(listed, len(client._neighbours))
        root = commitments.root(client.round.context, client._number)
        return sign(Signed.SHARES, signed_shares(root, ciphertexts), client._signing_key)


class OtherShares(MaliciousClient):
    """Encrypts shares that are not those that it committed to."""

    def corrupted(self) -> AbstractContextManager[object]:
        return patch(f"{CLIENT}.share_commitment", lambda *_: os.urandom(32))


class Evader(Garbage):
    """Sends garbage and commits to other keys than those that its parcels would have."""

    def corrupted(self) -> AbstractContextManager[object]:
        return patch(f"{CLIENT}.key_commitment", lambda *_: os.urandom(32))


class UnknownKey(MaliciousClient):
    """Announces a masking key that it does not know, and leaves before masking."""

    leaves_before = MaskingStage.MASKING

    def prepare(self, client: MaskingClient) -> None:
        client._masking_public = public_bytes(new_key())


class ScatteredKey(MaliciousClient):
    """Shares its secrets in shares that belong to nothing, and leaves before masking."""

    leaves_before = MaskingStage.MASKING

    def corrupted(self) -> AbstractContextManager[object]:
        return patch(
            f"{CLIENT}.shamir.split_all",
            lambda secrets, _, count, __: [
                tuple(b"\x00" + os.urandom(SHARE_SIZE - 1) for _ in secrets) for _ in range(count)
            ],
        )


class NoSeed(MaliciousClient):
    """Shares a number that is one too large for a seed."""

    def corrupted(self) -> AbstractContextManager[object]:
        share = (1 << 256).to_bytes(SHARE_SIZE, "big")
        return patch(
            f"{CLIENT}.shamir.split_all",
            lambda secrets, _, count, __: [(share,) * len(secrets)] * count,
        )


class UnknownSeed(MaliciousClient):
    """Commits to another seed than it shares."""

    def corrupted(self) -> AbstractContextManager[object]:
        return patch(f"{CLIENT}.seed_commitment", lambda *_: os.urandom(32))


class Slanderer(MaliciousClient):
    """Complains of parcels that open; if it accuses, with the right keys, which no honest client
    would show, or with false ones.
    """

    def __init__(self, of: int = 1, key: bytes = b"") -> None:
        self.of, self.key = of, key
        self.ciphertexts: dict[int, bytes] = {}

    def prepare(self, client: MaskingClient) -> None:
        client._guilty = lambda *_: True  # type: ignore[method-assign]

    def receive(self, inbox: bytes) -> None:
        self.ciphertexts = {entry[0]: entry[-1] for entry in INBOX_ENTRY.iter_unpack(inbox)}

    def spoil(self, client: MaskingClient, kind: Kind, content: bytes, /) -> bytes:
        if kind is Kind.CHECKED:
            named = sorted(client._held)[: self.of]
            client._spoilt |= {number: self.ciphertexts[number] for number in named}
            return b"".join(number.to_bytes(4, "big") for number in named)
        if kind is Kind.ACCUSED and self.key:
            return b"".join(content[at : at + 4] + self.key for at in range(0, len(content), 36))
        return content


def corrupt(client: MaskingClient, attacker: MaliciousClient) -> None:
    """Make a client attack in this way in a round that others drive."""
    attacker.prepare(client)
    answer, share = client._answer, client.share

    def spoilt(kind: Kind, message: bytes, content: bytes) -> bytes:
        return answer(kind, message, attacker.spoil(client, kind, content))

    def shared(setup: bytes) -> bytes:
        with attacker.corrupted():
            return share(setup)

    def left(*_: object) -> bytes:
        raise Rejected("this client has left")

    client._answer, client.share = spoilt, shared  # type: ignore[method-assign]
    if attacker.leaves_before is MaskingStage.MASKING:
        client.mask = client.accuse = left  # type: ignore[method-assign, assignment]


def play(
    session: MaskingSession,
    attackers: dict[int, MaliciousClient],
    silent: dict[MaskingStage, set[int]] | None = None,
    accusing: set[int] | None = None,
) -> None:
    """A whole round with attackers at these slots; others drop out in a stage, and some accuse
    instead of masking.
    """
    silent = silent or {}
    for place, attacker in attackers.items():
        attacker.prepare(session.clients[place])
    while (stage := session.server.stage) is not MaskingStage.RELEASED:
        for place, client in enumerate(session.clients):
            attacker = attackers.get(place, MaliciousClient())
            gone = stage is attacker.leaves_before or place in silent.get(stage, set())
            asked = stage is MaskingStage.JOINING or client.address in session.outgoing
            if gone or not asked:
                continue
            with attacker.corrupted():
                message = _said(session, place, stage, place in (accusing or set()))
            if stage is MaskingStage.CHECKING:
                inbox = session.outgoing[client.address]
                attacker.receive(client._channel.decrypt(inbox[:FRONT_SIZE], inbox[FRONT_SIZE:]))
            if message is not None:
                kind = Kind(message[3])
                if kind is not Kind.JOIN:
                    spoil = partial(attacker.spoil, client, kind)
                    message = reworded(session, client, message, spoil)
                session.server.take(message)
        session.outgoing = session.server.close()


def _said(session: MaskingSession, place: int, stage: MaskingStage, accuses: bool) -> bytes | None:
    client = session.clients[place]
    asked = session.outgoing.get(client.address, b"")
    try:
        match stage:
            case MaskingStage.JOINING:
                return client.join()
            case MaskingStage.SHARING:
                return client.share(asked)
            case MaskingStage.CHECKING:
                return client.check(asked)
            case MaskingStage.MASKING:
                if accuses:
                    return client.accuse(asked)
                return client.mask(asked, session.reports[place])
            case _:
                return client.reveal(asked)
    except Rejected:
        return None
