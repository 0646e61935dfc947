"""Masks: expansion of a 32-byte seed to numbers uniform modulo any m, and sums of masks.

The ChaCha20 keystream (key: the seed, counter and nonce zero) is read as words of w bytes, w the
least multiple of 8 with m <= 2^(8w). Words at or above the largest multiple of m are skipped, the
others reduced modulo m: exactly uniform. It uses plain integers, so a client needs no NumPy.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from operator import add, sub

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

SEED_SIZE = 32

_NONCE = bytes(16)


def expand(seed: bytes, modulus: int, count: int) -> list[int]:
    """The first `count` numbers of the seed's mask.

    >>> expand(bytes(32), 10, 5)
    [0, 8, 7, 0, 2]
    """
    return [word % modulus for word in _words(seed, modulus, count)]


def word_size(modulus: int) -> int:
    """Bytes of keystream per candidate word.

    >>> word_size(1 << 64), word_size((1 << 64) + 1)
    (8, 16)
    """
    return 8 * max(1, ((modulus - 1).bit_length() + 63) // 64)


def total(added: Iterable[bytes], taken: Iterable[bytes], modulus: int, count: int) -> list[int]:
    """The masks of the `added` seeds minus those of the `taken` ones, modulo m."""
    sums = [0] * count
    for sign, seeds in ((add, added), (sub, taken)):
        for seed in seeds:
            sums = list(map(sign, sums, _words(seed, modulus, count)))
    return [number % modulus for number in sums]


def _words(seed: bytes, modulus: int, count: int) -> list[int]:
    """The first `count` accepted words of the keystream, before reduction."""
    size, limit = _shape(modulus)
    stream = Cipher(algorithms.ChaCha20(seed, _NONCE), None).encryptor()
    words: list[int] = []
    while len(words) < count:
        drawn = _integers(stream.update(bytes(size * (count - len(words)))), size)
        words += [word for word in drawn if word < limit]
    return words


@lru_cache(maxsize=64)
def _shape(modulus: int) -> tuple[int, int]:
    """Bytes of a word, and the bound at and above which words are skipped."""
    size = word_size(modulus)
    return size, (1 << 8 * size) - (1 << 8 * size) % modulus


def _integers(data: bytes, size: int) -> Sequence[int]:
    """`data` as little-endian integers of `size` bytes."""
    if size == 8:
        return struct.unpack(f"<{len(data) // 8}Q", data)
    return [
        int.from_bytes(data[start : start + size], "little") for start in range(0, len(data), size)
    ]
