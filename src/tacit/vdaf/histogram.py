"""Prio3Histogram for two aggregators (VDAF draft, sections 7.2, 7.3 and 7.4.4), in Field128.

A measurement is one of `length` buckets, shared as a vector that has a one in its bucket. The
validity circuit checks that every element is 0 or 1 and that they sum to one. It reduces the range
checks by joint randomness: powers of elements that both aggregators derive from their shares, which
a client fixes before it knows them. A gadget sums `chunk` products per call.

Each aggregator recomputes its own part of the joint randomness; `verify_next` rejects a report
whose client proved under another. As in `prio3`, a report must be verified once, under one key.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from tacit.errors import Rejected, require
from tacit.vdaf.field import FIELD128, nodes
from tacit.vdaf.prio3 import (
    HELPER,
    NONCE_SIZE,
    ONE_PROOF,
    USAGE_MEASUREMENT,
    USAGE_PROOF,
    USAGE_PROVE,
    USAGE_QUERY,
    domain_tag,
)
from tacit.vdaf.proofs import ProofQuery
from tacit.vdaf.xof import SEED_SIZE, derive_seed, expand, turboshake

NUMBER = 4  # the draft's algorithm number of Prio3Histogram
HISTOGRAM_RANDOM_SIZE = 4 * SEED_SIZE
PUBLIC_SIZE = 2 * SEED_SIZE
MODULUS128 = FIELD128.modulus
HALF = (MODULUS128 + 1) // 2  # 1/2: each aggregator's share of the constant 1
MOST_BUCKETS = 1 << 20
_JOINT, _JOINT_SEED, _JOINT_PART = 3, 6, 7  # usages of the XOF


class HistogramVerifying(NamedTuple):
    """An aggregator's state for a report under verification.

    `outputs` is its output share and `seed` its joint randomness seed, which it keeps; `share` is
    its verifier share, for the other.
    """

    outputs: list[int]
    seed: bytes
    share: bytes


@dataclass(frozen=True)
class HistogramCircuit:
    """Validity circuit: `length` elements are 0 or 1 and sum to one.

    Call i of the gadget sums r^(j+1) x (x - 1) over the elements x of chunk i, r the i-th element
    of joint randomness. A gadget has two wires per element of a chunk.
    """

    length: int
    chunk: int

    @property
    def calls(self) -> int:
        """Gadget calls: chunks, the last one filled up with zeros."""
        return -(-self.length // self.chunk)

    @property
    def wires(self) -> int:
        """Inputs of the gadget."""
        return 2 * self.chunk

    @cached_property
    def width(self) -> int:
        """p: values of a wire polynomial, the least power of two for the seed and all calls."""
        return 1 << self.calls.bit_length()

    @property
    def proof_size(self) -> int:
        """Elements of a proof: the wires' seeds and 2p - 1 values of the gadget polynomial."""
        return self.wires + 2 * self.width - 1

    @property
    def verifier_size(self) -> int:
        """Elements of a verifier share."""
        return 2 + self.wires

    def encode(self, measurement: int) -> list[int]:
        """The vector with a one in this bucket."""
        holds = 0 <= measurement < self.length
        require(holds, "measurement", measurement, f"from 0 to {self.length - 1}")
        return [int(place == measurement) for place in range(self.length)]

    def inputs(self, elements: Sequence[int], joint: Sequence[int], one: int) -> list[list[int]]:
        """The values of every wire at the calls; `one` is this party's share of the constant 1."""
        padded = [*elements, *[0] * (self.calls * self.chunk - self.length)]
        columns: list[list[int]] = [[] for _ in range(self.wires)]
        for call, factor in enumerate(joint):
            power = 1
            for place in range(self.chunk):
                element = padded[call * self.chunk + place]
                power = power * factor % MODULUS128
                columns[2 * place].append(power * element % MODULUS128)
                columns[2 * place + 1].append((element - one) % MODULUS128)
        return columns

    @cached_property
    def _between(self) -> list[list[int]]:
        """Lagrange coefficients of a wire polynomial at the 2p-th roots that are not p-th roots."""
        here = nodes(self.width, self.width, FIELD128)
        return [here.lagrange(point) for point in FIELD128.roots(2 * self.width)[1::2]]

    def prove(
        self, elements: Sequence[int], seeds: Sequence[int], joint: Sequence[int]
    ) -> list[int]:
        """The proof for an encoded measurement."""
        polynomials = []
        for seed, values in zip(seeds, self.inputs(elements, joint, 1), strict=True):
            known = [seed, *values]
            between = [FIELD128.dot(row, known) for row in self._between]
            full = [*known, *[0] * (self.width - len(known))]
            polynomials.append(
                [value for pair in zip(full, between, strict=True) for value in pair]
            )
        outputs = [self.gadget(inputs) for inputs in zip(*polynomials, strict=True)]
        return [*seeds, *outputs[: 2 * self.width - 1]]

    @staticmethod
    def gadget(inputs: Sequence[int]) -> int:
        """The sum of the products of neighbouring inputs."""
        return FIELD128.dot(inputs[::2], inputs[1::2])

    def question(self, elements: Sequence[int]) -> ProofQuery:
        """The query made of three random elements, of which the last is no p-th root of unity."""
        *factors, at = elements
        if pow(at, self.width, MODULUS128) == 1:
            raise Rejected("query point of the report is a root of unity: the report is dropped")
        return ProofQuery(
            factors,
            nodes(self.width, self.width, FIELD128).lagrange(at)[: 1 + self.calls],
            nodes(2 * self.width, 2 * self.width - 1, FIELD128).lagrange(at),
        )

    def query(
        self,
        elements: Sequence[int],
        proof: Sequence[int],
        query: ProofQuery,
        joint: Sequence[int],
    ) -> list[int]:
        """A verifier share: circuit output, wires and gadget polynomial at the random point."""
        seeds, gadget = proof[: self.wires], proof[self.wires :]
        in_range = sum(gadget[2 : 2 * self.calls + 1 : 2])
        output = FIELD128.dot(query.outputs, [in_range, sum(elements) - HALF])
        columns = self.inputs(elements, joint, HALF)
        wires = [
            FIELD128.dot(query.wire, [seed, *values])
            for seed, values in zip(seeds, columns, strict=True)
        ]
        return [output, *wires, FIELD128.dot(query.gadget, gadget)]

    def decide(self, verifier: Sequence[int]) -> bool:
        """Whether the sum of both verifier shares belongs to a valid proof."""
        output, *wires, gadget = verifier
        return output == 0 and self.gadget(wires) == gadget


