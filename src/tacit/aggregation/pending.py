"""Pending reports of a round: pseudonymous names, encryption at rest and slot tokens.

A party stores reports until a round closes, under keys derived from the round's secret. Once the
secret is destroyed, names and contents are noise. Slot tokens show that the coordinator assigned a
slot; every party that checks them can compute them.
"""

from __future__ import annotations

import hmac
import os
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tacit.aggregation.agreement import KEY_SIZE, NONCE_SIZE, derive
from tacit.aggregation.interface import CheckedShare, Rejected
from tacit.aggregation.two_servers import TOKEN_SIZE, ReportSlot

NAME_SIZE = 16


class PendingVault:
    """Keys for the pending reports of one round; never saved."""

    def __init__(self, wrapping: bytes, naming: bytes, tokens: bytes) -> None:
        self._wrapping = AESGCM(wrapping)
        self._naming = hmac.new(naming, digestmod="sha256")
        self._tokens = hmac.new(tokens, digestmod="sha256")

    @classmethod
    def of(cls, secret: bytes, identity: bytes, tokens: bytes) -> PendingVault:
        """The vault of a round's secret; `tokens` is the key of slot tokens."""
        keys = derive(secret, identity, b"tacit pending v1", 2 * KEY_SIZE)
        return cls(keys[:KEY_SIZE], keys[KEY_SIZE:], tokens)

    def token(self, number: int) -> bytes:
        """The token of a slot."""
        return _mac(self._tokens, struct.pack(">I", number))[:TOKEN_SIZE]

    def table_entry(self, slot: ReportSlot, slots: int, content: bytes) -> CheckedShare:
        """The table entry of a report; rejects a slot that was not assigned in this round."""
        self.check_slot(slot, slots)
        name = self.name(struct.pack(">I", slot.number))
        return CheckedShare(name, self.wrap(name, content), content, slot.number)

    def check_slot(self, slot: ReportSlot, slots: int) -> None:
        """Reject a slot that was not assigned in this round."""
        number = slot.number
        if number >= slots or not hmac.compare_digest(slot.token, self.token(number)):
            raise Rejected(f"slot {number} was not assigned in this round, or has another token")

    def same(self, waiting: CheckedShare, stored: bytes) -> bool:
        """Whether another table entry, `stored`, contains this report."""
        return self.unwrap(waiting.name, stored) == waiting.share

    def name(self, content: bytes) -> bytes:
        """Pseudonymous table key; meaningless without the round's secret."""
        return _mac(self._naming, content)[:NAME_SIZE]

    def wrap(self, name: bytes, content: bytes) -> bytes:
        """Encrypt a table entry."""
        nonce = os.urandom(NONCE_SIZE)
        return nonce + self._wrapping.encrypt(nonce, content, name)

    def unwrap(self, name: bytes, wrapped: bytes) -> bytes:
        """Decrypt a table entry."""
        try:
            nonce, rest = wrapped[:NONCE_SIZE], wrapped[NONCE_SIZE:]
            return self._wrapping.decrypt(nonce, rest, name)
        except (InvalidTag, ValueError):
            raise Rejected("stored report is damaged or of another round") from None


class PendingReports(ABC):
    """Base of a party's side of one round, whose reports wait in the caller's table."""

    slot_at = 0
    """Bytes of a report in front of its slot and token."""

    @abstractmethod
    def _vault(self) -> PendingVault:
        """The keys of an open round; raises `ClosedRound` once the secret is destroyed."""

    def slots(self, numbers: Iterable[int]) -> list[ReportSlot]:
        """The slots with these numbers, with their tokens."""
        vault = self._vault()
        return [ReportSlot(number, vault.token(number)) for number in numbers]

    def names(self, things: Iterable[bytes]) -> list[bytes]:
        """Pseudonymous storage keys for further items of this round.

        They derive from the round's secret: available only until the round closes, unlinkable
        afterwards.
        """
        vault = self._vault()
        return [vault.name(b"other " + thing) for thing in things]

    def same(self, waiting: CheckedShare, stored: bytes) -> bool:
        """Whether the table entry `stored` contains this report."""
        return stored == waiting.wrapped or self._vault().same(waiting, stored)


def _mac(keyed: hmac.HMAC, message: bytes) -> bytes:
    """HMAC-SHA256 with a key that was prepared once."""
    one = keyed.copy()
    one.update(message)
    return one.digest()
