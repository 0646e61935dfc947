"""Proofs on shared data that numbers are in range (VDAF draft, section 7.3): for a bit, and for a
sum of weighted bits.

A circuit calls one gadget of degree two on every bit. The inputs of its calls, with a random seed
before them, are the values of a wire polynomial at the p-th roots of unity; the proof is the seeds
and the gadget's polynomial, by its first 2p - 1 values at the 2p-th roots. A verifier compares
both at a random point t. All but `decide` is linear, so that it works on shares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from tacit.errors import Refusal, TacitError
from tacit.vdaf.field import MODULUS, dot, nodes, roots

MOST_BITS = 63  # a limit is below 2^63, so that sums of weights stay below the modulus


@dataclass(frozen=True)
class ProofQuery:
    """What a verifier asks of a proof: how it adds up the outputs of the calls, and what each value
    of a wire or of the gadget's polynomial counts at t.
    """

    outputs: Sequence[int]
    wire: Sequence[int]
    gadget: Sequence[int]


@dataclass(frozen=True)
class Circuit:
    """What is proved of a measurement: that each of its `calls` elements is 0 or 1.

    `wires` is how many inputs a call of the gadget has, `gadget` what it makes of them, `weights`
    what each element counts in the aggregate. `offset` says whether the element itself is taken off
    the output: x² - x in one gadget, or x² in one and x outside of it.
    """

    wires: int
    gadget: Callable[..., int]
    weights: tuple[int, ...]
    offset: bool

    @property
    def calls(self) -> int:
        """Elements of a measurement, each of which is the input of one call."""
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
        """Values by which the gadget's polynomial, of degree 2(p - 1), is given."""
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
        """Random elements that a question is made of."""
        return 1 + (self.calls if self.calls > 1 else 0)

    def encode(self, measurement: int) -> list[int]:
        """The measurement as bits: those of the lower weights as they are, after the last one is
        taken off if it must be.
        """
        if not 0 <= measurement <= self.limit:
            raise TacitError(f"the measurement is {measurement}; it must be 0 to {self.limit}")
        last = measurement > self.limit - self.weights[-1]
        rest = measurement - self.weights[-1] * last
        return [rest >> place & 1 for place in range(self.calls - 1)] + [int(last)]

    def truncate(self, bits: Sequence[int]) -> int:
        """What (a share of) an encoded measurement counts in the aggregate."""
        return dot(self.weights, bits)

    @cached_property
    def _between(self) -> list[list[int]]:
        """What the values of a wire polynomial count at those 2p-th roots that are no p-th ones."""
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

    def question(self, drawn: Sequence[int]) -> ProofQuery:
        """What is asked, of random elements; refused if t is one of the p-th roots, where an answer
        would say more than it must.
        """
        *factors, at = drawn
        if pow(at, self.width, MODULUS) == 1:
            raise Refusal("the point at which this report would be verified is a root of unity")
        return ProofQuery(
            factors or [1],
            nodes(self.width, self.width).lagrange(at)[: 1 + self.calls],
            nodes(2 * self.width, self.values).lagrange(at),
        )

    def query(self, bits: Sequence[int], proof: Sequence[int], asked: ProofQuery) -> list[int]:
        """A verifier share: the output of the circuit, the wires and the gadget's polynomial at
        t.
        """
        seeds, gadget = proof[: self.wires], proof[self.wires :]
        output = dot(asked.outputs, gadget[2 : 2 * self.calls + 1 : 2])
        if self.offset:
            output = (output - bits[0]) % MODULUS
        wires = [dot(asked.wire, [seed, *bits]) for seed in seeds]
        return [output, *wires, dot(asked.gadget, gadget)]

    def decide(self, verifier: Sequence[int]) -> bool:
        """Whether the sum of both verifier shares is that of a valid proof."""
        output, *wires, gadget = verifier
        return output == 0 and self.gadget(*wires) == gadget


def _product(a: int, b: int) -> int:
    return a * b % MODULUS


def _zero_or_one(a: int) -> int:
    return a * (a - 1) % MODULUS


BIT = Circuit(2, _product, (1,), offset=True)
"""A measurement is 0 or 1: x·x - x = 0."""


def whole_number(limit: int) -> Circuit:
    """A measurement is a whole number from 0 to the limit: bits, all but the last weighted with
    powers of two, and the last so that all weights add up to the limit.

    >>> whole_number(10).weights, whole_number(10).encode(9)
    ((1, 2, 4, 3), [0, 1, 1, 1])
    """
    bits = limit.bit_length()
    if limit < 1 or bits > MOST_BITS:
        raise TacitError(f"the limit is {limit}; it must be from 1 to 2^{MOST_BITS} - 1")
    lower = [1 << place for place in range(bits - 1)]
    return Circuit(1, _zero_or_one, (*lower, limit - sum(lower)), offset=False)
