"""Prio3Histogram: completeness, soundness against forgers, binding to its joint randomness."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("Crypto", reason="verified sums need pycryptodome: pip install '.[verified]'")

from tacit.aggregation.verified import TableProofs
from tacit.errors import Rejected, TacitError
from tacit.vdaf import (
    HISTOGRAM_RANDOM_SIZE,
    PUBLIC_SIZE,
    Prio3Histogram,
    prio3_histogram,
)
from tacit.vdaf.field import FIELD128

CONTEXT = bytes(range(32))
SHAPES = [(1, 1), (4, 2), (5, 2), (7, 7), (16, 4), (33, 5), (160, 12)]
SHAPE = pytest.mark.parametrize(("length", "chunk"), SHAPES, ids=str)


def verdict(
    prio3: Prio3Histogram, public: bytes, shares: tuple[bytes, bytes], nonce: bytes, key: bytes
) -> list[int] | None:
    """The counted buckets of a report; None if it is found invalid, at whichever step."""
    try:
        asked = prio3.question(key, CONTEXT, nonce)
        both = [
            prio3.verify_init(asked, CONTEXT, nonce, role, public, shares[role]) for role in (0, 1)
        ]
        message = prio3.verifier_shares_to_message(CONTEXT, both[0].share, both[1].share)
        return prio3.unshard(*(prio3.verify_next(one, message) for one in both))
    except Rejected:
        return None


@SHAPE
def test_every_bucket_verifies_and_counts(length: int, chunk: int) -> None:
    rng, prio3 = random.Random(length), prio3_histogram(length, chunk)
    for bucket in {0, length // 2, length - 1}:
        nonce, key = rng.randbytes(16), rng.randbytes(32)
        public, shares = prio3.shard(CONTEXT, bucket, nonce, rng.randbytes(HISTOGRAM_RANDOM_SIZE))
        assert [len(share) for share in shares] == [prio3.share_size(role) for role in (0, 1)]
        counted = verdict(prio3, public, shares, nonce, key)
        assert counted == [int(place == bucket) for place in range(length)]


def test_invalid_buckets_have_no_shares() -> None:
    for bucket in (-1, 4):
        with pytest.raises(TacitError, match="must be from 0 to 3"):
            prio3_histogram(4).shard(CONTEXT, bucket, bytes(16), bytes(HISTOGRAM_RANDOM_SIZE))


@SHAPE
def test_one_flipped_bit_anywhere_is_rejected(length: int, chunk: int) -> None:
    """In a leader's or a helper's share, blinds included, or in the public share."""
    rng, prio3 = random.Random(1), prio3_histogram(length, chunk)
    for _ in range(12):
        nonce, key = rng.randbytes(16), rng.randbytes(32)
        drawn = rng.randbytes(HISTOGRAM_RANDOM_SIZE)
        public, shares = prio3.shard(CONTEXT, rng.randrange(length), nonce, drawn)
        parts = [bytearray(public), *map(bytearray, shares)]
        part = rng.choice(parts)
        part[rng.randrange(len(part))] ^= 1 << rng.randrange(8)
        first, *rest = map(bytes, parts)
        assert verdict(prio3, first, (rest[0], rest[1]), nonce, key) is None


@pytest.mark.parametrize("kind", ["two-buckets", "none", "twice", "split", "negative"])
@SHAPE
def test_vectors_that_are_not_one_hot_are_rejected_with_an_honest_proof(
    length: int, chunk: int, kind: str
) -> None:
    """The client proves a vector of its own with correct joint randomness: false positives are
    about 1e-36 in Field128.
    """
    modulus, rng = FIELD128.modulus, random.Random(2)
    elements = [0] * length
    if kind == "twice":
        elements[0] = 2
    elif kind != "none" and length > 1:
        elements[0], elements[-1] = {
            "two-buckets": (1, 1),
            "split": ((modulus + 1) // 2, (modulus + 1) // 2),
            "negative": (2, modulus - 1),
        }[kind]
    prio3 = prio3_histogram(length, chunk)

    def encode(_: int) -> list[int]:
        return elements

    forger = Prio3Histogram(prio3.circuit)
    object.__setattr__(forger, "circuit", _Encoding(prio3.circuit, encode))
    nonce, key = rng.randbytes(16), rng.randbytes(32)
    drawn = rng.randbytes(HISTOGRAM_RANDOM_SIZE)
    public, shares = forger.shard(CONTEXT, 0, nonce, drawn)
    assert verdict(prio3, public, shares, nonce, key) is None


class _Encoding:
    """A circuit whose prover encodes measurements as it likes."""

    def __init__(self, circuit: object, encode: object) -> None:
        self._circuit, self.encode = circuit, encode

    def __getattr__(self, name: str) -> object:
        return getattr(self._circuit, name)


def test_a_report_does_not_verify_under_another_nonce_or_context() -> None:
    """Joint randomness binds measurement shares to nonce and context."""
    rng, prio3 = random.Random(3), prio3_histogram(8)
    nonce, key = rng.randbytes(16), rng.randbytes(32)
    public, shares = prio3.shard(CONTEXT, 3, nonce, rng.randbytes(HISTOGRAM_RANDOM_SIZE))
    assert verdict(prio3, public, shares, nonce, rng.randbytes(32)) is not None
    assert verdict(prio3, public, shares, rng.randbytes(16), key) is None
    elsewhere = prio3.shard(b"elsewhere", 3, nonce, rng.randbytes(HISTOGRAM_RANDOM_SIZE))
    assert verdict(prio3, elsewhere[0], elsewhere[1], nonce, key) is None


def test_an_aggregator_rejects_foreign_joint_randomness() -> None:
    prio3, nonce = prio3_histogram(4), bytes(16)
    public, shares = prio3.shard(CONTEXT, 1, nonce, bytes(HISTOGRAM_RANDOM_SIZE))
    asked = prio3.question(bytes(32), CONTEXT, nonce)
    own = prio3.verify_init(asked, CONTEXT, nonce, 0, public, shares[0])
    assert prio3.verify_next(own, own.seed) == own.outputs
    with pytest.raises(Rejected, match="joint randomness of the histogram report differs"):
        prio3.verify_next(own, bytes(len(own.seed)))


def test_proofs_of_tables_are_queried_under_the_tag_of_their_report() -> None:
    """The query is another one for every report: nobody can prove for one that was seen before."""
    prio3, rng = prio3_histogram(4), random.Random(5)
    tag, key = rng.randbytes(16), rng.randbytes(32)
    proofs = TableProofs(4, CONTEXT)
    for role, part in enumerate(proofs.shard([0, 1, 0, 0], tag, rng.randbytes)):
        asked = prio3.question(key, CONTEXT, tag)
        about = (asked, CONTEXT, tag, role, part[:PUBLIC_SIZE], part[PUBLIC_SIZE:])
        made = prio3.verify_init(*about)
        assert proofs.prepare(key, role, tag, part) == (made.outputs, made.share + made.seed)


@pytest.mark.parametrize("wrong", ["public share", "input share"])
def test_shares_of_another_size_are_rejected(wrong: str) -> None:
    prio3 = prio3_histogram(4)
    public, shares = prio3.shard(CONTEXT, 1, bytes(16), bytes(HISTOGRAM_RANDOM_SIZE))
    asked = prio3.question(bytes(32), CONTEXT, bytes(16))
    cut = (public[:-1], shares[0]) if wrong == "public share" else (public, shares[0][:-1])
    with pytest.raises(Rejected, match=wrong):
        prio3.verify_init(asked, CONTEXT, bytes(16), 0, *cut)


def test_chunk_and_vector_lengths_are_validated() -> None:
    for length, chunk in ((0, None), (4, 5), (4, 0)):
        with pytest.raises(TacitError, match="must be from 1"):
            prio3_histogram(length, chunk)
