"""Malicious behaviour detected in a round of secure aggregation, and the clients responsible.

If either of two clients may be responsible, a `Blame` names both. Addresses are the clients' public
keys; numbers are valid in the round only.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

_HEAD = struct.Struct(">BB")  # kind, number of clients that follow
_CLIENT = struct.Struct(">I32s")  # number, address
_SAID = 20  # most blames in an error message


class Lie(IntEnum):
    """Kinds of detected malicious behaviour; the value is its byte in a record."""

    WRONG_SHARE = 1
    PARCEL = 2
    UNSIGNED = 3
    FALSE_ALARM = 4
    UNKNOWN_KEY = 5
    UNKNOWN_SEED = 6
    DISPUTED = 7


_WORDS = {
    Lie.WRONG_SHARE: "revealed a share that is not the one it was given",
    Lie.PARCEL: "sealed a parcel that does not open to what was promised",
    Lie.UNSIGNED: "did not sign the parcels that it sent",
    Lie.FALSE_ALARM: "complained of a parcel that opens",
    Lie.UNKNOWN_KEY: "shared something else than the masking key that it announced",
    Lie.UNKNOWN_SEED: "shared something else than the seed that it promised",
    Lie.DISPUTED: "was left out, because it and several neighbours complain of each other: it lies "
    "or several of them do",
}


@dataclass(frozen=True, order=True)
class Blame:
    """Malicious behaviour and the client responsible for it.

    `numbers` and `addresses` name one client, or the sender and receiver of encrypted shares. In
    the second case the receiver accuses the sender: one of them, or the server, is at fault.
    """

    lie: Lie
    numbers: tuple[int, ...]
    addresses: tuple[bytes, ...]

    def __str__(self) -> str:
        first, *others = self.numbers
        doubt = "".join(
            [f", or client {number} or the server says so falsely" for number in others]
        )
        return f"client {first} {_WORDS[self.lie]}{doubt}"

    def encode(self) -> bytes:
        """Serialize the blame for a record."""
        clients = zip(self.numbers, self.addresses, strict=True)
        return _HEAD.pack(self.lie, len(self.numbers)) + b"".join(
            [_CLIENT.pack(number, address) for number, address in clients]
        )


def said_of(blamed: Sequence[Blame]) -> str:
    """Render the blames for an error message; of many, only the first ones."""
    more = f" And {len(blamed) - _SAID} more." if len(blamed) > _SAID else ""
    return "".join([f" Blamed: {blame}." for blame in blamed[:_SAID]]) + more


def decode_blames(data: bytes) -> tuple[Blame, ...]:
    """Parse all blames in a record."""
    blames = []
    while data:
        lie, count = _HEAD.unpack_from(data)
        end = _HEAD.size + count * _CLIENT.size
        numbers, addresses = zip(*_CLIENT.iter_unpack(data[_HEAD.size : end]), strict=True)
        blames.append(Blame(Lie(lie), numbers, addresses))
        data = data[end:]
    return tuple(blames)
