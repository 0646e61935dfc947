"""A silo's side of one attempt to mask a committed message.

Besides the masking protocol (`tacit.aggregation.masking_client`) silos know each other by the keys
in the terms. Each signs its keys of the attempt, so that no coordinator invents silos. All sign the
same set of survivors before any reveals, so that no two reveal for different sets.

An attempt lives in memory only: after a restart the coordinator starts another, with fresh masks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.aggregation.masking_client import MaskingClient
from tacit.aggregation.wire import pack_parts, unpack_parts
from tacit.errors import Rejected, require
from tacit.signatures import KEY_SIZE, SIGNATURE_SIZE, Signed, sign, verify
from tacit.silos.federation import PinnedFederation
from tacit.silos.messages import SiloMessage, survivors_statement

KEYS_SIZE = 3 * KEY_SIZE


class SiloMasking:
    """One silo in one attempt at one row: `join`, `share`, `check`, `mask`, survivors, `reveal`."""

    def __init__(
        self,
        pinned: PinnedFederation,
        key: Ed25519PrivateKey,
        message: SiloMessage,
        values: Sequence[int],
    ) -> None:
        self.attempt, self.step = message.attempt, message.step
        self._pinned, self._key, self._values = pinned, key, values
        self._client = MaskingClient(pinned, message.payload)
        described = self._client.round
        require(
            (described.identity, described.binding.option) == (message.attempt, message.step),
            "step of the round",
            described.binding.option,
            f"{message.step}, with the attempt of the message",
            Rejected,
        )
        self._addresses: dict[int, bytes] = {}
        self._agreed: frozenset[int] = frozenset()

    def join(self) -> bytes:
        """The masking client's first message, and its keys under the silo's signature."""
        keys = self._client.public_keys
        signature = sign(Signed.SILO_KEYS, self._client.round.context + keys, self._key)
        return pack_parts([self._client.join(), keys + signature])

    def share(self, payload: bytes) -> bytes:
        """Share secrets with neighbours whose keys the silos of the terms have signed."""
        setup, *cards = unpack_parts(payload)
        silos = self._pinned.terms.silos
        require(len(cards) == len(silos), "number of keys", len(cards), f"{len(silos)}", Rejected)
        signed: dict[bytes, int] = {}
        for number, (card, silo) in enumerate(zip(cards, silos, strict=True)):
            if not card:
                continue
            size = len(card)
            require(size == KEYS_SIZE + SIGNATURE_SIZE, "size of keys", size, "160", Rejected)
            keys, signature = card[:KEYS_SIZE], card[KEYS_SIZE:]
            content = self._client.round.context + keys
            verify(Signed.SILO_KEYS, content, signature, silo.key, silo.name)
            signed[keys] = number
        answer = self._client.share(setup)
        known = {self._client.public_keys, *self._client.neighbours.values()}
        if not known <= signed.keys() or len(signed) != len(known):
            raise Rejected("a neighbour has keys that no silo of the terms signed")
        self._addresses = {number: keys[:KEY_SIZE] for keys, number in signed.items()}
        return answer

    def check(self, inbox: bytes) -> bytes:
        """Check the neighbours' shares."""
        return self._client.check(inbox)

    def mask(self, pairs: bytes) -> bytes:
        """Mask the committed message."""
        return self._client.mask(pairs, self._values)

    def check_survivors(self, survivors: Collection[int]) -> None:
        """Reject a set with silos that did not join, or without this one."""
        own = [n for n, address in self._addresses.items() if address == self._client.address]
        joined = bool(own) and own[0] in survivors and set(survivors) <= self._addresses.keys()
        rule = "silos that joined, with this one"
        require(joined, "list of survivors", sorted(survivors), rule, Rejected)

    def sign_survivors(self, survivors: Collection[int]) -> bytes:
        """Agree to a set of survivors; it must be on disk as the only one of its row."""
        self._client.agree({self._addresses[number] for number in survivors})
        terms = self._pinned.terms
        statement = survivors_statement(terms, self.step, self.attempt, survivors)
        self._agreed = frozenset(survivors)
        return sign(Signed.SURVIVORS, statement, self._key)

    def reveal(self, payload: bytes) -> bytes:
        """Reveal shares, once all survivors have signed the same set."""
        asked, *signatures = unpack_parts(payload)
        agreed = sorted(self._agreed)
        terms = self._pinned.terms
        enough = agreed and len(signatures) == len(agreed)
        rule = f"{len(agreed) or 'those of the survivors'}, which this silo signed, too"
        require(enough, "number of survivors' signatures", len(signatures), rule, Rejected)
        statement = survivors_statement(terms, self.step, self.attempt, agreed)
        for number, signature in zip(agreed, signatures, strict=True):
            silo = terms.silos[number]
            verify(Signed.SURVIVORS, statement, signature, silo.key, silo.name)
        return self._client.reveal(asked)
