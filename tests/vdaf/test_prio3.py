"""Prio3Count and Prio3Sum: completeness, soundness against forgers, zero knowledge."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from itertools import combinations
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("Crypto", reason="verified sums need pycryptodome: pip install '.[verified]'")

from tacit.errors import Rejected, TacitError
from tacit.vdaf import KEY_SIZE, MODULUS, NONCE_SIZE, RANDOM_SIZE, Prio3, prio3_count, prio3_sum
from tacit.vdaf.field import dot, nodes, pack, roots, unpack
from tacit.vdaf.proofs import BIT, Circuit, whole_number

CONTEXT = bytes(range(32))
KINDS = [prio3_count(), prio3_sum(1), prio3_sum(6), prio3_sum(1023), prio3_sum(2**63 - 1)]
KIND = pytest.mark.parametrize("prio3", KINDS, ids=lambda prio3: str(prio3.circuit.limit))
CIRCUITS = [BIT, *(whole_number(limit) for limit in (1, 2, 3, 4, 10, 127, 128, 1023))]


def verdict(prio3: Prio3, shares: tuple[bytes, bytes], key: bytes, nonce: bytes) -> int | None:
    """What a report counts; None if it is found invalid, wherever."""
    try:
        asked = prio3.question(key, CONTEXT, nonce)
        first, second = (prio3.verify_init(asked, CONTEXT, role, shares[role]) for role in (0, 1))
        message = prio3.verifier_shares_to_message(first.share, second.share)
        outputs = prio3.verify_next(first, message), prio3.verify_next(second, message)
        return prio3.unshard(*outputs)
    except Rejected:
        return None


def test_shares_use_the_specified_number_of_random_bytes() -> None:
    """With fewer, a proof would be made from less randomness, or from none."""
    for size in (0, RANDOM_SIZE - 1, RANDOM_SIZE + 1):
        with pytest.raises(TacitError, match=f"number of random bytes is {size}: must be"):
            prio3_count().shard(CONTEXT, 1, bytes(16), bytes(size))


def forged(circuit: Circuit, elements: list[int], rng: random.Random) -> list[int]:
    """Elements that are no bits, with the proof that an honest prover would make of them."""
    seeds = [rng.randrange(MODULUS) for _ in range(circuit.wires)]
    return [*elements, *circuit.prove(elements, seeds)]


def found_valid(circuit: Circuit, report: list[int], rng: random.Random) -> bool:
    """A verdict under random questions on random additive shares."""
    asked = circuit.question([rng.randrange(MODULUS) for _ in range(circuit.asked)])
    own = [rng.randrange(MODULUS) for _ in report]
    other = [(whole - part) % MODULUS for whole, part in zip(report, own, strict=True)]
    n = circuit.calls
    both = [circuit.query(share[:n], share[n:], asked) for share in (own, other)]
    return circuit.decide([(a + b) % MODULUS for a, b in zip(*both, strict=True)])


@KIND
@settings(max_examples=40, deadline=None)
@given(data=st.data(), rand=st.binary(min_size=RANDOM_SIZE, max_size=RANDOM_SIZE))
def test_a_number_in_range_verifies_and_counts(
    prio3: Prio3, data: st.DataObject, rand: bytes
) -> None:
    number = data.draw(st.integers(0, prio3.circuit.limit))
    nonce, key = rand[:NONCE_SIZE], rand[-KEY_SIZE:]
    shares = prio3.shard(CONTEXT, number, nonce, rand)
    assert [len(share) for share in shares] == [prio3.share_size(role) for role in (0, 1)]
    assert verdict(prio3, shares, key, nonce) == number


@KIND
def test_numbers_out_of_range_have_no_shares(prio3: Prio3) -> None:
    for number in (-1, prio3.circuit.limit + 1):
        with pytest.raises(TacitError, match=f"must be from 0 to {prio3.circuit.limit}"):
            prio3.shard(CONTEXT, number, bytes(16), bytes(RANDOM_SIZE))


@KIND
def test_one_flipped_bit_in_either_share_is_rejected(prio3: Prio3) -> None:
    rng = random.Random(1)
    for _ in range(60):
        nonce, key, rand = rng.randbytes(16), rng.randbytes(32), rng.randbytes(64)
        shares = list(prio3.shard(CONTEXT, rng.randint(0, prio3.circuit.limit), nonce, rand))
        role = rng.randrange(2)
        share = bytearray(shares[role])
        share[rng.randrange(len(share))] ^= 1 << rng.randrange(8)
        shares[role] = bytes(share)
        assert verdict(prio3, (shares[0], shares[1]), key, nonce) is None


@KIND
def test_valid_reports_verify_under_any_key_but_not_across_contexts(
    prio3: Prio3,
) -> None:
    """Validity does not depend on the question; a share of another context is another share."""
    shares = prio3.shard(CONTEXT, 1, bytes(16), os.urandom(RANDOM_SIZE))
    assert verdict(prio3, shares, os.urandom(32), os.urandom(16)) == 1
    elsewhere = prio3.shard(b"elsewhere", 1, bytes(16), os.urandom(RANDOM_SIZE))
    assert verdict(prio3, elsewhere, os.urandom(32), os.urandom(16)) is None


@pytest.mark.parametrize("circuit", CIRCUITS, ids=lambda circuit: str(circuit.limit))
def test_forged_elements_are_rejected_with_any_proof(circuit: Circuit) -> None:
    """Elements that are not 0 or 1, alone, all, or such that their weighted sum is in range; with
    the prover's own proof, and with the proof of a valid report in its place.
    """
    rng = random.Random(2)
    n, valid = circuit.calls, circuit.encode(circuit.limit // 2)
    wrong = [2, MODULUS - 1, 1 << 40, rng.randrange(2, MODULUS)]
    cases = [[*valid[:at], bad, *valid[at + 1 :]] for at in range(n) for bad in wrong]
    cases += [[bad] * n for bad in wrong]
    if n > 1:
        cases.append([2, MODULUS - 1, *[0] * (n - 2)])  # counts 2 - 2 = 0
    honest = forged(circuit, valid, rng)
    assert found_valid(circuit, honest, rng)
    for elements in cases:
        report = forged(circuit, elements, rng)
        assert not found_valid(circuit, report, rng)
        assert not found_valid(circuit, elements + honest[n:], rng)
        claimed = list(report)  # the outputs of the calls are claimed to be those of a valid one
        for call in range(1, n + 1):
            place = n + circuit.wires + 2 * call
            claimed[place] = elements[0] if circuit.offset else 0
        assert not found_valid(circuit, claimed, rng)


@pytest.mark.parametrize("circuit", CIRCUITS, ids=lambda circuit: str(circuit.limit))
def test_every_measurement_has_a_unique_bit_encoding(circuit: Circuit) -> None:
    for measurement in {0, 1, circuit.limit // 2, circuit.limit - 1, circuit.limit}:
        bits = circuit.encode(measurement)
        assert set(bits) <= {0, 1}
        assert circuit.truncate(bits) == measurement
    assert sum(circuit.weights) == circuit.limit


@pytest.mark.parametrize("circuit", CIRCUITS, ids=lambda circuit: str(circuit.limit))
def test_a_verifier_share_is_independent_of_the_measurement(circuit: Circuit) -> None:
    """Exactly: for every other measurement there are other seeds of the prover, one for each, under
    which both verifier shares are the same. So is their distribution, the seeds being uniform.
    """
    rng = random.Random(3)
    asked = circuit.question([rng.randrange(MODULUS) for _ in range(circuit.asked)])
    n, first = circuit.calls, circuit.encode(circuit.limit)
    seeds = [rng.randrange(MODULUS) for _ in range(circuit.wires)]
    helper = [rng.randrange(MODULUS) for _ in range(n + circuit.proof_size)]
    told = {}
    for measurement in (circuit.limit, 0, circuit.limit // 2):
        bits = circuit.encode(measurement)
        moved = dot(asked.wire[1:], [(a - b) % MODULUS for a, b in zip(first, bits, strict=True)])
        shift = moved * pow(asked.wire[0], -1, MODULUS)
        own = [(seed + shift) % MODULUS for seed in seeds]
        whole = [*bits, *circuit.prove(bits, own)]
        leader = [(a - b) % MODULUS for a, b in zip(whole, helper, strict=True)]
        told[measurement] = circuit.query(leader[:n], leader[n:], asked)
    assert len({tuple(share) for share in told.values()}) == 1


def test_two_queries_of_one_proof_reveal_a_bit() -> None:
    """Why a report is verified once: the wire of a bit is a line through its seed and the bit."""
    rng = random.Random(4)
    for bit in (0, 1):
        report = forged(BIT, [bit], rng)
        points = [rng.randrange(MODULUS) for _ in range(2)]
        values = [BIT.query(report[:1], report[1:], BIT.question([at]))[1] for at in points]
        slope = (values[1] - values[0]) * pow(points[1] - points[0], -1, MODULUS)
        assert (values[0] + slope * (-1 - points[0])) % MODULUS == bit


@pytest.mark.parametrize("circuit", CIRCUITS, ids=lambda circuit: str(circuit.limit))
def test_a_root_of_unity_is_no_query_point(circuit: Circuit) -> None:
    factors = [1] * (circuit.asked - 1)
    for at in roots(circuit.width):
        with pytest.raises(Rejected, match="root of unity"):
            circuit.question([*factors, at])
    for at in roots(2 * circuit.width)[1::2]:  # between them it is, and is answered rightly
        report = forged(circuit, circuit.encode(circuit.limit), random.Random(5))
        asked, n = circuit.question([*factors, at]), circuit.calls
        assert circuit.decide(circuit.query(report[:n], report[n:], asked))


@settings(max_examples=60, deadline=None)
@given(
    coefficients=st.lists(st.integers(0, MODULUS - 1), min_size=1, max_size=7),
    at=st.integers(0, MODULUS - 1),
)
def test_interpolation_evaluates_the_polynomial_anywhere(coefficients: list[int], at: int) -> None:
    def value(point: int) -> int:
        return sum(c * pow(point, power, MODULUS) for power, c in enumerate(coefficients)) % MODULUS

    here = nodes(8, 7)
    values = [value(point) for point in here.points]
    for point in (at, *here.points, roots(8)[7]):
        assert dot(here.lagrange(point), values) == value(point)


@pytest.mark.parametrize("count", [1, 2, 8, 32])
def test_all_roots_of_unity_are_generated(count: int) -> None:
    found = roots(count)
    assert len(set(found)) == count
    assert all(pow(root, count, MODULUS) == 1 for root in found)
    assert all((a - b) % MODULUS for a, b in combinations(found, 2))
    assert prod(found) % MODULUS in (1, MODULUS - 1)


def test_the_modulus_is_a_prime() -> None:
    """Pratt's certificate: 7 is of full order, and the factors of that order are prime."""
    factors = (2, 3, 5, 17, 257, 65537)
    assert prod(factors[1:]) * 2**32 == MODULUS - 1
    assert pow(7, MODULUS - 1, MODULUS) == 1
    assert all(pow(7, (MODULUS - 1) // factor, MODULUS) != 1 for factor in factors)


@given(st.lists(st.integers(0, MODULUS - 1), max_size=5))
def test_vectors_have_one_encoding(numbers: list[int]) -> None:
    data = pack(numbers)
    assert unpack(data, len(numbers), "a vector") == numbers
    with pytest.raises(Rejected, match="bytes"):
        unpack(data + b"\x00", len(numbers), "a vector")
    with pytest.raises(Rejected, match="not below the modulus"):
        unpack(data + MODULUS.to_bytes(8, "little"), len(numbers) + 1, "a vector")


@KIND
def test_invalid_values_are_rejected_at_their_stage(prio3: Prio3) -> None:
    asked = prio3.question(bytes(32), CONTEXT, bytes(16))
    shares = prio3.shard(CONTEXT, 1, bytes(16), bytes(RANDOM_SIZE))
    for role in (0, 1):
        for share in (shares[role][:-1], shares[role] + b"\x00", b""):
            with pytest.raises(Rejected, match="input share is"):
                prio3.verify_init(asked, CONTEXT, role, share)
    with pytest.raises(Rejected, match="not below the modulus"):
        prio3.verify_init(asked, CONTEXT, 0, b"\xff" * len(shares[0]))
    first, second = (prio3.verify_init(asked, CONTEXT, role, shares[role]) for role in (0, 1))
    for share in (first.share[:-8], b"\xff" * len(first.share)):
        with pytest.raises(Rejected, match="a verifier share"):
            prio3.verifier_shares_to_message(share, second.share)
    with pytest.raises(Rejected, match="range proof"):
        prio3.verifier_shares_to_message(first.share, first.share)
    with pytest.raises(Rejected, match="is not empty"):
        prio3.verify_next(first, b"something")
    with pytest.raises(TacitError, match=r"must be (16|64)"):
        prio3.shard(CONTEXT, 1, bytes(15), bytes(RANDOM_SIZE))


@pytest.mark.parametrize("limit", [0, -3, 2**63])
def test_limits_beyond_the_soundness_proof_are_rejected(limit: int) -> None:
    with pytest.raises(TacitError, match="limit is"):
        prio3_sum(limit)


def test_without_pycryptodome_the_extra_is_named() -> None:
    """Before anything is drawn; and all else of the intermediaries runs without it."""
    program = (
        "import sys; sys.modules['Crypto'] = None\n"
        "from tacit.aggregation import run_two_servers\n"
        "assert run_two_servers([1, 2], 1009, 2).numbers == (3,)\n"
        "from tacit.vdaf import prio3_count\n"
        "try: prio3_count()\n"
        "except ValueError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert "pip install 'tacit[device]'" in done.stdout
