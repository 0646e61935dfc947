"""Signed messages between a coordinator and the silos of a federation.

A message is `header | payload | signature`. The header names the terms, stage, step, attempt,
sender and recipient, so that a message is valid in one place only. The engine that carries messages
can read policies and masked numbers, and can alter nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import IntEnum

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.aggregation.interface import IDENTITY_SIZE
from tacit.errors import Rejected, require
from tacit.signatures import SIGNATURE_SIZE, Signed, sign, verify
from tacit.silos.federation import FederationTerms

COORDINATOR = 0
"""The coordinator's number in headers; silo i has i + 1."""

LARGEST = 1 << 28
_HEADER = struct.Struct(f">4s32sBIHH{IDENTITY_SIZE}s")
_MAGIC = b"tsm1"
_SURVIVORS = struct.Struct(">I")


class SyncStage(IntEnum):
    """The stages of a synchronisation, in their order; a name is also an engine's topic."""

    POLICY = 1
    REPORT = 2
    JOIN = 3
    SHARE = 4
    CHECK = 5
    MASK = 6
    SURVIVORS = 7
    REVEAL = 8
    EVALUATE = 9


@dataclass(frozen=True)
class SiloMessage:
    """A message of one stage of one attempt at one step."""

    terms: bytes
    stage: SyncStage
    step: int
    sender: int
    recipient: int
    attempt: bytes = bytes(IDENTITY_SIZE)
    payload: bytes = b""

    def _header(self) -> bytes:
        return _HEADER.pack(
            _MAGIC,
            self.terms,
            self.stage,
            self.step,
            self.sender,
            self.recipient,
            self.attempt,
        )

    def encode(self, key: Ed25519PrivateKey) -> bytes:
        """Sign the message with the sender's long-term key."""
        content = self._header() + self.payload
        return content + sign(Signed.SILO_MESSAGE, content, key)

    @classmethod
    def decode(cls, data: bytes, terms: FederationTerms) -> SiloMessage:
        """Parse a message under these terms and verify its sender's signature."""
        size = len(data)
        rule = f"from {_HEADER.size + SIGNATURE_SIZE} to {LARGEST}"
        fits = _HEADER.size + SIGNATURE_SIZE <= size <= LARGEST
        require(fits, "size of the message", size, rule, Rejected)
        content, signature = data[:-SIGNATURE_SIZE], data[-SIGNATURE_SIZE:]
        magic, digest, stage, step, sender, recipient, attempt = _HEADER.unpack_from(content)
        require(magic == _MAGIC, "start of the message", magic, f"{_MAGIC!r}", Rejected)
        require(digest == terms.digest, "terms of the message", digest.hex()[:16], "ours", Rejected)
        known = stage in tuple(SyncStage) and sender <= len(terms.silos)
        require(known, "stage and sender", (stage, sender), "known ones", Rejected)
        keys = (terms.coordinator, *(silo.key for silo in terms.silos))
        verify(Signed.SILO_MESSAGE, content, signature, keys[sender], f"party {sender}")
        payload = content[_HEADER.size :]
        return cls(digest, SyncStage(stage), step, sender, recipient, attempt, payload)

    def answer(self, payload: bytes = b"") -> SiloMessage:
        """The answer to this message."""
        return replace(self, sender=self.recipient, recipient=self.sender, payload=payload)

    def check_answer(self, answer: SiloMessage) -> None:
        """Reject a message that is not the answer to this one."""
        wanted = replace(self.answer(), payload=answer.payload)
        if answer != wanted:
            raise Rejected(
                f"message of party {answer.sender} is about step {answer.step}, "
                f"{answer.stage.name}: must answer step {self.step}, {self.stage.name}, in this "
                "attempt"
            )


def survivors_statement(
    terms: FederationTerms, step: int, attempt: bytes, survivors: Collection[int]
) -> bytes:
    """The statement that silos sign before they reveal: the survivors of one attempt at one row."""
    listed = struct.pack(f">{len(survivors)}H", *sorted(survivors))
    return terms.digest + _SURVIVORS.pack(step) + attempt + listed


def pack_survivors(survivors: Collection[int]) -> bytes:
    """Serialize a set of silos."""
    return struct.pack(f">{len(survivors)}H", *sorted(survivors))


def read_survivors(data: bytes, terms: FederationTerms) -> frozenset[int]:
    """Parse a set of silos; reject one that is not in ascending order or too small."""
    require(len(data) % 2 == 0, "size of the survivors", len(data), "even", Rejected)
    listed = struct.unpack(f">{len(data) // 2}H", data)
    count, fewest = len(terms.silos), len(terms.silos) - terms.missing
    ascending = list(listed) == sorted(set(listed)) and all(number < count for number in listed)
    require(ascending, "list of survivors", list(listed), "ascending silos", Rejected)
    rule = f"at least {fewest}: rows are released with all silos but {terms.missing}"
    require(len(listed) >= fewest, "number of survivors", len(listed), rule, Rejected)
    return frozenset(listed)
