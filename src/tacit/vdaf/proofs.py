"""Fully linear proofs on shared data that a measurement is in range (VDAF draft, section 7.3).

There are circuits for a bit and for a sum of weighted bits. A circuit calls one gadget of degree
two on every bit. The inputs of its calls, after a random seed, are the values of a wire polynomial
at the p-th roots of unity. The proof consists of the seeds and the gadget polynomial, given by its
first 2p - 1 values at the 2p-th roots. A verifier compares both at a random point t. All but
`decide` is linear, so that it works on shares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from tacit.errors import Rejected, require
from tacit.vdaf.field import MODULUS, dot, nodes, roots

MOST_BITS = 63  # a limit is below 2^63, so that sums of weights stay below the modulus


@dataclass(frozen=True)
class ProofQuery:
    """A verifier's query: coefficients of the calls' outputs, and Lagrange coefficients at t.

    `wire` applies to the values of a wire polynomial, `gadget` to those of the gadget polynomial.
    """

    outputs: Sequence[int]
    wire: Sequence[int]
    gadget: Sequence[int]


@dataclass(frozen=True)
class Circuit:
    """Validity circuit: each of the `calls` elements of a measurement is 0 or 1.

    `wires` is the number of inputs of the gadget, `gadget` its function, `weights` the weight of
    each element in the aggregate. `offset` states whether the element is subtracted outside of the
    gadget: the circuit computes x² - x in one gadget, or x² in a gadget and x outside of it.
    """

    wires: int
    gadget: Callable[..., int]
    weights: tuple[int, ...]
    offset: bool

    @property
    def calls(self) -> int:
        """The number of elements of a measurement, which is the number of gadget calls."""
        return len(self.weights)

    @cached_property
    def width(self) -> int:
        """p: values of a wire polynomial, the least power of two for the seed and all calls."""
        return 1 << self.calls.bit_length()

    @property
    def limit(self) -> int:
        """The largest measurement."""
        return sum(self.weights)

    @property
    def values(self) -> int:
        """The number of values that give the gadget polynomial, of degree 2(p - 1)."""
        return 2 * self.width - 1

    @property
    def proof_size(self) -> int:
        """Elements of a proof."""
        return self.wires + self.values

    @property
    def verifier_size(self) -> int:
        """Elements of a verifier share."""
        return 2 + self.wires

    @property
    def asked(self) -> int:
        """Random elements in a query."""
        return 1 + (self.calls if self.calls > 1 else 0)

    def encode(self, measurement: int) -> list[int]:
        """The measurement as weighted bits; the last bit is set if the other bits are too small."""
        holds = 0 <= measurement <= self.limit
        require(holds, "measurement", measurement, f"from 0 to {self.limit}")
        last = measurement > self.limit - self.weights[-1]
        rest = measurement - self.weights[-1] * last
        return [rest >> place & 1 for place in range(self.calls - 1)] + [int(last)]

    def truncate(self, bits: Sequence[int]) -> int:
        """The aggregate value of an encoded measurement, or of a share of one."""
        return dot(self.weights, bits)

    @cached_property
    def _between(self) -> list[list[int]]:
        """Lagrange coefficients of a wire polynomial at the 2p-th roots that are not p-th roots."""
        here = nodes(self.width, self.width)
        return [here.lagrange(point) for point in roots(2 * self.width)[1::2]]

    def prove(self, bits: Sequence[int], seeds: Sequence[int]) -> list[int]:
        """The proof for an encoded measurement."""
        columns = []
        for seed in seeds:
            known = [seed, *bits, *[0] * (self.width - 1 - self.calls)]
            between = [dot(row, known[: 1 + self.calls]) for row in self._between]
            columns.append([value for pair in zip(known, between, strict=True) for value in pair])
        outputs = [self.gadget(*inputs) for inputs in zip(*columns, strict=True)]
        return [*seeds, *outputs[: self.values]]

    def question(self, elements: Sequence[int]) -> ProofQuery:
        """The query made of random elements.

        Raises `Rejected` if t is a p-th root of unity, where an answer would reveal wire values.
        """
        *factors, at = elements
        if pow(at, self.width, MODULUS) == 1:
            raise Rejected("query point of the report is a root of unity: the report is dropped")
        return ProofQuery(
            factors or [1],
            nodes(self.width, self.width).lagrange(at)[: 1 + self.calls],
            nodes(2 * self.width, self.values).lagrange(at),
        )

    def query(self, bits: Sequence[int], proof: Sequence[int], query: ProofQuery) -> list[int]:
        """A verifier share: the circuit output, and the wires and gadget polynomial at t."""
        seeds, gadget = proof[: self.wires], proof[self.wires :]
        output = dot(query.outputs, gadget[2 : 2 * self.calls + 1 : 2])
        if self.offset:
            output = (output - bits[0]) % MODULUS
        wires = [dot(query.wire, [seed, *bits]) for seed in seeds]
        return [output, *wires, dot(query.gadget, gadget)]

    def decide(self, verifier: Sequence[int]) -> bool:
        """Whether the sum of both verifier shares belongs to a valid proof."""
        output, *wires, gadget = verifier
        return output == 0 and self.gadget(*wires) == gadget


def _product(a: int, b: int) -> int:
    return a * b % MODULUS


def _zero_or_one(a: int) -> int:
    return a * (a - 1) % MODULUS


BIT = Circuit(2, _product, (1,), offset=True)
"""Validity circuit of a bit: x·x - x = 0."""


def whole_number(limit: int) -> Circuit:
    """Validity circuit of an integer from 0 to the limit.

    All bits but the last have powers of two as weights; the last makes the weights sum to the
    limit.

    >>> whole_number(10).weights, whole_number(10).encode(9)
    ((1, 2, 4, 3), [0, 1, 1, 1])
    """
    bits = limit.bit_length()
    require(limit >= 1 and bits <= MOST_BITS, "limit", limit, f"from 1 to 2^{MOST_BITS} - 1")
    lower = [1 << place for place in range(bits - 1)]
    return Circuit(1, _zero_or_one, (*lower, limit - sum(lower)), offset=False)