@dataclass(frozen=True)
class Prio3Histogram:
    """Prio3Histogram with `length` buckets and chunks of `chunk` elements.

    Examples
    --------
    >>> prio3 = prio3_histogram(4)
    >>> public, shares = prio3.shard(b"", 2, bytes(16), bytes(128))
    >>> len(public), [len(share) for share in shares]
    (64, [272, 64])
    """

    circuit: HistogramCircuit

    def __post_init__(self) -> None:
        turboshake()  # raises if not installed, before any randomness is drawn

    def share_size(self, role: int) -> int:
        """Bytes of an aggregator's input share."""
        elements = 0 if role else self.circuit.length + self.circuit.proof_size
        return FIELD128.size * elements + SEED_SIZE * (2 if role else 1)

    @property
    def verifier_size(self) -> int:
        """Bytes of a verifier share."""
        return FIELD128.size * self.circuit.verifier_size + SEED_SIZE

    def shard(
        self, context: bytes, measurement: int, nonce: bytes, random_bytes: bytes
    ) -> tuple[bytes, tuple[bytes, bytes]]:
        """The public share and both input shares, from random bytes `random_bytes`."""
        require(len(nonce) == NONCE_SIZE, "size of the nonce", len(nonce), f"{NONCE_SIZE}")
        size = HISTOGRAM_RANDOM_SIZE
        require(len(random_bytes) == size, "number of random bytes", len(random_bytes), f"{size}")
        elements = self.circuit.encode(measurement)
        starts = range(0, size, SEED_SIZE)
        seed, blind, own_blind, prove = (random_bytes[at : at + SEED_SIZE] for at in starts)
        theirs, their_proof = self._expand_shares(context, seed)
        own = [(a - b) % MODULUS128 for a, b in zip(elements, theirs, strict=True)]
        public = self._part(context, 0, own_blind, own, nonce)
        public += self._part(context, 1, blind, theirs, nonce)
        joint = self._joint(context, self._seed(context, public))
        tag = domain_tag(NUMBER, USAGE_PROVE, context)
        seeds = expand(prove, tag, ONE_PROOF, self.circuit.wires, FIELD128)
        proof = self.circuit.prove(elements, seeds, joint)
        rest = [(a - b) % MODULUS128 for a, b in zip(proof, their_proof, strict=True)]
        return public, (FIELD128.pack([*own, *rest]) + own_blind, seed + blind)

    def question(self, key: bytes, context: bytes, nonce: bytes) -> ProofQuery:
        """The query to every proof under this key and nonce, the same at both aggregators."""
        tag = domain_tag(NUMBER, USAGE_QUERY, context)
        return self.circuit.question(expand(key, tag, ONE_PROOF + nonce, 3, FIELD128))

    def verify_init(
        self,
        query: ProofQuery,
        context: bytes,
        nonce: bytes,
        role: int,
        public: bytes,
        share: bytes,
    ) -> HistogramVerifying:
        """An aggregator's first verification step, on the public share and its input share."""
        for what, data, wanted in (
            ("public share", public, PUBLIC_SIZE),
            ("input share", share, self.share_size(role)),
        ):
            require(len(data) == wanted, what, f"{len(data)} bytes long", f"{wanted}", Rejected)
        body, blind = share[:-SEED_SIZE], share[-SEED_SIZE:]
        if role:
            elements, proof = self._expand_shares(context, body)
        else:
            numbers = FIELD128.unpack(body, len(body) // FIELD128.size, "an input share")
            elements, proof = numbers[: self.circuit.length], numbers[self.circuit.length :]
        part = self._part(context, role, blind, elements, nonce)
        parts = [public[:SEED_SIZE], public[SEED_SIZE:]]
        parts[role] = part
        seed = self._seed(context, b"".join(parts))
        verifier = self.circuit.query(elements, proof, query, self._joint(context, seed))
        return HistogramVerifying(elements, seed, FIELD128.pack(verifier) + part)

    def verifier_shares_to_message(self, context: bytes, first: bytes, second: bytes) -> bytes:
        """The verifier message; raises `Rejected` if the report is invalid."""
        size, what = self.circuit.verifier_size, "a verifier share"
        pairs = [(share[:-SEED_SIZE], share[-SEED_SIZE:]) for share in (first, second)]
        one, other = (FIELD128.unpack(body, size, what) for body, _ in pairs)
        if not self.circuit.decide([(a + b) % MODULUS128 for a, b in zip(one, other, strict=True)]):
            raise Rejected("proof of the histogram report is invalid")
        return self._seed(context, b"".join(part for _, part in pairs))

    def verify_next(self, verifying: HistogramVerifying, message: bytes) -> list[int]:
        """The output share of a valid report."""
        if message != verifying.seed:
            raise Rejected("joint randomness of the histogram report differs between aggregators")
        return verifying.outputs

    def aggregate(self, outputs: Iterable[Sequence[int]]) -> list[int]:
        """An aggregator's aggregate share."""
        total = [0] * self.circuit.length
        for output in outputs:
            total = [(a + b) % MODULUS128 for a, b in zip(total, output, strict=True)]
        return total

    def unshard(self, first: Sequence[int], second: Sequence[int]) -> list[int]:
        """The number of reports per bucket, from both aggregate shares."""
        return self.aggregate((first, second))

    def _expand_shares(self, context: bytes, seed: bytes) -> tuple[list[int], list[int]]:
        """The helper's shares of measurement and proof."""
        circuit = self.circuit
        measurement = domain_tag(NUMBER, USAGE_MEASUREMENT, context), HELPER, circuit.length
        proof = domain_tag(NUMBER, USAGE_PROOF, context), ONE_PROOF + HELPER, circuit.proof_size
        return expand(seed, *measurement, FIELD128), expand(seed, *proof, FIELD128)

    def _part(
        self, context: bytes, role: int, blind: bytes, elements: Sequence[int], nonce: bytes
    ) -> bytes:
        """An aggregator's part of the joint randomness, from its share of the measurement."""
        binder = bytes((role,)) + nonce + FIELD128.pack(elements)
        return derive_seed(blind, domain_tag(NUMBER, _JOINT_PART, context), binder)

    def _seed(self, context: bytes, parts: bytes) -> bytes:
        return derive_seed(bytes(SEED_SIZE), domain_tag(NUMBER, _JOINT_SEED, context), parts)

    def _joint(self, context: bytes, seed: bytes) -> list[int]:
        """The joint randomness: one element per gadget call."""
        tag = domain_tag(NUMBER, _JOINT, context)
        return expand(seed, tag, ONE_PROOF, self.circuit.calls, FIELD128)


@lru_cache(maxsize=64)
def prio3_histogram(length: int, chunk: int | None = None) -> Prio3Histogram:
    """Prio3Histogram; chunks have √length elements by default, which makes proofs short."""
    holds = 1 <= length <= MOST_BUCKETS
    require(holds, "length", length, f"from 1 to {MOST_BUCKETS}")
    size = max(1, math.isqrt(length)) if chunk is None else chunk
    require(1 <= size <= length, "chunk", size, f"from 1 to {length}")
    return Prio3Histogram(HistogramCircuit(length, size))
