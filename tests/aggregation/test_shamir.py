"""Shamir's secret sharing: reconstruction at the threshold, uniform shares below it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.aggregation import Rejected
from tacit.aggregation.interface import uniform
from tacit.aggregation.shamir import PRIME, combine, is_share, lagrange, split, split_all


def test_the_field_is_prime() -> None:
    # Miller-Rabin with the first 40 primes as bases.
    bases = [p for p in range(2, 174) if all(p % q for q in range(2, p))]
    odd, twos = PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in bases:
        x = pow(base, odd, PRIME)
        assert x in (1, PRIME - 1) or any(pow(x, 2**i, PRIME) == PRIME - 1 for i in range(1, twos))


@settings(deadline=None, max_examples=50)
@given(st.binary(min_size=32, max_size=32), st.integers(1, 33), st.data())
def test_any_threshold_of_shares_reconstructs_the_secret(
    secret: bytes, threshold: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(threshold, 65))
    shares = split(secret, threshold, count)
    assert len(shares) == count
    chosen = tuple(sorted(data.draw(st.permutations(range(1, count + 1)))[:threshold]))
    assert combine(chosen, [shares[place - 1] for place in chosen]) == secret


@settings(deadline=None, max_examples=20)
@given(
    st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=3),
    st.integers(1, 33),
    st.integers(0, 40),
)
def test_splitting_several_secrets_equals_splitting_each_alone(
    secrets: list[bytes], threshold: int, more: int
) -> None:
    """All coefficients are the largest that there are."""
    count = threshold + more
    largest = (PRIME - 1).to_bytes(41, "big") * (threshold - 1)
    shares = split_all(secrets, threshold, count, lambda size: largest[:size])
    for lane, secret in enumerate(secrets):
        for position in range(1, count + 1):
            powers = sum(position**power for power in range(1, threshold))
            value = (int.from_bytes(secret, "big") + (PRIME - 1) * powers) % PRIME
            assert int.from_bytes(shares[position - 1][lane], "big") == value


def weights_of(positions: tuple[int, ...]) -> list[int]:
    weights, divisor = lagrange(positions)
    return [weight * pow(divisor, -1, PRIME) % PRIME for weight in weights]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 150), min_size=1, max_size=80, unique=True))
def test_lagrange_weights_match_their_definition(positions: list[int]) -> None:
    for own, weight in zip(positions, weights_of(tuple(positions)), strict=True):
        expected = 1
        for other in positions:
            if other != own:
                expected = expected * other * pow(other - own, -1, PRIME) % PRIME
        assert weight == expected


def gives(positions: tuple[int, ...], shares: list[bytes], secret: bytes) -> bool:
    """Whether these shares, were they enough, would be the secret's."""
    pairs = zip(weights_of(positions), shares, strict=True)
    found = sum(weight * int.from_bytes(share, "big") for weight, share in pairs) % PRIME
    return found == int.from_bytes(secret, "big")


@settings(deadline=None, max_examples=20)
@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32), st.integers(2, 12))
def test_fewer_shares_are_consistent_with_every_secret(
    secret: bytes, other: bytes, threshold: int
) -> None:
    # For any other secret there is exactly one last share that completes the given threshold - 1
    # shares to it.
    shares = split(secret, threshold, threshold)
    positions = tuple(range(1, threshold + 1))
    weights = weights_of(positions)
    known = sum(
        w * int.from_bytes(s, "big") for w, s in zip(weights[:-1], shares[:-1], strict=True)
    )
    assert not gives(positions[:-1], shares[:-1], secret)
    last = (int.from_bytes(other, "big") - known) * pow(weights[-1], -1, PRIME) % PRIME
    assert combine(positions, [*shares[:-1], last.to_bytes(33, "big")]) == other


def test_inconsistent_shares_are_rejected() -> None:
    with pytest.raises(Rejected, match="are inconsistent"):
        combine((1,), [(1 << 256).to_bytes(33, "big")])


def test_only_canonical_field_elements_are_shares() -> None:
    assert is_share((PRIME - 1).to_bytes(33, "big"))
    assert not is_share(PRIME.to_bytes(33, "big"))
    assert not is_share(bytes(32))


def test_field_elements_are_drawn_by_rejection_sampling() -> None:
    # For a bound of 3 a word has 9 bytes; the largest, 2^72 - 1, lies above the largest multiple of
    # 3 and is skipped.
    drawn = iter([b"\xff" * 9 + bytes(9), bytes(8) + b"\x05"])
    assert uniform(3, 2, lambda _: next(drawn)) == [0, 2]


def test_uniform_numbers_are_uniform(
    assert_uniform: Callable[[Iterable[object], int], None],
) -> None:
    assert_uniform(uniform(13, 8000), 13)
