"""Prio3 for two aggregators without joint randomness (VDAF draft, sections 7.2, 7.4.1 and 7.4.2).

Aggregator 0 (leader) holds its share of measurement and proof in full, aggregator 1 (helper) a seed
that expands to its share. A report must be verified once, under one key and one nonce: two queries
to one proof can reveal the measurement. Invalid input from others raises `Rejected` at the stage
that the draft prescribes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from tacit.errors import Rejected, require
from tacit.vdaf.field import MODULUS, SIZE, pack, unpack
from tacit.vdaf.proofs import BIT, Circuit, ProofQuery, whole_number
from tacit.vdaf.xof import SEED_SIZE, expand, turboshake

VERSION = 18  # the last draft that changed the formats
KEY_SIZE = SEED_SIZE
NONCE_SIZE = 16
RANDOM_SIZE = 2 * SEED_SIZE
COUNT, SUM = 1, 2  # the draft's algorithm numbers of Prio3Count and Prio3Sum
USAGE_MEASUREMENT, USAGE_PROOF, USAGE_PROVE, USAGE_QUERY = 1, 2, 4, 5  # of the XOF
ONE_PROOF = b"\x01"  # number of proofs per report
HELPER = b"\x01"  # aggregator 1


class Verifying(NamedTuple):
    """An aggregator's state for a report under verification.

    `output` is its output share, which it keeps; `share` is its verifier share, for the other.
    """

    output: int
    share: bytes


@dataclass(frozen=True)
class Prio3:
    """An instance of Prio3: the draft's algorithm number and the validity circuit."""

    number: int
    circuit: Circuit

    def __post_init__(self) -> None:
        turboshake()  # raises if not installed, before any randomness is drawn

    def share_size(self, role: int) -> int:
        """Bytes of an aggregator's input share."""
        return SEED_SIZE if role else SIZE * (self.circuit.calls + self.circuit.proof_size)

    @property
    def verifier_size(self) -> int:
        """Bytes of a verifier share."""
        return SIZE * self.circuit.verifier_size

    def shard(
        self, context: bytes, measurement: int, nonce: bytes, random_bytes: bytes
    ) -> tuple[bytes, bytes]:
        """The input shares of both aggregators, from `random_bytes`; no public share."""
        require(len(nonce) == NONCE_SIZE, "size of the nonce", len(nonce), f"{NONCE_SIZE}")
        require(
            len(random_bytes) == RANDOM_SIZE,
            "number of random bytes",
            len(random_bytes),
            f"{RANDOM_SIZE}",
        )
        bits = self.circuit.encode(measurement)
        seed, prove = random_bytes[:SEED_SIZE], random_bytes[SEED_SIZE:]
        seeds = expand(prove, self._tag(USAGE_PROVE, context), ONE_PROOF, self.circuit.wires)
        whole = [*bits, *self.circuit.prove(bits, seeds)]
        helper = [part for parts in self._expand_shares(context, seed) for part in parts]
        leader = [(own - other) % MODULUS for own, other in zip(whole, helper, strict=True)]
        return pack(leader), seed

    def question(self, key: bytes, context: bytes, nonce: bytes) -> ProofQuery:
        """The query to every proof under this key and nonce, the same at both aggregators."""
        tag = self._tag(USAGE_QUERY, context)
        return self.circuit.question(expand(key, tag, ONE_PROOF + nonce, self.circuit.asked))

    def verify_init(self, query: ProofQuery, context: bytes, role: int, share: bytes) -> Verifying:
        """An aggregator's first verification step, on its input share."""
        size, wanted = len(share), self.share_size(role)
        require(size == wanted, "input share", f"{size} bytes long", f"{wanted}", Rejected)
        if role:
            bits, proof = self._expand_shares(context, share)
        else:
            numbers = unpack(share, len(share) // SIZE, "an input share")
            bits, proof = numbers[: self.circuit.calls], numbers[self.circuit.calls :]
        verifier = self.circuit.query(bits, proof, query)
        return Verifying(self.circuit.truncate(bits), pack(verifier))

    def verifier_shares_to_message(self, first: bytes, second: bytes) -> bytes:
        """The (empty) verifier message; raises `Rejected` if the report is invalid."""
        size, what = self.circuit.verifier_size, "a verifier share"
        both = zip(unpack(first, size, what), unpack(second, size, what), strict=True)
        if not self.circuit.decide([(a + b) % MODULUS for a, b in both]):
            raise Rejected("range proof of the report is invalid")
        return b""

    def verify_next(self, verifying: Verifying, message: bytes) -> int:
        """The output share of a valid report."""
        if message:
            raise Rejected("verifier message is not empty: must be without joint randomness")
        return verifying.output

    def aggregate(self, outputs: Iterable[int]) -> int:
        """An aggregator's aggregate share."""
        return sum(outputs) % MODULUS

    def unshard(self, first: int, second: int) -> int:
        """The aggregate from both aggregate shares."""
        return (first + second) % MODULUS

    def _expand_shares(self, context: bytes, seed: bytes) -> tuple[list[int], list[int]]:
        """The helper's shares of measurement and proof."""
        circuit = self.circuit
        measurement = self._tag(USAGE_MEASUREMENT, context), HELPER, circuit.calls
        proof = self._tag(USAGE_PROOF, context), ONE_PROOF + HELPER, circuit.proof_size
        return expand(seed, *measurement), expand(seed, *proof)

    def _tag(self, usage: int, context: bytes) -> bytes:
        return domain_tag(self.number, usage, context)


def domain_tag(number: int, usage: int, context: bytes) -> bytes:
    """Domain separation tag: version, class, algorithm, usage, context."""
    return bytes((VERSION, 0)) + number.to_bytes(4) + usage.to_bytes(2) + context


def report_bits(limit: int) -> int:
    """Bits of both input shares of an integer from 0 to the limit.

    >>> report_bits(1), report_bits(1023)
    (640, 2944)
    """
    circuit = BIT if limit == 1 else whole_number(limit)
    return 8 * (SIZE * (circuit.calls + circuit.proof_size) + SEED_SIZE)


@lru_cache(maxsize=64)
def prio3_count() -> Prio3:
    """Prio3Count, for bits."""
    return Prio3(COUNT, BIT)


@lru_cache(maxsize=64)
def prio3_sum(limit: int) -> Prio3:
    """Prio3Sum, for integers from 0 to the limit."""
    return Prio3(SUM, whole_number(limit))
