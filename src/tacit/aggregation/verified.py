"""Verified sums: two servers drop invalid reports without learning anything else about them.

A report consists of a Prio3Count or Prio3Sum input share (`tacit.vdaf`) per server and number, or
of one Prio3Histogram input share per server where devices choose: there a report is a single one in
a table. Encryption, slots, lists, records and noise are those of `two_servers`.

The verify key is derived from the X25519 agreement of the two servers' channel keys of the round.
So the description fixes it before any report, it is deleted with the round's secrets, and no
message or restart can change it. The nonce of a report is its tag, which depends on randomness of
its client: the same share always gives the same verifier share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.aggregation.agreement import agree, derive, public_bytes
from tacit.aggregation.interface import Rejected, Source
from tacit.errors import require
from tacit.vdaf import (
    HISTOGRAM_RANDOM_SIZE,
    KEY_SIZE,
    MODULUS,
    MODULUS128,
    PUBLIC_SIZE,
    RANDOM_SIZE,
    SEED_SIZE,
    Prio3,
    Prio3Histogram,
    prio3_count,
    prio3_histogram,
    prio3_sum,
)

__all__ = ["COMMITMENT_SIZE", "MODULUS", "Proofs", "TableProofs", "commitment", "verify_key"]

COMMITMENT_SIZE = 32


def verify_key(line: X25519PrivateKey, lines: tuple[bytes, bytes], identity: bytes) -> bytes:
    """The key under which the two servers of a round verify proofs.

    `line` is the private key of one of `lines`, the servers' channel keys in the order of their
    roles.
    """
    peer = lines[1] if public_bytes(line) == lines[0] else lines[0]
    info = b"tacit verify key v2" + b"".join(lines)
    return derive(agree(line, peer), identity, info, KEY_SIZE)


def commitment(key: bytes, identity: bytes) -> bytes:
    """A hiding and binding commitment to the verify key, for the description."""
    return hashlib.sha256(b"tacit verify key commitment v2" + identity + key).digest()


@dataclass(frozen=True)
class Proofs:
    """The proof system of a round: `length` numbers per report, each in 0..levels.

    Proofs are bound to the digest of the round, `context`.
    """

    levels: int
    length: int
    context: bytes

    modulus = MODULUS

    @cached_property
    def prio3(self) -> Prio3:
        """Prio3Count for bits, Prio3Sum for more levels."""
        return prio3_count() if self.levels == 1 else prio3_sum(self.levels)

    def part_size(self, role: int) -> int:
        """Bytes of a server's input shares of a report."""
        return self.length * self.prio3.share_size(role)

    @property
    def evidence_size(self) -> int:
        """Bytes of a server's verifier shares of a report."""
        return self.length * self.prio3.verifier_size

    def shard(self, numbers: Sequence[int], tag: bytes, source: Source) -> tuple[bytes, bytes]:
        """The input shares of both servers."""
        pairs = [
            self.prio3.shard(self.context, number, tag, source(RANDOM_SIZE)) for number in numbers
        ]
        first, second = zip(*pairs, strict=True)
        return b"".join(first), b"".join(second)

    def prepare(self, key: bytes, role: int, tag: bytes, part: bytes) -> tuple[list[int], bytes]:
        """A server's output shares and verifier shares.

        One query serves all numbers, because they were encrypted together before anyone could know
        it. A malformed input share gives an invalid verifier share.
        """
        size = self.prio3.share_size(role)
        try:
            asked = self.prio3.question(key, self.context, tag)
            made = [
                self.prio3.verify_init(asked, self.context, role, part[at : at + size])
                for at in range(0, len(part), size)
            ]
        except Rejected:
            return [], b"\xff" * self.evidence_size  # not a field element
        return [one.output for one in made], b"".join([one.share for one in made])

    def accepts(self, first: bytes, second: bytes) -> bool:
        """Whether the verifier shares of servers 0 and 1 show that every number is in range."""
        size = self.prio3.verifier_size
        try:
            for at in range(0, self.evidence_size, size):
                self.prio3.verifier_shares_to_message(first[at : at + size], second[at : at + size])
        except Rejected:
            return False
        return True


@dataclass(frozen=True)
class TableProofs:
    """The proof system of a round where devices choose: a report is a one in a table of `length`.

    Joint randomness (VDAF draft, section 7.2.1.2) is derived from both input shares, bound to the
    report's tag. Each part begins with the public share. A server's evidence is its verifier share
    and the seed that it verified with: so both servers reject a client that gave them different
    public shares or proved under other randomness, and no client can make them disagree.
    """

    length: int
    context: bytes

    modulus = MODULUS128

    @cached_property
    def prio3(self) -> Prio3Histogram:
        """Prio3Histogram with a bucket per cell."""
        return prio3_histogram(self.length)

    def part_size(self, role: int) -> int:
        """Bytes of the public share and of a server's input share."""
        return PUBLIC_SIZE + self.prio3.share_size(role)

    @property
    def evidence_size(self) -> int:
        """Bytes of a server's verifier share of a report and of its seed."""
        return self.prio3.verifier_size + SEED_SIZE

    def shard(self, numbers: Sequence[int], tag: bytes, source: Source) -> tuple[bytes, bytes]:
        """The parts of both servers."""
        single = sorted(numbers) == [*[0] * (len(numbers) - 1), 1]
        require(single, "report", list(numbers), "a single 1 among zeros: one cell of a table")
        cell, drawn = list(numbers).index(1), source(HISTOGRAM_RANDOM_SIZE)
        public, (first, second) = self.prio3.shard(self.context, cell, tag, drawn)
        return public + first, public + second

    def prepare(self, key: bytes, role: int, tag: bytes, part: bytes) -> tuple[list[int], bytes]:
        """A server's output shares; its verifier share and the seed of its joint randomness."""
        public, share = part[:PUBLIC_SIZE], part[PUBLIC_SIZE:]
        try:
            asked = self.prio3.question(key, self.context, tag)
            made = self.prio3.verify_init(asked, self.context, tag, role, public, share)
        except Rejected:
            return [], b"\xff" * self.evidence_size  # no field elements
        return made.outputs, made.share + made.seed

    def accepts(self, first: bytes, second: bytes) -> bool:
        """Whether the evidence of servers 0 and 1 shows a single one, under one randomness."""
        size = self.prio3.verifier_size
        shares = first[:size], second[:size]
        try:
            message = self.prio3.verifier_shares_to_message(self.context, *shares)
        except Rejected:
            return False
        return first[size:] == second[size:] == message
