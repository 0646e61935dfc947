"""Masks: from a 32-byte seed to numbers that are uniform modulo any m, and sums of such masks.

The keystream of ChaCha20 (key: the seed, counter and nonce zero) is read as words of w bytes, w the
least multiple of 8 with m <= 2^(8w). A word at or above the largest multiple of m is skipped, every
other is reduced modulo m: exactly uniform.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

SEED_SIZE = 32

_NONCE = bytes(16)
_BLOCK = bytes(64)


def expand(seed: bytes, modulus: int, count: int) -> list[int]:
    """The first `count` numbers of the seed's mask.

    >>> expand(bytes(32), 10, 5)
    [0, 8, 7, 0, 2]
    """
    size = word_size(modulus)
    limit = (1 << 8 * size) - (1 << 8 * size) % modulus
    stream = Cipher(algorithms.ChaCha20(seed, _NONCE), None).encryptor()
    numbers: list[int] = []
    left = b""
    while True:
        left += stream.update(_BLOCK * max(1, (count - len(numbers)) * size // 64))
        end = len(left) - len(left) % size
        for start in range(0, end, size):
            word = int.from_bytes(left[start : start + size], "little")
            if word < limit:
                numbers.append(word % modulus)
                if len(numbers) == count:
                    return numbers
        left = left[end:]


def word_size(modulus: int) -> int:
    """Bytes of keystream per candidate word.

    >>> word_size(1 << 64), word_size((1 << 64) + 1)
    (8, 16)
    """
    return 8 * max(1, ((modulus - 1).bit_length() + 63) // 64)


def total(added: Iterable[bytes], taken: Iterable[bytes], modulus: int, count: int) -> list[int]:
    """The masks of the `added` seeds minus those of the `taken` ones, modulo m."""
    if count >= 8 and modulus <= 1 << 62:
        return _total_of_arrays(added, taken, modulus, count)
    sums = [0] * count
    for sign, seeds in ((1, added), (-1, taken)):
        for seed in seeds:
            for place, number in enumerate(expand(seed, modulus, count)):
                sums[place] += sign * number
    return [number % modulus for number in sums]


def _total_of_arrays(
    added: Iterable[bytes], taken: Iterable[bytes], modulus: int, count: int
) -> list[int]:
    sums = np.zeros(count, dtype=np.uint64)
    m = np.uint64(modulus)
    for mask in _arrays(added, modulus, count):
        sums = (sums + mask) % m
    for mask in _arrays(taken, modulus, count):
        sums = (sums + (m - mask)) % m
    return [int(number) for number in sums]


def _arrays(seeds: Iterable[bytes], modulus: int, count: int) -> Iterator[NDArray[np.uint64]]:
    """`expand` for many numbers at once, modulus below 2^63."""
    highest = np.uint64((1 << 64) - (1 << 64) % modulus - 1)
    for seed in seeds:
        stream = Cipher(algorithms.ChaCha20(seed, _NONCE), None).encryptor()
        words = np.empty(0, dtype=np.uint64)
        while len(words) < count:
            fresh = np.frombuffer(stream.update(bytes(8 * (count - len(words) + 8))), dtype="<u8")
            words = np.concatenate((words, fresh[fresh <= highest]))
        yield words[:count] % np.uint64(modulus)
