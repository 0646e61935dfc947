"""Masks are uniform modulo any m, and the optimised expansion equals the plain one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.aggregation import masks
from tacit.aggregation.masks import expand, total

MODULI = [2, 3, 10, 257, 2**32 + 15, 2**62, 2**63 + 1, 2**64, 2**64 + 13, 2**100 + 7]


class Keystream:
    """In place of a cipher: these words and no more, however they are asked for."""

    def __init__(self, *words: int) -> None:
        self.data = b"".join(word.to_bytes(8, "little") for word in words)

    def __call__(self, *_: object) -> Keystream:
        return self

    def encryptor(self) -> Keystream:
        return self

    def update(self, asked: bytes) -> bytes:
        given, self.data = self.data[: len(asked)], self.data[len(asked) :]
        assert asked, "more is asked for though enough is there"
        assert len(given) == len(asked), "the keystream is used up"
        return given


def test_masks_skip_exactly_the_words_that_would_bias_the_modulus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for modulus in (3, 2**62 - 1, 2**63 + 1):
        limit = 2**64 // modulus * modulus
        words = (limit, 5, 2**64 - 1, limit - 1, 0)
        monkeypatch.setattr(masks, "Cipher", Keystream(*words))
        assert expand(bytes(32), modulus, 3) == [5 % modulus, modulus - 1, 0]


@pytest.mark.parametrize("modulus", MODULI)
def test_masks_are_uniform(
    modulus: int, assert_uniform: Callable[[Iterable[object], int], None]
) -> None:
    cells = min(modulus, 16)
    numbers = expand(os.urandom(32), modulus, 8000)
    if modulus > 16:
        edge = modulus - modulus % cells
        numbers = [number * cells // edge for number in numbers if number < edge]
    assert_uniform(numbers, cells)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.binary(min_size=32, max_size=32), max_size=4),
    st.lists(st.binary(min_size=32, max_size=32), max_size=4),
    st.integers(2, 2**70) | st.sampled_from(MODULI),
    st.integers(1, 40),
)
def test_totals_are_sums_of_masks(
    added: list[bytes], taken: list[bytes], modulus: int, count: int
) -> None:
    expected = [0] * count
    for sign, seeds in ((1, added), (-1, taken)):
        for seed in seeds:
            expected = [
                a + sign * b for a, b in zip(expected, expand(seed, modulus, count), strict=True)
            ]
    assert total(added, taken, modulus, count) == [number % modulus for number in expected]


@pytest.mark.parametrize("modulus", [3, 2**63 + 1, 2**65 + 1])
def test_a_mask_is_a_prefix_of_a_longer_one(modulus: int) -> None:
    seed = os.urandom(32)
    assert expand(seed, modulus, 50)[:7] == expand(seed, modulus, 7)
