"""Verified sums: two servers that drop every report that is not in range, and see nothing of it.

A report is a share of Prio3Count or Prio3Sum for each server and number (`tacit.vdaf`). Everything
else is as in `two_servers`: seals, places, lists, records, noise. The key under which proofs are
verified is what the two servers' lines of the round agree on, so it is fixed by the description
before anybody reports, is made of the round's secrets and goes with them, and no message or
restart can make it another. Every report is verified under its tag, which its device drew: the
same share gives the same evidence, however often it is asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.aggregation.agreement import agree, derive, public_bytes
from tacit.aggregation.interface import Refusal, Source
from tacit.vdaf import KEY_SIZE, MODULUS, RANDOM_SIZE, Prio3, prio3_count, prio3_sum

__all__ = ["COMMITMENT_SIZE", "MODULUS", "Proofs", "commitment", "verify_key"]

COMMITMENT_SIZE = 32


def verify_key(line: X25519PrivateKey, lines: tuple[bytes, bytes], identity: bytes) -> bytes:
    """The key that the two servers of a round share for verifying; `line` is the private half of
    one of `lines`, which are theirs in the order of their roles.
    """
    peer = lines[1] if public_bytes(line) == lines[0] else lines[0]
    info = b"tacit verify key v2" + b"".join(lines)
    return derive(agree(line, peer), identity, info, KEY_SIZE)


def commitment(key: bytes, identity: bytes) -> bytes:
    """What a description says of the verify key: this key and no other, and nothing about it."""
    return hashlib.sha256(b"tacit verify key commitment v2" + identity + key).digest()


@dataclass(frozen=True)
class Proofs:
    """How the reports of a round are proved and verified: so many numbers each, from 0 to the
    levels, bound to the digest of the round.
    """

    levels: int
    length: int
    context: bytes

    @cached_property
    def prio3(self) -> Prio3:
        """Bits are counted, levels summed."""
        return prio3_count() if self.levels == 1 else prio3_sum(self.levels)

    def part_size(self, role: int) -> int:
        """Bytes of a server's part of a report."""
        return self.length * self.prio3.share_size(role)

    @property
    def evidence_size(self) -> int:
        """Bytes of what the servers tell each other about a report."""
        return self.length * self.prio3.verifier_size

    def shards(self, numbers: Sequence[int], tag: bytes, source: Source) -> tuple[bytes, bytes]:
        """What each server gets of the numbers."""
        pairs = [
            self.prio3.shard(self.context, number, tag, source(RANDOM_SIZE)) for number in numbers
        ]
        first, second = zip(*pairs, strict=True)
        return b"".join(first), b"".join(second)

    def prepared(self, key: bytes, role: int, tag: bytes, part: bytes) -> tuple[list[int], bytes]:
        """A server's shares of the numbers, and its evidence. One question serves all numbers: they
        were sealed together, before anybody could know it. A part that is no part at all has
        evidence that says so.
        """
        size = self.prio3.share_size(role)
        try:
            asked = self.prio3.question(key, self.context, tag)
            made = [
                self.prio3.verify_init(asked, self.context, role, part[at : at + size])
                for at in range(0, len(part), size)
            ]
        except Refusal:
            return [], b"\xff" * self.evidence_size  # no number of the field is spelt like this
        return [one.output for one in made], b"".join([one.share for one in made])

    def hold(self, first: bytes, second: bytes) -> bool:
        """Whether the evidence of both servers shows that every number is in range."""
        size = self.prio3.verifier_size
        try:
            for at in range(0, self.evidence_size, size):
                self.prio3.verifier_shares_to_message(first[at : at + size], second[at : at + size])
        except Refusal:
            return False
        return True
