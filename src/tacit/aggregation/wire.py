"""Wire format: one header for all messages, and parsers that accept only canonical encodings.

A message is `header | body`; the header is the magic `ta`, the version, the kind of message and the
round's identity. Integers are big-endian. A body has exactly the length that its kind and its round
prescribe; anything else raises `Rejected`. The layouts of all bodies are in
docs/reference/wire-formats/.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from fractions import Fraction
from typing import Any

from tacit.aggregation.interface import IDENTITY_SIZE, Rejected, expect, expect_size
from tacit.errors import TacitError, integer, require

MAGIC = b"ta"
VERSION = 2
HEADER_SIZE = len(MAGIC) + 2 + IDENTITY_SIZE

MODULUS_LIMIT = 1 << 2040
"""Exclusive bound on moduli, so that their length in bytes fits into one byte."""

SIZE_LIMIT = 1 << 30
"""Exclusive bound on message sizes, so that each can be encrypted in one piece."""


class Kind(IntEnum):
    """The kind of a message; the value is its fourth byte."""

    MASKING_ROUND = 0x10
    JOIN = 0x11
    SETUP = 0x12
    SHARES = 0x13
    INBOX = 0x14
    MASKED = 0x15
    REQUEST = 0x16
    REVEAL = 0x17
    CHECKED = 0x18
    PAIRS = 0x19
    ACCUSED = 0x1A
    LEFT = 0x1B
    KEYS = 0x1C
    PROOF = 0x1D
    SEEDS = 0x1E
    LAST_SEEDS = 0x1F
    TWO_SERVER_ROUND = 0x20
    HALF = 0x21
    PRESENT = 0x22
    PARTIAL = 0x23
    OUTCOME = 0x24
    VERIFIED_ROUND = 0x28
    MIXING_ROUND = 0x30
    WRAPPED = 0x31
    BATCH = 0x32
    LOCAL_ROUND = 0x40
    LOCAL_REPORT = 0x41


@contextmanager
def rejecting_invalid() -> Iterator[None]:
    """Convert `TacitError` into `Rejected`: inside, an invalid value comes from a message."""
    try:
        yield
    except Rejected:
        raise
    except TacitError as problem:
        raise Rejected(f"description of the round is invalid: {problem}") from None


def header(kind: Kind, identity: bytes) -> bytes:
    """The header of a message.

    >>> header(Kind.JOIN, bytes(16)).hex()
    '7461021100000000000000000000000000000000'
    """
    return MAGIC + bytes((VERSION, kind)) + identity


def body(message: object, kind: Kind, identity: bytes | None = None) -> bytes:
    """The body of a message of this kind and, if given, round; raises `Rejected` otherwise."""
    if not isinstance(message, bytes | bytearray | memoryview):
        raise Rejected(f"message is {type(message).__name__}: must be bytes")
    data = bytes(message)
    if len(data) < HEADER_SIZE or data[:2] != MAGIC:
        raise Rejected(f"message has {len(data)} bytes and no header of tacit: must start with it")
    if data[2] != VERSION:
        raise Rejected(
            f"version of the message is {data[2]}: must be {VERSION}. Update the older side"
        )
    if data[3] != kind:
        raise Rejected(
            f"kind of the message is 0x{data[3]:02x}: must be {kind.name} (0x{kind:02x})"
        )
    if identity is not None and data[4:HEADER_SIZE] != identity:
        raise Rejected("message belongs to another round")
    return data[HEADER_SIZE:]


def kind_of(message: bytes) -> Kind | None:
    """The kind that a message's header names; None without a known one.

    >>> kind_of(header(Kind.OUTCOME, bytes(16)))
    <Kind.OUTCOME: 36>
    """
    return Kind(message[3]) if len(message) > 3 and message[3] in tuple(Kind) else None


def identity_of(message: bytes) -> bytes:
    """The round identity in the header of a message that is already checked."""
    return bytes(message[4:HEADER_SIZE])


def leading_bytes(data: bytes, size: int, name: str) -> bytes:
    """The first `size` bytes of `data`; raises `Rejected` if it is shorter."""
    expect(len(data) >= size, name, f"{len(data)} bytes long", f"at least {size}")
    return data[:size]


def leading_fields(layout: struct.Struct, data: bytes, name: str) -> tuple[tuple[Any, ...], bytes]:
    """Parse the fields at the start of `data`; return the rest too."""
    return layout.unpack(leading_bytes(data, layout.size, name)), data[layout.size :]


def records(data: bytes, size: int, count: int, name: str) -> list[bytes]:
    """Split `data` into exactly `count` records of `size` bytes.

    >>> records(b"aabbcc", 2, 3, "list")
    [b'aa', b'bb', b'cc']
    """
    expect_size(name, data, size * count)
    return [data[start : start + size] for start in range(0, len(data), size)]


def check_modulus(modulus: object) -> int:
    """Check that a round can use this modulus."""
    number = integer("modulus", modulus, at_least=2)
    require(number < MODULUS_LIMIT, "modulus", f"{number.bit_length()} bits long", "at most 2040")
    return number


def check_length(length: object, modulus: int) -> int:
    """Check the count of numbers in a report: at least one, and less than 1 GiB in total."""
    number = integer("length", length, at_least=1)
    small = number * number_size(modulus) < SIZE_LIMIT
    require(small, "length", number, f"smaller: a report has fewer than {SIZE_LIMIT} bytes")
    return number


def pack_integer(number: int) -> bytes:
    """Serialize a positive integer: one byte of length, then the bytes without leading zeros."""
    size = (number.bit_length() + 7) // 8
    return bytes((size,)) + number.to_bytes(size, "big")


def first_integer(data: bytes, name: str) -> tuple[int, bytes]:
    """Parse the integer at the start of `data`, in its shortest encoding; return the rest too."""
    size = data[0] if data else 0
    digits = data[1 : 1 + size]
    shortest = size and len(digits) == size and digits[0]
    rule = "a byte of length, then that many bytes without a leading zero"
    expect(shortest, name, data[: 1 + size].hex() or "empty", rule)
    return int.from_bytes(digits, "big"), data[1 + size :]


def pack_fraction(fraction: Fraction) -> bytes:
    """Serialize a positive fraction: numerator and denominator, in lowest terms."""
    return pack_integer(fraction.numerator) + pack_integer(fraction.denominator)


def first_fraction(data: bytes, name: str) -> tuple[Fraction, bytes]:
    """Parse the fraction at the start of `data`, in lowest terms; return the rest too."""
    top, rest = first_integer(data, name)
    bottom, rest = first_integer(rest, name)
    fraction = Fraction(top, bottom)
    expect(fraction.denominator == bottom, name, f"{top}/{bottom}", "in lowest terms")
    return fraction, rest


def last_modulus(data: bytes) -> int:
    """Parse the modulus at the end of a description, in its shortest encoding."""
    modulus, rest = first_integer(data, "modulus")
    expect(modulus >= 2, "modulus", modulus, "at least 2")
    if rest:
        raise Rejected(f"description has {len(rest)} bytes after the modulus: must have none")
    return modulus


def number_size(modulus: int) -> int:
    """Fixed number of bytes of a number modulo `modulus` on the wire.

    >>> number_size(256), number_size(257)
    (1, 2)
    """
    return ((modulus - 1).bit_length() + 7) // 8


def pack_numbers(numbers: Sequence[int], modulus: int) -> bytes:
    """Serialize numbers in 0..modulus-1, each in `number_size` bytes."""
    size = number_size(modulus)
    return b"".join([number.to_bytes(size, "big") for number in numbers])


def unpack_numbers(data: bytes, modulus: int, count: int, name: str) -> list[int]:
    """Parse exactly `count` numbers in 0..modulus-1."""
    numbers = [
        int.from_bytes(record, "big") for record in records(data, number_size(modulus), count, name)
    ]
    if any(number >= modulus for number in numbers):
        raise Rejected(f"{name} contains a number that is not below the modulus {modulus}")
    return numbers


def check_numbers(values: Sequence[int], modulus: int, count: int) -> list[int]:
    """Check that a client's values are `count` integers; return them modulo `modulus`."""
    require(len(values) == count, "number of values", len(values), f"{count}, as in the round")
    return [_whole(value) % modulus for value in values]


def _whole(value: object) -> int:
    try:
        return value.__index__()  # type: ignore[attr-defined, no-any-return]
    except AttributeError:
        raise TacitError(
            f"value is a {type(value).__name__}: must be a whole number. Encode it first"
        ) from None


def pack_parts(parts: Iterable[bytes]) -> bytes:
    """Serialize the parts of a saved state, each after its length.

    >>> unpack_parts(pack_parts([b"ab", b""]))
    [b'ab', b'']
    """
    return b"".join([len(part).to_bytes(4, "big") + part for part in parts])


def unpack_parts(saved: bytes) -> list[bytes]:
    """Parse the parts of a saved state."""
    parts, start = [], 0
    while start < len(saved):
        end = start + 4 + int.from_bytes(saved[start : start + 4], "big")
        if end > len(saved) or start + 4 > len(saved):
            raise Rejected("saved state is truncated. Restore another one")
        parts.append(saved[start + 4 : end])
        start = end
    if not parts:
        raise Rejected("saved state is empty. Restore another one")
    return parts
